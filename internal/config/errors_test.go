package config

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// badRow is a wrong configuration and the line that it ends with, in which FILE
// stands for the file's path.
type badRow struct {
	name string
	in   given
	line string
}

func flagged(name, value string) given { return given{args: []string{"--" + name + "=" + value}} }
func inFile(text string) given         { return given{yaml: text} }
func inEnv(entry string) given         { return given{env: []string{entry}} }

func TestBadSettingsEndInOneLine(t *testing.T) {
	t.Parallel()
	for _, rows := range [][]badRow{
		unknownNames(), badFiles(), badShapes(), badNumbers(), badDurations(),
		badSizes(), badAddresses(), badTexts(), badTogether(),
	} {
		for _, r := range rows {
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				_, path, err := r.in.load(t)
				require.Error(t, err)
				require.Equal(t, strings.ReplaceAll(r.line, "FILE", path), err.Error())
				require.NotContains(t, err.Error(), "\n")
			})
		}
	}
}

func unknownNames() []badRow {
	return []badRow{
		{"unknown variable", inEnv("TIDEWIRE_HTPP_LISTEN=x"), "environment variable TIDEWIRE_HTPP_LISTEN: there is no such setting; did you mean TIDEWIRE_HTTP_LISTEN?"},
		{"unknown empty variable", inEnv("TIDEWIRE_FOO="), "environment variable TIDEWIRE_FOO: there is no such setting"},
		{"variable like Kubernetes' with another value", inEnv("TIDEWIRE_HTTP_PORT=8080"), "environment variable TIDEWIRE_HTTP_PORT: there is no such setting"},
		{"variable with a line break", inEnv("TIDEWIRE_A\nB=x"), "environment variable TIDEWIRE_A B: there is no such setting"},
		{"unknown key", inFile("http_listen: x"), "http_listen (config file FILE): there is no such setting; did you mean http-listen?"},
		{"unknown key far from any", inFile("größe: 1"), "größe (config file FILE): there is no such setting"},
		{"nested key", inFile("http:\n  listen: x"), "http (config file FILE): there is no such setting"},
		{"empty nested key", inFile("storage: {}"), "storage (config file FILE): there is no such setting"},
		{"first of several unknown keys", inFile("zz: 1\nabc: 1"), "abc (config file FILE): there is no such setting"},
		{"number as a key", inFile("1: x"), "1 (config file FILE): there is no such setting"},
		{"config within the file", inFile("config: x"), "config (config file FILE): cannot be set in the config file itself"},
	}
}

func badFiles() []badRow {
	return []badRow{
		{"missing file", flagged("config", "/nonexistent/t.yaml"), "config (flag --config): open /nonexistent/t.yaml: no such file or directory"},
		{"missing file by variable", inEnv("TIDEWIRE_CONFIG=/nonexistent/t.yaml"), "config (environment variable TIDEWIRE_CONFIG): open /nonexistent/t.yaml: no such file or directory"},
		{"list at the top", inFile("- a"), "config (flag --config): FILE is not a YAML file of settings: its top level is not a mapping of keys to values"},
		{"text at the top", inFile("hello"), "config (flag --config): FILE is not a YAML file of settings: its top level is not a mapping of keys to values"},
		{"two documents", inFile("node-id: 1\n---\nnode-id: 2"), "config (flag --config): FILE is not a YAML file of settings: it has more than one document"},
		{"twice the same key", inFile("rack: a\nrack: b"), `config (flag --config): FILE is not a YAML file of settings: yaml: unmarshal errors: line 2: mapping key "rack" already defined at line 1`},
	}
}

func badShapes() []badRow {
	return []badRow{
		{"no value", inFile("rack:"), "rack (config file FILE): has no value; give one or leave the key out"},
		{"no value for a number", inFile("node-id:"), "node-id (config file FILE): has no value; give one or leave the key out"},
		{"no value for a switch", inFile("dev:"), "dev (config file FILE): has no value; give one or leave the key out"},
		{"no value for a list", inFile("join:"), "join (config file FILE): has no value; give one or leave the key out"},
		{"no value for a secret", inFile("cluster-key:"), "cluster-key (config file FILE): has no value; give one or leave the key out"},
		{"list for one value", inFile("rack: [a]"), "rack (config file FILE): must be one value"},
		{"mapping for one value", inFile("node-id: {a: 1}"), "node-id (config file FILE): must be one value"},
		{"empty mapping for one value", inFile("node-id: {}"), "node-id (config file FILE): must be one value"},
		{"number for a text", inFile("rack: 007"), "rack (config file FILE): must be text; put it in quotes (it was read as 7)"},
		{"number for a secret", inFile("cluster-key: 4711"), "cluster-key (config file FILE): must be text; put it in quotes"},
		{"null character", inFile(`data-dir: "a\0b"`), "data-dir (config file FILE): holds a null character"},
		{"number within a list", inFile("join: [1]"), "join (config file FILE): an item of the list must be text; put it in quotes (it was read as 1)"},
		{"empty item", flagged("join", "a:1,,b:2"), `join (flag --join): "a:1,,b:2" has an empty item`},
	}
}

