package h1

import (
	"context"
	"net/http"
	"time"
)

// Parking lets the handler of a request wait without a goroutine: what thousands of long polls
// cost is then what they keep, and not their stacks. It is a request's; see Server.Park.
//
// The handler calls Park and returns. What it, or whoever called it, writes from then on goes
// nowhere, and its header is forgotten. Once Wake has been called, or the context has ended, the
// whole handler is called again, in another goroutine, with the same request: Parked tells it so.
// It may park again.
type Parking exchange

// parked is what a request has kept between two calls of its handler.
type parked struct {
	state any
	since time.Time
}

// fate is how far a request has come.
type fate uint8

const (
	ends   fate = iota // the connection with it
	next               // the connection may take another request
	sleeps             // it waits without a goroutine; whoever wakes it has it, and its connection
)

// Park has the handler called again once it has returned and was woken. state is what Parked
// gives then. It panics where the answer has begun.
func (p *Parking) Park(state any) {
	x := (*exchange)(p)
	x.writeMu.Lock()
	defer x.writeMu.Unlock()
	if x.answer.status != 0 || x.answer.done {
		panic("h1: Park after the answer has begun")
	}
	x.answer.parks = true
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.parked == nil {
		x.parked = &parked{}
	}
	x.parked.state = state
}

// Parks tells whether Park was called in this call of the handler.
func (p *Parking) Parks() bool {
	x := (*exchange)(p)
	x.writeMu.Lock()
	defer x.writeMu.Unlock()
	return x.answer.parks
}

// Parked is the state that the last Park left; nil in the handler's first call.
func (p *Parking) Parked() any {
	if k := p.kept(); k != nil {
		return k.state
	}
	return nil
}

// Since is what Keep was told; zero in the handler's first call.
func (p *Parking) Since() time.Time {
	if k := p.kept(); k != nil {
		return k.since
	}
	return time.Time{}
}

// Keep notes since when the request has been under way, after Park.
func (p *Parking) Keep(since time.Time) {
	if k := p.kept(); k != nil {
		k.since = since
	}
}

func (p *Parking) kept() *parked {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.parked
}

// Wake has the handler called again. It may be called at any time and more than once, and does
// not block.
func (p *Parking) Wake() {
	x := (*exchange)(p)
	x.mu.Lock()
	asleep := x.asleep
	x.asleep, x.woken = false, !asleep
	x.mu.Unlock()
	if asleep && !x.c.s.group.Go("http/connection", func(context.Context) { x.rise(); x.c.loop(x) }) {
		x.c.end() // the server has stopped
	}
}

// parks tells whether the handler, which has returned, is to be called again.
func (x *exchange) parks() bool { return (*Parking)(x).Parks() }

// sleep gives the goroutine up. False: the request was woken already. Once it was true the
// exchange is another goroutine's.
func (x *exchange) sleep() bool {
	x.writeMu.Lock()
	x.answer.header = nil
	x.writeMu.Unlock()
	x.ask()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.left == 0 {
		x.req.Body = http.NoBody
	}
	if x.woken || x.gone {
		return false
	}
	x.asleep = true
	return true
}

// rise prepares another call of the handler.
func (x *exchange) rise() {
	x.writeMu.Lock()
	x.answer.parks = false
	if x.answer.header == nil {
		x.answer.header = make(http.Header, headerRoom)
	}
	x.writeMu.Unlock()
	x.mu.Lock()
	x.woken = false
	x.mu.Unlock()
}
