//go:build linux

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/test/faults"
)

// asked is how one request to a node is made, and what comes of it.
type asked struct {
	t *testing.T
	w *faults.World
	c *faults.Client
}

// write writes a record to a partition of a topic through a node, which has so long for it.
func (a asked) write(node int, topic, value string, within time.Duration, acks string) faults.Answer {
	a.t.Helper()
	began := time.Now()
	x := a.c.At(node).Call(a.t.Context(), http.MethodPost, fmt.Sprintf("/v1/topics/%s/partitions/0/records?acks=%s&timeout_ms=%d", topic, acks, within.Milliseconds()),
		map[string]any{"records": []any{map[string]any{"value": value}}})
	require.NoError(a.t, x.Err)
	require.Less(a.t, time.Since(began), within+3*time.Second, "it answers within its deadline: %s", &x)
	return x
}

// writes has so many records acknowledged, at one node after the other, and gives their values.
func (a asked) writes(n int, topic string) (values []string) {
	a.t.Helper()
	for i := range n {
		values = append(values, fmt.Sprint("before-", i))
		require.True(a.t, ok(a.write(1+i%3, topic, values[i], 5*time.Second, "all")))
	}
	return values
}

// read reads all of the partition that a node shows, and the high watermark that it tells.
func (a asked) read(node int, topic string) (values []string, hw int64) {
	a.t.Helper()
	var got page
	x := a.c.At(node).Call(a.t.Context(), http.MethodGet, "/v1/topics/"+topic+"/partitions/0/records?offset=earliest&max_records=10000", nil)
	require.NoError(a.t, x.Into(&got))
	for _, r := range storedAll(a.t, got.Records) {
		values = append(values, string(r.Value))
	}
	return values, got.HighWatermark
}

// sequenced is an idempotent producer.
type sequenced struct {
	asked
	id, epoch string
}

func (a asked) producer() sequenced {
	a.t.Helper()
	var got struct {
		ID    int64 `json:"producer_id"`
		Epoch int64 `json:"producer_epoch"`
	}
	require.NoError(a.t, a.c.Await(a.t.Context(), http.MethodPost, "/v1/producers", nil, &got))
	return sequenced{a, fmt.Sprint(got.ID), fmt.Sprint(got.Epoch)}
}

// send writes a record under a sequence.
func (s sequenced) send(node int, value string, sequence int) faults.Answer {
	return s.c.At(node).Call(s.t.Context(), http.MethodPost, "/v1/topics/isolated/partitions/0/records?timeout_ms=2000",
		map[string]any{"records": []any{map[string]any{"value": value}}},
		"Tidewire-Producer-Id", s.id, "Tidewire-Producer-Epoch", s.epoch, "Tidewire-Sequence", fmt.Sprint(sequence))
}

// leader is who leads the partition, as a node sees it.
func (a asked) leader(node int, topic string) int {
	a.t.Helper()
	seen, err := a.c.Partitions(a.t.Context(), node, topic)
	require.NoError(a.t, err)
	require.NotNil(a.t, seen[0].Leader)
	return *seen[0].Leader
}

