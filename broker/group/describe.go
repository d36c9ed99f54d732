package group

import (
	"maps"
	"slices"

	"tidewire/broker/group/assign"
	"tidewire/internal/model"
)

// Description is a group as people look at it.
type Description struct {
	ID       string
	State    State
	Epoch    Epoch
	Assignor assign.Name // "" where the group never had a member
	Members  []MemberDescription
	Offsets  []OffsetDescription
}

// MemberDescription is one member, in order of id.
type MemberDescription struct {
	Member
	Assignment *Assignment
}

// OffsetDescription is one committed offset, in order of name and number.
type OffsetDescription struct {
	Offset
	MemberID string // who holds the partition, what is being revoked included; or ""
}

// State is what the group is doing.
func (g *Group) State() State {
	ids := g.joinedIDs()
	switch {
	case len(ids) == 0 && g.Vacant():
		return Dead
	case len(ids) == 0:
		return Empty
	case g.info.TargetEpoch < g.info.Epoch:
		return Assigning
	}
	for _, id := range ids {
		if a := g.current(g.members[id]); a.Pending || len(a.Revoking) > 0 {
			return Reconciling
		}
	}
	return Stable
}

// Vacant tells whether there is nothing of the group, so that the shell may forget it.
func (g *Group) Vacant() bool {
	return g.info == (GroupInfo{}) && len(g.topics)+len(g.members)+len(g.gone)+len(g.offsets)+len(g.staged) == 0
}

// Members is how many there are.
func (g *Group) Members() int { return len(g.joinedIDs()) }

// Describe gives all that is known of the group but what its logs say.
func (g *Group) Describe() Description {
	d := Description{ID: g.id, State: g.State(), Epoch: g.info.Epoch, Assignor: g.info.Assignor}
	for _, id := range g.joinedIDs() {
		m := g.members[id]
		d.Members = append(d.Members, MemberDescription{Member: m.facts, Assignment: g.current(m)})
	}
	byName := make(map[string]model.TopicID, len(g.topics))
	for id, t := range g.topics {
		byName[t.Name] = id
	}
	for _, topic := range slices.Sorted(maps.Keys(g.offsets)) {
		id, known := byName[topic]
		for _, p := range slices.Sorted(maps.Keys(g.offsets[topic])) {
			o := OffsetDescription{Offset: g.offsets[topic][p]}
			if known {
				o.MemberID = g.holders[Partition{id, p}]
			}
			d.Offsets = append(d.Offsets, o)
		}
	}
	return d
}

// Delete takes away all of a group that has no members.
//
// Errors: group-not-empty; unknown-group.
func (g *Group) Delete(env Env) (Effects, error) {
	if err := g.Deletable(); err != nil {
		return Effects{}, err
	}
	s := g.step(env)
	for _, r := range g.Snapshot() {
		s.tombstone(r.Key())
	}
	return Effects{Records: s.records}, nil
}
