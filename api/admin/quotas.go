package admin

import (
	"net/http"
	"slices"

	"tidewire/api/route"
	"tidewire/auth"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// QuotaLimits is what a user may do on each node, per second. A limit that is null, or absent, is
// that of "*", which holds for all users that have none of their own; where "*" has none
// either there is no limit.
type QuotaLimits struct {
	ProduceBytesPerS *int64 `json:"produce_bytes_per_s" minimum:"1" maximum:"9007199254740991" extensions:"x-nullable"`
	FetchBytesPerS   *int64 `json:"fetch_bytes_per_s" minimum:"1" maximum:"9007199254740991" extensions:"x-nullable"`
	RequestsPerS     *int64 `json:"requests_per_s" minimum:"1" maximum:"9007199254740991" extensions:"x-nullable"`
}

// QuotaView is a user's own limits and those in force, in which "*" fills the gaps.
type QuotaView struct {
	Username         string         `json:"username"` // "*": all users that have no limits of their own
	ProduceBytesPerS *int64         `json:"produce_bytes_per_s" extensions:"x-nullable"`
	FetchBytesPerS   *int64         `json:"fetch_bytes_per_s" extensions:"x-nullable"`
	RequestsPerS     *int64         `json:"requests_per_s" extensions:"x-nullable"`
	Effective        EffectiveQuota `json:"effective"`
	Actions          []string       `json:"actions"`
	ETag             string         `json:"etag"`
}

// EffectiveQuota is limits in force; null: none.
type EffectiveQuota struct {
	ProduceBytesPerS *int64 `json:"produce_bytes_per_s" extensions:"x-nullable"`
	FetchBytesPerS   *int64 `json:"fetch_bytes_per_s" extensions:"x-nullable"`
	RequestsPerS     *int64 `json:"requests_per_s" extensions:"x-nullable"`
}

func (d *Door) quotaView(q *metadata.Quota) QuotaView {
	general := metadata.QuotaLimits{}
	if all := d.cluster.Image().Quota(metadata.DefaultQuota); all != nil {
		general = all.QuotaLimits
	}
	return QuotaView{
		Username: q.User, ProduceBytesPerS: q.ProduceBytesPerS, FetchBytesPerS: q.FetchBytesPerS, RequestsPerS: q.RequestsPerS,
		Effective: EffectiveQuota(q.QuotaLimits.Over(general)), Actions: []string{"alter", "delete"}, ETag: string(q.ETag()),
	}
}

func (d *Door) mayManageQuotas(c *route.Call) error {
	return d.authz.RequireAdmin(c.Request.Context(), c.Principal, "managing quotas")
}

// listQuotas lists the users that have limits of their own, and "*" for all others.
//
//	@ID			listQuotas
//	@Summary	List quotas
//	@Tags		Quotas
//	@Param		limit		query		int		false	"items of a page"	minimum(1)	maximum(1000)	default(100)
//	@Param		page_token	query		string	false	"next_page_token of the page before"
//	@Param		prefix		query		string	false	"start of the user's name"
//	@Param		q			query		string	false	"part of the user's name, in any case"
//	@Param		sort		query		string	false	"a field, with - in front descending"	Enums(username, -username)
//	@Param		fields		query		string	false	"fields of the items, with commas between"
//	@Success	200			{object}	route.Page[QuotaView]
//	@Router		/v1/quotas [get]
func (d *Door) listQuotas(c *route.Call) error {
	l := route.Listing[*metadata.Quota, QuotaView]{
		Name: func(q *metadata.Quota) string { return q.User }, By: "username", View: d.quotaView,
	}
	return l.Serve(c, func() ([]*metadata.Quota, error) {
		if err := d.mayManageQuotas(c); err != nil {
			return nil, err
		}
		return slices.Collect(d.cluster.Image().Quotas()), nil
	})
}

// getQuota gives the limits that a user has of its own.
//
//	@ID			getQuota
//	@Summary	Get a quota
//	@Tags		Quotas
//	@Param		username	path		string	true	"name of a user, or * for all that have no limits of their own"
//	@Success	200			{object}	QuotaView
//	@Header		200			{string}	ETag	"the quota's entity tag"
//	@Router		/v1/quotas/{username} [get]
//	@x-errors	["unknown-user","not-found"]
func (d *Door) getQuota(c *route.Call) error {
	if err := d.mayManageQuotas(c); err != nil {
		return err
	}
	q, err := d.service.Quota(c.Request.Context(), c.PathValue("username"))
	if err != nil {
		return err
	}
	return c.Resource(http.StatusOK, q.ETag(), d.quotaView(q))
}

// setQuota sets the limits of a user, or of all users that have none of their own. They
// replace those there were: what the body does not name is without limit of its own then.
//
//	@ID			setQuota
//	@Summary	Set a quota
//	@Tags		Quotas
//	@Param		username	path		string	true	"name of a user, or * for all that have no limits of their own"
//	@Param		If-Match	header		string	false	"entity tag that the quota must have"
//	@Param		body		body		QuotaLimits	true	"the limits, one at least"
//	@Success	200			{object}	QuotaView	"replaced"
//	@Success	201			{object}	QuotaView	"the user had none"
//	@Header		200			{string}	ETag		"the quota's entity tag"
//	@Header		201			{string}	ETag		"the quota's entity tag"
//	@Header		201			{string}	Location	"where the quota is"
//	@Router		/v1/quotas/{username} [put]
//	@x-errors	["unknown-user","etag-mismatch"]
func (d *Door) setQuota(c *route.Call) error {
	in, err := route.Decode[QuotaLimits](c)
	if err != nil {
		return err
	}
	limits := metadata.QuotaLimits(*in)
	if bad := metadata.CheckQuota(limits); bad != nil {
		return &model.Error{Code: model.InvalidArgument, Detail: bad[0].Detail, Fields: bad}
	}
	match, err := c.IfMatch()
	if err != nil {
		return err
	}
	if err := d.mayManageQuotas(c); err != nil {
		return err
	}
	q, existed, err := d.service.SetQuota(c.Request.Context(), auth.QuotaChange{User: c.PathValue("username"), Limits: limits, IfMatch: match})
	if err != nil {
		return err
	}
	d.broker.AdoptQuotas()
	status := http.StatusOK
	if !existed {
		status = http.StatusCreated
		c.Created("v1", "quotas", q.User)
	}
	return c.Resource(status, q.ETag(), d.quotaView(q))
}

// deleteQuota takes the limits of a user away, which then has those of "*".
//
//	@ID			deleteQuota
//	@Summary	Delete a quota
//	@Tags		Quotas
//	@Param		username	path	string	true	"name of a user, or * for all that have no limits of their own"
//	@Param		If-Match	header	string	false	"entity tag that the quota must have"
//	@Success	204			"deleted"
//	@Router		/v1/quotas/{username} [delete]
//	@x-errors	["unknown-user","not-found","etag-mismatch"]
func (d *Door) deleteQuota(c *route.Call) error {
	match, err := c.IfMatch()
	if err != nil {
		return err
	}
	if err := d.mayManageQuotas(c); err != nil {
		return err
	}
	if err := d.service.DeleteQuota(c.Request.Context(), c.PathValue("username"), match); err != nil {
		return err
	}
	d.broker.AdoptQuotas()
	return c.NoContent()
}
