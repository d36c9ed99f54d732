package ws

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/api/problem"
	"tidewire/auth"
	"tidewire/broker"
	"tidewire/broker/coordinator"
	"tidewire/internal/inflight"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"

	"github.com/gorilla/websocket"
)

// Subprotocol is the name of the frames' format, version 1 (RFC 6455 §1.9). It is
// spoken also to clients that offer no subprotocol.
const Subprotocol = "tidewire.v1.json"

// DefaultMaxSockets is how many sockets a Handler holds open unless told otherwise.
const DefaultMaxSockets = 10_000

// Tokens makes credentials of bearer tokens; *auth.Tokens is one.
type Tokens interface {
	Credential(token string) auth.Credential
}

// Config is what a Handler is made of. Broker, Tokens and Group are required.
type Config struct {
	Broker *broker.Broker
	Groups *coordinator.Coordinator // nil: there are none, and group answers not-implemented
	Tokens Tokens
	Group  *lifecycle.Group // owns the sockets' goroutines
	Logger *slog.Logger     // nil: discards
	Now    func() time.Time // wall clock; nil: time.Now
	// AllowedOrigins says which pages of other origins may open sockets; nil: none. It
	// is not asked for pages of the node's own origin.
	AllowedOrigins func(r *http.Request) bool
	Inflight       *inflight.Budget // bounds the bytes of produce frames under way; nil: nothing does
	MaxSockets     int              // 0: DefaultMaxSockets; more are refused with rate-limited
}

// Handler serves the WebSocket endpoints. It is safe for concurrent use.
type Handler struct {
	broker     *broker.Broker
	groups     *coordinator.Coordinator
	tokens     Tokens
	group      *lifecycle.Group
	logger     *slog.Logger
	now        func() time.Time
	origins    func(r *http.Request) bool
	maxSockets int
	budget     *inflight.Budget
	times      timing
	upgrader   websocket.Upgrader
	stopping   chan struct{} // closed by Shutdown
	shared     *chunks       // of all sockets
	readers    atomic.Uint64 // sockets that have shared so far

	mu      sync.Mutex
	sockets map[*session]struct{} // guarded by mu
	watched bool                  // guarded by mu: watch was started
	closed  bool                  // guarded by mu: stopping is closed
	idle    chan struct{}         // closed when closed and there are no sockets; guarded by mu
}

// timing holds the durations of the protocol; only tests have others.
type timing struct {
	ping      time.Duration // between pings
	pong      time.Duration // without a pong until the socket ends
	slow      time.Duration // the client took nothing: close with 4408 when it goes on
	cut       time.Duration // the client took nothing: the connection is cut
	warn      time.Duration // before the token's end
	closeWait time.Duration // for the client's answer to a close
	command   time.Duration // for one frame of the client, where the quorum is asked
}

var protocolTimes = timing{
	ping: 20 * time.Second, pong: 60 * time.Second, slow: 10 * time.Second, cut: 30 * time.Second,
	warn: 60 * time.Second, closeWait: time.Second, command: 10 * time.Second,
}

// New returns a handler without sockets.
func New(c Config) *Handler {
	h := &Handler{
		broker: c.Broker, groups: c.Groups, tokens: c.Tokens, group: c.Group, logger: c.Logger, now: c.Now,
		origins: c.AllowedOrigins, maxSockets: c.MaxSockets, budget: c.Inflight, times: protocolTimes,
		stopping: make(chan struct{}), shared: newChunks(), sockets: map[*session]struct{}{}, idle: make(chan struct{}),
	}
	if h.logger == nil {
		h.logger = slog.New(slog.DiscardHandler)
	}
	if h.now == nil {
		h.now = time.Now
	}
	if h.maxSockets <= 0 {
		h.maxSockets = DefaultMaxSockets
	}
	// Small read buffers and pooled write buffers keep an idle socket small.
	h.upgrader = websocket.Upgrader{
		ReadBufferSize: 256, WriteBufferSize: 4096, WriteBufferPool: &sync.Pool{},
		Subprotocols: []string{Subprotocol},
		CheckOrigin:  func(*http.Request) bool { return true }, // checked before, see mayOpen
		Error:        func(http.ResponseWriter, *http.Request, int, error) {},
	}
	return h
}

