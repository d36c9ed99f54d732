package broker

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/broker/partition"
	"tidewire/cluster/metadata"
	"tidewire/internal/budget"
	"tidewire/internal/fsx"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
	"tidewire/storage/log"
	"tidewire/storage/record"
)

// readings is a partition over a log in memory, and a broker with so much memory for reads.
type readings struct {
	t    *testing.T
	fs   fsx.FS
	b    *Broker
	log  *log.Log
	part *partition.Partition
}

func newReadings(t *testing.T, memory int64) *readings {
	t.Helper()
	g := lifecycle.New(context.Background())
	fs := fsx.NewMem()
	store, err := log.OpenStore(log.StoreOptions{FS: fs, Dir: "/data", Group: g, Now: time.Now, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	require.NoError(t, err)
	l, err := store.Open(model.TopicID{1}, "t", 0, log.Config{MaxMessageBytes: 64 << 20, WriteCaching: true})
	require.NoError(t, err)
	part := partition.New(l, partition.Identity{Topic: "t", TopicID: model.TopicID{1}},
		partition.Settings{MaxMessageBytes: 64 << 20, MinInsyncReplicas: 1}, func() int64 { return 1000 }, func() {})
	t.Cleanup(func() {
		part.Close(model.Errorf(model.LeaderUnavailable, "stopping"))
		require.NoError(t, store.Close())
		require.NoError(t, g.Stop(10*time.Second))
	})
	b := &Broker{memory: budget.New("fetch-memory", memory), draining: make(chan struct{}), now: time.Now}
	return &readings{t: t, fs: fs, b: b, log: l, part: part}
}

// add appends one batch of values; with a producer id it is part of a transaction.
func (r *readings) add(pid model.ProducerID, seq int32, codec record.Codec, values ...string) {
	r.t.Helper()
	b := record.NewBuilder(1024)
	if pid >= 0 {
		b.SetAttributes(record.AttrTransactional)
		b.SetProducer(pid, 0, seq)
	}
	for _, v := range values {
		b.Add(1000, nil, []byte(v), nil)
	}
	out, err := b.Finish(codec)
	require.NoError(r.t, err)
	r.append(out)
}

func (r *readings) end(pid model.ProducerID, how record.ControlType) {
	r.t.Helper()
	out, err := record.NewBuilder(128).FinishMarker(pid, 0, record.Marker{Type: how, Timestamp: 1000})
	require.NoError(r.t, err)
	r.append(out)
}

func (r *readings) append(batch []byte) {
	r.t.Helper()
	_, err := r.log.Append(batch, 0, 0)
	require.NoError(r.t, err)
	r.part.SetLeadership(partition.Leadership{Leader: true, ISR: 1}) // which looks at the stable end
}

func (r *readings) fetching(from model.Offset, iso Isolation) *fetching {
	req := &FetchRequest{Topic: "t", Isolation: iso, MaxRecords: 1000, MaxBytes: 64 << 20, MinBytes: 1}
	return &fetching{b: r.b, topic: newTopic(&metadata.Topic{Name: "t"}), part: r.part, req: req, patience: time.Millisecond, info: FetchInfo{NextOffset: from}}
}

// values reads in both forms, which must agree.
func (r *readings) values(from model.Offset, iso Isolation) (string, FetchInfo) {
	r.t.Helper()
	var got []string
	f := r.fetching(from, iso)
	f.visit = func(rec *record.Record, _ bool) { got = append(got, string(rec.Value)) }
	require.NoError(r.t, f.more(r.t.Context()))

	plan, err := r.fetching(from, iso).plan(r.t.Context())
	require.NoError(r.t, err)
	defer plan.Close()
	require.Equal(r.t, f.info.NextOffset, plan.NextOffset)
	var raw []byte
	for _, s := range plan.Sections() {
		b, err := io.ReadAll(s)
		require.NoError(r.t, err)
		raw = append(raw, b...)
	}
	require.Len(r.t, raw, int(plan.Size))
	var stored []string
	var it record.Iterator
	for len(raw) > 0 {
		batch, rest, err := record.ParseBatch(raw)
		require.NoError(r.t, err)
		require.NoError(r.t, batch.Records(record.NewDecompressor(64<<20), &it))
		for it.Next() {
			if it.Record().Offset >= from {
				stored = append(stored, string(it.Record().Value))
			}
		}
		raw = rest
	}
	require.Equal(r.t, got, stored)
	require.Zero(r.t, r.b.memory.Used()-plan.grant.Bytes(), "a read gives its memory back")
	return strings.Join(got, " "), f.info
}

func TestAReaderOfCommittedRecordsStopsAtTheLastStableOffset(t *testing.T) {
	t.Parallel()
	r := newReadings(t, 64<<20)
	r.add(-1, 0, record.None, "a")      // 0
	r.add(7, 0, record.None, "b", "c")  // 1–2: open
	r.add(-1, 0, record.None, "d", "e") // 3–4
	got, info := r.values(0, ReadCommitted)
	require.Equal(t, "a", got)
	require.Equal(t, []model.Offset{1, 1, 5}, []model.Offset{info.NextOffset, info.LastStable, info.HighWatermark})
	got, info = r.values(0, ReadUncommitted)
	require.Equal(t, "a b c d e", got)
	require.EqualValues(t, 5, info.NextOffset)
	r.end(7, record.ControlCommit) // 5
	got, info = r.values(0, ReadCommitted)
	require.Equal(t, "a b c d e", got)
	require.EqualValues(t, 6, info.NextOffset, "behind the marker")
}

func TestAbortedRecordsAreLeftOutOfCommittedReads(t *testing.T) {
	t.Parallel()
	r := newReadings(t, 64<<20)
	r.add(7, 0, record.None, "a", "b") // 0–1
	r.add(8, 0, record.None, "c")      // 2
	r.add(7, 2, record.Gzip, "d")      // 3
	r.end(7, record.ControlAbort)      // 4
	r.end(8, record.ControlCommit)     // 5
	r.add(7, 3, record.None, "e")      // 6: the next transaction of 7
	r.end(7, record.ControlCommit)     // 7
	got, info := r.values(0, ReadCommitted)
	require.Equal(t, "c e", got)
	require.EqualValues(t, 8, info.NextOffset)
	got, _ = r.values(3, ReadCommitted)
	require.Equal(t, "e", got)
	got, _ = r.values(1, ReadUncommitted)
	require.Equal(t, "b c d e", got)
	got, info = r.values(7, ReadUncommitted)
	require.Empty(t, got)
	require.EqualValues(t, 8, info.NextOffset, "markers are passed")
}

func TestAReadGivesWhatComesBeforeDamage(t *testing.T) {
	t.Parallel()
	r := newReadings(t, 64<<20)
	r.add(-1, 0, record.None, "a")
	r.add(-1, 0, record.None, "b")
	f, err := r.fs.OpenFile("/data/topics/t-0/00000000000000000000.log", fsx.ReadWrite)
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{0xff}, size-2)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	var got []string
	first := r.fetching(0, ReadCommitted)
	first.visit = func(rec *record.Record, _ bool) { got = append(got, string(rec.Value)) }
	require.NoError(t, first.more(t.Context()))
	require.Equal(t, []string{"a"}, got)
	require.Equal(t, AtLimit, first.info.End)
	require.EqualValues(t, 1, first.info.NextOffset)
	next := r.fetching(1, ReadCommitted)
	next.visit = first.visit
	require.True(t, model.HasCode(next.more(t.Context()), model.StorageError))
	waiting := r.fetching(0, ReadCommitted)
	waiting.req.MinBytes = 1000
	probe := waiting.probe()
	enough, err := probe.found(t.Context())
	require.NoError(t, err)
	require.True(t, enough, "a read that waits answers with what comes before")
}

func TestAReadThatMeetsWhatNeedsMoreMemoryEndsThereOrBeginsAgain(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 3<<20)
	r := newReadings(t, 40<<20)
	r.add(-1, 0, record.None, "a")
	r.add(-1, 0, record.None, large)
	held, err := r.b.memory.Take(t.Context(), "another", 30<<20, 0)
	require.NoError(t, err)
	var got []int
	read := func(from model.Offset) (*fetching, error) {
		got = nil
		f := r.fetching(from, ReadCommitted)
		f.visit = func(rec *record.Record, _ bool) { got = append(got, len(rec.Value)) }
		return f, f.more(t.Context())
	}
	f, err := read(0)
	require.NoError(t, err)
	require.Equal(t, []int{1}, got, "a page ends before the record that finds no memory")
	require.Equal(t, AtLimit, f.info.End)
	_, err = read(1)
	require.True(t, model.HasCode(err, model.RateLimited), "%v", err)
	require.Empty(t, got)
	held.Release()
	f, err = read(0)
	require.NoError(t, err)
	require.Equal(t, []int{1, len(large)}, got)
	require.Equal(t, AtVisibleEnd, f.info.End)
	require.Zero(t, r.b.memory.Used())
}