// A leader that is cut off acknowledges nothing and shows nothing that was not committed. Others
// lead meanwhile, and when it is back its log is cut to theirs.
func TestALeaderThatIsCutOffAcknowledgesNothing(t *testing.T) {
	w, c := startWorld(t, faults.Setup{Nodes: 3}, "isolated", 1)
	a := asked{t, w, c}
	want := a.writes(19, "isolated")
	second := a.producer()
	want = append(want, "before-19")
	require.True(t, ok(second.send(1, want[19], 0)))
	old := a.leader(1, "isolated")
	others := slices.DeleteFunc([]int{1, 2, 3}, func(id int) bool { return id == old })
	require.NoError(t, w.Isolate(old))

	// It takes itself for the leader still.
	for i := range 3 {
		x := a.write(old, "isolated", fmt.Sprint("doubtful-", i), 500*time.Millisecond, "all")
		require.Equal(t, http.StatusGatewayTimeout, x.Status, "%s", &x)
		require.Equal(t, "unknown", x.Problem().Outcome)
	}
	require.True(t, ok(a.write(old, "isolated", "weak", time.Second, "leader")), "acks=leader promises no more than this")
	shown, hw := a.read(old, "isolated")
	require.Equal(t, want, shown, "what was not committed is not shown")
	require.EqualValues(t, len(want), hw)

	eventually(t, startLimit, "another leads", func() bool {
		seen, err := c.Partitions(t.Context(), others[0], "isolated")
		return err == nil && seen[0].Leader != nil && *seen[0].Leader != old
	})
	for i := range 20 {
		want = append(want, fmt.Sprint("after-", i))
		require.True(t, ok(a.write(others[i%2], "isolated", want[20+i], 5*time.Second, "all")))
	}
	x := second.send(others[0], "after-20", 1)
	require.True(t, ok(x), "%s", &x)
	want = append(want, "after-20")
	shown, _ = a.read(old, "isolated")
	require.Equal(t, want[:20], shown, "the one that is cut off knows nothing of it")
	require.False(t, ok(a.write(old, "isolated", "doubtful-late", 500*time.Millisecond, "all")))
	x = c.At(old).Call(t.Context(), http.MethodGet, "/v1/topics/isolated/partitions/0/records?offset=40", nil)
	require.Equal(t, http.StatusServiceUnavailable, x.Status, "that nothing is there it cannot say: %s", &x)
	x = second.send(old, "doubtful-third", 2)
	require.True(t, x.Problem().Retryable, "nor that a sequence has a gap: %s", &x)

	require.NoError(t, w.Heal())
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	require.NoError(t, c.AwaitISR(ctx, "isolated", 3))
	for _, n := range w.Nodes() {
		shown, _ := a.read(n.ID, "isolated")
		require.Equal(t, want, shown, "at node %d: what was acknowledged is there, what was not is gone", n.ID)
	}
	require.Contains(t, w.Node(old).Log(), "a replica's log is cut to its leader's")
	sameReplicas(t, w, "isolated", 1)
}

func ok(a faults.Answer) bool { return a.OK() }

