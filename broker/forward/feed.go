package forward

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"tidewire/broker/partition"
	"tidewire/internal/model"
)

// feed tells this node of partitions that one other node leads, while somebody waits for them.
// Its goroutine lives as long as there are such.
type feed struct {
	c    *Client
	node model.BrokerID

	mu      sync.Mutex
	all     map[*Partition]struct{} // guarded by mu: to be asked for
	asked   map[*Partition]struct{} // guarded by mu: named in the request under way
	renew   context.CancelFunc      // guarded by mu: ends the request under way, which lacks some
	running bool                    // guarded by mu
}

// Pauses of a feed.
const (
	feedFails  = 100 * time.Millisecond // after a request that failed, twice as long each time, up to
	feedFailed = 2 * time.Second
	// feedTells is how often in a row a leader must not answer for that to be told to who waits:
	// a node that restarts quickly, or a leadership that moves, ends no stream.
	feedTells = 3
	// feedBatch is how long a feed waits before it asks anew for partitions that were added: many
	// come at once.
	feedBatch = time.Millisecond
)

// follow has a partition's leader tell of it from now on.
func (c *Client) follow(p *Partition) {
	at, err := LeaderOf(c.meta.Image(), p.Key)
	if err != nil || at.Node == c.self {
		return // who waits looks at Err, and is woken by the metadata
	}
	c.mu.Lock()
	f := c.feeds[at.Node]
	if f == nil {
		f = &feed{c: c, node: at.Node, all: map[*Partition]struct{}{}}
		c.feeds[at.Node] = f
	}
	c.mu.Unlock()
	f.add(p)
}

func (f *feed) add(p *Partition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all[p] = struct{}{}
	if !f.running {
		f.running = f.c.group.Go("forward/feed", f.run)
		return
	}
	if _, there := f.asked[p]; !there && f.renew != nil {
		f.renew()
	}
}

// take is what is to be asked for now; false: nothing, and the feed has ended.
func (f *feed) take(ctx context.Context) ([]*Partition, context.Context, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []*Partition
	f.asked = make(map[*Partition]struct{}, len(f.all))
	for p := range f.all {
		if !p.watched() {
			delete(f.all, p)
			continue
		}
		list = append(list, p)
		f.asked[p] = struct{}{}
	}
	if len(list) == 0 {
		f.running, f.asked, f.renew = false, nil, nil
		return nil, nil, false
	}
	ctx, f.renew = context.WithCancel(ctx)
	return list, ctx, true
}

// run asks again and again.
func (f *feed) run(ctx context.Context) {
	failed := 0
	for ctx.Err() == nil {
		list, asking, any := f.take(ctx)
		if !any {
			return
		}
		err := f.ask(asking, list)
		renewed := asking.Err() != nil
		f.mu.Lock()
		f.renew()
		f.mu.Unlock()
		switch {
		case err == nil:
			failed = 0
			continue
		case renewed:
			pause(ctx, feedBatch)
			continue
		}
		if failed++; failed >= feedTells {
			for _, p := range list {
				p.fail(Unanswered(p.Key, Place{Node: f.node}, err))
			}
		}
		pause(ctx, min(feedFails<<min(failed, 10), feedFailed))
		f.elsewhere(list)
	}
}

// elsewhere hands partitions on that another node leads by now. One that nobody leads stays:
// when somebody does, it is found here.
func (f *feed) elsewhere(list []*Partition) {
	for _, p := range list {
		at, err := LeaderOf(f.c.meta.Image(), p.Key)
		if err != nil {
			p.failOnce(err)
			continue
		}
		if at.Node == f.node {
			continue
		}
		f.mu.Lock()
		delete(f.all, p)
		f.mu.Unlock()
		p.follow()
	}
}

// follow finds out anew who tells of the partition, and wakes who waits: it may be this node, or
// nobody.
func (p *Partition) follow() {
	p.c.follow(p)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = nil
	p.wakeLocked()
}

// A watched partition in a request of a feed, all numbers big-endian: topic id (16), partition
// (4), leader epoch (4), log start, high watermark, last stable offset as known (8 each).
const watchedBytes = 16 + 4 + 4 + 3*8

func appendWatched(b []byte, k Key, e model.LeaderEpoch, known partition.Bounds) []byte {
	b = append(b, k.Topic[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(k.Partition))
	b = binary.BigEndian.AppendUint32(b, uint32(e))
	for _, o := range [3]model.Offset{known.LogStart, known.HighWatermark, known.LastStable} {
		b = binary.BigEndian.AppendUint64(b, uint64(o))
	}
	return b
}

func readWatched(b []byte) (m Meant, known partition.Bounds) {
	copy(m.Topic[:], b)
	be := binary.BigEndian
	m.Partition, m.Epoch = model.PartitionID(be.Uint32(b[16:])), model.LeaderEpoch(be.Uint32(b[20:]))
	known.LogStart, known.HighWatermark, known.LastStable = model.Offset(be.Uint64(b[24:])), model.Offset(be.Uint64(b[32:])), model.Offset(be.Uint64(b[40:]))
	return m, known
}

type watchAnswer struct {
	Changed []changed `json:"changed"`
}

// changed are the offsets of a partition, by its place in the request.
type changed struct {
	At int `json:"at"`
	ends
}

// ask parks one request at the leader, and takes over what has changed.
func (f *feed) ask(ctx context.Context, list []*Partition) error {
	ctx, cancel := context.WithTimeout(ctx, parkTime+readTime)
	defer cancel()
	q := make([]byte, 0, len(list)*watchedBytes)
	for _, p := range list {
		at, _ := LeaderOf(f.c.meta.Image(), p.Key) // else the leader refuses it
		known := p.Bounds()
		if p.hasFailed() { // any answer shows that it is readable again
			known = partition.Bounds{LogStart: -1, HighWatermark: -1, LastStable: -1}
		}
		q = appendWatched(q, p.Key, at.Epoch, known)
	}
	b, err := f.c.net.CallBroker(ctx, f.node, MethodWatch, q)
	if err != nil {
		return err
	}
	var a watchAnswer
	if _, err := split(b, &a); err != nil {
		return err
	}
	var moved []*Partition
	for i := range a.Changed {
		x := &a.Changed[i]
		if x.At < 0 || x.At >= len(list) {
			return malformed(nil)
		}
		p := list[x.At]
		switch {
		case x.Fault.Err == nil:
			p.note(x.bounds())
		case model.HasCode(x.Fault.Err, model.LeaderUnavailable):
			moved = append(moved, p)
		default:
			p.fail(x.Fault.Err)
		}
	}
	if len(moved) > 0 {
		f.lost(ctx, moved)
	}
	return nil
}

// lost looks after partitions that the node does not lead, or not yet: the metadata here or
// there is behind.
func (f *feed) lost(ctx context.Context, list []*Partition) {
	_, _ = f.c.refreshed(ctx, list[0].Key) // whatever it says, the image is as new as can be
	pause(ctx, feedFails)
	f.elsewhere(list)
}

// pause waits, unless ctx ends, and tells whether that goes on.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
