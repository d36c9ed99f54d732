package log

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"

	"tidewire/internal/model"
	"tidewire/storage/record"
)

// keptBatches is how many of a producer's newest batches are known, so that a retry of
// one of them is found: as many as a client may have in flight (KIP-98).
const keptBatches = 5

// producerBatch is one batch of a producer.
type producerBatch struct {
	lastOffset model.Offset
	ts         int64 // largest timestamp
	lastSeq    int32 // -1 when the batch has no sequence
	delta      int32 // last − first, of offsets and sequences
}

func (b producerBatch) firstOffset() model.Offset { return b.lastOffset - model.Offset(b.delta) }

// firstSeq goes back from the last sequence; after 2^31−1 comes 0.
func (b producerBatch) firstSeq() int32 {
	if b.lastSeq < b.delta {
		return math.MaxInt32 - (b.delta - b.lastSeq) + 1
	}
	return b.lastSeq - b.delta
}

// lastSequence is the sequence of a batch's last record, or -1.
func lastSequence(h *record.BatchHeader) int32 {
	switch {
	case h.BaseSequence < 0:
		return -1
	case h.BaseSequence > math.MaxInt32-h.LastOffsetDelta:
		return h.LastOffsetDelta - (math.MaxInt32 - h.BaseSequence) - 1
	}
	return h.BaseSequence + h.LastOffsetDelta
}

func inSequence(last, next int32) bool {
	return last == math.MaxInt32 && next == 0 || last < math.MaxInt32 && next == last+1
}

// producer is what the log knows of one producer id.
type producer struct {
	epoch    model.ProducerEpoch
	n        int8         // batches known
	coord    int32        // epoch of the coordinator that wrote the last marker, or -1
	lastTs   int64        // of its last batch or marker
	seen     int64        // when this process last heard of it, ms; not persisted
	txnFirst model.Offset // first offset of its open transaction, or -1
	batches  [keptBatches]producerBatch
}

func (p *producer) last() *producerBatch {
	if p.n == 0 {
		return nil
	}
	return &p.batches[p.n-1]
}

func (p *producer) setEpoch(e model.ProducerEpoch) {
	if p.epoch != e {
		p.epoch, p.n = e, 0
	}
}

func (p *producer) push(b producerBatch) {
	if p.n == keptBatches {
		copy(p.batches[:], p.batches[1:])
		p.n--
	}
	p.batches[p.n] = b
	p.n++
}

// txnSpan is a transaction that keeps the last stable offset back.
type txnSpan struct {
	id    model.ProducerID
	first model.Offset
	last  model.Offset // of its marker; -1 while it is open
}

// producers is the state of all producers of one log (KIP-98). It follows from the
// batches below an offset, so every replica and every replay comes to the same. The
// log's mutex guards it, except view.
type producers struct {
	byID map[model.ProducerID]*producer
	open []txnSpan // by first offset; replaced, never changed
	done []txnSpan // ended, by a marker that may be above the high watermark; likewise
	undo []producerUndo
	view atomic.Pointer[[]txnSpan] // open and done, for readers; nil when there is none
}

// producerUndo is what a batch changed, to be taken back when its append fails.
type producerUndo struct {
	id         model.ProducerID
	had        bool
	was        producer
	open, done []txnSpan
}

func (s *producers) empty() bool { return len(s.byID) == 0 && len(s.open) == 0 && len(s.done) == 0 }

