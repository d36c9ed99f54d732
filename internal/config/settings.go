package config

import (
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"tidewire/internal/model"
)

// Type names how a setting's value is written.
type Type string

// The types of settings.
const (
	Text     Type = "text"
	Path     Type = "path"
	Address  Type = "address" // host:port, [IPv6]:port, :port
	Int      Type = "int"
	Bool     Type = "bool"
	Duration Type = "duration" // such as 2ms, 1m30s
	Bytes    Type = "size"     // such as 256MiB
	List     Type = "list"     // of texts: repeated, or separated by commas
)

// Setting is what is known of a setting before any value: one row of the table.
type Setting struct {
	Name    string // the flag without its dashes, and the YAML key
	Type    Type
	Default string // as one would write it; "" for none
	Unit    string // what a number counts, or the form of a text; "" when plain
	Secret  bool
	Doc     string
}

const envPrefix = "TIDEWIRE_"

// Env is the name of the setting's environment variable.
func (s Setting) Env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
}

// Flag is the name of the setting's flag with its dashes.
func (s Setting) Flag() string { return "--" + s.Name }

// Settings returns the table in the order of the documentation.
func Settings() []Setting {
	rows := table()
	out := make([]Setting, len(rows))
	for i, r := range rows {
		out[i] = r.Setting
	}
	return out
}

// row is a setting with its meaning: read turns a value of any layer into the typed
// one, store puts that into the Config, show gives the printed form.
type row struct {
	Setting
	read  func(raw any) (any, error)
	store func(c *Config, v any)
	show  func(v any) any
}

// configSetting names the setting that the YAML file itself cannot hold.
const configSetting = "config"

func table() []row {
	return append(append(nodeRows(), listenRows()...), operationRows()...)
}

func nodeRows() []row {
	return []row{
		text(Setting{Name: configSetting, Type: Path, Doc: "YAML file with settings, keyed by the names in this table"},
			checkPath, func(c *Config) *string { return &c.File }),
		text(Setting{Name: "data-dir", Type: Path, Default: "./data", Doc: "Folder of everything the node stores; made when missing"},
			checkDataDir, func(c *Config) *string { return &c.DataDir }),
		integer(Setting{Name: "node-id", Default: "1", Doc: "Number of this node, unique in its cluster: 0 to 2147483647"},
			0, 1<<31-1, func(c *Config, n int64) { c.NodeID = model.BrokerID(n) }),
		boolean(Setting{Name: "dev", Doc: "Try-out mode: login admin / tidewire, every port on loopback only"},
			func(c *Config) *bool { return &c.Dev }),
		text(Setting{Name: "rack", Type: Text, Doc: "Rack or zone of this node; replicas are spread over racks"},
			checkRack, func(c *Config) *string { return &c.Rack }),
		list(Setting{Name: "join", Unit: "host:port", Doc: "Gossip addresses of running nodes, of which one is enough to join their cluster"},
			checkDialAddress, func(c *Config, v []string) { c.Join = v }),
		integer(Setting{Name: "bootstrap-expect", Default: "1", Unit: "nodes", Doc: "Number of nodes that form a new cluster; with `join` the default is 0: never form one"},
			0, 1000, func(c *Config, n int64) { c.BootstrapExpect = int(n) }),
		key(Setting{Name: "cluster-key", Unit: "base64 of 32 bytes", Doc: "Key shared by the nodes of a cluster (`tidewire cluster keygen`); needed for a gossip or peer port that is not on loopback"}),
		text(Setting{Name: "cluster-key-file", Type: Path, Doc: "File that holds the cluster key, instead of `cluster-key`"},
			checkPath, nil),
	}
}

