package coordinator

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/internal/model"
)

// counters are what the coordinator counts since its start.
type counters struct {
	reloads atomic.Int64 // groups that were read again, as a change was not committed
	rounds  atomic.Int64 // batches appended
	ops     atomic.Int64 // operations in them
	polls   atomic.Int64 // under way now
	progress
}

// progress tells how far the reading of partitions is, in offsets.
type progress struct {
	done  [offsetsPartitions]atomic.Int64
	total [offsetsPartitions]atomic.Int64
}

func (p *progress) read(id model.PartitionID, done, total int64) {
	if int(id) < len(p.done) {
		p.done[id].Store(done)
		p.total[id].Store(total)
	}
}

func (p *progress) sums() (done, total int64) {
	for i := range p.done {
		done += p.done[i].Load()
		total += p.total[i].Load()
	}
	return done, total
}

// collector gives the coordinator's metrics. There is no label per group: their number has no
// bound.
type collector struct {
	c                                                *Coordinator
	groups, polls, partitions, loading               *prometheus.Desc
	loadDone, loadTotal, reloads, rounds, operations *prometheus.Desc
}

// RegisterMetrics adds the coordinator's metrics.
func (c *Coordinator) RegisterMetrics(r prometheus.Registerer) {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("tidewire_group_"+name, help, nil, nil)
	}
	r.MustRegister(&collector{
		c:          c,
		groups:     desc("groups", "Consumer groups that this node looks after and has loaded."),
		polls:      desc("polls", "Polls of members under way on this node."),
		partitions: desc("coordinator_partitions", "Partitions of __consumer_offsets whose groups this node looks after."),
		loading:    desc("coordinator_partitions_loading", "Of these, those that are not loaded yet."),
		loadDone:   desc("load_offsets_done", "Offsets of __consumer_offsets read by the latest loading of each partition."),
		loadTotal:  desc("load_offsets_total", "Offsets that there were to be read."),
		reloads:    desc("reloads_total", "Groups that were read again since a change of theirs was not committed."),
		rounds:     desc("appends_total", "Batches that groups have appended to __consumer_offsets."),
		operations: desc("appended_operations_total", "Operations in these batches."),
	})
}

// Describe implements prometheus.Collector.
func (m *collector) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, out) }

// Collect implements prometheus.Collector.
func (m *collector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v))
	}
	count := func(d *prometheus.Desc, v int64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	groups, loading := 0, 0
	shards := m.c.current()
	for _, s := range shards {
		n, loaded := s.count()
		groups += n
		if !loaded {
			loading++
		}
	}
	done, total := m.c.metrics.sums()
	gauge(m.groups, groups)
	gauge(m.polls, int(m.c.metrics.polls.Load()))
	gauge(m.partitions, len(shards))
	gauge(m.loading, loading)
	gauge(m.loadDone, int(done))
	gauge(m.loadTotal, int(total))
	count(m.reloads, m.c.metrics.reloads.Load())
	count(m.rounds, m.c.metrics.rounds.Load())
	count(m.operations, m.c.metrics.ops.Load())
}

// count is the number of groups; not loaded: they are not known yet.
func (s *shard) count() (groups int, loaded bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.groups), s.loaded
}
