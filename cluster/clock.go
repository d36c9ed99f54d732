package cluster

import (
	"slices"
	"sync"
	"time"
)

// clockBound is how far a node's wall clock may be from the other nodes' before it says so. Access
// tokens bear 30 s.
const clockBound = 10 * time.Second

// clock is what this node knows of its wall clock, by its heartbeats' answers.
type clock struct {
	mu    sync.Mutex
	of    string        // guarded by mu: storage id of the leader that ahead is measured against; "": none
	ahead time.Duration // guarded by mu: of that leader's
	off   time.Duration // guarded by mu: from the cluster's time
	known bool          // guarded by mu: off is
	told  bool          // guarded by mu: that it is far off
	other int           // guarded by mu: how many answers in a row were other than told
}

// clockSure is how many answers in a row must agree: just after a leader's clock was set, what it
// knows of the others is measured against the clock that it had.
const clockSure = 3

// against is what the next heartbeat tells: how far this clock is ahead of a leader's.
func (k *clock) against() (of string, ahead time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.of, k.ahead
}

// note takes a leader's answer: its clock was at leaders when this one was at own, and the cluster's
// time is ahead of it by median. It tells whether there is something to say of the clock.
func (k *clock) note(leader string, own, leaders time.Time, median time.Duration) (off time.Duration, say bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.of, k.ahead = leader, own.Round(0).Sub(leaders.Round(0)) // by the wall clock
	k.off, k.known = k.ahead-median, true
	if k.off.Abs() > clockBound == k.told {
		k.other = 0
		return k.off, false
	}
	if k.other++; k.other < clockSure {
		return k.off, false
	}
	k.told, k.other = !k.told, 0
	return k.off, true
}

// ClockOffset is how far this node's wall clock is ahead of the cluster's time, which is the median
// of its nodes' clocks; negative: behind. It is known once another node, or this one as the leader,
// has compared them.
func (c *Cluster) ClockOffset() (off time.Duration, known bool) {
	if c.net == nil {
		return 0, false
	}
	k := &c.net.clock
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.off, k.known
}

// checkClock compares this node's wall clock with others', by an answer to a heartbeat that took so
// long: the leader read its clock some time between.
func (c *Cluster) checkClock(leader string, a beatAnswer, took time.Duration) {
	if a.Wall == 0 {
		return // a version of before
	}
	off, say := c.net.clock.note(leader, c.cfg.Now().Add(-took/2), time.UnixMilli(a.Wall), time.Duration(a.Median)*time.Millisecond)
	switch {
	case !say:
	case off.Abs() > clockBound:
		c.cfg.Logger.Warn("the clock of this node is far from the other nodes': set it right, for until then nodes may refuse each other's tokens, and sessions and records may expire at the wrong time",
			"ahead", off.Round(time.Second))
	default:
		c.cfg.Logger.Info("the clock of this node agrees with the other nodes' again", "ahead", off.Round(time.Millisecond))
	}
}

// clockFresh is how old what a node has told of its clock may be.
const clockFresh = 5 * time.Second

// median is how far the cluster's time is ahead of this node's clock, as the leader: the median of
// what nodes have told, and of its own. Of two in the middle it is the one nearer to this node's.
func (b *beats) median(leader string, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	ahead := []time.Duration{0}
	for _, x := range b.by {
		if x.ClockOf == leader && x.Storage != leader && now.Sub(x.at) < clockFresh {
			ahead = append(ahead, time.Duration(x.ClockAhead)*time.Millisecond)
		}
	}
	slices.Sort(ahead)
	low, high := ahead[(len(ahead)-1)/2], ahead[len(ahead)/2]
	if high.Abs() < low.Abs() {
		return high
	}
	return low
}
