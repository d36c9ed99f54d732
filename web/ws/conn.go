package ws

import (
	"bufio"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"tidewire/internal/model"

	"github.com/gorilla/websocket"
)

// hijacker hands gorilla the connection wrapped, so that writes are paced.
type hijacker struct {
	http.ResponseWriter
	times timing
	conn  *pacedConn // nil until taken over
}

// Hijack takes the connection over from the HTTP server.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.conn = &pacedConn{Conn: c, slow: h.times.slow, cut: h.times.cut}
	if direct, ok := c.(syscall.Conn); ok { // not with TLS
		h.conn.raw, _ = direct.SyscallConn() // nil where there is none: Write does without
	}
	if tcp, ok := innermost(c).(*net.TCPConn); ok {
		if h.conn.sock, _ = tcp.SyscallConn(); h.conn.sock != nil {
			limitUnsent(h.conn.sock)
		}
	}
	return h.conn, rw, nil
}

// Unwrap lets http.ResponseController find the writer below.
func (h *hijacker) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// paceBytes is how much must be taken within a pacedConn's times.
const paceBytes = 64 << 10

// pacedConn bounds how long a client may take nothing, whatever the size of what is
// written: a deadline for a whole frame would end a client that reads slowly but
// steadily. A write that is stuck for the time slow still goes on, since only whole
// frames can be followed by a close frame; after the time cut it fails.
type pacedConn struct {
	net.Conn
	slow, cut time.Duration
	raw       syscall.RawConn // nil: all writes may wait
	sock      syscall.RawConn // of TCP, below TLS too; nil: there is none
	waited    bool            // of who writes: longer than patience, since it last asked
	stuck     atomic.Bool
	last      atomic.Pointer[time.Time] // no write may last longer, where set
	between   func()                    // called between the pieces of a long write, by its goroutine; nil: nothing is
}

// Write writes what the kernel takes at once, and the rest in pieces, each with its own
// deadline. Most frames go as a whole in one call of the system, with no timer to be set.
func (c *pacedConn) Write(b []byte) (int, error) {
	total := c.atOnce(b)
	if total == len(b) {
		return total, nil
	}
	for {
		piece := b[total:min(len(b), total+paceBytes)]
		began := time.Now()
		if err := c.allow(began.Add(c.cut)); err != nil {
			return total, err
		}
		n, err := c.Conn.Write(piece)
		total += n
		c.note(time.Since(began))
		if err != nil {
			return total, err
		}
		if c.between != nil {
			c.between()
		}
		if total == len(b) {
			return total, c.allow(time.Time{}) // or the next write could not go at once
		}
	}
}

// patience is how long a write, or what comes before it, may wait until the client counts as
// one that does not keep up.
const patience = 100 * time.Millisecond

// ready waits until the kernel has sent most of what it was given: so what a client gets is
// read and encoded when the client takes it, and one that has stopped reading holds nothing.
// Its bounds are those of Write.
func (c *pacedConn) ready() error {
	if c.sock == nil {
		return nil
	}
	at := false
	if err := c.sock.Write(func(fd uintptr) bool { at = writable(fd); return true }); err != nil || at {
		return err
	}
	began := time.Now()
	if err := c.allow(began.Add(c.cut)); err != nil {
		return err
	}
	err := c.sock.Write(writable)
	c.note(time.Since(began))
	return errors.Join(err, c.allow(time.Time{}))
}

// note notes how long the client has taken nothing.
func (c *pacedConn) note(d time.Duration) {
	c.waited = c.waited || d >= patience
	if d >= c.slow {
		c.stuck.Store(true)
	}
}

// keptWaiting tells whether the client did not keep up since the last call.
func (c *pacedConn) keptWaiting() bool {
	w := c.waited
	c.waited = false
	return w
}

// atOnce writes without waiting, as far as that goes. Faults are left to a write that may
// wait, and so is all after a deadline that has passed.
func (c *pacedConn) atOnce(b []byte) int {
	if c.raw == nil {
		return 0
	}
	n := 0
	err := c.raw.Write(func(fd uintptr) bool {
		n, _ = syscall.Write(int(fd), b)
		return true
	})
	if err != nil {
		return 0
	}
	return max(n, 0)
}

// allow sets the deadline of the next write. hurry may come between: it sets last first
// and its deadline then, this the other way round, so that the earlier one stays.
func (c *pacedConn) allow(until time.Time) error {
	if err := c.Conn.SetWriteDeadline(until); err != nil {
		return err
	}
	if last := c.last.Load(); last != nil && (until.IsZero() || last.Before(until)) {
		return c.Conn.SetWriteDeadline(*last)
	}
	return nil
}

// hurry lets no write, the present one included, last beyond a time.
func (c *pacedConn) hurry(until time.Time) {
	c.last.Store(&until)
	_ = c.Conn.SetWriteDeadline(until) // a connection that has ended needs none
}

// SetWriteDeadline does nothing: deadlines are Write's.
func (c *pacedConn) SetWriteDeadline(time.Time) error { return nil }

// abort closes without waiting for what the client has not taken: the kernel would keep
// up to some megabytes of it for minutes.
func (c *pacedConn) abort() {
	inner := innermost(c.Conn)
	if t, ok := inner.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = inner.Close()
}

// innermost is the connection below TLS, and below what has replayed its first bytes.
func innermost(c net.Conn) net.Conn {
	for {
		t, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return c
		}
		c = t.NetConn()
	}
}

func validKey(keys []string) bool {
	if len(keys) != 1 {
		return false
	}
	b, err := base64.StdEncoding.DecodeString(keys[0])
	return err == nil && len(b) == 16
}

// Close codes of the contract (api.md §4), and of RFC 6455 §7.4.1 where it has none.
const (
	closeGoingAway  = websocket.CloseGoingAway         // 1001: the node stops
	closeInternal   = websocket.CloseInternalServerErr // 1011: a fault of this node
	closeTryAgain   = websocket.CloseTryAgainLater     // 1013: connect again later
	closeBadFrame   = 4400
	closeAuthEnded  = 4401
	closeNotAllowed = 4403
	closeUnknown    = 4404
	closeSlow       = 4408
	closeFenced     = 4409 // the membership is over
	closeLimit      = 4429
)

// closeCode tells which close code follows an error frame without id.
func closeCode(e *model.Error) int {
	if e.Code == model.Fenced || e.Code == model.MemberExpired {
		return closeFenced
	}
	switch status := model.Row(e.Code).Status; {
	case status == http.StatusUnauthorized:
		return closeAuthEnded
	case status == http.StatusForbidden:
		return closeNotAllowed
	case status == http.StatusNotFound:
		return closeUnknown
	case status == http.StatusTooManyRequests:
		return closeLimit
	case status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		return closeTryAgain
	case status == http.StatusInternalServerError:
		return closeInternal
	}
	return closeBadFrame // the client's frame cannot be followed, or is not built yet
}
