package sim

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
	"tidewire/storage/check"
	"tidewire/storage/log"
	"tidewire/storage/record"
)

const (
	dataDir = "/data"
	topic   = "events"
	// idle is producer.id.expiration.ms; seeds expire producers by hand.
	idle = 10 * 365 * 24 * time.Hour
	// maxBatch is max.message.bytes.
	maxBatch = 4000
)

// sim is one seed under way.
type sim struct {
	j     *judge
	rng   *rand.Rand
	cuts  bool // power is cut too
	tally *tally
	told  []string // the steps so far

	mem   *fsx.Mem
	in    *fsx.Inject
	group *lifecycle.Group
	store *log.Store
	l     *log.Log
	id    model.TopicID
	ids   byte
	opts  log.StoreOptions
	cfg   log.Config
	skew  atomic.Int64 // what the wall clock is ahead of the bubble's, ns
	sleep func(time.Duration)

	h       *history
	epoch   model.LeaderEpoch
	hw      model.Offset
	durable model.Offset // synced for certain, where the stable end does not tell
	settled bool         // the stable end tells: no write caching since the last sync
	unique  int
	codec   record.Codec // of compressed batches
	expired bool         // producers were told to be forgotten
	noRoom  bool         // there was no room for some file

	flight flight
	lost   *lost
	// cutInStart says that power was lost during the start that came last.
	cutInStart bool
	pass       passed

	builder *record.Builder
	inflate *record.Decompressor
	it      record.Iterator
	rewrite record.Rewriter
	buf     []byte
}

// flight is the change that a step has under way.
type flight struct {
	kind     string // "" where all it can do is append
	at       model.Offset
	before   *history
	returned bool
}

// lost is what was left, and what had been told, when a process or the power went.
type lost struct {
	mem      *fsx.Mem
	power    bool
	synced   model.Offset // an acknowledged stable end
	cached   bool         // the stable end was perhaps ahead of what was synced
	kept     model.Offset // the log end; what is below a kill leaves
	start    model.Offset
	returned bool
	op       string
}

func newSim(seed uint64, cuts bool, t *tally, sleep func(time.Duration)) *sim {
	s := &sim{
		j: &judge{}, rng: rand.New(rand.NewPCG(seed, 0x73696d)), cuts: cuts, tally: t, sleep: sleep,
		h: newHistory(), settled: true, builder: record.NewBuilder(512), inflate: record.NewDecompressor(1 << 20),
	}
	s.codec = record.Codec(1 + s.n(4))
	s.cfg = log.Config{
		SegmentBytes:       int64(200 + s.n(2500)),
		IndexIntervalBytes: 1 + s.n(500),
		SegmentIndexBytes:  24 + s.n(400),
		MaxMessageBytes:    maxBatch,
		FileDeleteDelayMs:  []int64{1, 700, 60_000}[s.n(3)],
		WriteCaching:       s.n(6) == 0,
	}
	s.opts = log.StoreOptions{
		Dir: dataDir, CheckpointInterval: time.Second + 137*time.Microsecond, TrashDelay: 3 * time.Second,
		Tuning: log.Tuning{ProducerIDExpiration: idle}, MaxInflate: 1 << 20, Logger: slog.New(slog.DiscardHandler),
		DedupeBufferBytes: []int64{1, 24 * 6, 24 * 40, 24 * 400}[s.n(4)],
		Now:               func() time.Time { return time.Now().Add(time.Duration(s.skew.Load())) },
	}
	s.newTopic()
	s.use(fsx.NewCrashMem())
	return s
}

func (s *sim) n(k int) int                { return s.rng.IntN(k) }
func (s *sim) chance(k int) bool          { return s.rng.IntN(k) == 0 }
func (s *sim) now() int64                 { return s.opts.Now().UnixMilli() }
func (s *sim) done(what string)           { s.tally.done[what]++ }
func (s *sim) fault(what string)          { s.tally.fault[what]++ }
func (s *sim) ok(err error, w ...any)     { require.NoError(s.j, err, w...) }
func (s *sim) eq(want, got any, w ...any) { require.Equal(s.j, want, got, w...) }
func (s *sim) is(b bool, format string, args ...any) {
	if !b {
		require.Fail(s.j, fmt.Sprintf(format, args...))
	}
}

// refused wants an error of a code.
func (s *sim) refused(err error, code model.Code) {
	s.is(model.HasCode(err, code), "wanted %s: %v", code, err)
	s.done("refused: " + string(code))
}

