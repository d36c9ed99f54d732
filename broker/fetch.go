package broker

import (
	"context"
	"sync"
	"tidewire/auth"
	"time"

	"tidewire/broker/browse"
	"tidewire/broker/partition"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// Isolation says which records a read sees (KIP-98). Without transactions both see
// what lies below the high watermark.
type Isolation uint8

// Isolation levels.
const (
	ReadCommitted Isolation = iota
	ReadUncommitted
)

// Position is where a read begins.
type Position struct {
	Kind  PositionKind
	Value int64 // an offset, or a time in milliseconds since 1970
}

// PositionKind says how a Position is meant.
type PositionKind uint8

// Kinds of positions. Latest is the last stable offset, or the high watermark under
// ReadUncommitted; AtTime is the smallest visible offset whose record's timestamp is at
// least Value, and as Latest where there is none.
const (
	AtOffset PositionKind = iota
	Earliest
	Latest
	AtTime
)

// FetchRequest is one read of one partition.
type FetchRequest struct {
	Topic      string
	Partition  model.PartitionID
	From       Position
	MaxRecords int
	MaxBytes   int           // of keys, values and headers; the first record always comes whole
	MinBytes   int           // a waiting read answers once it has so many
	Wait       time.Duration // 0: answer at once
	Isolation  Isolation
	// Filter leaves records out; nil: none. One call then looks at scanBytes of them at
	// most, and NextOffset tells how far it came.
	Filter *browse.Filter
}

// scanBytes is how much that a filter leaves out is looked at in one read.
const scanBytes = 1 << 20

// FetchInfo describes the partition at the time of a read. NextOffset is where the next
// read goes on: it passes offsets that hold nothing for the reader.
type FetchInfo struct {
	NextOffset, HighWatermark, LastStable, LogStart model.Offset
	Records, Bytes                                  int
	// More: the read ended by a limit and not because it had all that may be seen.
	More bool
}

// Visit gets each record of a read in offset order. The record and its bytes are valid
// during the call only. logAppendTime tells the type of its timestamp.
type Visit func(r *record.Record, logAppendTime bool)

// Fetch reads records of one partition and, where the request waits, holds neither a
// lock nor a worker until there is enough. A read that waits ends early with what is
// there when the node drains; it ends with an error when the caller's rights, its token
// or the topic go away.
//
// Errors: forbidden, unknown-topic, unknown-partition, offset-out-of-range (with
// earliest and latest), leader-unavailable, storage-error.
func (b *Broker) Fetch(ctx context.Context, c Caller, req *FetchRequest, visit Visit) (FetchInfo, error) {
	if err := b.mayRead(ctx, c, req.Topic); err != nil {
		return FetchInfo{}, err
	}
	t, part, err := b.partition(ctx, req.Topic, req.Partition)
	if err != nil {
		return FetchInfo{}, err
	}
	next, err := resolve(part, req.From, req.Isolation)
	if err != nil {
		return FetchInfo{}, err
	}
	f := fetching{b: b, topic: t, part: part, req: req, visit: visit, info: FetchInfo{NextOffset: next}}
	if err := f.more(); err != nil || f.enough() || req.Wait == 0 {
		return f.info, err
	}
	err = f.wait(ctx, c)
	return f.info, err
}

func (b *Broker) mayRead(ctx context.Context, c Caller, topic string) error {
	return b.authorizer.Authorize(ctx, c.Principal, auth.Access{Operation: metadata.OpRead, Resource: metadata.ResourceTopic, Name: topic, Host: c.Host})
}

// resolve turns a position into an offset between the log start and the log end.
func resolve(part *partition.Partition, at Position, iso Isolation) (model.Offset, error) {
	bounds := part.Bounds()
	limit := visibleEnd(bounds, iso)
	switch at.Kind {
	case Earliest:
		return bounds.LogStart, nil
	case Latest:
		return limit, nil
	case AtTime:
		off, _, found, err := part.OffsetForTimestamp(at.Value, limit)
		if err != nil || found {
			return off, err
		}
		return limit, nil
	}
	off := model.Offset(at.Value)
	if off < bounds.LogStart || off > bounds.LogEnd {
		return 0, outOfRange(off, bounds, limit)
	}
	return off, nil
}

func outOfRange(off model.Offset, bounds partition.Bounds, limit model.Offset) error {
	return model.Errorf(model.OffsetOutOfRange, "offset %d is not between the log start %d and the log end %d",
		off, bounds.LogStart, bounds.LogEnd).WithExtra("earliest", bounds.LogStart).WithExtra("latest", limit)
}

func visibleEnd(b partition.Bounds, iso Isolation) model.Offset {
	if iso == ReadUncommitted {
		return b.HighWatermark
	}
	return b.LastStable
}

// fetching is one Fetch under way.
type fetching struct {
	b     *Broker
	topic *topic
	part  *partition.Partition
	req   *FetchRequest
	visit Visit
	info  FetchInfo
	full  bool // a limit was reached
	left  int  // bytes of records that the filter left out
}

func (f *fetching) enough() bool {
	return f.full || f.info.Records > 0 && f.info.Bytes >= f.req.MinBytes
}

func (f *fetching) wait(ctx context.Context, c Caller) error {
	g := f.b.Guard(c, OnTopic(metadata.OpRead, f.topic.name))
	defer g.Close()
	f.part.Watch(g.watcher)
	defer f.part.Unwatch(g.watcher)
	deadline := time.NewTimer(f.req.Wait)
	defer deadline.Stop()
	if err := g.Check(ctx); err != nil { // what has ended before the guard was there
		return err
	}
	for {
		if err := f.part.Err(); err != nil {
			return err
		}
		if err := f.more(); err != nil || f.enough() {
			return err
		}
		select {
		case <-g.Changed():
		case <-deadline.C:
			return nil
		case <-f.b.draining:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := g.Check(ctx); err != nil {
			return err
		}
	}
}

// chunkBytes is how much is read from the log at once; batches are whole, so a read may
// bring more.
const chunkBytes = 256 << 10

// reader is the memory of one read; reads of small records allocate nothing.
type reader struct {
	buf     []byte
	it      record.Iterator
	inflate *record.Decompressor
}

var readers = sync.Pool{New: func() any {
	return &reader{buf: make([]byte, 0, chunkBytes+64<<10), inflate: record.NewDecompressor(record.MaxInflated)}
}}

// maxPooledBuffer bounds what the pool keeps.
const maxPooledBuffer = 4 << 20

// more reads from NextOffset to the visible end or a limit.
func (f *fetching) more() error {
	bounds := f.part.Bounds()
	limit := visibleEnd(bounds, f.req.Isolation)
	f.info.HighWatermark, f.info.LastStable, f.info.LogStart = bounds.HighWatermark, bounds.LastStable, bounds.LogStart
	if f.info.NextOffset >= limit {
		return nil
	}
	before, bytesBefore := f.info.Records, f.info.Bytes
	r := readers.Get().(*reader)
	r.inflate.Within(f.b.inflation)
	defer func() {
		r.inflate.Release()
		if cap(r.buf) <= maxPooledBuffer {
			readers.Put(r)
		}
		f.topic.rates.out(f.info.Records-before, f.info.Bytes-bytesBefore)
	}()
	defer func() { f.info.More = f.info.NextOffset < limit }()
	for f.info.NextOffset < limit && !f.full {
		chunk, err := f.part.Read(r.buf[:0], f.info.NextOffset, limit, min(chunkBytes, f.req.MaxBytes-f.info.Bytes+4096))
		if err != nil {
			return err
		}
		r.buf = chunk[:0]
		if len(chunk) == 0 { // nothing is stored up to the limit
			f.info.NextOffset = limit
			return nil
		}
		if err := f.batches(r, chunk, limit); err != nil {
			return err
		}
	}
	return nil
}

// batches visits the records of stored batches from NextOffset on.
func (f *fetching) batches(r *reader, chunk []byte, limit model.Offset) error {
	for len(chunk) > 0 && !f.full {
		batch, rest, err := record.ParseBatch(chunk)
		if err == nil {
			err = batch.VerifyCRC()
		}
		if err != nil {
			return f.damaged(err)
		}
		chunk = rest
		if !batch.Header.Attributes.Has(record.AttrControl) {
			if err := f.records(r, &batch, limit); err != nil {
				return err
			}
		}
		if !f.full {
			f.info.NextOffset = max(f.info.NextOffset, min(batch.Header.NextOffset(), limit))
		}
	}
	return nil
}

func (f *fetching) damaged(err error) error {
	return model.Errorf(model.StorageError, "partition %d of %q holds a damaged batch at or after offset %d",
		f.req.Partition, f.topic.name, f.info.NextOffset).WithCause(err)
}

func (f *fetching) records(r *reader, batch *record.Batch, limit model.Offset) error {
	if err := batch.Records(r.inflate, &r.it); err != nil {
		return f.damaged(err)
	}
	logAppendTime := batch.Header.Attributes.Has(record.AttrLogAppendTime)
	for r.it.Next() {
		rec := r.it.Record()
		if rec.Offset < f.info.NextOffset {
			continue
		}
		if rec.Offset >= limit {
			return nil
		}
		n := recordBytes(rec)
		if f.req.Filter != nil && !f.req.Filter.Match(rec) {
			f.info.NextOffset = rec.Offset + 1
			if f.left += n + 1; f.left >= scanBytes {
				f.full = true
				return nil
			}
			continue
		}
		if f.info.Records > 0 && f.info.Bytes+n > f.req.MaxBytes {
			f.full = true
			return nil
		}
		f.visit(rec, logAppendTime)
		f.info.Records++
		f.info.Bytes += n
		f.info.NextOffset = rec.Offset + 1
		if f.info.Records >= f.req.MaxRecords || f.info.Bytes >= f.req.MaxBytes {
			f.full = true
			return nil
		}
	}
	if err := r.it.Err(); err != nil {
		return f.damaged(err)
	}
	return nil
}
