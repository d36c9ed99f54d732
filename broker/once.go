package broker

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math"
	"sync"
	"time"

	"tidewire/auth"
	"tidewire/broker/partition"
	"tidewire/broker/partitioner"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
	"tidewire/storage/dedupe"
	"tidewire/storage/ingest"
	"tidewire/storage/record"
)

// Replayed tells how much of a request an earlier one with its Idempotency-Key had stored.
type Replayed uint8

// How much was there.
const (
	ReplayedNone Replayed = iota
	ReplayedPart          // some partitions' records; the others were appended
	ReplayedAll
)

func replayedOf(n, of int) Replayed {
	switch n {
	case 0:
		return ReplayedNone
	case of:
		return ReplayedAll
	}
	return ReplayedPart
}

// inProgress is the error of a repeat that waits no longer for what the first request has
// appended.
func inProgress() *model.Error {
	return model.Errorf(model.IdempotencyInProgress, "a request with this Idempotency-Key is still under way; the same request later gives its result")
}

// inFlight holds the keys of requests that look for what is there and append the rest: one
// of a key at a time, since a request is several partitions'. What was appended is then found
// in the logs, and waited for there.
type inFlight struct {
	mu   sync.Mutex
	keys map[dedupe.Key]chan struct{} // guarded by mu: closed when the request has appended
}

// enter waits until no other request of the key is there. leave lets the next one in.
func (f *inFlight) enter(ctx context.Context, k dedupe.Key, timeout time.Duration) (leave func(), err error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		f.mu.Lock()
		other, busy := f.keys[k]
		if !busy {
			mine := make(chan struct{})
			if f.keys == nil {
				f.keys = map[dedupe.Key]chan struct{}{}
			}
			f.keys[k] = mine
			f.mu.Unlock()
			return func() {
				f.mu.Lock()
				delete(f.keys, k)
				f.mu.Unlock()
				close(mine)
			}, nil
		}
		f.mu.Unlock()
		select {
		case <-other:
		case <-timer.C:
			return nil, inProgress()
		case <-ctx.Done():
			return nil, inProgress().WithCause(context.Cause(ctx))
		}
	}
}

// submitOnce is submit of a request with an Idempotency-Key.
func (b *Broker) submitOnce(ctx context.Context, c Caller, req *ProduceRequest) (*produceCall, error) {
	t, err := b.onceTopic(ctx, c, req.Topic)
	if err != nil {
		return nil, err
	}
	call := b.calls.Get().(*produceCall)
	call.once = partition.Once{Stamp: dedupe.Stamp{Key: dedupe.KeyOf(c.user(), req.IdempotencyKey), Payload: payloadOf(req), Time: b.nowMs()}}
	leave, err := t.once.enter(ctx, call.once.Key, req.Timeout)
	if err == nil {
		defer leave()
		err = b.prepareOnce(ctx, call, t, req, c.user())
	}
	if err != nil {
		b.calls.Put(call)
		return nil, err
	}
	if call.once.Refusal == nil && !call.anyAway() {
		b.appended(t.rates.in(req.Records))
	}
	b.submitSlices(call, t, req, nil)
	return call, nil
}

// onceTopic finds a topic that the caller may write to and that remembers keys. Whether it
// takes records now matters only to those that are not there yet.
func (b *Broker) onceTopic(ctx context.Context, c Caller, name string) (*topic, error) {
	q := auth.Access{Operation: metadata.OpWrite, Resource: metadata.ResourceTopic, Name: name, Host: c.Host}
	if err := b.authorizer.Authorize(ctx, c.Principal, q); err != nil {
		return nil, err
	}
	t, err := b.topic(ctx, name)
	if err != nil {
		return nil, err
	}
	if t.config.Load().DedupeWindowMs == 0 {
		return nil, model.Invalid("header:Idempotency-Key", "topic %q has dedupe.window.ms=0, so that no key is remembered", name)
	}
	return t, nil
}

// findKey looks for a key in every partition. The payload must be the same.
func (b *Broker) findKey(ctx context.Context, t *topic, o *partition.Once) (e dedupe.Entry, found bool, err error) {
	e, found, missing, err := t.find(o)
	if missing < 0 || err != nil {
		return e, found, err
	}
	entries, asked := b.keysAway(ctx, t, o.Key)
	for _, x := range entries {
		if e, found = x, true; x.Payload != o.Payload {
			return x, true, partition.KeyReused()
		}
	}
	if !found && !asked && t.grown(o.Time) {
		// The first try may have been stored there, by fewer partitions than there are now.
		return e, false, t.notOpen(int32(missing))
	}
	return e, found, nil
}

