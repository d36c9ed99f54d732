// Package budget shares a fixed amount of memory among calls: who may need much of it takes a
// grant before, waits for a moment where there is none, and is refused then. So the memory of
// all calls together stays within a bound whatever clients ask for.
//
// Fairness: one owner (a user) never holds more than three quarters, so that others always get
// in. Those who wait are served in order of arrival, except that who waits for a share of an
// owner that has its three quarters holds up nobody else. An owner of whom too many wait
// already is refused at once.
//
// State and locks: one mutex, held for no longer than a look at the queue. There is no
// goroutine and nothing to stop.
package budget

import (
	"context"
	"sync"
	"time"

	"tidewire/internal/model"
)

// maxWaiting is how many calls of one owner may wait at a time.
const maxWaiting = 1024

// Budget is an amount of memory in bytes. Its methods are safe for concurrent use.
type Budget struct {
	name  string // of the setting that bounds it, for errors
	limit int64
	share int64 // of one owner

	mu     sync.Mutex
	used   int64               // guarded by mu
	owners map[string]*account // guarded by mu: of owners that hold something or wait
	queue  []*waiter           // guarded by mu: in order of arrival
}

type account struct {
	used    int64
	waiting int
}

type waiter struct {
	owner string
	n     int64
	done  chan struct{} // closed when granted
}

// New returns a budget of limit bytes, which the setting of that name gives.
func New(name string, limit int64) *Budget {
	return &Budget{name: name, limit: limit, share: limit / 4 * 3, owners: map[string]*account{}}
}

// Limit is the whole budget in bytes.
func (b *Budget) Limit() int64 { return b.limit }

// Used is what is granted at present, in bytes.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Grant is what a call holds. It is for one goroutine.
type Grant struct {
	b     *Budget
	owner string
	n     int64
}

// Bytes is how much it is. A call that asked for more than one owner may have gets that, to
// run when it is the owner's only one.
func (g *Grant) Bytes() int64 { return g.n }

// Alone reports that it is all that its owner may have: a call that needs still more runs
// with it, since waiting would not help.
func (g *Grant) Alone() bool { return g.n >= g.b.share }

// Take grants n bytes to an owner, or an owner's whole share where that is less. It waits for
// at most patience; without patience until ctx ends. Errors: rate-limited, and ctx's.
func (b *Budget) Take(ctx context.Context, owner string, n int64, patience time.Duration) (*Grant, error) {
	n = min(n, b.share)
	b.mu.Lock()
	a := b.accountLocked(owner)
	if len(b.queue) == 0 && b.fitsLocked(a, n) {
		b.grantLocked(a, n)
		b.mu.Unlock()
		return &Grant{b, owner, n}, nil
	}
	if a.waiting >= maxWaiting {
		b.mu.Unlock()
		return nil, b.refusal()
	}
	w := &waiter{owner, n, make(chan struct{})}
	a.waiting++
	b.queue = append(b.queue, w)
	b.serveLocked()
	b.mu.Unlock()
	if err := b.await(ctx, w, patience); err != nil {
		return nil, err
	}
	return &Grant{b, owner, n}, nil
}

func (b *Budget) await(ctx context.Context, w *waiter, patience time.Duration) error {
	var late <-chan time.Time
	if patience > 0 {
		t := time.NewTimer(patience)
		defer t.Stop()
		late = t.C
	}
	var err error
	select {
	case <-w.done:
		return nil
	case <-late:
		err = b.refusal()
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, q := range b.queue {
		if q == w {
			b.queue = append(b.queue[:i], b.queue[i+1:]...)
			b.leaveLocked(w)
			b.serveLocked() // it may have stood before others
			return err
		}
	}
	return nil // it was granted at the last moment
}

func (b *Budget) refusal() error {
	e := model.Errorf(model.RateLimited, "calls under way take all of the memory that is set aside for them (%s); try again", b.name)
	e.RetryAfter = time.Second
	return e
}

func (b *Budget) accountLocked(owner string) *account {
	a := b.owners[owner]
	if a == nil {
		a = &account{}
		b.owners[owner] = a
	}
	return a
}

func (b *Budget) fitsLocked(a *account, n int64) bool {
	return b.used+n <= b.limit && a.used+n <= b.share
}

func (b *Budget) grantLocked(a *account, n int64) {
	b.used += n
	a.used += n
}

// leaveLocked ends a wait.
func (b *Budget) leaveLocked(w *waiter) {
	a := b.owners[w.owner]
	a.waiting--
	if *a == (account{}) {
		delete(b.owners, w.owner)
	}
}

// serveLocked grants what fits, in order. One that does not fit into the whole budget holds
// up those behind it, or a large one would wait for ever.
func (b *Budget) serveLocked() {
	left := b.queue[:0]
	for i, w := range b.queue {
		a := b.owners[w.owner]
		if a.used+w.n > b.share {
			left = append(left, w)
			continue
		}
		if b.used+w.n > b.limit {
			left = append(left, b.queue[i:]...)
			break
		}
		b.grantLocked(a, w.n)
		b.leaveLocked(w)
		close(w.done)
	}
	clear(b.queue[len(left):])
	b.queue = left
}

// Grow adds n bytes without waiting; false: there is no room, and the grant is as it was.
func (g *Grant) Grow(n int64) bool {
	b := g.b
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.owners[g.owner]
	if len(b.queue) > 0 || !b.fitsLocked(a, n) {
		return false
	}
	b.grantLocked(a, n)
	g.n += n
	return true
}

// Release gives it back. It may be called more than once.
func (g *Grant) Release() {
	if g.n == 0 {
		return
	}
	b := g.b
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.owners[g.owner]
	b.used -= g.n
	a.used -= g.n
	g.n = 0
	if *a == (account{}) {
		delete(b.owners, g.owner)
	}
	b.serveLocked()
}
