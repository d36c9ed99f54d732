package ws

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"tidewire/api/problem"
	"tidewire/api/recordjson"
	"tidewire/api/rest"
	"tidewire/broker"
	"tidewire/broker/forward"
	"tidewire/broker/partition"
	"tidewire/internal/inflight"
	"tidewire/internal/model"
)

// Limits of a socket that produces. A frame's records have those of a produce request.
const (
	maxProduceFrame = 64 << 20
	maxFlights      = 128 // frames under way, those behind the oldest that waits included
)

// Produce stores records over a WebSocket. It is as Consume: an error is to be answered
// over plain HTTP.
//
//	@ID				produceSocket
//	@Summary		Store records over a WebSocket
//	@Description	JSON text frames, subprotocol tidewire.v1.json. Each produce frame is a request of its own, with its rights and limits; many may be under way, and they are answered in their order. Frames are described in x-websocket-frames.
//	@Tags			WebSocket
//	@Success		101	{object}	ProduceFrames	"frames follow"
//	@Router			/v1/ws/produce [get]
//	@x-errors		["rate-limited","leader-unavailable"]
func (h *Handler) Produce(w http.ResponseWriter, r *http.Request, caller broker.Caller) error {
	if err := checkHandshake(r); err != nil {
		return err
	}
	if err := checkNoQuery(r.URL.RawQuery); err != nil {
		return err
	}
	if err := h.mayOpen(r); err != nil {
		return err
	}
	s := h.newSession(caller, problem.Occurrence{
		Path: strings.Clone(r.URL.EscapedPath()), RequestID: strings.Clone(w.Header().Get("X-Request-Id")), Write: true,
	})
	s.produce, s.turns.kick = &producing{s: s}, make(chan struct{}, 1)
	if err := h.add(s); err != nil {
		s.stream.Close()
		return err
	}
	if err := s.open(w, r, nil); err != nil {
		s.release()
		return err
	}
	return nil
}

// producing is the part of a session that stores records. It belongs to the session's
// turn, but for read.
type producing struct {
	s       *session
	flights []*flight // under way, in order
	free    []*flight
	late    *time.Timer // for the oldest; nil: there was none yet
	end     *ending     // how to end once the flights have landed; nil: going on
	results recordjson.Results
	answer  []byte
	order   forward.Order // of frames for other nodes
}

// flight is a produce frame on its way, or what is to be answered in its place.
type flight struct {
	id       json.RawMessage
	err      error // the frame is refused
	req      broker.ProduceRequest
	pending  *broker.Pending
	deadline time.Time
	hold     inflight.Hold
}

// produceCmd is a decoded frame. Its records lie in the body until it is submitted.
type produceCmd struct {
	topic   string
	acks    partition.Acks
	timeout time.Duration
	req     *recordjson.Request
	body    *[]byte
	hold    inflight.Hold
}

var (
	frameBodies   = sync.Pool{New: func() any { b := make([]byte, 0, 16<<10); return &b }}
	frameRequests recordjson.Pool
)

// maxPooledFrame bounds what the pool keeps.
const maxPooledFrame = 1 << 20

// drop gives back what a frame holds of memory, once its records are copied or refused.
func (c *produceCmd) drop() {
	if c.req != nil {
		frameRequests.Put(c.req)
	}
	if c.body != nil && cap(*c.body) <= maxPooledFrame {
		frameBodies.Put(c.body)
	}
	c.req, c.body = nil, nil
}

// read reads one frame and decodes it; it runs in the goroutine of readFrames.
func (p *producing) read(r io.Reader) (clientFrame, error) {
	cmd := &produceCmd{body: frameBodies.Get().(*[]byte), hold: p.s.h.budget.Hold()}
	err := p.readBody(r, cmd)
	var refused *model.Error
	switch {
	case err == nil:
		return cmd.decode(*cmd.body), nil
	case errors.As(err, &refused):
		cmd.refuse()
		return clientFrame{err: refused}, nil
	}
	cmd.refuse()
	return clientFrame{}, err
}

