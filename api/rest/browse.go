package rest

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"tidewire/api/coding"
	"tidewire/api/problem"
	"tidewire/api/recordjson"
	"tidewire/api/route"
	"tidewire/broker"
	"tidewire/broker/browse"
	"tidewire/internal/model"
)

// Media types of a read over partitions.
const (
	mediaNDJSON = "application/x-ndjson"
	mediaSSE    = "text/event-stream"
	mediaCSV    = "text/csv"
)

var browseAccept = []string{"application/json", mediaNDJSON, mediaSSE, mediaCSV}

var browseQuery = []string{
	"from", "cursor", "to", "direction", "max_records", "max_bytes", "max_time_ms", "partitions", "q", "q_in", "key",
	"preview_bytes", "count", "follow", "isolation", "encoding", "key_encoding", "header_encoding",
}

// Memory of one read, beside one batch and what is being written.
const (
	pageBuffer   = 8 << 20
	streamBuffer = 1 << 20
)

// maxPreviewBytes bounds preview_bytes.
const maxPreviewBytes = 1 << 20

// BrowseAnswer is a page of a read over partitions.
type BrowseAnswer struct {
	Records    []RecordView `json:"records"`
	NextCursor *string      `json:"next_cursor" extensions:"x-nullable"` // null: there is nothing more
	PrevCursor *string      `json:"prev_cursor" extensions:"x-nullable"` // of the page before, in the same order; null: this is the first one
	End        BrowseEnd    `json:"end"`
	Count      *int64       `json:"count" extensions:"x-nullable"` // records that match, with count=true
	Scanned    ScannedView  `json:"scanned"`
}

// BrowseEnd tells why a page or a stream ended, and where to go on.
type BrowseEnd struct {
	Reason string `json:"reason" enums:"max-records,max-bytes,max-time,latest,earliest,node-stopping"`
	Cursor string `json:"cursor"` // goes on from here, behind the latest records of the start too
	Count  *int64 `json:"count" extensions:"x-nullable"`
}

// ScannedView is what a page has looked at, what its filter left out included.
type ScannedView struct {
	Records    int64          `json:"records"`
	Bytes      int64          `json:"bytes"` // of keys, values and headers
	Partitions []ScannedRange `json:"partitions"`
}

// ScannedRange is what was looked at of a partition: the offsets from from up to, but not
// with, to.
type ScannedRange struct {
	Partition int32 `json:"partition"`
	From      int64 `json:"from"`
	To        int64 `json:"to"`
}

// BrowseLine is one line of a read as NDJSON; it has one of its members.
type BrowseLine struct {
	Record   *RecordView      `json:"record" extensions:"x-omittable"`
	Progress *BrowseProgress  `json:"progress" extensions:"x-omittable"`
	End      *BrowseEnd       `json:"end" extensions:"x-omittable"`
	Problem  *problem.Problem `json:"problem" extensions:"x-omittable"` // the last line of a stream that had to end
}

// BrowseProgress tells how far a stream is, so that a client can go on from there.
type BrowseProgress struct {
	Cursor         string `json:"cursor"`
	Count          *int64 `json:"count" extensions:"x-nullable"`
	ScannedRecords int64  `json:"scanned_records"`
	ScannedBytes   int64  `json:"scanned_bytes"`
}

// PreviewView tells, with preview_bytes, what a record has besides what is given.
type PreviewView struct {
	KeyBytes    *int64 `json:"key_bytes" extensions:"x-nullable"`
	ValueBytes  *int64 `json:"value_bytes" extensions:"x-nullable"`
	HeaderBytes int64  `json:"header_bytes"` // of names and values
	Truncated   bool   `json:"truncated"`
}

// browsing is what a request asks for.
type browsing struct {
	req        broker.BrowseRequest
	enc        recordjson.Encodings
	media      string
	maxRecords int64 // 0: no bound
	maxBytes   int64 // 0: no bound
	maxTime    time.Duration
	count      bool
}

