package broker

import (
	"context"
	"strconv"

	"tidewire/auth"
	"tidewire/broker/operations"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// manyPartitions is from how many partitions on opening or removing them is an operation of
// its own: fewer are a matter of a moment.
const manyPartitions = 50

// Operations is the account of the node's long work.
func (b *Broker) Operations() *operations.Registry { return b.ops }

// workKey names work on a topic that is under way.
type workKey struct {
	kind  operations.Kind
	topic string
}

// partitionsWork describes work on partitions of a topic.
func partitionsWork(k workKey, principal string, n int) operations.Spec {
	lasting := "partitions that are being made cannot be taken back; the topic can be deleted"
	if k.kind == operations.DeletePartitions {
		lasting = "the topic is deleted already, only its files are still there"
	}
	return operations.Spec{
		Kind: k.kind, Resource: operations.Resource{Type: "topic", Name: k.topic}, Principal: principal,
		Total: int64(n), Unit: "partitions", Lasting: lasting,
	}
}

// foresee registers the work that a change of the metadata will bring, on behalf of who asks
// for it, before the change is made. Who does the work takes it over by takeWork; the
// returned function ends it where the change was refused.
func (b *Broker) foresee(c Caller, k workKey, n int) (refused func(error)) {
	if _, taken := b.underway.Load(k); taken || n < manyPartitions {
		return func(error) {}
	}
	_, op := b.ops.Begin(context.Background(), partitionsWork(k, c.user(), n))
	if _, taken := b.underway.LoadOrStore(k, op); taken { // another request for the same came first
		op.End(model.Errorf(model.Conflict, "another change of the topic is under way"))
		return func(error) {}
	}
	return func(err error) {
		if b.underway.CompareAndDelete(k, op) {
			op.End(err)
		}
	}
}

// takeWork is the operation that was foreseen for the work, or one of the node's own; nil
// where neither is worth an account.
func (b *Broker) takeWork(k workKey, n int) *operations.Operation {
	if v, ok := b.underway.LoadAndDelete(k); ok {
		return v.(*operations.Operation)
	}
	if n < manyPartitions {
		return nil
	}
	_, op := b.ops.Begin(context.Background(), partitionsWork(k, "", n))
	return op
}

// startWork registers the opening of all partitions at the start.
func (b *Broker) startWork(img *metadata.Image) *operations.Operation {
	n := 0
	for t := range img.Topics("") {
		n += len(t.Partitions)
	}
	_, op := b.ops.Begin(context.Background(), operations.Spec{
		Kind: operations.OpenPartitions, Resource: operations.Resource{Type: "broker", Name: strconv.Itoa(int(b.nodeID))},
		Total: int64(n), Unit: "partitions", Lasting: "a node cannot serve partitions that it has not opened",
	})
	return op
}

// notOpened is the error of an operation that should have opened partitions; nil where it
// has.
func notOpened(failed int) error {
	if failed == 0 {
		return nil
	}
	return model.Errorf(model.StorageError, "%d partitions could not be opened; the log of the node says why", failed)
}

// countFailed is how many partitions of a topic could not be opened.
func (t *topic) countFailed() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, err := range t.failed {
		if err != nil {
			n++
		}
	}
	return n
}

func (b *Broker) countUnopened() int {
	n := 0
	b.topics.Range(func(_, v any) bool {
		n += v.(*topic).countFailed()
		return true
	})
	return n
}

// MayOnCluster authorises an operation on the cluster. The error is forbidden.
func (b *Broker) MayOnCluster(ctx context.Context, c Caller, op metadata.Operation) error {
	return b.authorizer.Authorize(ctx, c.Principal, onCluster(op, c.Host))
}

// VisibleOperations gives the operations that the caller may see: its own, and with describe
// on the cluster all.
func (b *Broker) VisibleOperations(c Caller) []operations.View {
	all := b.ops.List()
	if b.authorizer.Allowed(c.Principal, onCluster(metadata.OpDescribe, c.Host)) {
		return all
	}
	own := all[:0]
	for i := range all {
		if owns(c.Principal, &all[i]) {
			own = append(own, all[i])
		}
	}
	return own
}

func owns(p *auth.Principal, v *operations.View) bool {
	return v.Spec.Principal != "" && v.Spec.Principal == p.Name
}

// Operation gives one operation that the caller may see. Errors: forbidden, the same whether
// it exists or not; not-found.
func (b *Broker) Operation(ctx context.Context, c Caller, id string) (operations.View, error) {
	return b.operation(ctx, c, metadata.OpDescribe, id)
}

func (b *Broker) operation(ctx context.Context, c Caller, right metadata.Operation, id string) (operations.View, error) {
	v, ok := b.ops.Get(id)
	if !ok || !owns(c.Principal, &v) {
		if err := b.MayOnCluster(ctx, c, right); err != nil {
			return operations.View{}, err
		}
	}
	if !ok {
		return operations.View{}, model.Errorf(model.NotFound, "there is no operation %q", id)
	}
	return v, nil
}

// MayCancel tells whether CancelOperation would be let in.
func (b *Broker) MayCancel(c Caller, v *operations.View) bool {
	return owns(c.Principal, v) || b.authorizer.Allowed(c.Principal, onCluster(metadata.OpAlter, c.Host))
}

// CancelOperation cancels one of the caller's own operations, or with alter on the cluster
// any, and returns once it has ended. match, when not nil, must agree with the operation.
// Errors: those of Operation, what match returns, and those of operations.Registry.Cancel.
func (b *Broker) CancelOperation(ctx context.Context, c Caller, id string, match func(*operations.View) error) error {
	v, err := b.operation(ctx, c, metadata.OpAlter, id)
	if err != nil {
		return err
	}
	if match != nil {
		if err := match(&v); err != nil {
			return err
		}
	}
	return b.ops.Cancel(ctx, id)
}
