package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tidewire/internal/client/clienttest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// partitions tells which of two servers a command reached.
func (sh *shell) partitions(args ...string) int {
	sh.t.Helper()
	return strings.Count(sh.ok("", append([]string{"topic", "describe", "t", "-o", "json"}, args...)...), `"partition":`)
}

func twoServers(t *testing.T) (a, b *clienttest.Server, sh *shell) {
	a, b = clienttest.New(t), clienttest.New(t)
	a.AddTopic("t", 1)
	b.AddTopic("t", 2)
	return a, b, newShell(t, nil)
}

func TestContextsKeepServersApart(t *testing.T) {
	t.Parallel()
	a, b, sh := twoServers(t)
	sh.ok("secret", "login", a.URL, "-u", "alice", "--password-stdin", "--context", "one")
	sh.ok("", "context", "set", "two", "--server", b.URL, "--token", clienttest.APIToken)
	assert.Equal(t, 1, sh.partitions(), "set does not change the current context")
	assert.Equal(t, 2, sh.partitions("--context", "two"))
	sh.env["TIDEWIRE_CONTEXT"] = "two"
	assert.Equal(t, 2, sh.partitions())
	assert.Equal(t, 1, sh.partitions("--context", "one"), "the flag wins")
	delete(sh.env, "TIDEWIRE_CONTEXT")
	assert.Equal(t, "Now using two, "+b.URL+"\n", sh.ok("", "context", "use", "two"))
	assert.Equal(t, 2, sh.partitions())
	out := sh.ok("", "context", "list")
	assert.Regexp(t, `(?m)^CURRENT +NAME +SERVER +USERNAME +CREDENTIAL\nfalse +one +`+a.URL+` +alice +login\ntrue +two +`+b.URL+` +- +api-token$`, out)
	sh.ok("", "context", "delete", "two")
	code, _, _ := sh.run("", "context", "delete", "one", "none")
	assert.Equal(t, 1, code)
	assert.Contains(t, sh.ok("", "context", "list"), "one", "all or none are deleted")
	assert.Equal(t, 1, sh.partitions("--server", a.URL), "of a server that is named its context is used")
}

func TestContextsNeverTellSecrets(t *testing.T) {
	t.Parallel()
	a, _, sh := twoServers(t)
	sh.ok("secret", "login", a.URL, "-u", "alice", "--password-stdin", "--context", "one")
	sh.ok("", "context", "set", "two", "--server", "https://h/prefix/", "--token", "hidden-token")
	for _, args := range [][]string{{"list"}, {"list", "-o", "json"}, {"show", "one"}, {"show", "two", "-o", "json"}, {"use", "two", "-o", "json"}, {"set", "two", "-o", "json"}} {
		out := sh.ok("", append([]string{"context"}, args...)...)
		assert.NotContains(t, out, "hidden-token")
		assert.NotContains(t, out, "access-1")
		assert.NotContains(t, out, "refresh-1")
	}
	var l struct {
		Items []struct {
			Name, Server, Credential string
			Current                  bool
		}
		Next  *string `json:"next_page_token"`
		Total int
	}
	require.NoError(t, json.Unmarshal([]byte(sh.ok("", "context", "list", "-o", "json")), &l))
	assert.Equal(t, 2, l.Total)
	assert.Equal(t, "https://h/prefix", l.Items[1].Server)
	st, err := os.Stat(filepath.Join(sh.dir, "logins.json"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), st.Mode().Perm())
}

// TestAContextsTokensGoToItsServerOnly has every way to name another server beside a
// context: the other server, which would take the token, never gets it.
func TestAContextsTokensGoToItsServerOnly(t *testing.T) {
	t.Parallel()
	a, b, sh := twoServers(t)
	sh.ok("", "context", "set", "one", "--server", a.URL, "--token", clienttest.APIToken)
	code, _, errOut := sh.run("", "topic", "describe", "t", "--context", "one", "--server", b.URL)
	assert.Equal(t, 2, code)
	assert.Contains(t, errOut, "one")
	code, _, _ = sh.run("", "topic", "describe", "t", "--server", b.URL)
	assert.Equal(t, 1, code, "anonymous")
	sh.env["TIDEWIRE_SERVER"] = b.URL
	assert.Equal(t, 1, sh.partitions("--context", "one"), "a flag wins over the environment")
	sh.env["TIDEWIRE_CONTEXT"] = "one"
	code, _, _ = sh.run("", "topic", "describe", "t")
	assert.Equal(t, 2, code, "two settings of the environment that contradict each other")
	sh.env["TIDEWIRE_TOKEN"] = "for-b"
	delete(sh.env, "TIDEWIRE_CONTEXT")
	assert.Equal(t, 1, sh.partitions("--context", "one"), "the environment's token is not for this context")
	code, _, _ = sh.run("", "context", "set", "one", "--server", b.URL)
	require.Zero(t, code)
	sh.env = map[string]string{}
	code, _, _ = sh.run("", "topic", "describe", "t", "--context", "one")
	assert.Equal(t, 1, code, "a context that moves to another server leaves its token behind")
}

