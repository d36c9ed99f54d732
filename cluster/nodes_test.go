package cluster_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/cluster"
	"tidewire/cluster/metadata"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
)

// group starts nodes in one process, on ports of their own.
type group struct {
	t      *testing.T
	root   string
	key    []byte
	gossip map[int]string // by node: a gossip address kept for it
	logs   map[int]*lines
	free   [7]atomic.Int64 // by node: bytes of its disk, 0: without end
	needed atomic.Int64    // how often room was asked for
	looks  atomic.Int64    // and how often only looked at
	tasks  *lifecycle.Group
}

func newGroup(t *testing.T) *group {
	g := &group{t: t, root: t.TempDir(), key: bytes.Repeat([]byte{5}, 32), gossip: map[int]string{}, logs: map[int]*lines{}, tasks: lifecycle.New(context.Background())}
	t.Cleanup(func() {
		require.NoError(t, g.tasks.Stop(30*time.Second))
		if t.Failed() {
			for n, l := range g.logs {
				t.Logf("node %d:\n%s", n, l)
			}
		}
	})
	for n := 1; n <= 6; n++ {
		g.gossip[n] = freePort(t)
		g.logs[n] = &lines{}
	}
	return g
}

// freePort finds a port that is free for TCP and, in all likelihood, for UDP.
func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

type nodeOptions struct {
	expect int
	join   []int
	dir    string // "": the node's own
	key    []byte
	fatal  func(error)
	within time.Duration
	now    func() time.Time

	metadata metadata.MetadataVersion // the newest that it knows
}

// room is a node's free space; what asks for some may take what is kept for that.
func (g *group) room(node int) func(int64) int64 {
	return func(need int64) int64 {
		if need > 0 {
			g.needed.Add(1)
		} else {
			g.looks.Add(1)
		}
		return cmp.Or(g.free[node].Load(), math.MaxInt64)
	}
}

// start starts a node and waits for it.
func (g *group) start(node int, o nodeOptions) (*cluster.Cluster, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	if o.dir == "" {
		o.dir = fmt.Sprint("node-", node)
	}
	if o.key == nil {
		o.key = g.key
	}
	if o.fatal == nil {
		o.fatal = func(err error) { g.t.Errorf("node %d: %v", node, err) }
	}
	if o.within == 0 {
		o.within = time.Minute
	}
	var join []string
	for _, n := range o.join {
		join = append(join, g.gossip[n])
	}
	ctx, cancel := context.WithTimeout(g.tasks.Context(), o.within)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Config{
		Dir: filepath.Join(g.root, o.dir), NodeID: model.BrokerID(node), ClusterName: "test", Version: "test", BootstrapExpect: o.expect,
		Logger: slog.New(slog.NewTextHandler(g.logs[node], &slog.HandlerOptions{Level: slog.LevelInfo})),
		Fatal:  o.fatal, Now: o.now, MetadataVersion: o.metadata, Room: g.room(node),
		Network: &cluster.Network{Key: o.key, Peer: l, PeerAdvertise: l.Addr().String(), GossipListen: g.gossip[node], Join: join},
	})
	if err == nil {
		g.t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			_ = c.Stop(ctx) // some were stopped before
		})
	}
	return c, err
}

func (g *group) must(node int, o nodeOptions) *cluster.Cluster {
	g.t.Helper()
	c, err := g.start(node, o)
	require.NoError(g.t, err)
	return c
}

// all starts several at once, each told to join the first ones.
func (g *group) all(expect int, nodes ...int) []*cluster.Cluster {
	g.t.Helper()
	type started struct {
		at  int
		c   *cluster.Cluster
		err error
	}
	done := make(chan started, len(nodes))
	for i, n := range nodes {
		g.tasks.Go("start", func(context.Context) {
			c, err := g.start(n, nodeOptions{expect: expect, join: nodes[:2]})
			done <- started{i, c, err}
		})
	}
	out := make([]*cluster.Cluster, len(nodes))
	for range nodes {
		s := <-done
		require.NoError(g.t, s.err, "node %d", nodes[s.at])
		out[s.at] = s.c
	}
	return out
}

