package compact

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewire/internal/model"
	"tidewire/storage/record"
)

func TestASetOfOffsetsAnswersAsAMapDoes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		from := model.Offset(rapid.Int64Range(0, 1<<40).Draw(t, "from"))
		m := NewMap(1<<16, Seed{1})
		in := map[model.Offset]bool{}
		end := from + model.Offset(rapid.IntRange(1, 400).Draw(t, "width"))
		for i := range rapid.IntRange(0, 20).Draw(t, "keys") {
			off := from + model.Offset(rapid.Int64Range(0, int64(end-from)-1).Draw(t, "offset"))
			m.Put(fmt.Append(nil, i), off)
			in[off] = true
		}
		s := m.offsets(from, end)
		require.True(t, s.known())
		for off := from; off < end; off++ {
			require.Equal(t, in[off], s.has(off))
		}
		first := from + model.Offset(rapid.Int64Range(0, int64(end-from)-1).Draw(t, "first"))
		last := model.Offset(rapid.Int64Range(int64(first), int64(end)-1).Draw(t, "last"))
		any := false
		for off := first; off <= last; off++ {
			any = any || in[off]
		}
		require.Equal(t, any, s.anyIn(first, last))
	})
}

func TestASetOfOffsetsThatFindsNoRoomIsNotMade(t *testing.T) {
	t.Parallel()
	m := NewMap(24_000, Seed{1})
	room := (m.size - int64(len(m.slots))*slotSize) * 8
	fits, wide := m.offsets(0, model.Offset(room)), m.offsets(0, model.Offset(room)+1)
	require.True(t, fits.known())
	require.False(t, wide.known())
	huge := m.offsets(5, 1<<62)
	require.False(t, huge.known())
}

// Whether the second reading goes by offsets or by keys, the same records stay, with the same
// bytes and the same counts.
func TestOffsetsAndKeysDecideAlike(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var batches []record.Batch
		next := model.Offset(rapid.IntRange(0, 5).Draw(rt, "start"))
		from := next + model.Offset(rapid.IntRange(0, 12).Draw(rt, "clean"))
		for range rapid.IntRange(1, 8).Draw(rt, "batches") {
			var recs []put
			for range rapid.IntRange(1, 5).Draw(rt, "records") {
				recs = append(recs, put{key: fmt.Sprint(rapid.IntRange(0, 5).Draw(rt, "key")), val: "v",
					null: rapid.IntRange(0, 3).Draw(rt, "tombstone") == 0, noKey: rapid.IntRange(0, 9).Draw(rt, "no key") == 0})
			}
			batches = append(batches, make1(t, next, record.Codec(rapid.IntRange(0, 2).Draw(rt, "codec")), 0, recs...))
			next += model.Offset(len(recs))
		}
		size := rapid.SampledFrom([]int64{24 * 3, 24 * 5, 1 << 16}).Draw(rt, "map")
		run := func(byKeys bool) (out [][]byte, s Stats) {
			m := NewMap(size, Seed{})
			m.size = 1 << 16 // room for the set, also beside a small map
			p := NewPass(Options{Map: m, Inflate: record.NewDecompressor(1 << 20), Producers: nobody{}, Now: 5, DeleteAfter: 1000}, from)
			for i := range batches {
				if batches[i].Header.NextOffset() <= from {
					continue
				}
				full, err := p.Note(&batches[i])
				require.NoError(rt, err)
				if full {
					break
				}
			}
			p.Rewind()
			require.True(rt, p.lasts.known())
			if byKeys {
				p.lasts, p.stats = offsetSet{}, Stats{}
			}
			for i := range batches {
				b, _, err := p.Clean(&batches[i], i == len(batches)-1)
				require.NoError(rt, err)
				out = append(out, append([]byte(nil), b...))
			}
			return out, p.Stats()
		}
		byOffsets, s1 := run(false)
		byKeys, s2 := run(true)
		require.Equal(rt, byKeys, byOffsets)
		require.Equal(rt, s2.Kept, s1.Kept)
		require.Equal(rt, s2.Records, s1.Records)
		require.Equal(rt, s2.Superseded+s2.Keyless, s1.Superseded+s1.Keyless)
	})
}