// readBody reads a frame to its end. What it holds counts in the node's budget as it comes.
// The error is the project's where the frame is refused, else the connection's.
func (p *producing) readBody(r io.Reader, cmd *produceCmd) error {
	b := (*cmd.body)[:0]
	defer func() { *cmd.body = b }()
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Read(b[len(b):min(cap(b), len(b)+64<<10)])
		b = b[:len(b)+n]
		switch {
		case errors.Is(err, io.EOF):
			return cmd.hold.Grow(recordjson.Footprint(b))
		case err != nil:
			return err
		case len(b) > maxProduceFrame:
			return model.Errorf(model.RequestTooLarge, "a frame has at most %d bytes", maxProduceFrame)
		}
		// A long frame has no pongs in it.
		_ = p.s.alive("")
		if err := cmd.hold.Grow(int64(cap(b))); err != nil {
			return err
		}
	}
}

// refuse is drop for a frame that is not followed.
func (c *produceCmd) refuse() {
	c.drop()
	c.hold.Release()
}

// step is session.step for a socket that produces. While frames are under way it waits for
// the oldest: the socket is not idle.
func (p *producing) step(ctx context.Context) (more bool, _ *ending) {
	if end := p.land(ctx); end != nil {
		return false, end
	}
	if p.end == nil {
		if p.end = p.check(ctx); p.end != nil {
			p.arm(p.s.h.times.closeWait)
		}
	}
	if p.end != nil && len(p.flights) == 0 {
		return false, p.end
	}
	did, end := p.s.control()
	if end != nil || did {
		return did, end
	}
	if p.mayTake() {
		switch f, ok := p.s.takeFrame(); {
		case ok && f.end:
			return false, p.s.gone()
		case ok:
			return true, p.take(ctx, f)
		}
	}
	if len(p.flights) == 0 {
		return false, nil
	}
	return true, p.await()
}

// arm sets when the oldest frame is late, or the socket ends without it.
func (p *producing) arm(d time.Duration) {
	if p.late == nil {
		p.late = time.NewTimer(d)
		return
	}
	p.late.Reset(d)
}

// check tells how the socket has to end now, nil where it need not.
func (p *producing) check(ctx context.Context) *ending {
	if p.s.nodeStops(ctx) {
		end := stopping()
		return &end
	}
	if err := p.s.stream.Check(ctx); err != nil {
		return p.s.failed(err)
	}
	return p.s.warnExpiry()
}

// mayTake tells whether the next frame of the client may be taken.
func (p *producing) mayTake() bool {
	if p.end != nil || len(p.flights) >= maxFlights { // what is under way may still land
		return false
	}
	return !p.s.slow(p.s.h.broker.ProduceDelay(p.s.stream.Caller()))
}

// await waits for the oldest frame, or for something else to do.
func (p *producing) await() *ending {
	p.s.turns.wakeAfter(p.s.due(), p.s.wake)
	select {
	case <-p.flights[0].pending.Done():
		return p.tell(p.flights[0], nil)
	case <-p.late.C:
		return p.end // or the frame is late: land tells it
	case <-p.s.turns.kick:
		p.s.turns.woken.Store(false) // or it would not be kicked again
	}
	return nil
}

// take follows one frame.
func (p *producing) take(ctx context.Context, f clientFrame) *ending {
	cmd, isProduce := f.cmd.(*produceCmd)
	if auth, ok := f.cmd.(authCmd); ok && f.err == nil {
		ctx, cancel := context.WithTimeout(ctx, p.s.h.times.command)
		defer cancel()
		return p.s.onAuth(ctx, f.id, auth)
	}
	fl := p.newFlight(f.id)
	if fl.err = f.err; fl.err == nil && isProduce {
		p.submit(ctx, fl, cmd)
	}
	p.flights = append(p.flights, fl)
	if len(p.flights) == 1 && fl.pending != nil {
		p.arm(time.Until(fl.deadline))
	}
	return nil
}

