package log

import (
	"path"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/index"
	"tidewire/storage/record"
)

func TestReadsOutsideTheLogNameItsBounds(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	defer h.kill()
	l := h.open(Config{})
	_, err := l.Append(batch(t, record.None, 1, 2, 3), 0, 0)
	require.NoError(t, err)
	for _, off := range []model.Offset{-1, 4} {
		_, err := l.Read(nil, off, allOffsets, 100)
		require.True(t, model.HasCode(err, model.OffsetOutOfRange))
		require.Equal(t, map[string]any{"earliest": int64(0), "latest": int64(3)}, model.AsError(err).Extra)
	}
	for _, x := range []struct{ from, limit model.Offset }{{3, allOffsets}, {2, 2}, {2, 0}, {0, 0}} {
		data, err := l.Read(nil, x.from, x.limit, 100)
		require.NoError(t, err)
		require.Empty(t, data)
	}
	data, err := l.Read(nil, 1, 2, 1)
	require.NoError(t, err)
	require.Len(t, data, int(l.Size()), "the batch that holds the offset comes whole, however small the bound")
}

func TestAppendRefusesWhatDoesNotFitAndChangesNothing(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	defer h.kill()
	l := h.open(Config{MaxMessageBytes: 200})
	good := batch(t, record.None, 1)
	_, err := l.Append(good, 5, 0)
	require.NoError(t, err)
	bad := func(data []byte, epoch model.LeaderEpoch, code model.Code) {
		t.Helper()
		_, err := l.Append(data, epoch, 0)
		require.True(t, model.HasCode(err, code), "%v", err)
		require.EqualValues(t, 1, l.LogEnd())
		require.EqualValues(t, 5, l.LogEndEpoch())
	}
	bad(append(batch(t, record.None, 2), sized(t, 300, 1)...), 5, model.RecordTooLarge)
	bad(nil, 5, model.CorruptBatch)
	bad(append(batch(t, record.None, 2), good[:40]...), 5, model.CorruptBatch)
	bad(good[:len(good)-1], 6, model.CorruptBatch)
	bad(batch(t, record.None, 2), 4, model.Fenced)
	l.SetConfig(Config{MaxMessageBytes: 1000})
	_, err = l.Append(sized(t, 300, 1), 6, 0)
	require.NoError(t, err)
}

func TestEpochsAnswerKIP101(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	defer h.kill()
	l := h.open(Config{})
	e, off := l.EpochEnd(0)
	require.Equal(t, model.NoEpoch, e)
	require.EqualValues(t, -1, off)
	for i, epoch := range []model.LeaderEpoch{2, 2, 5, 9} {
		_, err := l.Append(batch(t, record.None, int64(i)), epoch, 0)
		require.NoError(t, err)
	}
	for _, x := range []struct {
		ask, epoch model.LeaderEpoch
		end        model.Offset
	}{{1, 1, 0}, {2, 2, 2}, {4, 2, 2}, {5, 5, 3}, {8, 5, 3}, {9, 9, 4}, {10, -1, -1}, {-1, -1, -1}} {
		e, off := l.EpochEnd(x.ask)
		require.Equal(t, x.epoch, e, "asked %d", x.ask)
		require.Equal(t, x.end, off, "asked %d", x.ask)
	}
}

func TestSegmentsRollByTimestampsOfRecords(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	defer h.kill()
	l := h.open(Config{SegmentMs: 100})
	for i, x := range []struct {
		ts       int64
		segments int
	}{{1000, 1}, {1100, 1}, {1101, 2}, {900, 2}, {1202, 3}} {
		_, err := l.Append(batch(t, record.None, x.ts), 0, 0)
		require.NoError(t, err)
		require.Equal(t, x.segments, l.Segments(), "append %d", i)
	}
}

func TestFullIndexRollsTheSegment(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	defer h.kill()
	l := h.open(Config{IndexIntervalBytes: 1, SegmentIndexBytes: 60})
	for i := range int64(40) {
		_, err := l.Append(batch(t, record.None, i), 0, 0)
		require.NoError(t, err)
	}
	require.Greater(t, l.Segments(), 5)
	for _, s := range *l.segs.Load() {
		require.LessOrEqual(t, s.off.Len()*index.Offset.EntrySize(), 60)
		require.LessOrEqual(t, s.tim.Len()*index.Time.EntrySize(), 60)
	}
}

