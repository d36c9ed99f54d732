package config

import (
	"encoding/base64"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// given is one call of Load. yaml "" means no file; it is named by --config.
type given struct {
	yaml string
	env  []string
	args []string
}

// load returns the path of the file too, which error lines name.
func (g given) load(t *testing.T) (c *Config, path string, err error) {
	t.Helper()
	args := g.args
	if g.yaml != "" {
		path = filepath.Join(t.TempDir(), "tidewire.yaml")
		require.NoError(t, os.WriteFile(path, []byte(g.yaml), 0o600))
		args = append([]string{"--config", path}, args...)
	}
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	AddFlags(fs)
	fs.String("output", "table", "a flag of somebody else")
	require.NoError(t, fs.Parse(args))
	c, err = Load(fs, g.env)
	return c, path, err
}

func mustLoad(t *testing.T, g given) *Config {
	t.Helper()
	c, _, err := g.load(t)
	require.NoError(t, err)
	return c
}

func item(t *testing.T, c *Config, name string) Item {
	t.Helper()
	for _, it := range c.Items() {
		if it.Name == name {
			return it
		}
	}
	require.FailNow(t, "no setting "+name)
	return Item{}
}

func testKey(fill byte) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune(fill)), KeySize)))
}

func TestWithoutAnythingEverySettingHasItsDefault(t *testing.T) {
	t.Parallel()
	c, err := Load(nil, nil)
	require.NoError(t, err)
	c.items = nil
	require.Equal(t, &Config{
		DataDir: "./data", NodeID: 1,
		HTTP:   HTTP{Listener: Listener{Listen: "127.0.0.1:8080"}, CORSOrigins: []string{}, TrustedProxies: []netip.Prefix{}},
		Kafka:  Listener{Listen: "127.0.0.1:9092"},
		Gossip: Listener{Listen: "127.0.0.1:7946"},
		Peer:   Listener{Listen: "127.0.0.1:7947"},
		Join:   []string{}, BootstrapExpect: 1,
		LogFormat: "text", LogLevel: slog.LevelInfo,
		ShutdownTimeout: 30 * time.Second, DiskReserve: 256 << 20, LogSyncInterval: 2 * time.Millisecond, HTTPInflightBytes: 512 << 20, CompactionBuffer: 128 << 20, FetchMemory: 256 << 20,
	}, c)
}

// The table must hold every flag of the contract, with its default.
func TestFlagsAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"config": "", "data-dir": "./data", "node-id": "1", "dev": "false", "rack": "", "join": "",
		"bootstrap-expect": "1", "cluster-key": "", "cluster-key-file": "",
		"http-listen": "127.0.0.1:8080", "http-advertise": "", "http-tls-cert": "", "http-tls-key": "",
		"http-path-prefix": "", "cors-origin": "", "trusted-proxies": "", "metrics-public": "false",
		"kafka-listen": "127.0.0.1:9092", "kafka-advertise": "", "gossip-listen": "127.0.0.1:7946",
		"gossip-advertise": "", "peer-listen": "127.0.0.1:7947", "peer-advertise": "",
		"log-format": "text", "log-level": "info", "shutdown-timeout": "30s", "disk-reserve": "256MiB",
		"log-sync-interval": "2ms", "compaction-buffer": "128MiB", "fetch-memory": "256MiB", "http-inflight-bytes": "512MiB", "http-max-connections": "0", "max-open-files": "0",
	}
	got := map[string]string{}
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	AddFlags(fs)
	fs.VisitAll(func(f *pflag.Flag) { got[f.Name] = f.DefValue })
	require.Equal(t, want, got)
	require.Equal(t, "TIDEWIRE_HTTP_TLS_CERT", Setting{Name: "http-tls-cert"}.Env())
}

