// Package visible decides which stored batches of a partition a reader gets: Filter one by
// one, Walk for those that are sent as they are stored. It knows batches and offsets; how far
// a reader may read, and where the bytes are, is the caller's.
package visible

import (
	"tidewire/internal/model"
	"tidewire/storage/producer"
	"tidewire/storage/record"
)

// Aborted gives the aborted transactions that a reader of [from, to) must know of, as the
// log's index has them.
type Aborted func(from, to model.Offset) ([]producer.AbortedTransaction, error)

// Filter tells batches apart (KIP-98). Control batches are for no reader: their offsets are
// passed. Under read_committed, which a Filter with Aborted means, batches of aborted
// transactions are neither; the reader stops at the last stable offset by itself, below
// which every transaction has ended. It is for one goroutine.
type Filter struct {
	To      model.Offset // end of what is read
	Aborted Aborted      // nil: read_uncommitted

	known bool
	spans map[model.ProducerID][]producer.AbortedTransaction
}

// Hides reports whether a batch is left out. Batches come in order of offsets: the aborted
// transactions are looked up once, at the first transactional batch. Errors: Aborted's.
func (f *Filter) Hides(h *record.BatchHeader) (bool, error) {
	if h.Attributes.Has(record.AttrControl) {
		return true, nil
	}
	if f.Aborted == nil || !h.Attributes.Has(record.AttrTransactional) {
		return false, nil
	}
	if !f.known {
		all, err := f.Aborted(h.BaseOffset, f.To)
		if err != nil {
			return false, err
		}
		f.spans = make(map[model.ProducerID][]producer.AbortedTransaction, len(all))
		for _, a := range all {
			f.spans[a.ProducerID] = append(f.spans[a.ProducerID], a)
		}
		f.known = true
	}
	for _, a := range f.spans[h.ProducerID] {
		if a.FirstOffset <= h.BaseOffset && h.BaseOffset < a.LastOffset {
			return true, nil
		}
	}
	return false, nil
}
