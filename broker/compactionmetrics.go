package broker

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

// compactionCollector gives the metrics of compaction.
type compactionCollector struct {
	c                                           *compaction
	passes, failures, read, kept                *prometheus.Desc
	ratio, uncleanable, held, lastEnd, lastTook *prometheus.Desc
}

func newCompactionCollector(c *compaction) *compactionCollector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("tidewire_compaction_"+name, help, nil, nil)
	}
	return &compactionCollector{
		c:           c,
		passes:      desc("passes_total", "Passes of compaction over a log that were completed."),
		failures:    desc("failures_total", "Passes of compaction that failed; the log stays as it is."),
		read:        desc("read_bytes_total", "Bytes of record batches that compaction decided about."),
		kept:        desc("kept_bytes_total", "Bytes of record batches that compaction kept."),
		ratio:       desc("dirty_ratio_max", "Largest share of not yet compacted bytes of a compacted log."),
		uncleanable: desc("uncleanable_partitions", "Partitions that cannot be compacted because of damage, until the node restarts."),
		held:        desc("held_by_transaction_partitions", "Partitions of which a transaction that is open keeps closed segments from compaction."),
		lastEnd:     desc("last_pass_timestamp_seconds", "When the last pass of compaction ended, in seconds since 1970; 0: none did."),
		lastTook:    desc("last_pass_duration_seconds", "How long the last pass of compaction took."),
	}
}

// Describe implements prometheus.Collector.
func (m *compactionCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.passes, m.failures, m.read, m.kept, m.ratio, m.uncleanable, m.held, m.lastEnd, m.lastTook} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m *compactionCollector) Collect(out chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v int64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	gauge := func(d *prometheus.Desc, v float64) { out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	counter(m.passes, m.c.passes.Load())
	counter(m.failures, m.c.failures.Load())
	counter(m.read, m.c.bytesRead.Load())
	counter(m.kept, m.c.bytesKept.Load())
	gauge(m.ratio, math.Float64frombits(m.c.dirtyRatio.Load()))
	gauge(m.uncleanable, float64(m.c.uncleanable.Load()))
	gauge(m.held, float64(m.c.heldByTransaction.Load()))
	gauge(m.lastEnd, float64(m.c.lastEnd.Load())/1000)
	gauge(m.lastTook, float64(m.c.lastTook.Load())/1000)
}
