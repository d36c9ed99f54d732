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

// Place spreads the replicas over the brokers that are online and not full; nil: none is full.
// Where those are too few, brokers that are offline get the rest, as in Kafka: they take their
// replicas when they are back, and lead none of them until then. Errors: invalid-argument (there
// are not so many brokers), leader-unavailable (none of them is online), storage-full (there are
// enough, but too many of them are full).
func (f Fresh) Place(ctx context.Context, img *metadata.Image, full Full) ([][]model.BrokerID, error) {
	members, online := Members(img), Takers(img)
	switch {
	case f.Replicas < 1 || f.Replicas > len(members):
		return nil, model.Invalid("/replication_factor", "the replication factor must be between 1 and %d, the number of nodes that can take replicas", len(members))
	case len(online) == 0:
		return nil, model.Errorf(model.LeaderUnavailable, "none of the %d nodes that can take replicas is online", len(members))
	}
	now := min(f.Replicas, len(online)) // the others are offline
	ids := make([]model.BrokerID, len(online))
	for i, b := range online {
		ids[i] = b.ID
	}
	var without []model.BrokerID
	if full != nil {
		without = full(ctx, ids, (f.Partitions*now+len(online)-1)/len(online))
	}
	roomy := slices.DeleteFunc(online, func(b *metadata.Broker) bool { return slices.Contains(without, b.ID) })
	if now > len(roomy) {
		return nil, model.Errorf(model.StorageFull, "%d of the %d nodes that can take replicas would have less free room on their disks than --disk-reserve with so many new partitions; deleting topics or records makes room", len(without), len(ids))
	}
	out := metadata.Spread(roomy, metadata.SpreadOver{Partitions: f.Partitions, Replicas: now, Start: f.Start})
	if missing := f.Replicas - now; missing > 0 {
		offline := slices.DeleteFunc(members, func(b *metadata.Broker) bool { return !b.Fenced })
		for i, more := range metadata.Spread(offline, metadata.SpreadOver{Partitions: f.Partitions, Replicas: missing, Start: f.Start}) {
			out[i] = append(out[i], more...)
		}
	}
	return out, nil
}