func (s *sim) tell(format string, args ...any) {
	s.told = append(s.told, fmt.Sprintf(format, args...))
}

// more adds to what was told last.
func (s *sim) more(format string, args ...any) {
	s.told[len(s.told)-1] += fmt.Sprintf(" "+format, args...)
}

func (s *sim) newTopic() {
	s.ids++
	s.id = model.TopicID{7, s.ids}
}

func (s *sim) use(mem *fsx.Mem) {
	s.mem, s.in = mem, fsx.NewInject(mem, nil)
	s.opts.FS = s.in
}

// quit ends what runs.
func (s *sim) quit() {
	s.in.SetHook(nil)
	if s.group != nil {
		_ = s.group.Stop(time.Minute)
		s.group = nil
	}
}

// die is the end of the process: nothing more is written.
func (s *sim) die() {
	s.in.SetHook(nil)
	s.ok(s.group.Stop(time.Minute))
	s.group, s.store, s.l = nil, nil, nil
}

// cached tells whether the stable end may be ahead of what is synced.
func (s *sim) cached() bool { return s.cfg.WriteCaching || !s.settled }

// bound is an offset below which all is synced for certain.
func (s *sim) bound() model.Offset {
	if s.l == nil || s.cached() {
		return s.durable
	}
	return max(s.durable, s.l.StableEnd())
}

// synced notes that all is.
func (s *sim) synced() { s.durable, s.settled = s.h.end(), !s.cfg.WriteCaching }

// arm has the process or the power lost at the nth operation on files from here. What is
// under way goes on beside it, in a world that counts no more.
func (s *sim) arm(n int) {
	power := s.cuts && !s.chance(4)
	seed := s.rng.Uint64()
	s.lost = nil
	s.in.SetHook(func(op fsx.Op) *fsx.Fault {
		if n--; n != 0 {
			return nil
		}
		l := &lost{power: power, synced: s.bound(), cached: s.cached(), returned: s.flight.returned, op: fmt.Sprint(op.Kind, " ", op.Path)}
		l.kept = l.synced
		if s.l != nil {
			l.start, l.kept = s.l.LogStart(), s.l.LogEnd()
		}
		if power {
			l.mem = s.mem.Crash(seed)
		} else {
			l.mem = s.mem.Clone()
		}
		s.lost = l
		return nil
	})
}

// begin names the change that is about to be asked for.
func (s *sim) begin(kind string, at model.Offset) {
	s.flight = flight{kind: kind, at: at, before: s.h.clone()}
}

func (s *sim) returned() { s.flight.returned = true }

// wait lets everybody else finish what can be done without time passing.
func (s *sim) wait() { synctest.Wait() }

// elapse lets time pass, on every clock.
func (s *sim) elapse(d time.Duration) {
	s.sleep(d)
	s.wait()
}

// start opens the store and the log. In the midst of it process or power may be lost again.
func (s *sim) start(calm bool) {
	s.cutInStart = false
	for try := 0; ; try++ {
		s.flight = flight{kind: "start"}
		s.lost = nil
		if !calm && try < 3 && s.chance(4) {
			s.arm(1 + s.n(60))
		}
		s.group = lifecycle.New(context.Background())
		s.opts.Group = s.group
		store, err := log.OpenStore(s.opts)
		s.ok(err, "the start fails")
		s.store = store
		l, err := store.Open(s.id, topic, 0, s.cfg)
		s.ok(err, "the start fails")
		s.in.SetHook(nil)
		if s.lost == nil {
			s.l = l
			s.done("start")
			s.wait()
			return
		}
		if s.lost.power {
			s.fault("power cut in a start")
			s.cutInStart = true
		} else {
			s.fault("kill in a start")
		}
		s.more("[lost again at %s]", s.lost.op)
		l2 := s.lost
		s.die()
		s.use(l2.mem)
	}
}

// settle comes after each step: where process or power was lost in it, all starts again.
func (s *sim) settle() {
	l := s.lost
	s.lost = nil
	s.in.SetHook(nil)
	if l == nil {
		return
	}
	what := "kill"
	if l.power {
		what = "power cut"
	}
	kind := s.flight.kind
	if kind == "" {
		kind = "append"
	}
	s.fault(what + " in: " + kind)
	s.more("[%s at %s]", what, l.op)
	s.die()
	s.use(l.mem)
	s.reopen(l)
}

