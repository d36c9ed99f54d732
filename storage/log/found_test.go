package log

import (
	"path"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/checkpoint"
	"tidewire/storage/epochs"
	"tidewire/storage/producer"
	"tidewire/storage/record"
)

// What the simulation (test/sim) has found, each as small as it can be.

// oneFailure has the next operation that matches fail.
func oneFailure(cause error, match func(fsx.Op) bool) fsx.Hook {
	done := false
	return func(op fsx.Op) *fsx.Fault {
		if done || !match(op) {
			return nil
		}
		done = true
		return &fsx.Fault{Err: cause, Short: 7}
	}
}

// A segment that was synced as the active one up to its end, where the recovery point then
// stood, had its indexes completed by the roll alone, and power took that.
func TestIndexesOfTheSegmentThatEndsAtTheRecoveryPointAreRebuilt(t *testing.T) {
	t.Parallel()
	mem := fsx.NewMem()
	h := newHarness(t, mem, "/data")
	cfg := Config{SegmentBytes: 1 << 20, IndexIntervalBytes: 1}
	l := h.open(cfg)
	for _, ts := range []int64{10, 20, 500, 30} {
		mustAppend(t, l, batch(t, record.None, ts))
	}
	waitStable(t, l)
	require.NoError(t, h.store.Checkpoint())
	cfg.SegmentBytes = 1
	l.SetConfig(cfg)
	mustAppend(t, l, batch(t, record.None, 40))
	want := scan(t, l, 0, 1000)
	h.kill()
	truncate(t, mem, path.Join(logDir, baseName(0)+timeIndexSuffix), 12) // of 10 alone
	h.start()
	l = h.open(cfg)
	for _, ts := range []int64{10, 11, 21, 400, 500} {
		checkSeek(t, l, want, ts, allOffsets)
	}
	require.NoError(t, h.stop())
}

func TestAFileThatCannotBeClosedIsNotInTheWayOfTheNextRoll(t *testing.T) {
	t.Parallel()
	in := fsx.NewInject(fsx.NewMem(), nil)
	h := newHarness(t, in, "/data")
	l := h.open(Config{SegmentBytes: 1})
	mustAppend(t, l, batch(t, record.None, 1))
	in.SetHook(oneFailure(syscall.ENOSPC, func(op fsx.Op) bool {
		return op.Kind == fsx.OpClose && strings.HasSuffix(op.Path, baseName(1)+logSuffix)
	}))
	refuse(t, l, model.StorageFull, batch(t, record.None, 2))
	in.SetHook(nil)
	mustAppend(t, l, batch(t, record.None, 2))
	require.Len(t, scan(t, l, 0, 1000), 2)
	require.NoError(t, h.stop())
}

// A snapshot that a clean stop had no room for is missed by the next start, so the stop was
// not a clean one. A descriptor is lacking for good, since one that comes free is used.
func TestAStopWithoutItsSnapshotIsNotClean(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{syscall.ENOSPC, syscall.EMFILE} {
		in := fsx.NewInject(fsx.NewMem(), nil)
		h := newHarness(t, in, "/data")
		l := h.open(Config{})
		mustAppend(t, l, pbatch(1, 0, 0, 1))
		in.SetHook(fsx.FailIf(func(op fsx.Op) bool { return op.Kind == fsx.OpOpen && strings.Contains(op.Path, snapshotSuffix) }, cause))
		require.Error(t, h.store.Close())
		in.SetHook(nil)
		require.NoError(t, h.group.Stop(10*time.Second))
		ok, err := fsx.Exists(in, "/data/"+cleanStopFile)
		require.NoError(t, err)
		require.False(t, ok)
		h.start()
		require.True(t, mustAppend(t, h.open(Config{}), pbatch(1, 0, 0, 1)).Duplicate)
		require.NoError(t, h.stop())
	}
}

