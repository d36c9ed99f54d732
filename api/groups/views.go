package groups

import (
	"tidewire/api/problem"
	"tidewire/api/rest"
	"tidewire/api/route"
	"tidewire/broker/coordinator"
	"tidewire/broker/group"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// GroupItem is a group in a list. Where error is set the rest is not known.
type GroupItem struct {
	Group       string           `json:"group"`
	State       *string          `json:"state" enums:"empty,assigning,reconciling,stable,dead,preparing-rebalance,completing-rebalance" extensions:"x-nullable"`
	Members     *int             `json:"members" extensions:"x-nullable"`
	Topics      []string         `json:"topics"`                              // that it subscribes to or has offsets of
	TotalLag    *int64           `json:"total_lag" extensions:"x-nullable"`   // records
	Coordinator *int32           `json:"coordinator" extensions:"x-nullable"` // the node that looks after it
	Actions     []string         `json:"actions"`                             // read, reset, delete
	ETag        *string          `json:"etag" extensions:"x-nullable"`        // changes with members, assignments and offsets
	Error       *problem.Problem `json:"error" extensions:"x-nullable"`       // why the group could not be asked
}

// GroupView is a group. Of topics that the caller may not describe nothing is told.
type GroupView struct {
	Group       string        `json:"group"`
	State       string        `json:"state" enums:"empty,assigning,reconciling,stable,dead,preparing-rebalance,completing-rebalance"`
	Protocol    string        `json:"protocol" enums:"consumer"`
	Coordinator *int32        `json:"coordinator" extensions:"x-nullable"`
	Epoch       int32         `json:"epoch"`                                                            // counts the changes of members, subscriptions and topics
	Assignor    *string       `json:"assignor" enums:"range,roundrobin,sticky" extensions:"x-nullable"` // null before the first member
	Members     []GroupMember `json:"members"`
	Offsets     []GroupOffset `json:"offsets"`
	TotalLag    int64         `json:"total_lag"` // of the partitions whose lag is known
	Actions     []string      `json:"actions"`   // read, reset, delete
	ETag        string        `json:"etag"`      // changes with members, assignments and offsets
}

// GroupMember is a member of a group.
type GroupMember struct {
	MemberID         string            `json:"member_id"`
	InstanceID       *string           `json:"instance_id" extensions:"x-nullable"`
	ClientID         *string           `json:"client_id" extensions:"x-nullable"`
	Host             string            `json:"host"`
	User             string            `json:"user"` // who joined
	Topics           []string          `json:"topics"`
	TopicPattern     *string           `json:"topic_pattern" extensions:"x-nullable"`
	SessionTimeoutMs int64             `json:"session_timeout_ms"`
	AutoOffsetReset  string            `json:"auto_offset_reset" enums:"earliest,latest,none,timestamp"`
	AutoCommit       bool              `json:"auto_commit"`
	JoinedAt         *route.Time       `json:"joined_at" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
	Assignment       []TopicPartitions `json:"assignment"` // what it may read
	Revoking         []TopicPartitions `json:"revoking"`   // what it is to give up
}

// TopicPartitions are partitions of one topic.
type TopicPartitions struct {
	Topic      string  `json:"topic"`
	Partitions []int32 `json:"partitions"`
}

// GroupOffset is a committed offset, or a partition that a member has without one, and what
// its log says.
type GroupOffset struct {
	Topic         string           `json:"topic"`
	Partition     int32            `json:"partition"`
	NextOffset    *int64           `json:"next_offset" extensions:"x-nullable"`    // the next to be read; null: nothing is committed
	HighWatermark *int64           `json:"high_watermark" extensions:"x-nullable"` // null: the log could not be asked
	Lag           *int64           `json:"lag" extensions:"x-nullable"`            // records between the two
	LagMs         *int64           `json:"lag_ms" extensions:"x-nullable"`         // age of the next record to be read; 0: there is none
	Metadata      *string          `json:"metadata" extensions:"x-nullable"`
	CommittedAt   *route.Time      `json:"committed_at" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
	MemberID      *string          `json:"member_id" extensions:"x-nullable"` // who has the partition
	Error         *problem.Problem `json:"error" extensions:"x-nullable"`     // why the log could not be asked
}

// GroupOffsets are the committed offsets of a group.
type GroupOffsets struct {
	Group    string        `json:"group"`
	Offsets  []GroupOffset `json:"offsets"`
	TotalLag int64         `json:"total_lag"`
	Actions  []string      `json:"actions"` // read, reset, delete
	ETag     string        `json:"etag"`    // the group's
}

// GroupDeletion is what deleting a group takes along.
type GroupDeletion struct {
	Group   string           `json:"group"`
	Offsets []TopicPartition `json:"offsets"` // partitions with a committed offset
}

// OffsetsDeletion is what deleting offsets takes away.
type OffsetsDeletion struct {
	Offsets []TopicPartition `json:"offsets"`
}

// TopicPartition names one.
type TopicPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

// JoinInput makes a member. It names topics or a pattern, one of the two.
type JoinInput struct {
	Topics           []string `json:"topics" maxItems:"2000"`                                           // need not exist yet
	TopicPattern     *string  `json:"topic_pattern" maxLength:"1024" extensions:"x-nullable"`           // a regular expression (RE2) of whole names
	Assignor         *string  `json:"assignor" enums:"range,roundrobin,sticky" extensions:"x-nullable"` // the group's unless given; range for a new group
	SessionTimeoutMs *int64   `json:"session_timeout_ms" minimum:"1000" maximum:"1800000" default:"10000" extensions:"x-nullable"`
	AutoOffsetReset  *string  `json:"auto_offset_reset" enums:"earliest,latest,none" default:"latest" extensions:"x-nullable"` // where to begin without a committed offset
	AutoCommit       bool     `json:"auto_commit" default:"false"`                                                             // a read with a cursor commits what the cursor covers
	InstanceID       *string  `json:"instance_id" maxLength:"255" extensions:"x-nullable"`                                     // a name of its own, under which it comes back
	TakeOver         bool     `json:"take_over" default:"false"`                                                               // ends a live member of the same instance_id
	ClientID         *string  `json:"client_id" maxLength:"255" extensions:"x-nullable"`                                       // for people
}

// JoinAnswer is a new member.
type JoinAnswer struct {
	MemberID         string   `json:"member_id"` // what all further calls name
	Group            string   `json:"group"`
	Epoch            int32    `json:"epoch"`
	Assignor         string   `json:"assignor" enums:"range,roundrobin,sticky"`
	Topics           []string `json:"topics"`
	TopicPattern     *string  `json:"topic_pattern" extensions:"x-nullable"`
	SessionTimeoutMs int64    `json:"session_timeout_ms"` // without a call for so long the member expires
	AutoOffsetReset  string   `json:"auto_offset_reset" enums:"earliest,latest,none"`
	AutoCommit       bool     `json:"auto_commit"`
	InstanceID       *string  `json:"instance_id" extensions:"x-nullable"`
	ClientID         *string  `json:"client_id" extensions:"x-nullable"`
	FencedMemberID   *string  `json:"fenced_member_id" extensions:"x-nullable"` // whose place it took
}

// PollInput asks for records as the query of GET …/records does.
type PollInput struct {
	Cursor         *string `json:"cursor" extensions:"x-nullable"`
	WaitMs         *int64  `json:"wait_ms" minimum:"0" maximum:"60000" default:"0" extensions:"x-nullable"`
	MaxRecords     *int64  `json:"max_records" minimum:"1" maximum:"10000" default:"500" extensions:"x-nullable"`
	MaxBytes       *int64  `json:"max_bytes" minimum:"1" maximum:"67108864" default:"1048576" extensions:"x-nullable"`
	MinBytes       *int64  `json:"min_bytes" minimum:"1" maximum:"67108864" default:"1" extensions:"x-nullable"`
	Isolation      *string `json:"isolation" enums:"read_committed,read_uncommitted" default:"read_committed" extensions:"x-nullable"`
	Encoding       *string `json:"encoding" enums:"auto,json,text,base64" default:"auto" extensions:"x-nullable"`
	KeyEncoding    *string `json:"key_encoding" enums:"auto,json,text,base64" default:"auto" extensions:"x-nullable"`
	HeaderEncoding *string `json:"header_encoding" enums:"auto,json,text,base64" default:"auto" extensions:"x-nullable"`
}

// MemberRecords is what a member reads. It is also the data of an event of a stream.
type MemberRecords struct {
	Records    []rest.RecordView `json:"records"`
	Assignment AssignmentView    `json:"assignment"`
	Cursor     string            `json:"cursor"`    // for the next read
	Positions  []MemberPosition  `json:"positions"` // of the partitions that are read, after these records
}

// AssignmentView is what a member has.
type AssignmentView struct {
	Epoch      int32            `json:"epoch"`
	Partitions []TopicPartition `json:"partitions"` // that it reads
	Revoking   []TopicPartition `json:"revoking"`   // that it is to give up: they give no more records, and may still be committed
	Pending    bool             `json:"pending"`    // there is more to come
	// Unavailable are those of partitions that could not be read, such as those whose leader
	// does not run.
	Unavailable []UnavailablePartition `json:"unavailable"`
}

// UnavailablePartition is a partition that cannot be read now.
type UnavailablePartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Code      string `json:"code"` // of the error that a read of it gets
}

