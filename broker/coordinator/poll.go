package coordinator

import (
	"context"
	"errors"
	"sync/atomic"
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
	woken   func() // called after each change of what follows; under locks
	sleeps  bool   // it waits without a goroutine, and has to be woken when the node stops
	changed atomic.Bool
	over    atomic.Bool // a later poll has taken its place
}

// wake tells that the member's assignment may have changed.
func (p *poll) wake() {
	p.changed.Store(true)
	p.woken()
}

func (p *poll) replace() {
	p.over.Store(true)
	p.woken()
}

func (p *poll) replaced() bool { return p.over.Load() }

// polling is a poll, as its own goroutine goes through it.
type polling struct {
	c        *Coordinator
	a        *actor
	away     *awayPoll // where another node looks after the group; nil: it is a's
	retried  bool      // it was tried at one other node already
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
	before   *group.Assignment // of the look before this one; nil: none
	sources  []source
	out      *PollResult

	// What the wait looks for calls woken. That wakes whoever waits in its goroutine by signal,
	// and else by caller.
	signal  chan struct{}
	caller  func()
	suspect atomic.Bool // the guard says that the poll may have to end
	waiting bool
	parked  bool
	// placedAt is when the partitions were found, relook wakes the poll to find some anew.
	placedAt time.Time
	relook   *time.Timer
	timer    *time.Timer // of the wait
}

// errParked ends a turn of a poll that waits without a goroutine.
var errParked = errors.New("the poll waits without a goroutine")

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
	out, _, err := c.PollLater(ctx, req, visit, nil)
	return out, err
}

// Waiting is a poll that waits without a goroutine.
type Waiting polling

// PollLater is Poll for who needs no goroutine while it waits: then it gives the poll, which has
// to go on by Resume once woken was called, or the client is gone. woken may be called at any time
// until the poll is over, more than once and under locks: it must not block, and not call the
// coordinator. A poll that waits for more than one byte keeps its goroutine, since each record may
// wake it, and so does one with Interrupt. woken nil: every poll does.
func (c *Coordinator) PollLater(ctx context.Context, req *PollRequest, visit Visit, woken func()) (*PollResult, *Waiting, error) {
	x, err := c.polling(req)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case woken != nil && req.MinBytes <= 1 && req.Interrupt == nil:
		x.caller = woken
	case req.Watch != nil && req.Watch.signal != nil:
		x.signal = req.Watch.signal
	default:
		x.signal = make(chan struct{}, 1)
	}
	c.metrics.polls.Add(1)
	x.watcher = partition.NewCaller(x.woken)
	x.guard = c.broker.GuardCalling(req.Caller, x.doubt, broker.Need{Operation: metadata.OpRead, Resource: metadata.ResourceGroup, Name: req.Group})
	return (*Waiting)(x).Resume(ctx, visit)
}

// Resume goes on with a poll, whose results are those of PollLater. One goroutine at a time may
// call it, and none once it has given no Waiting.
func (w *Waiting) Resume(ctx context.Context, visit Visit) (*PollResult, *Waiting, error) {
	x := (*polling)(w)
	x.visit, x.parked = visit, false
	defer func() {
		if x.visit = nil; !x.parked {
			x.guard.Close()
			x.c.metrics.polls.Add(-1)
		}
	}()
	for {
		err := x.turn(ctx)
		switch {
		case err == errParked: //nolint:errorlint // it is never wrapped
			return nil, w, nil
		case err != errMoved && x.away != nil: //nolint:errorlint // it is never wrapped
			if x.elsewhere(ctx, err) {
				continue
			}
			return x.out, nil, x.failedAway(ctx, err)
		case err != errMoved: //nolint:errorlint // it is never wrapped
			if err != nil && x.a != nil {
				x.gone(ctx)
			}
			return x.out, nil, err
		case ctx.Err() != nil:
			return nil, nil, context.Cause(ctx)
		}
	}
}

// polling begins a poll.
func (c *Coordinator) polling(req *PollRequest) (*polling, error) {
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
	return &polling{c: c, req: req, cursor: at, known: known, deadline: time.Now().Add(req.Wait)}, nil
}

// woken is called when the wait has something to look at.
func (x *polling) woken() {
	if x.caller != nil {
		x.caller()
		return
	}
	wake(x.signal)
}

// wake sends to a channel that has room for one, unless that is there already.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// doubt is called when the caller may have lost a right.
func (x *polling) doubt() {
	x.suspect.Store(true)
	x.woken()
}

// turn goes through the poll with one actor, or on with it.
func (x *polling) turn(ctx context.Context) (err error) {
	if x.poll == nil {
		if err = x.enter(ctx); err != nil {
			return err
		}
	}
	defer func() {
		if !x.parked {
			x.leave()
		}
	}()
	err = x.run(ctx)
	x.parked = err == errParked //nolint:errorlint // it is never wrapped
	return err
}

