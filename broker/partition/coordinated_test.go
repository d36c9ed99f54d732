package partition

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
)

// What an engine writes on the strength of what it has read belongs to the leadership in which
// it has read it.
func TestASliceOfAnotherLeaderEpochIsNotAppended(t *testing.T) {
	t.Parallel()
	f := start(t, normal)
	within := func(e model.LeaderEpoch) *Slice {
		s := slice(AcksAll, "a")
		s.Within = &e
		wait(t, submit(f.Partition, s))
		return s
	}
	require.NoError(t, within(7).Err)
	for _, epoch := range []model.LeaderEpoch{6, 8} {
		s := within(epoch)
		require.True(t, model.HasCode(s.Err, model.LeaderUnavailable), "%v", s.Err)
		require.Equal(t, model.NotApplied, model.AsError(s.Err).EffectiveOutcome())
	}
	require.EqualValues(t, 1, f.Bounds().LogEnd)
	f.SetLeadership(Leadership{Leader: true, Epoch: 9, ISR: 1})
	require.Error(t, within(7).Err)
	require.NoError(t, within(9).Err)
	require.EqualValues(t, 9, f.Leadership().Epoch)
}

func TestAWholeSliceIsOneBatchOrRefused(t *testing.T) {
	t.Parallel()
	f := start(t, Settings{MaxMessageBytes: 1000, MinInsyncReplicas: 1})
	s := slice(AcksAll, strings.Repeat("a", 600), strings.Repeat("b", 600))
	s.Whole = true
	wait(t, submit(f.Partition, s))
	require.True(t, model.HasCode(s.Err, model.RecordTooLarge), "%v", s.Err)
	require.Zero(t, f.Bounds().LogEnd)
	s = slice(AcksAll, strings.Repeat("a", 400), strings.Repeat("b", 400))
	s.Whole = true
	wait(t, submit(f.Partition, s))
	require.NoError(t, s.Err)
	require.Len(t, f.batches(t), 1)
}

func TestACallbackComesOnceAllSlicesHaveEnded(t *testing.T) {
	t.Parallel()
	f := start(t, normal)
	f.gate.shut()
	called := make(chan struct{}, 2)
	c := NewCallback(2, func() { called <- struct{}{} })
	a, b := slice(AcksAll, "a"), slice(AcksAll, "b")
	f.Submit(a, c)
	<-f.gate.waiting
	f.Submit(b, c)
	require.Empty(t, called)
	f.gate.let(nil)
	<-called
	require.NoError(t, a.Err)
	require.NoError(t, b.Err)
	require.Empty(t, called)
}

// A leader that leads on in another epoch has the same log: what waits goes on to, and what is
// open is appended in the epoch that it was admitted to.
func TestWhatWaitsOutlivesAnEpochOfTheSameLeader(t *testing.T) {
	t.Parallel()
	f := start(t, normal)
	f.gate.shut()
	appended, open := slice(AcksAll, "a"), slice(AcksAll, "b")
	c1 := submit(f.Partition, appended)
	<-f.gate.waiting
	c2 := submit(f.Partition, open)
	f.SetLeadership(Leadership{Leader: true, Epoch: 8, ISR: 1})
	f.gate.let(nil)
	wait(t, c1)
	wait(t, c2)
	require.NoError(t, appended.Err)
	require.NoError(t, open.Err)
	after := slice(AcksAll, "c")
	wait(t, submit(f.Partition, after))
	require.NoError(t, after.Err)
	epoch, end := f.log.EpochEnd(7)
	require.EqualValues(t, 7, epoch)
	require.EqualValues(t, 2, end)
	require.EqualValues(t, 3, f.Bounds().HighWatermark)
}
