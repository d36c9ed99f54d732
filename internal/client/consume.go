package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
)

// How Consume reads.
const (
	pageRecords = "10000"
	pageBytes   = "8388608"
	followWait  = 20 * time.Second // of a long poll
	boundedWait = time.Second      // where records are known to be there
	fetchExtra  = 30 * time.Second // beyond the wait, until an answer is given up
)

// ConsumeOptions say what Consume reads.
type ConsumeOptions struct {
	Topics     []string
	Partitions []model.PartitionID // nil: all
	From       string              // earliest, latest or milliseconds since 1970
	Offset     *model.Offset       // in place of From: where each partition starts
	Follow     bool                // go on at the end; without it, stop at the latest offset of the start
	Max        int64               // stop after so many records; 0: no bound
	Search     Search              // which records; the zero value takes all
	Warn       func(string)        // told of gaps and of waits; may be nil
}

// Search narrows what Consume reads, by the interface's parameters of these names.
type Search struct {
	To  string // milliseconds since 1970: only records before that time
	Q   string // only records that contain this, byte for byte
	QIn string // where Q is looked for: key, value and headers, separated by commas; "": everywhere
	Key string // only records with this key
}

// Consume reads partitions and hands each record to emit as the server's bytes, one
// JSON object without line breaks, valid during the call. emit is called by one goroutine
// at a time, with the records of a partition in order; without Follow the partitions come
// one after the other. It returns how many records were handed out.
//
// Follow and Search read each topic as one stream, by time; Follow takes in partitions
// that are added. From an Offset on Follow reads each partition by long polls.
func (c *Client) Consume(ctx context.Context, o ConsumeOptions, emit func(raw []byte) error) (int64, error) {
	r := &reader{c: c, o: o, emit: emit}
	err := r.run(ctx)
	if errors.Is(err, errEnough) {
		err = nil
	}
	return r.n, err
}

func (r *reader) run(ctx context.Context) error {
	switch {
	case r.o.Follow && r.o.Offset == nil:
		return together(ctx, r.o.Topics, r.followTopic)
	case r.o.Search != Search{}:
		for _, topic := range r.o.Topics {
			if err := r.followTopic(ctx, topic); err != nil {
				return err
			}
		}
		return nil
	}
	var work []*cursor
	for _, topic := range r.o.Topics {
		cs, err := r.cursors(ctx, topic)
		if err != nil {
			return err
		}
		work = append(work, cs...)
	}
	if r.o.Follow {
		return together(ctx, work, r.followOne)
	}
	for _, cur := range work {
		if err := r.read(ctx, cur); err != nil {
			return err
		}
	}
	return nil
}

// errEnough ends reading once Max records were handed out.
var errEnough = errors.New("enough records")

// reader is one run of Consume.
type reader struct {
	c *Client
	o ConsumeOptions

	mu    sync.Mutex
	emit  func([]byte) error // called under mu, which keeps the output's lines whole
	n     int64              // guarded by mu: records handed out
	ended bool               // guarded by mu: nothing may be handed out any more
}

// cursor is a position in one partition.
type cursor struct {
	topic     string
	partition model.PartitionID
	next      model.Offset
	end       model.Offset // without Follow: where reading stops
}

// partitionOffset is an item of a topic's offsets; nil where no record is that young.
type partitionOffset struct {
	Partition model.PartitionID `json:"partition"`
	Offset    *model.Offset     `json:"offset"`
}

// offsets asks for the offset of each partition at a time: earliest, latest or
// milliseconds since 1970.
func (c *Client) offsets(ctx context.Context, topic, at string) ([]partitionOffset, error) {
	var out struct {
		Offsets []partitionOffset `json:"offsets"`
	}
	err := c.Call(ctx, Request{Method: http.MethodGet, Path: Path("v1", "topics", topic, "offsets"), Query: url.Values{"timestamp": {at}}}, &out)
	return out.Offsets, err
}

// cursors finds where each wanted partition of a topic starts and ends.
func (r *reader) cursors(ctx context.Context, topic string) ([]*cursor, error) {
	latest, err := r.c.offsets(ctx, topic, "latest")
	if err != nil {
		return nil, err
	}
	starts := latest
	if r.o.Offset == nil && r.o.From != "latest" {
		if starts, err = r.c.offsets(ctx, topic, r.o.From); err != nil {
			return nil, err
		}
	}
	start := map[model.PartitionID]*model.Offset{}
	for _, s := range starts {
		start[s.Partition] = s.Offset
	}
	var out []*cursor
	for _, l := range latest {
		if r.o.Partitions != nil && !slices.Contains(r.o.Partitions, l.Partition) || l.Offset == nil {
			continue
		}
		cur := &cursor{topic: topic, partition: l.Partition, next: *l.Offset, end: *l.Offset}
		if at := start[l.Partition]; at != nil {
			cur.next = *at
		}
		if r.o.Offset != nil {
			cur.next = *r.o.Offset
		}
		out = append(out, cur)
	}
	for _, p := range r.o.Partitions {
		if !slices.ContainsFunc(latest, func(l partitionOffset) bool { return l.Partition == p }) {
			return nil, fmt.Errorf("topic %s has no partition %d; it has %d, numbered from 0", topic, p, len(latest))
		}
	}
	return out, nil
}

