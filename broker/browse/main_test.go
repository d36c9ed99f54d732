package browse

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"tidewire/internal/fsx"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
	"tidewire/storage/log"
	"tidewire/storage/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tb is what testing.TB and rapid.T have in common.
type tb interface {
	Helper()
	Errorf(format string, args ...any)
	FailNow()
}

// rec is a record of the model.
type rec struct {
	part    model.PartitionID
	off     model.Offset
	ts      int64
	key     []byte // nil: null
	value   []byte
	headers []record.Header
}

func (r rec) String() string { return fmt.Sprintf("%d/%d@%d", r.part, r.off, r.ts) }

// topic is real logs beside a model of what they hold.
type topic struct {
	t     tb
	store *log.Store
	group *lifecycle.Group
	logs  []*log.Log
	model [][]rec
	next  []model.Offset
	// visible is what a reader may see of each partition; beyond is in the log already.
	visible []model.Offset
}

func newTopic(t tb, partitions int) *topic {
	t.Helper()
	x := &topic{t: t, group: lifecycle.New(context.Background())}
	var err error
	x.store, err = log.OpenStore(log.StoreOptions{FS: fsx.NewMem(), Dir: "/data", Group: x.group, CheckpointInterval: time.Hour})
	require.NoError(t, err)
	for range partitions {
		x.addPartition()
	}
	return x
}

func (x *topic) addPartition() {
	x.t.Helper()
	p := model.PartitionID(len(x.logs))
	l, err := x.store.Open(model.TopicID{1}, "t", p, log.Config{SegmentBytes: 4000, IndexIntervalBytes: 200})
	require.NoError(x.t, err)
	x.logs, x.model = append(x.logs, l), append(x.model, nil)
	x.next, x.visible = append(x.next, 0), append(x.visible, 0)
}

func (x *topic) close() {
	x.t.Helper()
	require.NoError(x.t, x.store.Close())
	require.NoError(x.t, x.group.Stop(10*time.Second))
}

// end shows all that the logs hold.
func (x *topic) end() {
	for i, l := range x.logs {
		x.visible[i] = l.LogEnd()
	}
}

// add appends a batch behind a gap of offsets.
func (x *topic) add(p int, gap model.Offset, codec record.Codec, records ...rec) {
	x.t.Helper()
	b := record.NewBuilder(1024)
	for i, r := range records {
		r.part, r.off = model.PartitionID(p), x.next[p]+gap+model.Offset(i)
		b.Add(r.ts, r.key, r.value, r.headers)
		x.model[p] = append(x.model[p], r)
	}
	out, err := b.Finish(codec)
	require.NoError(x.t, err)
	x.store2log(p, gap, out, len(records))
}

// marker appends a control batch, which takes an offset and is seen by nobody.
func (x *topic) marker(p int) {
	x.t.Helper()
	out, err := record.NewBuilder(128).FinishMarker(1, 0, record.Marker{Type: record.ControlCommit, Timestamp: 5})
	require.NoError(x.t, err)
	x.store2log(p, 0, out, 1)
}

func (x *topic) store2log(p int, gap model.Offset, batch []byte, n int) {
	x.t.Helper()
	record.SetBaseOffset(batch, x.next[p]+gap)
	record.SetLeaderEpoch(batch, 0)
	_, err := x.logs[p].AppendReplica(batch, true, 0)
	require.NoError(x.t, err)
	x.next[p] += gap + model.Offset(n)
}

// view is a partition as a Merge reads it.
type view struct {
	x *topic
	p int
}

func (v view) Bounds() (start, end model.Offset) { return v.x.logs[v.p].LogStart(), v.x.visible[v.p] }

func (v view) Read(dst []byte, from, limit model.Offset, maxBytes int) ([]byte, error) {
	return v.x.logs[v.p].Read(dst, from, limit, maxBytes)
}

// parts are all partitions from their beginning to their end, or backward.
func (x *topic) parts(dir Direction) []Part {
	out := make([]Part, len(x.logs))
	for p := range x.logs {
		start, end := view{x, p}.Bounds()
		out[p] = Part{model.PartitionID(p), view{x, p}, start, end}
		if dir == Backward {
			out[p].Next = end
		}
	}
	return out
}

// resume are the partitions as a cursor has them.
func (x *topic) resume(places []Place) []Part {
	out := make([]Part, len(places))
	for i, p := range places {
		out[i] = Part{p.Partition, view{x, int(p.Partition)}, p.Next, p.Bound}
	}
	return out
}

// want is the brute force: again and again the least of the next records, or the greatest
// of the previous ones, of those between places and bounds that the log still has.
func (x *topic) want(places []Part, dir Direction, f *Filter) []rec {
	var left [][]rec
	for _, p := range places {
		start, end := p.Log.Bounds()
		var of []rec
		for _, r := range x.model[p.Partition] {
			if r.off >= start && r.off < end && (dir == Forward && r.off >= p.Next && r.off < p.Bound || dir == Backward && r.off < p.Next) {
				of = append(of, r)
			}
		}
		if dir == Backward {
			slices.Reverse(of)
		}
		left = append(left, of)
	}
	out := []rec{}
	for {
		best := -1
		for i, of := range left {
			if len(of) > 0 && (best < 0 || precedes(of[0], left[best][0], dir)) {
				best = i
			}
		}
		if best < 0 {
			return out
		}
		if r := left[best][0]; passes(r, f) {
			out = append(out, r)
		}
		left[best] = left[best][1:]
	}
}

