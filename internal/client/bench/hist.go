package bench

import (
	"math/bits"
	"time"
)

// histogram counts durations in buckets whose width is at most 1/32 of their value,
// from 1 ns on. The zero value is empty. Not safe for concurrent use; each connection
// has its own and they are added up at the end.
type histogram struct {
	counts [64 * subBuckets]int64
	n      int64
	sum    time.Duration
	most   time.Duration
}

const subBuckets = 32

// bucket is where a duration is counted: the exponent of its highest bit, and the
// five bits below that.
func bucket(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < subBuckets {
		return int(v)
	}
	shift := bits.Len64(v) - 6
	return (shift+1)*subBuckets + int(v>>shift) - subBuckets
}

// upper is the longest duration of a bucket.
func upper(b int) time.Duration {
	if b < subBuckets {
		return time.Duration(b)
	}
	shift := b/subBuckets - 1
	return time.Duration(uint64(b%subBuckets+subBuckets+1)<<shift - 1)
}

func (h *histogram) add(d time.Duration) {
	h.counts[bucket(d)]++
	h.n++
	h.sum += d
	h.most = max(h.most, d)
}

func (h *histogram) merge(o *histogram) {
	for i, c := range o.counts {
		h.counts[i] += c
	}
	h.n += o.n
	h.sum += o.sum
	h.most = max(h.most, o.most)
}

// quantile is a duration that the part q of all does not exceed, rounded up to its
// bucket's end; 0 when nothing was counted.
func (h *histogram) quantile(q float64) time.Duration {
	rank := int64(q*float64(h.n) + 0.5)
	rank = max(1, min(rank, h.n))
	seen := int64(0)
	for b, c := range h.counts {
		if seen += c; seen >= rank && c > 0 {
			return min(upper(b), h.most)
		}
	}
	return 0
}
