package api

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func jsonNumber(n int) json.Number { return json.Number(fmt.Sprint(n)) }

// groupNames are names that a path must carry whole.
var groupNames = []string{"a/b", "x#y", "p@q", "t:n", "ü", "%2F", "a b+c", "?", strings.Repeat("g", 255)}

func TestEveryGroupNameWorksThroughEveryRoute(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	topic := a.topic("g.names", 1, nil)
	a.records(topic, values("a")...)
	for _, name := range groupNames {
		path := "/v1/groups/" + url.PathEscape(name)
		m := a.reader(name, "g.names")
		m.owns(1)
		got := m.read("")
		require.Equal(t, []string{"a"}, texts(got), name)
		require.Equal(t, []string{"a"}, texts(decoded(t, a.post(m.path+"/poll", object{}), 200)))
		m.commitCursor(got)
		wants(t, a.post(m.path+"/seek", object{"positions": []object{at("g.names", 0, 0)}}), 200, "")
		wants(t, a.post(m.path+"/heartbeat", nil), 204, "")
		require.Equal(t, name, decoded(t, a.get(path), 200)["group"])
		page := decoded(t, a.get("/v1/groups?prefix="+url.QueryEscape(name)), 200)
		require.Equal(t, name, page["items"].([]any)[0].(object)["group"])
		m.leave()
		require.Equal(t, map[string]int64{"g.names/0": 1}, a.offsetsOf(name))
		wants(t, a.as(a.admin, "PUT", path+"/offsets", object{"offsets": []object{at("g.names", 0, 0)}}), 200, "")
		wants(t, a.post(path+"/reset-offsets", object{"to": "latest"}), 200, "")
		wants(t, a.remove(path+"/offsets?topic=g.names"), 204, "")
		wants(t, a.remove(path), 204, "")
		wants(t, a.get(path), 404, "unknown-group")
	}
	for _, bad := range []string{"%00", "a%0Ab", "%7F", "%ff", "%2E", "%2e%2E", strings.Repeat("x", 256)} {
		for _, rest := range []string{"", "/offsets", "/members/m/records"} {
			x := wants(t, a.get("/v1/groups/"+bad+rest), 422, "invalid-argument")
			require.Equal(t, []string{"path:group"}, pointers(t, x), bad)
		}
		wants(t, a.post("/v1/groups/"+bad+"/members", object{"topics": []string{"t"}}), 422, "invalid-argument")
	}
}

func TestAGroupTellsItsMembersOffsetsAndLag(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	topic := a.topic("g.tells", 2, nil)
	a.records(topic, object{"value": "old", "partition": 0, "timestamp": 1000}, object{"value": "b", "partition": 0}, object{"value": "c", "partition": 1})
	m := a.reader("g.tells", "g.tells", object{"client_id": "me", "instance_id": "i", "session_timeout_ms": 30000, "assignor": "sticky"})
	m.owns(2)
	wants(t, m.commit(object{"offsets": []object{at("g.tells", 1, 1)}}), 200, "")
	x := wants(t, a.get("/v1/groups/g.tells"), 200, "")
	g := decoded(t, x, 200)
	require.Equal(t, `"`+g["etag"].(string)+`"`, x.Header.Get("ETag"))
	require.Equal(t, []any{"g.tells", "stable", "consumer", "sticky", jsonNumber(1)}, []any{g["group"], g["state"], g["protocol"], g["assignor"], g["coordinator"]})
	require.Positive(t, number(t, g["epoch"]))
	require.ElementsMatch(t, []any{"read", "reset", "delete"}, g["actions"])
	one := g["members"].([]any)[0].(object)
	require.Equal(t, []any{m.id, "i", "me", "127.0.0.1", "admin", false}, []any{one["member_id"], one["instance_id"], one["client_id"], one["host"], one["user"], one["auto_commit"]})
	require.Equal(t, []any{"g.tells"}, one["topics"])
	require.Equal(t, []any{object{"topic": "g.tells", "partitions": []any{jsonNumber(0), jsonNumber(1)}}}, one["assignment"])
	require.EqualValues(t, 30000, number(t, one["session_timeout_ms"]))
	offsets := g["offsets"].([]any)
	require.Len(t, offsets, 2)
	first, second := offsets[0].(object), offsets[1].(object)
	require.Equal(t, []any{jsonNumber(0), jsonNumber(2), jsonNumber(2), m.id}, []any{first["next_offset"], first["high_watermark"], first["lag"], first["member_id"]})
	require.Greater(t, number(t, first["lag_ms"]), int64(365*24*time.Hour/time.Millisecond), "the age of the next unread record")
	require.Equal(t, []any{jsonNumber(1), jsonNumber(0), jsonNumber(0)}, []any{second["next_offset"], second["lag"], second["lag_ms"]})
	require.EqualValues(t, 2, number(t, g["total_lag"]))
	got := decoded(t, a.get("/v1/groups/g.tells/offsets"), 200)
	require.EqualValues(t, 2, number(t, got["total_lag"]))
	for i, o := range got["offsets"].([]any) {
		o, w := o.(object), offsets[i].(object)
		delete(o, "lag_ms") // it grows
		delete(w, "lag_ms")
		require.Equal(t, w, o)
	}
	m.leave()
	g = decoded(t, a.get("/v1/groups/g.tells"), 200)
	require.Equal(t, "empty", g["state"])
	require.Empty(t, g["members"])
	require.Nil(t, g["offsets"].([]any)[0].(object)["member_id"])
}

