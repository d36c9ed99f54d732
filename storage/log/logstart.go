package log

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/epochs"
)

// StartMove asks for a log to begin later. Log and To are given; AdvanceLogStarts fills
// in the rest.
type StartMove struct {
	Log *Log
	To  model.Offset // at most the log end

	Start    model.Offset // the log start afterwards; never below what it was
	Segments int          // whole segments that left the log
	Bytes    int64        // of their records
	Err      error
}

// AdvanceLogStart moves the log start up to an offset; see Store.AdvanceLogStarts.
func (l *Log) AdvanceLogStart(to model.Offset) error {
	moves := []StartMove{{Log: l, To: to}}
	l.store.AdvanceLogStarts(moves)
	return moves[0].Err
}

// AdvanceLogStarts moves the starts of logs up (KIP-107) and takes the whole segments
// below out of them; an active segment that lies below is rolled first. An offset at or
// below the log start changes nothing. One write of the log-start checkpoint serves all:
// it is synced before a start is visible, and that before any file goes, so that a start
// which somebody has seen survives a power cut. The files are renamed to <name>.deleted
// and removed after file.delete.delay.ms.
//
// Errors, of each move: OffsetOutOfRange (beyond the log end) with earliest and latest,
// LeaderUnavailable, StorageFull: nothing was changed; StorageError: the log has failed,
// or the outcome of the checkpoint's write is unknown. Callers keep To at or below the
// high watermark.
func (s *Store) AdvanceLogStarts(moves []StartMove) {
	s.cpMu.Lock()
	s.moveStartsCpLocked(moves)
	s.cpMu.Unlock()
	now := s.o.Now()
	for i := range moves {
		m := &moves[i]
		if m.Err == nil {
			m.Segments, m.Bytes = m.Log.dropBelowStart(now)
		}
		m.Start = m.Log.LogStart()
	}
}

func (s *Store) moveStartsCpLocked(moves []StartMove) {
	points := s.cp[cpLogStart].Points
	var moved []int
	for i := range moves {
		m := &moves[i]
		if m.Err = s.checkMove(m); m.Err == nil && m.To > m.Log.LogStart() {
			moved = append(moved, i)
		}
	}
	if len(moved) == 0 {
		return
	}
	// The others too: a failed write has taken them out, to be written again.
	for _, l := range s.openLogs() {
		l.mu.Lock()
		if !l.cutting { // a truncation lowers its own, at its time
			points[l.key] = l.LogStart()
		}
		l.mu.Unlock()
	}
	for _, i := range moved {
		key := moves[i].Log.key
		points[key] = max(points[key], moves[i].To)
	}
	err := s.writeCheckpoint(cpLogStart)
	for _, i := range moved {
		m := &moves[i]
		if err != nil {
			m.Err = m.Log.fileError(logStartFile, err)
			delete(points, m.Log.key) // so that the next checkpoint writes again
			continue
		}
		if m.Err = m.Log.publishStart(m.To); m.Err != nil {
			points[m.Log.key] = m.Log.LogStart()
			if err := s.writeCheckpoint(cpLogStart); err != nil { // written again by the next checkpoint
				s.log.Error("checkpoint failed", "err", err)
			}
		}
	}
}

// checkMove refuses what cannot be done.
func (s *Store) checkMove(m *StartMove) error {
	s.mu.Lock()
	open := s.logs[m.Log.key] == m.Log && !s.closing
	s.mu.Unlock()
	if !open {
		return errClosed
	}
	m.Log.mu.Lock()
	defer m.Log.mu.Unlock()
	if start, end := m.Log.LogStart(), m.Log.LogEnd(); m.To > end {
		return outOfRange(m.To, start, end)
	}
	return m.Log.appendableLocked()
}

// fileError is what became of a log of which a file beside its records could not be written.
// It does not latch the log: nothing of its records was touched.
func (l *Log) fileError(name string, err error) error {
	switch {
	case fsx.IsNoSpace(err):
		return model.Errorf(model.StorageFull, "the disk is full").WithCause(err)
	case fsx.IsNoDescriptor(err):
		return noDescriptor(err)
	}
	return l.storageError("write "+name, err)
}

