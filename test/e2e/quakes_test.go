package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// smallestSegment is the least value of segment.bytes.
const smallestSegment = 65536

// quake is one record of the input.
type quake struct {
	Key       string          `json:"key"`
	Timestamp int64           `json:"timestamp"`
	Value     json.RawMessage `json:"value"`
	Partition int             `json:"partition"`
}

func quakesInput(t *testing.T) []quake {
	t.Helper()
	var out []quake
	for line := range strings.Lines(testdata(t, "earthquakes.ndjson")) {
		var q quake
		require.NoError(t, json.Unmarshal([]byte(line), &q))
		out = append(out, q)
	}
	require.Len(t, out, 1707)
	require.True(t, slices.IsSortedFunc(out, func(a, b quake) int { return int(b.Timestamp - a.Timestamp) }), "newest first")
	return out
}

// moments are every timestamp, its neighbours on both sides, which lie in the gaps
// where there are any, and times before and after all.
func moments(quakes []quake) []int64 {
	set := map[int64]bool{0: true}
	last := int64(0)
	for _, q := range quakes {
		set[q.Timestamp-1], set[q.Timestamp], set[q.Timestamp+1] = true, true, true
		last = max(last, q.Timestamp)
	}
	set[last+1_000_000_000] = true
	return slices.Sorted(maps.Keys(set))
}

// quakeTopic is a topic and what was stored in it.
type quakeTopic struct {
	name   string
	stored [][]int64 // the timestamps of each partition, by offset
}

// store sends the quakes in order, in many small requests, and notes where they went.
func (q *quakeTopic) store(t *testing.T, a *api, quakes []quake, random *rand.Rand) {
	t.Helper()
	partitions := len(q.stored)
	a.createTopic(t, q.name, partitions, map[string]any{"retention.ms": -1, "segment.bytes": smallestSegment})
	for i := range quakes {
		quakes[i].Partition = i % partitions
	}
	for rest := quakes; len(rest) > 0; {
		n := min(1+random.IntN(4), len(rest))
		var answer struct {
			Results []result `json:"results"`
		}
		a.must(t, "POST", "/v1/topics/"+q.name+"/records?acks=leader", map[string]any{"records": rest[:n]}, &answer)
		for i, r := range answer.Results {
			require.Equal(t, rest[i].Partition, r.Partition)
			require.EqualValues(t, len(q.stored[r.Partition]), r.Offset)
			q.stored[r.Partition] = append(q.stored[r.Partition], rest[i].Timestamp)
		}
		rest = rest[n:]
	}
}

// segments sums the topic's segments.
func (q *quakeTopic) segments(t *testing.T, a *api) int {
	t.Helper()
	var described struct {
		Partitions []struct {
			Segments int `json:"segments"`
		} `json:"partitions"`
	}
	require.NoError(t, json.Unmarshal([]byte(a.n.must(t, a.token, "", "topic", "describe", q.name, "-o", "json")), &described))
	sum := 0
	for _, p := range described.Partitions {
		sum += p.Segments
	}
	return sum
}

// scan is the right answer: the smallest offset whose timestamp is at or after the
// moment, or -1.
func scan(stored []int64, moment int64) int64 {
	return int64(slices.IndexFunc(stored, func(ts int64) bool { return ts >= moment }))
}

// check asks for every moment, by several clients at once.
func (q *quakeTopic) check(t *testing.T, a *api, moments []int64) {
	t.Helper()
	const clients = 4
	var group sync.WaitGroup
	wrong := make([]error, clients)
	for c := range clients {
		group.Go(func() {
			for i := c; i < len(moments) && wrong[c] == nil; i += clients {
				if wrong[c] = q.askOffsets(a, moments[i]); wrong[c] == nil {
					wrong[c] = q.askRecords(a, moments[i])
				}
			}
		})
	}
	group.Wait()
	for _, err := range wrong {
		require.NoError(t, err, q.name)
	}
}

func (q *quakeTopic) askOffsets(a *api, moment int64) error {
	var got struct {
		Offsets []struct {
			Partition int    `json:"partition"`
			Offset    *int64 `json:"offset"`
			Timestamp *int64 `json:"timestamp"`
		} `json:"offsets"`
	}
	status, answer, err := a.try("GET", fmt.Sprintf("/v1/topics/%s/offsets?timestamp=%d", q.name, moment), nil)
	if err != nil || status != 200 || json.Unmarshal(answer, &got) != nil || len(got.Offsets) != len(q.stored) {
		return fmt.Errorf("offsets at %d: %d %s %w", moment, status, answer, err)
	}
	for i, o := range got.Offsets {
		want := scan(q.stored[i], moment)
		switch {
		case o.Partition != i,
			want < 0 && (o.Offset != nil || o.Timestamp != nil),
			want >= 0 && (o.Offset == nil || *o.Offset != want || o.Timestamp == nil || *o.Timestamp != q.stored[i][want]):
			return fmt.Errorf("offsets at %d, partition %d: want %d, got %s", moment, i, want, answer)
		}
	}
	return nil
}

func (q *quakeTopic) askRecords(a *api, moment int64) error {
	for i, stored := range q.stored {
		status, answer, err := a.try("GET", fmt.Sprintf("/v1/topics/%s/partitions/%d/records?timestamp=%d&max_records=1", q.name, i, moment), nil)
		var got page
		if err != nil || status != 200 || json.Unmarshal(answer, &got) != nil {
			return fmt.Errorf("fetch at %d: %d %s %w", moment, status, answer, err)
		}
		want := scan(stored, moment)
		switch {
		case want < 0 && (len(got.Records) != 0 || got.NextOffset != int64(len(stored))),
			want >= 0 && (len(got.Records) != 1 || got.Records[0].Offset != want || got.Records[0].Timestamp != stored[want] || got.NextOffset != want+1):
			return fmt.Errorf("fetch at %d, partition %d: want %d, got %s", moment, i, want, answer)
		}
	}
	return nil
}

// Seeks by time over many segments and small batches, for timestamps that fall, rise
// and jump, equal a scan of everything.
func TestSeeksByTimeEqualAScan(t *testing.T) {
	t.Parallel()
	quakes := quakesInput(t)
	all := moments(quakes)
	const seed = 20180206
	random := rand.New(rand.NewPCG(seed, 0))
	reversed := slices.Clone(quakes)
	slices.Reverse(reversed)
	shuffled := slices.Clone(quakes)
	random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })

	n := startNode(t)
	a := admin(t, n)
	var topics []*quakeTopic
	for _, order := range []struct {
		name   string
		quakes []quake
	}{{"falling", quakes}, {"rising", reversed}, {"shuffled", shuffled}} {
		for _, partitions := range []int{1, 3} {
			q := &quakeTopic{name: fmt.Sprintf("%s-%d", order.name, partitions), stored: make([][]int64, partitions)}
			q.store(t, a, order.quakes, random)
			require.GreaterOrEqual(t, q.segments(t, a), 10, "segments of %s", q.name)
			q.check(t, a, all)
			topics = append(topics, q)
		}
	}
	some := make([]int64, 0, len(all)/7)
	for i := 0; i < len(all); i += 7 {
		some = append(some, all[i])
	}
	for _, clean := range []bool{true, false} { // indexes that are read from disk, then rebuilt
		n.restart(t, clean)
		for _, q := range topics {
			q.check(t, a, some)
		}
	}
}
