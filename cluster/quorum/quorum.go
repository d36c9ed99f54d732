// Package quorum runs hashicorp/raft over raft-wal for the metadata of a cluster. This
// is the part for one voter: the transport is in memory, and growing by further voters
// needs a network transport and nothing else here to change, since the server id is the
// storage id and not an address.
//
// Everything is synced before it counts as committed. The first failed write or sync of
// raft's files latches them: nothing is written after it, raft shuts down and the node is
// told to stop.
package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
)

// Times of raft. One voter elects itself after the first of them.
const (
	heartbeatTimeout = 150 * time.Millisecond
	leaseTimeout     = 100 * time.Millisecond
	commitTimeout    = 20 * time.Millisecond
	// enqueueTimeout bounds how long a command waits to enter the log.
	enqueueTimeout = 5 * time.Second
)

// Snapshots: one is made when, at a look every snapshotInterval to twice that, so many
// entries have come since the last; so many stay in the log behind it.
const (
	snapshotInterval  = 30 * time.Second
	snapshotThreshold = 8192
	trailingLogs      = 10240
)

// maxBatch bounds the commands that share one sync and one SQLite transaction.
const maxBatch = 256

// Machine is the state machine, and how far it is.
type Machine interface {
	raft.BatchingFSM
	Applied() uint64
	WaitApplied(ctx context.Context, index uint64) error
}

// Quorum is this node's raft. All methods are safe for concurrent use.
type Quorum struct {
	raft   *raft.Raft
	stores *Stores
	fsm    Machine
	group  *lifecycle.Group
	trans  *raft.InmemTransport
	// shutdown begins raft's end once; a second raft.Shutdown would not wait for it.
	shutdown func() raft.Future

	barrierTerm atomic.Uint64 // the term in which a log barrier has passed on this leader

	mu      sync.Mutex
	current *round // guarded by mu: the read barrier under way
	next    *round // guarded by mu: the one that starts after it
}

// ErrForeignLog is returned when the log's servers do not include this folder's storage
// id: the log was copied from another node.
var ErrForeignLog = errors.New("the metadata log belongs to another data folder")

// Start runs raft. With bootstrap set, and only on files without state, it founds a
// quorum of this one voter.
func Start(storageID string, s *Stores, fsm Machine, logger *Logger, bootstrap bool) (*Quorum, error) {
	cfg := raft.DefaultConfig()
	cfg.LocalID = raft.ServerID(storageID)
	cfg.HeartbeatTimeout, cfg.ElectionTimeout = heartbeatTimeout, heartbeatTimeout
	cfg.LeaderLeaseTimeout, cfg.CommitTimeout = leaseTimeout, commitTimeout
	cfg.SnapshotInterval, cfg.SnapshotThreshold, cfg.TrailingLogs = snapshotInterval, snapshotThreshold, trailingLogs
	cfg.MaxAppendEntries = maxBatch
	cfg.NoSnapshotRestoreOnStart = true // the state machine restores itself, from SQLite
	cfg.NoLegacyTelemetry = true
	cfg.Logger = logger.hc

	addr, trans := raft.NewInmemTransport(raft.ServerAddress(storageID))
	if bootstrap {
		servers := raft.Configuration{Servers: []raft.Server{{ID: cfg.LocalID, Address: addr}}}
		if err := raft.BootstrapCluster(cfg, s.Logs, s.stable, s.Snapshots, trans, servers); err != nil {
			return nil, fmt.Errorf("found the metadata quorum: %w", err)
		}
	}
	r, err := raft.NewRaft(cfg, fsm, s.Logs, s.stable, s.Snapshots, trans)
	if err != nil {
		return nil, fmt.Errorf("start raft: %w", errors.Join(err, trans.Close()))
	}
	q := &Quorum{raft: r, stores: s, fsm: fsm, trans: trans, group: lifecycle.New(context.Background())}
	q.shutdown = sync.OnceValue(r.Shutdown)
	s.latch.setOnBreak(func() { q.shutdown() })
	if !q.isServer(cfg.LocalID) {
		return nil, errors.Join(fmt.Errorf("%w: storage id %s is none of its servers", ErrForeignLog, storageID), q.Stop(context.Background()))
	}
	return q, nil
}

func (q *Quorum) isServer(id raft.ServerID) bool {
	for _, s := range q.raft.GetConfiguration().Configuration().Servers {
		if s.ID == id {
			return true
		}
	}
	return false
}

// WaitLeader returns once this node leads and has applied everything in the log.
func (q *Quorum) WaitLeader(ctx context.Context) error {
	observed := make(chan raft.Observation, 16)
	o := raft.NewObserver(observed, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.RaftState)
		return ok
	})
	q.raft.RegisterObserver(o)
	defer q.raft.DeregisterObserver(o)
	for q.raft.State() != raft.Leader {
		if q.raft.State() == raft.Shutdown {
			return q.stopped()
		}
		select {
		case <-observed:
		case <-ctx.Done():
			return fmt.Errorf("wait for leadership of the metadata quorum: %w", context.Cause(ctx))
		}
	}
	return q.Barrier(ctx)
}

func (q *Quorum) stopped() error {
	if err := q.stores.latch.broken(); err != nil {
		return err
	}
	return raft.ErrRaftShutdown
}

// IsLeader reports whether this node leads, as far as it knows.
func (q *Quorum) IsLeader() bool { return q.raft.State() == raft.Leader }

// Leader is the storage id of the leader, "" when there is none.
func (q *Quorum) Leader() string {
	_, id := q.raft.LeaderWithID()
	return string(id)
}

// Apply orders a command and returns the state machine's answer. Errors are a
// *model.Error: quorum-unavailable when the command never entered the log, commit-unknown
// when it may have.
func (q *Quorum) Apply(ctx context.Context, cmd []byte) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, unavailable(err)
	}
	if q.raft.State() == raft.Shutdown {
		return nil, unavailable(q.stopped())
	}
	wait := enqueueTimeout
	if at, ok := ctx.Deadline(); ok {
		wait = min(wait, max(time.Until(at), time.Millisecond))
	}
	f := q.raft.ApplyLog(raft.Log{Data: cmd}, wait)
	if err := q.await(ctx, f); err != nil {
		return nil, applyError(err)
	}
	if err, failed := f.Response().(error); failed {
		return nil, unknown(err)
	}
	return f.Response(), nil
}

// await waits for a future or the context. Futures cannot be cancelled: the goroutine
// ends when raft answers, at the latest at its shutdown.
func (q *Quorum) await(ctx context.Context, f raft.Future) error {
	done := make(chan error, 1)
	if !q.group.Go("raft future", func(context.Context) { done <- f.Error() }) {
		return raft.ErrRaftShutdown
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func applyError(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrEnqueueTimeout),
		errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return unavailable(err)
	}
	return unknown(err)
}

func unavailable(err error) *model.Error {
	return model.Errorf(model.QuorumUnavailable, "no leader of the metadata quorum takes changes now").WithCause(err)
}

func unknown(err error) *model.Error {
	return model.Errorf(model.CommitUnknown, "whether the change was made is not known").WithCause(err)
}

// Stop ends raft, waits for its goroutines until ctx ends, and closes nothing else.
func (q *Quorum) Stop(ctx context.Context) error {
	err := q.await(ctx, q.shutdown())
	left := 10 * time.Second
	if at, ok := ctx.Deadline(); ok {
		left = max(time.Until(at), time.Millisecond)
	}
	return errors.Join(err, q.group.Stop(left), q.trans.Close())
}
