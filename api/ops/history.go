package ops

import (
	"context"
	"math"
	"net/http"
	"strings"

	"tidewire/api/route"
	"tidewire/internal/history"
	"tidewire/internal/model"
)

// HistoryAnswer is series of measurements.
type HistoryAnswer struct {
	Series []HistorySeries `json:"series"`
}

// HistorySeries is one series. A point is [time, value]: the time in milliseconds since 1970
// at which its step begins, and the value of the step, which is null in a gap, where nothing
// was measured.
type HistorySeries struct {
	Name        string `json:"name"`
	Unit        string `json:"unit" enums:"bytes_per_s,records_per_s,requests_per_s,bytes,ms,count"`
	Aggregation string `json:"aggregation" enums:"avg,last,quantile"` // how a coarser step is made
	StepMs      int64  `json:"step_ms"`                               // of the points, or without points the finest
	Doc         string `json:"doc"`
	Points      []any  `json:"points" swaggertype:"array,array,number" extensions:"x-pairs,x-kinds=number|null"`
}

// point is [time, value], or [time, null] for a gap.
func point(p history.Point) []any {
	if math.IsNaN(p.Value) {
		return []any{p.At, nil}
	}
	return []any{p.At, p.Value}
}

// Limits of one request.
const (
	maxSeries     = 50
	maxPoints     = 10_000 // of a series: more than are stored
	maxAllPoints  = history.MostPoints
	defaultSpan   = 3600 * 1000
	comfortPoints = 500 // by which the step is chosen where none is asked for
)

// metricsHistory gives what this node measured lately: of itself 24 hours at 10 seconds, of
// each topic one hour at 60 seconds. Without series it lists the series there are, without
// points; {topic} in a name stands for the name of a topic.
//
//	@ID			metricsHistory
//	@Summary	What was measured lately
//	@Tags		Cluster
//	@Param		series	query		string	false	"names of series, with commas between"
//	@Param		from	query		int		false	"milliseconds since 1970; an hour before to unless given"	minimum(0)
//	@Param		to		query		int		false	"milliseconds since 1970, not included; now unless given, and at most"	minimum(0)
//	@Param		step_ms	query		int		false	"between points, a multiple of 10000, with a topic's series of 60000; chosen for 500 points at most unless given"	minimum(10000)
//	@Success	200		{object}	HistoryAnswer
//	@Router		/v1/metrics/history [get]
//	@x-errors	["unknown-topic"]
func (a *API) metricsHistory(c *route.Call) error {
	return a.historyFrom(c, a.cluster.NodeID(), func() error { return nil })
}

// brokerMetricsHistory gives what a node measured lately, whichever node is asked; otherwise as
// metricsHistory. Where that node does not answer it is 503.
//
//	@ID			brokerMetricsHistory
//	@Summary	What a node measured lately
//	@Tags		Cluster
//	@Param		broker	path		int		true	"node id"	minimum(0)
//	@Param		series	query		string	false	"names of series, with commas between"
//	@Param		from	query		int		false	"milliseconds since 1970; an hour before to unless given"	minimum(0)
//	@Param		to		query		int		false	"milliseconds since 1970, not included; now unless given, and at most"	minimum(0)
//	@Param		step_ms	query		int		false	"between points, a multiple of 10000, with a topic's series of 60000; chosen for 500 points at most unless given"	minimum(10000)
//	@Success	200		{object}	HistoryAnswer
//	@Router		/v1/brokers/{broker}/metrics/history [get]
//	@x-errors	["unknown-broker","unknown-topic","leader-unavailable"]
func (a *API) brokerMetricsHistory(c *route.Call) error {
	id, err := c.PathBroker()
	if err != nil {
		return err
	}
	return a.historyFrom(c, id, func() error { return a.broker.MayDescribeCluster(c.Request.Context(), c.Caller()) })
}

// historyFrom answers with what a node has measured; may authorises beyond the series' own rights.
func (a *API) historyFrom(c *route.Call, node model.BrokerID, may func() error) error {
	names, given := c.Only("series")
	wanted, topics, err := a.wantedSeries(names, given)
	if err != nil {
		return err
	}
	span, err := a.historySpan(c, wanted)
	if err != nil {
		return err
	}
	if err := may(); err != nil {
		return err
	}
	if err := a.mayReadSeries(c, wanted, topics); err != nil {
		return err
	}
	if _, err := c.Broker(node); err != nil {
		return err
	}
	if !given {
		return c.JSON(http.StatusOK, a.seriesList())
	}
	points, err := a.measured(c.Request.Context(), node, wanted, span)
	if err != nil {
		return err
	}
	out := HistoryAnswer{Series: make([]HistorySeries, len(wanted))}
	for i, w := range wanted {
		s := seriesOf(w.Def, topics[i])
		s.StepMs = span.Step
		for _, p := range points[i] {
			s.Points = append(s.Points, point(p))
		}
		out.Series[i] = s
	}
	return c.JSON(http.StatusOK, out)
}

