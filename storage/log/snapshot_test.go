package log

import (
	"encoding/hex"
	"math/rand/v2"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/producer"
	"tidewire/storage/record"
)

func fromHex(t *testing.T, lines ...string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(strings.Join(lines, ""), " ", ""))
	require.NoError(t, err)
	return b
}

func fileBytes(t *testing.T, fsys fsx.FS, name string) []byte {
	t.Helper()
	b, err := fsx.ReadFile(fsys, path.Join(logDir, name), 1<<20)
	require.NoError(t, err)
	return b
}

// The bytes of docs/formats.md: what a clean stop leaves of two producers, one with an open
// transaction, one that aborted one.
func TestSnapshotTxnIndexAndMarkerHaveTheDocumentedBytes(t *testing.T) {
	t.Parallel()
	mem := fsx.NewMem()
	h := newHarness(t, mem, "/data")
	l := h.open(Config{})
	mustAppend(t, l, tbatch(7, 3, 0, 2), tbatch(258, 1, 0, 1))  // 0 1, 2
	mustAppend(t, l, marker(7, 3, record.ControlAbort, 6))      // 3
	mustAppend(t, l, pbatch(7, 3, 2, 1), pbatch(7, 3, 3, 2))    // 4, 5 6
	mustAppend(t, l, marker(9, 0, record.ControlCommit, 1<<16)) // 7
	require.NoError(t, l.MarkCompacted())
	require.NoError(t, h.stop())

	require.Equal(t, fromHex(t, "0000", // version
		"0000000000000007", // producer id
		"0000000000000000", // first offset
		"0000000000000003", // last offset: of the marker
		"0000000000000002", // last stable offset: producer 258 is still open
	), fileBytes(t, mem, "00000000000000000000.txnindex"))
	require.Equal(t, "tidewire-compacted 1\ncrc32c 59995d2b\n", string(fileBytes(t, mem, "compacted")))
	got := fileBytes(t, mem, "00000000000000000008.snapshot")
	want := fromHex(t, "0001", "3d8a2232", // version, CRC (by another implementation)
		"00000003", // producers
		"0000000000000007 0003 00000004 0000000000000006 00000001 00000000000003e9 00000006 ffffffffffffffff",
		"0000000000000009 0000 ffffffff ffffffffffffffff 00000000 0000000000001388 00010000 ffffffffffffffff",
		"0000000000000102 0001 00000000 0000000000000002 00000000 00000000000003e8 ffffffff 0000000000000002",
		"54575053", "00000004", // trailer, batches
		"0000000000000007 00000001 0000000000000001 00000001 00000000000003e9",
		"0000000000000007 00000002 0000000000000004 00000000 00000000000003e8",
		"0000000000000007 00000004 0000000000000006 00000001 00000000000003e9",
		"0000000000000102 00000000 0000000000000002 00000000 00000000000003e8",
		"00000001",                           // indexes of aborted transactions
		"0000000000000000 00000001 eb20b7ba", // base of the segment, entries, their CRC
	)
	require.Equal(t, hex.EncodeToString(want), hex.EncodeToString(got))
}

// producerLog has producers in several segments: aborted and committed transactions, one
// that is open over segments, and retries to find.
func producerLog(t *testing.T, h *harness, l *Log) []byte {
	t.Helper()
	mustAppend(t, l, tbatch(50, 0, 0, 1))
	for i := range int32(40) {
		mustAppend(t, l, pbatch(1, 0, i, 1), tbatch(2, 0, i, 1))
		mustAppend(t, l, marker(2, 0, record.ControlType(i%2), 0))
	}
	l.SetHighWatermark(l.LogEnd())
	waitStable(t, l)
	return l.snapshotLocked()
}

func checkProducers(t *testing.T, l *Log, want []byte, aborted []AbortedTransaction) {
	t.Helper()
	require.Equal(t, hex.EncodeToString(want), hex.EncodeToString(l.snapshotLocked()))
	require.EqualValues(t, 0, l.LastStable(l.LogEnd()))
	got, err := l.AbortedTransactions(0, l.LogEnd())
	require.NoError(t, err)
	require.Equal(t, aborted, got)
}