func (p *producing) newFlight(id json.RawMessage) *flight {
	fl := &flight{}
	if n := len(p.free); n > 0 {
		fl, p.free = p.free[n-1], p.free[:n-1]
	}
	fl.id, fl.err, fl.pending = id, nil, nil
	return fl
}

func (p *producing) submit(ctx context.Context, fl *flight, cmd *produceCmd) {
	ctx, cancel := context.WithTimeout(ctx, p.s.h.times.command)
	defer cancel()
	fl.hold = cmd.hold
	fl.req.Topic, fl.req.Acks, fl.req.Timeout = cmd.topic, cmd.acks, cmd.timeout
	fl.req.Stream, fl.req.Order = true, &p.order
	fl.req.Records, fl.req.Routing = rest.FromJSON(cmd.req.Records, fl.req.Records, fl.req.Routing)
	fl.pending, fl.err = p.s.h.broker.Submit(ctx, p.s.stream.Caller(), &fl.req)
	fl.deadline = time.Now().Add(cmd.timeout)
	cmd.drop()
}

// land answers the frames that have ended, in their order.
func (p *producing) land(context.Context) *ending {
	for len(p.flights) > 0 {
		fl := p.flights[0]
		var why error
		if fl.pending != nil {
			select {
			case <-fl.pending.Done():
			default:
				if time.Now().Before(fl.deadline) {
					return nil
				}
				why = broker.NotInTime(fl.req.Timeout)
			}
		}
		if end := p.tell(fl, why); end != nil {
			return end
		}
	}
	return nil
}

// tell answers the oldest frame.
func (p *producing) tell(fl *flight, why error) *ending {
	frame, err := p.encode(fl, why)
	p.flights = append(p.flights[:0], p.flights[1:]...)
	id := fl.id
	fl.hold.Release()
	clear(fl.req.Records)
	if cap(fl.req.Records) <= maxKeptRecords {
		p.free = append(p.free, fl)
	}
	if len(p.flights) > 0 && p.flights[0].pending != nil && p.end == nil {
		p.arm(time.Until(p.flights[0].deadline))
	}
	if err != nil {
		return p.s.refuse(id, err)
	}
	return p.s.send(frame)
}

// maxKeptRecords bounds the memory of a flight that is used again.
const maxKeptRecords = 4096

// encode gives the answer to a frame, or the error that is the answer.
func (p *producing) encode(fl *flight, why error) (frame []byte, err error) {
	if fl.pending == nil {
		return nil, fl.err
	}
	b := append(p.answer[:0], `{"op":"produced"`...)
	if fl.id != nil {
		b = append(append(b, `,"id":`...), fl.id...)
	}
	fl.pending.Result(why, func(res *broker.ProduceResult) {
		if fl.req.Acks == partition.AcksNone {
			b = append(b, `,"results":[],"accepted":`...)
			b = appendInt(b, int64(len(res.Results)))
			b = appendWarning(b, res.Warning)
			return
		}
		if res.Failed == len(res.Results) {
			if err = rest.CommonFailure(res.Results); err != nil {
				return
			}
		}
		b = append(b, `,"results":`...)
		if b, _, err = rest.AppendResults(b, &p.results, res.Results, p.s.at); err == nil {
			b = appendWarning(append(b, `,"accepted":null`...), res.Warning)
		}
	})
	if cap(b) <= maxPooledFrame {
		p.answer = b[:0]
	}
	return append(b, '}'), err
}

// abandon lets go of what has not landed when the socket ends.
func (p *producing) abandon() {
	if p.late != nil {
		p.late.Stop()
	}
	for _, fl := range p.flights {
		if fl.pending != nil {
			fl.pending.Result(model.Errorf(model.Timeout, "the socket ended"), func(*broker.ProduceResult) {})
		}
		fl.hold.Release()
	}
	p.flights = nil
}
