package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// replicaView is what the API tells of a partition's replicas.
type replicaView struct {
	Leader   *int  `json:"leader"`
	Replicas []int `json:"replicas"`
	ISR      []int `json:"isr"`
}

// partitionsSeen asks a node for a topic's partitions.
func partitionsSeen(a *api, topic string) ([]replicaView, error) {
	status, b, err := a.try("GET", "/v1/topics/"+topic, nil)
	if err != nil || status != 200 {
		return nil, fmt.Errorf("status %d: %w", status, err)
	}
	var v struct {
		Partitions []replicaView `json:"partitions"`
	}
	return v.Partitions, json.Unmarshal(b, &v)
}

// replicated writes to a topic of three nodes, each record to the leader of its partition.
type replicated struct {
	topic string
	at    []*api

	mu      sync.Mutex
	leaders []int       // guarded by mu: as seen last
	acked   []ackRecord // guarded by mu
}

type ackRecord struct {
	partition int
	offset    int64
	value     string
}

// leader is who was seen to lead a partition; again has another live node asked.
func (r *replicated) leader(partition int, again bool) *api {
	r.mu.Lock()
	defer r.mu.Unlock()
	if again || r.leaders == nil {
		for _, a := range r.at {
			seen, err := partitionsSeen(a, r.topic)
			if err != nil {
				continue
			}
			r.leaders = make([]int, len(seen))
			for i, p := range seen {
				if p.Leader != nil {
					r.leaders[i] = *p.Leader
				}
			}
			break
		}
	}
	if partition >= len(r.leaders) || r.leaders[partition] == 0 {
		return nil
	}
	return r.at[r.leaders[partition]-1]
}

// write insists on a record until it is acknowledged, and notes where it is.
func (r *replicated) write(t *testing.T, partition int, value string) {
	body := map[string]any{"records": []any{map[string]any{"partition": partition, "value": value}}}
	again := false
	assert.Eventually(t, func() bool {
		a := r.leader(partition, again)
		again = true
		if a == nil {
			return false
		}
		status, answer, err := a.try("POST", "/v1/topics/"+r.topic+"/records", body)
		if err != nil || status != 200 && status != 201 {
			return false
		}
		var got struct {
			Results []struct {
				Offset int64 `json:"offset"`
			} `json:"results"`
		}
		if json.Unmarshal(answer, &got) != nil || len(got.Results) != 1 {
			t.Errorf("a strange answer: %s", answer)
			return true
		}
		r.mu.Lock()
		r.acked = append(r.acked, ackRecord{partition, got.Results[0].Offset, value})
		r.mu.Unlock()
		return true
	}, startLimit, 20*time.Millisecond, "partition %d takes records", partition)
}

func (r *replicated) inSync(a *api, n int) bool {
	seen, err := partitionsSeen(a, r.topic)
	return err == nil && !slices.ContainsFunc(seen, func(p replicaView) bool { return len(p.ISR) != n || p.Leader == nil })
}

// logBytes are the .log files of a partition on a node, one after another.
func logBytes(t *testing.T, n *node, topic string, partition int) []byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.dir, "topics", fmt.Sprintf("%s-%d", topic, partition), "*.log"))
	require.NoError(t, err)
	slices.Sort(files)
	var all [][]byte
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		all = append(all, b)
	}
	return bytes.Join(all, nil)
}

const replicatedPartitions = 3

// replicate makes a topic with a replica on each of three nodes, once they are one cluster.
func replicate(t *testing.T, nodes []*node, topic string, minISR int) *replicated {
	t.Helper()
	r := &replicated{topic: topic}
	for _, n := range nodes {
		r.at = append(r.at, admin(t, n))
	}
	eventually(t, startLimit, "all are there", func() bool {
		var v clusterView
		r.at[0].must(t, "GET", "/v1/cluster", nil, &v)
		return v.states() == "1onliner1 2onliner2 3onliner3"
	})
	r.at[0].must(t, "POST", "/v1/topics", map[string]any{
		"name": r.topic, "partitions": replicatedPartitions, "replication_factor": 3, "config": map[string]any{"min.insync.replicas": strconv.Itoa(minISR)},
	}, nil)
	return r
}

