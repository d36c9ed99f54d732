package quorum

import (
	"context"
	"errors"

	"github.com/hashicorp/raft"

	"tidewire/internal/model"
)

// round is one read barrier that several callers share.
type round struct {
	done chan struct{}
	err  error // set before done is closed
}

// Barrier returns once this node has applied everything that was committed before the
// call. Callers that come while a round is under way share the next one: the one under way
// may have looked at the commit index before they came.
func (q *Quorum) Barrier(ctx context.Context) error {
	q.mu.Lock()
	r := q.next
	if r == nil {
		r = &round{done: make(chan struct{})}
		if q.current == nil {
			q.startLocked(r)
		} else {
			q.next = r
		}
	}
	q.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return barrierError(context.Cause(ctx))
	}
}

// startLocked begins a round; when it ends it begins the next, if anybody waits.
func (q *Quorum) startLocked(r *round) {
	q.current = r
	started := q.group.Go("read barrier", func(ctx context.Context) { q.finish(r, q.barrier(ctx)) })
	if !started {
		q.current = nil
		r.err = barrierError(raft.ErrRaftShutdown)
		close(r.done)
	}
}

func (q *Quorum) finish(r *round, err error) {
	if err != nil {
		r.err = barrierError(err)
	}
	close(r.done)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.current = nil
	if next := q.next; next != nil {
		q.next = nil
		q.startLocked(next)
	}
}

func barrierError(err error) error {
	var known *model.Error
	if errors.As(err, &known) {
		return known
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return model.Errorf(model.Timeout, "the metadata quorum did not answer in time").WithCause(err).WithOutcome(model.NotApplied)
	}
	return unavailable(err)
}

// barrier lets everything committed before it be applied. A sole voter that has
// committed an entry of its own term need write nothing: nobody else can have committed
// anything (the read index of the Raft dissertation, §6.4). Otherwise a barrier goes through
// the log. It does not use raft.VerifyLeader, whose future is never answered when raft
// shuts down at the wrong moment.
func (q *Quorum) barrier(ctx context.Context) error {
	if q.raft.State() == raft.Shutdown {
		return q.stopped()
	}
	if q.remote != nil && !q.IsLeader() {
		return q.readRemote(ctx)
	}
	term := q.raft.CurrentTerm()
	if q.barrierTerm.Load() != term || !q.IsSoleVoter() || !q.IsLeader() {
		if err := q.await(ctx, q.raft.Barrier(enqueueTimeout)); err != nil {
			return err
		}
		q.barrierTerm.Store(term)
		return nil
	}
	index, err := q.lastDelivered(q.raft.CommitIndex())
	if err != nil {
		return err
	}
	return q.machine.WaitApplied(ctx, index)
}

// IsSoleVoter reports whether this node is the only one that votes; others may follow.
func (q *Quorum) IsSoleVoter() bool {
	voters := 0
	for _, s := range q.raft.GetConfiguration().Configuration().Servers {
		if s.Suffrage == raft.Voter {
			if s.ID != raft.ServerID(q.storageID) {
				return false
			}
			voters++
		}
	}
	return voters == 1
}

// lastDelivered is the last index up to commit that the state machine is told of: raft
// keeps barriers and its own no-ops to itself, so waiting for those would never end.
func (q *Quorum) lastDelivered(commit uint64) (uint64, error) {
	for index := commit; index > q.machine.Applied(); index-- {
		var l raft.Log
		if err := q.stores.Logs.GetLog(index, &l); err != nil {
			return 0, err
		}
		if l.Type == raft.LogCommand || l.Type == raft.LogConfiguration {
			return index, nil
		}
	}
	return 0, nil
}
