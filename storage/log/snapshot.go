package log

import (
	"path"
	"slices"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/producer"
)

// pendingSnapshot waits for the next sync to be written.
type pendingSnapshot struct {
	off   model.Offset
	bytes []byte
}

// snapshotLocked encodes the state of the producers as of now.
func (l *Log) snapshotLocked() []byte {
	var txns []producer.TxnSummary
	for _, seg := range *l.segs.Load() {
		if t := seg.txn.Summary(); t.Count > 0 {
			txns = append(txns, t)
		}
	}
	return l.prods.EncodeSnapshot(txns)
}

func (l *Log) snapshotPath(off model.Offset) string {
	return path.Join(l.dir, baseName(off)+snapshotSuffix)
}

// writeSnapshot makes a snapshot durable. It is no more than
// saved work: on a full disk there is none, and the next start reads more of the log.
func (l *Log) writeSnapshot(s pendingSnapshot) error {
	err := l.tryWriteSnapshot(s)
	if fsx.IsNoSpace(err) || fsx.IsNoDescriptor(err) {
		l.store.log.Warn("producer snapshot not written", "log", l.name, "offset", s.off, "err", err)
		return nil
	}
	return err
}

// tryWriteSnapshot is writeSnapshot that says when there was no room. It is written as
// a whole or stays as it was: what is known of producers below a log start is there alone.
func (l *Log) tryWriteSnapshot(s pendingSnapshot) error {
	return fsx.WriteFile(l.store.fs, l.snapshotPath(s.off), s.bytes)
}

// listSnapshots gives the offsets of the folder's snapshots, ascending.
func (l *Log) listSnapshots() ([]model.Offset, error) {
	entries, err := l.store.fs.ReadDir(l.dir)
	if err != nil {
		return nil, err
	}
	var out []model.Offset
	for _, e := range entries {
		if off, ok := parseBase(e.Name, snapshotSuffix); ok && !e.Dir {
			out = append(out, off)
		}
	}
	slices.Sort(out)
	return out, nil
}

// removeSnapshots deletes those that a rule names.
func (l *Log) removeSnapshots(gone func(model.Offset) bool) error {
	all, err := l.listSnapshots()
	if err != nil {
		return err
	}
	for _, off := range all {
		if !gone(off) {
			continue
		}
		if err := l.store.fs.Remove(l.snapshotPath(off)); !isMissing(err) {
			return err
		}
	}
	return nil
}
