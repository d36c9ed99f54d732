// Command groupload measures what consumer groups cost a node: a real process with real
// files, asked over HTTP as clients ask it. It prints a Markdown table, the form of
// docs/performance.md.
//
//	go run ./test/groupload -binary bin/tidewire
//	go run ./test/groupload -binary bin/tidewire -only commits -seconds 20
//
// Idle is the memory and the processor time of many groups whose members wait by long poll;
// both are read from /proc. Join is how long many members that join at once take until each
// has its partitions. Commits are requests that are answered once they are synced, on 64
// connections, of one offset and of many.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

type options struct {
	binary, data    string
	only            string
	groups, members int // of the idle measurement
	joining         int
	connections     int
	offsets         int // of a large commit
	waitMs          int
	seconds         int
}

func main() {
	var o options
	flag.StringVar(&o.binary, "binary", "bin/tidewire", "the program to measure")
	flag.StringVar(&o.data, "data", "", "folder for the node's data; default a temporary one beside the binary")
	flag.StringVar(&o.only, "only", "", "idle, join or commits; default all")
	flag.IntVar(&o.groups, "groups", 1000, "groups that wait")
	flag.IntVar(&o.members, "members", 10, "members of each")
	flag.IntVar(&o.joining, "joining", 100, "members that join one group at once")
	flag.IntVar(&o.connections, "connections", 64, "connections that commit")
	flag.IntVar(&o.offsets, "offsets", 16, "offsets of a large commit")
	flag.IntVar(&o.waitMs, "wait-ms", 20_000, "how long a poll waits")
	flag.IntVar(&o.seconds, "seconds", 10, "how long each is measured")
	flag.Parse()
	if err := run(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, "groupload:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return err
	}
	if o.data == "" {
		// Beside the binary, since a temporary folder is in memory on many machines.
		if o.data, err = os.MkdirTemp(filepath.Dir(o.binary), "groupload-"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(o.data) }() // it is only a measurement's
	}
	fmt.Fprintln(os.Stdout, "| what | figure |\n|---|---:|")
	for _, part := range []struct {
		name string
		run  func(context.Context, *node, options) error
	}{{"join", join}, {"commits", commits}, {"idle", idle}} {
		if o.only != "" && o.only != part.name {
			continue
		}
		if err := with(ctx, o, part.name, part.run); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// with starts a node of its own for a part.
func with(ctx context.Context, o options, name string, use func(context.Context, *node, options) error) error {
	n := &node{binary: o.binary, dir: filepath.Join(o.data, name)}
	if err := n.start(ctx); err != nil {
		return err
	}
	err := use(ctx, n, o)
	if stopErr := n.stop(); err == nil {
		err = stopErr
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, n.log.String())
	}
	return nil
}

func row(what, format string, args ...any) {
	fmt.Fprintf(os.Stdout, "| %s | %s |\n", what, fmt.Sprintf(format, args...))
}

// topic makes one.
func topic(n *node, name string, partitions int) error {
	return n.must("POST", "/v1/topics", fmt.Sprintf(`{"name":%q,"partitions":%d}`, name, partitions), nil)
}

func groupPath(i int) string { return fmt.Sprintf("/v1/groups/load-%d", i) }

// member joins a group.
func member(n *node, group string) (path string, err error) {
	var m struct {
		ID string `json:"member_id"`
	}
	err = n.must("POST", group+"/members", `{"topics":["load"],"session_timeout_ms":60000,"auto_offset_reset":"earliest"}`, &m)
	return group + "/members/" + m.ID, err
}

func join(_ context.Context, n *node, o options) error {
	if err := topic(n, "load", o.joining); err != nil {
		return err
	}
	began := time.Now()
	errs := make([]error, o.joining)
	var done sync.WaitGroup
	for i := range errs {
		done.Go(func() { errs[i] = settle(n) })
	}
	done.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	took := time.Since(began)
	var g struct {
		State   string
		Members []any
	}
	if err := n.must("GET", groupPath(0), "", &g); err != nil {
		return err
	}
	if g.State != "stable" || len(g.Members) != o.joining {
		return fmt.Errorf("the group is %s with %d members", g.State, len(g.Members))
	}
	row(fmt.Sprintf("%d members join one group of %d partitions at once: all have theirs after", o.joining, o.joining), "**%.2f s**", took.Seconds())
	return nil
}

// settle joins, and reads until the member has its one partition.
func settle(n *node) error {
	path, err := member(n, groupPath(0))
	for cursor, owns := "", 0; err == nil && owns != 1; {
		var got struct {
			Cursor     string
			Assignment struct{ Partitions, Revoking []any }
		}
		err = n.must("GET", path+"/records?wait_ms=100"+cursor, "", &got)
		cursor = "&cursor=" + got.Cursor
		if owns = len(got.Assignment.Partitions); len(got.Assignment.Revoking) > 0 {
			owns = 0
		}
	}
	return err
}

func commits(ctx context.Context, n *node, o options) error {
	if err := topic(n, "load", o.offsets); err != nil {
		return err
	}
	const groups = 256 // over all partitions of __consumer_offsets
	paths := make([]string, groups)
	for i := range paths {
		var err error
		if paths[i], err = member(n, groupPath(i)); err != nil {
			return err
		}
		if err := n.must("GET", paths[i]+"/records?wait_ms=0", "", nil); err != nil {
			return err
		}
	}
	for _, size := range []int{1, o.offsets} {
		var list []string
		for p := range size {
			list = append(list, fmt.Sprintf(`{"topic":"load","partition":%d,"next_offset":0}`, p))
		}
		body := `{"offsets":[` + strings.Join(list, ",") + "]}"
		count, latencies, err := n.hammer(ctx, hammering{connections: o.connections, seconds: o.seconds, request: func(connection, turn int) (method, path, text string) {
			return "POST", paths[(connection+turn*o.connections)%groups] + "/commit", body
		}})
		if err != nil {
			return err
		}
		rate := float64(count) / float64(o.seconds)
		row(fmt.Sprintf("commits of %d offsets, synced, %d connections", size, o.connections), "**%.0f** requests/s, %.0f offsets/s, p50 %.1f ms, p99 %.1f ms",
			rate, rate*float64(size), latencies.at(0.5), latencies.at(0.99))
	}
	return nil
}

func idle(ctx context.Context, n *node, o options) error {
	if err := topic(n, "load", o.members); err != nil {
		return err
	}
	if err := n.restart(ctx); err != nil {
		return err
	}
	empty, err := n.memory()
	if err != nil {
		return err
	}
	var paths []string
	for i := range o.groups {
		for range o.members {
			path, err := member(n, groupPath(i))
			if err != nil {
				return err
			}
			paths = append(paths, path)
		}
	}
	joined, err := n.memory()
	if err != nil {
		return err
	}
	polls, err := n.wait(ctx, paths, o.waitMs)
	if err != nil {
		return err
	}
	defer polls.end()
	time.Sleep(time.Duration(o.waitMs)*time.Millisecond + 5*time.Second) // all have what they get
	before, asked := n.cpu(), polls.count.Load()
	began := time.Now()
	time.Sleep(time.Duration(max(o.seconds, o.waitMs/1000)) * time.Second)
	used, polled, took := n.cpu()-before, polls.count.Load()-asked, time.Since(began)
	waiting, err := n.memory()
	if err != nil {
		return err
	}
	if err := polls.failed(); err != nil {
		return err
	}
	all := float64(len(paths))
	row(fmt.Sprintf("%d groups of %d members that poll with wait_ms=%d: processor", o.groups, o.members, o.waitMs), "**%.1f %%** of a core, %.0f polls/s",
		100*used.Seconds()/took.Seconds(), float64(polled)/took.Seconds())
	row("memory of a member that waits, its connection included", "**%.1f KB**", float64(waiting-empty)/all/1000)
	row("memory of a member that does not", "%.1f KB", float64(joined-empty)/all/1000)
	return nil
}
