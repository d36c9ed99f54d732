package follow_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/broker/follow"
	"tidewire/broker/partition"
	"tidewire/broker/replication"
	"tidewire/internal/model"
)

// adding has node 1 lead a partition of three replicas, to which a move adds the last.
func adding(all []*broker, p int, isr ...model.BrokerID) {
	for _, b := range all {
		state := replication.State{LeaderEpoch: 1, PartitionEpoch: int32(len(isr)), Replicas: []model.BrokerID{1, 2, 3}, ISR: isr, Adding: []model.BrokerID{3}}
		b.parts[p].SetRole(partition.Role{
			Leadership: partition.Leadership{Leader: b.id == 1, Epoch: 1, ISR: len(isr)}, Self: b.id,
			Clock: func() int64 { return time.Now().UnixMilli() }, State: state,
		})
		if b.id != 1 {
			b.client.Set(b.parts[p], 1, 1)
			b.client.Slow(follow.Key{Topic: id, Partition: model.PartitionID(p)}, state.CatchingUp(b.id))
		}
	}
}

// What a move adds catches up at the rate that is set, on the leader's side and on the
// follower's; a replica that is in sync is not slowed, and another rate holds at once.
func TestAReplicaThatAMoveAddsIsPacedAndOthersAreNot(t *testing.T) {
	t.Parallel()
	const rate = 64 << 10
	for name, paced := range map[string]model.BrokerID{"by its leader": 1, "by itself": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				all := newBrokers(t, 3)
				pace := all[paced-1].pace
				pace.Set(rate, time.Now())
				for p := range parts - 1 {
					role(all[:2], p, 1, 1, 1, 2)
				}
				role(all, parts-1, 1, 1, 1, 2, 3)
				large := strings.Repeat("x", 32<<10)
				for range 160 { // 5 MiB
					s, c := produce(all[0], 0, large)
					require.NoError(t, done(t, s, c))
				}
				adding(all, 0, 1, 2)
				for second := range 60 {
					time.Sleep(time.Second)
					began := time.Now()
					s, c := produce(all[0], parts-1, "not slowed")
					require.NoError(t, done(t, s, c))
					require.Less(t, time.Since(began), 500*time.Millisecond, "second %d", second)
				}
				require.InEpsilon(t, 60*rate, all[2].logs[0].Size(), 0.2)
				pace.Set(10*rate, time.Now())
				time.Sleep(4 * time.Second)
				require.Equal(t, all[0].logs[0].LogEnd(), all[2].logs[0].LogEnd())
				// In sync it is like any other.
				pace.Set(1, time.Now())
				adding(all, 0, 1, 2, 3)
				for range 20 {
					s, c := produce(all[0], 0, large)
					require.NoError(t, done(t, s, c))
				}
			})
		})
	}
}

// A follower may ask before its leader knows that the partition gets replicas.
func TestAFollowerMayBeThereBeforeItsLeaderKnows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := newBrokers(t, 2)
		all[0].parts[0].SetLeadership(partition.Leadership{Leader: true, Epoch: 1, ISR: 1})
		all[1].parts[0].SetRole(partition.Role{
			Leadership: partition.Leadership{Epoch: 1, ISR: 1}, Self: 2, Clock: func() int64 { return time.Now().UnixMilli() },
			State: replication.State{LeaderEpoch: 1, PartitionEpoch: 1, Replicas: []model.BrokerID{1, 2}, ISR: []model.BrokerID{1}, Adding: []model.BrokerID{2}},
		})
		all[1].client.Set(all[1].parts[0], 1, 1)
		time.Sleep(3 * time.Second) // it was refused, and asks again
		role(all, 0, 1, 1, 1, 2)
		time.Sleep(3 * time.Second)
		s, c := produce(all[0], 0, "told")
		began := time.Now()
		require.NoError(t, done(t, s, c))
		require.Less(t, time.Since(began), 400*time.Millisecond, "it is told of what comes, and does not wait for its next sign of life")
	})
}
