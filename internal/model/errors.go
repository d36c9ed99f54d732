package model

import (
	"errors"
	"fmt"
	"time"
)

// Code is the stable, kebab-case name of an error that clients match on.
type Code string

// Outcome tells a writer whether the failed write may have been applied.
type Outcome string

// Outcomes of a failed write. A read has none.
const (
	NoOutcome  Outcome = ""
	NotApplied Outcome = "not-applied"
	Unknown    Outcome = "unknown"
)

// The codes, grouped by HTTP status.
const (
	MalformedBody Code = "malformed-body"

	Unauthenticated Code = "unauthenticated"
	BadCredentials  Code = "bad-credentials"
	TokenExpired    Code = "token-expired"

	Forbidden Code = "forbidden"
	CSRF      Code = "csrf"

	NotFound           Code = "not-found"
	UnknownTopic       Code = "unknown-topic"
	UnknownPartition   Code = "unknown-partition"
	UnknownGroup       Code = "unknown-group"
	UnknownMember      Code = "unknown-member"
	UnknownUser        Code = "unknown-user"
	UnknownBroker      Code = "unknown-broker"
	UnknownTransaction Code = "unknown-transaction"

	MethodNotAllowed Code = "method-not-allowed"
	NotAcceptable    Code = "not-acceptable"

	TopicExists             Code = "topic-exists"
	UserExists              Code = "user-exists"
	GroupNotEmpty           Code = "group-not-empty"
	LastAdmin               Code = "last-admin"
	Conflict                Code = "conflict"
	Fenced                  Code = "fenced"
	NotOwner                Code = "not-owner"
	IdempotencyInProgress   Code = "idempotency-in-progress"
	OutOfOrderSequence      Code = "out-of-order-sequence"
	UnknownProducer         Code = "unknown-producer"
	InvalidTransactionState Code = "invalid-transaction-state"
	ConcurrentTransactions  Code = "concurrent-transactions"

	MemberExpired  Code = "member-expired"
	ETagMismatch   Code = "etag-mismatch"
	OffsetMismatch Code = "offset-mismatch"

	RecordTooLarge       Code = "record-too-large"
	RequestTooLarge      Code = "request-too-large"
	UnsupportedMediaType Code = "unsupported-media-type"
	OffsetOutOfRange     Code = "offset-out-of-range"

	InvalidArgument      Code = "invalid-argument"
	InvalidTimestamp     Code = "invalid-timestamp"
	CorruptBatch         Code = "corrupt-batch"
	InvalidRecord        Code = "invalid-record"
	IdempotencyKeyReused Code = "idempotency-key-reused"

	UnsupportedCompression Code = "unsupported-compression"

	RateLimited Code = "rate-limited"
	LoginLocked Code = "login-locked"

	StorageError Code = "storage-error"
	Internal     Code = "internal"

	NotImplemented Code = "not-implemented"

	LeaderUnavailable Code = "leader-unavailable"
	NotEnoughReplicas Code = "not-enough-replicas"
	QuorumUnavailable Code = "quorum-unavailable"
	StorageFull       Code = "storage-full"

	Timeout                      Code = "timeout"
	NotEnoughReplicasAfterAppend Code = "not-enough-replicas-after-append"
	CommitUnknown                Code = "commit-unknown"
)

// ErrorRow is one row of the error table: what every door says for a code.
type ErrorRow struct {
	Status    int    // HTTP status
	Kafka     int16  // Kafka error code
	Title     string // one sentence that does not change
	Retryable bool   // the same request may succeed later without a change by the client
	Outcome   Outcome
}

