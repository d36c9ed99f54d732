package peer

import (
	"bufio"
	"context"
	"crypto/tls"
	"sync"
	"time"

	"tidewire/internal/model"
)

const (
	// parallelRequests bounds what one node has under way at another; beyond it the
	// connection is not read.
	parallelRequests = 256
	// writeTime is how long a frame may take to leave: a node that does not read is gone.
	writeTime = 10 * time.Second
	// bufferBytes of a connection's reader and writer.
	bufferBytes = 32 << 10
)

// server is one connection that another node has opened for requests.
type server struct {
	port *Port
	conn *tls.Conn
	who  Identity
	out  *outbox
	slot chan struct{}

	mu      sync.Mutex
	running map[uint64]context.CancelFunc // guarded by mu: by request id
}

// serveRequests reads and serves until the connection ends.
func (p *Port) serveRequests(c *tls.Conn, who Identity) {
	s := &server{port: p, conn: c, who: who, slot: make(chan struct{}, parallelRequests), running: map[uint64]context.CancelFunc{}}
	s.out = newOutbox(c)
	p.group.Go("peer writer", s.out.run)
	ctx, cancel := context.WithCancel(p.group.Context())
	err := s.read(ctx)
	cancel()
	s.out.close()
	_ = c.Close() // what it says is in err already
	p.cfg.Logger.Debug("a node's connection has ended", "node", who.Node, "error", err)
}

func (s *server) read(ctx context.Context) error {
	r := bufio.NewReaderSize(s.conn, bufferBytes)
	for {
		b, err := readFrame(r, maxFrame)
		if err != nil {
			return err
		}
		f, err := decodeFrame(b)
		if err != nil {
			return err
		}
		switch f.kind {
		case kindRequest:
			if err := s.begin(ctx, f); err != nil {
				return err
			}
		case kindCancel:
			s.cancel(f.id)
		default:
			return errFrame
		}
	}
}

func (s *server) begin(ctx context.Context, f frame) error {
	select {
	case s.slot <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, f.wait)
	s.mu.Lock()
	_, twice := s.running[f.id]
	s.running[f.id] = cancel
	s.mu.Unlock()
	if twice {
		cancel()
		return errFrame
	}
	started := s.port.group.Go("peer request", func(context.Context) {
		defer func() { <-s.slot }()
		defer s.cancel(f.id)
		s.answer(ctx, f)
	})
	if !started {
		cancel()
		return errStopped
	}
	return nil
}

func (s *server) answer(ctx context.Context, f frame) {
	reply := frame{kind: kindAnswer, id: f.id}
	payload, err := s.port.cfg.Handler(ctx, Request{From: s.who, Method: f.method, Payload: f.payload})
	switch {
	case err == nil && len(payload) > MaxPayload:
		err = model.Errorf(model.Internal, "an answer between nodes is too large: %d bytes", len(payload))
		fallthrough
	case err != nil:
		reply.kind, reply.payload = kindRefusal, encodeFault(err)
	default:
		reply.payload = payload
	}
	s.out.send(context.WithoutCancel(ctx), reply.encode())
}

// cancel ends a request's context and forgets it.
func (s *server) cancel(id uint64) {
	s.mu.Lock()
	cancel := s.running[id]
	delete(s.running, id)
	s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// outbox writes frames of many goroutines to one connection, several at a time where they
// queue up.
type outbox struct {
	conn   *tls.Conn
	queue  chan []byte
	closed chan struct{}
	once   sync.Once
}

func newOutbox(c *tls.Conn) *outbox {
	return &outbox{conn: c, queue: make(chan []byte, 64), closed: make(chan struct{})}
}

// send queues a frame. It reports false when the frame will not be written, as far as is
// known.
func (o *outbox) send(ctx context.Context, b []byte) bool {
	select {
	case <-o.closed: // both may be ready below
		return false
	default:
	}
	select {
	case o.queue <- b:
		return true
	case <-o.closed:
	case <-ctx.Done():
	}
	return false
}

func (o *outbox) close() { o.once.Do(func() { close(o.closed) }) }

// run writes until close, or until the connection fails, which it closes then.
func (o *outbox) run(context.Context) {
	defer o.close()
	w := bufio.NewWriterSize(o.conn, bufferBytes)
	for {
		select {
		case b := <-o.queue:
			if err := o.write(w, b); err != nil {
				_ = o.conn.Close() // the reader finds out
				return
			}
		case <-o.closed:
			return
		}
	}
}

// write writes a frame and those that wait behind it.
func (o *outbox) write(w *bufio.Writer, b []byte) error {
	if err := o.conn.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return err
	}
	for {
		if _, err := w.Write(b); err != nil {
			return err
		}
		select {
		case b = <-o.queue:
		default:
			return w.Flush()
		}
	}
}
