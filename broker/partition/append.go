package partition

import (
	"cmp"
	"runtime"

	"tidewire/internal/model"
	"tidewire/storage/dedupe"
	"tidewire/storage/log"
	"tidewire/storage/record"
)

// Submit takes a slice of a request. Its records are copied before Submit returns; its
// result is there when c is done. Submit never waits for a sync.
//
// Whoever gets the partition's lock takes everything that waits for it along: while an
// append is in the kernel, the slices that queue up behind it become one batch. Where
// requests come in numbers, those that are ready to run are let in before: it is no wait
// for company, but one append costs as much as the rest of a small request.
func (p *Partition) Submit(s *Slice, c *Completion) {
	s.waiting = c
	s.AppendTime = -1
	others := p.inside.Add(1) > 1
	defer p.inside.Add(-1)
	p.inboxMu.Lock()
	p.inbox = append(p.inbox, s)
	company := others || p.company > 0
	p.inboxMu.Unlock()
	if company && s.Acks != AcksAll {
		runtime.Gosched()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.state == sliceNew {
		p.drainLocked()
	}
}

// companyRuns is for how many appends company is expected after some came. A yield costs a
// lone producer some microseconds, so it must not be made for nothing.
const companyRuns = 8

// drainLocked takes every slice that was submitted, in order of arrival.
func (p *Partition) drainLocked() {
	p.inboxMu.Lock()
	taken := p.inbox
	p.inbox = p.spare
	if len(taken) > 1 {
		p.company = companyRuns
	} else if p.company > 0 {
		p.company--
	}
	p.inboxMu.Unlock()
	for _, s := range taken {
		p.takeLocked(s)
	}
	clear(taken)
	p.spare = taken[:0]
	if len(p.open) > 0 && (p.openUrgent || !p.log.Syncing()) {
		p.sealLocked()
	}
}

func (p *Partition) takeLocked(s *Slice) {
	if s.Once != nil && p.usableLocked() == nil && p.replayLocked(s) {
		return
	}
	if err := p.admitLocked(s); err != nil {
		s.finishLocked(err)
		return
	}
	if s.Plain && p.joinLocked(s) {
		return
	}
	if len(p.open) > 0 {
		p.sealLocked()
	}
	if s.Batches != nil {
		app, err := p.appendBatchesLocked(s)
		p.placeLocked(s, app, app.First, err)
		s.Batches = nil // the caller's memory, which a slice that waits must not hold
		p.syncIfAwaitedLocked()
		return
	}
	p.appendLocked(s)
}

// CanAppend tells why a slice with acks=all would be refused now, or nil.
func (p *Partition) CanAppend() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.admitLocked(&Slice{Acks: AcksAll})
}

func (p *Partition) admitLocked(s *Slice) error {
	if err := p.usableLocked(); err != nil {
		return err
	}
	if p.released {
		return model.Errorf(model.LeaderUnavailable, "the node that leads partition %d of %q is stopping", p.ID, p.Topic)
	}
	if s.Within != nil && *s.Within != p.lead.Epoch {
		return model.Errorf(model.LeaderUnavailable, "the leadership of partition %d of %q has moved since", p.ID, p.Topic)
	}
	if err := p.log.Failed(); err != nil {
		return model.AsError(err).WithOutcome(model.NotApplied)
	}
	if s.Acks == AcksAll && p.lead.ISR < p.settings.MinInsyncReplicas {
		return model.Errorf(model.NotEnoughReplicas, "%d replicas are in sync, min.insync.replicas is %d",
			p.lead.ISR, p.settings.MinInsyncReplicas)
	}
	return nil
}

