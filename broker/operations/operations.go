// Package operations keeps account of a node's long work: what it is, who asked for it, how
// far it is, how it ended, and how it is cancelled. Work registers with Begin, tells its
// progress, and ends with End; doors list it and cancel it. What has ended is kept for a
// while, bounded by number and age, also over a restart; work that a restart has cut off is
// told as failed, since nobody finishes it.
//
// A Registry has one lock, held for moments only. Its file is written by Run, at most once
// a second, and by Save; a node that is killed forgets what the last second brought.
package operations

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/internal/model"
)

// Kind says what work an operation is.
type Kind string

// Kinds of operations.
const (
	OpenPartitions   Kind = "open-partitions"   // a node recovers and opens its partitions at its start
	CreatePartitions Kind = "create-partitions" // of a new topic, or of one that grows
	DeletePartitions Kind = "delete-partitions" // the files of a deleted topic go
	DeleteTopics     Kind = "delete-topics"     // many topics by one request
	Compact          Kind = "compact"           // one pass over one partition
)

// State is where an operation stands.
type State string

// States of an operation.
const (
	Running   State = "running"
	Done      State = "done"
	Failed    State = "failed"
	Cancelled State = "cancelled"
)

// Resource is what an operation works on.
type Resource struct {
	Type      string             `json:"type"` // broker, topic, topics or partition
	Name      string             `json:"name"` // of the topic, or the node's id; "" for topics
	Partition *model.PartitionID `json:"partition,omitempty"`
}

// Spec describes an operation that begins.
type Spec struct {
	Kind      Kind
	Resource  Resource
	Principal string // the user who asked for it; "" for the node itself
	Total     int64  // how much there is to be done, in Unit
	Unit      string // partitions, topics or bytes
	// Lasting says why the operation cannot be cancelled; "" means that it can: its context
	// ends then.
	Lasting string
	// Probe, where set, tells how far it is in place of Advance; ok is false while that is
	// not known. It must not block.
	Probe func() (done, total int64, ok bool)
}

// View is an operation at a moment.
type View struct {
	ID        string
	Spec      Spec
	Broker    model.BrokerID
	State     State
	Done      int64
	Total     int64
	Err       *model.Error // nil unless it has failed
	CreatedAt time.Time
	EndedAt   time.Time // zero while it runs
	Changes   uint64    // one more with each change of State
	// AtLeast is how long what remains takes in any case, by a limit that is in force; 0 where
	// there is none.
	AtLeast time.Duration
}

// Remaining estimates how long it goes on: by how long it took so far, and AtLeast; false where
// that cannot be told.
func (v *View) Remaining(now time.Time) (time.Duration, bool) {
	elapsed := now.Sub(v.CreatedAt)
	switch {
	case v.State != Running || v.Total < v.Done:
		return 0, false
	case v.Done <= 0 || elapsed < 0:
		return v.AtLeast, v.AtLeast > 0
	}
	byNow := float64(elapsed) * (float64(v.Total-v.Done) / float64(v.Done))
	return max(time.Duration(min(byNow, math.MaxInt64/2)), v.AtLeast), true
}

// Limits of what is kept.
const (
	MaxEnded   = 500            // operations that have ended
	MaxAge     = 24 * time.Hour // after their end
	maxRunning = 10_000         // further ones run without an account
)

// Registry is a node's account of operations. Its methods, and those of its operations, are
// safe for concurrent use.
type Registry struct {
	node model.BrokerID
	now  func() time.Time

	mu      sync.Mutex
	running map[string]*Operation // guarded by mu
	ended   []View                // guarded by mu, in order of their end
	changed bool                  // guarded by mu: since the file was written
}

// New returns an empty registry of a node.
func New(node model.BrokerID, now func() time.Time) *Registry {
	return &Registry{node: node, now: now, running: map[string]*Operation{}}
}

// Operation is one that was begun. All methods of a nil one do nothing.
type Operation struct {
	r      *Registry
	id     string
	spec   Spec
	since  time.Time
	cancel context.CancelFunc
	done   atomic.Int64
	over   chan struct{} // closed at its end

	cancelling bool // guarded by r.mu
	changes    uint64
}

// Begin registers an operation. The context is the work's: it ends when the operation is
// cancelled, and with ctx. End must be called.
func (r *Registry) Begin(ctx context.Context, s Spec) (context.Context, *Operation) {
	ctx, cancel := context.WithCancel(ctx)
	o := &Operation{r: r, spec: s, cancel: cancel, since: r.now(), over: make(chan struct{})}
	o.id = newID(r.node, o.since)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.running) < maxRunning {
		r.running[o.id] = o
		r.changed = true
	}
	return ctx, o
}

