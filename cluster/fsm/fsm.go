// Package fsm applies what raft commits: each batch of commands goes into a new image
// and, together with the raft index, into SQLite in one transaction; then image and delta
// are published.
//
// State. The image is an atomic pointer. Everything else is touched by raft's apply
// goroutine alone, except what mu guards.
//
// Failures. A refusal is a result. While the disk has no room for SQLite nothing is applied, and
// everything waits. A local fault (SQLite cannot be written, a snapshot
// cannot be read, a kind of command this binary does not know) is reported once through
// Fatal, and from then on nothing is applied: a node that has missed a command must not go
// on as if it had not.
package fsm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"tidewire/cluster/metadata"
	"tidewire/storage/meta"
)

// Subscriber is called for every published change, in order, by the apply goroutine. It
// must not block.
type Subscriber func(old, new *metadata.Image, d metadata.Delta)

// FSM is raft's state machine of a node.
type FSM struct {
	store *meta.Store
	log   *slog.Logger
	fatal func(error)
	image atomic.Pointer[metadata.Image]

	failed error // why nothing is applied any more; apply goroutine only

	closing   chan struct{} // closed when nothing waits for room any more
	closeOnce sync.Once
	full      atomic.Bool // the disk has no room for what is to be applied

	mu       sync.Mutex
	applied  uint64         // guarded by mu: index of the last entry applied
	advanced chan struct{}  // guarded by mu: closed when applied grows or the FSM stops
	stopped  error          // guarded by mu: why it will not grow any more
	subs     []*subscribing // guarded by pubMu

	// pubMu is held while subscribers run, so that a cancelled one is not running. Lock
	// order: pubMu, then mu.
	pubMu sync.Mutex
}

type subscribing struct{ fn Subscriber }

var _ raft.BatchingFSM = (*FSM)(nil)

// errStopped answers commands after a local fault.
var errStopped = errors.New("the metadata state machine has stopped")

// Image is the newest published image.
func (f *FSM) Image() *metadata.Image { return f.image.Load() }

// Applied is the raft index of the last entry applied.
func (f *FSM) Applied() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.applied
}