// The headers that tell of an epoch go with the segments below the log start.
func TestTheEpochInForceSurvivesTheDeletionOfItsSegments(t *testing.T) {
	t.Parallel()
	mem := fsx.NewCrashMem()
	h := newHarness(t, mem, "/data")
	l := h.open(Config{})
	for epoch := range model.LeaderEpoch(4) {
		_, err := l.Append(batch(t, record.None, 1), epoch, 0)
		require.NoError(t, err)
	}
	require.NoError(t, l.AdvanceLogStart(l.LogEnd()))
	h.fs = mem.Crash(1)
	h.kill()
	h.start()
	l = h.open(Config{})
	require.EqualValues(t, 4, l.LogEnd())
	require.EqualValues(t, 3, l.LogEndEpoch())
	require.NoError(t, h.stop())
}

// Producers that were forgotten have their transactions open again when markers are cut off.
func TestATruncationOpensTransactionsOfForgottenProducers(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	l := h.open(Config{})
	mustAppend(t, l, tbatch(1, 0, 0, 2))
	mustAppend(t, l, marker(1, 0, record.ControlCommit, 0))
	l.SetHighWatermark(3)
	l.ExpireProducers(1 << 50)
	require.EqualValues(t, 3, l.LastStable(3))
	require.NoError(t, l.TruncateTo(2))
	require.EqualValues(t, 0, l.LastStable(2))
	require.NoError(t, h.stop())
}

// A full disk is met at the roll, which refuses the append, and not by the sync after it.
func TestAFullDiskDoesNotLatchALogWithAbortedTransactions(t *testing.T) {
	t.Parallel()
	in := fsx.NewInject(fsx.NewMem(), nil)
	h := newHarness(t, in, "/data")
	l := h.open(Config{SegmentBytes: 300})
	mustAppend(t, l, tbatch(1, 0, 0, 1), marker(1, 0, record.ControlAbort, 0))
	in.SetHook(fsx.FailIf(func(op fsx.Op) bool { return op.Kind == fsx.OpWrite && path.Ext(op.Path) == txnIndexSuffix }, syscall.ENOSPC))
	refuse(t, l, model.StorageFull, sized(t, 200, 1))
	in.SetHook(oneFailure(syscall.ENOSPC, func(op fsx.Op) bool {
		return op.Kind == fsx.OpWrite && op.Path == path.Join(logDir, baseName(2)+logSuffix)
	}))
	refuse(t, l, model.StorageFull, sized(t, 200, 1)) // rolled, with its index, and taken back
	in.SetHook(nil)
	mustAppend(t, l, tbatch(1, 0, 1, 1), marker(1, 0, record.ControlAbort, 0))
	mustAppend(t, l, sized(t, 200, 1))
	waitStable(t, l)
	got, err := l.AbortedTransactions(0, l.LogEnd())
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.NoError(t, h.stop())
	h.start()
	again, err := h.open(Config{SegmentBytes: 300}).AbortedTransactions(0, allOffsets)
	require.NoError(t, err)
	require.Equal(t, got, again)
	require.NoError(t, h.stop())
}

// Producers of whom nothing is left but the snapshot at the log start are not lost when that
// cannot be written, wholly or at all.
func TestProducersSurviveALogStartWhoseSnapshotIsNotWritten(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{syscall.ENOSPC, syscall.EIO} {
		in := fsx.NewInject(fsx.NewMem(), nil)
		h := newHarness(t, in, "/data")
		l := h.open(Config{FileDeleteDelayMs: -1})
		mustAppend(t, l, pbatch(1, 0, 0, 1), tbatch(2, 0, 0, 1))
		waitStable(t, l)
		in.SetHook(oneFailure(cause, func(op fsx.Op) bool { return op.Kind == fsx.OpWrite && strings.Contains(op.Path, snapshotSuffix) }))
		require.NoError(t, l.AdvanceLogStart(2))
		in.SetHook(nil)
		h.kill()
		h.start()
		l = h.open(Config{})
		require.EqualValues(t, 2, l.LogStart())
		require.True(t, mustAppend(t, l, pbatch(1, 0, 0, 1)).Duplicate)
		require.True(t, mustAppend(t, l, tbatch(2, 0, 0, 1)).Duplicate)
		refuse(t, l, model.InvalidTransactionState, pbatch(2, 0, 1, 1))
		require.NoError(t, h.stop())
	}
}

