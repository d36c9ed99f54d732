package broker

import (
	"context"
	"strconv"
	"sync"
	"time"

	"tidewire/auth"
	"tidewire/broker/forward"
	"tidewire/broker/partition"
	"tidewire/broker/partitioner"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
	"tidewire/storage/dedupe"
	"tidewire/storage/record"
)

// NoTimestamp marks a record whose producer gave no timestamp; it gets the time of the
// request.
const NoTimestamp int64 = -1

// Routing says where the producer wants a record. The zero value leaves it to the key,
// and without one to the broker.
type Routing struct {
	Partition       model.PartitionID
	HasPartition    bool
	PartitionKey    []byte
	HasPartitionKey bool
}

// ProduceRequest is one produce call. Records and Routing are not referenced after Produce
// has returned.
type ProduceRequest struct {
	Topic   string
	Records []record.Record // Timestamp may be NoTimestamp
	Routing []Routing       // one of each record; or none, where all are the zero value
	Acks    partition.Acks
	Timeout time.Duration // how long acks=all may take

	// Sequence and Expected are for records of one partition, which are appended as one
	// batch; nil: none.
	Sequence *partition.Sequence
	// IdempotencyKey stands for the request, so that a repeat of it is stored once; "": none.
	IdempotencyKey string
	Expected       *model.Offset // what the log end must be, or nothing is appended

	// Stream says that the request is one of many of a call that lasts, which asks
	// ProduceDelay: it is counted in the user's quota, and not refused by it.
	Stream bool
	// Order keeps requests that do not wait for each other in their order, where another node
	// leads; nil: there is none.
	Order *forward.Order
}

// anyPartition is the routing of records that come without.
var anyPartition Routing

// to is the routing of the ith record.
func (req *ProduceRequest) to(i int32) *Routing {
	if len(req.Routing) == 0 {
		return &anyPartition
	}
	return &req.Routing[i]
}

// RecordResult is what became of one record. With Err set the other fields, except
// Partition, mean nothing.
type RecordResult struct {
	Partition model.PartitionID
	Offset    model.Offset
	Timestamp int64 // milliseconds, as stored
	Err       error
}

// ProduceResult has one result a record, in request order. Warning is not empty when
// the records were accepted and yet the producer should know something.
type ProduceResult struct {
	Results []RecordResult
	Failed  int
	Warning string
	// Replayed tells how much of the request an earlier one with its Idempotency-Key had stored.
	Replayed Replayed
}

// produceCall is the scratch space of one call; it is pooled.
type produceCall struct {
	result ProduceResult
	target []int32 // record → partition
	order  []int32 // record indexes grouped by partition, request order within each
	starts []int32 // partition → start in order
	slices []partition.Slice
	parts  []*partition.Partition
	away   []*forward.Slice  // by slice: what other nodes lead; empty: nothing
	ready  model.PartitionID // of ready-made batches
	done   *partition.Completion

	stamped int64 // the timestamp of records that came without
	once    partition.Once
}

func newProducePool() *sync.Pool {
	return &sync.Pool{New: func() any { return &produceCall{done: partition.NewCompletion(0)} }}
}

// Produce appends records to one topic. use is called with the result and may not keep
// it. An error means that nothing was applied, unless its outcome says otherwise;
// failures of single partitions are in the results.
//
// One partition's records are appended whole, at consecutive offsets and in request
// order, or refused whole. Errors: forbidden, unknown-topic, unknown-partition,
// invalid-argument (no key in a compacted topic), invalid-timestamp, record-too-large,
// rate-limited (the user's quota), storage-full, leader-unavailable, not-enough-replicas, timeout; with Sequence fenced,
// unknown-producer, out-of-order-sequence, invalid-transaction-state; with Expected
// offset-mismatch; with IdempotencyKey idempotency-key-reused, idempotency-in-progress,
// rate-limited.
func (b *Broker) Produce(ctx context.Context, c Caller, req *ProduceRequest, use func(*ProduceResult)) error {
	call, err := b.submit(ctx, c, req)
	if err != nil {
		return err
	}
	why := call.await(ctx, req.Acks, req.Timeout)
	if why == nil {
		b.away.ConfirmSlices(ctx, call.parts, call.slices)
		defer b.release(call)
	}
	call.fill(req, why)
	use(&call.result)
	return nil
}