// measured are the points of each series, as this node or another one has measured them.
func (a *API) measured(ctx context.Context, node model.BrokerID, wanted []history.Wanted, span history.Span) ([][]history.Point, error) {
	out := make([][]history.Point, len(wanted))
	if node == a.cluster.NodeID() {
		for i, w := range wanted {
			out[i] = a.history.Query(w, span)
		}
		return out, nil
	}
	told, err := a.nodes.HistoryOf(ctx, node, history.Ask(wanted, span))
	if err != nil {
		return nil, err
	}
	for i := range wanted {
		if out[i], err = told.Points(i, span); err != nil {
			return nil, model.Errorf(model.LeaderUnavailable, "node %d has not told what it was asked for: %s", node, err)
		}
	}
	return out, nil
}

func seriesOf(d *history.Def, topic string) HistorySeries {
	return HistorySeries{
		Name: d.Title(topic), Unit: d.Unit, Aggregation: string(d.Aggregation), StepMs: d.StepMs(), Doc: d.Doc, Points: []any{},
	}
}

func (a *API) seriesList() HistoryAnswer {
	out := HistoryAnswer{Series: []HistorySeries{}}
	for _, d := range a.history.Defs() {
		out.Series = append(out.Series, seriesOf(&d, "{topic}"))
	}
	return out
}

// wantedSeries reads the names; topics has the topic of each, "" for the node's.
func (a *API) wantedSeries(names string, given bool) (wanted []history.Wanted, topics []string, err error) {
	if !given {
		return nil, nil, nil
	}
	list := strings.Split(names, ",")
	if len(list) > maxSeries {
		return nil, nil, model.Invalid("query:series", "one request has %d series at most", maxSeries)
	}
	seen := map[string]bool{}
	for _, name := range list {
		d, topic, ok := a.history.Find(name)
		switch {
		case !ok:
			return nil, nil, model.Invalid("query:series", "there is no series %q; GET /v1/metrics/history lists them", name)
		case seen[name]:
			return nil, nil, model.Invalid("query:series", "the series %q is named twice", name)
		case d.Topic && model.CheckTopicName(topic) != "":
			return nil, nil, model.Invalid("query:series", "%q: %s", topic, model.CheckTopicName(topic))
		}
		seen[name] = true
		wanted, topics = append(wanted, history.Wanted{Def: d}), append(topics, topic)
	}
	return wanted, topics, nil
}

// mayReadSeries authorises the caller for all series and finds their topics.
func (a *API) mayReadSeries(c *route.Call, wanted []history.Wanted, topics []string) error {
	for i := range wanted {
		if !wanted[i].Def.Topic {
			if err := a.broker.MayDescribeCluster(c.Request.Context(), c.Caller()); err != nil {
				return err
			}
			continue
		}
		t, err := a.broker.MayDescribeTopic(c.Request.Context(), c.Caller(), topics[i])
		if err != nil {
			return err
		}
		wanted[i].Topic = t.ID
	}
	return nil
}

// historySpan reads from, to and step_ms.
func (a *API) historySpan(c *route.Call, wanted []history.Wanted) (s history.Span, err error) {
	now := a.now().UnixMilli()
	any := route.IntRange{Def: now, Min: 0, Max: 1<<53 - 1}
	if s.To, err = c.QueryInt("to", any); err != nil {
		return s, err
	}
	any.Def = max(s.To-defaultSpan, 0)
	if s.From, err = c.QueryInt("from", any); err != nil {
		return s, err
	}
	if s.From > s.To {
		return s, model.Invalid("query:from", "from is after to")
	}
	s.To = min(s.To, now)
	own := int64(history.NodeStepMs)
	for _, w := range wanted {
		own = max(own, w.Def.StepMs())
	}
	natural := own * max((s.To-s.From+own*comfortPoints-1)/(own*comfortPoints), 1)
	if s.Step, err = c.QueryInt("step_ms", route.IntRange{Def: natural, Min: own, Max: 1 << 40}); err != nil {
		return s, err
	}
	if s.Step%own != 0 {
		return s, model.Invalid("query:step_ms", "step_ms must be a multiple of %d here", own)
	}
	if n := s.Points(); n > maxPoints || n*int64(len(wanted)) > maxAllPoints {
		return s, model.Invalid("query:step_ms", "one request has %d points of a series and %d of all at most: ask for a shorter time, a coarser step or fewer series", maxPoints, maxAllPoints)
	}
	return s, nil
}
