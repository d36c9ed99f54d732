package e2e

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	moveMiB  = "TEST_MOVE_MIB"
	moveRate = "TEST_MOVE_RATE_MIB" // per second
)

// operationView is what /v1/operations tells of one.
type operationView struct {
	Kind     string `json:"kind"`
	State    string `json:"state"`
	Progress struct {
		Done  int64  `json:"done"`
		Total int64  `json:"total"`
		Unit  string `json:"unit"`
	} `json:"progress"`
	ETAMs    *int64 `json:"eta_ms"`
	Resource struct {
		Name string `json:"name"`
	} `json:"resource"`
}

// moving is the operation that moves a topic's partition, nil when nothing does.
func moving(t *testing.T, a *api) *operationView {
	t.Helper()
	var v struct {
		Items []operationView `json:"items"`
	}
	a.must(t, "GET", "/v1/operations?state=running", nil, &v)
	for i := range v.Items {
		if v.Items[i].Kind == "move-partition" {
			return &v.Items[i]
		}
	}
	return nil
}

// How near a move keeps to its throttle, though the node that leads the metadata is killed at a
// third of it and the one that copies starts anew at two thirds. It measures, and is run by hand.
func TestAMoveKeepsToItsThrottle(t *testing.T) {
	mib, rate := number(t, moveMiB, 0), number(t, moveRate, 50)
	if mib == 0 {
		t.Skip("set " + moveMiB + " to measure")
	}
	nodes := threeNodes(t)
	var at []*api
	for _, n := range nodes {
		at = append(at, admin(t, n))
	}
	at[0].must(t, "POST", "/v1/topics", map[string]any{"name": "big", "partitions": 3, "replication_factor": 1}, nil)
	var v clusterView
	at[0].must(t, "GET", "/v1/cluster", nil, &v)
	controller := *v.Controller
	seen, err := partitionsSeen(at[0], "big")
	require.NoError(t, err)
	partition, from := -1, 0
	for i, p := range seen {
		if *p.Leader != controller {
			partition, from = i, *p.Leader
		}
	}
	require.NotEqual(t, -1, partition)
	to := 6 - controller - from
	random := make([]byte, 650_000)
	path := fmt.Sprintf("/v1/topics/big/partitions/%d/records", partition)
	for written := 0; written < mib<<20; {
		_, _ = rand.Read(random) // never fails (crypto/rand)
		text := base64.StdEncoding.EncodeToString(random)
		at[from-1].must(t, "POST", path, map[string]any{"records": []any{map[string]any{"value": text}}}, nil)
		written += len(text)
	}
	a := at[from-1]
	began := time.Now()
	move := func(target int) {
		a.must(t, "POST", "/v1/reassignments", map[string]any{
			"moves":                []any{map[string]any{"topic": "big", "partition": partition, "replicas": []int{target}}},
			"throttle_bytes_per_s": rate << 20,
		}, nil)
	}
	move(to)
	third, size := 1, int64(0)
	for total(t, a, "/v1/reassignments") > 0 {
		time.Sleep(200 * time.Millisecond)
		o := moving(t, a)
		if o == nil {
			continue // its leader's node looks now and then
		}
		require.Equal(t, "bytes", o.Progress.Unit)
		done := o.Progress.Done
		size = max(size, o.Progress.Total)
		if third <= 2 && size > 0 && done >= int64(third)*size/3 {
			t.Logf("%5.1f s: %d of %d MiB", time.Since(began).Seconds(), done>>20, size>>20)
			if third == 1 {
				nodes[controller-1].kill()
				nodes[controller-1].start(t)
			} else {
				nodes[to-1].stop(t)
				nodes[to-1].start(t)
			}
			third++
		}
	}
	took := time.Since(began)
	got := float64(size) / (1 << 20) / took.Seconds()
	t.Logf("%d MiB in %.1f s: %.1f MiB/s of %d", size>>20, took.Seconds(), got, rate)
	require.InEpsilon(t, float64(rate), got, 0.2)
	seen, err = partitionsSeen(a, "big")
	require.NoError(t, err)
	require.Equal(t, []int{to}, seen[partition].Replicas)

	move(from)
	eventually(t, startLimit, "it goes back", func() bool { o := moving(t, a); return o != nil && o.Progress.Done > 0 })
	a.must(t, "DELETE", fmt.Sprintf("/v1/reassignments/big/%d", partition), nil, nil)
	eventually(t, startLimit, "it is cancelled", func() bool {
		seen, err := partitionsSeen(a, "big")
		return err == nil && len(seen[partition].Replicas) == 1 && seen[partition].Replicas[0] == to
	})
}
