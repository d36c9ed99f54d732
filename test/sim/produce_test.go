package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"tidewire/internal/model"
	"tidewire/storage/log"
	"tidewire/storage/record"
)

const (
	producers = 4
	coord     = 3 // epoch of the coordinator that writes markers
	farGap    = 1<<30 + 5
)

// draw makes a batch of one to five records at an offset.
func (s *sim) draw(base model.Offset) *mbatch {
	n := 1 + s.n(5)
	b := &mbatch{base: base, last: base + model.Offset(n-1), epoch: s.epoch, pid: -1, pepoch: -1, seq: -1, maxTs: -1, horizon: -1}
	around := s.now()
	switch s.n(12) {
	case 0:
		around -= 2 * 3600_000
	case 1:
		around += 20_000
	}
	none := s.chance(40)
	for i := range n {
		r := mrec{off: base + model.Offset(i), ts: around + int64(s.n(101)) - 50}
		if none {
			r.ts = -1
		}
		if r.keyed = !s.chance(8); r.keyed {
			r.key = fmt.Sprint("k", s.n(8))
		}
		if r.null = s.chance(5); !r.null {
			pad := s.n(60)
			if s.chance(30) {
				pad = 500
			}
			r.val = fmt.Sprintf("%d%s", s.unique, strings.Repeat("x", pad))
		}
		s.unique++
		b.maxTs = max(b.maxTs, r.ts)
		b.recs = append(b.recs, r)
	}
	return b
}

// encode gives a batch as a client sends it.
func (s *sim) encode(b *mbatch) []byte {
	x := s.builder
	x.Reset()
	if b.marker != nil {
		out, err := x.FinishMarker(b.pid, b.pepoch, record.Marker{Type: *b.marker, CoordinatorEpoch: coord, Timestamp: b.maxTs})
		s.ok(err)
		return slices.Clone(out)
	}
	if b.pid >= 0 {
		x.SetProducer(b.pid, b.pepoch, b.seq)
	}
	if b.txn {
		x.SetAttributes(record.AttrTransactional)
	}
	for _, r := range b.recs {
		var key, val []byte
		if r.keyed {
			key = []byte(r.key)
		}
		if !r.null {
			val = []byte(r.val)
		}
		x.Add(r.ts, key, val, nil)
	}
	codec := record.None
	if s.chance(5) {
		codec = s.codec
		s.tally.done["batch with "+codec.String()]++
	}
	out, err := x.Finish(codec)
	s.ok(err)
	return slices.Clone(out)
}

// stored gives a batch as a leader has stored it.
func (s *sim) stored(b *mbatch) []byte {
	out := s.encode(b)
	record.SetBaseOffset(out, b.base)
	record.SetLeaderEpoch(out, b.epoch)
	return out
}

// encodeRetry gives a batch that only its sequence tells.
func (s *sim) encodeRetry(b *mbatch) []byte {
	x := s.builder
	x.Reset()
	x.SetProducer(b.pid, b.pepoch, b.seq)
	for range b.last - b.base + 1 {
		x.Add(7, nil, nil, nil)
	}
	out, err := x.Finish(record.None)
	s.ok(err)
	return out
}

// encoded gives several batches as one append.
func (s *sim) encoded(list []*mbatch, one func(*mbatch) []byte) (out []byte) {
	for _, b := range list {
		out = append(out, one(b)...)
	}
	return out
}

// lead appends batches as a leader does, or gives the error.
func (s *sim) lead(list ...*mbatch) error {
	data, now := s.encoded(list, s.encode), s.now()
	segs := s.l.Segments()
	a, err := s.l.Append(data, s.epoch, now)
	if err != nil {
		return err
	}
	s.is(!a.Duplicate && a.First == list[0].base && a.Last == list[len(list)-1].last && a.Batches == len(list), "appended as %+v", a)
	if s.cfg.LogAppendTime {
		s.eq(now, a.LogAppendTime)
		for _, b := range list {
			b.stampTime(now)
		}
	}
	s.add(list, segs)
	return nil
}

func (b *mbatch) stampTime(now int64) {
	b.maxTs = now
	for i := range b.recs {
		b.recs[i].ts = now
	}
}

