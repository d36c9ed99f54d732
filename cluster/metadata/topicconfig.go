package metadata

import "math"

// TopicConfig is every setting of a topic, parsed. Durations are milliseconds, sizes
// bytes; -1 means without limit where the definition allows it. It never changes once
// published, so hot paths read its fields without a lock.
type TopicConfig struct {
	CleanupPolicy             CleanupPolicy
	CompressionType           string // "producer" or a codec's name
	GzipLevel                 int64
	LZ4Level                  int64
	ZstdLevel                 int64
	DedupeWindowMs            int64
	DeleteRetentionMs         int64
	FileDeleteDelayMs         int64
	FlushMessages             int64
	FlushMs                   int64
	IndexIntervalBytes        int64
	MaxCompactionLagMs        int64
	MaxMessageBytes           int64
	TimestampAfterMaxMs       int64
	TimestampBeforeMaxMs      int64
	TimestampType             string // CreateTime or LogAppendTime
	MinCleanableDirtyRatio    float64
	MinCompactionLagMs        int64
	MinInsyncReplicas         int64
	Preallocate               bool
	RetentionBytes            int64
	RetentionMs               int64
	SegmentBytes              int64
	SegmentIndexBytes         int64
	SegmentJitterMs           int64
	SegmentMs                 int64
	UncleanLeaderElection     bool
	WriteCaching              bool
	FollowerThrottledReplicas string
	LeaderThrottledReplicas   string
}

// CleanupPolicy says how old data goes: by retention, by compaction, or both.
type CleanupPolicy struct{ Delete, Compact bool }

// Values of TimestampType.
const (
	CreateTime    = "CreateTime"
	LogAppendTime = "LogAppendTime"
)

// CompressionProducer is the CompressionType that stores batches as they came.
const CompressionProducer = "producer"

// ConfigType is the type of a setting's value.
type ConfigType string

// Config types. A list is comma-separated.
const (
	TypeLong    ConfigType = "long"
	TypeInt     ConfigType = "int"
	TypeDouble  ConfigType = "double"
	TypeBoolean ConfigType = "boolean"
	TypeString  ConfigType = "string"
	TypeList    ConfigType = "list"
)

// ConfigDef defines one setting.
type ConfigDef struct {
	Name    string
	Type    ConfigType
	Unit    string   // "ms", "bytes", "messages", "replicas", "ratio", "level" or "" for none
	Default string   // "" with DefaultVaries
	Min     *float64 // nil: no lower bound
	Max     *float64
	Allowed []string // nil: any
	Doc     string
	Since   MetadataVersion // metadata version that introduced it
	// DefaultVaries is set when the default depends on the replication factor; use
	// DefaultAt.
	DefaultVaries bool
	Scope         ConfigScope
	TopicOnly     bool // the cluster's config cannot hold it
	Secret        bool // the value is not shown to anybody; see Shown

	field func(*TopicConfig) any     // pointer to the field it fills; nil for the cluster's own
	own   func(*ClusterSettings) any // likewise; nil for a topic's
}

// ConfigScope says whose setting a definition is.
type ConfigScope string

// Scopes of settings. What has the topics' scope may also stand in the cluster's config, as
// the default of all topics that do not set it.
const (
	ScopeTopic   ConfigScope = "topic"
	ScopeCluster ConfigScope = "cluster"
)

// secretShown stands for the value of a secret.
const secretShown = "********"

// Shown is a value as it may be shown: that of a secret is masked, unless there is none.
func (d *ConfigDef) Shown(value string) string {
	if d.Secret && value != "" {
		return secretShown
	}
	return value
}

const (
	dayMs     = 24 * 60 * 60 * 1000
	noLimitIn = "9223372036854775807"
)

func bound(v float64) *float64 { return &v }

// TopicConfigDefs returns the definitions of all topic settings in order of their
// names. They are Kafka's keys and defaults, except for segment.bytes,
// min.insync.replicas, write.caching and dedupe.window.ms. The slice is the caller's.
func TopicConfigDefs() []ConfigDef { return append([]ConfigDef(nil), topicConfigDefs...) }

// TopicConfigDef returns the definition of one key.
func TopicConfigDef(name string) (ConfigDef, bool) {
	i, ok := topicConfigIndex[name]
	if !ok {
		return ConfigDef{}, false
	}
	return topicConfigDefs[i], true
}

var topicConfigIndex = func() map[string]int {
	m := make(map[string]int, len(topicConfigDefs))
	for i, d := range topicConfigDefs {
		m[d.Name] = i
	}
	return m
}()

var compressionTypes = []string{"producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"}

