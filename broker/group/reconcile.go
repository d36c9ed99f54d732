package group

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"tidewire/broker/group/assign"
	"tidewire/internal/model"
)

type duration = time.Duration

// settle raises the epoch if anything changed, and makes the target assignment when it is
// time for it.
func (s *step) settle() {
	g := s.g
	info := g.info
	if s.assignor != "" {
		info.Assignor = s.assignor
	}
	if s.bump {
		info.Epoch++
		switch {
		case len(g.joinedIDs()) > 0:
			info.EmptySinceMs = 0
		case info.EmptySinceMs == 0:
			info.EmptySinceMs = s.env.WallMs
		}
	}
	if info.TargetEpoch < info.Epoch {
		due := g.assignedAt + g.settings.AssignmentInterval
		if !g.assigned || s.env.Mono >= due || len(g.joinedIDs()) == 0 {
			s.assign(assignorOf(info.Assignor))
			info.TargetEpoch, s.all = info.Epoch, true
			g.assigned, g.assignedAt = true, s.env.Mono
		} else {
			g.deadlineAt(due)
		}
	}
	if info != g.info {
		s.emit(info)
	}
}

// assign makes the target assignment of the present members and topics.
func (s *step) assign(name assign.Name) {
	g := s.g
	ids := g.joinedIDs()
	topics, index := g.subscribedTopics(s.env.Topics)
	in := assign.Input{Topics: make([]int32, len(topics)), Members: make([]assign.Member, len(ids))}
	byID := make(map[model.TopicID]int, len(topics))
	for i, t := range topics {
		in.Topics[i], byID[t.ID] = t.Partitions, i
	}
	for i, id := range ids {
		m := g.members[id]
		in.Members[i] = assign.Member{Rank: rank(&m.facts), Topics: g.subscription(m, index, s.env.Topics)}
		for _, t := range m.target {
			if k, ok := byID[t.Topic]; ok {
				for _, p := range t.Partitions {
					in.Members[i].Owned = append(in.Members[i].Owned, assign.Partition{Topic: k, Index: p})
				}
			}
		}
	}
	for i, ps := range assign.Assign(name, in) {
		target := packTarget(ps, topics)
		if !sameTarget(g.members[ids[i]].target, target) {
			if target == nil {
				s.tombstone(Key{Kind: KindTarget, Member: ids[i]})
			} else {
				s.emit(Target{Member: ids[i], Topics: target})
			}
			s.mark(ids[i])
		}
		if !g.members[ids[i]].greeted {
			s.mark(ids[i])
		}
	}
}

// rank orders members for assignors. A zero byte, which no name has, keeps instance ids
// and member ids apart.
func rank(f *Member) string {
	if f.InstanceID != "" {
		return "i\x00" + f.InstanceID
	}
	return "m\x00" + f.ID
}

// subscribedTopics are the topics that the group knows and somebody subscribes to, in
// order of name, with their places by name.
func (g *Group) subscribedTopics(v View) ([]TopicInfo, map[string]int) {
	wanted := g.wanted(v)
	var topics []TopicInfo
	for _, t := range g.topics {
		if wanted[t.Name] {
			topics = append(topics, t)
		}
	}
	slices.SortFunc(topics, func(a, b TopicInfo) int { return cmp.Compare(a.Name, b.Name) })
	index := make(map[string]int, len(topics))
	for i, t := range topics {
		index[t.Name] = i
	}
	return topics, index
}

// subscription gives the places of a member's topics, ascending.
func (g *Group) subscription(m *member, index map[string]int, v View) []int {
	names := m.facts.Topics
	if m.facts.Pattern != "" {
		names = g.matches(m.facts.Pattern, v)
	}
	out := make([]int, 0, len(names))
	for _, n := range names { // ascending, as the places are
		if i, ok := index[n]; ok {
			out = append(out, i)
		}
	}
	return out
}

// packTarget turns an assignor's partitions, which are in order of name, into a record's,
// which are in order of id.
func packTarget(ps []assign.Partition, topics []TopicInfo) []TopicPartitions {
	var out []TopicPartitions
	for i, p := range ps {
		if i == 0 || ps[i-1].Topic != p.Topic {
			out = append(out, TopicPartitions{Topic: topics[p.Topic].ID})
		}
		last := &out[len(out)-1]
		last.Partitions = append(last.Partitions, p.Index)
	}
	slices.SortFunc(out, func(a, b TopicPartitions) int { return bytes.Compare(a.Topic[:], b.Topic[:]) })
	return out
}

func sameTarget(a, b []TopicPartitions) bool {
	return slices.EqualFunc(a, b, func(x, y TopicPartitions) bool {
		return x.Topic == y.Topic && slices.Equal(x.Partitions, y.Partitions)
	})
}

