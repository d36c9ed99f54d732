package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// list is what a list command prints with -o json.
type list struct {
	Items []map[string]any `json:"items"`
	Total int              `json:"total"`
}

func parse[T any](t *testing.T, out string) T {
	t.Helper()
	var v T
	dec := json.NewDecoder(strings.NewReader(out))
	require.NoError(t, dec.Decode(&v), out)
	require.False(t, dec.More(), "one JSON value: %s", out)
	return v
}

func names(l list, member string) []any {
	out := []any{}
	for _, i := range l.Items {
		out = append(out, i[member])
	}
	return out
}

func TestTopicsByCommand(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	token := admin(t, n).token
	run := func(args ...string) string { return n.must(t, token, "", args...) }
	require.Contains(t, run("topic", "create", "a", "-p", "2", "-c", "retention.ms=-1"), "Created topic a with 2 partitions")
	created := parse[map[string]any](t, run("topic", "create", "b", "-o", "json"))
	require.Equal(t, "b", created["name"])
	require.Equal(t, []any{"a", "b"}, names(parse[list](t, run("topic", "list", "-o", "json")), "name"))
	require.Equal(t, []any{"b"}, names(parse[list](t, run("topic", "list", "--prefix", "b", "-o", "json")), "name"))
	require.Regexp(t, `(?m)^NAME +PARTITIONS .*\na +2 `, run("topic", "list"))
	require.Regexp(t, `(?m)^PARTITION +LEADER`, run("topic", "describe", "a"))
	require.Len(t, parse[map[string]any](t, run("topic", "describe", "a", "-o", "json"))["partitions"], 2)

	run("topic", "config", "set", "a", "segment.bytes=70000", "cleanup.policy=compact", "--unset", "retention.ms")
	got := parse[list](t, run("topic", "config", "get", "a", "segment.bytes", "retention.ms", "-o", "json"))
	require.Equal(t, []any{"70000", "604800000"}, names(got, "value"))
	require.Equal(t, []any{"topic", "default"}, names(got, "source"))
	require.Regexp(t, `(?m)^cleanup.policy +compact +topic`, run("topic", "config", "get", "a"))
	require.Contains(t, run("topic", "partitions", "grow", "a", "5"), "5 partitions")
	require.Len(t, parse[map[string]any](t, run("topic", "describe", "a", "-o", "json"))["partitions"], 5)
	run("topic", "delete", "a", "b")
	require.Empty(t, parse[list](t, run("topic", "list", "-o", "json")).Items)

	for name, x := range map[string]struct {
		code int
		args []string
		says string
	}{
		"missing":        {1, []string{"describe", "none"}, "none"},
		"bad name":       {1, []string{"create", "a/b"}, ""},
		"bad setting":    {1, []string{"create", "x", "-c", "retention.ms=soon"}, "retention.ms"},
		"no setting":     {1, []string{"create", "x", "-c", "no.such=1"}, "no.such"},
		"not a setting":  {2, []string{"create", "x", "-c", "retention.ms"}, "key=value"},
		"no name":        {2, []string{"create"}, ""},
		"not a number":   {2, []string{"partitions", "grow", "x", "many"}, "many"},
		"unknown format": {2, []string{"list", "-o", "xml"}, "xml"},
		"unknown":        {2, []string{"paint"}, "paint"},
	} {
		r := n.cli(t, token, "", append([]string{"topic"}, x.args...)...)
		require.Equal(t, x.code, r.code, "%s: %s", name, r.err)
		require.Contains(t, r.err, x.says, name)
		require.Empty(t, r.out, name)
	}
}

