// Package rest is a small service with every kind of annotation that the OpenAPI
// generator reads. Its tests generate a document from it.
package rest

import (
	"encoding/json"
	"net/http"

	"tidewire/internal/model"
)

// LoginRequest is what a user sends to log in.
type LoginRequest struct {
	Username string `json:"username" binding:"required"`
	Password string `json:"password" binding:"required"`
}

// LoginAnswer is what a login gives.
type LoginAnswer struct {
	AccessToken string `json:"access_token"`
	ExpiresIn   int64  `json:"expires_in"` // seconds
	// CSRF token of a cookie session.
	CSRFToken *string `json:"csrf_token" extensions:"x-nullable"`
}

// TopicCreate asks for a topic.
type TopicCreate struct {
	Name       string            `json:"name" binding:"required"`
	Partitions int32             `json:"partitions" minimum:"1" default:"1"`
	Config     map[string]string `json:"config"`
	Limits     Limits            `json:"limits"`
}

// Limits stands in requests and answers alike.
type Limits struct {
	Bytes int64 `json:"bytes"`
}

// TopicView is a topic as clients see it.
type TopicView struct {
	Name       string          `json:"name"`
	Partitions []PartitionView `json:"partitions"`
	Limits     Limits          `json:"limits"`
	// The topic this one was copied from.
	Origin *TopicView `json:"origin" extensions:"x-nullable"`
	Error  *Problem   `json:"error" extensions:"x-omittable"`
}

// PartitionView is one partition of a topic.
type PartitionView struct {
	Partition int32  `json:"partition"`
	Leader    *int32 `json:"leader" extensions:"x-nullable"`
}

// Page is one page of a list.
type Page[T any] struct {
	Items         []T     `json:"items"`
	NextPageToken *string `json:"next_page_token" extensions:"x-nullable"`
	Total         int64   `json:"total"`
}

// RecordInput is a record to store.
type RecordInput struct {
	Key       any    `json:"key"`
	Value     any    `json:"value"`
	Partition *int32 `json:"partition" extensions:"x-nullable"`
}

// ProduceRequest is a batch of records.
type ProduceRequest struct {
	Records []RecordInput `json:"records" binding:"required"`
}

// ProduceAnswer has one result a record.
type ProduceAnswer struct {
	Results []ProduceResult `json:"results"`
}

// ProduceResult tells where a record is, or why it is not there.
type ProduceResult struct {
	Partition int32    `json:"partition" extensions:"x-omittable"`
	Offset    *int64   `json:"offset" extensions:"x-omittable,x-nullable"`
	Problem   *Problem `json:"problem" extensions:"x-omittable"`
}

// RecordView is a stored record.
type RecordView struct {
	Offset int64           `json:"offset"`
	Value  json.RawMessage `json:"value"`
}

// FetchAnswer is what a fetch gives.
type FetchAnswer struct {
	Records    []RecordView `json:"records"`
	NextOffset int64        `json:"next_offset"`
}

// FetchLine is one line of a fetch as NDJSON.
type FetchLine struct {
	Record *RecordView `json:"record" extensions:"x-omittable"`
	End    *EndView    `json:"end" extensions:"x-omittable"`
}

// EndView ends a stream.
type EndView struct {
	Reason string `json:"reason"`
}

// ConsumeFrames are the frames of the consuming WebSocket.
type ConsumeFrames struct {
	Client ClientFrames `json:"client"`
	Server ServerFrames `json:"server"`
}

// ClientFrames are those that a client sends.
type ClientFrames struct {
	Subscribe SubscribeFrame `json:"subscribe"`
}

// ServerFrames are those that the node sends.
type ServerFrames struct {
	Records RecordsFrame `json:"records"`
}

// SubscribeFrame asks for records.
type SubscribeFrame struct {
	Op     string   `json:"op" binding:"required" enums:"subscribe"`
	Topics []string `json:"topics" binding:"required"`
}

// RecordsFrame brings records.
type RecordsFrame struct {
	Op      string       `json:"op" enums:"records"`
	Records []RecordView `json:"records"`
}

