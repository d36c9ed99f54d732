package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/hashicorp/serf/serf"

	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
)

// Status is what gossip knows of a member.
type Status uint8

// Statuses.
const (
	Alive  Status = iota + 1
	Left          // it said goodbye
	Failed        // it does not answer
)

// Member is a node as gossip tells of it.
type Member struct {
	Node    model.BrokerID
	Storage string // id of the data folder
	Cluster string // "" while it belongs to none
	Expect  int    // how many nodes it founds a cluster with; 0: it founds none
	Peer    string // address of its port between nodes, host:port
	Gossip  string // address of its gossip, host:port
	Rack    string
	Version string // of the binary
	Status  Status
}

// Config is what a Membership is made of. The member's Gossip and Status are not used.
type Config struct {
	Self      Member // Peer may lack the host, as ":7947": that of the gossip's address then
	Listen    string // host:port for TCP and UDP; port 0 takes any
	Advertise string // host:port that others are told; "" is where it listens
	Key       []byte // 32 bytes
	Logger    *slog.Logger
	Changed   func() // called when a member has changed; must not block
	// Transport is in the place of sockets in tests.
	Transport memberlist.Transport
}

// Tuned detection: a node that is gone is known to be within about two seconds.
const (
	probeInterval  = 500 * time.Millisecond
	probeTimeout   = 250 * time.Millisecond
	suspicionMult  = 3
	suspicionMost  = 2                      // times as long where nobody else confirms it
	reclaimAfter   = 100 * time.Millisecond // from its death on, a name may have a new address
	pushPullEvery  = 10 * time.Second       // whole states are exchanged
	reconnectEvery = 5 * time.Second        // to nodes that have failed
	leaveTime      = 300 * time.Millisecond // for a goodbye to spread
	goodbyeTime    = 2 * time.Second        // at most, for it to be sent
)

// Errors of Join.
var (
	// ErrOtherCluster: the nodes there belong to another cluster.
	ErrOtherCluster = errors.New("the node there belongs to another cluster")
	// ErrNoGossip: something listens there and does not answer.
	ErrNoGossip = errors.New("what listens there does not answer this node's gossip: its cluster key is another one, or it is no Tidewire node")
)

// Membership is this node's part in gossip. Its methods are safe for concurrent use.
type Membership struct {
	cfg   Config
	serf  *serf.Serf
	guard *guard
	group *lifecycle.Group

	mu   sync.Mutex
	tags map[string]string // guarded by mu
}

// Start begins to listen; it joins nobody.
func Start(cfg Config) (*Membership, error) {
	m := &Membership{cfg: cfg, guard: &guard{cluster: cfg.Self.Cluster}, group: lifecycle.New(context.Background())}
	m.tags = tagsOf(cfg.Self)
	sc, events, err := m.settings()
	if err != nil {
		return nil, err
	}
	if m.serf, err = serf.Create(sc); err != nil {
		return nil, fmt.Errorf("gossip-listen %s: %w", cfg.Listen, err)
	}
	m.group.Go("gossip events", func(ctx context.Context) { m.watch(ctx, events) })
	return m, nil
}

func (m *Membership) settings() (*serf.Config, chan serf.Event, error) {
	ml := memberlist.DefaultLANConfig()
	ml.ProbeInterval, ml.ProbeTimeout, ml.SuspicionMult = probeInterval, probeTimeout, suspicionMult
	ml.SuspicionMaxTimeoutMult = suspicionMost
	ml.DeadNodeReclaimTime, ml.PushPullInterval = reclaimAfter, pushPullEvery
	ml.SecretKey = m.cfg.Key
	ml.Transport = m.cfg.Transport
	ml.LogOutput = lines{m.cfg.Logger}
	var err error
	if m.cfg.Transport == nil {
		if ml.BindAddr, ml.BindPort, err = resolve(m.cfg.Listen); err != nil {
			return nil, nil, fmt.Errorf("gossip-listen: %w", err)
		}
		ml.AdvertisePort = ml.BindPort
		if m.cfg.Advertise != "" {
			if ml.AdvertiseAddr, ml.AdvertisePort, err = resolve(m.cfg.Advertise); err != nil {
				return nil, nil, fmt.Errorf("gossip-advertise: %w", err)
			}
		}
	}
	sc := serf.DefaultConfig()
	sc.NodeName = fmt.Sprintf("%d.%s", m.cfg.Self.Node, m.cfg.Self.Storage)
	sc.Tags = maps.Clone(m.tags)
	sc.MemberlistConfig = ml
	sc.LogOutput = lines{m.cfg.Logger}
	sc.EnableNameConflictResolution = false
	sc.Merge = m.guard
	sc.ReconnectInterval = reconnectEvery
	sc.LeavePropagateDelay, sc.BroadcastTimeout = leaveTime, goodbyeTime
	sc.DisableCoordinates = true
	events := make(chan serf.Event, 64)
	sc.EventCh = events
	return sc, events, nil
}

