// Package strictjson decodes the JSON bodies of requests: what the contract does not know is
// refused and named, nothing is passed over.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"tidewire/internal/model"
)

// MaxDepth is the deepest nesting of a JSON body.
const MaxDepth = 512

// Decode reads a JSON body strictly into the DTO that out points at: names are
// case-sensitive, a member that is unknown, double, missing or of another type is
// invalid-argument (422) with its JSON Pointer, and what is not JSON in UTF-8 is
// malformed-body (400). null means the same as leaving a member out. The DTO has fields of
// type string, bool, whole numbers, pointers to these, slices, nested structs,
// map[string]string, whose values may come as string, number or boolean, and any, which takes
// a string or a json.Number for the caller to look at.
func Decode(b []byte, out any) error {
	node, err := parseJSON(b)
	if err != nil {
		return err
	}
	d := bodyDecoder{}
	d.value(nil, node, reflect.ValueOf(out).Elem())
	return d.err()
}

// object is a JSON object with its members in order.
type object []member

type member struct {
	name  string
	value any // object, []any, string, json.Number, bool, nil
}

func malformed(format string, args ...any) error {
	return model.Errorf(model.MalformedBody, format, args...)
}

func parseJSON(b []byte) (any, error) {
	if len(bytes.TrimSpace(b)) == 0 {
		return nil, malformed("the body is empty; a JSON object is needed")
	}
	if !utf8.Valid(b) {
		return nil, malformed("the body is not valid UTF-8")
	}
	parse := parseSlowly
	if json.Valid(b) {
		parse = func(b []byte) (any, error) { return (&scanner{b: b}).value(nil, 0) }
	}
	node, err := parse(b)
	if err != nil {
		return nil, err
	}
	if hasLoneSurrogate(b) {
		return nil, model.Invalid("", "a text holds one half of a surrogate pair, which is no character")
	}
	return node, nil
}

// parseSlowly reads token by token, and tells where a document is not valid.
func parseSlowly(b []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	node, err := parseValue(dec, nil, 0)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, malformed("something follows the JSON value")
	}
	return node, nil
}

// hasLoneSurrogate looks, in valid JSON, for an escape of half a surrogate pair, which
// encoding/json would replace silently.
func hasLoneSurrogate(b []byte) bool {
	for i := bytes.IndexByte(b, '\\'); i >= 0 && i+1 < len(b); {
		switch r := escapedRune(b[i:]); {
		case r < 0:
			i += 2
		case !utf16.IsSurrogate(r):
			i += 6
		case utf16.DecodeRune(r, escapedRune(b[i+6:])) == utf8.RuneError:
			return true
		default:
			i += 12
		}
		next := bytes.IndexByte(b[i:], '\\')
		if next < 0 {
			return false
		}
		i += next
	}
	return false
}

// escapedRune is the code unit of the \u escape that b begins with, or -1.
func escapedRune(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}