// Two of three nodes are gone: the third gives what it has, acknowledges nothing, and says for
// each write and each change in time whether it was certainly not made. One more node heals all.
func TestTheLastOfThreeNodesAcknowledgesNothing(t *testing.T) {
	w, c := startWorld(t, faults.Setup{Nodes: 3}, "lonely", 1)
	a := asked{t, w, c}
	want := a.writes(20, "lonely")
	left := a.leader(1, "lonely")
	gone := slices.DeleteFunc([]int{1, 2, 3}, func(id int) bool { return id == left })
	for _, id := range gone {
		w.Node(id).Kill()
	}
	change := func(name string) faults.Answer {
		began := time.Now()
		x := c.At(left).Call(t.Context(), http.MethodPost, "/v1/topics", map[string]any{"name": name, "replication_factor": 1})
		require.Less(t, time.Since(began), 15*time.Second)
		require.NoError(t, x.Err)
		return x
	}
	unsure := map[int]bool{}
	for i, end := 0, time.Now().Add(8*time.Second); time.Now().Before(end); i++ {
		x := a.write(left, "lonely", fmt.Sprint("doubtful-", i), 500*time.Millisecond, "all")
		wantOutcome := map[int]string{http.StatusServiceUnavailable: "not-applied", http.StatusGatewayTimeout: "unknown"}[x.Status]
		require.NotEmpty(t, wantOutcome, "%s", &x)
		require.Equal(t, wantOutcome, x.Problem().Outcome, "%s", &x)
		unsure[x.Status] = true
		shown, hw := a.read(left, "lonely")
		require.Equal(t, want, shown, "reads below the high watermark go on")
		require.EqualValues(t, len(want), hw, "and it stays")
		if i%4 == 0 {
			x := change(fmt.Sprint("change-", i))
			p := x.Problem()
			switch x.Status {
			case http.StatusServiceUnavailable:
				require.Equal(t, []string{"quorum-unavailable", "not-applied"}, []string{p.Code, p.Outcome}, "%s", &x)
			case http.StatusGatewayTimeout:
				require.Equal(t, []string{"commit-unknown", "unknown"}, []string{p.Code, p.Outcome}, "%s", &x)
			default:
				t.Fatalf("a change without a quorum: %s", &x)
			}
		}
	}
	t.Logf("statuses of writes: %v", unsure)
	require.NoError(t, w.Node(gone[0]).Start(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	require.NoError(t, c.Await(ctx, http.MethodPost, "/v1/topics", map[string]any{"name": "healed", "replication_factor": 2}, nil))
	require.NoError(t, c.AwaitISR(ctx, "lonely", 2))
	answer := a.write(gone[0], "lonely", "healed", 10*time.Second, "all")
	require.True(t, ok(answer), "%s", &answer)
	shown, _ := a.read(left, "lonely")
	require.Equal(t, want, shown[:len(want)])
	require.Equal(t, "healed", shown[len(shown)-1])
	require.NoError(t, w.Node(gone[1]).Start(t.Context()))
	require.NoError(t, c.AwaitISR(ctx, "lonely", 3))
	sameReplicas(t, w, "lonely", 1)
}

// Where all replicas have to be in sync and one is not, a record that was appended before that was
// known is not acknowledged, and later ones are not even appended; all comes right by itself.
func TestBelowMinInsyncReplicasNothingIsAcknowledgedUntilTheyAreBack(t *testing.T) {
	w, c := startWorld(t, faults.Setup{Nodes: 3}, "strict", 1)
	a := asked{t, w, c}
	require.NoError(t, c.Await(t.Context(), http.MethodPatch, "/v1/topics/strict/config", map[string]any{"set": map[string]any{"min.insync.replicas": "3"}}, nil))
	require.True(t, ok(a.write(1, "strict", "first", 5*time.Second, "all")))
	lead := a.leader(1, "strict")
	slow := w.Node(1 + lead%3)
	slow.Pause()
	defer slow.Resume()
	x := a.write(lead, "strict", "appended", 500*time.Millisecond, "all")
	require.Equal(t, http.StatusGatewayTimeout, x.Status, "%s", &x)
	require.Equal(t, "unknown", x.Problem().Outcome)
	eventually(t, startLimit, "it is not in sync", func() bool {
		seen, err := c.Partitions(t.Context(), lead, "strict")
		return err == nil && len(seen[0].ISR) == 2
	})
	x = a.write(lead, "strict", "refused", 5*time.Second, "all")
	require.Equal(t, http.StatusServiceUnavailable, x.Status, "%s", &x)
	require.Equal(t, []string{"not-enough-replicas", "not-applied"}, []string{x.Problem().Code, x.Problem().Outcome})
	shown, hw := a.read(lead, "strict")
	require.Equal(t, []string{"first"}, shown)
	require.EqualValues(t, 1, hw, "the high watermark stays")
	slow.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	require.NoError(t, c.AwaitISR(ctx, "strict", 3))
	require.True(t, ok(a.write(lead, "strict", "last", 10*time.Second, "all")))
	shown, _ = a.read(lead, "strict")
	require.Equal(t, []string{"first", "appended", "last"}, shown)
	sameReplicas(t, w, "strict", 1)
}

// All nodes are killed at once, again and again, under load.
func TestAllNodesMayBeKilledAtOnceUnderLoad(t *testing.T) {
	needsNamespaces(t)
	breakUnderLoad(t, faults.KillAll)
}

// The power fails at all nodes at once, again and again, under load: what was not synced is gone,
// what was acknowledged or read is there.
func TestThePowerMayFailAtAllNodesUnderLoad(t *testing.T) {
	needsNamespaces(t)
	if err := faults.CutsPower(t.Context(), t.TempDir()); err != nil {
		t.Skipf("skipped: this machine cannot take the power of a disk: %v", err)
	}
	breakUnderLoad(t, faults.Power)
}

// breakUnderLoad makes one kind of fault for some seconds.
func breakUnderLoad(t *testing.T, k faults.Kind) {
	t.Helper()
	report, err := faults.Run(t.Context(), faults.Config{
		Binary: binary, Dir: faultFolder(t), Nodes: 3, Time: 8 * time.Second, Seed: uint64(time.Now().Unix()),
		Only: []faults.Kind{k}, PerS: 300, Log: t.Logf,
	})
	require.NoError(t, err)
	t.Log(report)
	require.Empty(t, report.Wrong)
}

// What was deleted on one leader does not come back on the next, though that leads a moment later.
func TestDeletedRecordsStayDeletedWhoeverLeads(t *testing.T) {
	w, c := startWorld(t, faults.Setup{Nodes: 3}, "shortened", 1)
	a := asked{t, w, c}
	want := a.writes(20, "shortened")
	left := a.leader(1, "shortened")
	other := 1 + left%3
	x := c.At(other).Call(t.Context(), http.MethodPost, "/v1/topics/shortened/delete-records",
		map[string]any{"partitions": []any{map[string]any{"partition": 0, "before_offset": 15}}})
	require.True(t, x.OK(), "%s", &x)
	w.Node(left).Kill()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	var got page
	require.NoError(t, c.Await(ctx, http.MethodGet, "/v1/topics/shortened/partitions/0/records?offset=earliest&max_records=100", nil, &got))
	var shown []string
	for _, r := range storedAll(t, got.Records) {
		shown = append(shown, string(r.Value))
	}
	require.Equal(t, want[15:], shown)
	require.EqualValues(t, 15, got.Records[0].Offset)
}
