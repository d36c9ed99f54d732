package recordjson

import (
	"strconv"

	"tidewire/internal/model"
	"tidewire/storage/record"

	"github.com/segmentio/asm/base64"
	"github.com/segmentio/asm/utf8"
)

// Encoding says how bytes are given in JSON.
type Encoding uint8

// The encodings. Bytes that do not fit the one asked for are given as Base64, and
// null bytes as null, with the encoding's name null.
const (
	Auto   Encoding = iota // values: JSON for objects and arrays, else Text; keys and headers: Text
	JSON                   // the bytes are the text of one JSON value
	Text                   // the bytes are UTF-8 and are given as a string
	Base64                 // RFC 4648 §4
)

// String gives the name that clients use.
func (e Encoding) String() string {
	switch e {
	case JSON:
		return "json"
	case Text:
		return "text"
	case Base64:
		return "base64"
	}
	return "auto"
}

// ParseEncoding reads the name of an encoding, "auto" included.
func ParseEncoding(s string) (Encoding, bool) {
	for _, e := range [...]Encoding{Auto, JSON, Text, Base64} {
		if e.String() == s {
			return e, true
		}
	}
	return Auto, false
}

// Encodings says how the parts of a record are given. The zero value is Auto for all.
type Encodings struct {
	Key, Value, Header Encoding
	// Preview cuts each key, value and header value to PreviewBytes; see preview.go.
	Preview      bool
	PreviewBytes int
}

// maxValueDepth is how deep a value may be nested that is given as JSON, so that the
// fetched record around it stays within MaxDepth.
const maxValueDepth = 500

// Meta is what a fetched record says besides its own bytes.
type Meta struct {
	Topic         string
	Partition     model.PartitionID
	LogAppendTime bool // the timestamp is the broker's, not the producer's
}

// AppendRecord appends the JSON object of one fetched record and returns the longer
// slice. It allocates only when dst is too short, and neither keeps nor changes rec.
func AppendRecord(dst []byte, meta *Meta, rec *record.Record, enc Encodings) []byte {
	dst = append(dst, `{"topic":`...)
	dst = AppendString(dst, meta.Topic)
	dst = append(dst, `,"partition":`...)
	dst = strconv.AppendInt(dst, int64(meta.Partition), 10)
	dst = append(dst, `,"offset":`...)
	dst = strconv.AppendInt(dst, int64(rec.Offset), 10)
	dst = append(dst, `,"timestamp":`...)
	dst = strconv.AppendInt(dst, rec.Timestamp, 10)
	if meta.LogAppendTime {
		dst = append(dst, `,"timestamp_type":"LogAppendTime","key":`...)
	} else {
		dst = append(dst, `,"timestamp_type":"CreateTime","key":`...)
	}
	key, keyEnc := enc.cut(rec.Key, textUnlessAsked(enc.Key))
	dst, as := appendBytes(dst, key, keyEnc)
	dst = append(dst, `,"key_encoding":`...)
	dst = append(dst, as...)
	dst = append(dst, `,"value":`...)
	value, valueEnc := enc.cut(rec.Value, enc.Value)
	dst, as = appendBytes(dst, value, valueEnc)
	dst = append(dst, `,"value_encoding":`...)
	dst = append(dst, as...)
	dst = append(dst, `,"headers":[`...)
	for i := range rec.Headers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendHeader(dst, &rec.Headers[i], enc)
	}
	dst = append(dst, ']')
	if enc.Preview {
		dst = enc.appendPreview(dst, rec)
	}
	return append(dst, '}')
}

func appendHeader(dst []byte, h *record.Header, enc Encodings) []byte {
	dst = append(dst, `{"name":`...)
	name := h.Name
	if name == nil {
		name = []byte{} // a name is never null
	}
	dst, nameAs := appendBytes(dst, name, Text)
	dst = append(dst, `,"value":`...)
	value, valueEnc := enc.cut(h.Value, textUnlessAsked(enc.Header))
	dst, as := appendBytes(dst, value, valueEnc)
	dst = append(dst, `,"encoding":`...)
	dst = append(dst, as...)
	if nameAs == asBase64 {
		dst = append(dst, `,"name_encoding":"base64"`...)
	}
	return append(dst, '}')
}

// textUnlessAsked is Auto for keys and headers, which never come as JSON by it.
func textUnlessAsked(e Encoding) Encoding {
	if e == Auto {
		return Text
	}
	return e
}