var topicConfigDefs = inScope(ScopeTopic, []ConfigDef{
	{Name: "cleanup.policy", Type: TypeList, Default: "delete", Allowed: []string{"delete", "compact"}, Since: 1,
		Doc:   "How old records go: delete by retention, compact to the last record per key, or both. When compact is added, records without key are dropped.",
		field: func(c *TopicConfig) any { return &c.CleanupPolicy }},
	{Name: "compression.gzip.level", Type: TypeInt, Unit: "level", Default: "-1", Min: bound(-1), Max: bound(9), Since: 1,
		Doc:   "Level used when compression.type is gzip; -1 is the codec's own default.",
		field: func(c *TopicConfig) any { return &c.GzipLevel }},
	{Name: "compression.lz4.level", Type: TypeInt, Unit: "level", Default: "9", Min: bound(1), Max: bound(17), Since: 1,
		Doc:   "Level used when compression.type is lz4.",
		field: func(c *TopicConfig) any { return &c.LZ4Level }},
	{Name: "compression.type", Type: TypeString, Default: CompressionProducer, Allowed: compressionTypes, Since: 1,
		Doc:   "Codec of stored batches; producer keeps what the producer sent.",
		field: func(c *TopicConfig) any { return &c.CompressionType }},
	{Name: "compression.zstd.level", Type: TypeInt, Unit: "level", Default: "3", Min: bound(-131072), Max: bound(22), Since: 1,
		Doc:   "Level used when compression.type is zstd.",
		field: func(c *TopicConfig) any { return &c.ZstdLevel }},
	{Name: "dedupe.window.ms", Type: TypeLong, Unit: "ms", Default: "300000", Min: bound(0), Max: bound(7 * dayMs), Since: 1,
		Doc:   "How long an Idempotency-Key is remembered.",
		field: func(c *TopicConfig) any { return &c.DedupeWindowMs }},
	{Name: "delete.retention.ms", Type: TypeLong, Unit: "ms", Default: "86400000", Min: bound(0), Since: 1,
		Doc:   "How long compaction keeps a tombstone after it became the last record of its key (KIP-534).",
		field: func(c *TopicConfig) any { return &c.DeleteRetentionMs }},
	{Name: "file.delete.delay.ms", Type: TypeLong, Unit: "ms", Default: "60000", Min: bound(0), Since: 1,
		Doc:   "How long a deleted segment stays on disk before its files are removed.",
		field: func(c *TopicConfig) any { return &c.FileDeleteDelayMs }},
	{Name: "flush.messages", Type: TypeLong, Unit: "messages", Default: noLimitIn, Min: bound(1), Since: 1,
		Doc:   "Kept for Kafka tools, without effect: every record is synced unless write.caching is on.",
		field: func(c *TopicConfig) any { return &c.FlushMessages }},
	{Name: "flush.ms", Type: TypeLong, Unit: "ms", Default: noLimitIn, Min: bound(0), Since: 1,
		Doc:   "Kept for Kafka tools, without effect: every record is synced unless write.caching is on.",
		field: func(c *TopicConfig) any { return &c.FlushMs }},
	{Name: "follower.replication.throttled.replicas", Type: TypeList, Default: "", Since: 1, TopicOnly: true,
		Doc:   "Kept for Kafka tools, without effect: reassignments carry their own throttle.",
		field: func(c *TopicConfig) any { return &c.FollowerThrottledReplicas }},
	{Name: "index.interval.bytes", Type: TypeInt, Unit: "bytes", Default: "4096", Min: bound(0), Max: bound(math.MaxInt32), Since: 1,
		Doc:   "Bytes of log between two entries of the offset index.",
		field: func(c *TopicConfig) any { return &c.IndexIntervalBytes }},
	{Name: "leader.replication.throttled.replicas", Type: TypeList, Default: "", Since: 1, TopicOnly: true,
		Doc:   "Kept for Kafka tools, without effect: reassignments carry their own throttle.",
		field: func(c *TopicConfig) any { return &c.LeaderThrottledReplicas }},
	{Name: "max.compaction.lag.ms", Type: TypeLong, Unit: "ms", Default: noLimitIn, Min: bound(1), Since: 1,
		Doc:   "Longest time a record may stay out of reach of compaction.",
		field: func(c *TopicConfig) any { return &c.MaxCompactionLagMs }},
	{Name: "max.message.bytes", Type: TypeInt, Unit: "bytes", Default: "1048588", Min: bound(0), Max: bound(math.MaxInt32), Since: 1,
		Doc:   "Largest record batch, after compression.",
		field: func(c *TopicConfig) any { return &c.MaxMessageBytes }},
	{Name: "message.timestamp.after.max.ms", Type: TypeLong, Unit: "ms", Default: "3600000", Min: bound(0), Since: 1,
		Doc:   "How far a record's timestamp may lie after the broker's time (KIP-937).",
		field: func(c *TopicConfig) any { return &c.TimestampAfterMaxMs }},
	{Name: "message.timestamp.before.max.ms", Type: TypeLong, Unit: "ms", Default: noLimitIn, Min: bound(0), Since: 1,
		Doc:   "How far a record's timestamp may lie before the broker's time (KIP-937).",
		field: func(c *TopicConfig) any { return &c.TimestampBeforeMaxMs }},
	{Name: "message.timestamp.type", Type: TypeString, Default: CreateTime, Allowed: []string{CreateTime, LogAppendTime}, Since: 1,
		Doc:   "Whether records keep the producer's timestamp or get the time of the append (KIP-32).",
		field: func(c *TopicConfig) any { return &c.TimestampType }},
	{Name: "min.cleanable.dirty.ratio", Type: TypeDouble, Unit: "ratio", Default: "0.5", Min: bound(0), Max: bound(1), Since: 1,
		Doc:   "Share of not yet compacted bytes at which a log is compacted; 0 is at any.",
		field: func(c *TopicConfig) any { return &c.MinCleanableDirtyRatio }},
	{Name: "min.compaction.lag.ms", Type: TypeLong, Unit: "ms", Default: "0", Min: bound(0), Since: 1,
		Doc:   "Shortest time a record stays out of reach of compaction.",
		field: func(c *TopicConfig) any { return &c.MinCompactionLagMs }},
	{Name: "min.insync.replicas", Type: TypeInt, Unit: "replicas", Min: bound(1), Max: bound(math.MaxInt16), Since: 1, DefaultVaries: true,
		Doc:   "In-sync replicas needed for acks=all and for the high watermark to advance. By default a majority of the replicas when there are three or more, else 1; never above the replication factor.",
		field: func(c *TopicConfig) any { return &c.MinInsyncReplicas }},
	{Name: "preallocate", Type: TypeBoolean, Default: "false", Since: 1,
		Doc:   "Kept for Kafka tools, without effect: segments grow as they are written.",
		field: func(c *TopicConfig) any { return &c.Preallocate }},
	{Name: "retention.bytes", Type: TypeLong, Unit: "bytes", Default: "-1", Min: bound(-1), Since: 1,
		Doc:   "Size of a partition above which its oldest segments are deleted; -1 is without limit. The segment that is written to stays.",
		field: func(c *TopicConfig) any { return &c.RetentionBytes }},
	{Name: "retention.ms", Type: TypeLong, Unit: "ms", Default: "604800000", Min: bound(-1), Since: 1,
		Doc:   "Age of its newest record after which a segment is deleted; -1 is without limit.",
		field: func(c *TopicConfig) any { return &c.RetentionMs }},
	{Name: "segment.bytes", Type: TypeInt, Unit: "bytes", Default: "524288000", Min: bound(64 << 10), Max: bound(math.MaxInt32), Since: 1,
		Doc:   "Size at which a segment is closed and the next one begun.",
		field: func(c *TopicConfig) any { return &c.SegmentBytes }},
	{Name: "segment.index.bytes", Type: TypeInt, Unit: "bytes", Default: "10485760", Min: bound(4), Max: bound(math.MaxInt32), Since: 1,
		Doc:   "Largest offset or time index; a full one closes its segment.",
		field: func(c *TopicConfig) any { return &c.SegmentIndexBytes }},
	{Name: "segment.jitter.ms", Type: TypeLong, Unit: "ms", Default: "0", Min: bound(0), Since: 1,
		Doc:   "Random time by which segment.ms is shortened, so that segments do not all roll at once.",
		field: func(c *TopicConfig) any { return &c.SegmentJitterMs }},
	{Name: "segment.ms", Type: TypeLong, Unit: "ms", Default: "604800000", Min: bound(1), Since: 1,
		Doc:   "Age at which a segment is closed even when it is not full.",
		field: func(c *TopicConfig) any { return &c.SegmentMs }},
	{Name: "unclean.leader.election.enable", Type: TypeBoolean, Default: "false", Since: 1,
		Doc:   "Whether a replica that is not in sync may lead when no other is left; records may be lost.",
		field: func(c *TopicConfig) any { return &c.UncleanLeaderElection }},
	{Name: "write.caching", Type: TypeBoolean, Default: "false", Since: 1,
		Doc:   "Whether records count as stable before they are synced; a power cut may then lose acknowledged records.",
		field: func(c *TopicConfig) any { return &c.WriteCaching }},
})

func inScope(scope ConfigScope, defs []ConfigDef) []ConfigDef {
	for i := range defs {
		defs[i].Scope = scope
	}
	return defs
}