func badNumbers() []badRow {
	return []badRow{
		{"no number", flagged("node-id", "one"), `node-id (flag --node-id): "one" is not a whole number`},
		{"fraction", inFile("node-id: 1.5"), "node-id (config file FILE): 1.5 is not a whole number"},
		{"negative node", flagged("node-id", "-1"), "node-id (flag --node-id): -1 is not from 0 to 2147483647"},
		{"node beyond int32", inFile("node-id: 2147483648"), "node-id (config file FILE): 2147483648 is not from 0 to 2147483647"},
		{"number beyond int64", flagged("node-id", "9223372036854775808"), `node-id (flag --node-id): "9223372036854775808" is too large`},
		{"number beyond int64 in the file", inFile("node-id: 9223372036854775808"), "node-id (config file FILE): 9223372036854775808 is too large"},
		{"no switch", inEnv("TIDEWIRE_DEV=yes"), `environment variable TIDEWIRE_DEV: "yes" is neither true nor false`},
		{"number for a switch", inFile("dev: 2"), "dev (config file FILE): 2 is neither true nor false"},
		{"none of the words", flagged("log-level", "trace"), `log-level (flag --log-level): "trace" is none of debug, info, warn, error`},
		{"empty word", flagged("log-format", ""), `log-format (flag --log-format): "" is none of text, json`},
	}
}

func badDurations() []badRow {
	return []badRow{
		{"duration without unit", flagged("shutdown-timeout", "30"), `shutdown-timeout (flag --shutdown-timeout): "30" needs a unit, such as 30s or 2ms`},
		{"duration without unit in the file", inFile("shutdown-timeout: 30"), "shutdown-timeout (config file FILE): 30 needs a unit, such as 30s or 2ms"},
		{"no duration", flagged("shutdown-timeout", "soon"), `shutdown-timeout (flag --shutdown-timeout): "soon" is not a duration such as 30s, 2ms or 1m30s (units h, m, s, ms, µs, ns; at most 292 years)`},
		{"duration too large to hold", flagged("shutdown-timeout", "9999999h"), `shutdown-timeout (flag --shutdown-timeout): "9999999h" is not a duration such as 30s, 2ms or 1m30s (units h, m, s, ms, µs, ns; at most 292 years)`},
		{"negative duration", flagged("shutdown-timeout", "-1s"), `shutdown-timeout (flag --shutdown-timeout): "-1s" is negative`},
		{"duration above its range", flagged("shutdown-timeout", "61m"), "shutdown-timeout (flag --shutdown-timeout): 1h1m0s is not from 0s to 1h0m0s"},
		{"duration below its range", inFile("log-sync-interval: 0"), "log-sync-interval (config file FILE): 0s is not from 100µs to 10s"},
	}
}

func badSizes() []badRow {
	return []badRow{
		{"size without unit", inEnv("TIDEWIRE_DISK_RESERVE=268435456"), `environment variable TIDEWIRE_DISK_RESERVE: "268435456" needs a unit, such as 256MiB or 1GB`},
		{"size without unit in the file", inFile("disk-reserve: 268435456"), "disk-reserve (config file FILE): 268435456 needs a unit, such as 256MiB or 1GB"},
		{"negative size", flagged("disk-reserve", "-1MiB"), `disk-reserve (flag --disk-reserve): "-1MiB" is negative`},
		{"size too large", flagged("disk-reserve", "9000000TiB"), `disk-reserve (flag --disk-reserve): "9000000TiB" is too large`},
		{"unknown unit", flagged("disk-reserve", "1M"), `disk-reserve (flag --disk-reserve): "1M" is not a size such as 256MiB (a whole number and one of B, kB, MB, GB, TB, KiB, MiB, GiB, TiB)`},
		{"empty size", flagged("disk-reserve", ""), `disk-reserve (flag --disk-reserve): "" is not a size such as 256MiB (a whole number and one of B, kB, MB, GB, TB, KiB, MiB, GiB, TiB)`},
	}
}