// publishStart makes a log start visible whose checkpoint is synced, unless a truncation
// has come between: then the next checkpoint takes it back.
func (l *Log) publishStart(to model.Offset) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if end := l.LogEnd(); l.cutting || to > end {
		return model.Errorf(model.LeaderUnavailable, "the log of %s is being truncated", l.name)
	}
	if to <= l.LogStart() {
		return nil
	}
	if l.HighWatermark() < to {
		l.SetHighWatermark(to)
	}
	l.logStart.Store(int64(to))
	l.epochs = l.epochs.TruncateUntil(to)
	l.epochsNew = true
	return nil
}

// belowStart is the number of segments that lie below the log start as a whole, the
// active one included when it holds something.
func (l *Log) belowStart() int {
	segs, start := *l.segs.Load(), l.LogStart()
	n, last := 0, len(segs)-1
	for n < last && segs[n+1].base <= start {
		n++
	}
	if n == last && segs[n].size.Load() > 0 && l.LogEnd() <= start {
		n++
	}
	return n
}

// dropBelowStart takes the segments below the log start out of the log.
func (l *Log) dropBelowStart(now time.Time) (segments int, bytes int64) {
	l.cutMu.Lock() // not while files are swapped or cut
	defer l.cutMu.Unlock()
	l.mu.Lock()
	gone, snap := l.takeBelowStartLocked(now.UnixMilli())
	first, none := l.firstBase(), l.prods.Empty()
	delay := time.Duration(max(l.cfg.FileDeleteDelayMs, 0)) * time.Millisecond
	l.mu.Unlock()
	if len(gone) == 0 {
		return 0, 0
	}
	// The segment that follows may be new: its name must not be lost when theirs are, nor
	// the producers, of whom no batch is left.
	err := l.writeRollSnapshot(snap)
	if err == nil && snap == nil && !none {
		err = firstErr(l.ensureSnapshot(slices.Concat(gone, *l.segs.Load()), first))
	}
	if err == nil {
		err = l.saveKeysCutLocked()
	}
	if err == nil {
		err = l.flushEpochs() // what the headers say of the epoch in force goes with them
	}
	if err == nil {
		err = l.store.fs.SyncDir(l.dir)
	}
	if err != nil {
		l.keepDropped(gone, err)
		return 0, 0
	}
	due := now.Add(delay)
	for _, seg := range gone {
		segments++
		bytes += seg.size.Load()
		l.renameDropped(seg)
		l.store.bin.Add(dropped{seg}, due)
	}
	l.store.log.Info("segments deleted", "log", l.name, "segments", segments, "bytes", bytes, "log_start", l.LogStart())
	return segments, bytes
}

// keepDropped is for segments whose files may not go, as what must be known of them is not
// written. For want of room they are the log's again, until somebody tries again.
func (l *Log) keepDropped(gone []*segment, err error) {
	l.mu.Lock()
	if fsx.IsNoSpace(err) || fsx.IsNoDescriptor(err) {
		l.store.log.Warn("segments below the log start stay for now", "log", l.name, "err", err)
		for _, s := range gone {
			s.dropped.Store(false)
		}
		next := slices.Concat(gone, *l.segs.Load())
		l.segs.Store(&next)
		l.mu.Unlock()
		return
	}
	closed := l.closed
	l.mu.Unlock()
	if !closed {
		_ = l.fail(l.storageError("sync the folder", err))
	}
	for _, seg := range gone { // the next start removes them
		l.store.bin.CloseNow(dropped{seg})
	}
}

