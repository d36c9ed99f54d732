package follow

import (
	"bufio"
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/broker/partition"
	"tidewire/broker/replication"
	"tidewire/broker/throttle"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
)

// ClientConfig is what a Client is made of.
type ClientConfig struct {
	// Self is this node in this life of it.
	Self replication.Member
	// Dial connects to another node's Server.
	Dial func(ctx context.Context, to model.BrokerID) (net.Conn, error)
	// Throttle paces what is taken for replicas that Slow has named.
	Throttle *throttle.Bucket
	Logger   *slog.Logger
	Group    *lifecycle.Group
}

// Client fetches for every partition that this node follows. Its methods are safe for
// concurrent use.
type Client struct {
	cfg ClientConfig

	mu      sync.Mutex
	leaders map[model.BrokerID]*fetcher // guarded by mu
	parts   map[Key]*followed           // guarded by mu
}

// NewClient returns a client that follows nothing yet.
func NewClient(cfg ClientConfig) *Client {
	if cfg.Throttle == nil {
		cfg.Throttle = new(throttle.Bucket)
	}
	return &Client{cfg: cfg, leaders: map[model.BrokerID]*fetcher{}, parts: map[Key]*followed{}}
}

// Set has a partition follow a leader in an epoch, instead of what it followed before.
func (c *Client) Set(p *partition.Partition, leader model.BrokerID, epoch model.LeaderEpoch) {
	k := Key{p.TopicID, p.ID}
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.parts[k]
	if old != nil && old.part == p && old.by.leader == leader && old.epoch == epoch {
		return
	}
	c.removeLocked(old)
	f := c.leaders[leader]
	if f == nil {
		f = newFetcher(c, leader)
		if !c.cfg.Group.Go("follow", f.run) {
			return // the node stops
		}
		c.leaders[leader] = f
	}
	e := &followed{key: k, part: p, epoch: epoch, by: f}
	c.parts[k] = e
	f.add(e)
}

// Slow says whether what a partition fetches is paced by the throttle: that of a replica which a
// move adds, until it is in sync.
func (c *Client) Slow(k Key, slow bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.parts[k]; e != nil {
		e.slow.Store(slow)
	}
}

// Remove ends the following of a partition.
func (c *Client) Remove(k Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeLocked(c.parts[k])
}

func (c *Client) removeLocked(e *followed) {
	if e == nil {
		return
	}
	delete(c.parts, e.key)
	if e.by.remove(e) == 0 {
		e.by.stop()
		delete(c.leaders, e.by.leader)
	}
}

// followed is a partition that follows.
type followed struct {
	key   Key
	part  *partition.Partition
	epoch model.LeaderEpoch
	by    *fetcher
	slow  atomic.Bool

	// All guarded by fetcher.mu.
	gone    bool
	wants   bool // the next update asks for an answer
	dirty   bool // in fetcher.dirty
	failed  int  // tries in a row that brought nothing
	retryAt time.Time
}

// fetcher fetches from one node.
type fetcher struct {
	client  *Client
	leader  model.BrokerID
	kick    chan struct{}
	stopped chan struct{}

	mu    sync.Mutex
	parts map[Key]*followed // guarded by mu
	dirty []*followed       // guarded by mu: an update is to be sent
	goes  []update          // guarded by mu: of those that were removed
	late  []*followed       // guarded by mu: are tried again later
	up    bool              // guarded by mu: connected
}

func newFetcher(c *Client, leader model.BrokerID) *fetcher {
	return &fetcher{client: c, leader: leader, kick: make(chan struct{}, 1), stopped: make(chan struct{}), parts: map[Key]*followed{}}
}

func (f *fetcher) stop() { close(f.stopped) }

func (f *fetcher) wake() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

func (f *fetcher) add(e *followed) {
	f.mu.Lock()
	f.parts[e.key] = e
	f.mu.Unlock()
	e.part.Report(func() { f.touch(e, false) })
	f.touch(e, true)
}

// remove gives how many are left.
func (f *fetcher) remove(e *followed) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	e.gone = true
	if f.parts[e.key] == e {
		delete(f.parts, e.key)
	}
	if f.up {
		f.goes = append(f.goes, update{key: e.key, goes: true, at: replication.Position{Epoch: e.epoch}})
		f.wake()
	}
	return len(f.parts)
}

