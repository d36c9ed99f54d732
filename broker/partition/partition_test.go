package partition

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidewire/internal/fsx"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
	"tidewire/storage/log"
	"tidewire/storage/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gate is a file system whose fdatasync of .log files waits until it is let through, so
// that a test decides what arrives during a sync.
type gate struct {
	fsx.FS
	mu      sync.Mutex
	closed  bool
	waiting chan struct{} // receives when a sync has begun and waits
	open    chan struct{}
	fail    error
}

func (g *gate) OpenFile(name string, flag int) (fsx.File, error) {
	f, err := g.FS.OpenFile(name, flag)
	if err != nil || !strings.HasSuffix(name, ".log") {
		return f, err
	}
	return &gatedFile{f, g}, nil
}

type gatedFile struct {
	fsx.File
	g *gate
}

func (f *gatedFile) SyncData() error {
	f.g.mu.Lock()
	closed, open := f.g.closed, f.g.open
	f.g.mu.Unlock()
	if closed {
		f.g.waiting <- struct{}{}
		<-open
	}
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	if f.g.fail != nil {
		return f.g.fail
	}
	return f.File.SyncData()
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.open = true, make(chan struct{})
}

func (g *gate) let(fail error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.fail = false, fail
	close(g.open)
}

type fixture struct {
	*Partition
	log   *log.Log
	gate  *gate
	turns int // ended turns of keyless records; read it under mu
}

func start(t *testing.T, s Settings) *fixture {
	t.Helper()
	f := &fixture{gate: &gate{FS: fsx.NewMem(), waiting: make(chan struct{}, 64)}}
	g := lifecycle.New(context.Background())
	store, err := log.OpenStore(log.StoreOptions{
		FS: f.gate, Dir: filepath.FromSlash("/data"), Group: g, Now: time.Now,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), SyncInterval: time.Hour,
	})
	require.NoError(t, err)
	f.log, err = store.Open(model.TopicID{1}, "t", 0, log.Config{MaxMessageBytes: s.MaxMessageBytes})
	require.NoError(t, err)
	f.Partition = New(f.log, Identity{Topic: "t", TopicID: model.TopicID{1}}, s, func() int64 { return 1000 }, func() { f.turns++ })
	f.SetLeadership(Leadership{Leader: true, Epoch: 7, ISR: 1})
	t.Cleanup(func() {
		f.Close(model.Errorf(model.LeaderUnavailable, "stopping"))
		_ = store.Close() // a latched log makes it fail on purpose
		require.NoError(t, g.Stop(10*time.Second))
	})
	return f
}

var normal = Settings{MaxMessageBytes: 1 << 20, MinInsyncReplicas: 1}

func slice(acks Acks, values ...string) *Slice {
	s := &Slice{Acks: acks, Plain: true, Keyless: true}
	for i, v := range values {
		s.Records = append(s.Records, record.Record{Timestamp: 5, Value: []byte(v)})
		s.Select = append(s.Select, int32(i))
	}
	return s
}

func submit(p *Partition, s *Slice) *Completion {
	c := NewCompletion(1)
	p.Submit(s, c)
	return c
}

func wait(t *testing.T, c *Completion) {
	t.Helper()
	select {
	case <-c.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the slice was not answered")
	}
}

func answered(c *Completion) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// batches returns what the log holds: the values of each batch.
func (f *fixture) batches(t *testing.T) [][]string {
	t.Helper()
	var out [][]string
	for off := f.log.LogStart(); off < f.log.LogEnd(); {
		b, err := f.Read(nil, off, f.log.LogEnd(), 1<<20)
		require.NoError(t, err)
		for len(b) > 0 {
			var batch record.Batch
			batch, b, err = record.ParseBatch(b)
			require.NoError(t, err)
			var it record.Iterator
			require.NoError(t, batch.Records(nil, &it))
			var values []string
			for it.Next() {
				values = append(values, string(it.Record().Value))
			}
			out = append(out, values)
			off = batch.Header.NextOffset()
		}
	}
	return out
}

func TestAcksAllIsAnsweredOnceTheRecordsAreSyncedAndVisible(t *testing.T) {
	t.Parallel()
	f := start(t, normal)
	f.gate.shut()
	s := slice(AcksAll, "a", "b")
	c := submit(f.Partition, s)
	<-f.gate.waiting
	require.False(t, answered(c), "answered before the sync ended")
	require.Equal(t, Bounds{LogEnd: 2}, f.Bounds(), "written, and not visible")
	f.gate.let(nil)
	wait(t, c)
	require.NoError(t, s.Err)
	require.EqualValues(t, 0, s.Base)
	require.Equal(t, Bounds{HighWatermark: 2, LastStable: 2, LogEnd: 2}, f.Bounds())
}

