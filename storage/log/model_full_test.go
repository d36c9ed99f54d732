package log

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// stored is one batch as the model keeps it.
type stored struct {
	base, last model.Offset
	epoch      model.LeaderEpoch
	pid        model.ProducerID // -1 none
	pepoch     model.ProducerEpoch
	seq        int32
	txn        bool
	marker     *record.ControlType
	recs       []rec
}

// expected is what follows from a list of batches, worked out in plain maps.
type expected struct {
	epoch   map[model.ProducerID]model.ProducerEpoch
	window  map[model.ProducerID][]stored
	open    map[model.ProducerID]model.Offset
	aborted []AbortedTransaction
}

func derive(batches []stored) expected {
	e := expected{map[model.ProducerID]model.ProducerEpoch{}, map[model.ProducerID][]stored{}, map[model.ProducerID]model.Offset{}, nil}
	for _, b := range batches {
		if b.pid < 0 {
			continue
		}
		if old, ok := e.epoch[b.pid]; !ok || old != b.pepoch {
			e.window[b.pid] = nil
		}
		e.epoch[b.pid] = b.pepoch
		if b.marker == nil {
			e.window[b.pid] = append(e.window[b.pid], b)
			e.window[b.pid] = e.window[b.pid][max(0, len(e.window[b.pid])-5):]
			if _, ok := e.open[b.pid]; b.txn && !ok {
				e.open[b.pid] = b.base
			}
			continue
		}
		first, ok := e.open[b.pid]
		delete(e.open, b.pid)
		if ok && *b.marker == record.ControlAbort {
			stable := b.last + 1
			for _, f := range e.open {
				stable = min(stable, f)
			}
			e.aborted = append(e.aborted, AbortedTransaction{ProducerID: b.pid, FirstOffset: first, LastOffset: b.last, LastStable: stable})
		}
	}
	return e
}

func (e expected) nextSeq(pid model.ProducerID) int32 {
	if w := e.window[pid]; len(w) > 0 {
		b := w[len(w)-1]
		return b.seq + int32(b.last-b.base) + 1
	}
	return 0
}

// full drives a log through everything it can do, beside a list of batches.
type full struct {
	h       *harness
	mem     *fsx.Mem
	in      *fsx.Inject
	l       *Log
	cfg     Config
	start   model.Offset
	batches []stored
	epoch   model.LeaderEpoch
	counts  map[string]int
	next    int // for unique values
}

func (m *full) end() model.Offset {
	if n := len(m.batches); n > 0 {
		return m.batches[n-1].last + 1
	}
	return m.start
}

func (m *full) use(mem *fsx.Mem) {
	m.mem, m.in = mem, fsx.NewInject(mem, nil)
	m.h.fs = m.in
}

func (m *full) open(t tb) {
	l, err := m.h.store.Open(testID, "events", 0, m.cfg)
	require.NoError(t, err)
	m.l = l
}

// draw makes a batch at base that spans n offsets, of which sparse leaves some out.
func (m *full) draw(t *rapid.T, base model.Offset, sparseBatch bool) (stored, sparse) {
	n := rapid.IntRange(1, 4).Draw(t, "records")
	b := stored{base: base, last: base + model.Offset(n-1), epoch: m.epoch, pid: -1, pepoch: -1, seq: -1}
	s := sparse{base: base, epoch: m.epoch, lastDelta: int32(n - 1), plain: true}
	for i := range n {
		if sparseBatch && rapid.IntRange(0, 2).Draw(t, "left out") == 0 {
			continue
		}
		ts := rapid.Int64Range(0, 300).Draw(t, "ts")
		val := fmt.Sprintf("%d-%0*d", m.next, rapid.IntRange(0, 100).Draw(t, "pad"), 0)
		m.next++
		b.recs = append(b.recs, rec{base + model.Offset(i), ts, val})
		s.recs = append(s.recs, sparseRec{delta: int32(i), ts: ts, val: []byte(val)})
	}
	return b, s
}

