package log

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/index"
)

// facts makes closed segments of 10 records and 100 bytes each with the given largest
// timestamps; the last one is active.
func facts(maxTs ...int64) []segmentFacts {
	out := make([]segmentFacts, len(maxTs))
	for i, ts := range maxTs {
		out[i] = segmentFacts{end: model.Offset(10 * (i + 1)), bytes: 100, maxTs: ts, appended: 900, active: i == len(maxTs)-1}
	}
	return out
}

func decide(r Retention, segs []segmentFacts, limit model.Offset, now int64) (int, int) {
	b := bounds{limit: limit, now: now}
	for _, s := range segs {
		b.total += s.bytes
	}
	return r.cut(len(segs), func(i int) segmentFacts { return segs[i] }, b)
}

func TestRetentionDecides(t *testing.T) {
	t.Parallel()
	const now, far = 1000, 100
	empty := facts(100, 200, 0)
	empty[2].bytes = 0
	for name, x := range map[string]struct {
		r            Retention
		segs         []segmentFacts
		limit        model.Offset
		drop, future int
	}{
		"nothing without limits":                        {Retention{Ms: -1, Bytes: -1}, facts(1, 2, 3), 30, 0, 0},
		"those that are older":                          {Retention{Ms: 500, Bytes: -1, FutureMs: far}, facts(100, 499, 500, 600), 40, 2, 0},
		"an age that is just reached stays":             {Retention{Ms: 500, Bytes: -1, FutureMs: far}, facts(500, 600), 20, 0, 0},
		"an old one behind a young one stays":           {Retention{Ms: 500, Bytes: -1, FutureMs: far}, facts(600, 100, 700), 30, 0, 0},
		"the active one too when it has expired":        {Retention{Ms: 500, Bytes: -1, FutureMs: far}, facts(100, 200), 20, 2, 0},
		"not an empty active one":                       {Retention{Ms: 500, Bytes: 0, FutureMs: far}, empty, 20, 2, 0},
		"retention.ms 0 takes all of the past":          {Retention{Ms: 0, Bytes: -1, FutureMs: far}, facts(100, 999), 20, 2, 0},
		"never beyond the limit":                        {Retention{Ms: 500, Bytes: 0, FutureMs: far}, facts(100, 200, 300), 19, 1, 0},
		"never a part of a segment":                     {Retention{Ms: 500, Bytes: 0, FutureMs: far}, facts(100, 200, 300), 9, 0, 0},
		"by size while it stays above":                  {Retention{Ms: -1, Bytes: 250}, facts(1, 2, 3, 4, 5), 50, 2, 0},
		"by size down to it":                            {Retention{Ms: -1, Bytes: 300}, facts(1, 2, 3, 4, 5), 50, 2, 0},
		"by size never the active one":                  {Retention{Ms: -1, Bytes: 0}, facts(1, 2, 3), 30, 2, 0},
		"by age, then by size":                          {Retention{Ms: 500, Bytes: 200, FutureMs: far}, facts(100, 600, 700, 800), 40, 2, 0},
		"without timestamps by the last append":         {Retention{Ms: 50, Bytes: -1, FutureMs: far}, facts(-1, -1, 990), 30, 2, 0},
		"without timestamps and just appended":          {Retention{Ms: 100, Bytes: -1, FutureMs: far}, facts(-1, 990), 20, 0, 0},
		"the allowed future counts as given":            {Retention{Ms: 50, Bytes: -1, FutureMs: far}, facts(1100, 1000), 20, 0, 0},
		"too far in the future goes by the append":      {Retention{Ms: 50, Bytes: -1, FutureMs: far}, facts(1101, math.MaxInt64, 1000), 30, 2, 2},
		"too far in the future and just appended":       {Retention{Ms: 100, Bytes: -1, FutureMs: far}, facts(math.MaxInt64, 1000), 20, 0, 1},
		"any future where the setting has no limit":     {Retention{Ms: 50, Bytes: -1, FutureMs: math.MaxInt64}, facts(math.MaxInt64, 1000), 20, 0, 0},
		"a clock in doubt deletes nothing by age":       {Retention{Ms: 50, Bytes: -1, FutureMs: far, TimePaused: true}, facts(1, 2, math.MaxInt64), 30, 0, 0},
		"a clock in doubt deletes by size all the same": {Retention{Ms: 50, Bytes: 200, FutureMs: far, TimePaused: true}, facts(1, 2, 3), 30, 1, 0},
		"retention.ms without end":                      {Retention{Ms: math.MaxInt64, Bytes: -1, FutureMs: far}, facts(0, 1), 20, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			drop, future := decide(x.r, x.segs, x.limit, now)
			require.Equal(t, x.drop, drop)
			require.Equal(t, x.future, future)
		})
	}
}

// Whatever the timestamps, retention keeps what it must: nothing beyond the limit goes,
// by size alone never below retention.bytes, by age nothing that is young; and one bad
// timestamp does not pin the segments of a topic.
func TestRetentionKeepsItsPromises(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "n")
		segs := make([]segmentFacts, n)
		var total int64
		for i := range segs {
			segs[i] = segmentFacts{
				end: model.Offset(10 * (i + 1)), bytes: rapid.Int64Range(1, 100).Draw(t, "bytes"), active: i == n-1,
				maxTs: rapid.OneOf(rapid.Int64Range(-1, 3000), rapid.Int64()).Draw(t, "maxTs"), appended: rapid.Int64Range(0, 1000).Draw(t, "appended"),
			}
			total += segs[i].bytes
		}
		r := Retention{
			Ms: rapid.Int64Range(-1, 1200).Draw(t, "ms"), Bytes: rapid.Int64Range(-1, 500).Draw(t, "size"),
			FutureMs: rapid.Int64Range(0, 1000).Draw(t, "future"), TimePaused: rapid.Bool().Draw(t, "paused"),
		}
		limit, now := model.Offset(rapid.IntRange(0, 90).Draw(t, "limit")), int64(1000)
		drop, _ := decide(r, segs, limit, now)
		left := total
		for i, s := range segs {
			ts, _ := r.time(s, now)
			old := r.Ms >= 0 && !r.TimePaused && now-ts > r.Ms
			if i < drop {
				left -= s.bytes
				require.LessOrEqual(t, s.end, limit)
				require.True(t, old || r.Bytes >= 0 && left >= r.Bytes && !s.active)
			} else if i == drop {
				require.False(t, old && s.end <= limit, "an expired head segment goes, whatever its timestamps")
			}
		}
	})
}

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
