package metadata

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
)

func TestTheClustersDefinitionsAreSortedAndTheirDefaultsAreLegal(t *testing.T) {
	t.Parallel()
	require.True(t, slices.IsSortedFunc(clusterConfigDefs, func(a, b ConfigDef) int { return compareStrings(a.Name, b.Name) }))
	for _, d := range clusterConfigDefs {
		text, problem := d.Normalise(d.DefaultAt(3))
		require.Empty(t, problem, d.Name)
		require.Equal(t, d.DefaultAt(3), text, d.Name)
		require.NotEmpty(t, d.Doc)
		require.Equal(t, ScopeCluster, d.Scope)
		_, both := TopicConfigDef(d.Name)
		require.False(t, both, "%s is a topic's too", d.Name)
	}
	for _, d := range ClusterConfigDefs() {
		require.False(t, d.TopicOnly, d.Name)
	}
	require.Len(t, ClusterConfigDefs(), len(clusterConfigDefs)+len(topicConfigDefs)-2)
}

func TestTheClustersSettingsInForce(t *testing.T) {
	t.Parallel()
	require.Equal(t, ClusterSettings{
		CleanerBackoffMs: 15_000, CleanerBytesPerSecond: 1<<63 - 1, GroupMaxSize: 1<<31 - 1, NumPartitions: 1, OffsetsRetentionMinutes: 10_080, ProducerIDExpirationMs: 86_400_000, MoveBytesPerSecond: 1<<63 - 1, ReplicaLagMs: 10_000, RetentionCheckIntervalMs: 30_000,
	}, (&Cluster{}).Settings())
	m := testImage(t)
	m, d, res := Apply(m, 100, AlterClusterConfig{Set: map[string]string{"num.partitions": " 6 ", "default.replication.factor": "2"}})
	require.Nil(t, res.Refusal)
	require.True(t, d.ClusterConfig)
	require.Equal(t, map[string]string{"num.partitions": "6", "default.replication.factor": "2"}, m.Cluster().Config)
	require.EqualValues(t, 6, m.Cluster().Settings().NumPartitions)
	require.EqualValues(t, 2, m.Cluster().Settings().DefaultReplicationFactor)
	back, err := Decode(Encode(m))
	require.NoError(t, err)
	require.Equal(t, m.Cluster(), back.Cluster(), "exported and rebuilt")
	same, d, res := Apply(m, 101, AlterClusterConfig{Set: map[string]string{"num.partitions": "6"}})
	require.Nil(t, res.Refusal)
	require.True(t, d.IsEmpty(), "what changes nothing writes nothing")
	require.Equal(t, m.Cluster().ConfigETag(), same.Cluster().ConfigETag())
	m, _, res = Apply(m, 102, AlterClusterConfig{Unset: []string{"num.partitions", "retention.ms"}})
	require.Nil(t, res.Refusal, "unsetting what is not set is no error")
	require.Equal(t, map[string]string{"default.replication.factor": "2"}, m.Cluster().Config)
}

func testImage(t *testing.T) *Image {
	t.Helper()
	m, _, res := Apply(Empty(), 1, BootstrapCluster{ClusterID: "c", MetadataVersion: 1})
	require.Nil(t, res.Refusal)
	return m
}

func TestTheClustersConfigRefusesWhatItCannotHold(t *testing.T) {
	t.Parallel()
	m := testImage(t)
	for name, row := range map[string]struct {
		cmd     AlterClusterConfig
		pointer string
	}{
		"unknown":                {AlterClusterConfig{Set: map[string]string{"x": "1"}}, "/set/x"},
		"unknown to unset":       {AlterClusterConfig{Unset: []string{"num.partitions", "x"}}, "/unset/1"},
		"a topic's alone":        {AlterClusterConfig{Set: map[string]string{"leader.replication.throttled.replicas": "1"}}, "/set/leader.replication.throttled.replicas"},
		"a topic's alone, unset": {AlterClusterConfig{Unset: []string{"leader.replication.throttled.replicas"}}, "/unset/0"},
		"too low":                {AlterClusterConfig{Set: map[string]string{"num.partitions": "0"}}, "/set/num.partitions"},
		"too high":               {AlterClusterConfig{Set: map[string]string{"num.partitions": "10001"}}, "/set/num.partitions"},
		"no number":              {AlterClusterConfig{Set: map[string]string{"log.cleaner.backoff.ms": "soon"}}, "/set/log.cleaner.backoff.ms"},
		"set and unset":          {AlterClusterConfig{Set: map[string]string{"retention.ms": "1"}, Unset: []string{"retention.ms"}}, "/unset/0"},
	} {
		next, d, res := Apply(m, 2, row.cmd)
		require.NotNil(t, res.Refusal, name)
		require.Equal(t, model.InvalidArgument, res.Refusal.Code, name)
		require.Equal(t, row.pointer, res.Refusal.Fields[0].Pointer, name)
		require.True(t, d.IsEmpty(), name)
		require.Empty(t, next.Cluster().Config, name)
	}
	_, refusal := CheckTopicConfig("/set", map[string]string{"num.partitions": "1"}, 1, 1)
	require.NotNil(t, refusal, "a topic has no settings of the cluster's")
}

func TestAnImageWhoseClusterConfigDoesNotParseIsRefused(t *testing.T) {
	t.Parallel()
	_, err := NewImage(Contents{Cluster: &Cluster{Config: map[string]string{"num.partitions": "x"}}})
	require.ErrorIs(t, err, ErrImageForm)
}

func TestASecretIsNotShown(t *testing.T) {
	t.Parallel()
	d := ConfigDef{Name: "s", Type: TypeString, Secret: true}
	require.Equal(t, "********", d.Shown("hunter2"))
	require.Empty(t, d.Shown(""))
	d.Secret = false
	require.Equal(t, "hunter2", d.Shown("hunter2"))
}
