package api

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/api/route"
)

// entries reads the audit log with a query, newest first, to its end.
func (a *api) entries(query string) []object {
	a.t.Helper()
	var out []object
	token := ""
	for {
		path := "/v1/audit?" + query
		if token != "" {
			path += "&page_token=" + token
		}
		page := decoded(a.t, a.get(path), 200)
		for _, it := range page["items"].([]any) {
			out = append(out, it.(object))
		}
		next, more := page["next_page_token"].(string)
		if !more {
			return out
		}
		require.Regexp(a.t, `^[A-Za-z0-9._~-]+$`, next)
		token = next
	}
}

// entry waits for the newest entry that a query finds: those of calls that failed are
// written soon, and not before the answer where the node is busy.
func (a *api) entry(query string) object {
	a.t.Helper()
	var found []object
	require.Eventually(a.t, func() bool {
		found = a.entries(query)
		return len(found) > 0
	}, 10*time.Second, 5*time.Millisecond, query)
	return found[0]
}

// unaudited are the routes that may change something and leave no entry when they succeed,
// with what a reader would look for instead. A route that is added here needs a reason of its
// own in the table.
var unaudited = map[string]bool{
	"refresh": true, "createTicket": true, "checkACL": true, "produce": true, "producePartition": true, "createProducer": true,
	"joinGroup": true, "pollMember": true, "commitOffsets": true, "seekMember": true, "heartbeat": true, "leaveGroup": true,
}

// TestEveryChangeLeavesAnEntry makes each call of the route table that may change something,
// as the administrator and as somebody who may not.
func TestEveryChangeLeavesAnEntry(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	nobody := a.login2("audit.nobody")
	built(t, func(r *route.Route, w row) {
		if r.Method == http.MethodGet {
			require.False(t, r.Audited(), r.ID)
			return
		}
		require.Equal(t, unaudited[r.ID], !r.Audited() || r.AuditFailures, "%s: is it a change?", r.ID)
		t.Run(r.ID, func(t *testing.T) {
			t.Parallel()
			a := a.with(t)
			name := "audit." + r.ID
			if w.prepare != nil {
				w.prepare(a, name)
			}
			q := request{Method: r.Method, Path: w.path(name), Token: a.admin, Header: map[string]string{"X-Request-Id": "made." + r.ID}}
			if r.ID == "logout" {
				q.Token = a.Admin()
			}
			if w.body != nil {
				q.Body = w.body(a, name)
			}
			x := wants(t, a.Do(q), w.success, "")
			if unaudited[r.ID] {
				require.Empty(t, a.entries("q=made."+r.ID))
			} else {
				checkEntry(t, a.entry("q=made."+r.ID), r, x.Status)
			}
			if w.access != admins && w.access != byRule || unaudited[r.ID] {
				return
			}
			q.Token, q.Header = nobody, map[string]string{"X-Request-Id": "refused." + r.ID}
			wants(t, a.Do(q), 403, "forbidden")
			e := a.entry("q=refused." + r.ID)
			checkEntry(t, e, r, 403)
			require.Equal(t, "User:audit.nobody", e["principal"])
			require.Equal(t, "forbidden", e["code"])
			require.Equal(t, "refused", e["outcome"])
		})
	})
}

func checkEntry(t *testing.T, e object, r *route.Route, status int) {
	t.Helper()
	require.Equal(t, r.Action(), e["action"])
	require.EqualValues(t, fmt.Sprint(status), fmt.Sprint(e["status"]))
	require.NotEmpty(t, e["resource"])
	require.Equal(t, "127.0.0.1", e["host"])
	at, err := time.Parse(time.RFC3339Nano, e["time"].(string))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), at, time.Minute)
	if status < 300 {
		require.Equal(t, "success", e["outcome"])
		require.Nil(t, e["code"])
		require.NotNil(t, e["principal"])
	}
}

