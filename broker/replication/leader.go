package replication

import (
	"math"
	"slices"

	"tidewire/internal/model"
)

// State is what the metadata says of a partition that this node leads.
type State struct {
	LeaderEpoch    model.LeaderEpoch
	PartitionEpoch int32
	Replicas       []model.BrokerID
	ISR            []model.BrokerID
	Adding         []model.BrokerID // of Replicas: those that a move adds
}

// CatchingUp tells that a replica is one that a move adds, and is not in sync yet.
func (s *State) CatchingUp(id model.BrokerID) bool {
	return slices.Contains(s.Adding, id) && !slices.Contains(s.ISR, id)
}

// Member is a replica in a life of its node.
type Member struct {
	ID    model.BrokerID
	Epoch int64 // of the registration under which it fetches; 0: not known
}

// Proposal is an in-sync set that the leader wants. It is for one leader epoch and one
// partition epoch.
type Proposal struct {
	LeaderEpoch    model.LeaderEpoch
	PartitionEpoch int32
	ISR            []Member
}

// Progress is what a fetch, which Serve has found to fit the log, says of a follower.
type Progress struct {
	Member
	LogEnd, StableEnd, LogStart model.Offset
}

// follower is what the leader knows of one.
type follower struct {
	epoch     int64
	known     bool // it has fetched in this leader epoch
	logEnd    model.Offset
	stableEnd model.Offset
	logStart  model.Offset
	// caughtUp is when it was caught up last, seenEnd and seenAt what the leader's log end was
	// at its last fetch and when that was. Milliseconds.
	caughtUp, seenAt int64
	seenEnd          model.Offset
}

// Leader is a leader's view of its partition in one leader epoch. Times are milliseconds of
// a monotonic clock.
type Leader struct {
	self      model.BrokerID
	start     model.Offset // of the leader epoch
	state     State
	hw        model.Offset
	followers map[model.BrokerID]*follower
	deleted   model.Offset // who is in sync has no records below

	pending *Proposal // whose end is not known
	doubt   bool      // it got no answer: it may yet be committed, whatever later ones get
	closing bool      // the partition epoch is to be closed, so that it no longer can
	retryAt int64     // no proposal before
}

// retryAfter is between a refused proposal and the next, in milliseconds.
const retryAfter = 200

// Start is where a leadership begins.
type Start struct {
	Self          model.BrokerID
	LogStart      model.Offset
	LogEnd        model.Offset
	HighWatermark model.Offset
}

// NewLeader begins a leadership. Who is in sync gets the lag time to be heard of.
func NewLeader(at Start, s State, now int64) *Leader {
	l := &Leader{self: at.Self, deleted: at.LogStart, start: at.LogEnd, hw: at.HighWatermark, state: s, followers: map[model.BrokerID]*follower{}}
	l.follow(now)
	return l
}

// follow keeps a record of every other replica.
func (l *Leader) follow(now int64) {
	for _, id := range l.state.Replicas {
		if id != l.self && l.followers[id] == nil {
			l.followers[id] = &follower{stableEnd: -1, logEnd: -1, caughtUp: now}
		}
	}
	for id := range l.followers {
		if !slices.Contains(l.state.Replicas, id) {
			delete(l.followers, id)
		}
	}
}

// Update takes over newer metadata of the same leader epoch. What was proposed for an older
// partition epoch is decided by it.
func (l *Leader) Update(s State, now int64) {
	if s.LeaderEpoch != l.state.LeaderEpoch || s.PartitionEpoch < l.state.PartitionEpoch {
		return
	}
	for _, id := range s.ISR {
		if f := l.followers[id]; f != nil && !slices.Contains(l.state.ISR, id) {
			f.caughtUp = max(f.caughtUp, now)
		}
	}
	if l.pending != nil && s.PartitionEpoch > l.pending.PartitionEpoch {
		l.pending, l.doubt, l.closing = nil, false, false
	}
	l.state = s
	l.follow(now)
}

// Epoch is the leader epoch.
func (l *Leader) Epoch() model.LeaderEpoch { return l.state.LeaderEpoch }

// EpochStart is the log end at which the leadership began.
func (l *Leader) EpochStart() model.Offset { return l.start }

// ISR is the size of the committed in-sync set.
func (l *Leader) ISR() int { return len(l.state.ISR) }

