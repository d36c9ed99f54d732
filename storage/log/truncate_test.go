package log

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/internal/testkit/racing"
	"tidewire/storage/record"
)

// longLog is an open log of n batches of two records over several segments; the epoch
// grows every ten batches.
func longLog(t *testing.T, fsys fsx.FS, n int) (*harness, *Log, []rec) {
	t.Helper()
	h := newHarness(t, fsys, "/data")
	l := h.open(smallSegments)
	var want []rec
	for i := range int64(n) {
		_, err := l.Append(batch(t, record.None, i*10, i*10+3), model.LeaderEpoch(i/10), 0)
		require.NoError(t, err)
		for _, ts := range []int64{i * 10, i*10 + 3} {
			want = append(want, rec{model.Offset(len(want)), ts, fmt.Sprint("v", ts)})
		}
	}
	waitStable(t, l)
	return h, l, want
}

var smallSegments = Config{SegmentBytes: 1500, IndexIntervalBytes: 200}

// checkWhole compares every read, seek and epoch of a log with what it should hold.
func checkWhole(t *testing.T, l *Log, want []rec) {
	t.Helper()
	require.EqualValues(t, len(want), l.LogEnd())
	require.Equal(t, want, append([]rec{}, scan(t, l, 0, 700)...))
	for i := range want {
		checkSeek(t, l, want, want[i].ts, allOffsets)
		data, err := l.Read(nil, model.Offset(i), allOffsets, 1)
		require.NoError(t, err)
		b, _, err := record.ParseBatch(data)
		require.NoError(t, err)
		require.True(t, b.Header.BaseOffset <= model.Offset(i) && model.Offset(i) < b.Header.NextOffset())
	}
	for e := model.LeaderEpoch(0); int(e)*20 < len(want); e++ {
		got, end := l.EpochEnd(e)
		require.Equal(t, e, got)
		require.EqualValues(t, min(int(e)*20+20, len(want)), end)
	}
	require.EqualValues(t, (len(want)+19)/20-1, l.LogEndEpoch())
}

func TestTruncationKeepsWholeBatchesBelowTheOffset(t *testing.T) {
	t.Parallel()
	for _, off := range []model.Offset{119, 118, 101, 100, 60, 37, 36, 2, 1} {
		mem := fsx.NewMem()
		h, l, want := longLog(t, mem, 60)
		l.SetHighWatermark(90)
		require.NoError(t, h.store.Checkpoint())
		require.Greater(t, l.Segments(), 3)
		require.NoError(t, l.TruncateTo(off))
		keep := off &^ 1
		if keep == 0 {
			require.EqualValues(t, 0, l.LogEnd())
			require.NoError(t, h.stop())
			continue
		}
		checkWhole(t, l, want[:keep])
		require.EqualValues(t, keep, l.StableEnd())
		require.EqualValues(t, min(90, keep), l.HighWatermark())
		require.NoError(t, l.TruncateTo(keep), "at the log end nothing happens")
		require.NoError(t, l.TruncateTo(1000))
		checkWhole(t, l, want[:keep])
		for i := int64(keep) / 2; i < 60; i++ { // the same again
			_, err := l.Append(batch(t, record.None, i*10, i*10+3), model.LeaderEpoch(i/10), 0)
			require.NoError(t, err)
		}
		waitStable(t, l)
		checkWhole(t, l, want)
		stop := []func(*harness){cleanStop, checkpointed, killed}[off%3]
		stop(h)
		h.start()
		checkWhole(t, h.open(smallSegments), want)
		require.NoError(t, h.stop())
	}
}

func TestFullTruncationBeginsAnew(t *testing.T) {
	t.Parallel()
	for _, off := range []model.Offset{0, 50, 120, 5000} {
		mem := fsx.NewMem()
		h, l, _ := longLog(t, mem, 60)
		require.NoError(t, h.store.Checkpoint())
		require.NoError(t, l.TruncateFullyAndStartAt(off))
		empty := func() {
			t.Helper()
			require.Equal(t, []model.Offset{off, off, off, off},
				[]model.Offset{l.LogStart(), l.HighWatermark(), l.StableEnd(), l.LogEnd()})
			require.Equal(t, model.NoEpoch, l.LogEndEpoch())
			require.Equal(t, 1, l.Segments())
			_, err := l.Read(nil, off+1, allOffsets, 10)
			require.True(t, model.HasCode(err, model.OffsetOutOfRange))
		}
		empty()
		for _, stop := range []func(*harness){killed, checkpointed, cleanStop} {
			stop(h)
			h.start()
			l = h.open(smallSegments)
			empty()
		}
		_, err := l.AppendReplica(at(7, off, off+1, off, off+1), false, 0)
		require.NoError(t, err)
		waitStable(t, l)
		checkpointed(h)
		h.start()
		l = h.open(smallSegments)
		require.Equal(t, []model.Offset{off, off + 1}, offsetsOf(scan(t, l, off, 100)))
		require.NoError(t, h.stop())
	}
	h := newHarness(t, fsx.NewMem(), "/data")
	require.True(t, model.HasCode(h.open(Config{}).TruncateFullyAndStartAt(-1), model.InvalidArgument))
	require.NoError(t, h.stop())
}

