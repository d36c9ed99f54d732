package peer

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/internal/model"
)

// client is this node's connection of one lane's requests to one other node. It is dialled by the
// first call that needs it, and anew by the next call after it has failed.
type client struct {
	port    *Port
	lane    *lane
	storage string

	mu   sync.Mutex
	link *link // guarded by mu: nil until somebody calls
	done bool  // guarded by mu: the port stops
}

// link is one attempt at a connection: first dialled, then used by all calls.
type link struct {
	ready  chan struct{} // closed when dialled or failed
	ended  chan struct{} // closed when it is of no use any more
	out    *outbox
	conn   *tls.Conn
	who    Identity
	failed error // why it is of no use; written before ended is closed

	last atomic.Int64 // when something came, in nanoseconds of the process's clock

	mu      sync.Mutex
	next    uint64                // guarded by mu
	waiting map[uint64]chan frame // guarded by mu: nil when ended
}

// silence is how long a connection may bring nothing while a call runs out of time, before
// it is taken for dead.
const silence = 3 * time.Second

// defaultWait is how long a call without a deadline may take.
const defaultWait = 30 * time.Second

// CallError says that a call got no answer.
type CallError struct {
	Storage string
	Sent    bool // the other node may have got it
	Cause   error
}

// Error tells the cause.
func (e *CallError) Error() string { return fmt.Sprintf("ask node %s: %v", e.Storage, e.Cause) }

// Unwrap returns the cause.
func (e *CallError) Unwrap() error { return e.Cause }

// Call asks a node and waits for its answer until ctx ends, 30 s at most where it has no
// deadline. The error is what the other node's handler returned, a *model.Error, or a
// *CallError when there was no answer.
func (p *Port) Call(ctx context.Context, storageID string, m Method, payload []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, defaultWait)
	defer cancel()
	return p.call(ctx, p.control, storageID, m, payload)
}

// CallData is Call in the lane of calls for records and groups, which Config.Data answers. It
// may take as long as ctx lasts, 30 s where that has no deadline. The payload is not changed
// any more from then on, even after the call.
func (p *Port) CallData(ctx context.Context, storageID string, m Method, payload []byte) ([]byte, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, defaultWait)
		defer cancel()
	}
	return p.call(ctx, p.data, storageID, m, payload)
}

func (p *Port) call(ctx context.Context, of *lane, storageID string, m Method, payload []byte) ([]byte, error) {
	if len(payload) > of.payload {
		return nil, model.Errorf(model.RequestTooLarge, "a request between nodes is too large: %d bytes, at most %d", len(payload), of.payload)
	}
	c, err := p.client(of, storageID)
	if err != nil {
		return nil, err
	}
	l, err := c.connected(ctx)
	if err != nil {
		return nil, &CallError{Storage: storageID, Cause: err}
	}
	return l.call(ctx, storageID, m, payload)
}

// Greet connects to a node, or uses the connection that there is, and tells who it is.
func (p *Port) Greet(ctx context.Context, storageID string) (Identity, error) {
	c, err := p.client(p.control, storageID)
	if err != nil {
		return Identity{}, err
	}
	l, err := c.connected(ctx)
	if err != nil {
		return Identity{}, &CallError{Storage: storageID, Cause: err}
	}
	return l.who, nil
}

func (p *Port) client(of *lane, storageID string) (*client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clients == nil {
		return nil, errStopped
	}
	key := clientKey{storageID, of}
	c := p.clients[key]
	if c == nil {
		c = &client{port: p, lane: of, storage: storageID}
		p.clients[key] = c
	}
	return c, nil
}

// connected returns a link that works as far as is known, dialling where there is none.
func (c *client) connected(ctx context.Context) (*link, error) {
	l, err := c.current()
	if err != nil {
		return nil, err
	}
	select {
	case <-l.ready:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case <-l.ended:
		return nil, l.failed
	default:
		return l, nil
	}
}