func (b *Broker) submit(ctx context.Context, c Caller, req *ProduceRequest) (*produceCall, error) {
	if req.IdempotencyKey != "" {
		return b.submitOnce(ctx, c, req)
	}
	t, err := b.writable(ctx, c, req.Topic)
	if err != nil {
		return nil, err
	}
	call := b.calls.Get().(*produceCall)
	if err := b.prepare(ctx, call, t, req); err != nil {
		b.calls.Put(call)
		return nil, err
	}
	if b.quotas.On() {
		if err := b.countProduce(c, req); err != nil {
			b.calls.Put(call)
			return nil, err
		}
	}
	if err := b.append(call, t, req); err != nil {
		b.calls.Put(call)
		return nil, err
	}
	return call, nil
}

// append hands a call's slices to their partitions, here and away.
func (b *Broker) append(call *produceCall, t *topic, req *ProduceRequest) error {
	away := call.anyAway()
	full := b.roomForRecords()
	if full != nil && !away {
		return full
	}
	if !away {
		b.appended(t.rates.in(req.Records))
	}
	b.submitSlices(call, t, req, full)
	return nil
}

// Pending is a produce call that was submitted and is waited for elsewhere.
type Pending struct {
	b    *Broker
	call *produceCall
	req  *ProduceRequest
}

// Submit is Produce without the wait. The bytes that the records point at are not used
// after Submit has returned; req is until Result has. The request's Timeout is the
// caller's to keep.
func (b *Broker) Submit(ctx context.Context, c Caller, req *ProduceRequest) (*Pending, error) {
	call, err := b.submit(ctx, c, req)
	if err != nil {
		return nil, err
	}
	return &Pending{b, call, req}, nil
}

// Done receives once, when what became of every record is known.
func (p *Pending) Done() <-chan struct{} { return p.call.done.Done() }

// Result calls use with what became of the records; use may not keep it. Call it once:
// after Done has received, with a nil error, or to wait no longer, with the error that
// records get of which it is not known yet.
func (p *Pending) Result(why error, use func(*ProduceResult)) {
	p.call.fill(p.req, why)
	use(&p.call.result)
	if why == nil {
		p.b.release(p.call)
	}
}

// writable finds a topic that the caller may write to.
func (b *Broker) writable(ctx context.Context, c Caller, name string) (*topic, error) {
	q := auth.Access{Operation: metadata.OpWrite, Resource: metadata.ResourceTopic, Name: name, Host: c.Host}
	if err := b.authorizer.Authorize(ctx, c.Principal, q); err != nil {
		return nil, err
	}
	return b.topic(ctx, name)
}

// roomForRecords is storage-full while the disk has no room that records may take.
func (b *Broker) roomForRecords() error {
	if b.diskFull.Load() {
		return model.Errorf(model.StorageFull, "the disk has less free room than --disk-reserve; deleting topics or records makes room")
	}
	return nil
}

// prepare checks every record and finds its partition; nothing is applied yet.
func (b *Broker) prepare(ctx context.Context, call *produceCall, t *topic, req *ProduceRequest) error {
	a := t.admission(b.nowMs())
	call.stamped = a.now
	call.reset(len(req.Records), len(a.parts))
	for i := range req.Records {
		p, err := a.admit(i, &req.Records[i], req.to(int32(i)))
		if err != nil {
			return err
		}
		call.target[i] = p
	}
	if a.old > 0 {
		call.result.Warning = b.warnOld(t, a.old, a.now)
	}
	call.group(a.parts)
	return b.conditions(ctx, call, req, len(a.parts))
}