// HighWatermark is as far as Advance has come.
func (l *Leader) HighWatermark() model.Offset { return l.hw }

// Fetched takes a follower's progress; end is the leader's log end. It reports false for one
// that is no replica, and for an earlier life of a node.
func (l *Leader) Fetched(p Progress, end model.Offset, now int64) bool {
	f := l.followers[p.ID]
	if f == nil || p.Epoch < f.epoch {
		return false
	}
	if p.Epoch > f.epoch {
		*f = follower{epoch: p.Epoch, caughtUp: f.caughtUp}
	}
	f.known, f.logEnd, f.stableEnd, f.logStart = true, p.LogEnd, p.StableEnd, p.LogStart
	synced := min(p.LogEnd, p.StableEnd)
	switch {
	case synced >= end:
		f.caughtUp = max(f.caughtUp, now)
	case synced >= f.seenEnd && f.seenAt > 0:
		f.caughtUp = max(f.caughtUp, f.seenAt)
	}
	if synced >= f.seenEnd || f.seenAt == 0 { // else what it was to reach still stands
		f.seenEnd, f.seenAt = end, now
	}
	return true
}

// Alive notes at a sign of life that a follower which had everything still has it.
func (l *Leader) Alive(m Member, end model.Offset, now int64) {
	if f := l.followers[m.ID]; f != nil && f.epoch == m.Epoch && f.known && min(f.logEnd, f.stableEnd) >= end {
		f.caughtUp, f.seenEnd, f.seenAt = max(f.caughtUp, now), end, now
	}
}

// Forget drops what is known of a follower that was found to be elsewhere.
func (l *Leader) Forget(m Member) {
	if f := l.followers[m.ID]; f != nil && m.Epoch >= f.epoch {
		*f = follower{epoch: m.Epoch, stableEnd: -1, logEnd: -1, caughtUp: f.caughtUp}
	}
}

// Advance moves the high watermark as far as it may go; stable is the leader's own stable
// end, minISR is min.insync.replicas.
func (l *Leader) Advance(stable model.Offset, minISR int) model.Offset {
	if len(l.state.ISR) < minISR || !slices.Contains(l.state.ISR, l.self) {
		return l.hw
	}
	low := stable
	count := func(id model.BrokerID) {
		if f := l.followers[id]; f != nil {
			low = min(low, f.stableEnd)
		} else if id != l.self {
			low = math.MinInt64 // a member that is no replica: nothing is known
		}
	}
	for _, id := range l.state.ISR {
		count(id)
	}
	if l.pending != nil {
		for _, m := range l.pending.ISR {
			count(m.ID)
		}
	}
	l.hw = max(l.hw, low)
	return l.hw
}

// Rule is what the cluster says of who may be in sync. Fit tells by the metadata who may join,
// nil: all may. One that may not, such as a broker that was fenced after it had caught up, would
// have the others refused with it.
type Rule struct {
	LagMs int64 // replica.lag.time.max.ms
	Fit   func(Member) bool
}

// Propose is the in-sync set that should be committed next, where it is another; end is the
// leader's log end. At most one proposal is under way: what it got is told by Update, Refused or
// Unanswered.
func (l *Leader) Propose(end model.Offset, now int64, rule Rule) (Proposal, bool) {
	if now < l.retryAt {
		return Proposal{}, false
	}
	if l.pending != nil {
		return l.close()
	}
	p := Proposal{LeaderEpoch: l.state.LeaderEpoch, PartitionEpoch: l.state.PartitionEpoch}
	changed := false
	for _, id := range l.state.Replicas {
		in := slices.Contains(l.state.ISR, id)
		if id == l.self {
			p.ISR = append(p.ISR, Member{ID: id})
			continue
		}
		f := l.followers[id]
		wanted := in && !l.lags(f, end, now, rule.LagMs) || !in && l.mayJoin(f) && (rule.Fit == nil || rule.Fit(Member{id, f.epoch}))
		changed = changed || wanted != in
		if wanted {
			p.ISR = append(p.ISR, Member{ID: id, Epoch: f.epoch})
		}
	}
	if !changed {
		return Proposal{}, false
	}
	l.pending = &p
	return p, true
}

