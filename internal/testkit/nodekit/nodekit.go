// Package nodekit runs a whole node inside a test: the real composition root on a
// temporary folder, with a port of its own. Tests talk HTTP to it like any client.
package nodekit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"tidewire/auth"
	"tidewire/internal/config"
	"tidewire/internal/node"
)

// AdminPassword is the password of user admin on every node of this package.
const AdminPassword = "correct horse battery"

// Node is a running node.
type Node struct {
	URL string
	Dir string
	Log *Log
	// Observe, when set, sees every exchange of Do.
	Observe func(t testing.TB, r Request, a *Answer)

	t       testing.TB
	options Options
	node    *node.Node
	once    *sync.Once
}

// Log keeps what a node logs, for tests that look at it.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

// Write adds to the log.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String is all that was logged so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Options say how a node is started. The zero value is a usual node.
type Options struct {
	Flags []string
	// NoAdmin leaves the node without users, so that its setup is open.
	NoAdmin bool
	// Now is the node's wall clock; nil is the machine's.
	Now func() time.Time
	// Quiet leaves all but warnings out of the log, as nodes that are measured do.
	Quiet bool
}

// Start runs a node with further flags until the test ends.
func Start(t testing.TB, flags ...string) *Node {
	t.Helper()
	return StartWith(t, Options{Flags: flags})
}

// StartWith runs a node until the test ends.
func StartWith(t testing.TB, o Options) *Node {
	t.Helper()
	n := &Node{Dir: t.TempDir(), Log: &Log{}, t: t, options: o}
	n.Resume()
	return n
}

// Run starts a node that outlives single tests, for TestMain. Tests use it by With.
func Run(dir string, o Options) (n *Node, stop func() error, err error) {
	n = &Node{Dir: dir, Log: &Log{}, options: o, once: new(sync.Once)}
	if err := n.launch(); err != nil {
		return nil, nil, err
	}
	return n, func() error { return shut(n.node, stopTimeout) }, nil
}

// With returns a running node as another test uses it: failures belong to that test.
func (n *Node) With(t testing.TB) *Node {
	c := *n
	c.t = t
	return &c
}

// Resume starts the node again on the same folder after Stop; the port is another one.
func (n *Node) Resume() {
	n.t.Helper()
	require.NoError(n.t, n.launch())
	n.once = new(sync.Once)
	once, running := n.once, n.node
	n.t.Cleanup(func() { once.Do(func() { stop(n.t, running, stopTimeout) }) })
}

func (n *Node) launch() error {
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	config.AddFlags(fs)
	args := append([]string{"--data-dir", n.Dir, "--http-listen", "127.0.0.1:0", "--disk-reserve", "1MiB"}, n.options.Flags...)
	if err := fs.Parse(args); err != nil {
		return err
	}
	var environ []string
	if !n.options.NoAdmin {
		environ = append(environ, config.AdminPasswordVariable+"="+AdminPassword)
	}
	cfg, err := config.Load(fs, environ)
	if err != nil {
		return err
	}
	level := slog.LevelDebug
	if n.options.Quiet {
		level = slog.LevelWarn
	}
	logger := slog.New(slog.NewTextHandler(n.Log, &slog.HandlerOptions{Level: level}))
	now := n.options.Now
	if now == nil {
		now = time.Now
	}
	seams := node.Seams{Now: now, Hasher: auth.NewHasher(cheapArgon2).WithScramIterations(4096)}
	if n.node, err = node.StartWith(context.Background(), cfg, logger, n.Log, seams); err != nil {
		return err
	}
	n.URL = n.node.URL()
	return nil
}

// cheapArgon2 spares tests the time that guessing passwords shall cost.
var cheapArgon2 = auth.Argon2Params{MemoryKiB: 64, Iterations: 1, Parallelism: 1}

const stopTimeout = 30 * time.Second

func stop(t testing.TB, n *node.Node, within time.Duration) {
	if err := shut(n, within); err != nil {
		t.Errorf("the node did not stop cleanly: %v", err)
	}
}

func shut(n *node.Node, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return n.Stop(ctx)
}

