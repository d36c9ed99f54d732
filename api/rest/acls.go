package rest

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"tidewire/api/route"
	"tidewire/broker/audit"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// ACLRule is one rule. It says what a principal may or may not do.
type ACLRule struct {
	Principal    string `json:"principal" binding:"required" example:"User:alice"`
	ResourceType string `json:"resource_type" binding:"required" enums:"topic,group,transactional-id,cluster"`
	ResourceName string `json:"resource_name" binding:"required" example:"orders"`
	Pattern      string `json:"pattern" enums:"literal,prefixed" default:"literal"`
	Operation    string `json:"operation" binding:"required" enums:"read,write,create,delete,alter,describe,describe-configs,alter-configs,cluster-action,idempotent-write,all"`
	Permission   string `json:"permission" binding:"required" enums:"allow,deny"`
	Host         string `json:"host" default:"*"`
}

// ACLView is a rule as it is stored.
type ACLView struct {
	ID           string      `json:"id"`
	Principal    string      `json:"principal"`
	ResourceType string      `json:"resource_type"`
	ResourceName string      `json:"resource_name"`
	Pattern      string      `json:"pattern"`
	Operation    string      `json:"operation"`
	Permission   string      `json:"permission"`
	Host         string      `json:"host"`
	CreatedAt    *route.Time `json:"created_at" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
	Actions      []string    `json:"actions"`
	ETag         string      `json:"etag"`
}

// ACLDeletion lists the rules that were deleted, or would be.
type ACLDeletion struct {
	Deleted []ACLView `json:"deleted"`
}

var aclFields = []string{"principal", "resource_type", "resource_name", "pattern", "operation", "permission", "host"}

func aclView(r *metadata.ACL) ACLView {
	return ACLView{
		ID: r.ID, Principal: r.Principal, ResourceType: string(r.ResourceType), ResourceName: r.ResourceName,
		Pattern: string(r.Pattern), Operation: string(r.Operation), Permission: string(r.Permission), Host: r.Host,
		CreatedAt: route.TimeOfMillis(r.CreatedAt), Actions: []string{"delete"}, ETag: "r" + r.ID,
	}
}

func aclName(r *metadata.ACL) string {
	return strings.Join([]string{
		r.Principal, string(r.ResourceType), r.ResourceName, string(r.Pattern), string(r.Operation), string(r.Permission), r.Host,
	}, " ")
}

// listACLs lists rules; prefix and q look at the rule's fields with spaces between.
//
//	@ID			listACLs
//	@Summary	List ACL rules
//	@Tags		ACLs
//	@Param		limit			query		int		false	"items of a page"	minimum(1)	maximum(1000)	default(100)
//	@Param		page_token		query		string	false	"next_page_token of the page before"
//	@Param		prefix			query		string	false	"start of the rule's fields, with spaces between"
//	@Param		q				query		string	false	"part of them, in any case"
//	@Param		sort			query		string	false	"a field, with - in front descending"	Enums(principal, -principal, resource_name, -resource_name)
//	@Param		fields			query		string	false	"fields of the items, with commas between"
//	@Param		principal		query		string	false	"only rules of this principal"
//	@Param		resource_type	query		string	false	"only rules about this type"
//	@Param		resource_name	query		string	false	"only rules with this name"
//	@Param		pattern			query		string	false	"only rules with this pattern"
//	@Param		operation		query		string	false	"only rules about this operation"
//	@Param		permission		query		string	false	"only rules with this permission"
//	@Param		host			query		string	false	"only rules for this host"
//	@Success	200				{object}	route.Page[ACLView]
//	@Router		/v1/acls [get]
func (a *API) listACLs(c *route.Call) error {
	filter, err := aclFilter(c)
	if err != nil {
		return err
	}
	return aclListing().Serve(c, func() ([]*metadata.ACL, error) {
		if err := a.authz.RequireAdmin(c.Request.Context(), c.Principal, "managing ACL rules"); err != nil {
			return nil, err
		}
		return a.matchingACLs(filter), nil
	})
}

func aclListing() *route.Listing[*metadata.ACL, ACLView] {
	return &route.Listing[*metadata.ACL, ACLView]{
		Name: aclName, By: "principal", View: aclView,
		Sorts: map[string]func(*metadata.ACL) any{
			"resource_name": func(r *metadata.ACL) any { return r.ResourceName },
		},
	}
}

func (a *API) matchingACLs(f metadata.ACLFields) []*metadata.ACL {
	rules := slices.Collect(a.cluster.Image().ACLs())
	return slices.DeleteFunc(rules, func(r *metadata.ACL) bool { return !r.Matches(f) })
}

// createACL adds a rule.
//
//	@ID			createACL
//	@Summary	Add an ACL rule
//	@Tags		ACLs
//	@Param		body	body		ACLRule	true	"the rule"
//	@Success	200		{object}	ACLView	"an equal rule was there"
//	@Success	201		{object}	ACLView
//	@Header		200		{string}	ETag		"the rule's entity tag"
//	@Header		201		{string}	ETag		"the rule's entity tag"
//	@Header		201		{string}	Location	"a list of this rule"
//	@Router		/v1/acls [post]
func (a *API) createACL(c *route.Call) error {
	in, err := route.Decode[ACLRule](c)
	if err != nil {
		return err
	}
	rule := metadata.ACLFields{
		Principal: in.Principal, ResourceType: metadata.ResourceType(in.ResourceType), ResourceName: in.ResourceName,
		Pattern: metadata.Pattern(in.Pattern), Operation: metadata.Operation(in.Operation),
		Permission: metadata.Permission(in.Permission), Host: in.Host,
	}
	if rule.Pattern == "" {
		rule.Pattern = metadata.PatternLiteral
	}
	if rule.Host == "" {
		rule.Host = "*"
	}
	c.About(audit.Resource{Type: "acl", Name: rule.Principal})
	c.Note("rule", aclWords(rule))
	if bad := metadata.CheckACL("", rule); len(bad) > 0 {
		return &model.Error{Code: model.InvalidArgument, Detail: bad[0].Detail, Fields: bad}
	}
	if err := a.authz.RequireAdmin(c.Request.Context(), c.Principal, "managing ACL rules"); err != nil {
		return err
	}
	r, existed, err := a.service.CreateACL(c.Request.Context(), rule)
	if err != nil {
		return err
	}
	v := aclView(r)
	if existed {
		return c.Resource(http.StatusOK, metadata.ETag(v.ETag), v)
	}
	c.Header("Location", c.Prefix()+"/v1/acls?"+aclQuery(r))
	return c.Resource(http.StatusCreated, metadata.ETag(v.ETag), v)
}

// aclQuery filters for exactly one rule.
func aclQuery(r *metadata.ACL) string {
	return url.Values{
		"principal": {r.Principal}, "resource_type": {string(r.ResourceType)}, "resource_name": {r.ResourceName},
		"pattern": {string(r.Pattern)}, "operation": {string(r.Operation)}, "permission": {string(r.Permission)}, "host": {r.Host},
	}.Encode()
}

// aclWords is a rule as the audit log tells it.
func aclWords(f metadata.ACLFields) string {
	return strings.Join([]string{
		string(f.Permission), f.Principal, string(f.Operation), string(f.ResourceType), f.ResourceName, string(f.Pattern), f.Host,
	}, " ")
}

// maxToldRules is how many rules the entry of a deletion names.
const maxToldRules = 50

func deletedWords(rules []*metadata.ACL) map[string]any {
	told := []string{}
	for _, r := range rules[:min(len(rules), maxToldRules)] {
		told = append(told, aclWords(r.ACLFields))
	}
	return map[string]any{"count": len(rules), "rules": told}
}

func aclFilter(c *route.Call) (metadata.ACLFields, error) {
	var f metadata.ACLFields
	for _, p := range []struct {
		name string
		into *string
	}{
		{"principal", &f.Principal},
		{"resource_type", (*string)(&f.ResourceType)},
		{"resource_name", &f.ResourceName},
		{"pattern", (*string)(&f.Pattern)},
		{"operation", (*string)(&f.Operation)},
		{"permission", (*string)(&f.Permission)},
		{"host", &f.Host},
	} {
		v, ok := c.Only(p.name)
		if !ok {
			continue
		}
		if why := metadata.CheckWord(metadata.RuleField(p.name), v); why != "" {
			return f, model.Invalid("query:"+p.name, "%s", why)
		}
		if v == "" {
			return f, model.Invalid("query:"+p.name, "%s is empty, which no rule has", p.name)
		}
		*p.into = v
	}
	return f, nil
}

// deleteACLs deletes the rules that have every field given.
//
//	@ID			deleteACLs
//	@Summary	Delete ACL rules
//	@Tags		ACLs
//	@Param		principal		query		string	false	"of this principal; at least one of the fields is needed"
//	@Param		resource_type	query		string	false	"about this type"
//	@Param		resource_name	query		string	false	"with this name"
//	@Param		pattern			query		string	false	"with this pattern"
//	@Param		operation		query		string	false	"about this operation"
//	@Param		permission		query		string	false	"with this permission"
//	@Param		host			query		string	false	"for this host"
//	@Param		dry_run			query		bool	false	"only tell which"
//	@Success	200				{object}	ACLDeletion
//	@Router		/v1/acls [delete]
func (a *API) deleteACLs(c *route.Call) error {
	filter, err := aclFilter(c)
	if err != nil {
		return err
	}
	dry, err := c.QueryBool("dry_run")
	if err != nil {
		return err
	}
	if filter == (metadata.ACLFields{}) {
		return model.Invalid("query:principal", "give at least one field of the rules to delete")
	}
	if err := a.authz.RequireAdmin(c.Request.Context(), c.Principal, "managing ACL rules"); err != nil {
		return err
	}
	var gone []*metadata.ACL
	if dry {
		gone = a.matchingACLs(filter)
	} else if gone, err = a.service.DeleteACLs(c.Request.Context(), filter); err != nil {
		return err
	}
	out := ACLDeletion{Deleted: []ACLView{}}
	c.Note("deleted", deletedWords(gone))
	for _, r := range gone {
		out.Deleted = append(out.Deleted, aclView(r))
	}
	return c.JSON(http.StatusOK, out)
}
