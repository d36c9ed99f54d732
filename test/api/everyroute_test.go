package api

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/api/route"
	"tidewire/openapi"
)

// proper sends a request to a route whose body, if it takes one, is of the right type.
func (a *api) proper(r *route.Route, path string) *answer {
	a.t.Helper()
	q := request{Method: r.Method, Path: path, Token: a.admin, Header: headers{}}
	switch r.Body {
	case route.JSON:
		q.Body = "{}"
	case route.RawBody:
		q.Body = `{"records":[{"key":"k","value":"v"}]}`
	case route.NoBody:
	}
	return a.Do(q)
}

func extend(path, parameter string) string {
	if strings.Contains(path, "?") {
		return path + "&" + parameter
	}
	return path + "?" + parameter
}

func TestAnUnknownQueryParameterIs422OnEveryRoute(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	built(t, func(r *route.Route, w row) {
		path := concrete(r.Path)
		x := wants(t, a.proper(r, extend(path, "no_such=1")), 422, "invalid-argument")
		require.Equal(t, []string{"query:no_such"}, pointers(t, x), r.ID)
		if slices.Contains(r.Query, "limit") {
			x = wants(t, a.proper(r, extend(path, "Limit=1")), 422, "invalid-argument")
			require.Equal(t, []string{"query:Limit"}, pointers(t, x), "names are case-sensitive")
		}
		for _, name := range r.Query {
			x = wants(t, a.proper(r, extend(path, name+"=1&"+name+"=1")), 422, "invalid-argument")
			require.Equal(t, []string{"query:" + name}, pointers(t, x), "%s: given twice", r.ID)
		}
		x = wants(t, a.proper(r, path+"?%zz"), 422, "invalid-argument")
		require.Equal(t, []string{"query:"}, pointers(t, x), r.ID)
	})
}

// badNames are what cannot be the value of a parameter of a path, by its name. An id may
// be anything.
var badNames = map[string][]string{
	"topic":     {"a%2Fb", "bad$", "%2E", "%2e%2e", "a%20b", "%ff", "%00", strings.Repeat("a", 250)},
	"partition": {"-1", "x", "1.5", "2147483648", "%20", "0x1"},
	"offset":    {"-1", "x", "latest", "1.5", "9223372036854775808"},
	"username":  {"%00", "a%0Ab", "%ff", "%2E", "%2e%2E", strings.Repeat("x", 256)},
	"broker":    {"-1", "x", "2147483648", "1.5"},
	"group":     {"%00", "a%0Ab", "%ff", "%2E", "%2e%2E", strings.Repeat("x", 256)},
	"id":        nil,
	"member":    nil,
}

var parameter = regexp.MustCompile(`\{(\w+)\}`)

func TestABadNameInThePathIs422OnEveryRoute(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	built(t, func(r *route.Route, w row) {
		for _, m := range parameter.FindAllStringSubmatch(r.Path, -1) {
			bad, known := badNames[m[1]]
			require.True(t, known, "%s: what is a bad %s?", r.ID, m[1])
			for _, name := range bad {
				path := concrete(strings.Replace(r.Path, m[0], name, 1))
				if w.missing != "" { // what the row asks with
					_, query, _ := strings.Cut(w.missing, "?")
					path = strings.TrimSuffix(path+"?"+query, "?")
				}
				q := request{Method: r.Method, Path: path, Token: a.admin}
				if w.body != nil {
					q.Body = w.body(a, "x")
				}
				x := wants(t, a.Do(q), 422, "invalid-argument")
				require.Equal(t, []string{"path:" + m[1]}, pointers(t, x), "%s %s", r.ID, name)
			}
		}
	})
}

func TestAnEmptyPathSegmentIs404OnEveryRoute(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for _, r := range routes() {
		if r.Stream {
			continue
		}
		path := concrete(r.Path)
		for _, m := range parameter.FindAllString(r.Path, -1) {
			wants(t, a.proper(r, concrete(strings.Replace(r.Path, m, "", 1))), 404, "not-found")
		}
		wants(t, a.proper(r, path+"/"), 404, "not-found")
		wants(t, a.proper(r, "/"+path), 404, "not-found")
	}
}

