package log

import (
	"maps"
	"slices"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// reads looks at a log that serves: right bytes or an error that the fault explains.
func (w *walked) reads(x *walkLog) {
	if x.l == nil {
		return
	}
	end := x.l.LogEnd()
	if x.l.Failed() != nil {
		end = x.l.StableEnd()
		_, err := x.l.Read(nil, end, allOffsets, 100)
		require.True(w.t, end == x.l.LogEnd() || model.HasCode(err, model.StorageError), "%v", err)
	}
	var all []rec
	whole := true
	for from := x.l.LogStart(); from < end; {
		recs, next, err := walkReadAt(x.l, from, 150)
		if err != nil {
			w.excused(err)
			whole = false
			if recs, next, err = walkReadAt(x.l, from, 150); err != nil { // it may last
				w.repair() // it lasts
				continue
			}
		}
		for _, r := range recs {
			x.known(w, r)
			all = append(all, rec{r.off, r.ts, r.val})
		}
		from = next
	}
	for ts := int64(1000); ts <= 1080; ts += 20 {
		off, _, found, err := x.l.OffsetForTimestamp(ts, end)
		if err != nil {
			w.excused(err)
			w.repair()
			continue
		}
		i := slices.IndexFunc(all, func(r rec) bool { return r.ts >= ts })
		require.True(w.t, !whole || found == (i >= 0) && (!found || off == all[i].off), "%s: time %d gives %d", x.topic, ts, off)
	}
	if _, err := x.l.AbortedTransactions(x.l.LogStart(), end); err != nil {
		w.excused(err)
	}
}

// walkReadAt reads what one call gives.
func walkReadAt(l *Log, from model.Offset, maxBytes int) (recs []walkRec, next model.Offset, err error) {
	data, err := l.Read(nil, from, allOffsets, maxBytes)
	if err != nil {
		return nil, from, err
	}
	next = l.LogEnd()
	d, it := record.NewDecompressor(1<<20), record.Iterator{}
	for len(data) > 0 {
		b, rest, err := record.ParseBatch(data)
		if err == nil {
			err = firstErr(b.VerifyCRC(), b.Records(d, &it))
		}
		if err != nil {
			return nil, from, err
		}
		for it.Next() {
			if r := it.Record(); r.Offset >= from && !b.Header.Attributes.Has(record.AttrControl) {
				recs = append(recs, walkRec{r.Offset, r.Timestamp, string(r.Key), string(r.Value), r.Value == nil})
			}
		}
		next, data = b.Header.NextOffset(), rest
	}
	return recs, next, nil
}

// walkRead reads a whole log, and its batches as the model keeps them.
func walkRead(l *Log) (recs []walkRec, batches []stored, err error) {
	for from := l.LogStart(); from < l.LogEnd(); {
		some, next, err := walkReadAt(l, from, 300)
		if err != nil {
			return nil, nil, err
		}
		recs, from = append(recs, some...), next
	}
	segs := *l.segs.Load()
	for _, seg := range segs {
		sc, err := l.store.scanner(seg, seg.size.Load(), scanWindow)
		if err != nil {
			return nil, nil, err
		}
		for pos := int64(0); pos < sc.Size; {
			h, err := sc.Header(pos)
			if err != nil {
				return nil, nil, err
			}
			b := stored{base: h.BaseOffset, last: h.LastOffset(), pid: h.ProducerID, pepoch: h.ProducerEpoch, seq: h.BaseSequence,
				txn: h.Attributes.Has(record.AttrTransactional)}
			if h.Attributes.Has(record.AttrControl) {
				full, err := sc.Batch(pos, &h)
				if err != nil {
					return nil, nil, err
				}
				m, _, err := full.Marker()
				if err != nil {
					return nil, nil, err
				}
				b.marker = &m.Type
			}
			batches, pos = append(batches, b), pos+int64(h.Size())
		}
		l.store.putScanner(sc)
	}
	return recs, batches, nil
}

func (x *walkLog) known(w *walked, r walkRec) {
	if !x.cand[r.off][r] {
		require.Fail(w.t, "wrong record", "%s has %v, which nobody appended there", x.topic, r)
	}
}

// verify compares a log that was opened without a fault with what it must and may hold.
func (w *walked) verify(x *walkLog, powerCut bool) {
	t := w.t
	recs, batches, err := walkRead(x.l)
	require.NoError(t, err, x.topic)
	start, end := x.l.LogStart(), x.l.LogEnd()
	require.LessOrEqual(t, x.starts[0], start, x.topic)
	require.GreaterOrEqual(t, x.starts[1], start, x.topic)
	least := x.end
	if powerCut {
		least = x.must
	}
	require.GreaterOrEqual(t, end, least, "%s: acknowledged records are lost", x.topic)
	have := map[model.Offset]walkRec{}
	for _, r := range recs {
		x.known(w, r)
		have[r.off] = r
	}
	last := map[string]walkRec{}
	for _, r := range x.acked {
		if r.off < start || r.off >= least {
			continue
		}
		if x.keyed && r.off < x.cleanTo {
			if !x.mayGo[r.off] {
				last[r.key] = r
			}
			continue
		}
		if have[r.off] != r {
			require.Equal(t, r, have[r.off], x.topic)
		}
	}
	for _, r := range last {
		require.Equal(t, r, have[r.off], "%s: the last of its key", x.topic)
	}
	w.verifyDerived(x, batches)
	w.verifyKeys(x, least)
	var all []rec
	for _, r := range recs {
		all = append(all, rec{r.off, r.ts, r.val})
	}
	for ts := int64(1000); ts <= 1080; ts += 10 {
		checkSeek(t, x.l, all, ts, end)
	}
}

// verifyKeys requires that every key is known of what must be there, and none where nothing
// was to be stored.
func (w *walked) verifyKeys(x *walkLog, least model.Offset) {
	for k, at := range x.once {
		if at.end <= least {
			e, ok := x.l.FindKey(onceKey(k), 0)
			require.True(w.t, ok, "%s: key %d of offset %d is forgotten", x.topic, k, at.base)
			require.Equal(w.t, at, onceAt{e.Base, e.End()}, "%s: key %d", x.topic, k)
		}
	}
	for k, bases := range x.handed {
		if e, ok := x.l.FindKey(onceKey(k), 0); ok {
			require.True(w.t, bases[e.Base] && e.End() <= x.l.LogEnd(), "%s: key %d at %d", x.topic, k, e.Base)
		}
	}
}

// verifyDerived compares producers and aborted transactions with the batches.
func (w *walked) verifyDerived(x *walkLog, batches []stored) {
	t := w.t
	e := derive(batches)
	x.l.mu.Lock()
	for pid, window := range e.window {
		if len(window) == 0 {
			continue
		}
		p := x.l.prods.Get(pid)
		require.NotNil(t, p, "%s: producer %d", x.topic, pid)
		b := p.Last()
		require.NotNil(t, b, "%s: producer %d", x.topic, pid)
		require.Equal(t, []model.Offset{window[len(window)-1].base, window[len(window)-1].last}, []model.Offset{b.FirstOffset(), b.LastOffset}, x.topic)
		_, open := e.open[pid]
		require.Equal(t, open, p.TxnFirst >= 0, "%s: producer %d", x.topic, pid)
	}
	x.l.mu.Unlock()
	got, err := x.l.AbortedTransactions(x.l.LogStart(), x.l.LogEnd())
	require.NoError(t, err, x.topic)
	ends := map[model.Offset]bool{}
	for _, a := range got {
		ends[a.LastOffset] = true
	}
	for _, a := range e.aborted {
		// One of which compaction has left no record needs no entry: nothing is to be hidden.
		hides := slices.ContainsFunc(batches, func(b stored) bool {
			return b.pid == a.ProducerID && b.base >= a.FirstOffset && b.last < a.LastOffset && len(b.recs) > 0
		})
		if hides && a.LastOffset >= x.l.LogStart() {
			require.True(t, ends[a.LastOffset], "%s: the transaction aborted at %d", x.topic, a.LastOffset)
		}
	}
}

// checkCopy opens a copy of the disk without faults, verifies every log, appends to each,
// and cuts the power behind the sync: once more nothing may be lost.
func (w *walked) checkCopy(mem *fsx.Mem, powerCut bool) {
	c := &walked{t: w.t, mem: mem, logs: map[string]*walkLog{}, step: w.step + ", on a copy", unique: w.unique + 1000, seen: map[walkKey]int{}}
	c.in = fsx.NewInject(mem, nil)
	c.h = &harness{t: w.t, fs: c.in, opts: w.h.opts}
	c.h.start()
	defer func() {
		if c.h != nil {
			c.h.kill()
		}
	}()
	for _, name := range []string{"events", "table", "copy", "gone"} {
		x := w.logs[name]
		if x.gone {
			continue
		}
		y := *x
		y.cand, y.seq = maps.Clone(x.cand), maps.Clone(x.seq)
		y.once, y.handed = maps.Clone(x.once), maps.Clone(x.handed)
		var err error
		y.l, err = c.h.store.Open(y.id, y.topic, 0, y.cfg)
		require.NoError(w.t, err)
		c.verify(&y, powerCut)
		y.adopt(c)
		c.append(&y, walkBatch{keys: []string{"new", "newer"}}, false)
		c.sync(&y)
		c.logs[name] = &y
	}
	require.NoError(w.t, c.h.store.Checkpoint())
	after := mem.Crash(uint64(c.unique))
	c.h.kill()
	c.h.fs = after
	c.h.start()
	for _, name := range []string{"events", "table", "copy", "gone"} {
		if y := c.logs[name]; y != nil {
			var err error
			y.l, err = c.h.store.Open(y.id, y.topic, 0, y.cfg)
			require.NoError(w.t, err)
			c.verify(y, true)
		}
	}
	c.h.kill()
	c.h = nil
}
