package producer

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

// Batch is one batch of a producer.
type Batch struct {
	LastOffset   model.Offset
	LastSequence int32 // of its last record; -1 when the batch has no sequence
	ts           int64 // largest timestamp, ms
	delta        int32 // last − first, of offsets and sequences
}

// FirstOffset is the offset of its first record.
func (b Batch) FirstOffset() model.Offset { return b.LastOffset - model.Offset(b.delta) }

// FirstSequence goes back from the last sequence; after 2^31−1 comes 0.
func (b Batch) FirstSequence() int32 {
	if b.LastSequence < b.delta {
		return math.MaxInt32 - (b.delta - b.LastSequence) + 1
	}
	return b.LastSequence - b.delta
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

// Producer is what a log knows of one producer id.
type Producer struct {
	Epoch    model.ProducerEpoch
	TxnFirst model.Offset // first offset of its open transaction, or -1
	n        int8         // batches known
	coord    int32        // epoch of the coordinator that wrote the last marker, or -1
	lastTs   int64        // of its last batch or marker, ms
	seen     int64        // when this process last heard of it, ms; not persisted
	batches  [keptBatches]Batch
}

// Batches are the newest of its batches in its epoch, the oldest of them first; they belong
// to the producer.
func (p *Producer) Batches() []Batch { return p.batches[:p.n] }

// Last is the newest of its batches, or nil.
func (p *Producer) Last() *Batch {
	if p.n == 0 {
		return nil
	}
	return &p.batches[p.n-1]
}

func (p *Producer) setEpoch(e model.ProducerEpoch) {
	if p.Epoch != e {
		p.Epoch, p.n = e, 0
	}
}

func (p *Producer) push(b Batch) {
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

// State is the state of all producers of one log (KIP-98). It follows from the batches
// below an offset, so every replica and every replay comes to the same. Its owner's mutex
// guards it, except LastStable. The zero State knows nothing; it must not be copied.
type State struct {
	byID map[model.ProducerID]*Producer
	open []txnSpan // by first offset; replaced, never changed
	done []txnSpan // ended, by a marker that may be above the high watermark; likewise
	undo []undo
	view atomic.Pointer[[]txnSpan] // open and done, for readers; nil when there is none
}

// Len is the number of producers known.
func (s *State) Len() int { return len(s.byID) }

// Get gives what is known of a producer, or nil.
func (s *State) Get(id model.ProducerID) *Producer { return s.byID[id] }

// undo is what a batch changed, to be taken back when its append fails.
type undo struct {
	id         model.ProducerID
	had        bool
	was        Producer
	open, done []txnSpan
}

// Empty reports whether nothing is known of any producer.
func (s *State) Empty() bool { return len(s.byID) == 0 && len(s.open) == 0 && len(s.done) == 0 }

// Retry is where the batches of an append are that were appended before.
type Retry struct {
	First, Last   model.Offset // of the first and the last record
	Batches       int
	MaxTimestamp  int64 // largest timestamp of the stored batches, ms
	LastTimestamp int64 // that of the last of them
}

// CheckAppend decides about a leader's append, of whole batches with their offsets, before
// it is written; the state is afterwards as it was. retry is the answer when every batch is
// a retry of one that is known; nil means that all are to be appended. Batches without a
// producer id are always to be appended, and one without a sequence is judged by its epoch
// alone. now is in milliseconds.
//
// Errors (KIP-98, KIP-360): Fenced, UnknownProducer, OutOfOrderSequence (also when a part
// of the batches is new), InvalidTransactionState, CorruptBatch; and those of
// record.ParseBatch.
func (s *State) CheckAppend(batches []byte, now int64) (retry *Retry, err error) {
	defer s.Rollback()
	fresh := 0
	for rest := batches; len(rest) > 0; {
		b, more, err := record.ParseBatch(rest)
		if err != nil {
			return nil, err
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
		case retry == nil:
			retry = &Retry{First: found.FirstOffset(), MaxTimestamp: found.ts}
		}
		retry.Last, retry.LastTimestamp = found.LastOffset, found.ts
		retry.Batches++
		retry.MaxTimestamp = max(retry.MaxTimestamp, found.ts)
	}
	if retry != nil && fresh > 0 {
		return nil, model.Errorf(model.OutOfOrderSequence, "%d of %d batches were appended before", retry.Batches, retry.Batches+fresh)
	}
	return retry, nil
}

// check judges one batch by epoch, sequence and transaction. A batch without a sequence
// comes from a coordinator and is judged by its epoch alone. found is the batch that this
// one repeats.
func (s *State) check(b *record.Batch) (found *Batch, _ *record.Marker, err error) {
	h := &b.Header
	p := s.byID[h.ProducerID]
	if p != nil && h.ProducerEpoch < p.Epoch {
		return nil, nil, model.Errorf(model.Fenced, "the epoch %d of producer %d is older than %d", h.ProducerEpoch, h.ProducerID, p.Epoch)
	}
	if h.Attributes.Has(record.AttrControl) {
		m, ok, err := b.Marker()
		if err != nil || !ok {
			return nil, nil, cmp.Or(err, error(model.Errorf(model.CorruptBatch, "a control record of producer %d is no marker", h.ProducerID)))
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
	if p != nil && p.TxnFirst >= 0 && !h.Attributes.Has(record.AttrTransactional) {
		return nil, nil, model.Errorf(model.InvalidTransactionState, "producer %d has a transaction open since offset %d", h.ProducerID, p.TxnFirst)
	}
	return nil, nil, nil
}

// checkSequence wants the sequence behind the last one, or 0 in a new epoch. Of an unknown
// producer only a beginning is taken: what came before may have been forgotten, and then
// this may be a retry (KIP-360: the client gets a new epoch and goes on).
func (p *Producer) checkSequence(h *record.BatchHeader) (*Batch, error) {
	if p == nil {
		if h.BaseSequence != 0 {
			return nil, model.Errorf(model.UnknownProducer, "producer %d is not known here, and its sequence is %d", h.ProducerID, h.BaseSequence)
		}
		return nil, nil
	}
	last := int32(-1)
	if p.Epoch == h.ProducerEpoch {
		end := lastSequence(h)
		for i := range p.batches[:p.n] {
			if b := &p.batches[i]; b.LastSequence == end && b.LastSequence >= 0 && b.FirstSequence() == h.BaseSequence {
				return b, nil
			}
		}
		if b := p.Last(); b != nil {
			last = b.LastSequence
		}
	}
	if !inSequence(last, h.BaseSequence) {
		return nil, model.Errorf(model.OutOfOrderSequence, "the sequence %d of producer %d does not follow %d", h.BaseSequence, h.ProducerID, last)
	}
	return nil, nil
}

// Enter enters a batch of a producer, of which it was checked before that it is right, until
// the next Commit or Rollback. It gives the transaction that the batch aborts, if any. now
// is in milliseconds.
func (s *State) Enter(b *record.Batch, now int64) (AbortedTransaction, bool) {
	var m *record.Marker
	if b.Header.Attributes.Has(record.AttrControl) {
		if x, ok, err := b.Marker(); ok && err == nil {
			m = &x
		}
	}
	return s.apply(&b.Header, m, now)
}

// Replay enters a stored batch for good, as Enter does. Transactions that ended below hw
// are forgotten; Adopt shows the rest to readers.
func (s *State) Replay(b *record.Batch, hw model.Offset, now int64) (AbortedTransaction, bool) {
	a, aborted := s.Enter(b, now)
	s.undo = s.undo[:0]
	if n := len(s.done); n > 0 && s.done[n-1].last < hw {
		s.done = s.done[:n-1]
	}
	return a, aborted
}

// Load makes the state that of a snapshot, which it takes over. Producers count as heard of
// now: how long they were idle while the node was down counts for nothing.
func (s *State) Load(from *Snapshot, now int64) {
	s.byID = from.byID
	for id, p := range s.byID {
		p.seen = now
		if p.TxnFirst >= 0 {
			s.open = append(s.open, txnSpan{id, p.TxnFirst, -1})
		}
	}
	slices.SortFunc(s.open, func(a, b txnSpan) int { return cmp.Compare(a.first, b.first) })
}

// Adopt takes over a state that was replayed and shows it to readers.
func (s *State) Adopt(from *State, hw model.Offset) {
	s.byID, s.open, s.done = from.byID, from.open, from.done
	s.undo = s.undo[:0]
	s.publish(hw)
}

// apply enters a stored batch, whatever it is: it was checked when the leader appended
// it. It gives the transaction that the batch aborts, if any.
func (s *State) apply(h *record.BatchHeader, m *record.Marker, now int64) (AbortedTransaction, bool) {
	control := h.Attributes.Has(record.AttrControl)
	if control && m == nil {
		return AbortedTransaction{}, false
	}
	p := s.touch(h.ProducerID)
	p.seen = now
	p.setEpoch(h.ProducerEpoch)
	if !control {
		p.push(Batch{LastOffset: h.LastOffset(), LastSequence: lastSequence(h), ts: h.MaxTimestamp, delta: h.LastOffsetDelta})
		p.lastTs = h.MaxTimestamp
		// One without records is left of a transaction that has ended, and its marker may be
		// gone: compaction touches no other.
		if p.TxnFirst < 0 && h.Attributes.Has(record.AttrTransactional) && h.Count > 0 {
			p.TxnFirst = h.BaseOffset
			s.open = append(slices.Clone(s.open), txnSpan{h.ProducerID, h.BaseOffset, -1})
		}
		return AbortedTransaction{}, false
	}
	p.coord, p.lastTs = m.CoordinatorEpoch, m.Timestamp
	if p.TxnFirst < 0 {
		return AbortedTransaction{}, false
	}
	first := p.TxnFirst
	p.TxnFirst = -1
	s.open = slices.DeleteFunc(slices.Clone(s.open), func(t txnSpan) bool { return t.id == h.ProducerID })
	s.done = append(slices.Clone(s.done), txnSpan{h.ProducerID, first, h.LastOffset()})
	stable := h.LastOffset() + 1
	if len(s.open) > 0 {
		stable = s.open[0].first
	}
	return AbortedTransaction{h.ProducerID, first, h.LastOffset(), stable}, m.Type == record.ControlAbort
}

// touch gives the producer's state, making it when there is none, and notes how it was.
func (s *State) touch(id model.ProducerID) *Producer {
	p, had := s.byID[id]
	u := undo{id: id, had: had, open: s.open, done: s.done}
	if had {
		u.was = *p
	} else {
		p = &Producer{Epoch: -1, coord: -1, lastTs: -1, TxnFirst: -1}
		if s.byID == nil {
			s.byID = map[model.ProducerID]*Producer{}
		}
		s.byID[id] = p
	}
	s.undo = append(s.undo, u)
	return p
}

// Rollback takes back what was applied since the last commit.
func (s *State) Rollback() {
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

// Commit keeps what was applied and shows it to readers. Ended transactions below the
// high watermark are forgotten.
func (s *State) Commit(hw model.Offset) {
	if len(s.undo) == 0 {
		return
	}
	s.undo = s.undo[:0]
	s.publish(hw)
}

func (s *State) publish(hw model.Offset) {
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

// Expire forgets producers of which nothing was heard for after milliseconds, unless a
// transaction is open, or has ended by a marker that is not below hw: a snapshot without
// them would not tell that it holds the last stable offset back.
func (s *State) Expire(now, after int64, hw model.Offset) {
	held := map[model.ProducerID]bool{}
	for _, t := range s.done {
		if t.last >= hw {
			held[t.id] = true
		}
	}
	for id, p := range s.byID {
		if p.TxnFirst < 0 && !held[id] && now-max(p.lastTs, p.seen) >= after {
			delete(s.byID, id)
		}
	}
}

// LastStable is the end of what read_committed may see below a high watermark: the first
// offset of the oldest transaction that is open, or whose marker is not below hw (KIP-98).
// It needs no lock.
func (s *State) LastStable(hw model.Offset) model.Offset {
	lso := hw
	if v := s.view.Load(); v != nil {
		for _, t := range *v {
			if t.last < 0 || t.last >= hw {
				lso = min(lso, t.first)
			}
		}
	}
	return lso
}

// Keeper is what was the last of each producer at one time or more: compaction keeps it, as
// the state could not be told from the log without it.
type Keeper []map[model.ProducerID]Producer

// Note adds what is the last now.
func (k *Keeper) Note(s *State) {
	m := make(map[model.ProducerID]Producer, len(s.byID))
	for id, p := range s.byID {
		m[id] = *p
	}
	*k = append(*k, m)
}

// KeepsData reports whether the batch that ends at last was the producer's newest.
func (k Keeper) KeepsData(id model.ProducerID, last model.Offset) bool {
	return slices.ContainsFunc(k, func(m map[model.ProducerID]Producer) bool {
		p, ok := m[id]
		b := p.Last()
		return ok && b != nil && b.LastOffset == last
	})
}

// KeepsMarker reports whether the producer had written nothing but markers in its epoch, and
// this is that.
func (k Keeper) KeepsMarker(id model.ProducerID, epoch model.ProducerEpoch) bool {
	return slices.ContainsFunc(k, func(m map[model.ProducerID]Producer) bool {
		p, ok := m[id]
		return ok && p.n == 0 && p.Epoch == epoch
	})
}