func TestGroupsAreListedByWhatTheCallerMayDescribe(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	topic := a.topic("g.list", 1, nil)
	a.topic("g.list.hidden", 1, nil)
	a.records(topic, values("a", "b", "c")...)
	for i, name := range []string{"g.list.a", "g.list.b", "g.list.C"} {
		list := []object{at("g.list", 0, int64(i))}
		if i == 1 {
			list = append(list, at("g.list.hidden", 0, 0))
		}
		wants(t, a.as(a.admin, "PUT", "/v1/groups/"+name+"/offsets", object{"offsets": list}), 200, "")
	}
	a.reader("g.list.b", "g.list")
	names, next := a.names("/v1/groups?prefix=g.list.&limit=2", "group")
	require.Equal(t, []string{"g.list.C", "g.list.a"}, names)
	names, next = a.names("/v1/groups?prefix=g.list.&limit=2&page_token="+next, "group")
	require.Equal(t, []string{"g.list.b"}, names)
	require.Empty(t, next)
	for sort, want := range map[string][]string{
		"-group": {"g.list.b", "g.list.a", "g.list.C"}, "name": {"g.list.C", "g.list.a", "g.list.b"}, "-members": {"g.list.b", "g.list.a", "g.list.C"},
		"total_lag": {"g.list.C", "g.list.b", "g.list.a"}, "state": {"g.list.C", "g.list.a", "g.list.b"},
	} {
		names, _ = a.names("/v1/groups?prefix=g.list.&sort="+sort, "group")
		require.Equal(t, want, names, sort)
	}
	names, _ = a.names("/v1/groups?q=LIST.c", "group")
	require.Equal(t, []string{"g.list.C"}, names)
	x := decoded(t, a.get("/v1/groups?prefix=g.list.b"), 200)["items"].([]any)[0].(object)
	require.Equal(t, []any{"g.list", "g.list.hidden"}, x["topics"])
	require.EqualValues(t, 1, number(t, x["members"]))
	require.Nil(t, x["error"])
	require.Equal(t, []any{object{"group": "g.list.b", "total_lag": jsonNumber(2)}}, decoded(t, a.get("/v1/groups?prefix=g.list.b&fields=group,total_lag"), 200)["items"])
	names, _ = a.names("/v1/topics/g.list.hidden/groups", "group")
	require.Equal(t, []string{"g.list.b"}, names, "from the topic's side")
	names, _ = a.names("/v1/topics/g.list/groups?sort=-group", "group")
	require.Equal(t, []string{"g.list.b", "g.list.a", "g.list.C"}, names)

	token := a.login2("g.list.user")
	page := decoded(t, a.as(token, "GET", "/v1/groups?prefix=g.list.", nil), 200)
	require.Empty(t, page["items"])
	require.EqualValues(t, 0, number(t, page["total"]))
	a.rule("g.list.user", rule{"allow", "literal", "describe", "group", "g.list.b"})
	a.rule("g.list.user", rule{"allow", "literal", "describe", "topic", "g.list"})
	page = decoded(t, a.as(token, "GET", "/v1/groups", nil), 200)
	require.EqualValues(t, 1, number(t, page["total"]))
	row := page["items"].([]any)[0].(object)
	require.Equal(t, []any{"g.list"}, row["topics"], "and of topics what they may describe")
	require.Empty(t, row["actions"])
	g := decoded(t, a.as(token, "GET", "/v1/groups/g.list.b", nil), 200)
	require.Len(t, g["offsets"], 1)
	require.Len(t, decoded(t, a.as(token, "GET", "/v1/groups/g.list.b/offsets", nil), 200)["offsets"], 1)
	require.EqualValues(t, 1, number(t, decoded(t, a.as(token, "GET", "/v1/topics/g.list/groups", nil), 200)["total"]))
	wants(t, a.as(token, "GET", "/v1/topics/g.list.hidden/groups", nil), 403, "forbidden")
	check(t, a, map[string]refused{
		"limit":      {"GET", "/v1/groups?limit=1001", nil, 422, "invalid-argument", "query:limit"},
		"sort":       {"GET", "/v1/groups?sort=size_bytes", nil, 422, "invalid-argument", "query:sort"},
		"fields":     {"GET", "/v1/groups?fields=name", nil, 422, "invalid-argument", "query:fields"},
		"page_token": {"GET", "/v1/topics/g.list/groups?page_token=x", nil, 422, "invalid-argument", "query:page_token"},
		"no topic":   {"GET", "/v1/topics/g.none/groups", nil, 404, "unknown-topic", ""},
	})
}

