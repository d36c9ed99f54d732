package auth

import (
	"crypto/sha256"
	"log/slog"
	"math"
	"net/netip"
	"sync"
	"time"

	"tidewire/internal/model"
)

// Failed logins fill buckets, which leak: a full one refuses tries, right or wrong, until
// there is room for one. No bucket is filled by success.
//
//   - One for each user and address. Who is right empties it.
//   - One for each address, whatever the users: against trying names. Loopback has none: a
//     proxy that nobody told of may be there, and everybody behind it.
//   - One for each user, whatever the addresses: against trying from many places. It does
//     not count where the user logged in from that address in the last 30 days.
//
// So a stranger keeps a user out only at the stranger's own address, or, with many
// addresses, only at such as the user has never logged in from. A user who is known at an
// address is let through by the address's bucket too: others there cannot keep it out.
var (
	pairLimit    = limit{burst: 10, leak: time.Minute}
	addressLimit = limit{burst: 100, leak: 6 * time.Second}
	userLimit    = limit{burst: 50, leak: 10 * time.Second}
)

const (
	// limiterEntries bounds each set of buckets, of about 50 bytes each.
	limiterEntries = 10_000
	knownFor       = 30 * 24 * time.Hour
)

// limit is how many failures fill a bucket and how long one takes to leak out of it.
type limit struct {
	burst float64
	leak  time.Duration
}

// bucketKey is a hash, so that long names take no more room.
type bucketKey [16]byte

func keyOf(parts ...string) bucketKey {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return bucketKey(h.Sum(nil)[:16])
}

// bucket is how full it was at a time.
type bucket struct {
	level float64
	at    time.Time
}

// buckets are those of one kind. The limiter's lock guards them.
type buckets struct {
	limit
	m map[bucketKey]bucket
}

func (b *buckets) level(k bucketKey, now time.Time) float64 {
	x, ok := b.m[k]
	if !ok {
		return 0
	}
	// A clock that was set back leaks nothing.
	return max(0, x.level-max(0, now.Sub(x.at)).Seconds()/b.leak.Seconds())
}

// wait is how long until a bucket has room for one more failure; 0 for now.
func (b *buckets) wait(k bucketKey, now time.Time) time.Duration {
	over := b.level(k, now) - (b.burst - 1)
	if over <= 0 {
		return 0
	}
	return time.Duration(math.Ceil(over * float64(b.leak)))
}

// add counts a failure and tells whether it filled the bucket.
func (b *buckets) add(k bucketKey, now time.Time) (full bool) {
	level := min(b.level(k, now)+1, b.burst)
	if _, ok := b.m[k]; !ok {
		b.evict(now)
	}
	b.m[k] = bucket{level, now}
	return level > b.burst-1
}

// evict makes room for one: of some that map order picks the emptiest goes.
func (b *buckets) evict(now time.Time) {
	if len(b.m) < limiterEntries {
		return
	}
	var victim bucketKey
	least, seen := math.Inf(1), 0
	for k := range b.m {
		if l := b.level(k, now); l < least {
			victim, least = k, l
		}
		if seen++; seen == 16 {
			break
		}
	}
	delete(b.m, victim)
}

// limiter slows guessing of passwords on this node, in bounded memory. It is safe for
// concurrent use.
type limiter struct {
	now func() time.Time
	log *slog.Logger

	mu                    sync.Mutex
	pairs, addresses, per buckets                 // guarded by mu; per is by user
	known                 map[bucketKey]time.Time // guarded by mu: last success of a user at an address
}

func newLimiter(now func() time.Time, log *slog.Logger) *limiter {
	return &limiter{
		now: now, log: log, known: map[bucketKey]time.Time{},
		pairs:     buckets{pairLimit, map[bucketKey]bucket{}},
		addresses: buckets{addressLimit, map[bucketKey]bucket{}},
		per:       buckets{userLimit, map[bucketKey]bucket{}},
	}
}

// addressOf is what counts as one address: IPv6 gives everybody a /64 at least.
func addressOf(host string) string {
	a, err := netip.ParseAddr(host)
	if err != nil || a.Unmap().Is4() {
		return host
	}
	p, err := a.WithZone("").Prefix(64)
	if err != nil {
		return host
	}
	return p.String()
}

// try is one password tried for a user from an address.
type try struct {
	l                   *limiter // nil: not counted
	pair, address, user bucketKey
	loopback            bool // the address has no bucket of its own
	name, host          string
}

func (l *limiter) try(r *LoginRequest) *try {
	if r.Host == "" {
		return &try{}
	}
	a := addressOf(r.Host)
	ip, err := netip.ParseAddr(r.Host)
	return &try{l: l, loopback: err == nil && ip.Unmap().IsLoopback(), pair: keyOf(r.Username, a), address: keyOf(a), user: keyOf(r.Username), name: r.Username, host: a}
}

// admit refuses as login-locked while a bucket is full.
func (t *try) admit() error {
	if t.l == nil {
		return nil
	}
	now := t.l.now()
	t.l.mu.Lock()
	wait := t.l.pairs.wait(t.pair, now)
	if at, ok := t.l.known[t.pair]; !ok || now.Sub(at) > knownFor {
		wait = max(wait, t.l.per.wait(t.user, now))
		if !t.loopback {
			wait = max(wait, t.l.addresses.wait(t.address, now))
		}
	}
	t.l.mu.Unlock()
	if wait == 0 {
		return nil
	}
	e := model.Errorf(model.LoginLocked, "there were too many failed logins; try again in %d s", (wait+time.Second-1)/time.Second)
	e.RetryAfter = wait
	return e
}

// settle counts how a try went.
func (t *try) settle(right bool) {
	if t.l == nil {
		return
	}
	if !right {
		t.fail()
		return
	}
	now := t.l.now()
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	delete(t.l.pairs.m, t.pair)
	if _, ok := t.l.known[t.pair]; !ok && len(t.l.known) >= limiterEntries {
		for k := range t.l.known {
			delete(t.l.known, k)
			break
		}
	}
	t.l.known[t.pair] = now
}

func (t *try) fail() {
	now := t.l.now()
	t.l.mu.Lock()
	full := t.l.pairs.add(t.pair, now)
	if !t.loopback {
		full = t.l.addresses.add(t.address, now) || full
	}
	full = t.l.per.add(t.user, now) || full
	t.l.mu.Unlock()
	if full {
		t.l.log.Warn("too many failed logins: more are refused for a while", "user", shortName(t.name), "address", t.host)
	}
}

// shortName keeps a name that somebody tried from filling the log.
func shortName(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
