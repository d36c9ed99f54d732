package visible

import (
	"errors"
	"io"

	"tidewire/internal/model"
	"tidewire/storage/record"
)

// Run is a piece of a file: whole batches that follow each other.
type Run struct{ Pos, Len int64 }

// Source is a piece of a segment's file that begins with the batch that has the walk's next
// offset, or the first one behind it, and ends with a whole batch.
type Source struct {
	File      io.ReaderAt
	Pos, End  int64 // bytes of the file
	Compacted bool  // offsets may have gaps
}

// Walk finds the batches that a reader gets as they are stored, by their headers alone. It
// takes whole batches, of which the first visible one always comes, whatever its size; the
// others as long as neither limit is passed. Batches without records, which compaction
// leaves, are left out. It is for one goroutine.
type Walk struct {
	Filter     Filter
	MaxBytes   int64 // of batches as stored
	MaxRecords int

	Next    model.Offset // in: where the reader is; out: where it goes on
	Bytes   int64        // taken
	Records int          // taken; those before the reader's offset in the first batch count too
	Full    bool         // a limit stands before the next batch
	Ended   bool         // what is visible ends here

	buf    []byte // of the file from start on
	start  int64
	inside bool // the walk has passed a batch
}

// window is how much is read of a file at once where batches are small.
const window = 4 << 10

// Over reports whether there is nothing more to take.
func (w *Walk) Over() bool { return w.Full || w.Ended || w.Next >= w.Filter.To }

// Through walks through a source and gives what it takes of it. If the walk is not over
// afterwards it goes on in the source that has Next. Errors: CorruptBatch and ErrShort where
// the file does not hold what it should, those of the file and of Filter.Aborted; what was
// taken before is given with them.
func (w *Walk) Through(s Source) (runs []Run, err error) {
	w.buf, w.start = w.buf[:0], 0
	size := 0 // of the batch before
	for pos := s.Pos; pos < s.End && !w.Over(); {
		h, err := w.header(s, pos, size)
		if err != nil {
			return runs, err
		}
		size = h.Size()
		switch {
		case h.BaseOffset >= w.Filter.To: // a gap of compaction reaches to the end
			w.Next, w.Ended = w.Filter.To, true
			return runs, nil
		case h.NextOffset() > w.Filter.To:
			w.Ended = true
			return runs, nil
		case w.inside && h.BaseOffset != w.Next && !(s.Compacted && h.BaseOffset > w.Next):
			return runs, model.Errorf(model.CorruptBatch, "offset %d where %d is due", h.BaseOffset, w.Next)
		}
		take, err := w.takes(&h)
		if err != nil || w.Full {
			return runs, err
		}
		if take {
			runs = appendRun(runs, Run{pos, int64(size)})
			w.Bytes += int64(size)
			w.Records += int(h.Count)
		}
		w.Next, w.inside = h.NextOffset(), true
		pos += int64(size)
	}
	return runs, nil
}

// takes decides on one batch.
func (w *Walk) takes(h *record.BatchHeader) (bool, error) {
	hidden, err := w.Filter.Hides(h)
	if err != nil || hidden || h.Count == 0 {
		return false, err
	}
	w.Full = w.Records > 0 && (w.Records+int(h.Count) > w.MaxRecords || w.Bytes+int64(h.Size()) > w.MaxBytes)
	return !w.Full, nil
}

func appendRun(runs []Run, r Run) []Run {
	if n := len(runs) - 1; n >= 0 && runs[n].Pos+runs[n].Len == r.Pos {
		runs[n].Len += r.Len
		return runs
	}
	return append(runs, r)
}

// header reads the header at pos. before is the size of the batch before: behind a small one
// more than the header is read, since the next will be small too.
func (w *Walk) header(s Source, pos int64, before int) (record.BatchHeader, error) {
	at := pos - w.start
	if at < 0 || at+record.HeaderSize > int64(len(w.buf)) {
		n := int64(record.HeaderSize)
		if before > 0 && before < window {
			n = window
		}
		n = min(n, s.End-pos)
		if w.buf == nil {
			w.buf = make([]byte, 0, window)
		}
		w.buf, w.start = w.buf[:n], pos
		if got, err := s.File.ReadAt(w.buf, pos); got < len(w.buf) {
			w.buf = w.buf[:0]
			if errors.Is(err, io.EOF) {
				err = record.ErrShort
			}
			return record.BatchHeader{}, err
		}
		at = 0
	}
	h, err := record.ParseHeader(w.buf[at:])
	if err == nil && int64(h.Size()) > s.End-pos {
		err = record.ErrShort
	}
	return h, err
}
