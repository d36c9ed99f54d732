// Package tour runs the five-minute tour of the README, and the page about consuming,
// against a real node, word for word, so that what they show is what happens.
//
// The blocks marked sh below the heading run in one bash, in the order in which they stand,
// and those marked js and python as programs that it starts. A block marked text right after one is what it prints: "…"
// stands for anything within a line, and a line of its own for any lines.
package tour

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// step is one block of commands and, where the text gives it, what it prints.
type step struct {
	line     int // of the README, where the commands start, from 1
	commands string
	output   string
	checked  bool // whether the text gives an output
}

// readSteps takes the steps from the section under the heading, up to the next
// heading of the same or a higher level.
func readSteps(markdown io.Reader, heading string) ([]step, error) {
	r := reader{heading: heading, level: level(heading)}
	lines := bufio.NewScanner(markdown)
	for lines.Scan() {
		r.number++
		if err := r.take(lines.Text()); err != nil {
			return nil, err
		}
	}
	switch {
	case lines.Err() != nil:
		return nil, lines.Err()
	case r.fence != "":
		return nil, fmt.Errorf("line %d: the block does not end", r.start)
	case len(r.steps) == 0:
		return nil, fmt.Errorf("no sh block under %q", heading)
	}
	return r.steps, nil
}

// reader is where readSteps is in the text.
type reader struct {
	heading string
	level   int
	number  int  // of the present line
	inside  bool // below the heading

	fence string // language of the block that is open, "" outside of blocks
	start int    // line of the block's fence
	body  strings.Builder

	adjacent bool // no command block but the last one is what a text block belongs to
	steps    []step
}

func (r *reader) take(line string) error {
	if language, isFence := strings.CutPrefix(line, "```"); isFence {
		if r.fence != "" {
			return r.close()
		}
		r.fence, r.start = "plain", r.number
		if language != "" {
			r.fence = language
		}
		r.body.Reset()
		return nil
	}
	switch {
	case r.fence != "":
		r.body.WriteString(line + "\n")
	case line == r.heading:
		r.inside = true
	case level(line) > 0 && level(line) <= r.level:
		r.inside = false
	case line != "":
		r.adjacent = false
	}
	return nil
}

// close ends the open block.
func (r *reader) close() error {
	language := r.fence
	r.fence = ""
	if !r.inside {
		return nil
	}
	switch language {
	case "sh", "js", "python":
		r.steps = append(r.steps, step{line: r.start + 1, commands: programs[language].wrap(r.body.String())})
		r.adjacent = true
	case "text":
		if !r.adjacent {
			return fmt.Errorf("line %d: a text block that follows no commands", r.start)
		}
		last := &r.steps[len(r.steps)-1]
		last.output, last.checked = r.body.String(), true
		r.adjacent = false
	}
	return nil
}

// program runs the text of a block; "": the shell does.
type program string

var programs = map[string]program{"js": "node --input-type=module -", "python": "python3 -"}

// wrap makes a command of a program's text.
func (p program) wrap(text string) string {
	if p == "" {
		return text
	}
	return string(p) + " <<'END OF THE PROGRAM'\n" + text + "END OF THE PROGRAM\n"
}

// level of a heading, 0 for other lines.
func level(line string) int {
	marks := len(line) - len(strings.TrimLeft(line, "#"))
	if marks > 0 && strings.HasPrefix(line[marks:], " ") {
		return marks
	}
	return 0
}

// pattern turns an expected output into an expression for the whole of it.
func pattern(output string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`\A`)
	for line := range strings.Lines(output) {
		line = strings.TrimSuffix(line, "\n")
		if line == "…" {
			b.WriteString(`(?:.*\n)*`)
			continue
		}
		b.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + `\n`)
	}
	b.WriteString(`\z`)
	return regexp.MustCompile(b.String())
}

// matches compares what a step printed with what the text shows. A missing line
// end at the very end makes no difference: terminals do not show it.
func (s step) matches(printed string) bool {
	if printed != "" && !strings.HasSuffix(printed, "\n") {
		printed += "\n"
	}
	return !s.checked || pattern(s.output).MatchString(printed)
}

// script joins the steps into one, with a line of the mark after each, by which
// split tells their outputs apart.
func script(steps []step, mark string) string {
	var b strings.Builder
	for _, s := range steps {
		b.WriteString(s.commands)
		fmt.Fprintf(&b, "printf '%%s\\n' '%s'\n", mark)
	}
	return b.String()
}

// split cuts the script's output into the steps' outputs. There are fewer than
// steps when the script ended early; the last is then that of the step that failed.
func split(printed, mark string) []string {
	outputs := strings.Split(printed, mark+"\n")
	if last := len(outputs) - 1; outputs[last] == "" {
		outputs = outputs[:last]
	}
	return outputs
}
