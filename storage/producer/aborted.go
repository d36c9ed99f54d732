package producer

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"tidewire/internal/model"
)

// AbortedEntrySize is the size of an entry of the aborted transactions index: Kafka's, big
// endian: int16 version 0, int64 producer id, int64 first offset, int64 last offset (of the
// marker), int64 last stable offset.
const AbortedEntrySize = 34

// AbortedTransaction is an entry of the aborted transactions index (KIP-98): a reader of
// committed records drops what the producer wrote from FirstOffset up to the marker at
// LastOffset. LastStable is the last stable offset that the marker brought about.
type AbortedTransaction struct {
	ProducerID                          model.ProducerID
	FirstOffset, LastOffset, LastStable model.Offset
}

// Append adds the entry's bytes to b.
func (a AbortedTransaction) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, 0)
	for _, v := range [4]int64{int64(a.ProducerID), int64(a.FirstOffset), int64(a.LastOffset), int64(a.LastStable)} {
		b = binary.BigEndian.AppendUint64(b, uint64(v))
	}
	return b
}

// ErrAborted says that bytes are no index of aborted transactions.
var ErrAborted = errors.New("the aborted transactions index is damaged")

// DecodeAborted reads the entries of a segment's index; last offsets grow and are not
// below the segment's base.
func DecodeAborted(b []byte, base model.Offset) ([]AbortedTransaction, error) {
	if len(b)%AbortedEntrySize != 0 {
		return nil, ErrAborted
	}
	out := make([]AbortedTransaction, 0, len(b)/AbortedEntrySize)
	prev := base - 1
	for ; len(b) > 0; b = b[AbortedEntrySize:] {
		v := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[2+8*i:])) }
		a := AbortedTransaction{model.ProducerID(v(0)), model.Offset(v(1)), model.Offset(v(2)), model.Offset(v(3))}
		if binary.BigEndian.Uint16(b) != 0 || a.ProducerID < 0 || a.FirstOffset < 0 || a.FirstOffset >= a.LastOffset ||
			a.LastOffset <= prev || a.LastStable < 0 || a.LastStable > a.LastOffset+1 {
			return nil, ErrAborted
		}
		prev = a.LastOffset
		out = append(out, a)
	}
	return out, nil
}

// TxnSummary tells whether a segment's index of aborted transactions is what it was.
type TxnSummary struct {
	Base  model.Offset // of the segment
	Count int32        // of entries
	CRC   uint32       // CRC-32C of all entries
}

// Add makes it that of the index with one more entry.
func (t *TxnSummary) Add(a AbortedTransaction) {
	t.Count++
	t.CRC = crc32.Update(t.CRC, castagnoli, a.Append(nil))
}
