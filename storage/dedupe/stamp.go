package dedupe

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"sync"

	"tidewire/internal/model"
	"tidewire/storage/record"
)

// Key stands for an Idempotency-Key of a user: 128 bits of SHA-256 over both.
type Key [16]byte

// Digest stands for what a request stores: 128 bits of SHA-256.
type Digest [16]byte

// KeyOf gives the key of a user's Idempotency-Key.
func KeyOf(user, key string) Key {
	b := make([]byte, 0, 8+len(user)+len(key))
	b = binary.BigEndian.AppendUint64(b, uint64(len(user)))
	b = append(append(b, user...), key...)
	sum := sha256.Sum256(b)
	return Key(sum[:16])
}

// HeaderName is the header of a slice's first record that has its Stamp.
const HeaderName = "tidewire-idem"

// MarkSequence is the base sequence of a batch without producer id whose first record has a
// Stamp. Other such batches have −1.
const MarkSequence int32 = -2

// Overhead bounds how many bytes a stamp makes a batch larger: the header, and longer
// numbers before it. It does not count for max.message.bytes.
const Overhead = 80

const (
	stampVersion = 1
	stampSize    = 1 + 16 + 16 + 8 + 4 + 4
)

// Stamp is what is stored with the first record of a slice: one partition's records of a
// request with an Idempotency-Key.
type Stamp struct {
	Key        Key
	Payload    Digest // of the whole request
	Time       int64  // of the request, ms since 1970; records without a timestamp have it
	Partitions int32  // how many the topic had, by which records were given theirs
	Count      int32  // records of the slice
}

