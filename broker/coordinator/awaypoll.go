package coordinator

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync"
	"time"

	"tidewire/broker/group"
	"tidewire/internal/model"
)

// A poll of a group that another node looks after: the coordinator has the member's place in
// the group, and this node reads the partitions at their leaders, waits, and looks after the
// caller. What the coordinator knows of the poll (a seat) goes by a token of this node's making.

// awayPoll is a poll's or a watch's seat at the coordinator, as this node has it.
type awayPoll struct {
	c             *Coordinator
	node          model.BrokerID
	group, member string
	token         string
	lasts         bool  // it is a watch's, and stays between rounds
	p             *poll // woken and ended by what the coordinator says

	mu     sync.Mutex
	parked context.CancelFunc // guarded by mu: ends the request that waits for changes; nil: none does
	left   bool               // guarded by mu
}

func (c *Coordinator) newAwayPoll(node model.BrokerID, groupID, member string, woken func()) *awayPoll {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return &awayPoll{
		c: c, node: node, group: groupID, member: member, token: hex.EncodeToString(b[:]),
		p: &poll{member: member, woken: woken},
	}
}

// enterAway makes the poll its member's at another node.
func (x *polling) enterAway(node model.BrokerID) {
	if w := x.req.Watch; w != nil {
		x.away = w.enterAway(x.c, node)
	} else {
		x.away = x.c.newAwayPoll(node, x.req.Group, x.req.Member, x.woken)
		if x.caller != nil {
			x.c.sleepers.Store(x.away.p, nil)
		}
	}
	x.poll = x.away.p
}

// leaveAway gives the seat up; a watch's stays, and wakes who watches from now on.
func (x *polling) leaveAway() {
	if x.req.Watch == nil {
		x.c.sleepers.Delete(x.away.p)
		x.away.leave()
	} else {
		x.away.park()
	}
}

// elsewhere tells whether a poll that failed at another node is to be tried again, since the
// group has moved. That happens once.
func (x *polling) elsewhere(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() != nil || x.retried || x.out != nil || !notTaken(err) || x.c.meta.Barrier(ctx) != nil {
		return false
	}
	node := x.away.node
	now, bad := x.c.place(ctx, x.req.Group, false)
	x.retried = bad == nil && now != node
	return x.retried
}

// failedAway is the error of a poll at another node.
func (x *polling) failedAway(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil: // the client has gone away
		err = context.Cause(ctx)
	default:
		if err = x.c.unanswered(x.req.Group, x.away.node, true, err); model.HasCode(err, model.LeaderUnavailable) {
			return err
		}
	}
	x.gone(ctx)
	return err
}

// enterAway is the watch's seat at a node.
func (w *Watch) enterAway(c *Coordinator, node model.BrokerID) *awayPoll {
	if w.away != nil && (w.away.node == node || w.away.p.replaced()) {
		return w.away
	}
	replaced := w.p != nil && w.p.replaced()
	w.Close()
	w.a, w.p = nil, nil
	w.away = c.newAwayPoll(node, w.group, w.member, w.woken)
	w.away.lasts = true
	w.away.p.over.Store(replaced) // one whose place was taken stays out
	return w.away
}

type lookRequest struct {
	Token string            `json:"token"`
	Poll  group.PollRequest `json:"poll"`
}

type lookAnswer struct {
	Got      group.PollResult `json:"got"`
	Explicit bool             `json:"explicit"`
	Replaced bool             `json:"replaced"`
}

func (w *awayPoll) look(ctx context.Context, req group.PollRequest) (group.PollResult, bool, error) {
	if w.p.replaced() {
		return group.PollResult{}, false, nil
	}
	a, err := lookCall.at(ctx, w.c, w.node, asked[lookRequest]{w.group, w.c.meta.Image().Index(), lookRequest{w.token, req}})
	if a.Replaced {
		w.end()
	}
	return a.Got, a.Explicit, err
}

func (w *awayPoll) resolve(ctx context.Context, q group.ResolveRequest) ([]group.Position, error) {
	return resolveCall.at(ctx, w.c, w.node, asked[group.ResolveRequest]{w.group, 0, q})
}

type answerRequest struct {
	Member string        `json:"member"`
	Grace  time.Duration `json:"grace"`
	Token  string        `json:"token"` // of the seat that is done with; "": it stays
}

