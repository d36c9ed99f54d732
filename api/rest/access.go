package rest

import (
	"net/http"
	"slices"

	"tidewire/api/route"
	"tidewire/auth"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// ACLQuestion asks whether a principal may do something.
type ACLQuestion struct {
	Principal    string `json:"principal" binding:"required" example:"User:alice"`
	Operation    string `json:"operation" binding:"required" enums:"read,write,create,delete,alter,describe,describe-configs,alter-configs,cluster-action,idempotent-write,all"`
	ResourceType string `json:"resource_type" binding:"required" enums:"topic,group,transactional-id,cluster"`
	ResourceName string `json:"resource_name" binding:"required" example:"orders"`
	Host         string `json:"host"` // the client's address; without, only rules for any host count
}

// ACLAnswer tells whether it may, and by which rule. Without a rule nobody may, and
// administrators may all.
type ACLAnswer struct {
	Allowed bool     `json:"allowed"`
	Rule    *ACLView `json:"rule" extensions:"x-nullable"`
}

// checkACL tells what the rules say, by the same evaluation that every request passes.
//
//	@ID			checkACL
//	@Summary	Ask who may do what
//	@Tags		ACLs
//	@Param		body	body		ACLQuestion	true	"the question"
//	@Success	200		{object}	ACLAnswer
//	@Router		/v1/acls/check [post]
func (a *API) checkACL(c *route.Call) error {
	in, err := route.Decode[ACLQuestion](c)
	if err != nil {
		return err
	}
	q := auth.Access{
		Operation: metadata.Operation(in.Operation), Resource: metadata.ResourceType(in.ResourceType), Name: in.ResourceName, Host: in.Host,
	}
	if why := model.CheckName(in.ResourceName); why != "" {
		return model.Invalid("/resource_name", "a resource name %s", why)
	}
	d, err := a.decider.Check(in.Principal, q)
	if err != nil {
		return err
	}
	if err := a.authz.RequireAdmin(c.Request.Context(), c.Principal, "asking about rules"); err != nil {
		return err
	}
	out := ACLAnswer{Allowed: d.Allowed}
	if d.Rule != nil {
		out.Rule = new(aclView(d.Rule))
	}
	return c.JSON(http.StatusOK, out)
}

// topicAccess lists the rules that apply to a topic: those for its name, for all topics, and
// for what its name begins with.
//
//	@ID			topicAccess
//	@Summary	List the ACL rules that apply to a topic
//	@Tags		Topics
//	@Param		topic		path		string	true	"name"
//	@Param		limit		query		int		false	"items of a page"	minimum(1)	maximum(1000)	default(100)
//	@Param		page_token	query		string	false	"next_page_token of the page before"
//	@Param		prefix		query		string	false	"start of the rule's fields, with spaces between"
//	@Param		q			query		string	false	"part of them, in any case"
//	@Param		sort		query		string	false	"a field, with - in front descending"	Enums(principal, -principal, resource_name, -resource_name)
//	@Param		fields		query		string	false	"fields of the items, with commas between"
//	@Success	200			{object}	route.Page[ACLView]
//	@Router		/v1/topics/{topic}/access [get]
//	@x-errors	["unknown-topic"]
func (a *API) topicAccess(c *route.Call) error {
	return aclListing().Serve(c, func() ([]*metadata.ACL, error) {
		ctx := c.Request.Context()
		if err := a.authz.RequireAdmin(ctx, c.Principal, "looking at ACL rules"); err != nil {
			return nil, err
		}
		t, err := a.broker.DescribeTopic(ctx, c.Caller(), c.PathValue("topic"))
		if err != nil {
			return nil, err
		}
		return slices.Collect(a.cluster.Image().MatchingACLs(metadata.ResourceTopic, t.Topic.Name)), nil
	})
}
