package api

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/testkit/racing"
)

// member is a member of a group as a test uses it.
type member struct {
	a    *api
	path string
	id   string
}

func (a *api) join(group string, body object) *member {
	a.t.Helper()
	if _, given := body["session_timeout_ms"]; !given { // a machine may be slow
		body["session_timeout_ms"] = 600_000
	}
	path := "/v1/groups/" + url.PathEscape(group) + "/members"
	x := wants(a.t, a.post(path, body), 201, "")
	id := decoded(a.t, x, 201)["member_id"].(string)
	require.Equal(a.t, path+"/"+id, x.Header.Get("Location"))
	return &member{a, path + "/" + id, id}
}

// reader joins with one topic, read from its start.
func (a *api) reader(group, topic string, more ...object) *member {
	a.t.Helper()
	body := object{"topics": []string{topic}, "auto_offset_reset": "earliest"}
	for _, m := range more {
		for k, v := range m {
			body[k] = v
		}
	}
	return a.join(group, body)
}

func (m *member) ask(query string) *answer {
	m.a.t.Helper()
	return m.a.get(m.path + "/records?" + query)
}

// read makes a read that has to succeed.
func (m *member) read(query string) object {
	m.a.t.Helper()
	return decoded(m.a.t, m.ask(query), 200)
}

// behind reads on with an answer's cursor.
func (m *member) behind(got object, query string) object {
	m.a.t.Helper()
	return m.read("cursor=" + got["cursor"].(string) + "&" + query)
}

// owns reads without cursor and without records until the member has so many partitions, and
// has nothing to give up; it gives the last answer.
func (m *member) owns(n int) object {
	m.a.t.Helper()
	var got object
	cursor := ""
	require.Eventually(m.a.t, func() bool {
		got = m.read("max_records=1&wait_ms=20" + cursor)
		cursor = "&cursor=" + got["cursor"].(string)
		as := got["assignment"].(object)
		return len(as["partitions"].([]any)) == n && len(as["revoking"].([]any)) == 0 && as["pending"] == false
	}, 20*time.Second, time.Millisecond, "%d partitions", n)
	return got
}

func (m *member) commit(body object) *answer { m.a.t.Helper(); return m.a.post(m.path+"/commit", body) }

func (m *member) commitCursor(got object) object {
	m.a.t.Helper()
	return decoded(m.a.t, m.commit(object{"cursor": got["cursor"]}), 200)
}

// leave leaves, and is fine with being gone.
func (m *member) leave() { m.a.t.Helper(); wants(m.a.t, m.a.remove(m.path), 204, "") }

func at(topic string, partition int, next int64) object {
	return object{"topic": topic, "partition": partition, "next_offset": next}
}

// texts are the values of an answer's records.
func texts(got object) []string {
	out := []string{}
	for _, r := range got["records"].([]any) {
		out = append(out, r.(object)["value"].(string))
	}
	return out
}

// offsetsOf are the committed offsets of a group as "topic/partition" → next_offset.
func (a *api) offsetsOf(group string) map[string]int64 {
	a.t.Helper()
	out := map[string]int64{}
	for _, o := range decoded(a.t, a.get("/v1/groups/"+url.PathEscape(group)+"/offsets"), 200)["offsets"].([]any) {
		o := o.(object)
		out[fmt.Sprintf("%s/%s", o["topic"], o["partition"])] = number(a.t, o["next_offset"])
	}
	return out
}

func values(words ...string) []object {
	out := []object{}
	for _, w := range words {
		out = append(out, object{"value": w, "partition": 0})
	}
	return out
}

