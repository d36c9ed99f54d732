package log

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/checkpoint"
	"tidewire/storage/dedupe"
	"tidewire/storage/record"
)

// walkRec is one record that was handed to a log, or read from it.
type walkRec struct {
	off      model.Offset
	ts       int64
	key, val string
	nul      bool
}

// walkLog is a log of the walk and what it must and may hold.
type walkLog struct {
	topic string
	id    model.TopicID
	cfg   Config
	keyed bool
	l     *Log // nil while it is not open

	cand    map[model.Offset]map[walkRec]bool // what was ever handed in for an offset
	acked   []walkRec                         // acknowledged, in order
	mayGo   map[model.Offset]bool             // of a transaction that may count as aborted
	end     model.Offset                      // of what was acknowledged
	must    model.Offset                      // of what was synced besides
	starts  [2]model.Offset                   // the log start is one between these
	cleanTo model.Offset                      // compaction may have been at work below
	epoch   model.LeaderEpoch
	seq     map[model.ProducerID]int32
	once    map[byte]onceAt // idempotency keys of what was acknowledged
	handed  map[byte]map[model.Offset]bool
	unopen  bool // opening it has failed for this run of the store
	gone    bool // it was to be removed
}

func (x *walkLog) usable() bool { return x.l != nil && x.l.Failed() == nil }

// onceAt is where a slice with a key lies.
type onceAt struct{ base, end model.Offset }

func onceKey(n byte) dedupe.Key { return dedupe.Key{n, 1, n} }

// walked is one run of the workload, with at most one fault.
type walked struct {
	t       *testing.T
	mem     *fsx.Mem
	in      *fsx.Inject
	h       *harness
	logs    map[string]*walkLog
	step    string
	unique  int
	tainted bool        // the next stop must not be a clean one
	paused  atomic.Bool // the test itself looks: no operation counts or fails

	over    bool // the fault has happened, and the store was started again since
	crashed bool // a power cut right after the fault was tried

	site    walkSite
	fault   *walkFault // nil: the operations are only counted
	mu      sync.Mutex
	sites   []walkSite      // guarded by mu
	seen    map[walkKey]int // guarded by mu
	calls   map[string]bool // guarded by mu: after the fault, within its step
	fired   bool            // guarded by mu
	now     bool            // guarded by mu: it fired, or lasts, in the present step
	lasting bool            // guarded by mu: until repair
	failed  string          // guarded by mu: the file whose sync has failed, until it is written anew
	retried string          // guarded by mu: a file that was synced again after that
}

func newWalked(t *testing.T, fault *walkFault, site walkSite) *walked {
	w := &walked{t: t, mem: fsx.NewCrashMem(), fault: fault, site: site, seen: map[walkKey]int{}, calls: map[string]bool{}, logs: map[string]*walkLog{}}
	w.in = fsx.NewInject(w.mem, w.hook)
	w.h = &harness{t: t, fs: w.in, opts: StoreOptions{Dir: "/data", CheckpointInterval: 100 * time.Hour, SyncInterval: 100 * time.Hour, TrashDelay: time.Minute}}
	for i, x := range []walkLog{
		{topic: "events", cfg: Config{SegmentBytes: 600, IndexIntervalBytes: 100, FileDeleteDelayMs: 5000}},
		{topic: "table", cfg: Config{SegmentBytes: 500, IndexIntervalBytes: 100, FileDeleteDelayMs: -1}, keyed: true},
		{topic: "copy", cfg: Config{SegmentBytes: 400, IndexIntervalBytes: 100}},
		{topic: "gone", cfg: Config{IndexIntervalBytes: 1}},
	} {
		x.id = model.TopicID{byte(i + 1)}
		x.cfg.DedupeWindowMs = 1 << 42
		x.once, x.handed = map[byte]onceAt{}, map[byte]map[model.Offset]bool{}
		x.cand, x.mayGo, x.seq = map[model.Offset]map[walkRec]bool{}, map[model.Offset]bool{}, map[model.ProducerID]int32{}
		w.logs[x.topic] = &x
	}
	return w
}

// do runs one step of the workload. When the fault was in it, a power cut right afterwards
// is tried, and what lasts is repaired.
func (w *walked) do(step string, fn func()) {
	if w.over {
		return
	}
	w.mu.Lock()
	w.step, w.now = step, false
	before := w.fired
	w.mu.Unlock()
	fn()
	synctest.Wait()
	w.repair()
	if w.hasFired() && !w.crashed {
		w.crashed = true
		w.checkCopy(w.mem.Crash(uint64(w.site.nth)), true)
	}
	w.over = before && strings.HasPrefix(step, "start")
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Empty(w.t, w.retried, "a file was synced again after its sync had failed")
}

