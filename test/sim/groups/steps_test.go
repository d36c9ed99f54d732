package groups

import (
	"fmt"
	"time"

	"tidewire/broker/group"
	"tidewire/broker/group/cursor"
	"tidewire/internal/model"
)

// step is one thing that may happen; it tells whether it could.
type step struct {
	name   string
	weight int
	do     func(*sim) bool
}

// effects are what must have happened in a run of many seeds.
var effects = []string{
	"a member expired", "a member was fenced", "an instance was taken over", "a partition went to another holder",
	"a partition was lost and came back", "a member was told of a revocation", "a revocation was overdue",
	"an answer was lost", "the answer to a join was lost", "an answer was pending", "an old cursor was used",
	"another member's cursor was used", "a poll ended the one before", "a poll released partitions",
	"records were held back from who was losing the partition", "a position was out of range",
	"resolved by earliest", "resolved by latest", "resolved by none", "resolved by timestamp", "a member began where it chose",
	"an offset went back because it was told to", "offsets were committed", "the log folds to the state",
	"a part of the log was lost", "answers were dropped with the coordinator", "an assignment was put off",
	"offsets expired", "the group was forgotten", "members settled",
	"refused: conflict", "refused: not-owner", "refused: member-expired", "refused: fenced", "refused: unknown-member",
	"refused: group-not-empty", "refused: offset-out-of-range", "refused: unknown-topic", "refused: unknown-partition",
	"a member learns: member-expired", "a member learns: fenced", "a member learns: unknown-member",
}

