package history

import (
	"fmt"
	"math"

	"tidewire/internal/model"
)

// Asked is a query for what another node has measured, as it is sent there.
type Asked struct {
	Series []AskedSeries `json:"series"`
	Span   Span          `json:"span"`
}

// AskedSeries names a series: a topic's by the topic's id, as the node may not know its name yet.
type AskedSeries struct {
	Name  string         `json:"name"`
	Topic *model.TopicID `json:"topic,omitempty"`
}

// Told is the answer: the values of each series in the order of its points; null is a gap.
type Told struct {
	Values [][]*float64 `json:"values"`
}

// MostPoints bounds the points of all series of one query.
const MostPoints = 100_000

// Ask is the query for some series over a span.
func Ask(wanted []Wanted, s Span) Asked {
	q := Asked{Span: s}
	for _, w := range wanted {
		x := AskedSeries{Name: w.Def.Name}
		if w.Def.Topic {
			x.Topic = &w.Topic
		}
		q.Series = append(q.Series, x)
	}
	return q
}

// Answer answers the query of another node. Errors: invalid-argument.
func (h *History) Answer(q Asked) (Told, error) {
	s := q.Span
	if s.Step <= 0 || s.From < 0 || s.To < s.From || s.Points() > MostPoints || s.Points()*int64(len(q.Series)) > MostPoints {
		return Told{}, model.Invalid("", "no query for a history: from %d to %d in steps of %d", s.From, s.To, s.Step)
	}
	out := Told{Values: make([][]*float64, len(q.Series))}
	for i, x := range q.Series {
		w := Wanted{Def: h.byName[(&Def{Name: x.Name, Topic: x.Topic != nil}).Title("")]}
		if w.Def == nil || s.Step%w.Def.StepMs() != 0 {
			return Told{}, model.Invalid("", "there is no series %q in steps of %d", x.Name, s.Step)
		}
		if x.Topic != nil {
			w.Topic = *x.Topic
		}
		out.Values[i] = []*float64{}
		for _, p := range h.Query(w, s) {
			v := &p.Value
			if math.IsNaN(p.Value) {
				v = nil
			}
			out.Values[i] = append(out.Values[i], v)
		}
	}
	return out, nil
}

// Points are what was told of the i-th series of a query; an answer of another size is an error.
func (t Told) Points(i int, s Span) ([]Point, error) {
	if i >= len(t.Values) || int64(len(t.Values[i])) != s.Points() {
		return nil, fmt.Errorf("the answer has not the %d points of series %d", s.Points(), i)
	}
	out := make([]Point, len(t.Values[i]))
	for k, v := range t.Values[i] {
		out[k] = Point{s.begin() + int64(k)*s.Step, math.NaN()}
		if v != nil {
			out[k].Value = *v
		}
	}
	return out, nil
}
