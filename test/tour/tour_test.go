package tour

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/testkit/nodeproc"
)

const (
	heading = "## A five-minute tour"
	mark    = "-- end of a step of the tour --"
	limit   = 3 * time.Minute
)

func TestTheTourInTheREADMERuns(t *testing.T) {
	t.Parallel()
	runPage(t, "README.md", heading)
}

func TestThePageAboutConsumingRuns(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"node", "python3"} {
		if _, err := exec.LookPath(program); err != nil && os.Getenv("CI") == "" {
			t.Skip("needs " + program)
		}
	}
	runPage(t, filepath.Join("docs", "consuming.md"), "# Consuming")
}

// runPage runs what a page shows below a heading, and compares what it prints.
func runPage(t *testing.T, page, heading string) {
	t.Helper()
	binary := nodeproc.Binary(t)
	text, err := os.Open(filepath.Join("..", "..", page))
	require.NoError(t, err)
	defer text.Close()
	steps, err := readSteps(text, heading)
	require.NoError(t, err)

	node := nodeproc.Start(t, binary)
	folder := layOut(t, binary)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	bash := exec.CommandContext(ctx, "bash", "-eo", "pipefail", "-c", script(steps, mark))
	bash.Dir = folder
	bash.WaitDelay = 10 * time.Second
	// TOUR_NODE is the one thing that differs from what a reader does: the tour
	// itself reads it, and takes the address of `make run` without it.
	bash.Env = []string{"HOME=" + folder, "PATH=" + os.Getenv("PATH"), "TOUR_NODE=" + node.URL, "LANG=C.UTF-8"}
	var printed, complaints bytes.Buffer
	bash.Stdout, bash.Stderr = &printed, &complaints
	err = bash.Run()
	outputs := split(printed.String(), mark)
	for i, output := range outputs {
		if i < len(steps) && !steps[i].matches(output) {
			t.Errorf("%s:%d prints something else than the text below it\n--- commands\n%s--- wanted\n%s--- printed\n%s", page, steps[i].line, steps[i].commands, steps[i].output, output)
		}
	}
	require.NoErrorf(t, err, "step %d of %d failed (%s:%d)\n--- standard error\n%s\n--- standard output\n%s",
		len(outputs), len(steps), page, steps[max(len(outputs), 1)-1].line, complaints.String(), printed.String())
	require.Len(t, outputs, len(steps))
}

// layOut makes a folder that looks like the checkout as far as the tour can see:
// with the binary at bin/tidewire.
func layOut(t *testing.T, binary string) string {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(folder, "bin"), 0o755))
	absolute, err := filepath.Abs(binary)
	require.NoError(t, err)
	require.NoError(t, os.Symlink(absolute, filepath.Join(folder, "bin", "tidewire")))
	return folder
}

const sample = "# Title\n```sh\nnot run\n```\n## Tour\ntext\n```sh\necho one\n```\n\n```text\none\n```\n```sh\nx=two\n```\n" +
	"### Deeper\n```\nplain\n```\n```sh\necho $x; printf three\n```\n```text\n…\nthr…\n```\n## After\n```sh\nnot run\n```\n"

func TestStepsAreTheBlocksUnderTheHeading(t *testing.T) {
	t.Parallel()
	steps, err := readSteps(strings.NewReader(sample), "## Tour")
	require.NoError(t, err)
	require.Equal(t, []step{
		{line: 8, commands: "echo one\n", output: "one\n", checked: true},
		{line: 15, commands: "x=two\n"},
		{line: 22, commands: "echo $x; printf three\n", output: "…\nthr…\n", checked: true},
	}, steps)
}

func TestOneShellRunsAllStepsAndTheirOutputsAreToldApart(t *testing.T) {
	t.Parallel()
	steps, err := readSteps(strings.NewReader(sample), "## Tour")
	require.NoError(t, err)
	printed, err := exec.Command("bash", "-ec", script(steps, mark)).Output()
	require.NoError(t, err)
	require.Equal(t, []string{"one\n", "", "two\nthree"}, split(string(printed), mark))
	stopped, err := exec.Command("bash", "-ec", script(append(steps[:1:1], step{commands: "echo here; false\n"}), mark)).Output()
	require.Error(t, err)
	require.Equal(t, []string{"one\n", "here\n"}, split(string(stopped), mark), "the failing step is the last")
}

func TestTextsThatCannotBeATourAreRefused(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no heading":    "```sh\nx\n```\n",
		"no commands":   "## Tour\ntext\n",
		"open block":    "## Tour\n```sh\nx\n",
		"output of two": "## Tour\n```sh\nx\n```\n```text\na\n```\n```text\nb\n```\n",
		"words between": "## Tour\n```sh\nx\n```\nAnd so on.\n```text\na\n```\n",
	} {
		_, err := readSteps(strings.NewReader(text), "## Tour")
		require.Error(t, err, name)
	}
}

func TestOutputsAreComparedWithGaps(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		want, printed string
		equal         bool
	}{
		{"a\n", "a\n", true},
		{"a\n", "a", true},
		{"a\n", "a\n\n", false},
		{"a\n", "a\nb\n", false},
		{"a…c\n", "abbc\n", true},
		{"a…c\n", "a\nc\n", false},
		{"…\nz\n", "x\ny\nz\n", true},
		{"…\nz\n", "z\n", true},
		{"…\nz\n", "xz\n", false},
		{`{"a":1.5}` + "\n", `{"a":1x5}` + "\n", false},
		{"", "", true},
		{"", "x\n", false},
	} {
		got := step{output: x.want, checked: true}.matches(x.printed)
		require.Equal(t, x.equal, got, "%q against %q", x.printed, x.want)
	}
	require.True(t, step{}.matches("anything"), "a step without an output takes any")
}
