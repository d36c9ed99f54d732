package follow_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidewire/broker/follow"
	"tidewire/broker/partition"
	"tidewire/broker/replication"
	"tidewire/broker/throttle"
	"tidewire/internal/fsx"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
	"tidewire/storage/log"
	"tidewire/storage/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const parts = 3

var id = model.TopicID{7}

// broker is a node with its logs and partitions.
type broker struct {
	t      *testing.T
	id     model.BrokerID
	group  *lifecycle.Group
	store  *log.Store
	logs   []*log.Log
	parts  []*partition.Partition
	client *follow.Client
	server *follow.Server
	all    map[model.BrokerID]*broker
	pace   *throttle.Bucket

	mu    sync.Mutex
	conns []net.Conn // guarded by mu: that others have opened
	deaf  bool       // guarded by mu: nobody gets through
}

var errDeaf = errors.New("the node is cut off")

func (b *broker) dial(_ context.Context, to model.BrokerID) (net.Conn, error) {
	other := b.all[to]
	other.mu.Lock()
	defer other.mu.Unlock()
	if other.deaf {
		return nil, errDeaf
	}
	here, there := net.Pipe()
	other.conns = append(other.conns, there)
	if !other.group.Go("serve", func(ctx context.Context) { other.server.Serve(ctx, there, b.id) }) {
		return nil, net.ErrClosed
	}
	return here, nil
}

// cutOff closes the connections to a node, and refuses others until it is undone.
func (b *broker) cutOff(deaf bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deaf = deaf
	for _, c := range b.conns {
		_ = c.Close() // a second time maybe
	}
	b.conns = nil
}

func newBrokers(t *testing.T, n int) []*broker {
	all := map[model.BrokerID]*broker{}
	var out []*broker
	for i := range n {
		b := &broker{t: t, id: model.BrokerID(i + 1), group: lifecycle.New(context.Background()), all: all, pace: new(throttle.Bucket)}
		var err error
		b.store, err = log.OpenStore(log.StoreOptions{FS: fsx.NewMem(), Dir: filepath.FromSlash("/data"), Group: b.group, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		for p := range parts {
			l, err := b.store.Open(id, "t", model.PartitionID(p), log.Config{})
			require.NoError(t, err)
			b.logs = append(b.logs, l)
			b.parts = append(b.parts, partition.New(l, partition.Identity{Topic: "t", TopicID: id, Partition: model.PartitionID(p)},
				partition.Settings{MaxMessageBytes: 1 << 20, MinInsyncReplicas: 2}, func() int64 { return time.Now().UnixMilli() }, func() {}))
		}
		b.client = follow.NewClient(follow.ClientConfig{Self: replication.Member{ID: b.id, Epoch: 10}, Dial: b.dial, Throttle: b.pace, Logger: slog.New(slog.DiscardHandler), Group: b.group})
		b.server = follow.NewServer(follow.ServerConfig{Throttle: b.pace, Logger: slog.New(slog.DiscardHandler), Group: b.group, Find: func(k follow.Key) *partition.Partition {
			if k.Topic != id || int(k.Partition) >= parts {
				return nil
			}
			return b.parts[k.Partition]
		}})
		all[b.id] = b
		out = append(out, b)
	}
	t.Cleanup(func() {
		for _, b := range out {
			for _, p := range b.parts {
				p.Close(model.Errorf(model.LeaderUnavailable, "stopping"))
			}
			require.NoError(t, b.store.Close())
		}
		for _, b := range out {
			require.NoError(t, b.group.Stop(20*time.Second))
		}
	})
	return out
}

// role gives every node its role in a partition.
func role(all []*broker, p int, leader model.BrokerID, epoch model.LeaderEpoch, isr ...model.BrokerID) {
	var replicas []model.BrokerID
	for _, b := range all {
		replicas = append(replicas, b.id)
	}
	started := time.Now()
	for _, b := range all {
		b.parts[p].SetRole(partition.Role{
			Leadership: partition.Leadership{Leader: b.id == leader, Epoch: epoch, ISR: len(isr)}, Self: b.id,
			Clock: func() int64 { return time.Since(started).Milliseconds() },
			State: replication.State{LeaderEpoch: epoch, PartitionEpoch: int32(epoch), Replicas: replicas, ISR: isr},
		})
		if b.id == leader {
			b.client.Remove(follow.Key{Topic: id, Partition: model.PartitionID(p)})
			continue
		}
		b.client.Set(b.parts[p], leader, epoch)
	}
}

// produce submits one record and does not wait.
func produce(b *broker, p int, value string) (*partition.Slice, *partition.Completion) {
	s := &partition.Slice{Acks: partition.AcksAll, Plain: true, Records: []record.Record{{Timestamp: 5, Value: []byte(value)}}, Select: []int32{0}}
	c := partition.NewCompletion(1)
	b.parts[p].Submit(s, c)
	return s, c
}

func done(t *testing.T, s *partition.Slice, c *partition.Completion) error {
	t.Helper()
	select {
	case <-c.Done():
		return s.Err
	case <-time.After(20 * time.Second):
		t.Fatal("no answer")
		return nil
	}
}

func content(t *testing.T, l *log.Log) string {
	t.Helper()
	var out []byte
	for next := l.LogStart(); next < l.LogEnd(); {
		b, err := l.Read(nil, next, l.LogEnd(), 1<<20)
		require.NoError(t, err)
		for rest := b; len(rest) > 0; {
			h, err := record.ParseHeader(rest)
			require.NoError(t, err)
			next, rest = h.NextOffset(), rest[h.Size():]
		}
		out = append(out, b...)
	}
	return string(out)
}

func equal(t *testing.T, all []*broker, p int) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, b := range all[1:] {
			if b.logs[p].LogEnd() != all[0].logs[p].LogEnd() || b.logs[p].HighWatermark() != all[0].logs[p].HighWatermark() {
				return false
			}
		}
		return true
	}, 20*time.Second, time.Millisecond)
	for _, b := range all[1:] {
		require.Equal(t, content(t, all[0].logs[p]), content(t, b.logs[p]), "byte by byte")
	}
}

