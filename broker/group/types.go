package group

import (
	"bytes"
	"cmp"
	"encoding/json"
	"iter"
	"time"

	"tidewire/broker/group/assign"
	"tidewire/broker/group/cursor"
	"tidewire/internal/model"
)

// Version counts the states of a member's assignment; see package cursor.
type Version = cursor.Version

// Epoch counts the changes of a group's members, subscriptions and topics, from 1.
type Epoch int32

// NoOffset stands for a position that is not there.
const NoOffset model.Offset = -1

// Env is what an operation needs of the world: the time, twice, and the topics.
type Env struct {
	// Mono is the time of a clock that never jumps, from any start. Sessions and
	// time-outs run by it.
	Mono time.Duration
	// WallMs is the wall clock, ms since 1970. Only what is stored has it: commit times
	// and the time since which a group is empty.
	WallMs int64
	// Topics are the topics as of now. It must not lag behind what an earlier call of
	// this or a former coordinator of the group has seen: commits of a topic that it
	// does not know are dropped. A coordinator that loads has passed a read barrier.
	Topics View
}

// Topic is what a group needs to know of a topic.
type Topic struct {
	ID         model.TopicID
	Name       string
	Partitions int32
	Internal   bool // never matched by a pattern
}

// View is the topics of one moment: an adapter over the metadata image.
type View interface {
	// ByName returns the topic that has the name now.
	ByName(name string) (Topic, bool)
	// ByID returns a topic; false when it was deleted.
	ByID(id model.TopicID) (Topic, bool)
	// All yields every topic, in order of name.
	All() iter.Seq[Topic]
	// Generation differs between views that differ; what patterns match is remembered
	// by it. 0: do not remember.
	Generation() uint64
}

// Partition is one partition of a topic, by id: a topic that was created anew has other
// partitions.
type Partition struct {
	Topic model.TopicID
	Index model.PartitionID
}

func comparePartitions(a, b Partition) int {
	if c := bytes.Compare(a.Topic[:], b.Topic[:]); c != 0 {
		return c
	}
	return cmp.Compare(a.Index, b.Index)
}

// Name is one partition by its topic's name, as clients give and get it.
type Name struct {
	Topic     string
	Partition model.PartitionID
}

// Limits of what a member may ask for.
const (
	MinSessionTimeout = time.Second
	MaxSessionTimeout = 30 * time.Minute
	// MaxSubscription bounds the topics that a member names.
	MaxSubscription = 2000
	// MaxPattern bounds a topic pattern, in bytes.
	MaxPattern = 1024
	// MaxClientText bounds client id and host, in bytes.
	MaxClientText = 255
)

// Settings are the rules of a coordinator, the same for all its groups.
type Settings struct {
	// AssignmentInterval is the least time between two target assignments of a group.
	AssignmentInterval time.Duration
	// RevocationGrace bounds the time that a polling member has to release a partition;
	// a shorter session timeout takes its place.
	RevocationGrace time.Duration
	// GoneFor is how long an expired or fenced member is remembered, so that it is told.
	GoneFor time.Duration
	// MaxGone bounds how many are remembered; the longest gone are forgotten first.
	MaxGone int
	// MaxMembers bounds a group; 0 is no bound (group.max.size).
	MaxMembers int
	// OffsetRetention is how long the offsets of an empty group, or of a topic that
	// nobody subscribes to, are kept after their commit (offsets.retention.minutes).
	OffsetRetention time.Duration
	// MaxMetadataBytes bounds an offset's metadata (offset.metadata.max.bytes).
	MaxMetadataBytes int
}

// Limits are what an operator may change of Settings while groups live.
type Limits struct {
	MaxMembers      int
	OffsetRetention time.Duration
}

// Limit changes the limits. Members beyond a smaller number stay.
func (g *Group) Limit(l Limits) {
	g.settings.MaxMembers, g.settings.OffsetRetention = l.MaxMembers, l.OffsetRetention
}

