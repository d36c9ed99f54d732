package ingest

import (
	"context"
	"errors"
	"sync"

	"tidewire/internal/model"
	"tidewire/storage/record"
)

// Rules are what a topic asks of the batches of its clients. Times are milliseconds.
type Rules struct {
	MaxMessageBytes int          // of one batch as it is stored
	Recompress      bool         // compression.type names a codec
	Codec           record.Codec // which
	Compact         bool         // every record needs a key
	LogAppendTime   bool         // the time of the append replaces timestamps, which may be anything
	BeforeMaxMs     int64        // message.timestamp.before.max.ms; −1: unlimited
	AfterMaxMs      int64        // message.timestamp.after.max.ms; −1: unlimited
	OldMs           int64        // what is older is counted; −1: nothing
}

// Request is what Parse found in a request: what it alone shows.
type Request struct {
	Batches       int
	Records       int
	Transactional bool // some batch is
	Idempotent    bool // some batch has a producer id
	bytes         []byte
}

// Parse checks frames, checksums and headers of one or more whole batches. Nothing is
// inflated. The bytes belong to the Request until Check. Errors: CorruptBatch,
// InvalidRecord, InvalidTimestamp (a batch that claims the broker's time),
// UnsupportedCompression, RequestTooLarge (more than maxRecords records).
func Parse(b []byte, maxRecords int) (Request, error) {
	q := Request{bytes: b}
	for rest := b; len(rest) > 0; q.Batches++ {
		batch, more, err := record.ParseBatch(rest)
		if errors.Is(err, record.ErrShort) {
			err = model.Errorf(model.CorruptBatch, "batch %d is cut short", q.Batches)
		}
		if err != nil {
			return q, err
		}
		if err := batch.VerifyCRC(); err != nil {
			return q, err
		}
		if err := checkHeader(&batch.Header); err != nil {
			return q, err
		}
		if q.Records += int(batch.Header.Count); q.Records > maxRecords {
			return q, model.Errorf(model.RequestTooLarge, "a request takes at most %d records", maxRecords)
		}
		q.Idempotent = q.Idempotent || batch.Header.ProducerID >= 0
		q.Transactional = q.Transactional || batch.Header.Attributes.Has(record.AttrTransactional)
		rest = more
	}
	if q.Batches == 0 {
		return q, model.Errorf(model.CorruptBatch, "there is no record batch")
	}
	return q, nil
}

// Result is what Check made of a request. It is reused with its memory.
type Result struct {
	Bytes      []byte  // whole batches to append: the request's own, or others
	Payload    int     // bytes of keys, values and headers
	Old        int     // records older than Rules.OldMs
	Timestamps []int64 // of each record, where they are kept and not replaced

	keepTimestamps bool
	changed        bool // some batch is not as it came
	made           []byte
	scan           scanner
}

// makes is how many bytes of batches made anew a request may come to, where it has not so
// many itself: many small batches could become as many large ones.
const makes = 4 << 20

// store takes a batch to append. before are those of the request that come first.
func (r *Result) store(before, batch []byte, limit int) error {
	if len(r.made)+len(batch) > limit {
		return model.Errorf(model.RequestTooLarge, "the batches take more than %d bytes under the topic's compression.type; send fewer at a time", limit)
	}
	if !r.changed {
		r.changed = true
		r.made = append(r.made[:0], before...)
	}
	r.made = append(r.made, batch...)
	return nil
}

// Reset makes a result ready for another request; timestamps says whether to keep them.
func (r *Result) Reset(timestamps bool) {
	const keep = 1 << 20
	if cap(r.made) > keep {
		r.made = nil
	}
	if cap(r.Timestamps) > keep/8 {
		r.Timestamps = nil
	}
	*r = Result{Timestamps: r.Timestamps[:0], keepTimestamps: timestamps, made: r.made[:0], scan: scanner{own: r.scan.own}}
}

// Pool checks requests, inflating the batches of a few at a time. It is safe for concurrent
// use.
type Pool struct {
	slots chan *slot
	limit int // of what a batch may inflate to
}

// slot is what it takes to inflate a batch, and to make another of it.
type slot struct {
	inflate *record.Decompressor
	deflate record.Deflater
}

// NewPool returns one that inflates so many batches at a time, within a budget.
func NewPool(parallel int, budget *record.Budget) *Pool {
	return newPool(parallel, budget, record.MaxInflated)
}

func newPool(parallel int, budget *record.Budget, limit int) *Pool {
	p := &Pool{slots: make(chan *slot, parallel), limit: limit}
	for range parallel {
		p.slots <- &slot{inflate: record.NewDecompressor(limit).Within(budget)}
	}
	return p
}