func TestALoginGoesIntoTheContextOfItsServer(t *testing.T) {
	t.Parallel()
	a, b, sh := twoServers(t)
	sh.ok("", "context", "set", "one", "--server", a.URL)
	assert.Contains(t, sh.ok("secret", "login", a.URL, "-u", "alice", "--password-stdin"), "(context one)")
	assert.Contains(t, sh.ok("secret", "login", "-u", "bob", "--password-stdin"), "Logged in to "+a.URL+" as bob (context one)", "without a server the current one")
	assert.Contains(t, sh.ok("secret", "login", a.URL, "-u", "carol", "--password-stdin", "--context", "other"), "(context other)")
	sh.ok("secret", "login", b.URL, "-u", "dora", "--password-stdin")
	out := sh.ok("", "context", "list")
	assert.Regexp(t, `(?m)^true +`+strings.TrimPrefix(b.URL, "http://")+` +`+b.URL+` +dora`, out)
	assert.Regexp(t, `(?m)^false +one +`+a.URL+` +bob`, out)
	assert.Regexp(t, `(?m)^false +other +`+a.URL+` +carol`, out)
	sh.env["TIDEWIRE_CONTEXT"] = "other"
	assert.Contains(t, sh.ok("", "context", "show", "--server", a.URL), "carol", "of several contexts of a server the environment's")
}

func TestLogoutEndsTheLoginAtTheServerToo(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.Reply("POST", "/v1/auth/logout", 204, "")
	sh := newShell(t, nil)
	sh.ok("secret", "login", s.URL, "-u", "alice", "--password-stdin", "--context", "one")
	assert.Equal(t, "Logged out of "+s.URL+"\n", sh.ok("", "logout"))
	assert.Equal(t, "/v1/auth/logout", s.Calls()[len(s.Calls())-1].Path)
	assert.Regexp(t, `(?m)^true +one +`+s.URL+` +- +none$`, sh.ok("", "context", "list"))
	raw, err := os.ReadFile(filepath.Join(sh.dir, "logins.json"))
	require.NoError(t, err)
	assert.NotContains(t, string(raw), "refresh-1")
	code, _, errOut := sh.run("", "logout")
	assert.Equal(t, 1, code)
	assert.Contains(t, errOut, "not logged in")
}

func TestLoginsOfAnOlderVersionGetNames(t *testing.T) {
	t.Parallel()
	a, b, sh := twoServers(t)
	old := `{"current":"` + b.URL + `","logins":[
		{"server":"` + a.URL + `","username":"alice","access_token":"x","refresh_token":"r","expires_at":"2100-01-01T00:00:00Z"},
		{"server":"` + b.URL + `","username":"bob","access_token":"` + clienttest.APIToken + `","refresh_token":"r","expires_at":"2100-01-01T00:00:00Z"}]}`
	require.NoError(t, os.WriteFile(filepath.Join(sh.dir, "logins.json"), []byte(old), 0o600))
	assert.Equal(t, 2, sh.partitions())
	sh.ok("", "context", "set", "new", "--server", a.URL)
	assert.Regexp(t, `(?m)^true +`+strings.TrimPrefix(b.URL, "http://")+` `, sh.ok("", "context", "list"), "and keep them")
}

func TestShellsCompleteTheNamesOfContexts(t *testing.T) {
	t.Parallel()
	sh := newShell(t, nil)
	sh.ok("", "context", "set", "one", "--server", "h:1")
	sh.ok("", "context", "set", "two", "--server", "h:2")
	assert.Equal(t, "one\ntwo\n:4\n", sh.ok("", "__complete", "context", "use", ""))
	assert.Equal(t, "one\ntwo\n:4\n", sh.ok("", "__complete", "topic", "list", "--context", ""))
}