// takeBelowStartLocked publishes the list of segments without those below the log start.
// When the disk has no room even for an empty file, the active one stays for now. snap
// has the producers at the new first segment when that is not on disk yet.
func (l *Log) takeBelowStartLocked(now int64) (gone []*segment, snap *pendingSnapshot) {
	n := l.belowStart()
	if n == 0 || l.closed || l.cutting || l.Failed() != nil {
		return nil, nil
	}
	segs := *l.segs.Load()
	next := slices.Clone(segs[n:])
	if n == len(segs) {
		// The indexes of the one it follows need no completion, for that goes at once.
		s := newSegment(l.store.fs, l.store.indexBufs, l.dir, l.LogEnd(), now)
		if err := s.create(); err == nil {
			next = append(next, s)
			snap = &pendingSnapshot{s.base, l.prods.EncodeSnapshot(nil)}
		} else if !fsx.IsNoSpace(err) && !fsx.IsNoDescriptor(err) {
			_ = l.fail(l.storageError("roll", err)) // its file may be there
			return nil, nil
		} else {
			l.store.log.Warn("the active segment is not rolled", "log", l.name, "err", err)
			n--
			next = slices.Clone(segs[n:])
		}
	}
	for _, s := range l.snaps { // of the roll to the segment that is the first now
		if s.off == next[0].base {
			snap = &s
		}
	}
	for _, s := range segs[:n] {
		s.dropped.Store(true)
	}
	l.segs.Store(&next)
	l.dirDirty = true
	return segs[:n], snap
}

func (l *Log) firstBase() model.Offset { return (*l.segs.Load())[0].base }

// ensureSnapshot makes sure of a snapshot at the base of a segment before those below are
// removed, of which nothing else is known then. read is why they could not be read.
func (l *Log) ensureSnapshot(segs []*segment, base model.Offset) (read, err error) {
	if ok, err := fsx.Exists(l.store.fs, l.snapshotPath(base)); ok || err != nil {
		return nil, err
	}
	st, err := l.stateAt(segs, base)
	if err != nil || st.Len() == 0 {
		return err, nil
	}
	return nil, l.tryWriteSnapshot(pendingSnapshot{base, st.EncodeSnapshot(nil)})
}

// writeRollSnapshot writes the snapshot of the segment that is about to be the first.
func (l *Log) writeRollSnapshot(snap *pendingSnapshot) error {
	if snap == nil {
		return nil
	}
	if err := l.tryWriteSnapshot(*snap); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.snaps) == 0 && !l.cutting {
		l.lastSnap = snap.off
	}
	return nil
}

// renameDropped marks a dropped segment's files, which hold no descriptor from here on but
// while they are read. One that cannot be renamed stays: the next start sees by the
// checkpoint that it lies below the log start.
func (l *Log) renameDropped(seg *segment) {
	for _, move := range []func(string) error{
		func(name string) error {
			return l.store.fs.Rename(seg.path+snapshotSuffix, seg.path+snapshotSuffix+name)
		},
		func(name string) error { return seg.txn.MoveTo(seg.path + txnIndexSuffix + name) },
		func(name string) error { return seg.off.MoveTo(seg.path + indexSuffix + name) },
		func(name string) error { return seg.tim.MoveTo(seg.path + timeIndexSuffix + name) },
		func(name string) error { return seg.f.Rename(seg.path + logSuffix + name) },
		func(string) error { return seg.retire() },
	} {
		if err := move(deletedSuffix); !isMissing(err) {
			l.store.log.Warn("a deleted segment's file was not renamed", "segment", seg.path, "err", err)
		}
	}
}

// deletedSuffix marks the files of a segment that is not part of the log any more, as
// Kafka marks them.
const deletedSuffix = ".deleted"

// parseDeleted reads a file name such as 00000000000000000042.index.deleted.
func parseDeleted(name string) (model.Offset, bool) {
	for _, suffix := range segmentSuffixes {
		if base, ok := parseBase(name, suffix+deletedSuffix); ok {
			return base, true
		}
	}
	return 0, false
}

// dropped is a segment whose files wait to be deleted.
type dropped struct{ *segment }

func (d dropped) Close() error { return d.close() }

func (d dropped) Files() []string {
	out := make([]string, 0, len(segmentSuffixes))
	for _, suffix := range segmentSuffixes {
		out = append(out, d.path+suffix+deletedSuffix)
	}
	return out
}