// MemberPosition is the next offset to be read of a partition.
type MemberPosition struct {
	Topic      string `json:"topic"`
	Partition  int32  `json:"partition"`
	NextOffset int64  `json:"next_offset"`
}

// CommitInput has offsets or a cursor, one of the two.
type CommitInput struct {
	Offsets []CommitOffset `json:"offsets"`
	Cursor  *string        `json:"cursor" extensions:"x-nullable"`
}

// OffsetsInput are offsets to be stored.
type OffsetsInput struct {
	Offsets []CommitOffset `json:"offsets" binding:"required" minItems:"1"`
}

// CommitOffset is an offset to be stored.
type CommitOffset struct {
	Topic      string  `json:"topic" binding:"required"`
	Partition  int32   `json:"partition" binding:"required" minimum:"0"`
	NextOffset int64   `json:"next_offset" binding:"required" minimum:"0" maximum:"9007199254740991"` // the next to be read
	Metadata   *string `json:"metadata" maxLength:"4096" extensions:"x-nullable"`
}

// CommittedOffsets are offsets as they are stored now.
type CommittedOffsets struct {
	Offsets []CommittedOffset `json:"offsets"`
}

// CommittedOffset is a stored offset.
type CommittedOffset struct {
	Topic      string `json:"topic"`
	Partition  int32  `json:"partition"`
	NextOffset int64  `json:"next_offset"`
	Metadata   string `json:"metadata"`
}

