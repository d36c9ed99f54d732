package node

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/storage/files"
	"tidewire/storage/log"
	"tidewire/web"
)

// leastOpenFiles is the lowest cap that a setting can ask for: with fewer, syncs and
// openings that run side by side would wait for each other.
const leastOpenFiles = 64

// openFiles is how many files the logs may have open at once.
func (n *Node) openFiles() (int, error) {
	descriptors, err := files.DescriptorLimit()
	if err != nil {
		return 0, fmt.Errorf("max-open-files: the limit of descriptors: %w", err)
	}
	most := n.cfg.MaxOpenFiles
	if most == 0 {
		most = files.LimitFor(descriptors)
	}
	most = max(most, leastOpenFiles)
	if uint64(most) >= descriptors {
		n.logger.Warn("the process may have fewer descriptors than --max-open-files: raise its limit (ulimit -n), connections need some too",
			"max_open_files", most, "descriptors", descriptors)
	}
	return most, nil
}

// maxConnections is how many connections the HTTP port may have open at once.
func (n *Node) maxConnections() (int, error) {
	descriptors, err := files.DescriptorLimit()
	if err != nil {
		return 0, fmt.Errorf("http-max-connections: the limit of descriptors: %w", err)
	}
	most := n.cfg.HTTPMaxConnections
	if most == 0 {
		most = int(min(descriptors/2, web.DefaultMaxConnections))
	}
	if uint64(most) >= descriptors {
		n.logger.Warn("the process may have fewer descriptors than --http-max-connections: raise its limit (ulimit -n), files need some too",
			"http_max_connections", most, "descriptors", descriptors)
	}
	return max(most, 1), nil
}

// registerOpenFiles adds the metrics of the logs' open files to a registry.
func registerOpenFiles(r prometheus.Registerer, store *log.Store) {
	gauge := func(name, help string, get func(files.Stats) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "tidewire_log_open_files" + name, Help: help},
			func() float64 { return float64(get(store.OpenFiles())) })
	}
	counter := func(name, help string, get func(files.Stats) int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "tidewire_log_file_" + name, Help: help},
			func() float64 { return float64(get(store.OpenFiles())) })
	}
	r.MustRegister(
		gauge("", "Files of partitions that are open.", func(s files.Stats) int { return s.Open }),
		gauge("_limit", "How many files of partitions may be open at once.", func(s files.Stats) int { return s.Limit }),
		counter("evictions_total", "Files of partitions that were closed for others.", func(s files.Stats) int64 { return s.Evictions }),
		counter("eviction_syncs_total", "Files of partitions that were synced to be closed for others.", func(s files.Stats) int64 { return s.Syncs }),
	)
}
