package api

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"tidewire/internal/testkit/nodekit"
)

// browser is a logged-in browser: a cookie and the token that its pages know.
type browser struct {
	a      *api
	cookie string // Name=value
	csrf   string
}

// browser logs a user in for a cookie.
func (a *api) browser(username, password string) *browser {
	a.t.Helper()
	x := a.as("", "POST", "/v1/auth/login?session=cookie", object{"username": username, "password": password})
	got := decoded(a.t, x, 200)
	require.Len(a.t, got, 2, "the answer holds no token")
	cookie, _, _ := strings.Cut(x.Header.Get("Set-Cookie"), ";")
	return &browser{a: a, cookie: cookie, csrf: got["csrf_token"].(string)}
}

// ask sends a request as a page of the node's own does.
func (b *browser) ask(method, path string, body any) *answer {
	b.a.t.Helper()
	return b.with(method, path, body, headers{"X-CSRF-Token": b.csrf, "Origin": b.a.origin(), "Sec-Fetch-Site": "same-origin"})
}

// origin is that of the node's pages.
func (a *api) origin() string {
	u, err := url.Parse(a.URL)
	require.NoError(a.t, err)
	return u.Scheme + "://" + u.Host
}

// with sends a request with the cookie and given headers.
func (b *browser) with(method, path string, body any, h headers) *answer {
	b.a.t.Helper()
	all := headers{"Cookie": b.cookie}
	for k, v := range h {
		all[k] = v
	}
	return b.a.Do(request{Method: method, Path: path, Body: body, Header: all})
}

func TestACookieLoginSetsAStrictCookieAndAnswersTheCSRFToken(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	x := wants(t, a.as("", "POST", "/v1/auth/login?session=cookie", object{"username": "admin", "password": nodekit.AdminPassword}), 200, "")
	require.Equal(t, "no-store", x.Header.Get("Cache-Control"))
	set := x.Header.Values("Set-Cookie")
	require.Len(t, set, 1)
	k, err := http.ParseSetCookie(set[0])
	require.NoError(t, err)
	require.Equal(t, "tidewire_session", k.Name)
	require.True(t, k.HttpOnly)
	require.Equal(t, http.SameSiteStrictMode, k.SameSite)
	require.Equal(t, "/", k.Path)
	require.False(t, k.Secure, "this node speaks plain HTTP")
	require.Zero(t, k.MaxAge)
	got := decoded(t, x, 200)
	require.Equal(t, json.Number("86400"), got["expires_in"])
	require.NotContains(t, string(x.Body), k.Value)

	b := a.browser("admin", nodekit.AdminPassword)
	me := decoded(t, b.ask("GET", "/v1/auth/me", nil), 200)
	require.Equal(t, b.csrf, me["csrf_token"])
	require.Equal(t, "admin", me["username"])
	require.Equal(t, true, me["admin"])
	require.NotNil(t, me["expires_at"])
	wants(t, b.ask("POST", "/v1/topics", object{"name": "cookie.topic"}), 201, "")
	wants(t, b.ask("DELETE", "/v1/topics/cookie.topic", nil), 204, "")
	x = wants(t, a.as("", "POST", "/v1/auth/login?session=token", object{"username": "admin", "password": "x"}), 422, "invalid-argument")
	require.Equal(t, []string{"query:session"}, pointers(t, x))
	wants(t, a.as("", "POST", "/v1/auth/login?session=cookie", object{"username": "admin", "password": "wrong"}), 401, "bad-credentials")
}

func TestACookieIsConfinedToThePathPrefix(t *testing.T) {
	t.Parallel()
	a := prefixedAPI(t, "/x/y")
	b := a.browser("admin", nodekit.AdminPassword)
	x := a.as("", "POST", "/v1/auth/login?session=cookie", object{"username": "admin", "password": nodekit.AdminPassword})
	k, err := http.ParseSetCookie(x.Header.Get("Set-Cookie"))
	require.NoError(t, err)
	require.Equal(t, "/x/y", k.Path)
	x = wants(t, b.ask("POST", "/v1/auth/logout", nil), 204, "")
	k, err = http.ParseSetCookie(x.Header.Get("Set-Cookie"))
	require.NoError(t, err)
	require.Equal(t, "/x/y", k.Path)
	require.Empty(t, k.Value)
	require.Negative(t, k.MaxAge)
}

