package metadata

import (
	"fmt"
	"slices"
	"strconv"

	"tidewire/internal/model"
)

func applyAlterReassignments(t *tx, c AlterReassignments) (any, *model.Error) {
	if len(c.Moves) > maxPartitionChanges || len(c.Moves) == 0 && c.Throttle == nil {
		return nil, model.Invalid("/moves", "one command moves 1 to %d partitions", maxPartitionChanges)
	}
	if refusal := t.setMoveThrottle(c.Throttle); refusal != nil {
		return nil, refusal
	}
	out := make([]PartitionAltered, len(c.Moves))
	for i := range c.Moves {
		out[i] = t.reassign(&c, &c.Moves[i])
	}
	return out, nil
}

// setMoveThrottle puts the limit into the cluster's config.
func (t *tx) setMoveThrottle(bytesPerS *int64) *model.Error {
	if bytesPerS == nil {
		return nil
	}
	change := AlterClusterConfig{Set: map[string]string{MoveThrottleKey: strconv.FormatInt(*bytesPerS, 10)}}
	switch {
	case *bytesPerS < 0:
		return model.Invalid("/throttle_bytes_per_s", "a throttle is a number of bytes per second from 1, or 0 for none")
	case *bytesPerS == 0:
		change = AlterClusterConfig{Unset: []string{MoveThrottleKey}}
	}
	_, refusal := applyAlterClusterConfig(t, change)
	return refusal
}

// findPartition looks a partition up.
func (t *tx) findPartition(id model.TopicID, i model.PartitionID) (*Topic, Partition, *model.Error) {
	topic, _ := t.topicsByID.Get(id[:])
	if topic == nil || i < 0 || int(i) >= len(topic.Partitions) {
		return nil, Partition{}, model.Errorf(model.UnknownPartition, "there is no partition %d of topic %s", i, id)
	}
	return topic, topic.Partitions[i], nil
}

func (t *tx) reassign(c *AlterReassignments, m *Reassignment) PartitionAltered {
	topic, p, refusal := t.findPartition(m.Topic, m.Partition)
	if refusal == nil {
		refusal = t.checkTarget(topic, &p, m)
	}
	if refusal != nil {
		return PartitionAltered{Refusal: refusal, Partition: p}
	}
	if slices.Equal(p.Target(), m.Replicas) {
		return PartitionAltered{Partition: p} // it is there, or on its way there
	}
	origin := p.Origin()
	next := append(slices.Clone(m.Replicas), missing(origin, m.Replicas)...)
	if refusal := t.narrow(topic.Config, &p, next); refusal != nil {
		return PartitionAltered{Refusal: refusal, Partition: topic.Partitions[m.Partition]}
	}
	p.Move = &Move{From: slices.Clone(origin), To: slices.Clone(m.Replicas), Since: c.Now, By: c.By}
	return PartitionAltered{Partition: t.putPartition(topic, m.Partition, p)}
}

// checkTarget is why a partition cannot go to that target. Who holds it already may be fenced.
func (t *tx) checkTarget(topic *Topic, p *Partition, m *Reassignment) *model.Error {
	if m.IfEpoch != nil && *m.IfEpoch != p.PartitionEpoch {
		return model.Errorf(model.Conflict, "the partition has changed since: its epoch is %d", p.PartitionEpoch)
	}
	if len(m.Replicas) == 0 {
		return model.Invalid("/replicas", "a partition has at least one replica")
	}
	if _, own := topic.Overrides["min.insync.replicas"]; own && int64(len(m.Replicas)) < topic.Config.MinInsyncReplicas {
		return model.Invalid("/replicas", "the topic's min.insync.replicas is %d, more than these replicas: nothing could be written", topic.Config.MinInsyncReplicas)
	}
	for i, id := range m.Replicas {
		at := fmt.Sprintf("/replicas/%d", i)
		b := t.broker(id)
		switch {
		case slices.Contains(m.Replicas[:i], id):
			return model.Invalid(at, "broker %d is named twice", id)
		case b == nil:
			return model.Invalid(at, "there is no broker %d", id)
		case slices.Contains(p.Origin(), id):
		case b.Fenced:
			return model.Errorf(model.Conflict, "broker %d is not online and takes no new replicas", id)
		case b.State == BrokerDraining:
			return model.Errorf(model.Conflict, "broker %d is being drained and takes no new replicas", id)
		}
	}
	return nil
}

// narrow gives a partition those replicas. Some of them must be in sync, where any are now.
// A replica that goes and comes back has another log then, and what is known of it, or on its
// way, must not count for that: the leader epoch ends with it.
func (t *tx) narrow(cfg *TopicConfig, p *Partition, replicas []model.BrokerID) *model.Error {
	stay := ordered(replicas, p.ISR)
	if len(stay) == 0 && len(p.ISR) > 0 {
		return model.Errorf(model.Conflict, "only brokers %v are in sync, which would lose their replicas: records would be lost", p.ISR)
	}
	gone := missing(p.Replicas, replicas)
	p.Replicas, p.ISR, p.ELR = replicas, stay, ordered(replicas, p.ELR)
	p.eligible(cfg, nil)
	switch {
	case p.Leader != NoLeader && !slices.Contains(replicas, p.Leader):
		p.install(cfg, t.elect(cfg, p))
	case len(gone) > 0:
		p.LeaderEpoch++
	}
	return nil
}

// ordered is those of some that are in all, in the order of all, so that equal sets are equal.
func ordered(all, some []model.BrokerID) []model.BrokerID {
	out := make([]model.BrokerID, 0, len(some))
	for _, id := range all {
		if slices.Contains(some, id) {
			out = append(out, id)
		}
	}
	return out
}

