package ws

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/internal/lifecycle"
)

// turns gives a session a goroutine while there is something to do for it, and none while
// there is not: a goroutine that only waits keeps the stack of the deepest call that it ever
// made, which is most of what an idle socket costs.
type turns struct {
	mu      sync.Mutex
	running bool          // guarded by mu: a turn is under way; it stays so once the session has ended
	woken   atomic.Bool   // there is more to do after what the turn is at; set under mu
	kick    chan struct{} // receives when woken is set; nil: the turn never waits
	timer   *time.Timer   // of the turn: wakes when something is due by the clock
}

// begin starts the first turn, before which nothing does.
func (t *turns) begin(g *lifecycle.Group, run func(context.Context)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running = g.Go("ws/write", run)
	t.woken.Store(false)
}

// wake starts a turn, or has the present one go on. It tells whether there is one: not where
// the group has ended and none is under way. It does not block, and takes no lock but its own
// and the group's.
func (t *turns) wake(g *lifecycle.Group, run func(context.Context)) bool {
	if t.woken.Load() { // as with a client that has stopped reading, at every append
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.running {
		t.running = g.Go("ws/write", run)
		return t.running
	}
	t.woken.Store(true)
	if t.kick != nil {
		select {
		case t.kick <- struct{}{}:
		default:
		}
	}
	return true
}

// rest ends the turn, unless there is more to do.
func (t *turns) rest() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running = t.woken.Swap(false)
	return !t.running
}

// wakeAfter wakes after a while.
func (t *turns) wakeAfter(d time.Duration, wake func()) {
	if t.timer == nil {
		t.timer = time.AfterFunc(d, wake)
		return
	}
	t.timer.Reset(d)
}

// wake has the session look at what is to be done.
func (s *session) wake() { s.turns.wake(s.h.group, s.run) }

// run is one turn: it does what there is to do, and returns when that is nothing. Whatever
// may change that wakes the session: its partitions and the metadata it stands on, frames
// of the client, the clock, and the end of the node (Handler.watch).
func (s *session) run(ctx context.Context) {
	step := s.step
	if s.produce != nil {
		step = s.produce.step
	}
	if s.pingAt.IsZero() {
		s.pingAt = time.Now().Add(s.h.times.ping)
	}
	for {
		more, end := step(ctx)
		switch {
		case end != nil:
			if s.turns.timer != nil {
				s.turns.timer.Stop()
			}
			if s.produce != nil {
				s.produce.abandon()
			}
			s.end(*end)
			return
		case more:
			continue
		}
		s.turns.wakeAfter(s.due(), s.wake)
		if s.turns.rest() {
			return
		}
	}
}

// watch wakes the sessions when the node ends, and ends their reading when the group does:
// no turn can be started any more then, and readFrames takes the last one.
func (h *Handler) watch(ctx context.Context) {
	draining := h.broker.Draining()
	for {
		select {
		case <-draining:
			draining = nil
			h.each((*session).wake)
		case <-ctx.Done():
			h.each(func(s *session) {
				s.hurry()
				s.wake()
				s.stopReading()
			})
			return
		}
	}
}

func (h *Handler) each(f func(*session)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.sockets {
		f(s)
	}
}
