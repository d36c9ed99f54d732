package placement

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// New replicas go to nodes with room on their disks; where too few have room nothing is made.
func TestNewPartitionsKeepAwayFromFullDisks(t *testing.T) {
	t.Parallel()
	img, err := metadata.NewImage(metadata.Contents{Cluster: &metadata.Cluster{}, Brokers: []*metadata.Broker{
		{ID: 1, State: metadata.BrokerActive}, {ID: 2, State: metadata.BrokerActive}, {ID: 3, State: metadata.BrokerActive}, {ID: 4, State: metadata.BrokerActive, Fenced: true},
	}})
	require.NoError(t, err)
	full := func(_ context.Context, nodes []model.BrokerID, each int) []model.BrokerID {
		require.Equal(t, []model.BrokerID{1, 2, 3}, nodes)
		require.Equal(t, 5, each, "14 replicas on 3 nodes")
		return []model.BrokerID{2}
	}
	got, err := Fresh{Partitions: 7, Replicas: 2}.Place(t.Context(), img, full)
	require.NoError(t, err)
	require.Len(t, got, 7)
	for _, replicas := range got {
		require.ElementsMatch(t, []model.BrokerID{1, 3}, replicas)
	}
	for rf, code := range map[int]model.Code{0: model.InvalidArgument, 3: model.StorageFull, 4: model.StorageFull, 5: model.InvalidArgument} {
		_, err := Fresh{Partitions: 1, Replicas: rf}.Place(t.Context(), img, func(context.Context, []model.BrokerID, int) []model.BrokerID { return []model.BrokerID{2} })
		require.True(t, model.HasCode(err, code), "%d replicas: %v", rf, err)
	}
	got, err = Fresh{Partitions: 1, Replicas: 3}.Place(t.Context(), img, nil)
	require.NoError(t, err)
	require.ElementsMatch(t, []model.BrokerID{1, 2, 3}, got[0])
}

// While a node is away new topics have as many replicas as ever: it takes its own when it is back,
// and leads none of them until then.
func TestNewPartitionsWaitForNodesThatAreAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.fence(2)
	w.do(metadata.SetBrokerState{ID: 4, State: metadata.BrokerDraining})
	for _, rf := range []int{1, 2, 3} {
		got, err := Fresh{Partitions: 6, Replicas: rf}.Place(t.Context(), w.img, nil)
		require.NoError(t, err)
		for _, replicas := range got {
			require.Len(t, replicas, rf)
			require.Equal(t, rf == 3, slices.Contains(replicas, 2), "it is asked only where the others are too few")
			require.NotContains(t, replicas, model.BrokerID(4), "it is being drained")
			require.NotEqual(t, model.BrokerID(2), replicas[0])
		}
		topic := w.topic(fmt.Sprint("t", rf), got...)
		require.Len(t, topic.Partitions[0].ISR, min(rf, 2), "of what is online")
		require.NotContains(t, topic.Partitions[0].ISR, model.BrokerID(2))
	}
	_, err := Fresh{Partitions: 1, Replicas: 4}.Place(t.Context(), w.img, nil)
	require.True(t, model.HasCode(err, model.InvalidArgument), err)
	w.fence(1)
	w.fence(3)
	_, err = Fresh{Partitions: 1, Replicas: 1}.Place(t.Context(), w.img, nil)
	require.True(t, model.HasCode(err, model.LeaderUnavailable), err)
}
