// Package throttle paces bytes: what replicas fetch that a reassignment adds (KIP-73). It is
// pure arithmetic over the time that it is told.
package throttle

import (
	"math"
	"sync"
	"time"
)

// NoLimit is the rate at which nobody waits.
const NoLimit = math.MaxInt64

// credit is for how long a rate that was not used up may be made up for: senders come late by
// what a timer and the disk take.
const credit = 100 * time.Millisecond

// Bucket lets so many bytes through per second. What is too large for the moment goes, and is
// waited for afterwards. The zero value has no limit. Its methods are safe for concurrent use.
type Bucket struct {
	mu   sync.Mutex
	rate int64     // guarded by mu: bytes per second; 0: no limit
	free time.Time // guarded by mu: from when on the next may go
}

// Set changes the rate, at least 1; what went before is paid for at the new one.
func (b *Bucket) Set(bytesPerSecond int64, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if bytesPerSecond == NoLimit {
		bytesPerSecond = 0
	}
	if debt := b.free.Sub(now); debt > 0 && b.rate > 0 && bytesPerSecond > 0 {
		b.free = now.Add(scaled(debt, float64(b.rate)/float64(bytesPerSecond)))
	} else if debt > 0 && bytesPerSecond == 0 {
		b.free = now
	}
	b.rate = bytesPerSecond
}

func scaled(d time.Duration, by float64) time.Duration {
	return time.Duration(min(float64(d)*by, float64(maxDebt)))
}

// maxDebt keeps times within what they can be.
const maxDebt = 365 * 24 * time.Hour

// Wait is how long nothing may go; 0 or less: now.
func (b *Bucket) Wait(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rate == 0 {
		return 0
	}
	return b.free.Sub(now)
}

// Took notes what went.
func (b *Bucket) Took(bytes int, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rate == 0 || bytes <= 0 {
		return
	}
	if earliest := now.Add(-credit); b.free.Before(earliest) {
		b.free = earliest
	}
	b.free = b.free.Add(scaled(time.Second, float64(bytes)/float64(b.rate)))
}

// Chunk is how many bytes go at once, so that it goes evenly: a quarter of a second's, at least
// 64 KiB and at most most.
func (b *Bucket) Chunk(most int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rate == 0 {
		return most
	}
	return int(min(max(b.rate/4, 64<<10), int64(most)))
}
