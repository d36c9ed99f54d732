package broker

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/broker/operations"
	"tidewire/cluster/metadata"
	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/log"
	"tidewire/storage/record"
)

// put appends one record of a key, large enough for a segment of its own.
func (k *keeper) put(t *topic, key string) *log.Log {
	k.t.Helper()
	b := record.NewBuilder(1024)
	b.Add(k.nowMs(), []byte(key), make([]byte, 800), nil)
	batch, err := b.Finish(record.None)
	require.NoError(k.t, err)
	l := t.openLogs()[0]
	_, err = l.Append(batch, 0, k.nowMs())
	require.NoError(k.t, err)
	l.RequestSync()
	synctest.Wait()
	return l
}

// offsets are those of the records of a log.
func offsets(t *testing.T, l *log.Log) (out []model.Offset) {
	t.Helper()
	var it record.Iterator
	for from := l.LogStart(); from < l.LogEnd(); {
		data, err := l.Read(nil, from, l.LogEnd(), 1)
		require.NoError(t, err)
		b, _, err := record.ParseBatch(data)
		require.NoError(t, err)
		require.NoError(t, b.Records(nil, &it))
		for it.Next() {
			out = append(out, it.Record().Offset)
		}
		from = b.Header.NextOffset()
	}
	return out
}

func compacted(c *metadata.TopicConfig) {
	c.CleanupPolicy, c.MinCleanableDirtyRatio, c.DeleteRetentionMs = metadata.CleanupPolicy{Compact: true}, 0.5, 1000
}

func TestCompactionRunsOnItsOwnOverTheTopicsThatWantIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		yes := k.topic("yes", 1, compacted)
		no := k.topic("no", 1, func(*metadata.TopicConfig) {})
		for i := range 6 {
			k.put(yes, fmt.Sprint(i%2))
			k.put(no, fmt.Sprint(i%2))
		}
		k.group.Go("compaction", k.compactionLoop)
		time.Sleep(14 * time.Second)
		synctest.Wait()
		require.Len(t, offsets(t, yes.openLogs()[0]), 6)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, []model.Offset{3, 4, 5}, offsets(t, yes.openLogs()[0]), "the active segment is left alone")
		require.Len(t, offsets(t, no.openLogs()[0]), 6)
		require.EqualValues(t, 1, k.metric("compaction_passes_total"))
		require.Greater(t, k.metric("compaction_read_bytes_total"), 4000.0)
		require.Greater(t, k.metric("compaction_kept_bytes_total"), 1600.0)
		require.Zero(t, k.metric("compaction_uncleanable_partitions"))
		require.Positive(t, k.metric("compaction_last_pass_timestamp_seconds"))

		k.put(yes, "0") // one of three segments is dirty: below the ratio
		time.Sleep(16 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 1, k.metric("compaction_passes_total"))
		k.topic("yes", 1, func(c *metadata.TopicConfig) { compacted(c); c.MinCleanableDirtyRatio = 0.1 })
		time.Sleep(16 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 2, k.metric("compaction_passes_total"))
		k.stop()
	})
}

// A pass whose operation is cancelled leaves the log as it was, and is no failure: it is tried
// again later.
func TestACancelledCompactionEndsItsPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		files := fsx.NewInject(fsx.NewMem(), nil)
		k := newKeeperOn(t, files)
		tp := k.topic("stopped", 1, compacted)
		for i := range 6 {
			k.put(tp, fmt.Sprint(i%2))
		}
		var cancelled operations.View
		reads := 0
		files.SetHook(func(op fsx.Op) *fsx.Fault {
			if op.Kind != fsx.OpRead {
				return nil
			}
			if reads++; reads != 3 { // the pass is well under way
				return nil
			}
			for _, v := range k.ops.List() {
				if v.State == operations.Running && v.Spec.Kind == operations.Compact {
					cancelled = v
				}
			}
			at, stop := context.WithCancel(context.Background())
			stop() // it cannot end before this read has
			if err := k.ops.Cancel(at, cancelled.ID); err == nil {
				t.Error("the pass has ended within itself")
			}
			return nil
		})
		k.group.Go("compaction", k.compactionLoop)
		time.Sleep(16 * time.Second)
		synctest.Wait()
		require.Equal(t, "stopped", cancelled.Spec.Resource.Name)
		v, ok := k.ops.Get(cancelled.ID)
		require.True(t, ok)
		require.Equal(t, operations.Cancelled, v.State)
		require.Nil(t, v.Err)
		require.Len(t, offsets(t, tp.openLogs()[0]), 6, "nothing has changed")
		require.Zero(t, k.metric("compaction_passes_total"))
		require.Zero(t, k.metric("compaction_failures_total"), "it was asked for")
		require.Contains(t, k.out.String(), "a pass of compaction was cancelled")
		time.Sleep(maxCompactionRetry - 20*time.Second)
		synctest.Wait()
		require.Len(t, offsets(t, tp.openLogs()[0]), 6, "it waits for a while")
		time.Sleep(40 * time.Second)
		synctest.Wait()
		require.Equal(t, []model.Offset{3, 4, 5}, offsets(t, tp.openLogs()[0]), "and is tried again")
		k.stop()
	})
}

