package api

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/api/route"
)

type headers = map[string]string

// do sends a request as the administrator.
func (a *api) do(method, path string, body any, h headers) *answer {
	a.t.Helper()
	return a.Do(request{Method: method, Path: path, Token: a.admin, Body: body, Header: h})
}

func TestETagsGuardChanges(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("etag.topic", 1, nil)
	user := a.user("etag.user")
	for _, c := range []struct {
		path   string
		first  any
		second any
	}{
		{path, object{"partitions": 2}, object{"partitions": 3}},
		{path + "/config", object{"set": object{"retention.ms": 1}}, object{"set": object{"retention.ms": 2}}},
		{user, object{"disabled": true}, object{"disabled": false}},
	} {
		got := wants(t, a.get(c.path), 200, "")
		old := got.Header.Get("ETag")
		require.Equal(t, `"`+decoded(t, got, 200)["etag"].(string)+`"`, old)
		require.Equal(t, old, a.get(c.path).Header.Get("ETag"))
		require.Equal(t, old, wants(t, a.do("HEAD", c.path, nil, nil), 200, "").Header.Get("ETag"))
		changed := wants(t, a.do("PATCH", c.path, c.first, headers{"If-Match": old}), 200, "")
		now := changed.Header.Get("ETag")
		require.NotEqual(t, old, now)
		for _, stale := range []string{old, `"x"`, `W/` + now, strings.Trim(now, `"`), `""`} {
			wants(t, a.do("PATCH", c.path, c.second, headers{"If-Match": stale}), 412, "etag-mismatch")
		}
		require.Equal(t, now, a.get(c.path).Header.Get("ETag"))
		again := wants(t, a.do("PATCH", c.path, c.first, headers{"If-Match": now}), 200, "")
		require.Equal(t, now, again.Header.Get("ETag"), "a change to the same state writes nothing")
		wants(t, a.do("PATCH", c.path, c.second, headers{"If-Match": "*"}), 200, "")
		wants(t, a.do("PATCH", c.path, c.second, headers{"If-Match": `"a", "b"`}), 422, "invalid-argument")
	}
	for _, p := range []string{path, user} {
		wants(t, a.do("DELETE", p, nil, headers{"If-Match": `"x"`}), 412, "etag-mismatch")
		wants(t, a.do("DELETE", p, nil, headers{"If-Match": a.get(p).Header.Get("ETag")}), 204, "")
	}
}

func TestTheConfigsETagIsItsOwn(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("etag.config", 1, nil)
	config := a.get(path + "/config").Header.Get("ETag")
	wants(t, a.patch(path, object{"partitions": 2}), 200, "")
	require.Equal(t, config, a.get(path+"/config").Header.Get("ETag"))
}

func TestLocationsLeadToWhatWasCreated(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for _, c := range []struct {
		path string
		body object
	}{
		{"/v1/topics", object{"name": "location.topic"}},
		{"/v1/users", object{"username": "location/user ü?#%", "password": userPassword}},
		{"/v1/acls", object{"principal": "User:a b/c+d&e", "resource_type": "topic", "resource_name": "t", "operation": "read", "permission": "allow"}},
	} {
		x := wants(t, a.post(c.path, c.body), 201, "")
		got := wants(t, a.get(x.Header.Get("Location")), 200, "")
		if c.path == "/v1/acls" {
			page := decoded(t, got, 200)
			require.Len(t, page["items"], 1)
			require.Equal(t, c.body["principal"], page["items"].([]any)[0].(object)["principal"])
			require.Equal(t, 200, a.post(c.path, c.body).Status, "an equal rule is there")
			continue
		}
		require.JSONEq(t, string(x.Body), string(got.Body))
	}
}

