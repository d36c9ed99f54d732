package broker

import (
	"context"
	"sync/atomic"
	"time"

	"tidewire/broker/partition"
	"tidewire/internal/model"
	"tidewire/storage/log"
)

const (
	// retentionSettle is how long after a change of settings it looks again: changes come
	// in groups.
	retentionSettle = time.Second
	// maxClockDrift is how far the wall clock may move against the monotonic one before
	// ages are in doubt.
	maxClockDrift = 5 * time.Minute
)

// retention deletes what is too old or too much, on the partitions that this node leads.
type retention struct {
	kick  chan struct{} // settings have changed; capacity 1
	clock clockWatch

	segments, bytes atomic.Int64 // deleted since the start
	future          atomic.Int64 // segments that the last pass found dated too far in the future
	paused          atomic.Bool  // by age nothing is deleted

	// Memory of the last pass, for the next; the retention goroutine's alone.
	logs  []*log.Log
	moves []log.StartMove
}

// clockWatch compares the wall clock with the monotonic one. Retention pauses while they
// have drifted apart: a wall clock that jumps a year ahead would make everything old. It
// goes on when they agree again because the clock was set back, or after a restart, which
// takes the clock of that moment for right.
type clockWatch struct {
	wall func() time.Time
	mono func() time.Duration

	wall0 time.Time
	mono0 time.Duration
}

func newClockWatch(wall func() time.Time, mono func() time.Duration) clockWatch {
	if mono == nil {
		start := time.Now()
		mono = func() time.Duration { return time.Since(start) }
	}
	return clockWatch{wall: wall, mono: mono, wall0: wall().Round(0), mono0: mono()}
}

// drift is how far the wall clock has run ahead since the start; negative: behind.
func (c *clockWatch) drift() time.Duration {
	return c.wall().Round(0).Sub(c.wall0) - (c.mono() - c.mono0) // Round takes the monotonic reading away
}

// checkClock pauses and resumes retention by age, with a log line for each.
func (b *Broker) checkClock() {
	drift := b.retention.clock.drift()
	doubt := drift.Abs() > maxClockDrift
	if b.retention.paused.Swap(doubt) == doubt {
		return
	}
	if doubt {
		b.logger.Warn("the wall clock has moved against the monotonic clock: nothing is deleted by retention.ms until it is set right, or the node is restarted with a clock that is right", "drift", drift)
		return
	}
	b.logger.Info("the wall clock agrees with the monotonic clock again: retention.ms is applied", "drift", drift)
}

func (b *Broker) retentionLoop(ctx context.Context) {
	every := b.retentionInterval()
	tick := time.NewTicker(every)
	defer tick.Stop()
	settle := time.NewTimer(time.Hour)
	settle.Stop()
	defer settle.Stop()
	for {
		select {
		case <-tick.C:
		case <-settle.C:
		case <-b.retention.kick:
			if now := b.retentionInterval(); now != every {
				every = now
				tick.Reset(every)
			}
			settle.Reset(retentionSettle)
			continue
		case <-ctx.Done():
			return
		}
		b.applyRetention()
	}
}

// kickRetention has it look soon.
func (b *Broker) kickRetention() {
	select {
	case b.retention.kick <- struct{}{}:
	default:
	}
}

// applyRetention looks at every log once. All log starts that move share one write of
// their checkpoint.
func (b *Broker) applyRetention() {
	b.checkClock()
	now := b.nowMs()
	r := &b.retention
	future := 0
	b.topics.Range(func(_, v any) bool {
		future += b.findExpired(v.(*topic), now)
		return true
	})
	r.future.Store(int64(future))
	if len(r.moves) == 0 {
		return
	}
	b.store.AdvanceLogStarts(r.moves)
	for i := range r.moves {
		m := &r.moves[i]
		r.segments.Add(int64(m.Segments))
		r.bytes.Add(m.Bytes)
		// A log that was closed since belongs to a topic that is gone.
		if m.Err != nil && !model.HasCode(m.Err, model.LeaderUnavailable) {
			b.logger.Warn("retention could not move a log start; it tries again", "error", m.Err)
		}
	}
	clear(r.moves)
	r.moves = r.moves[:0]
}

// findExpired notes which of a topic's logs should begin later. Where cleanup.policy does
// not hold delete, only what an earlier move could not finish is left to do.
func (b *Broker) findExpired(t *topic, now int64) (future int) {
	cfg := t.config.Load()
	r := log.Retention{Ms: -1, Bytes: -1, TimePaused: b.retention.paused.Load(), FutureMs: cfg.TimestampAfterMaxMs}
	if cfg.Delete {
		r.Ms, r.Bytes = cfg.RetentionMs, cfg.RetentionBytes
	}
	parts := *t.parts.Load()
	b.retention.logs = t.appendLogs(b.retention.logs[:0])
	for i, p := range parts {
		l := b.retention.logs[i]
		if p == nil || l == nil || p.Err() != nil {
			continue
		}
		to, move, ahead := l.Retain(r, deletable(p.Bounds()), now)
		future += ahead
		if move {
			b.retention.moves = append(b.retention.moves, log.StartMove{Log: l, To: to})
		}
	}
	clear(b.retention.logs) // a deleted topic's logs are not held
	return future
}

// deletable is the offset that a log start may not pass: what is not committed, or belongs
// to an open transaction, stays.
func deletable(b partition.Bounds) model.Offset { return min(b.HighWatermark, b.LastStable) }