func (w *walked) hasFired() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fired
}

func (w *walked) repair() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lasting = false
}

// forgive forgets a failed sync, as recovery writes anew what it finds; what that is worth,
// the power cuts tell.
func (w *walked) forgive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = ""
}

// faulty reports whether the fault explains an error of the present step.
func (w *walked) faulty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *walked) excused(err error) {
	require.True(w.t, w.faulty(), "an error without a fault: %v", err)
}

// refused decides about an error of a log that was to be changed: true means that nothing
// was changed and that it must work now.
func (w *walked) refused(x *walkLog, err error) bool {
	w.excused(err)
	switch {
	case model.HasCode(err, model.StorageFull):
		require.ErrorIs(w.t, w.fault.err, syscall.ENOSPC, "%v", err)
	case model.HasCode(err, model.LeaderUnavailable):
		require.ErrorIs(w.t, w.fault.err, syscall.EMFILE, "%v", err)
	default:
		require.True(w.t, model.HasCode(err, model.StorageError), "%v", err)
		return false
	}
	require.NoError(w.t, x.l.Failed())
	w.repair()
	return true
}

func (w *walked) start() {
	for try := 0; ; try++ {
		g, s, err := tryStart(w.h)
		w.forgive()
		if err == nil {
			w.h.group, w.h.store = g, s
			break
		}
		require.NoError(w.t, g.Stop(time.Second))
		w.excused(err)
		require.Zero(w.t, try, "a store must open once the fault is over")
		w.repair()
	}
	w.tainted = false
	for _, name := range []string{"events", "table", "copy", "gone"} {
		w.open(w.logs[name])
	}
}

func (w *walked) open(x *walkLog) {
	if x.gone {
		return
	}
	for try := 0; ; try++ {
		l, err := w.h.store.Open(x.id, x.topic, 0, x.cfg)
		if x.l, x.unopen = l, err != nil; err == nil {
			break
		}
		w.tainted = true
		w.forgive()
		w.excused(err)
		if model.HasCode(err, model.StorageError) {
			return // until the next start
		}
		require.True(w.t, model.HasCode(err, model.StorageFull) || model.HasCode(err, model.LeaderUnavailable), "%v", err)
		require.Zero(w.t, try, "a log must open once the fault is over")
		w.repair()
	}
	w.paused.Store(true)
	defer w.paused.Store(false)
	w.verify(x, false)
	x.adopt(w)
}

// adopt takes what an opened log has for what it must have from now on.
func (x *walkLog) adopt(w *walked) {
	recs, _, err := walkRead(x.l)
	require.NoError(w.t, err)
	x.acked, x.end, x.must = recs, x.l.LogEnd(), x.l.LogEnd()
	clear(x.once)
	for k := range x.handed {
		if e, ok := x.l.FindKey(onceKey(k), 0); ok {
			x.once[k] = onceAt{e.Base, e.End()}
		}
	}
	x.starts = [2]model.Offset{x.l.LogStart(), x.l.LogStart()}
	x.epoch = max(x.epoch, x.l.LogEndEpoch(), 0)
	x.resequence()
}

// stop ends the store in order: with a marker when all went well, and only then.
func (w *walked) stop() {
	bad := w.tainted
	for _, x := range w.logs {
		bad = bad || x.l != nil && x.l.Failed() != nil
	}
	err := w.h.stop()
	if err != nil && !bad {
		w.excused(err)
	}
	marker, serr := fsx.Exists(w.mem, "/data/"+cleanStopFile)
	require.NoError(w.t, serr)
	if bad {
		require.False(w.t, marker, "a clean stop although something had failed")
	} else if err == nil {
		require.True(w.t, marker)
	} else if marker { // all but the folder's entry of it was done
		require.Equal(w.t, walkKey{fsx.OpSyncDir, "/data"}, w.site.walkKey)
	}
	w.closed()
}

func (w *walked) kill() {
	if !w.over {
		w.h.kill()
		w.closed()
	}
}

func (w *walked) closed() {
	for _, x := range w.logs {
		x.l = nil
	}
}

// record makes up a record.
func (w *walked) record(key string, nul bool) walkRec {
	w.unique++
	r := walkRec{ts: int64(1000 + w.unique*10%70), key: key, nul: nul}
	if !nul {
		r.val = fmt.Sprintf("%d-%s", w.unique, strings.Repeat("x", w.unique%40))
	}
	return r
}

type walkBatch struct {
	keys []string // with a ! a tombstone
	pid  model.ProducerID
	txn  bool
	gap  model.Offset // replica: offsets left out before it
	once byte         // of its idempotency key; 0: none
}

