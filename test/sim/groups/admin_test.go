package groups

import (
	"fmt"
	"time"

	"tidewire/broker/group"
	"tidewire/internal/model"
)

func (s *sim) anyPartition() (*topic, group.Name, bool) {
	t := s.topics[topicNames[s.n(len(topicNames))]]
	if t == nil {
		return nil, group.Name{}, false
	}
	return t, group.Name{Topic: t.Name, Partition: model.PartitionID(s.n(len(t.end)))}, true
}

func (s *sim) stepPut() bool {
	t, n, ok := s.anyPartition()
	if !ok {
		return false
	}
	s.jumps = true
	defer func() { s.jumps = false }()
	eff, _, err := s.g.PutOffsets(s.env(), []group.CommitOffset{{Name: n, Next: model.Offset(s.n(int(t.end[n.Partition]) + 1)), Epoch: model.NoEpoch}})
	if err != nil {
		s.refused("put", err, eff, model.GroupNotEmpty)
		return true
	}
	s.took("put", eff)
	return true
}

func (s *sim) stepReset() bool {
	req := group.ResetRequest{To: []group.ResetTo{group.ToEarliest, group.ToLatest, group.ToTimestamp, group.ToOffset, group.ToShift}[s.n(5)], Value: int64(s.n(20))}
	if s.chance(2) {
		req.Topics = []string{topicNames[s.n(len(topicNames))]}
	}
	scope, err := s.g.ResetScope(s.env(), req)
	if err != nil {
		s.refused("reset", err, group.Effects{}, model.GroupNotEmpty, model.UnknownTopic, model.UnknownGroup, model.UnknownPartition)
		return true
	}
	var bounds []group.Bounds
	for _, f := range scope {
		b, ok := s.bounds(group.Held{Partition: f.Partition, Name: f.Name}, group.NoOffset)
		s.is(ok, "a reset of what is not there: %+v", f)
		bounds = append(bounds, b)
	}
	moves := group.PlanReset(req, scope, bounds)
	s.is(len(moves) == len(scope), "a plan of %d moves for %d partitions", len(moves), len(scope))
	s.jumps = true
	defer func() { s.jumps = false }()
	eff, err := s.g.Reset(s.env(), moves)
	s.is(err == nil, "reset: %v", err)
	s.took("reset", eff)
	for i, m := range moves {
		s.is(m.To >= bounds[i].Earliest && m.To <= bounds[i].Latest, "a reset to %d, and the log is %+v", m.To, bounds[i])
		o, ok := s.g.Committed(group.Name{Topic: m.Name, Partition: m.Index})
		s.is(ok && o.Next == m.To, "after a reset to %d it is %+v", m.To, o)
	}
	return true
}

func (s *sim) stepDeleteOffsets() bool {
	eff, _, err := s.g.DeleteOffsets(s.env(), []string{topicNames[s.n(len(topicNames))]})
	if err != nil {
		s.refused("delete of offsets", err, eff, model.GroupNotEmpty)
		return true
	}
	s.took("delete of offsets", eff)
	return true
}

func (s *sim) stepStage() bool {
	t, n, ok := s.anyPartition()
	if !ok {
		return false
	}
	p := group.Partition{Topic: t.ID, Index: n.Partition}
	next := min(s.seen[p], t.end[n.Partition])
	eff, err := s.g.Stage(s.env(), group.StageRequest{Producer: model.ProducerID(s.n(3)), Offsets: []group.CommitOffset{{Name: n, Next: next, Epoch: model.NoEpoch}}})
	s.is(err == nil, "stage: %v", err)
	s.took("stage", eff)
	return true
}

// stepExpire has offsets expire, after a long time now and then.
func (s *sim) stepExpire() bool {
	if s.g.Members() == 0 && s.chance(3) {
		s.mono += 15 * time.Minute
	}
	unstable := s.g.Unstable()
	before := len(s.offsets)
	had := map[group.Name]bool{}
	for n := range s.offsets {
		had[n] = true
	}
	subscribed := s.g.Members() > 0
	eff := s.g.ExpireOffsets(s.env())
	s.took("expiry", eff)
	for _, n := range unstable {
		_, ok := s.offsets[n]
		s.is(ok || !had[n], "an offset that a transaction has staged has expired: %v", n)
	}
	if len(s.offsets) < before {
		s.done("offsets expired")
		_ = subscribed
	}
	if s.g.Vacant() && len(eff.Records) > 0 {
		s.done("the group was forgotten")
	}
	return true
}

