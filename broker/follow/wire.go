package follow

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"tidewire/broker/partition"
	"tidewire/broker/replication"
	"tidewire/internal/model"
)

// version of the protocol.
const version = 1

// Key names a partition.
type Key struct {
	Topic     model.TopicID
	Partition model.PartitionID
}

// update is what a follower says of a partition.
type update struct {
	key   Key
	wants bool // an answer is owed
	goes  bool // the partition is followed here no more
	at    replication.Position
}

const (
	flagWants = 1
	flagGoes  = 2

	updateBytes = 16 + 4 + 1 + 4 + 8 + 4 + 8 + 8
)

// status of an answer.
type status uint8

const (
	statusRecords  status = iota // batches, maybe none
	statusDiverged               // the logs part at epoch, end
	statusRange                  // begin anew at the log start
	statusRefused                // not led here in that epoch, or not readable now
	statusMoved                  // a high watermark; no answer is used up
)

const flagCompacted = 1

// answer is what a leader says of a partition.
type answer struct {
	key    Key
	status status
	fetch  partition.Fetch
}

const (
	answerHead = 16 + 4 + 1 + 4 + 8 + 4 + 4 + 8 + 8 + 8 + 1 + 4
	// maxFrame bounds what is read at once: a batch of the largest size that a topic's
	// settings allow, and some.
	maxFrame = 1 << 31
)

var errForm = errors.New("a malformed frame")

func appendKey(b []byte, k Key) []byte {
	b = append(b, k.Topic[:]...)
	return binary.BigEndian.AppendUint32(b, uint32(k.Partition))
}

func (u *update) append(b []byte) []byte {
	var flags byte
	if u.wants {
		flags |= flagWants
	}
	if u.goes {
		flags |= flagGoes
	}
	b = append(appendKey(b, u.key), flags)
	b = binary.BigEndian.AppendUint32(b, uint32(u.at.Epoch))
	b = binary.BigEndian.AppendUint64(b, uint64(u.at.LogEnd))
	b = binary.BigEndian.AppendUint32(b, uint32(u.at.LastEpoch))
	b = binary.BigEndian.AppendUint64(b, uint64(u.at.StableEnd))
	return binary.BigEndian.AppendUint64(b, uint64(u.at.LogStart))
}

// appendHead writes all of an answer but the batches, which n bytes follow.
func (a *answer) appendHead(b []byte, n int) []byte {
	f := &a.fetch
	b = append(appendKey(b, a.key), byte(a.status))
	b = binary.BigEndian.AppendUint32(b, uint32(f.At.Epoch))
	b = binary.BigEndian.AppendUint64(b, uint64(f.At.LogEnd))
	b = binary.BigEndian.AppendUint32(b, uint32(f.At.LastEpoch))
	b = binary.BigEndian.AppendUint32(b, uint32(f.Answer.Epoch))
	b = binary.BigEndian.AppendUint64(b, uint64(f.Answer.End))
	b = binary.BigEndian.AppendUint64(b, uint64(f.Answer.LogStart))
	b = binary.BigEndian.AppendUint64(b, uint64(f.HighWatermark))
	var flags byte
	if f.Compacted {
		flags |= flagCompacted
	}
	b = append(b, flags)
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

// cursor reads numbers; short is set where there were too few bytes.
type cursor struct {
	b     []byte
	short bool
}

func (c *cursor) take(n int) []byte {
	if len(c.b) < n {
		c.short = true
		c.b = nil
		return make([]byte, min(n, 16))
	}
	out := c.b[:n:n]
	c.b = c.b[n:]
	return out
}

func (c *cursor) u8() byte    { return c.take(1)[0] }
func (c *cursor) u32() uint32 { return binary.BigEndian.Uint32(c.take(4)) }
func (c *cursor) i64() int64  { return int64(binary.BigEndian.Uint64(c.take(8))) }

func (c *cursor) key() (k Key) {
	copy(k.Topic[:], c.take(16))
	k.Partition = model.PartitionID(c.u32())
	return k
}

func (c *cursor) offset() model.Offset     { return model.Offset(c.i64()) }
func (c *cursor) epoch() model.LeaderEpoch { return model.LeaderEpoch(c.u32()) }

func (c *cursor) update() (u update, ok bool) {
	u.key = c.key()
	flags := c.u8()
	u.wants, u.goes = flags&flagWants != 0, flags&flagGoes != 0
	u.at = replication.Position{Epoch: c.epoch(), LogEnd: c.offset(), LastEpoch: c.epoch(), StableEnd: c.offset(), LogStart: c.offset()}
	return u, !c.short
}

func (c *cursor) answer() (a answer, ok bool) {
	a.key = c.key()
	a.status = status(c.u8())
	f := &a.fetch
	f.At.Epoch, f.At.LogEnd, f.At.LastEpoch = c.epoch(), c.offset(), c.epoch()
	f.Answer.Epoch, f.Answer.End, f.Answer.LogStart = c.epoch(), c.offset(), c.offset()
	f.HighWatermark = c.offset()
	f.Compacted = c.u8()&flagCompacted != 0
	switch a.status {
	case statusDiverged:
		f.Answer.Verdict = replication.Diverged
	case statusRange:
		f.Answer.Verdict = replication.OutOfRange
	}
	n := int(c.u32())
	if n > 0 {
		f.Batches = c.take(n)
	}
	return a, !c.short && a.status <= statusMoved
}

func appendHello(b []byte, m replication.Member) []byte {
	b = append(b, version, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(m.ID))
	return binary.BigEndian.AppendUint64(b, uint64(m.Epoch))
}

func parseHello(b []byte) (m replication.Member, err error) {
	c := cursor{b: b}
	v := c.u8()
	c.u8()
	m.ID, m.Epoch = model.BrokerID(c.u32()), c.i64()
	switch {
	case v != version:
		return m, fmt.Errorf("%w: version %d, not %d", errForm, v, version)
	case c.short || len(c.b) > 0 || m.Epoch <= 0:
		return m, errForm
	}
	return m, nil
}

// readFrame reads a frame into buf's memory, which grows no faster than bytes come.
func readFrame(r *bufio.Reader, buf []byte) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return buf, err
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n > maxFrame {
		return buf, errForm
	}
	const step = 4 << 20
	buf = buf[:0]
	for len(buf) < n {
		at, more := len(buf), min(n-len(buf), step)
		if cap(buf)-at < more {
			buf = append(buf, make([]byte, more)...)
		}
		buf = buf[:at+more]
		if _, err := io.ReadFull(r, buf[at:]); err != nil {
			return buf, io.ErrUnexpectedEOF
		}
	}
	return buf, nil
}

// frame puts the length before what begins at byte 4 of b.
func frame(b []byte) []byte {
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}
