package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"tidewire/api/problem"
	"tidewire/api/route"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
	"tidewire/web/conns"
	"tidewire/web/h1"
)

// Limits and timeouts of the HTTP port. A body may take as long as its sender needs,
// as long as bytes keep coming; a long poll may wait a minute.
const (
	maxHeaderBytes    = 64 << 10
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 3 * time.Minute
)

// Door is a part of the HTTP interface.
type Door interface {
	// Routes are the rows of its endpoints.
	Routes() []*route.Route
}

// Streams are the WebSocket endpoints.
type Streams interface {
	Door
	// Shutdown ends every stream, telling why, and returns when they have ended or ctx
	// has.
	Shutdown(ctx context.Context) error
}

// Config is what a Server is made of.
type Config struct {
	Gate           *route.Gate // what every request passes
	Doors          []Door      // the endpoints behind it, besides the streams
	Streams        Streams
	Metrics        *Metrics
	Logger         *slog.Logger
	Prefix         string // "" or "/x/y"
	CORSOrigins    []string
	TrustedProxies []netip.Prefix
	TLS            *tls.Config // nil: plain HTTP
	MaxConnections int         // at once; 0: DefaultMaxConnections
	// Linger is how long Shutdown leaves idle connections open for one more request; 0: not.
	Linger time.Duration
	Now    func() time.Time
}

// Server is the HTTP port of a node.
type Server struct {
	http    *http.Server
	plain   *h1.Server // serves plain requests without TLS; the rest comes to http
	seats   *conns.Pool
	group   *lifecycle.Group // of the seats
	streams Streams
	logger  *slog.Logger
	tls     bool
}

// New builds the server; it does not listen yet.
func New(c Config) (*Server, error) {
	engine, err := router(c)
	if err != nil {
		return nil, err
	}
	h, err := pages(c.Prefix)
	if err != nil {
		return nil, err
	}
	front := &front{next: engine, pages: h, logger: c.Logger, prefix: c.Prefix, cors: newCORS(c.CORSOrigins), ids: newRequestIDs()}
	s := &http.Server{
		Handler: front, TLSConfig: c.TLS, MaxHeaderBytes: maxHeaderBytes,
		ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(c.Logger.Handler(), slog.LevelDebug),
	}
	server := &Server{http: s, streams: c.Streams, logger: c.Logger, tls: c.TLS != nil, group: lifecycle.New(context.Background())}
	server.seats = newSeats(&c)
	if server.tls {
		s.ConnState = noteSecure
	}
	server.plain = h1.New(s, c.Logger)
	server.plain.Remember(route.MemoryKey, func() any { return new(route.Memory) })
	server.plain.Park(route.ParkingKey)
	server.plain.Linger(c.Linger)
	server.plain.Limit(seats{server.seats})
	return server, nil
}

// Connections tells how the connections are used.
func (s *Server) Connections() conns.Stats { return s.seats.Stats() }

// Handler is the whole HTTP surface, for tests that need no port.
func (s *Server) Handler() http.Handler { return s.http.Handler }

// Serve answers on the listener until Shutdown; the error is nil then.
func (s *Server) Serve(l net.Listener) error {
	s.group.Go("http/refused", s.seats.Run)
	var err error
	if s.tls {
		err = s.http.ServeTLS(&seatedListener{l, s.seats}, "", "")
	} else {
		err = s.plain.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("http port: %w", err)
}

// Shutdown stops accepting, ends the streams and waits for requests under way, but not
// for longer than half of what is left until ctx ends: a client that sends half a body, or
// does not read its answer, must not take the time that the rest of the node needs to
// stop. What is left then is cut, which is logged and no error.
func (s *Server) Shutdown(ctx context.Context) error {
	grace, cancel := half(ctx)
	defer cancel()
	streams := make(chan error, 1)
	s.http.RegisterOnShutdown(func() { streams <- s.streams.Shutdown(grace) })
	err := s.plain.Shutdown(grace)
	defer s.endSeats()
	if errors.Is(err, context.DeadlineExceeded) {
		s.logger.Warn("connections of clients that did not end their requests were cut")
		err = s.plain.Close()
	}
	select {
	case streamErr := <-streams:
		return errors.Join(err, streamErr)
	case <-ctx.Done():
		return errors.Join(err, context.Cause(ctx))
	}
}

func (s *Server) endSeats() {
	if err := s.group.Stop(time.Second); err != nil {
		s.logger.Warn("refused connections were not closed", "error", err)
	}
}

// half ends after half of the time that ctx has left.
func half(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(end)/2)
}

