package sim

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/check"
	"tidewire/storage/log"
	"tidewire/storage/record"
)

var placesFlag = flag.Int("places", 0, "at how many places TestDamage damages each kind of file in each way; 0: it is skipped")

// files are the contents of all files of a data folder, by path.
type files map[string][]byte

func load(s *sim) files {
	out := files{}
	for _, dir := range []string{dataDir, folder} {
		infos, err := s.mem.ReadDir(dir)
		s.ok(err)
		for _, i := range infos {
			if !i.Dir {
				b, err := fsx.ReadFile(s.mem, dir+"/"+i.Name, 1<<24)
				s.ok(err)
				out[dir+"/"+i.Name] = b
			}
		}
	}
	return out
}

// mem makes a file system of the files with one changed; nil deletes it.
func (f files) mem(s *sim, changed string, contents []byte) *fsx.Mem {
	m := fsx.NewMem()
	s.ok(m.MkdirAll(folder))
	for name, b := range f {
		if name == changed {
			if b = contents; b == nil {
				continue
			}
		}
		w, err := m.OpenFile(name, fsx.ReadWrite|fsx.Create)
		s.ok(err)
		_, err = w.WriteAt(b, 0)
		s.ok(err)
		s.ok(w.Close())
	}
	return m
}

// world is a data folder as a clean stop or a kill left it, with what it must say.
type world struct {
	name             string
	clean, compacted bool
	now              files
	before           []files // earlier in its life, the oldest first
	s                *sim    // the model; its store has ended
	point            model.Offset
}

// newWorld has a log live for a while: all codecs, producers, transactions that overlap, of
// which one stays open, epochs, moves of the log start, and compaction or truncation.
func newWorld(compacted, clean bool, sleep func(time.Duration)) *world {
	seed := uint64(7)
	if compacted {
		seed = 8
	}
	s := newSim(seed, false, newTally(), sleep)
	s.cfg = log.Config{SegmentBytes: 2200, IndexIntervalBytes: 150, MaxMessageBytes: maxBatch, FileDeleteDelayMs: 1}
	s.opts.DedupeBufferBytes = 1 << 16
	s.tell("world")
	s.start(true)
	w := &world{name: fmt.Sprintf("compacted=%v clean=%v", compacted, clean), clean: clean, compacted: compacted, s: s}
	for round := range 8 {
		s.epoch += model.LeaderEpoch(round % 3)
		for range 45 {
			s.codec = record.Codec(1 + s.n(4))
			[]func(){s.plain, s.produce, s.produce, s.endTxn}[s.n(4)]()
		}
		s.syncNow()
		s.moveHW()
		s.ok(s.store.Checkpoint())
		if round == 0 && !compacted {
			s.cutAt(s.h.end() - 3)
		}
		if round%3 == 2 && compacted {
			s.endAll()
			passes := s.tally.done["pass of compaction"]
			s.compact()
			s.is(s.tally.done["pass of compaction"] > passes, "compaction finds nothing to do")
		}
		if round != 5 { // so that the active indexes are written
			s.ok(s.store.Close())
			s.die()
			w.before = append(w.before, load(s))
			s.start(true)
		}
		w.before = append(w.before, load(s))
		if round == 5 {
			s.advance(s.h.batches[s.h.from(s.l.HighWatermark()/6)].base + 1)
			s.elapse(5 * time.Millisecond)
		}
	}
	s.plain() // begins the last segment, of which there is an earlier copy
	s.syncNow()
	w.before = append(w.before, load(s))
	for pid := range model.ProducerID(2) { // in the last segment too: an aborted one, and one that stays open
		b := s.draw(s.h.end())
		s.next(b, pid)
		b.txn = true
		s.ok(s.lead(b))
		if pid == 0 {
			typ := record.ControlAbort
			s.ok(s.lead(&mbatch{base: s.h.end(), last: s.h.end(), epoch: s.epoch, pid: 0, pepoch: b.pepoch, seq: -1, txn: true, marker: &typ, maxTs: s.now(), horizon: -1}))
		}
	}
	s.syncNow()
	s.ok(s.store.Checkpoint())
	w.point = s.h.end()
	if clean {
		s.ok(s.store.Close())
	} else {
		for range 12 {
			w.before = append(w.before, load(s))
			s.plain()
		}
	}
	s.die()
	w.now = load(s)
	return w
}