func badAddresses() []badRow {
	return []badRow{
		{"no port", flagged("http-listen", "localhost"), `http-listen (flag --http-listen): "localhost" is not host:port`},
		{"empty address", flagged("http-listen", ""), `http-listen (flag --http-listen): "" is not host:port`},
		{"bare IPv6", flagged("http-listen", "::1:80"), `http-listen (flag --http-listen): "::1:80" is not host:port (an IPv6 address goes in brackets: [::1]:8080)`},
		{"port too large", flagged("peer-listen", "[::1]:65536"), `peer-listen (flag --peer-listen): "[::1]:65536": the port is not a number from 0 to 65535`},
		{"port by name", flagged("http-listen", "a:http"), `http-listen (flag --http-listen): "a:http": the port is not a number from 0 to 65535`},
		{"brackets around a name", flagged("http-listen", "[a]:1"), `http-listen (flag --http-listen): "[a]:1": brackets are for IPv6 addresses`},
		{"no IPv4 address", flagged("http-listen", "127.0.0.256:1"), `http-listen (flag --http-listen): "127.0.0.256:1": the host is neither an IP address nor a host name`},
		{"unicode host", flagged("kafka-listen", "bücher:1"), `kafka-listen (flag --kafka-listen): "bücher:1": a host name has only labels of A-Z a-z 0-9 - _ between dots (write other scripts in punycode)`},
		{"off where it is not allowed", flagged("http-listen", "off"), `http-listen (flag --http-listen): "off" is not host:port`},
		{"address as a URL", flagged("http-advertise", "http://a:1"), `http-advertise (flag --http-advertise): "http://a:1" is not host:port`},
		{"advertised wildcard", flagged("gossip-advertise", "0.0.0.0:1"), `gossip-advertise (flag --gossip-advertise): "0.0.0.0:1" names no host that others can reach`},
		{"advertised nothing", flagged("peer-advertise", ":1"), `peer-advertise (flag --peer-advertise): ":1" names no host that others can reach`},
		{"join without a port", flagged("join", "a:0"), `join (flag --join): "a:0" names no port`},
	}
}

func badTexts() []badRow {
	return []badRow{
		{"long value is cut", flagged("http-listen", strings.Repeat("ü", 100)), `http-listen (flag --http-listen): "` + strings.Repeat("ü", 80) + `"… is not host:port`},
		{"line break in a value", flagged("rack", "a\nb"), `rack (flag --rack): "a\nb" must not hold control characters`},
		{"empty data folder", flagged("data-dir", ""), "data-dir (flag --data-dir): must not be empty"},
		{"prefix without slash", flagged("http-path-prefix", "mq"), `http-path-prefix (flag --http-path-prefix): "mq" does not begin with a slash`},
		{"prefix with an empty segment", flagged("http-path-prefix", "/a//"), `http-path-prefix (flag --http-path-prefix): "/a//" has an empty, . or .. segment`},
		{"prefix upwards", flagged("http-path-prefix", "/a/../b"), `http-path-prefix (flag --http-path-prefix): "/a/../b" has an empty, . or .. segment`},
		{"prefix in other characters", flagged("http-path-prefix", "/a%20b"), `http-path-prefix (flag --http-path-prefix): "/a%20b" may hold only A-Z a-z 0-9 - . _ ~ between slashes`},
		{"origin with a path", flagged("cors-origin", "https://a/b"), `cors-origin (flag --cors-origin): "https://a/b" is not an origin such as https://app.example.com or http://localhost:3000, or *`},
		{"every origin and one more", flagged("cors-origin", "*,https://a"), "cors-origin (flag --cors-origin): * stands alone, without other origins"},
		{"no proxy", flagged("trusted-proxies", "10.0.0.0/33"), `trusted-proxies (flag --trusted-proxies): "10.0.0.0/33" is neither an IP address nor a CIDR range such as 10.0.0.0/8`},
	}
}

