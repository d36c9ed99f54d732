package forward

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"tidewire/broker/partition"
	"tidewire/internal/model"
	"tidewire/storage/log"
	"tidewire/storage/record"
)

// Partition is a partition that another node leads. Its methods are safe for concurrent use.
type Partition struct {
	Key
	c *Client

	bounds atomic.Pointer[partition.Bounds] // as of the last answer; nil: it was never asked

	mu       sync.Mutex
	watchers map[*partition.Watcher]struct{} // guarded by mu
	failed   error                           // guarded by mu: why it cannot be read, as its feed has found
}

// Partition returns what stands for a partition that is led elsewhere.
func (c *Client) Partition(k Key) *Partition { return &Partition{Key: k, c: c} }

// Bounds are the offsets as of the last answer: of Refresh, of a read, or of the feed while
// somebody watches.
func (p *Partition) Bounds() partition.Bounds {
	if b := p.bounds.Load(); b != nil {
		return *b
	}
	return partition.Bounds{}
}

// Known tells whether there was any answer yet.
func (p *Partition) Known() bool { return p.bounds.Load() != nil }

// note takes over what an answer says, and wakes who waits where that is new. Answers may come
// out of order, and no offset that a reader sees ever goes back.
func (p *Partition) note(b partition.Bounds) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.bounds.Load()
	if before != nil {
		b.LogStart, b.HighWatermark = max(b.LogStart, before.LogStart), max(b.HighWatermark, before.HighWatermark)
		b.LastStable, b.LogEnd = max(b.LastStable, before.LastStable), max(b.LogEnd, b.HighWatermark)
	}
	healed := p.failed != nil
	p.failed = nil
	if before != nil && *before == b && !healed {
		return
	}
	p.bounds.Store(&b)
	if before != nil && before.HighWatermark == b.HighWatermark && before.LastStable == b.LastStable && before.LogStart == b.LogStart && !healed {
		return
	}
	p.wakeLocked()
}

// fail notes that the partition cannot be read now.
func (p *Partition) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = err
	p.wakeLocked()
}

// failOnce is fail for what may have been noted already: then nobody is woken.
func (p *Partition) failOnce(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		p.failed = err
		p.wakeLocked()
	}
}

func (p *Partition) hasFailed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed != nil
}

func (p *Partition) wakeLocked() {
	for w := range p.watchers {
		w.Wake()
	}
}

// Err says why the partition cannot be read now, or nil, as far as this node knows.
func (p *Partition) Err() error {
	switch at, err := LeaderOf(p.c.meta.Image(), p.Key); {
	case err != nil:
		return err
	case at.Node == p.c.self:
		return model.Errorf(model.LeaderUnavailable, "partition %d is led by this node by now", p.Partition)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// Watch wakes w from now on when the partition changes. It may wake at once: what has happened
// since the last answer is found out then.
func (p *Partition) Watch(w *partition.Watcher) {
	p.mu.Lock()
	if p.watchers == nil {
		p.watchers = map[*partition.Watcher]struct{}{}
	}
	p.watchers[w] = struct{}{}
	p.mu.Unlock()
	p.c.follow(p) // also where others watch: there may have been nobody to tell of it when they came
}

// Unwatch ends that.
func (p *Partition) Unwatch(w *partition.Watcher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.watchers, w)
}

func (p *Partition) watched() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.watchers) > 0
}

type ends struct {
	Start  model.Offset `json:"start"`
	HW     model.Offset `json:"hw"`
	Stable model.Offset `json:"stable"`
	End    model.Offset `json:"end"`
	// Unsettled is that of the bounds.
	Unsettled bool  `json:"unsettled,omitempty"`
	Fault     Fault `json:"fault,omitzero"`
}

func endsOf(b partition.Bounds) ends {
	return ends{Start: b.LogStart, HW: b.HighWatermark, Stable: b.LastStable, End: b.LogEnd, Unsettled: b.Unsettled}
}

func (e *ends) bounds() partition.Bounds {
	return partition.Bounds{LogStart: e.Start, HighWatermark: e.HW, LastStable: e.Stable, LogEnd: e.End, Unsettled: e.Unsettled}
}

