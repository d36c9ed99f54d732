package sim

import (
	"context"
	"slices"
	"strings"
	"time"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/epochs"
	"tidewire/storage/log"
	"tidewire/storage/record"
)

const folder = dataDir + "/topics/" + topic + "-0"

// syncNow waits until all is synced.
func (s *sim) syncNow() {
	if s.cfg.WriteCaching || !s.settled {
		s.elapse(1200 * time.Millisecond)
		return
	}
	s.l.RequestSync()
	s.wait()
	s.ok(s.l.Failed())
	s.eq(s.l.LogEnd(), s.l.StableEnd(), "after a sync")
	s.synced()
}

// time lets some time pass: syncs, checkpoints and deletions happen by themselves.
func (s *sim) time() {
	d := []time.Duration{time.Millisecond, 3 * time.Millisecond, 100 * time.Millisecond, 1100 * time.Millisecond, 2500 * time.Millisecond}[s.n(5)]
	s.elapse(d)
	if s.l.Failed() != nil || d < 3*time.Millisecond || s.cfg.WriteCaching && d < time.Second+time.Millisecond {
		return
	}
	s.eq(s.l.LogEnd(), s.l.StableEnd(), "all is synced by itself")
	s.synced()
}

// clock sets the wall clock.
func (s *sim) clock() {
	d := time.Duration(s.n(7200)) * time.Second
	if s.chance(3) {
		d = -d / 12
	}
	s.skew.Add(int64(d))
	s.more("%v", d)
}

// moveHW moves the high watermark up to where a batch ends.
func (s *sim) moveHW() {
	lo, hi := s.h.from(s.l.HighWatermark()), s.h.from(s.l.StableEnd())
	hw := s.l.StableEnd()
	if lo < hi && s.chance(2) {
		hw = s.h.batches[lo+s.n(hi-lo)].last + 1
	}
	if hw > s.l.HighWatermark() && hw <= s.l.StableEnd() {
		s.l.SetHighWatermark(hw)
		s.done("high watermark moved")
	}
	s.hw = s.l.HighWatermark()
}

// deleteRecords moves the log start.
func (s *sim) deleteRecords() {
	_, err := s.l.Read(nil, s.h.end()+1, allOffsets, 100)
	s.refused(err, model.OffsetOutOfRange)
	s.refused(s.l.AdvanceLogStart(s.h.end()+1), model.OffsetOutOfRange)
	if s.h.start > 0 {
		_, err := s.l.Read(nil, s.h.start-1, allOffsets, 100)
		s.refused(err, model.OffsetOutOfRange)
	}
	s.advance(s.offset(s.h.start, s.offset(s.h.start, s.l.HighWatermark())))
}

func (s *sim) advance(to model.Offset) {
	s.more("to %d", to)
	s.begin("log start", to)
	s.ok(s.l.AdvanceLogStart(to))
	s.returned()
	if to > s.h.start {
		s.h.start = to
		s.done("log start moved")
	}
	s.eq(s.h.start, s.l.LogStart())
}

// seg is a segment as its file tells.
type seg struct {
	base  model.Offset
	bytes int64
	maxTs int64
}

func (s *sim) segments() (out []seg) {
	infos, err := s.mem.ReadDir(folder)
	s.ok(err)
	for _, i := range infos {
		digits, ok := strings.CutSuffix(i.Name, ".log")
		if !ok {
			continue
		}
		x := seg{maxTs: -1}
		for _, c := range digits {
			x.base = x.base*10 + model.Offset(c-'0')
		}
		b, err := fsx.ReadFile(s.mem, folder+"/"+i.Name, 1<<24)
		s.ok(err)
		x.bytes = int64(len(b))
		for len(b) > 0 {
			h, err := record.ParseHeader(b)
			s.ok(err)
			x.maxTs = max(x.maxTs, h.MaxTimestamp)
			b = b[h.Size():]
		}
		out = append(out, x)
	}
	return out
}

