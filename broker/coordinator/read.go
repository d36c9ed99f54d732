package coordinator

import (
	"context"
	"math/rand/v2"

	"tidewire/broker"
	"tidewire/broker/forward"
	"tidewire/broker/group"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// source is a partition that a poll may read.
type source struct {
	pos     group.Position
	replica broker.Readable
	err     error // why it cannot be read now

	seen  model.Offset // how far records were counted
	found int          // records between pos and seen
	bytes int          // in them
}

// open finds the partitions that are held. One that cannot be read now keeps nothing from the
// others.
func (x *polling) open(ctx context.Context) error {
	x.unwatch()
	x.sources = x.sources[:0]
	refused := map[string]error{}
	keys := make([]forward.Key, len(x.got.Positions))
	for i, p := range x.got.Positions {
		keys[i] = forward.Key{Topic: p.Topic, Partition: p.Index}
	}
	logs, errs := x.c.broker.Readables(ctx, keys)
	for i, p := range x.got.Positions {
		why, known := refused[p.Name]
		if !known {
			why = x.mayRead(ctx, p.Name)
			refused[p.Name] = why
		}
		if why != nil && x.explicit {
			return why
		}
		s := source{pos: p, seen: p.Next, err: why}
		if why == nil {
			s.replica, s.err = logs[i], errs[i]
		}
		x.sources = append(x.sources, s)
	}
	return nil
}

// place finds positions that the group has none of, and looks whether the others are in range.
func (x *polling) place(ctx context.Context) error {
	policies := make(map[group.Partition]group.Unresolved, len(x.got.Unresolved))
	for _, u := range x.got.Unresolved {
		policies[u.Partition] = u
	}
	var bounds []group.Bounds
	for i := range x.sources {
		s := &x.sources[i]
		if s.err != nil {
			continue
		}
		b := s.replica.Bounds()
		if s.pos.Next != group.NoOffset && s.pos.Next >= b.LogStart && s.pos.Next <= b.LogEnd {
			continue
		}
		if s.pos.Next != group.NoOffset && s.pos.Next > b.LogEnd {
			if s.err = s.replica.Beyond(ctx, s.pos.Next); s.err != nil {
				continue
			}
		}
		if b.Unsettled && s.pos.Next == group.NoOffset { // KIP-207: the latest might lie before what others have seen
			s.err = model.Errorf(model.LeaderUnavailable, "the leader of partition %d of %q is new and does not know yet how far its records are committed", s.pos.Index, s.pos.Name)
			continue
		}
		limit := s.replica.VisibleEnd(x.req.Isolation)
		add := group.Bounds{Partition: s.pos.Partition, At: s.pos.Next, Earliest: b.LogStart, Latest: limit, AtTime: limit}
		if u := policies[s.pos.Partition]; u.Policy == group.FromTime && s.pos.Next == group.NoOffset {
			if add.AtTime, s.err = s.replica.Resolve(broker.Position{Kind: broker.AtTime, Value: u.FromMs}, x.req.Isolation); s.err != nil {
				continue
			}
		}
		bounds = append(bounds, add)
	}
	if len(bounds) == 0 {
		return nil
	}
	return x.resolve(ctx, bounds)
}

// resolve has the group place the member.
func (x *polling) resolve(ctx context.Context, bounds []group.Bounds) error {
	var placed []group.Position
	var err error
	if q := (group.ResolveRequest{Member: x.req.Member, Bounds: bounds}); x.away != nil {
		placed, err = x.away.resolve(ctx, q)
	} else {
		placed, err = x.a.resolve(ctx, q)
	}
	if err != nil {
		return err
	}
	at := make(map[group.Partition]group.Position, len(placed))
	for _, p := range placed {
		at[p.Partition] = p
	}
	for i := range x.sources {
		s := &x.sources[i]
		if p, ok := at[s.pos.Partition]; ok && p.Since == s.pos.Since {
			s.pos, s.seen = p, p.Next
		}
	}
	return nil
}

// readable tells whether a source can be read at all.
func (x *polling) readable(s *source) bool {
	return s.err == nil && s.pos.Next != group.NoOffset && (x.req.Paused == nil || !x.req.Paused(s.pos.Held))
}

// enough tells whether there are as many records as were asked for. It counts what is new since
// it was asked last.
func (x *polling) enough(ctx context.Context) bool {
	records, bytes := 0, 0
	for i := range x.sources {
		s := &x.sources[i]
		if !x.readable(s) {
			continue
		}
		if x.count(ctx, s, x.req.MinBytes-bytes) != nil {
			return true // the read tells why
		}
		records += s.found
		bytes += s.bytes
		if records >= x.req.MaxRecords || records > 0 && bytes >= x.req.MinBytes {
			return true
		}
	}
	return false
}

func (x *polling) count(ctx context.Context, s *source, want int) error {
	if s.seen >= s.replica.VisibleEnd(x.req.Isolation) || s.found > 0 && s.bytes >= want {
		return nil
	}
	req := broker.FetchRequest{
		From: broker.Position{Kind: broker.AtOffset, Value: int64(s.seen)}, MaxRecords: max(1, x.req.MaxRecords-s.found),
		MaxBytes: max(1, want-s.bytes), Isolation: x.req.Isolation, Partition: s.pos.Index,
	}
	info, err := s.replica.Read(ctx, x.guard.Caller(), &req, nil)
	s.seen = max(s.seen, info.NextOffset)
	s.found += info.Records
	s.bytes += info.Bytes
	if s.found == 0 { // what lies between holds nothing for the member
		s.pos.Next = s.seen
	}
	return err
}

// Shares of a page: where many partitions have records, each gives so many at least before the
// next one's turn.
const (
	leastRecords = 64
	leastBytes   = 64 << 10
)

// page is what may still be given.
type page struct {
	records, bytes int
	err            error // of the first partition that could not be read
}

// read gives records of what the member still holds.
func (x *polling) read(ctx context.Context, now *group.Assignment) error {
	ready := x.ready(now)
	if why := x.tellUnreadable(now); len(ready) == 0 {
		return x.unreadable(why)
	}
	p := page{records: x.req.MaxRecords, bytes: x.req.MaxBytes}
	start := rand.IntN(len(ready))
	ready = append(ready[start:len(ready):len(ready)], ready[:start]...)
	for len(ready) > 0 && p.records > 0 && p.bytes > 0 && !x.poll.replaced() {
		records, bytes := max(leastRecords, p.records/len(ready)), max(leastBytes, p.bytes/len(ready))
		left := ready[:0]
		for _, s := range ready {
			if p.records <= 0 || p.bytes <= 0 || x.poll.replaced() || x.c.draining() && x.out.Records > 0 {
				return nil
			}
			more, err := x.give(ctx, s, &p, page{records: records, bytes: bytes})
			if err != nil {
				return err
			}
			if more {
				left = append(left, s)
			}
		}
		ready = left
	}
	return x.unreadable(p.err)
}

// ready are the sources with something to be read.
func (x *polling) ready(now *group.Assignment) []*source {
	held := make(map[group.Partition]group.Version, len(now.Held))
	for _, h := range now.Held {
		held[h.Partition] = h.Since
	}
	var out []*source
	for i := range x.sources {
		s := &x.sources[i]
		if since, ok := held[s.pos.Partition]; !ok || since != s.pos.Since || !x.readable(s) {
			continue
		}
		if s.pos.Next < s.replica.VisibleEnd(x.req.Isolation) {
			out = append(out, s)
		}
	}
	return out
}

// tellUnreadable notes what the member has and cannot be read. The error is that of all, where
// nothing else is left to be read.
func (x *polling) tellUnreadable(now *group.Assignment) (why error) {
	held := make(map[group.Partition]group.Held, len(now.Held))
	for _, h := range now.Held {
		held[h.Partition] = h
	}
	for i := range x.sources {
		s := &x.sources[i]
		h, ok := held[s.pos.Partition]
		if !ok || h.Since != s.pos.Since || s.err == nil || model.HasCode(s.err, model.Forbidden) || model.HasCode(s.err, model.UnknownTopic) {
			continue
		}
		x.out.Unreadable = append(x.out.Unreadable, Unreadable{h, s.err})
		why = s.err
	}
	if len(x.out.Unreadable) < len(now.Held) || x.req.Stream { // a stream is told, and goes on
		return nil
	}
	return why
}

// unreadable is why nothing was given, where that is because of partitions that cannot be read.
func (x *polling) unreadable(err error) error {
	if x.out.Records > 0 {
		return nil
	}
	return err
}

// give reads a share of one partition; more: it has more than that.
func (x *polling) give(ctx context.Context, s *source, p *page, share page) (more bool, _ error) {
	req := broker.FetchRequest{
		From: broker.Position{Kind: broker.AtOffset, Value: int64(s.pos.Next)}, Partition: s.pos.Index, Isolation: x.req.Isolation,
		MaxRecords: min(share.records, p.records), MaxBytes: min(share.bytes, p.bytes),
		// Only the first record of the whole page comes whatever its size.
		Strict: x.out.Records > 0,
	}
	if req.Strict {
		req.MaxBytes = p.bytes
	}
	info, err := s.replica.Read(ctx, x.guard.Caller(), &req, func(r *record.Record, logAppendTime bool) {
		x.visit(s.pos.Held, r, logAppendTime)
	})
	x.out.Records += info.Records
	x.out.Bytes += info.Bytes
	p.records -= info.Records
	p.bytes -= info.Bytes
	moved := info.NextOffset > s.pos.Next
	s.pos.Next = max(s.pos.Next, info.NextOffset) // what was given is behind the member, however the read ended
	if err != nil {
		return false, p.without(ctx, err)
	}
	if req.Strict && !moved { // its next record is larger than what is left
		return false, nil
	}
	return info.End == broker.AtLimit, nil
}

// without goes on without a partition that cannot be read, unless that is because of the caller.
// What is out of range the next poll places.
func (p *page) without(ctx context.Context, why error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if p.err == nil && !model.HasCode(why, model.OffsetOutOfRange) {
		p.err = why
	}
	return nil
}

// watch has the poll woken by new records.
func (x *polling) watch() {
	for i := range x.sources {
		if s := &x.sources[i]; s.replica.Open() {
			s.replica.Watch(x.watcher)
		}
	}
}

func (x *polling) unwatch() {
	for i := range x.sources {
		if s := &x.sources[i]; s.replica.Open() {
			s.replica.Unwatch(x.watcher)
		}
	}
}
