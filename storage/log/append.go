package log

import (
	"fmt"
	"hash/fnv"
	"math"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/dedupe"
	"tidewire/storage/epochs"
	"tidewire/storage/index"
	"tidewire/storage/producer"
	"tidewire/storage/record"
)

// Appended says where an append landed.
type Appended struct {
	First, Last   model.Offset // of the first and the last record
	Batches       int
	Bytes         int
	MaxTimestamp  int64 // largest timestamp of the appended batches, as stored
	LogAppendTime int64 // the time stamped on every record, or -1 for CreateTime
	// Duplicate says that the batches are a retry of ones that the producer's last five
	// have: nothing was appended, and the rest tells where they are and their timestamps.
	Duplicate bool

	idempotent bool // some batch has a producer id
	keyed      bool // some batch was stored under an Idempotency-Key
}

// Append stores one or more whole batches at the log end, all or none of them. It
// writes base offset, leader epoch and (LogAppendTime) timestamps into batches in
// place. On return the bytes are in the page cache, perhaps across a new segment.
// CRCs and records are the caller's business (storage/ingest). now is in
// milliseconds.
//
// Batches with a producer id are checked in the same breath (KIP-98, KIP-360): Fenced (an
// epoch below the producer's), OutOfOrderSequence (a gap, or a retry of which a part is
// new), UnknownProducer (a sequence that is no beginning, of a producer not known here),
// InvalidTransactionState (not transactional while the producer has a transaction open).
// A batch with a producer id and without a sequence is a coordinator's.
//
// Other errors: CorruptBatch and RecordTooLarge (max.message.bytes), RateLimited (no memory for an Idempotency-Key),
// Fenced (an epoch below the log's), StorageFull, LeaderUnavailable (the process has no
// descriptor left): nothing was appended; StorageError: the log has latched, and the
// outcome is unknown.
func (l *Log) Append(batches []byte, epoch model.LeaderEpoch, now int64) (Appended, error) {
	a, err := l.append(batches, epoch, now)
	if isErr(err, errNoKeyFile) { // not under the lock: it is synced
		if err = l.BeginKeys(); err == nil {
			a, err = l.append(batches, epoch, now)
		}
	}
	return a, err
}

func (l *Log) append(batches []byte, epoch model.LeaderEpoch, now int64) (Appended, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.appendableLocked(); err != nil {
		return Appended{}, err
	}
	if epoch < l.epochs.Latest() {
		return Appended{}, model.Errorf(model.Fenced, "leader epoch %d is older than %d", epoch, l.epochs.Latest())
	}
	a, err := l.stampLocked(batches, epoch, now)
	if err != nil {
		return Appended{}, err
	}
	if a.idempotent {
		dup, err := l.checkProducersLocked(batches, a, now)
		if err != nil {
			return Appended{}, err
		}
		if dup != nil {
			return *dup, nil
		}
	}
	if a.keyed {
		if err := l.roomForKeyLocked(now); err != nil {
			return Appended{}, err
		}
	}
	return l.storeLocked(batches, a, now)
}

// appendableLocked says why nothing can be appended now, or nil.
func (l *Log) appendableLocked() error {
	if err := l.Failed(); err != nil {
		return err
	}
	if l.cutting {
		return model.Errorf(model.LeaderUnavailable, "the log of %s is being truncated", l.name)
	}
	return nil
}

// storeLocked writes batches that have their offsets and epochs, and moves the log end.
func (l *Log) storeLocked(batches []byte, a Appended, now int64) (Appended, error) {
	if err := l.activeLocked().f.Ready(); fsx.IsNoDescriptor(err) {
		return Appended{}, noDescriptor(err) // even taking back would need one
	}
	m := l.markLocked()
	if err := l.writeLocked(batches, now); err != nil {
		return Appended{}, l.undoLocked(m, err)
	}
	l.prods.Commit(l.HighWatermark()) // before the end that makes it possible to read them
	l.logEnd.Store(int64(a.Last) + 1)
	if l.cfg.WriteCaching {
		l.stable.Store(int64(a.Last) + 1)
	} else {
		l.store.sched.MarkDirty(l.member)
	}
	return a, nil
}

