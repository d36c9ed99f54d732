package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// complaint is the line about the error: standard error without log lines and the
// pointer to --help. It is one line, or the test fails.
func complaint(t *testing.T, r ran) string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(r.err) {
		if !strings.HasPrefix(line, "time=") && !strings.HasPrefix(line, "See: ") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	require.Len(t, lines, 1, "%s", r.err)
	require.True(t, strings.HasPrefix(lines[0], "tidewire: "), lines[0])
	return lines[0]
}

// refusedStart runs serve, which must not start, in a data folder of its own.
func refusedStart(t *testing.T, env []string, args ...string) ran {
	t.Helper()
	home := t.TempDir()
	base := []string{"serve", "--data-dir", filepath.Join(home, "data"), "--http-listen", "127.0.0.1:0", "--kafka-listen", "off",
		"--gossip-listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0"}
	return runEnv(t, append(plainEnv(home), env...), strings.NewReader(""), append(base, args...)...)
}

func TestAWrongStartIsRefusedWithOneLine(t *testing.T) {
	t.Parallel()
	file := func(content string) string {
		path := filepath.Join(t.TempDir(), "config.yaml")
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, taken.Close()) })
	for name, x := range map[string]struct {
		env   []string
		args  []string
		code  int
		names []string // what the line names
	}{
		"unknown flag":        {nil, []string{"--no-such-flag"}, 2, []string{"--no-such-flag"}},
		"bad flag":            {nil, []string{"--node-id", "many"}, 2, []string{"node-id", "many"}},
		"argument":            {nil, []string{"here"}, 2, []string{"here"}},
		"unknown variable":    {[]string{"TIDEWIRE_NO_SUCH=1"}, nil, 1, []string{"TIDEWIRE_NO_SUCH"}},
		"fault of tests":      {[]string{"TIDEWIRE_FAULT_CLOCK_OFFSET_FILE=/dev/null"}, nil, 1, []string{"TIDEWIRE_FAULT_CLOCK_OFFSET_FILE"}},
		"bad variable":        {[]string{"TIDEWIRE_LOG_LEVEL=loud"}, nil, 1, []string{"TIDEWIRE_LOG_LEVEL", "loud"}},
		"unknown YAML key":    {nil, []string{"--config", file("no-such-key: 1\n")}, 1, []string{"no-such-key"}},
		"bad YAML value":      {nil, []string{"--config", file("shutdown-timeout: soon\n")}, 1, []string{"shutdown-timeout", "soon"}},
		"not YAML":            {nil, []string{"--config", file("{")}, 2, []string{"config.yaml"}},
		"no such file":        {nil, []string{"--config", "/no/such/file.yaml"}, 2, []string{"/no/such/file.yaml"}},
		"join":                {nil, []string{"--join", "127.0.0.1:7946"}, 2, []string{"join", "cluster key"}},
		"expect of a cluster": {nil, []string{"--bootstrap-expect", "2"}, 2, []string{"bootstrap-expect", "cluster key"}},
		"port in use":         {nil, []string{"--http-listen", taken.Addr().String()}, 1, []string{"http-listen", taken.Addr().String()}},
		"data in a file":      {nil, []string{"--data-dir", filepath.Join(file(""), "data")}, 1, []string{"config.yaml"}},
		"data on /proc":       {nil, []string{"--data-dir", "/proc/tidewire"}, 1, []string{"/proc/tidewire"}},
		"dev in the open":     {nil, []string{"--dev", "--http-listen", "0.0.0.0:0"}, 2, []string{"dev"}},
		"certificate alone":   {nil, []string{"--http-tls-cert", "/no/cert.pem"}, 2, []string{"http-tls-key"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := refusedStart(t, x.env, x.args...)
			line := complaint(t, r)
			require.Equal(t, x.code, r.code, line)
			require.Empty(t, r.out)
			for _, n := range x.names {
				require.Contains(t, line, n)
			}
		})
	}
}