func TestACookieIsSecureUnderTLSAlsoAtATrustedProxy(t *testing.T) {
	t.Parallel()
	body := object{"username": "admin", "password": nodekit.AdminPassword}
	secure := func(a *api, h headers) bool {
		x := a.Do(request{Method: "POST", Path: "/v1/auth/login?session=cookie", Body: body, Header: h})
		wants(t, x, 200, "")
		k, err := http.ParseSetCookie(x.Header.Get("Set-Cookie"))
		require.NoError(t, err)
		return k.Secure
	}
	require.False(t, secure(sharedAPI(t), headers{"X-Forwarded-Proto": "https"}), "anybody can send that")
	proxied := ownAPI(t, "--trusted-proxies", "127.0.0.0/8")
	require.True(t, secure(proxied, headers{"X-Forwarded-Proto": "https"}))
	require.False(t, secure(proxied, headers{"X-Forwarded-Proto": "http"}))
	b := proxied.browser("admin", nodekit.AdminPassword)
	wants(t, b.with("GET", "/v1/auth/me", nil, headers{"Origin": "https://console.example", "X-Forwarded-Host": "console.example"}), 200, "")
	wants(t, b.with("GET", "/v1/auth/me", nil, headers{"Origin": "https://evil.example", "X-Forwarded-Host": "console.example"}), 403, "forbidden")
}

func TestLogoutEndsACookieSession(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	one, two := a.browser("admin", nodekit.AdminPassword), a.browser("admin", nodekit.AdminPassword)
	wants(t, one.ask("POST", "/v1/auth/logout", nil), 204, "")
	wants(t, one.ask("GET", "/v1/auth/me", nil), 401, "unauthenticated")
	wants(t, two.ask("GET", "/v1/auth/me", nil), 200, "")
}

func TestACookieSessionLastsForHoursOfUseAndEndsUnused(t *testing.T) {
	t.Parallel()
	c := &clock{}
	a := newAPI(t, nodekit.StartWith(t, nodekit.Options{Now: c.now}), "")
	b := a.browser("admin", nodekit.AdminPassword)
	for range 30 {
		c.advance(time.Hour)
		wants(t, b.ask("GET", "/v1/topics", nil), 200, "")
		require.Empty(t, wants(t, b.ask("POST", "/v1/auth/tickets", nil), 200, "").Header.Get("Set-Cookie"))
	}
	c.advance(25 * time.Hour)
	wants(t, b.ask("GET", "/v1/auth/me", nil), 401, "token-expired")
}

func TestACookieSessionSurvivesARestart(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	b := a.browser("admin", nodekit.AdminPassword)
	a.Restart()
	wants(t, b.ask("GET", "/v1/auth/me", nil), 200, "")
}

// apiToken makes an API token of a user and gives its text and path.
func (a *api) apiToken(user string, body object) (text, path string) {
	a.t.Helper()
	at := "/v1/users/" + user + "/tokens"
	x := a.post(at, body)
	got := decoded(a.t, x, 201)
	return got["token"].(string), at + "/" + got["id"].(string)
}

func TestAnAPITokenIsABearerEverywhereAndIsToldOnce(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	a.user("robot")
	a.rule("robot", rule{"allow", "literal", "all", "topic", "robot.topic"})
	x := a.post("/v1/users/robot/tokens", object{"name": "ci", "expires_in_s": 3600})
	got := decoded(t, x, 201)
	token, id := got["token"].(string), got["id"].(string)
	require.Equal(t, "/v1/users/robot/tokens/"+id, x.Header.Get("Location"))
	require.Equal(t, "ci", got["name"])
	require.Nil(t, got["scopes"])
	require.Nil(t, got["last_used_at"])

	list := func() object {
		page := wants(t, a.get("/v1/users/robot/tokens"), 200, "")
		require.NotContains(t, string(page.Body), token)
		items := decoded(t, page, 200)["items"].([]any)
		require.Len(t, items, 1)
		return items[0].(object)
	}
	require.NotContains(t, list(), "token")
	require.Nil(t, list()["last_used_at"])
	wants(t, a.as(token, "POST", "/v1/topics", object{"name": "robot.topic"}), 201, "")
	wants(t, a.as(token, "POST", "/v1/topics/robot.topic/records", object{"records": []object{{"value": "x"}}}), 200, "")
	wants(t, a.as(token, "GET", "/v1/topics/robot.topic/partitions/0/records?offset=earliest", nil), 200, "")
	me := decoded(t, a.as(token, "GET", "/v1/auth/me", nil), 200)
	require.Equal(t, "robot", me["username"])
	require.Nil(t, me["csrf_token"])
	require.Equal(t, got["expires_at"], me["expires_at"])
	require.NotNil(t, list()["last_used_at"], "a use is told at once")
	wants(t, a.as(token, "GET", "/v1/users", nil), 403, "forbidden")

	etag := list()["etag"].(string)
	wants(t, a.do("DELETE", "/v1/users/robot/tokens/"+id, nil, headers{"If-Match": `"x"`}), 412, "etag-mismatch")
	wants(t, a.do("DELETE", "/v1/users/robot/tokens/"+id, nil, headers{"If-Match": `"` + etag + `"`}), 204, "")
	wants(t, a.as(token, "GET", "/v1/auth/me", nil), 401, "unauthenticated")
	wants(t, a.remove("/v1/users/robot/tokens/"+id), 404, "not-found")
}