// endAll ends all transactions and has everything replicated.
func (s *sim) endAll() {
	f := s.h.derive()
	for i, pid := range slices.Sorted(maps.Keys(f.open)) {
		typ := record.ControlType(i % 2)
		s.ok(s.lead(&mbatch{base: s.h.end(), last: s.h.end(), epoch: s.epoch, pid: pid, pepoch: f.epoch[pid], seq: -1, txn: true, marker: &typ, maxTs: s.now(), horizon: -1}))
	}
	s.syncNow()
	s.l.SetHighWatermark(s.h.end())
}

// kindOf groups files: a segment's by suffix, the last .log apart.
func (w *world) kindOf(name string) string {
	ext := path.Ext(name)
	switch {
	case path.Dir(name) == folder && ext == ".log":
		if name == w.newest(".log") {
			return ".log active"
		}
		return ".log sealed"
	case path.Dir(name) == folder && slices.Contains([]string{".index", ".timeindex", ".txnindex", ".snapshot"}, ext):
		return ext
	}
	return path.Base(name)
}

func (w *world) newest(ext string) (out string) {
	for name := range w.now {
		if path.Dir(name) == folder && path.Ext(name) == ext {
			out = max(out, name)
		}
	}
	return out
}

var damageKinds = []string{".log sealed", ".log active", ".index", ".timeindex", ".txnindex", ".snapshot",
	"recovery-point", "replication", "log-start", "cleaner", "clean-stop", "leader-epoch-checkpoint", "partition.metadata", "compacted"}

var damageWays = []string{"flipped bit", "truncated", "deleted", "older copy"}

// change damages a file of a kind at a drawn place. pos is where it begins to differ; ok
// is false where there is no such file, or never was another.
func (w *world) change(rng *rand.Rand, kind, way string) (name string, b []byte, pos int, ok bool) {
	var names []string
	for n, b := range w.now {
		if w.kindOf(n) == kind && len(b) > 0 {
			names = append(names, n)
		}
	}
	if slices.Sort(names); len(names) == 0 {
		return "", nil, 0, false
	}
	name = names[rng.IntN(len(names))]
	was := w.now[name]
	switch way {
	case "flipped bit":
		b, pos = slices.Clone(was), rng.IntN(len(was))
		b[pos] ^= 1 << rng.IntN(8)
		return name, b, pos, true
	case "truncated":
		pos = rng.IntN(len(was))
		if entry := map[string]int{".index": 8, ".timeindex": 12, ".txnindex": 34}[kind]; entry > 0 && rng.IntN(2) == 0 {
			pos -= pos % entry
		}
		return name, append([]byte{}, was[:pos]...), pos, true
	case "deleted":
		return name, nil, 0, true
	}
	return w.older(rng, names, kind)
}

// older finds what a file of the names held before; of those that were written once, what
// a careless restore would put there.
func (w *world) older(rng *rand.Rand, names []string, kind string) (name string, b []byte, pos int, ok bool) {
	type copyOf struct {
		name string
		b    []byte
	}
	var all []copyOf
	for _, n := range names {
		for _, f := range w.before {
			if b, ok := f[n]; ok && !bytes.Equal(b, w.now[n]) {
				all = append(all, copyOf{n, b})
			}
		}
	}
	switch {
	case kind == ".snapshot":
		all = []copyOf{{names[len(names)-1], w.now[names[len(names)-2]]}}
	case kind == "partition.metadata":
		all = []copyOf{{names[0], []byte("version: 0\ntopic_id: AQIDBAUGBwgJCgsMDQ4PEA")}}
	case len(all) == 0:
		return "", nil, 0, false
	}
	c := all[rng.IntN(len(all))]
	was := w.now[c.name]
	for pos < min(len(c.b), len(was)) && c.b[pos] == was[pos] {
		pos++
	}
	return c.name, append([]byte{}, c.b...), pos, true
}