// Meant is a partition in a leadership.
type Meant struct {
	Key
	Epoch model.LeaderEpoch `json:"epoch"`
}

type endsRequest struct {
	Partitions []Meant `json:"partitions"`
}

type endsAnswer struct {
	Ends []ends `json:"ends"` // in the order of the request
}

// Refresh asks leaders for the offsets of partitions, each of them once and all at a time. The
// result is why a partition could not be asked, in order.
func (c *Client) Refresh(ctx context.Context, parts []*Partition) []error {
	errs := make([]error, len(parts))
	byNode := map[model.BrokerID][]int{}
	for i, p := range parts {
		at, err := LeaderOf(c.meta.Image(), p.Key)
		if errs[i] = err; err == nil {
			byNode[at.Node] = append(byNode[at.Node], i)
		}
	}
	var wg sync.WaitGroup
	for node, list := range byNode {
		wg.Add(1)
		ask := func(context.Context) {
			defer wg.Done()
			c.refreshAt(ctx, node, parts, list, errs)
		}
		if len(byNode) == 1 || !c.group.Go("forward/refresh", ask) {
			ask(ctx)
		}
	}
	wg.Wait()
	for i, err := range errs {
		if notTaken(err) || model.HasCode(err, model.LeaderUnavailable) { // each by itself, with a look for its leader
			errs[i] = parts[i].refresh(ctx)
		}
	}
	return errs
}

func (c *Client) refreshAt(ctx context.Context, node model.BrokerID, parts []*Partition, list []int, errs []error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	q := endsRequest{Partitions: make([]Meant, len(list))}
	for k, i := range list {
		at, _ := LeaderOf(c.meta.Image(), parts[i].Key) // else the leader refuses it
		q.Partitions[k] = Meant{parts[i].Key, at.Epoch}
	}
	a, err := Ask[endsRequest, endsAnswer](ctx, c.net, node, MethodEnds, q)
	if err == nil && len(a.Ends) != len(list) {
		err = malformed(nil)
	}
	for k, i := range list {
		if errs[i] = Unanswered(parts[i].Key, Place{Node: node}, err); err != nil {
			continue
		}
		if errs[i] = a.Ends[k].Fault.Err; errs[i] == nil {
			parts[i].note(a.Ends[k].bounds())
		}
	}
}

func (p *Partition) refresh(ctx context.Context) error {
	return p.c.toLeader(ctx, p.Key, func(ctx context.Context, at Place) error {
		a, err := Ask[endsRequest, endsAnswer](ctx, p.c.net, at.Node, MethodEnds, endsRequest{[]Meant{{p.Key, at.Epoch}}})
		switch {
		case err != nil:
			return err
		case len(a.Ends) != 1:
			return malformed(nil)
		case a.Ends[0].Fault.Err != nil:
			return a.Ends[0].Fault.Err
		}
		p.note(a.Ends[0].bounds())
		return nil
	})
}

// Reading is a read of such a partition on behalf of a caller, whose context bounds what it
// asks for. It is for one goroutine.
type Reading struct {
	*Partition
	ctx  context.Context
	want int // bytes of batches that are asked for at once

	from  model.Offset // of the chunk at hand
	chunk []byte
	first record.BatchHeader
	found bool // there is a batch, first
	has   bool // chunk is what is there from from on
}

// Read begins a read; want is about how many bytes it asks for at once.
func (p *Partition) Read(ctx context.Context, want int) *Reading {
	return &Reading{Partition: p, ctx: ctx, want: want}
}

type readRequest struct {
	Meant
	From  model.Offset `json:"from"`
	Limit model.Offset `json:"limit"`
	Max   int          `json:"max"`
	// Most is how large the first batch may be to be sent; a larger one is only told of.
	Most int64 `json:"most"`
}

type readAnswer struct {
	Ends ends `json:"ends"`
	// Batch says that the body begins with the header of a batch; Whole that whole batches
	// follow.
	Batch bool `json:"batch"`
	Whole bool `json:"whole"`
}

// onlyUsual is the size of a first batch that comes without having been asked for, in bytes.
const onlyUsual = 512 << 10

