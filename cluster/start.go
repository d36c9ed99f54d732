package cluster

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"tidewire/cluster/fsm"
	"tidewire/cluster/metadata"
	"tidewire/cluster/quorum"
	"tidewire/internal/model"
)

// databaseFile is the name of the SQLite file within the metadata folder.
const databaseFile = "tidewire.db"

// Errors of Start that an operator must resolve. Each says in one line what is wrong.
var (
	// ErrForeignCluster: the log is of another cluster than the identity file names.
	ErrForeignCluster = errors.New("the metadata folder holds the log of another cluster")
	// ErrLogMissing: the folder belonged to a cluster and its log is gone.
	ErrLogMissing = errors.New("the metadata log is gone")
	// ErrIdentityMissing: there is a log, but not whose.
	ErrIdentityMissing = errors.New("the identity file is gone")
	// ErrNewerMetadata: the cluster's metadata is of a version that this binary does not know.
	ErrNewerMetadata = errors.New("the cluster's metadata is newer than this version of Tidewire")
	// ErrNoCluster: there is no state, and the node may not found a cluster.
	ErrNoCluster = errors.New("this node belongs to no cluster and may not found one alone")
)

// open opens identity, stores and state machine and starts raft.
func (c *Cluster) open() error {
	if c.cfg.NodeID < 0 {
		return fmt.Errorf("node id %d is negative", c.cfg.NodeID)
	}
	if err := os.MkdirAll(c.cfg.Dir, 0o700); err != nil {
		return err
	}
	id, found, err := quorum.LoadIdentity(c.cfg.Dir)
	if err != nil {
		return fmt.Errorf("%s: %w", c.cfg.Dir, err)
	}
	logger := quorum.NewLogger(c.cfg.Logger)
	if c.stores, err = quorum.OpenStores(c.cfg.Dir, logger, c.cfg.Fatal, func(need int64) { c.room(need) }); err != nil {
		return err
	}
	hasState, err := c.stores.HasState()
	if err != nil {
		return fmt.Errorf("metadata log: %w", err)
	}
	if err := c.checkFolder(id, found, hasState); err != nil {
		return err
	}
	if !found {
		if id.StorageID, err = newUUID(); err != nil {
			return err
		}
		if err := quorum.SaveIdentity(c.cfg.Dir, id); err != nil {
			return err
		}
	}
	c.setIdentity(id)
	if err := c.newFounder(id, hasState); err != nil {
		return err
	}
	c.fsm, err = fsm.Open(fsm.Config{
		Path: filepath.Join(c.cfg.Dir, databaseFile), ClusterID: id.ClusterID,
		Snapshots: c.stores.Snapshots, Logs: c.stores.Logs, Logger: c.cfg.Logger, Fatal: c.cfg.Fatal,
	})
	if err != nil {
		return err
	}
	if c.cfg.Network != nil {
		if err := c.openPort(); err != nil {
			return err
		}
	}
	streams, remote := c.streams()
	c.quorum, err = quorum.Start(quorum.Options{
		StorageID: id.StorageID, Stores: c.stores, Machine: c.fsm, Logger: logger, Streams: streams, Remote: remote,
		Found: !hasState && c.cfg.BootstrapExpect == 1, Member: id.ClusterID != "",
	})
	if err != nil {
		return err
	}
	c.savedID = id.ClusterID
	if c.net == nil || c.needsNobody() {
		return nil
	}
	return c.openGossip()
}

// needsNobody: this node is the only voter of a cluster whose id it does not know yet. It
// lets nobody see it before it does: another cluster would take it for one that wants in.
func (c *Cluster) needsNobody() bool { return c.savedID == "" && c.quorum.IsSoleVoter() }

func (c *Cluster) identityNow() quorum.Identity {
	c.identityMu.Lock()
	defer c.identityMu.Unlock()
	return c.identity
}

func (c *Cluster) setIdentity(id quorum.Identity) {
	c.identityMu.Lock()
	defer c.identityMu.Unlock()
	c.identity = id
}

// checkFolder refuses a folder whose parts do not belong together: going on would found
// a new, empty cluster over the remains of an old one.
func (c *Cluster) checkFolder(id quorum.Identity, found, hasState bool) error {
	switch {
	case hasState && !found:
		return fmt.Errorf("%s: %w, but there is a log in raft/; put the file back", c.cfg.Dir, ErrIdentityMissing)
	case !hasState && id.ClusterID != "":
		return fmt.Errorf("%s: %w: the folder belongs to cluster %s, and raft/ holds nothing; restore it, or start with an empty data folder",
			c.cfg.Dir, ErrLogMissing, id.ClusterID)
	case !hasState && c.cfg.BootstrapExpect != 1 && c.cfg.Network == nil:
		return fmt.Errorf("%w: expected are %d nodes", ErrNoCluster, c.cfg.BootstrapExpect)
	}
	return nil
}

