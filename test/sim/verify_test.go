package sim

import (
	"math"
	"slices"

	"tidewire/internal/model"
	"tidewire/storage/log"
	"tidewire/storage/record"
)

const allOffsets = model.Offset(math.MaxInt64)

// verify compares all that the log says with the history.
func (s *sim) verify() {
	s.done("whole comparison")
	s.eq(s.h.end(), s.l.LogEnd(), "log end")
	s.eq(s.h.start, s.l.LogStart(), "log start")
	hw, stable := s.l.HighWatermark(), s.l.StableEnd()
	s.is(s.h.start <= hw && hw <= s.h.end() && stable <= s.h.end(), "start %d, high watermark %d, stable %d, end %d", s.h.start, hw, stable, s.h.end())
	s.readFrom(s.h.start, allOffsets, 300+s.n(3000), nil)
	s.verifyEpochs()
	s.verifyTxns()
	s.verifyProducers()
	s.seek()
}

// readFrom reads records from an offset to a limit, comparing each batch and record with
// the history, and gives them to fn.
func (s *sim) readFrom(from, limit model.Offset, maxBytes int, fn func(*mbatch, *mrec)) {
	i := s.h.from(from) // the batch that is due
	if from >= limit {
		i = len(s.h.batches)
	}
	for at := from; ; {
		data, err := s.l.Read(s.buf[:0], at, limit, maxBytes)
		s.ok(err)
		s.buf = data
		if len(data) == 0 {
			break
		}
		n := 0
		for rest := data; len(rest) > 0; n++ {
			b, more, err := record.ParseBatch(rest)
			s.ok(err)
			s.ok(b.VerifyCRC())
			s.is(b.Header.BaseOffset < limit && b.Header.LastOffset() >= at, "read of %d below %d gives the batch at %d", at, limit, b.Header.BaseOffset)
			for ; i < len(s.h.batches) && s.h.batches[i].base < b.Header.BaseOffset; i++ {
				s.allGone(s.h.batches[i], from)
			}
			s.is(i < len(s.h.batches), "the batch at %d was never appended", b.Header.BaseOffset)
			s.compare(&b, s.h.batches[i], from, fn)
			at, rest = b.Header.NextOffset(), more
			i++
		}
		s.is(n == 1 || len(data) <= maxBytes, "%d bytes in %d batches for %d", len(data), n, maxBytes)
		s.tally.done["batch read"] += n
	}
	for ; i < len(s.h.batches) && s.h.batches[i].base < limit; i++ {
		s.allGone(s.h.batches[i], from)
	}
}

// allGone is for a batch that the log does not have.
func (s *sim) allGone(b *mbatch, from model.Offset) {
	for _, r := range b.recs {
		s.is(r.gone || r.off < from, "the record at %d is missing", r.off)
	}
	s.is(b.marker == nil || s.h.passes > 0, "the marker at %d is missing", b.base)
	s.is(s.h.passes > 0 || len(b.recs) < int(b.last-b.base)+1, "the batch at %d is missing", b.base)
}

// compare compares one batch with what it should be.
func (s *sim) compare(b *record.Batch, m *mbatch, from model.Offset, fn func(*mbatch, *mrec)) {
	h := &b.Header
	s.is(h.BaseOffset == m.base && h.LastOffset() == m.last && h.LeaderEpoch == m.epoch && h.ProducerID == m.pid && h.ProducerEpoch == m.pepoch &&
		h.BaseSequence == m.seq && h.Attributes.Has(record.AttrTransactional) == m.txn && h.Attributes.Has(record.AttrControl) == (m.marker != nil),
		"the batch at %d to %d is not as it was appended: %+v, %+v", m.base, m.last, *h, *m)
	horizon := int64(-1)
	if h.Attributes.Has(record.AttrDeleteHorizon) {
		horizon = h.BaseTimestamp
	}
	s.is(horizon == m.horizon, "the delete horizon of the batch at %d is %d and was %d", m.base, horizon, m.horizon)
	if m.marker != nil {
		mk, ok, err := b.Marker()
		s.ok(err)
		s.is(!ok && s.h.passes > 0 || ok && mk.Type == *m.marker, "the marker at %d", m.base)
		return
	}
	s.ok(b.Records(s.inflate, &s.it))
	j := 0
	for s.it.Next() {
		r := s.it.Record()
		for j < len(m.recs) && (m.recs[j].gone || m.recs[j].off < r.Offset) {
			s.is(m.recs[j].gone || m.recs[j].off < from, "the record at %d is missing", m.recs[j].off)
			j++
		}
		s.is(j < len(m.recs), "the record at %d was never appended, or was compacted away", r.Offset)
		w := &m.recs[j]
		s.is(w.off == r.Offset && w.ts == r.Timestamp && w.keyed == (r.Key != nil) && w.key == string(r.Key) && w.null == (r.Value == nil) && w.val == string(r.Value),
			"the record at %d is %d %q %q, and was %+v", r.Offset, r.Timestamp, r.Key, r.Value, *w)
		if j++; fn != nil && r.Offset >= from {
			fn(m, w)
		}
	}
	s.ok(s.it.Err())
	for ; j < len(m.recs); j++ {
		s.is(m.recs[j].gone || m.recs[j].off < from, "the record at %d is missing", m.recs[j].off)
	}
}

