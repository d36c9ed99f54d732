package bench

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"time"

	"tidewire/internal/client"
	"tidewire/internal/lifecycle"
)

// Spread is how the readers of a fan-out fared, in records/s.
type Spread struct {
	Readers int     `json:"readers"`
	Slowest float64 `json:"slowest_records_per_s"`
	Median  float64 `json:"median_records_per_s"`
	Fastest float64 `json:"fastest_records_per_s"`
	Frames  int64   `json:"frames"` // that brought records, of all readers
}

// Fanout has o.Connections WebSockets read a topic from its latest on, beside one producer
// that sends o.Records records, and reports what was delivered to all of them together.
// The producer goes on as long as the slowest reader is at most o.Window records behind.
// The report's records and rates are of what was delivered, requests and their latency of
// the producer, and the end-to-end latency is how old the first record of each frame was
// when the frame was there (by milliseconds, and by the clocks of both machines). Nobody
// else may write to the topic meanwhile.
func Fanout(ctx context.Context, c *client.Client, o Options) (*Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	s, err := openSockets(ctx, c, &o)
	defer s.close()
	if err != nil {
		return nil, err
	}
	// Whole requests are sent, so that the last record of all comes.
	requests := (o.Records + int64(o.Batch) - 1) / int64(o.Batch)
	s.want = requests * int64(o.Batch)
	f := &fanout{s: s, o: o, pace: s.watch()}
	all := s.watch()
	g := lifecycle.New(ctx)
	followed := make(chan error, 1)
	g.Go("read sockets", func(ctx context.Context) { followed <- s.follow(ctx) })
	err = f.measure(ctx, c, all, requests)
	err = errors.Join(err, g.Stop(callTimeout), <-followed)
	if err != nil {
		return nil, err
	}
	return f.report(), nil
}

// fanout is one measurement.
type fanout struct {
	s     *sockets
	o     Options
	pace  <-chan struct{} // of the producer
	sent  tally
	start time.Time
}

func (f *fanout) measure(ctx context.Context, c *client.Client, all <-chan struct{}, requests int64) error {
	n := len(f.s.all)
	if err := f.s.await(ctx, all, func(st state) bool { return st.assigned+st.ended == n }, nil); err != nil {
		return err
	}
	if st := f.s.state(); st.ended > 0 {
		return st.err
	}
	g := lifecycle.New(ctx)
	produced, over := make(chan error, 1), make(chan struct{})
	f.start = time.Now()
	g.Go("produce", func(ctx context.Context) {
		defer close(over)
		if err := f.produce(ctx, c, requests); err != nil {
			produced <- err
		}
	})
	var shown int64
	enough := func(st state) bool {
		f.o.note(st.records - shown)
		shown = st.records
		return st.full+st.ended >= n
	}
	err := f.s.await(ctx, all, enough, produced)
	if err == nil && f.s.state().full > 0 { // all is sent, and the last answer is on its way
		select {
		case <-over:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	return errors.Join(err, g.Stop(callTimeout))
}

// produce sends the requests one after the other over one connection.
func (f *fanout) produce(ctx context.Context, c *client.Client, requests int64) error {
	t := &target{base: c.Base(), tokens: c.Tokens()}
	cn, err := t.dial(ctx)
	if err != nil {
		return err
	}
	defer cn.close()
	o := f.o
	o.Done = nil // what is delivered is counted
	j := &job{path: client.Path("v1", "topics", o.Topic, "records") + "?acks=" + url.QueryEscape(o.Acks), bodies: bodies(o), o: o}
	for i := range requests {
		if err := f.hold(ctx, i*int64(o.Batch)); err != nil {
			return nil // the measurement was over before
		}
		if !f.sent.send(ctx, cn, j.bodies[i%int64(len(j.bodies))], j) || f.sent.errors > 0 {
			return errors.Join(errProducing, f.sent.firstError())
		}
	}
	return nil
}

var errProducing = errors.New("the producer failed, so the readers wait in vain")

// hold waits until the producer may send on, having sent so many records.
func (f *fanout) hold(ctx context.Context, sent int64) error {
	if f.o.Rate > 0 {
		due := time.NewTimer(time.Until(f.start.Add(time.Duration(float64(sent) / f.o.Rate * float64(time.Second)))))
		defer due.Stop()
		select {
		case <-due.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if f.o.Window == 0 {
		return nil
	}
	for {
		st := f.s.state()
		if st.ended == len(f.s.all) || sent-st.slowest <= f.o.Window {
			return nil
		}
		select {
		case <-f.pace:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (f *fanout) report() *Report {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	total := tally{hist: f.sent.hist, requests: f.sent.requests, errors: f.sent.errors, problems: f.sent.problems}
	spread := &Spread{Readers: len(f.s.all)}
	lag := &histogram{}
	var last time.Time
	var rates []float64
	for _, x := range f.s.all {
		if x.err != nil && x.full.IsZero() {
			total.fail(x.err)
			continue
		}
		total.records += x.frames.records
		total.bytes += x.frames.bytes
		spread.Frames += x.frames.count
		lag.merge(&x.frames.lag)
		rates = append(rates, float64(x.frames.records)/x.full.Sub(f.start).Seconds())
		if x.full.After(last) {
			last = x.full
		}
	}
	if slices.Sort(rates); len(rates) > 0 {
		spread.Slowest, spread.Median, spread.Fastest = rates[0], rates[len(rates)/2], rates[len(rates)-1]
	}
	r := total.report(Report{Kind: "fanout", Topic: f.o.Topic, Acks: f.o.Acks, Connections: len(f.s.all), Batch: f.o.Batch}, last.Sub(f.start))
	r.EndToEnd, r.Spread = lag.latency(), spread
	return r
}
