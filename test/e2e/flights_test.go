package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const flightPartitions = 6

// byKey is the values of each key, in order.
func byKey(records []rec) map[string][]string {
	out := map[string][]string{}
	for _, r := range records {
		out[string(r.Key)] = append(out[string(r.Key)], string(r.Value))
	}
	return out
}

// flightsInput reads the input's keys and values, the values' text as it stands there.
func flightsInput(t *testing.T, input string) map[string][]string {
	t.Helper()
	want := map[string][]string{}
	for line := range strings.Lines(input) {
		var in struct {
			Key   string          `json:"key"`
			Value json.RawMessage `json:"value"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &in))
		want[in.Key] = append(want[in.Key], string(in.Value))
	}
	require.Len(t, want, 59)
	require.Len(t, want["PHX"], 1302)
	require.Len(t, want["LAS"], 1243)
	return want
}

// checkFlights compares what one reader got with the input, and the order of each
// partition with its offsets.
func checkFlights(t *testing.T, want map[string][]string, got []rec) {
	t.Helper()
	require.Len(t, got, 20000)
	next := map[int32]int64{}
	home := map[string]int32{}
	for _, r := range got {
		require.Equal(t, next[r.Partition], r.Offset, "offsets of partition %d are dense and in order", r.Partition)
		next[r.Partition]++
		if p, seen := home[string(r.Key)]; seen {
			require.Equal(t, p, r.Partition, "key %s is in one partition", r.Key)
		}
		home[string(r.Key)] = r.Partition
	}
	require.Len(t, next, flightPartitions)
	values := byKey(got)
	require.Len(t, values, len(want))
	for key, w := range want {
		require.True(t, slices.Equal(w, values[key]), "values of %s, in order, byte by byte", key)
	}
}

func TestFlightsComeBackAsTheyWentIn(t *testing.T) {
	t.Parallel()
	input := testdata(t, "flights.ndjson")
	want := flightsInput(t, input)
	n := startNode(t)
	a := admin(t, n)
	a.createTopic(t, "flights", flightPartitions, nil)
	r := n.cli(t, a.token, input, "produce", "flights", "-o", "json")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.err, "20000 records stored in 6 partitions of flights")
	var sum struct {
		Lines, Records, Failed, Unknown int
	}
	require.NoError(t, json.Unmarshal([]byte(r.out), &sum))
	require.Equal(t, 20000, sum.Records)
	require.Equal(t, 20000, sum.Lines)
	require.Zero(t, sum.Failed+sum.Unknown)

	readAll := func(when string) {
		for name, read := range map[string]func() []rec{
			"REST":      func() []rec { return a.readTopic(t, "flights", flightPartitions) },
			"WebSocket": func() []rec { return a.readWebSocket(t, "flights", 20000) },
			"consume":   func() []rec { return a.readCLI(t, "flights") },
		} {
			t.Run(name+" "+when, func(t *testing.T) { checkFlights(t, want, read()) })
		}
	}
	readAll("at first")
	n.restart(t, true)
	readAll("after a clean restart")
	n.restart(t, false)
	readAll("after kill -9")
}