// trial is one damage and what came of it.
type trial struct {
	w               *world
	kind, way, name string
	pos             int
	contents        []byte
	s               *sim
	outcome         map[string]bool
	wrong           []string
}

func (x *trial) saw(outcome string) { x.outcome[outcome] = true }

func (x *trial) fails(format string, args ...any) {
	x.wrong = append(x.wrong, fmt.Sprintf(format, args...))
}

// run starts a store over the damaged folder and asks for all that the log knows.
func (x *trial) run(sleep func(time.Duration)) {
	m := x.w.s
	s := newSim(1, false, newTally(), sleep)
	s.cfg, s.opts.DedupeBufferBytes, s.id, s.ids, s.h, s.epoch = m.cfg, m.opts.DedupeBufferBytes, m.id, m.ids, m.h.clone(), m.epoch
	s.tell("trial")
	x.s = s
	s.use(x.w.now.mem(s, x.name, x.contents))
	if x.w.clean {
		x.check()
	}
	defer s.quit()
	s.group = newGroup()
	s.opts.Group = s.group
	store, err := log.OpenStore(s.opts)
	s.ok(err, "a store opens whatever is damaged")
	s.store = store
	l, err := store.Open(s.id, topic, 0, s.cfg)
	if err != nil {
		x.refused(err)
		return
	}
	s.l = l
	x.served()
	if err := store.Close(); err != nil {
		x.fails("it does not stop: %v", err)
	}
}

// refused is a log that is not opened: only where something below the recovery point is
// gone, naming it, and nothing was touched.
func (x *trial) refused(err error) {
	x.saw("refused")
	if !slices.Contains([]string{".log sealed", ".log active", "partition.metadata", "compacted"}, x.kind) &&
		!(x.way == "older copy" && (x.kind == "log-start" || // as if the first segment were missing
			x.kind == "recovery-point" && x.w.compacted)) { // as if a batch had another offset
		x.fails("refused: %v", err)
	}
	x.named(err)
	b, rerr := fsx.ReadFile(x.s.mem, x.name, 1<<24)
	if x.contents != nil && (rerr != nil || !bytes.Equal(b, x.contents)) || x.contents == nil && rerr == nil {
		x.fails("the file of a log that was refused was changed: %v", rerr)
	}
	for name, was := range x.w.now {
		if path.Ext(name) != ".log" || name == x.name {
			continue
		}
		if b, rerr := fsx.ReadFile(x.s.mem, name, 1<<24); rerr != nil || !bytes.Equal(b, was) {
			x.fails("%s of a log that was refused was changed", name)
		}
	}
}

// named wants a storage error that names a file and an offset.
func (x *trial) named(err error) {
	text := err.Error()
	if !model.HasCode(err, model.StorageError) || !strings.Contains(text, folder) || x.kind != "partition.metadata" && !strings.Contains(text, "offset") {
		x.fails("not a storage error with file and offset: %v", err)
	}
}

// served compares what an opened log says.
func (x *trial) served() {
	s := x.s
	end := s.l.LogEnd()
	switch {
	case end < x.w.point:
		x.fails("the log ends at %d, below its recovery point %d", end, x.w.point)
		return
	case end < s.h.end():
		if x.w.clean || !s.h.boundary(end) {
			x.fails("the log ends at %d, not at %d", end, s.h.end())
		}
		x.saw("torn tail cut")
		s.h.cut(end)
		s.h.origin = max(s.h.origin, end)
	case end > s.h.end():
		x.fails("the log ends at %d, beyond %d", end, s.h.end())
		return
	}
	if start := s.l.LogStart(); start != s.h.start {
		if x.kind != "log-start" || start > s.h.start {
			x.fails("the log starts at %d, not at %d", start, s.h.start)
		}
		x.saw("log start further back")
	}
	x.reads()
	x.seeks()
	x.rest()
}

