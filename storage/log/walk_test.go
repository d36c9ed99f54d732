package log

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/storage/record"
)

// fullWalk names the environment variable that makes the walk fail every operation with
// every error, which takes minutes.
const fullWalk = "TEST_FULL_WALK"

// walkKey is what operations are counted by: their order within one file is the same in
// every run, across files it need not be.
type walkKey struct {
	kind fsx.OpKind
	path string
}

// walkSite is one operation of the workload.
type walkSite struct {
	walkKey
	nth  int    // of its key, from 1
	anew bool   // there was no file before
	call string // file and line of the call
	way  string // of all calls that lead to it
}

func (s walkSite) String() string {
	return fmt.Sprintf("%s of %s, number %d, by %s", s.kind, s.path, s.nth, s.call)
}

// file is what kind of file it is.
func (s walkSite) file() string {
	base := path.Base(s.path)
	switch {
	case s.path == "/data" || s.path == "/":
		return "data folder"
	case s.path == "/data/topics":
		return "topics"
	case path.Dir(s.path) == "/data/topics":
		return "log folder"
	case strings.HasPrefix(s.path, "/data/trash"):
		return "trash"
	}
	tmp := strings.TrimSuffix(base, ".tmp")
	if tmp != base {
		return "to replace " + walkSite{walkKey: walkKey{path: path.Join(path.Dir(s.path), tmp)}}.file()
	}
	if len(base) > 20 && base[20] == '.' {
		return base[20:]
	}
	return base
}

// walkFault is one way to fail.
type walkFault struct {
	name  string
	err   error
	short bool
	lost  bool
	fits  func(walkSite) bool
	lasts func(w *walked, op walkSite) bool // what else fails until it is repaired; nil: nothing
}

func kinds(k ...fsx.OpKind) func(walkSite) bool {
	return func(s walkSite) bool { return slices.Contains(k, s.kind) }
}

// takesRoom tells what a full disk refuses.
func takesRoom(s walkSite) bool {
	return s.kind == fsx.OpWrite || s.kind == fsx.OpRename || s.anew && (s.kind == fsx.OpOpen || s.kind == fsx.OpMkdir)
}

// takesDescriptor tells what needs one.
var takesDescriptor = kinds(fsx.OpOpen, fsx.OpReadDir, fsx.OpSyncDir)

var walkFaults = []walkFault{
	{name: "EIO", err: syscall.EIO, fits: func(s walkSite) bool { return s.kind != fsx.OpSync }},
	{name: "EIO of a file until repair", err: syscall.EIO, fits: func(walkSite) bool { return true },
		lasts: func(w *walked, op walkSite) bool { return op.path == w.site.path }},
	{name: "EIO, the pages are lost", err: syscall.EIO, lost: true, fits: kinds(fsx.OpSync)},
	{name: "EIO in the middle of a write", err: syscall.EIO, short: true, fits: kinds(fsx.OpWrite)},
	{name: "ENOSPC", err: syscall.ENOSPC, short: true, fits: takesRoom},
	{name: "ENOSPC until repair", err: syscall.ENOSPC, short: true, fits: takesRoom,
		lasts: func(w *walked, op walkSite) bool {
			_, err := w.mem.Stat(op.path)
			op.anew = err != nil
			return op.kind != fsx.OpRename && takesRoom(op)
		}},
	{name: "ENOSPC of a sync, the pages are lost", err: syscall.ENOSPC, lost: true, fits: kinds(fsx.OpSync)},
	{name: "EMFILE", err: syscall.EMFILE, fits: takesDescriptor},
	{name: "EMFILE until repair", err: syscall.EMFILE, fits: takesDescriptor,
		lasts: func(_ *walked, op walkSite) bool { return takesDescriptor(op) }},
}

func (f *walkFault) make(op fsx.Op) *fsx.Fault {
	x := &fsx.Fault{Err: f.err, Lost: f.lost}
	if f.short {
		x.Short = op.Len / 2
	}
	return x
}

