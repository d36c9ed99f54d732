package recordjson

import (
	"strconv"
	"unicode/utf8"

	"tidewire/internal/model"
	"tidewire/storage/record"

	"github.com/segmentio/asm/base64"
)

// headers reads a record's headers: a list of objects, an object of name and value,
// or null.
func (d *decoder) headers(i int, rec *Rec) int {
	i, c := d.next(i)
	start := len(d.req.headers)
	switch c {
	case '[':
		i = d.headerList(i)
	case '{':
		i = d.headerObject(i)
	case 'n':
		i = d.value(i, d.depth())
	default:
		d.wrongField(model.InvalidArgument, "/headers", "a list of headers, or an object, is expected")
		i = d.value(i, d.depth())
	}
	if end := len(d.req.headers); end > start {
		rec.Headers = d.req.headers[start:end:end]
	}
	return i
}

func (d *decoder) headerList(i int) int {
	i, c := d.next(i + 1)
	if c == ']' {
		return i + 1
	}
	for n, more := 0, true; more; n++ {
		if i, c = d.next(i); c == '{' {
			i = d.header(i, n)
		} else {
			d.wrongField(model.InvalidArgument, headerPath(n), "a header is an object")
			i = d.value(i, d.depth()+1)
		}
		if i < 0 {
			return -1
		}
		i, more = d.following(i, ']')
	}
	return i
}

func headerPath(n int) string { return "/headers/" + strconv.Itoa(n) }

// headerFields collects the members of one header.
type headerFields struct {
	name, value, encoding, nameEncoding token
}

// member returns where the token of a member goes, nil for an unknown name.
func (f *headerFields) member(name []byte) *token {
	switch string(name) {
	case "name":
		return &f.name
	case "value":
		return &f.value
	case "encoding":
		return &f.encoding
	case "name_encoding":
		return &f.nameEncoding
	}
	return nil
}

// header reads the nth header of a list.
func (d *decoder) header(i, n int) int {
	var f headerFields
	depth := d.depth() + 2
	i, more := d.first(i)
	for more {
		var name []byte
		if i, name = d.name(i); i < 0 {
			return -1
		}
		switch t := f.member(name); {
		case t == nil:
			d.wrongField(model.InvalidArgument, headerPath(n)+"/"+escapePointer(string(name)), "unknown field")
			i = d.value(i, depth)
		case t.kind != 0:
			d.wrongField(model.InvalidArgument, headerPath(n)+"/"+string(name), "the field occurs twice")
			i = d.value(i, depth)
		default:
			i, *t = d.token(i, depth)
		}
		if i < 0 {
			return -1
		}
		i, more = d.following(i, '}')
	}
	if i >= 0 {
		d.finishHeader(&f, n)
	}
	return i
}

func (d *decoder) finishHeader(f *headerFields, n int) {
	if f.name.kind != '"' {
		d.wrongField(model.InvalidArgument, headerPath(n)+"/name", "a header has a name, which is a string")
		return
	}
	if e, _ := d.encoding(f.nameEncoding); e == JSON {
		d.wrongField(model.InvalidArgument, headerPath(n)+"/name_encoding", `the encoding of a name is "text" or "base64"`)
		return
	}
	name, bad := d.convert(f.name, f.nameEncoding)
	d.wrongHeader(n, "/name", "/name_encoding", bad)
	value, bad := d.convert(f.value, f.encoding)
	d.wrongHeader(n, "/value", "/encoding", bad)
	d.req.headers = append(d.req.headers, record.Header{Name: name, Value: value})
}

// wrongHeader notes what convert found wrong with a part of the nth header, if it did.
func (d *decoder) wrongHeader(n int, part, encoding, bad string) {
	switch bad {
	case "":
	case badEncoding:
		d.wrongField(model.InvalidArgument, headerPath(n)+encoding, bad)
	default:
		d.wrongField(model.InvalidArgument, headerPath(n)+part, bad)
	}
}

