package api

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// page reads records of partition 0 with a query.
func (a *api) page(path, query string) (values []string, page object) {
	a.t.Helper()
	page = decoded(a.t, a.get(path+"/partitions/0/records?"+query), 200)
	values = []string{}
	for _, r := range page["records"].([]any) {
		values = append(values, fmt.Sprint(r.(object)["value"]))
	}
	return values, page
}

// timed has records at offsets 0 to 5 whose times go up and down.
func (a *api) timed(name string) string {
	path := a.topic(name, 1, object{"retention.ms": -1})
	for i, ts := range []int{1000, 3000, 2000, 5000, 4000, 5000} {
		a.records(path, object{"value": fmt.Sprint(i), "timestamp": ts})
	}
	return path
}

func TestAFetchBeginsWhereItIsTold(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.timed("fetch.where")
	for query, want := range map[string]string{
		"offset=earliest": "012345", "offset=0": "012345", "offset=4": "45", "offset=6": "", "offset=latest": "",
		"offset=latest&isolation=read_uncommitted": "", "offset=0&isolation=read_committed": "012345",
		"timestamp=0": "012345", "timestamp=1001": "12345", "timestamp=3000": "12345", "timestamp=3001": "345", "timestamp=5000": "345",
		"timestamp=5001": "", "timestamp=9223372036854775807": "",
		"offset=0&max_records=2": "01", "offset=1&max_records=1": "1", "offset=0&max_records=10000": "012345",
		"offset=0&max_bytes=1": "0", "offset=0&max_bytes=3": "012", "offset=2&max_bytes=67108864": "2345",
	} {
		values, page := a.page(path, query)
		require.Equal(t, want, strings.Join(values, ""), query)
		for member, want := range map[string]int64{"high_watermark": 6, "last_stable_offset": 6, "log_start_offset": 0} {
			require.Equal(t, want, number(t, page[member]), query)
		}
		next := int64(6)
		if want != "" {
			next = int64(want[len(want)-1]-'0') + 1
		}
		require.Equal(t, next, number(t, page["next_offset"]), query)
	}
	x := wants(t, a.get(path+"/partitions/0/records?offset=7"), 416, "offset-out-of-range")
	var p object
	x.JSON(t, &p)
	require.Equal(t, json.Number("0"), p["earliest"])
	require.Equal(t, json.Number("6"), p["latest"])
}

func TestTheFirstRecordAlwaysComesWhole(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("fetch.large", 1, nil)
	large := strings.Repeat("x", 500_000)
	a.records(path, object{"value": large}, object{"value": "small"})
	values, page := a.page(path, "offset=0&max_bytes=1")
	require.Equal(t, []string{large}, values)
	require.Equal(t, int64(1), number(t, page["next_offset"]))
	values, _ = a.page(path, "offset=0&max_bytes=500004") // key, value and header bytes count
	require.Len(t, values, 1)
	values, _ = a.page(path, "offset=0&max_bytes=500005")
	require.Len(t, values, 2)
}

func TestOffsetsByTime(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.timed("offsets.time")
	for query, want := range map[string][2]any{
		"earliest": {"0", nil}, "latest": {"6", nil}, "0": {"0", "1000"}, "1001": {"1", "3000"}, "3001": {"3", "5000"}, "5001": {nil, nil},
	} {
		got := decoded(t, a.get(path+"/offsets?timestamp="+query), 200)["offsets"].([]any)
		require.Len(t, got, 1)
		for i, member := range []string{"offset", "timestamp"} {
			if want[i] == nil {
				require.Nil(t, got[0].(object)[member], "%s of %s", member, query)
			} else {
				require.Equal(t, json.Number(want[i].(string)), got[0].(object)[member], "%s of %s", member, query)
			}
		}
	}
}