func TestAcksLeaderDoesNotWaitForASync(t *testing.T) {
	t.Parallel()
	f := start(t, normal)
	f.gate.shut()
	all := submit(f.Partition, slice(AcksAll, "a"))
	<-f.gate.waiting
	s := slice(AcksLeader, "b")
	wait(t, submit(f.Partition, s))
	require.EqualValues(t, 1, s.Base)
	require.EqualValues(t, 0, f.Bounds().HighWatermark)
	f.gate.let(nil)
	wait(t, all)
}

func TestSlicesThatArriveDuringASyncShareOneBatchInOrderOfArrival(t *testing.T) {
	t.Parallel()
	f := start(t, normal)
	f.gate.shut()
	first := submit(f.Partition, slice(AcksAll, "a"))
	<-f.gate.waiting
	var slices []*Slice
	var done []*Completion
	for _, v := range []string{"b", "c", "d"} {
		s := slice(AcksAll, v, v+"2")
		slices = append(slices, s)
		done = append(done, submit(f.Partition, s))
	}
	require.EqualValues(t, 1, f.log.LogEnd(), "the open batch has no offsets yet")
	f.gate.let(nil)
	wait(t, first)
	for i, c := range done {
		wait(t, c)
		require.NoError(t, slices[i].Err)
		require.EqualValues(t, 1+2*i, slices[i].Base)
	}
	require.Equal(t, [][]string{{"a"}, {"b", "b2", "c", "c2", "d", "d2"}}, f.batches(t))
}

func TestAcksLeaderSealsTheOpenBatchItJoins(t *testing.T) {
	t.Parallel()
	f := start(t, normal)
	f.gate.shut()
	first := submit(f.Partition, slice(AcksAll, "a"))
	<-f.gate.waiting
	second := submit(f.Partition, slice(AcksAll, "b"))
	s := slice(AcksLeader, "c")
	wait(t, submit(f.Partition, s))
	require.EqualValues(t, 2, s.Base)
	require.Equal(t, [][]string{{"a"}, {"b", "c"}}, f.batches(t))
	f.gate.let(nil)
	wait(t, first)
	wait(t, second)
}

func TestASliceThatMayNotShareABatchComesAfterWhatIsOpen(t *testing.T) {
	t.Parallel()
	f := start(t, normal)
	f.gate.shut()
	first := submit(f.Partition, slice(AcksAll, "a"))
	<-f.gate.waiting
	second := submit(f.Partition, slice(AcksAll, "b"))
	own := slice(AcksAll, "c")
	own.Plain = false
	third := submit(f.Partition, own)
	f.gate.let(nil)
	for _, c := range []*Completion{first, second, third} {
		wait(t, c)
	}
	require.Equal(t, [][]string{{"a"}, {"b"}, {"c"}}, f.batches(t))
}

func TestAMergedBatchStaysBelowTheMessageLimit(t *testing.T) {
	t.Parallel()
	f := start(t, Settings{MaxMessageBytes: 400, MinInsyncReplicas: 1})
	f.gate.shut()
	done := []*Completion{submit(f.Partition, slice(AcksAll, "a"))}
	<-f.gate.waiting
	for range 6 {
		done = append(done, submit(f.Partition, slice(AcksAll, strings.Repeat("x", 100))))
	}
	f.gate.let(nil)
	for _, c := range done {
		wait(t, c)
	}
	require.Len(t, f.batches(t), 4, "1, then two of 100 bytes in each batch of at most 400, thrice")
}

func TestASliceOverTheMessageLimitBecomesSeveralBatchesAtConsecutiveOffsets(t *testing.T) {
	t.Parallel()
	f := start(t, Settings{MaxMessageBytes: 300, MinInsyncReplicas: 1})
	big := strings.Repeat("y", 100)
	s := slice(AcksAll, big, big, big, big, big)
	wait(t, submit(f.Partition, s))
	require.NoError(t, s.Err)
	require.EqualValues(t, 0, s.Base)
	require.EqualValues(t, 5, f.log.LogEnd())
	require.Greater(t, len(f.batches(t)), 1)
}

