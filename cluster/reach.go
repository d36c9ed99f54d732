package cluster

import "context"

// reachTime bounds how long a node tries to reach another one for it. What drops packets answers
// nothing, and that must be told within askTime.
const reachTime = askTime / 2

// reachAnswer is whether a node could open a connection to the gossip port of the one that asks.
type reachAnswer struct {
	Address string `json:"address"` // as gossip has it; "": it does not know the node
	Error   string `json:"error"`   // "": it could
}

// reach looks whether a node can be reached where gossip says that it is.
func (c *Cluster) reach(ctx context.Context, storage string) (a reachAnswer) {
	for _, m := range c.net.members.Others() {
		if m.Storage != storage {
			continue
		}
		a.Address = m.Gossip
		if err := knock(ctx, m.Gossip, reachTime); err != nil {
			a.Error = err.Error()
		}
		break
	}
	return a
}

// isReached asks the others, until one has reached this node's gossip port. A node that reaches
// others and is not reached by them joins all the same, and is taken for dead again and again.
func (c *Cluster) isReached(ctx context.Context, say func(by string, a reachAnswer)) bool {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	for _, m := range c.net.alive() {
		a, err := ask[struct{}, reachAnswer](ctx, c.net.port, m.Storage, methodReach, struct{}{})
		if err != nil || a.Address == "" {
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
