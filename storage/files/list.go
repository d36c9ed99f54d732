package files

// list is a queue of handles, each of which is in one list at most.
type list struct {
	first, last *Handle
	n           int
}

func (l *list) front() *Handle { return l.first }

func (l *list) push(h *Handle) {
	h.in, h.prev, h.next = l, l.last, nil
	if l.last == nil {
		l.first = h
	} else {
		l.last.next = h
	}
	l.last = h
	l.n++
}

func (l *list) remove(h *Handle) {
	if h.prev == nil {
		l.first = h.next
	} else {
		h.prev.next = h.next
	}
	if h.next == nil {
		l.last = h.prev
	} else {
		h.next.prev = h.prev
	}
	h.in, h.prev, h.next = nil, nil, nil
	l.n--
}
