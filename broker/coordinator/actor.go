package coordinator

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"tidewire/broker/group"
	"tidewire/broker/group/offsetslog"
	"tidewire/broker/partition"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// errMoved ends an operation on an actor that is no longer in use: its group was forgotten,
// dropped for a reload, or is somebody else's. The operation was not run; look the group up
// again.
var errMoved = errors.New("the group is looked after by another actor")

// actor looks after one group: it runs operations one after another, and keeps what they have
// to say until what they have written is committed.
//
// Operations are run in rounds. A round runs everything that is queued, on committed state
// alone, and appends what came of it as one batch; what arrives meanwhile is the next round.
// So nothing is ever decided by what may not come to be, many calls share one sync, and no
// goroutine belongs to a group: whoever begins a round waits for its end.
type actor struct {
	shard *shard
	name  string

	mu    sync.Mutex
	core  *group.Group     // guarded by mu
	queue []*op            // guarded by mu: not run yet
	round *round           // guarded by mu: appended and not known to be committed
	gone  error            // guarded by mu: why the actor is no longer in use
	polls map[string]*poll // guarded by mu: by member id, those under way
	idled bool             // guarded by mu: operations were refused, so that sessions have no fair end

	topics    []string // guarded by mu: what the index has of the group, ascending
	patterned bool     // guarded by mu: a member subscribes, or did, by a pattern

	timer timer // guarded by timers.mu
}

// operation computes and applies a change of a group and keeps its answer. An error refuses it
// and leaves no trace.
type operation func(g *group.Group, env group.Env) (group.Effects, error)

// op is an operation with what becomes of it.
type op struct {
	run   operation
	done  chan struct{} // closed once err is final
	err   error
	wrote bool // has records in a round: whether they are committed may not be known
}

// round is what was appended together.
type round struct {
	slice   partition.Slice
	ops     []*op
	size    int           // bound of the records' bytes
	changed []string      // members whose polls are to be answered
	reindex bool          // the group's topics may be others now
	failed  error         // it cannot be appended
	done    chan struct{} // closed once slice is done
}

// do runs an operation and returns once what it says is committed. When ctx ends before, the
// error says whether it was run.
func (a *actor) do(ctx context.Context, run operation) error {
	o := &op{run: run, done: make(chan struct{})}
	began, err := a.begin(o)
	switch {
	case err != nil:
		return err
	case o.over():
		return o.err
	}
	return a.await(ctx, o, began)
}

// begin has an operation run. The caller must see the round that it gets to its end.
func (a *actor) begin(o *op) (*round, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone != nil {
		return nil, errMoved
	}
	a.queue = append(a.queue, o)
	return a.turnLocked(), nil
}

// over tells whether it is known how an operation has ended.
func (o *op) over() bool {
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

// await returns once it is known how an operation has ended, or ctx has.
func (a *actor) await(ctx context.Context, o *op, began *round) error {
	if began != nil {
		select {
		case <-began.done:
			a.finish(began)
		case <-ctx.Done():
			a.tendLater(began)
		}
	}
	if o.over() {
		return o.err
	}
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
		return a.giveUp(ctx, o)
	}
}

// patience bounds how long a call waits for a group to do an operation: a partition that
// cannot commit must not hold it for ever.
const patience = 30 * time.Second

// soon is how long an operation is waited for without an eye on ctx and patience: most are over
// by then, and a watch of the client costs more than they do.
const soon = 50 * time.Millisecond

// within is do with a bound on its time.
func (a *actor) within(ctx context.Context, run operation) error {
	o := &op{run: run, done: make(chan struct{})}
	began, err := a.begin(o)
	if err != nil {
		return err
	}
	if o.over() {
		return o.err
	}
	if began = a.hurry(o, began); began == nil && o.over() {
		return o.err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return a.await(ctx, o, began)
}

// hurry waits for a moment. It returns the round if the caller has still to see to its end.
func (a *actor) hurry(o *op, began *round) *round {
	t := time.NewTimer(soon)
	defer t.Stop()
	if began != nil {
		select {
		case <-began.done:
			a.finish(began)
		case <-t.C:
			return began
		}
	}
	select {
	case <-o.done:
	case <-t.C:
	}
	return nil
}

// post runs an operation for which nobody waits.
func (a *actor) post(run operation) {
	o := &op{run: run, done: make(chan struct{})}
	a.mu.Lock()
	if a.gone != nil {
		a.mu.Unlock()
		return
	}
	a.queue = append(a.queue, o)
	began := a.turnLocked()
	a.mu.Unlock()
	if began != nil {
		a.tendLater(began)
	}
}

// giveUp ends the wait for an operation.
func (a *actor) giveUp(ctx context.Context, o *op) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, q := range a.queue {
		if q == o {
			a.queue = append(a.queue[:i], a.queue[i+1:]...)
			return model.Errorf(model.LeaderUnavailable, "the coordinator of group %q did not get to the call in time", a.name).WithCause(context.Cause(ctx))
		}
	}
	select {
	case <-o.done:
		return o.err
	default:
	}
	e := model.Errorf(model.CommitUnknown, "what the call changed in group %q was not known to be committed in time", a.name).WithCause(context.Cause(ctx))
	if !o.wrote {
		e = e.WithOutcome(model.NotApplied)
	}
	return e
}

