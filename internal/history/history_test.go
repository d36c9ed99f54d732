package history

import (
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/internal/sealed"
)

// base is a moment at which a minute, and so a slot of the node, begins.
const base = int64(1_700_000_040_000)

var bounds = []float64{0.001, 0.01, 0.1}

// world records what a test says, at moments that it makes.
type world struct {
	*History
	t      *testing.T
	wall   int64 // milliseconds
	mono   time.Duration
	sample Sample
	topics map[model.TopicID]*TopicSample
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, wall: base, topics: map[model.TopicID]*TopicSample{}}
	for i := range w.sample.Buckets {
		w.sample.Buckets[i] = make([]float64, len(bounds)+1)
	}
	w.History = New(bounds, w.moment())
	return w
}

func (w *world) moment() Moment { return Moment{Wall: time.UnixMilli(w.wall), Mono: w.mono} }

// pass lets time pass on both clocks.
func (w *world) pass(d time.Duration) {
	w.wall += d.Milliseconds()
	w.mono += d
}

// tick lets d pass and records.
func (w *world) tick(d time.Duration) (rewound, full bool) {
	w.pass(d)
	return w.Record(w.moment(), &w.sample, func(yield func(TopicSample) bool) {
		for _, t := range w.topics {
			if !yield(*t) {
				return
			}
		}
	})
}

const step = NodeStepMs * time.Millisecond

// values are those of a series from base on, n of a step.
func (w *world) values(name string, id model.TopicID, stepMs int64, n int64) []float64 {
	w.t.Helper()
	d, _, ok := w.Find(name)
	require.True(w.t, ok, name)
	points := w.Query(Wanted{d, id}, Span{From: base, To: base + n*stepMs, Step: stepMs})
	out := []float64{}
	for i, p := range points {
		require.Equal(w.t, base+int64(i)*stepMs, p.At)
		out = append(out, p.Value)
	}
	return out
}

// same compares values, gaps included; -1 stands for a gap.
func same(t *testing.T, want, have []float64, why ...any) {
	t.Helper()
	got := slices.Clone(have)
	for i, v := range got {
		if math.IsNaN(v) {
			got[i] = -1
		}
	}
	require.InDeltaSlice(t, want, got, 1e-3, why...)
}

var node = model.TopicID{}

func TestRatesAreAveragedGaugesAreTheLastAndGapsAreNotZero(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i, more := range []float64{100, 0, 300, 50} {
		w.sample.Requests += more
		w.sample.Gauges[Memory] = float64(10 + i)
		w.tick(step)
	}
	same(t, []float64{10, 0, 30, 5, -1, -1}, w.values("requests_per_s", node, NodeStepMs, 6))
	same(t, []float64{10, 11, 12, 13, -1, -1}, w.values("memory_bytes", node, NodeStepMs, 6))
	same(t, []float64{5, 17.5, -1}, w.values("requests_per_s", node, 2*NodeStepMs, 3))
	same(t, []float64{12, 13, -1}, w.values("memory_bytes", node, 3*NodeStepMs, 3))
	same(t, []float64{40. / 3, 5, -1}, w.values("requests_per_s", node, 3*NodeStepMs, 3))
	d, _, _ := w.Find("requests_per_s")
	require.Len(t, w.Query(Wanted{Def: d}, Span{From: base + 1, To: base + 1, Step: NodeStepMs}), 0)
	require.Equal(t, base, w.Query(Wanted{Def: d}, Span{From: base + 9999, To: base + 10_000, Step: NodeStepMs})[0].At, "points begin at multiples of the step")
	require.EqualValues(t, 2, Span{From: base + 9999, To: base + 10_001, Step: NodeStepMs}.Points())
}

func TestAQuantileIsOfAllRequestsOfItsStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tick(step)                                                // nothing was asked
	w.sample.Buckets[ProduceRequests] = []float64{90, 10, 0, 0} // fast
	w.tick(step)
	w.sample.Buckets[ProduceRequests] = []float64{90, 10, 100, 0} // slow
	w.tick(step)
	w.sample.Buckets[ProduceRequests] = []float64{90, 10, 100, 5} // beyond all bounds
	w.tick(step)
	p50 := w.values("produce_latency_p50_ms", node, NodeStepMs, 5)
	same(t, []float64{-1, 50. / 90, 10 + 90*0.5, 100, -1}, p50)
	two := w.values("produce_latency_p50_ms", node, 2*NodeStepMs, 2)
	same(t, []float64{50. / 90, 10 + 90*52.5/100}, two)
	three := w.values("produce_latency_p50_ms", node, 3*NodeStepMs, 1)
	same(t, []float64{10}, three)
	require.NotEqual(t, (p50[1]+p50[2])/2, three[0], "no average of quantiles")
	same(t, []float64{-1, -1}, w.values("request_latency_p99_ms", node, 3*NodeStepMs, 2))
}