// find is findKey of the partitions that this node leads; missing is one that could not be
// asked, or −1.
func (t *topic) find(o *partition.Once) (e dedupe.Entry, found bool, missing int, err error) {
	missing = -1
	for i, p := range *t.lead.Load() {
		if p == nil {
			missing = i
			continue
		}
		x, ok, err := p.FindKey(o.Key)
		switch {
		case err != nil:
			missing = i
		case ok && x.Payload != o.Payload:
			return x, true, missing, partition.KeyReused()
		case ok:
			e, found = x, true
		}
	}
	return e, found, missing, nil
}

// grown reports whether the topic may have got partitions within the window.
func (t *topic) grown(now int64) bool {
	return now-t.grownAt.Load() < t.config.Load().DedupeWindowMs
}

// prepareOnce is prepare for a request with a key: its records get the partitions that they
// got the first time, and what speaks against them counts only where they are not there yet.
func (b *Broker) prepareOnce(ctx context.Context, call *produceCall, t *topic, req *ProduceRequest, user string) error {
	o := &call.once
	first, found, err := b.findKey(ctx, t, o)
	if err != nil {
		return err
	}
	refuse := func(err error) error {
		if found && o.Refusal == nil {
			o.Refusal, err = err, nil
		} else if found {
			err = nil
		}
		return err
	}
	if err := b.roomForRecords(); err != nil && refuse(err) != nil {
		return err
	}
	a := t.admission(o.Time)
	all := a.parts
	if n := int(first.Partitions); found && n < len(a.parts) {
		a.parts = a.parts[:n]
	}
	o.Partitions = int32(len(a.parts))
	a.turn = int32(partitioner.ForKey(append([]byte(user), req.IdempotencyKey...), len(a.parts)))
	call.stamped = a.now
	call.reset(len(req.Records), len(all))
	for i := range req.Records {
		p, err := a.admit(i, &req.Records[i], req.to(int32(i)))
		if err != nil {
			if err := refuse(err); err != nil {
				return err
			}
			if p, err = t.choose(&req.Records[i], req.to(int32(i)), len(a.parts), a.turn); err != nil {
				return err
			}
		}
		call.target[i] = p
	}
	if a.old > 0 && !found {
		call.result.Warning = b.warnOld(t, a.old, a.now)
	}
	call.group(all)
	return b.readyOnce(ctx, call, req, refuse)
}

// readyOnce looks at the slices as a whole, and makes the logs ready for them.
func (b *Broker) readyOnce(ctx context.Context, call *produceCall, req *ProduceRequest, refuse func(error) error) error {
	if err := b.conditions(ctx, call, req, len(call.starts)-1); err != nil {
		return err
	}
	for k := range call.slices {
		s, p := &call.slices[k], call.parts[k]
		s.Plain, s.Once = false, &call.once
		if p == nil {
			continue
		}
		err := p.BeginKeys()
		if limit := p.Settings().MaxMessageBytes; err == nil && !oneBatch(req, s.Select, limit) {
			err = partition.NotOneBatch(limit)
		}
		if err != nil {
			if err := refuse(err); err != nil {
				return err
			}
		}
	}
	return nil
}

// oneBatch reports whether records fit into one batch of a size.
func oneBatch(req *ProduceRequest, sel []int32, limit int) bool {
	size, base := record.HeaderSize, req.Records[sel[0]].Timestamp
	for j, i := range sel {
		r := &req.Records[i]
		if size += record.RecordSize(int32(j), r.Timestamp-base, r.Key, r.Value, r.Headers); size > limit {
			return false
		}
	}
	return true
}

// batchOnce is a batch of a client that comes with an Idempotency-Key.
type batchOnce struct {
	t      *topic
	part   *partition.Partition
	parsed *ingest.Request
	req    *BatchRequest
}

// produceBatchOnce is ProduceBatches of a request with an Idempotency-Key. Its batch gets the
// stamp that records get, and is else stored as it came.
func (b *Broker) produceBatchOnce(ctx context.Context, c Caller, x *batchOnce, use func(*BatchResult)) error {
	req := x.req
	t, err := b.onceTopic(ctx, c, req.Topic)
	if err != nil {
		return err
	}
	if x.parsed.Batches > 1 || x.parsed.Idempotent {
		return model.Invalid("header:Idempotency-Key", "an Idempotency-Key is for one batch without a producer id; batches of an idempotent producer are stored once by themselves")
	}
	call := b.calls.Get().(*produceCall)
	call.once = partition.Once{Stamp: dedupe.Stamp{Key: dedupe.KeyOf(c.user(), req.IdempotencyKey), Payload: batchPayload(req), Time: b.nowMs(), Partitions: int32(len(*t.parts.Load()))}}
	checked := b.checked.Get(req.Timestamps)
	defer b.checked.Put(checked)
	if err := b.submitBatchOnce(ctx, call, x, checked); err != nil {
		b.calls.Put(call)
		return err
	}
	replayed := call.slices[0].Duplicate
	state, err := b.finishBatches(ctx, call, req)
	if err != nil {
		return err
	}
	res := BatchResult{Partition: req.Partition, Base: state.Base, Records: x.parsed.Records, AppendTime: state.AppendTime, Timestamps: checked.Timestamps}
	if replayed {
		res.Replayed = ReplayedAll
	} else if checked.Old > 0 {
		res.Warning = b.warnOld(t, checked.Old, b.nowMs())
	}
	use(&res)
	return nil
}

