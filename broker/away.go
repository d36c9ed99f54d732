package broker

import (
	"context"
	"time"

	"tidewire/broker/forward"
	"tidewire/broker/partition"
	"tidewire/internal/model"
	"tidewire/storage/log"
	"tidewire/storage/record"
)

// What another node leads is away: package forward has what stands for it here.

// source is a partition as it is read, here or away.
type source interface {
	followed
	First(from, limit model.Offset) (h record.BatchHeader, ok bool, err error)
	Read(dst []byte, from, limit model.Offset, maxBytes int) ([]byte, error)
	OffsetForTimestamp(ts int64, limit model.Offset) (model.Offset, int64, bool, error)
	AbortedTransactions(from, to model.Offset) ([]log.AbortedTransaction, error)
}

// followed is a partition that wakes who watches it: *partition.Partition or
// *forward.Partition, and each source.
type followed interface {
	Bounds() partition.Bounds
	Err() error
	Watch(w *partition.Watcher)
	Unwatch(w *partition.Watcher)
}

// sourceOf is a partition to be read within ctx, want bytes at once.
func sourceOf(ctx context.Context, p followed, want int) source {
	switch p := p.(type) {
	case *partition.Partition:
		return p
	case *forward.Partition:
		return p.Read(ctx, min(chunkBytes, max(want, 0)+4096))
	case source:
		return p
	}
	return nil // there are no others
}

// fresh has what is known of a partition that is away be as of now.
func (b *Broker) fresh(ctx context.Context, p followed) error {
	if r, away := p.(*forward.Partition); away {
		return b.away.Refresh(ctx, []*forward.Partition{r})[0]
	}
	return nil
}

// freshAll is fresh of many; nil ones are passed over.
func (b *Broker) freshAll(ctx context.Context, list []followed) []error {
	errs := make([]error, len(list))
	var away []*forward.Partition
	var at []int
	for i, p := range list {
		if r, ok := p.(*forward.Partition); ok {
			away, at = append(away, r), append(at, i)
		}
	}
	if len(away) == 0 {
		return errs
	}
	for k, err := range b.away.Refresh(ctx, away) {
		errs[at[k]] = err
	}
	return errs
}

// key names a partition of a topic.
func (t *topic) key(p model.PartitionID) forward.Key { return forward.Key{Topic: t.id, Partition: p} }

// placed finds a partition: this node's, or where another one leads it what stands for it.
// Errors: leader-unavailable, storage-error, unknown-partition.
func (b *Broker) placed(t *topic, p model.PartitionID) (followed, error) {
	parts := *t.parts.Load()
	if p < 0 || int(p) >= len(parts) {
		return nil, model.Errorf(model.UnknownPartition, "topic %q has partitions 0 to %d, not %d", t.name, len(parts)-1, p)
	}
	var err error
	if part := parts[p]; part == nil {
		err = t.notOpen(int32(p))
	} else if err = part.Err(); err == nil {
		return part, nil
	}
	at, nobody := forward.LeaderOf(b.meta.Image(), t.key(p))
	switch {
	case model.HasCode(nobody, model.LeaderUnavailable):
		return nil, nobody
	case nobody != nil || at.Node == b.nodeID:
		return nil, err
	}
	return b.awayOf(t, p), nil
}

// awayOf is what stands for a partition that is away.
func (b *Broker) awayOf(t *topic, p model.PartitionID) *forward.Partition {
	if v, ok := t.away.Load(p); ok {
		return v.(*forward.Partition)
	}
	v, _ := t.away.LoadOrStore(p, b.away.Partition(t.key(p)))
	return v.(*forward.Partition)
}

// source finds a partition to be read, as it is now; want is about how many bytes.
func (b *Broker) source(ctx context.Context, name string, p model.PartitionID, want int) (*topic, source, error) {
	t, err := b.topicWith(ctx, name, p)
	if err != nil {
		return nil, nil, err
	}
	at, err := b.placed(t, p)
	if err == nil {
		err = b.fresh(ctx, at)
	}
	if err != nil {
		return nil, nil, err
	}
	return t, sourceOf(ctx, at, want), nil
}

// topicWith finds a topic that has a partition; that it has none is confirmed by the quorum.
func (b *Broker) topicWith(ctx context.Context, name string, p model.PartitionID) (*topic, error) {
	t, err := b.topic(ctx, name)
	if err != nil || int(p) < len(*t.parts.Load()) || p < 0 {
		return t, err
	}
	if err := b.meta.Barrier(ctx); err != nil {
		return nil, err
	}
	return b.topic(ctx, name)
}

// leads tells whether this node leads a partition of a topic, by the image.
func (b *Broker) leads(t *topic, p model.PartitionID) bool {
	at, err := forward.LeaderOf(b.meta.Image(), t.key(p))
	return err == nil && at.Node == b.nodeID
}

