package h1

import (
	"errors"
	"net/http"
	"time"
)

// errOver answers a handler that writes after it has returned.
var errOver = errors.New("the handler has returned")

// Header is what WriteHeader sends.
func (x *exchange) Header() http.Header { return x.answer.header }

// WriteHeader takes status and header as they are now.
func (x *exchange) WriteHeader(status int) {
	x.writeMu.Lock()
	defer x.writeMu.Unlock()
	if !x.answer.done && !x.answer.parks {
		x.answer.writeHeader(status)
	}
}

// Write sends or keeps bytes of the body.
func (x *exchange) Write(p []byte) (int, error) {
	x.writeMu.Lock()
	defer x.writeMu.Unlock()
	if x.answer.done {
		return 0, errOver
	}
	if x.answer.parks {
		return len(p), nil
	}
	return x.answer.write(p)
}

// FlushError sends what was written so far.
func (x *exchange) FlushError() error {
	x.writeMu.Lock()
	defer x.writeMu.Unlock()
	if x.answer.done {
		return errOver
	}
	if x.answer.parks {
		return nil
	}
	return x.answer.flushAll()
}

// Flush is FlushError without the error (http.Flusher).
func (x *exchange) Flush() { _ = x.FlushError() }

// EnableFullDuplex lets a handler go on reading after it began to answer.
func (x *exchange) EnableFullDuplex() error {
	x.writeMu.Lock()
	defer x.writeMu.Unlock()
	x.answer.duplex = true
	return nil
}

// SetReadDeadline bounds reading of the body, and what watches the client.
func (x *exchange) SetReadDeadline(t time.Time) error {
	if err := x.limitReading(t); err != nil {
		return err
	}
	if done, was := x.c.s.watches.take(x); was { // it has no eye on deadlines
		time.AfterFunc(0, func() { x.follow(done) })
	}
	return nil
}

func (x *exchange) limitReading(t time.Time) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return errOver
	}
	x.c.readLimited.Store(true)
	return x.c.net.SetReadDeadline(t)
}

// SetWriteDeadline bounds writing of the answer.
func (x *exchange) SetWriteDeadline(t time.Time) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return errOver
	}
	x.c.writeLimited.Store(true)
	return x.c.net.SetWriteDeadline(t)
}