func (s *sim) add(list []*mbatch, segs int) {
	for _, b := range list {
		s.h.add(b)
	}
	if n := s.l.Segments(); n > segs {
		s.tally.done["segment rolled"] += n - segs
	}
	if s.cfg.WriteCaching {
		s.eq(s.l.LogEnd(), s.l.StableEnd())
	}
}

// follow appends batches as a replica does.
func (s *sim) follow(compacted bool, list ...*mbatch) error {
	data := s.encoded(list, s.stored)
	segs := s.l.Segments()
	_, err := s.l.AppendReplica(data, compacted, s.now())
	if err != nil {
		return err
	}
	s.add(list, segs)
	return nil
}

// some draws one to n batches that follow each other from the log end.
func (s *sim) some(n int) (list []*mbatch) {
	at := s.h.end()
	for range 1 + s.n(n) {
		b := s.draw(at)
		list = append(list, b)
		at = b.last + 1
	}
	return list
}

func (s *sim) plain() { s.ok(s.lead(s.some(4)...)) }

func (s *sim) replica() { s.ok(s.follow(false, s.some(3)...)) }

// next makes a batch the next one of a producer.
func (s *sim) next(b *mbatch, pid model.ProducerID) {
	f := s.h.derive()
	_, inTxn := f.open[pid]
	b.pid, b.pepoch, b.seq = pid, f.epoch[pid], f.nextSeq(pid)
	if _, known := f.epoch[pid]; !known || s.h.isMurky(pid) || !inTxn && s.chance(6) {
		b.pepoch, b.seq = s.h.used[pid]+1, 0
	}
	b.txn = inTxn || s.chance(2)
}

func (s *sim) produce() {
	b := s.draw(s.h.end())
	s.next(b, model.ProducerID(s.n(producers)))
	if s.chance(3) {
		s.ok(s.follow(false, b))
	} else {
		s.ok(s.lead(b))
	}
	s.done("batch of a producer")
	if b.txn {
		s.done("batch in a transaction")
	}
}

// misuse sends what no producer may.
func (s *sim) misuse() {
	f, pid := s.h.derive(), model.ProducerID(s.n(producers))
	epoch, known := f.epoch[pid]
	if s.h.isMurky(pid) || !known {
		return
	}
	send := func(pepoch model.ProducerEpoch, seq int32, txn bool, code model.Code) {
		b := s.draw(s.h.end())
		b.pid, b.pepoch, b.seq, b.txn = pid, pepoch, seq, txn
		_, err := s.l.Append(s.encode(b), s.epoch, s.now())
		s.refused(err, code)
	}
	if epoch > 0 {
		send(epoch-1, 0, true, model.Fenced)
	}
	send(epoch, f.nextSeq(pid)+1, true, model.OutOfOrderSequence)
	send(epoch+1, 1, true, model.OutOfOrderSequence)
	if _, open := f.open[pid]; open {
		send(epoch, f.nextSeq(pid), false, model.InvalidTransactionState)
	}
	s.eq(s.h.end(), s.l.LogEnd())
}

func (s *sim) endTxn() {
	f := s.h.derive()
	known := slices.DeleteFunc(slices.Sorted(maps.Keys(f.epoch)), s.h.isMurky)
	open := slices.Sorted(maps.Keys(f.open))
	if len(open) > 0 && !s.chance(5) {
		known = open
	}
	if len(known) == 0 {
		return
	}
	pid := known[s.n(len(known))]
	typ := record.ControlType(s.n(2))
	b := &mbatch{base: s.h.end(), last: s.h.end(), epoch: s.epoch, pid: pid, pepoch: f.epoch[pid], seq: -1, txn: true, marker: &typ, maxTs: s.now(), horizon: -1}
	if s.chance(3) {
		b.pepoch++
	}
	if s.chance(4) {
		s.ok(s.follow(false, b))
	} else {
		s.ok(s.lead(b))
	}
	s.done([]string{"transaction aborted", "transaction committed"}[typ])
}

// gaps appends as a replica of a compacted leader: with gaps before, between and inside
// batches, some without records.
func (s *sim) gaps() {
	var list []*mbatch
	var data []byte
	at := s.h.end()
	far := s.chance(12)
	if far {
		s.syncNow()
		at += farGap
	}
	for range 1 + s.n(3) {
		at += model.Offset(s.n(6))
		b := s.draw(at)
		b.far = far && len(list) == 0
		data = append(data, s.thin(b)...)
		list = append(list, b)
		at = b.last + 1
	}
	segs := s.l.Segments()
	_, err := s.l.AppendReplica(data, true, s.now())
	s.ok(err)
	s.add(list, segs)
	if s.done("append with gaps"); far {
		s.done("append behind a far gap")
	}
}

