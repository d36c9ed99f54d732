package ws

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/api/problem"
	"tidewire/auth"
	"tidewire/broker"
	"tidewire/internal/model"

	"github.com/gorilla/websocket"
)

// session is one open socket. Its state belongs to its turn (turns.go), which alone writes;
// the goroutine of readFrames reads, decodes and hands over one frame at a time.
type session struct {
	h         *Handler
	stream    *broker.Stream
	user      string // the caller's
	at        problem.Occurrence
	byQuery   bool // the query subscribed; frames may not
	announced bool // what the query subscribed was told
	reader    *reader
	produce   *producing // of a socket that produces; nil: one that consumes
	expires   time.Time  // of the token; zero: never
	warned    bool       // auth-expiring was sent for this token
	slowed    time.Time  // when the user's quota may let more pass; zero: now
	pingAt    time.Time  // when the next ping is due

	conn     *websocket.Conn
	net      atomic.Pointer[pacedConn] // nil before the handshake
	frames   chan clientFrame          // closed by readFrames at its end
	offered  atomic.Bool               // readFrames is about to hand over a frame, or has closed frames
	readErr  error                     // why readFrames ended; written before frames is closed
	heard    atomic.Int64              // when the client last showed that it is there, in Unix nanoseconds
	ping     atomic.Pointer[string]    // payload of the client's newest ping; nil: it was answered
	regroup  chan struct{}             // receives when a group has something for the member; nil: it has been none
	leaving  chan struct{}             // closed when no frames are taken any more
	released sync.Once
	turns    turns
}

// ending is how a session ends. The zero value cuts the connection.
type ending struct {
	frame  []byte // the last frame, if any
	code   int    // of the close frame; 0: none is sent
	reason string
	leaves bool // a member leaves its group; else its session goes on
}

func (h *Handler) newSession(caller broker.Caller, at problem.Occurrence) *session {
	caller.Credential = auth.Kept(caller.Credential)
	s := &session{
		h: h, user: caller.Principal.Name, at: at, expires: caller.Principal.ExpiresAt,
		frames: make(chan clientFrame), leaving: make(chan struct{}),
	}
	s.turns.running = true // until its first turn ends
	s.stream = h.broker.NewStreamCalling(caller, s.wake)
	return s
}

func (s *session) attach(conn *websocket.Conn, net *pacedConn) {
	s.conn = conn
	if s.reader != nil && s.reader.member != nil {
		net.between = s.reader.member.slowly
	}
	s.net.Store(net)
	select {
	case <-s.h.stopping: // Shutdown may have looked before there was a connection
		s.hurry()
	default:
	}
	_ = s.alive("")
	conn.SetPongHandler(s.alive)
	conn.SetPingHandler(func(payload string) error {
		s.ping.Store(&payload) // only the newest needs an answer (RFC 6455 §5.5.3)
		s.wake()
		return nil
	})
	conn.SetCloseHandler(func(int, string) error { return nil }) // answered by the turn, the only writer
}

// alive puts off the end of a client from which nothing comes. It only notes the time: the
// goroutine of readFrames keeps the stack of its deepest call for as long as the socket is
// open, and setting a deadline would double it.
func (s *session) alive(string) error {
	s.heard.Store(time.Now().UnixNano())
	return nil
}

// lost tells when a client from which nothing comes is given up. While a frame of it waits
// for its turn, pongs wait behind it.
func (s *session) lost(now time.Time) time.Time {
	if s.offered.Load() {
		return now.Add(s.h.times.pong)
	}
	return time.Unix(0, s.heard.Load()).Add(s.h.times.pong)
}

// stopReading ends readFrames.
func (s *session) stopReading() {
	if c := s.net.Load(); c != nil {
		_ = c.SetReadDeadline(time.Unix(1, 0)) // a connection that has ended needs none
	}
}

// release gives back what the session holds, once.
func (s *session) release() {
	s.released.Do(func() {
		s.part(s.conn == nil, false)
		s.stream.Close()
		s.h.remove(s)
	})
}

// cut ends the connection at once; both goroutines then end.
func (s *session) cut() {
	if c := s.net.Load(); c != nil {
		c.abort()
	}
}

// hurry bounds what is being written when the node stops: one stuck client must not
// hold it up.
func (s *session) hurry() {
	if c := s.net.Load(); c != nil {
		c.hurry(time.Now().Add(s.h.times.closeWait))
	}
}

