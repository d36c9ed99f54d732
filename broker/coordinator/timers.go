package coordinator

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"tidewire/broker/group"
)

// timers are the deadlines of all groups of this node, in one heap: a group has the earliest
// of its own. They run by the monotonic clock. A deadline that has moved away is found out
// when it comes, so that a heartbeat costs no look at the heap.
type timers struct {
	wake chan struct{} // the earliest deadline is earlier than before

	mu   sync.Mutex
	heap timerHeap // guarded by mu
}

// timer is a group's place in the heap.
type timer struct {
	a     *actor
	at    time.Duration
	place int // in the heap; −1: not there
}

type timerHeap []*timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *timerHeap) Push(x any) {
	t := x.(*timer)
	t.place = len(*h)
	*h = append(*h, t)
}

// Pop implements heap.Interface.
func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.place = -1
	return t
}

func newTimers() *timers { return &timers{wake: make(chan struct{}, 1)} }

// set has a group looked at no later than at.
func (ts *timers) set(a *actor, at time.Duration) {
	ts.mu.Lock()
	t := &a.timer
	switch {
	case t.place < 0:
		t.at = at
		heap.Push(&ts.heap, t)
	case at < t.at:
		t.at = at
		heap.Fix(&ts.heap, t.place)
	default:
		ts.mu.Unlock()
		return
	}
	first := t.place == 0
	ts.mu.Unlock()
	if first {
		select {
		case ts.wake <- struct{}{}:
		default:
		}
	}
}

// drop forgets a group.
func (ts *timers) drop(a *actor) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if a.timer.place >= 0 {
		heap.Remove(&ts.heap, a.timer.place)
	}
}

// due takes the groups whose time has come, and tells how long it is until the next.
func (ts *timers) due(now time.Duration, into []*actor) (due []*actor, next time.Duration, some bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for len(ts.heap) > 0 {
		if t := ts.heap[0]; t.at > now {
			return into, t.at - now, true
		}
		into = append(into, heap.Pop(&ts.heap).(*timer).a)
	}
	return into, 0, false
}

// timerLoop lets groups do what is due.
func (c *Coordinator) timerLoop(ctx context.Context) {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	var due []*actor
	for {
		var next time.Duration
		var some bool
		due, next, some = c.timers.due(c.mono(), due[:0])
		for i, a := range due {
			a.post(a.tick)
			due[i] = nil
		}
		if len(due) > 0 {
			continue
		}
		if t.Stop(); some {
			t.Reset(max(next, time.Millisecond))
		}
		select {
		case <-t.C:
		case <-c.timers.wake:
		case <-ctx.Done():
			return
		}
	}
}

// tick does what the group's deadline is for.
func (a *actor) tick(g *group.Group, env group.Env) (group.Effects, error) { return g.Tick(env), nil }