// turnLocked runs what is queued, unless a round is under way. It returns the round that it
// began, which the caller must see to its end.
func (a *actor) turnLocked() *round {
	for a.round == nil && len(a.queue) > 0 {
		if err := a.shard.replica.CanAppend(); err != nil {
			a.refuseLocked(err)
			return nil
		}
		r := a.runLocked()
		switch {
		case r.failed != nil:
			a.answerLocked(r, r.failed)
			a.dropLocked(r.failed)
			return nil
		case len(r.slice.Records) == 0:
			a.committedLocked(r)
			a.answerLocked(r, nil)
			continue
		}
		a.round = r
		r.slice.Select = make([]int32, len(r.slice.Records))
		for i := range r.slice.Select {
			r.slice.Select[i] = int32(i)
		}
		r.slice.Acks, r.slice.Plain, r.slice.Whole, r.slice.Within = partition.AcksAll, true, true, &a.shard.epoch
		a.shard.c.metrics.rounds.Add(1)
		a.shard.c.metrics.ops.Add(int64(len(r.ops)))
		a.shard.replica.Submit(&r.slice, partition.NewCallback(1, func() { close(r.done) }))
		return r
	}
	if a.round == nil && a.idleLocked() {
		a.shard.forget(a)
	}
	return nil
}

// refuseLocked lets what is queued fail: nothing can be written, so nothing is decided.
func (a *actor) refuseLocked(why error) {
	a.idled = true
	a.shard.c.timers.set(a, a.shard.c.mono()+refusedAgain) // or nobody may ever ask again
	for _, o := range a.queue {
		o.err = model.AsError(why).WithOutcome(model.NotApplied)
		close(o.done)
	}
	a.queue = nil
}

// refusedAgain is when a group is looked at again that could not be written.
const refusedAgain = time.Second

// maxRound is how many bytes of records end a round, so that a batch stays handy.
const maxRound = 1 << 20

// runLocked runs queued operations until a batch is full.
func (a *actor) runLocked() *round {
	r := &round{done: make(chan struct{})}
	env := a.shard.c.env()
	a.core.Limit(*a.shard.c.limits.Load())
	if a.idled { // nobody could be heard meanwhile: sessions begin anew
		a.idled = false
		a.addLocked(r, a.core.Load(env), env.WallMs)
	}
	n := 0
	for ; n < len(a.queue) && r.size < maxRound && r.failed == nil; n++ {
		o := a.queue[n]
		var eff group.Effects
		if eff, o.err = o.run(a.core, env); o.err == nil {
			o.wrote = len(eff.Records) > 0
			a.addLocked(r, eff, env.WallMs)
		}
		r.ops = append(r.ops, o)
	}
	a.queue = a.queue[n:]
	if len(a.queue) == 0 {
		a.queue = nil
	}
	if limit := a.shard.replica.Settings().MaxMessageBytes - record.HeaderSize; r.size > limit && r.failed == nil {
		r.failed = model.Errorf(model.RequestTooLarge, "the change of group %q takes %d bytes, and a batch of __consumer_offsets at most %d", a.name, r.size, limit)
	}
	return r
}

// addLocked makes what an operation did part of a round.
func (a *actor) addLocked(r *round, eff group.Effects, wallMs int64) {
	for _, rec := range eff.Records {
		key, value := offsetslog.Encode(a.name, rec)
		r.slice.Records = append(r.slice.Records, record.Record{Timestamp: wallMs, Key: key, Value: value})
		r.size += record.RecordSizeBound(len(key)+len(value), 0)
		r.reindex = r.reindex || a.reindexes(rec)
	}
	r.changed = append(r.changed, eff.Changed...)
}

// reindexes tells whether a record may change what the index has of the group.
func (a *actor) reindexes(rec group.Record) bool {
	switch rec := rec.(type) {
	case group.Offset:
		_, known := slices.BinarySearch(a.topics, rec.Topic)
		return !known
	case group.Member:
		a.patterned = a.patterned || rec.Pattern != ""
		return true
	case group.TopicInfo:
		return true
	case group.Tombstone:
		return rec.Of.Kind == group.KindMember || rec.Of.Kind == group.KindTopic || rec.Of.Kind == group.KindOffset
	}
	return false
}