// A batch of a compacted leader may have its only gap inside.
func TestABatchWithAGapInsideMarksTheLogAsCompacted(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	l := h.open(Config{})
	_, err := l.AppendReplica(at(0, 0, 3, 0, 2), false, 0)
	require.True(t, model.HasCode(err, model.CorruptBatch), "%v", err)
	_, err = l.AppendReplica(at(0, 0, 3, 0, 1, 2, 3), true, 0)
	require.NoError(t, err)
	require.False(t, l.Compacted())
	_, err = l.AppendReplica(at(0, 4, 7, 4, 6), true, 0)
	require.NoError(t, err)
	require.True(t, l.Compacted())
	require.NoError(t, h.stop())
}

// Where the newest snapshots are damaged an older one counts, of an offset at which a
// transaction was open whose data and marker compaction has removed since.
func TestAnOldSnapshotOpensNoTransactionThatCompactionHasEnded(t *testing.T) {
	t.Parallel()
	mem := fsx.NewMem()
	h := newHarness(t, mem, "/data")
	cfg := Config{SegmentBytes: 1, FileDeleteDelayMs: -1}
	l := h.open(cfg)
	mustAppend(t, l, tbatch(1, 0, 0, 1)) // open at the snapshot of the next segment's base
	mustAppend(t, l, marker(1, 0, record.ControlAbort, 0))
	for i := range int32(3) {
		mustAppend(t, l, pbatch(1, 1, i, 1))
	}
	l.SetHighWatermark(l.LogEnd())
	waitStable(t, l)
	mustClean(t, l, 1000) // the first pass sets the marker's delete horizon
	mustAppend(t, l, pbatch(1, 1, 3, 1))
	l.SetHighWatermark(l.LogEnd())
	waitStable(t, l)
	mustClean(t, l, 1<<50)
	end := l.LogEnd()
	require.NoError(t, h.stop())
	infos, err := mem.ReadDir(logDir)
	require.NoError(t, err)
	for _, i := range infos {
		if off, ok := parseBase(i.Name, snapshotSuffix); ok && off > 1 {
			flip(t, mem, path.Join(logDir, i.Name), i.Size/2, 1)
		}
	}
	h.start()
	l = h.open(cfg)
	require.Equal(t, end, l.LastStable(end))
	require.NoError(t, h.stop())
}

// A swap that a power cut left half done, with names gone and come again, leaves no index
// without a log.
func TestAFinishedSwapLeavesNoIndexBehind(t *testing.T) {
	t.Parallel()
	mem := fsx.NewMem()
	h := newHarness(t, mem, "/data")
	l := h.open(Config{SegmentBytes: 1})
	for i := range int64(4) {
		mustAppend(t, l, batch(t, record.None, i))
	}
	waitStable(t, l)
	require.NoError(t, l.MarkCompacted())
	require.NoError(t, h.store.Checkpoint())
	h.kill()
	// As if segments 0 to 2 had become one: its log is in place, and of the third the log is gone.
	name := func(base model.Offset, suffix string) string { return path.Join(logDir, baseName(base)+suffix) }
	var whole []byte
	for base := range model.Offset(3) {
		whole = append(whole, fileBytes(t, mem, baseName(base)+logSuffix)...)
	}
	f, err := mem.OpenFile(name(0, logSuffix+swapSuffix), fsx.ReadWrite|fsx.Create)
	require.NoError(t, err)
	_, err = f.WriteAt(whole, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, mem.Remove(name(2, logSuffix)))
	h.start()
	l = h.open(Config{SegmentBytes: 1})
	require.Len(t, scan(t, l, 0, 1000), 4)
	for _, suffix := range []string{indexSuffix, timeIndexSuffix, logSuffix} {
		ok, err := fsx.Exists(mem, name(2, suffix))
		require.NoError(t, err)
		require.False(t, ok, suffix)
	}
	require.NoError(t, h.stop())
}