// reads asks for each batch by its offset.
func (x *trial) reads() {
	s, logs := x.s, strings.HasPrefix(x.kind, ".log")
	for i := s.h.from(s.h.start); i < len(s.h.batches); i++ {
		b := s.h.batches[i]
		from := max(b.base, s.h.start)
		data, err := s.l.Read(nil, from, allOffsets, 1)
		if err != nil {
			x.saw("storage error at a read")
			if x.named(err); !logs && x.kind != "compacted" {
				x.fails("reading %d: %v", from, err)
			}
			continue
		}
		got, _, err := record.ParseBatch(data)
		switch {
		case err != nil:
			if b.last+1 < s.h.end() || x.present(b) {
				x.fails("nothing at %d: %v", from, err)
			}
			continue
		case got.VerifyCRC() != nil:
			x.saw("found by the batch's checksum")
			if !logs {
				x.fails("a wrong checksum at %d", from)
			}
			continue
		}
		x.compare(b, i, &got)
	}
}

// present reports whether the log should have a batch.
func (x *trial) present(b *mbatch) bool {
	return slices.ContainsFunc(b.recs, func(r mrec) bool { return !r.gone && r.off >= x.s.h.start })
}

// compare compares a batch whose checksum is right with the one that should be there.
func (x *trial) compare(b *mbatch, i int, got *record.Batch) {
	s := x.s
	h := &got.Header
	if h.BaseOffset != b.base {
		// Compaction has removed it, and this is one of the next; or its base was changed.
		j := i
		for j < len(s.h.batches) && s.h.batches[j].base < h.BaseOffset {
			if x.present(s.h.batches[j]) {
				x.moved("the batch at %d for that at %d", h.BaseOffset, s.h.batches[j].base)
				return
			}
			j++
		}
		if j == len(s.h.batches) || s.h.batches[j].base != h.BaseOffset {
			x.moved("a batch at %d, where none was", h.BaseOffset)
		}
		return
	}
	if h.LeaderEpoch != b.epoch {
		if !strings.HasPrefix(x.kind, ".log") || x.way != "flipped bit" {
			x.fails("the batch at %d has epoch %d, not %d", b.base, h.LeaderEpoch, b.epoch)
		}
		x.saw("another leader epoch in a header")
		c := *b
		c.epoch = h.LeaderEpoch
		b = &c
	}
	if x.w.compacted && strings.HasPrefix(x.kind, ".log") && x.way == "older copy" {
		b = x.asBefore(got, b)
	}
	if what := s.tried(func() { s.compare(got, b, s.h.start, nil) }); what != "" {
		x.fails("the batch at %d: %s", b.base, what)
	}
}

// asBefore is a batch with the records that an earlier copy of it has: what compaction has
// removed since comes back with a file from before it.
func (x *trial) asBefore(got *record.Batch, b *mbatch) *mbatch {
	s, there := x.s, map[model.Offset]bool{}
	s.ok(got.Records(s.inflate, &s.it))
	for s.it.Next() {
		there[s.it.Record().Offset] = true
	}
	s.ok(s.it.Err())
	c := *b
	c.recs = slices.Clone(b.recs)
	for i := range c.recs {
		r := &c.recs[i]
		if r.gone && there[r.off] {
			x.saw("compacted records back")
		}
		r.gone = !there[r.off]
	}
	if c.horizon = -1; got.Header.Attributes.Has(record.AttrDeleteHorizon) {
		c.horizon = got.Header.BaseTimestamp
	}
	return &c
}