// retain deletes by age and by size.
func (s *sim) retain() {
	if s.chance(2) {
		s.moveHW()
	}
	r := log.Retention{Ms: []int64{-1, 60_000, 3600_000}[s.n(3)], Bytes: []int64{-1, 0, 2000}[s.n(3)], FutureMs: 3600_000}
	hw, now := s.l.HighWatermark(), s.now()
	limit := min(hw, s.l.LastStable(hw))
	to, move, _ := s.l.Retain(r, limit, now)
	s.more("%+v to %d", r, to)
	s.is(to <= max(limit, s.h.start) && to >= s.h.start, "retention goes to %d beyond %d", to, limit)
	want, certain := s.retention(r, limit, now)
	s.is(!certain || to == want, "retention %+v at %d goes to %d, not %d", r, now, to, want)
	if move && to > s.h.start {
		s.advance(to)
		s.done("deleted by retention")
	}
}

// retention works out where the log should begin. It is not certain where a segment goes
// by the time of its last append.
func (s *sim) retention(r log.Retention, limit model.Offset, now int64) (to model.Offset, certain bool) {
	segs := s.segments()
	var total int64
	for _, x := range segs {
		total += x.bytes
	}
	to = s.h.start
	for i, x := range segs {
		end, active := s.h.end(), i == len(segs)-1
		if !active {
			end = segs[i+1].base
		}
		if end > limit || x.bytes == 0 {
			break
		}
		old := false
		if r.Ms >= 0 {
			if x.maxTs < 0 || x.maxTs > now+r.FutureMs {
				return 0, false
			}
			old = now-x.maxTs > r.Ms
		}
		if !old && (active || r.Bytes < 0 || total-x.bytes < r.Bytes) {
			break
		}
		total -= x.bytes
		to = max(to, end)
	}
	return to, true
}

// truncate cuts at some offset, as a follower does.
func (s *sim) truncate() {
	s.cutAt(s.offset(max(s.h.start, s.h.floor), s.h.end()))
}

func (s *sim) cutAt(off model.Offset) {
	s.more("at %d", off)
	after := s.h.clone()
	after.cut(off)
	if off >= s.h.end() {
		after = s.h
	}
	if after.end() < s.h.start {
		s.begin("full", s.h.start)
		s.ok(s.l.TruncateTo(off))
		s.returned()
		s.h.restart(s.h.start)
		s.done("truncated wholly for want of a batch")
	} else {
		s.begin("cut", off)
		s.ok(s.l.TruncateTo(off))
		s.returned()
		s.takeCut(off)
	}
	s.afterCut()
}

// takeCut enters a truncation to off into the history.
func (s *sim) takeCut(off model.Offset) {
	if off >= s.h.end() {
		return
	}
	before := s.h.clone()
	s.h.cut(off)
	if e := s.l.LogEnd(); e != s.h.end() {
		s.is(e >= s.h.end() && e <= off && before.boundary(e), "cut to %d the log ends at %d, not at %d", off, e, s.h.end())
		s.h.origin = e
	}
	s.done("truncated")
}

func (s *sim) afterCut() {
	s.durable = min(s.durable, s.h.end())
	s.is(s.l.HighWatermark() <= s.l.LogEnd() && s.l.StableEnd() <= s.l.LogEnd(), "ends after a truncation")
	s.hw = s.l.HighWatermark()
	s.verify()
}

func (s *sim) truncateFully() {
	at := s.offset(0, s.h.end()+20)
	s.more("at %d", at)
	s.begin("full", at)
	s.ok(s.l.TruncateFullyAndStartAt(at))
	s.returned()
	s.h.restart(at)
	s.durable = at
	s.done("truncated fully")
	s.afterCut()
}

// truncateByEpoch does what a follower does whose log parts from its leader's at some
// offset: it asks for epochs and cuts until both agree (KIP-101, KIP-279).
func (s *sim) truncateByEpoch() {
	lo, hi := s.h.from(max(s.h.start, s.h.floor)), len(s.h.batches)
	if lo >= hi {
		return
	}
	part := s.h.batches[lo+s.n(hi-lo)].last + 1
	if s.chance(4) && s.h.floor < part {
		part = max(s.h.start, s.h.floor, s.h.batches[lo].base)
	}
	if after := s.h.clone(); part < s.h.end() {
		if after.cut(part); after.end() < s.h.start { // the log would begin anew, which truncate does too
			return
		}
	}
	s.more("parting at %d", part)
	// The leader's epochs: ours up to there, and its own from there on.
	var leader epochs.Cache
	for _, e := range s.h.derive().epochs {
		if e.start < part && s.ends(e) > s.h.start {
			leader = append(leader, epochs.Entry{Epoch: e.epoch, Start: e.start})
		}
	}
	s.epoch++
	leader = append(leader, epochs.Entry{Epoch: s.epoch, Start: part})
	s.begin("cut", part)
	for rounds := 0; ; rounds++ {
		s.is(rounds < 50, "the logs never agree")
		asked := s.l.LogEndEpoch()
		if asked == model.NoEpoch {
			break
		}
		e, end := leader.End(asked, part+10)
		to, agreed := s.l.CutFor(e, end)
		// Within a gap the log may know of an epoch of which nothing is left.
		s.is(s.h.from(to) >= s.h.from(min(part, s.h.end())), "cut to %d, though the logs agree up to %d", to, part)
		s.ok(s.l.TruncateTo(to))
		s.takeCut(to)
		if agreed {
			break
		}
	}
	s.returned()
	s.is(s.l.LogEnd() <= part, "the log ends at %d and parts at %d", s.l.LogEnd(), part)
	s.eq(s.h.end(), s.l.LogEnd())
	s.done("agreed with a leader")
	s.afterCut()
}

