package log

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/internal/testkit/racing"
	"tidewire/storage/record"
)

// krec is a record as the model of a compacted log knows it.
type krec struct {
	off model.Offset
	ts  int64
	key string
	val string // "" with null: a tombstone
	nul bool
}

// kbatch is one batch that was appended.
type kbatch struct {
	base, last model.Offset
	pid        model.ProducerID
	pepoch     model.ProducerEpoch
	seq        int32
	txn        bool
	marker     *record.ControlType
	recs       []krec
}

// keyed drives a log that is compacted beside the list of all that was appended.
type keyed struct {
	h       *harness
	mem     *fsx.Mem
	in      *fsx.Inject
	l       *Log
	cfg     Config
	now     int64
	clock   atomic.Int64 // now, for the store's goroutines
	batches []kbatch
	start   model.Offset
	point   model.Offset           // nothing at or above it was ever in reach of a pass
	seen    map[model.Offset]int64 // tombstones: when the first pass may have seen them
	passes  int64                  // the latest that any pass was
	floor   model.Offset           // the high watermark at the latest pass
	counts  map[string]int
	unique  int
}

const deleteRetention = 1000

// end may be below start within a truncation.
func (m *keyed) end() model.Offset {
	if n := len(m.batches); n > 0 {
		return m.batches[n-1].last + 1
	}
	return m.start
}

// pass lets time pass.
func (m *keyed) pass(ms int64) {
	m.now += ms
	m.clock.Store(m.now)
}

func (m *keyed) use(mem *fsx.Mem) {
	m.mem, m.in = mem, fsx.NewInject(mem, nil)
	m.h.fs = m.in
}

func (m *keyed) open(t tb) {
	l, err := m.h.store.Open(testID, "events", 0, m.cfg)
	require.NoError(t, err)
	m.l = l
}

func (m *keyed) draw(t *rapid.T) kbatch {
	b := kbatch{base: m.end(), pid: -1, pepoch: -1, seq: -1}
	n := rapid.IntRange(1, 5).Draw(t, "records")
	for i := range n {
		r := krec{off: b.base + model.Offset(i), ts: m.now + int64(rapid.IntRange(-50, 50).Draw(t, "ts")), key: fmt.Sprint("k", rapid.IntRange(0, 7).Draw(t, "key"))}
		if r.nul = rapid.IntRange(0, 4).Draw(t, "tombstone") == 0; !r.nul {
			r.val = fmt.Sprintf("%d%s", m.unique, strings.Repeat("x", rapid.IntRange(0, 60).Draw(t, "pad")))
		}
		m.unique++
		b.recs = append(b.recs, r)
	}
	b.last = b.base + model.Offset(n-1)
	return b
}

func (b *kbatch) encode(t tb, codec record.Codec) []byte {
	x := record.NewBuilder(512)
	if b.pid >= 0 {
		x.SetProducer(b.pid, b.pepoch, b.seq)
	}
	if b.txn {
		x.SetAttributes(record.AttrTransactional)
	}
	for _, r := range b.recs {
		var val []byte
		if !r.nul {
			val = []byte(r.val)
		}
		x.Add(r.ts, []byte(r.key), val, nil)
	}
	out, err := x.Finish(codec)
	require.NoError(t, err)
	return out
}

func (m *keyed) append(t *rapid.T, b kbatch) {
	codec := record.Codec(rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3, 4}).Draw(t, "codec"))
	a, err := m.l.Append(b.encode(t, codec), 0, m.now)
	require.NoError(t, err)
	require.False(t, a.Duplicate)
	require.Equal(t, b.base, a.First)
	m.batches = append(m.batches, b)
}

func (m *keyed) plain(t *rapid.T) { m.append(t, m.draw(t)) }

// derived is what follows from the batches for producers and transactions.
func (m *keyed) derived() expected {
	var out []stored
	for _, b := range m.batches {
		out = append(out, stored{base: b.base, last: b.last, pid: b.pid, pepoch: b.pepoch, seq: b.seq, txn: b.txn, marker: b.marker})
	}
	return derive(out)
}

