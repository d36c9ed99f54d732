package syncer

import "container/heap"

// oldestEvery is how often the member that has waited longest is taken instead of the one
// that most wait for: who comes into a queue of n others is taken after at most
// oldestEvery·n more.
const oldestEvery = 4

// queue is the members that wait for a worker. Those that most wait for go first, since one
// sync serves all who wait for it and costs the same; among equals, and each oldestEvery-th
// time whoever they are, those that have waited longest.
type queue struct {
	wanted wanted
	byAge  []place // first in, first out from head; those that were taken already are passed over
	head   int
	taken  uint64 // how many have been taken
	turn   uint64 // of the last that came
}

type place struct {
	m    *Member
	turn uint64
}

func (q *queue) empty() bool { return len(q.wanted) == 0 }

// push adds a member that is not in the queue.
func (q *queue) push(m *Member) {
	q.turn++
	m.turn = q.turn
	heap.Push(&q.wanted, m)
	q.byAge = append(q.byAge, place{m, m.turn})
}

// ask counts one more who waits for a member of the queue.
func (q *queue) ask(m *Member) {
	m.asked++
	heap.Fix(&q.wanted, m.at)
}

// pop takes the member whose turn it is out of a queue that is not empty.
func (q *queue) pop() *Member {
	q.taken++
	m := q.wanted[0]
	if oldest := q.oldest(); q.taken%oldestEvery == 0 {
		m = oldest
	}
	heap.Remove(&q.wanted, m.at)
	m.turn, m.asked = 0, 0
	return m
}

// oldest is the member that has waited longest. It forgets the places of those taken.
func (q *queue) oldest() *Member {
	for q.byAge[q.head].m.turn != q.byAge[q.head].turn {
		q.byAge[q.head].m = nil
		q.head++
	}
	if q.head >= 1024 && q.head*2 >= len(q.byAge) {
		n := copy(q.byAge, q.byAge[q.head:])
		clear(q.byAge[n:])
		q.byAge, q.head = q.byAge[:n], 0
	}
	return q.byAge[q.head].m
}

// wanted is a heap: most asked for first, then first come.
type wanted []*Member

func (w wanted) Len() int { return len(w) }

func (w wanted) Less(i, j int) bool {
	if w[i].asked != w[j].asked {
		return w[i].asked > w[j].asked
	}
	return w[i].turn < w[j].turn
}

func (w wanted) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].at, w[j].at = i, j
}

func (w *wanted) Push(x any) {
	m := x.(*Member)
	m.at = len(*w)
	*w = append(*w, m)
}

func (w *wanted) Pop() any {
	last := len(*w) - 1
	m := (*w)[last]
	(*w)[last] = nil
	*w = (*w)[:last]
	return m
}
