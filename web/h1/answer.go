package h1

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
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

// answer is the http.ResponseWriter of an exchange.
type answer struct {
	x    *exchange
	head bool // the request's method is HEAD

	header   http.Header
	status   int   // 0 before WriteHeader
	declared int64 // Content-Length as the handler said; −1: not
	written  int64 // bytes of body that the handler wrote
	haveType bool
	haveDate bool
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
}

func (a *answer) init(x *exchange, head bool) {
	a.x, a.head, a.declared = x, head, -1
	a.header = make(http.Header, 8)
}

// free gives the buffers back.
func (a *answer) free() {
	for _, b := range []**buffer{&a.out, &a.hold} {
		if *b != nil {
			buffers.Put(*b)
			*b = nil
		}
	}
}

// Header is what WriteHeader sends.
func (a *answer) Header() http.Header { return a.header }

// bodyAllowed tells whether answers of this status have a body (RFC 9110 §6.4.1).
func (a *answer) bodyAllowed() bool {
	return a.status >= 200 && a.status != http.StatusNoContent && a.status != http.StatusNotModified
}

// WriteHeader takes status and header as they are now.
func (a *answer) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid status %d", status))
	}
	if a.status != 0 {
		a.x.c.s.logger.Warn("a handler wrote a second status", "path", a.x.req.URL.Path, "first", a.status, "second", status)
		return
	}
	a.ensureOut()
	if status < 200 {
		a.informational(status)
		return
	}
	a.status = status
	if v, ok := a.header["Content-Length"]; ok && len(v) > 0 {
		if n, err := strconv.ParseInt(strings.TrimSpace(v[0]), 10, 64); err == nil && n >= 0 {
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
	a.appendHead("\r\n")
	a.status = 0
	a.haveType, a.haveDate = false, false
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

// render writes the status line and the handler's fields, without those of framing.
func (a *answer) render() {
	a.appendHead("HTTP/1.1 ", statusLine(a.status))
	for name, values := range a.header {
		switch name {
		case "Content-Length", "Transfer-Encoding", "Trailer":
			continue
		case "Connection":
			if len(values) > 0 && strings.EqualFold(values[0], "close") {
				a.last = true
			}
			continue
		case "Content-Type":
			a.haveType = true
		case "Content-Encoding":
			a.haveType = a.haveType || len(values) > 0 && values[0] != ""
		case "Date":
			a.haveDate = true
		}
		if strings.HasPrefix(name, http.TrailerPrefix) || !isToken(name) {
			continue
		}
		for _, v := range values {
			a.appendHead(name, ": ", oneLine(v), "\r\n")
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
	a.drain()
	if !a.haveType && a.bodyAllowed() && len(body) > 0 {
		a.appendHead("Content-Type: ", http.DetectContentType(body[:min(len(body), sniffLength)]), "\r\n")
	}
	if !a.haveDate {
		a.appendHead("Date: ", date(), "\r\n")
	}
	switch {
	case !a.bodyAllowed():
		if a.declared >= 0 && a.status == http.StatusNotModified {
			a.appendHead("Content-Length: ", strconv.FormatInt(a.declared, 10), "\r\n")
		}
	case a.declared >= 0:
		a.appendHead("Content-Length: ", strconv.FormatInt(a.declared, 10), "\r\n")
	case whole && (!a.head || a.written > 0):
		a.appendHead("Content-Length: ", strconv.FormatInt(a.written, 10), "\r\n")
	case !a.head:
		a.chunked = true
		a.appendHead("Transfer-Encoding: chunked\r\n")
	}
	if a.last || a.x.c.s.closing.Load() {
		a.last = true
		a.appendHead("Connection: close\r\n")
	}
	a.appendHead("\r\n")
}

// drain reads what the handler left of the request's body, up to a limit: some clients
// read no answer before they have sent all.
func (a *answer) drain() {
	left, err := a.x.unread()
	if left == 0 || a.duplex {
		return
	}
	if err != nil || left > maxDrain {
		a.last = true
		return
	}
	if _, err := io.CopyN(io.Discard, (*rest)(a.x), left); err != nil {
		a.last = true
	}
}

// Write sends or keeps bytes of the body.
func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	if len(p) == 0 {
		return 0, nil
	}
	if !a.bodyAllowed() {
		return 0, http.ErrBodyNotAllowed
	}
	a.written += int64(len(p))
	switch {
	case a.declared >= 0 && a.written > a.declared:
		return 0, http.ErrContentLength
	case a.head:
	case a.declared >= 0:
		if !a.framed {
			a.frame(false, p)
		}
		a.push(p)
	case !a.framed && a.held+len(p) <= bufferSize:
		if a.hold == nil {
			a.hold = buffers.Get().(*buffer)
		}
		a.held += copy(a.hold[a.held:], p)
	default:
		a.unhold(p)
		a.chunk(p)
	}
	if a.err != nil {
		return 0, a.err
	}
	return len(p), nil
}

// unhold begins a chunked answer with what was held.
func (a *answer) unhold(next []byte) {
	if a.framed {
		return
	}
	begin := next
	if a.held > 0 {
		begin = a.hold[:a.held]
	}
	a.frame(false, begin)
	if a.held > 0 {
		a.chunk(a.hold[:a.held])
		a.held = 0
	}
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
	_, a.err = bufs.WriteTo(a.x.c.net)
	a.n, a.long = 0, nil
}

func (a *answer) flush() {
	if a.err != nil || a.n == 0 && a.long == nil {
		return
	}
	b := a.out[:a.n]
	if a.long != nil {
		b = a.long
	}
	_, a.err = a.x.c.net.Write(b)
	a.n, a.long = 0, nil
}

// FlushError sends what was written so far.
func (a *answer) FlushError() error {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	a.unhold(nil)
	a.flush()
	return a.err
}

// Flush is FlushError without the error (http.Flusher).
func (a *answer) Flush() { _ = a.FlushError() }

// finish completes the answer and sends it.
func (a *answer) finish() {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	if !a.framed {
		begin := []byte(nil)
		if a.held > 0 {
			begin = a.hold[:a.held]
		}
		a.frame(true, begin)
		if a.held > 0 {
			a.push(begin)
		}
	} else if a.chunked {
		a.push([]byte("0\r\n\r\n"))
	}
	if a.declared > a.written && a.bodyAllowed() && !a.head {
		a.last = true // the client waits for bytes that nobody wrote
	}
	if left, err := a.x.unread(); left > 0 || err != nil {
		a.last = true
	}
	a.flush()
}

// EnableFullDuplex lets a handler go on reading after it began to answer.
func (a *answer) EnableFullDuplex() error {
	a.duplex = true
	return nil
}

// SetReadDeadline bounds reading of the body.
func (a *answer) SetReadDeadline(t time.Time) error {
	a.x.c.readLimited = true
	return a.x.c.net.SetReadDeadline(t)
}

// SetWriteDeadline bounds writing of the answer.
func (a *answer) SetWriteDeadline(t time.Time) error {
	a.x.c.writeLimited = true
	return a.x.c.net.SetWriteDeadline(t)
}

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
