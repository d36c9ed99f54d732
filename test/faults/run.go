//go:build linux

package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"tidewire/test/history"
)

// replicas is the topic's replication factor; two must be in sync.
const replicas = 3

// Config is what a run is made of.
type Config struct {
	Binary string // of tidewire
	Dir    string // for data folders, logs and, of a run that fails, the history
	Nodes  int
	Time   time.Duration // of faults
	Seed   uint64
	Only   []Kind // none: all
	Mixed  bool   // faults of the network and of processes at the same time
	PerS   int    // requests of producers a second, when all are answered
	Log    func(format string, args ...any)
}

// Report is what a run has shown.
type Report struct {
	Counts                         map[Kind]int
	Acked, Failed, Unknown, Resent int64 // records
	Read, Given                    int64
	Healed                         time.Duration // until every replica was in sync, and the group had everything
	Wrong                          []string      // what must not be
}

// String is the report in lines.
func (r *Report) String() string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(r.Counts)) {
		fmt.Fprintf(&b, "%s %d, ", k, r.Counts[k])
	}
	fmt.Fprintf(&b, "\nrecords: %d acknowledged, %d not applied, %d unknown, %d sent again; %d read, %d given to the group; healed within %s",
		r.Acked, r.Failed, r.Unknown, r.Resent, r.Read, r.Given, r.Healed.Round(time.Millisecond))
	for _, w := range r.Wrong {
		b.WriteString("\nWRONG: " + w)
	}
	return b.String()
}

// smallDisk is the last node's, in MiB.
const smallDisk = 1024

// Run starts a cluster, breaks it for a time while clients use it, heals it and judges. The error
// says why that could not be done; what was wrong is in the report.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	cfg.Only = cfg.kinds(ctx)
	w, err := NewWorld(Setup{Binary: cfg.Binary, Dir: cfg.Dir, Nodes: cfg.Nodes, SmallDisk: smallDisk, PowerCuts: slices.Contains(cfg.Only, Power)})
	if err != nil {
		return nil, err
	}
	r, err := run(ctx, cfg, w)
	return r, errors.Join(err, w.Close())
}

func run(ctx context.Context, cfg Config, w *World) (*Report, error) {
	if err := w.Start(ctx); err != nil {
		return nil, err
	}
	l := newLoad(w, cfg.Seed)
	defer l.c.Close()
	if err := l.prepare(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	say := func(format string, args ...any) {
		cfg.Log("%6.1fs %6d acknowledged: %s", time.Since(began).Seconds(), l.acked.Load(), fmt.Sprintf(format, args...))
	}
	watching, endWatching := context.WithCancel(ctx)
	defer endWatching()
	var writers, watchers sync.WaitGroup
	l.start(watching, &writers, &watchers, cfg.PerS)
	counts, err := l.breakThings(ctx, cfg, say)
	report := &Report{Counts: counts}
	if err != nil {
		report.Wrong = append(report.Wrong, err.Error())
	}
	healing := time.Now()
	say("everything is healed")
	if err := l.heal(ctx, counts[Move] > 0, &writers, endWatching); err != nil {
		report.Wrong = append(report.Wrong, "it does not heal: "+err.Error())
	}
	report.Healed = time.Since(healing)
	endWatching()
	watchers.Wait()
	say("the history is judged")
	l.judge(ctx, report)
	for _, k := range cfg.Only {
		if counts[k] == 0 {
			report.Wrong = append(report.Wrong, fmt.Sprintf("the fault %s never occurred", k))
		}
	}
	if len(report.Wrong) > 0 {
		report.Wrong = append(report.Wrong, "the history: "+l.keep(cfg.Dir))
	}
	return report, nil
}

// kinds are those asked for, or all that can be made here.
func (cfg *Config) kinds(ctx context.Context) []Kind {
	if len(cfg.Only) > 0 {
		return cfg.Only
	}
	injects, power := Injects(cfg.Binary), CutsPower(ctx, cfg.Dir)
	return slices.DeleteFunc(Kinds(), func(k Kind) bool { return k == Clock && !injects || k == Power && power != nil })
}

// prepare makes the topic, once all nodes may take replicas.
func (l *load) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	err := l.c.Await(ctx, http.MethodPost, "/v1/topics", map[string]any{
		"name": topic, "partitions": partitions, "replication_factor": min(replicas, len(l.w.Nodes())),
		"config": map[string]any{"min.insync.replicas": "2", "segment.bytes": "1048576"},
	}, nil)
	if err != nil {
		return err
	}
	return l.c.AwaitISR(ctx, topic, min(replicas, len(l.w.Nodes())))
}

