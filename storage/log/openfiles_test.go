package log

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/files"
	"tidewire/storage/record"
)

// crowded is a store of more logs than it may have files open.
type crowded struct {
	*harness
	files   *descriptors
	logs    []*Log
	workers *lifecycleGroup // end with its context
}

func newCrowded(t *testing.T, fsys fsx.FS, logs int, syncEvery time.Duration) *crowded {
	t.Helper()
	c := &crowded{files: &descriptors{FS: fsys}, workers: newGroup()}
	c.harness = &harness{t: t, fs: c.files, opts: StoreOptions{
		FS: c.files, Dir: "/data", CheckpointInterval: time.Millisecond, MaxOpenFiles: files.MinLimit, SyncInterval: syncEvery,
	}}
	c.start()
	for p := range logs {
		l, err := c.store.Open(testID, "events", model.PartitionID(p), Config{SegmentBytes: 600, IndexIntervalBytes: 1, FileDeleteDelayMs: 5})
		require.NoError(t, err)
		c.logs = append(c.logs, l)
	}
	return c
}

// expected is the value at an offset of a log, so that what comes from another file shows.
func (c *crowded) expected(p int, off model.Offset) string {
	return fmt.Sprintf("%d of log %d", off, p)
}

func (c *crowded) append(p int) error {
	l := c.logs[p]
	b := record.NewBuilder(256)
	off := l.LogEnd() // each log has one appender
	for range 2 {
		b.Add(int64(off), fmt.Appendf(nil, "key %d", off%7), []byte(c.expected(p, off)), nil)
		off++
	}
	out, err := b.Finish(record.None)
	if err == nil {
		_, err = l.Append(out, 0, int64(off))
	}
	return err
}

// read reads from an offset and checks every record.
func (c *crowded) read(p int, from model.Offset) error {
	data, err := c.logs[p].Read(nil, from, allOffsets, 500)
	if model.HasCode(err, model.OffsetOutOfRange) {
		return nil // deleted meanwhile
	}
	d, it := record.NewDecompressor(1<<20), record.Iterator{}
	for err == nil && len(data) > 0 {
		var b record.Batch
		if b, data, err = record.ParseBatch(data); err != nil {
			return err
		}
		if err = b.VerifyCRC(); err == nil {
			err = b.Records(d, &it)
		}
		for err == nil && it.Next() {
			r := it.Record()
			if want := c.expected(p, r.Offset); string(r.Value) != want {
				return fmt.Errorf("at offset %d of log %d is %q", r.Offset, p, r.Value)
			}
		}
	}
	return err
}

func (c *crowded) run(name string, fn func(rng *rand.Rand, p int) error) {
	c.workers.Go(name, func(ctx context.Context) {
		rng := rand.New(rand.NewPCG(1, uint64(len(name))))
		for ctx.Err() == nil {
			if err := fn(rng, rng.IntN(len(c.logs))); err != nil {
				c.t.Errorf("%s: %v", name, err)
				return
			}
		}
	})
}

func TestTheCapOfOpenFilesHoldsUnderAppendsReadsRetentionAndCompaction(t *testing.T) {
	t.Parallel()
	c := newCrowded(t, fsx.NewMem(), 12, 0)
	somewhere := func(rng *rand.Rand, l *Log) model.Offset {
		start, end := l.LogStart(), l.LogEnd()
		return start + model.Offset(rng.Int64N(int64(end-start)+1))
	}
	for i := range 3 {
		c.run(fmt.Sprint("reader", i), func(rng *rand.Rand, p int) error { return c.read(p, somewhere(rng, c.logs[p])) })
	}
	c.run("seeks", func(rng *rand.Rand, p int) error {
		_, _, _, err := c.logs[p].OffsetForTimestamp(int64(somewhere(rng, c.logs[p])), allOffsets)
		return err
	})
	c.run("deletion", func(_ *rand.Rand, p int) error {
		l := c.logs[p]
		if l.LogEnd()-l.LogStart() < 200 {
			return nil
		}
		return l.AdvanceLogStart(l.LogStart() + 50)
	})
	c.run("compaction", func(_ *rand.Rand, p int) error {
		_, err := c.logs[p].Clean(context.Background(), all(c.logs[p]), 50)
		if model.HasCode(err, model.LeaderUnavailable) { // segments were deleted meanwhile
			return nil
		}
		return err
	})
	for range 150 {
		for p := range c.logs {
			require.NoError(t, c.append(p))
			if p%3 == 0 {
				c.logs[p].RequestSync()
			}
		}
	}
	require.NoError(t, c.workers.Stop(30*time.Second))
	for _, l := range c.logs {
		require.NoError(t, l.Failed())
	}
	stats := c.store.OpenFiles()
	require.Positive(t, stats.Evictions)
	require.NoError(t, c.stop())
	require.LessOrEqual(t, c.files.most, files.MinLimit)
	require.Zero(t, c.files.count())

	c.start()
	for p, l := range c.logs {
		next, err := c.store.Open(testID, "events", model.PartitionID(p), Config{SegmentBytes: 600})
		require.NoError(t, err)
		require.Equal(t, l.LogEnd(), next.LogEnd())
		c.logs[p] = next
		for off := next.LogStart(); off < next.LogEnd(); off++ {
			require.NoError(t, c.read(p, off))
		}
	}
	require.NoError(t, c.stop())
	require.LessOrEqual(t, c.files.most, files.MinLimit)
}

