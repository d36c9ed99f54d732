package groups

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"tidewire/api/problem"
	"tidewire/api/recordanswer"
	"tidewire/api/recordjson"
	"tidewire/api/route"
	"tidewire/broker"
	"tidewire/broker/coordinator"
	"tidewire/broker/group"
	"tidewire/cluster/metadata"
	"tidewire/internal/inflight"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// Times of a stream.
const (
	quietEvery    = 15 * time.Second // a sign of life where there was nothing else
	leastWait     = 100 * time.Millisecond
	revokeGrace   = 5 * time.Second // that a client has to commit what is revoked
	commitEvery   = 5 * time.Second
	commitAtMost  = time.Second // how long the last commit of a stream may take
	eventBytes    = 256 << 10   // of keys, values and headers in one event
	memberSilence = 3           // a client that reads slowly is alive: a heartbeat each so many parts of its session timeout
)

// Reasons of an end that is nobody's fault.
const (
	nodeStopping = "node-stopping"
	replaced     = "replaced" // by another read of the member
)

// stream is a member's stream under way.
type stream struct {
	d      *Door
	c      *route.Call
	r      *reading
	ctx    context.Context
	member group.Member
	guard  *broker.Guard
	seat   *coordinator.Watch
	out    *route.Paced
	hold   inflight.Hold

	cursor    string        // behind the last event that was written
	committed string        // the last that was committed by the clock
	version   group.Version // of the assignment that was told last
	revoking  map[group.Partition]group.Version
	told      time.Time // of the last bytes
	checked   time.Time
	saved     time.Time // of the last commit by the clock
	alive     time.Time // of the last call that began the session anew
}

// stream gives a member records as events until one side ends it. What it finds before the
// first event is a usual problem.
func (d *Door) stream(c *route.Call, r *reading) error {
	ctx := c.Request.Context()
	member, err := d.groups.Member(ctx, r.req.Group, r.req.Member)
	if err != nil {
		return err
	}
	now := time.Now()
	s := &stream{
		d: d, c: c, r: r, ctx: ctx, member: member, cursor: r.req.Cursor, committed: r.req.Cursor, hold: d.inflight.Hold(),
		revoking: map[group.Partition]group.Version{}, told: now, checked: now, saved: now, alive: now,
	}
	s.guard = d.broker.Guard(c.Caller(), broker.Need{Operation: metadata.OpRead, Resource: metadata.ResourceGroup, Name: r.req.Group})
	defer s.guard.Close()
	s.seat = d.groups.Seat(r.req.Group, r.req.Member)
	defer s.seat.Close()
	wait := min(r.req.Wait, quietEvery)
	if r.req.Wait = max(wait, leastWait); !r.waits {
		r.req.Wait = quietEvery
	}
	r.req.MaxBytes, r.req.Stream, r.req.Grace = min(r.req.MaxBytes, eventBytes), true, revokeGrace
	if c.Request.Method == http.MethodHead {
		s.head()
		return nil
	}
	first := r.req
	first.Wait = 0
	e, err := s.poll(&first)
	if err != nil {
		return err
	}
	s.head()
	caller := c.Caller()
	s.out = route.NewPaced(c.Writer, func() bool { return s.mayWrite(caller) })
	defer s.out.Release()
	s.run(e)
	return nil
}

func (s *stream) head() {
	h := s.c.Writer.Header()
	h["Cache-Control"] = route.NoStore
	h.Set("X-Accel-Buffering", "no") // proxies in nginx's manner pass events on as they come
	h.Set("Content-Type", mediaSSE)
	s.c.Writer.WriteHeader(http.StatusOK)
}

// mayWrite tells, from any goroutine, whether a write that waits may go on.
func (s *stream) mayWrite(caller broker.Caller) bool {
	select {
	case <-s.d.broker.Draining():
		return false
	default:
	}
	if caller.Credential == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), route.StuckAfter)
	defer cancel()
	p, err := caller.Credential.Verify(ctx)
	return err == nil && s.d.broker.Allowed(broker.Caller{Principal: p, Host: caller.Host}, metadata.OpRead, metadata.ResourceGroup, s.r.req.Group)
}

// event is what one poll has brought: the JSON of its records, in a buffer of the pool.
type event struct {
	recordanswer.Buffer
	n   int // records
	got *coordinator.PollResult
}

