package log

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// tenMillion names the environment variable that makes the test of a large compacted topic
// as large as a real one: about 1.1 GB in the folder for temporary files.
const tenMillion = "TEST_TEN_MILLION"

// largeLog is a compacted topic with the number of the last record of each key.
type largeLog struct {
	t     *testing.T
	h     *harness
	l     *Log
	last  []int64 // by key: the number in its last value; negative: a tombstone
	n     int64
	state uint64
}

func (x *largeLog) key() int {
	x.state = x.state*6364136223846793005 + 1442695040888963407
	return int(x.state>>33) % len(x.last)
}

// fill appends records, 100 to a batch, with keys at random and values of about 80 bytes that
// begin with their number.
func (x *largeLog) fill(records int) {
	b := record.NewBuilder(1 << 15)
	value := make([]byte, 80)
	for range records / 100 {
		b.Reset()
		for range 100 {
			k := x.key()
			x.n++
			copy(value, fmt.Appendf(nil, "%012d", x.n))
			b.Add(1000, fmt.Appendf(nil, "key-%08d", k), value, nil)
			x.last[k] = x.n
		}
		x.append(b)
	}
}

func (x *largeLog) append(b *record.Builder) {
	data, err := b.Finish(record.None)
	require.NoError(x.t, err)
	_, err = x.l.Append(data, 0, 0)
	require.NoError(x.t, err)
}

// bury appends tombstones for the first keys.
func (x *largeLog) bury(keys int) {
	b := record.NewBuilder(1 << 15)
	for k := range keys {
		b.Add(1000, fmt.Appendf(nil, "key-%08d", k), nil, nil)
		x.last[k] = -1
	}
	x.append(b)
}

// clean compacts everything there is and tells how long it took.
func (x *largeLog) clean(now int64) (CleanResult, time.Duration) {
	seal(x.t, x.l)
	from := time.Now()
	res, err := x.l.Clean(x.t.Context(), all(x.l), now)
	require.NoError(x.t, err)
	return res, time.Since(from)
}

// largeReader goes through the log, time and again without allocating.
type largeReader struct {
	got []int64 // by key: the number in its last value, -1 for a tombstone, 0 for none
	buf []byte
}

func (x *largeLog) reader() *largeReader {
	return &largeReader{make([]int64, len(x.last)), make([]byte, 0, 1<<20)}
}

// read goes through the log once. Offsets must grow and checksums be right.
func (x *largeLog) read(r *largeReader) (err error) {
	clear(r.got)
	var it record.Iterator
	buf := r.buf
	for from := x.l.LogStart(); from < x.l.LogEnd(); {
		if buf, err = x.l.Read(buf[:0], from, allOffsets, 1<<19); err != nil {
			return err
		}
		for rest := buf; len(rest) > 0; {
			var b record.Batch
			if b, rest, err = record.ParseBatch(rest); err == nil {
				err = firstErr(b.VerifyCRC(), b.Records(nil, &it))
			}
			if err != nil || b.Header.LastOffset() < from {
				return fmt.Errorf("at %d: batch %d: %w", from, b.Header.BaseOffset, err)
			}
			for it.Next() {
				rec := it.Record()
				if len(rec.Key) != len("key-00000000") { // of seal
					continue
				}
				if r.got[digits(rec.Key[4:])] = -1; rec.Value != nil {
					r.got[digits(rec.Key[4:])] = int64(digits(rec.Value[:12]))
				}
			}
			if err := it.Err(); err != nil {
				return err
			}
			from = b.Header.NextOffset()
		}
	}
	return nil
}

// digits is the number that b spells.
func digits(b []byte) int {
	n := 0
	for _, c := range b {
		n = n*10 + int(c-'0')
	}
	return n
}

// check reads the log and compares.
func (x *largeLog) check() {
	r := x.reader()
	require.NoError(x.t, x.read(r))
	require.Equal(x.t, x.last, r.got)
}

// A large compacted topic keeps the last value of every key, its readers are not disturbed
// while it is compacted, the cleaner keeps within its memory, and tombstones go after their
// time and not before.
func TestALargeCompactedTopicKeepsTheLastValues(t *testing.T) {
	t.Parallel()
	records, keys := 100_000, 1000
	large := os.Getenv(tenMillion) != ""
	if large {
		records, keys = 10_000_000, 100_000
	}
	x := &largeLog{t: t, last: make([]int64, keys), state: 1}
	x.h = &harness{t: t, fs: fsx.OS(), opts: StoreOptions{Dir: filepath.Join(t.TempDir(), "data"), CheckpointInterval: time.Hour, DedupeBufferBytes: 16 << 20}}
	x.h.start()
	x.l = x.h.open(Config{SegmentBytes: int64(records) * 100 / 8, FileDeleteDelayMs: -1})
	x.fill(records)
	x.bury(100)

	stop := make(chan struct{})
	readers := make(chan error, 1)
	passes, r := 0, x.reader()
	x.h.group.Go("reader", func(ctxT) {
		for {
			select {
			case <-stop:
				readers <- nil
				return
			default:
			}
			if err := x.read(r); err != nil {
				readers <- err
				return
			}
			if i := slices.Index(r.got, 0); i >= 0 {
				readers <- fmt.Errorf("a reader has not met key %d", i)
				return
			}
			passes++
		}
	})
	peak := x.watchMemory(stop)
	size := x.l.Size()
	res, took := x.clean(2000)
	require.Equal(t, model.Offset(records+100), res.To)
	close(stop)
	require.NoError(t, <-readers)
	require.NotZero(t, passes)
	grown := <-peak
	t.Logf("%d MB in %v: %.0f MB/s beside a reader (%d passes); %d MB kept; the heap grew by %.1f MiB",
		size/1e6, took, float64(size)/1e6/took.Seconds(), passes, x.l.Size()/1e6, float64(grown)/(1<<20))
	if large {
		require.Less(t, grown, x.h.opts.DedupeBufferBytes+8<<20, "with the buffers for reading and writing")
	}
	require.Less(t, x.l.Size(), size/10)
	x.check()

	x.fill(100)
	_, _ = x.clean(2500)
	x.check() // the tombstones' time, 1000 ms after the pass at 2000, is not over
	x.fill(100)
	_, _ = x.clean(3001)
	buried := 0
	for k := range x.last {
		if x.last[k] < 0 {
			x.last[k] = 0
			buried++
		}
	}
	require.NotZero(t, buried)
	x.check()
	require.NoError(t, x.h.stop())
}

// watchMemory looks at what lives on the heap until stop is closed and then gives by how much it grew.
func (x *largeLog) watchMemory(stop <-chan struct{}) <-chan int64 {
	out := make(chan int64, 1)
	live := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := live()
	top := before
	x.h.group.Go("memory", func(ctxT) {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				top = max(top, live())
			case <-stop:
				out <- top - before
				return
			}
		}
	})
	return out
}
