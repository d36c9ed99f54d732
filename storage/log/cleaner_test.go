package log

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/internal/testkit/racing"
	"tidewire/storage/record"
)

// kv is one record to append; a nil value is a tombstone.
func kv(t tb, l *Log, codec record.Codec, pairs ...any) {
	t.Helper()
	b := record.NewBuilder(256)
	for i := 0; i < len(pairs); i += 2 {
		var val []byte
		if pairs[i+1] != nil {
			val = []byte(pairs[i+1].(string))
		}
		b.Add(100, []byte(pairs[i].(string)), val, []record.Header{{Name: []byte("h"), Value: []byte("x")}})
	}
	out, err := b.Finish(codec)
	require.NoError(t, err)
	_, err = l.Append(out, 0, 0)
	require.NoError(t, err)
}

// seal rolls the active segment by a batch that none of the tests' keys has.
func seal(t tb, l *Log) {
	t.Helper()
	l.mu.Lock()
	require.NoError(t, l.rollLocked(l.LogEnd(), 0))
	l.mu.Unlock()
	kv(t, l, record.None, "active", "x")
	waitStable(t, l)
}

// all is the policy that lets everything synced be compacted.
func all(l *Log) CleanPolicy {
	return CleanPolicy{DeleteRetentionMs: 1000, HighWatermark: l.StableEnd(), LastStable: l.LastStable(l.StableEnd())}
}

func mustClean(t tb, l *Log, now int64) CleanResult {
	t.Helper()
	res, err := l.Clean(context.Background(), all(l), now)
	require.NoError(t, err)
	return res
}

// pairs reads a log as "offset key=value", null as -.
func pairs(t tb, l *Log) []string {
	t.Helper()
	var out []string
	d := record.NewDecompressor(1 << 20)
	var it record.Iterator
	for from := l.LogStart(); from < l.LogEnd(); {
		data, err := l.Read(nil, from, allOffsets, 1<<16)
		require.NoError(t, err)
		require.NotEmpty(t, data, "readers get to the end")
		for len(data) > 0 {
			b, rest, err := record.ParseBatch(data)
			require.NoError(t, err)
			require.NoError(t, b.VerifyCRC())
			require.NoError(t, b.Records(d, &it))
			for it.Next() {
				r := it.Record()
				v := "-"
				if r.Value != nil {
					v = string(r.Value)
				}
				if r.Offset >= from && string(r.Key) != "active" && !b.Header.Attributes.Has(record.AttrControl) {
					out = append(out, fmt.Sprintf("%d %s=%s", r.Offset, r.Key, v))
				}
			}
			require.NoError(t, it.Err())
			from, data = b.Header.NextOffset(), rest
		}
	}
	return out
}

func filesIn(t tb, fsys fsx.FS) []string {
	t.Helper()
	entries, err := fsys.ReadDir("/data/topics/events-0")
	require.NoError(t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name)
	}
	return out
}

func TestCompactionKeepsTheLastValueOfEachKeyAtItsOffset(t *testing.T) {
	t.Parallel()
	for codec := range record.Codec(5) {
		t.Run(codec.String(), func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, fsx.NewMem(), "/data")
			l := h.open(Config{})
			kv(t, l, codec, "a", "1", "b", "2", "a", "3")
			kv(t, l, codec, "c", "", "d", nil, "e", "null")
			seal(t, l)
			kv(t, l, codec, "b", "4", "e", "5")
			kv(t, l, codec, "a", "6")
			seal(t, l)
			kv(t, l, codec, "c", "in the active segment")
			res := mustClean(t, l, 50)
			want := []string{"3 c=", "4 d=-", "7 b=4", "8 e=5", "9 a=6", "11 c=in the active segment"}
			require.Equal(t, want, pairs(t, l), "an empty value is no tombstone")
			require.EqualValues(t, 10, l.segmentBase(1), "the two sealed segments are one")
			require.Equal(t, []int{2, 1}, []int{res.Segments, res.Made})
			require.EqualValues(t, 4, res.Superseded)
			require.NoError(t, h.stop())
			h.start()
			l = h.open(Config{})
			require.Equal(t, want, pairs(t, l))
			require.EqualValues(t, 10, l.CleanState(all(l), 50).From)
			require.NoError(t, h.stop())
		})
	}
}

