package broker

import (
	"context"

	"tidewire/auth"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// producerIDBlock is how many producer ids a node takes from the quorum at a time, as
// Kafka's brokers do (KIP-730). What a stopping node has not given out is lost.
const producerIDBlock = 1000

// producerIDs are the ids that this node may give out.
type producerIDs struct {
	turn  chan struct{} // holds the turn of who may look at the rest
	next  model.ProducerID
	until model.ProducerID // the first id behind the block
}

func newProducerIDs() producerIDs {
	p := producerIDs{turn: make(chan struct{}, 1)}
	p.turn <- struct{}{}
	return p
}

// NewProducerID gives an id that nobody has, for an idempotent producer, whose first epoch
// is 0 (KIP-98). It needs idempotent-write on the cluster or write on any topic (KIP-679).
// Errors: forbidden, quorum-unavailable, and others of the quorum.
func (b *Broker) NewProducerID(ctx context.Context, c Caller) (model.ProducerID, error) {
	if err := b.mayBeProducer(ctx, c); err != nil {
		return 0, err
	}
	p := &b.producerIDs
	select {
	case <-p.turn:
	case <-ctx.Done():
		return 0, model.Errorf(model.QuorumUnavailable, "no producer id could be had in time").WithCause(ctx.Err())
	}
	defer func() { p.turn <- struct{}{} }()
	if p.next == p.until {
		if err := b.takeProducerIDs(ctx); err != nil {
			return 0, err
		}
	}
	p.next++
	return p.next - 1, nil
}

func (b *Broker) mayBeProducer(ctx context.Context, c Caller) error {
	q := auth.Access{Operation: metadata.OpIdempotentWrite, Resource: metadata.ResourceCluster, Name: metadata.ClusterResource, Host: c.Host}
	if b.authorizer.Allowed(c.Principal, q) {
		return nil
	}
	for t := range b.meta.Image().Topics("") {
		w := auth.Access{Operation: metadata.OpWrite, Resource: metadata.ResourceTopic, Name: t.Name, Host: c.Host}
		if b.authorizer.Allowed(c.Principal, w) {
			return nil
		}
	}
	return b.authorizer.Authorize(ctx, c.Principal, q)
}

// takeProducerIDs gets the next block; the caller has the turn.
func (b *Broker) takeProducerIDs(ctx context.Context) error {
	self := b.meta.Image().Broker(b.nodeID)
	if self == nil {
		return model.Errorf(model.QuorumUnavailable, "this node is not registered yet")
	}
	res, err := b.meta.Propose(ctx, metadata.AllocateProducerIDs{Broker: b.nodeID, Epoch: self.Epoch, Size: producerIDBlock})
	if err != nil {
		return err
	}
	block, ok := res.Value.(metadata.ProducerIDBlock)
	if !ok || block.Size < 1 {
		return model.Errorf(model.Internal, "the quorum gave no producer ids")
	}
	b.producerIDs.next, b.producerIDs.until = block.First, block.First+model.ProducerID(block.Size)
	return nil
}