// thin leaves some of a batch's records out.
func (s *sim) thin(b *mbatch) []byte {
	x, _, err := record.ParseBatch(s.stored(b))
	s.ok(err)
	s.ok(x.Records(s.inflate, &s.it))
	s.rewrite.Begin(&x.Header)
	var kept []mrec
	for i := 0; s.it.Next(); i++ {
		if !s.chance(3) {
			s.rewrite.Keep(&s.it)
			kept = append(kept, b.recs[i])
		}
	}
	s.ok(s.it.Err())
	b.recs = kept
	out, err := s.rewrite.Finish()
	s.ok(err)
	return slices.Clone(out)
}

// bad hands in what must not be appended.
func (s *sim) bad() {
	b := s.draw(s.h.end())
	end := s.h.end()
	_, err := s.l.Append(s.encode(b)[:40+s.n(20)], s.epoch, s.now())
	s.refused(err, model.CorruptBatch)
	big := s.draw(end)
	big.recs[0].val, big.recs[0].null = strings.Repeat("big", maxBatch/3), false
	data := s.encoded([]*mbatch{b, big}, s.encode)
	if len(data) > maxBatch {
		_, err = s.l.Append(data, s.epoch, s.now())
		if len(data) > 2*maxBatch || err != nil { // compressed it may pass
			s.refused(err, model.RecordTooLarge)
		} else {
			s.h.add(b)
			big.base, big.last = big.base+(b.last-b.base+1), big.last+(b.last-b.base+1)
			for i := range big.recs {
				big.recs[i].off += b.last - b.base + 1
			}
			s.h.add(big)
			return
		}
	}
	if latest := s.l.LogEndEpoch(); latest > 0 {
		_, err = s.l.Append(s.encode(b), latest-1, s.now())
		s.refused(err, model.Fenced)
		b.epoch = latest - 1
		_, err = s.l.AppendReplica(s.stored(b), true, s.now())
		s.refused(err, model.Fenced)
		b.epoch = s.epoch
	}
	whole := s.stored(b)
	whole[len(whole)-1-s.n(len(whole)-17)] ^= 1 << s.n(8)
	_, err = s.l.AppendReplica(whole, false, s.now())
	s.is(err != nil, "a replica takes a flipped bit")
	if end > 0 {
		b.base--
		b.last--
		_, err = s.l.AppendReplica(s.stored(b), true, s.now())
		s.refused(err, model.OffsetMismatch)
		b.base, b.last = b.base+1, b.last+1
	}
	if !s.l.Compacted() {
		b.base, b.last = b.base+1, b.last+1
		_, err = s.l.AppendReplica(s.stored(b), false, s.now())
		s.refused(err, model.OffsetMismatch)
	}
	s.eq(end, s.l.LogEnd())
}

// roll makes the next append begin a segment.
func (s *sim) roll() {
	cfg := s.cfg
	cfg.SegmentBytes = 1
	s.l.SetConfig(cfg)
	s.ok(s.lead(s.some(2)...))
	s.l.SetConfig(s.cfg)
}

// setConfig changes what the topic asks for.
func (s *sim) setConfig() {
	cfg := s.cfg
	cfg.SegmentBytes = int64(200 + s.n(2500))
	cfg.SegmentIndexBytes = 24 + s.n(400)
	cfg.SegmentMs = []int64{0, 100, 60_000}[s.n(3)]
	cfg.SegmentJitterMs = int64(s.n(2) * 50)
	cfg.LogAppendTime = s.chance(4)
	cfg.FileDeleteDelayMs = []int64{1, 700, 60_000}[s.n(3)]
	if s.chance(3) {
		cfg.WriteCaching = !cfg.WriteCaching
	}
	s.config(cfg)
}

func (s *sim) config(cfg log.Config) {
	s.durable = s.bound()
	if cfg.WriteCaching || s.cfg.WriteCaching {
		s.settled = false
	}
	s.cfg = cfg
	s.l.SetConfig(cfg)
}
