package check

import (
	"hash/crc32"
	"math"
	"path"
	"slices"

	"tidewire/internal/model"
	"tidewire/storage/record"
)

// replay is the state of producers that follows from the batches walked by (KIP-98).
type replay struct {
	byID    map[model.ProducerID]*producer
	unknown bool // what was before the first segment is not known
}

// span is an open transaction.
type span struct {
	id    model.ProducerID
	first model.Offset
}

// oldest gives the open transaction that began first.
func (r *replay) oldest() (s span, ok bool) {
	for id, p := range r.byID {
		if p.txnFirst >= 0 && (!ok || p.txnFirst < s.first) {
			s, ok = span{id, p.txnFirst}, true
		}
	}
	return s, ok
}

// beginReplay starts from the snapshot at the first segment's base, if there is one.
func (p *partition) beginReplay(s *snapshot) {
	p.state = replay{byID: map[model.ProducerID]*producer{}, unknown: p.segs[0].base > 0}
	if s == nil {
		return
	}
	p.state.unknown = !s.trailer
	for id, x := range s.byID {
		c := *x
		c.batches = slices.Clone(x.batches)
		p.state.byID[id] = &c
	}
}

// replay enters a batch.
func (p *partition) replay(s *segment, b *record.Batch) {
	if p.state.byID == nil {
		p.beginReplay(nil)
	}
	h := &b.Header
	if h.ProducerID < 0 {
		return
	}
	var m record.Marker
	control := h.Attributes.Has(record.AttrControl)
	if control {
		var ok bool
		var err error
		if m, ok, err = b.Marker(); !ok || err != nil {
			return
		}
	}
	x := p.state.byID[h.ProducerID]
	if x == nil {
		x = &producer{epoch: -1, coord: -1, lastTs: -1, txnFirst: -1}
		p.state.byID[h.ProducerID] = x
	}
	if x.epoch != h.ProducerEpoch {
		x.epoch, x.batches = h.ProducerEpoch, nil
	}
	if !control {
		x.push(h)
		return
	}
	x.coord, x.lastTs = m.CoordinatorEpoch, m.Timestamp
	if m.Type == record.ControlAbort {
		s.markers[h.LastOffset()] = h.ProducerID
	}
	first := x.txnFirst
	if x.txnFirst = -1; first < 0 || m.Type != record.ControlAbort {
		return
	}
	stable := h.LastOffset() + 1
	if open, ok := p.state.oldest(); ok {
		stable = open.first
	}
	s.aborts = append(s.aborts, aborted{h.ProducerID, first, h.LastOffset(), stable})
}

func (x *producer) push(h *record.BatchHeader) {
	b := batchOf{seq: -1, last: h.LastOffset(), delta: h.LastOffsetDelta, ts: h.MaxTimestamp}
	if h.BaseSequence >= 0 {
		b.seq = int32((int64(h.BaseSequence) + int64(h.LastOffsetDelta)) & math.MaxInt32) // after 2^31−1 comes 0
	}
	if len(x.batches) == keptBatches {
		x.batches = slices.Delete(x.batches, 0, 1)
	}
	x.batches = append(x.batches, b)
	x.lastTs = h.MaxTimestamp
	if x.txnFirst < 0 && h.Attributes.Has(record.AttrTransactional) && h.Count > 0 {
		x.txnFirst = h.BaseOffset
	}
}

// checkSnapshots checks the snapshots at or below the next batch's offset; MaxInt64: all.
func (p *partition) checkSnapshots(next model.Offset) error {
	for len(p.snaps) > 0 && p.snaps[0] <= next {
		off := p.snaps[0]
		p.snaps = p.snaps[1:]
		if err := p.checkSnapshot(off, next == math.MaxInt64); err != nil {
			return err
		}
	}
	if next == math.MaxInt64 {
		p.missingSnapshots()
		return p.checkSummaries()
	}
	return nil
}