func TestLoginsUsersAndRulesByCommand(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	env := append(plainEnv(n.home), "XDG_CONFIG_HOME="+filepath.Join(n.home, "settings"))
	run := func(stdin string, args ...string) ran { return runEnv(t, env, strings.NewReader(stdin), args...) }
	must := func(stdin string, args ...string) string {
		r := run(stdin, args...)
		require.Zero(t, r.code, "%v: %s", args, r.err)
		return r.out
	}
	require.Equal(t, 1, run("wrong\n", "login", n.URL(), "--username", "admin", "--password-stdin").code)
	require.Equal(t, 2, run("", "login", n.URL(), "--password-stdin").code, "without a user")
	require.Equal(t, 2, run("x\n", "login", "ftp://x", "-u", "admin", "--password-stdin").code, "a bad address")
	require.Contains(t, must("tidewire\n", "login", n.URL(), "--username", "admin", "--password-stdin"), "Logged in to "+n.URL()+" as admin")

	must("alice-password\n", "user", "create", "alice", "--password-stdin") // the stored login is used from here on
	made := parse[map[string]any](t, must("bob-password\n", "user", "create", "bob", "--admin", "--password-stdin", "-o", "json"))
	require.Equal(t, true, made["admin"])
	require.ElementsMatch(t, []any{"admin", "alice", "bob"}, names(parse[list](t, must("", "user", "list", "-o", "json")), "username"))
	require.Contains(t, must("", "user", "list"), "USERNAME")
	require.Equal(t, false, parse[map[string]any](t, must("", "user", "describe", "alice", "-o", "json"))["disabled"])
	must("", "user", "disable", "alice")
	require.Equal(t, 401, newAPI(t, n).refused(t, "POST", "/v1/auth/login", map[string]string{"username": "alice", "password": "alice-password"}).Status)
	must("", "user", "enable", "alice")
	must("alice-second\n", "user", "set-password", "alice", "--password-stdin")
	alice := login(t, n, "alice", "alice-second")

	must("", "topic", "create", "t")
	require.Equal(t, 403, alice.refused(t, "POST", "/v1/topics/t/records", []byte(`{"records":[{"value":1}]}`)).Status)
	rules := parse[list](t, must("", "acl", "create", "--principal", "alice", "--topic", "t", "--operation", "write", "--operation", "describe", "-o", "json"))
	require.Equal(t, []any{"write", "describe"}, names(rules, "operation"))
	require.Equal(t, []any{"User:alice", "User:alice"}, names(rules, "principal"))
	alice.must(t, "POST", "/v1/topics/t/records", []byte(`{"records":[{"value":1}]}`), nil)
	require.Equal(t, 403, alice.refused(t, "GET", "/v1/topics/t/partitions/0/records?offset=0", nil).Status)
	require.Equal(t, 1, parse[list](t, must("", "acl", "list", "--operation", "write", "-o", "json")).Total)
	require.Contains(t, must("", "acl", "list"), "PRINCIPAL")
	deleted := parse[map[string][]any](t, must("", "acl", "delete", "--principal", "alice", "--operation", "write", "-o", "json"))
	require.Len(t, deleted["deleted"], 1)
	require.Equal(t, 403, alice.refused(t, "POST", "/v1/topics/t/records", []byte(`{"records":[{"value":1}]}`)).Status)
	require.Equal(t, 2, run("", "acl", "delete").code, "deletes nothing without a flag")
	require.Equal(t, 2, run("", "acl", "create", "--principal", "alice").code)

	denied := n.cli(t, alice.token, "", "user", "list")
	require.Equal(t, 1, denied.code)
	none := n.cli(t, "garbage", "", "topic", "list")
	require.Equal(t, 1, none.code)
	require.Contains(t, none.err, "tidewire login", "it says what to do")
	must("", "user", "delete", "alice")
	require.Equal(t, 1, run("", "user", "describe", "alice").code)
	require.Equal(t, 1, run("short\n", "user", "create", "admin", "--password-stdin").code, "exists, or the password is too short")
}

func TestRecordsByCommand(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	a := admin(t, n)
	a.createTopic(t, "t", 2, nil)
	must := func(stdin string, args ...string) string { return n.must(t, a.token, stdin, args...) }

	must("one\ntwo\n\nfour", "produce", "t", "--format", "lines")
	require.ElementsMatch(t, []string{"one", "two", "", "four"}, strings.Split(strings.TrimSuffix(must("", "consume", "t", "-o", "value"), "\n"), "\n"))
	must(`{"value":{"id":"k1","n":1.0}}`+"\n\n", "produce", "t", "--key-field", "id", "--batch-size", "1", "--linger-ms", "0")
	all := parseLines(t, must("", "consume", "t"))
	require.Len(t, all, 5)
	last := all[0]
	for _, r := range all {
		if r.Key != nil {
			last = r
		}
	}
	require.Equal(t, "k1", string(last.Key))
	require.Equal(t, `{"id":"k1","n":1.0}`, string(last.Value))
	one := parseLines(t, must("", "consume", "t", "--partition", fmt.Sprint(last.Partition), "--offset", fmt.Sprint(last.Offset), "--max", "1"))
	require.Equal(t, []rec{last}, one)
	require.Equal(t, string(last.Value), must("", "consume", "t", "--partition", fmt.Sprint(last.Partition), "--offset", fmt.Sprint(last.Offset), "-o", "raw"))
	require.Empty(t, must("", "consume", "t", "--from", "latest"))
	require.Len(t, parseLines(t, must("", "consume", "t", "--from", fmt.Sprint(last.Timestamp))), 1)
	must("{\"value\":0}\n", "produce", "t", "--acks", "leader")
	accepted := n.cli(t, a.token, "{\"value\":0}\n", "produce", "t", "--acks", "0")
	require.Zero(t, accepted.code, accepted.err)
	require.Contains(t, accepted.err, "unconfirmed")

	stopped := n.cli(t, a.token, "{\"value\":\"before\"}\n{\"value\":\"b2\"}\nplain words\n{\"value\":\"after\"}\n", "produce", "t", "-o", "json")
	require.Equal(t, 1, stopped.code)
	require.Contains(t, stopped.err, "line 3")
	require.Contains(t, stopped.err, "--format lines")
	require.EqualValues(t, 2, parse[map[string]any](t, stopped.out)["records"], "what came before is stored")
	require.NotContains(t, must("", "consume", "t", "-o", "value"), "after")
	for name, x := range map[string]struct {
		code int
		args []string
	}{
		"unknown topic":         {1, []string{"produce", "none"}},
		"unknown topic to read": {1, []string{"consume", "none"}},
		"no such partition":     {1, []string{"consume", "t", "--partition", "7"}},
		"beyond the end":        {1, []string{"consume", "t", "--partition", "0", "--offset", "1000"}},
		"bad acks":              {2, []string{"produce", "t", "--acks", "some"}},
		"bad batch":             {2, []string{"produce", "t", "--batch-size", "0"}},
		"bad from":              {2, []string{"consume", "t", "--from", "yesterday"}},
		"offset alone":          {2, []string{"consume", "t", "--offset", "1"}},
		"no topic":              {2, []string{"produce"}},
	} {
		r := n.cli(t, a.token, "{\"value\":1}\n", x.args...)
		require.Equal(t, x.code, r.code, "%s: %s", name, r.err)
		require.Empty(t, r.out, name)
	}
	unreachable := runEnv(t, append(plainEnv(n.home), "TIDEWIRE_SERVER=http://127.0.0.1:1"), strings.NewReader("{\"value\":1}\n"), "produce", "t")
	require.Equal(t, 1, unreachable.code)
	require.Contains(t, unreachable.err, "127.0.0.1:1")
}

