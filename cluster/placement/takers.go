package placement

import (
	"cmp"
	"slices"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// Takers are the brokers that may get replicas: online, and not draining.
func Takers(img *metadata.Image) []*metadata.Broker {
	return slices.DeleteFunc(Members(img), func(b *metadata.Broker) bool { return b.Fenced })
}

// Members are the brokers that replicas are for: those online, and those that are to come back.
// Who is draining or gone for good is none.
func Members(img *metadata.Image) []*metadata.Broker {
	var nodes []*metadata.Broker
	for br := range img.Brokers() {
		if br.State == metadata.BrokerActive {
			nodes = append(nodes, br)
		}
	}
	return nodes
}

// Plan is what is to be moved, and what cannot be.
type Plan struct {
	Moves []Move
	// Stuck are partitions of which nobody can take a replica: there are too few brokers.
	Stuck []Ref
}

// Ref names a partition for people too.
type Ref struct {
	Topic     *metadata.Topic
	Partition model.PartitionID
}

// Of is the partition as it is.
func (r Ref) Of() *metadata.Partition { return &r.Topic.Partitions[r.Partition] }

// Move is a partition with the replicas that it is to have.
type Move struct {
	Ref
	From, To []model.BrokerID
}

// Reassignments are the moves as a command has them: each only for the partition as it was planned.
func (p *Plan) Reassignments() []metadata.Reassignment {
	out := make([]metadata.Reassignment, len(p.Moves))
	for i, m := range p.Moves {
		out[i] = metadata.Reassignment{Topic: m.Topic.ID, Partition: m.Partition, Replicas: m.To, IfEpoch: new(m.Of().PartitionEpoch)}
	}
	return out
}

// layout is where replicas are, or are on their way to, and what of that a plan has changed.
type layout struct {
	takers   []*metadata.Broker
	rack     map[model.BrokerID]string
	racks    int  // of the takers
	oneRack  bool // of all brokers
	parts    []placed
	replicas map[model.BrokerID]int
	leads    map[model.BrokerID]int // as the first replica
}

type placed struct {
	Ref
	target  []model.BrokerID
	planned bool
}

func newLayout(img *metadata.Image) *layout {
	l := &layout{takers: Takers(img), rack: map[model.BrokerID]string{}, replicas: map[model.BrokerID]int{}, leads: map[model.BrokerID]int{}}
	all := map[string]bool{}
	for b := range img.Brokers() {
		l.rack[b.ID] = b.Rack
		all[b.Rack] = true
	}
	l.oneRack = len(all) <= 1
	racks := map[string]bool{}
	for _, b := range l.takers {
		racks[b.Rack] = true
	}
	l.racks = len(racks)
	for t := range img.Topics("") {
		for i := range t.Partitions {
			p := placed{Ref: Ref{t, model.PartitionID(i)}, target: t.Partitions[i].Target()}
			l.parts = append(l.parts, p)
			l.count(p.target, 1)
		}
	}
	return l
}

func (l *layout) count(replicas []model.BrokerID, by int) {
	for i, id := range replicas {
		l.replicas[id] += by
		if i == 0 {
			l.leads[id] += by
		}
	}
}

// set plans a target.
func (l *layout) set(p *placed, target []model.BrokerID) {
	l.count(p.target, -1)
	l.count(target, 1)
	p.target, p.planned = target, true
}

// plan is what set has changed.
func (l *layout) plan() (out Plan) {
	for i := range l.parts {
		p := &l.parts[i]
		if before := p.Of().Target(); p.planned && !slices.Equal(before, p.target) {
			out.Moves = append(out.Moves, Move{Ref: p.Ref, From: slices.Clone(before), To: p.target})
		}
	}
	return out
}

// spread is how many racks replicas are in.
func (l *layout) spread(replicas []model.BrokerID) int {
	if l.oneRack {
		return min(len(replicas), 1)
	}
	racks := map[string]bool{}
	for _, id := range replicas {
		racks[l.rack[id]] = true
	}
	return len(racks)
}

// best is the taker that a partition gets beside others: in a rack that they are not in if there
// is one, else the one that has least. False where there is none.
func (l *layout) best(others []model.BrokerID) (model.BrokerID, bool) {
	var best *metadata.Broker
	score := func(b *metadata.Broker) (sameRack, has int) {
		for _, id := range others {
			if l.rack[id] == b.Rack {
				sameRack++
			}
		}
		return sameRack, l.replicas[b.ID]
	}
	for _, b := range l.takers {
		if slices.Contains(others, b.ID) {
			continue
		}
		if best != nil {
			r, n := score(b)
			br, bn := score(best)
			if cmp.Or(cmp.Compare(r, br), cmp.Compare(n, bn)) >= 0 { // brokers come in order of ids
				continue
			}
		}
		best = b
	}
	if best == nil {
		return 0, false
	}
	return best.ID, true
}

// with is a copy of replicas with one in place of another.
func with(replicas []model.BrokerID, at int, id model.BrokerID) []model.BrokerID {
	out := slices.Clone(replicas)
	out[at] = id
	return out
}

// without is a copy without the one at a place.
func without(replicas []model.BrokerID, at int) []model.BrokerID {
	return slices.Delete(slices.Clone(replicas), at, at+1)
}
