package node

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"runtime/metrics"
	"time"

	"tidewire/broker"
	"tidewire/internal/fsx"
	"tidewire/internal/history"
	"tidewire/internal/sealed"
	"tidewire/web"
)

// historySave is how often the history is written.
const historySave = 5 * time.Minute

// recorder measures the node for its history.
type recorder struct {
	n       *Node
	history *history.History
	metrics *web.Metrics
	file    string
}

// openHistory reads the history of earlier runs; run measures from then on.
func (n *Node) openHistory(m *web.Metrics) *recorder {
	r := &recorder{n: n, metrics: m, file: filepath.Join(n.dir.Path(), "metrics-history")}
	r.history = history.New(web.LatencyBounds, n.moment())
	err := r.history.Load(fsx.OS(), r.file)
	switch {
	case errors.Is(err, sealed.ErrDamaged):
		n.logger.Warn("the history of metrics is damaged and is dropped: it begins anew", "file", r.file, "error", err)
	case err != nil:
		n.logger.Warn("the history of metrics cannot be read: it begins anew", "file", r.file, "error", err)
	}
	n.past.Store(r.history)
	n.onStop("the history of metrics", func(context.Context) error {
		r.save() // what fails is logged, and no reason for an unclean stop
		return nil
	})
	return r
}

// moment is now by both clocks.
func (n *Node) moment() history.Moment {
	mono := n.mono
	if mono == nil {
		mono = sinceBoot
	}
	return history.Moment{Wall: n.now(), Mono: mono()}
}

// run measures where slots of the wall clock end.
func (r *recorder) run(ctx context.Context) {
	saved := r.n.moment().Mono
	for {
		ms := r.n.now().UnixMilli() % history.NodeStepMs
		t := time.NewTimer(time.Duration(history.NodeStepMs-ms) * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
		now := r.n.moment()
		r.record(now)
		if now.Mono-saved >= historySave {
			saved = now.Mono
			r.save()
		}
	}
}

func (r *recorder) record(now history.Moment) {
	sample, topics, err := r.measure()
	if err != nil {
		r.n.logger.Warn("the node could not measure itself: its history has a gap", "error", err)
		return
	}
	rewound, full := r.history.Record(now, sample, func(yield func(history.TopicSample) bool) {
		for _, t := range topics {
			if !yield(t) {
				return
			}
		}
	})
	if rewound {
		r.n.logger.Warn("the wall clock was set back: the history of metrics goes on from there, and what was behind is dropped")
	}
	if full {
		r.n.logger.Warn("there are more topics than the history of metrics keeps; those that came later have none", "limit", history.MaxTopics)
	}
}

func (r *recorder) measure() (*history.Sample, []history.TopicSample, error) {
	http, err := r.metrics.Totals()
	if err != nil {
		return nil, nil, err
	}
	s := &history.Sample{Requests: http.Requests, ClientErrors: http.ClientErrors, ServerErrors: http.ServerErrors}
	s.Buckets[history.AllRequests], s.Buckets[history.ProduceRequests] = http.Latency, http.Produce
	var topics []history.TopicSample
	r.n.broker.Totals(func(t broker.TopicTotals) bool {
		s.Gauges[history.LogSize] += float64(t.SizeBytes)
		s.Gauges[history.Partitions] += float64(t.Partitions)
		s.Gauges[history.OfflinePartitions] += float64(t.Offline)
		topics = append(topics, history.TopicSample{
			ID: t.ID, BytesIn: t.BytesIn, BytesOut: t.BytesOut, Records: [2]int64{t.RecordsIn, t.RecordsOut}, SizeBytes: t.SizeBytes,
		})
		return true
	})
	s.Gauges[history.Topics] = float64(len(topics))
	s.Gauges[history.Connections] = float64(r.n.server.Connections().Open)
	s.Gauges[history.DiskFree], s.Gauges[history.DiskUsed] = math.NaN(), math.NaN()
	if disk := r.n.disk.Space(); disk.Total > 0 && disk.Total < math.MaxInt64 {
		s.Gauges[history.DiskFree], s.Gauges[history.DiskUsed] = float64(disk.Free), float64(disk.Total-disk.Free)
	}
	s.Gauges[history.Memory], s.Gauges[history.Goroutines] = processGauges()
	return s, topics, nil
}

// processGauges are the memory that the process holds, in bytes, and its goroutines.
func processGauges() (memory, goroutines float64) {
	x := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/sched/goroutines:goroutines"}}
	metrics.Read(x)
	return float64(x[0].Value.Uint64() - x[1].Value.Uint64()), float64(x[2].Value.Uint64())
}

// save writes the history; not where the disk is needed for records.
func (r *recorder) save() {
	if r.n.disk.Low() {
		return
	}
	if err := r.history.Save(fsx.OS(), r.file); err != nil {
		r.n.logger.Warn("the history of metrics could not be written; it is tried again", "error", err)
	}
}
