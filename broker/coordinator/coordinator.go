package coordinator

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/auth"
	"tidewire/broker"
	"tidewire/broker/group"
	"tidewire/broker/group/offsetslog"
	"tidewire/cluster/metadata"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
)

// offsetsTopic is what the topic is made with. Segments are small, since compaction leaves the
// active one alone and a coordinator that loads reads it; Kafka has 100 MiB. A clock that was
// set right must keep no commit from being written, and one commit of many partitions is one
// batch.
var offsetsTopic = broker.InternalTopic{
	Name: auth.OffsetsTopic, Partitions: offsetsPartitions,
	Config: map[string]string{
		"cleanup.policy": "compact", "segment.bytes": "16777216", "max.message.bytes": "16777216",
		"message.timestamp.after.max.ms": "9223372036854775807",
	},
}

const offsetsPartitions = offsetslog.Partitions

// Metadata is what the coordinator needs of the cluster.
type Metadata interface {
	Image() *metadata.Image
	Barrier(ctx context.Context) error
	Subscribe(fn func(old, new *metadata.Image, d metadata.Delta)) (cancel func())
}

// Config is what a Coordinator is made of.
type Config struct {
	NodeID   model.BrokerID
	Broker   *broker.Broker
	Metadata Metadata
	Logger   *slog.Logger
	Group    *lifecycle.Group
	Now      func() time.Time // wall clock
	// Monotonic tells time that setting the wall clock does not change, from any moment on;
	// nil is the process's own.
	Monotonic func() time.Duration
	// Settings are the rules of groups; nil: the default ones, with the cluster's group.max.size
	// and offsets.retention.minutes.
	Settings *group.Settings
}

// Coordinator is one node's part in looking after groups: of those whose partition of
// __consumer_offsets it leads. Its methods are safe for concurrent use.
type Coordinator struct {
	nodeID   model.BrokerID
	broker   *broker.Broker
	meta     Metadata
	logger   *slog.Logger
	group    *lifecycle.Group
	now      func() time.Time
	mono     func() time.Duration
	settings group.Settings
	fixed    bool // the settings are the Config's, whatever the cluster says
	limits   atomic.Pointer[group.Limits]

	timers   *timers
	seats    seats
	sleepers sync.Map // of *poll: that wait without a goroutine for groups of other nodes; to be woken when this one stops
	metrics  counters
	stopped  chan struct{} // closed by Stop
	once     sync.Once
	cancel   func()
	kick     chan struct{} // there is something to follow
	loading  chan struct{} // a slot for each partition that is being read
	topics   atomic.Pointer[view]
	retopic  atomic.Bool // topics have changed since groups were last told

	mu      sync.Mutex
	topic   model.TopicID                  // guarded by mu: the topic of shards
	shards  []*shard                       // guarded by mu: by partition; nil where another node leads
	settled bool                           // guarded by mu: the first look at the metadata is over
	index   map[string]map[*actor]struct{} // guarded by mu: topic → groups that may have to do with it
	changed chan struct{}                  // guarded by mu: closed when shards have changed
}

// loaders is how many partitions are read at once.
const loaders = 4

// New returns a coordinator that does nothing until Start.
func New(c Config) *Coordinator {
	if c.Monotonic == nil {
		began := time.Now()
		c.Monotonic = func() time.Duration { return time.Since(began) }
	}
	settings := group.DefaultSettings()
	if c.Settings != nil {
		settings = *c.Settings
	}
	x := &Coordinator{
		nodeID: c.NodeID, broker: c.Broker, meta: c.Metadata, logger: c.Logger, group: c.Group, now: c.Now, mono: c.Monotonic,
		settings: settings, fixed: c.Settings != nil, timers: newTimers(), stopped: make(chan struct{}), kick: make(chan struct{}, 1),
		loading: make(chan struct{}, loaders), index: map[string]map[*actor]struct{}{}, changed: make(chan struct{}),
	}
	x.limits.Store(&group.Limits{MaxMembers: settings.MaxMembers, OffsetRetention: settings.OffsetRetention})
	return x
}

// limit follows the cluster's settings. It runs on the applying goroutine and must not block.
func (c *Coordinator) limit(img *metadata.Image) {
	if c.fixed {
		return
	}
	s := img.Cluster().Settings()
	c.limits.Store(&group.Limits{MaxMembers: int(s.GroupMaxSize), OffsetRetention: time.Duration(s.OffsetsRetentionMinutes) * time.Minute})
}

// Start begins to follow the metadata and to load what this node leads.
func (c *Coordinator) Start() {
	c.cancel = c.meta.Subscribe(func(_, img *metadata.Image, d metadata.Delta) {
		if d.ClusterConfig {
			c.limit(img)
		}
		if len(d.Topics) > 0 {
			c.retopic.Store(true)
			c.poke()
		}
	})
	c.limit(c.meta.Image())
	c.follow()
	c.group.Go("coordinator/follow", c.followLoop)
	c.group.Go("coordinator/timers", c.timerLoop)
	c.group.Go("coordinator/expiry", c.expiryLoop)
}

// Drain makes waiting polls answer with what is there.
func (c *Coordinator) Drain() {
	c.once.Do(func() {
		close(c.stopped)
		for _, s := range c.current() {
			for _, a := range s.all() {
				a.rouse()
			}
		}
		c.sleepers.Range(func(p, _ any) bool { p.(*poll).woken(); return true })
	})
}