func TestARepeatedReadRepeatsAndALostAnswerLosesNothing(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	topic := a.topic("m.repeat", 1, nil)
	a.records(topic, values("a", "b", "c")...)
	m := a.reader("m.repeat", "m.repeat")
	m.owns(1)
	first := m.read("max_records=2")
	require.Equal(t, []string{"a", "b"}, texts(first))
	require.Equal(t, first["records"], m.read("max_records=2")["records"], "without cursor it reads from the committed offsets")
	require.Equal(t, []any{object{"topic": "m.repeat", "partition": first["records"].([]any)[0].(object)["partition"], "next_offset": first["positions"].([]any)[0].(object)["next_offset"]}}, first["positions"])
	require.EqualValues(t, 2, number(t, first["positions"].([]any)[0].(object)["next_offset"]))
	second := m.behind(first, "max_records=2")
	require.Equal(t, []string{"c"}, texts(second))
	require.Equal(t, []string{"c"}, texts(m.behind(first, "")), "its answer was lost: the same cursor gives it again")
	require.Empty(t, texts(m.behind(second, "")))
	require.Equal(t, map[string]int64{"m.repeat/0": 0}, a.offsetsOf("m.repeat"), "reading commits nothing")
	require.EqualValues(t, 3, number(t, m.commitCursor(second)["offsets"].([]any)[0].(object)["next_offset"]))
	require.Empty(t, texts(m.read("")))
	require.EqualValues(t, 3, number(t, m.commitCursor(first)["offsets"].([]any)[0].(object)["next_offset"]), "a cursor never moves back")
	wants(t, m.commit(object{"offsets": []object{at("m.repeat", 0, 1)}}), 200, "")
	require.Equal(t, []string{"b", "c"}, texts(m.read("")), "offsets may")
}

func TestTheCursorComesByHeaderQueryOrBody(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	topic := a.topic("m.carry", 1, nil)
	a.records(topic, values("a", "b")...)
	m := a.reader("m.carry", "m.carry")
	m.owns(1)
	got := m.read("max_records=1")
	cursor := got["cursor"].(string)
	require.Regexp(t, `^[A-Za-z0-9._~-]+$`, cursor)
	h := decoded(t, a.do("GET", m.path+"/records", nil, headers{"Tidewire-Cursor": cursor}), 200)
	require.Equal(t, []string{"b"}, texts(h))
	require.Equal(t, []string{"b"}, texts(decoded(t, a.post(m.path+"/poll", object{"cursor": cursor}), 200)))
	require.Equal(t, []string{"a"}, texts(decoded(t, a.post(m.path+"/poll", object{"max_records": 1, "wait_ms": 0, "encoding": "text"}), 200)))
	x := wants(t, a.do("GET", m.path+"/records?cursor=x", nil, headers{"Tidewire-Cursor": cursor}), 422, "invalid-argument")
	require.Equal(t, []string{"header:Tidewire-Cursor"}, pointers(t, x))
	x = wants(t, a.do("GET", m.path+"/records", nil, headers{"Tidewire-Cursor": "x"}), 422, "invalid-argument")
	require.Equal(t, []string{"header:Tidewire-Cursor"}, pointers(t, x))
}

func TestAutoCommitCommitsOnlyWhatALaterCursorCovers(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	topic := a.topic("m.auto", 1, nil)
	a.records(topic, values("a", "b", "c", "d")...)
	m := a.reader("m.auto", "m.auto", object{"auto_commit": true})
	m.owns(1)
	// The reads of owns came with cursors: whatever they have covered is committed.
	wants(t, m.commit(object{"offsets": []object{at("m.auto", 0, 0)}}), 200, "")
	first := m.read("max_records=2")
	require.Equal(t, []string{"a", "b"}, texts(first))
	require.EqualValues(t, 0, a.offsetsOf("m.auto")["m.auto/0"], "an answer that may be lost commits nothing")
	second := m.behind(first, "max_records=1")
	require.Equal(t, []string{"c"}, texts(second))
	require.EqualValues(t, 2, a.offsetsOf("m.auto")["m.auto/0"], "the cursor's, and not this answer's")
	wants(t, a.remove(m.path+"?cursor="+second["cursor"].(string)), 204, "")
	require.EqualValues(t, 3, a.offsetsOf("m.auto")["m.auto/0"], "so does DELETE with a cursor")
}

