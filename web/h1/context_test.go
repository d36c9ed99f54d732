package h1

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// watched tells whether the client of w's request is being watched, and when that ends.
func watched(w http.ResponseWriter) (end chan struct{}) {
	x := w.(*exchange)
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.watching
}

// longPoll waits for the client to go away or to be let go, and writes how it ended.
type longPoll struct {
	started chan http.ResponseWriter
	release chan struct{}
	ended   chan error
}

func newLongPoll() *longPoll {
	return &longPoll{make(chan http.ResponseWriter), make(chan struct{}), make(chan error, 1)}
}

func (l *longPoll) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	done := r.Context().Done()
	l.started <- w
	select {
	case <-done:
		l.ended <- r.Context().Err()
	case <-l.release:
		write(w, r.URL.Path)
	}
}

func TestTheContextEndsWhenTheClientGoesAway(t *testing.T) {
	t.Parallel()
	gone := map[string]func(*client) error{
		"close":      func(c *client) error { return c.Close() },
		"half close": func(c *client) error { return c.CloseWrite() },
		"reset":      func(c *client) error { return c.SetLinger(0) },
	}
	for name, leave := range gone {
		for _, early := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				l := newLongPoll()
				_, addr := start(t, l)
				c := dial(t, addr)
				c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
				w := <-l.started
				drained := make([]byte, 5)
				_, err := io.ReadFull(w.(*exchange).req.Body, drained)
				require.NoError(t, err)
				if !early {
					eventually(t, "a watch", func() bool { return watched(w) != nil })
				}
				require.NoError(t, leave(c))
				if name == "reset" {
					require.NoError(t, c.Close())
				}
				require.ErrorIs(t, <-l.ended, context.Canceled)
			})
		}
	}
}

func TestTheContextLastsWhileTheClientIsThere(t *testing.T) {
	t.Parallel()
	l := newLongPoll()
	_, addr := start(t, l, func(s *http.Server) { s.IdleTimeout = 10 * time.Millisecond })
	c := dial(t, addr)
	for range 3 {
		c.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
		w := <-l.started
		eventually(t, "a watch", func() bool { return watched(w) != nil })
		l.release <- struct{}{}
		require.Equal(t, "/a", c.answer("GET").body)
		require.Error(t, w.(*exchange).req.Context().Err(), "it ends with the handler")
		<-w.(*exchange).req.Context().Done()
		c = dial(t, addr) // idle timeouts are short here
	}
}

func TestAConnectionGoesOnAfterAWatch(t *testing.T) {
	t.Parallel()
	l := newLongPoll()
	_, addr := start(t, l)
	c := dial(t, addr)
	for range 3 {
		c.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
		w := <-l.started
		eventually(t, "a watch", func() bool { return watched(w) != nil })
		c.send("GET /b HTTP/1.1\r\nHost: a\r\n\r\nGET /c HTTP/1.1\r\nHost: a\r\n\r\n")
		<-watched(w) // the next request ends it
		l.release <- struct{}{}
		require.Equal(t, "/a", c.answer("GET").body)
		<-l.started
		l.release <- struct{}{}
		require.Equal(t, "/b", c.answer("GET").body)
		w = <-l.started
		eventually(t, "a watch", func() bool { return watched(w) != nil })
		l.release <- struct{}{}
		require.Equal(t, "/c", c.answer("GET").body)
	}
}

// With the next request in the buffer already, too, a client that goes is seen.
func TestAPipelinedRequestDoesNotHideTheClientsEnd(t *testing.T) {
	t.Parallel()
	l := newLongPoll()
	_, addr := start(t, l)
	c := dial(t, addr)
	c.send(get + get)
	<-l.started
	require.NoError(t, c.Close())
	require.ErrorIs(t, <-l.ended, context.Canceled)
	select { // the second request may have been read; its answer fails then
	case <-l.started:
		require.ErrorIs(t, <-l.ended, context.Canceled)
	case <-l.ended:
	}
}