func (m *keyed) produce(t *rapid.T) {
	e := m.derived()
	pid := model.ProducerID(rapid.IntRange(0, 2).Draw(t, "pid"))
	b := m.draw(t)
	_, inTxn := e.open[pid]
	b.pid, b.pepoch, b.seq = pid, e.epoch[pid], e.nextSeq(pid)
	b.txn = inTxn || rapid.Bool().Draw(t, "transactional")
	m.append(t, b)
}

func (m *keyed) endTxn(t *rapid.T) {
	e := m.derived()
	open := slices.Sorted(maps.Keys(e.open))
	if len(open) == 0 {
		return
	}
	pid := rapid.SampledFrom(open).Draw(t, "pid")
	epoch := e.epoch[pid]
	if rapid.IntRange(0, 3).Draw(t, "bump") == 0 {
		epoch++
	}
	typ := record.ControlType(rapid.IntRange(0, 1).Draw(t, "type"))
	data, err := record.NewBuilder(64).FinishMarker(pid, epoch, record.Marker{Type: typ, Timestamp: m.now})
	require.NoError(t, err)
	_, err = m.l.Append(data, 0, m.now)
	require.NoError(t, err)
	m.batches = append(m.batches, kbatch{base: m.end(), last: m.end(), pid: pid, pepoch: epoch, seq: -1, marker: &typ})
	m.counts[[]string{"abort", "commit"}[typ]]++
}

// burst appends this and that.
func (m *keyed) burst(t *rapid.T) {
	for range rapid.IntRange(1, 8).Draw(t, "burst") {
		switch rapid.IntRange(0, 3).Draw(t, "what") {
		case 0:
			m.plain(t)
		case 1:
			m.endTxn(t)
		default:
			m.produce(t)
		}
	}
}

func (m *keyed) policy() CleanPolicy {
	hw := m.l.StableEnd()
	return CleanPolicy{DeleteRetentionMs: deleteRetention, HighWatermark: hw, LastStable: m.l.LastStable(hw)}
}

// begin notes what a pass may do from now on, whether it succeeds or not.
func (m *keyed) begin(t *rapid.T) CleanPolicy {
	waitStable(t, m.l)
	p := m.policy()
	st := m.l.CleanState(p, m.now)
	require.NoError(t, st.Failed)
	if st.Dirty == 0 {
		require.Equal(t, st.From, st.To)
		return p
	}
	segs := *m.l.segs.Load()
	require.LessOrEqual(t, st.To, segs[len(segs)-1].base)
	require.LessOrEqual(t, st.To, p.LastStable)
	m.passes = m.now
	m.floor = p.HighWatermark
	m.point = max(m.point, st.To)
	for _, b := range m.batches {
		for _, r := range b.recs {
			if _, ok := m.seen[r.off]; !ok && r.nul && r.off < st.To {
				m.seen[r.off] = m.now
			}
		}
	}
	return p
}

func (m *keyed) clean(t *rapid.T) {
	p := m.begin(t)
	before := m.l.CleanState(p, m.now)
	res, err := m.l.Clean(context.Background(), p, m.now)
	require.NoError(t, err)
	require.Equal(t, before.From, res.From)
	require.NoError(t, m.l.Failed())
	if before.Dirty > 0 {
		require.Greater(t, res.To, res.From, "a pass always gets on")
		m.counts["passes"]++
	}
	if res.To < before.To {
		m.counts["the map was full"]++
	}
	m.counts["tombstones gone"] += int(res.Tombstones)
	m.counts["markers gone"] += int(res.Markers)
	m.counts["merged"] += res.Segments - res.Made
	m.verify(t)
	if res.To > res.From {
		m.verifyTight(t, res.To)
	}
}

