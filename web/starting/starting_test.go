package starting_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidewire/web/starting"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, prefix string) (*starting.Server, *net.TCPListener) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() }) // a test may have closed it
	return starting.Serve(starting.Config{Listener: l.(*net.TCPListener), Prefix: prefix, Logger: slog.New(slog.DiscardHandler)}), l.(*net.TCPListener)
}

// ask makes a request on a connection of its own.
func ask(t *testing.T, l net.Listener, request string) (*http.Response, string) {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(c, request)
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp, string(b)
}

func TestANodeThatStartsSaysSo(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", "/x/y"} {
		s, l := serve(t, prefix)
		s.Because("it waits for <2> more nodes")
		const host = " HTTP/1.1\r\nHost: a\r\n"

		resp, body := ask(t, l, "GET "+prefix+"/healthz"+host+"\r\n")
		require.Equal(t, 200, resp.StatusCode)
		require.JSONEq(t, `{"status":"ok"}`, body)
		require.True(t, resp.Close, "the next request is the node's")

		resp, body = ask(t, l, "GET "+prefix+"/readyz"+host+"\r\n")
		require.Equal(t, 503, resp.StatusCode)
		require.Equal(t, "1", resp.Header.Get("Retry-After"))
		var problem struct {
			Code, Instance string
			Ready          *bool
			Reasons        []string
			Retryable      bool
			Outcome        *string
			RequestID      string `json:"request_id"`
		}
		require.NoError(t, json.Unmarshal([]byte(body), &problem))
		require.Equal(t, "leader-unavailable", problem.Code)
		require.Equal(t, []string{"the node is starting: it waits for <2> more nodes"}, problem.Reasons)
		require.False(t, *problem.Ready)
		require.True(t, problem.Retryable)
		require.Equal(t, prefix+"/readyz", problem.Instance)
		require.Equal(t, resp.Header.Get("X-Request-Id"), problem.RequestID)

		// A write was certainly not applied, whatever of its body comes.
		resp, body = ask(t, l, "POST "+prefix+"/v1/topics"+host+"Content-Length: 10\r\n\r\n{")
		require.Equal(t, 503, resp.StatusCode)
		require.NoError(t, json.Unmarshal([]byte(body), &problem))
		require.Equal(t, "not-applied", *problem.Outcome)

		resp, body = ask(t, l, "GET "+prefix+"/ui/"+host+"Accept: text/html,*/*\r\n\r\n")
		require.Equal(t, 503, resp.StatusCode)
		require.Contains(t, body, "it waits for &lt;2&gt; more nodes")
		require.Contains(t, body, `http-equiv="refresh"`)
		require.NoError(t, s.End())
	}
}

// What comes after the end waits for who listens next, and is lost by nobody.
func TestTheListenerIsGivenBackOpen(t *testing.T) {
	t.Parallel()
	s, l := serve(t, "")
	half, err := net.Dial("tcp", l.Addr().String()) // a client that says nothing holds nobody up
	require.NoError(t, err)
	defer half.Close()
	require.NoError(t, s.End())
	next := make(chan error, 1)
	go func() {
		c, err := net.Dial("tcp", l.Addr().String())
		if err == nil {
			_, err = fmt.Fprint(c, "x")
			_ = c.Close()
		}
		next <- err
	}()
	require.NoError(t, l.SetDeadline(time.Now().Add(time.Minute)))
	for {
		c, err := l.Accept()
		require.NoError(t, err)
		b, _ := io.ReadAll(c) // of half: nothing, if it was not taken before
		require.NoError(t, c.Close())
		if string(b) == "x" {
			break
		}
		require.NoError(t, half.Close())
	}
	require.NoError(t, <-next)
}

// Clients beyond the bound wait, and are answered in turn.
func TestAFloodOfConnectionsIsBounded(t *testing.T) {
	t.Parallel()
	s, l := serve(t, "")
	idle := make([]net.Conn, 300)
	for i := range idle {
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		idle[i] = c
	}
	for _, c := range idle {
		require.NoError(t, c.Close())
	}
	resp, body := ask(t, l, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
	require.Equal(t, 200, resp.StatusCode)
	require.True(t, strings.Contains(body, "ok"))
	require.NoError(t, s.End())
}
