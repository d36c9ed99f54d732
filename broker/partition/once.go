package partition

import (
	"tidewire/internal/model"
	"tidewire/storage/dedupe"
	"tidewire/storage/record"
)

// FindKey gives the slice that the partition's log has, or had, of an Idempotency-Key.
// Errors: why the partition cannot tell.
func (p *Partition) FindKey(k dedupe.Key) (dedupe.Entry, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.usableLocked(); err != nil {
		return dedupe.Entry{}, false, err
	}
	if p.keys == nil {
		return dedupe.Entry{}, false, nil
	}
	e, ok := p.keys.FindKey(k, p.now())
	return e, ok, nil
}

// BeginKeys makes the log ready for slices with an Idempotency-Key, which may take a sync
// once; Submit would do it while others wait. Errors: those of log.BeginKeys.
func (p *Partition) BeginKeys() error {
	if p.keys == nil {
		return nil
	}
	return p.keys.BeginKeys()
}

// replayLocked answers a slice whose key the log knows; false where it is to be appended. It
// comes before every condition on the log: the first time has changed that. A slice that is
// not committed yet is waited for like one's own.
func (p *Partition) replayLocked(s *Slice) bool {
	o := s.Once
	if p.keys == nil {
		return false
	}
	e, ok := p.keys.FindKey(o.Key, p.now())
	switch {
	case ok && (e.Payload != o.Payload || int(e.Count) != s.records()):
		s.finishLocked(KeyReused())
	case ok:
		s.Base, s.end = e.Base, e.End()
		s.AppendTime, s.Duplicate, s.StoredTime = e.AppendTime, true, e.Time
		s.Batches = nil
		if s.state = sliceAppended; s.Acks != AcksAll || s.end <= p.hw {
			s.finishLocked(nil)
			return true
		}
		p.queue.push(s)
		p.syncIfAwaitedLocked()
	case o.Refusal != nil:
		s.finishLocked(o.Refusal)
	default:
		return false
	}
	return true
}

// KeyReused is the error of a request whose key was used with another payload.
func KeyReused() error {
	return model.Errorf(model.IdempotencyKeyReused, "the Idempotency-Key was used with other records, or for another partition, within dedupe.window.ms; give each request a key of its own")
}

// stampedLocked marks the builder's batch, which is empty yet, as a slice with a key, and gives
// the headers of its first record with the stamp.
func (p *Partition) stampedLocked(s *Slice, headers []record.Header) []record.Header {
	p.builder.SetProducer(model.NoProducer, -1, dedupe.MarkSequence)
	stamp := s.Once.Stamp
	stamp.Count = int32(len(s.Select))
	return append(headers[:len(headers):len(headers)], stamp.Header())
}