func TestTruncationBelowTheLogStartIsAFullOne(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ start, to, end model.Offset }{{51, 30, 30}, {51, 51, 51}, {50, 51, 50}, {50, 50, 50}} {
		mem := fsx.NewMem()
		h, l, _ := longLog(t, mem, 60)
		l.logStart.Store(int64(x.start))
		l.SetHighWatermark(100)
		require.NoError(t, h.store.Checkpoint())
		require.NoError(t, l.TruncateTo(x.to))
		for range 2 {
			require.Equal(t, x.end, l.LogEnd(), "%+v", x)
			require.Equal(t, x.end, l.LogStart(), "%+v", x)
			_, err := l.AppendReplica(at(9, l.LogEnd(), l.LogEnd(), l.LogEnd()), false, 0)
			require.NoError(t, err)
			waitStable(t, l)
			require.NoError(t, l.TruncateTo(l.LogEnd()-1))
			h.kill() // the log start on disk must not hide what was appended
			h.start()
			l = h.open(smallSegments)
		}
		require.NoError(t, h.stop())
	}
}

// A power cut at any moment of a truncation leaves a log that opens, holds a prefix of
// what was there and nothing else, and can be truncated again.
func TestNoPowerCutInATruncationSpoilsTheLog(t *testing.T) {
	t.Parallel()
	racing.SkipSequential(t)
	type how struct {
		full, compacted bool
		to              model.Offset
	}
	ends := map[string]int{}
	for _, x := range []how{{to: 41}, {to: 110}, {full: true, to: 60}, {full: true, to: 500}, {compacted: true, to: 41}, {compacted: true, full: true, to: 500}} {
		for n := 1; ; n++ {
			mem := fsx.NewCrashMem()
			in := fsx.NewInject(mem, nil)
			h, l, want := longLog(t, in, 60)
			if x.compacted {
				require.NoError(t, l.MarkCompacted())
			}
			l.SetHighWatermark(100)
			require.NoError(t, h.store.Checkpoint())
			ops := 0
			var crashes []*fsx.Mem
			in.SetHook(func(fsx.Op) *fsx.Fault {
				if ops++; ops == n {
					for seed := range uint64(6) {
						crashes = append(crashes, mem.Crash(seed))
					}
				}
				return nil
			})
			var err error
			if x.full {
				err = l.TruncateFullyAndStartAt(x.to)
			} else {
				err = l.TruncateTo(x.to)
			}
			require.NoError(t, err)
			done := ops < n
			if done {
				crashes = append(crashes, mem.Crash(0), mem.Crash(1), mem.Crash(2))
			}
			in.SetHook(nil)
			h.kill()
			for _, c := range crashes {
				h := newHarness(t, c, "/data")
				l, err := h.store.Open(testID, "events", 0, smallSegments)
				require.NoError(t, err, "%+v, operation %d", x, n)
				end := l.LogEnd()
				switch {
				case done:
					require.Equal(t, map[bool]model.Offset{true: x.to, false: x.to &^ 1}[x.full], end)
				case x.full && end == x.to:
					ends["begun anew"]++
				default:
					checkWhole(t, l, want[:end])
					ends[map[bool]string{true: "all there", false: "a part"}[int(end) == len(want)]]++
				}
				require.NoError(t, l.TruncateTo(min(end, 20)))
				require.NoError(t, h.stop())
			}
			if done {
				break
			}
		}
	}
	for _, k := range []string{"begun anew", "all there", "a part"} {
		require.NotZero(t, ends[k], k)
	}
}

func TestAFailedTruncationLatchesTheLog(t *testing.T) {
	t.Parallel()
	latched := 0
	for n := 1; ; n++ {
		mem := fsx.NewCrashMem()
		in := fsx.NewInject(mem, nil)
		h, l, want := longLog(t, in, 40)
		require.NoError(t, h.store.Checkpoint())
		start := in.Ops()
		in.SetHook(fsx.FailNth(start+n, syscall.EIO))
		err := l.TruncateTo(33)
		failed := in.Ops()-start >= n
		in.SetHook(nil)
		if !failed {
			require.NoError(t, err)
			require.NoError(t, h.stop())
			break
		}
		if err == nil { // a read of an index, which was then rebuilt
			checkWhole(t, l, want[:32])
			require.NoError(t, h.stop())
			continue
		}
		require.True(t, model.HasCode(err, model.StorageError), "%v", err)
		if l.Failed() != nil {
			latched++
			_, err = l.Append(batch(t, record.None, 1), 9, 0)
			require.True(t, model.HasCode(err, model.StorageError))
			require.Error(t, h.stop())
		} else {
			require.NoError(t, h.stop())
		}
		h.fs = mem
		h.start()
		l = h.open(smallSegments)
		checkWhole(t, l, want[:l.LogEnd()])
		require.NoError(t, h.stop())
	}
	require.Greater(t, latched, 5)
}

