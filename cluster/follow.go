package cluster

import (
	"context"
	"net"
	"time"

	"tidewire/cluster/peer"
	"tidewire/internal/model"
)

// HasPeers reports whether this node may have others around it, so that DialFollow and
// AcceptFollow may be called.
func (c *Cluster) HasPeers() bool { return c.net != nil }

// DialFollow opens a connection on which this node follows partitions that another leads.
func (c *Cluster) DialFollow(ctx context.Context, to model.BrokerID) (net.Conn, error) {
	b := c.Image().Broker(to)
	if b == nil {
		return nil, model.Errorf(model.UnknownBroker, "there is no broker %d", to)
	}
	within := askTime
	if at, ok := ctx.Deadline(); ok {
		within = time.Until(at)
	}
	return c.net.port.Streams(peer.FollowProtocol).Dial(b.StorageID, within)
}

// AcceptFollow waits for a node that wants to follow; which one it is its certificate has told.
// The error is net.ErrClosed when the node stops.
func (c *Cluster) AcceptFollow() (net.Conn, model.BrokerID, error) {
	conn, who, err := c.net.port.Streams(peer.FollowProtocol).AcceptFrom()
	return conn, who.Node, err
}

// StopFollow ends AcceptFollow.
func (c *Cluster) StopFollow() error { return c.net.port.Streams(peer.FollowProtocol).Close() }
