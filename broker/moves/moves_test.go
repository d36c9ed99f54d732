package moves

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidewire/auth"
	"tidewire/broker"
	"tidewire/broker/operations"
	"tidewire/broker/replication"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a cluster of brokers that are an image, and a service over it.
type world struct {
	t       *testing.T
	img     *metadata.Image
	epochs  map[model.BrokerID]int64
	notify  func(old, now *metadata.Image, d metadata.Delta)
	now     time.Time
	allowed map[metadata.Operation]bool
	size    int64
	ends    map[model.BrokerID]model.Offset // of followers, of 100 records

	*Service
	account *operations.Registry
}

func newWorld(t *testing.T, brokers int) *world {
	w := &world{
		t: t, img: metadata.Empty(), epochs: map[model.BrokerID]int64{}, now: time.UnixMilli(1_700_000_000_000), size: 1000,
		allowed: map[metadata.Operation]bool{metadata.OpAlter: true, metadata.OpDescribe: true}, ends: map[model.BrokerID]model.Offset{},
	}
	clock := func() time.Time { return w.now }
	w.account = operations.New(1, clock)
	s, stop := New(Config{Cluster: w, Broker: w, Account: w.account, Now: clock})
	w.Service = s
	t.Cleanup(stop)
	w.do(metadata.BootstrapCluster{ClusterID: "c", MetadataVersion: 1})
	for i := range brokers {
		id := model.BrokerID(i + 1)
		w.epochs[id] = w.do(metadata.RegisterBroker{ID: id, StorageID: string(rune('a' + i))}).Value.(*metadata.Broker).Epoch
		w.do(metadata.UnfenceBroker{ID: id, Epoch: w.epochs[id]})
	}
	return w
}

func (w *world) do(c metadata.Command) metadata.Result {
	res, err := w.Propose(context.Background(), c)
	require.NoError(w.t, err)
	return res
}

func (w *world) Image() *metadata.Image { return w.img }

func (w *world) Propose(_ context.Context, c metadata.Command) (metadata.Result, error) {
	old := w.img
	next, d, res := metadata.Apply(old, old.Index()+1, c)
	if w.img = next; w.notify != nil {
		w.notify(old, next, d)
	}
	if res.Refusal != nil {
		return res, res.Refusal
	}
	return res, nil
}

func (w *world) Barrier(context.Context) error   { return nil }
func (w *world) VotingBrokers() []model.BrokerID { return []model.BrokerID{1, 2, 3} }
func (w *world) Subscribe(fn func(old, now *metadata.Image, d metadata.Delta)) func() {
	w.notify = fn
	return func() { w.notify = nil }
}

func (w *world) MayOnCluster(_ context.Context, _ broker.Caller, op metadata.Operation) error {
	if !w.allowed[op] {
		return model.Errorf(model.Forbidden, "no")
	}
	return nil
}

func (w *world) Allowed(_ broker.Caller, op metadata.Operation, _ metadata.ResourceType, _ string) bool {
	return w.allowed[op]
}

func (w *world) States(_ context.Context, topics []*metadata.Topic) (out []*broker.TopicState) {
	for _, t := range topics {
		s := &broker.TopicState{Topic: t}
		for i, p := range t.Partitions {
			x := broker.PartitionState{ID: model.PartitionID(i), Partition: p, SizeBytes: w.size}
			x.LogEnd = 100
			for _, id := range p.Replicas {
				if end, ok := w.ends[id]; ok {
					x.Followers = append(x.Followers, replication.FollowerState{ID: id, LogEnd: end})
				}
			}
			s.Partitions = append(s.Partitions, x)
		}
		out = append(out, s)
	}
	return out
}

func (w *world) topic(name string, assign ...[]model.BrokerID) *metadata.Topic {
	id := model.TopicID{}
	copy(id[:], name)
	return w.do(metadata.CreateTopic{ID: id, Name: name, Assignments: assign, Now: metadata.MillisOf(w.now)}).Value.(*metadata.Topic)
}

