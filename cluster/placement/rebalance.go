package placement

import (
	"cmp"
	"slices"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// Rebalance evens out how many replicas, and how many preferred leads, brokers that take replicas
// have, and spreads replicas over racks. It moves as few replicas as that needs; leads are evened
// out by the order of replicas, which copies nothing. Partitions that move already count where
// they go to, and are left alone, and so are replicas of brokers that are away or draining.
func Rebalance(img *metadata.Image) Plan {
	l := newLayout(img)
	if len(l.takers) == 0 {
		return Plan{}
	}
	l.useRacks()
	l.evenReplicas()
	l.evenLeads()
	return l.plan()
}

func (l *layout) takes(id model.BrokerID) bool {
	return slices.ContainsFunc(l.takers, func(b *metadata.Broker) bool { return b.ID == id })
}

// useRacks moves replicas out of racks that have several of a partition while others have none.
func (l *layout) useRacks() {
	for i := range l.parts {
		p := &l.parts[i]
		if p.Of().Move != nil {
			continue
		}
		for l.spread(p.target) < min(len(p.target), l.racks) {
			to, ok := l.wider(p.target)
			if !ok {
				break
			}
			l.set(p, to)
		}
	}
}

// wider is replicas in one rack more: the last that shares its rack goes.
func (l *layout) wider(replicas []model.BrokerID) ([]model.BrokerID, bool) {
	for i := len(replicas) - 1; i >= 0; i-- {
		rest := without(replicas, i)
		if !l.takes(replicas[i]) || l.spread(rest) < l.spread(replicas) {
			continue
		}
		if id, ok := l.best(rest); ok && l.spread(with(replicas, i, id)) > l.spread(replicas) {
			return with(replicas, i, id), true
		}
	}
	return nil, false
}

// evenReplicas moves single replicas from who has most to who has least, until no two differ by
// more than one, or none can be moved.
func (l *layout) evenReplicas() {
	for l.shift() {
	}
}

// shift moves one replica; false where none is to be moved.
func (l *layout) shift() bool {
	order := slices.Clone(l.takers)
	slices.SortStableFunc(order, func(a, b *metadata.Broker) int { return cmp.Compare(l.replicas[a.ID], l.replicas[b.ID]) })
	for h := len(order) - 1; h > 0; h-- {
		for low := range h {
			from, to := order[h].ID, order[low].ID
			if l.replicas[from]-l.replicas[to] < 2 {
				break // the next has more
			}
			if p, at := l.movable(from, to); p != nil {
				l.set(p, with(p.target, at, to))
				return true
			}
		}
	}
	return false
}

// movable is a partition of which a replica can go from one broker to another: one that is in
// no fewer racks then. Better than others is one that is planned to move already to who has it,
// which copies nothing more, and then one whose lead does not go with it.
func (l *layout) movable(from, to model.BrokerID) (best *placed, bestAt int) {
	score := -1
	for i := range l.parts {
		p := &l.parts[i]
		at := slices.Index(p.target, from)
		if at < 0 || slices.Contains(p.target, to) || p.Of().Move != nil || l.spread(with(p.target, at, to)) < l.spread(p.target) {
			continue
		}
		s := 0
		if slices.Contains(p.Of().Target(), to) || !slices.Contains(p.Of().Target(), from) {
			s += 4
		}
		if at > 0 || l.leads[from] > l.leads[to]+1 {
			s += 2
		}
		if at > 0 {
			s++
		}
		if s > score {
			best, bestAt, score = p, at, s
		}
	}
	return best, bestAt
}

// evenLeads puts other replicas first until no two brokers differ by more than one in how many
// partitions they are first of, or nothing helps. A lead may have to go over several brokers.
func (l *layout) evenLeads() {
	for l.passLead() {
	}
}

func (l *layout) passLead() bool {
	order := slices.Clone(l.takers)
	slices.SortStableFunc(order, func(a, b *metadata.Broker) int { return cmp.Compare(l.leads[b.ID], l.leads[a.ID]) })
	for _, b := range order {
		if way := l.wayOut(b.ID); way != nil {
			for _, s := range way {
				l.set(s.part, leadBy(s.part.target, s.to))
			}
			return true
		}
	}
	return false
}

// leadBy puts one of the replicas first, in exchange with who was.
func leadBy(replicas []model.BrokerID, id model.BrokerID) []model.BrokerID {
	out := slices.Clone(replicas)
	at := slices.Index(out, id)
	out[0], out[at] = out[at], out[0]
	return out
}

// handover has a partition led by another of its replicas.
type handover struct {
	part *placed
	to   model.BrokerID
}

// wayOut is the shortest way by which a broker gives a lead to one that has two less; nil where
// there is none.
func (l *layout) wayOut(from model.BrokerID) []handover {
	came := map[model.BrokerID]handover{}
	seen := map[model.BrokerID]bool{from: true}
	for queue := []model.BrokerID{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if l.leads[from]-l.leads[at] >= 2 {
			var way []handover
			for at != from {
				h := came[at]
				way = append(way, h)
				at = h.part.target[0]
			}
			return way
		}
		for i := range l.parts {
			p := &l.parts[i]
			if p.target[0] != at || p.Of().Move != nil {
				continue
			}
			for _, id := range p.target[1:] {
				if !seen[id] && l.takes(id) {
					seen[id] = true
					came[id] = handover{p, id}
					queue = append(queue, id)
				}
			}
		}
	}
	return nil
}
