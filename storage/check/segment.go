package check

import (
	"errors"
	"io"
	"math"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

const window = 256 << 10

// reader reads a .log file in windows.
type reader struct {
	f     fsx.File
	size  int64
	buf   []byte
	start int64 // position of buf[0] in the file
}

// openLog opens a .log file for reading.
func (c *checker) openLog(name string) (*reader, error) {
	f, err := c.fs.OpenFile(name, fsx.ReadOnly)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &reader{f: f, size: size}, nil
}

// window gives n bytes at pos; fewer only at the end of the file.
func (r *reader) window(pos int64, n int) ([]byte, error) {
	n = int(min(int64(n), max(r.size-pos, 0)))
	if off := pos - r.start; off >= 0 && off+int64(n) <= int64(len(r.buf)) {
		return r.buf[off : off+int64(n)], nil
	}
	want := int(min(int64(max(n, window)), r.size-pos))
	if cap(r.buf) < want {
		r.buf = make([]byte, want)
	}
	r.buf, r.start = r.buf[:want], pos
	if m, err := r.f.ReadAt(r.buf, pos); m < want {
		r.buf = r.buf[:0]
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return r.buf[:n], nil
}

// errFrame wraps what is wrong with the bytes of a batch rather than with reading them.
type errFrame struct{ cause error }

func (e *errFrame) Error() string { return e.cause.Error() }
func (e *errFrame) Unwrap() error { return e.cause }

// header decodes the header at pos of a batch that is there as a whole. Errors: *errFrame,
// or of I/O.
func (r *reader) header(pos int64) (record.BatchHeader, error) {
	b, err := r.window(pos, record.HeaderSize)
	if err != nil {
		return record.BatchHeader{}, err
	}
	h, err := record.ParseHeader(b)
	if err == nil && int64(h.Size()) > r.size-pos {
		err = record.ErrShort
	}
	if err != nil {
		return h, &errFrame{err}
	}
	return h, nil
}

// walk reads the batches of one segment.
func (p *partition) walk(i int) (err error) {
	s := p.segs[i]
	p.c.sum.Segments++
	p.c.sum.Bytes += s.size
	if p.follows(s); p.torn {
		return nil
	}
	if s.off, err = p.openIndex(s, indexSuffix, offsetEntrySize); err != nil {
		return err
	}
	if s.tim, err = p.openIndex(s, timeIndexSuffix, timeEntrySize); err != nil {
		return err
	}
	r, err := p.c.openLog(p.file(s.base, logSuffix))
	if err != nil {
		return err
	}
	defer r.f.Close()
	for pos := int64(0); pos < r.size; {
		h, err := r.header(pos)
		b := &place{h, pos}
		if err == nil {
			err = p.fits(s, &h)
		}
		var bad *errFrame
		if errors.As(err, &bad) {
			p.badBatch(s, b, r.size, bad)
			return nil
		}
		if err != nil {
			return err
		}
		if err := p.meet(s, b, r); err != nil || p.torn {
			return err
		}
		pos += int64(h.Size())
	}
	p.endIndexes(s)
	return nil
}

// follows checks that a segment begins where the one before it ended.
func (p *partition) follows(s *segment) {
	name := p.file(s.base, logSuffix)
	gap := s.base - p.end
	switch {
	case gap == 0:
	case gap > 0 && p.known && !p.clean && p.end >= p.point:
		// Unless it is far; what a power cut left of the segment before it.
		if p.compacted && gap > math.MaxInt32/2 {
			break
		}
		p.torn = true
		p.c.report(Note, name, at{0, s.base}, "the segment does not follow the end of the log, %d, above the recovery point %d: the next start removes it", p.end, p.point)
		return
	case gap > 0 && p.compacted:
	default:
		p.broken = true
		p.c.report(Damage, name, at{0, s.base}, "the segment begins at offset %d where %d is due", s.base, p.end)
	}
	p.end = s.base
}

// fits checks a header against those before it.
func (p *partition) fits(s *segment, h *record.BatchHeader) error {
	switch {
	case h.BaseOffset != p.end && (!p.compacted || h.BaseOffset < p.end):
		return &errFrame{model.Errorf(model.CorruptBatch, "the batch begins at offset %d where %d is due", h.BaseOffset, p.end)}
	case h.LastOffset()-s.base > math.MaxInt32:
		return &errFrame{model.Errorf(model.CorruptBatch, "the batch at offset %d is too far from the segment's base", h.BaseOffset)}
	case h.LeaderEpoch < p.latest:
		return &errFrame{model.Errorf(model.CorruptBatch, "the leader epoch falls from %d to %d", p.latest, h.LeaderEpoch)}
	}
	return nil
}

// badBatch tells what it means that a batch cannot be read on from.
func (p *partition) badBatch(s *segment, b *place, size int64, bad *errFrame) {
	s.broken = true
	name, w := p.file(s.base, logSuffix), at{b.pos, p.end}
	if p.known && !p.clean && p.end >= p.point {
		p.torn = true
		p.c.report(Note, name, w, "a torn tail of %d bytes above the recovery point %d, which the next start cuts off: %v", size-b.pos, p.point, bad)
		return
	}
	p.broken = true
	what := bad.Error()
	if errors.Is(bad, record.ErrShort) {
		what = "the file ends within the batch"
	}
	p.c.report(Damage, name, w, "%s; %d bytes from here on were not checked", what, size-b.pos)
}

// meet takes a batch whose place in the log is right.
func (p *partition) meet(s *segment, b *place, r *reader) error {
	if p.c.o.Deep {
		bytes, err := r.window(b.pos, b.h.Size())
		if err != nil {
			return err
		}
		batch := record.Batch{Header: b.h, Bytes: bytes}
		if err := p.deep(&batch); err != nil {
			if p.known && !p.clean && p.end >= p.point {
				p.badBatch(s, b, r.size, &errFrame{err})
				return nil
			}
			p.broken = true
			p.c.report(Damage, p.file(s.base, logSuffix), b.at(), "%v", err)
		}
		if err := p.checkSnapshots(b.h.BaseOffset); err != nil {
			return err
		}
		p.replay(s, &batch)
	}
	p.c.sum.Batches++
	p.c.sum.Records += int64(b.h.Count)
	p.noteEpoch(&b.h)
	p.end = b.h.NextOffset()
	p.meetIndexes(s, b)
	return nil
}

const knownAttributes = 7 | record.AttrLogAppendTime | record.AttrTransactional | record.AttrControl | record.AttrDeleteHorizon

// deep checks the contents of a batch.
func (p *partition) deep(b *record.Batch) error {
	if err := b.VerifyCRC(); err != nil {
		return err
	}
	h := &b.Header
	if h.Attributes&^knownAttributes != 0 {
		return model.Errorf(model.CorruptBatch, "the batch has unknown attributes %#x", uint16(h.Attributes))
	}
	if !p.compacted && int64(h.Count) != int64(h.LastOffsetDelta)+1 {
		return model.Errorf(model.CorruptBatch, "the batch has %d records in %d offsets", h.Count, int64(h.LastOffsetDelta)+1)
	}
	if h.Attributes.Has(record.AttrControl) {
		if _, _, err := b.Marker(); err != nil {
			return err
		}
	}
	it := &p.c.it
	if err := b.Records(p.c.inflate, it); err != nil {
		return err
	}
	largest := int64(math.MinInt64)
	for it.Next() {
		largest = max(largest, it.Record().Timestamp)
	}
	if err := it.Err(); err != nil {
		return err
	}
	if h.Count > 0 && largest != h.MaxTimestamp {
		return model.Errorf(model.CorruptBatch, "the largest timestamp of the records is %d, and the header says %d", largest, h.MaxTimestamp)
	}
	return nil
}
