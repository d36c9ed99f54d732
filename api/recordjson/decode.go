package recordjson

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	"tidewire/internal/model"
)

// decoder reads the members of requests, records and headers. What is wrong with
// their meaning is noted and reading goes on, since a later fault of the grammar
// matters more.
type decoder struct {
	scanner
	req    *Request
	extra  func(name, value []byte) bool // takes members of the request beside records; nil: there are none
	given  bool                          // the request has records
	single bool                          // one record is read, not a request: pointers start at the record
	count  int                           // records seen

	code model.Code         // of the first of errs
	errs []model.FieldError // at most MaxFieldErrors
}

// token is a value whose bytes are buf[start:end], as they were sent.
type token struct {
	start, end int
	kind       byte // its first byte; 0 when the member is absent
	escape     bool // a string with a backslash
	lone       bool // a string with half a surrogate pair
}

func (t token) null() bool { return t.kind == 0 || t.kind == 'n' }

// wrong notes that the value at the pointer is refused.
func (d *decoder) wrong(code model.Code, pointer, detail string) {
	if len(d.errs) == 0 {
		d.code = code
	}
	if len(d.errs) < MaxFieldErrors {
		d.errs = append(d.errs, model.FieldError{Pointer: pointer, Detail: detail})
	}
}

// wrongField notes that a member of the record being read is refused; path is
// relative to the record: "/value".
func (d *decoder) wrongField(code model.Code, path, detail string) {
	if len(d.errs) >= MaxFieldErrors {
		return
	}
	if !d.single {
		path = "/records/" + strconv.Itoa(d.count-1) + path
	}
	d.wrong(code, path, detail)
}

