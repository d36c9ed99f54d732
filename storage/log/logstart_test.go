package log

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// oneEach appends n records, each in a segment of its own, with epoch i/10.
func oneEach(t tb, l *Log, n int) {
	t.Helper()
	for i := range n {
		_, err := l.Append(sized(t, 300, int64(1000+i)), model.LeaderEpoch(i/10), int64(1000+i))
		require.NoError(t, err)
	}
	waitStable(t, l)
}

var tiny = Config{SegmentBytes: 400}

// filesOf lists a log's folder by suffix.
func filesOf(t tb, fsys fsx.FS, suffix string) []string {
	t.Helper()
	entries, err := fsys.ReadDir("/data/topics/events-0")
	require.NoError(t, err)
	var out []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name, suffix) {
			out = append(out, e.Name)
		}
	}
	return out
}

func TestALogStartDropsTheSegmentsBelowAndKeepsTheEpochInForce(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	l := h.open(tiny)
	oneEach(t, l, 30)
	require.Equal(t, 30, l.Segments())
	moves := []StartMove{{Log: l, To: 15}, {Log: l, To: 31}, {Log: l, To: 7}, {Log: l, To: -5}}
	h.store.AdvanceLogStarts(moves)
	require.NoError(t, moves[0].Err)
	require.Equal(t, 15, moves[0].Segments)
	require.Positive(t, moves[0].Bytes)
	require.True(t, model.HasCode(moves[1].Err, model.OffsetOutOfRange))
	require.EqualValues(t, 30, model.AsError(moves[1].Err).Extra["latest"])
	for _, m := range moves {
		require.EqualValues(t, 15, m.Start, "a lower one changes nothing")
	}
	require.NoError(t, moves[2].Err)
	require.NoError(t, moves[3].Err)
	require.Equal(t, 15, l.Segments())
	require.GreaterOrEqual(t, l.HighWatermark(), l.LogStart())
	e, end := l.EpochEnd(1)
	require.EqualValues(t, 1, e)
	require.EqualValues(t, 20, end)
	e, end = l.EpochEnd(0)
	require.EqualValues(t, 0, e, "below the first known epoch")
	require.EqualValues(t, 15, end)
	require.Len(t, filesOf(t, h.fs, ".log"+deletedSuffix), 15)
	require.Len(t, filesOf(t, h.fs, ".index"+deletedSuffix), 15)

	for _, restart := range []func(){func() { require.NoError(t, h.stop()) }, h.kill} {
		restart()
		h.start()
		l = h.open(tiny)
		require.EqualValues(t, 15, l.LogStart())
		require.EqualValues(t, 30, l.LogEnd())
		require.Len(t, scan(t, l, 15, 1000), 15)
		require.Empty(t, filesOf(t, h.fs, deletedSuffix), "what was left over is removed at the start")
		e, end = l.EpochEnd(1)
		require.EqualValues(t, 1, e)
		require.EqualValues(t, 20, end)
	}
	h.kill()
}

func TestALogStartAtTheLogEndRollsTheActiveSegment(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	l := h.open(Config{})
	for i := range 12 {
		_, err := l.Append(batch(t, record.None, int64(i)), model.LeaderEpoch(i), 0)
		require.NoError(t, err)
	}
	waitStable(t, l)
	require.NoError(t, l.AdvanceLogStart(12))
	require.Equal(t, 1, l.Segments())
	require.Zero(t, l.Size())
	require.EqualValues(t, 11, l.LogEndEpoch(), "an empty log knows its epoch")
	require.NoError(t, l.AdvanceLogStart(12), "again")
	h.kill()
	h.start()
	l = h.open(Config{})
	require.EqualValues(t, 12, l.LogStart())
	require.EqualValues(t, 12, l.LogEnd())
	a, err := l.Append(batch(t, record.None, 7), 20, 0)
	require.NoError(t, err)
	require.EqualValues(t, 12, a.First, "no offset is given out twice")
	require.NoError(t, h.stop(), "with an epoch file that reads")
	h.start()
	l = h.open(Config{})
	require.EqualValues(t, 20, l.LogEndEpoch())
	require.Len(t, scan(t, l, 12, 1000), 1)
	h.kill()
}