// checkLocked decides about a leader's append before it is written. dup is the answer when
// every batch is a retry of one that is known; nil means that all are to be appended.
func (l *Log) checkProducersLocked(batches []byte, a Appended, now int64) (dup *Appended, err error) {
	s := &l.prods
	defer s.rollback()
	fresh := 0
	for rest := batches; len(rest) > 0; {
		b, more, err := record.ParseBatch(rest)
		if err != nil {
			return nil, frameError(err)
		}
		rest = more
		if b.Header.ProducerID < 0 {
			fresh++
			continue
		}
		found, marker, err := s.check(&b)
		switch {
		case err != nil:
			return nil, err
		case found == nil:
			fresh++
			if len(rest) > 0 { // the next batch is judged by what this one will change
				s.apply(&b.Header, marker, now)
			}
			continue
		case dup == nil:
			dup = &Appended{First: found.firstOffset(), MaxTimestamp: found.ts, LogAppendTime: -1, Duplicate: true}
		}
		dup.Last = found.lastOffset
		dup.Batches++
		dup.MaxTimestamp = max(dup.MaxTimestamp, found.ts)
		if a.LogAppendTime >= 0 {
			dup.LogAppendTime = found.ts
		}
	}
	if dup != nil && fresh > 0 {
		return nil, model.Errorf(model.OutOfOrderSequence, "%d of %d batches were appended before", dup.Batches, dup.Batches+fresh)
	}
	return dup, nil
}

// check judges one batch by epoch, sequence and transaction. A batch without a sequence
// comes from a coordinator and is judged by its epoch alone. found is the batch that this
// one repeats.
func (s *producers) check(b *record.Batch) (found *producerBatch, _ *record.Marker, err error) {
	h := &b.Header
	p := s.byID[h.ProducerID]
	if p != nil && h.ProducerEpoch < p.epoch {
		return nil, nil, model.Errorf(model.Fenced, "the epoch %d of producer %d is older than %d", h.ProducerEpoch, h.ProducerID, p.epoch)
	}
	if h.Attributes.Has(record.AttrControl) {
		m, ok, err := b.Marker()
		if err != nil || !ok {
			return nil, nil, firstErr(err, model.Errorf(model.CorruptBatch, "a control record of producer %d is no marker", h.ProducerID))
		}
		if p != nil && m.CoordinatorEpoch < p.coord {
			return nil, nil, model.Errorf(model.Fenced, "the coordinator epoch %d is older than %d", m.CoordinatorEpoch, p.coord)
		}
		return nil, &m, nil
	}
	if h.BaseSequence >= 0 {
		if found, err := p.checkSequence(h); found != nil || err != nil {
			return found, nil, err
		}
	}
	if p != nil && p.txnFirst >= 0 && !h.Attributes.Has(record.AttrTransactional) {
		return nil, nil, model.Errorf(model.InvalidTransactionState, "producer %d has a transaction open since offset %d", h.ProducerID, p.txnFirst)
	}
	return nil, nil, nil
}

// checkSequence wants the sequence behind the last one, or 0 in a new epoch. Of an unknown
// producer only a beginning is taken: what came before may have been forgotten, and then
// this may be a retry (KIP-360: the client gets a new epoch and goes on).
func (p *producer) checkSequence(h *record.BatchHeader) (*producerBatch, error) {
	if p == nil {
		if h.BaseSequence != 0 {
			return nil, model.Errorf(model.UnknownProducer, "producer %d is not known here, and its sequence is %d", h.ProducerID, h.BaseSequence)
		}
		return nil, nil
	}
	last := int32(-1)
	if p.epoch == h.ProducerEpoch {
		end := lastSequence(h)
		for i := range p.batches[:p.n] {
			if b := &p.batches[i]; b.lastSeq == end && b.lastSeq >= 0 && b.firstSeq() == h.BaseSequence {
				return b, nil
			}
		}
		if b := p.last(); b != nil {
			last = b.lastSeq
		}
	}
	if !inSequence(last, h.BaseSequence) {
		return nil, model.Errorf(model.OutOfOrderSequence, "the sequence %d of producer %d does not follow %d", h.BaseSequence, h.ProducerID, last)
	}
	return nil, nil
}