// syncAll has all replicas of a partition be in sync.
func (w *world) syncAll(topic string) {
	t := w.img.Topic(topic)
	p := t.Partitions[0]
	c := metadata.PartitionChange{Topic: t.ID, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
	for _, id := range p.Replicas {
		c.ISR = append(c.ISR, metadata.InSync{ID: id, Epoch: w.epochs[id]})
	}
	w.do(metadata.AlterPartitions{Broker: p.Leader, Epoch: w.epochs[p.Leader], Changes: []metadata.PartitionChange{c}})
}

func ids(n ...model.BrokerID) []model.BrokerID { return n }

var ada = broker.Caller{Principal: &auth.Principal{Name: "ada"}}

func TestAMoveIsAnOperationUntilItEnds(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorld(t, 4)
	w.topic("t", ids(1, 2))
	ask := func(q Request) Outcome {
		out, err := w.Create(ctx, ada, q)
		require.NoError(t, err)
		require.Len(t, out, 1)
		return out[0]
	}
	to := []Asked{{"t", 0, ids(3, 4)}}
	planned := ask(Request{Moves: to, DryRun: true})
	require.NoError(t, planned.Err)
	require.Equal(t, ids(3, 4, 1, 2), planned.After.Replicas)
	require.Empty(t, w.Operations(ctx, ada), "it was only asked for")
	o := ask(Request{Moves: to, Throttle: new(int64(7))})
	require.NoError(t, o.Err)
	require.Equal(t, planned.After, o.After)
	require.Equal(t, int64(7), w.img.Cluster().Settings().MoveBytesPerSecond)
	w.ends[3], w.ends[4] = 50, -1
	w.now = w.now.Add(10 * time.Second)
	running := w.Operations(ctx, ada)
	require.Len(t, running, 1)
	v := running[0]
	require.Equal(t, operations.Running, v.State)
	require.Equal(t, "ada", v.Spec.Principal)
	require.Equal(t, []int64{500, 2000}, []int64{v.Done, v.Total}, "half of one of two copies")
	left, known := v.Remaining(w.now)
	require.True(t, known)
	require.Equal(t, 1500*time.Second/7, left, "by the throttle")
	w.syncAll("t")
	require.Empty(t, w.Operations(ctx, ada))
	ended, ok := w.account.Get(v.ID)
	require.True(t, ok)
	require.Equal(t, operations.Done, ended.State)
	require.Equal(t, w.now, ended.EndedAt)

	// A cancelled one, and one that is replaced, are told as cancelled.
	require.NoError(t, ask(Request{Moves: []Asked{{"t", 0, ids(1, 2)}}}).Err)
	id := w.Operations(ctx, ada)[0].ID
	w.now = w.now.Add(time.Second)
	require.NoError(t, ask(Request{Moves: []Asked{{"t", 0, ids(2, 1)}}}).Err)
	ended, _ = w.account.Get(id)
	require.Equal(t, operations.Cancelled, ended.State)
	id = w.Operations(ctx, ada)[0].ID
	found, err := w.CancelOperation(ctx, ada, id)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, ids(3, 4), w.img.Topic("t").Partitions[0].Replicas)
	ended, _ = w.account.Get(id)
	require.Equal(t, operations.Cancelled, ended.State)
	found, err = w.CancelOperation(ctx, ada, id)
	require.NoError(t, err)
	require.False(t, found)
}

func TestEachPartitionOfARequestHasItsOutcome(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorld(t, 3)
	w.topic("t", ids(1))
	out, err := w.Create(ctx, ada, Request{Moves: []Asked{{"no", 0, ids(1)}, {"t", 0, ids(2)}, {"t", 5, ids(2)}, {"t", 1, nil}}})
	require.NoError(t, err)
	require.True(t, model.HasCode(out[0].Err, model.UnknownTopic))
	require.NoError(t, out[1].Err)
	require.True(t, model.HasCode(out[2].Err, model.UnknownPartition))
	require.True(t, model.HasCode(out[3].Err, model.UnknownPartition))
	for _, q := range []Request{{}, {Moves: []Asked{{"t", 0, ids(2)}, {"t", 0, ids(1)}}}, {Throttle: new(int64(-1))}, {Moves: make([]Asked, MostMoves+1)}} {
		_, err := w.Create(ctx, ada, q)
		require.True(t, model.HasCode(err, model.InvalidArgument), "%v", err)
	}
	require.True(t, model.HasCode(w.Cancel(ctx, ada, "no", 0), model.UnknownTopic))
	require.True(t, model.HasCode(w.Cancel(ctx, ada, "t", 9), model.UnknownPartition))
	require.NoError(t, w.Cancel(ctx, ada, "t", 0))
	require.True(t, model.HasCode(w.Cancel(ctx, ada, "t", 0), model.NotFound))
}

