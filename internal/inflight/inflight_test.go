package inflight

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
)

func TestWhatDoesNotFitIsRefusedAndHoldsNothing(t *testing.T) {
	t.Parallel()
	b := New(100)
	first, second := b.Hold(), b.Hold()
	require.NoError(t, first.Grow(60))
	require.NoError(t, first.Grow(50), "it holds enough")
	err := second.Grow(41)
	require.True(t, model.HasCode(err, model.RateLimited))
	require.Positive(t, model.AsError(err).RetryAfter)
	require.EqualValues(t, 60, b.Used())
	require.EqualValues(t, 1, b.Refused())
	require.NoError(t, second.Grow(40))
	require.Error(t, second.Grow(41))
	require.EqualValues(t, 100, b.Used())
	first.Release()
	first.Release()
	require.EqualValues(t, 40, b.Used())
	require.NoError(t, second.Grow(1000), "it has the node for itself")
	require.Error(t, first.Grow(1))
	second.Release()
	require.Zero(t, b.Used())
}

func TestWithoutBudgetNothingIsRefused(t *testing.T) {
	t.Parallel()
	var b *Budget
	h := b.Hold()
	require.NoError(t, h.Grow(1<<60))
	h.Release()
	require.Zero(t, b.Used()+b.Refused())
}

func TestTheBudgetIsNeverPassedByManyAtOnce(t *testing.T) {
	t.Parallel()
	b := New(1000)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				h := b.Hold()
				if h.Grow(300) == nil {
					if used := b.Used(); used > 1000+8*300 { // those being refused are counted for a moment
						t.Errorf("%d bytes are held", used)
					}
				}
				h.Release()
			}
		})
	}
	wg.Wait()
	require.Zero(t, b.Used())
}