// read reads a partition up to its end.
func (r *reader) read(ctx context.Context, cur *cursor) error {
	if cur.next > cur.end { // an offset that was asked for: the server says whether it is out of range
		return r.page(ctx, cur, 0)
	}
	for cur.next < cur.end {
		if err := r.page(ctx, cur, boundedWait); err != nil {
			return err
		}
	}
	return nil
}

// together follows many things at once, until one of them ends.
func together[T any](ctx context.Context, work []T, follow func(context.Context, T) error) error {
	g := lifecycle.New(ctx)
	ended := make(chan error, len(work))
	for i, w := range work {
		g.Go(fmt.Sprintf("follow %d", i), func(ctx context.Context) { ended <- follow(ctx, w) })
	}
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return errors.Join(err, g.Stop(fetchExtra))
}

// followOne goes on after faults that may pass.
func (r *reader) followOne(ctx context.Context, cur *cursor) error {
	p := pause{wait: retryFirst}
	for {
		err := r.page(ctx, cur, followWait)
		if err == nil {
			p.wait = retryFirst
			continue
		}
		if !mayPass(err) {
			return err
		}
		r.warn("%s/%d: %v; trying again", cur.topic, cur.partition, err)
		if err := p.sleep(ctx, err); err != nil {
			return err
		}
	}
}

// mayPass tells faults after which it is worth to try again.
func mayPass(err error) bool {
	var p *Problem
	var t *TransportError
	return errors.As(err, &t) || errors.As(err, &p) && p.Retryable
}

// pause is how long to wait after a fault: longer each time, and as the server asks.
type pause struct{ wait time.Duration }

func (p *pause) sleep(ctx context.Context, fault error) error {
	wait := p.wait
	var of *Problem
	if errors.As(fault, &of) {
		wait = max(wait, of.RetryAfter)
	}
	p.wait = min(2*p.wait, retryMost)
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *reader) warn(format string, args ...any) {
	if r.o.Warn == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.o.Warn(fmt.Sprintf(format, args...))
}

// page is the answer of a fetch.
type page struct {
	Records    []json.RawMessage `json:"records"`
	NextOffset model.Offset      `json:"next_offset"`
}

// page fetches once and hands out what came.
func (r *reader) page(ctx context.Context, cur *cursor, wait time.Duration) error {
	query := url.Values{
		"offset": {strconv.FormatInt(int64(cur.next), 10)}, "max_records": {pageRecords}, "max_bytes": {pageBytes},
		"wait_ms": {strconv.FormatInt(wait.Milliseconds(), 10)},
	}
	path := Path("v1", "topics", cur.topic, "partitions", strconv.Itoa(int(cur.partition)), "records")
	once, cancel := context.WithTimeout(ctx, wait+fetchExtra)
	defer cancel()
	answer, err := r.c.send(once, message{method: http.MethodGet, path: path, query: query})
	if err != nil {
		return r.skipGap(cur, err)
	}
	var p page
	if err := json.Unmarshal(answer, &p); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	return r.handOut(cur, &p)
}

// skipGap goes on at the log start when retention has overtaken the cursor.
func (r *reader) skipGap(cur *cursor, err error) error {
	var p *Problem
	if r.o.Offset != nil || !errors.As(err, &p) || p.Code != model.OffsetOutOfRange {
		return err
	}
	var bounds struct {
		Earliest *model.Offset `json:"earliest"`
	}
	if json.Unmarshal(p.Raw, &bounds) != nil || bounds.Earliest == nil || *bounds.Earliest <= cur.next {
		return err
	}
	r.warn("%s/%d: offsets %d to %d were deleted before they were read", cur.topic, cur.partition, cur.next, *bounds.Earliest-1)
	cur.next = *bounds.Earliest
	return nil
}

func (r *reader) handOut(cur *cursor, p *page) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, raw := range p.Records {
		if r.ended {
			return errEnough
		}
		if !r.o.Follow && p.NextOffset > cur.end { // this page reaches beyond the end
			var at struct {
				Offset model.Offset `json:"offset"`
			}
			if err := json.Unmarshal(raw, &at); err != nil {
				return err
			}
			if at.Offset >= cur.end {
				break
			}
		}
		if err := r.oneLocked(raw); err != nil {
			return err
		}
	}
	cur.next = max(cur.next, p.NextOffset)
	return nil
}

func (r *reader) oneLocked(raw []byte) error {
	if bytes.IndexByte(raw, '\n') >= 0 {
		var b bytes.Buffer
		if err := json.Compact(&b, raw); err != nil {
			return err
		}
		raw = b.Bytes()
	}
	if err := r.emit(raw); err != nil {
		r.ended = true
		return err
	}
	if r.n++; r.n == r.o.Max {
		r.ended = true
		return errEnough
	}
	return nil
}