// SeekInput says where to read on.
type SeekInput struct {
	Positions []SeekPosition `json:"positions" binding:"required" minItems:"1"`
	Cursor    *string        `json:"cursor" extensions:"x-nullable"` // has the positions of the other partitions; without it those are the committed ones
}

// SeekPosition is where to read a partition on.
type SeekPosition struct {
	Topic      string `json:"topic" binding:"required"`
	Partition  int32  `json:"partition" binding:"required" minimum:"0"`
	NextOffset int64  `json:"next_offset" binding:"required" minimum:"0" maximum:"9007199254740991"`
}

// SeekAnswer has the cursor that reads on there. Nothing is stored.
type SeekAnswer struct {
	Cursor string `json:"cursor"`
}

// ResetInput says which offsets move and where to; all that the group has unless topics or
// partitions are named.
type ResetInput struct {
	Topics     []string         `json:"topics"`
	Partitions []PartitionInput `json:"partitions"`
	To         string           `json:"to" binding:"required" enums:"earliest,latest,timestamp,offset,shift"`
	Value      *int64           `json:"value" extensions:"x-nullable"` // the time in milliseconds, the offset, or by how many records
}

// PartitionInput names a partition.
type PartitionInput struct {
	Topic     string `json:"topic" binding:"required"`
	Partition int32  `json:"partition" binding:"required" minimum:"0"`
}