// hook counts, and fails what is to fail.
func (w *walked) hook(op fsx.Op) *fsx.Fault {
	if w.paused.Load() {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	key := walkKey{op.Kind, op.Path}
	w.seen[key]++
	if w.fault == nil {
		call, way := callers()
		_, err := w.mem.Stat(op.Path)
		w.sites = append(w.sites, walkSite{key, w.seen[key], err != nil, call, way})
		return nil
	}
	if w.now {
		call, _ := callers()
		w.calls[call] = true
	}
	switch {
	case op.Kind == fsx.OpSync && op.Path == w.failed:
		w.retried = op.Path
	case op.Path == w.failed && (op.Kind == fsx.OpTruncate || op.Kind == fsx.OpRemove):
		w.failed = "" // it is written anew
	}
	hit := !w.fired && key == w.site.walkKey && w.seen[key] == w.site.nth
	if !hit && !(w.lasting && w.fault.lasts(w, walkSite{walkKey: key})) {
		return nil
	}
	if hit {
		w.lasting = w.fault.lasts != nil
	}
	w.fired, w.now = true, true
	if op.Kind == fsx.OpSync {
		w.failed = op.Path
	}
	return w.fault.make(op)
}

// callers tells which line of storage made a call of fsx, by storage/files or not, and the
// way there.
func callers() (call, way string) {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(4, pcs)])
	for {
		f, more := frames.Next()
		if strings.Contains(f.Function, "tidewire/storage") && !strings.Contains(f.Function, "tidewire/storage/files") && !strings.HasSuffix(f.File, "_test.go") {
			line := fmt.Sprintf("%s/%s:%d", path.Base(path.Dir(f.File)), path.Base(f.File), f.Line)
			if call == "" {
				call = line
			}
			way += line + " "
		}
		if !more {
			return call, way
		}
	}
}

// run is the workload. What it does is the same in every run until the fault.
func (w *walked) run() {
	defer w.cleanup()
	events, table, replica, gone := w.logs["events"], w.logs["table"], w.logs["copy"], w.logs["gone"]
	w.do("start", w.start)
	w.do("append", func() {
		for range 4 {
			w.append(events, walkBatch{keys: []string{"a", "b"}}, false)
		}
		w.append(events, walkBatch{keys: []string{"p", "p"}, pid: 1}, false)
		w.append(events, walkBatch{keys: []string{"o", "n"}, once: 1}, false)
		w.append(events, walkBatch{keys: []string{"t"}, pid: 2, txn: true}, false)
		w.marker(events, 2, record.ControlAbort, 1)
	})
	w.do("sync", func() { w.sync(events) })
	w.do("producers", func() {
		events.epoch++
		for range 4 {
			w.append(events, walkBatch{keys: []string{"p", "q", "r"}, pid: 1}, false)
		}
		w.append(events, walkBatch{keys: []string{"t", "u"}, pid: 2, txn: true}, false)
		w.append(events, walkBatch{keys: []string{"v"}, pid: 3, txn: true}, false)
		w.append(events, walkBatch{keys: []string{"o"}, once: 2}, false)
		w.marker(events, 2, record.ControlCommit, 0)
		w.marker(events, 3, record.ControlAbort, 1)
		w.sync(events)
	})
	w.do("replicate", func() {
		for range 3 {
			w.append(replica, walkBatch{keys: []string{"a", "b"}}, true)
		}
		w.append(replica, walkBatch{keys: []string{"o"}, once: 3}, true)
		w.append(replica, walkBatch{keys: []string{"c"}, gap: 5}, true)
		w.sync(replica)
		w.append(replica, walkBatch{keys: []string{"d"}, gap: farGap + 7}, true)
		w.append(replica, walkBatch{keys: []string{"e"}, pid: 1}, true)
		w.sync(replica)
	})
	w.do("checkpoint", w.checkpoint)
	w.do("keys", func() { w.tend(events); w.append(events, walkBatch{keys: []string{"o"}, once: 4}, false) })
	w.do("keyed", func() {
		for i := range 3 {
			w.append(table, walkBatch{keys: []string{"a", "b"}, once: 5 + byte(i)}, false)
			w.append(table, walkBatch{keys: []string{"a", "b", "c"}}, false)
			w.append(table, walkBatch{keys: []string{"a", "d!"}, pid: 1}, false)
			w.append(table, walkBatch{keys: []string{"b", "e"}, pid: 2, txn: true}, false)
			w.marker(table, 2, record.ControlAbort, 2)
			w.append(table, walkBatch{keys: []string{"f", "g"}, pid: 3, txn: true}, false)
			w.marker(table, 3, record.ControlCommit, 0)
		}
		w.sync(table)
	})
	w.do("compact", func() { w.clean(table) })
	w.do("reads", func() { w.reads(events); w.reads(table); w.reads(replica) })
	w.do("compact again", func() {
		for range 6 {
			w.append(table, walkBatch{keys: []string{"a", "b", "c", "f"}}, false)
		}
		w.sync(table)
		table.cfg.SegmentBytes = 2000 // so that several become one
		if table.usable() {
			table.l.SetConfig(table.cfg)
		}
		w.clean(table)
	})
	w.do("delete records", func() { w.moveStart(events, min(9, events.end)) })
	w.do("retention", func() {
		if events.usable() {
			if to, move, _ := events.l.Retain(Retention{Ms: -1, Bytes: 700}, events.must, 0); move {
				w.moveStart(events, to)
			}
		}
	})
	w.do("wait", func() { <-time.After(10 * time.Second) })
	w.do("clean stop", w.stop)
	w.do("start after it", w.start)
	w.do("reads after it", func() { w.reads(events); w.reads(table); w.reads(replica) })
	w.do("truncate", func() {
		w.truncate(replica, 4, 4)
		w.append(replica, walkBatch{keys: []string{"a", "b"}, pid: 4}, true)
		w.append(replica, walkBatch{keys: []string{"a", "b"}, pid: 4}, true)
		w.sync(replica)
		w.append(replica, walkBatch{keys: []string{"o"}, once: 8}, true)
		w.tend(replica)
		w.truncate(replica, replica.end-1, replica.end-1)
		w.append(replica, walkBatch{keys: []string{"n"}, once: 9}, true)
		w.truncate(replica, replica.end-1, replica.end-1)
		w.truncate(replica, replica.end-1, replica.end-2)
	})
	w.do("truncate what was compacted", func() {
		w.append(table, walkBatch{keys: []string{"z"}}, false)
		w.sync(table)
		w.truncate(table, table.end-1, table.end-1)
	})
	w.do("begin anew", func() {
		w.anew(replica, 50)
		for range 4 {
			w.append(replica, walkBatch{keys: []string{"a", "b"}, pid: 4}, true)
		}
		w.append(replica, walkBatch{keys: []string{"o"}, once: 10}, true)
	})
	w.do("append before a kill", func() {
		for range 4 {
			w.append(events, walkBatch{keys: []string{"p", "q", "r"}, pid: 1}, false)
		}
		w.append(events, walkBatch{keys: []string{"v"}, pid: 3, txn: true}, false)
		w.append(events, walkBatch{keys: []string{"o"}, once: 11}, false)
		w.marker(events, 3, record.ControlAbort, 1)
		w.wide(gone)
		w.sync(gone)
	})
	w.do("full disk", func() { w.full(replica) })
	w.kill()
	w.damage()
	w.do("start after a kill", w.start)
	w.do("reads after a kill", func() { w.reads(events); w.reads(table); w.reads(replica) })
	w.do("delete all records", func() { w.sync(events); w.moveStart(events, events.end) })
	w.do("sweep", w.sweep)
	w.do("remove", func() { w.remove(gone) })
	w.do("wait for the trash", func() { <-time.After(2 * time.Minute) })
	w.do("append at the end", func() {
		w.append(events, walkBatch{keys: []string{"p"}, pid: 1}, false)
		w.sync(events)
		w.checkpoint()
	})
	w.do("start once more", func() { w.moveStart(events, events.end); w.kill(); w.start() })
	w.do("start the last time", func() { w.kill(); w.start() })
	w.over = false
	w.kill()
	w.step = "the end"
	w.checkCopy(w.mem, false)
	w.h.group = nil
}

