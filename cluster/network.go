package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"tidewire/cluster/founding"
	"tidewire/cluster/membership"
	"tidewire/cluster/peer"
	"tidewire/cluster/quorum"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
)

// Network is how a node reaches others.
type Network struct {
	Key  []byte       // the cluster key, 32 bytes
	Peer net.Listener // of the port between nodes; closed by Stop
	// PeerAdvertise is where others reach that port, host:port; without a host, as ":7947",
	// where they reach gossip.
	PeerAdvertise   string
	GossipListen    string   // host:port; port 0 takes any
	GossipAdvertise string   // host:port; "" is where it listens
	Join            []string // gossip addresses, of which one is enough
}

// network is what a node with others around it has.
type network struct {
	port    *peer.Port
	members *membership.Membership
	group   *lifecycle.Group
	up      chan struct{} // closed when the quorum runs, so that requests can be served
	ready   chan struct{} // closed when the node is registered
	kick    chan struct{} // of the controller: something has changed
	beats   beats
	clock   clock

	gossipKey []byte
}

// alive are the other members that gossip sees.
func (n *network) alive() []membership.Member {
	var out []membership.Member
	for _, m := range n.members.Others() {
		if m.Status == membership.Alive {
			out = append(out, m)
		}
	}
	return out
}

// openPort opens the port between nodes. The state machine is open, raft does not run.
func (c *Cluster) openPort() error {
	cfg := c.cfg.Network
	keys, err := peer.NewKeys(cfg.Key)
	if err != nil {
		return fmt.Errorf("cluster-key: %w", err)
	}
	n := &network{
		group: lifecycle.New(context.Background()), up: make(chan struct{}), ready: make(chan struct{}), kick: make(chan struct{}, 1),
	}
	n.beats.by = map[model.BrokerID]beat{}
	c.net = n
	n.port, err = peer.Start(peer.Config{
		Keys: keys, Listener: cfg.Peer, Self: c.self, Resolve: c.resolve, Handler: c.handle, Data: c.handleData,
		Streams: []string{peer.RaftProtocol, peer.FollowProtocol}, Logger: c.cfg.Logger,
	})
	if err != nil {
		return err
	}
	c.net.gossipKey = keys.Gossip()
	return nil
}

// openGossip lets others see this node.
func (c *Cluster) openGossip() error {
	cfg := c.cfg.Network
	id := c.self()
	members, err := membership.Start(membership.Config{
		Self: membership.Member{
			Node: id.Node, Storage: id.Storage, Cluster: id.Cluster, Expect: c.expects(), Peer: cfg.PeerAdvertise,
			Rack: c.cfg.Rack, Version: c.cfg.Version,
		},
		Listen: cfg.GossipListen, Advertise: cfg.GossipAdvertise, Key: c.net.gossipKey, Logger: c.cfg.Logger, Changed: c.wake,
	})
	if err != nil {
		return err
	}
	c.membersMu.Lock()
	c.net.members = members
	c.membersMu.Unlock()
	return nil
}

// chooseID picks the id of the cluster that this node founds, unless it has; giveID
// proposes it.
func (c *Cluster) chooseID() (err error) {
	own := c.identityNow()
	if own.ClusterID != "" {
		return nil
	}
	if own.ClusterID, err = newUUID(); err != nil {
		return err
	}
	c.setIdentity(own)
	return nil
}

// expects is how many nodes this one founds a cluster with; 0 when it founds none with
// others.
func (c *Cluster) expects() int {
	if c.founder == nil {
		return 0
	}
	return c.cfg.BootstrapExpect
}

// closeNetwork says goodbye and closes the ports; raft has been shut down.
func (c *Cluster) closeNetwork(ctx context.Context) error {
	n := c.net
	if n == nil {
		return nil
	}
	left := closeTimeout
	if at, ok := ctx.Deadline(); ok {
		left = max(time.Until(at), 100*time.Millisecond)
	}
	var errs []error
	errs = append(errs, n.group.Stop(left))
	if n.members != nil {
		errs = append(errs, n.members.Stop(left))
	}
	if n.port != nil {
		errs = append(errs, n.port.Stop(left))
	}
	return errors.Join(errs...)
}

// Ports are where others reach this node's gossip and its port between nodes, host:port;
// "" when this node is alone.
func (c *Cluster) Ports() (gossip, peer string) {
	if c.net == nil {
		return "", ""
	}
	me := c.net.members.Self()
	return me.Gossip, me.Peer
}

// wake makes the controller look again.
func (c *Cluster) wake() {
	select {
	case c.net.kick <- struct{}{}:
	default: // it will look anyway
	}
}

// self is who this node is to others.
func (c *Cluster) self() peer.Identity {
	id := c.identityNow()
	return peer.Identity{Node: c.cfg.NodeID, Storage: id.StorageID, Cluster: id.ClusterID, Binary: c.cfg.Version}
}

// resolve finds where a node's port is: what gossip says is newer than what was registered.
func (c *Cluster) resolve(storageID string) (string, bool) {
	c.membersMu.Lock()
	members := c.net.members
	c.membersMu.Unlock()
	if members != nil {
		for _, m := range members.Others() {
			if m.Storage == storageID && m.Peer != "" {
				return m.Peer, true
			}
		}
	}
	for b := range c.Image().Brokers() {
		if b.StorageID == storageID && b.PeerAddr != "" {
			return b.PeerAddr, true
		}
	}
	return "", false
}

// streams are what raft needs of the network; nil when this node is alone.
func (c *Cluster) streams() (quorum.Streams, quorum.Remote) {
	if c.net == nil {
		return nil, nil
	}
	return c.net.port.Streams(peer.RaftProtocol), remote{c.net.port}
}

// newFounder makes this node's part in founding a cluster, where it has one.
func (c *Cluster) newFounder(id quorum.Identity, hasState bool) error {
	if hasState || c.cfg.BootstrapExpect < 2 {
		return nil
	}
	grant, err := quorum.LoadGrant(c.cfg.Dir)
	if err != nil {
		return fmt.Errorf("%s: %w", c.cfg.Dir, err)
	}
	c.founder = founding.New(founding.Node{ID: c.cfg.NodeID, Storage: id.StorageID}, c.cfg.BootstrapExpect,
		founding.Node{ID: grant.Node, Storage: grant.StorageID})
	c.grant = grant
	return nil
}
