package admin

import (
	"context"
	"net/http"

	"tidewire/api/route"
	"tidewire/auth"
	"tidewire/broker"
	"tidewire/cluster/metadata"
)

// Authorization decides who is an administrator.
type Authorization interface {
	RequireAdmin(ctx context.Context, p *auth.Principal, what string) error
}

// Cluster gives the metadata.
type Cluster interface {
	Image() *metadata.Image
}

// Config is what a Door is made of.
type Config struct {
	Service *auth.Service
	Authz   Authorization
	Cluster Cluster
	Broker  *broker.Broker
}

// Door holds the endpoints.
type Door struct {
	service *auth.Service
	authz   Authorization
	cluster Cluster
	broker  *broker.Broker
}

// New returns a Door, whose Routes are to be registered with a route.Gate.
func New(c Config) *Door {
	return &Door{service: c.Service, authz: c.Authz, cluster: c.Cluster, broker: c.Broker}
}

const (
	get    = http.MethodGet
	put    = http.MethodPut
	remove = http.MethodDelete

	admins = "administrators"
)

// Routes are the rows of the endpoints.
func (d *Door) Routes() []*route.Route {
	return []*route.Route{
		{Method: get, Path: "/v1/quotas", ID: "listQuotas", Needs: admins, Query: route.ListQuery, Handle: d.listQuotas},
		{Method: get, Path: "/v1/quotas/{username}", ID: "getQuota", Needs: admins, Handle: d.getQuota},
		{Method: put, Path: "/v1/quotas/{username}", ID: "setQuota", Needs: admins, Body: route.JSON, Handle: d.setQuota},
		{Method: remove, Path: "/v1/quotas/{username}", ID: "deleteQuota", Needs: admins, Handle: d.deleteQuota},
		{Method: get, Path: "/v1/audit", ID: "listAudit", Needs: admins, Query: auditQuery, Handle: d.listAudit},
	}
}
