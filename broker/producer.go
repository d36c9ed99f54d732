package broker

import (
	"context"
	"time"

	"tidewire/broker/forward"
	"tidewire/broker/partition"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// Producer is the way into one topic of a client that stays connected: its records go in
// batches, of which several may be under way, and each partition keeps their order. It pins
// the topic by its id, so that one that was deleted and created anew ends it. Only one
// goroutine at a time may use it and its batches.
type Producer struct {
	b     *Broker
	t     *topic
	acks  partition.Acks
	guard *Guard
	order forward.Order
}

// OpenProducer finds a topic for a caller who may write to it. Close must be called.
// Errors: forbidden, unknown-topic, storage-full, leader-unavailable.
func (b *Broker) OpenProducer(ctx context.Context, c Caller, topic string, acks partition.Acks) (*Producer, error) {
	t, err := b.writable(ctx, c, topic)
	if err != nil {
		return nil, err
	}
	return &Producer{b: b, t: t, acks: acks, guard: b.Guard(c, OnTopic(metadata.OpWrite, topic))}, nil
}

// Close ends the producer; batches under way are not ended by it.
func (p *Producer) Close() { p.guard.Close() }

// Changed receives when there may be a reason to end; Check tells.
func (p *Producer) Changed() <-chan struct{} { return p.guard.Changed() }

// Check tells whether the producer may go on: the token must not have ended, the right
// must still be there and the topic too. Errors: those of Guard.Check.
func (p *Producer) Check(ctx context.Context) error {
	if err := p.guard.Check(ctx); err != nil {
		return err
	}
	if p.b.meta.Image().TopicByID(p.t.id) == nil {
		return unknownTopic(p.t.name)
	}
	return nil
}

// HasPartition tells whether the topic has a partition; the error is unknown-partition.
func (p *Producer) HasPartition(id model.PartitionID) error {
	_, err := p.t.choose(nil, &Routing{Partition: id, HasPartition: true}, len(*p.t.parts.Load()), 0)
	return err
}

// MaxMessageBytes is the topic's limit of a batch, and so of a record in it.
func (p *Producer) MaxMessageBytes() int { return p.t.config.Load().MaxMessageBytes }

// Batch holds records of a Producer that are submitted together. Begin, Add, Submit and
// Result come in this order; what the records point at may change once Submit has
// returned.
type Batch struct {
	p    *Producer
	call *produceCall
	req  ProduceRequest
	adm  admission
}

// NewBatch returns an empty batch, which is to be used again and again.
func (p *Producer) NewBatch() *Batch {
	return &Batch{p: p, req: ProduceRequest{Acks: p.acks, Order: &p.order}}
}

// Begin empties the batch and looks at the topic anew.
func (b *Batch) Begin() {
	b.adm = b.p.t.admission(b.p.b.nowMs())
	b.req.Records, b.req.Routing = b.req.Records[:0], b.req.Routing[:0]
	if b.call == nil {
		b.call = &produceCall{done: partition.NewCompletion(0)}
	}
	b.call.target = b.call.target[:0]
}

// Add checks a record and takes it into the batch, or tells why not; pointers in the error
// begin at the record. Errors: those of Produce about records, unknown-partition,
// storage-full.
func (b *Batch) Add(r *record.Record, to *Routing) error {
	target, err := b.adm.admit(single, r, to)
	if err == nil && b.adm.parts[target] != nil {
		err = b.p.b.roomForRecords()
	}
	if err != nil {
		return err
	}
	b.req.Records = append(b.req.Records, *r)
	b.req.Routing = append(b.req.Routing, *to)
	b.call.target = append(b.call.target, target)
	return nil
}

// Len is the number of records in the batch.
func (b *Batch) Len() int { return len(b.req.Records) }

// Submit appends the records, each partition's in their order and behind those of every
// batch submitted before. It waits for no sync. old is the number of records that are older
// than retention.ms; see OldWarning.
func (b *Batch) Submit() (old int) {
	t, call := b.p.t, b.call
	call.prepared(len(b.req.Records), len(b.adm.parts))
	if b.adm.old > 0 {
		b.p.b.warnOld(t, b.adm.old, b.adm.now)
	}
	call.group(b.adm.parts)
	n := 0
	if call.anyAway() {
		for i := range b.req.Records {
			n += recordBytes(&b.req.Records[i])
		}
	} else {
		n = t.rates.in(b.req.Records)
		b.p.b.appended(n)
	}
	b.p.b.chargeProduce(b.p.guard.caller, n)
	b.p.b.submitSlices(call, t, &b.req, nil)
	return b.adm.old
}

// Done receives once, when what became of every record is known. An empty batch must not
// be waited for.
func (b *Batch) Done() <-chan struct{} { return b.call.done.Done() }

// Result tells what became of each record. Call it once: after Done has received, with a
// nil error, or to wait no longer, with the error that records get of which it is not known
// yet. It is valid until Begin.
func (b *Batch) Result(why error) *ProduceResult {
	b.call.fill(&b.req, why)
	res := &b.call.result
	if why != nil {
		b.call = nil // partitions may still hold slices of it
		b.req = ProduceRequest{Acks: b.p.acks, Order: &b.p.order}
	}
	return res
}

// NotInTime is the error for Result of a batch that was not committed within its time.
func NotInTime(timeout time.Duration) error {
	return model.Errorf(model.Timeout, "the records were not committed within %s; they may still be", timeout)
}