// append hands one batch to a log and sees to what became of it.
func (w *walked) append(x *walkLog, b walkBatch, replica bool) {
	if !x.usable() {
		if x.l != nil {
			_, err := x.l.Append(batch(w.t, record.None, 1), x.epoch, 0)
			require.True(w.t, model.HasCode(err, model.StorageError), "%v", err)
		}
		return
	}
	for try := 0; ; try++ {
		require.Equal(w.t, x.end, x.l.LogEnd())
		base := x.end + b.gap
		s := sparse{base: base, epoch: x.epoch, lastDelta: int32(len(b.keys) - 1), plain: b.pid == 0, pid: b.pid, seq: x.seq[b.pid]}
		if b.once != 0 {
			s.stamp = &dedupe.Stamp{Key: onceKey(b.once), Partitions: 1, Count: int32(len(b.keys))}
			if x.handed[b.once] == nil {
				x.handed[b.once] = map[model.Offset]bool{}
			}
			x.handed[b.once][base] = true
		}
		if b.txn {
			s.attrs = record.AttrTransactional
		}
		var recs []walkRec
		for i, k := range b.keys {
			k, nul := strings.CutSuffix(k, "!")
			r := w.record(k, nul)
			r.off = base + model.Offset(i)
			recs = append(recs, r)
			sr := sparseRec{delta: int32(i), ts: r.ts, key: []byte(k)}
			if !nul {
				sr.val = []byte(r.val)
			}
			s.recs = append(s.recs, sr)
		}
		x.hand(recs)
		var err error
		if replica {
			_, err = x.l.AppendReplica(s.encode(), true, 0)
		} else {
			_, err = x.l.Append(s.encode(), x.epoch, 0)
		}
		if err == nil {
			x.acked, x.end = append(x.acked, recs...), base+model.Offset(len(recs))
			x.seq[b.pid] += int32(len(recs))
			if b.once != 0 {
				x.once[b.once] = onceAt{base, x.end}
			}
			require.Equal(w.t, x.end, x.l.LogEnd())
			return
		}
		if !w.refused(x, err) {
			return
		}
		require.Zero(w.t, try, "an append must work once the fault is over: %v", err)
	}
}

func (x *walkLog) hand(recs []walkRec) {
	for _, r := range recs {
		if x.cand[r.off] == nil {
			x.cand[r.off] = map[walkRec]bool{}
		}
		x.cand[r.off][r] = true
	}
}

// marker ends the transaction of a producer.
func (w *walked) marker(x *walkLog, pid model.ProducerID, typ record.ControlType, recs int) {
	if !x.usable() {
		return
	}
	if typ == record.ControlAbort {
		for _, r := range x.acked[max(0, len(x.acked)-recs):] {
			x.mayGo[r.off] = true
		}
	}
	for try := 0; ; try++ {
		_, err := x.l.Append(marker(pid, 0, typ, 0), x.epoch, 0)
		if err == nil {
			x.end++
			return
		}
		if !w.refused(x, err) {
			return
		}
		require.Zero(w.t, try, "%v", err)
	}
}

func (w *walked) sync(x *walkLog) {
	if !x.usable() {
		return
	}
	x.l.RequestSync()
	synctest.Wait()
	if x.l.Failed() == nil && x.l.StableEnd() < x.end && w.faulty() && errors.Is(w.fault.err, syscall.EMFILE) {
		w.repair() // it was put off
		x.l.RequestSync()
		synctest.Wait()
	}
	if err := x.l.Failed(); err != nil {
		w.excused(err)
		require.True(w.t, model.HasCode(err, model.StorageError), "%v", err)
	} else {
		require.Equal(w.t, x.end, x.l.StableEnd())
	}
	x.must = max(x.must, x.l.StableEnd())
	x.l.SetHighWatermark(x.l.StableEnd())
}

// tend is what the store does every second, long after it did so last.
func (w *walked) tend(x *walkLog) {
	if x.usable() {
		x.l.tendKeys(time.Now().Add(time.Minute).UnixMilli())
	}
}

func (w *walked) checkpoint() {
	if err := w.h.store.Checkpoint(); err != nil {
		w.excused(err)
		w.repair()
		if err := w.h.store.Checkpoint(); err != nil {
			require.True(w.t, model.HasCode(err, model.StorageError), "%v", err)
		}
	}
	for _, x := range w.logs {
		if x.l != nil {
			x.starts[0] = x.l.LogStart()
		}
	}
}

