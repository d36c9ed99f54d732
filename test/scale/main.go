// Command scale measures what many partitions, and many segments, cost a node: a real
// process with real files, of which it counts the descriptors (/proc/PID/fd) and the
// resident memory (/proc/PID/smaps_rollup). It prints a Markdown table, the form of
// docs/performance.md, and checks on the way that every record is there.
//
//	make scale
//	go run ./test/scale -binary bin/tidewire -topics 10 -partitions 50 -segments 100
//
// Memory is measured twice. "As it is" is a node with its usual settings a while after its
// last work; "collected" is one with GOGC=10, which has little but what it needs. The cost
// of a partition is the difference to an empty node under the same setting, over their
// number.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

type options struct {
	binary, data       string
	topics, partitions int // of each topic
	records            int // of each partition, in as many requests
	bytes              int // of each record's value
	segments           int
	settle             time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.binary, "binary", "bin/tidewire", "the program to measure")
	flag.StringVar(&o.data, "data", "", "folder for the nodes' data; default a temporary one beside the binary")
	flag.IntVar(&o.topics, "topics", 100, "topics")
	flag.IntVar(&o.partitions, "partitions", 100, "partitions of each topic")
	flag.IntVar(&o.records, "records", 3, "records of each partition, in as many batches")
	flag.IntVar(&o.bytes, "bytes", 2000, "bytes of each record's value, more or less")
	flag.IntVar(&o.segments, "segments", 1000, "segments of the partition that has many")
	flag.DurationVar(&o.settle, "settle", 15*time.Second, "how long a node is left alone before its memory is read")
	flag.Parse()
	if err := run(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return err
	}
	if o.data == "" {
		// Beside the binary, since a temporary folder is in memory on many machines.
		if o.data, err = os.MkdirTemp(filepath.Dir(o.binary), "scale-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.data)) }()
	}
	fmt.Fprintf(os.Stdout, "%s, %d cores, %s; %d topics of %d partitions, %d records of %d bytes in each; %d segments in one partition\n\n",
		cpuModel(), runtime.NumCPU(), runtime.Version(), o.topics, o.partitions, o.records, o.bytes, o.segments)
	fmt.Fprintf(os.Stdout, "| what | measured | goal |\n|---|---:|---:|\n")
	if err := manyPartitions(ctx, o); err != nil {
		return err
	}
	return manySegments(ctx, o)
}