// lose ends the process, or the power, between two steps.
func (s *sim) lose(power bool) {
	l := &lost{power: power, returned: true, start: s.l.LogStart(), synced: s.bound(), cached: s.cached(), kept: s.h.end(), mem: s.mem}
	s.flight = flight{}
	if power {
		l.mem = s.mem.Crash(s.rng.Uint64())
		s.fault("power cut between steps")
	} else {
		s.fault("kill between steps")
	}
	s.die()
	s.use(l.mem)
	s.reopen(l)
}

// reopen starts again after a loss and finds out what is left.
func (s *sim) reopen(l *lost) {
	fl := s.flight
	s.start(false)
	if l.power || s.cutInStart {
		l.kept = l.synced
	}
	s.reconcile(l, fl)
	s.durable, s.settled = s.h.end(), !s.cfg.WriteCaching
	s.hw = s.l.HighWatermark()
	s.verify()
}

// stop ends the store cleanly, in the midst of which process or power may be lost.
func (s *sim) stop() {
	s.wait()
	s.begin("stop", 0)
	if s.chance(4) {
		s.arm(1 + s.n(40))
	}
	err := s.store.Close()
	s.returned()
	s.ok(err)
	if s.lost != nil {
		s.settle()
		return
	}
	s.in.SetHook(nil)
	s.fault("clean stop")
	s.die()
	if s.cuts && s.chance(3) {
		s.use(s.mem.Crash(s.rng.Uint64()))
		s.fault("power cut after a clean stop")
	}
	s.checkFolder()
	s.start(false)
	s.eq(s.h.end(), s.l.LogEnd(), "after a clean stop")
	s.synced()
	s.hw = s.l.HighWatermark()
	s.verify()
}

func newGroup() *lifecycle.Group { return lifecycle.New(context.Background()) }

// stamped gives files a time of change, which the memory keeps none of.
type stamped struct {
	fsx.FS
	now time.Time
}

func (s stamped) ReadDir(name string) ([]fsx.Info, error) {
	infos, err := s.FS.ReadDir(name)
	for i := range infos {
		infos[i].Modified = s.now
	}
	return infos, err
}

// checkFolder has tidewire check --deep look for damage, of which there must be none.
func (s *sim) checkFolder() {
	o := check.Options{FS: stamped{s.mem, s.opts.Now()}, Path: dataDir, Deep: true, IndexInterval: s.cfg.IndexIntervalBytes, ProducerExpiration: idle}
	if s.expired { // as if that had been long after
		o.FS = stamped{s.mem, s.opts.Now().Add(3 * idle)}
	}
	sum, err := check.Run(o, func(f check.Finding) {
		s.is(f.Severity != check.Damage, "the check finds damage: %s %s (at %s)", f.File, f.What, place(f))
	})
	s.ok(err)
	s.is(sum.CleanStop, "no clean stop")
	s.done("deep check after a clean stop")
}

func place(f check.Finding) string {
	out := ""
	if f.Position != nil {
		out += fmt.Sprintf(" byte %d", *f.Position)
	}
	if f.Offset != nil {
		out += fmt.Sprintf(" offset %d", *f.Offset)
	}
	return out
}

// dump shows the log's folder, for who looks for a fault.
func (s *sim) dump() string {
	if !testing.Verbose() {
		return ""
	}
	out := "\nthe folder:\n"
	for _, dir := range []string{dataDir, folder} {
		infos, err := s.mem.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, i := range infos {
			b, err := fsx.ReadFile(s.mem, dir+"/"+i.Name, 1<<24)
			if out += fmt.Sprintf("  %s %d\n", i.Name, i.Size); err != nil || i.Dir {
				continue
			}
			if path.Ext(i.Name) != ".log" {
				if path.Ext(i.Name) == "" {
					out += "    " + strings.ReplaceAll(string(b), "\n", "\n    ") + "\n"
				}
				continue
			}
			for len(b) > 0 {
				h, err := record.ParseHeader(b)
				if err != nil || h.Size() > len(b) {
					break
				}
				out += fmt.Sprintf("    %d-%d epoch %d count %d attrs %b pid %d/%d seq %d\n", h.BaseOffset, h.LastOffset(), h.LeaderEpoch, h.Count, h.Attributes, h.ProducerID, h.ProducerEpoch, h.BaseSequence)
				b = b[h.Size():]
			}
		}
	}
	return out
}
