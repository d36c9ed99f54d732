package broker

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"tidewire/cluster/metadata"
	"tidewire/internal/fsx"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
	"tidewire/storage/log"
	"tidewire/storage/record"
)

// keeper is a broker over logs in memory, whose wall clock a test sets.
type keeper struct {
	*Broker
	t     *testing.T
	out   bytes.Buffer
	skew  time.Duration // of the wall clock
	store *log.Store
	group *lifecycle.Group
}

// newKeeper must be called in a synctest bubble: its time is the bubble's.
func newKeeper(t *testing.T) *keeper { return newKeeperOn(t, fsx.NewMem()) }

func newKeeperOn(t *testing.T, files fsx.FS) *keeper {
	k := &keeper{t: t, group: lifecycle.New(context.Background())}
	now := func() time.Time { return time.Now().Add(k.skew) }
	var err error
	k.store, err = log.OpenStore(log.StoreOptions{FS: files, Dir: "/data", Group: k.group, Now: time.Now, CheckpointInterval: time.Hour})
	require.NoError(t, err)
	start := time.Now()
	k.Broker = New(Config{
		NodeID: 1, Metadata: newOwnMetadata(t), Store: k.store, Logger: slog.New(slog.NewTextHandler(&k.out, nil)), Group: k.group, Now: now,
		Monotonic: func() time.Duration { return time.Since(start) },
	})
	return k
}

func (k *keeper) stop() {
	require.NoError(k.t, k.store.Close())
	require.NoError(k.t, k.group.Stop(10*time.Second))
}

// topic has settings that edit changes; by default nothing expires.
func (k *keeper) topic(name string, partitions int, edit func(*metadata.TopicConfig)) *topic {
	c := &metadata.TopicConfig{
		MaxMessageBytes: 1 << 20, MinInsyncReplicas: 1, SegmentBytes: 1000, RetentionMs: -1, RetentionBytes: -1,
		TimestampAfterMaxMs: time.Hour.Milliseconds(), FileDeleteDelayMs: 60_000, CleanupPolicy: metadata.CleanupPolicy{Delete: true},
	}
	edit(c)
	want := &metadata.Topic{Name: name, ID: model.TopicID{byte(len(name)), name[0]}, Config: c}
	for range partitions {
		want.Partitions = append(want.Partitions, metadata.Partition{Replicas: []model.BrokerID{1}, ISR: []model.BrokerID{1}, Leader: 1})
	}
	k.reconcileTopic(name, want)
	v, _ := k.topics.Load(name)
	return v.(*topic)
}

// fill appends a segment of one record to a partition, dated before now, and has it synced.
func (k *keeper) fill(t *topic, p int, age time.Duration) {
	k.t.Helper()
	b := record.NewBuilder(1024)
	now := k.nowMs()
	b.Add(now-age.Milliseconds(), nil, make([]byte, 800), nil)
	batch, err := b.Finish(record.None)
	require.NoError(k.t, err)
	l := t.openLogs()[p]
	_, err = l.Append(batch, 0, now)
	require.NoError(k.t, err)
	l.RequestSync()
	synctest.Wait()
}

func start(t *topic, p int) model.Offset { return t.openLogs()[p].LogStart() }

func (k *keeper) metric(name string) float64 {
	k.t.Helper()
	r := prometheus.NewRegistry()
	k.RegisterMetrics(r)
	families, err := r.Gather()
	require.NoError(k.t, err)
	for _, f := range families {
		if f.GetName() == "tidewire_"+name {
			return f.Metric[0].GetCounter().GetValue() + f.Metric[0].GetGauge().GetValue()
		}
	}
	k.t.Fatal("no metric ", name)
	return 0
}

func TestRetentionDeletesOnItsOwnAndSoonAfterAChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		var sizeLimited, compacted *topic
		byAge := k.topic("age", 2, func(c *metadata.TopicConfig) { c.RetentionMs = 60_000 })
		sizeLimited = k.topic("size", 1, func(c *metadata.TopicConfig) { c.RetentionBytes = 1500 })
		compacted = k.topic("compact", 1, func(c *metadata.TopicConfig) {
			c.CleanupPolicy, c.RetentionMs, c.RetentionBytes = metadata.CleanupPolicy{Compact: true}, 1, 1
		})
		for range 3 {
			k.fill(byAge, 0, time.Hour)
			k.fill(byAge, 1, 0)
			k.fill(sizeLimited, 0, time.Hour)
			k.fill(compacted, 0, time.Hour)
		}
		k.group.Go("retention", k.retentionLoop)
		time.Sleep(29 * time.Second)
		synctest.Wait()
		require.Zero(t, start(byAge, 0))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 3, start(byAge, 0), "the active segment is rolled without an append")
		require.Zero(t, start(byAge, 1), "what is young stays")
		require.EqualValues(t, 1, start(sizeLimited, 0))
		require.Zero(t, start(compacted, 0), "without delete in cleanup.policy nothing goes")
		require.EqualValues(t, 4, k.metric("retention_deleted_segments_total"))
		require.Greater(t, k.metric("retention_deleted_bytes_total"), 3200.0)

		k.topic("compact", 1, func(c *metadata.TopicConfig) {
			c.CleanupPolicy, c.RetentionMs = metadata.CleanupPolicy{Compact: true, Delete: true}, 1
		})
		k.kickRetention()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 3, start(compacted, 0), "a changed setting is applied soon")
		k.stop()
	})
}