// browseRecords reads records of all partitions.
//
//	@ID				browse
//	@Summary		Read records of all partitions
//	@Description	Takes again and again, among each partition's next record in offset order, the one with the least (timestamp, partition); direction=backward is the mirror image. As JSON it is a page; as NDJSON, server-sent events or CSV a stream up to the latest offsets of the start, or, with follow=true (NDJSON and events), without end. CSV has the columns topic, partition, offset, timestamp, timestamp_type, key, key_encoding, value, value_encoding, headers; a field that a spreadsheet could take for a formula gets an apostrophe in front.
//	@Tags			Records
//	@Param			topic			path		string	true	"topic"
//	@Param			from			query		string	false	"where to begin: earliest (default), latest (default of backward and follow), or a time in milliseconds: the first offset whose record's timestamp is at least that, forward from there or backward from before it"
//	@Param			cursor			query		string	false	"go on from a cursor of an earlier answer, in place of from; direction, to, q, key are the cursor's unless they are given"
//	@Param			Last-Event-ID	header		string	false	"server-sent events: go on behind the event with this id; wins over from and cursor"
//	@Param			to				query		int		false	"leave out records whose timestamp in milliseconds is this or later"	minimum(0)
//	@Param			direction		query		string	false	"which way to read"	Enums(forward, backward)	default(forward)
//	@Param			max_records		query		int		false	"most records; a page has at most 100 unless given, a stream has no bound"	minimum(1)	maximum(10000)
//	@Param			max_bytes		query		int		false	"most bytes of keys, values and headers as they are given; the first record always comes; a page has at most 1048576 unless given"	minimum(1)	maximum(67108864)
//	@Param			max_time_ms		query		int		false	"how long one page may search; it then ends with what was found and a cursor"	minimum(1)	maximum(60000)	default(3000)
//	@Param			partitions		query		string	false	"partitions to read, separated by commas; all unless given"
//	@Param			q				query		string	false	"records that contain this text, byte for byte"
//	@Param			q_in			query		string	false	"where q is looked for, separated by commas: key, value, headers (names and values)"	default(key,value,headers)
//	@Param			key				query		string	false	"records whose key is this, byte for byte; %XX gives any byte"
//	@Param			preview_bytes	query		int		false	"cut each key, value and header value to so many bytes; each record then tells its lengths"	minimum(0)	maximum(1048576)
//	@Param			count			query		bool	false	"count the records that match instead of giving them"	default(false)
//	@Param			follow			query		bool	false	"wait for new records at the end; NDJSON and server-sent events only"	default(false)
//	@Param			isolation		query		string	false	"which records are seen"	Enums(read_committed, read_uncommitted)	default(read_committed)
//	@Param			encoding		query		string	false	"how values are given, as in fetch"	Enums(auto, json, text, base64)	default(auto)
//	@Param			key_encoding	query		string	false	"how keys are given"	Enums(auto, json, text, base64)	default(auto)
//	@Param			header_encoding	query		string	false	"how header values are given"	Enums(auto, json, text, base64)	default(auto)
//	@Success		200				{object}	BrowseAnswer
//	@Success		600				{object}	BrowseLine
//	@Router			/v1/topics/{topic}/records [get]
//	@x-content		{"response": {"200": {"application/x-ndjson": "rest.BrowseLine", "text/event-stream": "text", "text/csv": "text"}}}
//	@x-errors		["unknown-topic","unknown-partition","leader-unavailable","storage-error","rate-limited"]
func (a *API) browseRecords(c *route.Call) error {
	q, err := browseRequest(c)
	if err != nil {
		return err
	}
	if a.browses.Add(1) > maxBrowses {
		a.browses.Add(-1)
		return model.Errorf(model.RateLimited, "this node has the %d reads over partitions under way that it allows", maxBrowses)
	}
	defer a.browses.Add(-1)
	q.req.Lasts = q.media != route.JSONOnly[0]
	x, err := a.broker.Browse(c.Request.Context(), c.Caller(), &q.req)
	if err != nil {
		return err
	}
	defer x.Close()
	if q.media == route.JSONOnly[0] {
		return a.browsePage(c, q, x)
	}
	return a.browseStream(c, q, x)
}

