// Command bench measures a node over HTTP the way its users load it: a real process on
// loopback, JWT on, a user that is no administrator and has ACL rules, no TLS, six
// partitions, client and server on the same cores. It prints the medians as a Markdown
// table, the form of docs/performance.md.
//
//	make bench                       # five runs of each case
//	go run ./test/bench -binary bin/tidewire -runs 1 -only single
//
// Two further rows tell how much the figures mean on a machine: a node that answers
// nothing but a fixed body to the same client bounds what HTTP allows here, and a bare
// fdatasync loop what the disk allows.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// row is one case. Goal is what to reach in its unit, 0 for none: at least that, and of a
// time at most.
type row struct {
	name, id string
	goal     float64
	unit     unit
	topic    string
	args     []string
}

// unit is what a row counts.
type unit uint8

const (
	records unit = iota // a second
	bytesIn             // bytes a second
	median              // of the time of a request, in milliseconds
)

// of takes what the unit counts from a report.
func (u unit) of(m report) float64 {
	switch u {
	case bytesIn:
		return m.MBPerS * 1e6
	case median:
		return m.Latency.P50
	}
	return m.RecordsPerS
}

// amount is a number of the unit in words.
func (u unit) amount(f float64) string {
	switch u {
	case bytesIn:
		return thousands(f/1e6) + " MB"
	case median:
		return thousands(f*1000) + " µs"
	}
	return thousands(f)
}

// each is behind an amount in bold.
func (u unit) each() string {
	if u == median {
		return ""
	}
	return "/s"
}

// The topics that rows use. The second has records of another size, which the rows that read
// do not count on.
const (
	topic      = "bench"
	largeTopic = "bench-large"
)

func producing(n, batch, connections int, acks string, more ...string) []string {
	return append([]string{
		"produce", "--records", strconv.Itoa(n), "--batch", strconv.Itoa(batch), "--connections", strconv.Itoa(connections), "--acks", acks,
	}, more...)
}

var rows = []row{
	{"produce, 100 × 100 B a request, acks=leader", "batch-leader", 1_000_000, records, topic, producing(3_000_000, 100, 16, "leader")},
	{"produce, 100 × 100 B a request, acks=all", "batch-all", 400_000, records, topic, producing(2_000_000, 100, 16, "all")},
	{"produce, 100 × 1 KiB a request, acks=leader", "large-leader", 400_000, records, largeTopic, producing(400_000, 100, 16, "leader", "--size", "1024")},
	{"produce, one record a request, 64 connections, acks=leader", "single-leader", 40_000, records, topic, producing(150_000, 1, 64, "leader")},
	{"produce, one record a request, 64 connections, acks=all", "single-all", 8_000, records, topic, producing(60_000, 1, 64, "all")},
	{"produce, one record a request, one connection, acks=leader: half of the requests take", "lone-leader", 0.150, median, topic, producing(20_000, 1, 1, "leader")},
	{"fetch, JSON", "fetch", 1_000_000, records, topic, []string{"consume"}},
	{"fetch, stored batches, 10,000 records a request", "binary", 1_500_000_000, bytesIn, topic, []string{"consume", "--format", "binary", "--batch", "10000", "--max-bytes", "67108864", "--rounds", "10"}},
	{"WebSocket fan-out, 100 readers, delivered in all (times: from the log to the reader)", "fanout", 2_000_000, records, topic, []string{"fanout", "--readers", "100", "--records", "100000"}},
}

// idle is the case of sockets that have nothing to do, each run on a node of its own: one
// that has had as many before would have their memory at hand.
const (
	idleSockets = 5000
	idleGoal    = 16 << 10 // bytes resident for each
)

// report is what `tidewire bench -o json` tells.
type report struct {
	RecordsPerS float64 `json:"records_per_s"`
	MBPerS      float64 `json:"mb_per_s"`
	Errors      int64   `json:"errors"`
	Latency     latency `json:"request_latency"`
	EndToEnd    latency `json:"end_to_end_latency"`
	Memory      struct {
		PerConnection int64 `json:"per_connection_bytes"`
	} `json:"memory"`
}

type latency struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

type options struct {
	binary, data, only string
	runs               int
}

