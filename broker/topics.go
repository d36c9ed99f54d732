package broker

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"slices"
	"strconv"
	"tidewire/auth"

	"tidewire/broker/operations"
	"tidewire/broker/partition"
	"tidewire/broker/replication"
	"tidewire/cluster/metadata"
	"tidewire/cluster/placement"
	"tidewire/internal/model"
)

// MaxPartitions is the largest number of partitions of one topic.
const MaxPartitions = 10_000

// reservedTopics are the names that the service itself will use.
var reservedTopics = []string{"__consumer_offsets", "__transaction_state", "__audit"}

// NewTopic describes a topic to be created. Partitions and ReplicationFactor of 0 leave it
// to the cluster's settings.
type NewTopic struct {
	Name              string
	Partitions        int
	ReplicationFactor int
	Config            map[string]string
}

// CreateTopic creates a topic and returns once this node serves what it holds of it.
// It takes create on the topic or on the cluster, as in Kafka. Errors: invalid-argument,
// forbidden, topic-exists, storage-full, and those of the quorum.
func (b *Broker) CreateTopic(ctx context.Context, c Caller, n NewTopic) (*metadata.Topic, error) {
	if why := model.CheckTopicName(n.Name); why != "" {
		return nil, model.Invalid("/name", "%s", why)
	}
	if i := slices.IndexFunc(reservedTopics, func(r string) bool { return model.TopicCollisionKey(r) == model.TopicCollisionKey(n.Name) }); i >= 0 {
		return nil, model.Invalid("/name", "%q is the name of an internal topic, or differs from it only in . and _", reservedTopics[i])
	}
	if n.Partitions == 0 {
		n.Partitions = int(b.meta.Image().Cluster().Settings().NumPartitions)
	}
	if n.Partitions < 1 || n.Partitions > MaxPartitions {
		return nil, model.Invalid("/partitions", "a topic has 1 to %d partitions", MaxPartitions)
	}
	if err := b.mayCreate(ctx, c, n.Name); err != nil {
		return nil, err
	}
	assign, err := b.assign(ctx, n.Partitions, n.ReplicationFactor)
	if err != nil {
		return nil, err
	}
	cmd := metadata.CreateTopic{
		Name: n.Name, Assignments: assign, Config: n.Config, Now: metadata.MillisOf(b.now()), ID: model.NewTopicID(),
	}
	refused := b.foresee(c, workKey{operations.CreatePartitions, n.Name}, n.Partitions)
	t, err := propose[*metadata.Topic](ctx, b.meta, cmd)
	if err != nil {
		refused(err)
		return nil, err
	}
	b.settle(ctx, t.Name)
	return t, nil
}

// settle waits for this node to serve what a change of the metadata brought. The change is
// made, so that a node which is slow to follow is no failure of it.
func (b *Broker) settle(ctx context.Context, name string) {
	if _, err := b.topic(ctx, name); err != nil {
		b.logger.Warn("a topic was changed and is not open on this node yet", "topic", name, "error", err)
	}
}

func (b *Broker) mayCreate(ctx context.Context, c Caller, name string) error {
	if b.authorizer.Allowed(c.Principal, auth.Access{Operation: metadata.OpCreate, Resource: metadata.ResourceCluster, Name: metadata.ClusterResource, Host: c.Host}) {
		return nil
	}
	return b.authorizer.Authorize(ctx, c.Principal, auth.Access{Operation: metadata.OpCreate, Resource: metadata.ResourceTopic, Name: name, Host: c.Host})
}

// assign spreads the replicas of new partitions over the brokers that may take them and have
// room on their disks. rf of 0 leaves the replication factor to the cluster's settings.
func (b *Broker) assign(ctx context.Context, partitions, rf int) ([][]model.BrokerID, error) {
	img := b.meta.Image()
	if rf == 0 {
		rf = DefaultReplicationFactor(img)
	}
	var start [4]byte
	_, _ = rand.Read(start[:]) // never fails (crypto/rand)
	want := placement.Fresh{Partitions: partitions, Replicas: rf, Start: binary.LittleEndian.Uint32(start[:]) >> 1}
	return want.Place(ctx, img, b.full)
}