// Handler is the node's whole HTTP surface without a port.
func (n *Node) Handler() http.Handler { return n.node.Handler() }

// Stop ends the node cleanly.
func (n *Node) Stop() { n.StopWithin(stopTimeout) }

// StopWithin ends the node as --shutdown-timeout does; that it needs longer fails the test.
func (n *Node) StopWithin(d time.Duration) {
	n.once.Do(func() { stop(n.t, n.node, d) })
}

// Restart ends the node cleanly and starts it again on the same folder; the port is
// another one.
func (n *Node) Restart() {
	n.t.Helper()
	n.Stop()
	n.Resume()
}

// Answer is a whole HTTP answer.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// JSON decodes the body into v, keeping numbers exact.
func (a *Answer) JSON(t testing.TB, v any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(a.Body))
	dec.UseNumber()
	require.NoError(t, dec.Decode(v), "%s", a.Body)
}

// Code is the problem code of an error answer, "" otherwise.
func (a *Answer) Code() string {
	var p struct {
		Code string `json:"code"`
	}
	_ = json.Unmarshal(a.Body, &p) // not a problem: no code
	return p.Code
}

// Request describes a request to a node. Body may be a string, bytes, or anything else,
// which goes as JSON.
type Request struct {
	Method string
	Path   string // with the query
	Token  string
	Header map[string]string
	Body   any
	// Chunked sends the body without Content-Length.
	Chunked bool
}

// Do sends a request and reads the whole answer.
func (n *Node) Do(r Request) *Answer {
	n.t.Helper()
	var body io.Reader
	contentType := ""
	switch b := r.Body.(type) {
	case nil:
	case string:
		body, contentType = strings.NewReader(b), "application/json"
	case []byte:
		body, contentType = bytes.NewReader(b), "application/json"
	default:
		j, err := json.Marshal(b)
		require.NoError(n.t, err)
		body, contentType = bytes.NewReader(j), "application/json"
	}
	req, err := http.NewRequestWithContext(n.t.Context(), r.Method, n.URL+r.Path, body)
	require.NoError(n.t, err)
	if r.Chunked {
		req.ContentLength = -1
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if r.Token != "" {
		req.Header.Set("Authorization", "Bearer "+r.Token)
	}
	for k, v := range r.Header {
		if v == "" {
			req.Header.Del(k)
		} else {
			req.Header.Set(k, v)
		}
	}
	res, err := transport.RoundTrip(req)
	require.NoError(n.t, err)
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	require.NoError(n.t, err)
	a := &Answer{Status: res.StatusCode, Header: res.Header, Body: b}
	if n.Observe != nil {
		n.Observe(n.t, r, a)
	}
	return a
}

// transport keeps no idle connections, so that a test leaves no goroutine behind.
var transport = &http.Transport{DisableKeepAlives: true, DisableCompression: true, DialContext: dial}

func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &listening{c}, nil
}

// listening is a connection of a client that still reads the answer where the node has
// stopped reading its body: Go's transport would give up on the failed write, though the
// answer is there.
type listening struct{ net.Conn }

func (l *listening) Write(b []byte) (int, error) {
	n, err := l.Conn.Write(b)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return len(b), nil
	}
	return n, err
}

// Login returns an access token.
func (n *Node) Login(username, password string) string {
	n.t.Helper()
	a := n.Do(Request{Method: "POST", Path: "/v1/auth/login", Body: map[string]string{"username": username, "password": password}})
	require.Equal(n.t, 200, a.Status, "%s", a.Body)
	var tokens struct {
		AccessToken string `json:"access_token"`
	}
	a.JSON(n.t, &tokens)
	return tokens.AccessToken
}

// Admin returns an access token of the administrator.
func (n *Node) Admin() string {
	n.t.Helper()
	return n.Login("admin", AdminPassword)
}

// Must sends a request and requires a status.
func (n *Node) Must(status int, r Request) *Answer {
	n.t.Helper()
	a := n.Do(r)
	require.Equal(n.t, status, a.Status, "%s %s: %s", r.Method, r.Path, a.Body)
	return a
}
