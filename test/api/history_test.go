package api

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// series are the points of a series by their time, without gaps.
func (a *api) series(query string) map[string]map[int64]any {
	a.t.Helper()
	out := map[string]map[int64]any{}
	for _, it := range decoded(a.t, a.get("/v1/metrics/history?"+query), 200)["series"].([]any) {
		s := it.(object)
		points := map[int64]any{}
		last := int64(-1)
		for _, p := range s["points"].([]any) {
			at := number(a.t, p.([]any)[0])
			require.Zero(a.t, at%number(a.t, s["step_ms"]))
			require.Greater(a.t, at, last)
			if last = at; p.([]any)[1] != nil {
				points[at] = p.([]any)[1]
			}
		}
		out[s["name"].(string)] = points
	}
	return out
}

func TestTheHistoryOfMetricsIsKeptOverARestart(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	path := a.topic("measured", 1, nil)
	a.records(path, object{"value": "v"})
	const query = "series=requests_per_s,memory_bytes,disk_free_bytes,disk_used_bytes,log_size_bytes,partitions,connections,produce_latency_p50_ms"
	var first map[string]map[int64]any
	require.Eventually(t, func() bool { // a slot of ten seconds has to end
		first = a.series(query)
		return len(first["produce_latency_p50_ms"]) > 0
	}, 40*time.Second, 200*time.Millisecond)
	for name, points := range first {
		require.NotEmpty(t, points, name)
	}
	for at := range first["partitions"] {
		require.Contains(t, []string{"1", "1.5", "2"}, fmt.Sprint(first["partitions"][at]), "the audit has one too, from some time on")
	}
	list := decoded(t, a.get("/v1/metrics/history?"+query), 200)["series"].([]any)[0].(object)
	require.InDelta(t, 360, len(list["points"].([]any)), 1, "an hour; what was not measured is there as null")
	a.Restart()
	a.admin = a.Admin()
	second := a.series(query)
	for name, points := range first {
		for at, v := range points {
			require.Equal(t, v, second[name][at], name)
		}
	}
	// Nothing of a topic's minute needs to have ended; its series is there all the same.
	require.Contains(t, a.series("series=topics/measured/bytes_in_per_s"), "topics/measured/bytes_in_per_s")

	a.Stop()
	file := filepath.Join(a.Dir, "metrics-history")
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	b[len(b)/2] ^= 1
	require.NoError(t, os.WriteFile(file, b, 0o600))
	a.Resume()
	a.admin = a.Admin()
	require.Contains(t, a.Log.String(), "the history of metrics is damaged and is dropped")
	wants(t, a.get("/v1/metrics/history?"+query), 200, "")
}

func TestSeriesAreListedWithWhatTheyMean(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	nobody := a.login2("history.lists")
	all := decoded(t, a.as(nobody, "GET", "/v1/metrics/history", nil), 200)["series"].([]any)
	names := []string{}
	for _, it := range all {
		s := it.(object)
		names = append(names, s["name"].(string))
		require.NotEmpty(t, s["doc"])
		require.Empty(t, s["points"])
		want := int64(10_000)
		if strings.HasPrefix(s["name"].(string), "topics/{topic}/") {
			want = 60_000
		}
		require.Equal(t, want, number(t, s["step_ms"]))
	}
	require.Subset(t, names, []string{"bytes_in_per_s", "records_out_per_s", "server_errors_per_s", "request_latency_p99_ms", "disk_free_bytes", "topics/{topic}/size_bytes"})
}

func TestTheHistoryIsForThoseWhoMayDescribe(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	a.topic("history.mine", 1, nil)
	a.topic("history.other", 1, nil)
	token := a.login2("history.user")
	a.rule("history.user", rule{"allow", "literal", "describe", "topic", "history.mine"})
	for query, status := range map[string]int{
		"topics/history.mine/size_bytes":                                 200,
		"topics/history.other/size_bytes":                                403,
		"topics/history.none/size_bytes":                                 403,
		"topics/history.mine/size_bytes,requests_per_s":                  403,
		"topics/history.mine/size_bytes,topics/history.other/size_bytes": 403,
		"memory_bytes": 403,
	} {
		wants(t, a.as(token, "GET", "/v1/metrics/history?series="+query, nil), status, "")
	}
	wants(t, a.get("/v1/metrics/history?series=topics/history.none/size_bytes"), 404, "unknown-topic")
}

func TestTheHistoryRefusesBadInput(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	nobody := a.login2("history.nobody")
	many := []string{}
	for i := range 51 {
		many = append(many, fmt.Sprintf("topics/t%d/size_bytes", i))
	}
	for query, pointer := range map[string]string{
		"series=":                                               "query:series",
		"series=none":                                           "query:series",
		"series=memory_bytes,":                                  "query:series",
		"series=memory_bytes,memory_bytes":                      "query:series",
		"series=topics/a%20b/size_bytes":                        "query:series",
		"series=topics/a/b/size_bytes":                          "query:series",
		"series=" + url.QueryEscape(strings.Join(many, ",")):    "query:series",
		"series=memory_bytes&from=x":                            "query:from",
		"series=memory_bytes&from=-1":                           "query:from",
		"series=memory_bytes&from=20000&to=10000":               "query:from",
		"series=memory_bytes&to=1e6":                            "query:to",
		"series=memory_bytes&step_ms=0":                         "query:step_ms",
		"series=memory_bytes&step_ms=15000":                     "query:step_ms",
		"series=memory_bytes,topics/t/size_bytes&step_ms=10000": "query:step_ms",
		"series=memory_bytes&from=0&step_ms=10000":              "query:step_ms",
		"series=memory_bytes&step=10000":                        "query:step",
		"from=2&to=1":                                           "query:from",
	} {
		x := wants(t, a.as(nobody, "GET", "/v1/metrics/history?"+query, nil), 422, "invalid-argument")
		require.Equal(t, []string{pointer}, pointers(t, x), query)
	}
	empty := decoded(t, a.get("/v1/metrics/history?series=memory_bytes&from=5&to=5"), 200)["series"].([]any)[0].(object)
	require.Empty(t, empty["points"])
	ages := decoded(t, a.get("/v1/metrics/history?series=memory_bytes&from=0"), 200)["series"].([]any)[0].(object)
	require.LessOrEqual(t, len(ages["points"].([]any)), 501, "the step is chosen")
}
