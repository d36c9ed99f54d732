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
	t.editTopics(func(topic *Topic, p *Partition) bool { return t.retire(topic.Config, p, c.ID) })
	return &n, nil
}

// retire takes a fenced broker out of a partition's ISR and lead. The last member of an ISR
// stays in it, since nobody else has all that was acknowledged.
func (t *tx) retire(cfg *TopicConfig, p *Partition, id model.BrokerID) bool {
	inISR := slices.Contains(p.ISR, id)
	if !inISR && p.Leader != id {
		return false
	}
	if inISR && len(p.ISR) > 1 {
		p.ISR = without(p.ISR, id)
		p.eligible(cfg, []model.BrokerID{id})
	}
	if p.Leader == id {
		p.install(cfg, t.elect(cfg, p))
	}
	return true
}

// install begins a leader's epoch. One from outside of the ISR is alone in it then. The others
// were gone; where it is from the ELR, they stay eligible, for they have as much. After an
// unclean election nobody else is.
func (p *Partition) install(cfg *TopicConfig, leader model.BrokerID) {
	p.Leader = leader
	p.LeaderEpoch++
	if leader == NoLeader || slices.Contains(p.ISR, leader) {
		return
	}
	left := p.ISR
	if !slices.Contains(p.ELR, leader) {
		left, p.ELR = nil, nil
	}
	p.ISR = []model.BrokerID{leader}
	p.eligible(cfg, left)
}

// elect is the first replica in order that is in the ISR and live, else one of the ELR (KIP-966),
// else, where the topic asks for unclean elections, any, else NoLeader.
func (t *tx) elect(cfg *TopicConfig, p *Partition) model.BrokerID {
	groups := [3][]model.BrokerID{p.ISR, p.ELR}
	if cfg.UncleanLeaderElection {
		groups[2] = p.Replicas
	}
	for _, eligible := range groups {
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
	t.editTopics(func(topic *Topic, p *Partition) bool {
		if p.Leader != NoLeader || !slices.Contains(p.Replicas, id) {
			return false
		}
		leader := t.elect(topic.Config, p)
		if leader == NoLeader {
			return false
		}
		p.install(topic.Config, leader)
		return true
	})
}
