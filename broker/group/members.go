package group

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"tidewire/broker/group/assign"
	"tidewire/broker/group/cursor"
	"tidewire/internal/model"
)

// JoinRequest asks for a new member. The shell makes the id, which must never have been
// used in the group.
type JoinRequest struct {
	// Member is what is to be. Topics may be in any order; JoinedMs is set by Join.
	Member Member
	// Assignor that the member wants, or "" for the group's.
	Assignor assign.Name
	// TakeOver fences a live member of the same instance id instead of being refused.
	TakeOver bool
}

// JoinResult is what became of it.
type JoinResult struct {
	Member   Member
	Assignor assign.Name // of the group
	Epoch    Epoch
	Fenced   string // the member whose place was taken, or ""
}

// Join adds a member. A static member that takes over gets its predecessor's assignment,
// without a rebalance where it subscribes to the same; what was being revoked from the
// predecessor is released.
//
// Errors: invalid-argument for what the request alone shows (pointers are those of the
// HTTP body); conflict for another assignor than the group's, for a live member of the same
// instance id without TakeOver, for a full group, and for an id that is taken.
func (g *Group) Join(env Env, req JoinRequest) (Effects, JoinResult, error) {
	m, err := normalise(req)
	if err != nil {
		return Effects{}, JoinResult{}, err
	}
	former, err := g.admit(req, m)
	if err != nil {
		return Effects{}, JoinResult{}, err
	}
	m.JoinedMs = env.WallMs
	s := g.step(env)
	before := g.wanted(env.Topics)
	s.refresh(before, notFresh)
	if req.Assignor != "" && g.info.Assignor != req.Assignor || g.info.Assignor == "" {
		s.assignor = assignorOf(req.Assignor)
	}
	if former != "" {
		s.takeOver(former, m)
	} else {
		s.emit(m)
		s.bump = true
	}
	s.refresh(g.wanted(env.Topics), func(name string) bool { return !before[name] })
	g.touch(env, m.ID, 0)
	eff := s.finish()
	return eff, JoinResult{Member: m, Assignor: g.assignor(), Epoch: g.info.Epoch, Fenced: former}, nil
}

// takeOver puts a static member in the place of its predecessor.
func (s *step) takeOver(former string, m Member) {
	g := s.g
	old := g.members[former]
	target, facts := old.target, old.facts
	var held []flatGrant
	for _, x := range unpackGrants(old.grants) {
		if x.Revoked != 0 {
			s.freed = append(s.freed, x.Partition)
			continue
		}
		held = append(held, flatGrant{x.Partition, Grant{Index: x.Grant.Index, Since: 1}})
	}
	s.end(former, Fenced)
	s.emit(m)
	if target != nil {
		s.emit(Target{Member: m.ID, Topics: target})
	}
	if len(held) > 0 {
		s.setGrants(m.ID, packGrants(held))
	}
	if !slices.Equal(facts.Topics, m.Topics) || facts.Pattern != m.Pattern {
		s.bump = true
	}
}

// end takes a member away; a reason other than 0 is remembered.
func (s *step) end(id string, why Reason) {
	g := s.g
	m := g.members[id]
	s.tombstone(Key{Kind: KindMember, Member: id})
	if m.target != nil {
		s.tombstone(Key{Kind: KindTarget, Member: id})
	}
	if m.version != 0 {
		for _, x := range unpackGrants(m.grants) {
			s.freed = append(s.freed, x.Partition)
		}
		s.tombstone(Key{Kind: KindCurrent, Member: id})
	}
	s.mark(id)
	if why != 0 {
		s.remember(MemberGone{Member: id, Reason: why, AtMs: s.env.WallMs})
	}
}

// remember keeps a member that is no more, and forgets the one longest gone where there
// are too many.
func (s *step) remember(r MemberGone) {
	g := s.g
	s.emit(r)
	g.gone[r.Member].until = s.env.Mono + g.settings.GoneFor
	g.deadlineAt(g.gone[r.Member].until)
	for len(g.gone) > g.settings.MaxGone {
		oldest := ""
		for id, x := range g.gone {
			if o := g.gone[oldest]; o == nil || x.until < o.until || x.until == o.until && id < oldest {
				oldest = id
			}
		}
		s.tombstone(g.gone[oldest].record.Key())
	}
}

// admit decides whether a member may join, and whose place it takes.
func (g *Group) admit(req JoinRequest, m Member) (former string, err error) {
	if x := g.members[m.ID]; x != nil || g.gone[m.ID] != nil {
		return "", model.Errorf(model.Conflict, "the member id %q is taken", m.ID)
	}
	members := len(g.joinedIDs())
	if own := g.info.Assignor; members > 0 && req.Assignor != "" && own != req.Assignor {
		return "", model.Errorf(model.Conflict, "the group's assignor is %s, and it has members; %s was asked for", own, req.Assignor)
	}
	if m.InstanceID != "" {
		former = g.instances[m.InstanceID]
	}
	if former != "" && !req.TakeOver {
		return "", model.Errorf(model.Conflict, "the instance id %q has a live member; take_over ends it", m.InstanceID)
	}
	if limit := g.settings.MaxMembers; former == "" && limit > 0 && members >= limit {
		return "", model.Errorf(model.Conflict, "the group has %d members, which is the most it may have", members)
	}
	return former, nil
}