func (l *Log) segmentBase(i int) model.Offset { return (*l.segs.Load())[i].base }

func TestATombstoneGoesOnceItsDeleteHorizonHasPassed(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	l := h.open(Config{})
	kv(t, l, record.Zstd, "a", "1", "b", "2")
	kv(t, l, record.Zstd, "a", nil, "b", "3")
	seal(t, l)
	for i, x := range []struct {
		now  int64
		kept bool
	}{{50, true}, {60, true}, {1049, true}, {1050, false}} {
		mustClean(t, l, x.now)
		want := []string{"3 b=3"}
		if x.kept {
			want = []string{"2 a=-", "3 b=3"}
		}
		got := slices.DeleteFunc(pairs(t, l), func(s string) bool { return strings.Contains(s, "other") })
		require.Equal(t, want, got, "at %d", x.now)
		kv(t, l, record.None, "other", fmt.Sprint(i)) // or there would be nothing dirty
		seal(t, l)
	}
	require.NoError(t, h.stop())
}

func TestMarkersStayUntilTheirTransactionIsGoneAndTheHorizonHasPassed(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	l := h.open(Config{})
	keyed := func(pid model.ProducerID, seq int32, val string) []byte {
		return sparse{pid: pid, seq: seq, attrs: record.AttrTransactional, recs: []sparseRec{{ts: 10, key: []byte("k"), val: []byte(val)}}}.encode()
	}
	mustAppend(t, l, keyed(1, 0, "committed"), marker(1, 0, record.ControlCommit, 0)) // 0, 1
	mustAppend(t, l, keyed(2, 0, "aborted"), marker(2, 0, record.ControlAbort, 0))    // 2, 3
	seal(t, l)                                                                        // 4
	controls := func() (at []model.Offset) {
		for from := model.Offset(0); from < l.LogEnd(); {
			data, err := l.Read(nil, from, allOffsets, 1)
			require.NoError(t, err)
			b, _, err := record.ParseBatch(data)
			require.NoError(t, err)
			if b.Header.Attributes.Has(record.AttrControl) && b.Header.Count > 0 {
				at = append(at, b.Header.BaseOffset)
			}
			from = b.Header.NextOffset()
		}
		return at
	}
	mustClean(t, l, 10)
	require.Equal(t, []string{"0 k=committed"}, pairs(t, l), "what was aborted is gone, and superseded nothing")
	require.Equal(t, []model.Offset{1, 3}, controls())
	aborted, err := l.AbortedTransactions(0, 4)
	require.NoError(t, err)
	require.Equal(t, []AbortedTransaction{{ProducerID: 2, FirstOffset: 2, LastOffset: 3, LastStable: 4}}, aborted, "carried along with the marker")

	// Newer batches of both producers and of the key: nothing is left of the transactions.
	mustAppend(t, l, keyed(1, 1, "x"), marker(1, 0, record.ControlCommit, 0), keyed(2, 1, "y"), marker(2, 0, record.ControlCommit, 0))
	seal(t, l)
	mustClean(t, l, 100) // the last batches of before are met once more
	require.Equal(t, []model.Offset{1, 3, 6, 8}, controls())
	seal(t, l)
	mustClean(t, l, 200) // horizon: 1200
	require.Equal(t, []model.Offset{1, 3, 6, 8}, controls())
	seal(t, l)
	mustClean(t, l, 1199)
	require.Equal(t, []model.Offset{1, 3, 6, 8}, controls())
	seal(t, l)
	mustClean(t, l, 1200)
	require.Equal(t, []model.Offset{6, 8}, controls(), "6 too: of its producer it is the last transaction")
	aborted, err = l.AbortedTransactions(0, l.LogEnd())
	require.NoError(t, err)
	require.Empty(t, aborted)
	require.NoError(t, h.stop())
}

