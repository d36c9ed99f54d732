package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// node is a data folder and the process on it.
type node struct {
	binary, dir string
	cmd         *exec.Cmd
	log         bytes.Buffer
	url, token  string
}

const password = "correct horse battery"

// maxConnections is how many a node may have: one address, such as that of this program, may have
// three quarters of them.
const maxConnections = 14_000

// restart is for a process that has not yet checked a password, which takes much memory.
func (n *node) restart(ctx context.Context) error {
	if err := n.stop(); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(n.dir, "endpoints.json")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return n.start(ctx)
}

func (n *node) start(ctx context.Context) error {
	n.cmd = exec.CommandContext(ctx, n.binary, "serve", "--data-dir", n.dir, "--http-listen", "127.0.0.1:0",
		"--kafka-listen", "off", "--gossip-listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0", "--http-max-connections", strconv.Itoa(maxConnections))
	n.cmd.Env = append(os.Environ(), "TIDEWIRE_ADMIN_PASSWORD="+password)
	n.cmd.Stdout, n.cmd.Stderr = io.Discard, &n.log
	if err := n.cmd.Start(); err != nil {
		return err
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var e struct {
			HTTP string `json:"http"`
		}
		b, err := os.ReadFile(filepath.Join(n.dir, "endpoints.json"))
		if err != nil || json.Unmarshal(b, &e) != nil || e.HTTP == "" {
			continue
		}
		n.url = e.HTTP
		if n.token != "" {
			if n.must("GET", "/v1/topics", "", nil) == nil {
				return nil
			}
			continue
		}
		var t struct {
			Token string `json:"access_token"`
		}
		if err := n.must("POST", "/v1/auth/login", `{"username":"admin","password":"`+password+`"}`, &t); err == nil {
			// A token that outlives the measurement.
			n.token = t.Token
			if err := n.must("POST", "/v1/users/admin/tokens", `{"name":"load"}`, &struct {
				Token *string `json:"token"`
			}{&t.Token}); err != nil {
				return err
			}
			n.token = t.Token
			return nil
		}
	}
	return errors.New("the node did not become ready")
}

func (n *node) stop() error {
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return n.cmd.Wait()
}

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 200}}

// must makes a request that has to succeed.
func (n *node) must(method, path, body string, out any) error {
	req, err := http.NewRequestWithContext(context.Background(), method, n.url+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if n.token != "" {
		req.Header.Set("Authorization", "Bearer "+n.token)
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %d %s", method, path, res.StatusCode, b)
	}
	if out == nil || len(b) == 0 {
		return nil
	}
	return json.Unmarshal(b, out)
}

// memory is what the process has resident, after a while that lets it settle.
func (n *node) memory() (int64, error) {
	time.Sleep(3 * time.Second)
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	return kb << 10, err
}

// cpu is the processor time of the process.
func (n *node) cpu() time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+2:]))
	user, _ := strconv.ParseInt(f[11], 10, 64) // the kernel writes numbers
	system, _ := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// line is one connection that speaks as little HTTP as is needed.
type line struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
	body []byte
}

func (n *node) dial() (*line, error) {
	c, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", strings.TrimPrefix(n.url, "http://"))
	if err != nil {
		return nil, err
	}
	return &line{conn: c, in: bufio.NewReaderSize(c, 4<<10)}, nil
}

// ask sends a request and gives the body of its answer, which has to be 200.
func (l *line) ask(n *node, method, path, body string) ([]byte, error) {
	l.out = fmt.Appendf(l.out[:0], "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n", method, path, n.token)
	if body != "" {
		l.out = fmt.Appendf(l.out, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	l.out = append(append(l.out, "\r\n"...), body...)
	if _, err := l.conn.Write(l.out); err != nil {
		return nil, err
	}
	status, length := "", 0
	for {
		s, err := l.in.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		text := strings.TrimRight(string(s), "\r\n")
		switch name, value, _ := strings.Cut(text, ": "); {
		case status == "":
			status = text
		case name == "Content-Length":
			if length, err = strconv.Atoi(value); err != nil {
				return nil, err
			}
		}
		if text == "" {
			break
		}
	}
	l.body = slices.Grow(l.body[:0], length)[:length]
	if _, err := io.ReadFull(l.in, l.body); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(status, "HTTP/1.1 200") {
		return nil, fmt.Errorf("%s %s: %s %s", method, path, status, l.body)
	}
	return l.body, nil
}

// hammering is a load of requests, one in flight on each connection.
type hammering struct {
	connections, seconds int
	request              func(connection, turn int) (method, path, body string)
}

type latencies []time.Duration

// at is a quantile in milliseconds.
func (l latencies) at(q float64) float64 {
	if len(l) == 0 {
		return 0
	}
	return float64(l[int(q*float64(len(l)-1))].Microseconds()) / 1000
}

func (n *node) hammer(ctx context.Context, h hammering) (int, latencies, error) {
	var mu sync.Mutex
	var all latencies
	var failed error
	var done sync.WaitGroup
	end := time.Now().Add(time.Duration(h.seconds) * time.Second)
	for i := range h.connections {
		done.Go(func() {
			l, err := n.dial()
			var mine latencies
			for turn := 0; err == nil && time.Now().Before(end) && ctx.Err() == nil; turn++ {
				began := time.Now()
				method, path, body := h.request(i, turn)
				if _, err = l.ask(n, method, path, body); err == nil {
					mine = append(mine, time.Since(began))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, mine...)
			failed = errors.Join(failed, err)
			if l != nil {
				_ = l.conn.Close() // it is only a measurement's
			}
		})
	}
	done.Wait()
	slices.Sort(all)
	return len(all), all, failed
}

// waiting are members that poll, each on its own connection.
type waiting struct {
	count atomic.Int64
	err   atomic.Pointer[error]
	lines []*line
	done  sync.WaitGroup
	over  atomic.Bool
}

func (n *node) wait(_ context.Context, paths []string, waitMs int) (*waiting, error) {
	w := &waiting{}
	for _, path := range paths {
		l, err := n.dial()
		if err != nil {
			return nil, err
		}
		w.lines = append(w.lines, l)
		w.done.Go(func() {
			for cursor := ""; !w.over.Load(); w.count.Add(1) {
				b, err := l.ask(n, "GET", path+"/records?wait_ms="+strconv.Itoa(waitMs)+cursor, "")
				if err != nil {
					if !w.over.Load() {
						w.err.CompareAndSwap(nil, &err)
					}
					return
				}
				_, rest, _ := bytes.Cut(b, []byte(`"cursor":"`))
				at, _, _ := bytes.Cut(rest, []byte(`"`))
				cursor = "&cursor=" + string(at)
			}
		})
	}
	return w, nil
}

func (w *waiting) failed() error {
	if err := w.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (w *waiting) end() {
	w.over.Store(true)
	for _, l := range w.lines {
		_ = l.conn.Close() // its request ends
	}
	w.done.Wait()
}
