package peer

import (
	"bufio"
	"context"
	"encoding/binary"
	"sync"

	"tidewire/internal/model"
)

// lane is a kind of requests between nodes, which has connections of its own, so that calls
// for records, which may be large and wait for long, never stand in the way of the metadata's.
type lane struct {
	protocol string
	handler  Handler
	payload  int   // bytes of a request and of an answer, at most
	parallel int   // requests of one connection that are served at a time
	refuses  bool  // requests beyond parallel are refused, and do not wait
	room     *room // nil: what is in memory is not counted
}

// clientKey is what a connection of requests goes to.
type clientKey struct {
	storage string
	lane    *lane
}

// frame is the most that a frame may have behind its length.
func (l *lane) frame() uint32 { return uint32(l.payload) + requestHeadBytes }

func (l *lane) answer(ctx context.Context, r Request) ([]byte, error) {
	if l.handler == nil {
		return nil, model.Errorf(model.NotImplemented, "this node does not answer requests of %s", l.protocol)
	}
	return l.handler(ctx, r)
}

// admit waits until there is room for the frame that comes next, and returns its size.
func (l *lane) admit(r *bufio.Reader) (int64, error) {
	if l.room == nil {
		return 0, nil
	}
	head, err := r.Peek(4)
	if err != nil {
		return 0, err
	}
	n := int64(min(binary.BigEndian.Uint32(head), l.frame()))
	return n, l.room.take(n)
}

// room bounds the bytes of requests in memory.
type room struct {
	mu     sync.Mutex
	freed  sync.Cond
	left   int64 // guarded by mu
	most   int64
	closed bool // guarded by mu
}

func newRoom(bytes int64) *room {
	r := &room{left: bytes, most: bytes}
	r.freed.L = &r.mu
	return r
}

// take waits for so many bytes; whoever wants more than there are at all gets them alone.
func (r *room) take(n int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.left < n && r.left < r.most && !r.closed {
		r.freed.Wait()
	}
	if r.closed {
		return errStopped
	}
	r.left -= n
	return nil
}

func (r *room) release(n int64) {
	if r == nil || n == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left += n
	r.freed.Broadcast()
}

// close ends all waiting: the port stops.
func (r *room) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.freed.Broadcast()
}
