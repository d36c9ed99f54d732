package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/lifecycle"
)

// logFiles counts the descriptors of a node that lead into its partitions' folders.
func (n *node) logFiles() int {
	folder := fmt.Sprintf("/proc/%d/fd", n.proc.cmd.Process.Pid)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return 0
	}
	count := 0
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(folder, e.Name())); err == nil && strings.HasPrefix(to, filepath.Join(n.dir, "topics")) {
			count++
		}
	}
	return count
}

// resident is the node's resident memory in bytes.
func (n *node) resident(t *testing.T) int64 {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", n.proc.cmd.Process.Pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "Rss:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			require.NoError(t, err)
			return kib << 10
		}
	}
	t.Fatalf("no Rss in %s", raw)
	return 0
}

// More partitions than files may be open: all are served, before and after a clean stop and
// a kill, and the process never has more of their files open than --max-open-files says.
// test/scale measures the same with 10,000 partitions.
func TestManyPartitionsLiveWithFewDescriptors(t *testing.T) {
	t.Parallel()
	const topics, partitions, most = 5, 100, 64
	n := newNode(t, "--max-open-files", strconv.Itoa(most))
	n.start(t)
	a := admin(t, n)
	base := n.resident(t)
	for i := range topics {
		a.createTopic(t, fmt.Sprint("t", i), partitions, nil)
	}
	peak := 0
	watch := func(during func()) {
		g := lifecycle.New(context.Background())
		g.Go("count descriptors", func(ctx context.Context) {
			for ctx.Err() == nil {
				peak = max(peak, n.logFiles())
				time.Sleep(pollEvery)
			}
		})
		during()
		require.NoError(t, g.Stop(10*time.Second))
	}
	rounds := 0
	round := func() {
		var b strings.Builder
		for p := range partitions {
			fmt.Fprintf(&b, `,{"partition":%d,"value":"round %d of %d"}`, p, rounds, p)
		}
		for i := range topics {
			a.must(t, "POST", fmt.Sprintf("/v1/topics/t%d/records", i), []byte(`{"records":[`+b.String()[1:]+`]}`), nil)
		}
		rounds++
	}
	verify := func() {
		for i := range topics {
			for _, p := range []int{0, 57, partitions - 1} {
				got := a.readPartition(t, fmt.Sprint("t", i), p, 100)
				require.Len(t, got, rounds, "partition %d", p)
				for r, rec := range got {
					require.Equal(t, fmt.Sprintf("round %d of %d", r, p), string(rec.Value))
				}
			}
		}
	}
	watch(func() {
		for range 3 {
			round()
		}
		verify()
	})
	require.Greater(t, peak, most/2)
	require.LessOrEqual(t, peak, most)
	_, metrics, err := a.try("GET", "/metrics", nil)
	require.NoError(t, err)
	require.Contains(t, string(metrics), fmt.Sprintf("tidewire_log_open_files_limit %d\n", most))
	require.NotContains(t, string(metrics), "tidewire_log_file_evictions_total 0\n")

	for _, clean := range []bool{true, false} {
		n.restart(t, clean)
		a = admin(t, n)
		watch(func() { verify(); round(); verify() })
		require.LessOrEqual(t, peak, most)
	}
	const each, slack = 60_000, 64 << 20 // of the garbage collector
	require.Less(t, n.resident(t)-base, int64(topics*partitions*each+slack))
}
