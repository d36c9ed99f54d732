package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// clusterKey makes the file of a cluster's key.
func clusterKey(t *testing.T) string {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	made := runEnv(t, plainEnv(t.TempDir()), strings.NewReader(""), "cluster", "keygen")
	require.Zero(t, made.code, made.err)
	require.NoError(t, os.WriteFile(key, []byte(made.out), 0o600))
	return key
}

// argument is the value of a node's flag.
func (n *node) argument(flag string) string { return n.args[slices.Index(n.args, flag)+1] }

// joining prepares a node that joins another's cluster.
func joining(t *testing.T, first *node, id int) *node {
	t.Helper()
	return newNode(t, "--node-id", fmt.Sprint(id), "--gossip-listen", freeAddress(t), "--cluster-key-file", first.argument("--cluster-key-file"),
		"--join", first.argument("--gossip-listen"), "--rack", fmt.Sprint("r", id))
}

// add has a node that runs take part in what is written.
func (r *replicated) add(t *testing.T, n *node) *api {
	a := admin(t, n)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = append(r.at, a)
	return a
}

func (r *replicated) written() int { r.mu.Lock(); defer r.mu.Unlock(); return len(r.acked) }

// load writes to all partitions until the returned function is called.
func (r *replicated) load(t *testing.T) (stop func()) {
	end := make(chan struct{})
	var writers sync.WaitGroup
	for p := range replicatedPartitions {
		writers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-end:
					return
				default:
					r.write(t, p, fmt.Sprintf("%d-%d", p, i))
				}
			}
		})
	}
	return sync.OnceFunc(func() { close(end); writers.Wait() })
}

// more waits for records that are acknowledged from here on.
func (r *replicated) more(t *testing.T) {
	t.Helper()
	before := r.written()
	eventually(t, startLimit, "writes go on", func() bool { return r.written() >= before+30 })
}

type brokerView struct {
	ID       int    `json:"id"`
	State    string `json:"state"`
	Replicas int    `json:"replicas"`
	Leaders  int    `json:"leaders"`
}

func total(t *testing.T, a *api, path string) int {
	t.Helper()
	var v struct {
		Total int `json:"total"`
	}
	a.must(t, "GET", path, nil, &v)
	return v.Total
}

// TestAClusterTakesANodeInAndLetsAnotherGo has a fourth node join three, take its share by a
// rebalance, and the first one drained, stopped and removed, while writers insist on acks=all.
func TestAClusterTakesANodeInAndLetsAnotherGo(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t)
	r := replicate(t, nodes, "flights", 2)
	stop := r.load(t)
	t.Cleanup(stop)
	fourth := joining(t, nodes[0], 4)
	fourth.start(t)
	nodes = append(nodes, fourth)
	a := r.add(t, fourth)
	look := func(id int) (v brokerView) {
		a.must(t, "GET", fmt.Sprint("/v1/brokers/", id), nil, &v)
		return v
	}
	still := func() bool { return total(t, a, "/v1/reassignments") == 0 }
	eventually(t, startLimit, "the fourth is online", func() bool { return look(4).State == "online" })
	var plan struct {
		Moves []struct {
			To []int `json:"to"`
		} `json:"moves"`
		Copies int `json:"copies"`
	}
	require.NoError(t, json.Unmarshal([]byte(fourth.must(t, a.token, "", "reassignment", "rebalance", "--dry-run", "-o", "json")), &plan))
	require.NotZero(t, plan.Copies)
	require.Zero(t, total(t, a, "/v1/reassignments"), "it was only shown")
	fourth.must(t, a.token, "", "reassignment", "rebalance")
	eventually(t, startLimit, "what was to move has moved", still)
	require.GreaterOrEqual(t, look(4).Replicas, 2)
	r.more(t)

	drained := fourth.must(t, a.token, "", "broker", "drain", "1")
	require.Contains(t, drained, "flights")
	var seenDraining bool
	eventually(t, startLimit, "the first node holds nothing", func() bool {
		v := look(1)
		seenDraining = seenDraining || v.State == "draining"
		return v.Replicas == 0
	})
	require.True(t, seenDraining)
	r.more(t)
	p := a.refused(t, "DELETE", "/v1/brokers/1", nil)
	require.Equal(t, "conflict", p.Code, "it is online")
	eventually(t, startLimit, "the first node can be stopped", func() bool { return fourth.cli(t, a.token, "", "broker", "can-stop", "1").code == 0 })
	nodes[0].stop(t)
	eventually(t, startLimit, "the first node is forgotten", func() bool {
		return fourth.cli(t, a.token, "", "broker", "remove", "1").code == 0
	})
	require.Equal(t, "unknown-broker", a.refused(t, "GET", "/v1/brokers/1", nil).Code)
	r.more(t)
	eventually(t, startLimit, "it is no server of the quorum", func() bool {
		return slices.ContainsFunc(nodes[1:], func(n *node) bool { return strings.Contains(n.proc.err.String(), "is taken out") })
	})
	r.more(t)
	eventually(t, startLimit, "all replicas are in sync", func() bool { return still() && r.inSync(a, 3) })
	stop()
	checkMoved(t, r, a, nodes)
}