func TestChildContexts(t *testing.T) {
	t.Parallel()
	type key struct{}
	s, addr := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := context.WithValue(r.Context(), key{}, "v")
		require.Equal(t, "v", ctx.Value(key{}))
		require.Nil(t, r.Context().Value(key{}))
		require.IsType(t, &http.Server{}, ctx.Value(http.ServerContextKey))
		require.NotNil(t, ctx.Value(http.LocalAddrContextKey))
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		<-short.Done()
		require.ErrorIs(t, short.Err(), context.DeadlineExceeded)
		require.NoError(t, ctx.Err())
		long, cancelLong := context.WithTimeout(ctx, time.Hour)
		defer cancelLong()
		after := make(chan struct{})
		context.AfterFunc(long, func() { close(after) })
		write(w, "x")
		require.NoError(t, http.NewResponseController(w).Flush())
		<-after
		require.ErrorIs(t, context.Cause(long), context.Canceled)
	}))
	c := dial(t, addr)
	c.send(get)
	_, err := c.in.Peek(1)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	eventually(t, "the handler's end", func() bool { return s.tracked() == 0 })
}

// Who only looks at Err, again and again, sees the client's end too.
func TestErrSeesTheClientsEnd(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	started := make(chan struct{})
	_, addr := start(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(started)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for r.Context().Err() == nil {
			<-tick.C
		}
		close(ended)
	}))
	c := dial(t, addr)
	c.send(get)
	<-started
	require.NoError(t, c.Close())
	<-ended
}

// goleak looks at the end for goroutines of them.
func TestAThousandWaitingRequests(t *testing.T) {
	t.Parallel()
	s, addr := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 60*time.Millisecond)
		defer cancel()
		<-ctx.Done()
		write(w, ctx.Err().Error())
	}))
	var clients sync.WaitGroup
	for range 50 {
		clients.Go(func() {
			c := dial(t, addr)
			for range 20 {
				c.send(get)
				if r, err := c.read("GET"); err != nil || r.body != context.DeadlineExceeded.Error() {
					t.Errorf("%v %v", r, err)
					return
				}
			}
		})
	}
	clients.Wait()
	shutdown(t, s)
}

// What a handler keeps after it has returned ends, and reaches no other request.
func TestWhatAHandlerKeepsIsOver(t *testing.T) {
	t.Parallel()
	kept := make(chan http.ResponseWriter, 1)
	_, addr := start(t, withProbe(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/keep" {
			kept <- w
		}
		answers["echo"](w, r)
	})))
	c := dial(t, addr)
	c.send("POST /keep HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
	c.answer("POST")
	x := (<-kept).(*exchange)
	late := func() {
		_, err := x.Write([]byte(repeat(100_000)))
		require.ErrorIs(t, err, errOver)
		x.WriteHeader(500)
		require.ErrorIs(t, x.FlushError(), errOver)
		require.ErrorIs(t, x.SetWriteDeadline(past), errOver)
		require.ErrorIs(t, x.SetReadDeadline(past), errOver)
		_, err = x.req.Body.Read(make([]byte, 1))
		require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
		require.Error(t, x.req.Context().Err())
		<-x.req.Context().Done()
		child, cancel := context.WithTimeout(x.req.Context(), time.Hour)
		defer cancel()
		<-child.Done()
	}
	late()
	for i := range 5 {
		c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nworld")
		require.Equal(t, "world", c.answer("POST").body, i)
		late()
	}
}

