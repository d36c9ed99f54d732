package log

import (
	"math"
	"path"
	"slices"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/epochs"
	"tidewire/storage/index"
)

// TruncateTo removes what lies at or above an offset: log end, stable end, high watermark,
// leader epochs, producers and aborted transactions all go back. A batch that holds the
// offset goes as a whole, so the log may end below it (see LogEnd). At or above the log
// end nothing happens. Below the log start, or where whole batches leave nothing above
// it, it is TruncateFullyAndStartAt. It is durable when it returns.
//
// This is the only thing that lowers a stable end. Appends meanwhile are refused with
// LeaderUnavailable; reads go on and see the log before or after. It must not be called
// from the log's callbacks. Errors: those of a closed or latched log before anything was
// changed; StorageError, and the log has latched, when a truncation could not be
// completed (the next start finds the log before, within or after it).
func (l *Log) TruncateTo(off model.Offset) error {
	defer l.cleaned.gate.Shut()()
	l.cutMu.Lock()
	defer l.cutMu.Unlock()
	c, err := l.beginCut(func(c *cut) error { return l.findCutLocked(c, off) })
	if c == nil || err != nil {
		return err
	}
	return l.finishCut(c)
}

// TruncateFullyAndStartAt removes everything and lets the log begin anew, empty, at an
// offset, as a replica does that is too far behind its leader, or ahead of it. A power cut
// meanwhile may also leave an empty log at the checkpointed log start. Otherwise as
// TruncateTo. Errors also: InvalidArgument for a negative offset.
func (l *Log) TruncateFullyAndStartAt(off model.Offset) error {
	if off < 0 {
		return model.Errorf(model.InvalidArgument, "a log cannot start at offset %d", off)
	}
	defer l.cleaned.gate.Shut()()
	l.cutMu.Lock()
	defer l.cutMu.Unlock()
	c, err := l.beginCut(func(c *cut) error { c.full, c.end, c.change = true, off, true; return nil })
	if c == nil || err != nil {
		return err
	}
	return l.finishCut(c)
}

// CutFor tells a follower how far to truncate, by what the leader answered to its latest
// epoch: the largest epoch that the leader has at or below it, and that epoch's end there
// (KIP-101, KIP-279). When both know the epoch, to is where the logs part, and agreed is
// true; otherwise the follower truncates to to and asks again with its then latest epoch.
// When this log has nothing at or below the epoch, or the leader's log is empty (NoEpoch,
// with its log end), all of it below the leader's end is foreign: to is the log start, or
// the leader's end where that is higher.
func (l *Log) CutFor(leader model.LeaderEpoch, leaderEnd model.Offset) (to model.Offset, agreed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := l.LogEnd()
	own, ownEnd := l.epochs.Floor(leader, end)
	switch {
	case leader < 0 || own == model.NoEpoch:
		return min(max(leaderEnd, l.LogStart()), end), true
	case own != leader:
		return min(ownEnd, end), false
	}
	return min(leaderEnd, ownEnd, end), true
}

// cut is one truncation under way.
type cut struct {
	full   bool
	change bool         // false: there is nothing to do
	end    model.Offset // the log end afterwards
	before model.Offset // where the last kept batch begins, or its segment
	pos    int64        // of the end in the last kept segment
	keep   int          // segments kept, at least one unless full
	prods  bool         // what goes has batches of producers
	gone   []*segment   // removed, in order
}

// beginCut keeps appends and syncs away, decides on the cut, and publishes the shorter
// log; no byte has been cut yet. nil means that there is nothing to do.
func (l *Log) beginCut(find func(*cut) error) (*cut, error) {
	if err := firstErr(l.serving(), l.Failed()); err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.cutting = true
	l.mu.Unlock()
	// A sync that runs would find files closed. None begins from here on.
	l.store.sched.WaitRunning(l.member)
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &cut{}
	if err := firstErr(l.Failed(), find(c)); err != nil || !c.change {
		l.cutting = false
		return nil, err
	}
	l.publishCutLocked(c)
	return c, nil
}

// findCutLocked finds the first batch that goes.
func (l *Log) findCutLocked(c *cut, off model.Offset) error {
	if off >= l.LogEnd() {
		return nil
	}
	c.change = true
	if off < l.LogStart() {
		c.full, c.end = true, max(off, 0)
		return nil
	}
	segs := *l.segs.Load()
	i := floorSegment(segs, off)
	seg := segs[i]
	at, err := l.cutPosition(seg, off)
	if err != nil {
		return l.readError(seg, err)
	}
	if at.end < l.LogStart() {
		c.full, c.end = true, l.LogStart()
		return nil
	}
	c.end, c.before, c.pos, c.keep = at.end, at.before, at.pos, i+1
	// Where no producer is known those may have been forgotten whose markers go now.
	c.prods = !l.prods.Empty()
	for ; i < len(segs) && !c.prods; i++ {
		if c.prods, err = l.hasProducers(segs[i], at.pos); err != nil {
			return l.readError(segs[i], err)
		}
		at.pos = 0
	}
	return nil
}

