package partition

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
	"tidewire/storage/dedupe"
)

// once is a slice of a request with an Idempotency-Key.
func once(key byte, acks Acks, values ...string) *Slice {
	s := slice(acks, values...)
	s.Plain = false
	s.Once = &Once{Stamp: dedupe.Stamp{Key: dedupe.Key{key}, Payload: dedupe.Digest{key}, Time: 1000, Partitions: 1}}
	return s
}

func TestARepeatWaitsForWhatTheFirstHasAppended(t *testing.T) {
	t.Parallel()
	f := start(t, normal)
	require.NoError(t, f.BeginKeys())
	f.gate.shut()
	first, second, third := once(1, AcksAll, "a", "b"), once(1, AcksAll, "a", "b"), once(1, AcksLeader, "a", "b")
	c1, c2 := submit(f.Partition, first), submit(f.Partition, second)
	<-f.gate.waiting
	wait(t, submit(f.Partition, third))
	require.NoError(t, third.Err, "acks=leader waits for no sync")
	require.True(t, third.Duplicate)
	require.False(t, answered(c1) || answered(c2), "nothing is committed yet")
	state := f.Abandon(second)
	require.False(t, state.Done)
	require.True(t, state.Duplicate, "who gives up knows that a request is under way")
	f.gate.let(nil)
	wait(t, c1)
	wait(t, c2)
	require.NoError(t, first.Err)
	require.False(t, first.Duplicate)
	require.NoError(t, second.Err)
	require.True(t, second.Duplicate)
	require.Equal(t, first.Base, second.Base)
	require.Equal(t, [][]string{{"a", "b"}}, f.batches(t))
}

func TestFiftyRepeatsAtOneTimeAppendOnce(t *testing.T) {
	t.Parallel()
	f := start(t, normal)
	var wg sync.WaitGroup
	slices := make([]*Slice, 50)
	for i := range slices {
		slices[i] = once(2, AcksAll, "x")
		wg.Go(func() { <-submit(f.Partition, slices[i]).Done() })
	}
	wg.Wait()
	fresh := 0
	for _, s := range slices {
		require.NoError(t, s.Err)
		require.EqualValues(t, 0, s.Base)
		if !s.Duplicate {
			fresh++
		}
	}
	require.Equal(t, 1, fresh)
	require.Equal(t, [][]string{{"x"}}, f.batches(t))
}

func TestARepeatIsAnsweredThoughRecordsAreNotTaken(t *testing.T) {
	t.Parallel()
	f := start(t, normal)
	wait(t, submit(f.Partition, once(1, AcksAll, "a")))
	f.SetLeadership(Leadership{Leader: true, Epoch: 7, ISR: 0}) // too few in sync
	again, other := once(1, AcksAll, "a"), once(2, AcksAll, "b")
	wait(t, submit(f.Partition, again))
	require.NoError(t, again.Err)
	wait(t, submit(f.Partition, other))
	require.True(t, model.HasCode(other.Err, model.NotEnoughReplicas), "%v", other.Err)

	full := model.Errorf(model.StorageFull, "full")
	again, other = once(1, AcksAll, "a"), once(3, AcksAll, "b")
	again.Once.Refusal, other.Once.Refusal = full, full
	wait(t, submit(f.Partition, again))
	require.NoError(t, again.Err)
	wait(t, submit(f.Partition, other))
	require.ErrorIs(t, other.Err, full)

	reused := once(1, AcksAll, "a")
	reused.Once.Payload = dedupe.Digest{9}
	wait(t, submit(f.Partition, reused))
	require.True(t, model.HasCode(reused.Err, model.IdempotencyKeyReused), "%v", reused.Err)
	require.Equal(t, [][]string{{"a"}}, f.batches(t))

	f.SetLeadership(Leadership{Epoch: 8})
	again = once(1, AcksAll, "a")
	wait(t, submit(f.Partition, again))
	require.True(t, model.HasCode(again.Err, model.LeaderUnavailable), "only the leader knows: %v", again.Err)
	_, _, err := f.FindKey(dedupe.Key{1})
	require.True(t, model.HasCode(err, model.LeaderUnavailable), "%v", err)
}

func TestSlicesWithAKeyShareNoBatch(t *testing.T) {
	t.Parallel()
	f := start(t, normal)
	f.gate.shut()
	plain := submit(f.Partition, slice(AcksAll, "p"))
	<-f.gate.waiting
	late, keyed, later := submit(f.Partition, slice(AcksAll, "q")), submit(f.Partition, once(1, AcksAll, "k", "l")), submit(f.Partition, slice(AcksAll, "r"))
	f.gate.let(nil)
	for _, c := range []*Completion{plain, late, keyed, later} {
		wait(t, c)
	}
	require.Equal(t, [][]string{{"p"}, {"q"}, {"k", "l"}, {"r"}}, f.batches(t))
}
