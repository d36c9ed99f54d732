package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"tidewire/internal/client/clienttest"
	"tidewire/storage/record"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shell runs command lines against one server, with a folder for logins.
type shell struct {
	t   *testing.T
	dir string
	env map[string]string
}

func newShell(t *testing.T, s *clienttest.Server) *shell {
	sh := &shell{t: t, dir: t.TempDir(), env: map[string]string{}}
	if s != nil {
		sh.env["TIDEWIRE_SERVER"], sh.env["TIDEWIRE_TOKEN"] = s.URL, clienttest.APIToken
	}
	return sh
}

// run returns the exit code, standard output and standard error.
func (sh *shell) run(in string, args ...string) (int, string, string) {
	var out, errOut bytes.Buffer
	a := &app{
		in: strings.NewReader(in), out: &out, errOut: &errOut, now: time.Now,
		getenv:   func(k string) string { return sh.env[k] },
		storeDir: func() (string, error) { return sh.dir, nil },
		readPassword: func(string, io.Writer) (string, error) {
			return "", errors.New("no terminal")
		},
	}
	code := a.run(context.Background(), args)
	return code, out.String(), errOut.String()
}

// ok runs a command line that must succeed and returns its standard output.
func (sh *shell) ok(in string, args ...string) string {
	sh.t.Helper()
	code, out, errOut := sh.run(in, args...)
	require.Zero(sh.t, code, "%v: %s", args, errOut)
	return out
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.AddTopic("t", 1)
	sh := newShell(t, s)
	for _, c := range []struct {
		args string
		code int
	}{
		{"--help", 0}, {"topic --help", 0}, {"version", 0}, {"--version", 0}, {"cluster keygen", 0}, {"completion bash", 0}, {"consume t", 0},
		{"consume none", 1}, {"consume t --q x", 0}, {"group list --all x", 1}, {"backup", 1}, {"quota set u --rate 3", 2}, {"context use none", 1}, {"context show", 0},
		{"context set", 2}, {"context set a", 2}, {"context set -- -a", 2}, {"context set a --server ftp://x", 2}, {"context delete", 2}, {"context list a", 2},
		{"topic list --context none", 1}, {"logout --token x", 2}, {"login -u a --token x", 2}, {"logout", 1},
		{"produce t --key k", 2}, {"produce t --format lines --header x", 2}, {"produce t --format lines -p -1", 2}, {"produce t --format lines --key k --key-field f", 2},
		{"consume t --q x --offset 3 --partition 0", 2}, {"consume t --to soon", 2}, {"consume t --to 5 -f", 2}, {"consume t --q-in key", 2},
		{"user update bob", 2}, {"acl check --principal a", 2}, {"acl check --principal a --topic t --operation read --pattern literal", 2}, {"topic config unset t", 2},
		{"topic delete-records t -p -1 --before-offset 3", 2}, {"topic describe none", 1}, {"topic list", 1}, {"consume t --group g", 1}, {"ws /v1/ws/other", 1},
		{"", 2}, {"nonsense", 2}, {"topic", 2}, {"topic nonsense", 2}, {"topic describe", 2}, {"topic describe a b", 2},
		{"topic list --nonsense", 2}, {"topic list -o yaml", 2}, {"produce", 2}, {"produce t --acks some", 2}, {"produce t --format csv", 2},
		{"produce t --batch-size 0", 2}, {"produce t --batch-size x", 2}, {"consume", 2}, {"consume t --from yesterday", 2}, {"consume t --from -5", 2},
		{"consume t --max -1", 2}, {"consume t --offset 3", 2}, {"consume t --offset 3 --partition 0 --from latest", 2}, {"consume t -o table", 2},
		{"ws", 2}, {"ws v1", 2}, {"ws /v1 --count -1", 2}, {"login", 2}, {"login ftp://x -u a", 2}, {"acl create", 2}, {"acl delete", 2},
		{"acl list --topic t --group g", 2}, {"topic config set t", 2}, {"topic delete-records t -p 0", 2},
		{"topic delete-records t --before-offset 3", 2}, {"topic delete-records t -p 0 --before-offset -3", 2}, {"topic delete-records t -p 0 --before-offset latest", 2}, {"topic config set t novalue", 2}, {"topic partitions grow t many", 2},
		{"bench produce", 2}, {"bench fanout --topic t --readers 0", 2}, {"bench fanout", 2}, {"bench idle --topic t --pid -1", 2}, {"bench consume --topic t --connections 0", 2}, {"topic list --server ftp://x", 2},
	} {
		code, _, errOut := sh.run("", strings.Fields(c.args)...)
		assert.Equal(t, c.code, code, "%s: %s", c.args, errOut)
		assert.Equal(t, code != 0, strings.HasPrefix(errOut, "tidewire: "), "%s: %q", c.args, errOut)
		assert.Equal(t, code == 2, strings.Contains(errOut, "--help"), c.args)
	}
}