// poll makes one round.
func (s *stream) poll(req *coordinator.PollRequest) (*event, error) {
	req.Cursor, req.Caller, req.Known, req.Watch = s.cursor, s.guard.Caller(), s.version, s.seat
	e := &event{}
	var meta recordjson.Meta
	var refused error
	got, err := s.d.groups.Poll(s.ctx, req, func(p group.Held, rec *record.Record, logAppendTime bool) {
		e.Take(recordanswer.JSONStart)
		if refused == nil {
			refused = s.hold.Grow(int64(cap(e.B)))
		}
		if refused != nil {
			return
		}
		if e.n++; e.n > 1 {
			e.B = append(e.B, ',')
		}
		meta.Topic, meta.Partition, meta.LogAppendTime = p.Name, p.Index, logAppendTime
		e.B = recordjson.AppendRecord(e.B, &meta, rec, s.r.enc)
	})
	s.alive = time.Now()
	if err == nil && refused != nil { // the records were read, and are not given: the client comes again with its cursor
		err = refused
	}
	if err != nil {
		e.Free()
		s.hold.Release()
		return nil, err
	}
	e.got = got
	return e, nil
}

// run serves until the stream ends, and writes its last event.
func (s *stream) run(e *event) {
	for {
		end := e.got.End
		err := s.give(e)
		switch {
		case err != nil:
			s.fail(err)
			return
		case end == coordinator.EndReplaced:
			s.finish(replaced)
			return
		case end == coordinator.EndStopping:
			s.stopping()
			return
		}
		if e, err = s.next(); err != nil {
			s.fail(err)
			return
		}
	}
}

// next makes the round that follows, once it may.
func (s *stream) next() (*event, error) {
	if err := s.slow(); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	if err := s.save(); err != nil {
		return nil, err
	}
	req := s.r.req
	if s.dirty() {
		req.Wait = min(req.Wait, max(time.Until(s.saved.Add(commitEvery)), 0))
	}
	return s.poll(&req)
}

// check tells, now and then, whether the caller may go on: a poll looks at that only while it
// waits.
func (s *stream) check() error {
	select {
	case <-s.d.broker.Draining():
		return errStopping
	default:
	}
	select {
	case <-s.guard.Changed():
	default:
		if time.Since(s.checked) < route.RecheckEvery {
			return nil
		}
	}
	s.checked = time.Now()
	return s.guard.Check(s.ctx)
}

// errStopping ends streams when the node stops; it is told as an end, not as a problem.
var errStopping = errors.New("the node is stopping")

// slow waits as long as the user's quota is used up. The member is alive meanwhile.
func (s *stream) slow() error {
	for {
		delay := s.d.broker.FetchDelay(s.guard.Caller())
		if delay == 0 {
			return nil
		}
		if err := s.beat(); err != nil {
			return err
		}
		t := time.NewTimer(min(delay, route.RecheckEvery))
		select {
		case <-t.C:
		case <-s.d.broker.Draining():
			t.Stop()
			return errStopping
		case <-s.ctx.Done():
			t.Stop()
			return route.ErrGone
		}
		if err := s.check(); err != nil {
			return err
		}
	}
}

// beat begins the member's session anew where that was long ago.
func (s *stream) beat() error {
	if time.Since(s.alive) < s.member.SessionTimeout/memberSilence {
		return nil
	}
	s.alive = time.Now()
	return s.d.groups.Heartbeat(s.ctx, s.r.req.Group, s.r.req.Member)
}

// dirty tells whether something was written that the clock is to commit.
func (s *stream) dirty() bool { return s.member.AutoCommit && s.cursor != s.committed }

// save commits by the clock what was written.
func (s *stream) save() error {
	if !s.dirty() || time.Since(s.saved) < commitEvery {
		return nil
	}
	s.saved = time.Now()
	return s.commit(s.ctx)
}

func (s *stream) commit(ctx context.Context) error {
	at := s.cursor
	if _, err := s.d.groups.CommitRead(ctx, s.r.req.Group, s.r.req.Member, at); err != nil {
		return err
	}
	s.committed = at
	return nil
}