func TestOnlyTheSelectedRecordsAreAppended(t *testing.T) {
	t.Parallel()
	f := start(t, normal)
	s := slice(AcksLeader, "a", "b", "c", "d")
	s.Select = []int32{3, 1}
	wait(t, submit(f.Partition, s))
	require.Equal(t, [][]string{{"d", "b"}}, f.batches(t))
}

func TestATurnOfKeylessRecordsEndsWithASyncOrManyBytes(t *testing.T) {
	t.Parallel()
	f := start(t, normal)
	turns := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.turns
	}
	keyed := slice(AcksAll, "b")
	keyed.Keyless = false
	wait(t, submit(f.Partition, keyed))
	require.Equal(t, 0, turns(), "records with keys are nobody's turn")
	wait(t, submit(f.Partition, slice(AcksLeader, "a")))
	require.Equal(t, 0, turns())
	for i := range 3 {
		wait(t, submit(f.Partition, slice(AcksAll, "a")))
		require.Equal(t, i+1, turns(), "a lone producer finds the turn over when it is answered")
	}
	wait(t, submit(f.Partition, slice(AcksLeader, strings.Repeat("x", keylessRun))))
	require.Equal(t, 4, turns())
}

func TestAFailedSyncAnswersUnknownToWhatWasAppendedAndNotAppliedToTheRest(t *testing.T) {
	t.Parallel()
	f := start(t, normal)
	f.gate.shut()
	appended := slice(AcksAll, "a")
	open := slice(AcksAll, "b")
	c1 := submit(f.Partition, appended)
	<-f.gate.waiting
	c2 := submit(f.Partition, open)
	f.gate.let(syscall.EIO)
	wait(t, c1)
	wait(t, c2)
	require.Equal(t, model.Unknown, model.AsError(appended.Err).EffectiveOutcome())
	require.Equal(t, model.StorageError, model.AsError(appended.Err).Code)
	require.Equal(t, model.StorageError, model.AsError(open.Err).Code)
	require.Equal(t, model.NotApplied, model.AsError(open.Err).EffectiveOutcome())
	later := slice(AcksLeader, "c")
	wait(t, submit(f.Partition, later))
	require.Equal(t, model.NotApplied, model.AsError(later.Err).EffectiveOutcome())
	require.EqualValues(t, 0, f.Bounds().HighWatermark, "nothing above the stable end becomes visible")
}

func TestBelowMinInsyncReplicasAcksAllIsRefusedAndNothingBecomesVisible(t *testing.T) {
	t.Parallel()
	f := start(t, Settings{MaxMessageBytes: 1 << 20, MinInsyncReplicas: 2})
	s := slice(AcksAll, "a")
	wait(t, submit(f.Partition, s))
	require.True(t, model.HasCode(s.Err, model.NotEnoughReplicas))
	require.EqualValues(t, 0, f.log.LogEnd(), "refused before the append")
	wait(t, submit(f.Partition, slice(AcksLeader, "b")))
	f.log.RequestSync()
	require.Eventually(t, func() bool { return f.log.StableEnd() == 1 }, 10*time.Second, time.Millisecond)
	require.EqualValues(t, 0, f.Bounds().HighWatermark)
	f.SetLeadership(Leadership{Leader: true, Epoch: 7, ISR: 2})
	require.EqualValues(t, 1, f.Bounds().HighWatermark, "with enough replicas the high watermark follows")
}

func TestALostLeadershipEndsWhatWaits(t *testing.T) {
	t.Parallel()
	f := start(t, normal)
	f.gate.shut()
	appended, open := slice(AcksAll, "a"), slice(AcksAll, "b")
	c1 := submit(f.Partition, appended)
	<-f.gate.waiting
	c2 := submit(f.Partition, open)
	f.SetLeadership(Leadership{Epoch: 8})
	wait(t, c1)
	wait(t, c2)
	require.True(t, model.HasCode(appended.Err, model.NotEnoughReplicasAfterAppend))
	require.True(t, model.HasCode(open.Err, model.LeaderUnavailable))
	later := slice(AcksLeader, "c")
	wait(t, submit(f.Partition, later))
	require.True(t, model.HasCode(later.Err, model.LeaderUnavailable))
	require.True(t, model.HasCode(f.Err(), model.LeaderUnavailable))
	f.gate.let(nil)
}