func TestAnEmptyLogKeepsTheEpochOfItsFileThroughARestart(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	l := h.open(Config{})
	_, err := l.Append(batch(t, record.None, 1), 9, 0)
	require.NoError(t, err)
	waitStable(t, l)
	require.NoError(t, l.AdvanceLogStart(1))
	require.NoError(t, h.store.Checkpoint())
	h.kill()
	h.start()
	l = h.open(Config{})
	require.EqualValues(t, 9, l.LogEndEpoch())
	_, err = l.Append(batch(t, record.None, 1), 8, 0)
	require.True(t, model.HasCode(err, model.Fenced), "%v", err)
	h.kill()
}

func TestDroppedSegmentsAreRemovedAfterTheDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, fsx.NewMem(), "/data")
		cfg := tiny
		cfg.FileDeleteDelayMs = 5000
		l := h.open(cfg)
		oneEach(t, l, 10)
		require.NoError(t, l.AdvanceLogStart(4))
		time.Sleep(4 * time.Second)
		cfg.FileDeleteDelayMs = -1
		l.SetConfig(cfg)
		require.NoError(t, l.AdvanceLogStart(6))
		synctest.Wait()
		require.Len(t, filesOf(t, h.fs, ".log"+deletedSuffix), 4, "without a delay they go at once, the others wait")
		time.Sleep(1001 * time.Millisecond)
		synctest.Wait()
		require.Empty(t, filesOf(t, h.fs, deletedSuffix))
		require.Len(t, filesOf(t, h.fs, ".log"), 4)
		require.Len(t, scan(t, l, 6, 1000), 4)
		h.kill()
	})
}

// A reader that has a segment in hand ends with its records, or learns that its offset is
// out of range; that its file has another name or is gone is no fault of the storage.
func TestReadersOfADroppedSegmentAreNotDisturbed(t *testing.T) {
	t.Parallel()
	for _, delay := range []int64{-1, 60_000} {
		h := newHarness(t, fsx.NewMem(), "/data")
		cfg := tiny
		cfg.FileDeleteDelayMs = delay
		l := h.open(cfg)
		oneEach(t, l, 200)
		require.NoError(t, h.stop())
		h.start()
		l = h.open(cfg) // no file is open now
		done := make(chan error, 4)
		for r := range 4 {
			h.group.Go(fmt.Sprint("reader", r), func(ctxT) {
				for l.LogStart() < 190 {
					from := l.LogStart() + model.Offset(r)
					_, err := l.Read(nil, from, allOffsets, 1000)
					if err == nil {
						_, _, _, err = l.OffsetForTimestamp(1000+int64(from), allOffsets)
					}
					if err != nil && !model.HasCode(err, model.OffsetOutOfRange) {
						done <- err
						return
					}
				}
				done <- nil
			})
		}
		for to := model.Offset(1); to <= 190; to++ {
			require.NoError(t, l.AdvanceLogStart(to))
		}
		for range 4 {
			require.NoError(t, <-done)
		}
		require.NoError(t, l.Failed())
		require.Len(t, filesOf(t, h.fs, ".index"), 10, "no reader made files of a dropped segment anew")
		h.kill()
	}
}

func TestASegmentInHandIsReadToTheEndWhileItsFileWaits(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	l := h.open(tiny)
	oneEach(t, l, 3)
	seg := (*l.segs.Load())[0]
	want, err := l.Read(nil, 0, allOffsets, 1000)
	require.NoError(t, err)
	require.NoError(t, l.AdvanceLogStart(2))
	got, _, err := l.readSegment(nil, seg, 0, allOffsets, 1000)
	require.NoError(t, err)
	require.Equal(t, want, got)
	h.kill()
}

