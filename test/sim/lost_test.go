package sim

import (
	"tidewire/internal/model"
)

// reconcile compares what a start has found with all that it may find, and takes it over.
func (s *sim) reconcile(l *lost, fl flight) {
	end, start := s.l.LogEnd(), s.l.LogStart()
	if fl.before == nil {
		fl.before = s.h.clone()
	}
	s.more("[now %d to %d, %d kept]", start, end, l.kept)
	switch fl.kind {
	case "cut":
		s.lostInCut(l, fl, end)
	case "full":
		if s.lostInFull(l, fl, end) {
			return
		}
	case "recreate":
		s.eq(model.Offset(0), end, "a new log begins empty")
		s.h = newHistory()
	case "clean":
		s.h = fl.before
		s.cutTo(l, end)
		s.adoptPass(false)
	default:
		s.cutTo(l, end)
	}
	s.reconcileStart(l, fl, start)
	if start > l.synced && l.lostPower(s) && fl.kind != "recreate" {
		// With write caching what lay below a log start may not have been synced, and with it
		// what it said of producers.
		s.is(l.cached, "the log start %d was never synced, only %d", start, l.synced)
		s.readFrom(start, allOffsets, 3000, nil)
		s.done("log start beyond what was synced")
		s.anew(end)
	}
}

func (l *lost) lostPower(s *sim) bool { return l.power || s.cutInStart }

// cutTo takes it over that the log ends at end.
func (s *sim) cutTo(l *lost, end model.Offset) {
	if end == s.l.LogStart() && end > s.h.end() || end < s.h.end() && end == s.l.LogStart() && !s.h.boundary(end) {
		s.beganAnew(l, end)
		return
	}
	s.is(end >= l.kept, "the log ends at %d, but all below %d was to stay", end, l.kept)
	s.is(end <= s.h.end(), "the log ends at %d, but nothing was appended from %d on", end, s.h.end())
	s.is(s.h.boundary(end), "the log ends at %d, where no batch does", end)
	if end < s.h.end() {
		s.done("unsynced records lost")
		s.h.cut(end)
		s.h.origin = max(s.h.origin, end)
	}
}

// beganAnew is a log that ended below its start, as only write caching lets it.
func (s *sim) beganAnew(l *lost, end model.Offset) {
	s.is(l.cached, "the log began anew at %d", end)
	s.is(end >= l.kept, "the log begins anew at %d, but all below %d was to stay", end, l.kept)
	s.done("began anew at its start")
	s.anew(end)
}

// anew truncates the log wholly, so that nothing is in doubt.
func (s *sim) anew(at model.Offset) {
	s.ok(s.l.TruncateFullyAndStartAt(at))
	s.wait()
	s.h.restart(at)
}

func (s *sim) reconcileStart(l *lost, fl flight, start model.Offset) {
	if s.h.start == s.l.LogStart() && s.h.start >= l.start || len(s.h.batches) == 0 && s.h.start == start {
		return
	}
	s.is(start >= min(l.start, s.h.end()), "the log start was %d and is %d", l.start, start)
	was := fl.before.start
	s.is(start == was || start == s.h.start || fl.kind == "log start" && start == min(fl.at, s.h.end()),
		"the log starts at %d; it was %d, to be %d", start, was, fl.at)
	s.h.start = start
}

// lostInCut comes after a truncation that may be done, half done or not begun.
func (s *sim) lostInCut(l *lost, fl flight, end model.Offset) {
	after := s.h
	if l.returned {
		s.cutTo(&lost{kept: min(l.kept, after.end()), cached: l.cached}, end)
		return
	}
	s.h = fl.before
	s.cutTo(&lost{kept: min(l.kept, after.end()), cached: l.cached}, end)
	s.h.floor = min(s.h.floor, s.h.end())
}

// lostInFull comes after a full truncation. true: all is settled.
func (s *sim) lostInFull(l *lost, fl flight, end model.Offset) bool {
	start := s.l.LogStart()
	if !l.returned { // what was seen of the new one was not promised
		l.start = min(l.start, fl.before.start)
	}
	if l.returned {
		s.eq(fl.at, end, "a truncation that was acknowledged is undone")
		return false
	}
	if end == start {
		s.is(start == fl.at || start <= fl.before.start, "the log starts at %d", start)
		s.anew(fl.at)
		return true
	}
	s.h = fl.before
	s.is(s.h.boundary(end), "the log ends at %d, where no batch does", end)
	s.h.cut(end)
	s.h.origin = max(s.h.origin, end)
	s.h.start = start
	s.readFrom(start, allOffsets, 3000, nil)
	// A follower does it again. What the log knows of producers and compaction no longer
	// goes with the segments that are left.
	s.anew(fl.at)
	return true
}
