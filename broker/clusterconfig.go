package broker

import (
	"context"
	"time"

	"tidewire/auth"
	"tidewire/cluster/metadata"
	"tidewire/cluster/placement"
	"tidewire/storage/log"
)

// NaturalReplicationFactor is the replication factor of new topics where no setting names
// one: 3 where as many nodes take replicas, those that are offline for a while included, else 1.
func NaturalReplicationFactor(img *metadata.Image) int {
	if len(placement.Members(img)) >= naturalReplicas {
		return naturalReplicas
	}
	return 1
}

// naturalReplicas survive the loss of any one with min.insync.replicas=2.
const naturalReplicas = 3

// DefaultReplicationFactor is the replication factor of a topic that is created without one.
func DefaultReplicationFactor(img *metadata.Image) int {
	if set := img.Cluster().Settings().DefaultReplicationFactor; set > 0 {
		return int(set)
	}
	return NaturalReplicationFactor(img)
}

func (b *Broker) compactionInterval() time.Duration {
	return time.Duration(b.meta.Image().Cluster().Settings().CleanerBackoffMs) * time.Millisecond
}

func (b *Broker) retentionInterval() time.Duration {
	return time.Duration(b.meta.Image().Cluster().Settings().RetentionCheckIntervalMs) * time.Millisecond
}

// tuneStore hands the store what the cluster's config says of it.
func (b *Broker) tuneStore(img *metadata.Image) {
	s := img.Cluster().Settings()
	b.replicas.SetThrottle(s.MoveBytesPerSecond)
	b.store.Tune(log.Tuning{
		ProducerIDExpiration: saturated(s.ProducerIDExpirationMs), CleanBytesPerSecond: s.CleanerBytesPerSecond,
	})
}

// saturated is a number of milliseconds as a duration, the longest one where it is more.
func saturated(ms int64) time.Duration {
	return time.Duration(min(ms, int64(1<<63-1)/int64(time.Millisecond))) * time.Millisecond
}

// noteClusterConfigLocked has everything that follows the cluster's config look again. It
// runs on the applying goroutine and must not block.
func (b *Broker) noteClusterConfigLocked(img *metadata.Image) {
	for t := range img.Topics("") {
		b.pending[t.Name] = struct{}{}
	}
	b.tuneStore(img)
	b.kickRetention()
	select {
	case b.compaction.kick <- struct{}{}:
	default:
	}
}

// ClusterConfigChange sets and unsets keys of the cluster's config; others stay.
type ClusterConfigChange struct {
	Set     map[string]string
	Unset   []string
	IfMatch metadata.ETag // of the config
	DryRun  bool
}

// ClusterConfigResult is the cluster's config after a change, or as it would be.
type ClusterConfigResult struct {
	Cluster *metadata.Cluster
	// Topics counts those whose settings in force the change alters.
	Topics int
}

func onCluster(op metadata.Operation, host string) auth.Access {
	return auth.Access{Operation: op, Resource: metadata.ResourceCluster, Name: metadata.ClusterResource, Host: host}
}

// ClusterConfig returns the cluster, whose config the caller may see.
func (b *Broker) ClusterConfig(ctx context.Context, c Caller) (*metadata.Cluster, error) {
	if err := b.authorizer.Authorize(ctx, c.Principal, onCluster(metadata.OpDescribeConfigs, c.Host)); err != nil {
		return nil, err
	}
	return b.meta.Image().Cluster(), nil
}

// AlterClusterConfig changes the cluster's config. Open logs follow without a restart.
// Errors: forbidden, etag-mismatch, invalid-argument with pointers, and the quorum's.
func (b *Broker) AlterClusterConfig(ctx context.Context, c Caller, ch ClusterConfigChange) (*ClusterConfigResult, error) {
	if err := b.authorizer.Authorize(ctx, c.Principal, onCluster(metadata.OpAlterConfigs, c.Host)); err != nil {
		return nil, err
	}
	cmd := metadata.AlterClusterConfig{Set: ch.Set, Unset: ch.Unset, IfMatch: ch.IfMatch}
	before := b.meta.Image()
	after, _, res := metadata.Apply(before, before.Index()+1, cmd)
	if res.Refusal != nil && ch.DryRun {
		return nil, res.Refusal
	}
	plan := &ClusterConfigResult{Cluster: after.Cluster(), Topics: differing(before, after)}
	if ch.DryRun {
		return plan, nil
	}
	cluster, err := propose[*metadata.Cluster](ctx, b.meta, cmd)
	if err != nil {
		return nil, err
	}
	plan.Cluster = cluster
	return plan, nil
}

// differing counts the topics whose settings in force differ between two images.
func differing(before, after *metadata.Image) int {
	n := 0
	for t := range before.Topics("") {
		if now := after.TopicByID(t.ID); now != nil && *now.Config != *t.Config {
			n++
		}
	}
	return n
}
