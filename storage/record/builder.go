package record

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"tidewire/internal/model"
)

// MaxBatchSize is the largest batch that a Builder finishes, in bytes.
const MaxBatchSize = 1 << 30

// Builder makes batches. It is reused (Reset) and may be pooled by its caller; it
// is not safe for concurrent use. Add allocates nothing once the buffer has grown.
type Builder struct {
	buf     []byte // header space, then records
	out     []byte // compressed form
	comp    compressor
	count   int32
	baseTs  int64
	maxTs   int64
	attrs   Attributes
	pid     model.ProducerID
	pepoch  model.ProducerEpoch
	baseSeq int32
}

// NewBuilder returns an empty builder with room for size bytes.
func NewBuilder(size int) *Builder {
	b := &Builder{buf: make([]byte, HeaderSize, max(size, HeaderSize))}
	b.Reset()
	return b
}

// Reset empties the builder; what Finish returned is no longer valid.
func (b *Builder) Reset() {
	if cap(b.buf) < HeaderSize {
		b.buf = make([]byte, HeaderSize, 1024)
	}
	b.buf = b.buf[:HeaderSize]
	b.count, b.baseTs, b.maxTs, b.attrs = 0, 0, 0, 0
	b.pid, b.pepoch, b.baseSeq = model.NoProducer, -1, -1
}

// SetAttributes sets transactional, control or delete-horizon bits; others are
// ignored, since Finish knows the codec and the log the kind of timestamp.
func (b *Builder) SetAttributes(a Attributes) {
	b.attrs = a & (AttrTransactional | AttrControl | AttrDeleteHorizon)
}

// SetProducer names the idempotent producer and the sequence of the first record.
func (b *Builder) SetProducer(id model.ProducerID, epoch model.ProducerEpoch, baseSeq int32) {
	b.pid, b.pepoch, b.baseSeq = id, epoch, baseSeq
}

// Count is the number of records added.
func (b *Builder) Count() int { return int(b.count) }

// Size is the size of the batch so far, uncompressed, with its header.
func (b *Builder) Size() int { return len(b.buf) }

// Cap is the size of the buffer, for pools that drop large ones.
func (b *Builder) Cap() int { return cap(b.buf) + cap(b.out) }

// MaxTimestamp is the largest timestamp added.
func (b *Builder) MaxTimestamp() int64 { return b.maxTs }

// SizeWith is what Size would be after Add with these arguments.
func (b *Builder) SizeWith(ts int64, key, value []byte, headers []Header) int {
	delta := ts - b.baseTs
	if b.count == 0 {
		delta = 0
	}
	return len(b.buf) + RecordSize(b.count, delta, key, value, headers)
}

// Add appends one record. A nil key or value is null. The arguments are copied.
func (b *Builder) Add(ts int64, key, value []byte, headers []Header) {
	if b.buf == nil {
		b.Reset()
	}
	if b.count == 0 {
		b.baseTs, b.maxTs = ts, ts
	} else if ts > b.maxTs {
		b.maxTs = ts
	}
	delta := ts - b.baseTs
	body := bodySize(b.count, delta, key, value, headers)
	at := len(b.buf)
	b.buf = slices.Grow(b.buf, body+binary.MaxVarintLen64)
	p := b.buf[at : at+body+binary.MaxVarintLen64]
	n := putVarint(p, int64(body))
	p[n] = 0
	n++
	n += putVarint(p[n:], delta)
	n += putVarint(p[n:], int64(b.count))
	n += putBytes(p[n:], key)
	n += putBytes(p[n:], value)
	n += putVarint(p[n:], int64(len(headers)))
	for i := range headers {
		n += putVarint(p[n:], int64(len(headers[i].Name)))
		n += copy(p[n:], headers[i].Name)
		n += putBytes(p[n:], headers[i].Value)
	}
	b.buf = b.buf[:at+n]
	b.count++
}

// putVarint writes v in zigzag base-128, mostly one byte, and returns its length.
func putVarint(p []byte, v int64) int {
	u := uint64(v)<<1 ^ uint64(v>>63)
	if u < 0x80 {
		p[0] = byte(u)
		return 1
	}
	return binary.PutUvarint(p, u)
}

func putBytes(p, v []byte) int {
	if v == nil {
		p[0] = 1 // −1 in zigzag
		return 1
	}
	n := putVarint(p, int64(len(v)))
	return n + copy(p[n:], v)
}

// Finish completes the batch: base offset 0, leader epoch −1, CRC. The bytes are
// the builder's own and valid until the next Reset or Finish; the caller may write
// into them (the log does). Errors: InvalidArgument when there is no record,
// RecordTooLarge beyond MaxBatchSize.
func (b *Builder) Finish(codec Codec) ([]byte, error) {
	if b.count == 0 {
		return nil, model.Errorf(model.InvalidArgument, "a batch needs a record")
	}
	out := b.buf
	if codec != None {
		var err error
		if b.out, err = b.comp.pack(codec, b.out, b.buf); err != nil {
			return nil, err
		}
		out = b.out
	}
	if len(out) > MaxBatchSize {
		return nil, model.Errorf(model.RecordTooLarge, "the batch has %d bytes", len(out))
	}
	b.putHeader(out, b.attrs|Attributes(codec))
	return out, nil
}

func (b *Builder) putHeader(out []byte, attrs Attributes) {
	be := binary.BigEndian
	be.PutUint64(out[posBaseOffset:], 0)
	be.PutUint32(out[posLength:], uint32(len(out)-LengthSize))
	be.PutUint32(out[posLeaderEpoch:], math.MaxUint32)
	out[posMagic] = magic
	be.PutUint16(out[posAttributes:], uint16(attrs))
	be.PutUint32(out[posLastOffsetDelta:], uint32(b.count-1))
	be.PutUint64(out[posBaseTimestamp:], uint64(b.baseTs))
	be.PutUint64(out[posMaxTimestamp:], uint64(b.maxTs))
	be.PutUint64(out[posProducerID:], uint64(b.pid))
	be.PutUint16(out[posProducerEpoch:], uint16(b.pepoch))
	be.PutUint32(out[posBaseSequence:], uint32(b.baseSeq))
	be.PutUint32(out[posCount:], uint32(b.count))
	setCRC(out)
}

// RecordSize is the size of one record in a batch, given its distance from the
// batch's first record in offsets and milliseconds.
func RecordSize(offsetDelta int32, tsDelta int64, key, value []byte, headers []Header) int {
	n := bodySize(offsetDelta, tsDelta, key, value, headers)
	return varintSize(int64(n)) + n
}

// RecordSizeBound is an upper bound of RecordSize from the lengths alone: payload
// is the sum of the bytes of key, value, header names and header values.
func RecordSizeBound(payload, headers int) int {
	const perRecord = 5 + 1 + 10 + 5 + 5 + 5 + 5
	return perRecord + payload + headers*10
}

func bodySize(offsetDelta int32, tsDelta int64, key, value []byte, headers []Header) int {
	n := 1 + varintSize(tsDelta) + varintSize(int64(offsetDelta)) +
		bytesSize(key) + bytesSize(value) + varintSize(int64(len(headers)))
	for i := range headers {
		n += varintSize(int64(len(headers[i].Name))) + len(headers[i].Name) + bytesSize(headers[i].Value)
	}
	return n
}

func bytesSize(v []byte) int {
	if v == nil {
		return 1
	}
	return varintSize(int64(len(v))) + len(v)
}

// varintSize is the length of v in zigzag base-128.
func varintSize(v int64) int {
	u := uint64(v)<<1 ^ uint64(v>>63)
	return (bits.Len64(u|1) + 6) / 7
}
