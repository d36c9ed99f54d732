package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// instruction is one of a Dockerfile.
type instruction struct{ verb, rest string }

// instructions reads a Dockerfile; lines that end with a backslash go on.
func instructions(t *testing.T, name string) []instruction {
	t.Helper()
	f, err := os.Open(name)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	var out []instruction
	text := ""
	for s := bufio.NewScanner(f); s.Scan(); {
		line := strings.TrimSpace(s.Text())
		if strings.HasPrefix(line, "#") || line == "" {
			continue
		}
		if more, ok := strings.CutSuffix(line, `\`); ok {
			text += more
			continue
		}
		verb, rest, _ := strings.Cut(text+line, " ")
		out = append(out, instruction{verb, strings.TrimSpace(rest)})
		text = ""
	}
	require.Empty(t, text, "the last line goes on")
	return out
}

// stage is an image while it is built: a folder in place of its file system.
type stage struct {
	root, workdir string
	env           []string // ENV and ARG
	user          string
	entry, cmd    []string
	health        []string
}

// place is where a path of the image is.
func (s *stage) place(p string) string {
	if !path.IsAbs(p) {
		p = path.Join(s.workdir, p)
	}
	return filepath.Join(s.root, filepath.FromSlash(path.Clean("/"+p)))
}

// builder executes a Dockerfile without a container engine: each stage is an empty folder,
// COPY copies into it, RUN runs on this machine in its WORKDIR. So a RUN must keep to
// relative paths and to the tools that its base image has.
type builder struct {
	t       *testing.T
	context string
	ignored []string
	stages  map[string]*stage
	last    *stage
	ran     int
}

func (b *builder) build(name string) *stage {
	b.t.Helper()
	raw, err := os.ReadFile(name + ".dockerignore")
	require.NoError(b.t, err)
	for line := range strings.Lines(string(raw)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			b.ignored = append(b.ignored, line)
		}
	}
	for _, i := range instructions(b.t, name) {
		b.execute(i)
	}
	return b.last
}

func (b *builder) execute(i instruction) {
	b.t.Helper()
	s := b.last
	switch i.verb {
	case "FROM":
		b.last = &stage{root: b.t.TempDir(), workdir: "/"}
		if _, name, ok := strings.Cut(i.rest, " AS "); ok {
			b.stages[name] = b.last
		}
	case "WORKDIR":
		s.workdir = i.rest
		require.NoError(b.t, os.MkdirAll(s.place("."), 0o755))
	case "COPY":
		b.copy(i.rest)
	case "RUN":
		b.run(i.rest)
	case "ENV", "ARG":
		require.Contains(b.t, i.rest, "=", "%s has a value", i.verb)
		s.env = append(s.env, i.rest)
	case "USER":
		s.user = i.rest
	case "ENTRYPOINT":
		require.NoError(b.t, json.Unmarshal([]byte(i.rest), &s.entry))
	case "CMD":
		require.NoError(b.t, json.Unmarshal([]byte(i.rest), &s.cmd))
	case "HEALTHCHECK":
		_, command, ok := strings.Cut(i.rest, "CMD ")
		require.True(b.t, ok)
		require.NoError(b.t, json.Unmarshal([]byte(command), &s.health))
	case "VOLUME", "EXPOSE", "STOPSIGNAL":
	default:
		b.t.Fatalf("unknown instruction %s", i.verb)
	}
}

func (b *builder) run(command string) {
	b.t.Helper()
	c := exec.Command("/bin/sh", "-ec", command)
	c.Dir = b.last.place(".")
	c.Env = append(os.Environ(), b.last.env...)
	out, err := c.CombinedOutput()
	require.NoError(b.t, err, "RUN %s\n%s", command, out)
	b.ran++
}

func (b *builder) copy(rest string) {
	b.t.Helper()
	from, owner := b.context, ""
	words := strings.Fields(rest)
	for strings.HasPrefix(words[0], "--") {
		name, value, _ := strings.Cut(words[0], "=")
		switch name {
		case "--from":
			require.Contains(b.t, b.stages, value)
			from = b.stages[value].root
		case "--chown":
			owner = value
		default:
			b.t.Fatalf("unknown option %s", name)
		}
		words = words[1:]
	}
	to := words[len(words)-1]
	for _, w := range words[:len(words)-1] {
		source := filepath.Join(from, w)
		info, err := os.Stat(source)
		require.NoError(b.t, err)
		target := b.last.place(to)
		if !info.IsDir() && (strings.HasSuffix(to, "/") || to == ".") {
			target = filepath.Join(target, filepath.Base(source))
		}
		b.copyTree(source, target, from == b.context, owner)
	}
}

// copyTree copies a file, or what is in a folder.
func (b *builder) copyTree(source, target string, filtered bool, owner string) {
	b.t.Helper()
	err := filepath.WalkDir(source, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if skip, err := b.skips(name, filtered, e); skip {
			return err
		}
		inner, err := filepath.Rel(source, name)
		if err != nil {
			return err
		}
		return copyEntry(name, filepath.Join(target, inner), e, owner)
	})
	require.NoError(b.t, err)
}

// skips tells whether a file or folder is left out, and what the walk is to do then.
func (b *builder) skips(name string, filtered bool, e fs.DirEntry) (bool, error) {
	if !filtered {
		return false, nil
	}
	rel, err := filepath.Rel(b.context, name)
	switch {
	case err != nil:
		return true, err
	case !ignores(b.ignored, filepath.ToSlash(rel)):
		return false, nil
	case e.IsDir():
		return true, fs.SkipDir
	}
	return true, nil
}

func copyEntry(name, to string, e fs.DirEntry, owner string) error {
	info, err := e.Info()
	if err != nil {
		return err
	}
	if e.IsDir() {
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		return chown(to, owner)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is neither a file nor a folder", name)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if err := os.WriteFile(to, content, info.Mode().Perm()); err != nil {
		return err
	}
	return chown(to, owner)
}

func chown(name, owner string) error {
	if owner == "" {
		return nil
	}
	u, g, err := ids(owner)
	if err != nil {
		return err
	}
	return os.Chown(name, u, g)
}

// ids reads the form uid:gid.
func ids(owner string) (uid, gid int, err error) {
	u, g, _ := strings.Cut(owner, ":")
	if uid, err = strconv.Atoi(u); err != nil {
		return 0, 0, err
	}
	gid, err = strconv.Atoi(g)
	return uid, gid, err
}

// ignores tells whether a path below the context is left out. Of the patterns' language it
// knows what this project uses: a path, a name with stars, and a leading **/ for any depth.
func ignores(patterns []string, rel string) bool {
	for _, p := range patterns {
		name := rel
		if deep, ok := strings.CutPrefix(p, "**/"); ok {
			p, name = deep, path.Base(rel)
		}
		if ok, err := path.Match(p, name); ok && err == nil {
			return true
		}
	}
	return false
}