// hasProducers reports whether a segment has batches of producers from a position on.
func (l *Log) hasProducers(seg *segment, pos int64) (bool, error) {
	sc, err := l.store.scanner(seg, seg.size.Load(), scanWindow)
	if err != nil {
		return false, err
	}
	defer l.store.putScanner(sc)
	for pos < sc.Size {
		h, err := sc.Header(pos)
		if err != nil || h.ProducerID >= 0 {
			return err == nil, err
		}
		pos += int64(h.Size())
	}
	return false, nil
}

// cutPoint is a place between two batches of a segment.
type cutPoint struct {
	end    model.Offset // of the batch in front of it, or the segment's base
	before model.Offset // where that batch begins, as far as known; else the segment's base
	pos    int64
}

// cutPosition finds the first batch of seg that reaches to off or beyond, and the end of
// what precedes it. After a restart the log ends where that does, so it does now.
func (l *Log) cutPosition(seg *segment, off model.Offset) (at cutPoint, err error) {
	at = cutPoint{end: seg.base, before: seg.base}
	sc, err := l.store.scanner(seg, seg.size.Load(), scanWindow)
	if err != nil {
		return at, err
	}
	defer l.store.putScanner(sc)
	e, ok, err := seg.off.Floor(relative(off, seg.base) - 1)
	if err == nil && ok {
		h, herr := sc.HeaderWithin(e.Val)
		if herr == nil && relative(h.LastOffset(), seg.base) == e.Key {
			at.pos = e.Val
		} // else the index is damaged: from the start
	}
	for at.pos < sc.Size {
		h, err := sc.Header(at.pos)
		if err != nil {
			return at, l.damage(seg, at.pos, off, err)
		}
		if h.NextOffset() > off {
			break
		}
		at = cutPoint{h.NextOffset(), at.end, at.pos + int64(h.Size())}
	}
	return at, nil
}

// publishCutLocked makes the shorter log visible. Readers load the number of cuts first
// and repeat what they read when it has changed; it changes after everything else here and
// before any byte is cut.
func (l *Log) publishCutLocked(c *cut) {
	segs := *l.segs.Load()
	c.gone = slices.Clone(segs[c.keep:])
	kept := slices.Clone(segs[:c.keep])
	if c.full {
		s := newSegment(l.store.fs, l.store.indexBufs, l.dir, c.end, l.store.o.Now().UnixMilli())
		kept = []*segment{s}
		l.epochs = nil
		l.logStart.Store(int64(c.end))
		l.hw.Store(int64(c.end))
		l.synced.Store(0) // until the old segments are gone for good, or it would be checkpointed
		l.stable.Store(int64(c.end))
	} else {
		kept[c.keep-1].size.Store(c.pos)
		kept[c.keep-1].cut.Add(1)
		l.epochs = l.epochs.TruncateFrom(c.end)
		for _, x := range []interface {
			Load() int64
			Store(int64)
		}{&l.hw, &l.synced, &l.stable} {
			x.Store(min(x.Load(), int64(c.end)))
		}
	}
	if l.keys.Truncate(c.end); c.full {
		l.keys.Clear()
	}
	l.snaps = slices.DeleteFunc(slices.Clone(l.snaps), func(s pendingSnapshot) bool { return c.full || s.off > c.end })
	if l.lastSnap = -1; l.farAt >= c.end {
		l.farAt = 0
	}
	l.epochsNew = true // written once the cut is done: until then the old point may count
	l.logEnd.Store(int64(c.end))
	l.segs.Store(&kept)
	l.pending = slices.DeleteFunc(l.pending, func(s *segment) bool {
		return s == kept[len(kept)-1] || slices.Contains(c.gone, s)
	})
	l.cuts.Add(1)
}

