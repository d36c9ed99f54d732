package replicas

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidewire/broker/follow"
	"tidewire/broker/partition"
	"tidewire/broker/replication"
	"tidewire/cluster/metadata"
	"tidewire/internal/fsx"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
	"tidewire/storage/log"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noPeers reaches nobody.
type noPeers struct{}

func (noPeers) DialFollow(context.Context, model.BrokerID) (net.Conn, error) {
	return nil, net.ErrClosed
}
func (noPeers) AcceptFollow() (net.Conn, model.BrokerID, error) { return nil, 0, net.ErrClosed }
func (noPeers) BrokerEpoch() int64                              { return 4 }

// leading is a node that leads one partition with replicas on 1, 2 and 3.
type leading struct {
	*Replicas
	part   *partition.Partition
	answer func(metadata.AlterPartitions) (metadata.Result, error)
	asked  []metadata.AlterPartitions
	image  *metadata.Image
}

// brokers makes these the others that the metadata knows.
func (x *leading) brokers(t *testing.T, others ...*metadata.Broker) {
	var err error
	x.image, err = metadata.NewImage(metadata.Contents{Cluster: &metadata.Cluster{}, Brokers: others})
	require.NoError(t, err)
}

func newLeading(t *testing.T) *leading {
	x := &leading{}
	x.brokers(t, &metadata.Broker{ID: 2, Epoch: 9}, &metadata.Broker{ID: 3, Epoch: 9})
	g := lifecycle.New(context.Background())
	store, err := log.OpenStore(log.StoreOptions{FS: fsx.NewMem(), Dir: filepath.FromSlash("/data"), Group: g, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	l, err := store.Open(model.TopicID{1}, "t", 0, log.Config{})
	require.NoError(t, err)
	x.part = partition.New(l, partition.Identity{Topic: "t", TopicID: model.TopicID{1}}, partition.Settings{MaxMessageBytes: 1 << 20, MinInsyncReplicas: 1},
		func() int64 { return 1 }, func() {})
	now := int64(0)
	x.Replicas = New(Config{
		Self: 1, Peers: noPeers{}, Find: func(follow.Key) *partition.Partition { return x.part }, Each: func(yield func(*partition.Partition) bool) { yield(x.part) },
		Propose: func(_ context.Context, c metadata.Command) (metadata.Result, error) {
			x.asked = append(x.asked, c.(metadata.AlterPartitions))
			return x.answer(c.(metadata.AlterPartitions))
		},
		Image: func() *metadata.Image { return x.image },
		Clock: func() int64 { now += 1000; return now }, Logger: slog.New(slog.DiscardHandler), Group: g,
	})
	x.take(0, 1)
	t.Cleanup(func() {
		require.NoError(t, store.Close())
		require.NoError(t, g.Stop(10*time.Second))
	})
	return x
}

func (x *leading) take(partitionEpoch int32, isr ...model.BrokerID) {
	x.Take(1, x.part, &metadata.Partition{Leader: 1, LeaderEpoch: 3, PartitionEpoch: partitionEpoch, Replicas: []model.BrokerID{1, 2, 3}, ISR: isr})
}

// caughtUp has a follower fetch at the end of the empty log.
func (x *leading) caughtUp(t *testing.T, id model.BrokerID, epoch int64) {
	_, err := x.part.Fetched(replication.Member{ID: id, Epoch: epoch}, replication.Position{Epoch: 3, LastEpoch: model.NoEpoch})
	require.NoError(t, err)
}

func TestWhoHasCaughtUpIsProposed(t *testing.T) {
	t.Parallel()
	x := newLeading(t)
	require.Zero(t, x.propose(t.Context()), "nobody has")
	x.caughtUp(t, 3, 9)
	require.Len(t, x.kick, 1, "it need not wait for the next look")
	x.answer = func(c metadata.AlterPartitions) (metadata.Result, error) {
		return metadata.Result{Value: []metadata.PartitionAltered{{Partition: metadata.Partition{ISR: []model.BrokerID{1, 3}}}}}, nil
	}
	require.Equal(t, 1, x.propose(t.Context()))
	require.Equal(t, []metadata.AlterPartitions{{Broker: 1, Epoch: 4, Changes: []metadata.PartitionChange{
		{Topic: model.TopicID{1}, LeaderEpoch: 3, ISR: []metadata.InSync{{ID: 1}, {ID: 3, Epoch: 9}}},
	}}}, x.asked)
	require.Zero(t, x.propose(t.Context()), "until the metadata says so it counts, and is not asked for again")
	x.take(1, 1, 3)
	require.Zero(t, x.propose(t.Context()))
	x.caughtUp(t, 2, 9)
	require.Equal(t, 1, x.propose(t.Context()))
	require.Equal(t, int32(1), x.asked[1].Changes[0].PartitionEpoch)
}

// A broker that was fenced, or has begun another life, after it had caught up is not proposed:
// the others would be refused with it, again and again.
func TestWhoCannotJoinKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	x := newLeading(t)
	x.answer = func(metadata.AlterPartitions) (metadata.Result, error) {
		return metadata.Result{Value: []metadata.PartitionAltered{{}}}, nil
	}
	x.caughtUp(t, 2, 9)
	for _, other := range []*metadata.Broker{{ID: 2, Epoch: 9, Fenced: true}, {ID: 2, Epoch: 11}} {
		x.brokers(t, other, &metadata.Broker{ID: 3, Epoch: 9})
		require.Zero(t, x.propose(t.Context()), "%+v", other)
	}
	x.caughtUp(t, 3, 9)
	require.Equal(t, 1, x.propose(t.Context()))
	require.Equal(t, []metadata.InSync{{ID: 1}, {ID: 3, Epoch: 9}}, x.asked[0].Changes[0].ISR)
}

func TestWhatWasNotDecidedIsProposedAgain(t *testing.T) {
	t.Parallel()
	isr := []metadata.InSync{{ID: 1}, {ID: 2, Epoch: 9}}
	type answering = func(metadata.AlterPartitions) (metadata.Result, error)
	for name, c := range map[string]struct {
		answer answering
		again  []metadata.InSync
	}{
		"never entered the log": {func(metadata.AlterPartitions) (metadata.Result, error) {
			return metadata.Result{}, model.Errorf(model.QuorumUnavailable, "no leader")
		}, isr},
		"may have": {func(metadata.AlterPartitions) (metadata.Result, error) {
			return metadata.Result{}, model.Errorf(model.CommitUnknown, "lost")
		}, isr[:1]},
		"was refused": {func(metadata.AlterPartitions) (metadata.Result, error) {
			return metadata.Result{Value: []metadata.PartitionAltered{{Refusal: model.Errorf(model.Conflict, "fenced")}}}, nil
		}, isr},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newLeading(t)
			x.answer = c.answer
			x.caughtUp(t, 2, 9)
			require.Equal(t, 1, x.propose(t.Context()))
			require.Equal(t, 1, x.propose(t.Context()))
			require.Equal(t, isr, x.asked[0].Changes[0].ISR)
			require.Equal(t, c.again, x.asked[1].Changes[0].ISR)
		})
	}
}
