package groups

import (
	"context"
	"net/http"
	"strconv"
	"sync"

	"tidewire/api/recordjson"
	"tidewire/api/route"
	"tidewire/broker/coordinator"
	"tidewire/broker/group"
	"tidewire/storage/record"
)

// flushBytes is how much of an answer is gathered before it is written.
const flushBytes = 64 << 10

// gathered are the buffers of answers and events.
var gathered = sync.Pool{New: func() any { b := make([]byte, 0, flushBytes+16<<10); return &b }}

// maxPooled bounds what the pool keeps.
const maxPooled = 1 << 20

const recordsStart = `{"records":[`

// answer gives a member's records to the client while they are read, as one JSON document. A
// short one goes as a whole with its length. What fails before anything was written is a
// usual problem; later it cuts the document off, so that nobody takes it for whole.
type answer struct {
	c    *route.Call
	ctx  context.Context // ends when the client is gone
	stop context.CancelCauseFunc

	buf   *[]byte // taken once there is something to say: thousands may wait
	b     []byte
	some  bool // a record was given
	begun bool // the head was sent
	err   error
}

func newAnswer(c *route.Call) *answer {
	ctx, stop := context.WithCancelCause(c.Request.Context())
	return &answer{c: c, ctx: ctx, stop: stop}
}

func (o *answer) take() {
	if o.buf == nil {
		o.buf = gathered.Get().(*[]byte)
		o.b = append((*o.buf)[:0], recordsStart...)
	}
}

func (o *answer) release() {
	o.stop(nil)
	if o.buf != nil && cap(o.b) <= maxPooled {
		*o.buf = o.b
		gathered.Put(o.buf)
	}
}

// record adds one.
func (o *answer) record(meta *recordjson.Meta, r *record.Record, enc recordjson.Encodings) {
	o.take()
	if o.some {
		o.b = append(o.b, ',')
	}
	o.some = true
	o.b = recordjson.AppendRecord(o.b, meta, r, enc)
	if len(o.b) >= flushBytes {
		o.flush()
	}
}

// flush writes what was gathered. When that fails the reading ends.
func (o *answer) flush() {
	if o.err != nil {
		o.b = o.b[:0]
		return
	}
	if !o.begun {
		o.begun = true
		h := o.c.Writer.Header()
		h["Content-Type"] = route.JSONOnly
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

// end closes the answer of a poll that ended so.
func (o *answer) end(got *coordinator.PollResult, err error) error {
	switch {
	case o.err != nil:
		return nil //nolint:nilerr // the client is gone
	case err != nil && o.begun:
		panic(http.ErrAbortHandler)
	case err != nil:
		return err
	}
	o.take()
	o.b = append(appendRest(o.b, got), '\n')
	if o.begun {
		o.flush()
		o.c.Taken()
		return nil
	}
	o.c.Bytes(http.StatusOK, route.JSONOnly[0], o.b)
	return nil
}

// appendRest closes the list of records and the object that it is in.
func appendRest(b []byte, got *coordinator.PollResult) []byte {
	a := got.Assignment
	b = strconv.AppendInt(append(b, `],"assignment":{"epoch":`...), int64(a.Epoch), 10)
	b = appendHeld(append(b, `,"partitions":`...), a.Held)
	b = appendHeld(append(b, `,"revoking":`...), a.Revoking)
	b = strconv.AppendBool(append(b, `,"pending":`...), a.Pending)
	b = append(append(append(b, `},"cursor":"`...), got.Cursor...), `","positions":[`...)
	some := false
	for i := range got.Positions {
		p := &got.Positions[i]
		if p.Next == group.NoOffset { // it was given while the records were read: the next answer tells
			continue
		}
		if some {
			b = append(b, ',')
		}
		some = true
		b = appendPartition(b, &p.Held)
		b = strconv.AppendInt(append(b, `,"next_offset":`...), int64(p.Next), 10)
		b = append(b, '}')
	}
	return append(b, "]}"...)
}

// appendHeld appends [{"topic", "partition"}].
func appendHeld(b []byte, list []group.Held) []byte {
	b = append(b, '[')
	for i := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendPartition(b, &list[i]), '}')
	}
	return append(b, ']')
}

// appendPartition appends an object that is left open.
func appendPartition(b []byte, h *group.Held) []byte {
	b = recordjson.AppendString(append(b, `{"topic":`...), h.Name)
	return strconv.AppendInt(append(b, `,"partition":`...), int64(h.Index), 10)
}