// checkMoved reads everything that was acknowledged, and compares the files of just the nodes that
// are to have them.
func checkMoved(t *testing.T, r *replicated, a *api, nodes []*node) {
	t.Helper()
	seen, err := partitionsSeen(a, r.topic)
	require.NoError(t, err)
	for p := range replicatedPartitions {
		got := map[int64]string{}
		for _, x := range a.readPartition(t, r.topic, p, 1000) {
			got[x.Offset] = string(x.Value)
		}
		for _, x := range r.acked {
			if x.partition == p {
				require.Equal(t, x.value, strings.Trim(got[x.offset], `"`), "offset %d of partition %d", x.offset, p)
			}
		}
	}
	for _, n := range nodes {
		n.kill()
	}
	for p, v := range seen {
		require.Len(t, v.Replicas, 3)
		require.NotContains(t, v.Replicas, 1)
		first := logBytes(t, nodes[v.Replicas[0]-1], r.topic, p)
		require.NotEmpty(t, first)
		for i, n := range nodes {
			own := logBytes(t, n, r.topic, p)
			if !slices.Contains(v.Replicas, i+1) {
				require.Empty(t, own, "node %d has no replica of partition %d", i+1, p)
				continue
			}
			require.True(t, bytes.Equal(first, own), "partition %d is the same on nodes %v", p, v.Replicas)
		}
	}
}

// TestOneNodeBecomesThreeUnderLoad has a node with data, a user and a group, which began without a
// cluster key, grow to a cluster of three, whose internal topics get three replicas by themselves;
// and then it is killed.
func TestOneNodeBecomesThreeUnderLoad(t *testing.T) {
	t.Parallel()
	first := newNode(t, "--node-id", "1", "--rack", "r1")
	first.start(t)
	r := &replicated{topic: "t"}
	a := r.add(t, first)
	a.createTopic(t, "t", replicatedPartitions, nil)
	a.must(t, "POST", "/v1/users", map[string]any{"username": "ada", "password": "correct horse battery"}, nil)
	l := newLedger()
	for i := range 30 {
		r.write(t, i%replicatedPartitions, fmt.Sprint("before-", i))
	}
	early := consume(t, a, l, "g", "t", always, "polls")
	eventually(t, startLimit, "the group has read what is there", func() bool { return l.distinct() == 30 && a.group(t, "g").TotalLag == 0 })
	early.end()
	token := login(t, first, "ada", "correct horse battery").token
	first.stop(t)
	first.args = append(first.args, "--gossip-listen", freeAddress(t), "--cluster-key-file", clusterKey(t))
	first.start(t)
	require.Contains(t, first.proc.err.String(), "secrets are sealed anew with the cluster key")
	r.renew(t, 0, first)

	stop := r.load(t)
	t.Cleanup(stop)
	nodes := []*node{first, joining(t, first, 2), joining(t, first, 3)}
	var at []*api
	for _, n := range nodes[1:] {
		n.start(t)
		at = append(at, r.add(t, n))
	}
	keys := signingKeys(t, newAPI(t, first))
	for _, n := range nodes {
		old := newAPI(t, n)
		old.token = token
		old.must(t, "GET", "/v1/auth/me", nil, nil) // the token of before is good everywhere
		login(t, n, "ada", "correct horse battery")
		require.Equal(t, keys, signingKeys(t, old), "no node had to make a key of its own")
	}
	replicas := func(topic string, n int) bool {
		seen, err := partitionsSeen(at[0], topic)
		return err == nil && len(seen) > 0 && !slices.ContainsFunc(seen, func(p replicaView) bool { return len(p.ISR) != n || len(p.Replicas) != n })
	}
	eventually(t, startLimit, "internal topics have three replicas", func() bool { return replicas("__consumer_offsets", 3) && replicas("__audit", 3) })
	var moves []string
	for p := range replicatedPartitions {
		moves = append(moves, fmt.Sprintf("t/%d=%d,%d,%d", p, p+1, (p+1)%3+1, (p+2)%3+1))
	}
	nodes[1].must(t, at[0].token, "", append([]string{"reassignment", "create"}, moves...)...)
	eventually(t, startLimit, "the topic has three replicas", func() bool { return replicas("t", 3) })
	late := consume(t, at[0], l, "g", "t", always, "polls", "polls")
	r.more(t)
	eventually(t, startLimit, "all vote", func() bool {
		n := 0
		for _, x := range nodes {
			n += strings.Count(x.proc.err.String(), "gets a vote")
		}
		return n >= 2
	})
	first.kill()
	r.more(t)
	time.Sleep(time.Second)
	r.more(t)
	for _, n := range nodes[1:] {
		login(t, n, "ada", "correct horse battery")
	}
	stop()
	eventually(t, startLimit, "the group has everything", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, x := range r.acked {
			if l.times[place{"t", int32(x.partition)}][x.offset] == 0 {
				return false
			}
		}
		return true
	})
	late.end()
	require.Empty(t, l.wrong)
	require.Greater(t, len(r.acked), 100)
	for p := range replicatedPartitions {
		got := map[int64]string{}
		for _, x := range at[1].readPartition(t, "t", p, 1000) {
			got[x.Offset] = string(x.Value)
		}
		for _, x := range r.acked {
			if x.partition == p {
				require.Equal(t, x.value, strings.Trim(got[x.offset], `"`), "offset %d of partition %d", x.offset, p)
			}
		}
	}
}

// signingKeys are the public keys that a node tells of.
func signingKeys(t *testing.T, a *api) (kids []string) {
	t.Helper()
	var v struct {
		Keys []struct {
			KID string `json:"kid"`
		} `json:"keys"`
	}
	a.must(t, "GET", "/.well-known/jwks.json", nil, &v)
	for _, k := range v.Keys {
		kids = append(kids, k.KID)
	}
	require.Len(t, kids, 1)
	return kids
}