// ends is where an epoch ends.
func (s *sim) ends(e epochStart) model.Offset {
	list := s.h.derive().epochs
	if i := slices.Index(list, e); i+1 < len(list) {
		return list[i+1].start
	}
	return s.h.end()
}

// passed is the pass of compaction that was begun last.
type passed struct {
	to             model.Offset // no record at or above it is touched, but of aborted transactions
	limit          model.Offset // nothing at or above it is touched
	now, retention int64
}

// beginPass readies a pass.
func (s *sim) beginPass() log.CleanPolicy {
	if s.cfg.WriteCaching || !s.settled {
		s.elapse(1200 * time.Millisecond)
		s.synced()
	}
	if !s.chance(4) {
		s.moveHW()
	}
	hw := s.l.HighWatermark()
	p := log.CleanPolicy{DeleteRetentionMs: []int64{0, 1000, 600_000}[s.n(3)], MinLagMs: []int64{0, 0, 0, 100}[s.n(4)], HighWatermark: hw, LastStable: s.l.LastStable(hw)}
	now := s.now()
	st := s.l.CleanState(p, now)
	s.ok(st.Failed)
	s.is(st.To <= max(hw, st.From) && st.To <= max(p.LastStable, st.From), "a pass would go to %d, beyond %d or %d", st.To, hw, p.LastStable)
	if st.Dirty > 0 {
		s.h.floor = max(s.h.floor, hw)
		s.h.passes++
	}
	s.pass = passed{st.To, st.To, now, p.DeleteRetentionMs}
	s.more("%d to %d, below %d", st.From, st.To, hw)
	return p
}

// compact runs a pass of compaction.
func (s *sim) compact() {
	p := s.beginPass()
	s.begin("clean", 0)
	res, err := s.l.Clean(context.Background(), p, s.pass.now)
	s.returned()
	s.ok(err)
	s.is(res.To <= s.pass.to && (res.To > res.From || res.From == s.pass.to), "a pass from %d to %d, of %d", res.From, res.To, s.pass.to)
	if res.To < s.pass.to {
		s.done("the map of keys was full")
	}
	if res.To > res.From {
		s.done("pass of compaction")
		s.pass.to = res.To
		s.adoptPass(true)
	}
	s.tally.done["segments merged"] += res.Segments - res.Made
	s.verify()
}

// adoptPass takes over what a pass has left, if it may have. With exact all that can go
// must have gone.
func (s *sim) adoptPass(exact bool) {
	before := s.h
	s.h = before.clone()
	was := before.latest(s.h.end())
	rule := s.passRule(before)
	there, horizons := s.present()
	for i, b := range before.batches {
		if b.last < s.h.start {
			continue
		}
		c := *b
		c.recs = slices.Clone(b.recs)
		kept, tombs := 0, 0
		for j := range c.recs {
			r := &c.recs[j]
			if r.gone || r.off < s.h.start {
				continue
			}
			may, why := rule(b, r)
			s.is(there[r.off] || may, "the record at %d has gone (%v)", r.off, *r)
			s.is(!exact || !may || !there[r.off] || r.off >= s.pass.to, "the record at %d is still there, though %s", r.off, why)
			if r.gone = !there[r.off]; r.gone {
				s.done("record compacted: " + why)
				continue
			}
			if kept++; r.null {
				tombs++
			}
		}
		if h, ok := horizons[b.base]; ok && h != b.horizon {
			s.is(h < 0 && kept == 0 || b.horizon < 0 && h == s.pass.now+s.pass.retention && (b.base < s.pass.to || b.marker != nil && b.base < s.pass.limit), "the delete horizon of the batch at %d was %d and is %d", b.base, b.horizon, h)
			c.horizon = h
			s.done("delete horizon set")
		}
		s.is(!exact || b.marker != nil || tombs == 0 || c.horizon >= 0 || b.last >= s.pass.to || b.base < s.h.start,
			"the batch at %d has a tombstone and no delete horizon", b.base)
		s.h.batches[i] = &c
	}
	s.h.facts = nil
	s.eq(was, s.h.latest(s.h.end()), "the last values of the keys")
	s.done("pass compared")
}