func TestAReleasedPartitionAnswersWhatItHasAndTakesNothingMore(t *testing.T) {
	t.Parallel()
	f := start(t, normal)
	f.gate.shut()
	synced := slice(AcksAll, "a")
	first := submit(f.Partition, synced)
	<-f.gate.waiting
	open := slice(AcksAll, "b")
	second := submit(f.Partition, open)
	f.Release()
	require.True(t, f.Waits())
	late := slice(AcksAll, "c")
	<-submit(f.Partition, late).Done()
	require.True(t, model.HasCode(late.Err, model.LeaderUnavailable))
	require.Equal(t, model.NotApplied, model.AsError(late.Err).EffectiveOutcome())
	f.gate.let(nil)
	<-first.Done()
	<-second.Done()
	require.NoError(t, synced.Err)
	require.NoError(t, open.Err)
	require.False(t, f.Waits())
}

func TestAbandonTellsWhatIsKnown(t *testing.T) {
	t.Parallel()
	f := start(t, normal)
	f.gate.shut()
	appended, open := slice(AcksAll, "a"), slice(AcksAll, "b")
	c1 := submit(f.Partition, appended)
	<-f.gate.waiting
	c2 := submit(f.Partition, open)
	require.Equal(t, State{Appended: true, AppendTime: -1}, f.Abandon(appended))
	require.Equal(t, State{AppendTime: -1}, f.Abandon(open))
	f.gate.let(nil)
	wait(t, c1)
	wait(t, c2)
	require.Equal(t, State{Done: true, Appended: true, Base: 1, AppendTime: -1}, f.Abandon(open))
}

func TestWatchersAreWokenByTheHighWatermarkAndByTheEnd(t *testing.T) {
	t.Parallel()
	f := start(t, normal)
	w := NewWatcher()
	f.Watch(w)
	wait(t, submit(f.Partition, slice(AcksAll, "a")))
	<-w.C()
	why := errors.New("gone")
	f.Close(why)
	<-w.C()
	require.ErrorIs(t, f.Err(), why)
	f.Unwatch(w)
	require.Empty(t, f.watchers)
}

func TestManyProducersGetDenseOffsetsInTheirOwnOrder(t *testing.T) {
	t.Parallel()
	f := start(t, normal)
	const producers, each = 8, 200
	var wg sync.WaitGroup
	offsets := make([][]model.Offset, producers)
	for p := range producers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range each {
				acks := AcksAll
				if i%3 == 0 {
					acks = AcksLeader
				}
				s := slice(acks, "v")
				c := submit(f.Partition, s)
				<-c.Done()
				if s.Err == nil {
					offsets[p] = append(offsets[p], s.Base)
				}
			}
		}()
	}
	wg.Wait()
	seen := map[model.Offset]bool{}
	for p := range producers {
		require.Len(t, offsets[p], each)
		for i, o := range offsets[p] {
			require.False(t, seen[o], "offset %d was given twice", o)
			seen[o] = true
			if i > 0 {
				require.Greater(t, o, offsets[p][i-1])
			}
		}
	}
	require.EqualValues(t, producers*each, f.log.LogEnd())
}

func TestWithWriteCachingEveryLevelOfAcksMakesRecordsVisible(t *testing.T) {
	t.Parallel()
	f := start(t, normal)
	f.log.SetConfig(log.Config{MaxMessageBytes: 1 << 20, WriteCaching: true})
	for i, acks := range []Acks{AcksLeader, AcksNone, AcksAll} {
		w := NewWatcher()
		f.Watch(w)
		s := slice(acks, "a")
		wait(t, submit(f.Partition, s))
		require.NoError(t, s.Err)
		require.EqualValues(t, i+1, f.Bounds().HighWatermark)
		select {
		case <-w.C():
		default:
			t.Fatal("the reader was not woken")
		}
		f.Unwatch(w)
	}
}

func TestALowerMessageLimitDoesNotRefuseWhatIsOpen(t *testing.T) {
	t.Parallel()
	f := start(t, normal)
	f.gate.shut()
	first := submit(f.Partition, slice(AcksAll, "a"))
	<-f.gate.waiting
	big := slice(AcksAll, strings.Repeat("b", 2000), strings.Repeat("c", 2000))
	c := submit(f.Partition, big)
	f.SetSettings(Settings{MaxMessageBytes: 1000, MinInsyncReplicas: 1})
	f.log.SetConfig(log.Config{MaxMessageBytes: 1000})
	f.gate.let(nil)
	wait(t, first)
	wait(t, c)
	require.NoError(t, big.Err)
	require.EqualValues(t, 1, big.Base)
}

