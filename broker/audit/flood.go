package audit

import (
	"hash/maphash"
	"time"
)

// Limits of entries about calls that changed nothing: per second and, after a rest, at once;
// for each address, and for the node.
const (
	sourceRate, sourceBurst = 10, 100
	totalRate, totalBurst   = 100, 1000
)

// sources is how many buckets addresses share: memory stays the same however many come.
const sources = 256

// flood decides which of the entries that anybody can cause are written. It is for one
// goroutine at a time.
type flood struct {
	seed  maphash.Seed
	by    [sources]bucket
	total bucket
}

type bucket struct {
	used float64 // of the burst
	at   time.Time
}

func newFlood() *flood { return &flood{seed: maphash.MakeSeed()} }

// admit reports whether an entry about a call from that address is written.
func (f *flood) admit(host string, now time.Time) bool {
	b := &f.by[maphash.String(f.seed, host)%sources]
	b.leak(sourceRate, now)
	f.total.leak(totalRate, now)
	if b.used+1 > sourceBurst || f.total.used+1 > totalBurst {
		return false
	}
	b.used++
	f.total.used++
	return true
}

func (b *bucket) leak(rate float64, now time.Time) {
	if passed := now.Sub(b.at); passed > 0 {
		b.used = max(0, b.used-passed.Seconds()*rate)
	}
	b.at = now
}
