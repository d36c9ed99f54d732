package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"time"

	"tidewire/internal/client"
)

const (
	dialTimeout = 10 * time.Second
	callTimeout = 60 * time.Second
	readBuffer  = 64 << 10
	maxChunk    = 1 << 30
)

// target is what all connections share.
type target struct {
	base    *url.URL
	tokens  client.TokenSource
	timeout time.Duration // of a request; 0: callTimeout
}

func (t *target) callTimeout() time.Duration {
	if t.timeout > 0 {
		return t.timeout
	}
	return callTimeout
}

// conn is one persistent connection; not safe for concurrent use.
type conn struct {
	t     *target
	net   net.Conn
	r     *bufio.Reader
	token string
	head  []byte       // the last request, its body included where that is not long
	made  headKey      // what the head in head was made of
	size  int          // of the head in head
	body  bytes.Buffer // the last answer's body

	accept  string // media type asked for; "": none
	discard []byte // not nil: bodies of success are read into it and dropped
	next    int64  // Tidewire-Next-Offset of the last answer; −1 without one
	length  int64  // of the last answer's body, where that was dropped

	status   int         // of the last answer
	deadline time.Time   // set on the connection
	release  func() bool // ends the watch over the context
}

// errStatus is an answer of 300 or above.
type errStatus struct {
	status int
	body   string
}

func (e *errStatus) Error() string { return fmt.Sprintf("HTTP %d: %.300s", e.status, e.body) }

// dial connects lazily: the connection is made by the first request, and again after
// a fault.
func (t *target) dial(ctx context.Context) (*conn, error) {
	token, err := t.tokens.Token(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{t: t, token: token}, nil
}

// host is the address to connect to.
func (c *conn) host() string {
	if c.t.base.Port() == "" {
		return net.JoinHostPort(c.t.base.Hostname(), map[string]string{"http": "80", "https": "443"}[c.t.base.Scheme])
	}
	return c.t.base.Host
}

func (c *conn) connect(ctx context.Context) error {
	host := c.host()
	d := net.Dialer{Timeout: dialTimeout}
	var err error
	if c.t.base.Scheme == "https" {
		td := tls.Dialer{NetDialer: &d, Config: &tls.Config{NextProtos: []string{"http/1.1"}}}
		c.net, err = td.DialContext(ctx, "tcp", host)
	} else {
		c.net, err = d.DialContext(ctx, "tcp", host)
	}
	if err != nil {
		c.net = nil
		return err
	}
	c.r = bufio.NewReaderSize(c.net, readBuffer)
	c.deadline = time.Time{}
	// An interrupt cuts the connection: nobody is interested in the answer any more.
	nc := c.net
	c.release = context.AfterFunc(ctx, func() { _ = nc.Close() })
	return nil
}

func (c *conn) close() {
	if c.net != nil {
		c.release()
		_ = c.net.Close()
		c.net = nil
	}
}

// do makes one request. path holds the query; a body makes it a POST of JSON. The
// answer is valid until the next call. A refused token is renewed once.
func (c *conn) do(ctx context.Context, path string, body []byte) ([]byte, error) {
	answer, err := c.once(ctx, path, body)
	var se *errStatus
	if !errors.As(err, &se) || se.status != 401 {
		return answer, err
	}
	token, rerr := c.t.tokens.Renew(ctx, c.token)
	if rerr != nil || token == "" {
		return nil, errors.Join(err, rerr)
	}
	c.token = token
	return c.once(ctx, path, body)
}

func (c *conn) once(ctx context.Context, path string, body []byte) (answer []byte, err error) {
	if c.net == nil {
		if err := c.connect(ctx); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			c.failed(err)
		}
	}()
	if err := c.extendDeadline(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.buildHead(path, body)
	if err := c.write(body); err != nil {
		return nil, err
	}
	status, last, err := c.readAnswer()
	if err != nil {
		return nil, err
	}
	if last {
		c.close()
	}
	c.status = status
	if status >= 300 {
		return nil, &errStatus{status: status, body: c.body.String()}
	}
	return c.body.Bytes(), nil
}

// extendDeadline moves the connection's deadline once a second, not for each request.
func (c *conn) extendDeadline() error {
	now := time.Now()
	limit := c.t.callTimeout()
	if c.deadline.Sub(now) > limit-time.Second {
		return nil
	}
	c.deadline = now.Add(limit)
	return c.net.SetDeadline(c.deadline)
}

// joinBelow is up to which length a body is copied behind the head, for one plain write.
const joinBelow = 64 << 10

func (c *conn) write(body []byte) error {
	if len(body) <= joinBelow {
		c.head = append(c.head, body...)
		_, err := c.net.Write(c.head)
		return err
	}
	bufs := net.Buffers{c.head, body}
	_, err := bufs.WriteTo(c.net)
	return err
}

// failed drops the connection after a fault of the transport.
func (c *conn) failed(err error) {
	var se *errStatus
	if !errors.As(err, &se) {
		c.close()
	}
}

// headKey is all that a head depends on. A measurement sends the same one many times.
type headKey struct {
	path, token string
	length      int // of the body; −1 without one
}

func (c *conn) buildHead(path string, body []byte) {
	key := headKey{path, c.token, -1}
	if body != nil {
		key.length = len(body)
	}
	if c.size > 0 && key == c.made {
		c.head = c.head[:c.size]
		return
	}
	h := c.head[:0]
	if body == nil {
		h = append(h, "GET "...)
	} else {
		h = append(h, "POST "...)
	}
	h = append(h, c.t.base.EscapedPath()...)
	h = append(h, path...)
	h = append(h, " HTTP/1.1\r\nHost: "...)
	h = append(h, c.t.base.Host...)
	h = append(h, "\r\nUser-Agent: tidewire-bench\r\n"...)
	if c.accept != "" {
		h = append(h, "Accept: "...)
		h = append(h, c.accept...)
		h = append(h, "\r\n"...)
	}
	if c.token != "" {
		h = append(h, "Authorization: Bearer "...)
		h = append(h, c.token...)
		h = append(h, "\r\n"...)
	}
	if body != nil {
		h = append(h, "Content-Type: application/json\r\nContent-Length: "...)
		h = strconv.AppendInt(h, int64(len(body)), 10)
		h = append(h, "\r\n"...)
	}
	c.head = append(h, "\r\n"...)
	c.made, c.size = key, len(c.head)
}

var (
	errAnswer  = errors.New("the answer is no HTTP/1.1")
	errTimeout = errors.New("no answer in time")
)

// readAnswer reads status, fields and body of an answer; last: the server ends the
// connection behind it.
func (c *conn) readAnswer() (status int, last bool, err error) {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return 0, false, err
	}
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.")) {
		return 0, false, errAnswer
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, false, errAnswer
	}
	length, chunked, last, err := c.readFields()
	if err != nil {
		return 0, false, err
	}
	c.body.Reset()
	switch {
	case c.discard != nil && status < 300 && length >= 0:
		c.length = length
		err = c.drop(length)
	case chunked:
		err = c.readChunks()
	case length >= 0:
		err = c.readLength(length)
	case status == 204 || status == 304:
	default:
		_, err = io.Copy(&c.body, c.r)
		last = true
	}
	return status, last, err
}

