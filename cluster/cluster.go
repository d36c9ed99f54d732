// Package cluster is what the rest of the node sees of the metadata path: an image to
// read, a way to propose commands, a read barrier and a stream of deltas. Raft, SQLite
// and their files stay behind it.
//
// Callers are broker, auth, api and internal/node. Start returns a cluster that can be
// used at once; Stop ends all of its goroutines and closes its files.
//
// Order of a change: encoded, appended to raft's log and synced, applied to the image and
// to SQLite in one transaction, published with its delta, answered. What an answered
// proposal changed is in Image() of this node.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/cluster/founding"
	"tidewire/cluster/fsm"
	"tidewire/cluster/metadata"
	"tidewire/cluster/peer"
	"tidewire/cluster/quorum"
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
	// MetadataVersion is the newest that this binary knows; 0: metadata.CurrentMetadataVersion, for
	// all but tests.
	MetadataVersion metadata.MetadataVersion

	ClusterName string // given to a new cluster
	// BootstrapExpect: 1, and a node without state founds a cluster of its own; more, and it
	// founds one with so many nodes; 0, and it waits to be taken in. Other than 1 needs Network.
	BootstrapExpect int
	Network         *Network // nil: this node is alone

	Logger *slog.Logger // nil: discards
	// Fatal is called, once per fault and from any goroutine, when a local fault (a
	// failed write or sync of raft's log or of SQLite, a command kind this binary does not
	// know) means that the node must stop. It must not block. Afterwards nothing is applied
	// any more. nil: only logged.
	Fatal func(error)
	Now   func() time.Time // nil: time.Now
	// Room makes room on the disk for so many bytes, where it can, and returns the free
	// bytes. It is called before each write of metadata. nil: there is room.
	Room func(need int64) int64
	// Waits is told again and again what the start of the node waits for, such as "1 more
	// nodes: 2 of 3 are there". nil: nobody is.
	Waits func(what string)
}

// Cluster is this node's part in the metadata quorum. All methods are safe for
// concurrent use.
type Cluster struct {
	cfg         Config
	incarnation uint64

	stores *quorum.Stores
	fsm    *fsm.FSM
	quorum *quorum.Quorum
	net    *network // nil: this node is alone

	identityMu sync.Mutex
	identity   quorum.Identity // guarded by identityMu: its cluster id may be chosen and not committed
	savedID    string          // the cluster id on disk, at the start
	membersMu  sync.Mutex      // guards net.members until openGossip has returned

	foundingMu   sync.Mutex
	founder      *founding.Founder // guarded by foundingMu; nil: it has no part in founding
	grant        quorum.Grant      // guarded by foundingMu: what is on disk
	founderWaits string            // guarded by foundingMu: what founding waits for

	wasRegistered bool // by this data folder, in an earlier life

	clusterID string
	epoch     int64
	stopping  atomic.Bool // this node is about to stop

	data atomic.Pointer[peer.Handler] // nil: calls for records and groups are not answered yet

	stop func(context.Context) error // once
}

// Start opens the metadata folder, rebuilding SQLite when needed, and returns once the
// quorum has a leader, everything in the log is applied, the cluster has its id and this node
// is registered and not fenced. A node that waits for others waits until ctx ends, and logs
// what it waits for.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	cfg.fillDefaults()
	c := &Cluster{cfg: cfg}
	var once sync.Once
	var stopErr error
	c.stop = func(ctx context.Context) error {
		once.Do(func() { stopErr = c.close(ctx) })
		return stopErr
	}
	if err := c.start(ctx); err != nil {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		return nil, errors.Join(err, c.stop(stopping))
	}
	return c, nil
}

// closeTimeout bounds the end of a cluster that did not start.
const closeTimeout = 10 * time.Second

func (cfg *Config) fillDefaults() {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.MetadataVersion == 0 {
		cfg.MetadataVersion = metadata.CurrentMetadataVersion
	}
	fatal, log := cfg.Fatal, cfg.Logger
	cfg.Fatal = func(err error) {
		log.Error("the metadata of this node has failed; it must stop", "error", err)
		if fatal != nil {
			fatal(err)
		}
	}
}

func (c *Cluster) start(ctx context.Context) error {
	if err := c.open(); err != nil {
		return err
	}
	if err := c.lookBack(); err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	first := c.net != nil && c.net.members != nil
	if first {
		c.startLoops(fail)
	}
	if err := c.quorum.WaitLeader(ctx); err != nil {
		return err
	}
	if err := c.settleID(ctx); err != nil {
		return err
	}
	if c.net != nil && !first {
		c.startLoops(fail)
	}
	if err := c.checkVersion(); err != nil {
		return err
	}
	if err := c.checkPlace(); err != nil {
		return err
	}
	if err := c.register(ctx); err != nil {
		return err
	}
	if err := c.noteRegistered(); err != nil {
		return err
	}
	if err := c.settled(); err != nil {
		return err
	}
	return c.awaitVotes(ctx)
}

// startLoops begins what a node with others around it does; fail ends the node's start.
func (c *Cluster) startLoops(fail context.CancelCauseFunc) {
	close(c.net.up)
	g := c.net.group
	g.Go("join", func(ctx context.Context) { c.joinLoop(ctx, fail) })
	if c.founder != nil {
		g.Go("found", func(ctx context.Context) { c.foundLoop(ctx, fail) })
	}
	g.Go("controller of servers", func(ctx context.Context) { c.controlLoop(ctx, c.controlServers) })
	g.Go("controller of brokers", func(ctx context.Context) { c.controlLoop(ctx, c.controlFencing) })
	g.Go("controller of partitions", func(ctx context.Context) { c.controlLoop(ctx, c.controlPartitions) })
}

