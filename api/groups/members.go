package groups

import (
	"net/http"
	"time"

	"tidewire/api/route"
	"tidewire/broker/coordinator"
	"tidewire/broker/group"
	"tidewire/broker/group/assign"
	"tidewire/broker/group/cursor"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

const defaultSessionTimeoutMs = 10_000

// joinGroup makes a member of a group, and the group where there is none.
//
//	@ID			joinGroup
//	@Summary	Join a group
//	@Tags		Groups
//	@Param		group	path		string		true	"name"
//	@Param		body	body		JoinInput	true	"what to read, and how"
//	@Success	201		{object}	JoinAnswer
//	@Header		201		{string}	Location	"the member's address"
//	@Router		/v1/groups/{group}/members [post]
//	@x-errors	["conflict","leader-unavailable","commit-unknown","storage-full"]
func (d *Door) joinGroup(c *route.Call) error {
	in, err := route.Decode[JoinInput](c)
	if err != nil {
		return err
	}
	req, err := joinRequest(c, in)
	if err != nil {
		return err
	}
	if err := d.mayUse(c, req.Topics); err != nil {
		return err
	}
	got, err := d.groups.Join(c.Request.Context(), *req)
	if err != nil {
		return err
	}
	m := &got.Member
	c.Created("v1", "groups", req.Group, "members", m.ID)
	return c.JSON(http.StatusCreated, JoinAnswer{
		MemberID: m.ID, Group: req.Group, Epoch: int32(got.Epoch), Assignor: string(got.Assignor), Topics: append([]string{}, m.Topics...),
		TopicPattern: text(m.Pattern), SessionTimeoutMs: m.SessionTimeout.Milliseconds(), AutoOffsetReset: string(m.Reset),
		AutoCommit: m.AutoCommit, InstanceID: text(m.InstanceID), ClientID: text(m.ClientID), FencedMemberID: text(got.Fenced),
	})
}

// joinRequest reads what a join asks for, and refuses what it alone shows.
func joinRequest(c *route.Call, in *JoinInput) (*coordinator.JoinRequest, error) {
	for _, p := range []struct {
		pointer string
		value   *string
	}{{"/topic_pattern", in.TopicPattern}, {"/assignor", in.Assignor}, {"/instance_id", in.InstanceID}} {
		if p.value != nil && *p.value == "" {
			return nil, model.Invalid(p.pointer, "must not be empty")
		}
	}
	ms := int64(defaultSessionTimeoutMs)
	if in.SessionTimeoutMs != nil {
		ms = min(max(*in.SessionTimeoutMs, 0), 1<<40) // what is out of range stays so, and fits a duration
	}
	reset := group.Latest
	if in.AutoOffsetReset != nil {
		if reset = group.ResetPolicy(*in.AutoOffsetReset); reset == group.FromTime {
			reset = "" // it has no time here
		}
	}
	req := &coordinator.JoinRequest{
		Group: c.PathValue("group"), Topics: in.Topics, Pattern: given(in.TopicPattern), Assignor: assign.Name(given(in.Assignor)),
		SessionTimeout: time.Duration(ms) * time.Millisecond, Reset: reset, AutoCommit: in.AutoCommit, InstanceID: given(in.InstanceID),
		TakeOver: in.TakeOver, ClientID: given(in.ClientID), Host: c.Host(), User: c.Principal.Name,
	}
	return req, group.CheckJoin(group.JoinRequest{Member: group.Member{
		InstanceID: req.InstanceID, ClientID: req.ClientID, Host: req.Host, User: req.User, Topics: req.Topics, Pattern: req.Pattern,
		SessionTimeout: req.SessionTimeout, Reset: req.Reset,
	}, Assignor: req.Assignor})
}

// checkCursor refuses what is no cursor at all, telling where it stands. One that is not the
// member's own is none of the door's business.
func checkCursor(pointer, text string) error {
	if _, err := cursor.Parse(text); err != nil {
		return model.Invalid(pointer, "%s", model.AsError(err).Detail)
	}
	return nil
}

// commitOffsets stores offsets that a member has read to.
//
//	@ID				commitOffsets
//	@Summary		Commit offsets
//	@Description	All of the offsets are stored or none. A cursor commits what it covers, never back, and releases the partitions that were being revoked in the answer that it came with.
//	@Tags			Groups
//	@Param			group	path		string		true	"name"
//	@Param			member	path		string		true	"member_id"
//	@Param			body	body		CommitInput	true	"offsets or a cursor"
//	@Success		200		{object}	CommittedOffsets
//	@Router			/v1/groups/{group}/members/{member}/commit [post]
//	@x-errors		["unknown-member","member-expired","fenced","not-owner","unknown-topic","unknown-partition","leader-unavailable","commit-unknown","storage-full"]
func (d *Door) commitOffsets(c *route.Call) error {
	in, err := route.Decode[CommitInput](c)
	if err != nil {
		return err
	}
	ctx, groupID, member := c.Request.Context(), c.PathValue("group"), c.PathValue("member")
	if in.Cursor != nil {
		if in.Offsets != nil {
			return model.Invalid("/cursor", "give offsets or a cursor, not both")
		}
		if err := checkCursor("/cursor", *in.Cursor); err != nil {
			return err
		}
		if err := d.mayGroup(c, metadata.OpRead); err != nil {
			return err
		}
		list, err := d.groups.CommitCursor(ctx, groupID, member, *in.Cursor)
		if err != nil {
			return err
		}
		return c.JSON(http.StatusOK, committed(list))
	}
	offsets, err := d.offsets(c, in.Offsets)
	if err != nil {
		return err
	}
	list, err := d.groups.Commit(ctx, groupID, group.CommitRequest{Member: member, Offsets: offsets})
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, committed(list))
}