// errorTable is the one place where a code gets its status, its Kafka code, whether
// a retry may help, and what it says of a write that failed with it.
var errorTable = map[Code]ErrorRow{
	MalformedBody: {400, 42, "The body is not valid", false, NotApplied},

	Unauthenticated: {401, 58, "Authentication is required", false, NotApplied},
	BadCredentials:  {401, 58, "User name or password is wrong", false, NotApplied},
	TokenExpired:    {401, 58, "The token has expired", false, NotApplied},

	Forbidden: {403, 29, "Not allowed", false, NotApplied},
	CSRF:      {403, 29, "The CSRF token is missing or wrong", false, NotApplied},

	NotFound:           {404, 42, "No such resource", false, NotApplied},
	UnknownTopic:       {404, 3, "No such topic", false, NotApplied},
	UnknownPartition:   {404, 3, "No such partition", false, NotApplied},
	UnknownGroup:       {404, 69, "No such group", false, NotApplied},
	UnknownMember:      {404, 25, "No such member", false, NotApplied},
	UnknownUser:        {404, 91, "No such user", false, NotApplied},
	UnknownBroker:      {404, 102, "No such broker", false, NotApplied},
	UnknownTransaction: {404, 105, "No such transaction", false, NotApplied},

	MethodNotAllowed: {405, 42, "The resource does not have this method", false, NotApplied},
	NotAcceptable:    {406, 42, "None of the accepted media types can be given", false, NotApplied},

	TopicExists:             {409, 36, "The topic exists", false, NotApplied},
	UserExists:              {409, 92, "The user exists", false, NotApplied},
	GroupNotEmpty:           {409, 68, "The group has members", false, NotApplied},
	LastAdmin:               {409, 42, "The last administrator must stay one", false, NotApplied},
	Conflict:                {409, 42, "The request conflicts with the present state", false, NotApplied},
	Fenced:                  {409, 82, "A newer instance has taken over", false, NotApplied},
	NotOwner:                {409, 22, "The member does not own these partitions", false, NotApplied},
	IdempotencyInProgress:   {409, 51, "A request with this idempotency key is in progress", true, Unknown},
	OutOfOrderSequence:      {409, 45, "The producer's sequence has a gap", false, NotApplied},
	UnknownProducer:         {409, 59, "The producer id is not known", false, NotApplied},
	InvalidTransactionState: {409, 48, "The transaction is in another state", false, NotApplied},
	ConcurrentTransactions:  {409, 51, "The transaction is still completing", true, NotApplied},

	MemberExpired:  {410, 25, "The member's session has expired", false, NotApplied},
	ETagMismatch:   {412, 42, "The resource has changed", false, NotApplied},
	OffsetMismatch: {412, 42, "The log ends at another offset", false, NotApplied},

	RecordTooLarge:       {413, 10, "A record is too large", false, NotApplied},
	RequestTooLarge:      {413, 10, "The request is too large", false, NotApplied},
	UnsupportedMediaType: {415, 42, "The media type is not supported", false, NotApplied},
	OffsetOutOfRange:     {416, 1, "The offset is out of range", false, NotApplied},

	InvalidArgument:      {422, 42, "The request is not valid", false, NotApplied},
	InvalidTimestamp:     {422, 32, "A record's timestamp is out of range", false, NotApplied},
	CorruptBatch:         {422, 2, "A record batch is corrupt", false, NotApplied},
	InvalidRecord:        {422, 87, "A record is not valid", false, NotApplied},
	IdempotencyKeyReused: {422, 42, "The idempotency key was used with another payload", false, NotApplied},

	UnsupportedCompression: {422, 76, "The compression of a record batch is not supported", false, NotApplied},

	RateLimited: {429, 89, "Too many requests", true, NotApplied},
	LoginLocked: {429, 58, "Too many failed logins", true, NotApplied},

	StorageError: {500, 56, "The storage of this partition has failed", false, Unknown},
	Internal:     {500, -1, "Internal error", false, Unknown},

	NotImplemented: {501, 35, "Not built yet", false, NotApplied},

	LeaderUnavailable: {503, 5, "The leader is not available", true, NotApplied},
	NotEnoughReplicas: {503, 19, "Too few replicas are in sync", true, NotApplied},
	QuorumUnavailable: {503, 14, "The metadata quorum is not available", true, NotApplied},
	StorageFull:       {503, 56, "The disk is full", true, NotApplied},

	Timeout:                      {504, 7, "The request timed out", true, Unknown},
	NotEnoughReplicasAfterAppend: {504, 20, "The record was written to too few replicas", true, Unknown},
	CommitUnknown:                {504, 7, "Whether the change was made is not known", true, Unknown},
}

