package history

import (
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"tidewire/internal/model"
)

// Moment is a point in time by both clocks.
type Moment struct {
	Wall time.Time
	Mono time.Duration // since any moment, the same for all
}

// Sample is what a node measures at once. Counts are since the process began.
type Sample struct {
	Requests, ClientErrors, ServerErrors float64
	Gauges                               [gauges]float64 // NaN where it cannot be told
	// Buckets count, for each histogram, the observations in each bucket, that beyond all
	// bounds being the last.
	Buckets [histograms][]float64
}

// TopicSample is what is measured of a topic. Counts are since the process began.
type TopicSample struct {
	ID        model.TopicID
	BytesIn   int64
	BytesOut  int64
	Records   [2]int64 // produced, and given to readers
	SizeBytes int64
}

// counts are the topic's counters by column.
func (t *TopicSample) counts() [traffic]int64 {
	return [traffic]int64{bytesIn: t.BytesIn, bytesOut: t.BytesOut, recordsIn: t.Records[0], recordsOut: t.Records[1]}
}

// History is what a node measured. Its methods are safe for concurrent use.
type History struct {
	bounds []float64 // of buckets, in seconds
	defs   []Def
	byName map[string]*Def // with a topic's under "topics//NAME"

	mu     sync.Mutex
	node   ring                     // guarded by mu
	topics map[model.TopicID]*topic // guarded by mu
	before cumulated                // guarded by mu: as of the sample before
	minute minute                   // guarded by mu
	round  uint64                   // guarded by mu: of samples, to find topics that are gone
	full   bool                     // guarded by mu: topics were left out for want of room
}

// cumulated is what rates are counted from.
type cumulated struct {
	mono    time.Duration
	counts  [firstGauge - traffic]float64
	buckets [histograms][]float64
}

// minute is the slot of topics that is being filled.
type minute struct {
	slot  int64
	since time.Duration // monotonic
}

type topic struct {
	ring   ring
	before [traffic]int64 // as of the sample before
	base   [traffic]int64 // as of the beginning of the minute
	round  uint64
}

// New returns an empty history whose histograms have these upper bounds, in seconds; all
// counts begin at zero at that moment.
func New(bounds []float64, start Moment) *History {
	n := len(bounds) + 1
	h := &History{
		bounds: bounds, defs: defs(n), byName: map[string]*Def{}, topics: map[model.TopicID]*topic{},
		node: newRing(firstGauge+gauges+histograms*n, nodeSlots), before: cumulated{mono: start.Mono},
	}
	for i := range h.before.buckets {
		h.before.buckets[i] = make([]float64, n)
	}
	for i := range h.defs {
		h.byName[h.defs[i].Title("")] = &h.defs[i]
	}
	h.minute = minute{slot: start.Wall.UnixMilli() / TopicStepMs, since: start.Mono}
	return h
}

// Defs are the definitions of all series.
func (h *History) Defs() []Def { return slices.Clone(h.defs) }

// Find gives the definition of a series by the name it is asked for, with the topic's name
// where it is a topic's. ok is false where there is none.
func (h *History) Find(name string) (d *Def, topic string, ok bool) {
	if rest, ofTopic := strings.CutPrefix(name, topicPrefix); ofTopic {
		topic, name, _ = strings.Cut(rest, "/")
		d, ok = h.byName[topicPrefix+"/"+name]
		return d, topic, ok && topic != ""
	}
	d, ok = h.byName[name]
	return d, "", ok
}

// slotOf is the slot that ends at a moment, or within half a step of it.
func slotOf(at time.Time, step int64) int64 {
	ms := at.UnixMilli() - step/2
	if ms < 0 {
		return 0
	}
	return ms / step
}

// missed is how many steps in a row may pass without a sample, with the next taken for all
// of them: a machine under load is late. What lasts longer is a gap.
const missed = 2