// ResetAnswer tells of each partition where it moves.
type ResetAnswer struct {
	Offsets []ResetMove `json:"offsets"`
}

// ResetMove is what a reset does to one partition.
type ResetMove struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      *int64 `json:"from" extensions:"x-nullable"` // null: nothing was committed
	To        int64  `json:"to"`
}

func leader(id model.BrokerID) *int32 {
	if id == metadata.NoLeader {
		return nil
	}
	return new(int32(id))
}

// text is a string, or nil where it is empty.
func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func given(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// byTopic gathers partitions that are in order of topic.
func byTopic(list []group.Held) []TopicPartitions {
	out := []TopicPartitions{}
	for _, h := range list {
		if n := len(out); n == 0 || out[n-1].Topic != h.Name {
			out = append(out, TopicPartitions{Topic: h.Name})
		}
		last := &out[len(out)-1]
		last.Partitions = append(last.Partitions, int32(h.Index))
	}
	return out
}

func memberView(m *group.MemberDescription) GroupMember {
	return GroupMember{
		MemberID: m.ID, InstanceID: text(m.InstanceID), ClientID: text(m.ClientID), Host: m.Host, User: m.User,
		Topics: append([]string{}, m.Topics...), TopicPattern: text(m.Pattern), SessionTimeoutMs: m.SessionTimeout.Milliseconds(),
		AutoOffsetReset: string(m.Reset), AutoCommit: m.AutoCommit, JoinedAt: route.TimeOfMillis(metadata.Millis(m.JoinedMs)),
		Assignment: byTopic(m.Assignment.Held), Revoking: byTopic(m.Assignment.Revoking),
	}
}

func offsetView(c *route.Call, s *coordinator.OffsetState) GroupOffset {
	v := GroupOffset{Topic: s.Topic, Partition: int32(s.Partition), MemberID: text(s.MemberID)}
	committed := s.Next != group.NoOffset
	if committed {
		v.NextOffset, v.Metadata, v.CommittedAt = new(int64(s.Next)), &s.Metadata, route.TimeOfMillis(metadata.Millis(s.CommitMs))
	}
	switch {
	case s.Err != nil:
		v.Error = new(problem.Of(s.Err, c.Occurrence()))
	case committed:
		v.Lag, v.LagMs = &s.Lag, &s.LagMs
		fallthrough
	default:
		v.HighWatermark = new(int64(s.HighWatermark))
	}
	return v
}

func offsetViews(c *route.Call, list []coordinator.OffsetState) []GroupOffset {
	out := make([]GroupOffset, len(list))
	for i := range list {
		out[i] = offsetView(c, &list[i])
	}
	return out
}

func partitionsOf(names []group.Name) []TopicPartition {
	out := make([]TopicPartition, len(names))
	for i, n := range names {
		out[i] = TopicPartition{n.Topic, int32(n.Partition)}
	}
	return out
}

func committed(list []group.Offset) CommittedOffsets {
	out := CommittedOffsets{Offsets: make([]CommittedOffset, len(list))}
	for i := range list {
		o := &list[i]
		out.Offsets[i] = CommittedOffset{Topic: o.Topic, Partition: int32(o.Partition), NextOffset: int64(o.Next), Metadata: o.Metadata}
	}
	return out
}