// readFrames reads until the connection ends. A frame that is not taken any more is
// dropped; reading goes on, so that the client's close is seen.
func (s *session) readFrames(ctx context.Context) {
	for {
		f, err := s.readFrame()
		if err != nil {
			s.readErr = err
			break
		}
		s.offered.Store(true)
		s.wake()
		select {
		case s.frames <- f:
		case <-s.leaving:
			f.drop()
		}
	}
	close(s.frames)
	s.offered.Store(true)
	if !s.turns.wake(s.h.group, s.run) { // the group has ended, and nobody else can
		s.run(ctx)
	}
}

func (s *session) readFrame() (clientFrame, error) {
	kind, r, err := s.conn.NextReader()
	if err != nil {
		return clientFrame{}, err
	}
	if kind != websocket.TextMessage {
		return clientFrame{err: model.Errorf(model.MalformedBody, "frames are text; a binary one came")}, nil
	}
	if s.produce != nil {
		return s.produce.read(r)
	}
	b, err := io.ReadAll(io.LimitReader(r, maxFrameBytes+1))
	switch {
	case err != nil:
		return clientFrame{}, err
	case len(b) > maxFrameBytes:
		return clientFrame{err: model.Errorf(model.RequestTooLarge, "a frame has at most %d bytes", maxFrameBytes)}, nil
	}
	return clientFrame{raw: b}, nil // decoded in the turn, whose stack goes with it
}

// end ends the session, whose frames are not taken any more. readFrames goes on, so that
// the client's answer to the close is seen.
func (s *session) end(how ending) {
	defer s.release()
	close(s.leaving)
	s.part(how.leaves, how.leaves || how.code == closeGoingAway)
	s.leave(how)
}

// step does what is to be done at once, a frame of records at most; more tells that there
// may be more.
func (s *session) step(ctx context.Context) (more bool, _ *ending) {
	if s.reader != nil && s.byQuery && !s.announced {
		s.announced = true
		if end := s.announce(nil); end != nil {
			return false, end
		}
	}
	sent, end := s.advance(ctx)
	if end != nil {
		return false, end
	}
	did, end := s.control()
	if end != nil {
		return false, end
	}
	f, ok := s.takeFrame()
	switch {
	case !ok:
		return sent || did, nil
	case f.end:
		return false, s.gone()
	case f.raw != nil:
		f = decodeFrame(f.raw)
	}
	return true, s.command(ctx, f)
}

// takeFrame takes the frame that waits for its turn, if one does.
func (s *session) takeFrame() (clientFrame, bool) {
	if !s.offered.CompareAndSwap(true, false) {
		return clientFrame{}, false
	}
	f, open := <-s.frames
	f.end = !open
	_ = s.alive("") // pongs may have waited behind it
	return f, true
}

// advance checks that the socket may go on and sends at most one frame of records.
func (s *session) advance(ctx context.Context) (sent bool, _ *ending) {
	if s.nodeStops(ctx) { // before the errors that follow from it
		end := stopping()
		return false, &end
	}
	if err := s.stream.Check(ctx); err != nil {
		return false, s.failed(err)
	}
	s.noteExpiry(s.stream.Caller().Principal.ExpiresAt)
	if end := s.warnExpiry(); end != nil || s.reader == nil {
		return false, end
	}
	if end := s.takeAdded(ctx); end != nil {
		return false, end
	}
	if end := s.tend(ctx); end != nil {
		return false, end
	}
	if s.slow(s.stream.Delay()) || s.reader.room() == 0 {
		return false, nil
	}
	if end := s.pace(); end != nil {
		return false, end
	}
	return s.deliver(ctx)
}

// slow notes how long the user's quota lets nothing pass, and tells whether it does so.
func (s *session) slow(wait time.Duration) bool {
	if s.slowed = (time.Time{}); wait <= 0 {
		return false
	}
	s.slowed = time.Now().Add(wait)
	return true
}

// control answers the client's ping, sends one where it is due, and ends the socket of a
// client that has answered none for long.
func (s *session) control() (did bool, end *ending) {
	if payload := s.ping.Swap(nil); payload != nil {
		did = true
		if end = s.sendControl(websocket.PongMessage, *payload); end != nil {
			return true, end
		}
	}
	now := time.Now()
	if !now.Before(s.lost(now)) {
		return true, &ending{}
	}
	if !now.Before(s.pingAt) {
		did, s.pingAt = true, now.Add(s.h.times.ping)
		end = s.sendControl(websocket.PingMessage, "")
	}
	return did, end
}

