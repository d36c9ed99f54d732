package broker

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/broker/operations"
	"tidewire/broker/partition"
	"tidewire/cluster/metadata"
	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/log"
)

// opened is what opening one partition gave: neither where it has no replica here.
type opened struct {
	part *partition.Partition
	log  *log.Log
	err  error
}

// growTopic opens the partitions that the topic does not have yet and that have a
// replica here.
func (b *Broker) growTopic(t *topic, want *metadata.Topic) {
	have := *t.parts.Load()
	if len(have) >= len(want.Partitions) {
		return
	}
	ids := make([]int, 0, len(want.Partitions)-len(have))
	for i := len(have); i < len(want.Partitions); i++ {
		ids = append(ids, i)
	}
	parts := slices.Clone(have)
	op := b.starting
	if op == nil {
		op = b.takeWork(workKey{operations.CreatePartitions, t.name}, len(ids))
		defer func() { op.End(notOpened(t.countFailed())) }()
	}
	got := b.openPartitions(t, want, ids, op)
	t.mu.Lock()
	for _, o := range got {
		parts = append(parts, o.part)
		t.logs = append(t.logs, o.log)
		t.failed = append(t.failed, o.err)
	}
	t.mu.Unlock()
	t.grownAt.Store(b.nowMs())
	t.parts.Store(&parts)
	b.noteUnopened(t)
}

// reopenTopic tries the partitions again that could not be opened for a cause that may
// have passed, and opens those that a move has brought here.
func (b *Broker) reopenTopic(t *topic, want *metadata.Topic) {
	var ids []int
	parts := slices.Clone(*t.parts.Load())
	t.mu.Lock()
	for i, err := range t.failed {
		if mayPass(err) && i < len(want.Partitions) || err == nil && parts[i] == nil && b.holds(want, i) {
			ids = append(ids, i)
		}
	}
	t.mu.Unlock()
	if len(ids) == 0 {
		return
	}
	got := b.openPartitions(t, want, ids, nil)
	t.mu.Lock()
	for k, i := range ids {
		parts[i], t.logs[i], t.failed[i] = got[k].part, got[k].log, got[k].err
	}
	t.mu.Unlock()
	t.parts.Store(&parts)
	b.noteUnopened(t)
}

// holds tells whether this node has a replica of a partition.
func (b *Broker) holds(want *metadata.Topic, i int) bool {
	return slices.Contains(want.Partitions[i].Replicas, b.nodeID)
}

// leaveMoved lets go of the partitions that a move has taken away: their logs go to the trash.
func (b *Broker) leaveMoved(t *topic, want *metadata.Topic) {
	parts := slices.Clone(*t.parts.Load())
	logs, gone := t.openLogs(), []int{}
	t.mu.Lock()
	for i := range min(len(parts), len(want.Partitions)) {
		if b.holds(want, i) {
			continue
		}
		if parts[i] != nil {
			gone = append(gone, i)
		}
		parts[i], t.logs[i], t.failed[i] = nil, nil, nil
	}
	t.mu.Unlock()
	if len(gone) == 0 {
		return
	}
	left := *t.parts.Swap(&parts)
	t.noteLed(want, b.nodeID)
	for _, i := range gone {
		b.replicas.LeaveOne(t.id, model.PartitionID(i))
		left[i].Close(model.Errorf(model.LeaderUnavailable, "partition %d of %q has moved to other nodes", i, t.name))
		if err := b.store.Remove(logs[i]); err != nil {
			b.logger.Error("the files of a partition that has moved could not be moved away", "topic", t.name, "partition", i, "error", err)
		}
	}
}

// mayPass reports whether a log that could not be opened may be opened later without a
// restart: a damaged one stays as it is.
func mayPass(err error) bool { return fsx.IsNoSpace(err) || fsx.IsNoDescriptor(err) }

func (b *Broker) noteUnopened(t *topic) {
	t.mu.Lock()
	again := slices.ContainsFunc(t.failed, mayPass)
	t.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if again {
		b.unopened[t.name] = struct{}{}
	} else {
		delete(b.unopened, t.name)
	}
}

// openPartitions opens some partitions of a topic, several at a time and holding no lock:
// a topic may have thousands, and each waits for the disk. It tells op how far it is.
func (b *Broker) openPartitions(t *topic, want *metadata.Topic, ids []int, op *operations.Operation) []opened {
	out := make([]opened, len(ids))
	var next atomic.Int64
	var wg sync.WaitGroup
	work := func(context.Context) {
		defer wg.Done()
		for k := int(next.Add(1)) - 1; k < len(ids); k = int(next.Add(1)) - 1 {
			b.opening <- struct{}{}
			out[k] = b.openPartition(t, want, ids[k])
			<-b.opening
			op.Advance(1)
		}
	}
	for range min(openers, len(ids)) - 1 {
		wg.Add(1)
		if !b.group.Go("broker/open", work) {
			wg.Done() // the group has been stopped: here and now
		}
	}
	wg.Add(1)
	work(context.Background())
	wg.Wait()
	return out
}

func (b *Broker) openPartition(t *topic, want *metadata.Topic, i int) (o opened) {
	if !b.holds(want, i) {
		return o
	}
	id := model.PartitionID(i)
	if o.log, o.err = b.store.Open(t.id, t.name, id, logConfigOf(want.Config)); o.err != nil {
		b.logger.Error("a partition could not be opened", "topic", t.name, "partition", i, "tried_again", mayPass(o.err), "error", o.err)
		return opened{err: o.err}
	}
	o.part = partition.New(o.log, partition.Identity{Topic: t.name, TopicID: t.id, Partition: id},
		settingsOf(want.Config), b.nowMs, t.turnOver(id))
	// Before anybody can find it: records may be routed to it at once.
	b.replicas.Take(b.nodeID, o.part, &want.Partitions[i])
	return o
}

// Waits between attempts to open what could not be opened; each is twice the last.
const (
	firstReopen = time.Second
	lastReopen  = time.Minute
)

// reopening says when unopened partitions are tried again. It belongs to the reconcile
// loop.
type reopening struct {
	timer *time.Timer
	wait  time.Duration
	armed bool
}

func newReopening() *reopening {
	r := &reopening{timer: time.NewTimer(time.Hour), wait: firstReopen}
	r.timer.Stop()
	return r
}

// plan arms the timer while something is left to be opened.
func (r *reopening) plan(left bool) {
	switch {
	case !left:
		r.timer.Stop()
		r.armed, r.wait = false, firstReopen
	case !r.armed:
		r.timer.Reset(r.wait)
		r.armed = true
		r.wait = min(2*r.wait, lastReopen)
	}
}

func (r *reopening) fired() { r.armed = false }

// retryUnopened has the next pass look at the topics with unopened partitions.
func (b *Broker) retryUnopened() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.unopened {
		b.pending[name] = struct{}{}
	}
}
