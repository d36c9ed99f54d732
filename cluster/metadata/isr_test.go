package metadata

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
)

func isrChange(p Partition, members ...InSync) PartitionChange {
	return PartitionChange{Topic: topicID(7), LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, ISR: members}
}

// alter proposes one change as broker 1 in its epoch 2.
func alter(t *testing.T, img *Image, c PartitionChange) (*Image, PartitionAltered) {
	t.Helper()
	next, _, res := Apply(img, img.Index()+1, AlterPartitions{Broker: 1, Epoch: 2, Changes: []PartitionChange{c}})
	require.Nil(t, res.Refusal)
	return next, res.Value.([]PartitionAltered)[0]
}

func TestALeaderShrinksAndGrowsTheISR(t *testing.T) {
	t.Parallel()
	img := threeLive(t, "2", 1, 2, 3)
	before := img.Topic("t").Partitions[0]
	img, a := alter(t, img, isrChange(before, InSync{3, 5}, InSync{1, 2}))
	require.Nil(t, a.Refusal)
	require.Equal(t, brokerIDs(1, 3), a.Partition.ISR, "in the order of the replicas")
	require.Empty(t, a.Partition.ELR)
	require.Equal(t, before.LeaderEpoch, a.Partition.LeaderEpoch)
	require.Equal(t, before.PartitionEpoch+1, a.Partition.PartitionEpoch)
	img, a = alter(t, img, isrChange(a.Partition, InSync{1, 2}))
	require.Equal(t, brokerIDs(3), a.Partition.ELR, "below min.insync.replicas who leaves has everything")
	img, a = alter(t, img, isrChange(a.Partition, InSync{1, 2}, InSync{2, 4}))
	require.Equal(t, brokerIDs(1, 2), a.Partition.ISR)
	require.Empty(t, a.Partition.ELR, "from here on the high watermark moves without 3")
	require.Equal(t, a.Partition, img.Topic("t").Partitions[0])
}

func TestAChangeOfTheISRIsFenced(t *testing.T) {
	t.Parallel()
	img := threeLive(t, "1", 1, 2, 3)
	p := img.Topic("t").Partitions[0]
	other := p
	other.LeaderEpoch++
	stale := p
	stale.PartitionEpoch--
	unknown := isrChange(p, InSync{1, 2})
	unknown.Partition = 1
	fenced := fold(t, img, img.Index()+1, []Command{FenceBroker{ID: 3, Epoch: 5}}, 1)
	again := fold(t, img, img.Index()+1, []Command{RegisterBroker{ID: 3, StorageID: "storage-d", Incarnation: 32, Now: t0}, UnfenceBroker{ID: 3, Epoch: int64(img.Index() + 1)}}, 1)
	for _, c := range []struct {
		name   string
		img    *Image
		change PartitionChange
		want   model.Code
	}{
		{"another leader epoch", img, isrChange(other, InSync{1, 2}), model.Fenced},
		{"another partition epoch", img, isrChange(stale, InSync{1, 2}), model.Conflict},
		{"no such partition", img, unknown, model.UnknownPartition},
		{"a member that is fenced", fenced, isrChange(fenced.Topic("t").Partitions[0], InSync{1, 2}, InSync{3, 5}), model.Conflict},
		{"a member that has registered again", again, isrChange(again.Topic("t").Partitions[0], InSync{1, 2}, InSync{3, 5}), model.Conflict},
		{"a member twice", img, isrChange(p, InSync{1, 2}, InSync{1, 2}), model.InvalidArgument},
		{"without anybody", img, isrChange(p), model.InvalidArgument},
		{"a broker without a replica", img, isrChange(p, InSync{1, 2}, InSync{9, 9}), model.InvalidArgument},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			next, a := alter(t, c.img, c.change)
			require.NotNil(t, a.Refusal)
			require.Equal(t, c.want, a.Refusal.Code)
			require.Equal(t, c.img.Topic("t").Partitions, next.Topic("t").Partitions)
		})
	}
	_, _, res := Apply(img, 90, AlterPartitions{Broker: 1, Epoch: 3, Changes: []PartitionChange{isrChange(p, InSync{1, 2})}})
	require.Equal(t, model.Fenced, res.Refusal.Code, "an earlier life of the leader")
	gone := fold(t, img, img.Index()+1, []Command{FenceBroker{ID: 1, Epoch: 2}}, 1)
	_, _, res = Apply(gone, 90, AlterPartitions{Broker: 1, Epoch: 2, Changes: []PartitionChange{isrChange(p, InSync{1, 2})}})
	require.Equal(t, model.Fenced, res.Refusal.Code)
	_, _, res = Apply(img, 90, AlterPartitions{Broker: 1, Epoch: 2})
	require.Equal(t, model.InvalidArgument, res.Refusal.Code)
}

func TestALeaderResignsByLeavingTheISR(t *testing.T) {
	t.Parallel()
	img := threeLive(t, "2", 1, 2, 3)
	before := img.Topic("t").Partitions[0]
	_, a := alter(t, img, isrChange(before, InSync{2, 4}, InSync{3, 5}))
	require.Nil(t, a.Refusal)
	require.Equal(t, Partition{
		Leader: 2, LeaderEpoch: before.LeaderEpoch + 1, PartitionEpoch: before.PartitionEpoch + 1,
		Replicas: brokerIDs(1, 2, 3), ISR: brokerIDs(2, 3), ELR: brokerIDs(),
	}, a.Partition)
}