// stampLocked checks the frame of each batch and assigns offsets and epoch.
func (l *Log) stampLocked(b []byte, epoch model.LeaderEpoch, now int64) (Appended, error) {
	next := l.LogEnd()
	a := Appended{First: next, Bytes: len(b), MaxTimestamp: math.MinInt64, LogAppendTime: -1}
	if l.cfg.LogAppendTime {
		a.LogAppendTime = now
	}
	for len(b) > 0 {
		h, err := record.ParseHeader(b)
		if err != nil {
			return a, frameError(err)
		}
		n, keyed := h.Size(), dedupe.Marked(&h)
		limit := l.cfg.MaxMessageBytes
		if keyed {
			limit += dedupe.Overhead
		}
		switch {
		case n > len(b):
			return a, frameError(record.ErrShort)
		case n > limit:
			return a, model.Errorf(model.RecordTooLarge, "a batch has %d bytes; the topic takes at most %d (max.message.bytes)", n, l.cfg.MaxMessageBytes)
		case h.Count == 0 || int64(h.Count) != int64(h.LastOffsetDelta)+1:
			return a, model.Errorf(model.CorruptBatch, "the batch has %d records in %d offsets", h.Count, int64(h.LastOffsetDelta)+1)
		}
		record.SetBaseOffset(b, next)
		record.SetLeaderEpoch(b, epoch)
		ts := h.MaxTimestamp
		if l.cfg.LogAppendTime {
			record.SetLogAppendTime(b[:n], now)
			ts = now
		}
		a.MaxTimestamp = max(a.MaxTimestamp, ts)
		a.Batches++
		a.idempotent, a.keyed = a.idempotent || h.ProducerID >= 0, a.keyed || keyed
		next += model.Offset(h.Count)
		b = b[n:]
	}
	if a.Batches == 0 {
		return a, model.Errorf(model.CorruptBatch, "no batch to append")
	}
	a.Last = next - 1
	return a, nil
}

func frameError(err error) error {
	if isErr(err, record.ErrShort) {
		return model.Errorf(model.CorruptBatch, "the batch is cut short")
	}
	return err
}

// writeLocked writes stamped batches, each run of those that fit the active
// segment with one write, rolling in between.
func (l *Log) writeLocked(b []byte, now int64) error {
	for next := l.LogEnd(); len(b) > 0; {
		seg := l.activeLocked()
		n := l.runLocked(seg, b, now)
		if n == 0 {
			h, err := record.ParseHeader(b)
			if err != nil {
				return err
			}
			if far(&h, next) {
				next = h.BaseOffset
			}
			if err := l.rollLocked(next, now); err != nil {
				return err
			}
			continue
		}
		if err := firstErr(seg.off.FlushIfFull(), seg.tim.FlushIfFull()); err != nil {
			return err
		}
		pos := seg.size.Load()
		if _, err := seg.f.WriteAt(b[:n], pos); err != nil {
			return err
		}
		for run := b[:n]; len(run) > 0; {
			h, err := record.ParseHeader(run)
			if err != nil {
				return err
			}
			if relative(h.BaseOffset, next) > farGap {
				l.farAt = h.BaseOffset
			}
			seg.note(&h, pos, l.cfg.IndexIntervalBytes)
			l.noteEpochLocked(&h)
			if b := (record.Batch{Header: h, Bytes: run[:h.Size()]}); h.ProducerID >= 0 {
				if a, aborted := l.prods.Enter(&b, now); aborted {
					seg.txn.Add(a)
				}
			} else if dedupe.Marked(&h) {
				l.keys.Enter(&b)
			}
			pos += int64(h.Size())
			next = h.NextOffset()
			run = run[h.Size():]
		}
		seg.size.Store(pos)
		seg.appended.Store(now)
		b = b[n:]
	}
	return nil
}

// noteEpochLocked enters a batch's leader epoch if it is a new one.
func (l *Log) noteEpochLocked(h *record.BatchHeader) {
	var added bool
	if l.epochs, added = l.epochs.Note(h.LeaderEpoch, h.BaseOffset); added {
		l.epochsNew = true
	}
}

// runLocked is the number of bytes of b, in whole batches, that belong into seg;
// 0 when it must be rolled first. The rules are Kafka's LogSegment.shouldRoll; an
// empty segment takes a batch of any size, unless a gap before it is too wide for the
// segment's relative offsets: then the segment stays empty.
func (l *Log) runLocked(seg *segment, b []byte, now int64) int {
	size, run, batches := seg.size.Load(), 0, 0
	held := l.heldLocked()
	rollTs, segmentMs := seg.rollTs, l.segmentMsLocked(seg)
	for run < len(b) {
		h, err := record.ParseHeader(b[run:])
		if err != nil {
			return run
		}
		at := size + int64(run)
		if relative(h.LastOffset(), seg.base) > math.MaxInt32 || at > 0 && !held &&
			(at+int64(h.Size()) > l.cfg.SegmentBytes ||
				timeWaited(rollTs, h.MaxTimestamp, seg.created, now) > segmentMs ||
				seg.full(l.cfg.SegmentIndexBytes, batches)) {
			return run
		}
		if size == 0 && run == 0 {
			rollTs = h.MaxTimestamp
		}
		run += h.Size()
		batches++
	}
	return run
}

