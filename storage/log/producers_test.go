package log

import (
	"fmt"
	"math"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// pbatch is a producer's batch of n records.
func pbatch(pid model.ProducerID, epoch model.ProducerEpoch, seq int32, n int) []byte {
	s := sparse{pid: pid, pepoch: epoch, seq: seq, lastDelta: int32(n - 1)}
	for i := range n {
		s.recs = append(s.recs, sparseRec{delta: int32(i), ts: int64(1000 + i), val: fmt.Append(nil, pid, seq, i)})
	}
	return s.encode()
}

// tbatch is the same within a transaction.
func tbatch(pid model.ProducerID, epoch model.ProducerEpoch, seq int32, n int) []byte {
	s := sparse{pid: pid, pepoch: epoch, seq: seq, lastDelta: int32(n - 1), attrs: record.AttrTransactional}
	for i := range n {
		s.recs = append(s.recs, sparseRec{delta: int32(i), ts: int64(1000 + i), val: fmt.Append(nil, pid, seq, i)})
	}
	return s.encode()
}

func marker(pid model.ProducerID, epoch model.ProducerEpoch, typ record.ControlType, coord int32) []byte {
	out, err := record.NewBuilder(128).FinishMarker(pid, epoch, record.Marker{Type: typ, CoordinatorEpoch: coord, Timestamp: 5000})
	if err != nil {
		panic(err)
	}
	return out
}

func mustAppend(t tb, l *Log, batches ...[]byte) Appended {
	t.Helper()
	a, err := l.Append(slices.Concat(batches...), max(l.LogEndEpoch(), 0), 0)
	require.NoError(t, err)
	return a
}

func refuse(t tb, l *Log, code model.Code, batches ...[]byte) {
	t.Helper()
	end := l.LogEnd()
	_, err := l.Append(slices.Concat(batches...), max(l.LogEndEpoch(), 0), 0)
	require.True(t, model.HasCode(err, code), "wanted %s: %v", code, err)
	require.Equal(t, end, l.LogEnd())
}

func TestRetriesOfTheLastFiveBatchesAreAnsweredWithTheOriginal(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]func(*harness, *fsx.Mem){
		"running":    nil,
		"clean stop": func(h *harness, _ *fsx.Mem) { cleanStop(h) },
		"killed":     func(h *harness, _ *fsx.Mem) { killed(h) },
		"power cut": func(h *harness, m *fsx.Mem) {
			c := m.Crash(3)
			h.kill()
			h.fs = c
		},
	} {
		for _, segmentBytes := range []int64{1 << 20, 200} {
			t.Run(fmt.Sprint(name, segmentBytes), func(t *testing.T) {
				t.Parallel()
				mem := fsx.NewCrashMem()
				h := newHarness(t, mem, "/data")
				cfg := Config{SegmentBytes: segmentBytes}
				l := h.open(cfg)
				var first []model.Offset
				for i := range int32(7) {
					first = append(first, mustAppend(t, l, pbatch(9, 2, i*3, 3)).First)
					mustAppend(t, l, batch(t, record.None, 1), pbatch(10, 0, i, 1))
				}
				waitStable(t, l)
				if restart != nil {
					restart(h, mem)
					h.start()
					l = h.open(cfg)
				}
				end := l.LogEnd()
				for i := range int32(7) {
					if i < 2 {
						refuse(t, l, model.OutOfOrderSequence, pbatch(9, 2, i*3, 3))
						continue
					}
					a := mustAppend(t, l, pbatch(9, 2, i*3, 3))
					require.Equal(t, Appended{First: first[i], Last: first[i] + 2, Batches: 1, MaxTimestamp: 1002, LogAppendTime: -1, Duplicate: true}, a)
				}
				require.Equal(t, end, l.LogEnd())
				both := mustAppend(t, l, pbatch(9, 2, 15, 3), pbatch(9, 2, 18, 3))
				require.True(t, both.Duplicate)
				require.Equal(t, []model.Offset{first[5], first[6] + 2}, []model.Offset{both.First, both.Last})
				refuse(t, l, model.OutOfOrderSequence, pbatch(9, 2, 18, 3), pbatch(9, 2, 21, 3))
				require.False(t, mustAppend(t, l, pbatch(9, 2, 21, 3), pbatch(9, 2, 24, 1)).Duplicate)
				require.NoError(t, h.stop())
			})
		}
	}
}

