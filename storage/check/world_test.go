package check

import (
	"context"
	"fmt"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
	"tidewire/storage/log"
	"tidewire/storage/record"
)

const (
	dataDir  = "/data"
	interval = 150
)

// stamped gives files a time of change, which the memory keeps none of.
type stamped struct {
	fsx.FS
	now time.Time
}

func (s stamped) ReadDir(name string) ([]fsx.Info, error) {
	infos, err := s.FS.ReadDir(name)
	for i := range infos {
		infos[i].Modified = s.now
	}
	return infos, err
}

// files are the contents of all files below the data folder, by path.
type files map[string][]byte

func load(t *testing.T, fsys fsx.FS) files {
	t.Helper()
	out := files{}
	var walk func(dir string)
	walk = func(dir string) {
		infos, err := fsys.ReadDir(dir)
		require.NoError(t, err)
		for _, i := range infos {
			name := path.Join(dir, i.Name)
			if i.Dir {
				walk(name)
				continue
			}
			b, err := fsx.ReadFile(fsys, name, 1<<24)
			require.NoError(t, err)
			out[name] = b
		}
	}
	walk(dataDir)
	return out
}

// fs makes a file system of the files, with one of them changed: nil deletes it.
func (f files) fs(t *testing.T, changed string, contents []byte) fsx.FS {
	t.Helper()
	mem := fsx.NewMem()
	for name, b := range f {
		if name == changed {
			if b = contents; b == nil {
				continue
			}
		}
		require.NoError(t, mem.MkdirAll(path.Dir(name)))
		w, err := mem.OpenFile(name, fsx.ReadWrite|fsx.Create)
		require.NoError(t, err)
		_, err = w.WriteAt(b, 0)
		require.NoError(t, err)
		require.NoError(t, w.Close())
	}
	return stamped{mem, time.Now()}
}

func run(t *testing.T, fsys fsx.FS, change func(*Options)) ([]Finding, Summary) {
	t.Helper()
	o := Options{FS: fsys, Path: dataDir, Deep: true, IndexInterval: interval}
	if change != nil {
		change(&o)
	}
	var out []Finding
	sum, err := Run(o, func(f Finding) { out = append(out, f) })
	require.NoError(t, err)
	return out, sum
}

func damages(found []Finding) (out []Finding) {
	for _, f := range found {
		if f.Severity == Damage {
			out = append(out, f)
		}
	}
	return out
}

// world is a data folder that the real store writes.
type world struct {
	t     *testing.T
	fs    fsx.FS
	group *lifecycle.Group
	store *log.Store
	logs  []*log.Log
	seq   map[model.ProducerID]int32
	tick  int64
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, fs: fsx.NewMem(), seq: map[model.ProducerID]int32{}, tick: time.Now().UnixMilli() / 300_000 * 300_000}
	w.open()
	return w
}

func (w *world) open() {
	w.group = lifecycle.New(context.Background())
	s, err := log.OpenStore(log.StoreOptions{FS: w.fs, Dir: dataDir, Group: w.group, CheckpointInterval: time.Hour})
	require.NoError(w.t, err)
	w.store, w.logs = s, nil
	cfg := log.Config{SegmentBytes: 2500, IndexIntervalBytes: interval, FileDeleteDelayMs: -1}
	for i, name := range []string{"events", "events", "table"} {
		l, err := s.Open(model.TopicID{9, byte(len(name))}, name, model.PartitionID(i%2), cfg)
		require.NoError(w.t, err)
		w.logs = append(w.logs, l)
	}
}

func (w *world) stop() {
	require.NoError(w.t, w.store.Close())
	require.NoError(w.t, w.group.Stop(10*time.Second))
}

