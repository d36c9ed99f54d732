package rest

import (
	"net/http"
	"slices"
	"strings"

	"tidewire/api/route"
	"tidewire/broker/quota"
)

// Routes is the table of all documented endpoints under REST, those not built yet
// included.
func (a *API) Routes() []*route.Route {
	return slices.Concat(a.authRoutes(), a.userRoutes(), a.topicRoutes(), a.recordRoutes(), a.clusterRoutes(),
		a.processRoutes(), unbuiltRoutes())
}

const (
	get    = http.MethodGet
	post   = http.MethodPost
	patch  = http.MethodPatch
	remove = http.MethodDelete
)

func (a *API) authRoutes() []*route.Route {
	return []*route.Route{
		{Method: post, Path: "/v1/auth/login", ID: "login", Public: true, Body: route.JSON, Query: []string{"session"}, Handle: a.login},
		{Method: post, Path: "/v1/auth/refresh", ID: "refresh", AuditFailures: true, Public: true, Body: route.JSON, Handle: a.refresh},
		{Method: post, Path: "/v1/auth/logout", ID: "logout", Needs: "own session", Handle: a.logout},
		{Method: post, Path: "/v1/auth/tickets", ID: "createTicket", Unaudited: "it only opens what the caller may open anyway", Needs: "own session or token", Handle: a.createTicket},
		{Method: get, Path: "/v1/auth/me", ID: "me", Needs: "own account", Handle: a.me},
		{Method: get, Path: "/.well-known/jwks.json", ID: "jwks", Public: true, Handle: a.jwks},
		{Method: get, Path: "/v1/setup", ID: "setupState", Public: true, Handle: a.setupState},
		{Method: post, Path: "/v1/setup", ID: "setup", Public: true, Needs: "the setup token", Body: route.JSON, Handle: a.setup},
	}
}

const (
	admins      = "administrators"
	ownOrAdmins = "own account, or " + admins + "; no token with scopes"
)

func (a *API) userRoutes() []*route.Route {
	return []*route.Route{
		{Method: get, Path: "/v1/users", ID: "listUsers", Needs: admins, Query: route.ListQuery, Handle: a.listUsers},
		{Method: post, Path: "/v1/users", ID: "createUser", Needs: admins, Body: route.JSON, Handle: a.createUser},
		{Method: get, Path: "/v1/users/{username}", ID: "getUser", Needs: admins, Handle: a.getUser},
		{Method: patch, Path: "/v1/users/{username}", ID: "updateUser", Needs: admins, Body: route.JSON, Handle: a.updateUser},
		{Method: remove, Path: "/v1/users/{username}", ID: "deleteUser", Needs: admins, Query: []string{"dry_run"}, Handle: a.deleteUser},
		{Method: post, Path: "/v1/users/{username}/set-password", ID: "setPassword", Needs: "own account with current_password, or " + admins, Body: route.JSON, Handle: a.setPassword},
		{Method: get, Path: "/v1/users/{username}/tokens", ID: "listTokens", Needs: ownOrAdmins, Query: route.ListQuery, Handle: a.listTokens},
		{Method: post, Path: "/v1/users/{username}/tokens", ID: "createToken", Needs: ownOrAdmins, Body: route.JSON, Handle: a.createToken},
		{Method: remove, Path: "/v1/users/{username}/tokens/{id}", ID: "deleteToken", Needs: ownOrAdmins, Handle: a.deleteToken},
		{Method: get, Path: "/v1/acls", ID: "listACLs", Needs: admins, Query: slices.Concat(route.ListQuery, aclFields), Handle: a.listACLs},
		{Method: post, Path: "/v1/acls", ID: "createACL", Needs: admins, Body: route.JSON, Handle: a.createACL},
		{Method: remove, Path: "/v1/acls", ID: "deleteACLs", Needs: admins, Query: slices.Concat(aclFields, []string{"dry_run"}), Handle: a.deleteACLs},
		{Method: post, Path: "/v1/acls/check", ID: "checkACL", Unaudited: "a question", Needs: admins, Body: route.JSON, Handle: a.checkACL},
	}
}

func (a *API) topicRoutes() []*route.Route {
	const one = "/v1/topics/{topic}"
	return []*route.Route{
		{Method: get, Path: "/v1/topics", ID: "listTopics", Needs: "describe topic, each listed", Query: slices.Concat(route.ListQuery, []string{"internal"}), Handle: a.listTopics},
		{Method: post, Path: "/v1/topics", ID: "createTopic", Needs: "create topic or create cluster", Body: route.JSON, Handle: a.createTopic},
		{Method: get, Path: one, ID: "getTopic", Needs: "describe topic", Handle: a.getTopic},
		{Method: patch, Path: one, ID: "updateTopic", Needs: "alter topic", Body: route.JSON, Query: []string{"dry_run"}, Handle: a.updateTopic},
		{Method: remove, Path: one, ID: "deleteTopic", Needs: "delete topic", Query: []string{"dry_run"}, Handle: a.deleteTopic},
		{Method: post, Path: one + "/delete-records", ID: "deleteRecords", Needs: "delete topic", Body: route.JSON, Query: []string{"dry_run"}, Handle: a.deleteRecords},
		{Method: get, Path: one + "/offsets", ID: "topicOffsets", Needs: "describe topic", Query: []string{"timestamp"}, Handle: a.topicOffsets},
		{Method: get, Path: one + "/access", ID: "topicAccess", Needs: admins, Query: route.ListQuery, Handle: a.topicAccess},
	}
}