func TestAnAPITokenHasNoSessionToLogOutOf(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	a.user("robot logout")
	got := decoded(t, a.post("/v1/users/robot%20logout/tokens", object{"name": "ci", "expires_in_s": 3600}), 201)
	token, id := got["token"].(string), got["id"].(string)
	x := wants(t, a.as(token, "POST", "/v1/auth/logout", nil), 422, "invalid-argument")
	end := "/v1/users/robot%20logout/tokens/" + id
	require.Contains(t, string(x.Body), "DELETE "+end, "the answer says how it ends")
	wants(t, a.as(token, "GET", "/v1/auth/me", nil), 200, "")
	wants(t, a.remove(end), 204, "")
	wants(t, a.as(token, "GET", "/v1/auth/me", nil), 401, "unauthenticated")
}

func TestAUserManagesTokensOfItsOwnAndNoOthers(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	a.user("own.tokens")
	a.user("other.tokens")
	mine := a.login("own.tokens")
	x := decoded(t, a.as(mine, "POST", "/v1/users/own.tokens/tokens", object{"name": "n"}), 201)
	require.Nil(t, x["expires_at"], "without expires_in_s it has no end")
	require.Nil(t, decoded(t, a.as(x["token"].(string), "GET", "/v1/auth/me", nil), 200)["expires_at"])
	wants(t, a.as(mine, "GET", "/v1/users/own.tokens/tokens", nil), 200, "")
	for _, path := range []string{"/v1/users/other.tokens/tokens", "/v1/users/nobody-here/tokens", "/v1/users/admin/tokens"} {
		wants(t, a.as(mine, "GET", path, nil), 403, "forbidden")
		wants(t, a.as(mine, "POST", path, object{"name": "n"}), 403, "forbidden")
		wants(t, a.as(mine, "DELETE", path+"/x", nil), 403, "forbidden")
	}
	wants(t, a.as(mine, "DELETE", "/v1/users/own.tokens/tokens/"+x["id"].(string), nil), 204, "")
}

func TestTheScopesOfATokenNarrowItsUser(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for _, name := range []string{"scope.a", "scope.b"} {
		a.topic(name, 1, nil)
	}
	scope := object{"resource_type": "topic", "resource_name": "scope.a", "operation": "read"}
	token, _ := a.apiToken("admin", object{"name": "narrow", "expires_in_s": 60, "scopes": []object{scope}})
	wants(t, a.as(token, "GET", "/v1/topics/scope.a/partitions/0/records?offset=0", nil), 200, "")
	x := wants(t, a.as(token, "GET", "/v1/topics/scope.b/partitions/0/records?offset=0", nil), 403, "forbidden")
	require.Contains(t, string(x.Body), "scopes of this token")
	wants(t, a.as(token, "POST", "/v1/topics/scope.a/records", object{"records": []object{{"value": "x"}}}), 403, "forbidden")
	wants(t, a.as(token, "GET", "/v1/users", nil), 403, "forbidden")
	wants(t, a.as(token, "POST", "/v1/users/admin/tokens", object{"name": "wider"}), 403, "forbidden")
	wants(t, a.as(token, "POST", "/v1/users/admin/set-password", object{"password": "a new password", "current_password": nodekit.AdminPassword}), 403, "forbidden")
	require.Equal(t, false, decoded(t, a.as(token, "GET", "/v1/auth/me", nil), 200)["admin"])
	page := decoded(t, a.as(token, "GET", "/v1/topics?prefix=scope.", nil), 200)
	require.Equal(t, json.Number("1"), page["total"])
	none, _ := a.apiToken("admin", object{"name": "none", "scopes": []object{}})
	wants(t, a.as(none, "GET", "/v1/topics/scope.a", nil), 403, "forbidden")
}

