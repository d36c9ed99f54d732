package log

import (
	"context"
	"path"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/dedupe"
)

// keyedBatch is a slice of records with keys, stored under an idempotency key.
func keyedBatch(n byte, time int64, keys ...string) []byte {
	s := sparse{plain: true, lastDelta: int32(len(keys) - 1), stamp: &dedupe.Stamp{Key: onceKey(n), Time: time, Partitions: 1, Count: int32(len(keys))}}
	for i, k := range keys {
		s.recs = append(s.recs, sparseRec{delta: int32(i), ts: 1000, key: []byte(k), val: []byte("value")})
	}
	return s.encode()
}

func appendKeyed(t *testing.T, l *Log, n byte, keys ...string) {
	t.Helper()
	_, err := l.Append(keyedBatch(n, 0, keys...), 1, 0)
	require.NoError(t, err)
}

// knows requires that a key was stored at an offset; −1: that it is not known.
func knows(t *testing.T, l *Log, n byte, base model.Offset) {
	t.Helper()
	e, ok := l.FindKey(onceKey(n), 0)
	require.Equal(t, base >= 0, ok, "key %d", n)
	if ok {
		require.Equal(t, base, e.Base, "key %d", n)
	}
}

func TestKeysOutliveCompactionAndAKill(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	cfg := Config{SegmentBytes: 300, DedupeWindowMs: 1 << 42}
	l := h.open(cfg)
	for n := range byte(6) {
		appendKeyed(t, l, n+1, "a", "b") // of which compaction leaves the last
	}
	waitStable(t, l)
	l.SetHighWatermark(l.StableEnd())
	res, err := l.Clean(context.Background(), all(l), 0)
	require.NoError(t, err)
	require.Positive(t, res.Superseded)
	h.kill()
	h.start()
	l = h.open(cfg)
	for n := range byte(6) {
		knows(t, l, n+1, model.Offset(2*n))
	}
	require.NoError(t, h.stop())
}

func TestAPowerCutTakesTheKeysOfLostRecords(t *testing.T) {
	t.Parallel()
	mem := fsx.NewCrashMem()
	h := newHarness(t, mem, "/data")
	h.kill()
	h.opts.SyncInterval = time.Hour // so that nothing is synced unasked
	h.start()
	cfg := Config{DedupeWindowMs: 1 << 42}
	l := h.open(cfg)
	appendKeyed(t, l, 1, "a")
	waitStable(t, l)
	require.NoError(t, h.store.Checkpoint())
	log := l
	appendKeyed(t, log, 2, "b")
	require.NoError(t, log.saveKeys()) // the file reaches beyond what is synced
	var after *fsx.Mem
	for seed := uint64(0); after == nil; seed++ {
		require.Less(t, seed, uint64(1000), "the second batch is synced")
		c := mem.Crash(seed)
		b, err := fsx.ReadFile(c, path.Join(logDir, baseName(0)+logSuffix), 1<<20)
		require.NoError(t, err)
		if len(b) == len(keyedBatch(1, 0, "a")) {
			after = c
		}
	}
	h.kill()
	h.fs = after
	h.start()
	l = h.open(cfg)
	knows(t, l, 1, 0)
	knows(t, l, 2, -1)
	appendKeyed(t, l, 3, "c") // at the offset of what was lost
	waitStable(t, l)
	require.NoError(t, h.store.Checkpoint())
	h.kill()
	h.start()
	l = h.open(cfg)
	knows(t, l, 2, -1)
	knows(t, l, 3, 1)
	require.NoError(t, h.stop())
}

func TestADamagedFileOfKeysIsRebuilt(t *testing.T) {
	t.Parallel()
	for _, clean := range []bool{true, false} {
		mem := fsx.NewMem()
		h := newHarness(t, mem, "/data")
		cfg := Config{SegmentBytes: 300, DedupeWindowMs: 1 << 42}
		l := h.open(cfg)
		for n := range byte(6) {
			appendKeyed(t, l, n+1, "a", "b")
		}
		waitStable(t, l)
		require.NoError(t, h.store.Checkpoint())
		if clean {
			require.NoError(t, h.stop())
		} else {
			h.kill()
		}
		flip(t, mem, path.Join(logDir, dedupe.FileName), 13, 1)
		h.start()
		l = h.open(cfg)
		for n := range byte(6) {
			knows(t, l, n+1, model.Offset(2*n))
		}
		require.NoError(t, l.saveKeys())
		b, err := fsx.ReadFile(mem, path.Join(logDir, dedupe.FileName), 1<<20)
		require.NoError(t, err)
		entries, _, err := dedupe.Decode(b)
		require.NoError(t, err, "it is written anew")
		require.Len(t, entries, 6)
		require.NoError(t, h.stop())
	}
}

func TestFurtherKeysAreRefusedWhereMemoryEnds(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	require.NoError(t, h.stop())
	h.opts.KeyMemory = 2 * dedupe.EntryBytes
	h.start()
	l := h.open(Config{DedupeWindowMs: 100})
	appendKeyed(t, l, 1, "a")
	appendKeyed(t, l, 2, "a")
	_, err := l.Append(keyedBatch(3, 0, "a"), 1, 0)
	require.True(t, model.HasCode(err, model.RateLimited), "%v", err)
	require.EqualValues(t, 2, l.LogEnd(), "nothing was appended")
	knows(t, l, 1, 0)
	follower := keyedBatch(3, 0, "a")
	s := sparse{plain: true, base: 2, epoch: 1, stamp: &dedupe.Stamp{Key: onceKey(3), Partitions: 1, Count: 1}, recs: []sparseRec{{ts: 1, val: []byte("x")}}}
	_, err = l.AppendReplica(s.encode(), false, 0)
	require.NoError(t, err, "a follower takes what its leader took")
	_, err = l.Append(follower, 1, 100)
	require.NoError(t, err, "older ones are forgotten by then")
	require.NoError(t, h.stop())
}

func TestWithoutRoomForTheFileNothingIsStoredUnderAKey(t *testing.T) {
	t.Parallel()
	mem := fsx.NewMem()
	in := fsx.NewInject(mem, nil)
	h := newHarness(t, in, "/data")
	l := h.open(Config{})
	in.SetHook(func(op fsx.Op) *fsx.Fault {
		if path.Base(op.Path) == dedupe.FileName+".tmp" && op.Kind == fsx.OpWrite {
			return &fsx.Fault{Err: syscall.ENOSPC}
		}
		return nil
	})
	_, err := l.Append(keyedBatch(1, 0, "a"), 1, 0)
	require.True(t, model.HasCode(err, model.StorageFull), "%v", err)
	require.Zero(t, l.LogEnd())
	in.SetHook(nil)
	_, err = l.Append(batch(t, 0, 1), 1, 0)
	require.NoError(t, err)
	appendKeyed(t, l, 1, "a")
	require.NoError(t, h.stop())
}