func TestMissingOrDamagedSnapshotsAndTxnIndexesAreRebuilt(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	damage := map[string]func(*testing.T, *fsx.Mem, string){
		"gone":  func(t *testing.T, m *fsx.Mem, n string) { require.NoError(t, m.Remove(n)) },
		"empty": func(t *testing.T, m *fsx.Mem, n string) { truncate(t, m, n, 0) },
		"cut":   func(t *testing.T, m *fsx.Mem, n string) { truncate(t, m, n, fileSize(t, m, n)-1) },
		"an entry": func(t *testing.T, m *fsx.Mem, n string) {
			truncate(t, m, n, fileSize(t, m, n)-producer.AbortedEntrySize)
		},
		"flipped":   func(t *testing.T, m *fsx.Mem, n string) { flip(t, m, n, rng.Int64N(fileSize(t, m, n)), 1<<rng.IntN(8)) },
		"untouched": func(*testing.T, *fsx.Mem, string) {},
	}
	for what, fn := range damage {
		for _, suffixes := range [][]string{{snapshotSuffix}, {txnIndexSuffix}, {snapshotSuffix, txnIndexSuffix}} {
			for _, stop := range []func(*harness){cleanStop, checkpointed, killed} {
				mem := fsx.NewMem()
				h := newHarness(t, mem, "/data")
				cfg := Config{SegmentBytes: 1000}
				l := h.open(cfg)
				want := producerLog(t, h, l)
				require.Greater(t, l.Segments(), 5)
				aborted, err := l.AbortedTransactions(0, l.LogEnd())
				require.NoError(t, err)
				require.Len(t, aborted, 20)
				stop(h)
				entries, err := mem.ReadDir(logDir)
				require.NoError(t, err)
				touched := 0
				for _, e := range entries {
					for _, s := range suffixes {
						if path.Ext(e.Name) == s && e.Size >= producer.AbortedEntrySize {
							fn(t, mem, path.Join(logDir, e.Name))
							touched++
						}
					}
				}
				require.Greater(t, touched, 3)
				for range 2 {
					h.start()
					l = h.open(cfg)
					checkProducers(t, l, want, aborted)
					require.True(t, mustAppend(t, l, pbatch(1, 0, 35, 1)).Duplicate, what)
					stop(h)
				}
				// The sealed segments' files are there again.
				h.start()
				entries, err = mem.ReadDir(logDir)
				require.NoError(t, err)
				for _, e := range entries {
					if path.Ext(e.Name) == snapshotSuffix {
						off, _ := parseBase(e.Name, snapshotSuffix)
						_, err := producer.DecodeSnapshot(fileBytes(t, mem, e.Name), off)
						if err != nil {
							require.NotEqual(t, "untouched", what)
						}
					}
				}
				require.NoError(t, h.stop())
			}
		}
	}
}

func TestTruncationTakesProducersAndAbortedTransactionsBack(t *testing.T) {
	t.Parallel()
	for _, off := range []model.Offset{1, 2, 30, 61, 90, 119} {
		mem := fsx.NewCrashMem()
		h := newHarness(t, mem, "/data")
		cfg := Config{SegmentBytes: 1000}
		l := h.open(cfg)
		producerLog(t, h, l)
		require.NoError(t, h.store.Checkpoint())
		require.NoError(t, l.TruncateTo(off))

		// A log to which no more was ever appended.
		h2 := newHarness(t, fsx.NewMem(), "/data")
		other := h2.open(cfg)
		for rest := readAll(t, l); len(rest) > 0; {
			b, more, err := record.ParseBatch(rest)
			require.NoError(t, err)
			mustAppend(t, other, b.Bytes)
			rest = more
		}
		aborted, err := other.AbortedTransactions(0, off)
		require.NoError(t, err)
		same := func() {
			t.Helper()
			require.Equal(t, other.LogEnd(), l.LogEnd())
			checkProducers(t, l, other.snapshotLocked(), aborted)
		}
		same()
		h.fs = mem.Crash(uint64(off))
		h.kill()
		h.start()
		l = h.open(cfg)
		same()
		require.NoError(t, h.stop())
		h.start()
		l = h.open(cfg)
		same()
		require.NoError(t, l.TruncateFullyAndStartAt(77))
		for range 2 {
			require.EqualValues(t, 77, l.LastStable(77))
			refuse(t, l, model.UnknownProducer, pbatch(1, 0, 5, 1))
			aborted, err := l.AbortedTransactions(0, 1000)
			require.NoError(t, err)
			require.Empty(t, aborted)
			h.kill()
			h.start()
			l = h.open(cfg)
		}
		require.NoError(t, h.stop())
		require.NoError(t, h2.stop())
	}
}

func readAll(t *testing.T, l *Log) []byte {
	t.Helper()
	var out []byte
	for from := l.LogStart(); from < l.LogEnd(); {
		data, err := l.Read(nil, from, allOffsets, 1<<20)
		require.NoError(t, err)
		out = append(out, data...)
		for len(data) > 0 {
			b, rest, err := record.ParseBatch(data)
			require.NoError(t, err)
			from, data = b.Header.NextOffset(), rest
		}
	}
	return out
}