func (g *group) eventually(what string, ok func() bool) {
	g.t.Helper()
	require.Eventually(g.t, ok, 60*time.Second, 20*time.Millisecond, "%s", what)
}

func topicOf(n int, broker model.BrokerID) metadata.CreateTopic {
	return metadata.CreateTopic{ID: model.TopicID{0: 2, 15: byte(n)}, Name: fmt.Sprint("topic-", n), Assignments: [][]model.BrokerID{{broker}}}
}

func live(c *cluster.Cluster) (n int) {
	for b := range c.Image().Brokers() {
		if !b.Fenced {
			n++
		}
	}
	return n
}

func TestNodesThatStartAtOnceFormOneCluster(t *testing.T) {
	t.Parallel()
	for name, count := range map[string]int{"as many as expected": 3, "one more": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t)
			nodes := g.all(3, []int{1, 2, 3, 4}[:count]...)
			for i, c := range nodes {
				require.Equal(t, 3, c.Voters(), "node %d has started: any of the voters may go", i+1)
			}
			for i, c := range nodes {
				require.Equal(t, nodes[0].ClusterID(), c.ClusterID())
				res, err := c.Propose(t.Context(), topicOf(i, model.BrokerID(i+1)))
				require.NoError(t, err, "node %d", i+1)
				made, ok := res.Value.(*metadata.Topic)
				require.True(t, ok, "the value comes back over another node: %T", res.Value)
				require.Equal(t, fmt.Sprint("topic-", i), made.Name)
				require.NotNil(t, c.Image().Topic(made.Name), "the proposer sees it at once")
				other := nodes[(i+1)%count]
				require.NoError(t, other.Barrier(t.Context()))
				require.NotNil(t, other.Image().Topic(made.Name), "and another node after a barrier")
				_, err = other.Propose(t.Context(), topicOf(i, 1))
				require.True(t, model.HasCode(err, model.TopicExists), "%v", err)
			}
			g.eventually("all are live", func() bool {
				controller, ok := nodes[count-1].Controller()
				return live(nodes[0]) == count && ok && controller > 0
			})
		})
	}
}

func TestOneNodeBecomesThreeAndSurvivesItsFirst(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	first := g.must(1, nodeOptions{expect: 1})
	_, err := first.Propose(t.Context(), topicOf(1, 1))
	require.NoError(t, err)
	second := g.must(2, nodeOptions{join: []int{1}})
	third := g.must(3, nodeOptions{join: []int{2}})
	require.NotNil(t, third.Image().Topic("topic-1"))
	g.eventually("three vote", func() bool { return third.Voters() == 3 })
	stop(t, first)
	_, err = second.Propose(t.Context(), topicOf(2, 2))
	require.NoError(t, err)
	require.NoError(t, third.Barrier(t.Context()))
	require.NotNil(t, third.Image().Topic("topic-2"))
	g.eventually("the first is fenced, and what it alone holds has no leader", func() bool {
		return third.Image().Broker(1).Fenced && third.Image().Topic("topic-1").Partitions[0].Leader == metadata.NoLeader
	})

	g.gossip[1] = freePort(t) // it comes back elsewhere
	first = g.must(1, nodeOptions{expect: 1})
	require.NotNil(t, first.Image().Topic("topic-2"))
	g.eventually("it is known under its new address and leads what it holds", func() bool {
		b := second.Image().Broker(1)
		return !b.Fenced && b.GossipAddr == g.gossip[1] && second.Image().Topic("topic-1").Partitions[0].Leader == 1
	})
}