// Each type of setting: the value in the file, in the environment, as a flag, and
// what each comes out as.
func TestFlagsWinOverEnvironmentOverFileOverDefault(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name, yaml, env, flag   string
		def, file, environ, got any
	}{
		{"rack", "ä", "b", "c d", "", "ä", "b", "c d"},
		{"data-dir", "/f", "/e", "/Daten/ü x", "./data", "/f", "/e", "/Daten/ü x"},
		{"http-listen", "'[::1]:1'", "localhost:2", ":3", "127.0.0.1:8080", "[::1]:1", "localhost:2", ":3"},
		{"kafka-listen", "off", "127.0.0.1:2", "off", "127.0.0.1:9092", "off", "127.0.0.1:2", "off"},
		{"node-id", "7", "8", "0", int64(1), int64(7), int64(8), int64(0)},
		{"metrics-public", "true", "0", "true", false, true, false, true},
		{"log-level", "WARN", "Error", "debug", "info", "warn", "error", "debug"},
		{"shutdown-timeout", "1m30s", "45s", "0s", "30s", "1m30s", "45s", "0s"},
		{"log-sync-interval", "5ms", "1ms", "100µs", "2ms", "5ms", "1ms", "100µs"},
		{"disk-reserve", "1GiB", "1536 MiB", "0", "256MiB", "1GiB", "1536MiB", "0B"},
		{"cors-origin", "[http://a, http://b]", "http://c,http://d", "http://e", []string{}, []string{"http://a", "http://b"}, []string{"http://c", "http://d"}, []string{"http://e"}},
		{"cluster-key", testKey('a'), testKey('b'), testKey('c'), "", mask, mask, mask},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			s := Setting{Name: r.name}
			check := func(g given, value any, from Source) {
				t.Helper()
				c, path, err := g.load(t)
				require.NoError(t, err)
				if from.Kind == FromFile {
					from.Name = path
				}
				it := item(t, c, r.name)
				require.Equal(t, value, it.Value)
				require.Equal(t, from, it.Source)
			}
			file, env, flag := r.name+": "+r.yaml, []string{s.Env() + "=" + r.env}, []string{s.Flag() + "=" + r.flag}
			check(given{}, r.def, Source{Kind: FromDefault})
			check(given{yaml: file}, r.file, Source{Kind: FromFile})
			check(given{yaml: file, env: env}, r.environ, Source{FromEnvironment, s.Env()})
			check(given{yaml: file, env: env, args: flag}, r.got, Source{FromFlag, s.Flag()})
			check(given{yaml: file, args: flag}, r.got, Source{FromFlag, s.Flag()})
		})
	}
}

func TestClusterKeyFollowsPrecedence(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, given{yaml: "cluster-key: " + testKey('a'), env: []string{"TIDEWIRE_CLUSTER_KEY=" + testKey('b')}})
	require.Equal(t, strings.Repeat("b", KeySize), string(c.ClusterKey.Bytes()))
}

func TestClusterKeyIsReadFromAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "schlüssel datei")
	require.NoError(t, os.WriteFile(path, []byte(testKey('k')+"\n"), 0o600))
	c := mustLoad(t, given{env: []string{"TIDEWIRE_CLUSTER_KEY_FILE=" + path}})
	require.Equal(t, strings.Repeat("k", KeySize), string(c.ClusterKey.Bytes()))
	require.Equal(t, "", item(t, c, "cluster-key").Value)
}

func TestTypedValuesReachTheConfig(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, given{
		yaml: "http-tls-cert: c.pem\nhttp-tls-key: k.pem\nkafka-listen: off\nkafka-advertise: k.example:0\ngossip-advertise: g.example:7\npeer-advertise: '[2001:DB8::1]:8'\nlog-format: json\ndisk-reserve: 0\nshutdown-timeout: 0\n",
		args: []string{
			"--http-path-prefix", "/mq/v~1/", "--trusted-proxies", "10.1.2.3/8, ::1", "--http-advertise", "MQ.example.com:443",
			"--metrics-public", "--log-level=error", "--node-id", "2147483647", "--dev", "--rack", "zürich 1",
		},
	})
	require.Equal(t, HTTP{
		Listener: Listener{Listen: "127.0.0.1:8080", Advertise: "mq.example.com:443"}, TLSCert: "c.pem", TLSKey: "k.pem",
		PathPrefix: "/mq/v~1", CORSOrigins: []string{}, MetricsPublic: true,
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")},
	}, c.HTTP)
	require.Equal(t, Listener{Advertise: "k.example:0", Off: true}, c.Kafka)
	require.Equal(t, "g.example:7", c.Gossip.Advertise)
	require.Equal(t, "[2001:db8::1]:8", c.Peer.Advertise)
	require.Equal(t, "json", c.LogFormat)
	require.Equal(t, slog.LevelError, c.LogLevel)
	require.EqualValues(t, 2147483647, c.NodeID)
	require.Zero(t, c.DiskReserve)
	require.Zero(t, c.ShutdownTimeout)
	require.True(t, c.Dev)
	require.Equal(t, "zürich 1", c.Rack)
}

func TestListsTakeRepeatedFlagsAndCommas(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, given{
		yaml: "cors-origin: http://file, http://other\n",
		env:  []string{"TIDEWIRE_JOIN=never.example:1", "TIDEWIRE_CLUSTER_KEY=" + testKey('k')},
		args: []string{"--join", "a.example:1, [::1]:2", "--join=c:3", "--trusted-proxies="},
	})
	require.Equal(t, []string{"a.example:1", "[::1]:2", "c:3"}, c.Join)
	require.Equal(t, []string{"http://file", "http://other"}, c.HTTP.CORSOrigins)
	require.Empty(t, c.HTTP.TrustedProxies)

	c = mustLoad(t, given{yaml: "cors-origin: [http://file]\n", args: []string{"--cors-origin", ""}})
	require.Empty(t, c.HTTP.CORSOrigins, "an empty flag undoes the file")
	c = mustLoad(t, given{yaml: "join: []\n"})
	require.Empty(t, c.Join)
}

