package ws

import (
	"bytes"
	"encoding/json"
	"time"

	"tidewire/api/problem"
	"tidewire/api/rest"
)

// ConsumeFrames are the frames of GET /v1/ws/consume. Each is one JSON object in a text
// message.
type ConsumeFrames struct {
	Client ClientFrames `json:"client"`
	Server ServerFrames `json:"server"`
}

// ProduceFrames are the frames of GET /v1/ws/produce. Each is one JSON object in a text
// message.
type ProduceFrames struct {
	Client ProduceClientFrames `json:"client"`
	Server ProduceServerFrames `json:"server"`
}

// ProduceClientFrames are what a producing client may send, by their op.
type ProduceClientFrames struct {
	Produce ProduceFrame `json:"produce"`
	Auth    AuthFrame    `json:"auth"`
}

// ProduceServerFrames are what a producing client gets, by their op.
type ProduceServerFrames struct {
	Produced      ProducedFrame      `json:"produced"`
	Authenticated AuthenticatedFrame `json:"authenticated"`
	AuthExpiring  AuthExpiringFrame  `json:"auth-expiring"`
	Error         ErrorFrame         `json:"error"`
	End           EndFrame           `json:"end"`
}

// ProduceFrame stores records in one topic, as a produce request does.
type ProduceFrame struct {
	Op        string             `json:"op" binding:"required" enums:"produce"`
	ID        any                `json:"id"` // a string or number, repeated in the answer
	Topic     string             `json:"topic" binding:"required"`
	Acks      string             `json:"acks" enums:"all,leader,none,-1,1,0" default:"all"`
	TimeoutMs int64              `json:"timeout_ms" minimum:"1" maximum:"600000" default:"30000"` // how long acks=all may take
	Records   []rest.RecordInput `json:"records" binding:"required" minItems:"1" maxItems:"1000000"`
}

// ProducedFrame answers produce: one result a record, in their order. Under acks=none there
// are none, but the number of records that were accepted. Where all failed alike an error
// frame answers instead.
type ProducedFrame struct {
	AnswerFrame
	Results  []rest.ProduceResult `json:"results"`
	Accepted *int64               `json:"accepted" extensions:"x-nullable"` // null but for acks=none
	Warning  *string              `json:"warning" extensions:"x-nullable"`  // what the producer should know though records were stored
}

// ClientFrames are what the client may send, by their op.
type ClientFrames struct {
	Subscribe   SubscribeFrame   `json:"subscribe"`
	Credit      CreditFrame      `json:"credit"`
	Pause       PartitionsFrame  `json:"pause"`
	Resume      PartitionsFrame  `json:"resume"`
	Seek        SeekFrame        `json:"seek"`
	Commit      CommitFrame      `json:"commit"`
	Released    PartitionsFrame  `json:"released"`
	Unsubscribe UnsubscribeFrame `json:"unsubscribe"`
	Auth        AuthFrame        `json:"auth"`
}

// ServerFrames are what the server sends, by their op. Those in the past participle
// answer a client's frame; pause, resume, seek, credit, released and unsubscribe are answered
// only where the frame had an id. revoked answers nothing.
type ServerFrames struct {
	Subscribed    SubscribedFrame    `json:"subscribed"`
	Assigned      AssignedFrame      `json:"assigned"`
	Records       RecordsFrame       `json:"records"`
	Revoked       RevokedFrame       `json:"revoked"`
	Committed     CommittedFrame     `json:"committed"`
	Released      PartitionsAnswer   `json:"released"`
	Credited      CreditedFrame      `json:"credited"`
	Paused        PartitionsAnswer   `json:"paused"`
	Resumed       PartitionsAnswer   `json:"resumed"`
	Sought        SoughtFrame        `json:"sought"`
	Unsubscribed  AnswerFrame        `json:"unsubscribed"`
	Authenticated AuthenticatedFrame `json:"authenticated"`
	AuthExpiring  AuthExpiringFrame  `json:"auth-expiring"`
	Error         ErrorFrame         `json:"error"`
	End           EndFrame           `json:"end"`
}

// SubscribeFrame begins reading: the topics whole, and of topics that are named only in
// partitions those partitions; with group as a member, to whom the group gives partitions.
type SubscribeFrame struct {
	Op         string          `json:"op" binding:"required" enums:"subscribe"`
	ID         any             `json:"id"` // a string or number, repeated in the answer
	Topics     []string        `json:"topics"`
	Partitions []StartPosition `json:"partitions"`
	From       any             `json:"from"`                                                  // earliest, latest (default) or a time in milliseconds; with group it is auto_offset_reset
	Credit     int64           `json:"credit" extensions:"x-nullable" minimum:"0"`            // absent: bounded by the server alone
	MaxRecords int64           `json:"max_records" minimum:"1" maximum:"10000" default:"500"` // in one frame
	Encoding   string          `json:"encoding" enums:"auto,json,text,base64" default:"auto"`
	Isolation  string          `json:"isolation" enums:"read_committed,read_uncommitted" default:"read_committed"`

	Q            string   `json:"q" maxLength:"4096"`                          // records that contain this text, byte for byte
	QIn          []string `json:"q_in" enums:"key,value,headers"`              // where; all of them unless given
	PreviewBytes int64    `json:"preview_bytes" minimum:"0" maximum:"1048576"` // cut keys, values and header values to so many bytes

	MembershipFields
}

