package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"tidewire/internal/client"
	"tidewire/internal/lifecycle"
)

// Memory is what a server has resident, in bytes, before and with the open sockets.
type Memory struct {
	Source        string `json:"source"` // where it was read
	Before        int64  `json:"before_bytes"`
	With          int64  `json:"with_sockets_bytes"`
	PerConnection int64  `json:"per_connection_bytes"`
	// Of the Go runtime, by the server's metrics: memory in use by the heap, garbage
	// included, and by stacks. Null without --pid, where only the process is looked at.
	HeapPerConnection  *int64 `json:"heap_per_connection_bytes"`
	StackPerConnection *int64 `json:"stack_per_connection_bytes"`
}

// Idle opens o.Connections WebSockets that read a topic to which nobody writes, holds them
// for o.Hold, and reports by how much the server's resident memory has grown, which it looks
// at before after as long a rest: a server gives back what work has left behind. What opening
// them has left counts too, as far as the server has not given it back; what the kernel keeps
// for the sockets does not.
func Idle(ctx context.Context, c *client.Client, o Options) (*Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if err := rest(ctx, o.Hold); err != nil {
		return nil, err
	}
	before, err := memoryOf(ctx, c, o.PID)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	s, err := openSockets(ctx, c, &o)
	defer s.close()
	if err != nil {
		return nil, err
	}
	took := time.Since(start)
	all := s.watch()
	g := lifecycle.New(ctx)
	followed := make(chan error, 1)
	g.Go("read sockets", func(ctx context.Context) { followed <- s.follow(ctx) })
	with, err := holdSockets(ctx, c, &o, s, all)
	if err = errors.Join(err, g.Stop(callTimeout), <-followed); err != nil {
		return nil, err
	}
	st := s.state()
	total := tally{records: st.records}
	for _, x := range s.all {
		if x.err != nil {
			total.fail(x.err)
		}
	}
	r := total.report(Report{Kind: "idle", Topic: o.Topic, Connections: len(s.all), Batch: 1}, took)
	r.Requests, r.RequestsS = int64(len(s.all)), float64(len(s.all))/took.Seconds()
	r.Memory = with.since(before, int64(len(s.all)))
	return r, nil
}

// holdSockets waits until each socket has its partitions, and longer, and then looks at
// the memory.
func holdSockets(ctx context.Context, c *client.Client, o *Options, s *sockets, all <-chan struct{}) (*usage, error) {
	n := len(s.all)
	if err := s.await(ctx, all, func(st state) bool { return st.assigned+st.ended == n }, nil); err != nil {
		return nil, err
	}
	if err := rest(ctx, o.Hold); err != nil {
		return nil, err
	}
	if st := s.state(); st.ended == n {
		return nil, st.err
	}
	return memoryOf(ctx, c, o.PID)
}

func rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// usage is a server's memory at one time, in bytes.
type usage struct {
	source      string
	resident    int64
	heap, stack int64
	knowsGo     bool
}

func (u *usage) since(before *usage, n int64) *Memory {
	m := &Memory{Source: u.source, Before: before.resident, With: u.resident, PerConnection: (u.resident - before.resident) / n}
	if u.knowsGo && before.knowsGo {
		m.HeapPerConnection, m.StackPerConnection = new((u.heap-before.heap)/n), new((u.stack-before.stack)/n)
	}
	return m
}

// memoryOf reads the memory of a process, or asks the server's metrics.
func memoryOf(ctx context.Context, c *client.Client, pid int) (*usage, error) {
	if pid > 0 {
		return memoryOfProcess(pid)
	}
	text, err := c.Text(ctx, "/metrics")
	if err != nil {
		return nil, fmt.Errorf("the server's memory cannot be read from its metrics, which needs describe on the cluster; on the same machine --pid does too: %w", err)
	}
	u := &usage{source: "/metrics process_resident_memory_bytes", knowsGo: true}
	found := 0
	for name, into := range map[string]*int64{
		"process_resident_memory_bytes": &u.resident, "go_memstats_heap_inuse_bytes": &u.heap, "go_memstats_stack_inuse_bytes": &u.stack,
	} {
		v, ok := metric(text, name)
		if *into = v; ok {
			found++
		}
	}
	if found < 3 {
		return nil, errors.New("the server's metrics do not tell its memory")
	}
	return u, nil
}

// metric is the value of a metric without labels.
func metric(text []byte, name string) (int64, bool) {
	for line := range bytes.Lines(text) {
		rest, ok := bytes.CutPrefix(line, []byte(name+" "))
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(string(rest)), 64)
		return int64(v), err == nil
	}
	return 0, false
}

func memoryOfProcess(pid int) (*usage, error) {
	name := fmt.Sprintf("/proc/%d/smaps_rollup", pid)
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) == 3 && f[0] == "Rss:" {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			return &usage{source: name + " Rss", resident: kb << 10}, err
		}
	}
	return nil, fmt.Errorf("%s does not tell Rss", name)
}
