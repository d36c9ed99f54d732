package h1

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestShutdownClosesIdleConnections(t *testing.T) {
	t.Parallel()
	s, addr := start(t, answers["small"])
	fresh, used, passed := dial(t, addr), dial(t, addr), dial(t, addr)
	used.send(get)
	used.answer("GET")
	passed.send("GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n")
	passed.answer("GET")
	eventually(t, "two of ours", func() bool { return s.tracked() == 2 })
	shutdown(t, s)
	used.closed()
	fresh.closed()
	passed.closed()
	_, err := net.Dial("tcp", addr)
	require.Error(t, err)
	shutdown(t, s) // a second one finds nothing
}

func TestAServerThatLingersAnswersWhatWasSentAsItStops(t *testing.T) {
	t.Parallel()
	s := New(newHTTP(answers["small"]), slog.New(slog.DiscardHandler))
	s.Linger(patience)
	addr := run(t, listen(t), s)
	used, other := dial(t, addr), dial(t, addr)
	for _, c := range []*client{used, other} {
		c.send(get)
		require.False(t, c.answer("GET").close)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(t.Context()) }()
	eventually(t, "nothing is accepted any more", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	for _, c := range []*client{used, other} { // once all are gone it does not wait any longer
		c.send(get)
		require.True(t, c.answer("GET").close)
		c.closed()
	}
	require.NoError(t, <-ended)
}

func TestAServerLingersForAWhileOnly(t *testing.T) {
	t.Parallel()
	s := New(newHTTP(answers["small"]), slog.New(slog.DiscardHandler))
	s.Linger(time.Millisecond)
	c := dial(t, run(t, listen(t), s))
	c.send(get)
	c.answer("GET")
	shutdown(t, s)
	c.closed()
}

func TestARequestUnderWayEndsWithClose(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string]string{"ours": get, "handed over": "GET / HTTP/1.1\r\nHost: a\r\nKeep-Alive: x\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLongPoll()
			s, addr := start(t, l)
			c := dial(t, addr)
			c.send(raw)
			w := <-l.started
			_, ours := w.(*exchange)
			require.Equal(t, name == "ours", ours)

			short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			require.ErrorIs(t, s.Shutdown(short), context.DeadlineExceeded)
			ended := make(chan error, 1)
			go func() { ended <- s.Shutdown(t.Context()) }()
			l.release <- struct{}{}
			r := c.answer("GET")
			require.Equal(t, "/", r.body)
			require.True(t, r.close)
			c.closed()
			require.NoError(t, <-ended)
		})
	}
}

func TestCloseCutsAndEndsContexts(t *testing.T) {
	t.Parallel()
	for _, early := range []bool{true, false} {
		l := newLongPoll()
		s, addr := start(t, l)
		c := dial(t, addr)
		c.send(get)
		w := <-l.started
		if !early {
			eventually(t, "a watch", func() bool { return watched(w) != nil })
		}
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-l.ended, context.Canceled)
		c.closed()
		eventually(t, "its end", func() bool { return s.tracked() == 0 })
	}
}

// A client that does not read its answer holds its handler, and Shutdown, but not Close.
func TestAClientThatDoesNotReadIsCutByClose(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 1)
	blocked := make(chan struct{})
	s, addr := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		for i := 0; err == nil; i++ {
			if _, err = w.Write(make([]byte, 1<<20)); i == 0 {
				close(blocked)
			}
		}
		<-r.Context().Done() // ends with the failure, though the handler goes on
		failed <- err
	}))
	c := dial(t, addr)
	require.NoError(t, c.SetReadBuffer(4096))
	c.send(get)
	<-blocked
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Shutdown(short), context.DeadlineExceeded)
	require.NoError(t, s.Close())
	require.Error(t, <-failed)
	shutdown(t, s)
}