func line(what, measured, goal string) {
	fmt.Fprintf(os.Stdout, "| %s | %s | %s |\n", what, measured, goal)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// lean makes the collector leave little behind.
var lean = []string{"GOGC=10"}

// rested starts a node and reads what it uses once it has come to rest, before anybody has
// logged in.
func (n *node) rested(ctx context.Context, settle time.Duration) (took time.Duration, u usage, err error) {
	if took, err = n.start(ctx); err != nil {
		return took, u, err
	}
	time.Sleep(settle)
	u, err = n.usage()
	return took, u, err
}

// costs is what an empty node has resident: as it is, collected, and collected after
// somebody has logged in.
type costs struct{ asIs, collected, used usage }

// empty measures nodes without partitions.
func empty(ctx context.Context, o options) (c costs, err error) {
	n := &node{binary: o.binary, dir: filepath.Join(o.data, "empty")}
	defer n.abandon()
	if _, err := n.start(ctx); err != nil { // the first start hashes the administrator's password
		return c, err
	}
	if _, err := n.stop(); err != nil {
		return c, err
	}
	if _, c.asIs, err = n.rested(ctx, o.settle); err != nil {
		return c, err
	}
	if _, err := n.stop(); err != nil {
		return c, err
	}
	n.env = lean
	if _, c.collected, err = n.rested(ctx, o.settle); err != nil {
		return c, err
	}
	if _, err := n.call(ctx, "GET", "/v1/topics", nil); err != nil {
		return c, err
	}
	time.Sleep(o.settle)
	if c.used, err = n.usage(); err != nil {
		return c, err
	}
	_, err = n.stop()
	return c, err
}

// each is the cost of a partition.
func (c costs) each(o options, u, base usage) string {
	total := o.topics * o.partitions
	return fmt.Sprintf("%.1f KB", float64(u.residentKiB-base.residentKiB)*1.024/float64(total))
}

func manyPartitions(ctx context.Context, o options) error {
	c, err := empty(ctx, o)
	if err != nil {
		return err
	}
	line("empty node: resident as it is, collected", fmt.Sprintf("%d, %d KiB", c.asIs.residentKiB, c.collected.residentKiB), "")
	n := &node{binary: o.binary, dir: filepath.Join(o.data, "many")}
	defer n.abandon()
	w := &world{n: n, o: o}
	if err := filling(ctx, w); err != nil {
		return err
	}
	took, u, err := n.rested(ctx, o.settle)
	if err != nil {
		return err
	}
	line("start after a clean stop", seconds(took), "15 s")
	line("resident for each partition, as it is", c.each(o, u, c.asIs), "60 KB")
	if err := w.verify(ctx); err != nil {
		return err
	}
	if err := w.round(ctx); err != nil { // so that the kill finds something to recover everywhere
		return err
	}
	n.kill()
	if took, err = n.start(ctx); err != nil {
		return err
	}
	line("start after kill -9", seconds(took), "60 s")
	if err := w.verify(ctx); err != nil {
		return err
	}
	if took, err = n.stop(); err != nil {
		return err
	}
	line("clean stop of a node that was only read from", seconds(took), "")
	return leanPartitions(ctx, w, c)
}

// leanPartitions reads what partitions need when the collector leaves little behind.
func leanPartitions(ctx context.Context, w *world, c costs) error {
	n, o := w.n, w.o
	n.env = lean
	_, u, err := n.rested(ctx, o.settle)
	if err != nil {
		return err
	}
	line("resident for each partition, collected", c.each(o, u, c.collected), "60 KB")
	if err := w.round(ctx); err != nil {
		return err
	}
	time.Sleep(o.settle)
	if u, err = n.usage(); err != nil {
		return err
	}
	line("resident for each partition after a record in each, collected", c.each(o, u, c.used), "60 KB")
	line("most open files of the process, with a cap of", fmt.Sprintf("%d, %.0f", n.mostFiles.Load(), u.limit), "4,096")
	_, err = n.stop()
	return err
}

// filling makes the partitions and stops the node.
func filling(ctx context.Context, w *world) error {
	if _, err := w.n.start(ctx); err != nil {
		return err
	}
	if err := w.fill(ctx); err != nil {
		return err
	}
	u, err := w.n.usage()
	if err != nil {
		return err
	}
	line("files closed for others meanwhile, of them synced for it", fmt.Sprintf("%.0f, %.0f", u.evictions, u.syncs), "")
	took, err := w.n.stop()
	if err != nil {
		return err
	}
	line("clean stop right after the last record", seconds(took), "")
	return nil
}

func manySegments(ctx context.Context, o options) error {
	n := &node{binary: o.binary, dir: filepath.Join(o.data, "segments")}
	defer n.abandon()
	if _, err := n.start(ctx); err != nil {
		return err
	}
	w := &world{n: n, o: o}
	made, err := w.fillSegments(ctx)
	if err != nil {
		return err
	}
	if _, err := n.stop(); err != nil {
		return err
	}
	for _, how := range []string{"a clean stop", "kill -9"} {
		if _, err := n.start(ctx); err != nil {
			return err
		}
		took, err := n.opened()
		if err != nil {
			return err
		}
		line(fmt.Sprintf("open %d segments of one partition after %s", made, how), fmt.Sprintf("%.3f s", took.Seconds()), "1 s")
		if err := w.verifySegments(ctx); err != nil {
			return err
		}
		n.kill()
	}
	return nil
}

func cpuModel() string {
	raw, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for l := range strings.Lines(string(raw)) {
		if name, model, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(model)
		}
	}
	return runtime.GOARCH
}
