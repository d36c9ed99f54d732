// Package history keeps what a node measured lately: of the node 24 hours at 10 seconds, of
// each topic one hour at 60 seconds. Memory is bounded: 1.8 MB for the node and 1.4 kB for a
// topic, of which MaxTopics are kept at most. It is kept over restarts in a small file.
//
// Time is the wall clock's, told by the caller, as readers ask by it; durations are the
// monotonic clock's. A time in which nothing was measured is a gap, never zero. When the
// wall clock is set back, what was measured for times that are yet to come is dropped.
package history

import "strings"

// Steps and lengths of what is stored.
const (
	NodeStepMs  = 10_000
	TopicStepMs = 60_000
	nodeSlots   = 24 * 3600 * 1000 / NodeStepMs
	topicSlots  = 3600 * 1000 / TopicStepMs
	// MaxTopics bounds how many topics are kept; those that come later have no history until
	// others are deleted.
	MaxTopics = 20_000
)

// Aggregation says how points of a coarser step are made of those that are stored.
type Aggregation string

// Aggregations. Gaps do not count.
const (
	Average  Aggregation = "avg"
	Last     Aggregation = "last"
	Quantile Aggregation = "quantile" // of all requests of the step together
)

// Def defines a series.
type Def struct {
	Name        string // of a topic's series without the topic
	Topic       bool
	Unit        string // bytes_per_s, records_per_s, requests_per_s, bytes, ms or count
	Aggregation Aggregation
	Doc         string

	column   int // of the ring, or of a histogram its first
	quantile float64
}

// StepMs is the finest step of the series.
func (d *Def) StepMs() int64 {
	if d.Topic {
		return TopicStepMs
	}
	return NodeStepMs
}

// Title is the name by which the series of a topic, or with "" of the node, is asked for.
func (d *Def) Title(topic string) string {
	if !d.Topic {
		return d.Name
	}
	return topicPrefix + topic + "/" + d.Name
}

const topicPrefix = "topics/"

// Columns of a topic, and the first ones of the node.
const (
	bytesIn = iota
	bytesOut
	recordsIn
	recordsOut
	traffic // the number of the above
)

const (
	topicSize    = traffic
	topicColumns = traffic + 1
)

// Columns of the node behind its traffic.
const (
	requests = traffic + iota
	clientErrors
	serverErrors
	firstGauge
)

// Gauges of a node, in the order of Sample.Gauges.
const (
	DiskUsed = iota
	DiskFree
	LogSize
	Memory
	Goroutines
	Connections
	Topics
	Partitions
	OfflinePartitions
	gauges
)

// Histograms of a sample.
const (
	AllRequests = iota // but those that wait for records, and streams
	ProduceRequests
	histograms
)

func nodeGauge(name, unit, doc string, gauge int) Def {
	return Def{Name: name, Unit: unit, Aggregation: Last, Doc: doc, column: firstGauge + gauge}
}

// trafficDefs are the series that nodes and topics have.
func trafficDefs(topic bool, of string) []Def {
	return []Def{
		{Name: "bytes_in_per_s", Topic: topic, Unit: "bytes_per_s", Aggregation: Average, Doc: "Bytes of keys, values and headers produced to " + of + ".", column: bytesIn},
		{Name: "bytes_out_per_s", Topic: topic, Unit: "bytes_per_s", Aggregation: Average, Doc: "Bytes of keys, values and headers given to readers of " + of + ".", column: bytesOut},
		{Name: "records_in_per_s", Topic: topic, Unit: "records_per_s", Aggregation: Average, Doc: "Records produced to " + of + ".", column: recordsIn},
		{Name: "records_out_per_s", Topic: topic, Unit: "records_per_s", Aggregation: Average, Doc: "Records given to readers of " + of + ".", column: recordsOut},
	}
}

// defs makes the definitions of a node whose histograms have so many buckets.
func defs(buckets int) []Def {
	out := append(trafficDefs(false, "the node"),
		Def{Name: "requests_per_s", Unit: "requests_per_s", Aggregation: Average, Doc: "HTTP requests answered.", column: requests},
		Def{Name: "client_errors_per_s", Unit: "requests_per_s", Aggregation: Average, Doc: "HTTP requests answered with a status from 400 to 499.", column: clientErrors},
		Def{Name: "server_errors_per_s", Unit: "requests_per_s", Aggregation: Average, Doc: "HTTP requests answered with a status from 500 on.", column: serverErrors},
		nodeGauge("disk_used_bytes", "bytes", "Bytes in use on the disk of the data folder, by whomever.", DiskUsed),
		nodeGauge("disk_free_bytes", "bytes", "Bytes that are free on the disk of the data folder.", DiskFree),
		nodeGauge("log_size_bytes", "bytes", "Bytes of record data on the node.", LogSize),
		nodeGauge("memory_bytes", "bytes", "Memory that the process holds, without what it gave back; pages of files do not count.", Memory),
		nodeGauge("goroutines", "count", "Goroutines of the process.", Goroutines),
		nodeGauge("connections", "count", "Connections open at the HTTP port.", Connections),
		nodeGauge("topics", "count", "Topics with a replica on the node.", Topics),
		nodeGauge("partitions", "count", "Partitions with a replica on the node.", Partitions),
		nodeGauge("offline_partitions", "count", "Partitions of the node that cannot be read.", OfflinePartitions),
	)
	for h, of := range [histograms]struct{ name, doc string }{
		AllRequests:     {"request_latency", "HTTP requests, but reads of records, which may wait, and streams"},
		ProduceRequests: {"produce_latency", "HTTP requests that produce records, from their first byte to the answer"},
	} {
		for _, q := range []struct {
			suffix string
			of     float64
		}{{"p50", 0.5}, {"p95", 0.95}, {"p99", 0.99}} {
			out = append(out, Def{
				Name: of.name + "_" + q.suffix + "_ms", Unit: "ms", Aggregation: Quantile, quantile: q.of,
				Doc: "Time to answer that " + strings.TrimPrefix(q.suffix, "p") + " % of " + of.doc + ", do not exceed.", column: firstGauge + gauges + h*buckets,
			})
		}
	}
	out = append(out, trafficDefs(true, "the topic")...)
	return append(out, Def{Name: "size_bytes", Topic: true, Unit: "bytes", Aggregation: Last, Doc: "Bytes of record data of the topic on the node.", column: topicSize})
}