// settled begins what a registered node does.
func (c *Cluster) settled() error {
	if c.net == nil {
		return nil
	}
	c.net.group.Go("heartbeats", c.beatLoop)
	close(c.net.ready)
	return c.dropGrant()
}

// Image is the newest published image; it costs one atomic load.
func (c *Cluster) Image() *metadata.Image { return c.fsm.Image() }

// Propose orders a command and returns once it is applied on this node. A refusal is
// returned as the error, a *model.Error, and also stands in Result.Refusal. When the
// command never entered the log the error is quorum-unavailable (not-applied), when it
// may have, commit-unknown; storage-full (not-applied) when the disk has no room left.
func (c *Cluster) Propose(ctx context.Context, cmd metadata.Command) (metadata.Result, error) {
	b, err := metadata.EncodeCommand(cmd)
	if err != nil {
		return metadata.Result{}, err
	}
	if !c.mayPropose(b) {
		return metadata.Result{}, model.Errorf(model.StorageFull, "the disk is full: there is no room even for metadata; deleting topics or records makes room")
	}
	answer, err := c.quorum.Apply(ctx, b)
	if err != nil {
		return metadata.Result{}, err
	}
	res, ok := answer.(metadata.Result)
	if !ok {
		return metadata.Result{}, fmt.Errorf("the state machine answered %T", answer)
	}
	if res.Refusal != nil {
		return res, res.Refusal
	}
	return res, nil
}

// minRoom is the free space, in bytes, below which no command is taken: a write that the
// disk has no room for would stop the node. The last of it is for what makes room.
const (
	minRoom     = 1 << 20
	minLastRoom = 64 << 10
)

// mayPropose tells whether there is room for an encoded command, as far as this node can tell. The
// leader decides; others write it in any case, and only need to see what becomes of it.
func (c *Cluster) mayPropose(cmd []byte) bool {
	if c.quorum.IsLeader() {
		return c.roomFor(cmd)
	}
	return c.room(minLastRoom) >= minLastRoom
}

// roomFor tells whether this node, as the leader, has room for an encoded command.
func (c *Cluster) roomFor(cmd []byte) bool {
	free := c.room(minRoom)
	return free >= minRoom || free >= minLastRoom && metadata.KindOf(cmd).MakesRoom()
}

// full tells that this node has no room for changes but by what can be given up, which is kept for
// when it is needed.
func (c *Cluster) full() bool { return c.room(0) < minRoom }

// room is the free space after what can be given up was.
func (c *Cluster) room(need int64) int64 {
	if c.cfg.Room == nil {
		return math.MaxInt64
	}
	return c.cfg.Room(need)
}

// Barrier returns once this node has applied everything that was acknowledged by any
// node before the call. Callers that wait at the same time share one round. The error is
// a *model.Error, quorum-unavailable or timeout.
func (c *Cluster) Barrier(ctx context.Context) error { return c.quorum.Barrier(ctx) }

// WaitApplied returns once this node has applied a raft index. The error is a
// *model.Error, timeout or quorum-unavailable.
func (c *Cluster) WaitApplied(ctx context.Context, index uint64) error {
	err := c.fsm.WaitApplied(ctx, index)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return model.Errorf(model.Timeout, "the change was not applied here in time").WithCause(err)
	}
	return model.Errorf(model.QuorumUnavailable, "this node applies no changes any more").WithCause(err)
}

// Subscribe calls fn, in order and from one goroutine at a time, for every change
// published after the call; old and new are the images before and after. It must not
// block nor call Propose, Barrier or Stop. To start from a whole state, subscribe first
// and then read Image. After cancel has returned fn is not called any more; cancel must
// not be called from within fn.
func (c *Cluster) Subscribe(fn func(old, new *metadata.Image, d metadata.Delta)) (cancel func()) {
	return c.fsm.Subscribe(fn)
}

// NodeID is this node's broker id.
func (c *Cluster) NodeID() model.BrokerID { return c.cfg.NodeID }

// ClusterID is the id of the cluster, a UUID.
func (c *Cluster) ClusterID() string { return c.clusterID }

// StorageID is the id of this node's data folder, a UUID.
func (c *Cluster) StorageID() string { return c.identityNow().StorageID }

// BrokerEpoch is the epoch of this node's registration, a raft index.
func (c *Cluster) BrokerEpoch() int64 { return c.epoch }

// Controller is the broker that runs the controller, which is the raft leader; false
// when there is none.
func (c *Cluster) Controller() (model.BrokerID, bool) {
	leader := c.quorum.Leader()
	for b := range c.Image().Brokers() {
		if b.StorageID == leader {
			return b.ID, true
		}
	}
	return 0, false
}

// Stop ends the node's part in the quorum: it waits until ctx ends for what is
// under way, then closes raft and SQLite. A second call returns what the first did.
func (c *Cluster) Stop(ctx context.Context) error { return c.stop(ctx) }

// close closes what was opened, in reverse.
func (c *Cluster) close(ctx context.Context) error {
	var errs []error
	if c.net != nil {
		errs = append(errs, c.net.group.Stop(stepTime)) // nothing is decided any more
	}
	if c.fsm != nil {
		c.fsm.Closing()
	}
	if c.quorum != nil {
		errs = append(errs, c.quorum.Stop(ctx))
	}
	errs = append(errs, c.closeNetwork(ctx))
	if c.fsm != nil {
		errs = append(errs, c.fsm.Close())
	}
	if c.stores != nil {
		errs = append(errs, c.stores.Close())
	}
	return errors.Join(errs...)
}
