package metadata

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
)

// threeLive is three live brokers, with epochs 2, 4 and 5, and a topic with the replicas
// that are given for its one partition.
func threeLive(t *testing.T, minISR string, replicas ...model.BrokerID) *Image {
	t.Helper()
	cmds := append(founding(), UnfenceBroker{ID: 2, Epoch: 4}, UnfenceBroker{ID: 3, Epoch: 5}, CreateTopic{
		ID: topicID(7), Name: "t", Assignments: [][]model.BrokerID{replicas}, Config: map[string]string{"min.insync.replicas": minISR}, Now: t0,
	})
	return image(t, cmds...)
}

func partitionAfter(t *testing.T, img *Image, cmds ...Command) Partition {
	t.Helper()
	return fold(t, img, img.Index()+1, cmds, 1).Topic("t").Partitions[0]
}

func brokerIDs(n ...model.BrokerID) []model.BrokerID { return append([]model.BrokerID{}, n...) }

func TestAFencedLeaderIsFollowedByTheFirstLiveMemberOfTheISR(t *testing.T) {
	t.Parallel()
	img := threeLive(t, "1", 1, 2, 3)
	before := img.Topic("t").Partitions[0]
	p := partitionAfter(t, img, FenceBroker{ID: 2, Epoch: 4}, FenceBroker{ID: 1, Epoch: 2})
	require.Equal(t, model.BrokerID(3), p.Leader)
	require.Equal(t, before.LeaderEpoch+1, p.LeaderEpoch, "a follower's end begins no epoch")
	require.Equal(t, before.PartitionEpoch+2, p.PartitionEpoch)
	require.Equal(t, brokerIDs(3), p.ISR)
	require.Empty(t, p.ELR, "enough are in sync")
	require.True(t, fold(t, img, img.Index()+1, []Command{FenceBroker{ID: 2, Epoch: 4}}, 1).Broker(2).Fenced)
}

func TestTheLastOfAnISRStaysInItWithoutALeader(t *testing.T) {
	t.Parallel()
	img := threeLive(t, "1", 2)
	p := partitionAfter(t, img, FenceBroker{ID: 2, Epoch: 4})
	require.Equal(t, NoLeader, p.Leader)
	require.Equal(t, brokerIDs(2), p.ISR)
	again := partitionAfter(t, img, FenceBroker{ID: 2, Epoch: 4}, UnfenceBroker{ID: 2, Epoch: 4})
	require.Equal(t, model.BrokerID(2), again.Leader, "it leads again when it is back")
	require.Equal(t, p.LeaderEpoch+1, again.LeaderEpoch)
}

func TestBelowMinISRWhoLeavesIsEligibleAndMayLeadAgain(t *testing.T) {
	t.Parallel()
	img := threeLive(t, "2", 1, 2, 3)
	fences := []Command{FenceBroker{ID: 3, Epoch: 5}, FenceBroker{ID: 2, Epoch: 4}, FenceBroker{ID: 1, Epoch: 2}}
	p := partitionAfter(t, img, fences...)
	require.Equal(t, NoLeader, p.Leader)
	require.Equal(t, brokerIDs(1), p.ISR)
	require.Equal(t, brokerIDs(2), p.ELR, "3 left while two were in sync")
	p = partitionAfter(t, img, append(fences, UnfenceBroker{ID: 3, Epoch: 5})...)
	require.Equal(t, NoLeader, p.Leader, "it may lack what was acknowledged after it left")
	p = partitionAfter(t, img, append(fences, UnfenceBroker{ID: 2, Epoch: 4})...)
	require.Equal(t, model.BrokerID(2), p.Leader)
	require.Equal(t, brokerIDs(2), p.ISR)
	require.Equal(t, brokerIDs(1), p.ELR, "while it was alone nothing was acknowledged")
}

func TestFencingTwiceChangesNothing(t *testing.T) {
	t.Parallel()
	img := threeLive(t, "1", 1, 2)
	once := partitionAfter(t, img, FenceBroker{ID: 1, Epoch: 2})
	require.Equal(t, once, partitionAfter(t, img, FenceBroker{ID: 1, Epoch: 2}, FenceBroker{ID: 1, Epoch: 2}))
}
