package metadata

import (
	"slices"

	"tidewire/internal/model"
)

func applyFenceBroker(t *tx, c FenceBroker) (any, *model.Error) {
	b, refusal := t.currentBroker(c.ID, c.Epoch)
	if refusal != nil || b.Fenced {
		return b, refusal
	}
	n := *b
	n.Fenced, n.Version = true, t.index
	t.putBroker(&n)
	t.editTopics(func(topic *Topic, p *Partition) bool { return t.retire(p, c.ID, topic.Config.MinInsyncReplicas) })
	return &n, nil
}

// retire takes a fenced broker out of a partition's ISR and lead. The last member of an ISR
// stays in it, since nobody else has all that was acknowledged.
func (t *tx) retire(p *Partition, id model.BrokerID, minISR int64) bool {
	inISR := slices.Contains(p.ISR, id)
	if !inISR && p.Leader != id {
		return false
	}
	if inISR && len(p.ISR) > 1 {
		p.ISR = without(p.ISR, id)
		if int64(len(p.ISR)) < minISR && !slices.Contains(p.ELR, id) {
			p.ELR = append(slices.Clone(p.ELR), id)
		}
	}
	if p.Leader == id {
		p.install(t.elect(p))
	}
	return true
}

// install begins a leader's epoch. One from the ELR is the only one that is live and known
// to have everything, so it is the ISR then.
func (p *Partition) install(leader model.BrokerID) {
	p.Leader = leader
	p.LeaderEpoch++
	if leader != NoLeader && !slices.Contains(p.ISR, leader) {
		p.ISR, p.ELR = []model.BrokerID{leader}, without(p.ELR, leader)
	}
}

// elect is the first replica in order that is in the ISR and live, else one of the ELR, else
// NoLeader (KIP-966).
func (t *tx) elect(p *Partition) model.BrokerID {
	for _, eligible := range [][]model.BrokerID{p.ISR, p.ELR} {
		for _, id := range p.Replicas {
			if b := t.broker(id); b != nil && !b.Fenced && slices.Contains(eligible, id) {
				return id
			}
		}
	}
	return NoLeader
}

// lead gives a broker that is live again the partitions that have no leader and that it is
// eligible for.
func (t *tx) lead(id model.BrokerID) {
	t.editPartitions(func(p *Partition) bool {
		if p.Leader != NoLeader || !slices.Contains(p.ISR, id) && !slices.Contains(p.ELR, id) {
			return false
		}
		leader := t.elect(p)
		if leader == NoLeader {
			return false
		}
		p.install(leader)
		return true
	})
}