// After a clean stop a log of a thousand segments is opened without its .log files being
// read, but for the tail of the last.
func TestCleanStartReadsTheProducersSnapshotAndNotTheLog(t *testing.T) {
	t.Parallel()
	in := fsx.NewInject(fsx.NewMem(), nil)
	h := newHarness(t, in, "/data")
	cfg := Config{SegmentBytes: 60}
	l := h.open(cfg)
	for i := range int32(1000) {
		mustAppend(t, l, pbatch(1, 0, i, 1))
	}
	require.Equal(t, 1000, l.Segments())
	waitStable(t, l)
	require.NoError(t, h.stop())
	logs, snaps := map[string]int{}, 0
	in.SetHook(func(op fsx.Op) *fsx.Fault {
		switch {
		case op.Kind == fsx.OpRead && path.Ext(op.Path) == logSuffix:
			logs[op.Path]++
		case op.Kind == fsx.OpRead && path.Ext(op.Path) == snapshotSuffix:
			snaps++
		}
		return nil
	})
	h.start()
	l = h.open(cfg)
	in.SetHook(nil)
	require.LessOrEqual(t, len(logs), 1, "%v", logs)
	require.Equal(t, 1, snaps)
	require.True(t, mustAppend(t, l, pbatch(1, 0, 996, 1)).Duplicate)
	require.NoError(t, h.stop())
}

// A snapshot of what was cut off must not be met by a later truncation above its offset.
func TestSnapshotsOfWhatWasCutAreGone(t *testing.T) {
	t.Parallel()
	mem := fsx.NewMem()
	h := newHarness(t, mem, "/data")
	l := h.open(Config{})
	for i := range int32(10) {
		mustAppend(t, l, pbatch(1, 0, i, 1))
	}
	require.NoError(t, h.stop()) // leaves a snapshot at 10
	h.start()
	l = h.open(Config{})
	require.NoError(t, l.TruncateTo(4))
	for i := range int32(9) {
		mustAppend(t, l, pbatch(2, 0, i, 1))
	}
	require.NoError(t, l.TruncateTo(11))
	a := mustAppend(t, l, pbatch(1, 0, 4, 1))
	require.False(t, a.Duplicate)
	require.True(t, mustAppend(t, l, pbatch(2, 0, 6, 1)).Duplicate)
	refuse(t, l, model.OutOfOrderSequence, pbatch(2, 0, 8, 1))
	require.NoError(t, h.stop())
}

// An abort marker behind the snapshot of a clean stop is synced with its segment, which is
// then sealed; when the process is killed before the next sync, the entry of the marker was
// in memory only.
func TestAnAbortedTransactionBehindASnapshotSurvivesAKillAfterTheRoll(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	cfg := Config{SegmentBytes: 300}
	l := h.open(cfg)
	mustAppend(t, l, tbatch(1, 0, 0, 1)) // 0
	require.NoError(t, h.stop())         // leaves a snapshot at 1, within the segment
	h.opts.SyncInterval = time.Hour      // nothing is synced that nobody waits for
	h.start()
	l = h.open(cfg)
	mustAppend(t, l, marker(1, 0, record.ControlAbort, 0)) // 1
	waitStable(t, l)
	require.NoError(t, h.store.Checkpoint())
	for l.Segments() == 1 {
		mustAppend(t, l, batch(t, record.None, 1))
		if l.Segments() == 1 {
			waitStable(t, l)
			require.NoError(t, h.store.Checkpoint())
		}
	}
	want, err := l.AbortedTransactions(0, 100)
	require.NoError(t, err)
	require.Len(t, want, 1)
	h.kill()
	h.start()
	got, err := h.open(cfg).AbortedTransactions(0, 100)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.NoError(t, h.stop())
}

func TestSnapshotBelowTheFirstSegmentIsIgnored(t *testing.T) {
	t.Parallel()
	mem := fsx.NewMem()
	h := newHarness(t, mem, "/data")
	l := h.open(Config{})
	mustAppend(t, l, pbatch(1, 0, 0, 1), pbatch(1, 0, 1, 1))
	old := l.snapshotLocked()
	require.NoError(t, l.TruncateFullyAndStartAt(60))
	for _, stop := range []func(*harness){killed, cleanStop} {
		stop(h)
		name := path.Join(logDir, baseName(40)+snapshotSuffix)
		require.NoError(t, fsx.WriteFile(mem, name, old))
		h.start()
		l = h.open(Config{})
		refuse(t, l, model.UnknownProducer, pbatch(1, 0, 2, 1))
		_, err := mem.Stat(name)
		require.Error(t, err, "and removed")
	}
	require.NoError(t, h.stop())
}