// normalise checks what a request alone shows, and gives the member it makes.
func normalise(req JoinRequest) (Member, error) {
	m := req.Member
	if m.ID == "" || len(m.ID) > model.MaxName {
		return m, model.Invalid("/member_id", "a member id has 1 to %d bytes", model.MaxName)
	}
	if err := checkSubscription(&m); err != nil {
		return m, err
	}
	if m.InstanceID != "" {
		if what := model.CheckName(m.InstanceID); what != "" {
			return m, model.Invalid("/instance_id", "an instance id %s", what)
		}
	}
	for _, x := range []struct{ pointer, value string }{{"/client_id", m.ClientID}, {"/host", m.Host}} {
		if len(x.value) > MaxClientText || !utf8.ValidString(x.value) {
			return m, model.Invalid(x.pointer, "must be valid UTF-8 of at most %d bytes", MaxClientText)
		}
	}
	m.SessionTimeout = m.SessionTimeout.Truncate(time.Millisecond)
	if m.SessionTimeout < MinSessionTimeout || m.SessionTimeout > MaxSessionTimeout {
		return m, model.Invalid("/session_timeout_ms", "must be from %d to %d", MinSessionTimeout.Milliseconds(), MaxSessionTimeout.Milliseconds())
	}
	if req.Assignor != "" && !assign.Known(req.Assignor) {
		return m, model.Invalid("/assignor", "must be one of range, roundrobin and sticky")
	}
	switch {
	case m.Reset == FromTime && m.ResetFromMs < 0:
		return m, model.Invalid("/auto_offset_reset", "a time must not be negative")
	case m.Reset == Earliest, m.Reset == Latest, m.Reset == Never, m.Reset == FromTime:
	default:
		return m, model.Invalid("/auto_offset_reset", "must be one of earliest, latest and none")
	}
	return m, nil
}

func checkSubscription(m *Member) error {
	if (len(m.Topics) == 0) == (m.Pattern == "") {
		return model.Invalid("/topics", "a member subscribes to topics or to a topic_pattern: one of the two is needed")
	}
	if m.Pattern != "" {
		if len(m.Pattern) > MaxPattern {
			return model.Invalid("/topic_pattern", "has at most %d bytes", MaxPattern)
		}
		if _, err := compilePattern(m.Pattern); err != nil {
			return model.Invalid("/topic_pattern", "is no regular expression of RE2").WithCause(err)
		}
		return nil
	}
	if len(m.Topics) > MaxSubscription {
		return model.Invalid("/topics", "a member names at most %d topics; a topic_pattern has no limit", MaxSubscription)
	}
	for i, t := range m.Topics {
		if what := model.CheckTopicName(t); what != "" {
			return model.Invalid(fmt.Sprintf("/topics/%d", i), "%s", what)
		}
	}
	m.Topics = slices.Clone(m.Topics)
	slices.Sort(m.Topics)
	m.Topics = slices.Compact(m.Topics)
	return nil
}

// live returns a member, or why there is none.
func (g *Group) live(id string) (*member, error) {
	if m := g.members[id]; m != nil && m.joined {
		return m, nil
	}
	if x := g.gone[id]; x != nil {
		if x.record.Reason == Fenced {
			return nil, model.Errorf(model.Fenced, "the member %q was replaced by a newer one of its instance id", id)
		}
		return nil, model.Errorf(model.MemberExpired, "the session of the member %q has expired; join again", id)
	}
	return nil, model.Errorf(model.UnknownMember, "the group %q has no member %q", g.id, id)
}

// Facts are what a member joined with.
func (g *Group) Facts(id string) (Member, error) {
	m, err := g.live(id)
	if err != nil {
		return Member{}, err
	}
	return m.facts, nil
}

// touch begins a member's session anew after a wait. A shorter one takes the place of a
// longer.
func (g *Group) touch(env Env, id string, wait time.Duration) {
	m := g.members[id]
	m.deadline = env.Mono + wait + m.facts.SessionTimeout
	g.deadlineAt(m.deadline)
}

// Heartbeat begins a member's session anew. The shell calls it too when a poll's
// connection has gone while it waited.
//
// Errors: unknown-member, member-expired, fenced.
func (g *Group) Heartbeat(env Env, id string) error {
	if _, err := g.live(id); err != nil {
		return err
	}
	g.touch(env, id, 0)
	return nil
}

// Leave ends a member; what it had is free at once. With auto-commit, a cursor is
// committed first.
//
// Errors: as Heartbeat.
func (g *Group) Leave(env Env, id string, c *cursor.Cursor) (Effects, error) {
	m, err := g.live(id)
	if err != nil {
		return Effects{}, err
	}
	s := g.step(env)
	if m.facts.AutoCommit {
		s.commitCursor(id, m.usable(id, c))
	}
	s.end(id, 0)
	s.left()
	return s.finish(), nil
}

// left is what follows from members having gone.
func (s *step) left() {
	s.bump = true
	s.refresh(s.g.wanted(s.env.Topics), notFresh)
}
