package metadata

import (
	"fmt"
	"maps"
	"slices"

	"tidewire/internal/model"
)

// maxPartitions bounds the partitions of one topic, and so the size of its entity.
const maxPartitions = 10_000

func applyCreateTopic(t *tx, c CreateTopic) (any, *model.Error) {
	if problem := model.CheckTopicName(c.Name); problem != "" {
		return nil, model.Invalid("/name", "%s", problem)
	}
	if other, taken := t.collisions.Get([]byte(model.TopicCollisionKey(c.Name))); taken {
		return nil, topicExists(c.Name, other)
	}
	if c.ID.IsZero() {
		return nil, model.Invalid("/id", "a topic id must not be zero")
	}
	if _, taken := t.topicsByID.Get(c.ID[:]); taken {
		return nil, model.Errorf(model.Conflict, "the topic id %s is taken", c.ID)
	}
	if refusal := t.checkAssignments(0, c.Assignments); refusal != nil {
		return nil, refusal
	}
	rf := len(c.Assignments[0])
	overrides, refusal := CheckTopicConfig("/config", c.Config, rf, t.cluster.MetadataVersion)
	if refusal != nil {
		return nil, refusal
	}
	topic := &Topic{
		ID: c.ID, Name: c.Name, Internal: c.Internal, CreatedAt: c.Now, Overrides: overrides,
		Partitions: newPartitions(c.Assignments), ConfigVersion: t.index, Version: t.index,
		Config: t.effective(overrides, rf),
	}
	t.enlist(topic.Partitions)
	t.putTopic(topic)
	return topic, nil
}

func topicExists(name, other string) *model.Error {
	if name == other {
		return model.Errorf(model.TopicExists, "there is a topic %q", name).WithExtra("existing", other)
	}
	return model.Errorf(model.TopicExists, "the name %q collides with topic %q: names must differ in more than \".\" and \"_\"",
		name, other).WithExtra("existing", other)
}

// checkAssignments checks the replicas of new partitions that follow the first have
// ones.
func (t *tx) checkAssignments(have int, assignments [][]model.BrokerID) *model.Error {
	if len(assignments) == 0 || have+len(assignments) > maxPartitions {
		return model.Invalid("/partitions", "a topic has 1 to %d partitions", maxPartitions)
	}
	for i, replicas := range assignments {
		if len(replicas) == 0 {
			return model.Invalid("/replication_factor", "a partition has at least one replica")
		}
		if len(replicas) != len(assignments[0]) {
			return model.Invalid("/assignments", "all partitions must have the same number of replicas")
		}
		for j, id := range replicas {
			if slices.Contains(replicas[:j], id) {
				return model.Invalid(fmt.Sprintf("/assignments/%d", have+i), "broker %d is named twice", id)
			}
			if t.broker(id) == nil {
				return model.Invalid(fmt.Sprintf("/assignments/%d", have+i), "there is no broker %d", id)
			}
		}
	}
	return nil
}

// newPartitions puts each partition under its first replica, with all in sync: an empty
// log has nothing to catch up with.
func newPartitions(assignments [][]model.BrokerID) []Partition {
	out := make([]Partition, len(assignments))
	for i, replicas := range assignments {
		out[i] = Partition{
			Leader:   replicas[0],
			Replicas: slices.Clone(replicas),
			ISR:      slices.Clone(replicas),
			ELR:      []model.BrokerID{},
		}
	}
	return out
}

// findTopic looks a topic up by name and, when id is not zero, by id as well.
func (t *tx) findTopic(name string, id model.TopicID) (*Topic, *model.Error) {
	topic := t.topic(name)
	if topic == nil || !id.IsZero() && topic.ID != id {
		return nil, model.Errorf(model.UnknownTopic, "there is no topic %q", name)
	}
	return topic, nil
}

func applyDeleteTopic(t *tx, c DeleteTopic) (any, *model.Error) {
	topic, refusal := t.findTopic(c.Name, c.ID)
	if refusal != nil {
		return nil, refusal
	}
	if c.IfMatch != "" && c.IfMatch != topic.ETag() {
		return nil, etagMismatch("the topic")
	}
	t.removeTopic(topic)
	return topic, nil
}

func applyCreatePartitions(t *tx, c CreatePartitions) (any, *model.Error) {
	topic, refusal := t.findTopic(c.Name, c.ID)
	if refusal != nil {
		return nil, refusal
	}
	have := len(topic.Partitions)
	switch {
	case c.IfMatch != "" && c.IfMatch != topic.ETag():
		return nil, etagMismatch("the topic")
	case len(c.Assignments) == 0:
		return nil, model.Invalid("/partitions", "the topic has %d partitions, and their number only grows", have)
	case c.From != have:
		return nil, model.Errorf(model.Conflict, "the topic has %d partitions by now", have)
	}
	if refusal := t.checkAssignments(have, c.Assignments); refusal != nil {
		return nil, refusal
	}
	n := topic.Grown(c.Assignments)
	t.enlist(n.Partitions[have:])
	n.Version = t.index
	t.putTopic(n)
	return n, nil
}

// Grown returns a copy of the topic with further partitions, as CreatePartitions makes
// them.
func (t *Topic) Grown(assignments [][]model.BrokerID) *Topic {
	n := *t
	n.Partitions = append(slices.Clone(t.Partitions), newPartitions(assignments)...)
	return &n
}

func applyAlterTopicConfig(t *tx, c AlterTopicConfig) (any, *model.Error) {
	topic, refusal := t.findTopic(c.Name, c.ID)
	if refusal != nil {
		return nil, refusal
	}
	if c.IfMatch != "" && c.IfMatch != topic.ConfigETag() {
		return nil, etagMismatch("the topic's config")
	}
	next, refusal := changeConfig(topic.Overrides, c.Set, c.Unset, topic.ReplicationFactor(), t.cluster.MetadataVersion)
	if refusal != nil {
		return nil, refusal
	}
	if maps.Equal(next, topic.Overrides) {
		return topic, nil
	}
	n := *topic
	n.Overrides, n.ConfigVersion = next, t.index
	t.refit(&n)
	t.putTopic(&n)
	return &n, nil
}

// changeConfig gives the overrides after set and unset.
func changeConfig(have, set map[string]string, unset []string, rf int, v MetadataVersion) (map[string]string, *model.Error) {
	checked, refusal := CheckTopicConfig("/set", set, rf, v)
	if refusal == nil {
		refusal = CheckTopicUnset("/unset", unset, set, v)
	}
	if refusal != nil {
		return nil, refusal
	}
	return replaced(have, checked, unset), nil
}

// CheckTopicUnset refuses names that no topic's config can hold, and those that are set at
// the same time, with pointers below prefix.
func CheckTopicUnset(prefix string, unset []string, set map[string]string, version MetadataVersion) *model.Error {
	return checkUnset(prefix, unset, set, func(name string) string {
		if d, ok := TopicConfigDef(name); !ok || d.Since > version {
			return fmt.Sprintf("there is no topic config %q", name)
		}
		return ""
	})
}