// due is how long there is nothing to be done by the clock.
func (s *session) due() time.Duration {
	now := time.Now()
	d := min(s.pingAt.Sub(now), s.lost(now).Sub(now), s.tokenDue())
	if !s.slowed.IsZero() {
		d = min(d, s.slowed.Sub(now))
	}
	if s.reader != nil && s.reader.member != nil {
		d = min(d, s.reader.member.due().Sub(now))
	}
	return max(d, 0)
}

func (s *session) nodeStops(ctx context.Context) bool {
	select {
	case <-s.h.stopping:
	case <-s.h.broker.Draining():
	case <-ctx.Done():
	default:
		return false
	}
	return true
}

func stopping() ending {
	return ending{frame: encodeFrame(EndFrame{Op: "end", Reason: "node-stopping"}), code: closeGoingAway, reason: "node-stopping"}
}

// gone tells how to end after the client has: a close frame is answered with its code.
func (s *session) gone() *ending {
	if s.readErr == nil { // readFrames could not start
		end := stopping()
		return &end
	}
	var c *websocket.CloseError
	if !errors.As(s.readErr, &c) {
		return &ending{}
	}
	if c.Code == websocket.CloseNoStatusReceived {
		return &ending{code: websocket.CloseNormalClosure, leaves: true}
	}
	return &ending{code: c.Code, leaves: c.Code != websocket.CloseAbnormalClosure}
}

// failed is the end by an error that is not an answer to a frame with an id.
func (s *session) failed(err error) *ending {
	e := model.AsError(err)
	return s.failedWith(e, closeCode(e))
}

func (s *session) failedWith(e *model.Error, code int) *ending {
	if code == closeInternal {
		s.h.logger.Error("a WebSocket failed", "path", s.at.Path, "request_id", s.at.RequestID, "code", e.Code, "error", e)
	}
	return &ending{frame: s.problemFrame(nil, e), code: code, reason: string(e.Code), leaves: e.Code == model.Forbidden}
}

func (s *session) problemFrame(id json.RawMessage, e *model.Error) []byte {
	return encodeFrame(ErrorFrame{AnswerFrame{"error", id}, problem.Of(e, s.at)})
}

// refuse answers a frame that cannot be followed: with its id the socket stays open.
func (s *session) refuse(id json.RawMessage, err error) *ending {
	if id == nil {
		return s.failed(err)
	}
	return s.send(s.problemFrame(id, model.AsError(err)))
}

func (s *session) sayGoodbye(end ending) bool {
	if end.frame != nil && s.conn.WriteMessage(websocket.TextMessage, end.frame) != nil {
		return false
	}
	return s.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(end.code, end.reason), time.Time{}) == nil
}

// leave says goodbye, gives the client a moment to answer, and closes.
func (s *session) leave(end ending) {
	if end.code == 0 || !s.sayGoodbye(end) {
		s.cut()
		return
	}
	// What the client has not taken yet is still delivered after the close of the socket.
	defer func() { _ = s.net.Load().Close() }()
	wait := time.NewTimer(s.h.times.closeWait)
	defer wait.Stop()
	for {
		select {
		case f, open := <-s.frames:
			if !open {
				return
			}
			f.drop()
		case <-wait.C:
			return
		}
	}
}

// send writes one frame. A client that took nothing for long is told so once it goes on.
func (s *session) send(frame []byte) *ending {
	if err := s.conn.WriteMessage(websocket.TextMessage, frame); err != nil {
		return &ending{}
	}
	return s.tooSlow()
}

// headRoom is room for the longest head of a frame, in front of its payload.
var headRoom [10]byte

// withHead puts the head of a text frame (RFC 6455 §5.2) in front of a payload for which
// headRoom was left.
func withHead(b []byte) []byte {
	switch n := len(b) - len(headRoom); {
	case n < 126:
		b = b[8:]
		b[1] = byte(n)
	case n < 1<<16:
		b = b[6:]
		b[1] = 126
		binary.BigEndian.PutUint16(b[2:], uint16(n))
	default:
		b[1] = 127
		binary.BigEndian.PutUint64(b[2:], uint64(n))
	}
	b[0] = 0x80 | websocket.TextMessage
	return b
}

// sendFrame is send for a payload with headRoom in front of it: head and payload go in one
// write, past the library, which makes several.
func (s *session) sendFrame(b []byte) *ending {
	if _, err := s.net.Load().Write(withHead(b)); err != nil {
		return &ending{}
	}
	return s.tooSlow()
}

func (s *session) sendControl(kind int, payload string) *ending {
	if err := s.conn.WriteControl(kind, []byte(payload), time.Time{}); err != nil {
		return &ending{}
	}
	return s.tooSlow()
}

