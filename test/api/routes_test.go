package api

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/api/admin"
	"tidewire/api/groups"
	"tidewire/api/moves"
	"tidewire/api/ops"
	"tidewire/api/partitions"
	"tidewire/api/rest"
	"tidewire/api/route"
	"tidewire/auth"
	"tidewire/web"
)

// routes is the real table of a node, streams included.
func routes() []*route.Route {
	return slices.Concat(rest.New(rest.Config{Auth: &auth.Auth{}}).Routes(), admin.New(admin.Config{}).Routes(), ops.New(ops.Config{}).Routes(), groups.New(groups.Config{}).Routes(), partitions.New(partitions.Config{}).Routes(), moves.New(nil).Routes(), web.NewStreams(nil).Routes())
}

// access is who may use a route.
type access uint8

const (
	public access = iota
	anyUser
	admins
	byRule // operation on the row's resource
)

// row says how one route is used rightly, and how it is told a missing thing. The name
// is of a resource that prepare has made; it is legal for topics and users.
type row struct {
	access    access
	operation string // byRule
	cluster   bool   // byRule: the resource is the cluster, not a topic
	group     bool   // byRule: the resource is a group, not a topic
	reads     bool   // byRule: read on the topic of the same name is needed too
	creates   bool   // what the path names need not be there
	path      func(name string) string
	body      func(a *api, name string) any
	prepare   func(a *api, name string)
	success   int
	missing   string // a path whose thing is not there
	code      string // the code it gives
}

func fixed(path string) func(string) string { return func(string) string { return path } }

func topicPath(rest string) func(string) string {
	return func(name string) string { return "/v1/topics/" + name + rest }
}

func userPath(rest string) func(string) string {
	return func(name string) string { return "/v1/users/" + name + rest }
}

func makeTopic(a *api, name string) { a.t.Helper(); a.topic(name, 1, nil) }
func quotaPath(name string) string  { return "/v1/quotas/" + name }

// makeQuota makes a user with a quota.
func makeQuota(a *api, name string) {
	a.t.Helper()
	a.user(name)
	wants(a.t, a.as(a.admin, "PUT", quotaPath(name), object{"requests_per_s": 1000}), 201, "")
}

func makeUser(a *api, name string) { a.t.Helper(); a.user(name) }

// tokenPaths are the paths of the tokens that makeToken has made, by the user's name.
var tokenPaths sync.Map

func makeToken(a *api, name string) {
	a.t.Helper()
	a.user(name)
	_, path := a.apiToken(name, object{"name": "n"})
	tokenPaths.Store(name, path)
}

func tokenPath(name string) string {
	if path, ok := tokenPaths.Load(name); ok {
		return path.(string)
	}
	return "/v1/users/" + name + "/tokens/none"
}

// operationPaths are the paths of the operations that findOperation has found.
var operationPaths sync.Map

// findOperation finds the operation that opened the node's partitions.
func findOperation(a *api, name string) {
	a.t.Helper()
	for _, it := range decoded(a.t, a.get("/v1/operations?limit=1000"), 200)["items"].([]any) {
		if it.(object)["kind"] == "open-partitions" {
			operationPaths.Store(name, "/v1/operations/"+it.(object)["id"].(string))
		}
	}
}

func operationPath(name string) string {
	path, _ := operationPaths.Load(name)
	s, _ := path.(string)
	return s
}

func groupPath(rest string) func(string) string {
	return func(name string) string { return "/v1/groups/" + name + rest }
}

// makeGroup makes a topic and a group that has an offset of it.
func makeGroup(a *api, name string) {
	a.t.Helper()
	a.topic(name, 1, nil)
	wants(a.t, a.as(a.admin, "PUT", "/v1/groups/"+name+"/offsets", offsetsBody("offsets")(a, name)), 200, "")
}

// memberIDs are the members that makeMember has made, by the group's name.
var memberIDs sync.Map

// makeMember makes a topic and a member that has its partition.
func makeMember(a *api, name string) {
	a.t.Helper()
	a.topic(name, 1, nil)
	m := a.join(name, object{"topics": []string{name}})
	m.owns(1)
	memberIDs.Store(name, m.id)
}

