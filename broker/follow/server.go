package follow

import (
	"bufio"
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"tidewire/broker/partition"
	"tidewire/broker/replication"
	"tidewire/broker/throttle"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
)

const (
	// signEvery is how often a connection that has nothing else to say shows that it lives.
	signEvery = 500 * time.Millisecond
	// silence ends a connection.
	silence = 5 * time.Second
	// moveAfter is how long a moved high watermark waits for records to go with.
	moveAfter = 50 * time.Millisecond
	// answerBytes bounds the batches in a frame, but for a single one.
	answerBytes = 1 << 20
	bufferBytes = 64 << 10
)

// ServerConfig is what a Server is made of.
type ServerConfig struct {
	// Find gives a partition that this node has a replica of, or nil.
	Find func(Key) *partition.Partition
	// Throttle paces what is sent to replicas that a move adds and that are not in sync yet.
	Throttle *throttle.Bucket
	Logger   *slog.Logger
	Group    *lifecycle.Group
}

// Server serves the followers of what this node leads.
type Server struct{ cfg ServerConfig }

// NewServer returns a server; it does nothing until Serve.
func NewServer(cfg ServerConfig) *Server {
	if cfg.Throttle == nil {
		cfg.Throttle = new(throttle.Bucket)
	}
	return &Server{cfg}
}

// Serve speaks with a follower's node until the connection or ctx ends, and closes the
// connection. from is who the connection was found to be.
func (s *Server) Serve(ctx context.Context, c net.Conn, from model.BrokerID) {
	c = timed{c}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() }) // ends reads and writes
	defer stop()
	defer func() { _ = c.Close() }() // a second time maybe
	r := bufio.NewReaderSize(c, bufferBytes)
	b, err := readFrame(r, nil)
	if err != nil {
		return
	}
	who, err := parseHello(b)
	if err != nil || who.ID != from {
		s.cfg.Logger.Warn("a follower's connection was refused", "node", from, "error", err)
		return
	}
	x := &session{server: s, conn: c, who: who, parts: map[Key]*served{}, kick: make(chan struct{}, 1)}
	done := make(chan struct{})
	started := s.cfg.Group.Go("follower writer", func(context.Context) {
		defer close(done)
		x.write(ctx)
		_ = c.Close()
	})
	if !started {
		return
	}
	err = x.read(r)
	cancel()
	<-done
	x.end()
	s.cfg.Logger.Debug("a follower's connection has ended", "node", from, "error", err)
}

// session is one follower's connection at the leader's node.
type session struct {
	server *Server
	conn   net.Conn
	who    replication.Member
	kick   chan struct{}

	parts map[Key]*served // of the reading goroutine
	slow  []*served       // of the writing goroutine: wait for the throttle, and are queued

	mu    sync.Mutex
	ready []*served // guarded by mu: have an answer to be sent, or may have
	moved []*served // guarded by mu: their high watermark has
	sign  bool      // guarded by mu: a sign of life is to be answered
}

// served is a partition of a session.
type served struct {
	key  Key
	part *partition.Partition // nil: none here
	tail *partition.Tail

	// All guarded by session.mu.
	at        replication.Position // of the update that wants an answer
	wants     bool
	queued    bool // in ready
	news      bool // in moved
	said      *answer
	saidHW    model.Offset
	saidStart model.Offset
}

func (x *session) wake() {
	select {
	case x.kick <- struct{}{}:
	default:
	}
}

// read takes the follower's updates.
func (x *session) read(r *bufio.Reader) error {
	var buf []byte
	for {
		var err error
		if buf, err = readFrame(r, buf); err != nil {
			return err
		}
		if len(buf) == 0 {
			x.signOfLife()
			continue
		}
		for c := (&cursor{b: buf}); len(c.b) > 0; {
			u, ok := c.update()
			if !ok {
				return errForm
			}
			x.take(&u)
		}
	}
}

func (x *session) signOfLife() {
	for _, e := range x.parts {
		if e.part == nil {
			continue
		}
		start := e.part.Alive(x.who)
		x.mu.Lock()
		news := start > e.saidStart
		x.mu.Unlock()
		if news {
			x.markMoved(e)
		}
	}
	x.mu.Lock()
	x.sign = true
	x.mu.Unlock()
	x.wake()
}