func TestACursorOfALostAndRegainedPartitionNeitherRewindsNorJumps(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	topic := a.topic("m.regain", 2, nil)
	for i := range 10 {
		a.records(topic, object{"value": fmt.Sprint(i), "partition": 1})
	}
	first := a.reader("m.regain", "m.regain", object{"instance_id": "a"})
	first.owns(2)
	old := first.read("max_records=5")
	require.Equal(t, []string{"0", "1", "2", "3", "4"}, texts(old))
	other := a.reader("m.regain", "m.regain", object{"instance_id": "b"}) // whose range comes after
	first.owns(1)
	got := other.owns(1)
	require.Equal(t, object{"topic": "m.regain", "partition": got["assignment"].(object)["partitions"].([]any)[0].(object)["partition"]}, got["assignment"].(object)["partitions"].([]any)[0])
	require.Equal(t, []string{"0", "1"}, texts(other.read("max_records=2")), "the next owner gets it from the committed offset")
	wants(t, other.commit(object{"offsets": []object{at("m.regain", 1, 8)}}), 200, "")
	require.Empty(t, texts(first.behind(old, "")), "entries of a lost assignment are ignored")
	other.leave()
	first.owns(2)
	require.Equal(t, []string{"8", "9"}, texts(first.behind(old, "")), "neither from 5 nor from 10")
	require.EqualValues(t, 8, a.offsetsOf("m.regain")["m.regain/1"])
	first.commitCursor(old)
	require.EqualValues(t, 8, a.offsetsOf("m.regain")["m.regain/1"], "and it commits nothing of it")
}

func TestLatestSkipsNothingBetweenTwoPolls(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	topic := a.topic("m.latest", 1, nil)
	a.records(topic, values("before")...)
	m := a.join("m.latest", object{"topics": []string{"m.latest"}})
	first := m.owns(1)
	require.Empty(t, texts(first))
	a.records(topic, values("between")...)
	require.Equal(t, []string{"between"}, texts(m.behind(first, "")))
	require.Equal(t, []string{"between"}, texts(m.read("")), "without cursor too: where it began is stored")
	m.leave()
	a.records(topic, values("while nobody reads")...)
	again := a.join("m.latest", object{"topics": []string{"m.latest"}})
	again.owns(1)
	require.Equal(t, []string{"between", "while nobody reads"}, texts(again.read("")))
}

func TestCommitsOfThoseWhoMayNotChangeNothing(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	topic := a.topic("m.foreign", 1, nil)
	a.records(topic, values("a", "b", "c")...)
	owner := a.reader("m.foreign", "m.foreign", object{"instance_id": "i"})
	got := owner.owns(1)
	idle := a.reader("m.foreign", "m.foreign", object{"session_timeout_ms": 1000})
	body := object{"offsets": []object{at("m.foreign", 0, 3)}}
	x := wants(t, idle.commit(body), 409, "not-owner")
	var p object
	x.JSON(t, &p)
	require.Equal(t, []any{object{"topic": "m.foreign", "partition": got["assignment"].(object)["partitions"].([]any)[0].(object)["partition"]}}, p["partitions"])
	require.Equal(t, "not-applied", p["outcome"])
	wants(t, idle.commit(object{"offsets": []object{at("m.foreign", 0, 3), at("no.such", 0, 1)}}), 404, "unknown-topic")
	wants(t, a.post(idle.path+"/seek", object{"positions": []object{at("m.foreign", 0, 3)}}), 409, "not-owner")

	wants(t, a.post("/v1/groups/m.foreign/members", object{"topics": []string{"m.foreign"}, "instance_id": "i"}), 409, "conflict")
	taker := a.reader("m.foreign", "m.foreign", object{"instance_id": "i", "take_over": true})
	for _, call := range []*answer{
		owner.commit(body), owner.ask(""), a.post(owner.path+"/heartbeat", nil), a.post(owner.path+"/seek", object{"positions": body["offsets"]}),
		a.post(owner.path+"/poll", object{}), a.remove(owner.path), owner.commit(object{"cursor": got["cursor"]}),
	} {
		wants(t, call, 409, "fenced")
	}
	taker.owns(1)
	require.Eventually(t, func() bool {
		return a.post(idle.path+"/heartbeat", nil).Status == 410 || !sleepPast(1100*time.Millisecond)
	}, 20*time.Second, time.Millisecond)
	for _, call := range []*answer{idle.commit(body), idle.ask(""), a.post(idle.path+"/heartbeat", nil), a.remove(idle.path)} {
		wants(t, call, 410, "member-expired")
	}
	taker.leave()
	wants(t, taker.commit(body), 404, "unknown-member")
	wants(t, taker.ask("wait_ms=60000"), 404, "unknown-member")
	require.EqualValues(t, 0, a.offsetsOf("m.foreign")["m.foreign/0"])
}

