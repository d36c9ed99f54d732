package h1

import (
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type testParking struct{}

// parker parks each request once, and tells of it; then it answers what it knows.
type parker struct {
	parked chan *Parking
	gone   chan bool // the client is, at each second call
	times  int       // how often a request parks
}

func newParker(times int) *parker {
	return &parker{parked: make(chan *Parking, 64), gone: make(chan bool, 64), times: times}
}

func (p *parker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k := r.Context().Value(testParking{}).(*Parking)
	n, _ := k.Parked().(int)
	if n < p.times && r.Context().Err() == nil {
		if n == 0 {
			b := make([]byte, 5)
			n, _ := r.Body.Read(b)
			w.Header().Set("X-Read", string(b[:n]))
		}
		k.Park(n + 1)
		w.WriteHeader(http.StatusTeapot) // as routers do behind a handler that wrote nothing
		write(w, "this goes nowhere")
		p.parked <- k
		return
	}
	p.gone <- r.Context().Err() != nil
	w.Header().Set("X-Calls", strings.Repeat("x", n))
	write(w, r.URL.Path)
}

// startParking is start with requests that can park.
func startParking(t testing.TB, h http.Handler) (s *Server, addr string) {
	s = New(newHTTP(h), slog.New(slog.DiscardHandler))
	s.Park(testParking{})
	return s, run(t, listen(t), s)
}

// A request that parks has no goroutine, is answered once it was woken, by another call of its
// handler, as if the first had said nothing, and the connection goes on: with what was sent
// meanwhile, too.
func TestAParkedRequestIsAnsweredOnceItIsWoken(t *testing.T) {
	t.Parallel()
	for _, times := range []int{1, 3} {
		p := newParker(times)
		s, addr := startParking(t, p)
		c := dial(t, addr)
		for _, request := range []string{"GET /a HTTP/1.1\r\nHost: a\r\n\r\n", "POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"} {
			c.send(request + "GET /next HTTP/1.1\r\nHost: a\r\n\r\n")
			for _, path := range []string{strings.Fields(request)[1], "/next"} {
				for range times {
					k := <-p.parked
					eventually(t, "the goroutine has ended", func() bool { return asleep(k) })
					k.Wake()
					if times == 1 { // else it might be one that the next wait is woken by
						k.Wake()
					}
				}
				require.False(t, <-p.gone)
				got := c.answer("GET")
				require.Equal(t, http.StatusOK, got.status)
				require.Equal(t, path, got.body)
				require.Equal(t, strings.Repeat("x", times), got.header.Get("X-Calls"))
				require.Empty(t, got.header.Get("X-Read"), "the header of the first call is forgotten")
			}
		}
		shutdown(t, s)
	}
}

func asleep(k *Parking) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asleep
}

// Many requests that park together have no goroutines; one that is woken before its handler has
// returned is called at once.
func TestParkedRequestsHaveNoGoroutines(t *testing.T) {
	t.Parallel()
	const many = 200
	p := newParker(1)
	p.parked = make(chan *Parking, many)
	p.gone = make(chan bool, many)
	_, addr := startParking(t, p)
	clients, parked := make([]*client, many), make([]*Parking, many)
	for i := range clients {
		clients[i] = dial(t, addr)
		clients[i].send(get)
		parked[i] = <-p.parked
	}
	eventually(t, "all sleep", func() bool {
		for _, k := range parked {
			if !asleep(k) {
				return false
			}
		}
		return true
	})
	eventually(t, "no goroutine serves a connection", func() bool {
		b := make([]byte, 8<<20)
		return strings.Count(string(b[:runtime.Stack(b, true)]), "h1.(*exchange).run") < many/2
	})
	for _, k := range parked {
		k.Wake()
	}
	for _, c := range clients {
		require.Equal(t, "/", c.answer("GET").body)
	}
	early := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k := r.Context().Value(testParking{}).(*Parking)
		if k.Parked() == nil {
			k.Park(true)
			k.Keep(time.Unix(1, 0))
			k.Wake()
			return
		}
		require.Equal(t, time.Unix(1, 0), k.Since())
		require.False(t, k.Parks())
		write(w, "early")
	})
	_, addr = startParking(t, early)
	c := dial(t, addr)
	for range 100 {
		c.send(get)
		require.Equal(t, "early", c.answer("GET").body)
	}
}

// The handler of a request that sleeps is called when its client goes, when the server is
// closed, and a shutdown waits for it.
func TestAParkedRequestEndsWithItsClientAndItsServer(t *testing.T) {
	t.Parallel()
	p := newParker(1)
	s, addr := startParking(t, p)
	c := dial(t, addr)
	c.send(get)
	k := <-p.parked
	eventually(t, "sleeps", func() bool { return asleep(k) })
	require.NoError(t, c.Close())
	require.True(t, <-p.gone)
	eventually(t, "the connection is forgotten", func() bool { return s.tracked() == 0 })

	c = dial(t, addr)
	c.send(get)
	k = <-p.parked
	eventually(t, "is watched", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.asleep && k.watching != nil
	})
	require.NoError(t, s.Close())
	require.True(t, <-p.gone)
	c.closed()

	s, addr = startParking(t, p)
	c = dial(t, addr)
	c.send(get)
	k = <-p.parked
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		shutdown(t, s)
	}()
	eventually(t, "it stops", s.closing.Load)
	select {
	case <-ended:
		t.Error("a request was under way")
	default:
	}
	k.Wake()
	require.Equal(t, "/", c.answer("GET").body)
	<-ended
}

// A handler that panics when it goes on cuts the connection, and one that parks behind its answer
// panics.
func TestAPanicOfAParkedRequestCutsTheConnection(t *testing.T) {
	t.Parallel()
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k := r.Context().Value(testParking{}).(*Parking)
		if r.URL.Path == "/late" {
			w.WriteHeader(http.StatusOK)
			require.Panics(t, func() { k.Park(1) })
			write(w, "late")
			return
		}
		if k.Parked() != nil {
			panic("on purpose")
		}
		k.Park(1)
		k.Wake()
	})
	s, addr := startParking(t, h)
	c := dial(t, addr)
	c.send("GET /late HTTP/1.1\r\nHost: a\r\n\r\n")
	require.Equal(t, "late", c.answer("GET").body)
	c.send(get)
	c.closed()
	eventually(t, "the connection is forgotten", func() bool { return s.tracked() == 0 })
}
