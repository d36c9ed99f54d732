package log

import (
	"math"

	"tidewire/internal/model"
	"tidewire/storage/dedupe"
	"tidewire/storage/record"
)

// AppendReplica stores whole batches as the leader's log has them, with the offsets and
// leader epochs that they carry, all or none of them. Each batch's frame and CRC are
// checked, its records are not. The first batch must begin at the log end; compacted
// says that the leader's log has been compacted, so that offsets may have gaps, also
// before the first batch (the log is then marked as compacted, durably, before the
// first gap goes in). Epochs must not fall. Whether somebody waits for the stable end is
// the caller's business (RequestSync). now is in milliseconds.
//
// A gap of 2^30 offsets or more is taken only before the first batch and when everything
// is synced, which is asked for.
//
// Errors: OffsetMismatch (an offset below the log end, or a gap that is not allowed;
// Extra log_end), CorruptBatch, Fenced (an epoch below the log's), LeaderUnavailable (also: such a gap before the sync
// it waits for, which has been asked for), and those of Append.
// A first batch that begins below the log end of an empty log and reaches over it comes
// of a log start inside that batch at the leader: TruncateFullyAndStartAt its base
// offset, then append it again.
func (l *Log) AppendReplica(batches []byte, compacted bool, now int64) (Appended, error) {
	a, err := checkReplica(batches)
	if err != nil {
		return Appended{}, err
	}
	for {
		marked := l.compacted.Load()
		gap, stored, err := l.appendReplica(batches, a, replicaAppend{mayMark: compacted && !marked, now: now})
		if isErr(err, errNoKeyFile) {
			if err := l.BeginKeys(); err != nil {
				return Appended{}, err
			}
			continue
		}
		if !gap || err != nil {
			return stored, err
		}
		// Not under the lock: the marker is synced.
		if err := l.MarkCompacted(); err != nil {
			return Appended{}, err
		}
	}
}

type replicaAppend struct {
	mayMark bool // on a gap, say so instead of refusing it
	now     int64
}

// checkReplica checks frames and CRCs, and that offsets grow and epochs do not fall
// within the batches. Gaps are looked at under the lock.
func checkReplica(batches []byte) (Appended, error) {
	a := Appended{Bytes: len(batches), MaxTimestamp: math.MinInt64, LogAppendTime: -1}
	epoch, next := model.LeaderEpoch(0), model.Offset(0)
	for rest := batches; len(rest) > 0; a.Batches++ {
		b, more, err := record.ParseBatch(rest)
		if err == nil {
			err = b.VerifyCRC()
		}
		if err == nil && b.Header.Attributes.Has(record.AttrControl) {
			_, _, err = b.Marker()
		}
		if err != nil {
			return a, frameError(err)
		}
		h := &b.Header
		if h.LastOffsetDelta > farGap {
			return a, model.Errorf(model.CorruptBatch, "the batch at offset %d has a last offset delta of %d", h.BaseOffset, h.LastOffsetDelta)
		}
		if h.LeaderEpoch < epoch || a.Batches > 0 && h.BaseOffset < next {
			return a, model.Errorf(model.CorruptBatch, "the batch at offset %d with leader epoch %d follows offset %d with epoch %d",
				h.BaseOffset, h.LeaderEpoch, next-1, epoch)
		}
		if a.Batches == 0 {
			a.First = h.BaseOffset
		}
		a.keyed = a.keyed || dedupe.Marked(h)
		epoch, next, rest = h.LeaderEpoch, h.NextOffset(), more
		a.MaxTimestamp = max(a.MaxTimestamp, h.MaxTimestamp)
	}
	if a.Batches == 0 {
		return a, model.Errorf(model.CorruptBatch, "no batch to append")
	}
	a.Last = next - 1
	return a, nil
}

// appendReplica reports a gap, and has appended nothing, when the log must be marked as
// compacted first.
func (l *Log) appendReplica(batches []byte, a Appended, r replicaAppend) (gap bool, _ Appended, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.appendableLocked(); err != nil {
		return false, Appended{}, err
	}
	if a.keyed && !l.keys.Filed() {
		return false, Appended{}, errNoKeyFile
	}
	first, err := record.ParseHeader(batches)
	if err != nil {
		return false, Appended{}, err
	}
	if latest := l.epochs.Latest(); first.LeaderEpoch < latest {
		return false, Appended{}, model.Errorf(model.Fenced, "leader epoch %d is older than %d", first.LeaderEpoch, latest)
	}
	end := l.LogEnd()
	if a.First < end {
		return false, Appended{}, offsetMismatch(a.First, end, end)
	}
	next := end
	for rest := batches; len(rest) > 0; {
		h, err := record.ParseHeader(rest)
		if err != nil {
			return false, Appended{}, err
		}
		if err := l.fits(&h, next); err != nil {
			if r.mayMark {
				return true, Appended{}, nil
			}
			return false, Appended{}, err
		}
		if relative(h.BaseOffset, next) > farGap {
			if next > end {
				return false, Appended{}, model.Errorf(model.OffsetMismatch, "the batch at offset %d is too far from %d for one append", h.BaseOffset, next)
			}
			if l.synced.Load() < int64(end) {
				l.store.sched.Enqueue(l.member)
				return false, Appended{}, model.Errorf(model.LeaderUnavailable, "the log must be synced before a gap from %d to %d", next, h.BaseOffset)
			}
		}
		next, rest = h.NextOffset(), rest[h.Size():]
	}
	a, err = l.storeLocked(batches, a, r.now)
	return false, a, err
}

// fits refuses gaps, before a batch or inside it, until the log is marked as compacted.
func (l *Log) fits(h *record.BatchHeader, next model.Offset) error {
	if l.follows(h.BaseOffset, next) != nil {
		return offsetMismatch(h.BaseOffset, next, l.LogEnd())
	}
	if int64(h.Count) <= int64(h.LastOffsetDelta) && !l.compacted.Load() {
		return model.Errorf(model.CorruptBatch, "the batch at offset %d has %d records in %d offsets, and the log is not compacted",
			h.BaseOffset, h.Count, int64(h.LastOffsetDelta)+1)
	}
	return nil
}

func offsetMismatch(got, due, end model.Offset) error {
	return model.Errorf(model.OffsetMismatch, "the batch at offset %d does not follow: offset %d is due", got, due).
		WithExtra("log_end", int64(end))
}
