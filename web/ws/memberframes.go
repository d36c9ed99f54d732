package ws

// MembershipFields are the fields of subscribe that go with group.
type MembershipFields struct {
	Group      string `json:"group" maxLength:"255"`
	MemberID   string `json:"member_id" maxLength:"255"` // of the membership that goes on, whose earlier socket this one replaces; absent: a new one
	InstanceID string `json:"instance_id" maxLength:"255"`
	TakeOver   bool   `json:"take_over"` // a live member of the same instance_id is fenced, where there is one
	ClientID   string `json:"client_id" maxLength:"255"`

	Assignor             string `json:"assignor" enums:"range,roundrobin,sticky"`                // absent: the group's, range for a new group
	SessionTimeoutMs     int64  `json:"session_timeout_ms" minimum:"1000" maximum:"1800000"`     // 10000 unless given
	AutoOffsetReset      string `json:"auto_offset_reset" enums:"earliest,latest,none"`          // latest unless this or from is given
	AutoCommit           bool   `json:"auto_commit"`                                             // commit what was written to the socket
	AutoCommitIntervalMs int64  `json:"auto_commit_interval_ms" minimum:"100" maximum:"3600000"` // 5000 unless given
}

// MembershipValues are those of subscribed; null without a group.
type MembershipValues struct {
	Group                *string `json:"group" extensions:"x-nullable"`
	MemberID             *string `json:"member_id" extensions:"x-nullable"`
	InstanceID           *string `json:"instance_id" extensions:"x-nullable"` // null also of a member that has none
	ClientID             *string `json:"client_id" extensions:"x-nullable"`
	Assignor             *string `json:"assignor" extensions:"x-nullable" enums:"range,roundrobin,sticky"`
	SessionTimeoutMs     *int64  `json:"session_timeout_ms" extensions:"x-nullable"`
	AutoOffsetReset      *string `json:"auto_offset_reset" extensions:"x-nullable"` // earliest, latest, none or a time in milliseconds
	AutoCommit           *bool   `json:"auto_commit" extensions:"x-nullable"`
	AutoCommitIntervalMs *int64  `json:"auto_commit_interval_ms" extensions:"x-nullable"`
}

// RevokedFrame names partitions that are not read any more; it follows their last record.
// Commits of them are accepted until the client has sent released, or for 5 s. With
// auto_commit they are committed and released already.
type RevokedFrame struct {
	Op         string      `json:"op" enums:"revoked"`
	Partitions []Partition `json:"partitions"`
}

// CommitFrame commits offsets of assigned partitions, and of those that are being revoked:
// all or none.
type CommitFrame struct {
	Op      string         `json:"op" binding:"required" enums:"commit"`
	ID      any            `json:"id"`
	Offsets []MemberOffset `json:"offsets" binding:"required" minItems:"1"`
}

// MemberOffset is a committed offset: the next to be read.
type MemberOffset struct {
	Topic      string `json:"topic" binding:"required"`
	Partition  int32  `json:"partition" binding:"required" minimum:"0"`
	NextOffset int64  `json:"next_offset" binding:"required" minimum:"0"`
	Metadata   string `json:"metadata" maxLength:"4096"`
}

// CommittedFrame answers commit, also one without id.
type CommittedFrame struct {
	AnswerFrame
	Offsets []MemberOffset `json:"offsets"`
}
