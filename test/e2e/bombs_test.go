//go:build linux

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
	"tidewire/internal/testkit/bombs"
	"tidewire/storage/record"
)

// mostMemory is how much more than before a node may take whatever batches inflate to: what
// it gives to inflation, as much again that is garbage, and the requests themselves.
const mostMemory = 512 << 20

// peakMemory is the largest resident size of the node's process so far, in bytes (proc(5)).
func (n *node) peakMemory(t testing.TB) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.proc.cmd.Process.Pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			require.NoError(t, err)
			return kb << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// produceBatch sends a record batch to partition 0 of a topic.
func (a *api) produceBatch(topic string, batch []byte) (int, problem, error) {
	var p problem
	req, err := http.NewRequest("POST", a.n.URL()+"/v1/topics/"+topic+"/partitions/0/records", bytes.NewReader(batch))
	if err != nil {
		return 0, p, err
	}
	req.Header.Set("Content-Type", "application/vnd.kafka.record-batches")
	req.Header.Set("Authorization", "Bearer "+a.token)
	resp, err := a.http.Do(req)
	if err != nil {
		return 0, p, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 400 {
		err = json.Unmarshal(b, &p)
	}
	return resp.StatusCode, p, err
}

// atOnce calls fn many times at the same time.
func atOnce(n int, fn func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Add(1)
		go func() {
			defer wg.Done()
			fn(i)
		}()
	}
	wg.Wait()
}

// works requires that the node stores and reads a record.
func (a *api) works(t testing.TB, topic string) {
	t.Helper()
	a.must(t, "POST", "/v1/topics/"+topic+"/records", map[string]any{"records": []map[string]any{{"key": "k", "value": "v"}}}, nil)
	a.must(t, "GET", "/v1/topics/"+topic+"/partitions/0/records?offset=latest", nil, nil)
}

// TestFiftyBombsAtOnceAreRefusedInBoundedMemory sends batches of 500 KB that inflate to 4 GB
// (zstd), 490 MB (gzip) and 126 MB (lz4), to topics that keep and that change the codec.
func TestFiftyBombsAtOnceAreRefusedInBoundedMemory(t *testing.T) {
	n := startNode(t)
	a := admin(t, n)
	a.createTopic(t, "bombs", 1, nil)
	a.createTopic(t, "anew", 1, map[string]any{"compression.type": "zstd"})
	now := time.Now().UnixMilli()
	var all [][]byte
	for _, c := range []record.Codec{record.Gzip, record.Zstd, record.LZ4} {
		for _, claim := range []int64{40 << 20, 1<<31 - 1} {
			all = append(all, bombs.Batch(c, claim, now))
		}
	}
	a.works(t, "bombs")
	before := n.peakMemory(t)
	for _, topic := range []string{"bombs", "anew"} {
		atOnce(50, func(i int) {
			status, p, err := a.produceBatch(topic, all[i%len(all)])
			if assert.NoError(t, err) {
				assert.Contains(t, []int{413, 422}, status)
				assert.Contains(t, []string{"record-too-large", "invalid-record"}, p.Code, p.Detail)
				assert.Equal(t, "not-applied", p.Outcome)
			}
		})
		a.works(t, "bombs")
	}
	grown := n.peakMemory(t) - before
	t.Logf("the node grew by %d MiB", grown>>20)
	require.Less(t, grown, int64(mostMemory))
}

// TestABombInALogStopsItsCompactionAndNothingElse puts a bomb into a log, as an older node or
// a disk may have it. Reads of it and seeks by time, fifty at once, are refused, compaction
// leaves the partition as it is and says so, and other partitions are compacted.
func TestABombInALogStopsItsCompactionAndNothingElse(t *testing.T) {
	n := startNode(t)
	a := admin(t, n)
	config := map[string]any{"cleanup.policy": "compact", "segment.bytes": 65536, "min.cleanable.dirty.ratio": 0, "compression.type": "producer"}
	for _, topic := range []string{"bad", "good"} {
		a.createTopic(t, topic, 1, config)
		a.works(t, topic)
	}
	n.kill()
	due := time.Now().Add(time.Minute).UnixMilli() // no other record is as late
	bomb := bombs.Batch(record.Zstd, 40<<20, due)
	record.SetBaseOffset(bomb, 1)
	record.SetLeaderEpoch(bomb, model.LeaderEpoch(0))
	f, err := os.OpenFile(filepath.Join(n.dir, "topics", "bad-0", "00000000000000000000.log"), os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	_, err = f.Write(bomb)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	n.start(t)
	a = admin(t, n)
	value := strings.Repeat("x", 40_000)
	for range 5 { // closes segments
		for _, topic := range []string{"bad", "good"} {
			a.must(t, "POST", "/v1/topics/"+topic+"/records", map[string]any{"records": []map[string]any{{"key": "k", "value": value}}}, nil)
		}
	}
	before := n.peakMemory(t)
	for _, query := range []string{fmt.Sprintf("timestamp=%d", due), "offset=1"} {
		atOnce(50, func(int) {
			var status int
			var answer []byte
			assert.Eventually(t, func() bool { // 429: those before it have all of the memory for reads
				var err error
				status, answer, err = a.try("GET", "/v1/topics/bad/partitions/0/records?"+query, nil)
				return assert.NoError(t, err) && status != 429
			}, time.Minute, 100*time.Millisecond)
			assert.Equal(t, 500, status, "%s", answer)
			assert.Contains(t, string(answer), "storage-error")
		})
	}
	a.must(t, "GET", "/v1/topics/bad/partitions/0/records?offset=2", nil, nil)
	require.Eventually(t, func() bool {
		return n.metric(t, a, "tidewire_compaction_uncleanable_partitions") == 1 && n.metric(t, a, "tidewire_compaction_passes_total") >= 1
	}, 90*time.Second, 200*time.Millisecond)
	require.Contains(t, n.proc.err.String(), "cannot be compacted")
	a.works(t, "bad")
	grown := n.peakMemory(t) - before
	t.Logf("the node grew by %d MiB", grown>>20)
	require.Less(t, grown, int64(mostMemory))
}

// metric is the value of a metric without labels.
func (n *node) metric(t testing.TB, a *api, name string) float64 {
	t.Helper()
	_, b, err := a.try("GET", "/metrics", nil)
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			require.NoError(t, err)
			return v
		}
	}
	return -1
}
