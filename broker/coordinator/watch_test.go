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
