package cluster

import (
	"context"
	"errors"

	"tidewire/cluster/peer"
	"tidewire/internal/model"
)

// AnswerCalls begins to answer calls of other nodes for records and groups; nil ends it.
func (c *Cluster) AnswerCalls(h peer.Handler) {
	if h == nil {
		c.data.Store(nil)
		return
	}
	c.data.Store(&h)
}

func (c *Cluster) handleData(ctx context.Context, r peer.Request) ([]byte, error) {
	h := c.data.Load()
	if h == nil {
		return nil, model.Errorf(model.LeaderUnavailable, "node %d is starting or stopping", c.cfg.NodeID)
	}
	return (*h)(ctx, r)
}

// errAlone: there is no way to other nodes.
var errAlone = errors.New("this node has no port to other nodes")

// CallBroker asks another broker and waits for its answer until ctx ends. The error is what the
// other one's handler returned, a *model.Error, or a *peer.CallError when there was no answer.
// The payload is not changed any more from then on.
func (c *Cluster) CallBroker(ctx context.Context, to model.BrokerID, m peer.Method, payload []byte) ([]byte, error) {
	b := c.Image().Broker(to)
	if b == nil || c.net == nil {
		return nil, &peer.CallError{Cause: errAlone}
	}
	return c.net.port.CallData(ctx, b.StorageID, m, payload)
}