// tooSlow is the end of a client that took nothing for long.
func (s *session) tooSlow() *ending {
	if !s.net.Load().stuck.Load() {
		return nil
	}
	e := model.Errorf(model.Timeout, "the client took nothing for %s", s.h.times.slow)
	return s.failedWith(e, closeSlow)
}

// tokenDue is how long nothing is to be done about the token.
func (s *session) tokenDue() time.Duration {
	if s.expires.IsZero() {
		return s.h.times.ping
	}
	left := s.expires.Sub(s.h.now())
	if !s.warned {
		left -= s.h.times.warn
	}
	// The wall clock may be set meanwhile, hence the upper bound.
	return min(max(left, time.Millisecond), s.h.times.ping)
}

// noteExpiry takes over when the credential ends, which a session in use puts off.
func (s *session) noteExpiry(at time.Time) {
	if !at.Equal(s.expires) {
		s.expires, s.warned = at, false
	}
}

// warnExpiry tells the client, once for each token, that its token will end.
func (s *session) warnExpiry() *ending {
	if s.warned || s.expires.IsZero() || s.expires.Sub(s.h.now()) > s.h.times.warn {
		return nil
	}
	s.warned = true
	return s.send(encodeFrame(AuthExpiringFrame{Op: "auth-expiring", ExpiresAt: timeText(s.expires)}))
}

// command follows one frame of the client.
func (s *session) command(ctx context.Context, f clientFrame) *ending {
	if f.err != nil {
		return s.refuse(f.id, f.err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.h.times.command)
	defer cancel()
	switch c := f.cmd.(type) {
	case *subscription:
		return s.onSubscribe(ctx, f.id, c)
	case authCmd:
		return s.onAuth(ctx, f.id, c)
	}
	if s.reader == nil {
		return s.refuse(f.id, model.Errorf(model.Conflict, "there is no subscription; subscribe first"))
	}
	var answer any
	var err error
	switch c := f.cmd.(type) {
	case creditCmd:
		answer, err = s.reader.grant(f.id, c)
	case pauseCmd:
		answer, err = s.reader.pause(f.id, c)
	case seekCmd:
		answer, err = s.reader.seek(f.id, c)
	case commitCmd:
		if answer, err = s.onCommit(ctx, f.id, c); err == nil {
			return s.send(encodeFrame(answer)) // also without an id
		}
	case releasedCmd:
		answer, err = s.onReleased(ctx, f.id, c)
	case unsubscribeCmd:
		s.part(true, true)
		s.stream.Unfollow()
		s.reader = nil
		answer = AnswerFrame{"unsubscribed", f.id}
	}
	switch {
	case err != nil:
		return s.refuse(f.id, err)
	case f.id == nil:
		return nil
	}
	return s.send(encodeFrame(answer))
}

func (s *session) onSubscribe(ctx context.Context, id json.RawMessage, want *subscription) *ending {
	switch {
	case s.byQuery:
		return s.refuse(id, model.Errorf(model.Conflict, "this socket subscribed by its query; a frame cannot do so too"))
	case s.reader != nil:
		return s.refuse(id, model.Errorf(model.Conflict, "this socket has a subscription; unsubscribe first"))
	}
	if err := s.subscribe(ctx, want); err != nil {
		return s.refuse(id, err)
	}
	return s.announce(id)
}

// announce tells what was subscribed and which partitions that gives.
func (s *session) announce(id json.RawMessage) *ending {
	if end := s.send(encodeFrame(s.reader.subscribed(id))); end != nil {
		return end
	}
	return s.send(encodeFrame(AssignedFrame{"assigned", s.reader.positions(0)}))
}

// onAuth takes a new token of the same user; any other ends the socket.
func (s *session) onAuth(ctx context.Context, id json.RawMessage, c authCmd) *ending {
	caller := s.stream.Caller()
	caller.Credential = s.h.tokens.Credential(c.token)
	p, err := caller.Credential.Verify(ctx)
	switch {
	case err != nil:
		return s.failed(err)
	case p.Name != s.user:
		return s.failed(model.Errorf(model.Unauthenticated, "the token belongs to another user"))
	}
	caller.Principal, caller.Credential = p, auth.Kept(caller.Credential)
	s.stream.SetCaller(caller)
	s.expires, s.warned = p.ExpiresAt, false
	answer := AuthenticatedFrame{AnswerFrame: AnswerFrame{"authenticated", id}}
	if !p.ExpiresAt.IsZero() {
		at := timeText(p.ExpiresAt)
		answer.ExpiresAt = &at
	}
	return s.send(encodeFrame(answer))
}
