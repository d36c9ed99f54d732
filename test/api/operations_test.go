package api

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// operations are those in a list, newest first.
func (a *api) operations(token, query string) []object {
	a.t.Helper()
	out := []object{}
	for _, it := range decoded(a.t, a.as(token, "GET", "/v1/operations?limit=1000&sort=-created_at&"+query, nil), 200)["items"].([]any) {
		out = append(out, it.(object))
	}
	return out
}

// ofTopic is the operation of a kind on a topic.
func (a *api) ofTopic(kind, topic string) object {
	a.t.Helper()
	for _, o := range a.operations(a.admin, "") {
		if o["kind"] == kind && o["resource"].(object)["name"] == topic {
			return o
		}
	}
	require.Fail(a.t, "no operation "+kind+" of "+topic)
	return nil
}

func TestManyTopicsAreDeletedEachByItsRight(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for _, n := range []string{"bulk.a", "bulk.b", "bulk.mine"} {
		a.records(a.topic(n, 2, nil), object{"value": "v"})
	}
	body := object{"names": []string{"bulk.mine", "bulk.none", "bulk.b"}}
	token := a.login2("bulk.user")
	a.rule("bulk.user", rule{"allow", "literal", "delete", "topic", "bulk.mine"})
	results := func(x *answer) []object {
		out := []object{}
		for _, it := range decoded(t, x, 200)["results"].([]any) {
			out = append(out, it.(object))
		}
		return out
	}
	codes := func(rows []object) []any {
		out := []any{}
		for _, r := range rows {
			if p, ok := r["problem"].(object); ok {
				require.Equal(t, "not-applied", p["outcome"])
				require.Nil(t, r["partitions"])
				out = append(out, p["code"])
				continue
			}
			out = append(out, nil)
		}
		return out
	}
	plan := results(a.post("/v1/topics/delete?dry_run=true", body))
	require.Equal(t, []any{nil, "unknown-topic", nil}, codes(plan))
	require.Equal(t, []int64{2, 1}, []int64{number(t, plan[0]["partitions"]), number(t, plan[0]["records"])})
	wants(t, a.get("/v1/topics/bulk.mine"), 200, "")

	got := results(a.as(token, "POST", "/v1/topics/delete", body))
	require.Equal(t, []any{nil, "forbidden", "forbidden"}, codes(got), "without a right nobody learns what is there")
	require.Equal(t, []any{"bulk.mine", "bulk.none", "bulk.b"}, []any{got[0]["name"], got[1]["name"], got[2]["name"]}, "in the order of the request")
	require.Positive(t, number(t, got[0]["size_bytes"]))
	wants(t, a.get("/v1/topics/bulk.mine"), 404, "unknown-topic")
	wants(t, a.get("/v1/topics/bulk.b"), 200, "")

	require.Equal(t, []any{nil, nil}, codes(results(a.post("/v1/topics/delete", object{"names": []string{"bulk.a", "bulk.b"}}))))
	wants(t, a.get("/v1/topics/bulk.b"), 404, "unknown-topic")

	own := a.operations(token, "")
	require.Len(t, own, 1, "one sees what one has asked for")
	require.Equal(t, []any{"delete-topics", "failed", "bulk.user"}, []any{own[0]["kind"], own[0]["state"], own[0]["principal"]})
	require.Contains(t, own[0]["error"].(object)["detail"], "2 of 3 topics")
	wants(t, a.as(token, "GET", "/v1/operations/"+own[0]["id"].(string), nil), 200, "")
	other := a.login2("bulk.other")
	require.Empty(t, a.operations(other, ""))
	for _, id := range []string{own[0]["id"].(string), "none"} { // 403 does not tell whether it exists
		wants(t, a.as(other, "GET", "/v1/operations/"+id, nil), 403, "forbidden")
		wants(t, a.as(other, "DELETE", "/v1/operations/"+id, nil), 403, "forbidden")
	}
	wants(t, a.as(token, "DELETE", "/v1/operations/"+own[0]["id"].(string), nil), 409, "conflict")
}

