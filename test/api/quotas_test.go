package api

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"tidewire/internal/testkit/nodekit"
	"tidewire/storage/record"
)

// quota sets limits, 0 for none.
func (a *api) quota(user string, produce, fetch, requests int) *answer {
	a.t.Helper()
	in := object{}
	for name, n := range map[string]int{"produce_bytes_per_s": produce, "fetch_bytes_per_s": fetch, "requests_per_s": requests} {
		if n != 0 {
			in[name] = n
		}
	}
	x := a.as(a.admin, "PUT", "/v1/quotas/"+user, in)
	require.Contains(a.t, []int{200, 201}, x.Status, "%s", x.Body)
	return x
}

// worker makes a user who may do everything with topics of the name's prefix.
func (a *api) worker(name string) (token string) {
	a.t.Helper()
	token = a.login2(name)
	a.rule(name, rule{"allow", "prefixed", "all", "topic", name})
	return token
}

func TestQuotasAreResources(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	a.user("q.alice")
	path := "/v1/quotas/q.alice"
	wants(t, a.get(path), 404, "not-found")
	wants(t, a.remove(path), 404, "not-found")
	put := func(body any, match string) *answer {
		return a.Do(request{Method: "PUT", Path: path, Token: a.admin, Body: body, Header: map[string]string{"If-Match": match}})
	}
	wants(t, put(object{"requests_per_s": 9}, `"1"`), 412, "etag-mismatch")
	x := wants(t, put(object{"produce_bytes_per_s": 1000, "requests_per_s": nil}, ""), 201, "")
	require.Equal(t, path, x.Header.Get("Location"))
	made := decoded(t, x, 201)
	require.Equal(t, object{
		"username": "q.alice", "produce_bytes_per_s": num(1000), "fetch_bytes_per_s": nil, "requests_per_s": nil,
		"effective": made["effective"], "actions": []any{"alter", "delete"}, "etag": made["etag"],
	}, made)
	require.Equal(t, num(1000), made["effective"].(object)["produce_bytes_per_s"])
	require.Equal(t, `"`+made["etag"].(string)+`"`, x.Header.Get("ETag"))

	same := wants(t, put(object{"produce_bytes_per_s": 1000}, x.Header.Get("ETag")), 200, "")
	require.Equal(t, x.Header.Get("ETag"), same.Header.Get("ETag"), "nothing has changed")
	y := decoded(t, put(object{"fetch_bytes_per_s": 5, "requests_per_s": int64(1)<<53 - 1}, x.Header.Get("ETag")), 200)
	require.Nil(t, y["produce_bytes_per_s"], "PUT replaces the whole")
	require.Equal(t, num(1<<53-1), y["requests_per_s"])
	wants(t, put(object{"fetch_bytes_per_s": 6}, x.Header.Get("ETag")), 412, "etag-mismatch")
	require.Equal(t, y, decoded(t, a.get(path), 200))

	names, _ := a.names("/v1/quotas?prefix=q.alice", "username")
	require.Equal(t, []string{"q.alice"}, names)
	wants(t, a.Do(request{Method: "DELETE", Path: path, Token: a.admin, Header: map[string]string{"If-Match": x.Header.Get("ETag")}}), 412, "etag-mismatch")
	wants(t, a.remove(path), 204, "")
	wants(t, a.get(path), 404, "not-found")
	wants(t, a.as(a.admin, "PUT", "/v1/quotas/q.nobody", object{"requests_per_s": 1}), 404, "unknown-user")
	wants(t, a.get("/v1/quotas/q.nobody"), 404, "unknown-user")
	wants(t, a.remove("/v1/quotas/q.nobody"), 404, "unknown-user")
}

func TestQuotasArePagedLikeOtherLists(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	want := []string{}
	for i := range 5 {
		name := fmt.Sprint("qpage.", i)
		a.user(name)
		a.quota(name, 0, 0, 1000)
		want = append(want, name)
	}
	seen, token := []string{}, ""
	for range 3 {
		path := "/v1/quotas?prefix=qpage.&limit=2"
		if token != "" {
			path += "&page_token=" + token
		}
		names, next := a.names(path, "username")
		seen, token = append(seen, names...), next
	}
	require.Empty(t, token)
	require.Equal(t, want, seen)
	down, _ := a.names("/v1/quotas?prefix=qpage.&sort=-username&limit=1", "username")
	require.Equal(t, want[4:], down)
	one := decoded(t, a.get("/v1/quotas?q=QPAGE.3&fields=username,requests_per_s"), 200)
	require.Equal(t, []any{object{"username": "qpage.3", "requests_per_s": num(1000)}}, one["items"])
}

