package partition

import (
	"tidewire/internal/model"
	"tidewire/storage/log"
	"tidewire/storage/record"
)

// Read appends whole stored batches to dst, from the one that holds from, none that
// starts at or above limit; at least one where there is one, else at most maxBytes. It
// reads what the log holds: the caller passes a limit at or below the high watermark.
func (p *Partition) Read(dst []byte, from, limit model.Offset, maxBytes int) ([]byte, error) {
	return p.log.Read(dst, from, limit, maxBytes)
}

// OffsetForTimestamp returns the smallest offset below limit whose record's timestamp
// (milliseconds) is at least ts, whatever their order.
func (p *Partition) OffsetForTimestamp(ts int64, limit model.Offset) (model.Offset, int64, bool, error) {
	return p.log.OffsetForTimestamp(ts, limit)
}

// Pin gives whole stored batches where they are in a file, from the one that holds from, as
// log.Log's does: the caller stops at a limit at or below the high watermark, and closes it.
func (p *Partition) Pin(from, limit model.Offset) (*log.Extent, error) { return p.log.Pin(from, limit) }

// First gives the header of the batch that Read begins with; not ok where there is none
// below limit.
func (p *Partition) First(from, limit model.Offset) (h record.BatchHeader, ok bool, err error) {
	return p.log.First(from, limit)
}

// AbortedTransactions are those that a reader of committed records in [from, to) must know
// of.
func (p *Partition) AbortedTransactions(from, to model.Offset) ([]log.AbortedTransaction, error) {
	return p.log.AbortedTransactions(from, to)
}
