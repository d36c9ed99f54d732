package replicas

import (
	"slices"

	"tidewire/cluster/metadata"
	"tidewire/cluster/placement"
	"tidewire/internal/model"
)

// altered proposes a command about the partition and tells whether that was done to it.
func (w *world) altered(cmd metadata.Command) bool {
	res := w.propose(cmd)
	return res.Refusal == nil && res.Value.([]metadata.PartitionAltered)[0].Refusal == nil
}

var refs = []metadata.PartitionRef{{Topic: topicID}}

// move has the partition go to other replicas, whatever it is doing.
func (w *world) move() bool {
	to := w.some(minISR + w.rnd.IntN(len(w.nodes)-minISR+1))
	before := w.partition().Move
	if !w.altered(metadata.AlterReassignments{Moves: []metadata.Reassignment{{Topic: topicID, Replicas: to}}}) {
		w.done["moves refused"]++
		return true
	}
	w.wanted = to
	switch {
	case before != nil:
		w.done["moves replaced"]++
	case w.partition().Move != nil:
		w.done["moves begun"]++
	}
	if w.fault == endsEarly && w.partition().Move != nil {
		w.endMove()
	}
	return true
}

// endMove commits what should not be: the target alone has the partition, in sync or not.
func (w *world) endMove() {
	w.images = append(w.images, edited(w.image(), func(p *metadata.Partition) {
		p.Replicas, p.Move, p.PartitionEpoch, p.LeaderEpoch = p.Move.To, nil, p.PartitionEpoch+1, p.LeaderEpoch+1
		p.ISR, p.ELR, p.Leader = slices.Clone(p.Replicas), nil, p.Replicas[0]
	}))
}

// edited is an image with a partition that no command has made.
func edited(img *metadata.Image, edit func(*metadata.Partition)) *metadata.Image {
	out, err := metadata.Decode(metadata.Encode(img))
	if err != nil {
		panic(err)
	}
	edit(&out.Topic("t").Partitions[0])
	return out
}

// withoutEpoch takes back the leader epoch that a change has begun only because a replica left.
func withoutEpoch(before, after *metadata.Image) *metadata.Image {
	if before.Topic("t") == nil {
		return after
	}
	b, a := before.Topic("t").Partitions[0], after.Topic("t").Partitions[0]
	gone := slices.ContainsFunc(b.Replicas, func(id model.BrokerID) bool { return !slices.Contains(a.Replicas, id) })
	if !gone || a.Leader != b.Leader || a.LeaderEpoch != b.LeaderEpoch+1 {
		return after
	}
	return edited(after, func(p *metadata.Partition) { p.LeaderEpoch = b.LeaderEpoch })
}

// moveDrained has the controller move the partition off draining nodes.
func (w *world) moveDrained() {
	plan := placement.Drain(w.image(), 1)
	for _, m := range plan.Moves {
		if w.altered(metadata.AlterReassignments{Moves: plan.Reassignments()}) {
			w.wanted = m.To
			w.done["drains moved the partition"]++
		} else {
			w.done["drains refused"]++
		}
	}
	if len(plan.Stuck) > 0 {
		w.done["drains stuck"]++
	}
}

func (w *world) brokerState(from, to metadata.BrokerState) bool {
	n := w.pick(func(n *node) bool { return w.image().Broker(n.id).State == from })
	return n != nil && w.propose(metadata.SetBrokerState{ID: n.id, State: to}).Refusal == nil
}

func (w *world) drain() bool {
	return w.rnd.IntN(3) == 0 && w.brokerState(metadata.BrokerActive, metadata.BrokerDraining)
}

func (w *world) undrain() bool { return w.brokerState(metadata.BrokerDraining, metadata.BrokerActive) }

// drained: nothing is left to be moved off draining nodes.
func (w *world) drained() bool { return len(placement.Drain(w.image(), 1).Moves) == 0 }

func (w *world) cancelMove() bool {
	m := w.partition().Move
	if m == nil || w.rnd.IntN(3) > 0 {
		return false
	}
	if !w.altered(metadata.CancelReassignments{Partitions: refs}) {
		w.done["cancels refused"]++
		return true
	}
	w.wanted = m.From
	w.done["moves cancelled"]++
	return true
}

func (w *world) electPreferred() bool {
	p := w.partition()
	if p.Leader == p.Replicas[0] || p.Leader == metadata.NoLeader {
		return false
	}
	if !w.altered(metadata.ElectLeaders{Type: metadata.ElectPreferred, Partitions: refs}) {
		w.done["preferred leaders refused"]++
		return true
	}
	w.done["preferred leaders elected"]++
	return true
}
