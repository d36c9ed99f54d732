package broker

import (
	"context"

	"tidewire/auth"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// NewProducerID gives an id that nobody has, for an idempotent producer, whose first epoch
// is 0 (KIP-98). It needs idempotent-write on the cluster or write on any topic (KIP-679).
// Errors: forbidden, quorum-unavailable, and others of the quorum.
func (b *Broker) NewProducerID(ctx context.Context, c Caller) (model.ProducerID, error) {
	if err := b.mayBeProducer(ctx, c); err != nil {
		return 0, err
	}
	return b.producerIDs.Take(ctx)
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