// enter finds the group's actor, here or at another node, and makes the poll its member's.
func (x *polling) enter(ctx context.Context) error {
	x.a, x.away, x.before = nil, nil, nil
	node, err := x.c.place(ctx, x.req.Group, false)
	if err != nil {
		return err
	}
	if node != x.c.nodeID {
		x.enterAway(node)
		return nil
	}
	a, err := x.c.find(ctx, x.req.Group, false)
	if err != nil {
		return err
	}
	if a == nil {
		return model.Errorf(model.UnknownMember, "the group %q has no member %q", x.req.Group, x.req.Member)
	}
	x.a = a
	if x.req.Watch != nil {
		x.poll, err = x.req.Watch.enter(a)
	} else {
		x.poll, err = a.enter(&poll{member: x.req.Member, woken: x.woken, sleeps: x.caller != nil})
	}
	return err
}

func (x *polling) leave() {
	x.rest()
	x.unwatch()
	switch {
	case x.away != nil:
		x.leaveAway()
	case x.req.Watch == nil:
		x.a.leave(x.poll)
	}
	x.poll = nil
}

// run goes through the poll, or on with one that waits.
func (x *polling) run(ctx context.Context) error {
	for {
		if !x.waiting {
			if err := x.look(ctx); err != nil {
				return err
			}
			if x.news(x.before) {
				return x.answer(ctx, EndChanged)
			}
		}
		again, end, err := x.wait(ctx)
		switch {
		case err != nil:
			return err
		case !again && end == EndReplaced:
			x.out = x.result(x.got.Assignment, end)
			return nil
		case !again:
			return x.answer(ctx, end)
		}
		x.before = x.got.Assignment
	}
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
	x.poll.changed.Store(false) // by what comes before the look
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
// is time to answer; with errParked where the goroutine may end until then.
func (x *polling) wait(ctx context.Context) (again bool, why End, err error) {
	if !x.waiting {
		left := time.Until(x.deadline)
		if left <= 0 || x.enough(ctx) {
			return false, x.ending(), nil
		}
		x.watch()
		if x.away != nil {
			x.away.park()
		}
		x.timer = time.AfterFunc(left, x.woken)
		x.suspect.Store(true) // what has ended before the guard was there
		x.waiting, x.placedAt = true, time.Now()
	}
	for {
		if over, again, why, err := x.over(ctx); over {
			x.rest()
			return again, why, err
		}
		if x.caller != nil {
			return false, EndRecords, errParked
		}
		select {
		case <-x.signal:
		case <-x.req.Interrupt:
			x.rest()
			return false, EndRecords, nil
		case <-x.c.stopped:
		case <-ctx.Done():
		}
	}
}

// rest ends the wait.
func (x *polling) rest() {
	if x.waiting {
		x.timer.Stop()
		x.waiting, x.timer = false, nil
		if x.relook != nil {
			x.relook.Stop()
			x.relook = nil
		}
	}
}

// over looks whether a wait is over, and why.
func (x *polling) over(ctx context.Context) (over, again bool, why End, err error) {
	if x.suspect.Swap(false) {
		if err := x.allowed(ctx); err != nil {
			return true, false, EndRecords, err
		}
	}
	switch {
	case x.enough(ctx):
		return true, false, x.ending(), nil
	case x.poll.replaced():
		return true, false, EndReplaced, nil
	case x.poll.changed.Load(), x.strayed():
		return true, true, EndRecords, nil
	case time.Until(x.deadline) <= 0:
		return true, false, EndRecords, nil
	case x.c.draining():
		return true, false, EndStopping, nil
	case ctx.Err() != nil:
		return true, false, EndRecords, context.Cause(ctx)
	}
	return false, false, EndRecords, nil
}

// strayed tells whether partitions are to be found anew: one is led elsewhere by now, or could not
// be read where it was found. Nobody tells of the latter when it can be again.
func (x *polling) strayed() bool {
	pause := time.Duration(0)
	for i := range x.sources {
		switch s := &x.sources[i]; {
		case s.err == nil && s.replica.Err() != nil:
			pause = strayPause
		case pause == 0 && model.HasCode(s.err, model.LeaderUnavailable):
			pause = lostPause
		}
	}
	if pause == 0 {
		return false
	}
	left := pause - time.Since(x.placedAt)
	if left <= 0 {
		return true
	}
	if x.relook == nil {
		x.relook = time.AfterFunc(left, x.woken)
	} else {
		x.relook.Reset(left)
	}
	return false
}

// Pauses before partitions are found anew.
const (
	strayPause = 200 * time.Millisecond
	lostPause  = 2 * time.Second
)

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