func TestDeletionsRefuseBadInput(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	a.topic("bulk.stays", 1, nil)
	many := make([]string, 1001)
	for i := range many {
		many[i] = fmt.Sprintf("bulk.many.%d", i)
	}
	for name, c := range map[string]struct {
		body     any
		status   int
		pointers []string
	}{
		"no body":      {"", 400, nil},
		"cut":          {`{"names":["a"`, 400, nil},
		"without":      {"{}", 422, []string{"/names"}},
		"null":         {`{"names":null}`, 422, []string{"/names"}},
		"none":         {object{"names": []string{}}, 422, []string{"/names"}},
		"too many":     {object{"names": many}, 422, []string{"/names"}},
		"a number":     {`{"names":[1]}`, 422, []string{"/names/0"}},
		"bad names":    {object{"names": []string{"bulk.stays", "a/b", ""}}, 422, []string{"/names/1", "/names/2"}},
		"one twice":    {object{"names": []string{"bulk.stays", "x", "bulk.stays"}}, 422, []string{"/names/2"}},
		"unknown more": {object{"names": []string{"bulk.stays"}, "force": true}, 422, []string{"/force"}},
	} {
		x := a.post("/v1/topics/delete", c.body)
		wants(t, x, c.status, "")
		if c.pointers != nil {
			require.Equal(t, c.pointers, pointers(t, x), name)
		}
	}
	wants(t, a.get("/v1/topics/bulk.stays"), 200, "")
	wants(t, a.post("/v1/topics/delete?dry_run=1", object{"names": []string{"bulk.stays"}}), 422, "invalid-argument")
	got := decoded(t, a.post("/v1/topics/delete", object{"names": []string{"__consumer_offsets"}}), 200)
	require.NotNil(t, got["results"].([]any)[0].(object)["problem"])
}

func TestManyPartitionsAreAnOperation(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	token := a.login2("op.maker")
	a.rule("op.maker", rule{"allow", "literal", "all", "topic", "op.large"})
	wants(t, a.as(token, "POST", "/v1/topics", object{"name": "op.large", "partitions": 60}), 201, "")
	made := a.ofTopic("create-partitions", "op.large")
	require.Equal(t, "done", made["state"])
	require.Equal(t, "op.maker", made["principal"])
	require.Equal(t, object{"done": made["progress"].(object)["total"], "total": made["progress"].(object)["total"], "unit": "partitions"}, made["progress"])
	require.EqualValues(t, 60, number(t, made["progress"].(object)["total"]))
	require.NotNil(t, made["ended_at"])
	require.Nil(t, made["eta_ms"])
	require.Nil(t, made["error"])
	require.Empty(t, made["actions"])
	x := wants(t, a.get("/v1/operations/"+made["id"].(string)), 200, "")
	require.Equal(t, `"`+made["etag"].(string)+`"`, x.Header.Get("ETag"))
	require.Equal(t, made, decoded(t, x, 200))
	wants(t, a.do("DELETE", "/v1/operations/"+made["id"].(string), nil, headers{"If-Match": `"x"`}), 412, "etag-mismatch")

	wants(t, a.as(token, "PATCH", "/v1/topics/op.large", object{"partitions": 120}), 200, "")
	grown := a.ofTopic("create-partitions", "op.large")
	require.NotEqual(t, made["id"], grown["id"])
	require.EqualValues(t, 60, number(t, grown["progress"].(object)["total"]), "those that are new")
	wants(t, a.as(token, "DELETE", "/v1/topics/op.large", nil), 204, "")
	gone := a.ofTopic("delete-partitions", "op.large")
	for gone["state"] == "running" { // the answer does not wait for the files
		gone = a.ofTopic("delete-partitions", "op.large")
	}
	require.Equal(t, []any{"done", "op.maker"}, []any{gone["state"], gone["principal"]})
	require.EqualValues(t, 120, number(t, gone["progress"].(object)["total"]))

	wants(t, a.post("/v1/topics", object{"name": "op.large", "partitions": 70, "config": object{"min.insync.replicas": 2}}), 422, "invalid-argument")
	failed := a.ofTopic("create-partitions", "op.large")
	require.Equal(t, "failed", failed["state"], "a refused creation has failed")
	require.Equal(t, "invalid-argument", failed["error"].(object)["code"])
}

