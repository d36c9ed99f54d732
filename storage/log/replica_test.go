package log

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
)

// compactedRun is what a leader's compacted log may hand out: gaps between batches, at
// the start, in the middle and at the end of a batch, and a batch without records.
func compactedRun() (batches []byte, offs []model.Offset) {
	batches = slices.Concat(
		at(1, 3, 7, 4, 6),
		at(1, 10, 12, 10, 11, 12),
		at(2, 20, 24), // only its header is left
		at(2, 25, 25, 25),
		at(5, 100, 109, 109),
	)
	return batches, []model.Offset{4, 6, 10, 11, 12, 25, 109}
}

func offsetsOf(recs []rec) []model.Offset {
	var out []model.Offset
	for _, r := range recs {
		out = append(out, r.off)
	}
	return out
}

// checkGaps reads and seeks at every offset.
func checkGaps(t *testing.T, l *Log, offs []model.Offset) {
	t.Helper()
	end := l.LogEnd()
	for from := l.LogStart(); from < end; from++ {
		i, _ := slices.BinarySearch(offs, from)
		require.Equal(t, slices.Clone(offs[i:]), offsetsOf(scan(t, l, from, 100)), "from %d", from)
		off, ts, found, err := l.OffsetForTimestamp(int64(from)*10, allOffsets)
		require.NoError(t, err)
		require.Equal(t, i < len(offs), found)
		if found {
			require.Equal(t, offs[i], off)
			require.EqualValues(t, offs[i]*10, ts)
		}
	}
	data, err := l.Read(nil, 13, 20, 1000)
	require.NoError(t, err)
	require.Empty(t, data, "a gap reaches to the limit")
}

func TestReplicaKeepsOffsetsEpochsAndGaps(t *testing.T) {
	t.Parallel()
	for name, segmentBytes := range map[string]int64{"one segment": 1 << 20, "a segment for each batch": 60} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mem := fsx.NewCrashMem()
			h := newHarness(t, mem, "/data")
			cfg := Config{SegmentBytes: segmentBytes, IndexIntervalBytes: 1}
			l := h.open(cfg)
			batches, offs := compactedRun()
			given := slices.Clone(batches)
			a, err := l.AppendReplica(batches, true, 0)
			require.NoError(t, err)
			require.Equal(t, given, batches, "a replica writes nothing into the batches")
			require.Equal(t, Appended{First: 3, Last: 109, Batches: 5, Bytes: len(given), MaxTimestamp: 1090, LogAppendTime: -1}, a)
			require.EqualValues(t, 110, l.LogEnd())
			require.True(t, l.Compacted())
			checkGaps(t, l, offs)
			epochsAre := func() {
				t.Helper()
				for _, x := range []struct {
					ask, epoch model.LeaderEpoch
					end        model.Offset
				}{{1, 1, 20}, {3, 2, 100}, {5, 5, 110}} {
					e, end := l.EpochEnd(x.ask)
					require.Equal(t, x.epoch, e)
					require.Equal(t, x.end, end)
				}
			}
			epochsAre()
			waitStable(t, l)
			h.fs = mem.Crash(7)
			h.kill()
			h.start()
			l = h.open(cfg)
			checkGaps(t, l, offs)
			epochsAre()
			require.NoError(t, h.stop())
			h.start()
			require.True(t, h.store.found.clean)
			l = h.open(cfg)
			checkGaps(t, l, offs)
			_, err = l.Append(at(0, 0, 1, 0, 1), 6, 0)
			require.NoError(t, err)
			require.EqualValues(t, 112, l.LogEnd(), "a leader goes on without a gap")
			require.NoError(t, h.stop())
		})
	}
}

