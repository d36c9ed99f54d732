package groups

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"tidewire/broker/group"
	"tidewire/broker/group/assign"
	"tidewire/broker/group/cursor"
	"tidewire/internal/model"
)

// client is somebody who uses the group. What it knows it has from answers.
type client struct {
	n        int
	member   string // "" when it is in no group
	instance string
	facts    group.Member
	auto     bool
	silent   bool // it has crashed, and does nothing until it joins anew
	cursor   *cursor.Cursor
	old      []*cursor.Cursor
	received map[group.Partition]model.Offset // how far it has read, by its answers
	named    []group.Name                     // being revoked, by its last answer
	poll     *poll
}

// poll is a poll under way at the shell.
type poll struct {
	member  string
	cursor  *cursor.Cursor
	res     group.PollResult
	read    bool
	from    map[group.Partition]model.Offset
	reached []model.Offset // by res.Positions
}

// lose has a client forget its member.
func (c *client) lose() {
	*c = client{n: c.n}
}

func (s *sim) anyone(fits func(*client) bool) *client {
	var list []*client
	for _, c := range s.clients {
		if fits(c) {
			list = append(list, c)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[s.n(len(list))]
}

func (c *client) live() bool { return c.member != "" && !c.silent }

// ended has a client learn that its member is no more.
func (s *sim) ended(c *client, err error) {
	for _, code := range []model.Code{model.MemberExpired, model.Fenced, model.UnknownMember} {
		if model.HasCode(err, code) {
			s.done("a member learns: " + string(code))
			c.lose()
			return
		}
	}
	s.is(false, "a member got %v", err)
}

// request makes a member to join.
func (s *sim) request(c *client) group.JoinRequest {
	s.ids++
	m := group.Member{
		ID: fmt.Sprintf("m%04d-%04x", s.ids, s.rng.Uint32()&0xffff), ClientID: fmt.Sprint("c", c.n),
		SessionTimeout: []time.Duration{time.Second, 3 * time.Second, 10 * time.Second, time.Minute}[s.n(4)],
		Reset:          []group.ResetPolicy{group.Earliest, group.Latest, group.Latest, group.Never, group.FromTime}[s.n(5)],
		AutoCommit:     s.chance(2), InstanceID: c.instance,
	}
	if s.chance(4) {
		m.Pattern = []string{`events\..*`, `.*`, `orders|audit`}[s.n(3)]
	} else {
		for _, i := range s.rng.Perm(len(topicNames))[:1+s.n(3)] {
			m.Topics = append(m.Topics, topicNames[i])
		}
	}
	req := group.JoinRequest{Member: m}
	if s.chance(6) {
		req.Assignor = assign.Names()[s.n(3)]
	}
	return req
}

func (s *sim) join(c *client, req group.JoinRequest) bool {
	s.tell("c%d joins as %s (instance %q) %v %s", c.n, req.Member.ID, req.Member.InstanceID, req.Member.Topics, req.Member.Pattern)
	eff, res, err := s.g.Join(s.env(), req)
	if err != nil {
		s.refused("join", err, eff, model.Conflict)
		return false
	}
	s.took("join", eff)
	if res.Fenced != "" {
		s.done("an instance was taken over")
	}
	s.answerWith(func() {
		if s.chance(10) {
			s.done("the answer to a join was lost")
			return
		}
		*c = client{n: c.n, member: res.Member.ID, instance: res.Member.InstanceID, facts: res.Member, auto: res.Member.AutoCommit, received: map[group.Partition]model.Offset{}}
		s.byID[c.member] = c
	})
	return true
}

// startPoll is the first step of a poll; it ends one that is under way.
func (s *sim) startPoll(c *client, cur *cursor.Cursor) {
	s.tell("c%d %s polls, cursor %v", c.n, c.member, cur)
	if c.poll != nil {
		s.done("a poll ended the one before")
	}
	before := s.g.Describe()
	eff, res, err := s.g.Poll(s.env(), group.PollRequest{Member: c.member, Cursor: cur, Wait: time.Duration(s.n(3)) * time.Second})
	if err != nil {
		s.refused("poll", err, eff, model.MemberExpired, model.Fenced, model.UnknownMember)
		s.answerWith(func() { s.ended(c, err) })
		c.silent = true // until it hears
		return
	}
	s.took("poll", eff)
	if len(eff.Records) > 0 && !c.facts.AutoCommit {
		s.done("a poll released partitions")
	}
	_ = before
	s.checkPositions(c.member, res, cur)
	c.poll = &poll{member: c.member, cursor: cur, res: res}
}

// checkPositions compares where a member is to read with what the oracle says.
func (s *sim) checkPositions(member string, res group.PollResult, cur *cursor.Cursor) {
	for i, p := range res.Positions {
		s.is(p.Held == res.Assignment.Held[i], "positions are not in the order of the assignment")
		want := s.position(p.Held, member, cur)
		s.is(p.Next == want, "%s reads %s/%d at %d; by cursor and commits it is %d", member, p.Name, p.Index, p.Next, want)
	}
}

// read is the next step: partitions without a position are resolved, and logs are read.
func (s *sim) read(c *client) {
	p := c.poll
	res, err := s.g.Look(p.member, p.cursor)
	if err != nil {
		c.poll = nil
		s.answerWith(func() { s.ended(c, err) })
		return
	}
	s.checkPositions(p.member, res, p.cursor)
	p.res, p.from = res, map[group.Partition]model.Offset{}
	p.reached = make([]model.Offset, len(res.Positions))
	if s.resolve(p.member, res.Unresolved, p) {
		return
	}
	for i := range p.res.Positions {
		at := p.res.Positions[i]
		p.reached[i] = group.NoOffset
		if at.Next == group.NoOffset {
			continue
		}
		log := s.logOf(at.Held)
		if log == nil {
			continue
		}
		start, end := log.start[at.Index], log.end[at.Index]
		if at.Next < start || at.Next > end {
			s.done("a position was out of range")
			if s.outOfRange(p, i) {
				return
			}
			at = p.res.Positions[i]
		}
		s.is(at.Next <= s.seen[at.Partition], "%s reads %s/%d at %d, and records from %d on were received by nobody", p.member, at.Name, at.Index, at.Next, s.seen[at.Partition])
		p.from[at.Partition] = at.Next
		p.reached[i] = min(end, at.Next+model.Offset(s.n(8)))
	}
	p.read = true
}

// bounds says what a log has.
func (s *sim) bounds(h group.Held, at model.Offset) (group.Bounds, bool) {
	log := s.logOf(h)
	if log == nil {
		return group.Bounds{}, false
	}
	start, end := log.start[h.Index], log.end[h.Index]
	return group.Bounds{Partition: h.Partition, At: at, Earliest: start, Latest: end, AtTime: start + (end-start)/2}, true
}

// resolve asks the logs for first positions. It tells whether the poll was refused.
func (s *sim) resolve(member string, list []group.Unresolved, p *poll) bool {
	var bounds []group.Bounds
	for _, u := range list {
		if b, ok := s.bounds(u.Held, group.NoOffset); ok {
			bounds = append(bounds, b)
			s.done("resolved by " + string(u.Policy))
		}
	}
	if len(bounds) == 0 {
		return false
	}
	return s.place(member, bounds, p)
}

func (s *sim) outOfRange(p *poll, i int) bool {
	b, _ := s.bounds(p.res.Positions[i].Held, p.res.Positions[i].Next)
	return s.place(p.member, []group.Bounds{b}, p)
}

// place calls Resolve and notes the positions in the poll.
func (s *sim) place(member string, bounds []group.Bounds, p *poll) bool {
	s.jumps = true
	defer func() { s.jumps = false }()
	eff, got, err := s.g.Resolve(s.env(), group.ResolveRequest{Member: member, Bounds: bounds})
	if err != nil {
		s.refused("resolve", err, eff, model.OffsetOutOfRange, model.MemberExpired, model.Fenced, model.UnknownMember)
		if c := s.byID[member]; p != nil && c != nil && c.poll == p {
			c.poll = nil
			if model.HasCode(err, model.OffsetOutOfRange) {
				s.startOver(c, err)
			}
		}
		return true
	}
	s.took("resolve", eff)
	for _, x := range got {
		s.seen[x.Partition] = max(s.seen[x.Partition], x.Next)
		if p == nil {
			continue
		}
		for i, at := range p.res.Positions {
			if at.Held == x.Held {
				p.res.Positions[i].Next = x.Next
			}
		}
	}
	return false
}

// startOver is what a client without a reset policy does: it commits where it wants to
// begin.
func (s *sim) startOver(c *client, err error) {
	var e *model.Error
	s.is(errors.As(err, &e), "%v", err)
	list, _ := e.Extra["partitions"].([]group.OutOfRange)
	s.is(len(list) > 0, "a 416 without bounds: %v", err)
	s.answerWith(func() {
		if !c.live() || s.chance(3) {
			return
		}
		req := group.CommitRequest{Member: c.member}
		for _, x := range list {
			req.Offsets = append(req.Offsets, group.CommitOffset{Name: group.Name{Topic: x.Topic, Partition: x.Partition}, Next: x.Earliest, Epoch: model.NoEpoch})
		}
		s.jumps = true
		defer func() { s.jumps = false }()
		eff, _, err := s.g.Commit(s.env(), req)
		if err != nil {
			s.refused("commit after 416", err, eff, model.NotOwner, model.UnknownTopic, model.UnknownPartition, model.MemberExpired, model.Fenced, model.UnknownMember)
			return
		}
		s.took("commit after 416", eff)
		s.done("a member began where it chose")
	})
}

// finishPoll is the last step of a poll.
func (s *sim) finishPoll(c *client) {
	p := c.poll
	c.poll = nil
	grace := time.Duration(0)
	if c.n%3 == 2 { // a socket
		grace = 5 * time.Second
	}
	a, err := s.g.Answer(s.env(), p.member, grace)
	if err != nil {
		s.answerWith(func() { s.ended(c, err) })
		return
	}
	cur := group.MakeCursor(p.member, a, p.res, p.reached)
	text := cur.String()
	back, err := cursor.Parse(text)
	s.is(err == nil && back.String() == text, "a cursor that does not come back: %v", err)
	given := map[group.Partition]model.Offset{}
	for i, at := range p.res.Positions {
		more := p.reached[i] > at.Next
		if more && a.Holds(at.Partition, at.Since) {
			given[at.Partition] = p.reached[i]
		} else if more {
			s.done("records were held back from who was losing the partition")
		}
	}
	s.tell("c%d %s is answered: version %d, %d held, %d revoking, pending %v, %d with records", c.n, p.member, a.Version, len(a.Held), len(a.Revoking), a.Pending, len(given))
	s.answerWith(func() { s.deliver(c, p, a, back, given) })
}

// deliver is the answer on its way: it is written, and may be lost.
func (s *sim) deliver(c *client, p *poll, a *group.Assignment, cur *cursor.Cursor, given map[group.Partition]model.Offset) {
	for _, h := range a.Held {
		if _, ok := given[h.Partition]; ok {
			s.served(h.Partition, grant{p.member, h.Since})
		}
	}
	if c.member != p.member || c.silent || s.chance(8) {
		s.done("an answer was lost")
		return
	}
	for q, next := range given {
		if p.from[q] <= s.seen[q] {
			s.seen[q] = max(s.seen[q], next)
		}
		c.received[q] = next
	}
	if c.cursor != nil {
		c.old = append(c.old, c.cursor)
	}
	c.cursor, c.named = cur, nil
	for _, h := range a.Revoking {
		c.named = append(c.named, group.Name{Topic: h.Name, Partition: h.Index})
		s.done("a member was told of a revocation")
	}
	if a.Pending {
		s.done("an answer was pending")
	}
}

// cursorToUse is the one that a client polls with: mostly the last.
func (s *sim) cursorToUse(c *client) *cursor.Cursor {
	switch {
	case len(c.old) > 0 && s.chance(12):
		s.done("an old cursor was used")
		return c.old[s.n(len(c.old))]
	case s.chance(10):
		if other := s.anyone(func(x *client) bool { return x != c && x.cursor != nil }); other != nil {
			s.done("another member's cursor was used")
			return other.cursor
		}
	case !c.auto && s.chance(3):
		return nil
	}
	return c.cursor
}

// commitPlain has a member commit what it has received, or less.
func (s *sim) commitPlain(c *client) {
	var list []group.CommitOffset
	for _, t := range s.topics {
		for i := range t.end {
			p := group.Partition{Topic: t.ID, Index: model.PartitionID(i)}
			if at, ok := c.received[p]; ok && s.chance(2) {
				list = append(list, group.CommitOffset{Name: group.Name{Topic: t.Name, Partition: p.Index}, Next: max(0, at-model.Offset(s.n(3))), Epoch: model.NoEpoch, Metadata: "x"})
			}
		}
	}
	slices.SortFunc(list, func(a, b group.CommitOffset) int {
		if a.Topic != b.Topic {
			if a.Topic < b.Topic {
				return -1
			}
			return 1
		}
		return int(a.Partition - b.Partition)
	})
	if len(list) == 0 {
		return
	}
	s.jumps = true
	defer func() { s.jumps = false }()
	s.tell("c%d %s commits %v", c.n, c.member, list)
	eff, _, err := s.g.Commit(s.env(), group.CommitRequest{Member: c.member, Offsets: list})
	if err != nil {
		s.refused("commit", err, eff, model.NotOwner, model.MemberExpired, model.Fenced, model.UnknownMember)
		return
	}
	s.took("commit", eff)
	s.done("offsets were committed")
}
