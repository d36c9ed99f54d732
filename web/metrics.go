package web

import (
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics counts requests and serves a registry. Labels are route templates, methods and
// statuses, so that their number is bounded whatever clients send.
type Metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

// NewMetrics returns metrics in a registry of their own; the owner adds its collectors.
func NewMetrics(r *prometheus.Registry) *Metrics {
	m := &Metrics{
		registry: r,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidewire_http_requests_total", Help: "HTTP requests answered, by route, method and status.",
		}, []string{"route", "method", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tidewire_http_request_seconds", Help: "Time to answer HTTP requests, waiting included, by route and method.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"route", "method"}),
	}
	r.MustRegister(m.requests, m.seconds)
	return m
}

// Handler serves the registry.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// observe counts a request once it is answered.
func (m *Metrics) observe(g *gin.Context) {
	start := time.Now()
	g.Next()
	route := g.FullPath()
	if route == "" {
		route = "none"
	}
	method := knownMethod(g.Request.Method)
	m.requests.WithLabelValues(route, method, strconv.Itoa(g.Writer.Status())).Inc()
	m.seconds.WithLabelValues(route, method).Observe(time.Since(start).Seconds())
}

func knownMethod(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return m
	}
	return "other"
}