// passRule tells which records the pass may drop.
func (s *sim) passRule(h *history) func(*mbatch, *mrec) (bool, string) {
	f, last := h.derive(), map[string]model.Offset{}
	for _, b := range h.batches {
		if b.marker != nil || f.abortedBatch(b) {
			continue
		}
		for _, r := range b.recs {
			if !r.gone && r.keyed && r.off < s.pass.to {
				last[r.key] = r.off
			}
		}
	}
	return func(b *mbatch, r *mrec) (bool, string) {
		switch {
		case f.abortedBatch(b) && b.last < s.pass.limit:
			return true, "it was aborted"
		case r.off >= s.pass.to:
			return false, ""
		case !r.keyed:
			return true, "it has no key"
		case last[r.key] > r.off:
			return true, "a later one has its key"
		case r.null && b.horizon >= 0 && b.horizon <= s.pass.now:
			return true, "it is a tombstone whose time is over"
		}
		return false, ""
	}
}

// present reads which records the log has, and its batches' delete horizons.
func (s *sim) present() (there map[model.Offset]bool, horizons map[model.Offset]int64) {
	there, horizons = map[model.Offset]bool{}, map[model.Offset]int64{}
	for at := s.l.LogStart(); ; {
		data, err := s.l.Read(nil, at, allOffsets, 4000)
		s.ok(err)
		if len(data) == 0 {
			return there, horizons
		}
		for len(data) > 0 {
			b, more, err := record.ParseBatch(data)
			s.ok(err)
			if horizons[b.Header.BaseOffset] = -1; b.Header.Attributes.Has(record.AttrDeleteHorizon) {
				horizons[b.Header.BaseOffset] = b.Header.BaseTimestamp
			}
			s.ok(b.Records(s.inflate, &s.it))
			for s.it.Next() {
				there[s.it.Record().Offset] = true
			}
			s.ok(s.it.Err())
			at, data = b.Header.NextOffset(), more
		}
	}
}

// expire forgets the producers that are idle.
func (s *sim) expire() {
	s.l.ExpireProducers(s.now() + 2*idle.Milliseconds())
	f := s.h.derive()
	hw := s.l.HighWatermark()
	for pid := range model.ProducerID(producers) {
		if _, open := f.open[pid]; open {
			continue
		}
		// The end of one that is not below the high watermark may yet be cut off.
		if slices.ContainsFunc(f.txns, func(t span) bool { return t.pid == pid && t.last >= hw }) {
			s.h.murky[pid] = s.h.used[pid]
			continue
		}
		if _, known := f.epoch[pid]; known {
			s.h.murky[pid] = s.h.used[pid]
			_, err := s.l.Append(s.encodeRetry(&mbatch{pid: pid, pepoch: s.h.used[pid], seq: 7}), s.epoch, s.now())
			s.refused(err, model.UnknownProducer)
			s.done("producer expired")
		}
	}
	s.expired = true
}

// recreate deletes the topic and makes one of its name.
func (s *sim) recreate() {
	s.begin("recreate", 0)
	old := s.l
	s.newTopic()
	s.ok(s.store.Remove(old))
	_, err := old.Append(s.encode(s.draw(0)), s.epoch, s.now())
	s.refused(err, model.LeaderUnavailable)
	l, err := s.store.Open(s.id, topic, 0, s.cfg)
	s.ok(err)
	s.l = l
	s.h = newHistory()
	s.durable, s.settled = 0, !s.cfg.WriteCaching
	s.done("topic deleted and made anew")
}