func TestRetentionStopsAtTheHighWatermark(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		tp := k.topic("few", 1, func(c *metadata.TopicConfig) { c.RetentionMs, c.MinInsyncReplicas = 1, 1 })
		k.fill(tp, 0, time.Hour)
		k.topic("few", 1, func(c *metadata.TopicConfig) { c.RetentionMs, c.MinInsyncReplicas = 1, 2 }) // the high watermark stands still
		k.fill(tp, 0, time.Hour)
		k.fill(tp, 0, time.Hour)
		k.applyRetention()
		require.EqualValues(t, 1, start(tp, 0))
		k.stop()
	})
}

// A wall clock that jumps ahead must not make everything old, and one that jumps back must
// not be believed either.
func TestRetentionByAgePausesWhileTheClockIsInDoubt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		tp := k.topic("clock", 1, func(c *metadata.TopicConfig) { c.RetentionMs = (10 * time.Hour).Milliseconds() })
		k.fill(tp, 0, 0)
		pass := func(skew time.Duration) bool {
			k.skew = skew
			k.applyRetention()
			return k.metric("retention_time_paused") == 1
		}
		require.False(t, pass(0))
		require.False(t, pass(5*time.Minute))
		for range 2 {
			require.True(t, pass(365*24*time.Hour))
			require.True(t, pass(-6*time.Minute))
		}
		require.Zero(t, start(tp, 0), "nothing went")
		require.Equal(t, 1, strings.Count(k.out.String(), "has moved against"), "one line: %s", k.out.String())
		require.False(t, pass(time.Minute), "a clock that was set right is believed")
		require.Equal(t, 1, strings.Count(k.out.String(), "agrees with"))
		time.Sleep(11 * time.Hour)
		require.False(t, pass(time.Minute))
		require.EqualValues(t, 1, start(tp, 0))
		k.stop()
	})
}

// One record dated far ahead, as a clock that was wrong or a wider setting leaves it,
// neither pins its partition nor empties it.
func TestOneBadRecordNeitherPinsNorEmptiesATopic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		tp := k.topic("bad", 1, func(c *metadata.TopicConfig) { c.RetentionMs = time.Hour.Milliseconds() })
		k.fill(tp, 0, -10*365*24*time.Hour)
		k.fill(tp, 0, 20*365*24*time.Hour)
		k.fill(tp, 0, 0)
		k.applyRetention()
		require.Zero(t, start(tp, 0), "the one ahead was just written")
		require.EqualValues(t, 1, k.metric("retention_future_segments"))
		time.Sleep(61 * time.Minute)
		k.fill(tp, 0, 0)
		k.applyRetention()
		require.EqualValues(t, 3, start(tp, 0), "the one ahead goes by its append, and the old ones behind it")
		k.applyRetention()
		require.Zero(t, k.metric("retention_future_segments"))
		k.stop()
	})
}

func TestAPassOverIdlePartitionsAllocatesNothing(t *testing.T) {
	k := newKeeper(t)
	for _, name := range []string{"a", "bb", "ccc"} {
		k.topic(name, 200, func(c *metadata.TopicConfig) { c.RetentionMs, c.RetentionBytes = 1000, 1000 })
	}
	k.applyRetention()
	require.LessOrEqual(t, testing.AllocsPerRun(20, k.applyRetention), 3.0)
	k.stop()
}

func TestOldRecordsAreCountedOnlyWhereRetentionDeletes(t *testing.T) {
	t.Parallel()
	require.False(t, configOf(&metadata.TopicConfig{CleanupPolicy: metadata.CleanupPolicy{Compact: true}}).Delete)
	require.EqualValues(t, -1, noneBelowZero(0), "0 is at once, not the default")
	require.EqualValues(t, math.MaxInt64, noneBelowZero(math.MaxInt64))
}

// The wall clock jitters and jumps by an hour, forth and back: nothing that is younger than
// retention.ms goes, and what is older goes once the clock is right.
func TestJumpsOfAnHourDeleteNothingEarly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		tp := k.topic("hours", 1, func(c *metadata.TopicConfig) { c.RetentionMs = (90 * time.Minute).Milliseconds() })
		k.fill(tp, 0, 30*24*time.Hour) // old when it came
		k.fill(tp, 0, 0)
		written := model.Offset(2)
		for _, skew := range []time.Duration{50 * time.Millisecond, -50 * time.Millisecond, time.Hour, -time.Hour, time.Hour, 0} {
			k.skew = skew
			k.fill(tp, 0, 0) // dated by the clock of the moment
			written++
			k.applyRetention()
			require.Equal(t, skew.Abs() > maxClockDrift, k.metric("retention_time_paused") == 1, "at %s", skew)
			require.EqualValues(t, 1, start(tp, 0), "what was old is gone at once, and nothing else")
			time.Sleep(10 * time.Minute)
		}
		time.Sleep(3 * time.Hour)
		k.applyRetention()
		require.Equal(t, written, start(tp, 0), "what was dated ahead or behind pins nothing")
		k.stop()
	})
}
