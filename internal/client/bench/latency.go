package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"
	"sync"
	"time"

	"tidewire/internal/client"
	"tidewire/internal/lifecycle"
)

const (
	latencyWait  = 2 * time.Second  // of each long poll
	latencyGrace = 15 * time.Second // for the last records to come
	seqDigits    = 10
)

// Latency sends records one by one to partition 0 and reads them by long poll on a
// second connection. It reports how long the answers took, and the time from sending a
// record to holding it as a consumer.
func Latency(ctx context.Context, c *client.Client, o Options) (*Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	t := &target{base: c.Base(), tokens: c.Tokens()}
	send, err := t.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer send.close()
	recv, err := t.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer recv.close()
	l := newLatencyRun(o)
	if err := l.findEnd(ctx, recv); err != nil {
		return nil, err
	}
	g := lifecycle.New(ctx)
	readErr := make(chan error, 1)
	g.Go("long poll", func(ctx context.Context) { readErr <- l.receive(ctx, recv) })
	start := time.Now()
	l.send(ctx, send)
	took := time.Since(start)
	err = l.await(ctx, readErr)
	if serr := g.Stop(callTimeout); err == nil {
		err = serr
	}
	if err != nil {
		return nil, err
	}
	r := l.sent.report(Report{Kind: "latency", Topic: o.Topic, Acks: o.Acks, Connections: 2, Batch: 1}, took)
	r.EndToEnd = l.endToEnd.latency()
	return r, nil
}

// latencyRun is one measurement. Values begin with a mark of the run and a number.
type latencyRun struct {
	o    Options
	mark []byte
	at   int64 // where the receiver reads next

	sent     tally
	endToEnd histogram // of the receiver until it has ended

	mu      sync.Mutex
	started map[int64]time.Time // guarded by mu: number → when it was sent
	over    bool                // guarded by mu: no more will be sent
}

func newLatencyRun(o Options) *latencyRun {
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails
	return &latencyRun{o: o, mark: []byte("tw-" + hex.EncodeToString(id) + "-"), started: map[int64]time.Time{}}
}

func (l *latencyRun) findEnd(ctx context.Context, cn *conn) error {
	answer, err := cn.do(ctx, fetchPath(l.o.Topic, 0, "latest", l.o, 0), nil)
	if err != nil {
		return err
	}
	l.at, err = nextOffset(answer)
	return err
}

func (l *latencyRun) send(ctx context.Context, cn *conn) {
	defer func() {
		l.mu.Lock()
		l.over = true
		l.mu.Unlock()
	}()
	path := client.Path("v1", "topics", l.o.Topic, "partitions", "0", "records") + "?acks=" + url.QueryEscape(l.o.Acks)
	pad := bytes.Repeat([]byte("."), max(0, l.o.Size-len(l.mark)-seqDigits))
	var tick <-chan time.Time
	if l.o.Rate > 0 {
		t := time.NewTicker(max(1, time.Duration(float64(time.Second)/l.o.Rate)))
		defer t.Stop()
		tick = t.C
	}
	one := job{path: path, o: l.o}
	one.o.Batch = 1
	for seq := range l.o.Records {
		if tick != nil {
			select {
			case <-tick:
			case <-ctx.Done():
				return
			}
		}
		body := fmt.Appendf(nil, `{"records":[{"value":"%s%0*d%s"}]}`, l.mark, seqDigits, seq, pad)
		l.mu.Lock()
		l.started[seq] = time.Now()
		l.mu.Unlock()
		before := l.sent.errors
		if !l.sent.send(ctx, cn, body, &one) {
			return
		}
		if l.sent.errors > before {
			l.mu.Lock()
			delete(l.started, seq) // it may never come
			l.mu.Unlock()
		}
	}
}

// done reports whether all records that were stored have come.
func (l *latencyRun) done() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over && len(l.started) == 0
}

func (l *latencyRun) receive(ctx context.Context, cn *conn) error {
	for !l.done() {
		answer, err := cn.do(ctx, fetchPath(l.o.Topic, 0, strconv.FormatInt(l.at, 10), l.o, latencyWait), nil)
		if err != nil {
			return err
		}
		now := time.Now()
		if l.at, err = nextOffset(answer); err != nil {
			return err
		}
		l.take(answer, now)
	}
	return nil
}

// take finds this run's records in an answer.
func (l *latencyRun) take(answer []byte, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		i := bytes.Index(answer, l.mark)
		if i < 0 || len(answer) < i+len(l.mark)+seqDigits {
			return
		}
		answer = answer[i+len(l.mark):]
		seq, err := strconv.ParseInt(string(answer[:seqDigits]), 10, 64)
		if err != nil {
			continue
		}
		if at, ok := l.started[seq]; ok {
			l.endToEnd.add(now.Sub(at))
			delete(l.started, seq)
		}
	}
}

// await waits for the receiver to have seen everything.
func (l *latencyRun) await(ctx context.Context, ended <-chan error) error {
	grace := time.NewTimer(latencyGrace)
	defer grace.Stop()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-grace.C:
		l.mu.Lock()
		defer l.mu.Unlock()
		return fmt.Errorf("%d records did not come within %s", len(l.started), latencyGrace)
	}
}
