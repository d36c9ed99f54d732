package h1

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// maxDrain is how much of a body that a handler did not read is read before the answer, so
// that the connection can go on; with more of it the connection ends (as in net/http).
const maxDrain = 256 << 10

// sniffLength is how much of a body tells its media type (WHATWG MIME Sniffing).
const sniffLength = 512

// answer is what an exchange sends; writer.go gives it to handlers.
type answer struct {
	x    *exchange
	head bool // the request's method is HEAD

	header   http.Header
	status   int   // 0 before WriteHeader
	declared int64 // Content-Length as the handler said; −1: not
	written  int64 // bytes of body that the handler wrote
	haveType bool
	haveDate bool
	done     bool // the handler has returned: what it still writes is refused
	parks    bool // the handler is to be called again: what it writes goes nowhere
	framed   bool // the head is complete in out, or sent
	chunked  bool
	last     bool // the connection ends after this answer
	duplex   bool
	err      error // of the connection

	out  *buffer // what is to be sent: a head, then body
	n    int
	hold *buffer // body whose length is not known yet
	held int
	long []byte // a head that did not fit into out

	connection []string // the handler's Connection, which goes out unless the connection ends
}

func (a *answer) init(x *exchange, head bool) {
	a.x, a.head, a.declared = x, head, -1
	a.header = make(http.Header, headerRoom)
}

// headerRoom is for how many fields of the handler's a header is made.
const headerRoom = 8

// free gives the buffers back.
func (a *answer) free() {
	a.done = true
	for _, b := range []**buffer{&a.out, &a.hold} {
		if *b != nil {
			buffers.Put(*b)
			*b = nil
		}
	}
}

// bodyAllowed tells whether answers of this status have a body (RFC 9110 §6.4.1).
func (a *answer) bodyAllowed() bool {
	return a.status >= 200 && a.status != http.StatusNoContent && a.status != http.StatusNotModified
}

// writeHeader takes status and header as they are now.
func (a *answer) writeHeader(status int) {
	if a.status != 0 {
		a.x.c.s.logger.Warn("a handler wrote a second status", "path", a.x.req.URL.Path, "first", a.status, "second", status)
		return
	}
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid status %d", status))
	}
	a.ensureOut()
	if status < 200 && status != http.StatusSwitchingProtocols {
		a.informational(status)
		return
	}
	a.status = status
	if v := a.header["Content-Length"]; len(v) > 0 && v[0] != "" {
		if n, err := strconv.ParseInt(v[0], 10, 64); err == nil && n >= 0 {
			a.declared = n
		} else {
			a.x.c.s.logger.Warn("a handler declared an invalid length", "path", a.x.req.URL.Path, "length", v[0])
		}
	}
	a.render()
}

// informational sends an answer that precedes the real one (RFC 9110 §15.2).
func (a *answer) informational(status int) {
	a.status = status
	a.render()
	for _, v := range a.connection {
		a.appendField("Connection", oneLine(v))
	}
	a.appendHead("\r\n")
	a.status, a.connection = 0, nil
	a.haveType, a.haveDate, a.last = false, false, false
	a.flush()
}

func (a *answer) ensureOut() {
	if a.out == nil {
		a.out = buffers.Get().(*buffer)
		a.n = 0
	}
}

// appendHead appends to the head, which moves to memory of its own when it is long.
func (a *answer) appendHead(parts ...string) {
	for _, p := range parts {
		if a.long == nil && a.n+len(p) <= bufferSize {
			a.n += copy(a.out[a.n:], p)
			continue
		}
		if a.long == nil {
			a.long = bytes.Clone(a.out[:a.n])
			a.n = 0
		}
		a.long = append(a.long, p...)
	}
}

// appendField appends a field line.
func (a *answer) appendField(name, value string) {
	size := len(name) + len(value) + 4
	if a.long != nil || a.n+size > bufferSize {
		a.appendHead(name, ": ", value, "\r\n")
		return
	}
	b := a.out[a.n : a.n+size]
	b[copy(b, name)] = ':'
	b[len(name)+1] = ' '
	b[len(name)+2+copy(b[len(name)+2:], value)] = '\r'
	b[size-1] = '\n'
	a.n += size
}

