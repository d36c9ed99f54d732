// Package api tests the HTTP surface from outside: whole nodes, real requests. Every
// answer of these tests is checked against the OpenAPI document and against what the
// contract says of all answers; see observer.
package api

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidewire/internal/testkit/nodekit"
	"tidewire/internal/testkit/openapitest"
	"tidewire/openapi"
)

// shared is the node that tests use which do not change what others see.
var shared *nodekit.Node

// document is the OpenAPI document that the nodes serve.
var document *openapitest.Validator

// ofUnbuilt tells whether a request goes to an unbuilt route, or to a path that has
// only such routes.
func ofUnbuilt(method, target string) bool {
	path, _, _ := strings.Cut(target, "?")
	pathIsBuilt, methodIsUnbuilt, found := false, false, false
	for _, r := range routes() {
		if !matches(r.Path, path) {
			continue
		}
		found = true
		pathIsBuilt = pathIsBuilt || r.Built()
		methodIsUnbuilt = methodIsUnbuilt || !r.Built() && (r.Method == method || r.Method == "GET" && method == "HEAD")
	}
	return methodIsUnbuilt || found && !pathIsBuilt
}

// matches compares an escaped path with a template.
func matches(template, path string) bool {
	return slices.EqualFunc(strings.Split(template, "/"), strings.Split(path, "/"), func(t, s string) bool {
		return t == s || strings.HasPrefix(t, "{") && s != ""
	})
}

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if document, err = openapitest.Load(openapi.JSON()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "tidewire-api-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	n, stop, err := nodekit.Run(dir, nodekit.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	shared = n
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "the node did not stop cleanly:", err)
		return 1
	}
	if code != 0 {
		return code
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if left := untried(); len(left) > 0 && flag.Lookup("test.run").Value.String() == "" {
		fmt.Fprintln(os.Stderr, "no test had a good answer of:", left)
		return 1
	}
	return 0
}

// untried are the documented operations whose success no test has checked. The
// WebSockets' are looked at by TestWebSocketHandshakes, past the observer.
func untried() []string {
	good := map[string]bool{"GET /v1/ws/consume": true, "GET /v1/ws/produce": true}
	for _, s := range document.Seen() {
		if i := strings.LastIndexByte(s, ' '); s[i+1] == '2' {
			good[s[:i]] = true
		}
	}
	return slices.DeleteFunc(document.Operations(), func(op string) bool { return good[op] || strings.HasPrefix(op, "HEAD ") })
}

type (
	request = nodekit.Request
	answer  = nodekit.Answer
	// object is a JSON object whose numbers are json.Number.
	object = map[string]any
)

// api is a node as one test uses it, with a token of the administrator.
type api struct {
	*nodekit.Node
	t     testing.TB
	admin string
}

// sharedAPI gives the shared node to a test.
func sharedAPI(t testing.TB) *api {
	t.Helper()
	return newAPI(t, shared.With(t), "")
}

// ownAPI starts a node for one test.
func ownAPI(t testing.TB, flags ...string) *api {
	t.Helper()
	return newAPI(t, nodekit.Start(t, flags...), "")
}

// prefixedAPI starts a node below a path prefix.
func prefixedAPI(t testing.TB, prefix string, flags ...string) *api {
	t.Helper()
	n := nodekit.Start(t, append(flags, "--http-path-prefix", prefix)...)
	n.Observe = observer(prefix)
	a := &api{Node: n, t: t}
	a.admin = n.Admin()
	return a
}

// raw sends a request whose answer need not be of the API: a page, a preflight. The
// body is dropped.
func (a *api) raw(method, path string, h map[string]string) *http.Response {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.URL+path, nil)
	require.NoError(a.t, err)
	for k, v := range h {
		req.Header.Set(k, v)
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	require.NoError(a.t, err)
	require.NoError(a.t, res.Body.Close())
	return res
}

func newAPI(t testing.TB, n *nodekit.Node, prefix string) *api {
	t.Helper()
	n.Observe = observer(prefix)
	return &api{Node: n, t: t, admin: n.Admin()}
}

// with gives the API to a subtest.
func (a *api) with(t testing.TB) *api {
	return &api{Node: a.Node.With(t), t: t, admin: a.admin}
}

// leaks are traces of the implementation, which no answer may show.
var leaks = regexp.MustCompile(`goroutine \d|\.go:\d|runtime error|\*?(rest|model|broker|metadata|auth|json)\.[A-Z]\w+|0x[0-9a-f]{6,}|json: |strconv\.|/tmp/`)

var outcomes = []any{"not-applied", "unknown"}

// observer checks what holds for every answer.
func observer(prefix string) func(testing.TB, request, *answer) {
	return func(t testing.TB, r request, a *answer) {
		t.Helper()
		assert.NotEmpty(t, a.Header.Get("X-Request-Id"), "%s %s", r.Method, r.Path)
		if a.Status >= 400 {
			checkProblem(t, r, a, prefix)
		}
		checkTag(t, r, a)
		if path := strings.TrimPrefix(r.Path, prefix); a.Status < 300 && a.Status != http.StatusNoContent && strings.HasPrefix(path, "/v1/") {
			assert.Equal(t, "no-store", a.Header.Get("Cache-Control"), "%s %s", r.Method, r.Path)
		}
		if a.Status == http.StatusCreated {
			assert.NotEmpty(t, a.Header.Get("Location"), "%s %s", r.Method, r.Path)
		}
		if ofUnbuilt(r.Method, r.Path) {
			return // not documented until it does something
		}
		document.Check(t, openapitest.Exchange{
			Method: r.Method, Target: r.Path, Status: a.Status, Header: a.Header, Body: a.Body,
		})
	}
}

