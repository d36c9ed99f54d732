// Package nodeproc starts a real tidewire process for tests that need one: the
// README's tour, generated clients. The process has its own data folder and free
// ports, and is asked to stop when the test ends.
package nodeproc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tidewire/internal/lifecycle"
)

const (
	startTimeout = 60 * time.Second
	stopTimeout  = 60 * time.Second
	pollEvery    = 20 * time.Millisecond
)

// Binary returns the path of the tidewire binary to test, from TEST_TIDEWIRE_BINARY, which
// `make test` sets. Without it the test is skipped, except in CI, where it fails.
func Binary(t testing.TB) string {
	t.Helper()
	path := os.Getenv("TEST_TIDEWIRE_BINARY")
	switch {
	case path != "":
		return path
	case os.Getenv("CI") != "":
		t.Fatal("TEST_TIDEWIRE_BINARY is not set; make test sets it")
	}
	t.Skip("needs the binary: run make e2e, or set TEST_TIDEWIRE_BINARY to a built one")
	return ""
}

// Node is a running process.
type Node struct {
	URL     string // of the HTTP interface, without a slash at the end
	DataDir string
}

// Start runs `tidewire serve --dev` with further arguments and returns when the
// node is ready. It fails the test when the node does not become ready, or does
// not exit with status 0 when asked to stop at the test's end.
func Start(t testing.TB, binary string, args ...string) *Node {
	t.Helper()
	n := &Node{DataDir: filepath.Join(t.TempDir(), "data")}
	ctx, cancel := context.WithCancel(context.Background())
	args = append([]string{"serve", "--dev", "--data-dir", n.DataDir, "--http-listen", "127.0.0.1:0",
		"--kafka-listen", "off", "--gossip-listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0"}, args...)
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TIDEWIRE_") }) // settings
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout
	var output lockedBuffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	ended := make(chan struct{})
	group := lifecycle.New(context.Background())
	var status error // written before ended is closed
	group.Go("wait for the node", func(context.Context) { status = cmd.Wait(); close(ended) })
	t.Cleanup(func() {
		cancel()
		<-ended
		if code := cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("the node ended with status %d (%v):\n%s", code, status, output.String())
		}
		if err := group.Stop(stopTimeout); err != nil {
			t.Error(err)
		}
	})
	if err := n.awaitReady(ended); err != nil {
		t.Fatalf("%v:\n%s", err, output.String())
	}
	return n
}

// awaitReady waits until the node has published its addresses and says it is ready.
func (n *Node) awaitReady(ended <-chan struct{}) error {
	deadline := time.NewTimer(startTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	last := fmt.Errorf("never asked")
	for {
		select {
		case <-ended:
			return fmt.Errorf("the node ended before it was ready")
		case <-deadline.C:
			return fmt.Errorf("the node is not ready after %s: %w", startTimeout, last)
		case <-tick.C:
			if last = n.probe(); last == nil {
				return nil
			}
		}
	}
}

func (n *Node) probe() error {
	content, err := os.ReadFile(filepath.Join(n.DataDir, "endpoints.json"))
	if err != nil {
		return err
	}
	var endpoints struct {
		HTTP string `json:"http"` // base URL
	}
	if err := json.Unmarshal(content, &endpoints); err != nil {
		return err
	}
	n.URL = endpoints.HTTP
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, n.URL+"/readyz", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		return err
	}
	if err := answer.Body.Close(); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz answers %s", answer.Status)
	}
	return nil
}

// lockedBuffer collects what a process prints while tests may read it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

// Write appends to the buffer.
func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns what was written so far.
func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