// TestARouteWithoutABodyTakesNone sends one where a client could think that it says something.
func TestARouteWithoutABodyTakesNone(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	tried := 0
	built(t, func(r *route.Route, w row) {
		if r.Body != route.NoBody || r.Method != http.MethodPost {
			return
		}
		tried++
		if w.prepare != nil {
			w.prepare(a, "bodyless."+r.ID)
		}
		path := w.path("bodyless." + r.ID)
		send := func(body string, h headers, chunked bool) *answer {
			return a.Do(request{Method: r.Method, Path: path, Token: a.Admin(), Body: body, Header: h, Chunked: chunked})
		}
		for _, chunked := range []bool{false, true} {
			x := wants(t, send(`{"expires_in":5}`, nil, chunked), 422, "invalid-argument")
			require.Equal(t, []string{"/expires_in"}, pointers(t, x), r.ID)
			wants(t, send(`{`, nil, chunked), 400, "malformed-body")
			wants(t, send("{\"\xff\":1}", nil, chunked), 400, "malformed-body")
			wants(t, send(`[]`, nil, chunked), 422, "invalid-argument")
			wants(t, send(`x=1`, headers{"Content-Type": "application/x-www-form-urlencoded"}, chunked), 415, "unsupported-media-type")
			wants(t, send("{}", nil, chunked), w.success, "")
			wants(t, send("", headers{"Content-Type": ""}, chunked), w.success, "")
		}
	})
	require.Equal(t, 6, tried)
}

func TestEveryRouteRefusesATypeOfAnswerThatItDoesNotHave(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	built(t, func(r *route.Route, _ row) {
		x := a.Do(request{Method: r.Method, Path: concrete(r.Path), Token: a.admin, Header: headers{"Accept": "image/png"}})
		if r.Body == route.RawBody { // 415 comes first: it has no type
			wants(t, x, 415, "unsupported-media-type")
			return
		}
		wants(t, x, 406, "not-acceptable")
	})
}

// TestEveryRouteKnowsItsMethods tries each path with every method that there is.
func TestEveryRouteKnowsItsMethods(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	have := map[string][]string{}
	for _, r := range routes() {
		have[r.Path] = append(have[r.Path], r.Method)
		if r.Method == http.MethodGet && !r.Stream {
			have[r.Path] = append(have[r.Path], http.MethodHead)
		}
	}
	for path, methods := range have {
		for _, m := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} {
			if slices.Contains(methods, m) || m == "HEAD" && slices.Contains(methods, "GET") {
				continue // a WebSocket's GET has no HEAD, which the document cannot say
			}
			target := concrete(path)
			if other := methodsOf(target); slices.Contains(other, m) { // another path takes it: a topic may be called delete
				continue
			}
			x := a.Do(request{Method: m, Path: target})
			wants(t, x, 405, "method-not-allowed")
			require.Equal(t, methodsOf(target), allowed(x), target)
		}
	}
}