// checkTag compares the etag of a resource with the header of that name.
func checkTag(t testing.TB, r request, a *answer) {
	t.Helper()
	if a.Status >= 300 || a.Header.Get("Content-Type") != "application/json" || a.Header.Get("Content-Encoding") != "" || strings.Contains(r.Path, "/records") {
		return
	}
	var v struct {
		ETag *string `json:"etag"`
	}
	if json.Unmarshal(a.Body, &v) == nil && v.ETag != nil {
		assert.Equal(t, `"`+*v.ETag+`"`, a.Header.Get("ETag"), "%s %s", r.Method, r.Path)
	}
}

func checkProblem(t testing.TB, r request, a *answer, prefix string) {
	t.Helper()
	what := fmt.Sprintf("%s %s: %d %s", r.Method, excerpt(r.Path), a.Status, excerpt(string(a.Body)))
	assert.Equal(t, "application/problem+json", a.Header.Get("Content-Type"), what)
	assert.Equal(t, "no-store", a.Header.Get("Cache-Control"), what)
	if a.Status == http.StatusUnauthorized {
		assert.Contains(t, a.Header.Get("WWW-Authenticate"), "Bearer", what)
	}
	if a.Status == http.StatusServiceUnavailable || a.Status == http.StatusTooManyRequests {
		assert.NotEmpty(t, a.Header.Get("Retry-After"), what)
	}
	if r.Method == http.MethodHead {
		assert.Empty(t, a.Body, what)
		return
	}
	var p object
	a.JSON(t, &p)
	for _, member := range []string{"type", "title", "detail", "instance", "code", "request_id"} {
		text, _ := p[member].(string)
		assert.NotEmpty(t, text, "%s of %s", member, what)
	}
	assert.Equal(t, json.Number(fmt.Sprint(a.Status)), p["status"], what)
	assert.Equal(t, a.Header.Get("X-Request-Id"), p["request_id"], what)
	assert.IsType(t, true, p["retryable"], what)
	assert.IsType(t, []any{}, p["errors"], what)
	path, _, _ := strings.Cut(r.Path, "?")
	assert.Equal(t, prefix+path, p["instance"], what)
	assert.NotRegexp(t, leaks, string(a.Body), what)
	if r.Method == http.MethodGet {
		assert.Nil(t, p["outcome"], what)
	} else {
		assert.Contains(t, outcomes, p["outcome"], what)
	}
}

func excerpt(s string) string {
	const most = 400
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// as sends a request with a token.
func (a *api) as(token, method, path string, body any) *answer {
	a.t.Helper()
	return a.Do(request{Method: method, Path: path, Token: token, Body: body})
}

// get, post, patch and remove send requests as the administrator.
func (a *api) get(path string) *answer { a.t.Helper(); return a.as(a.admin, "GET", path, nil) }
func (a *api) post(path string, body any) *answer {
	a.t.Helper()
	return a.as(a.admin, "POST", path, body)
}
func (a *api) patch(path string, body any) *answer {
	a.t.Helper()
	return a.as(a.admin, "PATCH", path, body)
}
func (a *api) remove(path string) *answer { a.t.Helper(); return a.as(a.admin, "DELETE", path, nil) }

// wants requires a status, and a problem's code where that is not empty.
func wants(t testing.TB, x *answer, status int, code string) *answer {
	t.Helper()
	require.NotNil(t, x, "the request failed")
	require.Equal(t, status, x.Status, "%s", excerpt(string(x.Body)))
	if code != "" && len(x.Body) > 0 {
		require.Equal(t, code, x.Code(), "%s", excerpt(string(x.Body)))
	}
	return x
}

// decoded requires a status and decodes the body.
func decoded(t testing.TB, x *answer, status int) object {
	t.Helper()
	wants(t, x, status, "")
	var v object
	x.JSON(t, &v)
	return v
}

// pointers are the pointers of a problem's errors.
func pointers(t testing.TB, x *answer) []string {
	t.Helper()
	var p struct {
		Errors []struct {
			Pointer string `json:"pointer"`
		} `json:"errors"`
	}
	x.JSON(t, &p)
	out := []string{}
	for _, e := range p.Errors {
		out = append(out, e.Pointer)
	}
	return out
}

// topic creates a topic with a config and gives its path.
func (a *api) topic(name string, partitions int, config object) string {
	a.t.Helper()
	if config == nil {
		config = object{}
	}
	wants(a.t, a.post("/v1/topics", object{"name": name, "partitions": partitions, "config": config}), 201, "")
	return "/v1/topics/" + name
}

// userPassword is the password of the users that tests make.
const userPassword = "a password of a test"

// user creates a user without rights.
func (a *api) user(name string) string {
	a.t.Helper()
	wants(a.t, a.post("/v1/users", object{"username": name, "password": userPassword}), 201, "")
	return "/v1/users/" + url.PathEscape(name)
}

// login gives a token of a user that user made.
func (a *api) login(name string) string {
	a.t.Helper()
	return a.Login(name, userPassword)
}

// rule is an ACL rule without its principal.
type rule struct{ permission, pattern, operation, resource, name string }

// allow adds a rule for a user.
func (a *api) rule(user string, r rule) {
	a.t.Helper()
	x := a.post("/v1/acls", object{
		"principal": "User:" + user, "resource_type": r.resource, "resource_name": r.name, "pattern": r.pattern,
		"operation": r.operation, "permission": r.permission,
	})
	require.Contains(a.t, []int{200, 201}, x.Status, "%s", x.Body)
}

// records produces JSON records to a topic's path and gives the results.
func (a *api) records(path string, records ...object) []any {
	a.t.Helper()
	got := decoded(a.t, a.post(path+"/records", object{"records": records}), 200)
	return got["results"].([]any)
}