// maxBrowses is how many reads over partitions a node serves at a time, streams included:
// with their buffers that bounds the memory of all of them.
const maxBrowses = 2000

func browseRequest(c *route.Call) (*browsing, error) {
	q := &browsing{req: broker.BrowseRequest{Topic: c.PathValue("topic"), BufferBytes: streamBuffer}, media: route.JSONOnly[0]}
	if h := c.Request.Header["Accept"]; len(h) > 0 {
		q.media = coding.Media(h, browseAccept)
	}
	if q.media == route.JSONOnly[0] {
		q.req.BufferBytes = pageBuffer
	}
	for _, read := range []func(*route.Call) error{q.readDirection, q.readStart, q.readPartitions, q.readFilter, q.readLimits, q.readForm} {
		if err := read(c); err != nil {
			return nil, err
		}
	}
	return q, nil
}

func (q *browsing) readDirection(c *route.Call) (err error) {
	if q.req.Follow, err = c.QueryBool("follow"); err != nil {
		return err
	}
	switch s, ok := c.Only("direction"); {
	case !ok:
	case s == "forward":
		q.req.Direction = new(browse.Forward)
	case s == "backward":
		q.req.Direction = new(browse.Backward)
	default:
		return model.Invalid("query:direction", "direction is forward or backward, not %q", s)
	}
	switch {
	case !q.req.Follow:
	case q.media != mediaNDJSON && q.media != mediaSSE:
		return model.Invalid("query:follow", "follow needs Accept: %s or %s", mediaNDJSON, mediaSSE)
	case q.backward():
		return model.Invalid("query:follow", "follow reads forward only")
	}
	return nil
}

func (q *browsing) backward() bool {
	if q.req.Direction != nil {
		return *q.req.Direction == browse.Backward
	}
	return q.req.Cursor != nil && q.req.Cursor.Direction == browse.Backward
}

// readStart reads from, cursor and Last-Event-ID.
func (q *browsing) readStart(c *route.Call) error {
	from, hasFrom := c.Only("from")
	text, hasCursor := c.Only("cursor")
	if hasFrom && hasCursor {
		return model.Invalid("query:cursor", "give from or cursor, not both")
	}
	at := "query:cursor"
	if id := c.GetHeader("Last-Event-ID"); id != "" && q.media == mediaSSE {
		text, hasCursor, at = id, true, "header:Last-Event-ID"
	}
	if hasCursor {
		cursor, ok := browse.ParseCursor(text)
		if !ok {
			return model.Invalid(at, "this is no cursor of this version, or not a whole one")
		}
		q.req.Cursor = cursor
		return q.checkCursor(at)
	}
	switch {
	case from == "latest", !hasFrom && (q.req.Follow || q.backward()):
		q.req.From = broker.Position{Kind: broker.Latest}
	case from == "earliest", !hasFrom:
		q.req.From = broker.Position{Kind: broker.Earliest}
	default:
		ms, err := strconv.ParseInt(from, 10, 64)
		if err != nil || ms < 0 {
			return model.Invalid("query:from", "from is earliest, latest or a time in milliseconds, not %q", from)
		}
		q.req.From = broker.Position{Kind: broker.AtTime, Value: ms}
	}
	return nil
}

func (q *browsing) checkCursor(at string) error {
	cursor := q.req.Cursor
	back := q.backward()
	switch {
	case q.req.Follow && back:
		return model.Invalid(at, "follow reads forward only, and the cursor goes backward")
	case cursor.Before && q.media != route.JSONOnly[0] && back == (cursor.Direction == browse.Backward):
		return model.Invalid(at, "the page before a place comes as JSON only; give the other direction for a stream")
	}
	return nil
}

func (q *browsing) readPartitions(c *route.Call) error {
	s, ok := c.Only("partitions")
	if !ok {
		return nil
	}
	q.req.Partitions = []model.PartitionID{}
	for word := range strings.SplitSeq(s, ",") {
		n, err := strconv.ParseInt(word, 10, 32)
		if err != nil || n < 0 {
			return model.Invalid("query:partitions", "partitions are whole numbers from 0, separated by commas, not %q", word)
		}
		q.req.Partitions = append(q.req.Partitions, model.PartitionID(n))
	}
	slices.Sort(q.req.Partitions)
	if len(slices.Compact(slices.Clone(q.req.Partitions))) < len(q.req.Partitions) {
		return model.Invalid("query:partitions", "a partition is given twice")
	}
	return nil
}

