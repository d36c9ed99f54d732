package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"tidewire/internal/client"
	"tidewire/internal/lifecycle"
)

// Options say what is measured. Produce uses all but MaxBytes and Rate.
type Options struct {
	Topic       string
	Records     int64 // to send or to read; of Consume, 0 means up to the end
	Size        int   // bytes of a value
	Batch       int   // records in a request; of Consume, at most so many in an answer
	Connections int
	Acks        string
	Keys        int // different keys; 0: records without key
	MaxBytes    int64
	Format      string  // of Consume: json (also ""), or binary for stored batches
	Rounds      int     // of Consume: how often the topic is read; 0 is once
	Rate        float64 // of Latency and Fanout: records a second; 0: as fast as goes

	MaxRecords int // of Fanout: in one frame; 0: as the server has it

	Window int64         // of Fanout: how many records the slowest reader may be behind
	Hold   time.Duration // of Idle: how long the sockets are open before memory is read
	PID    int           // of Idle: the server's process, on this machine; 0: its /metrics are asked

	Done *atomic.Int64 // counts records, or sockets, while it goes on; nil: nobody looks
}

// note counts what is done, for who looks on.
func (o *Options) note(n int64) {
	if o.Done != nil {
		o.Done.Add(n)
	}
}

// Formats of Consume.
const (
	FormatJSON   = "json"
	FormatBinary = "binary"
)

// maxErrors ends a connection's part of a measurement.
const maxErrors = 100

// maxBodies bounds the different prebuilt requests.
const maxBodies = 64

// bodies builds the requests that connections send in turn, so that all keys occur as
// long as 64 requests hold them.
func bodies(o Options) [][]byte {
	n := 1
	if o.Keys > 0 {
		n = min(maxBodies, (o.Keys+o.Batch-1)/o.Batch)
	}
	value := bytes.Repeat([]byte("tidewire-"), o.Size/9+1)[:o.Size]
	out := make([][]byte, n)
	for i := range out {
		b := []byte(`{"records":[`)
		for j := range o.Batch {
			if j > 0 {
				b = append(b, ',')
			}
			b = append(b, '{')
			if o.Keys > 0 {
				b = append(b, `"key":"key-`...)
				b = strconv.AppendInt(b, int64((i*o.Batch+j)%o.Keys), 10)
				b = append(b, `",`...)
			}
			b = append(b, `"value":"`...)
			b = append(b, value...)
			b = append(b, `"}`...)
		}
		out[i] = append(b, `]}`...)
	}
	return out
}

// Check tells what is wrong with the options.
func (o *Options) Check() error {
	switch {
	case o.Topic == "":
		return errors.New("a topic is needed")
	case o.Window < 0 || o.Hold < 0 || o.PID < 0 || o.Records < 0 || o.Size < 0 || o.Keys < 0 || o.Rate < 0 || o.MaxBytes < 0:
		return errors.New("a number must not be negative")
	case o.Batch < 1 || o.Batch > 1_000_000:
		return errors.New("a batch has 1 to 1000000 records")
	case o.Format != "" && o.Format != FormatJSON && o.Format != FormatBinary:
		return errors.New("the format is json or binary")
	case o.Rounds < 0:
		return errors.New("rounds are 1 or more")
	case o.Connections < 1 || o.Connections > 10_000:
		return errors.New("connections are 1 to 10000")
	}
	return nil
}

// Produce sends o.Records records as fast as the connections allow, each with one
// request in flight, and reports how it went. It ends early with ctx.
func Produce(ctx context.Context, c *client.Client, o Options) (*Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	reqs := (o.Records + int64(o.Batch) - 1) / int64(o.Batch)
	o.Connections = int(max(1, min(int64(o.Connections), reqs)))
	j := job{
		path:   client.Path("v1", "topics", o.Topic, "records") + "?acks=" + url.QueryEscape(o.Acks),
		bodies: bodies(o), requests: reqs, o: o,
	}
	total, took, ok, err := produceLoop(ctx, &target{base: c.Base(), tokens: c.Tokens()}, j)
	if !ok {
		total, took, err = produceAlone(ctx, c, j)
	}
	if err != nil {
		return nil, err
	}
	return total.report(Report{Kind: "produce", Topic: o.Topic, Acks: o.Acks, Connections: o.Connections, Batch: o.Batch}, took), nil
}

// job is what the connections of a measurement send together.
type job struct {
	path     string
	bodies   [][]byte
	requests int64
	o        Options // how many records of which size a body holds
}

// share is how many requests connection i sends.
func (j *job) share(i int) int64 {
	n := j.requests / int64(j.o.Connections)
	if int64(i) < j.requests%int64(j.o.Connections) {
		n++
	}
	return n
}

// produceAlone does the job with a goroutine for each connection.
func produceAlone(ctx context.Context, c *client.Client, j job) (*tally, time.Duration, error) {
	return fanOut(ctx, c, j.o.Connections, func(ctx context.Context, n int, cn *conn, t *tally) {
		for i := range j.share(n) {
			if !t.send(ctx, cn, j.bodies[(n+int(i))%len(j.bodies)], &j) {
				return
			}
		}
	})
}

// multiStatus is the status of an answer in which some records failed.
const multiStatus = 207

// statusError is what is wrong with an answer to a produce request.
func statusError(status int, body []byte) error {
	switch {
	case status >= 300:
		return &errStatus{status: status, body: string(body)}
	case status == multiStatus:
		return fmt.Errorf("some records failed: %.300s", body)
	}
	return nil
}

// send makes one request, counts it and reports whether to go on.
func (t *tally) send(ctx context.Context, cn *conn, body []byte, j *job) bool {
	start := time.Now()
	answer, err := cn.do(ctx, j.path, body)
	if ctx.Err() != nil {
		return false
	}
	if err == nil {
		err = statusError(cn.status, answer)
	}
	t.count(err, time.Since(start), j)
	return t.errors < maxErrors
}

// count notes one request and how long it took.
func (t *tally) count(err error, took time.Duration, j *job) {
	t.requests++
	if err != nil {
		t.fail(err)
		return
	}
	t.hist.add(took)
	j.o.note(int64(j.o.Batch))
	t.records += int64(j.o.Batch)
	t.bytes += int64(j.o.Batch * j.o.Size)
}

// fanOut runs work on n connections at once and adds up their tallies.
func fanOut(ctx context.Context, c *client.Client, n int, work func(ctx context.Context, n int, cn *conn, t *tally)) (*tally, time.Duration, error) {
	t := &target{base: c.Base(), tokens: c.Tokens()}
	conns := make([]*conn, n)
	for i := range conns {
		var err error
		if conns[i], err = t.dial(ctx); err != nil {
			return nil, 0, err
		}
	}
	tallies := make([]tally, n)
	done := make(chan struct{}, n)
	g := lifecycle.New(ctx)
	start := time.Now()
	for i := range conns {
		g.Go(fmt.Sprintf("connection %d", i), func(ctx context.Context) {
			defer func() { conns[i].close(); done <- struct{}{} }()
			work(ctx, i, conns[i], &tallies[i])
		})
	}
	for range conns {
		<-done
	}
	took := time.Since(start)
	total := &tally{}
	for i := range tallies {
		total.merge(&tallies[i])
	}
	return total, took, g.Stop(dialTimeout)
}