// StartPosition says where to begin in a partition; without next_offset as from says.
type StartPosition struct {
	Topic      string `json:"topic" binding:"required"`
	Partition  int32  `json:"partition" binding:"required" minimum:"0"`
	NextOffset int64  `json:"next_offset" minimum:"0" maximum:"9007199254740991"`
}

// CreditFrame grants further records to a subscription with credit.
type CreditFrame struct {
	Op      string `json:"op" binding:"required" enums:"credit"`
	ID      any    `json:"id"`
	Records int64  `json:"records" binding:"required" minimum:"1"`
}

// PartitionsFrame pauses or resumes assigned partitions, or gives up those that were revoked.
type PartitionsFrame struct {
	Op         string      `json:"op" binding:"required" enums:"pause,resume,released"`
	ID         any         `json:"id"`
	Partitions []Partition `json:"partitions" binding:"required"`
}

// Partition names one partition.
type Partition struct {
	Topic     string `json:"topic" binding:"required"`
	Partition int32  `json:"partition" binding:"required" minimum:"0"`
}

// SeekFrame moves the positions of assigned partitions, all or none.
type SeekFrame struct {
	Op         string     `json:"op" binding:"required" enums:"seek"`
	ID         any        `json:"id"`
	Partitions []Position `json:"partitions" binding:"required"`
}

// Position is the next offset to be read of a partition.
type Position struct {
	Topic      string `json:"topic" binding:"required"`
	Partition  int32  `json:"partition" binding:"required" minimum:"0"`
	NextOffset int64  `json:"next_offset" binding:"required" minimum:"0" maximum:"9007199254740991"`
}

// UnsubscribeFrame ends reading; the socket stays open.
type UnsubscribeFrame struct {
	Op string `json:"op" binding:"required" enums:"unsubscribe"`
	ID any    `json:"id"`
}

// AuthFrame renews the token: another access token of the same user.
type AuthFrame struct {
	Op          string `json:"op" binding:"required" enums:"auth"`
	ID          any    `json:"id"`
	AccessToken string `json:"access_token" binding:"required"`
}

// AnswerFrame answers a frame of the client and repeats its id.
type AnswerFrame struct {
	Op string          `json:"op"`
	ID json.RawMessage `json:"id,omitempty" extensions:"x-omittable"`
}

// SubscribedFrame answers subscribe with the values in effect. Those that belong to
// members of groups are null.
type SubscribedFrame struct {
	AnswerFrame
	Topics     []string `json:"topics"`
	From       string   `json:"from" example:"latest"`
	Credit     *int64   `json:"credit" extensions:"x-nullable"`
	MaxRecords int64    `json:"max_records"`
	Encoding   string   `json:"encoding" enums:"auto,json,text,base64"`
	Isolation  string   `json:"isolation" enums:"read_committed,read_uncommitted"`

	Q            *string  `json:"q" extensions:"x-nullable"`
	QIn          []string `json:"q_in"` // empty without q
	PreviewBytes *int64   `json:"preview_bytes" extensions:"x-nullable"`

	MembershipValues
}

// AssignedFrame names partitions that are read from now on, and from where: after
// subscribed all of them, later those that were added to a topic or given to the member, or
// whose position was out of range and is by auto_offset_reset another now.
type AssignedFrame struct {
	Op         string     `json:"op" enums:"assigned"`
	Partitions []Position `json:"partitions"`
}

// RecordsFrame brings records, those of a partition in order of their offsets.
type RecordsFrame struct {
	Op      string            `json:"op" enums:"records"`
	Records []rest.RecordView `json:"records"`
}

// CreditedFrame answers credit with what is granted and not used yet.
type CreditedFrame struct {
	AnswerFrame
	Credit int64 `json:"credit"`
}

// PartitionsAnswer answers pause, resume and released.
type PartitionsAnswer struct {
	AnswerFrame
	Partitions []Partition `json:"partitions"`
}

// SoughtFrame answers seek.
type SoughtFrame struct {
	AnswerFrame
	Partitions []Position `json:"partitions"`
}

// AuthenticatedFrame answers auth. expires_at is null where the token does not end.
type AuthenticatedFrame struct {
	AnswerFrame
	ExpiresAt *string `json:"expires_at" extensions:"x-nullable" format:"date-time"`
}

// AuthExpiringFrame comes 60 s before the token ends.
type AuthExpiringFrame struct {
	Op        string `json:"op" enums:"auth-expiring"`
	ExpiresAt string `json:"expires_at" format:"date-time"`
}

// ErrorFrame tells what went wrong. With an id it answers a frame and the socket stays
// open; without one a close follows.
type ErrorFrame struct {
	AnswerFrame
	Problem problem.Problem `json:"problem"`
}

// EndFrame precedes a close that is nobody's fault.
type EndFrame struct {
	Op     string `json:"op" enums:"end"`
	Reason string `json:"reason" enums:"node-stopping"`
}

// encodeFrame writes a frame as JSON. Its types are this file's: encoding cannot fail.
func encodeFrame(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// timeText is a time as frames give it: RFC 3339, UTC, milliseconds.
func timeText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
