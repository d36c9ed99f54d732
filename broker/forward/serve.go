package forward

import (
	"context"
	"time"

	"tidewire/broker/partition"
	"tidewire/cluster/peer"
	"tidewire/internal/model"
	"tidewire/storage/log"
	"tidewire/storage/record"
)

// Local is what a server needs of its node's broker.
type Local interface {
	// Led finds a partition that this node leads in just that epoch, waiting for what the
	// metadata says to be done here. Errors: unknown-topic, leader-unavailable (the leadership is
	// another), storage-error.
	Led(ctx context.Context, k Key, epoch model.LeaderEpoch) (*partition.Partition, error)
	// Room refuses records where the disk has no room for them.
	Room() error
	// Took is told of records that came for a partition, before they are appended.
	Took(k Key, records, bytes int)
	// Stopping is closed when waiting calls are to be answered.
	Stopping() <-chan struct{}
}

// server answers requests for partitions that this node leads.
type server struct {
	c *Client
	l Local
}

// Serve has requests for partitions answered, also those of this node's own client: what another
// node led when a call came may be led here when it is sent.
func Serve(m *Mux, c *Client, l Local) {
	s := server{c, l}
	c.own.Store(&s)
	Handle(m, MethodEnds, s.ends)
	Handle(m, MethodAt, s.at)
	Handle(m, MethodAborted, s.aborted)
	m.by[MethodRead] = s.read
	m.by[MethodWatch] = s.watch
	m.by[MethodProduce] = s.produce
}

func (s server) ends(ctx context.Context, q endsRequest) (endsAnswer, error) {
	a := endsAnswer{Ends: make([]ends, len(q.Partitions))}
	for i, m := range q.Partitions {
		a.Ends[i] = s.endsOf(ctx, m)
	}
	return a, nil
}

func (s server) endsOf(ctx context.Context, m Meant) ends {
	p, err := s.l.Led(ctx, m.Key, m.Epoch)
	if err != nil {
		return ends{Fault: Fault{err}}
	}
	return endsOf(p.Bounds())
}

func (s server) at(ctx context.Context, q timeRequest) (a timeAnswer, err error) {
	p, err := s.l.Led(ctx, q.Key, q.Epoch)
	if err != nil {
		return a, err
	}
	a.Offset, a.Timestamp, a.Found, err = p.OffsetForTimestamp(q.Timestamp, q.Limit)
	return a, err
}

func (s server) aborted(ctx context.Context, q abortedRequest) (abortedAnswer, error) {
	p, err := s.l.Led(ctx, q.Key, q.Epoch)
	if err != nil {
		return abortedAnswer{}, err
	}
	list, err := p.AbortedTransactions(q.From, q.To)
	return abortedAnswer{append([]log.AbortedTransaction{}, list...)}, err
}

// mostRead bounds what one read asks for, but for its first batch.
const mostRead = 4 << 20

func (s server) read(ctx context.Context, r peer.Request) ([]byte, error) {
	var q readRequest
	if _, err := split(r.Payload, &q); err != nil {
		return nil, err
	}
	p, err := s.l.Led(ctx, q.Key, q.Epoch)
	if err != nil {
		return nil, err
	}
	bounds := p.Bounds()
	a := readAnswer{Ends: endsOf(bounds)}
	limit := min(q.Limit, bounds.HighWatermark)
	if q.From >= limit {
		return a.empty(q, bounds)
	}
	first, ok, err := p.First(q.From, limit)
	if err != nil {
		return nil, err
	}
	if !ok {
		return a.empty(q, bounds)
	}
	size := int64(first.Size())
	switch {
	case size > MaxBatch:
		return nil, model.Errorf(model.RecordTooLarge, "a batch of %d bytes is read only at its leader", size)
	case size > q.Most:
		b, err := p.Read(nil, q.From, limit, 1)
		if err != nil {
			return nil, err
		}
		if len(b) < record.HeaderSize {
			return a.empty(q, bounds)
		}
		a.Batch = true
		return join(a, b[:record.HeaderSize])
	}
	b, err := p.Read(make([]byte, 0, min(max(int64(q.Max), size), mostRead)), q.From, limit, min(max(q.Max, 1), mostRead))
	if err != nil {
		return nil, err
	}
	if len(b) == 0 {
		return a.empty(q, bounds)
	}
	a.Batch, a.Whole = true, true
	return join(a, b)
}

// empty is the answer that nothing is stored up to the limit. Where the limit is one that a leader
// before has told, and this one does not know to be committed yet, that cannot be said: who reads
// would pass over what is there.
func (a *readAnswer) empty(q readRequest, b partition.Bounds) ([]byte, error) {
	if q.Limit > b.HighWatermark {
		return nil, model.Errorf(model.LeaderUnavailable, "the leader of partition %d is new and knows records to be committed up to offset %d so far, not up to %d",
			q.Partition, b.HighWatermark, q.Limit)
	}
	return join(a)
}

// watch answers once a partition's offsets are others than the asker knows.
func (s server) watch(ctx context.Context, r peer.Request) ([]byte, error) {
	if len(r.Payload)%watchedBytes != 0 {
		return nil, malformed(nil)
	}
	n := len(r.Payload) / watchedBytes
	var a watchAnswer
	w := partition.NewWatcher()
	parts := make([]*partition.Partition, n)
	known := make([]partition.Bounds, n)
	for i := range n {
		var m Meant
		m, known[i] = readWatched(r.Payload[i*watchedBytes:])
		p, err := s.l.Led(ctx, m.Key, m.Epoch)
		if err != nil {
			a.Changed = append(a.Changed, changed{i, ends{Fault: Fault{err}}})
			continue
		}
		parts[i] = p
		p.Watch(w)
		defer p.Unwatch(w)
	}
	park := time.NewTimer(parkTime)
	defer park.Stop()
	for {
		a.Changed = append(a.Changed, moved(parts, known)...)
		if len(a.Changed) > 0 {
			return join(a)
		}
		select {
		case <-w.C():
		case <-park.C:
			return join(watchAnswer{[]changed{}})
		case <-s.l.Stopping():
			return nil, model.Errorf(model.LeaderUnavailable, "the node is stopping")
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// moved are the partitions whose offsets are beyond those known, or that cannot be read. A new
// leader's may be below what the one before has told, which is no news.
func moved(parts []*partition.Partition, known []partition.Bounds) (out []changed) {
	for i, p := range parts {
		if p == nil {
			continue
		}
		if err := p.Err(); err != nil {
			out = append(out, changed{i, ends{Fault: Fault{err}}})
			continue
		}
		b := p.Bounds()
		if b.HighWatermark > known[i].HighWatermark || b.LastStable > known[i].LastStable || b.LogStart > known[i].LogStart {
			out = append(out, changed{i, endsOf(b)})
		}
	}
	return out
}