// touch has an update of a partition sent. It may be called under the partition's lock.
func (f *fetcher) touch(e *followed, wants bool) {
	f.mu.Lock()
	if !e.gone {
		e.wants = e.wants || wants
		if !e.dirty {
			e.dirty = true
			f.dirty = append(f.dirty, e)
		}
	}
	f.mu.Unlock()
	f.wake()
}

// Waits between attempts to connect, and to ask again for a partition that was refused.
const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = time.Second
)

// run keeps a connection until the client or the group stops.
func (f *fetcher) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.client.cfg.Group.Go("follow end", func(context.Context) {
		select {
		case <-f.stopped:
			cancel()
		case <-ctx.Done():
		}
	})
	wait := firstRetry
	for ctx.Err() == nil {
		began := time.Now()
		err := f.connect(ctx)
		if ctx.Err() != nil {
			return
		}
		f.client.cfg.Logger.Debug("nothing is fetched from a node", "node", f.leader, "error", err)
		if time.Since(began) > silence {
			wait = firstRetry
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
		wait = min(2*wait, lastRetry)
	}
}

// connect speaks with the leader's node until that fails.
func (f *fetcher) connect(ctx context.Context) error {
	dialling, cancelDial := context.WithTimeout(ctx, silence)
	c, err := f.client.cfg.Dial(dialling, f.leader)
	cancelDial()
	if err != nil {
		return err
	}
	c = timed{c}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { _ = c.Close() }) // ends reads and writes
	defer stop()
	defer func() { _ = c.Close() }() // a second time maybe
	f.begin()
	done := make(chan struct{})
	started := f.client.cfg.Group.Go("follow reader", func(context.Context) {
		defer close(done)
		cancel(f.read(c))
	})
	if !started {
		return context.Canceled
	}
	err = f.write(ctx, c)
	cancel(err)
	<-done
	f.mu.Lock()
	f.up = false
	f.mu.Unlock()
	return context.Cause(ctx)
}

// begin has every partition ask on a new connection.
func (f *fetcher) begin() {
	f.mu.Lock()
	f.up, f.goes, f.late = true, nil, nil
	all := make([]*followed, 0, len(f.parts))
	for _, e := range f.parts {
		e.failed, e.retryAt = 0, time.Time{}
		all = append(all, e)
	}
	f.mu.Unlock()
	for _, e := range all {
		f.touch(e, true)
	}
}

