package rest

import (
	"net/http"
	"sync"
	"time"
)

// paced writes a stream to a client that may stop reading. While a write waits it is asked
// again and again whether the stream may go on at all; a client that takes nothing for
// stuckAfter, or whose stream may not go on meanwhile, has its connection cut.
type paced struct {
	w       http.ResponseWriter
	control *http.ResponseController
	allowed func() bool // from any goroutine

	mu      sync.Mutex
	writing bool // guarded by mu: a write is under way
	timer   *time.Timer
	gone    bool // guarded by mu: the connection was cut
}

func newPaced(w http.ResponseWriter, allowed func() bool) *paced {
	return &paced{w: w, control: http.NewResponseController(w), allowed: allowed}
}

// send writes and flushes. It writes in pieces, each with its own time: a bound for all of
// it would end a client that reads slowly but steadily.
func (p *paced) send(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), streamChunk)
		if err := p.piece(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (p *paced) piece(b []byte) error {
	if err := p.begin(); err != nil {
		return err
	}
	defer p.done()
	if _, err := p.w.Write(b); err != nil {
		return err
	}
	return p.control.Flush()
}

func (p *paced) begin() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return errGone
	}
	if err := p.control.SetWriteDeadline(time.Now().Add(stuckAfter)); err != nil {
		return err
	}
	p.writing = true
	if p.timer == nil {
		p.timer = time.AfterFunc(recheckEvery, p.look)
	} else {
		p.timer.Reset(recheckEvery)
	}
	return nil
}

func (p *paced) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing = false
	p.timer.Stop()
}

// release ends the pacing; the connection may serve other requests.
func (p *paced) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.gone {
		_ = p.control.SetWriteDeadline(time.Time{}) // a connection that is gone needs none
	}
}

// look runs while a write waits.
func (p *paced) look() {
	allowed := p.allowed()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.writing:
	case allowed:
		p.timer.Reset(recheckEvery)
	default:
		p.cutLocked()
	}
}

// cut has every write fail from now on.
func (p *paced) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutLocked()
}

func (p *paced) cutLocked() {
	p.gone = true
	_ = p.control.SetWriteDeadline(time.Unix(1, 0)) // a connection that is gone fails by itself
}
