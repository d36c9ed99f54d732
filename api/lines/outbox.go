package lines

import (
	"io"
	"sync"
	"sync/atomic"
)

const (
	// outBytes is how much of an answer waits for the client before results=all stops
	// reading lines.
	outBytes = 256 << 10
	// pieceBytes is how much is written at a time, so that a client that reads slowly is
	// told from one that does not read.
	pieceBytes = 32 << 10
)

// outbox holds the part of the answer that was not written yet. One goroutine puts,
// another writes.
type outbox struct {
	begin   func() // sends status and header
	to      io.Writer
	flush   func() error
	written atomic.Int64 // bytes, to see whether the client goes on

	mu      sync.Mutex
	buf     []byte // guarded by mu
	started bool   // guarded by mu
	closed  bool   // guarded by mu: nothing follows
	busy    bool   // guarded by mu: bytes are being written
	lost    bool   // guarded by mu: the client takes no more

	work   chan struct{} // receives after a change
	room   chan struct{} // receives when what waited is being written
	failed chan struct{} // closed when the client takes no more
	ended  chan struct{} // closed when the writing has ended
}

func newOutbox(begin func(), to io.Writer, flush func() error) *outbox {
	return &outbox{
		begin: begin, to: to, flush: flush, work: make(chan struct{}, 1), room: make(chan struct{}, 1),
		failed: make(chan struct{}), ended: make(chan struct{}),
	}
}

// start has the header sent, though there may be nothing to say for long.
func (o *outbox) start() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.started {
		o.started = true
		wake(o.work)
	}
}

func (o *outbox) put(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lost {
		return
	}
	o.buf = append(o.buf, b...)
	wake(o.work)
}

// close ends the answer behind what was put.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	wake(o.work)
}

// hasRoom tells whether little waits for the client.
func (o *outbox) hasRoom() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.buf) < outBytes
}

// pending tells whether the client has something to take.
func (o *outbox) pending() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.busy || len(o.buf) > 0
}

// run writes until the answer is complete or the client takes no more.
func (o *outbox) run() {
	defer close(o.ended)
	var spare []byte
	for begun := false; ; {
		b, started, closed := o.take(spare)
		switch {
		case !begun && (started || closed || len(b) > 0):
			begun = true
			o.begin()
		case len(b) == 0 && closed:
			return
		case len(b) == 0:
			<-o.work
			continue
		}
		if o.write(b) != nil {
			o.lose()
			return
		}
		spare = b
	}
}

// lose drops what the client does not take any more.
func (o *outbox) lose() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lost, o.busy, o.buf = true, false, nil
	close(o.failed)
}

// take gives what waits; spare is memory for what comes next.
func (o *outbox) take(spare []byte) (b []byte, started, closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b = o.buf
	if len(b) > 0 {
		o.buf = spare[:0]
		wake(o.room)
	}
	o.busy = len(b) > 0
	return b, o.started, o.closed
}

func (o *outbox) write(b []byte) error {
	for len(b) > 0 {
		n, err := o.to.Write(b[:min(len(b), pieceBytes)])
		o.written.Add(int64(n))
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return o.flush()
}
