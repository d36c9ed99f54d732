package lines

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"tidewire/internal/inflight"
	"tidewire/internal/model"
)

const (
	// window is how many bytes of lines wait at most, and are decoded together.
	window = 256 << 10
	// chunkBytes is how much is read at a time.
	chunkBytes = 64 << 10
	// holdBytes is what a request counts for in the budget of the node.
	holdBytes = 1 << 20
)

// inbox holds the lines that have arrived and were not taken. One goroutine reads into it,
// another takes.
type inbox struct {
	body  io.Reader
	limit int // the longest line, in bytes without its end
	hold  *inflight.Hold
	read  atomic.Int64 // bytes, to see whether the client goes on

	mu    sync.Mutex
	buf   []byte // guarded by mu: whole lines, then the beginning of one
	whole int    // guarded by mu: buf[:whole] are whole lines
	bad   []bad  // guarded by mu: lines whose text was dropped, an empty line stands for each
	skip  error  // guarded by mu: why the text of the present line is dropped
	drop  bool   // guarded by mu: nothing is wanted any more
	err   error  // guarded by mu: how the body ended; io.EOF is well

	arrived chan struct{} // receives after lines came, or the end
	room    chan struct{} // receives after lines were taken
	ended   chan struct{} // closed when nothing is read any more
}

// bad is a line of which only its place is kept.
type bad struct {
	at  int // offset of its empty line
	why error
}

func newInbox(body io.Reader, limit int, hold *inflight.Hold) *inbox {
	return &inbox{
		body: body, limit: limit, hold: hold,
		arrived: make(chan struct{}, 1), room: make(chan struct{}, 1), ended: make(chan struct{}),
	}
}

var chunks = sync.Pool{New: func() any { return new([chunkBytes]byte) }}

// fill reads until the body ends. It waits while a window of whole lines is there.
func (in *inbox) fill() {
	defer close(in.ended)
	chunk := chunks.Get().(*[chunkBytes]byte)
	defer chunks.Put(chunk)
	for {
		n, err := in.body.Read(chunk[:])
		in.read.Add(int64(n))
		if full := in.put(chunk[:n], err); err != nil {
			return
		} else if full {
			in.awaitRoom()
		}
	}
}

func (in *inbox) awaitRoom() {
	for {
		in.mu.Lock()
		full := in.fullLocked()
		in.mu.Unlock()
		if !full {
			return
		}
		<-in.room
	}
}

func (in *inbox) fullLocked() bool { return in.whole >= window && !in.drop }

// put takes in what was read.
func (in *inbox) put(p []byte, err error) (full bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	before := in.whole
	if !in.drop {
		in.addLocked(p)
	}
	if err != nil {
		in.endLocked(err)
	}
	if in.whole > before || in.err != nil {
		wake(in.arrived)
	}
	return in.fullLocked()
}

func (in *inbox) addLocked(p []byte) {
	if in.skip != nil {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			return
		}
		in.skippedLocked()
		p = p[i+1:]
	}
	last := bytes.LastIndexByte(p, '\n')
	if last >= 0 {
		// A first line that was too long is told from its beginning only here.
		if end := bytes.IndexByte(p, '\n'); len(in.buf)-in.whole+end > in.limit {
			in.refuseLocked(in.tooLong())
			in.skippedLocked()
			p, last = p[end+1:], last-end-1
		}
		in.buf = append(in.buf, p[:last+1]...)
		in.whole = len(in.buf)
		p = p[last+1:]
	}
	tail := len(in.buf) - in.whole + len(p)
	if tail > in.limit {
		in.refuseLocked(in.tooLong())
		return
	}
	if err := in.hold.Grow(holdBytes + int64(max(0, tail-window))); err != nil {
		in.refuseLocked(err)
		return
	}
	in.buf = append(in.buf, p...)
}

func (in *inbox) tooLong() error {
	return model.Errorf(model.RecordTooLarge, "the line has more than %d bytes, which no record of this topic needs", in.limit)
}

// refuseLocked drops the beginning of the present line, and what will come of it.
func (in *inbox) refuseLocked(why error) {
	in.buf = in.buf[:in.whole]
	in.skip = why
}

// skippedLocked ends a line whose text was dropped.
func (in *inbox) skippedLocked() {
	in.bad = append(in.bad, bad{at: len(in.buf), why: in.skip})
	in.buf = append(in.buf, '\n')
	in.whole, in.skip = len(in.buf), nil
}

// endLocked notes the body's end. A last line needs no line end, unless the body broke off:
// then the line is not known to be whole.
func (in *inbox) endLocked(err error) {
	switch {
	case in.drop:
	case !errors.Is(err, io.EOF):
		in.buf = in.buf[:in.whole]
	case in.skip != nil:
		in.skippedLocked()
	case len(in.buf) > in.whole:
		in.buf = append(in.buf, '\n')
		in.whole = len(in.buf)
	}
	in.err = err
}

// take gives the whole lines that are there, and how the body ended once they are all. text
// is memory from before, which the inbox uses.
func (in *inbox) take(text []byte, refused []bad) ([]byte, []bad, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.whole == 0 {
		return text[:0], refused[:0], in.err
	}
	next := text[:0]
	if cap(next) > 2*window {
		next = nil
	}
	next = append(next, in.buf[in.whole:]...)
	text, in.buf, in.whole = in.buf[:in.whole], next, 0
	refused, in.bad = in.bad, refused[:0]
	wake(in.room)
	return text, refused, nil
}

// dropRest has what still comes read and forgotten.
func (in *inbox) dropRest() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.drop = true
	in.buf, in.whole, in.bad = nil, 0, nil
	wake(in.room)
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
