package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// guarded is a cluster of three that writers write to while something comes that does not belong
// to it, or comes in the wrong way.
type guarded struct {
	t     *testing.T // ends the nodes
	nodes []*node
	r     *replicated
}

// unharmed looks that the cluster has just its three nodes, all of them online, with every replica
// in sync, and that writes go on.
func (g *guarded) unharmed(t *testing.T) {
	t.Helper()
	for i := range g.nodes {
		var v clusterView
		require.Eventually(t, func() bool {
			v = clusterView{}
			g.r.at[i].must(t, "GET", "/v1/cluster", nil, &v)
			return v.states() == "1onliner1 2onliner2 3onliner3" && v.Offline == 0
		}, startLimit, 50*time.Millisecond, "the three nodes are online, and nobody else is there: %+v", &v)
		status := g.nodes[i].must(t, g.r.at[i].token, "", "cluster", "status")
		require.Contains(t, status, v.ClusterID)
		require.NotContains(t, g.nodes[i].proc.err.String(), "do not reach this node by gossip")
	}
	eventually(t, startLimit, "all replicas are in sync", func() bool { return g.r.inSync(g.r.at[0], 3) })
	g.r.more(t)
}

// stranger prepares a fourth node, which joins the cluster with its key unless args say otherwise.
func (g *guarded) stranger(t *testing.T, args ...string) *node {
	t.Helper()
	n := joining(t, g.nodes[0], 4)
	n.args = append(n.args, args...)
	return n
}

// said waits until a process that runs has logged a line with all the texts, at level WARN, and
// returns it. A line that is told again, every 10 s, is told at most twice meanwhile.
func said(t *testing.T, p *proc, texts ...string) string {
	t.Helper()
	var found []string
	eventually(t, startLimit, "it says "+strings.Join(texts, ", "), func() bool {
		found = nil
		for line := range strings.Lines(p.err.String()) {
			all := strings.Contains(line, "level=WARN")
			for _, x := range texts {
				all = all && strings.Contains(line, x)
			}
			if all {
				found = append(found, line)
			}
		}
		return len(found) > 0 || !p.running()
	})
	require.NotEmpty(t, found, "%s", p.err.String())
	require.LessOrEqual(t, len(found), 2, "%s", p.err.String())
	return found[0]
}

// terminated stops a node that is not ready, which ends it with 0.
func terminated(t *testing.T, n *node) {
	t.Helper()
	require.NoError(t, n.proc.cmd.Process.Signal(syscall.SIGTERM))
	require.Zero(t, n.proc.wait(t, stopLimit), "%s", n.proc.err.String())
}

// refusedAtStart waits until a node has ended by itself, with 1, and returns the one line that it
// says.
func refusedAtStart(t *testing.T, n *node) string {
	t.Helper()
	code := n.proc.wait(t, startLimit)
	line := complaint(t, ran{code, n.proc.out.String(), n.proc.err.String()})
	require.Equal(t, 1, code, line)
	return line
}

// TestWhatDoesNotBelongToAClusterDoesItNoHarm starts one wrong node after the other at a cluster
// that is written to with acks=all.
func TestWhatDoesNotBelongToAClusterDoesItNoHarm(t *testing.T) {
	t.Parallel()
	g := &guarded{t: t, nodes: threeNodes(t)}
	g.r = replicate(t, g.nodes, "flights", 2)
	stop := g.r.load(t)
	t.Cleanup(stop)
	for _, x := range []struct {
		name string
		run  func(*testing.T, *guarded)
	}{
		{"another cluster key", wrongKey},
		{"another cluster key of one of its nodes", wrongKeyOfOld},
		{"a node id that is in use", duplicateID},
		{"an address that nobody reaches", unreachable},
		{"the data folder of another cluster", foreignFolder},
		{"another cluster that gossips", twoClusters},
		{"an empty disk under an old node id", wipedDisk},
		{"a clock that is far off", clockFarOff},
		{"an address of gossip that nobody reaches", unreachableGossip},
		{"a node that was removed", removedNode},
	} {
		ok := t.Run(x.name, func(t *testing.T) {
			x.run(t, g)
			g.unharmed(t)
		})
		if !ok {
			break
		}
	}
	stop()
	checkReplicated(t, g.r, g.nodes)
}

func wrongKey(t *testing.T, g *guarded) {
	n := g.stranger(t, "--cluster-key-file", clusterKey(t))
	n.spawn(t)
	said(t, n.proc, "could not join by gossip", "its cluster key is another one", g.nodes[0].argument("--gossip-listen"))
	terminated(t, n)
}

