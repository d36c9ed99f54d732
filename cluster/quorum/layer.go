package quorum

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"tidewire/internal/lifecycle"
)

// Streams are raft's connections to other nodes, which are named by their storage ids.
type Streams interface {
	Accept() (net.Conn, error) // net.ErrClosed after Close
	Dial(storageID string, timeout time.Duration) (net.Conn, error)
	Close() error
}

// layer is what raft's transport stands on: a pipe to this node itself, and the streams to
// others. It knows every connection, so that Close ends them all: the transport does not.
type layer struct {
	self     string
	remote   Streams // nil: this node is alone
	incoming chan net.Conn
	done     chan struct{}

	mu   sync.Mutex
	open map[*layerConn]bool // guarded by mu; nil after Close
}

// layerAddress is a storage id in the place of an address.
type layerAddress string

// Network implements net.Addr.
func (layerAddress) Network() string { return "tidewire" }

// String implements net.Addr.
func (a layerAddress) String() string { return string(a) }

func newLayer(self string, remote Streams, group *lifecycle.Group) *layer {
	l := &layer{self: self, remote: remote, incoming: make(chan net.Conn), done: make(chan struct{}), open: map[*layerConn]bool{}}
	if remote != nil {
		group.Go("raft accept", func(context.Context) { l.acceptRemote() })
	}
	return l
}

func (l *layer) acceptRemote() {
	for {
		c, err := l.remote.Accept()
		if err != nil {
			return // closed
		}
		if !l.hand(c) {
			return
		}
	}
}

// hand gives a connection to whoever accepts.
func (l *layer) hand(c net.Conn) bool {
	select {
	case l.incoming <- c:
		return true
	case <-l.done:
		_ = c.Close() // nobody wants it any more
		return false
	}
}

// Accept implements net.Listener.
func (l *layer) Accept() (net.Conn, error) {
	select {
	case c := <-l.incoming:
		return l.track(c)
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// errNoPeers: this node has no port to other nodes.
var errNoPeers = errors.New("this node has no port between nodes; it needs a cluster key")

// Dial implements raft.StreamLayer.
func (l *layer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	switch {
	case string(address) == l.self:
		mine, other := net.Pipe()
		if !l.hand(other) {
			return nil, errors.Join(net.ErrClosed, mine.Close())
		}
		return l.track(mine)
	case l.remote == nil:
		return nil, errNoPeers
	}
	c, err := l.remote.Dial(string(address), timeout)
	if err != nil {
		return nil, err
	}
	return l.track(c)
}

// Addr implements net.Listener.
func (l *layer) Addr() net.Addr { return layerAddress(l.self) }

// Close implements net.Listener: it ends Accept and every connection.
func (l *layer) Close() error {
	l.mu.Lock()
	open := l.open
	l.open = nil
	l.mu.Unlock()
	if open == nil {
		return nil
	}
	close(l.done)
	for c := range open {
		_ = c.Conn.Close() // raft is at its end
	}
	if l.remote == nil {
		return nil
	}
	return l.remote.Close()
}

func (l *layer) track(c net.Conn) (net.Conn, error) {
	t := &layerConn{Conn: c, layer: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		return nil, errors.Join(net.ErrClosed, c.Close())
	}
	l.open[t] = true
	return t, nil
}

type layerConn struct {
	net.Conn
	layer *layer
}

// Close closes the connection.
func (c *layerConn) Close() error {
	c.layer.mu.Lock()
	delete(c.layer.open, c)
	c.layer.mu.Unlock()
	return c.Conn.Close()
}