func TestFollowersHaveWhatIsAcknowledged(t *testing.T) {
	t.Parallel()
	all := newBrokers(t, 3)
	for p := range parts { // each leads one
		role(all, p, model.BrokerID(p+1), 1, 1, 2, 3)
	}
	for i := range 50 {
		for p := range parts {
			s, c := produce(all[p], p, fmt.Sprint("value ", i))
			require.NoError(t, done(t, s, c))
			for _, b := range all {
				require.Greater(t, b.logs[p].StableEnd(), s.Base, "it is synced on all that are in sync")
			}
		}
	}
	for p := range parts {
		equal(t, all, p) // the high watermark too
	}
}

func TestAReplicaThatIsAwayHoldsWritesUpAndCatchesUp(t *testing.T) {
	t.Parallel()
	all := newBrokers(t, 3)
	role(all, 0, 1, 1, 1, 2, 3)
	s, c := produce(all[0], 0, "before")
	require.NoError(t, done(t, s, c))
	all[0].cutOff(true)
	s, c = produce(all[0], 0, "meanwhile")
	select {
	case <-c.Done():
		t.Fatal("answered, and no follower has it")
	case <-time.After(50 * time.Millisecond):
	}
	all[0].cutOff(false)
	require.NoError(t, done(t, s, c))
	equal(t, all, 0)
}

func TestAnOldLeaderIsCutToTheNewOnesLog(t *testing.T) {
	t.Parallel()
	all := newBrokers(t, 3)
	role(all, 0, 1, 1, 1, 2, 3)
	s, c := produce(all[0], 0, "common")
	require.NoError(t, done(t, s, c))
	all[0].cutOff(true)
	lost, waits := produce(all[0], 0, "nobody followed")
	role(all, 0, 2, 2, 2, 3)
	err := done(t, lost, waits)
	require.Equal(t, model.Unknown, model.AsError(err).EffectiveOutcome(), "it was appended, and may have been fetched")
	refused, c := produce(all[0], 0, "to the old leader")
	require.Equal(t, model.LeaderUnavailable, model.AsError(done(t, refused, c)).Code)
	s, c = produce(all[1], 0, "of the new leader")
	require.NoError(t, done(t, s, c))
	equal(t, all, 0)
	require.NotContains(t, content(t, all[0].logs[0]), "nobody followed")
	var p replication.Proposal
	require.Eventually(t, func() bool {
		wanted, ok := all[1].parts[0].Proposal(replication.Rule{LagMs: 10_000})
		p = wanted
		return ok
	}, 20*time.Second, time.Millisecond, "the old leader has caught up")
	require.Equal(t, []replication.Member{{ID: 1, Epoch: 10}, {ID: 2}, {ID: 3, Epoch: 10}}, p.ISR)
}

