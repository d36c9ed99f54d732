package browse

import (
	"math"

	"tidewire/internal/model"
	"tidewire/storage/record"
)

// Direction is the way in which a read goes through the offsets.
type Direction uint8

// The directions.
const (
	Forward Direction = iota
	Backward
)

// Opposite is the other direction.
func (d Direction) Opposite() Direction { return Forward + Backward - d }

// Log is one partition as it is read.
type Log interface {
	// Bounds are the first offset that can be read and the end of what may be seen.
	Bounds() (start, end model.Offset)
	// Read appends whole stored batches to dst, from the one that holds from, or the next
	// one where compaction left a gap; none that starts at or above limit, at least one
	// where there is one, else at most maxBytes. Outside of the log it is
	// OffsetOutOfRange.
	Read(dst []byte, from, limit model.Offset, maxBytes int) ([]byte, error)
}

// Unbounded is a bound that no offset reaches: what is visible at each moment is read.
const Unbounded = model.Offset(math.MaxInt64)

// Part is one partition of a Merge: Next is its boundary, below which lies what has been
// read and from which on what has not (backward the other way round). Bound is where
// reading ends whatever is added: forward nothing at or above it is read, and a backward
// read begins at or below it.
type Part struct {
	Partition   model.PartitionID
	Log         Log
	Next, Bound model.Offset
}

// source is a partition with its next record.
type source struct {
	Part
	merge *Merge
	first model.Offset // Next when the read began

	has    bool // head is known
	loaded bool // and its record is at hand
	head   head

	chunk []byte // stored batches
	spans []span // those that are left, in the order of the file
	data  []byte // inflated records of the present batch; nil where they lie in chunk
	walk  walk
	open  bool // walk is in a batch
	rec   *record.Record
	held  int // bytes, as counted in merge.held

	step model.Offset // backward: how far before the boundary to look for batches
}

// head is what is known of the next record.
type head struct {
	timestamp int64
	offset    model.Offset
}

// span is where a batch lies in a chunk.
type span struct{ from, to int }

const firstStep = 64

// fill finds the next record; not has: there is none now.
func (s *source) fill() error {
	s.has, s.loaded, s.rec = false, false, nil
	for {
		if s.open {
			if done, err := s.advance(); err != nil || done {
				return err
			}
		}
		if len(s.spans) == 0 {
			if more, err := s.read(); err != nil || !more {
				s.drop()
				return err
			}
			continue // read may have passed a gap
		}
		if err := s.openBatch(); err != nil {
			return err
		}
	}
}

// advance looks in the open batch. done: a record was found, or none is to be found any
// more.
func (s *source) advance() (done bool, _ error) {
	dir := s.merge.dir
	start, end := s.Log.Bounds()
	for {
		r, err := s.walk.next(dir)
		if err != nil {
			return false, s.damaged(err)
		}
		if r == nil {
			s.open, s.data = false, nil
			s.pass(s.walk.passed(dir))
			return false, nil
		}
		switch {
		case dir == Forward && r.Offset < s.Next || dir == Backward && r.Offset >= min(s.Next, end):
			continue
		case dir == Forward && r.Offset >= min(s.Bound, end):
			s.Next = max(s.Next, min(s.Bound, end))
			s.drop()
			return true, nil
		case dir == Backward && r.Offset < start:
			s.Next = min(s.Next, start)
			s.drop()
			return true, nil
		}
		s.rec, s.has, s.loaded = r, true, true
		s.head = head{r.Timestamp, r.Offset}
		if dir == Forward {
			s.Next = r.Offset
		} else {
			s.Next = r.Offset + 1
		}
		return true, nil
	}
}

// pass moves the boundary over offsets that hold nothing more; it never moves back.
func (s *source) pass(to model.Offset) {
	if s.merge.dir == Forward {
		s.Next = max(s.Next, min(to, s.Bound))
	} else {
		s.Next = min(s.Next, to)
	}
}

// take moves the boundary over the record at hand.
func (s *source) take() {
	if s.merge.dir == Forward {
		s.Next = s.head.offset + 1
	} else {
		s.Next = s.head.offset
	}
}

// read reads the next chunk; more tells that it is worth looking again.
func (s *source) read() (more bool, _ error) {
	start, end := s.Log.Bounds()
	var err error
	if s.merge.dir == Forward {
		if s.Next < start { // what retention took is passed over
			if s.first == s.Next {
				s.first = start
			}
			s.Next = start
		}
		limit := min(s.Bound, end)
		if s.Next >= limit {
			return false, nil
		}
		err = s.readFrom(s.Next, limit)
		if err == nil && len(s.spans) == 0 {
			s.Next = limit // a gap of compaction
		}
	} else {
		if s.Next > end { // a truncation took it
			if s.first == s.Next {
				s.first = end
			}
			s.Next = end
		}
		if s.Next <= start {
			return false, nil
		}
		err = s.readBelow(start)
	}
	if model.HasCode(err, model.OffsetOutOfRange) {
		if now, _ := s.Log.Bounds(); now > start { // retention came between
			s.spans = s.spans[:0]
			return true, nil
		}
	}
	return err == nil, err
}