// moved is a batch with another base offset, as only a flip beside a gap of compaction, or
// the loss of such a log's file, can make.
func (x *trial) moved(format string, args ...any) {
	if !x.w.compacted || !strings.HasPrefix(x.kind, ".log") {
		x.fails(format, args...)
	}
	x.saw("moved within a gap")
}

// tried runs a comparison and gives what it found.
func (s *sim) tried(fn func()) (what string) {
	defer func() {
		if p := recover(); p != nil {
			if _, ours := p.(stopped); !ours {
				panic(p)
			}
			what = strings.Join(s.j.what, "\n")
			s.j.what = nil
		}
	}()
	fn()
	return ""
}

// seeks looks for each batch's time. What a sealed time index cut at an entry hides is
// listed in docs/formats.md.
func (x *trial) seeks() {
	s := x.s
	for _, b := range s.h.batches[s.h.from(s.h.start):] {
		for _, ts := range []int64{b.maxTs, b.maxTs + 1} {
			off, _, found, err := s.l.OffsetForTimestamp(ts, allOffsets)
			if err != nil {
				if x.saw("storage error at a seek"); !strings.HasPrefix(x.kind, ".log") {
					x.fails("seeking %d: %v", ts, err)
				}
				continue
			}
			want, due := s.firstAt(ts)
			switch {
			case found == due && (!found || off == want):
			case x.kind == ".timeindex" && x.way != "flipped bit" && x.way != "deleted":
				x.saw("seek misled by a time index cut at an entry")
			case strings.HasPrefix(x.kind, ".log"):
				x.saw("seek misled by a changed log")
			case x.kind == "log-start":
			default:
				x.fails("time %d is at %d (%v), not at %d (%v)", ts, off, found, want, due)
			}
		}
	}
}

func (s *sim) firstAt(ts int64) (model.Offset, bool) {
	for _, b := range s.h.batches[s.h.from(s.h.start):] {
		for _, r := range b.recs {
			if !r.gone && r.off >= s.h.start && r.ts >= ts {
				return r.off, true
			}
		}
	}
	return 0, false
}

// rest compares epochs, transactions and producers. Of a log whose batches are changed they
// are what those say.
func (x *trial) rest() {
	s := x.s
	if strings.HasPrefix(x.kind, ".log") || x.kind == "log-start" {
		return
	}
	for _, part := range []struct {
		name string
		fn   func()
		may  bool // be wrong, until a check finds it
	}{
		{"leader epochs", s.verifyEpochs, x.kind == "leader-epoch-checkpoint"},
		{"transactions", s.verifyTxns, x.kind == ".snapshot" && x.way == "older copy" || x.kind == "compacted"},
		{"producers", s.verifyProducers, x.kind == ".snapshot" && x.way == "older copy"},
	} {
		what := s.tried(part.fn)
		if what == "" {
			continue
		}
		if x.saw("other " + part.name); !part.may {
			x.fails("%s: %s", part.name, what)
		}
	}
}

// check has tidewire check --deep look at the folder of a clean stop.
func (x *trial) check() {
	found, noted := false, false
	o := check.Options{FS: stamped{x.s.mem, x.s.opts.Now()}, Path: dataDir, Deep: true, IndexInterval: x.s.cfg.IndexIntervalBytes, ProducerExpiration: idle}
	_, err := check.Run(o, func(f check.Finding) {
		found = found || f.Severity == check.Damage
		noted = noted || path.Join(dataDir, f.File) == x.name
	})
	switch {
	case err != nil:
		x.fails("check: %v", err)
	case found:
		x.saw("check: found")
	case noted && x.kind == ".snapshot" && x.way == "deleted": // none is written on a full disk
		x.saw("check: found, as a note")
	case x.excused():
		x.saw("check: not found, as listed")
	default:
		x.fails("check --deep finds nothing")
	}
}

