package log

import "time"

// Tuning is what may change while a store is open. Zero values stand for the defaults.
type Tuning struct {
	// ProducerIDExpiration is producer.id.expiration.ms: producers are forgotten when nothing
	// was heard of them for so long; default 24 h (KIP-854).
	ProducerIDExpiration time.Duration
	CleanBytesPerSecond  int64 // how much compaction reads at most; 0: without limit
}

// Tune changes how the store works from now on, a pass of compaction that runs included.
func (s *Store) Tune(t Tuning) {
	if t.ProducerIDExpiration <= 0 {
		t.ProducerIDExpiration = 24 * time.Hour
	}
	s.tuning.Store(&t)
}
