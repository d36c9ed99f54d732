package dedupe

import (
	"sync/atomic"

	"tidewire/internal/model"
	"tidewire/storage/record"
)

// Entry is a slice that a log holds, or held.
type Entry struct {
	Stamp
	Base       model.Offset // of its first record
	AppendTime int64        // the log append time of its records, ms; −1: they have their own times
}

// End is the offset behind the slice.
func (e *Entry) End() model.Offset { return e.Base + model.Offset(e.Count) }

// EntryBytes is what an entry counts for in a Budget: itself, and its place in the map, which
// is half empty at times.
const EntryBytes = 128

// Budget bounds the memory of all indexes of a node. It is safe for concurrent use.
type Budget struct {
	limit int64 // bytes
	used  atomic.Int64
}

// NewBudget returns one of so many bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Used is how many bytes the indexes take.
func (b *Budget) Used() int64 { return b.used.Load() }

// blockSize is how many entries lie together.
const blockSize = 256

type block [blockSize]kept

// kept is an entry in memory.
type kept struct {
	Entry
	since int64 // when this process took it in, ms by the steady clock
}

// Index finds the entries of one log by their keys. Its owner's mutex guards it.
type Index struct {
	budget *Budget
	window int64 // ms
	steady func() int64

	blocks []*block       // replaced when its front goes, else only grows
	first  int            // entries of blocks[0] that are forgotten
	n      int            // entries
	base   uint64         // number of the first entry of blocks[0]; numbers are never used again, but by Truncate
	byKey  map[Key]uint64 // the number of a key's newest entry
	peak   int            // most entries since byKey was made
	it     record.Iterator

	filed   bool         // there is a file
	covered model.Offset // what lies below is in the file
	version uint64       // grows with each change
	saved   uint64       // version that the file has
	savedAt int64        // ms
	hurry   bool         // the file is to be written soon
}

// NewIndex returns an empty index within a budget, which may be nil: without limit.
func NewIndex(b *Budget) *Index {
	if b == nil {
		b = NewBudget(1<<63 - 1)
	}
	return &Index{budget: b, byKey: map[Key]uint64{}}
}

// SetWindow says for how long entries count, in ms.
func (x *Index) SetWindow(ms int64) { x.window = ms }

// SetSteady gives the index a clock in ms that nobody sets. With it an entry counts for the window
// from when this process took it in, whatever wall clocks say: a node's that is hours off, or was
// set, would have every repeat stored again.
func (x *Index) SetSteady(clock func() int64) { x.steady = clock }

// Len is the number of entries, forgotten ones left out.
func (x *Index) Len() int { return x.n }

func (x *Index) at(i int) *kept {
	i += x.first
	return &x.blocks[i/blockSize][i%blockSize]
}

// Full reports whether there is no room for another entry.
func (x *Index) Full() bool { return x.budget.used.Load()+EntryBytes > x.budget.limit }

// Enter takes in the stamp of a marked batch. A batch without a stamp that can be read, as
// compaction leaves one, changes nothing.
func (x *Index) Enter(b *record.Batch) {
	s, ok := stampOf(b, &x.it)
	if !ok {
		return
	}
	e := Entry{Stamp: s, Base: b.Header.BaseOffset, AppendTime: -1}
	if b.Header.Attributes.Has(record.AttrLogAppendTime) {
		e.AppendTime = b.Header.MaxTimestamp
	}
	x.push(e)
}

// push appends an entry, which must lie behind those that are there.
func (x *Index) push(e Entry) {
	k := kept{Entry: e}
	if x.steady != nil {
		k.since = x.steady()
	}
	x.put(k)
}

func (x *Index) put(e kept) {
	if x.n > 0 && x.at(x.n-1).End() > e.Base {
		return
	}
	i := x.first + x.n
	if i == len(x.blocks)*blockSize {
		x.blocks = append(x.blocks, new(block))
	}
	x.blocks[i/blockSize][i%blockSize] = e
	x.byKey[e.Key] = x.base + uint64(i)
	x.n++
	x.peak = max(x.peak, x.n)
	x.budget.used.Add(EntryBytes)
	x.version++
}

// Find gives the entry of a key, unless its window has passed. now is in ms.
func (x *Index) Find(k Key, now int64) (Entry, bool) {
	num, ok := x.byKey[k]
	if !ok {
		return Entry{}, false
	}
	e := x.at(int(num-x.base) - x.first)
	return e.Entry, !x.passed(e, now)
}

// passed reports whether an entry counts no more, by both clocks. One of the future, which a clock
// that was set back has left, counts.
func (x *Index) passed(e *kept, now int64) bool {
	return x.Passed(e.Time, now) && (x.steady == nil || x.Passed(e.since, x.steady()))
}

// Passed reports whether a key of a time counts no more. Both are in ms, by one clock.
func (x *Index) Passed(t, now int64) bool { return now-t >= x.window }

// Expire forgets the oldest entries as long as their window has passed. now is in ms.
func (x *Index) Expire(now int64) {
	for x.n > 0 && x.passed(x.at(0), now) {
		e, num := x.at(0), x.base+uint64(x.first)
		if x.byKey[e.Key] == num {
			delete(x.byKey, e.Key)
		}
		x.first++
		x.n--
		x.budget.used.Add(-EntryBytes)
		x.version++
		if x.first == blockSize {
			x.blocks = append([]*block(nil), x.blocks[1:]...)
			x.first, x.base = 0, x.base+blockSize
		}
	}
	switch {
	case x.n == 0 && x.blocks != nil:
		x.reset()
	case x.peak > blockSize && x.n < x.peak/4: // a map keeps the memory of its largest size
		m := make(map[Key]uint64, x.n)
		for k, num := range x.byKey {
			m[k] = num
		}
		x.byKey, x.peak = m, x.n
	}
}

// reset gives the memory back of an index without entries.
func (x *Index) reset() {
	x.blocks, x.first, x.n, x.base = nil, 0, 0, 0
	x.byKey, x.peak = map[Key]uint64{}, 0
}

// Truncate forgets what does not lie below an offset: the log ends there now.
func (x *Index) Truncate(end model.Offset) {
	n := x.n
	for n > 0 && x.at(n-1).End() > end {
		n--
	}
	if n < x.n {
		x.rebuild(n)
	}
}

// Clear forgets everything.
func (x *Index) Clear() { x.rebuild(0) }

// rebuild keeps the first n entries, in memory of their own: a View may hold the old one. An
// older entry of a key is its newest again.
func (x *Index) rebuild(n int) {
	left := make([]kept, 0, n)
	for i := range n {
		left = append(left, *x.at(i))
	}
	x.Release()
	for _, e := range left {
		x.put(e)
	}
	x.version++
}

// Release forgets everything for the sake of the budget: the log is not in service any more.
func (x *Index) Release() {
	x.budget.used.Add(-EntryBytes * int64(x.n))
	x.reset()
}