func memberPath(rest string) func(string) string {
	return func(name string) string {
		id, ok := memberIDs.Load(name)
		if !ok {
			id = "none"
		}
		return "/v1/groups/" + name + "/members/" + id.(string) + rest
	}
}

// offsetsBody names the first offset of the topic of a name.
func offsetsBody(list string) func(*api, string) any {
	return func(_ *api, name string) any {
		return object{list: []object{{"topic": name, "partition": 0, "next_offset": 0}}}
	}
}

func constant(v any) func(*api, string) any { return func(*api, string) any { return v } }

var oneRecord = constant(object{"records": []object{{"key": "k", "value": "v"}}})

// ruleBody is an ACL rule of a user.
func ruleBody(_ *api, name string) any {
	return object{
		"principal": "User:" + name, "resource_type": "topic", "resource_name": name, "operation": "read", "permission": "allow",
	}
}

// rows has one row for every route that is built, by the route's id.
var rows = map[string]row{
	"login": {access: public, path: fixed("/v1/auth/login"), success: 200,
		prepare: makeUser, body: func(_ *api, name string) any { return object{"username": name, "password": userPassword} }},
	"refresh": {access: public, path: fixed("/v1/auth/refresh"), success: 200,
		prepare: makeUser, body: func(a *api, name string) any {
			x := a.Do(request{Method: "POST", Path: "/v1/auth/login", Body: object{"username": name, "password": userPassword}})
			return object{"refresh_token": decoded(a.t, x, 200)["refresh_token"]}
		}},
	"logout":       {access: anyUser, path: fixed("/v1/auth/logout"), success: 204},
	"createTicket": {access: anyUser, path: fixed("/v1/auth/tickets"), success: 200},
	"me":           {access: anyUser, path: fixed("/v1/auth/me"), success: 200},
	"jwks":         {access: public, path: fixed("/.well-known/jwks.json"), success: 200},
	"setupState":   {access: public, path: fixed("/v1/setup"), success: 200},
	// A node with users refuses the setup; TestTheSetupMakesTheFirstAdministrator has
	// the way to 201.
	"setup": {access: public, path: fixed("/v1/setup"), success: 409,
		body: constant(object{"token": "t", "username": "u", "password": userPassword})},

	"listUsers": {access: admins, path: fixed("/v1/users"), success: 200},
	"createUser": {access: admins, path: fixed("/v1/users"), success: 201,
		body: func(_ *api, name string) any { return object{"username": name, "password": userPassword} }},
	"getUser": {access: admins, path: userPath(""), prepare: makeUser, success: 200, missing: "/v1/users/nobody-here", code: "unknown-user"},
	"updateUser": {access: admins, path: userPath(""), prepare: makeUser, success: 200, body: constant(object{"disabled": true}),
		missing: "/v1/users/nobody-here", code: "unknown-user"},
	"deleteUser": {access: admins, path: userPath(""), prepare: makeUser, success: 204, missing: "/v1/users/nobody-here", code: "unknown-user"},
	"setPassword": {access: admins, path: userPath("/set-password"), prepare: makeUser, success: 204,
		body: constant(object{"password": "another password"}), missing: "/v1/users/nobody-here/set-password", code: "unknown-user"},
	"listTokens": {access: admins, path: userPath("/tokens"), prepare: makeUser, success: 200, missing: "/v1/users/nobody-here/tokens", code: "unknown-user"},
	"createToken": {access: admins, path: userPath("/tokens"), prepare: makeUser, success: 201, body: constant(object{"name": "ci", "expires_in_s": 60}),
		missing: "/v1/users/nobody-here/tokens", code: "unknown-user"},
	"deleteToken": {access: admins, path: tokenPath, prepare: makeToken, success: 204, missing: "/v1/users/admin/tokens/none", code: "not-found"},
	"checkACL": {access: admins, path: fixed("/v1/acls/check"), success: 200,
		body: constant(object{"principal": "User:x", "operation": "read", "resource_type": "topic", "resource_name": "t"})},
	"topicAccess": {access: admins, path: topicPath("/access"), prepare: makeTopic, success: 200, missing: "/v1/topics/not-there/access", code: "unknown-topic"},
	"listACLs":    {access: admins, path: fixed("/v1/acls"), success: 200},
	"createACL":   {access: admins, path: fixed("/v1/acls"), success: 201, body: ruleBody},
	"deleteACLs":  {access: admins, path: func(name string) string { return "/v1/acls?principal=User:" + name }, success: 200},

	"listQuotas": {access: admins, path: fixed("/v1/quotas"), success: 200},
	"getQuota": {access: admins, path: quotaPath, prepare: makeQuota, success: 200,
		missing: "/v1/quotas/nobody-here", code: "unknown-user"},
	"setQuota": {access: admins, path: quotaPath, prepare: makeUser, success: 201, body: constant(object{"requests_per_s": 1000}),
		missing: "/v1/quotas/nobody-here", code: "unknown-user"},
	"deleteQuota": {access: admins, path: quotaPath, prepare: makeQuota, success: 204,
		missing: "/v1/quotas/nobody-here", code: "unknown-user"},

	"listAudit": {access: admins, path: fixed("/v1/audit"), success: 200},

	"listTopics": {access: anyUser, path: fixed("/v1/topics"), success: 200},
	"createTopic": {access: byRule, operation: "create", path: fixed("/v1/topics"), success: 201,
		body: func(_ *api, name string) any { return object{"name": name} }},
	"getTopic": {access: byRule, operation: "describe", path: topicPath(""), prepare: makeTopic, success: 200,
		missing: "/v1/topics/not-there", code: "unknown-topic"},
	"updateTopic": {access: byRule, operation: "alter", path: topicPath(""), prepare: makeTopic, success: 200,
		body: constant(object{"partitions": 2}), missing: "/v1/topics/not-there", code: "unknown-topic"},
	"deleteTopic": {access: byRule, operation: "delete", path: topicPath(""), prepare: makeTopic, success: 204,
		missing: "/v1/topics/not-there", code: "unknown-topic"},
	"getTopicConfig": {access: byRule, operation: "describe-configs", path: topicPath("/config"), prepare: makeTopic, success: 200,
		missing: "/v1/topics/not-there/config", code: "unknown-topic"},
	"updateTopicConfig": {access: byRule, operation: "alter-configs", path: topicPath("/config"), prepare: makeTopic, success: 200,
		body: constant(object{"set": object{"retention.ms": 1000}}), missing: "/v1/topics/not-there/config", code: "unknown-topic"},
	"deleteRecords": {access: byRule, operation: "delete", path: topicPath("/delete-records"), prepare: makeTopic, success: 200,
		body:    constant(object{"partitions": []object{{"partition": 0, "before_offset": "high_watermark"}}}),
		missing: "/v1/topics/not-there/delete-records", code: "unknown-topic"},
	"topicOffsets": {access: byRule, operation: "describe", path: topicPath("/offsets?timestamp=latest"), prepare: makeTopic, success: 200,
		missing: "/v1/topics/not-there/offsets?timestamp=latest", code: "unknown-topic"},

	"produce": {access: byRule, operation: "write", path: topicPath("/records"), prepare: makeTopic, success: 200, body: oneRecord,
		missing: "/v1/topics/not-there/records", code: "unknown-topic"},
	"producePartition": {access: byRule, operation: "write", path: topicPath("/partitions/0/records"), prepare: makeTopic, success: 200,
		body: oneRecord, missing: "/v1/topics/not-there/partitions/0/records", code: "unknown-topic"},
	"createProducer": {access: byRule, operation: "idempotent-write", cluster: true, path: fixed("/v1/producers"), success: 200},
	"browse": {access: byRule, operation: "read", path: topicPath("/records"), prepare: makeTopic, success: 200,
		missing: "/v1/topics/not-there/records", code: "unknown-topic"},
	"fetch": {access: byRule, operation: "read", path: topicPath("/partitions/0/records?offset=earliest"), prepare: makeTopic, success: 200,
		missing: "/v1/topics/not-there/partitions/0/records?offset=earliest", code: "unknown-topic"},
	"getRecord": {access: byRule, operation: "read", path: topicPath("/partitions/0/records/0"), success: 200,
		prepare: func(a *api, name string) { a.t.Helper(); a.records(a.topic(name, 1, nil), object{"value": "v"}) },
		missing: "/v1/topics/not-there/partitions/0/records/0", code: "unknown-topic"},

	"getCluster":     {access: byRule, operation: "describe", cluster: true, path: fixed("/v1/cluster"), success: 200},
	"listPartitions": {access: anyUser, path: fixed("/v1/partitions"), success: 200},
	"listBrokers":    {access: byRule, operation: "describe", cluster: true, path: fixed("/v1/brokers"), success: 200},
	"getBroker": {access: byRule, operation: "describe", cluster: true, path: fixed("/v1/brokers/1"), success: 200,
		missing: "/v1/brokers/77", code: "unknown-broker"},
	// What one node alone cannot do is refused: it is told why.
	"listReassignments": {access: byRule, operation: "describe", cluster: true, path: fixed("/v1/reassignments"), success: 200},
	"createReassignments": {access: byRule, operation: "alter", cluster: true, path: fixed("/v1/reassignments"), prepare: makeTopic, success: 200,
		body: func(_ *api, name string) any {
			return object{"moves": []object{{"topic": name, "partition": 0, "replicas": []int{1}}}}
		}},
	"rebalance": {access: byRule, operation: "alter", cluster: true, path: fixed("/v1/reassignments/rebalance"), success: 200, body: constant(object{})},
	"cancelReassignment": {access: byRule, operation: "alter", cluster: true, path: func(name string) string { return "/v1/reassignments/" + name + "/0" }, prepare: makeTopic, success: 404,
		missing: "/v1/reassignments/no-such-topic/0", code: "unknown-topic"},
	"removeBroker": {access: byRule, operation: "alter", cluster: true, path: fixed("/v1/brokers/1"), success: 409,
		missing: "/v1/brokers/77", code: "unknown-broker"},
	"drainBroker": {access: byRule, operation: "alter", cluster: true, path: fixed("/v1/brokers/1/drain"), success: 409,
		missing: "/v1/brokers/77/drain", code: "unknown-broker"},
	"undrainBroker": {access: byRule, operation: "alter", cluster: true, path: fixed("/v1/brokers/1/undrain"), success: 200,
		missing: "/v1/brokers/77/undrain", code: "unknown-broker"},
	"canStopBroker": {access: byRule, operation: "describe", cluster: true, path: fixed("/v1/brokers/1/can-stop"), success: 200,
		missing: "/v1/brokers/77/can-stop", code: "unknown-broker"},
	"createElection": {access: byRule, operation: "alter", cluster: true, path: fixed("/v1/elections"), success: 200, body: constant(object{"type": "preferred"})},
	"deleteTopics": {access: anyUser, path: fixed("/v1/topics/delete"), prepare: makeTopic, success: 200,
		body: func(_ *api, name string) any { return object{"names": []string{name}} }},
	"listOperations": {access: anyUser, path: fixed("/v1/operations"), success: 200},
	"getOperation": {access: byRule, operation: "describe", cluster: true, path: operationPath, prepare: findOperation, success: 200,
		missing: "/v1/operations/none", code: "not-found"},
	// What ended cannot be cancelled; TestCancelledDeletionsLeaveTheRest has the way to 204.
	"cancelOperation": {access: byRule, operation: "alter", cluster: true, path: operationPath, prepare: findOperation, success: 409,
		missing: "/v1/operations/none", code: "not-found"},
	"brokerMetricsHistory": {access: byRule, operation: "describe", cluster: true, path: fixed("/v1/brokers/1/metrics/history?series=connections"), success: 200,
		missing: "/v1/brokers/77/metrics/history", code: "unknown-broker"},
	"metricsHistory":   {access: byRule, operation: "describe", cluster: true, path: fixed("/v1/metrics/history?series=connections"), success: 200},
	"listTopicConfigs": {access: anyUser, path: fixed("/v1/topic-configs"), success: 200},
	"getClusterConfig": {access: byRule, operation: "describe-configs", cluster: true, path: fixed("/v1/cluster/config"), success: 200},
	"updateClusterConfig": {access: byRule, operation: "alter-configs", cluster: true, path: fixed("/v1/cluster/config"), success: 200,
		body: constant(object{"unset": []string{"num.partitions"}})},
	"listGroups": {access: anyUser, path: fixed("/v1/groups"), success: 200},
	"listTopicGroups": {access: byRule, operation: "describe", path: topicPath("/groups"), prepare: makeTopic, success: 200,
		missing: "/v1/topics/not-there/groups", code: "unknown-topic"},
	"getGroup": {access: byRule, operation: "describe", group: true, path: groupPath(""), prepare: makeGroup, success: 200,
		missing: "/v1/groups/not-there", code: "unknown-group"},
	"deleteGroup": {access: byRule, operation: "delete", group: true, path: groupPath(""), prepare: makeGroup, success: 204,
		missing: "/v1/groups/not-there", code: "unknown-group"},
	"joinGroup": {access: byRule, operation: "read", group: true, reads: true, creates: true, path: groupPath("/members"), prepare: makeTopic, success: 201,
		body: func(_ *api, name string) any { return object{"topics": []string{name}} }},
	"readMember": {access: byRule, operation: "read", group: true, reads: true, path: memberPath("/records"), prepare: makeMember, success: 200,
		missing: "/v1/groups/not-there/members/none/records", code: "unknown-member"},
	"pollMember": {access: byRule, operation: "read", group: true, reads: true, path: memberPath("/poll"), prepare: makeMember, success: 200,
		body: constant(object{}), missing: "/v1/groups/not-there/members/none/poll", code: "unknown-member"},
	"commitOffsets": {access: byRule, operation: "read", group: true, reads: true, path: memberPath("/commit"), prepare: makeMember, success: 200,
		body: offsetsBody("offsets"), missing: "/v1/groups/not-there/members/none/commit", code: "unknown-member"},
	"seekMember": {access: byRule, operation: "read", group: true, reads: true, path: memberPath("/seek"), prepare: makeMember, success: 200,
		body: offsetsBody("positions"), missing: "/v1/groups/not-there/members/none/seek", code: "unknown-member"},
	"heartbeat": {access: byRule, operation: "read", group: true, path: memberPath("/heartbeat"), prepare: makeMember, success: 204,
		missing: "/v1/groups/not-there/members/none/heartbeat", code: "unknown-member"},
	"leaveGroup": {access: byRule, operation: "read", group: true, path: memberPath(""), prepare: makeMember, success: 204,
		missing: "/v1/groups/not-there/members/none", code: "unknown-member"},
	"getGroupOffsets": {access: byRule, operation: "describe", group: true, path: groupPath("/offsets"), prepare: makeGroup, success: 200,
		missing: "/v1/groups/not-there/offsets", code: "unknown-group"},
	"setGroupOffsets": {access: byRule, operation: "read", group: true, reads: true, path: groupPath("/offsets"), prepare: makeGroup, success: 200,
		body: offsetsBody("offsets"), missing: "/v1/groups/not-there/offsets", code: "unknown-topic"},
	"deleteGroupOffsets": {access: byRule, operation: "delete", group: true, reads: true, prepare: makeGroup, success: 204,
		path:    func(name string) string { return "/v1/groups/" + name + "/offsets?topic=" + name },
		missing: "/v1/groups/not-there/offsets?topic=not-there", code: "unknown-group"},
	"resetGroupOffsets": {access: byRule, operation: "read", group: true, reads: true, path: groupPath("/reset-offsets"), prepare: makeGroup, success: 200,
		body: constant(object{"to": "earliest"}), missing: "/v1/groups/not-there/reset-offsets", code: "unknown-group"},

	"info": {access: anyUser, path: fixed("/v1/info"), success: 200},

	"healthz":     {access: public, path: fixed("/healthz"), success: 200},
	"readyz":      {access: public, path: fixed("/readyz"), success: 200},
	"metrics":     {access: byRule, operation: "describe", cluster: true, path: fixed("/metrics"), success: 200},
	"openapiJSON": {access: public, path: fixed("/openapi.json"), success: 200},
	"openapiYAML": {access: public, path: fixed("/openapi.yaml"), success: 200},
}

