package partition

import (
	"tidewire/broker/replication"
	"tidewire/internal/model"
	"tidewire/storage/log"
	"tidewire/storage/record"
)

// Replicated is what replication needs of a log beyond Log; *log.Log has it.
type Replicated interface {
	replication.LeaderLog
	AppendReplica(batches []byte, compacted bool, now int64) (log.Appended, error)
	TruncateTo(off model.Offset) error
	TruncateFullyAndStartAt(off model.Offset) error
	CutFor(leader model.LeaderEpoch, leaderEnd model.Offset) (to model.Offset, agreed bool)
	AdvanceLogStart(to model.Offset) error
	Compacted() bool
}

// Role is what the metadata says of a replica that has others beside it.
type Role struct {
	Leadership
	Self  model.BrokerID
	State replication.State
	Clock func() int64 // milliseconds that never go back
	// Due is called, holding the partition's lock, when a follower may join the ISR.
	Due func()
}

// Tail is told what a leader's partition has for its followers. Both functions are called
// holding the partition's lock: they must not block nor call a partition.
type Tail struct {
	Data  func() // the log has grown, or the role has changed
	Moved func() // the high watermark has moved
}

// replica is what a partition with other replicas keeps; nil where there are none, so that
// one without pays nothing.
type replica struct {
	log  Replicated
	role Role                // guarded by Partition.mu
	lead *replication.Leader // guarded by Partition.mu: nil while another leads
	// tails are the sessions of followers, report the session with the leader: told, under the
	// lock, when the stable end has moved.
	tails  map[*Tail]struct{} // guarded by Partition.mu
	report func()             // guarded by Partition.mu
	// applying holds a token while a follower's change of the log is under way: it syncs, so
	// that no lock may be held, and a role must not change meanwhile.
	applying chan struct{}
	deleting int // guarded by Partition.mu: calls that wait for followers to delete records
}

// SetRole is SetLeadership for a partition that has, or had, several replicas. It waits for what
// is being applied to a follower's log.
func (p *Partition) SetRole(r Role) {
	own, ok := p.log.(Replicated)
	p.mu.Lock()
	if ok && len(r.State.Replicas) > 1 {
		p.beginReplicaLocked(own)
	}
	rep := p.rep
	p.mu.Unlock()
	if rep == nil {
		p.SetLeadership(r.Leadership)
		return
	}
	rep.applying <- struct{}{}
	defer func() { <-rep.applying }()
	p.mu.Lock()
	defer p.mu.Unlock()
	rep.role = r
	p.endEpochLocked(r.Leadership)
	switch {
	case !r.Leader:
		rep.lead = nil
	case rep.lead == nil || rep.lead.Epoch() != r.Epoch:
		p.hw = p.log.HighWatermark()
		rep.lead = replication.NewLeader(replication.Start{
			Self: r.Self, LogStart: p.log.LogStart(), LogEnd: p.log.LogEnd(), HighWatermark: p.hw,
		}, r.State, r.Clock())
		p.log.RequestSync()
	default:
		rep.lead.Update(r.State, r.Clock())
	}
	p.setLeadershipLocked(r.Leadership)
	for t := range rep.tails {
		t.Data()
	}
}

func (p *Partition) beginReplicaLocked(own Replicated) {
	if p.rep == nil {
		p.rep = &replica{log: own, tails: map[*Tail]struct{}{}, applying: make(chan struct{}, 1)}
	}
}

// tellGrownLocked wakes the sessions of followers.
func (p *Partition) tellGrownLocked() {
	if p.rep == nil {
		return
	}
	for t := range p.rep.tails {
		t.Data()
	}
}

// syncedLocked looks at the stable end after a sync. The log tells of one that is another than
// it told last, which after a truncation may be the same again.
func (p *Partition) syncedLocked() {
	if p.rep == nil {
		return
	}
	p.advanceLocked(p.log.StableEnd())
	if p.rep.report != nil {
		p.rep.report()
	}
}

// reachLocked is how far the high watermark may go, where the leader's log is stable up to an
// offset.
func (p *Partition) reachLocked(stable model.Offset) model.Offset {
	if p.rep == nil || p.rep.lead == nil {
		if p.lead.ISR < p.settings.MinInsyncReplicas { // KIP-966
			return p.hw
		}
		return stable
	}
	return p.rep.lead.Advance(stable, p.settings.MinInsyncReplicas)
}

// Follow adds a follower's session to those told; Unfollow takes it out. A follower may be there
// before this node knows that the partition is to have one.
func (p *Partition) Follow(t *Tail) {
	own, ok := p.log.(Replicated)
	p.mu.Lock()
	defer p.mu.Unlock()
	if ok {
		p.beginReplicaLocked(own)
	}
	if p.rep != nil {
		p.rep.tails[t] = struct{}{}
	}
}