// router builds the gin engine. Path values stay escaped for the router and are decoded
// once by the REST layer, so that %2F and + in names keep their meaning.
func router(c Config) (*gin.Engine, error) {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.UseEscapedPath = true
	e.UnescapePathValues = false
	e.RedirectTrailingSlash = false
	e.HandleMethodNotAllowed = true
	proxies := make([]string, len(c.TrustedProxies))
	for i, p := range c.TrustedProxies {
		proxies[i] = p.String()
	}
	if len(proxies) == 0 {
		proxies = nil
	}
	if err := e.SetTrustedProxies(proxies); err != nil {
		return nil, err
	}
	e.Use(c.Metrics.observe)
	if c.Logger.Enabled(context.Background(), slog.LevelDebug) {
		e.Use(accessLog(c.Logger))
	}
	e.NoRoute(func(g *gin.Context) {
		fail(g, model.Errorf(model.NotFound, "there is nothing at %s", g.Request.URL.Path))
	})
	e.NoMethod(func(g *gin.Context) {
		fail(g, model.Errorf(model.MethodNotAllowed, "%s does not have the method %s", g.Request.URL.Path, g.Request.Method))
	})
	for _, d := range append(slices.Clone(c.Doors), c.Streams) {
		c.Gate.Register(e, d.Routes()...)
	}
	return e, nil
}

// accessLog writes a line for each request. The path goes without its query, which may
// hold what is not for logs.
func accessLog(logger *slog.Logger) gin.HandlerFunc {
	return func(g *gin.Context) {
		start := time.Now()
		p := route.ParkingOf(g.Request)
		if p != nil && !p.Since().IsZero() {
			start = p.Since()
		}
		if g.Next(); p != nil && p.Parks() {
			return // the metrics, which every request goes through before, keep since when
		}
		logger.Debug("request", "method", g.Request.Method, "path", g.Request.URL.Path, "status", g.Writer.Status(),
			"bytes", max(g.Writer.Size(), 0), "took", time.Since(start), "client", g.ClientIP(),
			"request_id", g.Writer.Header().Get("X-Request-Id"))
	}
}

func fail(g *gin.Context, err error) {
	m := g.Request.Method
	problem.Write(g.Writer, err, problem.Occurrence{
		Path: problem.PathOf(g.Request), RequestID: g.Writer.Header().Get("X-Request-Id"),
		Write: m != http.MethodGet && m != http.MethodHead,
	})
}

// front is what every request passes before the router.
type front struct {
	next   http.Handler
	pages  http.Handler
	logger *slog.Logger
	prefix string
	cors   *cors
	ids    *requestIDs
}

// ServeHTTP gives the request its id, cuts the path prefix, and keeps a panic from
// reaching the client.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := f.ids.of(r)
	h := w.Header()
	h["X-Request-Id"] = id
	h["X-Content-Type-Options"] = nosniff
	if tp := r.Header["Traceparent"]; len(tp) == 1 && validTraceparent(tp[0]) {
		h["Traceparent"] = tp
	}
	defer f.recovered(w, r, id[0])
	if f.cors.handle(w, r) {
		return
	}
	if f.prefix != "" {
		if r = f.cutPrefix(w, r); r == nil {
			return
		}
	}
	if emptySegment(r.URL) {
		f.problem(w, r, model.Errorf(model.NotFound, "the path has an empty segment"))
		return
	}
	if isPage(r.URL.Path) {
		f.pages.ServeHTTP(w, r)
		return
	}
	f.next.ServeHTTP(w, r)
}

// emptySegment finds two slashes in a row in a path as it was sent. None is escaped, so that
// without a RawPath the Path has them too.
func emptySegment(u *url.URL) bool {
	if u.RawPath == "" {
		return strings.Contains(u.Path, "//")
	}
	return strings.Contains(u.EscapedPath(), "//")
}

var nosniff = []string{"nosniff"}

func (f *front) problem(w http.ResponseWriter, r *http.Request, err error) {
	problem.Write(w, err, problem.Occurrence{
		Path: problem.PathOf(r), RequestID: w.Header().Get("X-Request-Id"),
		Write: r.Method != http.MethodGet && r.Method != http.MethodHead,
	})
}

// cutPrefix returns the request as it is below the prefix, or answers 404.
func (f *front) cutPrefix(w http.ResponseWriter, r *http.Request) *http.Request {
	p, ok := strings.CutPrefix(r.URL.Path, f.prefix)
	if !ok || p != "" && p[0] != '/' {
		f.problem(w, r, model.Errorf(model.NotFound, "this node serves below %s/", f.prefix))
		return nil
	}
	if p == "" {
		p = "/"
	}
	cut := r.Clone(r.Context())
	cut.URL.Path = p
	if raw, ok := strings.CutPrefix(r.URL.RawPath, f.prefix); ok && r.URL.RawPath != "" {
		cut.URL.RawPath = raw
	}
	return cut
}

// recovered answers a panic with 500 and logs its stack. http.ErrAbortHandler keeps its
// meaning: the connection is cut.
func (f *front) recovered(w http.ResponseWriter, r *http.Request, id string) {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p)
	}
	f.logger.Error("a handler panicked", "method", r.Method, "path", r.URL.Path, "request_id", id, "panic", p, "stack", stack())
	f.problem(w, r, model.Errorf(model.Internal, "an internal error; the log has more under the request id"))
}