// verifyTight checks that nothing superseded is left in what is clean.
func (m *keyed) verifyTight(t *rapid.T, to model.Offset) {
	last := map[string]model.Offset{}
	for _, r := range m.read(t, m.start) {
		if r.off < to {
			if was, ok := last[r.key]; ok {
				t.Fatalf("%s is at %d and at %d", r.key, was, r.off)
			}
			last[r.key] = r.off
		}
	}
}

// cleanFailing makes one operation of a pass fail.
func (m *keyed) cleanFailing(t *rapid.T) {
	p := m.begin(t)
	n := rapid.IntRange(1, 160).Draw(t, "operation")
	cause := rapid.SampledFrom([]error{syscall.EIO, syscall.ENOSPC, syscall.EMFILE}).Draw(t, "cause")
	hit := false
	m.in.SetHook(func(op fsx.Op) *fsx.Fault {
		if n--; n == 0 {
			hit = true
			return &fsx.Fault{Err: cause, Short: 10}
		}
		return nil
	})
	_, err := m.l.Clean(context.Background(), p, m.now)
	m.in.SetHook(nil)
	if !hit {
		require.NoError(t, err)
	}
	if err != nil {
		m.counts["pass failed"]++
	}
	if m.l.Failed() != nil {
		require.Error(t, err)
		m.counts["pass latched"]++
		m.verifyReads(t)
		m.restart(t, "kill")
	}
	m.verify(t)
}

// cleanCrashing loses power at some operation of a pass.
func (m *keyed) cleanCrashing(t *rapid.T) {
	p := m.begin(t)
	n, seed := rapid.IntRange(1, 160).Draw(t, "operation"), rapid.Uint64().Draw(t, "seed")
	var after *fsx.Mem
	m.in.SetHook(func(fsx.Op) *fsx.Fault {
		if n--; n == 0 {
			after = m.mem.Crash(seed)
		}
		return nil
	})
	_, err := m.l.Clean(context.Background(), p, m.now)
	require.NoError(t, err)
	m.in.SetHook(nil)
	if after == nil {
		after = m.mem.Crash(seed)
	} else {
		m.counts["power cut in a pass"]++
	}
	end := m.end()
	m.h.kill()
	m.use(after)
	m.h.start()
	m.open(t)
	require.Equal(t, end, m.l.LogEnd(), "all was synced")
	m.verify(t)
	entries, err := m.mem.ReadDir("/data/topics/events-0")
	require.NoError(t, err)
	for _, e := range entries {
		require.False(t, strings.HasSuffix(e.Name, cleanedSuffix) || strings.HasSuffix(e.Name, swapSuffix), e.Name)
	}
}

func (m *keyed) restart(t *rapid.T, how string) {
	stable := m.l.StableEnd()
	switch how {
	case "clean":
		require.NoError(t, m.h.stop())
		stable = m.end()
	case "kill":
		m.h.kill()
		stable = m.end()
	case "power cut":
		after := m.mem.Crash(rapid.Uint64().Draw(t, "seed"))
		m.h.kill()
		m.use(after)
	}
	m.h.start()
	m.open(t)
	require.GreaterOrEqual(t, m.l.LogEnd(), stable, how)
	m.cutTo(m.l.LogEnd())
	m.verify(t)
}

func (m *keyed) cutTo(off model.Offset) {
	for len(m.batches) > 0 && m.batches[len(m.batches)-1].last >= off {
		m.batches = m.batches[:len(m.batches)-1]
	}
	m.point = min(m.point, max(m.end(), m.start))
	maps.DeleteFunc(m.seen, func(o model.Offset, _ int64) bool { return o >= m.end() })
}

// truncate cuts above the high watermark that passes went by, as replication does: below,
// transactions that passes took for aborted would be open again.
func (m *keyed) truncate(t *rapid.T) {
	off := model.Offset(rapid.Int64Range(int64(max(m.start, m.floor)), int64(m.end())).Draw(t, "target"))
	require.NoError(t, m.l.TruncateTo(off))
	m.cutTo(off)
	if m.end() < m.start { // the batch that has the start goes: the log begins anew
		m.batches = nil
	}
	m.verify(t)
}

