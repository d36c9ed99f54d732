package placement

import (
	"context"
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
	for rf, code := range map[int]model.Code{0: model.InvalidArgument, 3: model.StorageFull, 4: model.InvalidArgument} {
		_, err := Fresh{Partitions: 1, Replicas: rf}.Place(t.Context(), img, func(context.Context, []model.BrokerID, int) []model.BrokerID { return []model.BrokerID{2} })
		require.True(t, model.HasCode(err, code), "%d replicas: %v", rf, err)
	}
	got, err = Fresh{Partitions: 1, Replicas: 3}.Place(t.Context(), img, nil)
	require.NoError(t, err)
	require.ElementsMatch(t, []model.BrokerID{1, 2, 3}, got[0])
}
