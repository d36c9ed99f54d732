package broker

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/cluster/metadata"
	"tidewire/internal/fsx"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
	"tidewire/storage/log"
)

// Records are routed to new partitions as soon as they can be found: one that is not led
// yet would refuse them, while a topic grows.
func TestAPartitionLeadsBeforeItCanBeFound(t *testing.T) {
	t.Parallel()
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	g := lifecycle.New(context.Background())
	store, err := log.OpenStore(log.StoreOptions{FS: fsx.NewMem(), Dir: "/data", Group: g, Now: time.Now, Logger: quiet})
	require.NoError(t, err)
	b := New(Config{NodeID: 1, Store: store, Logger: quiet, Group: g, Now: time.Now})
	here := metadata.Partition{Replicas: []model.BrokerID{1}, ISR: []model.BrokerID{1}, Leader: 1}
	want := &metadata.Topic{
		Name: "t", ID: model.TopicID{1}, Partitions: []metadata.Partition{here, here},
		Config: &metadata.TopicConfig{MaxMessageBytes: 1000, MinInsyncReplicas: 1},
	}
	topic := newTopic(want)
	b.growTopic(topic, want)
	require.Len(t, *topic.parts.Load(), 2)
	for _, p := range *topic.parts.Load() {
		require.NoError(t, p.Err())
	}
	require.NoError(t, store.Close())
	require.NoError(t, g.Stop(10*time.Second))
}
