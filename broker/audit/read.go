package audit

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"tidewire/auth"
	"tidewire/broker"
	"tidewire/broker/browse"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// topicConfig is what the topic is made with. An operator may change it.
var topicConfig = map[string]string{
	"cleanup.policy": "delete", "retention.ms": "7776000000", "retention.bytes": "1073741824", "segment.bytes": "67108864",
	// A clock that was set right must not keep entries from being written.
	"message.timestamp.after.max.ms": "9223372036854775807",
}

// topicWriter writes entries to the topic.
type topicWriter struct{ b *broker.Broker }

// NewWriter returns a Writer to the topic of a broker's cluster.
func NewWriter(b *broker.Broker) Writer { return topicWriter{b} }

// AppendAudit implements Writer.
func (w topicWriter) AppendAudit(ctx context.Context, entries []Encoded) error {
	records := make([]record.Record, len(entries))
	for i, e := range entries {
		records[i] = record.Record{Timestamp: e.At, Value: e.Value}
	}
	return w.b.AppendInternal(ctx, broker.InternalTopic{Name: auth.AuditTopic, Config: topicConfig}, records)
}

// Query says which entries are wanted. Texts that are "" ask for nothing.
type Query struct {
	Limit     int
	PageToken string
	Principal string // "User:alice" or alice
	Action    string
	Resource  string // "topic:orders", "topic" or orders
	Outcome   string
	Prefix    string     // start of the resource
	Text      string     // part of the entry's JSON, in any case
	From, To  *time.Time // entries from then on, and before then

	OldestFirst bool // else the newest
}

// filtered reports whether some entries are not wanted.
func (q *Query) filtered() bool {
	return q.Prefix != "" || q.Principal != "" || q.Action != "" || q.Resource != "" || q.Outcome != "" || q.Text != "" || q.From != nil || q.To != nil
}

// Page is a page of entries. It may be short, even empty, and yet have a next
// one, where much had to be looked at.
type Page struct {
	Items []json.RawMessage
	Next  string // "" at the end
	Total *int64 // of all pages; nil where it is not known
}

// Bounds of one page.
const (
	pageWork  = 1 << 20 // bytes between two looks at the clock
	pageBytes = 32 << 20
	pageTime  = 2 * time.Second
	// disorder is how far behind each other the times of entries may lie in the log, since
	// clocks are set and nodes have their own.
	disorder = 5 * time.Minute
)

// reading is the making of one page.
type reading struct {
	q     Query
	first model.Offset // entries below are too old
	text  string       // lower case
	page  *Page
	done  bool
}

// Read gives a page, on behalf of an administrator. Errors: forbidden, invalid-argument for a
// page token that is none, leader-unavailable, storage-error.
func Read(ctx context.Context, b *broker.Broker, c broker.Caller, q Query) (*Page, error) {
	r := &reading{q: q, text: strings.ToLower(q.Text), page: &Page{Items: []json.RawMessage{}}}
	err := r.read(ctx, b, c)
	if model.HasCode(err, model.UnknownTopic) { // nothing was written yet
		return &Page{Items: []json.RawMessage{}, Total: new(int64(0))}, nil
	}
	return r.page, err
}

func (r *reading) read(ctx context.Context, b *broker.Broker, c broker.Caller) error {
	if err := r.bound(ctx, b, c); err != nil || r.done {
		return err
	}
	req := broker.BrowseRequest{Topic: auth.AuditTopic, Direction: new(browse.Backward), From: r.start(), BufferBytes: pageWork, Lasts: true}
	if r.q.OldestFirst {
		*req.Direction = browse.Forward
	}
	if r.q.PageToken != "" {
		cursor, ok := browse.ParseCursor(r.q.PageToken)
		if !ok || cursor.Direction != *req.Direction || cursor.Before {
			return BadToken()
		}
		req.Cursor = cursor
	}
	x, err := b.Browse(ctx, c, &req)
	if model.HasCode(err, model.InvalidArgument) {
		return BadToken()
	}
	if err != nil {
		return err
	}
	defer x.Close()
	return r.fill(ctx, x)
}