// TestAcknowledgedRecordsOutliveTheirLeaders kills each of three nodes in turn, without a
// word, while writers insist on acks=all.
func TestAcknowledgedRecordsOutliveTheirLeaders(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t)
	r := replicate(t, nodes, "flights", 2)
	stop := r.load(t)
	for round := range len(nodes) {
		eventually(t, startLimit, "all replicas are in sync", func() bool { return r.inSync(r.at[(round+1)%3], 3) })
		r.more(t)
		gone := nodes[round]
		gone.kill()
		left := r.at[(round+1)%3]
		eventually(t, startLimit, "others lead", func() bool {
			seen, err := partitionsSeen(left, r.topic)
			return err == nil && !slices.ContainsFunc(seen, func(p replicaView) bool { return p.Leader == nil || *p.Leader == round+1 })
		})
		r.more(t)
		gone.start(t)
		r.mu.Lock()
		r.at[round] = admin(t, gone) // the node has another port now
		r.mu.Unlock()
	}
	eventually(t, startLimit, "all replicas are in sync", func() bool { return r.inSync(r.at[0], 3) })
	stop()
	checkReplicated(t, r, nodes)
}

// checkReplicated reads everything that was acknowledged where it was acknowledged, and compares
// the files of all replicas.
func checkReplicated(t *testing.T, r *replicated, nodes []*node) {
	t.Helper()
	for p := range replicatedPartitions {
		got := map[int64]string{}
		for _, x := range r.leader(p, true).readPartition(t, r.topic, p, 1000) {
			got[x.Offset] = string(x.Value)
		}
		for _, a := range r.acked {
			if a.partition == p {
				require.Equal(t, a.value, strings.Trim(got[a.offset], `"`), "offset %d of partition %d", a.offset, p)
			}
		}
	}
	for _, n := range nodes {
		n.stop(t)
	}
	for p := range replicatedPartitions {
		first := logBytes(t, nodes[0], r.topic, p)
		require.NotEmpty(t, first)
		for _, n := range nodes[1:] {
			require.True(t, bytes.Equal(first, logBytes(t, n, r.topic, p)), "partition %d is the same on all nodes", p)
		}
	}
}

// TestBelowMinInsyncReplicasWritesAreRefusedAndAllNodesMayFail wants all three replicas: what is
// refused meanwhile was not applied, and what was acknowledged outlives all processes at once.
func TestBelowMinInsyncReplicasWritesAreRefusedAndAllNodesMayFail(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t)
	r := replicate(t, nodes, "strict", 3)
	for i := range 10 {
		for p := range replicatedPartitions {
			r.write(t, p, fmt.Sprintf("%d-%d", p, i))
		}
	}
	nodes[2].stop(t) // it hands its leads over
	eventually(t, startLimit, "two are in sync", func() bool { return r.inSync(r.at[0], 2) && r.inSync(r.at[1], 2) })
	require.NotSame(t, r.at[2], r.leader(2, true))
	for p := range replicatedPartitions {
		x := r.leader(p, false).refused(t, "POST", "/v1/topics/strict/records", map[string]any{"records": []any{map[string]any{"partition": p, "value": "no"}}})
		require.Equal(t, "not-enough-replicas", x.Code)
		require.Equal(t, "not-applied", x.Outcome)
		require.Len(t, r.leader(p, false).readPartition(t, r.topic, p, 1000), 10, "reads go on")
	}
	nodes[2].start(t)
	r.at[2] = admin(t, nodes[2])
	eventually(t, startLimit, "all are in sync", func() bool { return r.inSync(r.at[0], 3) })
	for p := range replicatedPartitions {
		r.write(t, p, fmt.Sprintf("%d-after", p))
	}
	for _, n := range nodes {
		n.kill()
	}
	for _, n := range nodes {
		n.spawn(t)
	}
	for i, n := range nodes {
		n.awaitReady(t)
		r.at[i] = admin(t, n)
	}
	eventually(t, startLimit, "all are in sync", func() bool { return r.inSync(r.at[0], 3) })
	checkReplicated(t, r, nodes)
	require.Len(t, r.acked, 11*replicatedPartitions)
}
