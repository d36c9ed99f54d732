// Package producerids gives out the ids of idempotent producers (KIP-98, 730): a node takes a
// block of them from the quorum at a time, and gives them one by one.
package producerids

import (
	"context"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// blockSize is how many ids a node takes at a time, as Kafka's brokers do. What a stopping node
// has not given out is lost.
const blockSize = 1000

// Metadata is what is needed of the cluster.
type Metadata interface {
	Image() *metadata.Image
	Propose(ctx context.Context, cmd metadata.Command) (metadata.Result, error)
	Barrier(ctx context.Context) error
}

// IDs are those that this node may give out. It is safe for concurrent use.
type IDs struct {
	self model.BrokerID
	meta Metadata

	turn  chan struct{} // holds the turn of who may look at the rest
	next  model.ProducerID
	until model.ProducerID // the first id behind the block
}

// New returns one that has no block yet.
func New(self model.BrokerID, m Metadata) *IDs {
	p := &IDs{self: self, meta: m, turn: make(chan struct{}, 1)}
	p.turn <- struct{}{}
	return p
}

// Take gives an id that nobody has. Errors: quorum-unavailable, and others of the quorum.
func (p *IDs) Take(ctx context.Context) (model.ProducerID, error) {
	select {
	case <-p.turn:
	case <-ctx.Done():
		return 0, model.Errorf(model.QuorumUnavailable, "no producer id could be had in time").WithCause(ctx.Err())
	}
	defer func() { p.turn <- struct{}{} }()
	if p.next == p.until {
		if err := p.take(ctx); err != nil {
			return 0, err
		}
	}
	p.next++
	return p.next - 1, nil
}

// take gets the next block; the caller has the turn.
func (p *IDs) take(ctx context.Context) error {
	self := p.meta.Image().Broker(p.self)
	if self == nil {
		return model.Errorf(model.QuorumUnavailable, "this node is not registered yet")
	}
	res, err := p.meta.Propose(ctx, metadata.AllocateProducerIDs{Broker: p.self, Epoch: self.Epoch, Size: blockSize})
	if err != nil {
		return err
	}
	block, ok := res.Value.(metadata.ProducerIDBlock)
	if !ok || block.Size < 1 {
		return model.Errorf(model.Internal, "the quorum gave no producer ids")
	}
	p.next, p.until = block.First, block.First+model.ProducerID(block.Size)
	return nil
}

// Given is nil where the cluster has given an id to somebody. That it has not is confirmed by the
// quorum: another node may have taken the block a moment ago. Errors: unknown-producer, and those
// of the quorum.
func (p *IDs) Given(ctx context.Context, id model.ProducerID) error {
	if p.inBlock(id) {
		return nil
	}
	if err := p.meta.Barrier(ctx); err != nil {
		return err
	}
	if p.inBlock(id) {
		return nil
	}
	return model.Errorf(model.UnknownProducer, "producer id %d was given to nobody; POST /v1/producers gives one", id)
}

// inBlock: some node has taken the id, as far as is known here.
func (p *IDs) inBlock(id model.ProducerID) bool {
	return int64(id) < p.meta.Image().Cluster().NextProducerID
}