func (m *keyed) deleteRecords(t *rapid.T) {
	to := model.Offset(rapid.Int64Range(int64(m.start), int64(m.policy().LastStable)).Draw(t, "to"))
	require.NoError(t, m.l.AdvanceLogStart(to))
	m.start = max(m.start, to)
	m.verify(t)
}

// read gives the records without markers, checking each against what was appended.
func (m *keyed) read(t *rapid.T, from model.Offset) []krec {
	byOff := map[model.Offset]krec{}
	for _, b := range m.batches {
		for _, r := range b.recs {
			byOff[r.off] = r
		}
	}
	var out []krec
	d := record.NewDecompressor(1 << 20)
	var it record.Iterator
	for from < m.l.LogEnd() {
		data, err := m.l.Read(nil, from, allOffsets, 600)
		require.NoError(t, err)
		if len(data) == 0 {
			break
		}
		for len(data) > 0 {
			b, rest, err := record.ParseBatch(data)
			require.NoError(t, err)
			require.NoError(t, b.VerifyCRC())
			require.NoError(t, b.Records(d, &it))
			control := b.Header.Attributes.Has(record.AttrControl)
			for it.Next() {
				r := it.Record()
				if r.Offset < from || control {
					continue
				}
				got := krec{r.Offset, r.Timestamp, string(r.Key), string(r.Value), r.Value == nil}
				require.Equal(t, byOff[r.Offset], got)
				out = append(out, got)
			}
			require.NoError(t, it.Err())
			from, data = b.Header.NextOffset(), rest
		}
	}
	return out
}

// aborted are the offsets of records of aborted transactions, and of decided ones' end.
func (m *keyed) abortedOffsets() map[model.Offset]bool {
	out := map[model.Offset]bool{}
	for _, a := range m.derived().aborted {
		for _, b := range m.batches {
			if b.pid == a.ProducerID && b.txn && b.base >= a.FirstOffset && b.last < a.LastOffset {
				for _, r := range b.recs {
					out[r.off] = true
				}
			}
		}
	}
	return out
}

func (m *keyed) verify(t *rapid.T) {
	require.Equal(t, m.end(), m.l.LogEnd())
	require.Equal(t, m.start, m.l.LogStart())
	m.verifyReads(t)
	m.verifyProducers(t)
}

func (m *keyed) verifyReads(t *rapid.T) {
	got := m.read(t, m.start)
	at := map[model.Offset]bool{}
	for i, r := range got {
		require.True(t, i == 0 || got[i-1].off < r.off, "order")
		at[r.off] = true
	}
	aborted := m.abortedOffsets()
	last := map[string]krec{}
	for _, b := range m.batches {
		for _, r := range b.recs {
			if r.off < m.start || aborted[r.off] {
				continue
			}
			if r.off >= m.point {
				require.True(t, at[r.off], "%d was never in reach of a pass", r.off)
			}
			if r.off < m.point {
				last[r.key] = r
			}
		}
	}
	for _, r := range last {
		if since, ok := m.seen[r.off]; r.nul && ok && m.passes >= since+deleteRetention {
			continue
		}
		require.True(t, at[r.off], "%v is the last of its key below %d", r, m.point)
	}
	m.verifyCommitted(t, aborted)
	var all []rec
	for _, r := range got {
		all = append(all, rec{r.off, r.ts, r.val})
	}
	from := model.Offset(rapid.Int64Range(int64(m.start), int64(m.end())).Draw(t, "from"))
	checkSeek(t, m.l, all, rapid.Int64Range(m.now-5000, m.now+100).Draw(t, "seek"), from)
}

