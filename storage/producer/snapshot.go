package producer

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"maps"
	"slices"

	"tidewire/internal/model"
)

// A producer snapshot is the state of all producers below an offset: Kafka's format,
// version 1, of which Kafka reads a producer's last batch only, and behind it, still under
// the CRC, a trailer of ours. The trailer has all its batches, without which a retry after a
// restart would be out of order instead of a duplicate, and how the aborted transactions
// indexes were, of which a missing one could not be told from an empty one. docs/formats.md
// states every byte.
const (
	snapshotVersion   = 1
	snapshotEntrySize = 46
	snapshotHead      = 2 + 4 // version and CRC, which the CRC does not cover
	trailerMagic      = 0x54575053
	keptBatchSize     = 32
	txnSummarySize    = 16
)

// MaxSnapshot is how large a snapshot may be, in bytes.
const MaxSnapshot = 1 << 30

// ErrSnapshot says that bytes are no whole producer snapshot.
var ErrSnapshot = errors.New("the producer snapshot is damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Snapshot is a decoded snapshot.
type Snapshot struct {
	Txns []TxnSummary // of segments that have aborted transactions, by base
	byID map[model.ProducerID]*Producer
}

// EncodeSnapshot encodes the state, together with how the indexes of aborted transactions
// are.
func (s *State) EncodeSnapshot(txns []TxnSummary) []byte {
	return (&Snapshot{Txns: txns, byID: s.byID}).Encode()
}

// Encode is the inverse of DecodeSnapshot.
func (s *Snapshot) Encode() []byte {
	be := binary.BigEndian
	ids := slices.Sorted(maps.Keys(s.byID))
	b := be.AppendUint16(make([]byte, 0, 64+len(ids)*(snapshotEntrySize+keptBatches*keptBatchSize)), snapshotVersion)
	b = be.AppendUint32(b, 0)
	b = be.AppendUint32(b, uint32(len(ids)))
	kept := 0
	for _, id := range ids {
		p := s.byID[id]
		last := Batch{LastOffset: -1, LastSequence: -1}
		if l := p.Last(); l != nil {
			last = *l
			kept += int(p.n)
		}
		b = be.AppendUint64(b, uint64(id))
		b = be.AppendUint16(b, uint16(p.Epoch))
		b = be.AppendUint32(b, uint32(last.LastSequence))
		b = be.AppendUint64(b, uint64(last.LastOffset))
		b = be.AppendUint32(b, uint32(last.delta))
		b = be.AppendUint64(b, uint64(p.lastTs))
		b = be.AppendUint32(b, uint32(p.coord))
		b = be.AppendUint64(b, uint64(p.TxnFirst))
	}
	b = be.AppendUint32(b, trailerMagic)
	b = be.AppendUint32(b, uint32(kept))
	for _, id := range ids {
		p := s.byID[id]
		for i := range p.batches[:p.n] {
			x := &p.batches[i]
			b = be.AppendUint64(b, uint64(id))
			b = be.AppendUint32(b, uint32(x.LastSequence))
			b = be.AppendUint64(b, uint64(x.LastOffset))
			b = be.AppendUint32(b, uint32(x.delta))
			b = be.AppendUint64(b, uint64(x.ts))
		}
	}
	b = be.AppendUint32(b, uint32(len(s.Txns)))
	for _, t := range s.Txns {
		b = be.AppendUint64(b, uint64(t.Base))
		b = be.AppendUint32(b, uint32(t.Count))
		b = be.AppendUint32(b, t.CRC)
	}
	be.PutUint32(b[2:], crc32.Checksum(b[snapshotHead:], castagnoli))
	return b
}

// snapReader takes numbers off the front of a snapshot; bad is set when it ends too early.
type snapReader struct {
	b   []byte
	bad bool
}

func (r *snapReader) take(n int) []byte {
	if r.bad || n > len(r.b) {
		r.bad = true
		return make([]byte, 8)
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *snapReader) i16() int16 { return int16(binary.BigEndian.Uint16(r.take(2))) }
func (r *snapReader) i32() int32 { return int32(binary.BigEndian.Uint32(r.take(4))) }
func (r *snapReader) i64() int64 { return int64(binary.BigEndian.Uint64(r.take(8))) }

// count reads how many entries of a size follow, of which the bytes must be there.
func (r *snapReader) count(size int) int {
	n := int(r.i32())
	if n < 0 || n > len(r.b)/size {
		r.bad = true
		return 0
	}
	return n
}

// Marked reports whether a transaction of some producer has ended.
func (s *Snapshot) Marked() bool {
	for _, p := range s.byID {
		if p.coord >= 0 {
			return true
		}
	}
	return false
}

// HasTransactions tells whether any is open.
func (s *Snapshot) HasTransactions() bool {
	for _, p := range s.byID {
		if p.TxnFirst >= 0 {
			return true
		}
	}
	return false
}

// EndTransactions forgets those that are open but of producers in marked. It is for a snapshot
// of an offset that compaction has passed: all that were open there have ended, and the markers
// that say so may be gone.
func (s *Snapshot) EndTransactions(marked map[model.ProducerID]bool) {
	for id, p := range s.byID {
		if !marked[id] {
			p.TxnFirst = -1
		}
	}
}

// DecodeSnapshot reads the state below an offset. A snapshot without trailer is Kafka's
// own.
func DecodeSnapshot(b []byte, off model.Offset) (*Snapshot, error) {
	r := &snapReader{b: b}
	version, crc := r.i16(), r.i32()
	if r.bad || version != snapshotVersion || uint32(crc) != crc32.Checksum(b[snapshotHead:], castagnoli) {
		return nil, ErrSnapshot
	}
	n := r.count(snapshotEntrySize)
	s := &Snapshot{byID: make(map[model.ProducerID]*Producer, n)}
	for range n {
		id, p := r.producer()
		if s.byID[id] != nil || id < 0 || !p.plausible(off) {
			return nil, ErrSnapshot
		}
		s.byID[id] = p
	}
	if !r.bad && len(r.b) == 0 {
		return s, nil
	}
	if uint32(r.i32()) != trailerMagic {
		return nil, ErrSnapshot
	}
	if err := s.readBatches(r, off); err != nil {
		return nil, err
	}
	for range r.count(txnSummarySize) {
		s.Txns = append(s.Txns, TxnSummary{model.Offset(r.i64()), r.i32(), uint32(r.i32())})
	}
	if r.bad || len(r.b) > 0 {
		return nil, ErrSnapshot
	}
	return s, nil
}

// readBatches reads the batches of all producers, each one's oldest first. The newest is
// the one that Kafka's entry has, with its own timestamp where that is of a later marker.
func (s *Snapshot) readBatches(r *snapReader, off model.Offset) error {
	newest := make(map[model.ProducerID]Batch, len(s.byID))
	for id, p := range s.byID {
		if b := p.Last(); b != nil {
			newest[id] = *b
			p.n = 0
		}
	}
	for range r.count(keptBatchSize) {
		p := s.byID[model.ProducerID(r.i64())]
		x := Batch{LastSequence: r.i32(), LastOffset: model.Offset(r.i64()), delta: r.i32(), ts: r.i64()}
		if p == nil || p.n == keptBatches {
			return ErrSnapshot
		}
		p.push(x)
		if !p.plausible(off) {
			return ErrSnapshot
		}
	}
	for id, p := range s.byID {
		want, got := newest[id], Batch{}
		if b := p.Last(); b != nil {
			got = *b
		}
		if want.ts = got.ts; want != got {
			return ErrSnapshot
		}
	}
	return nil
}

func (r *snapReader) producer() (model.ProducerID, *Producer) {
	id := model.ProducerID(r.i64())
	p := &Producer{Epoch: model.ProducerEpoch(r.i16())}
	last := Batch{LastSequence: r.i32(), LastOffset: model.Offset(r.i64()), delta: r.i32()}
	p.lastTs = r.i64()
	p.coord = r.i32()
	p.TxnFirst = model.Offset(r.i64())
	if last.LastOffset >= 0 {
		// Kafka's format has one timestamp: of the last batch or of a marker after it.
		last.ts = p.lastTs
		p.push(last)
	}
	return id, p
}

// plausible checks what follows from how the state comes about.
func (p *Producer) plausible(off model.Offset) bool {
	prev := model.Offset(-1)
	for i := range p.batches[:p.n] {
		b := &p.batches[i]
		if b.LastSequence < -1 || b.delta < 0 || b.FirstOffset() <= prev || b.LastOffset >= off {
			return false
		}
		prev = b.LastOffset
	}
	return p.TxnFirst >= -1 && p.TxnFirst < off
}
