package h1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// patience is after what a test is taken to hang.
const patience = 60 * time.Second

// newHTTP is the http.Server of a test; its log goes nowhere.
func newHTTP(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: patience, ErrorLog: log.New(io.Discard, "", 0)}
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l
}

// start serves until the end of the test; change may set timeouts.
func start(t testing.TB, h http.Handler, change ...func(*http.Server)) (s *Server, addr string) {
	t.Helper()
	hs := newHTTP(h)
	for _, f := range change {
		f(hs)
	}
	s = New(hs, slog.New(slog.DiscardHandler))
	l := listen(t)
	return s, run(t, l, s)
}

// startPlain serves by net/http alone.
func startPlain(t testing.TB, h http.Handler, change ...func(*http.Server)) (addr string) {
	t.Helper()
	hs := newHTTP(h)
	for _, f := range change {
		f(hs)
	}
	return run(t, listen(t), hs)
}

func run(t testing.TB, l net.Listener, s interface {
	Serve(net.Listener) error
	Close() error
},
) string {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close() // a test may have closed it
		require.ErrorIs(t, <-ended, http.ErrServerClosed)
	})
	return l.Addr().String()
}

// client is one connection that speaks raw bytes.
type client struct {
	t testing.TB
	*net.TCPConn
	in *bufio.Reader
}

func dial(t testing.TB, addr string) *client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() }) // a test may have closed it
	return dialed(t, c)
}

func dialed(t testing.TB, c net.Conn) *client {
	_ = c.SetDeadline(time.Now().Add(patience)) // a closed connection fails at the next read
	return &client{t, c.(*net.TCPConn), bufio.NewReader(c)}
}

func (c *client) send(raw string) {
	c.t.Helper()
	_, err := io.WriteString(c, raw)
	require.NoError(c.t, err)
}

// reply is an answer as a client sees it.
type reply struct {
	status int
	header http.Header // without Date
	body   string
	cut    bool // the body ended before its end
	length int64
	close  bool
}

// read reads one answer, the interim ones with it.
func (c *client) read(method string) (r reply, err error) {
	resp, err := http.ReadResponse(c.in, &http.Request{Method: method})
	if err != nil {
		return r, err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // it is at its end
	resp.Header.Del("Date")
	return reply{resp.StatusCode, resp.Header, string(body), err != nil, resp.ContentLength, resp.Close}, nil
}

func (c *client) answer(method string) reply {
	c.t.Helper()
	r, err := c.read(method)
	require.NoError(c.t, err)
	return r
}

// closed reads to the connection's end.
func (c *client) closed() {
	c.t.Helper()
	_, err := io.Copy(io.Discard, c.in)
	if err != nil {
		var timeout net.Error
		require.False(c.t, errors.As(err, &timeout) && timeout.Timeout(), "the connection stayed open")
	}
}

const get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

func shutdown(t testing.TB, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, s.Shutdown(ctx))
}

// tracked is how many connections the server serves itself.
func (s *Server) tracked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

func repeat(n int) string { return string(bytes.Repeat([]byte("0123456789abcdef"), (n+15)/16)[:n]) }

func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	require.Eventually(t, f, patience, time.Millisecond, what)
}