func TestAnEntryTellsWhatChanged(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("audited", 1, object{"retention.ms": 5000})
	wants(t, a.patch(path+"/config", object{"set": object{"retention.ms": 6000, "segment.ms": 7000}}), 200, "")
	e := a.entry("resource=topic:audited&action=update-topic-config")
	require.Equal(t, object{"config.retention.ms": "5000"}, e["before"])
	require.Equal(t, object{"config.retention.ms": "6000", "config.segment.ms": "7000"}, e["after"])
	require.Equal(t, "User:admin", e["principal"])
	a.records(path, object{"value": "x"})
	wants(t, a.post(path+"/delete-records", object{"partitions": []object{{"partition": 0, "before_offset": 1}}}), 200, "")
	e = a.entry("resource=audited&action=delete-records")
	require.Equal(t, object{"partitions": []any{object{"partition": num(0), "log_start_offset": num(1)}}}, e["details"])
	wants(t, a.patch(path, object{"partitions": 3}), 200, "")
	e = a.entry("resource=audited&action=update-topic")
	require.Equal(t, object{"partitions": num(1)}, e["before"])
	require.Equal(t, object{"partitions": num(3)}, e["after"])
	before := len(a.entries("resource=audited"))
	wants(t, a.patch(path+"?dry_run=true", object{"partitions": 4}), 200, "")
	wants(t, a.remove(path+"?dry_run=true"), 200, "")
	wants(t, a.patch(path, object{"partitions": "x"}), 422, "")
	require.Len(t, a.entries("resource=audited"), before, "what changes nothing and was refused by nobody leaves none")
	wants(t, a.patch(path, object{"partitions": 1}), 422, "")
	wants(t, a.Do(request{Method: "DELETE", Path: path, Token: a.admin, Header: map[string]string{"If-Match": `"no"`}}), 412, "")
	e = a.entry("resource=audited&action=delete-topic")
	require.Equal(t, "failed", e["outcome"])
	require.Equal(t, "etag-mismatch", e["code"])
	wants(t, a.remove(path), 204, "")
	e = a.entry("resource=audited&action=delete-topic&outcome=success")
	require.Nil(t, e["after"])
	require.Equal(t, num(3), e["before"].(object)["partitions"])

	a.user("audited.user")
	a.rule("audited.user", rule{"allow", "literal", "read", "topic", "t"})
	e = a.entry("action=create-acl&resource=acl:User:audited.user")
	require.Equal(t, "allow User:audited.user read topic t literal *", e["details"].(object)["rule"])
	wants(t, a.remove("/v1/acls?principal=User:audited.user"), 200, "")
	e = a.entry("action=delete-acls&q=audited.user")
	require.Equal(t, object{"count": num(1), "rules": []any{"allow User:audited.user read topic t literal *"}}, e["details"].(object)["deleted"])
	a.quota("audited.user", 0, 0, 5000)
	require.Equal(t, object{"requests_per_s": num(5000)}, a.entry("resource=quota:audited.user")["after"])
	wants(t, a.patch("/v1/users/audited.user", object{"disabled": true}), 200, "")
	e = a.entry("resource=user:audited.user&action=update-user")
	require.Equal(t, []any{object{"disabled": false}, object{"disabled": true}}, []any{e["before"], e["after"]})
}