// finish ends a partition's move when all of its target is in sync. What is not in it goes; where
// that led, the first of the target that is live does.
func (t *tx) finish(cfg *TopicConfig, p *Partition) {
	if p.Move == nil || len(missing(p.Move.To, p.ISR)) > 0 {
		return
	}
	to := p.Move.To
	p.Move = nil
	_ = t.narrow(cfg, p, to) // all of it is in sync
}

func applyCancelReassignments(t *tx, c CancelReassignments) (any, *model.Error) {
	return t.eachPartition(c.Partitions, func(topic *Topic, p *Partition) *model.Error {
		if p.Move == nil {
			return model.Errorf(model.NotFound, "the partition is not being moved")
		}
		origin := p.Move.From
		if refusal := t.narrow(topic.Config, p, origin); refusal != nil {
			return refusal
		}
		p.Move = nil
		return nil
	})
}

// eachPartition changes partitions one by one. What is refused stays as it is.
func (t *tx) eachPartition(refs []PartitionRef, change func(*Topic, *Partition) *model.Error) (any, *model.Error) {
	if len(refs) == 0 || len(refs) > maxPartitionChanges {
		return nil, model.Invalid("/partitions", "one command changes 1 to %d partitions", maxPartitionChanges)
	}
	out := make([]PartitionAltered, len(refs))
	for i, r := range refs {
		topic, p, refusal := t.findPartition(r.Topic, r.Partition)
		if refusal == nil {
			refusal = change(topic, &p)
		}
		switch {
		case refusal == nil:
			out[i].Partition = t.putPartition(topic, r.Partition, p)
		case topic != nil:
			out[i] = PartitionAltered{Refusal: refusal, Partition: topic.Partitions[r.Partition]}
		default:
			out[i].Refusal = refusal
		}
	}
	return out, nil
}

func applyElectLeaders(t *tx, c ElectLeaders) (any, *model.Error) {
	elect := t.electPreferred
	switch c.Type {
	case ElectPreferred:
	case ElectUnclean:
		elect = t.electUnclean
	default:
		return nil, model.Invalid("/type", "an election is preferred or unclean, not %q", c.Type)
	}
	return t.eachPartition(c.Partitions, elect)
}

func (t *tx) electPreferred(topic *Topic, p *Partition) *model.Error {
	first := p.Replicas[0]
	b := t.broker(first)
	switch {
	case p.Leader == first:
		return model.Errorf(model.Conflict, "broker %d, the preferred leader, leads already", first)
	case b == nil || b.Fenced:
		return model.Errorf(model.Conflict, "broker %d, the preferred leader, is not online", first)
	case !slices.Contains(p.ISR, first):
		return model.Errorf(model.Conflict, "broker %d, the preferred leader, is not in sync", first)
	}
	p.install(topic.Config, first)
	return nil
}

func (t *tx) electUnclean(topic *Topic, p *Partition) *model.Error {
	if p.Leader != NoLeader {
		return model.Errorf(model.Conflict, "the partition has a leader, broker %d", p.Leader)
	}
	unclean := *topic.Config
	unclean.UncleanLeaderElection = true
	leader := t.elect(&unclean, p)
	if leader == NoLeader {
		return model.Errorf(model.Conflict, "no broker with a replica of the partition is online")
	}
	p.install(topic.Config, leader)
	return nil
}

func applySetBrokerState(t *tx, c SetBrokerState) (any, *model.Error) {
	b := t.broker(c.ID)
	switch {
	case b == nil:
		return nil, model.Errorf(model.UnknownBroker, "there is no broker %d", c.ID)
	case c.IfMatch != "" && c.IfMatch != b.ETag():
		return nil, etagMismatch("the broker")
	case c.State != BrokerActive && c.State != BrokerDraining:
		return nil, model.Invalid("/state", "a broker is active or draining, not %q", c.State)
	case c.Bytes < 0:
		return nil, model.Invalid("/bytes", "bytes are from 0, not %d", c.Bytes)
	case b.State == c.State:
		return b, nil
	}
	n := *b
	n.State, n.Drain, n.Version = c.State, nil, t.index
	if c.State == BrokerDraining {
		n.Drain = &Drain{Since: c.Now, Replicas: t.replicasOf(c.ID), Bytes: c.Bytes, Principal: c.Principal}
	}
	t.putBroker(&n)
	return &n, nil
}

// replicasOf counts a broker's replicas.
func (t *tx) replicasOf(id model.BrokerID) (n int) {
	for _, topic := range t.allTopics() {
		for i := range topic.Partitions {
			if slices.Contains(topic.Partitions[i].Replicas, id) {
				n++
			}
		}
	}
	return n
}

func applyUnregisterBroker(t *tx, c UnregisterBroker) (any, *model.Error) {
	b := t.broker(c.ID)
	switch {
	case b == nil:
		return nil, model.Errorf(model.UnknownBroker, "there is no broker %d", c.ID)
	case c.IfMatch != "" && c.IfMatch != b.ETag():
		return nil, etagMismatch("the broker")
	case !b.Fenced:
		return nil, model.Errorf(model.Conflict, "broker %d is online: drain and stop it first", c.ID)
	}
	if n := t.replicasOf(c.ID); n > 0 {
		return nil, model.Errorf(model.Conflict, "broker %d has %d replicas: drain it first", c.ID, n)
	}
	t.removeBroker(b)
	return b, nil
}