// render writes the status line and the handler's fields, without those of framing.
func (a *answer) render() {
	a.appendHead("HTTP/1.1 ", statusLine(a.status))
	for name, values := range a.header {
		switch name {
		case "Content-Length", "Transfer-Encoding", "Trailer":
			continue
		case "Connection":
			a.connection = slices.Clone(values)
			a.last = len(values) > 0 && strings.EqualFold(values[0], "close")
			continue
		case "Content-Type":
			a.haveType = true
			if a.status == http.StatusNotModified {
				continue
			}
		case "Content-Encoding":
			a.haveType = a.haveType || len(values) > 0 && values[0] != ""
		case "Date":
			a.haveDate = true
		}
		if strings.HasPrefix(name, http.TrailerPrefix) || !isToken(name) {
			continue
		}
		for _, v := range values {
			a.appendField(name, oneLine(v))
		}
	}
}

// statusLines are those of the usual statuses.
var statusLines = func() map[int]string {
	m := map[int]string{}
	for s := 100; s < 600; s++ {
		if http.StatusText(s) != "" {
			m[s] = newStatusLine(s)
		}
	}
	return m
}()

func newStatusLine(status int) string {
	text := http.StatusText(status)
	if text == "" {
		text = "status code " + strconv.Itoa(status)
	}
	return strconv.Itoa(status) + " " + text + "\r\n"
}

func statusLine(status int) string {
	if l, ok := statusLines[status]; ok {
		return l
	}
	return newStatusLine(status)
}

// oneLine keeps a value from ending its line (response splitting).
func oneLine(v string) string {
	if v != "" && v[0] > ' ' && v[len(v)-1] > ' ' && strings.IndexByte(v, '\r') < 0 && strings.IndexByte(v, '\n') < 0 {
		return v
	}
	v = strings.NewReplacer("\r", " ", "\n", " ").Replace(v)
	return strings.Trim(v, " \t")
}

// frame completes the head. whole means that the body is all that is held; body is how it
// begins.
func (a *answer) frame(whole bool, body []byte) {
	a.framed = true
	a.last = a.last || a.x.c.s.closing.Load()
	if !a.last && !a.duplex {
		a.drain()
	}
	if !a.haveType && a.bodyAllowed() && len(body) > 0 {
		a.appendField("Content-Type", http.DetectContentType(body[:min(len(body), sniffLength)]))
	}
	if !a.haveDate {
		a.appendField("Date", date())
	}
	switch {
	case !a.bodyAllowed():
	case a.declared >= 0:
		a.appendField("Content-Length", strconv.FormatInt(a.declared, 10))
	case whole && (!a.head || a.written > 0):
		a.appendField("Content-Length", strconv.FormatInt(a.written, 10))
	case !a.head:
		a.chunked = true
		a.appendHead("Transfer-Encoding: chunked\r\n")
	}
	if a.last {
		a.connection = closes
	}
	for _, v := range a.connection {
		a.appendField("Connection", oneLine(v))
	}
	a.appendHead("\r\n")
}

var closes = []string{"close"}

// drain reads what the handler left of the request's body, up to a limit: some clients
// read no answer before they have sent all.
func (a *answer) drain() {
	left, err := a.x.unread()
	if left == 0 {
		return
	}
	if err != nil || left >= maxDrain {
		a.last = true
		return
	}
	if _, err := io.CopyN(io.Discard, (*rest)(a.x), left); err != nil {
		a.last = true
	}
}

// write sends or keeps bytes of the body.
func (a *answer) write(p []byte) (int, error) {
	if a.status == 0 {
		a.writeHeader(http.StatusOK)
	}
	if len(p) == 0 {
		return 0, nil
	}
	if !a.bodyAllowed() {
		return 0, http.ErrBodyNotAllowed
	}
	a.written += int64(len(p))
	if a.declared >= 0 && a.written > a.declared {
		return 0, http.ErrContentLength
	}
	a.body(p)
	if a.err != nil {
		return 0, a.err
	}
	return len(p), nil
}