func TestALoginIsUsedWithoutFlags(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.AddTopic("t", 2)
	sh := newShell(t, nil)
	code, _, errOut := sh.run("", "topic", "describe", "t", "--server", s.URL)
	assert.Equal(t, 1, code)
	assert.Contains(t, errOut, "tidewire login SERVER")
	code, _, errOut = sh.run("wrong\n", "login", s.URL, "--username", "alice", "--password-stdin")
	assert.Equal(t, 1, code)
	assert.Contains(t, errOut, "bad-credentials (401)")
	code, _, errOut = sh.run("", "login", s.URL, "--username", "alice")
	assert.Equal(t, 1, code)
	assert.Contains(t, errOut, "no terminal")
	out := sh.ok("secret\n", "login", s.URL, "--username", "alice", "--password-stdin")
	assert.Equal(t, "Logged in to "+s.URL+" as alice (context "+strings.TrimPrefix(s.URL, "http://")+")\n", out)
	assert.NotContains(t, out+errOut, "secret")
	assert.Contains(t, sh.ok("", "topic", "describe", "t"), "PARTITION")
	s.EndSessions()
	sh.ok("", "topic", "describe", "t")
	issued, reused := s.Issued()
	assert.Equal(t, 2, issued)
	assert.Zero(t, reused)
}

func TestFlagsWinOverEnvironmentOverLogin(t *testing.T) {
	t.Parallel()
	a, b := clienttest.New(t), clienttest.New(t)
	a.AddTopic("t", 1)
	b.AddTopic("t", 2)
	sh := newShell(t, nil)
	sh.ok("secret", "login", a.URL, "-u", "alice", "--password-stdin")
	sh.ok("secret", "login", b.URL, "-u", "bob", "--password-stdin")
	count := func(args ...string) int {
		return strings.Count(sh.ok("", append([]string{"topic", "describe", "t", "-o", "json"}, args...)...), `"partition":`)
	}
	assert.Equal(t, 2, count(), "the last login is the current one")
	assert.Equal(t, 1, count("--server", a.URL), "with the login to that server")
	sh.env["TIDEWIRE_SERVER"] = a.URL
	assert.Equal(t, 1, count())
	assert.Equal(t, 2, count("--server", b.URL))
	sh.env["TIDEWIRE_TOKEN"] = "bad"
	code, _, _ := sh.run("", "topic", "describe", "t")
	assert.Equal(t, 1, code, "the environment's token wins over the login's")
	assert.Equal(t, 1, count("--token", clienttest.APIToken))
}

func TestProduceAndConsumeThroughThePipe(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.AddTopic("a", 2)
	s.AddTopic("b", 2)
	sh := newShell(t, s)
	code, out, errOut := sh.run("{\"key\":\"k\",\"value\":{\"n\":1.00}}\n{\"value\":\"x\",\"partition\":1}\n", "produce", "a", "--acks", "1")
	require.Zero(t, code, errOut)
	assert.Empty(t, out)
	assert.Regexp(t, `^2 records stored in \d partitions of a in [0-9.]+ s; 0 failed, 0 unknown\n$`, errOut)
	assert.Equal(t, "acks=leader", s.Calls()[0].Query)
	lines := sh.ok("", "consume", "a")
	assert.Equal(t, 2, strings.Count(lines, "\n"))
	sh.ok(lines, "produce", "b")
	for p := range 2 {
		assert.Equal(t, s.Records("a", p), s.Records("b", p))
	}
	assert.Equal(t, "x", sh.ok("", "consume", "b", "--partition", "1", "--max", "1", "-o", "raw", "--offset", "0")[:1])
	out = sh.ok("{}", "produce", "a", "-o", "json")
	assert.Contains(t, out, `{"records":1,"failed":0,"stopped":null,"offsets":[{"partition":`)
}

