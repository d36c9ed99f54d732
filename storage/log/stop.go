package log

import (
	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/syncer"
)

// Close syncs every log, writes the checkpoints and, when no log has failed, the
// clean-stop marker. Callbacks are not called any more; it must not be called from
// one.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return nil
	}
	s.closing = true
	close(s.stop)
	s.mu.Unlock()
	s.loopDone.Wait()
	s.sched.Close()

	s.bin.Close()
	logs := s.openLogs()
	err := s.forEach(logs, (*Log).finish)
	s.cpMu.Lock()
	defer s.cpMu.Unlock()
	err = firstErr(err, s.checkpointCpLocked(true))
	if s.cleanerBehind && err == nil { // the marker tells its generation
		err = s.writeCleanerCpLocked()
	}
	for _, l := range logs {
		failed := l.Failed()
		err = firstErr(err, failed, l.closeFiles())
	}
	s.mu.Lock()
	clean := err == nil && !s.tainted && len(s.folders) == 0
	s.mu.Unlock()
	if !clean {
		s.log.Warn("not a clean stop: the next start recovers", "err", err)
		return err
	}
	var gens [cpKinds]uint64
	for i := range s.cp {
		gens[i] = s.cp[i].Generation
	}
	return fsx.WriteFile(s.fs, s.path(cleanStopFile), encodeCleanStop(gens, s.cleaner.Generation))
}

// finish makes all of a log durable, the active segment's indexes included.
func (l *Log) finish() error {
	l.cleaned.gate.Shut() // for good
	l.cutMu.Lock()
	defer l.cutMu.Unlock()
	if err := l.Failed(); err != nil {
		return err
	}
	end := l.logEnd.Load()
	l.sync()
	if err := l.Failed(); err != nil {
		return err
	}
	if l.synced.Load() < end {
		return model.Errorf(model.LeaderUnavailable, "the log of %s could not be synced at the stop", l.name)
	}
	err := l.saveKeysCutLocked()
	l.mu.Lock()
	defer l.mu.Unlock()
	seg := l.activeLocked()
	err = firstErr(err, seg.off.Sync(), seg.tim.Sync(), seg.txn.Sync())
	if end := l.LogEnd(); err == nil && l.lastSnap != end && l.worthSnapshotLocked() {
		l.dirDirty = true
		// Without it the stop is not a clean one: after such it would count as lost.
		err = l.tryWriteSnapshot(pendingSnapshot{end, l.snapshotLocked()})
	}
	if l.dirDirty || seg.txn.Summary().Count > 0 { // a node may have thousands of which nothing changed
		err = firstErr(err, l.store.fs.SyncDir(l.dir))
	}
	switch {
	case fsx.IsNoSpace(err):
		return model.Errorf(model.StorageFull, "the disk is full").WithCause(err)
	case fsx.IsNoDescriptor(err):
		return noDescriptor(err)
	case err != nil:
		return l.fail(l.storageError("sync indexes", err))
	}
	return seg.release() // one log after the other: descriptors may be fewer than logs
}

// worthSnapshotLocked tells whether a snapshot saves the next start more than one read of
// the log.
func (l *Log) worthSnapshotLocked() bool {
	return !l.prods.Empty() || len(*l.segs.Load()) > 1 || l.activeLocked().size.Load() > scanWindow
}

// forEach runs fn over logs, some at a time, and gives the first error.
func (s *Store) forEach(logs []*Log, fn func(*Log) error) error {
	return syncer.Each(s.o.Group, len(logs), func(i int) error { return fn(logs[i]) })
}
