package browse

import (
	"tidewire/internal/model"
	"tidewire/storage/dedupe"
	"tidewire/storage/record"
)

// blockRecords is how many records lie between two marks of a walk: a batch may hold
// millions, for each of which remembering a place would cost more than the batch.
const blockRecords = 256

// walk goes through the records of one batch, in either direction.
type walk struct {
	header record.BatchHeader
	it     record.Iterator

	// Backward only.
	marks []record.Mark // the starts of the blocks that are left
	block []record.Mark // the places of the records of the present block that are left
}

// begin opens a batch over its inflated bytes. Backward, all of it is looked through once,
// since records are stored so that they can only be read forward.
func (w *walk) begin(b *record.Batch, data []byte, dir Direction) error {
	w.header = b.Header
	w.marks, w.block = w.marks[:0], w.block[:0]
	if err := b.RecordsIn(data, &w.it); err != nil || dir == Forward {
		return err
	}
	for n := 0; ; n++ {
		m := w.it.Mark()
		if !w.it.Next() {
			return w.it.Err()
		}
		if n%blockRecords == 0 {
			w.marks = append(w.marks, m)
		}
	}
}

// next moves to the next record, or to the previous one; false at the end.
func (w *walk) next(dir Direction) (*record.Record, error) {
	if dir == Forward {
		if w.it.Next() {
			return w.record(), nil
		}
		return nil, w.it.Err()
	}
	if len(w.block) == 0 && !w.loadBlock() {
		return nil, w.it.Err()
	}
	last := len(w.block) - 1
	w.it.Return(w.block[last])
	w.block = w.block[:last]
	if !w.it.Next() {
		return nil, w.it.Err()
	}
	return w.record(), nil
}

// record is the present one as readers get it.
func (w *walk) record() *record.Record {
	r := w.it.Record()
	r.Headers = dedupe.Visible(&w.header, r)
	return r
}

// loadBlock finds the places of the records in the last block that is left.
func (w *walk) loadBlock() bool {
	if len(w.marks) == 0 {
		return false
	}
	last := len(w.marks) - 1
	w.it.Return(w.marks[last])
	w.marks = w.marks[:last]
	for range blockRecords {
		m := w.it.Mark()
		if !w.it.Next() {
			break
		}
		w.block = append(w.block, m)
	}
	return len(w.block) > 0
}

func (w *walk) logAppendTime() bool { return w.header.Attributes.Has(record.AttrLogAppendTime) }

// drop gives up everything that belongs to the batch.
func (w *walk) drop() { *w = walk{} }

// size is about how many bytes the walk itself holds.
func (w *walk) size() int {
	const markSize = 24
	return (cap(w.marks) + cap(w.block)) * markSize
}

// passed is the boundary of a partition whose batch was walked to its end.
func (w *walk) passed(dir Direction) model.Offset {
	if dir == Forward {
		return w.header.NextOffset()
	}
	return w.header.BaseOffset
}