func (w *walked) moveStart(x *walkLog, to model.Offset) {
	if !x.usable() {
		return
	}
	for try := 0; ; try++ {
		x.starts[1] = max(x.starts[1], to)
		err := x.l.AdvanceLogStart(to)
		if err == nil {
			break
		}
		w.excused(err)
		if x.l.Failed() != nil {
			return
		}
		require.Zero(w.t, try, "a log start must move once the fault is over: %v", err)
		w.repair()
	}
	require.Equal(w.t, max(x.starts[0], to), x.l.LogStart())
	x.starts = [2]model.Offset{x.l.LogStart(), x.l.LogStart()}
}

func (w *walked) clean(x *walkLog) {
	if !x.usable() {
		return
	}
	for try := 0; ; try++ {
		p := all(x.l)
		p.DeleteRetentionMs = 1 << 40
		st := x.l.CleanState(p, 0)
		if st.Dirty == 0 {
			return
		}
		x.cleanTo = max(x.cleanTo, st.To)
		_, err := x.l.Clean(context.Background(), p, 0)
		if err == nil {
			return
		}
		w.excused(err)
		if x.l.Failed() != nil {
			return
		}
		require.Zero(w.t, try, "compaction must work once the fault is over: %v", err)
		w.repair()
	}
}

// truncate cuts a log at an offset, so that it ends at end.
func (w *walked) truncate(x *walkLog, off, end model.Offset) {
	if !x.usable() {
		return
	}
	x.end, x.must = end, min(x.must, end)
	x.acked = slices.DeleteFunc(x.acked, func(r walkRec) bool { return r.off >= end })
	maps.DeleteFunc(x.once, func(_ byte, at onceAt) bool { return at.end > end })
	w.cut(x, func() error { return x.l.TruncateTo(off) })
}

// anew makes a log begin anew at an offset.
func (w *walked) anew(x *walkLog, off model.Offset) {
	if !x.usable() {
		return
	}
	x.end, x.must, x.acked = 0, 0, nil
	clear(x.once)
	x.starts = [2]model.Offset{min(off, x.starts[0]), max(off, x.starts[1])}
	w.cut(x, func() error { return x.l.TruncateFullyAndStartAt(off) })
	if x.l.Failed() == nil {
		require.Equal(w.t, off, x.l.LogEnd())
		x.cand = map[model.Offset]map[walkRec]bool{}
	}
}

func (w *walked) cut(x *walkLog, fn func() error) {
	err := fn()
	if err != nil {
		w.excused(err)
		if x.l.Failed() == nil { // nothing was changed
			w.repair()
			err = fn()
			require.NoError(w.t, err)
		}
	}
	if err == nil {
		require.True(w.t, x.end == x.l.LogEnd() || len(x.acked) == 0)
		x.end = x.l.LogEnd()
		maps.DeleteFunc(x.cand, func(o model.Offset, _ map[walkRec]bool) bool { return o >= x.end })
		x.starts = [2]model.Offset{x.l.LogStart(), x.l.LogStart()}
		x.resequence()
	}
}

// resequence finds the producers' next sequences again.
func (x *walkLog) resequence() {
	x.l.mu.Lock()
	defer x.l.mu.Unlock()
	for pid := range x.seq {
		x.seq[pid] = 0
		if p := x.l.prods.Get(pid); p != nil && p.Last() != nil {
			x.seq[pid] = p.Last().LastSequence + 1
		}
	}
}

// remove takes a log away, for good or to be made anew under another id.
func (w *walked) remove(x *walkLog) {
	if x.l == nil {
		return
	}
	if err := w.h.store.Remove(x.l); err != nil {
		w.excused(err)
	}
	x.l, x.gone = nil, true
}

// cleanup ends a store that a failed test has left.
func (w *walked) cleanup() {
	if w.h.group != nil {
		_ = w.h.group.Stop(time.Second)
	}
}

// files lists those of a log whose names end in a suffix, on the disk itself.
func (w *walked) files(x *walkLog, suffix string) []string {
	dir := path.Join("/data/topics", x.topic+"-0")
	infos, err := w.mem.ReadDir(dir)
	require.NoError(w.t, err)
	var out []string
	for _, i := range infos {
		if strings.HasSuffix(i.Name, suffix) {
			out = append(out, path.Join(dir, i.Name))
		}
	}
	return out
}

// spoil writes something else behind, or instead of, what a file holds.
func (w *walked) spoil(name string, behind bool) {
	f, err := w.mem.OpenFile(name, fsx.ReadWrite|fsx.Create)
	require.NoError(w.t, err)
	at, err := f.Size()
	require.NoError(w.t, err)
	if !behind {
		at = 0
	}
	_, err = f.WriteAt([]byte("not what anybody wrote here"), at)
	require.NoError(w.t, err)
	require.NoError(w.t, f.Sync())
	require.NoError(w.t, f.Close())
}

