package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	startLimit = 60 * time.Second
	stopLimit  = 45 * time.Second
	pollEvery  = 5 * time.Millisecond
)

// node is a data folder and the process that runs on it, if one does. The methods that
// start and end it are for one goroutine; URL is for all.
type node struct {
	dir  string
	args []string // of serve
	env  []string // beyond the plain one
	home string
	path string // of the binary; "": the one under test

	proc *proc
	url  atomic.Pointer[string] // of the process that was ready last
}

// proc is one process of the binary.
type proc struct {
	cmd      *exec.Cmd
	out, err buffer
	ended    chan struct{}
}

// newNode prepares a node with --dev that is not started yet.
func newNode(t testing.TB, args ...string) *node {
	t.Helper()
	n := &node{dir: filepath.Join(t.TempDir(), "data"), home: t.TempDir(), args: append([]string{"--dev"}, args...)}
	t.Cleanup(func() { n.kill() })
	return n
}

// startNode starts a node with --dev.
func startNode(t testing.TB, args ...string) *node {
	t.Helper()
	n := newNode(t, args...)
	n.start(t)
	return n
}

// plainEnv is a process's environment: nothing of the surroundings that Tidewire reads.
func plainEnv(home string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LANG=C.UTF-8"}
}

// serveArgs is the command line of the node, on free ports.
func (n *node) serveArgs() []string {
	return append([]string{"serve", "--data-dir", n.dir, "--http-listen", "127.0.0.1:0", "--kafka-listen", "off",
		"--gossip-listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0"}, n.args...)
}

// launch starts a process and does not wait for it.
func launch(t testing.TB, env []string, args ...string) *proc {
	t.Helper()
	return launchAs(t, binary, nil, env, args...)
}

// launchAs starts a process of a copy of the binary as a user; nil is this one.
func launchAs(t testing.TB, path string, as *syscall.Credential, env []string, args ...string) *proc {
	t.Helper()
	p := &proc{cmd: exec.Command(path, args...), ended: make(chan struct{})}
	p.cmd.Env = env
	if as != nil {
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // the state says how it ended
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		for _, fault := range []string{"panic: ", "fatal error: ", "DATA RACE"} {
			if strings.Contains(p.err.String(), fault) {
				t.Errorf("the process printed %q:\n%s", fault, p.err.String())
			}
		}
	})
	return p
}

// wait waits for the end and returns the exit code, -1 after a signal.
func (p *proc) wait(t testing.TB, limit time.Duration) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(limit):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // prints where it hangs
		<-p.ended
		t.Fatalf("the process did not end within %s:\n%s", limit, p.err.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *proc) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// spawn starts the process without waiting until it is ready.
func (n *node) spawn(t testing.TB) {
	t.Helper()
	require.True(t, n.proc == nil || !n.proc.running(), "the node runs already")
	_ = os.Remove(filepath.Join(n.dir, "endpoints.json")) // a killed process leaves it
	n.proc = launchAs(t, cmp.Or(n.path, binary), nil, append(plainEnv(n.home), n.env...), n.serveArgs()...)
}

// start starts the process and waits until it is ready.
func (n *node) start(t testing.TB) {
	t.Helper()
	n.spawn(t)
	n.awaitReady(t)
}

func (n *node) awaitReady(t testing.TB) {
	t.Helper()
	last := errors.New("never asked")
	for deadline := time.Now().Add(startLimit); time.Now().Before(deadline); {
		if !n.proc.running() {
			t.Fatalf("the node ended with %d before it was ready:\n%s", n.proc.cmd.ProcessState.ExitCode(), n.proc.err.String())
		}
		var url string
		if url, last = n.probe(); last == nil {
			n.url.Store(&url)
			return
		}
		time.Sleep(pollEvery)
	}
	t.Fatalf("the node is not ready after %s (%v):\n%s", startLimit, last, n.proc.err.String())
}

func (n *node) probe() (string, error) {
	content, err := os.ReadFile(filepath.Join(n.dir, "endpoints.json"))
	if err != nil {
		return "", err
	}
	var endpoints struct {
		HTTP string `json:"http"`
		PID  int    `json:"pid"`
	}
	if err := json.Unmarshal(content, &endpoints); err != nil {
		return "", err
	}
	if endpoints.PID != n.proc.cmd.Process.Pid {
		return "", fmt.Errorf("endpoints.json is of process %d, not %d", endpoints.PID, n.proc.cmd.Process.Pid)
	}
	c := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get(endpoints.HTTP + "/readyz")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("/readyz answers %s", resp.Status)
	}
	return endpoints.HTTP, nil
}

// URL is the address of the process that was ready last.
func (n *node) URL() string { return *n.url.Load() }

// stop asks the process to stop, as a service manager does, and requires exit code 0.
func (n *node) stop(t testing.TB) {
	t.Helper()
	require.NoError(t, n.proc.cmd.Process.Signal(syscall.SIGTERM))
	code := n.proc.wait(t, stopLimit)
	require.Zero(t, code, "SIGTERM: exit code, with standard error:\n%s", n.proc.err.String())
}

// kill ends the process with SIGKILL.
func (n *node) kill() {
	if n.proc == nil {
		return
	}
	_ = n.proc.cmd.Process.Kill()
	<-n.proc.ended
}

// restart ends the process, cleanly or not, and starts another.
func (n *node) restart(t testing.TB, clean bool) {
	t.Helper()
	if clean {
		n.stop(t)
	} else {
		n.kill()
	}
	n.start(t)
}

// ran is what a command that has ended left.
type ran struct {
	code     int
	out, err string
}

// runEnv runs the binary to its end.
func runEnv(t testing.TB, env []string, stdin io.Reader, args ...string) ran {
	t.Helper()
	p := &proc{cmd: exec.Command(binary, args...), ended: make(chan struct{})}
	p.cmd.Env, p.cmd.Stdin = env, stdin
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
	}()
	code := p.wait(t, 2*time.Minute)
	return ran{code, p.out.String(), p.err.String()}
}

// cli runs a client command against the node as the user of the token.
func (n *node) cli(t testing.TB, token, stdin string, args ...string) ran {
	t.Helper()
	env := append(plainEnv(n.home), "TIDEWIRE_SERVER="+n.URL(), "TIDEWIRE_TOKEN="+token)
	return runEnv(t, env, strings.NewReader(stdin), args...)
}

// must runs a client command that has to succeed, and returns its standard output.
func (n *node) must(t testing.TB, token, stdin string, args ...string) string {
	t.Helper()
	r := n.cli(t, token, stdin, args...)
	require.Zero(t, r.code, "tidewire %s: %s", strings.Join(args, " "), r.err)
	return r.out
}

// buffer collects what a process prints; its methods may be called at any time.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

// Write appends.
func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns what was written so far.
func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
