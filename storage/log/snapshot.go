package log

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"maps"
	"path"
	"slices"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
)

// A producer snapshot, <offset>.snapshot, is the state of all producers below an offset:
// Kafka's format, version 1, of which Kafka reads a producer's last batch only, and behind
// it, still under the CRC, a trailer of ours. The trailer has all its batches, without
// which a retry after a restart would be out of order instead of a duplicate, and how the
// aborted transactions indexes were, of which a missing one could not be told from an
// empty one. docs/formats.md states every byte.
const (
	snapshotSuffix = ".snapshot"

	snapshotVersion   = 1
	snapshotEntrySize = 46
	snapshotHead      = 2 + 4 // version and CRC, which the CRC does not cover
	trailerMagic      = 0x54575053
	keptBatchSize     = 32
	txnSummarySize    = 16

	maxSnapshot = 1 << 30
)

var errSnapshot = errors.New("the producer snapshot is damaged")

// snapshot is a decoded snapshot.
type snapshot struct {
	byID map[model.ProducerID]*producer
	txns []txnSummary // of segments that have aborted transactions, by base
}

func (s *snapshot) encode() []byte {
	be := binary.BigEndian
	ids := slices.Sorted(maps.Keys(s.byID))
	b := be.AppendUint16(make([]byte, 0, 64+len(ids)*(snapshotEntrySize+keptBatches*keptBatchSize)), snapshotVersion)
	b = be.AppendUint32(b, 0)
	b = be.AppendUint32(b, uint32(len(ids)))
	kept := 0
	for _, id := range ids {
		p := s.byID[id]
		last := producerBatch{lastOffset: -1, lastSeq: -1}
		if l := p.last(); l != nil {
			last = *l
			kept += int(p.n)
		}
		b = be.AppendUint64(b, uint64(id))
		b = be.AppendUint16(b, uint16(p.epoch))
		b = be.AppendUint32(b, uint32(last.lastSeq))
		b = be.AppendUint64(b, uint64(last.lastOffset))
		b = be.AppendUint32(b, uint32(last.delta))
		b = be.AppendUint64(b, uint64(p.lastTs))
		b = be.AppendUint32(b, uint32(p.coord))
		b = be.AppendUint64(b, uint64(p.txnFirst))
	}
	b = be.AppendUint32(b, trailerMagic)
	b = be.AppendUint32(b, uint32(kept))
	for _, id := range ids {
		p := s.byID[id]
		for i := range p.batches[:p.n] {
			x := &p.batches[i]
			b = be.AppendUint64(b, uint64(id))
			b = be.AppendUint32(b, uint32(x.lastSeq))
			b = be.AppendUint64(b, uint64(x.lastOffset))
			b = be.AppendUint32(b, uint32(x.delta))
			b = be.AppendUint64(b, uint64(x.ts))
		}
	}
	b = be.AppendUint32(b, uint32(len(s.txns)))
	for _, t := range s.txns {
		b = be.AppendUint64(b, uint64(t.base))
		b = be.AppendUint32(b, uint32(t.count))
		b = be.AppendUint32(b, t.crc)
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

// decodeSnapshot reads the state below an offset. A snapshot without trailer is Kafka's
// own.
func decodeSnapshot(b []byte, off model.Offset) (*snapshot, error) {
	r := &snapReader{b: b}
	version, crc := r.i16(), r.i32()
	if r.bad || version != snapshotVersion || uint32(crc) != crc32.Checksum(b[snapshotHead:], castagnoli) {
		return nil, errSnapshot
	}
	n := r.count(snapshotEntrySize)
	s := &snapshot{byID: make(map[model.ProducerID]*producer, n)}
	for range n {
		id, p := r.producer()
		if s.byID[id] != nil || id < 0 || !p.plausible(off) {
			return nil, errSnapshot
		}
		s.byID[id] = p
	}
	if !r.bad && len(r.b) == 0 {
		return s, nil
	}
	if uint32(r.i32()) != trailerMagic {
		return nil, errSnapshot
	}
	if err := s.readBatches(r, off); err != nil {
		return nil, err
	}
	for range r.count(txnSummarySize) {
		s.txns = append(s.txns, txnSummary{model.Offset(r.i64()), r.i32(), uint32(r.i32())})
	}
	if r.bad || len(r.b) > 0 {
		return nil, errSnapshot
	}
	return s, nil
}

// readBatches reads the batches of all producers, each one's oldest first. The newest is
// the one that Kafka's entry has, with its own timestamp where that is of a later marker.
func (s *snapshot) readBatches(r *snapReader, off model.Offset) error {
	newest := make(map[model.ProducerID]producerBatch, len(s.byID))
	for id, p := range s.byID {
		if b := p.last(); b != nil {
			newest[id] = *b
			p.n = 0
		}
	}
	for range r.count(keptBatchSize) {
		p := s.byID[model.ProducerID(r.i64())]
		x := producerBatch{lastSeq: r.i32(), lastOffset: model.Offset(r.i64()), delta: r.i32(), ts: r.i64()}
		if p == nil || p.n == keptBatches {
			return errSnapshot
		}
		p.push(x)
		if !p.plausible(off) {
			return errSnapshot
		}
	}
	for id, p := range s.byID {
		want, got := newest[id], producerBatch{}
		if b := p.last(); b != nil {
			got = *b
		}
		if want.ts = got.ts; want != got {
			return errSnapshot
		}
	}
	return nil
}

func (r *snapReader) producer() (model.ProducerID, *producer) {
	id := model.ProducerID(r.i64())
	p := &producer{epoch: model.ProducerEpoch(r.i16())}
	last := producerBatch{lastSeq: r.i32(), lastOffset: model.Offset(r.i64()), delta: r.i32()}
	p.lastTs = r.i64()
	p.coord = r.i32()
	p.txnFirst = model.Offset(r.i64())
	if last.lastOffset >= 0 {
		// Kafka's format has one timestamp: of the last batch or of a marker after it.
		last.ts = p.lastTs
		p.push(last)
	}
	return id, p
}

// plausible checks what follows from how the state comes about.
func (p *producer) plausible(off model.Offset) bool {
	prev := model.Offset(-1)
	for i := range p.batches[:p.n] {
		b := &p.batches[i]
		if b.lastSeq < -1 || b.delta < 0 || b.firstOffset() <= prev || b.lastOffset >= off {
			return false
		}
		prev = b.lastOffset
	}
	return p.txnFirst >= -1 && p.txnFirst < off
}

// pendingSnapshot waits for the next sync to be written.
type pendingSnapshot struct {
	off   model.Offset
	bytes []byte
}

// snapshotLocked encodes the state of the producers as of now.
func (l *Log) snapshotLocked() []byte {
	s := snapshot{byID: l.prods.byID}
	for _, seg := range *l.segs.Load() {
		if t := seg.txn.summary(); t.count > 0 {
			s.txns = append(s.txns, t)
		}
	}
	return s.encode()
}

func (l *Log) snapshotPath(off model.Offset) string {
	return path.Join(l.dir, baseName(off)+snapshotSuffix)
}

// writeSnapshot makes a snapshot durable but for the folder's entry. It is no more than
// saved work: on a full disk there is none, and the next start reads more of the log.
func (l *Log) writeSnapshot(s pendingSnapshot) error {
	name := l.snapshotPath(s.off)
	f, err := l.store.fs.OpenFile(name, fsx.ReadWrite|fsx.Create|fsx.Trunc)
	if err == nil {
		if _, err = f.WriteAt(s.bytes, 0); err == nil {
			err = f.Sync()
		}
		err = firstErr(err, f.Close())
	}
	if fsx.IsNoSpace(err) || fsx.IsNoDescriptor(err) {
		l.store.log.Warn("producer snapshot not written", "log", l.name, "offset", s.off, "err", err)
		if rerr := l.store.fs.Remove(name); !isMissing(rerr) {
			return rerr
		}
		return nil
	}
	return err
}

// listSnapshots gives the offsets of the folder's snapshots, ascending.
func (l *Log) listSnapshots() ([]model.Offset, error) {
	entries, err := l.store.fs.ReadDir(l.dir)
	if err != nil {
		return nil, err
	}
	var out []model.Offset
	for _, e := range entries {
		if off, ok := parseBase(e.Name, snapshotSuffix); ok && !e.Dir {
			out = append(out, off)
		}
	}
	slices.Sort(out)
	return out, nil
}

// removeSnapshots deletes those that a rule names.
func (l *Log) removeSnapshots(gone func(model.Offset) bool) error {
	all, err := l.listSnapshots()
	if err != nil {
		return err
	}
	for _, off := range all {
		if !gone(off) {
			continue
		}
		if err := l.store.fs.Remove(l.snapshotPath(off)); !isMissing(err) {
			return err
		}
	}
	return nil
}
