package recordjson

import (
	"strconv"
	"unicode/utf8"

	"tidewire/storage/record"
)

// cut shortens a part to what a preview gives of it. What was cut is never given as JSON:
// the beginning of a value is another value, or none. Text is cut between characters.
func (e Encodings) cut(b []byte, enc Encoding) ([]byte, Encoding) {
	if !e.Preview || len(b) <= e.PreviewBytes {
		return b, enc
	}
	b = b[:e.PreviewBytes:e.PreviewBytes]
	if enc == Base64 {
		return b, enc
	}
	return wholeRunes(b), Text
}

// wholeRunes drops the beginning of a character at the end of b.
func wholeRunes(b []byte) []byte {
	for back := 1; back <= min(len(b), utf8.UTFMax-1); back++ {
		if c := b[len(b)-back]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-back:]) {
				return b[: len(b)-back : len(b)-back]
			}
			break
		}
	}
	return b
}

// Given is how many bytes of key, values and headers AppendRecord gives of a record.
func (e Encodings) Given(rec *record.Record) int {
	n := e.given(rec.Key) + e.given(rec.Value)
	for i := range rec.Headers {
		n += len(rec.Headers[i].Name) + e.given(rec.Headers[i].Value)
	}
	return n
}

func (e Encodings) given(b []byte) int {
	if e.Preview {
		return min(len(b), e.PreviewBytes)
	}
	return len(b)
}

// appendPreview appends the member that tells what a preview left out: the lengths of key
// and value as they are stored (null for null), of the headers' names and values together,
// and whether anything was cut. The reader refuses the member, so that a preview is not
// stored for the record.
func (e Encodings) appendPreview(dst []byte, rec *record.Record) []byte {
	headers, cut := 0, len(rec.Key) > e.PreviewBytes || len(rec.Value) > e.PreviewBytes
	for i := range rec.Headers {
		headers += len(rec.Headers[i].Name) + len(rec.Headers[i].Value)
		cut = cut || len(rec.Headers[i].Value) > e.PreviewBytes
	}
	dst = append(dst, `,"preview":{"key_bytes":`...)
	dst = appendLength(dst, rec.Key)
	dst = append(dst, `,"value_bytes":`...)
	dst = appendLength(dst, rec.Value)
	dst = append(dst, `,"header_bytes":`...)
	dst = strconv.AppendInt(dst, int64(headers), 10)
	dst = append(dst, `,"truncated":`...)
	dst = strconv.AppendBool(dst, cut)
	return append(dst, '}')
}

func appendLength(dst, b []byte) []byte {
	if b == nil {
		return append(dst, asNull...)
	}
	return strconv.AppendInt(dst, int64(len(b)), 10)
}