// body takes bytes of the body. They are held while its length or its type is not known,
// and while they fit.
func (a *answer) body(p []byte) {
	if a.head {
		if !a.framed {
			a.keep(p[:min(len(p), max(0, sniffLength-a.held))])
		}
		return
	}
	if !a.framed && (a.declared < 0 || !a.haveType) {
		if p = p[a.keep(p):]; len(p) == 0 {
			return
		}
	}
	a.unhold(p)
	a.chunk(p)
}

// keep holds what fits of p, if anything is held or all of it fits: a long write needs no
// copy.
func (a *answer) keep(p []byte) int {
	if a.held == 0 && len(p) > bufferSize || len(p) == 0 {
		return 0
	}
	if a.hold == nil {
		a.hold = buffers.Get().(*buffer)
	}
	n := copy(a.hold[a.held:], p)
	a.held += n
	return n
}

// unhold completes the head of an answer that goes on, with what was held, before next.
func (a *answer) unhold(next []byte) {
	if a.framed {
		return
	}
	if a.held == 0 {
		a.frame(false, next)
		return
	}
	a.frame(false, a.hold[:a.held])
	if !a.head {
		a.chunk(a.hold[:a.held])
	}
	a.held = 0
}

func (a *answer) chunk(p []byte) {
	if !a.chunked {
		a.push(p)
		return
	}
	var size [18]byte
	b := append(strconv.AppendInt(size[:0], int64(len(p)), 16), '\r', '\n')
	a.push(b)
	a.push(p)
	a.push(crlf)
}

var crlf = []byte("\r\n")

// push sends bytes, or keeps them while they fit.
func (a *answer) push(p []byte) {
	if a.err != nil {
		return
	}
	if a.long == nil && a.n+len(p) <= bufferSize {
		a.n += copy(a.out[a.n:], p)
		return
	}
	first := a.out[:a.n]
	if a.long != nil {
		first = a.long
	}
	bufs := net.Buffers{first, p}
	_, err := bufs.WriteTo(a.x.c.net)
	a.sent(err)
}

func (a *answer) flush() {
	if a.err != nil || a.n == 0 && a.long == nil {
		return
	}
	b := a.out[:a.n]
	if a.long != nil {
		b = a.long
	}
	_, err := a.x.c.net.Write(b)
	a.sent(err)
}

// sent notes how sending went. After a failure the client is gone.
func (a *answer) sent(err error) {
	a.n, a.long = 0, nil
	if err != nil {
		a.err = err
		a.x.cancel()
	}
}

// flushAll sends what was written so far.
func (a *answer) flushAll() error {
	if a.status == 0 {
		a.writeHeader(http.StatusOK)
	}
	a.unhold(nil)
	a.flush()
	return a.err
}

// finish completes the answer and sends it.
func (a *answer) finish() {
	a.done = true
	if a.status == 0 {
		a.writeHeader(http.StatusOK)
	}
	if a.framed {
		if a.chunked {
			a.push(lastChunk)
		}
	} else if a.held == 0 {
		a.frame(true, nil)
	} else {
		a.frame(true, a.hold[:a.held])
		if !a.head {
			a.push(a.hold[:a.held])
		}
	}
	if a.declared >= 0 && a.declared != a.written && a.bodyAllowed() && !a.head {
		a.last = true // the client waits for bytes that nobody wrote, or that were refused
	}
	a.flush()
}

var lastChunk = []byte("0\r\n\r\n")

// now1123 is the Date of this second.
var now1123 atomic.Pointer[dated]

type dated struct {
	unix int64
	text string
}

// date is the Date field's value (RFC 9110 §5.6.7).
func date() string {
	now := time.Now()
	d := now1123.Load()
	if d == nil || d.unix != now.Unix() {
		d = &dated{now.Unix(), now.UTC().Format(http.TimeFormat)}
		now1123.Store(d)
	}
	return d.text
}
