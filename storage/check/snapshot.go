package check

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"tidewire/internal/model"
)

const (
	txnEntrySize      = 34
	snapshotEntrySize = 46
	keptBatchSize     = 32
	txnSummarySize    = 16
	trailerMagic      = 0x54575053
	keptBatches       = 5
)

// aborted is an entry of a .txnindex.
type aborted struct {
	id                  model.ProducerID
	first, last, stable model.Offset
}

func (a aborted) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, 0)
	for _, v := range [4]int64{int64(a.id), int64(a.first), int64(a.last), int64(a.stable)} {
		b = binary.BigEndian.AppendUint64(b, uint64(v))
	}
	return b
}

// decodeAborted reads the entries; n is how many were right when there is an error.
func decodeAborted(b []byte, base model.Offset) (out []aborted, err error) {
	for prev := base - 1; len(b) > 0; b = b[txnEntrySize:] {
		if len(b) < txnEntrySize {
			return out, errors.New("the file ends within an entry")
		}
		v := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[2+8*i:])) }
		a := aborted{model.ProducerID(v(0)), model.Offset(v(1)), model.Offset(v(2)), model.Offset(v(3))}
		if binary.BigEndian.Uint16(b) != 0 || a.id < 0 || a.first < 0 || a.first >= a.last || a.last <= prev || a.stable < 0 || a.stable > a.last+1 {
			return out, errors.New("the entry cannot be")
		}
		prev = a.last
		out = append(out, a)
	}
	return out, nil
}

// batchOf is what is known of a producer's batch.
type batchOf struct {
	seq   int32 // of its last record, −1 none
	last  model.Offset
	delta int32
	ts    int64
}

// producer is the state of one producer below an offset.
type producer struct {
	epoch    model.ProducerEpoch
	coord    int32
	lastTs   int64
	txnFirst model.Offset
	batches  []batchOf // oldest first
}

// summary is what a snapshot says of a segment's aborted transactions.
type summary struct {
	base  model.Offset
	count int32
	crc   uint32
}

// snapshot is a decoded .snapshot.
type snapshot struct {
	off     model.Offset
	byID    map[model.ProducerID]*producer
	ids     []model.ProducerID // as in the file
	trailer bool
	txns    []summary
}

var errSnapshot = errors.New("the contents cannot be a snapshot of producers below this offset")

// fields takes numbers off the front of bytes; bad is set when there are too few.
type fields struct {
	b   []byte
	bad bool
}

func (r *fields) take(n int) []byte {
	if n > len(r.b) {
		r.bad, r.b = true, nil
		return make([]byte, 8)
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *fields) i16() int16 { return int16(binary.BigEndian.Uint16(r.take(2))) }
func (r *fields) i32() int32 { return int32(binary.BigEndian.Uint32(r.take(4))) }
func (r *fields) i64() int64 { return int64(binary.BigEndian.Uint64(r.take(8))) }

// count is a number of entries of a size, which must be there.
func (r *fields) count(size int) int {
	n := int(r.i32())
	if n < 0 || n > len(r.b)/size {
		r.bad = true
		return 0
	}
	return n
}

func decodeSnapshot(b []byte, off model.Offset) (*snapshot, error) {
	r := &fields{b: b}
	version, crc := r.i16(), uint32(r.i32())
	switch {
	case r.bad:
		return nil, errors.New("the file is cut short")
	case version != 1:
		return nil, errors.New("it is not of version 1")
	case crc != crc32.Checksum(r.b, castagnoli):
		return nil, errChecksum
	}
	s := &snapshot{off: off, byID: map[model.ProducerID]*producer{}}
	for range r.count(snapshotEntrySize) {
		id := model.ProducerID(r.i64())
		p := &producer{epoch: model.ProducerEpoch(r.i16())}
		x := batchOf{seq: r.i32(), last: model.Offset(r.i64()), delta: r.i32()}
		p.lastTs, p.coord, p.txnFirst = r.i64(), r.i32(), model.Offset(r.i64())
		if x.last >= 0 {
			x.ts = p.lastTs
			p.batches = []batchOf{x}
		}
		if s.byID[id] != nil || id < 0 || !p.plausible(off) {
			return nil, errSnapshot
		}
		s.byID[id], s.ids = p, append(s.ids, id)
	}
	if !r.bad && len(r.b) > 0 {
		s.readTrailer(r)
	}
	if r.bad || len(r.b) > 0 {
		return nil, errSnapshot
	}
	return s, nil
}

// readTrailer reads all batches, the newest of each producer being the one known already.
func (s *snapshot) readTrailer(r *fields) {
	s.trailer = true
	if uint32(r.i32()) != trailerMagic {
		r.bad = true
		return
	}
	newest := map[model.ProducerID]batchOf{}
	for id, p := range s.byID {
		if len(p.batches) > 0 {
			newest[id], p.batches = p.batches[0], nil
		}
	}
	for range r.count(keptBatchSize) {
		p := s.byID[model.ProducerID(r.i64())]
		x := batchOf{seq: r.i32(), last: model.Offset(r.i64()), delta: r.i32(), ts: r.i64()}
		if p == nil || len(p.batches) == keptBatches {
			r.bad = true
			return
		}
		p.batches = append(p.batches, x)
	}
	for id, p := range s.byID {
		want, had := newest[id]
		if had != (len(p.batches) > 0) || !p.plausible(s.off) {
			r.bad = true
			return
		}
		if had {
			got := p.batches[len(p.batches)-1]
			want.ts = got.ts
			r.bad = r.bad || got != want
		}
	}
	for range r.count(txnSummarySize) {
		s.txns = append(s.txns, summary{model.Offset(r.i64()), r.i32(), uint32(r.i32())})
	}
}

// plausible checks what follows from how the state comes about.
func (x *producer) plausible(off model.Offset) bool {
	prev := model.Offset(-1)
	for _, b := range x.batches {
		if b.seq < -1 || b.delta < 0 || b.last-model.Offset(b.delta) <= prev || b.last >= off {
			return false
		}
		prev = b.last
	}
	return x.txnFirst >= -1 && x.txnFirst < off
}