func TestWhatIsNotBuiltSaysSo(t *testing.T) {
	t.Parallel()
	sh := newShell(t, nil)
	for _, args := range []string{"transaction abort x", "backup create --to x"} {
		code, out, errOut := sh.run("", strings.Fields(args)...)
		assert.Equal(t, 1, code, args)
		assert.Empty(t, out)
		assert.Contains(t, errOut, "not-implemented", args)
	}
}

func TestEachOfSeveralTopicsIsTriedForDeletion(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	const gone = `"problem":null,"partitions":1,"records":2,"size_bytes":3`
	const results = `{"results":[{"name":"a",` + gone + `},{"name":"b","problem":{"code":"unknown-topic","status":404,"detail":"there is no topic b","request_id":"r1"},` +
		`"partitions":null,"records":null,"size_bytes":null},{"name":"c",` + gone + `}]}`
	s.Reply("POST", "/v1/topics/delete", 200, results)
	sh := newShell(t, s)
	code, out, errOut := sh.run("", "topic", "delete", "a", "b", "c")
	assert.Equal(t, 1, code)
	assert.Equal(t, "Deleted topic a\nDeleted topic c\n", out)
	assert.Contains(t, errOut, "topic b: unknown-topic (404): there is no topic b\n  request: r1")
	code, out, _ = sh.run("", "topic", "delete", "a", "b", "c", "-o", "json")
	assert.Equal(t, 1, code)
	assert.JSONEq(t, results, out)
	code, out, errOut = sh.run("", "topic", "delete", "a", "b", "c", "--dry-run")
	assert.Equal(t, 1, code)
	assert.Contains(t, out, "a     1           2        3")
	assert.Contains(t, errOut, "there is no topic b")
	require.Len(t, s.Calls(), 3, "one request each time")
	assert.Equal(t, `{"names":["a","b","c"]}`, s.Calls()[0].Body)
	assert.Equal(t, "dry_run=true", s.Calls()[2].Query)
}

func TestRecordsOfPlainInputGetKeyHeadersAndPartition(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.AddTopic("t", 3)
	sh := newShell(t, s)
	sh.ok("a\nb\n", "produce", "t", "--format", "lines", "--key", `k"1`, "--header", "h=v=w", "--header", "h=", "--partition", "2")
	got := s.Records("t", 2)
	require.Len(t, got, 2)
	for i, value := range []string{"a", "b"} {
		assert.Equal(t, `k"1`, string(got[i].Key))
		assert.Equal(t, value, string(got[i].Value))
		require.Len(t, got[i].Headers, 2)
		assert.Equal(t, "v=w", string(got[i].Headers[0].Value))
		assert.Empty(t, got[i].Headers[1].Value)
	}
	binary := "\x00\xff\n\nend\n"
	sh.ok(binary, "produce", "t", "--format", "raw", "-p", "1")
	assert.Equal(t, binary, sh.ok("", "consume", "t", "--partition", "1", "-o", "raw"))
	sh.ok("", "produce", "t", "--format", "raw", "-p", "0")
	require.Len(t, s.Records("t", 0), 1, "an empty input is a record with an empty value")
	assert.NotNil(t, s.Records("t", 0)[0].Value)
}

func TestASearchReadsUpToTheEnd(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	s.AddTopic("t", 2)
	sh := newShell(t, s)
	sh.ok("{\"key\":\"k\",\"value\":\"one\"}\n{\"value\":\"two\"}\n{\"key\":\"k\",\"value\":\"three\"}\n", "produce", "t")
	assert.Equal(t, "two\n", sh.ok("", "consume", "t", "--q", "tw", "-o", "value"))
	assert.Equal(t, "one\nthree\n", sh.ok("", "consume", "t", "--key", "k", "-o", "value"))
	s.BreakStreams(clienttest.Break{Records: 1})
	assert.Equal(t, "one\nthree\n", sh.ok("", "consume", "t", "--key", "k", "-o", "value"), "a stream that breaks goes on")
	assert.Equal(t, "one\n", sh.ok("", "consume", "t", "--key", "k", "-o", "value", "--max", "1"))
}
