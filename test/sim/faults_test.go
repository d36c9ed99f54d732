package sim

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"tidewire/internal/fsx"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
	"tidewire/storage/log"
)

// opens tells whether an operation needs a descriptor.
func opens(op fsx.Op) bool {
	return op.Kind == fsx.OpOpen || op.Kind == fsx.OpReadDir || op.Kind == fsx.OpSyncDir
}

// failing makes one operation on files of fn fail, and reports whether it came to that.
// Descriptors are lacking from there on: a single one is made good by closing another file.
func (s *sim) failing(most int, fn func()) (hit bool) {
	n, short := 1+s.n(most), s.n(60)
	cause := []error{syscall.EIO, syscall.EIO, syscall.ENOSPC, syscall.EMFILE}[s.n(4)]
	s.in.SetHook(func(op fsx.Op) *fsx.Fault {
		lacking := errors.Is(cause, syscall.EMFILE)
		if lacking && !opens(op) {
			return nil
		}
		if n--; n > 0 || n < 0 && !lacking {
			return nil
		}
		if hit = true; n < 0 {
			return &fsx.Fault{Err: cause}
		}
		s.more("[%v at %s %s]", cause, op.Kind, op.Path)
		return &fsx.Fault{Err: cause, Short: short}
	})
	fn()
	s.wait()
	s.in.SetHook(nil)
	if hit {
		s.fault(fmt.Sprintf("operation fails: %v", cause))
		s.noRoom = s.noRoom || !errors.Is(cause, syscall.EIO)
	}
	return hit
}

// faultKinds are what operations fail in.
var faultKinds = []struct {
	name string
	fn   func(*sim)
}{
	{"append", (*sim).failAppend}, {"sync", (*sim).failSync}, {"read", (*sim).failRead}, {"truncation", (*sim).failCut},
	{"log start", (*sim).failStart}, {"compaction", (*sim).failPass}, {"checkpoint", (*sim).failCheckpoint},
	{"stop", (*sim).failStop}, {"start", (*sim).failOpen},
}

func (s *sim) failSome() {
	k := faultKinds[s.n(len(faultKinds))]
	s.more("of a %s", k.name)
	k.fn(s)
	s.fault("failing operation in: " + k.name)
	s.verify()
}

// soft wants an error after which the log goes on.
func (s *sim) soft(err error) {
	s.is(model.HasCode(err, model.StorageFull) || model.HasCode(err, model.LeaderUnavailable) || model.HasCode(err, model.StorageError), "%v", err)
	s.done("failure that the log gets over")
}

// latched is for a log that a failure has latched: it serves what is below its stable end,
// takes nothing, and is there again after a restart.
func (s *sim) latched(fl flight, kept model.Offset) {
	s.done("log latched")
	stable := s.l.StableEnd()
	_, err := s.l.Append(s.encode(s.draw(s.h.end())), s.epoch, s.now())
	s.refused(err, model.StorageError)
	if fl.kind == "" && s.l.LogStart() < stable {
		data, err := s.l.Read(nil, s.l.LogStart(), allOffsets, 1)
		s.ok(err, "below the stable end %d", stable)
		s.is(len(data) > 0 || s.l.Compacted(), "nothing is served below the stable end %d", stable)
	}
	l := &lost{mem: s.mem, synced: s.bound(), cached: s.cached(), kept: kept, start: s.l.LogStart(), returned: false}
	if l.power = s.cuts && s.chance(2); l.power {
		l.mem = s.mem.Crash(s.rng.Uint64())
	}
	s.die()
	s.use(l.mem)
	s.flight = fl
	s.reopen(l)
}

func (s *sim) failAppend() {
	list, end, now := s.some(3), s.h.end(), s.now()
	var err error
	s.failing(5, func() { err = s.lead(list...) })
	switch {
	case err == nil:
	case s.l.Failed() != nil:
		for _, b := range list { // perhaps it is there
			if s.cfg.LogAppendTime {
				b.stampTime(now)
			}
			s.h.add(b)
		}
		s.latched(flight{}, end)
	default:
		s.soft(err)
		s.eq(end, s.l.LogEnd(), "after an append that failed")
	}
}

func (s *sim) failSync() {
	s.ok(s.lead(s.some(3)...))
	s.failing(8, func() { s.elapse(3 * time.Millisecond) })
	if s.l.Failed() != nil {
		s.latched(flight{}, s.h.end())
	}
}

func (s *sim) failRead() {
	var err error
	s.failing(3, func() {
		from := s.offset(s.h.start, s.h.end())
		if s.chance(2) {
			_, err = s.l.Read(nil, from, allOffsets, 500)
		} else {
			_, _, _, err = s.l.OffsetForTimestamp(s.now()-3000, allOffsets)
		}
	})
	if err != nil {
		s.soft(err)
	}
	if s.l.Failed() != nil {
		s.latched(flight{}, s.h.end())
	}
}