func (q *browsing) readFilter(c *route.Call) error {
	f := &q.req.Filter
	text, hasText := c.Only("q")
	f.Text, q.req.TextGiven, f.In = []byte(text), hasText, browse.InAll
	key, hasKey := c.Only("key")
	f.Key, f.HasKey = []byte(key), hasKey
	for name, v := range map[string]string{"q": text, "key": key} {
		if len(v) > browse.MaxTextBytes {
			return model.Invalid("query:"+name, "%s has at most %d bytes", name, browse.MaxTextBytes)
		}
	}
	if in, ok := c.Only("q_in"); ok {
		if !hasText {
			return model.Invalid("query:q_in", "q_in says where q is looked for, and there is no q")
		}
		if f.In, ok = browse.ParseParts(strings.Split(in, ",")); !ok {
			return model.Invalid("query:q_in", "q_in is a list of key, value and headers, not %q", in)
		}
	}
	if _, f.HasTo = c.Only("to"); !f.HasTo {
		return nil
	}
	to, err := c.QueryInt("to", route.IntRange{Def: 0, Min: 0, Max: 1<<63 - 1})
	f.To = to
	return err
}

func (q *browsing) readLimits(c *route.Call) (err error) {
	if q.count, err = c.QueryBool("count"); err != nil {
		return err
	}
	if q.count && q.media == mediaCSV {
		return model.Invalid("query:count", "CSV has no place for a count")
	}
	page := q.media == route.JSONOnly[0]
	records, bytes := route.IntRange{Def: 0, Min: 1, Max: maxFetchRecords}, route.IntRange{Def: 0, Min: 1, Max: maxFetchBytes}
	if page && !q.count { // a count that nobody bounds goes to the end
		records.Def, bytes.Def = 100, 1<<20
	}
	if q.maxRecords, err = c.QueryInt("max_records", records); err != nil {
		return err
	}
	if q.maxBytes, err = c.QueryInt("max_bytes", bytes); err != nil {
		return err
	}
	if _, given := c.Only("max_time_ms"); given && !page {
		return model.Invalid("query:max_time_ms", "max_time_ms is for pages; a stream tells its progress")
	}
	ms, err := c.QueryInt("max_time_ms", route.IntRange{Def: 3000, Min: 1, Max: 60_000})
	q.maxTime = time.Duration(ms) * time.Millisecond
	return err
}

func (q *browsing) readForm(c *route.Call) (err error) {
	if q.req.Isolation, err = Isolation(c); err != nil {
		return err
	}
	q.enc, err = encodings(c)
	return err
}

// fit counts what a page or stream gives, up to its limits.
type fit struct {
	q              *browsing
	records, bytes int64
	reason         string // of the limit that was reached
}

// admit says whether a record still fits, and whether another one will.
func (f *fit) admit(it browse.Item) browse.Verdict {
	n := int64(f.q.enc.Given(it.Record))
	if f.q.maxBytes > 0 && f.records > 0 && f.bytes+n > f.q.maxBytes {
		f.reason = "max-bytes"
		return browse.StopBefore
	}
	f.records++
	f.bytes += n
	switch {
	case f.q.maxRecords > 0 && f.records >= f.q.maxRecords:
		f.reason = "max-records"
	case f.q.maxBytes > 0 && f.bytes >= f.q.maxBytes:
		f.reason = "max-bytes"
	default:
		return browse.Go
	}
	return browse.StopAfter
}

// appendCount appends the count, or null.
func (f *fit) appendCount(b []byte) []byte {
	if !f.q.count {
		return append(b, "null"...)
	}
	return strconv.AppendInt(b, f.records, 10)
}

// edge is the reason of a read that has nothing more.
func edge(dir browse.Direction) string {
	if dir == browse.Backward {
		return "earliest"
	}
	return "latest"
}
