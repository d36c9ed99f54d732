package moves

import (
	"context"
	"fmt"
	"time"

	"tidewire/broker"
	"tidewire/broker/operations"
	"tidewire/cluster/metadata"
	"tidewire/cluster/placement"
	"tidewire/internal/model"
)

// Cluster is what the service needs of the metadata.
type Cluster interface {
	Image() *metadata.Image
	Propose(ctx context.Context, cmd metadata.Command) (metadata.Result, error)
	Barrier(ctx context.Context) error
	Subscribe(fn func(old, now *metadata.Image, d metadata.Delta)) (cancel func())
	VotingBrokers() []model.BrokerID
}

// Broker authorises, and asks leaders for the states of their partitions.
type Broker interface {
	MayOnCluster(ctx context.Context, c broker.Caller, op metadata.Operation) error
	Allowed(c broker.Caller, op metadata.Operation, rt metadata.ResourceType, name string) bool
	States(ctx context.Context, topics []*metadata.Topic) []*broker.TopicState
}

// Config is what a Service is made of.
type Config struct {
	Cluster Cluster
	Broker  Broker
	Account *operations.Registry // takes what ends
	Now     func() time.Time
}

// Service is safe for concurrent use.
type Service struct {
	Config
}

// New returns a service. Until the returned function is called it notes what ends.
func New(c Config) (s *Service, stop func()) {
	s = &Service{c}
	return s, c.Cluster.Subscribe(s.noteEnded)
}

// MayAlter tells whether a caller may move anything.
func (s *Service) MayAlter(c broker.Caller) bool {
	return s.Broker.Allowed(c, metadata.OpAlter, metadata.ResourceCluster, metadata.ClusterResource)
}

// MostMoves bounds one request.
const MostMoves = 10_000

// Asked is a partition with the replicas that it is to have.
type Asked struct {
	Topic     string
	Partition model.PartitionID
	Replicas  []model.BrokerID
}

// Request asks for moves.
type Request struct {
	Moves    []Asked
	Throttle *int64 // bytes per second for all moves from now on; nil: as it is, 0: none
	DryRun   bool
}

// Outcome is what became of one partition.
type Outcome struct {
	Topic     string
	Partition model.PartitionID
	Err       error
	After     metadata.Partition // as it is now, or in a dry run would be; empty where it is unknown
}

// Create begins moves, each with an outcome of its own, in the order of the request. Errors:
// forbidden, invalid-argument, those of the quorum.
func (s *Service) Create(ctx context.Context, c broker.Caller, q Request) ([]Outcome, error) {
	if err := s.Broker.MayOnCluster(ctx, c, metadata.OpAlter); err != nil {
		return nil, err
	}
	if len(q.Moves) > MostMoves || len(q.Moves) == 0 && q.Throttle == nil {
		return nil, model.Invalid("/moves", "one request moves 1 to %d partitions, or changes the throttle", MostMoves)
	}
	refs := make([]ref, len(q.Moves))
	for i, m := range q.Moves {
		refs[i] = ref{m.Topic, m.Partition}
	}
	cmd := metadata.AlterReassignments{Throttle: q.Throttle, By: nameOf(c), Now: metadata.MillisOf(s.Now())}
	out, at, err := s.resolve(ctx, "/moves", refs, func(i int, topic model.TopicID) {
		cmd.Moves = append(cmd.Moves, metadata.Reassignment{Topic: topic, Partition: q.Moves[i].Partition, Replicas: nonNil(q.Moves[i].Replicas)})
	})
	if err != nil || len(cmd.Moves) == 0 && cmd.Throttle == nil {
		return out, err
	}
	return out, s.carryOut(ctx, cmd, q.DryRun, outcomes{out, at})
}

func nonNil(ids []model.BrokerID) []model.BrokerID {
	if ids == nil {
		return []model.BrokerID{}
	}
	return ids
}

func nameOf(c broker.Caller) string {
	if c.Principal == nil {
		return ""
	}
	return c.Principal.Name
}

// ref names a partition by its topic's name.
type ref struct {
	topic     string
	partition model.PartitionID
}

// resolve finds the topics of partitions and has add called for each that there is. at are the
// places of these in the outcomes. That a topic is unknown is confirmed by a read barrier, once.
func (s *Service) resolve(ctx context.Context, pointer string, refs []ref, add func(i int, topic model.TopicID)) (out []Outcome, at []int, err error) {
	out = make([]Outcome, len(refs))
	seen := make(map[ref]int, len(refs))
	img, confirmed := s.Cluster.Image(), false
	for i, r := range refs {
		if first, twice := seen[r]; twice {
			return nil, nil, model.Invalid(fmt.Sprintf("%s/%d", pointer, i), "partition %d of %q is named at %s/%d already", r.partition, r.topic, pointer, first)
		}
		seen[r] = i
		out[i].Topic, out[i].Partition = r.topic, r.partition
		t := img.Topic(r.topic)
		if t == nil && !confirmed {
			if err := s.Cluster.Barrier(ctx); err != nil {
				return nil, nil, err
			}
			img, confirmed = s.Cluster.Image(), true
			t = img.Topic(r.topic)
		}
		if t == nil {
			out[i].Err = model.Errorf(model.UnknownTopic, "there is no topic %q", r.topic)
			continue
		}
		at = append(at, i)
		add(i, t.ID)
	}
	return out, at, nil
}

