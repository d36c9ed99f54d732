//go:build linux

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"syscall"
	"time"
)

// Kind names a fault.
type Kind string

// The faults. Those of the network and the others are under way at the same time.
const (
	Kill    Kind = "kill"     // kill -9 of a node, which starts again
	KillAll Kind = "kill-all" // kill -9 of all nodes at once
	Power   Kind = "power"    // all nodes and their disks lose their power: what was not synced is gone
	Pause   Kind = "pause"    // SIGSTOP, later SIGCONT
	Rolling Kind = "rolling"  // SIGTERM and start of one node after the other
	Full    Kind = "full"     // the last node's disk has no room, or little
	Move    Kind = "move"     // a partition's replicas go elsewhere; some moves are cancelled
	Isolate Kind = "isolate"  // a node and all others do not hear each other
	Pair    Kind = "pair"     // two nodes do not hear each other
	Deaf    Kind = "deaf"     // a node does not hear the others, which hear it
	Mute    Kind = "mute"     // the others do not hear a node, which hears them
	Lossy   Kind = "lossy"    // packets to and from a node get lost
	Slow    Kind = "slow"     // what a node sends goes slowly
	Clock   Kind = "clock"    // a node's wall clock is set an hour ahead or back, and right again later
)

// Kinds are all there are. Clock takes a binary that Injects.
func Kinds() []Kind {
	return []Kind{Kill, KillAll, Power, Pause, Rolling, Move, Full, Clock, Isolate, Pair, Deaf, Mute, Lossy, Slow}
}

func (k Kind) network() bool {
	switch k {
	case Isolate, Pair, Deaf, Mute, Lossy, Slow:
		return true
	}
	return false
}

// lane makes one fault after another.
type lane struct {
	w    *World
	c    *Client
	r    *rand.Rand
	hold time.Duration // about how long a fault lasts
	end  time.Time     // no further round of all kinds begins beyond
	deck []Kind
	say  func(format string, args ...any)

	counts map[Kind]int
	errs   []error
}

// run makes faults until its end, and until each kind was there once: all kinds in a new order
// each time. It ends with ctx in any case.
func (l *lane) run(ctx context.Context) {
	var left []Kind
	for len(l.deck) > 0 && pause(ctx, l.some(l.hold/2)) {
		if time.Now().After(l.end) && len(l.counts) == len(l.deck) {
			return
		}
		if len(left) == 0 {
			left = append(left, l.deck...)
			l.r.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
		}
		k := left[0]
		left = left[1:]
		if err := l.fault(ctx, k); err != nil && ctx.Err() == nil {
			l.errs = append(l.errs, fmt.Errorf("%s: %w", k, err))
			l.say("%s failed: %v", k, err)
			return
		}
	}
}

// some is between half of a time and one and a half.
func (l *lane) some(d time.Duration) time.Duration {
	return d/2 + time.Duration(l.r.Int64N(int64(d)+1))
}

func (l *lane) any() *Node { return l.w.Node(1 + l.r.IntN(len(l.w.Nodes()))) }

// settled is how long after a fault of its network a node may not know what others do.
const settled = 15 * time.Second

// fault makes one fault and undoes it. It is counted once it is there.
func (l *lane) fault(ctx context.Context, k Kind) error {
	n, d := l.any(), l.some(l.hold)
	if k.network() {
		return l.network(ctx, k, n, d)
	}
	switch k {
	case Kill:
		return l.kill(ctx, n)
	case KillAll:
		return l.killAll(ctx)
	case Power:
		return l.power(ctx)
	case Pause:
		l.say("node %d is paused for %s", n.ID, d.Round(time.Millisecond))
		n.impair(d + settled)
		n.Pause()
		l.counts[k]++
		pause(ctx, d)
		n.Resume()
		return nil
	case Rolling:
		return l.rolling(ctx)
	case Move:
		l.move(ctx, d)
		return nil
	case Full:
		return l.full(ctx, d)
	case Clock:
		return l.clock(ctx, n, d)
	}
	return fmt.Errorf("an unknown kind")
}

func (l *lane) kill(ctx context.Context, n *Node) error {
	down := time.Duration(l.r.Int64N(int64(l.hold) + 1))
	l.say("node %d is killed for %s", n.ID, down.Round(time.Millisecond))
	n.Kill()
	l.counts[Kill]++
	pause(ctx, down)
	return n.Spawn()
}

func (l *lane) killAll(ctx context.Context) error {
	l.say("all nodes are killed")
	for _, n := range l.w.Nodes() {
		n.signal(9)
	}
	for _, n := range l.w.Nodes() {
		n.Kill()
	}
	l.counts[KillAll]++
	return l.spawnAll(ctx)
}

// spawnAll starts the nodes one soon after the other.
func (l *lane) spawnAll(ctx context.Context) error {
	for _, n := range l.w.Nodes() {
		if err := n.Spawn(); err != nil {
			return err
		}
		pause(ctx, time.Duration(l.r.IntN(500))*time.Millisecond)
	}
	return nil
}