func TestWhatHoldsCompactionBackIsTold(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	l := h.open(Config{})
	require.Equal(t, CleanState{Hold: HoldActive}, l.CleanState(all(l), 0))
	kv(t, l, record.None, "a", "1")
	seal(t, l)
	size := (*l.segs.Load())[0].size.Load()
	p := all(l)
	st := l.CleanState(p, 1000)
	require.Equal(t, CleanState{To: 1, Dirty: size, Due: true, Hold: HoldActive}, st)
	for hold, edit := range map[CleanHold]func(*CleanPolicy){
		HoldWatermark:   func(p *CleanPolicy) { p.HighWatermark, p.LastStable = 0, 0 },
		HoldTransaction: func(p *CleanPolicy) { p.LastStable = 0 },
		HoldLag:         func(p *CleanPolicy) { p.MinLagMs = 901 },
	} {
		p := all(l)
		edit(&p)
		require.Equal(t, CleanState{Hold: hold}, l.CleanState(p, 1000))
	}
	p.MinLagMs = 900
	require.Equal(t, HoldActive, l.CleanState(p, 1000).Hold, "old enough")

	mustClean(t, l, 0)
	kv(t, l, record.None, "a", strings.Repeat("x", 10))
	seal(t, l)
	p = all(l)
	p.MinDirtyRatio = 0.9
	require.False(t, l.CleanState(p, 1000).Due)
	p.MaxLagMs = 899
	require.True(t, l.CleanState(p, 1000).Due, "too old to wait for the ratio")
	p.MaxLagMs = 900
	require.False(t, l.CleanState(p, 1000).Due)
	require.NoError(t, h.stop())
}

func TestALookAtAnIdleLogAllocatesNothing(t *testing.T) { //nolint:paralleltest // it counts allocations
	h := newHarness(t, fsx.NewMem(), "/data")
	l := dirty(t, h)
	p := all(l)
	p.MinLagMs, p.MaxLagMs = 1, 1
	l.CleanState(p, 1000)
	require.Zero(t, testing.AllocsPerRun(10, func() { l.CleanState(p, 1000) }))
	require.NoError(t, h.stop())
}

func TestAPassCoversWhatTheBufferHoldsAndTheNextGoesOn(t *testing.T) {
	t.Parallel()
	h := &harness{t: t, fs: fsx.NewMem(), opts: StoreOptions{Dir: "/data", CheckpointInterval: time.Hour, DedupeBufferBytes: 24 * 10}}
	h.start()
	l := h.open(Config{SegmentBytes: 400})
	for i := range 60 {
		kv(t, l, record.None, fmt.Sprint("k", i%20), fmt.Sprint(i))
	}
	seal(t, l)
	passes := 0
	for l.CleanState(all(l), 0).Dirty > 0 {
		res := mustClean(t, l, 0)
		require.Greater(t, res.To, res.From)
		passes++
	}
	require.Greater(t, passes, 3, "the buffer has room for 8 keys")
	var want []string
	for i := 40; i < 60; i++ {
		want = append(want, fmt.Sprintf("%d k%d=%d", i, i%20, i))
	}
	require.Equal(t, want, pairs(t, l))
	require.NoError(t, h.stop())
}

// dirty makes a log with much to do in several groups.
func dirty(t tb, h *harness) *Log {
	l := h.open(Config{SegmentBytes: 700, IndexIntervalBytes: 50})
	for i := range 15 {
		kv(t, l, record.Codec(i%5), fmt.Sprint("k", i%7), strings.Repeat("v", 3*i), fmt.Sprint("k", i%3), nil)
	}
	for seq := range int32(2) {
		mustAppend(t, l, tbatch(1, 0, seq, 1), marker(1, 0, record.ControlAbort, 0))
	}
	seal(t, l)
	return l
}