// A batch behind a gap that recovery takes for one of compaction must be durable before
// another segment can hide its loss.
func TestNoSegmentIsBegunWhileABatchBehindAFarGapIsNotSynced(t *testing.T) {
	t.Parallel()
	mem := fsx.NewCrashMem()
	h := newHarness(t, mem, "/data")
	h.kill()
	h.opts.SyncInterval = time.Hour
	h.start()
	cfg := Config{SegmentBytes: 100}
	l := h.open(cfg)
	require.NoError(t, h.store.Checkpoint())
	base := model.Offset(farGap + 1)
	for i := range model.Offset(3) {
		_, err := l.AppendReplica(at(0, base+i, base+i, base+i), true, 0)
		require.NoError(t, err)
	}
	require.Equal(t, 1, l.Segments())
	for seed := range uint64(20) {
		x := newHarness(t, mem.Crash(seed), "/data")
		l := x.open(cfg)
		end := l.LogEnd()
		require.True(t, end == 0 || end > base, "%d", end)
		if end > 0 {
			require.Len(t, scan(t, l, 0, 1000), int(end-base))
		}
		require.NoError(t, x.stop())
	}
	waitStable(t, l)
	_, err := l.AppendReplica(at(0, base+3, base+3, base+3), true, 0)
	require.NoError(t, err)
	require.Equal(t, 2, l.Segments())
	require.NoError(t, h.stop())
}

// A transaction whose marker is above the high watermark keeps the last stable offset back
// after a restart too.
func TestAMarkerAboveTheHighWatermarkHoldsTheLastStableOffsetAfterARestart(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	l := h.open(Config{})
	mustAppend(t, l, batch(t, record.None, 1))
	mustAppend(t, l, tbatch(1, 0, 0, 2))
	mustAppend(t, l, marker(1, 0, record.ControlAbort, 0))
	waitStable(t, l)
	l.SetHighWatermark(3)
	require.EqualValues(t, 1, l.LastStable(3))
	require.NoError(t, h.stop())
	h.start()
	l = h.open(Config{})
	require.EqualValues(t, 3, l.HighWatermark())
	require.EqualValues(t, 1, l.LastStable(3))
	require.EqualValues(t, 4, l.LastStable(4))
	require.NoError(t, h.stop())
}

// Files of an old log that could not be removed do not come back beneath the one that
// began anew.
func TestAFullTruncationRemovesWhatStayedBelowTheLogStart(t *testing.T) {
	t.Parallel()
	in := fsx.NewInject(fsx.NewMem(), nil)
	h := newHarness(t, in, "/data")
	cfg := Config{SegmentBytes: 1, FileDeleteDelayMs: -1}
	l := h.open(cfg)
	for i := range int32(4) {
		mustAppend(t, l, pbatch(1, 0, i, 1))
	}
	waitStable(t, l)
	in.SetHook(fsx.FailIf(func(op fsx.Op) bool { return op.Kind == fsx.OpRename && !strings.HasSuffix(op.Path, ".tmp") }, syscall.EIO))
	require.NoError(t, l.AdvanceLogStart(3))
	in.SetHook(nil)
	require.NoError(t, l.TruncateFullyAndStartAt(2))
	mustAppend(t, l, batch(t, record.None, 1))
	h.kill()
	h.start()
	l = h.open(cfg)
	require.EqualValues(t, 2, l.LogStart())
	require.Len(t, scan(t, l, 2, 1000), 1)
	refuse(t, l, model.UnknownProducer, pbatch(1, 0, 4, 1))
	require.NoError(t, h.stop())
}

// A log whose first segment is gone does not begin later without a word.
func TestAMissingFirstSegmentIsRefused(t *testing.T) {
	t.Parallel()
	for _, stop := range []func(*harness){cleanStop, checkpointed} {
		mem := fsx.NewMem()
		h, cfg, _ := filled(t, mem, 50, stop)
		require.NoError(t, mem.Remove(path.Join(logDir, baseName(0)+logSuffix)))
		h.start()
		_, err := h.store.Open(testID, "events", 0, cfg)
		require.True(t, model.HasCode(err, model.StorageError), "%v", err)
		require.Contains(t, err.Error(), logSuffix)
		require.NoError(t, h.stop())
	}
	// One that began anew further on is not such.
	mem := fsx.NewMem()
	h := newHarness(t, mem, "/data")
	l := h.open(Config{})
	mustAppend(t, l, batch(t, record.None, 1))
	waitStable(t, l)
	require.NoError(t, h.store.Checkpoint())
	require.NoError(t, l.TruncateFullyAndStartAt(70))
	h.kill()
	h.start()
	require.EqualValues(t, 70, h.open(Config{}).LogStart())
	require.NoError(t, h.stop())
}

