package history

import "math"

// ring holds rows of values of the latest slots of time; a slot is a number of steps since
// 1970. The zero slot stands for none.
type ring struct {
	columns int
	slots   int
	last    int64     // newest slot that was written
	data    []float32 // row of slot s at s mod slots; NaN is a gap
}

func newRing(columns, slots int) ring {
	r := ring{columns: columns, slots: slots, data: make([]float32, columns*slots)}
	for i := range r.data {
		r.data[i] = gap
	}
	return r
}

var gap = float32(math.NaN())

func isGap(v float32) bool { return v != v }

func (r *ring) row(slot int64) []float32 {
	i := int(slot%int64(r.slots)) * r.columns
	return r.data[i : i+r.columns]
}

// at is the row of a slot; nil where it is not kept.
func (r *ring) at(slot int64) []float32 {
	if slot <= 0 || slot > r.last || slot <= r.last-int64(r.slots) {
		return nil
	}
	return r.row(slot)
}

// put writes the row of a slot. What lies between it and the newest before becomes a gap;
// what lies behind it is dropped: that time has not come yet.
func (r *ring) put(slot int64, values []float32) {
	if slot <= 0 {
		return
	}
	r.rewind(slot)
	for s := max(r.last+1, slot-int64(r.slots)+1); s < slot; s++ {
		clearRow(r.row(s))
	}
	copy(r.row(slot), values)
	r.last = slot
}

// rewind drops what lies behind a slot, and reports whether there was something.
func (r *ring) rewind(slot int64) bool {
	if slot >= r.last {
		return false
	}
	if r.last-slot >= int64(r.slots) {
		for i := range r.data {
			r.data[i] = gap
		}
	}
	for s := max(slot+1, r.last-int64(r.slots)+1); s <= r.last; s++ {
		clearRow(r.row(s))
	}
	r.last = max(slot, 0)
	return true
}

func clearRow(row []float32) {
	for i := range row {
		row[i] = gap
	}
}

// first is the oldest slot that is kept and holds something; last+1 where there is none.
func (r *ring) first() int64 {
	for s := max(r.last-int64(r.slots)+1, 1); s <= r.last; s++ {
		for _, v := range r.row(s) {
			if !isGap(v) {
				return s
			}
		}
	}
	return r.last + 1
}
