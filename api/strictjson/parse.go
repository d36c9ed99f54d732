package strictjson

import (
	"encoding/json"
	"strconv"
	"strings"

	"tidewire/internal/model"
)

// path is where a value stands, as a list from the value upwards: the text of a JSON Pointer is
// made only for what is wrong.
type path struct {
	up    *path // nil: the document itself
	name  string
	index int // in a list; −1: name is a member's
}

// String is the JSON Pointer (RFC 6901).
func (p *path) String() string {
	if p == nil {
		return ""
	}
	if p.index >= 0 {
		return p.up.String() + "/" + strconv.Itoa(p.index)
	}
	return p.up.String() + "/" + pointerToken(p.name)
}

// scanner reads a document that is known to be valid JSON in UTF-8, in one pass and without
// tokens on the heap; parseValue, which names what is not valid, takes five times as long.
type scanner struct {
	b []byte
	i int
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// value reads the value that begins at i, behind space.
func (s *scanner) value(at *path, depth int) (any, error) {
	s.space()
	switch s.b[s.i] {
	case '{':
		return s.object(at, depth)
	case '[':
		return s.list(at, depth)
	case '"':
		return s.text()
	case 't':
		s.i += len("true")
		return true, nil
	case 'f':
		s.i += len("false")
		return false, nil
	case 'n':
		s.i += len("null")
		return nil, nil
	}
	from := s.i
	for s.i < len(s.b) && strings.IndexByte("+-.0123456789eE", s.b[s.i]) >= 0 {
		s.i++
	}
	return json.Number(s.b[from:s.i]), nil
}

// text reads a string.
func (s *scanner) text() (string, error) {
	from := s.i
	escaped := false
	for s.i++; s.b[s.i] != '"'; s.i++ {
		if s.b[s.i] == '\\' {
			escaped = true
			s.i++
		}
	}
	s.i++
	if !escaped {
		return string(s.b[from+1 : s.i-1]), nil
	}
	var v string
	err := json.Unmarshal(s.b[from:s.i], &v)
	return v, err
}

// more passes over what stands before the next element, or over the end.
func (s *scanner) more(end byte) bool {
	s.space()
	switch s.b[s.i] {
	case end:
		s.i++
		return false
	case ',':
		s.i++
		s.space()
	}
	return true
}

func tooDeep(at *path) error {
	return model.Invalid(at.String(), "the body is nested more than %d levels deep", MaxDepth)
}

func (s *scanner) list(at *path, depth int) (any, error) {
	if depth >= MaxDepth {
		return nil, tooDeep(at)
	}
	list := []any{}
	here := &path{up: at}
	for s.i++; s.more(']'); here.index++ {
		v, err := s.value(here, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// fewMembers is how many are compared one by one; beyond, a map tells whether one came twice.
const fewMembers = 16

func (s *scanner) object(at *path, depth int) (any, error) {
	if depth >= MaxDepth {
		return nil, tooDeep(at)
	}
	obj := make(object, 0, 4)
	here := &path{up: at, index: -1}
	var seen map[string]bool
	for s.i++; s.more('}'); {
		name, err := s.text()
		if err != nil {
			return nil, err
		}
		here.name = name
		if obj.has(name, seen) {
			return nil, model.Invalid(here.String(), "%q is given twice", name)
		}
		s.space()
		s.i++ // the colon
		v, err := s.value(here, depth+1)
		if err != nil {
			return nil, err
		}
		obj = append(obj, member{name, v})
		switch {
		case seen != nil:
			seen[name] = true
		case len(obj) > fewMembers:
			seen = make(map[string]bool, 2*len(obj))
			for _, m := range obj {
				seen[m.name] = true
			}
		}
	}
	return obj, nil
}

// has tells whether a member came already.
func (o object) has(name string, seen map[string]bool) bool {
	if seen != nil {
		return seen[name]
	}
	for i := range o {
		if o[i].name == name {
			return true
		}
	}
	return false
}
