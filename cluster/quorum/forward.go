package quorum

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"

	"tidewire/internal/model"
)

// Remote asks the node that leads the quorum, named by its storage id.
type Remote interface {
	// Propose has the leader order a command, and returns its index once the leader has
	// applied it. An error that says quorum-unavailable means that the command entered no
	// log, so that it may be tried again.
	Propose(ctx context.Context, leader string, cmd []byte) (index uint64, err error)
	// ReadIndex returns an index that covers everything that was committed before the call.
	// Its errors are the same.
	ReadIndex(ctx context.Context, leader string) (index uint64, err error)
}

// retryPause is between two looks for a leader.
const retryPause = 25 * time.Millisecond

// remoteTime bounds a wait at the leader that nobody has given a deadline.
const remoteTime = 10 * time.Second

// Apply orders a command, here or at the leader, and returns the state machine's answer
// once this node has applied it. While there is no leader it waits, 5 s at most. Errors are a
// *model.Error: quorum-unavailable when the command never entered the log, commit-unknown
// when it may have.
func (q *Quorum) Apply(ctx context.Context, cmd []byte) (any, error) {
	give := time.NewTimer(enqueueTimeout)
	defer give.Stop()
	for {
		answer, err := q.applyOnce(ctx, cmd)
		if err == nil || !q.mayRetry(ctx, err) {
			return answer, err
		}
		if !q.pause(ctx, give.C) {
			return nil, err
		}
	}
}

// mayRetry: the command is in no log, and another look may find a leader.
func (q *Quorum) mayRetry(ctx context.Context, err error) bool {
	return model.HasCode(err, model.QuorumUnavailable) && ctx.Err() == nil && q.remote != nil && q.raft.State() != raft.Shutdown
}

// pause reports whether there is time for another try.
func (q *Quorum) pause(ctx context.Context, give <-chan time.Time) bool {
	t := time.NewTimer(retryPause)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-give:
	case <-ctx.Done():
	}
	return false
}

func (q *Quorum) applyOnce(ctx context.Context, cmd []byte) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, unavailable(err)
	}
	if q.raft.State() == raft.Shutdown {
		return nil, unavailable(q.stopped())
	}
	leader := q.Leader()
	if q.IsLeader() || q.remote == nil || leader == q.storageID {
		answer, _, err := q.applyHere(ctx, cmd)
		return answer, err
	}
	if leader == "" {
		return nil, unavailable(errNoLeader)
	}
	_, done := q.machine.expect()
	defer done()
	index, err := q.remote.Propose(ctx, leader, cmd)
	if err != nil {
		return nil, err
	}
	answer, found, err := q.machine.take(ctx, index)
	switch {
	case err != nil:
		return nil, unknown(err)
	case !found:
		return nil, unknown(errNoAnswer)
	}
	if err, failed := answer.(error); failed {
		return nil, unknown(err)
	}
	return answer, nil
}

var (
	errNoLeader = errors.New("there is no leader")
	errNoAnswer = errors.New("this node was sent a snapshot in place of the change")
)

// ApplyForOther orders a command that another node has sent here, as the leader, and
// returns its index.
func (q *Quorum) ApplyForOther(ctx context.Context, cmd []byte) (index uint64, err error) {
	if !q.IsLeader() {
		return 0, unavailable(raft.ErrNotLeader)
	}
	_, index, err = q.applyHere(ctx, cmd)
	return index, err
}

// applyHere orders a command as the leader.
func (q *Quorum) applyHere(ctx context.Context, cmd []byte) (answer any, index uint64, err error) {
	wait := enqueueTimeout
	if at, ok := ctx.Deadline(); ok {
		wait = min(wait, max(time.Until(at), time.Millisecond))
	}
	f := q.raft.ApplyLog(raft.Log{Data: cmd}, wait)
	if err := q.await(ctx, f); err != nil {
		return nil, 0, applyError(err)
	}
	if err, failed := f.Response().(error); failed {
		return nil, 0, unknown(err)
	}
	return f.Response(), f.Index(), nil
}

// ReadIndexForOther is the read barrier that another node asks this one for, as the leader.
func (q *Quorum) ReadIndexForOther(ctx context.Context) (uint64, error) {
	if !q.IsLeader() {
		return 0, unavailable(raft.ErrNotLeader)
	}
	if err := q.Barrier(ctx); err != nil {
		return 0, err
	}
	return q.machine.Image().Index(), nil
}

// readRemote waits until this node has applied what the leader had committed.
func (q *Quorum) readRemote(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, remoteTime)
	defer cancel()
	give := time.NewTimer(enqueueTimeout)
	defer give.Stop()
	for {
		err := q.readOnce(ctx)
		if err == nil || !q.mayRetry(ctx, err) || !q.pause(ctx, give.C) {
			return err
		}
	}
}

func (q *Quorum) readOnce(ctx context.Context) error {
	leader := q.Leader()
	switch leader {
	case "":
		return unavailable(errNoLeader)
	case q.storageID:
		return q.await(ctx, q.raft.Barrier(enqueueTimeout))
	}
	index, err := q.remote.ReadIndex(ctx, leader)
	if err != nil {
		return err
	}
	return q.machine.WaitApplied(ctx, index)
}
