package h1

import (
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// methods that are taken here.
func plainMethod(m string) bool {
	switch m {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead, http.MethodOptions:
		return true
	}
	return false
}

// head is what a plain request's head says.
type head struct {
	method, target, host string
	url                  url.URL
	fields               []field
	length               int64 // of the body
	lengthAt             int   // index of Content-Length in fields; −1 none
}

// field is a header field, its name in canonical form. repeated fields have several.
type field struct{ name, value string }

// header makes the map that handlers see; values, which is empty, is memory for it.
func (h *head) header(values []string) http.Header {
	m := make(http.Header, len(h.fields))
	if cap(values) < len(h.fields) {
		values = make([]string, 0, len(h.fields))
	}
	values = values[:len(h.fields)]
	for i := range h.fields {
		f := &h.fields[i]
		if old, twice := m[f.name]; twice {
			m[f.name] = append(old, f.value)
			continue
		}
		values[i] = f.value
		m[f.name] = values[i : i+1 : i+1]
	}
	return m
}

// parseHead reads a head that ends with an empty line. Not ok: the request is not plain,
// which is for net/http to judge.
func parseHead(raw []byte) (h head, ok bool) { return readHead(string(raw)) }

// readHead is parseHead of a text, which the strings of the request share.
func readHead(raw string) (h head, ok bool) {
	h.lengthAt = -1
	line, rest, ok := cutLine(raw[:len(raw)-2])
	if !ok || !h.requestLine(line) {
		return h, false
	}
	h.fields = make([]field, 0, 12)
	for rest != "" {
		if line, rest, ok = cutLine(rest); !ok || !h.field(line) {
			return h, false
		}
	}
	return h, h.host != ""
}

// cutLine cuts at the first CRLF; not ok where CR stands alone or there is none.
func cutLine(s string) (line, rest string, ok bool) {
	i := strings.IndexByte(s, '\r')
	if i < 0 || i+1 >= len(s) || s[i+1] != '\n' {
		return "", "", false
	}
	return s[:i], s[i+2:], true
}

// requestLine reads the request line (RFC 9112 §3) with an origin-form target.
func (h *head) requestLine(line string) bool {
	method, rest, _ := strings.Cut(line, " ")
	target, version, _ := strings.Cut(rest, " ")
	if version != "HTTP/1.1" || !plainMethod(method) || target == "" || target[0] != '/' {
		return false
	}
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c >= 0x7f {
			return false
		}
	}
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return false
	}
	h.method, h.target, h.url = method, target, *u
	return true
}

// field reads a field line (RFC 9112 §5).
func (h *head) field(line string) bool {
	key, value, ok := splitField(line)
	if !ok {
		return false
	}
	switch key {
	case "Host":
		if h.host != "" || !isHost(value) {
			return false
		}
		h.host = value
		return true
	case "Content-Length":
		if h.lengthAt >= 0 || !h.contentLength(value) {
			return false
		}
		h.lengthAt = len(h.fields)
	case "Connection":
		if !strings.EqualFold(value, "keep-alive") {
			return false
		}
	case "Transfer-Encoding", "Upgrade", "Expect", "Trailer", "Te", "Pragma", "Http2-Settings", "Proxy-Connection", "Keep-Alive":
		return false
	}
	h.fields = append(h.fields, field{key, value})
	return true
}

// splitField cuts a field line into its name in canonical form and its value.
func splitField(line string) (key, value string, ok bool) {
	colon, canonical, first := 0, true, true
	for ; colon < len(line) && line[colon] != ':'; colon++ {
		c := line[colon]
		class := classes[c]
		if class&token == 0 {
			return "", "", false
		}
		canonical = canonical && (first && class&lower == 0 || !first && class&upper == 0)
		first = c == '-'
	}
	if colon == 0 || colon == len(line) {
		return "", "", false
	}
	if key = line[:colon]; !canonical {
		key = textproto.CanonicalMIMEHeaderKey(key)
	}
	from, to := colon+1, len(line)
	for from < to && (line[from] == ' ' || line[from] == '\t') {
		from++
	}
	for to > from && (line[to-1] == ' ' || line[to-1] == '\t') {
		to--
	}
	value = line[from:to]
	for i := range len(value) {
		if classes[value[i]]&text == 0 {
			return "", "", false
		}
	}
	return key, value, true
}

