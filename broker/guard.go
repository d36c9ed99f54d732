package broker

import (
	"context"
	"sync/atomic"
	"time"

	"tidewire/auth"
	"tidewire/broker/partition"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// Need is a right that a call needs for as long as it lasts.
type Need struct {
	Operation metadata.Operation
	Resource  metadata.ResourceType
	Name      string
}

// OnTopic is the need of an operation on a topic.
func OnTopic(op metadata.Operation, topic string) Need {
	return Need{Operation: op, Resource: metadata.ResourceTopic, Name: topic}
}

// Guard tells a call that lasts when it has to end: within a second after its token, API
// token or session has expired or was revoked, its user was disabled, deleted or given a
// new password, a rule has taken a right away, or a topic that it needs was deleted.
//
//	g := b.Guard(caller, broker.OnTopic(metadata.OpRead, "orders"))
//	defer g.Close()
//	for {
//		if err := g.Check(ctx); err != nil {
//			return err // say why, as the door says it, and end
//		}
//		select {
//		case <-g.Changed():
//		case <-b.Draining(): // the node stops: not an error
//			return nil
//		case <-ctx.Done():
//			return context.Cause(ctx)
//		case <-more: // the call's own work
//		}
//	}
//
// It has no goroutine of its own. Only one goroutine at a time may use it; Changed may be
// received from another.
type Guard struct {
	b       *Broker
	caller  Caller
	watcher *partition.Watcher
	needs   []guarded
	every   bool // woken by every change of the metadata

	// until is when the credential must be verified again, in nanoseconds of the wall clock
	// since 1970; 0: never. The broker's clock loop reads it.
	until atomic.Int64
}

// guarded is a need, with the topic that it was first seen to mean.
type guarded struct {
	Need
	topic  model.TopicID
	pinned bool
	right  bool // only the right is needed, whether the topic is there or not
}

// Guard returns a guard of a call that was let in. A topic is pinned by its id: one that is
// deleted and created anew is another. Close must be called.
func (b *Broker) Guard(c Caller, needs ...Need) *Guard {
	return b.guard(c, partition.NewWatcher(), needs)
}

// GuardCalling is Guard, with a function that is called in the place of Changed, under locks: it
// may not block, and not call the broker.
func (b *Broker) GuardCalling(c Caller, changed func(), needs ...Need) *Guard {
	return b.guard(c, partition.NewCaller(changed), needs)
}

func (b *Broker) guard(c Caller, w *partition.Watcher, needs []Need) *Guard {
	g := &Guard{b: b, watcher: w}
	g.SetCaller(c)
	for _, n := range needs {
		g.Add(n)
	}
	b.watchMu.Lock()
	defer b.watchMu.Unlock()
	b.guards[g] = c.user()
	return g
}

// Changed receives when there may be a reason to end; Check tells.
func (g *Guard) Changed() <-chan struct{} { return g.watcher.C() }

// Caller is on whose behalf the call goes on, with the principal that Check saw last.
func (g *Guard) Caller() Caller { return g.caller }

// SetCaller replaces the caller by another of the same user, whose credential was renewed.
func (g *Guard) SetCaller(c Caller) {
	g.caller = c
	g.note(c.Principal)
}

func (g *Guard) note(p *auth.Principal) {
	switch {
	case g.caller.Credential == nil || p.VerifyBy.IsZero():
		g.until.Store(0)
	default:
		g.until.Store(p.VerifyBy.UnixNano())
	}
}

// Add adds a need.
func (g *Guard) Add(n Need) {
	x := guarded{Need: n}
	x.pin(g.b.meta.Image())
	g.needs = append(g.needs, x)
}

// Clear takes all needs back.
func (g *Guard) Clear() { g.needs = nil }

func (n *guarded) pin(img *metadata.Image) {
	if n.pinned || n.Resource != metadata.ResourceTopic {
		return
	}
	if t := img.Topic(n.Name); t != nil {
		n.topic, n.pinned = t.ID, true
	}
}

// Check tells whether the call may go on. Errors, in this order: what the credential says
// (unauthenticated, token-expired), forbidden, unknown-topic; and the quorum's where it had
// to be asked.
func (g *Guard) Check(ctx context.Context) error {
	if err := g.verify(ctx); err != nil {
		return err
	}
	for i := range g.needs {
		if err := g.b.may(ctx, g.caller, g.needs[i].Need); err != nil {
			// A disabled user has no rights either, and may have become one just now: what the
			// credential says goes first.
			if gone := g.verify(ctx); gone != nil {
				return gone
			}
			return err
		}
	}
	for i := range g.needs {
		if err := g.there(ctx, &g.needs[i]); err != nil {
			return err
		}
	}
	return nil
}

func (g *Guard) verify(ctx context.Context) error {
	if g.caller.Credential == nil {
		return nil
	}
	p, err := g.caller.Credential.Verify(ctx)
	if err != nil {
		return err
	}
	g.caller.Principal = p
	g.note(p)
	return nil
}

// there tells whether the topic of a need is still there. One that was seen and is not in
// the image any more was deleted; of one that was never seen the quorum is asked.
func (g *Guard) there(ctx context.Context, n *guarded) error {
	if n.right || n.Resource != metadata.ResourceTopic {
		return nil
	}
	n.pin(g.b.meta.Image())
	if !n.pinned {
		if err := g.b.meta.Barrier(ctx); err != nil {
			return err
		}
		n.pin(g.b.meta.Image())
	}
	if !n.pinned || g.b.meta.Image().TopicByID(n.topic) == nil {
		return unknownTopic(n.Name)
	}
	return nil
}

// Close ends the guard.
func (g *Guard) Close() {
	g.b.watchMu.Lock()
	defer g.b.watchMu.Unlock()
	delete(g.b.guards, g)
}

// Watch wakes w by every change of the metadata, until the returned function is called.
// What ends by the clock alone wakes nobody: a Guard is what a call needs for its caller.
func (b *Broker) Watch(w *partition.Watcher) (cancel func()) {
	g := &Guard{b: b, watcher: w, every: true}
	b.watchMu.Lock()
	defer b.watchMu.Unlock()
	b.guards[g] = ""
	return g.Close
}

// StillAllowed tells, once and from any goroutine, whether a caller that was let in may go
// on: its credential must still be good, and its right still be there. Errors as
// Guard.Check's, but of the topic's existence.
func (b *Broker) StillAllowed(ctx context.Context, c Caller, op metadata.Operation, topic string) error {
	if c.Credential != nil {
		p, err := c.Credential.Verify(ctx)
		if err != nil {
			return err
		}
		c.Principal = p
	}
	return b.may(ctx, c, OnTopic(op, topic))
}

// may tells whether a caller has a right; a refusal is confirmed by the quorum.
func (b *Broker) may(ctx context.Context, c Caller, n Need) error {
	q := auth.Access{Operation: n.Operation, Resource: n.Resource, Name: n.Name, Host: c.Host}
	if b.authorizer.Allowed(c.Principal, q) {
		return nil
	}
	return b.authorizer.Authorize(ctx, c.Principal, q)
}

// user is the name of a caller's user.
func (c *Caller) user() string { return c.Principal.Name }

// concern is whose guards a change of the metadata may matter to.
type concern struct {
	everyone bool
	users    map[string]struct{}
}

func (c *concern) user(name string) {
	if c.users == nil {
		c.users = map[string]struct{}{}
	}
	c.users[name] = struct{}{}
}

// concernOf looks at what a change may end. What was only created ends nothing, so that
// logins wake nobody else.
func concernOf(old *metadata.Image, d *metadata.Delta) concern {
	c := concern{everyone: len(d.Topics) > 0 || len(d.ACLs) > 0}
	for _, change := range d.SigningKeys {
		c.everyone = c.everyone || change != metadata.Created
	}
	if c.everyone {
		return c
	}
	for name, change := range d.Users {
		if change != metadata.Created {
			c.user(name)
		}
	}
	for id, change := range d.Sessions {
		if s := old.Session(id); s != nil && change != metadata.Created {
			c.user(s.User)
		}
	}
	for id, change := range d.APITokens {
		if t := old.APIToken(id); t != nil && change == metadata.Deleted {
			c.user(t.User)
		}
	}
	return c
}

// wakeGuards wakes those that a change concerns.
func (b *Broker) wakeGuards(old *metadata.Image, d *metadata.Delta) {
	c := concernOf(old, d)
	b.watchMu.Lock()
	defer b.watchMu.Unlock()
	for g, user := range b.guards {
		if _, concerned := c.users[user]; concerned || c.everyone || g.every {
			g.watcher.Wake()
		}
	}
}

// guardTick is how often the wall clock is compared with what ends by it.
const guardTick = 500 * time.Millisecond

// guardLoop wakes guards whose credential has to be verified again by the clock, which
// nothing else tells of. It looks at the wall clock, which may be set.
func (b *Broker) guardLoop(ctx context.Context) {
	tick := time.NewTicker(guardTick)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		b.wakeDue(b.now().UnixNano())
	}
}

func (b *Broker) wakeDue(now int64) {
	b.watchMu.Lock()
	defer b.watchMu.Unlock()
	for g := range b.guards {
		if until := g.until.Load(); until != 0 && until <= now {
			g.watcher.Wake()
		}
	}
}