// apply enters a stored batch, whatever it is: it was checked when the leader appended
// it. It gives the transaction that the batch aborts, if any.
func (s *producers) apply(h *record.BatchHeader, m *record.Marker, now int64) (AbortedTransaction, bool) {
	control := h.Attributes.Has(record.AttrControl)
	if control && m == nil {
		return AbortedTransaction{}, false
	}
	p := s.touch(h.ProducerID)
	p.seen = now
	p.setEpoch(h.ProducerEpoch)
	if !control {
		p.push(producerBatch{lastOffset: h.LastOffset(), ts: h.MaxTimestamp, lastSeq: lastSequence(h), delta: h.LastOffsetDelta})
		p.lastTs = h.MaxTimestamp
		if p.txnFirst < 0 && h.Attributes.Has(record.AttrTransactional) {
			p.txnFirst = h.BaseOffset
			s.open = append(slices.Clone(s.open), txnSpan{h.ProducerID, h.BaseOffset, -1})
		}
		return AbortedTransaction{}, false
	}
	p.coord, p.lastTs = m.CoordinatorEpoch, m.Timestamp
	if p.txnFirst < 0 {
		return AbortedTransaction{}, false
	}
	first := p.txnFirst
	p.txnFirst = -1
	s.open = slices.DeleteFunc(slices.Clone(s.open), func(t txnSpan) bool { return t.id == h.ProducerID })
	s.done = append(slices.Clone(s.done), txnSpan{h.ProducerID, first, h.LastOffset()})
	stable := h.LastOffset() + 1
	if len(s.open) > 0 {
		stable = s.open[0].first
	}
	return AbortedTransaction{h.ProducerID, first, h.LastOffset(), stable}, m.Type == record.ControlAbort
}

// touch gives the producer's state, making it when there is none, and notes how it was.
func (s *producers) touch(id model.ProducerID) *producer {
	p, had := s.byID[id]
	u := producerUndo{id: id, had: had, open: s.open, done: s.done}
	if had {
		u.was = *p
	} else {
		p = &producer{epoch: -1, coord: -1, lastTs: noTimestamp, txnFirst: -1}
		if s.byID == nil {
			s.byID = map[model.ProducerID]*producer{}
		}
		s.byID[id] = p
	}
	s.undo = append(s.undo, u)
	return p
}

// rollback takes back what was applied since the last commit.
func (s *producers) rollback() {
	for _, u := range slices.Backward(s.undo) {
		if u.had {
			*s.byID[u.id] = u.was
		} else {
			delete(s.byID, u.id)
		}
		s.open, s.done = u.open, u.done
	}
	s.undo = s.undo[:0]
}

// commit keeps what was applied and shows it to readers. Ended transactions below the
// high watermark are forgotten.
func (s *producers) commit(hw model.Offset) {
	if len(s.undo) == 0 {
		return
	}
	s.undo = s.undo[:0]
	s.publish(hw)
}

func (s *producers) publish(hw model.Offset) {
	s.done = slices.DeleteFunc(slices.Clone(s.done), func(t txnSpan) bool { return t.last < hw })
	if len(s.open)+len(s.done) == 0 {
		if s.view.Load() != nil {
			s.view.Store(nil)
		}
		return
	}
	v := slices.Concat(s.open, s.done)
	s.view.Store(&v)
}

// expire forgets producers that have been idle, unless a transaction is open.
func (s *producers) expire(now, after int64) {
	for id, p := range s.byID {
		if p.txnFirst < 0 && now-max(p.lastTs, p.seen) >= after {
			delete(s.byID, id)
		}
	}
}

func sortSpans(t []txnSpan) {
	slices.SortFunc(t, func(a, b txnSpan) int { return cmp.Compare(a.first, b.first) })
}

// LastStable is the end of what read_committed may see below a high watermark: the first
// offset of the oldest transaction that is open, or whose marker is not below hw (KIP-98).
func (l *Log) LastStable(hw model.Offset) model.Offset {
	lso := hw
	if v := l.prods.view.Load(); v != nil {
		for _, t := range *v {
			if t.last < 0 || t.last >= hw {
				lso = min(lso, t.first)
			}
		}
	}
	return max(lso, min(l.LogStart(), hw))
}

// ExpireProducers forgets the producers of which nothing was heard for
// producer.id.expiration.ms, unless a transaction of theirs is open (KIP-854). The store
// calls it by itself every ten minutes. now is in milliseconds.
func (l *Log) ExpireProducers(now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.cutting {
		l.prods.expire(now, l.store.o.ProducerIDExpiration.Milliseconds())
	}
}
