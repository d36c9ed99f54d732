package log

import (
	"fmt"
	"path"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

func TestAppendedRecordsAreReadBackAcrossRollsAndRestarts(t *testing.T) {
	t.Parallel()
	for name, fsys := range map[string]fsx.FS{"os": fsx.OS(), "mem": fsx.NewMem()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := "/data"
			if name == "os" {
				dir = path.Join(t.TempDir(), "data")
			}
			h := newHarness(t, fsys, dir)
			cfg := Config{SegmentBytes: 2000, IndexIntervalBytes: 300}
			l := h.open(cfg)
			var want []rec
			add := func(codec record.Codec, ts ...int64) {
				a, err := l.Append(batch(t, codec, ts...), 3, 1000)
				require.NoError(t, err)
				require.EqualValues(t, len(want), a.First)
				require.EqualValues(t, len(want)+len(ts)-1, a.Last)
				for _, x := range ts {
					want = append(want, rec{model.Offset(len(want)), x, fmt.Sprint("v", x)})
				}
			}
			for i := range int64(200) {
				add(record.Codec(i%5), i*10, i*10+5, i*10-7)
			}
			require.Greater(t, l.Segments(), 5)
			require.Equal(t, want, scan(t, l, 0, 500))
			require.Equal(t, want[77:], scan(t, l, 77, 1<<20))

			require.NoError(t, h.stop())
			h.start()
			require.True(t, h.store.found.clean)
			l = h.open(cfg)
			require.EqualValues(t, 600, l.LogEnd())
			require.EqualValues(t, 600, l.StableEnd())
			require.EqualValues(t, 3, l.LogEndEpoch())
			require.Equal(t, want, scan(t, l, 0, 500))
			add(record.None, 5000)
			waitStable(t, l)

			h.kill()
			h.start()
			require.False(t, h.store.found.clean)
			l = h.open(cfg)
			require.Equal(t, want, scan(t, l, 0, 100))
			add(record.None, 6000)
			require.NoError(t, h.stop())
		})
	}
}
