package partition

// commitQueue is a FIFO of slices that wait for the high watermark. Popped places are
// reused, so that it allocates only while it grows.
type commitQueue struct {
	items []*Slice
	start int
}

func (q *commitQueue) push(s *Slice) {
	if q.start > 64 && q.start*2 > len(q.items) {
		n := copy(q.items, q.items[q.start:])
		clear(q.items[n:])
		q.items, q.start = q.items[:n], 0
	}
	q.items = append(q.items, s)
}

func (q *commitQueue) head() *Slice {
	if q.start == len(q.items) {
		return nil
	}
	return q.items[q.start]
}

func (q *commitQueue) pop() {
	q.items[q.start] = nil
	q.start++
	if q.start == len(q.items) {
		q.items, q.start = q.items[:0], 0
	}
}