func steps() []step {
	return []step{
		{"join", 20, (*sim).stepJoin},
		{"join as a static member", 6, (*sim).stepJoinStatic},
		{"leave", 4, (*sim).stepLeave},
		{"fall silent", 3, func(s *sim) bool {
			c := s.anyone((*client).live)
			if c == nil {
				return false
			}
			s.tell("c%d %s falls silent", c.n, c.member)
			c.silent, c.poll = true, nil
			return true
		}},
		{"poll", 90, func(s *sim) bool {
			c := s.anyone((*client).live)
			if c == nil {
				return false
			}
			s.startPoll(c, s.cursorToUse(c))
			if c.poll != nil && s.chance(2) {
				s.read(c)
			}
			return true
		}},
		{"read logs for a poll", 90, func(s *sim) bool {
			c := s.anyone(func(c *client) bool { return c.poll != nil })
			if c == nil {
				return false
			}
			s.read(c)
			if c.poll != nil && c.poll.read && s.chance(2) {
				s.finishPoll(c)
			}
			return true
		}},
		{"answer a poll", 90, func(s *sim) bool {
			c := s.anyone(func(c *client) bool { return c.poll != nil && c.poll.read })
			if c == nil {
				return false
			}
			s.finishPoll(c)
			return true
		}},
		{"heartbeat", 10, func(s *sim) bool {
			c := s.anyone(func(c *client) bool { return c.member != "" })
			if c == nil {
				return false
			}
			if err := s.g.Heartbeat(s.env(), c.member); err != nil {
				s.refused("heartbeat", err, group.Effects{}, model.MemberExpired, model.Fenced, model.UnknownMember)
			}
			return true
		}},
		{"commit", 20, func(s *sim) bool {
			c := s.anyone((*client).live)
			if c == nil {
				return false
			}
			s.commitPlain(c)
			return true
		}},
		{"commit a cursor", 15, (*sim).stepCommitCursor},
		{"commit what is not one's own", 4, (*sim).stepCommitForeign},
		{"seek", 4, (*sim).stepSeek},
		{"release as a socket", 6, (*sim).stepRelease},
		{"time passes", 60, func(s *sim) bool { s.pass(time.Duration(s.n(400)) * time.Millisecond); return true }},
		{"much time passes", 3, func(s *sim) bool { s.pass(time.Duration(s.n(40)) * time.Second); return true }},
		{"the wall clock jumps", 3, func(s *sim) bool {
			s.skew += int64(s.n(7_200_001) - 3_600_000)
			s.tell("the wall clock jumps")
			return true
		}},
		{"records are committed", 70, func(s *sim) bool {
			s.commitLog(s.committed + s.n(len(s.log)-s.committed+1) + s.n(2)*(len(s.log)-s.committed))
			return true
		}},
		{"the coordinator moves", 4, (*sim).stepMove},
		{"records are produced", 30, func(s *sim) bool {
			for _, name := range topicNames {
				if t := s.topics[name]; t != nil {
					t.end[s.n(len(t.end))] += model.Offset(s.n(10))
				}
			}
			return true
		}},
		{"a log start moves", 3, func(s *sim) bool {
			if t := s.topics[topicNames[s.n(len(topicNames))]]; t != nil {
				i := s.n(len(t.end))
				t.start[i] += model.Offset(s.n(int(t.end[i]-t.start[i]) + 1))
				return true
			}
			return false
		}},
		{"a log loses its end", 1, func(s *sim) bool {
			if t := s.topics[topicNames[s.n(len(topicNames))]]; t != nil {
				i := s.n(len(t.end))
				t.end[i] = max(t.start[i], t.end[i]-model.Offset(s.n(6)))
				return true
			}
			return false
		}},
		{"a topic is created", 3, (*sim).stepCreateTopic},
		{"a topic is deleted", 1, func(s *sim) bool {
			name := topicNames[s.n(len(topicNames))]
			if s.topics[name] == nil {
				return false
			}
			s.tell("topic %s is deleted", name)
			delete(s.topics, name)
			s.topicsChange()
			return true
		}},
		{"a topic is created anew", 2, func(s *sim) bool {
			name := topicNames[s.n(len(topicNames))]
			if s.topics[name] == nil {
				return false
			}
			s.tell("topic %s is created anew", name)
			s.createTopic(name)
			s.topicsChange()
			return true
		}},
		{"partitions are added", 3, func(s *sim) bool {
			t := s.topics[topicNames[s.n(len(topicNames))]]
			if t == nil || t.Partitions > 12 {
				return false
			}
			for range 1 + s.n(3) {
				t.Partitions++
				t.start, t.end = append(t.start, 0), append(t.end, model.Offset(s.n(5)))
			}
			s.tell("topic %s grows to %d", t.Name, t.Partitions)
			s.topicsChange()
			return true
		}},
		{"offsets are put", 4, (*sim).stepPut},
		{"offsets are reset", 4, (*sim).stepReset},
		{"offsets are deleted", 2, (*sim).stepDeleteOffsets},
		{"offsets are staged", 3, (*sim).stepStage},
		{"a transaction ends", 4, func(s *sim) bool {
			s.jumps = true
			defer func() { s.jumps = false }()
			s.took("end of a transaction", s.g.EndTransaction(s.env(), model.ProducerID(s.n(3)), s.chance(2)))
			return true
		}},
		{"offsets expire", 3, (*sim).stepExpire},
		{"the group is deleted", 1, func(s *sim) bool {
			eff, err := s.g.Delete(s.env())
			if err != nil {
				s.refused("delete", err, eff, model.GroupNotEmpty, model.UnknownGroup)
				return true
			}
			s.tell("the group is deleted")
			s.took("delete", eff)
			s.is(s.g.Vacant() && s.g.State() == group.Dead, "a deleted group is %s", s.g.State())
			s.done("the group was forgotten")
			return true
		}},
		{"everybody leaves", 1, func(s *sim) bool {
			for _, m := range s.g.Describe().Members {
				eff, err := s.g.Leave(s.env(), m.ID, nil)
				s.is(err == nil, "leave: %v", err)
				s.took("leave", eff)
			}
			s.tell("everybody leaves")
			return true
		}},
		{"the fold is checked", 15, func(s *sim) bool { s.checkFold(); return true }},
	}
}