// current is the link in use, or a new one that is being dialled.
func (c *client) current() (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return nil, errStopped
	}
	if c.link != nil && !c.link.isEnded() {
		return c.link, nil
	}
	l := &link{ready: make(chan struct{}), ended: make(chan struct{}), waiting: map[uint64]chan frame{}}
	if !c.port.group.Go("peer client", func(ctx context.Context) { c.run(ctx, l) }) {
		return nil, errStopped
	}
	c.link = l
	return l, nil
}

// run dials and then reads answers until the connection ends.
func (c *client) run(ctx context.Context, l *link) {
	conn, who, err := c.port.dial(ctx, c.storage, c.lane.protocol)
	if err != nil {
		l.end(err)
		close(l.ready)
		return
	}
	l.conn, l.who, l.out = conn, who, newOutbox(conn)
	l.touch()
	c.port.group.Go("peer writer", l.out.run)
	c.mu.Lock()
	stopped := c.done
	c.mu.Unlock()
	if stopped {
		l.end(errStopped)
	}
	close(l.ready)
	l.end(l.read(c.lane.frame()))
	l.out.close()
}

func (l *link) read(most uint32) error {
	r := bufio.NewReaderSize(l.conn, bufferBytes)
	for {
		b, err := readFrame(r, most)
		if err != nil {
			return err
		}
		l.touch()
		f, err := decodeFrame(b)
		if err != nil {
			return err
		}
		if f.kind != kindAnswer && f.kind != kindRefusal {
			return errFrame
		}
		l.mu.Lock()
		waiter := l.waiting[f.id]
		delete(l.waiting, f.id)
		l.mu.Unlock()
		if waiter != nil { // else it was given up
			waiter <- f
		}
	}
}

func (l *link) isEnded() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

func (l *link) touch() { l.last.Store(time.Now().UnixNano()) }

// end makes the link useless; the first reason stays.
func (l *link) end(why error) {
	l.mu.Lock()
	if l.waiting == nil {
		l.mu.Unlock()
		return
	}
	l.waiting = nil
	l.failed = why
	close(l.ended)
	l.mu.Unlock()
	if l.conn != nil {
		_ = l.conn.Close() // its reader ends
	}
}

func (c *client) close(why error) {
	c.mu.Lock()
	c.done = true
	l := c.link
	c.mu.Unlock()
	if l == nil {
		return
	}
	select {
	case <-l.ready:
		l.end(why)
	default: // being dialled: run looks at done, and the group's context ends the dialling
	}
}

func (l *link) call(ctx context.Context, storage string, m Method, payload []byte) ([]byte, error) {
	answer := make(chan frame, 1)
	l.mu.Lock()
	if l.waiting == nil {
		l.mu.Unlock()
		return nil, &CallError{Storage: storage, Cause: l.failed}
	}
	l.next++
	id := l.next
	l.waiting[id] = answer
	l.mu.Unlock()
	deadline, _ := ctx.Deadline() // Call sets one
	f := frame{kind: kindRequest, id: id, method: m, wait: max(time.Until(deadline), time.Millisecond), payload: payload}
	if !l.out.send(ctx, f) {
		l.forget(id)
		return nil, &CallError{Storage: storage, Cause: cmpErr(context.Cause(ctx), errLost)}
	}
	select {
	case f := <-answer:
		return result(f)
	case <-l.ended:
		return nil, &CallError{Storage: storage, Sent: true, Cause: errors.Join(errLost, l.failed)}
	case <-ctx.Done():
	}
	l.giveUp(id)
	return nil, &CallError{Storage: storage, Sent: true, Cause: context.Cause(ctx)}
}

// errLost: the connection ended before the answer.
var errLost = errors.New("the connection was lost")

func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

func result(f frame) ([]byte, error) {
	if f.kind == kindRefusal {
		return nil, DecodeFault(f.payload)
	}
	return f.payload, nil
}

func (l *link) forget(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, id)
}

// giveUp tells the other side that nobody waits any more, and ends a connection that has
// brought nothing for long: its other end may have gone without a word.
func (l *link) giveUp(id uint64) {
	l.forget(id)
	if time.Since(time.Unix(0, l.last.Load())) > silence {
		l.end(errLost)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	l.out.send(ctx, frame{kind: kindCancel, id: id})
}