// How a part was given, as a JSON value.
const (
	asNull   = `null`
	asJSON   = `"json"`
	asText   = `"text"`
	asBase64 = `"base64"`
)

// appendBytes appends b in the encoding asked for, or in base64 where that cannot
// be, and tells which it was.
func appendBytes(dst, b []byte, enc Encoding) (_ []byte, as string) {
	switch {
	case b == nil:
		return append(dst, asNull...), asNull
	case enc == JSON && fitsJSON(b), enc == Auto && fitsContainer(b):
		return append(dst, b...), asJSON
	case (enc == Text || enc == Auto) && utf8.Valid(b):
		return AppendString(dst, b), asText
	}
	dst = append(dst, '"')
	n := len(dst)
	size := base64.StdEncoding.EncodedLen(len(b))
	dst = grow(dst, size)
	base64.StdEncoding.Encode(dst[n:], b)
	return append(dst, '"'), asBase64
}

// grow makes dst n bytes longer; their content is undefined.
func grow(dst []byte, n int) []byte {
	if cap(dst)-len(dst) < n {
		longer := make([]byte, len(dst), 2*cap(dst)+n)
		copy(longer, dst)
		dst = longer
	}
	return dst[:len(dst)+n]
}

// fitsContainer reports whether b is one JSON object or array that can be given byte
// for byte.
func fitsContainer(b []byte) bool {
	if len(b) < 2 {
		return false
	}
	first, last := b[0], b[len(b)-1]
	return (first == '{' && last == '}' || first == '[' && last == ']') && fitsJSON(b)
}

// fitsJSON reports whether b is the text of exactly one JSON value in valid UTF-8,
// without white space around it, without CR or LF between tokens (which would break
// lines of NDJSON), without half surrogate pairs and at most maxValueDepth deep.
func fitsJSON(b []byte) bool {
	if len(b) == 0 || b[0] <= ' ' {
		return false
	}
	s := scanner{buf: b, limit: maxValueDepth, strict: true}
	return s.value(0, 0) == len(b) && !s.newline && !s.lone && utf8.Valid(b)
}

// AppendString appends s as a JSON string. Only what must be escaped is: the quote,
// the backslash and bytes below 0x20. s must be valid UTF-8.
func AppendString[T string | []byte](dst []byte, s T) []byte {
	const hexDigits = "0123456789abcdef"
	b := []byte(s)
	dst = append(dst, '"')
	for i := 0; ; i++ {
		j := nextSpecial(b, i)
		dst = append(dst, b[i:j]...)
		if i = j; i >= len(b) {
			return append(dst, '"')
		}
		switch c := b[i]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, `\b`...)
		case '\f':
			dst = append(dst, `\f`...)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
}

// AppendResult appends what a produce answer says of one stored record:
// {"partition", "offset", "timestamp"}.
func AppendResult(dst []byte, partition model.PartitionID, offset model.Offset, timestamp int64) []byte {
	return new(Results).Append(dst, partition, offset, timestamp)
}

// Results appends the results of one answer. Those of a batch differ from one to the next
// in the offset's last digits alone, which it counts up in the text. The zero value is
// ready; it is not safe for concurrent use.
type Results struct {
	partition model.PartitionID
	offset    model.Offset
	timestamp int64
	text      []byte // the last result; empty before the first
	from, to  int    // where its offset's digits stand
}

// Append appends what AppendResult does.
func (r *Results) Append(dst []byte, partition model.PartitionID, offset model.Offset, timestamp int64) []byte {
	if offset != r.offset+1 || partition != r.partition || timestamp != r.timestamp || !r.next() {
		r.partition, r.timestamp = partition, timestamp
		r.text = append(r.text[:0], `{"partition":`...)
		r.text = strconv.AppendInt(r.text, int64(partition), 10)
		r.text = append(r.text, `,"offset":`...)
		r.from = len(r.text)
		r.text = strconv.AppendInt(r.text, int64(offset), 10)
		r.to = len(r.text)
		r.text = append(r.text, `,"timestamp":`...)
		r.text = append(strconv.AppendInt(r.text, timestamp, 10), '}')
	}
	r.offset = offset
	return append(dst, r.text...)
}

// next counts the offset in the text up, unless it is not there, is negative, or gets
// another digit.
func (r *Results) next() bool {
	if r.offset < 0 {
		return false
	}
	for i := r.to - 1; i >= r.from; i-- {
		if r.text[i] != '9' {
			r.text[i]++
			return true
		}
		r.text[i] = '0'
	}
	return false
}