func TestASyncUnderWayPassesOverWhatWasDropped(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	cfg := tiny
	cfg.FileDeleteDelayMs = -1
	l := h.open(cfg)
	for i := range 8 {
		_, err := l.Append(sized(t, 300, int64(i)), 0, 0)
		require.NoError(t, err)
	}
	require.NoError(t, l.AdvanceLogStart(8))
	_, err := l.Append(sized(t, 300, 9), 0, 0)
	require.NoError(t, err)
	waitStable(t, l)
	require.NoError(t, l.Failed())
	require.NoError(t, h.stop())
	h.start()
	require.Len(t, scan(t, h.open(cfg), 8, 1000), 1)
	h.kill()
}

// On a full disk the checkpoint cannot be written: nothing moves, nothing is lost, and it
// works once there is room.
func TestAFullDiskLeavesTheLogStartWhereItIs(t *testing.T) {
	t.Parallel()
	in := fsx.NewInject(fsx.NewMem(), nil)
	h := newHarness(t, in, "/data")
	l := h.open(tiny)
	oneEach(t, l, 5)
	for _, x := range []struct {
		err  error
		code model.Code
	}{{syscall.ENOSPC, model.StorageFull}, {syscall.EIO, model.StorageError}, {syscall.EMFILE, model.LeaderUnavailable}} {
		in.SetHook(fsx.FailIf(func(op fsx.Op) bool { return strings.Contains(op.Path, logStartFile) && op.Kind == fsx.OpOpen }, x.err))
		err := l.AdvanceLogStart(3)
		require.True(t, model.HasCode(err, x.code), "%v", err)
		require.Zero(t, l.LogStart())
		require.Equal(t, 5, l.Segments())
		require.NoError(t, l.Failed())
	}
	in.SetHook(fsx.FailIf(func(op fsx.Op) bool { return op.Kind == fsx.OpOpen && strings.HasSuffix(op.Path, "5.log") }, syscall.ENOSPC))
	require.NoError(t, l.AdvanceLogStart(5), "the active segment stays when no other can be made")
	require.Equal(t, 1, l.Segments())
	_, move, _ := l.Retain(Retention{Ms: -1, Bytes: -1}, 5, 0)
	require.True(t, move, "retention tries again")
	in.SetHook(nil)
	h.kill()
	h.start()
	l = h.open(tiny)
	require.EqualValues(t, 5, l.LogStart())
	require.NoError(t, l.AdvanceLogStart(5))
	require.Zero(t, l.Size())
	h.kill()
}

// Whatever a power cut leaves of a deletion, the log opens without a gap and does not go
// back below the start that was answered; records above it are there.
func TestAPowerCutAtAnyOperationOfALogStartMoveLeavesALogThatOpens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		mem := fsx.NewCrashMem()
		var snap *fsx.Mem
		at, seed := rapid.IntRange(1, 60).Draw(t, "at"), rapid.Uint64().Draw(t, "seed")
		in := fsx.NewInject(mem, nil)
		h := newHarness(t, in, "/data")
		cfg := tiny
		cfg.FileDeleteDelayMs = rapid.SampledFrom([]int64{-1, 60_000}).Draw(t, "delay")
		l := h.open(cfg)
		n := rapid.IntRange(1, 12).Draw(t, "records")
		oneEach(t, l, n)
		if rapid.Bool().Draw(t, "checkpointed") {
			require.NoError(t, h.store.Checkpoint())
		}
		first := model.Offset(rapid.IntRange(0, n).Draw(t, "first"))
		require.NoError(t, l.AdvanceLogStart(first))
		ops := 0
		in.SetHook(func(fsx.Op) *fsx.Fault {
			if ops++; ops == at {
				snap = mem.Crash(seed)
			}
			return nil
		})
		second := model.Offset(rapid.IntRange(int(first), n).Draw(t, "second"))
		require.NoError(t, l.AdvanceLogStart(second))
		answered := first
		in.SetHook(nil)
		if snap == nil {
			snap, answered = mem.Crash(seed), second
		}
		h.kill()
		for range 2 { // recovery too may be cut off
			h.fs = snap
			h.start()
			l = h.open(cfg)
			require.GreaterOrEqual(t, l.LogStart(), answered)
			require.LessOrEqual(t, l.LogStart(), second)
			require.EqualValues(t, n, l.LogEnd())
			require.Len(t, scan(t, l, l.LogStart(), 1000), n-int(l.LogStart()))
			snap = snap.Crash(seed + 1)
			h.kill()
		}
	})
}