// settleID makes log and identity file agree on the cluster id; a new cluster gets its
// id as the first command.
func (c *Cluster) settleID(ctx context.Context) error {
	for c.Image().Cluster().ID == "" {
		if err := c.giveID(ctx); err != nil {
			return err
		}
	}
	id, own := c.Image().Cluster().ID, c.identityNow()
	if c.savedID != "" && c.savedID != id {
		return fmt.Errorf("%s: %w: the identity file says %s, the log %s", c.cfg.Dir, ErrForeignCluster, c.savedID, id)
	}
	c.clusterID = id
	if c.savedID != id {
		own.ClusterID = id
		if err := quorum.SaveIdentity(c.cfg.Dir, own); err != nil {
			return err
		}
		c.setIdentity(own)
	}
	switch {
	case c.net == nil:
		return nil
	case c.net.members == nil:
		return c.openGossip()
	}
	return c.net.members.SetCluster(id)
}

// checkVersion refuses to take part where others may decide by rules that this binary does not know.
func (c *Cluster) checkVersion() error {
	if v := c.Image().Cluster().MetadataVersion; v > c.cfg.MetadataVersion {
		return fmt.Errorf("%w: it has version %d, and this one (%s) knows %d at most; start this node with the version that the others run",
			ErrNewerMetadata, v, c.cfg.Version, c.cfg.MetadataVersion)
	}
	return nil
}

// giveID gives a new cluster its id, as its founder; others wait for that.
func (c *Cluster) giveID(ctx context.Context) error {
	if c.net != nil && (!c.quorum.IsLeader() || !c.quorum.IsSoleVoter()) {
		if !wait(ctx, retryEvery) {
			return fmt.Errorf("wait for the cluster's id: %w", context.Cause(ctx))
		}
		return nil
	}
	if err := c.chooseID(); err != nil {
		return err
	}
	_, err := c.Propose(ctx, metadata.BootstrapCluster{
		ClusterID: c.identityNow().ClusterID, Name: c.cfg.ClusterName, MetadataVersion: c.cfg.MetadataVersion,
		Now: metadata.MillisOf(c.cfg.Now()),
	})
	if err != nil && !model.HasCode(err, model.Conflict) {
		return fmt.Errorf("give the cluster its id: %w", err)
	}
	return nil
}

// retryEvery is between two tries of what a starting node needs of others.
const retryEvery = 200 * time.Millisecond

func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// register makes this process known and, since it has applied its own registration when
// Propose returns, unfences it.
func (c *Cluster) register(ctx context.Context) error {
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return err
	}
	// SQLite's integers are signed.
	c.incarnation = binary.BigEndian.Uint64(random[:]) >> 1
	reg := metadata.RegisterBroker{
		ID: c.cfg.NodeID, StorageID: c.StorageID(), Incarnation: c.incarnation, Host: c.cfg.Host,
		HTTPAddr: c.cfg.HTTPAddr, KafkaAddr: c.cfg.KafkaAddr, PeerAddr: c.cfg.PeerAddr, GossipAddr: c.cfg.GossipAddr,
		Rack: c.cfg.Rack, BinaryVersion: c.cfg.Version, Now: metadata.MillisOf(c.cfg.Now()),
	}
	if c.net != nil {
		me := c.net.members.Self()
		reg.PeerAddr, reg.GossipAddr = me.Peer, me.Gossip
	}
	res, err := c.insist(ctx, reg)
	if err != nil {
		return fmt.Errorf("register broker %d: %w", c.cfg.NodeID, err)
	}
	b, ok := res.Value.(*metadata.Broker)
	if !ok {
		return fmt.Errorf("register broker %d: the answer is %T", c.cfg.NodeID, res.Value)
	}
	c.epoch = b.Epoch
	if _, err := c.insist(ctx, metadata.UnfenceBroker{ID: b.ID, Epoch: b.Epoch}); err != nil {
		return fmt.Errorf("unfence broker %d: %w", c.cfg.NodeID, err)
	}
	return nil
}

// insist proposes what may be proposed twice until it is done. Among others the quorum may
// be electing a leader, and the node's own life before may not be fenced yet: that is a
// conflict until the controller has noticed that it is gone.
func (c *Cluster) insist(ctx context.Context, cmd metadata.Command) (metadata.Result, error) {
	for {
		res, err := c.Propose(ctx, cmd)
		if err == nil || c.net == nil {
			return res, err
		}
		if !model.Row(model.AsError(err).Code).Retryable && !c.mayPass(ctx, err) || !wait(ctx, retryEvery) {
			return res, err
		}
	}
}

// mayPass: the node id is bound to another data folder whose node does not answer.
func (c *Cluster) mayPass(ctx context.Context, err error) bool {
	other := c.Image().Broker(c.cfg.NodeID)
	if !model.HasCode(err, model.Conflict) || other == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	_, greetErr := c.net.port.Greet(ctx, other.StorageID)
	return greetErr != nil
}

// newUUID gives a random UUID (RFC 9562, version 4) as text.
func newUUID() (string, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", err
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:], nil
}
