// Package batches reads the batches of a log's file in windows.
package batches

import (
	"errors"
	"io"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// Scanner reads a file in windows. Errors are those of the file, record.ErrShort and
// CorruptBatch. It is not safe for concurrent use.
type Scanner struct {
	F     io.ReaderAt // what is read
	Size  int64       // of what is read
	chunk int
	buf   []byte
	start int64 // position of buf[0] in the file
}

// Reset makes it read the first size bytes of f, at least chunk bytes at a time.
func (sc *Scanner) Reset(f io.ReaderAt, size int64, chunk int) {
	*sc = Scanner{F: f, Size: size, chunk: chunk, buf: sc.buf[:0]}
}

// Release lets go of the file, and of a buffer of more than keep bytes.
func (sc *Scanner) Release(keep int) {
	if cap(sc.buf) > keep {
		sc.buf = nil
	}
	sc.F = nil
}

// Window gives n bytes at pos; fewer only at the end of the file.
func (sc *Scanner) Window(pos int64, n int) ([]byte, error) {
	if rest := sc.Size - pos; int64(n) > rest {
		n = int(max(rest, 0))
	}
	if off := pos - sc.start; off >= 0 && off+int64(n) <= int64(len(sc.buf)) {
		return sc.buf[off : off+int64(n)], nil
	}
	want := int(min(int64(max(n, sc.chunk)), sc.Size-pos))
	if cap(sc.buf) < want {
		sc.buf = make([]byte, want)
	}
	sc.buf, sc.start = sc.buf[:want], pos
	if err := fsx.ReadFull(sc.F, sc.buf, pos); err != nil {
		sc.buf = sc.buf[:0]
		return nil, err
	}
	return sc.buf[:n], nil
}

// Header decodes the batch header at pos; ErrShort when the file ends before the
// batch does.
func (sc *Scanner) Header(pos int64) (record.BatchHeader, error) {
	b, err := sc.Window(pos, record.HeaderSize)
	if err != nil {
		return record.BatchHeader{}, err
	}
	h, err := record.ParseHeader(b)
	if err == nil && int64(h.Size()) > sc.Size-pos {
		err = record.ErrShort
	}
	return h, err
}

// Batch gives the whole batch at pos, whose header is h.
func (sc *Scanner) Batch(pos int64, h *record.BatchHeader) (record.Batch, error) {
	b, err := sc.Window(pos, h.Size())
	if err != nil {
		return record.Batch{}, err
	}
	return record.Batch{Header: *h, Bytes: b}, nil
}

// HeaderWithin is Header for a position that may be anything.
func (sc *Scanner) HeaderWithin(pos int64) (record.BatchHeader, error) {
	if pos < 0 || pos >= sc.Size {
		return record.BatchHeader{}, record.ErrShort
	}
	return sc.Header(pos)
}

// CheckBatch verifies the batch at pos: bad is what is wrong with it, err a
// failure to read.
func (sc *Scanner) CheckBatch(pos int64) (h record.BatchHeader, bad, err error) {
	h, err = sc.Header(pos)
	if err == nil {
		var b record.Batch
		if b, err = sc.Batch(pos, &h); err == nil {
			err = b.VerifyCRC()
		}
	}
	if errors.Is(err, record.ErrShort) || model.HasCode(err, model.CorruptBatch) {
		return h, err, nil
	}
	return h, nil, err
}

// FindBatch looks for a whole batch anywhere behind pos.
func (sc *Scanner) FindBatch(pos int64) (bool, error) {
	for pos++; pos+record.HeaderSize <= sc.Size; pos++ {
		if _, err := sc.Header(pos); err != nil {
			if errors.Is(err, record.ErrShort) || model.HasCode(err, model.CorruptBatch) {
				continue
			}
			return false, err
		}
		_, bad, err := sc.CheckBatch(pos)
		if err != nil || bad == nil {
			return bad == nil && err == nil, err
		}
	}
	return false, nil
}