// write sends updates.
func (f *fetcher) write(ctx context.Context, c net.Conn) error {
	buf := frame(appendHello(make([]byte, 4, 64), f.client.cfg.Self))
	if err := send(c, buf); err != nil {
		return err
	}
	sign := time.NewTicker(signEvery)
	defer sign.Stop()
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	quiet := false
	for {
		if next := f.wakeLate(time.Now()); next > 0 {
			retry.Reset(next)
		}
		buf = f.collect(append(buf[:0], 0, 0, 0, 0))
		if len(buf) > 4 {
			if err := send(c, frame(buf)); err != nil {
				return err
			}
			quiet = false
			continue
		}
		select {
		case <-f.kick:
		case <-retry.C:
		case <-sign.C:
			if quiet {
				if err := send(c, frame(buf)); err != nil {
					return err
				}
			}
			quiet = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func send(c net.Conn, b []byte) error {
	_, err := c.Write(b)
	return err
}

// collect writes the updates that are due.
func (f *fetcher) collect(b []byte) []byte {
	f.mu.Lock()
	dirty, goes := f.dirty, f.goes
	f.dirty, f.goes = nil, nil
	wants := make([]bool, len(dirty))
	for i, e := range dirty {
		e.dirty = false
		wants[i], e.wants = e.wants, false
	}
	f.mu.Unlock()
	for i := range goes {
		if !f.has(goes[i].key) { // else it was added again, and its update says so
			b = goes[i].append(b)
		}
	}
	for i, e := range dirty {
		at, err := e.part.Position(e.epoch)
		if err != nil { // the metadata will say what becomes of it
			f.postpone(e, err)
			continue
		}
		u := update{key: e.key, wants: wants[i], at: at}
		b = u.append(b)
	}
	return b
}

func (f *fetcher) has(k Key) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.parts[k] != nil
}

// postpone asks again later for a partition that could not be served or applied.
func (f *fetcher) postpone(e *followed, why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.gone {
		return
	}
	e.failed++
	wait := min(firstRetry<<min(e.failed, 10), lastRetry)
	e.retryAt = time.Now().Add(wait)
	f.late = append(f.late, e)
	if why != nil && e.failed == 10 {
		f.client.cfg.Logger.Warn("a partition cannot be fetched", "topic", e.part.Topic, "partition", e.part.ID, "leader", f.leader, "error", why)
	}
	f.wake()
}

// wakeLate touches those whose time has come, and gives how long the next one waits; 0: none.
func (f *fetcher) wakeLate(now time.Time) time.Duration {
	f.mu.Lock()
	var due []*followed
	next := time.Duration(0)
	late := f.late[:0]
	for _, e := range f.late {
		switch left := e.retryAt.Sub(now); {
		case e.gone:
		case left <= 0 && e.slow.Load() && f.client.cfg.Throttle.Wait(now) > 0:
			next = f.paceLocked(e, now, next)
			late = append(late, e)
		case left <= 0:
			due = append(due, e)
		default:
			late = append(late, e)
			if next == 0 || left < next {
				next = left
			}
		}
	}
	f.late = late
	f.mu.Unlock()
	for _, e := range due {
		f.touch(e, true)
	}
	return next
}

// paceLocked has a partition wait for the throttle, and gives how long the next one of all waits.
func (f *fetcher) paceLocked(e *followed, now time.Time, next time.Duration) time.Duration {
	wait := min(max(f.client.cfg.Throttle.Wait(now), time.Millisecond), paceMost)
	e.retryAt = now.Add(wait)
	if next == 0 || wait < next {
		return wait
	}
	return next
}

// again has a partition ask for more, at once unless the throttle has it wait.
func (f *fetcher) again(e *followed, took int) {
	now := time.Now()
	f.mu.Lock()
	e.failed = 0
	paced := false
	if e.slow.Load() && !e.gone {
		f.client.cfg.Throttle.Took(took, now)
		if paced = f.client.cfg.Throttle.Wait(now) > 0; paced {
			f.paceLocked(e, now, 0)
			f.late = append(f.late, e)
		}
	}
	f.mu.Unlock()
	f.touch(e, !paced) // how far it is, is told in any case
}

// read applies answers.
func (f *fetcher) read(c net.Conn) error {
	r := bufio.NewReaderSize(c, bufferBytes)
	var buf []byte
	for {
		var err error
		if buf, err = readFrame(r, buf); err != nil {
			return err
		}
		for x := (&cursor{b: buf}); len(x.b) > 0; {
			a, ok := x.answer()
			if !ok {
				return errForm
			}
			f.take(&a)
		}
		if cap(buf) > 4*answerBytes {
			buf = nil // one large batch must not hold its memory for ever
		}
	}
}

func (f *fetcher) take(a *answer) {
	f.mu.Lock()
	e := f.parts[a.key]
	f.mu.Unlock()
	if e == nil || e.epoch != a.fetch.At.Epoch {
		return // of what it was before
	}
	switch a.status {
	case statusRefused:
		f.postpone(e, nil)
		return
	case statusMoved:
		_ = e.part.Apply(&a.fetch) // only a high watermark, which comes again
		return
	}
	if a.status != statusRecords {
		f.client.cfg.Logger.Info("a replica's log is cut to its leader's", "topic", e.part.Topic, "partition", e.part.ID,
			"log_end", a.fetch.At.LogEnd, "leader_epoch", a.fetch.Answer.Epoch, "leader_end", a.fetch.Answer.End, "leader_start", a.fetch.Answer.LogStart)
	}
	if err := e.part.Apply(&a.fetch); err != nil {
		f.postpone(e, err)
		return
	}
	f.again(e, len(a.fetch.Batches))
}
