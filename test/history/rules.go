package history

import (
	"maps"
	"slices"
)

// checkPolls judges each consumer's steps between its moves.
func (c *checker) checkPolls() {
	occupied := map[string][]int64{}
	for p := range c.byPlace {
		occupied[p.partition] = append(occupied[p.partition], p.offset)
	}
	for _, offsets := range occupied {
		slices.Sort(offsets)
	}
	for _, p := range c.polls {
		if p.to <= p.from {
			c.report(Backward, "line %d: %s read %s@%d after %d", p.line, p.client, p.partition, p.to, p.from)
			continue
		}
		offsets := occupied[p.partition]
		i, _ := slices.BinarySearch(offsets, p.from+1)
		for ; i < len(offsets) && offsets[i] < p.to; i++ {
			if at := (place{p.partition, offsets[i]}); c.visible(at) {
				c.report(Skipped, "line %d: %s read %s@%d after %d and went past %q at %d", p.line, p.client, p.partition, p.to, p.from, c.byPlace[at], at.offset)
				break
			}
		}
	}
}

// visible reports whether a consumer had to see what is at a place: not when its
// transaction did not commit for certain.
func (c *checker) visible(p place) bool {
	v := c.values[c.byPlace[p]]
	return v == nil || v.txn == "" || c.txns[v.txn].committed
}

// checkReads judges what was read against what became of its write.
func (c *checker) checkReads() {
	for _, r := range c.reads {
		if r.v.outcome == failed {
			c.report(FailedRead, "line %d: %s read %q at %s, whose write was certainly not applied", r.line, r.client, r.v.text, r.at)
		}
		if r.v.txn == "" {
			continue
		}
		t := c.txns[r.v.txn]
		switch {
		case r.txn == r.v.txn:
			c.report(OwnUncommitted, "line %d: transaction %q read %q, its own", r.line, r.txn, r.v.text)
		case r.uncommitted:
		case t.aborted:
			c.report(AbortedRead, "line %d: %s read %q of transaction %q, which aborted", r.line, r.client, r.v.text, r.v.txn)
		case t.commitAsked == 0 || r.line < t.commitAsked:
			c.report(UncommittedRead, "line %d: %s read %q of transaction %q before its commit", r.line, r.client, r.v.text, r.v.txn)
		}
	}
}

// checkPlaces judges where a value is.
func (c *checker) checkPlaces(v *value) {
	if v.retry || len(v.seen) == 0 {
		return
	}
	if len(v.seen) > 1 {
		c.report(Duplicate, "%q is at %d places, such as %s and %s", v.text, len(v.seen), v.seen[0], v.seen[1])
	}
	if v.told != nil && !slices.Contains(v.seen, *v.told) {
		c.report(InconsistentOffset, "%q was told to be at %s and was read at %s", v.text, v.told, v.seen[0])
	}
}

// checkPresence judges whether an acknowledged value is there.
func (c *checker) checkPresence(v *value) {
	if v.outcome != acked || v.acks == Leader || len(v.seen) > 0 {
		return
	}
	if v.txn != "" && !c.txns[v.txn].committed {
		return
	}
	if c.deleted(*v.told) {
		return
	}
	if high, any := c.highest[v.told.partition]; any && v.told.offset < high {
		c.report(Lost, "%q was acknowledged at %s, and somebody read up to %d, but nobody it", v.text, v.told, high)
		return
	}
	c.report(Unseen, "%q was acknowledged at %s and is not there at the end", v.text, v.told)
}

// deleted reports whether a place lies below the log start of the end: retention or a
// deletion took it.
func (c *checker) deleted(p place) bool {
	f := c.finals[p.partition]
	return f != nil && p.offset < f.from
}