// Goroutines that a handler left running write, read and wait while the connection goes on.
func TestGoroutinesThatAHandlerLeftRunning(t *testing.T) {
	t.Parallel()
	var left sync.WaitGroup
	_, addr := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		want := r.URL.Path
		if want == "/left" {
			left.Go(func() {
				for {
					if _, err := io.WriteString(w, "late"); err != nil {
						return
					}
				}
			})
			left.Go(func() { _, _ = io.Copy(io.Discard, r.Body) })
			left.Go(func() { <-r.Context().Done() })
		}
		write(w, want)
	}))
	for range 200 {
		c := dial(t, addr)
		c.send("POST /left HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n" + repeat(100))
		require.True(t, strings.Contains(strings.ReplaceAll(c.answer("POST").body, "late", ""), "/left"))
		c.send("GET /next HTTP/1.1\r\nHost: a\r\n\r\n")
		if r, err := c.read("GET"); err == nil { // the connection ends where a read was left
			require.Equal(t, "/next", r.body)
		}
		require.NoError(t, c.Close())
	}
	left.Wait()
}

// Under full duplex the answer does not wait for a read that was left; nor does the end
// after a panic.
func TestAReadThatWasLeftDoesNotHoldTheAnswer(t *testing.T) {
	t.Parallel()
	for _, panics := range []bool{false, true} {
		var left sync.WaitGroup
		_, addr := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			tell(w)(0, http.NewResponseController(w).EnableFullDuplex())
			reading := make(chan struct{})
			left.Go(func() {
				b := make([]byte, 5)
				_, err := io.ReadFull(r.Body, b)
				close(reading)
				for err == nil {
					_, err = r.Body.Read(b)
				}
			})
			<-reading
			if panics {
				panic("x")
			}
			write(w, "done")
		}))
		c := dial(t, addr)
		c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhello")
		r, err := c.read("POST")
		require.Equal(t, panics, err != nil)
		if !panics {
			require.Equal(t, "done", r.body)
		}
		left.Wait()
		c.closed()
	}
}

// The next request ends the watch, so that the client's end shows when writing fails.
func TestAFailedWriteEndsTheContext(t *testing.T) {
	t.Parallel()
	started, ended := make(chan http.ResponseWriter), make(chan struct{})
	_, addr := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		done := r.Context().Done()
		started <- w
		<-started
		for {
			if _, err := w.Write(make([]byte, bufferSize)); err != nil {
				break
			}
		}
		<-done
		close(ended)
	}))
	c := dial(t, addr)
	c.send(get)
	w := <-started
	eventually(t, "a watch", func() bool { return watched(w) != nil })
	c.send(get)
	<-watched(w)
	require.NoError(t, c.SetLinger(0))
	require.NoError(t, c.Close())
	started <- w
	<-ended
}

// A panic cuts the connection though something that the handler left running is stuck in
// writing to a client that does not read.
func TestAPanicCutsAWriteThatWasLeft(t *testing.T) {
	t.Parallel()
	var left sync.WaitGroup
	s, addr := start(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		left.Go(func() { _, _ = w.Write(make([]byte, 64<<20)) }) // more than any socket holds
		for lock := &w.(*exchange).writeMu; lock.TryLock(); runtime.Gosched() {
			lock.Unlock()
		}
		panic("x")
	}))
	c := dial(t, addr)
	require.NoError(t, c.SetReadBuffer(4096))
	c.send(get)
	eventually(t, "its end", func() bool { return s.tracked() == 0 })
	left.Wait()
}

func TestAConnectionRemembersBetweenItsRequests(t *testing.T) {
	t.Parallel()
	type key struct{}
	hs := newHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := r.Context().Value(key{}).(*int)
		*n++
		_, _ = fmt.Fprintf(w, "%d %v", *n, r.Context().Value("another"))
	}))
	s := New(hs, slog.New(slog.DiscardHandler))
	s.Remember(key{}, func() any { return new(int) })
	addr := run(t, listen(t), s)
	one, other := dial(t, addr), dial(t, addr)
	for _, row := range []struct {
		c    *client
		want string
	}{{one, "1 <nil>"}, {other, "1 <nil>"}, {one, "2 <nil>"}, {one, "3 <nil>"}, {other, "2 <nil>"}} {
		row.c.send(get)
		require.Equal(t, row.want, row.c.answer(http.MethodGet).body)
	}
}