func main() {
	var o options
	flag.StringVar(&o.binary, "binary", "bin/tidewire", "the program to measure")
	flag.StringVar(&o.data, "data", "", "folder for the node's data; default a temporary one beside the binary")
	flag.StringVar(&o.only, "only", "", "only rows whose id contains this")
	flag.IntVar(&o.runs, "runs", 5, "runs of each row; the median is printed")
	flag.Parse()
	if addr := os.Getenv(emptyNode); addr != "" {
		fmt.Fprintln(os.Stderr, "bench:", serveEmpty(addr))
		os.Exit(1)
	}
	if err := run(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	bin, err := filepath.Abs(o.binary)
	if err != nil {
		return err
	}
	dir := o.data
	if dir == "" {
		// Beside the binary, since a temporary folder is in memory on many machines.
		if dir, err = os.MkdirTemp(filepath.Dir(bin), "bench-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	b := &bench{bin: bin, dir: dir, home: filepath.Join(dir, "home")}
	if err := b.start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.stop()) }()
	fmt.Fprintf(os.Stdout, "%s, %d cores, %s\n\n", cpuModel(), runtime.NumCPU(), runtime.Version())
	fmt.Fprintf(os.Stdout, "| case | median | goal | runs | p50 | p99 |\n|---|---:|---:|---|---:|---:|\n")
	for _, r := range rows {
		if !strings.Contains(r.id, o.only) {
			continue
		}
		if err := b.row(ctx, r, o.runs); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	if strings.Contains("idle", o.only) {
		if err := idle(ctx, bin, dir, o.runs); err != nil {
			return fmt.Errorf("idle WebSockets: %w", err)
		}
	}
	return b.scale(ctx, o.runs)
}

// bench is a node under measurement.
type bench struct {
	bin, dir, home, url string
	node                *exec.Cmd
	log                 bytes.Buffer
}

const (
	adminPassword = "bench administrator"
	userPassword  = "bench user password"
)

// start starts the node and prepares it.
func (b *bench) start(ctx context.Context) error {
	b.node = exec.CommandContext(ctx, b.bin, "serve", "--data-dir", filepath.Join(b.dir, "data"),
		"--http-listen", "127.0.0.1:0", "--kafka-listen", "off", "--log-level", "warn")
	b.node.Env = append(os.Environ(), "TIDEWIRE_ADMIN_PASSWORD="+adminPassword)
	b.node.Stdout, b.node.Stderr = &b.log, &b.log
	if err := b.node.Start(); err != nil {
		return err
	}
	for range 300 {
		time.Sleep(100 * time.Millisecond)
		raw, err := os.ReadFile(filepath.Join(b.dir, "data", "endpoints.json"))
		var e struct {
			HTTP string `json:"http"`
		}
		if err == nil && json.Unmarshal(raw, &e) == nil && e.HTTP != "" {
			b.url = e.HTTP
			return b.prepare(ctx)
		}
	}
	return fmt.Errorf("the node did not start:\n%s", b.log.String())
}

func (b *bench) stop() error {
	if err := b.node.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return b.node.Wait()
}

// prepare makes a topic and a user with rules among others, and logs that user in.
func (b *bench) prepare(ctx context.Context) error {
	steps := []struct {
		stdin string
		args  []string
	}{
		{adminPassword, []string{"login", b.url, "--username", "admin", "--password-stdin"}},
		{"", []string{"topic", "create", topic, "--partitions", "6"}},
		{"", []string{"topic", "create", largeTopic, "--partitions", "6"}},
		{userPassword, []string{"user", "create", "bench", "--password-stdin"}},
		{"", allow(topic, "read", "literal")},
		{"", allow(topic, "write", "literal")},
		{"", allow(largeTopic, "write", "literal")},
		{"", allow("other.", "read", "prefixed")},
		{userPassword, []string{"login", b.url, "--username", "bench", "--password-stdin"}},
	}
	for _, s := range steps {
		if _, err := b.tidewire(ctx, s.stdin, s.args...); err != nil {
			return err
		}
	}
	return nil
}

func allow(topic, operation, pattern string) []string {
	return []string{
		"acl", "create", "--principal", "User:bench", "--resource-type", "topic", "--resource-name", topic,
		"--pattern", pattern, "--operation", operation, "--permission", "allow",
	}
}

func (b *bench) tidewire(ctx context.Context, stdin string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, b.bin, args...)
	cmd.Env = append(os.Environ(), "HOME="+b.home, "XDG_CONFIG_HOME="+b.home)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("tidewire %s: %w\n%s%s", strings.Join(args, " "), err, out.String(), errOut.String())
	}
	return out.Bytes(), nil
}

func (b *bench) measure(ctx context.Context, args []string) (report, error) {
	var r report
	out, err := b.tidewire(ctx, "", slices.Concat([]string{"bench"}, args, []string{"-o", "json"})...)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return r, err
	}
	if r.Errors > 0 {
		return r, fmt.Errorf("%d requests failed", r.Errors)
	}
	return r, nil
}