// A changed topic id does not send a log that the checkpoints know to the trash.
func TestAChangedTopicIDIsRefused(t *testing.T) {
	t.Parallel()
	mem := fsx.NewMem()
	h, cfg, want := filled(t, mem, 50, cleanStop)
	name := path.Join(logDir, checkpoint.MetadataFile)
	good := fileBytes(t, mem, checkpoint.MetadataFile)
	require.NoError(t, fsx.WriteFile(mem, name, checkpoint.EncodeMetadata(model.TopicID{9})))
	h.start()
	_, err := h.store.Open(testID, "events", 0, cfg)
	require.True(t, model.HasCode(err, model.StorageError), "%v", err)
	require.Contains(t, err.Error(), checkpoint.MetadataFile)
	require.NoError(t, h.stop())
	require.NoError(t, fsx.WriteFile(mem, name, good))
	h.start()
	require.Equal(t, want, scan(t, h.open(cfg), 0, 1000))
	require.NoError(t, h.stop())
}

// Compaction keeps the last batch of each segment, so that one that is missing between two
// is noticed in a compacted log too.
func TestAMissingSegmentOfACompactedLogIsNotPassedOver(t *testing.T) {
	t.Parallel()
	mem := fsx.NewMem()
	h, cfg, _ := filled(t, mem, 80, func(h *harness) {
		for _, l := range h.store.openLogs() {
			require.NoError(t, l.MarkCompacted())
		}
		require.NoError(t, h.stop())
	})
	h.start()
	l := h.open(cfg)
	gone := (*l.segs.Load())[2]
	require.NoError(t, h.stop())
	require.NoError(t, mem.Remove(gone.path+logSuffix))
	h.start()
	l = h.open(cfg)
	_, err := l.Read(nil, gone.base, allOffsets, 100)
	require.True(t, model.HasCode(err, model.StorageError), "%v", err)
	require.NoError(t, h.stop())
}

// A killed process may have made a log's folder without syncing its name, on which all that
// the next one syncs relies.
func TestAFolderThatAKilledProcessMadeIsSyncedByTheNext(t *testing.T) {
	t.Parallel()
	mem := fsx.NewCrashMem()
	in := fsx.NewInject(mem, nil)
	h := newHarness(t, in, "/data")
	var left *fsx.Mem
	in.SetHook(func(op fsx.Op) *fsx.Fault {
		if op.Kind == fsx.OpSyncDir && op.Path == "/data/topics" && left == nil {
			left = mem.Clone()
		}
		return nil
	})
	h.open(Config{})
	in.SetHook(nil)
	h.kill()
	h.fs = left
	h.start()
	l := h.open(Config{})
	mustAppend(t, l, batch(t, record.None, 1))
	waitStable(t, l)
	for seed := range uint64(20) {
		x := newHarness(t, left.Crash(seed), "/data")
		require.Len(t, scan(t, x.open(Config{}), 0, 1000), 1)
		require.NoError(t, x.stop())
	}
	require.NoError(t, h.stop())
}

// Indexes of a segment that could not be made would look like those of a lost one.
func TestASegmentThatCouldNotBeMadeLeavesNoIndexes(t *testing.T) {
	t.Parallel()
	in := fsx.NewInject(fsx.NewMem(), nil)
	h := newHarness(t, in, "/data")
	l := h.open(Config{SegmentBytes: 1})
	mustAppend(t, l, batch(t, record.None, 1))
	in.SetHook(oneFailure(syscall.ENOSPC, func(op fsx.Op) bool {
		return op.Kind == fsx.OpClose && strings.HasSuffix(op.Path, baseName(1)+timeIndexSuffix)
	}))
	refuse(t, l, model.StorageFull, batch(t, record.None, 2))
	in.SetHook(nil)
	for _, suffix := range segmentSuffixes {
		ok, err := fsx.Exists(in, path.Join(logDir, baseName(1)+suffix))
		require.NoError(t, err)
		require.False(t, ok, suffix)
	}
	require.NoError(t, h.stop())
}

