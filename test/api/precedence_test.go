package api

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTheFirstOfTwoFaultsIsTold pairs each step of the contract's precedence with the
// ones behind it.
func TestTheFirstOfTwoFaultsIsTold(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("first.fault", 1, object{"max.message.bytes": 1000})
	nobody := a.login2("first.nobody")
	large := `{"records":[{"value":"` + strings.Repeat("x", 1000) + `"}]}`
	future := `{"records":[{"value":1,"timestamp":99999999999999}]}`
	type header = map[string]string
	const garbage = "garbage"
	form := header{"Content-Type": "application/x-www-form-urlencoded"}
	t.Run("rows", func(t *testing.T) {
		for name, c := range map[string]struct {
			q      request
			status int
			code   string
		}{
			"unknown route, no method, no token":  {request{Method: "PURGE", Path: "/v1/nothing", Token: garbage}, 404, "not-found"},
			"405 before 401":                      {request{Method: "PUT", Path: path, Token: garbage}, 405, "method-not-allowed"},
			"405 before 415":                      {request{Method: "PUT", Path: "/v1/topics", Token: a.admin, Body: "x", Header: form}, 405, "method-not-allowed"},
			"401 before 415":                      {request{Method: "POST", Path: "/v1/topics", Token: garbage, Body: "x", Header: form}, 401, "unauthenticated"},
			"401 before 406":                      {request{Method: "GET", Path: path, Token: garbage, Header: header{"Accept": "image/png"}}, 401, "unauthenticated"},
			"401 before 501":                      {request{Method: "GET", Path: "/v1/transactions", Token: garbage}, 401, "unauthenticated"},
			"401 before 422":                      {request{Method: "GET", Path: "/v1/topics?limit=0", Token: garbage}, 401, "unauthenticated"},
			"401 before 404":                      {request{Method: "GET", Path: "/v1/topics/none", Token: garbage}, 401, "unauthenticated"},
			"415 before 406":                      {request{Method: "POST", Path: "/v1/topics", Token: a.admin, Body: "x", Header: header{"Content-Type": "text/plain", "Accept": "image/png"}}, 415, "unsupported-media-type"},
			"415 of a body before 501":            {request{Method: "POST", Path: path + "/records", Token: a.admin, Body: "x", Header: header{"Content-Type": "multipart/form-data; boundary=b", "Tidewire-Transaction": "t"}}, 415, "unsupported-media-type"},
			"415 of an encoding before 501":       {request{Method: "POST", Path: path + "/records?results=all", Token: a.admin, Body: "x", Header: header{"Content-Encoding": "br"}}, 415, "unsupported-media-type"},
			"406 before 501":                      {request{Method: "POST", Path: path + "/records", Token: a.admin, Body: "x", Header: header{"Accept": "image/png", "Tidewire-Transaction": "t"}}, 406, "not-acceptable"},
			"406 before 400":                      {request{Method: "POST", Path: "/v1/topics", Token: a.admin, Body: "", Header: header{"Accept": "image/png"}}, 406, "not-acceptable"},
			"415 before 422":                      {request{Method: "POST", Path: "/v1/topics?x=1", Token: a.admin, Body: "x", Header: form}, 415, "unsupported-media-type"},
			"501 before 400":                      {request{Method: "POST", Path: path + "/records", Token: a.admin, Body: "{", Header: header{"Tidewire-Transaction": "t"}}, 501, "not-implemented"},
			"501 before 422":                      {request{Method: "POST", Path: "/v1/transactions/execute?x=1", Token: a.admin, Body: "{}"}, 501, "not-implemented"},
			"501 before a missing body":           {request{Method: "POST", Path: "/v1/transactions/execute", Token: a.admin, Body: ""}, 501, "not-implemented"},
			"501 before 413 of chunks":            {request{Method: "POST", Path: path + "/records", Token: a.admin, Body: strings.Repeat(" ", 64<<20+1), Chunked: true, Header: header{"Tidewire-Transaction": "t"}}, 501, "not-implemented"},
			"501 before 403":                      {request{Method: "GET", Path: "/v1/transactions", Token: nobody}, 501, "not-implemented"},
			"501 before 404":                      {request{Method: "POST", Path: "/v1/topics/none/records", Token: a.admin, Body: "{", Header: header{"Tidewire-Transaction": "t"}}, 501, "not-implemented"},
			"400 before 403":                      {request{Method: "POST", Path: path + "/records", Token: nobody, Body: "{"}, 400, "malformed-body"},
			"400 before 404":                      {request{Method: "POST", Path: "/v1/topics/none/records", Token: a.admin, Body: "{"}, 400, "malformed-body"},
			"413 of chunks before 403":            {request{Method: "POST", Path: "/v1/topics", Token: nobody, Body: strings.Repeat(" ", 1<<20+1), Chunked: true}, 413, "request-too-large"},
			"422 of a record before 403":          {request{Method: "POST", Path: path + "/records", Token: nobody, Body: `{"records":[]}`}, 422, "invalid-argument"},
			"422 of a timestamp before 403":       {request{Method: "POST", Path: path + "/records", Token: nobody, Body: `{"records":[{"timestamp":-1}]}`}, 422, "invalid-timestamp"},
			"422 of a partition before 404":       {request{Method: "GET", Path: "/v1/topics/none/partitions/-1/records?offset=0", Token: a.admin}, 422, "invalid-argument"},
			"422 of a list before 403":            {request{Method: "GET", Path: "/v1/users?limit=0", Token: nobody}, 422, "invalid-argument"},
			"422 of a page token before 403":      {request{Method: "GET", Path: "/v1/users?page_token=x", Token: nobody}, 422, "invalid-argument"},
			"422 of a broker list before 403":     {request{Method: "GET", Path: "/v1/brokers?sort=x", Token: nobody}, 422, "invalid-argument"},
			"422 of a filter before 403":          {request{Method: "GET", Path: "/v1/acls?operation=x", Token: nobody}, 422, "invalid-argument"},
			"422 of a deletion before 403":        {request{Method: "DELETE", Path: "/v1/acls", Token: nobody}, 422, "invalid-argument"},
			"422 of a topic's name before 403":    {request{Method: "POST", Path: "/v1/topics", Token: nobody, Body: `{"name":"a/b"}`}, 422, "invalid-argument"},
			"422 of a path's name before 403":     {request{Method: "GET", Path: "/v1/topics/a%2Fb", Token: nobody}, 422, "invalid-argument"},
			"422 of a config before 403":          {request{Method: "POST", Path: "/v1/topics", Token: nobody, Body: `{"name":"n","config":{"x":1}}`}, 422, "invalid-argument"},
			"422 of an unset before 403":          {request{Method: "PATCH", Path: path + "/config", Token: nobody, Body: `{"unset":["x"]}`}, 422, "invalid-argument"},
			"422 of an unset before 404":          {request{Method: "PATCH", Path: "/v1/topics/none/config", Token: a.admin, Body: `{"unset":["x"]}`}, 422, "invalid-argument"},
			"422 of a user's name before 403":     {request{Method: "POST", Path: "/v1/users", Token: nobody, Body: object{"username": "*", "password": userPassword}}, 422, "invalid-argument"},
			"422 of a password before 403":        {request{Method: "POST", Path: "/v1/users", Token: nobody, Body: `{"username":"x","password":"y"}`}, 422, "invalid-argument"},
			"422 of a dry run before 404":         {request{Method: "DELETE", Path: "/v1/users/none?dry_run=1", Token: a.admin}, 422, "invalid-argument"},
			"422 of a cursor before 403":          {request{Method: "GET", Path: path + "/records?cursor=x", Token: nobody}, 422, "invalid-argument"},
			"406 of a read before 422":            {request{Method: "GET", Path: path + "/records?cursor=x", Token: nobody, Header: header{"Accept": "image/png"}}, 406, "not-acceptable"},
			"403 before 404 of partitions":        {request{Method: "GET", Path: path + "/records?partitions=9", Token: nobody}, 403, "forbidden"},
			"403 before 404 of a topic":           {request{Method: "GET", Path: "/v1/topics/none", Token: nobody}, 403, "forbidden"},
			"403 before 404 of a partition":       {request{Method: "GET", Path: path + "/partitions/9/records?offset=0", Token: nobody}, 403, "forbidden"},
			"403 before 409":                      {request{Method: "POST", Path: "/v1/topics", Token: nobody, Body: `{"name":"first.fault"}`}, 403, "forbidden"},
			"403 before 412":                      {request{Method: "DELETE", Path: path, Token: nobody, Header: header{"If-Match": `"x"`}}, 403, "forbidden"},
			"403 before 412 of a weak tag":        {request{Method: "DELETE", Path: path, Token: nobody, Header: header{"If-Match": `W/"x"`}}, 403, "forbidden"},
			"403 before 413 of a record":          {request{Method: "POST", Path: path + "/records", Token: nobody, Body: large}, 403, "forbidden"},
			"422 of an offset before 404":         {request{Method: "GET", Path: "/v1/topics/none/partitions/0/records/x", Token: a.admin}, 422, "invalid-argument"},
			"403 before 416 of one record":        {request{Method: "GET", Path: path + "/partitions/0/records/5", Token: nobody}, 403, "forbidden"},
			"404 before 416 of one record":        {request{Method: "GET", Path: path + "/partitions/9/records/5", Token: a.admin}, 404, "unknown-partition"},
			"406 before 422 of one record":        {request{Method: "GET", Path: path + "/partitions/0/records/x", Token: a.admin, Header: header{"Accept": "text/csv"}}, 406, "not-acceptable"},
			"403 before 416":                      {request{Method: "GET", Path: path + "/partitions/0/records?offset=5", Token: nobody}, 403, "forbidden"},
			"403 before 422 of stored state":      {request{Method: "POST", Path: path + "/records", Token: nobody, Body: future}, 403, "forbidden"},
			"403 before 422 of fewer partitions":  {request{Method: "POST", Path: "/v1/topics", Token: nobody, Body: `{"name":"n","replication_factor":2}`}, 403, "forbidden"},
			"404 before 412":                      {request{Method: "DELETE", Path: "/v1/topics/none", Token: a.admin, Header: header{"If-Match": `W/"x"`}}, 404, "unknown-topic"},
			"404 before 412 of a user":            {request{Method: "PATCH", Path: "/v1/users/none", Token: a.admin, Body: "{}", Header: header{"If-Match": `x`}}, 404, "unknown-user"},
			"404 before 413 of a record":          {request{Method: "POST", Path: "/v1/topics/none/records", Token: a.admin, Body: large}, 404, "unknown-topic"},
			"404 before 416":                      {request{Method: "GET", Path: path + "/partitions/9/records?offset=5", Token: a.admin}, 404, "unknown-partition"},
			"404 before 422 of a timestamp ahead": {request{Method: "POST", Path: "/v1/topics/none/records", Token: a.admin, Body: future}, 404, "unknown-topic"},
			"412 in a dry run":                    {request{Method: "DELETE", Path: path + "?dry_run=true", Token: a.admin, Header: header{"If-Match": `"x"`}}, 412, "etag-mismatch"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				wants(t, a.with(t).Do(c.q), c.status, c.code)
			})
		}
	})
	require.Zero(t, a.logEnd(path, 0))
}

