package group

import (
	"maps"
	"slices"
	"time"
)

// deadlineAt notes that something is due.
func (g *Group) deadlineAt(at time.Duration) {
	if !g.hasNext || at < g.next {
		g.next, g.hasNext = at, true
	}
}

// NextDeadline is when Tick is to be called, on the clock of Env.Mono; false when nothing
// is due ever. It may be early: heartbeats do not move it, Tick finds the next one. It is
// to be asked after every operation.
func (g *Group) NextDeadline() (time.Duration, bool) { return g.next, g.hasNext }

// Load ends a replay: sessions and time-outs begin in full, as of env. What the topics did
// meanwhile is caught up with.
func (g *Group) Load(env Env) Effects {
	s := g.step(env)
	for _, id := range slices.Sorted(maps.Keys(g.members)) {
		m := g.members[id]
		if !m.joined { // no operation leaves such; it must not hold partitions
			s.dropOrphan(id)
			continue
		}
		m.named, m.told, m.shown = nil, 0, m.version
		g.touch(env, id, 0)
	}
	for _, x := range g.gone {
		x.until = env.Mono + g.settings.GoneFor
		g.deadlineAt(x.until)
	}
	s.refresh(g.wanted(env.Topics), notFresh)
	return s.finish()
}

func (s *step) dropOrphan(id string) {
	m := s.g.members[id]
	if m.target != nil {
		s.tombstone(Key{Kind: KindTarget, Member: id})
	}
	if m.version != 0 {
		s.tombstone(Key{Kind: KindCurrent, Member: id})
	}
	s.bump = true
}

// Tick does what is due: sessions that ended, partitions that were not released in time,
// an assignment that was put off, members that need not be remembered any more.
func (g *Group) Tick(env Env) Effects {
	s := g.step(env)
	g.hasNext = false
	expired := false
	for _, id := range slices.Clone(g.joinedIDs()) {
		m := g.members[id]
		if env.Mono >= m.deadline {
			s.end(id, Expired)
			expired = true
			continue
		}
		g.deadlineAt(m.deadline)
		s.overdue(id, m)
	}
	for _, id := range slices.Sorted(maps.Keys(g.gone)) {
		if x := g.gone[id]; env.Mono >= x.until {
			s.tombstone(x.record.Key())
		} else {
			g.deadlineAt(x.until)
		}
	}
	if expired {
		s.left()
	}
	return s.finish()
}

// overdue releases what a member was to release by now.
func (s *step) overdue(id string, m *member) {
	due := false
	for _, at := range m.named {
		if s.env.Mono >= at {
			due = true
		} else {
			s.g.deadlineAt(at)
		}
	}
	if due {
		s.release(id, func(p Partition, _ Grant) bool {
			at, ok := m.named[p]
			return ok && s.env.Mono >= at
		})
	}
}
