package log

import (
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/compact"
	"tidewire/storage/producer"
	"tidewire/storage/record"
)

// CleanPolicy is what the compaction of a log takes from its topic and its partition. Times
// are milliseconds.
type CleanPolicy struct {
	DeleteRetentionMs int64   // delete.retention.ms
	MinLagMs          int64   // min.compaction.lag.ms (KIP-58)
	MaxLagMs          int64   // max.compaction.lag.ms (KIP-354); 0: without limit
	MinDirtyRatio     float64 // min.cleanable.dirty.ratio
	HighWatermark     model.Offset
	LastStable        model.Offset
}

// CleanHold says what keeps compaction from going on to the end of a log.
type CleanHold string

// What may hold compaction back.
const (
	HoldActive      CleanHold = "the active segment"
	HoldTransaction CleanHold = "an open transaction"
	HoldWatermark   CleanHold = "the high watermark"
	HoldLag         CleanHold = "min.compaction.lag.ms"
	HoldSync        CleanHold = "records that are not synced"
)

// CleanState is where a log stands with compaction.
type CleanState struct {
	From, To     model.Offset // what is dirty and may be compacted
	Clean, Dirty int64        // bytes below From, and from there to To
	Due          bool         // the dirty ratio or the lag ask for a pass
	Hold         CleanHold    // why To is not higher
	Failed       error        // why the log cannot be compacted; nil: it can
}

// Ratio is the share of dirty bytes.
func (s CleanState) Ratio() float64 {
	if s.Dirty == 0 {
		return 0
	}
	return float64(s.Dirty) / float64(s.Clean+s.Dirty)
}

// CleanResult is what one pass did.
type CleanResult struct {
	compact.Stats
	From, To             model.Offset // what was dirty and is clean now
	BytesRead, BytesKept int64        // of batches, in the second reading
	Segments, Made       int          // replaced, and by how many
}

// CleanProgress tells how far a pass that runs is.
type CleanProgress struct {
	Since       int64 // wall clock at its beginning, milliseconds
	Done, Total int64 // bytes of both readings
}

// cleaned is a log's side of compaction.
type cleaned struct {
	point  atomic.Int64 // everything below was clean after the last pass
	failed atomic.Pointer[uncleanable]
	run    atomic.Pointer[CleanProgress] // replaced as a whole
	gate   compact.Gate
}

// uncleanable is damage that stops compaction of a log; the log itself goes on.
type uncleanable struct {
	at  model.Offset
	err error
}

func (u *uncleanable) Error() string { return u.err.Error() }
func (u *uncleanable) Unwrap() error { return u.err }

var errNoPass = compact.ErrNoPass

// Cleaning tells how far the pass over the log is; false when none runs.
func (l *Log) Cleaning() (CleanProgress, bool) {
	if p := l.cleaned.run.Load(); p != nil {
		return *p, true
	}
	return CleanProgress{}, false
}

// CleanState looks at where the log stands. It reads no file unless a limit of age must be
// compared with a segment that an earlier run wrote. now is in milliseconds.
func (l *Log) CleanState(p CleanPolicy, now int64) CleanState {
	segs := *l.segs.Load()
	start := l.LogStart()
	s := CleanState{From: max(model.Offset(l.cleaned.point.Load()), start)}
	s.To = s.From
	if u := l.cleaned.failed.Load(); u != nil {
		if u.at >= start {
			s.Failed = u
		} else {
			l.cleaned.failed.CompareAndSwap(u, nil) // what was damaged is gone
		}
	}
	var oldest *segment
	for i, seg := range segs {
		end, active := model.Offset(0), i == len(segs)-1
		if !active {
			end = segs[i+1].base
		}
		switch {
		case !active && end <= start:
			continue // about to be dropped
		case !active && end <= s.From:
			s.Clean += seg.size.Load()
			continue
		}
		if s.Hold = l.holds(seg, end, p, now); active {
			s.Hold = HoldActive
		}
		if s.Hold != "" {
			break
		}
		s.To, s.Dirty = end, s.Dirty+seg.size.Load()
		if oldest == nil {
			oldest = seg
		}
	}
	s.Due = s.Failed == nil && s.Dirty > 0 &&
		(s.Ratio() >= p.MinDirtyRatio || p.MaxLagMs > 0 && now-l.firstTimestamp(oldest, now) > p.MaxLagMs)
	return s
}

// holds tells why a sealed segment may not be compacted yet.
func (l *Log) holds(seg *segment, end model.Offset, p CleanPolicy, now int64) CleanHold {
	switch {
	case end > p.LastStable && p.LastStable < p.HighWatermark:
		return HoldTransaction
	case end > min(p.HighWatermark, p.LastStable):
		return HoldWatermark
	case end > model.Offset(l.synced.Load()):
		return HoldSync
	case p.MinLagMs > 0:
		ts := l.largestTimestamp(seg, Retention{Ms: p.MinLagMs}, now)
		if ts < 0 {
			ts = seg.appended.Load()
		}
		if now-ts < p.MinLagMs {
			return HoldLag
		}
	}
	return ""
}