// escapePointer makes a reference token of a JSON Pointer from a name (RFC 6901 §3).
func escapePointer(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// token reads a value that lies depth levels deep.
func (d *decoder) token(i, depth int) (int, token) {
	i, c := d.next(i)
	t := token{start: i, kind: c}
	if c == '"' {
		d.lone = false
		i = d.str(i)
		t.escape, t.lone = d.escape, d.lone
	} else {
		i = d.value(i, depth)
	}
	t.end = i
	return i, t
}

// first enters the object at i. It returns where the first member starts, or the end
// of an empty object and false.
func (d *decoder) first(i int) (int, bool) {
	j, c := d.next(i + 1)
	if c == '}' {
		return j + 1, false
	}
	return j, true
}

// following goes on behind a value in an object or array that closer ends. It
// returns where the next element starts, or the end of the container and false.
func (d *decoder) following(i int, closer byte) (int, bool) {
	j, c := d.next(i)
	switch {
	case c == ',':
		return j + 1, true
	case c == closer:
		return j + 1, false
	case j >= len(d.buf):
		return d.fail(j, "the text ends inside an object or array"), false
	}
	return d.fail(j, `"," or "`+string(rune(closer))+`" is expected`), false
}

// name reads a member's name and colon and returns the name, unescaped.
func (d *decoder) name(i int) (int, []byte) {
	i, c := d.next(i)
	if c != '"' {
		return d.fail(i, "a member's name is expected"), nil
	}
	end := d.str(i)
	if end < 0 {
		return -1, nil
	}
	name := d.buf[i+1 : end-1 : end-1]
	if d.escape {
		name = unescape(name)
	}
	if end, c = d.next(end); c != ':' {
		return d.fail(end, `":" is expected`), nil
	}
	return end + 1, name
}

// line reads a text that is one record.
func (d *decoder) line(i int) int {
	if d.buf[i] != '{' {
		d.wrong(model.InvalidArgument, "", "a record is an object")
		return d.value(i, 0)
	}
	return d.record(i)
}

// request reads the body of a produce request.
func (d *decoder) request(i int) int {
	if d.buf[i] != '{' {
		d.wrong(model.InvalidArgument, "", `an object {"records":[…]} is expected`)
		return d.value(i, 0)
	}
	i, more := d.first(i)
	for more {
		var name []byte
		if i, name = d.name(i); i < 0 {
			return -1
		}
		switch {
		case string(name) != "records":
			i = d.other(i, name)
		case d.given:
			d.wrong(model.InvalidArgument, "/records", "the field occurs twice")
			i = d.value(i, 1)
		default:
			d.given = true
			i = d.records(i)
		}
		if i < 0 {
			return -1
		}
		i, more = d.following(i, '}')
	}
	if !d.given && d.extra == nil {
		d.wrong(model.InvalidArgument, "/records", "the field is required")
	}
	return i
}

// other reads a member of the request that is not its records.
func (d *decoder) other(i int, name []byte) int {
	i, t := d.token(i, 1)
	if i >= 0 && (d.extra == nil || !d.extra(name, d.buf[t.start:t.end])) {
		d.wrong(model.InvalidArgument, "/"+escapePointer(string(name)), "unknown field")
	}
	return i
}

// records reads the array of records.
func (d *decoder) records(i int) int {
	i, c := d.next(i)
	if c != '[' {
		d.wrong(model.InvalidArgument, "/records", "an array of records is expected")
		return d.value(i, 1)
	}
	i, c = d.next(i + 1)
	if c == ']' {
		d.wrong(model.InvalidArgument, "/records", "at least one record is required")
		return i + 1
	}
	for more := true; more; {
		if i, c = d.next(i); c == '{' {
			i = d.record(i)
		} else {
			d.count++
			d.wrongField(model.InvalidArgument, "", "a record is an object")
			i = d.value(i, 2)
		}
		if i < 0 {
			return -1
		}
		i, more = d.following(i, ']')
	}
	return i
}

// The members of a record, as bits of fields.seen.
const (
	fKey = 1 << iota
	fValue
	fHeaders
	fPartition
	fPartitionKey
	fTimestamp
	fKeyEncoding
	fValueEncoding
	fTopic
	fOffset
	fTimestampType
)

// fields collects a record's members, which come in any order: an encoding may stand
// behind its value.
type fields struct {
	seen                     int
	key, value, partitionKey token
	keyEncoding              token
	valueEncoding            token
}

func fieldOf(name []byte) int {
	switch string(name) {
	case "key":
		return fKey
	case "value":
		return fValue
	case "headers":
		return fHeaders
	case "partition":
		return fPartition
	case "partition_key":
		return fPartitionKey
	case "timestamp":
		return fTimestamp
	case "key_encoding":
		return fKeyEncoding
	case "value_encoding":
		return fValueEncoding
	case "topic":
		return fTopic
	case "offset":
		return fOffset
	case "timestamp_type":
		return fTimestampType
	}
	return 0
}

// depth is how deep the members of a record lie.
func (d *decoder) depth() int {
	if d.single {
		return 1
	}
	return 3
}

// record reads the record object at i and appends it to the request.
func (d *decoder) record(i int) int {
	d.count++
	if end := d.simple(i); end >= 0 {
		return end
	}
	var f fields
	var rec Rec
	tooDeep := d.tooDeep
	i, more := d.first(i)
	for more {
		var name []byte
		if i, name = d.name(i); i < 0 {
			return -1
		}
		bit := fieldOf(name)
		if bit == 0 || f.seen&bit != 0 {
			d.unexpected(name, bit)
			i = d.value(i, d.depth())
		} else {
			f.seen |= bit
			i = d.field(i, bit, &f, &rec)
		}
		if i < 0 {
			return -1
		}
		i, more = d.following(i, '}')
	}
	if i < 0 {
		return -1
	}
	if d.tooDeep && !tooDeep {
		d.wrongField(model.InvalidArgument, "", "nested deeper than "+strconv.Itoa(MaxDepth)+" levels")
	}
	d.finish(&f, &rec)
	return i
}

// How the members begin of which nearly all records consist.
const (
	keyMember   = `"key":`
	valueMember = `"value":`
)

// simple reads the record at i where it is one of key and value alone, each given once, as
// a string without escapes, the way that JSON libraries write it. It answers −1 for any
// other, which record then reads from its beginning, and which it leaves no trace of.
func (d *decoder) simple(i int) int {
	if !d.plain || d.count > MaxRecords {
		return -1
	}
	var key, value []byte
	for b := d.buf; ; {
		if i++; i < len(b) && b[i] == ' ' { // behind a brace or a comma
			i++
		}
		part, start := &value, i+len(valueMember)
		switch {
		case start < len(b) && string(b[i:start]) == valueMember:
		case i+len(keyMember) < len(b) && string(b[i:i+len(keyMember)]) == keyMember:
			part, start = &key, i+len(keyMember)
		default:
			return -1
		}
		if b[start] == ' ' {
			start++
		}
		if *part != nil || start >= len(b) || b[start] != '"' {
			return -1
		}
		start++
		n := bytes.IndexByte(b[start:], '"')
		i = start + n + 1
		if n < 0 || i >= len(b) {
			return -1
		}
		*part = b[start : start+n : start+n]
		switch b[i] {
		case ',':
		case '}':
			d.req.Records = append(d.req.Records, Rec{Key: key, Value: value})
			return i + 1
		default:
			return -1
		}
	}
}

func (d *decoder) unexpected(name []byte, bit int) {
	detail := "unknown field"
	if bit != 0 {
		detail = "the field occurs twice"
	}
	d.wrongField(model.InvalidArgument, "/"+escapePointer(string(name)), detail)
}

// field reads the value of one member of a record.
func (d *decoder) field(i, bit int, f *fields, rec *Rec) int {
	depth := d.depth()
	var t token
	switch bit {
	case fKey:
		i, f.key = d.token(i, depth)
	case fValue:
		i, f.value = d.token(i, depth)
	case fPartitionKey:
		i, f.partitionKey = d.token(i, depth)
	case fKeyEncoding:
		i, f.keyEncoding = d.token(i, depth)
	case fValueEncoding:
		i, f.valueEncoding = d.token(i, depth)
	case fHeaders:
		i = d.headers(i, rec)
	case fPartition:
		if i, t = d.token(i, depth); i >= 0 {
			d.partition(t, rec)
		}
	case fTimestamp:
		if i, t = d.token(i, depth); i >= 0 {
			d.timestamp(t, rec)
		}
	default:
		i = d.value(i, depth)
	}
	return i
}

// finish turns the tokens of a record into bytes, once its encodings are known.
func (d *decoder) finish(f *fields, rec *Rec) {
	rec.Key = d.bytes(f.key, f.keyEncoding, "/key")
	rec.Value = d.bytes(f.value, f.valueEncoding, "/value")
	if !f.partitionKey.null() {
		rec.PartitionKey = d.bytes(f.partitionKey, token{}, "/partition_key")
		rec.HasPartitionKey = true
	}
	if d.count <= MaxRecords {
		d.req.Records = append(d.req.Records, *rec)
	}
}

func (d *decoder) partition(t token, rec *Rec) {
	if t.null() {
		return
	}
	n, ok, integer := d.integer(t)
	switch {
	case !integer:
		d.wrongField(model.InvalidArgument, "/partition", "an integer is expected")
	case !ok || n < 0 || n > math.MaxInt32:
		d.wrongField(model.InvalidArgument, "/partition", "a partition is a number from 0 to 2147483647")
	default:
		rec.Partition, rec.HasPartition = model.PartitionID(n), true
	}
}

func (d *decoder) timestamp(t token, rec *Rec) {
	if t.null() {
		return
	}
	n, ok, integer := d.integer(t)
	switch {
	case !integer:
		d.wrongField(model.InvalidArgument, "/timestamp", "an integer, milliseconds since 1970, is expected")
	case !ok:
		d.wrongField(model.InvalidTimestamp, "/timestamp", "the number is out of range")
	case n < 0:
		d.wrongField(model.InvalidTimestamp, "/timestamp", "a timestamp must not be negative")
	default:
		rec.Timestamp, rec.HasTimestamp = n, true
	}
}

// integer reads a number without fraction and exponent; ok is false when it does not
// fit 64 bits.
func (d *decoder) integer(t token) (n int64, ok, integer bool) {
	text := d.buf[t.start:t.end]
	neg := len(text) > 1 && text[0] == '-'
	if neg {
		text = text[1:]
	}
	if digits(text, 0) != len(text) {
		return 0, false, false
	}
	for _, c := range text {
		if n > (math.MaxInt64-int64(c-'0'))/10 {
			return 0, false, true
		}
		n = n*10 + int64(c-'0')
	}
	if neg {
		n = -n
	}
	return n, true, true
}
