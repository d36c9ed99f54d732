package metadata

import (
	"tidewire/internal/model"
)

// SpreadOver says what Spread is to place.
type SpreadOver struct {
	Partitions int
	Replicas   int    // of each partition, at most the number of nodes
	Start      uint32 // random, so that topics of few partitions do not all begin at one node
}

// Spread gives the replicas of new partitions, the leader first. Every node leads as many as
// another, give or take one; no rack has two replicas of a partition while another has none;
// and the followers of one leader are on changing nodes, so that its load is shared when it is
// gone.
func Spread(nodes []*Broker, over SpreadOver) [][]model.BrokerID {
	ring := alternate(nodes)
	n := uint32(len(ring))
	out := make([][]model.BrokerID, over.Partitions)
	for i := range out {
		at := over.Start + uint32(i)
		first := at % n
		replicas := []*Broker{ring[first]}
		for len(replicas) < over.Replicas {
			replicas = append(replicas, follower(ring, replicas, first, at/n))
		}
		for _, b := range replicas {
			out[i] = append(out[i], b.ID)
		}
	}
	return out
}

// follower is the next replica: of those in the least used rack the first behind the leader,
// where turn moves what comes first.
func follower(ring, have []*Broker, first, turn uint32) *Broker {
	used := map[string]int{}
	taken := map[model.BrokerID]bool{}
	for _, b := range have {
		used[b.Rack]++
		taken[b.ID] = true
	}
	var best *Broker
	others := uint32(len(ring)) - 1
	for k := range others {
		b := ring[(first+1+(turn+k)%others)%(others+1)]
		if !taken[b.ID] && (best == nil || used[b.Rack] < used[best.Rack]) {
			best = b
		}
	}
	return best
}

// alternate puts nodes in an order in which their racks take turns.
func alternate(nodes []*Broker) []*Broker {
	var racks []string
	by := map[string][]*Broker{}
	for _, b := range nodes {
		if by[b.Rack] == nil {
			racks = append(racks, b.Rack)
		}
		by[b.Rack] = append(by[b.Rack], b)
	}
	out := make([]*Broker, 0, len(nodes))
	for len(out) < len(nodes) {
		for _, r := range racks {
			if left := by[r]; len(left) > 0 {
				out = append(out, left[0])
				by[r] = left[1:]
			}
		}
	}
	return out
}
