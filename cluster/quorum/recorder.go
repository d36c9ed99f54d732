package quorum

import (
	"context"
	"io"
	"sync"

	"github.com/hashicorp/raft"
)

// recorder stands between raft and the state machine and keeps the answers of entries while
// somebody here waits for one that another node has proposed for them: the state machine is
// deterministic, so that the answer here is the one that the leader got.
type recorder struct {
	Machine

	mu       sync.Mutex
	waiting  map[*expectation]bool // guarded by mu
	kept     []answer              // guarded by mu: in order of indexes
	last     uint64                // guarded by mu: index of the last entry seen
	advanced chan struct{}         // guarded by mu: closed when last grows
}

type answer struct {
	index uint64
	value any
}

// expectation is somebody who waits for an answer; only entries after from can be it.
type expectation struct{ from uint64 }

func newRecorder(m Machine) *recorder {
	return &recorder{Machine: m, waiting: map[*expectation]bool{}, last: m.Applied(), advanced: make(chan struct{})}
}

// Apply implements raft.FSM.
func (r *recorder) Apply(l *raft.Log) any { return r.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM.
func (r *recorder) ApplyBatch(logs []*raft.Log) []any {
	answers := r.Machine.ApplyBatch(logs)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) > 0 {
		for i, l := range logs {
			if l.Type == raft.LogCommand {
				r.kept = append(r.kept, answer{l.Index, answers[i]})
			}
		}
	}
	r.advanceLocked(logs[len(logs)-1].Index)
	return answers
}

// Restore implements raft.FSM.
func (r *recorder) Restore(s io.ReadCloser) error {
	if err := r.Machine.Restore(s); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advanceLocked(r.Applied())
	return nil
}

func (r *recorder) advanceLocked(to uint64) {
	r.last = max(r.last, to)
	close(r.advanced)
	r.advanced = make(chan struct{})
}

// expect keeps answers from now on, until done is called.
func (r *recorder) expect() (e *expectation, done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e = &expectation{from: r.last}
	r.waiting[e] = true
	return e, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.waiting, e)
		r.dropLocked()
	}
}

// dropLocked forgets the answers that nobody can wait for any more.
func (r *recorder) dropLocked() {
	if len(r.waiting) == 0 {
		r.kept = nil
		return
	}
	first := r.last
	for e := range r.waiting {
		first = min(first, e.from)
	}
	n := 0
	for n < len(r.kept) && r.kept[n].index <= first {
		n++
	}
	r.kept = r.kept[n:]
}

// take waits for the answer of an entry. It is not there when this node got a snapshot in
// place of the entry.
func (r *recorder) take(ctx context.Context, index uint64) (value any, found bool, err error) {
	for {
		r.mu.Lock()
		for _, a := range r.kept {
			if a.index == index {
				r.mu.Unlock()
				return a.value, true, nil
			}
		}
		passed, advanced := r.last >= index, r.advanced
		r.mu.Unlock()
		if passed {
			return nil, false, nil
		}
		select {
		case <-advanced:
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}
