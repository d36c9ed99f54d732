package log

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
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

// read goes through the log once and gives each key's last record: its number, or -1 for a
// tombstone. Offsets must grow and checksums be right.
func (x *largeLog) read() (got map[int]int64, err error) {
	got = map[int]int64{}
	var it record.Iterator
	buf := make([]byte, 0, 1<<20)
	for from := x.l.LogStart(); from < x.l.LogEnd(); {
		if buf, err = x.l.Read(buf[:0], from, allOffsets, 1<<19); err != nil {
			return nil, err
		}
		for rest := buf; len(rest) > 0; {
			var b record.Batch
			if b, rest, err = record.ParseBatch(rest); err == nil {
				err = firstErr(b.VerifyCRC(), b.Records(nil, &it))
			}
			if err != nil || b.Header.LastOffset() < from {
				return nil, fmt.Errorf("at %d: batch %d: %w", from, b.Header.BaseOffset, err)
			}
			for it.Next() {
				r := it.Record()
				k, kerr := strconv.Atoi(string(r.Key[min(4, len(r.Key)):]))
				if kerr != nil { // of seal
					continue
				}
				got[k] = -1
				if r.Value != nil {
					got[k], err = strconv.ParseInt(string(r.Value[:12]), 10, 64)
				}
				if err != nil {
					return nil, err
				}
			}
			from = b.Header.NextOffset()
		}
	}
	return got, it.Err()
}

// check reads the log and compares; gone are the tombstones of the first keys.
func (x *largeLog) check(gone int) {
	got, err := x.read()
	require.NoError(x.t, err)
	for k, n := range x.last {
		have, ok := got[k]
		if k < gone || n == 0 {
			require.False(x.t, ok, "key %d", k)
		} else if have != n {
			require.Equal(x.t, n, have, "key %d", k)
		}
	}
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
	passes := 0
	x.h.group.Go("reader", func(ctxT) {
		for {
			select {
			case <-stop:
				readers <- nil
				return
			default:
			}
			got, err := x.read()
			if err != nil || len(got) != keys {
				readers <- fmt.Errorf("a reader has %d keys: %w", len(got), err)
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
		require.Less(t, grown, x.h.opts.DedupeBufferBytes+16<<20, "with the buffers for reading and writing")
	}
	require.Less(t, x.l.Size(), size/10)
	x.check(0)

	x.fill(1000) // may bring some of the first keys back
	_, _ = x.clean(2500)
	x.check(0) // their time, 1000 ms after the pass at 2000, is not over
	for k := range 100 {
		if x.last[k] >= 0 {
			x.last[k] = 0 // is checked apart: it has a value again
		}
	}
	x.finish()
}

// finish sees the tombstones off.
func (x *largeLog) finish() {
	t := x.t
	back, err := x.read()
	require.NoError(t, err)
	x.fill(100)
	_, _ = x.clean(3001)
	got, err := x.read()
	require.NoError(t, err)
	for k := range 100 {
		n, ok := got[k]
		require.False(t, ok && n < 0, "the tombstone of key %d has outlived its time", k)
		require.True(t, ok || back[k] < 0, "key %d", k)
	}
	require.NoError(t, x.h.stop())
}

// watchMemory looks at the heap until stop is closed and then gives by how much it grew.
func (x *largeLog) watchMemory(stop <-chan struct{}) <-chan int64 {
	out := make(chan int64, 1)
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	before, top := int64(m.HeapInuse), int64(m.HeapInuse)
	x.h.group.Go("memory", func(ctxT) {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				runtime.ReadMemStats(&m)
				top = max(top, int64(m.HeapInuse))
			case <-stop:
				out <- top - before
				return
			}
		}
	})
	return out
}
