package group

import (
	"time"

	"tidewire/broker/group/cursor"
	"tidewire/internal/model"
)

// PollRequest is a member's poll, or its stream's next round.
type PollRequest struct {
	Member string
	// Cursor of an earlier answer, or nil. One of another member, or of a version that
	// the member has not had, counts as a cursor that says nothing.
	Cursor *cursor.Cursor
	// Wait is the longest that the poll may take: until then, and the session timeout
	// longer, the member counts as alive. Not negative.
	Wait time.Duration
	// Silent commits nothing, whatever the member has joined with: a stream commits by the
	// clock.
	Silent bool
}

// PollResult is what a member may read, as of the poll.
type PollResult struct {
	Assignment *Assignment
	// Positions of Assignment.Held, in its order: from the cursor, where it has them for
	// this very grant, else the committed offset, else NoOffset (see Unresolved).
	Positions []Position
	// Revoking are the positions of Assignment.Revoking, which the next cursor carries
	// on so that it can be committed.
	Revoking   []Position
	Unresolved []Unresolved
}

// Poll takes a member's poll: see the package for all steps of one. It restarts the
// session, commits what the cursor covers if the member has auto-commit, and releases what
// an answer has named as being revoked.
//
// Errors: unknown-member, member-expired, fenced.
func (g *Group) Poll(env Env, req PollRequest) (Effects, PollResult, error) {
	m, err := g.live(req.Member)
	if err != nil {
		return Effects{}, PollResult{}, err
	}
	g.touch(env, req.Member, req.Wait)
	s := g.step(env)
	c := m.usable(req.Member, req.Cursor)
	if m.facts.AutoCommit && !req.Silent {
		s.commitCursor(req.Member, c)
	}
	if req.Cursor == nil {
		s.release(req.Member, func(p Partition, _ Grant) bool { _, named := m.named[p]; return named })
	} else {
		s.releaseSeen(req.Member, c)
	}
	eff := s.finish()
	return eff, g.look(m, c), nil
}

// Look tells what Poll would tell now, and does nothing: for a poll that goes on after its
// assignment has changed.
//
// Errors: unknown-member, member-expired, fenced.
func (g *Group) Look(member string, c *cursor.Cursor) (PollResult, error) {
	m, err := g.live(member)
	if err != nil {
		return PollResult{}, err
	}
	return g.look(m, m.usable(member, c)), nil
}

// usable returns the cursor if it can be the member's own, and notes what it proves: an
// answer with its version was received.
func (m *member) usable(id string, c *cursor.Cursor) *cursor.Cursor {
	if c == nil || c.Member != cursor.Tag(id) || c.Version > m.version {
		return nil
	}
	m.saw(c.Version)
	return c
}

// saw notes that a version was shown to a member.
func (m *member) saw(v Version) { m.told, m.shown = max(m.told, v), max(m.shown, v) }

// releaseSeen releases what was being revoked in the answer that a cursor came with.
func (s *step) releaseSeen(id string, c *cursor.Cursor) {
	if c != nil {
		s.release(id, func(_ Partition, x Grant) bool { return x.Revoked <= c.Version })
	}
}

// look tells what a member may read and from where.
func (g *Group) look(m *member, c *cursor.Cursor) PollResult {
	a := g.current(m)
	out := PollResult{Assignment: a, Positions: make([]Position, 0, len(a.Held))}
	for _, h := range a.Held {
		p := g.position(h, c)
		out.Positions = append(out.Positions, p)
		if p.Next == NoOffset {
			out.Unresolved = append(out.Unresolved, g.unresolved(m, h))
		}
	}
	for _, h := range a.Revoking {
		if p := g.position(h, c); p.Next != NoOffset {
			out.Revoking = append(out.Revoking, p)
		}
	}
	return out
}

// position is where a member reads on.
func (g *Group) position(h Held, c *cursor.Cursor) Position {
	if e, ok := c.Find(h.Topic, h.Index); ok && e.Since == h.Since {
		return Position{Held: h, Next: e.Next, LeaderEpoch: model.NoEpoch}
	}
	if o, ok := g.committed(h); ok {
		return Position{Held: h, Next: o.Next, LeaderEpoch: o.Epoch}
	}
	return Position{Held: h, Next: NoOffset, LeaderEpoch: model.NoEpoch}
}

// committed is the committed offset of a partition by id.
func (g *Group) committed(h Held) (Offset, bool) {
	o, ok := g.offsets[h.Name][h.Index]
	return o, ok && (o.TopicID == h.Topic || o.TopicID.IsZero())
}