// TestLoginsAndSessionEndsAreAudited covers every way in and out.
func TestLoginsAndSessionEndsAreAudited(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	a.user("entrant")
	post := func(path, token string, body any) *answer {
		return a.Do(request{Method: "POST", Path: path, Token: token, Body: body})
	}
	login := func(user, password string) *answer {
		return post("/v1/auth/login", "", object{"username": user, "password": password})
	}
	tokens := decoded(t, login("entrant", userPassword), 200)
	e := a.entry("action=login&resource=user:entrant")
	require.Equal(t, []any{"User:entrant", "success"}, []any{e["principal"], e["outcome"]})
	wants(t, login("entrant", "wrong password"), 401, "bad-credentials")
	e = a.entry("action=login&resource=user:entrant&outcome=refused")
	require.Equal(t, []any{nil, "bad-credentials"}, []any{e["principal"], e["code"]})
	wants(t, login("nobody-here", "wrong password"), 401, "bad-credentials")
	require.Equal(t, "refused", a.entry("resource=user:nobody-here")["outcome"])
	for range 12 {
		login("entrant", "wrong password")
	}
	require.Equal(t, "login-locked", a.entry("resource=user:entrant&q=login-locked")["code"])

	refresh := tokens["refresh_token"]
	wants(t, post("/v1/auth/refresh", "", object{"refresh_token": refresh}), 200, "")
	require.Empty(t, a.entries("action=refresh"), "every quarter of an hour for each client")
	wants(t, post("/v1/auth/refresh", "", object{"refresh_token": refresh}), 401, "unauthenticated")
	e = a.entry("action=refresh")
	require.Equal(t, "entrant", e["details"].(object)["user"])
	require.Equal(t, object{"revoked": true}, e["after"], "the reuse has ended the session")
	require.Regexp(t, "^session:", e["resource"])

	own := a.Admin()
	wants(t, post("/v1/auth/logout", own, nil), 204, "")
	e = a.entry("action=logout")
	require.Equal(t, []any{"User:admin", object{"revoked": true}}, []any{e["principal"], e["after"]})
	e = a.entry("action=create-user&resource=user:admin")
	require.Equal(t, object{"by": "TIDEWIRE_ADMIN_PASSWORD"}, e["details"])
	require.Nil(t, e["principal"])
}

// TestNoSecretIsInTheAuditLog looks for everything secret that a client and a node have sent
// each other.
func TestNoSecretIsInTheAuditLog(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	secrets := []string{"first-secret-password", "second-secret-password", "wrong-secret-password", nodeSecret}
	wants(t, a.post("/v1/users", object{"username": "keeper", "password": secrets[0]}), 201, "")
	x := a.Do(request{Method: "POST", Path: "/v1/auth/login", Body: object{"username": "keeper", "password": secrets[0]}})
	got := decoded(t, x, 200)
	secrets = append(secrets, got["access_token"].(string), got["refresh_token"].(string))
	a.Do(request{Method: "POST", Path: "/v1/auth/login", Body: object{"username": "keeper", "password": secrets[2]}})
	wants(t, a.Do(request{Method: "POST", Path: "/v1/auth/login?session=cookie", Body: object{"username": "keeper", "password": secrets[0]}}), 200, "")
	token := decoded(t, a.as(got["access_token"].(string), "POST", "/v1/users/keeper/tokens", object{"name": "ci"}), 201)
	secrets = append(secrets, token["token"].(string))
	wants(t, a.as(got["access_token"].(string), "POST", "/v1/users/keeper/set-password", object{"password": secrets[1], "current_password": secrets[2]}), 401, "")
	wants(t, a.as(got["access_token"].(string), "POST", "/v1/users/keeper/set-password", object{"password": secrets[1], "current_password": secrets[0]}), 204, "")
	a.Do(request{Method: "POST", Path: "/v1/auth/refresh", Body: object{"refresh_token": got["refresh_token"]}})
	wants(t, a.Do(request{Method: "POST", Path: "/v1/setup", Body: object{"token": "a-secret-setup-token", "username": "u", "password": secrets[0]}}), 409, "")
	secrets = append(secrets, "a-secret-setup-token", "argon2", "scram")
	a.entry("action=setup")
	wants(t, a.post("/v1/auth/logout", nil), 204, "")
	a.admin = a.Admin()
	page := wants(t, a.get("/v1/audit?limit=1000"), 200, "")
	for _, s := range secrets {
		require.NotContains(t, string(page.Body), s)
		require.NotContains(t, string(page.Body), url.QueryEscape(s))
	}
	require.Contains(t, string(page.Body), "keeper")
}

// nodeSecret is the administrator's password.
const nodeSecret = "correct horse battery"