func TestCompactionWaitsForTheHighWatermarkAndForAClockThatIsRight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		few := k.topic("few", 1, func(c *metadata.TopicConfig) { compacted(c); c.MinInsyncReplicas = 2 })
		for range 3 {
			k.put(few, "a")
		}
		require.False(t, k.compactFilthiest(t.Context()), "nothing is committed")
		few = k.topic("few", 1, compacted)
		k.put(few, "a")
		k.skew = time.Hour
		require.False(t, k.compactFilthiest(t.Context()))
		k.skew = 0
		require.True(t, k.compactFilthiest(t.Context()))
		require.False(t, k.compactFilthiest(t.Context()), "and then there is nothing left to do")
		require.Equal(t, []model.Offset{2, 3}, offsets(t, few.openLogs()[0]))
		k.stop()
	})
}

func TestTheFilthiestLogComesFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		a, b := k.topic("a", 1, compacted), k.topic("bb", 1, compacted)
		for range 3 {
			k.put(a, "x")
			k.put(b, "x")
		}
		require.True(t, k.compactFilthiest(t.Context()))
		require.True(t, k.compactFilthiest(t.Context()))
		for range 2 {
			k.put(a, "x") // two of three
		}
		for range 5 {
			k.put(b, "x") // five of six
		}
		require.True(t, k.compactFilthiest(t.Context()))
		require.Equal(t, []model.Offset{6, 7}, offsets(t, b.openLogs()[0]))
		require.Len(t, offsets(t, a.openLogs()[0]), 4)
		k.stop()
	})
}

// The last offsets of an open transaction hold closed segments back, which is to be seen.
func TestAnOpenTransactionThatHoldsCompactionIsSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		tp := k.topic("held", 1, compacted)
		x := record.NewBuilder(1024)
		x.SetAttributes(record.AttrTransactional)
		x.SetProducer(5, 0, 0)
		x.Add(k.nowMs(), []byte("k"), make([]byte, 800), nil)
		batch, err := x.Finish(record.None)
		require.NoError(t, err)
		_, err = tp.openLogs()[0].Append(batch, 0, k.nowMs())
		require.NoError(t, err)
		for range 3 {
			k.put(tp, "k")
		}
		require.False(t, k.compactFilthiest(t.Context()))
		require.EqualValues(t, 1, k.metric("compaction_held_by_transaction_partitions"))
		end, err := record.NewBuilder(64).FinishMarker(5, 0, record.Marker{Type: record.ControlAbort, Timestamp: k.nowMs()})
		require.NoError(t, err)
		_, err = tp.openLogs()[0].Append(end, 0, k.nowMs())
		require.NoError(t, err)
		k.put(tp, "k")
		require.True(t, k.compactFilthiest(t.Context()))
		require.Zero(t, k.metric("compaction_held_by_transaction_partitions"))
		k.stop()
	})
}

func TestALookForALogToCompactIsCheap(t *testing.T) { //nolint:paralleltest // it counts allocations
	k := newKeeper(t)
	for _, name := range []string{"a", "bb", "ccc"} {
		k.topic(name, 200, compacted)
	}
	k.findFilthiest(0)
	require.LessOrEqual(t, testing.AllocsPerRun(20, func() { k.findFilthiest(0) }), 6.0)
	k.stop()
}

func TestSettingsOfCompactionReachTheLog(t *testing.T) {
	t.Parallel()
	c := &metadata.TopicConfig{
		CleanupPolicy: metadata.CleanupPolicy{Compact: true}, SegmentMs: 1000, MaxCompactionLagMs: 300, MinCompactionLagMs: 20,
		DeleteRetentionMs: 7, MinCleanableDirtyRatio: 0.25,
	}
	require.Equal(t, log.CleanPolicy{DeleteRetentionMs: 7, MinLagMs: 20, MaxLagMs: 300, MinDirtyRatio: 0.25}, configOf(c).Clean)
	require.EqualValues(t, 300, logConfigOf(c).SegmentMs, "the active segment is out of reach")
	c.CleanupPolicy.Compact = false
	require.EqualValues(t, 1000, logConfigOf(c).SegmentMs)
}
