package h1

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// bufferSize holds a head and, mostly, the whole body of a request.
	bufferSize = 16 << 10
	// smallRead is the length of reads of a body below which they go through the buffer.
	smallRead = 4 << 10
	// deadlineStep is how stale a deadline may be: setting one for each request costs.
	deadlineStep = 5 * time.Second
	// lingerTime is how long what a client still sends is read after the last answer, so
	// that a reset does not destroy the answer on its way.
	lingerTime = 500 * time.Millisecond
)

// state of a connection, for Shutdown.
type state = int32

const (
	idle   state = iota // waits for a request
	active              // a handler runs
	ended               // closed or handed over
)

type buffer [bufferSize]byte

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// conn is one connection; it belongs to the goroutine of serve.
type conn struct {
	s      *Server
	net    *net.TCPConn
	raw    syscall.RawConn
	remote string
	local  net.Addr
	state  atomic.Int32

	buf  *buffer // nil while there is nothing to hold
	r, w int     // what was read and not taken is buf[r:w]

	first    func(fd uintptr) bool // readFirst, made once
	firstErr error
	deadline time.Time // as set for reading; zero: none

	last lastHead

	readLimited, writeLimited bool // the handler has set deadlines of its own
}

func newConn(s *Server, tcp *net.TCPConn) (*conn, error) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	c := &conn{s: s, net: tcp, raw: raw, remote: tcp.RemoteAddr().String(), local: tcp.LocalAddr()}
	c.first = c.readFirst
	return c, nil
}

func (c *conn) serve() {
	defer c.end()
	for {
		head, ok := c.next()
		if !ok {
			return
		}
		x, plain := c.parse(head)
		if !plain {
			c.handOver()
			return
		}
		if !c.state.CompareAndSwap(idle, active) {
			return
		}
		c.r += len(head)
		if !x.run() || !c.state.CompareAndSwap(active, idle) {
			return
		}
		if c.s.closing.Load() {
			c.closeIf(idle)
			return
		}
	}
}

// end closes the connection, unless it was handed over, and forgets it.
func (c *conn) end() {
	if c.state.Swap(ended) != ended {
		_ = c.net.Close() // of no interest any more
	}
	c.release()
	c.s.forget(c)
}

// closeIf closes a connection that is in that state.
func (c *conn) closeIf(s state) {
	if c.state.CompareAndSwap(s, ended) {
		_ = c.net.Close() // of no interest any more
	}
}

func (c *conn) release() {
	if c.buf != nil {
		buffers.Put(c.buf)
		c.buf, c.r, c.w = nil, 0, 0
	}
}

var headEnd = []byte("\r\n\r\n")

// next waits for a request and returns its head, which stays in the buffer, with the empty
// line. Not ok: the connection has ended or was handed over.
func (c *conn) next() ([]byte, bool) {
	if c.r == c.w {
		c.release()
		if c.extend(c.s.http.IdleTimeout) != nil || c.raw.Read(c.first) != nil || c.firstErr != nil || c.w == 0 {
			return nil, false
		}
	}
	i := bytes.Index(c.buf[c.r:c.w], headEnd)
	if i < 0 {
		c.handOver()
		return nil, false
	}
	return c.buf[c.r : c.r+i+len(headEnd)], true
}

// readFirst reads into a buffer that it takes when there are bytes: a connection that
// waits holds none. It is called until it returns true.
func (c *conn) readFirst(fd uintptr) bool {
	b := buffers.Get().(*buffer)
	n, err := readFD(fd, b[:])
	if errors.Is(err, unix.EAGAIN) {
		buffers.Put(b)
		return false
	}
	c.buf, c.r, c.w, c.firstErr = b, 0, max(n, 0), err
	return true
}

func readFD(fd uintptr, b []byte) (int, error) {
	for {
		n, err := unix.Read(int(fd), b)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// extend moves the deadline for reading, not at each call.
func (c *conn) extend(d time.Duration) error {
	if d <= 0 || c.readLimited {
		return nil
	}
	end := time.Now().Add(d)
	if end.Sub(c.deadline) < deadlineStep {
		return nil
	}
	c.deadline = end
	return c.net.SetReadDeadline(end)
}

// unlimited takes the deadline away.
func (c *conn) unlimited() error {
	if c.deadline.IsZero() {
		return nil
	}
	c.deadline = time.Time{}
	return c.net.SetReadDeadline(time.Time{})
}

// restore takes the deadlines of a handler away.
func (c *conn) restore() {
	if c.readLimited {
		c.readLimited, c.deadline = false, time.Time{}
		_ = c.net.SetReadDeadline(time.Time{}) // the next read fails if this does
	}
	if c.writeLimited {
		c.writeLimited = false
		_ = c.net.SetWriteDeadline(time.Time{}) // the next write fails if this does
	}
}

// readBody reads of a body: what the buffer has, else from the connection. Bytes must keep
// coming; a pause of the idle timeout ends the body with an error.
func (c *conn) readBody(p []byte) (int, error) {
	if c.r < c.w {
		n := copy(p, c.buf[c.r:c.w])
		c.r += n
		return n, nil
	}
	if err := c.extend(c.s.http.IdleTimeout); err != nil {
		return 0, err
	}
	if len(p) >= smallRead {
		return c.net.Read(p)
	}
	n, err := c.net.Read(c.buf[:])
	c.r, c.w = 0, n
	if n == 0 {
		return 0, err
	}
	n = copy(p, c.buf[:c.w])
	c.r = n
	return n, nil
}

// handOver gives the connection and what was read of it to net/http.
func (c *conn) handOver() {
	if !c.state.CompareAndSwap(idle, ended) {
		return
	}
	first := bytes.Clone(c.buf[c.r:c.w])
	if c.unlimited() != nil {
		_ = c.net.Close() // it is gone
		return
	}
	c.s.passed.push(&replayed{Conn: c.net, tcp: c.net, first: first})
}

// linger lets the last answer arrive before the connection is closed.
func (c *conn) linger() {
	if c.net.CloseWrite() != nil || c.net.SetReadDeadline(time.Now().Add(lingerTime)) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, c.net) // until the client closes, or the time is over
}