func badTogether() []badRow {
	return []badRow{
		{"certificate alone", inFile("http-tls-cert: c"), "http-tls-cert (config file FILE): needs http-tls-key too"},
		{"key alone", inEnv("TIDEWIRE_HTTP_TLS_KEY=k"), "environment variable TIDEWIRE_HTTP_TLS_KEY: needs http-tls-cert too"},
		{"dev on every interface", given{args: []string{"--dev", "--http-listen", ":8080"}}, "http-listen (flag --http-listen): :8080 is not a loopback address, and --dev, with its known password, listens on loopback only"},
		{"dev with another open port", given{args: []string{"--dev"}, yaml: "kafka-listen: 10.0.0.1:9092"}, "kafka-listen (config file FILE): 10.0.0.1:9092 is not a loopback address, and --dev, with its known password, listens on loopback only"},
		{"join without key", flagged("join", "a:1"), "join (flag --join): needs a cluster key (--cluster-key or --cluster-key-file; `tidewire cluster keygen` makes one)"},
		{"several without key", flagged("bootstrap-expect", "3"), "bootstrap-expect (flag --bootstrap-expect): 3 needs a cluster key (--cluster-key or --cluster-key-file; `tidewire cluster keygen` makes one)"},
		{"wait to be joined without key", flagged("bootstrap-expect", "0"), "bootstrap-expect (flag --bootstrap-expect): 0 needs a cluster key (--cluster-key or --cluster-key-file; `tidewire cluster keygen` makes one)"},
		{"open port between nodes without key", flagged("peer-listen", "0.0.0.0:1"), "peer-listen (flag --peer-listen): 0.0.0.0:1 is not a loopback address, which needs a cluster key (--cluster-key or --cluster-key-file; `tidewire cluster keygen` makes one)"},
		{"no base64", inEnv("TIDEWIRE_CLUSTER_KEY=secret!"), "environment variable TIDEWIRE_CLUSTER_KEY: is not base64 of 32 bytes (`tidewire cluster keygen` makes one)"},
		{"short key", flagged("cluster-key", base64.StdEncoding.EncodeToString(make([]byte, 31))), "cluster-key (flag --cluster-key): is base64 of 31 bytes, not of 32 (`tidewire cluster keygen` makes one)"},
		{"missing key file", flagged("cluster-key-file", "/nonexistent/k"), "cluster-key-file (flag --cluster-key-file): open /nonexistent/k: no such file or directory"},
		{"key and key file", given{args: []string{"--cluster-key-file", "k"}, env: []string{"TIDEWIRE_CLUSTER_KEY=" + testKey('a')}}, "cluster-key-file (flag --cluster-key-file): cluster-key is given too (environment variable TIDEWIRE_CLUSTER_KEY); give one of the two"},
	}
}

func TestBadYAMLIsExplainedInOneLine(t *testing.T) {
	t.Parallel()
	_, path, err := given{yaml: "rack: [a\nb: {"}.load(t)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "\n")
	require.Contains(t, err.Error(), "config (flag --config): "+path+" is not a YAML file of settings: yaml: ")
}

func TestKeyFileWithSomethingElseIsRefusedWithoutShowingIt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("hush", 100_000)), 0o600))
	_, _, err := given{args: []string{"--cluster-key-file", path}}.load(t)
	require.EqualError(t, err, "cluster-key-file (flag --cluster-key-file): "+path+" is base64 of 3072 bytes, not of 32 (`tidewire cluster keygen` makes one)")
}

func TestDevListensOnLoopback(t *testing.T) {
	t.Parallel()
	for _, ok := range []string{"127.0.0.1:0", "127.9.9.9:1", "[::1]:0", "localhost:0", "LOCALHOST:8080"} {
		mustLoad(t, given{args: []string{"--dev", "--http-listen", ok}})
	}
	for _, bad := range []string{":0", "0.0.0.0:0", "[::]:0", "192.168.0.1:1", "localhost.example:1"} {
		_, _, err := given{args: []string{"--dev", "--http-listen", bad}}.load(t)
		require.Error(t, err, bad)
	}
	mustLoad(t, given{args: []string{"--dev", "--kafka-listen", "off"}})
}

func TestPortsBetweenNodesOpenWithAKey(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, given{args: []string{"--gossip-listen", ":7946", "--peer-listen", "[::]:0", "--cluster-key", testKey('x')}})
	require.Equal(t, ":7946", c.Gossip.Listen)
	require.Equal(t, "[::]:0", c.Peer.Listen)
}
