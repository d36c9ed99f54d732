package audit

import "github.com/prometheus/client_golang/prometheus"

// collector tells what became of entries.
type collector struct {
	l                                  *Log
	written, lost, suppressed, waiting *prometheus.Desc
}

// RegisterMetrics adds the log's metrics to a registry.
func (l *Log) RegisterMetrics(r prometheus.Registerer) {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("tidewire_audit_"+name, help, nil, nil)
	}
	r.MustRegister(&collector{
		l:          l,
		written:    desc("written_total", "Entries written to the audit log."),
		lost:       desc("lost_total", "Entries of the audit log that were lost: the queue was full, or the node stopped while it could not write."),
		suppressed: desc("suppressed_total", "Entries about calls that changed nothing which were left out since too many came."),
		waiting:    desc("queued", "Entries that wait to be written to the audit log."),
	})
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.written, c.lost, c.suppressed, c.waiting} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	n := c.l.Counts()
	for d, v := range map[*prometheus.Desc]int64{c.written: n.Written, c.lost: n.Lost, c.suppressed: n.Suppressed} {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	out <- prometheus.MustNewConstMetric(c.waiting, prometheus.GaugeValue, float64(n.Queued))
}
