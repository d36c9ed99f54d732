package log

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"tidewire/internal/fsx"
	"tidewire/internal/lifecycle"
)

// syncWorkers is how many fdatasync calls run at a time on a node.
const syncWorkers = 8

// syncState is where a log stands with the scheduler.
type syncState uint8

const (
	syncIdle    syncState = iota
	syncQueued            // waits for a worker
	syncRunning           // a worker has it, until its callbacks have returned
)

// scheduler is the node-wide group commit: it gives logs that must be synced to a
// few workers, each log to one at a time. A log comes into the queue at once when
// somebody waits for it (RequestSync), otherwise one interval after it became
// dirty. The timer runs only while a log is dirty, so an idle node does not wake.
type scheduler struct {
	interval time.Duration
	wake     chan struct{} // a log has become dirty; capacity 1

	mu      sync.Mutex
	work    sync.Cond // queue or stopped changed
	idle    sync.Cond // some log left syncRunning
	queue   []*Log    // guarded by mu: first in, first out from head
	head    int       // guarded by mu
	dirty   []*Log    // guarded by mu
	stopped bool      // guarded by mu
	stop    chan struct{}
	done    sync.WaitGroup
}

func newScheduler(interval time.Duration) *scheduler {
	s := &scheduler{interval: interval, wake: make(chan struct{}, 1), stop: make(chan struct{})}
	s.work.L, s.idle.L = &s.mu, &s.mu
	return s
}

func (s *scheduler) start(g *lifecycle.Group) {
	run := func(name string, fn func(context.Context)) {
		s.done.Add(1)
		if !g.Go(name, func(ctx context.Context) { defer s.done.Done(); fn(ctx) }) {
			s.done.Done()
		}
	}
	run("log-sync-timer", s.timer)
	for range syncWorkers {
		run("log-sync", func(context.Context) { s.worker() })
	}
}

// close ends the workers after what they are doing; queued logs stay unsynced.
func (s *scheduler) close() {
	s.mu.Lock()
	if !s.stopped {
		s.stopped = true
		close(s.stop)
	}
	s.work.Broadcast()
	s.idle.Broadcast()
	s.mu.Unlock()
	s.done.Wait()
}

// timer moves dirty logs into the queue an interval after the first became dirty.
func (s *scheduler) timer(ctx context.Context) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stopped = true
		s.work.Broadcast()
		s.idle.Broadcast()
	}()
	t := time.NewTimer(time.Hour)
	t.Stop()
	defer t.Stop()
	for {
		select {
		case <-s.wake:
		case <-s.stop:
			return
		case <-ctx.Done():
			return
		}
		t.Reset(s.interval)
		select {
		case <-t.C:
		case <-s.stop:
			return
		case <-ctx.Done():
			return
		}
		s.collect()
	}
}

func (s *scheduler) collect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, l := range s.dirty {
		l.dirtyMark.Store(false)
		s.enqueueLocked(l)
		s.dirty[i] = nil
	}
	s.dirty = s.dirty[:0]
}

func (s *scheduler) enqueue(l *Log) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enqueueLocked(l)
}

func (s *scheduler) enqueueLocked(l *Log) {
	switch l.state {
	case syncIdle:
		l.state = syncQueued
		s.queue = append(s.queue, l)
		s.work.Signal()
	case syncRunning:
		l.again = true
	}
}

// next waits for a log; nil when the scheduler stops.
func (s *scheduler) next() *Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.head == len(s.queue) && !s.stopped {
		s.work.Wait()
	}
	if s.stopped {
		return nil
	}
	l := s.queue[s.head]
	s.queue[s.head] = nil
	if s.head++; s.head == len(s.queue) {
		s.queue, s.head = s.queue[:0], 0
	} else if s.head >= 1024 && s.head*2 >= len(s.queue) {
		n := copy(s.queue, s.queue[s.head:])
		clear(s.queue[n:])
		s.queue, s.head = s.queue[:n], 0
	}
	l.state = syncRunning
	l.syncing.Store(true)
	return l
}

func (s *scheduler) worker() {
	for {
		l := s.next()
		if l == nil {
			return
		}
		l.sync()
		// Cleared before the callbacks: who sees Syncing still true is certain that
		// onSyncEnd comes after.
		l.syncing.Store(false)
		s.tell(l)
		s.release(l)
	}
}

// tell calls the callbacks. It compares with what was last told rather than with the
// stable end before the sync: SetConfig may have moved that one meanwhile.
func (s *scheduler) tell(l *Log) {
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
		s.mu.Lock()
		first := !l.told && !errors.Is(err, errClosed)
		l.told = l.told || first
		s.mu.Unlock()
		if first {
			cb.onFail(err)
		}
	}
}

// release gives the log back; what was asked for meanwhile runs next.
func (s *scheduler) release(l *Log) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.state = syncIdle
	if l.again {
		l.again = false
		s.enqueueLocked(l)
	}
	s.idle.Broadcast()
}

// drain takes a log that will not be appended to any more out of the scheduler
// and waits for its running sync. It must not be called from a callback.
func (s *scheduler) drain(l *Log) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, d := range s.dirty {
		if d == l {
			s.dirty = append(s.dirty[:i], s.dirty[i+1:]...)
			break
		}
	}
	for l.state != syncIdle && !(s.stopped && l.state == syncQueued) {
		s.idle.Wait()
	}
}

// waitRunning waits for the sync of a log that runs now and its callbacks. It must not be
// called from one.
func (s *scheduler) waitRunning(l *Log) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l.state == syncRunning {
		s.idle.Wait()
	}
}

// markDirty has the log synced within the interval.
func (l *Log) markDirty() {
	if !l.dirtyMark.CompareAndSwap(false, true) {
		return
	}
	s := l.store.sched
	s.mu.Lock()
	s.dirty = append(s.dirty, l)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// RequestSync says that somebody waits for the stable end: the log is synced at
// once, or again right after the sync that runs now; one sync serves all. Nothing
// happens when all is stable already, as always with WriteCaching.
func (l *Log) RequestSync() {
	if l.stable.Load() < l.logEnd.Load() {
		l.store.sched.enqueue(l)
	}
}

// Syncing reports whether a sync is running now. A true answer means that
// onSyncEnd will be called later.
func (l *Log) Syncing() bool { return l.syncing.Load() }

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
		l.markDirty()
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