// checkSnapshot checks one; atEnd says that no batch follows.
func (p *partition) checkSnapshot(off model.Offset, atEnd bool) error {
	name := p.file(off, snapshotSuffix)
	b, _, err := p.c.read(name)
	if err != nil {
		return err
	}
	s, err := decodeSnapshot(b, off)
	if err != nil {
		p.c.report(Damage, name, nowhere, "the snapshot is damaged: %v", err)
		return nil
	}
	outside := len(p.segs) > 0 && off < p.segs[0].base
	switch {
	case len(p.segs) == 0 || outside:
		p.c.report(Note, name, nowhere, "the snapshot is outside of the log")
		return nil
	case off > p.end && atEnd:
		sev := Note
		if p.clean && !p.broken {
			sev = Damage
		}
		p.c.report(sev, name, nowhere, "the snapshot is of an offset above the log's end %d", p.end)
		return nil
	}
	p.newest = s
	if !p.c.o.Deep || p.broken {
		return nil
	}
	if p.state.byID == nil && off == p.segs[0].base && off > 0 {
		p.beginReplay(s)
		return nil
	}
	if p.state.byID == nil {
		p.beginReplay(nil)
	}
	if id, what := p.differs(s); what != "" {
		p.c.report(Damage, name, at{-1, off}, "the snapshot is not what the log gives: producer %d %s", id, what)
	}
	return nil
}

// differs compares a snapshot with the replay.
func (p *partition) differs(s *snapshot) (model.ProducerID, string) {
	first := p.segs[0].base
	for _, id := range s.ids {
		x, r := s.byID[id], p.state.byID[id]
		if r == nil {
			n := len(x.batches)
			if p.compacted || p.state.unknown && x.txnFirst < first && (n == 0 || x.batches[n-1].last < first) {
				continue
			}
			return id, "has no batch in the log"
		}
		if what := p.differ(s, x, r); what != "" {
			return id, what
		}
	}
	written := p.modified[path.Base(p.file(s.off, snapshotSuffix))]
	for id, r := range p.state.byID {
		if s.byID[id] != nil {
			continue
		}
		idle := written.UnixMilli()-r.lastTs >= p.c.o.ProducerExpiration.Milliseconds()
		if r.txnFirst >= 0 && !p.compacted || !idle && !written.IsZero() {
			return id, "is missing"
		}
	}
	return 0, ""
}

// differ compares one producer. Compaction removes batches and markers, and then the
// snapshot may know more than the log; a producer that was forgotten and came back has
// fewer batches.
func (p *partition) differ(s *snapshot, x, r *producer) string {
	if p.compacted {
		return differCompacted(x, r, p.segs[0].base)
	}
	n := min(len(x.batches), len(r.batches))
	a, b := x.batches[len(x.batches)-n:], slices.Clone(r.batches[len(r.batches)-n:])
	if !s.trailer && n > 0 {
		b[0].ts = a[0].ts
	}
	forgotten := len(r.batches) > n
	switch {
	case x.epoch != r.epoch:
		return "has another epoch"
	case x.txnFirst != r.txnFirst && (!p.state.unknown || x.txnFirst >= p.segs[0].base):
		return "has another transaction open"
	case !slices.Equal(a, b):
		return "has other batches"
	case len(x.batches) > n && (!p.state.unknown || x.batches[len(x.batches)-n-1].last >= p.segs[0].base):
		return "has more batches"
	case forgotten && s.trailer && n > 0 && a[0].seq >= 0 && a[0].seq != a[0].delta:
		return "has fewer batches"
	case x.lastTs != r.lastTs:
		return "has another timestamp"
	case x.coord != r.coord && x.coord != -1 && !p.state.unknown: // -1 also after it was forgotten and came back
		return "has another coordinator epoch"
	}
	return ""
}

// differCompacted compares one producer of a compacted log, whose first segment begins at
// first. Batches from before it only snapshots know, which a start may have passed over.
func differCompacted(x, r *producer, first model.Offset) string {
	if x.epoch < r.epoch {
		return "has an older epoch"
	}
	if x.epoch != r.epoch || len(x.batches) == 0 {
		return ""
	}
	for _, b := range r.batches {
		if b.last < max(x.batches[0].last, first) {
			continue
		}
		same := func(o batchOf) bool { return o.last == b.last && o.seq == b.seq && o.delta == b.delta }
		if !slices.ContainsFunc(x.batches, same) {
			return "has other batches"
		}
	}
	return ""
}

// smallLog is up to how many bytes of .log a log of one segment needs no snapshot at a stop when
// it knows no producers: one read takes it in.
const smallLog = 64 << 10

// worthSnapshot tells whether a clean stop writes a snapshot. In a small log it does when there are
// producers, of whom those count here that cannot have been forgotten.
func (p *partition) worthSnapshot() bool {
	if len(p.segs) > 1 || p.segs[0].size > smallLog {
		return true
	}
	for _, x := range p.state.byID {
		if x.txnFirst >= 0 && !p.compacted {
			return true
		}
	}
	return false
}

