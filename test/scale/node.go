package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// node is a data folder and the process on it.
type node struct {
	client      http.Client
	binary, dir string
	env         []string

	cmd       *exec.Cmd
	log       bytes.Buffer // of the process that runs or ran last
	url       string
	loginMu   sync.Mutex
	token     string       // set under loginMu
	mostFiles atomic.Int64 // open at any look, since the first start
	watched   chan struct{}
}

const (
	startLimit = 5 * time.Minute
	lookEvery  = 20 * time.Millisecond
)

// start runs the node and returns how long it took until it was ready.
func (n *node) start(ctx context.Context) (time.Duration, error) {
	n.log.Reset()
	if err := os.Remove(filepath.Join(n.dir, "endpoints.json")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	n.cmd = exec.CommandContext(ctx, n.binary, "serve", "--metrics-public", "--data-dir", n.dir, "--http-listen", "127.0.0.1:0",
		"--kafka-listen", "off", "--gossip-listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0", "--shutdown-timeout", "5m")
	n.cmd.Env = append(append(os.Environ(), "TIDEWIRE_ADMIN_PASSWORD="+password), n.env...)
	n.cmd.Stdout, n.cmd.Stderr = io.Discard, &n.log
	began := time.Now()
	if err := n.cmd.Start(); err != nil {
		return 0, err
	}
	n.watched = make(chan struct{})
	go n.watch(n.cmd.Process.Pid, n.watched)
	for time.Since(began) < startLimit {
		if n.ready(ctx) {
			return time.Since(began), nil
		}
		time.Sleep(lookEvery)
	}
	n.abandon()
	return 0, fmt.Errorf("the node was not ready within %s:\n%s", startLimit, n.log.String())
}

// watch counts the open files of a process until it has ended.
func (n *node) watch(pid int, done chan struct{}) {
	defer close(done)
	for {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil || len(entries) == 0 {
			return
		}
		n.mostFiles.Store(max(n.mostFiles.Load(), int64(len(entries))))
		time.Sleep(lookEvery)
	}
}

func (n *node) ready(ctx context.Context) bool {
	raw, err := os.ReadFile(filepath.Join(n.dir, "endpoints.json"))
	var e struct {
		HTTP string `json:"http"`
	}
	if err != nil || json.Unmarshal(raw, &e) != nil {
		return false
	}
	n.url = e.HTTP
	_, err = n.send(ctx, "GET", "/readyz", nil)
	return err == nil
}

const password = "scale administrator"

// login gets the token of further calls. The hash of a password takes 64 MiB for a moment,
// which a process keeps for a while: memory is read of one that nobody has logged in to.
func (n *node) login(ctx context.Context) error {
	raw, err := n.send(ctx, "POST", "/v1/auth/login", map[string]string{"username": "admin", "password": password})
	if err != nil {
		return err
	}
	var answer struct {
		Token string `json:"access_token"`
	}
	err = json.Unmarshal(raw, &answer)
	n.token = answer.Token
	return err
}

// call sends a request of somebody who has logged in.
func (n *node) call(ctx context.Context, method, path string, body any) ([]byte, error) {
	n.loginMu.Lock()
	if n.token == "" {
		if err := n.login(ctx); err != nil {
			n.loginMu.Unlock()
			return nil, err
		}
	}
	n.loginMu.Unlock()
	return n.send(ctx, method, path, body)
}

// send sends a request; an answer that is not 200 to 202 is an error.
func (n *node) send(ctx context.Context, method, path string, body any) ([]byte, error) {
	var content io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, n.url+path, content)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if n.token != "" {
		req.Header.Set("Authorization", "Bearer "+n.token)
	}
	resp, err := n.client.Do(req)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(resp.Body)
	if cerr := resp.Body.Close(); err == nil {
		err = cerr
	}
	if err == nil && resp.StatusCode > 202 {
		err = fmt.Errorf("%s %s: %s: %.500s", method, path, resp.Status, raw)
	}
	return raw, err
}

// stop asks the node to end and returns how long that took.
func (n *node) stop() (time.Duration, error) {
	began := time.Now()
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	err := n.cmd.Wait()
	took := time.Since(began)
	<-n.watched
	n.client.CloseIdleConnections()
	n.cmd, n.token = nil, ""
	if err != nil {
		return 0, fmt.Errorf("the node ended with %w:\n%s", err, n.log.String())
	}
	if _, err := os.Stat(filepath.Join(n.dir, "clean-stop")); err != nil {
		return 0, fmt.Errorf("not a clean stop: %w\n%s", err, n.log.String())
	}
	return took, nil
}

// kill ends the node as kill -9 does.
func (n *node) kill() {
	_ = n.cmd.Process.Kill() // it runs
	_ = n.cmd.Wait()         // it was killed
	<-n.watched
	n.client.CloseIdleConnections()
	n.cmd, n.token = nil, ""
}

// abandon kills what runs, if anything does.
func (n *node) abandon() {
	if n.cmd != nil {
		n.kill()
	}
}

var openedLine = regexp.MustCompile(`the partitions of this node are open.* took=(\S+)`)

// opened is how long the node that runs took to open its partitions, by its own log.
func (n *node) opened() (time.Duration, error) {
	m := openedLine.FindStringSubmatch(n.log.String())
	if m == nil {
		return 0, errors.New("the node does not tell when its partitions were open")
	}
	return time.ParseDuration(m[1])
}

// usage is what a process uses.
type usage struct {
	residentKiB             int64
	limit, evictions, syncs float64 // of the logs' open files
}

func (n *node) usage() (u usage, err error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", n.cmd.Process.Pid))
	if err != nil {
		return u, err
	}
	for l := range strings.Lines(string(raw)) {
		if f := strings.Fields(l); len(f) == 3 && f[0] == "Rss:" {
			if u.residentKiB, err = strconv.ParseInt(f[1], 10, 64); err != nil {
				return u, err
			}
		}
	}
	metrics, err := n.send(context.Background(), "GET", "/metrics", nil)
	if err != nil {
		return u, err
	}
	for l := range strings.Lines(string(metrics)) {
		name, value, _ := strings.Cut(strings.TrimSpace(l), " ")
		x, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue // a comment
		}
		switch name {
		case "tidewire_log_open_files_limit":
			u.limit = x
		case "tidewire_log_file_evictions_total":
			u.evictions = x
		case "tidewire_log_file_eviction_syncs_total":
			u.syncs = x
		}
	}
	return u, nil
}