func TestAQuorumThatIsLostRefusesChangesAndHeals(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	nodes := g.all(3, 1, 2, 3)
	stop(t, nodes[0])
	stop(t, nodes[1])
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := nodes[2].Propose(ctx, topicOf(1, 3))
	require.True(t, model.HasCode(err, model.QuorumUnavailable) || model.HasCode(err, model.CommitUnknown), "%v", err)
	again := g.must(2, nodeOptions{expect: 3, join: []int{3}})
	g.eventually("changes are taken again", func() bool {
		_, err := again.Propose(t.Context(), topicOf(2, 3))
		return err == nil
	})
	require.NoError(t, nodes[2].Barrier(t.Context()))
	require.NotNil(t, nodes[2].Image().Topic("topic-2"))
}

// A full disk on one of three nodes keeps no change from being made: not at that node, and not
// where it led.
func TestAFullDiskStopsNoChangeWhileOthersHaveRoom(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	nodes := g.all(3, 1, 2, 3)
	leads := func() int { id, _ := nodes[0].Controller(); return int(id) }
	g.eventually("one leads", func() bool { return leads() > 0 })
	made := 0
	change := func(at *cluster.Cluster) error {
		made++
		_, err := at.Propose(t.Context(), topicOf(made, 1))
		return err
	}
	first := leads()
	g.free[first].Store(500 << 10)
	g.eventually("another leads", func() bool { return leads() > 0 && leads() != first })
	require.NoError(t, change(nodes[first-1]))
	require.NoError(t, change(nodes[leads()-1]))

	for n := range nodes {
		g.free[n+1].Store(500 << 10)
	}
	err := change(nodes[first-1])
	require.True(t, model.HasCode(err, model.StorageFull), "%v", err)
	require.Equal(t, model.NotApplied, model.AsError(err).EffectiveOutcome())
	_, err = nodes[first-1].Propose(t.Context(), metadata.DeleteTopic{Name: "topic-1"})
	require.NoError(t, err, "what makes room is taken")
	needed, looks := g.needed.Load(), g.looks.Load()
	g.eventually("heartbeats tell of the disks", func() bool { return g.looks.Load() > looks+20 })
	require.Equal(t, needed, g.needed.Load(), "but do not take what is kept for changes")
	g.free[first].Store(0)
	g.eventually("the one with room leads again", func() bool { return leads() == first })
	require.NoError(t, change(nodes[first%3]))
}

func TestAnEmptiedNodeTakesItsOldPlace(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	nodes := g.all(3, 1, 2, 3)
	g.eventually("three vote", func() bool { return nodes[0].Voters() == 3 })
	old := nodes[2].StorageID()
	stop(t, nodes[2])
	again := g.must(3, nodeOptions{expect: 3, join: []int{1}, dir: "node-3-empty"})
	require.NotEqual(t, old, again.StorageID())
	require.Equal(t, nodes[0].ClusterID(), again.ClusterID())
	g.eventually("it votes, and the old does not", func() bool {
		return again.Voters() == 3 && nodes[0].Image().Broker(3).StorageID == again.StorageID()
	})
}

func TestWhatDoesNotBelongTogetherIsToldInOneLine(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	first := g.must(1, nodeOptions{expect: 1})

	_, err := g.start(1, nodeOptions{dir: "twin", join: []int{1}, within: 20 * time.Second})
	require.Error(t, err, "its gossip port is taken")

	g.gossip[5] = freePort(t)
	twin := func() (*cluster.Cluster, error) {
		g.gossip[1], g.gossip[5] = g.gossip[5], g.gossip[1] // the twin has an address of its own
		defer func() { g.gossip[1], g.gossip[5] = g.gossip[5], g.gossip[1] }()
		return g.start(1, nodeOptions{dir: "twin", join: []int{5}, within: 30 * time.Second})
	}
	_, err = twin()
	require.ErrorIs(t, err, cluster.ErrDuplicateNode)
	require.NotContains(t, err.Error(), "\n")

	_, err = g.start(2, nodeOptions{join: []int{1}, key: bytes.Repeat([]byte{6}, 32), within: 3 * time.Second})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Contains(t, g.logs[2].String(), "cluster key is another one")

	other := g.must(3, nodeOptions{expect: 1, join: []int{1}})
	require.NotEqual(t, first.ClusterID(), other.ClusterID())
	require.Eventually(t, func() bool { return strings.Contains(g.logs[3].String(), "another cluster") }, 30*time.Second, 20*time.Millisecond)
	require.Equal(t, 1, live(first))
	require.Equal(t, 1, first.Voters())
}

