// Package starting answers on a node's HTTP port while the node opens its logs and waits for
// its cluster: that the process runs, that it is not ready and why, and to everything else
// 503, which says that nothing was done. Without it a client would hang in the kernel's queue
// of connections until the node is ready.
package starting

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"tidewire/api/problem"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
)

const (
	maxConnections = 256 // at once; others wait in the kernel
	requestTime    = 10 * time.Second
	grace          = time.Second // for answers under way when the node is ready
)

// Listener is what can be lent and given back, such as a *net.TCPListener.
type Listener interface {
	net.Listener
	SetDeadline(time.Time) error
}

// Server answers until End. It is safe for concurrent use.
type Server struct {
	l      Listener
	http   *http.Server
	group  *lifecycle.Group
	ended  chan struct{}
	prefix string
	why    atomic.Pointer[string]
}

// Config is what a Server is made of.
type Config struct {
	Listener Listener
	TLS      *tls.Config // nil: plain HTTP
	Prefix   string      // "" or "/x/y"
	Logger   *slog.Logger
}

// Serve begins to answer; the listener is lent to it until End.
func Serve(c Config) *Server {
	s := &Server{l: c.Listener, group: lifecycle.New(context.Background()), ended: make(chan struct{}), prefix: c.Prefix}
	s.Because("its data folder is being opened")
	s.http = &http.Server{
		Handler: s, TLSConfig: c.TLS, ReadTimeout: requestTime, WriteTimeout: requestTime, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(c.Logger.Handler(), slog.LevelDebug),
	}
	s.http.SetKeepAlivesEnabled(false) // the next request is for the node itself
	s.group.Go("http/starting", func(context.Context) {
		serve := s.http.Serve
		if c.TLS != nil {
			serve = func(l net.Listener) error { return s.http.ServeTLS(l, "", "") }
		}
		if err := serve(&lent{Listener: c.Listener, ended: s.ended, seats: make(chan struct{}, maxConnections)}); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			c.Logger.Warn("nothing answers on the HTTP port until the node is ready", "error", err)
		}
	})
	return s
}

// Because says why the node is not ready, as the end of "the node is starting: …".
func (s *Server) Because(why string) { s.why.Store(&why) }

// End finishes what is being answered and gives the listener back, open. It is called once.
func (s *Server) End() error {
	close(s.ended)
	if err := s.l.SetDeadline(time.Unix(1, 0)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close() // what a client does not read in time it asks again
	}
	return errors.Join(err, s.group.Stop(grace), s.l.SetDeadline(time.Time{}))
}

// ServeHTTP answers what can be answered without a node.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, below := strings.CutPrefix(r.URL.Path, s.prefix)
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	why := *s.why.Load()
	id := rand.Text()
	w.Header().Set("X-Request-Id", id)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	switch {
	case below && read && path == "/healthz":
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = io.WriteString(w, "{\"status\":\"ok\"}\n") // the client may be gone
		return
	case read && strings.Contains(r.Header.Get("Accept"), "text/html"):
		page(w, why)
		return
	}
	err := model.Errorf(model.LeaderUnavailable, "the node is starting: %s", why)
	if below && path == "/readyz" {
		err = err.WithExtra("ready", false).WithExtra("reasons", []string{"the node is starting: " + why})
	}
	problem.Write(w, err, problem.Occurrence{Path: problem.PathOf(r), RequestID: id, Write: !read})
}

// page tells a person, and looks again by itself.
func page(w http.ResponseWriter, why string) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Retry-After", "1")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = fmt.Fprintf(w, "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"2\">"+
		"<meta name=\"viewport\" content=\"width=device-width\"><title>Tidewire is starting</title>\n"+
		"<h1>Tidewire is starting</h1>\n<p>This node is not ready yet: %s.</p>\n", html.EscapeString(why))
}

// lent is the listener as long as it is lent; closing it leaves the real one open.
type lent struct {
	Listener
	ended <-chan struct{}
	seats chan struct{}
}

func (l *lent) Accept() (net.Conn, error) {
	select {
	case l.seats <- struct{}{}:
	case <-l.ended:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err == nil {
		return &seated{Conn: c, seats: l.seats}, nil
	}
	<-l.seats
	select {
	case <-l.ended:
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = net.ErrClosed
		}
	default:
	}
	return nil, err
}

func (*lent) Close() error { return nil }

// seated gives its seat back when it is closed.
type seated struct {
	net.Conn
	seats chan struct{}
	once  atomic.Bool
}

func (s *seated) Close() error {
	if !s.once.Swap(true) {
		<-s.seats
	}
	return s.Conn.Close()
}