// checkOrder compares each producer's order of sending with the offsets. What was sent stands
// behind all that was acknowledged before. A write of unknown end may still be under way when its
// producer sends the next one, which may so overtake it; within a request the order holds in any
// case.
func (c *checker) checkOrder() {
	type lane struct{ producer, partition string }
	type stand struct {
		v  *value
		at int64
	}
	sent, acknowledged := map[lane]stand{}, map[lane]stand{}
	for _, v := range c.sorted() {
		if v.retry {
			continue
		}
		p, known := c.placeOf(v)
		if !known {
			continue
		}
		l := lane{v.producer, p.partition}
		before, any := acknowledged[l]
		if s := sent[l]; s.v != nil && s.v.op == v.op && (!any || s.at > before.at) {
			before, any = s, true
		}
		if any && p.offset <= before.at {
			c.report(Misordered, "%s sent %q before %q, but they are at %s@%d and %d", v.producer, before.v.text, v.text, p.partition, before.at, p.offset)
		}
		sent[l] = stand{v, p.offset}
		if v.outcome == acked && (!any || p.offset > before.at) {
			acknowledged[l] = sent[l]
		}
	}
}

// placeOf is where a value is, as read, or as told in a way that cannot change.
func (c *checker) placeOf(v *value) (place, bool) {
	if len(v.seen) > 0 {
		return v.seen[0], true
	}
	if v.told != nil && v.acks != Leader {
		return *v.told, true
	}
	return place{}, false
}

// checkFinals compares the final reads with what was read before, and with themselves.
func (c *checker) checkFinals() {
	for _, partition := range slices.Sorted(maps.Keys(c.finals)) {
		f := c.finals[partition]
		for at := f.from; at < f.to && !f.sparse; at++ {
			if _, there := f.at[at]; !there {
				c.report(Gap, "%s@%d holds nothing at the end", partition, at)
			}
		}
	}
	for _, r := range c.reads {
		f := c.finals[r.at.partition]
		if f == nil || r.at.offset < f.from || r.uncommitted {
			continue
		}
		if _, there := f.at[r.at.offset]; !there {
			c.report(Vanished, "line %d: %s read %q at %s, which is not there at the end", r.line, r.client, r.v.text, r.at)
		}
	}
}

// checkTorn judges each transaction as a whole against the final reads.
func (c *checker) checkTorn() {
	if len(c.finals) == 0 {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(c.txns)) {
		var there, missing *value
		for _, v := range c.txns[id].values {
			switch {
			case c.inFinal(v):
				there = v
			case v.outcome == acked && !c.deleted(*v.told):
				missing = v
			}
		}
		if there != nil && missing != nil {
			c.report(TornTransaction, "of transaction %q %q is there at the end, %q is not", id, there.text, missing.text)
		}
	}
}

func (c *checker) inFinal(v *value) bool {
	for _, p := range v.seen {
		if f := c.finals[p.partition]; f != nil && f.at[p.offset] == v.text {
			return true
		}
	}
	return false
}

// checkCycles looks for transactions that read each other's writes, however far around
// (write-read edges; orders of writes may interleave). Each cycle is reported once.
func (c *checker) checkCycles() {
	edges := map[string]map[string]bool{}
	for _, v := range c.values {
		for _, reader := range v.readByTxn {
			if v.txn == "" || reader == v.txn {
				continue
			}
			if edges[v.txn] == nil {
				edges[v.txn] = map[string]bool{}
			}
			edges[v.txn][reader] = true
		}
	}
	const open, done = 1, 2
	state := map[string]int{}
	var path []string
	var visit func(id string)
	visit = func(id string) {
		state[id] = open
		path = append(path, id)
		for _, next := range slices.Sorted(maps.Keys(edges[id])) {
			switch state[next] {
			case open:
				c.report(Cycle, "transactions %q read each other's writes", path[slices.Index(path, next):])
			case 0:
				visit(next)
			}
		}
		path = path[:len(path)-1]
		state[id] = done
	}
	for _, id := range slices.Sorted(maps.Keys(edges)) {
		if state[id] == 0 {
			visit(id)
		}
	}
}