// Each operation of a workload that does all that a store can do fails once, and on and on,
// with each error that it can have: no panic, no goroutine left, no wrong read; what was
// acknowledged is there, the log that was hit refuses and goes on, or is latched; nothing
// that was synced is lost when the power fails right after, and no file is synced again as
// if nothing had been. No call of the file system in the source is left out.
func TestAnErrorAtEveryCallLosesNothing(t *testing.T) {
	t.Parallel()
	all, runs := walkRuns(t)
	hit := &calls{at: map[string]bool{}}
	for _, s := range all {
		hit.at[s.call] = true
	}
	t.Logf("%d operations, %d runs\n%s", len(all), len(runs), walkTable(all))
	t.Cleanup(func() { hit.check(t) })
	const shards = 8
	for shard := range shards {
		t.Run(fmt.Sprint("part ", shard+1), func(t *testing.T) {
			t.Parallel()
			for i := shard; i < len(runs); i += shards {
				hit.add(runs[i].try(t))
			}
		})
	}
}

// walkRun is one operation to fail, and how.
type walkRun struct {
	site  walkSite
	fault *walkFault
}

// try gives the calls that the step with the fault made after it.
func (r walkRun) try(t *testing.T) (after map[string]bool) {
	synctest.Test(t, func(t *testing.T) {
		w := newWalked(t, r.fault, r.site)
		defer func() {
			if t.Failed() {
				t.Logf("%s: %s, in step %q", r.fault.name, r.site, w.step)
			}
		}()
		w.run()
		require.True(t, w.fired, "the operation did not come")
		after = w.calls
	})
	return after
}