// WaitApplied returns once the entry of that index is applied, the context ends, or the
// FSM has stopped.
func (f *FSM) WaitApplied(ctx context.Context, index uint64) error {
	for {
		f.mu.Lock()
		applied, advanced, stopped := f.applied, f.advanced, f.stopped
		f.mu.Unlock()
		switch {
		case applied >= index:
			return nil
		case stopped != nil:
			return stopped
		}
		select {
		case <-advanced:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Subscribe adds a subscriber. After cancel has returned it is not called any more;
// cancel must not be called by a subscriber.
func (f *FSM) Subscribe(fn Subscriber) (cancel func()) {
	s := &subscribing{fn: fn}
	f.pubMu.Lock()
	defer f.pubMu.Unlock()
	f.subs = append(f.subs, s)
	return func() {
		f.pubMu.Lock()
		defer f.pubMu.Unlock()
		for i, x := range f.subs {
			if x == s {
				f.subs = append(f.subs[:i:i], f.subs[i+1:]...)
				return
			}
		}
	}
}

// Apply implements raft.FSM.
func (f *FSM) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM. Each answer is a metadata.Result or, after a
// local fault, an error. An entry that was applied before a restart is answered with an
// empty result; nobody waits for it.
func (f *FSM) ApplyBatch(logs []*raft.Log) []any {
	answers := make([]any, len(logs))
	if f.failed == nil {
		if err := f.applyBatch(logs, answers); err != nil {
			f.stop(err)
		}
	}
	if f.failed != nil {
		for i := range answers {
			answers[i] = fmt.Errorf("%w: %w", errStopped, f.failed)
		}
	}
	return answers
}

func (f *FSM) applyBatch(logs []*raft.Log, answers []any) error {
	old, applied := f.image.Load(), f.Applied()
	batch, last := metadata.NewBatch(old), applied
	for i, l := range logs {
		answers[i] = metadata.Result{Index: l.Index}
		if l.Index <= applied {
			continue
		}
		last = l.Index
		if l.Type != raft.LogCommand {
			continue
		}
		cmd, err := metadata.DecodeCommand(l.Data)
		if err != nil {
			return fmt.Errorf("metadata log entry %d: %w", l.Index, err)
		}
		answers[i] = batch.Apply(l.Index, cmd)
	}
	if last == applied {
		return nil
	}
	next, d := batch.Commit()
	if err := f.write(func() error { return f.store.Apply(old, next, d, last) }); err != nil {
		return err
	}
	f.publish(old, next, d, last)
	return nil
}

// roomEvery is between two tries of a write that the disk has no room for.
const roomEvery = 200 * time.Millisecond

// write writes to SQLite. While the disk is full it waits for room: what raft has committed will
// be applied, and until then the image is an old one, as on a node that is slow.
func (f *FSM) write(write func() error) error {
	err := write()
	if !errors.Is(err, meta.ErrFull) {
		return err
	}
	f.full.Store(true)
	defer f.full.Store(false)
	f.log.Warn("the disk is full: changes of metadata wait for room before they are in force on this node", "error", err)
	tick := time.NewTicker(roomEvery)
	defer tick.Stop()
	for errors.Is(err, meta.ErrFull) {
		select {
		case <-tick.C:
		case <-f.closing:
			return errClosing
		}
		err = write()
	}
	if err == nil {
		f.log.Info("the disk has room again: changes of metadata are in force on this node")
	}
	return err
}

// errClosing: what waits for room is applied by the next start.
var errClosing = errors.New("the node stops")

// WaitsForRoom tells that the disk has no room for what is to be applied.
func (f *FSM) WaitsForRoom() bool { return f.full.Load() }

// Closing lets nothing wait for room any more, so that raft can be shut down.
func (f *FSM) Closing() { f.closeOnce.Do(func() { close(f.closing) }) }

// publish makes the image visible, runs the subscribers and wakes who waits.
func (f *FSM) publish(old, next *metadata.Image, d metadata.Delta, applied uint64) {
	f.pubMu.Lock()
	f.image.Store(next)
	if !d.IsEmpty() {
		for _, s := range f.subs {
			s.fn(old, next, d)
		}
	}
	f.pubMu.Unlock()

	f.mu.Lock()
	defer f.mu.Unlock()
	f.applied = applied
	close(f.advanced)
	f.advanced = make(chan struct{})
}

func (f *FSM) stop(err error) {
	f.failed = err
	f.mu.Lock()
	f.stopped = fmt.Errorf("%w: %w", errStopped, err)
	close(f.advanced)
	f.advanced = make(chan struct{})
	f.mu.Unlock()
	if !errors.Is(err, errClosing) {
		f.fatal(err)
	}
}

// Snapshot implements raft.FSM; the image does not change, so it needs no copy.
func (f *FSM) Snapshot() (raft.FSMSnapshot, error) {
	if f.failed != nil {
		return nil, errStopped
	}
	return snapshot{f.image.Load()}, nil
}

// Restore implements raft.FSM: a leader sent its snapshot because this node was too
// far behind.
func (f *FSM) Restore(r io.ReadCloser) error {
	next, err := readSnapshot(r)
	if err != nil {
		return err
	}
	old := f.image.Load()
	if err := f.write(func() error { return f.store.Replace(next, next.Index()) }); err != nil {
		f.stop(err)
		return err
	}
	f.publish(old, next, metadata.Diff(old, next), next.Index())
	return nil
}

// Close closes the store. Raft must have been shut down.
func (f *FSM) Close() error {
	f.mu.Lock()
	if f.stopped == nil {
		f.stopped = errStopped
		close(f.advanced)
		f.advanced = make(chan struct{})
	}
	f.mu.Unlock()
	return f.store.Close()
}

// maxSnapshot bounds what is read of a snapshot, against a damaged length.
const maxSnapshot = 1 << 30

func readSnapshot(r io.ReadCloser) (*metadata.Image, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxSnapshot+1))
	err = errors.Join(err, r.Close())
	if err != nil {
		return nil, fmt.Errorf("read a metadata snapshot: %w", err)
	}
	if len(b) > maxSnapshot {
		return nil, errors.New("a metadata snapshot is larger than 1 GiB")
	}
	return metadata.Decode(b)
}

type snapshot struct{ image *metadata.Image }

// Persist implements raft.FSMSnapshot.
func (s snapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(metadata.Encode(s.image)); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (snapshot) Release() {}
