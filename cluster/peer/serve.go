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
	// parallelData is the same of calls for records and groups, many of which wait for long;
	// beyond it they are refused.
	parallelData = 16 << 10
	// dataBytes is how much of such calls, all nodes' together, is in memory until they are
	// answered; beyond it connections are not read.
	dataBytes = 128 << 20
	// writeTime is how long a frame may take to leave: a node that does not read is gone.
	writeTime = 10 * time.Second
	// bufferBytes of a connection's reader and writer.
	bufferBytes = 32 << 10
)

// server is one connection that another node has opened for requests.
type server struct {
	port *Port
	lane *lane
	conn *tls.Conn
	who  Identity
	out  *outbox
	slot chan struct{}

	mu      sync.Mutex
	running map[uint64]context.CancelFunc // guarded by mu: by request id
}

// serveRequests reads and serves until the connection ends.
func (p *Port) serveRequests(c *tls.Conn, who Identity, of *lane) {
	s := &server{port: p, lane: of, conn: c, who: who, slot: make(chan struct{}, of.parallel), running: map[uint64]context.CancelFunc{}}
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
		n, err := s.lane.admit(r)
		if err != nil {
			return err
		}
		b, err := readFrame(r, s.lane.frame())
		if err != nil {
			s.lane.room.release(n)
			return err
		}
		f, err := decodeFrame(b)
		if err != nil || f.kind != kindRequest {
			s.lane.room.release(n)
		}
		if err != nil {
			return err
		}
		switch f.kind {
		case kindRequest:
			if err := s.begin(ctx, f, n); err != nil {
				return err
			}
		case kindCancel:
			s.cancel(f.id)
		default:
			return errFrame
		}
	}
}

// begin serves a request, which holds n bytes of the lane's room.
func (s *server) begin(ctx context.Context, f frame, n int64) error {
	if taken, err := s.enter(ctx, f); !taken {
		s.lane.room.release(n)
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.wait)
	s.mu.Lock()
	_, twice := s.running[f.id]
	s.running[f.id] = cancel
	s.mu.Unlock()
	if twice {
		cancel()
		s.lane.room.release(n)
		return errFrame
	}
	started := s.port.group.Go("peer request", func(context.Context) {
		defer func() { <-s.slot; s.lane.room.release(n) }()
		defer s.cancel(f.id)
		s.answer(ctx, f)
	})
	if !started {
		cancel()
		s.lane.room.release(n)
		return errStopped
	}
	return nil
}

// enter takes a slot. Where requests are not to wait for one, they are refused.
func (s *server) enter(ctx context.Context, f frame) (taken bool, _ error) {
	select {
	case s.slot <- struct{}{}:
		return true, nil
	default:
	}
	if s.lane.refuses {
		busy := model.Errorf(model.RateLimited, "the node has too many calls of another one under way")
		s.out.send(ctx, frame{kind: kindRefusal, id: f.id, payload: EncodeFault(busy)})
		return false, nil
	}
	select {
	case s.slot <- struct{}{}:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

func (s *server) answer(ctx context.Context, f frame) {
	reply := frame{kind: kindAnswer, id: f.id}
	payload, err := s.lane.answer(ctx, Request{From: s.who, Method: f.method, Payload: f.payload})
	switch {
	case err == nil && len(payload) > s.lane.payload:
		err = model.Errorf(model.Internal, "an answer between nodes is too large: %d bytes", len(payload))
		fallthrough
	case err != nil:
		reply.kind, reply.payload = kindRefusal, EncodeFault(err)
	default:
		reply.payload = payload
	}
	s.out.send(context.WithoutCancel(ctx), reply)
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
	queue  chan frame
	closed chan struct{}
	once   sync.Once
}

func newOutbox(c *tls.Conn) *outbox {
	return &outbox{conn: c, queue: make(chan frame, 64), closed: make(chan struct{})}
}

// send queues a frame. It reports false when the frame will not be written, as far as is
// known.
func (o *outbox) send(ctx context.Context, f frame) bool {
	select {
	case <-o.closed: // both may be ready below
		return false
	default:
	}
	select {
	case o.queue <- f:
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
		case f := <-o.queue:
			if err := o.write(w, f); err != nil {
				_ = o.conn.Close() // the reader finds out
				return
			}
		case <-o.closed:
			return
		}
	}
}

// write writes a frame and those that wait behind it.
func (o *outbox) write(w *bufio.Writer, f frame) error {
	if err := o.conn.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return err
	}
	for {
		if _, err := w.Write(f.head()); err != nil {
			return err
		}
		if _, err := w.Write(f.payload); err != nil {
			return err
		}
		select {
		case f = <-o.queue:
		default:
			return w.Flush()
		}
	}
}
