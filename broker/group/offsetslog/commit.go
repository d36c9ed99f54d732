package offsetslog

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidewire/internal/model"
)

// Versions of Kafka's formats that are written. Every older one is read, and newer values too,
// which only add tagged fields.
const (
	commitKeyVersion   = 1
	commitValueVersion = 4 // the first with the topic's id
)

// CommitKey says what a committed offset belongs to.
type CommitKey struct {
	Group     string
	Topic     string
	Partition model.PartitionID
}

// Commit is a committed offset.
type Commit struct {
	Next        model.Offset // the next record to be read
	LeaderEpoch model.LeaderEpoch
	Metadata    string
	CommittedAt int64         // milliseconds since 1970
	TopicID     model.TopicID // zero in records of Kafka before 4.1
}

// Append adds the key to dst.
func (k *CommitKey) Append(dst []byte) []byte {
	m := kmsg.OffsetCommitKey{Version: commitKeyVersion, Group: k.Group, Topic: k.Topic, Partition: int32(k.Partition)}
	return m.AppendTo(dst)
}

// Append adds the value to dst.
func (c *Commit) Append(dst []byte) []byte {
	m := kmsg.OffsetCommitValue{
		Version: commitValueVersion, Offset: int64(c.Next), LeaderEpoch: int32(c.LeaderEpoch), Metadata: c.Metadata,
		CommitTimestamp: c.CommittedAt, TopicID: c.TopicID,
	}
	return m.AppendTo(dst)
}

// parseCommitKey reads a key whose version is 0 or 1.
func parseCommitKey(b []byte) (CommitKey, error) {
	var m kmsg.OffsetCommitKey
	if err := m.ReadFrom(b); err != nil {
		return CommitKey{}, corrupt("a key of a committed offset").WithCause(err)
	}
	if m.Partition < 0 {
		return CommitKey{}, corrupt("a key of a committed offset names partition %d", m.Partition)
	}
	return CommitKey{Group: m.Group, Topic: m.Topic, Partition: model.PartitionID(m.Partition)}, nil
}

// parseCommit reads a value of any version.
func parseCommit(b []byte) (Commit, error) {
	if len(b) < 2 || int16(binary.BigEndian.Uint16(b)) < 0 {
		return Commit{}, corrupt("a committed offset has no version")
	}
	m := kmsg.OffsetCommitValue{LeaderEpoch: int32(model.NoEpoch)} // which versions before 3 do not have
	if err := m.ReadFrom(b); err != nil {
		return Commit{}, corrupt("a committed offset").WithCause(err)
	}
	if m.Offset < 0 {
		return Commit{}, corrupt("a committed offset is %d", m.Offset)
	}
	return Commit{
		Next: model.Offset(m.Offset), LeaderEpoch: model.LeaderEpoch(m.LeaderEpoch), Metadata: m.Metadata,
		CommittedAt: m.CommitTimestamp, TopicID: m.TopicID,
	}, nil
}

func corrupt(format string, args ...any) *model.Error {
	return model.Errorf(model.StorageError, "__consumer_offsets holds what cannot be read: "+format, args...)
}
