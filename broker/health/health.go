// Package health is the core that judges partitions, pure: what the metadata says of one,
// together with which brokers this node can reach, tells how it is. Doors and summaries are its
// callers.
package health

import (
	"slices"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// State is how a partition is; a larger one is worse.
type State uint8

// States. Under min ISR means that fewer replicas are in sync than min.insync.replicas asks
// for, so that writes with acks=all are refused; offline, that nobody leads.
const (
	Healthy State = iota
	UnderReplicated
	UnderMinISR
	Offline
)

var names = [...]string{"healthy", "under-replicated", "under-min-isr", "offline"}

// String is the state's name in answers.
func (s State) String() string { return names[s] }

// Parse finds a state by its name.
func Parse(name string) (State, bool) {
	i := slices.Index(names[:], name)
	return State(max(i, 0)), i >= 0
}

// Seen are the brokers that can be reached, as one node sees them.
type Seen map[model.BrokerID]bool

// Partition is how a partition is. A replica on a broker that cannot be reached is not in sync,
// whatever the metadata says: without a quorum it cannot be told of that.
type Partition struct {
	// State is by the leader and the number of replicas in sync.
	State State
	// OutOfSync are the replicas that are not in sync, in the order of the replicas. What a move
	// only adds is not missing.
	OutOfSync []model.BrokerID
	// TooFew says that fewer are in sync than min.insync.replicas, also where it is offline.
	TooFew bool
}

// Of judges a partition; broken says that its leader cannot serve it.
func Of(p *metadata.Partition, minISR int64, seen Seen, broken bool) Partition {
	var out Partition
	for _, r := range p.Origin() {
		if !InSync(p, r, seen) {
			out.OutOfSync = append(out.OutOfSync, r)
		}
	}
	in := len(p.ISR)
	for _, r := range p.ISR {
		if !seen[r] {
			in--
		}
	}
	out.TooFew = int64(in) < minISR
	switch {
	case broken || p.Leader == metadata.NoLeader || !seen[p.Leader]:
		out.State = Offline
	case out.TooFew:
		out.State = UnderMinISR
	case len(out.OutOfSync) > 0:
		out.State = UnderReplicated
	}
	return out
}

// InSync tells whether a replica is in sync and can be reached.
func InSync(p *metadata.Partition, r model.BrokerID, seen Seen) bool {
	return seen[r] && slices.Contains(p.ISR, r)
}
