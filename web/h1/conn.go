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
	// deadlineStep is how much later than asked a deadline may be, at most, so that it need
	// not be moved for each request.
	deadlineStep = 5 * time.Second
	// maxBlank is how many CR and LF are passed over after a POST, which some old clients
	// send behind the body (RFC 9112 §2.2; as net/http).
	maxBlank = 4
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

// conn is one connection; it belongs to the goroutine of loop, of which there is none while a
// request sleeps.
type conn struct {
	s      *Server
	net    *net.TCPConn
	raw    syscall.RawConn
	remote string
	local  net.Addr
	state  atomic.Int32
	memory any  // what the server remembers of the connection; nil: nothing
	seat   Seat // nil: connections are not bounded
	passed bool // net/http has the connection

	buf  *buffer // nil while there is nothing to hold
	r, w int     // what was read and not taken is buf[r:w]

	first    func(fd uintptr) bool // readFirst, made once
	firstErr error
	deadline time.Time // as set for reading; zero: none

	last  lastHead
	blank int  // how many CR and LF may precede the next head
	later bool // a request has been read already

	readLimited, writeLimited atomic.Bool // the handler has set deadlines of its own
}

func newConn(s *Server, tcp *net.TCPConn) (*conn, error) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	c := &conn{s: s, net: tcp, raw: raw, remote: tcp.RemoteAddr().String(), local: tcp.LocalAddr()}
	c.first = c.readFirst
	if s.newMemory != nil {
		c.memory = s.newMemory()
	}
	return c, nil
}

// loop serves the connection, from a request on that was woken; nil: from the next one on. It
// returns at its end, or when a request sleeps: the connection is that one's then.
func (c *conn) loop(x *exchange) {
	out := ends
	defer func() {
		if out != sleeps {
			c.end()
		}
	}()
	for {
		if x == nil {
			if x = c.begin(); x == nil {
				return
			}
		}
		if out = x.run(); out == sleeps {
			return
		}
		last := out == ends || !c.state.CompareAndSwap(active, idle)
		if out, x = ends, nil; last {
			return
		}
		if c.s.closing.Load() && !c.s.lingers.Load() { // else its client was told that it goes on
			c.closeIf(idle)
			return
		}
		if c.seat != nil {
			c.seat.Wait()
		}
	}
}

// begin waits for the next request. Nil: the connection has ended or was handed over.
func (c *conn) begin() *exchange {
	head, ok := c.next()
	if !ok {
		return nil
	}
	x, plain := c.parse(head)
	if !plain || c.s.maxHead > 0 && len(head) > c.s.maxHead {
		c.handOver()
		return nil
	}
	if !c.state.CompareAndSwap(idle, active) {
		return nil
	}
	c.r += len(head)
	c.emptied()
	if c.seat != nil {
		c.seat.Work()
	}
	return x
}

// end closes the connection, unless it was handed over, and forgets it.
func (c *conn) end() {
	if c.state.Swap(ended) != ended {
		_ = c.net.Close() // of no interest any more
	}
	if c.seat != nil && !c.passed {
		c.seat.Leave()
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

// emptied gives the buffer back where nothing is left in it: the answer may take it, and a
// request that waits holds none.
func (c *conn) emptied() {
	if c.r == c.w {
		c.release()
	}
}

var headEnd = []byte("\r\n\r\n")

// next waits for a request and returns its head, which stays in the buffer, with the empty
// line. Not ok: the connection has ended or was handed over.
func (c *conn) next() ([]byte, bool) {
	for c.skipBlank(); c.r == c.w; c.skipBlank() {
		c.release()
		if c.extend(c.patience()) != nil || c.raw.Read(c.first) != nil || c.firstErr != nil || c.w == 0 {
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

// skipBlank passes over line ends that may precede a head.
func (c *conn) skipBlank() {
	for c.blank > 0 && c.r < c.w && (c.buf[c.r] == '\r' || c.buf[c.r] == '\n') {
		c.r++
		c.blank--
	}
}

// patience is how long a request is waited for: the first one not longer than its head may
// take.
func (c *conn) patience() time.Duration {
	if c.later {
		return c.s.idleTimeout
	}
	return c.s.firstTimeout
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

// extend has reading fail after d, or a little later, but not sooner: so the deadline need
// not be moved at each call.
func (c *conn) extend(d time.Duration) error {
	if c.readLimited.Load() {
		return nil
	}
	if d <= 0 {
		return c.unlimited()
	}
	now := time.Now()
	slack := min(d/8, deadlineStep)
	if left := c.deadline.Sub(now); left >= d && left <= d+slack {
		return nil
	}
	c.deadline = now.Add(d + slack)
	return c.net.SetReadDeadline(c.deadline)
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
	if c.readLimited.Load() {
		c.readLimited.Store(false)
		c.deadline = time.Time{}
		_ = c.net.SetReadDeadline(time.Time{}) // the next read fails if this does
	}
	if c.writeLimited.Load() {
		c.writeLimited.Store(false)
		_ = c.net.SetWriteDeadline(time.Time{}) // the next write fails if this does
	}
}

// takeBody takes of a body what the buffer has.
func (c *conn) takeBody(p []byte) int {
	if c.r == c.w {
		return 0
	}
	n := copy(p, c.buf[c.r:c.w])
	c.r += n
	c.emptied()
	return n
}

// readBody reads of a body from the connection.
func (c *conn) readBody(p []byte) (int, error) {
	if len(p) >= smallRead {
		return c.net.Read(p)
	}
	if c.buf == nil {
		c.buf = buffers.Get().(*buffer)
	}
	n, err := c.net.Read(c.buf[:])
	c.r, c.w = 0, n
	n = copy(p, c.buf[:n])
	c.r = n
	c.emptied()
	if n > 0 {
		err = nil
	}
	return n, err
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
	c.passed = true
	server, seat := c.s, c.seat // what is handed over may live long, and does not keep c
	server.handed.Add(1)
	server.passed.push(&replayed{Conn: c.net, tcp: c.net, first: first, seat: seat, gone: sync.OnceFunc(func() {
		server.handed.Add(-1)
		if seat != nil {
			seat.Leave()
		}
	})})
}

// linger lets the last answer arrive before the connection is closed.
func (c *conn) linger() {
	if c.net.CloseWrite() != nil || c.net.SetReadDeadline(time.Now().Add(lingerTime)) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, c.net) // until the client closes, or the time is over
}
