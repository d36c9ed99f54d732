package h1

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/internal/lifecycle"
)

// acceptBackoff bounds the pause after a failed accept, as when descriptors are used up.
const acceptBackoff = time.Second

// Seats bounds the connections.
type Seats interface {
	// Take gives a connection a seat, in which it waits for a request. Nil: it was refused,
	// and whoever refused it closes it. vacate ends a connection that still waits, for another.
	Take(c net.Conn, vacate func()) Seat
}

// Seat is a connection's place.
type Seat interface {
	Wait()  // for a request: it may be ended for another connection
	Work()  // at a request, or as a stream
	Leave() // for good; calls after the first do nothing
}

// Server serves plain requests itself and all others by an http.Server.
type Server struct {
	http    *http.Server
	handler http.Handler
	logger  *slog.Logger
	group   *lifecycle.Group
	passed  *passed
	closing atomic.Bool
	linger  time.Duration // see Linger
	lingers atomic.Bool   // idle connections may bring one more request
	handed  atomic.Int64  // connections that net/http has, or whoever took them from it
	watches watches

	firstTimeout, idleTimeout time.Duration // for the first request and the later ones; 0: none
	maxHead                   int           // bytes; heads beyond are for http to judge; 0: any
	plain                     bool          // http has no settings that only it can obey
	seats                     Seats         // nil: no bound

	memoryKey  any        // see Remember
	newMemory  func() any // nil: connections have none
	parkingKey any        // see Park; nil: no request can

	mu        sync.Mutex
	listener  net.Listener       // guarded by mu
	conns     map[*conn]struct{} // guarded by mu
	none      chan struct{}      // guarded by mu: closed when closing and conns is empty
	noneFired bool               // guarded by mu
}

// New returns a server over s, whose handler, timeouts and limits it takes; they must not be
// changed any more. With settings that only net/http can obey (no handler, ReadTimeout,
// WriteTimeout, the hooks for contexts and states of connections, protocols without HTTP/1)
// it serves all connections by s.
func New(s *http.Server, logger *slog.Logger) *Server {
	srv := newServer(s, logger)
	srv.handler = s.Handler
	srv.firstTimeout, srv.idleTimeout, srv.maxHead = s.ReadHeaderTimeout, s.IdleTimeout, s.MaxHeaderBytes
	srv.plain = s.Handler != nil && s.ReadTimeout == 0 && s.WriteTimeout == 0 && s.BaseContext == nil && s.ConnContext == nil &&
		s.ConnState == nil && (s.Protocols == nil || s.Protocols.HTTP1())
	return srv
}

// Remember gives each connection that is served here a value, which create makes, and which
// the contexts of its requests have under key. It must be called before Serve.
func (s *Server) Remember(key any, create func() any) { s.memoryKey, s.newMemory = key, create }

// Park lets requests that are served here wait without a goroutine: their contexts have a
// *Parking under key. It must be called before Serve.
func (s *Server) Park(key any) { s.parkingKey = key }

// Linger has Shutdown leave idle connections open for a while: a request that a client sends at
// that moment is answered, as the last of its connection, and not cut off. It must be called
// before Serve.
func (s *Server) Linger(d time.Duration) { s.linger = d }

// Limit bounds the connections; it is called before Serve. Without effect where net/http
// serves all.
func (s *Server) Limit(seats Seats) {
	if s.plain {
		s.seats = seats
		s.http.ConnState = noteState
	}
}

// noteState tells the seat of a connection that net/http has what it does.
func noteState(c net.Conn, state http.ConnState) {
	r, ok := c.(*replayed)
	if !ok || r.seat == nil {
		return
	}
	switch state {
	case http.StateActive, http.StateHijacked: // the head of a request is there
		r.seat.Work()
	case http.StateIdle:
		r.seat.Wait()
	case http.StateNew, http.StateClosed:
	}
}

func newServer(s *http.Server, logger *slog.Logger) *Server {
	return &Server{
		http: s, logger: logger, group: lifecycle.New(context.Background()), passed: newPassed(),
		conns: map[*conn]struct{}{}, none: make(chan struct{}),
	}
}

