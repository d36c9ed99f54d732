package tour

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/testkit/nodeproc"
)

// cli is the command line against a node.
type cli struct {
	t      *testing.T
	binary string
	env    []string
}

func newCLI(t *testing.T) *cli {
	t.Helper()
	binary, err := filepath.Abs(nodeproc.Binary(t))
	require.NoError(t, err)
	node := nodeproc.Start(t, binary)
	c := &cli{t: t, binary: binary, env: []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}}
	c.ok("tidewire\n", "login", node.URL, "--username", "admin", "--password-stdin")
	return c
}

func (c *cli) command(ctx context.Context, in string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.binary, args...)
	cmd.Env, cmd.Stdin = c.env, strings.NewReader(in)
	return cmd
}

func (c *cli) ok(in string, args ...string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	var out, errOut bytes.Buffer
	cmd := c.command(ctx, in, args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	require.NoError(c.t, cmd.Run(), "%v: %s", args, errOut.String())
	return out.String()
}

// members are how many a group has.
func (c *cli) members(group string) int {
	c.t.Helper()
	var g struct {
		Members []json.RawMessage `json:"members"`
	}
	require.NoError(c.t, json.Unmarshal([]byte(c.ok("", "group", "describe", group, "-o", "json")), &g))
	return len(g.Members)
}

// Each name of a group works through the command line: read once, described, moved, read
// again, deleted.
func TestGroupsOfAnyNameThroughTheCommandLine(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.ok("", "topic", "create", "t", "--partitions", "2")
	c.ok("", "topic", "create", "u")
	c.ok("a\nb\nc\n", "produce", "t", "--format", "lines")
	c.ok("d\n", "produce", "u", "--format", "lines")
	for _, name := range []string{"a/b", "x#y", "p@q", "t:n", "ü", "%2F", "a b+c", "-", strings.Repeat("g", 255)} {
		read := func() int { return strings.Count(c.ok("", "consume", "t", "u", "--group="+name, "-o", "value"), "\n") }
		require.Equal(t, 4, read(), name)
		require.Zero(t, read(), "what was printed is committed: %q", name)
		require.Contains(t, c.ok("", "group", "describe", "-o", "json", "--", name), `"total_lag":0`)
		require.Contains(t, c.ok("", "group", "list"), name)
		moves := c.ok("", "group", "reset", "--topic", "t", "--to", "earliest", "--dry-run", "--", name)
		require.Equal(t, moves, c.ok("", "group", "reset", "--topic", "t", "--to", "earliest", "--yes", "--", name), "the dry run tells what is done")
		require.Equal(t, 3, read(), name)
		c.ok("", "group", "delete", "--", name)
		require.NotContains(t, c.ok("", "group", "list", "-o", "json"), `"total_lag"`)
	}
}

// A member that is interrupted has committed what it printed, and leaves.
func TestAnInterruptLeavesTheGroup(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.ok("", "topic", "create", "t")
	c.ok("a\nb\n", "produce", "t", "--format", "lines")
	cmd := c.command(t.Context(), "", "consume", "t", "--group", "g", "--follow", "--from", "earliest", "-o", "value")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	first := make([]byte, 4)
	for n := 0; n < len(first); {
		got, err := out.Read(first[n:])
		require.NoError(t, err)
		n += got
	}
	require.Equal(t, "a\nb\n", string(first))
	require.Equal(t, 1, c.members("g"))
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.NoError(t, cmd.Wait(), "an interrupt is how following ends")
	require.Zero(t, c.members("g"))
	require.Empty(t, c.ok("", "consume", "t", "--group", "g", "-o", "value"))
}