// offsets reads offsets to be stored and looks at the rights for it.
func (d *Door) offsets(c *route.Call, in []CommitOffset) ([]group.CommitOffset, error) {
	out, topics := make([]group.CommitOffset, len(in)), make([]string, len(in))
	for i, o := range in {
		out[i] = group.CommitOffset{
			Name: group.Name{Topic: o.Topic, Partition: model.PartitionID(o.Partition)}, Next: model.Offset(o.NextOffset),
			Epoch: model.NoEpoch, Metadata: given(o.Metadata),
		}
		topics[i] = o.Topic
	}
	if err := d.groups.CheckCommit(out); err != nil {
		return nil, err
	}
	return out, d.mayUse(c, topics)
}

// seekMember makes a cursor that reads on elsewhere.
//
//	@ID			seekMember
//	@Summary	Read on elsewhere
//	@Tags		Groups
//	@Param		group	path		string		true	"name"
//	@Param		member	path		string		true	"member_id"
//	@Param		body	body		SeekInput	true	"where to"
//	@Success	200		{object}	SeekAnswer
//	@Router		/v1/groups/{group}/members/{member}/seek [post]
//	@x-errors	["unknown-member","member-expired","fenced","not-owner","unknown-topic","unknown-partition","leader-unavailable"]
func (d *Door) seekMember(c *route.Call) error {
	in, err := route.Decode[SeekInput](c)
	if err != nil {
		return err
	}
	req := group.SeekRequest{Member: c.PathValue("member"), Positions: make([]group.SeekPosition, len(in.Positions))}
	topics := make([]string, len(in.Positions))
	for i, p := range in.Positions {
		req.Positions[i] = group.SeekPosition{Name: group.Name{Topic: p.Topic, Partition: model.PartitionID(p.Partition)}, Next: model.Offset(p.NextOffset)}
		topics[i] = p.Topic
	}
	if err := group.CheckSeek(req.Positions); err != nil {
		return err
	}
	if in.Cursor != nil {
		if err := checkCursor("/cursor", *in.Cursor); err != nil {
			return err
		}
	}
	if err := d.mayUse(c, topics); err != nil {
		return err
	}
	at, err := d.groups.Seek(c.Request.Context(), c.PathValue("group"), given(in.Cursor), req)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, SeekAnswer{Cursor: at})
}

// heartbeat keeps a member alive that does not read for a while.
//
//	@ID			heartbeat
//	@Summary	Keep a member alive
//	@Tags		Groups
//	@Param		group	path	string	true	"name"
//	@Param		member	path	string	true	"member_id"
//	@Success	204		"alive"
//	@Router		/v1/groups/{group}/members/{member}/heartbeat [post]
//	@x-errors	["unknown-member","member-expired","fenced","leader-unavailable"]
func (d *Door) heartbeat(c *route.Call) error {
	if err := d.mayGroup(c, metadata.OpRead); err != nil {
		return err
	}
	if err := d.groups.Heartbeat(c.Request.Context(), c.PathValue("group"), c.PathValue("member")); err != nil {
		return err
	}
	return c.NoContent()
}

// leaveGroup ends a member at once; what it had goes to others.
//
//	@ID			leaveGroup
//	@Summary	Leave a group
//	@Tags		Groups
//	@Param		group	path	string	true	"name"
//	@Param		member	path	string	true	"member_id"
//	@Param		cursor	query	string	false	"of the last answer: with auto_commit what it covers is committed"
//	@Success	204		"gone"
//	@Router		/v1/groups/{group}/members/{member} [delete]
//	@x-errors	["unknown-member","member-expired","fenced","leader-unavailable","commit-unknown","storage-full"]
func (d *Door) leaveGroup(c *route.Call) error {
	at, has := c.Only("cursor")
	if has {
		if err := checkCursor("query:cursor", at); err != nil {
			return err
		}
	}
	if err := d.mayGroup(c, metadata.OpRead); err != nil {
		return err
	}
	if err := d.groups.Leave(c.Request.Context(), c.PathValue("group"), c.PathValue("member"), at); err != nil {
		return err
	}
	return c.NoContent()
}