func TestBadQuotasAreRefused(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	a.user("q.bad")
	for name, c := range map[string]struct {
		body    any
		status  int
		pointer string
	}{
		"nothing":        {object{}, 422, ""},
		"only nulls":     {object{"requests_per_s": nil}, 422, ""},
		"zero":           {object{"requests_per_s": 0}, 422, "/requests_per_s"},
		"negative":       {object{"fetch_bytes_per_s": -1}, 422, "/fetch_bytes_per_s"},
		"a fraction":     {object{"produce_bytes_per_s": 1.5}, 422, "/produce_bytes_per_s"},
		"a string":       {object{"produce_bytes_per_s": "1"}, 422, "/produce_bytes_per_s"},
		"beyond 2^53":    {object{"produce_bytes_per_s": int64(1) << 53}, 422, "/produce_bytes_per_s"},
		"beyond 2^64":    {`{"produce_bytes_per_s":1e30}`, 422, "/produce_bytes_per_s"},
		"unknown member": {object{"requests_per_s": 1, "burst": 1}, 422, "/burst"},
		"cut":            {`{"requests_per_s":`, 400, ""},
		"empty":          {"", 400, ""},
	} {
		x := wants(t, a.as(a.admin, "PUT", "/v1/quotas/q.bad", c.body), c.status, "")
		if c.pointer != "" {
			require.Equal(t, []string{c.pointer}, pointers(t, x), name)
		}
	}
	wants(t, a.get("/v1/quotas/q.bad"), 404, "not-found")
	wants(t, a.get("/v1/quotas?limit=0"), 422, "invalid-argument")
	wants(t, a.get("/v1/quotas?who=me"), 422, "invalid-argument")
}

// TestTheDefaultQuotaHoldsForUsersWithoutTheirOwn and each limit is looked up by itself.
func TestTheDefaultQuotaHoldsForUsersWithoutTheirOwn(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	a.user("own")
	x := a.quota("*", 0, 0, 2)
	require.Equal(t, "/v1/quotas/%2A", strings.ReplaceAll(x.Header.Get("Location"), "*", "%2A"))
	a.quota("admin", 0, 0, 1_000_000)
	own := decoded(t, a.quota("own", 500, 0, 0), 201)
	require.Equal(t, object{"produce_bytes_per_s": num(500), "fetch_bytes_per_s": nil, "requests_per_s": num(2)}, own["effective"])
	token := a.login("own")
	limited := false
	for range 50 { // two a second at most, however fast the machine
		limited = limited || a.as(token, "GET", "/v1/auth/me", nil).Status == 429
	}
	require.True(t, limited)
	wants(t, a.remove("/v1/quotas/%2A"), 204, "")
	for range 20 {
		wants(t, a.as(token, "GET", "/v1/auth/me", nil), 200, "")
	}
}

func TestAUsersQuotaGoesWithTheUser(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	a.user("q.gone")
	a.quota("q.gone", 1, 0, 0)
	plan := decoded(t, a.remove("/v1/users/q.gone?dry_run=true"), 200)
	require.Equal(t, true, plan["quota"])
	wants(t, a.remove("/v1/users/q.gone"), 204, "")
	wants(t, a.get("/v1/quotas/q.gone"), 404, "unknown-user")
	a.user("q.gone")
	wants(t, a.get("/v1/quotas/q.gone"), 404, "not-found")
}

func TestQuotasOutliveARestart(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	a.user("kept")
	want := decoded(t, a.quota("kept", 7, 8, 9), 201)
	a.Restart()
	a.admin = a.Admin()
	require.Equal(t, want, decoded(t, a.get("/v1/quotas/kept"), 200))
	token := a.worker("kept2")
	path := a.topic("kept2", 1, nil)
	a.quota("kept2", 10, 0, 0)
	a.Restart()
	wants(t, a.as(token, "POST", path+"/records", object{"records": []object{{"value": strings.Repeat("x", 1000)}}}), 200, "")
	wants(t, a.as(token, "POST", path+"/records", object{"records": []object{{"value": "x"}}}), 429, "rate-limited")
}

var (
	policyForm = regexp.MustCompile(`^"[a-z-]+";q=\d+;w=1;qu="(requests|content-bytes)"$`)
	stateForm  = regexp.MustCompile(`^"[a-z-]+";r=\d+;t=[1-9]\d*$`)
)

// refusedByQuota checks the answer of a call that a quota refused.
func refusedByQuota(t *testing.T, x *answer, name string) {
	t.Helper()
	wants(t, x, 429, "rate-limited")
	var p object
	x.JSON(t, &p)
	require.Equal(t, name, p["quota"])
	require.Equal(t, true, p["retryable"])
	require.Regexp(t, `^[1-9]\d*$`, x.Header.Get("Retry-After"))
	require.Regexp(t, policyForm, x.Header.Get("RateLimit-Policy"))
	require.Regexp(t, stateForm, x.Header.Get("RateLimit"))
}