func TestTopicsThatMayNotBeReadAreRefusedToUsersOfAGroup(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	a.topic("g.topic", 1, nil)
	token := a.login2("g.topic.user")
	a.rule("g.topic.user", rule{"allow", "literal", "all", "group", "g.topic"})
	for what, x := range map[string]*answer{
		"join":   a.as(token, "POST", "/v1/groups/g.topic/members", object{"topics": []string{"g.topic"}}),
		"put":    a.as(token, "PUT", "/v1/groups/g.topic/offsets", object{"offsets": []object{at("g.topic", 0, 0)}}),
		"delete": a.as(token, "DELETE", "/v1/groups/g.topic/offsets?topic=g.topic", nil),
		"reset":  a.as(token, "POST", "/v1/groups/g.topic/reset-offsets", object{"topics": []string{"g.topic"}, "to": "latest"}),
	} {
		wants(t, x, 403, "forbidden")
		require.Contains(t, string(x.Body), `topic \"g.topic\"`, what)
	}
	wants(t, a.as(a.admin, "PUT", "/v1/groups/g.topic/offsets", object{"offsets": []object{at("g.topic", 0, 0)}}), 200, "")
	for _, dry := range []string{"", "?dry_run=true"} {
		wants(t, a.as(token, "POST", "/v1/groups/g.topic/reset-offsets"+dry, object{"to": "latest"}), 403, "forbidden")
	}
	m := decoded(t, a.as(token, "POST", "/v1/groups/g.topic/members", object{"topic_pattern": "g\\.topic"}), 201)
	x := decoded(t, a.as(token, "GET", "/v1/groups/g.topic/members/"+m["member_id"].(string)+"/records", nil), 200)
	require.Empty(t, x["records"], "of topics that a pattern matches others are read")
}