func TestEncodings(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("fetch.encodings", 1, nil)
	wants(t, a.post(path+"/records", `{"records":[
		{"key":"k","value":{"a":1},"headers":{"h":[1]}},
		{"key":null,"value":null},
		{"key":"/w==","key_encoding":"base64","value":"/w==","value_encoding":"base64","headers":[{"name":"h","value":null}]},
		{"key":"{}","value":"1"}]}`), 200, "")
	for _, c := range []struct {
		query string
		want  []string // key and value of each record, with their encodings
	}{
		{"", []string{`"k" text {"a":1} json`, `null  null `, `"/w==" base64 "/w==" base64`, `"{}" text "1" text`}},
		{"&encoding=text", []string{`"k" text "{\"a\":1}" text`, `null  null `, `"/w==" base64 "/w==" base64`, `"{}" text "1" text`}},
		{"&encoding=base64", []string{`"k" text "eyJhIjoxfQ==" base64`, `null  null `, `"/w==" base64 "/w==" base64`, `"{}" text "MQ==" base64`}},
		{"&encoding=json&key_encoding=base64", []string{`"aw==" base64 {"a":1} json`, `null  null `, `"/w==" base64 "/w==" base64`, `"e30=" base64 1 json`}},
	} {
		var page struct {
			Records []struct {
				Key           json.RawMessage `json:"key"`
				KeyEncoding   string          `json:"key_encoding"`
				Value         json.RawMessage `json:"value"`
				ValueEncoding string          `json:"value_encoding"`
			} `json:"records"`
		}
		wants(t, a.get(path+"/partitions/0/records?offset=0"+c.query), 200, "").JSON(t, &page)
		got := []string{}
		for _, r := range page.Records {
			got = append(got, strings.Join([]string{string(r.Key), r.KeyEncoding, string(r.Value), r.ValueEncoding}, " "))
		}
		require.Equal(t, c.want, got, c.query)
	}
	_, page := a.page(path, "offset=0&header_encoding=base64")
	require.Equal(t, []any{object{"name": "h", "value": "WzFd", "encoding": "base64"}}, page["records"].([]any)[0].(object)["headers"])
}

// poll starts a long poll; the channel gets its answer. What follows the poll happens
// after it or before, which must make no difference to the answer.
func (a *api) poll(token, target string) <-chan *answer {
	out := make(chan *answer, 1)
	go func() {
		defer close(out) // a request that fails ends its goroutine, and must not hang the test
		out <- a.as(token, "GET", target, nil)
	}()
	for range 3 { // its connection was accepted before these
		wants(a.t, a.get("/healthz"), 200, "")
	}
	return out
}

func TestALongPollAnswersAsSoonAsThereIsEnough(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("poll.data", 1, nil)
	target := path + "/partitions/0/records?wait_ms=60000&offset="
	any := a.poll(a.admin, target+"0")
	enough := a.poll(a.admin, target+"0&min_bytes=20")
	full := a.poll(a.admin, target+"0&min_bytes=1000&max_records=3")
	a.records(path, object{"value": strings.Repeat("a", 10)})
	require.Len(t, decoded(t, <-any, 200)["records"], 1)
	a.records(path, object{"value": strings.Repeat("b", 10)})
	require.Len(t, decoded(t, <-enough, 200)["records"], 2)
	a.records(path, object{"value": "c"})
	require.Len(t, decoded(t, <-full, 200)["records"], 3)
	behind := a.poll(a.admin, target+"3")
	a.records(path, object{"value": "d"})
	got := decoded(t, <-behind, 200)
	require.Len(t, got["records"], 1)
	require.Equal(t, int64(4), number(t, got["next_offset"]))
}

func TestALongPollEndsWithItsTime(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("poll.time", 1, nil)
	values, page := a.page(path, "offset=0&wait_ms=50")
	require.Empty(t, values)
	require.Equal(t, int64(0), number(t, page["next_offset"]))
	a.records(path, object{"value": "x"})
	values, _ = a.page(path, "offset=0&wait_ms=50&min_bytes=1000")
	require.Equal(t, []string{"x"}, values, "with what is there")
}

func TestALongPollEndsWhenItsReasonIsGone(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("poll.ends", 1, nil)
	target := path + "/partitions/0/records?offset=0&wait_ms=60000"
	user := a.user("poll.user")
	may := rule{"allow", "literal", "read", "topic", "poll.ends"}
	a.rule("poll.user", may)

	token := a.login("poll.user")
	waiting := a.poll(token, target)
	wants(t, a.as(token, "POST", "/v1/auth/logout", nil), 204, "")
	wants(t, <-waiting, 401, "unauthenticated")

	token = a.login("poll.user")
	waiting = a.poll(token, target)
	wants(t, a.remove("/v1/acls?principal=User:poll.user"), 200, "")
	wants(t, <-waiting, 403, "forbidden")

	a.rule("poll.user", may)
	waiting = a.poll(token, target)
	wants(t, a.patch(user, object{"disabled": true}), 200, "")
	wants(t, <-waiting, 401, "unauthenticated")

	waiting = a.poll(a.admin, target)
	wants(t, a.remove(path), 204, "")
	wants(t, <-waiting, 404, "unknown-topic")
}