// drop reads a body of known length into the same memory over and over.
func (c *conn) drop(n int64) error {
	for n > 0 {
		got, err := c.r.Read(c.discard[:min(n, int64(len(c.discard)))])
		if n -= int64(got); err != nil {
			return err
		}
	}
	return nil
}

// readLength reads a body of known length.
func (c *conn) readLength(n int64) error {
	if n > readBuffer {
		_, err := io.CopyN(&c.body, c.r, n)
		return err
	}
	b, err := c.r.Peek(int(n))
	if err != nil {
		return err
	}
	c.body.Write(b)
	_, err = c.r.Discard(int(n))
	return err
}

var nextOffsetField = []byte("Tidewire-Next-Offset")

// readFields reads the header fields that matter here.
func (c *conn) readFields() (length int64, chunked, last bool, err error) {
	length, c.next = -1, -1
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return 0, false, false, err
		}
		if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
			return length, chunked, last, nil
		}
		colon := bytes.IndexByte(line, ':')
		if colon < 0 {
			return 0, false, false, errAnswer
		}
		name, value := line[:colon], line[colon+1:]
		switch {
		case len(name) == 14 && bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64); err != nil || length < 0 {
				return 0, false, false, errAnswer
			}
		case len(name) == len(nextOffsetField) && bytes.EqualFold(name, nextOffsetField):
			if c.next, err = strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64); err != nil {
				return 0, false, false, errAnswer
			}
		case len(name) == 17 && bytes.EqualFold(name, []byte("Transfer-Encoding")):
			chunked = bytes.EqualFold(bytes.TrimSpace(value), []byte("chunked"))
		case len(name) == 10 && bytes.EqualFold(name, []byte("Connection")):
			last = bytes.EqualFold(bytes.TrimSpace(value), []byte("close"))
		}
	}
}

func (c *conn) readChunks() error {
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return err
		}
		digits, _, _ := bytes.Cut(bytes.TrimSpace(line), []byte(";"))
		n, err := strconv.ParseInt(string(digits), 16, 64)
		if err != nil || n < 0 || n > maxChunk {
			return errAnswer
		}
		if n == 0 {
			_, _, _, err = c.readFields() // trailers
			return err
		}
		if _, err := io.CopyN(&c.body, c.r, n); err != nil {
			return err
		}
		if _, err := c.r.Discard(2); err != nil {
			return err
		}
	}
}
