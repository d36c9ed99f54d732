package h1

import (
	"net"
	"sync"
	"syscall"
)

// passed is the listener by which net/http's server gets connections.
type passed struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	addr  net.Addr
}

func newPassed() *passed {
	return &passed{conns: make(chan net.Conn), done: make(chan struct{})}
}

// push gives a connection to net/http, or closes it after the end of serving.
func (p *passed) push(c net.Conn) {
	select {
	case p.conns <- c:
	case <-p.done:
		_ = c.Close() // nobody is there to answer
	}
}

func (p *passed) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *passed) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *passed) Addr() net.Addr { return p.addr }

// replayed is a connection whose first bytes have been read already. It does not embed the
// *net.TCPConn, whose WriteTo would pass them by.
type replayed struct {
	net.Conn
	tcp   *net.TCPConn
	first []byte
	seat  Seat   // nil: connections are not bounded
	gone  func() // called by the first Close
}

// Close ends the connection.
func (r *replayed) Close() error {
	r.gone()
	return r.Conn.Close()
}

func (r *replayed) Read(p []byte) (int, error) {
	if len(r.first) > 0 && len(p) > 0 {
		n := copy(p, r.first)
		if r.first = r.first[n:]; len(r.first) == 0 {
			r.first = nil // a WebSocket lives long, and the buffer behind it need not
		}
		return n, nil
	}
	return r.tcp.Read(p)
}

// NetConn is the connection itself, as tls.Conn has it.
func (r *replayed) NetConn() net.Conn { return r.tcp }

// SyscallConn lets a WebSocket write without waiting.
func (r *replayed) SyscallConn() (syscall.RawConn, error) { return r.tcp.SyscallConn() }

// CloseWrite lets net/http end an answer before it closes.
func (r *replayed) CloseWrite() error { return r.tcp.CloseWrite() }