func TestAFailureAtAnyOperationLeavesAWholeLog(t *testing.T) {
	t.Parallel()
	racing.SkipSequential(t)
	for i, cause := range []error{syscall.EIO, syscall.ENOSPC, syscall.EMFILE} {
		for n := 1 + i; ; n += 1 + 4*min(i, 1) { // the first at each, the others here and there
			in := fsx.NewInject(fsx.NewMem(), nil)
			h := newHarness(t, in, "/data")
			l := dirty(t, h)
			want := last(pairs(t, l))
			hit := false
			at := in.Ops() + n
			in.SetHook(func(op fsx.Op) *fsx.Fault {
				if op.N == at {
					hit = true
					return &fsx.Fault{Err: cause, Short: 7}
				}
				return nil
			})
			_, err := l.Clean(context.Background(), all(l), 10)
			in.SetHook(nil)
			require.Equal(t, want, last(pairs(t, l)), "operation %d", n)
			if l.Failed() == nil {
				if err != nil {
					require.False(t, model.HasCode(err, model.CorruptBatch), "%v", err)
				}
				mustClean(t, l, 10)
				require.NoError(t, h.stop())
			} else {
				require.Error(t, err)
				h.kill()
			}
			h.start()
			l = h.open(Config{})
			require.Equal(t, want, last(pairs(t, l)), "operation %d", n)
			for _, f := range filesIn(t, in) {
				require.False(t, strings.HasSuffix(f, cleanedSuffix) || strings.HasSuffix(f, swapSuffix), f)
			}
			mustClean(t, l, 10)
			require.Equal(t, want, last(pairs(t, l)))
			h.kill()
			if !hit {
				require.Greater(t, n, 40, "a pass has many operations")
				break
			}
		}
	}
}

// last keeps of what pairs gives the last of each key.
func last(in []string) []string {
	at := map[string]int{}
	key := func(s string) string { _, kv, _ := strings.Cut(s, " "); k, _, _ := strings.Cut(kv, "="); return k }
	for i, s := range in {
		at[key(s)] = i
	}
	var out []string
	for i, s := range in {
		if at[key(s)] == i && key(s) != "" {
			out = append(out, s)
		}
	}
	return out
}

func TestAPowerCutAtAnyOperationLeavesTheOldSegmentsOrTheNew(t *testing.T) {
	t.Parallel()
	racing.SkipSequential(t)
	for n := 1; ; n++ {
		mem := fsx.NewCrashMem()
		in := fsx.NewInject(mem, nil)
		h := newHarness(t, in, "/data")
		l := dirty(t, h)
		want := last(pairs(t, l))
		at := in.Ops() + n
		var after []*fsx.Mem
		in.SetHook(func(op fsx.Op) *fsx.Fault {
			if op.N == at {
				for seed := range uint64(3) {
					after = append(after, mem.Crash(seed))
				}
			}
			return nil
		})
		mustClean(t, l, 10)
		in.SetHook(nil)
		h.kill()
		for _, m := range after {
			h.fs = m
			h.start()
			l := h.open(Config{})
			require.Equal(t, want, last(pairs(t, l)), "operation %d", n)
			for _, f := range filesIn(t, m) {
				require.False(t, strings.HasSuffix(f, cleanedSuffix) || strings.HasSuffix(f, swapSuffix), f)
			}
			mustClean(t, l, 10)
			require.Equal(t, want, last(pairs(t, l)), "operation %d", n)
			h.kill()
		}
		if after == nil {
			break
		}
	}
}

func TestReadersAndAppendsGoOnWhileSegmentsAreReplaced(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.OS(), path.Join(t.TempDir(), "data"))
	l := h.open(Config{SegmentBytes: 2000, IndexIntervalBytes: 100})
	const keys = 20
	put := func(i int) { kv(t, l, record.Codec(i%5), fmt.Sprint("k", i%keys), fmt.Sprint(i)) }
	for i := range 10 * keys {
		put(i)
	}
	seal(t, l)
	var stop atomic.Bool
	done := make(chan error, 3)
	reader := func() error {
		d := record.NewDecompressor(1 << 20)
		var it record.Iterator
		for !stop.Load() {
			seen := map[string]bool{}
			end := l.LogEnd()
			for from := model.Offset(0); from < l.LogEnd(); { // a key may have moved to behind the present end
				data, err := l.Read(nil, from, allOffsets, 700)
				if err != nil {
					return err
				}
				if len(data) == 0 {
					break
				}
				for len(data) > 0 {
					b, rest, err := record.ParseBatch(data)
					if err == nil {
						err = b.VerifyCRC()
					}
					if err == nil {
						err = b.Records(d, &it)
					}
					if err != nil {
						return err
					}
					for it.Next() {
						seen[string(it.Record().Key)] = true
					}
					from, data = b.Header.NextOffset(), rest
				}
			}
			if len(seen) < keys {
				return fmt.Errorf("a read saw %d keys", len(seen))
			}
			if _, _, _, err := l.OffsetForTimestamp(50, end); err != nil {
				return err
			}
			if _, err := l.AbortedTransactions(0, end); err != nil {
				return err
			}
		}
		return nil
	}
	for range cap(done) {
		h.group.Go("reader", func(context.Context) { done <- reader() })
	}
	made := 0
	for i := range 60 {
		put(i)
		if i%3 == 0 {
			seal(t, l)
		}
		made += mustClean(t, l, 0).Made
	}
	stop.Store(true)
	for range cap(done) {
		require.NoError(t, <-done)
	}
	require.Greater(t, made, 20)
	require.NoError(t, h.stop())
}

