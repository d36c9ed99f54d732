package log

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

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

// Reads by offset, each of one batch, here and there in a log of 1,000 segments.
func BenchmarkReadByOffset(b *testing.B) {
	h := newHarness(b, fsx.OS(), filepath.Join(b.TempDir(), "data"))
	l := h.open(Config{WriteCaching: true, SegmentBytes: 128 << 10})
	data := benchBatch(b)
	for l.Segments() < 1000 {
		_, err := l.Append(data, 0, 0)
		require.NoError(b, err)
	}
	buf := make([]byte, 0, 2<<20)
	off := l.LogStart()
	took := make([]time.Duration, 0, 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		off = (off + 1_000_003) % l.LogEnd()
		from := time.Now()
		if _, err := l.Read(buf[:0], off, allOffsets, 1); err != nil {
			b.Fatal(err)
		}
		if len(took) < cap(took) {
			took = append(took, time.Since(from))
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/1e3, "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100])/1e3, "p99-µs")
	require.NoError(b, h.stop())
}

// 64 writers, each of which appends one record to one of 50 logs and waits until it is
// synced: what the processor spends on each.
func BenchmarkSyncFiftyLogs(b *testing.B) {
	const logs, writers = 50, 64
	h := newHarness(b, fsx.OS(), filepath.Join(b.TempDir(), "data"))
	type waiting struct {
		l    *Log
		mu   sync.Mutex
		cond sync.Cond
	}
	var all [logs]*waiting
	for i := range all {
		l, err := h.store.Open(model.TopicID{byte(i + 1)}, fmt.Sprint("t", i), 0, Config{})
		require.NoError(b, err)
		w := &waiting{l: l}
		w.cond.L = &w.mu
		l.SetCallbacks(func(model.Offset) { w.mu.Lock(); w.cond.Broadcast(); w.mu.Unlock() }, nil, nil)
		all[i] = w
	}
	before := processorTime(b)
	var left atomic.Int64
	left.Store(int64(b.N))
	var done sync.WaitGroup
	for n := range writers {
		done.Add(1)
		go func() {
			defer done.Done()
			data := sized(b, 100, 1)
			for i := n; left.Add(-1) >= 0; i++ {
				w := all[i%logs]
				a, err := w.l.Append(data, 0, 0)
				if err != nil {
					b.Error(err)
					return
				}
				w.l.RequestSync()
				w.mu.Lock()
				for w.l.StableEnd() <= a.Last && w.l.Failed() == nil {
					w.cond.Wait()
				}
				w.mu.Unlock()
			}
		}()
	}
	done.Wait()
	b.ReportMetric(float64(processorTime(b)-before)/1e3/float64(b.N), "cpu-µs/op")
	require.NoError(b, h.stop())
}

// processorTime is what this process has used, in user mode and in the kernel.
func processorTime(b *testing.B) time.Duration {
	var u unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
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
	l.store.sched.Enqueue(l.member)
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
