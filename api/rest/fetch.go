package rest

import (
	"strconv"
	"time"

	"tidewire/api/problem"
	"tidewire/api/recordanswer"
	"tidewire/api/recordjson"
	"tidewire/api/route"
	"tidewire/broker"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// RecordView is a record as it is given out.
type RecordView struct {
	Topic         string       `json:"topic"`
	Partition     int32        `json:"partition"`
	Offset        int64        `json:"offset"`
	Timestamp     int64        `json:"timestamp"` // milliseconds since 1970
	TimestampType string       `json:"timestamp_type" enums:"CreateTime,LogAppendTime"`
	Key           any          `json:"key"`                                                           // a string or null, unless key_encoding=json was asked for
	KeyEncoding   *string      `json:"key_encoding" enums:"text,base64,json" extensions:"x-nullable"` // null for a null key
	Value         any          `json:"value"`
	ValueEncoding *string      `json:"value_encoding" enums:"text,base64,json" extensions:"x-nullable"` // null for a null value
	Headers       []HeaderView `json:"headers"`
	Preview       *PreviewView `json:"preview" extensions:"x-omittable"` // with preview_bytes
}

// HeaderView is one header of a record.
type HeaderView struct {
	Name     string  `json:"name"`
	Value    any     `json:"value"`
	Encoding *string `json:"encoding" enums:"text,base64,json" extensions:"x-nullable"` // null for a null value
	// base64 where the name is not valid UTF-8 and is given so; else absent.
	NameEncoding string `json:"name_encoding" extensions:"x-omittable"`
}

// FetchAnswer is what a fetch of one partition gives.
type FetchAnswer struct {
	Records          []RecordView `json:"records"`
	NextOffset       int64        `json:"next_offset"`
	HighWatermark    int64        `json:"high_watermark"`
	LastStableOffset int64        `json:"last_stable_offset"`
	LogStartOffset   int64        `json:"log_start_offset"`
}

// FetchLine is a line of a fetch as NDJSON: exactly one member. The last line has end, or
// problem where the reading could not go on.
type FetchLine struct {
	Record  *RecordView      `json:"record,omitempty" extensions:"x-omittable"`
	End     *FetchEnd        `json:"end,omitempty" extensions:"x-omittable"`
	Problem *problem.Problem `json:"problem,omitempty" extensions:"x-omittable"`
}

// FetchEnd closes a fetch as NDJSON.
type FetchEnd struct {
	// Why there is no more: latest, where all that may be seen was given; limit, that of the
	// request; node-stopping.
	Reason           string `json:"reason" enums:"latest,limit,node-stopping"`
	NextOffset       int64  `json:"next_offset"`
	HighWatermark    int64  `json:"high_watermark"`
	LastStableOffset int64  `json:"last_stable_offset"`
	LogStartOffset   int64  `json:"log_start_offset"`
}

// mediaBytes is the media type of a record's value alone.
const mediaBytes = "application/octet-stream"

var fetchMedia = []string{"application/json", ndjson, batchMedia}

var fetchQuery = []string{
	"offset", "timestamp", "max_records", "max_bytes", "min_bytes", "wait_ms", "isolation",
	"encoding", "key_encoding", "header_encoding", "preview_bytes",
}

// fetchRecords reads records of one partition.
//
//	@ID				fetch
//	@Summary		Read records of one partition
//	@Description	With wait_ms it waits until min_bytes are there (long poll). As application/x-ndjson it is a line {"record"} for each record, then {"end"}, or {"problem"} where the reading could not go on. As application/vnd.kafka.record-batches it is the stored batches, whole: the first is the one that holds the offset and always comes, max_records counts the records of whole batches, max_bytes and min_bytes the bytes of batches; a batch may begin before the offset asked for, and its checksum is the client's to check. Markers of transactions are left out, and with read_committed what was aborted. An answer may end before its limits; go on at next_offset.
//	@Tags			Records
//	@Param			topic			path		string	true	"topic"
//	@Param			partition		path		int		true	"partition"	minimum(0)
//	@Param			offset			query		string	false	"where to begin: an offset, earliest or latest; this or timestamp is needed"
//	@Param			timestamp		query		int		false	"begin at the first record whose timestamp is at least this, in milliseconds"	minimum(0)
//	@Param			max_records		query		int		false	"most records"	minimum(1)	maximum(10000)	default(500)
//	@Param			max_bytes		query		int		false	"most bytes of keys, values and headers; the first record always comes"	minimum(1)	maximum(67108864)	default(1048576)
//	@Param			min_bytes		query		int		false	"a waiting read answers with so many"	minimum(1)	maximum(67108864)	default(1)
//	@Param			wait_ms			query		int		false	"how long to wait for records"	minimum(0)	maximum(60000)	default(0)
//	@Param			isolation		query		string	false	"which records are seen"	Enums(read_committed, read_uncommitted)	default(read_committed)
//	@Param			encoding		query		string	false	"how values are given. auto: the bytes of one JSON object or array as JSON, other UTF-8 (a stored number or true included) as a string, the rest as base64; json also gives numbers and literals back as they were"	Enums(auto, json, text, base64)	default(auto)
//	@Param			key_encoding	query		string	false	"how keys are given"	Enums(auto, json, text, base64)	default(auto)
//	@Param			header_encoding	query		string	false	"how header values are given"	Enums(auto, json, text, base64)	default(auto)
//	@Param			preview_bytes	query		int		false	"cut each key, value and header value to so many bytes; each record then tells its lengths. Batches come whole"	minimum(0)	maximum(1048576)
//	@Success		200				{object}	FetchAnswer
//	@Header			200				{integer}	Tidewire-Next-Offset		"of batches: where the next read goes on"
//	@Header			200				{integer}	Tidewire-High-Watermark		"of batches"
//	@Header			200				{integer}	Tidewire-Last-Stable-Offset	"of batches"
//	@Header			200				{integer}	Tidewire-Log-Start-Offset	"of batches"
//	@Success		600				{object}	FetchLine
//	@Router			/v1/topics/{topic}/partitions/{partition}/records [get]
//	@x-content		{"response":{"200":{"application/x-ndjson":"rest.FetchLine","application/vnd.kafka.record-batches":"binary"}}}
//	@x-errors		["unknown-topic","unknown-partition","offset-out-of-range","rate-limited","leader-unavailable","storage-error"]
func (a *API) fetchRecords(c *route.Call) error {
	req, enc, err := a.fetchRequest(c)
	if err != nil {
		return err
	}
	media := c.Media()
	if media == batchMedia {
		return a.fetchBatches(c, req)
	}
	lines := media == ndjson
	out := recordanswer.New(c, answerMedia(lines), lines)
	defer out.Release()
	meta := recordjson.Meta{Topic: req.Topic, Partition: req.Partition}
	info, err := a.broker.Fetch(out.Context(), c.Caller(), req, func(r *record.Record, logAppendTime bool) {
		meta.LogAppendTime = logAppendTime
		out.Record(&meta, r, enc)
	})
	return out.End(err, a.endOf(&info, lines))
}

func (a *API) fetchRequest(c *route.Call) (*broker.FetchRequest, recordjson.Encodings, error) {
	req := &broker.FetchRequest{Topic: c.PathValue("topic")}
	var enc recordjson.Encodings
	var err error
	if req.Partition, err = c.PathPartition(); err != nil {
		return nil, enc, err
	}
	if req.From, err = fetchPosition(c); err != nil {
		return nil, enc, err
	}
	if req.Isolation, err = Isolation(c); err != nil {
		return nil, enc, err
	}
	var wait, records, bytes, least int64
	for _, p := range []struct {
		name string
		into *int64
		r    route.IntRange
	}{
		{"max_records", &records, route.IntRange{Def: 500, Min: 1, Max: maxFetchRecords}},
		{"max_bytes", &bytes, route.IntRange{Def: 1 << 20, Min: 1, Max: maxFetchBytes}},
		{"min_bytes", &least, route.IntRange{Def: 1, Min: 1, Max: maxFetchBytes}},
		{"wait_ms", &wait, route.IntRange{Def: 0, Min: 0, Max: maxWaitMs}},
	} {
		if *p.into, err = c.QueryInt(p.name, p.r); err != nil {
			return nil, enc, err
		}
	}
	req.MaxRecords, req.MaxBytes, req.MinBytes = int(records), int(bytes), int(least)
	req.Wait = time.Duration(wait) * time.Millisecond
	enc, err = encodings(c)
	req.Preview, req.PreviewBytes = enc.Preview, enc.PreviewBytes
	return req, enc, err
}

func fetchPosition(c *route.Call) (broker.Position, error) {
	off, hasOffset := c.Only("offset")
	_, hasTime := c.Only("timestamp")
	switch {
	case hasOffset == hasTime:
		return broker.Position{}, model.Invalid("query:offset", "give offset or timestamp, one of them")
	case hasTime:
		ms, err := c.QueryInt("timestamp", route.IntRange{Def: 0, Min: 0, Max: 1<<63 - 1})
		return broker.Position{Kind: broker.AtTime, Value: ms}, err
	case off == "earliest":
		return broker.Position{Kind: broker.Earliest}, nil
	case off == "latest":
		return broker.Position{Kind: broker.Latest}, nil
	}
	n, err := strconv.ParseInt(off, 10, 64)
	if err != nil || n < 0 {
		return broker.Position{}, model.Invalid("query:offset", "offset is a whole number from 0, earliest or latest, not %q", off)
	}
	return broker.Position{Kind: broker.AtOffset, Value: n}, nil
}

// ParseIsolation reads a word for an isolation.
func ParseIsolation(word string) (_ broker.Isolation, ok bool) {
	switch word {
	case "read_committed":
		return broker.ReadCommitted, true
	case "read_uncommitted":
		return broker.ReadUncommitted, true
	}
	return 0, false
}

// Isolation reads the parameter isolation of a query.
func Isolation(c *route.Call) (broker.Isolation, error) {
	s, given := c.Only("isolation")
	if !given {
		return broker.ReadCommitted, nil
	}
	iso, ok := ParseIsolation(s)
	if !ok {
		return 0, model.Invalid("query:isolation", "isolation is read_committed or read_uncommitted, not %q", s)
	}
	return iso, nil
}

// Encodings reads the parameters encoding, key_encoding and header_encoding of a query.
func Encodings(c *route.Call) (recordjson.Encodings, error) {
	var enc recordjson.Encodings
	for _, p := range []struct {
		name string
		into *recordjson.Encoding
	}{{"encoding", &enc.Value}, {"key_encoding", &enc.Key}, {"header_encoding", &enc.Header}} {
		s, ok := c.Only(p.name)
		if !ok {
			continue
		}
		if *p.into, ok = recordjson.ParseEncoding(s); !ok {
			return enc, model.Invalid("query:"+p.name, "%s is auto, json, text or base64, not %q", p.name, s)
		}
	}
	return enc, nil
}

// encodings is Encodings with preview_bytes.
func encodings(c *route.Call) (recordjson.Encodings, error) {
	enc, err := Encodings(c)
	if err != nil {
		return enc, err
	}
	if _, enc.Preview = c.Only("preview_bytes"); !enc.Preview {
		return enc, nil
	}
	n, err := c.QueryInt("preview_bytes", route.IntRange{Def: 0, Min: 0, Max: maxPreviewBytes})
	enc.PreviewBytes = int(n)
	return enc, err
}