func TestABadLineExitsOneAndPointsToLines(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.AddTopic("t", 1)
	sh := newShell(t, s)
	code, _, errOut := sh.run("{}\nhello\n", "produce", "t")
	assert.Equal(t, 1, code)
	assert.Contains(t, errOut, "line 2:")
	assert.Contains(t, errOut, "--format lines")
	assert.Contains(t, errOut, "1 records stored")
	sh.ok("hello\n", "produce", "t", "--format", "lines")
	assert.Equal(t, "\nhello\n", sh.ok("", "consume", "t", "-o", "value"))
}

func TestFollowEndsAtMax(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.AddTopic("t", 2)
	s.Append("t", 1, record.Record{Value: []byte("a")}, record.Record{Value: []byte("b")})
	assert.Equal(t, "a\nb\n", newShell(t, s).ok("", "consume", "t", "-f", "--from", "earliest", "--max", "2", "-o", "value"))
}

func TestGroupsAreRefusedInTheServersWords(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	code, _, errOut := newShell(t, s).run("", "consume", "t", "--group", "a/b")
	assert.Equal(t, 1, code)
	assert.Contains(t, errOut, "not-implemented (501)")
	assert.Equal(t, "/v1/groups/a%2Fb/members", s.Calls()[0].Path)
}

func TestWebSocketFramesAreLines(t *testing.T) {
	t.Parallel()
	sh := newShell(t, clienttest.New(t))
	in := `{"op":"a"}` + "\n" + `{"op":"b"}` + "\n"
	assert.Equal(t, in, sh.ok(in, "ws", "/v1/ws/consume", "--count", "2"))
	code, out, errOut := sh.run(in, "ws", "/v1/ws/consume", "--count", "3", "--wait", "50ms")
	assert.Equal(t, 1, code)
	assert.Equal(t, in, out)
	assert.Contains(t, errOut, "before all the frames")
}

