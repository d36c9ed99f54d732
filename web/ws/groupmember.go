package ws

import (
	"context"
	"encoding/json"
	"time"

	"tidewire/broker"
	"tidewire/broker/coordinator"
	"tidewire/broker/group"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"

	"github.com/gorilla/websocket"
)

// revokeGrace is how long commits of revoked partitions are accepted, unless the client has
// released them before.
const revokeGrace = 5 * time.Second

// Times after which a member looks again.
const (
	retryGroup     = time.Second            // the coordinator did not do what it was asked
	retryPartition = 200 * time.Millisecond // a partition could not be read
	retryRange     = 10 * time.Millisecond  // a position was out of range
)

// groupMember is a membership, as the socket that reads for it has it. What is the member's the
// group decides: the socket asks it for that when it is woken, tells the client, and reads the
// partitions as any socket does. It belongs to the session's goroutine.
type groupMember struct {
	s        *session
	want     *membership
	groups   *coordinator.Coordinator
	watch    *coordinator.Watch
	facts    group.Member
	assignor string
	resumed  bool // the membership is older than the socket
	over     bool // the socket has nothing to do with it any more

	assigned *group.Assignment // as of the last round
	topics   map[model.TopicID]*broker.StreamTopic

	heartbeat time.Time // when the next is due
	retry     time.Time // when the group is to be asked again; zero: when it calls
	answered  time.Time // when the coordinator last did what it was asked
	commitAt  time.Time // when what was written is to be committed; zero: nothing was
}

// join makes the socket a member of a group, or has it go on as one.
func (s *session) join(ctx context.Context, want *subscription) error {
	w := want.wanted
	at := "/"
	if s.conn == nil {
		at = "query:"
	}
	if s.h.groups == nil {
		e := model.Errorf(model.NotImplemented, "this node has no groups")
		e.Fields = []model.FieldError{{Pointer: at + "group", Detail: e.Detail}}
		return e
	}
	m := &groupMember{s: s, want: w, groups: s.h.groups, topics: map[model.TopicID]*broker.StreamTopic{}}
	r := &reader{want: want, most: firstFrame, byName: map[Partition]*readPartition{}, member: m}
	if want.credit != nil {
		r.credit = *want.credit
	}
	if want.filter() == nil && want.preview == nil {
		r.shared, r.id = s.h.shared, s.h.readers.Add(1)
	}
	if err := m.begin(ctx, at, r); err != nil {
		m.end(m.watch != nil && !m.resumed)
		s.stream.Unfollow()
		return err
	}
	s.reader = r
	if c := s.net.Load(); c != nil {
		c.between = m.slowly
	}
	return nil
}

// begin joins or resumes, and takes what the member has.
func (m *groupMember) begin(ctx context.Context, at string, r *reader) error {
	w := m.want
	if err := m.s.stream.Need(ctx, broker.Need{Operation: metadata.OpRead, Resource: metadata.ResourceGroup, Name: w.group}); err != nil {
		return err
	}
	topics := r.want.topics
	var got group.JoinResult
	var err error
	if m.resumed = w.memberID != ""; m.resumed {
		if got, err = m.groups.Resume(ctx, w.group, w.memberID); err != nil {
			return err
		}
		if name := w.differs(topics, &got.Member, got.Assignor); name != "" {
			return model.Invalid(at+name, "the member joined with another %s, and keeps it; leave it out, or join anew without member_id", name)
		}
		topics = got.Member.Topics
	}
	for _, t := range topics {
		if err := m.s.stream.Need(ctx, broker.OnTopic(metadata.OpRead, t)); err != nil {
			return err
		}
	}
	if !m.resumed {
		caller := m.s.stream.Caller()
		got, err = m.groups.Join(ctx, coordinator.JoinRequest{
			Group: w.group, Topics: topics, Assignor: w.assignor, SessionTimeout: w.sessionTimeout(), Reset: w.reset, ResetFromMs: w.resetMs,
			InstanceID: w.instance, TakeOver: w.takeOver, ClientID: w.clientID, Host: caller.Host, User: m.s.user,
		})
		if err != nil {
			return asGiven(at, err)
		}
	}
	m.facts, m.assignor = got.Member, string(got.Assignor)
	if m.s.regroup == nil {
		m.s.regroup = make(chan struct{}, 1)
	}
	m.watch = m.groups.Watch(w.group, m.facts.ID, m.s.regrouped)
	m.s.heard.Store(time.Now().UnixNano())
	m.beaten(time.Now())
	return m.first(ctx, r)
}

