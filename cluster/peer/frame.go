package peer

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"tidewire/internal/model"
)

// A frame on a connection of requests, all numbers big-endian:
//
//	uint32  length of what follows
//	uint8   kind: 1 request, 2 answer, 3 refusal, 4 cancellation
//	uint64  id, of the side that asks
//	request only:
//	uint16  method
//	uint32  milliseconds that the asker waits
//	rest    payload; of a refusal a fault as JSON; of a cancellation nothing
const (
	kindRequest byte = iota + 1
	kindAnswer
	kindRefusal
	kindCancel
)

const (
	headBytes        = 1 + 8
	requestHeadBytes = headBytes + 2 + 4
	// MaxPayload bounds a request and an answer of Call, in bytes: a metadata command and some.
	MaxPayload = 8 << 20
	// MaxData bounds those of CallData: the records that one request of a client may have for
	// one partition, and some.
	MaxData = 80 << 20
)

// errFrame ends a connection whose other side does not keep to the form.
var errFrame = errors.New("malformed frame")

func appendUint32(b []byte, v uint32) []byte { return binary.BigEndian.AppendUint32(b, v) }

// readFrame reads a frame of at most limit bytes. It allocates no more than has come.
func readFrame(r io.Reader, limit uint32) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > limit {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", errFrame, n, limit)
	}
	const step = 64 << 10
	body := make([]byte, 0, min(n, step))
	for uint32(len(body)) < n {
		at := len(body)
		body = append(body, make([]byte, min(int(n)-at, step))...)
		if _, err := io.ReadFull(r, body[at:]); err != nil {
			return nil, io.ErrUnexpectedEOF
		}
	}
	return body, nil
}

type frame struct {
	kind    byte
	id      uint64
	method  Method
	wait    time.Duration
	payload []byte
}

// head is all of a frame but its payload.
func (f frame) head() []byte {
	n := headBytes + len(f.payload)
	if f.kind == kindRequest {
		n += requestHeadBytes - headBytes
	}
	b := appendUint32(make([]byte, 0, 4+requestHeadBytes), uint32(n))
	b = append(b, f.kind)
	b = binary.BigEndian.AppendUint64(b, f.id)
	if f.kind == kindRequest {
		b = binary.BigEndian.AppendUint16(b, uint16(f.method))
		b = appendUint32(b, uint32(min(f.wait.Milliseconds(), 1<<31)))
	}
	return b
}

func (f frame) encode() []byte { return append(f.head(), f.payload...) }

func decodeFrame(b []byte) (frame, error) {
	if len(b) < headBytes || b[0] < kindRequest || b[0] > kindCancel {
		return frame{}, errFrame
	}
	f := frame{kind: b[0], id: binary.BigEndian.Uint64(b[1:]), payload: b[headBytes:]}
	if f.kind == kindRequest {
		if len(b) < requestHeadBytes {
			return frame{}, errFrame
		}
		f.method = Method(binary.BigEndian.Uint16(b[headBytes:]))
		f.wait = time.Duration(binary.BigEndian.Uint32(b[headBytes+2:])) * time.Millisecond
		f.payload = b[requestHeadBytes:]
	}
	return f, nil
}

// fault is an error of the error table on its way.
type fault struct {
	Code       model.Code         `json:"code"`
	Outcome    model.Outcome      `json:"outcome"`
	Detail     string             `json:"detail"`
	Fields     []model.FieldError `json:"fields,omitempty"`
	Extra      map[string]any     `json:"extra,omitempty"`
	RetryAfter time.Duration      `json:"retry_after,omitempty"` // nanoseconds
	Limit      *model.RateLimit   `json:"limit,omitempty"`
}

// EncodeFault is an error as it goes from node to node: what clients are told of it, and not
// its cause.
func EncodeFault(err error) []byte {
	e := model.AsError(err)
	f := fault{
		Code: e.Code, Outcome: e.EffectiveOutcome(), Detail: e.Detail, Fields: e.Fields, Extra: e.Extra, RetryAfter: e.RetryAfter, Limit: e.Limit,
	}
	b, jsonErr := json.Marshal(f)
	if jsonErr != nil { // something in Extra that JSON cannot carry
		f.Extra = nil
		if b, jsonErr = json.Marshal(f); jsonErr != nil {
			return nil
		}
	}
	return b
}

// DecodeFault is the error that EncodeFault has written. Numbers in Extra are json.Number.
func DecodeFault(b []byte) error {
	var f fault
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&f); err != nil {
		return model.Errorf(model.Internal, "the other node failed in a way that does not read").WithCause(err)
	}
	e := model.Errorf(f.Code, "%s", f.Detail).WithOutcome(f.Outcome)
	e.Fields, e.Extra, e.RetryAfter, e.Limit = f.Fields, f.Extra, f.RetryAfter, f.Limit
	return e
}