func TestSequencesEpochsAndTransactionsAreChecked(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	l := h.open(Config{})
	refuse(t, l, model.UnknownProducer, pbatch(1, 0, 7, 1))
	mustAppend(t, l, pbatch(1, 0, 0, 2))
	refuse(t, l, model.OutOfOrderSequence, pbatch(1, 0, 3, 1))
	refuse(t, l, model.OutOfOrderSequence, pbatch(1, 0, 1, 1)) // part of a batch is no retry of it
	refuse(t, l, model.OutOfOrderSequence, pbatch(1, 0, 2, 1), pbatch(1, 0, 4, 1))
	mustAppend(t, l, pbatch(1, 0, 2, 1), pbatch(1, 0, 3, 1))
	refuse(t, l, model.OutOfOrderSequence, pbatch(1, 1, 4, 1)) // a new epoch begins at 0
	mustAppend(t, l, pbatch(1, 1, 0, 1))
	refuse(t, l, model.Fenced, pbatch(1, 0, 4, 1))
	refuse(t, l, model.Fenced, marker(1, 0, record.ControlAbort, 0))

	// Sequences go on with 0 after 2^31-1.
	mustAppend(t, l, pbatch(2, 0, 0, 1))
	p := l.prods.Get(2)
	p.Last().LastSequence = math.MaxInt32 - 2
	a := mustAppend(t, l, pbatch(2, 0, math.MaxInt32-1, 5))
	require.EqualValues(t, 2, p.Last().LastSequence)
	require.Equal(t, a.First, mustAppend(t, l, pbatch(2, 0, math.MaxInt32-1, 5)).First)
	mustAppend(t, l, pbatch(2, 0, 3, 1))
	p.Last().LastSequence = math.MaxInt32
	mustAppend(t, l, pbatch(2, 0, 0, 1))

	// Transactions.
	mustAppend(t, l, tbatch(3, 0, 0, 1))
	refuse(t, l, model.InvalidTransactionState, pbatch(3, 0, 1, 1))
	mustAppend(t, l, marker(3, 1, record.ControlCommit, 4))
	refuse(t, l, model.Fenced, marker(3, 1, record.ControlCommit, 3)) // an older coordinator
	refuse(t, l, model.Fenced, tbatch(3, 0, 1, 1))
	refuse(t, l, model.OutOfOrderSequence, tbatch(3, 1, 1, 1)) // the marker began an epoch
	mustAppend(t, l, tbatch(3, 1, 0, 1))
	bad := sparse{pid: 3, pepoch: 1, seq: -1, attrs: record.AttrControl, recs: []sparseRec{{key: []byte{0, 0, 0, 9}, val: []byte{1}}}}.encode()
	refuse(t, l, model.CorruptBatch, bad)

	// A coordinator's batches have no sequence.
	mustAppend(t, l, tbatch(4, 0, -1, 1))
	mustAppend(t, l, tbatch(4, 0, -1, 1))
	refuse(t, l, model.Fenced, tbatch(3, 0, -1, 1))
	require.NoError(t, h.stop())
}

func TestLastStableWaitsForMarkersBelowTheHighWatermark(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	l := h.open(Config{})
	mustAppend(t, l, pbatch(1, 0, 0, 2)) // 0, 1
	require.EqualValues(t, 2, l.LastStable(2))
	mustAppend(t, l, tbatch(2, 0, 0, 2), tbatch(3, 0, 0, 1), pbatch(1, 0, 2, 1)) // 2 3, 4, 5
	require.EqualValues(t, 2, l.LastStable(6))
	require.EqualValues(t, 1, l.LastStable(1))
	mustAppend(t, l, marker(2, 0, record.ControlAbort, 0)) // 6
	require.EqualValues(t, 2, l.LastStable(6), "its marker is not below the high watermark")
	require.EqualValues(t, 4, l.LastStable(7), "the next open transaction")
	mustAppend(t, l, marker(3, 0, record.ControlCommit, 0)) // 7
	require.EqualValues(t, 4, l.LastStable(7))
	require.EqualValues(t, 8, l.LastStable(8))
	l.SetHighWatermark(8)
	mustAppend(t, l, tbatch(2, 0, 2, 1)) // 8
	require.EqualValues(t, 7, l.LastStable(7), "what ended below the high watermark is forgotten")
	l.logStart.Store(9)
	require.EqualValues(t, 9, l.LastStable(9), "the log start takes the last stable offset along")
	aborted, err := l.AbortedTransactions(0, 100)
	require.NoError(t, err)
	require.Equal(t, []AbortedTransaction{{ProducerID: 2, FirstOffset: 2, LastOffset: 6, LastStable: 4}}, aborted)
	for _, none := range [][2]model.Offset{{7, 100}, {0, 2}} {
		aborted, err = l.AbortedTransactions(none[0], none[1])
		require.NoError(t, err)
		require.Empty(t, aborted)
	}
	require.NoError(t, h.stop())
}

