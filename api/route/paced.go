package route

import (
	"errors"
	"net/http"
	"sync"
	"time"
)

// RecheckEvery is how often it is looked whether a caller may go on while it takes a
// stream.
const RecheckEvery = 500 * time.Millisecond

// StuckAfter is how long a client may take nothing of a stream before its connection is
// cut.
const StuckAfter = 30 * time.Second

// StreamChunk is about how many bytes are written at once; a record that is larger comes
// whole.
const StreamChunk = 64 << 10

// ErrGone ends a stream whose client went away; nobody is told.
var ErrGone = errors.New("the client is gone")

// Paced writes a stream to a client that may stop reading. While a write waits it is asked
// again and again whether the stream may go on at all; a client that takes nothing for
// StuckAfter, or whose stream may not go on meanwhile, has its connection cut.
type Paced struct {
	w       http.ResponseWriter
	control *http.ResponseController
	allowed func() bool // from any goroutine

	mu      sync.Mutex
	writing bool // guarded by mu: a write is under way
	timer   *time.Timer
	gone    bool // guarded by mu: the connection was cut
}

// NewPaced returns a Paced that writes to w; allowed says whether the stream may go on, and
// is called from any goroutine.
func NewPaced(w http.ResponseWriter, allowed func() bool) *Paced {
	return &Paced{w: w, control: http.NewResponseController(w), allowed: allowed}
}

// Send writes and flushes. It writes in pieces, each with its own time: a bound for all of
// it would end a client that reads slowly but steadily.
func (p *Paced) Send(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), StreamChunk)
		if err := p.piece(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (p *Paced) piece(b []byte) error {
	if err := p.begin(); err != nil {
		return err
	}
	defer p.done()
	if _, err := p.w.Write(b); err != nil {
		return err
	}
	return p.control.Flush()
}

func (p *Paced) begin() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return ErrGone
	}
	if err := p.control.SetWriteDeadline(time.Now().Add(StuckAfter)); err != nil {
		return err
	}
	p.writing = true
	if p.timer == nil {
		p.timer = time.AfterFunc(RecheckEvery, p.look)
	} else {
		p.timer.Reset(RecheckEvery)
	}
	return nil
}

func (p *Paced) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing = false
	p.timer.Stop()
}

// Release ends the pacing; the connection may serve other requests.
func (p *Paced) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.gone {
		_ = p.control.SetWriteDeadline(time.Time{}) // a connection that is gone needs none
	}
}

// look runs while a write waits.
func (p *Paced) look() {
	allowed := p.allowed()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.writing:
	case allowed:
		p.timer.Reset(RecheckEvery)
	default:
		p.cutLocked()
	}
}

// Cut has every write fail from now on.
func (p *Paced) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutLocked()
}

func (p *Paced) cutLocked() {
	p.gone = true
	_ = p.control.SetWriteDeadline(time.Unix(1, 0)) // a connection that is gone fails by itself
}
