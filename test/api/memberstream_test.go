package api

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// eventStream is a member's stream of events that is open.
type eventStream struct {
	t    testing.TB
	body io.ReadCloser
	in   *bufio.Reader
}

// memberEvent is one event, with its data as JSON.
type memberEvent struct {
	name, id string
	data     object
}

// streamTime bounds a stream, so that what does not come fails the test.
const streamTime = time.Minute

func (m *member) stream(token, query string, h headers) *eventStream {
	m.a.t.Helper()
	ctx, cancel := context.WithTimeout(m.a.t.Context(), streamTime)
	m.a.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", m.a.URL+m.path+"/records"+query, nil)
	require.NoError(m.a.t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", "text/event-stream")
	for k, v := range h {
		req.Header.Set(k, v)
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	require.NoError(m.a.t, err)
	m.a.t.Cleanup(func() { _ = res.Body.Close() })
	require.Equal(m.a.t, 200, res.StatusCode)
	require.Equal(m.a.t, "text/event-stream", res.Header.Get("Content-Type"))
	require.Equal(m.a.t, "no-store", res.Header.Get("Cache-Control"))
	return &eventStream{m.a.t, res.Body, bufio.NewReader(res.Body)}
}

// next reads the next event; it has an id only before its data.
func (s *eventStream) next() memberEvent {
	s.t.Helper()
	var e memberEvent
	for {
		line, err := s.in.ReadString('\n')
		require.NoError(s.t, err)
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch {
		case field == "event":
			e.name = value
		case field == "id":
			require.Nil(s.t, e.data, "the id comes before the data")
			e.id = value
		case field == "data":
			d := json.NewDecoder(strings.NewReader(value))
			d.UseNumber()
			require.NoError(s.t, d.Decode(&e.data))
		case line == "\n" && e.name != "":
			return e
		}
	}
}

// until reads up to an event of a name, past records events without records.
func (s *eventStream) until(name string) memberEvent {
	s.t.Helper()
	for {
		e := s.next()
		if e.name == name && (name != "records" || len(e.data["records"].([]any)) > 0) {
			return e
		}
		require.Equal(s.t, "records", e.name, "%v", e.data)
	}
}

// owning reads up to an event that tells so many partitions.
func (s *eventStream) owning(n int) memberEvent {
	s.t.Helper()
	for {
		e := s.next()
		require.Equal(s.t, "records", e.name, "%v", e.data)
		if len(e.data["assignment"].(object)["partitions"].([]any)) == n {
			return e
		}
	}
}

// over requires that nothing comes any more.
func (s *eventStream) over() {
	s.t.Helper()
	b, err := io.ReadAll(s.in)
	require.NoError(s.t, err)
	require.Empty(s.t, string(b))
}

func TestAMembersStreamGivesWhatItsReadsGive(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	topic := a.topic("ms.same", 1, nil)
	m := a.reader("ms.same", "ms.same")
	s := m.stream(a.admin, "", nil)
	s.owning(1)
	a.records(topic, object{"key": "k", "value": object{"a": 1}})
	first := s.until("records")
	require.Equal(t, first.data["cursor"], first.id)
	a.records(topic, values("b")...)
	second := s.until("records")
	require.Equal(t, []string{"b"}, texts(second.data))
	require.NoError(t, s.body.Close())
	got := m.read("max_records=1")
	require.Equal(t, first.data, with(got, "cursor", first.id), "the same object")

	again := m.stream(a.admin, "?cursor="+second.id, headers{"Last-Event-ID": first.id})
	require.Equal(t, []string{"b"}, texts(again.until("records").data), "Last-Event-ID counts as cursor, and wins")
	require.NoError(t, again.body.Close())
	m.commitCursor(second.data)
	behind := m.stream(a.admin, "", nil)
	a.records(topic, values("c")...)
	require.Equal(t, []string{"c"}, texts(behind.until("records").data), "without cursor it begins at the committed offsets")
	require.Empty(t, m.ask("wait_ms=0").Code())
	e := behind.until("end")
	require.Equal(t, object{"reason": "replaced"}, e.data, "another read ends it")
	require.NotEmpty(t, e.id)
	behind.over()
}

func TestAStreamsRevocationIsItsOwnEvent(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	topic := a.topic("ms.revoke", 2, nil)
	m := a.reader("ms.revoke", "ms.revoke", object{"instance_id": "a"})
	s := m.stream(a.admin, "", nil)
	s.owning(2)
	a.records(topic, object{"value": "a", "partition": 1})
	require.Equal(t, []string{"a"}, texts(s.until("records").data))
	other := a.reader("ms.revoke", "ms.revoke", object{"instance_id": "b"}) // whose range comes after
	e := s.until("revoked")
	require.Len(t, e.data["partitions"], 1)
	require.EqualValues(t, 1, number(t, e.data["partitions"].([]any)[0].(object)["partition"]))
	require.Equal(t, e.data["cursor"], e.id)
	a.records(topic, object{"value": "b", "partition": 1})
	decoded(t, m.commit(object{"cursor": e.id}), 200)
	require.EqualValues(t, 1, a.offsetsOf("ms.revoke")["ms.revoke/1"], "it could still be committed")
	other.owns(1)
	require.Equal(t, []string{"b"}, texts(other.read("")), "the next owner goes on from there")
	other.leave()
	s.owning(2)

	began := time.Now()
	another := a.reader("ms.revoke", "ms.revoke", object{"instance_id": "c"})
	s.until("revoked")
	another.owns(1)
	require.Greater(t, time.Since(began), 4*time.Second, "without a word it is released 5 s later")
}

func TestAStreamWithAutoCommitCommitsWhatWasWritten(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	topic := a.topic("ms.auto", 1, nil)
	m := a.reader("ms.auto", "ms.auto", object{"auto_commit": true})
	s := m.stream(a.admin, "", nil)
	s.owning(1)
	for _, v := range []string{"a", "b"} {
		a.records(topic, values(v)...)
		require.Equal(t, []string{v}, texts(s.until("records").data))
		if v == "a" {
			require.Zero(t, a.offsetsOf("ms.auto")["ms.auto/0"], "by the clock, and not with every event")
		}
	}
	require.Eventually(t, func() bool { return a.offsetsOf("ms.auto")["ms.auto/0"] == 2 }, 20*time.Second, 10*time.Millisecond)
}

func TestAMembersStreamEndsWhenItsReasonIsGoneAndSaysSo(t *testing.T) {
	t.Parallel()
	a, forward := clocked(t)
	a.topic("t", 1, nil)
	user := a.user("u")
	group := rule{"allow", "literal", "read", "group", "g"}
	topic := rule{"allow", "literal", "read", "topic", "t"}
	a.rule("u", group)
	a.rule("u", topic)
	m := a.reader("g", "t", object{"instance_id": "i", "session_timeout_ms": 1_800_000})
	m.owns(1)
	ends := func(s *eventStream, status int, code string) {
		t.Helper()
		e := s.until("problem")
		require.Equal(t, []any{jsonNumber(status), code}, []any{e.data["status"], e.data["code"]})
		require.Empty(t, e.id)
		s.over()
	}
	open := func(token string) *eventStream {
		t.Helper()
		s := m.stream(token, "", nil)
		s.owning(1)
		return s
	}
	token := a.login("u")
	for name, r := range map[string]rule{"group": group, "topic": topic} {
		s := open(token)
		wants(t, a.remove("/v1/acls?principal=User:u&resource_type="+name), 200, "")
		ends(s, 403, "forbidden")
		a.rule("u", r)
	}
	s := open(token)
	wants(t, a.as(token, "POST", "/v1/auth/logout", nil), 204, "")
	ends(s, 401, "unauthenticated")
	s = open(a.login("u"))
	wants(t, a.patch(user, object{"disabled": true}), 200, "")
	ends(s, 401, "unauthenticated")
	s = open(a.admin)
	taker := a.reader("g", "t", object{"instance_id": "i", "take_over": true, "session_timeout_ms": 1_800_000})
	ends(s, 409, "fenced")
	m = taker
	s = open(a.admin)
	m.leave()
	ends(s, 404, "unknown-member")
	m = a.reader("g", "t", object{"session_timeout_ms": 1_800_000})
	m.owns(1)
	s = open(a.admin)
	forward(16 * time.Minute)
	ends(s, 401, "token-expired")
}

func TestAMembersStreamGoesOnWhenItsTopicIsGone(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	topic := a.topic("ms.topic", 1, nil)
	m := a.reader("ms.topic", "ms.topic")
	s := m.stream(a.admin, "", nil)
	s.owning(1)
	wants(t, a.remove(topic), 204, "")
	s.owning(0)
	a.topic("ms.topic", 1, nil)
	a.records(topic, values("new")...)
	require.Equal(t, []string{"new"}, texts(s.until("records").data))
}

func TestAMembersStreamEndsWhenTheNodeStops(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	topic := a.topic("t", 1, nil)
	m := a.reader("g", "t")
	s := m.stream(a.admin, "", nil)
	s.owning(1)
	a.records(topic, values("a")...)
	last := s.until("records")
	a.Stop()
	e := s.until("end")
	require.Equal(t, object{"reason": "node-stopping"}, e.data)
	require.Equal(t, last.id, e.id)
	s.over()
}

func TestAStreamOfNoMemberIsAUsualAnswer(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	a.topic("ms.none", 1, nil)
	sse := headers{"Accept": "text/event-stream"}
	wants(t, a.do("GET", "/v1/groups/ms.none/members/none/records", nil, sse), 404, "unknown-member")
	m := a.reader("ms.none", "ms.none", object{"instance_id": "i"})
	m.owns(1)
	a.reader("ms.none", "ms.none", object{"instance_id": "i", "take_over": true}).owns(1)
	wants(t, a.do("GET", m.path+"/records", nil, sse), 409, "fenced")
	wants(t, a.do("GET", m.path+"/records?cursor=x", nil, sse), 422, "invalid-argument")
	x := wants(t, a.do("GET", m.path+"/records", nil, headers{"Accept": "text/event-stream", "Last-Event-ID": "x"}), 422, "invalid-argument")
	require.Equal(t, []string{"header:Last-Event-ID"}, pointers(t, x))
	wants(t, a.do("GET", m.path+"/records", nil, headers{"Accept": "text/csv"}), 406, "not-acceptable")
	none := a.join("ms.reset", object{"topics": []string{"ms.none"}, "auto_offset_reset": "none"})
	require.Eventually(t, func() bool { return none.ask("").Status == 416 }, 20*time.Second, time.Millisecond)
	wants(t, a.do("GET", none.path+"/records", nil, sse), 416, "offset-out-of-range")
	wants(t, none.commit(object{"offsets": []object{at("ms.none", 0, 0)}}), 200, "")
	h := wants(t, a.do("HEAD", none.path+"/records", nil, sse), 200, "")
	require.Equal(t, "text/event-stream", h.Header.Get("Content-Type"))
}

func TestAQuietStreamShowsThatItIsAlive(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	a.topic("ms.quiet", 1, nil)
	m := a.reader("ms.quiet", "ms.quiet", object{"session_timeout_ms": 5000})
	s := m.stream(a.admin, "", nil)
	s.owning(1)
	for {
		line, err := s.in.ReadString('\n')
		require.NoError(t, err)
		if line == ":\n" {
			break
		}
	}
	wants(t, a.post(m.path+"/heartbeat", nil), 204, "")
}

// A client that stops reading holds up nobody, and its member goes when it is cut.
func TestAMembersStreamWhoseClientReadsNothingIsCut(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	topic := a.topic("ms.stuck", 1, nil)
	m := a.reader("ms.stuck", "ms.stuck")
	m.owns(1)
	batch := make([]object, 1000)
	for i := range batch {
		batch[i] = object{"value": strings.Repeat("v", 3000)}
	}
	for range 10 { // 30 MB, more than the kernel takes for a client
		a.records(topic, batch...)
	}
	a.user("ms.stuck")
	a.rule("ms.stuck", rule{"allow", "literal", "read", "group", "ms.stuck"})
	a.rule("ms.stuck", rule{"allow", "literal", "read", "topic", "ms.stuck"})
	res := a.slowly(a.login("ms.stuck"), "text/event-stream", m.path+"/records")
	other := a.reader("ms.others", "ms.stuck")
	other.owns(1)
	require.Len(t, other.read("max_records=10")["records"], 10)
	wants(t, a.remove("/v1/acls?principal=User:ms.stuck&resource_type=group"), 200, "")
	<-time.After(2 * time.Second) // a stream is looked at every half second
	b, err := io.ReadAll(res.Body)
	if err == nil {
		require.Contains(t, string(b[max(0, len(b)-1000):]), `"code":"forbidden"`)
	}
	require.Less(t, len(b), 30<<20)
}