// Clients of a run.
const (
	producersInAll = 20
	readersInAll   = 2
	membersInAll   = 3
)

func (l *load) start(ctx context.Context, writers, watchers *sync.WaitGroup, perS int) {
	all := l.producers(producersInAll)
	for _, p := range all {
		writers.Go(func() { p.run(ctx, time.Second*time.Duration(len(all))/time.Duration(perS)) })
	}
	for i := range readersInAll {
		watchers.Go(func() { l.reader(ctx, fmt.Sprint("reader-", i)) })
	}
	for i := range membersInAll {
		name := fmt.Sprint("member-", i)
		watchers.Go(func() { (&member{l: l, r: l.random(name), name: name}).run(ctx) })
	}
	watchers.Go(func() { l.watch(ctx, "watch") })
}

// breakThings makes faults for the time of the run, and returns once all are undone.
func (l *load) breakThings(ctx context.Context, cfg Config, say func(string, ...any)) (map[Kind]int, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.Time+overtime)
	defer cancel()
	end := time.Now().Add(cfg.Time)
	var decks [2][]Kind
	for _, k := range cfg.Only {
		i := 0
		if cfg.Mixed && k.network() {
			i = 1
		}
		decks[i] = append(decks[i], k)
	}
	counts := map[Kind]int{}
	var errs []error
	var lanes sync.WaitGroup
	var made []*lane
	for i, deck := range decks {
		n := &lane{
			w: l.w, c: l.c, r: rand.New(rand.NewPCG(cfg.Seed, uint64(i))), deck: deck, say: say, counts: map[Kind]int{}, end: end,
			hold: min(8*time.Second, cfg.Time/time.Duration(max(3*len(deck), 1))),
		}
		made = append(made, n)
		lanes.Go(func() { n.run(ctx) })
	}
	lanes.Wait()
	for _, n := range made {
		maps.Copy(counts, n.counts)
		errs = append(errs, n.errs...)
	}
	return counts, errors.Join(errs...)
}

// overtime is how much longer than was asked for faults are made where one has not been there: a
// node that is cut off takes its time to stop.
const overtime = 2 * time.Minute

// healTime is how long it may take until all is as it should be, once all faults are undone.
const healTime = 60 * time.Second

// heal waits until every replica is in sync, ends the producers, and waits for the group. giveUp
// ends clients that do not end. moved tells that replicas were.
func (l *load) heal(ctx context.Context, moved bool, writers *sync.WaitGroup, giveUp func()) error {
	ctx, cancel := context.WithTimeout(ctx, healTime)
	defer cancel()
	var errs []error
	for _, n := range l.w.Nodes() {
		if !n.Running() {
			errs = append(errs, fmt.Errorf("node %d has ended by itself: %s", n.ID, n.Tail()), n.Spawn())
		}
	}
	for _, n := range l.w.Nodes() {
		errs = append(errs, n.AwaitReady(ctx))
	}
	if moved {
		errs = append(errs, l.moveBack(ctx))
	}
	errs = append(errs, l.c.AwaitISR(ctx, topic, min(replicas, len(l.w.Nodes()))))
	before := l.acked.Load()
	for l.acked.Load() < before+100 && pause(ctx, 20*time.Millisecond) {
	}
	close(l.stop)
	late := context.AfterFunc(ctx, giveUp)
	writers.Wait()
	late()
	if l.acked.Load() < before+100 {
		errs = append(errs, errors.New("writes are not acknowledged"))
	}
	errs = append(errs, l.c.AwaitISR(ctx, topic, min(replicas, len(l.w.Nodes()))), l.awaitGroup(ctx))
	return errors.Join(errs...)
}

// moveBack gives every partition as many replicas as it had.
func (l *load) moveBack(ctx context.Context) error {
	n := len(l.w.Nodes())
	var errs []error
	for p := range partitions {
		var to []int
		for i := range min(replicas, n) {
			to = append(to, 1+(p+i)%n)
		}
		errs = append(errs, l.c.Move(ctx, topic, p, to))
	}
	return errors.Join(append(errs, l.c.AwaitNoMoves(ctx))...)
}

// awaitGroup waits until the group has committed everything.
func (l *load) awaitGroup(ctx context.Context) error {
	for i := 0; ; i++ {
		var got struct {
			State string `json:"state"`
			Lag   int64  `json:"total_lag"`
		}
		a := l.c.At(1+i%len(l.w.Nodes())).Call(ctx, http.MethodGet, "/v1/groups/"+group, nil)
		err := a.Into(&got)
		if err == nil && got.Lag == 0 && got.State == "stable" {
			return nil
		}
		if !pause(ctx, 200*time.Millisecond) {
			return fmt.Errorf("the group does not catch up: %s: %w", &a, err)
		}
	}
}

