package forward

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/broker/partition"
	"tidewire/cluster/peer"
	"tidewire/internal/model"
	"tidewire/storage/dedupe"
	"tidewire/storage/record"
)

// Slice is a slice of a produce call on its way to its leader. Its methods are safe for
// concurrent use.
type Slice struct {
	Key
	head  sliceHead
	bytes []byte // of batches
	done  func(*Slice)

	mu    sync.Mutex
	state partition.State // guarded by mu
}

// State is what is known of the slice now; call it when it is done, or to wait no longer.
func (s *Slice) State() partition.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func (s *Slice) end(x partition.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = x
}

// sliceHead is a slice in a request. Its bytes are in the body, in order.
type sliceHead struct {
	Meant
	Bytes    int                 `json:"bytes"`
	Ready    bool                `json:"ready,omitzero"` // batches that are appended as they are
	Count    int                 `json:"count"`
	Plain    bool                `json:"plain,omitzero"`
	Keyless  bool                `json:"keyless,omitzero"`
	Whole    bool                `json:"whole,omitzero"`
	Sequence *partition.Sequence `json:"sequence,omitzero"`
	Expected *model.Offset       `json:"expected,omitzero"`
	Once     *once               `json:"once,omitzero"`
}

type once struct {
	dedupe.Stamp
	Refusal Fault `json:"refusal,omitzero"`
}

type produceRequest struct {
	Acks   partition.Acks `json:"acks"`
	WaitMs int64          `json:"wait_ms"` // that acks=all may take
	Slices []sliceHead    `json:"slices"`
}

type produceAnswer struct {
	Results []sliceResult `json:"results"`
}

// sliceResult is what became of a slice.
type sliceResult struct {
	Done       bool         `json:"done"`
	Base       model.Offset `json:"base"`
	AppendTime int64        `json:"append_time"`
	Duplicate  bool         `json:"duplicate,omitzero"`
	StoredTime int64        `json:"stored_time,omitzero"`
	Fault      Fault        `json:"fault,omitzero"`
}

// batchTarget is about how large the batches are in which records go to their leader, which
// makes its own of them.
const batchTarget = 1 << 20

var builders = sync.Pool{New: func() any { return record.NewBuilder(64 << 10) }}

// NewSlice copies a slice for its leader.
func NewSlice(k Key, s *partition.Slice) (*Slice, error) {
	out := &Slice{Key: k, head: sliceHead{
		Meant: Meant{Key: k}, Count: s.Count, Plain: s.Plain, Keyless: s.Keyless, Whole: s.Whole, Sequence: s.Sequence, Expected: s.Expected,
	}}
	if s.Once != nil {
		out.head.Once = &once{s.Once.Stamp, Fault{s.Once.Refusal}}
	}
	if s.Batches != nil {
		out.head.Ready, out.bytes = true, append([]byte(nil), s.Batches...)
	} else if err := out.pack(s); err != nil {
		return nil, err
	}
	out.head.Bytes = len(out.bytes)
	return out, nil
}

// pack puts records into batches.
func (s *Slice) pack(of *partition.Slice) error {
	b := builders.Get().(*record.Builder)
	defer func() {
		if b.Cap() <= 4*batchTarget {
			builders.Put(b)
		}
	}()
	s.head.Count = len(of.Select)
	b.Reset()
	finish := func() error {
		batch, err := b.Finish(record.None)
		if err == nil {
			s.bytes = append(s.bytes, batch...)
			b.Reset()
		}
		return err
	}
	for _, i := range of.Select {
		r := &of.Records[i]
		if b.Count() > 0 && b.Size()+r.SizeBound() > batchTarget {
			if err := finish(); err != nil {
				return err
			}
		}
		b.Add(r.Timestamp, r.Key, r.Value, r.Headers)
	}
	return finish()
}

// again tells that the slice is stored once however often it is sent.
func (s *Slice) again() bool {
	return s.head.Sequence != nil || s.head.Once != nil
}

// Order keeps what one stream sends in its order, though the stream does not wait: what comes
// while something is under way goes together behind it. The zero value is ready.
type Order struct {
	mu      sync.Mutex
	busy    bool     // guarded by mu
	waiting []parcel // guarded by mu
}

// parcel is what is sent at one time.
type parcel struct {
	slices  []*Slice
	acks    partition.Acks
	timeout time.Duration
}

