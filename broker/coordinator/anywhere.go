package coordinator

import (
	"context"
	"errors"
	"maps"
	"slices"

	"tidewire/auth"
	"tidewire/broker/forward"
	"tidewire/broker/group"
	"tidewire/cluster/metadata"
	"tidewire/cluster/peer"
	"tidewire/internal/model"
)

// Calls of groups that another node looks after go there. Numbers are part of the protocol
// between nodes: never reuse one.
const (
	methodJoin = forward.FirstOfGroups + iota
	methodMember
	methodHeartbeat
	methodLeave
	methodRelease
	methodSeek
	methodCommit
	methodCommitCursor
	methodCommitRead
	methodPutOffsets
	methodDeleteOffsets
	methodMayDeleteOffsets
	methodDelete
	methodMayDelete
	methodResume
	methodDescribe
	methodSummaries
	methodList
	methodResetScope
	methodReset
	methodLook
	methodResolve
	methodAnswer
	methodAwait
	methodUnattended
	methodUnlook
)

// exchange is an operation that any node is asked for and a group's coordinator does.
type exchange[Q, A any] struct {
	method peer.Method
	create bool // the topic of groups is made where there is none
	reads  bool // it changes nothing: an answer that was lost is no doubt
	here   func(c *Coordinator, ctx context.Context, groupID string, q Q) (A, error)
}

// asked is an exchange's request. Index is how much of the metadata the asker has applied:
// what it has shown to its client the coordinator must know too.
type asked[Q any] struct {
	Group   string `json:"group"`
	Index   uint64 `json:"index"`
	Request Q      `json:"request"`
}

// none is an answer without content.
type none struct{}

// do does the operation here or has it done by the coordinator. A topic that the coordinator
// does not know is looked for once more with all that the cluster knows.
func (e *exchange[Q, A]) do(ctx context.Context, c *Coordinator, groupID string, q Q) (a A, err error) {
	node, err := c.place(ctx, groupID, e.create)
	if err != nil {
		return a, err
	}
	if a, err = e.at(ctx, c, node, asked[Q]{groupID, c.meta.Image().Index(), q}); err == nil {
		return a, nil
	}
	again := model.HasCode(err, model.UnknownTopic) || model.HasCode(err, model.UnknownPartition)
	if !again && (node == c.nodeID || !notTaken(err)) {
		return a, c.unanswered(groupID, node, e.reads, err)
	}
	before := c.meta.Image().Index()
	if bad := c.meta.Barrier(ctx); bad != nil {
		return a, c.unanswered(groupID, node, e.reads, err)
	}
	now, bad := c.place(ctx, groupID, e.create)
	switch {
	case bad != nil:
		return a, bad
	case now == node && c.meta.Image().Index() == before:
		return a, c.unanswered(groupID, node, e.reads, err)
	}
	a, err = e.at(ctx, c, now, asked[Q]{groupID, c.meta.Image().Index(), q})
	return a, c.unanswered(groupID, now, e.reads, err)
}

// at does the operation at a node.
func (e *exchange[Q, A]) at(ctx context.Context, c *Coordinator, node model.BrokerID, q asked[Q]) (A, error) {
	if node == c.nodeID {
		return e.here(c, ctx, q.Group, q.Request)
	}
	return forward.Ask[asked[Q], A](ctx, c.broker.Calls().Network(), node, e.method, q)
}

// serve has the operation done for other nodes.
func (e *exchange[Q, A]) serve(c *Coordinator, m *forward.Mux) {
	forward.Handle(m, e.method, func(ctx context.Context, q asked[Q]) (a A, err error) {
		if err := c.caughtUp(ctx, q.Index); err != nil {
			return a, err
		}
		return e.here(c, ctx, q.Group, q.Request)
	})
}

// caughtUp waits until this node knows what the asker does.
func (c *Coordinator) caughtUp(ctx context.Context, index uint64) error {
	if c.meta.Image().Index() >= index {
		return nil
	}
	return c.meta.Barrier(ctx)
}

// notTaken tells that the node which was asked has certainly done nothing.
func notTaken(err error) bool {
	var call *peer.CallError
	if errors.As(err, &call) {
		return !call.Sent
	}
	return model.HasCode(err, model.LeaderUnavailable) && model.AsError(err).EffectiveOutcome() == model.NotApplied
}

// unanswered is the error of a call that got no answer; others stay.
func (c *Coordinator) unanswered(groupID string, node model.BrokerID, reads bool, err error) error {
	var call *peer.CallError
	switch {
	case !errors.As(err, &call):
		return err
	case call.Sent && !reads:
		return model.Errorf(model.CommitUnknown, "node %d, the coordinator of group %q, did not answer: whether the change was made is not known", node, groupID).
			WithExtra("coordinator", node).WithCause(err)
	}
	return model.Errorf(model.LeaderUnavailable, "node %d, the coordinator of group %q, does not answer", node, groupID).
		WithExtra("coordinator", node).WithCause(err)
}

// place is the node that looks after a group; this one where there are no groups at all, which
// the quorum has confirmed. create says that the topic is to be made where there is none.
func (c *Coordinator) place(ctx context.Context, groupID string, create bool) (model.BrokerID, error) {
	for confirmed := false; c.meta.Image().Topic(auth.OffsetsTopic) == nil; confirmed = true {
		switch {
		case create:
			if err := c.broker.EnsureInternal(ctx, offsetsTopic); err != nil {
				return 0, err
			}
			c.follow()
		case confirmed:
			return c.nodeID, nil
		default:
			if err := c.meta.Barrier(ctx); err != nil {
				return 0, err
			}
		}
	}
	p, leader := c.coordinatorOf(groupID)
	if leader == metadata.NoLeader {
		return 0, model.Errorf(model.LeaderUnavailable, "group %q has no coordinator now: the node that looks after it, which holds partition %d of %s, does not run",
			groupID, p, auth.OffsetsTopic).WithExtra("coordinator", nil)
	}
	return leader, nil
}

