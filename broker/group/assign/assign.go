// Package assign decides which member of a consumer group reads which partition. It is
// pure: the same topics, members and earlier assignment give the same answer on every
// node, whatever order the members are listed in.
//
// # The assignors
//
//   - range goes topic by topic: the topic's partitions are laid over its subscribers, in
//     order of their rank, in runs of consecutive numbers; with n partitions and m
//     subscribers the first n mod m of them get one more. Topics with equally many
//     partitions and the same subscribers are laid alike, so that what belongs together by
//     key meets at one member.
//   - roundrobin deals all topic-partitions, in order, to the members in turn; a member
//     that is not subscribed to the topic is passed over.
//   - sticky balances: the loads are as even as subscriptions let them be (the least sum of
//     their squares, which is within one where all subscribe to the same), and among the
//     ways to that it takes one with the fewest partitions moved from their owners.
//
// Sticky is a minimum-cost flow. Topics with the same subscribers are one class: which of
// a class's partitions a member has makes no difference to load or moves, except that it
// keeps those it has. So the flow is over counts, classes × members, and partitions are
// dealt afterwards. For subscriptions so varied that the flow would take long (Exact) it
// is replaced by a greedy way, which is balanced in the sense that no single move evens
// loads further, but may move more than needed.
package assign

import (
	"cmp"
	"slices"

	"tidewire/internal/model"
)

// Name is an assignor's name, as clients give it.
type Name string

// The assignors.
const (
	Range      Name = "range"
	RoundRobin Name = "roundrobin"
	Sticky     Name = "sticky"
)

// Names are the assignors' names, in the order in which they are documented.
func Names() []Name { return []Name{Range, RoundRobin, Sticky} }

// Known tells whether there is an assignor of that name.
func Known(n Name) bool { return slices.Contains(Names(), n) }

// Partition is one partition of an input's topic.
type Partition struct {
	Topic int // index into Input.Topics
	Index model.PartitionID
}

// compare orders partitions by topic, then number.
func compare(a, b Partition) int {
	if c := cmp.Compare(a.Topic, b.Topic); c != 0 {
		return c
	}
	return cmp.Compare(a.Index, b.Index)
}

// Member is a member with what it wants and has.
type Member struct {
	// Rank orders the members and is different for each: the instance id of a static
	// member, so that its replacement takes its place; else the member id.
	Rank string
	// Topics are the indexes of the topics that it subscribes to, ascending, none twice.
	Topics []int
	// Owned is what the assignment so far gives it. Entries that no longer exist, that it
	// is not subscribed to, or that a member of lower rank claims too, are passed over.
	Owned []Partition
}

// Input is what an assignment is made from.
type Input struct {
	Topics  []int32 // number of partitions of each topic; their order is the caller's
	Members []Member
}

// Assign gives each partition that somebody subscribes to to one member. The result is by
// the index of Input.Members, each ascending by topic and number. An unknown name is the
// caller's error and gives what Range gives.
func Assign(name Name, in Input) [][]Partition {
	order := make([]int, len(in.Members))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(in.Members[a].Rank, in.Members[b].Rank) })
	w := &work{in: in, order: order, out: make([][]Partition, len(in.Members))}
	w.subscribe()
	switch name {
	case RoundRobin:
		w.roundRobin()
	case Sticky:
		w.sticky(Exact)
	default:
		w.ranges()
	}
	for _, ps := range w.out {
		slices.SortFunc(ps, compare)
	}
	return w.out
}

// work is one assignment being made. Members are numbered by rank in it.
type work struct {
	in          Input
	order       []int   // rank number → index in Input.Members
	subscribers [][]int // by topic: rank numbers, ascending
	out         [][]Partition
}

func (w *work) subscribe() {
	w.subscribers = make([][]int, len(w.in.Topics))
	for r, i := range w.order {
		for _, t := range w.in.Members[i].Topics {
			w.subscribers[t] = append(w.subscribers[t], r)
		}
	}
}

// give assigns a partition to the member of a rank number.
func (w *work) give(r int, p Partition) {
	i := w.order[r]
	w.out[i] = append(w.out[i], p)
}

func (w *work) ranges() {
	for t, n := range w.in.Topics {
		subs := w.subscribers[t]
		if len(subs) == 0 {
			continue
		}
		share, extra := int(n)/len(subs), int(n)%len(subs)
		p := model.PartitionID(0)
		for k, r := range subs {
			count := share
			if k < extra {
				count++
			}
			for range count {
				w.give(r, Partition{t, p})
				p++
			}
		}
	}
}

func (w *work) roundRobin() {
	turn := 0 // the rank number whose turn it is
	for t, n := range w.in.Topics {
		subs := w.subscribers[t]
		if len(subs) == 0 {
			continue
		}
		for p := range n {
			// The first subscriber at or after the turn, around the circle.
			k, _ := slices.BinarySearch(subs, turn)
			if k == len(subs) {
				k = 0
			}
			w.give(subs[k], Partition{t, model.PartitionID(p)})
			turn = subs[k] + 1
		}
	}
}
