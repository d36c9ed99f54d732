package broker

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"

	"tidewire/broker/operations"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// MaxDeletions is how many topics one request may delete.
const MaxDeletions = 1000

// Deletion is what became of one topic of many, or in a plan what would.
type Deletion struct {
	Name       string
	Err        error // nil: it is gone, or would go
	Partitions int   // these, where Err is nil, went with it
	Records    int64
	SizeBytes  int64
}

// deleters is how many topics of a request are deleted at once: each waits for the quorum,
// which syncs once for those that come together.
const deleters = 8

// CheckDeletions refuses lists of names that are empty, too long, or name one topic twice or
// one that cannot be.
func CheckDeletions(names []string) error {
	if len(names) == 0 || len(names) > MaxDeletions {
		return model.Invalid("/names", "one request deletes 1 to %d topics", MaxDeletions)
	}
	seen := make(map[string]int, len(names))
	var fields []model.FieldError
	for i, name := range names {
		why := model.CheckTopicName(name)
		if first, twice := seen[name]; twice {
			why = "it is named at " + namePointer(first) + " already"
		}
		seen[name] = i
		if why != "" {
			fields = append(fields, model.FieldError{Pointer: namePointer(i), Detail: why})
		}
	}
	if fields == nil {
		return nil
	}
	return &model.Error{Code: model.InvalidArgument, Detail: fields[0].Detail, Fields: fields}
}

// DeleteTopics deletes topics, each by the caller's right to it and with an outcome of its
// own, in the order of names, which must have passed CheckDeletions. When ctx ends or the
// operation is cancelled, what has not begun stays. With dryRun nothing is deleted.
func (b *Broker) DeleteTopics(ctx context.Context, c Caller, names []string, dryRun bool) []Deletion {
	out := make([]Deletion, len(names))
	for i, name := range names {
		out[i].Name = name
	}
	if dryRun {
		for i := range out {
			out[i].plan(ctx, b, c)
		}
		return out
	}
	workCtx, op := b.ops.Begin(ctx, operations.Spec{
		Kind: operations.DeleteTopics, Resource: operations.Resource{Type: "topics"}, Principal: c.user(),
		Total: int64(len(names)), Unit: "topics",
	})
	var next atomic.Int64
	var wg sync.WaitGroup
	work := func(context.Context) {
		defer wg.Done()
		for i := int(next.Add(1)) - 1; i < len(out); i = int(next.Add(1)) - 1 {
			out[i].carryOut(workCtx, b, c)
			op.Advance(1)
		}
	}
	for range min(deleters, len(out)) - 1 {
		wg.Add(1)
		if !b.group.Go("broker/delete-topics", work) {
			wg.Done() // the group has been stopped: here and now
		}
	}
	wg.Add(1)
	work(workCtx)
	wg.Wait()
	op.End(outcome(out, workCtx))
	return out
}

func namePointer(i int) string { return "/names/" + strconv.Itoa(i) }

// outcome is the error of the operation as a whole.
func outcome(all []Deletion, ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		for i := range all {
			if errors.Is(all[i].Err, errNotBegun) {
				return err
			}
		}
	}
	failed := 0
	for i := range all {
		if all[i].Err != nil {
			failed++
		}
	}
	if failed == 0 {
		return nil
	}
	return model.Errorf(model.Conflict, "%d of %d topics were not deleted; the answer of the request says why", failed, len(all))
}

// errNotBegun is the cause of deletions that were not tried.
var errNotBegun = errors.New("cancelled")

// plan tells what carryOut would do.
func (d *Deletion) plan(ctx context.Context, b *Broker, c Caller) *metadata.Topic {
	var t *metadata.Topic
	if t, d.Err = b.MayDeleteTopic(ctx, c, d.Name); d.Err != nil {
		return nil
	}
	s := b.StateOf(t)
	d.Partitions, d.Records, d.SizeBytes = len(t.Partitions), s.RecordsNow, s.SizeBytes
	return t
}

func (d *Deletion) carryOut(ctx context.Context, b *Broker, c Caller) {
	if ctx.Err() != nil {
		d.Err = model.Errorf(model.Conflict, "the request was cancelled before this topic was deleted").
			WithOutcome(model.NotApplied).WithCause(errNotBegun)
		return
	}
	if t := d.plan(ctx, b, c); t != nil {
		// One that has begun is finished: whether it was done would not be known otherwise.
		d.Err = b.deleteTopic(context.WithoutCancel(ctx), c, t, "")
	}
}
