package metadata

import (
	"slices"

	"tidewire/internal/model"
)

// maxPartitionChanges bounds one AlterPartitions.
const maxPartitionChanges = 10_000

func applyAlterPartitions(t *tx, c AlterPartitions) (any, *model.Error) {
	leader, refusal := t.currentBroker(c.Broker, c.Epoch)
	switch {
	case refusal != nil:
		return nil, refusal
	case leader.Fenced:
		return nil, model.Errorf(model.Fenced, "broker %d is fenced and leads nothing", c.Broker)
	case len(c.Changes) == 0 || len(c.Changes) > maxPartitionChanges:
		return nil, model.Invalid("/changes", "one command changes 1 to %d partitions", maxPartitionChanges)
	}
	out := make([]PartitionAltered, len(c.Changes))
	for i := range c.Changes {
		out[i] = t.alterPartition(c.Broker, &c.Changes[i])
	}
	return out, nil
}

func (t *tx) alterPartition(leader model.BrokerID, c *PartitionChange) PartitionAltered {
	topic, _ := t.topicsByID.Get(c.Topic[:])
	if topic == nil || c.Partition < 0 || int(c.Partition) >= len(topic.Partitions) {
		return PartitionAltered{Refusal: model.Errorf(model.UnknownPartition, "there is no partition %d of topic %s", c.Partition, c.Topic)}
	}
	p := topic.Partitions[c.Partition]
	if refusal := t.checkChange(&p, leader, c); refusal != nil {
		return PartitionAltered{Refusal: refusal, Partition: p}
	}
	next := make([]model.BrokerID, 0, len(c.ISR))
	for _, id := range p.Replicas { // in their order, so that equal sets are equal
		if slices.ContainsFunc(c.ISR, func(x InSync) bool { return x.ID == id }) {
			next = append(next, id)
		}
	}
	// A leader that leaves by itself cannot go on with its log: it is not eligible.
	left := slices.DeleteFunc(slices.Clone(p.ISR), func(id model.BrokerID) bool { return id == leader || slices.Contains(next, id) })
	p.ISR = next
	p.eligible(topic.Config, left)
	if !slices.Contains(next, leader) {
		p.install(topic.Config, t.elect(topic.Config, &p))
	}
	return PartitionAltered{Partition: t.putPartition(topic, c.Partition, p)}
}

// putPartition makes a partition another, in the next partition epoch, and ends its move where
// that has come to its end. It gives the partition as it is then.
func (t *tx) putPartition(topic *Topic, i model.PartitionID, p Partition) Partition {
	t.finish(topic.Config, &p)
	p.PartitionEpoch++
	n := *topic
	n.Partitions = slices.Clone(topic.Partitions)
	n.Partitions[i] = p
	t.fitAfter(topic, &n)
	t.putTopic(&n)
	return n.Partitions[i]
}

// fitAfter has the settings of a topic follow a change of its partitions.
func (t *tx) fitAfter(before, n *Topic) {
	if n.ReplicationFactor() != before.ReplicationFactor() {
		t.refit(n)
	}
}

// refit gives a topic its settings in force, some of which depend on the replication factor,
// and its partitions what follows from them.
func (t *tx) refit(n *Topic) {
	for {
		rf := n.ReplicationFactor()
		n.Config = t.effective(n.Overrides, rf)
		if t.settle(n); n.ReplicationFactor() == rf { // an election may have ended a move
			return
		}
	}
}

// checkChange is why a leader may not make that change (KIP-497, 841, 903).
func (t *tx) checkChange(p *Partition, leader model.BrokerID, c *PartitionChange) *model.Error {
	switch {
	case p.Leader != leader || p.LeaderEpoch != c.LeaderEpoch:
		return model.Errorf(model.Fenced, "the partition is led by broker %d in epoch %d", p.Leader, p.LeaderEpoch)
	case p.PartitionEpoch != c.PartitionEpoch:
		return model.Errorf(model.Conflict, "the partition has changed since: its epoch is %d", p.PartitionEpoch)
	}
	if len(c.ISR) == 0 {
		return model.Invalid("/isr", "somebody must stay in sync")
	}
	for i, member := range c.ISR {
		b := t.broker(member.ID)
		switch {
		case slices.ContainsFunc(c.ISR[:i], func(x InSync) bool { return x.ID == member.ID }):
			return model.Invalid("/isr", "broker %d is named twice", member.ID)
		case !slices.Contains(p.Replicas, member.ID) || b == nil:
			return model.Invalid("/isr", "broker %d has no replica of the partition", member.ID)
		case b.Fenced:
			return model.Errorf(model.Conflict, "broker %d is fenced and cannot be in sync", member.ID)
		// Who is in the ISR would have left it with a new registration.
		case b.Epoch != member.Epoch && !slices.Contains(p.ISR, member.ID):
			return model.Errorf(model.Conflict, "broker %d has registered again since it was in sync", member.ID)
		}
	}
	return nil
}

// eligible brings the ELR up to date after a change of the ISR or of what it must have (KIP-966).
// Below min.insync.replicas the high watermark stays, so that those who left then have
// everything; with enough in sync it moves, and those outside know nothing of it. A log
// that may lose what it acknowledged is never eligible.
func (p *Partition) eligible(cfg *TopicConfig, left []model.BrokerID) {
	if int64(len(p.ISR)) >= cfg.MinInsyncReplicas || cfg.WriteCaching {
		p.ELR = []model.BrokerID{}
		return
	}
	elr := make([]model.BrokerID, 0, len(p.ELR)+len(left))
	for _, id := range p.Replicas {
		if !slices.Contains(p.ISR, id) && (slices.Contains(p.ELR, id) || slices.Contains(left, id)) {
			elr = append(elr, id)
		}
	}
	p.ELR = elr
}

// settle brings a topic's partitions in line with a config that has changed: who is eligible,
// and who leads where now more may.
func (t *tx) settle(topic *Topic) {
	var parts []Partition
	for i, p := range topic.Partitions {
		before := p
		p.eligible(topic.Config, nil)
		changed := !slices.Equal(p.ELR, before.ELR)
		if p.Leader == NoLeader {
			if leader := t.elect(topic.Config, &p); leader != NoLeader {
				p.install(topic.Config, leader)
				t.finish(topic.Config, &p)
				changed = true
			}
		}
		if !changed {
			continue
		}
		p.PartitionEpoch++
		if parts == nil {
			parts = slices.Clone(topic.Partitions)
		}
		parts[i] = p
	}
	if parts != nil {
		topic.Partitions = parts
	}
}

// enlist takes fenced brokers out of the ISR of new partitions, whose others lead.
func (t *tx) enlist(parts []Partition) {
	for i := range parts {
		p := &parts[i]
		live := slices.DeleteFunc(slices.Clone(p.ISR), func(id model.BrokerID) bool { return t.broker(id).Fenced })
		if len(live) > 0 {
			p.ISR, p.Leader = live, live[0]
		}
	}
}