// walkRuns gives the operations of the workload, and what is to be tried: of those that one
// line makes on one kind of file one, with one error after the other, or everything.
func walkRuns(t *testing.T) (all []walkSite, runs []walkRun) {
	synctest.Test(t, func(t *testing.T) {
		w := newWalked(t, nil, walkSite{})
		w.run()
		all = w.sites
	})
	type kind struct {
		call, kind, file string
		rolled           bool // a write to a segment that was begun for it
	}
	one := map[kind]int{} // of one kind the first, of the next one the last
	for i, s := range all {
		rolled := i > 1 && s.kind == fsx.OpWrite && all[i-1].kind == fsx.OpOpen && all[i-2].kind == fsx.OpClose && all[i-2].file() == timeIndexSuffix
		k := kind{s.call, string(s.kind), s.file(), rolled}
		if _, ok := one[k]; !ok || len(one)%2 == 0 {
			one[k] = i
		}
	}
	turn := 0
	for i, s := range all {
		rolled := i > 1 && s.kind == fsx.OpWrite && all[i-1].kind == fsx.OpOpen && all[i-2].kind == fsx.OpClose && all[i-2].file() == timeIndexSuffix
		k := kind{s.call, string(s.kind), s.file(), rolled}
		every := os.Getenv(fullWalk) != ""
		if !every && one[k] != i {
			continue
		}
		var fit []*walkFault
		for j := range walkFaults {
			if walkFaults[j].fits(s) {
				fit = append(fit, &walkFaults[j])
			}
		}
		if !every && len(fit) > 0 {
			turn++
			fit = fit[turn%len(fit):][:1]
		}
		for _, f := range fit {
			runs = append(runs, walkRun{s, f})
		}
	}
	return all, runs
}

// calls are lines of the source that have called the file system.
type calls struct {
	mu sync.Mutex
	at map[string]bool // guarded by mu
}

func (c *calls) add(more map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.Copy(c.at, more)
}

// walkTable shows how often each kind of operation comes on each kind of file.
func walkTable(all []walkSite) string {
	counts := map[string]map[fsx.OpKind]int{}
	for _, s := range all {
		if counts[s.file()] == nil {
			counts[s.file()] = map[fsx.OpKind]int{}
		}
		counts[s.file()][s.kind]++
	}
	var b strings.Builder
	for _, f := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, "%-36s", f)
		for _, k := range slices.Sorted(maps.Keys(counts[f])) {
			fmt.Fprintf(&b, " %s %d", k, counts[f][k])
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// unreached are calls that take more than one fault to come by, with the test that does.
var unreached = map[string]string{
	"append.go fs.SyncDir":   "TestAFullDiskDoesNotLatchALogWithAbortedTransactions", // of a roll that is taken back
	"aborted.go fs.OpenFile": "TestAFullDiskDoesNotLatchALogWithAbortedTransactions", // as above
	"aborted.go f.Close":     "TestAFullDiskDoesNotLatchALogWithAbortedTransactions", // as above
	"logstart.go fs.Remove":  "TestAFinishedSwapLeavesNoIndexBehind",                 // of indexes that are of no segment
	"truncate.go fs.Remove":  "TestAFullTruncationRemovesWhatStayedBelowTheLogStart",
}

// check fails for a call of the file system in the source that no run has come by.
func (c *calls) check(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var missed []string
	for _, dir := range []string{".", "../index", "../trash"} {
		abs, err := filepath.Abs(dir)
		require.NoError(t, err)
		names, err := filepath.Glob(filepath.Join(abs, "*.go"))
		require.NoError(t, err)
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			for line, text := range callsIn(t, name) {
				if unreached[filepath.Base(name)+" "+text] != "" || strings.HasSuffix(text, "Handle") || text == "fs.Stats" {
					continue // handles and counts touch no file
				}
				at := fmt.Sprintf("%s/%s:%d", filepath.Base(abs), filepath.Base(name), line)
				if !c.at[at] {
					missed = append(missed, at+": "+text)
				}
			}
		}
	}
	require.Empty(t, missed, "no run comes there")
}

// callsIn finds the lines of a file that call the file system, by the names that this
// package gives to file systems and files.
func callsIn(t *testing.T, name string) map[int]string {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, nil, 0)
	require.NoError(t, err)
	out := map[int]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		recv := ""
		switch x := sel.X.(type) {
		case *ast.Ident:
			recv = x.Name
		case *ast.SelectorExpr:
			recv = x.Sel.Name
		}
		fsCall := slices.Contains([]string{"fs", "fsys"}, recv) && !strings.HasPrefix(sel.Sel.Name, "Err")
		fileCall := recv == "f" && slices.Contains([]string{"ReadAt", "WriteAt", "Truncate", "Sync", "SyncData", "Size", "Close"}, sel.Sel.Name)
		helper := recv == "fsx" && slices.Contains([]string{"ReadFile", "ReadFull", "WriteFile", "RemoveAll", "Exists"}, sel.Sel.Name)
		if fsCall || fileCall || helper {
			out[fset.Position(sel.Sel.Pos()).Line] = recv + "." + sel.Sel.Name
		}
		return true
	})
	return out
}