// finishCut lowers what is checkpointed, cuts the files, makes that durable and lets
// appends in again.
func (l *Log) finishCut(c *cut) error {
	err := l.store.lowerCheckpoints(l, c)
	if err == nil && c.full {
		// Those that began below the new start would come back with the old file.
		err = fsx.WriteFile(l.store.fs, path.Join(l.dir, epochs.FileName), epochs.Cache(nil).Encode())
	}
	if err == nil {
		err = l.cutFiles(c)
	}
	var st *replayed
	if err == nil && c.full {
		st = &replayed{}
		err = l.store.resetLogStart(l, c.end)
	} else if err == nil {
		st, err = l.replayCut(c)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if st != nil && err == nil {
		l.adoptLocked(st)
	}
	if err != nil {
		err = l.fail(l.storageError("truncate", err))
	} else if c.full {
		l.synced.Store(int64(c.end))
	}
	l.cutting = false
	if l.synced.Load() < l.logEnd.Load() {
		l.store.sched.MarkDirty(l.member)
	}
	return err
}

// cutFiles removes segments from the last to the first, each durably before the next:
// what a power cut leaves must never be a later one without an earlier one, which in a
// compacted log would look like compaction. Then it cuts the last one kept.
func (l *Log) cutFiles(c *cut) error {
	for _, s := range slices.Backward(c.gone) {
		if err := firstErr(s.remove(), l.store.fs.SyncDir(l.dir)); err != nil {
			return err
		}
	}
	if err := l.removeSnapshots(func(off model.Offset) bool { return c.full || off > c.end }); err != nil {
		return err
	}
	if err := l.saveKeysCutLocked(); err != nil {
		return err
	}
	seg := l.lastSegment()
	if c.full {
		// Nothing of the old log must meet the new one, nor what could not be removed before.
		return firstErr(l.removeStrays(), l.store.fs.SyncDir(l.dir), seg.create(), l.store.fs.SyncDir(l.dir))
	}
	if err := seg.f.Truncate(c.pos); err != nil {
		return err
	}
	if err := l.cutIndexes(seg); err != nil {
		return err
	}
	if err := seg.txn.TruncateTo(c.end); err != nil {
		return err
	}
	return firstErr(seg.f.Sync(), seg.off.Sync(), seg.tim.Sync(), seg.txn.Sync(), l.store.fs.SyncDir(l.dir))
}

// removeStrays removes the files of all segments there are.
func (l *Log) removeStrays() error {
	entries, err := l.store.fs.ReadDir(l.dir)
	if err != nil {
		return err
	}
	for _, e := range slices.Backward(entries) {
		if belowBase(e.Name, math.MaxInt64) {
			if err := l.store.fs.Remove(path.Join(l.dir, e.Name)); !isMissing(err) {
				return err
			}
		}
	}
	return nil
}

// replayCut gives the producers below the cut; nil where there were none.
func (l *Log) replayCut(c *cut) (*replayed, error) {
	if !c.prods {
		return nil, nil
	}
	return l.stateAt(*l.segs.Load(), c.end)
}

func (l *Log) lastSegment() *segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.activeLocked()
}

// cutIndexes drops the entries of what was cut, and gives an active segment again what
// appends need to know of it.
func (l *Log) cutIndexes(seg *segment) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := seg.size.Load()
	end := relative(l.LogEnd(), seg.base)
	err := firstErr(seg.off.Verify(), seg.tim.Verify())
	if err == nil {
		err = firstErr(seg.off.Cut(func(e index.Entry) bool { return e.Val < size }), seg.tim.Cut(func(e index.Entry) bool { return e.Val < end }))
	}
	if err == nil {
		var fits bool
		if fits, err = l.resumeLocked(seg); fits && err == nil {
			return nil
		}
	}
	l.store.log.Warn("rebuilding indexes", "log", l.name, "segment", baseName(seg.base), "err", err)
	return l.rebuildLocked(seg, false)
}

// resumeLocked reads the headers from the last index entry on, as recovery does of the
// last segment after a clean stop. It reports whether the indexes fit them.
func (l *Log) resumeLocked(seg *segment) (bool, error) {
	sc, err := l.store.scanner(seg, seg.size.Load(), scanWindow)
	if err != nil {
		return false, err
	}
	defer l.store.putScanner(sc)
	seg.since, seg.maxTsOff, seg.rollTs = 0, seg.base, noTimestamp
	seg.maxTs.Store(noTimestamp)
	next, fits := l.readTail(seg, sc, l.cfg.IndexIntervalBytes)
	fits = fits && next == l.LogEnd() && l.fitMaxTimestamp(seg, sc) == nil
	seg.known.Store(fits)
	return fits, nil
}

// readTail notes the batches from the last index entry on and gives the end of the
// segment. Not ok means that index and log do not fit each other.
func (l *Log) readTail(seg *segment, sc *scanner, interval int) (next model.Offset, ok bool) {
	n, last := seg.off.State()
	pos, next := last.Val, seg.base
	if n == 0 {
		pos = 0
	}
	if tn, tl := seg.tim.State(); tn > 0 {
		seg.maxTs.Store(tl.Key)
		seg.maxTsOff = seg.base + model.Offset(tl.Val)
	}
	for first := n > 0; pos < sc.Size; first = false {
		h, err := sc.Header(pos)
		if err != nil || first && relative(h.LastOffset(), seg.base) != last.Key || !first && l.follows(h.BaseOffset, next) != nil {
			return 0, false
		}
		seg.note(&h, pos, interval)
		next = h.NextOffset()
		pos += int64(h.Size())
	}
	return next, true
}

// fitMaxTimestamp compares the largest timestamp with its batch and notes the
// first batch's.
func (l *Log) fitMaxTimestamp(seg *segment, sc *scanner) error {
	if sc.Size == 0 {
		return nil
	}
	h, err := sc.Header(0)
	if err != nil {
		return err
	}
	seg.rollTs = h.MaxTimestamp
	ts := seg.maxTs.Load()
	if ts <= noTimestamp {
		return nil
	}
	// Not by locate, which would repair what is about to be rebuilt.
	last := seg.maxTsOff
	e, _, err := seg.off.Floor(relative(last, seg.base))
	if err != nil {
		return err
	}
	for pos := e.Val; pos < sc.Size; pos += int64(h.Size()) {
		if h, err = sc.HeaderWithin(pos); err != nil {
			return err
		}
		if h.LastOffset() >= last {
			break
		}
	}
	if h.LastOffset() != last || h.MaxTimestamp != ts {
		return index.ErrBadEntry
	}
	return nil
}