func TestServeAfterShutdownEndsAtOnce(t *testing.T) {
	t.Parallel()
	s := New(newHTTP(answers["small"]), slog.New(slog.DiscardHandler))
	shutdown(t, s)
	l := listen(t)
	require.ErrorIs(t, s.Serve(l), http.ErrServerClosed)
	_, err := net.Dial("tcp", l.Addr().String())
	require.Error(t, err)
}

// flaky fails to accept a few times, as when descriptors are used up, then for good.
type flaky struct {
	net.Listener
	mu    sync.Mutex
	fails []error // guarded by mu
}

func (f *flaky) Accept() (net.Conn, error) {
	f.mu.Lock()
	if len(f.fails) > 0 {
		err := f.fails[0]
		f.fails = f.fails[1:]
		f.mu.Unlock()
		if err != nil {
			return nil, err
		}
		return f.Listener.Accept()
	}
	f.mu.Unlock()
	return f.Listener.Accept()
}

var tooMany = &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}

func TestAcceptGoesOnAfterTemporaryErrors(t *testing.T) {
	t.Parallel()
	s := New(newHTTP(answers["small"]), slog.New(slog.DiscardHandler))
	addr := run(t, &flaky{Listener: listen(t), fails: []error{tooMany, tooMany, nil, tooMany}}, s)
	for range 3 {
		c := dial(t, addr)
		c.send(get)
		require.Equal(t, "<html>hello", c.answer("GET").body)
	}
}

func TestServeEndsWithAFailedListener(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	s := New(newHTTP(answers["small"]), slog.New(slog.DiscardHandler))
	require.ErrorIs(t, s.Serve(&flaky{Listener: listen(t), fails: []error{broken}}), broken)
}

func TestShutdownDoesNotWaitForThePauseAfterAFailedAccept(t *testing.T) {
	t.Parallel()
	fails := make([]error, 1000)
	for i := range fails {
		fails[i] = tooMany
	}
	s := New(newHTTP(answers["small"]), slog.New(slog.DiscardHandler))
	ended := make(chan error, 1)
	l := &flaky{Listener: listen(t), fails: fails}
	go func() { ended <- s.Serve(l) }()
	eventually(t, "failures", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.fails) < 998
	})
	shutdown(t, s)
	require.ErrorIs(t, <-ended, http.ErrServerClosed)
}

// Many connections come, ask and go while the server stops.
func TestShutdownUnderLoad(t *testing.T) {
	t.Parallel()
	for range 10 {
		s, addr := start(t, answers["echo"])
		var clients sync.WaitGroup
		answered := make(chan struct{}, 1)
		for i := range 16 {
			clients.Go(func() {
				for {
					c, err := net.Dial("tcp", addr)
					if err != nil {
						return
					}
					raw := get
					if i%2 == 0 {
						raw = "GET / HTTP/1.1\r\nHost: a\r\nKeep-Alive: x\r\n\r\n"
					}
					cl := dialed(t, c)
					for err == nil {
						if _, err = io.WriteString(c, raw); err == nil {
							var r reply
							if r, err = cl.read("GET"); err == nil && (r.status != 200 || r.cut) {
								t.Errorf("%v", r)
							}
						}
						select {
						case answered <- struct{}{}:
						default:
						}
					}
					_ = c.Close() // the server has closed it
				}
			})
		}
		<-answered
		shutdown(t, s)
		clients.Wait()
		eventually(t, "the end of what was accepted last", func() bool { return s.tracked() == 0 })
	}
}

func TestABodyThatStallsEndsWithAnError(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 1)
	_, addr := start(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		_, again := r.Body.Read(make([]byte, 1))
		if !errors.Is(again, err) || r.Context().Err() == nil {
			t.Errorf("%v after %v, context %v", again, err, r.Context().Err())
		}
		failed <- err
	}), func(s *http.Server) { s.IdleTimeout = 50 * time.Millisecond })
	c := dial(t, addr)
	c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc")
	require.ErrorIs(t, <-failed, os.ErrDeadlineExceeded)
	c.closed()

	c = dial(t, addr)
	c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc")
	require.NoError(t, c.CloseWrite())
	require.ErrorIs(t, <-failed, io.ErrUnexpectedEOF)
	c.closed()
}

