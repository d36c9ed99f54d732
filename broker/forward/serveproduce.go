package forward

import (
	"context"
	"sync"
	"time"

	"tidewire/broker/partition"
	"tidewire/cluster/peer"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// records is the memory of a request's records.
type records struct {
	list    []record.Record
	headers []record.Header
	order   []int32
}

var recordPool = sync.Pool{New: func() any { return new(records) }}

// maxPooled bounds what the pool keeps, in records.
const maxPooled = 64 << 10

func (r *records) free() {
	if cap(r.list) > maxPooled || cap(r.headers) > maxPooled {
		return
	}
	clear(r.list)
	clear(r.headers)
	r.list, r.headers, r.order = r.list[:0], r.headers[:0], r.order[:0]
	recordPool.Put(r)
}

// unpack reads the records of batches that another node has made. They point into b.
func (r *records) unpack(b []byte, count int) error {
	if count < 0 || count > len(b) { // a record takes some bytes
		return malformed(nil)
	}
	var it record.Iterator
	for len(b) > 0 {
		batch, rest, err := record.ParseBatch(b)
		if err != nil {
			return malformed(err)
		}
		if batch.Header.Attributes.Codec() != record.None {
			return malformed(nil)
		}
		if err := batch.Records(nil, &it); err != nil {
			return malformed(err)
		}
		for it.Next() {
			rec := *it.Record()
			if n := len(rec.Headers); n > 0 { // the iterator uses its memory again
				at := len(r.headers)
				r.headers = append(r.headers, rec.Headers...)
				rec.Headers = r.headers[at : at+n : at+n]
			}
			r.list = append(r.list, rec)
		}
		if err := it.Err(); err != nil {
			return malformed(err)
		}
		b = rest
	}
	if len(r.list) != count {
		return malformed(nil)
	}
	for i := range r.list {
		r.order = append(r.order, int32(i))
	}
	return nil
}

// receiving is a produce request that is being served.
type receiving struct {
	s      server
	q      produceRequest
	slices []partition.Slice
	parts  []*partition.Partition
	memory []*records
	done   *partition.Completion
}

func (s server) produce(ctx context.Context, r peer.Request) ([]byte, error) {
	x := &receiving{s: s}
	body, err := split(r.Payload, &x.q)
	if err != nil {
		return nil, err
	}
	x.slices = make([]partition.Slice, len(x.q.Slices))
	x.parts = make([]*partition.Partition, len(x.q.Slices))
	x.done = partition.NewCompletion(len(x.slices))
	defer func() {
		for _, m := range x.memory {
			m.free()
		}
	}()
	refused := map[Key]error{}
	for i := range x.q.Slices {
		h := &x.q.Slices[i]
		if h.Bytes < 0 || h.Bytes > len(body) {
			return nil, malformed(nil)
		}
		err := refused[h.Key]
		if err == nil {
			err = x.take(ctx, i, body[:h.Bytes:h.Bytes])
		}
		if err != nil {
			if notTaken(err) { // what is sent again must not come behind what follows it here
				refused[h.Key] = err
			}
			x.slices[i].Err = err
			x.parts[i] = nil
			x.done.Discount(1)
		}
		body = body[h.Bytes:]
	}
	if why := x.await(ctx); why != nil {
		x.memory = nil // partitions hold slices still
		return x.answer(why)
	}
	x.s.c.ConfirmSlices(ctx, x.parts, x.slices)
	return x.answer(nil)
}

// take submits a slice. An error says that it was not.
func (x *receiving) take(ctx context.Context, i int, body []byte) error {
	h, s := &x.q.Slices[i], &x.slices[i]
	p, err := x.s.l.Led(ctx, h.Key, h.Epoch)
	if err != nil {
		return err
	}
	if h.Once == nil {
		err = x.s.l.Room()
	}
	if err != nil {
		return err
	}
	*s = partition.Slice{
		Acks: x.q.Acks, Plain: h.Plain, Keyless: h.Keyless, Whole: h.Whole, Sequence: h.Sequence, Expected: h.Expected,
		Within: &h.Epoch, Count: h.Count,
	}
	if h.Ready {
		s.Batches = body
	} else {
		m := recordPool.Get().(*records)
		if err := m.unpack(body, h.Count); err != nil {
			return err
		}
		s.Records, s.Select = m.list, m.order
		x.memory = append(x.memory, m)
	}
	if h.Once != nil {
		if err := x.once(p, h, s); err != nil {
			return err
		}
	}
	x.s.l.Took(h.Key, h.Count, len(body))
	x.parts[i] = p
	p.Submit(s, x.done)
	return nil
}

// once makes a slice stored once. What speaks against it counts only where it is not there yet.
func (x *receiving) once(p *partition.Partition, h *sliceHead, s *partition.Slice) error {
	s.Once = &partition.Once{Stamp: h.Once.Stamp, Refusal: h.Once.Refusal.Err}
	if err := p.BeginKeys(); err != nil && s.Once.Refusal == nil {
		s.Once.Refusal = err
	}
	if err := x.s.l.Room(); err != nil && s.Once.Refusal == nil {
		s.Once.Refusal = err
	}
	return nil
}

// await waits for the slices; it returns why it waits no longer.
func (x *receiving) await(ctx context.Context) error {
	if x.q.Acks != partition.AcksAll {
		<-x.done.Done()
		return nil
	}
	timer := time.NewTimer(time.Duration(x.q.WaitMs) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-x.done.Done():
		return nil
	case <-timer.C:
		return model.Errorf(model.Timeout, "the records were not committed in time")
	case <-ctx.Done():
		return model.Errorf(model.Timeout, "the records were not committed in time").WithCause(context.Cause(ctx))
	}
}

func (x *receiving) answer(why error) ([]byte, error) {
	a := produceAnswer{Results: make([]sliceResult, len(x.slices))}
	for i := range x.slices {
		s := &x.slices[i]
		state := partition.State{Done: true, Base: s.Base, AppendTime: s.AppendTime, Duplicate: s.Duplicate, StoredTime: s.StoredTime, Err: s.Err}
		if why != nil && x.parts[i] != nil {
			state = x.parts[i].Abandon(s)
		}
		if !state.Done {
			state.Err = why
		}
		a.Results[i] = sliceResult{
			Done: state.Done, Base: state.Base, AppendTime: state.AppendTime, Duplicate: state.Duplicate, StoredTime: state.StoredTime, Fault: Fault{state.Err},
		}
	}
	return join(a)
}