func TestAFolderThatCannotBeWrittenIsRefused(t *testing.T) {
	t.Parallel()
	open, err := os.MkdirTemp("", "tidewire-open-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(open)) })
	require.NoError(t, os.Chmod(open, 0o755))
	data := filepath.Join(open, "data")
	require.NoError(t, os.Mkdir(data, 0o555))
	p := launchReadOnly(t, open, data)
	code := p.wait(t, startLimit)
	line := complaint(t, ran{code, p.out.String(), p.err.String()})
	require.Equal(t, 1, code)
	require.Contains(t, line, data)
}

func TestASecondProcessOnADataFolderIsRefused(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	r := runEnv(t, plainEnv(n.home), strings.NewReader(""), n.serveArgs()...)
	line := complaint(t, r)
	require.Equal(t, 1, r.code)
	require.Contains(t, line, strconv.Itoa(n.proc.cmd.Process.Pid))
	require.Contains(t, line, n.dir)
	status, _, err := newAPI(t, n).try("GET", "/readyz", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, "the first goes on")
	n.kill()
	n.start(t) // a killed process holds nothing
}

func TestSettingsAreShownAndSecretsMasked(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	key := strings.TrimSpace(runEnv(t, plainEnv(home), nil, "cluster", "keygen").out)
	require.Len(t, key, 44)
	file := filepath.Join(home, "tidewire.yaml")
	require.NoError(t, os.WriteFile(file, []byte("rack: from-file\nlog-level: warn\nnode-id: 7\n"), 0o600))
	env := append(plainEnv(home), "TIDEWIRE_CLUSTER_KEY="+key, "TIDEWIRE_ADMIN_PASSWORD=not-to-be-seen", "TIDEWIRE_RACK=from-env", "TIDEWIRE_LOG_LEVEL=error")
	args := []string{"config", "--config", file, "--log-level", "debug"}
	table := runEnv(t, env, nil, args...)
	asJSON := runEnv(t, env, nil, append(args, "-o", "json")...)
	for _, r := range []ran{table, asJSON} {
		require.Zero(t, r.code, r.err)
		require.NotContains(t, r.out+r.err, key)
		require.NotContains(t, r.out+r.err, "not-to-be-seen")
	}
	require.Regexp(t, `(?m)^log-level +debug +flag`, table.out)
	require.Regexp(t, `(?m)^rack +from-env +.*TIDEWIRE_RACK`, table.out)
	require.Regexp(t, `(?m)^node-id +7 +.*tidewire.yaml`, table.out)
	var all struct {
		Items []struct {
			Name   string `json:"name"`
			Value  any    `json:"value"`
			Source string `json:"source"`
		} `json:"items"`
	}
	require.NoError(t, json.Unmarshal([]byte(asJSON.out), &all))
	sources := map[string]string{}
	for _, i := range all.Items {
		sources[i.Name] = fmt.Sprint(i.Value, " ", i.Source)
	}
	require.Equal(t, "debug flag", sources["log-level"])
	require.Contains(t, sources, "cluster-key")
	require.Equal(t, "./data default", sources["data-dir"])
}

var setupURL = regexp.MustCompile(`http://[^ \n]+/ui/setup\?token=([A-Za-z0-9._~-]+)`)

func TestTheFirstStartGivesASetupAddressOnce(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.args = nil // without --dev
	n.start(t)
	a := newAPI(t, n)
	var state struct {
		Required bool `json:"required"`
	}
	a.must(t, "GET", "/v1/setup", nil, &state)
	require.True(t, state.Required)
	first := setupURL.FindStringSubmatch(n.proc.out.String())
	require.NotNil(t, first, n.proc.out.String())
	require.True(t, strings.HasPrefix(first[0], n.URL()+"/"), first[0])
	require.NotContains(t, n.proc.err.String(), first[1], "the token is no log line")

	n.restart(t, false) // nobody has used it: another start gives one that works
	again := setupURL.FindStringSubmatch(n.proc.out.String())
	require.NotNil(t, again, n.proc.out.String())
	setup := func(token string) map[string]string {
		return map[string]string{"token": token, "username": "root", "password": "correct horse battery"}
	}
	wrong := a.refused(t, "POST", "/v1/setup", setup("x"+again[1][1:]))
	require.Contains(t, []int{401, 403, 422}, wrong.Status, "%+v", wrong)
	a.must(t, "POST", "/v1/setup", setup(again[1]), nil)
	require.GreaterOrEqual(t, a.refused(t, "POST", "/v1/setup", setup(again[1])).Status, 400, "it works once")
	a.must(t, "GET", "/v1/setup", nil, &state)
	require.False(t, state.Required)
	login(t, n, "root", "correct horse battery").createTopic(t, "t", 1, nil)

	n.restart(t, true)
	require.NotContains(t, n.proc.out.String(), "setup")
	login(t, n, "root", "correct horse battery")
}

func TestTheAdministratorComesFromTheEnvironment(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.args, n.env = nil, []string{"TIDEWIRE_ADMIN_PASSWORD=first-of-all-passwords"}
	n.start(t)
	require.NotContains(t, n.proc.out.String(), "setup")
	require.NotContains(t, n.proc.out.String()+n.proc.err.String(), "first-of-all-passwords")
	a := login(t, n, "admin", "first-of-all-passwords")
	require.Equal(t, "bad-credentials", newAPI(t, n).refused(t, "POST", "/v1/auth/login", map[string]string{"username": "admin", "password": "tidewire"}).Code)
	a.must(t, "POST", "/v1/users", map[string]any{"username": "second", "password": "second-password"}, nil)
	n.stop(t)
	n.env = []string{"TIDEWIRE_ADMIN_PASSWORD=another-password"}
	n.start(t)
	login(t, n, "admin", "first-of-all-passwords") // it is for the first start only
}

func TestDevelopmentPrintsItsLogin(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	require.Contains(t, n.proc.out.String(), n.URL()+"/ui/")
	require.Contains(t, n.proc.out.String(), "user admin, password tidewire")
	login(t, n, "admin", "tidewire")
	status, _, err := newAPI(t, n).try("GET", "/metrics", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, "public with --dev")
}

// SIGTERM under load: what was accepted is answered, what was acknowledged is there,
// the process ends in time with 0, and the next start need not recover.
func TestSIGTERMUnderLoadIsAnOrderlyEnd(t *testing.T) {
	t.Parallel()
	n := startNode(t, "--shutdown-timeout", "20s")
	a := admin(t, n)
	a.createTopic(t, "t", 2, nil)
	marker := filepath.Join(n.dir, "clean-stop")
	_, err := os.Stat(marker)
	require.ErrorIs(t, err, os.ErrNotExist, "while it runs there is none")

	const producers = 6
	var group sync.WaitGroup
	stored := make([]map[string]result, producers)
	surprise := make(chan string, producers)
	for p := range producers {
		stored[p] = map[string]result{}
		group.Go(func() {
			for i := 0; ; i++ {
				v := fmt.Sprintf("%d/%d", p, i)
				var answer struct {
					Results []result `json:"results"`
				}
				status, body, err := a.try("POST", "/v1/topics/t/records", []byte(`{"records":[{"value":"`+v+`"}]}`))
				if err != nil {
					return // nobody listens any more
				}
				if status != 200 || json.Unmarshal(body, &answer) != nil {
					var told problem
					if json.Unmarshal(body, &told) != nil || told.Status != 503 || told.Outcome != "not-applied" {
						surprise <- fmt.Sprintf("%d %s", status, body)
					}
					return
				}
				stored[p][v] = answer.Results[0]
			}
		})
	}
	poll := make(chan string, 1)
	group.Go(func() { // a long poll beyond the end is answered, not cut
		status, body, err := a.try("GET", "/v1/topics/t/partitions/0/records?offset=latest&min_bytes=1000000&wait_ms=60000", nil)
		poll <- fmt.Sprint(status, err)
		_ = body
	})
	time.Sleep(time.Second)
	begin := time.Now()
	n.stop(t)
	require.Less(t, time.Since(begin), 20*time.Second)
	group.Wait()
	close(surprise)
	require.Empty(t, <-surprise)
	require.Equal(t, "200 <nil>", <-poll)
	_, err = os.Stat(marker)
	require.NoError(t, err)

	n.start(t)
	require.NotContains(t, n.proc.err.String(), "recover")
	there := map[string]rec{}
	for _, r := range a.readTopic(t, "t", 2) {
		there[string(r.Value)] = r
	}
	total := 0
	for _, s := range stored {
		for v, r := range s {
			total++
			require.Equal(t, r.Offset, there[v].Offset, v)
			require.EqualValues(t, r.Partition, there[v].Partition, v)
		}
	}
	require.Positive(t, total)
}

func TestTooLittleRoomRefusesRecordsOnly(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	a := admin(t, n)
	a.createTopic(t, "t", 1, nil)
	produce := []byte(`{"records":[{"value":"v"}]}`)
	a.must(t, "POST", "/v1/topics/t/records", produce, nil)
	n.stop(t)
	n.args = append(n.args, "--disk-reserve", "1000TiB")
	n.start(t)
	var p problem
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		status, answer, err := a.try("POST", "/v1/topics/t/records", produce)
		require.NoError(t, err)
		if status >= 400 { // the disk is looked at every second
			require.NoError(t, json.Unmarshal(answer, &p))
			break
		}
	}
	require.Equal(t, problem{Status: 503, Code: "storage-full", Detail: p.Detail, Outcome: "not-applied", Retryable: true}, p)
	require.NotEmpty(t, a.readPartition(t, "t", 0, 100), "reading goes on")
	r := n.cli(t, a.token, "", "topic", "describe", "t")
	require.Zero(t, r.code, r.err)
}

// launchReadOnly runs serve as a user for whom the data folder is not writable: for
// root every one is, so it runs a copy, where others may read it, as nobody.
func launchReadOnly(t *testing.T, open, data string) *proc {
	t.Helper()
	args := []string{"serve", "--data-dir", data, "--http-listen", "127.0.0.1:0", "--kafka-listen", "off", "--gossip-listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0"}
	if os.Getuid() != 0 {
		return launch(t, plainEnv(open), args...)
	}
	content, err := os.ReadFile(binary)
	require.NoError(t, err)
	copied := filepath.Join(open, "tidewire")
	require.NoError(t, os.WriteFile(copied, content, 0o755))
	const nobody = 65534
	return launchAs(t, copied, &syscall.Credential{Uid: nobody, Gid: nobody}, plainEnv(open), args...)
}