// sleepPast waits for a session to end that each call would begin anew.
func sleepPast(d time.Duration) bool {
	<-time.After(d)
	return true
}

func TestAMembersLongPollAnswersAtOnce(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	topic := a.topic("m.wait", 2, nil)
	m := a.reader("m.wait", "m.wait")
	got := m.owns(2)
	wait := "/records?wait_ms=60000&cursor="
	on := a.poll(a.admin, m.path+wait+got["cursor"].(string))
	a.records(topic, values("data")...)
	got = decoded(t, <-on, 200)
	require.Equal(t, []string{"data"}, texts(got))

	on = a.poll(a.admin, m.path+wait+got["cursor"].(string))
	other := a.reader("m.wait", "m.wait")
	got = decoded(t, <-on, 200)
	require.Empty(t, texts(got))
	revoking := got["assignment"].(object)["revoking"].([]any)
	require.Len(t, revoking, 1, "a revocation")
	wants(t, m.commit(object{"offsets": []object{at("m.wait", int(number(t, revoking[0].(object)["partition"])), 0)}}), 200, "")
	on = a.poll(a.admin, other.path+"/records?wait_ms=60000")
	m.behind(got, "")
	require.Len(t, decoded(t, <-on, 200)["assignment"].(object)["partitions"], 1, "what is released goes on to the next at once")

	got = m.owns(1)
	first := a.poll(a.admin, m.path+wait+got["cursor"].(string))
	second := a.poll(a.admin, m.path+wait+got["cursor"].(string))
	waiting := second
	select { // either may have come first
	case got := <-first:
		require.Empty(t, texts(decoded(t, got, 200)), "a second read of the member ends the first, which answers empty")
	case got := <-second:
		require.Empty(t, texts(decoded(t, got, 200)), "a second read of the member ends the first, which answers empty")
		waiting = first
	}
	a.records(topic, object{"value": "for the second", "partition": number(t, got["assignment"].(object)["partitions"].([]any)[0].(object)["partition"])})
	require.Equal(t, []string{"for the second"}, texts(decoded(t, <-waiting, 200)))

	on = a.poll(a.admin, m.path+wait+got["cursor"].(string)+"&min_bytes=1000000")
	m.leave()
	wants(t, <-on, 404, "unknown-member")
	got = other.owns(2)
	on = a.poll(a.admin, other.path+wait+got["cursor"].(string)+"&min_bytes=1000000")
	wants(t, a.remove(topic), 204, "")
	require.Empty(t, decoded(t, <-on, 200)["assignment"].(object)["partitions"], "its topic is gone")
}

