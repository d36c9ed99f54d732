package log

import (
	"encoding/binary"
	"hash/crc32"

	"tidewire/internal/model"
	"tidewire/storage/dedupe"
	"tidewire/storage/record"
)

// sparse is a batch as a compacted leader has it, encoded here by hand: offset deltas
// may be missing, also the first and the last.
type sparse struct {
	base      model.Offset
	epoch     model.LeaderEpoch
	lastDelta int32
	recs      []sparseRec
	attrs     record.Attributes
	pid       model.ProducerID
	pepoch    model.ProducerEpoch
	seq       int32
	plain     bool // no producer
	stamp     *dedupe.Stamp
}

type sparseRec struct {
	delta    int32
	ts       int64
	key, val []byte
}

func (s sparse) encode() []byte {
	be := binary.BigEndian
	out := append([]byte(nil), make([]byte, record.HeaderSize)...)
	var base, top int64
	for i, r := range s.recs {
		if i == 0 {
			base, top = r.ts, r.ts
		}
		top = max(top, r.ts)
		body := []byte{0}
		body = binary.AppendVarint(body, r.ts-base)
		body = binary.AppendVarint(body, int64(r.delta))
		for _, f := range [][]byte{r.key, r.val} {
			if f == nil {
				body = binary.AppendVarint(body, -1)
				continue
			}
			body = binary.AppendVarint(body, int64(len(f)))
			body = append(body, f...)
		}
		if s.stamp != nil && i == 0 {
			h := s.stamp.Header()
			body = binary.AppendVarint(body, 1)
			body = append(binary.AppendVarint(body, int64(len(h.Name))), h.Name...)
			body = append(binary.AppendVarint(body, int64(len(h.Value))), h.Value...)
		} else {
			body = binary.AppendVarint(body, 0)
		}
		out = binary.AppendVarint(out, int64(len(body)))
		out = append(out, body...)
	}
	if s.plain {
		s.pid, s.pepoch, s.seq = -1, -1, -1
	}
	if s.stamp != nil {
		s.seq = dedupe.MarkSequence
	}
	be.PutUint64(out, uint64(s.base))
	be.PutUint32(out[8:], uint32(len(out)-12))
	be.PutUint32(out[12:], uint32(s.epoch))
	out[16] = 2
	be.PutUint16(out[21:], uint16(s.attrs))
	be.PutUint32(out[23:], uint32(s.lastDelta))
	be.PutUint64(out[27:], uint64(base))
	be.PutUint64(out[35:], uint64(top))
	be.PutUint64(out[43:], uint64(s.pid))
	be.PutUint16(out[51:], uint16(s.pepoch))
	be.PutUint32(out[53:], uint32(s.seq))
	be.PutUint32(out[57:], uint32(len(s.recs)))
	be.PutUint32(out[17:], crc32.Checksum(out[21:], crc32.MakeTable(crc32.Castagnoli)))
	return out
}

// at is a plain batch with records at the given offsets, the first of which is not
// necessarily the batch's base; timestamps are ten times the offsets.
func at(epoch model.LeaderEpoch, base, last model.Offset, offs ...model.Offset) []byte {
	s := sparse{base: base, epoch: epoch, lastDelta: int32(last - base), plain: true}
	for _, o := range offs {
		s.recs = append(s.recs, sparseRec{delta: int32(o - base), ts: int64(o) * 10, val: binary.AppendUvarint(nil, uint64(o))})
	}
	return s.encode()
}
