package metadata

import (
	"maps"
	"slices"

	"tidewire/internal/model"
)

// maxProducerIDBlock bounds what one broker can take from the producer-id space.
const maxProducerIDBlock = 1_000_000

func applyBootstrapCluster(t *tx, c BootstrapCluster) (any, *model.Error) {
	switch {
	case t.cluster.ID != "":
		return nil, model.Errorf(model.Conflict, "the cluster has the id %s already", t.cluster.ID)
	case c.ClusterID == "":
		return nil, model.Invalid("/cluster_id", "a cluster id must not be empty")
	case c.MetadataVersion < 1:
		return nil, model.Invalid("/metadata_version", "a metadata version is at least 1")
	}
	e := t.editCluster()
	e.ID, e.Name, e.MetadataVersion, e.CreatedAt = c.ClusterID, c.Name, c.MetadataVersion, c.Now
	e.Version, e.ConfigVersion = t.index, t.index
	return e, nil
}

func applyAlterClusterConfig(t *tx, c AlterClusterConfig) (any, *model.Error) {
	if c.IfMatch != "" && c.IfMatch != t.cluster.ConfigETag() {
		return nil, etagMismatch("the cluster's config")
	}
	next, refusal := changeClusterConfig(t.cluster.Config, c.Set, c.Unset, t.cluster.MetadataVersion)
	if refusal != nil {
		return nil, refusal
	}
	if maps.Equal(next, t.cluster.Config) {
		return t.cluster, nil
	}
	e := t.editCluster()
	e.Config, e.ConfigVersion = next, t.index
	t.delta.ClusterConfig = true
	t.recomputeConfigs()
	return e, nil
}

// recomputeConfigs gives every topic the config in force under the cluster's new
// config. Topics whose own state does not change are not in the delta.
func (t *tx) recomputeConfigs() {
	for _, p := range t.allTopics() {
		n := *p
		before := n.Partitions
		if t.refit(&n); len(before) > 0 && &before[0] != &n.Partitions[0] {
			t.putTopic(&n)
			continue
		}
		t.topics.Insert([]byte(n.Name), &n)
		t.topicsByID.Insert(n.ID[:], &n)
	}
}

// effective is Effective over values that have been checked.
func (t *tx) effective(overrides map[string]string, rf int) *TopicConfig {
	cfg, err := Effective(overrides, t.cluster.Config, rf)
	if err != nil {
		panic("metadata: a checked config does not parse: " + err.Error())
	}
	return cfg
}

func applySetSetupToken(t *tx, c SetSetupToken) (any, *model.Error) {
	if t.hasUsers() {
		return nil, model.Errorf(model.Conflict, "the cluster has users; the setup is closed")
	}
	e := t.editCluster()
	e.SetupTokenHash, e.Version = nonEmpty(c.Hash), t.index
	return nil, nil
}

func applyAllocateProducerIDs(t *tx, c AllocateProducerIDs) (any, *model.Error) {
	if c.Size < 1 || c.Size > maxProducerIDBlock {
		return nil, model.Invalid("/size", "a block has 1 to %d producer ids", maxProducerIDBlock)
	}
	if _, refusal := t.currentBroker(c.Broker, c.Epoch); refusal != nil {
		return nil, refusal
	}
	e := t.editCluster()
	first := e.NextProducerID
	e.NextProducerID += int64(c.Size)
	e.Version = t.index
	return ProducerIDBlock{First: model.ProducerID(first), Size: c.Size}, nil
}

