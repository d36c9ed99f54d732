// Package inflight bounds the memory that a node gives to requests under way: what does not
// fit is refused early instead of growing the process.
//
// A request holds bytes of one Budget from when it reads its body until it is answered. The
// budget is counted, not allocated; a Hold costs an atomic addition, so that small requests
// pay next to nothing. A request that has the node for itself is admitted whatever its size,
// which other limits bound: otherwise a small budget would refuse it for ever.
package inflight

import (
	"sync/atomic"
	"time"

	"tidewire/internal/model"
)

// Budget is the bytes that requests may hold at a time. It is safe for concurrent use. A
// nil Budget is without limit.
type Budget struct {
	max     int64
	used    atomic.Int64
	refused atomic.Int64
}

// New returns a budget of so many bytes.
func New(maxBytes int64) *Budget { return &Budget{max: maxBytes} }

// Max is how many bytes may be held at a time; 0 of a nil Budget.
func (b *Budget) Max() int64 {
	if b == nil {
		return 0
	}
	return b.max
}

// Used is how many bytes are held now.
func (b *Budget) Used() int64 {
	if b == nil {
		return 0
	}
	return b.used.Load()
}

// Refused counts the requests that found no room.
func (b *Budget) Refused() int64 {
	if b == nil {
		return 0
	}
	return b.refused.Load()
}

// Hold is what one request holds. The zero value holds nothing of no budget; it belongs to
// one goroutine at a time.
type Hold struct {
	b *Budget
	n int64
}

// Hold begins with nothing held.
func (b *Budget) Hold() Hold { return Hold{b: b} }

// Grow holds at least n bytes in all, n ≥ 0, or fails with rate-limited and holds what it
// did before.
func (h *Hold) Grow(n int64) error {
	more := n - h.n
	if h.b == nil || more <= 0 {
		return nil
	}
	if total := h.b.used.Add(more); total > h.b.max && total > n {
		h.b.used.Add(-more)
		h.b.refused.Add(1)
		return busy()
	}
	h.n = n
	return nil
}

// Release gives everything back; the hold may grow again.
func (h *Hold) Release() {
	if h.b != nil && h.n > 0 {
		h.b.used.Add(-h.n)
		h.n = 0
	}
}

func busy() error {
	e := model.Errorf(model.RateLimited, "the requests under way on this node hold as many bytes as it allows (--http-inflight-bytes)")
	e.RetryAfter = time.Second
	return e
}