func TestTheLastOfARepeatedFlagCounts(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, given{args: []string{"--node-id", "bad", "--node-id", "4", "--dev", "--dev=false"}})
	require.EqualValues(t, 4, c.NodeID)
	require.False(t, c.Dev)
}

func TestEmptyVariableCountsAsNotSet(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, given{yaml: "rack: file\n", env: []string{"TIDEWIRE_RACK=", "TIDEWIRE_NODE_ID=", "TIDEWIRE_ADMIN_PASSWORD=", "TIDEWIRE_CONFIG="}})
	require.Equal(t, "file", c.Rack)
	require.EqualValues(t, 1, c.NodeID)
	require.True(t, c.AdminPassword.IsZero())
	c = mustLoad(t, given{yaml: "rack: file\n", args: []string{"--rack", ""}})
	require.Equal(t, "", c.Rack, "an empty flag is a value")
}

func TestConfigFileIsNamedByVariableOrFlag(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	byEnv, byFlag := filepath.Join(dir, "umgebung ö.yaml"), filepath.Join(dir, "flag.yaml")
	require.NoError(t, os.WriteFile(byEnv, []byte("node-id: 5\n"), 0o600))
	require.NoError(t, os.WriteFile(byFlag, []byte("\ufeff# only a comment\n"), 0o600))
	env := []string{"TIDEWIRE_CONFIG=" + byEnv}
	c := mustLoad(t, given{env: env})
	require.EqualValues(t, 5, c.NodeID)
	require.Equal(t, byEnv, c.File)
	require.Equal(t, "config file "+byEnv, item(t, c, "node-id").Source.String())
	c = mustLoad(t, given{env: env, args: []string{"--config", byFlag}})
	require.EqualValues(t, 1, c.NodeID)
	c = mustLoad(t, given{env: env, args: []string{"--config="}})
	require.EqualValues(t, 1, c.NodeID)
	require.Equal(t, "", c.File)
}

func TestVariablesOfOthersArePassedOver(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, given{env: []string{
		"TIDEWIRE_SERVER=http://x", "TIDEWIRE_TOKEN=t", "TIDEWIRE_ADMIN_PASSWORD=p=1 ü", "tidewire_node_id=9", "PATH=/bin", "ODD",
		"TIDEWIRE_SERVICE_HOST=10.0.0.1", "TIDEWIRE_SERVICE_PORT=8080", "TIDEWIRE_SERVICE_PORT_HTTP=8080",
		"TIDEWIRE_PORT=tcp://10.0.0.1:8080", "TIDEWIRE_PORT_8080_TCP=tcp://10.0.0.1:8080", "TIDEWIRE_PORT_8080_TCP_ADDR=10.0.0.1",
		"TIDEWIRE_HTTP_PORT=tcp://10.0.0.1:8080", "TIDEWIRE_HEADLESS_PORT_7946_UDP_PROTO=udp", "TIDEWIRE_KAFKA_SERVICE_HOST=10.0.0.1",
	}})
	require.Equal(t, "p=1 ü", c.AdminPassword.Reveal())
	require.EqualValues(t, 1, c.NodeID)
}

func TestBootstrapExpectIsNoneWhenJoining(t *testing.T) {
	t.Parallel()
	key := "TIDEWIRE_CLUSTER_KEY=" + testKey('k')
	c := mustLoad(t, given{args: []string{"--join", "a:1"}, env: []string{key}})
	require.Equal(t, 0, c.BootstrapExpect)
	require.Equal(t, int64(0), item(t, c, "bootstrap-expect").Value)
	c = mustLoad(t, given{args: []string{"--join", "a:1"}, env: []string{key, "TIDEWIRE_BOOTSTRAP_EXPECT=3"}})
	require.Equal(t, 3, c.BootstrapExpect)
}

func TestErrorsCarrySettingAndSource(t *testing.T) {
	t.Parallel()
	_, _, err := given{env: []string{"TIDEWIRE_NODE_ID=x"}}.load(t)
	var e *Error
	require.True(t, errors.As(err, &e))
	require.Equal(t, &Error{"TIDEWIRE_NODE_ID", Source{FromEnvironment, "TIDEWIRE_NODE_ID"}, `"x" is not a whole number`}, e)
}