func TestFollowingGoesOnThroughARestart(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.args = append(n.args, "--http-listen", freeAddress(t)) // one address for both processes
	n.start(t)
	a := admin(t, n)
	a.createTopic(t, "t", 1, nil)
	follow := exec.Command(binary, "consume", "t", "--follow", "--from", "earliest", "-o", "value")
	follow.Env = append(plainEnv(n.home), "TIDEWIRE_SERVER="+n.URL(), "TIDEWIRE_TOKEN="+a.token)
	out, err := follow.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, follow.Start())
	t.Cleanup(func() { _ = follow.Process.Kill() })
	lines := bufio.NewScanner(out)
	for i := range 6 {
		if i == 3 {
			n.restart(t, false)
		}
		n.must(t, a.token, fmt.Sprintf("record %d\n", i), "produce", "t", "--format", "lines")
		require.True(t, lines.Scan(), "record %d: %v", i, lines.Err())
		require.Equal(t, fmt.Sprintf("record %d", i), lines.Text())
	}
	require.NoError(t, follow.Process.Signal(syscall.SIGINT))
	require.False(t, lines.Scan())
	require.NoError(t, follow.Wait(), "an interrupt is how it ends")
}

// freeAddress is a loopback address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func TestWebSocketByCommand(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	a := admin(t, n)
	a.createTopic(t, "t", 1, nil)
	n.must(t, a.token, "a\nb\nc\n", "produce", "t", "--format", "lines")
	subscribe := `{"op":"subscribe","topics":["t"],"from":"earliest"}` + "\n"
	frames := strings.Split(strings.TrimSpace(n.must(t, a.token, subscribe, "ws", "/v1/ws/consume", "--records", "3")), "\n")
	require.Equal(t, "subscribed", parse[map[string]any](t, frames[0])["op"])
	require.Equal(t, "assigned", parse[map[string]any](t, frames[1])["op"])
	require.Contains(t, frames[2], `"value":"a"`)
	require.Len(t, strings.Split(strings.TrimSpace(n.must(t, a.token, subscribe, "ws", "/v1/ws/consume", "--count", "2")), "\n"), 2)
	short := n.cli(t, a.token, subscribe, "ws", "/v1/ws/consume", "--records", "4", "--wait", "300ms")
	require.Equal(t, 1, short.code, "a fourth record never comes")
	bad := n.cli(t, a.token, "{\"op\":\"dance\"}\n", "ws", "/v1/ws/consume")
	require.Contains(t, bad.out, `"error"`)
	require.Equal(t, 1, n.cli(t, "garbage", subscribe, "ws", "/v1/ws/consume").code)
	require.Equal(t, 1, n.cli(t, a.token, "", "ws", "/v1/no/such/socket").code)
	require.Equal(t, 2, n.cli(t, a.token, "", "ws", "v1").code)
	require.Equal(t, 2, n.cli(t, a.token, "", "ws", "/v1/ws/consume", "--count", "-1").code)
}

