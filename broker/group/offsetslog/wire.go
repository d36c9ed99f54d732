package offsetslog

import (
	"encoding/binary"
	"unicode/utf8"

	"tidewire/internal/model"
)

// writer appends the fields of records of our own. Numbers are varints, texts and lists have
// their length in front.
type writer struct{ b []byte }

func (w *writer) byte(v byte)        { w.b = append(w.b, v) }
func (w *writer) int16(v int16)      { w.b = binary.BigEndian.AppendUint16(w.b, uint16(v)) }
func (w *writer) uint(v uint64)      { w.b = binary.AppendUvarint(w.b, v) }
func (w *writer) int(v int64)        { w.b = binary.AppendVarint(w.b, v) }
func (w *writer) id(v model.TopicID) { w.b = append(w.b, v[:]...) }

func (w *writer) text(v string) {
	w.uint(uint64(len(v)))
	w.b = append(w.b, v...)
}

func (w *writer) bool(v bool) {
	if v {
		w.byte(1)
		return
	}
	w.byte(0)
}

// reader reads what a writer wrote. The first mistake sticks, and everything after it is zero.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = corrupt("a record of a group: %s", what)
	}
	r.b = nil
}

func (r *reader) take(n int, what string) []byte {
	if n < 0 || n > len(r.b) {
		r.fail(what + " is cut")
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) byte(what string) byte {
	if v := r.take(1, what); v != nil {
		return v[0]
	}
	return 0
}

func (r *reader) bool(what string) bool {
	v := r.byte(what)
	if v > 1 {
		r.fail(what + " is neither 0 nor 1")
	}
	return v == 1
}

func (r *reader) uint(what string) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail(what + " is no number")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) int(what string) int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail(what + " is no number")
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count reads the length of a list whose elements take at least size bytes each: what it
// promises is there, so that memory for it may be taken.
func (r *reader) count(size int, what string) int {
	v := r.uint(what)
	if v > uint64(len(r.b)/size) {
		r.fail(what + " is longer than its record")
		return 0
	}
	return int(v)
}

func (r *reader) text(what string) string {
	n := r.count(1, what)
	v := string(r.take(n, what))
	if !utf8.ValidString(v) {
		r.fail(what + " is not UTF-8")
		return ""
	}
	return v
}

func (r *reader) id(what string) (v model.TopicID) {
	copy(v[:], r.take(len(v), what))
	return v
}

// within reads a signed number that fits into an int32, which partitions, epochs and counts are.
func (r *reader) int32(what string) int32 {
	v := r.int(what)
	if v != int64(int32(v)) {
		r.fail(what + " is out of range")
		return 0
	}
	return int32(v)
}

// end is the reader's mistake, also where something is left over.
func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 {
		r.fail("it is longer than its fields")
	}
	return r.err
}