// lead moves members towards their targets: all of them after a new assignment, and those
// who wait for what was released.
func (s *step) lead() {
	g := s.g
	if s.all {
		for _, id := range g.joinedIDs() {
			s.leadMember(id)
		}
	}
	var waiting []string
	for _, p := range s.freed {
		if id, ok := g.aims[p]; ok {
			waiting = append(waiting, id)
		}
	}
	slices.Sort(waiting)
	for _, id := range slices.Compact(waiting) {
		s.leadMember(id)
	}
}

// leadMember begins to revoke what a member has and is not to have, and grants it what it
// is to have and nobody holds. What no answer can have shown to it is taken back at once:
// it has read nothing of it.
func (s *step) leadMember(id string) {
	g := s.g
	m := g.members[id]
	if !m.joined {
		return
	}
	v, change := m.version+1, false
	var grants []flatGrant
	for _, x := range unpackGrants(m.grants) {
		if x.Revoked == 0 && g.aims[x.Partition] != id {
			change = true
			if x.Since > m.shown {
				s.freed = append(s.freed, x.Partition)
				continue
			}
			x.Revoked = v
		}
		grants = append(grants, x)
	}
	for _, t := range m.target {
		if _, known := g.topics[t.Topic]; !known {
			continue // deleted since the target was made
		}
		for _, p := range t.Partitions {
			key := Partition{t.Topic, p}
			if _, held := g.holders[key]; !held {
				grants, change = append(grants, flatGrant{key, Grant{Index: p, Since: v}}), true
			}
		}
	}
	if change {
		s.setGrants(id, packGrants(grants))
		s.ground(id, v)
	}
}

// ground has the new grants of a version resolved where nothing is committed.
func (s *step) ground(id string, v Version) {
	m := s.g.members[id]
	for _, h := range s.g.current(m).Held {
		if h.Since != v {
			continue
		}
		if _, ok := s.g.committed(h); ok {
			continue
		}
		if u := s.g.unresolved(m, h); u.Policy != Never {
			s.granted = append(s.granted, Ungrounded{Member: id, Unresolved: u})
		}
	}
}

// setGrants makes the next version of what a member holds.
func (s *step) setGrants(id string, grants []TopicGrants) {
	s.emit(Current{Member: id, Version: s.g.members[id].version + 1, Topics: grants})
	s.mark(id)
}

// release takes from a member those of its revoked partitions that fit.
func (s *step) release(id string, fits func(Partition, Grant) bool) {
	m := s.g.members[id]
	var left []flatGrant
	all := unpackGrants(m.grants)
	for _, x := range all {
		if x.Revoked != 0 && fits(x.Partition, x.Grant) {
			s.freed = append(s.freed, x.Partition)
			delete(m.named, x.Partition)
			continue
		}
		left = append(left, x)
	}
	if len(left) < len(all) {
		s.setGrants(id, packGrants(left))
	}
}

// flatGrant is a grant with its topic.
type flatGrant struct {
	Partition
	Grant
}

func unpackGrants(topics []TopicGrants) []flatGrant {
	var out []flatGrant
	for _, t := range topics {
		for _, x := range t.Grants {
			out = append(out, flatGrant{Partition{t.Topic, x.Index}, x})
		}
	}
	return out
}

func packGrants(flat []flatGrant) []TopicGrants {
	slices.SortFunc(flat, func(a, b flatGrant) int { return comparePartitions(a.Partition, b.Partition) })
	var out []TopicGrants
	for i, x := range flat {
		if i == 0 || flat[i-1].Topic != x.Topic {
			out = append(out, TopicGrants{Topic: x.Topic})
		}
		last := &out[len(out)-1]
		last.Grants = append(last.Grants, x.Grant)
	}
	return out
}

// current gives what a member has now, as answers tell it.
func (g *Group) current(m *member) *Assignment {
	if m.assignment != nil {
		return m.assignment
	}
	a := &Assignment{Version: m.version, Epoch: g.info.TargetEpoch, since: map[Partition]Version{}}
	for _, x := range unpackGrants(m.grants) {
		h := Held{Partition: x.Partition, Name: g.nameOf(x.Topic), Since: x.Since}
		if x.Revoked == 0 {
			a.Held = append(a.Held, h)
			a.since[x.Partition] = x.Since
		} else {
			a.Revoking = append(a.Revoking, h)
		}
	}
	byName := func(a, b Held) int {
		if c := cmp.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return cmp.Compare(a.Index, b.Index)
	}
	slices.SortFunc(a.Held, byName)
	slices.SortFunc(a.Revoking, byName)
	a.Pending = g.info.TargetEpoch < g.info.Epoch || g.waiting(m)
	m.assignment = a
	return a
}

// waiting tells whether a member's target holds what it has not got yet.
func (g *Group) waiting(m *member) bool {
	for _, t := range m.target {
		if _, known := g.topics[t.Topic]; !known {
			continue
		}
		for _, p := range t.Partitions {
			if x, ok := m.grant(Partition{t.Topic, p}); !ok || x.Revoked != 0 {
				return true
			}
		}
	}
	return false
}