func TestADrainIsAskedForShownAndTakenBack(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorld(t, 3)
	w.topic("t", ids(1, 2))
	wide := w.topic("wide", ids(1, 2, 3))
	_, _, err := w.Drain(ctx, ada, Change{ID: 1})
	require.True(t, model.HasCode(err, model.Conflict), "%v", err)
	require.Contains(t, model.AsError(err).Detail, "wide")
	w.do(metadata.DeleteTopic{Name: "wide", ID: wide.ID})
	_, _, err = w.Drain(ctx, ada, Change{ID: 9})
	require.True(t, model.HasCode(err, model.UnknownBroker))
	_, _, err = w.Drain(ctx, ada, Change{ID: 1, IfMatch: "z"})
	require.True(t, model.HasCode(err, model.ETagMismatch))
	b, plan, err := w.Drain(ctx, ada, Change{ID: 1, DryRun: true})
	require.NoError(t, err)
	require.Equal(t, metadata.BrokerActive, b.State)
	require.Equal(t, ids(3, 2), plan.Moves[0].To)
	b, _, err = w.Drain(ctx, ada, Change{ID: 1})
	require.NoError(t, err)
	require.Equal(t, metadata.BrokerDraining, b.State)
	ops := w.Operations(ctx, ada)
	require.Len(t, ops, 1)
	require.Equal(t, []int64{0, 1000}, []int64{ops[0].Done, ops[0].Total})
	w.do(metadata.AlterReassignments{Moves: plan.Reassignments(), Now: metadata.MillisOf(w.now)}) // the controller
	_, back, err := w.Undrain(ctx, ada, Change{ID: 1, DryRun: true})
	require.NoError(t, err)
	require.Len(t, back, 1)
	found, err := w.CancelOperation(ctx, ada, ops[0].ID)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, ids(1, 2), w.img.Topic("t").Partitions[0].Replicas)
	require.Nil(t, w.img.Broker(1).Drain)
	v, _ := w.account.Get(ops[0].ID)
	require.Equal(t, operations.Cancelled, v.State)

	w.now = w.now.Add(time.Second)
	_, plan, err = w.Drain(ctx, ada, Change{ID: 1})
	require.NoError(t, err)
	id := w.Operations(ctx, ada)[0].ID
	w.do(metadata.AlterReassignments{Moves: plan.Reassignments()})
	w.syncAll("t")
	v, _ = w.account.Get(id)
	require.Equal(t, operations.Done, v.State)
	require.Empty(t, w.Operations(ctx, ada))
	reasons, err := w.CanStop(ctx, ada, 1)
	require.NoError(t, err)
	require.Empty(t, reasons)
	require.True(t, model.HasCode(w.Remove(ctx, ada, Change{ID: 1}), model.Conflict), "it is online")
	w.do(metadata.FenceBroker{ID: 1, Epoch: w.epochs[1]})
	require.NoError(t, w.Remove(ctx, ada, Change{ID: 1}))
	require.True(t, model.HasCode(w.Remove(ctx, ada, Change{ID: 1}), model.UnknownBroker))
	_, err = w.CanStop(ctx, ada, 1)
	require.True(t, model.HasCode(err, model.UnknownBroker))
}

func TestARebalanceIsShownAndDone(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorld(t, 2)
	w.topic("t", ids(1), ids(1))
	plan, _, err := w.Rebalance(ctx, ada, nil, true)
	require.NoError(t, err)
	require.Len(t, plan.Moves, 1)
	require.Empty(t, w.moving())
	again, out, err := w.Rebalance(ctx, ada, new(int64(5)), false)
	require.NoError(t, err)
	require.Equal(t, plan, again)
	require.NoError(t, out[0].Err)
	require.Len(t, w.moving(), 1)
	require.Equal(t, "ada", w.moving()[0].Of().Move.By)
}

func TestElectionsByHand(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorld(t, 2)
	w.topic("t", ids(1, 2))
	out, err := w.Elect(ctx, ada, Election{Type: metadata.ElectPreferred})
	require.NoError(t, err)
	require.Empty(t, out, "nothing to be done")
	w.do(metadata.FenceBroker{ID: 1, Epoch: w.epochs[1]})
	w.do(metadata.UnfenceBroker{ID: 1, Epoch: w.epochs[1]})
	w.syncAll("t")
	require.Equal(t, model.BrokerID(2), w.img.Topic("t").Partitions[0].Leader)
	out, err = w.Elect(ctx, ada, Election{Type: metadata.ElectPreferred})
	require.NoError(t, err)
	require.Equal(t, model.BrokerID(1), out[0].After.Leader)
	out, err = w.Elect(ctx, ada, Election{Type: metadata.ElectUnclean, Partitions: []Asked{{Topic: "t"}, {Topic: "no"}}})
	require.NoError(t, err)
	require.True(t, model.HasCode(out[0].Err, model.Conflict), "it has a leader")
	require.True(t, model.HasCode(out[1].Err, model.UnknownTopic))
	for _, e := range []Election{{Type: "x"}, {Type: metadata.ElectUnclean}, {Type: metadata.ElectPreferred, Partitions: []Asked{}}} {
		_, err := w.Elect(ctx, ada, e)
		require.True(t, model.HasCode(err, model.InvalidArgument), "%v", err)
	}
}