// clockedAPI is a node whose clock stands until the test moves it: buckets fill by nothing
// else.
func clockedAPI(t *testing.T) (a *api, forward func(time.Duration)) {
	t.Helper()
	at := make(chan time.Time, 1)
	at <- time.Now()
	now := func() time.Time {
		x := <-at
		at <- x
		return x
	}
	n := nodekit.StartWith(t, nodekit.Options{Now: now})
	return newAPI(t, n, ""), func(d time.Duration) { at <- (<-at).Add(d) }
}

func TestAProduceQuotaRefusesEveryContentTypeBeforeAnythingIsApplied(t *testing.T) {
	t.Parallel()
	a, forward := clockedAPI(t)
	token := a.worker("writer")
	path := a.topic("writer", 1, nil)
	a.quota("writer", 100, 0, 0)
	send := func(mediaType string, body any) *answer {
		return a.Do(request{Method: "POST", Path: path + "/partitions/0/records", Token: token, Body: body, Header: map[string]string{"Content-Type": mediaType}})
	}
	bodies := map[string]any{
		"application/json": `{"records":[{"value":"` + strings.Repeat("x", 150) + `"}]}`, "text/plain": strings.Repeat("y", 150),
		"application/vnd.kafka.record-batches": batch(t, record.None, strings.Repeat("z", 100)),
	}
	for mediaType, body := range bodies {
		before := a.logEnd(path, 0)
		wants(t, send(mediaType, body), 200, "")
		for other, more := range bodies {
			refusedByQuota(t, send(other, more), "produce_bytes_per_s")
		}
		require.Equal(t, before+1, a.logEnd(path, 0), "what was refused was not applied")
		forward(time.Minute)
	}
	wants(t, send("text/plain", strings.Repeat("y", 350)), 200, "")
	x := send("text/plain", "y")
	refusedByQuota(t, x, "produce_bytes_per_s")
	require.Equal(t, "3", x.Header.Get("Retry-After"))
	require.Equal(t, `"produce-bytes";q=100;w=1;qu="content-bytes"`, x.Header.Get("RateLimit-Policy"))
	require.Equal(t, `"produce-bytes";r=0;t=3`, x.Header.Get("RateLimit"))
	forward(3 * time.Second)
	wants(t, send("text/plain", "y"), 200, "")
	wants(t, a.as(a.admin, "POST", path+"/records", object{"records": []object{{"value": strings.Repeat("x", 1000)}}}), 200, "")
	wants(t, a.as(a.admin, "POST", path+"/records", object{"records": []object{{"value": "others are not limited"}}}), 200, "")
}

func TestAFetchQuotaRefusesEveryFormOfAnswer(t *testing.T) {
	t.Parallel()
	a, forward := clockedAPI(t)
	token := a.worker("reader")
	path := a.topic("reader", 1, nil)
	a.records(path, object{"value": strings.Repeat("x", 300)})
	a.quota("reader", 0, 100, 0)
	one := path + "/partitions/0/records"
	gets := []struct{ accept, path string }{
		{"application/json", one + "?offset=0"}, {"application/x-ndjson", one + "?offset=0"},
		{"application/vnd.kafka.record-batches", one + "?offset=0"}, {"application/json", one + "/0"},
		{"application/octet-stream", one + "/0"}, {"application/json", path + "/records"},
	}
	get := func(accept, path string) *answer {
		return a.Do(request{Method: "GET", Path: path, Token: token, Header: map[string]string{"Accept": accept}})
	}
	for _, g := range gets {
		wants(t, get(g.accept, g.path), 200, "")
		for _, other := range gets {
			refusedByQuota(t, get(other.accept, other.path), "fetch_bytes_per_s")
		}
		wants(t, a.as(token, "GET", path, nil), 200, "") // what reads no records is not meant
		forward(time.Minute)
	}
}

func TestARequestQuotaCountsEveryCall(t *testing.T) {
	t.Parallel()
	a, forward := clockedAPI(t)
	token := a.worker("caller")
	a.quota("caller", 0, 0, 3)
	wants(t, a.as(token, "GET", "/v1/auth/me", nil), 200, "")
	wants(t, a.as(token, "HEAD", "/v1/topics", nil), 200, "")
	wants(t, a.as(token, "POST", "/v1/topics/not-there/records", object{"records": []object{}}), 422, "")
	refusedByQuota(t, a.as(token, "GET", "/v1/auth/me", nil), "requests_per_s")
	refusedByQuota(t, a.as(token, "GET", "/v1/users", nil), "requests_per_s") // 429 before 403
	refusedByQuota(t, a.as(token, "POST", "/v1/topics/not-there/records", object{"records": []object{}}), "requests_per_s")
	h := http.Header{"Authorization": {"Bearer " + token}}
	_, res, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(a.URL, "http")+"/v1/ws/consume", h)
	require.Error(t, err)
	require.Equal(t, 429, res.StatusCode)
	wants(t, a.as("garbage", "GET", "/v1/auth/me", nil), 401, "") // 401 before 429
	wants(t, a.get("/healthz"), 200, "")
	forward(time.Second)
	wants(t, a.as(token, "GET", "/v1/auth/me", nil), 200, "")
}