// propose sends a command and returns its value.
func propose[T any](ctx context.Context, m Metadata, cmd metadata.Command) (T, error) {
	var zero T
	res, err := m.Propose(ctx, cmd)
	if err != nil {
		return zero, err
	}
	if res.Refusal != nil {
		return zero, res.Refusal
	}
	v, _ := res.Value.(T)
	return v, nil
}

// find authorises and then looks a topic up in the image; that it is unknown is
// confirmed by a barrier.
func (b *Broker) find(ctx context.Context, c Caller, op metadata.Operation, name string) (*metadata.Topic, error) {
	if err := b.authorizer.Authorize(ctx, c.Principal, auth.Access{Operation: op, Resource: metadata.ResourceTopic, Name: name, Host: c.Host}); err != nil {
		return nil, err
	}
	if t := b.meta.Image().Topic(name); t != nil {
		return t, nil
	}
	if err := b.meta.Barrier(ctx); err != nil {
		return nil, err
	}
	if t := b.meta.Image().Topic(name); t != nil {
		return t, nil
	}
	return nil, unknownTopic(name)
}

// DeleteTopic deletes a topic with its records, and returns once this node has let go
// of it. ifMatch, when not empty, must be the topic's etag.
func (b *Broker) DeleteTopic(ctx context.Context, c Caller, name string, ifMatch metadata.ETag) error {
	t, err := b.MayDeleteTopic(ctx, c, name)
	if err != nil {
		return err
	}
	return b.deleteTopic(ctx, c, t, ifMatch)
}

// deleteTopic deletes a topic that the caller may delete.
func (b *Broker) deleteTopic(ctx context.Context, c Caller, t *metadata.Topic, ifMatch metadata.ETag) error {
	refused := b.foresee(c, workKey{operations.DeletePartitions, t.Name}, len(t.Partitions))
	if _, err := propose[*metadata.Topic](ctx, b.meta, metadata.DeleteTopic{Name: t.Name, ID: t.ID, IfMatch: ifMatch}); err != nil {
		refused(err)
		return err
	}
	return b.awaitGone(ctx, t.Name, t.ID)
}

func (b *Broker) awaitGone(ctx context.Context, name string, id model.TopicID) error {
	for {
		pass := b.passEnd()
		v, ok := b.topics.Load(name)
		if !ok || v.(*topic).id != id {
			return nil
		}
		select {
		case <-pass:
		case <-ctx.Done():
			return model.Errorf(model.Timeout, "the topic is deleted, but its files are not yet").WithCause(context.Cause(ctx))
		}
	}
}

// GrowTopic raises the number of partitions. Keys map to partitions anew; records that
// are there stay where they are. With dryRun nothing is changed. The result is the topic
// as it is, or would be.
func (b *Broker) GrowTopic(ctx context.Context, c Caller, g Growth) (*metadata.Topic, error) {
	if g.Partitions < 1 || g.Partitions > MaxPartitions {
		return nil, model.Invalid("/partitions", "a topic has 1 to %d partitions", MaxPartitions)
	}
	t, err := b.find(ctx, c, metadata.OpAlter, g.Topic)
	if err != nil {
		return nil, err
	}
	more := g.Partitions - len(t.Partitions)
	if more < 0 {
		return nil, model.Invalid("/partitions", "topic %q has %d partitions; their number only grows", g.Topic, len(t.Partitions))
	}
	if g.IfMatch != "" && g.IfMatch != t.ETag() {
		return nil, model.Errorf(model.ETagMismatch, "topic %q has changed since", g.Topic)
	}
	if more == 0 {
		return t, nil
	}
	assign, err := b.assign(ctx, more, t.ReplicationFactor())
	if err != nil {
		return nil, err
	}
	if g.DryRun {
		return t.Grown(assign), nil
	}
	cmd := metadata.CreatePartitions{Name: t.Name, ID: t.ID, From: len(t.Partitions), Assignments: assign, IfMatch: g.IfMatch}
	refused := b.foresee(c, workKey{operations.CreatePartitions, t.Name}, more)
	grown, err := propose[*metadata.Topic](ctx, b.meta, cmd)
	if err != nil {
		refused(err)
		return nil, err
	}
	b.settle(ctx, t.Name)
	return grown, nil
}