func TestAMembersLongPollEndsWithItsRights(t *testing.T) {
	t.Parallel()
	a, forward := clocked(t)
	a.topic("t", 1, nil)
	user := a.user("u")
	group := rule{"allow", "literal", "read", "group", "g"}
	topic := rule{"allow", "literal", "read", "topic", "t"}
	a.rule("u", group)
	a.rule("u", topic)
	token := a.login("u")
	mine := decoded(t, a.as(token, "POST", "/v1/groups/g/members", object{"topics": []string{"t"}, "session_timeout_ms": 1800000}), 201)
	m := &member{a, "/v1/groups/g/members/" + mine["member_id"].(string), ""}
	m.owns(1)
	target := m.path + "/records?wait_ms=60000"
	for name, r := range map[string]rule{"group": group, "topic": topic} {
		on := a.poll(token, target)
		wants(t, a.remove("/v1/acls?principal=User:u&resource_type="+name), 200, "")
		x := wants(t, <-on, 403, "forbidden")
		require.Contains(t, string(x.Body), name)
		a.rule("u", r)
	}
	on := a.poll(token, target)
	wants(t, a.patch(user, object{"disabled": true}), 200, "")
	wants(t, <-on, 401, "unauthenticated")
	on = a.poll(a.admin, target)
	forward(16 * time.Minute)
	wants(t, <-on, 401, "token-expired")
}

func TestAMembersLongPollAnswersWhatIsThereWhenTheNodeStops(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	topic := a.topic("t", 1, nil)
	m := a.reader("g", "t")
	m.owns(1)
	a.records(topic, values("there")...)
	on := a.poll(a.admin, m.path+"/records?wait_ms=60000&min_bytes=100000")
	a.topic("empty", 1, nil)
	other := a.reader("other", "empty")
	other.owns(1)
	idle := a.poll(a.admin, other.path+"/records?wait_ms=60000") // which waits without a goroutine
	a.Stop()
	require.Equal(t, []string{"there"}, texts(decoded(t, <-on, 200)))
	require.Empty(t, texts(decoded(t, <-idle, 200)))
}

func TestAMemberWith2000Partitions(t *testing.T) {
	t.Parallel()
	racing.SkipSequential(t)
	a := ownAPI(t)
	one, two := a.topic("many.a", 1000, nil), a.topic("many.b", 1000, nil)
	m := a.join("many", object{"topic_pattern": "many\\..*", "auto_offset_reset": "earliest"})
	got := m.owns(2000)
	require.Len(t, got["positions"], 2000)
	require.Less(t, len(got["cursor"].(string)), 16<<10)
	on := a.poll(a.admin, m.path+"/records?wait_ms=60000&cursor="+got["cursor"].(string))
	a.records(one, object{"value": "a", "partition": 999})
	got = decoded(t, <-on, 200)
	require.Equal(t, []string{"a"}, texts(got))
	a.records(two, object{"value": "b", "partition": 0})
	cursor := got["cursor"].(string)
	for _, x := range []*answer{
		m.ask("cursor=" + cursor), a.do("GET", m.path+"/records", nil, headers{"Tidewire-Cursor": cursor}), a.post(m.path+"/poll", object{"cursor": cursor}),
	} {
		got = decoded(t, x, 200)
		require.Equal(t, []string{"b"}, texts(got))
	}
	require.Len(t, m.commitCursor(got)["offsets"], 2000)
	wants(t, a.remove(m.path+"?cursor="+got["cursor"].(string)), 204, "")
	require.Len(t, a.offsetsOf("many"), 2000)
	require.Zero(t, number(t, decoded(t, a.get("/v1/groups/many"), 200)["total_lag"]))
}

func TestSeekReadsOnElsewhereAndStoresNothing(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	topic := a.topic("m.seek", 1, nil)
	a.records(topic, values("a", "b", "c")...)
	m := a.reader("m.seek", "m.seek")
	got := m.owns(1)
	sought := decoded(t, a.post(m.path+"/seek", object{"positions": []object{at("m.seek", 0, 2)}, "cursor": got["cursor"]}), 200)
	require.Equal(t, []string{"c"}, texts(m.behind(sought, "")))
	require.EqualValues(t, 0, a.offsetsOf("m.seek")["m.seek/0"])
	beyond := decoded(t, a.post(m.path+"/seek", object{"positions": []object{at("m.seek", 0, 99)}}), 200)
	require.Equal(t, []string{"a", "b", "c"}, texts(m.behind(beyond, "")), "out of range it begins by auto_offset_reset")
}