func TestBelowMinInsyncReplicasNothingIsAcknowledged(t *testing.T) {
	t.Parallel()
	all := newBrokers(t, 3)
	role(all, 0, 1, 1, 1)
	s, c := produce(all[0], 0, "alone")
	err := model.AsError(done(t, s, c))
	require.Equal(t, model.NotEnoughReplicas, err.Code)
	require.Equal(t, model.NotApplied, err.EffectiveOutcome())
	require.Zero(t, all[0].logs[0].LogEnd())
	require.Eventually(t, func() bool { _, ok := all[0].parts[0].Proposal(replication.Rule{LagMs: 10_000}); return ok }, 20*time.Second, time.Millisecond, "the others may join")
}

func TestANewFollowerBeginsWhereTheLeadersLogDoes(t *testing.T) {
	t.Parallel()
	all := newBrokers(t, 3)
	role(all[:2], 0, 1, 1, 1, 2)
	for i := range 5 {
		s, c := produce(all[0], 0, fmt.Sprint("value ", i))
		require.NoError(t, done(t, s, c))
	}
	require.NoError(t, all[0].logs[0].AdvanceLogStart(3))
	role(all, 0, 1, 2, 1, 2)
	require.Eventually(t, func() bool { return all[2].logs[0].LogEnd() == 5 && all[2].logs[0].LogStart() == 3 }, 20*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return all[1].logs[0].LogStart() == 3 }, 20*time.Second, time.Millisecond, "deleted records are deleted there too")
}

// Deleted records are gone on every replica that may lead next when that is answered; one that is
// in sync and does not follow has the outcome unknown, and asking again goes on from there.
func TestADeletionWaitsForWhoIsInSync(t *testing.T) {
	t.Parallel()
	all := newBrokers(t, 3)
	role(all, 0, 1, 1, 1, 2, 3)
	for i := range 5 {
		s, c := produce(all[0], 0, fmt.Sprint("value ", i))
		require.NoError(t, done(t, s, c))
	}
	remove := func(ctx context.Context, below model.Offset) error {
		moves := []log.StartMove{{Log: all[0].logs[0], To: below}}
		partition.DeleteRecords(ctx, all[0].store, all[0].parts[:1], moves)
		return moves[0].Err
	}
	require.NoError(t, remove(t.Context(), 3))
	for _, b := range all {
		require.EqualValues(t, 3, b.logs[0].LogStart(), "node %d", b.id)
	}
	all[0].cutOff(true)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := model.AsError(remove(short, 4))
	require.Equal(t, model.Timeout, err.Code)
	require.Equal(t, model.Unknown, err.EffectiveOutcome())
	require.EqualValues(t, 4, all[0].logs[0].LogStart())
	require.EqualValues(t, 3, all[1].logs[0].LogStart())

	role(all, 0, 1, 2, 1) // who is not in sync is not waited for
	require.NoError(t, remove(t.Context(), 4))
	all[0].cutOff(false)
	require.NoError(t, remove(t.Context(), 5))
	var p replication.Proposal
	require.Eventually(t, func() bool {
		var ok bool
		p, ok = all[0].parts[0].Proposal(replication.Rule{LagMs: 10_000})
		return ok
	}, 20*time.Second, time.Millisecond, "they catch up")
	for _, m := range p.ISR {
		require.EqualValues(t, 5, all[m.ID-1].logs[0].LogStart(), "who joins has nothing that was deleted")
	}
	require.Eventually(t, func() bool { return all[1].logs[0].LogStart() == 5 && all[2].logs[0].LogStart() == 5 }, 20*time.Second, time.Millisecond)

	role(all, 0, 1, 3, 1, 2)
	s, c := produce(all[0], 0, "another")
	require.NoError(t, done(t, s, c))
	waits := make(chan error, 1)
	all[0].cutOff(true)
	go func() { waits <- remove(t.Context(), 6) }()
	require.Eventually(t, func() bool { return all[0].logs[0].LogStart() == 6 }, 20*time.Second, time.Millisecond)
	role(all, 0, 2, 4, 2, 3)
	err = model.AsError(<-waits)
	require.Equal(t, model.Unknown, err.EffectiveOutcome(), "another leads: %v", err)
}
