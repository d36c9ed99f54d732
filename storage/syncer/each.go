package syncer

import (
	"context"
	"sync"
	"sync/atomic"

	"tidewire/internal/lifecycle"
)

// Each calls fn for 0 to n−1, Workers of them at a time, in goroutines of the group, or in the
// caller's once that has been stopped. It returns when all have, with one of their errors.
func Each(g *lifecycle.Group, n int, fn func(i int) error) error {
	var next atomic.Int64
	var mu sync.Mutex
	var first error
	var wg sync.WaitGroup
	work := func(context.Context) {
		defer wg.Done()
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			if err := fn(i); err != nil {
				mu.Lock()
				if first == nil {
					first = err
				}
				mu.Unlock()
			}
		}
	}
	for range min(Workers, n) {
		wg.Add(1)
		if !g.Go("log-close", work) {
			work(context.Background())
		}
	}
	wg.Wait()
	return first
}
