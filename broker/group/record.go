package group

import (
	"time"

	"tidewire/broker/group/assign"
	"tidewire/internal/model"
)

// Kind tells records apart. The numbers are this package's; what they are in a log is the
// business of its codec.
type Kind uint8

// The kinds of records.
const (
	KindGroup   Kind = iota + 1 // GroupInfo
	KindTopic                   // TopicInfo
	KindMember                  // Member
	KindTarget                  // Target
	KindCurrent                 // Current
	KindGone                    // MemberGone
	KindOffset                  // Offset
	KindStaged                  // StagedOffset
)

// Key names the fact that a record states, within its group. A later record of a key takes
// the place of an earlier one. Fields that a kind does not name are zero.
type Key struct {
	Kind      Kind
	Member    string            // Member, Target, Current, Gone
	TopicID   model.TopicID     // Topic
	Topic     string            // Offset, Staged: by name, as Kafka has it
	Partition model.PartitionID // Offset, Staged
	Producer  model.ProducerID  // Staged
}

// Record is one durable fact. Records are immutable: state and log share their slices.
type Record interface{ Key() Key }

// Tombstone takes away what the record of its key said.
type Tombstone struct{ Of Key }

// Key is the key of what is taken away.
func (t Tombstone) Key() Key { return t.Of }

// GroupInfo is what is true of the group as a whole.
type GroupInfo struct {
	Epoch       Epoch
	TargetEpoch Epoch // that the Targets were made for; less than Epoch while assigning
	Assignor    assign.Name
	// EmptySinceMs is the wall time at which the last member went, ms; 0 with members.
	EmptySinceMs int64
}

// Key is the group's one.
func (GroupInfo) Key() Key { return Key{Kind: KindGroup} }

// TopicInfo is what the group knows of a topic that it subscribes to, or has offsets of.
type TopicInfo struct {
	ID   model.TopicID
	Name string
	// Initial is how many partitions there were when the group came to know the topic:
	// members' reset policies are for these. 0 for a topic that appeared later.
	Initial int32
	// Partitions is how many there are, as far as the group's epoch knows.
	Partitions int32
}

// Key is the topic's id.
func (t TopicInfo) Key() Key { return Key{Kind: KindTopic, TopicID: t.ID} }

// Member is what a member is for as long as it lives.
type Member struct {
	ID         string
	InstanceID string // of a static member, or ""
	ClientID   string
	Host       string
	User       string   // who joined; for whoever checks that it is the same one who calls
	Topics     []string // ascending, none twice; or
	Pattern    string   // RE2, of whole names
	// SessionTimeout in whole ms.
	SessionTimeout time.Duration
	Reset          ResetPolicy
	ResetFromMs    int64 // with FromTime
	AutoCommit     bool
	JoinedMs       int64 // wall time
}

// Key is the member's id.
func (m Member) Key() Key { return Key{Kind: KindMember, Member: m.ID} }

// TopicPartitions are partitions of one topic.
type TopicPartitions struct {
	Topic      model.TopicID
	Partitions []model.PartitionID // ascending
}

// Target is what the assignor gives a member.
type Target struct {
	Member string
	Topics []TopicPartitions // ascending by id, none empty
}

// Key is the member's id.
func (t Target) Key() Key { return Key{Kind: KindTarget, Member: t.Member} }

// Grant is one partition that a member holds.
type Grant struct {
	Index model.PartitionID
	Since Version
	// Revoked is the version with which it began to be revoked; 0 while it is held.
	Revoked Version
}

// TopicGrants are the grants of one topic.
type TopicGrants struct {
	Topic  model.TopicID
	Grants []Grant // ascending by index
}

// Current is what a member holds, what is being revoked from it included.
type Current struct {
	Member  string
	Version Version
	Topics  []TopicGrants // ascending by id, none empty
}

// Key is the member's id.
func (c Current) Key() Key { return Key{Kind: KindCurrent, Member: c.Member} }

// MemberGone remembers a member that is no more.
type MemberGone struct {
	Member string
	Reason Reason
	AtMs   int64 // wall time, for people
}

// Key is the member's id.
func (m MemberGone) Key() Key { return Key{Kind: KindGone, Member: m.Member} }

// Offset is a committed offset.
type Offset struct {
	Topic     string
	TopicID   model.TopicID // zero where it is not known: written by others
	Partition model.PartitionID
	Next      model.Offset      // the next to be read
	Epoch     model.LeaderEpoch // of the record before, or model.NoEpoch
	Metadata  string
	CommitMs  int64 // wall time
}

// Key is the topic's name with the partition.
func (o Offset) Key() Key { return Key{Kind: KindOffset, Topic: o.Topic, Partition: o.Partition} }

// StagedOffset is an offset that is committed if a transaction is. Its commit writes a plain
// Offset, so that the order of transactions is the order of their ends.
type StagedOffset struct {
	Producer model.ProducerID
	Offset   Offset
}

// Key is the producer with the offset's key.
func (s StagedOffset) Key() Key {
	return Key{Kind: KindStaged, Producer: s.Producer, Topic: s.Offset.Topic, Partition: s.Offset.Partition}
}