// A clock that is far off is told by its node, whoever leads the quorum.
func TestANodeWhoseClockIsFarOffSaysSo(t *testing.T) {
	t.Parallel()
	for _, off := range []int{1, 3} { // the first one founds, and leads
		t.Run(fmt.Sprint("node ", off), func(t *testing.T) {
			t.Parallel()
			g := newGroup(t)
			var ahead atomic.Int64
			var nodes []*cluster.Cluster
			for n := 1; n <= 3; n++ {
				o := nodeOptions{now: time.Now}
				if n == off {
					o.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
				}
				if n == 1 {
					o.expect = 1
				} else {
					o.join = []int{1}
				}
				nodes = append(nodes, g.must(n, o))
			}
			are := func(want time.Duration) func() bool {
				return func() bool {
					for i, c := range nodes {
						got, known := c.ClockOffset()
						if i+1 == off {
							got -= want
						}
						if !known || got.Abs() > time.Second {
							return false
						}
					}
					return true
				}
			}
			far := func() int {
				return strings.Count(g.logs[off].String(), "level=WARN msg=\"the clock of this node is far from the other nodes'")
			}
			g.eventually("all agree", are(0))
			ahead.Store(int64(time.Hour)) // not before there are three: of two nobody can tell which is wrong
			g.eventually("one is an hour ahead", are(time.Hour))
			g.eventually("it says so", func() bool { return far() > 0 })
			require.Contains(t, g.logs[off].String(), "ahead=1h0m0s")
			ahead.Store(0)
			g.eventually("all agree", are(0))
			g.eventually("it says so", func() bool { return strings.Contains(g.logs[off].String(), "agrees with the other nodes' again") })
			require.Equal(t, 1, far(), "%s", g.logs[off])
		})
	}
}

// A node that was removed does not come in again with what it was, however often it is started.
func TestARemovedNodeIsRefused(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	first := g.must(1, nodeOptions{expect: 1})
	second := g.must(2, nodeOptions{join: []int{1}})
	stop(t, second)
	g.eventually("it is fenced", func() bool { return first.Image().Broker(2).Fenced })
	_, err := first.Propose(t.Context(), metadata.UnregisterBroker{ID: 2})
	require.NoError(t, err)
	for range 2 {
		_, err = g.start(2, nodeOptions{join: []int{1}})
		require.ErrorIs(t, err, cluster.ErrRemoved)
		require.NotContains(t, err.Error(), "\n")
		require.Nil(t, first.Image().Broker(2))
		require.Equal(t, 1, first.Voters())
	}
	again := g.must(2, nodeOptions{join: []int{1}, dir: "node-2-empty"})
	require.NotNil(t, again.Image().Broker(2), "with an empty folder it is a new one")
}

// An older version of the binary keeps out of a cluster whose metadata is newer.
func TestAnOlderVersionKeepsOutOfNewerMetadata(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	first := g.must(1, nodeOptions{expect: 1, metadata: metadata.CurrentMetadataVersion + 1})
	_, err := g.start(2, nodeOptions{join: []int{1}})
	require.ErrorIs(t, err, cluster.ErrNewerMetadata)
	require.NotContains(t, err.Error(), "\n")
	require.Nil(t, first.Image().Broker(2))
	_, err = first.Propose(t.Context(), topicOf(1, 1))
	require.NoError(t, err)
	g.must(2, nodeOptions{join: []int{1}, dir: "newer", metadata: metadata.CurrentMetadataVersion + 1})
	stop(t, first)
	_, err = g.start(1, nodeOptions{expect: 1})
	require.ErrorIs(t, err, cluster.ErrNewerMetadata, "nor does a node of it go back")
}
