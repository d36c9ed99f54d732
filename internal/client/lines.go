package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"tidewire/api/recordjson"
	"tidewire/internal/model"

	"github.com/segmentio/asm/base64"
)

// Format is how Produce reads its input.
type Format string

// The formats of Produce.
const (
	NDJSON Format = "ndjson" // a record object a line, blank lines skipped
	Lines  Format = "lines"  // each line, without its LF, is one record's value
	Raw    Format = "raw"    // the whole input is one record's value
)

// Fixed is what every record of Lines and Raw is given.
type Fixed struct {
	Key       *string
	Headers   []FixedHeader
	Partition *model.PartitionID // nil: by key
}

// FixedHeader is a header whose value is text.
type FixedHeader struct{ Name, Value string }

// IsZero reports whether nothing is given.
func (f *Fixed) IsZero() bool { return f.Key == nil && len(f.Headers) == 0 && f.Partition == nil }

// members are the record's members, each followed by a comma.
func (f *Fixed) members() []byte {
	var b []byte
	if f.Key != nil {
		b = append(recordjson.AppendString(append(b, `"key":`...), *f.Key), ',')
	}
	if f.Partition != nil {
		b = append(strconv.AppendInt(append(b, `"partition":`...), int64(*f.Partition), 10), ',')
	}
	if len(f.Headers) == 0 {
		return b
	}
	b = append(b, `"headers":[`...)
	for i, h := range f.Headers {
		if i > 0 {
			b = append(b, ',')
		}
		b = recordjson.AppendString(append(b, `{"name":`...), h.Name)
		b = append(recordjson.AppendString(append(b, `,"value":`...), h.Value), '}')
	}
	return append(b, "],"...)
}

// Sizes of reading input.
const (
	chunkBytes = 256 << 10
	maxLine    = 64 << 20
)

// LineError is a line of the input that is no record. Lines count from 1.
type LineError struct {
	Line int64
	Err  error
}

// Error names the line.
func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns what is wrong with the line.
func (e *LineError) Unwrap() error { return e.Err }

// readWhole hands out the whole input at once.
func readWhole(ctx context.Context, in io.Reader, out chan<- []byte) error {
	b, err := io.ReadAll(io.LimitReader(in, maxLine+1))
	switch {
	case err != nil:
		return err
	case len(b) > maxLine:
		return errLongLine
	}
	select {
	case out <- b:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errLongLine = fmt.Errorf("longer than %d bytes", maxLine)

// readChunks hands out whole lines, many at a time, with their LFs; the last line may
// lack it. It ends with the input or with ctx, and leaves it to its caller to close out.
func readChunks(ctx context.Context, in io.Reader, out chan<- []byte) error {
	var rest []byte
	for {
		buf := make([]byte, len(rest), max(chunkBytes, 2*len(rest)))
		copy(buf, rest)
		n, err := in.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		end := bytes.LastIndexByte(buf, '\n') + 1
		if err != nil {
			end = len(buf)
		}
		rest = buf[end:]
		if len(rest) > maxLine {
			return errLongLine
		}
		if end > 0 {
			select {
			case out <- buf[:end:end]:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// lineReader turns lines into record objects.
type lineReader struct {
	format   Format
	keyField string
	fixed    []byte // members that every record of values has

	req     recordjson.Request
	scratch []byte
}

// appendRecord appends the record object of one line to dst; it appends nothing for
// a line to be skipped.
func (r *lineReader) appendRecord(dst, line []byte) ([]byte, error) {
	if r.format != NDJSON {
		return r.appendValue(dst, line)
	}
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return dst, nil
	}
	r.scratch = append(r.scratch[:0], line...) // checking changes its input
	r.req.Reset()
	if err := r.req.DecodeRecord(r.scratch); err != nil {
		return dst, fmt.Errorf("not a record object: %w\n  (lines that are plain values are read with --format lines)", err)
	}
	if r.keyField == "" {
		return append(dst, line...), nil
	}
	return r.appendWithKey(dst, line)
}

var errHasKey = errors.New("the record has a key already, beside --key-field")

// appendWithKey adds the member "key", taken from the record's value.
func (r *lineReader) appendWithKey(dst, line []byte) ([]byte, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(line, &members); err != nil {
		return dst, err
	}
	if _, has := members["key"]; has {
		return dst, errHasKey
	}
	dst = append(dst, `{"key":`...)
	dst, err := r.appendField(dst, r.req.Records[0].Value)
	if err != nil {
		return dst, err
	}
	dst = append(dst, ',')
	return append(dst, line[1:]...), nil
}

// appendValue makes a record of a line that is a value.
func (r *lineReader) appendValue(dst, line []byte) ([]byte, error) {
	dst = append(append(dst, '{'), r.fixed...)
	if r.keyField != "" {
		var err error
		dst = append(dst, `"key":`...)
		if dst, err = r.appendField(dst, line); err != nil {
			return dst, err
		}
		dst = append(dst, ',')
	}
	dst = append(dst, `"value":`...)
	if utf8.Valid(line) {
		return append(recordjson.AppendString(dst, line), '}'), nil
	}
	dst = append(dst, '"')
	dst = append(dst, base64.StdEncoding.EncodeToString(line)...)
	return append(dst, `","value_encoding":"base64"}`...), nil
}

// appendField appends the key: a field of a JSON object, as it stands there.
func (r *lineReader) appendField(dst, object []byte) ([]byte, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		return dst, errors.New("--key-field needs values that are JSON objects, and this one is none")
	}
	key, ok := members[r.keyField]
	if !ok {
		return dst, fmt.Errorf("the value has no field %q for the key", r.keyField)
	}
	return append(dst, key...), nil
}
