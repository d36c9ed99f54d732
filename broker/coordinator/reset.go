package coordinator

import (
	"context"

	"tidewire/broker"
	"tidewire/broker/forward"
	"tidewire/broker/group"
)

// Reset moves committed offsets of a group without members, or, as a dry run, tells where they
// would go. Offsets that would lie outside of a log become its nearer end.
//
// Errors: invalid-argument, unknown-topic, unknown-partition, unknown-group where the group has
// no offsets and none are named, group-not-empty, leader-unavailable (also of a partition that
// cannot be asked), storage-error, and those of any write.
func (c *Coordinator) Reset(ctx context.Context, groupID string, req group.ResetRequest, dryRun bool, when ...Match) ([]group.ResetMove, error) {
	if err := checkGroup(groupID); err != nil {
		return nil, err
	}
	scope, err := resetScopeCall.do(ctx, c, groupID, resetRequest{Request: req, When: when})
	if err != nil {
		return nil, err
	}
	bounds := make([]group.Bounds, len(scope))
	for i, f := range scope {
		if bounds[i], err = c.bounds(ctx, f.Partition, req); err != nil {
			return nil, err
		}
	}
	moves := group.PlanReset(req, scope, bounds)
	if dryRun || len(moves) == 0 {
		return moves, nil
	}
	_, err = resetCall.do(ctx, c, groupID, resetRequest{Moves: moves, When: when})
	return moves, err
}

func (c *Coordinator) resetHere(ctx context.Context, groupID string, q resetRequest) (none, error) {
	return none{}, c.run(ctx, groupID, true, func(g *group.Group, env group.Env) (group.Effects, error) {
		if err := check(g, q.When); err != nil {
			return group.Effects{}, err
		}
		return g.Reset(env, q.Moves)
	})
}

func (c *Coordinator) resetScopeHere(ctx context.Context, groupID string, q resetRequest) (scope []group.ResetFrom, err error) {
	req, when := q.Request, q.When
	a, err := c.find(ctx, groupID, false)
	if err != nil {
		return nil, err
	}
	if a == nil { // a group that is to be made
		return group.New(groupID, c.settings).ResetScope(c.env(), req)
	}
	err = c.run(ctx, groupID, true, func(g *group.Group, env group.Env) (_ group.Effects, err error) {
		if err = check(g, when); err != nil {
			return group.Effects{}, err
		}
		scope, err = g.ResetScope(env, req)
		return group.Effects{}, err
	})
	return scope, err
}

// bounds asks a log where a reset may go.
func (c *Coordinator) bounds(ctx context.Context, p group.Partition, req group.ResetRequest) (group.Bounds, error) {
	logs, errs := c.broker.Readables(ctx, []forward.Key{{Topic: p.Topic, Partition: p.Index}})
	if errs[0] != nil {
		return group.Bounds{}, errs[0]
	}
	replica, err := logs[0], error(nil)
	end := replica.VisibleEnd(broker.ReadCommitted)
	b := group.Bounds{Partition: p, At: group.NoOffset, Earliest: replica.Bounds().LogStart, Latest: end, AtTime: end}
	if req.To == group.ToTimestamp {
		b.AtTime, err = replica.Resolve(broker.Position{Kind: broker.AtTime, Value: req.Value}, broker.ReadCommitted)
	}
	return b, err
}
