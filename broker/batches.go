package broker

import (
	"context"
	"runtime"
	"time"

	"tidewire/auth"
	"tidewire/broker/partition"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
	"tidewire/storage/ingest"
	"tidewire/storage/record"
)

const (
	// inflateMemory is how much a node gives to the inflation of large batches at a time, of
	// all that it reads and is sent.
	inflateMemory = 96 << 20
	// maxBatchRecords is how many records a request of ready-made batches may have.
	maxBatchRecords = 1_000_000
)

// NewInflation is the memory that a node gives to the inflation of large batches.
func NewInflation() *record.Budget { return record.NewBudget(inflateMemory) }

// parallelInflation is how many batches of clients are inflated at a time: enough to keep the
// processors busy, few enough that other requests get their share.
func parallelInflation() int { return max(2, runtime.GOMAXPROCS(0)) }

// BatchRequest is one produce call of record batches that the client has made (RecordBatch
// v2), for one partition.
type BatchRequest struct {
	Topic     string
	Partition model.PartitionID
	// Batches are written into, and not referenced after ProduceBatches has returned.
	Batches []byte
	Acks    partition.Acks
	Timeout time.Duration // how long acks=all may take, and waiting for inflation
	// Expected is what the partition's log end must be; nil: anything.
	Expected *model.Offset
	// Timestamps asks for each record's timestamp in the result.
	Timestamps bool
	// IdempotencyKey stands for the request, which then is one batch without a producer id; "":
	// none.
	IdempotencyKey string
}

// BatchResult is where the records of a BatchRequest were stored, at consecutive offsets from
// Base on. It is valid during the call that it is given to.
type BatchResult struct {
	Partition  model.PartitionID
	Base       model.Offset
	Records    int
	AppendTime int64   // of every record, milliseconds; −1: each has its own
	Timestamps []int64 // of each record, where that was asked for and AppendTime is −1
	Warning    string  // what the producer should know, though the records were accepted
	Replayed   Replayed
}

// rules are what a topic asks of ready-made batches.
func (cfg *topicConfig) rules() ingest.Rules {
	r := ingest.Rules{
		MaxMessageBytes: cfg.MaxMessageBytes, Recompress: cfg.Recompress, Codec: cfg.Codec, Compact: cfg.Compact,
		LogAppendTime: cfg.LogAppendTime, BeforeMaxMs: cfg.TimestampBeforeMaxMs, AfterMaxMs: cfg.TimestampAfterMaxMs, OldMs: -1,
	}
	if cfg.Delete {
		r.OldMs = cfg.RetentionMs
	}
	return r
}

// ProduceBatches appends ready-made batches to one partition, all or none of them. They are
// stored as they came, but for offsets, leader epoch and what the topic's settings change.
// Batches of an idempotent producer that are there already give their first result again.
// use is called with the result.
//
// Errors, all but timeout, storage-error and not-enough-replicas-after-append for batches that
// were not applied: corrupt-batch, invalid-record, unsupported-compression, request-too-large;
// forbidden, unknown-topic, unknown-partition; record-too-large (stored, or inflated),
// invalid-timestamp, rate-limited (the user's quota), invalid-transaction-state (no transaction of this producer is open),
// out-of-order-sequence, fenced, unknown-producer, offset-mismatch, storage-full, leader-unavailable,
// not-enough-replicas.
func (b *Broker) ProduceBatches(ctx context.Context, c Caller, req *BatchRequest, use func(*BatchResult)) error {
	parsed, err := ingest.Parse(req.Batches, maxBatchRecords)
	if err != nil {
		return err
	}
	if err := b.authorizer.Authorize(ctx, c.Principal, auth.Access{Operation: metadata.OpWrite, Resource: metadata.ResourceTopic, Name: req.Topic, Host: c.Host}); err != nil {
		return err
	}
	t, part, err := b.batchTarget(ctx, req)
	if err != nil {
		return err
	}
	if req.IdempotencyKey != "" {
		return b.produceBatchOnce(ctx, c, &batchOnce{t: t, part: part, parsed: &parsed, req: req}, use)
	}
	if parsed.Transactional {
		return model.Errorf(model.InvalidTransactionState, "a batch is transactional, and its producer has no transaction open here")
	}
	if err := b.roomForRecords(); err != nil && part != nil {
		return err
	}
	checked := b.checked.Get(req.Timestamps)
	defer b.checked.Put(checked)
	if err := b.checkBatches(ctx, t, &parsed, req, checked); err != nil {
		return err
	}
	if err := b.takeProduce(c, len(req.Batches)); err != nil {
		return err
	}
	if part != nil {
		t.rates.inBatches(parsed.Records, checked.Payload)
		b.appended(len(checked.Bytes))
	}
	call := b.calls.Get().(*produceCall)
	b.submitBatches(call, t, part, req, partition.Slice{Batches: checked.Bytes, Count: parsed.Records, Acks: req.Acks, Expected: req.Expected})
	state, err := b.finishBatches(ctx, call, req)
	if err != nil {
		return err
	}
	res := BatchResult{Partition: req.Partition, Base: state.Base, Records: parsed.Records, AppendTime: state.AppendTime, Timestamps: checked.Timestamps}
	if checked.Old > 0 {
		res.Warning = b.warnOld(t, checked.Old, b.nowMs())
	}
	use(&res)
	return nil
}

// batchTarget finds the partition of ready-made batches: nil where another node leads it.
func (b *Broker) batchTarget(ctx context.Context, req *BatchRequest) (*topic, *partition.Partition, error) {
	t, err := b.topicWith(ctx, req.Topic, req.Partition)
	if err != nil {
		return nil, nil, err
	}
	at, err := b.placed(t, req.Partition)
	part, _ := at.(*partition.Partition)
	return t, part, err
}

// submitBatches hands one slice of ready-made batches to its partition; nil: which is away.
func (b *Broker) submitBatches(call *produceCall, t *topic, part *partition.Partition, req *BatchRequest, s partition.Slice) {
	call.reset(0, 0)
	call.slices = append(call.slices, s)
	call.parts = append(call.parts, part)
	call.done.Reset(1)
	if part == nil {
		call.ready = req.Partition
		b.send(call, t, &ProduceRequest{Acks: req.Acks, Timeout: req.Timeout})
		return
	}
	part.Submit(&call.slices[0], call.done)
}

// finishBatches waits for it, and gives what became of it.
func (b *Broker) finishBatches(ctx context.Context, call *produceCall, req *BatchRequest) (partition.State, error) {
	why := call.await(ctx, req.Acks, req.Timeout)
	if why == nil {
		b.away.ConfirmSlices(ctx, call.parts, call.slices)
		defer b.release(call)
	}
	state := call.state(0, why)
	if req.Acks == partition.AcksNone {
		return state, nil
	}
	return state, state.Err
}

// checkBatches looks at every record. A wait for inflation ends with the request's time.
func (b *Broker) checkBatches(ctx context.Context, t *topic, parsed *ingest.Request, req *BatchRequest, out *ingest.Result) error {
	ctx, cancel := context.WithTimeout(ctx, req.Timeout)
	defer cancel()
	rules := t.config.Load().rules()
	if err := b.ingest.Check(ctx, parsed, &rules, b.nowMs(), out); err != nil {
		return err
	}
	return nil
}
