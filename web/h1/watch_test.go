package h1

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A request that waits holds no buffer, with a body or without.
func TestAWaitingRequestHoldsNoBuffer(t *testing.T) {
	t.Parallel()
	for _, request := range []string{get, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"} {
		held := make(chan bool, 1)
		_, addr := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b := make([]byte, 5)
			_, _ = r.Body.Read(b)
			x := w.(*exchange)
			held <- x.c.buf != nil || x.answer.out != nil || x.answer.hold != nil
			write(w, string(b))
		}))
		c := dial(t, addr)
		for range 2 {
			c.send(request)
			require.False(t, <-held)
			require.Len(t, c.answer(request[:4]).body, 5)
		}
	}
}

// A body that comes after its head, in pieces, passes a buffer that is taken for each, and what
// follows it is the next request's.
func TestABodyInPieces(t *testing.T) {
	t.Parallel()
	pieces := make(chan string)
	_, addr := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := make([]byte, 16)
		for range 3 {
			n, _ := r.Body.Read(b)
			pieces <- string(b[:n])
		}
		write(w, "done")
	}))
	c := dial(t, addr)
	for range 2 {
		c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc")
		require.Equal(t, "abc", <-pieces)
		c.send("def")
		require.Equal(t, "def", <-pieces)
		c.send("ghi" + get)
		require.Equal(t, "ghi", <-pieces)
		require.Equal(t, "done", c.answer("POST").body)
		for range 3 {
			require.Empty(t, <-pieces)
		}
		require.Equal(t, "done", c.answer("GET").body)
	}
}

// A deadline for reading that the handler sets while its client is watched ends the context,
// as with net/http.
func TestADeadlineEndsAWatch(t *testing.T) {
	t.Parallel()
	for _, until := range []time.Duration{-time.Second, 5 * time.Millisecond} {
		l := newLongPoll()
		_, addr := start(t, l)
		c := dial(t, addr)
		c.send(get)
		w := <-l.started
		eventually(t, "a watch", func() bool { return watched(w) != nil })
		require.NoError(t, http.NewResponseController(w).SetReadDeadline(time.Now().Add(until)))
		require.ErrorIs(t, <-l.ended, context.Canceled)
		<-watched(w)
	}
}

// A deadline that is far away leaves the watch to go on.
func TestAWatchGoesOnUnderADeadline(t *testing.T) {
	t.Parallel()
	for _, leaves := range []bool{true, false} {
		l := newLongPoll()
		_, addr := start(t, l)
		c := dial(t, addr)
		c.send(get)
		w := <-l.started
		eventually(t, "a watch", func() bool { return watched(w) != nil })
		require.NoError(t, http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Hour)))
		if leaves {
			require.NoError(t, c.Close())
			require.ErrorIs(t, <-l.ended, context.Canceled)
			continue
		}
		l.release <- struct{}{}
		c.answer("GET")
		c.send(get)
		<-l.started
		l.release <- struct{}{}
		c.answer("GET")
	}
}

// Closing the server ends the contexts of what is watched: no event tells of it.
func TestClosingEndsWhatIsWatched(t *testing.T) {
	t.Parallel()
	l := newLongPoll()
	s, addr := start(t, l)
	c := dial(t, addr)
	c.send(get)
	w := <-l.started
	eventually(t, "a watch", func() bool { return watched(w) != nil })
	require.NoError(t, s.Close())
	require.ErrorIs(t, <-l.ended, context.Canceled)
	c.closed()
}

// Many clients that are watched at once, some of whom go: each context ends with its own.
func TestWatchesAreToldApart(t *testing.T) {
	t.Parallel()
	l := newLongPoll()
	l.ended = make(chan error, 64)
	s, addr := start(t, l)
	clients := make([]*client, 64)
	for i := range clients {
		clients[i] = dial(t, addr)
		clients[i].send(get)
		w := <-l.started
		if i == len(clients)-1 {
			eventually(t, "a watch", func() bool { return watched(w) != nil })
		}
	}
	for i := 0; i < len(clients); i += 2 {
		require.NoError(t, clients[i].Close())
	}
	for i := 0; i < len(clients); i += 2 {
		require.ErrorIs(t, <-l.ended, context.Canceled)
	}
	for i := 1; i < len(clients); i += 2 {
		l.release <- struct{}{}
	}
	for i := 1; i < len(clients); i += 2 {
		clients[i].answer("GET")
	}
	shutdown(t, s)
}