// Readers beside truncations and appends see whole batches of the log before or after,
// never bytes of both.
func TestReadersRunBesideTruncations(t *testing.T) {
	t.Parallel()
	h, l, _ := longLog(t, fsx.NewMem(), 60)
	stop := make(chan struct{})
	done := make(chan error, 3)
	for range 3 {
		h.group.Go("reader", func(ctxT) {
			d, it := record.NewDecompressor(1<<20), record.Iterator{}
			for from := model.Offset(0); ; from = (from + 7) % 120 {
				select {
				case <-stop:
					done <- nil
					return
				default:
				}
				data, err := l.Read(nil, from, allOffsets, 900)
				if model.HasCode(err, model.OffsetOutOfRange) {
					continue
				}
				for err == nil && len(data) > 0 {
					var b record.Batch
					if b, data, err = record.ParseBatch(data); err == nil {
						err = firstErr(b.VerifyCRC(), b.Records(d, &it))
					}
				}
				if err == nil {
					_, _, _, err = l.OffsetForTimestamp(int64(from)*5, allOffsets)
				}
				if err != nil {
					done <- err
					return
				}
			}
		})
	}
	for i := range int64(150) {
		off := l.LogEnd() - model.Offset(i*37%100)
		require.NoError(t, l.TruncateTo(max(off, 3)))
		for range 30 {
			_, err := l.Append(batch(t, record.None, i, i+3), model.LeaderEpoch(10+i), 0)
			require.NoError(t, err)
		}
		l.RequestSync()
	}
	close(stop)
	for range 3 {
		require.NoError(t, <-done)
	}
	waitStable(t, l)
	require.NoError(t, h.stop())
}

func TestTruncationIsRefusedOnceTheStoreCloses(t *testing.T) {
	t.Parallel()
	h, l, _ := longLog(t, fsx.NewMem(), 10)
	require.NoError(t, h.stop())
	require.True(t, model.HasCode(l.TruncateTo(3), model.LeaderUnavailable))
	require.True(t, model.HasCode(l.TruncateFullyAndStartAt(3), model.LeaderUnavailable))
}

func TestTruncationInACompactedLogEndsWhereTheLastKeptBatchDoes(t *testing.T) {
	t.Parallel()
	for off, want := range map[model.Offset]model.Offset{109: 26, 100: 26, 60: 26, 25: 25, 24: 13, 20: 13, 15: 13, 13: 13, 12: 8, 9: 8, 8: 8, 7: 0, 3: 0, 1: 0} {
		for _, segmentBytes := range []int64{1 << 20, 60} {
			h := newHarness(t, fsx.NewMem(), "/data")
			cfg := Config{SegmentBytes: segmentBytes, IndexIntervalBytes: 1}
			l := h.open(cfg)
			batches, offs := compactedRun()
			_, err := l.AppendReplica(batches, true, 0)
			require.NoError(t, err)
			waitStable(t, l)
			require.NoError(t, h.store.Checkpoint())
			require.NoError(t, l.TruncateTo(off))
			for _, stop := range []func(*harness){checkpointed, cleanStop, cleanStop} {
				require.Equal(t, want, l.LogEnd(), "truncated to %d", off)
				i, _ := slices.BinarySearch(offs, want)
				require.Equal(t, offs[:i], append([]model.Offset{}, offsetsOf(scan(t, l, 0, 100))...))
				stop(h)
				h.start()
				l = h.open(cfg)
			}
			require.NoError(t, h.stop())
		}
	}
}