// committedLocked does what follows from a round that is committed.
func (a *actor) committedLocked(r *round) {
	if at, ok := a.core.NextDeadline(); ok {
		a.shard.c.timers.set(a, at)
	}
	if r.reindex {
		a.reindexLocked()
	}
	for _, id := range r.changed {
		if p := a.polls[id]; p != nil {
			p.wake()
		}
	}
}

// finish ends a round whose slice is done, and begins the next.
func (a *actor) finish(r *round) {
	a.mu.Lock()
	next := a.finishLocked(r)
	a.mu.Unlock()
	if next != nil {
		a.tendLater(next)
	}
}

func (a *actor) finishLocked(r *round) (next *round) {
	if a.round != r {
		return nil
	}
	a.round = nil
	err := r.slice.Err
	if err == nil && a.gone == nil {
		a.committedLocked(r)
	}
	a.answerLocked(r, err)
	switch {
	case a.gone != nil:
		return nil
	case err != nil:
		a.dropLocked(err)
		return nil
	}
	return a.turnLocked()
}

// answerLocked lets the operations of a round say what they have to. What was computed in a
// round that failed is worth nothing; who has certainly changed nothing tries again.
func (a *actor) answerLocked(r *round, failed error) {
	for _, o := range r.ops {
		if failed != nil && o.err == nil {
			o.err = failed
			if e := model.AsError(failed); !o.wrote || e.Code == model.LeaderUnavailable && e.EffectiveOutcome() == model.NotApplied {
				o.err = errMoved
			}
		}
		close(o.done)
	}
}

// tend waits for a round and those after it.
func (a *actor) tend(ctx context.Context, r *round) {
	for r != nil {
		select {
		case <-r.done:
		case <-ctx.Done():
			a.abandon(r)
			return
		}
		a.mu.Lock()
		r = a.finishLocked(r)
		a.mu.Unlock()
	}
}

// tendLater has a round looked after without the caller.
func (a *actor) tendLater(r *round) {
	if !a.shard.c.group.Go("coordinator/round", func(ctx context.Context) { a.tend(ctx, r) }) {
		a.abandon(r)
	}
}

// abandon gives a round up when the node stops.
func (a *actor) abandon(r *round) {
	select {
	case <-r.done:
		a.mu.Lock()
		defer a.mu.Unlock()
		a.finishLocked(r)
		return
	default:
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.round != r {
		return
	}
	a.round = nil
	err := model.Errorf(model.CommitUnknown, "the node stopped before the change was known to be committed")
	a.answerLocked(r, err)
	a.closeLocked(stopping())
}

func stopping() error { return model.Errorf(model.LeaderUnavailable, "the node is stopping") }

// dropLocked gives up a state that is not what the log holds. The group is read again.
func (a *actor) dropLocked(why error) {
	a.closeLocked(errMoved)
	a.shard.reload(a, why)
}

// closeLocked ends the actor: what is queued gets why, polls look again.
func (a *actor) closeLocked(why error) {
	if a.gone != nil {
		return
	}
	a.gone = why
	a.shard.c.timers.drop(a)
	a.unindexLocked()
	for _, o := range a.queue {
		o.err = why
		close(o.done)
	}
	a.queue = nil
	for _, p := range a.polls {
		p.wake()
	}
}

// close ends the actor when its partition is no longer this node's.
func (a *actor) close(why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closeLocked(why)
}

// enter makes a poll that of its member, and ends the one that is under way.
func (a *actor) enter(p *poll) (*poll, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone != nil {
		return nil, errMoved
	}
	if a.polls == nil {
		a.polls = map[string]*poll{}
	}
	if before := a.polls[p.member]; before != nil {
		before.replace()
	}
	a.polls[p.member] = p
	return p, nil
}

// rouse wakes polls that have no goroutine to see that the node stops.
func (a *actor) rouse() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.polls {
		if p.sleeps {
			p.woken()
		}
	}
}

// leave ends a poll.
func (a *actor) leave(p *poll) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.polls[p.member] != p {
		return
	}
	if delete(a.polls, p.member); len(a.polls) == 0 {
		a.polls = nil
	}
	if a.gone == nil && a.idleLocked() {
		a.shard.forget(a)
	}
}

// idleLocked tells that there is nothing to remember of the group.
func (a *actor) idleLocked() bool {
	return a.core.Vacant() && len(a.queue) == 0 && a.round == nil && len(a.polls) == 0
}
