package group

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"tidewire/broker/group/assign"
	"tidewire/internal/model"
)

// Group is one consumer group: a fold of its records, and what is not durable. Its owner
// serialises the calls.
type Group struct {
	id       string
	settings Settings

	// Durable: changed by Apply alone.
	info    GroupInfo
	topics  map[model.TopicID]TopicInfo
	members map[string]*member
	gone    map[string]*gone
	offsets map[string]map[model.PartitionID]Offset // by topic name
	staged  map[model.ProducerID]map[Name]Offset

	// Derived from the durable part, by Apply too.
	holders   map[Partition]string // who has it, or is having it revoked
	aims      map[Partition]string // whose target it is in
	instances map[string]string    // instance id → member id

	// Not durable.
	order      []string // ids of the members that have joined, ascending; nil: to be made
	assigned   bool     // a target was made since Load
	assignedAt time.Duration
	next       time.Duration // no deadline is earlier
	hasNext    bool
	patterns   map[string]*pattern
	deleted    map[string]bool        // names of topics that the group has seen deleted
	recreated  map[model.TopicID]bool // topics whose name was among them
}

// member is one member, with its target and what it holds.
type member struct {
	joined  bool // Member was applied
	facts   Member
	target  []TopicPartitions
	version Version
	grants  []TopicGrants

	// Not durable.
	deadline   time.Duration // end of its session
	told       Version       // the newest version that an answer or cursor is known to have shown it
	shown      Version       // the newest version that an answer may have shown it: told, or of before Load
	named      map[Partition]time.Duration
	greeted    bool        // was answered with an assignment that is not pending
	assignment *Assignment // of now, or nil
}

// gone is a member that is remembered after its end.
type gone struct {
	record MemberGone
	until  time.Duration // not durable
}

// New makes an empty group; its records are to be applied, and Load called.
func New(id string, settings Settings) *Group {
	return &Group{
		id: id, settings: settings,
		topics: map[model.TopicID]TopicInfo{}, members: map[string]*member{}, gone: map[string]*gone{},
		offsets: map[string]map[model.PartitionID]Offset{}, staged: map[model.ProducerID]map[Name]Offset{},
		holders: map[Partition]string{}, aims: map[Partition]string{}, instances: map[string]string{},
		patterns: map[string]*pattern{}, deleted: map[string]bool{}, recreated: map[model.TopicID]bool{},
	}
}

// ID is the group's id.
func (g *Group) ID() string { return g.id }

// Apply folds a record into the state. It is for replay; operations call it themselves.
// A record of a type that is not this package's is a programmer's error.
func (g *Group) Apply(r Record) {
	switch r := r.(type) {
	case GroupInfo:
		g.info = r
		g.forgetAssignments()
	case TopicInfo:
		g.topics[r.ID] = r
	case Member:
		m := g.entry(r.ID)
		m.joined, m.facts, g.order = true, r, nil
		if r.InstanceID != "" {
			g.instances[r.InstanceID] = r.ID
		}
	case Target:
		g.setTarget(r.Member, r.Topics)
	case Current:
		g.setCurrent(r)
	case MemberGone:
		g.gone[r.Member] = &gone{record: r}
	case Offset:
		byPartition := g.offsets[r.Topic]
		if byPartition == nil {
			byPartition = map[model.PartitionID]Offset{}
			g.offsets[r.Topic] = byPartition
		}
		byPartition[r.Partition] = r
	case StagedOffset:
		if g.staged[r.Producer] == nil {
			g.staged[r.Producer] = map[Name]Offset{}
		}
		g.staged[r.Producer][Name{r.Offset.Topic, r.Offset.Partition}] = r.Offset
	case Tombstone:
		g.remove(r.Of)
	default:
		panic(fmt.Sprintf("a record that is none of a group: %T", r))
	}
}

// remove applies a tombstone.
func (g *Group) remove(k Key) {
	switch k.Kind {
	case KindGroup:
		g.info = GroupInfo{}
	case KindTopic:
		delete(g.topics, k.TopicID)
	case KindMember:
		if m := g.members[k.Member]; m != nil {
			if g.instances[m.facts.InstanceID] == k.Member {
				delete(g.instances, m.facts.InstanceID)
			}
			m.joined, m.facts, g.order = false, Member{}, nil
			g.tidy(k.Member)
		}
	case KindTarget:
		g.setTarget(k.Member, nil)
		g.tidy(k.Member)
	case KindCurrent:
		g.setCurrent(Current{Member: k.Member})
		g.tidy(k.Member)
	case KindGone:
		delete(g.gone, k.Member)
	case KindOffset:
		delete(g.offsets[k.Topic], k.Partition)
		if len(g.offsets[k.Topic]) == 0 {
			delete(g.offsets, k.Topic)
		}
	case KindStaged:
		delete(g.staged[k.Producer], Name{k.Topic, k.Partition})
		if len(g.staged[k.Producer]) == 0 {
			delete(g.staged, k.Producer)
		}
	default:
		panic(fmt.Sprintf("a tombstone of no kind: %+v", k))
	}
}

