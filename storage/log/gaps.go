package log

import (
	"math"
	"path"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/checkpoint"
	"tidewire/storage/record"
)

// compactedFile marks a log that compaction has touched, here or at the leader that
// it was copied from. It is durable before the first gap in the log is, and stays.
// Only its being there counts: a damaged one says the same.
const compactedFile = "compacted"

func encodeCompacted() []byte { return checkpoint.Seal([]byte("tidewire-compacted 1\n")) }

// Compacted reports whether offsets of this log may have gaps. In a log that was never
// compacted a gap is damage.
func (l *Log) Compacted() bool { return l.compacted.Load() }

// MarkCompacted makes it durable that offsets of this log may have gaps from now on. It
// must have returned before a cleaned segment is swapped in, and so must a checkpoint
// with a recovery point at or above the base of the segment behind it: above the recovery
// point a gap between two segments is what a power cut leaves of the first, and cut
// (segmentFollows). It is written once; later calls do nothing.
func (l *Log) MarkCompacted() error {
	if l.compacted.Load() {
		return nil
	}
	l.cutMu.Lock()
	defer l.cutMu.Unlock()
	if l.compacted.Load() {
		return nil
	}
	if err := firstErr(l.Failed(), l.serving()); err != nil {
		return err
	}
	if err := fsx.WriteFile(l.store.fs, path.Join(l.dir, compactedFile), encodeCompacted()); err != nil {
		if fsx.IsNoSpace(err) { // nothing was changed: the caller may try again
			return model.Errorf(model.StorageFull, "the disk is full").WithCause(err)
		}
		if fsx.IsNoDescriptor(err) {
			return noDescriptor(err)
		}
		return l.fail(l.storageError("write "+compactedFile, err))
	}
	l.compacted.Store(true)
	return nil
}

// serving refuses what must not begin once the log is closed or about to be.
func (l *Log) serving() error {
	l.store.mu.Lock()
	closing := l.store.closing
	l.store.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if closing || l.closed {
		return errClosed
	}
	return nil
}

// farGap is a gap too wide for a segment's relative offsets to be sure to reach over it.
// Before one everything is synced, then a segment begins behind it.
const farGap = math.MaxInt32 / 2

// far reports whether a batch is too far from next to stand in a segment that begins there.
func far(h *record.BatchHeader, next model.Offset) bool {
	return relative(h.BaseOffset, next) > farGap && relative(h.LastOffset(), next) > math.MaxInt32
}

// heldLocked says that no segment may be begun: a batch behind a far gap is not synced. When
// power took it and left the next segment, recovery could not tell the loss from the gap.
func (l *Log) heldLocked() bool { return l.farAt > 0 && l.synced.Load() <= int64(l.farAt) }

// segmentFollows checks that a segment at base may stand where next is due. Appends begin
// a segment where the last ended, also before a gap. So above the recovery point a gap
// between segments means that the end of the first was never synced; whole batches behind
// it would hide the loss. When that point is lost compaction has the benefit of the doubt.
func (r *recovery) segmentFollows(base, next model.Offset) error {
	if base > next && base > r.point && r.known && relative(base, next) <= farGap {
		return errGap
	}
	return r.l.follows(base, next)
}

// follows checks that a batch at base may stand where next is due.
func (l *Log) follows(base, next model.Offset) error {
	if base == next || base > next && l.compacted.Load() {
		return nil
	}
	return model.Errorf(model.CorruptBatch, "offset %d where %d is due", base, next)
}