// Unfollow undoes Follow.
func (p *Partition) Unfollow(t *Tail) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rep != nil {
		delete(p.rep.tails, t)
	}
}

// Report has fn called, under the partition's lock, whenever the stable end has moved; nil ends
// that. It is for the session with the leader.
func (p *Partition) Report(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rep != nil {
		p.rep.report = fn
	}
}

// leadsLocked is why a follower cannot be served in an epoch, or nil.
func (p *Partition) leadsLocked(epoch model.LeaderEpoch) error {
	switch {
	case p.closed != nil:
		return p.closed
	case p.rep == nil || p.rep.lead == nil || p.lead.Epoch != epoch:
		return model.Errorf(model.Fenced, "partition %d of %q is not led here in epoch %d", p.ID, p.Topic, epoch)
	}
	return nil
}

// Fetched takes a follower's position, as the leader of that epoch, and compares it with the
// log. Where it fits it counts for the high watermark and the ISR. Errors: fenced (another
// epoch, another leader, an earlier life of the follower's node), or why the partition is
// closed.
func (p *Partition) Fetched(m replication.Member, at replication.Position) (replication.Answer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.leadsLocked(at.Epoch); err != nil {
		return replication.Answer{}, err
	}
	l := p.rep.lead
	a := replication.Serve(p.rep.log, at)
	if a.Verdict != replication.Serving {
		l.Forget(m)
		return a, nil
	}
	if !l.Fetched(replication.Progress{Member: m, LogEnd: at.LogEnd, StableEnd: at.StableEnd, LogStart: at.LogStart}, p.log.LogEnd(), p.rep.role.Clock()) {
		return a, model.Errorf(model.Fenced, "node %d has no replica of partition %d of %q, or has registered again", m.ID, p.ID, p.Topic)
	}
	p.advanceLocked(p.log.StableEnd())
	if p.rep.deleting > 0 {
		p.wakeLocked()
	}
	if l.Due(m.ID) && p.rep.role.Due != nil {
		p.rep.role.Due()
	}
	return a, nil
}

// CatchingUp tells that a follower is one that a move adds, and is not in sync yet.
func (p *Partition) CatchingUp(id model.BrokerID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rep != nil && p.rep.lead != nil && p.rep.role.State.CatchingUp(id)
}

// Alive notes a sign of life of a follower that waits for data, and gives the log start.
func (p *Partition) Alive(m replication.Member) model.Offset {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rep != nil && p.rep.lead != nil {
		p.rep.lead.Alive(m, p.log.LogEnd(), p.rep.role.Clock())
	}
	return p.log.LogStart()
}

// View is what a leader tells a follower beside records.
type View struct {
	HighWatermark, LogStart, LogEnd model.Offset
	Compacted                       bool
}

// ReadFor appends to dst whole batches from an offset on, at most maxBytes unless the first is
// larger, as the leader of an epoch: what it gives was its log in that epoch. Nothing is
// given at the log end. Errors: as Fetched, and those of reading.
func (p *Partition) ReadFor(dst []byte, epoch model.LeaderEpoch, from model.Offset, maxBytes int) ([]byte, View, error) {
	v, err := p.Told(epoch)
	if err != nil || from >= v.LogEnd {
		return dst, v, err
	}
	out, err := p.log.Read(dst, from, v.LogEnd, maxBytes)
	if err != nil {
		return dst, v, err
	}
	// A leader never cuts its log: when it leads still, what was read has not become another's.
	if v, err = p.Told(epoch); err != nil {
		return dst, v, err
	}
	return out, v, nil
}

// Told is what a leader tells beside records. Errors: as Fetched.
func (p *Partition) Told(epoch model.LeaderEpoch) (View, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.leadsLocked(epoch); err != nil {
		return View{}, err
	}
	return View{HighWatermark: p.hw, LogStart: p.log.LogStart(), LogEnd: p.log.LogEnd(), Compacted: p.rep.log.Compacted()}, nil
}

// Proposal is the in-sync set that the leader wants committed, where it wants another one. One
// whose log has failed resigns.
func (p *Partition) Proposal(rule replication.Rule) (replication.Proposal, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed != nil || p.rep == nil || p.rep.lead == nil {
		return replication.Proposal{}, false
	}
	if p.log.Failed() != nil {
		return p.rep.lead.Resign(p.rep.role.Clock())
	}
	return p.rep.lead.Propose(p.log.LogEnd(), p.rep.role.Clock(), rule)
}

