package log

import "tidewire/internal/model"

// LastStable is the end of what read_committed may see below a high watermark: the first
// offset of the oldest transaction that is open, or whose marker is not below hw (KIP-98).
func (l *Log) LastStable(hw model.Offset) model.Offset {
	return max(l.prods.LastStable(hw), min(l.LogStart(), hw))
}

// ExpireProducers forgets the producers of which nothing was heard for
// producer.id.expiration.ms, unless a transaction of theirs is open (KIP-854). The store
// calls it by itself every ten minutes. now is in milliseconds.
func (l *Log) ExpireProducers(now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.cutting {
		l.prods.Expire(now, l.store.tuning.Load().ProducerIDExpiration.Milliseconds(), l.HighWatermark())
	}
}

// FindRetry tells where batches of a producer are that Append would take for a retry; nil
// when it would append them. Errors: those of Append about producers.
func (l *Log) FindRetry(batches []byte, now int64) (*Appended, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := Appended{LogAppendTime: -1}
	if l.cfg.LogAppendTime {
		a.LogAppendTime = now
	}
	return l.checkProducersLocked(batches, a, now)
}

// checkProducersLocked decides about a leader's append before it is written. dup is the
// answer when every batch is a retry of one that is known; nil means that all are to be
// appended.
func (l *Log) checkProducersLocked(batches []byte, a Appended, now int64) (dup *Appended, err error) {
	retry, err := l.prods.CheckAppend(batches, now)
	if err != nil {
		return nil, frameError(err)
	}
	if retry == nil {
		return nil, nil
	}
	dup = &Appended{First: retry.First, Last: retry.Last, Batches: retry.Batches, MaxTimestamp: retry.MaxTimestamp, LogAppendTime: -1, Duplicate: true}
	if a.LogAppendTime >= 0 {
		dup.LogAppendTime = retry.LastTimestamp
	}
	return dup, nil
}