// A killed process leaves a cut to the page cache. What was cut off must not come back with
// the next power cut, behind what was appended in its place.
func TestWhatWasCutDoesNotComeBackAfterAKillAndAPowerCut(t *testing.T) {
	t.Parallel()
	mem := fsx.NewCrashMem()
	in := fsx.NewInject(mem, nil)
	h := newHarness(t, in, "/data")
	l := h.open(Config{})
	for ts := range int64(3) {
		mustAppend(t, l, batch(t, record.None, ts))
	}
	waitStable(t, l)
	require.NoError(t, h.store.Checkpoint())
	dead := false
	in.SetHook(func(op fsx.Op) *fsx.Fault {
		if dead {
			return &fsx.Fault{Err: syscall.EIO}
		}
		dead = op.Kind == fsx.OpTruncate && strings.HasSuffix(op.Path, logSuffix)
		return nil
	})
	require.Error(t, l.TruncateTo(1))
	require.True(t, dead)
	h.kill()
	in.SetHook(nil)
	h.opts.SyncInterval = time.Hour
	h.start()
	l = h.open(Config{})
	require.EqualValues(t, 1, l.LogEnd())
	mustAppend(t, l, batch(t, record.None, 100))
	for seed := range uint64(40) {
		x := newHarness(t, mem.Crash(seed), "/data")
		require.LessOrEqual(t, x.open(Config{}).LogEnd(), model.Offset(2), "seed %d", seed)
		require.NoError(t, x.stop())
	}
	require.NoError(t, h.stop())
}

// Where compaction has removed an epoch's first batches only the file knows where it began.
func TestRecoveryKeepsWhereEpochsBeganInAGap(t *testing.T) {
	t.Parallel()
	mem := fsx.NewMem()
	h := newHarness(t, mem, "/data")
	l := h.open(Config{})
	for _, b := range [][]byte{at(1, 0, 2, 0, 1, 2), at(3, 6, 7, 6, 7)} {
		_, err := l.AppendReplica(b, true, 0)
		require.NoError(t, err)
	}
	waitStable(t, l)
	require.NoError(t, h.store.Checkpoint())
	h.kill()
	known := epochs.Cache{{Epoch: 1, Start: 0}, {Epoch: 2, Start: 3}, {Epoch: 3, Start: 5}}
	require.NoError(t, fsx.WriteFile(mem, path.Join(logDir, epochs.FileName), known.Encode()))
	require.NoError(t, mem.Remove("/data/"+recoveryPointFile)) // so that all is read
	h.start()
	l = h.open(Config{})
	for asked, want := range map[model.LeaderEpoch]model.Offset{1: 3, 2: 5, 3: 8} {
		epoch, end := l.EpochEnd(asked)
		require.Equal(t, asked, epoch)
		require.Equal(t, want, end, "of epoch %d", asked)
	}
	require.NoError(t, h.stop())
}

// No checksum covers a base offset, and a compacted log may have gaps: one that leads out of
// its segment is damage, not the end of what there is to read.
func TestABaseOffsetThatLeadsOutOfItsSegmentIsAnError(t *testing.T) {
	t.Parallel()
	mem := fsx.NewMem()
	h := newHarness(t, mem, "/data")
	one := batch(t, record.None, 1)
	cfg := Config{SegmentBytes: int64(3 * len(one))}
	l := h.open(cfg)
	require.NoError(t, l.MarkCompacted())
	for ts := range int64(7) {
		mustAppend(t, l, batch(t, record.None, ts))
	}
	require.Equal(t, 3, l.Segments())
	require.NoError(t, h.stop())
	flip(t, mem, path.Join(logDir, baseName(0)+logSuffix), int64(len(one))+3, 1) // of the batch at 1, which is at 2^32+1 now
	h.start()
	l = h.open(cfg)
	for _, limit := range []model.Offset{l.LogEnd(), allOffsets} {
		b, err := l.Read(nil, 0, limit, 1<<20)
		require.NoError(t, err)
		require.Len(t, b, len(one))
		_, err = l.Read(nil, 1, limit, 1<<20)
		require.True(t, model.HasCode(err, model.StorageError), "%v", err)
	}
	require.NoError(t, h.stop())
}

