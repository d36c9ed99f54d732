package groups

import (
	"net/http"
	"slices"

	"tidewire/api/route"
	"tidewire/broker/coordinator"
	"tidewire/broker/group"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// getOffsets gives the committed offsets of a group with their lag.
//
//	@ID			getGroupOffsets
//	@Summary	Committed offsets of a group
//	@Tags		Groups
//	@Param		group	path		string	true	"name"
//	@Success	200		{object}	GroupOffsets
//	@Header		200		{string}	ETag	"the group's entity tag"
//	@Router		/v1/groups/{group}/offsets [get]
//	@x-errors	["unknown-group","leader-unavailable"]
func (d *Door) getOffsets(c *route.Call) error {
	if err := d.mayGroup(c, metadata.OpDescribe); err != nil {
		return err
	}
	g, err := d.groups.Describe(c.Request.Context(), c.PathValue("group"), d.visible(c))
	if err != nil {
		return err
	}
	committed := slices.DeleteFunc(g.Offsets, func(o coordinator.OffsetState) bool { return o.Next == group.NoOffset })
	return c.Resource(http.StatusOK, metadata.ETag(g.Tag), GroupOffsets{
		Group: g.ID, Offsets: offsetViews(c, committed), TotalLag: g.TotalLag, Actions: d.actions(c, g.ID), ETag: g.Tag,
	})
}

// setOffsets stores offsets of a group that has no members, and makes the group where there
// is none.
//
//	@ID			setGroupOffsets
//	@Summary	Store offsets of a group
//	@Tags		Groups
//	@Param		group		path		string			true	"name"
//	@Param		If-Match	header		string			false	"entity tag that the group must have"
//	@Param		body		body		OffsetsInput	true	"the offsets, all of which are stored or none"
//	@Success	200			{object}	CommittedOffsets
//	@Router		/v1/groups/{group}/offsets [put]
//	@x-errors	["unknown-topic","unknown-partition","group-not-empty","etag-mismatch","leader-unavailable","commit-unknown","storage-full"]
func (d *Door) setOffsets(c *route.Call) error {
	in, err := route.Decode[OffsetsInput](c)
	if err != nil {
		return err
	}
	when, err := match(c)
	if err != nil {
		return err
	}
	offsets, err := d.offsets(c, in.Offsets)
	if err != nil {
		return err
	}
	list, err := d.groups.PutOffsets(c.Request.Context(), c.PathValue("group"), offsets, when)
	if err != nil {
		return err
	}
	c.Note("offsets", len(list))
	return c.JSON(http.StatusOK, committed(list))
}

// deleteOffsets takes the committed offsets of a topic away, which may be gone itself. No
// member of the group may subscribe to it.
//
//	@ID			deleteGroupOffsets
//	@Summary	Delete offsets of a group
//	@Tags		Groups
//	@Param		group		path		string	true	"name"
//	@Param		topic		query		string	true	"of which topic"
//	@Param		dry_run		query		bool	false	"only tell what would go"
//	@Param		If-Match	header		string	false	"entity tag that the group must have"
//	@Success	200			{object}	OffsetsDeletion	"with dry_run: what would go"
//	@Success	204			"deleted"
//	@Router		/v1/groups/{group}/offsets [delete]
//	@x-errors	["unknown-group","group-not-empty","etag-mismatch","leader-unavailable","commit-unknown"]
func (d *Door) deleteOffsets(c *route.Call) error {
	dry, err := c.QueryBool("dry_run")
	if err != nil {
		return err
	}
	topic, has := c.Only("topic")
	if !has {
		return model.Invalid("query:topic", "topic says whose offsets are deleted, and is needed")
	}
	if why := model.CheckTopicName(topic); why != "" {
		return model.Invalid("query:topic", "%s", why)
	}
	when, err := match(c)
	if err != nil {
		return err
	}
	if err := d.mayGroup(c, metadata.OpDelete); err != nil {
		return err
	}
	if err := d.mayRead(c, []string{topic}); err != nil {
		return err
	}
	c.Note("topic", topic)
	ctx, groupID := c.Request.Context(), c.PathValue("group")
	if dry {
		names, err := d.groups.MayDeleteOffsets(ctx, groupID, []string{topic}, when)
		if err != nil {
			return err
		}
		return c.JSON(http.StatusOK, OffsetsDeletion{partitionsOf(names)})
	}
	if _, err := d.groups.DeleteOffsets(ctx, groupID, []string{topic}, when); err != nil {
		return err
	}
	return c.NoContent()
}

// resetOffsets moves committed offsets of a group that has no members. An offset outside of
// a log becomes its nearer end.
//
//	@ID			resetGroupOffsets
//	@Summary	Reset offsets of a group
//	@Tags		Groups
//	@Param		group		path		string		true	"name"
//	@Param		dry_run		query		bool		false	"only tell what would move"
//	@Param		If-Match	header		string		false	"entity tag that the group must have"
//	@Param		body		body		ResetInput	true	"which, and where to"
//	@Success	200			{object}	ResetAnswer
//	@Router		/v1/groups/{group}/reset-offsets [post]
//	@x-errors	["unknown-group","unknown-topic","unknown-partition","group-not-empty","etag-mismatch","leader-unavailable","commit-unknown","storage-full"]
func (d *Door) resetOffsets(c *route.Call) error {
	in, err := route.Decode[ResetInput](c)
	if err != nil {
		return err
	}
	dry, err := c.QueryBool("dry_run")
	if err != nil {
		return err
	}
	when, err := match(c)
	if err != nil {
		return err
	}
	req, topics, err := resetRequest(in)
	if err != nil {
		return err
	}
	if err := d.mayUse(c, topics); err != nil {
		return err
	}
	moves, err := d.reset(c, req, resetTerms{named: len(topics) > 0, dry: dry, when: when})
	if err != nil {
		return err
	}
	c.Note("to", in.To)
	c.Note("offsets", len(moves))
	out := ResetAnswer{Offsets: make([]ResetMove, len(moves))}
	for i, m := range moves {
		out.Offsets[i] = ResetMove{Topic: m.Name, Partition: int32(m.Index), From: nonNil(m.From), To: int64(m.To)}
	}
	return c.JSON(http.StatusOK, out)
}

// resetTerms are how a reset is made.
type resetTerms struct {
	named bool // the request names what it is about, and the caller's rights to it are known
	dry   bool
	when  coordinator.Match
}

// reset moves offsets, or tells where they would go. What a request does not name the plan
// does: it is that which the caller must have the right to, and no more is moved.
func (d *Door) reset(c *route.Call, req group.ResetRequest, t resetTerms) ([]group.ResetMove, error) {
	ctx, groupID := c.Request.Context(), c.PathValue("group")
	if t.named {
		return d.groups.Reset(ctx, groupID, req, t.dry, t.when)
	}
	plan, err := d.groups.Reset(ctx, groupID, req, true, t.when)
	if err != nil {
		return nil, err
	}
	topics := make([]string, len(plan))
	for i, m := range plan {
		topics[i] = m.Name
		req.Partitions = append(req.Partitions, group.Name{Topic: m.Name, Partition: m.Index})
	}
	if err := d.mayRead(c, topics); err != nil || t.dry || len(plan) == 0 {
		return plan, err
	}
	return d.groups.Reset(ctx, groupID, req, false, t.when)
}

// resetRequest reads what a reset asks for, and which topics it names.
func resetRequest(in *ResetInput) (req group.ResetRequest, topics []string, _ error) {
	req = group.ResetRequest{Topics: in.Topics, To: group.ResetTo(in.To)}
	switch {
	case in.Topics != nil && len(in.Topics) == 0:
		return req, nil, model.Invalid("/topics", "must not be empty; without it all that the group has is meant")
	case in.Partitions != nil && len(in.Partitions) == 0:
		return req, nil, model.Invalid("/partitions", "must not be empty; without it all that the group has is meant")
	}
	switch valued := req.To == group.ToTimestamp || req.To == group.ToOffset || req.To == group.ToShift; {
	case in.Value != nil && !valued && (req.To == group.ToEarliest || req.To == group.ToLatest):
		return req, nil, model.Invalid("/value", "%s takes no value", in.To)
	case in.Value == nil && valued:
		return req, nil, model.Invalid("/value", "is required with %s", in.To)
	case in.Value != nil:
		req.Value = *in.Value
	}
	topics = append(topics, in.Topics...)
	for _, p := range in.Partitions {
		req.Partitions = append(req.Partitions, group.Name{Topic: p.Topic, Partition: model.PartitionID(p.Partition)})
		topics = append(topics, p.Topic)
	}
	return req, topics, group.CheckReset(req)
}
