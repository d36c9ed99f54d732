package coordinator

import (
	"slices"

	"tidewire/broker/group"
)

// settle puts a group that was read into the index.
func (a *actor) settle() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone == nil {
		a.reindexLocked()
	}
}

// reindexLocked brings the index up to what the group has to do with.
func (a *actor) reindexLocked() {
	now := a.core.Topics()
	if slices.Equal(now, a.topics) {
		return
	}
	before := a.topics
	a.topics = now
	c := a.shard.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range before {
		if _, still := slices.BinarySearch(now, name); !still {
			c.removeLocked(name, a)
		}
	}
	for _, name := range now {
		groups := c.index[name]
		if groups == nil {
			groups = map[*actor]struct{}{}
			c.index[name] = groups
		}
		groups[a] = struct{}{}
	}
}

func (c *Coordinator) removeLocked(name string, a *actor) {
	delete(c.index[name], a)
	if len(c.index[name]) == 0 {
		delete(c.index, name)
	}
}

// unindexLocked takes the group out of the index; the actor is about to go.
func (a *actor) unindexLocked() {
	c := a.shard.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range a.topics {
		c.removeLocked(name, a)
	}
	a.topics = nil
}

// of are the groups of a topic.
func (c *Coordinator) of(topic string) []*actor {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]*actor, 0, len(c.index[topic]))
	for a := range c.index[topic] {
		out = append(out, a)
	}
	return out
}

// tellTopics tells groups of changed topics. Those that have nothing to do with them find that
// out by themselves.
func (c *Coordinator) tellTopics() {
	for _, a := range c.all() {
		a.post(topicsChanged)
	}
}

func topicsChanged(g *group.Group, env group.Env) (group.Effects, error) {
	return g.TopicsChanged(env), nil
}

// all are the groups that this node looks after and has loaded, in no order.
func (c *Coordinator) all() []*actor {
	var out []*actor
	for _, s := range c.current() {
		out = append(out, s.all()...)
	}
	return out
}

func (c *Coordinator) current() []*shard {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]*shard, 0, len(c.shards))
	for _, s := range c.shards {
		if s != nil {
			out = append(out, s)
		}
	}
	return out
}
