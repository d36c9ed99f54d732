package node

import (
	"context"

	"tidewire/broker/forward"
	"tidewire/internal/model"
)

// nodeState is what a node tells others of itself.
type nodeState struct {
	DiskFree int64 `json:"disk_free"`
	Known    bool  `json:"known"`
}

// answerCalls has calls of other nodes for what this one leads and looks after answered.
func (n *Node) answerCalls() {
	m := forward.NewMux()
	n.broker.ServeCalls(m)
	n.groups.ServeCalls(m)
	forward.Handle(m, forward.MethodNode, func(context.Context, struct{}) (nodeState, error) {
		free, known := n.DiskFree()
		return nodeState{free, known}, nil
	})
	n.cluster.AnswerCalls(m.Serve)
	n.onStop("calls of other nodes", func(context.Context) error { n.cluster.AnswerCalls(nil); return nil })
}

// DiskFreeOf is the room on the disk of a node, which is asked for it; it is part of
// rest.Process.
func (n *Node) DiskFreeOf(ctx context.Context, id model.BrokerID) (int64, bool) {
	if id == n.cfg.NodeID {
		return n.DiskFree()
	}
	s, err := forward.Ask[struct{}, nodeState](ctx, n.cluster, id, forward.MethodNode, struct{}{})
	return s.DiskFree, err == nil && s.Known
}
