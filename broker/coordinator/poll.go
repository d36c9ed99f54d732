package coordinator

import (
	"context"
	"time"

	"tidewire/broker"
	"tidewire/broker/group"
	"tidewire/broker/group/cursor"
	"tidewire/broker/partition"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// poll is a member's poll under way, as others see it.
type poll struct {
	member  string
	changed chan struct{} // receives when the member's assignment may have changed
	ended   chan struct{} // closed by the poll that takes its place
	woken   func()        // called in the place of changed, and after ended; nil: a poll that waits
}

func (p *poll) wake() {
	if p.woken != nil {
		p.woken()
		return
	}
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

func (p *poll) replaced() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// polling is a poll, as its own goroutine goes through it.
type polling struct {
	c        *Coordinator
	a        *actor
	away     *awayPoll // where another node looks after the group; nil: it is a's
	req      *PollRequest
	cursor   *cursor.Cursor
	known    group.Version // of the assignment that the client knows of; 0: of none
	visit    Visit
	deadline time.Time // of the wait; by the process's own clock

	poll     *poll
	guard    *broker.Guard
	watcher  *partition.Watcher
	explicit bool // the member names its topics: one that it may not read is an error
	got      group.PollResult
	sources  []source
	out      *PollResult
}

// Poll is a member's poll: a heartbeat for as long as it takes, which commits what the cursor
// covers (with auto-commit), releases what the answer of the cursor named as being revoked,
// waits until there are records or the assignment changes, and gives records. A later poll of
// the member ends it. Nothing is visited before it is known that the poll may be answered.
//
// The read is fair between partitions: where many have records each gives a share, beginning
// anywhere.
//
// Errors: invalid-argument for a cursor that is none, forbidden (a topic that the member names
// and the caller may not read; of those that a pattern matches the others are read),
// unauthenticated and the like when the caller's credential ends, offset-out-of-range with
// partitions under group.Never, unknown-member, member-expired, fenced, rate-limited (the
// user's quota, or no memory), leader-unavailable, storage-error, and those of any write.
func (c *Coordinator) Poll(ctx context.Context, req *PollRequest, visit Visit) (*PollResult, error) {
	at, err := parseCursor(req.Cursor)
	if err != nil {
		return nil, err
	}
	if !req.Stream {
		if err := c.broker.AllowFetch(req.Caller); err != nil {
			return nil, err
		}
	}
	known := req.Known
	switch {
	case !req.Stream:
		if at != nil && at.Member == cursor.Tag(req.Member) {
			known = at.Version
		}
	case at == nil: // an empty one, which releases nothing
		at = &cursor.Cursor{Member: cursor.Tag(req.Member)}
	default:
		at.Version = 0
	}
	x := &polling{c: c, req: req, cursor: at, known: known, visit: visit, deadline: time.Now().Add(req.Wait), watcher: partition.NewWatcher()}
	c.metrics.polls.Add(1)
	defer c.metrics.polls.Add(-1)
	x.guard = c.broker.Guard(req.Caller, broker.Need{Operation: metadata.OpRead, Resource: metadata.ResourceGroup, Name: req.Group})
	defer x.guard.Close()
	for again := false; ; {
		elsewhere, err := x.goThere(ctx, &again)
		if elsewhere {
			return x.out, err
		}
		if err != nil {
			return nil, err
		}
		if x.a, err = c.find(ctx, req.Group, false); err != nil {
			return nil, err
		}
		if x.a == nil {
			return nil, model.Errorf(model.UnknownMember, "the group %q has no member %q", req.Group, req.Member)
		}
		if err = x.run(ctx); err != errMoved { //nolint:errorlint // it is never wrapped
			if err != nil {
				x.gone(ctx)
			}
			return x.out, err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// run goes through the poll with one actor.
func (x *polling) run(ctx context.Context) (err error) {
	if x.req.Watch != nil {
		x.poll, err = x.req.Watch.enter(x.a)
	} else {
		x.poll, err = x.a.enter(x.req.Member, nil)
	}
	if err != nil {
		return err
	}
	if x.req.Watch == nil {
		defer x.a.leave(x.poll)
	}
	return x.through(ctx)
}

// through goes through a poll that is registered.
func (x *polling) through(ctx context.Context) error {
	defer x.unwatch()
	var end End
	for before := (*group.Assignment)(nil); ; before = x.got.Assignment {
		if err := x.look(ctx); err != nil {
			return err
		}
		if x.news(before) {
			end = EndChanged
			break
		}
		again, why, err := x.wait(ctx)
		if err != nil {
			return err
		}
		if end = why; !again {
			break
		}
	}
	if end == EndReplaced {
		x.out = x.result(x.got.Assignment, end)
		return nil
	}
	return x.answer(ctx, end)
}

// news tells whether the assignment is another than the client knows of, or than it was when
// the poll began to wait: it is answered at once, above all where it names what is being revoked.
func (x *polling) news(before *group.Assignment) bool {
	now, known := x.got.Assignment, x.known
	switch {
	case before != nil:
		if known = before.Version; len(before.Held) > 0 && len(now.Held) == 0 {
			return true // it has lost all, as with a deleted topic: it is told before there is more
		}
	case known == 0: // a client that knows of nothing waits for records, too
		return len(now.Revoking) > 0 && !x.req.Stream
	}
	return now.Version != known && (len(now.Held)+len(now.Revoking) > 0 || !now.Pending)
}

// look takes the poll to the group, and finds what may be read and from where.
func (x *polling) look(ctx context.Context) error {
	preq := group.PollRequest{Member: x.req.Member, Cursor: x.cursor, Wait: max(0, time.Until(x.deadline)), Silent: x.req.Stream}
	var err error
	if x.away != nil {
		x.got, x.explicit, err = x.away.look(ctx, preq)
	} else {
		x.got, x.explicit, err = x.a.look(ctx, x.poll, preq)
	}
	if err != nil {
		return err
	}
	if x.got.Assignment == nil { // replaced before it began
		x.got.Assignment = &group.Assignment{Pending: true}
		return nil
	}
	if err := x.open(ctx); err != nil {
		return err
	}
	return x.place(ctx)
}

// look takes a poll to the group; it finds nothing where a later poll has taken its place.
func (a *actor) look(ctx context.Context, p *poll, req group.PollRequest) (got group.PollResult, explicit bool, _ error) {
	err := a.within(ctx, func(g *group.Group, env group.Env) (eff group.Effects, err error) {
		if p.replaced() { // a later poll may have been here before
			return group.Effects{}, nil
		}
		if m, err := g.Facts(req.Member); err == nil {
			explicit = m.Pattern == ""
		}
		eff, got, err = g.Poll(env, req)
		return eff, err
	})
	return got, explicit, err
}

// wait returns once there are enough records, the assignment may have changed (again), or it
// is time to answer.
func (x *polling) wait(ctx context.Context) (again bool, why End, _ error) {
	left := time.Until(x.deadline)
	if left <= 0 || x.enough(ctx) {
		return false, x.ending(), nil
	}
	x.watch()
	if x.away != nil {
		x.away.park()
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	if err := x.allowed(ctx); err != nil { // what has ended before the guard was there
		return false, EndRecords, err
	}
	for {
		if x.enough(ctx) {
			return false, x.ending(), nil
		}
		select {
		case <-x.watcher.C():
		case <-x.poll.changed:
			return true, EndRecords, nil
		case <-x.poll.ended:
			return false, EndReplaced, nil
		case <-timer.C:
			return false, EndRecords, nil
		case <-x.req.Interrupt:
			return false, EndRecords, nil
		case <-x.c.stopped:
			return false, EndStopping, nil
		case <-x.guard.Changed():
			if err := x.allowed(ctx); err != nil {
				return false, EndRecords, err
			}
		case <-ctx.Done():
			return false, EndRecords, context.Cause(ctx)
		}
	}
}

// ending is why a poll that does not wait any more is answered.
func (x *polling) ending() End {
	if x.poll.replaced() {
		return EndReplaced
	}
	return EndRecords
}

// gone begins the session anew when the poll fails, or its client has gone away while it waited:
// the member was alive until now, and for no longer than its session from now on.
func (x *polling) gone(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if x.away != nil {
		_, _ = unattendedCall.at(ctx, x.c, x.away.node, asked[string]{x.req.Group, 0, x.req.Member}) // as below
		return
	}
	_ = x.a.do(ctx, func(g *group.Group, env group.Env) (group.Effects, error) {
		return group.Effects{}, g.Unattended(env, x.req.Member)
	}) // nobody is there to be told
}

// allowed tells whether the caller may go on.
func (x *polling) allowed(ctx context.Context) error {
	if err := x.guard.Check(ctx); err != nil {
		return err
	}
	for _, h := range x.got.Assignment.Held {
		if err := x.mayRead(ctx, h.Name); err != nil && x.explicit {
			return err
		}
	}
	return nil
}

// mayRead tells whether the caller may read a topic.
func (x *polling) mayRead(ctx context.Context, topic string) error {
	caller := x.guard.Caller()
	if x.c.broker.Allowed(caller, metadata.OpRead, metadata.ResourceTopic, topic) {
		return nil
	}
	return x.c.broker.StillAllowed(ctx, caller, metadata.OpRead, topic)
}

// answer gives the records, and says what the member has now.
func (x *polling) answer(ctx context.Context, end End) error {
	var now *group.Assignment
	var err error
	if q := (answerRequest{Member: x.req.Member, Grace: x.req.Grace}); x.away != nil {
		now, err = x.away.answer(ctx, q)
	} else {
		now, err = x.a.answer(ctx, q)
	}
	if err != nil {
		return err
	}
	x.out = &PollResult{Assignment: now, End: end}
	err = x.read(ctx, now)
	x.note(now)
	return err
}

// result is an answer without records, yet.
func (x *polling) result(a *group.Assignment, end End) *PollResult {
	x.out = &PollResult{Assignment: a, End: end}
	x.note(a)
	return x.out
}

// note puts the positions that were reached into the answer.
func (x *polling) note(a *group.Assignment) {
	at := make(map[group.Partition]group.Position, len(x.sources))
	for i := range x.sources {
		at[x.sources[i].pos.Partition] = x.sources[i].pos
	}
	x.out.Positions = x.out.Positions[:0]
	for _, h := range a.Held {
		p, ok := at[h.Partition]
		if !ok || p.Since != h.Since {
			p = group.Position{Held: h, Next: group.NoOffset, LeaderEpoch: model.NoEpoch}
		}
		x.out.Positions = append(x.out.Positions, p)
	}
	reached := make([]model.Offset, len(x.got.Positions))
	for i := range reached {
		reached[i] = group.NoOffset
		if i < len(x.sources) {
			reached[i] = x.sources[i].pos.Next
		}
	}
	x.out.Cursor = group.MakeCursor(x.req.Member, a, x.got, reached).String()
}