// resolve gives IP address and port of host:port; an empty host is every interface.
func resolve(address string) (ip string, port int, err error) {
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return "", 0, err
	}
	if a.IP == nil {
		return "0.0.0.0", a.Port, nil
	}
	return a.IP.String(), a.Port, nil
}

// watch tells of changes until serf ends.
func (m *Membership) watch(ctx context.Context, events <-chan serf.Event) {
	for {
		select {
		case <-events:
			if m.cfg.Changed != nil {
				m.cfg.Changed()
			}
		case <-m.serf.ShutdownCh():
			return
		case <-ctx.Done():
			return
		}
	}
}

// Join contacts the addresses, host:port, and reports how many let this node in; one is
// enough to become known to all. The errors are those of the others, by address.
func (m *Membership) Join(addresses []string) (joined int, failed map[string]error) {
	failed = map[string]error{}
	for _, a := range addresses {
		m.guard.forget()
		_, err := m.serf.Join([]string{a}, true)
		if err == nil {
			joined++
			continue
		}
		if refused := m.guard.refusal(); refused != nil {
			err = refused
		} else if listens(a) {
			err = ErrNoGossip
		}
		failed[a] = err
	}
	return joined, failed
}

// listens reports whether a connection to an address comes about.
func listens(address string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	_ = c.Close() // nothing was said
	return true
}

// Self is this node as others see it.
func (m *Membership) Self() Member { return memberOf(m.serf.LocalMember()) }

// Others are all other members, in order of node and data folder.
func (m *Membership) Others() []Member {
	var out []Member
	for _, s := range m.serf.Members() {
		if o := memberOf(s); s.Name != m.serf.LocalMember().Name && o.Storage != "" {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b Member) int {
		if a.Node != b.Node {
			return int(a.Node) - int(b.Node)
		}
		if a.Storage < b.Storage {
			return -1
		}
		return 1
	})
	return out
}

// SetCluster tells the others that this node belongs to a cluster now.
func (m *Membership) SetCluster(id string) error {
	m.guard.set(id)
	m.mu.Lock()
	if m.tags[tagCluster] == id {
		m.mu.Unlock()
		return nil
	}
	m.tags[tagCluster] = id
	tags := maps.Clone(m.tags)
	m.mu.Unlock()
	return m.serf.SetTags(tags)
}

// Stop says goodbye, so that nobody takes this node for failed, and ends.
func (m *Membership) Stop(within time.Duration) error {
	err := m.serf.Leave()
	if err != nil {
		// The others find out by themselves.
		m.cfg.Logger.Info("this node could not say goodbye", "error", err)
	}
	return m.end(within)
}

// end stops without a word.
func (m *Membership) end(within time.Duration) error {
	return errors.Join(m.serf.Shutdown(), m.group.Stop(within))
}

// The tags' names, which cost bytes of a limit of 512.
const (
	tagNode    = "n"
	tagStorage = "s"
	tagCluster = "c"
	tagExpect  = "e"
	tagPeer    = "p"
	tagRack    = "r"
	tagVersion = "v"
)

// maxTag bounds a text of people's choice in a tag.
const maxTag = 100

func tagsOf(s Member) map[string]string {
	return map[string]string{
		tagNode: strconv.Itoa(int(s.Node)), tagStorage: s.Storage, tagCluster: s.Cluster, tagExpect: strconv.Itoa(s.Expect),
		tagPeer: s.Peer, tagRack: s.Rack[:min(len(s.Rack), maxTag)], tagVersion: s.Version[:min(len(s.Version), maxTag)],
	}
}

// memberOf reads a member; what does not read is left empty.
func memberOf(s serf.Member) Member {
	m := Member{
		Node: -1, Storage: s.Tags[tagStorage], Cluster: s.Tags[tagCluster], Rack: s.Tags[tagRack], Version: s.Tags[tagVersion],
		Gossip: net.JoinHostPort(s.Addr.String(), strconv.Itoa(int(s.Port))), Status: Failed,
	}
	if n, err := strconv.ParseInt(s.Tags[tagNode], 10, 32); err == nil {
		m.Node = model.BrokerID(n)
	}
	if n, err := strconv.Atoi(s.Tags[tagExpect]); err == nil {
		m.Expect = n
	}
	if host, port, err := net.SplitHostPort(s.Tags[tagPeer]); err == nil {
		if host == "" {
			host = s.Addr.String()
		}
		m.Peer = net.JoinHostPort(host, port)
	}
	switch s.Status {
	case serf.StatusAlive:
		m.Status = Alive
	case serf.StatusLeaving, serf.StatusLeft:
		m.Status = Left
	}
	return m
}
