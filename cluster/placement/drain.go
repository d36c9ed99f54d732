package placement

import (
	"slices"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// Drain moves the replicas of draining brokers to others, most partitions at most; what cannot
// go anywhere is stuck. Internal topics, whose replicas follow the number of brokers (Grow), have
// fewer where too few others are left. also, where it is given, is a broker to be looked at as if it were
// draining.
func Drain(img *metadata.Image, most int, also ...model.BrokerID) Plan {
	l := newLayout(img)
	leaving := slices.Clone(also)
	for b := range img.Brokers() {
		if b.State == metadata.BrokerDraining {
			leaving = append(leaving, b.ID)
		}
	}
	if len(leaving) == 0 {
		return Plan{}
	}
	l.takers = slices.DeleteFunc(l.takers, func(b *metadata.Broker) bool { return slices.Contains(leaving, b.ID) })
	var stuck []Ref
	for i := range l.parts {
		p := &l.parts[i]
		if !slices.ContainsFunc(p.target, func(id model.BrokerID) bool { return slices.Contains(leaving, id) }) {
			continue
		}
		if most--; most < 0 {
			break
		}
		if to, ok := l.vacated(p, leaving); ok {
			l.set(p, to)
		} else {
			stuck = append(stuck, p.Ref)
			most++
		}
	}
	out := l.plan()
	out.Stuck = stuck
	return out
}

// vacated is the partition's replicas with others in place of those that are leaving.
func (l *layout) vacated(p *placed, leaving []model.BrokerID) ([]model.BrokerID, bool) {
	replicas := p.target
	for i := 0; i < len(replicas); {
		if !slices.Contains(leaving, replicas[i]) {
			i++
			continue
		}
		rest := without(replicas, i)
		switch id, ok := l.best(rest); {
		case ok:
			replicas = with(replicas, i, id)
		case p.Topic.Internal && len(rest) > 0:
			replicas = rest
		default:
			return nil, false
		}
	}
	return replicas, true
}

// internalReplicas is what internal topics have where there are as many brokers.
const internalReplicas = 3

// Grow gives internal topics the replicas that they were made without, when there were fewer
// brokers: three, or one for each broker; most partitions at most. It takes none away.
func Grow(img *metadata.Image, most int) Plan {
	l := newLayout(img)
	wanted := min(internalReplicas, len(l.takers))
	for i := range l.parts {
		p := &l.parts[i]
		if !p.Topic.Internal || p.Of().Move != nil || len(p.target) >= wanted {
			continue
		}
		if most--; most < 0 {
			break
		}
		to := slices.Clone(p.target)
		for len(to) < wanted {
			id, ok := l.best(to)
			if !ok {
				break
			}
			to = append(to, id)
		}
		l.set(p, to)
	}
	return l.plan()
}

// Preferred are partitions that could go back to their preferred leader, most at most: it is in
// sync, online and steady. A partition that moves, or whose preferred leader is being drained,
// waits.
func Preferred(img *metadata.Image, steady func(model.BrokerID) bool, most int) []metadata.PartitionRef {
	var out []metadata.PartitionRef
	for t := range img.Topics("") {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			first := p.Replicas[0]
			b := img.Broker(first)
			switch {
			case p.Leader == first || p.Leader == metadata.NoLeader || p.Move != nil || b == nil:
			case b.Fenced || b.State != metadata.BrokerActive || !slices.Contains(p.ISR, first) || !steady(first):
			case len(out) == most:
				return out
			default:
				out = append(out, metadata.PartitionRef{Topic: t.ID, Partition: model.PartitionID(i)})
			}
		}
	}
	return out
}

// Moving is how many partitions move.
func Moving(img *metadata.Image) (n int) {
	for t := range img.Topics("") {
		for i := range t.Partitions {
			if t.Partitions[i].Move != nil {
				n++
			}
		}
	}
	return n
}