// conditions checks what comes with a producer's sequence or an expected offset, and hands
// it to the slice. n is the topic's number of partitions.
func (b *Broker) conditions(ctx context.Context, call *produceCall, req *ProduceRequest, n int) error {
	if req.Sequence == nil && req.Expected == nil {
		return nil
	}
	if len(call.slices) > 1 {
		return model.Errorf(model.InvalidArgument, "the records go to %d partitions; a sequence or an expected offset is for one, which the path may name", len(call.slices))
	}
	if q := req.Sequence; q != nil {
		if err := b.producerIDs.Given(ctx, q.ID); err != nil {
			return err
		}
	}
	s := &call.slices[0]
	if first := s.Select[0]; req.Sequence != nil && n > 1 && keyless(&req.Records[first], req.to(first)) {
		return model.Errorf(model.InvalidArgument, "a producer's sequence counts in one partition, and a record without key may go to any; name the partition in the path or in the record")
	}
	s.Plain, s.Sequence, s.Expected = false, req.Sequence, req.Expected
	return nil
}

// admission is what the records of one call are checked against: the topic as it is at one
// moment.
type admission struct {
	t     *topic
	cfg   *topicConfig
	parts []*partition.Partition
	now   int64 // milliseconds
	turn  int32 // takes the keyless records of the call, so that they stay together
	old   int   // records older than retention.ms that were admitted
}

func (t *topic) admission(now int64) admission {
	parts := *t.lead.Load()
	return admission{t: t, cfg: t.config.Load(), parts: parts, now: now, turn: t.turn(parts)}
}

// single is the index of a record whose errors point into itself, not into a list.
const single = -1

// admit checks the ith record of a call, gives it its timestamp, and finds its partition.
func (a *admission) admit(i int, r *record.Record, to *Routing) (int32, error) {
	cfg := a.cfg
	if cfg.LogAppendTime || r.Timestamp == NoTimestamp {
		r.Timestamp = a.now
	} else if err := checkTimestamp(cfg, i, r.Timestamp, a.now); err != nil {
		return 0, err
	}
	if r.Key == nil && cfg.Compact {
		return 0, recordError(model.InvalidArgument, i, "/key", "a topic with cleanup.policy=compact takes no record without key")
	}
	for j := range r.Headers {
		if dedupe.IsStamp(r.Headers[j].Name) {
			return 0, recordError(model.InvalidArgument, i, "/headers", "the header %s is written by nodes alone", dedupe.HeaderName)
		}
	}
	if size := largeSize(r, cfg.MaxMessageBytes); size > cfg.MaxMessageBytes {
		return 0, recordError(model.RecordTooLarge, i, "", "%s takes %d bytes, max.message.bytes is %d", recordName(i), size, cfg.MaxMessageBytes)
	}
	p, err := a.t.choose(r, to, len(a.parts), a.turn)
	if err == nil && cfg.Delete && cfg.RetentionMs >= 0 && r.Timestamp < a.now-cfg.RetentionMs {
		a.old++
	}
	return p, err
}

// largeSize is how large a batch of the record alone is, or 0 where a look at the lengths
// tells that it is not larger than limit.
func largeSize(r *record.Record, limit int) int {
	if record.HeaderSize+r.SizeBound() <= limit {
		return 0
	}
	return record.HeaderSize + record.RecordSize(0, 0, r.Key, r.Value, r.Headers)
}

// choose finds a record's partition; turn is the one that takes keyless records now.
func (t *topic) choose(r *record.Record, to *Routing, n int, turn int32) (int32, error) {
	switch {
	case to.HasPartition:
		if int(to.Partition) >= n || to.Partition < 0 {
			return 0, model.Errorf(model.UnknownPartition, "topic %q has partitions 0 to %d, not %d", t.name, n-1, to.Partition)
		}
		return int32(to.Partition), nil
	case to.HasPartitionKey:
		return int32(partitioner.ForKey(to.PartitionKey, n)), nil
	case r.Key != nil:
		return int32(partitioner.ForKey(r.Key, n)), nil
	}
	return turn, nil
}

