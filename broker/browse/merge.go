package browse

import (
	"sync"

	"tidewire/internal/model"
	"tidewire/storage/record"
)

// Sizes of what a Merge reads at once from one partition; a batch that is larger comes
// whole.
const (
	minChunk = 1 << 10
	maxChunk = 128 << 10
)

// maxInflated bounds what one stored batch may inflate to. Batches were checked against
// the same bound when they were accepted.
const maxInflated = 128 << 20

// Merge gives the records of many partitions as one sequence; see the package comment for
// its order. It is not safe for concurrent use.
type Merge struct {
	dir        Direction
	sources    []*source
	heap       []*source // those that have a head, the next one first
	chunkBytes int
	budget     int // of bytes that the sources hold
	held       int
	free       []byte // one buffer for the next read
	begun      bool   // every source was asked for its head
	scanned    Scanned
}

// NewMerge returns a merge that has read nothing yet. Its sources hold together at most
// budget bytes and one batch.
func NewMerge(parts []Part, dir Direction, budget int) *Merge {
	m := &Merge{dir: dir, budget: budget}
	m.Add(parts)
	return m
}

// Add adds partitions.
func (m *Merge) Add(parts []Part) {
	for _, p := range parts {
		m.sources = append(m.sources, &source{Part: p, merge: m, first: p.Next})
	}
	m.chunkBytes = min(max(m.budget/(2*max(1, len(m.sources))), minChunk), maxChunk)
	m.begun = false
}

// Item is a record of the sequence. It is valid until the next call of the Merge.
type Item struct {
	Partition     model.PartitionID
	Record        *record.Record
	LogAppendTime bool
}

// Peek gives the next record without taking it; not ok: there is none now. Errors:
// storage-error, and what Log.Read says.
func (m *Merge) Peek() (_ Item, ok bool, _ error) {
	if !m.begun {
		if err := m.Refresh(); err != nil {
			return Item{}, false, err
		}
	}
	for len(m.heap) > 0 {
		s := m.heap[0]
		if s.loaded {
			return Item{s.Partition, s.rec, s.walk.logAppendTime()}, true, nil
		}
		if err := m.refill(s); err != nil { // it had given up its bytes
			return Item{}, false, err
		}
	}
	return Item{}, false, nil
}

// Take moves past the record that Peek gave.
func (m *Merge) Take() error {
	s := m.heap[0]
	s.take()
	return m.refill(s)
}

// refill finds the next record of the first source of the heap. After an error the head
// stays, to be read again.
func (m *Merge) refill(s *source) error {
	if err := s.fill(); err != nil {
		s.drop()
		s.has = false
		m.pop()
		m.begun = false
		return err
	}
	if s.has {
		m.down(0)
		m.economise()
		return nil
	}
	m.pop()
	return nil
}

// Refresh looks again at the partitions that had nothing more.
func (m *Merge) Refresh() error {
	m.begun = true
	for _, s := range m.sources {
		if s.has {
			continue
		}
		if err := s.fill(); err != nil {
			s.drop()
			m.begun = false
			return err
		}
		if s.has {
			m.push(s)
			m.economise()
		}
	}
	return nil
}

// Release gives up all bytes that are held, for a while in which nothing is read.
func (m *Merge) Release() {
	for _, s := range m.sources {
		if s.held > 0 {
			s.drop()
		}
	}
	m.free = nil
}

// economise makes sources give up bytes until the budget is kept: those first whose turn
// comes last, and never the one whose turn is next.
func (m *Merge) economise() {
	for m.held > m.budget {
		var last *source
		for _, s := range m.heap[1:] {
			if s.held > 0 && (last == nil || m.before(last, s)) {
				last = s
			}
		}
		if last == nil {
			return
		}
		last.drop()
	}
}

// before tells whether a's head comes before b's.
func (m *Merge) before(a, b *source) bool {
	if m.dir == Backward {
		a, b = b, a
	}
	if a.head.timestamp != b.head.timestamp {
		return a.head.timestamp < b.head.timestamp
	}
	return a.Partition < b.Partition
}

func (m *Merge) push(s *source) {
	m.heap = append(m.heap, s)
	for i := len(m.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !m.before(m.heap[i], m.heap[up]) {
			return
		}
		m.heap[i], m.heap[up] = m.heap[up], m.heap[i]
		i = up
	}
}

func (m *Merge) pop() {
	last := len(m.heap) - 1
	m.heap[0] = m.heap[last]
	m.heap = m.heap[:last]
	m.down(0)
}

func (m *Merge) down(i int) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(m.heap); c++ {
			if m.before(m.heap[c], m.heap[least]) {
				least = c
			}
		}
		if least == i {
			return
		}
		m.heap[i], m.heap[least] = m.heap[least], m.heap[i]
		i = least
	}
}

// decompressors are for one batch each time.
var decompressors = sync.Pool{New: func() any { return record.NewDecompressor(maxInflated) }}

// ownedInflated is from where on what a decompressor gave is taken from it, instead of
// copied.
const ownedInflated = 1 << 20

// inflate gives the records of a batch as bytes that stay.
func inflate(b *record.Batch) ([]byte, error) {
	if b.Header.Attributes.Codec() == record.None {
		return b.Inflate(nil)
	}
	d := decompressors.Get().(*record.Decompressor)
	data, err := b.Inflate(d)
	if err == nil && cap(data) > ownedInflated {
		return data, nil // and d is never used again
	}
	if err == nil {
		data = append(make([]byte, 0, len(data)), data...)
	}
	decompressors.Put(d)
	return data, err
}

// buffer gives memory for a chunk: the source's own, or a spare one.
func (m *Merge) buffer(own []byte) []byte {
	if own == nil {
		own, m.free = m.free, nil
	}
	return own[:0]
}

// spare takes memory back.
func (m *Merge) spare(b []byte) {
	if cap(b) > cap(m.free) && cap(b) <= 2*maxChunk {
		m.free = b
	}
}
