package node

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/cluster"
)

// registerClock adds what is known of the wall clock to a registry.
func registerClock(r prometheus.Registerer, c *cluster.Cluster) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tidewire_clock_offset_seconds",
		Help: "How far the wall clock is ahead of the median of the nodes' clocks; NaN where there is nothing to compare.",
	}, func() float64 {
		off, known := c.ClockOffset()
		if !known {
			return math.NaN()
		}
		return off.Seconds()
	}))
}
