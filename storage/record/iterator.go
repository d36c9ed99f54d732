package record

import (
	"encoding/binary"

	"tidewire/internal/model"
)

// Iterator walks the records of one batch in order. Keys, values and headers
// alias the batch (or the Decompressor's buffer), and the record with its slice
// of headers is overwritten by the next call of Next. The zero value is ready for
// Batch.Records; reusing an Iterator avoids allocation.
type Iterator struct {
	all    []byte // the records, inflated
	buf    []byte // what is left of them
	header BatchHeader
	index  int32
	prev   int64 // offset delta of the record before
	rec    Record
	raw    []byte // the present record as it is stored
	hdrs   []Header
	err    error
}

// Records starts it at the batch's first record. d may be nil for an uncompressed
// batch. The CRC is not checked. Errors: RecordTooLarge when the batch inflates
// beyond d's limit, CorruptBatch.
func (b *Batch) Records(d *Decompressor, it *Iterator) error {
	data := b.Bytes[HeaderSize:]
	// Compaction keeps the header alone of a batch whose records have all gone.
	if c := b.Header.Attributes.Codec(); c != None && (b.Header.Count > 0 || len(data) > 0) {
		if d == nil {
			return model.Errorf(model.Internal, "a compressed batch needs a decompressor")
		}
		var err error
		if data, err = d.Decompress(c, data); err != nil {
			return err
		}
	}
	if int64(b.Header.Count)*minRecordSize > int64(len(data)) {
		return corrupt("the batch has %d bytes for %d records", len(data), b.Header.Count)
	}
	*it = Iterator{all: data, buf: data, header: b.Header, prev: -1, hdrs: it.hdrs[:0]}
	return nil
}

// Rewind goes back to before the first record, of the same inflated bytes.
func (it *Iterator) Rewind() {
	*it = Iterator{all: it.all, buf: it.all, header: it.header, prev: -1, hdrs: it.hdrs[:0]}
}

// Next moves to the next record; false at the end or on an error (see Err).
func (it *Iterator) Next() bool {
	if it.err != nil || it.index >= it.header.Count {
		if it.err == nil && len(it.buf) > 0 {
			it.err = corrupt("%d bytes follow the last record", len(it.buf))
		}
		return false
	}
	if it.err = it.decode(); it.err != nil {
		return false
	}
	it.index++
	return true
}

// Record is the present record, valid until the next call of Next.
func (it *Iterator) Record() *Record { return &it.rec }

// Err is the CorruptBatch that ended the walk, or nil.
func (it *Iterator) Err() error { return it.err }

func (it *Iterator) decode() error {
	n, k := binary.Varint(it.buf)
	if k <= 0 || n < minRecordSize-1 || n > int64(len(it.buf)-k) {
		return corrupt("record %d has a bad length", it.index)
	}
	it.raw = it.buf[:k+int(n)]
	r := reader{b: it.buf[k : k+int(n)]}
	it.buf = it.buf[k+int(n):]
	r.b = r.b[1:] // attributes: unused
	tsDelta := r.varint()
	offDelta := r.varint()
	it.rec.Key = r.bytes(true)
	it.rec.Value = r.bytes(true)
	if err := it.decodeHeaders(&r); err != nil {
		return err
	}
	if r.bad || len(r.b) > 0 {
		return corrupt("record %d does not fit its length", it.index)
	}
	if offDelta <= it.prev || offDelta > int64(it.header.LastOffsetDelta) {
		return corrupt("record %d has offset delta %d", it.index, offDelta)
	}
	it.prev = offDelta
	it.rec.Offset = it.header.BaseOffset + model.Offset(offDelta)
	it.rec.Timestamp = it.header.BaseTimestamp + tsDelta
	if it.header.Attributes.Has(AttrLogAppendTime) {
		it.rec.Timestamp = it.header.MaxTimestamp
	}
	return nil
}

func (it *Iterator) decodeHeaders(r *reader) error {
	n := r.varint()
	it.hdrs = it.hdrs[:0]
	// Each header takes two bytes at least, which bounds the loop by the record.
	if n < 0 || n > int64(len(r.b)/2) {
		return corrupt("record %d has a bad count of headers", it.index)
	}
	for range n {
		name := r.bytes(false)
		value := r.bytes(true)
		if r.bad {
			return corrupt("record %d has a bad header", it.index)
		}
		it.hdrs = append(it.hdrs, Header{Name: name, Value: value})
	}
	it.rec.Headers = it.hdrs
	return nil
}

// reader takes fields off the front of one record; bad is set when one does not
// fit.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) varint() int64 {
	if len(r.b) > 0 && r.b[0] < 0x80 { // most are one byte
		v := r.b[0]
		r.b = r.b[1:]
		return int64(v>>1) ^ -int64(v&1)
	}
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad = true
		r.b = nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) bytes(nullable bool) []byte {
	n := r.varint()
	if r.bad || n == -1 && nullable {
		return nil
	}
	if n < 0 || n > int64(len(r.b)) {
		r.bad = true
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}