// built yields the built routes of REST with their rows; a route without a row fails
// the test. Streams are left to TestWebSocketHandshakes.
func built(t *testing.T, use func(r *route.Route, w row)) {
	t.Helper()
	for _, r := range routes() {
		if !r.Built() || r.Stream {
			continue
		}
		w, ok := rows[r.ID]
		require.True(t, ok, "%s %s (%s) has no row", r.Method, r.Path, r.ID)
		require.Equal(t, r.Public, w.access == public, r.ID)
		use(r, w)
	}
}

// ask makes the row's right request for a resource. The resource must be there.
func (w *row) ask(a *api, r *route.Route, name, token string) *answer {
	a.t.Helper()
	q := request{Method: r.Method, Path: w.path(name), Token: token}
	if w.body != nil {
		q.Body = w.body(a, name)
	}
	return a.Do(q)
}

// concrete fills a template's parameters, for routes that look at no resource.
func concrete(template string) string {
	return strings.NewReplacer("{topic}", "t", "{partition}", "0", "{offset}", "0", "{username}", "u", "{id}", "i",
		"{group}", "g", "{member}", "m", "{broker}", "1").Replace(template)
}

func TestEveryRowHasARoute(t *testing.T) {
	t.Parallel()
	left := map[string]bool{}
	for id := range rows {
		left[id] = true
	}
	built(t, func(r *route.Route, _ row) { delete(left, r.ID) })
	require.Empty(t, left)
}

