package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"tidewire/api/rest"
	"tidewire/broker/forward"
	"tidewire/internal/history"
	"tidewire/internal/model"
)

// nodeState is what a node tells others of itself.
type nodeState struct {
	DiskFree  int64 `json:"disk_free"`
	DiskTotal int64 `json:"disk_total"`
	// DiskReserve is what records and new partitions leave free.
	DiskReserve int64 `json:"disk_reserve"`
	Known       bool  `json:"known"` // the three above are
	// ClockOffset is by how many milliseconds its clock is ahead of the cluster's time, where
	// ClockKnown.
	ClockOffset int64 `json:"clock_offset_ms"`
	ClockKnown  bool  `json:"clock_known"`
}

func (n *Node) state() nodeState {
	s, err := n.roomForRecords()
	off, known := n.cluster.ClockOffset()
	return nodeState{s.Free, s.Total, int64(n.cfg.DiskReserve), err == nil, off.Milliseconds(), known}
}

// answerCalls has calls of other nodes for what this one leads and looks after answered.
func (n *Node) answerCalls() {
	m := forward.NewMux()
	n.broker.ServeCalls(m)
	n.groups.ServeCalls(m)
	forward.Handle(m, forward.MethodNode, func(context.Context, struct{}) (nodeState, error) { return n.state(), nil })
	forward.Handle(m, forward.MethodHistory, n.answerHistory)
	n.cluster.AnswerCalls(m.Serve)
	n.onStop("calls of other nodes", func(context.Context) error { n.cluster.AnswerCalls(nil); return nil })
}

// statesTime is how long nodes have to tell of themselves.
const statesTime = time.Second

// States asks nodes for what they tell of themselves; it is part of rest.Process.
func (n *Node) States(ctx context.Context, nodes []model.BrokerID) map[model.BrokerID]rest.State {
	out := map[model.BrokerID]rest.State{}
	for id, s := range n.states(ctx, nodes) {
		var x rest.State
		if s.Known {
			x.Disk = &rest.Disk{Free: s.DiskFree, Total: s.DiskTotal}
		}
		if s.ClockKnown {
			x.ClockOffsetMs = &s.ClockOffset
		}
		out[id] = x
	}
	return out
}

// newReplicaBytes is about what a new partition takes on a disk before it has records: a
// folder, and files with a block each.
const newReplicaBytes = 32 << 10

// withoutRoom tells which of some nodes have no room for so many new partitions each. One
// that does not answer counts as having room: it opens what it gets once there is.
func (n *Node) withoutRoom(ctx context.Context, nodes []model.BrokerID, each int) (full []model.BrokerID) {
	for id, s := range n.states(ctx, nodes) {
		if s.Known && s.DiskFree-int64(each)*newReplicaBytes < s.DiskReserve {
			full = append(full, id)
		}
	}
	return full
}

// states asks nodes, all at a time; those that do not answer in time are left out.
func (n *Node) states(ctx context.Context, nodes []model.BrokerID) map[model.BrokerID]nodeState {
	ctx, cancel := context.WithTimeout(ctx, statesTime)
	defer cancel()
	states := make([]nodeState, len(nodes))
	var wg sync.WaitGroup
	for i, id := range nodes {
		if id == n.cfg.NodeID {
			states[i] = n.state()
			continue
		}
		wg.Add(1)
		asked := n.group.Go("states", func(context.Context) {
			defer wg.Done()
			states[i], _ = forward.Ask[struct{}, nodeState](ctx, n.cluster, id, forward.MethodNode, struct{}{}) // else it is left out
		})
		if !asked {
			wg.Done()
		}
	}
	wg.Wait()
	out := map[model.BrokerID]nodeState{}
	for i, s := range states {
		if s.Known || s.ClockKnown {
			out[nodes[i]] = s
		}
	}
	return out
}

// answerHistory tells another node what this one has measured.
func (n *Node) answerHistory(_ context.Context, q history.Asked) (history.Told, error) {
	past := n.past.Load()
	if past == nil {
		return history.Told{}, model.Errorf(model.LeaderUnavailable, "node %d is starting", n.cfg.NodeID)
	}
	return past.Answer(q)
}

// historyTime is how long a node has to tell what it has measured.
const historyTime = 5 * time.Second

// HistoryOf asks a node for what it has measured; it is part of ops.Nodes.
func (n *Node) HistoryOf(ctx context.Context, node model.BrokerID, q history.Asked) (history.Told, error) {
	ctx, cancel := context.WithTimeout(ctx, historyTime)
	defer cancel()
	told, err := forward.Ask[history.Asked, history.Told](ctx, n.cluster, node, forward.MethodHistory, q)
	var answered *model.Error
	if err != nil && !errors.As(err, &answered) {
		return told, model.Errorf(model.LeaderUnavailable, "node %d does not answer", node)
	}
	return told, err
}