func (g *Group) entry(id string) *member {
	m := g.members[id]
	if m == nil {
		m = &member{facts: Member{ID: id}}
		g.members[id] = m
	}
	return m
}

// tidy forgets a member of which nothing is left.
func (g *Group) tidy(id string) {
	if m := g.members[id]; m != nil && !m.joined && m.target == nil && m.version == 0 {
		delete(g.members, id)
	}
}

func (g *Group) setTarget(id string, topics []TopicPartitions) {
	m := g.entry(id)
	for _, t := range m.target {
		for _, p := range t.Partitions {
			if key := (Partition{t.Topic, p}); g.aims[key] == id {
				delete(g.aims, key)
			}
		}
	}
	m.target, m.assignment = topics, nil
	for _, t := range topics {
		for _, p := range t.Partitions {
			g.aims[Partition{t.Topic, p}] = id
		}
	}
}

func (g *Group) setCurrent(r Current) {
	m := g.entry(r.Member)
	for _, t := range m.grants {
		for _, x := range t.Grants {
			if key := (Partition{t.Topic, x.Index}); g.holders[key] == r.Member {
				delete(g.holders, key)
			}
		}
	}
	m.version, m.grants, m.assignment = r.Version, r.Topics, nil
	for _, t := range r.Topics {
		for _, x := range t.Grants {
			g.holders[Partition{t.Topic, x.Index}] = r.Member
		}
	}
}

// forgetAssignments has answers made anew: they tell the epoch.
func (g *Group) forgetAssignments() {
	for _, m := range g.members {
		m.assignment = nil
	}
}

// joinedIDs are the members, in order of id.
func (g *Group) joinedIDs() []string {
	if g.order == nil {
		g.order = make([]string, 0, len(g.members))
		for id, m := range g.members {
			if m.joined {
				g.order = append(g.order, id)
			}
		}
		slices.Sort(g.order)
	}
	return g.order
}

// grant finds what a member has of a partition.
func (m *member) grant(p Partition) (Grant, bool) {
	i, ok := slices.BinarySearchFunc(m.grants, p.Topic, func(t TopicGrants, id model.TopicID) int { return bytes.Compare(t.Topic[:], id[:]) })
	if !ok {
		return Grant{}, false
	}
	gs := m.grants[i].Grants
	j, ok := slices.BinarySearchFunc(gs, p.Index, func(x Grant, n model.PartitionID) int { return cmp.Compare(x.Index, n) })
	if !ok {
		return Grant{}, false
	}
	return gs[j], true
}

// Snapshot gives the records that fold to the durable state, one for each key, in an order
// that depends on the state alone. They are what compaction of the log would leave.
func (g *Group) Snapshot() []Record {
	var out []Record
	if g.info != (GroupInfo{}) {
		out = append(out, g.info)
	}
	for _, id := range slices.SortedFunc(maps.Keys(g.topics), compareIDs) {
		out = append(out, g.topics[id])
	}
	for _, id := range slices.Sorted(maps.Keys(g.members)) {
		m := g.members[id]
		if m.joined {
			out = append(out, m.facts)
		}
		if m.target != nil {
			out = append(out, Target{Member: id, Topics: m.target})
		}
		if m.version != 0 {
			out = append(out, Current{Member: id, Version: m.version, Topics: m.grants})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(g.gone)) {
		out = append(out, g.gone[id].record)
	}
	for _, topic := range slices.Sorted(maps.Keys(g.offsets)) {
		for _, p := range slices.Sorted(maps.Keys(g.offsets[topic])) {
			out = append(out, g.offsets[topic][p])
		}
	}
	for _, producer := range slices.Sorted(maps.Keys(g.staged)) {
		byName := g.staged[producer]
		for _, n := range slices.SortedFunc(maps.Keys(byName), compareNames) {
			out = append(out, StagedOffset{Producer: producer, Offset: byName[n]})
		}
	}
	return out
}

func compareIDs(a, b model.TopicID) int { return bytes.Compare(a[:], b[:]) }

func compareNames(a, b Name) int {
	if c := cmp.Compare(a.Topic, b.Topic); c != 0 {
		return c
	}
	return cmp.Compare(a.Partition, b.Partition)
}

// assignor is the group's, or the default where it has none yet.
func (g *Group) assignor() assign.Name { return assignorOf(g.info.Assignor) }