func TestABadTokenRequestIsToldByItsParts(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for pointer, body := range map[string]object{
		"/name":                   {"expires_in_s": 60},
		"/expires_in_s":           {"name": "n", "expires_in_s": 0},
		"/scopes":                 {"name": "n", "scopes": "all"},
		"/scopes/0/operation":     {"name": "n", "scopes": []object{{"resource_type": "topic", "resource_name": "t", "operation": "produce"}}},
		"/scopes/0/resource_name": {"name": "n", "scopes": []object{{"resource_type": "topic", "operation": "read"}}},
		"/scope":                  {"name": "n", "scope": []object{}},
	} {
		x := wants(t, a.post("/v1/users/admin/tokens", body), 422, "invalid-argument")
		require.Equal(t, []string{pointer}, pointers(t, x))
	}
	x := a.post("/v1/users/admin/tokens", object{"name": "n", "scopes": []object{{"resource_type": "topic", "resource_name": "t", "operation": "produce"}}})
	require.Contains(t, string(x.Body), "read, write, create")
	wants(t, a.post("/v1/users/admin/tokens", object{"name": "n", "expires_in_s": 315360001}), 422, "invalid-argument")
}

func TestTokensOutliveARestartWithTheirLastUse(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	token, _ := a.apiToken("admin", object{"name": "n"})
	wants(t, a.as(token, "GET", "/v1/auth/me", nil), 200, "")
	a.Restart()
	a.admin = a.Admin()
	items := decoded(t, a.get("/v1/users/admin/tokens"), 200)["items"].([]any)
	require.NotNil(t, items[0].(object)["last_used_at"])
	wants(t, a.as(token, "GET", "/v1/auth/me", nil), 200, "")
}

func TestACheckTellsTheRuleThatDecides(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	a.user("checked")
	a.rule("checked", rule{"allow", "prefixed", "all", "topic", "chk."})
	a.rule("checked", rule{"deny", "literal", "write", "topic", "chk.b"})
	ask := func(principal, operation, name string) object {
		return decoded(t, a.post("/v1/acls/check", object{
			"principal": principal, "operation": operation, "resource_type": "topic", "resource_name": name, "host": "10.0.0.1",
		}), 200)
	}
	got := ask("User:checked", "write", "chk.a")
	require.Equal(t, true, got["allowed"])
	require.Equal(t, "prefixed", got["rule"].(object)["pattern"])
	got = ask("User:checked", "write", "chk.b")
	require.Equal(t, false, got["allowed"])
	require.Equal(t, "deny", got["rule"].(object)["permission"])
	got = ask("User:checked", "write", "else")
	require.Equal(t, false, got["allowed"])
	require.Nil(t, got["rule"])
	got = ask("User:admin", "write", "else")
	require.Equal(t, true, got["allowed"], "administrators may")
	require.Nil(t, got["rule"])
	for pointer, change := range map[string]object{
		"/principal": {"principal": "checked"}, "/operation": {"operation": "produce"}, "/resource_type": {"resource_type": "broker"},
		"/resource_name": {"resource_name": ""},
	} {
		body := object{"principal": "User:checked", "operation": "read", "resource_type": "topic", "resource_name": "t"}
		for k, v := range change {
			body[k] = v
		}
		x := wants(t, a.post("/v1/acls/check", body), 422, "invalid-argument")
		require.Equal(t, []string{pointer}, pointers(t, x))
	}
	x := a.post("/v1/acls/check", object{"principal": "User:checked", "operation": "produce", "resource_type": "topic", "resource_name": "t"})
	require.Contains(t, string(x.Body), "one of read, write, create")
}

func TestTheAccessOfATopicIsTheRulesThatCoverIt(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	a.topic("acc.one", 1, nil)
	a.user("acc.user")
	a.rule("acc.user", rule{"allow", "literal", "read", "topic", "acc.one"})
	a.rule("acc.user", rule{"allow", "prefixed", "read", "topic", "acc."})
	a.rule("acc.user", rule{"allow", "literal", "read", "topic", "acc.two"})
	a.rule("acc.user", rule{"allow", "literal", "read", "group", "acc.one"})
	page := decoded(t, a.get("/v1/topics/acc.one/access?q=acc.user"), 200)
	require.Equal(t, json.Number("2"), page["total"])
	names := []any{}
	for _, it := range page["items"].([]any) {
		names = append(names, it.(object)["resource_name"])
	}
	require.ElementsMatch(t, []any{"acc.one", "acc."}, names)
}