// unauditedRecords is why producing leaves nothing in the audit log.
const unauditedRecords = "records, which clients write all the time"

// producing headers that belong to idempotence and transactions.
var unbuiltProduce = route.Unbuilt{
	Headers: []string{"Tidewire-Transaction"},
}

func (a *API) recordRoutes() []*route.Route {
	const one = "/v1/topics/{topic}/partitions/{partition}/records"
	raw := slices.Concat([]string{"acks", "timeout_ms", "results"}, rawParameters)
	return []*route.Route{
		{Method: post, Path: "/v1/topics/{topic}/records", ID: "produce", Unaudited: unauditedRecords, Needs: "write topic", Body: route.RawBody, Content: checkProduceType, Quota: producing, MaxBody: maxProduceBody, Endless: ndjson, Records: true, Query: raw, Handle: a.produceRecords, Unbuilt: unbuiltProduce},
		{Method: post, Path: one, ID: "producePartition", Unaudited: unauditedRecords, Needs: "write topic", Body: route.RawBody, Content: checkProduceType, Quota: producing, MaxBody: maxProduceBody, Endless: ndjson, Records: true, Query: raw, Handle: a.producePartition, Unbuilt: unbuiltProduce},
		{Method: post, Path: "/v1/producers", ID: "createProducer", Unaudited: unauditedRecords, Needs: "idempotent-write cluster, or write to any topic", Handle: a.createProducer},
		{Method: get, Path: "/v1/topics/{topic}/records", ID: "browse", Needs: "read topic", Records: true, Quota: browsed, Query: browseQuery, Accept: browseAccept, Handle: a.browseRecords},
		{Method: get, Path: one, ID: "fetch", Needs: "read topic", Records: true, Quota: fetching, Query: fetchQuery, Accept: fetchMedia, Handle: a.fetchRecords},
		{Method: get, Path: one + "/{offset}", ID: "getRecord", Needs: "read topic", Records: true, Quota: fetching, Query: recordQuery, Accept: recordMedia, Handle: a.getRecord},
	}
}

// producing, fetching and browsed tell which limit of its user a call stands for. Lines and
// streams are slowed instead, by who reads and writes them.
func producing(c *route.Call) quota.Kind {
	if media, err := produceMedia(c); err == nil && media == mediaLines {
		return quota.Requests
	}
	return quota.Produce
}

func fetching(*route.Call) quota.Kind { return quota.Fetch }

func browsed(c *route.Call) quota.Kind {
	if c.Media() != route.JSONOnly[0] {
		return quota.Requests
	}
	return quota.Fetch
}

func (a *API) clusterRoutes() []*route.Route {
	return []*route.Route{
		{Method: get, Path: "/v1/cluster", ID: "getCluster", Needs: "describe cluster", Handle: a.getCluster},
		{Method: get, Path: "/v1/brokers", ID: "listBrokers", Needs: "describe cluster", Query: route.ListQuery, Handle: a.listBrokers},
		{Method: get, Path: "/v1/brokers/{broker}", ID: "getBroker", Needs: "describe cluster", Handle: a.getBroker},
		{Method: get, Path: "/v1/info", ID: "info", Needs: "any user", Handle: a.info},
	}
}

func (a *API) processRoutes() []*route.Route {
	return []*route.Route{
		{Method: get, Path: "/healthz", ID: "healthz", Public: true, Handle: a.health},
		{Method: get, Path: "/readyz", ID: "readyz", Public: true, Handle: a.ready},
		{Method: get, Path: "/metrics", ID: "metrics", Needs: "describe cluster, unless --metrics-public or --dev", Public: a.metricsPublic, Accept: []string{"text/plain", "application/openmetrics-text"}, Handle: a.metrics},
		{Method: get, Path: "/openapi.json", ID: "openapiJSON", Public: true, Handle: a.openapiJSON},
		{Method: get, Path: "/openapi.yaml", ID: "openapiYAML", Public: true, Accept: []string{"application/yaml"}, Handle: a.openapiYAML},
	}
}

// anything are the types that the documented endpoints can be asked for.
var anything = []string{
	"application/json", "application/x-ndjson", "text/event-stream", "text/csv", "application/octet-stream",
	"application/vnd.kafka.record-batches",
}

// unbuiltRoutes are documented and answer 501.
func unbuiltRoutes() []*route.Route {
	var out []*route.Route
	for _, r := range []struct{ path, methods string }{
		{"/v1/transactions", "GET POST"},
		{"/v1/transactions/execute", "POST"},
		{"/v1/transactions/{id}", "GET"},
		{"/v1/transactions/{id}/offsets", "POST"},
		{"/v1/transactions/{id}/commit", "POST"},
		{"/v1/transactions/{id}/abort", "POST"},
	} {
		for m := range strings.FieldsSeq(r.methods) {
			out = append(out, &route.Route{Method: m, Path: r.path, Needs: "not built yet", Body: route.RawBody, MaxBody: maxProduceBody, Accept: anything})
		}
	}
	return out
}