func TestLogAppendTimeIsStampedOnEveryRecord(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	defer h.kill()
	l := h.open(Config{LogAppendTime: true})
	a, err := l.Append(batch(t, record.Zstd, 1, 2), 0, 777)
	require.NoError(t, err)
	require.EqualValues(t, 777, a.LogAppendTime)
	require.EqualValues(t, 777, a.MaxTimestamp)
	for _, r := range scan(t, l, 0, 1000) {
		require.EqualValues(t, 777, r.ts)
	}
}

// With a slow disk the stable end waits for it, one sync serves all that wait,
// and what is appended in onSyncEnd is covered by the sync that was asked for.
func TestOneSyncServesAllWaitersAndCallbacksComeInOrder(t *testing.T) {
	t.Parallel()
	in := fsx.NewInject(fsx.NewMem(), nil)
	h := newHarness(t, in, "/data")
	l := h.open(Config{})
	entered, gate := make(chan struct{}, 16), make(chan struct{})
	slow := &slowSyncs{FS: in, entered: entered, gate: gate}
	l.activeLocked().f = &slowFile{l.activeLocked().f, slow}

	events := make(chan string, 64)
	merged := batch(t, record.None, 9)
	l.SetCallbacks(func(end model.Offset) {
		events <- "stable"
	}, func() {
		if l.LogEnd() == 3 {
			_, err := l.Append(merged, 0, 0)
			require.NoError(t, err)
			l.RequestSync()
		}
		events <- "end"
	}, nil)
	add := func() {
		_, err := l.Append(batch(t, record.None, 1), 0, 0)
		require.NoError(t, err)
		l.RequestSync()
	}
	add()
	<-entered
	require.True(t, l.Syncing())
	require.EqualValues(t, 0, l.StableEnd())
	add()
	add()
	l.RequestSync()
	gate <- struct{}{} // the first sync covers the first record only
	require.Equal(t, "stable", <-events)
	require.Equal(t, "end", <-events)
	require.EqualValues(t, 1, l.StableEnd())
	<-entered
	gate <- struct{}{} // the second covers the other two and the merged one
	require.Equal(t, "stable", <-events)
	require.Equal(t, "end", <-events)
	require.EqualValues(t, 4, l.StableEnd())
	close(gate)
	require.NoError(t, h.stop())
	require.LessOrEqual(t, len(entered), 2)
}

type slowSyncs struct {
	fsx.FS
	entered chan struct{}
	gate    chan struct{}
}

type slowFile struct {
	logFile
	s *slowSyncs
}

func (f *slowFile) SyncData() error {
	f.s.entered <- struct{}{}
	<-f.s.gate
	return f.logFile.SyncData()
}

func TestDirtyLogIsSyncedWithoutAWaiter(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	l := h.open(Config{})
	stable := make(chan model.Offset, 16)
	l.SetCallbacks(func(end model.Offset) { stable <- end }, nil, nil)
	_, err := l.Append(batch(t, record.None, 1), 0, 0)
	require.NoError(t, err)
	select {
	case end := <-stable:
		require.EqualValues(t, 1, end)
	case <-time.After(10 * time.Second):
		t.Fatal("not synced")
	}
	require.NoError(t, h.stop())
}

func TestWriteCachingMovesTheStableEndButNotTheRecoveryPoint(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewCrashMem(), "/data")
	l := h.open(Config{WriteCaching: true})
	_, err := l.Append(batch(t, record.None, 1), 0, 0)
	require.NoError(t, err)
	require.EqualValues(t, 1, l.StableEnd())
	require.NoError(t, h.store.Checkpoint())
	require.EqualValues(t, 0, h.store.cp[cpRecovery].Points[l.key])
	l.sync()
	require.NoError(t, h.store.Checkpoint())
	require.EqualValues(t, 1, h.store.cp[cpRecovery].Points[l.key])
	h.kill()
}

func TestHighWatermarkIsKeptWithinTheLog(t *testing.T) {
	t.Parallel()
	mem := fsx.NewMem()
	h := newHarness(t, mem, "/data")
	l := h.open(Config{})
	for i := range int64(3) {
		_, err := l.Append(batch(t, record.None, i), 0, 0)
		require.NoError(t, err)
	}
	l.SetHighWatermark(2)
	require.NoError(t, h.stop())
	h.start()
	l = h.open(Config{})
	require.EqualValues(t, 2, l.HighWatermark())
	l.SetHighWatermark(99)
	require.NoError(t, h.stop())
	h.start()
	require.EqualValues(t, 3, h.open(Config{}).HighWatermark())
	require.NoError(t, h.stop())
}