// TestAdministration checks what each command asks of the server.
func TestAdministration(t *testing.T) {
	t.Parallel()
	rule := `{"principal":"User:alice","resource_type":"topic","resource_name":"t","pattern":"literal","operation":"read","permission":"allow","host":"*"}`
	for _, c := range []struct {
		args, in           string
		method, path, body string
		status             int
		reply              string
		out                string // part of the output
	}{
		{"topic list --internal --prefix f", "", "GET", "/v1/topics", "", 200,
			`{"items":[{"name":"flights","partitions":6,"replication_factor":1,"health":"ok","records":20000,"size_bytes":null,"cleanup_policy":"delete"}],"next_page_token":null,"total":1}`,
			"flights  6           1                   ok      20000    -           delete\n"},
		{"topic list -o json", "", "GET", "/v1/topics", "", 200, `{"items":[{"name":"f","records":9007199254740993}],"next_page_token":null,"total":1}`,
			`{"items":[{"name":"f","records":9007199254740993}],"next_page_token":null,"total":1}` + "\n"},
		{"topic create t -p 6 -c retention.ms=-1 -c a=b=c", "", "POST", "/v1/topics", `{"config":{"a":"b=c","retention.ms":"-1"},"name":"t","partitions":6}`, 201, `{}`, "Created topic t"},
		{"topic create t --replication-factor 3 -o json", "", "POST", "/v1/topics", `{"config":{},"name":"t","partitions":1,"replication_factor":3}`, 201, `{"name":"t"}`, `{"name":"t"}`},
		{"topic delete t", "", "DELETE", "/v1/topics/t", "", 204, "", "Deleted topic t"},
		{"topic delete t -o json", "", "DELETE", "/v1/topics/t", "", 204, "", `{"results":[{"name":"t","problem":null}]}`},
		{"topic delete-records t --partition 3 --before-offset 17", "", "POST", "/v1/topics/t/delete-records",
			`{"partitions":[{"before_offset":17,"partition":3}]}`, 200, `{"partitions":[{"partition":3,"log_start_offset":20}]}`, "PARTITION  LOG_START_OFFSET\n3          20\n"},
		{"topic delete-records t -p 0 --before-offset high-watermark -o json", "", "POST", "/v1/topics/t/delete-records",
			`{"partitions":[{"before_offset":"high_watermark","partition":0}]}`, 200, `{"partitions":[{"partition":0,"log_start_offset":9}]}`, `"log_start_offset":9`},
		{"topic delete-records t -p 3 --before-offset 17 --dry-run", "", "POST", "/v1/topics/t/delete-records",
			`{"partitions":[{"before_offset":17,"partition":3}]}`, 200, `{"partitions":[{"partition":3,"log_start_offset":20}]}`, "3          20\n"},
		{"topic config get t retention.ms", "", "GET", "/v1/topics/t/config", "", 200,
			`{"items":[{"name":"x","value":"1"},{"name":"retention.ms","value":"-1","source":"topic","default":"604800000","unit":"ms"}]}`, "retention.ms  -1     topic   604800000  ms\n"},
		{"topic config set t a=1 b= --unset c", "", "PATCH", "/v1/topics/t/config", `{"set":{"a":"1","b":""},"unset":["c"]}`, 200, `{}`, "Changed"},
		{"topic partitions grow t 12", "", "PATCH", "/v1/topics/t", `{"partitions":12}`, 200, `{}`, "12 partitions"},
		{"user list", "", "GET", "/v1/users", "", 200, `{"items":[{"username":"a\u001b[31m","admin":true,"disabled":false}],"next_page_token":null,"total":1}`, "a\ufffd[31m"},
		{"user create bob --admin --password-stdin", "pw\n", "POST", "/v1/users", `{"admin":true,"password":"pw","username":"bob"}`, 201, `{}`, "Created user bob"},
		{"user describe b/c", "", "GET", "/v1/users/b%2Fc", "", 200, `{"username":"b/c","admin":false,"disabled":true}`, "disabled  true"},
		{"user set-password bob --password-stdin", "new", "POST", "/v1/users/bob/set-password", `{"password":"new"}`, 204, "", "Changed the password of bob"},
		{"user set-password bob --password-stdin --current", "new\r\nold\r\n", "POST", "/v1/users/bob/set-password", `{"current_password":"old","password":"new"}`, 204, "", "Changed"},
		{"user disable bob", "", "PATCH", "/v1/users/bob", `{"disabled":true}`, 200, `{"username":"bob","admin":false,"disabled":true}`, "disabled"},
		{"user enable bob", "", "PATCH", "/v1/users/bob", `{"disabled":false}`, 200, `{"username":"bob","admin":false,"disabled":false}`, "disabled  false"},
		{"user update bob --admin=false --disabled", "", "PATCH", "/v1/users/bob", `{"admin":false,"disabled":true}`, 200, `{"username":"bob","admin":false,"disabled":true}`, "admin     false"},
		{"user update bob --admin -o json", "", "PATCH", "/v1/users/bob", `{"admin":true}`, 200, `{"username":"bob"}`, `{"username":"bob"}`},
		{"user delete bob --dry-run", "", "DELETE", "/v1/users/bob", "", 200, `{"username":"bob","sessions":3,"rules":[{"a":1}]}`, "username  bob\nsessions  3\n"},
		{"topic access t", "", "GET", "/v1/topics/t/access", "", 200, `{"items":[` + rule + `],"next_page_token":null,"total":1}`, "User:alice"},
		{"topic config unset t a b", "", "PATCH", "/v1/topics/t/config", `{"set":{},"unset":["a","b"]}`, 200, `{}`, "Changed"},
		{"topic config keys", "", "GET", "/v1/topic-configs", "", 200, `{"items":[{"name":"retention.ms","default":"1","type":"long","unit":"ms","min":-1,"max":null,"allowed_values":[],"doc":"how long"}],"next_page_token":null,"total":1}`, "how long"},
		{"topic delete t --dry-run -o json", "", "DELETE", "/v1/topics/t", "", 200, `{"name":"t","partitions":6}`, `{"items":[{"name":"t","partitions":6}],"next_page_token":null,"total":1}`},
		{"topic partitions grow t 12 --dry-run", "", "PATCH", "/v1/topics/t", `{"partitions":12}`, 200, `{"name":"t","partitions":[{"partition":0}]}`, "name  t\n"},
		{"topic delete-records t -p 0 -p 2 --before-offset 5", "", "POST", "/v1/topics/t/delete-records",
			`{"partitions":[{"before_offset":5,"partition":0},{"before_offset":5,"partition":2}]}`, 200, `{"partitions":[{"partition":0,"log_start_offset":5},{"partition":2,"log_start_offset":5}]}`, "2          5\n"},
		{"acl check --principal alice --topic t --operation read", "", "POST", "/v1/acls/check",
			`{"operation":"read","principal":"User:alice","resource_name":"t","resource_type":"topic"}`, 200, `{"allowed":true,"rule":` + rule + `}`, "allowed  true\nPRINCIPAL"},
		{"acl check --principal alice --group g --operation read --host 1.2.3.4 -o json", "", "POST", "/v1/acls/check",
			`{"host":"1.2.3.4","operation":"read","principal":"User:alice","resource_name":"g","resource_type":"group"}`, 200, `{"allowed":false,"rule":null}`, `{"allowed":false,"rule":null}`},
		{"acl delete --principal alice --dry-run", "", "DELETE", "/v1/acls", "", 200, `{"deleted":[` + rule + `]}`, "User:alice"},
		{"broker list", "", "GET", "/v1/brokers", "", 200, `{"items":[{"id":1,"host":"h","state":"online"}],"next_page_token":null,"total":1}`, "ID  HOST"},
		{"broker describe 1", "", "GET", "/v1/brokers/1", "", 200, `{"id":1,"host":"h","state":"online"}`, "state            online"},
		{"whoami", "", "GET", "/v1/auth/me", "", 200, `{"username":"alice","admin":true,"csrf_token":null,"expires_at":null}`, "username    alice"},
		{"user delete bob", "", "DELETE", "/v1/users/bob", "", 204, "", "Deleted user bob"},
		{"token list --user bob", "", "GET", "/v1/users/bob/tokens", "", 200,
			`{"items":[{"id":"i1","name":"ci","created_at":"2030-01-01T00:00:00.000Z","expires_at":null,"last_used_at":null}],"next_page_token":null,"total":1}`,
			"i1  ci    2030-01-01T00:00:00.000Z  -           -\n"},
		{"token create ci --user bob", "", "POST", "/v1/users/bob/tokens", `{"expires_in_s":7776000,"name":"ci"}`, 201, `{"id":"i1","token":"a.b.c"}`, "a.b.c\n"},
		{"token create ci --user bob --expires never --scope topic:a:b:read --scope topic:logs.*:write --scope topic:*:describe -o json", "", "POST", "/v1/users/bob/tokens",
			`{"name":"ci","scopes":[{"operation":"read","pattern":"literal","resource_name":"a:b","resource_type":"topic"},` +
				`{"operation":"write","pattern":"prefixed","resource_name":"logs.","resource_type":"topic"},` +
				`{"operation":"describe","pattern":"literal","resource_name":"*","resource_type":"topic"}]}`, 201, `{"id":"i1","token":"a.b.c"}`, `{"id":"i1","token":"a.b.c"}`},
		{"token delete i/1 --user bob", "", "DELETE", "/v1/users/bob/tokens/i%2F1", "", 204, "", "Deleted token i/1"},
		{"acl list --principal alice --operation read", "", "GET", "/v1/acls", "", 200,
			`{"items":[` + rule + `,{"principal":"User:bob","operation":"read"}],"next_page_token":null,"total":2}`, "User:alice  allow       read       topic          t              literal  *\n"},
		{"acl create --principal alice --topic t --operation read", "", "POST", "/v1/acls",
			`{"host":"*","operation":"read","pattern":"literal","permission":"allow","principal":"User:alice","resource_name":"t","resource_type":"topic"}`, 201, rule, "User:alice"},
		{"acl create --principal User:a --resource-type group --resource-name g- --pattern prefixed --permission deny --host 1.2.3.4 --operation all", "", "POST", "/v1/acls",
			`{"host":"1.2.3.4","operation":"all","pattern":"prefixed","permission":"deny","principal":"User:a","resource_name":"g-","resource_type":"group"}`, 201, rule, "User:alice"},
		{"acl delete --principal alice -o json", "", "DELETE", "/v1/acls", "", 200, `{"deleted":[` + rule + `]}`, `{"deleted":[` + rule + `]}`},
		{"cluster status", "", "GET", "/v1/cluster", "", 200,
			`{"cluster_id":"c1","controller":1,"brokers":[{"id":1,"host":"h","rack":null,"state":"online","leaders":6,"replicas":6,"version":"1","disk_free_bytes":5}],"topics":2}`, "online"},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			s := clienttest.New(t)
			s.Reply(c.method, c.path, c.status, c.reply)
			out := newShell(t, s).ok(c.in, strings.Fields(c.args)...)
			assert.Contains(t, out, c.out)
			require.Len(t, s.Calls(), 1)
			assert.Equal(t, c.body, s.Calls()[0].Body)
		})
	}
}