// TestNamesInPathsAreDecodedOnce has names as they are, beside their escaped form.
func TestNamesInPathsAreDecodedOnce(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	long := strings.Repeat("é", 127) + "x" // 255 bytes
	for name, escaped := range map[string]string{
		"a/b c": "a%2Fb%20c", "a+b": "a+b", "a%2Fb": "a%252Fb", "ünï": "%C3%BCn%C3%AF", "日本": "%E6%97%A5%E6%9C%AC", "…": "%e2%80%a6",
		"a?b#c": "a%3Fb%23c", long: url.PathEscape(long), "...": "...", "a\\b\"c": `a%5Cb%22c`, "%00": "%2500", ":id": ":id", "*x": "*x",
	} {
		wants(t, a.post("/v1/users", object{"username": name, "password": userPassword}), 201, "")
		got := decoded(t, a.get("/v1/users/"+escaped), 200)
		require.Equal(t, name, got["username"])
		wants(t, a.patch("/v1/users/"+escaped, object{"disabled": true}), 200, "")
		wants(t, a.remove("/v1/users/"+escaped), 204, "")
		wants(t, a.get("/v1/users/"+escaped), 404, "unknown-user")
	}
	wants(t, a.get("/v1/users/a%2Bb"), 404, "unknown-user")
	for _, bad := range []string{"%00", "a%0Ab", "%7F", "%C2%85", "%ff", "%2E", "%2e%2E", strings.Repeat("x", 256)} {
		x := wants(t, a.get("/v1/users/"+bad), 422, "invalid-argument")
		require.Equal(t, []string{"path:username"}, pointers(t, x))
	}
	for _, bad := range []string{"", ".", "..", "a\nb", "\x00", "\u0085", "\x7f", strings.Repeat("x", 256), strings.Repeat("é", 128)} {
		x := wants(t, a.post("/v1/users", object{"username": bad, "password": userPassword}), 422, "invalid-argument")
		require.Equal(t, []string{"/username"}, pointers(t, x), "%q", bad)
	}
}

func TestTopicNames(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	create := func(name string) *answer { return a.post("/v1/topics", object{"name": name}) }
	for _, bad := range []string{"", ".", "..", strings.Repeat("a", 250), "a/b", "é", "a b", "a\x00", "bad$#!", "a%2Fb", "../x", "a:b"} {
		x := wants(t, create(bad), 422, "invalid-argument")
		require.Equal(t, []string{"/name"}, pointers(t, x), "%q", bad)
	}
	for _, good := range []string{strings.Repeat("a", 249), "A.b_c-9", "...", "-", "_", "records", "delete", "partitions", "Names", "names"} {
		wants(t, create(good), 201, "")
		require.Equal(t, good, decoded(t, a.get("/v1/topics/"+good), 200)["name"])
		a.records("/v1/topics/"+good, object{"value": "x"})
	}
	wants(t, create("foo_bar"), 201, "")
	for _, clash := range []string{"foo.bar", "foo_bar"} {
		x := wants(t, create(clash), 409, "topic-exists")
		require.Contains(t, string(x.Body), "foo_bar", "the clashing name")
	}
	wants(t, a.get("/v1/topics/foo.bar"), 404, "unknown-topic")
	wants(t, a.remove("/v1/topics/foo_bar"), 204, "")
	wants(t, create("foo.bar"), 201, "")
}

func TestRequestIDsAndTraceparentComeBack(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	x := a.do("GET", "/v1/info", nil, headers{"X-Request-Id": "my-id.1", "Traceparent": trace})
	require.Equal(t, "my-id.1", x.Header.Get("X-Request-Id"))
	require.Equal(t, trace, x.Header.Get("Traceparent"))
	x = a.do("GET", "/v1/topics/none", nil, headers{"X-Request-Id": "my-id.2"})
	require.Equal(t, "my-id.2", decoded(t, x, 404)["request_id"])
	seen := map[string]bool{}
	for _, bad := range []string{"", "a b", "\"", strings.Repeat("x", 200), "é"} {
		x = a.do("GET", "/v1/info", nil, headers{"X-Request-Id": bad, "Traceparent": "00-x"})
		id := x.Header.Get("X-Request-Id")
		require.NotEqual(t, bad, id)
		require.NotEmpty(t, id)
		require.False(t, seen[id])
		seen[id] = true
		require.Empty(t, x.Header.Get("Traceparent"))
	}
}