// keyless tells a record whose partition the broker chooses.
func keyless(r *record.Record, to *Routing) bool {
	return !to.HasPartition && !to.HasPartitionKey && r.Key == nil
}

// warnInterval is how often one topic's old records are logged.
const warnInterval = 60_000

// warnOld says that records were accepted which retention may delete at once.
func (b *Broker) warnOld(t *topic, n int, now int64) string {
	t.rates.recordsOld.Add(int64(n))
	if last := t.warned.Load(); now-last >= warnInterval && t.warned.CompareAndSwap(last, now) {
		b.logger.Warn("records older than retention.ms were produced; retention may delete them soon", "topic", t.name, "records", n)
	}
	return OldWarning(n)
}

// OldWarning is what the producer of n records that are older than retention.ms is told.
func OldWarning(n int) string {
	return strconv.Itoa(n) + " records are older than retention.ms and may be deleted soon"
}

func checkTimestamp(cfg *topicConfig, i int, ts, now int64) error {
	if cfg.TimestampAfterMaxMs >= 0 && ts > now && ts-now > cfg.TimestampAfterMaxMs {
		return recordError(model.InvalidTimestamp, i, "/timestamp",
			"timestamp %d is more than message.timestamp.after.max.ms=%d ahead of this node's clock", ts, cfg.TimestampAfterMaxMs)
	}
	if cfg.TimestampBeforeMaxMs >= 0 && ts < now && now-ts > cfg.TimestampBeforeMaxMs {
		return recordError(model.InvalidTimestamp, i, "/timestamp",
			"timestamp %d is more than message.timestamp.before.max.ms=%d behind this node's clock", ts, cfg.TimestampBeforeMaxMs)
	}
	return nil
}

func (call *produceCall) reset(records, partitions int) {
	call.target = resize(call.target, records)
	call.prepared(records, partitions)
}