// Classes of bytes in a head.
const (
	token uint8 = 1 << iota // may be in a field name (RFC 9110 §5.6.2)
	text                    // may be in a field value
	lower
	upper
	host // may be in a host
)

var classes = func() (t [256]uint8) {
	for c := range t {
		b := byte(c)
		switch {
		case 'a' <= b && b <= 'z':
			t[c] = token | lower | host
		case 'A' <= b && b <= 'Z':
			t[c] = token | upper | host
		case '0' <= b && b <= '9':
			t[c] = token | host
		case strings.IndexByte("-_!#$%&'*+.^`|~", b) >= 0:
			t[c] = token
		}
		if strings.IndexByte(".-:[]_", b) >= 0 {
			t[c] |= host
		}
		if b >= ' ' && b != 0x7f || b == '\t' {
			t[c] |= text
		}
	}
	return t
}()

// maxDigits is how long a Content-Length may be, so that it fits 63 bits.
const maxDigits = 18

// contentLength takes digits only (RFC 9110 §8.6).
func (h *head) contentLength(v string) bool {
	if v == "" || len(v) > maxDigits {
		return false
	}
	for i := range len(v) {
		if v[i] < '0' || v[i] > '9' {
			return false
		}
	}
	n, err := strconv.ParseInt(v, 10, 64)
	h.length = n
	return err == nil
}

// isHost takes names, IPv4 and IPv6 addresses, with a port or without.
func isHost(s string) bool {
	for i := range len(s) {
		if classes[s[i]]&host == 0 {
			return false
		}
	}
	return s != ""
}

// isToken tells field names (RFC 9110 §5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		if classes[s[i]]&token == 0 {
			return false
		}
	}
	return s != ""
}

// lastHead remembers a connection's last head: most clients send the same one again and
// again, but for the length of the body.
type lastHead struct {
	before, after string // around the digits of Content-Length; all in before without one
	head          head
}

// parse is parseHead, or what the last head was where this one differs in its
// Content-Length at most.
func (l *lastHead) parse(raw []byte) (h head, ok bool) {
	if n, same := l.same(raw); same {
		h = l.head
		if h.lengthAt < 0 || n == h.length {
			return h, true
		}
		h.fields = slices.Clone(h.fields)
		h.fields[h.lengthAt].value = strconv.FormatInt(n, 10)
		h.length = n
		return h, true
	}
	text := string(raw)
	if h, ok = readHead(text); ok {
		l.note(text, h)
	}
	return h, ok
}

// same compares, and returns the body's length that raw gives.
func (l *lastHead) same(raw []byte) (length int64, ok bool) {
	if l.before == "" || len(raw) < len(l.before) || string(raw[:len(l.before)]) != l.before {
		return 0, false
	}
	rest := raw[len(l.before):]
	if l.head.lengthAt < 0 {
		return 0, len(rest) == 0
	}
	digits := 0
	for digits < len(rest) && digits < maxDigits && rest[digits] >= '0' && rest[digits] <= '9' {
		length = length*10 + int64(rest[digits]-'0')
		digits++
	}
	// A number in another form than ours, such as 007, is parsed anew.
	return length, digits > 0 && (rest[0] != '0' || digits == 1) && string(rest[digits:]) == l.after
}

// maxNoted bounds the heads that are remembered: an idle connection keeps its last one.
const maxNoted = 2 << 10

// note remembers a head by its text, which the strings of h share.
func (l *lastHead) note(raw string, h head) {
	if len(raw) > maxNoted || h.lengthAt >= 0 && h.fields[h.lengthAt].value != strconv.FormatInt(h.length, 10) {
		return // a length such as 007 would be shown for a 7
	}
	l.head = h
	l.before, l.after = raw, ""
	if h.lengthAt < 0 {
		return
	}
	// Its digits are found behind the name, whatever its spelling.
	at := lengthDigits(raw)
	l.before, l.after = raw[:at], raw[at+len(h.fields[h.lengthAt].value):]
}

// lengthDigits is where the digits of the one Content-Length begin.
func lengthDigits(raw string) int {
	for at := 0; ; {
		at += strings.IndexByte(raw[at:], '\n') + 1
		const name = len("content-length:")
		if len(raw)-at > name && raw[at+name-1] == ':' && strings.EqualFold(raw[at:at+name-1], "content-length") {
			for at += name; raw[at] == ' ' || raw[at] == '\t'; at++ {
			}
			return at
		}
	}
}
