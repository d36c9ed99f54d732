package assign

import (
	"container/heap"
	"fmt"
	"slices"
	"strings"

	"tidewire/internal/model"
)

// Exact bounds the work of the exact way: partitions × arcs, an arc being a class with one
// of its subscribers. 100 members of one subscription with 2,000 partitions are 200,000;
// 20 million take some tenths of a second.
const Exact = 20_000_000

// class is topics that have the same subscribers. Arrays are by place in subs.
type class struct {
	subs  []int // rank numbers, ascending
	parts []Partition
	owned [][]Partition // what each has now, ascending
	free  []Partition   // nobody's, ascending
	count []int         // how many each is to have
}

// arc is a class as seen by one of its subscribers.
type arc struct{ class, place int }

// flow is the state of a sticky assignment.
type flow struct {
	classes []*class
	arcs    [][]arc // by rank number
	load    []int   // by rank number
}

func (w *work) sticky(budget int) {
	f := w.newFlow()
	work := 0
	for _, c := range f.classes {
		work += len(c.subs)
	}
	parts := 0
	for _, c := range f.classes {
		parts += len(c.parts)
	}
	switch {
	case len(f.classes) == 1:
		f.fill(f.classes[0], parts)
	case work*parts <= budget:
		f.exact(int64(parts) + 1)
	default:
		f.greedy()
	}
	for _, c := range f.classes {
		w.deal(c)
	}
}

// newFlow sorts topics into classes and finds out who owns what.
func (w *work) newFlow() *flow {
	f := &flow{arcs: make([][]arc, len(w.order)), load: make([]int, len(w.order))}
	index := map[string]int{}
	classOf := make([]int, len(w.in.Topics))
	var key strings.Builder
	for t, subs := range w.subscribers {
		classOf[t] = -1
		if len(subs) == 0 {
			continue
		}
		key.Reset()
		for _, r := range subs {
			fmt.Fprintf(&key, "%x,", r)
		}
		i, ok := index[key.String()]
		if !ok {
			i = len(f.classes)
			index[key.String()] = i
			f.classes = append(f.classes, &class{subs: subs, owned: make([][]Partition, len(subs)), count: make([]int, len(subs))})
			for place, r := range subs {
				f.arcs[r] = append(f.arcs[r], arc{i, place})
			}
		}
		classOf[t] = i
		for p := range w.in.Topics[t] {
			f.classes[i].parts = append(f.classes[i].parts, Partition{t, model.PartitionID(p)})
		}
	}
	w.findOwners(f, classOf)
	return f
}

func (w *work) findOwners(f *flow, classOf []int) {
	taken := map[Partition]bool{}
	for r, i := range w.order {
		for _, p := range w.in.Members[i].Owned {
			if p.Topic < 0 || p.Topic >= len(classOf) || classOf[p.Topic] < 0 ||
				p.Index < 0 || int32(p.Index) >= w.in.Topics[p.Topic] || taken[p] {
				continue
			}
			c := f.classes[classOf[p.Topic]]
			if k, ok := slices.BinarySearch(c.subs, r); ok {
				c.owned[k] = append(c.owned[k], p)
				taken[p] = true
			}
		}
	}
	for _, c := range f.classes {
		for _, ps := range c.owned {
			slices.SortFunc(ps, compare)
		}
		for _, p := range c.parts {
			if !taken[p] {
				c.free = append(c.free, p)
			}
		}
	}
}

// fill gives so many of a class to the least loaded, one by one, and among equals to one
// who owns more than it was given so far. With one class that is the exact way.
func (f *flow) fill(c *class, parts int) {
	least := f.byLoad(c)
	for range parts {
		place := least.places[0]
		c.count[place]++
		f.load[c.subs[place]]++
		heap.Fix(least, 0)
	}
}

// exact sends each partition's unit along a cheapest path to a member's load, through
// others if need be (successive shortest paths, which keep a flow at its least cost). A
// member's nth unit costs (2n−1)·weight, so that weight, which is more than all moves
// together, makes the least sum of squares come first and the fewest moves second.
func (f *flow) exact(weight int64) {
	s := newSearch(f, weight)
	for c := range f.classes {
		for range f.classes[c].parts {
			s.augment(c)
		}
	}
}

// search finds cheapest paths. Nodes are classes; members are passed in between.
type search struct {
	*flow
	weight int64
	dist   []int64 // by class
	from   []hop   // by class: how it was reached
	queue  []int
	queued []bool
}

// hop says that a class took the place of another at a member.
type hop struct {
	class int // that the unit comes from
	place int // of the member, in that class
	back  int // of the member, in the class that is reached
}

func newSearch(f *flow, weight int64) *search {
	n := len(f.classes)
	return &search{flow: f, weight: weight, dist: make([]int64, n), from: make([]hop, n), queued: make([]bool, n)}
}