// Check looks at every record of a request under a topic's rules and puts what to append
// into out. It may write into the request's bytes. now is in milliseconds. Errors:
// InvalidRecord, InvalidTimestamp, CorruptBatch (compressed data that does not inflate),
// RecordTooLarge (a batch is above max.message.bytes, before or after recompression, or
// inflates to more than record.MaxInflated), LeaderUnavailable (ctx ended while others were inflated).
func (p *Pool) Check(ctx context.Context, q *Request, rules *Rules, now int64, out *Result) error {
	first := 0
	for rest := q.bytes; len(rest) > 0; {
		batch, more, err := record.ParseBatch(rest)
		if err != nil {
			return err
		}
		if n := len(batch.Bytes); n > rules.MaxMessageBytes {
			return model.Errorf(model.RecordTooLarge, "a batch has %d bytes; the topic takes at most %d (max.message.bytes)", n, rules.MaxMessageBytes)
		}
		c := checking{
			s: &out.scan, rules: rules, h: &batch.Header, now: now, first: first, out: out,
			before: q.bytes[:len(q.bytes)-len(rest)], whole: len(q.bytes),
		}
		if err := p.checkBatch(ctx, &batch, &c); err != nil {
			return err
		}
		first += int(batch.Header.Count)
		rest = more
	}
	if out.Bytes = q.bytes; out.changed {
		out.Bytes = out.made
	}
	return nil
}

func (p *Pool) checkBatch(ctx context.Context, batch *record.Batch, c *checking) error {
	records := batch.Bytes[record.HeaderSize:]
	codec := batch.Header.Attributes.Codec()
	anew := c.rules.Recompress && c.rules.Codec != codec &&
		len(records) <= p.limit // else the batch could not be read again
	if codec == record.None && !anew {
		c.s.reset(records)
		c.limit = int64(len(records))
		if err := c.finish(batch); err != nil {
			return err
		}
		return c.keep(batch)
	}
	var s *slot
	select {
	case s = <-p.slots:
	case <-ctx.Done():
		return model.Errorf(model.LeaderUnavailable, "the request's time ended while it waited for the batches of others to be inflated").
			WithCause(context.Cause(ctx))
	}
	defer func() {
		s.inflate.Release()
		p.slots <- s
	}()
	c.limit = int64(p.limit)
	return c.clientFault(c.inflated(s, batch, anew))
}

// inflated checks a batch as a stream and, if it is to be made anew, does that by the way.
func (c *checking) inflated(s *slot, batch *record.Batch, anew bool) error {
	src, err := s.inflate.Stream(batch.Header.Attributes.Codec(), batch.Bytes[record.HeaderSize:])
	if err != nil {
		return err
	}
	if !anew {
		c.s.resetStream(src, nil)
		if err := c.finish(batch); err != nil {
			return err
		}
		return c.keep(batch)
	}
	if err := s.deflate.Begin(c.rules.Codec, c.rules.MaxMessageBytes); err != nil {
		return err
	}
	c.s.resetStream(src, &s.deflate)
	if err := c.finish(batch); err != nil {
		return err
	}
	made, err := s.deflate.Finish(c.h)
	if err != nil {
		return err
	}
	return c.out.store(c.before, made, max(makes, c.whole, c.rules.MaxMessageBytes))
}

// keep stores a batch as it came.
func (c *checking) keep(batch *record.Batch) error {
	if !c.out.changed {
		return nil // as long as all are, they are the request's own bytes
	}
	return c.out.store(c.before, batch.Bytes, max(makes, c.whole, c.rules.MaxMessageBytes))
}

// clientFault is an error of inflation as one of the client: the checksum fitted.
func (c *checking) clientFault(err error) error {
	if !model.HasCode(err, model.CorruptBatch) {
		return err
	}
	e := *model.AsError(err)
	e.Code = model.InvalidRecord
	return &e
}

// finish looks at the records and puts a wrong largest timestamp right.
func (c *checking) finish(batch *record.Batch) error {
	if err := c.records(); err != nil {
		return err
	}
	if !c.rules.LogAppendTime && c.h.MaxTimestamp != c.maxTs {
		c.h.MaxTimestamp = c.maxTs
		record.SetMaxTimestamp(batch.Bytes, c.maxTs)
	}
	return nil
}

// Results are the memory of results, for reuse.
type Results struct{ pool sync.Pool }

// Get returns an empty result.
func (r *Results) Get(timestamps bool) *Result {
	x, ok := r.pool.Get().(*Result)
	if !ok {
		x = new(Result)
	}
	x.Reset(timestamps)
	return x
}

// Put takes a result back.
func (r *Results) Put(x *Result) { r.pool.Put(x) }
