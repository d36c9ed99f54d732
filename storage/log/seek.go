package log

import (
	"tidewire/internal/model"
	"tidewire/storage/index"
	"tidewire/storage/record"
)

// OffsetForTimestamp finds the smallest offset in [log start, limit) whose record
// timestamp is ≥ ts, whatever the order of timestamps. Control batches do not
// count. Batches that are decoded have their CRC checked.
//
// Why the index may be used although timestamps have no order: a time index entry
// (T, o) says that T is the largest timestamp of the segment up to that entry and
// that the batch ending at o is the first that has it. So with T ≤ ts nothing
// before that batch can be the answer.
func (l *Log) OffsetForTimestamp(ts int64, limit model.Offset) (off model.Offset, recTs int64, found bool, err error) {
	for {
		cuts := l.cuts.Load()
		off, recTs, found, err = l.seekTime(ts, limit)
		if l.cuts.Load() == cuts {
			return off, recTs, found, err
		}
	}
}

func (l *Log) seekTime(ts int64, limit model.Offset) (off model.Offset, recTs int64, found bool, err error) {
	start, end := l.LogStart(), l.LogEnd()
	if l.Failed() != nil {
		end = min(end, l.StableEnd())
	}
	limit = min(limit, end)
	segs := *l.segs.Load()
	for _, seg := range segs[floorSegment(segs, start):] {
		if seg.base >= limit {
			break
		}
		off, recTs, found, err = l.seekSegment(seg, seek{ts, start, limit})
		if err != nil && l.LogStart() > start { // the segment's file may be gone: look again from there
			return l.OffsetForTimestamp(ts, limit)
		}
		if err != nil {
			return 0, 0, false, l.readError(seg, err)
		}
		if found {
			return off, recTs, true, nil
		}
	}
	return 0, 0, false, nil
}

// seek is what is sought: a timestamp of at least ts at an offset in [start, limit).
type seek struct {
	ts           int64
	start, limit model.Offset
}

func (l *Log) seekSegment(seg *segment, q seek) (model.Offset, int64, bool, error) {
	sc, err := l.store.scanner(seg, seg.size.Load(), scanWindow)
	if err != nil {
		return 0, 0, false, err
	}
	defer l.store.putScanner(sc)
	l.loadMaxTimestamp(seg, sc)
	if seg.known.Load() && seg.maxTs.Load() < q.ts {
		return 0, 0, false, nil
	}
	pos, err := l.timePosition(seg, sc, q)
	if err != nil {
		return 0, 0, false, err
	}
	for pos < sc.Size {
		h, err := sc.Header(pos)
		if err != nil {
			return 0, 0, false, l.damage(seg, pos, seg.base, err)
		}
		if h.BaseOffset >= q.limit {
			break
		}
		if h.NextOffset() > q.start && h.MaxTimestamp >= q.ts && !h.Attributes.Has(record.AttrControl) {
			off, ts, found, err := l.seekBatch(sc, pos, &h, q)
			if err != nil {
				return 0, 0, false, l.damage(seg, pos, h.BaseOffset, err)
			}
			if found {
				return off, ts, true, nil
			}
		}
		pos += int64(h.Size())
	}
	return 0, 0, false, nil
}

// timePosition is a position before which no record answers q.
func (l *Log) timePosition(seg *segment, sc *scanner, q seek) (int64, error) {
	e, ok, err := seg.tim.Floor(q.ts)
	if err == nil && !ok {
		return l.floorPosition(seg, sc, max(q.start, seg.base))
	}
	if err == nil {
		pos, eerr := l.entryBatch(seg, sc, e)
		if eerr == nil {
			return pos, nil
		}
		err = eerr
	}
	if passes(err) {
		return 0, err
	}
	l.repairIndexes(seg, err)
	return 0, nil
}

// entryBatch finds the batch of a time index entry; ErrBadEntry when there is none.
func (l *Log) entryBatch(seg *segment, sc *scanner, e index.Entry) (int64, error) {
	last := seg.base + model.Offset(e.Val)
	pos, h, err := l.locate(seg, sc, last)
	if err == nil && pos < sc.Size && h.LastOffset() == last && h.MaxTimestamp == e.Key {
		return pos, nil
	}
	if err != nil && passes(err) {
		return 0, err
	}
	return 0, index.ErrBadEntry
}

// loadMaxTimestamp makes sure that the segment's largest timestamp is known: of a
// sealed one it is the last entry of the time index.
func (l *Log) loadMaxTimestamp(seg *segment, sc *scanner) {
	if seg.known.Load() {
		return
	}
	n, last := seg.tim.State()
	if n == 0 && sc.Size == 0 {
		seg.known.Store(true)
		return
	}
	err := index.ErrBadEntry
	if n > 0 {
		if err = seg.tim.Verify(); err == nil {
			_, err = l.entryBatch(seg, sc, last)
		}
	}
	switch {
	case err == nil:
		seg.maxTs.Store(last.Key)
		seg.known.Store(true)
	case !passes(err):
		l.repairIndexes(seg, err)
	}
}

func (l *Log) seekBatch(sc *scanner, pos int64, h *record.BatchHeader, q seek) (model.Offset, int64, bool, error) {
	b, err := sc.Batch(pos, h)
	if err != nil {
		return 0, 0, false, err
	}
	if err := b.VerifyCRC(); err != nil {
		return 0, 0, false, err
	}
	d := l.store.decompressors.Get().(*decoder)
	defer func() {
		d.inflate.Release()
		l.store.decompressors.Put(d)
	}()
	if err := b.Records(d.inflate, &d.it); err != nil {
		return 0, 0, false, err
	}
	for d.it.Next() {
		r := d.it.Record()
		if r.Offset >= q.limit {
			return 0, 0, false, nil
		}
		if r.Offset >= q.start && r.Timestamp >= q.ts {
			return r.Offset, r.Timestamp, true, nil
		}
	}
	return 0, 0, false, d.it.Err()
}
