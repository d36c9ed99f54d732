package coordinator

import (
	"context"
	"sync"

	"tidewire/broker"
	"tidewire/broker/group"
	"tidewire/internal/model"
)

// shard is the groups of one partition of __consumer_offsets, in one leadership of this node.
type shard struct {
	c       *Coordinator
	id      model.PartitionID
	epoch   model.LeaderEpoch
	replica broker.Replica // set before ready is closed
	ready   chan struct{}  // closed once it is loaded, or has ended
	end     chan struct{}  // closed once it has ended

	mu     sync.Mutex
	loaded bool                  // guarded by mu
	failed error                 // guarded by mu: of the last attempt to load
	gone   error                 // guarded by mu: why it has ended
	groups map[string]*actor     // guarded by mu
	again  map[string]*reloading // guarded by mu: groups that are read again
}

// reloading is a group whose state was dropped, until it is read again.
type reloading struct {
	ready chan struct{}
	err   error // of the last attempt; read it under shard.mu
}

func newShard(c *Coordinator, id model.PartitionID, epoch model.LeaderEpoch) *shard {
	return &shard{
		c: c, id: id, epoch: epoch, ready: make(chan struct{}), end: make(chan struct{}),
		groups: map[string]*actor{}, again: map[string]*reloading{},
	}
}

// tried tells whether the shard is loaded, or has failed to.
func (s *shard) tried() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loaded || s.failed != nil || s.gone != nil
}

// current tells whether the shard has not ended.
func (s *shard) current() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone == nil
}

// await waits until the shard is loaded. Errors: leader-unavailable, and what keeps it from
// being loaded.
func (s *shard) await(ctx context.Context) error {
	select {
	case <-s.ready:
	default:
		if err := s.failure(); err != nil {
			return err
		}
		select {
		case <-s.ready:
		case <-s.c.stopped:
			return stopping()
		case <-ctx.Done():
			return model.Errorf(model.LeaderUnavailable, "the coordinator is still reading its groups").WithCause(context.Cause(ctx))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

// failure is why the shard cannot be loaded, as far as that was tried.
func (s *shard) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// actor finds a group of a loaded shard.
func (s *shard) actor(ctx context.Context, name string, create bool) (*actor, error) {
	for {
		a, wait, err := s.get(name, create)
		if wait == nil {
			return a, err
		}
		select {
		case <-wait:
		case <-s.end:
		case <-s.c.stopped:
			return nil, stopping()
		case <-ctx.Done():
			return nil, model.Errorf(model.LeaderUnavailable, "group %q is being read again", name).WithCause(context.Cause(ctx))
		}
	}
}

func (s *shard) get(name string, create bool) (a *actor, wait <-chan struct{}, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone != nil {
		return nil, nil, s.gone
	}
	if r := s.again[name]; r != nil {
		if r.err != nil {
			return nil, nil, r.err
		}
		return nil, r.ready, nil
	}
	if a = s.groups[name]; a == nil && create {
		a = s.newActor(name, group.New(name, s.c.settings))
		s.groups[name] = a
	}
	return a, nil, nil
}

func (s *shard) newActor(name string, core *group.Group) *actor {
	a := &actor{shard: s, name: name, core: core}
	a.timer.a = a
	a.timer.place = -1
	return a
}

// forget drops an actor of which nothing is to be remembered; its own lock is held.
func (s *shard) forget(a *actor) {
	a.closeLocked(errMoved)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groups[a.name] == a {
		delete(s.groups, a.name)
	}
}

// all are the actors of a loaded shard, in no order.
func (s *shard) all() []*actor {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.loaded || s.gone != nil {
		return nil
	}
	out := make([]*actor, 0, len(s.groups))
	for _, a := range s.groups {
		out = append(out, a)
	}
	return out
}

// close ends the shard.
func (s *shard) close(why error) {
	s.mu.Lock()
	if s.gone != nil {
		s.mu.Unlock()
		return
	}
	s.gone = why
	close(s.end)
	if !s.loaded {
		close(s.ready)
	}
	groups := s.groups
	s.groups, s.again = nil, nil
	s.mu.Unlock()
	for _, a := range groups {
		a.close(errMoved)
	}
}