// Growth asks for more partitions.
type Growth struct {
	Topic      string
	Partitions int
	IfMatch    metadata.ETag
	DryRun     bool
}

// ConfigChange sets and unsets keys of a topic's config; others stay.
type ConfigChange struct {
	Topic   string
	Set     map[string]string
	Unset   []string
	IfMatch metadata.ETag // of the config
}

// AlterTopicConfig changes a topic's config.
func (b *Broker) AlterTopicConfig(ctx context.Context, c Caller, ch ConfigChange) (*metadata.Topic, error) {
	t, err := b.find(ctx, c, metadata.OpAlterConfigs, ch.Topic)
	if err != nil {
		return nil, err
	}
	return propose[*metadata.Topic](ctx, b.meta, metadata.AlterTopicConfig{
		Name: t.Name, ID: t.ID, Set: ch.Set, Unset: ch.Unset, IfMatch: ch.IfMatch,
	})
}

// TopicConfig returns a topic whose config the caller may see.
func (b *Broker) TopicConfig(ctx context.Context, c Caller, name string) (*metadata.Topic, error) {
	return b.find(ctx, c, metadata.OpDescribeConfigs, name)
}

// PartitionState is what this node knows of one partition. With Err set the offsets and
// sizes mean nothing.
type PartitionState struct {
	ID model.PartitionID
	metadata.Partition
	partition.Bounds
	SizeBytes int64
	Segments  int
	Followers []replication.FollowerState // what the leader knows of the other replicas
	Err       error
}

// TopicState is a topic with the state of its partitions.
type TopicState struct {
	Topic                 *metadata.Topic
	Partitions            []PartitionState
	BytesInPerS, OutPerS  float64
	SizeBytes, RecordsNow int64
}

// DescribeTopic returns a topic that the caller may describe.
func (b *Broker) DescribeTopic(ctx context.Context, c Caller, name string) (*TopicState, error) {
	t, err := b.find(ctx, c, metadata.OpDescribe, name)
	if err != nil {
		return nil, err
	}
	if _, err := b.topic(ctx, name); err != nil && model.HasCode(err, model.UnknownTopic) {
		return nil, err
	}
	return b.State(ctx, t), nil
}

// StateOf adds this node's view to a topic of the image.
func (b *Broker) StateOf(t *metadata.Topic) *TopicState {
	s := &TopicState{Topic: t, Partitions: make([]PartitionState, len(t.Partitions))}
	var local *topic
	if v, ok := b.topics.Load(t.Name); ok && v.(*topic).id == t.ID {
		local = v.(*topic)
		s.BytesInPerS, s.OutPerS = local.rates.now()
	}
	for i := range t.Partitions {
		p := &s.Partitions[i]
		p.ID, p.Partition = model.PartitionID(i), t.Partitions[i]
		b.fillPartition(p, local)
		if p.Err == nil {
			s.SizeBytes += p.SizeBytes
			s.RecordsNow += int64(p.HighWatermark - p.LogStart)
		}
	}
	return s
}