func TestAPassEndsAtOnceForWhoNeedsTheLog(t *testing.T) {
	t.Parallel()
	for name, interrupt := range map[string]func(h *harness, l *Log) error{
		"truncation":      func(_ *harness, l *Log) error { return l.TruncateTo(l.LogEnd() - 1) },
		"full truncation": func(_ *harness, l *Log) error { return l.TruncateFullyAndStartAt(7) },
		"removal":         func(h *harness, l *Log) error { return h.store.Remove(l) },
		"close":           func(h *harness, _ *Log) error { return h.store.Close() },
		"cancelled":       nil,
	} {
		for _, read := range []int{1, 3, 5} {
			t.Run(fmt.Sprint(name, read), func(t *testing.T) {
				t.Parallel()
				mem := fsx.NewMem()
				in := fsx.NewInject(mem, nil)
				h := newHarness(t, in, "/data")
				l := dirty(t, h)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				done := make(chan error, 1)
				reads := 0
				in.SetHook(func(op fsx.Op) *fsx.Fault {
					if op.Kind == fsx.OpRead && strings.HasSuffix(op.Path, logSuffix) {
						reads++
					}
					if reads != read {
						return nil
					}
					reads++
					if interrupt == nil {
						cancel()
						done <- nil
						return nil
					}
					h.group.Go("interrupt", func(context.Context) { done <- interrupt(h, l) })
					for held := false; !held; runtime.Gosched() {
						held = l.cleaned.gate.Held()
					}
					return nil
				})
				_, err := l.Clean(ctx, all(l), 0)
				in.SetHook(nil)
				if name == "cancelled" {
					require.ErrorIs(t, err, context.Canceled)
				} else {
					require.True(t, model.HasCode(err, model.LeaderUnavailable), "%v", err)
				}
				require.NoError(t, <-done)
				if name == "removal" {
					l = h.open(Config{})
				}
				for _, f := range filesIn(t, mem) {
					require.False(t, strings.HasSuffix(f, cleanedSuffix) || strings.HasSuffix(f, swapSuffix), f)
				}
				switch name {
				case "close":
					require.NoError(t, h.group.Stop(10*time.Second))
					h.start()
					require.True(t, h.store.found.clean)
					l = h.open(Config{})
				default:
					require.NoError(t, l.Failed())
				}
				kv(t, l, record.None, "a", "1")
				seal(t, l)
				mustClean(t, l, 0)
				require.Contains(t, strings.Join(pairs(t, l), " "), " a=1")
				require.NoError(t, h.stop())
			})
		}
	}
}

func TestDamageStopsCompactionOfThatLogOnly(t *testing.T) {
	t.Parallel()
	mem := fsx.NewMem()
	h := newHarness(t, mem, "/data")
	l := h.open(Config{})
	other, err := h.store.Open(model.TopicID{9}, "other", 0, Config{})
	require.NoError(t, err)
	for _, l := range []*Log{l, other} {
		kv(t, l, record.None, "a", "1")
		kv(t, l, record.None, "a", "2")
		seal(t, l)
	}
	f, err := mem.OpenFile("/data/topics/events-0/"+baseName(0)+logSuffix, fsx.ReadWrite)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{'x'}, 70)
	require.NoError(t, err)
	before := filesIn(t, mem)
	_, err = l.Clean(context.Background(), all(l), 0)
	require.True(t, model.HasCode(err, model.CorruptBatch), "%v", err)
	require.Equal(t, before, filesIn(t, mem))
	require.NoError(t, l.Failed(), "the log is served as before")
	st := l.CleanState(all(l), 0)
	require.Error(t, st.Failed)
	require.False(t, st.Due)
	_, err = l.Clean(context.Background(), all(l), 0)
	require.Error(t, err)
	mustClean(t, other, 0)
	require.Equal(t, []string{"1 a=2"}, pairs(t, other))
	require.NoError(t, l.AdvanceLogStart(2))
	require.NoError(t, l.CleanState(all(l), 0).Failed, "what was damaged is gone")
	require.NoError(t, h.stop())
}

