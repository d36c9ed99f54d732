package log

import (
	"errors"
	"io/fs"
	"path"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/dedupe"
	"tidewire/storage/record"
)

// FindKey gives the slice that was stored under an Idempotency-Key within
// dedupe.window.ms. now is in milliseconds.
func (l *Log) FindKey(k dedupe.Key, now int64) (dedupe.Entry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.keys.Find(k, now)
}

// Keys is how many are remembered.
func (l *Log) Keys() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.keys.Len()
}

// roomForKeyLocked refuses a leader's batch whose key could not be remembered.
func (l *Log) roomForKeyLocked(now int64) error {
	if !l.keys.Filed() {
		return errNoKeyFile
	}
	if !l.keys.Full() {
		return nil
	}
	if l.keys.Expire(now); !l.keys.Full() {
		return nil
	}
	return model.Errorf(model.RateLimited, "this node has no memory for a further Idempotency-Key until older ones are forgotten; a shorter dedupe.window.ms makes that sooner")
}

// tendKeys forgets keys whose window has passed and writes the file when that is due.
func (l *Log) tendKeys(now int64) {
	l.mu.Lock()
	l.keys.Expire(now)
	due := l.keys.Due(now)
	l.mu.Unlock()
	if !due {
		return
	}
	if err := l.saveKeys(); err != nil {
		l.store.log.Warn("idempotency keys not written", "log", l.name, "err", err)
	}
}

func (l *Log) saveKeys() error {
	l.cutMu.Lock()
	defer l.cutMu.Unlock()
	return l.saveKeysCutLocked()
}

// saveKeysCutLocked writes the file of keys when it is behind, so that what a restart has to
// read of the log is little, or when it goes beyond the log's end.
func (l *Log) saveKeysCutLocked() error {
	l.mu.Lock()
	end := l.LogEnd()
	if l.closed || !l.keys.Behind() && !l.keys.Stale(end) {
		l.mu.Unlock()
		return nil
	}
	v := l.keys.View(end)
	l.mu.Unlock()
	return l.writeKeys(v)
}

func (l *Log) writeKeys(v dedupe.View) error {
	if err := fsx.WriteFile(l.store.fs, path.Join(l.dir, dedupe.FileName), v.Encode()); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys.Saved(v, l.store.o.Now().UnixMilli())
	return nil
}

// errNoKeyFile says that a batch with a key may be appended once there is a file.
var errNoKeyFile = errors.New("there is no file of keys")

// BeginKeys makes the log ready for batches with an Idempotency-Key: a durable file, without
// which no batch has one. Append and AppendReplica do it by themselves; who holds a lock
// calls it before. Errors: StorageFull, LeaderUnavailable, StorageError, which does not latch
// the log.
func (l *Log) BeginKeys() error {
	l.mu.Lock()
	filed := l.keys.Filed()
	l.mu.Unlock()
	if filed {
		return nil
	}
	l.cutMu.Lock()
	defer l.cutMu.Unlock()
	l.mu.Lock()
	err := l.appendableLocked()
	filed, v := l.keys.Filed(), l.keys.View(l.LogEnd())
	l.mu.Unlock()
	if err != nil || filed {
		return err
	}
	if err := l.writeKeys(v); err != nil {
		return l.fileError(dedupe.FileName, err)
	}
	return nil
}

// loadKeys takes in the keys below an offset: the file's, and those of the batches behind.
// What of a damaged file's time compaction or retention took away is forgotten.
func (r *recovery) loadKeys(below model.Offset) error {
	l := r.l
	b, err := fsx.ReadFile(l.store.fs, path.Join(l.dir, dedupe.FileName), dedupe.MaxFile)
	if isErr(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	from, err := l.keys.Load(b, below)
	if err != nil {
		l.store.log.Warn("idempotency keys are rebuilt", "log", l.name, "err", err)
		l.keys.Lost()
		from = below
		for i := len(r.segs) - 1; i >= 0 && !l.keys.Passed(r.segs[i].appended.Load(), l.store.o.Now().UnixMilli()); i-- {
			from = min(from, r.segs[i].base)
		}
	}
	for i := floorSegment(r.segs, from); i < len(r.segs) && from < below && r.segs[i].base < below; i++ {
		err := l.eachBatch(r.segs[i], from, below, func(sc *scanner, pos int64, h *record.BatchHeader) error {
			if !dedupe.Marked(h) {
				return nil
			}
			b, err := sc.Batch(pos, h)
			if err == nil && b.VerifyCRC() == nil {
				l.keys.Enter(&b)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// keepKeys writes the file before segments below an offset go. read is why they could not
// be read.
func (r *recovery) keepKeys(first model.Offset) (read, err error) {
	if err := r.loadKeys(first); err != nil || !r.l.keys.Behind() {
		return err, nil
	}
	return nil, r.l.writeKeys(r.l.keys.View(first))
}

// settleKeys writes the file anew where it tells of what a power cut has taken: others are
// about to get the offsets.
func (r *recovery) settleKeys(end model.Offset) error {
	if !r.l.keys.Stale(end) {
		return nil
	}
	return r.l.writeKeys(r.l.keys.View(end))
}