// firstWait bounds how long a subscription waits for the group to give it something: a group
// assigns anew a moment after a member has joined.
const firstWait = 100 * time.Millisecond

// first takes what the member has, at best at once.
func (m *groupMember) first(ctx context.Context, r *reader) error {
	late := time.NewTimer(firstWait)
	defer late.Stop()
	for {
		if _, _, err := m.round(ctx, r); err != nil || len(r.parts) > 0 || !m.assigned.Pending {
			return err
		}
		select {
		case <-m.s.regroup:
		case <-late.C:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// regrouped has the session look at its group. It may be called under locks.
func (s *session) regrouped() {
	select {
	case s.regroup <- struct{}{}:
	default:
	}
	s.wake()
}

// end lets go of the membership; leave: and leaves the group.
func (m *groupMember) end(leave bool) {
	if m.over || m.watch == nil {
		return
	}
	m.over = true
	m.watch.Close()
	if leave {
		ctx, cancel := context.WithTimeout(context.Background(), revokeGrace)
		defer cancel()
		_ = m.groups.Leave(ctx, m.want.group, m.facts.ID, "") // or its session ends
	}
}

// part ends the socket's membership, if it has one. With auto_commit what was written is
// committed where the socket ends in order: its client leaves, or the node stops.
func (s *session) part(leave, inOrder bool) {
	if s.reader == nil || s.reader.member == nil || s.reader.member.over {
		return
	}
	m := s.reader.member
	leave = leave && (s.conn != nil || !m.resumed)
	if inOrder && !m.commitAt.IsZero() {
		ctx, cancel := context.WithTimeout(context.Background(), s.h.times.closeWait)
		defer cancel()
		_ = m.commit(ctx, s.reader, nil) // the records come again, then
	}
	m.end(leave)
}

// held are where the client is in what the member has.
func (r *reader) held() []group.Position {
	out := make([]group.Position, len(r.parts))
	for i, p := range r.parts {
		out[i] = group.Position{Held: *p.held, Next: p.next, LeaderEpoch: model.NoEpoch}
	}
	return out
}

func (m *groupMember) cursor(r *reader, revoked []*readPartition) string {
	if m.assigned == nil {
		return ""
	}
	gone := make([]group.Position, len(revoked))
	for i, p := range revoked {
		gone[i] = group.Position{Held: *p.held, Next: p.next, LeaderEpoch: model.NoEpoch}
	}
	return group.MakeCursor(m.facts.ID, m.assigned, group.PollResult{Positions: r.held(), Revoking: gone}, nil).String()
}

// round asks the group what the member has, and has the reader follow. It tells what was taken
// from it and what came, or goes on elsewhere.
func (m *groupMember) round(ctx context.Context, r *reader) (revoked, assigned []*readPartition, _ error) {
	res, err := m.groups.Poll(ctx, &coordinator.PollRequest{
		Group: m.want.group, Member: m.facts.ID, Caller: m.s.stream.Caller(), Cursor: m.cursor(r, nil),
		Isolation: r.want.isolation, MinBytes: 1, Stream: true, Grace: revokeGrace, Watch: m.watch,
	}, nil)
	if err != nil {
		return nil, nil, err
	}
	if res.End == coordinator.EndReplaced {
		return nil, nil, model.Errorf(model.Fenced, "another connection goes on as the member %q", m.facts.ID)
	}
	m.answered, m.retry = time.Now(), time.Time{}
	m.assigned = res.Assignment
	revoked = m.drop(r, res.Assignment)
	return revoked, m.take(ctx, r, res.Positions), nil
}

// drop takes what the member has no more from the reader.
func (m *groupMember) drop(r *reader, a *group.Assignment) (out []*readPartition) {
	left := r.parts[:0:0]
	for _, p := range r.parts {
		p.stalled = false
		if a.Holds(p.held.Partition, p.held.Since) {
			left = append(left, p)
			continue
		}
		p.topic.Shut(p.held.Index)
		delete(r.byName, p.name)
		out = append(out, p)
	}
	r.parts = left
	m.dropTopics(r)
	return out
}

// dropTopics lets go of topics of which nothing is read.
func (m *groupMember) dropTopics(r *reader) {
	used := map[model.TopicID]bool{}
	for _, p := range r.parts {
		used[p.held.Topic] = true
	}
	for id, t := range m.topics {
		if !used[id] {
			m.s.stream.Drop(t)
			delete(m.topics, id)
		}
	}
}

// take gives the reader what the member has. What cannot be read yet is tried again.
func (m *groupMember) take(ctx context.Context, r *reader, positions []group.Position) (out []*readPartition) {
	for _, pos := range positions {
		name := Partition{Topic: pos.Name, Partition: int32(pos.Index)}
		p := r.byName[name]
		switch {
		case pos.Next == group.NoOffset:
			m.again(retryGroup)
			continue
		case p != nil && p.next == pos.Next:
			continue
		case p != nil: // it was out of range
			p.next = pos.Next
		default:
			t, err := m.open(ctx, pos, r.want.isolation)
			if err != nil { // deleted meanwhile, or this node does not serve it yet
				m.again(retryPartition)
				continue
			}
			held := pos.Held // of its own, which does not keep the position
			p = &readPartition{topic: t, name: name, next: pos.Next, held: &held}
			r.parts = append(r.parts, p)
			r.byName[name] = p
		}
		out = append(out, p)
	}
	return out
}

func (m *groupMember) open(ctx context.Context, pos group.Position, iso broker.Isolation) (*broker.StreamTopic, error) {
	t := m.topics[pos.Topic]
	if t == nil {
		var err error
		if t, err = m.s.stream.Take(ctx, pos.Name, pos.Topic); err != nil {
			return nil, err
		}
		m.topics[pos.Topic] = t
	}
	_, err := t.Open(pos.Index, broker.Position{Kind: broker.AtOffset, Value: int64(pos.Next)}, iso)
	return t, err
}

// again has the group asked after a while, or before.
func (m *groupMember) again(d time.Duration) {
	if at := time.Now().Add(d); m.retry.IsZero() || at.Before(m.retry) {
		m.retry = at
	}
}

// tend does what is due for the member: it asks the group when that has called, keeps the
// session alive for as long as the client shows that it is there, and commits.
func (s *session) tend(ctx context.Context) *ending {
	if s.reader == nil || s.reader.member == nil {
		return nil
	}
	m := s.reader.member
	ctx, cancel := context.WithTimeout(ctx, s.h.times.command)
	defer cancel()
	now := time.Now()
	called := false
	select {
	case <-s.regroup:
		called = true
	default:
	}
	if called || !m.retry.IsZero() && !now.Before(m.retry) {
		if end := m.reassign(ctx); end != nil {
			return end
		}
	}
	if !m.heartbeat.After(now) {
		if end := m.beat(ctx, now); end != nil {
			return end
		}
	}
	if !m.commitAt.IsZero() && !m.commitAt.After(now) {
		if end := m.failed(m.commit(ctx, s.reader, nil)); end != nil {
			return end
		}
	}
	return nil
}

// due is when there is next something to do by the clock.
func (m *groupMember) due() time.Time {
	at := m.heartbeat
	for _, t := range []time.Time{m.retry, m.commitAt} {
		if !t.IsZero() && t.Before(at) {
			at = t
		}
	}
	return at
}

// reassign asks the group what the member has, and tells the client.
func (m *groupMember) reassign(ctx context.Context) *ending {
	revoked, assigned, err := m.round(ctx, m.s.reader)
	if end := m.failed(err); end != nil || err != nil {
		return end
	}
	if len(revoked) > 0 {
		if end := m.revoke(ctx, revoked); end != nil {
			return end
		}
	}
	if len(assigned) == 0 {
		return nil
	}
	out := make([]Position, len(assigned))
	for i, p := range assigned {
		out[i] = p.position()
	}
	return m.s.send(encodeFrame(AssignedFrame{"assigned", out}))
}

// revoke tells which partitions were taken from the member. With auto-commit nothing of them
// is left to be done.
func (m *groupMember) revoke(ctx context.Context, gone []*readPartition) *ending {
	if m.want.autoCommit && !m.commitAt.IsZero() {
		if end := m.failed(m.commit(ctx, m.s.reader, gone)); end != nil {
			return end
		}
	}
	f := RevokedFrame{Op: "revoked", Partitions: make([]Partition, len(gone))}
	names := make([]group.Name, len(gone))
	for i, p := range gone {
		f.Partitions[i] = p.name
		names[i] = group.Name{Topic: p.name.Topic, Partition: model.PartitionID(p.name.Partition)}
	}
	if end := m.s.send(encodeFrame(f)); end != nil || !m.want.autoCommit {
		return end
	}
	return m.failed(m.groups.Release(ctx, m.want.group, m.facts.ID, names))
}

// failed tells whether an error ends the socket. What may be otherwise soon is tried again,
// for as long as the session may last.
func (m *groupMember) failed(err error) *ending {
	if err == nil {
		return nil
	}
	e := model.AsError(err)
	switch e.Code {
	case model.LeaderUnavailable, model.CommitUnknown, model.Timeout, model.QuorumUnavailable, model.NotEnoughReplicas,
		model.NotEnoughReplicasAfterAppend, model.StorageFull, model.StorageError, model.RateLimited:
		if time.Since(m.answered) < m.facts.SessionTimeout {
			m.again(retryGroup)
			return nil
		}
	}
	return m.s.failed(err)
}

// beaten notes that the session began anew.
func (m *groupMember) beaten(now time.Time) {
	m.answered = now
	m.heartbeat = now.Add(m.facts.SessionTimeout / 3)
}

// beat keeps the session alive, if the client is: it is asked by a ping each time, and its
// session ends at the latest two thirds of the session timeout after the others would have.
func (m *groupMember) beat(ctx context.Context, now time.Time) *ending {
	m.heartbeat = now.Add(m.facts.SessionTimeout / 3)
	silent := now.Sub(time.Unix(0, m.s.heard.Load()))
	var err error
	if silent < m.facts.SessionTimeout*2/3 {
		err = m.groups.Heartbeat(ctx, m.want.group, m.facts.ID)
	} else {
		_, err = m.groups.Member(ctx, m.want.group, m.facts.ID)
	}
	switch {
	case err != nil:
		return m.failed(err)
	case silent < m.facts.SessionTimeout*2/3:
		m.answered = now
	}
	if m.facts.SessionTimeout/3 >= m.s.h.times.ping {
		return nil // which pings by itself
	}
	return m.s.sendControl(websocket.PingMessage, "")
}

// written notes that records went to the client.
func (m *groupMember) written() {
	if m.want.autoCommit && m.commitAt.IsZero() {
		m.commitAt = time.Now().Add(time.Duration(m.want.commitMs) * time.Millisecond)
	}
}

// slowly keeps the session alive while a client takes a long frame piece by piece.
func (m *groupMember) slowly() {
	now := time.Now()
	if m.over || m.heartbeat.After(now) {
		return
	}
	m.s.heard.Store(now.UnixNano())
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if m.groups.Heartbeat(ctx, m.want.group, m.facts.ID) == nil {
		m.beaten(now)
	}
}

// commit stores what was written, never back.
func (m *groupMember) commit(ctx context.Context, r *reader, revoked []*readPartition) error {
	_, err := m.groups.CommitRead(ctx, m.want.group, m.facts.ID, m.cursor(r, revoked))
	if err != nil {
		m.commitAt = time.Now().Add(retryGroup)
		return err
	}
	m.answered, m.commitAt = time.Now(), time.Time{}
	return nil
}

// unread follows an error of reading a partition: one that the member may have no more, or
// that cannot be read now, keeps nothing from the others.
func (s *session) unread(err error) *ending {
	m, p := s.reader.member, s.reader.failed
	switch model.AsError(err).Code {
	case model.OffsetOutOfRange:
		m.again(retryRange)
	case model.UnknownTopic, model.UnknownPartition, model.LeaderUnavailable, model.StorageError, model.RateLimited:
		m.again(retryPartition)
	default:
		return s.failed(err)
	}
	p.stalled = true
	return nil
}

// describe puts the membership's values into the answer to subscribe.
func (m *groupMember) describe(f *SubscribedFrame) {
	session, policy := m.facts.SessionTimeout.Milliseconds(), policyText(&m.facts)
	f.Topics, f.From = m.facts.Topics, policy
	f.MembershipValues = MembershipValues{
		Group: &m.want.group, MemberID: &m.facts.ID, Assignor: &m.assignor, SessionTimeoutMs: &session, AutoOffsetReset: &policy,
		AutoCommit: &m.want.autoCommit, AutoCommitIntervalMs: &m.want.commitMs,
	}
	if m.facts.InstanceID != "" {
		f.InstanceID = &m.facts.InstanceID
	}
	if m.facts.ClientID != "" {
		f.ClientID = &m.facts.ClientID
	}
}

// noGroup is the refusal of what only members can do.
func noGroup() error {
	return model.Errorf(model.Conflict, "this socket reads without a group; subscribe with group")
}

func notOwner(p Partition) error {
	return model.Errorf(model.NotOwner, "partition %d of %q is not assigned to this member", p.Partition, p.Topic).WithExtra("partitions", []Partition{p})
}

func (s *session) onCommit(ctx context.Context, id json.RawMessage, c commitCmd) (any, error) {
	m := s.reader.member
	if m == nil {
		return nil, noGroup()
	}
	req := group.CommitRequest{Member: m.facts.ID, Offsets: make([]group.CommitOffset, len(c.offsets))}
	for i, o := range c.offsets {
		if err := s.mayRead(ctx, o.Topic); err != nil {
			return nil, err
		}
		req.Offsets[i] = group.CommitOffset{
			Name: group.Name{Topic: o.Topic, Partition: model.PartitionID(o.Partition)}, Next: model.Offset(o.NextOffset),
			Epoch: model.NoEpoch, Metadata: o.Metadata,
		}
	}
	done, err := m.groups.Commit(ctx, m.want.group, req)
	if err != nil {
		return nil, err
	}
	m.beaten(time.Now())
	out := CommittedFrame{AnswerFrame: AnswerFrame{"committed", id}, Offsets: make([]MemberOffset, len(done))}
	for i, o := range done {
		out.Offsets[i] = MemberOffset{Topic: o.Topic, Partition: int32(o.Partition), NextOffset: int64(o.Next), Metadata: o.Metadata}
	}
	return out, nil
}

// mayRead looks at the right to read a topic before anything that tells whether it is there.
func (s *session) mayRead(ctx context.Context, topic string) error {
	caller := s.stream.Caller()
	if s.h.broker.Allowed(caller, metadata.OpRead, metadata.ResourceTopic, topic) {
		return nil
	}
	return s.h.broker.StillAllowed(ctx, caller, metadata.OpRead, topic)
}

func (s *session) onReleased(ctx context.Context, id json.RawMessage, c releasedCmd) (any, error) {
	m := s.reader.member
	if m == nil {
		return nil, noGroup()
	}
	names := make([]group.Name, len(c.partitions))
	for i, p := range c.partitions {
		names[i] = group.Name{Topic: p.Topic, Partition: model.PartitionID(p.Partition)}
	}
	if err := m.groups.Release(ctx, m.want.group, m.facts.ID, names); err != nil {
		return nil, err
	}
	m.beaten(time.Now())
	return PartitionsAnswer{AnswerFrame{"released", id}, append([]Partition{}, c.partitions...)}, nil
}

type (
	commitCmd   struct{ offsets []MemberOffset }
	releasedCmd struct{ partitions []Partition }
)