func (s *sim) run(n int) {
	list := steps()
	total := 0
	for _, x := range list {
		total += x.weight
	}
	for s.tally.steps < n {
		k := s.n(total)
		for _, x := range list {
			if k -= x.weight; k < 0 {
				if x.do(s) {
					s.tally.step[x.name]++
					s.tally.steps++
					s.ground()
					s.tick(s.chance(4))
				}
				break
			}
		}
	}
	s.calm()
}

// pass lets time go by.
func (s *sim) pass(d time.Duration) {
	s.mono += d
	s.tick(s.chance(6))
}

// tick calls Tick when it is due, unless the shell is late.
func (s *sim) tick(late bool) {
	at, ok := s.g.NextDeadline()
	if !ok || at > s.mono || late {
		return
	}
	before, state := s.revoking(), s.g.State()
	eff := s.g.Tick(s.env())
	s.took("tick", eff)
	if state == group.Assigning && s.g.State() != group.Assigning {
		s.done("an assignment was put off")
	}
	if len(eff.Records) > 0 && before > s.revoking() {
		s.done("a revocation was overdue")
	}
	if next, ok := s.g.NextDeadline(); ok {
		s.is(next > s.mono, "after a tick at %v the next deadline is %v", s.mono, next)
	}
}

func (s *sim) revoking() int {
	n := 0
	for _, m := range s.g.Describe().Members {
		n += len(m.Assignment.Revoking)
	}
	return n
}

func (s *sim) stepJoin() bool {
	c := s.anyone(func(c *client) bool { return c.member == "" || c.silent })
	if c == nil {
		return false
	}
	c.lose()
	return s.join(c, s.request(c))
}

func (s *sim) stepJoinStatic() bool {
	c := s.anyone(func(*client) bool { return true })
	c.lose()
	c.instance = fmt.Sprint("i", s.n(3))
	req := s.request(c)
	req.TakeOver = s.chance(2)
	return s.join(c, req)
}

func (s *sim) stepLeave() bool {
	c := s.anyone((*client).live)
	if c == nil {
		return false
	}
	var cur *cursor.Cursor
	if s.chance(2) {
		cur = c.cursor
	}
	s.tell("c%d %s leaves", c.n, c.member)
	eff, err := s.g.Leave(s.env(), c.member, cur)
	if err != nil {
		s.refused("leave", err, eff, model.MemberExpired, model.Fenced, model.UnknownMember)
	} else {
		s.took("leave", eff)
		_, err = s.g.Look(c.member, nil)
		s.is(model.HasCode(err, model.UnknownMember), "after leaving: %v", err)
	}
	c.lose()
	return true
}

func (s *sim) stepCommitCursor() bool {
	c := s.anyone(func(c *client) bool { return c.live() && c.cursor != nil })
	if c == nil {
		return false
	}
	cur := c.cursor
	if len(c.old) > 0 && s.chance(4) {
		cur = c.old[s.n(len(c.old))]
	}
	s.tell("c%d %s commits cursor %v", c.n, c.member, cur)
	eff, got, err := s.g.CommitCursor(s.env(), c.member, cur)
	if err != nil {
		s.refused("commit of a cursor", err, eff, model.MemberExpired, model.Fenced, model.UnknownMember)
		return true
	}
	s.took("commit of a cursor", eff)
	for _, o := range got {
		s.is(s.offsets[group.Name{Topic: o.Topic, Partition: o.Partition}] == o, "the answer of a commit is not what is committed: %+v", o)
	}
	return true
}

func (s *sim) stepCommitForeign() bool {
	c := s.anyone((*client).live)
	name := group.Name{Topic: topicNames[s.n(len(topicNames))], Partition: model.PartitionID(s.n(8))}
	if c == nil {
		return false
	}
	for _, m := range s.g.Describe().Members {
		for _, list := range [][]group.Held{m.Assignment.Held, m.Assignment.Revoking} {
			for _, h := range list {
				if m.ID == c.member && h.Name == name.Topic && h.Index == name.Partition {
					return false
				}
			}
		}
	}
	eff, _, err := s.g.Commit(s.env(), group.CommitRequest{Member: c.member, Offsets: []group.CommitOffset{{Name: name, Next: 1}}})
	s.refused("commit of what is another's", err, eff, model.NotOwner, model.UnknownTopic, model.UnknownPartition, model.MemberExpired, model.Fenced, model.UnknownMember)
	return true
}

