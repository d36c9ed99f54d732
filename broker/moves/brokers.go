package moves

import (
	"context"
	"math"
	"slices"

	"tidewire/broker"
	"tidewire/cluster/metadata"
	"tidewire/cluster/placement"
	"tidewire/internal/model"
)

// find is a registered broker; that there is none is confirmed by a read barrier.
func (s *Service) find(ctx context.Context, id model.BrokerID) (*metadata.Broker, error) {
	b := s.Cluster.Image().Broker(id)
	if b == nil {
		if err := s.Cluster.Barrier(ctx); err != nil {
			return nil, err
		}
		if b = s.Cluster.Image().Broker(id); b == nil {
			return nil, model.Errorf(model.UnknownBroker, "there is no node %d", id)
		}
	}
	return b, nil
}

// Change is about one broker.
type Change struct {
	ID      model.BrokerID
	IfMatch metadata.ETag // of the broker; "": whatever it is
	DryRun  bool
}

// Drain has the controller move everything that a broker holds to others, and gives its plan.
// Where partitions have nowhere to go nothing is begun. Errors: forbidden, unknown-broker,
// etag-mismatch, conflict, those of the quorum.
func (s *Service) Drain(ctx context.Context, c broker.Caller, ch Change) (*metadata.Broker, placement.Plan, error) {
	if err := s.Broker.MayOnCluster(ctx, c, metadata.OpAlter); err != nil {
		return nil, placement.Plan{}, err
	}
	b, err := s.find(ctx, ch.ID)
	if err != nil {
		return nil, placement.Plan{}, err
	}
	img := s.Cluster.Image()
	plan := placement.Drain(img, math.MaxInt, ch.ID)
	switch others := takersBeside(img, ch.ID); {
	case ch.IfMatch != "" && ch.IfMatch != b.ETag():
		return nil, plan, model.Errorf(model.ETagMismatch, "node %d has changed since", ch.ID)
	case others == 0:
		return nil, plan, model.Errorf(model.Conflict, "no other node is online and takes replicas")
	case len(plan.Stuck) > 0:
		r := plan.Stuck[0]
		return nil, plan, model.Errorf(model.Conflict, "%d partitions have nowhere to go, such as partition %d of %q, which has %d replicas: %d other nodes are online and take replicas",
			len(plan.Stuck), r.Partition, r.Topic.Name, len(r.Of().Target()), others)
	case ch.DryRun:
		return b, plan, nil
	}
	topics := holding(img, ch.ID)
	held, _ := s.states(ctx, topics).holds(topics, ch.ID)
	b, err = s.setState(ctx, c, ch, metadata.SetBrokerState{State: metadata.BrokerDraining, Bytes: held})
	return b, plan, err
}

func takersBeside(img *metadata.Image, id model.BrokerID) (n int) {
	for _, b := range placement.Takers(img) {
		if b.ID != id {
			n++
		}
	}
	return n
}

func (s *Service) setState(ctx context.Context, c broker.Caller, ch Change, cmd metadata.SetBrokerState) (*metadata.Broker, error) {
	cmd.ID, cmd.Principal, cmd.IfMatch, cmd.Now = ch.ID, nameOf(c), ch.IfMatch, metadata.MillisOf(s.Now())
	res, err := s.Cluster.Propose(ctx, cmd)
	if err != nil {
		return nil, err
	}
	b, _ := res.Value.(*metadata.Broker)
	return b, nil
}

// Undrain ends the draining of a broker. What the controller has begun to move away from it and
// is not there yet stays. The moves that were taken back are given; in a dry run those that
// would be. Errors: forbidden, unknown-broker, etag-mismatch, those of the quorum.
func (s *Service) Undrain(ctx context.Context, c broker.Caller, ch Change) (*metadata.Broker, []Moving, error) {
	if err := s.Broker.MayOnCluster(ctx, c, metadata.OpAlter); err != nil {
		return nil, nil, err
	}
	b, err := s.find(ctx, ch.ID)
	switch {
	case err != nil:
		return nil, nil, err
	case ch.IfMatch != "" && ch.IfMatch != b.ETag():
		return nil, nil, model.Errorf(model.ETagMismatch, "node %d has changed since", ch.ID)
	case ch.DryRun:
		return b, s.leaving(ch.ID), nil
	}
	if b, err = s.setState(ctx, c, ch, metadata.SetBrokerState{State: metadata.BrokerActive}); err != nil {
		return nil, nil, err
	}
	back := s.leaving(ch.ID)
	if len(back) == 0 {
		return b, back, nil
	}
	var cmd metadata.CancelReassignments
	for _, m := range back[:min(len(back), MostMoves)] {
		cmd.Partitions = append(cmd.Partitions, metadata.PartitionRef{Topic: m.Topic.ID, Partition: m.Partition})
	}
	res, err := s.Cluster.Propose(ctx, cmd)
	if err != nil {
		return b, nil, err
	}
	altered, _ := res.Value.([]metadata.PartitionAltered)
	taken := make([]Moving, 0, len(altered))
	for i := range altered { // others have ended meanwhile
		if altered[i].Refusal == nil {
			taken = append(taken, back[i])
		}
	}
	return b, taken, nil
}

// leaving are the moves that the controller has begun and that take replicas from a broker.
func (s *Service) leaving(id model.BrokerID) []Moving {
	return slices.DeleteFunc(s.moving(), func(m Moving) bool {
		p := m.Of()
		return p.Move.By != "" || !slices.Contains(p.Removing(), id)
	})
}

// Remove forgets a broker that is stopped and holds nothing; the controller takes it out of the
// quorum. Errors: forbidden, unknown-broker, etag-mismatch, conflict, those of the quorum.
func (s *Service) Remove(ctx context.Context, c broker.Caller, ch Change) error {
	if err := s.Broker.MayOnCluster(ctx, c, metadata.OpAlter); err != nil {
		return err
	}
	if _, err := s.find(ctx, ch.ID); err != nil {
		return err
	}
	_, err := s.Cluster.Propose(ctx, metadata.UnregisterBroker{ID: ch.ID, IfMatch: ch.IfMatch})
	return err
}

// CanStop tells why a broker had better not be stopped now; nothing: it can be. It is as of what
// the quorum has committed. Errors: forbidden, unknown-broker, quorum-unavailable.
func (s *Service) CanStop(ctx context.Context, c broker.Caller, id model.BrokerID) ([]string, error) {
	if err := s.Broker.MayOnCluster(ctx, c, metadata.OpDescribe); err != nil {
		return nil, err
	}
	if err := s.Cluster.Barrier(ctx); err != nil {
		return nil, err
	}
	if _, err := s.find(ctx, id); err != nil {
		return nil, err
	}
	return placement.CanStop(s.Cluster.Image(), id, s.Cluster.VotingBrokers()), nil
}