// Header encodes the stamp as a record's header.
func (s *Stamp) Header() record.Header {
	b := make([]byte, 0, stampSize)
	b = append(b, stampVersion)
	b = append(b, s.Key[:]...)
	b = append(b, s.Payload[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(s.Time))
	b = binary.BigEndian.AppendUint32(b, uint32(s.Partitions))
	b = binary.BigEndian.AppendUint32(b, uint32(s.Count))
	return record.Header{Name: []byte(HeaderName), Value: b}
}

func decodeStamp(b []byte) (s Stamp, ok bool) {
	if len(b) != stampSize || b[0] != stampVersion {
		return s, false
	}
	copy(s.Key[:], b[1:])
	copy(s.Payload[:], b[17:])
	s.Time = int64(binary.BigEndian.Uint64(b[33:]))
	s.Partitions = int32(binary.BigEndian.Uint32(b[41:]))
	s.Count = int32(binary.BigEndian.Uint32(b[45:]))
	return s, s.plausible()
}

func (s *Stamp) plausible() bool { return s.Partitions > 0 && s.Count > 0 }

// IsStamp reports whether a header is one that readers do not get and nobody may send.
func IsStamp(name []byte) bool { return string(name) == HeaderName }

// Marked reports whether a batch is a slice with a stamp. Compaction may have taken its
// first record since.
func Marked(h *record.BatchHeader) bool {
	return h.ProducerID < 0 && h.BaseSequence == MarkSequence
}

// Visible gives the headers of a record as readers get them. The record may be any of a
// batch; headers is not changed.
func Visible(h *record.BatchHeader, r *record.Record) []record.Header {
	if !Marked(h) || r.Offset != h.BaseOffset || len(r.Headers) == 0 {
		return r.Headers
	}
	last := len(r.Headers) - 1
	if IsStamp(r.Headers[last].Name) {
		return r.Headers[:last:last]
	}
	return r.Headers
}

// stampOf reads the stamp of a marked batch. it is memory.
func stampOf(b *record.Batch, it *record.Iterator) (Stamp, bool) {
	if b.Header.Count == 0 { // compaction has left the header alone
		return Stamp{}, false
	}
	data, err := firstRecord(b)
	if err != nil {
		return Stamp{}, false
	}
	one := record.Batch{Header: b.Header}
	one.Header.Count = 1
	if err := one.RecordsIn(data, it); err != nil || !it.Next() {
		return Stamp{}, false
	}
	r := it.Record()
	if n := len(r.Headers); n > 0 && r.Offset == b.Header.BaseOffset && IsStamp(r.Headers[n-1].Name) {
		return decodeStamp(r.Headers[n-1].Value)
	}
	return Stamp{}, false
}

// inflating is held by whoever inflates a first record, which may be large: one at a time in
// the process. It comes behind all other locks.
var inflating sync.Mutex

// firstRecord gives the records of a batch, or of a compressed one the first.
func firstRecord(b *record.Batch) ([]byte, error) {
	codec := b.Header.Attributes.Codec()
	if codec == record.None {
		return b.Inflate(nil)
	}
	inflating.Lock()
	defer inflating.Unlock()
	d := record.NewDecompressor(record.MaxInflated)
	defer d.Release()
	stream, err := d.Stream(codec, b.Bytes[record.HeaderSize:])
	if err != nil {
		return nil, err
	}
	r := bufio.NewReader(stream)
	n, err := binary.ReadVarint(r)
	if err != nil || n < 0 || n > record.MaxInflated {
		return nil, cmp.Or(err, record.ErrShort)
	}
	var out bytes.Buffer // which grows as bytes come
	out.Write(binary.AppendVarint(nil, n))
	if _, err := io.CopyN(&out, r, n); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Attach gives a batch that a client has made the stamp of its slice: the first record gets
// one more header, and the batch the mark. The codec stays. budget is the memory for
// inflation; limit bounds the batch, the stamp included. Errors: those of inflation,
// RecordTooLarge, Internal for bytes that are no batch that was checked.
func Attach(batch []byte, s *Stamp, budget *record.Budget, limit int) ([]byte, error) {
	b, rest, err := record.ParseBatch(batch)
	if err != nil || len(rest) > 0 {
		return nil, model.Errorf(model.Internal, "a stamp goes into one batch")
	}
	inflate := record.NewDecompressor(record.MaxInflated).Within(budget)
	defer inflate.Release()
	data, err := b.Inflate(inflate)
	if err != nil {
		return nil, err
	}
	first, err := stamped(data, s.Header())
	if err != nil {
		return nil, err
	}
	var d record.Deflater
	if err := d.Begin(b.Header.Attributes.Codec(), limit); err != nil {
		return nil, err
	}
	n, k := binary.Varint(data)
	for _, part := range [][]byte{first, data[k+int(n):]} {
		if _, err := d.Write(part); err != nil {
			return nil, err
		}
	}
	h := b.Header
	h.BaseSequence = MarkSequence
	return d.Finish(&h)
}

// stamped gives the first of encoded records anew, with one more header at its end.
func stamped(data []byte, h record.Header) ([]byte, error) {
	bad := model.Errorf(model.Internal, "a batch that was checked has no first record")
	n, k := binary.Varint(data)
	if k <= 0 || n < 1 || n > int64(len(data)-k) {
		return nil, bad
	}
	body := data[k : k+int(n)]
	at := 1 // behind the attributes
	for range 2 {
		_, k := binary.Varint(body[at:])
		if k <= 0 {
			return nil, bad
		}
		at += k
	}
	for range 2 { // key and value
		n, k := binary.Varint(body[at:])
		if k <= 0 || n > int64(len(body)-at-k) {
			return nil, bad
		}
		at += k + int(max(n, 0))
	}
	count, k := binary.Varint(body[at:])
	if k <= 0 {
		return nil, bad
	}
	made := make([]byte, 0, len(body)+Overhead)
	made = append(made, body[:at]...)
	made = binary.AppendVarint(made, count+1)
	made = append(made, body[at+k:]...)
	made = binary.AppendVarint(made, int64(len(h.Name)))
	made = append(made, h.Name...)
	made = binary.AppendVarint(made, int64(len(h.Value)))
	made = append(made, h.Value...)
	return append(binary.AppendVarint(make([]byte, 0, len(made)+5), int64(len(made))), made...), nil
}
