package broker

import (
	"context"

	"tidewire/broker/forward"
	"tidewire/broker/partition"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// Replica is a partition that this node serves, for engines of the service that read or write
// it themselves. Nobody's rights are looked at: that is done before. Its topic is pinned by its
// id. It is small and holds nothing, and may be kept and used by several goroutines.
type Replica struct{ *partition.Partition }

// Replica finds a partition, waiting for this node to open its topic. Errors: unknown-topic,
// also where the topic has another id; unknown-partition, leader-unavailable, storage-error.
func (b *Broker) Replica(ctx context.Context, id model.TopicID, p model.PartitionID) (Replica, error) {
	want := b.meta.Image().TopicByID(id)
	if want == nil {
		return Replica{}, model.Errorf(model.UnknownTopic, "there is no topic of id %s", id)
	}
	t, part, err := b.partition(ctx, want.Name, p)
	switch {
	case err != nil:
		return Replica{}, err
	case t.id != id:
		return Replica{}, unknownTopic(want.Name)
	}
	return Replica{part}, nil
}

// Readable is a partition that engines of the service read, whichever node leads it. Like a
// Replica it pins its topic, and may be kept.
type Readable struct {
	followed
	b  *Broker
	t  *topic
	id model.PartitionID
}

// Readables finds partitions, as they are now: what other nodes lead is asked for at once. The
// result has, for each, the partition or why it cannot be read: unknown-topic,
// unknown-partition, leader-unavailable, storage-error.
func (b *Broker) Readables(ctx context.Context, keys []forward.Key) ([]Readable, []error) {
	out, errs := make([]Readable, len(keys)), make([]error, len(keys))
	list := make([]followed, len(keys))
	for i, k := range keys {
		if out[i], errs[i] = b.readable(ctx, k); errs[i] == nil {
			list[i] = out[i].followed
		}
	}
	for i, err := range b.freshAll(ctx, list) {
		if err != nil {
			errs[i] = err
		}
	}
	return out, errs
}

// readable finds a partition, of which it may not be known how it is now.
func (b *Broker) readable(ctx context.Context, k forward.Key) (Readable, error) {
	want := b.meta.Image().TopicByID(k.Topic)
	if want == nil {
		return Readable{}, model.Errorf(model.UnknownTopic, "there is no topic of id %s", k.Topic)
	}
	t, err := b.topicWith(ctx, want.Name, k.Partition)
	switch {
	case err != nil:
		return Readable{}, err
	case t.id != k.Topic:
		return Readable{}, unknownTopic(want.Name)
	}
	at, err := b.placed(t, k.Partition)
	return Readable{at, b, t, k.Partition}, err
}

// Open tells whether there is a partition at all.
func (r Readable) Open() bool { return r.followed != nil }

func (r Readable) source() source { return sourceOf(context.Background(), r.followed, 0) }

// Resolve turns a position into an offset between the log start and the log end. Errors:
// offset-out-of-range with earliest and latest, storage-error.
func (r Readable) Resolve(at Position, iso Isolation) (model.Offset, error) {
	return resolve(r.source(), at, iso)
}

// Beyond confirms that a position is beyond the log end, by which its reader would be placed anew:
// nil where it is, leader-unavailable where the next leader may have what this one does not.
func (r Readable) Beyond(ctx context.Context, at model.Offset) error {
	err := r.b.away.ConfirmRead(ctx, r.t.key(r.id), r.followed, outOfRange(at, r.Bounds(), at))
	if model.HasCode(err, model.OffsetOutOfRange) {
		return nil
	}
	return err
}

// VisibleEnd is the end of what a reader sees.
func (r Readable) VisibleEnd(iso Isolation) model.Offset { return visibleEnd(r.Bounds(), iso) }

// Read reads what is there at once, on behalf of a caller whose quota counts it: nothing of it
// is refused here, see AllowFetch. With a nil visit it only counts what there is to be read, and
// nobody is charged. The request's Topic, Partition and Wait are not used. Errors:
// offset-out-of-range, rate-limited (no memory for it), leader-unavailable, storage-error.
func (r Readable) Read(ctx context.Context, c Caller, req *FetchRequest, visit Visit) (FetchInfo, error) {
	if err := r.Err(); err != nil {
		return FetchInfo{}, err
	}
	part := sourceOf(ctx, r.followed, req.MaxBytes)
	next, err := resolve(part, req.From, req.Isolation)
	if err != nil {
		return FetchInfo{}, r.b.away.ConfirmRead(ctx, r.t.key(r.id), part, err)
	}
	f := fetching{
		b: r.b, topic: r.t, part: part, req: req, owner: ownerOf(c), caller: c, visit: visit, patience: memoryPatience,
		info: FetchInfo{NextOffset: next},
	}
	defer f.end()
	err = f.more(ctx)
	if visit != nil {
		r.b.chargeFetch(c, f.info.Bytes)
	}
	return f.info, err
}

// TimeOfNext is the timestamp, in milliseconds, of the first record that a reader who has come
// to an offset sees next; not ok where there is none, or where the offset is out of range.
// It reads one batch, and counts nowhere.
func (r Readable) TimeOfNext(ctx context.Context, from model.Offset, iso Isolation) (ms int64, ok bool, err error) {
	bounds := r.Bounds()
	if from = max(from, bounds.LogStart); from >= visibleEnd(bounds, iso) {
		return 0, false, nil
	}
	req := &FetchRequest{Partition: r.id, MaxRecords: 1, MaxBytes: 1, Isolation: iso}
	f := fetching{b: r.b, topic: r.t, part: sourceOf(ctx, r.followed, 1), req: req, patience: memoryPatience, info: FetchInfo{NextOffset: from}}
	f.visit = func(rec *record.Record, _ bool) { ms, ok = rec.Timestamp, true }
	f.uncounted = true
	err = f.more(ctx)
	return ms, ok, err
}

// AllowFetch lets a caller read, or refuses it with rate-limited by the user's quota.
func (b *Broker) AllowFetch(c Caller) error { return b.allowFetch(c) }
