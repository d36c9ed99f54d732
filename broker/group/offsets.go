package group

import (
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"tidewire/broker/group/cursor"
	"tidewire/internal/model"
)

// CommitOffset is one offset of a commit.
type CommitOffset struct {
	Name
	Next     model.Offset      // the next to be read
	Epoch    model.LeaderEpoch // of the record before, or model.NoEpoch
	Metadata string
}

// CommitRequest commits offsets for a member.
type CommitRequest struct {
	Member  string
	Offsets []CommitOffset
}

// pointer is a JSON Pointer into a list of the request.
func pointer(list string, i int, field string) string {
	return fmt.Sprintf("/%s/%d/%s", list, i, field)
}

// find looks names up, in their order. A partition that is named twice is refused.
func find(v View, names []Name, list string) ([]Partition, error) {
	if err := checkNames(names, list); err != nil {
		return nil, err
	}
	out := make([]Partition, len(names))
	for i, n := range names {
		t, ok := v.ByName(n.Topic)
		if !ok {
			return nil, model.Errorf(model.UnknownTopic, "there is no topic %q", n.Topic)
		}
		if int64(n.Partition) >= int64(t.Partitions) {
			return nil, model.Errorf(model.UnknownPartition, "topic %q has %d partitions; %d is none of them", n.Topic, t.Partitions, n.Partition)
		}
		out[i] = Partition{t.ID, n.Partition}
	}
	return out, nil
}

// checkOffsets checks what a commit's list alone shows.
func (g *Group) checkOffsets(list []CommitOffset) error {
	if len(list) == 0 {
		return model.Invalid("/offsets", "at least one offset is needed")
	}
	for i, o := range list {
		if o.Next < 0 || o.Next > model.MaxOffset {
			return model.Invalid(pointer("offsets", i, "next_offset"), "an offset is a number from 0 to %d", model.MaxOffset)
		}
		if len(o.Metadata) > g.settings.MaxMetadataBytes || !utf8.ValidString(o.Metadata) {
			return model.Invalid(pointer("offsets", i, "metadata"), "must be valid UTF-8 of at most %d bytes", g.settings.MaxMetadataBytes)
		}
	}
	return nil
}

func namesOf(list []CommitOffset) []Name {
	out := make([]Name, len(list))
	for i, o := range list {
		out[i] = o.Name
	}
	return out
}

func (o CommitOffset) record(id model.TopicID, wallMs int64) Offset {
	return Offset{
		Topic: o.Topic, TopicID: id, Partition: o.Partition, Next: o.Next,
		Epoch: o.Epoch, Metadata: o.Metadata, CommitMs: wallMs,
	}
}

// notOwner is the refusal of a commit or seek, with the partitions that are not the
// member's.
func notOwner(foreign []Name) error {
	type row struct {
		Topic     string            `json:"topic"`
		Partition model.PartitionID `json:"partition"`
	}
	rows := make([]row, len(foreign))
	for i, n := range foreign {
		rows[i] = row(n)
	}
	return model.Errorf(model.NotOwner, "the member does not own %d of the partitions", len(foreign)).WithExtra("partitions", rows)
}

// owned looks up the partitions of a commit, all of which must be the member's, held or
// being revoked. A topic that was created anew under the same name must have been told to
// the member: what it says is else about the former one.
func (g *Group) owned(env Env, id string, list []CommitOffset) ([]Partition, error) {
	if err := g.checkOffsets(list); err != nil {
		return nil, err
	}
	m, err := g.live(id)
	if err != nil {
		return nil, err
	}
	ids, err := find(env.Topics, namesOf(list), "offsets")
	if err != nil {
		return nil, err
	}
	var foreign []Name
	for i, p := range ids {
		x, ok := m.grant(p)
		if !ok || g.recreated[p.Topic] && x.Since > m.told {
			foreign = append(foreign, list[i].Name)
		}
	}
	if len(foreign) > 0 {
		return nil, notOwner(foreign)
	}
	return ids, nil
}

