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

	"tidewire/cluster/fsm"
	"tidewire/cluster/metadata"
	"tidewire/cluster/quorum"
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
	c.identity = id
	c.fsm, err = fsm.Open(fsm.Config{
		Path: filepath.Join(c.cfg.Dir, databaseFile), ClusterID: id.ClusterID,
		Snapshots: c.stores.Snapshots, Logs: c.stores.Logs, Logger: c.cfg.Logger, Fatal: c.cfg.Fatal,
	})
	if err != nil {
		return err
	}
	c.quorum, err = quorum.Start(id.StorageID, c.stores, c.fsm, logger, !hasState)
	return err
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
	case !hasState && c.cfg.BootstrapExpect != 1:
		return fmt.Errorf("%w: expected are %d nodes", ErrNoCluster, c.cfg.BootstrapExpect)
	}
	return nil
}

// settleID makes log and identity file agree on the cluster id; a new cluster gets its
// id as the first command.
func (c *Cluster) settleID(ctx context.Context) error {
	if c.Image().Cluster().ID == "" {
		id, err := newUUID()
		if err != nil {
			return err
		}
		if _, err := c.Propose(ctx, metadata.BootstrapCluster{
			ClusterID: id, Name: c.cfg.ClusterName, MetadataVersion: metadata.CurrentMetadataVersion,
			Now: metadata.MillisOf(c.cfg.Now()),
		}); err != nil {
			return fmt.Errorf("give the cluster its id: %w", err)
		}
	}
	id := c.Image().Cluster().ID
	if c.identity.ClusterID != "" && c.identity.ClusterID != id {
		return fmt.Errorf("%s: %w: the identity file says %s, the log %s", c.cfg.Dir, ErrForeignCluster, c.identity.ClusterID, id)
	}
	c.clusterID = id
	if c.identity.ClusterID == id {
		return nil
	}
	c.identity.ClusterID = id
	return quorum.SaveIdentity(c.cfg.Dir, c.identity)
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
	res, err := c.Propose(ctx, metadata.RegisterBroker{
		ID: c.cfg.NodeID, StorageID: c.identity.StorageID, Incarnation: c.incarnation, Host: c.cfg.Host,
		HTTPAddr: c.cfg.HTTPAddr, KafkaAddr: c.cfg.KafkaAddr, PeerAddr: c.cfg.PeerAddr, GossipAddr: c.cfg.GossipAddr,
		Rack: c.cfg.Rack, BinaryVersion: c.cfg.Version, Now: metadata.MillisOf(c.cfg.Now()),
	})
	if err != nil {
		return fmt.Errorf("register broker %d: %w", c.cfg.NodeID, err)
	}
	b, ok := res.Value.(*metadata.Broker)
	if !ok {
		return fmt.Errorf("register broker %d: the answer is %T", c.cfg.NodeID, res.Value)
	}
	c.epoch = b.Epoch
	if _, err := c.Propose(ctx, metadata.UnfenceBroker{ID: b.ID, Epoch: b.Epoch}); err != nil {
		return fmt.Errorf("unfence broker %d: %w", c.cfg.NodeID, err)
	}
	return nil
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