func TestAnswersAreNotCached(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("cache.topic", 1, nil)
	for _, p := range []string{path, path + "/partitions/0/records?offset=0", "/v1/users", "/v1/auth/me", "/v1/topics/none"} {
		require.Equal(t, "no-store", a.get(p).Header.Get("Cache-Control"), p)
		require.Equal(t, "nosniff", a.get(p).Header.Get("X-Content-Type-Options"), p)
	}
}

func TestAcceptIsNegotiated(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("accept.topic", 1, nil)
	for accept, status := range map[string]int{
		"*/*": 200, "application/*": 200, "application/json": 200, "APPLICATION/JSON": 200, "text/html, */*;q=0.1": 200,
		"application/json; charset=utf-8": 200, "image/png": 406, "text/*": 406, "application/json;q=0": 406, "*/*;q=0": 406,
		"application/json;q=0, */*": 406,
	} {
		require.Equal(t, status, a.do("GET", path, nil, headers{"Accept": accept}).Status, accept)
	}
	for p, accept := range map[string]string{"/metrics": "text/plain", "/openapi.yaml": "application/yaml"} {
		wants(t, a.do("GET", p, nil, headers{"Accept": accept}), 200, "")
		wants(t, a.do("GET", p, nil, headers{"Accept": "image/png"}), 406, "not-acceptable")
	}
}

func TestDryRunsTellThePlanAndChangeNothing(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("dry.topic", 1, nil)
	a.records(path, object{"value": "x"})
	plan := decoded(t, a.remove(path+"?dry_run=true"), 200)
	require.Equal(t, "dry.topic", plan["name"])
	require.Equal(t, int64(1), number(t, plan["records"]))
	etag := a.get(path).Header.Get("ETag")
	grown := decoded(t, a.patch(path+"?dry_run=true", object{"partitions": 4}), 200)
	require.Len(t, grown["partitions"], 4)
	require.Len(t, decoded(t, a.get(path), 200)["partitions"], 1)
	require.Equal(t, etag, a.get(path).Header.Get("ETag"))
	user := a.user("dry.user")
	a.rule("dry.user", rule{"allow", "literal", "read", "topic", "dry.topic"})
	a.login("dry.user")
	plan = decoded(t, a.remove(user+"?dry_run=true"), 200)
	require.Equal(t, int64(1), number(t, plan["acls"]))
	require.Equal(t, int64(1), number(t, plan["sessions"]))
	filter := "/v1/acls?principal=User:dry.user"
	require.Len(t, decoded(t, a.remove(filter+"&dry_run=true"), 200)["deleted"], 1)
	require.Len(t, decoded(t, a.get(filter), 200)["items"], 1)
	require.Len(t, decoded(t, a.remove(filter+"&dry_run=false"), 200)["deleted"], 1)
	require.Empty(t, decoded(t, a.get(filter), 200)["items"])
	require.Empty(t, decoded(t, a.remove(filter), 200)["deleted"])
	wants(t, a.remove(user), 204, "")
	wants(t, a.get(user), 404, "unknown-user")
}

func TestWithoutOriginsThereIsNoCORS(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	x := a.do("GET", "/v1/info", nil, headers{"Origin": "https://app.example"})
	require.Empty(t, x.Header.Get("Access-Control-Allow-Origin"))
	x = a.Do(request{Method: "OPTIONS", Path: "/v1/info", Header: headers{"Origin": "https://app.example", "Access-Control-Request-Method": "GET"}})
	wants(t, x, 405, "method-not-allowed")
}

