package history

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
)

func TestAnotherNodeIsToldTheSameAsThisOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := model.TopicID{1}
	w.topics[id] = &TopicSample{ID: id, SizeBytes: 7}
	for range 7 {
		w.sample.Requests += 10
		w.tick(step)
	}
	w.pass(time.Minute) // a gap
	w.tick(step)
	span := Span{From: base, To: w.wall, Step: TopicStepMs}
	requests, _, _ := w.Find("requests_per_s")
	size, _, _ := w.Find("topics/t/size_bytes")
	wanted := []Wanted{{Def: requests}, {Def: size, Topic: id}, {Def: size, Topic: model.TopicID{2}}}
	b, err := json.Marshal(Ask(wanted, span))
	require.NoError(t, err)
	var q Asked
	require.NoError(t, json.Unmarshal(b, &q))
	told, err := w.Answer(q)
	require.NoError(t, err)
	b, err = json.Marshal(told)
	require.NoError(t, err)
	told = Told{}
	require.NoError(t, json.Unmarshal(b, &told))
	values := func(points []Point) (at []int64, v []float64) {
		for _, p := range points {
			if math.IsNaN(p.Value) {
				p.Value = -1
			}
			at, v = append(at, p.At), append(v, p.Value)
		}
		return at, v
	}
	for i, x := range wanted {
		points, err := told.Points(i, span)
		require.NoError(t, err)
		at, v := values(points)
		wantAt, want := values(w.Query(x, span))
		require.Equal(t, wantAt, at)
		require.Equal(t, want, v)
	}
	_, v := values(w.Query(wanted[1], span))
	require.Contains(t, v, 7.0)
	require.Contains(t, v, -1.0)
	_, err = told.Points(3, span)
	require.Error(t, err, "it was not asked for")
	_, err = told.Points(0, Span{From: base, To: w.wall + TopicStepMs, Step: TopicStepMs})
	require.Error(t, err, "there is not as much")
}

func TestWhatIsNoQueryForAHistoryIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	good := Span{From: base, To: base + TopicStepMs, Step: TopicStepMs}
	topic := new(model.TopicID{1})
	for name, q := range map[string]Asked{
		"no step":            {Span: Span{From: 0, To: 10}},
		"backwards":          {Span: Span{From: 10, To: 0, Step: NodeStepMs}},
		"before the epoch":   {Span: Span{From: -10, To: 10, Step: NodeStepMs}},
		"too much":           {Span: Span{From: 0, To: math.MaxInt64, Step: NodeStepMs}},
		"too much in all":    {Span: Span{From: 0, To: 60_000 * NodeStepMs, Step: NodeStepMs}, Series: []AskedSeries{{Name: "topics"}, {Name: "partitions"}}},
		"an unknown series":  {Span: good, Series: []AskedSeries{{Name: "no"}}},
		"a topic's, of none": {Span: good, Series: []AskedSeries{{Name: "size_bytes"}}},
		"the node's, of one": {Span: good, Series: []AskedSeries{{Name: "memory_bytes", Topic: topic}}},
		"half a step":        {Span: Span{From: base, To: base + TopicStepMs, Step: NodeStepMs}, Series: []AskedSeries{{Name: "size_bytes", Topic: topic}}},
	} {
		_, err := w.Answer(q)
		require.True(t, model.HasCode(err, model.InvalidArgument), "%s: %v", name, err)
	}
	_, err := w.Answer(Asked{Span: good, Series: []AskedSeries{{Name: "size_bytes", Topic: topic}, {Name: "memory_bytes"}}})
	require.NoError(t, err)
}