func TestOffsetsOutOfRangeFollowAutoOffsetReset(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	topic := a.topic("m.range", 1, nil)
	a.records(topic, values("a", "b", "c")...)
	none := a.join("m.range", object{"topics": []string{"m.range"}, "auto_offset_reset": "none"})
	var x *answer
	require.Eventually(t, func() bool { x = none.ask("wait_ms=20"); return x.Status != 200 }, 20*time.Second, time.Millisecond)
	bounds := []any{object{"topic": "m.range", "partition": jsonNumber(0), "earliest": jsonNumber(0), "latest": jsonNumber(3)}}
	var p object
	wants(t, x, 416, "offset-out-of-range").JSON(t, &p)
	require.Equal(t, bounds, p["partitions"], "nothing is committed")
	wants(t, none.commit(object{"offsets": []object{at("m.range", 0, 99)}}), 200, "")
	p = object{}
	wants(t, none.ask(""), 416, "offset-out-of-range").JSON(t, &p)
	require.Equal(t, bounds, p["partitions"], "beyond the end")
	wants(t, none.commit(object{"offsets": []object{at("m.range", 0, 1)}}), 200, "")
	require.Equal(t, []string{"b", "c"}, texts(none.read("")))
	wants(t, none.commit(object{"offsets": []object{at("m.range", 0, 99)}}), 200, "")
	none.leave()
	latest := a.join("m.range", object{"topics": []string{"m.range"}})
	got := latest.owns(1)
	require.Empty(t, texts(got))
	latest.behind(got, "") // a later cursor covers where it begins
	require.EqualValues(t, 3, a.offsetsOf("m.range")["m.range/0"])
}

func TestOffsetsOfADeletedAndRecreatedTopicAreGone(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	topic := a.topic("m.again", 1, nil)
	a.records(topic, values("a", "b", "c")...)
	m := a.reader("m.again", "m.again")
	got := m.owns(1)
	wants(t, m.commit(object{"offsets": []object{at("m.again", 0, 3)}}), 200, "")
	wants(t, a.remove(topic), 204, "")
	require.Eventually(t, func() bool { return len(a.offsetsOf("m.again")) == 0 }, 20*time.Second, time.Millisecond)
	wants(t, m.commit(object{"offsets": []object{at("m.again", 0, 3)}}), 404, "unknown-topic")
	a.topic("m.again", 1, nil)
	a.records(topic, values("new")...)
	require.Eventually(t, func() bool {
		got = m.behind(got, "wait_ms=20")
		return len(texts(got)) > 0
	}, 20*time.Second, time.Millisecond, "it is picked up, by its name")
	require.Equal(t, []string{"new"}, texts(got))
}

func TestUnknownTopicsArePickedUpWhenTheyAreCreated(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	m := a.join("m.later", object{"topics": []string{"m.later"}})
	on := a.poll(a.admin, m.path+"/records?wait_ms=60000")
	topic := a.topic("m.later", 1, nil)
	require.Len(t, decoded(t, <-on, 200)["assignment"].(object)["partitions"], 1)
	a.records(topic, values("first")...)
	require.Equal(t, []string{"first"}, texts(m.read("wait_ms=5000")), "what appears later is read from its start")
}