// TestANodeBelowAPrefixWithCORS tries two settings on one node.
func TestANodeBelowAPrefixWithCORS(t *testing.T) {
	t.Parallel()
	a := prefixedAPI(t, "/x/y", "--cors-origin", "https://app.example")
	for _, path := range []string{"/v1/info", "/healthz"} {
		x := wants(t, a.do("GET", path, nil, headers{"Origin": "https://app.example"}), 200, "")
		require.Equal(t, "https://app.example", x.Header.Get("Access-Control-Allow-Origin"))
		require.Contains(t, x.Header.Get("Vary"), "Origin")
		require.Contains(t, x.Header.Get("Access-Control-Expose-Headers"), "ETag")
		x = a.do("GET", path, nil, headers{"Origin": "https://other.example"})
		require.Empty(t, x.Header.Get("Access-Control-Allow-Origin"))
		require.Contains(t, x.Header.Get("Vary"), "Origin")
		require.Empty(t, x.Header.Get("Access-Control-Allow-Credentials"))
	}
	preflight := headers{"Origin": "https://app.example", "Access-Control-Request-Method": "DELETE", "Access-Control-Request-Headers": "authorization"}
	x := a.raw("OPTIONS", "/v1/topics/t", preflight)
	require.Equal(t, http.StatusNoContent, x.StatusCode)
	require.Contains(t, x.Header.Get("Access-Control-Allow-Methods"), "DELETE")
	require.Contains(t, x.Header.Get("Access-Control-Allow-Headers"), "Authorization")
	preflight["Origin"] = "https://other.example"
	require.Empty(t, a.raw("OPTIONS", "/v1/topics/t", preflight).Header.Get("Access-Control-Allow-Origin"))

	created := wants(t, a.post("/v1/topics", object{"name": "t"}), 201, "")
	require.Equal(t, "/x/y/v1/topics/t", created.Header.Get("Location"))
	wants(t, a.get("/v1/topics/none"), 404, "unknown-topic") // the observer looks at its instance
	for _, from := range []string{"", "/", "/ui"} {
		x := a.raw("GET", from, nil)
		require.Contains(t, []int{301, 302}, x.StatusCode)
		require.Equal(t, "/x/y/ui/", x.Header.Get("Location"))
	}
	for _, page := range []string{"/ui/", "/docs"} {
		require.Equal(t, 200, a.raw("GET", page, nil).StatusCode)
		require.Equal(t, 200, a.raw("HEAD", page, nil).StatusCode)
		require.Equal(t, 405, a.raw("POST", page, nil).StatusCode)
	}
	require.Equal(t, 404, a.raw("GET", "/ui/none.js", nil).StatusCode)
	wants(t, a.post("/v1/users", object{"username": "a/b", "password": userPassword}), 201, "")
	wants(t, a.get("/v1/users/a%2Fb"), 200, "")
	a.URL = strings.TrimSuffix(a.URL, "/x/y")
	for _, outside := range []string{"/v1/info", "/x/yv1/info", "/x/y2/v1/info", "/x", "/"} {
		require.Equal(t, 404, a.raw("GET", outside, nil).StatusCode, outside)
	}
}

// TestEveryGETHasAHEAD compares the headers too; TestEveryBuiltRoute… has the rest.
func TestEveryGETHasAHEAD(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for _, r := range routes() {
		if r.Method != http.MethodGet || r.Stream {
			continue
		}
		path := concrete(r.Path)
		get, head := a.get(path), a.do("HEAD", path, nil, nil)
		require.Equal(t, get.Status, head.Status, path)
		require.Equal(t, get.Header.Get("Content-Type"), head.Header.Get("Content-Type"), path)
		require.Empty(t, head.Body)
	}
}

func TestEveryRouteSaysWhatItNeeds(t *testing.T) {
	t.Parallel()
	for _, r := range routes() {
		require.True(t, r.Public || r.Needs != "", "%s %s", r.Method, r.Path)
		if r.Built() {
			require.NotEmpty(t, r.ID)
			require.True(t, r.Body != route.JSON || r.Method != http.MethodGet)
		}
	}
}
