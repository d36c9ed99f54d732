package openapitest

import (
	"net/http"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// sample is the document that the generator makes of its own sample service.
func sample(t *testing.T) *Validator {
	t.Helper()
	document, err := os.ReadFile("../../../openapi/gen/testdata/sample.golden.json")
	require.NoError(t, err)
	return New(t, document)
}

func answer(method, target string, status int, mediaType, body string) Exchange {
	return Exchange{Method: method, Target: target, Status: status, Header: http.Header{"Content-Type": {mediaType}}, Body: []byte(body)}
}

const (
	fetchPath = "/v1/topics/a%2Fb/partitions/0/records?offset=0"
	problem   = `{"type":"about:blank","title":"t","status":404,"detail":"d","code":"not-found","retryable":false,"request_id":"r","earliest":3}`
	topic     = `{"name":"t","partitions":[{"partition":0,"leader":null}],"limits":{"bytes":1},"origin":null}`
)

func TestRightAnswersPass(t *testing.T) {
	t.Parallel()
	v := sample(t)
	for name, x := range map[string]Exchange{
		"object":             answer("POST", "/v1/topics", 201, "application/json; charset=utf-8", topic),
		"any JSON value":     answer("GET", fetchPath, 200, "application/json", `{"records":[{"offset":9007199254740991,"value":null},{"offset":1,"value":[1.00]}],"next_offset":2}`),
		"NDJSON":             answer("GET", fetchPath, 200, "application/x-ndjson", "{\"record\":{\"offset\":0,\"value\":\"v\"}}\n{\"end\":{\"reason\":\"latest\"}}\n"),
		"no line":            answer("GET", fetchPath, 200, "application/x-ndjson", ""),
		"bytes":              answer("GET", fetchPath, 200, "application/vnd.kafka.record-batches", "\x00\xff"),
		"text":               answer("GET", "/healthz", 200, "text/plain; charset=utf-8", "alive"),
		"HEAD":               answer("HEAD", "/healthz", 200, "text/plain", ""),
		"no content":         {Method: "DELETE", Target: "/v1/topics/t", Status: 204},
		"common error":       answer("POST", "/v1/topics", 400, "application/problem+json", problem),
		"unknown route":      answer("GET", "/v1/nothing", 404, "application/problem+json", problem),
		"empty segment":      answer("DELETE", "/v1/topics/", 404, "application/problem+json", problem),
		"method not allowed": answer("PUT", "/v1/topics", 405, "application/problem+json", problem),
	} {
		require.NoError(t, v.Validate(x), name)
	}
	require.Contains(t, v.Seen(), "GET /v1/topics/{topic}/partitions/{partition}/records 200")
	require.Contains(t, v.Operations(), "POST /v1/auth/login")
}

func TestWrongAnswersAreFound(t *testing.T) {
	t.Parallel()
	v := sample(t)
	for name, row := range map[string]struct {
		x    Exchange
		want string
	}{
		"field missing":         {answer("POST", "/v1/topics", 201, "application/json", `{"name":"t","partitions":[],"limits":{"bytes":1}}`), "origin"},
		"field undocumented":    {answer("POST", "/v1/topics", 201, "application/json", topic[:len(topic)-1]+`,"extra":1}`), "extra"},
		"null not allowed":      {answer("POST", "/v1/topics", 201, "application/json", `{"name":null,"partitions":[],"limits":{"bytes":1},"origin":null}`), "name"},
		"null for an array":     {answer("POST", "/v1/topics", 201, "application/json", `{"name":"t","partitions":null,"limits":{"bytes":1},"origin":null}`), "partitions"},
		"number as text":        {answer("GET", fetchPath, 200, "application/json", `{"records":[],"next_offset":"2"}`), "next_offset"},
		"status undocumented":   {answer("POST", "/v1/topics", 418, "application/json", topic), "418"},
		"error as plain JSON":   {answer("POST", "/v1/topics", 400, "application/json", problem), "media type"},
		"problem without code":  {answer("POST", "/v1/topics", 400, "application/problem+json", `{"type":"about:blank"}`), "code"},
		"bad line":              {answer("GET", fetchPath, 200, "application/x-ndjson", "{\"end\":{\"reason\":\"x\"}}\n{\"end\":{}}\n"), "line 1"},
		"cut line":              {answer("GET", fetchPath, 200, "application/x-ndjson", `{"end":{"reason":"x"}}`), "does not end"},
		"text that is binary":   {answer("GET", "/healthz", 200, "text/plain", "\xff"), "UTF-8"},
		"two values":            {answer("POST", "/v1/topics", 201, "application/json", topic+topic), "follows"},
		"body without need":     {answer("DELETE", "/v1/topics/t", 204, "text/plain", "x"), "body"},
		"no content type":       {answer("POST", "/v1/topics", 201, "", topic), "Content-Type"},
		"unknown route answers": {answer("GET", "/v1/nothing", 200, "application/json", "{}"), "404"},
		"method answers":        {answer("PUT", "/v1/topics", 404, "application/problem+json", problem), "405"},
		"header missing":        {answer("POST", "/v1/topics", 401, "application/problem+json", problem), "WWW-Authenticate"},
	} {
		err := v.Validate(row.x)
		require.ErrorContains(t, err, row.want, name)
	}
}

func TestALiteralSegmentBeatsAParameter(t *testing.T) {
	t.Parallel()
	v, err := Load([]byte(`{"openapi":"3.0.3","info":{"title":"t","version":"1"},"paths":{
		"/v1/x/{id}":{"parameters":[{"name":"id","in":"path","required":true,"schema":{"type":"string"}}],"get":{"responses":{"200":{"description":"d"}}}},
		"/v1/x/execute":{"get":{"responses":{"202":{"description":"d"}}}}}}`))
	require.NoError(t, err)
	require.NoError(t, v.Validate(Exchange{Method: "GET", Target: "/v1/x/execute", Status: 202}))
	require.NoError(t, v.Validate(Exchange{Method: "GET", Target: "/v1/x/other", Status: 200}))
	require.Error(t, v.Validate(Exchange{Method: "GET", Target: "/v1/x/other", Status: 202}))
}
