package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tidewire/internal/model"
)

// beatEvery is how often a node tells the leader that it lives.
const beatEvery = 500 * time.Millisecond

// beat is what a node tells the leader.
type beat struct {
	Node        model.BrokerID `json:"node"`
	Storage     string         `json:"storage"`
	Incarnation uint64         `json:"incarnation"`
	Epoch       int64          `json:"epoch"`   // of its registration
	Applied     uint64         `json:"applied"` // raft index
	Stopping    bool           `json:"stopping,omitempty"`
	Full        bool           `json:"full,omitempty"` // its disk has no room for changes of the metadata
	// ClockAhead is by how many milliseconds the node's wall clock was ahead of the clock of the
	// leader ClockOf, a storage id; "" says that it has not compared them.
	ClockAhead int64  `json:"clock_ahead_ms"`
	ClockOf    string `json:"clock_of"`

	at time.Time // when the leader heard it, by its own monotonic clock
}

// beatAnswer is what the leader has registered under the node's id.
type beatAnswer struct {
	Epoch       int64  `json:"epoch"`
	Incarnation uint64 `json:"incarnation"`
	Wall        int64  `json:"wall_ms"`   // the leader's wall clock, Unix milliseconds
	Median      int64  `json:"median_ms"` // how far the cluster's time is ahead of it
}

// beats are what this node has heard as the leader.
type beats struct {
	mu sync.Mutex
	by map[model.BrokerID]beat // guarded by mu
}

func (b *beats) note(x beat) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.by[x.Node] = x
}

func (b *beats) of(id model.BrokerID) (beat, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x, ok := b.by[id]
	return x, ok
}

// heard takes a beat, as the leader.
func (c *Cluster) heard(b beat) (beatAnswer, error) {
	if !c.quorum.IsLeader() {
		return beatAnswer{}, model.Errorf(model.QuorumUnavailable, "node %d does not lead the metadata quorum", c.cfg.NodeID)
	}
	registered := c.Image().Broker(b.Node)
	if registered == nil {
		return beatAnswer{}, nil
	}
	now := time.Now() // and not Config.Now: only differences count, by the monotonic clock
	if registered.StorageID == b.Storage {
		b.at = now
		c.net.beats.note(b)
	}
	return beatAnswer{
		Epoch: registered.Epoch, Incarnation: registered.Incarnation,
		Wall: c.cfg.Now().UnixMilli(), Median: c.net.beats.median(c.identityNow().StorageID, now).Milliseconds(),
	}, nil
}

// ErrSuperseded says that another process was registered under this node's id.
var ErrSuperseded = errors.New("another process has registered under this node's id")

// beatLoop tells the leader that this node lives, until the node stops.
func (c *Cluster) beatLoop(ctx context.Context) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		if err := c.beatOnce(ctx); err != nil {
			c.cfg.Fatal(err)
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// beatOnce returns an error when this process must not go on.
func (c *Cluster) beatOnce(ctx context.Context) error {
	leader := c.quorum.Leader()
	if leader == "" {
		return nil
	}
	b := beat{
		Node: c.cfg.NodeID, Storage: c.identityNow().StorageID, Incarnation: c.incarnation, Epoch: c.epoch, Applied: c.fsm.Applied(),
		Stopping: c.stopping.Load(), Full: c.full(),
	}
	var ahead time.Duration
	b.ClockOf, ahead = c.net.clock.against()
	b.ClockAhead = ahead.Milliseconds()
	sent := time.Now()
	var a beatAnswer
	var err error
	if leader == b.Storage {
		a, err = c.heard(b)
	} else {
		ctx, cancel := context.WithTimeout(ctx, 2*beatEvery)
		defer cancel()
		a, err = ask[beat, beatAnswer](ctx, c.net.port, leader, methodBeat, b)
	}
	switch {
	case err != nil:
		c.cfg.Logger.Debug("the leader did not take a heartbeat", "error", err)
	case a.Epoch > c.epoch && a.Incarnation != c.incarnation:
		return fmt.Errorf("node %d: %w", c.cfg.NodeID, ErrSuperseded)
	default:
		c.checkClock(leader, a, time.Since(sent))
	}
	return nil
}

// resignTime bounds how long a node that stops waits for others to lead in its place.
const resignTime = 5 * time.Second

// Resign asks the controller for other leaders of what this node leads, and waits until that is
// decided, ctx ends, or there is nobody to decide. The node stops afterwards.
func (c *Cluster) Resign(ctx context.Context) error {
	if c.net == nil || !c.othersLive() {
		return nil
	}
	c.stopping.Store(true)
	ctx, cancel := context.WithTimeout(ctx, resignTime)
	defer cancel()
	for {
		if err := c.beatOnce(ctx); err != nil {
			return err
		}
		c.wake()
		me := c.Image().Broker(c.cfg.NodeID)
		if me == nil || me.Fenced || c.quorum.Leader() == "" || !wait(ctx, retryEvery/4) {
			return nil
		}
	}
}

// othersLive: there is a broker that may lead in this one's place.
func (c *Cluster) othersLive() bool {
	for b := range c.Image().Brokers() {
		if b.ID != c.cfg.NodeID && !b.Fenced {
			return true
		}
	}
	return false
}