func (b *Broker) submitBatchOnce(ctx context.Context, call *produceCall, x *batchOnce, checked *ingest.Result) error {
	leave, err := x.t.once.enter(ctx, call.once.Key, x.req.Timeout)
	if err != nil {
		return err
	}
	defer leave()
	_, found, err := b.findKey(ctx, x.t, &call.once)
	if err != nil {
		return err
	}
	s := partition.Slice{Count: x.parsed.Records, Acks: x.req.Acks, Expected: x.req.Expected, Once: &call.once}
	if found {
		// It is there already: what speaks against it now does not matter.
		rules := ingest.Rules{MaxMessageBytes: math.MaxInt, BeforeMaxMs: -1, AfterMaxMs: -1, OldMs: -1, LogAppendTime: x.t.config.Load().LogAppendTime}
		s.Batches, call.once.Refusal = x.req.Batches, inProgress() // should its window end right now
		err = b.ingest.Check(ctx, x.parsed, &rules, b.nowMs(), checked)
	} else {
		s.Batches, err = b.stampBatch(ctx, call, x, checked)
	}
	if err != nil {
		return err
	}
	b.submitBatches(call, x.t, x.part, x.req, s)
	return nil
}

// stampBatch checks a client's batch and gives it its stamp.
func (b *Broker) stampBatch(ctx context.Context, call *produceCall, x *batchOnce, checked *ingest.Result) ([]byte, error) {
	if err := b.checkBatches(ctx, x.t, x.parsed, x.req, checked); err != nil {
		return nil, err
	}
	if x.part != nil { // else its leader sees to that
		if err := cmp.Or(b.roomForRecords(), x.part.BeginKeys()); err != nil {
			return nil, err
		}
		b.appended(len(checked.Bytes))
	}
	stamp := call.once.Stamp
	stamp.Count = int32(x.parsed.Records)
	return dedupe.Attach(checked.Bytes, &stamp, b.inflation, x.t.config.Load().MaxMessageBytes+dedupe.Overhead)
}

// batchPayload stands for a batch of a client, but for what the log sets in it.
func batchPayload(req *BatchRequest) dedupe.Digest {
	d := digester{h: sha256.New()}
	d.number(int64(req.Partition))
	d.bytes(record.Content(req.Batches))
	return d.sum()
}

// payloadOf stands for what a request wants stored and where.
func payloadOf(req *ProduceRequest) dedupe.Digest {
	d := digester{h: sha256.New()}
	for i := range req.Records {
		r, to := &req.Records[i], req.to(int32(i))
		d.number(r.Timestamp)
		d.optional(to.HasPartition, int64(to.Partition))
		if d.optional(to.HasPartitionKey, int64(len(to.PartitionKey))); to.HasPartitionKey {
			d.b = append(d.b, to.PartitionKey...)
		}
		d.bytes(r.Key)
		d.bytes(r.Value)
		d.number(int64(len(r.Headers)))
		for j := range r.Headers {
			d.bytes(r.Headers[j].Name)
			d.bytes(r.Headers[j].Value)
		}
	}
	return d.sum()
}

// digester hashes fields so that no two lists of them look the same.
type digester struct {
	h hash.Hash
	b []byte
}

func (d *digester) number(n int64) {
	if len(d.b) >= 4<<10 {
		d.flush()
	}
	d.b = binary.BigEndian.AppendUint64(d.b, uint64(n))
}

func (d *digester) optional(has bool, n int64) {
	if !has {
		n = -1
	}
	d.number(n)
}

func (d *digester) bytes(b []byte) {
	d.optional(b != nil, int64(len(b)))
	d.flush()
	_, _ = d.h.Write(b) // never fails (hash.Hash)
}

func (d *digester) flush() {
	_, _ = d.h.Write(d.b) // as above
	d.b = d.b[:0]
}

func (d *digester) sum() (out dedupe.Digest) {
	d.flush()
	copy(out[:], d.h.Sum(nil))
	return out
}