// An index that recovery has removed must not be there again after a clean stop.
func TestAnIndexThatRecoveryRemovesStaysAway(t *testing.T) {
	t.Parallel()
	mem := fsx.NewCrashMem()
	h := newHarness(t, mem, "/data")
	l := h.open(Config{})
	mustAppend(t, l, batch(t, record.None, 1))
	waitStable(t, l)
	require.NoError(t, h.store.Checkpoint())
	h.kill()
	stray := path.Join(logDir, baseName(1)+timeIndexSuffix)
	require.NoError(t, fsx.WriteFile(mem, stray, nil))
	h.start()
	h.open(Config{})
	require.NoError(t, h.stop())
	for seed := range uint64(20) {
		ok, err := fsx.Exists(mem.Crash(seed), stray)
		require.NoError(t, err)
		require.False(t, ok, "seed %d", seed)
	}
}

// The index of aborted transactions of a segment that was synced as the active one, up to
// its end, is in the page cache when a process is killed.
func TestAbortsOfTheSegmentThatEndsAtTheRecoveryPointAreSynced(t *testing.T) {
	t.Parallel()
	mem := fsx.NewCrashMem()
	h := newHarness(t, mem, "/data")
	l := h.open(Config{})
	mustAppend(t, l, tbatch(1, 0, 0, 1))
	mustAppend(t, l, marker(1, 0, record.ControlAbort, 0))
	waitStable(t, l)
	require.NoError(t, h.store.Checkpoint())
	h.store.o.SyncInterval = time.Hour
	l.SetConfig(Config{SegmentBytes: 1})
	mustAppend(t, l, batch(t, record.None, 1))
	h.kill()
	h.start()
	h.open(Config{})
	require.NoError(t, h.stop())
	for seed := range uint64(20) {
		b, err := fsx.ReadFile(mem.Crash(seed), path.Join(logDir, baseName(0)+txnIndexSuffix), 1<<20)
		require.NoError(t, err, "seed %d", seed)
		require.Len(t, b, 34, "seed %d", seed)
	}
}

// An older file could call clean what was cut off and appended anew since.
func TestACleanerCheckpointThatIsNotOfTheLastStopIsDropped(t *testing.T) {
	t.Parallel()
	mem := fsx.NewMem()
	h := newHarness(t, mem, "/data")
	cfg := Config{SegmentBytes: 1}
	l := h.open(cfg)
	for i := range int64(4) {
		mustAppend(t, l, batch(t, record.None, i))
	}
	waitStable(t, l)
	l.SetHighWatermark(l.LogEnd())
	mustClean(t, l, 1000)
	old, err := fsx.ReadFile(mem, "/data/"+cleanerFile, checkpoint.MaxFileSize)
	require.NoError(t, err)
	require.NoError(t, l.TruncateTo(2))
	require.EqualValues(t, 2, l.cleaned.point.Load())
	require.NoError(t, h.stop())
	h.start()
	l = h.open(cfg)
	require.EqualValues(t, 2, l.cleaned.point.Load())
	require.NoError(t, h.stop())
	require.NoError(t, fsx.WriteFile(mem, "/data/"+cleanerFile, old))
	for range 2 { // also after the next stop
		h.start()
		l = h.open(cfg)
		require.Zero(t, l.cleaned.point.Load())
		require.NoError(t, h.stop())
	}
}

// A start removes segments below the log start. What it must know of their producers it
// writes down first, or does not start.
func TestProducersSurviveAStartWhoseSnapshotIsNotWritten(t *testing.T) {
	t.Parallel()
	in := fsx.NewInject(fsx.NewMem(), nil)
	h := newHarness(t, in, "/data")
	l := h.open(Config{SegmentBytes: 1})
	mustAppend(t, l, pbatch(1, 0, 0, 1))
	mustAppend(t, l, batch(t, record.None, 1))
	waitStable(t, l)
	noSnapshot := fsx.FailIf(func(op fsx.Op) bool { return op.Kind == fsx.OpWrite && strings.Contains(op.Path, snapshotSuffix) }, syscall.EIO)
	require.NoError(t, in.Remove(path.Join(logDir, baseName(1)+snapshotSuffix)))
	in.SetHook(noSnapshot)
	l.SetHighWatermark(1)
	require.NoError(t, l.AdvanceLogStart(1))
	h.kill()
	in.SetHook(nil)
	h.start()
	in.SetHook(noSnapshot)
	_, err := h.store.Open(testID, "events", 0, Config{})
	require.True(t, model.HasCode(err, model.StorageError), "%v", err)
	in.SetHook(nil)
	l = h.open(Config{})
	require.EqualValues(t, 1, l.LogStart())
	require.True(t, mustAppend(t, l, pbatch(1, 0, 0, 1)).Duplicate)
	require.NoError(t, h.stop())
}