func TestEligibleReplicasEndWithALowerMinISR(t *testing.T) {
	t.Parallel()
	img := threeLive(t, "2", 1, 2, 3)
	fences := []Command{FenceBroker{ID: 3, Epoch: 5}, FenceBroker{ID: 2, Epoch: 4}}
	require.Equal(t, brokerIDs(2), partitionAfter(t, img, fences...).ELR)
	lower := AlterTopicConfig{Name: "t", Set: map[string]string{"min.insync.replicas": "1"}}
	p := partitionAfter(t, img, append(fences, lower)...)
	require.Empty(t, p.ELR, "from here on one replica moves the high watermark")
	p = partitionAfter(t, img, append(fences, lower, FenceBroker{ID: 1, Epoch: 2}, UnfenceBroker{ID: 2, Epoch: 4})...)
	require.Equal(t, NoLeader, p.Leader)
	cluster := threeLive(t, "2", 1, 2, 3)
	cluster = fold(t, cluster, cluster.Index()+1, []Command{
		AlterClusterConfig{Set: map[string]string{"min.insync.replicas": "2"}},
		AlterTopicConfig{Name: "t", Unset: []string{"min.insync.replicas"}},
		FenceBroker{ID: 3, Epoch: 5}, FenceBroker{ID: 2, Epoch: 4},
	}, 1)
	require.Equal(t, brokerIDs(2), cluster.Topic("t").Partitions[0].ELR)
	next, d, _ := Apply(cluster, cluster.Index()+1, AlterClusterConfig{Set: map[string]string{"min.insync.replicas": "1"}})
	require.Empty(t, next.Topic("t").Partitions[0].ELR)
	require.Equal(t, Changed, d.Topics[topicID(7)])
}

func TestAReplicaThatIsNotInSyncLeadsOnlyWhereTheTopicAsksForIt(t *testing.T) {
	t.Parallel()
	img := threeLive(t, "1", 1, 2, 3)
	lost := []Command{FenceBroker{ID: 3, Epoch: 5}, FenceBroker{ID: 2, Epoch: 4}, FenceBroker{ID: 1, Epoch: 2}, UnfenceBroker{ID: 3, Epoch: 5}}
	require.Equal(t, NoLeader, partitionAfter(t, img, lost...).Leader)
	ask := AlterTopicConfig{Name: "t", Set: map[string]string{"unclean.leader.election.enable": "true"}}
	p := partitionAfter(t, img, append(lost, ask)...)
	require.Equal(t, model.BrokerID(3), p.Leader)
	require.Equal(t, brokerIDs(3), p.ISR)
	require.Empty(t, p.ELR)
	require.Equal(t, p.Leader, partitionAfter(t, img, append([]Command{ask}, lost...)...).Leader)
}

func TestWhatMayLoseWhatItAcknowledgedIsNeverEligible(t *testing.T) {
	t.Parallel()
	img := threeLive(t, "2", 1, 2, 3)
	cached := AlterTopicConfig{Name: "t", Set: map[string]string{"write.caching": "true"}}
	p := partitionAfter(t, img, cached, FenceBroker{ID: 3, Epoch: 5}, FenceBroker{ID: 2, Epoch: 4})
	require.Equal(t, brokerIDs(1), p.ISR)
	require.Empty(t, p.ELR)
}

func TestAFencedBrokerIsNotInSyncInNewPartitions(t *testing.T) {
	t.Parallel()
	img := threeLive(t, "1", 1, 2, 3)
	p := partitionAfter(t, img, FenceBroker{ID: 1, Epoch: 2}, DeleteTopic{Name: "t"},
		CreateTopic{ID: topicID(8), Name: "t", Assignments: [][]model.BrokerID{{1, 2, 3}}, Now: t0})
	require.Equal(t, Partition{Leader: 2, Replicas: brokerIDs(1, 2, 3), ISR: brokerIDs(2, 3), ELR: brokerIDs()}, p)
}

func TestReplicasAreSpreadOverNodesAndRacks(t *testing.T) {
	t.Parallel()
	racks := func(names ...string) (out []*Broker) {
		for i, r := range names {
			out = append(out, &Broker{ID: model.BrokerID(i + 1), Rack: r})
		}
		return out
	}
	for name, nodes := range map[string][]*Broker{
		"no racks": racks("", "", ""), "one each": racks("a", "b", "c"), "two racks": racks("a", "a", "b", "b"),
		"uneven": racks("a", "a", "a", "b", "c"), "some without": racks("", "a", "", "a", "b"), "one node": racks(""),
	} {
		rackOf, count := map[model.BrokerID]string{}, map[string]int{}
		for _, b := range nodes {
			rackOf[b.ID] = b.Rack
			count[b.Rack]++
		}
		for rf := 1; rf <= len(nodes); rf++ {
			for start := range uint32(7) {
				leads, holds := map[model.BrokerID]int{}, map[model.BrokerID]int{}
				n := 12 * len(nodes)
				for _, replicas := range Spread(nodes, SpreadOver{Partitions: n, Replicas: rf, Start: start}) {
					at := fmt.Sprint(name, rf, start, replicas)
					require.Len(t, replicas, rf, at)
					leads[replicas[0]]++
					used := map[string]int{}
					for i, id := range replicas {
						require.NotContains(t, replicas[:i], id, at)
						holds[id]++
						used[rackOf[id]]++
					}
					require.Len(t, used, min(rf, len(count)), at)
				}
				for _, b := range nodes {
					require.Equal(t, n/len(nodes), leads[b.ID], "%s %d: leads of %d", name, rf, b.ID)
					if len(count) == 1 {
						require.Equal(t, n*rf/len(nodes), holds[b.ID], "%s %d: replicas of %d", name, rf, b.ID)
					}
				}
			}
		}
	}
}
