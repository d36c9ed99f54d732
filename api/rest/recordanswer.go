package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"

	"tidewire/api/problem"
	"tidewire/api/recordjson"
	"tidewire/api/route"
	"tidewire/broker"
	"tidewire/storage/record"
)

// flushBytes is how much of an answer is gathered before it is written.
const flushBytes = 64 << 10

// gathered are the buffers of answers.
var gathered = sync.Pool{New: func() any { b := make([]byte, 0, flushBytes+16<<10); return &b }}

// maxPooledAnswer bounds what the pool keeps.
const maxPooledAnswer = 1 << 20

// recordAnswer gives records to the client while they are read, as one JSON document or as
// NDJSON. A short answer goes as a whole with its length. What fails before anything was
// written is a usual problem; later it is the last line of NDJSON, and cuts a JSON document
// off, so that nobody takes it for whole.
type recordAnswer struct {
	a     *API
	c     *route.Call
	lines bool
	ctx   context.Context // ends when the client is gone
	stop  context.CancelCauseFunc

	buf   *[]byte // taken once there is something to say: thousands may wait
	b     []byte
	some  bool // a record was given
	begun bool // the head was sent
	err   error
}

func newRecordAnswer(a *API, c *route.Call, media string) *recordAnswer {
	ctx, stop := context.WithCancelCause(c.Request.Context())
	return &recordAnswer{a: a, c: c, lines: media == ndjson, ctx: ctx, stop: stop}
}

// take gets the buffer.
func (o *recordAnswer) take() {
	if o.buf != nil {
		return
	}
	o.buf = gathered.Get().(*[]byte)
	o.b = (*o.buf)[:0]
	if !o.lines {
		o.b = append(o.b, `{"records":[`...)
	}
}

func (o *recordAnswer) release() {
	o.stop(nil)
	if o.buf != nil && cap(o.b) <= maxPooledAnswer {
		*o.buf = o.b
		gathered.Put(o.buf)
	}
}

// record adds one.
func (o *recordAnswer) record(meta *recordjson.Meta, r *record.Record, enc recordjson.Encodings) {
	o.take()
	switch {
	case o.lines:
		o.b = append(o.b, `{"record":`...)
	case o.some:
		o.b = append(o.b, ',')
	}
	o.some = true
	o.b = recordjson.AppendRecord(o.b, meta, r, enc)
	if o.lines {
		o.b = append(o.b, "}\n"...)
	}
	if len(o.b) >= flushBytes {
		o.flush()
	}
}

// flush writes what was gathered. When that fails the reading ends.
func (o *recordAnswer) flush() {
	if o.err != nil {
		o.b = o.b[:0]
		return
	}
	if !o.begun {
		o.begun = true
		h := o.c.Writer.Header()
		h["Content-Type"] = []string{o.media()}
		h["Cache-Control"] = route.NoStore
		o.c.Writer.WriteHeader(http.StatusOK)
	}
	o.c.Stall()
	if _, err := o.c.Writer.Write(o.b); err != nil {
		o.err = err
		o.stop(err)
	}
	o.b = o.b[:0]
}

func (o *recordAnswer) media() string {
	if o.lines {
		return ndjson
	}
	return route.JSONOnly[0]
}

// end closes the answer of a read that ended so.
func (o *recordAnswer) end(info *broker.FetchInfo, err error) error {
	switch {
	case o.err != nil:
		return nil //nolint:nilerr // the client is gone
	case err != nil && o.some && o.lines:
		if o.b, err = o.appendProblem(err); err != nil {
			return err
		}
	case err != nil && o.begun:
		panic(http.ErrAbortHandler)
	case err != nil:
		return err
	case o.lines:
		o.take()
		o.b = append(append(o.b, `{"end":{"reason":"`...), o.reason(info)...)
		o.b = append(appendOffsets(append(o.b, `",`...), info), "}}\n"...)
	default:
		o.take()
		o.b = append(appendOffsets(append(o.b, "],"...), info), "}\n"...)
	}
	if o.begun {
		o.flush()
		o.c.Taken()
		return nil
	}
	o.c.Bytes(http.StatusOK, o.media(), o.b)
	return nil
}

func (o *recordAnswer) appendProblem(err error) ([]byte, error) {
	p, jerr := json.Marshal(problem.Of(err, o.c.Occurrence()))
	if jerr != nil {
		return o.b, jerr
	}
	return append(append(append(o.b, `{"problem":`...), p...), "}\n"...), nil
}

func (o *recordAnswer) reason(info *broker.FetchInfo) string {
	select {
	case <-o.a.broker.Draining():
		if info.End != broker.AtLimit {
			return "node-stopping"
		}
	default:
	}
	switch info.End {
	case broker.AtLimit:
		return "limit"
	case broker.AtStop:
		return "node-stopping"
	}
	return "latest"
}

func appendOffsets(b []byte, info *broker.FetchInfo) []byte {
	b = strconv.AppendInt(append(b, `"next_offset":`...), int64(info.NextOffset), 10)
	b = strconv.AppendInt(append(b, `,"high_watermark":`...), int64(info.HighWatermark), 10)
	b = strconv.AppendInt(append(b, `,"last_stable_offset":`...), int64(info.LastStable), 10)
	return strconv.AppendInt(append(b, `,"log_start_offset":`...), int64(info.LogStart), 10)
}
