package log

import (
	"errors"
	"maps"
	"path"
	"slices"
	"strings"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/producer"
	"tidewire/storage/record"
)

// Suffixes of the files of a segment that compaction makes, as Kafka's: .cleaned while it is
// written, .swap once it is whole and is to take the place of those it was made from.
const (
	cleanedSuffix = ".cleaned"
	swapSuffix    = ".swap"
)

// derivedSuffixes are the files that go with a segment's log, and are renamed before it.
var derivedSuffixes = []string{indexSuffix, timeIndexSuffix, txnIndexSuffix}

// newCleaned begins a segment under .cleaned names.
func (l *Log) newCleaned(base model.Offset, now int64) (*segment, error) {
	s := newSegment(l.store.fs, l.store.indexBufs, l.dir, base, now)
	s.appended.Store(0)
	s.nameFiles(l.store.indexBufs, cleanedSuffix)
	s.off.Fresh()
	s.tim.Fresh()
	s.known.Store(true)
	err := s.removeFiles(cleanedSuffix)
	if err == nil {
		var f fsx.File
		if f, err = l.store.fs.OpenFile(s.path+logSuffix+cleanedSuffix, fsx.ReadWrite|fsx.Create|fsx.Exclusive); err == nil {
			err = f.Close()
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.discardCleaned())
	}
	return s, nil
}

func (s *segment) removeFiles(suffix string) (err error) {
	for _, kind := range slices.Backward(append([]string{logSuffix}, derivedSuffixes...)) {
		if rerr := s.fs.Remove(s.path + kind + suffix); !isMissing(rerr) {
			err = firstErr(err, rerr)
		}
	}
	return err
}

// discardCleaned removes a segment that is not in use. What cannot be removed means
// nothing: the next start removes it.
func (s *segment) discardCleaned() error {
	return errors.Join(s.close(), s.removeFiles(swapSuffix), s.removeFiles(cleanedSuffix))
}

// swapIn puts a segment in the place of those that it was made from. Once <base>.log.swap
// is durable the new segment counts: the next start completes what is not. It is published
// then, and the old segments are closed before their names become another's: readers that
// are at them repeat what they read. It holds cutMu across its syncs.
func (l *Log) swapIn(group []*segment, out *segment) error {
	l.cutMu.Lock()
	defer l.cutMu.Unlock()
	err := firstErr(l.serving(), l.Failed(), l.checkGroup(group))
	if err == nil {
		err = out.moveDerived(swapSuffix)
	}
	if err != nil {
		return errors.Join(err, out.discardCleaned())
	}
	if err := l.store.fs.SyncDir(l.dir); err != nil {
		return errors.Join(l.fail(l.storageError("compact", err)), out.discardCleaned())
	}
	if err := out.f.Rename(out.path + logSuffix + swapSuffix); err != nil {
		return errors.Join(err, out.discardCleaned())
	}
	if err := l.store.fs.SyncDir(l.dir); err != nil {
		return errors.Join(l.fail(l.storageError("compact", err)), out.close())
	}
	l.publishSwap(group, out)
	for _, s := range group {
		err = firstErr(err, s.close())
	}
	if err != nil {
		l.store.log.Warn("a compacted segment was not closed", "log", l.name, "err", err)
	}
	if err := l.completeSwap(group, out); err != nil {
		return l.fail(l.storageError("compact", err))
	}
	return nil
}

// completeSwap does the rest of a swap whose log is durable under .swap.
func (l *Log) completeSwap(group []*segment, out *segment) error {
	fs := l.store.fs
	for _, s := range group[1:] {
		for _, suffix := range segmentSuffixes {
			if err := fs.Remove(s.path + suffix); !isMissing(err) {
				return err
			}
		}
	}
	if err := firstErr(out.moveDerived(""), fs.SyncDir(l.dir)); err != nil {
		return err
	}
	if err := firstErr(out.f.Rename(out.path+logSuffix), fs.SyncDir(l.dir)); err != nil {
		return err
	}
	if out.txn.Summary().Count == 0 { // an empty file means no more than none
		if err := fs.Remove(out.txn.Path()); !isMissing(err) {
			return err
		}
	}
	return out.release() // opened again when needed, as after a start
}

