package retention

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewire/internal/model"
)

// facts makes closed segments of 10 records and 100 bytes each with the given largest
// timestamps; the last one is active.
func facts(maxTs ...int64) []Facts {
	out := make([]Facts, len(maxTs))
	for i, ts := range maxTs {
		out[i] = Facts{End: model.Offset(10 * (i + 1)), Bytes: 100, MaxTs: ts, Appended: 900, Active: i == len(maxTs)-1}
	}
	return out
}

func decide(r Rules, segs []Facts, limit model.Offset, now int64) (int, int) {
	b := Bounds{Limit: limit, Now: now}
	for _, s := range segs {
		b.Total += s.Bytes
	}
	return r.Cut(len(segs), func(i int) Facts { return segs[i] }, b)
}

func TestRetentionDecides(t *testing.T) {
	t.Parallel()
	const now, far = 1000, 100
	empty := facts(100, 200, 0)
	empty[2].Bytes = 0
	for name, x := range map[string]struct {
		r            Rules
		segs         []Facts
		limit        model.Offset
		drop, future int
	}{
		"nothing without limits":                        {Rules{Ms: -1, Bytes: -1}, facts(1, 2, 3), 30, 0, 0},
		"those that are older":                          {Rules{Ms: 500, Bytes: -1, FutureMs: far}, facts(100, 499, 500, 600), 40, 2, 0},
		"an age that is just reached stays":             {Rules{Ms: 500, Bytes: -1, FutureMs: far}, facts(500, 600), 20, 0, 0},
		"an old one behind a young one stays":           {Rules{Ms: 500, Bytes: -1, FutureMs: far}, facts(600, 100, 700), 30, 0, 0},
		"the active one too when it has expired":        {Rules{Ms: 500, Bytes: -1, FutureMs: far}, facts(100, 200), 20, 2, 0},
		"not an empty active one":                       {Rules{Ms: 500, Bytes: 0, FutureMs: far}, empty, 20, 2, 0},
		"retention.ms 0 takes all of the past":          {Rules{Ms: 0, Bytes: -1, FutureMs: far}, facts(100, 999), 20, 2, 0},
		"never beyond the limit":                        {Rules{Ms: 500, Bytes: 0, FutureMs: far}, facts(100, 200, 300), 19, 1, 0},
		"never a part of a segment":                     {Rules{Ms: 500, Bytes: 0, FutureMs: far}, facts(100, 200, 300), 9, 0, 0},
		"by size while it stays above":                  {Rules{Ms: -1, Bytes: 250}, facts(1, 2, 3, 4, 5), 50, 2, 0},
		"by size down to it":                            {Rules{Ms: -1, Bytes: 300}, facts(1, 2, 3, 4, 5), 50, 2, 0},
		"by size never the active one":                  {Rules{Ms: -1, Bytes: 0}, facts(1, 2, 3), 30, 2, 0},
		"by age, then by size":                          {Rules{Ms: 500, Bytes: 200, FutureMs: far}, facts(100, 600, 700, 800), 40, 2, 0},
		"without timestamps by the last append":         {Rules{Ms: 50, Bytes: -1, FutureMs: far}, facts(-1, -1, 990), 30, 2, 0},
		"without timestamps and just appended":          {Rules{Ms: 100, Bytes: -1, FutureMs: far}, facts(-1, 990), 20, 0, 0},
		"the allowed future counts as given":            {Rules{Ms: 50, Bytes: -1, FutureMs: far}, facts(1100, 1000), 20, 0, 0},
		"too far in the future goes by the append":      {Rules{Ms: 50, Bytes: -1, FutureMs: far}, facts(1101, math.MaxInt64, 1000), 30, 2, 2},
		"too far in the future and just appended":       {Rules{Ms: 100, Bytes: -1, FutureMs: far}, facts(math.MaxInt64, 1000), 20, 0, 1},
		"any future where the setting has no limit":     {Rules{Ms: 50, Bytes: -1, FutureMs: math.MaxInt64}, facts(math.MaxInt64, 1000), 20, 0, 0},
		"a clock in doubt deletes nothing by age":       {Rules{Ms: 50, Bytes: -1, FutureMs: far, TimePaused: true}, facts(1, 2, math.MaxInt64), 30, 0, 0},
		"a clock in doubt deletes by size all the same": {Rules{Ms: 50, Bytes: 200, FutureMs: far, TimePaused: true}, facts(1, 2, 3), 30, 1, 0},
		"retention.ms without end":                      {Rules{Ms: math.MaxInt64, Bytes: -1, FutureMs: far}, facts(0, 1), 20, 0, 0},
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
		segs := make([]Facts, n)
		var total int64
		for i := range segs {
			segs[i] = Facts{
				End: model.Offset(10 * (i + 1)), Bytes: rapid.Int64Range(1, 100).Draw(t, "bytes"), Active: i == n-1,
				MaxTs: rapid.OneOf(rapid.Int64Range(-1, 3000), rapid.Int64()).Draw(t, "maxTs"), Appended: rapid.Int64Range(0, 1000).Draw(t, "appended"),
			}
			total += segs[i].Bytes
		}
		r := Rules{
			Ms: rapid.Int64Range(-1, 1200).Draw(t, "ms"), Bytes: rapid.Int64Range(-1, 500).Draw(t, "size"),
			FutureMs: rapid.Int64Range(0, 1000).Draw(t, "future"), TimePaused: rapid.Bool().Draw(t, "paused"),
		}
		limit, now := model.Offset(rapid.IntRange(0, 90).Draw(t, "limit")), int64(1000)
		drop, _ := decide(r, segs, limit, now)
		left := total
		for i, s := range segs {
			ts, _ := r.Time(s, now)
			old := r.Ms >= 0 && !r.TimePaused && now-ts > r.Ms
			if i < drop {
				left -= s.Bytes
				require.LessOrEqual(t, s.End, limit)
				require.True(t, old || r.Bytes >= 0 && left >= r.Bytes && !s.Active)
			} else if i == drop {
				require.False(t, old && s.End <= limit, "an expired head segment goes, whatever its timestamps")
			}
		}
	})
}
