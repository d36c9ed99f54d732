package browse

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
	"tidewire/internal/testkit/racing"
	"tidewire/storage/record"
)

// However many partitions there are and whatever their batches inflate to, a read holds its
// budget and one batch, and still gives everything in order.
func TestMemoryIsBoundedByTheBudgetAndOneBatch(t *testing.T) {
	t.Parallel()
	racing.SkipSequential(t)
	const partitions, records, size, budget = 40, 4, 256 << 10, 64 << 10
	for _, dir := range []Direction{Forward, Backward} {
		x := newTopic(t, partitions)
		for p := range partitions {
			batch := make([]rec, records)
			for i := range batch { // their turns alternate, record by record
				batch[i] = rec{ts: int64(i), value: bytes.Repeat([]byte("x"), size)}
			}
			x.add(p, 0, record.Zstd, batch...)
		}
		x.end()
		m := NewMerge(x.parts(dir), dir, budget)
		n, most := 0, 0
		for {
			progress, err := m.Scan(&Filter{}, 1, func(it Item) Verdict {
				want := n / partitions
				if dir == Backward {
					want = records - 1 - want
				}
				require.Equal(t, int64(want), it.Record.Timestamp)
				n++
				return Go
			})
			require.NoError(t, err)
			most = max(most, m.held)
			if progress == Dry {
				break
			}
		}
		require.Equal(t, partitions*records, n)
		require.Less(t, most, budget+records*size+size/2)
		require.Zero(t, m.held, "nothing is held at the end")
		x.close()
	}
}

// counting is a view that counts what is read.
type counting struct {
	view
	calls, bytes *int
}

func (c counting) Read(dst []byte, from, limit model.Offset, maxBytes int) ([]byte, error) {
	out, err := c.view.Read(dst, from, limit, maxBytes)
	*c.calls++
	*c.bytes += len(out)
	return out, err
}

// Reading backward asks the log for little more than what it gives: also where records are
// small, large, of mixed sizes, or far apart.
func TestReadingBackwardReadsLittleMoreThanItGives(t *testing.T) {
	t.Parallel()
	racing.SkipSequential(t)
	for name, c := range map[string]struct {
		size, each int
		gap        model.Offset
	}{
		"small batches":       {10, 1, 0},
		"batches of many":     {10, 500, 0},
		"large records":       {20_000, 1, 0},
		"gaps of compaction":  {10, 3, 100},
		"large gaps":          {100, 1, 1 << 24},
		"as they come, mixed": {-1, 2, 0},
	} {
		x := newTopic(t, 1)
		total := 0
		for i := range 600 {
			batch := make([]rec, c.each)
			for j := range batch {
				size := c.size
				if size < 0 {
					size = i * i % 7001
				}
				batch[j] = rec{ts: int64(i), value: bytes.Repeat([]byte("x"), size)}
				total += size + 75
			}
			x.add(0, c.gap, record.None, batch...)
		}
		x.end()
		calls, read := 0, 0
		parts := x.parts(Backward)
		parts[0].Log = counting{view{x, 0}, &calls, &read}
		got, _ := x.scan(NewMerge(parts, Backward, 1<<20), &Filter{}, all, all)
		require.Len(t, got, 600*c.each, name)
		require.Less(t, read, 4*total+1<<18, "%s: bytes read of %d", name, total)
		require.Less(t, calls, 2400, name)
		x.close()
	}
}

// The first of many pages backward costs what a page costs, not what the log costs.
func TestOnePageBackwardReadsOnePage(t *testing.T) {
	t.Parallel()
	x := newTopic(t, 1)
	defer x.close()
	for i := range 3000 {
		x.add(0, 0, record.None, rec{ts: int64(i), value: []byte(fmt.Sprint(i))})
	}
	x.end()
	calls, read := 0, 0
	parts := x.parts(Backward)
	parts[0].Log = counting{view{x, 0}, &calls, &read}
	got, _ := x.scan(NewMerge(parts, Backward, 8<<20), &Filter{}, 10, all)
	require.Equal(t, "2999", string(got[0].value))
	require.Less(t, read, 2*maxChunk)
	require.Less(t, calls, 4)
}
