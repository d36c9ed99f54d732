package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"tidewire/internal/budget"
	"tidewire/internal/model"
	"tidewire/storage/dedupe"
	"tidewire/storage/record"
	"tidewire/storage/visible"
)

// fetching is one read under way.
type fetching struct {
	b        *Broker
	topic    *topic
	part     source
	req      *FetchRequest
	owner    string        // who the memory is for
	patience time.Duration // how long to wait for memory; 0: as long as it takes
	visit    Visit         // nil: only count
	caller   Caller        // whose rights are looked at while a long read goes on
	checked  time.Time     // when that was done last
	guard    *Guard        // of reads that take long; nil until then
	info     FetchInfo
	full     bool // a limit was reached
	// uncounted reads are the service's own and do not show in the topic's rates.
	uncounted bool
	left      int // bytes of records that the request's filter left out
	cut       int // bytes of records beyond what a preview shows
	filter    visible.Filter
}

// Memory of reads, in bytes.
const (
	// chunkBytes is how much is read from the log at once; batches are whole, so a read may
	// bring more.
	chunkBytes = 256 << 10
	// plainMemory is what a read takes that meets nothing unusual: its chunk, a batch that
	// reaches beyond it, and what the visitor gathers before it writes.
	plainMemory = chunkBytes + plainBatch + 128<<10
	plainBatch  = 128 << 10
	// inflated bounds what a compressed batch may inflate to at first, and inflating is what
	// that takes with the codec's own buffers.
	inflated  = 4 << 20
	inflating = 12 << 20
	// maxInflated bounds what one stored batch may inflate to at all. Few at a time get so
	// much.
	maxInflated = record.MaxInflated
	// outFactor is how much longer a record may be in JSON, where all is escaped.
	outFactor = 6
	// plainRecord is the largest record that the visitor's usual memory holds.
	plainRecord = 64 << 10 / outFactor
)

// memoryPatience is how long a call waits for memory before it is refused.
const memoryPatience = 5 * time.Second

// reader is the memory of one read; reads of small records allocate nothing.
type reader struct {
	buf     []byte
	it      record.Iterator
	inflate *record.Decompressor

	grant *budget.Grant
	large bool  // inflate takes batches up to maxInflated
	batch int64 // bytes of the largest batch, beyond plainBatch
	codec int64 // bytes for inflating
	out   int64 // bytes for the longest record as the visitor gives it
}

var readers = sync.Pool{New: func() any {
	return &reader{buf: make([]byte, 0, chunkBytes+plainBatch), inflate: record.NewDecompressor(inflated)}
}}

// maxPooledBuffer bounds what the pool keeps.
const maxPooledBuffer = 1 << 20

// lacksMemory says how much a read must have to go on.
type lacksMemory struct{ need int64 }

func (*lacksMemory) Error() string { return "the read needs more memory" }

// reserve makes sure that the grant covers what the reader is about to use.
func (r *reader) reserve() error {
	need := plainMemory + r.batch + r.codec + r.out
	have := r.grant.Bytes()
	if need <= have || r.grant.Alone() || r.grant.Grow(need-have) {
		return nil
	}
	return &lacksMemory{need}
}

// more reads from NextOffset to the visible end or a limit. It takes memory for a usual read;
// one that turns out to need more, and cannot have it at once, ends at its limit, or, when it
// has nothing yet, begins again with as much as it needs: nobody waits who holds something.
func (f *fetching) more(ctx context.Context) error {
	before := f.info.Records
	for need := int64(plainMemory); ; {
		if !f.ahead() {
			return nil
		}
		grant, err := f.b.memory.Take(ctx, f.owner, need, f.patience)
		if err != nil {
			return err
		}
		err = f.read(ctx, grant, need)
		grant.Release()
		var lacks *lacksMemory
		switch {
		case err == nil:
			return nil
		case !errors.As(err, &lacks) && !model.HasCode(err, model.StorageError):
			return err
		case f.visit != nil && f.info.Records > before:
			f.full, f.info.End = true, AtLimit // the next read tells why
			return nil
		case lacks == nil:
			return err
		}
		need = lacks.need
	}
}

// ahead notes the partition's offsets and tells whether there is something to read.
func (f *fetching) ahead() bool {
	bounds := f.part.Bounds()
	f.info.HighWatermark, f.info.LastStable, f.info.LogStart = bounds.HighWatermark, bounds.LastStable, bounds.LogStart
	f.filter = f.filterOf(visibleEnd(bounds, f.req.Isolation))
	return f.info.NextOffset < f.filter.To && !f.full
}

// filterOf tells which batches below limit the read sees.
func (f *fetching) filterOf(limit model.Offset) visible.Filter {
	filter := visible.Filter{To: limit}
	if f.req.Isolation == ReadCommitted {
		filter.Aborted = f.part.AbortedTransactions
	}
	return filter
}

