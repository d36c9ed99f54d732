package rest

import (
	"net/http"
	"slices"
	"time"

	"tidewire/api/route"
	"tidewire/auth"
	"tidewire/broker/audit"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// TokenScope narrows an API token: it may do what its user may and one of its scopes names.
type TokenScope struct {
	ResourceType string `json:"resource_type" binding:"required" enums:"topic,group,transactional-id,cluster"`
	ResourceName string `json:"resource_name" binding:"required" example:"orders"`
	Pattern      string `json:"pattern" enums:"literal,prefixed" default:"literal"`
	Operation    string `json:"operation" binding:"required" enums:"read,write,create,delete,alter,describe,describe-configs,alter-configs,cluster-action,idempotent-write,all"`
}

// TokenCreate describes a new API token.
type TokenCreate struct {
	Name       string       `json:"name" binding:"required"`
	ExpiresInS *int64       `json:"expires_in_s" extensions:"x-nullable" minimum:"1" maximum:"315360000"` // null: without end
	Scopes     []TokenScope `json:"scopes" extensions:"x-nullable"`                                       // null: all of the user's rights; empty: none
}

// TokenView is an API token, without what it is used by.
type TokenView struct {
	ID         string       `json:"id"`
	Name       string       `json:"name"`
	Username   string       `json:"username"`
	Scopes     []TokenScope `json:"scopes" extensions:"x-nullable"` // null: all of the user's rights
	CreatedAt  *route.Time  `json:"created_at" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
	ExpiresAt  *route.Time  `json:"expires_at" swaggertype:"string" format:"date-time" extensions:"x-nullable"` // null: never
	LastUsedAt *route.Time  `json:"last_used_at" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
	Actions    []string     `json:"actions"`
	ETag       string       `json:"etag"`
}

// TokenCreated is a new API token. The text of the token is told here and nowhere else.
type TokenCreated struct {
	ID         string       `json:"id"`
	Name       string       `json:"name"`
	Token      string       `json:"token"`
	Username   string       `json:"username"`
	Scopes     []TokenScope `json:"scopes" extensions:"x-nullable"`
	CreatedAt  *route.Time  `json:"created_at" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
	ExpiresAt  *route.Time  `json:"expires_at" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
	LastUsedAt *route.Time  `json:"last_used_at" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
	Actions    []string     `json:"actions"`
	ETag       string       `json:"etag"`
}

func (a *API) tokenView(k *metadata.APIToken) TokenView {
	v := TokenView{
		ID: k.ID, Name: k.Name, Username: k.User, CreatedAt: route.TimeOfMillis(k.CreatedAt), ExpiresAt: route.TimeOfMillis(k.ExpiresAt),
		Actions: []string{"delete"}, ETag: string(k.ETag()),
	}
	if k.Scopes != nil {
		v.Scopes = make([]TokenScope, len(k.Scopes))
	}
	for i, s := range k.Scopes {
		v.Scopes[i] = TokenScope{string(s.ResourceType), s.ResourceName, string(s.Pattern), string(s.Operation)}
	}
	if at, used := a.tokens.LastUsed(k); used {
		v.LastUsedAt = new(route.TimeOf(at))
	}
	return v
}

// tokensOwner finds the user whose tokens are asked for, for who may manage them.
func (a *API) tokensOwner(c *route.Call) (*metadata.User, error) {
	if err := a.service.MayManageTokens(c.Request.Context(), c.Principal, c.PathValue("username")); err != nil {
		return nil, err
	}
	return a.knownUser(c)
}

// listTokens lists the API tokens of a user.
//
//	@ID			listTokens
//	@Summary	List API tokens
//	@Tags		Users
//	@Param		username	path		string	true	"name"
//	@Param		limit		query		int		false	"items of a page"	minimum(1)	maximum(1000)	default(100)
//	@Param		page_token	query		string	false	"next_page_token of the page before"
//	@Param		prefix		query		string	false	"start of the token's name"
//	@Param		q			query		string	false	"part of the name, in any case"
//	@Param		sort		query		string	false	"a field, with - in front descending"	Enums(name, -name, created_at, -created_at, expires_at, -expires_at, last_used_at, -last_used_at)
//	@Param		fields		query		string	false	"fields of the items, with commas between"
//	@Success	200			{object}	route.Page[TokenView]
//	@Router		/v1/users/{username}/tokens [get]
//	@x-errors	["unknown-user"]
func (a *API) listTokens(c *route.Call) error {
	l := route.Listing[*metadata.APIToken, TokenView]{
		Name: func(k *metadata.APIToken) string { return k.Name }, By: "name", View: a.tokenView,
		Unique: func(k *metadata.APIToken) string { return k.ID },
		Sorts: map[string]func(*metadata.APIToken) any{
			"created_at": func(k *metadata.APIToken) any { return float64(k.CreatedAt) },
			"expires_at": func(k *metadata.APIToken) any { return float64(k.ExpiresAt) },
			"last_used_at": func(k *metadata.APIToken) any {
				at, _ := a.tokens.LastUsed(k)
				return float64(at.UnixMilli())
			},
		},
	}
	return l.Serve(c, func() ([]*metadata.APIToken, error) {
		u, err := a.tokensOwner(c)
		if err != nil {
			return nil, err
		}
		return slices.Collect(a.cluster.Image().APITokensOf(u.Name)), nil
	})
}

// tokenID is the id of an API token.
type tokenID string

// aboutToken has the audit log tell of a user's token.
func aboutToken(c *route.Call, username string, id tokenID) {
	c.About(audit.Resource{Type: "user", Name: username}, audit.Resource{Type: "token", Name: string(id)})
	c.Note("token", string(id))
}

// createToken makes an API token. Keep its text: it is not told again.
//
//	@ID			createToken
//	@Summary	Create an API token
//	@Tags		Users
//	@Param		username	path		string		true	"name"
//	@Param		body		body		TokenCreate	true	"the token"
//	@Success	201			{object}	TokenCreated
//	@Header		201			{string}	Location	"where the token is"
//	@Header		201			{string}	ETag		"the token's entity tag"
//	@Router		/v1/users/{username}/tokens [post]
//	@x-errors	["unknown-user","conflict"]
func (a *API) createToken(c *route.Call) error {
	in, err := route.Decode[TokenCreate](c)
	if err != nil {
		return err
	}
	n := auth.NewAPIToken{Username: c.PathValue("username"), Name: in.Name}
	if s := in.ExpiresInS; s != nil {
		if *s < 1 || *s > int64(auth.MaxTokenTTL/time.Second) {
			return model.Invalid("/expires_in_s", "expires_in_s is a whole number from 1 to %d, not %d; without it the token has no end", int64(auth.MaxTokenTTL/time.Second), *s)
		}
		n.TTL = time.Duration(*s) * time.Second
	}
	if in.Scopes != nil {
		n.Scopes = make([]metadata.Scope, len(in.Scopes))
	}
	for i, s := range in.Scopes {
		n.Scopes[i] = metadata.Scope{
			ResourceType: metadata.ResourceType(s.ResourceType), ResourceName: s.ResourceName,
			Pattern: metadata.Pattern(s.Pattern), Operation: metadata.Operation(s.Operation),
		}
		if s.Pattern == "" {
			n.Scopes[i].Pattern = metadata.PatternLiteral
		}
	}
	text, k, err := a.service.CreateAPIToken(c.Request.Context(), c.Principal, n)
	if err != nil {
		return err
	}
	aboutToken(c, k.User, tokenID(k.ID))
	v := a.tokenView(k)
	c.Created("v1", "users", k.User, "tokens", k.ID)
	return c.Resource(http.StatusCreated, k.ETag(), TokenCreated{
		ID: v.ID, Name: v.Name, Token: text, Username: v.Username, Scopes: v.Scopes, CreatedAt: v.CreatedAt,
		ExpiresAt: v.ExpiresAt, LastUsedAt: v.LastUsedAt, Actions: v.Actions, ETag: v.ETag,
	})
}

// deleteToken deletes an API token, which is dead from then on: requests with it are
// refused, and streams that it opened end.
//
//	@ID			deleteToken
//	@Summary	Delete an API token
//	@Tags		Users
//	@Param		username	path	string	true	"name"
//	@Param		id			path	string	true	"id of the token"
//	@Param		If-Match	header	string	false	"entity tag that the token must have"
//	@Success	204			"deleted"
//	@Router		/v1/users/{username}/tokens/{id} [delete]
//	@x-errors	["unknown-user","not-found","etag-mismatch"]
func (a *API) deleteToken(c *route.Call) error {
	match, err := c.IfMatch()
	if err != nil {
		return err
	}
	aboutToken(c, c.PathValue("username"), tokenID(c.PathValue("id")))
	u, err := a.tokensOwner(c)
	if err != nil {
		return err
	}
	if err := a.service.DeleteAPIToken(c.Request.Context(), auth.TokenDeletion{Username: u.Name, ID: c.PathValue("id"), IfMatch: match}); err != nil {
		return err
	}
	return c.NoContent()
}