func TestASampleThatIsLateCountsForTheStepsItMissed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tick(step)
	w.sample.Requests = 60
	w.tick(3*step + 200*time.Millisecond)
	same(t, []float64{0, 60 / 30.2, 60 / 30.2, 60 / 30.2, -1}, w.values("requests_per_s", node, NodeStepMs, 5))
	w.sample.Requests += 1000
	w.sample.Gauges[Memory] = 7
	w.tick(10*step - 200*time.Millisecond)
	same(t, []float64{-1, -1, -1}, w.values("requests_per_s", node, NodeStepMs, 14)[11:], "the node slept: nobody knows when they came")
	same(t, []float64{-1, 7}, w.values("memory_bytes", node, NodeStepMs, 14)[12:])
}

func TestAClockThatIsSetForwardLeavesAGap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tick(step)
	w.wall += time.Hour.Milliseconds()
	w.sample.Requests = 50
	rewound, _ := w.tick(step)
	require.False(t, rewound)
	v := w.values("requests_per_s", node, NodeStepMs, 363)
	same(t, []float64{0, -1}, v[:2])
	same(t, []float64{-1, 5, -1}, v[360:])
}

func TestAClockThatIsSetBackDropsWhatIsYetToCome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := model.TopicID{1}
	w.topics[id] = &TopicSample{ID: id}
	for range 60 {
		w.sample.Requests += 10
		w.tick(step)
	}
	w.wall -= (5 * time.Minute).Milliseconds()
	w.sample.Requests += 20
	rewound, _ := w.tick(step)
	require.True(t, rewound)
	v := w.values("requests_per_s", node, NodeStepMs, 60)
	same(t, []float64{1, 2, -1, -1}, v[29:33])
	for _, later := range v[31:] {
		require.True(t, math.IsNaN(later))
	}
	for range 12 {
		w.tick(step)
	}
	size := w.values("topics/t/size_bytes", id, TopicStepMs, 10)
	same(t, []float64{0, 0, 0, 0}, size[:4])
	same(t, []float64{-1, -1}, size[8:])
	w.wall = 5
	rewound, _ = w.tick(time.Millisecond)
	require.True(t, rewound, "back to 1970")
	w.wall = base
	w.tick(step)
	same(t, []float64{-1, -1}, w.values("requests_per_s", node, NodeStepMs, 60)[2:4])
}

func TestTopicsHaveAnHourByTheMinute(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := model.TopicID{1}, model.TopicID{2}
	w.topics[a] = &TopicSample{ID: a}
	for i := range 6 * 61 {
		w.topics[a].BytesIn += 600
		w.topics[a].Records[1] += 6
		w.topics[a].SizeBytes = int64(i)
		if i == 9 {
			w.topics[b] = &TopicSample{ID: b, BytesIn: 1200}
		}
		w.tick(step)
	}
	in := w.values("topics/a/bytes_in_per_s", a, TopicStepMs, 62)
	same(t, []float64{-1, 60, 60}, in[:3])
	same(t, []float64{60, -1}, in[60:])
	same(t, []float64{-1, 11, 17}, append(w.values("topics/a/size_bytes", a, TopicStepMs, 1), w.values("topics/a/size_bytes", a, TopicStepMs, 3)[1:]...))
	same(t, []float64{0.6, 0.6}, w.values("topics/a/records_out_per_s", a, 2*TopicStepMs, 3)[1:])
	same(t, []float64{-1, 20, 0}, w.values("topics/b/bytes_in_per_s", b, TopicStepMs, 3))
	same(t, []float64{60, 60 + 120}, w.values("bytes_in_per_s", node, NodeStepMs, 10)[8:], "the node's is the sum")

	held := w.Bytes()
	delete(w.topics, b)
	w.tick(step)
	require.Less(t, w.Bytes(), held, "a deleted topic leaves nothing")
	require.Len(t, w.values("topics/b/bytes_in_per_s", b, TopicStepMs, 3), 3)
	w.topics[b] = &TopicSample{ID: b}
	w.tick(step)
	require.True(t, math.IsNaN(w.values("topics/b/bytes_in_per_s", b, TopicStepMs, 3)[1]))
}

func TestANodeHasADayAndNoMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range nodeSlots + 10 {
		w.sample.Gauges[Memory]++
		w.tick(step)
	}
	v := w.values("memory_bytes", node, NodeStepMs, nodeSlots+10)
	same(t, []float64{-1, 11}, v[9:11])
	require.EqualValues(t, nodeSlots+10, v[len(v)-1])
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 10_000 {
		id := model.TopicID{byte(i), byte(i >> 8), 9}
		w.topics[id] = &TopicSample{ID: id}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 12 {
		w.tick(step)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	held := w.Bytes()
	require.LessOrEqual(t, held, 2_000_000+10_000*1200)
	require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(10_000*1500+8<<20), "1.4 kB a topic with its frame; others' tests run beside")
	for i := range MaxTopics {
		id := model.TopicID{byte(i), byte(i >> 8), 8}
		w.topics[id] = &TopicSample{ID: id}
	}
	_, full := w.tick(step)
	require.True(t, full)
	_, full = w.tick(step)
	require.False(t, full, "it is said once")
	require.LessOrEqual(t, w.Bytes(), 2_000_000+MaxTopics*1200)
}