// firstTimestamp is the largest timestamp of a segment's first batch, or when it was last
// written to where that has none; now when it cannot be read.
func (l *Log) firstTimestamp(seg *segment, now int64) int64 {
	ts := seg.firstTs.Load()
	if ts == 0 {
		sc, err := l.store.scanner(seg, seg.size.Load(), probeWindow)
		if err != nil {
			return now
		}
		defer l.store.putScanner(sc)
		h, err := sc.Header(0)
		if err != nil {
			return now
		}
		ts = h.MaxTimestamp
		seg.firstTs.Store(ts)
	}
	if ts < 0 {
		return seg.appended.Load()
	}
	return ts
}

// Clean compacts what is dirty (see CleanState), as far as the dedupe buffer reaches, and
// all below it down to the log start. It blocks until that is done; passes over other logs
// of the store wait for each other, as they share the buffer. Reads and appends go on.
// Truncating, removing or closing the log ends the pass, without a trace but for the
// segments that were replaced before. now is in milliseconds.
//
// Errors: the context's; LeaderUnavailable (closed, being truncated, no descriptor left),
// StorageFull: try again later; CorruptBatch, RecordTooLarge (a batch inflates beyond
// StoreOptions.MaxInflate): the log stays as it is and CleanState has Failed from now on;
// StorageError: a file could not be read or written, or, when the log has latched, swapping
// the files was not completed (the next start does that).
func (l *Log) Clean(ctx context.Context, p CleanPolicy, now int64) (CleanResult, error) {
	select {
	case l.store.cleanSlot <- struct{}{}:
		defer func() { <-l.store.cleanSlot }()
	case <-ctx.Done():
		return CleanResult{}, ctx.Err()
	}
	if err := l.Failed(); err != nil {
		return CleanResult{}, err
	}
	passCtx, leave, err := l.cleaned.gate.Enter(ctx)
	if err != nil {
		return CleanResult{}, err
	}
	defer leave()
	defer l.cleaned.run.Store(nil)
	c := &cleaning{l: l, ctx: passCtx, policy: p, now: now}
	res, err := c.run()
	if err == nil {
		return res, nil
	}
	return res, c.explain(ctx, err)
}

// explain gives an error of a pass its code.
func (c *cleaning) explain(ctx context.Context, err error) error {
	l := c.l
	var u *uncleanable
	switch {
	case l.Failed() != nil:
		return l.Failed()
	case ctx.Err() != nil:
		return ctx.Err()
	case c.ctx.Err() != nil:
		return errNoPass
	case errors.As(err, &u):
		l.cleaned.failed.Store(u)
		l.store.log.Error("the log cannot be compacted: it stays as it is", "log", l.name, "offset", u.at, "err", u.err)
		return err
	case fsx.IsNoSpace(err):
		return model.Errorf(model.StorageFull, "the disk is full").WithCause(err)
	case fsx.IsNoDescriptor(err):
		return noDescriptor(err)
	case model.HasCode(err, model.StorageError) || model.HasCode(err, model.LeaderUnavailable) || model.HasCode(err, model.StorageFull):
		return err
	}
	return l.storageError("compact", err)
}

// keeper is what was the last of each producer when a pass began; what came since is not
// in reach of the pass. What lies above the high watermark may be cut off by a truncation:
// then that counts which was the last below.
func (l *Log) keeper(hw model.Offset) (k producer.Keeper, err error) {
	l.mu.Lock()
	none := l.prods.Empty()
	if !none {
		k.Note(&l.prods)
	}
	l.mu.Unlock()
	if none || hw >= l.LogEnd() {
		return k, nil
	}
	st, err := l.stateAt(*l.segs.Load(), max(hw, l.firstBase()))
	if err == nil {
		k.Note(&st.State)
	}
	return k, err
}

func newSeed() (s compact.Seed, err error) {
	_, err = rand.Read(s[:])
	return s, err
}

func (c *cleaning) newPass(from model.Offset) (*compact.Pass, error) {
	seed, err := newSeed()
	if err != nil {
		return nil, err
	}
	keeper, err := c.l.keeper(c.policy.HighWatermark)
	if err != nil {
		return nil, err
	}
	o := c.l.store.o
	return compact.NewPass(compact.Options{
		Map:     compact.NewMap(o.DedupeBufferBytes, seed),
		Inflate: record.NewDecompressor(o.MaxInflate), Producers: keeper,
		Now: c.now, DeleteAfter: c.policy.DeleteRetentionMs,
	}, from), nil
}
