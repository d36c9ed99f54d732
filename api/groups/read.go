package groups

import (
	"context"
	"time"

	"tidewire/api/recordanswer"
	"tidewire/api/recordjson"
	"tidewire/api/rest"
	"tidewire/api/route"
	"tidewire/broker/coordinator"
	"tidewire/broker/group"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// mediaSSE is the media type of a stream (HTML standard §9.2).
const mediaSSE = "text/event-stream"

var readAccept = []string{"application/json", mediaSSE}

var readQuery = []string{
	"cursor", "wait_ms", "max_records", "max_bytes", "min_bytes", "isolation", "encoding", "key_encoding", "header_encoding",
}

// cursorHeader is another place for a cursor, which may be long.
const cursorHeader = "Tidewire-Cursor"

// Ranges of a member's read, the same as those of every read of records.
var (
	recordsRange = route.IntRange{Def: 500, Min: 1, Max: 10_000}
	bytesRange   = route.IntRange{Def: 1 << 20, Min: 1, Max: 64 << 20}
	leastRange   = route.IntRange{Def: 1, Min: 1, Max: 64 << 20}
	waitRange    = route.IntRange{Def: 0, Min: 0, Max: 60_000}
)

// reading is what a member asks for.
type reading struct {
	req   coordinator.PollRequest
	enc   recordjson.Encodings
	waits bool // how long to wait was given
}

// readMember gives a member records of the partitions that it has.
//
//	@ID				readMember
//	@Summary		Read records as a member
//	@Description	Without cursor it reads from the committed offsets, so that a repeated request repeats the records; with the last answer's cursor it goes on. With auto_commit it commits what the cursor covers. It is a heartbeat, as long as it waits too. Another read of the member ends it. Partitions in revoking give no more records; the next read with this answer's cursor, or with none, releases them. As text/event-stream it goes on without end: an event records whose data are such an answer and whose id is its cursor, revoked {partitions, cursor} for partitions to be given up within 5 s, then end {reason} or problem.
//	@Tags			Groups
//	@Param			group			path		string	true	"name"
//	@Param			member			path		string	true	"member_id"
//	@Param			cursor			query		string	false	"of the last answer, or of seek"
//	@Param			Tidewire-Cursor	header		string	false	"the same, for cursors that are long"
//	@Param			Last-Event-ID	header		string	false	"of a stream: goes on behind the event with this id; wins over cursor"
//	@Param			wait_ms			query		int		false	"how long to wait for min_bytes, or for an assignment; a stream waits 15 s unless given, at least 100 ms, and then gives what is there"	minimum(0)	maximum(60000)	default(0)
//	@Param			max_records		query		int		false	"most records, of a stream in one event"	minimum(1)	maximum(10000)	default(500)
//	@Param			max_bytes		query		int		false	"most bytes of keys, values and headers; the first record always comes; an event has at most about 262144"	minimum(1)	maximum(67108864)	default(1048576)
//	@Param			min_bytes		query		int		false	"a waiting read answers with so many"	minimum(1)	maximum(67108864)	default(1)
//	@Param			isolation		query		string	false	"which records are seen"	Enums(read_committed, read_uncommitted)	default(read_committed)
//	@Param			encoding		query		string	false	"how values are given, as in fetch"	Enums(auto, json, text, base64)	default(auto)
//	@Param			key_encoding	query		string	false	"how keys are given"	Enums(auto, json, text, base64)	default(auto)
//	@Param			header_encoding	query		string	false	"how header values are given"	Enums(auto, json, text, base64)	default(auto)
//	@Success		200				{object}	MemberRecords
//	@Router			/v1/groups/{group}/members/{member}/records [get]
//	@x-content		{"response": {"200": {"text/event-stream": "text"}}}
//	@x-errors		["unknown-member","member-expired","fenced","offset-out-of-range","rate-limited","leader-unavailable","commit-unknown","storage-error","storage-full"]
func (d *Door) readMember(c *route.Call) error {
	stream := c.Media() == mediaSSE
	r, err := d.queried(c, stream)
	if err != nil {
		return err
	}
	if err := d.mayGroup(c, metadata.OpRead); err != nil {
		return err
	}
	if stream {
		return d.stream(c, r)
	}
	return d.answer(c, r)
}

// pollMember is readMember with its parameters as JSON.
//
//	@ID			pollMember
//	@Summary	Read records as a member, asking in JSON
//	@Tags		Groups
//	@Param		group	path		string		true	"name"
//	@Param		member	path		string		true	"member_id"
//	@Param		body	body		PollInput	true	"what GET …/records takes as its query"
//	@Success	200		{object}	MemberRecords
//	@Router		/v1/groups/{group}/members/{member}/poll [post]
//	@x-errors	["unknown-member","member-expired","fenced","offset-out-of-range","rate-limited","leader-unavailable","commit-unknown","storage-error","storage-full"]
func (d *Door) pollMember(c *route.Call) error {
	in, err := route.Decode[PollInput](c)
	if err != nil {
		return err
	}
	r, err := d.asked(c, in)
	if err != nil {
		return err
	}
	if err := d.mayGroup(c, metadata.OpRead); err != nil {
		return err
	}
	return d.answer(c, r)
}

func (d *Door) reading(c *route.Call) *reading {
	return &reading{req: coordinator.PollRequest{Group: c.PathValue("group"), Member: c.PathValue("member"), Caller: c.Caller()}}
}

// queried reads the query.
func (d *Door) queried(c *route.Call, stream bool) (*reading, error) {
	r := d.reading(c)
	var l limits
	var err error
	for _, p := range []struct {
		name string
		into *int64
		r    route.IntRange
	}{
		{"max_records", &l.records, recordsRange}, {"max_bytes", &l.bytes, bytesRange}, {"min_bytes", &l.least, leastRange}, {"wait_ms", &l.waitMs, waitRange},
	} {
		if *p.into, err = c.QueryInt(p.name, p.r); err != nil {
			return nil, err
		}
	}
	_, r.waits = c.Only("wait_ms")
	r.limit(l)
	if r.req.Isolation, err = rest.Isolation(c); err != nil {
		return nil, err
	}
	if r.enc, err = rest.Encodings(c); err != nil {
		return nil, err
	}
	return r, r.readCursor(c, stream)
}

// limits are the numbers of a read, as they were given.
type limits struct{ waitMs, records, bytes, least int64 }

func (r *reading) limit(l limits) {
	r.req.Wait, r.req.MaxRecords, r.req.MaxBytes, r.req.MinBytes = time.Duration(l.waitMs)*time.Millisecond, int(l.records), int(l.bytes), int(l.least)
}

// readCursor finds the cursor in the query or one of two headers.
func (r *reading) readCursor(c *route.Call, stream bool) error {
	asked, hasAsked := c.Only("cursor")
	head := c.Request.Header.Values(cursorHeader)
	at := "query:cursor"
	switch {
	case len(head) > 1:
		return model.Invalid("header:"+cursorHeader, "%s is given more than once", cursorHeader)
	case len(head) == 1 && hasAsked && head[0] != asked:
		return model.Invalid("header:"+cursorHeader, "the query has another cursor")
	case len(head) == 1:
		asked, hasAsked, at = head[0], true, "header:"+cursorHeader
	}
	if id := c.GetHeader("Last-Event-ID"); id != "" && stream {
		asked, hasAsked, at = id, true, "header:Last-Event-ID"
	}
	if !hasAsked {
		return nil
	}
	r.req.Cursor = asked
	return checkCursor(at, asked)
}

// asked reads a poll's body.
func (d *Door) asked(c *route.Call, in *PollInput) (*reading, error) {
	r := d.reading(c)
	var l limits
	for _, p := range []struct {
		name  string
		value *int64
		into  *int64
		r     route.IntRange
	}{
		{"max_records", in.MaxRecords, &l.records, recordsRange}, {"max_bytes", in.MaxBytes, &l.bytes, bytesRange},
		{"min_bytes", in.MinBytes, &l.least, leastRange}, {"wait_ms", in.WaitMs, &l.waitMs, waitRange},
	} {
		*p.into = p.r.Def
		if p.value == nil {
			continue
		}
		if *p.into = *p.value; *p.value < p.r.Min || *p.value > p.r.Max {
			return nil, model.Invalid("/"+p.name, "must be from %d to %d", p.r.Min, p.r.Max)
		}
	}
	r.limit(l)
	if in.Isolation != nil {
		var ok bool
		if r.req.Isolation, ok = rest.ParseIsolation(*in.Isolation); !ok {
			return nil, model.Invalid("/isolation", "must be read_committed or read_uncommitted")
		}
	}
	for _, p := range []struct {
		name  string
		value *string
		into  *recordjson.Encoding
	}{{"encoding", in.Encoding, &r.enc.Value}, {"key_encoding", in.KeyEncoding, &r.enc.Key}, {"header_encoding", in.HeaderEncoding, &r.enc.Header}} {
		if p.value == nil {
			continue
		}
		var ok bool
		if *p.into, ok = recordjson.ParseEncoding(*p.value); !ok {
			return nil, model.Invalid("/"+p.name, "must be auto, json, text or base64")
		}
	}
	if in.Cursor == nil {
		return r, nil
	}
	r.req.Cursor = *in.Cursor
	return r, checkCursor("/cursor", *in.Cursor)
}

// answer polls and gives the records while they are read.
func (d *Door) answer(c *route.Call, r *reading) error {
	return give(c, r.enc, func(ctx context.Context, visit coordinator.Visit) (*coordinator.PollResult, *coordinator.Waiting, error) {
		return d.groups.PollLater(ctx, &r.req, visit, c.Waker())
	})
}

// give gives what a poll does, or parks the call while the poll waits.
func give(c *route.Call, enc recordjson.Encodings, poll func(context.Context, coordinator.Visit) (*coordinator.PollResult, *coordinator.Waiting, error)) error {
	out := recordanswer.New(c, route.JSONOnly, false)
	defer out.Release()
	var meta recordjson.Meta
	got, waiting, err := poll(out.Context(), func(p group.Held, rec *record.Record, logAppendTime bool) {
		meta.Topic, meta.Partition, meta.LogAppendTime = p.Name, p.Index, logAppendTime
		out.Record(&meta, rec, enc)
	})
	if waiting != nil {
		return c.Park(func(c *route.Call) error { return give(c, enc, waiting.Resume) })
	}
	return out.End(err, func(b []byte) []byte { return append(appendRest(b, got), '\n') })
}