func precedes(a, b rec, dir Direction) bool {
	if dir == Backward {
		a, b = b, a
	}
	return a.ts < b.ts || a.ts == b.ts && a.part < b.part
}

// passes says the same as Filter.Match in other words.
func passes(r rec, f *Filter) bool {
	if f.HasTo && r.ts >= f.To || f.HasKey && (r.key == nil || string(r.key) != string(f.Key)) {
		return false
	}
	if len(f.Text) == 0 {
		return true
	}
	var hay []string
	if f.In&InKey != 0 {
		hay = append(hay, string(r.key))
	}
	if f.In&InValue != 0 {
		hay = append(hay, string(r.value))
	}
	for _, h := range r.headers {
		if f.In&InHeaders != 0 {
			hay = append(hay, string(h.Name), string(h.Value))
		}
	}
	return slices.ContainsFunc(hay, func(s string) bool {
		for i := range s {
			if len(s)-i >= len(f.Text) && s[i:i+len(f.Text)] == string(f.Text) {
				return true
			}
		}
		return false
	})
}

// recOf copies a record out of a merge.
func recOf(it Item) rec {
	r := rec{it.Partition, it.Record.Offset, it.Record.Timestamp, slices.Clone(it.Record.Key), slices.Clone(it.Record.Value), nil}
	for _, h := range it.Record.Headers {
		r.headers = append(r.headers, record.Header{Name: slices.Clone(h.Name), Value: slices.Clone(h.Value)})
	}
	return r
}

// scan reads at most n records. It checks on the way that memory stays within its bound.
func (x *topic) scan(m *Merge, f *Filter, n, work int) (got []rec, last Progress) {
	x.t.Helper()
	got = []rec{}
	for {
		progress, err := m.Scan(f, work, func(it Item) Verdict {
			got = append(got, recOf(it))
			if len(got) == n {
				return StopAfter
			}
			return Go
		})
		require.NoError(x.t, err)
		if progress != Worked {
			return got, progress
		}
	}
}

const all = math.MaxInt

var words = []string{"", "a", "needle", "hay needle hay", "need", "le", "\xff\x00", "{\"a\":1}"}

func drawRec(t *rapid.T) rec {
	r := rec{ts: rapid.Int64Range(0, 40).Draw(t, "ts")}
	if k := rapid.IntRange(-1, 3).Draw(t, "key"); k >= 0 {
		r.key = []byte(words[k])
	}
	if v := rapid.IntRange(-1, len(words)-1).Draw(t, "value"); v >= 0 {
		r.value = []byte(words[v])
	}
	if rapid.IntRange(0, 3).Draw(t, "has headers") == 0 {
		for range rapid.IntRange(1, 3).Draw(t, "headers") {
			h := record.Header{Name: []byte(rapid.SampledFrom(words).Draw(t, "name"))}
			if rapid.Bool().Draw(t, "header value") {
				h.Value = []byte(rapid.SampledFrom(words).Draw(t, "header"))
			}
			r.headers = append(r.headers, h)
		}
	}
	return r
}

// grow adds some batches of every kind.
func (x *topic) grow(t *rapid.T, batches int) {
	for range batches {
		p := rapid.IntRange(0, len(x.logs)-1).Draw(t, "partition")
		if rapid.IntRange(0, 9).Draw(t, "kind") == 0 {
			x.marker(p)
			continue
		}
		n := rapid.SampledFrom([]int{1, 1, 2, 3, 7, 7, 7, 300}).Draw(t, "records")
		one := drawRec(t)
		records := make([]rec, n)
		for i := range records {
			records[i] = one
			if n < 10 {
				records[i] = drawRec(t)
			}
			records[i].ts += int64(i / 50)
		}
		gap := rapid.SampledFrom([]model.Offset{0, 0, 0, 1, 5, 1000, 1 << 20}).Draw(t, "gap")
		x.add(p, gap, record.Codec(rapid.IntRange(0, 4).Draw(t, "codec")), records...)
	}
}

func drawFilter(t *rapid.T) *Filter {
	f := &Filter{}
	if rapid.IntRange(0, 2).Draw(t, "has text") == 0 {
		f.Text, f.In = []byte(rapid.SampledFrom([]string{"needle", "a", "\xff"}).Draw(t, "text")), Parts(rapid.IntRange(1, 7).Draw(t, "in"))
	}
	if rapid.IntRange(0, 3).Draw(t, "has key") == 0 {
		f.Key, f.HasKey = []byte(words[rapid.IntRange(0, 2).Draw(t, "wanted")]), true
	}
	if rapid.IntRange(0, 3).Draw(t, "has to") == 0 {
		f.To, f.HasTo = rapid.Int64Range(0, 45).Draw(t, "to"), true
	}
	return f
}
