package forward

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/cluster/metadata"
	"tidewire/cluster/peer"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
)

// Metadata is what is asked who leads.
type Metadata interface {
	Image() *metadata.Image
	Barrier(ctx context.Context) error
}

// Key names a partition.
type Key struct {
	Topic     model.TopicID     `json:"topic"`
	Partition model.PartitionID `json:"partition"`
}

// Place is a leadership: who leads, and in which epoch.
type Place struct {
	Node  model.BrokerID
	Epoch model.LeaderEpoch
}

// LeaderOf tells who leads a partition, by an image: it is the one place where that is looked
// up. Errors: unknown-topic, unknown-partition, and leader-unavailable where nobody leads.
func LeaderOf(img *metadata.Image, k Key) (Place, error) {
	t := img.TopicByID(k.Topic)
	switch {
	case t == nil:
		return Place{}, model.Errorf(model.UnknownTopic, "there is no topic of id %s", k.Topic)
	case k.Partition < 0 || int(k.Partition) >= len(t.Partitions):
		return Place{}, model.Errorf(model.UnknownPartition, "topic %q has partitions 0 to %d, not %d", t.Name, len(t.Partitions)-1, k.Partition)
	}
	p := &t.Partitions[k.Partition]
	if p.Leader == metadata.NoLeader {
		return Place{}, model.Errorf(model.LeaderUnavailable, "partition %d of %q has no leader: none of the nodes that have all of it runs (replicas %v, in sync %v)",
			k.Partition, t.Name, p.Replicas, p.ISR)
	}
	return Place{p.Leader, p.LeaderEpoch}, nil
}

// Client is this node's side of calls to leaders elsewhere. Its methods are safe for
// concurrent use.
type Client struct {
	self  model.BrokerID
	meta  Metadata
	net   Network
	group *lifecycle.Group
	own   atomic.Pointer[Local] // of this node; nil until Own

	mu    sync.Mutex
	feeds map[model.BrokerID]*feed // guarded by mu
}

// NewClient returns a client; its feeds are goroutines of the group. A nil network reaches
// nobody.
func NewClient(self model.BrokerID, m Metadata, n Network, g *lifecycle.Group) *Client {
	if n == nil {
		n = nobody{}
	}
	return &Client{self: self, meta: m, net: n, group: g, feeds: map[model.BrokerID]*feed{}}
}

// Own tells the client how to serve what this node itself leads by the time that it is sent.
func (c *Client) Own(l Local) { c.own.Store(&l) }

// Network is how the client reaches others.
func (c *Client) Network() Network { return c.net }

// nobody is the network of a node that is alone.
type nobody struct{}

var errAlone = errors.New("this node is alone")

// CallBroker implements Network.
func (nobody) CallBroker(context.Context, model.BrokerID, peer.Method, []byte) ([]byte, error) {
	return nil, &peer.CallError{Cause: errAlone}
}

// Times of calls.
const (
	refreshTime = 2 * time.Second  // that a look for a new leader may take
	readTime    = 10 * time.Second // of a read, which is over in a moment
	parkTime    = 20 * time.Second // that a feed's request waits at the leader
)

// notTaken tells that a request was certainly not served where it went, because of where it
// went: another leader may serve it.
func notTaken(err error) bool {
	var call *peer.CallError
	if errors.As(err, &call) {
		return !call.Sent
	}
	e := (*model.Error)(nil)
	return errors.As(err, &e) && e.Code == model.LeaderUnavailable && e.EffectiveOutcome() == model.NotApplied
}

// Lost tells that a request has left and nothing came back.
func Lost(err error) bool {
	var call *peer.CallError
	return errors.As(err, &call) && call.Sent
}

// refreshed brings the metadata up to date and tells who leads now.
func (c *Client) refreshed(ctx context.Context, k Key) (Place, error) {
	ctx, cancel := context.WithTimeout(ctx, refreshTime)
	defer cancel()
	if err := c.meta.Barrier(ctx); err != nil {
		return Place{}, err
	}
	return LeaderOf(c.meta.Image(), k)
}

// Moved looks whether a request that was not taken at a place is to go to another now: it has
// the metadata brought up to date. Errors: why not; leader-unavailable also where this node
// leads by now, whose own partition is then to be asked.
func (c *Client) Moved(ctx context.Context, k Key, from Place, why error) (Place, error) {
	now, err := c.refreshed(ctx, k)
	switch {
	case model.HasCode(err, model.QuorumUnavailable) || model.HasCode(err, model.Timeout):
		return Place{}, Unanswered(k, from, why)
	case err != nil:
		return Place{}, err
	case now == from || now.Node == c.self:
		return Place{}, Unanswered(k, from, why)
	}
	return now, nil
}

// toLeader has a read sent to the leader, and once more to the next one where it was not taken.
func (c *Client) toLeader(ctx context.Context, k Key, send func(ctx context.Context, at Place) error) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	at, err := LeaderOf(c.meta.Image(), k)
	switch {
	case err != nil:
		return err
	case at.Node == c.self:
		return model.Errorf(model.LeaderUnavailable, "partition %d is led by this node by now", k.Partition)
	}
	if err = send(ctx, at); err == nil || !notTaken(err) {
		return Unanswered(k, at, err)
	}
	if at, err = c.Moved(ctx, k, at, err); err != nil {
		return err
	}
	return Unanswered(k, at, send(ctx, at))
}

// Unanswered is the error of a read that got no answer; others stay.
func Unanswered(k Key, at Place, err error) error {
	var call *peer.CallError
	if !errors.As(err, &call) {
		return err
	}
	return model.Errorf(model.LeaderUnavailable, "node %d, which leads partition %d, does not answer", at.Node, k.Partition).WithCause(err)
}