// Proposed tells what became of a proposal that was not committed: refused for good, or not
// known. What is committed comes by SetRole.
func (p *Partition) Proposed(q replication.Proposal, refused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rep == nil || p.rep.lead == nil || p.rep.lead.Epoch() != q.LeaderEpoch {
		return
	}
	if refused {
		p.rep.lead.Refused(q, p.rep.role.Clock())
		p.advanceLocked(p.log.StableEnd()) // who was to join counts no more
		return
	}
	p.rep.lead.Unanswered(q, p.rep.role.Clock())
}

// Followers are the states of the other replicas as this leader sees them; nil elsewhere.
func (p *Partition) Followers() []replication.FollowerState {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rep == nil || p.rep.lead == nil {
		return nil
	}
	return p.rep.lead.Followers(p.log.LogEnd(), p.rep.role.Clock())
}

// unsettledLocked tells whether a leader that follows another has not yet come as far with the
// high watermark as the other may have told.
func (p *Partition) unsettledLocked() bool {
	return p.rep != nil && p.rep.lead != nil && p.hw < p.rep.lead.EpochStart()
}

// followsLocked is why nothing is fetched in an epoch, or nil.
func (p *Partition) followsLocked(epoch model.LeaderEpoch) error {
	switch {
	case p.closed != nil:
		return p.closed
	case p.rep == nil || p.lead.Leader || p.lead.Epoch != epoch:
		return model.Errorf(model.Fenced, "partition %d of %q does not follow in epoch %d", p.ID, p.Topic, epoch)
	}
	return p.log.Failed()
}

// Position is where a follower's log is, in the epoch of the leader that it follows.
func (p *Partition) Position(epoch model.LeaderEpoch) (replication.Position, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.followsLocked(epoch); err != nil {
		return replication.Position{}, err
	}
	return replication.Position{Epoch: epoch, LogEnd: p.log.LogEnd(), LastEpoch: p.rep.log.LogEndEpoch(), StableEnd: p.log.StableEnd(), LogStart: p.log.LogStart()}, nil
}

// Fetch is what came of a fetch.
type Fetch struct {
	At     replication.Position // of the follower when it asked
	Answer replication.Answer
	// HighWatermark is the leader's, Compacted says that its log has gaps.
	HighWatermark model.Offset
	Compacted     bool
	Batches       []byte // whole ones
}

// Apply does with a follower's log what a fetch brought, and has it synced. It does nothing
// where the log or the role is not what it was when the fetch was made. It may wait for the
// disk. Errors: fenced, those of the log.
func (p *Partition) Apply(f *Fetch) error {
	p.mu.Lock()
	rep := p.rep
	p.mu.Unlock()
	if rep == nil {
		return model.Errorf(model.Fenced, "partition %d of %q has no other replica", p.ID, p.Topic)
	}
	rep.applying <- struct{}{}
	defer func() { <-rep.applying }()
	p.mu.Lock()
	err := p.followsLocked(f.At.Epoch)
	if err == nil && !replication.SameLog(p.log.LogEnd(), rep.log.LogEndEpoch(), f.At) {
		err = model.Errorf(model.Fenced, "the log is not what it was when its end was %d", f.At.LogEnd)
	}
	p.mu.Unlock()
	if err != nil {
		return err
	}
	if err := p.change(rep.log, f); err != nil {
		return err
	}
	p.log.RequestSync()
	p.mu.Lock()
	if p.hw = p.log.HighWatermark(); f.Answer.Verdict == replication.Serving { // else the log may still be another's
		p.hw = max(p.hw, min(f.HighWatermark, p.log.LogEnd()))
		p.log.SetHighWatermark(p.hw)
	}
	hw := p.hw
	p.mu.Unlock()
	if to := min(f.Answer.LogStart, hw); to > p.log.LogStart() {
		if err := rep.log.AdvanceLogStart(to); err != nil { // KIP-107: records deleted there are deleted here
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if rep.report != nil {
			rep.report()
		}
	}
	return nil
}

func (p *Partition) change(l Replicated, f *Fetch) error {
	step := replication.Next(l, f.Answer)
	switch {
	case step.Action == replication.Truncate:
		return l.TruncateTo(step.To)
	case step.Action == replication.Restart:
		return l.TruncateFullyAndStartAt(step.To)
	case len(f.Batches) == 0:
		return nil
	}
	// The leader's log start may lie within its first batch, which comes whole.
	if h, err := record.ParseHeader(f.Batches); err == nil && h.BaseOffset < f.At.LogEnd && h.NextOffset() > f.At.LogEnd && l.LogStart() == f.At.LogEnd {
		if err := l.TruncateFullyAndStartAt(h.BaseOffset); err != nil {
			return err
		}
	}
	_, err := l.AppendReplica(f.Batches, f.Compacted, p.now())
	return err
}
