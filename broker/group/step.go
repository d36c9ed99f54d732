package group

import (
	"maps"
	"slices"

	"tidewire/broker/group/assign"
)

// step is an operation under way: it applies what it decides and keeps account of it.
type step struct {
	g        *Group
	env      Env
	records  []Record
	changed  map[string]bool // nil: none
	granted  []Ungrounded
	assignor assign.Name // that the group is to have from now on, or ""
	bump     bool        // members, subscriptions or topics changed
	freed    []Partition // released by somebody
	all      bool        // targets changed: every member is to be led to its own
}

func (g *Group) step(env Env) *step { return &step{g: g, env: env} }

// emit applies a record and has it appended.
func (s *step) emit(r Record) {
	s.g.Apply(r)
	s.records = append(s.records, r)
}

// mark notes that a member's assignment has changed, or that it is no more.
func (s *step) mark(id string) {
	if s.changed == nil {
		s.changed = map[string]bool{}
	}
	s.changed[id] = true
}

// tombstone takes a record away.
func (s *step) tombstone(k Key) { s.emit(Tombstone{Of: k}) }

// finish brings epoch, target and assignments up to date with what happened.
func (s *step) finish() Effects {
	s.settle()
	s.lead()
	if len(s.records) == 0 && len(s.changed) == 0 {
		return Effects{}
	}
	return Effects{Records: s.records, Changed: slices.Sorted(maps.Keys(s.changed)), Unresolved: s.granted}
}
