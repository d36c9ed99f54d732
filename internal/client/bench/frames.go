package bench

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Opcodes of RFC 6455 §5.2.
const (
	opContinue = 0x0
	opText     = 0x1
	opClose    = 0x8
	opPing     = 0x9
	opPong     = 0xa
)

// startBytes is how much of a message is kept: the first record of a frame "records" is
// in it, with a topic's name of any length, and so is what went wrong.
const startBytes = 512

var (
	errFrame     = errors.New("the server's bytes are no WebSocket frames")
	recordsStart = []byte(`{"op":"records",`)
	assigned     = []byte(`{"op":"assigned",`)
	subscribed   = []byte(`{"op":"subscribed",`)
	expiring     = []byte(`{"op":"auth-expiring",`)
	timestamp    = []byte(`"timestamp":`)
)

// frames takes apart what a server sends over a WebSocket, with hardly more work than
// copying it: of a frame "records" it counts the braces that open, of which each record of
// a measurement has one (a value has none, and there are no headers), and it looks at the
// first record's timestamp alone. It keeps nothing but the beginning of a message.
type frames struct {
	head    [14]byte // of the frame that is coming in
	have    int      // bytes of it so far
	left    int64    // bytes of the frame's payload to come
	inside  bool     // the head is whole
	op      byte     // of the frame
	message byte     // of the message that its frames belong to

	start   []byte // of the message, or the payload of a control frame
	control []byte
	braces  int64 // of the message

	records, bytes, count int64 // that came: records, bytes of their frames, such frames
	lag                   histogram
}

// event is what came besides records: a message that is none, a ping or a close.
type event struct {
	op      byte
	payload []byte // its beginning
}

// take reads bytes as they come in at the time now; each event is handed to on.
func (f *frames) take(b []byte, now time.Time, on func(event) error) error {
	for len(b) > 0 {
		if !f.inside {
			n, err := f.takeHead(b)
			if err != nil {
				return err
			}
			b = b[n:]
			if !f.inside {
				return nil
			}
		}
		part := b[:min(int64(len(b)), f.left)]
		b = b[len(part):]
		f.takePayload(part)
		if f.left > 0 {
			return nil
		}
		if err := f.ended(now, on); err != nil {
			return err
		}
	}
	return nil
}

// takeHead reads bytes of a frame's head and tells how many it took.
func (f *frames) takeHead(b []byte) (int, error) {
	taken := 0
	for need := f.headLength(); f.have < need; need = f.headLength() {
		if taken == len(b) {
			return taken, nil
		}
		n := copy(f.head[f.have:need], b[taken:])
		f.have, taken = f.have+n, taken+n
	}
	h := f.head[:f.have]
	if h[0]&0x70 != 0 || h[1]&0x80 != 0 { // an extension, or a mask, which only clients use
		return taken, errFrame
	}
	switch n := h[1] & 0x7f; n {
	case 126:
		f.left = int64(binary.BigEndian.Uint16(h[2:]))
	case 127:
		f.left = int64(binary.BigEndian.Uint64(h[2:]))
	default:
		f.left = int64(n)
	}
	if f.left < 0 || f.left > maxChunk {
		return taken, errFrame
	}
	f.inside, f.op = true, h[0]&0x0f
	switch {
	case f.op >= opClose:
		f.control = f.control[:0]
	case f.op != opContinue:
		f.message, f.start, f.braces = f.op, f.start[:0], 0
	}
	return taken, nil
}

// headLength is how long the head is, as far as its bytes tell.
func (f *frames) headLength() int {
	if f.have < 2 {
		return 2
	}
	switch f.head[1] & 0x7f {
	case 126:
		return 4
	case 127:
		return 10
	}
	return 2
}

func (f *frames) takePayload(b []byte) {
	f.left -= int64(len(b))
	if f.op >= opClose {
		f.control = append(f.control, b...)
		return
	}
	f.bytes += int64(len(b))
	if room := startBytes - len(f.start); room > 0 {
		f.start = append(f.start, b[:min(room, len(b))]...)
	}
	f.braces += int64(bytes.Count(b, []byte{'{'}))
}

// ended counts a frame that is whole.
func (f *frames) ended(now time.Time, on func(event) error) error {
	final := f.head[0]&0x80 != 0
	f.inside, f.have = false, 0
	switch {
	case f.op >= opClose:
		return on(event{f.op, f.control})
	case !final:
		return nil
	case !bytes.HasPrefix(f.start, recordsStart):
		return on(event{f.message, f.start})
	}
	f.records += f.braces - 1
	f.count++
	if at := firstTimestamp(f.start); at > 0 {
		f.lag.add(now.Sub(time.UnixMilli(at)))
	}
	return nil
}

// firstTimestamp is that of the first record, 0 if it cannot be read.
func firstTimestamp(start []byte) int64 {
	i := bytes.Index(start, timestamp)
	if i < 0 {
		return 0
	}
	digits := start[i+len(timestamp):]
	if n := bytes.IndexByte(digits, ','); n > 0 {
		if at, err := strconv.ParseInt(string(digits[:n]), 10, 64); err == nil {
			return at
		}
	}
	return 0
}

// closing is the error of a socket that the server closes.
func closing(payload []byte) error {
	if len(payload) < 2 {
		return errors.New("the server closed the socket")
	}
	return fmt.Errorf("the server closed the socket: %d %s", binary.BigEndian.Uint16(payload), payload[2:])
}

// pong answers a ping. The mask is 0: it protects from a page's script that makes up
// requests, and here is none.
func pong(payload []byte) []byte {
	return append([]byte{0x80 | opPong, 0x80 | byte(len(payload)), 0, 0, 0, 0}, payload...)
}
