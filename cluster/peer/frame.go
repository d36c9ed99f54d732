package peer

import (
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
	// MaxPayload bounds a request and an answer, in bytes: a metadata command and some.
	MaxPayload = 8 << 20
	maxFrame   = MaxPayload + requestHeadBytes
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

func (f frame) encode() []byte {
	n := headBytes + len(f.payload)
	if f.kind == kindRequest {
		n += requestHeadBytes - headBytes
	}
	b := appendUint32(make([]byte, 0, 4+n), uint32(n))
	b = append(b, f.kind)
	b = binary.BigEndian.AppendUint64(b, f.id)
	if f.kind == kindRequest {
		b = binary.BigEndian.AppendUint16(b, uint16(f.method))
		b = appendUint32(b, uint32(min(f.wait.Milliseconds(), 1<<31)))
	}
	return append(b, f.payload...)
}

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
	Code    model.Code    `json:"code"`
	Outcome model.Outcome `json:"outcome"`
	Detail  string        `json:"detail"`
}

func encodeFault(err error) []byte {
	e := model.AsError(err)
	b, jsonErr := json.Marshal(fault{Code: e.Code, Outcome: e.EffectiveOutcome(), Detail: e.Detail})
	if jsonErr != nil {
		return nil
	}
	return b
}

func decodeFault(b []byte) error {
	var f fault
	if err := json.Unmarshal(b, &f); err != nil {
		return model.Errorf(model.Internal, "the other node failed in a way that does not read").WithCause(err)
	}
	return model.Errorf(f.Code, "%s", f.Detail).WithOutcome(f.Outcome)
}