// DefaultSettings are the rules unless an operator sets others.
func DefaultSettings() Settings {
	return Settings{
		AssignmentInterval: 50 * time.Millisecond,
		RevocationGrace:    30 * time.Second,
		GoneFor:            time.Hour,
		MaxGone:            1000,
		MaxMembers:         0,
		OffsetRetention:    7 * 24 * time.Hour,
		MaxMetadataBytes:   4096,
	}
}

// ResetPolicy says where to begin without a committed offset, or when it is out of range.
type ResetPolicy string

// The policies. FromTime begins at the first record at or after a time; out of range it
// counts as Earliest.
const (
	Earliest ResetPolicy = "earliest"
	Latest   ResetPolicy = "latest"
	Never    ResetPolicy = "none"
	FromTime ResetPolicy = "timestamp"
)

// State is what a group is doing.
type State string

// The states of a group (KIP-848).
const (
	Empty       State = "empty"       // no members
	Assigning   State = "assigning"   // the target assignment lags behind the epoch
	Reconciling State = "reconciling" // some member has not what its target says
	Stable      State = "stable"      // every member has its target
	Dead        State = "dead"        // there is nothing of it
)

// Reason is why a member is no more.
type Reason uint8

// Reasons that are remembered for a time; a member that left is forgotten at once.
const (
	Expired Reason = 1 // its session ended: 410
	Fenced  Reason = 2 // another took over its instance id: 409
)

// Effects are what the shell does after an operation.
type Effects struct {
	// Records are to be appended as one batch. They are applied already.
	Records []Record
	// Changed are the members whose assignment has changed, or who are no more: polls of
	// theirs that wait are to be answered. Ascending, none twice.
	Changed []string
	// Unresolved are partitions that were granted and have no committed offset. The shell
	// asks their logs at once and calls Resolve, so that a member reads what is appended
	// after it got the partition, however late it polls. Those with the policy Never are
	// left to the member's poll.
	Unresolved []Ungrounded
}

// Ungrounded is an Unresolved with the member that holds it.
type Ungrounded struct {
	Member string
	Unresolved
}

// Held is one partition that a member has.
type Held struct {
	Partition
	Name  string  // of the topic
	Since Version // the version with which it was granted
}

// Assignment is what a member has at a moment. It is shared and must not be changed.
type Assignment struct {
	Version Version
	Epoch   Epoch // of the target that it goes by
	// Held may be read. Ordered by topic name, then number, as Revoking.
	Held []Held
	// Revoking yield no more records and may be committed until they are released.
	Revoking []Held
	// Pending: there is more to come, from other members or from an assignment that is
	// still to be made.
	Pending bool

	since map[Partition]Version // of Held
}

// UnmarshalJSON implements json.Unmarshaler: assignments go from node to node.
func (a *Assignment) UnmarshalJSON(b []byte) error {
	type plain Assignment
	if err := json.Unmarshal(b, (*plain)(a)); err != nil {
		return err
	}
	a.since = make(map[Partition]Version, len(a.Held))
	for _, h := range a.Held {
		a.since[h.Partition] = h.Since
	}
	return nil
}

// Holds tells whether a partition may be read and is the same grant.
func (a *Assignment) Holds(p Partition, since Version) bool {
	v, ok := a.since[p]
	return ok && v == since
}

// Position is the next offset to be read of a partition.
type Position struct {
	Held
	Next        model.Offset      // NoOffset where it is still to be resolved
	LeaderEpoch model.LeaderEpoch // of the record before Next, or model.NoEpoch
}

// Unresolved is a partition whose position the logs have to tell.
type Unresolved struct {
	Held
	// Policy that applies; Earliest also where the partition appeared after the group
	// subscribed. Never: the answer is 416, for which Resolve wants the bounds.
	Policy ResetPolicy
	FromMs int64 // with FromTime: ms since 1970
}

// Bounds is what the log of a partition says.
type Bounds struct {
	Partition
	// At is the position that was out of range, or NoOffset where there was none.
	At model.Offset
	// Earliest is the log start, Latest the end for the reader's isolation, AtTime the
	// offset for FromTime (as Latest where no record is that late).
	Earliest, Latest, AtTime model.Offset
}

// assignorOf returns the name a record has, or the default.
func assignorOf(n assign.Name) assign.Name {
	if n == "" {
		return assign.Range
	}
	return n
}