func (w *awayPoll) answer(ctx context.Context, q answerRequest) (*group.Assignment, error) {
	if !w.lasts && w.quit() {
		q.Token = w.token
	}
	return answerCall.at(ctx, w.c, w.node, asked[answerRequest]{w.group, 0, q})
}

// end notes that a later poll has taken the place.
func (w *awayPoll) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.p.replaced() {
		return
	}
	w.p.replace()
}

// park has the coordinator tell of changes from now on.
func (w *awayPoll) park() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.parked != nil || w.left || w.p.replaced() {
		return
	}
	started := w.c.group.Go("coordinator/await", func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if w.started(cancel) {
			w.await(ctx)
		}
	})
	if started {
		w.parked = func() {}
	}
}

func (w *awayPoll) started(cancel context.CancelFunc) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.parked = cancel
	return !w.left
}

// quit ends the request that waits, and none begins; false: that was done before.
func (w *awayPoll) quit() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left {
		return false
	}
	w.left = true
	if w.parked != nil {
		w.parked()
	}
	return true
}

// leave gives the seat up.
func (w *awayPoll) leave() {
	if !w.quit() {
		return
	}
	w.c.group.Go("coordinator/unlook", func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, _ = unlookCall.at(ctx, w.c, w.node, asked[string]{w.group, 0, w.token}) // else it is forgotten by the clock
	})
}

// Times of a seat.
const (
	awaitTime = 20 * time.Second // that a request for changes waits at the coordinator
	seatTime  = time.Minute      // after which a seat that nobody asks for is forgotten
	awaitFail = 500 * time.Millisecond
	awaitNews = 20 * time.Millisecond // the poll looks meanwhile, and has a seat then
)

// What a coordinator says of a seat.
const (
	seatQuiet    = "quiet"
	seatChanged  = "changed"
	seatReplaced = "replaced"
)

// await wakes the poll by what the coordinator says.
func (w *awayPoll) await(ctx context.Context) {
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, awaitTime+5*time.Second)
		says, err := awaitCall.at(asking, w.c, w.node, asked[string]{w.group, 0, w.token})
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case says == seatReplaced:
			w.end()
			return
		case says == seatChanged, err != nil:
			w.p.wake()
		default:
			continue
		}
		rest := awaitNews
		if err != nil {
			rest = awaitFail // the poll looks meanwhile, and finds out what is the matter
		}
		t := time.NewTimer(rest)
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// seats are the polls of members that other nodes serve, by token.
type seats struct {
	mu sync.Mutex
	by map[string]*seat // guarded by mu
}

// seat is such a poll, registered with its group.
type seat struct {
	a     *actor
	p     *poll
	woken chan struct{}
	used  time.Time
}

// take finds or makes a seat with an actor. A member's new seat ends its poll before.
func (s *seats) take(token string, a *actor, member string) (*seat, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.by[token]
	if x != nil && (x.a == a || x.p.replaced()) {
		x.used = time.Now()
		return x, nil
	}
	woken := make(chan struct{}, 1)
	p, err := a.enter(&poll{member: member, woken: func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}})
	if err != nil {
		return nil, err
	}
	if s.by == nil {
		s.by = map[string]*seat{}
	}
	if x != nil {
		x.a.leave(x.p)
		x.p.wake() // who waits at it asks again, and waits at the new one
	}
	x = &seat{a, p, woken, time.Now()}
	s.by[token] = x
	s.sweepLocked()
	return x, nil
}

// sweepLocked forgets seats whose node has not asked for long.
func (s *seats) sweepLocked() {
	for token, x := range s.by {
		if time.Since(x.used) > seatTime {
			delete(s.by, token)
			x.a.leave(x.p)
		}
	}
}

func (s *seats) find(token string) *seat {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.by[token]
	if x != nil {
		x.used = time.Now()
	}
	return x
}

func (s *seats) drop(token string) {
	s.mu.Lock()
	x := s.by[token]
	delete(s.by, token)
	s.mu.Unlock()
	if x != nil {
		x.a.leave(x.p)
	}
}