func (b *stored) by(s *sparse, pid model.ProducerID, epoch model.ProducerEpoch, seq int32) {
	b.pid, b.pepoch, b.seq = pid, epoch, seq
	s.pid, s.pepoch, s.seq, s.plain = pid, epoch, seq, false
}

func (m *full) leader(t tb, data []byte, code model.Code) Appended {
	t.Helper()
	a, err := m.l.Append(data, m.epoch, 0)
	if code == "" {
		require.NoError(t, err)
	} else {
		require.True(t, model.HasCode(err, code), "wanted %s: %v", code, err)
		require.Equal(t, m.end(), m.l.LogEnd())
	}
	return a
}

func (m *full) plain(t *rapid.T) {
	b, s := m.draw(t, m.end(), false)
	m.leader(t, s.encode(), "")
	m.batches = append(m.batches, b)
}

func (m *full) pid(t *rapid.T) model.ProducerID {
	return model.ProducerID(rapid.IntRange(0, 3).Draw(t, "pid"))
}

// produce appends a producer's next batch, in a transaction or not, sometimes in a new
// epoch, by a leader or as a replica.
func (m *full) produce(t *rapid.T) {
	e, pid := derive(m.batches), m.pid(t)
	b, s := m.draw(t, m.end(), false)
	_, inTxn := e.open[pid]
	pepoch, seq := e.epoch[pid], e.nextSeq(pid)
	if !inTxn && rapid.IntRange(0, 5).Draw(t, "new epoch") == 0 {
		pepoch, seq = pepoch+1, 0
	}
	b.by(&s, pid, pepoch, seq)
	if b.txn = inTxn || rapid.Bool().Draw(t, "transactional"); b.txn {
		s.attrs = record.AttrTransactional
		m.counts["transaction"]++
	}
	if rapid.Bool().Draw(t, "replica") {
		_, err := m.l.AppendReplica(s.encode(), false, 0)
		require.NoError(t, err)
	} else {
		require.False(t, m.leader(t, s.encode(), "").Duplicate)
	}
	m.batches = append(m.batches, b)
}

// misuse sends what must not be appended.
func (m *full) misuse(t *rapid.T) {
	e, pid := derive(m.batches), m.pid(t)
	_, s := m.draw(t, 0, false)
	epoch, known := e.epoch[pid]
	send := func(what string, pepoch model.ProducerEpoch, seq int32, code model.Code) {
		var b stored
		b.by(&s, pid, pepoch, seq)
		s.attrs = record.AttrTransactional
		m.leader(t, s.encode(), code)
		m.counts[what]++
	}
	switch {
	case !known:
		send("unknown", 0, 3, model.UnknownProducer)
		return
	case epoch > 0:
		send("fenced", epoch-1, 0, model.Fenced)
	}
	send("out of order", epoch, e.nextSeq(pid)+1, model.OutOfOrderSequence)
	send("out of order", epoch+1, 1, model.OutOfOrderSequence)
}

func (m *full) retry(t *rapid.T) {
	e, pid := derive(m.batches), m.pid(t)
	for _, old := range e.window[pid] {
		s := sparse{pid: pid, pepoch: old.pepoch, seq: old.seq, lastDelta: int32(old.last - old.base)}
		for i := range int(old.last-old.base) + 1 {
			s.recs = append(s.recs, sparseRec{delta: int32(i), ts: 7, val: []byte("again")})
		}
		a := m.leader(t, s.encode(), "")
		require.True(t, a.Duplicate)
		require.Equal(t, []model.Offset{old.base, old.last}, []model.Offset{a.First, a.Last})
		top := int64(0)
		for _, r := range old.recs {
			top = max(top, r.ts)
		}
		require.Equal(t, top, a.MaxTimestamp)
		require.Equal(t, m.end(), m.l.LogEnd())
		m.counts["duplicate"]++
	}
}

