package budget

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidewire/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func take(t *testing.T, b *Budget, owner string, n int64) *Grant {
	t.Helper()
	g, err := b.Take(t.Context(), owner, n, time.Second)
	require.NoError(t, err)
	return g
}

// later takes in the background.
func later(b *Budget, owner string, n int64) <-chan *Grant {
	out := make(chan *Grant, 1)
	go func() {
		g, _ := b.Take(context.Background(), owner, n, 0)
		out <- g
	}()
	synctest.Wait()
	return out
}

func granted(c <-chan *Grant) *Grant {
	synctest.Wait()
	select {
	case g := <-c:
		return g
	default:
		return nil
	}
}

func TestMemoryIsNeverGivenTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New("x-memory", 100)
		a, c := take(t, b, "a", 60), take(t, b, "b", 40)
		require.EqualValues(t, 100, b.Used())
		waiting := later(b, "c", 30)
		require.Nil(t, granted(waiting))
		c.Release()
		c.Release()
		g := granted(waiting)
		require.NotNil(t, g)
		require.EqualValues(t, 90, b.Used())
		a.Release()
		g.Release()
		require.Zero(t, b.Used())
		require.Empty(t, b.owners)
	})
}

func TestWhoFindsNoMemoryIsRefusedAfterItsPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New("x-memory", 100)
		g := take(t, b, "a", 75)
		began := time.Now()
		_, err := b.Take(t.Context(), "b", 50, 5*time.Second)
		require.True(t, model.HasCode(err, model.RateLimited), "%v", err)
		require.Contains(t, model.AsError(err).Detail, "x-memory")
		require.Positive(t, model.AsError(err).RetryAfter)
		require.Equal(t, 5*time.Second, time.Since(began))
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("the client is gone")
		cancel(gone)
		_, err = b.Take(ctx, "b", 50, 0)
		require.ErrorIs(t, err, gone)
		g.Release()
		require.Empty(t, b.queue)
		require.Empty(t, b.owners)
	})
}

func TestOneOwnerLeavesRoomForOthersAndHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New("x-memory", 100)
		greedy := take(t, b, "greedy", 1000)
		require.EqualValues(t, 75, greedy.Bytes())
		require.True(t, greedy.Alone())
		more := later(b, "greedy", 10)
		require.Nil(t, granted(more))
		other := granted(later(b, "other", 20))
		require.NotNil(t, other, "behind one who waits for its own share")
		greedy.Release()
		require.NotNil(t, granted(more))
	})
}

func TestALargeOneIsNotOvertakenForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New("x-memory", 100)
		first := take(t, b, "a", 50)
		large := later(b, "b", 60)
		small := later(b, "c", 10)
		require.Nil(t, granted(large))
		require.Nil(t, granted(small), "it came behind the large one")
		require.False(t, first.Grow(1), "nor does one grow past it")
		first.Release()
		require.NotNil(t, granted(large))
		require.NotNil(t, granted(small))
	})
}

func TestWhoGivesUpLetsThoseBehindIn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New("x-memory", 100)
		_ = take(t, b, "a", 50)
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := b.Take(ctx, "b", 60, 0)
			failed <- err
		}()
		synctest.Wait()
		small := later(b, "c", 10)
		require.Nil(t, granted(small))
		cancel()
		require.ErrorIs(t, <-failed, context.Canceled)
		require.NotNil(t, granted(small))
	})
}

func TestAGrantGrowsOnlyIntoWhatIsFree(t *testing.T) {
	t.Parallel()
	b := New("x-memory", 100)
	g := take(t, b, "a", 50)
	require.True(t, g.Grow(25))
	require.False(t, g.Grow(1), "beyond an owner's share")
	require.EqualValues(t, 75, g.Bytes())
	require.False(t, take(t, b, "b", 20).Grow(6), "beyond the whole")
	g.Release()
	require.EqualValues(t, 20, b.Used())
}

func TestTooManyWaitersOfOneOwnerAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New("x-memory", 100)
		g := take(t, b, "a", 75)
		ctx, cancel := context.WithCancel(t.Context())
		for range maxWaiting {
			go func() { _, _ = b.Take(ctx, "a", 1, 0) }()
		}
		synctest.Wait()
		_, err := b.Take(ctx, "a", 1, 0)
		require.True(t, model.HasCode(err, model.RateLimited), "%v", err)
		other, err := b.Take(ctx, "b", 1, time.Second)
		require.NoError(t, err)
		cancel()
		synctest.Wait()
		require.Empty(t, b.queue)
		other.Release()
		g.Release()
	})
}
