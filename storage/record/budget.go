package record

import (
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Budget is the memory that a node gives to the inflation of batches at a time. What takes
// little, as nearly all does, takes nothing of it; who needs more waits for a turn, in the
// order of arrival, holding nothing of the budget meanwhile. A nil Budget is without limit.
type Budget struct {
	total int64

	mu    sync.Mutex
	moved sync.Cond // free or turn changed
	free  int64     // guarded by mu: bytes
	next  uint64    // guarded by mu: the turn of who comes next
	turn  uint64    // guarded by mu: whose turn it is
	// spare are decoders with a large window, which would be garbage for a while after each
	// use otherwise.
	spare []*zstd.Decoder // guarded by mu: at most maxSpare
}

// maxSpare is how many large decoders are kept, at some 8 MiB each.
const maxSpare = 4

// NewBudget returns a budget of so many bytes.
func NewBudget(bytes int64) *Budget {
	b := &Budget{total: bytes, free: bytes}
	b.moved.L = &b.mu
	return b
}

// acquire waits for n bytes and returns how many to release: a request for more than there
// ever are waits for all.
func (b *Budget) acquire(n int64) int64 {
	if b == nil || n <= 0 {
		return 0
	}
	n = min(n, b.total)
	b.mu.Lock()
	defer b.mu.Unlock()
	turn := b.next
	b.next++
	for turn != b.turn || b.free < n {
		b.moved.Wait()
	}
	b.turn++
	b.free -= n
	b.moved.Broadcast()
	return n
}

func (b *Budget) release(n int64) {
	if b == nil || n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	b.moved.Broadcast()
}

// takeDecoder gives a spare decoder, or nil.
func (b *Budget) takeDecoder() *zstd.Decoder {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.spare)
	if n == 0 {
		return nil
	}
	d := b.spare[n-1]
	b.spare = b.spare[:n-1]
	return d
}

// giveDecoder takes a decoder that is not needed now.
func (b *Budget) giveDecoder(d *zstd.Decoder) {
	_ = d.Reset(nil) // lets go of what it read
	if b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.spare) < maxSpare {
			b.spare = append(b.spare, d)
			return
		}
	}
	d.Close()
}
