package recordjson

import (
	"bytes"
	"fmt"
	"sync"

	"tidewire/internal/model"
	"tidewire/storage/record"

	"github.com/segmentio/asm/ascii"
	"github.com/segmentio/asm/utf8"
)

// Limits of a JSON produce request.
const (
	MaxRecords     = 1_000_000 // records in one request; more are request-too-large
	MaxDepth       = 512       // levels of nesting, those of the request included
	MaxFieldErrors = 16        // places that one error names
)

// keptRecords bounds what a pooled Request holds on to between requests.
const keptRecords = 16_384

// Rec is one record as a client sent it. Its bytes lie in the body that was decoded
// and are valid as long as that. A nil Key or Value is null, an empty one has 0 bytes.
type Rec struct {
	Key     []byte
	Value   []byte
	Headers []record.Header

	PartitionKey []byte            // when HasPartitionKey
	Timestamp    int64             // when HasTimestamp: milliseconds since 1970, not negative
	Partition    model.PartitionID // when HasPartition: not negative, maybe beyond the topic's last

	HasPartition    bool
	HasPartitionKey bool
	HasTimestamp    bool
}

// Request holds the records of one produce request, in order. It is not safe for
// concurrent use. Rec.Headers of all records share one array that the Request owns.
type Request struct {
	Records []Rec

	headers []record.Header
	dec     decoder
}

// Decode reads a whole produce body, {"records":[…]}, and replaces r.Records. It
// changes body and keeps sub-slices of it. The error is a *model.Error; r.Records is
// empty then.
func (r *Request) Decode(body []byte) error {
	r.Reset()
	d := &r.dec
	d.start(r, body)
	err := d.text(d.request)
	if err != nil {
		r.Reset()
	}
	return err
}

// DecodeWith is Decode for a body that has more members than records, such as a frame:
// extra is told each, with its text, and answers whether it knows it. given tells whether
// there were records: here they need not be there.
func (r *Request) DecodeWith(body []byte, extra func(name, value []byte) (known bool)) (given bool, err error) {
	r.Reset()
	d := &r.dec
	d.start(r, body)
	d.extra = extra
	if err = d.text(d.request); err != nil {
		r.Reset()
	}
	d.extra = nil
	return d.given, err
}

// recordBytes is about what a record takes in memory besides its own bytes, once it is
// decoded and until it is answered.
const recordBytes = 400

var brace = []byte{'{'}

// Footprint bounds what a body of records takes in memory while it is decoded and
// answered, in bytes: each record has a brace.
func Footprint(body []byte) int64 {
	return int64(cap(body) + recordBytes*min(bytes.Count(body, brace), MaxRecords))
}

// DecodeRecord reads one record object, such as a line of NDJSON without its line
// end, and appends it to r.Records. Pointers in its errors start at the record:
// "/value". After an error r.Records is as before.
func (r *Request) DecodeRecord(text []byte) error {
	n, h := len(r.Records), len(r.headers)
	d := &r.dec
	d.start(r, text)
	d.single = true
	err := d.text(d.line)
	if err != nil {
		r.Records, r.headers = r.Records[:n], r.headers[:h]
	}
	return err
}

// Reset forgets the records and with them the body, but keeps the memory.
func (r *Request) Reset() {
	clear(r.Records)
	clear(r.headers)
	r.Records, r.headers = r.Records[:0], r.headers[:0]
	r.dec.buf = nil
}

// Pool hands out Requests for reuse. The zero value is ready; it is safe for
// concurrent use.
type Pool struct{ p sync.Pool }

// Get returns an empty Request.
func (p *Pool) Get() *Request {
	if r, ok := p.p.Get().(*Request); ok {
		return r
	}
	return &Request{}
}

// Put takes a Request back; neither it nor its records may be used afterwards. One
// that grew large is left to the garbage collector.
func (p *Pool) Put(r *Request) {
	if cap(r.Records) > keptRecords || cap(r.headers) > keptRecords {
		return
	}
	r.Reset()
	p.p.Put(r)
}

// start prepares the decoder for one text.
func (d *decoder) start(r *Request, text []byte) {
	*d = decoder{req: r}
	d.buf, d.limit = text, MaxDepth
}

// text runs parse over the whole text, which must hold one value and nothing else,
// and chooses among the errors found: 400 before 413 before 422.
func (d *decoder) text(parse func(int) int) error {
	// Two passes of vector instructions spare most texts the look at each string's bytes.
	if d.plain = ascii.ValidPrint(d.buf) && bytes.IndexByte(d.buf, '\\') < 0; !d.plain && !utf8.Valid(d.buf) {
		return model.Errorf(model.MalformedBody, "the JSON text is not valid UTF-8")
	}
	i, c := d.next(0)
	if c == 0 && i >= len(d.buf) {
		return model.Errorf(model.MalformedBody, "the body is empty; a JSON object is expected")
	}
	if i = parse(i); i >= 0 {
		if i = d.ws(i); i < len(d.buf) {
			i = d.fail(i, "nothing may follow the JSON value")
		}
	}
	switch {
	case i < 0:
		return model.Errorf(model.MalformedBody, "not valid JSON at byte %d: %s", d.bad, d.why)
	case d.count > MaxRecords:
		return model.Errorf(model.RequestTooLarge, "one request holds at most %d records, this one %d", MaxRecords, d.count)
	case len(d.errs) > 0:
		return d.refusal()
	}
	return nil
}

// refusal makes one error of all the places that were found wrong.
func (d *decoder) refusal() error {
	e := &model.Error{Code: d.code, Detail: d.errs[0].Detail, Fields: d.errs}
	if at := d.errs[0].Pointer; at != "" {
		e.Detail = fmt.Sprintf("%s: %s", at, e.Detail)
	}
	return e
}