func (s *sim) stepSeek() bool {
	c := s.anyone(func(c *client) bool { return c.live() && c.cursor != nil && len(c.received) > 0 })
	if c == nil {
		return false
	}
	req := group.SeekRequest{Member: c.member, Cursor: c.cursor}
	for _, name := range topicNames {
		t := s.topics[name]
		if t == nil {
			continue
		}
		for i := range t.end {
			at, ok := c.received[group.Partition{Topic: t.ID, Index: model.PartitionID(i)}]
			if ok && s.chance(2) {
				req.Positions = append(req.Positions, group.SeekPosition{Name: group.Name{Topic: name, Partition: model.PartitionID(i)}, Next: max(0, at-model.Offset(s.n(4)))})
			}
		}
	}
	cur, err := s.g.Seek(s.env(), req)
	if err != nil {
		s.refused("seek", err, group.Effects{}, model.NotOwner, model.MemberExpired, model.Fenced, model.UnknownMember)
		return true
	}
	s.answerWith(func() {
		if c.member == req.Member {
			c.cursor = cur
		}
	})
	return true
}

func (s *sim) stepRelease() bool {
	c := s.anyone(func(c *client) bool { return c.live() && len(c.named) > 0 })
	if c == nil {
		return false
	}
	list := c.named
	if s.chance(3) {
		list = nil
	}
	s.tell("c%d %s releases %v", c.n, c.member, list)
	eff, err := s.g.Release(s.env(), c.member, list)
	if err != nil {
		s.refused("release", err, eff, model.MemberExpired, model.Fenced, model.UnknownMember)
		return true
	}
	s.took("release", eff)
	c.named = nil
	return true
}

// stepMove drops the state and folds what is left of the log.
func (s *sim) stepMove() bool {
	cut := s.committed + s.n(len(s.log)-s.committed+1)
	if cut < len(s.log) {
		s.done("a part of the log was lost")
	}
	s.tell("the coordinator moves; %d of %d batches are lost", len(s.log)-cut, len(s.log))
	s.log, s.committed = s.log[:cut:cut], cut
	if len(s.queue) > 0 {
		s.done("answers were dropped with the coordinator")
	}
	s.queue, s.granted = nil, nil
	for _, c := range s.clients {
		if c.member != "" && c.poll != nil {
			c.poll = nil
		}
		if c.member != "" && c.silent && s.chance(2) {
			c.silent = false // it did not hear, and asks again
		}
	}
	s.g = group.New("g", s.settings)
	s.offsets = map[group.Name]group.Offset{}
	for _, batch := range s.log {
		for _, r := range batch {
			s.g.Apply(r)
			switch r := r.(type) {
			case group.Offset:
				s.offsets[group.Name{Topic: r.Topic, Partition: r.Partition}] = r
			case group.Tombstone:
				if r.Of.Kind == group.KindOffset {
					delete(s.offsets, group.Name{Topic: r.Of.Topic, Partition: r.Of.Partition})
				}
			}
		}
	}
	alive := s.g.Members()
	s.took("load", s.g.Load(s.env()))
	s.is(s.g.Members() == alive, "members did not go on after a move")
	return true
}

func (s *sim) stepCreateTopic() bool {
	for _, name := range topicNames {
		if s.topics[name] == nil {
			s.tell("topic %s is created", name)
			s.createTopic(name)
			s.topicsChange()
			return true
		}
	}
	return false
}

// topicsChange gives the group the topics as they are; at times only the next operation
// brings them.
func (s *sim) topicsChange() {
	s.look()
	if !s.chance(4) {
		s.took("topics", s.g.TopicsChanged(s.env()))
	}
}
