package group

import (
	"maps"
	"regexp"
	"slices"

	"tidewire/internal/model"
)

// pattern is a compiled topic pattern with what it matched in a view.
type pattern struct {
	re         *regexp.Regexp
	generation uint64
	names      []string // ascending
}

// compilePattern makes a pattern match whole names. It is compiled by itself first, so
// that no bracket of it closes ours.
func compilePattern(text string) (*regexp.Regexp, error) {
	if _, err := regexp.Compile(text); err != nil {
		return nil, err
	}
	return regexp.Compile(`\A(?:` + text + `)\z`)
}

// matches gives the topics of a view that a pattern matches.
func (g *Group) matches(text string, v View) []string {
	p := g.patterns[text]
	if p == nil {
		re, err := compilePattern(text)
		if err != nil { // of a record that no Join would have made: it matches nothing
			return nil
		}
		p = &pattern{re: re}
		g.patterns[text] = p
	} else if p.generation != 0 && p.generation == v.Generation() {
		return p.names
	}
	p.generation, p.names = v.Generation(), nil
	for t := range v.All() {
		if !t.Internal && p.re.MatchString(t.Name) {
			p.names = append(p.names, t.Name)
		}
	}
	return p.names
}

// wanted are the names that the members subscribe to, of topics that exist or not.
func (g *Group) wanted(v View) map[string]bool {
	out, patterns := map[string]bool{}, map[string]bool{}
	for _, id := range g.joinedIDs() {
		f := &g.members[id].facts
		for _, t := range f.Topics {
			out[t] = true
		}
		if f.Pattern != "" && !patterns[f.Pattern] {
			patterns[f.Pattern] = true
			for _, t := range g.matches(f.Pattern, v) {
				out[t] = true
			}
		}
	}
	for text := range g.patterns {
		if !patterns[text] {
			delete(g.patterns, text)
		}
	}
	return out
}

// refresh brings what the group knows of topics up to the view. A topic that is new to the
// group is there from the start for those who subscribe to it now (fresh), and else has
// appeared after the group subscribed.
func (s *step) refresh(wanted map[string]bool, fresh func(name string) bool) {
	g := s.g
	for _, id := range slices.SortedFunc(maps.Keys(g.topics), compareIDs) {
		known := g.topics[id]
		now, ok := s.env.Topics.ByID(id)
		switch {
		case !ok:
			s.topicGone(known)
			s.bump = s.bump || wanted[known.Name]
		case now.Partitions > known.Partitions:
			known.Partitions = now.Partitions
			s.emit(known)
			s.bump = s.bump || wanted[known.Name]
		}
	}
	s.dropForeignOffsets()
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		now, ok := s.env.Topics.ByName(name)
		if _, known := g.topics[now.ID]; !ok || known {
			continue
		}
		info := TopicInfo{ID: now.ID, Name: name, Partitions: now.Partitions}
		if fresh(name) {
			info.Initial = now.Partitions
		}
		s.emit(info)
		s.bump = true
		g.recreated[info.ID] = g.deleted[name]
	}
	s.forgetTopics(wanted)
}

// topicGone takes a deleted topic from the group and from its members: there is nothing
// left to read or to hand over.
func (s *step) topicGone(t TopicInfo) {
	g := s.g
	s.tombstone(t.Key())
	delete(g.recreated, t.ID)
	g.deleted[t.Name] = true
	for _, id := range slices.Sorted(maps.Keys(g.members)) {
		m := g.members[id]
		if !slices.ContainsFunc(m.grants, func(x TopicGrants) bool { return x.Topic == t.ID }) {
			continue
		}
		left := slices.DeleteFunc(slices.Clone(m.grants), func(x TopicGrants) bool { return x.Topic == t.ID })
		maps.DeleteFunc(m.named, func(p Partition, _ duration) bool { return p.Topic == t.ID })
		s.setGrants(id, left)
	}
}

// dropForeignOffsets takes away the offsets of topics that do not exist any more: they go
// with the topic, whatever has its name now.
func (s *step) dropForeignOffsets() {
	for _, name := range slices.Sorted(maps.Keys(s.g.offsets)) {
		now, ok := s.env.Topics.ByName(name)
		byPartition := s.g.offsets[name]
		for _, p := range slices.Sorted(maps.Keys(byPartition)) {
			if o := byPartition[p]; !ok || !o.TopicID.IsZero() && o.TopicID != now.ID {
				s.tombstone(o.Key())
			}
		}
	}
	for _, producer := range slices.Sorted(maps.Keys(s.g.staged)) {
		byName := s.g.staged[producer]
		for _, n := range slices.SortedFunc(maps.Keys(byName), compareNames) {
			o := byName[n]
			if now, ok := s.env.Topics.ByName(n.Topic); !ok || !o.TopicID.IsZero() && o.TopicID != now.ID {
				s.tombstone(StagedOffset{producer, o}.Key())
			}
		}
	}
}

// forgetTopics drops what is known of topics that nobody subscribes to or holds, and no
// offset is of: who subscribes next begins afresh.
func (s *step) forgetTopics(wanted map[string]bool) {
	g := s.g
	for _, id := range slices.SortedFunc(maps.Keys(g.topics), compareIDs) {
		if t := g.topics[id]; !wanted[t.Name] && len(g.offsets[t.Name]) == 0 && !g.isHeld(t) {
			s.tombstone(t.Key())
			delete(g.recreated, id)
		}
	}
}

// isHeld tells whether some member still has a partition of a topic: one that took the
// place of a member with another subscription may, for a while.
func (g *Group) isHeld(t TopicInfo) bool {
	for p := range t.Partitions {
		if _, ok := g.holders[Partition{t.ID, model.PartitionID(p)}]; ok {
			return true
		}
	}
	return false
}

// notFresh is for topics that appear without anybody subscribing anew.
func notFresh(string) bool { return false }

// TopicsChanged brings the group up to the topics of env: new ones that are subscribed to,
// more partitions, deletions. The shell calls it for each loaded group after a change of
// topics; where nothing concerns the group nothing happens.
func (g *Group) TopicsChanged(env Env) Effects {
	s := g.step(env)
	s.refresh(g.wanted(env.Topics), notFresh)
	return s.finish()
}

// nameOf is the name of a topic that the group knows.
func (g *Group) nameOf(id model.TopicID) string { return g.topics[id].Name }

// Topics are the names that the group subscribes to or has offsets of, ascending: what an
// index of groups by topic holds.
func (g *Group) Topics() []string {
	set := map[string]bool{}
	for _, t := range g.topics {
		set[t.Name] = true
	}
	for name := range g.offsets {
		set[name] = true
	}
	for _, id := range g.joinedIDs() {
		for _, t := range g.members[id].facts.Topics {
			set[t] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}