// more is what one more of a class costs at a place: a move, unless it is owned there.
func (c *class) more(place int) int64 {
	if c.count[place] < len(c.owned[place]) {
		return 0
	}
	return 1
}

// less is what one less spares.
func (c *class) less(place int) int64 {
	if c.count[place] <= len(c.owned[place]) {
		return 0
	}
	return 1
}

const unreached = int64(1) << 62

func (s *search) augment(source int) {
	for i := range s.dist {
		s.dist[i] = unreached
	}
	s.dist[source] = 0
	s.queue = append(s.queue[:0], source)
	for len(s.queue) > 0 {
		c := s.queue[0]
		s.queue = s.queue[1:]
		s.queued[c] = false
		s.spread(c)
	}
	// The cheapest way out, the first in order of class and rank among equals.
	best, end := unreached, arc{}
	for c, x := range s.classes {
		if s.dist[c] == unreached {
			continue
		}
		for place, r := range x.subs {
			if d := s.dist[c] + x.more(place) + s.weight*int64(2*s.load[r]+1); d < best {
				best, end = d, arc{c, place}
			}
		}
	}
	s.load[s.classes[end.class].subs[end.place]]++
	s.classes[end.class].count[end.place]++
	for c := end.class; c != source; c = s.from[c].class {
		h := s.from[c]
		s.classes[c].count[h.back]--
		s.classes[h.class].count[h.place]++
	}
}

// spread goes from a class through each subscriber to the other classes that it has
// something of.
func (s *search) spread(c int) {
	x := s.classes[c]
	for place, r := range x.subs {
		if len(s.arcs[r]) == 1 {
			continue
		}
		there := s.dist[c] + x.more(place)
		for _, a := range s.arcs[r] {
			y := s.classes[a.class]
			if a.class == c || y.count[a.place] == 0 {
				continue
			}
			if d := there - y.less(a.place); d < s.dist[a.class] {
				s.dist[a.class], s.from[a.class] = d, hop{c, place, a.place}
				if !s.queued[a.class] {
					s.queued[a.class] = true
					s.queue = append(s.queue, a.class)
				}
			}
		}
	}
}

// greedy keeps what is owned, gives what is free to the least loaded, and then moves
// partitions from members to others that have at least two less, until there are none.
func (f *flow) greedy() {
	for _, c := range f.classes {
		for place, ps := range c.owned {
			c.count[place] = len(ps)
			f.load[c.subs[place]] += len(ps)
		}
	}
	for _, c := range f.classes {
		f.fill(c, len(c.free))
	}
	for moved := true; moved; {
		moved = false
		for _, c := range f.classes {
			moved = f.level(c) || moved
		}
	}
}

// level moves partitions of one class from the most to the least loaded.
func (f *flow) level(c *class) bool {
	moved := false
	for {
		most, least := -1, -1
		for place, r := range c.subs {
			if c.count[place] > 0 && (most < 0 || f.load[r] > f.load[c.subs[most]]) {
				most = place
			}
			if least < 0 || f.load[r] < f.load[c.subs[least]] {
				least = place
			}
		}
		if most < 0 || f.load[c.subs[most]] < f.load[c.subs[least]]+2 {
			return moved
		}
		c.count[most]--
		c.count[least]++
		f.load[c.subs[most]]--
		f.load[c.subs[least]]++
		moved = true
	}
}

// loads is a heap of a class's subscribers, the one that costs least first.
type loads struct {
	f      *flow
	c      *class
	places []int
}

func (f *flow) byLoad(c *class) *loads {
	h := &loads{f: f, c: c, places: make([]int, len(c.subs))}
	for place := range c.subs {
		h.places[place] = place
	}
	heap.Init(h)
	return h
}

func (h *loads) Len() int { return len(h.places) }
func (h *loads) Less(i, j int) bool {
	a, b := h.places[i], h.places[j]
	if x, y := h.f.load[h.c.subs[a]], h.f.load[h.c.subs[b]]; x != y {
		return x < y
	}
	if x, y := h.c.more(a), h.c.more(b); x != y {
		return x < y
	}
	return a < b
}
func (h *loads) Swap(i, j int) { h.places[i], h.places[j] = h.places[j], h.places[i] }
func (h *loads) Push(any)      { panic("a heap of fixed size") }
func (h *loads) Pop() any      { panic("a heap of fixed size") }

// deal gives out a class's partitions by the counts: each keeps what it has as far as its
// count goes, the rest goes to those who lack.
func (w *work) deal(c *class) {
	pool := c.free
	for place, r := range c.subs {
		own := c.owned[place]
		keep := min(len(own), c.count[place])
		for _, p := range own[:keep] {
			w.give(r, p)
		}
		pool = append(pool, own[keep:]...)
	}
	slices.SortFunc(pool, compare)
	for place, r := range c.subs {
		lack := max(0, c.count[place]-len(c.owned[place]))
		for _, p := range pool[:lack] {
			w.give(r, p)
		}
		pool = pool[lack:]
	}
}