// Commit stores offsets that a member names: all or none. It may go back. It restarts the
// session.
//
// Errors: invalid-argument for a negative offset, metadata that is too long, a partition
// named twice, an empty list; unknown-topic, unknown-partition; not-owner with
// "partitions"; unknown-member, member-expired, fenced.
func (g *Group) Commit(env Env, req CommitRequest) (Effects, []Offset, error) {
	ids, err := g.owned(env, req.Member, req.Offsets)
	if err != nil {
		return Effects{}, nil, err
	}
	g.extend(env, req.Member)
	s := g.step(env)
	out := s.store(req.Offsets, ids)
	return s.finish(), out, nil
}

func (s *step) store(list []CommitOffset, ids []Partition) []Offset {
	out := make([]Offset, len(list))
	for i, o := range list {
		out[i] = o.record(ids[i].Topic, s.env.WallMs)
		s.emit(out[i])
	}
	return out
}

// CommitCursor commits what a cursor covers, never back, and releases what was being
// revoked in the answer that the cursor came with. Entries of grants that the member has
// no more are passed over. The result has what is committed now, of each partition that
// the cursor covers.
//
// Errors: unknown-member, member-expired, fenced.
func (g *Group) CommitCursor(env Env, member string, c *cursor.Cursor) (Effects, []Offset, error) {
	m, err := g.live(member)
	if err != nil {
		return Effects{}, nil, err
	}
	g.extend(env, member)
	s := g.step(env)
	c = m.usable(member, c)
	out := s.commitCursor(member, c)
	s.releaseSeen(member, c)
	return s.finish(), out, nil
}

// commitCursor commits forward what a usable cursor (or nil) covers.
func (s *step) commitCursor(id string, c *cursor.Cursor) []Offset {
	if c == nil {
		return nil
	}
	g := s.g
	var out []Offset
	for _, t := range g.members[id].grants {
		if _, ok := s.env.Topics.ByID(t.Topic); !ok {
			continue // deleted, which the group is about to hear
		}
		for _, x := range t.Grants {
			e, ok := c.Find(t.Topic, x.Index)
			if !ok || e.Since != x.Since {
				continue
			}
			h := Held{Partition: Partition{t.Topic, x.Index}, Name: g.nameOf(t.Topic)}
			o, committed := g.committed(h)
			if !committed || e.Next > o.Next {
				o = Offset{Topic: h.Name, TopicID: t.Topic, Partition: x.Index, Next: e.Next, Epoch: model.NoEpoch, CommitMs: s.env.WallMs}
				s.emit(o)
			}
			out = append(out, o)
		}
	}
	return out
}

// errMembers is the refusal of what needs an empty group.
func (g *Group) errMembers() error {
	if n := len(g.joinedIDs()); n > 0 {
		return model.Errorf(model.GroupNotEmpty, "the group %q has %d members", g.id, n)
	}
	return nil
}

// PutOffsets stores offsets without a member; the group must have none. A group that does
// not exist comes into being.
//
// Errors: as Commit's but those of members; group-not-empty.
func (g *Group) PutOffsets(env Env, list []CommitOffset) (Effects, []Offset, error) {
	if err := g.checkOffsets(list); err != nil {
		return Effects{}, nil, err
	}
	ids, err := find(env.Topics, namesOf(list), "offsets")
	if err != nil {
		return Effects{}, nil, err
	}
	if err := g.errMembers(); err != nil {
		return Effects{}, nil, err
	}
	s := g.step(env)
	out := s.store(list, ids)
	return s.finish(), out, nil
}

// DeleteOffsets takes away the committed offsets of topics, and tells which there were. A
// topic that was deleted may be named.
//
// Errors: group-not-empty when a member subscribes to one of the topics (Kafka's
// GROUP_SUBSCRIBED_TO_TOPIC).
func (g *Group) DeleteOffsets(env Env, topics []string) (Effects, []Name, error) {
	if err := g.OffsetsDeletable(env, topics); err != nil {
		return Effects{}, nil, err
	}
	wanted := g.wanted(env.Topics)
	s := g.step(env)
	var out []Name
	for _, t := range topics {
		for _, p := range slices.Sorted(maps.Keys(g.offsets[t])) {
			out = append(out, Name{t, p})
			s.tombstone(Key{Kind: KindOffset, Topic: t, Partition: p})
		}
	}
	s.forgetTopics(wanted)
	return s.finish(), out, nil
}

