// Package recordanswer gives records to a client while they are read, as one document: for
// every read over HTTP that has one answer.
//
// A short answer goes as a whole with its length. What fails before anything was written is a
// usual problem; later it is the last line of NDJSON, and cuts a JSON document off, so that
// nobody takes it for whole. While a read waits its answer has no buffer: thousands may.
package recordanswer

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"

	"tidewire/api/problem"
	"tidewire/api/recordjson"
	"tidewire/api/route"
	"tidewire/storage/record"
)

// FlushBytes is how much of an answer is gathered before it is written.
const FlushBytes = 64 << 10

// JSONStart is what a JSON document of records begins with.
const JSONStart = `{"records":[`

// maxPooled bounds what the pool keeps.
const maxPooled = 1 << 20

// buffers are those of answers and of events.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, FlushBytes+16<<10); return &b }}

// Buffer is a buffer of the pool, for what has to be whole before it is written. It belongs to
// one goroutine.
type Buffer struct {
	B   []byte
	buf *[]byte
}

// Take gets the buffer, with start in it, unless it is there. Free must follow.
func (b *Buffer) Take(start string) {
	if b.buf == nil {
		b.buf = buffers.Get().(*[]byte)
		b.B = append((*b.buf)[:0], start...)
	}
}

// Free gives the buffer back.
func (b *Buffer) Free() {
	if b.buf != nil && cap(b.B) <= maxPooled {
		*b.buf = b.B
		buffers.Put(b.buf)
	}
	b.buf, b.B = nil, nil
}

// Answer is one answer under way. It belongs to the goroutine of its request.
type Answer struct {
	c     *route.Call
	media []string // of the answer: a list of one, which all answers share
	lines bool     // NDJSON
	ctx   readContext

	out   Buffer
	some  bool // a record was given
	begun bool // the head was sent
}

// New begins an answer of a media type, as a value of http.Header that all answers share. With
// lines it is NDJSON: each record is a line {"record": …}. Else it is a JSON document that
// begins with JSONStart. Release must be called.
func New(c *route.Call, media []string, lines bool) *Answer {
	return &Answer{c: c, media: media, lines: lines, ctx: readContext{Context: c.Request.Context()}}
}

// Context is the request's, which ends too when the client cannot be written to.
func (a *Answer) Context() context.Context { return &a.ctx }

// readContext is a request's context that also ends when writing has failed. Done does not tell
// that: who writes is who reads, and looks at Err between two records. (A context of package
// context would cost each read that waits a kilobyte.)
type readContext struct {
	context.Context
	failed error // of writing
}

// Err is context.Canceled after a failure.
func (r *readContext) Err() error {
	if r.failed != nil {
		return context.Canceled
	}
	return r.Context.Err()
}

// Value knows nothing after a failure, so that the cause is not asked of the request's context,
// which has not ended.
func (r *readContext) Value(key any) any {
	if r.failed != nil {
		return nil
	}
	return r.Context.Value(key)
}

func (a *Answer) take() {
	if a.lines {
		a.out.Take("")
		return
	}
	a.out.Take(JSONStart)
}

// Release gives the buffer back.
func (a *Answer) Release() { a.out.Free() }

// Record adds one.
func (a *Answer) Record(meta *recordjson.Meta, r *record.Record, enc recordjson.Encodings) {
	a.take()
	b := a.out.B
	switch {
	case a.lines:
		b = append(b, `{"record":`...)
	case a.some:
		b = append(b, ',')
	}
	a.some = true
	if b = recordjson.AppendRecord(b, meta, r, enc); a.lines {
		b = append(b, "}\n"...)
	}
	if a.out.B = b; len(b) >= FlushBytes {
		a.flush()
	}
}

// flush writes what was gathered. When that fails the reading ends.
func (a *Answer) flush() {
	b := a.out.B
	a.out.B = b[:0]
	if a.ctx.failed != nil {
		return
	}
	if !a.begun {
		a.begun = true
		h := a.c.Writer.Header()
		h["Content-Type"] = a.media
		h["Cache-Control"] = route.NoStore
		a.c.Writer.WriteHeader(http.StatusOK)
	}
	a.c.Stall()
	_, a.ctx.failed = a.c.Writer.Write(b)
}

// End closes the answer of a read that ended so: rest appends what follows the records.
func (a *Answer) End(err error, rest func(b []byte) []byte) error {
	switch {
	case a.ctx.failed != nil:
		return nil //nolint:nilerr // the client is gone
	case err != nil && a.some && a.lines:
		p, jerr := json.Marshal(problem.Of(err, a.c.Occurrence()))
		if jerr != nil {
			return jerr
		}
		a.out.B = append(append(append(a.out.B, `{"problem":`...), p...), "}\n"...)
	case err != nil && a.begun:
		panic(http.ErrAbortHandler)
	case err != nil:
		return err
	default:
		a.take()
		a.out.B = rest(a.out.B)
	}
	if a.begun {
		a.flush()
		a.c.Taken()
		return nil
	}
	a.c.Bytes(http.StatusOK, a.media[0], a.out.B)
	return nil
}
