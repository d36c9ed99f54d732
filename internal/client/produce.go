package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
)

// Limits and waits of Produce.
const (
	maxBatchRecords = 1_000_000
	maxBatchBytes   = 16 << 20 // a batch is sent when it has grown to this
	produceTimeout  = 90 * time.Second
	retryFirst      = 100 * time.Millisecond
	retryMost       = 2 * time.Second
	retryFor        = 2 * time.Minute // as Kafka's delivery.timeout.ms
	// maxOnceBytes bounds a batch whose request has a key: what of it goes to one partition is
	// one batch of the log, which max.message.bytes bounds, 1 MiB unless it was set.
	maxOnceBytes = 900 << 10
)

// ProduceOptions say how Produce reads and sends.
type ProduceOptions struct {
	Topic    string
	Format   Format
	Fixed    Fixed         // of each record, where the format has values alone
	KeyField string        // take each record's key from this field of its JSON value
	Acks     string        // all, leader or none
	Batch    int           // records in a request
	Linger   time.Duration // how long a batch that is not full waits for more input
	Once     bool          // store each request once, however often it is sent
	Progress func(ProduceSummary)
	Waiting  func(lines string, why error) // before a request is tried again for the first time
}

// ProduceSummary counts what became of the input.
type ProduceSummary struct {
	Lines    int64 // lines read
	Stored   int64 // records stored as acks asks
	Accepted int64 // records taken with acks=none, whose fate is not told
	Failed   int64 // records certainly not stored
	Unknown  int64 // records of which it is not known
	Requests int64
	Retries  int64

	Partitions map[model.PartitionID]OffsetRange
}

// OffsetRange is the lowest and highest offset that a partition's records were given;
// others' records may lie between.
type OffsetRange struct {
	First   model.Offset
	Last    model.Offset
	Records int64
}

// Produce reads records from in and sends them in batches, one request at a time, so
// that records keep their order. It stops at the first line that is no record, after
// sending those before it, and at the first request that fails.
//
// A request that may succeed later is tried again for two minutes. With Once each has an
// Idempotency-Key, so that one whose fate is not known is among them: the server gives what
// it stored the first time. Without, only what was certainly not applied is tried again.
// The summary is exact in every case.
func (c *Client) Produce(ctx context.Context, in io.Reader, o ProduceOptions) (ProduceSummary, error) {
	p := &producer{c: c, o: o, lines: lineReader{format: o.Format, keyField: o.KeyField, fixed: o.Fixed.members()}}
	p.sum.Partitions = map[model.PartitionID]OffsetRange{}
	if p.o.Batch <= 0 || p.o.Batch > maxBatchRecords {
		return p.sum, fmt.Errorf("a batch has 1 to %d records", maxBatchRecords)
	}
	if o.Once {
		p.keys = rand.Text()
	}
	p.clear()
	g := lifecycle.New(ctx)
	defer func() { _ = g.Stop(0) }() // a Read that blocks cannot be ended
	chunks := make(chan []byte, 2)
	var readErr error // written before chunks is closed
	g.Go("read input", func(ctx context.Context) {
		defer close(chunks)
		read := readChunks
		if o.Format == Raw {
			read = readWhole
		}
		readErr = read(ctx, in, chunks)
	})
	err := p.run(ctx, chunks)
	if err == nil {
		err = readErr
	}
	if errors.Is(err, errLongLine) {
		err = &LineError{Line: p.sum.Lines + 1, Err: err}
	}
	return p.sum, err
}

// producer is one run of Produce.
type producer struct {
	c     *Client
	o     ProduceOptions
	lines lineReader
	sum   ProduceSummary
	keys  string // begins the Idempotency-Keys of this run; "": its requests have none
	key   int64  // numbers them

	body    []byte  // the request being built, without its end
	numbers []int64 // the line of each of its records
}

const (
	bodyStart = `{"records":[`
	bodyEnd   = `]}`
)

func (p *producer) clear() {
	p.body = append(p.body[:0], bodyStart...)
	p.numbers = p.numbers[:0]
}

