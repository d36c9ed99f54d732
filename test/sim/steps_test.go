package sim

import (
	"tidewire/internal/model"
)

// step is one thing that a seed may do.
type step struct {
	name   string
	weight int
	// ops is among how many operations on files the process or the power may be lost; 0:
	// the step does such things itself.
	ops int
	fn  func(*sim)
}

var steps = []step{
	{"append", 12, 8, (*sim).plain},
	{"append as a replica", 4, 8, (*sim).replica},
	{"append with gaps", 4, 8, (*sim).gaps},
	{"produce", 14, 6, (*sim).produce},
	{"end a transaction", 6, 6, (*sim).endTxn},
	{"misuse a producer", 2, 0, (*sim).misuse},
	{"retry", 2, 0, (*sim).verifyProducers},
	{"append what is bad", 2, 0, (*sim).bad},
	{"roll", 3, 12, (*sim).roll},
	{"read", 8, 0, (*sim).read},
	{"seek by time", 5, 0, (*sim).seek},
	{"read committed", 3, 0, (*sim).verifyTxns},
	{"sync", 5, 10, (*sim).syncNow},
	{"time passes", 6, 20, (*sim).time},
	{"set the clock", 2, 0, (*sim).clock},
	{"high watermark", 5, 0, (*sim).moveHW},
	{"delete records", 3, 25, (*sim).deleteRecords},
	{"retention", 3, 25, (*sim).retain},
	{"compaction", 4, 120, (*sim).compact},
	{"truncate", 1, 30, (*sim).truncate},
	{"truncate by epoch", 2, 40, (*sim).truncateByEpoch},
	{"truncate fully", 1, 30, (*sim).truncateFully},
	{"checkpoint", 2, 15, func(s *sim) { s.ok(s.store.Checkpoint()) }},
	{"leader epoch", 2, 0, func(s *sim) { s.epoch += model.LeaderEpoch(1 + s.n(3)) }},
	{"configuration", 1, 0, (*sim).setConfig},
	{"expire producers", 1, 0, (*sim).expire},
	{"delete the topic", 1, 30, (*sim).recreate},
	{"clean stop and start", 2, 0, (*sim).stop},
	{"kill and start", 2, 0, func(s *sim) { s.lose(false) }},
	{"failing operation", 5, 0, (*sim).failSome},
	{"full disk", 1, 0, (*sim).fullDisk},
	{"power cut and start", 3, 0, func(s *sim) { s.lose(true) }},
}

// rare are steps that empty the log: one in so many of their turns comes.
var rare = map[string]int{"truncate fully": 2, "delete the topic": 4, "expire producers": 2}

const cutStep = "power cut and start"

func stepNames(cuts bool) (out []string) {
	for _, x := range steps {
		if cuts || x.name != cutStep {
			out = append(out, x.name)
		}
	}
	return out
}

func faultNames(cuts bool) []string {
	out := []string{"clean stop", "kill between steps", "disk full", "kill in a start",
		"operation fails: input/output error", "operation fails: no space left on device", "operation fails: too many open files"}
	for _, k := range faultKinds {
		out = append(out, "failing operation in: "+k.name)
	}
	for _, k := range []string{"append", "cut", "full", "log start", "clean", "recreate", "stop"} {
		if out = append(out, "kill in: "+k); cuts {
			out = append(out, "power cut in: "+k)
		}
	}
	if cuts {
		out = append(out, "power cut between steps", "power cut after a clean stop", "power cut in a start")
	}
	return out
}

func doneNames(cuts bool) []string {
	out := []string{"whole comparison", "batch read", "seek by time: found", "seek by time: nothing", "epoch end", "last stable offset",
		"aborted transactions", "committed or aborted record", "retry recognised", "batch of a producer", "batch in a transaction",
		"transaction aborted", "transaction committed", "append with gaps", "append behind a far gap", "segment rolled",
		"batch with gzip", "batch with snappy", "batch with lz4", "batch with zstd", "high watermark moved", "log start moved", "deleted by retention",
		"truncated", "truncated fully", "truncated wholly for want of a batch", "agreed with a leader", "pass of compaction",
		"the map of keys was full", "segments merged", "delete horizon set", "pass compared", "producer expired", "topic deleted and made anew",
		"record compacted: it was aborted", "record compacted: it has no key", "record compacted: a later one has its key",
		"record compacted: it is a tombstone whose time is over", "log latched", "failure that the log gets over", "start failed", "stop failed",
		"checkpoint failed", "deep check after a clean stop", "start"}
	for _, c := range []model.Code{model.OffsetOutOfRange, model.Fenced, model.OutOfOrderSequence, model.InvalidTransactionState, model.UnknownProducer,
		model.CorruptBatch, model.RecordTooLarge, model.OffsetMismatch, model.StorageFull, model.StorageError, model.LeaderUnavailable} {
		out = append(out, "refused: "+string(c))
	}
	if cuts {
		out = append(out, "unsynced records lost", "began anew at its start")
	}
	return out
}

func (s *sim) pick() *step {
	total := 0
	for i := range steps {
		total += steps[i].weight
	}
	for {
		n := s.n(total)
		for i := range steps {
			x := &steps[i]
			if n -= x.weight; n >= 0 {
				continue
			}
			if k := rare[x.name]; x.name == cutStep && !s.cuts || k > 0 && !s.chance(k) {
				break
			}
			return x
		}
	}
}

// run is one seed.
func (s *sim) run(n int) {
	s.tell("start %+v", s.cfg)
	s.start(true)
	armed := 25
	if s.cuts {
		armed = 8
	}
	for range n {
		x := s.pick()
		s.tell("%d %s", len(s.told), x.name)
		s.tally.step[x.name]++
		s.tally.steps++
		s.flight = flight{}
		if x.ops > 0 && s.chance(armed) {
			s.arm(1 + s.n(x.ops))
		}
		x.fn(s)
		s.wait()
		s.settle()
		if s.chance(12) {
			s.verify()
		}
	}
	s.tell("the end")
	s.verify()
	s.stop()
}

// read reads some of the log.
func (s *sim) read() {
	from := s.offset(s.h.start, s.h.end())
	limit := allOffsets
	if s.chance(3) {
		limit = s.offset(from, s.h.end())
	}
	s.readFrom(from, limit, 1+s.n(2000), nil)
}