func TestTokensAreOnesOwnUnlessAUserIsNamed(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.Reply("GET", "/v1/auth/me", 200, `{"username":"alice b"}`)
	s.Reply("POST", "/v1/users/alice%20b/tokens", 201, `{"id":"i1","token":"a.b.c"}`)
	out := newShell(t, s).ok("", "token", "create", "ci", "--expires", "12h")
	assert.Contains(t, out, "a.b.c\n")
	assert.Equal(t, `{"expires_in_s":43200,"name":"ci"}`, s.Calls()[1].Body)
}

func TestAMisspeltTokenIsAUsageError(t *testing.T) {
	t.Parallel()
	for _, args := range []string{
		"token create", "token create a b", "token create a --expires 0d", "token create a --expires soon", "token create a --expires 1ms",
		"token create a --expires -3d", "token create a --scope topic", "token create a --scope topic:read", "token create a --scope topic:t:", "token create a --scope :t:read",
	} {
		s := clienttest.New(t)
		code, _, errOut := newShell(t, s).run("", strings.Fields(args)...)
		assert.Equal(t, 2, code, "%s: %s", args, errOut)
		assert.Empty(t, s.Calls(), args)
	}
}

func TestQueriesOfAdministration(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.Reply("GET", "/v1/topics", 200, `{"items":[],"next_page_token":null,"total":0}`)
	s.Reply("DELETE", "/v1/acls", 200, `{"deleted":[]}`)
	s.Reply("DELETE", "/v1/topics/t", 200, `{}`)
	s.AddTopic("t", 1)
	sh := newShell(t, s)
	sh.ok("", "topic", "list", "--internal", "--prefix", "f")
	sh.ok("", "acl", "delete", "--topic", "a b", "--operation", "read", "--operation", "write")
	sh.ok("", "topic", "delete", "t", "--dry-run")
	sh.ok("", "topic", "list", "--q", "x", "--sort", "-name")
	sh.ok("", "topic", "offsets", "t", "--timestamp", "earliest")
	sh.ok("", "consume", "t", "--from", "1000", "--to", "2000", "--q", "a b", "--q-in", "key,value", "--key", "k")
	assert.Equal(t, "dry_run=true", s.Calls()[3].Query)
	assert.Equal(t, "limit=1000&q=x&sort=-name", s.Calls()[4].Query)
	assert.Equal(t, "timestamp=earliest", s.Calls()[5].Query)
	assert.Equal(t, "from=1000&key=k&q=a+b&q_in=key%2Cvalue&to=2000", s.Calls()[6].Query)
	assert.Equal(t, "internal=true&limit=1000&prefix=f", s.Calls()[0].Query)
	assert.Equal(t, "operation=read&resource_name=a+b&resource_type=topic", s.Calls()[1].Query)
	assert.Equal(t, "operation=write&resource_name=a+b&resource_type=topic", s.Calls()[2].Query)
}

func TestBenchPrintsWhatItMeasured(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.AddTopic("t", 2)
	sh := newShell(t, s)
	assert.Contains(t, sh.ok("", "bench", "produce", "--topic", "t", "--records", "200", "--batch", "50"), "records   200 in")
	assert.Contains(t, sh.ok("", "bench", "consume", "--topic", "t", "-o", "json"), `"records":200`)
	assert.Contains(t, sh.ok("", "bench", "latency", "--topic", "t", "--records", "5"), "end to end p50")
	code, _, errOut := sh.run("", "bench", "produce", "--topic", "none", "--records", "1")
	assert.Equal(t, 1, code)
	assert.Contains(t, errOut, "requests failed")
}

func TestClusterKeysAre32RandomBytes(t *testing.T) {
	t.Parallel()
	sh := newShell(t, nil)
	a, b := sh.ok("", "cluster", "keygen"), sh.ok("", "cluster", "keygen")
	assert.Len(t, strings.TrimSpace(a), 44)
	assert.NotEqual(t, a, b)
}
