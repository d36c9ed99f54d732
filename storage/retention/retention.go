// Package retention decides what a log may delete by age and size.
package retention

import "tidewire/internal/model"

// Rules says what a log may delete. Times are milliseconds.
type Rules struct {
	Ms    int64 // retention.ms; negative: without limit
	Bytes int64 // retention.bytes; negative: without limit
	// FutureMs is message.timestamp.after.max.ms. A segment with a timestamp further in
	// the future, by a clock that was wrong or a setting that was wider, goes by the time
	// of its last append instead: one bad record must not pin it.
	FutureMs int64
	// TimePaused leaves age out of the decision, as the clock is in doubt.
	TimePaused bool
}

// Facts is what the decision needs of one segment.
type Facts struct {
	End      model.Offset // the offset after its last record
	Bytes    int64
	Active   bool
	MaxTs    int64 // largest timestamp of its records; negative: none
	Appended int64 // when it was last written to
}

// Time is what a segment's age counts from, as Kafka's LogSegment.largestTimestamp except
// for the future.
func (r Rules) Time(f Facts, now int64) (ts int64, future bool) {
	if f.MaxTs > now && f.MaxTs-now > r.FutureMs {
		return f.Appended, true
	}
	if f.MaxTs < 0 {
		return f.Appended, false
	}
	return f.MaxTs, false
}

// Cut decides how many of a log's n segments go, from the oldest on: while a segment's
// age is above retention.ms, and while the log without it would still have
// retention.bytes. total is the size of all. A segment that reaches beyond limit stays,
// and so does an empty one. The active one goes by age only. future counts the segments
// looked at whose timestamps lie too far in the future.
func (r Rules) Cut(n int, at func(i int) Facts, b Bounds) (drop, future int) {
	over := int64(-1)
	if r.Bytes >= 0 {
		over = b.Total - r.Bytes
	}
	for drop < n {
		f := at(drop)
		if f.End > b.Limit || f.Bytes == 0 {
			break
		}
		byAge := false
		if r.Ms >= 0 && !r.TimePaused {
			ts, ahead := r.Time(f, b.Now)
			if ahead {
				future++
			}
			byAge = b.Now-ts > r.Ms
		}
		if !byAge && (f.Active || over < f.Bytes) {
			break
		}
		over -= f.Bytes
		drop++
	}
	return drop, future
}

// Bounds are the limits of one decision.
type Bounds struct {
	Limit model.Offset // the log start may not pass it
	Now   int64        // wall clock, milliseconds
	Total int64        // bytes of the log
}
