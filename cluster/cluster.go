// Package cluster is what the rest of the node sees of the metadata path: an image to
// read, a way to propose commands, a read barrier and a stream of deltas. Raft, SQLite
// and their files stay behind it.
//
// Callers are broker, auth, api and internal/node. Start returns a cluster that can be
// used at once; Stop ends all of its goroutines and closes its files.
package cluster

import (
	"context"
	"log/slog"
	"time"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// Config is what a node brings along.
type Config struct {
	Dir    string         // the node's metadata folder, data-dir/meta; created when missing
	NodeID model.BrokerID // --node-id, not negative

	Host       string // for people, such as the host name
	HTTPAddr   string // advertised addresses, host:port; "" when off
	KafkaAddr  string
	PeerAddr   string
	GossipAddr string
	Rack       string
	Version    string // of the binary

	ClusterName     string // given to a new cluster
	BootstrapExpect int    // 1: a node without state founds a cluster of its own

	Logger *slog.Logger // nil: discards
	// Fatal is called once, from any goroutine, when a local fault (a failed write or
	// sync of raft's log or of SQLite, a command kind this binary does not know) means
	// that the node must stop. It must not block. Afterwards nothing is applied any more.
	Fatal func(error)
	Now   func() time.Time // nil: time.Now
}

// Cluster is this node's part in the metadata quorum. All methods are safe for
// concurrent use.
type Cluster struct{ cfg Config }

// Start opens the metadata folder, rebuilding SQLite when needed, and returns once the
// node leads, everything in the log is applied, the cluster has its id and this node is
// registered and not fenced.
func Start(ctx context.Context, cfg Config) (*Cluster, error) { panic("being written") }

// Image is the newest published image; it costs one atomic load.
func (c *Cluster) Image() *metadata.Image { panic("being written") }

// Propose orders a command and returns once it is applied on this node. A refusal is
// returned as the error, a *model.Error, and also stands in Result.Refusal. When the
// command never entered the log the error is quorum-unavailable (not-applied), when it
// may have, commit-unknown.
func (c *Cluster) Propose(ctx context.Context, cmd metadata.Command) (metadata.Result, error) {
	panic("being written")
}

// Barrier returns once this node has applied everything that was acknowledged by any
// node before the call. Callers that wait at the same time share one round. The error is
// a *model.Error, quorum-unavailable or timeout.
func (c *Cluster) Barrier(ctx context.Context) error { panic("being written") }

// WaitApplied returns once this node has applied a raft index.
func (c *Cluster) WaitApplied(ctx context.Context, index uint64) error { panic("being written") }

// Subscribe calls fn, in order and from one goroutine at a time, for every change
// published after the call. It must not block nor call Propose, Barrier or Stop; old and new are the
// images before and after. After cancel has returned fn is not called any more; cancel
// must not be called from within fn.
func (c *Cluster) Subscribe(fn func(old, new *metadata.Image, d metadata.Delta)) (cancel func()) {
	panic("being written")
}

// NodeID is this node's broker id.
func (c *Cluster) NodeID() model.BrokerID { return c.cfg.NodeID }

// ClusterID is the id of the cluster, a UUID.
func (c *Cluster) ClusterID() string { panic("being written") }

// BrokerEpoch is the epoch of this node's registration.
func (c *Cluster) BrokerEpoch() int64 { panic("being written") }

// Controller is the broker that runs the controller, which is the raft leader; false
// when there is none.
func (c *Cluster) Controller() (model.BrokerID, bool) { panic("being written") }

// Stop ends the node's part in the quorum: it waits until ctx ends for what is
// under way, then closes raft and SQLite.
func (c *Cluster) Stop(ctx context.Context) error { panic("being written") }
