package log

import (
	"io/fs"
	"math"
	"slices"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/files"
	"tidewire/storage/index"
	"tidewire/storage/record"
)

// Windows of the scanner: a read by offset looks at little more than one index
// interval, scans go through much.
const (
	probeWindow = 8 << 10
	scanWindow  = 64 << 10
	checkWindow = 1 << 20
)

// Read appends to dst whole stored batches, starting with the one that holds
// from (or, after compaction, the next one): at least one, at most maxBytes unless
// the first is larger, none whose base offset is ≥ limit, all of one segment. from
// at limit or at the log end gives nothing. Outside [log start, log end] it is
// OffsetOutOfRange with Extra earliest and latest. CRCs are not checked. A latched
// log answers below its stable end only.
func (l *Log) Read(dst []byte, from, limit model.Offset, maxBytes int) ([]byte, error) {
	for {
		cuts := l.cuts.Load()
		out, err := l.read(dst, from, limit, maxBytes)
		if l.cuts.Load() == cuts {
			return out, err
		}
		// A truncation came between: what was read may be gone, or others' bytes.
	}
}

func (l *Log) read(dst []byte, from, limit model.Offset, maxBytes int) (out []byte, err error) {
	out = dst
	err = l.within(from, limit, func(seg *segment, limit model.Offset) (found bool, err error) {
		out, found, err = l.readSegment(dst, seg, from, limit, maxBytes)
		return found, err
	})
	return out, err
}

// within hands segments to use, in order, from the one that has from on, until one has a
// batch at or after from, or none begins below limit, which use gets as far as it may be
// read. Errors as of Read.
func (l *Log) within(from, limit model.Offset, use func(seg *segment, limit model.Offset) (found bool, err error)) error {
	end, start := l.LogEnd(), l.LogStart()
	if from < start || from > end {
		return outOfRange(from, start, end)
	}
	if err := l.Failed(); err != nil {
		if end = min(end, l.StableEnd()); from >= end && from < limit {
			return err
		}
	}
	limit = min(limit, end)
	if from >= limit {
		return nil
	}
	segs := *l.segs.Load()
	if from < segs[0].base { // the log start has passed it since
		return outOfRange(from, l.LogStart(), end)
	}
	for i := floorSegment(segs, from); i < len(segs); i++ {
		seg := segs[i]
		if seg.base >= limit {
			return nil // a gap of compaction reaches to the limit
		}
		found, err := use(seg, limit)
		if err != nil {
			if start := l.LogStart(); from < start { // its file may be gone, which is no fault of the storage
				return outOfRange(from, start, end)
			}
			return l.readError(seg, err)
		}
		if found {
			return nil
		}
		if !l.compacted.Load() || i+1 < len(segs) && !l.adjoins(seg, segs[i+1].base) {
			return l.damage(seg, seg.size.Load(), from, errGap)
		}
	}
	return l.damage(segs[len(segs)-1], 0, from, errGap)
}

// adjoins reports whether the segment behind one may begin at next. Compaction keeps the last
// batch of a segment, so that only a gap that no segment reaches over can be between two.
func (l *Log) adjoins(seg *segment, next model.Offset) bool {
	at, err := l.cutPosition(seg, math.MaxInt64)
	return err == nil && (at.end == next || relative(next, at.end) > farGap)
}

func outOfRange(off, start, end model.Offset) error {
	return model.Errorf(model.OffsetOutOfRange, "offset %d is outside %d to %d", off, start, end).
		WithExtra("earliest", int64(start)).WithExtra("latest", int64(end))
}

// readError gives errors of the file system their code. A failed read does not
// latch the log: other parts may be readable.
func (l *Log) readError(seg *segment, err error) error {
	switch {
	case model.HasCode(err, model.StorageError) || model.HasCode(err, model.LeaderUnavailable):
		return err
	case isErr(err, fs.ErrClosed):
		return errClosed
	case fsx.IsNoDescriptor(err):
		return noDescriptor(err)
	case isErr(err, files.ErrPinned):
		return model.Errorf(model.RateLimited, "too many reads hold files of the log").WithCause(err)
	case isErr(err, record.ErrShort) || model.HasCode(err, model.CorruptBatch):
		return l.damage(seg, 0, seg.base, err)
	}
	return l.storageError("read "+seg.path+logSuffix, err)
}

// readSegment reports not found when every batch of the segment ends at or below from.
func (l *Log) readSegment(dst []byte, seg *segment, from, limit model.Offset, maxBytes int) (out []byte, found bool, err error) {
	size := seg.size.Load()
	sc, err := l.store.scanner(seg, size, probeWindow)
	if err != nil {
		return dst, false, err
	}
	defer l.store.putScanner(sc)
	pos, h, err := l.locateNext(seg, sc, from)
	if err != nil || pos == size {
		return dst, false, err
	}
	if h.BaseOffset >= limit {
		return dst, true, nil // a gap of compaction reaches to the limit
	}
	n := int(min(int64(max(maxBytes, h.Size())), size-pos))
	at := len(dst)
	dst = slices.Grow(dst, n)
	if err := fsx.ReadFull(sc.F, dst[at:at+n], pos); err != nil {
		return dst[:at], false, err
	}
	keep, err := l.wholeBatches(dst[at:at+n], h.BaseOffset, limit, l.reach(seg))
	if err != nil {
		return dst[:at], false, l.damage(seg, pos+int64(keep), from, err)
	}
	return dst[:at+keep], true, nil
}