func TestTheActionsOfTheLastAdministratorLeaveDeletionOut(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	actions := func() []any { return decoded(t, a.get("/v1/users/admin"), 200)["actions"].([]any) }
	require.NotContains(t, actions(), "delete")
	path := a.user("second.admin")
	wants(t, a.patch(path, object{"admin": true}), 200, "")
	require.Contains(t, actions(), "delete")
}

func TestTooManyFailedLoginsAreLocked(t *testing.T) {
	t.Parallel()
	c := &clock{}
	a := newAPI(t, nodekit.StartWith(t, nodekit.Options{Now: c.now}), "")
	a.user("victim")
	try := func(password, query string) *answer {
		return a.as("", "POST", "/v1/auth/login"+query, object{"username": "victim", "password": password})
	}
	for range 10 {
		wants(t, try("wrong", ""), 401, "bad-credentials")
	}
	for _, query := range []string{"", "?session=cookie"} {
		x := wants(t, try(userPassword, query), 429, "login-locked")
		require.Equal(t, "60", x.Header.Get("Retry-After"))
	}
	a.tokens("admin", nodekit.AdminPassword)
	c.advance(time.Minute)
	wants(t, try(userPassword, ""), 200, "")
}

// socket opens a WebSocket with headers and says with which status that ended.
func (a *api) socket(query string, h http.Header) (*websocket.Conn, int) {
	a.t.Helper()
	conn, res, err := websocket.DefaultDialer.DialContext(a.t.Context(), "ws"+strings.TrimPrefix(a.URL, "http")+"/v1/ws/consume"+query, h)
	require.NotNil(a.t, res, "%v", err)
	if err == nil {
		a.t.Cleanup(func() { _ = conn.Close() })
	}
	return conn, res.StatusCode
}

func TestATicketOpensOneSocketAndNothingElse(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	a.topic("ticket.topic", 1, nil)
	x := wants(t, a.post("/v1/auth/tickets", nil), 200, "")
	require.Equal(t, "no-store", x.Header.Get("Cache-Control"))
	got := decoded(t, x, 200)
	require.Equal(t, json.Number("30"), got["expires_in"])
	ticket := got["ticket"].(string)
	require.Regexp(t, `^[A-Za-z0-9._~-]+$`, ticket)
	for _, path := range []string{"/v1/auth/me?ticket=", "/v1/topics?ticket=", "/v1/topics/ticket.topic/partitions/0/records?offset=0&ticket="} {
		wants(t, a.as("", "GET", path+ticket, nil), 401, "unauthenticated")
	}
	wants(t, a.as(ticket, "GET", "/v1/auth/me", nil), 401, "unauthenticated")
	_, status := a.socket("?topics=ticket.topic&ticket="+ticket, nil)
	require.Equal(t, 101, status, "what was refused has not used it up")
	_, status = a.socket("?topics=ticket.topic&ticket="+ticket, nil)
	require.Equal(t, 401, status)
	_, status = a.socket("?topics=ticket.topic&ticket=garbage", nil)
	require.Equal(t, 401, status)
	require.NotContains(t, a.Log.String(), ticket)
}

func TestATicketOpensAStreamOfEventsOnce(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	a.topic("ticket.events", 1, nil)
	ticket := decoded(t, a.post("/v1/auth/tickets", nil), 200)["ticket"].(string)
	open := func(accept string) int {
		return a.raw("GET", "/v1/topics/ticket.events/records?from=earliest&ticket="+ticket, headers{"Accept": accept}).StatusCode
	}
	require.Equal(t, 401, open("application/json"), "nothing but events")
	require.Equal(t, 401, open("application/json, text/event-stream;q=0.5"))
	require.NotEqual(t, 401, open("text/event-stream"))
	require.Equal(t, 401, open("text/event-stream"), "once")
}