// readFrom reads one chunk and finds its batches.
func (s *source) readFrom(from, limit model.Offset) error {
	s.spans = s.spans[:0]
	chunk, err := s.Log.Read(s.merge.buffer(s.chunk), from, limit, s.merge.chunkBytes)
	if err != nil {
		return err
	}
	s.chunk = chunk
	for at := 0; at < len(chunk); {
		h, err := record.ParseHeader(chunk[at:])
		if err != nil || h.Size() > len(chunk)-at {
			return s.damaged(err)
		}
		s.spans = append(s.spans, span{at, at + h.Size()})
		at += h.Size()
	}
	s.count()
	return nil
}

// readBelow reads the last batches below the boundary. It looks a step before the boundary,
// further where compaction left nothing there, and goes on from what it finds to the
// boundary; the step follows the size of what was found, so that mostly one read is enough.
func (s *source) readBelow(start model.Offset) error {
	if s.step < 1 {
		s.step = firstStep
	}
	from := max(start, s.Next-s.step)
	if err := s.readFrom(from, s.Next); err != nil {
		return err
	}
	if len(s.spans) == 0 { // a gap of compaction
		s.Next = from
		s.step = min(2*s.step, 1<<40)
		return nil
	}
	for reads := 1; ; reads++ {
		first, last, err := s.ends()
		if err != nil {
			return err
		}
		if last >= s.Next {
			s.adapt(max(1, s.Next-first), reads)
			return nil
		}
		if err := s.readFrom(last, s.Next); err != nil {
			return err
		}
		if len(s.spans) == 0 { // a gap reaches to the boundary: what was there before is wanted
			s.Next = last
			return s.readFrom(max(first, start), s.Next)
		}
	}
}

// adapt chooses the next step: as far as a chunk should reach, by the size of what was
// found; not further than that where a read did not come so far, as where segments are
// small.
func (s *source) adapt(covered model.Offset, reads int) {
	reach := covered * model.Offset(s.merge.chunkBytes) / model.Offset(len(s.chunk)) * 3 / 4
	if reads > 1 {
		reach = min(reach, covered)
	}
	s.step = max(1, min(reach, 2*s.step))
}

// ends are the first offset of the chunk's batches and the one after them.
func (s *source) ends() (first, next model.Offset, _ error) {
	a, err := record.ParseHeader(s.chunk[s.spans[0].from:])
	if err != nil {
		return 0, 0, s.damaged(err)
	}
	b, err := record.ParseHeader(s.chunk[s.spans[len(s.spans)-1].from:])
	if err != nil {
		return 0, 0, s.damaged(err)
	}
	return a.BaseOffset, b.NextOffset(), nil
}

// openBatch begins to walk the next batch of the chunk. Control batches are passed over.
func (s *source) openBatch() error {
	at := s.spans[0]
	if s.merge.dir == Forward {
		s.spans = s.spans[1:]
	} else {
		last := len(s.spans) - 1
		at, s.spans = s.spans[last], s.spans[:last]
	}
	batch, _, err := record.ParseBatch(s.chunk[at.from:at.to])
	if err == nil {
		err = batch.VerifyCRC()
	}
	if err != nil {
		return s.damaged(err)
	}
	if batch.Header.Attributes.Has(record.AttrControl) {
		s.walk.header = batch.Header
		s.pass(s.walk.passed(s.merge.dir))
		return nil
	}
	data, err := inflate(&batch)
	if err == nil {
		err = s.walk.begin(&batch, data, s.merge.dir)
	}
	if err != nil {
		return s.damaged(err)
	}
	s.open, s.data = true, nil
	if batch.Header.Attributes.Codec() != record.None {
		s.data = data
	}
	s.count()
	return nil
}

func (s *source) damaged(err error) error {
	return model.Errorf(model.StorageError, "partition %d holds a damaged batch near offset %d", s.Partition, s.Next).WithCause(err)
}

// drop gives up the bytes; head stays known.
func (s *source) drop() {
	s.merge.spare(s.chunk)
	s.chunk, s.spans, s.data = nil, nil, nil
	s.walk.drop()
	s.open, s.loaded, s.rec = false, false, nil
	s.count()
}

// count keeps the merge's account of what is held.
func (s *source) count() {
	now := cap(s.chunk) + cap(s.data) + s.walk.size()
	s.merge.held += now - s.held
	s.held = now
}