func (b *bench) row(ctx context.Context, r row, runs int) error {
	var all []report
	for range runs {
		m, err := b.measure(ctx, slices.Concat(r.args, []string{"--topic", r.topic}))
		if err != nil {
			return err
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b report) int { return cmp.Compare(r.unit.of(a), r.unit.of(b)) })
	mid := all[len(all)/2]
	times := mid.Latency
	if mid.EndToEnd.P50 > 0 {
		times = mid.EndToEnd
	}
	rates := make([]string, len(all))
	for i, m := range all {
		rates[i] = r.unit.amount(r.unit.of(m))
	}
	fmt.Fprintf(os.Stdout, "| %s | **%s**%s | %s%[3]s | %[5]s | %.2[6]f ms | %.2[7]f ms |\n", r.name, r.unit.amount(r.unit.of(mid)), r.unit.each(), r.unit.amount(r.goal),
		strings.Join(rates, ", "), times.P50, times.P99)
	return nil
}

// idle measures what a socket costs that has nothing to do.
func idle(ctx context.Context, bin, dir string, runs int) error {
	var each []int64
	for i := range runs {
		b := &bench{bin: bin, dir: filepath.Join(dir, fmt.Sprintf("idle-%d", i)), home: filepath.Join(dir, fmt.Sprintf("idle-home-%d", i))}
		if err := b.start(ctx); err != nil {
			return err
		}
		m, err := b.measure(ctx, []string{"idle", "--topic", "bench", "--connections", strconv.Itoa(idleSockets), "--pid", strconv.Itoa(b.node.Process.Pid)})
		if err = errors.Join(err, b.stop()); err != nil {
			return err
		}
		each = append(each, m.Memory.PerConnection)
	}
	slices.Sort(each)
	words := make([]string, len(each))
	for i, n := range each {
		words[i] = thousands(float64(n))
	}
	fmt.Fprintf(os.Stdout, "| WebSockets that are idle, %s of them, resident for each | **%s B** | %s B | %s | | |\n", thousands(idleSockets),
		words[len(words)/2], thousands(idleGoal), strings.Join(words, ", "))
	return nil
}

func thousands(f float64) string {
	s := fmt.Sprintf("%.0f", f)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// scale prints what this machine allows at the most.
func (b *bench) scale(ctx context.Context, runs int) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := l.Close(); err != nil {
		return err
	}
	empty := exec.CommandContext(ctx, os.Args[0])
	empty.Env = append(os.Environ(), emptyNode+"="+l.Addr().String())
	if err := empty.Start(); err != nil {
		return err
	}
	time.Sleep(500 * time.Millisecond)
	var rates []float64
	for range runs {
		m, err := b.measure(ctx, []string{
			"produce", "--records", "100000", "--batch", "1", "--connections", "64", "--acks", "leader",
			"--topic", "bench", "--server", "http://" + l.Addr().String(), "--token", "none",
		})
		if err != nil {
			return err
		}
		rates = append(rates, m.RecordsPerS)
	}
	if err := empty.Process.Kill(); err != nil {
		return err
	}
	_ = empty.Wait() // it was killed
	slices.Sort(rates)
	syncs, err := b.syncRate(runs)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "\nFor scale, on the same machine in the same minutes: a Go server that only reads the body and answers a fixed one, with the same client on 64 connections, %s requests/s; fdatasync after each 4 KiB write, %s/s.\n",
		thousands(rates[len(rates)/2]), thousands(syncs))
	return nil
}

func (b *bench) syncRate(runs int) (float64, error) {
	f, err := os.Create(filepath.Join(b.dir, "sync"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // the folder goes anyway
	block := make([]byte, 4096)
	var rates []float64
	for range runs {
		const n = 300
		start := time.Now()
		for range n {
			if _, err := f.Write(block); err != nil {
				return 0, err
			}
			if err := unix.Fdatasync(int(f.Fd())); err != nil {
				return 0, err
			}
		}
		rates = append(rates, n/time.Since(start).Seconds())
	}
	slices.Sort(rates)
	return rates[len(rates)/2], nil
}

// emptyNode makes this program the server of the scale row.
const emptyNode = "BENCH_EMPTY_NODE"

func serveEmpty(addr string) error {
	return http.ListenAndServe(addr, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a benchmark's client does not break off
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"results":[{"partition":0,"offset":0,"timestamp":1700000000000}]}`)
	}))
}

func cpuModel() string {
	raw, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(raw)) {
		if name, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(model)
		}
	}
	return runtime.GOARCH
}