// verifyEpochs asks for the end of each leader epoch.
func (s *sim) verifyEpochs() {
	list := s.h.derive().epochs
	if n := len(s.h.batches); n == 0 || s.h.batches[n-1].last < s.h.start {
		return
	}
	newest := map[model.LeaderEpoch]model.Offset{} // of each epoch that can be read
	for _, b := range s.h.batches[s.h.from(s.h.start):] {
		newest[b.epoch] = b.last + 1
	}
	for i, e := range list {
		end := s.h.end()
		if i+1 < len(list) {
			end = list[i+1].start
		}
		if newest[e.epoch] == 0 {
			continue
		}
		// Within a gap behind its last batch an epoch may end earlier, where another one began
		// that has nothing left.
		got, at := s.l.EpochEnd(e.epoch)
		s.is(got == e.epoch && at <= end && at >= newest[e.epoch], "the epoch %d ended at %d; the log says %d, %d", e.epoch, end, got, at)
		s.done("epoch end")
	}
	s.eq(list[len(list)-1].epoch, s.l.LogEndEpoch(), "the latest epoch")
}

// verifyTxns looks at the last stable offset and the aborted transactions, and reads as a
// consumer of committed records does.
func (s *sim) verifyTxns() {
	f := s.h.derive()
	end := s.h.end()
	s.eq(s.h.lastStable(end), s.l.LastStable(end), "last stable offset below the end; open: %v", f.open)
	s.done("last stable offset")
	from := s.offset(s.h.start, end)
	to := s.offset(from, end)
	got, err := s.l.AbortedTransactions(from, to)
	s.ok(err)
	var want []log.AbortedTransaction
	for _, a := range f.aborted {
		if a.LastOffset >= from && a.FirstOffset < to {
			want = append(want, a)
		}
	}
	if s.h.passes == 0 {
		s.eq(want, got, "aborted transactions from %d to %d of %v", from, to, f.aborted)
		s.done("aborted transactions")
	}
	// What is rebuilt of a compacted log may begin later, where the first batches are gone, or
	// earlier, where the marker of the producer's transaction before is: nothing is left of that.
	s.is(!slices.ContainsFunc(got, func(a log.AbortedTransaction) bool {
		return !slices.ContainsFunc(s.h.batches, func(b *mbatch) bool {
			return b.pid == a.ProducerID && b.base == a.LastOffset && b.marker != nil && *b.marker == record.ControlAbort
		})
	}), "aborted transactions from %d to %d: %v; wanted %v; transactions %v", from, to, got, want, f.txns)
	s.readFrom(from, to, 2000, func(b *mbatch, r *mrec) {
		if r.off >= to {
			return
		}
		dropped := b.txn && slices.ContainsFunc(got, func(a log.AbortedTransaction) bool {
			return a.ProducerID == b.pid && a.FirstOffset <= b.base && b.last < a.LastOffset
		})
		s.is(dropped == f.abortedBatch(b), "a reader of committed records takes the record at %d for aborted: %v", r.off, dropped)
		s.tally.done["committed or aborted record"]++
	})
}

// verifyProducers sends batches again: each of the last five of a producer is answered with
// where it is.
func (s *sim) verifyProducers() {
	f := s.h.derive()
	for pid := range model.ProducerID(producers) {
		w := f.window[pid]
		if s.h.isMurky(pid) {
			continue
		}
		for i, b := range w {
			if s.noRoom && s.h.passes > 0 && b.empty() {
				// Compaction went by the producer's newer batches, which were cut off, and the
				// snapshot that knew of this one may never have been written.
				continue
			}
			a, err := s.l.Append(s.encodeRetry(b), s.epoch, s.now())
			if i < len(w)-1 && s.h.passes > 0 && model.HasCode(err, model.OutOfOrderSequence) {
				continue // compaction may have dropped all but the last
			}
			s.ok(err, "producer %d, sequence %d", pid, b.seq)
			s.is(a.Duplicate && a.First == b.base && a.Last == b.last, "the retry of the batch at %d of producer %d: %+v", b.base, pid, a)
			if s.h.passes == 0 {
				s.eq(b.maxTs, a.MaxTimestamp, "of the retry of the batch at %d", b.base)
			}
			s.done("retry recognised")
		}
		if _, known := f.epoch[pid]; !known {
			_, err := s.l.Append(s.encodeRetry(&mbatch{pid: pid, pepoch: s.h.used[pid], seq: 7}), s.epoch, s.now())
			s.refused(err, model.UnknownProducer)
		}
	}
	s.eq(s.h.end(), s.l.LogEnd(), "retries append nothing")
}

// empty reports whether compaction has dropped all records of a batch.
func (b *mbatch) empty() bool {
	return !slices.ContainsFunc(b.recs, func(r mrec) bool { return !r.gone })
}

// seek looks for the first record of at least a time.
func (s *sim) seek() {
	ts := s.now() - int64(s.n(8000)) + 300
	if vis := s.h.from(s.h.start); vis < len(s.h.batches) && s.chance(2) {
		ts = s.h.batches[vis+s.n(len(s.h.batches)-vis)].maxTs + int64(s.n(3)) - 1
	}
	limit := s.offset(s.h.start, s.h.end())
	if s.chance(2) {
		limit = allOffsets
	}
	off, got, found, err := s.l.OffsetForTimestamp(ts, limit)
	s.ok(err)
	for _, b := range s.h.batches[s.h.from(s.h.start):] {
		for _, r := range b.recs {
			if !r.gone && r.off >= s.h.start && r.off < limit && r.ts >= ts {
				s.is(found && off == r.off && got == r.ts, "time %d below %d is at %d (%d), not %d (%d, %v)", ts, limit, r.off, r.ts, off, got, found)
				s.done("seek by time: found")
				return
			}
		}
	}
	s.is(!found, "time %d below %d is nowhere, not at %d (%d)", ts, limit, off, got)
	s.done("seek by time: nothing")
}

// offset draws one of from to to.
func (s *sim) offset(from, to model.Offset) model.Offset {
	if to <= from {
		return from
	}
	return from + model.Offset(s.rng.Int64N(int64(to-from)+1))
}
