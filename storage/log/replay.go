package log

import (
	"math"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/dedupe"
	"tidewire/storage/index"
	"tidewire/storage/producer"
	"tidewire/storage/record"
)

// replayed is the state of the producers below an offset and what was found on the way.
type replayed struct {
	producer.State
	from    model.Offset          // of the snapshot, or the base of the first segment
	txns    []producer.TxnSummary // as the snapshot says
	aborted map[model.Offset][]AbortedTransaction
	hw      model.Offset // transactions that ended below it are done for good
	now     int64
}

// stateAt loads the newest whole snapshot at or below an offset and reads the batches from
// there up to it. Damaged snapshots are removed. The segments are not being written.
func (l *Log) stateAt(segs []*segment, off model.Offset) (*replayed, error) {
	all, err := l.listSnapshots()
	if err != nil {
		return nil, err
	}
	// A pass of compaction ended at or below the high watermark, of which no more may be known.
	hw := max(l.HighWatermark(), model.Offset(l.cleaned.point.Load()))
	st := &replayed{from: segs[0].base, hw: hw, now: l.store.o.Now().UnixMilli(), aborted: map[model.Offset][]AbortedTransaction{}}
	for i := len(all) - 1; i >= 0; i-- {
		if all[i] > off || all[i] < segs[0].base { // batches above the latter are gone
			continue
		}
		b, err := fsx.ReadFile(l.store.fs, l.snapshotPath(all[i]), producer.MaxSnapshot)
		if err != nil {
			return nil, err
		}
		s, err := producer.DecodeSnapshot(b, all[i])
		if err != nil {
			l.store.log.Warn("producer snapshot is damaged", "log", l.name, "offset", all[i])
			if err := l.store.fs.Remove(l.snapshotPath(all[i])); !isMissing(err) {
				return nil, err
			}
			continue
		}
		if all[i] > max(st.hw, segs[0].base) && s.Marked() {
			continue // transactions that ended in between keep the last stable offset back
		}
		if all[i] <= model.Offset(l.cleaned.point.Load()) && s.HasTransactions() {
			marked, err := l.markersFrom(segs, all[i])
			if err != nil {
				return nil, err
			}
			s.EndTransactions(marked)
		}
		st.Load(s, st.now)
		st.from, st.txns = all[i], s.Txns
		break
	}
	return st, l.replay(segs, st, off)
}