// wholeBatches is the length of the whole batches at the start of b, the first of which
// is at next, whose base offset is below limit. Offsets must grow, or reading would go
// in circles, and have no gap but of compaction.
func (l *Log) wholeBatches(b []byte, next, limit, reach model.Offset) (int, error) {
	n := 0
	for {
		h, err := record.ParseHeader(b[n:])
		if isErr(err, record.ErrShort) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		if h.BaseOffset >= limit || h.Size() > len(b)-n {
			return n, nil
		}
		if err := firstErr(l.follows(h.BaseOffset, next), within(&h, reach)); err != nil {
			return n, err
		}
		next = h.NextOffset()
		n += h.Size()
	}
}

// reach is where the segment behind one begins: no batch of it goes further. A base offset
// that damage has made larger, which no checksum covers, is found by that.
func (l *Log) reach(seg *segment) model.Offset {
	segs := *l.segs.Load()
	i := floorSegment(segs, seg.base) + 1
	if i == len(segs) || segs[i-1] != seg {
		return math.MaxInt64
	}
	return segs[i].base
}

func within(h *record.BatchHeader, reach model.Offset) error {
	if h.NextOffset() > reach || h.BaseOffset < 0 {
		return model.Errorf(model.CorruptBatch, "a batch at offset %d in a segment that ends at %d", h.BaseOffset, reach)
	}
	return nil
}

// locateNext is locate for a reader, who must not step over a hole.
func (l *Log) locateNext(seg *segment, sc *scanner, from model.Offset) (int64, record.BatchHeader, error) {
	pos, h, err := l.locate(seg, sc, from)
	if err == nil && pos < sc.Size && h.BaseOffset > from {
		if err := firstErr(l.follows(h.BaseOffset, max(from, seg.base)), within(&h, l.reach(seg))); err != nil {
			return pos, h, l.damage(seg, pos, from, err)
		}
	}
	return pos, h, err
}

// locate finds the batch that holds off, or the first one after it; where the segment
// has neither, the position is the segment's size.
func (l *Log) locate(seg *segment, sc *scanner, off model.Offset) (int64, record.BatchHeader, error) {
	pos, err := l.floorPosition(seg, sc, off)
	if err != nil {
		return 0, record.BatchHeader{}, err
	}
	for pos < sc.Size {
		h, err := sc.Header(pos)
		if err != nil {
			return 0, h, l.damage(seg, pos, off, err)
		}
		if h.NextOffset() > off {
			return pos, h, nil
		}
		pos += int64(h.Size())
	}
	return pos, record.BatchHeader{}, nil
}

var errGap = model.Errorf(model.CorruptBatch, "the segment ends before this offset and the next begins after it")

// floorPosition is the position of a batch at or before the one that holds off,
// by the index. An entry that does not fit the log makes the index be rebuilt.
func (l *Log) floorPosition(seg *segment, sc *scanner, off model.Offset) (int64, error) {
	e, ok, err := seg.off.Floor(relative(off, seg.base))
	if err == nil && ok {
		h, herr := sc.HeaderWithin(e.Val)
		if herr == nil && relative(h.LastOffset(), seg.base) == e.Key {
			return e.Val, nil
		}
		if herr != nil && !isErr(herr, record.ErrShort) && !model.HasCode(herr, model.CorruptBatch) {
			return 0, herr
		}
		err = index.ErrBadEntry
	}
	if err == nil {
		return 0, nil
	}
	if passes(err) {
		return 0, err
	}
	l.repairIndexes(seg, err)
	return 0, nil
}

// repairIndexes rebuilds both indexes of a segment from its log. It holds the
// mutex, for damage is rare and an append meanwhile would go astray. When it fails
// the reader goes on without an index; only an active segment, whose state for
// further appends is lost with it, latches.
func (l *Log) repairIndexes(seg *segment, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.cutting || seg.dropped.Load() { // the files of a dropped one have other names
		return
	}
	l.store.log.Warn("rebuilding indexes", "log", l.name, "segment", baseName(seg.base), "err", cause)
	active := seg == l.activeLocked()
	err := l.rebuildLocked(seg, !active)
	switch {
	case err == nil:
	case active:
		_ = l.fail(l.storageError("rebuild indexes", err))
	default:
		l.store.log.Warn("indexes not rebuilt", "log", l.name, "segment", baseName(seg.base), "err", err)
	}
}

// rebuildLocked makes a segment's indexes anew. Headers are trusted: their
// checksums are recovery's business.
func (l *Log) rebuildLocked(seg *segment, sealed bool) error {
	size := seg.size.Load()
	sc, err := l.store.scanner(seg, size, scanWindow)
	if err != nil {
		return err
	}
	defer l.store.putScanner(sc)
	seg.known.Store(false)
	if err := seg.clearIndexes(); err != nil {
		return err
	}
	for pos := int64(0); pos < size; {
		h, err := sc.Header(pos)
		if err != nil {
			return l.damage(seg, pos, seg.base, err)
		}
		seg.note(&h, pos, l.cfg.IndexIntervalBytes)
		// On a full disk the entries stay in memory.
		if err := firstErr(seg.off.FlushIfFull(), seg.tim.FlushIfFull()); err != nil && !fsx.IsNoSpace(err) {
			return err
		}
		pos += int64(h.Size())
	}
	seg.known.Store(true)
	if !sealed {
		return nil
	}
	seg.noteTime()
	return firstErr(seg.off.Sync(), seg.tim.Sync())
}