// run builds batches of chunks until they end.
func (p *producer) run(ctx context.Context, chunks <-chan []byte) error {
	linger := time.NewTimer(0)
	defer linger.Stop()
	for {
		var full <-chan time.Time
		if len(p.numbers) > 0 {
			full = linger.C
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-full:
			if err := p.flush(ctx); err != nil {
				return err
			}
		case chunk, ok := <-chunks:
			if !ok {
				return p.flush(ctx)
			}
			waiting := len(p.numbers) > 0
			add := p.add
			if p.o.Format == Raw {
				add = p.addWhole
			}
			if err := add(ctx, chunk); err != nil {
				return err
			}
			if !waiting {
				linger.Reset(p.o.Linger)
			}
		}
	}
}

// add puts the lines of a chunk into batches and sends those that are full.
func (p *producer) add(ctx context.Context, chunk []byte) error {
	for len(chunk) > 0 {
		line := chunk
		if i := bytes.IndexByte(chunk, '\n'); i >= 0 {
			line, chunk = chunk[:i], chunk[i+1:]
		} else {
			chunk = nil
		}
		p.sum.Lines++
		start := len(p.body)
		if len(p.numbers) > 0 {
			p.body = append(p.body, ',')
		}
		before := len(p.body)
		body, err := p.lines.appendRecord(p.body, line)
		if err != nil {
			p.body = p.body[:start]
			return errors.Join(&LineError{Line: p.sum.Lines, Err: err}, p.flush(ctx))
		}
		if p.body = body; len(body) == before { // nothing on this line
			p.body = body[:start]
			continue
		}
		p.numbers = append(p.numbers, p.sum.Lines)
		if len(p.numbers) >= p.o.Batch || len(p.body) >= p.most() {
			if err := p.flush(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// addWhole makes one record of the whole input.
func (p *producer) addWhole(ctx context.Context, input []byte) error {
	p.sum.Lines++
	body, err := p.lines.appendValue(p.body, input)
	if err != nil {
		return err
	}
	p.body, p.numbers = body, append(p.numbers, p.sum.Lines)
	return p.flush(ctx)
}

// flush sends the batch, if there is one.
func (p *producer) flush(ctx context.Context) error {
	if len(p.numbers) == 0 {
		return nil
	}
	p.body = append(p.body, bodyEnd...)
	answer, err := p.send(ctx)
	if err == nil {
		err = p.take(answer)
	} else if certainlyNot(err) {
		p.sum.Failed += int64(len(p.numbers))
		err = fmt.Errorf("%s not stored: %w", p.span(), err)
	} else {
		p.sum.Unknown += int64(len(p.numbers))
		err = fmt.Errorf("%s may or may not be stored: %w", p.span(), err)
	}
	p.clear()
	if p.o.Progress != nil {
		p.o.Progress(p.sum)
	}
	return err
}

// span names the lines of the batch.
func (p *producer) span() string {
	first, last := p.numbers[0], p.numbers[len(p.numbers)-1]
	if first == last {
		return fmt.Sprintf("line %d", first)
	}
	return fmt.Sprintf("lines %d to %d", first, last)
}

// certainlyNot reports whether a write that failed so was not applied.
func certainlyNot(err error) bool {
	var p *Problem
	if errors.As(err, &p) {
		return p.Outcome == model.NotApplied || p.Outcome == model.NoOutcome && p.Status < 500
	}
	var t *TransportError
	return errors.As(err, &t) && t.NotSent
}

// most is how large a batch grows.
func (p *producer) most() int {
	if p.keys != "" {
		return maxOnceBytes
	}
	return maxBatchBytes
}

// send posts the batch; it waits and tries again while that is safe and may help.
func (p *producer) send(ctx context.Context) (*results, error) {
	m := message{method: http.MethodPost, path: Path("v1", "topics", p.o.Topic, "records"), query: url.Values{"acks": {p.o.Acks}}, body: p.body}
	if p.keys != "" {
		p.key++
		m.key = fmt.Sprintf("%s-%d", p.keys, p.key)
	}
	wait := retryFirst
	for waited := time.Duration(0); ; {
		p.sum.Requests++
		answer, err := p.once(ctx, m)
		if m.key != "" && p.withoutKey(err) {
			m.key = ""
			continue
		}
		why := err
		if why == nil {
			why = answer.firstProblem()
		}
		if why == nil || waited >= retryFor || !p.again(m, why) {
			return answer, err
		}
		if waited == 0 && p.o.Waiting != nil {
			p.o.Waiting(p.span(), why)
		}
		pause := max(wait, retryAfter(why))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return answer, err
		}
		p.sum.Retries++
		waited += pause
		wait = min(2*wait, retryMost)
	}
}

func (p *producer) once(ctx context.Context, m message) (*results, error) {
	ctx, cancel := context.WithTimeout(ctx, produceTimeout)
	defer cancel()
	body, err := p.c.send(ctx, m)
	if err != nil {
		return nil, err
	}
	return p.read(body)
}

// withoutKey reports whether a request is to go on without its key: it was refused because the
// topic remembers none, as all others will be, or since its records are no single batch.
func (p *producer) withoutKey(err error) bool {
	var problem *Problem
	if !errors.As(err, &problem) || !certainlyNot(err) {
		return false
	}
	for _, f := range problem.Fields {
		if f.Pointer == "header:"+idempotencyKey {
			p.keys = ""
			return true
		}
	}
	return problem.Code == model.RecordTooLarge && len(p.numbers) > 1
}

// again reports whether the same request may be sent once more, and whether that may help.
func (p *producer) again(m message, why error) bool {
	var problem *Problem
	if errors.As(why, &problem) {
		return (problem.Retryable || problem.Code == "" && problem.Status >= 500) && (m.key != "" || certainlyNot(why))
	}
	var t *TransportError
	// A server that was never reached may have another address.
	return m.key != "" && errors.As(why, &t) && (!t.NotSent || p.sum.Requests > 1)
}

func retryAfter(err error) time.Duration {
	var p *Problem
	if errors.As(err, &p) {
		return p.RetryAfter
	}
	return 0
}

// result is one record's place in a produce answer.
type result struct {
	Partition model.PartitionID `json:"partition"`
	Offset    model.Offset      `json:"offset"`
	Problem   *Problem          `json:"problem"`
}

// results is the answer to a batch.
type results struct {
	Results  []result `json:"results"`
	Accepted int64    `json:"accepted"`
}

// firstProblem is why a record was not stored, of one that may be stored later if there is such.
func (r *results) firstProblem() error {
	var first *Problem
	for i := range r.Results {
		if p := r.Results[i].Problem; p != nil && (first == nil || !first.Retryable && p.Retryable) {
			first = p
		}
	}
	if first == nil {
		return nil
	}
	return first
}

func (p *producer) read(body []byte) (*results, error) {
	var r results
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, fmt.Errorf("the answer cannot be read: %w", err)
	}
	if p.o.Acks != "none" && len(r.Results) != len(p.numbers) {
		return nil, fmt.Errorf("%d results came for %d records", len(r.Results), len(p.numbers))
	}
	return &r, nil
}

// take counts an answer. Its error is the first record's that failed.
func (p *producer) take(answer *results) error {
	if p.o.Acks == "none" {
		p.sum.Accepted += answer.Accepted
		return nil
	}
	var first error
	for i, r := range answer.Results {
		if err := p.countOne(r, p.numbers[i]); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (p *producer) countOne(r result, line int64) error {
	switch {
	case r.Problem == nil:
		p.sum.Stored++
		at, seen := p.sum.Partitions[r.Partition]
		if !seen {
			at = OffsetRange{First: r.Offset, Last: r.Offset}
		}
		at.First, at.Last, at.Records = min(at.First, r.Offset), max(at.Last, r.Offset), at.Records+1
		p.sum.Partitions[r.Partition] = at
		return nil
	case r.Problem.Outcome == model.NotApplied:
		p.sum.Failed++
		return fmt.Errorf("line %d not stored: %w", line, r.Problem)
	}
	p.sum.Unknown++
	return fmt.Errorf("line %d may or may not be stored: %w", line, r.Problem)
}