func TestDeletingAGroupTakesItsOffsets(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	a.topic("g.delete", 2, nil)
	const path = "/v1/groups/g.delete"
	m := a.reader("g.delete", "g.delete")
	got := m.owns(2)
	m.commitCursor(got)
	wants(t, a.remove(path), 409, "group-not-empty")
	wants(t, a.remove(path+"?dry_run=true"), 409, "group-not-empty")
	wants(t, a.remove(path+"/offsets?topic=g.delete"), 409, "group-not-empty")
	wants(t, a.remove(path+"/offsets?topic=g.delete&dry_run=true"), 409, "group-not-empty")
	wants(t, a.as(a.admin, "PUT", path+"/offsets", object{"offsets": []object{at("g.delete", 0, 0)}}), 409, "group-not-empty")
	m.leave()
	tag := decoded(t, a.get(path), 200)["etag"].(string)
	plan := decoded(t, a.remove(path+"?dry_run=true"), 200)
	require.Len(t, plan["offsets"], 2)
	wants(t, a.do("DELETE", path, nil, headers{"If-Match": `"x"`}), 412, "etag-mismatch")
	wants(t, a.do("DELETE", path+"?dry_run=true", nil, headers{"If-Match": `"x"`}), 412, "etag-mismatch")
	require.Len(t, decoded(t, a.remove(path+"/offsets?topic=g.delete&dry_run=true"), 200)["offsets"], 2)
	require.Len(t, a.offsetsOf("g.delete"), 2, "a dry run changes nothing")
	wants(t, a.remove(path+"/offsets?topic=g.delete"), 204, "")
	require.Empty(t, a.offsetsOf("g.delete"))
	wants(t, a.do("DELETE", path, nil, headers{"If-Match": `"` + tag + `"`}), 412, "etag-mismatch")
	wants(t, a.do("DELETE", path, nil, headers{"If-Match": `"` + decoded(t, a.get(path), 200)["etag"].(string) + `"`}), 204, "")
	wants(t, a.remove(path), 404, "unknown-group")
	wants(t, a.remove(path+"?dry_run=true"), 404, "unknown-group")
	check(t, a, map[string]refused{
		"no topic":       {"DELETE", path + "/offsets", nil, 422, "invalid-argument", "query:topic"},
		"a bad topic":    {"DELETE", path + "/offsets?topic=a/b", nil, 422, "invalid-argument", "query:topic"},
		"a bad dry_run":  {"DELETE", path + "?dry_run=1", nil, 422, "invalid-argument", "query:dry_run"},
		"offsets of -1":  {"PUT", path + "/offsets", object{"offsets": []object{at("g.delete", 0, -1)}}, 422, "invalid-argument", "/offsets/0/next_offset"},
		"of no topic":    {"PUT", path + "/offsets", object{"offsets": []object{at("g.none", 0, 1)}}, 404, "unknown-topic", ""},
		"of partition 2": {"PUT", path + "/offsets", object{"offsets": []object{at("g.delete", 2, 1)}}, 404, "unknown-partition", ""},
		"none":           {"PUT", path + "/offsets", object{"offsets": []object{}}, 422, "invalid-argument", "/offsets"},
	})
	wants(t, a.get(path), 404, "unknown-group")
}

func TestResetsMoveOffsetsOrTellWhereTheyWould(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	topic := a.topic("g.reset", 2, object{"retention.ms": -1})
	for i := range 5 {
		a.records(topic, object{"value": "v", "partition": 0, "timestamp": 1000 * (i + 1)}, object{"value": "v", "partition": 1, "timestamp": 1000 * (i + 1)})
	}
	a.topic("g.reset.other", 1, nil)
	const path = "/v1/groups/g.reset"
	put := func() {
		t.Helper()
		wants(t, a.as(a.admin, "PUT", path+"/offsets", object{"offsets": []object{at("g.reset", 0, 3), at("g.reset", 1, 1)}}), 200, "")
	}
	put()
	moves := func(x *answer) map[string][2]any {
		t.Helper()
		out := map[string][2]any{}
		for _, m := range decoded(t, x, 200)["offsets"].([]any) {
			m := m.(object)
			out[fmt.Sprintf("%s/%s", m["topic"], m["partition"])] = [2]any{m["from"], m["to"]}
		}
		return out
	}
	n := func(i int) any { return jsonNumber(i) }
	for name, c := range map[string]struct {
		body object
		want map[string][2]any
	}{
		"earliest":      {object{"to": "earliest"}, map[string][2]any{"g.reset/0": {n(3), n(0)}, "g.reset/1": {n(1), n(0)}}},
		"latest":        {object{"to": "latest"}, map[string][2]any{"g.reset/0": {n(3), n(5)}, "g.reset/1": {n(1), n(5)}}},
		"time":          {object{"to": "timestamp", "value": 2500}, map[string][2]any{"g.reset/0": {n(3), n(2)}, "g.reset/1": {n(1), n(2)}}},
		"a late time":   {object{"to": "timestamp", "value": 1 << 50}, map[string][2]any{"g.reset/0": {n(3), n(5)}, "g.reset/1": {n(1), n(5)}}},
		"offset":        {object{"to": "offset", "value": 4}, map[string][2]any{"g.reset/0": {n(3), n(4)}, "g.reset/1": {n(1), n(4)}}},
		"beyond":        {object{"to": "offset", "value": 99}, map[string][2]any{"g.reset/0": {n(3), n(5)}, "g.reset/1": {n(1), n(5)}}},
		"shift back":    {object{"to": "shift", "value": -2}, map[string][2]any{"g.reset/0": {n(3), n(1)}, "g.reset/1": {n(1), n(0)}}},
		"shift on":      {object{"to": "shift", "value": 1}, map[string][2]any{"g.reset/0": {n(3), n(4)}, "g.reset/1": {n(1), n(2)}}},
		"a partition":   {object{"to": "earliest", "partitions": []object{{"topic": "g.reset", "partition": 1}}}, map[string][2]any{"g.reset/1": {n(1), n(0)}}},
		"another topic": {object{"to": "earliest", "topics": []string{"g.reset.other"}}, map[string][2]any{"g.reset.other/0": {nil, n(0)}}},
	} {
		before := a.offsetsOf("g.reset")
		require.Equal(t, c.want, moves(a.post(path+"/reset-offsets?dry_run=true", c.body)), name)
		require.Equal(t, before, a.offsetsOf("g.reset"), "a dry run moves nothing")
		require.Equal(t, c.want, moves(a.post(path+"/reset-offsets", c.body)), name)
		after := a.offsetsOf("g.reset")
		for p, m := range c.want {
			require.Equal(t, fmt.Sprint(m[1]), fmt.Sprint(after[p]), name)
		}
		wants(t, a.remove(path+"/offsets?topic=g.reset.other"), 204, "")
		put()
	}
}