// endings are what takes a caller's right to read away, and the code its stream ends with.
var endings = map[string]struct {
	end   func(a *api, user string, out func())
	close int
	poll  int
}{
	"logout": {func(_ *api, _ string, out func()) { out() }, 4401, 401},
	"disabled": {func(a *api, user string, _ func()) {
		wants(a.t, a.patch("/v1/users/"+user, object{"disabled": true}), 200, "")
	}, 4401, 401},
	"deleted":       {func(a *api, user string, _ func()) { wants(a.t, a.remove("/v1/users/"+user), 204, "") }, 4401, 401},
	"the rule goes": {func(a *api, user string, _ func()) { wants(a.t, a.remove("/v1/acls?principal=User:"+user), 200, "") }, 4403, 403},
	"password change": {func(a *api, user string, _ func()) {
		wants(a.t, a.post("/v1/users/"+user+"/set-password", object{"password": "a new password"}), 204, "")
	}, 4401, 401},
	"topic deleted": {func(a *api, user string, _ func()) { wants(a.t, a.remove("/v1/topics/"+user), 204, "") }, 4404, 404},
}

// holder is a credential of a user as the tests of ends use it.
type holder struct {
	dial http.Header
	ask  headers
	out  func() // ends the session or token
}

func (a *api) holders(user string) map[string]holder {
	a.t.Helper()
	bearer := a.login(user)
	b := a.browser(user, userPassword)
	text, path := a.apiToken(user, object{"name": "n"})
	return map[string]holder{
		"access token": {http.Header{"Authorization": {"Bearer " + bearer}}, headers{"Authorization": "Bearer " + bearer},
			func() { wants(a.t, a.as(bearer, "POST", "/v1/auth/logout", nil), 204, "") }},
		"cookie": {http.Header{"Cookie": {b.cookie}, "Origin": {a.URL}}, headers{"Cookie": b.cookie},
			func() { wants(a.t, b.ask("POST", "/v1/auth/logout", nil), 204, "") }},
		"API token": {http.Header{"Authorization": {"Bearer " + text}}, headers{"Authorization": "Bearer " + text},
			func() { wants(a.t, a.remove(path), 204, "") }},
	}
}

// TestOpenStreamsEndWithWhatOpenedThem leaves out the password of an API token's user, which
// does not end it.
func TestOpenStreamsEndWithWhatOpenedThem(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for what, e := range endings {
		for _, kind := range []string{"access token", "cookie", "API token"} {
			if what == "password change" && kind == "API token" {
				continue
			}
			t.Run(what+"/"+kind, func(t *testing.T) {
				t.Parallel()
				a := a.with(t)
				user := strings.ReplaceAll("end."+what+"."+kind, " ", "-")
				a.user(user)
				topic := a.topic(user, 1, nil)
				a.rule(user, rule{"allow", "literal", "read", "topic", user})
				h := a.holders(user)[kind]
				conn, status := a.socket("?topics="+user, h.dial)
				require.Equal(t, 101, status)
				polled := make(chan *answer, 1)
				go func() {
					polled <- a.Do(request{Method: "GET", Path: topic + "/partitions/0/records?offset=latest&wait_ms=30000", Header: h.ask})
				}()
				readUntil(t, conn, "assigned")
				e.end(a, user, h.out)
				require.Equal(t, e.close, closeCodeOf(t, conn))
				require.Equal(t, e.poll, (<-polled).Status)
			})
		}
	}
}

func readUntil(t *testing.T, conn *websocket.Conn, op string) {
	t.Helper()
	for {
		_, frame, err := conn.ReadMessage()
		require.NoError(t, err)
		if strings.Contains(string(frame), `"op":"`+op+`"`) {
			return
		}
	}
}

// closeCodeOf reads until the server closes.
func closeCodeOf(t *testing.T, conn *websocket.Conn) int {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	for {
		if _, _, err := conn.ReadMessage(); err != nil {
			var c *websocket.CloseError
			require.ErrorAs(t, err, &c)
			return c.Code
		}
	}
}

// A page's live tail goes on for as long as its session is used: by the socket itself.
func TestASocketByCookieOutlivesAnAccessTokensTime(t *testing.T) {
	t.Parallel()
	c := &clock{}
	a := newAPI(t, nodekit.StartWith(t, nodekit.Options{Now: c.now}), "")
	path := a.topic("tail", 1, nil)
	b := a.browser("admin", nodekit.AdminPassword)
	conn, status := a.socket("?topics=tail", http.Header{"Cookie": {b.cookie}, "Origin": {a.URL}})
	require.Equal(t, 101, status)
	readUntil(t, conn, "assigned")
	for range 3 {
		c.advance(20 * time.Minute)
		a.admin = a.Admin()
		a.records(path, object{"value": "x"})
		readUntil(t, conn, "records")
	}
}
