package broker

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"tidewire/broker/operations"
	"tidewire/internal/model"
	"tidewire/storage/log"
)

// maxCompactionRetry bounds the time after which a pass that failed is tried again.
const maxCompactionRetry = time.Hour

// compaction keeps the compacted topics of this node small: one pass at a time, over the
// log with the largest share of dirty bytes. Every replica is compacted by its own node, as
// in Kafka.
type compaction struct {
	kick chan struct{} // settings have changed; capacity 1

	passes, failures     atomic.Int64
	bytesRead, bytesKept atomic.Int64  // of batches, by passes
	dirtyRatio           atomic.Uint64 // float64 bits: the largest at the last look
	uncleanable          atomic.Int64  // partitions, at the last look
	heldByTransaction    atomic.Int64  // likewise
	lastEnd, lastTook    atomic.Int64  // of the last pass: wall clock and duration, milliseconds

	retries map[*log.Log]*compactionRetry // the compaction goroutine's alone
}

// compactionRetry says when a log whose pass failed may be tried again.
type compactionRetry struct {
	wait time.Duration
	at   int64 // milliseconds
	seen bool  // at this look
}

// compactionLoop looks every log.cleaner.backoff.ms, and goes on while there is a log to
// compact.
func (b *Broker) compactionLoop(ctx context.Context) {
	tick := time.NewTicker(b.compactionInterval())
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-b.compaction.kick:
			tick.Reset(b.compactionInterval())
			continue
		case <-ctx.Done():
			return
		}
		for b.compactFilthiest(ctx) {
		}
	}
}

// candidate is the log to compact next.
type candidate struct {
	log    *log.Log
	topic  string
	part   int
	policy log.CleanPolicy
	state  log.CleanState
}

// compactFilthiest compacts the log that needs it most and reports whether there was one.
func (b *Broker) compactFilthiest(ctx context.Context) bool {
	b.checkClock()
	if b.retention.paused.Load() { // a tombstone must not go because the clock was set
		return false
	}
	c := b.findFilthiest(b.nowMs())
	if c.log == nil || ctx.Err() != nil {
		return false
	}
	began := b.now()
	work, op := b.ops.Begin(ctx, c.operation())
	res, err := c.log.Clean(work, c.policy, began.UnixMilli())
	cancelled := work.Err() != nil
	op.End(c.outcome(res, err))
	took := b.now().Sub(began)
	s := &b.compaction
	s.bytesRead.Add(res.BytesRead)
	s.bytesKept.Add(res.BytesKept)
	switch {
	case ctx.Err() != nil:
		return false
	case cancelled && err != nil:
		b.putBack(c.log, maxCompactionRetry)
		b.logger.Info("a pass of compaction was cancelled; it is tried again", "topic", c.topic, "partition", c.part, "after", maxCompactionRetry)
	case err != nil || res.To == res.From:
		b.compactionFailed(&c, err)
	default:
		delete(s.retries, c.log)
		s.passes.Add(1)
		b.logger.Info("compacted", "topic", c.topic, "partition", c.part, "from", res.From, "to", res.To, "took", took,
			"bytes_read", res.BytesRead, "bytes_kept", res.BytesKept, "superseded", res.Superseded, "tombstones", res.Tombstones,
			"aborted", res.Aborted, "segments", res.Segments, "made", res.Made)
		if res.Keyless > 0 {
			b.logger.Warn("compaction dropped records without key, from before the topic was compacted",
				"topic", c.topic, "partition", c.part, "records", res.Keyless)
		}
	}
	s.lastEnd.Store(b.nowMs())
	s.lastTook.Store(took.Milliseconds())
	return true
}

// operation describes the pass over a candidate.
func (c *candidate) operation() operations.Spec {
	return operations.Spec{
		Kind: operations.Compact, Total: c.state.Dirty, Unit: "bytes",
		Resource: operations.Resource{Type: "partition", Name: c.topic, Partition: new(model.PartitionID(c.part))},
		Probe: func() (done, total int64, ok bool) {
			p, runs := c.log.Cleaning()
			return p.Done, p.Total, runs
		},
	}
}

// outcome is the error of a pass as its operation shows it.
func (c *candidate) outcome(res log.CleanResult, err error) error {
	if err == nil && res.To == res.From {
		return model.Errorf(model.Conflict, "nothing could be compacted")
	}
	return err
}

// putBack has a log wait for its next pass.
func (b *Broker) putBack(l *log.Log, wait time.Duration) {
	b.compaction.retries[l] = &compactionRetry{wait: wait, at: b.nowMs() + wait.Milliseconds()}
}

// compactionFailed puts a log back for a while. Damage was logged where it was found, and
// is not tried again.
func (b *Broker) compactionFailed(c *candidate, err error) {
	s := &b.compaction
	s.failures.Add(1)
	r := s.retries[c.log]
	if r == nil {
		r = &compactionRetry{wait: b.compactionInterval() / 2}
		s.retries[c.log] = r
	}
	r.wait = min(2*r.wait, maxCompactionRetry)
	r.at = b.nowMs() + r.wait.Milliseconds()
	if c.log.CleanState(c.policy, b.nowMs()).Failed == nil && !errors.Is(err, context.Canceled) {
		b.logger.Warn("compaction failed; it tries again", "topic", c.topic, "partition", c.part, "after", r.wait, "error", err)
	}
}

// findFilthiest looks at every compacted log.
func (b *Broker) findFilthiest(now int64) candidate {
	s := &b.compaction
	var best candidate
	var uncleanable, held int64
	largest := 0.0
	for _, r := range s.retries {
		r.seen = false
	}
	b.topics.Range(func(_, v any) bool {
		t := v.(*topic)
		cfg := t.config.Load()
		if !cfg.Compact {
			return true
		}
		parts := *t.parts.Load()
		for i, l := range t.openLogs() {
			if l == nil || i >= len(parts) || parts[i] == nil || l.Failed() != nil {
				continue
			}
			c := candidate{log: l, topic: t.name, part: i, policy: cfg.Clean}
			bounds := parts[i].Bounds()
			c.policy.HighWatermark = bounds.HighWatermark
			c.policy.LastStable = min(bounds.LastStable, l.LastStable(bounds.HighWatermark))
			c.state = l.CleanState(c.policy, now)
			largest = max(largest, c.state.Ratio())
			if c.state.Failed != nil {
				uncleanable++
			}
			if c.state.Hold == log.HoldTransaction {
				held++
			}
			if r := s.retries[l]; r != nil {
				if r.seen = true; now < r.at && r.at-now <= maxCompactionRetry.Milliseconds() { // else the clock was set
					continue
				}
			}
			if c.state.Due && (best.log == nil || c.state.Ratio() > best.state.Ratio()) {
				best = c
			}
		}
		return true
	})
	for l, r := range s.retries {
		if !r.seen {
			delete(s.retries, l) // its topic is gone, or not compacted any more
		}
	}
	s.dirtyRatio.Store(math.Float64bits(largest))
	s.uncleanable.Store(uncleanable)
	s.heldByTransaction.Store(held)
	return best
}