func TestTheAuditLogIsReadInPagesNewestFirst(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	for i := range 25 {
		a.user(fmt.Sprintf("page.%02d", i))
	}
	first := decoded(t, a.get("/v1/audit?limit=10"), 200)
	require.Len(t, first["items"], 10)
	require.GreaterOrEqual(t, number(t, first["total"]), int64(25))
	a.user("page.later") // what comes later does not move the pages
	var names []string
	token := first["next_page_token"].(string)
	for _, it := range first["items"].([]any) {
		names = append(names, it.(object)["resource"].(string))
	}
	for token != "" {
		page := decoded(t, a.get("/v1/audit?limit=10&page_token="+token), 200)
		for _, it := range page["items"].([]any) {
			names = append(names, it.(object)["resource"].(string))
		}
		token, _ = page["next_page_token"].(string)
	}
	var want []string
	for i := 24; i >= 0; i-- {
		want = append(want, fmt.Sprintf("user:page.%02d", i))
	}
	require.Equal(t, want, names[:25])
	require.Equal(t, "user:admin", names[len(names)-1])

	all := a.entries("limit=1000")
	mid, err := time.Parse(time.RFC3339Nano, all[12]["time"].(string))
	require.NoError(t, err)
	from, to := a.entries(fmt.Sprintf("from=%d&limit=7", mid.UnixMilli())), a.entries("limit=7&to="+mid.Format(time.RFC3339Nano))
	require.Equal(t, len(all), len(from)+len(to))
	for _, e := range from {
		require.GreaterOrEqual(t, e["time"], all[12]["time"])
	}
	for _, e := range to {
		require.Less(t, e["time"], all[12]["time"])
	}
	require.Empty(t, a.entries(fmt.Sprintf("from=%d", time.Now().Add(time.Hour).UnixMilli())))
	require.Len(t, a.entries("q=PAGE.0&action=create-user"), 10)
	require.Len(t, a.entries("principal=admin&action=create-user&resource=user&limit=4"), 26)
	require.Empty(t, a.entries("principal=nobody"))
	require.Nil(t, decoded(t, a.get("/v1/audit?action=login"), 200)["total"])
}

func TestBadQuestionsToTheAuditLogAreRefused(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("audit.cursor", 1, nil)
	a.records(path, object{"value": "1"}, object{"value": "2"})
	foreign := decoded(t, a.get(path+"/records?direction=backward&max_records=1"), 200)["next_cursor"].(string)
	for query, pointer := range map[string]string{
		"limit=0": "query:limit", "limit=1001": "query:limit", "page_token=x": "query:page_token", "page_token=" + foreign: "query:page_token",
		"from=yesterday": "query:from", "from=-1": "query:from", "to=2026-01-01": "query:to", "outcome=good": "query:outcome",
		"who=me": "query:who", "q=a&q=b": "query:q",
	} {
		x := wants(t, a.get("/v1/audit?"+query), 422, "invalid-argument")
		require.Equal(t, []string{pointer}, pointers(t, x), query)
	}
}