// bomb is a zstd frame of 4 GiB of zeros in 128 KiB: blocks that repeat one byte.
func bomb() []byte {
	out := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x68} // no length, window of 8 MiB
	const block = 128 << 10
	for i := range 4 << 30 / block {
		head := uint32(block)<<3 | 1<<1
		if i == 4<<30/block-1 {
			head |= 1
		}
		out = append(out, byte(head), byte(head>>8), byte(head>>16), 0)
	}
	return out
}

func TestABatchThatInflatesTooFarIsRefusedWithinBounds(t *testing.T) { //nolint:paralleltest // it looks at the memory of the process
	h := &harness{t: t, fs: fsx.NewMem(), opts: StoreOptions{Dir: "/data", CheckpointInterval: time.Hour, MaxInflate: 4 << 20}}
	h.start()
	l := h.open(Config{})
	b := record.NewBuilder(100)
	b.Add(1, []byte("k"), nil, nil)
	plain, err := b.Finish(record.None)
	require.NoError(t, err)
	batch := slices.Concat(plain[:record.HeaderSize], bomb())
	batch[11], batch[10], batch[9], batch[8] = byte(len(batch)-12), byte((len(batch)-12)>>8), byte((len(batch)-12)>>16), byte((len(batch)-12)>>24)
	batch[22] = byte(record.Zstd)
	record.SetMaxTimestamp(batch, 1) // and the CRC
	_, err = l.Append(batch, 0, 0)
	require.NoError(t, err)
	seal(t, l)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = l.Clean(context.Background(), all(l), 0)
	runtime.ReadMemStats(&after)
	require.True(t, model.HasCode(err, model.RecordTooLarge), "%v", err)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
	require.Error(t, l.CleanState(all(l), 0).Failed)
	got, err := l.Read(nil, 0, 1, math.MaxInt32)
	require.NoError(t, err)
	require.True(t, bytes.Equal(batch[record.HeaderSize:], got[record.HeaderSize:]), "kept as it is")
	require.NoError(t, h.stop())
}

func TestALostCleanerCheckpointMeansToBeginAnew(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*fsx.Mem) error{
		"missing": func(m *fsx.Mem) error { return m.Remove("/data/cleaner") },
		"damaged": func(m *fsx.Mem) error {
			f, err := m.OpenFile("/data/cleaner", fsx.ReadWrite)
			if err == nil {
				_, err = f.WriteAt([]byte("9"), 40)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mem := fsx.NewMem()
			h := newHarness(t, mem, "/data")
			l := dirty(t, h)
			mustClean(t, l, 0)
			require.NoError(t, h.stop())
			require.NoError(t, spoil(mem))
			h.start()
			require.True(t, h.store.found.clean, "it is not needed for a clean start")
			l = h.open(Config{})
			require.Zero(t, l.CleanState(all(l), 0).From)
			want := pairs(t, l)
			mustClean(t, l, 0)
			require.Equal(t, want, pairs(t, l))
			require.NoError(t, h.stop())
		})
	}
}

// What is appended at the offsets of what was clean is dirty, also when the power goes
// before the next pass.
func TestATruncationMakesWhatFollowsDirtyDurably(t *testing.T) {
	t.Parallel()
	mem := fsx.NewCrashMem()
	h := newHarness(t, mem, "/data")
	l := dirty(t, h)
	mustClean(t, l, 0)
	point := l.CleanState(all(l), 0).From
	require.Positive(t, point)
	require.NoError(t, l.TruncateTo(point-5))
	end := l.LogEnd()
	require.Less(t, end, point)
	for range 30 {
		kv(t, l, record.None, "a", "1")
	}
	waitStable(t, l)
	c := mem.Crash(1)
	h.kill()
	h.fs = c
	h.start()
	l = h.open(Config{})
	require.LessOrEqual(t, l.CleanState(all(l), 0).From, end)
	require.NoError(t, h.stop())
}