func (m *full) endTxn(t *rapid.T) {
	e, pid := derive(m.batches), m.pid(t)
	epoch, known := e.epoch[pid]
	if _, open := e.open[pid]; !known || !open && rapid.IntRange(0, 3).Draw(t, "without a transaction") > 0 {
		return
	}
	if rapid.Bool().Draw(t, "bump") {
		epoch++
	}
	typ := record.ControlType(rapid.IntRange(0, 1).Draw(t, "type"))
	data, err := record.NewBuilder(64).FinishMarker(pid, epoch, record.Marker{Type: typ, Timestamp: -1})
	require.NoError(t, err)
	m.leader(t, data, "")
	m.batches = append(m.batches, stored{base: m.end(), last: m.end(), epoch: m.epoch, pid: pid, pepoch: epoch, seq: -1, marker: &typ})
	m.counts[[]string{"abort", "commit"}[typ]]++
}

// replica appends batches with gaps before, between and inside, some without records.
func (m *full) replica(t *rapid.T) {
	var data []byte
	at := m.end()
	for range rapid.IntRange(1, 4).Draw(t, "batches") {
		at += model.Offset(rapid.IntRange(0, 6).Draw(t, "gap"))
		b, s := m.draw(t, at, true)
		data = append(data, s.encode()...)
		m.batches = append(m.batches, b)
		at = b.last + 1
	}
	_, err := m.l.AppendReplica(data, true, 0)
	require.NoError(t, err)
}

func (m *full) all() []rec {
	out := []rec{}
	for _, b := range m.batches {
		out = append(out, b.recs...)
	}
	return out
}

func (m *full) read(t *rapid.T) {
	from := model.Offset(rapid.Int64Range(int64(m.start), int64(m.end())).Draw(t, "from"))
	all := m.all()
	i, _ := slices.BinarySearchFunc(all, from, func(r rec, off model.Offset) int { return int(r.off - off) })
	require.Equal(t, all[i:], append([]rec{}, m.scan(t, from)...))
	checkSeek(t, m.l, all, rapid.Int64Range(0, 310).Draw(t, "seek"), from)
}

// scan is the records without markers.
func (m *full) scan(t *rapid.T, from model.Offset) []rec {
	markers := map[model.Offset]bool{}
	for _, b := range m.batches {
		markers[b.base] = b.marker != nil
	}
	return slices.DeleteFunc(scan(t, m.l, from, 700), func(r rec) bool { return markers[r.off] })
}

func (m *full) cutTo(off model.Offset) {
	for len(m.batches) > 0 && m.batches[len(m.batches)-1].last >= off {
		m.batches = m.batches[:len(m.batches)-1]
	}
}

func (m *full) target(t *rapid.T) model.Offset {
	off := model.Offset(rapid.Int64Range(int64(m.start), int64(m.end())).Draw(t, "target"))
	if off < m.l.StableEnd() {
		m.counts["below the stable end"]++
	}
	return off
}

func (m *full) truncate(t *rapid.T) {
	off := m.target(t)
	require.NoError(t, m.l.TruncateTo(off))
	m.cutTo(off)
	require.LessOrEqual(t, m.l.StableEnd(), m.l.LogEnd())
	m.verify(t)
}

func (m *full) truncateFully(t *rapid.T) {
	m.start = model.Offset(rapid.Int64Range(0, int64(m.end())+20).Draw(t, "start"))
	require.NoError(t, m.l.TruncateFullyAndStartAt(m.start))
	m.batches = nil
	m.verify(t)
}