// Serve accepts connections until Shutdown or Close; it returns http.ErrServerClosed then.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	s.listener = l
	s.mu.Unlock()
	s.passed.addr = l.Addr()
	failed := make(chan error, 1)
	if !s.group.Go("http/handed-over", func(context.Context) { failed <- s.http.Serve(s.passed) }) {
		return errors.Join(http.ErrServerClosed, l.Close())
	}
	err := s.accept(l)
	if !s.closing.Load() {
		return errors.Join(err, s.Close())
	}
	return <-failed
}

func (s *Server) accept(l net.Listener) error {
	var pause time.Duration
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			s.take(c)
		case s.closing.Load():
			return nil
		case !isTemporary(err):
			return err
		default:
			pause = min(max(2*pause, 5*time.Millisecond), acceptBackoff)
			s.logger.Warn("a connection could not be accepted", "error", err, "pause", pause)
			s.rest(pause)
		}
	}
}

// rest waits, but not beyond the end of serving.
func (s *Server) rest(pause time.Duration) {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.passed.done:
	}
}

// isTemporary tells errors that pass, such as too many open files.
func isTemporary(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Temporary() //nolint:staticcheck // as net/http: nothing else tells EMFILE from the end of a listener
}

// take starts a connection's goroutine.
func (s *Server) take(nc net.Conn) {
	tcp, ok := nc.(*net.TCPConn)
	if !ok || !s.plain {
		s.passed.push(nc)
		return
	}
	c, err := newConn(s, tcp)
	if err != nil {
		_ = nc.Close() // it is gone already
		return
	}
	if s.seats != nil {
		if c.seat = s.seats.Take(tcp, func() { _ = tcp.Close() }); c.seat == nil {
			return
		}
	}
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	if s.closing.Load() || !s.group.Go("http/connection", func(context.Context) { c.loop(nil) }) {
		c.end()
	}
}

func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.settleLocked()
}

func (s *Server) settleLocked() {
	if s.closing.Load() && len(s.conns) == 0 && !s.noneFired {
		s.noneFired = true
		close(s.none)
	}
}

// Open is the number of connections that are open, those that went to net/http included.
func (s *Server) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns) + int(s.handed.Load())
}

// RegisterOnShutdown adds what Shutdown starts in a goroutine of its own.
func (s *Server) RegisterOnShutdown(f func()) { s.http.RegisterOnShutdown(f) }

// Shutdown stops accepting, closes idle connections, after a while where it lingers, and waits for
// requests under way until ctx ends, whose error it returns then.
func (s *Server) Shutdown(ctx context.Context) error {
	if s.linger > 0 && !s.closing.Load() {
		s.lingers.Store(true)
	}
	err := s.stopAccepting()
	if s.lingers.Load() {
		s.awaitNone(ctx, s.linger)
		s.lingers.Store(false)
	}
	s.each(func(c *conn) { c.closeIf(idle) })
	err = errors.Join(err, s.http.Shutdown(ctx))
	select {
	case <-s.none:
	case <-ctx.Done():
		return errors.Join(err, ctx.Err())
	}
	return errors.Join(err, s.stopGroup())
}

// awaitNone waits until no connection is left, for a while.
func (s *Server) awaitNone(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-s.none:
	case <-t.C:
	case <-ctx.Done():
	}
}

// Close ends every connection at once.
func (s *Server) Close() error {
	err := s.stopAccepting()
	s.each(func(c *conn) { _ = c.net.Close() })
	s.watches.close()
	return errors.Join(err, s.http.Close())
}

// stopGroup waits for goroutines that are past their last connection.
func (s *Server) stopGroup() error { return s.group.Stop(5 * time.Second) }

func (s *Server) stopAccepting() error {
	if s.closing.Swap(true) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleLocked()
	if s.listener == nil {
		return nil
	}
	return s.listener.Close()
}

func (s *Server) each(f func(*conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		f(c)
	}
}
