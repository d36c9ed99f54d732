package metadata

import (
	"fmt"
	"maps"
	"math"
	"strconv"

	"tidewire/internal/model"
)

// ClusterSettings is every setting of the cluster's own, parsed. What topics inherit is in
// their TopicConfig.
type ClusterSettings struct {
	CleanerBackoffMs         int64
	CleanerBytesPerSecond    int64
	DefaultReplicationFactor int64 // 0: chosen by the number of nodes
	GroupMaxSize             int64
	NumPartitions            int64
	OffsetsRetentionMinutes  int64
	ProducerIDExpirationMs   int64
	MoveBytesPerSecond       int64 // math.MaxInt64: no limit
	ReplicaLagMs             int64
	RetentionCheckIntervalMs int64
}

// defaultReplicationFactor is the one setting of the cluster whose default is the
// replication factor that it is asked for.
const defaultReplicationFactor = "default.replication.factor"

// MoveThrottleKey is the setting that AlterReassignments may change.
const MoveThrottleKey = "reassignment.max.bytes.per.second"

// clusterConfigDefs are the settings of the cluster's own, in order of their names, which
// are Kafka's dynamic cluster-wide ones where it has them (KIP-226).
var clusterConfigDefs = []ConfigDef{
	{Name: defaultReplicationFactor, Type: TypeInt, Unit: "replicas", Min: bound(1), Max: bound(math.MaxInt16), Since: 1, DefaultVaries: true, Scope: ScopeCluster,
		Doc: "Replication factor of a topic that is created without one. By default 3 where there are as many nodes, else 1.",
		own: func(c *ClusterSettings) any { return &c.DefaultReplicationFactor }},
	{Name: "group.max.size", Type: TypeInt, Unit: "members", Default: "2147483647", Min: bound(1), Max: bound(math.MaxInt32), Since: 1, Scope: ScopeCluster,
		Doc: "Most members of a consumer group. A group that has more keeps them, and takes none.",
		own: func(c *ClusterSettings) any { return &c.GroupMaxSize }},
	{Name: "log.cleaner.backoff.ms", Type: TypeLong, Unit: "ms", Default: "15000", Min: bound(1000), Max: bound(dayMs), Since: 1, Scope: ScopeCluster,
		Doc: "How often a node looks for a partition to compact.",
		own: func(c *ClusterSettings) any { return &c.CleanerBackoffMs }},
	{Name: "log.cleaner.io.max.bytes.per.second", Type: TypeLong, Unit: "bytes", Default: noLimitIn, Min: bound(1), Since: 1, Scope: ScopeCluster,
		Doc: "How many bytes compaction reads at most on a node, per second.",
		own: func(c *ClusterSettings) any { return &c.CleanerBytesPerSecond }},
	{Name: "log.retention.check.interval.ms", Type: TypeLong, Unit: "ms", Default: "30000", Min: bound(1000), Max: bound(dayMs), Since: 1, Scope: ScopeCluster,
		Doc: "How often a node looks for segments that retention deletes.",
		own: func(c *ClusterSettings) any { return &c.RetentionCheckIntervalMs }},
	{Name: "num.partitions", Type: TypeInt, Unit: "partitions", Default: "1", Min: bound(1), Max: bound(maxPartitions), Since: 1, Scope: ScopeCluster,
		Doc: "Number of partitions of a topic that is created without one.",
		own: func(c *ClusterSettings) any { return &c.NumPartitions }},
	{Name: "offsets.retention.minutes", Type: TypeInt, Unit: "min", Default: "10080", Min: bound(1), Max: bound(math.MaxInt32), Since: 1, Scope: ScopeCluster,
		Doc: "How long committed offsets are kept of a group without members, and of a topic that no member of the group subscribes to (KIP-211). It is looked at every 10 minutes.",
		own: func(c *ClusterSettings) any { return &c.OffsetsRetentionMinutes }},
	{Name: "producer.id.expiration.ms", Type: TypeLong, Unit: "ms", Default: "86400000", Min: bound(1000), Since: 1, Scope: ScopeCluster,
		Doc: "How long a partition remembers an idempotent producer of which it hears nothing (KIP-854).",
		own: func(c *ClusterSettings) any { return &c.ProducerIDExpirationMs }},
	{Name: MoveThrottleKey, Type: TypeLong, Unit: "bytes", Default: noLimitIn, Min: bound(1), Since: 1, Scope: ScopeCluster,
		Doc: "How many bytes a node sends at most, and how many it takes, per second, for replicas that a reassignment adds and that are not in sync yet (KIP-73). Other followers are not slowed.",
		own: func(c *ClusterSettings) any { return &c.MoveBytesPerSecond }},
	{Name: "replica.lag.time.max.ms", Type: TypeLong, Unit: "ms", Default: "10000", Min: bound(1000), Max: bound(dayMs), Since: 1, Scope: ScopeCluster,
		Doc: "How long a follower may be behind its leader, by its log end or by what it has synced, before it is out of sync (KIP-16).",
		own: func(c *ClusterSettings) any { return &c.ReplicaLagMs }},
}