// prepared makes room for what follows once the targets are known.
func (call *produceCall) prepared(records, partitions int) {
	call.result.Results = resize(call.result.Results, records)
	call.result.Failed, call.result.Warning, call.result.Replayed = 0, "", ReplayedNone
	call.order = resize(call.order, records)
	call.starts = resize(call.starts, partitions+1)
	clear(call.starts)
	call.slices = call.slices[:0]
	call.parts = call.parts[:0]
	call.away = call.away[:0]
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// group sorts record indexes by partition, stably, and makes a slice for each one hit.
func (call *produceCall) group(parts []*partition.Partition) {
	if p, one := call.onePartition(); one {
		for i := range call.order {
			call.order[i] = int32(i)
		}
		call.slices = append(call.slices, partition.Slice{Select: call.order, Plain: true})
		call.parts = append(call.parts, parts[p])
		return
	}
	for _, p := range call.target {
		call.starts[p+1]++
	}
	hit := 0
	for p := range parts {
		if call.starts[p+1] > 0 {
			hit++
		}
		call.starts[p+1] += call.starts[p]
	}
	call.slices = resize(call.slices, hit)
	k := 0
	for p, part := range parts {
		from, to := call.starts[p], call.starts[p+1]
		if from == to {
			continue
		}
		call.slices[k] = partition.Slice{Select: call.order[from:from:to], Plain: true}
		call.parts = append(call.parts, part)
		call.starts[p] = int32(k)
		k++
	}
	for i, p := range call.target {
		s := &call.slices[call.starts[p]]
		s.Select = append(s.Select, int32(i))
	}
}

// onePartition tells which partition has all records, if one does.
func (call *produceCall) onePartition() (int32, bool) {
	if len(call.target) == 0 {
		return 0, false
	}
	first := call.target[0]
	for _, p := range call.target[1:] {
		if p != first {
			return 0, false
		}
	}
	return first, true
}

// anyAway tells whether some slices are for partitions that are not open here.
func (call *produceCall) anyAway() bool {
	for _, p := range call.parts {
		if p == nil {
			return true
		}
	}
	return false
}

// submitSlices submits a call. full is why nothing is to be appended on this node; nil: it is.
func (b *Broker) submitSlices(call *produceCall, t *topic, req *ProduceRequest, full error) {
	call.done.Reset(len(call.slices))
	away := false
	for k := range call.slices {
		s := &call.slices[k]
		first := s.Select[0]
		s.Records, s.Acks = req.Records, req.Acks
		s.Keyless = keyless(&req.Records[first], req.to(first))
		away = away || call.parts[k] == nil
	}
	if away {
		b.submitAway(call, t, req, full)
		return
	}
	for k := range call.slices {
		call.parts[k].Submit(&call.slices[k], call.done)
	}
}

// submitAway submits a call of which something is away: that goes first.
func (b *Broker) submitAway(call *produceCall, t *topic, req *ProduceRequest, full error) {
	b.send(call, t, req)
	for k, p := range call.parts {
		switch s := &call.slices[k]; {
		case p == nil:
		case full != nil:
			s.Err, call.parts[k] = full, nil
			call.done.Discount(1)
		default:
			n := 0
			for _, i := range s.Select {
				n += recordBytes(&s.Records[i])
			}
			t.rates.inBatches(len(s.Select), n)
			b.appended(n)
			p.Submit(s, call.done)
		}
	}
}

// await waits for the slices and returns nil, or why it waits no longer: then partitions still
// hold slices, and the call's memory must not be used again.
func (call *produceCall) await(ctx context.Context, acks partition.Acks, timeout time.Duration) error {
	if acks != partition.AcksAll {
		<-call.done.Done()
		return nil
	}
	select { // most are done at once under write caching, or soon: spare the timer
	case <-call.done.Done():
		return nil
	default:
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-call.done.Done():
		return nil
	case <-timer.C:
		return NotInTime(timeout)
	case <-ctx.Done():
		return model.Errorf(model.Timeout, "the client went away before the records were committed").WithCause(context.Cause(ctx))
	}
}

// fill writes each record's result. With why set, slices that have not ended get it.
func (call *produceCall) fill(req *ProduceRequest, why error) {
	replayed := 0
	for k := range call.slices {
		s, state := &call.slices[k], call.state(k, why)
		if s.Once != nil && state.Duplicate {
			replayed++
		}
		call.result.Replayed = replayedOf(replayed, k+1)
		if state.Err != nil {
			call.result.Failed += len(s.Select)
		}
		for j, i := range s.Select {
			res, ts := &call.result.Results[i], state.AppendTime
			if ts < 0 {
				ts = req.Records[i].Timestamp
			}
			if state.Duplicate && call.stamped == req.Records[i].Timestamp {
				ts = state.StoredTime // this request's time is not the record's
			}
			*res = RecordResult{Partition: model.PartitionID(call.target[i]), Err: state.Err}
			if state.Err == nil {
				res.Offset, res.Timestamp = state.Base+model.Offset(j), ts
			}
		}
	}
}

// state is what became of a slice; with why set, one that has not ended gets it.
func (call *produceCall) state(k int, why error) partition.State {
	s := &call.slices[k]
	state := partition.State{Done: true, Base: s.Base, AppendTime: s.AppendTime, Duplicate: s.Duplicate, StoredTime: s.StoredTime, Err: s.Err}
	if why != nil && call.parts[k] != nil {
		state = call.parts[k].Abandon(s)
	}
	if len(call.away) > 0 && call.away[k] != nil {
		if state = call.away[k].State(); !state.Done && state.Err != nil {
			why = state.Err // the leader waits no longer
		}
	}
	switch {
	case !state.Done && s.Once != nil && state.Duplicate:
		state.Err = inProgress()
	case !state.Done:
		state.Err = why
	}
	return state
}

func (b *Broker) release(call *produceCall) {
	clear(call.slices)
	clear(call.parts)
	clear(call.away)
	if cap(call.result.Results) <= maxPooledRecords {
		b.calls.Put(call)
	}
}

// maxPooledRecords bounds what the pool keeps, so that one huge request does not pin
// its memory for ever.
const maxPooledRecords = 16 << 10