// methodsOf are the methods of all routes that a path is of, sorted.
func methodsOf(target string) []string {
	var out []string
	for _, r := range routes() {
		if matches(r.Path, target) {
			out = append(out, r.Method)
			if r.Method == http.MethodGet && !r.Stream {
				out = append(out, http.MethodHead)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func allowed(x *answer) []string {
	out := strings.FieldsFunc(x.Header.Get("Allow"), func(r rune) bool { return r == ',' || r == ' ' })
	slices.Sort(out)
	return out
}

// spec is the OpenAPI document as plain JSON.
func spec(t testing.TB) (paths, schemas object) {
	t.Helper()
	var doc object
	require.NoError(t, json.Unmarshal(openapi.JSON(), &doc))
	return doc["paths"].(object), doc["components"].(object)["schemas"].(object)
}

// deep follows names into nested objects; nil where one is not there.
func deep(v any, names ...string) any {
	for _, n := range names {
		o, ok := v.(object)
		if !ok {
			return nil
		}
		v = o[n]
	}
	return v
}

// schemaOf is the schema that an operation's good answer refers to, and its name.
func schemaOf(schemas object, operation any) (object, string) {
	for _, status := range []string{"200", "201"} {
		ref, _ := deep(operation, "responses", status, "content", "application/json", "schema", "$ref").(string)
		if name := strings.TrimPrefix(ref, "#/components/schemas/"); name != "" {
			return schemas[name].(object), name
		}
	}
	return nil, ""
}

// lists are the routes that answer with a page, with the schema of their items.
func lists(t testing.TB) map[string]object {
	t.Helper()
	paths, schemas := spec(t)
	out := map[string]object{}
	for path, item := range paths {
		page, _ := schemaOf(schemas, deep(item, "get"))
		if ref, _ := deep(page, "properties", "items", "items", "$ref").(string); ref != "" {
			out[path] = schemas[strings.TrimPrefix(ref, "#/components/schemas/")].(object)
		}
	}
	require.NotEmpty(t, out)
	return out
}

// sortedBy are the lists whose first order is not that of names.
var sortedBy = map[string]string{
	"/v1/users": "username", "/v1/quotas": "username", "/v1/acls": "principal", "/v1/topics/{topic}/access": "principal",
	"/v1/brokers": "host", "/v1/operations": "id", "/v1/audit": "time", "/v1/users/{username}/tokens": "name",
	"/v1/reassignments": "topic", "/v1/partitions": "topic", "/v1/groups": "group", "/v1/topics/{topic}/groups": "group",
}

func TestEveryListHasTheParametersOfLists(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	a.topic("every.list", 1, nil)
	of := map[string]string{"{topic}": "every.list", "{username}": "admin"}
	for path, item := range lists(t) {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			a := a.with(t)
			first, ok := sortedBy[path]
			if !ok {
				first = "name"
			}
			require.NotNil(t, deep(item, "properties", first), "what is this list sorted by?")
			for template, name := range of {
				path = strings.Replace(path, template, name, 1)
			}
			page := decoded(t, a.get(path+"?limit=1&prefix=&q=&fields="+first), 200)
			require.Contains(t, page, "next_page_token")
			require.Contains(t, page, "total")
			for _, it := range page["items"].([]any) {
				require.Len(t, it, 1)
			}
			for _, sort := range []string{first, "-" + first} {
				wants(t, a.get(path+"?sort="+sort), 200, "")
			}
			require.Empty(t, decoded(t, a.get(path+"?prefix=nothing%20has%20this%20prefix"), 200)["items"])
			require.Empty(t, decoded(t, a.get(path+"?q=nothing%20has%20these%20words"), 200)["items"])
			for parameter, values := range map[string][]string{
				"limit": {"0", "1001", "-1", "x", "1.5", ""}, "sort": {"no_such", "-", "--" + first}, "fields": {"no_such", "", first + ","},
				"page_token": {"x", "e30", strings.Repeat("A", 100), ""},
			} {
				for _, v := range values {
					x := wants(t, a.get(path+"?"+parameter+"="+v), 422, "invalid-argument")
					require.Equal(t, []string{"query:" + parameter}, pointers(t, x), "%s=%s", parameter, v)
				}
			}
		})
	}
}

// plainItems are items that have neither actions nor a tag of their own, with the reason.
var plainItems = map[string]string{
	"/v1/audit":                 "nobody may change an entry",
	"/v1/topic-configs":         "it tells what there can be",
	"/v1/topics/{topic}/config": "the config has them, as a whole",
	"/v1/cluster/config":        "the config has them, as a whole",
}

// The observer compares each etag with the ETag header.
func TestResourcesAndListItemsCarryActionsAndAnETag(t *testing.T) {
	t.Parallel()
	paths, schemas := spec(t)
	for path, item := range lists(t) {
		_, plain := plainItems[path]
		for _, member := range []string{"actions", "etag"} {
			require.Equal(t, !plain, deep(item, "properties", member) != nil, "%s of the items of %s", member, path)
		}
	}
	for path, item := range paths {
		for _, method := range []string{"patch", "put", "delete"} { // what can be changed
			if deep(item, method) == nil || deep(item, "get") == nil || lists(t)[path] != nil && plainItems[path] == "" {
				continue
			}
			resource, name := schemaOf(schemas, deep(item, "get"))
			require.NotNil(t, deep(resource, "properties", "actions"), "%s %s: %s", method, path, name)
			require.NotNil(t, deep(resource, "properties", "etag"), "%s %s: %s", method, path, name)
			takes := fmt.Sprint(deep(item, method, "parameters"))
			require.Contains(t, takes, "If-Match", "%s %s", method, path)
		}
	}
}

// otherStatus are routes that succeed with another status than their method says, with the
// reason.
var otherStatus = map[string]string{
	"deleteACLs": "it answers with the rules it has deleted", "cancelOperation": "in its row the operation has ended",
	"cancelReassignment": "one node alone moves nothing", "removeBroker": "in its row the node is online",
}

func TestCreationsUpdatesAndDeletionsHaveTheirStatus(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	built(t, func(r *route.Route, w row) {
		if otherStatus[r.ID] != "" {
			return
		}
		switch r.Method {
		case http.MethodPatch:
			require.Equal(t, 200, w.success, r.ID)
		case http.MethodDelete:
			require.Equal(t, 204, w.success, r.ID)
		}
		if w.success != 201 {
			return
		}
		name := "created." + r.ID
		if w.prepare != nil {
			w.prepare(a, name)
		}
		x := wants(t, w.ask(a, r, name, a.admin), 201, "")
		at := x.Header.Get("Location")
		require.NotEmpty(t, at, r.ID)
		require.NotEmpty(t, decoded(t, x, 201), "the resource comes with it")
		if r.ID == "createToken" || r.ID == "joinGroup" { // what is made is told with others alone; it can be deleted there
			wants(t, a.remove(at), 204, "")
			return
		}
		wants(t, a.get(at), 200, "")
	})
}

// publicRoutes are the routes that the contract opens to everybody.
var publicRoutes = []string{
	"GET /.well-known/jwks.json", "GET /healthz", "GET /openapi.json", "GET /openapi.yaml", "GET /readyz", "GET /v1/setup",
	"POST /v1/auth/login", "POST /v1/auth/refresh", "POST /v1/setup",
}

func TestThePublicRoutesAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	have := []string{}
	for _, r := range routes() {
		if r.Public {
			have = append(have, r.Method+" "+r.Path)
		}
	}
	slices.Sort(have)
	require.Equal(t, publicRoutes, have)
	a := sharedAPI(t)
	for _, page := range []string{"/docs", "/ui/"} {
		require.Equal(t, 200, a.raw("GET", page, nil).StatusCode)
	}
	require.Contains(t, []int{301, 302}, a.raw("GET", "/", headers{"Accept": "text/html"}).StatusCode)
}

func TestMetricsArePublicWhereTheNodeWasToldSo(t *testing.T) {
	t.Parallel()
	wants(t, sharedAPI(t).as("", "GET", "/metrics", nil), 401, "unauthenticated")
	a := ownAPI(t, "--metrics-public")
	require.Contains(t, string(wants(t, a.as("", "GET", "/metrics", nil), 200, "").Body), "tidewire_http_requests_total")
	wants(t, a.as("garbage", "GET", "/metrics", nil), 200, "")
}

// nullLists are lists that may be null, with the reason.
var nullLists = map[string]string{
	"ProduceSummary.offsets": "acks=none knows of none", "Token.scopes": "absent, which is all of the user's rights and not none of them",
	"TokenCreated.scopes": "as in Token",
}

func TestListsAreNeverNull(t *testing.T) {
	t.Parallel()
	_, schemas := spec(t)
	requests := map[string]bool{}
	for name, schema := range schemas {
		requests[name] = deep(schema, "additionalProperties") == false // clients may leave things out
	}
	seen := 0
	for of, schema := range schemas {
		properties, _ := deep(schema, "properties").(object)
		for name, p := range properties {
			if requests[of] || deep(p, "type") != "array" {
				continue
			}
			seen++
			_, excepted := nullLists[of+"."+name]
			require.Equal(t, excepted, deep(p, "nullable") == true, "%s of %s", name, of)
		}
	}
	require.Greater(t, seen, 20)
}

// unitless are numbers that are neither a time nor a size, though their names sound so.
var unitless = map[string]string{
	"expires_in": "OAuth's (RFC 6749)", "timestamp": "a point in time", "from": "a point in time or an offset", "to": "a point in time or an offset",
	"lag": "records", "scanned_bytes": "", "segments": "a count",
}

var soundsLike = regexp.MustCompile(`(?i)time|wait|interval|duration|expire|age$|ttl|delay|period|size|length|disk|memory|bytes|free|used|latency|eta|caught|retention`)

var hasUnit = regexp.MustCompile(`(_ms|_s|_bytes|_bytes_per_s|_per_s|^bytes|_bytes_in_per_s)$|^(max|min)?_?bytes|bytes_(in|out)_per_s$`)

func TestDurationsAndSizesCarryTheirUnit(t *testing.T) {
	t.Parallel()
	paths, schemas := spec(t)
	number := func(schema any) bool { return slices.Contains([]any{"integer", "number"}, deep(schema, "type")) }
	seen := 0
	check := func(name, where string) {
		_, excepted := unitless[name]
		if excepted || !soundsLike.MatchString(name) {
			return
		}
		seen++
		require.Regexp(t, hasUnit, name, where)
	}
	for of, schema := range schemas {
		properties, _ := deep(schema, "properties").(object)
		for name, p := range properties {
			if number(p) {
				check(name, of)
			}
		}
	}
	for path, item := range paths {
		for method, op := range item.(object) {
			parameters, _ := deep(op, "parameters").([]any)
			for _, p := range parameters {
				if number(deep(p, "schema")) && deep(p, "in") == "query" {
					check(deep(p, "name").(string), method+" "+path)
				}
			}
		}
	}
	require.Greater(t, seen, 20, "the document is read")
}

// TestEveryRowOfARouteIsMade ties the rows that each route needs to the tests that make them
// for all routes: a route that is added without its row fails there.
func TestEveryRowOfARouteIsMade(t *testing.T) {
	t.Parallel()
	for _, r := range routes() {
		if !r.Built() || r.Stream {
			continue
		}
		w := rows[r.ID]
		require.NotNil(t, w.path, "%s: no row in rows", r.ID)
		require.NotZero(t, w.success, "%s: how does it succeed?", r.ID)
		require.Equal(t, r.Body != route.NoBody, w.body != nil, "%s: its row has a body where the route takes one", r.ID)
		require.Equal(t, w.access == byRule, w.operation != "", "%s: who is the right user, and who the wrong one?", r.ID)
		require.Equal(t, strings.Contains(r.Path, "{") && !w.creates, w.missing != "" && w.code != "", "%s: what does a missing thing give?", r.ID)
	}
}

// TestAnOversizedHeadIsRefused has a target and headers beyond what a node reads.
func TestAnOversizedHeadIsRefused(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for name, head := range map[string]string{
		"headers": "GET /v1/info HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X-Long: "+strings.Repeat("x", 8000)+"\r\n", 20) + "\r\n",
		"target":  "GET /v1/info?q=" + strings.Repeat("x", 200_000) + " HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		c, err := net.Dial("tcp", strings.TrimPrefix(a.URL, "http://"))
		require.NoError(t, err)
		_, _ = c.Write([]byte(head)) // the node may answer before it has all
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err, name)
		require.Equal(t, 431, res.StatusCode, name)
		require.NoError(t, res.Body.Close())
		require.NoError(t, c.Close())
	}
	wants(t, a.get("/v1/info"), 200, "")
}
