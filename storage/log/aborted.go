package log

import (
	"tidewire/internal/model"
	"tidewire/storage/producer"
)

// AbortedTransaction is an entry of the aborted transactions index; see storage/producer.
type AbortedTransaction = producer.AbortedTransaction

// AbortedTransactions gives the aborted transactions of which a reader of committed
// records must know that reads [from, to): those with records below to whose marker is at
// or above from. The order is that of the markers. Errors: StorageError.
func (l *Log) AbortedTransactions(from, to model.Offset) ([]AbortedTransaction, error) {
	for {
		cuts := l.cuts.Load()
		out, err := l.abortedIn(from, to)
		if l.cuts.Load() == cuts {
			return out, err
		}
	}
}

func (l *Log) abortedIn(from, to model.Offset) ([]AbortedTransaction, error) {
	segs := *l.segs.Load()
	var out []AbortedTransaction
	for _, seg := range segs[floorSegment(segs, from):] {
		all, err := seg.txn.Entries()
		if err != nil {
			return nil, l.storageError("read "+seg.path+txnIndexSuffix, err)
		}
		for _, a := range all {
			if a.LastOffset >= from && a.FirstOffset < to {
				out = append(out, a)
			}
			if a.LastStable >= to { // no later marker ends a transaction from below to
				return out, nil
			}
		}
	}
	return out, nil
}
