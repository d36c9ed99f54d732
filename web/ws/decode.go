package ws

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"tidewire/internal/model"
)

// Limits of a client's frame.
const (
	maxFrameBytes = 256 << 10
	maxIDBytes    = 256
)

// clientFrame is one frame as the reader hands it to the session.
type clientFrame struct {
	end bool            // there is none, nor will there be
	raw []byte          // not decoded yet; nil: it is, by the fields below
	id  json.RawMessage // a JSON string or number, nil where the frame has none
	cmd any             // *produceCmd, *subscription, creditCmd, pauseCmd, seekCmd, commitCmd, releasedCmd, unsubscribeCmd, authCmd
	err error           // the frame cannot be followed
}

// drop gives back what a frame holds that nobody follows.
func (f *clientFrame) drop() {
	if c, ok := f.cmd.(*produceCmd); ok {
		c.refuse()
	}
}

type (
	creditCmd struct{ records int64 }
	pauseCmd  struct {
		partitions []Partition
		on         bool // pause, else resume
	}
	seekCmd        struct{ partitions []Position }
	unsubscribeCmd struct{}
	authCmd        struct{ token string }
)

// decodeFrame reads a client's frame strictly: what is not one JSON object in UTF-8 is
// malformed-body; an op or member that is unknown, double, missing or of another type
// is invalid-argument with a JSON Pointer. null means the same as leaving a member out.
func decodeFrame(b []byte) clientFrame {
	list, err := members(b)
	f := clientFrame{}
	op := ""
	rest := make([]member, 0, len(list))
	for _, m := range list {
		switch {
		case m.name == "id" && f.id == nil && !m.isNull():
			if idErr := checkID(m.raw); idErr != nil {
				return clientFrame{err: idErr}
			}
			f.id = m.raw
		case m.name == "op":
			if s, opErr := text("/op", m.raw); opErr == nil {
				op = s
			} else if err == nil {
				err = opErr
			}
		case m.name != "id":
			rest = append(rest, m)
		}
	}
	if err == nil {
		f.cmd, err = decodeOp(op, rest)
	}
	f.err = err
	return f
}

// checkID allows what can be repeated in an answer as it is.
func checkID(raw json.RawMessage) error {
	if c := raw[0]; len(raw) > maxIDBytes || c != '"' && c != '-' && (c < '0' || c > '9') {
		return model.Invalid("/id", "id must be a string or a number of at most %d bytes", maxIDBytes)
	}
	return nil
}

func decodeOp(op string, list []member) (any, error) {
	switch op {
	case "subscribe":
		return decodeSubscription("/", list)
	case "credit":
		var c creditCmd
		return c.decode(list)
	case "pause", "resume":
		c := pauseCmd{on: op == "pause"}
		err := decodeFields("/", list, []field{{"partitions", true, into(&c.partitions, listOf(onePartition))}})
		return c, err
	case "seek":
		var c seekCmd
		err := decodeFields("/", list, []field{{"partitions", true, into(&c.partitions, listOf(onePosition))}})
		return c, err
	case "commit":
		var c commitCmd
		err := decodeFields("/", list, []field{{"offsets", true, into(&c.offsets, listOf(oneOffset))}})
		return c, err
	case "released":
		var c releasedCmd
		err := decodeFields("/", list, []field{{"partitions", true, into(&c.partitions, listOf(onePartition))}})
		return c, err
	case "unsubscribe":
		return unsubscribeCmd{}, decodeFields("/", list, nil)
	case "auth":
		var c authCmd
		err := decodeFields("/", list, []field{{"access_token", true, into(&c.token, text)}})
		return c, err
	case "":
		return nil, model.Invalid("/op", "op is required")
	}
	return nil, model.Invalid("/op", "there is no op %q here", short(op))
}

func (c creditCmd) decode(list []member) (any, error) {
	err := decodeFields("/", list, []field{{"records", true, into(&c.records, whole(1, maxCredit))}})
	return c, err
}

// maxCredit keeps credit an exact number for clients that count in floating point.
const maxCredit = 1<<53 - 1

// member is one member of a JSON object.
type member struct {
	name string
	raw  json.RawMessage // without white space around it
}

func (m member) isNull() bool { return string(m.raw) == "null" }

// members splits a JSON object. A name that is given twice is an error; all members are
// returned beside it, so that the id can be told.
func members(b []byte) ([]member, error) {
	if !utf8.Valid(b) {
		return nil, model.Errorf(model.MalformedBody, "the frame is not valid UTF-8")
	}
	if !json.Valid(b) {
		return nil, model.Errorf(model.MalformedBody, "the frame is not valid JSON")
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, model.Errorf(model.MalformedBody, "a frame is a JSON object")
	}
	var out []member
	var double error
	seen := map[string]bool{}
	for dec.More() {
		tok, err := dec.Token()
		name, isName := tok.(string)
		var m member
		if err == nil {
			err = dec.Decode(&m.raw)
		}
		if err != nil || !isName {
			return nil, model.Errorf(model.MalformedBody, "the frame is not valid JSON").WithCause(err)
		}
		m.name = name
		if double == nil && seen[name] {
			double = model.Invalid("/"+pointerToken(name), "%q is given twice", short(name))
		}
		seen[name] = true
		out = append(out, m)
	}
	if _, err := dec.Token(); err != nil && !errors.Is(err, io.EOF) {
		return nil, model.Errorf(model.MalformedBody, "the frame is not valid JSON").WithCause(err)
	}
	return out, double
}