func (s *sim) failCut() {
	fl := flight{before: s.h.clone()}
	after := s.h.clone()
	fully := s.chance(3)
	if fl.at = s.offset(max(s.h.start, s.h.floor), s.h.end()); fully {
		fl.at = s.offset(0, s.h.end()+10)
	}
	after.cut(fl.at)
	if !fully && fl.at >= s.h.end() {
		return
	}
	if fl.kind = "cut"; fully {
		fl.kind = "full"
	} else if after.end() < s.h.start {
		fl.kind, fl.at = "full", s.h.start
		after.restart(fl.at)
	}
	s.more("%s at %d", fl.kind, fl.at)
	var err error
	s.failing(30, func() {
		if fully {
			err = s.l.TruncateFullyAndStartAt(fl.at)
		} else {
			err = s.l.TruncateTo(fl.at)
		}
	})
	switch {
	case err == nil && fl.kind == "full":
		s.h.restart(fl.at)
		s.durable = fl.at
	case err == nil:
		s.takeCut(fl.at)
		s.durable = min(s.durable, s.h.end())
	case s.l.Failed() != nil:
		kept := min(s.h.end(), after.end())
		s.durable = min(s.bound(), kept)
		s.settled = false
		s.h = after
		s.latched(fl, kept)
	default:
		s.soft(err)
	}
	s.hw = s.l.HighWatermark()
}

func (s *sim) failStart() {
	to := s.offset(s.h.start, s.l.HighWatermark())
	fl := flight{kind: "log start", at: to, before: s.h.clone()}
	var err error
	s.failing(25, func() { err = s.l.AdvanceLogStart(to) })
	switch {
	case s.l.Failed() != nil:
		if s.l.LogStart() == to {
			s.h.start = to
		}
		s.latched(fl, s.h.end())
	case err == nil:
		s.h.start = to
	case s.chance(2):
		s.soft(err)
		s.eq(s.h.start, s.l.LogStart())
		s.ok(s.l.AdvanceLogStart(to), "again")
		s.h.start = to
	default:
		s.soft(err)
		l := &lost{mem: s.mem, synced: s.bound(), cached: s.cached(), kept: s.h.end(), start: s.h.start}
		s.die()
		s.flight = fl
		s.reopen(l)
	}
}

func (s *sim) failPass() {
	p := s.beginPass()
	fl := flight{kind: "clean", before: s.h.clone()}
	var res log.CleanResult
	var err error
	s.failing(150, func() { res, err = s.l.Clean(context.Background(), p, s.pass.now) })
	switch {
	case s.l.Failed() != nil:
		s.is(err != nil, "a pass latches and says nothing")
		s.latched(fl, s.h.end())
	case err == nil:
		if s.pass.to = res.To; res.To > res.From {
			s.adoptPass(true)
		}
	default:
		s.soft(err)
		s.adoptPass(false)
	}
}

func (s *sim) failCheckpoint() {
	s.moveHW()
	var err error
	s.failing(15, func() { err = s.store.Checkpoint() })
	s.ok(s.l.Failed())
	if err != nil {
		s.done("checkpoint failed")
		s.ok(s.store.Checkpoint(), "again")
	}
}

// failStop has an operation of a clean stop fail: then it was none.
func (s *sim) failStop() {
	var err error
	s.failing(40, func() { err = s.store.Close() })
	l := &lost{mem: s.mem, synced: s.bound(), cached: s.cached(), kept: s.h.end(), start: s.h.start}
	if err != nil {
		s.done("stop failed")
		ok, xerr := fsx.Exists(s.mem, dataDir+"/clean-stop")
		s.ok(xerr)
		s.is(!ok || model.HasCode(err, model.StorageError) == false, "a clean stop, though %v", err)
	}
	s.die()
	s.flight = flight{}
	s.reopen(l)
}

// failOpen has an operation of a start fail: the next one without a failure succeeds.
func (s *sim) failOpen() {
	l := &lost{mem: s.mem, synced: s.bound(), cached: s.cached(), kept: s.h.end(), start: s.h.start}
	s.die()
	s.use(s.mem)
	s.failing(60, func() {
		s.group = lifecycle.New(context.Background())
		s.opts.Group = s.group
		store, err := log.OpenStore(s.opts)
		if err == nil {
			_, err = store.Open(s.id, topic, 0, s.cfg)
			if err != nil {
				s.soft(err)
			}
		}
		if err != nil {
			s.done("start failed")
		}
	})
	s.die()
	s.flight = flight{}
	s.reopen(l)
}

// fullDisk has a disk with little room for a while.
func (s *sim) fullDisk() {
	s.mem.SetCapacity(1 << 40)
	free, err := s.mem.FreeSpace("/")
	s.ok(err)
	s.noRoom = true
	s.mem.SetCapacity(1<<40 - int64(free) + int64(s.n(2500)))
	for range 3 + s.n(10) {
		switch s.n(6) {
		case 0:
			s.elapse(3 * time.Millisecond)
		case 1:
			if err := s.l.AdvanceLogStart(s.offset(s.h.start, s.l.HighWatermark())); err != nil {
				s.refused(err, model.StorageFull)
			}
			s.h.start = s.l.LogStart()
		default:
			end := s.h.end()
			if err := s.lead(s.some(4)...); err != nil {
				s.refused(err, model.StorageFull)
				s.eq(end, s.l.LogEnd())
				s.fault("disk full")
			}
		}
		s.ok(s.l.Failed(), "a full disk latches nothing")
	}
	s.mem.SetCapacity(-1)
	s.ok(s.lead(s.some(4)...), "there is room again")
	s.verify()
}