func TestABatchThatInflatesFarIsReadWithMuchMemoryOnly(t *testing.T) {
	t.Parallel()
	for name, memory := range map[string]int64{"enough": 512 << 20, "less than it may take": 16 << 20} {
		r := newReadings(t, memory)
		bomb := strings.Repeat("0", 30<<20)
		r.add(-1, 0, record.Zstd, bomb)
		got, info := r.values(0, ReadCommitted)
		require.Len(t, got, len(bomb), name)
		require.EqualValues(t, 1, info.NextOffset, name)
		require.Zero(t, r.b.memory.Used(), name)
	}
}

func TestAReadEndsWithItsContextAndWithTheNode(t *testing.T) {
	t.Parallel()
	r := newReadings(t, 64<<20)
	for range 10 {
		r.add(-1, 0, record.None, string(bytes.Repeat([]byte("x"), 200<<10))) // more than a chunk together
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := model.Errorf(model.Internal, "the client is gone")
	n := 0
	f := r.fetching(0, ReadCommitted)
	f.visit = func(*record.Record, bool) { n++; cancel(gone) }
	require.ErrorIs(t, f.more(ctx), gone)
	require.Less(t, n, 10)
	n = 0
	f = r.fetching(0, ReadCommitted)
	close(r.b.draining)
	f.visit = func(*record.Record, bool) { n++ }
	require.NoError(t, f.more(t.Context()))
	require.Equal(t, AtStop, f.info.End)
	require.Less(t, n, 10)
	require.EqualValues(t, n, f.info.NextOffset)
}
