package broker

import (
	"context"

	"tidewire/broker/follow"
	"tidewire/broker/partition"
	"tidewire/broker/replicas"
)

// startReplicas begins to follow and to serve followers, before any partition is opened.
func (b *Broker) startReplicas() {
	if b.peers == nil {
		return
	}
	b.replicas = replicas.New(replicas.Config{
		Self: b.nodeID, Peers: b.peers, Find: b.openPartitionOf, Each: b.eachPartition, Propose: b.meta.Propose, Image: b.meta.Image,
		Clock: func() int64 { return b.retention.clock.mono().Milliseconds() }, Logger: b.logger, Group: b.group,
	})
	b.replicas.Start()
}

// openPartitionOf finds a partition that is open here; nil where it is not.
func (b *Broker) openPartitionOf(k follow.Key) *partition.Partition {
	t := b.meta.Image().TopicByID(k.Topic)
	if t == nil {
		return nil
	}
	v, ok := b.topics.Load(t.Name)
	if !ok || v.(*topic).id != k.Topic {
		return nil
	}
	if parts := *v.(*topic).parts.Load(); k.Partition >= 0 && int(k.Partition) < len(parts) {
		return parts[k.Partition]
	}
	return nil
}

func (b *Broker) eachPartition(yield func(*partition.Partition) bool) {
	b.topics.Range(func(_, v any) bool {
		for _, p := range *v.(*topic).parts.Load() {
			if p != nil && !yield(p) {
				return false
			}
		}
		return true
	})
}

// Release ends appends on this node, which is about to stop, and waits until what was appended is
// acknowledged, or ctx ends.
func (b *Broker) Release(ctx context.Context) {
	for p := range b.eachPartition {
		p.Release()
	}
	for p := range b.eachPartition {
		p.AwaitReleased(ctx)
	}
}