// take does what an update asks for.
func (x *session) take(u *update) {
	e := x.parts[u.key]
	if u.goes {
		x.drop(e)
		return
	}
	part := x.server.cfg.Find(u.key)
	if e != nil && e.part != part { // opened again, or its topic was made anew
		x.drop(e)
		e = nil
	}
	if e == nil {
		e = x.add(u.key, part)
	}
	if part == nil {
		x.owe(e, u, &answer{status: statusRefused})
		return
	}
	a, err := part.Fetched(x.who, u.at)
	switch {
	case err != nil:
		x.owe(e, u, &answer{status: statusRefused})
	case a.Verdict == replication.Serving:
		x.owe(e, u, nil)
	case a.Verdict == replication.Diverged:
		x.owe(e, u, &answer{status: statusDiverged, fetch: partition.Fetch{Answer: a}})
	default:
		x.owe(e, u, &answer{status: statusRange, fetch: partition.Fetch{Answer: a}})
	}
}

func (x *session) add(k Key, part *partition.Partition) *served {
	e := &served{key: k, part: part, saidHW: -1}
	x.parts[k] = e
	if part != nil {
		e.tail = &partition.Tail{Data: func() { x.mark(e) }, Moved: func() { x.markMoved(e) }}
		part.Follow(e.tail)
	}
	return e
}

func (x *session) drop(e *served) {
	if e == nil {
		return
	}
	delete(x.parts, e.key)
	if e.part != nil {
		e.part.Unfollow(e.tail)
	}
	x.mu.Lock()
	e.wants = false
	x.mu.Unlock()
}

func (x *session) end() {
	for _, e := range x.parts {
		x.drop(e)
	}
}

// owe notes that an update wants an answer: said, or records when there are any.
func (x *session) owe(e *served, u *update, said *answer) {
	if !u.wants {
		return
	}
	x.mu.Lock()
	e.at, e.wants, e.said = u.at, true, said
	x.markLocked(e)
	x.mu.Unlock()
	x.wake()
}

// mark has the writer look at a partition; it is called under the partition's lock.
func (x *session) mark(e *served) {
	x.mu.Lock()
	marked := e.wants
	if marked {
		x.markLocked(e)
	}
	x.mu.Unlock()
	if marked {
		x.wake()
	}
}

func (x *session) markLocked(e *served) {
	if !e.queued {
		e.queued = true
		x.ready = append(x.ready, e)
	}
}

func (x *session) markMoved(e *served) {
	x.mu.Lock()
	first := len(x.moved) == 0
	if !e.news {
		e.news = true
		x.moved = append(x.moved, e)
	}
	x.mu.Unlock()
	if first {
		x.wake()
	}
}