// damage does to a stopped store's files what a kill and a bad disk may, and what recovery
// makes good.
func (w *walked) damage() {
	if w.over {
		return
	}
	table, replica := w.logs["table"], w.logs["copy"]
	w.spoil("/data/replication", false)
	for _, name := range w.files(w.logs["events"], txnIndexSuffix) {
		w.spoil(name, true)
	}
	for _, name := range w.files(replica, dedupe.FileName) {
		w.spoil(name, false)
	}
	for _, name := range w.files(w.logs["events"], snapshotSuffix) {
		w.spoil(name, false)
	}
	if f := w.files(replica, logSuffix); len(f) > 0 {
		w.spoil(f[len(f)-1], true)
	}
	for _, suffix := range []string{indexSuffix, timeIndexSuffix} {
		if f := w.files(replica, suffix); len(f) > 1 {
			require.NoError(w.t, w.mem.Remove(f[0]))
		}
	}
	// A swap of compaction that has all but the last rename, and one that was not begun.
	if f := w.files(table, logSuffix); len(f) > 1 {
		require.NoError(w.t, w.mem.Rename(f[0], f[0]+swapSuffix))
		x := strings.TrimSuffix(f[0], logSuffix)
		if ok, _ := fsx.Exists(w.mem, x+indexSuffix); ok {
			require.NoError(w.t, w.mem.Rename(x+indexSuffix, x+indexSuffix+swapSuffix))
		}
		w.spoil(strings.TrimSuffix(f[1], logSuffix)+indexSuffix+cleanedSuffix, false)
		w.spoil(path.Dir(f[0])+"/"+baseName(1)+logSuffix, false) // a segment that it has replaced
	}
	require.NoError(w.t, w.mem.MkdirAll("/data/topics/stray-7"))
	require.NoError(w.t, fsx.WriteFile(w.mem, "/data/topics/stray-7/"+checkpoint.MetadataFile, checkpoint.EncodeMetadata(testID)))
	for _, x := range []string{"table-0", "copy-0", "events-0", "stray-7", ""} {
		require.NoError(w.t, w.mem.SyncDir("/data/topics/"+x))
	}
}

// sweep takes away what belongs to no topic.
func (w *walked) sweep() {
	expected := func(folder string) bool { return w.logs[strings.TrimSuffix(folder, "-0")] != nil }
	if err := w.h.store.Sweep(expected); err != nil {
		w.excused(err)
		w.repair()
		require.NoError(w.t, w.h.store.Sweep(expected))
	}
}

// full lets an append meet a disk that is full, and a sync that has a snapshot to write.
func (w *walked) full(x *walkLog) {
	if !x.usable() {
		return
	}
	w.sync(x)
	if !x.usable() {
		return
	}
	x.l.mu.Lock()
	_ = x.l.rollLocked(x.l.LogEnd(), 0)
	x.l.mu.Unlock()
	w.mem.SetCapacity(0)
	_, err := x.l.Append(batch(w.t, record.None, 1, 2, 3), x.epoch, 0)
	require.Error(w.t, err)
	require.True(w.t, w.faulty() || model.HasCode(err, model.StorageFull), "%v", err)
	if x.l.Failed() != nil {
		w.excused(err)
	}
	x.l.store.sched.Enqueue(x.l.member)
	synctest.Wait()
	w.mem.SetCapacity(-1)
}

// wide fills a log with so many batches that its index has several blocks.
func (w *walked) wide(x *walkLog) {
	if !x.usable() {
		return
	}
	var data []byte
	var recs []walkRec
	for i := range 600 {
		r := walkRec{off: x.end + model.Offset(i), ts: 1000, key: "w", val: "w"}
		s := sparse{plain: true, recs: []sparseRec{{ts: r.ts, key: []byte(r.key), val: []byte(r.val)}}}
		data, recs = append(data, s.encode()...), append(recs, r)
	}
	x.hand(recs)
	for try := 0; ; try++ {
		_, err := x.l.Append(data, x.epoch, 0)
		if err == nil {
			x.acked, x.end = append(x.acked, recs...), x.end+600
			break
		}
		if !w.refused(x, err) {
			return
		}
		require.Zero(w.t, try, "%v", err)
	}
	w.append(x, walkBatch{keys: []string{"w"}}, false) // which writes the index entries of those before it
	for _, off := range []model.Offset{1, 300, 599} {
		if _, _, err := walkReadAt(x.l, off, 1); err != nil {
			w.excused(err)
		}
	}
}
