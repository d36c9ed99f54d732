package broker

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/auth"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
	"tidewire/storage/log"
)

// ownMetadata is metadata that a test changes at once: no quorum, no files.
type ownMetadata struct {
	img      atomic.Pointer[metadata.Image]
	onChange func(old, now *metadata.Image, d metadata.Delta)
}

func newOwnMetadata(t *testing.T) *ownMetadata {
	m := &ownMetadata{}
	m.img.Store(metadata.Empty())
	_, err := m.Propose(t.Context(), metadata.BootstrapCluster{ClusterID: "c", MetadataVersion: metadata.CurrentMetadataVersion})
	require.NoError(t, err)
	return m
}

func (m *ownMetadata) Image() *metadata.Image        { return m.img.Load() }
func (m *ownMetadata) Barrier(context.Context) error { return nil }

func (m *ownMetadata) Subscribe(fn func(old, now *metadata.Image, d metadata.Delta)) func() {
	m.onChange = fn
	return func() {}
}

func (m *ownMetadata) Propose(_ context.Context, cmd metadata.Command) (metadata.Result, error) {
	old := m.Image()
	now, d, res := metadata.Apply(old, old.Index()+1, cmd)
	m.img.Store(now)
	if m.onChange != nil {
		m.onChange(old, now, d)
	}
	if res.Refusal != nil {
		return res, res.Refusal
	}
	return res, nil
}

// everybody may do everything.
type everybody struct{}

func (everybody) Authorize(context.Context, *auth.Principal, auth.Access) error { return nil }
func (everybody) Allowed(*auth.Principal, auth.Access) bool                     { return true }

// tuned notes how a store was tuned.
type tuned struct {
	Store
	last atomic.Pointer[log.Tuning]
}

func (s *tuned) Tune(t log.Tuning) { s.last.Store(&t) }

func TestTheClustersSettingsAreFollowedWithoutARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		k.authorizer = everybody{}
		store := &tuned{Store: k.Broker.store}
		k.Broker.store = store
		k.meta.Subscribe(k.onChange)
		byAge := k.topic("age", 1, func(c *metadata.TopicConfig) { c.RetentionMs = 1000 })
		k.fill(byAge, 0, 0)
		k.fill(byAge, 0, 0)
		k.group.Go("retention", k.retentionLoop)
		change := func(set map[string]string) {
			_, err := k.AlterClusterConfig(t.Context(), Caller{}, ClusterConfigChange{Set: set})
			require.NoError(t, err)
			synctest.Wait()
		}
		change(map[string]string{"log.retention.check.interval.ms": "3600000"})
		time.Sleep(2 * time.Second) // the look that follows a change
		synctest.Wait()
		k.fill(byAge, 0, 0)
		at := start(byAge, 0)
		time.Sleep(50 * time.Minute)
		synctest.Wait()
		require.Equal(t, at, start(byAge, 0), "it looks once an hour")
		change(map[string]string{"log.retention.check.interval.ms": "1000"})
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.Greater(t, start(byAge, 0), at)

		change(map[string]string{"producer.id.expiration.ms": "5000", "log.cleaner.io.max.bytes.per.second": "7"})
		require.Equal(t, &log.Tuning{ProducerIDExpiration: 5 * time.Second, CleanBytesPerSecond: 7}, store.last.Load())
		change(map[string]string{"producer.id.expiration.ms": "9223372036854775807"})
		require.Positive(t, store.last.Load().ProducerIDExpiration, "no overflow")
		k.stop()
	})
}

func TestCompactionLooksAsOftenAsTheClusterSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		k.authorizer = everybody{}
		k.meta.Subscribe(k.onChange)
		topic := k.topic("c", 1, compacted)
		k.group.Go("compaction", k.compactionLoop)
		interval := func(ms string) {
			_, err := k.AlterClusterConfig(t.Context(), Caller{}, ClusterConfigChange{Set: map[string]string{"log.cleaner.backoff.ms": ms}})
			require.NoError(t, err)
			synctest.Wait()
		}
		interval("3600000")
		for range 6 {
			k.put(topic, "k")
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Zero(t, k.compaction.passes.Load())
		interval("2000")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 1, k.compaction.passes.Load())
		k.stop()
	})
}

func TestAPlanCountsTheTopicsThatItChanges(t *testing.T) {
	t.Parallel()
	m := newOwnMetadata(t)
	b := New(Config{NodeID: 1, Metadata: m, Authorizer: everybody{}, Now: time.Now})
	_, err := m.Propose(t.Context(), metadata.RegisterBroker{ID: 1, StorageID: "s"})
	require.NoError(t, err)
	for name, config := range map[string]map[string]string{"own": {"retention.ms": "5"}, "inherits": nil, "too": nil} {
		id := model.NewTopicID()
		_, err := m.Propose(t.Context(), metadata.CreateTopic{ID: id, Name: name, Assignments: [][]model.BrokerID{{1}}, Config: config})
		require.NoError(t, err)
	}
	res, err := b.AlterClusterConfig(t.Context(), Caller{}, ClusterConfigChange{Set: map[string]string{"retention.ms": "9"}, DryRun: true})
	require.NoError(t, err)
	require.Equal(t, 2, res.Topics)
	require.Equal(t, "9", res.Cluster.Config["retention.ms"])
	require.Empty(t, m.Image().Cluster().Config, "a dry run changes nothing")
	res, err = b.AlterClusterConfig(t.Context(), Caller{}, ClusterConfigChange{Set: map[string]string{"num.partitions": "9"}})
	require.NoError(t, err)
	require.Zero(t, res.Topics)
}
