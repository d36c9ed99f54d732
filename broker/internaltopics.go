package broker

import (
	"context"
	"time"

	"tidewire/broker/partition"
	"tidewire/cluster/metadata"
	"tidewire/cluster/placement"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// InternalTopic is a topic of the service itself, which is made when it is first written to.
// Config is that of its making; administrators may change it.
type InternalTopic struct {
	Name       string
	Partitions int // 0: one
	Config     map[string]string
}

// EnsureInternal makes an internal topic where there is none, and waits for this node to serve
// what it holds of it. Errors: those of the quorum, leader-unavailable, and conflict where a
// topic of a user has the name.
func (b *Broker) EnsureInternal(ctx context.Context, topic InternalTopic) error {
	_, err := b.internalTopic(ctx, topic)
	return err
}

// internalTimeout bounds how long records of the service wait for their replicas.
const internalTimeout = 5 * time.Second

// AppendInternal appends records of the service itself, with acks=all; nobody's rights are
// looked at, and no quota. The records are not kept. Errors: those of Produce, and conflict
// where a topic of a user has the name.
func (b *Broker) AppendInternal(ctx context.Context, topic InternalTopic, records []record.Record) error {
	t, err := b.internalTopic(ctx, topic)
	if err != nil {
		return err
	}
	req := &ProduceRequest{Topic: topic.Name, Records: records, Routing: make([]Routing, len(records)), Acks: partition.AcksAll, Timeout: internalTimeout}
	call := b.calls.Get().(*produceCall)
	if err := b.prepare(ctx, call, t, req); err != nil {
		b.calls.Put(call)
		return err
	}
	if err := b.append(call, t, req); err != nil {
		b.calls.Put(call)
		return err
	}
	why := call.await(ctx, req.Acks, internalTimeout)
	call.fill(req, why)
	for i := range call.result.Results {
		if err = call.result.Results[i].Err; err != nil {
			break
		}
	}
	if why == nil {
		b.release(call)
	}
	return err
}

// internalTopic finds the topic, and makes it where there is none: on one node of several
// that come at once.
func (b *Broker) internalTopic(ctx context.Context, want InternalTopic) (*topic, error) {
	if b.meta.Image().Topic(want.Name) == nil {
		if err := b.createInternal(ctx, want); err != nil && !model.HasCode(err, model.TopicExists) {
			return nil, err
		}
	}
	t, err := b.topic(ctx, want.Name)
	if err != nil {
		return nil, err
	}
	if m := b.meta.Image().Topic(want.Name); m != nil && !m.Internal {
		return nil, model.Errorf(model.Conflict, "%q is a topic of a user", want.Name)
	}
	return t, nil
}

func (b *Broker) createInternal(ctx context.Context, topic InternalTopic) error {
	assign, err := b.assign(ctx, max(topic.Partitions, 1), min(naturalReplicas, len(placement.Members(b.meta.Image()))))
	if err != nil {
		return err
	}
	_, err = propose[*metadata.Topic](ctx, b.meta, metadata.CreateTopic{
		Name: topic.Name, Internal: true, Assignments: assign, Config: topic.Config, Now: metadata.MillisOf(b.now()), ID: model.NewTopicID(),
	})
	return err
}
