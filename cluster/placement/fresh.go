package placement

import (
	"context"
	"slices"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// Full tells which of some nodes have no room on their disks for so many new replicas each.
type Full func(ctx context.Context, nodes []model.BrokerID, each int) []model.BrokerID

// Fresh are partitions that are to be made, of one topic.
type Fresh struct {
	Partitions int
	Replicas   int    // of each
	Start      uint32 // where the rotation over the brokers begins; any number
}

// Place spreads the replicas over the brokers that may take them and are not full; nil: none
// is. Errors: invalid-argument (there are not so many brokers), storage-full (there are, but too
// many of them are full).
func (f Fresh) Place(ctx context.Context, img *metadata.Image, full Full) ([][]model.BrokerID, error) {
	takers := Takers(img)
	if f.Replicas < 1 || f.Replicas > len(takers) {
		return nil, model.Invalid("/replication_factor", "the replication factor must be between 1 and %d, the number of nodes that can take replicas", len(takers))
	}
	ids := make([]model.BrokerID, len(takers))
	for i, b := range takers {
		ids[i] = b.ID
	}
	var without []model.BrokerID
	if full != nil {
		without = full(ctx, ids, (f.Partitions*f.Replicas+len(takers)-1)/len(takers))
	}
	roomy := slices.DeleteFunc(takers, func(b *metadata.Broker) bool { return slices.Contains(without, b.ID) })
	if f.Replicas > len(roomy) {
		return nil, model.Errorf(model.StorageFull, "%d of the %d nodes that can take replicas would have less free room on their disks than --disk-reserve with so many new partitions; deleting topics or records makes room", len(without), len(ids))
	}
	return metadata.Spread(roomy, metadata.SpreadOver{Partitions: f.Partitions, Replicas: f.Replicas, Start: f.Start}), nil
}
