package moves

import (
	"net/http"

	"tidewire/api/route"
	"tidewire/broker/moves"
	"tidewire/cluster/metadata"
	"tidewire/cluster/placement"
)

func changeOf(c *route.Call, dry bool) (ch moves.Change, err error) {
	if ch.ID, err = c.PathBroker(); err != nil {
		return ch, err
	}
	if ch.IfMatch, err = c.IfMatch(); err != nil || !dry {
		return ch, err
	}
	ch.DryRun, err = c.QueryBool("dry_run")
	return ch, err
}

func drainView(b *metadata.Broker, p PlanView) DrainView {
	return DrainView{Broker: int32(b.ID), State: string(b.State), Plan: p, ETag: string(b.ETag())}
}

// drainBroker has everything that a node holds moved to others; until it is undrained it gets no
// new replicas. The answer comes at once; the drain is an operation. Where a partition has
// nowhere to go, because there are too few other nodes, nothing is begun.
//
//	@ID			drainBroker
//	@Summary	Drain a node
//	@Tags		Cluster
//	@Param		broker		path		int		true	"node id"	minimum(0)
//	@Param		dry_run		query		bool	false	"only show the plan"
//	@Param		If-Match	header		string	false	"entity tag that the node must have"
//	@Success	200			{object}	DrainView
//	@Header		200			{string}	ETag	"the node's entity tag"
//	@Router		/v1/brokers/{broker}/drain [post]
//	@x-errors	["unknown-broker","conflict","etag-mismatch"]
func (d *Door) drainBroker(c *route.Call) error {
	ch, err := changeOf(c, true)
	if err != nil {
		return err
	}
	b, plan, err := d.service.Drain(c.Request.Context(), c.Caller(), ch)
	if err != nil {
		return err
	}
	return c.Resource(http.StatusOK, b.ETag(), drainView(b, d.plan(c, plan, nil)))
}

// undrainBroker ends the draining of a node. What is on its way to others comes back, what is
// there stays there.
//
//	@ID			undrainBroker
//	@Summary	End the draining of a node
//	@Tags		Cluster
//	@Param		broker		path		int		true	"node id"	minimum(0)
//	@Param		dry_run		query		bool	false	"only show what would come back"
//	@Param		If-Match	header		string	false	"entity tag that the node must have"
//	@Success	200			{object}	DrainView
//	@Header		200			{string}	ETag	"the node's entity tag"
//	@Router		/v1/brokers/{broker}/undrain [post]
//	@x-errors	["unknown-broker","etag-mismatch"]
func (d *Door) undrainBroker(c *route.Call) error {
	ch, err := changeOf(c, true)
	if err != nil {
		return err
	}
	b, back, err := d.service.Undrain(c.Request.Context(), c.Caller(), ch)
	if err != nil {
		return err
	}
	var plan placement.Plan
	for _, m := range back {
		p := m.Of()
		plan.Moves = append(plan.Moves, placement.Move{Ref: placement.Ref{Topic: m.Topic, Partition: m.Partition}, From: p.Replicas, To: p.Move.From})
	}
	return c.Resource(http.StatusOK, b.ETag(), drainView(b, d.plan(c, plan, nil)))
}

// removeBroker forgets a node that is gone for good. It must be stopped, and hold nothing: drain
// it first. The metadata quorum goes on without it.
//
//	@ID			removeBroker
//	@Summary	Remove a node
//	@Tags		Cluster
//	@Param		broker		path	int		true	"node id"	minimum(0)
//	@Param		If-Match	header	string	false	"entity tag that the node must have"
//	@Success	204			"removed"
//	@Router		/v1/brokers/{broker} [delete]
//	@x-errors	["unknown-broker","conflict","etag-mismatch"]
func (d *Door) removeBroker(c *route.Call) error {
	ch, err := changeOf(c, false)
	if err != nil {
		return err
	}
	if err := d.service.Remove(c.Request.Context(), c.Caller(), ch); err != nil {
		return err
	}
	return c.NoContent()
}

// canStopBroker tells whether a node can be stopped now without harm: no partition would be
// without a leader or below min.insync.replicas, and the metadata quorum would go on.
//
//	@ID			canStopBroker
//	@Summary	Can a node be stopped?
//	@Tags		Cluster
//	@Param		broker	path		int	true	"node id"	minimum(0)
//	@Success	200		{object}	CanStopView
//	@Router		/v1/brokers/{broker}/can-stop [get]
//	@x-errors	["unknown-broker"]
func (d *Door) canStopBroker(c *route.Call) error {
	id, err := c.PathBroker()
	if err != nil {
		return err
	}
	reasons, err := d.service.CanStop(c.Request.Context(), c.Caller(), id)
	if err != nil {
		return err
	}
	if reasons == nil {
		reasons = []string{}
	}
	return c.JSON(http.StatusOK, CanStopView{Safe: len(reasons) == 0, Reasons: reasons})
}