// Consume reads topics over a WebSocket.
//
// Where it returns an error nothing was answered yet, and the error is to be answered
// over plain HTTP: unauthenticated, token-expired, forbidden, unknown-topic,
// unknown-partition, offset-out-of-range, invalid-argument, rate-limited, leader-unavailable,
// and with group what joining or resuming answers. Otherwise the connection is taken over and Consume returns at
// once; the socket lives on in goroutines of the Group, and the caller's credential is
// verified again for as long as it is open.
//
//	@ID				consume
//	@Summary		Read topics over a WebSocket
//	@Description	JSON text frames, subprotocol tidewire.v1.json. Subscribe with a frame or with query parameters, not both. Frames are described in x-websocket-frames. With group the socket is a member: the group gives it partitions, takes them from it, and stores what it commits. A clean close leaves the group; after a cut one a new socket may go on with member_id until the session timeout has passed. Without group only topics, partitions, from, credit, max_records, encoding, isolation, q, q_in and preview_bytes may be given.
//	@Tags			WebSocket
//	@Param			topics		query	string	false	"topics to read whole, separated by commas"
//	@Param			partitions	query	string	false	"JSON array of {topic, partition, next_offset}: where to begin, and partitions of topics that are not in topics"
//	@Param			from		query	string	false	"where to begin: earliest, latest or a time in milliseconds; with group also none, and it is auto_offset_reset"	default(latest)
//	@Param			group		query	string	false	"read as a member of this consumer group"
//	@Param			member_id	query	string	false	"the membership that goes on; its earlier socket ends"
//	@Param			instance_id	query	string	false	"a name of the member's own, under which it comes back"
//	@Param			take_over	query	bool	false	"end a live member of the same instance_id"	default(false)
//	@Param			client_id	query	string	false	"for people"
//	@Param			assignor	query	string	false	"who gets which partition; the group's unless given"	Enums(range, roundrobin, sticky)
//	@Param			session_timeout_ms	query	int	false	"how long the member lives without its client"	minimum(1000)	maximum(1800000)	default(10000)
//	@Param			auto_offset_reset	query	string	false	"where to begin without a committed offset; from says the same"	Enums(earliest, latest, none)	default(latest)
//	@Param			auto_commit	query	bool	false	"commit what was written to the socket"	default(false)
//	@Param			auto_commit_interval_ms	query	int	false	"between two commits"	minimum(100)	maximum(3600000)	default(5000)
//	@Param			credit		query	int		false	"send no more records than this, until credit frames grant more"	minimum(0)
//	@Param			max_records	query	int		false	"most records in one frame"	minimum(1)	maximum(10000)	default(500)
//	@Param			encoding	query	string	false	"how values are given"	Enums(auto, json, text, base64)	default(auto)
//	@Param			isolation	query	string	false	"which records are seen"	Enums(read_committed, read_uncommitted)	default(read_committed)
//	@Param			ticket		query	string	false	"one-time ticket in place of a header; see createTicket"
//	@Param			q			query	string	false	"records that contain this text, byte for byte"
//	@Param			q_in		query	string	false	"where q is looked for, separated by commas: key, value, headers"	default(key,value,headers)
//	@Param			preview_bytes	query	int	false	"cut each key, value and header value to so many bytes"	minimum(0)	maximum(1048576)
//	@Success		101			{object}	ConsumeFrames	"frames follow"
//	@Router			/v1/ws/consume [get]
//	@x-errors		["unknown-topic","unknown-partition","offset-out-of-range","unknown-member","member-expired","fenced","conflict","rate-limited","leader-unavailable","commit-unknown","storage-full"]
func (h *Handler) Consume(w http.ResponseWriter, r *http.Request, caller broker.Caller) error {
	if err := checkHandshake(r); err != nil {
		return err
	}
	want, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	if err := h.mayOpen(r); err != nil {
		return err
	}
	s := h.newSession(caller, problem.Occurrence{
		Path: strings.Clone(r.URL.EscapedPath()), RequestID: strings.Clone(w.Header().Get("X-Request-Id")),
	})
	if err := h.add(s); err != nil {
		s.stream.Close()
		return err
	}
	if err := s.open(w, r, want); err != nil {
		s.release()
		return err
	}
	return nil
}

