package log

import (
	"tidewire/internal/model"
)

// Retention says what a log may delete. Times are milliseconds.
type Retention struct {
	Ms    int64 // retention.ms; negative: without limit
	Bytes int64 // retention.bytes; negative: without limit
	// FutureMs is message.timestamp.after.max.ms. A segment with a timestamp further in
	// the future, by a clock that was wrong or a setting that was wider, goes by the time
	// of its last append instead: one bad record must not pin it.
	FutureMs int64
	// TimePaused leaves age out of the decision, as the clock is in doubt.
	TimePaused bool
}

// segmentFacts is what the decision needs of one segment.
type segmentFacts struct {
	end      model.Offset // the offset after its last record
	bytes    int64
	active   bool
	maxTs    int64 // largest timestamp of its records; negative: none
	appended int64 // when it was last written to
}

// time is what a segment's age counts from, as Kafka's LogSegment.largestTimestamp except
// for the future.
func (r Retention) time(f segmentFacts, now int64) (ts int64, future bool) {
	if f.maxTs > now && f.maxTs-now > r.FutureMs {
		return f.appended, true
	}
	if f.maxTs < 0 {
		return f.appended, false
	}
	return f.maxTs, false
}

// cut decides how many of a log's n segments go, from the oldest on: while a segment's
// age is above retention.ms, and while the log without it would still have
// retention.bytes. total is the size of all. A segment that reaches beyond limit stays,
// and so does an empty one. The active one goes by age only. future counts the segments
// looked at whose timestamps lie too far in the future.
func (r Retention) cut(n int, at func(i int) segmentFacts, b bounds) (drop, future int) {
	over := int64(-1)
	if r.Bytes >= 0 {
		over = b.total - r.Bytes
	}
	for drop < n {
		f := at(drop)
		if f.end > b.limit || f.bytes == 0 {
			break
		}
		byAge := false
		if r.Ms >= 0 && !r.TimePaused {
			ts, ahead := r.time(f, b.now)
			if ahead {
				future++
			}
			byAge = b.now-ts > r.Ms
		}
		if !byAge && (f.active || over < f.bytes) {
			break
		}
		over -= f.bytes
		drop++
	}
	return drop, future
}

// bounds are the limits of one decision.
type bounds struct {
	limit model.Offset // the log start may not pass it
	now   int64        // wall clock, milliseconds
	total int64        // bytes of the log
}

// Retain decides where the log should begin by its retention, given the last offset that
// it may (the lower of high watermark and last stable offset) and the wall clock in
// milliseconds. move is false when nothing is to be done; otherwise give to to
// AdvanceLogStarts. future counts the segments found whose timestamps lie too far in the
// future. It neither allocates nor opens a file unless a segment that an earlier run wrote
// may go.
func (l *Log) Retain(r Retention, limit model.Offset, now int64) (to model.Offset, move bool, future int) {
	if l.Failed() != nil {
		return 0, false, 0
	}
	end := l.LogEnd() // before the list: what is appended meanwhile counts as too new
	segs := *l.segs.Load()
	b := bounds{limit: limit, now: now}
	if r.Bytes >= 0 {
		b.total = l.Size()
	}
	drop, future := r.cut(len(segs), func(i int) segmentFacts { return l.factsOf(segs, i, end, r, now) }, b)
	start := l.LogStart()
	switch {
	case drop == len(segs):
		to = end
	case drop > 0:
		to = segs[drop].base
	}
	if to > start {
		return to, true, future
	}
	return start, l.belowStart() > 0, future // what could not be dropped before
}

func (l *Log) factsOf(segs []*segment, i int, end model.Offset, r Retention, now int64) segmentFacts {
	s := segs[i]
	f := segmentFacts{end: end, bytes: s.size.Load(), active: i == len(segs)-1, appended: s.appended.Load()}
	if !f.active {
		f.end = segs[i+1].base
	}
	if r.Ms >= 0 && !r.TimePaused {
		f.maxTs = l.largestTimestamp(s, r, now)
		if _, future := r.time(f, now); future && !s.warned.Swap(true) {
			l.store.log.Warn("a segment has a timestamp in the future: retention.ms goes by its last append", "log", l.name,
				"segment", baseName(s.base), "timestamp", f.maxTs, "appended", f.appended)
		}
	}
	return f
}

// largestTimestamp is a segment's, negative for none. Of a segment that an earlier run
// wrote the index is believed as long as it says that the segment stays; before it goes,
// the batch itself is looked at.
func (l *Log) largestTimestamp(s *segment, r Retention, now int64) int64 {
	if s.known.Load() {
		return s.maxTs.Load()
	}
	if n, last := s.tim.State(); n > 0 && last.Key <= now && now-last.Key <= r.Ms {
		return last.Key
	}
	sc, err := l.store.scanner(s, s.size.Load(), scanWindow)
	if err == nil {
		l.loadMaxTimestamp(s, sc)
		l.store.putScanner(sc)
	}
	if !s.known.Load() { // not readable now: it stays
		return now
	}
	return s.maxTs.Load()
}