// batch appends records; a producer id of −1 is none.
func (w *world) batch(l *log.Log, id model.ProducerID, attrs record.Attributes, codec record.Codec) {
	w.t.Helper()
	b := record.NewBuilder(512)
	n := int(w.tick%3) + 1
	for i := range n {
		w.tick += 7
		b.Add(w.tick, fmt.Appendf(nil, "k%d", w.tick%5), fmt.Appendf(nil, "value %d %d", w.tick, i), []record.Header{{Name: []byte("h"), Value: nil}})
	}
	if id >= 0 {
		key := id*1000 + model.ProducerID(slices.Index(w.logs, l))
		b.SetProducer(id, 0, w.seq[key])
		b.SetAttributes(attrs)
		w.seq[key] += int32(n)
	}
	out, err := b.Finish(codec)
	require.NoError(w.t, err)
	w.append(l, out)
}

func (w *world) append(l *log.Log, b []byte) {
	w.t.Helper()
	_, err := l.Append(b, max(l.LogEndEpoch(), 0), w.tick)
	require.NoError(w.t, err)
}

func (w *world) end(l *log.Log, id model.ProducerID, typ record.ControlType) {
	w.t.Helper()
	w.tick += 7
	b, err := record.NewBuilder(128).FinishMarker(id, 0, record.Marker{Type: typ, CoordinatorEpoch: 3, Timestamp: w.tick})
	require.NoError(w.t, err)
	w.append(l, b)
}

// round writes several segments into each log: all codecs, idempotent producers,
// transactions that overlap, of which one stays open, and a new leader epoch.
func (w *world) round() {
	w.t.Helper()
	aborted := func(l *log.Log) {
		w.batch(l, 6, record.AttrTransactional, record.None)
		w.end(l, 6, record.ControlAbort)
	}
	for i, l := range w.logs {
		if i != 2 {
			aborted(l)
		}
		for j := range 12 {
			w.batch(l, -1, 0, record.Codec(j%5))
			w.batch(l, 1, 0, record.Codec((j+1)%5))
			if i == 2 {
				w.batch(l, -1, 0, record.None)
				continue
			}
			w.batch(l, 2, record.AttrTransactional, record.None)
			w.batch(l, 3, record.AttrTransactional, record.Zstd)
			w.end(l, 2, record.ControlType(j%2))
			w.batch(l, -1, 0, record.None)
			w.end(l, 3, record.ControlAbort)
		}
		b := record.NewBuilder(128)
		b.Add(w.tick, []byte("k"), []byte("new leader"), nil)
		out, err := b.Finish(record.None)
		require.NoError(w.t, err)
		_, err = l.Append(out, max(l.LogEndEpoch(), 0)+2, w.tick)
		require.NoError(w.t, err)
		w.batch(l, -1, 0, record.Gzip)
		if i != 2 {
			aborted(l)
		}
		w.sync(l)
	}
}

func (w *world) sync(l *log.Log) {
	w.t.Helper()
	l.RequestSync()
	require.Eventually(w.t, func() bool { return l.StableEnd() == l.LogEnd() }, 10*time.Second, time.Millisecond)
}

// history gives the folder after clean stops early and late in its life, and as a kill
// between them leaves it.
func history(t *testing.T) (early, killed, late files) {
	w := newWorld(t)
	w.round()
	w.stop()
	early = load(t, w.fs)
	w.open()
	w.round()
	killed = load(t, w.fs)
	require.NoError(t, w.logs[0].TruncateTo(w.logs[0].LogEnd()-1))
	w.logs[1].SetHighWatermark(w.logs[1].LogEnd())
	require.NoError(t, w.logs[1].AdvanceLogStart(90))
	table := w.logs[2]
	table.SetHighWatermark(table.LogEnd())
	_, err := table.Clean(t.Context(), log.CleanPolicy{HighWatermark: table.LogEnd(), LastStable: table.LogEnd()}, w.tick)
	require.NoError(t, err)
	w.seq = map[model.ProducerID]int32{}
	for i, l := range w.logs {
		for range 9 {
			w.batch(l, 10+model.ProducerID(i), 0, record.None)
		}
		if i != 2 {
			w.batch(l, 4, record.AttrTransactional, record.None)
			w.batch(l, 5, record.AttrTransactional, record.None)
			w.end(l, 5, record.ControlAbort)
		}
		w.sync(l)
		l.SetHighWatermark(l.LogEnd())
	}
	w.stop()
	return early, killed, load(t, w.fs)
}