// open subscribes as the query says, upgrades the connection and starts the session.
func (s *session) open(w http.ResponseWriter, r *http.Request, want *subscription) error {
	if want != nil {
		ctx, cancel := context.WithTimeout(r.Context(), s.h.times.command)
		defer cancel()
		if err := s.subscribe(ctx, want); err != nil {
			return err
		}
		s.byQuery = true
	}
	hijack := &hijacker{ResponseWriter: w, times: s.h.times}
	conn, err := s.h.upgrader.Upgrade(hijack, r, upgradeHeaders(w))
	switch {
	case err == nil:
	case hijack.conn == nil:
		return model.Invalid("header:Upgrade", "the connection cannot be taken over for a WebSocket").WithCause(err)
	default: // the client is gone, nobody is there to be answered
		_ = hijack.conn.Close()
		s.release()
		return nil
	}
	s.attach(conn, hijack.conn)
	if !s.h.group.Go("ws/read", s.readFrames) { // the group has ended
		close(s.frames)
		s.hurry()
		s.end(stopping())
		return nil
	}
	s.turns.begin(s.h.group, s.run)
	return nil
}

func upgradeHeaders(w http.ResponseWriter) http.Header {
	out := http.Header{}
	for _, name := range []string{"X-Request-Id", "Traceparent"} {
		if v := w.Header().Get(name); v != "" {
			out.Set(name, v)
		}
	}
	return out
}

// checkHandshake checks the request against RFC 6455 §4.2.1.
func checkHandshake(r *http.Request) error {
	if r.Method != http.MethodGet || !websocket.IsWebSocketUpgrade(r) {
		return model.Invalid("header:Upgrade", "this resource is a WebSocket: the request needs Connection: Upgrade and Upgrade: websocket")
	}
	if v := r.Header.Values("Sec-WebSocket-Version"); len(v) != 1 || strings.TrimSpace(v[0]) != "13" {
		return model.Invalid("header:Sec-WebSocket-Version", "WebSocket version 13 is needed (RFC 6455)")
	}
	if !validKey(r.Header.Values("Sec-WebSocket-Key")) {
		return model.Invalid("header:Sec-WebSocket-Key", "a key of 16 bytes in base64 is needed (RFC 6455)")
	}
	offered := websocket.Subprotocols(r)
	for _, p := range offered {
		if p == Subprotocol {
			return nil
		}
	}
	if len(offered) > 0 {
		return model.Invalid("header:Sec-WebSocket-Protocol", "the subprotocol spoken here is %s", Subprotocol)
	}
	return nil
}

// mayOpen refuses pages of other origins: a browser sends its user's credentials along
// with any page's handshake, and shows the page what comes back (CORS does not apply).
func (h *Handler) mayOpen(r *http.Request) error {
	origins := r.Header.Values("Origin")
	if len(origins) == 0 || len(origins) == 1 && sameOrigin(origins[0], r.Host) {
		return nil
	}
	if h.origins != nil && h.origins(r) {
		return nil
	}
	return model.Errorf(model.Forbidden, "a page of another origin may not open a WebSocket here; --cors-origin allows origins")
}

func sameOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}

// add takes a session into the set of open sockets.
func (h *Handler) add(s *session) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return model.Errorf(model.LeaderUnavailable, "the node is stopping")
	}
	if len(h.sockets) >= h.maxSockets {
		return model.Errorf(model.RateLimited, "this node has the %d WebSockets open that it allows", h.maxSockets)
	}
	if !h.watched {
		h.watched = h.group.Go("ws/watch", h.watch)
	}
	h.sockets[s] = struct{}{}
	return nil
}

func (h *Handler) remove(s *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sockets, s)
	if h.closed && len(h.sockets) == 0 {
		close(h.idle)
	}
}

// Open is the number of open sockets.
func (h *Handler) Open() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sockets)
}

var errShutTwice = errors.New("the WebSockets are shut down already")

// Shutdown ends every socket with a frame end, reason node-stopping, and close code
// 1001, and refuses new ones. It returns when all have ended; when ctx ends first it
// cuts those that are left and says so. It may be called once.
func (h *Handler) Shutdown(ctx context.Context) error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return errShutTwice
	}
	h.closed = true
	close(h.stopping)
	if len(h.sockets) == 0 {
		close(h.idle)
	}
	for s := range h.sockets {
		s.hurry()
		s.wake()
	}
	h.mu.Unlock()
	select {
	case <-h.idle:
		return nil
	case <-ctx.Done():
	}
	h.mu.Lock()
	left := make([]*session, 0, len(h.sockets))
	for s := range h.sockets {
		left = append(left, s)
	}
	h.mu.Unlock()
	for _, s := range left {
		s.cut()
	}
	return context.Cause(ctx)
}
