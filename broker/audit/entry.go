package audit

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"
)

// Topic is the name of the audit log's topic.
const Topic = "__audit"

// Outcome says how a call ended.
type Outcome string

// Outcomes. They are persisted.
const (
	Success Outcome = "success"
	Refused Outcome = "refused" // the caller may not, or has not shown who it is
	Failed  Outcome = "failed"  // nothing was changed
	Unknown Outcome = "unknown" // it may have been changed
)

// Resource is what a call was about. Type is a word such as user, topic, acl.
type Resource struct {
	Type string
	Name string // "" where the call was about all of a type, or did not come so far
}

// String is "type:name", or the type alone.
func (r Resource) String() string {
	if r.Name == "" {
		return r.Type
	}
	return r.Type + ":" + r.Name
}

// Entry is one entry of the log. Its JSON is persisted.
type Entry struct {
	ID        string  `json:"id"`        // unique; an entry that was written twice has one id
	Time      string  `json:"time"`      // RFC 3339, UTC, milliseconds
	Principal *string `json:"principal"` // "User:alice"; null: nobody, or not known
	Action    string  `json:"action"`
	Resource  string  `json:"resource"` // "topic:orders"
	Outcome   Outcome `json:"outcome"`
	Code      *string `json:"code"`   // of the problem; null on success
	Status    int     `json:"status"` // HTTP; 0: another door
	RequestID string  `json:"request_id"`
	Host      string  `json:"host"` // the client's address
	Node      int32   `json:"node"`
	// Before and After are the fields that differ, null where there is nothing.
	Before  map[string]any `json:"before"`
	After   map[string]any `json:"after"`
	Details map[string]any `json:"details"`

	At time.Time `json:"-"` // Time, exactly
}

// Limits of an entry.
const (
	maxText  = 512      // bytes of one text
	maxEntry = 16 << 10 // bytes of the JSON
)

// timeForm is RFC 3339 with milliseconds.
const timeForm = "2006-01-02T15:04:05.000Z"

// encode gives the entry's JSON, cut to its limits.
func (e *Entry) encode() []byte {
	for _, s := range []*string{&e.Action, &e.Resource, &e.RequestID, &e.Host} {
		*s = cut(*s)
	}
	if e.Principal != nil {
		e.Principal = new(cut(*e.Principal))
	}
	e.Time = e.At.UTC().Format(timeForm)
	b, err := json.Marshal(e)
	if err == nil && len(b) <= maxEntry {
		return b
	}
	short := *e
	short.Before, short.After, short.Details = nil, nil, map[string]any{"truncated": true}
	b, err = json.Marshal(&short)
	if err != nil {
		panic("audit: an entry of plain texts does not encode: " + err.Error())
	}
	return b
}

// cut bounds a text, at the end of a character.
func cut(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxText {
		return s
	}
	end := maxText - len("…")
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}
