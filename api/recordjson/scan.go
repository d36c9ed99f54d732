package recordjson

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// The walk over JSON text (RFC 8259). It checks the grammar, keeps no tree, does not
// recurse and allocates only for nesting beyond inlineDepth. It reads nothing outside
// buf.

const (
	inlineDepth = 512 // levels whose kind fits scanner.kinds
	ones        = 0x0101010101010101
	highs       = 0x8080808080808080
)

// scanner walks over one buffer. Methods take a position and return the one behind
// what they read, or -1 once bad and why say what is wrong.
type scanner struct {
	buf   []byte
	limit int // depth above which tooDeep is set

	bad     int    // position of the syntax error
	why     string // what was expected there
	escape  bool   // the last string held a backslash
	lone    bool   // a \u escape was one half of a surrogate pair; sticky
	newline bool   // CR or LF stood between tokens; sticky
	tooDeep bool   // nesting went beyond limit; sticky
	strict  bool   // stop at the first of lone, newline and tooDeep
	plain   bool   // buf is printable ASCII without a backslash: a string ends at its next quote

	kinds [inlineDepth / 64]uint64 // bit per level: 1 for an object, 0 for an array
	more  []uint64                 // the same for deeper levels
}

func (s *scanner) fail(i int, why string) int {
	s.bad, s.why = i, why
	return -1
}

// ws skips white space.
func (s *scanner) ws(i int) int {
	for i < len(s.buf) {
		switch s.buf[i] {
		case ' ', '\t':
		case '\r', '\n':
			s.newline = true
		default:
			return i
		}
		i++
	}
	return i
}

// next skips white space and returns where the next token starts and its first byte,
// which is 0 at the end of the text.
func (s *scanner) next(i int) (int, byte) {
	if i < len(s.buf) && s.buf[i] > ' ' {
		return i, s.buf[i]
	}
	if i = s.ws(i); i < len(s.buf) {
		return i, s.buf[i]
	}
	return i, 0
}

// nextSpecial returns the position of the first quote, backslash or control byte
// (below 0x20) at or behind i, or len(b).
func nextSpecial(b []byte, i int) int {
	for i+8 <= len(b) {
		w := binary.LittleEndian.Uint64(b[i:])
		q := w ^ ones*'"'
		e := w ^ ones*'\\'
		m := ((q-ones)&^q | (e-ones)&^e | (w-ones*0x20)&^w) & highs
		if m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
		i += 8
	}
	for i < len(b) && b[i] >= 0x20 && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// str reads the string whose opening quote is at i.
func (s *scanner) str(i int) int {
	s.escape = false
	if s.plain {
		if n := bytes.IndexByte(s.buf[i+1:], '"'); n >= 0 {
			return i + n + 2
		}
		return s.fail(len(s.buf), "the text ends inside a string")
	}
	i = nextSpecial(s.buf, i+1)
	if i < len(s.buf) && s.buf[i] == '"' {
		return i + 1
	}
	s.escape = true
	for {
		switch {
		case i >= len(s.buf):
			return s.fail(i, "the text ends inside a string")
		case s.buf[i] == '"':
			return i + 1
		case s.buf[i] != '\\':
			return s.fail(i, "a control character in a string must be escaped")
		}
		if i = s.esc(i); i < 0 {
			return -1
		}
		i = nextSpecial(s.buf, i)
	}
}

// esc reads the escape sequence whose backslash is at i; a surrogate pair is one.
func (s *scanner) esc(i int) int {
	if i+1 >= len(s.buf) {
		return s.fail(i, "the text ends inside a string")
	}
	switch s.buf[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
	default:
		return s.fail(i, "unknown escape sequence in a string")
	}
	u := hex4(s.buf, i+2)
	if u < 0 {
		return s.fail(i, `\u must be followed by four hexadecimal digits`)
	}
	if u < 0xd800 || u > 0xdfff {
		return i + 6
	}
	if u < 0xdc00 && i+8 <= len(s.buf) && s.buf[i+6] == '\\' && s.buf[i+7] == 'u' {
		if l := hex4(s.buf, i+8); l >= 0xdc00 && l <= 0xdfff {
			return i + 12
		}
	}
	s.lone = true
	return i + 6
}

// hex4 reads four hexadecimal digits at i; -1 when they are not there.
func hex4(b []byte, i int) int {
	if i+4 > len(b) {
		return -1
	}
	n := 0
	for _, c := range b[i : i+4] {
		switch {
		case c >= '0' && c <= '9':
			n = n<<4 | int(c-'0')
		case c >= 'a' && c <= 'f':
			n = n<<4 | int(c-'a'+10)
		case c >= 'A' && c <= 'F':
			n = n<<4 | int(c-'A'+10)
		default:
			return -1
		}
	}
	return n
}

// number reads the number that starts at i.
func (s *scanner) number(i int) int {
	b := s.buf
	if b[i] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++
	case i < len(b) && b[i] >= '1' && b[i] <= '9':
		i = digits(b, i)
	default:
		return s.fail(i, "a digit is expected")
	}
	if i < len(b) && b[i] == '.' {
		j := digits(b, i+1)
		if j == i+1 {
			return s.fail(j, "a digit is expected")
		}
		i = j
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		j := digits(b, i)
		if j == i {
			return s.fail(j, "a digit is expected")
		}
		i = j
	}
	return i
}