func TestAPartitionThatClosesSaysOfAppendedRecordsThatTheirOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	for _, code := range []model.Code{model.LeaderUnavailable, model.UnknownTopic} {
		f := start(t, normal)
		f.gate.shut()
		s := slice(AcksAll, "a")
		c := submit(f.Partition, s)
		<-f.gate.waiting
		f.Close(model.Errorf(code, "closing"))
		wait(t, c)
		e := model.AsError(s.Err)
		require.Equal(t, model.Unknown, e.EffectiveOutcome())
		require.NotEqual(t, 503, model.Row(e.Code).Status, "503 promises that nothing was applied")
		late := slice(AcksAll, "b")
		wait(t, submit(f.Partition, late))
		require.Equal(t, model.NotApplied, model.AsError(late.Err).EffectiveOutcome())
		f.gate.let(nil)
	}
}

// ready makes a slice of a ready-made batch; seq is the producer's sequence, −1 for none.
func ready(t *testing.T, acks Acks, seq int32, values ...string) *Slice {
	t.Helper()
	b := record.NewBuilder(100)
	if seq >= 0 {
		b.SetProducer(9, 0, seq)
	}
	for _, v := range values {
		b.Add(5, nil, []byte(v), nil)
	}
	raw, err := b.Finish(record.None)
	require.NoError(t, err)
	return &Slice{Acks: acks, Batches: raw, Count: len(values)}
}

func TestReadyMadeBatchesComeAfterWhatIsOpenAndStayWhatTheyAre(t *testing.T) {
	t.Parallel()
	f := start(t, normal)
	f.gate.shut()
	first := submit(f.Partition, slice(AcksAll, "a"))
	<-f.gate.waiting
	second := submit(f.Partition, slice(AcksAll, "b"))
	made := ready(t, AcksAll, -1, "c", "d")
	third := submit(f.Partition, made)
	require.Nil(t, made.Batches, "the caller's memory is not held while it waits")
	fourth := submit(f.Partition, slice(AcksAll, "e"))
	require.False(t, answered(third))
	f.gate.let(nil)
	for _, c := range []*Completion{first, second, third, fourth} {
		wait(t, c)
	}
	require.NoError(t, made.Err)
	require.EqualValues(t, 2, made.Base)
	require.EqualValues(t, -1, made.AppendTime)
	require.Equal(t, [][]string{{"a"}, {"b"}, {"c", "d"}, {"e"}}, f.batches(t))
}

func TestARetriedBatchHasItsFirstOffset(t *testing.T) {
	t.Parallel()
	f := start(t, normal)
	for _, x := range []struct {
		seq  int32
		vals []string
		base model.Offset
		code model.Code
	}{
		{0, []string{"a", "b"}, 0, ""},
		{2, []string{"c"}, 2, ""},
		{0, []string{"a", "b"}, 0, ""},
		{2, []string{"c"}, 2, ""},
		{7, []string{"gap"}, 0, model.OutOfOrderSequence},
		{3, []string{"d"}, 3, ""},
	} {
		s := ready(t, AcksAll, x.seq, x.vals...)
		wait(t, submit(f.Partition, s))
		if x.code != "" {
			require.True(t, model.HasCode(s.Err, x.code), "%v", s.Err)
			require.Equal(t, model.NotApplied, model.AsError(s.Err).EffectiveOutcome())
			continue
		}
		require.NoError(t, s.Err)
		require.Equal(t, x.base, s.Base)
	}
	require.Equal(t, [][]string{{"a", "b"}, {"c"}, {"d"}}, f.batches(t))
}

func TestABatchThatCouldNotBeReadAgainStaysWithoutCompression(t *testing.T) {
	t.Parallel()
	f := start(t, Settings{MaxMessageBytes: record.MaxInflated + 1<<20, MinInsyncReplicas: 1, Codec: record.Gzip})
	s := slice(AcksAll, "", "")
	s.Records[0].Value = make([]byte, record.MaxInflated)
	wait(t, submit(f.Partition, s))
	require.NoError(t, s.Err)
	small := slice(AcksAll, "c")
	wait(t, submit(f.Partition, small))
	var got []record.Codec
	for off := model.Offset(0); off < f.log.LogEnd(); {
		b, err := f.Read(nil, off, f.log.LogEnd(), 1)
		require.NoError(t, err)
		batch, _, err := record.ParseBatch(b)
		require.NoError(t, err)
		got = append(got, batch.Header.Attributes.Codec())
		off = batch.Header.NextOffset()
	}
	require.Equal(t, []record.Codec{record.None, record.Gzip}, got)
}