// send brings the slices of a call that are away to their leaders.
func (b *Broker) send(call *produceCall, t *topic, req *ProduceRequest) {
	call.away = resize(call.away, len(call.slices))
	clear(call.away)
	list := make([]*forward.Slice, 0, len(call.slices))
	index := make(map[*forward.Slice]int, len(call.slices))
	for k := range call.slices {
		if call.parts[k] != nil {
			continue
		}
		s, p := &call.slices[k], call.partitionOf(k)
		err := t.notOpen(int32(p))
		if at, nobody := forward.LeaderOf(b.meta.Image(), t.key(p)); nobody != nil {
			err = nobody
		} else if at.Node != b.nodeID {
			call.away[k], err = forward.NewSlice(t.key(p), s)
		}
		if err != nil {
			call.away[k], s.Err = nil, err
			if s.Keyless {
				t.turnOver(p)()
			}
			call.done.Discount(1)
			continue
		}
		s.Batches = nil
		list, index[call.away[k]] = append(list, call.away[k]), k
	}
	timeout := req.Timeout
	if timeout <= 0 {
		timeout = awayTimeout
	}
	done := call.done // the call may be in use again by then
	keyless := make([]bool, len(call.slices))
	for k := range call.slices {
		keyless[k] = call.slices[k].Keyless
	}
	b.away.Send(list, req.Acks, timeout, req.Order, func(s *forward.Slice) {
		if keyless[index[s]] {
			t.turnOver(s.Partition)()
		}
		done.Discount(1)
	})
}

// awayTimeout is how long a slice may take whose call waits as long as it likes.
const awayTimeout = 30 * time.Second

// partitionOf is the partition of a call's slice.
func (call *produceCall) partitionOf(k int) model.PartitionID {
	if len(call.target) == 0 {
		return call.ready
	}
	return model.PartitionID(call.target[call.slices[k].Select[0]])
}

// atHand is the topic as calls that came from other nodes see it.
type atHand struct{ b *Broker }

// ledTime bounds how long a call from another node waits for this one to do what the metadata
// says.
const ledTime = 3 * time.Second

// Led implements forward.Local.
func (x atHand) Led(ctx context.Context, k forward.Key, epoch model.LeaderEpoch) (*partition.Partition, error) {
	if part, _, err := x.led(k, epoch); part != nil || err != nil {
		return part, err
	}
	ctx, cancel := context.WithTimeout(ctx, ledTime)
	defer cancel()
	if at, err := forward.LeaderOf(x.b.meta.Image(), k); err != nil || at.Epoch < epoch {
		if err := x.b.meta.Barrier(ctx); err != nil {
			return nil, err
		}
	}
	for {
		pass := x.b.passEnd()
		at, err := forward.LeaderOf(x.b.meta.Image(), k)
		switch {
		case err != nil:
			return nil, err
		case at.Node != x.b.nodeID || at.Epoch != epoch:
			return nil, model.Errorf(model.LeaderUnavailable, "node %d does not lead partition %d in epoch %d: node %d does, in epoch %d", x.b.nodeID, k.Partition, epoch, at.Node, at.Epoch)
		}
		part, why, err := x.led(k, epoch)
		if part != nil || err != nil {
			return part, err
		}
		select {
		case <-pass:
		case <-ctx.Done():
			return nil, model.AsError(why).WithOutcome(model.NotApplied)
		}
	}
}

// led finds a partition where this node leads it already; why it does not, or not yet.
func (x atHand) led(k forward.Key, epoch model.LeaderEpoch) (_ *partition.Partition, why, final error) {
	t := x.topic(k.Topic)
	if t == nil {
		return nil, model.Errorf(model.LeaderUnavailable, "the topic is still being opened on node %d", x.b.nodeID), nil
	}
	parts := *t.parts.Load()
	if int(k.Partition) >= len(parts) || k.Partition < 0 {
		return nil, model.Errorf(model.LeaderUnavailable, "partition %d of %q is still being opened on node %d", k.Partition, t.name, x.b.nodeID), nil
	}
	part := parts[k.Partition]
	if part == nil {
		why = t.notOpen(int32(k.Partition))
		if !model.HasCode(why, model.LeaderUnavailable) && x.b.leads(t, k.Partition) {
			return nil, nil, why
		}
		return nil, why, nil
	}
	if lead := part.Leadership(); !lead.Leader || lead.Epoch != epoch {
		return nil, model.Errorf(model.LeaderUnavailable, "node %d does not lead partition %d of %q in epoch %d", x.b.nodeID, k.Partition, t.name, epoch), nil
	}
	return part, nil, part.Err()
}

// topic finds a topic of this node by its id; nil: there is none.
func (x atHand) topic(id model.TopicID) *topic {
	m := x.b.meta.Image().TopicByID(id)
	if m == nil {
		return nil
	}
	if v, ok := x.b.topics.Load(m.Name); ok && v.(*topic).id == id {
		return v.(*topic)
	}
	return nil
}

// Room implements forward.Local.
func (x atHand) Room() error { return x.b.roomForRecords() }

// Took implements forward.Local.
func (x atHand) Took(k forward.Key, records, bytes int) {
	if t := x.topic(k.Topic); t != nil {
		t.rates.inBatches(records, bytes)
	}
	x.b.appended(bytes)
}

// Stopping implements forward.Local.
func (x atHand) Stopping() <-chan struct{} { return x.b.draining }