// Row returns the table's row for a code; an unknown code has Internal's.
func Row(c Code) ErrorRow {
	if r, ok := errorTable[c]; ok {
		return r
	}
	return errorTable[Internal]
}

// Codes returns every code of the table, in no order.
func Codes() []Code {
	out := make([]Code, 0, len(errorTable))
	for c := range errorTable {
		out = append(out, c)
	}
	return out
}

// FieldError says what is wrong with one part of a request. Pointer is a JSON
// Pointer (RFC 6901) into the body, or "query:name", "header:name", "path:name".
type FieldError struct {
	Pointer string `json:"pointer"`
	Detail  string `json:"detail"`
}

// Error is the error that crosses layers. Adapters turn it into problem+json or a
// Kafka code by the table. Its texts are for clients: no Go types, no paths.
type Error struct {
	Code       Code
	Detail     string
	Outcome    Outcome // overrides the table's when not empty
	Fields     []FieldError
	RetryAfter time.Duration  // 0: the door's default for the status
	Extra      map[string]any // further members of the problem, such as earliest and latest
	Limit      *RateLimit     // of rate-limited: the limit that was reached, where it has a name
	Cause      error          // for logs, never for clients
}

// RateLimit is the state of a limit, as the RateLimit headers of HTTP tell it
// (draft-ietf-httpapi-ratelimit-headers).
type RateLimit struct {
	Policy    string // name of the limit
	Unit      string // what is counted: requests or content-bytes
	Quota     int64  // units in a window
	WindowS   int64  // seconds
	Remaining int64  // units that are left
	ResetS    int64  // seconds until there is more
}

// Errorf makes an error of a code with a detail for the client.
func Errorf(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Detail: fmt.Sprintf(format, args...)}
}

// Invalid makes an invalid-argument error about one part of the request.
func Invalid(pointer, format string, args ...any) *Error {
	d := fmt.Sprintf(format, args...)
	return &Error{Code: InvalidArgument, Detail: d, Fields: []FieldError{{Pointer: pointer, Detail: d}}}
}

// Error gives code and detail, with the cause for logs.
func (e *Error) Error() string {
	s := string(e.Code)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is matches another *Error of the same code, so errors.Is(err, &Error{Code: c}) works.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// WithOutcome returns a copy that says whether the write may have been applied.
func (e *Error) WithOutcome(o Outcome) *Error { c := *e; c.Outcome = o; return &c }

// WithCause returns a copy that keeps an underlying error for the logs.
func (e *Error) WithCause(err error) *Error { c := *e; c.Cause = err; return &c }

// WithExtra returns a copy with one more member in the problem.
func (e *Error) WithExtra(name string, v any) *Error {
	c := *e
	c.Extra = make(map[string]any, len(e.Extra)+1)
	for k, x := range e.Extra {
		c.Extra[k] = x
	}
	c.Extra[name] = v
	return &c
}

// EffectiveOutcome is the outcome said of a write that failed with e.
func (e *Error) EffectiveOutcome() Outcome {
	if e.Outcome != NoOutcome {
		return e.Outcome
	}
	return Row(e.Code).Outcome
}

// HasCode reports whether err is, or wraps, an Error of code c.
func HasCode(err error, c Code) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == c
}

// AsError returns err as an *Error; anything else becomes Internal with err as cause.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: Internal, Detail: "an internal error; the log has more under the request id", Cause: err}
}