func TestProducingOverAWebSocketByCommand(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	a := admin(t, n)
	a.createTopic(t, "t", 1, nil)
	var in strings.Builder
	for i := range 300 {
		fmt.Fprintf(&in, `{"op":"produce","id":%d,"topic":"t","records":[{"value":"%d"}]}`+"\n", i, i)
	}
	frames := strings.Split(strings.TrimSpace(n.must(t, a.token, in.String(), "ws", "/v1/ws/produce", "--count", "300")), "\n")
	require.Len(t, frames, 300)
	for i, f := range frames {
		got := parse[map[string]any](t, f)
		require.Equal(t, "produced", got["op"])
		require.EqualValues(t, i, got["id"])
		require.EqualValues(t, i, got["results"].([]any)[0].(map[string]any)["offset"])
	}
	records := a.readPartition(t, "t", 0, 1000)
	require.Len(t, records, 300)
	require.Equal(t, "299", string(records[299].Value))
}

func TestMeasurementsByCommand(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	a := admin(t, n)
	a.createTopic(t, "t", 2, nil)
	run := func(args ...string) string { return n.must(t, a.token, "", append([]string{"bench"}, args...)...) }
	for _, acks := range []string{"all", "leader", "none"} {
		r := parse[map[string]any](t, run("produce", "--topic", "t", "--records", "500", "--batch", "10", "--connections", "2", "--acks", acks, "-o", "json"))
		require.EqualValues(t, 500, r["records"], "%v", r)
		require.EqualValues(t, 0, r["errors"])
	}
	require.NotEmpty(t, run("produce", "--topic", "t", "--records", "20", "--batch", "1", "--connections", "2", "--keys", "3"))
	r := parse[map[string]any](t, run("consume", "--topic", "t", "--records", "1000", "-o", "json"))
	require.GreaterOrEqual(t, r["records"], float64(1000))
	r = parse[map[string]any](t, run("latency", "--topic", "t", "--records", "20", "-o", "json"))
	require.EqualValues(t, 20, r["records"])
	r = parse[map[string]any](t, run("fanout", "--topic", "t", "--readers", "5", "--records", "500", "--batch", "50", "--window", "100", "-o", "json"))
	require.EqualValues(t, 2500, r["records"], "%v", r)
	require.EqualValues(t, 0, r["errors"])
	r = parse[map[string]any](t, run("idle", "--topic", "t", "--connections", "20", "--hold", "0s", "-o", "json"))
	require.EqualValues(t, 20, r["requests"])
	require.Positive(t, r["memory"].(map[string]any)["with_sockets_bytes"])
	require.Equal(t, 2, n.cli(t, a.token, "", "bench", "produce").code, "without a topic")
	require.Equal(t, 1, n.cli(t, a.token, "", "bench", "produce", "--topic", "none", "--records", "10").code)
	require.Equal(t, 2, n.cli(t, a.token, "", "bench", "produce", "--topic", "t", "--records", "-1").code)
}

func TestClusterVersionAndHelpByCommand(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	a := admin(t, n)
	status := parse[map[string]any](t, n.must(t, a.token, "", "cluster", "status", "-o", "json"))
	require.NotEmpty(t, status["cluster_id"])
	require.Len(t, status["brokers"], 1)
	require.Regexp(t, `(?m)^ID +HOST`, n.must(t, a.token, "", "cluster", "status"))
	require.NotEqual(t, n.must(t, "", "", "cluster", "keygen"), n.must(t, "", "", "cluster", "keygen"))
	require.Regexp(t, `^tidewire \S+ \(go`, n.must(t, "", "", "version"))
	require.NotEmpty(t, parse[map[string]string](t, n.must(t, "", "", "version", "-o", "json"))["version"])
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		require.Contains(t, n.must(t, "", "", "completion", shell), "tidewire")
	}
	script := filepath.Join(n.home, "completion")
	require.NoError(t, os.WriteFile(script, []byte(n.must(t, "", "", "completion", "bash")), 0o600))
	require.NoError(t, exec.Command("bash", "-n", script).Run())
	require.Equal(t, 2, n.cli(t, "", "", "completion", "abacus").code)
	require.Contains(t, n.must(t, "", "", "--help"), "serve")
	require.Zero(t, n.cli(t, "", "", "serve", "--help").code)
	require.Equal(t, 2, n.cli(t, "", "").code, "a command is needed")
	require.Equal(t, 2, n.cli(t, "", "", "no-such-command").code)
	down := runEnv(t, plainEnv(n.home), nil, "cluster", "status", "--server", "http://127.0.0.1:1")
	require.Equal(t, 1, down.code)
	require.Equal(t, 2, runEnv(t, plainEnv(n.home), nil, "cluster", "status", "--server", "127.0.0.1:1:1").code)
	require.Less(t, len(down.err), 300, "no trace: %s", down.err)
}