// ExpireOffsets takes away offsets that nobody has needed for Settings.OffsetRetention:
// of an empty group, counted from the later of commit and the last member's end; of a
// topic that no member subscribes to, counted from the commit (KIP-211). What an open
// transaction has staged keeps the offset of its partition. A group of which nothing is
// left is forgotten (Vacant). The shell does not call it while the wall clock is in doubt.
func (g *Group) ExpireOffsets(env Env) Effects {
	s := g.step(env)
	wanted := g.wanted(env.Topics)
	pending := map[Name]bool{}
	for _, byName := range g.staged {
		for n := range byName {
			pending[n] = true
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(g.offsets)) {
		if wanted[topic] {
			continue
		}
		byPartition := g.offsets[topic]
		for _, p := range slices.Sorted(maps.Keys(byPartition)) {
			since := byPartition[p].CommitMs
			if len(g.joinedIDs()) == 0 {
				since = max(since, g.info.EmptySinceMs)
			}
			age := time.Duration(env.WallMs-since) * time.Millisecond
			if age >= g.settings.OffsetRetention && !pending[Name{topic, p}] {
				s.tombstone(byPartition[p].Key())
			}
		}
	}
	s.forgetTopics(wanted)
	if len(g.members)+len(g.offsets)+len(g.staged)+len(g.gone) == 0 && g.info != (GroupInfo{}) {
		s.tombstone(Key{Kind: KindGroup})
		return Effects{Records: s.records}
	}
	return s.finish()
}

// Committed is the committed offset of a partition, by name.
func (g *Group) Committed(n Name) (Offset, bool) {
	o, ok := g.offsets[n.Topic][n.Partition]
	return o, ok
}

// StageRequest commits offsets in a transaction (KIP-98, KIP-447).
type StageRequest struct {
	Producer model.ProducerID
	Member   string // whose partitions they must be; "" for a producer that is no member's
	Offsets  []CommitOffset
}

// Stage keeps offsets until the producer's transaction ends. Later ones of a partition take
// the place of earlier ones.
//
// Errors: as Commit's.
func (g *Group) Stage(env Env, req StageRequest) (Effects, error) {
	ids, err := g.stageable(env, req)
	if err != nil {
		return Effects{}, err
	}
	s := g.step(env)
	for i, o := range req.Offsets {
		s.emit(StagedOffset{Producer: req.Producer, Offset: o.record(ids[i].Topic, env.WallMs)})
	}
	return s.finish(), nil
}

func (g *Group) stageable(env Env, req StageRequest) ([]Partition, error) {
	if req.Member != "" {
		return g.owned(env, req.Member, req.Offsets)
	}
	if err := g.checkOffsets(req.Offsets); err != nil {
		return nil, err
	}
	return find(env.Topics, namesOf(req.Offsets), "offsets")
}

// EndTransaction commits or drops what a producer has staged. A producer that has staged
// nothing is fine: the call may be a repeat.
func (g *Group) EndTransaction(env Env, producer model.ProducerID, commit bool) Effects {
	s := g.step(env)
	byName := g.staged[producer]
	for _, n := range slices.SortedFunc(maps.Keys(byName), compareNames) {
		o := byName[n]
		if now, ok := env.Topics.ByName(n.Topic); commit && ok && now.ID == o.TopicID {
			s.emit(o)
		}
		s.tombstone(StagedOffset{producer, o}.Key())
	}
	return s.finish()
}

// Unstable are the partitions with offsets staged by open transactions, ascending: who
// wants stable offsets waits for these (KIP-447).
func (g *Group) Unstable() []Name {
	set := map[Name]bool{}
	for _, byName := range g.staged {
		for n := range byName {
			set[n] = true
		}
	}
	return slices.SortedFunc(maps.Keys(set), compareNames)
}