func parseValue(dec *json.Decoder, at *path, depth int) (any, error) {
	tok, err := dec.Token()
	if err != nil {
		return nil, malformed("the body is not complete, valid JSON, near byte %d", dec.InputOffset())
	}
	delim, ok := tok.(json.Delim)
	if !ok {
		return tok, nil
	}
	if depth >= MaxDepth {
		return nil, tooDeep(at)
	}
	if delim == '[' {
		list := []any{}
		for dec.More() {
			v, err := parseValue(dec, &path{up: at, index: len(list)}, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, closing(dec)
	}
	obj := object{}
	seen := map[string]bool{}
	for dec.More() {
		tok, err := dec.Token()
		name, isName := tok.(string)
		if err != nil || !isName {
			return nil, malformed("the body is not complete, valid JSON, near byte %d", dec.InputOffset())
		}
		here := &path{up: at, name: name, index: -1}
		if seen[name] {
			return nil, model.Invalid(here.String(), "%q is given twice", name)
		}
		seen[name] = true
		v, err := parseValue(dec, here, depth+1)
		if err != nil {
			return nil, err
		}
		obj = append(obj, member{name, v})
	}
	return obj, closing(dec)
}

func closing(dec *json.Decoder) error {
	if _, err := dec.Token(); err != nil {
		return malformed("the body is not complete, valid JSON, near byte %d", dec.InputOffset())
	}
	return nil
}

// pointerToken escapes a name for a JSON Pointer (RFC 6901 §3).
func pointerToken(s string) string { return pointerEscapes.Replace(s) }

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// bodyDecoder assigns a parsed value to a DTO and collects what is wrong with it.
type bodyDecoder struct{ fields []model.FieldError }

// maxFieldErrors bounds what one answer lists.
const maxFieldErrors = 32

func (d *bodyDecoder) err() error {
	if len(d.fields) == 0 {
		return nil
	}
	first := d.fields[0]
	return &model.Error{Code: model.InvalidArgument, Detail: strings.TrimSpace(strings.TrimPrefix(first.Pointer, "/") + " " + first.Detail), Fields: d.fields}
}

func (d *bodyDecoder) bad(at *path, format string, args ...any) {
	if len(d.fields) < maxFieldErrors {
		d.fields = append(d.fields, model.FieldError{Pointer: at.String(), Detail: fmt.Sprintf(format, args...)})
	}
}

func (d *bodyDecoder) value(at *path, node any, into reflect.Value) {
	if node == nil {
		if into.Kind() == reflect.Struct {
			d.bad(at, "must be an object")
		}
		return
	}
	switch into.Kind() {
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		d.value(at, node, into.Elem())
	case reflect.Struct:
		d.object(at, node, into)
	case reflect.Slice:
		d.list(at, node, into)
	case reflect.Map:
		d.scalars(at, node, into)
	default:
		d.scalar(at, node, into)
	}
}

func (d *bodyDecoder) object(at *path, node any, into reflect.Value) {
	obj, ok := node.(object)
	if !ok {
		d.bad(at, "must be an object")
		return
	}
	fields := fieldsOf(into.Type())
	var given [maxFields]bool
	here := &path{up: at, index: -1}
	for _, m := range obj {
		here.name = m.name
		i := fields.named(m.name)
		if i < 0 {
			d.bad(here, "is not a known member")
			continue
		}
		given[i] = m.value != nil
		d.value(here, m.value, into.Field(i))
	}
	for i, f := range fields {
		if f.required && !given[i] {
			d.bad(&path{up: at, name: f.name, index: -1}, "is required")
		}
	}
}

// maxFields is how many a DTO may have.
const maxFields = 64

// fields are the members that a DTO has, in order.
type fields []field

type field struct {
	name     string
	required bool
}

func (f fields) named(name string) int {
	for i := range f {
		if f[i].name == name {
			return i
		}
	}
	return -1
}

// known are the fields of DTOs by type, of which there are as many as the program has.
var known sync.Map // reflect.Type → fields

func fieldsOf(t reflect.Type) fields {
	if f, ok := known.Load(t); ok {
		return f.(fields)
	}
	f := make(fields, t.NumField())
	if len(f) > maxFields {
		panic(fmt.Sprintf("%s has more than %d fields", t, maxFields))
	}
	for i := range f {
		tag := t.Field(i).Tag
		f[i] = field{tag.Get("json"), tag.Get("binding") == "required"}
	}
	known.Store(t, f)
	return f
}

func (d *bodyDecoder) list(at *path, node any, into reflect.Value) {
	list, ok := node.([]any)
	if !ok {
		d.bad(at, "must be an array")
		return
	}
	out := reflect.MakeSlice(into.Type(), len(list), len(list))
	here := &path{up: at}
	for i, v := range list {
		here.index = i
		if v == nil {
			d.bad(here, "must not be null")
			continue
		}
		d.value(here, v, out.Index(i))
	}
	into.Set(out)
}

// scalars reads a map[string]string of settings.
func (d *bodyDecoder) scalars(at *path, node any, into reflect.Value) {
	obj, ok := node.(object)
	if !ok {
		d.bad(at, "must be an object")
		return
	}
	out := map[string]string{}
	for _, m := range obj {
		switch v := m.value.(type) {
		case string:
			out[m.name] = v
		case json.Number:
			out[m.name] = v.String()
		case bool:
			out[m.name] = strconv.FormatBool(v)
		default:
			d.bad(&path{up: at, name: m.name, index: -1}, "must be a string, a number or a boolean")
		}
	}
	into.Set(reflect.ValueOf(out))
}

func (d *bodyDecoder) scalar(at *path, node any, into reflect.Value) {
	if into.Kind() == reflect.Interface {
		switch node.(type) {
		case string, json.Number:
			into.Set(reflect.ValueOf(node))
		default:
			d.bad(at, "must be a string or a number")
		}
		return
	}
	switch v := node.(type) {
	case string:
		if into.Kind() == reflect.String {
			into.SetString(v)
			return
		}
	case bool:
		if into.Kind() == reflect.Bool {
			into.SetBool(v)
			return
		}
	case json.Number:
		if into.CanInt() {
			n, err := strconv.ParseInt(v.String(), 10, 64)
			if err != nil || into.OverflowInt(n) {
				d.bad(at, "must be a whole number of at most %d bits, not %s", into.Type().Bits(), Short(v.String()))
				return
			}
			into.SetInt(n)
			return
		}
	}
	d.bad(at, "must be %s", map[reflect.Kind]string{
		reflect.String: "a string", reflect.Bool: "true or false",
	}[into.Kind()]+wholeNumber(into))
}

func wholeNumber(v reflect.Value) string {
	if v.CanInt() {
		return "a whole number"
	}
	return ""
}

func Short(s string) string {
	const most = 40
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