func (g *Group) unresolved(m *member, h Held) Unresolved {
	u := Unresolved{Held: h, Policy: m.facts.Reset, FromMs: m.facts.ResetFromMs}
	if int32(h.Index) >= g.topics[h.Topic].Initial {
		u.Policy = Earliest
	}
	return u
}

// Answer is the last step of a poll, right before its answer is written: it gives the
// assignment of this moment, and what it names as being revoked has from now the grace to
// be released. grace is for sockets and streams; 0 is a poll's, the least of the session
// timeout and Settings.RevocationGrace. The session begins anew.
//
// Errors: unknown-member, member-expired, fenced: the member ended while it waited.
func (g *Group) Answer(env Env, id string, grace time.Duration) (*Assignment, error) {
	m, err := g.live(id)
	if err != nil {
		return nil, err
	}
	g.touch(env, id, 0)
	a := g.current(m)
	m.saw(a.Version)
	m.greeted = m.greeted || !a.Pending
	g.name(env, m, grace)
	return a, nil
}

// name begins the grace of what is being revoked and was not named before; 0 is a poll's.
func (g *Group) name(env Env, m *member, grace time.Duration) {
	if grace == 0 {
		grace = min(m.facts.SessionTimeout, g.settings.RevocationGrace)
	}
	for _, h := range g.current(m).Revoking {
		if _, named := m.named[h.Partition]; named {
			continue
		}
		if m.named == nil {
			m.named = map[Partition]time.Duration{}
		}
		m.named[h.Partition] = env.Mono + grace
		g.deadlineAt(env.Mono + grace)
	}
}

// MakeCursor makes the cursor that goes with an answer. reached is how far the poll has
// read each of res.Positions, in their order (NoOffset, or nil for all: nothing was read).
// What was read of a partition that the assignment a does not hold any more is not given
// to the client, so its position stays where the poll began; what is being revoked stays
// in the cursor, for its commit.
func MakeCursor(member string, a *Assignment, res PollResult, reached []model.Offset) *cursor.Cursor {
	out := &cursor.Cursor{Member: cursor.Tag(member), Version: a.Version}
	revoking := make(map[Partition]Version, len(a.Revoking))
	for _, h := range a.Revoking {
		revoking[h.Partition] = h.Since
	}
	at := map[model.TopicID]int{}
	add := func(p Position) {
		if p.Next == NoOffset {
			return
		}
		i, ok := at[p.Topic]
		if !ok {
			i = len(out.Topics)
			at[p.Topic] = i
			out.Topics = append(out.Topics, cursor.Topic{Tag: cursor.TagOf(p.Topic)})
		}
		out.Topics[i].Entries = append(out.Topics[i].Entries, cursor.Entry{Partition: p.Index, Since: p.Since, Next: p.Next})
	}
	for i, p := range res.Positions {
		since, revoked := revoking[p.Partition]
		switch {
		case a.Holds(p.Partition, p.Since):
			if reached != nil && reached[i] != NoOffset {
				p.Next = reached[i]
			}
			add(p)
		case revoked && since == p.Since:
			add(p)
		}
	}
	for _, p := range res.Revoking {
		if since, revoked := revoking[p.Partition]; revoked && since == p.Since {
			add(p)
		}
	}
	out.Normalise()
	return out
}

// Release is the sockets' way to release partitions that are being revoked: what the
// client says it has released, or all that was named to it (nil) when its time is over.
// What is not being revoked is passed over.
//
// Errors: unknown-member, member-expired, fenced.
func (g *Group) Release(env Env, id string, partitions []Name) (Effects, error) {
	m, err := g.live(id)
	if err != nil {
		return Effects{}, err
	}
	g.extend(env, id)
	s := g.step(env)
	said := make(map[Name]bool, len(partitions))
	for _, n := range partitions {
		said[n] = true
	}
	s.release(id, func(p Partition, _ Grant) bool {
		if _, named := m.named[p]; partitions == nil {
			return named
		}
		return said[Name{g.nameOf(p.Topic), p.Index}]
	})
	return s.finish(), nil
}

// ResolveRequest brings what the logs say of partitions that Poll could not place, or at
// whose position (Bounds.At) a read was out of range.
type ResolveRequest struct {
	Member string
	Bounds []Bounds
}