// TestTheAuditTopicIsReservedForTheNode tries to change the log in every way there is.
func TestTheAuditTopicIsReservedForTheNode(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	a.user("somebody")
	token := a.login("somebody")
	a.rule("somebody", rule{"allow", "literal", "all", "topic", "*"})
	const path = "/v1/topics/__audit"
	end := a.logEnd(path, 0)
	require.Positive(t, end)
	for _, as := range []string{a.admin, token} {
		for _, x := range []*answer{
			a.as(as, "POST", path+"/records", object{"records": []object{{"value": "forged"}}}),
			a.as(as, "POST", path+"/partitions/0/records", object{"records": []object{{"value": "forged"}}}),
			a.as(as, "DELETE", path, nil),
			a.as(as, "PATCH", path, object{"partitions": 2}),
			a.as(as, "POST", path+"/delete-records", object{"partitions": []object{{"partition": 0, "before_offset": "high_watermark"}}}),
		} {
			wants(t, x, 403, "forbidden")
		}
	}
	for _, name := range []string{"__audit", "_.audit", "..audit"} {
		x := a.post("/v1/topics", object{"name": name})
		require.Contains(t, []int{409, 422}, x.Status, name)
	}
	// Administrators read it and set its retention; a rule for all topics opens it to nobody.
	values, _ := a.page(path, "offset=0&encoding=text")
	require.Contains(t, values[0], `"action"`)
	wants(t, a.patch(path+"/config", object{"set": object{"retention.ms": 86_400_000}}), 200, "")
	for _, p := range []string{path, path + "/records", path + "/partitions/0/records?offset=0", path + "/config"} {
		wants(t, a.as(token, "GET", p, nil), 403, "forbidden")
	}
	wants(t, a.as(token, "GET", "/v1/audit", nil), 403, "forbidden")
	scoped, _ := a.apiToken("admin", object{"name": "n", "scopes": []object{{"resource_type": "topic", "resource_name": "*", "operation": "all"}}})
	wants(t, a.as(scoped, "GET", path+"/partitions/0/records?offset=0", nil), 403, "forbidden")
	wants(t, a.as(scoped, "GET", "/v1/audit", nil), 403, "forbidden")
	names, _ := a.names("/v1/topics?internal=true", "name")
	require.Contains(t, names, "__audit")
	list := decoded(t, a.as(token, "GET", "/v1/topics?internal=true", nil), 200)
	require.NotContains(t, fmt.Sprint(list["items"]), "__audit")
	require.NotContains(t, fmt.Sprint(decoded(t, a.get("/v1/topics"), 200)["items"]), "__audit")
	check := decoded(t, a.post("/v1/acls/check", object{"principal": "User:somebody", "operation": "read", "resource_type": "topic", "resource_name": "__audit"}), 200)
	require.Equal(t, false, check["allowed"])
}

func TestTheAuditLogOutlivesARestart(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	a.user("before.restart")
	before := a.entries("limit=1000")
	a.Restart()
	a.admin = a.Admin()
	after := a.entries("limit=1000")
	require.Equal(t, before, after[len(after)-len(before):])
	seen := map[any]bool{}
	for _, e := range after {
		require.False(t, seen[e["id"]], "ids are unique, across restarts too")
		seen[e["id"]] = true
	}
}

// TestAnAuditEntryCannotBeForged puts text into every place that a client chooses.
func TestAnAuditEntryCannotBeForged(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	evil := "x\n{\"action\":\"forged\"}\r\n\x1b[2J\u2028"
	a.Do(request{Method: "POST", Path: "/v1/auth/login", Body: object{"username": evil, "password": "wrong password"}})
	a.Do(request{Method: "POST", Path: "/v1/auth/login", Body: object{"username": strings.Repeat("y", 100_000), "password": "wrong password"}})
	e := a.entry("action=login&outcome=refused&q=yyyy")
	require.Less(t, len(e["resource"].(string)), 600)
	require.Empty(t, a.entries("action=forged"))
	require.Len(t, a.entries("outcome=refused&action=login"), 2)
	values, _ := a.page("/v1/topics/__audit", "offset=0&max_records=1000&encoding=text")
	for _, v := range values {
		require.NotContains(t, v, "\n")
		require.NotContains(t, v, "\x1b")
	}
}

func TestAFloodOfRefusedCallsIsBounded(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	token := a.login2("flooder")
	before := number(t, decoded(t, a.get("/v1/audit?limit=1"), 200)["total"])
	for range 400 {
		wants(t, a.as(token, "DELETE", "/v1/topics/none", nil), 403, "")
	}
	require.Positive(t, a.metric("tidewire_audit_suppressed_total"))
	require.Zero(t, a.metric("tidewire_audit_lost_total"))
	after := number(t, decoded(t, a.get("/v1/audit?limit=1"), 200)["total"])
	require.Less(t, after-before, int64(400))
}
