// Package replicas is a node's part in the replication of partitions, beside each partition's
// own: it gives partitions their roles, has followers fetch and serves those of other nodes
// (broker/follow), and proposes to the metadata who is in sync.
//
// It has one goroutine that takes connections and one that proposes; both end with the group,
// the former also when Peers ends its AcceptFollow.
package replicas

import (
	"context"
	"iter"
	"log/slog"
	"net"
	"time"

	"tidewire/broker/follow"
	"tidewire/broker/partition"
	"tidewire/broker/replication"
	"tidewire/broker/throttle"
	"tidewire/cluster/metadata"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
)

// Peers is how this node's replicas reach those of other nodes.
type Peers interface {
	// DialFollow connects to what AcceptFollow accepts at another node.
	DialFollow(ctx context.Context, to model.BrokerID) (net.Conn, error)
	// AcceptFollow waits for a follower's node; it ends with net.ErrClosed.
	AcceptFollow() (net.Conn, model.BrokerID, error)
	// BrokerEpoch is the epoch of this node's registration.
	BrokerEpoch() int64
}

const (
	// proposeEvery is how often leaders look who is in sync, besides when a follower has caught up.
	proposeEvery = 250 * time.Millisecond
	// proposeWait bounds a proposal; one that got no answer is made again.
	proposeWait = 5 * time.Second
	// proposeMost bounds the partitions of one proposal.
	proposeMost = 1000
)

// Config is what a Replicas is made of.
type Config struct {
	Self  model.BrokerID
	Peers Peers
	// Find gives a partition that is open here, or nil; Each yields all that are.
	Find func(follow.Key) *partition.Partition
	Each iter.Seq[*partition.Partition]
	// Propose has a command ordered. Its error is a *model.Error.
	Propose func(context.Context, metadata.Command) (metadata.Result, error)
	Image   func() *metadata.Image
	Clock   func() int64 // milliseconds that never go back
	Logger  *slog.Logger
	Group   *lifecycle.Group
}

// Replicas is safe for concurrent use.
type Replicas struct {
	cfg    Config
	client *follow.Client
	server *follow.Server
	kick   chan struct{}
	out    *throttle.Bucket // of what is sent to replicas that moves add
	in     *throttle.Bucket // of what such replicas here take
}

// New returns one that does nothing until Start, but takes roles.
func New(c Config) *Replicas {
	out, in := new(throttle.Bucket), new(throttle.Bucket)
	return &Replicas{
		cfg: c, kick: make(chan struct{}, 1), out: out, in: in,
		client: follow.NewClient(follow.ClientConfig{
			Self: replication.Member{ID: c.Self, Epoch: c.Peers.BrokerEpoch()}, Dial: c.Peers.DialFollow, Throttle: in, Logger: c.Logger, Group: c.Group,
		}),
		server: follow.NewServer(follow.ServerConfig{Find: c.Find, Throttle: out, Logger: c.Logger, Group: c.Group}),
	}
}

// SetThrottle bounds the bytes per second that this node sends for moves, and those that it takes
// (KIP-73). r may be nil.
func (r *Replicas) SetThrottle(bytesPerSecond int64) {
	if r == nil {
		return
	}
	now := time.Now() // only differences count
	r.out.Set(bytesPerSecond, now)
	r.in.Set(bytesPerSecond, now)
}

// Start serves followers and proposes.
func (r *Replicas) Start() {
	r.cfg.Group.Go("replicas/accept", r.accept)
	r.cfg.Group.Go("replicas/isr", r.proposeLoop)
}

func (r *Replicas) accept(context.Context) {
	for {
		c, from, err := r.cfg.Peers.AcceptFollow()
		if err != nil {
			return // the port is closed
		}
		if !r.cfg.Group.Go("replicas/serve", func(ctx context.Context) { r.server.Serve(ctx, c, from) }) {
			_ = c.Close() // the node stops
			return
		}
	}
}