// Resolve places a member by its reset policy. A first position is stored as committed
// offset, and so is one that takes the place of a committed offset which is out of range;
// where only the cursor was, the commit stays. Partitions that the member does not hold
// any more are passed over. Where a commit came in between, it is the position.
//
// Errors: offset-out-of-range with "partitions" where the policy is Never, and then nothing
// is stored. That counts as an answer that names what is being revoked: a member that gets
// nothing else must not keep it for ever. unknown-member, member-expired, fenced.
func (g *Group) Resolve(env Env, req ResolveRequest) (Effects, []Position, error) {
	m, err := g.live(req.Member)
	if err != nil {
		return Effects{}, nil, err
	}
	held := map[Partition]Held{}
	for _, h := range g.current(m).Held {
		held[h.Partition] = h
	}
	var out []Position
	var store []Offset
	var refused []OutOfRange
	for _, b := range req.Bounds {
		h, ok := held[b.Partition]
		if !ok {
			continue
		}
		o, committed := g.committed(h)
		if committed && b.At == NoOffset {
			out = append(out, Position{Held: h, Next: o.Next, LeaderEpoch: o.Epoch})
			continue
		}
		u := g.unresolved(m, h)
		if b.At != NoOffset {
			u.Policy = m.facts.Reset
		}
		if u.Policy == Never {
			refused = append(refused, OutOfRange{Topic: h.Name, Partition: h.Index, Earliest: b.Earliest, Latest: b.Latest})
			continue
		}
		next := b.choose(u.Policy)
		out = append(out, Position{Held: h, Next: next, LeaderEpoch: model.NoEpoch})
		if !committed || o.Next < b.Earliest || o.Next > b.Latest {
			store = append(store, Offset{Topic: h.Name, TopicID: h.Topic, Partition: h.Index, Next: next, Epoch: model.NoEpoch, CommitMs: env.WallMs})
		}
	}
	if len(refused) > 0 {
		g.name(env, m, 0)
		return Effects{}, nil, outOfRange(refused)
	}
	s := g.step(env)
	for _, o := range store {
		s.emit(o)
	}
	return s.finish(), out, nil
}

// choose gives the offset of a policy.
func (b Bounds) choose(p ResetPolicy) model.Offset {
	switch {
	case p == Latest:
		return b.Latest
	case p == FromTime && b.At == NoOffset:
		return b.AtTime
	default:
		return b.Earliest
	}
}

// OutOfRange is a partition without a position, with what its log has.
type OutOfRange struct {
	Topic     string            `json:"topic"`
	Partition model.PartitionID `json:"partition"`
	Earliest  model.Offset      `json:"earliest"`
	Latest    model.Offset      `json:"latest"`
}

func outOfRange(list []OutOfRange) error {
	return model.Errorf(model.OffsetOutOfRange, "%d partitions have no committed offset in range, and auto_offset_reset is none", len(list)).
		WithExtra("partitions", list)
}

// SeekPosition is where a member wants to read on.
type SeekPosition struct {
	Name
	Next model.Offset
}

// SeekRequest asks for a cursor with other positions.
type SeekRequest struct {
	Member    string
	Positions []SeekPosition
	// Cursor gives the positions of the partitions that Positions does not name; nil:
	// those are the committed offsets.
	Cursor *cursor.Cursor
}

// Seek makes a cursor that reads on where the member asks. Nothing is stored. It proves no
// more of what the member has seen than was known before: it releases only what an answer
// has named.
//
// Errors: invalid-argument for a negative offset or a partition named twice; not-owner
// with "partitions" for what the member does not hold, what is being revoked included;
// unknown-topic, unknown-partition; unknown-member, member-expired, fenced.
func (g *Group) Seek(env Env, req SeekRequest) (*cursor.Cursor, error) {
	m, err := g.live(req.Member)
	if err != nil {
		return nil, err
	}
	names := make([]Name, len(req.Positions))
	for i, p := range req.Positions {
		names[i] = p.Name
		if p.Next < 0 || p.Next > model.MaxOffset {
			return nil, model.Invalid(pointer("positions", i, "next_offset"), "an offset is a number from 0 to %d", model.MaxOffset)
		}
	}
	ids, err := find(env.Topics, names, "positions")
	if err != nil {
		return nil, err
	}
	var foreign []Name
	wants := map[Partition]model.Offset{}
	for i, p := range ids {
		if x, ok := m.grant(p); !ok || x.Revoked != 0 {
			foreign = append(foreign, names[i])
		}
		wants[p] = req.Positions[i].Next
	}
	if len(foreign) > 0 {
		return nil, notOwner(foreign)
	}
	g.extend(env, req.Member)
	got := g.look(m, m.usable(req.Member, req.Cursor))
	for i, p := range got.Positions {
		if next, ok := wants[p.Partition]; ok {
			got.Positions[i].Next = next
		}
	}
	c := MakeCursor(req.Member, got.Assignment, got, nil)
	c.Version = min(c.Version, m.told)
	return c, nil
}
