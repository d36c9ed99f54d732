package offsetslog

import (
	"math"
	"unicode/utf16"

	"tidewire/internal/model"
)

// Partitions is how many partitions the topic is made with (Kafka's
// offsets.topic.num.partitions). It never changes: it would move every group.
const Partitions = 50

// PartitionOf is the partition of a topic of n partitions that holds a group's records: Java's
// String.hashCode of its name, which counts in UTF-16, without its sign, modulo n.
func PartitionOf(groupID string, n int) model.PartitionID {
	var h int32
	for _, r := range groupID {
		if hi, lo := utf16.EncodeRune(r); hi != '\uFFFD' {
			h = 31*(31*h+hi) + lo
			continue
		}
		h = 31*h + r
	}
	switch {
	case h == math.MinInt32: // has no positive counterpart
		h = 0
	case h < 0:
		h = -h
	}
	return model.PartitionID(int(h) % n)
}