// TestTheContentLengthStandsBetweenTheTokenAndTheType sends no body, so these rows are
// made by hand.
func TestTheContentLengthStandsBetweenTheTokenAndTheType(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for _, c := range []struct {
		method, path, token string
		status              int
	}{
		{"POST", "/v1/nothing", a.admin, 404},
		{"PUT", "/v1/topics", a.admin, 405},
		{"POST", "/v1/topics", "garbage", 401},
		{"POST", "/v1/topics", a.admin, 413},
		{"POST", "/v1/transactions", a.admin, 413}, // before 501
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(a.URL, "http://"))
		require.NoError(t, err)
		_, err = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: text/plain\r\nContent-Length: 99999999\r\n\r\n",
			c.method, c.path, c.token)
		require.NoError(t, err)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		require.Equal(t, c.status, res.StatusCode, "%s %s", c.method, c.path)
		require.Equal(t, "application/problem+json", res.Header.Get("Content-Type"))
		require.NoError(t, res.Body.Close())
		require.NoError(t, conn.Close())
	}
}

func TestA405NamesTheMethods(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for path, want := range map[string][]string{
		"/v1/topics":         {"GET", "HEAD", "POST"},
		"/v1/topics/t":       {"DELETE", "GET", "HEAD", "PATCH"},
		"/v1/auth/login":     {"POST"},
		"/healthz":           {"GET", "HEAD"},
		"/v1/groups/g":       {"DELETE", "GET", "HEAD"},
		"/v1/topics/delete/": nil,
	} {
		x := a.as("", "PUT", path, nil)
		if want == nil {
			wants(t, x, 404, "not-found")
			continue
		}
		wants(t, x, 405, "method-not-allowed")
		require.ElementsMatch(t, want, strings.FieldsFunc(x.Header.Get("Allow"), func(r rune) bool { return r == ',' || r == ' ' }), path)
	}
}

func TestUnknownPathsAre404(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for _, path := range []string{
		"/v1", "/v1/", "/v2/topics", "/v1/topic", "/v1/topics/", "/v1/topics//", "/v1//topics", "//v1/topics",
		"/v1/topics//config", "/v1/topics/t/config/", "/v1/users//tokens", "/V1/topics", "/v1/topics/a/b/c/d/e", "/metrics/", "/healthz/x",
	} {
		for _, method := range []string{"GET", "HEAD", "POST", "DELETE"} {
			wants(t, a.as("", method, path, nil), 404, "not-found")
		}
	}
}