// verifyCommitted reads as a consumer of committed records does.
func (m *keyed) verifyCommitted(t *rapid.T, aborted map[model.Offset]bool) {
	byOff := map[model.Offset]kbatch{}
	for _, b := range m.batches {
		for _, r := range b.recs {
			byOff[r.off] = b
		}
	}
	from := model.Offset(rapid.Int64Range(int64(m.start), int64(m.end())).Draw(t, "committed from"))
	list, err := m.l.AbortedTransactions(from, m.end())
	require.NoError(t, err)
	for _, r := range m.read(t, from) {
		b := byOff[r.off]
		dropped := b.txn && slices.ContainsFunc(list, func(a AbortedTransaction) bool {
			return a.ProducerID == b.pid && a.FirstOffset <= b.base && b.last < a.LastOffset
		})
		require.Equal(t, aborted[r.off], dropped, "%d", r.off)
	}
}

func (m *keyed) verifyProducers(t *rapid.T) {
	e := m.derived()
	m.l.mu.Lock()
	defer m.l.mu.Unlock()
	for pid, epoch := range e.epoch {
		p := m.l.prods.Get(pid)
		require.NotNil(t, p, "producer %d", pid)
		require.Equal(t, epoch, p.Epoch)
		if w := e.window[pid]; len(w) > 0 {
			b := p.Last()
			require.NotNil(t, b, "producer %d", pid)
			require.Equal(t, []model.Offset{w[len(w)-1].base, w[len(w)-1].last}, []model.Offset{b.FirstOffset(), b.LastOffset})
			require.Equal(t, w[len(w)-1].seq, b.FirstSequence())
		}
		first, open := e.open[pid]
		require.Equal(t, open, p.TxnFirst >= 0, "producer %d", pid)
		require.True(t, !open || first == p.TxnFirst)
	}
}

// A log that is compacted at any time, with failing files, power cuts, restarts,
// truncations and moving starts, keeps the last record of each key, in order, at its offset,
// tombstones for their time, and what is known of producers and transactions.
func TestACompactedLogKeepsTheLastOfEachKey(t *testing.T) {
	t.Parallel()
	racing.SkipSequential(t)
	counts := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		m := &keyed{counts: counts, seen: map[model.Offset]int64{}}
		m.pass(1_000_000)
		m.h = &harness{t: t, opts: StoreOptions{Dir: "/data", CheckpointInterval: time.Hour}}
		m.h.opts.DedupeBufferBytes = rapid.SampledFrom([]int64{1, 24 * 5, 1 << 20, 1 << 20}).Draw(t, "buffer")
		m.h.opts.Now = func() time.Time { return time.UnixMilli(m.clock.Load()) }
		m.use(fsx.NewCrashMem())
		m.h.start()
		defer func() { m.h.kill() }()
		m.cfg = Config{
			SegmentBytes:       int64(rapid.IntRange(150, 1200).Draw(t, "segment.bytes")),
			IndexIntervalBytes: rapid.IntRange(1, 400).Draw(t, "interval"),
			FileDeleteDelayMs:  -1,
		}
		m.open(t)
		steps := map[string]func(*rapid.T){
			"append": m.burst, "append again": m.burst, "append more": m.burst,
			"clean": m.clean, "clean again": m.clean, "clean later": func(t *rapid.T) {
				m.pass(2 * deleteRetention)
				m.clean(t)
			}, "failing pass": m.cleanFailing, "power cut in a pass": m.cleanCrashing,
			"time":       func(t *rapid.T) { m.pass(rapid.Int64Range(1, 1500).Draw(t, "time")) },
			"checkpoint": func(t *rapid.T) { require.NoError(t, m.h.store.Checkpoint()) },
			"truncate":   m.truncate, "delete records": m.deleteRecords,
			"stop": func(t *rapid.T) { m.restart(t, "clean") },
			"kill": func(t *rapid.T) { m.restart(t, "kill") }, "power cut": func(t *rapid.T) { m.restart(t, "power cut") },
		}
		t.Repeat(steps)
		m.clean(t)
	})
	for _, k := range []string{"abort", "commit", "passes", "the map was full", "tombstones gone", "markers gone", "merged",
		"pass failed", "pass latched", "power cut in a pass"} {
		require.NotZero(t, counts[k], k)
	}
	t.Log(counts)
}