func TestALogStartBeyondWhatAPowerCutLeftIsWhereTheLogGoesOn(t *testing.T) {
	t.Parallel()
	mem := fsx.NewCrashMem()
	h := newHarness(t, mem, "/data")
	cfg := tiny
	cfg.WriteCaching = true
	l := h.open(cfg)
	for i := range 6 {
		_, err := l.Append(sized(t, 300, int64(i)), 3, 0)
		require.NoError(t, err)
	}
	// Mid-segment would do too; what matters is that nothing of it is synced.
	require.NoError(t, l.AdvanceLogStart(6))
	for seed := range uint64(20) {
		h.kill()
		h.fs = mem.Crash(seed)
		h.start()
		l = h.open(cfg)
		require.EqualValues(t, 6, l.LogStart())
		require.EqualValues(t, 6, l.LogEnd())
		require.Equal(t, 1, l.Segments())
	}
	h.kill()
}

func TestIdleLogsCostRetentionNoAllocation(t *testing.T) {
	h := newHarness(t, fsx.NewMem(), "/data")
	l := h.open(tiny)
	oneEach(t, l, 50)
	require.NoError(t, h.stop())
	var opened int
	in := fsx.NewInject(h.fs, nil)
	h.fs = in
	h.start()
	l = h.open(tiny)
	in.SetHook(func(op fsx.Op) *fsx.Fault {
		if op.Kind == fsx.OpOpen && strings.Contains(op.Path, "events") {
			opened++
		}
		return nil
	})
	r := Retention{Ms: 1000, Bytes: 1 << 30, FutureMs: 1000}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if _, move, _ := l.Retain(r, 50, 1500); move {
			t.Error("nothing has expired")
		}
	}))
	in.SetHook(nil)
	require.Zero(t, opened)
	h.kill()
}

// What producers sent outlives the deletion of all records (KIP-360): a retry is still
// known, and the next sequence is taken, after any restart.
func TestDeletingEveryRecordKeepsTheProducers(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]func(*harness, *fsx.Mem){
		"clean stop": func(h *harness, _ *fsx.Mem) { cleanStop(h) },
		"killed":     func(h *harness, _ *fsx.Mem) { killed(h) },
		"power cut": func(h *harness, m *fsx.Mem) {
			c := m.Crash(5)
			h.kill()
			h.fs = c
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mem := fsx.NewCrashMem()
			h := newHarness(t, mem, "/data")
			cfg := Config{SegmentBytes: 1 << 20, FileDeleteDelayMs: -1}
			l := h.open(cfg)
			mustAppend(t, l, pbatch(7, 0, 0, 3))
			mustAppend(t, l, pbatch(7, 0, 3, 2))
			waitStable(t, l)
			l.SetHighWatermark(5)
			require.NoError(t, l.AdvanceLogStart(5))
			restart(h, mem)
			h.start()
			l = h.open(cfg)
			require.EqualValues(t, 5, l.LogStart())
			require.EqualValues(t, 5, l.LogEnd())
			again := mustAppend(t, l, pbatch(7, 0, 3, 2))
			require.True(t, again.Duplicate)
			require.EqualValues(t, 3, again.First)
			require.EqualValues(t, 5, mustAppend(t, l, pbatch(7, 0, 5, 1)).First)
			h.kill()
		})
	}
}