func TestWhoMayNotIsRefusedAndSeesOnlyItsOwn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorld(t, 3)
	w.topic("t", ids(1))
	_, err := w.Create(ctx, ada, Request{Moves: []Asked{{"t", 0, ids(2)}}})
	require.NoError(t, err)
	clear(w.allowed)
	require.Len(t, w.Operations(ctx, ada), 1)
	require.Empty(t, w.Operations(ctx, broker.Caller{Principal: &auth.Principal{Name: "bob"}}))
	_, created := w.Create(ctx, ada, Request{Moves: []Asked{{"t", 0, ids(3)}}})
	_, _, balanced := w.Rebalance(ctx, ada, nil, false)
	_, _, drained := w.Drain(ctx, ada, Change{ID: 1})
	_, _, undrained := w.Undrain(ctx, ada, Change{ID: 1})
	_, stopped := w.CanStop(ctx, ada, 1)
	_, listed := w.List(ctx, ada)
	_, elected := w.Elect(ctx, ada, Election{Type: metadata.ElectPreferred})
	for i, err := range []error{created, balanced, drained, undrained, stopped, listed, elected, w.Cancel(ctx, ada, "t", 0), w.Remove(ctx, ada, Change{ID: 1})} {
		require.True(t, model.HasCode(err, model.Forbidden), "%d: %v", i, err)
	}
}

func TestADrainIsCountedInBytesAndAThrottleInTime(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorld(t, 3)
	w.topic("a", ids(1))
	w.topic("b", ids(1))
	w.topic("elsewhere", ids(2))
	_, plan, err := w.Drain(ctx, ada, Change{ID: 1})
	require.NoError(t, err)
	require.EqualValues(t, 2000, w.img.Broker(1).Drain.Bytes)
	w.do(metadata.AlterReassignments{Moves: plan.Reassignments(), Throttle: new(int64(100)), Now: metadata.MillisOf(w.now)}) // the controller
	to := w.img.Topic("a").Partitions[0].Move.To[0]
	w.ends[to] = 25
	find := func(kind operations.Kind) (out []operations.View) {
		for _, v := range w.Operations(ctx, ada) {
			if v.Spec.Kind == kind {
				out = append(out, v)
			}
		}
		return out
	}
	left := func(v operations.View) time.Duration {
		d, known := v.Remaining(w.now)
		require.True(t, known)
		return d
	}
	moving := find(MovePartition)
	require.Len(t, moving, 2)
	all := int64(0) // is to leave the node that both are on
	for _, v := range moving {
		all += v.Total - v.Done
	}
	drain := find(DrainBroker)[0]
	require.Equal(t, "bytes", drain.Spec.Unit)
	require.Equal(t, []int64{2000 - all, 2000}, []int64{drain.Done, drain.Total})
	require.Positive(t, drain.Done)
	for _, v := range append(moving, drain) {
		require.Equal(t, time.Duration(all)*time.Second/100, left(v), v.ID)
	}
	w.syncAll("a")
	drain = find(DrainBroker)[0]
	require.GreaterOrEqual(t, drain.Done, int64(1000))
	w.syncAll("b")
	require.Empty(t, find(DrainBroker))
	ended, ok := w.account.Get(drain.ID)
	require.True(t, ok)
	require.Equal(t, operations.Done, ended.State)
	require.Equal(t, []any{"bytes", int64(2000), int64(2000)}, []any{ended.Spec.Unit, ended.Done, ended.Total})
}

func TestWhatALeaderDoesNotTellCountsAsTheMean(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	a, b := w.topic("a", ids(1), ids(1)), w.topic("b", ids(1))
	known := states{}
	for _, s := range w.States(context.Background(), []*metadata.Topic{a, b}) {
		known[s.Topic.ID] = s
	}
	known[a.ID].Partitions[0].SizeBytes = 3000
	known[a.ID].Partitions[1].Err = model.Errorf(model.LeaderUnavailable, "it does not answer")
	all, left := known.holds([]*metadata.Topic{a, b}, 1)
	require.Equal(t, []int64{6000, 6000}, []int64{all, left})
	all, left = states{}.holds([]*metadata.Topic{a, b}, 1)
	require.Equal(t, []int64{0, 0}, []int64{all, left}, "nobody has told")
}
