package quota

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.UnixMilli(1_700_000_000_000)

// image has users and their quotas; a limit is {produce, fetch, requests}, 0 for none.
func image(t testing.TB, quotas map[string][3]int64) *metadata.Image {
	t.Helper()
	img, index := metadata.Empty(), uint64(0)
	apply := func(c metadata.Command) {
		index++
		next, _, res := metadata.Apply(img, index, c)
		require.Nil(t, res.Refusal)
		img = next
	}
	apply(metadata.BootstrapCluster{ClusterID: "c", MetadataVersion: 1})
	for user, q := range quotas {
		if user != metadata.DefaultQuota {
			apply(metadata.CreateUser{Name: user, Credentials: metadata.Credentials{PasswordHash: "x"}})
		}
		var l metadata.QuotaLimits
		for i, into := range []**int64{&l.ProduceBytesPerS, &l.FetchBytesPerS, &l.RequestsPerS} {
			if q[i] != 0 {
				*into = new(q[i])
			}
		}
		apply(metadata.SetQuota{User: user, Limits: l})
	}
	return img
}

func limiter(t testing.TB, quotas map[string][3]int64) *Limiter {
	t.Helper()
	l := &Limiter{}
	l.Set(image(t, quotas))
	return l
}

// One second's worth may come at once; then what the rate gives, no more.
func TestABurstIsOneSecondsWorth(t *testing.T) {
	t.Parallel()
	l := limiter(t, map[string][3]int64{"alice": {0, 0, 5}})
	for range 5 {
		require.NoError(t, l.Take("alice", Requests, 1, start))
	}
	err := l.Take("alice", Requests, 1, start)
	require.True(t, model.HasCode(err, model.RateLimited))
	e := model.AsError(err)
	require.Equal(t, 200*time.Millisecond, e.RetryAfter)
	require.Equal(t, "requests_per_s", e.Extra["quota"])
	require.Equal(t, &model.RateLimit{Policy: "requests", Unit: "requests", Quota: 5, WindowS: 1, Remaining: 0, ResetS: 1}, e.Limit)
	require.Error(t, l.Take("alice", Requests, 1, start.Add(199*time.Millisecond)))
	require.NoError(t, l.Take("alice", Requests, 1, start.Add(200*time.Millisecond)), "Retry-After is enough")
	require.Error(t, l.Take("alice", Requests, 1, start.Add(200*time.Millisecond)))
	require.Equal(t, int64(3), l.Refused(Requests))
	for range 5 { // a long rest fills one second's worth
		require.NoError(t, l.Take("alice", Requests, 1, start.Add(time.Hour)))
	}
	require.Error(t, l.Take("alice", Requests, 1, start.Add(time.Hour)))
}

// A request beyond a second's worth is let in, and what follows waits for all of it.
func TestARequestLargerThanTheBurstMakesADebt(t *testing.T) {
	t.Parallel()
	l := limiter(t, map[string][3]int64{"alice": {1000, 0, 0}})
	require.NoError(t, l.Take("alice", Produce, 10_000, start))
	err := l.Take("alice", Produce, 1, start)
	require.True(t, model.HasCode(err, model.RateLimited))
	wait := model.AsError(err).RetryAfter
	require.InDelta(t, 9.0, wait.Seconds(), 0.01)
	require.Error(t, l.Take("alice", Produce, 1, start.Add(wait-time.Millisecond)))
	require.NoError(t, l.Take("alice", Produce, 1, start.Add(wait)), "Retry-After is enough")
}

// What is charged afterwards holds back what comes next, and a call that lasts is told how
// long.
func TestACallThatLastsIsToldToWait(t *testing.T) {
	t.Parallel()
	l := limiter(t, map[string][3]int64{"alice": {0, 1000, 0}})
	require.NoError(t, l.Allow("alice", Fetch, start))
	require.Zero(t, l.Delay("alice", Fetch, start))
	l.Charge("alice", Fetch, 3000, start)
	require.InDelta(t, 2.0, l.Delay("alice", Fetch, start).Seconds(), 0.01)
	require.Equal(t, int64(1), l.Slowed(Fetch))
	require.True(t, model.HasCode(l.Allow("alice", Fetch, start), model.RateLimited))
	wait := l.Delay("alice", Fetch, start)
	require.Zero(t, l.Delay("alice", Fetch, start.Add(wait)))
	require.NoError(t, l.Allow("alice", Fetch, start.Add(wait)))
}

func TestKindsAndUsersDoNotShareABucket(t *testing.T) {
	t.Parallel()
	l := limiter(t, map[string][3]int64{"alice": {10, 10, 1}, "bob": {10, 0, 0}})
	require.NoError(t, l.Take("alice", Produce, 100, start))
	require.Error(t, l.Take("alice", Produce, 1, start))
	require.NoError(t, l.Take("alice", Fetch, 1, start))
	require.NoError(t, l.Take("alice", Requests, 1, start))
	require.NoError(t, l.Take("bob", Produce, 1, start))
	require.NoError(t, l.Take("bob", Fetch, 1<<40, start))
	require.NoError(t, l.Take("bob", Fetch, 1<<40, start), "no limit of this kind")
}