func digits(b []byte, i int) int {
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	return i
}

// scalar reads a string, number or literal whose first byte c is at i.
func (s *scanner) scalar(i int, c byte) int {
	switch {
	case c == '"':
		return s.str(i)
	case c == '-' || c >= '0' && c <= '9':
		return s.number(i)
	case c == 't':
		return s.literal(i, "true")
	case c == 'f':
		return s.literal(i, "false")
	case c == 'n':
		return s.literal(i, "null")
	case i >= len(s.buf):
		return s.fail(i, "the text ends where a value is expected")
	}
	return s.fail(i, "a value is expected")
}

func (s *scanner) literal(i int, word string) int {
	if i+len(word) <= len(s.buf) && string(s.buf[i:i+len(word)]) == word {
		return i + len(word)
	}
	return s.fail(i, "a value is expected")
}

// member reads a member's name and colon; i stands at or before the name.
func (s *scanner) member(i int) int {
	i, c := s.next(i)
	if c != '"' {
		return s.fail(i, "a member's name is expected")
	}
	if i = s.str(i); i < 0 {
		return -1
	}
	i, c = s.next(i)
	if c != ':' {
		return s.fail(i, `":" is expected`)
	}
	return i + 1
}

// enter notes the kind of the container at level depth, counted from 0.
func (s *scanner) enter(depth int, object bool) {
	words, i := s.kinds[:], depth/64
	if depth >= inlineDepth {
		if i -= inlineDepth / 64; i >= len(s.more) {
			s.more = append(s.more, 0)
		}
		words = s.more
	}
	if bit := uint64(1) << (depth % 64); object {
		words[i] |= bit
	} else {
		words[i] &^= bit
	}
	if depth >= s.limit {
		s.tooDeep = true
	}
}

func (s *scanner) inObject(depth int) bool {
	words, i := s.kinds[:], depth/64
	if depth >= inlineDepth {
		words, i = s.more, i-inlineDepth/64
	}
	return words[i]>>(depth%64)&1 == 1
}

// value reads one value of any kind that lies depth levels deep.
func (s *scanner) value(i, depth int) int {
	for level := depth; ; {
		var c byte
		if i, c = s.next(i); c == '{' || c == '[' {
			s.enter(level, c == '{')
			if s.strict && s.tooDeep {
				return s.fail(i, "nested too deep")
			}
			level++
			if j, e := s.next(i + 1); e == c+2 { // '{'+2 is '}', '['+2 is ']'
				i, level = j+1, level-1
			} else {
				if i++; c == '{' {
					if i = s.member(i); i < 0 {
						return -1
					}
				}
				continue
			}
		} else if i = s.scalar(i, c); i < 0 {
			return -1
		}
		if s.strict && (s.lone || s.newline) {
			return s.fail(i, "not to be given as JSON")
		}
		if i, level = s.leave(i, level, depth); i < 0 || level == depth {
			return i
		}
	}
}

// leave goes on behind a value: it closes the containers that end here, down to
// level depth, and stands before the next value when one follows.
func (s *scanner) leave(i, level, depth int) (int, int) {
	for level > depth {
		j, c := s.next(i)
		object := s.inObject(level - 1)
		switch {
		case c == ',' && object:
			return s.member(j + 1), level
		case c == ',':
			return j + 1, level
		case c == '}' && object, c == ']' && !object:
			i, level = j+1, level-1
		case c == 0 && j >= len(s.buf):
			return s.fail(j, "the text ends inside an object or array"), level
		case object:
			return s.fail(j, `"," or "}" is expected`), level
		default:
			return s.fail(j, `"," or "]" is expected`), level
		}
	}
	return i, level
}
