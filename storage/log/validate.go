package log

import (
	"fmt"
	"math"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// validateFrom checks every batch from segment i on, rebuilding indexes and epochs,
// and cuts a torn tail. It returns the log end.
func (r *recovery) validateFrom(i int) (model.Offset, error) {
	r.epochs = r.epochs.TruncateFrom(r.segs[i].base)
	next := r.segs[i].base
	for ; i < len(r.segs); i++ {
		seg := r.segs[i]
		if r.segmentFollows(seg.base, next) != nil {
			return next, r.cut(i-1, r.segs[i-1].size.Load(), next, errGap)
		}
		end, pos, bad, err := r.validate(seg)
		if err != nil {
			return 0, err
		}
		next = end
		if bad != nil {
			return next, r.cut(i, pos, next, bad)
		}
		if i < len(r.segs)-1 {
			seg.noteTime()
			r.snapshot(r.segs[i+1].base)
		}
	}
	return next, nil
}

// validate checks one segment. bad is what is wrong at pos, where offset end
// should be; err is a failure to read or write.
func (r *recovery) validate(seg *segment) (end model.Offset, pos int64, bad, err error) {
	sc, err := r.l.store.scanner(seg, seg.size.Load(), checkWindow)
	if err != nil {
		return 0, 0, nil, err
	}
	defer r.l.store.putScanner(sc)
	if err := firstErr(seg.clearIndexes(), seg.txn.Replace(nil)); err != nil {
		return 0, 0, nil, err
	}
	end = seg.base
	from := int64(-1)
	defer func() {
		if err == nil && from >= 0 {
			r.redo = append(r.redo, span{seg, from, pos})
		}
	}()
	for pos < sc.Size {
		h, bad, err := sc.CheckBatch(pos)
		if err != nil {
			return 0, 0, nil, err
		}
		if from < 0 && h.NextOffset() > r.point {
			from = pos
		}
		switch {
		case bad != nil:
		case r.l.follows(h.BaseOffset, end) != nil:
			bad = r.l.follows(h.BaseOffset, end)
		case end < r.point && h.NextOffset() > r.point:
			// The recovery point was the log's end, so that a batch ended there. This finds
			// a flip in a base offset where gaps are allowed. (An older point put back may
			// lie where compaction has removed that batch, and is refused too.)
			bad = model.Errorf(model.CorruptBatch, "the batch at offset %d follows %d and passes the stable end %d", h.BaseOffset, end, r.point)
		case relative(h.LastOffset(), seg.base) > math.MaxInt32:
			bad = model.Errorf(model.CorruptBatch, "offset %d is too far from the segment's base", h.LastOffset())
		case h.LeaderEpoch < r.epochs.Latest():
			bad = model.Errorf(model.CorruptBatch, "leader epoch %d after %d", h.LeaderEpoch, r.epochs.Latest())
		}
		if bad != nil {
			return end, pos, bad, nil
		}
		r.noteEpoch(&h, end)
		if err := r.enter(seg, sc, pos, &h); err != nil {
			return 0, 0, nil, err
		}
		seg.note(&h, pos, r.l.cfg.IndexIntervalBytes)
		if err := firstErr(seg.off.FlushIfFull(), seg.tim.FlushIfFull()); err != nil {
			return 0, 0, nil, err
		}
		end = h.NextOffset()
		pos += int64(h.Size())
	}
	seg.known.Store(true)
	return end, pos, nil, nil
}

// noteEpoch enters the leader epoch of a batch that follows end. Where batches are gone in
// between, the file may know better what began there; a follower that parts from this log
// within the gap is told where (KIP-101).
func (r *recovery) noteEpoch(h *record.BatchHeader, end model.Offset) {
	if h.BaseOffset > end {
		for _, e := range r.fileEp {
			if e.Start >= end && e.Start <= h.BaseOffset && e.Epoch <= h.LeaderEpoch {
				r.epochs, _ = r.epochs.Note(e.Epoch, e.Start)
			}
		}
	}
	r.epochs, _ = r.epochs.Note(h.LeaderEpoch, h.BaseOffset)
}

// cut ends the log at offset end, position pos of segment i, when that is a torn
// tail. Below the checkpointed stable end nothing is ever cut. When that end is
// not known, a tail is torn only if no whole batch follows.
func (r *recovery) cut(i int, pos int64, end model.Offset, bad error) error {
	seg := r.segs[i]
	if end < r.point {
		return r.l.damage(seg, pos, end, bad)
	}
	lost := seg.size.Load() - pos
	for _, s := range r.segs[i+1:] {
		lost += s.size.Load()
	}
	if !r.known {
		follows, err := r.batchFollows(i, pos)
		if err != nil {
			return err
		}
		if follows {
			return r.l.damage(seg, pos, end, fmt.Errorf("%w; whole batches follow and the recovery point is lost", bad))
		}
	}
	r.l.store.log.Warn("torn tail cut", "log", r.l.name, "segment", baseName(seg.base), "position", pos,
		"offset", end, "bytes", lost, "segments", len(r.segs)-1-i, "err", bad)
	if err := seg.f.Truncate(pos); err != nil {
		return err
	}
	seg.size.Store(pos)
	seg.known.Store(true)
	for _, s := range r.segs[i+1:] {
		if err := s.remove(); err != nil {
			return err
		}
	}
	r.segs = r.segs[:i+1]
	return nil
}

// batchFollows looks for a whole batch anywhere behind pos.
func (r *recovery) batchFollows(i int, pos int64) (bool, error) {
	for ; i < len(r.segs); i++ {
		seg := r.segs[i]
		sc, err := r.l.store.scanner(seg, seg.size.Load(), checkWindow)
		if err != nil {
			return false, err
		}
		found, err := sc.FindBatch(pos)
		r.l.store.putScanner(sc)
		if found || err != nil {
			return found, err
		}
		pos = -1
	}
	return false, nil
}

// untouched tells that what was validated ends at the recovery point, within its segment, and
// so is durable with its names, and that validation has changed no file but indexes that are made anew after
// every unclean stop. Of thousands of partitions that is so for all but a few.
func (r *recovery) untouched(i int, end model.Offset) bool {
	seg := r.segs[len(r.segs)-1]
	_, txns := r.sizes[baseName(seg.base)+txnIndexSuffix]
	for _, suffix := range []string{indexSuffix, timeIndexSuffix} {
		if _, ok := r.sizes[baseName(seg.base)+suffix]; !ok {
			return false
		}
	}
	return i == len(r.segs)-1 && r.known && end == r.point && end > seg.base && len(r.snaps) == 0 && !txns && !r.removed &&
		r.sizes[baseName(seg.base)+logSuffix] == seg.size.Load()
}

// span is a part of a segment's file.
type span struct {
	seg      *segment
	from, to int64
}

// rewrite writes a part of a file over itself, so that the next sync has it written. When a
// sync has failed, in the run before or in an attempt to open the log, the pages that did
// not get to the disk count as clean: reads give them, a sync passes over them.
func (p span) rewrite() error {
	buf := make([]byte, min(p.to-p.from, checkWindow))
	for at := p.from; at < p.to; at += int64(len(buf)) {
		buf = buf[:min(p.to-at, int64(len(buf)))]
		if err := fsx.ReadFull(p.seg.f, buf, at); err != nil {
			return err
		}
		if _, err := p.seg.f.WriteAt(buf, at); err != nil {
			return err
		}
	}
	return nil
}

// syncFrom makes what validation kept durable: a killed process leaves bytes that
// only the page cache has, and they are about to count as stable.
func (r *recovery) syncFrom(i int, end model.Offset) error {
	if r.untouched(i, end) {
		return nil
	}
	for _, p := range r.redo {
		if err := p.rewrite(); err != nil {
			return err
		}
	}
	for _, s := range r.snaps {
		if s.off <= r.segs[len(r.segs)-1].base { // else its segment was cut
			if err := r.l.writeSnapshot(s); err != nil {
				return err
			}
		}
	}
	for ; i < len(r.segs); i++ {
		if err := r.segs[i].sync(i < len(r.segs)-1); err != nil {
			return err
		}
	}
	active := r.segs[len(r.segs)-1]
	// The indexes are there from the first (see create), also where the names were lost.
	return firstErr(active.off.Flush(), active.tim.Flush(), r.l.store.fs.SyncDir(r.l.dir))
}
