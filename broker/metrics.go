package broker

import (
	"github.com/prometheus/client_golang/prometheus"

	"tidewire/broker/partition"
)

// collector sums the node's traffic over its topics. There is no label per topic: their
// number has no bound.
type collector struct {
	b                                             *Broker
	recordsIn, recordsOut, recordsOld, bytesIn    *prometheus.Desc
	bytesOut, topics, partitions, failed, logSize *prometheus.Desc
	goneSegments, goneBytes, future, paused       *prometheus.Desc
}

// RegisterMetrics adds the broker's metrics to a registry.
func (b *Broker) RegisterMetrics(r prometheus.Registerer) {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("tidewire_"+name, help, nil, nil)
	}
	r.MustRegister(newCompactionCollector(&b.compaction), newQuotaCollector(b.quotas))
	r.MustRegister(&collector{
		b:            b,
		recordsIn:    desc("produced_records_total", "Records of produce requests that were appended or refused by their partition."),
		recordsOut:   desc("fetched_records_total", "Records given to readers."),
		recordsOld:   desc("produced_expired_records_total", "Records that were older than retention.ms when they were produced."),
		bytesIn:      desc("produced_bytes_total", "Bytes of keys, values and headers of produce requests."),
		bytesOut:     desc("fetched_bytes_total", "Bytes of keys, values and headers given to readers."),
		topics:       desc("topics", "Topics with a replica on this node."),
		partitions:   desc("partitions", "Partitions with a replica on this node."),
		failed:       desc("offline_partitions", "Partitions of this node that cannot be read."),
		logSize:      desc("log_size_bytes", "Bytes of record data on this node's disk."),
		goneSegments: desc("retention_deleted_segments_total", "Segments deleted by retention."),
		goneBytes:    desc("retention_deleted_bytes_total", "Bytes of record data deleted by retention."),
		future:       desc("retention_future_segments", "Segments found by the last pass of retention with a timestamp beyond message.timestamp.after.max.ms; they go by their last append."),
		paused:       desc("retention_time_paused", "1 while the wall clock is in doubt and nothing is deleted by retention.ms, else 0."),
	})
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.recordsIn, c.recordsOut, c.recordsOld, c.bytesIn, c.bytesOut, c.topics, c.partitions, c.failed, c.logSize,
		c.goneSegments, c.goneBytes, c.future, c.paused,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	var in, gone, old, bytesIn, bytesOut, size int64
	topics, partitions, failed := 0, 0, 0
	c.b.topics.Range(func(_, v any) bool {
		t := v.(*topic)
		topics++
		in += t.rates.recordsIn.Load()
		gone += t.rates.recordsOut.Load()
		old += t.rates.recordsOld.Load()
		bytesIn += t.rates.bytesIn.Load()
		bytesOut += t.rates.bytesOut.Load()
		parts := *t.parts.Load()
		partitions += len(parts)
		failed += countFailed(parts)
		for _, l := range t.openLogs() {
			if l != nil {
				size += l.Size()
			}
		}
		return true
	})
	counter := func(d *prometheus.Desc, v int64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	gauge := func(d *prometheus.Desc, v float64) { out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	counter(c.recordsIn, in)
	counter(c.recordsOut, gone)
	counter(c.recordsOld, old)
	counter(c.bytesIn, bytesIn)
	counter(c.bytesOut, bytesOut)
	gauge(c.topics, float64(topics))
	gauge(c.partitions, float64(partitions))
	gauge(c.failed, float64(failed))
	gauge(c.logSize, float64(size))
	counter(c.goneSegments, c.b.retention.segments.Load())
	counter(c.goneBytes, c.b.retention.bytes.Load())
	gauge(c.future, float64(c.b.retention.future.Load()))
	paused := 0.0
	if c.b.retention.paused.Load() {
		paused = 1
	}
	gauge(c.paused, paused)
}

func countFailed(parts []*partition.Partition) int {
	n := 0
	for _, p := range parts {
		if p == nil || p.Err() != nil {
			n++
		}
	}
	return n
}
