package cluster

import (
	"context"
	"encoding/json"
	"net"
)

// reachAnswer is whether a node could open a connection to the gossip port of the one that asks.
type reachAnswer struct {
	Address string `json:"address"` // as gossip has it
	Error   string `json:"error"`   // "": it could
}

// reach looks whether a node can be reached where gossip says that it is.
func (c *Cluster) reach(ctx context.Context, storage string) reachAnswer {
	for _, m := range c.net.members.Others() {
		if m.Storage != storage {
			continue
		}
		a := reachAnswer{Address: m.Gossip}
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", m.Gossip)
		if err != nil {
			a.Error = err.Error()
			return a
		}
		_ = conn.Close() // nothing was said
		return a
	}
	return reachAnswer{Error: "it is not known by gossip"}
}

// isReached asks the others, until one has reached this node's gossip port. A node that reaches
// others and is not reached by them joins all the same, and is taken for dead again and again.
func (c *Cluster) isReached(ctx context.Context, say func(by string, a reachAnswer)) bool {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	for _, m := range c.net.alive() {
		b, err := c.net.port.Call(ctx, m.Storage, methodReach, nil)
		var a reachAnswer
		if err != nil || json.Unmarshal(b, &a) != nil || a.Address == "" {
			continue // it starts, or has not heard of this node yet
		}
		if a.Error == "" {
			return true
		}
		say(m.Peer, a)
		return false
	}
	return false
}