// cutPower truncates and loses power at some operation of it.
func (m *full) cutPower(t *rapid.T) {
	off, wholly := m.target(t), rapid.IntRange(0, 2).Draw(t, "wholly") == 0
	least := min(off, m.l.StableEnd())
	if m.cfg.WriteCaching {
		least = min(off, model.Offset(m.l.synced.Load()))
	}
	n, seed := rapid.IntRange(1, 30).Draw(t, "operation"), rapid.Uint64().Draw(t, "seed")
	var after *fsx.Mem
	m.in.SetHook(func(fsx.Op) *fsx.Fault {
		if n--; n == 0 {
			after = m.mem.Crash(seed)
		}
		return nil
	})
	if wholly {
		require.NoError(t, m.l.TruncateFullyAndStartAt(off))
	} else {
		require.NoError(t, m.l.TruncateTo(off))
	}
	m.in.SetHook(nil)
	finished := after == nil
	if finished {
		after = m.mem.Crash(seed)
	}
	m.h.kill()
	m.use(after)
	m.h.start()
	m.open(t)
	end := m.l.LogEnd()
	switch {
	case wholly && (finished || end == off && m.l.LogStart() == off):
		require.Equal(t, off, end)
		m.start, m.batches = off, nil
	case finished:
		m.cutTo(off)
		m.cutTo(end) // what was not synced
		require.GreaterOrEqual(t, end, m.settledBelow(least))
	case wholly && end == m.l.LogStart(): // the old segments are gone, the new one is not there
		require.LessOrEqual(t, end, m.start)
		m.start, m.batches = end, nil
	default:
		m.cutTo(end)
		require.True(t, wholly || end >= m.settledBelow(least), "%d is below %d", end, least)
	}
	m.verify(t)
}

// settledBelow is the end of the last whole batch at or below off.
func (m *full) settledBelow(off model.Offset) model.Offset {
	end := m.start
	for _, b := range m.batches {
		if b.last < off {
			end = b.last + 1
		}
	}
	return end
}

func (m *full) restart(t *rapid.T, how string) {
	stable := m.l.StableEnd()
	if m.cfg.WriteCaching {
		stable = model.Offset(m.l.synced.Load())
	}
	switch how {
	case "clean":
		require.NoError(t, m.h.stop())
		stable = m.end()
		if rapid.Bool().Draw(t, "power cut after the stop") {
			m.use(m.mem.Crash(rapid.Uint64().Draw(t, "seed")))
		}
	case "kill":
		m.h.kill()
		stable = m.end()
	case "power cut":
		after := m.mem.Crash(rapid.Uint64().Draw(t, "seed"))
		m.h.kill()
		m.use(after)
	}
	m.h.start()
	require.Equal(t, how == "clean", m.h.store.found.clean)
	m.open(t)
	require.GreaterOrEqual(t, m.l.LogEnd(), stable, how)
	m.cutTo(m.l.LogEnd())
	m.verify(t)
}

func (m *full) verify(t *rapid.T) {
	require.Equal(t, m.end(), m.l.LogEnd())
	require.Equal(t, m.start, m.l.LogStart())
	require.Equal(t, m.all(), append([]rec{}, m.scan(t, m.start)...))
	for i, b := range m.batches {
		if i+1 == len(m.batches) || m.batches[i+1].epoch != b.epoch {
			e, end := m.l.EpochEnd(b.epoch)
			require.Equal(t, b.epoch, e)
			if i+1 < len(m.batches) {
				// Within a gap the file may know of an epoch of which nothing is left.
				require.True(t, end > b.last && end <= m.batches[i+1].base, "the epoch %d ends at %d", e, end)
			} else {
				require.Equal(t, m.end(), end)
			}
		}
	}
	require.LessOrEqual(t, m.l.LogStart(), m.l.HighWatermark())
	require.LessOrEqual(t, m.l.HighWatermark(), m.l.LogEnd())
	m.verifyProducers(t)
}