// calm ends the storm: all is answered, time goes by, and every member that lives must get
// what is its own.
func (s *sim) calm() {
	s.look()
	s.took("topics", s.g.TopicsChanged(s.env()))
	s.commitLog(len(s.log))
	const rounds = 60
	for round := range rounds {
		s.mono += 700 * time.Millisecond
		s.tick(false)
		for _, c := range s.clients {
			if c.silent { // it comes back as somebody new
				c.lose()
			}
			switch {
			case c.member == "" && c.n < 3 && (s.settings.MaxMembers == 0 || s.g.Members() < s.settings.MaxMembers):
				req := s.request(c)
				req.Assignor, req.Member.SessionTimeout, req.Member.Reset = "", 3*time.Second, group.Latest
				s.join(c, req)
			case c.member != "":
				s.startPoll(c, c.cursor)
				if c.poll != nil {
					s.read(c)
				}
				if c.poll != nil {
					s.finishPoll(c)
				}
			}
			s.commitLog(len(s.log))
		}
		if round > 2 && s.settled() {
			s.done("members settled")
			s.checkAll()
			s.checkFold()
			return
		}
		if round > 2 && round%10 == 9 {
			s.mono += time.Minute // whoever is silent expires
			for _, c := range s.clients {
				if c.live() {
					if err := s.g.Heartbeat(s.env(), c.member); err != nil {
						s.ended(c, err)
					}
				}
			}
		}
	}
	s.is(false, "after %d calm rounds the group is %s:\n%+v", rounds, s.g.State(), s.g.Describe())
}

// settled tells whether all is as it should be: stable, and no member whom nobody is.
func (s *sim) settled() bool {
	live := map[string]bool{}
	for _, c := range s.clients {
		if c.live() {
			live[c.member] = true
		}
	}
	for _, m := range s.g.Describe().Members {
		if !live[m.ID] {
			return false
		}
	}
	return s.g.State() == group.Stable && s.g.Members() > 0
}

// checkAll wants every partition of a subscribed topic to be read by one member, who
// subscribes to it.
func (s *sim) checkAll() {
	held := map[group.Partition]bool{}
	wanted := map[string]bool{}
	for _, m := range s.g.Describe().Members {
		s.is(len(m.Assignment.Revoking) == 0 && !m.Assignment.Pending, "a stable group with more to come: %+v", m)
		may := map[string]bool{}
		for _, t := range m.Topics {
			may[t] = true
		}
		for name := range s.topics {
			if m.Pattern != "" && matches(m.Pattern, name) {
				may[name] = true
			}
		}
		for n := range may {
			wanted[n] = true
		}
		for _, h := range m.Assignment.Held {
			s.is(may[h.Name], "%s got %s, which it does not subscribe to", m.ID, h.Name)
			held[h.Partition] = true
		}
	}
	for name := range wanted {
		t := s.topics[name]
		for i := range partitionsOf(t) {
			s.is(held[group.Partition{Topic: t.ID, Index: model.PartitionID(i)}], "nobody got %s/%d:\n%+v", name, i, s.g.Describe())
		}
	}
	s.is(len(held) > 0 || len(wanted) == 0 || !anyTopic(s, wanted), "nothing is held: %s", fmt.Sprint(wanted))
}

func partitionsOf(t *topic) []model.Offset {
	if t == nil {
		return nil
	}
	return t.end
}

func anyTopic(s *sim, wanted map[string]bool) bool {
	for n := range wanted {
		if s.topics[n] != nil {
			return true
		}
	}
	return false
}

// matches is the patterns of request, by hand.
func matches(pattern, name string) bool {
	switch pattern {
	case `.*`:
		return true
	case `events\..*`:
		return len(name) > 7 && name[:7] == "events."
	default:
		return name == "orders" || name == "audit"
	}
}
