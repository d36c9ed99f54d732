package coordinator

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
)

// A watch is called when a round may tell something new: the assignment has changed, or
// another call of the member has taken its place. Its rounds wait for nothing.
func TestAWatchCallsWhenThereIsSomethingNewForTheMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 2)
		one, err := n.Join(t.Context(), joining("g", "t"))
		require.NoError(t, err)
		calls := 0
		w := n.Watch("g", one.Member.ID, func() { calls++ })
		defer w.Close()
		called := func() bool {
			<-time.After(time.Second)
			synctest.Wait()
			was := calls
			calls = 0
			return was > 0
		}
		round := func() *PollResult {
			began := time.Now()
			res, err := n.Poll(t.Context(), &PollRequest{Group: "g", Member: one.Member.ID, Caller: caller, MinBytes: 1, Stream: true, Grace: 5 * time.Second, Watch: w}, nil)
			require.NoError(t, err)
			require.Zero(t, time.Since(began))
			return res
		}
		round()
		called()
		require.Len(t, round().Assignment.Held, 2)
		require.False(t, called(), "nothing is new")

		two, err := n.Join(t.Context(), joining("g", "t"))
		require.NoError(t, err)
		require.True(t, called())
		res := round()
		require.Len(t, res.Assignment.Held, 1)
		require.Len(t, res.Assignment.Revoking, 1)
		require.NoError(t, n.Leave(t.Context(), "g", two.Member.ID, ""))
		require.True(t, called())

		again, err := n.Resume(t.Context(), "g", one.Member.ID)
		require.NoError(t, err)
		require.Equal(t, one.Member, again.Member)
		require.Equal(t, one.Assignor, again.Assignor)
		other := n.Watch("g", one.Member.ID, func() {})
		defer other.Close()
		_, err = n.Poll(t.Context(), &PollRequest{Group: "g", Member: one.Member.ID, Caller: caller, MinBytes: 1, Stream: true, Watch: other}, nil)
		require.NoError(t, err)
		require.True(t, called(), "another has taken its place")
		require.Equal(t, EndReplaced, round().End)
		require.Equal(t, EndReplaced, round().End, "and keeps it")
		require.False(t, called())

		_, err = n.Resume(t.Context(), "g", "m-never")
		require.True(t, model.HasCode(err, model.UnknownMember))
	})
}

// A seat keeps its place between its rounds: a read of the member that comes there ends it, though
// that read is over when the next round begins, and is not ended by it while it lasts.
func TestASeatsPlaceIsTakenBetweenItsRoundsToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 1)
		one, err := n.Join(t.Context(), joining("g", "t"))
		require.NoError(t, err)
		poll := func(wait time.Duration, w *Watch) *PollResult {
			res, err := n.Poll(t.Context(), &PollRequest{Group: "g", Member: one.Member.ID, Caller: caller, Wait: wait, MaxRecords: 10, MaxBytes: 1 << 20, MinBytes: 1, Stream: w != nil, Grace: 5 * time.Second, Watch: w}, nil)
			require.NoError(t, err)
			return res
		}
		seat := n.Seat("g", one.Member.ID)
		poll(10*time.Second, seat) // until it has its partition
		began := time.Now()
		require.Equal(t, EndRecords, poll(10*time.Second, seat).End)
		require.Equal(t, 10*time.Second, time.Since(began), "its rounds wait")
		require.Equal(t, EndRecords, poll(0, nil).End)
		for _, wait := range []time.Duration{10 * time.Second, 0} {
			began = time.Now()
			require.Equal(t, EndReplaced, poll(wait, seat).End)
			require.Zero(t, time.Since(began))
		}
		seat.Close()

		seat = n.Seat("g", one.Member.ID)
		defer seat.Close()
		poll(0, seat)
		longer := make(chan End)
		go func() { longer <- poll(10*time.Second, nil).End }()
		synctest.Wait()
		require.Equal(t, EndReplaced, poll(time.Second, seat).End)
		require.Equal(t, EndRecords, <-longer, "the newer read goes on")

		ended := make(chan End)
		next := n.Seat("g", one.Member.ID)
		defer next.Close()
		poll(0, next)
		go func() { ended <- poll(time.Minute, next).End }()
		synctest.Wait()
		began = time.Now()
		poll(0, nil)
		require.Equal(t, EndReplaced, <-ended, "as while a round waits")
		require.Zero(t, time.Since(began), "and at once")
	})
}