// Stop ends what waits and forgets all groups; their state is in the log. The group's context
// must have ended before.
func (c *Coordinator) Stop() {
	c.Drain()
	if c.cancel != nil {
		c.cancel()
	}
	for _, s := range c.take() {
		if s != nil {
			s.close(stopping())
		}
	}
}

// take leaves no shards.
func (c *Coordinator) take() []*shard {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.shards
	c.shards = nil
	return out
}

func (c *Coordinator) poke() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// Loaded tells whether every partition of groups that this node leads is loaded. A partition
// that cannot be loaded does not keep a node from being ready for ever: it counts as looked at
// once it has failed.
func (c *Coordinator) Loaded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.settled {
		return false
	}
	for _, s := range c.shards {
		if s != nil && !s.tried() {
			return false
		}
	}
	return true
}

// followLoop takes over and gives up partitions as the metadata says, and tells groups of
// changed topics.
func (c *Coordinator) followLoop(ctx context.Context) {
	for {
		select {
		case <-c.kick:
		case <-ctx.Done():
			return
		}
		c.follow()
		if c.retopic.Swap(false) {
			c.tellTopics()
		}
	}
}

// follow makes the shards those of the partitions that the image has this node lead.
func (c *Coordinator) follow() {
	want := c.meta.Image().Topic(auth.OffsetsTopic)
	var ended, began []*shard
	c.mu.Lock()
	if want == nil || want.ID != c.topic {
		ended, c.shards = append(ended, c.shards...), nil
	}
	if want != nil {
		c.topic = want.ID
		for len(c.shards) < len(want.Partitions) {
			c.shards = append(c.shards, nil)
		}
		for i := range want.Partitions {
			p := &want.Partitions[i]
			s := c.shards[i]
			if s != nil && (p.Leader != c.nodeID || p.LeaderEpoch != s.epoch) {
				ended, c.shards[i] = append(ended, s), nil
			}
			if c.shards[i] == nil && p.Leader == c.nodeID {
				c.shards[i] = newShard(c, model.PartitionID(i), p.LeaderEpoch)
				began = append(began, c.shards[i])
			}
		}
	}
	c.settled = true
	close(c.changed)
	c.changed = make(chan struct{})
	c.mu.Unlock()
	for _, s := range ended {
		if s != nil {
			s.close(model.Errorf(model.LeaderUnavailable, "the coordinator of the group has moved"))
		}
	}
	for _, s := range began {
		c.group.Go("coordinator/load", s.load)
	}
}

// clock is what operations are told of the world.
func (c *Coordinator) env() group.Env {
	return group.Env{Mono: c.mono(), WallMs: c.now().UnixMilli(), Topics: c.view()}
}

// shardOf finds the partition of a group, waiting until it is loaded. make says that the topic
// is to be made where there is none; else there is no such group: shard is nil.
func (c *Coordinator) shardOf(ctx context.Context, groupID string, create bool) (*shard, error) {
	for {
		if c.draining() {
			return nil, stopping()
		}
		s, exists, changed := c.lookUp(groupID)
		switch {
		case s != nil:
			err := s.await(ctx)
			if model.HasCode(err, model.LeaderUnavailable) && !s.current() {
				continue // it has moved meanwhile, maybe to another leadership of this node
			}
			return s, err
		case !exists && c.meta.Image().Topic(auth.OffsetsTopic) == nil:
			if !create {
				return nil, nil
			}
			if err := c.broker.EnsureInternal(ctx, offsetsTopic); err != nil {
				return nil, err
			}
			c.follow()
		case exists && !c.leads(groupID):
			return nil, model.Errorf(model.LeaderUnavailable, "this node is not the coordinator of group %q", groupID)
		default:
			c.poke()
			select {
			case <-changed:
			case <-ctx.Done():
				return nil, model.Errorf(model.LeaderUnavailable, "the coordinator of group %q is not ready yet", groupID)
			}
		}
	}
}

// lookUp finds the shard of a group; exists tells whether there are any.
func (c *Coordinator) lookUp(groupID string) (s *shard, exists bool, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.shards) == 0 {
		return nil, false, c.changed
	}
	return c.shards[offsetslog.PartitionOf(groupID, len(c.shards))], true, c.changed
}

// leads tells whether the image has this node lead the partition of a group.
func (c *Coordinator) leads(groupID string) bool {
	_, leader := c.coordinatorOf(groupID)
	return leader == c.nodeID
}

// coordinatorOf is the partition of a group, and the node that looks after it: NoLeader where
// there is none now.
func (c *Coordinator) coordinatorOf(groupID string) (model.PartitionID, model.BrokerID) {
	t := c.meta.Image().Topic(auth.OffsetsTopic)
	if t == nil {
		return offsetslog.PartitionOf(groupID, offsetsPartitions), metadata.NoLeader
	}
	p := offsetslog.PartitionOf(groupID, len(t.Partitions))
	return p, t.Partitions[p].Leader
}

func (c *Coordinator) draining() bool {
	select {
	case <-c.stopped:
		return true
	default:
		return false
	}
}

// find returns the actor of a group; nil where there is none and none is to be made.
func (c *Coordinator) find(ctx context.Context, groupID string, create bool) (*actor, error) {
	s, err := c.shardOf(ctx, groupID, create)
	if err != nil || s == nil {
		return nil, err
	}
	return s.actor(ctx, groupID, create)
}
