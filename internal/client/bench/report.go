package bench

import (
	"errors"
	"fmt"
	"io"
	"sort"
	"time"
)

// Distribution is how long things took, in milliseconds.
type Distribution struct {
	Mean float64 `json:"mean_ms"`
	P50  float64 `json:"p50_ms"`
	P95  float64 `json:"p95_ms"`
	P99  float64 `json:"p99_ms"`
	P999 float64 `json:"p999_ms"`
	Max  float64 `json:"max_ms"`
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (h *histogram) latency() *Distribution {
	l := &Distribution{P50: ms(h.quantile(0.5)), P95: ms(h.quantile(0.95)), P99: ms(h.quantile(0.99)), P999: ms(h.quantile(0.999)), Max: ms(h.most)}
	if h.n > 0 {
		l.Mean = ms(h.sum / time.Duration(h.n))
	}
	return l
}

// Report is the outcome of one measurement.
type Report struct {
	Kind        string           `json:"kind"` // produce, consume, latency, fanout or idle
	Topic       string           `json:"topic"`
	Acks        string           `json:"acks,omitempty"`
	Connections int              `json:"connections"`
	Batch       int              `json:"batch"`
	Records     int64            `json:"records"` // that succeeded
	Requests    int64            `json:"requests"`
	Errors      int64            `json:"errors"` // requests that failed
	Seconds     float64          `json:"seconds"`
	RecordsPerS float64          `json:"records_per_s"`
	RequestsS   float64          `json:"requests_per_s"`
	MBPerS      float64          `json:"mb_per_s"` // 10^6 bytes: values sent, or bodies received
	Latency     *Distribution    `json:"request_latency"`
	EndToEnd    *Distribution    `json:"end_to_end_latency,omitempty"`
	Spread      *Spread          `json:"spread,omitempty"` // of Fanout
	Memory      *Memory          `json:"memory,omitempty"` // of Idle
	Problems    map[string]int64 `json:"problems"`         // text of an error → how often
}

// maxProblems bounds the different texts that are kept.
const maxProblems = 20

// tally is what one connection counted.
type tally struct {
	hist     histogram
	records  int64
	requests int64
	errors   int64
	bytes    int64
	problems map[string]int64
}

func (t *tally) fail(err error) {
	t.errors++
	if t.problems == nil {
		t.problems = map[string]int64{}
	}
	text := err.Error()
	if _, ok := t.problems[text]; !ok && len(t.problems) >= maxProblems {
		text = "others"
	}
	t.problems[text]++
}

// firstError is one of the errors that were counted.
func (t *tally) firstError() error {
	for text := range t.problems {
		return errors.New(text)
	}
	return nil
}

func (t *tally) merge(o *tally) {
	t.hist.merge(&o.hist)
	t.records += o.records
	t.requests += o.requests
	t.errors += o.errors
	t.bytes += o.bytes
	for text, n := range o.problems {
		if t.problems == nil {
			t.problems = map[string]int64{}
		}
		t.problems[text] += n
	}
}

// report finishes a Report that already says what was measured.
func (t *tally) report(r Report, took time.Duration) *Report {
	r.Records, r.Requests, r.Errors = t.records, t.requests, t.errors
	r.Seconds = took.Seconds()
	if s := r.Seconds; s > 0 {
		r.RecordsPerS, r.RequestsS, r.MBPerS = float64(t.records)/s, float64(t.requests)/s, float64(t.bytes)/1e6/s
	}
	r.Latency = t.hist.latency()
	r.Problems = t.problems
	if r.Problems == nil {
		r.Problems = map[string]int64{}
	}
	return &r
}

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	p := &printer{w: w}
	p.line("%s %s: %d connections, batches of %d", r.Kind, r.Topic, r.Connections, r.Batch)
	if r.Acks != "" {
		p.line("  acks      %s", r.Acks)
	}
	p.line("  records   %d in %.2f s: %.0f records/s, %.1f MB/s", r.Records, r.Seconds, r.RecordsPerS, r.MBPerS)
	p.line("  requests  %d: %.0f/s, errors %d", r.Requests, r.RequestsS, r.Errors)
	if r.Latency.Max > 0 {
		p.latency("request", r.Latency)
	}
	p.latency("end to end", r.EndToEnd)
	if s := r.Spread; s != nil {
		p.line("  readers   %d: slowest %.0f, median %.0f, fastest %.0f records/s; %d frames", s.Readers, s.Slowest, s.Median, s.Fastest, s.Frames)
	}
	if m := r.Memory; m != nil {
		p.line("  resident  %d bytes before, %d with the sockets: %d bytes each (%s)", m.Before, m.With, m.PerConnection, m.Source)
		if m.HeapPerConnection != nil {
			p.line("  of these  heap in use %d, stacks %d bytes each", *m.HeapPerConnection, *m.StackPerConnection)
		}
	}
	texts := make([]string, 0, len(r.Problems))
	for t := range r.Problems {
		texts = append(texts, t)
	}
	sort.Strings(texts)
	for _, t := range texts {
		p.line("  error     %d × %s", r.Problems[t], t)
	}
	return p.err
}

// printer keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func (p *printer) latency(name string, l *Distribution) {
	if l != nil {
		p.line("  %-10s p50 %.3f ms, p95 %.3f ms, p99 %.3f ms, p99.9 %.3f ms, max %.3f ms, mean %.3f ms", name, l.P50, l.P95, l.P99, l.P999, l.Max, l.Mean)
	}
}
