package history

import (
	"math"

	"tidewire/internal/model"
)

// Wanted is one series that is asked for, of a topic where Def is a topic's.
type Wanted struct {
	Def   *Def
	Topic model.TopicID
}

// Span is the time that is asked for, in milliseconds since 1970, and the step between
// points, a multiple of the series' own. Points begin at multiples of the step.
type Span struct {
	From int64
	To   int64 // points begin before it
	Step int64
}

// Points is how many points a span has.
func (s Span) Points() int64 {
	if s.To <= s.From {
		return 0
	}
	return (s.To-s.begin()-1)/s.Step + 1
}

func (s Span) begin() int64 { return s.From - s.From%s.Step }

// Point is a value of a series and the time at which its step begins, in milliseconds since
// 1970. A gap is NaN.
type Point struct {
	At    int64
	Value float64
}

// Query gives the points of a series.
func (h *History) Query(w Wanted, s Span) []Point {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := &h.node
	if w.Def.Topic {
		t := h.topics[w.Topic]
		if t == nil {
			t = &topic{ring: ring{columns: topicColumns, slots: topicSlots}} // nothing was measured yet
		}
		r = &t.ring
	}
	out := make([]Point, s.Points())
	own := w.Def.StepMs()
	for i := range out {
		at := s.begin() + int64(i)*s.Step
		out[i] = Point{at, h.aggregateLocked(r, w.Def, at/own, s.Step/own)}
	}
	return out
}

// aggregateLocked makes one value of a run of slots.
func (h *History) aggregateLocked(r *ring, d *Def, first, n int64) float64 {
	if d.Aggregation == Quantile {
		return h.quantileLocked(r, d, first, n)
	}
	sum, last, seen := 0.0, math.NaN(), 0
	for s := first; s < first+n; s++ {
		row := r.at(s)
		if row == nil || isGap(row[d.column]) {
			continue
		}
		last = float64(row[d.column])
		sum += last
		seen++
	}
	if d.Aggregation == Last || seen == 0 {
		return last
	}
	return sum / float64(seen)
}

// quantileLocked estimates a quantile over all observations of a run of slots, as if those
// of a bucket were spread evenly in it; in milliseconds. Without observations it is a gap.
func (h *History) quantileLocked(r *ring, d *Def, first, n int64) float64 {
	buckets := make([]float64, len(h.bounds)+1)
	total := 0.0
	for s := first; s < first+n; s++ {
		row := r.at(s)
		if row == nil {
			continue
		}
		for k := range buckets {
			if v := row[d.column+k]; !isGap(v) {
				buckets[k] += float64(v)
				total += float64(v)
			}
		}
	}
	if total <= 0 {
		return math.NaN()
	}
	rank, below, lower := d.quantile*total, 0.0, 0.0
	for k, bound := range h.bounds {
		if below+buckets[k] >= rank && buckets[k] > 0 {
			return 1000 * (lower + (bound-lower)*(rank-below)/buckets[k])
		}
		below += buckets[k]
		lower = bound
	}
	return 1000 * lower // beyond all bounds
}
