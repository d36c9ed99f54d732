package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"tidewire/cluster/controller"
	"tidewire/cluster/founding"
	"tidewire/cluster/membership"
	"tidewire/cluster/quorum"
)

const (
	joinEvery   = time.Second      // while the node is starting
	rejoinEvery = 10 * time.Second // afterwards, for members that gossip has lost
	foundEvery  = 200 * time.Millisecond
	tellEvery   = 10 * time.Second // what a starting node waits for
	askTime     = time.Second
	votesEvery  = 50 * time.Millisecond
	votesTime   = 30 * time.Second // how long a new cluster's votes are waited for
)

// ErrDuplicateNode says that the node id is in use by another live node.
var ErrDuplicateNode = errors.New("the node id is in use")

// joinLoop keeps this node in touch with others; fail ends the start of the node.
func (c *Cluster) joinLoop(ctx context.Context, fail func(error)) {
	tick := time.NewTicker(joinEvery)
	defer tick.Stop()
	said := map[string]time.Time{}
	reached := false
	for {
		starting := !c.isReady()
		_, failed := c.net.members.Join(c.missing(!starting))
		for address, err := range failed {
			if !starting { // that a broker is gone its fencing says
				break
			}
			c.tell(said, fmt.Sprintf("%s: %v", address, err), "could not join by gossip", "address", address, "error", err)
		}
		reached = reached || c.isReached(ctx, func(by string, a reachAnswer) {
			c.tell(said, "reach", "other nodes do not reach this node by gossip: give it an address that they reach (--gossip-advertise)",
				"address", a.Address, "by", by, "error", a.Error)
		})
		if starting {
			if err := c.findTwin(ctx); err != nil {
				fail(err)
			}
			wait := c.waitsFor()
			if c.cfg.Waits != nil {
				c.cfg.Waits(wait)
			}
			c.tell(said, "waiting", "the node is starting and waits", "for", wait)
		} else {
			tick.Reset(rejoinEvery)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// awaitVotes has a node of a new cluster become ready only when that can lose a node: before the
// votes are given out its founder alone decides, and its end would be the cluster's. A cluster
// whose nodes go while it is founded is not held up for longer than votesTime.
func (c *Cluster) awaitVotes(ctx context.Context) error {
	if c.founder == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, votesTime, errVotesLate)
	defer cancel()
	tick := time.NewTicker(votesEvery)
	defer tick.Stop()
	for c.votes() < controller.Voters(c.cfg.BootstrapExpect) {
		if c.cfg.Waits != nil {
			c.cfg.Waits("votes of the metadata quorum for the other nodes")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if err := context.Cause(ctx); !errors.Is(err, errVotesLate) {
				return err
			}
			c.cfg.Logger.Warn("the new cluster cannot do without any of its voters yet", "voters", c.votes(), "nodes", c.cfg.BootstrapExpect)
			return nil
		}
	}
	return nil
}

var errVotesLate = errors.New("the votes are late")

// votes counts the voters that this node knows.
func (c *Cluster) votes() (n int) {
	for _, s := range c.quorum.Servers() {
		if s.Voter {
			n++
		}
	}
	return n
}

func (c *Cluster) isReady() bool {
	select {
	case <-c.net.ready:
		return true
	default:
		return false
	}
}

// missing are the gossip addresses of nodes that gossip does not see: those that were
// registered, and, until this node is ready, all that it was told to join. A starting node
// joins those too that it sees, since they may still hold its old address for the right one.
func (c *Cluster) missing(ready bool) []string {
	var out []string
	if !ready {
		out = append(out, c.cfg.Network.Join...)
	}
	seen := map[string]bool{}
	if ready {
		for _, m := range c.net.alive() {
			seen[m.Storage] = true
		}
	}
	for b := range c.Image().Brokers() {
		if b.ID != c.cfg.NodeID && b.GossipAddr != "" && !seen[b.StorageID] && !slices.Contains(out, b.GossipAddr) {
			out = append(out, b.GossipAddr)
		}
	}
	own := c.net.members.Self().Gossip
	return slices.DeleteFunc(out, func(a string) bool { return a == own })
}

// tell logs a line, the same one at most every tellEvery.
func (c *Cluster) tell(said map[string]time.Time, key, line string, args ...any) {
	now := time.Now()
	if last, ok := said[key]; ok && now.Sub(last) < tellEvery || !ok && key == "waiting" {
		if !ok {
			said[key] = now // the first seconds of a start are not worth a line
		}
		return
	}
	said[key] = now
	c.cfg.Logger.Warn(line, args...)
}

// waitsFor says why this node is not ready.
func (c *Cluster) waitsFor() string {
	c.foundingMu.Lock()
	wait := c.founderWaits
	c.foundingMu.Unlock()
	servers := c.quorum.Servers()
	switch {
	case c.fsm.WaitsForRoom():
		return "room on its disk, which is full"
	case wait != "" && len(servers) == 0:
		return wait
	case len(servers) == 0 && len(c.net.alive()) == 0:
		return "another node to be there by gossip (--join)"
	case len(servers) == 0:
		return "a cluster to take this node in: its leader must reach " + c.net.members.Self().Peer + " (--peer-advertise)"
	case c.quorum.Leader() == "":
		return "a leader of the metadata quorum: of its voters these are not seen: " + c.unseenVoters(servers)
	}
	return "the node's registration"
}

func (c *Cluster) unseenVoters(servers []quorum.Server) string {
	alive := c.net.alive()
	me := c.identityNow().StorageID
	var out []string
	for _, s := range servers {
		if s.Voter && s.Storage != me && !slices.ContainsFunc(alive, func(m membership.Member) bool { return m.Storage == s.Storage }) {
			out = append(out, s.Storage)
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}

// findTwin looks for another live node of this one's id. The one that belongs to no cluster
// gives way, of two such the one with the higher storage id. That gossip sees it is not
// enough: it may be this node's own life before its data folder was emptied.
func (c *Cluster) findTwin(ctx context.Context) error {
	me := c.identityNow()
	for _, m := range c.net.alive() {
		if m.Node != c.cfg.NodeID || m.Storage == me.StorageID || me.ClusterID != "" {
			continue
		}
		if m.Cluster == "" && m.Storage > me.StorageID {
			continue // it gives way
		}
		ctx, cancel := context.WithTimeout(ctx, askTime)
		_, err := c.net.port.Greet(ctx, m.Storage)
		cancel()
		if err == nil {
			return fmt.Errorf("%w: node %d runs at %s with another data folder (storage id %s); give this node another --node-id",
				ErrDuplicateNode, c.cfg.NodeID, m.Peer, m.Storage)
		}
	}
	return nil
}

// foundLoop takes this node's part in founding a cluster until it belongs to one.
func (c *Cluster) foundLoop(ctx context.Context, fail func(error)) {
	tick := time.NewTicker(foundEvery)
	defer tick.Stop()
	for !c.isReady() {
		if err := c.foundOnce(ctx); err != nil {
			fail(err)
			return
		}
		select {
		case <-tick.C:
		case <-c.net.ready:
		case <-ctx.Done():
			return
		}
	}
}

func (c *Cluster) foundOnce(ctx context.Context) error {
	if len(c.quorum.Servers()) > 0 {
		return nil // it was taken in
	}
	var view []founding.Seen
	for _, m := range c.net.alive() {
		view = append(view, founding.Seen{Node: founding.Node{ID: m.Node, Storage: m.Storage}, Expect: m.Expect, Cluster: m.Cluster})
	}
	c.foundingMu.Lock()
	d := c.founder.Step(view)
	c.founderWaits = d.Wait
	err := c.keepGrantLocked()
	c.foundingMu.Unlock()
	if err != nil {
		return err
	}
	if d.Found {
		c.cfg.Logger.Info("this node founds the cluster", "nodes", c.cfg.BootstrapExpect)
		if err := c.chooseID(); err != nil {
			return err
		}
		if err := c.net.members.SetCluster(c.identityNow().ClusterID); err != nil {
			return err
		}
		return c.quorum.Found(ctx)
	}
	for storage, a := range d.Asks {
		c.net.group.Go("ask for a grant", func(ctx context.Context) { c.askGrant(ctx, storage, a) })
	}
	return nil
}

func (c *Cluster) askGrant(ctx context.Context, storage string, a founding.Ask) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	r, err := ask[founding.Ask, founding.Reply](ctx, c.net.port, storage, methodGrant, a)
	if err != nil {
		c.cfg.Logger.Info("a node was asked to grant the founding and did not answer", "storage_id", storage, "error", err)
		return
	}
	c.foundingMu.Lock()
	defer c.foundingMu.Unlock()
	c.founder.Replied(r)
}

// keepGrantLocked writes this node's grant down when it has changed. The write is short, and
// nothing but founding, which must wait for it, takes the lock.
func (c *Cluster) keepGrantLocked() error {
	g := c.founder.Grant()
	next := quorum.Grant{Node: g.ID, StorageID: g.Storage}
	if next == c.grant {
		return nil
	}
	if err := quorum.SaveGrant(c.cfg.Dir, next); err != nil {
		return fmt.Errorf("keep the grant of the founding: %w", err)
	}
	c.grant = next
	return nil
}

// dropGrant removes what is of no use once the node belongs to a cluster.
func (c *Cluster) dropGrant() error {
	err := os.Remove(quorum.GrantPath(c.cfg.Dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