func listenRows() []row {
	return []row{
		text(Setting{Name: "http-listen", Type: Address, Default: "127.0.0.1:8080", Doc: "HTTP port: API, WebSocket, UI; port 0 takes any free one"},
			checkListen, func(c *Config) *string { return &c.HTTP.Listen }),
		text(Setting{Name: "http-advertise", Type: Address, Doc: "Address of the HTTP port as clients reach it; the listening address when empty"},
			checkAdvertise, func(c *Config) *string { return &c.HTTP.Advertise }),
		text(Setting{Name: "http-tls-cert", Type: Path, Unit: "PEM", Doc: "Certificate chain; makes the port speak HTTPS"},
			checkPath, func(c *Config) *string { return &c.HTTP.TLSCert }),
		text(Setting{Name: "http-tls-key", Type: Path, Unit: "PEM", Doc: "Private key of `http-tls-cert`"},
			checkPath, func(c *Config) *string { return &c.HTTP.TLSKey }),
		text(Setting{Name: "http-path-prefix", Type: Text, Unit: "/a/b", Doc: "Path under which everything is served, for a proxy that passes one on"},
			checkPathPrefix, func(c *Config) *string { return &c.HTTP.PathPrefix }),
		list(Setting{Name: "cors-origin", Unit: "scheme://host[:port] or *", Doc: "Origins whose pages may call the API; none by default"},
			checkOrigin, func(c *Config, v []string) { c.HTTP.CORSOrigins = v }),
		list(Setting{Name: "trusted-proxies", Unit: "IP or CIDR", Doc: "Proxies whose `X-Forwarded-For`, `-Proto` and `-Host` are believed; none by default"},
			checkProxy, func(c *Config, v []string) { c.HTTP.TrustedProxies = prefixes(v) }),
		boolean(Setting{Name: "metrics-public", Doc: "Serve `/metrics` without login"},
			func(c *Config) *bool { return &c.HTTP.MetricsPublic }),
		listenOrOff(Setting{Name: "kafka-listen", Type: Address, Default: "127.0.0.1:9092", Unit: "host:port or off", Doc: "Port of the Kafka protocol; `off` opens none"},
			func(c *Config) *Listener { return &c.Kafka }),
		text(Setting{Name: "kafka-advertise", Type: Address, Doc: "Address of the Kafka port as clients reach it; the listening address when empty"},
			checkAdvertise, func(c *Config) *string { return &c.Kafka.Advertise }),
		text(Setting{Name: "gossip-listen", Type: Address, Default: "127.0.0.1:7946", Doc: "Membership port, TCP and UDP"},
			checkListen, func(c *Config) *string { return &c.Gossip.Listen }),
		text(Setting{Name: "gossip-advertise", Type: Address, Doc: "Address of the membership port as other nodes reach it; the listening address when empty"},
			checkAdvertise, func(c *Config) *string { return &c.Gossip.Advertise }),
		text(Setting{Name: "peer-listen", Type: Address, Default: "127.0.0.1:7947", Doc: "Port between nodes: metadata quorum and replication"},
			checkListen, func(c *Config) *string { return &c.Peer.Listen }),
		text(Setting{Name: "peer-advertise", Type: Address, Doc: "Address of the port between nodes as other nodes reach it; the listening address when empty"},
			checkAdvertise, func(c *Config) *string { return &c.Peer.Advertise }),
	}
}

func operationRows() []row {
	return []row{
		enum(Setting{Name: "log-format", Default: "text", Doc: "Form of the node's own log lines on standard error"},
			[]string{"text", "json"}, func(c *Config, s string) { c.LogFormat = s }),
		enum(Setting{Name: "log-level", Default: "info", Doc: "Least severity of the node's own log lines"},
			[]string{"debug", "info", "warn", "error"}, func(c *Config, s string) { c.LogLevel = level(s) }),
		duration(Setting{Name: "shutdown-timeout", Default: "30s", Doc: "Time that a stopping node gives to running requests: 0s to 1h"},
			0, time.Hour, func(c *Config) *time.Duration { return &c.ShutdownTimeout }),
		size(Setting{Name: "disk-reserve", Default: "256MiB", Doc: "Free space below which records and new partitions are refused with `storage-full`"},
			func(c *Config) *Size { return &c.DiskReserve }),
		duration(Setting{Name: "log-sync-interval", Default: "2ms", Doc: "Time between syncs of logs on which no `acks=all` request waits: 100µs to 10s"},
			100*time.Microsecond, 10*time.Second, func(c *Config) *time.Duration { return &c.LogSyncInterval }),
		size(Setting{Name: "http-inflight-bytes", Default: "512MiB", Doc: "Memory that bodies of HTTP requests and WebSocket frames under way may take together, records in them included; what comes beyond is refused with 429. At least 64MiB"},
			func(c *Config) *Size { return &c.HTTPInflightBytes }),
		integer(Setting{Name: "http-max-connections", Default: "0", Unit: "connections", Doc: "Connections of the HTTP port at once, WebSockets included; beyond them a newcomer takes the place of one that waits for a request, or is refused with 429, and one address never has more than three quarters. 0 takes half of the descriptors that the process may have, at most 10000"},
			0, 1<<20, func(c *Config, n int64) { c.HTTPMaxConnections = int(n) }),
		size(Setting{Name: "compaction-buffer", Default: "128MiB", Doc: "Memory for the keys that one pass of compaction covers, 24 bytes each; taken only while a pass runs, and at least 1MiB"},
			func(c *Config) *Size { return &c.CompactionBuffer }),
		size(Setting{Name: "fetch-memory", Default: "256MiB", Doc: "Memory of all reads of records together, at least 16MiB; a read that finds none for 5 seconds is refused with `rate-limited`, and one user never has more than three quarters"},
			func(c *Config) *Size { return &c.FetchMemory }),
		integer(Setting{Name: "max-open-files", Default: "0", Unit: "files", Doc: "Files of partitions that are open at once, at most; those used longest ago are closed for others. 0 takes half of the descriptors that the process may have, at most 3072; below 64 it is 64"},
			0, 1<<20, func(c *Config, n int64) { c.MaxOpenFiles = int(n) }),
	}
}

func level(s string) slog.Level {
	switch s {
	case "debug":
		return slog.LevelDebug
	case "warn":
		return slog.LevelWarn
	case "error":
		return slog.LevelError
	}
	return slog.LevelInfo
}

func prefixes(texts []string) []netip.Prefix {
	out := make([]netip.Prefix, len(texts))
	for i, t := range texts {
		out[i] = netip.MustParsePrefix(t) // checkProxy made the text
	}
	return out
}
