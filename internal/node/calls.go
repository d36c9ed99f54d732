package node

import (
	"context"
	"sync"
	"time"

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

// disksTime is how long nodes have to tell of their disks.
const disksTime = time.Second

// DisksFree asks nodes, all at a time, for the room on their disks; it is part of rest.Process.
func (n *Node) DisksFree(ctx context.Context, nodes []model.BrokerID) map[model.BrokerID]int64 {
	ctx, cancel := context.WithTimeout(ctx, disksTime)
	defer cancel()
	states := make([]nodeState, len(nodes))
	var wg sync.WaitGroup
	for i, id := range nodes {
		if id == n.cfg.NodeID {
			states[i].DiskFree, states[i].Known = n.DiskFree()
			continue
		}
		wg.Add(1)
		asked := n.group.Go("disks", func(context.Context) {
			defer wg.Done()
			states[i], _ = forward.Ask[struct{}, nodeState](ctx, n.cluster, id, forward.MethodNode, struct{}{}) // else it is left out
		})
		if !asked {
			wg.Done()
		}
	}
	wg.Wait()
	out := map[model.BrokerID]int64{}
	for i, s := range states {
		if s.Known {
			out[nodes[i]] = s.DiskFree
		}
	}
	return out
}