// excused are the changes that docs/formats.md lists as not found.
func (x *trial) excused() bool {
	was := x.w.now[x.name]
	switch x.kind {
	case ".log sealed", ".log active":
		if !x.w.compacted || x.way == "deleted" {
			return false
		}
		for at := 0; at < len(was); {
			h, err := record.ParseHeader(was[at:])
			if err != nil {
				return false
			}
			if rel := x.pos - at; x.way == "flipped bit" && rel >= 0 && rel < h.Size() {
				return rel < 8 || rel >= 12 && rel < 16
			}
			if x.way != "flipped bit" && x.pos == at {
				return true
			}
			at += h.Size()
		}
	case "leader-epoch-checkpoint":
		line := was[bytes.LastIndexByte(was[:x.pos], '\n')+1 : x.pos]
		return x.way == "flipped bit" && x.w.compacted && bytes.ContainsRune(line, ' ')
	case ".snapshot": // of an earlier stop, which no start would miss
		_, base := x.w.now[strings.TrimSuffix(x.name, ".snapshot")+".log"]
		return x.way == "deleted" && !base && x.name != x.w.newest(".snapshot")
	case "clean-stop", "compacted":
		return x.way == "deleted"
	}
	return false
}

// Damage to any file of a stopped or killed folder is made good, refused by name, or at
// least never served as something else; and a check after a clean stop finds it.
func TestDamage(t *testing.T) { //nolint:paralleltest // it prints
	if *placesFlag == 0 {
		t.Skip("needs -places, as make sim gives")
	}
	synctest.Test(t, func(t *testing.T) {
		sleep := func(d time.Duration) { time.Sleep(d) }
		for _, clean := range []bool{true, false} {
			worlds := []*world{newWorld(false, clean, sleep), newWorld(true, clean, sleep)}
			for _, w := range worlds {
				x := &trial{w: w, kind: "nothing", outcome: map[string]bool{}}
				if x.run(sleep); clean {
					assert.Equal(t, []string{"check --deep finds nothing"}, x.wrong, w.name)
				} else {
					assert.Empty(t, x.wrong, w.name)
				}
			}
			damageAll(t, worlds, clean, sleep)
		}
	})
}

func damageAll(t *testing.T, worlds []*world, clean bool, sleep func(time.Duration)) {
	t.Helper()
	fmt.Printf("damage after a clean stop: %v\n", clean)
	for i, kind := range damageKinds {
		for j, way := range damageWays {
			rng := rand.New(rand.NewPCG(uint64(100*i+j), 0x64616d))
			done, seen := 0, counts{}
			for n := 0; n < 2**placesFlag && done < *placesFlag; n++ { // some files are in one world only
				w := worlds[n%2]
				name, b, pos, ok := w.change(rng, kind, way)
				if !ok {
					continue
				}
				x := &trial{w: w, kind: kind, way: way, name: name, pos: pos, contents: b, outcome: map[string]bool{}}
				x.run(sleep)
				done++
				assert.Empty(t, x.wrong, "%s: %s %s at %d", w.name, name, way, pos)
				if len(x.outcome) == 0 || len(x.outcome) == 1 && (x.outcome["check: found"] || x.outcome["check: found, as a note"] || x.outcome["check: not found, as listed"]) {
					x.saw("all right")
				}
				for k := range x.outcome {
					seen[k]++
				}
			}
			fmt.Printf("  %-24s %-12s %4d", kind, way, done)
			for _, k := range slices.Sorted(maps.Keys(seen)) {
				fmt.Printf("  %s %d", k, seen[k])
			}
			fmt.Println()
			once := kind == "compacted" && way == "older copy" || kind == "cleaner" && way == "older copy" ||
				kind == "clean-stop" && (!clean || way == "older copy")
			require.True(t, once || done >= *placesFlag, "%s was %s only %d times", kind, way, done)
			if clean && done > 0 {
				require.Equal(t, done, seen["check: found"]+seen["check: found, as a note"]+seen["check: not found, as listed"])
			}
		}
	}
}
