package quota

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// Kind says what is limited.
type Kind uint8

// Kinds of limits. Produce and Fetch count bytes, Requests counts calls.
const (
	Produce Kind = iota
	Fetch
	Requests

	kinds = 3
)

// names are the members of a quota.
var names = [kinds]string{"produce_bytes_per_s", "fetch_bytes_per_s", "requests_per_s"}

// policies are what RateLimit headers call the limits, and units what these count there.
var (
	policies = [kinds]string{"produce-bytes", "fetch-bytes", "requests"}
	units    = [kinds]string{"content-bytes", "content-bytes", "requests"}
)

// String is the kind's name in a quota.
func (k Kind) String() string { return names[k] }

// limits are one user's, per second; 0: none.
type limits [kinds]float64

func limitsOf(q metadata.QuotaLimits) limits {
	var l limits
	for k, v := range [kinds]*int64{q.ProduceBytesPerS, q.FetchBytesPerS, q.RequestsPerS} {
		if v != nil {
			l[k] = float64(*v)
		}
	}
	return l
}

// table is the limits in force. It does not change once it is published.
type table struct {
	general limits            // of users that are not in users
	users   map[string]limits // what is in force for users that have limits of their own
}

func (t *table) of(user string, k Kind) float64 {
	if l, ok := t.users[user]; ok {
		return l[k]
	}
	return t.general[k]
}

// Limiter holds the buckets of a node. It is safe for concurrent use. The zero value limits
// nobody.
type Limiter struct {
	table   atomic.Pointer[table] // nil: nobody has a limit
	buckets sync.Map              // user → *bucket
	count   atomic.Int64          // of buckets, about
	sweepAt atomic.Int64          // how many bring the next sweep
	sweep   sync.Mutex            // held while sweeping

	mu    sync.Mutex
	image uint64 // guarded by mu: index of the image that table is of

	refused [kinds]atomic.Int64 // calls
	slowed  [kinds]atomic.Int64 // times that a call which lasts was told to wait
}

// bucket is one user's state.
type bucket struct {
	mu     sync.Mutex
	gone   bool // guarded by mu: swept; look for another
	levels [kinds]level
}

// level is one bucket of tokens.
type level struct {
	rate   float64   // per second, that it was filled at; 0: not used yet
	tokens float64   // below 0: a debt
	at     time.Time // when tokens was true
}

// minSweep is the least number of buckets that brings a sweep.
const minSweep = 256

// Set puts the limits of an image in force. A limit that changes begins with a full bucket:
// whoever raises it does not wait for old debts.
// An image that is older than the last one changes nothing.
func (l *Limiter) Set(img *metadata.Image) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if img.Index() < l.image {
		return
	}
	l.image = img.Index()
	if img.QuotaCount() == 0 {
		l.table.Store(nil)
		l.forget(func(*bucket) bool { return true })
		return
	}
	t := &table{users: map[string]limits{}}
	for q := range img.Quotas() {
		if q.User == metadata.DefaultQuota {
			t.general = limitsOf(q.QuotaLimits)
			continue
		}
		t.users[q.User] = limitsOf(img.EffectiveQuota(q.User))
	}
	l.table.Store(t)
}

// Follow is a subscriber to changes of the metadata.
func (l *Limiter) Follow(_, next *metadata.Image, d metadata.Delta) {
	if len(d.Quotas) > 0 {
		l.Set(next)
	}
}

// limit is a user's limit of a kind, 0 for none.
func (l *Limiter) limit(user string, k Kind) float64 {
	t := l.table.Load()
	if t == nil {
		return 0
	}
	return t.of(user, k)
}

// On reports whether anybody has a limit; without, nothing else needs to be asked.
func (l *Limiter) On() bool { return l.table.Load() != nil }

// Take lets a call that stands for itself in and counts n, or refuses it: rate-limited, with
// when to come again and the state of the limit.
func (l *Limiter) Take(user string, k Kind, n int, now time.Time) error {
	rate := l.limit(user, k)
	if rate == 0 {
		return nil
	}
	return l.use(user, k, now, func(v *level) error {
		v.fill(rate, now)
		if wait := v.wait(k); wait > 0 {
			return l.refuse(user, k, v, wait)
		}
		v.tokens -= float64(n)
		return nil
	})
}

// Allow is Take for what is not known yet how much it will be: it is charged afterwards.
func (l *Limiter) Allow(user string, k Kind, now time.Time) error {
	return l.Take(user, k, 0, now)
}

// Charge counts n that was done.
func (l *Limiter) Charge(user string, k Kind, n int, now time.Time) {
	rate := l.limit(user, k)
	if rate == 0 || n == 0 {
		return
	}
	_ = l.use(user, k, now, func(v *level) error { // nothing is refused
		v.fill(rate, now)
		v.tokens -= float64(n)
		return nil
	})
}