func TestOperationsAreListedByState(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for range 2 {
		a.topic("op.small", 1, nil)
		wants(t, a.post("/v1/topics/delete", object{"names": []string{"op.small"}}), 200, "")
	}
	for _, o := range a.operations(a.admin, "state=done") {
		require.Equal(t, "done", o["state"])
		require.NotEqual(t, "op.small", o["resource"].(object)["name"], "what takes a moment is none")
	}
	wants(t, a.get("/v1/operations?state=lost"), 422, "invalid-argument")
	wants(t, a.get("/v1/operations?sort=eta_ms"), 422, "invalid-argument")
	a.topic("op.first", 60, nil)
	a.topic("op.second", 60, nil)
	ids, next := a.names("/v1/operations?limit=1&sort=-id", "id")
	require.Len(t, ids, 1)
	require.NotEmpty(t, next)
}

func TestOperationsOutliveARestart(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	a.topic("kept", 60, nil)
	before := a.ofTopic("create-partitions", "kept")
	a.Restart()
	a.admin = a.Admin()
	require.Equal(t, before, a.ofTopic("create-partitions", "kept"))
	opened := a.operations(a.admin, "state=done")[0]
	require.Equal(t, "open-partitions", opened["kind"])
	require.EqualValues(t, 61, number(t, opened["progress"].(object)["done"]), "with the audit's")
	require.Equal(t, object{"type": "broker", "name": "1", "partition": nil}, opened["resource"])
	require.Nil(t, opened["principal"])
}

// TestCancelledDeletionsLeaveTheRest cancels a long deletion by its operation.
func TestCancelledDeletionsLeaveTheRest(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	names := make([]string, 400)
	for i := range names {
		names[i] = fmt.Sprintf("cancel.%03d", i)
		a.topic(names[i], 1, nil)
	}
	answered := make(chan *answer, 1)
	go func() {
		x := a.Do(request{Method: http.MethodPost, Path: "/v1/topics/delete", Token: a.admin, Body: object{"names": names}})
		answered <- x
	}()
	var op object
	require.Eventually(t, func() bool {
		running := a.operations(a.admin, "state=running")
		if len(running) > 0 {
			op = running[0]
		}
		return op != nil || len(answered) > 0
	}, 10e9, 1e6)
	require.NotNil(t, op, "the deletion was seen while it ran")
	require.Equal(t, []any{"cancel"}, op["actions"])
	x := a.remove("/v1/operations/" + op["id"].(string))
	all := decoded(t, <-answered, 200)["results"].([]any)
	left := 0
	for _, r := range all {
		p, failed := r.(object)["problem"].(object)
		want := 404
		if failed {
			left++
			want = 200
			require.Equal(t, []any{"conflict", "not-applied"}, []any{p["code"], p["outcome"]})
		}
		wants(t, a.get("/v1/topics/"+r.(object)["name"].(string)), want, "")
	}
	if x.Status == 409 && left == 0 { // all were gone before it came
		t.Skip("this machine was too fast to be cancelled")
	}
	wants(t, x, 204, "")
	require.Positive(t, left)
	after := decoded(t, a.get("/v1/operations/"+op["id"].(string)), 200)
	require.Equal(t, []any{"cancelled", nil}, []any{after["state"], after["error"]})
	wants(t, a.remove("/v1/operations/"+op["id"].(string)), 409, "conflict")
}