// wrongKeyOfOld is wrongKey for a node that belongs to the cluster.
func wrongKeyOfOld(t *testing.T, g *guarded) {
	n := g.nodes[2]
	n.stop(t)
	right := n.args
	n.args = append(slices.Clone(right), "--cluster-key-file", clusterKey(t))
	n.spawn(g.t)
	said(t, n.proc, "could not join by gossip", "its cluster key is another one", g.nodes[0].argument("--gossip-listen"))
	g.r.more(t)
	terminated(t, n)
	n.args = right
	n.start(g.t)
	g.r.renew(t, 2, n)
}

func duplicateID(t *testing.T, g *guarded) {
	n := g.stranger(t, "--node-id", "2")
	n.spawn(t)
	line := refusedAtStart(t, n)
	require.Contains(t, line, "the node id is in use: node 2 runs at 127.0.0.1:")
	require.Contains(t, line, "give this node another --node-id")
}

func unreachable(t *testing.T, g *guarded) {
	closed := freeAddress(t)
	n := g.stranger(t, "--peer-advertise", closed)
	n.spawn(t)
	said(t, n.proc, "the node is starting and waits", "its leader must reach "+closed+" (--peer-advertise)")
	g.r.more(t)
	terminated(t, n)
}

func unreachableGossip(t *testing.T, g *guarded) {
	for _, address := range []string{freeAddress(t), silentAddress(t)} {
		n := g.stranger(t, "--gossip-advertise", address)
		n.start(t)
		said(t, n.proc, "other nodes do not reach this node by gossip", address, "--gossip-advertise")
		g.r.more(t)
		g.forget(t, n)
	}
}

// silentAddress is one that answers nothing, as behind a firewall: its backlog is full.
func silentAddress(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Close(fd)) })
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, syscall.Listen(fd, 0))
	at, err := syscall.Getsockname(fd)
	require.NoError(t, err)
	address := fmt.Sprint("127.0.0.1:", at.(*syscall.SockaddrInet4).Port)
	for range 10 {
		conn, err := net.DialTimeout("tcp", address, 300*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = conn.Close() }) // it is only there
	}
	t.Fatal("it takes connections all the same")
	return ""
}

// alone founds a cluster of one with the key of the guarded one, and some data.
func (g *guarded) alone(t *testing.T) *node {
	t.Helper()
	n := newNode(t, "--node-id", "4", "--gossip-listen", freeAddress(t), "--cluster-key-file", g.nodes[0].argument("--cluster-key-file"))
	n.start(t)
	a := admin(t, n)
	a.createTopic(t, "its-own", 1, nil)
	a.must(t, "POST", "/v1/topics/its-own/records", []byte(`{"records":[{"value":"x"}]}`), nil)
	return n
}

// stillItself looks that a cluster of one has its own node and data alone.
func stillItself(t *testing.T, n *node) {
	t.Helper()
	a := admin(t, n)
	var v clusterView
	a.must(t, "GET", "/v1/cluster", nil, &v)
	require.Equal(t, "4online", v.states())
	require.Len(t, a.readPartition(t, "its-own", 0, 10), 1)
	require.Equal(t, "unknown-topic", a.refused(t, "GET", "/v1/topics/flights", nil).Code)
}

func foreignFolder(t *testing.T, g *guarded) {
	n := g.alone(t)
	n.stop(t)
	n.args = append(n.args, "--join", g.nodes[0].argument("--gossip-listen"))
	n.start(t)
	said(t, n.proc, "the node there belongs to another cluster", g.nodes[0].argument("--gossip-listen"))
	stillItself(t, n)
	n.stop(t)
}

func twoClusters(t *testing.T, g *guarded) {
	n := g.alone(t)
	third := g.nodes[2]
	third.stop(t)
	third.args = append(third.args, "--join", n.argument("--gossip-listen"))
	third.start(g.t)
	g.r.renew(t, 2, third)
	said(t, third.proc, "the node there belongs to another cluster", n.argument("--gossip-listen"))
	stillItself(t, n)
	g.unharmed(t)
	n.stop(t)
}

// renew takes the address of a node that has started again.
func (r *replicated) renew(t *testing.T, i int, n *node) {
	a := admin(t, n)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at[i] = a
}