// metric reads a metric of the node.
func (a *api) metric(series string) float64 {
	a.t.Helper()
	for line := range strings.Lines(string(wants(a.t, a.get("/metrics"), 200, "").Body)) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			var n float64
			_, err := fmt.Sscan(rest, &n)
			require.NoError(a.t, err)
			return n
		}
	}
	a.t.Fatalf("there is no metric %s", series)
	return 0
}

func TestRefusalsByQuotaAreCounted(t *testing.T) {
	t.Parallel()
	a, _ := clockedAPI(t)
	token := a.worker("counted")
	a.quota("counted", 0, 0, 1)
	wants(t, a.as(token, "GET", "/v1/auth/me", nil), 200, "")
	for range 3 {
		wants(t, a.as(token, "GET", "/v1/auth/me", nil), 429, "")
	}
	require.EqualValues(t, 3, a.metric(`tidewire_quota_refused_total{quota="requests_per_s"}`))
	require.EqualValues(t, 0, a.metric(`tidewire_quota_refused_total{quota="fetch_bytes_per_s"}`))
	require.EqualValues(t, 1, a.metric(`tidewire_quota_users`))
}

// Streams are slowed and lose nothing. The quota lets the first part pass at once and makes
// the rest wait.
func TestQuotasSlowStreamsInsteadOfRefusingThem(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	token := a.worker("slow")
	path := a.topic("slow", 1, nil)
	const n, size, rate = 40, 10_000, 300_000 // 400 kB at 300 kB a second
	value := strings.Repeat("v", size)
	a.quota("slow", rate, rate, 1000)
	slowed := func(kind string) float64 { return a.metric(`tidewire_quota_slowed_total{quota="` + kind + `"}`) }

	t.Run("lines written", func(t *testing.T) {
		a := a.with(t)
		lines := decodeLines(t, wants(t, a.Do(request{Method: "POST", Path: path + "/records", Token: token,
			Body: strings.Repeat(`{"value":"`+value+"\"}\n", 2*n), Header: map[string]string{"Content-Type": "application/x-ndjson"}}), 200, "").Body)
		records, failed := counts(t, summed(t, lines))
		require.EqualValues(t, 2*n, records)
		require.Zero(t, failed)
		require.Positive(t, slowed("produce_bytes_per_s"))
	})
	t.Run("frames written", func(t *testing.T) {
		a := a.with(t)
		before := slowed("produce_bytes_per_s")
		h := http.Header{"Authorization": {"Bearer " + token}}
		conn, _, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(a.URL, "http")+"/v1/ws/produce", h)
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		for i := range n {
			require.NoError(t, conn.WriteJSON(object{"op": "produce", "id": i, "topic": "slow", "records": []object{{"value": value}}}))
		}
		for i := range n {
			var f struct {
				Op string `json:"op"`
				ID int    `json:"id"`
			}
			require.NoError(t, conn.ReadJSON(&f))
			require.Equal(t, "produced", f.Op)
			require.Equal(t, i, f.ID)
		}
		require.Greater(t, slowed("produce_bytes_per_s"), before)
	})
	const stored = 3 * n
	for _, media := range []string{"application/x-ndjson", "text/event-stream", "text/csv"} {
		t.Run("read as "+media, func(t *testing.T) {
			a := a.with(t)
			before := slowed("fetch_bytes_per_s")
			x := wants(t, a.Do(request{Method: "GET", Path: path + "/records", Token: token, Header: map[string]string{"Accept": media}}), 200, "")
			require.Equal(t, stored, strings.Count(string(x.Body), value))
			require.Greater(t, slowed("fetch_bytes_per_s"), before)
		})
	}
	t.Run("read by a socket", func(t *testing.T) {
		a := a.with(t)
		before := slowed("fetch_bytes_per_s")
		h := http.Header{"Authorization": {"Bearer " + token}}
		conn, _, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(a.URL, "http")+"/v1/ws/consume?topics=slow&from=earliest", h)
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		for got := 0; got < stored; {
			var f struct {
				Op      string   `json:"op"`
				Records []object `json:"records"`
			}
			require.NoError(t, conn.ReadJSON(&f))
			require.NotEqual(t, "error", f.Op)
			got += len(f.Records)
		}
		require.Greater(t, slowed("fetch_bytes_per_s"), before)
	})
}