func TestABadMemberRequestIsRefused(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	a.topic("m.bad", 1, nil)
	m := a.reader("m.bad", "m.bad")
	m.owns(1)
	const join = "/v1/groups/m.bad/members"
	with := func(field string, v any) object { return object{"topics": []string{"m.bad"}, field: v} }
	many := make([]string, 2001)
	for i := range many {
		many[i] = fmt.Sprint("t", i)
	}
	offsets := func(list ...object) object { return object{"offsets": list} }
	commit, records := m.path+"/commit", m.path+"/records"
	check(t, a, map[string]refused{
		"no topics":                {"POST", join, "{}", 422, "invalid-argument", "/topics"},
		"an empty list":            {"POST", join, object{"topics": []string{}}, 422, "invalid-argument", "/topics"},
		"topics and a pattern":     {"POST", join, with("topic_pattern", "x.*"), 422, "invalid-argument", "/topics"},
		"too many topics":          {"POST", join, object{"topics": many}, 422, "invalid-argument", "/topics"},
		"a bad topic name":         {"POST", join, object{"topics": []string{"t", "a/b"}}, 422, "invalid-argument", "/topics/1"},
		"a bad pattern":            {"POST", join, object{"topic_pattern": "("}, 422, "invalid-argument", "/topic_pattern"},
		"an empty pattern":         {"POST", join, object{"topic_pattern": ""}, 422, "invalid-argument", "/topic_pattern"},
		"an unknown assignor":      {"POST", join, with("assignor", "fair"), 422, "invalid-argument", "/assignor"},
		"a short session":          {"POST", join, with("session_timeout_ms", 999), 422, "invalid-argument", "/session_timeout_ms"},
		"a long session":           {"POST", join, with("session_timeout_ms", 1800001), 422, "invalid-argument", "/session_timeout_ms"},
		"a session beyond all":     {"POST", join, with("session_timeout_ms", 1<<62), 422, "invalid-argument", "/session_timeout_ms"},
		"an unknown reset":         {"POST", join, with("auto_offset_reset", "timestamp"), 422, "invalid-argument", "/auto_offset_reset"},
		"an instance with control": {"POST", join, with("instance_id", "a\nb"), 422, "invalid-argument", "/instance_id"},
		"a client id too long":     {"POST", join, with("client_id", strings.Repeat("x", 256)), 422, "invalid-argument", "/client_id"},
		"another assignor":         {"POST", join, with("assignor", "sticky"), 409, "conflict", ""},
		"wait_ms":                  {"GET", records + "?wait_ms=60001", nil, 422, "invalid-argument", "query:wait_ms"},
		"max_records":              {"GET", records + "?max_records=0", nil, 422, "invalid-argument", "query:max_records"},
		"max_bytes":                {"GET", records + "?max_bytes=67108865", nil, 422, "invalid-argument", "query:max_bytes"},
		"min_bytes":                {"GET", records + "?min_bytes=0", nil, 422, "invalid-argument", "query:min_bytes"},
		"encoding":                 {"GET", records + "?encoding=hex", nil, 422, "invalid-argument", "query:encoding"},
		"isolation":                {"GET", records + "?isolation=none", nil, 422, "invalid-argument", "query:isolation"},
		"cursor":                   {"GET", records + "?cursor=abc", nil, 422, "invalid-argument", "query:cursor"},
		"an empty cursor":          {"GET", records + "?cursor=", nil, 422, "invalid-argument", "query:cursor"},
		"follow":                   {"GET", records + "?follow=true", nil, 422, "invalid-argument", "query:follow"},
		"a poll's wait_ms":         {"POST", m.path + "/poll", object{"wait_ms": -1}, 422, "invalid-argument", "/wait_ms"},
		"a poll's max_records":     {"POST", m.path + "/poll", object{"max_records": 10001}, 422, "invalid-argument", "/max_records"},
		"a poll's encoding":        {"POST", m.path + "/poll", object{"key_encoding": "x"}, 422, "invalid-argument", "/key_encoding"},
		"a poll's isolation":       {"POST", m.path + "/poll", object{"isolation": "x"}, 422, "invalid-argument", "/isolation"},
		"a poll's cursor":          {"POST", m.path + "/poll", object{"cursor": "x"}, 422, "invalid-argument", "/cursor"},
		"commit of nothing":        {"POST", commit, "{}", 422, "invalid-argument", "/offsets"},
		"commit of both":           {"POST", commit, object{"cursor": "x", "offsets": []object{at("m.bad", 0, 0)}}, 422, "invalid-argument", "/cursor"},
		"commit of no cursor":      {"POST", commit, object{"cursor": "x"}, 422, "invalid-argument", "/cursor"},
		"commit of an empty list":  {"POST", commit, offsets(), 422, "invalid-argument", "/offsets"},
		"a negative offset":        {"POST", commit, offsets(at("m.bad", 0, -1)), 422, "invalid-argument", "/offsets/0/next_offset"},
		"an offset beyond 2^53":    {"POST", commit, offsets(at("m.bad", 0, 1<<53)), 422, "invalid-argument", "/offsets/0/next_offset"},
		"a seek beyond 2^53":       {"POST", m.path + "/seek", object{"positions": []object{at("m.bad", 0, 1<<53)}}, 422, "invalid-argument", "/positions/0/next_offset"},
		"a negative partition":     {"POST", commit, offsets(at("m.bad", -1, 0)), 422, "invalid-argument", "/offsets/0/partition"},
		"a partition twice":        {"POST", commit, offsets(at("m.bad", 0, 0), at("m.bad", 0, 1)), 422, "invalid-argument", "/offsets/1/partition"},
		"no offset":                {"POST", commit, offsets(object{"topic": "m.bad", "partition": 0}), 422, "invalid-argument", "/offsets/0/next_offset"},
		"metadata over 4 KiB":      {"POST", commit, offsets(object{"topic": "m.bad", "partition": 0, "next_offset": 0, "metadata": strings.Repeat("x", 4097)}), 422, "invalid-argument", "/offsets/0/metadata"},
		"an unknown topic":         {"POST", commit, offsets(at("m.none", 0, 0)), 404, "unknown-topic", ""},
		"an unknown partition":     {"POST", commit, offsets(at("m.bad", 1, 0)), 404, "unknown-partition", ""},
		"a negative seek":          {"POST", m.path + "/seek", object{"positions": []object{at("m.bad", 0, -1)}}, 422, "invalid-argument", "/positions/0/next_offset"},
		"a seek to nowhere":        {"POST", m.path + "/seek", object{"positions": []object{}}, 422, "invalid-argument", "/positions"},
		"a seek's cursor":          {"POST", m.path + "/seek", object{"positions": []object{at("m.bad", 0, 1)}, "cursor": "x"}, 422, "invalid-argument", "/cursor"},
		"leave with no cursor":     {"DELETE", m.path + "?cursor=x", nil, 422, "invalid-argument", "query:cursor"},
	})
	full := strings.Repeat("é", 2048)
	got := decoded(t, m.commit(offsets(object{"topic": "m.bad", "partition": 0, "next_offset": 7, "metadata": full})), 200)
	require.Equal(t, full, got["offsets"].([]any)[0].(object)["metadata"], "4 KiB of metadata are stored")
	o := decoded(t, a.get("/v1/groups/m.bad"), 200)["offsets"].([]any)[0].(object)
	require.Equal(t, full, o["metadata"])
	require.EqualValues(t, 7, number(t, o["next_offset"]), "an offset beyond the end is stored")
	require.EqualValues(t, 0, number(t, o["lag"]))
	require.Equal(t, m.id, o["member_id"])
}

func TestRecordsComeInTheEncodingsAskedFor(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	topic := a.topic("m.enc", 1, nil)
	a.records(topic, object{"key": "k", "value": object{"a": 1}, "headers": []object{{"name": "h", "value": "x"}}})
	m := a.reader("m.enc", "m.enc")
	m.owns(1)
	want := decoded(t, a.get(topic+"/partitions/0/records?offset=0"), 200)["records"]
	require.Equal(t, want, m.read("")["records"], "as every read of records gives them")
	enc := "encoding=base64&key_encoding=base64&header_encoding=base64&isolation=read_uncommitted"
	want = decoded(t, a.get(topic+"/partitions/0/records?offset=0&"+enc), 200)["records"]
	require.Equal(t, want, m.read(enc)["records"])
	x := a.post(m.path+"/poll", object{"encoding": "base64", "key_encoding": "base64", "header_encoding": "base64", "isolation": "read_uncommitted"})
	require.Equal(t, want, decoded(t, x, 200)["records"])
}
