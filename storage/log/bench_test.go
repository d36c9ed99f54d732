package log

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

func benchBatch(b *testing.B) []byte {
	bl := record.NewBuilder(1 << 14)
	for i := range 100 {
		bl.Add(int64(i), nil, make([]byte, 100), nil)
	}
	out, err := bl.Finish(record.None)
	require.NoError(b, err)
	return out
}

// Append of ready batches of 100 × 100 B to the page cache, synced in the
// background as on a node.
func BenchmarkAppend(b *testing.B) {
	h := newHarness(b, fsx.OS(), filepath.Join(b.TempDir(), "data"))
	l := h.open(Config{WriteCaching: true})
	data := benchBatch(b)
	b.ReportAllocs()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := l.Append(data, 0, 0); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*100/b.Elapsed().Seconds(), "records/s")
	require.NoError(b, h.stop())
}

func BenchmarkReadSequential(b *testing.B) {
	h := newHarness(b, fsx.OS(), filepath.Join(b.TempDir(), "data"))
	l := h.open(Config{WriteCaching: true})
	data := benchBatch(b)
	for range 20000 {
		_, err := l.Append(data, 0, 0)
		require.NoError(b, err)
	}
	buf := make([]byte, 0, 2<<20)
	next := l.LogStart()
	b.ReportAllocs()
	var total int64
	for b.Loop() {
		if next == l.LogEnd() {
			next = 0
		}
		var err error
		buf, err = l.Read(buf[:0], next, allOffsets, 1<<20)
		if err != nil {
			b.Fatal(err)
		}
		total += int64(len(buf))
		next += model.Offset(100 * (len(buf) / len(data)))
	}
	b.ReportMetric(float64(total)/b.Elapsed().Seconds()/1e9, "GB/s")
	require.NoError(b, h.stop())
}

func BenchmarkReadOne(b *testing.B) {
	h := newHarness(b, fsx.OS(), filepath.Join(b.TempDir(), "data"))
	l := h.open(Config{WriteCaching: true, SegmentBytes: 1 << 20})
	data := benchBatch(b)
	for range 20000 {
		_, err := l.Append(data, 0, 0)
		require.NoError(b, err)
	}
	buf := make([]byte, 0, 2<<20)
	off := l.LogStart()
	b.ReportAllocs()
	for b.Loop() {
		off = (off + 1_000_003) % l.LogEnd()
		if _, err := l.Read(buf[:0], off, allOffsets, 1); err != nil {
			b.Fatal(err)
		}
	}
	require.NoError(b, h.stop())
}

// benchKeys is over how many keys the records to compact are spread.
const benchKeys = 100_000

// Compaction of b.N records of about 100 bytes over 100,000 keys, in batches of 100; run it
// with -benchtime=10000000x for ten million.
func BenchmarkCompaction(b *testing.B) {
	h := newHarness(b, fsx.OS(), filepath.Join(b.TempDir(), "data"))
	l := h.open(Config{WriteCaching: true, SegmentBytes: 256 << 20})
	bl := record.NewBuilder(1 << 15)
	rng := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, 80)
	for n := 0; n < b.N; n += 100 {
		bl.Reset()
		for range 100 {
			bl.Add(int64(n), fmt.Appendf(nil, "key-%08d", rng.IntN(benchKeys)), value, nil)
		}
		batch, err := bl.Finish(record.None)
		require.NoError(b, err)
		_, err = l.Append(batch, 0, 0)
		require.NoError(b, err)
	}
	l.mu.Lock()
	require.NoError(b, l.rollLocked(l.LogEnd(), 0))
	l.mu.Unlock()
	kv(b, l, record.None, "active", "x")
	l.store.sched.enqueue(l)
	for l.synced.Load() < l.logEnd.Load() {
		runtime.Gosched()
	}
	size := l.Size()
	b.SetBytes(size / int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	res, err := l.Clean(b.Context(), CleanPolicy{DeleteRetentionMs: 1000, HighWatermark: l.LogEnd(), LastStable: l.LogEnd()}, 1000)
	b.StopTimer()
	require.NoError(b, err)
	require.True(b, b.N < 10*benchKeys || res.Made > 0)
	b.ReportMetric(float64(size)/b.Elapsed().Seconds()/1e6, "MB/s")
	b.ReportMetric(float64(l.Size())/float64(size), "kept")
	require.NoError(b, h.stop())
}
