package client

import (
	"bytes"
	"context"
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
	retryFor        = 30 * time.Second
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
	Progress func(ProduceSummary)
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
// sending those before it, and at the first request that fails; a request that the
// server certainly did not apply and calls retryable is tried again for 30 s. The
// summary is exact in every case.
func (c *Client) Produce(ctx context.Context, in io.Reader, o ProduceOptions) (ProduceSummary, error) {
	p := &producer{c: c, o: o, lines: lineReader{format: o.Format, keyField: o.KeyField, fixed: o.Fixed.members()}}
	p.sum.Partitions = map[model.PartitionID]OffsetRange{}
	if p.o.Batch <= 0 || p.o.Batch > maxBatchRecords {
		return p.sum, fmt.Errorf("a batch has 1 to %d records", maxBatchRecords)
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
		if len(p.numbers) >= p.o.Batch || len(p.body) >= maxBatchBytes {
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
		err = p.count(answer)
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

// send posts the batch; it waits and tries again while that is safe and may help.
func (p *producer) send(ctx context.Context) ([]byte, error) {
	m := message{method: http.MethodPost, path: Path("v1", "topics", p.o.Topic, "records"), query: url.Values{"acks": {p.o.Acks}}, body: p.body}
	wait := retryFirst
	for waited := time.Duration(0); ; {
		p.sum.Requests++
		once, cancel := context.WithTimeout(ctx, produceTimeout)
		answer, err := p.c.send(once, m)
		cancel()
		var problem *Problem
		if !errors.As(err, &problem) || !problem.Retryable || !certainlyNot(err) || waited >= retryFor {
			return answer, err
		}
		pause := max(wait, problem.RetryAfter)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, err
		}
		p.sum.Retries++
		waited += pause
		wait = min(2*wait, retryMost)
	}
}

// result is one record's place in a produce answer.
type result struct {
	Partition model.PartitionID `json:"partition"`
	Offset    model.Offset      `json:"offset"`
	Problem   *Problem          `json:"problem"`
}

// count reads an answer. Its error is the first record's that failed.
func (p *producer) count(body []byte) error {
	var answer struct {
		Results  []result `json:"results"`
		Accepted int64    `json:"accepted"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		p.sum.Unknown += int64(len(p.numbers))
		return fmt.Errorf("%s may or may not be stored; the answer cannot be read: %w", p.span(), err)
	}
	if p.o.Acks == "none" {
		p.sum.Accepted += answer.Accepted
		return nil
	}
	if len(answer.Results) != len(p.numbers) {
		p.sum.Unknown += int64(len(p.numbers))
		return fmt.Errorf("%s may or may not be stored: %d results came for %d records", p.span(), len(answer.Results), len(p.numbers))
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
