package coordinator

import (
	"context"

	"tidewire/broker/group"
)

// Watch is a member that stays connected, as its group sees it: its rounds are polls with
// PollRequest.Watch set, and it keeps the member's place between them. In place of a poll that
// waits it has a function that is called (WebSocket; its rounds are of no Wait), or its rounds
// wait (Seat). It has no goroutine and no memory of records. Only one goroutine at a time may use
// it.
type Watch struct {
	group, member string
	woken         func()
	signal        chan struct{} // of a Seat: what woken sends to
	a             *actor        // where it is registered; nil: nowhere yet
	p             *poll
	away          *awayPoll // where another node looks after the group
}

// Watch returns a watch that begins with its first round, which ends every poll and watch of
// the member that there was. woken is called when a further round may tell something new: the
// assignment has changed, the member is no more, another poll has taken its place, or the
// group is looked after anew. It is called under locks: it must not block, and not call the
// coordinator. Close must be called.
func (c *Coordinator) Watch(groupID, member string, woken func()) *Watch {
	return &Watch{group: groupID, member: member, woken: woken}
}

// Seat returns a watch whose rounds may wait: a read of the member that comes between two of them
// takes its place all the same, and the next round says so. Close must be called.
func (c *Coordinator) Seat(groupID, member string) *Watch {
	signal := make(chan struct{}, 1)
	return &Watch{group: groupID, member: member, signal: signal, woken: func() { wake(signal) }}
}

// enter registers the watch with an actor, unless it is there already. One whose place was
// taken stays out.
func (w *Watch) enter(a *actor) (*poll, error) {
	switch {
	case w.a == a || w.p != nil && w.p.replaced():
		return w.p, nil
	case w.away != nil && w.away.p.replaced():
		return w.away.p, nil
	}
	p, err := a.enter(&poll{member: w.member, woken: w.woken})
	if err != nil {
		return nil, err
	}
	w.Close()
	w.a, w.p = a, p
	return p, nil
}

// Close ends the watch. The member lives on for its session timeout.
func (w *Watch) Close() {
	if w.a != nil {
		w.a.leave(w.p)
	}
	if w.away != nil {
		w.away.leave()
		w.away = nil
	}
}

// Resume begins the session of a member anew, for a client that goes on as it after its
// connection was cut, and tells what Join told. Errors: as of Heartbeat.
func (c *Coordinator) Resume(ctx context.Context, groupID, member string) (group.JoinResult, error) {
	return resumeCall.do(ctx, c, groupID, member)
}

func (c *Coordinator) resumeHere(ctx context.Context, groupID, member string) (out group.JoinResult, err error) {
	err = c.member(ctx, groupID, member, func(g *group.Group, env group.Env) (_ group.Effects, err error) {
		if err := g.Heartbeat(env, member); err != nil {
			return group.Effects{}, err
		}
		d := g.Describe()
		out = group.JoinResult{Assignor: d.Assignor, Epoch: d.Epoch}
		out.Member, err = g.Facts(member)
		return group.Effects{}, err
	})
	return out, err
}