// read reads with the memory granted.
func (f *fetching) read(ctx context.Context, grant *budget.Grant, need int64) error {
	records, bytes := f.info.Records, f.info.Bytes
	r := readers.Get().(*reader)
	r.grant, r.batch, r.codec, r.out = grant, 0, 0, 0
	if r.large = need > plainMemory+maxInflated; r.large {
		r.inflate = record.NewDecompressor(maxInflated)
	}
	r.inflate.Within(f.b.inflation)
	defer func() {
		r.inflate.Release()
		if r.grant = nil; r.large {
			r.inflate = record.NewDecompressor(inflated)
		}
		if cap(r.buf) <= maxPooledBuffer {
			readers.Put(r)
		}
		if f.visit != nil && !f.uncounted {
			f.topic.rates.out(f.info.Records-records, f.info.Bytes-bytes)
		}
	}()
	limit := f.filter.To
	for f.info.NextOffset < limit && !f.full {
		if err := f.stopped(ctx); err != nil || f.full {
			return err
		}
		chunk, err := f.chunk(r, limit)
		if err != nil {
			return err
		}
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

// stopped ends a read whose client is gone or may not go on, or whose node is about to stop.
// The first chunk of a read is always given.
func (f *fetching) stopped(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if now := f.b.now(); f.visit != nil && f.caller.Principal != nil && now.Sub(f.checked).Abs() >= recheck {
		if !f.checked.IsZero() {
			if err := f.mayGoOn(ctx); err != nil {
				return err
			}
		}
		f.checked = now
	}
	select {
	case <-f.b.draining:
		if f.info.Records > 0 && f.visit != nil {
			f.full, f.info.End = true, AtStop
		}
	default:
	}
	return nil
}

// recheck is how often a read that takes long looks at whether it may go on.
const recheck = 500 * time.Millisecond

// mayGoOn tells whether partition, credential and rights are still there.
func (f *fetching) mayGoOn(ctx context.Context) error {
	if err := f.part.Err(); err != nil {
		return err
	}
	return f.guards().Check(ctx)
}

// chunk reads some batches, at least one if there is one. A batch too large for the memory
// at hand is found out before it is read.
func (f *fetching) chunk(r *reader, limit model.Offset) ([]byte, error) {
	first, ok, err := f.part.First(f.info.NextOffset, limit)
	if err != nil || !ok {
		return nil, err
	}
	size := int64(first.Size())
	if r.batch < size-plainBatch {
		r.batch = size - plainBatch
		if err := r.reserve(); err != nil {
			return nil, err
		}
	}
	chunk, err := f.part.Read(r.buf[:0], f.info.NextOffset, limit, min(chunkBytes, f.req.MaxBytes-f.info.Bytes+4096))
	if err == nil {
		r.buf = chunk[:0]
	}
	return chunk, err
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
		hidden, err := f.filter.Hides(&batch.Header)
		if err != nil {
			return err
		}
		if !hidden {
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

// open begins a batch's records. A compressed batch takes memory of its own, one that
// inflates far a lot, which is asked for only once that is known.
func (f *fetching) open(r *reader, batch *record.Batch) error {
	if batch.Header.Attributes.Codec() != record.None && r.codec == 0 {
		r.codec = inflating
		if err := r.reserve(); err != nil {
			return err
		}
	}
	err := batch.Records(r.inflate, &r.it)
	if model.HasCode(err, model.RecordTooLarge) && !r.large {
		return &lacksMemory{plainMemory + r.batch + r.out + maxInflated + inflating}
	}
	if err != nil {
		return f.damaged(err)
	}
	r.inflate.Settle()
	return nil
}

func (f *fetching) records(r *reader, batch *record.Batch, limit model.Offset) error {
	if err := f.open(r, batch); err != nil {
		return err
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
		rec.Headers = dedupe.Visible(&batch.Header, rec)
		n := recordBytes(rec)
		if f.req.Filter != nil && !f.req.Filter.Match(rec) {
			f.info.NextOffset = rec.Offset + 1
			if f.left += n + 1; f.left >= scanBytes {
				f.full, f.info.End = true, AtLimit
				return nil
			}
			continue
		}
		if f.req.Preview {
			whole := n
			n = previewBytes(rec, f.req.PreviewBytes)
			f.cut += whole - n
		}
		if (f.info.Records > 0 || f.req.Strict) && f.info.Bytes+n > f.req.MaxBytes {
			f.full, f.info.End = true, AtLimit
			return nil
		}
		if err := f.give(r, rec, logAppendTime); err != nil {
			return err
		}
		f.info.Records++
		f.info.Bytes += n
		f.info.NextOffset = rec.Offset + 1
		if f.info.Records >= f.req.MaxRecords || f.info.Bytes >= f.req.MaxBytes || f.cut >= previewScan {
			f.full, f.info.End = true, AtLimit
			return nil
		}
	}
	if err := r.it.Err(); err != nil {
		return f.damaged(err)
	}
	return nil
}

// give visits a record once there is memory for what the visitor makes of it.
func (f *fetching) give(r *reader, rec *record.Record, logAppendTime bool) error {
	if f.visit == nil {
		return nil
	}
	if n := int64(recordBytes(rec)); n > plainRecord && r.out < n*outFactor {
		r.out = n * outFactor
		if err := r.reserve(); err != nil {
			return err
		}
	}
	f.visit(rec, logAppendTime)
	return nil
}
