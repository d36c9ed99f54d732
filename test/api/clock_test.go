package api

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/testkit/nodekit"
)

// wallClock is a node's clock, which a test moves.
type wallClock struct{ skew atomic.Int64 }

func (c *wallClock) now() time.Time { return time.Now().Add(time.Duration(c.skew.Load())) }

func (c *wallClock) set(skew time.Duration) { c.skew.Store(int64(skew)) }

// TestTimestampsAtEveryDoor produces records of odd times as JSON and as record batches.
func TestTimestampsAtEveryDoor(t *testing.T) {
	t.Parallel()
	var c wallClock
	n := nodekit.StartWith(t, nodekit.Options{Now: c.now})
	a := newAPI(t, n, "")
	const day = 24 * time.Hour
	const year2100 = 4_102_444_800_000
	for _, x := range []struct {
		name   string
		config object
		ts     func(now int64) int64
		status int
		warned bool // of a record that is older than retention.ms
	}{
		{"30 days old", nil, func(now int64) int64 { return now - (30 * day).Milliseconds() }, 200, true},
		{"30 days old, kept", object{"retention.ms": -1}, func(now int64) int64 { return now - (30 * day).Milliseconds() }, 200, false},
		{"30 days old, compacted", object{"cleanup.policy": "compact"}, func(now int64) int64 { return now - (30 * day).Milliseconds() }, 200, false},
		{"30 days old, bounded", object{"message.timestamp.before.max.ms": day.Milliseconds()}, func(now int64) int64 { return now - (30 * day).Milliseconds() }, 422, false},
		{"30 days old, replaced", object{"message.timestamp.type": "LogAppendTime", "message.timestamp.before.max.ms": 0}, func(now int64) int64 { return now - (30 * day).Milliseconds() }, 200, false},
		{"the year 2100", nil, func(int64) int64 { return year2100 }, 422, false},
		{"the year 2100, unbounded", object{"message.timestamp.after.max.ms": int64(1) << 62}, func(int64) int64 { return year2100 }, 200, false},
		{"the year 2100, replaced", object{"message.timestamp.type": "LogAppendTime"}, func(int64) int64 { return year2100 }, 200, false},
		{"negative", nil, func(int64) int64 { return -1 }, 422, false},
		{"59 minutes ahead", nil, func(now int64) int64 { return now + 59*60_000 }, 200, false},
		{"61 minutes ahead", nil, func(now int64) int64 { return now + 61*60_000 }, 422, false},
	} {
		topic := strings.Map(func(r rune) rune {
			if strings.ContainsRune(" ,", r) {
				return '_'
			}
			return r
		}, x.name)
		path := a.topic(topic, 1, x.config)
		ts := x.ts(c.now().UnixMilli())
		answers := map[string]*answer{
			"batch": a.batches(path+"/partitions/0/records", batchOf(t, ts, "k")),
			"JSON":  a.post(path+"/records", object{"records": []object{{"key": "k", "value": "v", "timestamp": ts}}}),
		}
		for door, y := range answers {
			what := x.name + " as " + door
			require.Equal(t, x.status, y.Status, "%s: %s", what, y.Body)
			require.Equal(t, x.warned, y.Header.Get("Tidewire-Warning") != "", what)
			if x.status != 200 {
				require.Equal(t, "invalid-timestamp", y.Code(), what)
			}
		}
		want := int64(0)
		if x.status == 200 {
			want = 2
		}
		require.Equal(t, want, a.logEnd(path, 0), x.name)
	}
	require.Equal(t, 1, strings.Count(n.Log.String(), "older than retention.ms"), "one line for both doors")
	require.Contains(t, string(a.get("/metrics").Body), "tidewire_produced_expired_records_total 2\n")
}

// The wall clock jitters by 50 ms and jumps by an hour, forth and back, while records are
// produced: each is taken, offsets grow by one, times are those of the clock at that moment,
// and nothing that is younger than retention.ms is deleted.
func TestJumpsOfTheClockLoseNothing(t *testing.T) {
	t.Parallel()
	var c wallClock
	n := nodekit.StartWith(t, nodekit.Options{Now: c.now})
	a := newAPI(t, n, "")
	retention := object{"retention.ms": (2 * time.Hour).Milliseconds(), "segment.ms": 1}
	paths := []string{a.topic("jumps", 1, retention), a.topic("jumps.append", 1, object{
		"retention.ms": (2 * time.Hour).Milliseconds(), "segment.ms": 1, "message.timestamp.type": "LogAppendTime",
	})}
	next := int64(0)
	for _, skew := range []time.Duration{
		0, 50 * time.Millisecond, -50 * time.Millisecond, time.Hour, time.Hour + 50*time.Millisecond, 0, -time.Hour,
		-time.Hour - 50*time.Millisecond, -50 * time.Millisecond, time.Hour, -time.Hour, 0,
	} {
		c.set(skew)
		a.admin = a.Admin() // a token is of a time, too: one of an hour ago has ended
		before := c.now().UnixMilli()
		for _, path := range paths {
			for door := range 2 {
				var x *answer
				if door == 0 {
					x = a.post(path+"/records", object{"records": []object{{"key": "k", "value": "v"}}})
				} else {
					x = a.batches(path+"/partitions/0/records", batchOf(t, before, "k"))
				}
				r := decoded(t, x, 200)["results"].([]any)[0].(object)
				require.Equal(t, next+int64(door), number(t, r["offset"]), "at %s", skew)
				require.GreaterOrEqual(t, number(t, r["timestamp"]), before, "at %s", skew)
				require.Less(t, number(t, r["timestamp"]), before+60_000, "at %s", skew)
			}
		}
		next += 2
	}
	for _, path := range paths {
		records := a.fetched(path, 0)
		require.Len(t, records, int(next))
		for i, r := range records {
			require.Equal(t, fmt.Sprint(i), fmt.Sprint(r["offset"]))
		}
		// A seek finds the smallest offset at or after a time, whatever the order of times.
		at := number(t, records[6]["timestamp"])
		first := -1
		for i, r := range records {
			if number(t, r["timestamp"]) >= at {
				first = i
				break
			}
		}
		got := decoded(t, a.get(fmt.Sprintf("%s/partitions/0/records?timestamp=%d&max_records=1", path, at)), 200)["records"].([]any)
		require.Equal(t, int64(first), number(t, got[0].(object)["offset"]))
	}
}