// mostTogether bounds the bytes of parcels that go together.
const mostTogether = 16 << 20

// next takes what goes next, or notes that nothing is under way.
func (o *Order) next() (p parcel, any bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	bytes := 0
	for len(o.waiting) > 0 {
		q := o.waiting[0]
		for _, s := range q.slices {
			bytes += len(s.bytes)
		}
		if any && (q.acks != p.acks || bytes > mostTogether) {
			break
		}
		any = true
		p.slices, p.acks, p.timeout = append(p.slices, q.slices...), q.acks, max(p.timeout, q.timeout)
		o.waiting = o.waiting[1:]
	}
	o.busy = any
	return p, any
}

// begin takes a parcel to be sent now; false: it waits.
func (o *Order) begin(p parcel) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.busy {
		o.waiting = append(o.waiting, p)
		return false
	}
	o.busy = true
	return true
}

// Send brings slices to their leaders, and calls done for each of them once it is known what
// became of it: at the latest a moment after timeout, with outcome unknown where it may have
// been appended. With an order they stay behind what was sent with it before.
func (c *Client) Send(slices []*Slice, acks partition.Acks, timeout time.Duration, o *Order, done func(*Slice)) {
	if len(slices) == 0 {
		return
	}
	for _, s := range slices {
		s.done = done
	}
	p := parcel{slices, acks, timeout}
	if o != nil && !o.begin(p) {
		return
	}
	c.send(p, o)
}

// send sends a parcel, and what waits behind it once all of it is answered.
func (c *Client) send(p parcel, o *Order) {
	if o != nil {
		var left atomic.Int64
		left.Store(int64(len(p.slices)))
		for _, s := range p.slices {
			done := s.done
			s.done = func(s *Slice) {
				done(s)
				if left.Add(-1) > 0 {
					return
				}
				if more, any := o.next(); any {
					c.send(more, o)
				}
			}
		}
	}
	c.dispatch(p)
}

// dispatch makes a request for each leader.
func (c *Client) dispatch(p parcel) {
	slices := p.slices
	for len(slices) > 0 {
		at, err := LeaderOf(c.meta.Image(), slices[0].Key)
		if err != nil {
			s := slices[0]
			slices = slices[1:]
			s.end(partition.State{Done: true, Err: err})
			s.done(s)
			continue
		}
		var together, others []*Slice
		size := 0
		for _, s := range slices {
			to, err := LeaderOf(c.meta.Image(), s.Key)
			if err == nil && to.Node == at.Node && (len(together) == 0 || size+len(s.bytes) <= peer.MaxData/2) {
				s.head.Epoch = to.Epoch
				size += len(s.bytes)
				together = append(together, s)
				continue
			}
			others = append(others, s)
		}
		slices = others
		x := &sending{c: c, at: at, slices: together, acks: p.acks, timeout: p.timeout}
		if !c.group.Go("forward/produce", x.run) {
			x.refuse(model.Errorf(model.LeaderUnavailable, "the node is stopping"))
		}
	}
}

// sending is one request with slices for one leader.
type sending struct {
	c       *Client
	at      Place // whose epoch is that of the first
	slices  []*Slice
	acks    partition.Acks
	timeout time.Duration
	until   time.Time // no other leader is waited for beyond; zero: as the timeout says
	tries   int       // sendings before this one
	doubt   bool      // an earlier sending got no answer: what was not taken now may have been then
}

// sendGrace is how much longer than the leader the sender waits.
const sendGrace = 2 * time.Second

// mostTries bounds how often a slice is sent: leaders do not move that often.
const mostTries = 10

// mayRetry tells whether a slice that ended so is sent again: what was certainly not applied
// because of where it went, and what may be sent twice.
func (x *sending) mayRetry(s *Slice, why error) bool {
	return x.tries < mostTries && (notTaken(why) || Lost(why) && s.again())
}

// run sends and deals with the answer.
func (x *sending) run(ctx context.Context) {
	if x.until.IsZero() {
		x.until = time.Now().Add(x.timeout - x.timeout/10) // the caller's own time must not end before
	}
	ctx, cancel := context.WithTimeout(ctx, x.timeout+sendGrace)
	defer cancel()
	a, err := x.ask(ctx)
	if err != nil {
		x.failed(ctx, x.slices, err)
		return
	}
	for i, s := range x.slices {
		r := &a.Results[i]
		state := partition.State{
			Done: r.Done, Base: r.Base, AppendTime: r.AppendTime, Duplicate: r.Duplicate, StoredTime: r.StoredTime, Err: r.Fault.Err,
		}
		if notTaken(r.Fault.Err) {
			x.failed(ctx, []*Slice{s}, r.Fault.Err)
			continue
		}
		s.end(state)
		s.done(s)
	}
}