// start is where the first page begins.
func (r *reading) start() broker.Position {
	switch {
	case r.q.OldestFirst && r.q.From != nil: // what lies before the first entry of that time is older
		return broker.Position{Kind: broker.AtTime, Value: max(0, r.q.From.UnixMilli())}
	case r.q.OldestFirst:
		return broker.Position{Kind: broker.Earliest}
	case r.q.To != nil:
		return broker.Position{Kind: broker.AtTime, Value: r.q.To.Add(disorder).UnixMilli()}
	}
	return broker.Position{Kind: broker.Latest}
}

// BadToken is the error for a page token that is none.
func BadToken() error {
	return model.Invalid("query:page_token", "this is not a page token that the audit log has given")
}

// bound finds the first entry that is not too old, and how many there are in all.
func (r *reading) bound(ctx context.Context, b *broker.Broker, c broker.Caller) error {
	s, err := b.DescribeTopic(ctx, c, auth.AuditTopic)
	if err != nil {
		return err
	}
	if !r.q.filtered() {
		r.page.Total = new(s.RecordsNow)
	}
	if r.q.From == nil {
		return nil
	}
	found, err := b.Offsets(ctx, c, auth.AuditTopic, broker.Position{Kind: broker.AtTime, Value: max(0, r.q.From.UnixMilli())})
	if err != nil {
		return err
	}
	r.first, r.done = found[0].Offset, !found[0].Found
	return nil
}

// fill reads backward until the page is full, the log has ended, or much was looked at.
func (r *reading) fill(ctx context.Context, x *broker.Browse) error {
	began := time.Now()
	for {
		progress, err := x.Scan(pageWork, r.visit)
		switch {
		case err != nil:
			return err
		case progress == browse.Dry || r.done:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case progress == browse.Stopped, x.Scanned().Bytes >= pageBytes, time.Since(began) >= pageTime:
			if next := x.Pages().Next; next != nil {
				r.page.Next = next.String()
			}
			return nil
		}
	}
}

// visit takes an entry into the page where it is wanted.
func (r *reading) visit(it browse.Item) browse.Verdict {
	if it.Record.Offset < r.first {
		r.done = true
		return browse.StopBefore
	}
	if r.q.OldestFirst && r.q.To != nil && it.Record.Timestamp >= r.q.To.Add(disorder).UnixMilli() {
		r.done = true
		return browse.StopBefore
	}
	if !r.wants(it.Record) {
		return browse.Go
	}
	r.page.Items = append(r.page.Items, append(json.RawMessage(nil), it.Record.Value...))
	if len(r.page.Items) >= r.q.Limit {
		return browse.StopAfter
	}
	return browse.Go
}

// wants reports whether a record is an entry that the query asks for.
func (r *reading) wants(rec *record.Record) bool {
	q := &r.q
	if q.From != nil && rec.Timestamp < q.From.UnixMilli() || q.To != nil && rec.Timestamp >= q.To.UnixMilli() {
		return false
	}
	var e Entry
	if json.Unmarshal(rec.Value, &e) != nil {
		return false // of a version that is not known
	}
	principal := ""
	if e.Principal != nil {
		principal = *e.Principal
	}
	kind, name, _ := strings.Cut(e.Resource, ":")
	_, user, _ := strings.Cut(principal, ":")
	return oneOf(q.Principal, principal, user) && oneOf(q.Action, e.Action) && oneOf(q.Outcome, string(e.Outcome)) &&
		oneOf(q.Resource, e.Resource, kind, name) && strings.HasPrefix(e.Resource, q.Prefix) && (r.text == "" || strings.Contains(strings.ToLower(string(rec.Value)), r.text))
}

// oneOf reports whether a text that was asked for is one of those there are.
func oneOf(want string, have ...string) bool {
	if want == "" {
		return true
	}
	for _, h := range have {
		if h == want {
			return true
		}
	}
	return false
}