func (b *Broker) fillPartition(p *PartitionState, local *topic) {
	p.Err = model.Errorf(model.LeaderUnavailable, "partition %s is not open on this node", strconv.Itoa(int(p.ID)))
	if local == nil {
		return
	}
	parts := *local.parts.Load()
	if int(p.ID) >= len(parts) {
		return
	}
	if parts[p.ID] == nil {
		p.Err = local.notOpen(int32(p.ID))
		return
	}
	if p.Err = parts[p.ID].Err(); p.Err != nil {
		return
	}
	p.Bounds, p.Followers = parts[p.ID].Bounds(), parts[p.ID].Followers()
	if l := local.openLogs()[p.ID]; l != nil {
		p.SizeBytes, p.Segments = l.Size(), l.Segments()
		p.Err = l.Failed()
	}
}

// VisibleTopics yields the topics that the caller may describe, in order of names.
func (b *Broker) VisibleTopics(c Caller, prefix string, internal bool) []*metadata.Topic {
	var out []*metadata.Topic
	for t := range b.meta.Image().Topics(prefix) {
		if t.Internal && !internal {
			continue
		}
		if b.authorizer.Allowed(c.Principal, auth.Access{Operation: metadata.OpDescribe, Resource: metadata.ResourceTopic, Name: t.Name, Host: c.Host}) {
			out = append(out, t)
		}
	}
	return out
}

// OffsetResult is the answer to an offset query for one partition. Found is false where
// no record is late enough. Timestamp is that of the record, −1 where the query was not
// by time.
type OffsetResult struct {
	Partition model.PartitionID
	Offset    model.Offset
	Timestamp int64
	Found     bool
}

// Offsets resolves a position on every partition of a topic.
func (b *Broker) Offsets(ctx context.Context, c Caller, name string, at Position) ([]OffsetResult, error) {
	want, err := b.find(ctx, c, metadata.OpDescribe, name)
	if err != nil {
		return nil, err
	}
	out := make([]OffsetResult, 0, len(want.Partitions))
	t, err := b.topicWith(ctx, name, model.PartitionID(len(want.Partitions)-1))
	if err != nil {
		return nil, err
	}
	parts := make([]followed, len(want.Partitions))
	for i := range parts {
		if parts[i], err = b.placed(t, model.PartitionID(i)); err != nil {
			return nil, err
		}
	}
	asked := b.freshAll(ctx, parts)
	for i := range want.Partitions {
		r := OffsetResult{Partition: model.PartitionID(i), Timestamp: -1, Found: true}
		if asked[i] != nil {
			return nil, asked[i]
		}
		part := sourceOf(ctx, parts[i], 0)
		if at.Kind == AtTime {
			r.Offset, r.Timestamp, r.Found, err = part.OffsetForTimestamp(at.Value, part.Bounds().LastStable)
		} else {
			r.Offset, err = resolve(part, at, ReadCommitted)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// MayDescribeCluster authorises reading about the cluster.
func (b *Broker) MayDescribeCluster(ctx context.Context, c Caller) error {
	return b.authorizer.Authorize(ctx, c.Principal, auth.Access{Operation: metadata.OpDescribe, Resource: metadata.ResourceCluster, Name: metadata.ClusterResource, Host: c.Host})
}

// Allowed tells, without asking the quorum, whether the caller may do something; for
// lists of actions.
func (b *Broker) Allowed(c Caller, op metadata.Operation, rt metadata.ResourceType, name string) bool {
	return b.authorizer.Allowed(c.Principal, auth.Access{Operation: op, Resource: rt, Name: name, Host: c.Host})
}

// MayDescribeTopic returns a topic that the caller may describe.
func (b *Broker) MayDescribeTopic(ctx context.Context, c Caller, name string) (*metadata.Topic, error) {
	return b.find(ctx, c, metadata.OpDescribe, name)
}

// MayDeleteTopic returns a topic that the caller may delete. An internal one, which the
// service cannot do without, is a conflict.
func (b *Broker) MayDeleteTopic(ctx context.Context, c Caller, name string) (*metadata.Topic, error) {
	t, err := b.find(ctx, c, metadata.OpDelete, name)
	if err == nil && t.Internal {
		return nil, model.Errorf(model.Conflict, "topic %q belongs to the service itself and is not deleted", name)
	}
	return t, err
}
