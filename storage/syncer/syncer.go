// Package syncer is the group commit of a node: it shares a few workers among all that must
// be synced.
package syncer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/internal/lifecycle"
)

// Workers is how many fdatasync calls run at a time on a node at most.
const Workers = 8

// fewWorkers is how many do where syncs are quick. More would only leave fewer who wait for
// each sync: the processor is what such a node lacks.
const fewWorkers = 4

// slowSync is how long syncs take, on the average of the last few, when the device is what
// is waited for, so that more of them at a time bring more.
const slowSync = 2 * time.Millisecond

// state is where a member stands with the scheduler.
type state uint8

const (
	idle    state = iota
	queued        // waits for a worker
	running       // a worker has it, until its callbacks have returned
)

// Member is what is synced, of which one worker at a time has charge.
type Member struct {
	sync, tell func()

	state   state       // guarded by Scheduler.mu
	again   bool        // guarded by Scheduler.mu: a sync was asked for meanwhile
	asked   int         // guarded by Scheduler.mu: how many times, beyond the first
	turn    uint64      // guarded by Scheduler.mu: when it came into the queue
	at      int         // guarded by Scheduler.mu: its place in queue.wanted
	syncing atomic.Bool // a sync runs
	dirty   atomic.Bool // since its last sync began
	listed  atomic.Bool // in the scheduler's list of those that were dirty
}

// NewMember makes one of a function that syncs and one that tells of it, which a worker calls
// in turn, holding no lock. Neither is called while another worker is in one of the two.
func NewMember(sync, tell func()) *Member { return &Member{sync: sync, tell: tell} }

// Syncing reports whether a sync is running now. A true answer means that tell is called
// later.
func (m *Member) Syncing() bool { return m.syncing.Load() }

// Scheduler is the node-wide group commit: it gives members that must be synced to a
// few workers, each member to one at a time, those first that most wait for. A member comes into the queue at once when
// somebody waits for it (Enqueue), otherwise one interval after it became dirty (MarkDirty).
// The timer runs only while a member is dirty, so an idle node does not wake.
type Scheduler struct {
	interval time.Duration
	wake     chan struct{} // a member has become dirty; capacity 1

	mu      sync.Mutex
	work    sync.Cond     // queue or stopped changed
	more    sync.Cond     // the same, or pace: for the workers beyond fewWorkers
	idle    sync.Cond     // some member left running
	queue   queue         // guarded by mu
	pace    time.Duration // guarded by mu: what a sync takes, averaged
	dirty   []*Member     // guarded by mu; some have been synced since
	stopped bool          // guarded by mu
	stop    chan struct{}
	done    sync.WaitGroup
}

// New makes a scheduler that syncs what is dirty after an interval.
func New(interval time.Duration) *Scheduler {
	s := &Scheduler{interval: interval, wake: make(chan struct{}, 1), stop: make(chan struct{})}
	s.work.L, s.more.L, s.idle.L = &s.mu, &s.mu, &s.mu
	return s
}

// Start has a group run the timer and the workers. Without them, as in a group that has been
// stopped, nothing is synced.
func (s *Scheduler) Start(g *lifecycle.Group) {
	run := func(name string, fn func(context.Context)) {
		s.done.Add(1)
		if !g.Go(name, func(ctx context.Context) { defer s.done.Done(); fn(ctx) }) {
			s.done.Done()
		}
	}
	run("log-sync-timer", s.timer)
	for n := range Workers {
		run("log-sync", func(context.Context) { s.worker(n >= fewWorkers) })
	}
}

// Close ends the workers after what they are doing; who is queued stays unsynced.
func (s *Scheduler) Close() {
	s.mu.Lock()
	if !s.stopped {
		close(s.stop)
	}
	s.stopLocked()
	s.mu.Unlock()
	s.done.Wait()
}

func (s *Scheduler) stopLocked() {
	s.stopped = true
	s.work.Broadcast()
	s.more.Broadcast()
	s.idle.Broadcast()
}

// timer moves dirty members into the queue an interval after the first became dirty.
func (s *Scheduler) timer(ctx context.Context) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stopLocked()
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

func (s *Scheduler) collect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range s.dirty {
		if m.listed.Store(false); m.dirty.Load() { // else somebody could not wait
			s.enqueueLocked(m)
		}
		s.dirty[i] = nil
	}
	s.dirty = s.dirty[:0]
}

// Enqueue has a member synced at once, or again right after its sync that runs now.
func (s *Scheduler) Enqueue(m *Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enqueueLocked(m)
}

func (s *Scheduler) enqueueLocked(m *Member) {
	switch m.state {
	case idle:
		m.state = queued
		s.queue.push(m)
		s.work.Signal()
		s.callMoreLocked()
	case queued:
		s.queue.ask(m)
	case running:
		if m.again {
			m.asked++
		}
		m.again = true
	}
}

// callMoreLocked wakes a worker beyond fewWorkers when there is something for it.
func (s *Scheduler) callMoreLocked() {
	if s.pace >= slowSync && !s.queue.empty() {
		s.more.Signal()
	}
}

// next waits for a member; nil when the scheduler stops.
func (s *Scheduler) next(extra bool) *Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.stopped && (s.queue.empty() || extra && s.pace < slowSync) {
		if extra {
			s.more.Wait()
		} else {
			s.work.Wait()
		}
	}
	if s.stopped {
		return nil
	}
	m := s.queue.pop()
	m.state = running
	m.syncing.Store(true)
	m.dirty.Store(false)
	return m
}

// worker syncs who is next until the scheduler stops; an extra one while syncs are slow.
func (s *Scheduler) worker(extra bool) {
	for {
		m := s.next(extra)
		if m == nil {
			return
		}
		began := time.Now()
		m.sync()
		took := time.Since(began)
		// Cleared before the callbacks: who sees Syncing still true is certain that
		// they come after.
		m.syncing.Store(false)
		m.tell()
		s.release(m, took)
	}
}

// release gives the member back; what was asked for meanwhile runs next.
func (s *Scheduler) release(m *Member, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pace += (took - s.pace) / 8
	m.state = idle
	if m.again {
		m.again = false
		s.enqueueLocked(m)
	}
	s.callMoreLocked()
	s.idle.Broadcast()
}

// Drain takes a member that will not be dirty any more out of the scheduler
// and waits for its running sync. It must not be called from a callback.
func (s *Scheduler) Drain(m *Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, d := range s.dirty {
		if d == m {
			s.dirty = append(s.dirty[:i], s.dirty[i+1:]...)
			break
		}
	}
	for m.state != idle && !(s.stopped && m.state == queued) {
		s.idle.Wait()
	}
}

// WaitRunning waits for the sync of a member that runs now and its callbacks. It must not be
// called from one.
func (s *Scheduler) WaitRunning(m *Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for m.state == running {
		s.idle.Wait()
	}
}

// MarkDirty has a member synced within the interval.
func (s *Scheduler) MarkDirty(m *Member) {
	m.dirty.Store(true)
	if !m.listed.CompareAndSwap(false, true) {
		return
	}
	s.mu.Lock()
	s.dirty = append(s.dirty, m)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
