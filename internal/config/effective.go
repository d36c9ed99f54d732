package config

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// check applies the rules that join settings, and what follows from them.
func (c *Config) check() error {
	c.expectNoneWhenJoining()
	steps := []func() error{c.checkTLS, c.checkOrigins, c.readKeyFile, c.checkDev, c.checkKeyNeeded}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) expectNoneWhenJoining() {
	if i := c.index("bootstrap-expect"); len(c.Join) > 0 && c.items[i].Source.Kind == FromDefault {
		c.BootstrapExpect = 0
		c.items[i].Value = int64(0)
	}
}

func (c *Config) checkTLS() error {
	if (c.HTTP.TLSCert == "") == (c.HTTP.TLSKey == "") {
		return nil
	}
	given, missing := "http-tls-cert", "http-tls-key"
	if c.HTTP.TLSCert == "" {
		given, missing = missing, given
	}
	return c.errorf(given, "needs %s too", missing)
}

func (c *Config) checkOrigins() error {
	for _, o := range c.HTTP.CORSOrigins {
		if o == "*" && len(c.HTTP.CORSOrigins) > 1 {
			return c.errorf("cors-origin", "* stands alone, without other origins")
		}
	}
	return nil
}

func (c *Config) readKeyFile() error {
	const name = "cluster-key-file"
	path := c.items[c.index(name)].Value.(string)
	if path == "" {
		return nil
	}
	if !c.ClusterKey.IsZero() {
		return c.errorf(name, "cluster-key is given too (%s); give one of the two", c.items[c.index("cluster-key")].Source)
	}
	text, err := readSmall(path)
	if err != nil {
		return c.errorf(name, "%w", err)
	}
	if c.ClusterKey, err = parseKey(text); err != nil {
		return c.errorf(name, "%s %w", path, err)
	}
	return nil
}

// readSmall reads a file that holds a key; one that is too long for that is cut, so
// that a wrong path (a disk, a log) ends in a plain error.
func readSmall(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close() // only read
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	return string(b), err
}

func (c *Config) checkDev() error {
	if !c.Dev {
		return nil
	}
	for _, p := range c.ports() {
		if !p.listener.Off && !loopback(p.listener.Listen) {
			return c.errorf(p.setting, "%s is not a loopback address, and --dev, with its known password, listens on loopback only", p.listener.Listen)
		}
	}
	return nil
}

// checkKeyNeeded: without a key, whoever reaches the ports between nodes could act
// as a node.
func (c *Config) checkKeyNeeded() error {
	const how = "needs a cluster key (--cluster-key or --cluster-key-file; `tidewire cluster keygen` makes one)"
	switch {
	case !c.ClusterKey.IsZero():
		return nil
	case len(c.Join) > 0:
		return c.errorf("join", how)
	case c.BootstrapExpect != 1:
		return c.errorf("bootstrap-expect", "%d "+how, c.BootstrapExpect)
	}
	for _, p := range c.ports() {
		if p.internal && !loopback(p.listener.Listen) {
			return c.errorf(p.setting, "%s is not a loopback address, which "+how, p.listener.Listen)
		}
	}
	return nil
}

type port struct {
	setting  string
	listener Listener
	internal bool // between nodes
}

func (c *Config) ports() []port {
	return []port{
		{"http-listen", c.HTTP.Listener, false},
		{"kafka-listen", c.Kafka, false},
		{"gossip-listen", c.Gossip, true},
		{"peer-listen", c.Peer, true},
	}
}

// index finds the item of a name of the table; another name is a fault of this
// package.
func (c *Config) index(name string) int {
	for i := range c.items {
		if c.items[i].Name == name {
			return i
		}
	}
	panic("config: no setting " + name)
}

func (c *Config) errorf(name, format string, args ...any) error {
	it := c.items[c.index(name)]
	return &Error{spelt(it.Setting, it.Source), it.Source, fmt.Errorf(format, args...).Error()}
}

// Unopened tells of each port that has settings and is not opened, a log line each: what it
// is for is not built yet, or needs a cluster key.
func (c *Config) Unopened() (notices []string) {
	if !c.Kafka.Off {
		notices = append(notices, fmt.Sprintf("kafka-listen %s: the Kafka protocol is not built yet, the port is not opened", c.Kafka.Listen))
	}
	if c.Clustered() {
		return notices
	}
	for _, p := range c.ports() {
		if p.internal {
			notices = append(notices, fmt.Sprintf("%s %s: there is no cluster key, so this node is alone and the port is not opened", p.setting, p.listener.Listen))
		}
	}
	return notices
}

// Clustered reports whether the node opens its ports to other nodes: it has a cluster key.
func (c *Config) Clustered() bool { return !c.ClusterKey.IsZero() }

var errNotTCP = errors.New("config: the listening address is not host:port")

// Dialable returns an address at which a port can be reached from this machine:
// actual is the address that the listener reports. A host that means every
// interface becomes loopback.
func Dialable(actual net.Addr) (string, error) {
	ap, err := netip.ParseAddrPort(actual.String())
	if err != nil {
		return "", errNotTCP
	}
	ip := ap.Addr()
	if ip.IsUnspecified() {
		// Go's wildcard sockets take IPv4 too, and a container often has no ::1.
		ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.AddrPortFrom(ip, ap.Port()).String(), nil
}

// Advertised returns the address that the node tells to others: Advertise when set,
// with the port in use in place of port 0, else the dialable form of actual.
func (l Listener) Advertised(actual net.Addr) (string, error) {
	if l.Advertise == "" {
		return Dialable(actual)
	}
	host, wanted, err := net.SplitHostPort(l.Advertise)
	if err != nil || wanted != "0" {
		return l.Advertise, err
	}
	ap, err := netip.ParseAddrPort(actual.String())
	if err != nil {
		return "", errNotTCP
	}
	return net.JoinHostPort(host, strconv.Itoa(int(ap.Port()))), nil
}

// URL is the base address of the HTTP port at a host:port, without a slash at the
// end: scheme and path prefix as configured.
func (h HTTP) URL(address string) string {
	scheme := "http://"
	if h.TLS() {
		scheme = "https://"
	}
	return strings.TrimSuffix(scheme+address+h.PathPrefix, "/")
}