// joinLocked adds the slice to the open batch, or reports false where it does not fit
// into one batch.
func (p *Partition) joinLocked(s *Slice) bool {
	size := 0
	for _, i := range s.Select {
		size += s.Records[i].SizeBound()
	}
	s.size = size
	if record.HeaderSize+size > p.settings.MaxMessageBytes {
		return false
	}
	if len(p.open) > 0 && p.builder.Size()+size > p.settings.MaxMessageBytes {
		p.sealLocked()
	}
	if len(p.open) == 0 {
		p.builder.Reset()
	}
	s.first = p.builder.Count()
	s.state = sliceOpen
	for _, i := range s.Select {
		r := &s.Records[i]
		p.builder.Add(r.Timestamp, r.Key, r.Value, r.Headers)
	}
	p.open = append(p.open, s)
	p.openUrgent = p.openUrgent || s.Acks != AcksAll
	return true
}

// sealLocked appends the open batch and answers or queues its slices.
func (p *Partition) sealLocked() {
	app, err := p.writeLocked(nil)
	for _, s := range p.open {
		p.placeLocked(s, app, app.First+model.Offset(s.first), err)
	}
	p.resetOpenLocked()
	p.syncIfAwaitedLocked()
}

func (p *Partition) resetOpenLocked() {
	clear(p.open)
	p.open, p.openUrgent = p.open[:0], false
}

// appendLocked writes a slice as batches of its own, at consecutive offsets.
func (p *Partition) appendLocked(s *Slice) {
	p.batches = p.batches[:0]
	p.builder.Reset()
	limit := p.settings.MaxMessageBytes
	if s.Once != nil {
		limit += dedupe.Overhead
	}
	for _, i := range s.Select {
		r := &s.Records[i]
		if p.builder.Count() > 0 && p.builder.SizeWith(r.Timestamp, r.Key, r.Value, r.Headers) > limit {
			if s.Sequence != nil || s.Expected != nil || s.Once != nil || s.Whole {
				s.finishLocked(NotOneBatch(p.settings.MaxMessageBytes))
				return
			}
			b, err := p.builder.Finish(p.codecLocked())
			if err != nil {
				s.finishLocked(err)
				return
			}
			p.batches = append(p.batches, b...)
			p.builder.Reset()
		}
		headers := r.Headers
		if s.Once != nil && p.builder.Count() == 0 {
			headers = p.stampedLocked(s, headers)
		}
		p.builder.Add(r.Timestamp, r.Key, r.Value, headers)
	}
	app, err := p.writeSliceLocked(s)
	p.placeLocked(s, app, app.First, err)
	p.syncIfAwaitedLocked()
}

// NotOneBatch is the error of a slice that would become several batches and may not.
func NotOneBatch(maxMessageBytes int) error {
	return model.Errorf(model.RecordTooLarge, "the records of one partition take more than max.message.bytes=%d, and with an Idempotency-Key, a producer id or an expected offset, or as one change of the service itself, they must be one batch", maxMessageBytes)
}

// writeSliceLocked appends the builder's batch, behind earlier ones of the slice, under the
// slice's conditions. That a producer repeats itself is found before the log end is looked
// at: the first time has moved it.
func (p *Partition) writeSliceLocked(s *Slice) (log.Appended, error) {
	if q := s.Sequence; q != nil {
		p.builder.SetProducer(q.ID, q.Epoch, q.First)
	}
	if mismatch := p.unexpectedLocked(s); mismatch != nil {
		if s.Sequence == nil {
			return log.Appended{}, mismatch // of a key the first result was looked for before
		}
		b, err := p.builder.Finish(p.codecLocked())
		if err != nil {
			return log.Appended{}, err
		}
		return p.retryLocked(b, mismatch)
	}
	return p.writeLocked(p.batches)
}

// appendBatchesLocked appends ready-made batches under the slice's conditions.
func (p *Partition) appendBatchesLocked(s *Slice) (log.Appended, error) {
	if mismatch := p.unexpectedLocked(s); mismatch != nil {
		return p.retryLocked(s.Batches, mismatch)
	}
	return p.log.Append(s.Batches, p.lead.Epoch, p.now())
}

