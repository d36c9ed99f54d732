package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"tidewire/broker/replicas"
	"tidewire/cluster"
	"tidewire/internal/config"
)

// network opens the port between nodes and says how gossip is to listen; nil for a node
// without a cluster key, which is alone.
func (n *Node) network(ctx context.Context) (*cluster.Network, error) {
	if !n.cfg.Clustered() {
		return nil, nil
	}
	gossip, err := gossipAdvertise(n.cfg.Gossip)
	if err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", n.cfg.Peer.Listen)
	if err != nil {
		return nil, fmt.Errorf("peer-listen: %w", err)
	}
	n.onStop("the port between nodes", func(context.Context) error {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	peer, err := peerAdvertise(n.cfg.Peer, l.Addr())
	if err != nil {
		return nil, err
	}
	return &cluster.Network{
		Key: n.cfg.ClusterKey.Bytes(), Peer: l, PeerAdvertise: peer,
		GossipListen: n.cfg.Gossip.Listen, GossipAdvertise: gossip, Join: n.cfg.Join,
	}, nil
}

// peers is how replicas reach each other; nil for a node that is alone.
func (n *Node) peers() replicas.Peers {
	if !n.cluster.HasPeers() {
		return nil
	}
	return n.cluster
}

// stopFollow ends the wait for followers.
func (n *Node) stopFollow() error {
	if !n.cluster.HasPeers() {
		return nil
	}
	return n.cluster.StopFollow()
}

// peerAdvertise is where others reach the port between nodes. One that listens on every
// interface is told without a host: others reach it where they reach gossip, which picks an
// interface's address.
func peerAdvertise(l config.Listener, actual net.Addr) (string, error) {
	ap, err := netip.ParseAddrPort(actual.String())
	if err != nil {
		return "", err
	}
	if l.Advertise == "" && ap.Addr().IsUnspecified() {
		return fmt.Sprint(":", ap.Port()), nil
	}
	return l.Advertised(actual)
}

// gossipAdvertise is where others reach gossip; "" leaves it to where it listens. Port 0
// means the port in use, which is known only where it was named.
func gossipAdvertise(l config.Listener) (string, error) {
	if l.Advertise == "" {
		return "", nil
	}
	host, port, err := net.SplitHostPort(l.Advertise)
	if err != nil || port != "0" {
		return l.Advertise, err
	}
	_, used, err := net.SplitHostPort(l.Listen)
	if err != nil {
		return "", err
	}
	if used == "0" {
		return "", errors.New("gossip-advertise: port 0 stands for the port of gossip-listen, which must name one then")
	}
	return net.JoinHostPort(host, used), nil
}

// lingerTime is how long a node that stops leaves connections open for what is sent just then: the
// clients of a node that has others beside it go on there, and none of their requests is to fail.
const lingerTime = 500 * time.Millisecond

func (n *Node) linger() time.Duration {
	if !n.cluster.HasPeers() {
		return 0
	}
	return lingerTime
}

// releaseTime bounds how long a node that stops waits for what was written to be acknowledged.
const releaseTime = 3 * time.Second

// resign has other nodes lead what this one does. Nothing is appended here any more before that,
// and what was is acknowledged, so that no writer is left in doubt.
func (n *Node) resign(ctx context.Context) error {
	if !n.cluster.HasPeers() {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()
	n.broker.Release(waiting)
	return n.cluster.Resign(ctx)
}