func TestAResetRefusesLiveMembersOtherTagsAndBadInput(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	a.records(a.topic("g.unreset", 2, nil), object{"value": "v", "partition": 0})
	const path = "/v1/groups/g.unreset"
	wants(t, a.as(a.admin, "PUT", path+"/offsets", object{"offsets": []object{at("g.unreset", 0, 1)}}), 200, "")
	wants(t, a.do("POST", path+"/reset-offsets", object{"to": "earliest"}, headers{"If-Match": `"x"`}), 412, "etag-mismatch")
	made := decoded(t, a.post("/v1/groups/g.unreset.new/reset-offsets", object{"to": "latest", "topics": []string{"g.unreset"}}), 200)
	require.Len(t, made["offsets"], 2, "a group that is not there yet")
	require.Equal(t, map[string]int64{"g.unreset/0": 1, "g.unreset/1": 0}, a.offsetsOf("g.unreset.new"))
	m := a.reader("g.unreset", "g.unreset")
	for _, dry := range []string{"", "?dry_run=true"} {
		wants(t, a.post(path+"/reset-offsets"+dry, object{"to": "earliest"}), 409, "group-not-empty")
	}
	require.EqualValues(t, 1, a.offsetsOf("g.unreset")["g.unreset/0"])
	m.leave()
	reset := path + "/reset-offsets"
	check(t, a, map[string]refused{
		"nowhere":           {"POST", reset, "{}", 422, "invalid-argument", "/to"},
		"an unknown word":   {"POST", reset, object{"to": "first"}, 422, "invalid-argument", "/to"},
		"no value":          {"POST", reset, object{"to": "offset"}, 422, "invalid-argument", "/value"},
		"a value too many":  {"POST", reset, object{"to": "latest", "value": 1}, 422, "invalid-argument", "/value"},
		"a negative offset": {"POST", reset, object{"to": "offset", "value": -1}, 422, "invalid-argument", "/value"},
		"a negative time":   {"POST", reset, object{"to": "timestamp", "value": -1}, 422, "invalid-argument", "/value"},
		"no topics":         {"POST", reset, object{"to": "latest", "topics": []string{}}, 422, "invalid-argument", "/topics"},
		"no partitions":     {"POST", reset, object{"to": "latest", "partitions": []object{}}, 422, "invalid-argument", "/partitions"},
		"an unknown topic":  {"POST", reset, object{"to": "latest", "topics": []string{"g.none"}}, 404, "unknown-topic", ""},
		"partition 2":       {"POST", reset, object{"to": "latest", "partitions": []object{{"topic": "g.unreset", "partition": 2}}}, 404, "unknown-partition", ""},
		"partition -1":      {"POST", reset, object{"to": "latest", "partitions": []object{{"topic": "g.unreset", "partition": -1}}}, 422, "invalid-argument", "/partitions/0/partition"},
		"no group":          {"POST", "/v1/groups/g.none/reset-offsets", object{"to": "latest"}, 404, "unknown-group", ""},
	})
}