func TestReplicaRefusesWhatDoesNotFollowAndChangesNothing(t *testing.T) {
	t.Parallel()
	mem := fsx.NewMem()
	h := newHarness(t, mem, "/data")
	l := h.open(Config{})
	_, err := l.AppendReplica(at(3, 0, 4, 0, 1, 2, 3, 4), false, 0)
	require.NoError(t, err)
	flipped := at(3, 5, 5, 5)
	flipped[65] ^= 1
	for name, x := range map[string]struct {
		data      []byte
		compacted bool
		code      model.Code
	}{
		"gap":                       {at(3, 6, 6, 6), false, model.OffsetMismatch},
		"gap inside":                {slices.Concat(at(3, 5, 5, 5), at(3, 7, 7, 7)), false, model.OffsetMismatch},
		"below the end":             {at(3, 4, 5, 4, 5), true, model.OffsetMismatch},
		"epoch falls":               {at(2, 5, 5, 5), true, model.Fenced},
		"epoch falls inside":        {slices.Concat(at(4, 5, 5, 5), at(3, 6, 6, 6)), true, model.CorruptBatch},
		"offsets fall inside":       {slices.Concat(at(4, 5, 9, 5), at(4, 9, 9, 9)), true, model.CorruptBatch},
		"no epoch":                  {at(-1, 5, 5, 5), true, model.CorruptBatch},
		"checksum":                  {flipped, true, model.CorruptBatch},
		"cut short":                 {at(3, 5, 5, 5)[:66], true, model.CorruptBatch},
		"nothing":                   {nil, true, model.CorruptBatch},
		"whole batch, then garbage": {append(at(3, 5, 5, 5), 1, 2, 3), true, model.CorruptBatch},
	} {
		_, err := l.AppendReplica(x.data, x.compacted, 0)
		require.True(t, model.HasCode(err, x.code), "%s: %v", name, err)
		require.EqualValues(t, 5, l.LogEnd())
		require.EqualValues(t, 3, l.LogEndEpoch())
		require.False(t, l.Compacted(), name)
	}
	require.NoError(t, h.stop())
	h.start()
	require.EqualValues(t, 5, h.open(Config{}).LogEnd())
	require.NoError(t, h.stop())
}

// A marker is there before the first gap: after a crash at any operation the log opens,
// and what was stable is in it.
func TestNoFailingOperationLosesARecordBehindAGap(t *testing.T) {
	t.Parallel()
	opened := 0
	for n := 1; ; n++ {
		mem := fsx.NewCrashMem()
		in := fsx.NewInject(mem, nil)
		h := newHarness(t, in, "/data")
		l := h.open(Config{SegmentBytes: 100})
		var crashes []*fsx.Mem
		count := 0
		in.SetHook(func(fsx.Op) *fsx.Fault {
			if count++; count == n {
				for seed := range uint64(4) {
					crashes = append(crashes, mem.Crash(seed))
				}
			}
			return nil
		})
		batches, offs := compactedRun()
		_, err := l.AppendReplica(batches, true, 0)
		require.NoError(t, err)
		waitStable(t, l)
		require.NoError(t, h.store.Checkpoint())
		done := count < n
		for seed := range uint64(3) {
			crashes = append(crashes, mem.Crash(seed))
		}
		h.kill()
		for i, c := range crashes {
			h := newHarness(t, c, "/data")
			l := h.open(Config{SegmentBytes: 100})
			got := offsetsOf(scan(t, l, l.LogStart(), 100))
			require.Equal(t, offs[:len(got)], append([]model.Offset{}, got...), "operation %d", n)
			if i >= len(crashes)-3 {
				require.Len(t, got, len(offs))
			}
			opened++
			require.NoError(t, h.stop())
		}
		if done {
			break
		}
	}
	require.Greater(t, opened, 30)
}

