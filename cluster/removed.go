package cluster

import (
	"errors"
	"fmt"
	"path/filepath"

	"tidewire/cluster/metadata"
	"tidewire/cluster/quorum"
)

// ErrRemoved says that an operator has removed this node from its cluster.
var ErrRemoved = errors.New("this node was removed from the cluster")

// registered is the broker of this data folder, nil where there is none.
func (c *Cluster) registered() *metadata.Broker {
	me := c.identityNow().StorageID
	for b := range c.Image().Brokers() {
		if b.StorageID == me {
			return b
		}
	}
	return nil
}

// lookBack notes whether this node was registered before, as its folder tells at the start.
func (c *Cluster) lookBack() (err error) {
	if c.net == nil {
		return nil
	}
	if c.wasRegistered, err = quorum.LoadRegistered(c.cfg.Dir); err != nil {
		return err
	}
	c.wasRegistered = c.wasRegistered || c.registered() != nil // a version of before has left no note
	return nil
}

// checkPlace compares what the cluster knows of this node with its data folder. The image is that of
// the quorum.
func (c *Cluster) checkPlace() error {
	if c.net == nil || c.registered() != nil {
		return nil
	}
	other := c.Image().Broker(c.cfg.NodeID)
	switch {
	case other != nil:
		c.cfg.Logger.Warn("this node comes with another data folder than it had: it holds nothing of what it held, and copies it from the others",
			"node", c.cfg.NodeID, "storage_id", c.StorageID(), "storage_id_before", other.StorageID)
	case c.wasRegistered:
		return fmt.Errorf("node %d: %w; leave it off, or empty its data folder %s and it joins as a new node", c.cfg.NodeID, ErrRemoved, filepath.Dir(c.cfg.Dir))
	}
	return nil
}

// noteRegistered keeps on disk that this node was registered.
func (c *Cluster) noteRegistered() error {
	if c.net == nil || c.wasRegistered {
		return nil
	}
	return quorum.SaveRegistered(c.cfg.Dir)
}
