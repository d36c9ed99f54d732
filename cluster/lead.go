package cluster

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"tidewire/cluster/controller"
	"tidewire/cluster/membership"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

const (
	// controlEvery is how often the leader compares what is with what it wants.
	controlEvery = 250 * time.Millisecond
	// stepTime bounds one step of it.
	stepTime = 10 * time.Second
	// caughtUpWithin: who has applied what was there that long ago has caught up.
	caughtUpWithin = time.Second
	// handEvery is how often a leader with a full disk tries to hand over.
	handEvery = 5 * time.Second
)

// reign is what the controller remembers while this node leads.
type reign struct {
	since time.Time            // zero while it does not
	gone  map[string]time.Time // by storage id: since when a server is not seen
	past  []indexAt            // what was applied when, oldest first

	handed time.Time // when another was last asked to lead

	up     map[model.BrokerID]time.Time // since when a broker is seen unfenced
	looked time.Time                    // when partitions were looked at last
	stuck  int                          // partitions that the last look could not move
}

type indexAt struct {
	at    time.Time
	index uint64
}

// controlLoop runs the two halves of the controller while this node leads. A change of the
// servers that does not come through must not keep brokers from being fenced, so each half
// has a goroutine.
func (c *Cluster) controlLoop(ctx context.Context, half func(context.Context, *reign, time.Time)) {
	tick := time.NewTicker(controlEvery)
	defer tick.Stop()
	r := &reign{}
	for {
		now := time.Now() // only differences count, by the monotonic clock
		switch {
		case !c.quorum.IsLeader():
			*r = reign{}
		case r.since.IsZero():
			*r = reign{since: now, gone: map[string]time.Time{}}
		default:
			step, cancel := context.WithTimeout(ctx, stepTime)
			half(step, r, now)
			cancel()
		}
		select {
		case <-tick.C:
		case <-c.net.kick:
		case <-ctx.Done():
			return
		}
	}
}

// controlServers makes the next change of the quorum's servers.
func (c *Cluster) controlServers(ctx context.Context, r *reign, now time.Time) {
	me, seen := c.identityNow().StorageID, c.serversSeen(r, now)
	if to := controller.HandOver(me, seen); to != "" && now.Sub(r.handed) >= handEvery {
		r.handed = now
		c.cfg.Logger.Warn("the disk is full: another node is to lead the metadata quorum", "storage_id", to)
		if err := c.quorum.HandTo(ctx, to); err != nil {
			c.cfg.Logger.Warn("the metadata quorum has no other leader yet", "storage_id", to, "error", err)
		}
		return
	}
	change := controller.NextServer(me, seen, c.candidates())
	if change.Action == controller.Keep {
		return
	}
	var err error
	switch change.Action {
	case controller.Add:
		err = c.quorum.AddFollower(ctx, change.Storage)
	case controller.Promote:
		err = c.quorum.Promote(ctx, change.Storage)
	case controller.Demote:
		err = c.quorum.Demote(ctx, change.Storage)
	case controller.Remove:
		err = c.quorum.Remove(ctx, change.Storage)
	}
	what := map[controller.Action]string{
		controller.Add: "is taken in", controller.Promote: "gets a vote", controller.Demote: "loses its vote", controller.Remove: "is taken out",
	}[change.Action]
	if err != nil {
		c.cfg.Logger.Warn("the servers of the metadata quorum could not be changed", "storage_id", change.Storage, "change", what, "error", err)
		return
	}
	c.cfg.Logger.Info("the servers of the metadata quorum have changed", "storage_id", change.Storage, "change", what)
	c.wake()
}

// serversSeen joins the quorum's servers with what gossip and heartbeats tell of them.
func (c *Cluster) serversSeen(r *reign, now time.Time) []controller.Server {
	r.past = append(r.past, indexAt{now, c.Image().Index()})
	for len(r.past) > 1 && now.Sub(r.past[1].at) >= caughtUpWithin {
		r.past = r.past[1:]
	}
	members := map[string]membership.Member{}
	for _, m := range c.net.members.Others() {
		members[m.Storage] = m
	}
	registered := map[string]*metadata.Broker{}
	for b := range c.Image().Brokers() {
		registered[b.StorageID] = b
	}
	me := c.identityNow().StorageID
	var out []controller.Server
	for _, s := range c.quorum.Servers() {
		x := controller.Server{Storage: s.Storage, Voter: s.Voter}
		m, inGossip := members[s.Storage]
		b := registered[s.Storage]
		switch {
		case s.Storage == me:
			x.Node, x.Known, x.Alive, x.CaughtUp, x.Registered, x.Full = c.cfg.NodeID, true, true, true, true, c.full()
		case b != nil:
			x.Node, x.Known, x.Registered = b.ID, true, true
			heard, _ := c.net.beats.of(b.ID)
			x.CaughtUp = heard.Storage == s.Storage && heard.Applied >= r.past[0].index
			x.Full = heard.Full
		case inGossip:
			x.Node, x.Known = m.Node, true
		}
		x.Alive = x.Alive || inGossip && m.Status == membership.Alive
		x.Gone = r.goneFor(s.Storage, x.Alive, now)
		out = append(out, x)
	}
	return out
}