func TestGapOfMoreThanAnInt32StartsANewSegment(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	cfg := Config{IndexIntervalBytes: 1}
	l := h.open(cfg)
	far := model.Offset(math.MaxInt32) + 5
	_, err := l.AppendReplica(at(1, far, far, far), true, 0)
	require.NoError(t, err)
	_, err = l.AppendReplica(at(1, 2*far, 2*far, 2*far), true, 0)
	require.True(t, model.HasCode(err, model.LeaderUnavailable), "not before what precedes it is durable: %v", err)
	waitStable(t, l)
	_, err = l.AppendReplica(slices.Concat(at(1, far+1, far+1, far+1), at(1, 2*far, 2*far, 2*far)), true, 0)
	require.True(t, model.HasCode(err, model.OffsetMismatch), "%v", err)
	_, err = l.AppendReplica(at(1, 2*far, 2*far, 2*far), true, 0)
	require.NoError(t, err)
	require.Equal(t, 3, l.Segments())
	waitStable(t, l)
	for range 2 {
		for _, from := range []model.Offset{0, far, far + 1} {
			data, err := l.Read(nil, from, allOffsets, 10)
			require.NoError(t, err)
			require.NotEmpty(t, data)
		}
		require.Equal(t, []model.Offset{far, 2 * far}, offsetsOf(scan(t, l, 0, 100)))
		off, _, found, err := l.OffsetForTimestamp(int64(far)*10+1, allOffsets)
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, 2*far, off)
		h.kill()
		h.start()
		l = h.open(cfg)
	}
	require.NoError(t, h.stop())
}

// In a log that was never compacted a gap stays what it was: damage.
func TestWithoutTheMarkerAGapIsDamage(t *testing.T) {
	t.Parallel()
	for _, stop := range []func(*harness){checkpointed, killed} {
		mem := fsx.NewMem()
		h := newHarness(t, mem, "/data")
		l := h.open(Config{})
		batches, offs := compactedRun()
		_, err := l.AppendReplica(batches, true, 0)
		require.NoError(t, err)
		waitStable(t, l)
		point := h.store.cp[cpRecovery].Points[l.key]
		stop(h)
		point = max(point, h.store.cp[cpRecovery].Points[l.key])
		require.NoError(t, mem.Remove(logDir+"/"+compactedFile))
		h.start()
		l, err = h.store.Open(testID, "events", 0, Config{})
		if point > 0 {
			require.True(t, model.HasCode(err, model.StorageError), "%v", err)
			require.NoError(t, h.stop())
			require.NoError(t, fsx.WriteFile(mem, logDir+"/"+compactedFile, []byte("damaged")))
			h.start()
			checkGaps(t, h.open(Config{}), offs)
		} else {
			require.NoError(t, err)
			require.EqualValues(t, 0, l.LogEnd(), "above the recovery point it is a torn tail")
		}
		require.NoError(t, h.stop())
	}
}

// A flip in the base offset, which the checksum does not cover, is found also where
// gaps are allowed if it touches a neighbour, the recovery point or the next segment.
func TestFlippedBaseOffsetsAreFoundInACompactedLog(t *testing.T) {
	t.Parallel()
	found, passed := 0, 0
	for bit := range 64 {
		for _, last := range []bool{true, false} {
			mem := fsx.NewMem()
			h := newHarness(t, mem, "/data")
			l := h.open(Config{})
			batches := slices.Concat(at(1, 4, 7, 4), at(1, 10, 11, 11), at(1, 16, 19, 18))
			_, err := l.AppendReplica(batches, true, 0)
			require.NoError(t, err)
			waitStable(t, l)
			checkpointed(h)
			pos := int64(len(at(1, 4, 7, 4)))
			if last {
				pos = int64(len(batches) - len(at(1, 16, 19, 18)))
			}
			flip(t, mem, logDir+"/"+baseName(0)+logSuffix, pos+int64(7-bit/8), 1<<(bit%8))
			h.start()
			_, err = h.store.Open(testID, "events", 0, Config{})
			if err != nil {
				require.True(t, model.HasCode(err, model.StorageError), "%v", err)
				found++
			} else {
				passed++
				require.False(t, last, "bit %d: a flip in the last batch misses the recovery point", bit)
			}
			require.NoError(t, h.stop())
		}
	}
	require.Greater(t, found, 100)
	require.NotZero(t, passed, "a flip that stays within a gap cannot be seen")
}