// Delay is how long a call that lasts has to wait until it may do more of the kind; 0: it
// may go on. Others of the user may have come first by then, so it is to be asked again.
func (l *Limiter) Delay(user string, k Kind, now time.Time) time.Duration {
	rate := l.limit(user, k)
	if rate == 0 {
		return 0
	}
	var wait time.Duration
	_ = l.use(user, k, now, func(v *level) error { // nothing is refused
		v.fill(rate, now)
		if wait = v.wait(k); wait > 0 {
			l.slowed[k].Add(1)
		}
		return nil
	})
	return wait
}

// Refused is how many calls were refused by a kind of limit since the start, and Slowed how
// often one that lasts was told to wait.
func (l *Limiter) Refused(k Kind) int64 { return l.refused[k].Load() }

// Slowed is documented with Refused.
func (l *Limiter) Slowed(k Kind) int64 { return l.slowed[k].Load() }

// Buckets is how many users have a bucket now.
func (l *Limiter) Buckets() int { return int(max(0, l.count.Load())) }

// fill brings the tokens up to now. A clock that was set back gives none.
func (v *level) fill(rate float64, now time.Time) {
	if v.rate != rate {
		v.rate, v.tokens, v.at = rate, burst(rate), now
		return
	}
	if passed := now.Sub(v.at); passed > 0 {
		v.tokens = min(burst(rate), v.tokens+passed.Seconds()*rate)
	}
	v.at = now
}

// burst is how much a bucket holds: one second's worth.
func burst(rate float64) float64 { return rate }

// wait is how long it takes until the bucket lets a call in: it must hold one request, or a
// millisecond's worth of bytes.
func (v *level) wait(k Kind) time.Duration {
	need := v.rate / 1000
	if k == Requests {
		need = 1
	}
	if v.tokens >= need*(1-1e-6) { // what binary fractions of a second cannot tell
		return 0
	}
	seconds := (need - v.tokens) / v.rate
	if seconds > math.MaxInt64/float64(time.Second)/2 {
		return math.MaxInt64 / 2
	}
	return max(time.Duration(math.Ceil(seconds*float64(time.Second))), time.Microsecond)
}

// full reports whether a level is as a new one would be.
func (v *level) full(now time.Time) bool {
	return v.rate == 0 || v.tokens+now.Sub(v.at).Seconds()*v.rate >= burst(v.rate)
}

// refuse is the error of a call that was refused.
func (l *Limiter) refuse(user string, k Kind, v *level, wait time.Duration) error {
	l.refused[k].Add(1)
	e := model.Errorf(model.RateLimited, "the quota %s of %q on this node, %.0f, is used up", k, user, v.rate).WithExtra("quota", k.String())
	e.RetryAfter = wait
	e.Limit = &model.RateLimit{
		Policy: policies[k], Unit: units[k], Quota: int64(v.rate), WindowS: 1,
		Remaining: int64(max(0, v.tokens)), ResetS: int64(math.Ceil(wait.Seconds())),
	}
	return e
}

// use runs fn with a level of the user's bucket under its lock.
func (l *Limiter) use(user string, k Kind, now time.Time, fn func(*level) error) error {
	for {
		b := l.bucket(user, now)
		b.mu.Lock()
		if b.gone {
			b.mu.Unlock()
			continue
		}
		err := fn(&b.levels[k])
		b.mu.Unlock()
		return err
	}
}

func (l *Limiter) bucket(user string, now time.Time) *bucket {
	if b, ok := l.buckets.Load(user); ok {
		return b.(*bucket)
	}
	if n := l.count.Add(1); n > max(minSweep, l.sweepAt.Load()) {
		l.forget(func(b *bucket) bool { return b.idleLocked(now) })
	}
	b, loaded := l.buckets.LoadOrStore(user, new(bucket))
	if loaded {
		l.count.Add(-1)
	}
	return b.(*bucket)
}

// forget drops the buckets of which that may be said, whose lock is held meanwhile. One
// goroutine at a time does.
func (l *Limiter) forget(may func(*bucket) bool) {
	if !l.sweep.TryLock() {
		return
	}
	defer l.sweep.Unlock()
	left := int64(0)
	l.buckets.Range(func(user, v any) bool {
		b := v.(*bucket)
		b.mu.Lock()
		defer b.mu.Unlock()
		if may(b) {
			b.gone = true
			l.buckets.Delete(user)
			l.count.Add(-1)
			return true
		}
		left++
		return true
	})
	l.sweepAt.Store(2 * left)
}

// idleLocked reports whether nothing is lost with the bucket.
func (b *bucket) idleLocked(now time.Time) bool {
	for k := range b.levels {
		if !b.levels[k].full(now) {
			return false
		}
	}
	return true
}
