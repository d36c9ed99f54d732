package log

import (
	"errors"
	"slices"

	"tidewire/internal/fsx"
)

// RequestSync says that somebody waits for the stable end: the log is synced at
// once, or again right after the sync that runs now; one sync serves all. Nothing
// happens when all is stable already, as always with WriteCaching.
func (l *Log) RequestSync() {
	if l.stable.Load() < l.logEnd.Load() {
		l.store.sched.Enqueue(l.member)
	}
}

// Syncing reports whether a sync is running now. A true answer means that
// onSyncEnd will be called later.
func (l *Log) Syncing() bool { return l.member.Syncing() }

// tell calls the callbacks. It compares with what was last told rather than with the
// stable end before the sync: SetConfig may have moved that one meanwhile.
func (l *Log) tell() {
	cb := l.callbacks.Load()
	if cb == nil {
		return
	}
	if end := l.StableEnd(); end != l.toldStable && cb.onStable != nil {
		l.toldStable = end
		cb.onStable(end)
	}
	if cb.onSyncEnd != nil {
		cb.onSyncEnd()
	}
	if err := l.Failed(); err != nil && cb.onFail != nil {
		if !l.told && !errors.Is(err, errClosed) {
			l.told = true
			cb.onFail(err)
		}
	}
}

// sync makes everything written so far durable and moves the stable end. A failed
// sync latches the log: after one the kernel may have dropped the dirty pages, so
// that a second would report success over lost data.
func (l *Log) sync() {
	l.mu.Lock()
	if l.closed || l.cutting || l.failed.Load() != nil || l.logEnd.Load() == l.synced.Load() && !l.dirDirty {
		l.mu.Unlock()
		return
	}
	target := l.logEnd.Load()
	active := l.activeLocked()
	var few [4]*segment
	sealed := append(few[:0], l.pending...)
	snaps := l.snaps[:len(l.snaps):len(l.snaps)]
	dir := l.dirDirty
	l.dirDirty = false
	l.mu.Unlock()

	err := l.syncFiles(sealed, active, snaps, dir)
	if err != nil {
		l.syncFailed(err, dir)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(l.pending[:0], l.pending[len(sealed):]...)
	if n := len(snaps); n > 0 {
		l.lastSnap = snaps[n-1].off
		l.snaps = slices.Clone(l.snaps[n:])
	}
	l.synced.Store(target)
	if l.failed.Load() == nil && l.stable.Load() < target {
		l.stable.Store(target)
	}
}

// syncFailed latches the log, but for want of descriptors: then no sync has begun of the
// file that could not be opened, and all is tried again.
func (l *Log) syncFailed(err error, dir bool) {
	l.mu.Lock()
	closed := l.closed
	l.dirDirty = l.dirDirty || dir
	l.mu.Unlock()
	switch {
	case closed:
	case fsx.IsNoDescriptor(err):
		l.store.log.Warn("sync put off: no file descriptor left", "log", l.name, "err", err)
		l.store.sched.MarkDirty(l.member)
	default:
		_ = l.fail(l.storageError("sync", err))
	}
}

func (l *Log) syncFiles(sealed []*segment, active *segment, snaps []pendingSnapshot, dir bool) error {
	// What a dropped segment holds lies below the log start: nobody needs it durable, and
	// its files may be closed and gone.
	for _, s := range sealed {
		if s.dropped.Load() {
			continue
		}
		if err := s.sync(true); err != nil && !s.dropped.Load() {
			return err
		}
	}
	if err := active.sync(false); err != nil && !active.dropped.Load() {
		return err
	}
	for _, s := range snaps {
		if err := l.writeSnapshot(s); err != nil {
			return err
		}
	}
	if dir {
		return l.store.fs.SyncDir(l.dir)
	}
	return nil
}
