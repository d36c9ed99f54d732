//go:build linux

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/test/faults"
)

const (
	// failovers is how many leaders TestWritesGoOnAfterTheLeaderIsKilled kills; without it few.
	failovers = "TEST_FAILOVERS"
	// failoverRate is how many requests a second there are meanwhile.
	failoverRate = "TEST_FAILOVER_RATE"

	failoverPartitions = 6
	failoverWriters    = 60
)

// failover is a load of single records on every partition.
type failover struct {
	c     *faults.Client
	lines []string
	halt  chan struct{}

	answered atomic.Int64
	first    [failoverPartitions]atomic.Int64 // when a record that was sent after the kill was acknowledged, ns; 0: not yet
	killed   atomic.Int64                     // ns
	down     atomic.Int64                     // the node that was killed; 0: none

	mu    sync.Mutex
	acked [failoverPartitions]map[int64]string // guarded by mu
	wrong []string                             // guarded by mu
}

// write writes to one partition, one request after the other, through all nodes in turn.
func (f *failover) write(ctx context.Context, writer int, every time.Duration) {
	p := writer % failoverPartitions
	tick := time.NewTicker(every)
	defer tick.Stop()
	for k := 0; ; k++ {
		select {
		case <-tick.C:
		case <-f.halt:
			return
		}
		node := 1 + (writer+k)%3
		if node == int(f.down.Load()) {
			node = 1 + node%3
		}
		value := fmt.Sprintf("%d-%d %s", writer, k, f.lines[(writer*7919+k)%len(f.lines)])
		sent := time.Now().UnixNano()
		a := f.c.At(node).Call(ctx, http.MethodPost, "/v1/topics/flights/records",
			map[string]any{"records": []any{map[string]any{"partition": p, "value": value}}})
		if a.OK() {
			f.note(p, sent, value, &a)
		} else if a.Outcome() == "" {
			f.complain("an answer without an outcome: %s", &a)
		}
	}
}

func (f *failover) note(p int, sent int64, value string, a *faults.Answer) {
	var got struct {
		Results []struct {
			Offset int64 `json:"offset"`
		} `json:"results"`
	}
	if err := a.Into(&got); err != nil || len(got.Results) != 1 {
		f.complain("%v: %s", err, a)
		return
	}
	if at := f.killed.Load(); at > 0 && sent > at {
		f.first[p].CompareAndSwap(0, time.Now().UnixNano())
	}
	f.answered.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if other, twice := f.acked[p][got.Results[0].Offset]; twice {
		f.wrong = append(f.wrong, fmt.Sprintf("%d@%d is told of %.20q and %.20q", p, got.Results[0].Offset, other, value))
	}
	f.acked[p][got.Results[0].Offset] = value
}

func (f *failover) complain(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wrong = append(f.wrong, fmt.Sprintf(format, args...))
}

// kill kills the leader of a partition, and returns how long it took until all that it led took
// writes again.
func (f *failover) kill(t *testing.T, w *faults.World, partition int) time.Duration {
	t.Helper()
	seen, err := f.c.Partitions(t.Context(), 1, "flights")
	require.NoError(t, err)
	gone := *seen[partition].Leader
	for p := range f.first {
		f.first[p].Store(0)
	}
	w.Node(gone).Kill()
	at := time.Now()
	f.killed.Store(at.UnixNano())
	f.down.Store(int64(gone))
	worst := time.Duration(0)
	for p := range seen {
		if *seen[p].Leader != gone {
			continue
		}
		eventually(t, startLimit, "writes go on", func() bool { return f.first[p].Load() > 0 })
		worst = max(worst, time.Duration(f.first[p].Load()-at.UnixNano()))
	}
	require.NoError(t, w.Node(gone).Start(t.Context()))
	f.killed.Store(0)
	f.down.Store(0)
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	require.NoError(t, f.c.AwaitISR(ctx, "flights", 3))
	return worst
}

// The leader of each partition is killed in turn, under load: others lead soon, all that was
// acknowledged is there, and the replicas are equal.
func TestWritesGoOnAfterTheLeaderIsKilled(t *testing.T) {
	kills := number(t, failovers, 3)
	w, c := startWorld(t, faults.Setup{Nodes: 3}, "flights", failoverPartitions)
	f := &failover{c: c, lines: strings.Split(strings.TrimSpace(testdata(t, "flights.ndjson")), "\n"), halt: make(chan struct{})}
	for p := range f.acked {
		f.acked[p] = map[int64]string{}
	}
	rate := number(t, failoverRate, 300)
	var writers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer func() { stop(); writers.Wait() }()
	for i := range failoverWriters {
		writers.Go(func() { f.write(ctx, i, time.Second*failoverWriters/time.Duration(rate)) })
	}
	began := time.Now()
	var took []time.Duration
	for k := range kills {
		before := f.answered.Load()
		eventually(t, startLimit, "records are acknowledged", func() bool { return f.answered.Load() > before+int64(rate) })
		took = append(took, f.kill(t, w, k%failoverPartitions))
		t.Logf("kill %d: %s", k+1, took[k].Round(time.Millisecond))
	}
	rateSeen := float64(f.answered.Load()) / time.Since(began).Seconds()
	close(f.halt)
	writers.Wait()
	f.check(t, w)
	slices.Sort(took)
	at := func(q float64) time.Duration { return took[int(q*float64(len(took)-1))].Round(time.Millisecond) }
	t.Logf("%d kills at %.0f requests/s (%d records acknowledged): fastest %s, median %s, 90 %% %s, slowest %s",
		kills, rateSeen, f.answered.Load(), at(0), at(0.5), at(0.9), at(1))
}

// check reads everything and compares the replicas.
func (f *failover) check(t *testing.T, w *faults.World) {
	t.Helper()
	require.Empty(t, f.wrong)
	for p := range f.acked {
		for next, above := int64(0), int64(1); next < above; {
			var got page
			require.NoError(t, f.c.Await(t.Context(), http.MethodGet, fmt.Sprintf("/v1/topics/flights/partitions/%d/records?offset=%d&max_records=10000&max_bytes=16777216", p, next), nil, &got))
			for _, r := range storedAll(t, got.Records) {
				if want, acked := f.acked[p][r.Offset]; acked {
					require.Equal(t, want, string(r.Value), "%d@%d", p, r.Offset)
					delete(f.acked[p], r.Offset)
				}
			}
			next, above = got.NextOffset, got.HighWatermark
		}
		require.Empty(t, f.acked[p], "partition %d: acknowledged and lost", p)
	}
	sameReplicas(t, w, "flights", failoverPartitions)
}

// sameReplicas stops all nodes, whose replicas are in sync, and compares their logs.
func sameReplicas(t *testing.T, w *faults.World, topic string, partitions int) {
	t.Helper()
	for _, n := range w.Nodes() {
		require.NoError(t, n.Stop())
	}
	for p := range partitions {
		first, err := faults.LogBytes(w.Node(1), topic, p)
		require.NoError(t, err)
		require.NotEmpty(t, first)
		for _, n := range w.Nodes()[1:] {
			b, err := faults.LogBytes(n, topic, p)
			require.NoError(t, err)
			require.True(t, bytes.Equal(first, b), "partition %d is the same on all nodes", p)
		}
	}
}
