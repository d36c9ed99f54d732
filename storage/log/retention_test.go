package log

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/storage/index"
)

func TestAnExpiredActiveSegmentGoesWithoutAnAppend(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	l := h.open(Config{})
	for _, ts := range []int64{1000, 5000, 2000} {
		_, err := l.Append(sized(t, 100, ts), 0, ts)
		require.NoError(t, err)
	}
	waitStable(t, l)
	r := Retention{Ms: 1000, Bytes: -1, FutureMs: math.MaxInt64}
	_, move, _ := l.Retain(r, 3, 6000)
	require.False(t, move, "its largest timestamp counts")
	_, move, _ = l.Retain(r, 2, 6001)
	require.False(t, move, "the high watermark lies below its end")
	to, move, _ := l.Retain(r, 3, 6001)
	require.True(t, move)
	require.EqualValues(t, 3, to)
	require.NoError(t, l.AdvanceLogStart(to))
	require.Zero(t, l.Size())
	_, move, _ = l.Retain(r, 3, 1<<40)
	require.False(t, move, "an empty segment is not rolled over and over")
	h.kill()
}

// What an earlier run wrote is believed by its index only while it stays.
func TestAnIndexThatLiesDeletesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := newHarness(t, fsx.OS(), dir)
	cfg := Config{SegmentBytes: 400}
	l := h.open(cfg)
	for i := range 4 {
		_, err := l.Append(sized(t, 300, 9000+int64(i)), 0, 9000)
		require.NoError(t, err)
	}
	waitStable(t, l)
	require.NoError(t, h.stop())
	name := filepath.Join(dir, "topics", "events-0", baseName(0)+timeIndexSuffix)
	entry := make([]byte, index.Time.EntrySize())
	binary.BigEndian.PutUint64(entry, 5) // as if the segment were old
	require.NoError(t, os.WriteFile(name, entry, 0o600))
	h.start()
	l = h.open(cfg)
	_, move, _ := l.Retain(Retention{Ms: 1000, Bytes: -1, FutureMs: 1000}, 4, 9500)
	require.False(t, move)
	h.kill()
}

// A segment without a usable timestamp has the age of its file after a restart.
func TestASegmentWithoutTimestampsGoesByTheTimeOfItsFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := newHarness(t, fsx.OS(), dir)
	cfg := Config{SegmentBytes: 400}
	l := h.open(cfg)
	now := time.Now()
	for range 3 {
		_, err := l.Append(sized(t, 300, now.Add(240*time.Hour).UnixMilli()), 0, now.UnixMilli())
		require.NoError(t, err)
	}
	waitStable(t, l)
	require.NoError(t, h.stop())
	old := now.Add(-48 * time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(dir, "topics", "events-0", baseName(0)+logSuffix), old, old))
	h.start()
	l = h.open(cfg)
	to, move, future := l.Retain(Retention{Ms: 24 * 3600_000, Bytes: -1, FutureMs: 3600_000}, 3, now.UnixMilli())
	require.True(t, move)
	require.EqualValues(t, 1, to)
	require.Equal(t, 2, future, "the second one was looked at and stays")
	h.kill()
}

func TestSegmentJitterRollsEarlierAndTheSameAfterARestart(t *testing.T) {
	t.Parallel()
	rolls := func(jitter int64) (segments int) {
		h := newHarness(t, fsx.NewMem(), "/data")
		defer h.kill()
		l := h.open(Config{SegmentMs: 1000, SegmentJitterMs: jitter})
		for i := range int64(200) {
			_, err := l.Append(sized(t, 10, i*100), 0, i*100)
			require.NoError(t, err)
		}
		return l.Segments()
	}
	plain := rolls(0)
	require.Equal(t, 19, plain, "a segment takes what is at most 1 s younger than its first")
	require.Greater(t, rolls(900), plain)
	require.Greater(t, rolls(math.MaxInt64), plain, "more than segment.ms counts as segment.ms")
	require.Equal(t, rolls(900), rolls(900))
}
