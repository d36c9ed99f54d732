package browse

import (
	"cmp"
	"slices"

	"tidewire/internal/model"
	"tidewire/storage/record"
)

// Scanned is how much a Merge has looked at, what its filter left out included.
type Scanned struct {
	Records int64
	Bytes   int64 // of keys, values and headers
}

// Range is what was read of a partition: the offsets from From up to, but not with, To,
// whichever way it went.
type Range struct {
	Partition model.PartitionID
	From, To  model.Offset
}

// Verdict is what a visitor says of a record.
type Verdict uint8

// Verdicts. A record that is left is the next one again.
const (
	Go Verdict = iota
	StopAfter
	StopBefore
)

// Progress tells why Scan returned.
type Progress uint8

// Progress of a Scan.
const (
	Worked  Progress = iota // the work of one call is done; there may be more
	Stopped                 // the visitor said so
	Dry                     // there is nothing more now
)

// recordWork is what looking at a record counts as, besides its bytes.
const recordWork = 64

// Scan walks on and shows the records that pass a filter to visit, until the visitor has
// enough, there is nothing more, or about so much work, in bytes, was done: so a caller
// can look at the clock and at its client between two calls. After an error Scan may be
// called again. Errors: as Peek.
func (m *Merge) Scan(f *Filter, work int, visit func(Item) Verdict) (Progress, error) {
	for work > 0 {
		it, ok, err := m.Peek()
		if err != nil {
			return Worked, err
		}
		if !ok {
			return Dry, nil
		}
		verdict := Go
		if f.Match(it.Record) {
			verdict = visit(it)
		}
		if verdict == StopBefore {
			return Stopped, nil
		}
		n := Bytes(it.Record)
		m.scanned.Records++
		m.scanned.Bytes += int64(n)
		work -= n + recordWork
		if err := m.Take(); err != nil {
			return Worked, err // the record was shown, and the boundary is behind it
		}
		if verdict == StopAfter {
			return Stopped, nil
		}
	}
	return Worked, nil
}

// Scanned is how much was looked at so far.
func (m *Merge) Scanned() Scanned { return m.scanned }

// Ranges tells what was read of each partition.
func (m *Merge) Ranges() []Range {
	out := make([]Range, len(m.sources))
	for i, s := range m.sources {
		out[i] = Range{s.Partition, min(s.first, s.Next), max(s.first, s.Next)}
	}
	return out
}

// AppendPlaces appends the partitions' boundaries now, in the order in which they were
// added, which is that of their numbers.
func (m *Merge) AppendPlaces(to []Place) []Place {
	for _, s := range m.sources {
		to = append(to, Place{s.Partition, s.Next, s.Bound})
	}
	return to
}

// Began are the boundaries of the beginning.
func (m *Merge) Began() []Place {
	out := m.AppendPlaces(nil)
	for i, s := range m.sources {
		out[i].Next = s.first
	}
	return out
}

// Direction is the way that the merge goes.
func (m *Merge) Direction() Direction { return m.dir }

// After moves, in a list of places, that of a record behind the record.
func (m *Merge) After(places []Place, it Item) {
	i, ok := slices.BinarySearchFunc(places, it.Partition, func(p Place, n model.PartitionID) int { return cmp.Compare(p.Partition, n) })
	switch {
	case !ok:
	case m.dir == Forward:
		places[i].Next = it.Record.Offset + 1
	default:
		places[i].Next = it.Record.Offset
	}
}

// Bytes counts a record as limits of reads do: key, value, headers.
func Bytes(r *record.Record) int {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Name) + len(r.Headers[i].Value)
	}
	return n
}
