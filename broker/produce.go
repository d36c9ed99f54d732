package broker

import (
	"context"
	"strconv"
	"sync"
	"tidewire/auth"
	"time"

	"tidewire/broker/partition"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
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

// ProduceRequest is one produce call. Records and Routing have the same length, and are
// not referenced after Produce has returned.
type ProduceRequest struct {
	Topic   string
	Records []record.Record // Timestamp may be NoTimestamp
	Routing []Routing
	Acks    partition.Acks
	Timeout time.Duration // how long acks=all may take
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
}

// produceCall is the scratch space of one call; it is pooled.
type produceCall struct {
	result ProduceResult
	target []int32 // record → partition
	order  []int32 // record indexes grouped by partition, request order within each
	starts []int32 // partition → start in order
	slices []partition.Slice
	parts  []*partition.Partition
	done   *partition.Completion
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
// storage-full, leader-unavailable, not-enough-replicas, timeout.
func (b *Broker) Produce(ctx context.Context, c Caller, req *ProduceRequest, use func(*ProduceResult)) error {
	if err := b.authorizer.Authorize(ctx, c.Principal, auth.Access{Operation: metadata.OpWrite, Resource: metadata.ResourceTopic, Name: req.Topic, Host: c.Host}); err != nil {
		return err
	}
	t, err := b.topic(ctx, req.Topic)
	if err != nil {
		return err
	}
	if err := b.roomForRecords(); err != nil {
		return err
	}
	call := b.calls.Get().(*produceCall)
	if err := b.prepare(call, t, req); err != nil {
		b.calls.Put(call)
		return err
	}
	b.appended(t.rates.in(req.Records))
	call.submit(t, req)
	why := call.await(ctx, req.Acks, req.Timeout)
	call.fill(req, why)
	use(&call.result)
	if why == nil {
		b.release(call)
	}
	return nil
}

// roomForRecords is storage-full while the disk has no room that records may take.
func (b *Broker) roomForRecords() error {
	if b.diskFull.Load() {
		return model.Errorf(model.StorageFull, "the disk has less free room than --disk-reserve; deleting topics or records makes room")
	}
	return nil
}

// prepare checks every record and finds its partition; nothing is applied yet.
func (b *Broker) prepare(call *produceCall, t *topic, req *ProduceRequest) error {
	cfg := t.config.Load()
	parts := *t.parts.Load()
	n := len(parts)
	now := b.nowMs()
	turn := int32(t.sticky.Load() % uint32(n)) // once, so that a request's keyless records stay together
	old := 0
	call.reset(len(req.Records), n)
	for i := range req.Records {
		r, to := &req.Records[i], &req.Routing[i]
		if cfg.LogAppendTime || r.Timestamp == NoTimestamp {
			r.Timestamp = now
		} else if err := checkTimestamp(cfg, i, r.Timestamp, now); err != nil {
			return err
		}
		if cfg.Delete && cfg.RetentionMs >= 0 && r.Timestamp < now-cfg.RetentionMs {
			old++
		}
		if r.Key == nil && cfg.Compact {
			return recordError(model.InvalidArgument, i, "/key", "a topic with cleanup.policy=compact takes no record without key")
		}
		if size := record.HeaderSize + record.RecordSize(0, 0, r.Key, r.Value, r.Headers); size > cfg.MaxMessageBytes {
			return recordError(model.RecordTooLarge, i, "", "record %d takes %d bytes, max.message.bytes is %d", i, size, cfg.MaxMessageBytes)
		}
		p, err := t.choose(r, to, n, turn)
		if err != nil {
			return err
		}
		call.target[i] = p
	}
	if old > 0 {
		call.result.Warning = b.warnOld(t, old, now)
	}
	call.group(parts)
	return nil
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
		return int32(PartitionForKey(to.PartitionKey, n)), nil
	case r.Key != nil:
		return int32(PartitionForKey(r.Key, n)), nil
	}
	return turn, nil
}

// warnInterval is how often one topic's old records are logged.
const warnInterval = 60_000

// warnOld says that records were accepted which retention may delete at once.
func (b *Broker) warnOld(t *topic, n int, now int64) string {
	t.rates.recordsOld.Add(int64(n))
	if last := t.warned.Load(); now-last >= warnInterval && t.warned.CompareAndSwap(last, now) {
		b.logger.Warn("records older than retention.ms were produced; retention may delete them soon", "topic", t.name, "records", n)
	}
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
	call.result.Results = resize(call.result.Results, records)
	call.result.Failed, call.result.Warning = 0, ""
	call.target = resize(call.target, records)
	call.order = resize(call.order, records)
	call.starts = resize(call.starts, partitions+1)
	clear(call.starts)
	call.slices = call.slices[:0]
	call.parts = call.parts[:0]
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// group sorts record indexes by partition, stably, and makes a slice for each one hit.
func (call *produceCall) group(parts []*partition.Partition) {
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

func (call *produceCall) submit(t *topic, req *ProduceRequest) {
	call.done.Reset(len(call.slices))
	for k := range call.slices {
		s := &call.slices[k]
		first := s.Select[0]
		to := &req.Routing[first]
		s.Records, s.Acks = req.Records, req.Acks
		s.Keyless = !to.HasPartition && !to.HasPartitionKey && req.Records[first].Key == nil
		if call.parts[k] == nil {
			s.Err = t.notOpen(call.target[first])
			call.done.Discount(1)
			continue
		}
		call.parts[k].Submit(s, call.done)
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
		return model.Errorf(model.Timeout, "the records were not committed within %s; they may still be", timeout)
	case <-ctx.Done():
		return model.Errorf(model.Timeout, "the client went away before the records were committed").WithCause(context.Cause(ctx))
	}
}

// fill writes each record's result. With why set, slices that have not ended get it.
func (call *produceCall) fill(req *ProduceRequest, why error) {
	for k := range call.slices {
		s, state := &call.slices[k], call.state(k, why)
		for j, i := range s.Select {
			res := RecordResult{Partition: model.PartitionID(call.target[i]), Err: state.Err}
			if state.Err != nil {
				call.result.Failed++
			} else {
				res.Offset = state.Base + model.Offset(j)
				res.Timestamp = state.AppendTime
				if res.Timestamp < 0 {
					res.Timestamp = req.Records[i].Timestamp
				}
			}
			call.result.Results[i] = res
		}
	}
}

// state is what became of a slice; with why set, one that has not ended gets it.
func (call *produceCall) state(k int, why error) partition.State {
	s := &call.slices[k]
	state := partition.State{Done: true, Base: s.Base, AppendTime: s.AppendTime, Err: s.Err}
	if why != nil && call.parts[k] != nil {
		state = call.parts[k].Abandon(s)
	}
	if !state.Done {
		state.Err = why
	}
	return state
}

func (b *Broker) release(call *produceCall) {
	clear(call.slices)
	clear(call.parts)
	if cap(call.result.Results) <= maxPooledRecords {
		b.calls.Put(call)
	}
}

// maxPooledRecords bounds what the pool keeps, so that one huge request does not pin
// its memory for ever.
const maxPooledRecords = 16 << 10