// goneFor notes whether a server is seen and returns for how long it is not.
func (r *reign) goneFor(storage string, alive bool, now time.Time) time.Duration {
	if alive {
		delete(r.gone, storage)
		return 0
	}
	since, noted := r.gone[storage]
	if !noted {
		since = now
		r.gone[storage] = since
	}
	return now.Sub(since)
}

// candidates are live nodes that are no servers.
func (c *Cluster) candidates() []controller.Candidate {
	servers := map[string]bool{}
	for _, s := range c.quorum.Servers() {
		servers[s.Storage] = true
	}
	var out []controller.Candidate
	for _, m := range c.net.alive() {
		if !servers[m.Storage] && (m.Cluster == "" || m.Cluster == c.identityNow().ClusterID) {
			out = append(out, controller.Candidate{Storage: m.Storage, Node: m.Node})
		}
	}
	return out
}

// controlFencing fences brokers that are gone and lets those lead that are back.
func (c *Cluster) controlFencing(ctx context.Context, r *reign, now time.Time) {
	img := c.Image()
	heard := c.brokersHeard(r, now)
	c.lookAtPorts(ctx, heard)
	next := controller.NextFencing(heard)
	for _, id := range next.Fence {
		c.cfg.Logger.Warn("a broker is gone and is fenced", "broker", id)
		c.step(ctx, metadata.FenceBroker{ID: id, Epoch: img.Broker(id).Epoch})
	}
	for _, id := range next.Unfence {
		c.cfg.Logger.Info("a broker is back", "broker", id)
		c.step(ctx, metadata.UnfenceBroker{ID: id, Epoch: img.Broker(id).Epoch})
	}
}

// step proposes what the controller wants; what fails is wanted again at the next look.
func (c *Cluster) step(ctx context.Context, cmd metadata.Command) {
	if _, err := c.Propose(ctx, cmd); err != nil {
		c.cfg.Logger.Warn("a step of the controller failed", "step", cmd.Kind(), "error", err)
	}
}

func (c *Cluster) brokersHeard(r *reign, now time.Time) []controller.Broker {
	members := map[string]membership.Status{}
	for _, m := range c.net.members.Others() {
		members[m.Storage] = m.Status
	}
	voters := map[string]bool{}
	for _, s := range c.quorum.Servers() {
		voters[s.Storage] = s.Voter
	}
	var out []controller.Broker
	for b := range c.Image().Brokers() {
		x := controller.Broker{ID: b.ID, Epoch: b.Epoch, Fenced: b.Fenced, Voter: voters[b.StorageID], Silent: now.Sub(r.since), Unheard: true}
		status, inGossip := members[b.StorageID]
		x.Gone = b.ID != c.cfg.NodeID && (!inGossip || status != membership.Alive)
		// What was heard in an earlier reign says nothing of now.
		if heard, ok := c.net.beats.of(b.ID); ok && heard.Storage == b.StorageID && !heard.at.Before(r.since) {
			x.Silent, x.Said, x.Applied, x.Stopping, x.Unheard = now.Sub(heard.at), heard.Epoch, heard.Applied, heard.Stopping, false
		}
		out = append(out, x)
	}
	return out
}

// lookTime bounds a look whether a node's port is open; a host that is there answers at once.
const lookTime = 200 * time.Millisecond

// lookAtPorts finds out of brokers that have missed a heartbeat whether their processes are gone.
// What a host does not say, gossip does, some seconds later.
func (c *Cluster) lookAtPorts(ctx context.Context, list []controller.Broker) {
	var looks sync.WaitGroup
	for i := range list {
		b := c.Image().Broker(list[i].ID)
		if !list[i].Suspect() || b == nil || b.ID == c.cfg.NodeID {
			continue
		}
		address, known := c.resolve(b.StorageID)
		if !known {
			continue
		}
		looks.Add(1)
		look := func(context.Context) {
			defer looks.Done()
			list[i].Closed = closed(ctx, address)
		}
		if !c.net.group.Go("look at a port", look) {
			looks.Done()
		}
	}
	looks.Wait()
}

// closed tells that a host refuses connections to a port: nobody listens there.
func closed(ctx context.Context, address string) bool {
	return errors.Is(knock(ctx, address, lookTime), syscall.ECONNREFUSED)
}

// knock opens a connection to a port and says nothing.
func knock(ctx context.Context, address string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err == nil {
		_ = conn.Close() // nothing was said
	}
	return err
}
