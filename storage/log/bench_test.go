package log

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
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
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
	"tidewire/storage/record"
	"tidewire/storage/syncer"
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

// What the syncs of many logs are measured with.
const (
	syncedLogs    = 50
	syncedWriters = 64
)

// synced is something that is appended to and synced for many at a time.
type synced struct {
	appendOne func(batch []byte) (int64, error) // appends and has it synced; the end that makes it durable
	done      func(end int64) bool              // whether it is durable, or never will be
	mu        sync.Mutex
	cond      sync.Cond
}

func (s *synced) tell() { s.mu.Lock(); s.cond.Broadcast(); s.mu.Unlock() }

// benchmarkSyncs has 64 writers each append to one of many and wait until it is synced, and
// reports what the processor spends on each: time of this process, in user mode and in the
// kernel.
func benchmarkSyncs(b *testing.B, all []*synced) {
	before := processorTime(b)
	var left atomic.Int64
	left.Store(int64(b.N))
	var done sync.WaitGroup
	for n := range syncedWriters {
		done.Add(1)
		go func() {
			defer done.Done()
			batch := sized(b, 100, 1)
			for i := n; left.Add(-1) >= 0; i++ {
				s := all[i%len(all)]
				end, err := s.appendOne(batch)
				if err != nil {
					b.Error(err)
					return
				}
				s.mu.Lock()
				for !s.done(end) {
					s.cond.Wait()
				}
				s.mu.Unlock()
			}
		}()
	}
	done.Wait()
	b.ReportMetric(float64(processorTime(b)-before)/1e3/float64(b.N), "cpu-µs/op")
}

// 64 writers, each of which appends one record to one of 50 logs and waits until it is
// synced.
func BenchmarkSyncFiftyLogs(b *testing.B) {
	h := newHarness(b, fsx.OS(), filepath.Join(b.TempDir(), "data"))
	all := make([]*synced, syncedLogs)
	for i := range all {
		l, err := h.store.Open(model.TopicID{byte(i + 1)}, fmt.Sprint("t", i), 0, Config{})
		require.NoError(b, err)
		s := &synced{}
		s.cond.L = &s.mu
		s.appendOne = func(batch []byte) (int64, error) {
			a, err := l.Append(batch, 0, 0)
			l.RequestSync()
			return int64(a.Last) + 1, err
		}
		s.done = func(end int64) bool { return int64(l.StableEnd()) >= end || l.Failed() != nil }
		l.SetCallbacks(func(model.Offset) { s.tell() }, nil, nil)
		all[i] = s
	}
	benchmarkSyncs(b, all)
	require.NoError(b, h.stop())
}

// The same with bare files and the scheduler of syncs: what the machine takes for it.
func BenchmarkSyncFiftyFiles(b *testing.B) {
	sched, g := syncer.New(time.Hour), lifecycle.New(context.Background())
	sched.Start(g)
	dir := b.TempDir()
	all := make([]*synced, syncedLogs)
	for i := range all {
		f, err := fsx.OS().OpenFile(filepath.Join(dir, fmt.Sprint(i)), os.O_CREATE|os.O_RDWR)
		require.NoError(b, err)
		defer func() { require.NoError(b, f.Close()) }()
		s := &synced{}
		s.cond.L = &s.mu
		var mu sync.Mutex
		var end, stable int64 // guarded by mu; stable by s.mu
		m := syncer.NewMember(func() {
			mu.Lock()
			upTo := end
			mu.Unlock()
			if err := f.SyncData(); err != nil {
				b.Error(err)
			}
			s.mu.Lock()
			stable = upTo
			s.mu.Unlock()
		}, s.tell)
		s.appendOne = func(batch []byte) (int64, error) {
			mu.Lock()
			defer mu.Unlock()
			_, err := f.WriteAt(batch, end)
			end += int64(len(batch))
			sched.Enqueue(m)
			return end, err
		}
		s.done = func(end int64) bool { return stable >= end }
		all[i] = s
	}
	benchmarkSyncs(b, all)
	sched.Close()
	require.NoError(b, g.Stop(time.Minute))
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