// Record takes a sample. It is to be called where slots of the wall clock end. rewound
// reports that the clock was set back and points were dropped; full, the first time, that
// there are more than MaxTopics.
func (h *History) Record(at Moment, n *Sample, topics iter.Seq[TopicSample]) (rewound, full bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	slot := slotOf(at.Wall, NodeStepMs)
	elapsed := at.Mono - h.before.mono
	steps := (elapsed.Milliseconds() + NodeStepMs/2) / NodeStepMs
	row := make([]float32, h.node.columns)
	h.measureLocked(row, n, elapsed, steps)
	sums, left := h.topicsLocked(at, slot, topics)
	for c, sum := range sums {
		row[c] = rate(float64(sum), elapsed, steps)
	}
	rewound = h.node.rewind(slot)
	if last := h.node.last; last > 0 && slot-last == steps && steps <= missed+1 {
		for s := last + 1; s < slot; s++ {
			h.node.put(s, row)
		}
	}
	h.node.put(slot, row)
	h.before.mono = at.Mono
	full = left && !h.full
	h.full = left
	return rewound, full
}

// rate is a growth per second; a gap where it is not known to which steps it belongs, and
// where a count went back.
func rate(growth float64, elapsed time.Duration, steps int64) float32 {
	if elapsed <= 0 || steps > missed+1 || growth < 0 {
		return gap
	}
	return float32(growth / elapsed.Seconds())
}

func (h *History) measureLocked(row []float32, n *Sample, elapsed time.Duration, steps int64) {
	for i, now := range []float64{n.Requests, n.ClientErrors, n.ServerErrors} {
		row[traffic+i] = rate(now-h.before.counts[i], elapsed, steps)
		h.before.counts[i] = now
	}
	for i, v := range n.Gauges {
		row[firstGauge+i] = float32(v)
	}
	for i := range n.Buckets {
		at := firstGauge + gauges + i*len(h.before.buckets[i])
		for k := range h.before.buckets[i] {
			row[at+k] = gap
			if k < len(n.Buckets[i]) {
				row[at+k] = rate(n.Buckets[i][k]-h.before.buckets[i][k], elapsed, steps)
				h.before.buckets[i][k] = n.Buckets[i][k]
			}
		}
	}
}

// topicsLocked adds up what all topics grew by, and writes their rows when a minute ends.
// left reports that there was no room for some.
func (h *History) topicsLocked(at Moment, slot int64, topics iter.Seq[TopicSample]) (sums [traffic]int64, left bool) {
	h.round++
	ends, into := h.minute.ends(slot)
	whole := at.Mono - h.minute.since
	for s := range topics {
		now := s.counts()
		t := h.topics[s.ID]
		if t == nil {
			if len(h.topics) >= MaxTopics {
				left = true
				continue
			}
			t = &topic{ring: newRing(topicColumns, topicSlots)}
			h.topics[s.ID] = t
		}
		t.round = h.round
		for c := range now {
			sums[c] += max(now[c]-t.before[c], 0)
		}
		t.before = now
		if ends {
			t.close(into, whole, s.SizeBytes)
		}
	}
	for id, t := range h.topics {
		if t.round != h.round {
			delete(h.topics, id)
		}
	}
	if ends {
		h.minute = minute{slot: into + 1, since: at.Mono}
	}
	return sums, left
}

// ends tells whether a minute ends with a slot of the node, and which. One whose end was
// missed ends late; where the clock was set it is the one of now.
func (m *minute) ends(slot int64) (yes bool, into int64) {
	const perMinute = TopicStepMs / NodeStepMs
	now := slot / perMinute
	if slot%perMinute == perMinute-1 {
		return true, now
	}
	return now != m.slot, now - 1
}

// close writes the row of a minute, which lasted for so long.
func (t *topic) close(slot int64, lasted time.Duration, size int64) {
	steps := (lasted.Milliseconds() + TopicStepMs/2) / TopicStepMs
	var row [topicColumns]float32
	for c := range t.before {
		row[c] = rate(float64(t.before[c]-t.base[c]), lasted, steps)
	}
	row[topicSize] = float32(size)
	t.base = t.before
	t.ring.put(slot, row[:])
}

// Bytes is the memory that the values take.
func (h *History) Bytes() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 4 * len(h.node.data)
	for _, t := range h.topics {
		n += 4 * len(t.ring.data)
	}
	return n
}