// dropBelow removes, before a log is recovered, what an earlier run left of deleted
// segments: files that are marked so, segments that lie below the log start as a whole,
// and indexes of such segments whose log is gone. So a deletion that a power cut has made
// half durable leaves no gap.
func (r *recovery) dropBelow(start model.Offset) error {
	n := 0
	for n < len(r.segs)-1 && r.segs[n+1].base <= start {
		n++
	}
	first := start
	if n < len(r.segs) {
		first = r.segs[n].base
	}
	var gone []string
	for name := range r.sizes {
		if _, ok := parseDeleted(name); ok || belowBase(name, first) {
			gone = append(gone, name)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	if n > 0 {
		// Damage below the log start is in nobody's way. A file that could not be written is:
		// a retry would be taken for something new.
		read, err := r.l.ensureSnapshot(r.segs, first)
		if err := r.tolerate("producers", read, err); err != nil {
			return err
		}
		read, err = r.keepKeys(first)
		if err := r.tolerate("idempotency keys", read, err); err != nil {
			return err
		}
	}
	// A killed process may have left the next segment's name to the page cache.
	if err := r.l.store.fs.SyncDir(r.l.dir); err != nil {
		return err
	}
	slices.SortFunc(gone, func(a, b string) int { return strings.Compare(a, b) })
	for _, name := range gone {
		if err := r.l.store.fs.Remove(path.Join(r.l.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		delete(r.sizes, name)
	}
	r.segs = r.segs[n:]
	return nil
}

// tolerate passes over damage of segments that are about to go.
func (r *recovery) tolerate(what string, read, err error) error {
	if err != nil || read == nil || !model.HasCode(read, model.StorageError) {
		return firstErr(err, read)
	}
	r.l.store.log.Warn(what+" below the log start are not known", "log", r.l.name, "err", read)
	return nil
}

// belowBase reports whether a file belongs to a segment that begins before base. Producer
// snapshots may outlive their segment.
func belowBase(name string, base model.Offset) bool {
	for _, suffix := range []string{indexSuffix, timeIndexSuffix, txnIndexSuffix, logSuffix} {
		if b, ok := parseBase(name, suffix); ok {
			return b < base
		}
	}
	return false
}

// removeOrphans removes the indexes above a base that are of no segment: a truncation or a
// roll that was taken back left them.
func (r *recovery) removeOrphans(base model.Offset) error {
	for _, name := range slices.Sorted(maps.Keys(r.sizes)) {
		for _, suffix := range derivedSuffixes {
			b, ok := parseBase(name, suffix)
			if !ok || b <= base || slices.ContainsFunc(r.segs, func(s *segment) bool { return s.base == b }) {
				continue
			}
			r.removed = true
			if err := r.l.store.fs.Remove(path.Join(r.l.dir, name)); !isMissing(err) {
				return err
			}
		}
	}
	return nil
}

// restartAt makes a log begin anew at its log start, above all that its files hold: what
// lay between was deleted, and no offset may be given out twice. It happens where a power
// cut took records that were not synced yet (write caching), as in Kafka.
func (r *recovery) restartAt(start model.Offset) (model.Offset, error) {
	old := r.segs
	r.l.store.log.Warn("the log ends below its log start and begins anew there", "log", r.l.name, "log_start", start)
	if err := r.firstSegment(start); err != nil {
		return 0, err
	}
	r.snaps = nil
	if r.state != nil { // of the producers nothing else is left
		r.snapshot(start)
		if err := r.l.writeSnapshot(r.snaps[0]); err != nil {
			return 0, err
		}
	}
	for _, seg := range old {
		if err := seg.remove(); err != nil {
			return 0, err
		}
	}
	r.segs = r.segs[len(old):]
	return start, nil
}

// epochsWithin is the epoch cache of a log between start and end. In a log without
// records the epoch in force is known from the file alone.
func (r *recovery) epochsWithin(start, end model.Offset) epochs.Cache {
	e := r.epochs.TruncateFrom(end).TruncateUntil(start)
	if len(e) > 0 || start < end || start == 0 {
		return e
	}
	return r.fileEp.TruncateUntil(start).TruncateFrom(start + 1)
}
