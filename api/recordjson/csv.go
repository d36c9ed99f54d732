package recordjson

import (
	"strconv"

	"tidewire/storage/record"

	"github.com/segmentio/asm/base64"
	"github.com/segmentio/asm/utf8"
)

// CSVHeader is the header row of records as CSV (RFC 4180), with its CR and LF.
const CSVHeader = "topic,partition,offset,timestamp,timestamp_type,key,key_encoding,value,value_encoding,headers\r\n"

// AppendCSV appends the row of one fetched record. Encodings are as in AppendRecord: the
// columns key and value hold the text, the text of the JSON value, or base64, and the
// columns key_encoding and value_encoding say which; headers is the JSON array of
// AppendRecord. These three are always quoted; a null key or value is an empty field
// without quotes whose encoding is null.
//
// A spreadsheet takes a field that begins with =, +, -, @, TAB, CR or LF for a formula or
// strips it. Such a field gets an apostrophe in front, and so does one that begins with an
// apostrophe: who takes one apostrophe away where there is one has the bytes again.
func AppendCSV(dst []byte, meta *Meta, rec *record.Record, enc Encodings) []byte {
	dst = append(dst, meta.Topic...) // topic names need no quotes, but may look like formulas
	if c := meta.Topic[0]; c == '-' {
		dst = append(dst[:len(dst)-len(meta.Topic)], '\'')
		dst = append(dst, meta.Topic...)
	}
	dst = append(dst, ',')
	dst = strconv.AppendInt(dst, int64(meta.Partition), 10)
	dst = append(dst, ',')
	dst = strconv.AppendInt(dst, int64(rec.Offset), 10)
	dst = append(dst, ',')
	dst = strconv.AppendInt(dst, rec.Timestamp, 10)
	if meta.LogAppendTime {
		dst = append(dst, ",LogAppendTime,"...)
	} else {
		dst = append(dst, ",CreateTime,"...)
	}
	key, keyEnc := enc.cut(rec.Key, textUnlessAsked(enc.Key))
	dst = appendCSVPart(dst, key, keyEnc)
	value, valueEnc := enc.cut(rec.Value, enc.Value)
	dst = appendCSVPart(dst, value, valueEnc)
	start := len(dst)
	dst = append(dst, '[')
	for i := range rec.Headers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendHeader(dst, &rec.Headers[i], enc)
	}
	dst = append(dst, ']')
	dst = quoteCSV(dst, start)
	return append(dst, '\r', '\n')
}

// appendCSVPart appends a part and its encoding, with the commas behind them.
func appendCSVPart(dst, b []byte, enc Encoding) []byte {
	start := len(dst)
	switch {
	case b == nil:
		return append(dst, ",null,"...)
	case enc == JSON && fitsJSON(b), enc == Auto && fitsContainer(b):
		return append(quoteCSV(append(dst, b...), start), ",json,"...)
	case (enc == Text || enc == Auto) && utf8.Valid(b):
		return append(quoteCSV(append(dst, b...), start), ",text,"...)
	}
	size := base64.StdEncoding.EncodedLen(len(b))
	dst = grow(dst, size)
	base64.StdEncoding.Encode(dst[start:], b)
	return append(quoteCSV(dst, start), ",base64,"...)
}

// quoteCSV makes what begins at start a quoted field that no spreadsheet takes for a
// formula.
func quoteCSV(dst []byte, start int) []byte {
	extra := 1
	apostrophe := false
	if len(dst) > start {
		switch dst[start] {
		case '=', '+', '-', '@', '\t', '\r', '\n', '\'':
			apostrophe = true
			extra++
		}
	}
	for _, c := range dst[start:] {
		if c == '"' {
			extra++
		}
	}
	from := len(dst) - 1
	dst = grow(dst, extra)
	to := len(dst) - 1
	for ; from >= start; from-- { // from the end, so that nothing is overwritten
		dst[to] = dst[from]
		to--
		if dst[from] == '"' {
			dst[to] = '"'
			to--
		}
	}
	if apostrophe {
		dst[to] = '\''
		to--
	}
	dst[to] = '"'
	return append(dst, '"')
}
