package record

import (
	"encoding/binary"

	"tidewire/internal/model"
)

// Rewriter makes a batch anew from some of another's records, as compaction does: offsets,
// producer, leader epoch, codec and timestamps stay, and the records are copied as they
// are stored. It is reused and not safe for concurrent use.
type Rewriter struct {
	buf   []byte // header space, then records
	out   []byte // compressed form
	comp  compressor
	h     BatchHeader
	base  int64 // new base timestamp
	count int32
	maxTs int64
}

// Begin starts with the header of the batch whose records follow.
func (w *Rewriter) Begin(h *BatchHeader) {
	if cap(w.buf) < HeaderSize || cap(w.buf)+cap(w.out) > 2*keepBuffer {
		w.buf, w.out = make([]byte, HeaderSize, 64<<10), nil
	}
	w.buf = w.buf[:HeaderSize]
	w.h, w.base, w.count, w.maxTs = *h, h.BaseTimestamp, 0, -1
}

// SetDeleteHorizon makes the base timestamp a delete horizon (KIP-534), in milliseconds;
// the distances of the records' timestamps are written anew. It comes before Keep.
func (w *Rewriter) SetDeleteHorizon(ms int64) {
	w.base = ms
	w.h.Attributes |= AttrDeleteHorizon
}

// Count is the number of records kept.
func (w *Rewriter) Count() int { return int(w.count) }

// Keep appends the present record of an iterator over the batch.
func (w *Rewriter) Keep(it *Iterator) {
	if w.count == 0 || it.rec.Timestamp > w.maxTs {
		w.maxTs = it.rec.Timestamp
	}
	w.count++
	if w.base == w.h.BaseTimestamp {
		w.buf = append(w.buf, it.raw...)
		return
	}
	_, k := binary.Varint(it.raw)
	body := it.raw[k:]
	delta, n := binary.Varint(body[1:])
	delta += w.h.BaseTimestamp - w.base
	w.buf = binary.AppendVarint(w.buf, int64(len(body)-n+varintSize(delta)))
	w.buf = append(w.buf, body[0])
	w.buf = binary.AppendVarint(w.buf, delta)
	w.buf = append(w.buf, body[1+n:]...)
}

// Finish completes the batch. Without a record it is EmptyBatch. The bytes are valid until
// the next Begin. Errors: RecordTooLarge beyond MaxBatchSize.
func (w *Rewriter) Finish() ([]byte, error) {
	if w.count == 0 {
		w.buf = EmptyBatch(w.buf[:0], &w.h)
		return w.buf, nil
	}
	out, codec := w.buf, w.h.Attributes.Codec()
	if codec != None {
		var err error
		if w.out, err = w.comp.pack(codec, w.out, w.buf); err != nil {
			return nil, err
		}
		out = w.out
	}
	if len(out) > MaxBatchSize {
		return nil, model.Errorf(model.RecordTooLarge, "the batch at offset %d has %d bytes", w.h.BaseOffset, len(out))
	}
	h := w.h
	h.BaseTimestamp, h.Count = w.base, w.count
	if !h.Attributes.Has(AttrLogAppendTime) {
		h.MaxTimestamp = w.maxTs
	}
	h.Put(out)
	return out, nil
}

// EmptyBatch appends what stays of a batch without records: a header with the offsets, the
// producer, its sequence and the largest timestamp, so that they are not lost.
func EmptyBatch(dst []byte, h *BatchHeader) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	e := *h
	e.Attributes &^= codecMask | AttrDeleteHorizon
	e.BaseTimestamp, e.Count = -1, 0
	e.Put(dst[at:])
	return dst
}

// Put writes the header of a whole batch into it, its length and CRC included.
func (h *BatchHeader) Put(out []byte) {
	be := binary.BigEndian
	be.PutUint64(out[posBaseOffset:], uint64(h.BaseOffset))
	be.PutUint32(out[posLength:], uint32(len(out)-LengthSize))
	be.PutUint32(out[posLeaderEpoch:], uint32(h.LeaderEpoch))
	out[posMagic] = magic
	be.PutUint16(out[posAttributes:], uint16(h.Attributes))
	be.PutUint32(out[posLastOffsetDelta:], uint32(h.LastOffsetDelta))
	be.PutUint64(out[posBaseTimestamp:], uint64(h.BaseTimestamp))
	be.PutUint64(out[posMaxTimestamp:], uint64(h.MaxTimestamp))
	be.PutUint64(out[posProducerID:], uint64(h.ProducerID))
	be.PutUint16(out[posProducerEpoch:], uint16(h.ProducerEpoch))
	be.PutUint32(out[posBaseSequence:], uint32(h.BaseSequence))
	be.PutUint32(out[posCount:], uint32(h.Count))
	setCRC(out)
}
