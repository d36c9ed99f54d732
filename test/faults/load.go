//go:build linux

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/test/history"
)

const (
	topic      = "faults"
	partitions = 6
	// produceTime is the timeout_ms of every write.
	produceTime = 5 * time.Second
	// longest is how long a client waits before it asks again.
	longest = 300 * time.Millisecond
)

// load is what clients do and see.
type load struct {
	w    *World
	c    *Client
	hist history.Recorder
	seed uint64
	stop chan struct{} // of producers

	acked, failed, unknown, resent atomic.Int64 // records
	read, given                    atomic.Int64 // records read by readers, given to the group

	mu     sync.Mutex
	wrong  []string            // guarded by mu: what no client may see
	toThem map[string]struct{} // guarded by mu: values that the group was given
	top    map[int]int64       // guarded by mu: by partition, the newest `latest` of a node that is not behind
	leads  map[string]int      // guarded by mu: by partition and leader epoch, who leads
}

func newLoad(w *World, seed uint64) *load {
	return &load{w: w, c: w.Client(), seed: seed, stop: make(chan struct{}), toThem: map[string]struct{}{}, top: map[int]int64{}, leads: map[string]int{}}
}

// complain notes what no client may see.
func (l *load) complain(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.wrong) < 50 {
		l.wrong = append(l.wrong, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

func (l *load) stopped() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// random is a client's own.
func (l *load) random(name string) *rand.Rand {
	h := l.seed
	for _, b := range []byte(name) {
		h = h*1099511628211 + uint64(b)
	}
	return rand.New(rand.NewPCG(l.seed, h))
}

func (l *load) anyNode(r *rand.Rand) int { return 1 + r.IntN(len(l.w.Nodes())) }

func partitionName(p int) string { return fmt.Sprintf("%s/%d", topic, p) }

// kind is how a producer behaves.
type kind uint8

const (
	idempotent kind = iota // has a producer id, and sends again until it knows
	keyed                  // has an Idempotency-Key for each request, and sends again until it knows
	plain                  // sends everything once
	weak                   // sends everything once, with acks=leader
)

// producer writes one request after the other.
type producer struct {
	l       *load
	r       *rand.Rand
	name    string
	kind    kind
	records int // of a request
	to      int // partition, −1: by key, −2: where the broker likes

	id, epoch string // of a producer with an id
	sequence  int
}

func (l *load) producers(most int) []*producer {
	var out []*producer
	add := func(k kind, records, to int) {
		name := fmt.Sprint([]string{"idempotent", "keyed", "plain", "weak"}[k], "-", len(out))
		out = append(out, &producer{l: l, r: l.random(name), name: name, kind: k, records: records, to: to})
	}
	for p := range partitions {
		add(idempotent, 1+2*p, p)
	}
	add(keyed, 3, -2)
	add(keyed, 5, -1)
	add(weak, 2, 1)
	add(weak, 1, -1)
	for i := len(out); i < most; i++ {
		add(plain, 1+9*(i%2), []int{-1, -2, i % partitions}[i%3])
	}
	return out
}

// run writes until the load is stopped, one request every so often where each is answered.
func (p *producer) run(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for op := 0; !p.l.stopped() && ctx.Err() == nil; op++ {
		if p.kind == idempotent && p.id == "" && !p.identify(ctx) {
			continue
		}
		p.write(ctx, op)
		select {
		case <-tick.C:
		case <-p.l.stop:
		case <-ctx.Done():
		}
	}
}

func (p *producer) identify(ctx context.Context) bool {
	var got struct {
		ID    int64 `json:"producer_id"`
		Epoch int64 `json:"producer_epoch"`
	}
	a := p.l.c.At(p.l.anyNode(p.r)).Call(ctx, http.MethodPost, "/v1/producers", nil)
	if a.Into(&got) != nil {
		pause(ctx, longest)
		return false
	}
	p.id, p.epoch, p.sequence = fmt.Sprint(got.ID), fmt.Sprint(got.Epoch), 0
	return true
}

type sentRecord struct {
	Key       *string `json:"key,omitempty"`
	Value     string  `json:"value"`
	Partition *int    `json:"partition,omitempty"`
}

// write sends one request, as often as its kind may, and notes what became of it.
func (p *producer) write(ctx context.Context, op int) {
	id := fmt.Sprintf("%s/%d", p.name, op)
	body := make([]sentRecord, p.records)
	sent := make([]history.Record, p.records)
	for i := range body {
		body[i].Value = fmt.Sprintf("%s/%d", id, i)
		sent[i].Value = body[i].Value
		switch p.to {
		case -1:
			body[i].Key = &p.name
		case -2:
		default:
			body[i].Partition = &p.to
		}
	}
	acks := history.All
	if p.kind == weak {
		acks = history.Leader
	}
	p.l.hist.Add(history.Event{Type: history.Send, Client: p.name, Op: id, Acks: acks, Records: sent})
	path := fmt.Sprintf("/v1/topics/%s/records?acks=%s&timeout_ms=%d", topic, acks, produceTime.Milliseconds())
	var header []string
	switch p.kind {
	case idempotent:
		header = []string{"Tidewire-Producer-Id", p.id, "Tidewire-Producer-Epoch", p.epoch, "Tidewire-Sequence", fmt.Sprint(p.sequence)}
	case keyed:
		header = []string{"Idempotency-Key", id}
	}
	for try := 0; ; try++ {
		a := p.l.c.At(p.l.anyNode(p.r)).Call(ctx, http.MethodPost, path, map[string]any{"records": body}, header...)
		if p.settle(id, sent, &a) || ctx.Err() != nil {
			break
		}
		p.l.resent.Add(int64(len(sent)))
		if try == 0 && p.l.stopped() || !pause(ctx, min(longest, time.Duration(try+1)*20*time.Millisecond)) {
			break // how it ends stays unknown
		}
	}
	if p.sequence += p.records; p.id == "" {
		p.sequence = 0
	}
}

type produced struct {
	Results []struct {
		Partition int      `json:"partition"`
		Offset    int64    `json:"offset"`
		Problem   *Problem `json:"problem"`
	} `json:"results"`
}

// settle notes how a request ended, unless it is to be sent again.
func (p *producer) settle(id string, sent []history.Record, a *Answer) bool {
	n, outcome := int64(len(sent)), a.Outcome()
	switch outcome {
	case applied:
		return p.placed(id, sent, a)
	case notApplied, unknown:
	default:
		p.l.complain("%s: a write without an outcome: %s", id, a)
	}
	if p.again() {
		if !p.l.w.passing(a) {
			p.l.complain("%s: what is stored once in any case was refused for good: %s", id, a)
			p.id = "" // it goes on as another
			return true
		}
		return false
	}
	if a.Err == nil && a.Status == http.StatusServiceUnavailable && (outcome != notApplied || a.RetryAfter == 0) {
		p.l.complain("%s: 503 means certainly not applied, and has Retry-After: %s", id, a)
	}
	if a.Err == nil && a.Status < 500 && a.Status != http.StatusTooManyRequests {
		p.l.complain("%s: a good request was refused: %s", id, a)
	}
	p.ended(id, nil, n, outcome)
	return true
}

// again tells that the producer may send until it knows.
func (p *producer) again() bool { return p.kind == idempotent || p.kind == keyed }

func (p *producer) ended(id string, records []history.Record, n int64, outcome string) {
	if outcome == notApplied {
		p.l.failed.Add(n)
		p.l.hist.Add(history.Event{Type: history.Fail, Op: id, Records: records})
		return
	}
	p.l.unknown.Add(n)
	p.l.hist.Add(history.Event{Type: history.Unknown, Op: id, Records: records})
}

// placed notes where records are; with several partitions some may have failed.
func (p *producer) placed(id string, sent []history.Record, a *Answer) bool {
	var got produced
	if err := json.Unmarshal(a.Body, &got); err != nil || len(got.Results) != len(sent) {
		p.l.complain("%s: %s", id, a)
		return true
	}
	if p.again() {
		for _, r := range got.Results {
			if r.Problem != nil {
				return false
			}
		}
	}
	var placed []history.Record
	for i, r := range got.Results {
		if r.Problem != nil {
			p.ended(id, sent[i:i+1], 1, r.Problem.Outcome)
			continue
		}
		placed = append(placed, history.Record{Partition: partitionName(r.Partition), Offset: r.Offset, Value: sent[i].Value})
	}
	p.l.acked.Add(int64(len(placed)))
	p.l.hist.Add(history.Event{Type: history.Ack, Op: id, Records: placed})
	return true
}