// newID is unique in the cluster, and orders a node's operations by their time.
func newID(node model.BrokerID, at time.Time) string {
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails (crypto/rand)
	return fmt.Sprintf("%d-%012x-%s", node, max(at.UnixMilli(), 0), hex.EncodeToString(random[:]))
}

// Advance tells that so much more is done.
func (o *Operation) Advance(n int64) {
	if o != nil {
		o.done.Add(n)
	}
}

// End ends the operation: done without an error, cancelled where it fails after somebody
// has cancelled it, else failed. Only the first call counts.
func (o *Operation) End(err error) {
	if o == nil {
		return
	}
	o.cancel()
	o.r.mu.Lock()
	defer o.r.mu.Unlock()
	select {
	case <-o.over:
		return
	default:
	}
	close(o.over)
	if _, listed := o.r.running[o.id]; !listed {
		return
	}
	delete(o.r.running, o.id)
	v := o.viewLocked()
	v.Changes++
	v.EndedAt = o.r.now()
	switch {
	case err == nil:
		v.State, v.Done = Done, v.Total
	case o.cancelling:
		v.State = Cancelled
	default:
		v.State, v.Err = Failed, told(err)
	}
	v.Spec.Probe = nil
	o.r.ended = append(o.r.ended, v)
	o.r.changed = true
	o.r.pruneLocked()
}

// told is an error as an operation keeps it.
func told(err error) *model.Error {
	if errors.Is(err, context.Canceled) {
		return interrupted()
	}
	return model.AsError(err)
}

// interrupted is the error of work that ended with its node, or with the request that
// waited for it.
func interrupted() *model.Error {
	return model.Errorf(model.CommitUnknown, "it was cut off before it ended: a part of it may be done")
}

func (o *Operation) viewLocked() View {
	v := View{
		ID: o.id, Spec: o.spec, Broker: o.r.node, State: Running, Done: o.done.Load(), Total: o.spec.Total,
		CreatedAt: o.since, Changes: o.changes,
	}
	if o.spec.Probe != nil {
		if done, total, ok := o.spec.Probe(); ok {
			v.Done, v.Total = done, total
		}
	}
	v.Total = max(v.Total, v.Done)
	return v
}

// pruneLocked drops what ended long ago, and the oldest beyond MaxEnded.
func (r *Registry) pruneLocked() {
	limit := r.now().Add(-MaxAge)
	r.ended = slices.DeleteFunc(r.ended, func(v View) bool { return v.EndedAt.Before(limit) })
	if more := len(r.ended) - MaxEnded; more > 0 {
		r.ended = slices.Delete(r.ended, 0, more)
	}
}

// List gives all operations, in order of their ids.
func (r *Registry) List() []View {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pruneLocked()
	out := slices.Clone(r.ended)
	for _, o := range r.running {
		out = append(out, o.viewLocked())
	}
	slices.SortFunc(out, func(a, b View) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// Get gives one operation; false where there is none.
func (r *Registry) Get(id string) (View, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.running[id]; o != nil {
		return o.viewLocked(), true
	}
	r.pruneLocked()
	for i := range r.ended {
		if r.ended[i].ID == id {
			return r.ended[i], true
		}
	}
	return View{}, false
}

// Cancel asks an operation to end and waits for that. Errors: not-found; conflict where it
// cannot be cancelled, or ended before it was; timeout where it goes on when ctx ends.
func (r *Registry) Cancel(ctx context.Context, id string) error {
	o, err := r.askToEnd(id)
	if err != nil {
		return err
	}
	select {
	case <-o.over:
	case <-ctx.Done():
		return model.Errorf(model.Timeout, "the operation was asked to end and has not yet").WithCause(context.Cause(ctx))
	}
	if v, ok := r.Get(id); ok && v.State != Cancelled {
		return model.Errorf(model.Conflict, "the operation ended before it could be cancelled: it is %s", v.State)
	}
	return nil
}

func (r *Registry) askToEnd(id string) (*Operation, error) {
	v, ok := r.Get(id)
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.running[id]
	switch {
	case !ok:
		return nil, model.Errorf(model.NotFound, "there is no operation %q", id)
	case o == nil:
		return nil, model.Errorf(model.Conflict, "the operation has ended: it is %s", v.State)
	case o.spec.Lasting != "":
		return nil, model.Errorf(model.Conflict, "the operation cannot be cancelled: %s", o.spec.Lasting)
	}
	o.cancelling = true
	o.cancel()
	return o, nil
}