func TestProducersExpireWhenIdleUnlessATransactionIsOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, fsx.NewMem(), "/data")
		h.kill()
		h.opts.Now, h.opts.CheckpointInterval = time.Now, time.Minute
		h.start()
		l := h.open(Config{})
		add := func(b []byte) {
			t.Helper()
			_, err := l.Append(b, 0, time.Now().UnixMilli())
			require.NoError(t, err)
		}
		add(pbatch(1, 0, 0, 1)) // its timestamps are of 1970; that it writes counts
		add(pbatch(2, 0, 0, 1))
		add(tbatch(3, 0, 0, 1))
		time.Sleep(23 * time.Hour)
		add(pbatch(2, 0, 1, 1))
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		known := func(want ...model.ProducerID) {
			t.Helper()
			l.mu.Lock()
			defer l.mu.Unlock()
			require.Equal(t, len(want), l.prods.Len())
			for _, id := range want {
				require.NotNil(t, l.prods.Get(id), "producer %d", id)
			}
		}
		known(2, 3)
		refuse(t, l, model.UnknownProducer, pbatch(1, 0, 1, 1))
		add(marker(3, 0, record.ControlCommit, 0))
		time.Sleep(25 * time.Hour)
		synctest.Wait()
		known(3) // its marker may yet be cut off
		l.SetHighWatermark(l.LogEnd())
		time.Sleep(time.Hour)
		synctest.Wait()
		known()
		require.NoError(t, h.stop())
	})
}

// An append that fails half-way, behind a roll, leaves the producers as they were.
func TestFailedAppendTakesProducersAndAbortedTransactionsBack(t *testing.T) {
	t.Parallel()
	mem := fsx.NewCrashMem()
	in := fsx.NewInject(mem, nil)
	h := newHarness(t, in, "/data")
	cfg := Config{SegmentBytes: 300}
	l := h.open(cfg)
	mustAppend(t, l, tbatch(1, 0, 0, 1), pbatch(2, 0, 0, 1))
	waitStable(t, l)
	before := l.snapshotLocked()
	writes := 0
	in.SetHook(fsx.FailIf(func(op fsx.Op) bool {
		if op.Kind == fsx.OpWrite {
			writes++
		}
		return op.Kind == fsx.OpWrite && writes == 2
	}, syscall.ENOSPC))
	run := [][]byte{marker(1, 0, record.ControlAbort, 0), pbatch(2, 0, 1, 1), tbatch(3, 0, 0, 1), pbatch(2, 0, 2, 1)}
	refuse(t, l, model.StorageFull, run...)
	require.Equal(t, 2, writes)
	in.SetHook(nil)
	require.Equal(t, before, l.snapshotLocked())
	require.EqualValues(t, 0, l.LastStable(2))
	aborted, err := l.AbortedTransactions(0, 100)
	require.NoError(t, err)
	require.Empty(t, aborted)
	mustAppend(t, l, run...)
	aborted, err = l.AbortedTransactions(0, 100)
	require.NoError(t, err)
	require.Equal(t, []AbortedTransaction{{ProducerID: 1, FirstOffset: 0, LastOffset: 2, LastStable: 3}}, aborted)
	require.NoError(t, h.stop())
}

func TestPlainBatchesCostNothingForProducers(t *testing.T) {
	h := newHarness(t, fsx.NewMem(), "/data")
	h.kill()
	h.opts.SyncInterval = time.Hour
	h.start()
	l := h.open(Config{})
	for name, next := range map[string]func(i int32) []byte{
		"plain":      func(int32) []byte { return nil },
		"idempotent": func(i int32) []byte { return pbatch(1, 0, i, 1) },
	} {
		const n = 200
		var all [n][]byte
		for i := range all {
			if all[i] = next(int32(i)); all[i] == nil {
				all[i] = batch(t, record.None, 1)
			}
		}
		var i int
		f := &discard{}
		l.activeLocked().f = f
		allocs := testing.AllocsPerRun(n-2, func() {
			_, err := l.Append(all[i], 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			i++
		})
		require.Zero(t, allocs, name)
	}
	h.kill()
}

// discard is a file that takes writes and has nothing.
type discard struct{ logFile }

func (*discard) WriteAt(b []byte, _ int64) (int, error) { return len(b), nil }
func (*discard) Ready() error                           { return nil }
func (*discard) SyncData() error                        { return nil }
func (*discard) Release() error                         { return nil }
func (*discard) Close() error                           { return nil }