// judge reads everything, stops the nodes, compares the replicas and has the history checked.
func (l *load) judge(ctx context.Context, r *Report) {
	r.Acked, r.Failed, r.Unknown, r.Resent = l.acked.Load(), l.failed.Load(), l.unknown.Load(), l.resent.Load()
	r.Read, r.Given = l.read.Load(), l.given.Load()
	for p := range partitions {
		if err := l.final(ctx, p); err != nil {
			r.Wrong = append(r.Wrong, fmt.Sprintf("the final read of partition %d: %v", p, err))
		}
	}
	for _, n := range l.w.Nodes() {
		if err := n.Stop(); err != nil {
			r.Wrong = append(r.Wrong, err.Error())
		}
		for _, fault := range []string{"panic: ", "fatal error: ", "DATA RACE"} {
			if strings.Contains(n.Log(), fault) {
				r.Wrong = append(r.Wrong, fmt.Sprintf("node %d has printed %q", n.ID, fault))
			}
		}
	}
	r.Wrong = append(r.Wrong, l.compare()...)
	l.mu.Lock()
	r.Wrong = append(r.Wrong, l.wrong...)
	l.mu.Unlock()
	found := history.Check(l.hist.Events())
	for _, v := range found[:min(len(found), 20)] {
		r.Wrong = append(r.Wrong, v.String())
	}
	if len(found) > 20 {
		r.Wrong = append(r.Wrong, fmt.Sprintf("and %d violations more", len(found)-20))
	}
	if r.Acked == 0 || r.Read == 0 || r.Given == 0 {
		r.Wrong = append(r.Wrong, "nothing was written, read or given to the group")
	}
}

// final reads everything of a partition, all of which the group must have been given.
func (l *load) final(ctx context.Context, p int) error {
	for next, above := int64(0), int64(1); next < above; {
		var got fetched
		err := l.c.Await(ctx, http.MethodGet, fmt.Sprintf("/v1/topics/%s/partitions/%d/records?offset=%d&max_records=10000&max_bytes=16777216", topic, p, next), nil, &got)
		if err != nil {
			return err
		}
		l.hist.Add(history.Event{Type: history.Final, Partition: partitionName(p), From: got.Start, To: got.Above, Records: got.history()})
		l.mu.Lock()
		for _, r := range got.Records {
			if _, given := l.toThem[r.Value]; !given && len(l.wrong) < 50 {
				l.wrong = append(l.wrong, fmt.Sprintf("%q, at %d@%d, was never given to the group", r.Value, p, r.Offset))
			}
		}
		l.mu.Unlock()
		if got.Next <= next && got.Next < got.Above {
			return fmt.Errorf("no progress at %d", next)
		}
		next, above = got.Next, got.Above
	}
	return nil
}

// compare tells of partitions whose replicas differ. The nodes have stopped, all in sync.
func (l *load) compare() (wrong []string) {
	for p := range partitions {
		var first []byte
		var of *Node
		for _, n := range l.w.Nodes() {
			b, err := LogBytes(n, topic, p)
			switch {
			case err != nil:
				wrong = append(wrong, err.Error())
			case b == nil: // it has no replica
			case of == nil:
				first, of = b, n
			case !bytes.Equal(first, b):
				wrong = append(wrong, fmt.Sprintf("partition %d has other bytes on node %d (%d) than on node %d (%d)", p, n.ID, len(b), of.ID, len(first)))
			}
		}
		if of == nil {
			wrong = append(wrong, fmt.Sprintf("partition %d has no replica", p))
		}
	}
	return wrong
}

// LogBytes are the .log files of a partition on a node, one after another; nil where there is none.
func LogBytes(n *Node, topic string, partition int) ([]byte, error) {
	files, err := filepath.Glob(filepath.Join(n.Dir, "topics", fmt.Sprintf("%s-%d", topic, partition), "*.log"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var all []byte
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		all = append(all, b...)
	}
	return all, nil
}

// keep writes the history of a run that failed.
func (l *load) keep(dir string) string {
	f, err := os.Create(filepath.Join(dir, "history.ndjson"))
	if err != nil {
		return err.Error()
	}
	err = errors.Join(history.Write(f, l.hist.Events()), f.Close())
	if err != nil {
		return err.Error()
	}
	return f.Name()
}