// give writes what a round has brought: its records, and what is revoked from now on behind
// the last of them. Where there is nothing a comment shows now and then that the stream is
// alive.
func (s *stream) give(e *event) error {
	defer s.hold.Release()
	defer e.Free()
	a := e.got.Assignment
	if e.got.End == coordinator.EndReplaced {
		return nil // the one that took its place tells
	}
	revoked := s.newlyRevoked(a)
	if e.n > 0 || a.Version != s.version && len(revoked) == 0 {
		if err := s.records(e); err != nil {
			return err
		}
	}
	s.version = a.Version
	if len(revoked) > 0 {
		b := append(appendHeld([]byte(`{"partitions":`), revoked), `,"cursor":"`...)
		b = append(append(b, e.got.Cursor...), `"}`...)
		if err := s.write(slices.Concat(eventHead("revoked", e.got.Cursor), b, eventEnd)); err != nil {
			return err
		}
		s.cursor = e.got.Cursor
	}
	if time.Since(s.told) >= quietEvery {
		return s.write([]byte(":\n\n"))
	}
	return nil
}

// newlyRevoked are the partitions whose revocation was not told yet.
func (s *stream) newlyRevoked(a *group.Assignment) []group.Held {
	var out []group.Held
	now := make(map[group.Partition]group.Version, len(a.Revoking))
	for _, h := range a.Revoking {
		if s.revoking[h.Partition] != h.Since {
			out = append(out, h)
		}
		now[h.Partition] = h.Since
	}
	s.revoking = now
	return out
}

var eventEnd = []byte("\n\n")

func eventHead(name, id string) []byte {
	b := append([]byte("event: "), name...)
	if id != "" {
		b = append(append(b, "\nid: "...), id...)
	}
	return append(b, "\ndata: "...)
}

// records writes an event of records, maybe none: it tells the assignment too.
func (s *stream) records(e *event) error {
	e.Take(recordanswer.JSONStart)
	e.B = append(appendRest(e.B, e.got), eventEnd...)
	e.B = slices.Insert(e.B, 0, eventHead("records", e.got.Cursor)...)
	if err := s.hold.Grow(int64(cap(e.B))); err != nil {
		return err
	}
	if err := s.write(e.B); err != nil {
		return err
	}
	s.cursor = e.got.Cursor
	return nil
}

// write sends bytes; the member of a client that takes them slowly is alive.
func (s *stream) write(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), route.StreamChunk)
		if err := s.out.Send(b[:n]); err != nil {
			return route.ErrGone
		}
		if b = b[n:]; len(b) > 0 {
			if err := s.beat(); err != nil {
				return err
			}
		}
	}
	s.told = time.Now()
	return nil
}

// stopping ends the stream because the node stops.
func (s *stream) stopping() {
	if s.dirty() {
		ctx, cancel := context.WithTimeout(s.ctx, commitAtMost)
		defer cancel()
		_ = s.commit(ctx) // at most once is at least not lost to those who come again with their cursor
	}
	s.finish(nodeStopping)
}

// finish writes the last event of a stream that nothing went wrong with.
func (s *stream) finish(reason string) {
	b := append(append(eventHead("end", s.cursor), `{"reason":"`...), reason...)
	_ = s.write(append(b, "\"}\n\n"...)) // the client may be gone
}

// fail writes the last event of a stream that has to end.
func (s *stream) fail(err error) {
	switch {
	case errors.Is(err, route.ErrGone), s.ctx.Err() != nil:
		s.out.Cut()
		return
	case errors.Is(err, errStopping), s.draining():
		s.stopping()
		return
	}
	e := model.AsError(err)
	if status := model.Row(e.Code).Status; status >= http.StatusInternalServerError {
		s.d.logger.Log(context.Background(), route.FailureLevel(s.ctx, status), "a member's stream failed", "path", s.c.Route.Path,
			"request_id", s.c.Writer.Header().Get("X-Request-Id"), "code", e.Code, "error", err)
	}
	p, err := json.Marshal(problem.Of(e, s.c.Occurrence()))
	if err != nil { // an extension member that JSON cannot carry
		p = []byte("{}")
	}
	_ = s.write(slices.Concat(eventHead("problem", ""), p, eventEnd)) // the client may be gone
}

func (s *stream) draining() bool {
	select {
	case <-s.d.broker.Draining():
		return true
	default:
		return false
	}
}