// close is a proposal of what is committed already, where one before it got no answer: when it
// is committed the partition epoch is another, and the one before it can be no more.
func (l *Leader) close() (Proposal, bool) {
	if !l.closing {
		return Proposal{}, false
	}
	l.closing = false
	p := Proposal{LeaderEpoch: l.state.LeaderEpoch, PartitionEpoch: l.state.PartitionEpoch}
	for _, id := range l.state.ISR {
		m := Member{ID: id}
		if f := l.followers[id]; f != nil {
			m.Epoch = f.epoch
		}
		p.ISR = append(p.ISR, m)
	}
	return p, true
}

// Resign is the proposal of a leader that cannot go on: the others, where there are any, stay
// in sync, and one of them leads.
func (l *Leader) Resign(now int64) (Proposal, bool) {
	if now < l.retryAt {
		return Proposal{}, false
	}
	if l.pending != nil {
		return l.close()
	}
	p := Proposal{LeaderEpoch: l.state.LeaderEpoch, PartitionEpoch: l.state.PartitionEpoch}
	for _, id := range l.state.ISR {
		if f := l.followers[id]; f != nil {
			p.ISR = append(p.ISR, Member{ID: id, Epoch: f.epoch})
		}
	}
	if len(p.ISR) == 0 {
		return Proposal{}, false
	}
	l.pending = &p
	return p, true
}

// lags: it has not been caught up for the lag time.
func (l *Leader) lags(f *follower, end model.Offset, now, lag int64) bool {
	if f.known && min(f.logEnd, f.stableEnd) >= end {
		return false
	}
	return now-f.caughtUp > lag
}

// mayJoin: everything that was acknowledged is synced there, what was deleted is gone there, and
// this leader's epoch has begun.
func (l *Leader) mayJoin(f *follower) bool {
	return f.known && f.epoch > 0 && f.stableEnd >= l.hw && f.stableEnd >= l.start && f.logStart >= l.deleted
}

// Deleted notes that the records below an offset are deleted, and reports whether they are at
// every replica that may lead after this one (KIP-107).
func (l *Leader) Deleted(below model.Offset) bool {
	l.deleted = max(l.deleted, below)
	for id, f := range l.followers {
		joins := l.pending != nil && slices.ContainsFunc(l.pending.ISR, func(m Member) bool { return m.ID == id })
		if (joins || slices.Contains(l.state.ISR, id)) && f.logStart < below {
			return false
		}
	}
	return true
}

// Due reports whether a follower's progress lets it join now.
func (l *Leader) Due(id model.BrokerID) bool {
	f := l.followers[id]
	return f != nil && l.pending == nil && !slices.Contains(l.state.ISR, id) && l.mayJoin(f)
}

// Refused ends a proposal that was not and will not be committed. Where one in the same partition
// epoch got no answer that says nothing of it: the refusal may come of its having been committed,
// or it may yet arrive. Only newer metadata ends that.
func (l *Leader) Refused(p Proposal, now int64) {
	if l.pending == nil || l.pending.PartitionEpoch != p.PartitionEpoch {
		return
	}
	l.retryAt = now + retryAfter
	if l.doubt {
		l.closing = true
		return
	}
	l.pending = nil
}

// Unanswered says that a proposal may still be committed. It counts on, until the metadata has a
// newer partition epoch, for which the next proposal asks.
func (l *Leader) Unanswered(p Proposal, now int64) {
	if l.pending != nil && l.pending.PartitionEpoch == p.PartitionEpoch {
		l.doubt, l.closing, l.retryAt = true, true, now+retryAfter
	}
}

// FollowerState is what is known of a follower, for people.
type FollowerState struct {
	ID                model.BrokerID
	LogEnd, StableEnd model.Offset // −1: not known
	InSync            bool
	BehindMs          int64 // since it was caught up; 0 while it is
}

// Followers are the states of all other replicas in their order.
func (l *Leader) Followers(end model.Offset, now int64) []FollowerState {
	var out []FollowerState
	for _, id := range l.state.Replicas {
		f := l.followers[id]
		if f == nil {
			continue
		}
		s := FollowerState{ID: id, LogEnd: f.logEnd, StableEnd: f.stableEnd, InSync: slices.Contains(l.state.ISR, id)}
		if min(f.logEnd, f.stableEnd) < end {
			s.BehindMs = max(now-f.caughtUp, 0)
		}
		out = append(out, s)
	}
	return out
}
