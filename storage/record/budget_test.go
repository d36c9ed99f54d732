package record

import (
	"bytes"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
	"tidewire/internal/testkit/racing"
)

func TestABudgetIsGivenInOrderOfArrival(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(100)
		require.EqualValues(t, 60, b.acquire(60))
		var got []int64
		for _, n := range []int64{90, 10, 1000} { // the small one does not pass the large one by
			go func() {
				held := b.acquire(n)
				got = append(got, held)
				b.release(held)
			}()
			synctest.Wait()
		}
		require.Empty(t, got)
		b.release(60)
		synctest.Wait()
		require.Equal(t, []int64{90, 10, 100}, got, "who asks for more than there is gets all")
		require.Zero(t, (*Budget)(nil).acquire(5))
	})
}

// Around the size from which a batch is counted first, every codec gives what went in.
func TestLargeBatchesInflateToWhatTheyWere(t *testing.T) {
	t.Parallel()
	racing.SkipSequential(t)
	budget := NewBudget(32 << 20)
	for _, c := range codecs[1:] {
		d := NewDecompressor(8 << 20).Within(budget)
		for _, n := range []int{0, 1, smallInflated - 1, smallInflated, smallInflated + 1, 5 << 20, 8 << 20} {
			data := bytes.Repeat([]byte("tidewire, tidewire; "), n/20+1)[:n]
			var comp compressor
			src, err := comp.compress(c, nil, data)
			require.NoError(t, err)
			out, err := d.Decompress(c, src)
			require.NoError(t, err, "%s %d", c, n)
			require.True(t, bytes.Equal(data, out), "%s %d", c, n)
			if n > smallInflated {
				require.GreaterOrEqual(t, d.held, int64(n), "%s %d: it is held against the budget", c, n)
			}
			d.Release()
			require.Zero(t, d.held)
			require.EqualValues(t, 32<<20, budget.free)
		}
		src, err := new(compressor).compress(c, nil, make([]byte, 8<<20+1))
		require.NoError(t, err)
		_, err = d.Decompress(c, src)
		require.True(t, model.HasCode(err, model.RecordTooLarge), "%s: %v", c, err)
		require.EqualValues(t, 32<<20, budget.free)
	}
}

// A window beyond what a stream may have is fine where the frame tells its length.
func TestZstdWithALargeWindowIsReadWhole(t *testing.T) {
	t.Parallel()
	data := bytes.Repeat([]byte("tidewire "), 2<<20)
	w, err := zstd.NewWriter(nil, zstd.WithWindowSize(16<<20), zstd.WithEncoderConcurrency(1))
	require.NoError(t, err)
	src := w.EncodeAll(data, nil)
	var h zstd.Header
	require.NoError(t, h.Decode(src))
	require.True(t, h.HasFCS)
	require.Greater(t, h.WindowSize, uint64(maxZstdWindow))
	out, err := NewDecompressor(MaxInflated).Decompress(Zstd, src)
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, out))
	_, err = NewDecompressor(1<<20).Decompress(Zstd, src)
	require.True(t, model.HasCode(err, model.RecordTooLarge), "%v", err)
	two := append(bytes.Clone(src), src...)
	_, err = NewDecompressor(MaxInflated).Decompress(Zstd, two)
	require.True(t, model.HasCode(err, model.CorruptBatch), "further frames behind one: %v", err)
	small := w.EncodeAll([]byte("a"), nil)
	out, err = NewDecompressor(100).Decompress(Zstd, append(bytes.Clone(small), small...))
	require.NoError(t, err)
	require.Equal(t, "aa", string(out), "two small frames")
}

// What a bomb inflates to is never in memory, whoever reads it, and however many do.
func TestManyReadersOfABombTakeLittle(t *testing.T) {
	racing.SkipSequential(t)
	zeros := make([]byte, 300<<20)
	budget := NewBudget(64 << 20)
	for _, c := range []Codec{Gzip, LZ4, Zstd} {
		src, err := new(compressor).compress(c, nil, zeros)
		require.NoError(t, err)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var refused atomic.Int32
		var wg sync.WaitGroup
		for range 8 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				_, err := NewDecompressor(16<<20).Within(budget).Decompress(c, src)
				if model.HasCode(err, model.RecordTooLarge) {
					refused.Add(1)
				}
			}()
		}
		wg.Wait()
		runtime.ReadMemStats(&after)
		require.EqualValues(t, 8, refused.Load(), c)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(120<<20), c)
	}
}
