// Package quorum runs hashicorp/raft over raft-wal for the metadata of a cluster. A node
// alone is a quorum of one voter; with streams to other nodes there may be more. A server's id
// and its address are both its storage id: where it is, the streams find out, so that a
// node may move.
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

	"tidewire/cluster/metadata"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
)

// Times of raft. One voter alone does not wait for them.
const (
	heartbeatTimeout = time.Second // without a word of the leader, then an election
	leaseTimeout     = 500 * time.Millisecond
	commitTimeout    = 20 * time.Millisecond
	// transportTime bounds a message between two nodes, and more for a snapshot's bytes.
	transportTime = 5 * time.Second
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
	Image() *metadata.Image
	Applied() uint64
	WaitApplied(ctx context.Context, index uint64) error
}

// Quorum is this node's raft. All methods are safe for concurrent use.
type Quorum struct {
	storageID string
	raft      *raft.Raft
	stores    *Stores
	machine   *recorder
	remote    Remote
	logger    *Logger
	group     *lifecycle.Group
	trans     *raft.NetworkTransport
	// shutdown begins raft's end once; a second raft.Shutdown would not wait for it.
	shutdown func() raft.Future

	barrierTerm atomic.Uint64 // the term in which a log barrier has passed on this leader

	mu      sync.Mutex
	current *round // guarded by mu: the read barrier under way
	next    *round // guarded by mu: the one that starts after it
}

// ErrForeignLog is returned when the log's servers do not include this folder's storage
// id: the log was copied from another node, or the node was removed from its cluster.
var ErrForeignLog = errors.New("the metadata log belongs to another data folder")

// Options is what a Quorum is made of.
type Options struct {
	StorageID string
	Stores    *Stores
	Machine   Machine
	Logger    *Logger
	// Found founds a quorum of this one voter, on files without state.
	Found bool
	// Member says that the folder belongs to a cluster, so that the log must know it. One
	// that is joining may have a log from before it was let in.
	Member  bool
	Streams Streams // to other nodes; nil: this node is alone
	Remote  Remote  // asks the leader; nil with Streams
}

// Start runs raft.
func Start(o Options) (*Quorum, error) {
	cfg := raft.DefaultConfig()
	cfg.LocalID = raft.ServerID(o.StorageID)
	cfg.HeartbeatTimeout, cfg.ElectionTimeout = heartbeatTimeout, heartbeatTimeout
	cfg.LeaderLeaseTimeout, cfg.CommitTimeout = leaseTimeout, commitTimeout
	cfg.SnapshotInterval, cfg.SnapshotThreshold, cfg.TrailingLogs = snapshotInterval, snapshotThreshold, trailingLogs
	cfg.MaxAppendEntries = maxBatch
	cfg.NoSnapshotRestoreOnStart = true // the state machine restores itself, from SQLite
	cfg.NoLegacyTelemetry = true
	cfg.Logger = o.Logger.hc

	q := &Quorum{
		storageID: o.StorageID, stores: o.Stores, machine: newRecorder(o.Machine), remote: o.Remote, logger: o.Logger,
		group: lifecycle.New(context.Background()),
	}
	q.trans = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: newLayer(o.StorageID, o.Streams, q.group), MaxPool: 3, Timeout: transportTime, Logger: o.Logger.hc.Named("transport"),
	})
	if o.Found {
		servers := raft.Configuration{Servers: []raft.Server{{ID: cfg.LocalID, Address: raft.ServerAddress(o.StorageID)}}}
		if err := raft.BootstrapCluster(cfg, o.Stores.Logs, o.Stores.stable, o.Stores.Snapshots, q.trans, servers); err != nil {
			return nil, q.notStarted(fmt.Errorf("found the metadata quorum: %w", err))
		}
	}
	var err error
	if q.raft, err = raft.NewRaft(cfg, q.machine, o.Stores.Logs, o.Stores.stable, o.Stores.Snapshots, q.trans); err != nil {
		return nil, q.notStarted(fmt.Errorf("start raft: %w", err))
	}
	q.shutdown = sync.OnceValue(q.raft.Shutdown)
	o.Stores.latch.setOnBreak(func() { q.shutdown() })
	if (o.Member || o.Streams == nil) && !q.isServer(cfg.LocalID) {
		return nil, errors.Join(fmt.Errorf("%w: storage id %s is none of its servers", ErrForeignLog, o.StorageID), q.Stop(context.Background()))
	}
	q.leadAtOnce()
	return q, nil
}

// notStarted ends what was begun before raft ran.
func (q *Quorum) notStarted(err error) error {
	return errors.Join(err, q.trans.Close(), q.group.Stop(time.Second))
}

func (q *Quorum) isServer(id raft.ServerID) bool {
	for _, s := range q.raft.GetConfiguration().Configuration().Servers {
		if s.ID == id {
			return true
		}
	}
	return false
}

// WaitLeader returns once there is a leader, this node is one of its servers, and it has
// applied everything that was committed before.
func (q *Quorum) WaitLeader(ctx context.Context) error {
	observed := make(chan raft.Observation, 16)
	o := raft.NewObserver(observed, false, func(o *raft.Observation) bool {
		switch o.Data.(type) {
		case raft.RaftState, raft.LeaderObservation:
			return true
		}
		return false
	})
	q.raft.RegisterObserver(o)
	defer q.raft.DeregisterObserver(o)
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		if q.raft.State() == raft.Shutdown {
			return q.stopped()
		}
		if q.IsLeader() || q.remote != nil && q.Leader() != "" && q.isServer(raft.ServerID(q.storageID)) {
			err := q.Barrier(ctx)
			if err == nil || q.remote == nil {
				return err
			}
		}
		select {
		case <-observed:
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for a leader of the metadata quorum: %w", context.Cause(ctx))
		}
	}
}

// lookEvery is how often a node that waits looks whether it was let in, which nothing tells.
const lookEvery = 100 * time.Millisecond

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
	q.handOver(ctx)
	err := q.await(ctx, q.shutdown())
	left := 10 * time.Second
	if at, ok := ctx.Deadline(); ok {
		left = max(time.Until(at), time.Millisecond)
	}
	return errors.Join(err, q.trans.Close(), q.group.Stop(left))
}
