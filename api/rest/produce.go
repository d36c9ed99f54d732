package rest

import (
	"encoding/json"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tidewire/api/problem"
	"tidewire/api/recordjson"
	"tidewire/api/route"
	"tidewire/broker"
	"tidewire/broker/partition"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// maxProduceBody is the largest JSON produce body, or single value.
const maxProduceBody = 64 << 20

// RecordInput is one record of a produce request. A record as fetch gives it is
// accepted: topic, offset and timestamp_type are ignored.
type RecordInput struct {
	// A string is stored as its UTF-8 bytes, null or absent as null.
	Key any `json:"key"`
	// A string is stored as its UTF-8 bytes, null or absent as null (a tombstone), any
	// other JSON value as the exact bytes of its text.
	Value any `json:"value"`
	// A list of {name, value, encoding?}, or an object {name: value}.
	Headers       any     `json:"headers"`
	Partition     *int32  `json:"partition" minimum:"0" extensions:"x-nullable"`
	PartitionKey  *string `json:"partition_key" extensions:"x-nullable"`
	Timestamp     *int64  `json:"timestamp" minimum:"0" extensions:"x-nullable"` // milliseconds since 1970
	KeyEncoding   *string `json:"key_encoding" enums:"text,json,base64" extensions:"x-nullable"`
	ValueEncoding *string `json:"value_encoding" enums:"text,json,base64" extensions:"x-nullable"`
	Topic         *string `json:"topic" extensions:"x-nullable"`          // ignored
	Offset        *int64  `json:"offset" extensions:"x-nullable"`         // ignored
	TimestampType *string `json:"timestamp_type" extensions:"x-nullable"` // ignored
}

// ProduceRequest is the JSON body of a produce call.
type ProduceRequest struct {
	Records []RecordInput `json:"records" binding:"required" minItems:"1" maxItems:"1000000"`
}

// ProduceAnswer has one result a record, in request order.
type ProduceAnswer struct {
	Results []ProduceResult `json:"results"`
}

// ProduceResult is where a record was stored, or the problem why it was not.
type ProduceResult struct {
	Partition int32            `json:"partition" extensions:"x-omittable"`
	Offset    int64            `json:"offset" extensions:"x-omittable"`
	Timestamp int64            `json:"timestamp" extensions:"x-omittable"` // milliseconds since 1970
	Problem   *problem.Problem `json:"problem" extensions:"x-omittable"`
}

// Accepted is the answer under acks=none.
type Accepted struct {
	Accepted int `json:"accepted"`
}

// produceScratch is the memory of one produce call; it is pooled.
type produceScratch struct {
	req     broker.ProduceRequest
	records []record.Record
	routing []broker.Routing
	answer  []byte
	results recordjson.Results
}

var produceScratches = sync.Pool{New: func() any { return new(produceScratch) }}

var requests recordjson.Pool

// produceRecords stores records in the partitions that their keys choose.
//
//	@ID				produce
//	@Summary		Store records
//	@Description	Takes a JSON list of records, one record a line (application/x-ndjson), record batches (RecordBatch v2 bytes, stored as they come), or any other body as the value of one record. 207 when partitions ended differently. Lines are answered with 200 while they are read, by a line for each that failed (or for each) and a summary; with results=all read while you write.
//	@Tags			Records
//	@Accept			json
//	@Param			topic				path		string			true	"topic"
//	@Param			acks				query		string			false	"when to answer"	Enums(all, leader, none, -1, 1, 0)	default(all)
//	@Param			timeout_ms			query		int				false	"how long acks=all may take"	minimum(1)	maximum(600000)	default(30000)
//	@Param			results				query		string			false	"x-ndjson body: which lines are answered"	Enums(errors, all, none)	default(errors)
//	@Param			key					query		string			false	"raw body: the record's key"
//	@Param			key_encoding		query		string			false	"raw body: how key is given"	Enums(text, base64)
//	@Param			partition			query		int				false	"raw body and record batches, which need it: the partition"	minimum(0)
//	@Param			timestamp			query		int				false	"raw body: the record's timestamp in milliseconds"	minimum(0)
//	@Param			null				query		string			false	"raw body: value stores a tombstone"	Enums(value)
//	@Param			Tidewire-Key		header		string			false	"raw body: the record's key as text"
//	@Param			Tidewire-Expected-Offset	header	int			false	"store the records, of one partition, only if its log ends there"	minimum(0)
//	@Param			Tidewire-Producer-Id	header		int			false	"with the next two: id of an idempotent producer, whose repeats are stored once"	minimum(0)
//	@Param			Tidewire-Producer-Epoch	header	int			false	"epoch of the producer"	minimum(0)	maximum(32767)
//	@Param			Tidewire-Sequence	header		int				false	"number of the first record in what the producer sent to the partition"	minimum(0)	maximum(2147483647)
//	@Param			Idempotency-Key		header		string			false	"stands for this request of yours: a repeat of it within dedupe.window.ms is stored once and gets the first result; not with x-ndjson"	minLength(1)	maxLength(255)
//	@Param			body				body		ProduceRequest	true	"records"
//	@Success		200					{object}	ProduceAnswer
//	@Header			200					{string}	Tidewire-Acks	"the level used"
//	@Header			200					{string}	Tidewire-Warning	"what the producer should know"
//	@Header			200					{string}	Idempotency-Replayed	"true: an earlier request with the Idempotency-Key had stored the records; partial: some of them"
//	@Success		600					{object}	ProduceLine
//	@Success		202					{object}	Accepted	"acks=none"
//	@Success		207					{object}	ProduceAnswer	"partitions ended differently"
//	@Router			/v1/topics/{topic}/records [post]
//	@x-content		{"request":{"application/x-ndjson":"rest.RecordInput","application/octet-stream":"binary","text/plain":"text","application/vnd.kafka.record-batches":"binary"},"response":{"200":{"application/x-ndjson":"rest.ProduceLine"}}}
//	@x-errors		["unknown-topic","unknown-partition","record-too-large","invalid-timestamp","corrupt-batch","invalid-record","unsupported-compression","offset-mismatch","fenced","out-of-order-sequence","unknown-producer","invalid-transaction-state","leader-unavailable","not-enough-replicas","not-enough-replicas-after-append","storage-full","storage-error","timeout","idempotency-in-progress","idempotency-key-reused"]
func (a *API) produceRecords(c *route.Call) error { return a.produce(c, nil) }

// producePartition stores records in one partition.
//
//	@ID				producePartition
//	@Summary		Store records in one partition
//	@Description	As produce; a partition in a record must be the same.
//	@Tags			Records
//	@Accept			json
//	@Param			topic				path		string			true	"topic"
//	@Param			partition			path		int				true	"partition"	minimum(0)
//	@Param			acks				query		string			false	"when to answer"	Enums(all, leader, none, -1, 1, 0)	default(all)
//	@Param			timeout_ms			query		int				false	"how long acks=all may take"	minimum(1)	maximum(600000)	default(30000)
//	@Param			results				query		string			false	"x-ndjson body: which lines are answered"	Enums(errors, all, none)	default(errors)
//	@Param			key					query		string			false	"raw body: the record's key"
//	@Param			key_encoding		query		string			false	"raw body: how key is given"	Enums(text, base64)
//	@Param			timestamp			query		int				false	"raw body: the record's timestamp in milliseconds"	minimum(0)
//	@Param			null				query		string			false	"raw body: value stores a tombstone"	Enums(value)
//	@Param			Tidewire-Key		header		string			false	"raw body: the record's key as text"
//	@Param			Tidewire-Expected-Offset	header	int			false	"store the records, of one partition, only if its log ends there"	minimum(0)
//	@Param			Tidewire-Producer-Id	header		int			false	"with the next two: id of an idempotent producer, whose repeats are stored once"	minimum(0)
//	@Param			Tidewire-Producer-Epoch	header	int			false	"epoch of the producer"	minimum(0)	maximum(32767)
//	@Param			Tidewire-Sequence	header		int				false	"number of the first record in what the producer sent to the partition"	minimum(0)	maximum(2147483647)
//	@Param			Idempotency-Key		header		string			false	"stands for this request of yours: a repeat of it within dedupe.window.ms is stored once and gets the first result; not with x-ndjson"	minLength(1)	maxLength(255)
//	@Param			body				body		ProduceRequest	true	"records"
//	@Success		200					{object}	ProduceAnswer
//	@Header			200					{string}	Tidewire-Acks	"the level used"
//	@Header			200					{string}	Tidewire-Warning	"what the producer should know"
//	@Header			200					{string}	Idempotency-Replayed	"true: an earlier request with the Idempotency-Key had stored the records; partial: some of them"
//	@Success		600					{object}	ProduceLine
//	@Success		202					{object}	Accepted	"acks=none"
//	@Success		207					{object}	ProduceAnswer	"records ended differently"
//	@Router			/v1/topics/{topic}/partitions/{partition}/records [post]
//	@x-content		{"request":{"application/x-ndjson":"rest.RecordInput","application/octet-stream":"binary","text/plain":"text","application/vnd.kafka.record-batches":"binary"},"response":{"200":{"application/x-ndjson":"rest.ProduceLine"}}}
//	@x-errors		["unknown-topic","unknown-partition","record-too-large","invalid-timestamp","corrupt-batch","invalid-record","unsupported-compression","offset-mismatch","fenced","out-of-order-sequence","unknown-producer","invalid-transaction-state","leader-unavailable","not-enough-replicas","not-enough-replicas-after-append","storage-full","storage-error","timeout","idempotency-in-progress","idempotency-key-reused"]
func (a *API) producePartition(c *route.Call) error {
	p, err := c.PathPartition()
	if err != nil {
		return err
	}
	return a.produce(c, &p)
}

func (a *API) produce(c *route.Call, path *model.PartitionID) error {
	media, err := produceMedia(c)
	if err != nil {
		return err
	}
	if media == mediaLines {
		return a.produceLines(c, path)
	}
	if media == mediaBatches {
		return a.produceBatches(c, path)
	}
	s := produceScratches.Get().(*produceScratch)
	defer s.release()
	s.req.Topic = c.PathValue("topic")
	if s.req.Acks, s.req.Timeout, err = produceLevel(c); err != nil {
		return err
	}
	if err := checkProduceParameters(c, media); err != nil {
		return err
	}
	if s.req.Sequence, err = sequence(c); err != nil {
		return err
	}
	if s.req.Expected, err = expectedOffset(c); err != nil {
		return err
	}
	if s.req.IdempotencyKey, err = idempotencyKey(c); err != nil {
		return err
	}
	return c.ReadBody(func(body []byte) error {
		if media == mediaRaw {
			if err := s.rawRecord(c, body, path); err != nil {
				return err
			}
			return a.submit(c, s)
		}
		if err := c.Grow(recordjson.Footprint(body)); err != nil {
			return err
		}
		r := requests.Get()
		defer requests.Put(r)
		if err := r.Decode(body); err != nil {
			return err
		}
		if err := s.take(r.Records, path); err != nil {
			return err
		}
		return a.submit(c, s)
	})
}

// produceKind says how the records of a produce body are written.
type produceKind uint8

const (
	mediaRaw     produceKind = iota // the body is one record's value
	mediaJSON                       // one JSON document
	mediaLines                      // a JSON document a line
	mediaBatches                    // record batches that the client has made
)

const (
	ndjson     = "application/x-ndjson"
	batchMedia = "application/vnd.kafka.record-batches" // RecordBatch v2 bytes
)

// produceMedia tells JSON and lines of it from a raw body. Without a type, and for what
// browsers' forms send, it asks the client to say what it means.
func produceMedia(c *route.Call) (produceKind, error) {
	ct := c.Request.Header.Get("Content-Type")
	if ct == route.JSONOnly[0] {
		return mediaJSON, nil
	}
	mt, params, err := mime.ParseMediaType(ct)
	switch {
	case ct == "" || err != nil || !strings.Contains(mt, "/"):
		return 0, model.Errorf(model.UnsupportedMediaType, "a Content-Type is needed: application/json for records, application/x-ndjson for one a line, any other, such as application/octet-stream, for one record's value")
	case mt == "application/x-www-form-urlencoded" || strings.HasPrefix(mt, "multipart/"):
		return 0, model.Errorf(model.UnsupportedMediaType, "%s is not taken as a record; with curl, give -H 'Content-Type: application/json', or another type for one record's value", mt)
	case mt == route.JSONOnly[0]:
		return mediaJSON, route.RequireJSON(c.Request.Header)
	case mt == ndjson:
		return mediaLines, route.RequireUTF8(params)
	case mt == batchMedia:
		return mediaBatches, nil
	}
	return mediaRaw, nil
}

// checkProduceType refuses a body of a type that produceMedia does not know.
func checkProduceType(c *route.Call) error {
	_, err := produceMedia(c)
	return err
}

// rawParameters are those that only a raw body knows.
var rawParameters = []string{"key", "key_encoding", "partition", "timestamp", "null"}

func checkProduceParameters(c *route.Call, media produceKind) error {
	if len(c.Query()) == 0 {
		return nil
	}
	if media != mediaLines && c.Query().Has("results") {
		return model.Invalid("query:results", "results belongs to a body of %s", ndjson)
	}
	if media == mediaRaw {
		return nil
	}
	for _, name := range rawParameters {
		switch {
		case !c.Query().Has(name) || media == mediaBatches && name == "partition":
		case media == mediaBatches:
			return model.Invalid("query:"+name, "%s belongs to a raw body; record batches say it of each record", name)
		default:
			return model.Invalid("query:"+name, "%s belongs to a raw body; in JSON it is a member of the record", name)
		}
	}
	return nil
}

func produceLevel(c *route.Call) (partition.Acks, time.Duration, error) {
	acks := partition.AcksAll
	switch s, ok := c.Only("acks"); {
	case !ok || s == "all" || s == "-1":
	case s == "leader" || s == "1":
		acks = partition.AcksLeader
	case s == "none" || s == "0":
		acks = partition.AcksNone
	default:
		return 0, 0, model.Invalid("query:acks", "acks is all, leader or none, not %q", s)
	}
	ms, err := c.QueryInt("timeout_ms", route.IntRange{Def: 30_000, Min: 1, Max: 600_000})
	return acks, time.Duration(ms) * time.Millisecond, err
}

// take copies decoded records into the request's shape.
func (s *produceScratch) take(recs []recordjson.Rec, path *model.PartitionID) error {
	s.records, s.routing = FromJSON(recs, s.records, s.routing)
	if path == nil {
		return nil
	}
	if len(s.routing) == 0 {
		s.routing = zeros(s.routing, len(recs))
	}
	for i := range s.routing {
		to := &s.routing[i]
		if to.HasPartition && to.Partition != *path {
			return model.Invalid("/records/"+strconv.Itoa(i)+"/partition", "partition %d is not the path's partition %d", to.Partition, *path)
		}
		to.Partition, to.HasPartition = *path, true
	}
	return nil
}

// FromJSON gives decoded records the shape of a produce request, in the memory of records
// and routing, whose content it replaces. The bytes stay where they are. The routing is
// empty where no record asks for any.
func FromJSON(recs []recordjson.Rec, records []record.Record, routing []broker.Routing) ([]record.Record, []broker.Routing) {
	records, routing = slices.Grow(records[:0], len(recs))[:len(recs)], routing[:0]
	for i := range recs {
		from, to := &recs[i], &records[i]
		to.Offset, to.Timestamp, to.Key, to.Value, to.Headers = 0, broker.NoTimestamp, from.Key, from.Value, from.Headers
		if from.HasTimestamp {
			to.Timestamp = from.Timestamp
		}
		if from.HasPartition || from.HasPartitionKey {
			if len(routing) == 0 {
				routing = zeros(routing, len(recs))
			}
			routing[i] = broker.Routing{
				Partition: from.Partition, HasPartition: from.HasPartition,
				PartitionKey: from.PartitionKey, HasPartitionKey: from.HasPartitionKey,
			}
		}
	}
	return records, routing
}

// zeros is n zero values in the memory of s.
func zeros[T any](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

func (a *API) submit(c *route.Call, s *produceScratch) error {
	s.req.Records, s.req.Routing = s.records, s.routing
	var failure error
	err := a.broker.Produce(c.Request.Context(), c.Caller(), &s.req, func(res *broker.ProduceResult) {
		failure = a.answerProduce(c, s, res)
	})
	if err != nil {
		return err
	}
	return failure
}

var acksNames = map[partition.Acks][]string{partition.AcksAll: {"all"}, partition.AcksLeader: {"leader"}, partition.AcksNone: {"none"}}

func (a *API) answerProduce(c *route.Call, s *produceScratch, res *broker.ProduceResult) error {
	c.Writer.Header()["Tidewire-Acks"] = acksNames[s.req.Acks]
	if res.Warning != "" {
		c.Header("Tidewire-Warning", res.Warning)
	}
	tellReplayed(c, res.Replayed)
	if res.Failed == len(res.Results) {
		if e := CommonFailure(res.Results); e != nil && s.req.Acks != partition.AcksNone {
			return e
		}
	}
	if s.req.Acks == partition.AcksNone {
		return c.JSON(http.StatusAccepted, Accepted{len(res.Results)})
	}
	b := append(s.answer[:0], `{"results":`...)
	b, status, err := AppendResults(b, &s.results, res.Results, c.Occurrence())
	if err != nil {
		return err
	}
	s.answer = append(b, "}\n"...)
	c.Bytes(status, "application/json", s.answer)
	return nil
}

// AppendResults appends the list of what became of each record, as every door tells it.
// The status is 207 where some failed.
func AppendResults(b []byte, form *recordjson.Results, results []broker.RecordResult, at problem.Occurrence) ([]byte, int, error) {
	status := http.StatusOK
	b = append(b, '[')
	for i := range results {
		r := &results[i]
		if i > 0 {
			b = append(b, ',')
		}
		if r.Err == nil {
			b = form.Append(b, r.Partition, r.Offset, r.Timestamp)
			continue
		}
		status = http.StatusMultiStatus
		p, err := json.Marshal(ProduceResult{Problem: new(problem.Of(r.Err, at))}.failed())
		if err != nil {
			return b, status, err
		}
		b = append(b, p...)
	}
	return append(b, ']'), status, nil
}

// failed is the form of a result that has a problem and nothing else.
func (r ProduceResult) failed() any {
	return struct {
		Problem *problem.Problem `json:"problem"`
	}{r.Problem}
}

// CommonFailure is the one error of all results, or nil where their codes differ.
func CommonFailure(results []broker.RecordResult) error {
	if len(results) == 0 {
		return nil
	}
	first := model.AsError(results[0].Err)
	outcome := first.EffectiveOutcome()
	for _, r := range results[1:] {
		e := model.AsError(r.Err)
		if e.Code != first.Code {
			return nil
		}
		if e.EffectiveOutcome() != outcome { // the careful one speaks for all
			outcome = model.Unknown
		}
	}
	return first.WithOutcome(outcome)
}

func (s *produceScratch) release() {
	clear(s.records)
	clear(s.routing)
	s.req = broker.ProduceRequest{}
	if cap(s.records) <= 16<<10 && cap(s.answer) <= 1<<20 {
		produceScratches.Put(s)
	}
}