// outcomes has the places of a command's partitions in all outcomes.
type outcomes struct {
	all []Outcome
	at  []int
}

// carryOut proposes a command about partitions, or looks what it would do.
func (s *Service) carryOut(ctx context.Context, cmd metadata.Command, dry bool, out outcomes) error {
	var res metadata.Result
	if img := s.Cluster.Image(); dry {
		if _, _, res = metadata.Apply(img, img.Index()+1, cmd); res.Refusal != nil {
			return res.Refusal
		}
	} else {
		var err error
		if res, err = s.Cluster.Propose(ctx, cmd); err != nil {
			return err
		}
	}
	altered, _ := res.Value.([]metadata.PartitionAltered)
	for k, i := range out.at {
		o := &out.all[i]
		if o.After = altered[k].Partition; altered[k].Refusal != nil {
			o.Err = altered[k].Refusal
		}
	}
	return nil
}

// Rebalance plans a rebalance and, unless it is a dry run, begins it. Outcomes are those of the
// plan's moves, in their order. Errors: as Create.
func (s *Service) Rebalance(ctx context.Context, c broker.Caller, throttle *int64, dry bool) (placement.Plan, []Outcome, error) {
	if err := s.Broker.MayOnCluster(ctx, c, metadata.OpAlter); err != nil {
		return placement.Plan{}, nil, err
	}
	plan := placement.Rebalance(s.Cluster.Image())
	plan.Moves = plan.Moves[:min(len(plan.Moves), MostMoves)] // the next request does the rest
	cmd := metadata.AlterReassignments{Moves: plan.Reassignments(), Throttle: throttle, By: nameOf(c), Now: metadata.MillisOf(s.Now())}
	out := make([]Outcome, len(plan.Moves))
	at := make([]int, len(plan.Moves))
	for i, m := range plan.Moves {
		out[i], at[i] = Outcome{Topic: m.Topic.Name, Partition: m.Partition}, i
	}
	if len(cmd.Moves) == 0 && throttle == nil {
		return plan, out, nil
	}
	return plan, out, s.carryOut(ctx, cmd, dry, outcomes{out, at})
}

// Cancel takes a partition's move back. Errors: forbidden, unknown-topic, unknown-partition,
// not-found, conflict, those of the quorum.
func (s *Service) Cancel(ctx context.Context, c broker.Caller, topic string, p model.PartitionID) error {
	if err := s.Broker.MayOnCluster(ctx, c, metadata.OpAlter); err != nil {
		return err
	}
	var cmd metadata.CancelReassignments
	return s.one(ctx, ref{topic, p}, func(t model.TopicID) metadata.Command {
		cmd.Partitions = []metadata.PartitionRef{{Topic: t, Partition: p}}
		return cmd
	})
}

// one carries out a command about one partition.
func (s *Service) one(ctx context.Context, r ref, cmd func(model.TopicID) metadata.Command) error {
	var c metadata.Command
	out, at, err := s.resolve(ctx, "", []ref{r}, func(_ int, t model.TopicID) { c = cmd(t) })
	if err == nil && c != nil {
		err = s.carryOut(ctx, c, false, outcomes{out, at})
	}
	if err == nil {
		err = out[0].Err
	}
	return err
}

// Election asks for elections by hand.
type Election struct {
	Type metadata.ElectionType
	// Partitions are elected in; nil: all that do not have their preferred leader, for a preferred
	// one.
	Partitions []Asked
}

// Elect elects leaders, each partition with an outcome of its own. Errors: as Create.
func (s *Service) Elect(ctx context.Context, c broker.Caller, e Election) ([]Outcome, error) {
	if err := s.Broker.MayOnCluster(ctx, c, metadata.OpAlter); err != nil {
		return nil, err
	}
	if e.Type != metadata.ElectPreferred && e.Type != metadata.ElectUnclean {
		return nil, model.Invalid("/type", "an election is preferred or unclean, not %q", e.Type)
	}
	if e.Partitions == nil && e.Type == metadata.ElectPreferred {
		e.Partitions = s.displaced()
		if len(e.Partitions) == 0 {
			return []Outcome{}, nil
		}
	}
	if len(e.Partitions) == 0 || len(e.Partitions) > MostMoves {
		return nil, model.Invalid("/partitions", "one request elects in 1 to %d partitions", MostMoves)
	}
	cmd := metadata.ElectLeaders{Type: e.Type}
	refs := make([]ref, len(e.Partitions))
	for i, p := range e.Partitions {
		refs[i] = ref{p.Topic, p.Partition}
	}
	out, at, err := s.resolve(ctx, "/partitions", refs, func(i int, t model.TopicID) {
		cmd.Partitions = append(cmd.Partitions, metadata.PartitionRef{Topic: t, Partition: refs[i].partition})
	})
	if err != nil || len(cmd.Partitions) == 0 {
		return out, err
	}
	return out, s.carryOut(ctx, cmd, false, outcomes{out, at})
}

// displaced are the partitions that their preferred leader could lead and does not.
func (s *Service) displaced() (out []Asked) {
	img := s.Cluster.Image()
	for _, r := range placement.Preferred(img, func(model.BrokerID) bool { return true }, MostMoves) {
		out = append(out, Asked{Topic: img.TopicByID(r.Topic).Name, Partition: r.Partition})
	}
	return out
}
