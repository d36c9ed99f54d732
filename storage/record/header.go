package record

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"tidewire/internal/model"
)

// Byte positions in a RecordBatch v2 (big endian throughout). The CRC covers
// everything from the attributes on, so base offset and leader epoch can be set
// without touching it.
const (
	posBaseOffset      = 0  // int64
	posLength          = 8  // int32: bytes after this field
	posLeaderEpoch     = 12 // int32
	posMagic           = 16 // int8: 2
	posCRC             = 17 // uint32: CRC-32C
	posAttributes      = 21 // int16
	posLastOffsetDelta = 23 // int32
	posBaseTimestamp   = 27 // int64
	posMaxTimestamp    = 35 // int64
	posProducerID      = 43 // int64
	posProducerEpoch   = 51 // int16
	posBaseSequence    = 53 // int32
	posCount           = 57 // int32

	// HeaderSize is the size of a batch's header.
	HeaderSize = 61
	// LengthSize is the size of the two fields before and of the length field.
	LengthSize = 12

	magic         = 2
	minRecordSize = 7 // a record without key, value and headers
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrShort says that the bytes end before the batch does.
var ErrShort = errors.New("record batch is cut short")

func corrupt(format string, args ...any) error {
	return model.Errorf(model.CorruptBatch, format, args...)
}

// Attributes are a batch's attribute bits.
type Attributes int16

// The bits of Attributes above the codec's three.
const (
	AttrLogAppendTime Attributes = 1 << 3 // timestamps are the broker's
	AttrTransactional Attributes = 1 << 4
	AttrControl       Attributes = 1 << 5 // holds a transaction marker
	AttrDeleteHorizon Attributes = 1 << 6 // base timestamp is a delete horizon (KIP-534)

	codecMask Attributes = 7
	knownBits            = codecMask | AttrLogAppendTime | AttrTransactional | AttrControl | AttrDeleteHorizon
)

// Codec is the compression of the batch's records.
func (a Attributes) Codec() Codec { return Codec(a & codecMask) }

// Has reports whether all bits of b are set.
func (a Attributes) Has(b Attributes) bool { return a&b == b }

// BatchHeader is the decoded header of a batch.
type BatchHeader struct {
	BaseOffset      model.Offset
	Length          int32 // bytes after the length field
	LeaderEpoch     model.LeaderEpoch
	CRC             uint32
	Attributes      Attributes
	LastOffsetDelta int32
	BaseTimestamp   int64 // milliseconds; the delete horizon when that bit is set
	MaxTimestamp    int64
	ProducerID      model.ProducerID
	ProducerEpoch   model.ProducerEpoch
	BaseSequence    int32
	Count           int32 // records; fewer than LastOffsetDelta+1 after compaction
}

// Size is the number of bytes of the whole batch.
func (h *BatchHeader) Size() int { return LengthSize + int(h.Length) }

// LastOffset is the offset of the last record (or, after compaction, of the last
// one that there was).
func (h *BatchHeader) LastOffset() model.Offset {
	return h.BaseOffset + model.Offset(h.LastOffsetDelta)
}

// NextOffset is the offset after the batch.
func (h *BatchHeader) NextOffset() model.Offset { return h.LastOffset() + 1 }

// ParseHeader decodes the header at the start of b, which may end before the
// records do. It checks magic, lengths and signs, not the CRC. Errors: ErrShort
// when b has not HeaderSize bytes, else CorruptBatch.
func ParseHeader(b []byte) (BatchHeader, error) {
	var h BatchHeader
	if len(b) < HeaderSize {
		return h, ErrShort
	}
	h = BatchHeader{
		BaseOffset:      model.Offset(binary.BigEndian.Uint64(b[posBaseOffset:])),
		Length:          int32(binary.BigEndian.Uint32(b[posLength:])),
		LeaderEpoch:     model.LeaderEpoch(binary.BigEndian.Uint32(b[posLeaderEpoch:])),
		CRC:             binary.BigEndian.Uint32(b[posCRC:]),
		Attributes:      Attributes(binary.BigEndian.Uint16(b[posAttributes:])),
		LastOffsetDelta: int32(binary.BigEndian.Uint32(b[posLastOffsetDelta:])),
		BaseTimestamp:   int64(binary.BigEndian.Uint64(b[posBaseTimestamp:])),
		MaxTimestamp:    int64(binary.BigEndian.Uint64(b[posMaxTimestamp:])),
		ProducerID:      model.ProducerID(binary.BigEndian.Uint64(b[posProducerID:])),
		ProducerEpoch:   model.ProducerEpoch(binary.BigEndian.Uint16(b[posProducerEpoch:])),
		BaseSequence:    int32(binary.BigEndian.Uint32(b[posBaseSequence:])),
		Count:           int32(binary.BigEndian.Uint32(b[posCount:])),
	}
	switch {
	case b[posMagic] != magic:
		return h, corrupt("the batch has magic %d, only 2 is supported", int8(b[posMagic]))
	case h.Length < HeaderSize-LengthSize:
		return h, corrupt("the batch length %d is too small", h.Length)
	case h.LastOffsetDelta < 0 || h.Count < 0:
		return h, corrupt("the batch has a negative count")
	case int64(h.Count) > int64(h.LastOffsetDelta)+1:
		return h, corrupt("the batch has %d records in %d offsets", h.Count, int64(h.LastOffsetDelta)+1)
	case h.BaseOffset < 0 || h.BaseOffset > 1<<62:
		return h, corrupt("the batch has base offset %d", h.BaseOffset)
	}
	return h, nil
}

// Batch is a view of one whole batch; it aliases the bytes it was parsed from.
type Batch struct {
	Header BatchHeader
	Bytes  []byte // exactly Header.Size() bytes
}

// ParseBatch takes the batch at the start of b and returns what follows it.
// Errors: ErrShort when b ends too early, else CorruptBatch. The CRC is not
// checked.
func ParseBatch(b []byte) (Batch, []byte, error) {
	h, err := ParseHeader(b)
	if err != nil {
		return Batch{}, b, err
	}
	n := h.Size()
	if len(b) < n {
		return Batch{}, b, ErrShort
	}
	return Batch{Header: h, Bytes: b[:n:n]}, b[n:], nil
}

// VerifyCRC compares the stored checksum with the bytes.
func (b *Batch) VerifyCRC() error {
	if got := Checksum(b.Bytes); got != b.Header.CRC {
		return corrupt("the batch at offset %d has checksum %08x instead of %08x", b.Header.BaseOffset, got, b.Header.CRC)
	}
	return nil
}

// Checksum is the CRC-32C that a whole batch should carry.
func Checksum(batch []byte) uint32 { return crc32.Checksum(batch[posAttributes:], castagnoli) }

// Content is what of a batch's bytes the log does not set: those that the checksum covers.
func Content(batch []byte) []byte { return batch[posAttributes:] }

// SetBaseOffset writes the base offset into a batch; the CRC does not cover it.
func SetBaseOffset(batch []byte, o model.Offset) {
	binary.BigEndian.PutUint64(batch[posBaseOffset:], uint64(o))
}

// SetLeaderEpoch writes the leader epoch into a batch; the CRC does not cover it.
func SetLeaderEpoch(batch []byte, e model.LeaderEpoch) {
	binary.BigEndian.PutUint32(batch[posLeaderEpoch:], uint32(e))
}

// SetLogAppendTime gives every record of the batch the broker's time: it sets the
// timestamp bit, the largest timestamp and the CRC.
func SetLogAppendTime(batch []byte, ms int64) {
	a := binary.BigEndian.Uint16(batch[posAttributes:]) | uint16(AttrLogAppendTime)
	binary.BigEndian.PutUint16(batch[posAttributes:], a)
	SetMaxTimestamp(batch, ms)
}

// SetMaxTimestamp writes the largest timestamp and the CRC, for batches of
// clients that leave it wrong.
func SetMaxTimestamp(batch []byte, ms int64) {
	binary.BigEndian.PutUint64(batch[posMaxTimestamp:], uint64(ms))
	setCRC(batch)
}

func setCRC(batch []byte) { binary.BigEndian.PutUint32(batch[posCRC:], Checksum(batch)) }
