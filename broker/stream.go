package broker

import (
	"context"
	"slices"

	"tidewire/broker/partition"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// Stream is a read that lasts, of topics followed by a client that stays connected. It
// is woken by what it follows and pulls from the log: nothing is queued for it. It pins
// a topic by its id, so that one that was deleted and created anew ends it. Only one
// goroutine at a time may use it and its topics; Changed may be received from another.
type Stream struct {
	b      *Broker
	guard  *Guard
	topics []*StreamTopic
}

// NewStream returns a stream that follows nothing yet. Close must be called.
func (b *Broker) NewStream(c Caller) *Stream { return &Stream{b: b, guard: b.Guard(c)} }

// NewStreamCalling is NewStream for a client that waits without a goroutine: woken is called
// where Changed would receive, under locks, so it may not block and not call the broker.
func (b *Broker) NewStreamCalling(c Caller, woken func()) *Stream {
	return &Stream{b: b, guard: b.guard(c, partition.NewCaller(woken), nil)}
}

// Changed receives after one or more changes of a partition that is open, or when there
// may be a reason to end (see Guard).
func (s *Stream) Changed() <-chan struct{} { return s.guard.Changed() }

// SetCaller replaces the caller, whose credential was renewed.
func (s *Stream) SetCaller(c Caller) { s.guard.SetCaller(c) }

// Caller is on whose behalf the stream goes on, with the principal that Check saw last.
func (s *Stream) Caller() Caller { return s.guard.Caller() }

// Check tells whether the stream may go on, as Guard.Check does. Call it whenever Changed
// received, before reading.
func (s *Stream) Check(ctx context.Context) error { return s.guard.Check(ctx) }

func (s *Stream) mayRead(ctx context.Context, topic string) error {
	return s.b.may(ctx, s.guard.caller, OnTopic(metadata.OpRead, topic))
}

// Follow adds topics, all or none. Rights are looked at before existence. Errors:
// forbidden, unknown-topic, leader-unavailable.
func (s *Stream) Follow(ctx context.Context, names []string) ([]*StreamTopic, error) {
	for _, n := range names {
		if err := s.mayRead(ctx, n); err != nil {
			return nil, err
		}
	}
	added := make([]*StreamTopic, len(names))
	for i, n := range names {
		t, err := s.b.topic(ctx, n)
		if err != nil {
			return nil, err
		}
		added[i] = &StreamTopic{s: s, t: t}
	}
	for _, t := range added {
		s.guard.needs = append(s.guard.needs, guarded{Need: OnTopic(metadata.OpRead, t.t.name), topic: t.t.id, pinned: true})
	}
	s.topics = append(s.topics, added...)
	return added, nil
}

// Unfollow ends the following of every topic. Its StreamTopics must not be used again.
func (s *Stream) Unfollow() {
	for _, t := range s.topics {
		for _, p := range t.open {
			if p != nil {
				p.Unwatch(s.guard.watcher)
			}
		}
	}
	s.topics = nil
	s.guard.Clear()
}

// Close ends the stream.
func (s *Stream) Close() {
	s.Unfollow()
	s.guard.Close()
}

// StreamTopic is one topic that a stream follows.
type StreamTopic struct {
	s    *Stream
	t    *topic
	open []followed // by their ids; nil: not open
}

// opened is a partition that is open in this stream, else nil.
func (t *StreamTopic) opened(p model.PartitionID) followed {
	if p < 0 || int(p) >= len(t.open) {
		return nil
	}
	return t.open[p]
}

// Name is the topic's name.
func (t *StreamTopic) Name() string { return t.t.name }

// Partitions is the topic's number of partitions now, which only grows. It waits until
// this node has opened those that the metadata has. Errors: unknown-topic,
// leader-unavailable.
func (t *StreamTopic) Partitions(ctx context.Context) (int, error) {
	want := t.s.b.meta.Image().TopicByID(t.t.id)
	if want == nil {
		return 0, unknownTopic(t.t.name)
	}
	if n := len(*t.t.parts.Load()); n >= len(want.Partitions) {
		return n, nil
	}
	now, err := t.s.b.topic(ctx, t.t.name)
	if err != nil {
		return 0, err
	}
	if now.id != t.t.id {
		return 0, unknownTopic(t.t.name)
	}
	return len(*now.parts.Load()), nil
}

// Open resolves a position in a partition and from then on wakes the stream when the
// partition changes. Opening one again only resolves. Errors: unknown-partition,
// offset-out-of-range, leader-unavailable, storage-error.
func (t *StreamTopic) Open(p model.PartitionID, at Position, iso Isolation) (model.Offset, error) {
	part, err := t.partition(p)
	if err != nil {
		return 0, err
	}
	off, err := resolve(sourceOf(context.Background(), part, 0), at, iso)
	if err == nil {
		t.watch(p, part)
	}
	return off, err
}

// partition finds a partition, open or not, that can be read, as it is now.
func (t *StreamTopic) partition(p model.PartitionID) (part followed, err error) {
	if part = t.opened(p); part == nil {
		part, err = t.s.b.placed(t.t, p)
	} else {
		part, err = t.usable(p, part)
	}
	if err == nil {
		err = t.s.b.fresh(context.Background(), part)
	}
	return part, err
}

// usable is an open partition that can be read. Where its leadership has moved since, it is read
// there from now on.
func (t *StreamTopic) usable(p model.PartitionID, part followed) (followed, error) {
	err := part.Err()
	if !model.HasCode(err, model.LeaderUnavailable) {
		return part, err
	}
	now, elsewhere := t.s.b.placed(t.t, p)
	if elsewhere != nil || now == part {
		return nil, err
	}
	t.Shut(p)
	t.watch(p, now)
	return now, t.s.b.fresh(context.Background(), now)
}

// watch wakes the stream from now on when the partition changes.
func (t *StreamTopic) watch(p model.PartitionID, part followed) {
	if t.opened(p) == nil {
		if n := int(p) + 1; n > len(t.open) {
			t.open = append(slices.Grow(t.open, len(*t.t.parts.Load())-len(t.open)), make([]followed, n-len(t.open))...)
		}
		t.open[p] = part
		part.Watch(t.s.guard.watcher)
	}
}

// Read reads what an open partition has at once; the request's Topic and Wait are not
// used. The caller's right is looked at, its token is not: see Check. What is read counts in
// the user's quota, which Delay tells. Errors: forbidden,
// unknown-topic, offset-out-of-range (retention or a deletion of records has passed the
// position), leader-unavailable, storage-error.
func (t *StreamTopic) Read(ctx context.Context, req *FetchRequest, visit Visit) (FetchInfo, error) {
	part, err := t.readable(ctx, req.Partition)
	if err != nil {
		return FetchInfo{}, err
	}
	src := sourceOf(ctx, part, req.MaxBytes)
	next, err := resolve(src, req.From, req.Isolation)
	if err != nil {
		return FetchInfo{}, t.s.b.away.ConfirmRead(ctx, t.t.key(req.Partition), part, err)
	}
	f := fetching{b: t.s.b, topic: t.t, part: src, req: req, owner: ownerOf(t.s.Caller()), visit: visit, info: FetchInfo{NextOffset: next}}
	err = f.more(ctx)
	t.s.b.chargeFetch(t.s.Caller(), f.info.Bytes)
	return f.info, err
}

// readable looks at the caller's right and finds an open partition that can be read.
func (t *StreamTopic) readable(ctx context.Context, p model.PartitionID) (followed, error) {
	if err := t.s.mayRead(ctx, t.t.name); err != nil {
		return nil, err
	}
	part := t.opened(p)
	if part == nil {
		return nil, model.Errorf(model.UnknownPartition, "partition %d of %q is not open in this stream", p, t.t.name)
	}
	return t.usable(p, part)
}

// ID is the topic's id. One of the same name that is made later has another.
func (t *StreamTopic) ID() model.TopicID { return t.t.id }

// Read is what another stream has read of a partition: all that a reader of this isolation
// sees from From up to Next, in this node's lifetime.
type Read struct {
	Partition  model.PartitionID
	Isolation  Isolation
	From, Next model.Offset
	Records    int
	Bytes      int // as FetchInfo has them
}

// TakeRead does for records that another stream has read all that Read does but reading:
// it looks at the caller's right, the partition and the position, and counts them. Not ok:
// they are not there for this reader, who has to read. Errors: as of Read.
func (t *StreamTopic) TakeRead(ctx context.Context, r *Read) (ok bool, _ error) {
	part, err := t.readable(ctx, r.Partition)
	if err != nil {
		return false, err
	}
	bounds := part.Bounds()
	limit := visibleEnd(bounds, r.Isolation)
	if r.From < bounds.LogStart || r.From > bounds.LogEnd {
		return false, outOfRange(r.From, bounds, limit)
	}
	if r.Next > limit {
		return false, nil
	}
	t.t.rates.out(r.Records, r.Bytes)
	t.s.b.chargeFetch(t.s.Caller(), r.Bytes)
	return true, nil
}
