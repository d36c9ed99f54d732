package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
)

func TestTheClustersTimeIsTheMedianOfItsNodesClocks(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	now := time.Now()
	for _, x := range []struct {
		name  string
		ahead []time.Duration // of nodes beside the leader, whose own is 0
		want  time.Duration
	}{
		{"alone", nil, 0},
		{"two: that of the one which leads", []time.Duration{hour}, 0},
		{"three, one of them ahead", []time.Duration{0, hour}, 0},
		{"three, and the leader is the one", []time.Duration{hour, hour + 2}, hour},
		{"three, and the leader is ahead", []time.Duration{-hour, -hour}, -hour},
		{"four, two by two", []time.Duration{0, -hour, -hour}, 0},
		{"five", []time.Duration{-hour, -hour, hour, hour}, 0},
	} {
		b := beats{by: map[model.BrokerID]beat{}}
		for i, d := range x.ahead {
			b.note(beat{Node: model.BrokerID(i), Storage: "other", ClockOf: "leader", ClockAhead: d.Milliseconds(), at: now.Add(-time.Second)})
		}
		// What was measured against another leader, or long ago, counts for nothing.
		for i := range model.BrokerID(9) {
			b.note(beat{Node: 100 + i, Storage: "other", ClockOf: "leader before", ClockAhead: 1e9, at: now})
			b.note(beat{Node: 200 + i, Storage: "other", ClockOf: "leader", ClockAhead: 1e9, at: now.Add(-clockFresh)})
		}
		require.Equal(t, x.want, b.median("leader", now), x.name)
	}
}

func TestAClockThatIsFarOffIsToldOnceAndThatItIsRightAgain(t *testing.T) {
	t.Parallel()
	var k clock
	at := time.Now()
	note := func(ahead, median time.Duration) (time.Duration, bool) {
		return k.note("leader", at.Add(ahead), at, median)
	}
	for _, x := range []struct {
		ahead, median, off time.Duration
		say                bool
	}{
		{0, 0, 0, false},
		{clockBound, 0, clockBound, false},
		{clockBound + 1, 0, clockBound + 1, false},
		{time.Hour, 0, time.Hour, false},
		{0, 0, 0, false}, // it was another one's that had just been set
		{time.Hour, 0, time.Hour, false},
		{time.Hour, 0, time.Hour, false},
		{time.Hour, 0, time.Hour, true},
		{-time.Hour, 0, -time.Hour, false},
		{time.Hour, time.Hour, 0, false},
		{0, 0, 0, false},
		{0, 0, 0, true},
		{0, 0, 0, false},
	} {
		off, say := note(x.ahead, x.median)
		require.Equal(t, x.off, off)
		require.Equal(t, x.say, say, "ahead %s, median %s", x.ahead, x.median)
		of, ahead := k.against()
		require.Equal(t, "leader", of)
		require.Equal(t, x.ahead, ahead)
	}
}