// headerObject reads headers in the form {name: value}; a name may come again.
func (d *decoder) headerObject(i int) int {
	i, more := d.first(i)
	for more {
		var t token
		var name []byte
		d.lone = false
		if i, name = d.name(i); i < 0 {
			return -1
		}
		if d.lone {
			d.wrongField(model.InvalidArgument, "/headers/"+escapePointer(string(name)), loneDetail)
		}
		if i, t = d.token(i, d.depth()+1); i < 0 {
			return -1
		}
		value, bad := d.convert(t, token{})
		if bad != "" {
			d.wrongField(model.InvalidArgument, "/headers/"+escapePointer(string(name)), bad)
		}
		d.req.headers = append(d.req.headers, record.Header{Name: name, Value: value})
		i, more = d.following(i, '}')
	}
	return i
}

const (
	badEncoding = `an encoding is "text", "json" or "base64"`
	badBase64   = "not valid base64 (RFC 4648, with padding)"
	loneDetail  = "the text holds one half of a surrogate pair, which is no character"
)

// bytes converts the value of a record's member and notes what is wrong with it.
func (d *decoder) bytes(t, encoding token, path string) []byte {
	if t.kind == '"' && encoding.kind == 0 && !t.escape {
		return d.buf[t.start+1 : t.end-1 : t.end-1] // by far the most frequent
	}
	b, bad := d.convert(t, encoding)
	if bad == "" {
		return b
	}
	if bad == badEncoding {
		path += "_encoding"
	}
	d.wrongField(model.InvalidArgument, path, bad)
	return nil
}

// encoding reads the name of an encoding; Auto when it is absent or null.
func (d *decoder) encoding(t token) (Encoding, bool) {
	if t.null() {
		return Auto, true
	}
	switch string(d.buf[t.start:t.end]) {
	case `"text"`:
		return Text, true
	case `"json"`:
		return JSON, true
	case `"base64"`:
		return Base64, true
	}
	return Auto, false
}

// convert turns a value into the bytes that are stored. bad says why it cannot.
func (d *decoder) convert(t, encoding token) (b []byte, bad string) {
	e, ok := d.encoding(encoding)
	text := d.buf[t.start:t.end:t.end]
	switch {
	case !ok:
		return nil, badEncoding
	case t.kind == 0, t.kind == 'n' && e != JSON:
		return nil, ""
	case e == JSON, e == Auto && t.kind != '"':
		return text, ""
	case t.kind != '"':
		return nil, "this encoding takes a string or null"
	case t.lone:
		return nil, loneDetail
	}
	text = text[1 : len(text)-1 : len(text)-1]
	if t.escape {
		text = unescape(text)
	}
	if e == Base64 {
		return decodeBase64(text)
	}
	return text, ""
}

// decodeBase64 decodes in place. Both libraries below write behind where they read.
func decodeBase64(b []byte) ([]byte, string) {
	want := len(b) / 4 * 3
	for n := len(b); n > 0 && n > len(b)-2 && b[n-1] == '='; n-- {
		want--
	}
	if len(b)%4 != 0 {
		return nil, badBase64
	}
	n, err := base64.StdEncoding.Decode(b, b)
	if err != nil || n != want { // line breaks are skipped by the library
		return nil, badBase64
	}
	return b[:n:n], ""
}

// unescape resolves the escapes of a string's content in place; the scanner has
// found them well formed. Half a surrogate pair becomes U+FFFD.
func unescape(b []byte) []byte {
	w := 0
	for i := 0; i < len(b); {
		j := nextSpecial(b, i)
		w += copy(b[w:], b[i:j])
		if i = j; i >= len(b) {
			break
		}
		c := b[i+1]
		i += 2
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r := rune(hex4(b, i))
			i += 4
			if r >= 0xd800 && r < 0xdc00 && i+6 <= len(b) && b[i] == '\\' && b[i+1] == 'u' {
				if l := rune(hex4(b, i+2)); l >= 0xdc00 && l <= 0xdfff {
					r = (r-0xd800)<<10 + (l - 0xdc00) + 0x10000
					i += 6
				}
			}
			w += utf8.EncodeRune(b[w:], r) // at most 4 of the 6 or 12 bytes read
			continue
		}
		b[w] = c
		w++
	}
	return b[:w:w]
}