// Problem is an error.
type Problem struct {
	Code   string             `json:"code"`
	Errors []model.FieldError `json:"errors"`
}

// Login logs a user in.
//
//	@ID			login
//	@Summary	Log in
//	@Tags		Auth
//	@Param		body	body		LoginRequest	true	"credentials"
//	@Param		session	query		string			false	"kind of session"	Enums(cookie)
//	@Success	200		{object}	LoginAnswer
//	@Router		/v1/auth/login [post]
//	@x-public	true
//	@x-errors	["bad-credentials", "login-locked"]
func Login(http.ResponseWriter, *http.Request) {}

// ListTopics lists topics.
//
//	@ID			listTopics
//	@Summary	List topics
//	@Tags		Topics
//	@Success	200	{object}	Page[TopicView]
//	@Router		/v1/topics [get]
func ListTopics(http.ResponseWriter, *http.Request) {}

// CreateTopic creates a topic.
//
//	@ID			createTopic
//	@Summary	Create a topic
//	@Tags		Topics
//	@Param		body	body		TopicCreate	true	"the topic"
//	@Success	201		{object}	TopicView
//	@Header		201		{string}	Location	"where the topic is"
//	@Router		/v1/topics [post]
//	@x-errors	["topic-exists"]
func CreateTopic(http.ResponseWriter, *http.Request) {}

// DeleteTopic deletes a topic.
//
//	@ID			deleteTopic
//	@Summary	Delete a topic
//	@Tags		Topics
//	@Param		topic	path	string	true	"name"
//	@Success	204		"deleted"
//	@Failure	404		"no topic of this name"
//	@Router		/v1/topics/{topic} [delete]
//	@x-errors	["unknown-topic"]
func DeleteTopic(http.ResponseWriter, *http.Request) {}

// Produce stores records.
//
//	@ID			produce
//	@Summary	Store records
//	@Tags		Records
//	@Accept		json
//	@Produce	json
//	@Param		topic			path		string			true	"name"
//	@Param		acks			query		string			false	"when to answer"	Enums(all, leader, none)	default(all)
//	@Param		Idempotency-Key	header		string			false	"makes a retry safe"
//	@Param		body			body		ProduceRequest	true	"records"
//	@Success	200				{object}	ProduceAnswer
//	@Success	207				{object}	ProduceAnswer	"partitions ended differently"
//	@Router		/v1/topics/{topic}/records [post]
//	@x-content	{"request": {"*/*": "binary"}}
//	@x-errors	["unknown-topic", "record-too-large"]
func Produce(http.ResponseWriter, *http.Request) {}

// Fetch reads records of one partition.
//
//	@ID			fetch
//	@Summary	Read records of a partition
//	@Tags		Records
//	@Param		topic		path		string	true	"name"
//	@Param		partition	path		int		true	"number"
//	@Param		offset		query		string	false	"where to start"
//	@Success	200			{object}	FetchAnswer
//	@Success	600			{object}	FetchLine
//	@Router		/v1/topics/{topic}/partitions/{partition}/records [get]
//	@x-content	{"response": {"200": {"application/x-ndjson": "rest.FetchLine", "application/vnd.kafka.record-batches": "binary"}}}
//	@x-errors	["unknown-topic", "unknown-partition", "offset-out-of-range"]
func Fetch(http.ResponseWriter, *http.Request) {}

// Consume opens a WebSocket.
//
//	@ID			wsConsume
//	@Summary	Consume over a WebSocket
//	@Tags		WebSocket
//	@Success	101	{object}	ConsumeFrames	"frames follow"
//	@Router		/v1/ws/consume [get]
func Consume(http.ResponseWriter, *http.Request) {}

// Health tells that the process lives.
//
//	@ID			healthz
//	@Summary	Tell whether the process lives
//	@Tags		Process
//	@Success	200	"alive"
//	@Router		/healthz [get]
//	@x-public	true
//	@x-content	{"response": {"200": {"text/plain": "text"}}}
func Health(http.ResponseWriter, *http.Request) {}
