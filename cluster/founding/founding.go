package founding

import (
	"cmp"
	"fmt"
	"slices"

	"tidewire/internal/model"
)

// Node is who may found: a node id bound to a data folder.
type Node struct {
	ID      model.BrokerID
	Storage string // "" is no node
}

// less orders by node id; two of one id, which is a mistake, by their data folders.
func (n Node) less(o Node) bool {
	return cmp.Or(cmp.Compare(n.ID, o.ID), cmp.Compare(n.Storage, o.Storage)) < 0
}

// String names a node for people.
func (n Node) String() string { return fmt.Sprintf("node %d (data folder %s)", n.ID, n.Storage) }

// Seen is what gossip tells of another node that is alive.
type Seen struct {
	Node
	Expect  int    // 0: it joins and founds nothing
	Cluster string // "" while it belongs to none
}

// Ask is the request for a grant.
type Ask struct {
	From   Node
	Expect int
	// Yielded is a node that has given its own grant to From.
	Yielded Node
}

// Reply answers an Ask. The zero value with From alone is a refusal without a reason: one
// with a lower id than the asker's was asked.
type Reply struct {
	From    Node
	Granted bool
	To      Node // who has the grant already, when that is why
	Member  bool // it belongs to a cluster, or is founding one
	Expect  int  // what it expects, when that is another number
}

// Founder is one node's part. It is not safe for concurrent use.
type Founder struct {
	self    Node
	expect  int
	grant   Node // whom this node has granted; kept on disk
	founded bool
	granted map[string]Node // by storage id: who has granted this node
	refused map[string]Reply
	yielded map[string]Node // by storage id: who has granted this node and may have held others'
}

// New returns the part of a node that belongs to no cluster; grant is what it has kept.
func New(self Node, expect int, grant Node) *Founder {
	return &Founder{
		self: self, expect: expect, grant: grant,
		granted: map[string]Node{}, refused: map[string]Reply{}, yielded: map[string]Node{},
	}
}

// Grant is whom this node has granted; it must be on disk before Ask's reply is sent or
// Found is acted on.
func (f *Founder) Grant() Node { return f.grant }

// Decision is what a look at the others leads to.
type Decision struct {
	Asks  map[string]Ask // by the storage id of whom to ask, now
	Found bool           // found the cluster now: it will not be said twice
	Wait  string         // else: what this node waits for, for people
}

// Step looks at the others. Call it whenever they change and from time to time, since asks
// and replies get lost.
func (f *Founder) Step(view []Seen) Decision {
	if f.founded {
		return Decision{}
	}
	if wait := f.hindrance(view); wait != "" {
		return Decision{Wait: wait}
	}
	if f.grant.Storage == "" {
		f.grant = f.self
	}
	if f.grant != f.self {
		return Decision{Wait: fmt.Sprintf("%s to found the cluster, to which this node has granted it; if that node is gone for good, remove the file grant from the metadata folder", f.grant)}
	}
	if len(f.granted) >= f.expect-1 {
		f.founded = true
		return Decision{Found: true}
	}
	return f.ask(view)
}

// hindrance says why this node asks for nothing now.
func (f *Founder) hindrance(view []Seen) string {
	alike := 1
	for _, s := range view {
		switch {
		case s.Cluster != "":
			return fmt.Sprintf("the cluster %s, of which node %d is, to take this node in", s.Cluster, s.ID)
		case s.Expect == 0:
			continue
		case s.Expect != f.expect:
			return fmt.Sprintf("node %d, which expects %d nodes, to expect %d as this one does (--bootstrap-expect)", s.ID, s.Expect, f.expect)
		}
		alike++
	}
	if alike < f.expect {
		return fmt.Sprintf("%d more nodes: %d of %d are there", f.expect-alike, alike, f.expect)
	}
	for _, s := range view {
		if s.Expect == f.expect && s.Node.less(f.self) {
			return fmt.Sprintf("%s to found the cluster", s.Node)
		}
	}
	return ""
}

// ask asks those that have not granted yet.
func (f *Founder) ask(view []Seen) Decision {
	d := Decision{Asks: map[string]Ask{}}
	for _, s := range view {
		if _, has := f.granted[s.Storage]; has || s.Expect != f.expect {
			continue
		}
		a := Ask{From: f.self, Expect: f.expect}
		if held := f.refused[s.Storage].To; held.Storage != "" {
			a.Yielded = f.yielded[held.Storage]
		}
		d.Asks[s.Storage] = a
	}
	d.Wait = fmt.Sprintf("the grants of %d more nodes", f.expect-1-len(f.granted))
	if why := f.obstacle(); why != "" {
		d.Wait += "; " + why
	}
	return d
}

// obstacle names the first refusal in order of ids.
func (f *Founder) obstacle() string {
	var all []Reply
	for _, r := range f.refused {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Reply) int { return cmp.Compare(a.From.ID, b.From.ID) })
	for _, r := range all {
		switch {
		case r.Member:
			return fmt.Sprintf("node %d belongs to a cluster", r.From.ID)
		case r.Expect != 0:
			return fmt.Sprintf("node %d expects %d nodes", r.From.ID, r.Expect)
		case r.To.Storage != "":
			return fmt.Sprintf("node %d has granted %s", r.From.ID, r.To)
		}
	}
	return ""
}

// Asked answers another node. When the grant has changed, keep it before the reply is sent.
func (f *Founder) Asked(a Ask) Reply {
	r := Reply{From: f.self}
	switch {
	case f.founded:
		r.Member = true
	case a.Expect != f.expect:
		r.Expect = f.expect
	case f.grant == a.From:
		r.Granted = true
	case f.grant.Storage == "" && f.self.less(a.From):
		// The asker does not see this node, which is to be asked first.
	case f.mayGrant(a):
		f.grant, r.Granted = a.From, true
		clear(f.granted) // what this node was given it does not need any more
	default:
		r.To = f.grant
	}
	return r
}

// mayGrant: the grant was given to nobody; or to this node itself or to one that is known to
// have yielded to the asker, and the asker's id is lower.
func (f *Founder) mayGrant(a Ask) bool {
	if f.grant.Storage == "" {
		return true
	}
	return a.From.less(f.grant) && (f.grant == f.self || f.grant == a.Yielded)
}

// Replied takes a reply to an ask of this node.
func (f *Founder) Replied(r Reply) {
	if !r.Granted {
		f.refused[r.From.Storage] = r
		return
	}
	delete(f.refused, r.From.Storage)
	f.granted[r.From.Storage] = r.From
	f.yielded[r.From.Storage] = r.From
}