// moveDerived renames the indexes. That of aborted transactions is made if there is none,
// so that the one it replaces is replaced.
func (s *segment) moveDerived(suffix string) error {
	if err := s.txn.Ensure(); err != nil {
		return err
	}
	return firstErr(s.off.MoveTo(s.path+indexSuffix+suffix), s.tim.MoveTo(s.path+timeIndexSuffix+suffix),
		s.txn.MoveTo(s.path+txnIndexSuffix+suffix))
}

// checkGroup makes sure that the segments are still the log's.
func (l *Log) checkGroup(group []*segment) error {
	segs := *l.segs.Load()
	i := slices.Index(segs, group[0])
	if i < 0 || i+len(group) >= len(segs) || !slices.Equal(segs[i:i+len(group)], group) {
		return errNoPass // some were dropped meanwhile
	}
	return nil
}

func (l *Log) publishSwap(group []*segment, out *segment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	segs := *l.segs.Load()
	i := slices.Index(segs, group[0])
	next := slices.Concat(segs[:i], []*segment{out}, segs[i+len(group):])
	for _, s := range group {
		s.dropped.Store(true)
	}
	l.segs.Store(&next)
	l.cuts.Add(1)
	l.lastSnap = -1
}

// refreshSnapshot makes the newest snapshot say what the indexes of aborted transactions
// are now; otherwise the next start would take them for damaged and read the segments.
// So it does with those that wait to be written.
func (l *Log) refreshSnapshot() error {
	l.cutMu.Lock()
	defer l.cutMu.Unlock()
	l.mu.Lock()
	waiting := l.snaps[:len(l.snaps):len(l.snaps)]
	l.mu.Unlock()
	for _, w := range waiting {
		if b := l.restate(w.off, w.bytes); b != nil {
			l.replaceWaiting(w, b)
		}
	}
	l.store.sched.WaitRunning(l.member) // which may write one as it was
	all, err := l.listSnapshots()
	if err != nil || len(all) == 0 {
		return err
	}
	off := all[len(all)-1]
	b, err := fsx.ReadFile(l.store.fs, l.snapshotPath(off), producer.MaxSnapshot)
	if err != nil {
		return err
	}
	if b = l.restate(off, b); b == nil {
		return nil
	}
	return fsx.WriteFile(l.store.fs, l.snapshotPath(off), b)
}

// replaceWaiting gives a snapshot that waits other bytes, if it still waits.
func (l *Log) replaceWaiting(old pendingSnapshot, bytes []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	snaps := slices.Clone(l.snaps) // a sync may have these
	for i, s := range snaps {
		if s.off == old.off && &s.bytes[0] == &old.bytes[0] {
			snaps[i].bytes = bytes
		}
	}
	l.snaps = snaps
}

// restate gives the bytes of a snapshot with what the indexes of aborted transactions of
// the segments below it are now; nil where it says that already, or is damaged, which is
// the next start's business.
func (l *Log) restate(off model.Offset, b []byte) []byte {
	s, err := producer.DecodeSnapshot(b, off)
	if err != nil {
		return nil
	}
	segs := *l.segs.Load()
	old := s.Txns
	s.Txns = nil
	for i, seg := range segs {
		if i+1 < len(segs) && segs[i+1].base <= off {
			if t := seg.txn.Summary(); t.Count > 0 {
				s.Txns = append(s.Txns, t)
			}
		} else if j := slices.IndexFunc(old, func(t producer.TxnSummary) bool { return t.Base == seg.base }); j >= 0 {
			s.Txns = append(s.Txns, old[j])
		}
	}
	if slices.Equal(s.Txns, old) {
		return nil
	}
	return s.Encode()
}