func wipedDisk(t *testing.T, g *guarded) {
	n := g.nodes[2]
	n.kill()
	n.dir = filepath.Join(g.t.TempDir(), "empty")
	n.start(g.t)
	g.r.renew(t, 2, n)
	said(t, n.proc, "another data folder")
}

// settable is a binary whose clock can be set.
func settable(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tidewire")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-tags", "faultinject", "-o", path, "tidewire/cmd/tidewire").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

func clockFarOff(t *testing.T, g *guarded) {
	n := g.stranger(t)
	clock := filepath.Join(t.TempDir(), "clock")
	require.NoError(t, os.WriteFile(clock, []byte("1h"), 0o600))
	n.path, n.env = settable(t), []string{"TIDEWIRE_FAULT_CLOCK_OFFSET_FILE=" + clock}
	n.start(t)
	a := g.r.at[0]
	isOff := func(id int, want time.Duration) func() bool {
		return func() bool {
			var v struct {
				Offset *int64 `json:"clock_offset_ms"`
			}
			a.must(t, "GET", fmt.Sprint("/v1/brokers/", id), nil, &v)
			return v.Offset != nil && (time.Duration(*v.Offset)*time.Millisecond-want).Abs() < 5*time.Second
		}
	}
	said(t, n.proc, "the clock of this node is far from the other nodes'", "ahead=1h0m")
	for id := range 4 {
		eventually(t, startLimit, "nodes tell of their clocks", isOff(id+1, map[int]time.Duration{3: time.Hour}[id]))
	}
	require.Contains(t, g.nodes[1].must(t, a.token, "", "broker", "list"), "CLOCK_OFFSET_MS")
	own := admin(t, n)
	for range 20 {
		own.must(t, "POST", "/v1/topics/flights/records", []byte(`{"records":[{"value":"by a node whose clock is wrong"}]}`), nil)
	}
	g.r.more(t)
	require.NoError(t, os.WriteFile(clock, []byte("0s"), 0o600))
	eventually(t, startLimit, "its clock is right", isOff(4, 0))
	g.forget(t, n)
}

// forget stops the fourth node and removes it.
func (g *guarded) forget(t *testing.T, n *node) {
	t.Helper()
	n.stop(t)
	eventually(t, startLimit, "it is forgotten", func() bool { return g.nodes[0].cli(t, g.r.at[0].token, "", "broker", "remove", "4").code == 0 })
}

func removedNode(t *testing.T, g *guarded) {
	n := g.stranger(t)
	n.start(t)
	g.forget(t, n)
	for range 2 {
		n.spawn(t)
		line := refusedAtStart(t, n)
		require.Contains(t, line, "this node was removed from the cluster")
		require.Contains(t, line, fmt.Sprint("empty its data folder ", n.dir))
		g.r.more(t)
	}
}

// One node more than is expected makes no second cluster, and is taken in.
func TestOneNodeMoreThanExpectedIsTakenIn(t *testing.T) {
	t.Parallel()
	key := clusterKey(t)
	var gossip []string
	for range 4 {
		gossip = append(gossip, freeAddress(t))
	}
	var nodes []*node
	for i, address := range gossip { // each is told of the others, in another order
		n := newNode(t, "--node-id", fmt.Sprint(i+1), "--gossip-listen", address, "--cluster-key-file", key, "--bootstrap-expect", "3", "--rack", fmt.Sprint("r", i+1))
		for k := 1; k < 4; k++ {
			n.args = append(n.args, "--join", gossip[(i+k)%4])
		}
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		n.spawn(t)
	}
	founders := 0
	var first clusterView
	for i, n := range nodes {
		n.awaitReady(t)
		founders += strings.Count(n.proc.err.String(), "this node founds the cluster")
		a := admin(t, n)
		var v clusterView
		eventually(t, startLimit, "all see all", func() bool {
			v = clusterView{}
			a.must(t, "GET", "/v1/cluster", nil, &v)
			return v.states() == "1onliner1 2onliner2 3onliner3 4onliner4"
		})
		if i == 0 {
			first = v
		}
		require.Equal(t, first.ClusterID, v.ClusterID)
	}
	require.Equal(t, 1, founders)
	eventually(t, startLimit, "three vote", func() bool {
		var v struct {
			Quorum struct {
				Voters []int `json:"voters"`
			} `json:"quorum"`
		}
		admin(t, nodes[3]).must(t, "GET", "/v1/cluster", nil, &v)
		return len(v.Quorum.Voters) == 3
	})
}
