package throttle

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// carried is how many bytes senders that always have more bring through in a minute, each
// looking again a little after it may.
func carried(b *Bucket, now time.Time, chunk func() int, late time.Duration) (bytes int) {
	for end := now.Add(time.Minute); now.Before(end); {
		if w := b.Wait(now); w > 0 {
			now = now.Add(w + late)
			continue
		}
		n := chunk()
		b.Took(n, now)
		bytes += n
		now = now.Add(late)
	}
	return bytes
}

func TestAMinuteHasWhatTheRateSays(t *testing.T) {
	t.Parallel()
	began := time.UnixMilli(1_700_000_000_000)
	for _, rate := range []int64{50 << 10, 1 << 20, 50 << 20, 400 << 20} {
		for _, late := range []time.Duration{0, 500 * time.Microsecond, 2 * time.Millisecond} {
			b := new(Bucket)
			b.Set(rate, began)
			rnd := rand.New(rand.NewPCG(1, uint64(rate)))
			got := carried(b, began, func() int { return 1 + rnd.IntN(2*b.Chunk(1<<20)) }, late)
			require.InEpsilon(t, 60*rate, got, 0.05, "%d bytes/s, %s late", rate, late)
		}
	}
}

func TestIdleTimeIsNotMadeUpFor(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1)
	b := new(Bucket)
	b.Set(1000, now)
	b.Took(1, now)
	now = now.Add(time.Hour)
	b.Took(1000, now)
	require.Equal(t, time.Second-credit, b.Wait(now))
}

func TestAnotherRateHoldsAtOnce(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1)
	b := new(Bucket)
	require.LessOrEqual(t, b.Wait(now), time.Duration(0), "no limit")
	require.Equal(t, 1<<20, b.Chunk(1<<20))
	b.Set(1, now)
	b.Took(1<<20, now)
	require.Greater(t, b.Wait(now), 200*time.Hour)
	b.Set(1<<20, now)
	require.InDelta(t, time.Second-credit, b.Wait(now), float64(credit))
	b.Set(2<<20, now)
	require.InDelta(t, time.Second/2, b.Wait(now), float64(credit))
	b.Set(NoLimit, now)
	require.LessOrEqual(t, b.Wait(now), time.Duration(0))
	b.Took(1<<30, now)
	b.Set(1, now)
	require.LessOrEqual(t, b.Wait(now), time.Duration(0), "what went without a limit is not paid for")
}
