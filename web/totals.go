package web

import (
	"fmt"
	"net/http"
	"strings"
)

// LatencyBounds are the upper bounds of the buckets of latencies, in seconds.
var LatencyBounds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// Totals is what was counted since the process began.
type Totals struct {
	Requests, ClientErrors, ServerErrors float64
	// Latency and Produce count requests by LatencyBounds, those beyond all in the last
	// bucket: all requests but reads of records, which may wait, and streams; and those that
	// produce.
	Latency, Produce []float64
}

// Totals adds up the requests of all routes.
func (m *Metrics) Totals() (Totals, error) {
	t := Totals{Latency: make([]float64, len(LatencyBounds)+1), Produce: make([]float64, len(LatencyBounds)+1)}
	families, err := m.own.Gather()
	if err != nil {
		return t, fmt.Errorf("the node's own metrics: %w", err)
	}
	for _, f := range families {
		for _, x := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range x.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if h := x.GetHistogram(); h != nil {
				counts, below := make([]uint64, 0, len(LatencyBounds)+1), uint64(0)
				for _, b := range h.GetBucket() {
					counts = append(counts, b.GetCumulativeCount()-below)
					below = b.GetCumulativeCount()
				}
				t.observe(labels, append(counts, h.GetSampleCount()-below))
				continue
			}
			t.count(labels["status"], x.GetCounter().GetValue())
		}
	}
	return t, nil
}

func (t *Totals) count(status string, n float64) {
	t.Requests += n
	switch {
	case strings.HasPrefix(status, "4"):
		t.ClientErrors += n
	case strings.HasPrefix(status, "5"):
		t.ServerErrors += n
	}
}

func (t *Totals) observe(labels map[string]string, counts []uint64) {
	route, method := labels["route"], labels["method"]
	records := strings.HasSuffix(route, "/records")
	waits := strings.HasPrefix(route, "/v1/ws/") || strings.HasSuffix(route, "/poll") || records && method != http.MethodPost
	for k, n := range counts {
		if !waits {
			t.Latency[k] += float64(n)
		}
		if records && method == http.MethodPost {
			t.Produce[k] += float64(n)
		}
	}
}