// write sends answers until the connection fails.
func (x *session) write(ctx context.Context) {
	timer, pace := time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	timer.Stop()
	pace.Stop()
	defer timer.Stop()
	defer pace.Stop()
	var buf []byte
	armed := false
	for {
		buf = append(buf[:0], 0, 0, 0, 0)
		x.mu.Lock()
		sign := x.sign
		x.sign = false
		wait := len(x.moved) > 0 && !armed
		x.mu.Unlock()
		if wait {
			timer.Reset(moveAfter)
			armed = true
		}
		if buf = x.collect(buf); len(buf) > 4 || sign {
			if !x.send(buf) {
				return
			}
			if cap(buf) > 4*answerBytes {
				buf = nil // one large batch must not hold its memory for ever
			}
			continue
		}
		if len(x.slow) > 0 {
			pace.Reset(x.paceAfter())
		}
		select {
		case <-x.kick:
		case <-pace.C:
			x.hurry()
		case <-timer.C:
			armed = false
			if buf = x.collectMoved(buf); len(buf) > 4 && !x.send(buf) {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

func (x *session) send(b []byte) bool {
	_, err := x.conn.Write(frame(b))
	return err == nil
}

// collect appends answers to a frame until it is full or nothing is ready.
func (x *session) collect(b []byte) []byte {
	for len(b) < answerBytes {
		x.mu.Lock()
		if len(x.ready) == 0 {
			x.mu.Unlock()
			return b
		}
		e := x.ready[0]
		x.ready = slices.Delete(x.ready, 0, 1)
		e.queued = false
		at, said, wants := e.at, e.said, e.wants
		x.mu.Unlock()
		paced := wants && said == nil && e.part.CatchingUp(x.who.ID)
		switch {
		case paced && x.server.cfg.Throttle.Wait(time.Now()) > 0:
			x.slowDown(e)
		case wants:
			b = x.answer(b, e, owed{at, said, paced})
		}
	}
	return b
}

// owed is what an answer is about.
type owed struct {
	at    replication.Position
	said  *answer
	paced bool // by the throttle
}

// paceMost bounds how long a wait for the throttle goes on before it is looked at again: it may
// have been raised.
const paceMost = 250 * time.Millisecond

// slowDown has a partition wait for the throttle.
func (x *session) slowDown(e *served) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !e.queued {
		e.queued = true // until its time has come
		x.slow = append(x.slow, e)
	}
}

func (x *session) paceAfter() time.Duration {
	return min(max(x.server.cfg.Throttle.Wait(time.Now()), time.Millisecond), paceMost)
}

// hurry has those that wait for the throttle looked at again.
func (x *session) hurry() {
	x.mu.Lock()
	x.ready = append(x.ready, x.slow...)
	x.mu.Unlock()
	x.slow = nil
}

// answer appends what is owed to a partition, where there is something.
func (x *session) answer(b []byte, e *served, o owed) []byte {
	at, said := o.at, o.said
	a := answer{key: e.key, fetch: partition.Fetch{At: at}}
	head, most := len(b), answerBytes
	if o.paced {
		most = x.server.cfg.Throttle.Chunk(answerBytes)
	}
	if said == nil {
		b = append(b, make([]byte, answerHead)...)
		var err error
		var v partition.View
		b, v, err = e.part.ReadFor(b, at.Epoch, at.LogEnd, most)
		n := len(b) - head - answerHead
		if o.paced {
			x.server.cfg.Throttle.Took(n, time.Now())
		}
		switch {
		case err != nil:
			b, said = b[:head], &answer{status: statusRefused}
		case n == 0:
			x.unsaid(e, v.HighWatermark)
			return b[:head] // nothing yet: it stays owed
		default:
			a.fetch.HighWatermark, a.fetch.Compacted, a.fetch.Answer.LogStart = v.HighWatermark, v.Compacted, v.LogStart
			a.appendHead(b[head:head], n)
		}
	}
	if said != nil {
		a.status, a.fetch.Answer = said.status, said.fetch.Answer
		b = a.appendHead(b, 0)
	}
	x.mu.Lock()
	if e.at == at {
		e.wants, e.said = false, nil
		e.saidHW = max(e.saidHW, a.fetch.HighWatermark)
		e.saidStart = max(e.saidStart, a.fetch.Answer.LogStart)
	}
	x.mu.Unlock()
	return b
}

// unsaid has a high watermark told later that moved while an answer was under way.
func (x *session) unsaid(e *served, hw model.Offset) {
	x.mu.Lock()
	news := hw > e.saidHW
	x.mu.Unlock()
	if news {
		x.markMoved(e)
	}
}

// collectMoved appends the high watermarks that moved and were not told with records.
func (x *session) collectMoved(b []byte) []byte {
	x.mu.Lock()
	moved := x.moved
	x.moved = nil
	for _, e := range moved {
		e.news = false
	}
	x.mu.Unlock()
	for _, e := range moved {
		x.mu.Lock()
		at, saidHW, saidStart, fits := e.at, e.saidHW, e.saidStart, e.wants && e.said == nil
		x.mu.Unlock()
		if !fits {
			continue // it is told with what is owed next
		}
		v, err := e.part.Told(at.Epoch)
		if err != nil || v.HighWatermark <= saidHW && v.LogStart <= saidStart {
			continue
		}
		a := answer{key: e.key, status: statusMoved, fetch: partition.Fetch{At: at, HighWatermark: v.HighWatermark}}
		a.fetch.Answer.LogStart = v.LogStart
		b = a.appendHead(b, 0)
		x.mu.Lock()
		e.saidHW, e.saidStart = v.HighWatermark, v.LogStart
		x.mu.Unlock()
	}
	return b
}