var (
	lookCall       = &exchange[lookRequest, lookAnswer]{methodLook, false, true, (*Coordinator).lookHere}
	resolveCall    = &exchange[group.ResolveRequest, []group.Position]{methodResolve, false, false, (*Coordinator).resolveHere}
	answerCall     = &exchange[answerRequest, *group.Assignment]{methodAnswer, false, true, (*Coordinator).answerHere}
	awaitCall      = &exchange[string, string]{methodAwait, false, true, (*Coordinator).awaitHere}
	unattendedCall = &exchange[string, none]{methodUnattended, false, true, (*Coordinator).unattendedHere}
	unlookCall     = &exchange[string, none]{methodUnlook, false, true, (*Coordinator).unlookHere}
)

func (c *Coordinator) lookHere(ctx context.Context, groupID string, q lookRequest) (out lookAnswer, _ error) {
	for {
		a, err := c.find(ctx, groupID, false)
		switch {
		case err != nil:
			return out, err
		case a == nil:
			return out, model.Errorf(model.UnknownMember, "the group %q has no member %q", groupID, q.Poll.Member)
		}
		s, err := c.seats.take(q.Token, a, q.Poll.Member)
		if err == nil {
			if s.p.replaced() {
				return lookAnswer{Replaced: true}, nil
			}
			s.p.changed.Store(false) // by what comes before the look
			out.Got, out.Explicit, err = a.look(ctx, s.p, q.Poll)
			out.Replaced = out.Got.Assignment == nil && err == nil
		}
		if err != errMoved { //nolint:errorlint // it is never wrapped
			return out, err
		}
		if ctx.Err() != nil {
			return out, model.Errorf(model.LeaderUnavailable, "the coordinator of group %q did not get to the call in time", groupID)
		}
	}
}

// resolve places a member.
func (a *actor) resolve(ctx context.Context, q group.ResolveRequest) (placed []group.Position, _ error) {
	err := a.within(ctx, func(g *group.Group, env group.Env) (eff group.Effects, err error) {
		eff, placed, err = g.Resolve(env, q)
		return eff, err
	})
	return placed, err
}

func (c *Coordinator) resolveHere(ctx context.Context, groupID string, q group.ResolveRequest) (placed []group.Position, _ error) {
	err := c.member(ctx, groupID, q.Member, func(g *group.Group, env group.Env) (eff group.Effects, err error) {
		eff, placed, err = g.Resolve(env, q)
		return eff, err
	})
	return placed, err
}

// answer says what a member has, right before it is told.
func (a *actor) answer(ctx context.Context, q answerRequest) (now *group.Assignment, _ error) {
	err := a.within(ctx, func(g *group.Group, env group.Env) (_ group.Effects, err error) {
		now, err = g.Answer(env, q.Member, q.Grace)
		return group.Effects{}, err
	})
	return now, err
}

func (c *Coordinator) answerHere(ctx context.Context, groupID string, q answerRequest) (now *group.Assignment, _ error) {
	if q.Token != "" {
		defer c.seats.drop(q.Token)
	}
	err := c.member(ctx, groupID, q.Member, func(g *group.Group, env group.Env) (_ group.Effects, err error) {
		now, err = g.Answer(env, q.Member, q.Grace)
		return group.Effects{}, err
	})
	return now, err
}

// awaitHere waits until there is news for a seat.
func (c *Coordinator) awaitHere(ctx context.Context, _, token string) (string, error) {
	s := c.seats.find(token)
	if s == nil {
		return seatChanged, nil // it looks, and gets one
	}
	t := time.NewTimer(awaitTime)
	defer t.Stop()
	for {
		switch {
		case s.p.replaced():
			return seatReplaced, nil
		case s.p.changed.Swap(false):
			return seatChanged, nil
		}
		select {
		case <-s.woken:
		case <-t.C:
			return seatQuiet, nil
		case <-c.stopped:
			return "", stopping()
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

func (c *Coordinator) unattendedHere(ctx context.Context, groupID, member string) (none, error) {
	return none{}, c.member(ctx, groupID, member, func(g *group.Group, env group.Env) (group.Effects, error) {
		return group.Effects{}, g.Unattended(env, member)
	})
}

func (c *Coordinator) unlookHere(_ context.Context, _, token string) (none, error) {
	c.seats.drop(token)
	return none{}, nil
}
