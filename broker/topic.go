package broker

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"tidewire/broker/partition"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
	"tidewire/storage/log"
	"tidewire/storage/record"
)

// topicConfig is what the append path reads of a topic's settings.
type topicConfig struct {
	MaxMessageBytes      int
	DedupeWindowMs       int64
	MinInsyncReplicas    int
	LogAppendTime        bool
	Recompress           bool         // compression.type names a codec, which is
	Codec                record.Codec // this one
	Compact              bool
	Delete               bool            // cleanup.policy holds delete
	RetentionBytes       int64           // −1: unlimited
	RetentionMs          int64           // −1: unlimited
	TimestampBeforeMaxMs int64           // −1: unlimited
	TimestampAfterMaxMs  int64           // −1: unlimited
	Clean                log.CleanPolicy // without the offsets
}

// topic mirrors one topic of the image on this node.
type topic struct {
	name   string
	id     model.TopicID
	config atomic.Pointer[topicConfig]
	// inForce are the settings that every open partition has taken over.
	inForce atomic.Pointer[metadata.TopicConfig]
	parts   atomic.Pointer[[]*partition.Partition] // nil where the partition could not be opened
	// lead are parts without those that other nodes lead, as the image said when they were
	// last looked at.
	lead atomic.Pointer[[]*partition.Partition]
	// nobody tells which partitions have no leader; nil: all have one.
	nobody atomic.Pointer[[]bool]
	sticky atomic.Uint32 // keyless records take this partition, modulo their number
	rates  rates
	once   inFlight
	away   sync.Map // PartitionID → *forward.Partition, of those that other nodes lead
	// grownAt is when this process found partitions, ms: the topic may have grown then.
	grownAt atomic.Int64
	warned  atomic.Int64 // when old records were last logged, milliseconds

	mu     sync.Mutex
	logs   []*log.Log // guarded by mu; nil where not open
	failed []error    // guarded by mu: why a partition is not open
}

func newTopic(t *metadata.Topic) *topic {
	n := &topic{name: t.Name, id: t.ID}
	n.parts.Store(new([]*partition.Partition))
	n.lead.Store(new([]*partition.Partition))
	n.sticky.Store(rand.Uint32())
	return n
}

// follows reports whether the topic is as the image wants it.
func (t *topic) follows(want *metadata.Topic) bool {
	has := t.inForce.Load()
	return t.id == want.ID && len(*t.parts.Load()) >= len(want.Partitions) &&
		(has == want.Config || has != nil && *has == *want.Config)
}

// turn is the partition that takes keyless records now. One that has no leader is passed over.
func (t *topic) turn(parts []*partition.Partition) int32 {
	cur, n := t.sticky.Load(), uint32(len(parts))
	nobody := t.nobody.Load()
	if nobody == nil || len(*nobody) != len(parts) || !(*nobody)[cur%n] {
		return int32(cur % n)
	}
	for step := uint32(1); step < n; step++ {
		if next := (cur + step) % n; !(*nobody)[next] {
			t.sticky.CompareAndSwap(cur, cur+step)
			return int32(next)
		}
	}
	return int32(cur % n)
}

// turnOver moves keyless records on from a partition to the next.
func (t *topic) turnOver(p model.PartitionID) func() {
	return func() {
		n := uint32(len(*t.parts.Load()))
		if cur := t.sticky.Load(); n > 0 && cur%n == uint32(p) {
			t.sticky.CompareAndSwap(cur, cur+1)
		}
	}
}

func (t *topic) notOpen(p int32) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if int(p) < len(t.failed) && t.failed[p] != nil {
		return model.AsError(t.failed[p]).WithOutcome(model.NotApplied)
	}
	return model.Errorf(model.LeaderUnavailable, "partition %d of %q is not open on this node", p, t.name)
}

func (t *topic) close(why error) {
	for _, p := range *t.parts.Load() {
		if p != nil {
			p.Close(why)
		}
	}
}

func (t *topic) openLogs() []*log.Log {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]*log.Log, len(t.logs))
	copy(out, t.logs)
	return out
}

// appendLogs is openLogs into memory of the caller.
func (t *topic) appendLogs(out []*log.Log) []*log.Log {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append(out, t.logs...)
}

func configOf(c *metadata.TopicConfig) *topicConfig {
	codec, named := record.ParseCodec(c.CompressionType)
	return &topicConfig{
		Recompress: named, Codec: codec,
		MaxMessageBytes: int(c.MaxMessageBytes), DedupeWindowMs: c.DedupeWindowMs, MinInsyncReplicas: int(c.MinInsyncReplicas),
		LogAppendTime: c.TimestampType == metadata.LogAppendTime, Compact: c.CleanupPolicy.Compact, RetentionMs: c.RetentionMs,
		Delete: c.CleanupPolicy.Delete, RetentionBytes: c.RetentionBytes,
		TimestampBeforeMaxMs: c.TimestampBeforeMaxMs, TimestampAfterMaxMs: c.TimestampAfterMaxMs,
		Clean: log.CleanPolicy{
			DeleteRetentionMs: c.DeleteRetentionMs, MinLagMs: c.MinCompactionLagMs, MaxLagMs: maxLag(c), MinDirtyRatio: c.MinCleanableDirtyRatio,
		},
	}
}

// maxLag is max.compaction.lag.ms as compaction takes it, for which 0 is without limit.
func maxLag(c *metadata.TopicConfig) int64 {
	if c.MaxCompactionLagMs == math.MaxInt64 {
		return 0
	}
	return c.MaxCompactionLagMs
}

func logConfigOf(c *metadata.TopicConfig) log.Config {
	segmentMs := c.SegmentMs
	if c.CleanupPolicy.Compact { // what is in the active segment is out of reach (KIP-354)
		segmentMs = min(segmentMs, c.MaxCompactionLagMs)
	}
	return log.Config{
		SegmentBytes: c.SegmentBytes, SegmentMs: segmentMs, IndexIntervalBytes: int(c.IndexIntervalBytes),
		SegmentIndexBytes: int(c.SegmentIndexBytes), MaxMessageBytes: int(c.MaxMessageBytes),
		LogAppendTime: c.TimestampType == metadata.LogAppendTime, WriteCaching: c.WriteCaching,
		SegmentJitterMs: c.SegmentJitterMs, FileDeleteDelayMs: noneBelowZero(c.FileDeleteDelayMs),
		DedupeWindowMs: noneBelowZero(c.DedupeWindowMs),
	}
}

// noneBelowZero is a setting as the log takes it, for which 0 is the default.
func noneBelowZero(ms int64) int64 {
	if ms == 0 {
		return -1
	}
	return ms
}

func settingsOf(c *metadata.TopicConfig) partition.Settings {
	codec, ok := record.ParseCodec(c.CompressionType)
	if !ok { // "producer", "uncompressed": what HTTP clients send stays as it is
		codec = record.None
	}
	return partition.Settings{MaxMessageBytes: int(c.MaxMessageBytes), MinInsyncReplicas: int(c.MinInsyncReplicas), Codec: codec}
}

// recordError is about a part of the ith record of a request, or of a record that stands
// alone.
func recordError(c model.Code, i int, part, format string, args ...any) error {
	e := model.Errorf(c, format, args...)
	at := part
	if i != single {
		at = fmt.Sprintf("/records/%d%s", i, part)
	}
	e.Fields = []model.FieldError{{Pointer: at, Detail: e.Detail}}
	return e
}

func recordName(i int) string {
	if i == single {
		return "the record"
	}
	return fmt.Sprintf("record %d", i)
}