// power cuts the disks' power first, so that what the nodes do last fails, or the nodes'.
func (l *lane) power(ctx context.Context) error {
	l.say("the power fails")
	l.w.powered.Store(time.Now().UnixNano())
	disksFirst := l.r.IntN(2) == 0
	var errs []error
	for range 2 {
		for _, n := range l.w.Nodes() {
			if disksFirst {
				errs = append(errs, n.disk.cut())
			} else {
				n.signal(syscall.SIGKILL)
			}
		}
		disksFirst = !disksFirst
	}
	for _, n := range l.w.Nodes() {
		n.Kill()
	}
	l.counts[Power]++
	for _, n := range l.w.Nodes() {
		errs = append(errs, n.disk.again(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return l.spawnAll(ctx)
}

// rolling stops nodes in order, each once the one before is in sync again, or after a while.
func (l *lane) rolling(ctx context.Context) error {
	l.say("the nodes are restarted one after the other")
	l.counts[Rolling]++
	for _, n := range l.w.Nodes() {
		if ctx.Err() != nil || !n.Running() { // one that gave up by itself is told of elsewhere
			continue
		}
		if err := n.Stop(); err != nil {
			return err
		}
		if err := n.Spawn(); err != nil {
			return err
		}
		waiting, cancel := context.WithTimeout(ctx, 2*l.hold+2*time.Second)
		_ = l.c.AwaitISR(waiting, topic, min(len(l.w.Nodes()), replicas)) // faults of the network may be in the way
		cancel()
	}
	return nil
}

// move gives a partition two replicas or three, and cancels every third move. One that is refused
// does not count: a node may be gone, by a fault of the network.
func (l *lane) move(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, l.hold)
	defer cancel()
	p, nodes := l.r.IntN(partitions), l.r.Perm(len(l.w.Nodes()))
	to := nodes[:2+l.r.IntN(min(replicas, len(nodes))-1)]
	for i := range to {
		to[i]++
	}
	l.say("partition %d moves to %v", p, to)
	if l.c.Move(ctx, topic, p, to) != nil {
		return
	}
	l.counts[Move]++
	if l.counts[Move]%3 == 0 {
		pause(ctx, d/4)
		l.say("the move of partition %d is cancelled, if it goes on", p)
		l.c.At(l.any().ID).Call(ctx, http.MethodDelete, fmt.Sprintf("/v1/reassignments/%s/%d", topic, p), nil)
	}
}

// full leaves the small disk some room below the reserve, or next to none. A node that cannot
// write its metadata stops by itself, and is started again when there is room.
func (l *lane) full(ctx context.Context, d time.Duration) error {
	n, leave := l.w.Node(len(l.w.Nodes())), int64(l.r.IntN(3))*(6<<20)
	l.say("the disk of node %d has %d MiB left for %s", n.ID, leave>>20, d.Round(time.Millisecond))
	undo, err := n.disk.fill(leave)
	if err != nil {
		return err
	}
	l.counts[Full]++
	pause(ctx, d)
	if err := undo(); err != nil {
		return err
	}
	if !n.Running() {
		l.say("node %d had stopped", n.ID)
		return n.Spawn()
	}
	return nil
}

// clock sets a node's clock, and every other time has the node start again while it is wrong.
func (l *lane) clock(ctx context.Context, n *Node, d time.Duration) error {
	off := time.Hour
	if l.r.IntN(2) == 0 {
		off = -off
	}
	l.say("the clock of node %d is off by %s for %s", n.ID, off, d.Round(time.Millisecond))
	if err := n.SetClock(off); err != nil {
		return err
	}
	l.counts[Clock]++
	pause(ctx, d/2)
	if l.counts[Clock]%2 == 0 {
		l.say("node %d is killed and starts again", n.ID)
		n.Kill()
		if err := n.Spawn(); err != nil {
			return err
		}
	}
	pause(ctx, d/2)
	return n.SetClock(0)
}

func (l *lane) network(ctx context.Context, k Kind, n *Node, d time.Duration) error {
	l.say("%s at node %d for %s", k, n.ID, d.Round(time.Millisecond))
	other := 1 + (n.ID-1+1+l.r.IntN(len(l.w.Nodes())-1))%len(l.w.Nodes())
	n.impair(d + settled)
	var err error
	switch k {
	case Isolate:
		err = l.w.Isolate(n.ID)
	case Pair:
		l.w.Node(other).impair(d + settled)
		err = errors.Join(l.w.Cut(n.ID, other), l.w.Cut(other, n.ID))
	case Deaf, Mute:
		for _, o := range l.w.Nodes() {
			switch {
			case o == n:
			case k == Deaf:
				err = errors.Join(err, l.w.Cut(o.ID, n.ID))
			default:
				err = errors.Join(err, l.w.Cut(n.ID, o.ID))
			}
		}
	case Lossy:
		err = l.w.net.lose(n.ID, 0.05+0.25*l.r.Float64())
	case Slow:
		err = l.w.net.slow(n.ID, 500+l.r.IntN(3000))
	}
	if err != nil {
		return err
	}
	l.counts[k]++
	pause(ctx, d)
	if k == Slow {
		return l.w.net.fast(n.ID)
	}
	return l.w.Heal()
}