// coordinators are the nodes that look after groups, this one first.
func (c *Coordinator) coordinators() (nodes []model.BrokerID, all bool) {
	all = true
	seen := map[model.BrokerID]bool{}
	if t := c.meta.Image().Topic(auth.OffsetsTopic); t != nil {
		for i := range t.Partitions {
			if n := t.Partitions[i].Leader; n == metadata.NoLeader {
				all = false
			} else {
				seen[n] = true
			}
		}
	}
	delete(seen, c.nodeID)
	return append([]model.BrokerID{c.nodeID}, slices.Sorted(maps.Keys(seen))...), all
}

// ServeCalls has calls of other nodes for the groups that this one looks after answered.
func (c *Coordinator) ServeCalls(m *forward.Mux) {
	joinCall.serve(c, m)
	memberCall.serve(c, m)
	heartbeatCall.serve(c, m)
	leaveCall.serve(c, m)
	releaseCall.serve(c, m)
	seekCall.serve(c, m)
	commitCall.serve(c, m)
	commitCursorCall.serve(c, m)
	commitReadCall.serve(c, m)
	putOffsetsCall.serve(c, m)
	deleteOffsetsCall.serve(c, m)
	mayDeleteOffsetsCall.serve(c, m)
	deleteCall.serve(c, m)
	mayDeleteCall.serve(c, m)
	resumeCall.serve(c, m)
	describeCall.serve(c, m)
	resetScopeCall.serve(c, m)
	resetCall.serve(c, m)
	lookCall.serve(c, m)
	resolveCall.serve(c, m)
	answerCall.serve(c, m)
	awaitCall.serve(c, m)
	unattendedCall.serve(c, m)
	unlookCall.serve(c, m)
	forward.Handle(m, methodSummaries, c.summariesHere)
	forward.Handle(m, methodList, c.listHere)
}

// The operations. What they do is where they are documented, at the methods of Coordinator.
var (
	joinCall         = &exchange[group.JoinRequest, group.JoinResult]{methodJoin, true, false, (*Coordinator).joinHere}
	memberCall       = &exchange[string, group.Member]{methodMember, false, true, (*Coordinator).memberHere}
	heartbeatCall    = &exchange[string, none]{methodHeartbeat, false, true, (*Coordinator).heartbeatHere}
	leaveCall        = &exchange[memberAt, none]{methodLeave, false, false, (*Coordinator).leaveHere}
	releaseCall      = &exchange[releaseRequest, none]{methodRelease, false, false, (*Coordinator).releaseHere}
	seekCall         = &exchange[group.SeekRequest, string]{methodSeek, false, true, (*Coordinator).seekHere}
	commitCall       = &exchange[group.CommitRequest, []group.Offset]{methodCommit, false, false, (*Coordinator).commitHere}
	commitCursorCall = &exchange[memberAt, []group.Offset]{methodCommitCursor, false, false, (*Coordinator).commitCursorHere}
	commitReadCall   = &exchange[memberAt, []group.Offset]{methodCommitRead, false, false, (*Coordinator).commitReadHere}
	putOffsetsCall   = &exchange[putRequest, []group.Offset]{methodPutOffsets, true, false, (*Coordinator).putOffsetsHere}

	deleteOffsetsCall    = &exchange[topicsRequest, []group.Name]{methodDeleteOffsets, false, false, (*Coordinator).deleteOffsetsHere}
	mayDeleteOffsetsCall = &exchange[topicsRequest, []group.Name]{methodMayDeleteOffsets, false, true, (*Coordinator).mayDeleteOffsetsHere}
	deleteCall           = &exchange[[]Match, none]{methodDelete, false, false, (*Coordinator).deleteHere}
	mayDeleteCall        = &exchange[[]Match, []group.Name]{methodMayDelete, false, true, (*Coordinator).mayDeleteHere}
	resumeCall           = &exchange[string, group.JoinResult]{methodResume, false, true, (*Coordinator).resumeHere}
	describeCall         = &exchange[none, group.Description]{methodDescribe, false, true, (*Coordinator).describeHere}
	resetScopeCall       = &exchange[resetRequest, []group.ResetFrom]{methodResetScope, false, true, (*Coordinator).resetScopeHere}
	resetCall            = &exchange[resetRequest, none]{methodReset, true, false, (*Coordinator).resetHere}
)

// memberAt is a member with a cursor.
type memberAt struct {
	Member string `json:"member"`
	Cursor string `json:"cursor"`
}

type releaseRequest struct {
	Member     string       `json:"member"`
	Partitions []group.Name `json:"partitions"` // null: all
}

type putRequest struct {
	Offsets []group.CommitOffset `json:"offsets"`
	When    []Match              `json:"when"`
}

type topicsRequest struct {
	Topics []string `json:"topics"`
	When   []Match  `json:"when"`
}

type resetRequest struct {
	Request group.ResetRequest `json:"request"`
	Moves   []group.ResetMove  `json:"moves"`
	When    []Match            `json:"when"`
}