// markersFrom gives the producers that have markers at or above an offset, as far as batches
// are whole.
func (l *Log) markersFrom(segs []*segment, off model.Offset) (map[model.ProducerID]bool, error) {
	marked := map[model.ProducerID]bool{}
	for _, seg := range segs[floorSegment(segs, off):] {
		sc, err := l.store.scanner(seg, seg.size.Load(), scanWindow)
		if err != nil {
			return nil, err
		}
		for pos := int64(0); err == nil && pos < sc.Size; {
			var h record.BatchHeader
			if h, err = sc.Header(pos); err == nil && h.BaseOffset >= off && h.Attributes.Has(record.AttrControl) {
				marked[h.ProducerID] = true
			}
			pos += int64(h.Size())
		}
		l.store.putScanner(sc)
		if isErr(err, record.ErrShort) || model.HasCode(err, model.CorruptBatch) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return marked, nil
}

// replay enters the batches of [st.from, to).
func (l *Log) replay(segs []*segment, st *replayed, to model.Offset) error {
	for _, seg := range segs[floorSegment(segs, st.from):] {
		if seg.base >= to || st.from >= to {
			break
		}
		if err := l.replaySegment(seg, st, to); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) replaySegment(seg *segment, st *replayed, to model.Offset) error {
	return l.eachBatch(seg, st.from, to, func(sc *scanner, pos int64, h *record.BatchHeader) error {
		if h.ProducerID < 0 {
			return nil
		}
		b, err := sc.Batch(pos, h)
		if err != nil {
			return err
		}
		if a, ok := st.Replay(&b, st.hw, st.now); ok {
			st.aborted[seg.base] = append(st.aborted[seg.base], a)
		}
		return nil
	})
}

// eachBatch gives the headers of a segment's batches in [from, to), and where they are.
func (l *Log) eachBatch(seg *segment, from, to model.Offset, fn func(*scanner, int64, *record.BatchHeader) error) error {
	at, err := l.cutPosition(seg, max(from, seg.base))
	if err != nil {
		return err
	}
	sc, err := l.store.scanner(seg, seg.size.Load(), scanWindow)
	if err != nil {
		return err
	}
	defer l.store.putScanner(sc)
	for pos := at.pos; pos < sc.Size; {
		h, err := sc.Header(pos)
		if err != nil {
			return l.damage(seg, pos, seg.base, err)
		}
		if h.BaseOffset >= to {
			break
		}
		if err := fn(sc, pos, &h); err != nil {
			return err
		}
		pos += int64(h.Size())
	}
	return nil
}

// adopt makes a replayed state the log's.
func (l *Log) adoptLocked(st *replayed) {
	l.prods.Adopt(&st.State, st.hw)
}

// producerState gives recovery the producers below off and makes sure that the indexes of
// aborted transactions of the segments below n, which are not read, are as they were.
func (r *recovery) producerState(n int, off model.Offset) (*replayed, error) {
	st, err := r.l.stateAt(r.segs, off)
	if err != nil {
		return nil, err
	}
	summaries := map[model.Offset]producer.TxnSummary{}
	for _, t := range st.txns {
		summaries[t.Base] = t
	}
	for i, seg := range r.segs[:n] {
		end := off
		if i+1 < len(r.segs) {
			end = r.segs[i+1].base
		}
		entries, known := st.aborted[seg.base], seg.base >= st.from
		switch {
		case known: // read as a whole
			x := index.NewAborted(r.l.store.fs, "", seg.base) // in memory only
			for _, a := range entries {
				x.Add(a)
			}
			known = !r.badTxn[seg.base] && x.Summary() == seg.txn.Summary()
		case end <= st.from: // as when the snapshot was written
			want := summaries[seg.base]
			want.Base = seg.base
			if !r.badTxn[seg.base] && want == seg.txn.Summary() {
				continue
			}
		default: // as then, and what was read behind it: it may have been killed unsynced
			want := summaries[seg.base]
			want.Base = seg.base
			for _, a := range entries {
				want.Add(a)
			}
			known = !r.badTxn[seg.base] && want == seg.txn.Summary()
		}
		if known {
			continue
		}
		if err := r.rebuildTxns(seg, end); err != nil {
			return nil, err
		}
		r.rebuilt = true
	}
	return st, nil
}

// rebuildTxns reads a segment, and what it takes to know the transactions open at its
// start, to make its index of aborted transactions anew.
func (r *recovery) rebuildTxns(seg *segment, end model.Offset) error {
	r.l.store.log.Warn("rebuilding the aborted transactions index", "log", r.l.name, "segment", baseName(seg.base))
	st, err := r.l.stateAt(r.segs, seg.base)
	if err != nil {
		return err
	}
	st.from = max(st.from, seg.base)
	if err := r.l.replaySegment(seg, st, end); err != nil {
		return err
	}
	return firstErr(seg.txn.Replace(st.aborted[seg.base]), seg.txn.Sync(), r.l.store.fs.SyncDir(r.l.dir))
}

// openTxns attaches to a segment's index of aborted transactions.
func (r *recovery) openTxns(seg *segment) {
	size := r.sizes[baseName(seg.base)+txnIndexSuffix]
	if err := seg.txn.Open(size); err != nil {
		r.badTxn[seg.base] = true
	}
}

// tidySnapshots removes snapshots that no segment begins at, but for the newest, and those
// outside of the log.
func (r *recovery) tidySnapshots(end model.Offset) error {
	bases := map[model.Offset]bool{}
	for _, s := range r.segs {
		bases[s.base] = true
	}
	all, err := r.l.listSnapshots()
	if err != nil {
		return err
	}
	newest := model.Offset(math.MinInt64)
	for _, off := range all {
		if off <= end {
			newest = off
		}
	}
	r.l.lastSnap = newest
	return r.l.removeSnapshots(func(off model.Offset) bool {
		return off > end || off < r.segs[0].base || off != newest && !bases[off]
	})
}

// enter applies a batch that validation has checked.
func (r *recovery) enter(seg *segment, sc *scanner, pos int64, h *record.BatchHeader) error {
	keyed := dedupe.Marked(h)
	if h.ProducerID < 0 && !keyed {
		return nil
	}
	b, err := sc.Batch(pos, h)
	if err != nil {
		return err
	}
	if keyed {
		r.l.keys.Enter(&b)
	} else if a, aborted := r.state.Replay(&b, r.state.hw, r.state.now); aborted {
		seg.txn.Add(a)
	}
	return nil
}

// snapshot keeps the state at the base of a segment that is about to be validated.
func (r *recovery) snapshot(off model.Offset) {
	var txns []producer.TxnSummary
	for _, seg := range r.segs {
		if t := seg.txn.Summary(); t.Count > 0 && seg.base < off {
			txns = append(txns, t)
		}
	}
	r.snaps = append(r.snaps, pendingSnapshot{off, r.state.EncodeSnapshot(txns)})
}
