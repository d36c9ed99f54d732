package web

import (
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tidewire/api/route"
	"tidewire/internal/inflight"
)

// Metrics counts requests and serves a registry. Labels are route templates, methods and
// statuses, so that their number is bounded whatever clients send.
type Metrics struct {
	registry *prometheus.Registry
	own      *prometheus.Registry // of requests and seconds alone, for Totals
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	running  atomic.Int64
	series   sync.Map // series → *observed: looking labels up costs more than counting
}

// series names what is counted together.
type series struct {
	route, method string
	status        int
}

type observed struct {
	requests prometheus.Counter
	seconds  prometheus.Observer
}

// NewMetrics returns metrics in a registry of their own, with those of the process and the
// Go runtime; the owner adds its collectors.
func NewMetrics(r *prometheus.Registry) *Metrics {
	m := &Metrics{
		registry: r, own: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidewire_http_requests_total", Help: "HTTP requests answered, by route, method and status.",
		}, []string{"route", "method", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tidewire_http_request_seconds", Help: "Time to answer HTTP requests, waiting included, by route and method.",
			Buckets: LatencyBounds,
		}, []string{"route", "method"}),
	}
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tidewire_http_requests_in_progress", Help: "HTTP requests under way, streams and those that wait included.",
	}, func() float64 { return float64(m.running.Load()) }))
	r.MustRegister(m.requests, m.seconds, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.own.MustRegister(m.requests, m.seconds)
	return m
}

// RegisterInflight adds what requests under way hold.
func RegisterInflight(r prometheus.Registerer, b *inflight.Budget) {
	r.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tidewire_http_inflight_bytes", Help: "Bytes that requests under way hold, of --http-inflight-bytes.",
		}, func() float64 { return float64(b.Used()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "tidewire_http_inflight_refused_total", Help: "Requests refused with 429 since those under way held all of --http-inflight-bytes.",
		}, func() float64 { return float64(b.Refused()) }),
	)
}

// Handler serves the registry.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// observe counts a request once it is answered.
func (m *Metrics) observe(g *gin.Context) {
	start := time.Now()
	p := route.ParkingOf(g.Request)
	if p == nil || p.Since().IsZero() {
		m.running.Add(1)
	} else {
		start = p.Since()
	}
	parks := false
	defer func() {
		if !parks {
			m.running.Add(-1)
		}
	}()
	g.Next()
	if parks = p != nil && p.Parks(); parks { // it is still under way
		p.Keep(start)
		return
	}
	path := g.FullPath()
	if path == "" {
		path = "none"
	}
	o := m.of(series{path, knownMethod(g.Request.Method), g.Writer.Status()})
	o.requests.Inc()
	o.seconds.Observe(time.Since(start).Seconds())
}

func (m *Metrics) of(s series) *observed {
	if o, ok := m.series.Load(s); ok {
		return o.(*observed)
	}
	o, _ := m.series.LoadOrStore(s, &observed{
		m.requests.WithLabelValues(s.route, s.method, strconv.Itoa(s.status)),
		m.seconds.WithLabelValues(s.route, s.method),
	})
	return o.(*observed)
}

func knownMethod(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return m
	}
	return "other"
}