// fetch asks for batches from an offset on.
func (r *Reading) fetch(from, limit model.Offset, maxBytes int, most int64) error {
	r.has, r.found = false, false
	return r.c.toLeader(r.ctx, r.Key, func(ctx context.Context, at Place) error {
		q, err := join(readRequest{Meant{r.Key, at.Epoch}, from, limit, maxBytes, most})
		if err != nil {
			return err
		}
		b, err := r.c.net.CallBroker(ctx, at.Node, MethodRead, q)
		if err != nil {
			return err
		}
		var a readAnswer
		if b, err = split(b, &a); err != nil {
			return err
		}
		r.note(a.Ends.bounds())
		r.from, r.chunk, r.has = from, nil, true
		if !a.Batch {
			return nil
		}
		if r.first, err = record.ParseHeader(b); err != nil {
			return malformed(err)
		}
		if r.found, r.chunk = true, b; !a.Whole {
			r.chunk, r.has = nil, false
		}
		return nil
	})
}

// First tells of the first batch that a read from an offset gives; not ok where there is none.
func (r *Reading) First(from, limit model.Offset) (h record.BatchHeader, ok bool, err error) {
	if r.has && r.from == from && len(r.chunk) > 0 {
		return r.first, true, nil
	}
	if err := r.fetch(from, limit, r.want, onlyUsual); err != nil {
		return h, false, err
	}
	return r.first, r.found, nil
}

// Read appends stored batches to dst; see log.Log.Read. What First has brought is not asked
// for again.
func (r *Reading) Read(dst []byte, from, limit model.Offset, maxBytes int) ([]byte, error) {
	if !r.has || r.from != from || len(r.chunk) == 0 {
		if err := r.fetch(from, limit, maxBytes, MaxBatch); err != nil {
			return dst, err
		}
	}
	dst = append(dst, r.chunk...)
	r.has, r.chunk = false, nil
	return dst, nil
}

// MaxBatch is the size of a batch that every node sends.
const MaxBatch = 64 << 20

// Ask has a request sent to the leader, and once more to the next one where it was not taken.
func (r *Reading) Ask(ctx context.Context, send func(ctx context.Context, to model.BrokerID, m Meant) error) error {
	return r.c.toLeader(ctx, r.Key, func(ctx context.Context, at Place) error { return send(ctx, at.Node, Meant{r.Key, at.Epoch}) })
}

// OffsetForTimestamp finds the first record below limit whose timestamp is at least ts.
func (r *Reading) OffsetForTimestamp(ts int64, limit model.Offset) (off model.Offset, at int64, found bool, err error) {
	err = r.c.toLeader(r.ctx, r.Key, func(ctx context.Context, place Place) error {
		a, err := Ask[timeRequest, timeAnswer](ctx, r.c.net, place.Node, MethodAt, timeRequest{Meant{r.Key, place.Epoch}, ts, limit})
		off, at, found = a.Offset, a.Timestamp, a.Found
		return err
	})
	return off, at, found, err
}

type timeRequest struct {
	Meant
	Timestamp int64        `json:"timestamp"`
	Limit     model.Offset `json:"limit"`
}

type timeAnswer struct {
	Offset    model.Offset `json:"offset"`
	Timestamp int64        `json:"timestamp"`
	Found     bool         `json:"found"`
}

type abortedRequest struct {
	Meant
	From model.Offset `json:"from"`
	To   model.Offset `json:"to"`
}

type abortedAnswer struct {
	Aborted []log.AbortedTransaction `json:"aborted"`
}

// AbortedTransactions are those that a reader of [from, to) must know of.
func (r *Reading) AbortedTransactions(from, to model.Offset) (out []log.AbortedTransaction, err error) {
	err = r.c.toLeader(r.ctx, r.Key, func(ctx context.Context, at Place) error {
		a, err := Ask[abortedRequest, abortedAnswer](ctx, r.c.net, at.Node, MethodAborted, abortedRequest{Meant{r.Key, at.Epoch}, from, to})
		out = a.Aborted
		return err
	})
	return slices.Clip(out), err
}