func TestTheHistoryOutlivesARestart(t *testing.T) {
	t.Parallel()
	disk := fsx.NewMem()
	require.NoError(t, disk.MkdirAll("/d"))
	w := newWorld(t)
	require.NoError(t, w.Load(disk, "/d/history"), "there is none yet")
	id := model.TopicID{1}
	w.topics[id] = &TopicSample{ID: id}
	for i := range 30 {
		w.sample.Requests += float64(i)
		w.topics[id].BytesIn += 60
		w.sample.Buckets[AllRequests][1] += 3
		w.tick(step)
	}
	require.NoError(t, w.Save(disk, "/d/history"))

	next := newWorld(t)
	next.wall, next.mono = w.wall+120_000, 0 // down for two minutes, other counts
	next.History = New(bounds, next.moment())
	require.NoError(t, next.Load(disk, "/d/history"))
	next.topics[id] = &TopicSample{ID: id, BytesIn: 600}
	for range 6 {
		next.tick(step)
	}
	for name, stepMs := range map[string]int64{"requests_per_s": NodeStepMs, "request_latency_p95_ms": NodeStepMs, "topics/t/bytes_in_per_s": TopicStepMs} {
		n := 300_000 / stepMs
		old, have := w.values(name, id, stepMs, n), next.values(name, id, stepMs, n)
		require.False(t, slices.ContainsFunc(old[1:], math.IsNaN))
		same(t, old, have)
	}
	same(t, []float64{6, -1, -1, 10}, next.values("topics/t/bytes_in_per_s", id, TopicStepMs, 8)[4:])
	require.True(t, math.IsNaN(next.values("requests_per_s", node, NodeStepMs, 42)[41]), "while it was down")

	other := New([]float64{0.001, 0.5}, next.moment()) // other buckets: what is known by name stays
	require.NoError(t, other.Load(disk, "/d/history"))
	next.History = other
	same(t, w.values("requests_per_s", node, NodeStepMs, 30), next.values("requests_per_s", node, NodeStepMs, 30))
	require.True(t, math.IsNaN(next.values("request_latency_p95_ms", node, NodeStepMs, 30)[20]))
}

func TestADamagedHistoryIsRefusedWhole(t *testing.T) {
	t.Parallel()
	disk := fsx.NewMem()
	require.NoError(t, disk.MkdirAll("/d"))
	w := newWorld(t)
	id := model.TopicID{1}
	w.topics[id] = &TopicSample{ID: id}
	for range 13 {
		w.tick(step)
	}
	payload := w.encode()
	for _, bad := range [][]byte{nil, {0xff}, append(slices.Clone(payload), 0), slices.Repeat([]byte{0xff}, 100)} {
		require.NoError(t, sealed.Write(disk, "/d/h", magic, bad))
		require.ErrorIs(t, newWorld(t).Load(disk, "/d/h"), sealed.ErrDamaged)
	}
	for n := 0; n < len(payload); n += 97 {
		require.NoError(t, sealed.Write(disk, "/d/h", magic, payload[:n]))
		fresh := newWorld(t)
		require.ErrorIs(t, fresh.Load(disk, "/d/h"), sealed.ErrDamaged, "cut to %d", n)
		require.Empty(t, fresh.History.topics)
		require.Zero(t, fresh.History.node.last)
	}
}

func FuzzLoad(f *testing.F) {
	w := &world{}
	w.History = New(bounds, Moment{Wall: time.UnixMilli(base)})
	w.Record(Moment{Wall: time.UnixMilli(base + 10_000), Mono: step}, &Sample{}, func(func(TopicSample) bool) {})
	f.Add(w.encode())
	f.Fuzz(func(t *testing.T, payload []byte) {
		disk := fsx.NewMem()
		require.NoError(t, disk.MkdirAll("/d"))
		require.NoError(t, sealed.Write(disk, "/d/h", magic, payload))
		h := New(bounds, Moment{})
		_ = h.Load(disk, "/d/h") // whatever it is, it neither panics nor takes much
		require.LessOrEqual(t, len(h.node.data), 3_000_000)
	})
}

func TestEverySeriesIsDocumentedAndFoundByItsName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, d := range w.Defs() {
		require.NotEmpty(t, d.Doc)
		require.NotEmpty(t, d.Unit)
		found, topic, ok := w.Find(d.Title("orders"))
		require.True(t, ok, d.Name)
		require.Equal(t, d, *found)
		require.Equal(t, d.Topic, topic == "orders")
	}
	for _, bad := range []string{"", "x", "topics/", "topics//size_bytes", "topics/t", "topics/t/requests_per_s", "size_bytes", "topics/t/size_bytes/x"} {
		_, _, ok := w.Find(bad)
		require.False(t, ok, bad)
	}
	names := map[string]bool{}
	for _, n := range w.columnNames() {
		require.NotEmpty(t, n)
		require.False(t, names[n], n)
		names[n] = true
	}
	require.Contains(t, strings.Join(w.columnNames(), " "), "produce_latency_le_0.01 ")
}
