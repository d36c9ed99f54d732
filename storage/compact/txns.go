package compact

import (
	"slices"

	"tidewire/internal/model"
	"tidewire/storage/record"
)

// Aborted is an aborted transaction: what its producer wrote from First up to the marker at
// Last does not count.
type Aborted struct {
	Producer    model.ProducerID
	First, Last model.Offset
}

// txns follows the transactions of a log that is read in order of offsets. Every one that
// it meets has ended: nothing at or above the last stable offset is read.
type txns struct {
	ahead []Aborted // not reached yet, by First
	open  map[model.ProducerID]*openTxn
}

// openTxn is a transaction whose marker has not been met.
type openTxn struct {
	last model.Offset // of the marker of an aborted one; -1: committed
	met  bool         // a batch of it was met in this reading
}

// add makes aborted transactions known that begin at or above what was read so far.
func (t *txns) add(list []Aborted) {
	t.ahead = append(t.ahead, list...)
	slices.SortStableFunc(t.ahead, func(a, b Aborted) int { return int(min(max(a.First-b.First, -1), 1)) })
}

// reach makes those current that begin at or below an offset.
func (t *txns) reach(off model.Offset) {
	n := 0
	for n < len(t.ahead) && t.ahead[n].First <= off {
		a := t.ahead[n]
		if a.Last >= off {
			if t.open == nil {
				t.open = map[model.ProducerID]*openTxn{}
			}
			t.open[a.Producer] = &openTxn{last: a.Last}
		}
		n++
	}
	t.ahead = t.ahead[n:]
}

// batch notes a batch of a transaction and reports whether that was aborted.
func (t *txns) batch(h *record.BatchHeader) bool {
	t.reach(h.BaseOffset)
	if !h.Attributes.Has(record.AttrTransactional) {
		return false
	}
	o := t.open[h.ProducerID]
	if o == nil || o.last >= 0 && o.last < h.BaseOffset {
		if t.open == nil {
			t.open = map[model.ProducerID]*openTxn{}
		}
		o = &openTxn{last: -1}
		t.open[h.ProducerID] = o
	}
	o.met = true
	return o.last >= 0
}

// marker ends a transaction and reports whether no batch of it was met: then nothing but
// the marker is left of it.
func (t *txns) marker(h *record.BatchHeader) (alone bool) {
	t.reach(h.BaseOffset)
	o := t.open[h.ProducerID]
	delete(t.open, h.ProducerID)
	return o == nil || !o.met
}