// unexpectedLocked is offset-mismatch where the log does not end as the slice expects.
func (p *Partition) unexpectedLocked(s *Slice) error {
	end := p.log.LogEnd()
	if s.Expected == nil || end == *s.Expected {
		return nil
	}
	return model.Errorf(model.OffsetMismatch, "partition %d ends at offset %d, not %d", p.ID, end, *s.Expected).WithExtra("log_end_offset", end)
}

// retryLocked gives the first result of a producer's batch that is stored already, or else
// mismatch.
func (p *Partition) retryLocked(batch []byte, mismatch error) (log.Appended, error) {
	if p.producers == nil {
		return log.Appended{}, mismatch
	}
	retry, err := p.producers.FindRetry(batch, p.now())
	if retry == nil {
		return log.Appended{}, cmp.Or(err, mismatch)
	}
	return *retry, nil
}

// keylessRun is how many bytes without keys a partition takes before the next one is
// due, where no sync ended meanwhile (in the manner of KIP-794).
const keylessRun = 64 << 10

// stepLocked ends a partition's turn to take keyless records.
func (p *Partition) stepLocked() {
	if p.keyless > 0 {
		p.keyless = 0
		p.turnOver()
	}
}

// writeLocked finishes the builder's batch and appends it, behind earlier batches of
// the same slice if there are any.
func (p *Partition) writeLocked(before []byte) (log.Appended, error) {
	b, err := p.builder.Finish(p.codecLocked())
	if err != nil {
		return log.Appended{}, err
	}
	if len(before) > 0 {
		p.batches = append(before, b...)
		b = p.batches
	}
	return p.log.Append(b, p.lead.Epoch, p.now())
}

// codecLocked is the codec of the builder's batch: one that could not be inflated again, as it
// is too large for readers, stays as it is.
func (p *Partition) codecLocked() record.Codec {
	if p.builder.Size() > record.MaxInflated {
		return record.None
	}
	return p.settings.Codec
}

func (p *Partition) placeLocked(s *Slice, app log.Appended, base model.Offset, err error) {
	if err != nil {
		s.finishLocked(appendError(err))
		return
	}
	s.Base, s.end = base, base+model.Offset(s.records())
	s.AppendTime = app.LogAppendTime
	if app.Duplicate {
		s.Duplicate, s.StoredTime = true, app.MaxTimestamp
	}
	s.state = sliceAppended
	if s.Keyless {
		if p.keyless += s.size; p.keyless >= keylessRun {
			p.stepLocked()
		}
	}
	switch {
	case s.Acks != AcksAll || s.end <= p.hw:
		s.finishLocked(nil)
	default:
		p.queue.push(s)
	}
}

// appendError says that a failed append left nothing: the log cuts back what it began.
func appendError(err error) error {
	e := model.AsError(err)
	if e.Code == model.Internal || e.Code == model.StorageError {
		return e.WithOutcome(model.Unknown)
	}
	return e.WithOutcome(model.NotApplied)
}

func (p *Partition) syncIfAwaitedLocked() {
	// With write caching the stable end is already there, whatever the acks, and nobody
	// else will tell.
	p.tellGrownLocked()
	p.advanceLocked(p.log.StableEnd())
	if p.queue.head() != nil {
		p.log.RequestSync()
	}
}

// State is what is known of a slice at one moment.
type State struct {
	Done       bool // Err is final
	Appended   bool // Base and AppendTime are known
	Base       model.Offset
	AppendTime int64
	Duplicate  bool
	StoredTime int64
	Err        error
}

// Abandon reports what is known of a slice whose request will not wait any longer. The
// slice still belongs to the partition where it is not done: it must not be used again.
func (p *Partition) Abandon(s *Slice) State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return State{
		Done: s.state == sliceDone, Appended: s.state == sliceAppended || s.state == sliceDone && s.Err == nil,
		Base: s.Base, AppendTime: s.AppendTime, Duplicate: s.Duplicate, StoredTime: s.StoredTime, Err: s.Err,
	}
}