// missingSnapshots looks for those that a stop and each roll write.
func (p *partition) missingSnapshots() {
	n := len(p.segs)
	if n == 0 || p.broken {
		return
	}
	have := func(off model.Offset) bool { _, ok := p.sizes[path.Base(p.file(off, snapshotSuffix))]; return ok }
	if p.clean && p.worthSnapshot() && !have(p.end) {
		p.c.report(Damage, p.file(p.end, snapshotSuffix), nowhere, "the snapshot that a clean stop writes is missing")
	}
	if first := p.segs[0]; first.base > 0 && !first.unsure && first.base != p.end && !have(first.base) {
		p.c.report(Note, p.file(first.base, snapshotSuffix), nowhere, "there is no snapshot at the log's first segment: it began there, or producers from before it are forgotten")
	}
	for _, s := range p.segs[1:] {
		if !s.unsure && s.base != p.end && !have(s.base) {
			p.c.report(Note, p.file(s.base, snapshotSuffix), nowhere, "the snapshot of the segment's roll is missing, so that a start may read more of the log")
		}
	}
}

// checkSummaries holds the indexes of aborted transactions against the newest snapshot.
func (p *partition) checkSummaries() error {
	s := p.newest
	if s == nil || !s.trailer || p.broken {
		return nil
	}
	want := map[model.Offset]summary{}
	for _, t := range s.txns {
		want[t.base] = t
	}
	for i, seg := range p.segs {
		whole := s.off >= p.end || i+1 < len(p.segs) && p.segs[i+1].base <= s.off
		if seg.unsure || !whole {
			continue
		}
		name := p.file(seg.base, txnIndexSuffix)
		b, _, err := p.c.read(name)
		if err != nil {
			return err
		}
		got := summary{base: seg.base, count: int32(len(b) / txnEntrySize)}
		if len(b) > 0 {
			got.crc = crc32.Checksum(b, castagnoli)
		}
		w := want[seg.base]
		if w.base = seg.base; got == w {
			continue
		}
		sev := Damage
		if !p.clean && p.compacted {
			sev = Note // compaction swaps the index first and then writes the snapshot
		}
		seg.badTxn = true
		p.c.report(sev, name, nowhere, "the index of aborted transactions is not as the newest snapshot says: %d entries where %d are due, or others", got.count, w.count)
	}
	return nil
}

// checkAborted checks each index of aborted transactions by itself and against the replay.
func (p *partition) checkAborted() error {
	for _, s := range p.segs {
		name := p.file(s.base, txnIndexSuffix)
		b, _, err := p.c.read(name)
		if err != nil {
			return err
		}
		entries, err := decodeAborted(b, s.base)
		if err != nil {
			s.badTxn = true
			p.c.report(Damage, name, at{int64(len(entries) * txnEntrySize), -1}, "%v", err)
			continue
		}
		if !p.c.o.Deep || p.broken || s.broken || s.unsure {
			continue
		}
		i, what := p.compareAborted(s, entries)
		if what == "" {
			continue
		}
		if !s.badTxn {
			p.c.report(Damage, name, at{int64(i * txnEntrySize), -1}, "%s", what)
		}
		s.badTxn = true
	}
	return nil
}

// compareAborted gives the first entry that is not what the batches say.
func (p *partition) compareAborted(s *segment, entries []aborted) (int, string) {
	// What was compacted below the log's first snapshot needs no entry.
	due := slices.DeleteFunc(slices.Clone(s.aborts), func(a aborted) bool { return p.compacted && a.first < p.segs[0].base })
	for i, e := range entries {
		if id, ok := s.markers[e.last]; !ok || id != e.id {
			return i, "the entry is of no abort marker in the segment"
		}
		if len(due) > 0 && due[0].last < e.last {
			return i, "an entry is missing"
		}
		known := len(due) > 0 && due[0].last == e.last
		switch {
		case !known && !p.compacted && (!p.state.unknown || e.first >= p.segs[0].base):
			return i, "the entry is of a transaction that was not open"
		case known && !p.compacted && (e.first != due[0].first && (!p.state.unknown || e.first >= p.segs[0].base) || e.stable != due[0].stable && !p.state.unknown):
			return i, "the entry's offsets are not those of the transaction"
		}
		if known {
			due = due[1:]
		}
	}
	if len(due) > 0 {
		return len(entries), "an entry is missing"
	}
	return 0, ""
}