// segmentMsLocked is segment.ms for one segment, shortened by its share of
// segment.jitter.ms. The share comes from the segment's name, so that a restart does not
// change it.
func (l *Log) segmentMsLocked(seg *segment) int64 {
	jitter := min(l.cfg.SegmentJitterMs, l.cfg.SegmentMs)
	if jitter <= 0 {
		return l.cfg.SegmentMs
	}
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s %d %d", l.key.ID, l.key.Partition, seg.base) // never fails (hash.Hash)
	return l.cfg.SegmentMs - int64(h.Sum64()%uint64(jitter))
}

// timeWaited is how long a segment has been open: by timestamps of records, or by
// the clock when the first batch has none.
func timeWaited(rollTs, ts, created, now int64) int64 {
	if rollTs >= 0 && ts >= 0 {
		return ts - rollTs
	}
	return now - created
}

// rollLocked seals the active segment and starts the next one at base.
func (l *Log) rollLocked(base model.Offset, now int64) error {
	seg := l.activeLocked()
	if err := seg.sealIndexes(); err != nil {
		return err
	}
	s := newSegment(l.store.fs, l.store.indexBufs, l.dir, base, now)
	l.dirDirty = true
	if err := s.create(); err != nil {
		return err
	}
	l.snaps = append(l.snaps, pendingSnapshot{base, l.snapshotLocked()})
	l.pending = append(l.pending, seg)
	l.addSegmentLocked(s)
	l.keys.Hurry()
	return nil
}

// undo is the state before an append.
type undo struct {
	segs     []*segment
	size     int64
	since    int
	maxTs    int64
	maxTsOff model.Offset
	rollTs   int64
	off, tim int
	offLast  index.Entry
	timLast  index.Entry
	pending  int
	snaps    int
	epochs   epochs.Cache
	txn      producer.TxnSummary
	farAt    model.Offset
}

func (l *Log) markLocked() undo {
	seg := l.activeLocked()
	m := undo{segs: *l.segs.Load(), size: seg.size.Load(), since: seg.since, maxTs: seg.maxTs.Load(),
		maxTsOff: seg.maxTsOff, rollTs: seg.rollTs, pending: len(l.pending), snaps: len(l.snaps), epochs: l.epochs, txn: seg.txn.Summary(), farAt: l.farAt}
	m.off, m.offLast = seg.off.State()
	m.tim, m.timLast = seg.tim.State()
	return m
}

// undoLocked takes a failed append back: new segments are removed and the file is
// cut to the last whole batch, durably, or a power cut could bring back what was refused. A full disk is then refused with StorageFull, a lack of
// descriptors with LeaderUnavailable; any other failure, or a failing cut, latches the
// log.
func (l *Log) undoLocked(m undo, cause error) error {
	err := l.cutBackLocked(m)
	if err == nil && fsx.IsNoDescriptor(cause) {
		return noDescriptor(cause)
	}
	if err == nil && fsx.IsNoSpace(cause) {
		l.store.log.Warn("append refused: disk full", "log", l.name, "err", cause)
		return model.Errorf(model.StorageFull, "the disk is full").WithCause(cause)
	}
	return l.fail(l.storageError("append", firstErr(err, cause)))
}

func (l *Log) cutBackLocked(m undo) error {
	var err error
	segs := *l.segs.Load()
	l.segs.Store(&m.segs)
	for _, s := range segs[len(m.segs):] {
		l.dirDirty = true // or a power cut could bring the file back
		err = firstErr(err, s.remove())
	}
	l.pending = l.pending[:m.pending]
	l.epochs, l.farAt = m.epochs, m.farAt
	l.snaps = l.snaps[:m.snaps]
	l.prods.Rollback()
	l.keys.Truncate(l.LogEnd())
	seg := l.activeLocked()
	seg.since, seg.maxTsOff, seg.rollTs = m.since, m.maxTsOff, m.rollTs
	seg.maxTs.Store(m.maxTs)
	seg.size.Store(m.size)
	err = firstErr(err, seg.txn.CutTail(m.txn), seg.f.Truncate(m.size), seg.off.Truncate(m.off, m.offLast), seg.tim.Truncate(m.tim, m.timLast), seg.f.SyncData())
	if err == nil && len(segs) > len(m.segs) {
		err = l.store.fs.SyncDir(l.dir)
	}
	return err
}