func applyRegisterBroker(t *tx, c RegisterBroker) (any, *model.Error) {
	switch {
	case c.ID < 0:
		return nil, model.Invalid("/id", "a node id is not negative")
	case c.StorageID == "":
		return nil, model.Invalid("/storage_id", "a storage id must not be empty")
	}
	before := t.broker(c.ID)
	if before != nil && before.StorageID != c.StorageID && !before.Fenced {
		return nil, model.Errorf(model.Conflict, "node id %d is in use by another data folder (storage id %s)", c.ID, before.StorageID)
	}
	b := &Broker{
		ID: c.ID, StorageID: c.StorageID, Incarnation: c.Incarnation, Epoch: int64(t.index),
		Host: c.Host, HTTPAddr: c.HTTPAddr, KafkaAddr: c.KafkaAddr, PeerAddr: c.PeerAddr, GossipAddr: c.GossipAddr,
		Rack: c.Rack, BinaryVer: c.BinaryVersion, RegisteredAt: c.Now, Fenced: true, State: BrokerActive, Version: t.index,
	}
	if before != nil {
		b.State, b.Drain = before.State, before.Drain
		switch {
		case before.StorageID != c.StorageID:
			t.dropReplica(c.ID)
		case before.Incarnation == c.Incarnation:
			b.Epoch, b.Fenced, b.RegisteredAt = before.Epoch, before.Fenced, before.RegisteredAt
		default:
			t.putBroker(b) // fenced, for the elections
			t.restarted(c.ID)
		}
	}
	t.putBroker(b)
	return b, nil
}

func applyUnfenceBroker(t *tx, c UnfenceBroker) (any, *model.Error) {
	b, refusal := t.currentBroker(c.ID, c.Epoch)
	if refusal != nil || !b.Fenced {
		return b, refusal
	}
	n := *b
	n.Fenced, n.Version = false, t.index
	t.putBroker(&n)
	t.lead(c.ID)
	return &n, nil
}

func (t *tx) currentBroker(id model.BrokerID, epoch int64) (*Broker, *model.Error) {
	b := t.broker(id)
	switch {
	case b == nil:
		return nil, model.Errorf(model.UnknownBroker, "there is no broker %d", id)
	case b.Epoch != epoch:
		return nil, model.Errorf(model.Fenced, "broker %d has registered again, with epoch %d", id, b.Epoch)
	}
	return b, nil
}

// restarted takes a broker that has registered again for one that was fenced, so that others
// do not wait for it. A process that starts again must not be taken for the leader it was
// before (KIP-320): what it alone has a replica of it leads in a new epoch.
func (t *tx) restarted(id model.BrokerID) {
	t.editTopics(func(topic *Topic, p *Partition) bool {
		if len(p.Replicas) > 1 {
			return t.retire(topic.Config, p, id)
		}
		if p.Leader != id {
			return false
		}
		p.LeaderEpoch++
		return true
	})
}

// dropReplica takes a node that has lost its data out of every ISR and ELR; what it
// led has no leader until an election (KIP-903, 966).
func (t *tx) dropReplica(id model.BrokerID) {
	t.editPartitions(func(p *Partition) bool {
		led := p.Leader == id
		if !led && !slices.Contains(p.ISR, id) && !slices.Contains(p.ELR, id) {
			return false
		}
		if led {
			p.Leader = NoLeader
			p.LeaderEpoch++
		}
		p.ISR, p.ELR = without(p.ISR, id), without(p.ELR, id)
		return true
	})
}

// editPartitions offers a copy of every partition to edit and keeps those for which
// edit reports a change.
func (t *tx) editPartitions(edit func(*Partition) bool) {
	t.editTopics(func(_ *Topic, p *Partition) bool { return edit(p) })
}

// editTopics is editPartitions for an edit that looks at the topic too.
func (t *tx) editTopics(edit func(*Topic, *Partition) bool) {
	for _, topic := range t.allTopics() {
		var parts []Partition
		for i, p := range topic.Partitions {
			if !edit(topic, &p) {
				continue
			}
			t.finish(topic.Config, &p)
			p.PartitionEpoch++
			if parts == nil {
				parts = slices.Clone(topic.Partitions)
			}
			parts[i] = p
		}
		if parts != nil {
			n := *topic
			n.Partitions = parts
			t.fitAfter(topic, &n)
			t.putTopic(&n)
		}
	}
}

func without(ids []model.BrokerID, id model.BrokerID) []model.BrokerID {
	out := make([]model.BrokerID, 0, len(ids))
	for _, x := range ids {
		if x != id {
			out = append(out, x)
		}
	}
	return out
}

func etagMismatch(what string) *model.Error {
	return model.Errorf(model.ETagMismatch, "%s has changed since it was read", what)
}

// nonEmpty gives nil for an empty slice, so that equal states have equal bytes.
func nonEmpty(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}