// pointerToken escapes a name for a JSON Pointer (RFC 6901 §3).
func pointerToken(s string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(short(s))
}

// field is one member that an object may have, and how it is read.
type field struct {
	name     string
	required bool
	set      func(at string, raw json.RawMessage) error
}

// decodeFields reads an object's members; at is what pointers begin with.
func decodeFields(at string, list []member, fields []field) error {
	given := map[string]bool{}
	for _, m := range list {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == m.name })
		if i < 0 {
			return model.Invalid(at+pointerToken(m.name), "%q is not known here", short(m.name))
		}
		if m.isNull() {
			continue
		}
		given[m.name] = true
		if err := fields[i].set(at+m.name, m.raw); err != nil {
			return err
		}
	}
	for _, f := range fields {
		if f.required && !given[f.name] {
			return model.Invalid(at+f.name, "%s is required", f.name)
		}
	}
	return nil
}

// into makes a field's setter of a reader of values.
func into[T any](to *T, read func(at string, raw json.RawMessage) (T, error)) func(string, json.RawMessage) error {
	return func(at string, raw json.RawMessage) error {
		v, err := read(at, raw)
		if err == nil {
			*to = v
		}
		return err
	}
}

func text(at string, raw json.RawMessage) (string, error) {
	var s string
	if raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return "", model.Invalid(at, "a string is expected, not %s", short(string(raw)))
	}
	return s, nil
}

func topicName(at string, raw json.RawMessage) (string, error) {
	s, err := text(at, raw)
	if err == nil && s == "" {
		err = model.Invalid(at, "a topic's name is not empty")
	}
	return s, err
}

// whole reads a whole number within bounds; one out of them is refused, never clamped.
func whole(least, most int64) func(at string, raw json.RawMessage) (int64, error) {
	return func(at string, raw json.RawMessage) (int64, error) {
		n, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil || n < least || n > most {
			return 0, model.Invalid(at, "a whole number from %d to %d is expected, not %s", least, most, short(string(raw)))
		}
		return n, nil
	}
}

func listOf[T any](read func(at string, raw json.RawMessage) (T, error)) func(at string, raw json.RawMessage) ([]T, error) {
	return func(at string, raw json.RawMessage) ([]T, error) {
		var items []json.RawMessage
		if raw[0] != '[' || json.Unmarshal(raw, &items) != nil {
			return nil, model.Invalid(at, "an array is expected, not %s", short(string(raw)))
		}
		out := make([]T, len(items))
		for i, item := range items {
			var err error
			if out[i], err = read(at+"/"+strconv.Itoa(i), item); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
}

// object splits an object within a frame.
func object(at string, raw json.RawMessage) ([]member, error) {
	if raw[0] != '{' {
		return nil, model.Invalid(at, "an object is expected, not %s", short(string(raw)))
	}
	list, err := members(raw)
	if err != nil {
		e := model.AsError(err)
		for i := range e.Fields {
			e.Fields[i].Pointer = at + e.Fields[i].Pointer
		}
		return nil, e
	}
	return list, nil
}

// namedPartition reads an object that names a partition, and maybe a next offset.
func namedPartition(at string, raw json.RawMessage, next *field) (Partition, error) {
	var p Partition
	var n int64
	list, err := object(at, raw)
	if err != nil {
		return p, err
	}
	fields := []field{{"topic", true, into(&p.Topic, topicName)}, {"partition", true, into(&n, whole(0, 1<<31-1))}}
	if next != nil {
		fields = append(fields, *next)
	}
	err = decodeFields(at+"/", list, fields)
	p.Partition = int32(n)
	return p, err
}

func onePartition(at string, raw json.RawMessage) (Partition, error) {
	return namedPartition(at, raw, nil)
}

func onePosition(at string, raw json.RawMessage) (Position, error) {
	var n int64
	p, err := namedPartition(at, raw, &field{"next_offset", true, into(&n, whole(0, int64(model.MaxOffset)))})
	return Position{Topic: p.Topic, Partition: p.Partition, NextOffset: n}, err
}

func startPosition(at string, raw json.RawMessage) (start, error) {
	n := int64(-1)
	p, err := namedPartition(at, raw, &field{"next_offset", false, into(&n, whole(0, int64(model.MaxOffset)))})
	s := start{Partition: p}
	if n >= 0 {
		s.next = &n
	}
	return s, err
}

// short keeps what a client sent from growing in what it is told.
func short(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