func (x *sending) ask(ctx context.Context) (a produceAnswer, err error) {
	q := produceRequest{Acks: x.acks, WaitMs: x.timeout.Milliseconds(), Slices: make([]sliceHead, len(x.slices))}
	body := make([][]byte, len(x.slices))
	for i, s := range x.slices {
		q.Slices[i], body[i] = s.head, s.bytes
	}
	payload, err := join(q, body...)
	if err != nil {
		return a, err
	}
	b, err := x.c.produceAt(ctx, x.at.Node, payload)
	if err != nil {
		return a, err
	}
	if _, err := split(b, &a); err != nil {
		return a, err
	}
	if len(a.Results) != len(x.slices) {
		return a, malformed(nil)
	}
	return a, nil
}

// produceAt sends a request to a leader. That may be this node by now, where it was another's when
// the call came.
func (c *Client) produceAt(ctx context.Context, to model.BrokerID, payload []byte) ([]byte, error) {
	if own := c.own.Load(); own != nil && to == c.self {
		return own.produce(ctx, peer.Request{Method: MethodProduce, Payload: payload})
	}
	return c.net.CallBroker(ctx, to, MethodProduce, payload)
}

// failed deals with slices that were not served, or of which that is not known.
func (x *sending) failed(ctx context.Context, slices []*Slice, why error) {
	for _, s := range slices {
		if !x.mayRetry(s, why) {
			x.give(s, why)
			continue
		}
		at := Place{x.at.Node, s.head.Epoch}
		now, err := x.next(ctx, s.Key, at, why)
		switch {
		case err != nil && (x.doubt || Lost(why)):
			x.give(s, why)
		case err != nil:
			x.give(s, err)
		default:
			s.head.Epoch = now.Epoch
			again := &sending{
				c: x.c, at: now, slices: []*Slice{s}, acks: x.acks, timeout: x.timeout, until: x.until, tries: x.tries + 1, doubt: x.doubt || Lost(why),
			}
			again.run(ctx)
		}
	}
}

// Pauses between looks for another leader.
const (
	firstLook = 10 * time.Millisecond
	lastLook  = 100 * time.Millisecond
)

// next finds where a slice is sent after it was not taken at a place, waiting for another leader
// as long as one may come: a node that is gone, or is about to stop, leads no longer in a moment.
// What got no answer there may go there again at once. Errors: why, or that the topic is gone or
// that nobody leads.
func (x *sending) next(ctx context.Context, k Key, from Place, why error) (Place, error) {
	now, err := x.c.refreshed(ctx, k)
	for look := firstLook; ; look = min(2*look, lastLook) {
		switch {
		case model.HasCode(err, model.QuorumUnavailable), model.HasCode(err, model.Timeout): // it is not known yet
		case err != nil:
			return now, err
		case now != from || Lost(why):
			return now, nil
		case !x.c.others(k):
			return now, Unanswered(k, from, why)
		}
		if time.Now().Add(look).After(x.until) || !pause(ctx, look) {
			return now, Unanswered(k, from, why)
		}
		now, err = LeaderOf(x.c.meta.Image(), k)
	}
}

// others tells whether a partition has replicas beside its leader's.
func (c *Client) others(k Key) bool {
	t := c.meta.Image().TopicByID(k.Topic)
	return t != nil && int(k.Partition) < len(t.Partitions) && len(t.Partitions[k.Partition].Replicas) > 1
}

func (x *sending) refuse(why error) {
	for _, s := range x.slices {
		x.give(s, why)
	}
}

// give ends a slice with an error.
func (x *sending) give(s *Slice, why error) {
	switch {
	case Lost(why) || x.doubt:
		why = model.Errorf(model.Timeout, "the connection to node %d, which leads partition %d, was lost, or it did not answer in time: whether the records were stored is not known",
			x.at.Node, s.Partition).WithOutcome(model.Unknown).WithCause(why)
	default:
		why = Unanswered(s.Key, x.at, why)
	}
	s.end(partition.State{Done: true, Err: why})
	s.done(s)
}
