package membership

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidewire/internal/model"
)

// A probe that was under way ends by itself, a little later than memberlist.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

var key = bytes.Repeat([]byte{3}, 32)

func start(t *testing.T, node int, change func(*Config)) *Membership {
	t.Helper()
	cfg := Config{
		Self:   Member{Node: model.BrokerID(node), Storage: fmt.Sprint("s-", node), Peer: ":7947", Version: "test", Expect: 3, Rack: "r1"},
		Listen: "127.0.0.1:0", Key: key, Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg)
	}
	m, err := Start(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.end(10*time.Second)) })
	return m
}

// sees waits until a member has this status for m.
func sees(t *testing.T, m *Membership, storage string, want Status) Member {
	t.Helper()
	var got Member
	require.Eventually(t, func() bool {
		for _, o := range m.Others() {
			if o.Storage == storage && o.Status == want {
				got = o
				return true
			}
		}
		return false
	}, 20*time.Second, 5*time.Millisecond, "%s", storage)
	return got
}

func join(t *testing.T, m, to *Membership) {
	t.Helper()
	n, failed := m.Join([]string{to.Self().Gossip})
	require.Equal(t, 1, n, "%v", failed)
}

func TestOneAddressIsEnoughToBecomeKnownToAll(t *testing.T) {
	t.Parallel()
	changed := make(chan struct{}, 100)
	one := start(t, 1, func(c *Config) { c.Changed = func() { changed <- struct{}{} } })
	two, three := start(t, 2, nil), start(t, 3, nil)
	join(t, two, one)
	join(t, three, two)
	got := sees(t, one, "s-3", Alive)
	require.Equal(t, three.Self(), got)
	host, _, err := net.SplitHostPort(got.Gossip)
	require.NoError(t, err)
	require.Equal(t, Member{
		Node: 3, Storage: "s-3", Expect: 3, Peer: net.JoinHostPort(host, "7947"), Gossip: got.Gossip, Rack: "r1", Version: "test", Status: Alive,
	}, got)
	sees(t, three, "s-1", Alive)
	<-changed
	require.NoError(t, two.SetCluster("c"))
	require.Eventually(t, func() bool { return sees(t, one, "s-2", Alive).Cluster == "c" }, 10*time.Second, 5*time.Millisecond)
}

func TestAGoodbyeIsToldFromAFailure(t *testing.T) {
	t.Parallel()
	one, two, three := start(t, 1, nil), start(t, 2, nil), start(t, 3, nil)
	join(t, two, one)
	join(t, three, one)
	sees(t, one, "s-2", Alive)
	sees(t, one, "s-3", Alive)
	sees(t, two, "s-3", Alive)
	require.NoError(t, two.Stop(10*time.Second))
	sees(t, one, "s-2", Left)
	require.NoError(t, three.end(10*time.Second))
	sees(t, one, "s-3", Failed)
}

func TestANodeComesBackUnderItsNameWithAnotherAddress(t *testing.T) {
	t.Parallel()
	one, two := start(t, 1, nil), start(t, 2, nil)
	join(t, two, one)
	before := sees(t, one, "s-2", Alive).Gossip
	require.NoError(t, two.end(10*time.Second))
	again := start(t, 2, nil)
	require.NotEqual(t, before, again.Self().Gossip)
	require.Eventually(t, func() bool {
		again.Join([]string{one.Self().Gossip})
		others := one.Others()
		return len(others) == 1 && others[0].Status == Alive && others[0].Gossip == again.Self().Gossip
	}, 30*time.Second, 100*time.Millisecond)
}

func TestTwoNodesOfOneIdAreBothSeen(t *testing.T) {
	t.Parallel()
	one, two := start(t, 1, nil), start(t, 2, nil)
	twin := start(t, 2, func(c *Config) { c.Self.Storage = "s-twin" })
	join(t, two, one)
	join(t, twin, one)
	require.Equal(t, model.BrokerID(2), sees(t, one, "s-2", Alive).Node)
	require.Equal(t, model.BrokerID(2), sees(t, one, "s-twin", Alive).Node)
}

func TestClustersDoNotMerge(t *testing.T) {
	t.Parallel()
	of := func(cluster string) func(*Config) { return func(c *Config) { c.Self.Cluster = cluster } }
	one, two := start(t, 1, of("c-1")), start(t, 2, of("c-2"))
	n, failed := two.Join([]string{one.Self().Gossip})
	require.Zero(t, n)
	err := failed[one.Self().Gossip]
	require.ErrorIs(t, err, ErrOtherCluster)
	require.Contains(t, err.Error(), "c-1")
	require.NotContains(t, err.Error(), "\n")
	require.Empty(t, two.Others())

	between := start(t, 3, nil)
	join(t, between, one)
	_, failed = between.Join([]string{two.Self().Gossip})
	require.ErrorIs(t, failed[two.Self().Gossip], ErrOtherCluster, "a node of none does not bring two together")
	require.Empty(t, two.Others())
}

func TestAnotherKeyIsNoGossip(t *testing.T) {
	t.Parallel()
	one := start(t, 1, nil)
	two := start(t, 2, func(c *Config) { c.Key = bytes.Repeat([]byte{4}, 32) })
	plain := start(t, 3, func(c *Config) { c.Key = nil })
	for _, m := range []*Membership{two, plain} {
		n, failed := m.Join([]string{one.Self().Gossip})
		require.Zero(t, n)
		require.ErrorIs(t, failed[one.Self().Gossip], ErrNoGossip)
	}
	require.Empty(t, one.Others())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, failed := one.Join([]string{l.Addr().String()})
	require.NotErrorIs(t, failed[l.Addr().String()], ErrNoGossip, "nobody listens there")
	require.Error(t, failed[l.Addr().String()])
}

func TestTagsFitWithinTheLimitWhateverIsSet(t *testing.T) {
	t.Parallel()
	uuid := strings.Repeat("x", 36)
	m := start(t, 1<<31-1, func(c *Config) {
		c.Self = Member{
			Node: 1<<31 - 1, Storage: uuid, Cluster: uuid, Expect: 1000, Peer: "[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:65535",
			Rack: strings.Repeat("r", 249), Version: strings.Repeat("v", 300),
		}
	})
	require.Equal(t, model.BrokerID(1<<31-1), m.Self().Node)
}
