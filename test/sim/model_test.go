package sim

import (
	"maps"
	"slices"

	"tidewire/internal/model"
	"tidewire/storage/log"
	"tidewire/storage/record"
)

// mrec is one record as the model has it.
type mrec struct {
	off      model.Offset
	ts       int64
	key, val string
	keyed    bool
	null     bool
	gone     bool // compaction has dropped it
}

// mbatch is one batch that was appended. It is replaced, never changed.
type mbatch struct {
	base, last model.Offset
	epoch      model.LeaderEpoch
	pid        model.ProducerID // -1 none
	pepoch     model.ProducerEpoch
	seq        int32
	txn        bool
	marker     *record.ControlType
	recs       []mrec
	maxTs      int64 // of all records, as it was appended
	horizon    int64 // -1 none
	far        bool  // begins behind a gap that no segment reaches over
}

// history is what one log must be: every batch that was handed in and not cut off again,
// with what compaction has dropped.
type history struct {
	batches []*mbatch
	start   model.Offset // log start
	began   model.Offset // where it began anew last
	origin  model.Offset // the end lies here or behind the last batch, whichever is higher
	floor   model.Offset // passes of compaction went by this high watermark: nothing below is cut
	passes  int          // of compaction, also failed ones
	// murky are producers that were told to be forgotten: in epochs up to this nothing is
	// certain of them after a restart.
	murky map[model.ProducerID]model.ProducerEpoch
	// used is the largest epoch that a producer ever had.
	used map[model.ProducerID]model.ProducerEpoch

	facts *facts // of batches; nil when they have changed
}

func newHistory() *history {
	return &history{murky: map[model.ProducerID]model.ProducerEpoch{}, used: map[model.ProducerID]model.ProducerEpoch{}}
}

func (h *history) clone() *history {
	c := *h
	c.batches = slices.Clone(h.batches)
	c.murky, c.used = maps.Clone(h.murky), maps.Clone(h.used)
	return &c
}

func (h *history) end() model.Offset {
	if n := len(h.batches); n > 0 {
		return max(h.batches[n-1].last+1, h.origin)
	}
	return h.origin
}

func (h *history) add(b *mbatch) {
	h.batches = append(h.batches, b)
	h.facts = nil
	if b.pid >= 0 {
		h.used[b.pid] = max(h.used[b.pid], b.pepoch)
	}
}

// cut drops the batches that reach to off or beyond.
func (h *history) cut(off model.Offset) {
	n := len(h.batches)
	for n > 0 && h.batches[n-1].last >= off {
		n--
	}
	if off >= h.end() {
		return
	}
	h.batches = h.batches[:n:n]
	h.facts = nil
	if h.origin = h.began; n > 0 {
		h.origin = min(h.origin, h.batches[n-1].last+1)
	}
}

// restart is a full truncation.
func (h *history) restart(at model.Offset) {
	h.batches, h.start, h.began, h.origin, h.floor, h.passes, h.facts = nil, at, at, at, 0, 0, nil
	clear(h.murky)
}

// from is the index of the first batch that reaches to off or beyond.
func (h *history) from(off model.Offset) int {
	i, _ := slices.BinarySearchFunc(h.batches, off, func(b *mbatch, off model.Offset) int {
		if b.last < off {
			return -1
		}
		return 1
	})
	return i
}

// boundary reports whether the log may end at off: where a batch ends, or behind a gap
// that only a new segment could leave.
func (h *history) boundary(off model.Offset) bool {
	i := h.from(off)
	if i == len(h.batches) {
		return off == h.end()
	}
	if h.batches[i].far && h.batches[i].base == off {
		return true
	}
	if i == 0 {
		return off == h.origin || off <= h.batches[0].base
	}
	return h.batches[i-1].last+1 == off
}

// span is a transaction.
type span struct {
	pid         model.ProducerID
	first, last model.Offset // last is -1 while it is open
	aborted     bool
}

// facts are what follows from the batches, worked out in plain loops.
type facts struct {
	epoch   map[model.ProducerID]model.ProducerEpoch
	window  map[model.ProducerID][]*mbatch // the last five with a sequence in its epoch
	open    map[model.ProducerID]model.Offset
	txns    []span
	aborted []log.AbortedTransaction
	epochs  []epochStart
}

type epochStart struct {
	epoch model.LeaderEpoch
	start model.Offset
}

func (h *history) derive() *facts {
	if h.facts != nil {
		return h.facts
	}
	f := &facts{epoch: map[model.ProducerID]model.ProducerEpoch{}, window: map[model.ProducerID][]*mbatch{}, open: map[model.ProducerID]model.Offset{}}
	at := map[model.ProducerID]int{}
	for _, b := range h.batches {
		if n := len(f.epochs); n == 0 || f.epochs[n-1].epoch < b.epoch {
			f.epochs = append(f.epochs, epochStart{b.epoch, b.base})
		}
		if b.pid < 0 {
			continue
		}
		if old, ok := f.epoch[b.pid]; !ok || old != b.pepoch {
			f.window[b.pid] = nil
		}
		f.epoch[b.pid] = b.pepoch
		if b.marker == nil {
			w := append(f.window[b.pid], b)
			f.window[b.pid] = w[max(0, len(w)-5):]
			if _, ok := f.open[b.pid]; b.txn && !ok {
				f.open[b.pid] = b.base
				at[b.pid] = len(f.txns)
				f.txns = append(f.txns, span{b.pid, b.base, -1, false})
			}
			continue
		}
		first, ok := f.open[b.pid]
		if !ok {
			continue
		}
		delete(f.open, b.pid)
		t := &f.txns[at[b.pid]]
		t.last, t.aborted = b.last, *b.marker == record.ControlAbort
		if t.aborted {
			stable := b.last + 1
			for _, o := range f.open {
				stable = min(stable, o)
			}
			f.aborted = append(f.aborted, log.AbortedTransaction{ProducerID: b.pid, FirstOffset: first, LastOffset: b.last, LastStable: stable})
		}
	}
	h.facts = f
	return f
}

func (f *facts) nextSeq(pid model.ProducerID) int32 {
	if w := f.window[pid]; len(w) > 0 {
		b := w[len(w)-1]
		return b.seq + int32(b.last-b.base) + 1
	}
	return 0
}

// isMurky reports whether nothing is certain of a producer.
func (h *history) isMurky(pid model.ProducerID) bool {
	m, ok := h.murky[pid]
	return ok && h.derive().epoch[pid] <= m
}

// lastStable is the last stable offset below hw.
func (h *history) lastStable(hw model.Offset) model.Offset {
	lso := hw
	for _, t := range h.derive().txns {
		if t.last < 0 || t.last >= hw {
			lso = min(lso, t.first)
		}
	}
	return max(lso, min(h.start, hw))
}

// abortedBatch reports whether a batch belongs to an aborted transaction.
func (f *facts) abortedBatch(b *mbatch) bool {
	if !b.txn || b.marker != nil {
		return false
	}
	for _, t := range f.txns {
		if t.aborted && t.pid == b.pid && t.first <= b.base && b.last < t.last {
			return true
		}
	}
	return false
}

// latest is what the keys below an offset come to: of each the last value, without
// tombstones and what was aborted.
func (h *history) latest(below model.Offset) map[string]string {
	f, out := h.derive(), map[string]string{}
	for _, b := range h.batches {
		if b.marker != nil || f.abortedBatch(b) {
			continue
		}
		for _, r := range b.recs {
			switch {
			case r.gone || !r.keyed || r.off < h.start || r.off >= below:
			case r.null:
				delete(out, r.key)
			default:
				out[r.key] = r.val
			}
		}
	}
	return out
}