// The epochs of two replicas lead to where their logs part (KIP-279).
func TestCutForFindsWhereTwoLogsPart(t *testing.T) {
	t.Parallel()
	type run struct {
		epoch model.LeaderEpoch
		n     int
	}
	for name, x := range map[string]struct {
		leader, follower []run
		end              model.Offset
	}{
		"same":                   {[]run{{1, 3}}, []run{{1, 3}}, 3},
		"leader ahead":           {[]run{{1, 3}, {2, 2}}, []run{{1, 3}}, 3},
		"follower ahead":         {[]run{{1, 3}}, []run{{1, 5}}, 3},
		"epoch the leader lacks": {[]run{{1, 3}, {4, 2}}, []run{{1, 3}, {2, 1}, {3, 1}}, 3},
		"fast leader changes":    {[]run{{0, 2}, {2, 3}}, []run{{0, 3}, {1, 4}}, 2},
		"leader's log is empty":  {nil, []run{{1, 3}}, 0},
		"follower's is":          {[]run{{1, 3}}, nil, 0},
		"nothing in common":      {[]run{{5, 3}}, []run{{1, 3}, {2, 4}}, 0},
	} {
		h := newHarness(t, fsx.NewMem(), "/data")
		open := func(p model.PartitionID, runs []run) *Log {
			l, err := h.store.Open(testID, "events", p, Config{})
			require.NoError(t, err)
			for _, r := range runs {
				for range r.n {
					_, err := l.Append(batch(t, record.None, 1), r.epoch, 0)
					require.NoError(t, err)
				}
			}
			return l
		}
		leader, follower := open(0, x.leader), open(1, x.follower)
		for agreed, rounds := false, 0; !agreed; rounds++ {
			require.Less(t, rounds, 10, name)
			e, end := leader.EpochEnd(follower.LogEndEpoch())
			if e == model.NoEpoch {
				end = leader.LogEnd()
			}
			var to model.Offset
			to, agreed = follower.CutFor(e, end)
			if len(x.follower) == 0 {
				to, agreed = 0, true
			}
			require.NoError(t, follower.TruncateTo(to))
		}
		require.Equal(t, x.end, follower.LogEnd(), name)
		require.NoError(t, h.stop())
	}
}

// A sync that runs when a truncation comes must not move the stable end over the new log
// end, nor find its files closed.
func TestTruncationWaitsForTheSyncThatRuns(t *testing.T) {
	t.Parallel()
	mem := fsx.NewMem()
	h, l, want := longLog(t, mem, 30)
	entered, gate := make(chan struct{}, 16), make(chan struct{})
	slow := &slowSyncs{FS: mem, entered: entered, gate: gate}
	_, err := l.Append(batch(t, record.None, 1), 9, 0)
	require.NoError(t, err)
	l.activeLocked().f = &slowFile{l.activeLocked().f, slow}
	l.RequestSync()
	<-entered
	done := make(chan error, 1)
	h.group.Go("truncate", func(ctxT) { done <- l.TruncateTo(20) })
	// It has begun once appends are refused; only then may the sync end.
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.cutting || len(done) > 0
	}, 10*time.Second, time.Microsecond)
	_, err = l.Append(batch(t, record.None, 1), 9, 0)
	require.True(t, model.HasCode(err, model.LeaderUnavailable), "%v", err)
	close(gate)
	require.NoError(t, <-done)
	h.store.sched.WaitRunning(l.member)
	require.NoError(t, l.Failed())
	require.LessOrEqual(t, l.StableEnd(), l.LogEnd())
	require.LessOrEqual(t, l.synced.Load(), int64(l.LogEnd()))
	checkWhole(t, l, want[:20])
	require.NoError(t, h.stop())
}

// hookedReads runs before once, ahead of the nth read.
type hookedReads struct {
	logFile
	n      int
	before func()
}

func (f *hookedReads) ReadAt(b []byte, off int64) (int, error) {
	if f.n--; f.n == 0 {
		f.before()
	}
	return f.logFile.ReadAt(b, off)
}

func TestAReadThatATruncationComesIntoIsRepeated(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 2; n++ {
		for _, seek := range []bool{false, true} {
			h := newHarness(t, fsx.NewMem(), "/data")
			l := h.open(Config{})
			for i := range int64(10) {
				_, err := l.Append(batch(t, record.None, i*10, i*10+3), 0, 0)
				require.NoError(t, err)
			}
			waitStable(t, l)
			cut := func() {
				require.NoError(t, l.TruncateTo(5))
				_, err := l.Append(sized(t, 333, 77), 1, 0)
				require.NoError(t, err)
				_, err = l.Append(batch(t, record.Gzip, 78, 79, 80), 1, 0)
				require.NoError(t, err)
			}
			l.activeLocked().f = &hookedReads{logFile: l.activeLocked().f, n: n, before: cut}
			if seek {
				off, ts, found, err := l.OffsetForTimestamp(60, allOffsets)
				require.NoError(t, err)
				if l.cuts.Load() > 0 {
					require.Equal(t, []any{model.Offset(4), int64(77), true}, []any{off, ts, found}, "not the 12 and 60 of before")
				}
			} else {
				data, err := l.Read(nil, 6, allOffsets, 1000)
				require.NoError(t, err)
				require.EqualValues(t, 1, l.cuts.Load())
				b, rest, err := record.ParseBatch(data)
				require.NoError(t, err)
				require.NoError(t, b.VerifyCRC())
				require.Empty(t, rest)
				require.EqualValues(t, 5, b.Header.BaseOffset)
				require.EqualValues(t, 1, b.Header.LeaderEpoch)
			}
			require.NoError(t, h.stop())
		}
	}
}