// The default is each user's own bucket, not one for all, and fills what a user's own limits
// leave open.
func TestTheDefaultHoldsForEachUserByItself(t *testing.T) {
	t.Parallel()
	l := limiter(t, map[string][3]int64{"*": {0, 0, 1}, "alice": {10, 0, 0}, "bob": {0, 0, 3}})
	require.NoError(t, l.Take("carol", Requests, 1, start))
	require.Error(t, l.Take("carol", Requests, 1, start))
	require.NoError(t, l.Take("dave", Requests, 1, start))
	require.NoError(t, l.Take("alice", Requests, 1, start))
	require.Error(t, l.Take("alice", Requests, 1, start))
	for range 3 {
		require.NoError(t, l.Take("bob", Requests, 1, start))
	}
	require.Error(t, l.Take("bob", Requests, 1, start))
}

// A changed limit holds from the next call on, and begins without the debts of the old one.
func TestAChangedLimitBeginsAnew(t *testing.T) {
	t.Parallel()
	l := limiter(t, map[string][3]int64{"alice": {1, 0, 1}})
	require.NoError(t, l.Take("alice", Produce, 1<<30, start))
	require.NoError(t, l.Take("alice", Requests, 1, start))
	require.Error(t, l.Take("alice", Produce, 1, start))
	l.image = 0
	l.Set(image(t, map[string][3]int64{"alice": {1000, 0, 1}}))
	require.NoError(t, l.Take("alice", Produce, 1, start))
	require.Error(t, l.Take("alice", Requests, 1, start), "this limit is as before")
	l.image = 0
	l.Set(image(t, nil))
	require.NoError(t, l.Take("alice", Requests, 1, start))
	require.Zero(t, l.Buckets())
}

func TestAnOldImageChangesNothing(t *testing.T) {
	t.Parallel()
	l := limiter(t, map[string][3]int64{"alice": {0, 0, 1}})
	l.Set(metadata.Empty())
	require.NoError(t, l.Take("alice", Requests, 1, start))
	require.Error(t, l.Take("alice", Requests, 1, start))
}

func TestAClockThatIsSetBackGivesNothingAndStopsNothing(t *testing.T) {
	t.Parallel()
	l := limiter(t, map[string][3]int64{"alice": {0, 0, 1}})
	require.NoError(t, l.Take("alice", Requests, 1, start))
	back := start.Add(-time.Hour)
	require.Error(t, l.Take("alice", Requests, 1, back))
	require.NoError(t, l.Take("alice", Requests, 1, back.Add(time.Second)))
}

// Under the default each of many users has a bucket only while it is busy.
func TestIdleUsersCostNothing(t *testing.T) {
	t.Parallel()
	l := limiter(t, map[string][3]int64{"*": {100, 100, 100}})
	now := start
	for i := range 100_000 {
		now = now.Add(time.Millisecond) // 1,000 users a second, each full again after 10 ms
		require.NoError(t, l.Take(fmt.Sprint("user", i), Requests, 1, now))
	}
	require.LessOrEqual(t, l.Buckets(), 2*minSweep)
	n := 0
	l.buckets.Range(func(any, any) bool { n++; return true })
	require.Equal(t, n, l.Buckets())
}

// A debt is not forgotten by a sweep.
func TestASweepKeepsDebts(t *testing.T) {
	t.Parallel()
	l := limiter(t, map[string][3]int64{"*": {1, 0, 0}})
	require.NoError(t, l.Take("debtor", Produce, 1000, start))
	now := start.Add(100 * time.Second)
	for i := range 10 * minSweep {
		require.NoError(t, l.Take(fmt.Sprint(i), Produce, 0, now))
	}
	require.Error(t, l.Take("debtor", Produce, 1, now))
}

// Whatever comes when, no more passes than the limit allows: one second's worth and the
// rate, and the one call that makes the debt.
func TestNoMorePassesThanTheLimit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		rate := rapid.Int64Range(1, 1_000_000).Draw(r, "rate")
		l := limiter(t, map[string][3]int64{"u": {rate, 0, 0}})
		now, passed, last := start, int64(0), int64(0)
		for _, step := range rapid.SliceOfN(rapid.IntRange(0, 3000), 1, 200).Draw(r, "ms") {
			now = now.Add(time.Duration(step) * time.Millisecond)
			n := rapid.Int64Range(0, 3*rate).Draw(r, "n")
			if err := l.Take("u", Produce, int(n), now); err == nil {
				passed += n
				last = n
			} else {
				wait := model.AsError(err).RetryAfter
				require.Positive(r, wait)
				require.Zero(r, l.Delay("u", Produce, now.Add(wait)), "Retry-After is enough")
				now = now.Add(wait)
			}
			allowed := float64(rate) * (1 + now.Sub(start).Seconds())
			require.LessOrEqual(r, float64(passed-last), allowed+1)
		}
	})
}

func TestConcurrentCallsShareTheBucket(t *testing.T) {
	t.Parallel()
	l := limiter(t, map[string][3]int64{"*": {0, 0, 1000}})
	var wg sync.WaitGroup
	var mu sync.Mutex
	passed := map[string]int{}
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				user := fmt.Sprint("u", rand.IntN(3))
				if l.Take(user, Requests, 1, start) == nil {
					mu.Lock()
					passed[user]++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, map[string]int{"u0": 1000, "u1": 1000, "u2": 1000}, passed)
}

func BenchmarkTake(b *testing.B) {
	now := start
	for name, l := range map[string]*Limiter{
		"nobody has a limit": {},
		"others have":        limiter(b, map[string][3]int64{"bob": {1, 1, 1}}),
		"limited":            limiter(b, map[string][3]int64{"alice": {1 << 50, 0, 0}}),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := l.Take("alice", Produce, 100, now); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