// ClusterConfigDefs returns the definitions of everything that the cluster's config may
// hold: first the cluster's own settings, then the defaults that it gives to topics; each
// in order of their names. The slice is the caller's.
func ClusterConfigDefs() []ConfigDef {
	out := append([]ConfigDef(nil), clusterConfigDefs...)
	for _, d := range topicConfigDefs {
		if !d.TopicOnly {
			out = append(out, d)
		}
	}
	return out
}

// ClusterConfigDef returns the definition of one key of the cluster's config.
func ClusterConfigDef(name string) (ConfigDef, bool) {
	for _, d := range clusterConfigDefs {
		if d.Name == name {
			return d, true
		}
	}
	d, ok := TopicConfigDef(name)
	return d, ok && !d.TopicOnly
}

// Settings parses the cluster's own settings in force.
func (c *Cluster) Settings() ClusterSettings {
	s, err := c.parseSettings()
	if err != nil {
		panic("metadata: a checked config does not parse: " + err.Error())
	}
	return s
}

func (c *Cluster) parseSettings() (s ClusterSettings, err error) {
	for i := range clusterConfigDefs {
		d := &clusterConfigDefs[i]
		v, ok := c.Config[d.Name]
		switch {
		case !ok && d.DefaultVaries:
			continue
		case !ok:
			v = d.Default
		}
		if err := setField(d.own(&s), v); err != nil {
			return s, fmt.Errorf("config %s: %w", d.Name, err)
		}
	}
	return s, nil
}

// CheckClusterConfig normalises settings of the cluster's config, as CheckTopicConfig does
// with a topic's.
func CheckClusterConfig(prefix string, values map[string]string, version MetadataVersion) (map[string]string, *model.Error) {
	return checkConfig(prefix, values, func(name, value string) (string, string) {
		d, problem := clusterKey(name, version)
		if problem != "" {
			return "", problem
		}
		return d.Normalise(value)
	})
}

// CheckClusterUnset refuses names that the cluster's config cannot hold, and those that are
// set at the same time, with pointers below prefix.
func CheckClusterUnset(prefix string, unset []string, set map[string]string, version MetadataVersion) *model.Error {
	return checkUnset(prefix, unset, set, func(name string) string {
		_, problem := clusterKey(name, version)
		return problem
	})
}

func clusterKey(name string, version MetadataVersion) (d ConfigDef, problem string) {
	d, ok := ClusterConfigDef(name)
	switch {
	case ok && d.Since <= version:
		return d, ""
	case !ok && isTopicKey(name):
		return d, fmt.Sprintf("%q is a setting of single topics and has no default of the cluster's", name)
	}
	return d, fmt.Sprintf("there is no cluster or topic config %q", name)
}

func isTopicKey(name string) bool {
	_, ok := TopicConfigDef(name)
	return ok
}

// changeClusterConfig gives the cluster's config after set and unset.
func changeClusterConfig(have, set map[string]string, unset []string, v MetadataVersion) (map[string]string, *model.Error) {
	checked, refusal := CheckClusterConfig("/set", set, v)
	if refusal == nil {
		refusal = CheckClusterUnset("/unset", unset, set, v)
	}
	if refusal != nil {
		return nil, refusal
	}
	return replaced(have, checked, unset), nil
}

// replaced is a config without the unset keys and with the checked ones.
func replaced(have, checked map[string]string, unset []string) map[string]string {
	next := maps.Clone(have)
	if next == nil {
		next = map[string]string{}
	}
	for _, name := range unset {
		delete(next, name)
	}
	maps.Copy(next, checked)
	return next
}

// checkUnset looks at the names to be unset; problem says what is wrong with one.
func checkUnset(prefix string, unset []string, set map[string]string, problem func(name string) string) *model.Error {
	for i, name := range unset {
		pointer := prefix + "/" + strconv.Itoa(i)
		if why := problem(name); why != "" {
			return model.Invalid(pointer, "%s", why)
		}
		if _, both := set[name]; both {
			return model.Invalid(pointer, "%q is both set and unset", name)
		}
	}
	return nil
}