// Take gives a partition the role that the metadata says, and has it follow or not. r may be nil,
// for a node that has no others.
func (r *Replicas) Take(self model.BrokerID, p *partition.Partition, want *metadata.Partition) {
	lead := partition.Leadership{Leader: want.Leader == self, Epoch: want.LeaderEpoch, ISR: len(want.ISR)}
	if r == nil {
		p.SetLeadership(lead)
		return
	}
	state := replication.State{LeaderEpoch: want.LeaderEpoch, PartitionEpoch: want.PartitionEpoch, Replicas: want.Replicas, ISR: want.ISR, Adding: want.Adding()}
	p.SetRole(partition.Role{Leadership: lead, Self: self, Clock: r.cfg.Clock, Due: r.wake, State: state})
	k := follow.Key{Topic: p.TopicID, Partition: p.ID}
	if lead.Leader || want.Leader == metadata.NoLeader {
		r.client.Remove(k)
		return
	}
	r.client.Set(p, want.Leader, want.LeaderEpoch)
	r.client.Slow(k, state.CatchingUp(self))
}

// LeaveOne ends the following of a partition. r may be nil.
func (r *Replicas) LeaveOne(topic model.TopicID, p model.PartitionID) {
	if r != nil {
		r.client.Remove(follow.Key{Topic: topic, Partition: p})
	}
}

// Leave ends the following of a topic's first n partitions. r may be nil.
func (r *Replicas) Leave(topic model.TopicID, n int) {
	if r == nil {
		return
	}
	for i := range n {
		r.client.Remove(follow.Key{Topic: topic, Partition: model.PartitionID(i)})
	}
}

func (r *Replicas) wake() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// proposeLoop proposes the in-sync sets that this node's leaders want.
func (r *Replicas) proposeLoop(ctx context.Context) {
	tick := time.NewTicker(proposeEvery)
	defer tick.Stop()
	for {
		for r.propose(ctx) == proposeMost && ctx.Err() == nil {
		}
		select {
		case <-tick.C:
		case <-r.kick:
		case <-ctx.Done():
			return
		}
	}
}

// wanted is a partition's proposal.
type wanted struct {
	part *partition.Partition
	p    replication.Proposal
}

func (r *Replicas) collect() (all []wanted) {
	img := r.cfg.Image()
	rule := replication.Rule{LagMs: img.Cluster().Settings().ReplicaLagMs, Fit: func(m replication.Member) bool {
		b := img.Broker(m.ID)
		return b != nil && !b.Fenced && b.Epoch == m.Epoch
	}}
	for part := range r.cfg.Each {
		if p, ok := part.Proposal(rule); ok {
			if all = append(all, wanted{part, p}); len(all) == proposeMost {
				break
			}
		}
	}
	return all
}

// propose makes one proposal of all that is wanted, and gives of how many partitions.
func (r *Replicas) propose(ctx context.Context) int {
	all := r.collect()
	if len(all) == 0 {
		return 0
	}
	cmd := metadata.AlterPartitions{Broker: r.cfg.Self, Epoch: r.cfg.Peers.BrokerEpoch()}
	for _, w := range all {
		c := metadata.PartitionChange{Topic: w.part.TopicID, Partition: w.part.ID, LeaderEpoch: w.p.LeaderEpoch, PartitionEpoch: w.p.PartitionEpoch}
		for _, m := range w.p.ISR {
			c.ISR = append(c.ISR, metadata.InSync{ID: m.ID, Epoch: m.Epoch})
		}
		cmd.Changes = append(cmd.Changes, c)
	}
	ctx, cancel := context.WithTimeout(ctx, proposeWait)
	defer cancel()
	res, err := r.cfg.Propose(ctx, cmd)
	altered, known := res.Value.([]metadata.PartitionAltered)
	for i, w := range all {
		switch {
		case err != nil || !known:
			w.part.Proposed(w.p, err != nil && model.AsError(err).EffectiveOutcome() == model.NotApplied)
		case altered[i].Refusal != nil:
			w.part.Proposed(w.p, true)
			r.cfg.Logger.Info("a change of in-sync replicas was refused", "topic", w.part.Topic, "partition", w.part.ID, "isr", cmd.Changes[i].ISR, "error", altered[i].Refusal)
		default:
			r.cfg.Logger.Info("in-sync replicas have changed", "topic", w.part.Topic, "partition", w.part.ID, "isr", altered[i].Partition.ISR)
		}
	}
	return len(all)
}
