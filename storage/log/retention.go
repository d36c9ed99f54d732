package log

import (
	"tidewire/internal/model"
	"tidewire/storage/retention"
)

// Retention says what a log may delete.
type Retention = retention.Rules

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
	b := retention.Bounds{Limit: limit, Now: now}
	if r.Bytes >= 0 {
		b.Total = l.Size()
	}
	drop, future := r.Cut(len(segs), func(i int) retention.Facts { return l.factsOf(segs, i, end, r, now) }, b)
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

func (l *Log) factsOf(segs []*segment, i int, end model.Offset, r Retention, now int64) retention.Facts {
	s := segs[i]
	f := retention.Facts{End: end, Bytes: s.size.Load(), Active: i == len(segs)-1, Appended: s.appended.Load()}
	if !f.Active {
		f.End = segs[i+1].base
	}
	if r.Ms >= 0 && !r.TimePaused {
		f.MaxTs = l.largestTimestamp(s, r, now)
		if _, future := r.Time(f, now); future && !s.warned.Swap(true) {
			l.store.log.Warn("a segment has a timestamp in the future: retention.ms goes by its last append", "log", l.name,
				"segment", baseName(s.base), "timestamp", f.MaxTs, "appended", f.Appended)
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