// An eviction syncs what its log has not synced yet. When that fails the log latches, though
// its own sync, on a descriptor opened later, might succeed.
func TestAFailedSyncAtAnEvictionLatchesTheLog(t *testing.T) {
	t.Parallel()
	in := fsx.NewInject(fsx.NewMem(), nil)
	c := newCrowded(t, in, files.MinLimit+1, time.Hour) // nothing is synced until somebody waits
	var hit atomic.Bool
	in.SetHook(func(op fsx.Op) *fsx.Fault {
		if op.Kind == fsx.OpSync && op.Path == "/data/topics/events-0/00000000000000000000.log" && !hit.Swap(true) {
			return &fsx.Fault{Err: syscall.EIO}
		}
		return nil
	})
	for p := range c.logs {
		require.NoError(t, c.append(p))
	}
	require.True(t, hit.Load(), "the first log's file was synced to make room")
	first := c.logs[0]
	require.NoError(t, first.Failed(), "it does not know yet")
	failed := make(chan error, 1)
	first.SetCallbacks(nil, nil, func(err error) { failed <- err })
	first.RequestSync()
	require.ErrorIs(t, <-failed, syscall.EIO)
	require.Zero(t, first.StableEnd())
	waitStable(t, c.logs[1])
	require.NoError(t, c.logs[1].Failed())
	require.Error(t, c.stop())
}

func TestDeletedSegmentsHoldNoDescriptor(t *testing.T) {
	t.Parallel()
	disk := &descriptors{FS: fsx.NewMem()}
	h := newHarness(t, disk, "/data")
	l := h.open(Config{SegmentBytes: 200, IndexIntervalBytes: 1, FileDeleteDelayMs: 3600_000})
	for i := range int64(30) {
		_, err := l.Append(batch(t, record.None, i), 0, 0)
		require.NoError(t, err)
	}
	waitStable(t, l)
	require.Len(t, scan(t, l, 0, 100), 30)
	old := *l.segs.Load()
	before := disk.count()
	require.Greater(t, before, len(old)/2, "reads have opened files")
	require.NoError(t, l.AdvanceLogStart(20))
	gone := old[:len(old)-len(*l.segs.Load())]
	require.Greater(t, len(gone), 5)
	left := disk.count()
	require.LessOrEqual(t, left, before-len(gone))
	for _, seg := range gone { // a reader that loaded the list before
		data, found, err := l.readSegment(nil, seg, seg.base, allOffsets, 100)
		require.NoError(t, err)
		require.True(t, found)
		require.NotEmpty(t, data)
		require.Equal(t, left, disk.count(), "and closes the file behind it")
	}
	require.NoError(t, h.stop())
}

// What lacks a descriptor is tried again, and latches nothing, wherever it comes.
func TestASyncWithoutADescriptorIsPutOff(t *testing.T) {
	t.Parallel()
	in := fsx.NewInject(fsx.NewMem(), nil)
	h := newHarness(t, in, "/data")
	l := h.open(Config{SegmentBytes: 200})
	var refused atomic.Int64
	in.SetHook(func(op fsx.Op) *fsx.Fault {
		if op.Kind == fsx.OpSyncDir && refused.Add(1) <= 5 {
			return &fsx.Fault{Err: syscall.EMFILE}
		}
		return nil
	})
	for i := range int64(6) {
		_, err := l.Append(batch(t, record.None, i), 0, 0)
		require.NoError(t, err)
	}
	waitStable(t, l)
	require.NoError(t, l.Failed())
	require.Greater(t, refused.Load(), int64(5))
	require.NoError(t, h.stop())
	h.start()
	require.Len(t, scan(t, h.open(Config{SegmentBytes: 200}), 0, 1000), 6)
	require.NoError(t, h.stop())
}
