package config

import (
	"encoding/json"
	"log/slog"
	"net/netip"
	"time"

	"tidewire/internal/model"
)

// Config is the effective configuration of a node. Load fills every field; values
// are checked and normalised.
type Config struct {
	File    string // path of the YAML file, "" when none was given
	DataDir string // as given; relative to the working directory
	NodeID  model.BrokerID
	Dev     bool // known login, loopback only

	HTTP   HTTP
	Kafka  Listener // Listen is "" when Off
	Gossip Listener
	Peer   Listener

	Join            []string // gossip addresses host:port of running nodes
	BootstrapExpect int      // nodes that form a new cluster; 0: never forms one
	ClusterKey      Key
	Rack            string

	LogFormat       string // "text" or "json"
	LogLevel        slog.Level
	ShutdownTimeout time.Duration
	DiskReserve     Size // free bytes below which record writes are refused
	LogSyncInterval time.Duration
	// HTTPInflightBytes bounds what requests under way hold.
	HTTPInflightBytes  Size
	HTTPMaxConnections int // 0: by the limit of the process
	// CompactionBuffer is the memory for the keys of one pass of compaction, in bytes.
	CompactionBuffer Size
	// FetchMemory bounds the memory of all reads together, in bytes.
	FetchMemory  Size
	MaxOpenFiles int // of the logs; 0: by the limit of the process

	// AdminPassword comes from TIDEWIRE_ADMIN_PASSWORD alone. It applies only while
	// the cluster has no user, and is not a setting: it is never printed.
	AdminPassword Secret

	items []Item // one per row of the table, in its order
}

// Listener is a port that the node opens.
type Listener struct {
	Listen    string // host:port; an empty host means every interface, port 0 any free port
	Advertise string // host:port told to others, "" to use the listening address; port 0 means the port in use
	Off       bool
}

// HTTP holds the settings of the HTTP port.
type HTTP struct {
	Listener
	TLSCert, TLSKey string         // PEM files; both or neither
	PathPrefix      string         // "" or "/a/b", without a slash at the end
	CORSOrigins     []string       // scheme://host[:port] in lower case, or the one element "*"
	TrustedProxies  []netip.Prefix // peers whose X-Forwarded-For counts
	MetricsPublic   bool
}

// TLS reports whether the port speaks HTTPS.
func (h HTTP) TLS() bool { return h.TLSCert != "" }

// Size is a number of bytes, never negative.
type Size int64

const mask = "********"

// Secret is a text that does not show itself when printed, logged or marshalled.
type Secret struct{ text string }

// NewSecret wraps a text.
func NewSecret(text string) Secret { return Secret{text} }

// Reveal returns the text.
func (s Secret) Reveal() string { return s.text }

// IsZero reports whether there is no text.
func (s Secret) IsZero() bool { return s.text == "" }

// String masks a text that is there.
func (s Secret) String() string {
	if s.IsZero() {
		return ""
	}
	return mask
}

// GoString masks as String does, for %#v.
func (s Secret) GoString() string { return s.String() }

// MarshalText masks as String does.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue masks as String does.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// KeySize is the length of a cluster key in bytes.
const KeySize = 32

// Key is a cluster key of KeySize bytes, or none. It does not show itself.
type Key struct{ s Secret }

// Bytes returns a copy of the key, nil when there is none.
func (k Key) Bytes() []byte {
	if k.IsZero() {
		return nil
	}
	return []byte(k.s.text)
}

// IsZero reports whether there is no key.
func (k Key) IsZero() bool { return k.s.IsZero() }

// String masks a key that is there.
func (k Key) String() string { return k.s.String() }

// GoString masks as String does, for %#v.
func (k Key) GoString() string { return k.String() }

// MarshalText masks as String does.
func (k Key) MarshalText() ([]byte, error) { return k.s.MarshalText() }

// LogValue masks as String does.
func (k Key) LogValue() slog.Value { return k.s.LogValue() }

// SourceKind is the layer a value comes from.
type SourceKind string

// The layers, weakest first.
const (
	FromDefault     SourceKind = "default"
	FromFile        SourceKind = "file"
	FromEnvironment SourceKind = "environment"
	FromFlag        SourceKind = "flag"
)

// Source tells where a value comes from. Name is the path of the file, the name of
// the variable or the flag with its dashes; "" for a default.
type Source struct {
	Kind SourceKind
	Name string
}

// String gives a phrase for people, such as "flag --node-id".
func (s Source) String() string {
	switch s.Kind {
	case FromFile:
		return "config file " + oneLine(s.Name)
	case FromEnvironment:
		return "environment variable " + oneLine(s.Name)
	case FromFlag:
		return "flag " + s.Name
	}
	return string(FromDefault)
}

// Item is one effective setting. Value is a string, int64, bool or []string, in a
// form that the YAML file accepts for the setting; for a secret it is masked. A
// setting without a value has "" or an empty list.
type Item struct {
	Setting
	Value  any
	Source Source
}

// Items returns every effective setting in the table's order.
func (c *Config) Items() []Item { return append([]Item(nil), c.items...) }

// Error says in one line which setting is wrong, where its value came from, and
// why. Setting is the name as the source spells it: flag name, variable or YAML key.
type Error struct {
	Setting string
	Source  Source
	Problem string
}

// Error gives the line. A variable's name is not repeated.
func (e *Error) Error() string {
	name := oneLine(e.Setting)
	if e.Source.Kind == FromEnvironment && e.Source.Name == e.Setting {
		return "environment variable " + name + ": " + oneLine(e.Problem)
	}
	return name + " (" + e.Source.String() + "): " + oneLine(e.Problem)
}

var (
	_ json.Marshaler = Item{}
	_ error          = (*Error)(nil)
)
