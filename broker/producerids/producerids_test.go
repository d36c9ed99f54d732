package producerids

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// behind is the metadata of a node that has not applied yet what others have proposed; a barrier
// brings it up to date.
type behind struct {
	image, newest *metadata.Image
	barriers      int
	unreachable   error
}

func (m *behind) Image() *metadata.Image { return m.image }

func (m *behind) Propose(_ context.Context, cmd metadata.Command) (metadata.Result, error) {
	var res metadata.Result
	m.newest, _, res = metadata.Apply(m.newest, m.newest.Index()+1, cmd)
	m.image = m.newest
	if res.Refusal != nil {
		return res, res.Refusal
	}
	return res, nil
}

func (m *behind) Barrier(context.Context) error {
	m.barriers++
	if m.unreachable == nil {
		m.image = m.newest
	}
	return m.unreachable
}

func cluster(t *testing.T, nodes ...model.BrokerID) *behind {
	t.Helper()
	img := metadata.Empty()
	m := &behind{image: img, newest: img}
	_, err := m.Propose(t.Context(), metadata.BootstrapCluster{ClusterID: "c", MetadataVersion: metadata.CurrentMetadataVersion})
	require.NoError(t, err)
	for _, n := range nodes {
		_, err := m.Propose(t.Context(), metadata.RegisterBroker{ID: n, StorageID: "s", Incarnation: 1})
		require.NoError(t, err)
	}
	return m
}

func TestAnIDThatAnotherNodeHasJustGivenIsKnown(t *testing.T) {
	t.Parallel()
	m := cluster(t, 1, 2)
	before := m.image
	id, err := New(2, m).Take(t.Context())
	require.NoError(t, err)
	m.image = before // this node has not applied it

	here := New(1, m)
	require.NoError(t, here.Given(t.Context(), id))
	require.Equal(t, 1, m.barriers)
	require.NoError(t, here.Given(t.Context(), id))
	require.Equal(t, 1, m.barriers, "what is known here asks nobody")
}

func TestAnIDThatNobodyHasGivenIsUnknown(t *testing.T) {
	t.Parallel()
	m := cluster(t, 1)
	p := New(1, m)
	id, err := p.Take(t.Context())
	require.NoError(t, err)
	require.True(t, model.HasCode(p.Given(t.Context(), id+blockSize), model.UnknownProducer))
	m.unreachable = model.Errorf(model.QuorumUnavailable, "there is no leader")
	require.True(t, model.HasCode(p.Given(t.Context(), id+blockSize), model.QuorumUnavailable), "whether it was given cannot be told")
}

func TestIDsAreGivenOnceByAllNodes(t *testing.T) {
	t.Parallel()
	m := cluster(t, 1, 2)
	one, two := New(1, m), New(2, m)
	seen := map[model.ProducerID]bool{}
	for range blockSize + 1 {
		for _, p := range []*IDs{one, two} {
			id, err := p.Take(t.Context())
			require.NoError(t, err)
			require.False(t, seen[id])
			seen[id] = true
		}
	}
}