func (m *full) verifyProducers(t *rapid.T) {
	e := derive(m.batches)
	m.l.mu.Lock()
	known := m.l.prods.Len()
	for pid, epoch := range e.epoch {
		p := m.l.prods.Get(pid)
		require.NotNil(t, p, "producer %d", pid)
		require.Equal(t, epoch, p.Epoch)
		var got, want []model.Offset
		for _, b := range p.Batches() {
			got = append(got, b.FirstOffset(), b.LastOffset)
		}
		for _, b := range e.window[pid] {
			want = append(want, b.base, b.last)
		}
		require.Equal(t, want, got, "producer %d", pid)
		first, open := e.open[pid]
		require.Equal(t, open, p.TxnFirst >= 0)
		require.True(t, !open || first == p.TxnFirst)
	}
	m.l.mu.Unlock()
	require.Equal(t, len(e.epoch), known)
	stable := m.end()
	for _, f := range e.open {
		stable = min(stable, f)
	}
	require.Equal(t, stable, m.l.LastStable(m.end()))
	from := model.Offset(rapid.Int64Range(0, int64(m.end())).Draw(t, "aborted from"))
	to := model.Offset(rapid.Int64Range(int64(from), int64(m.end())).Draw(t, "to"))
	var want []AbortedTransaction
	for _, a := range e.aborted {
		if a.LastOffset >= from && a.FirstOffset < to {
			want = append(want, a)
		}
	}
	got, err := m.l.AbortedTransactions(from, to)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// A log that leads, follows, compacts at its leader, serves producers and transactions,
// is truncated, and loses its process or its power at any time, holds what a plain list
// of batches does.
func TestLogBehavesLikeAListOfBatches(t *testing.T) {
	t.Parallel()
	counts := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		m := &full{counts: counts}
		mem := fsx.NewCrashMem()
		m.h = &harness{t: t, opts: StoreOptions{Dir: "/data", CheckpointInterval: time.Hour}}
		m.use(mem)
		m.h.start()
		defer func() { m.h.kill() }()
		m.cfg = Config{
			SegmentBytes:       int64(rapid.IntRange(200, 2000).Draw(t, "segment.bytes")),
			IndexIntervalBytes: rapid.IntRange(1, 400).Draw(t, "interval"),
			SegmentIndexBytes:  rapid.IntRange(24, 400).Draw(t, "index bytes"),
			WriteCaching:       rapid.IntRange(0, 5).Draw(t, "caching") == 0,
		}
		m.open(t)
		steps := map[string]func(*rapid.T){
			"plain": m.plain, "produce": m.produce, "produce more": m.produce, "misuse": m.misuse, "retry": m.retry,
			"end transaction": m.endTxn, "replica with gaps": m.replica, "read": m.read,
			"truncate": m.truncate, "truncate fully": m.truncateFully, "power cut in a truncation": m.cutPower,
			"epoch": func(*rapid.T) { m.epoch++ },
			"sync": func(t *rapid.T) {
				if !m.cfg.WriteCaching {
					waitStable(t, m.l)
				}
			},
			"checkpoint": func(t *rapid.T) {
				m.l.SetHighWatermark(m.l.StableEnd())
				require.NoError(t, m.h.store.Checkpoint())
			},
			"clean":     func(t *rapid.T) { m.restart(t, "clean") },
			"kill":      func(t *rapid.T) { m.restart(t, "kill") },
			"power cut": func(t *rapid.T) { m.restart(t, "power cut") },
		}
		counted := map[string]func(*rapid.T){}
		for name, fn := range steps {
			counted[name] = func(t *rapid.T) { counts[name]++; fn(t) }
		}
		t.Repeat(counted)
		m.verify(t)
	})
	for _, k := range []string{"plain", "produce", "misuse", "retry", "end transaction", "replica with gaps", "read", "truncate",
		"truncate fully", "power cut in a truncation", "epoch", "sync", "checkpoint", "clean", "kill", "power cut",
		"transaction", "unknown", "fenced", "out of order", "duplicate", "abort", "commit", "below the stable end"} {
		require.NotZero(t, counts[k], k)
	}
	t.Log(counts)
}
