package groups

import (
	"net/http"

	"tidewire/api/route"
	"tidewire/cluster/metadata"
)

// getGroup gives a group with its members, their assignments, and its offsets with their lag.
//
//	@ID			getGroup
//	@Summary	Get a group
//	@Tags		Groups
//	@Param		group	path		string	true	"name"
//	@Success	200		{object}	GroupView
//	@Header		200		{string}	ETag	"the group's entity tag"
//	@Router		/v1/groups/{group} [get]
//	@x-errors	["unknown-group","leader-unavailable"]
func (d *Door) getGroup(c *route.Call) error {
	if err := d.mayGroup(c, metadata.OpDescribe); err != nil {
		return err
	}
	g, err := d.groups.Describe(c.Request.Context(), c.PathValue("group"), d.visible(c))
	if err != nil {
		return err
	}
	v := GroupView{
		Group: g.ID, State: string(g.State), Protocol: "consumer", Coordinator: leader(g.Coordinator), Epoch: int32(g.Epoch),
		Assignor: text(string(g.Assignor)), Members: make([]GroupMember, len(g.Members)), Offsets: offsetViews(c, g.Offsets),
		TotalLag: g.TotalLag, Actions: d.actions(c, g.ID), ETag: g.Tag,
	}
	for i := range g.Members {
		v.Members[i] = memberView(&g.Members[i])
	}
	return c.Resource(http.StatusOK, metadata.ETag(g.Tag), v)
}

// deleteGroup deletes a group that has no members, with its offsets.
//
//	@ID			deleteGroup
//	@Summary	Delete a group
//	@Tags		Groups
//	@Param		group		path		string	true	"name"
//	@Param		dry_run		query		bool	false	"only tell what would go"
//	@Param		If-Match	header		string	false	"entity tag that the group must have"
//	@Success	200			{object}	GroupDeletion	"with dry_run: what would go"
//	@Success	204			"deleted"
//	@Router		/v1/groups/{group} [delete]
//	@x-errors	["unknown-group","group-not-empty","etag-mismatch","leader-unavailable","commit-unknown"]
func (d *Door) deleteGroup(c *route.Call) error {
	dry, err := c.QueryBool("dry_run")
	if err != nil {
		return err
	}
	when, err := match(c)
	if err != nil {
		return err
	}
	if err := d.mayGroup(c, metadata.OpDelete); err != nil {
		return err
	}
	group := c.PathValue("group")
	if dry {
		names, err := d.groups.MayDelete(c.Request.Context(), group, when)
		if err != nil {
			return err
		}
		return c.JSON(http.StatusOK, GroupDeletion{Group: group, Offsets: partitionsOf(names)})
	}
	if err := d.groups.Delete(c.Request.Context(), group, when); err != nil {
		return err
	}
	return c.NoContent()
}
