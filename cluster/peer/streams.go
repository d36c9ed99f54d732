package peer

import (
	"context"
	"net"
	"sync"
	"time"
)

// accepted is a connection with who opened it.
type accepted struct {
	net.Conn
	who Identity
}

// Streams are connections of one ALPN name: those that other nodes open, and those that
// this one opens by a storage id.
type Streams struct {
	port     *Port
	protocol string
	incoming chan accepted
	done     chan struct{}
	once     sync.Once
}

func newStreams(p *Port, protocol string) *Streams {
	return &Streams{port: p, protocol: protocol, incoming: make(chan accepted), done: make(chan struct{})}
}

// offer hands a connection to whoever accepts; it waits no longer than the caller would.
func (s *Streams) offer(ctx context.Context, c accepted) {
	t := time.NewTimer(handshakeTime)
	defer t.Stop()
	select {
	case s.incoming <- c:
		return
	case <-t.C:
	case <-s.done:
	case <-ctx.Done():
	}
	_ = c.Close() // nobody wants it
}

// Accept returns the next connection that another node has opened. After Close the error
// is net.ErrClosed.
func (s *Streams) Accept() (net.Conn, error) {
	c, _, err := s.AcceptFrom()
	return c, err
}

// AcceptFrom is Accept, and tells which node it is.
func (s *Streams) AcceptFrom() (net.Conn, Identity, error) {
	select {
	case c := <-s.incoming:
		return c.Conn, c.who, nil
	case <-s.done:
		return nil, Identity{}, net.ErrClosed
	}
}

// Dial opens a connection to the node of a storage id.
func (s *Streams) Dial(storageID string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.port.group.Context(), timeout)
	defer cancel()
	c, _, err := s.port.dial(ctx, storageID, s.protocol)
	if err != nil {
		return nil, err // not c, whose nil would be no nil net.Conn
	}
	return c, nil
}

// Close ends Accept. Connections that were handed out stay.
func (s *Streams) Close() error {
	s.once.Do(func() { close(s.done) })
	return nil
}

// trackedConn tells when it was closed.
type trackedConn struct {
	net.Conn
	closed func()
}

// Close closes the connection.
func (c trackedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}