func TestUnchangedCheckpointsAreNotWrittenAgain(t *testing.T) {
	t.Parallel()
	in := fsx.NewInject(fsx.NewMem(), nil)
	h := newHarness(t, in, "/data")
	h.open(Config{})
	require.NoError(t, h.store.Checkpoint())
	n := in.Ops()
	require.NoError(t, h.store.Checkpoint())
	require.Equal(t, n, in.Ops())
	require.NoError(t, h.stop())
}

// A log that was not opened since an unclean stop keeps the marker away, or its
// recovery would be skipped next time.
func TestStopIsNotCleanWhileALogIsUnrecovered(t *testing.T) {
	t.Parallel()
	mem := fsx.NewMem()
	h, cfg, want := filled(t, mem, 20, killed)
	h.start()
	require.NoError(t, h.stop())
	h.start()
	require.False(t, h.store.found.clean)
	require.Equal(t, want, scan(t, h.open(cfg), 0, 1000))
	require.NoError(t, h.stop())
	h.start()
	require.True(t, h.store.found.clean)
	require.NoError(t, h.stop())
}

func TestReadersRunBesideAppendsAndRolls(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	l := h.open(Config{SegmentBytes: 3000, IndexIntervalBytes: 200})
	const n = 2000
	done := make(chan error, 3)
	for r := range 3 {
		h.group.Go("reader", func(ctxT) {
			d, it := record.NewDecompressor(1<<20), record.Iterator{}
			var buf []byte
			for next := model.Offset(0); next < n; {
				var err error
				if buf, err = l.Read(buf[:0], next, allOffsets, 700*(r+1)); err != nil {
					done <- err
					return
				}
				for rest := buf; len(rest) > 0; {
					var b record.Batch
					if b, rest, err = record.ParseBatch(rest); err == nil {
						err = firstErr(b.VerifyCRC(), b.Records(d, &it))
					}
					if err != nil || b.Header.BaseOffset != next {
						done <- model.Errorf(model.Internal, "at %d: %v %d", next, err, b.Header.BaseOffset)
						return
					}
					next = b.Header.NextOffset()
				}
				if _, _, _, err := l.OffsetForTimestamp(int64(next)/2, allOffsets); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		})
	}
	for i := range int64(n) {
		_, err := l.Append(batch(t, record.None, i), 0, 0)
		require.NoError(t, err)
	}
	for range 3 {
		require.NoError(t, <-done)
	}
	require.NoError(t, h.stop())
}

// Starts trust what lies below the recovery point without reading it, so a sync
// must cover the indexes of sealed segments too.
func TestSealedIndexesAreDurableBelowTheStableEnd(t *testing.T) {
	t.Parallel()
	mem := fsx.NewCrashMem()
	filled(t, mem, 80, killed)
	infos, err := mem.ReadDir(logDir)
	require.NoError(t, err)
	last, sealed := lastSegment(t, mem, logSuffix), 0
	for seed := range uint64(8) {
		after := mem.Crash(seed)
		for _, i := range infos {
			name := logDir + "/" + i.Name
			if ext := path.Ext(name); ext != indexSuffix && ext != timeIndexSuffix || name[:len(name)-len(ext)] == last[:len(last)-len(logSuffix)] {
				continue
			}
			want, err := fsx.ReadFile(mem, name, 1<<20)
			require.NoError(t, err)
			got, err := fsx.ReadFile(after, name, 1<<20)
			require.NoError(t, err)
			require.Equal(t, want, got, name)
			sealed++
		}
	}
	require.NotZero(t, sealed)
}

func TestAStableEndThatWriteCachingMovedIsToldWithTheNextSync(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	require.NoError(t, h.stop())
	h.opts.SyncInterval = time.Hour
	h.start()
	l := h.open(Config{})
	told := make(chan model.Offset, 4)
	l.SetCallbacks(func(end model.Offset) { told <- end }, nil, nil)
	_, err := l.Append(batch(t, record.None, 1), 0, 0)
	require.NoError(t, err)
	l.SetConfig(Config{WriteCaching: true})
	require.EqualValues(t, 1, l.StableEnd(), "moved before any sync")
	h.store.sched.Enqueue(l.member)
	select {
	case end := <-told:
		require.EqualValues(t, 1, end)
	case <-time.After(10 * time.Second):
		t.Fatal("who waits for the stable end was not told")
	}
	require.NoError(t, h.stop())
}
