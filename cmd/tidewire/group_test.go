package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"

	"tidewire/internal/client/clienttest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const aGroup = `{"group":"a/b","state":"stable","members":[
	{"member_id":"m-1","client_id":"one","host":"10.0.0.1","assignment":[{"topic":"t","partitions":[0,1]}],"revoking":[]},
	{"member_id":"m-2","client_id":null,"host":"10.0.0.2","assignment":[],"revoking":[]}],
	"offsets":[{"topic":"t","partition":0,"next_offset":3,"high_watermark":10,"lag":7,"member_id":"m-1"},
	{"topic":"t","partition":1,"next_offset":null,"high_watermark":5,"lag":null,"member_id":"m-1"},
	{"topic":"u","partition":0,"next_offset":1,"high_watermark":1,"lag":0,"member_id":null}]}`

func TestAGroupIsDescribedAsKafkasToolDoes(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.Reply("GET", "/v1/groups/a%2Fb", 200, aGroup)
	sh := newShell(t, s)
	want := []string{
		"GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID",
		"a/b t 0 3 10 7 m-1 10.0.0.1 one", "a/b t 1 - 5 - m-1 10.0.0.1 one", "a/b u 0 1 1 0 - - -", "a/b - - - - - m-2 10.0.0.2 -",
	}
	var got []string
	for line := range strings.Lines(sh.ok("", "group", "describe", "a/b")) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	assert.Equal(t, want, got)
	assert.JSONEq(t, aGroup, sh.ok("", "group", "describe", "a/b", "-o", "json"))
}

func TestGroupsAreListedAndTheirNamesCompleted(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.Reply("GET", "/v1/groups", 200, `{"items":[{"group":"a b","state":"empty","members":0,"topics":["t","u"],"total_lag":7,"coordinator":1}],"next_page_token":null,"total":1}`)
	sh := newShell(t, s)
	assert.Equal(t, "GROUP  STATE  MEMBERS  TOPICS  TOTAL_LAG  COORDINATOR\na b    empty  0        t,u     7          1\n", sh.ok("", "group", "list"))
	assert.Contains(t, sh.ok("", "group", "list", "-o", "json"), `"total_lag":7`)
	for _, args := range [][]string{{"group", "describe", "a"}, {"group", "reset", "a"}, {"group", "delete", "a"}, {"consume", "t", "--group", "a"}} {
		assert.Equal(t, "a b\n:4\n", sh.ok("", append([]string{"__complete"}, args...)...), args)
		calls := s.Calls()
		assert.Equal(t, "limit=1000&prefix=a", calls[len(calls)-1].Query, args)
	}
}

// A group's name is an argument as it is, and one segment of each path.
func TestEveryGroupNameWorksInEveryCommand(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a/b", "x#y", "p@q", "t:n", "ü", "%2F", "a b+c", "?", strings.Repeat("g", 255)} {
		s := clienttest.New(t)
		s.AddTopic("t", 1)
		path := "/v1/groups/" + url.PathEscape(name)
		s.Reply("GET", path, 200, aGroup)
		s.Reply("POST", path+"/reset-offsets", 200, moves)
		s.Reply("DELETE", path, 200, `{"group":"g","offsets":[]}`)
		s.Reply("POST", path+"/members", 201, `{"member_id":"m-1"}`)
		s.Reply("GET", path+"/members/m-1/records", 200, memberAnswer("c1", 1, "a"))
		s.Reply("POST", path+"/members/m-1/commit", 200, `{"offsets":[]}`)
		s.Reply("DELETE", path+"/members/m-1", 204, "")
		sh := newShell(t, s)
		assert.Contains(t, sh.ok("", "group", "describe", name), "CURRENT-OFFSET")
		assert.Contains(t, sh.ok("", "group", "reset", name, "--to", "earliest", "--yes"), "PARTITION")
		assert.Equal(t, "Deleted group "+name+"\n", sh.ok("", "group", "delete", name))
		assert.Equal(t, "a\n", sh.ok("", "consume", "t", "--group", name, "-o", "value", "--max", "1"), name)
	}
}

// What the node answers to offsets that cannot be is told, with exit code 1.
func TestARefusedResetSaysWhy(t *testing.T) {
	t.Parallel()
	for args, detail := range map[string]string{
		"--to offset --value 9223372036854775807 -y": "offset 9223372036854775807 is beyond the end",
		"--to earliest --topic gone -y":              `there is no topic "gone"`,
		"--to earliest --topic t -p 7 -y":            "7 is none of them",
		"--to latest -y":                             "the group has members",
	} {
		s := clienttest.New(t)
		b, err := json.Marshal(map[string]any{"type": "about:blank", "title": "x", "status": 422, "code": "invalid-argument", "detail": detail})
		require.NoError(t, err)
		s.Reply("POST", "/v1/groups/g/reset-offsets", 422, string(b))
		code, out, errOut := newShell(t, s).run("", append([]string{"group", "reset", "g"}, strings.Fields(args)...)...)
		assert.NotZero(t, code, args)
		assert.Empty(t, out, args)
		assert.Contains(t, errOut, detail, args)
	}
	s := clienttest.New(t)
	code, _, errOut := newShell(t, s).run("", "group", "reset", "g", "--to", "offset", "--value", "-1", "-y")
	assert.Equal(t, 2, code)
	assert.Contains(t, errOut, "--value must not be negative")
	assert.Empty(t, s.Calls(), "a negative offset is not even asked for")
}

const moves = `{"offsets":[{"topic":"t","partition":0,"from":5,"to":0},{"topic":"t","partition":1,"from":null,"to":2}]}`

func TestAResetShowsWhatItWouldDoAndAsks(t *testing.T) {
	t.Parallel()
	const table = "TOPIC  PARTITION  FROM  TO\nt      0          5     0\nt      1          -     2\n"
	for _, c := range []struct {
		in, args, body string
		queries        []string // of the calls
		code           int
		out            string
	}{
		{"", "--to earliest --dry-run", `{"to":"earliest"}`, []string{"dry_run=true"}, 0, table},
		{"", "--to earliest --yes", `{"to":"earliest"}`, []string{""}, 0, table},
		{"", "--to latest --execute", `{"to":"latest"}`, []string{""}, 0, table},
		{"y\n", "--to latest", `{"to":"latest"}`, []string{"dry_run=true", ""}, 0, table + "Moved the offsets\n"},
		{"YES", "--to shift --value -3 --topic t --topic u", `{"to":"shift","topics":["t","u"],"value":-3}`, []string{"dry_run=true", ""}, 0, table + "Moved the offsets\n"},
		{"no\n", "--to latest", `{"to":"latest"}`, []string{"dry_run=true"}, 1, table},
		{"", "--to latest", `{"to":"latest"}`, []string{"dry_run=true"}, 1, table},
		{"", "--to timestamp --value 0 --topic t -p 1,2 -y", `{"partitions":[{"partition":1,"topic":"t"},{"partition":2,"topic":"t"}],"to":"timestamp","value":0}`, []string{""}, 0, table},
		{"", "--to offset --value 9 -y -o json", `{"to":"offset","value":9}`, []string{""}, 0, moves + "\n"},
	} {
		s := clienttest.New(t)
		s.Reply("POST", "/v1/groups/g/reset-offsets", 200, moves)
		code, out, errOut := newShell(t, s).run(c.in, append([]string{"group", "reset", "g"}, strings.Fields(c.args)...)...)
		assert.Equal(t, c.code, code, "%s: %s", c.args, errOut)
		assert.Equal(t, c.out, out, c.args)
		var queries []string
		for _, call := range s.Calls() {
			queries = append(queries, call.Query)
			assert.JSONEq(t, c.body, call.Body, c.args)
		}
		assert.Equal(t, c.queries, queries, c.args)
		if c.code != 0 {
			assert.Contains(t, errOut, "nothing was changed")
		}
	}
}

func TestAGroupIsDeleted(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.Reply("DELETE", "/v1/groups/a%2Fb", 200, `{"group":"a/b","offsets":[{"topic":"t","partition":3}]}`)
	sh := newShell(t, s)
	assert.Equal(t, "TOPIC  PARTITION\nt      3\n", sh.ok("", "group", "delete", "a/b", "--dry-run"))
	assert.Equal(t, "Deleted group a/b\n", sh.ok("", "group", "delete", "a/b"))
	assert.Equal(t, "dry_run=true", s.Calls()[0].Query)
	assert.Empty(t, s.Calls()[1].Query)
}

// memberAnswer is an answer to a member's read.
func memberAnswer(cursor string, next int, values ...string) string {
	records := make([]string, len(values))
	for i, v := range values {
		b, _ := json.Marshal(v)
		records[i] = fmt.Sprintf(`{"topic":"t","partition":0,"offset":%d,"timestamp":1,"timestamp_type":"create_time","key":null,"key_encoding":null,"value":%s,"value_encoding":"text","headers":[]}`, next-len(values)+i, b)
	}
	return fmt.Sprintf(`{"records":[%s],"assignment":{"epoch":1,"partitions":[{"topic":"t","partition":0}],"revoking":[],"pending":false},"cursor":%q,"positions":[{"topic":"t","partition":0,"next_offset":%d}]}`,
		strings.Join(records, ","), cursor, next)
}

// What is committed was written; a member leaves at its end.
func TestAMemberCommitsWhatItHasWrittenAndLeaves(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.AddTopic("t", 1)
	s.Reply("POST", "/v1/groups/g/members", 201, `{"member_id":"m-1"}`)
	s.Reply("GET", "/v1/groups/g/members/m-1/records", 200, memberAnswer("c1", 2, "a", "b"))
	s.Reply("POST", "/v1/groups/g/members/m-1/commit", 200, `{"offsets":[]}`)
	s.Reply("DELETE", "/v1/groups/g/members/m-1", 204, "")
	sh := newShell(t, s)
	require.Equal(t, "a\nb\n", sh.ok("", "consume", "t", "--group", "g", "-o", "value"))
	var got []string
	for _, c := range s.Calls() {
		got = append(got, c.Method+" "+strings.TrimPrefix(c.Path, "/v1/")+" "+c.Query+" "+c.Body)
	}
	assert.Equal(t, []string{
		"GET topics/t/offsets timestamp=latest ",
		`POST groups/g/members  {"auto_offset_reset":"earliest","client_id":"tidewire-cli","session_timeout_ms":30000,"topics":["t"]}`,
		"GET groups/g/members/m-1/records max_records=500&wait_ms=1000 ",
		`POST groups/g/members/m-1/commit  {"cursor":"c1"}`,
		"DELETE groups/g/members/m-1  ",
	}, got)

	require.Equal(t, "a\nb\n", sh.ok("", "consume", "t", "--group", "g", "-o", "value", "--follow", "--max", "2"))
	calls := s.Calls()[len(got):]
	assert.Contains(t, calls[0].Body, `"auto_offset_reset":"latest"`)
	assert.Equal(t, "max_records=2&wait_ms=10000", calls[1].Query)
	assert.Equal(t, "DELETE", calls[3].Method)
}

// A record whose output failed is not committed, so that it comes again.
func TestWhatCouldNotBeWrittenIsNotCommitted(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.AddTopic("t", 1)
	s.Reply("POST", "/v1/groups/g/members", 201, `{"member_id":"m-1"}`)
	s.Reply("GET", "/v1/groups/g/members/m-1/records", 200, memberAnswer("c1", 2, "a", "b"))
	s.Reply("DELETE", "/v1/groups/g/members/m-1", 204, "")
	sh := newShell(t, s)
	a := sh.app(strings.NewReader(""), brokenWriter{}, io.Discard)
	assert.Equal(t, 1, a.run(t.Context(), []string{"consume", "t", "--group", "g", "-o", "value"}))
	for _, c := range s.Calls() {
		assert.NotContains(t, c.Path, "commit")
	}
	calls := s.Calls()
	assert.Equal(t, "DELETE", calls[len(calls)-1].Method, "it leaves all the same")
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, fmt.Errorf("the pipe is broken") }

// A member whose session has ended joins again.
func TestAnExpiredMemberJoinsAgain(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.AddTopic("t", 1)
	s.Reply("POST", "/v1/groups/g/members", 201, `{"member_id":"m-1"}`)
	s.Reply("GET", "/v1/groups/g/members/m-1/records", 410, `{"status":410,"code":"member-expired","detail":"the session has expired"}`)
	sh := newShell(t, s)
	joins := 0
	s.OnCall(func(c clienttest.Call) {
		if c.Method == "POST" && strings.HasSuffix(c.Path, "/members") {
			if joins++; joins == 2 {
				s.Reply("POST", "/v1/groups/g/members", 201, `{"member_id":"m-2"}`)
				s.Reply("GET", "/v1/groups/g/members/m-2/records", 200, memberAnswer("c", 0))
				s.Reply("DELETE", "/v1/groups/g/members/m-2", 204, "")
			}
		}
	})
	code, _, errOut := sh.run("", "consume", "t", "--group", "g")
	assert.Zero(t, code, errOut)
	assert.Contains(t, errOut, "joining the group again")
	assert.Equal(t, 2, joins)
}
