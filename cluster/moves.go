package cluster

import (
	"context"
	"time"

	"tidewire/cluster/metadata"
	"tidewire/cluster/placement"
	"tidewire/internal/model"
)

const (
	// lookEvery is how often the controller looks where partitions are.
	lookEvery = time.Second
	// mostMoves is how many partitions move at a time where the controller begins it, and
	// mostElections how many it gives back to their preferred leaders at one look.
	mostMoves, mostElections = 50, 50
	// steadyAfter is how long a broker must have been online before leads go back to it.
	steadyAfter = 15 * time.Second
)

// controlPartitions moves what draining brokers hold, gives internal topics replicas on brokers
// that have come, and leads back to their preferred leaders. All that it goes by is in the
// metadata, so that another controller goes on with it.
func (c *Cluster) controlPartitions(ctx context.Context, r *reign, now time.Time) {
	r.noteUp(c.Image(), now)
	if now.Sub(r.looked) < lookEvery {
		return
	}
	r.looked = now
	img := c.Image()
	if room := mostMoves - placement.Moving(img); room > 0 {
		plan := placement.Drain(img, room)
		c.tellStuck(r, len(plan.Stuck))
		if len(plan.Moves) == 0 {
			plan = placement.Grow(img, room)
		}
		c.begin(ctx, &plan)
	}
	steady := func(id model.BrokerID) bool {
		since, up := r.up[id]
		return up && now.Sub(since) >= steadyAfter
	}
	if back := placement.Preferred(img, steady, mostElections); len(back) > 0 {
		c.step(ctx, metadata.ElectLeaders{Type: metadata.ElectPreferred, Partitions: back})
		c.cfg.Logger.Info("partitions go back to their preferred leaders", "partitions", len(back))
	}
}

// begin proposes a plan.
func (c *Cluster) begin(ctx context.Context, p *placement.Plan) {
	if len(p.Moves) == 0 {
		return
	}
	for _, m := range p.Moves {
		c.cfg.Logger.Info("a partition is moved", "topic", m.Topic.Name, "partition", m.Partition, "from", m.From, "to", m.To)
	}
	c.step(ctx, metadata.AlterReassignments{Moves: p.Reassignments(), Now: metadata.MillisOf(c.cfg.Now())})
}

// tellStuck logs once that partitions cannot be moved.
func (c *Cluster) tellStuck(r *reign, n int) {
	if n > 0 && r.stuck == 0 {
		c.cfg.Logger.Warn("partitions of a draining broker have nowhere to go: there are too few other brokers", "partitions", n)
	}
	r.stuck = n
}

// noteUp notes since when brokers are unfenced.
func (r *reign) noteUp(img *metadata.Image, now time.Time) {
	if r.up == nil {
		r.up = map[model.BrokerID]time.Time{}
	}
	for b := range img.Brokers() {
		if b.Fenced {
			delete(r.up, b.ID)
		} else if _, seen := r.up[b.ID]; !seen {
			r.up[b.ID] = now
		}
	}
}

// VotingBrokers are the brokers that vote in the metadata quorum.
func (c *Cluster) VotingBrokers() []model.BrokerID {
	voters := map[string]bool{}
	for _, s := range c.quorum.Servers() {
		voters[s.Storage] = s.Voter
	}
	var out []model.BrokerID
	for b := range c.Image().Brokers() {
		if voters[b.StorageID] {
			out = append(out, b.ID)
		}
	}
	return out
}