// An index of aborted transactions that is made anew may lack one of which compaction has
// left no record. Then the newest snapshot says so too, or each start would make it anew.
func TestASnapshotFollowsAnIndexOfAbortsMadeAnew(t *testing.T) {
	t.Parallel()
	mem := fsx.NewMem()
	h := newHarness(t, mem, "/data")
	cfg := Config{SegmentBytes: 1, FileDeleteDelayMs: -1}
	l := h.open(cfg)
	mustAppend(t, l, tbatch(1, 0, 0, 1))
	mustAppend(t, l, marker(1, 0, record.ControlAbort, 0))
	mustAppend(t, l, pbatch(1, 0, 1, 1)) // so that the first is not kept as the producer's last
	for i := range int64(2) {
		mustAppend(t, l, batch(t, record.None, i))
	}
	l.SetHighWatermark(l.LogEnd())
	waitStable(t, l)
	l.SetConfig(Config{FileDeleteDelayMs: -1}) // segments are merged, and the snapshots between them go
	mustClean(t, l, 1000)
	end := l.LogEnd()
	require.NoError(t, h.stop())

	txns := snapshotAt(t, mem, end).Txns
	require.Len(t, txns, 1)
	require.NoError(t, mem.Remove(path.Join(logDir, baseName(txns[0].Base)+txnIndexSuffix)))
	h.start()
	l = h.open(cfg)
	got, err := l.AbortedTransactions(0, end)
	require.NoError(t, err)
	require.Empty(t, got)
	require.NoError(t, h.stop())
	require.Empty(t, snapshotAt(t, mem, end).Txns)
}

func snapshotAt(t *testing.T, fsys fsx.FS, off model.Offset) *producer.Snapshot {
	t.Helper()
	b, err := fsx.ReadFile(fsys, path.Join(logDir, baseName(off)+snapshotSuffix), producer.MaxSnapshot)
	require.NoError(t, err)
	s, err := producer.DecodeSnapshot(b, off)
	require.NoError(t, err)
	return s
}

// A snapshot that waits for a sync while compaction takes the last of a transaction says
// that it is gone.
func TestASnapshotThatWaitsFollowsCompaction(t *testing.T) {
	t.Parallel()
	mem := fsx.NewMem()
	h := newHarness(t, mem, "/data")
	h.store.o.SyncInterval = time.Hour
	small, large := Config{SegmentBytes: 1, FileDeleteDelayMs: -1}, Config{FileDeleteDelayMs: -1}
	l := h.open(small)
	mustAppend(t, l, tbatch(1, 0, 0, 1))
	mustAppend(t, l, marker(1, 0, record.ControlAbort, 0))
	mustAppend(t, l, pbatch(1, 0, 1, 1))
	for i := range int64(2) { // first the record goes, then the marker is given its horizon
		l.SetConfig(small)
		mustAppend(t, l, batch(t, record.None, i))
		waitStable(t, l)
		l.SetHighWatermark(l.LogEnd())
		l.SetConfig(large) // segments are merged, or each would keep its last batch
		mustClean(t, l, 1000)
	}
	l.SetConfig(small)
	mustAppend(t, l, batch(t, record.None, 2))
	at := l.LogEnd() - 1
	l.SetHighWatermark(l.LogEnd())
	ok, err := fsx.Exists(mem, path.Join(logDir, baseName(at)+snapshotSuffix))
	require.NoError(t, err)
	require.False(t, ok, "the snapshot waits")
	l.SetConfig(large)
	mustClean(t, l, 1<<50)
	waitStable(t, l)
	got, err := l.AbortedTransactions(0, l.LogEnd())
	require.NoError(t, err)
	require.Empty(t, got)
	require.Empty(t, snapshotAt(t, mem, at).Txns)
	require.NoError(t, h.stop())
}