// settleTxns lets the newest snapshot say what a rebuilt index of aborted transactions has,
// which may be less: an index keeps a transaction whose last record compaction has taken
// until it is made anew.
func (r *recovery) settleTxns() error {
	if !r.rebuilt {
		return nil
	}
	err := r.l.refreshSnapshot()
	if fsx.IsNoSpace(err) || fsx.IsNoDescriptor(err) {
		r.l.store.log.Warn("producer snapshot not written", "log", r.l.name, "err", err)
		return nil
	}
	return err
}

// settleCleaning completes or takes back, before a log is recovered, what a pass of
// compaction was at when the process ended. A segment whose log has its .swap name is
// whole, and so are its indexes; those without .swap names have their own already.
func (r *recovery) settleCleaning() error {
	var gone []string
	var swaps []model.Offset
	for name := range r.sizes {
		if base, ok := parseBase(name, logSuffix+swapSuffix); ok {
			swaps = append(swaps, base)
		} else if strings.HasSuffix(name, cleanedSuffix) || strings.HasSuffix(name, swapSuffix) {
			gone = append(gone, name)
		}
	}
	if len(swaps)+len(gone) == 0 {
		return nil
	}
	fs := r.l.store.fs
	if err := fs.SyncDir(r.l.dir); err != nil { // a killed process may have left names to the page cache
		return err
	}
	slices.Sort(swaps)
	for _, base := range swaps {
		if err := r.finishSwap(base); err != nil {
			return err
		}
	}
	slices.Sort(gone)
	for _, name := range gone {
		if err := fs.Remove(path.Join(r.l.dir, name)); !isMissing(err) {
			return err
		}
	}
	if err := fs.SyncDir(r.l.dir); err != nil {
		return err
	}
	return r.list()
}

func (r *recovery) finishSwap(base model.Offset) error {
	fs, name := r.l.store.fs, path.Join(r.l.dir, baseName(base))
	end, err := r.endOfSwap(base)
	if err != nil {
		return err
	}
	r.l.store.log.Info("completing a swap of compaction", "log", r.l.name, "segment", baseName(base), "end", end)
	// By the names there are: of some segments a power cut may have taken the log alone.
	for _, file := range slices.Sorted(maps.Keys(r.sizes)) {
		for _, suffix := range segmentSuffixes {
			if b, ok := parseBase(file, suffix); !ok || b <= base || b >= end {
				continue
			}
			if err := fs.Remove(path.Join(r.l.dir, file)); !isMissing(err) {
				return err
			}
		}
	}
	for _, suffix := range derivedSuffixes {
		if _, ok := r.sizes[baseName(base)+suffix+swapSuffix]; !ok {
			continue
		}
		if err := fs.Rename(name+suffix+swapSuffix, name+suffix); err != nil {
			return err
		}
	}
	if err := fs.SyncDir(r.l.dir); err != nil {
		return err
	}
	return firstErr(fs.Rename(name+logSuffix+swapSuffix, name+logSuffix), fs.SyncDir(r.l.dir))
}

// endOfSwap is the offset after the last one that the new segment has or had.
func (r *recovery) endOfSwap(base model.Offset) (end model.Offset, err error) {
	name := baseName(base) + logSuffix + swapSuffix
	seg := newSegment(r.l.store.fs, r.l.store.indexBufs, r.l.dir, base, 0)
	seg.nameFiles(r.l.store.indexBufs, swapSuffix)
	defer func() { err = firstErr(err, seg.close()) }()
	sc, err := r.l.store.scanner(seg, r.sizes[name], scanWindow)
	if err != nil {
		return 0, err
	}
	defer r.l.store.putScanner(sc)
	end = base
	for pos := int64(0); pos < sc.Size; {
		h, err := sc.Header(pos)
		if isErr(err, record.ErrShort) || model.HasCode(err, model.CorruptBatch) {
			return 0, r.l.damage(seg, pos, end, err)
		}
		if err != nil {
			return 0, err
		}
		end, pos = h.NextOffset(), pos+int64(h.Size())
	}
	return end, nil
}