func TestEveryBuiltRouteDoesItsJobForTheAdministrator(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	built(t, func(r *route.Route, w row) {
		t.Run(r.ID, func(t *testing.T) {
			t.Parallel()
			a := a.with(t)
			name := "ok." + r.ID
			if w.prepare != nil {
				w.prepare(a, name)
			}
			token := a.admin
			if r.ID == "logout" { // it ends its own session
				token = a.Admin()
			}
			x := wants(t, w.ask(a, r, name, token), w.success, "")
			if r.Method == http.MethodGet {
				h := wants(t, a.as(token, "HEAD", w.path(name), nil), w.success, "")
				require.Equal(t, x.Header.Get("Content-Type"), h.Header.Get("Content-Type"))
				require.Empty(t, h.Body)
			}
		})
	})
}

func TestAMissingThingIs404(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	built(t, func(r *route.Route, w row) {
		parameters := strings.Contains(r.Path, "{")
		require.Equal(t, parameters && !w.creates, w.missing != "", "%s: the row must say what a missing thing gives", r.ID)
		if !parameters || w.creates {
			return
		}
		t.Run(r.ID, func(t *testing.T) {
			t.Parallel()
			a := a.with(t)
			q := request{Method: r.Method, Path: w.missing, Token: a.admin}
			if w.body != nil {
				q.Body = w.body(a, "x")
			}
			wants(t, a.Do(q), 404, w.code)
		})
	})
}

// TestTheDocumentAndTheRoutesAgree compares both ways, HEAD apart, which every GET has.
func TestTheDocumentAndTheRoutesAgree(t *testing.T) {
	t.Parallel()
	want := []string{}
	for _, r := range routes() {
		if r.Built() {
			want = append(want, r.Method+" "+r.Path)
		}
	}
	have := slices.DeleteFunc(document.Operations(), func(s string) bool { return strings.HasPrefix(s, "HEAD ") })
	slices.Sort(want)
	require.Equal(t, want, have)
}