// pause is far below the idle timeout of the tests that use it.
const (
	pause     = 100 * time.Millisecond
	shortIdle = 700 * time.Millisecond
)

func TestASlowBodyIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	_, addr := start(t, answers["echo"], func(s *http.Server) { s.IdleTimeout = shortIdle })
	c := dial(t, addr)
	c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n")
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for range 20 {
		<-tick.C
		c.send("x")
	}
	require.Equal(t, "xxxxxxxxxxxxxxxxxxxx", c.answer("POST").body)
}

func TestABusyConnectionOutlastsTheIdleTimeoutAndAnIdleOneDoesNot(t *testing.T) {
	t.Parallel()
	_, addr := start(t, answers["small"], func(s *http.Server) { s.IdleTimeout = shortIdle })
	c := dial(t, addr)
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for range 20 {
		c.send(get)
		require.Equal(t, 200, c.answer("GET").status)
		<-tick.C
	}
	c.closed()
}

// The first request is waited for as long as its head may take, and so is the rest of a
// head of which one byte came.
func TestClientsThatSendNoHeadAreClosed(t *testing.T) {
	t.Parallel()
	_, addr := start(t, answers["small"], func(s *http.Server) {
		s.ReadHeaderTimeout, s.IdleTimeout = 50*time.Millisecond, time.Hour
	})
	c := dial(t, addr)
	c.closed()
	c = dial(t, addr)
	c.send("G")
	c.closed()
	c = dial(t, addr)
	c.send("GET / HTTP/1.1\r\nHost: a\r\n")
	c.closed()
}

// The deadline is between what was asked and an eighth more, whatever was set before.
func TestDeadlinesAreLateByAnEighthAtMost(t *testing.T) {
	t.Parallel()
	l := listen(t)
	t.Cleanup(func() { _ = l.Close() }) // closed with the test
	dial(t, l.Addr().String())
	nc, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = nc.Close() }) // closed with the test
	for _, before := range []time.Duration{0, time.Millisecond, time.Second, time.Minute, 3 * time.Minute, time.Hour} {
		for _, d := range []time.Duration{10 * time.Second, time.Minute, 3 * time.Minute, time.Hour} {
			c := &conn{net: nc.(*net.TCPConn)}
			if before > 0 {
				require.NoError(t, c.extend(before))
			}
			require.NoError(t, c.extend(d))
			left := time.Until(c.deadline)
			require.Greater(t, left, d-d/10, "this test was held up")
			require.LessOrEqual(t, left, d+min(d/8, deadlineStep))
			set := c.deadline
			require.NoError(t, c.extend(d))
			require.Equal(t, set.Add(0), c.deadline, "it need not be moved at once")
			require.NoError(t, c.extend(0))
			require.True(t, c.deadline.IsZero())
		}
	}
}

// A panic's connection is cut, so that the client does not take part of an answer for all;
// one that ends the goroutine too, with its context.
func TestAHandlerThatEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	s, addr := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		write(w, "one")
		w.(http.Flusher).Flush()
		context.AfterFunc(r.Context(), func() { close(ended) })
		runtime.Goexit()
	}))
	c := dial(t, addr)
	c.send(get)
	require.True(t, c.answer("GET").cut)
	<-ended
	eventually(t, "its end", func() bool { return s.tracked() == 0 })
}

// A refusal does not wait for the body that the client holds back.
func TestARefusalDoesNotWaitForTheBody(t *testing.T) {
	t.Parallel()
	_, addr := start(t, answers["status and close with the body left"])
	c := dial(t, addr)
	c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n")
	r := c.answer("POST")
	require.Equal(t, 413, r.status)
	require.True(t, r.close)
	c.closed()
}