func TestALongPollAnswersWhatIsThereWhenTheNodeStops(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	path := a.topic("poll.stop", 1, nil)
	a.records(path, object{"value": "x"})
	waiting := a.poll(a.admin, path+"/partitions/0/records?offset=0&wait_ms=60000&min_bytes=1000")
	empty := a.poll(a.admin, path+"/partitions/0/records?offset=1&wait_ms=60000")
	for a.metric("tidewire_http_requests_in_progress") < 3 { // the two, and the one that asks
		continue // a request that has not begun is no long poll yet, and the stop refuses it
	}
	a.Stop()
	require.Len(t, decoded(t, <-waiting, 200)["records"], 1)
	require.Empty(t, decoded(t, <-empty, 200)["records"])
}

func TestARecreatedTopicIsAnotherOne(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("again.topic", 1, nil)
	a.records(path, object{"value": "old"})
	id := decoded(t, a.get(path), 200)["id"]
	wants(t, a.remove(path), 204, "")
	wants(t, a.get(path+"/partitions/0/records?offset=0"), 404, "unknown-topic")
	a.topic("again.topic", 1, nil)
	require.NotEqual(t, id, decoded(t, a.get(path), 200)["id"])
	require.Empty(t, a.fetched(path, 0))
	require.Equal(t, int64(0), number(t, a.records(path, object{"value": "new"})[0].(object)["offset"]))
}

func TestConfigChangesOnlyWhatTheyName(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("config.topic", 1, object{"retention.ms": 1000, "segment.bytes": "1048576", "preallocate": true, "min.cleanable.dirty.ratio": 0.25})
	setting := func(x *answer, name string) object {
		for _, it := range decoded(t, x, 200)["items"].([]any) {
			if it.(object)["name"] == name {
				return it.(object)
			}
		}
		t.Fatalf("no setting %s", name)
		return nil
	}
	x := a.get(path + "/config")
	for name, want := range map[string]string{
		"retention.ms": "1000", "segment.bytes": "1048576", "preallocate": "true", "min.cleanable.dirty.ratio": "0.25",
	} {
		require.Equal(t, want, setting(x, name)["value"], "values are strings")
		require.Equal(t, "topic", setting(x, name)["source"])
	}
	x = a.patch(path+"/config", object{"set": object{"retention.ms": 2000}, "unset": []string{"segment.bytes", "max.message.bytes"}})
	require.Equal(t, "2000", setting(x, "retention.ms")["value"])
	require.Equal(t, "default", setting(x, "segment.bytes")["source"])
	require.Equal(t, setting(x, "segment.bytes")["default"], setting(x, "segment.bytes")["value"])
	require.Equal(t, "true", setting(x, "preallocate")["value"])
	etag := x.Header.Get("ETag")
	for _, nothing := range []string{"{}", `{"set":{}}`, `{"unset":[]}`, `{"set":null,"unset":null}`, `{"set":{"retention.ms":"2000"}}`} {
		require.Equal(t, etag, wants(t, a.patch(path+"/config", nothing), 200, "").Header.Get("ETag"))
	}
	wants(t, a.patch(path+"/config", `{"set":{"retention.ms":3000,"segment.bytes":1}}`), 422, "invalid-argument")
	require.Equal(t, "2000", setting(a.get(path+"/config"), "retention.ms")["value"], "all or nothing")
	for _, it := range decoded(t, a.get(path+"/config"), 200)["items"].([]any) {
		require.NotEmpty(t, it.(object)["doc"])
	}
	wants(t, a.patch(path+"/config", `{"set":{"max.message.bytes":100}}`), 200, "")
	wants(t, a.post(path+"/records", object{"records": []object{{"value": strings.Repeat("x", 200)}}}), 413, "record-too-large")
}

func TestPartitionsOnlyGrow(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("grow.topic", 2, nil)
	a.records(path, object{"value": "x", "partition": 1})
	require.Len(t, decoded(t, a.patch(path, object{"partitions": 2}), 200)["partitions"], 2)
	require.Len(t, decoded(t, a.patch(path, object{"partitions": 5}), 200)["partitions"], 5)
	a.records(path, object{"value": "y", "partition": 4})
	require.Len(t, a.fetched(path, 1), 1)
	require.Len(t, a.fetched(path, 4), 1)
	for _, n := range []int{4, 1, 0, -1, math.MaxInt32} {
		wants(t, a.patch(path, object{"partitions": n}), 422, "invalid-argument")
	}
	require.Len(t, decoded(t, a.get(path), 200)["partitions"], 5)
}
