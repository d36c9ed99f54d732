package replication

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
)

const lag = 10_000

func brokers(ids ...model.BrokerID) []model.BrokerID { return ids }

// leading is broker 1 of three at log end 100, high watermark 90, leader epoch 4.
func leading(isr ...model.BrokerID) *Leader {
	return NewLeader(Start{Self: 1, LogEnd: 100, HighWatermark: 90},
		State{LeaderEpoch: 4, PartitionEpoch: 7, Replicas: brokers(1, 2, 3), ISR: isr}, 0)
}

func from(id model.BrokerID, end, stable model.Offset) Progress {
	return Progress{Member: Member{ID: id, Epoch: 5}, LogEnd: end, StableEnd: stable}
}

func members(p Proposal) (out []model.BrokerID) {
	for _, m := range p.ISR {
		out = append(out, m.ID)
	}
	return out
}

func TestTheHighWatermarkIsTheLowestStableEndOfTheISR(t *testing.T) {
	t.Parallel()
	l := leading(1, 2, 3)
	require.Equal(t, model.Offset(90), l.Advance(120, 2), "nobody was heard of")
	require.True(t, l.Fetched(from(2, 120, 110), 120, 1))
	require.Equal(t, model.Offset(90), l.Advance(120, 2))
	require.True(t, l.Fetched(from(3, 105, 105), 120, 1))
	require.Equal(t, model.Offset(105), l.Advance(120, 2))
	require.Equal(t, model.Offset(105), l.Advance(103, 2), "it never goes back")
	l.Fetched(from(3, 120, 112), 120, 2)
	require.Equal(t, model.Offset(108), l.Advance(108, 2), "what the leader itself has not synced is not committed")
}

func TestTheHighWatermarkStaysBelowMinISR(t *testing.T) {
	t.Parallel()
	l := leading(1)
	require.Equal(t, model.Offset(90), l.Advance(120, 2))
	require.Equal(t, model.Offset(120), l.Advance(120, 1))
	other := leading(2, 3)
	require.Equal(t, model.Offset(90), other.Advance(120, 1), "a leader out of its ISR commits nothing")
}

func TestAFollowerJoinsAtTheEpochsStartAndTheHighWatermark(t *testing.T) {
	t.Parallel()
	l := leading(1, 2)
	l.Fetched(from(2, 120, 120), 120, 1)
	require.Equal(t, model.Offset(120), l.Advance(120, 2))
	for _, x := range []struct {
		end, stable model.Offset
		joins       bool
	}{{99, 99, false}, {120, 119, false}, {120, 120, true}} {
		l.Fetched(from(3, x.end, x.stable), 120, 1)
		p, ok := l.Propose(120, 1, Rule{LagMs: lag})
		require.Equal(t, x.joins, ok, "%+v", x)
		if ok {
			require.Equal(t, Proposal{LeaderEpoch: 4, PartitionEpoch: 7, ISR: []Member{{ID: 1}, {2, 5}, {3, 5}}}, p)
		}
	}
	low := leading(1, 2)
	low.Fetched(from(3, 95, 95), 120, 1)
	_, ok := low.Propose(120, 1, Rule{LagMs: lag})
	require.False(t, ok, "above the high watermark, and below the start of the epoch")
}

func TestWhoIsToJoinCountsUntilThatIsDecided(t *testing.T) {
	t.Parallel()
	l := leading(1, 2)
	l.Fetched(from(2, 100, 100), 100, 1)
	l.Advance(100, 2)
	l.Fetched(from(3, 100, 100), 100, 1)
	p, ok := l.Propose(100, 1, Rule{LagMs: lag})
	require.True(t, ok)
	l.Fetched(from(2, 130, 130), 130, 2)
	require.Equal(t, model.Offset(100), l.Advance(130, 2), "the proposal may be committed")
	_, ok = l.Propose(130, 3, Rule{LagMs: lag})
	require.False(t, ok, "one at a time")
	l.Unanswered(p, 3)
	_, ok = l.Propose(130, 4, Rule{LagMs: lag})
	require.False(t, ok)
	closing, ok := l.Propose(130, 3+retryAfter, Rule{LagMs: lag})
	require.True(t, ok)
	require.Equal(t, Proposal{LeaderEpoch: 4, PartitionEpoch: 7, ISR: []Member{{ID: 1}, {2, 5}}}, closing, "what is committed, in a new partition epoch")
	l.Refused(closing, 500)
	require.Equal(t, model.Offset(100), l.Advance(130, 2), "maybe because the first one was committed")
	again, ok := l.Propose(130, 500+retryAfter, Rule{LagMs: lag})
	require.True(t, ok)
	require.Equal(t, closing, again)
	l.Update(State{LeaderEpoch: 4, PartitionEpoch: 8, Replicas: brokers(1, 2, 3), ISR: brokers(1, 2)}, 800)
	require.Equal(t, model.Offset(130), l.Advance(130, 2))
}

func TestARefusedProposalCountsNoMore(t *testing.T) {
	t.Parallel()
	l := leading(1, 2)
	l.Fetched(from(2, 100, 100), 100, 1)
	l.Advance(100, 2)
	l.Fetched(from(3, 100, 100), 100, 1)
	p, ok := l.Propose(100, 1, Rule{LagMs: lag})
	require.True(t, ok)
	l.Fetched(from(2, 130, 130), 130, 2)
	l.Refused(p, 3)
	require.Equal(t, model.Offset(130), l.Advance(130, 2))
	_, ok = l.Propose(130, 4, Rule{LagMs: lag})
	require.False(t, ok, "not at once again")
}

func TestWhoLeavesCountsUntilThatIsCommitted(t *testing.T) {
	t.Parallel()
	l := leading(1, 2, 3)
	l.Fetched(from(2, 120, 120), 120, 1)
	l.Fetched(from(2, 120, 120), 120, lag+1)
	p, ok := l.Propose(120, lag+1, Rule{LagMs: lag})
	require.True(t, ok)
	require.Equal(t, brokers(1, 2), members(p))
	require.Equal(t, model.Offset(90), l.Advance(120, 2), "the one that is gone may still be elected")
	l.Update(State{LeaderEpoch: 4, PartitionEpoch: 8, Replicas: brokers(1, 2, 3), ISR: brokers(1, 2)}, lag+2)
	require.Equal(t, model.Offset(120), l.Advance(120, 2))
	l.Update(State{LeaderEpoch: 4, PartitionEpoch: 7, Replicas: brokers(1, 2, 3), ISR: brokers(1, 2, 3)}, lag+3)
	require.Equal(t, 2, l.ISR(), "older metadata changes nothing")
}

func TestAFollowerIsInSyncWhileItReachesWhatWasThereAtItsFetchBefore(t *testing.T) {
	t.Parallel()
	l := leading(1, 2)
	end := model.Offset(100)
	for now := int64(1); now < 5*lag; now += lag / 4 { // always a little behind
		l.Fetched(from(2, end, end), end+50, now)
		end += 50
		_, ok := l.Propose(end, now, Rule{LagMs: lag})
		require.False(t, ok, "at %d", now)
	}
	slow := leading(1, 2)
	end = 100
	left := int64(0)
	for now := int64(1); now < 5*lag && left == 0; now += lag / 4 { // falls behind more and more
		slow.Fetched(from(2, end, end), model.Offset(100+now*10), now)
		end++
		if _, ok := slow.Propose(model.Offset(100+now*10), now, Rule{LagMs: lag}); ok {
			left = now
		}
	}
	require.Greater(t, left, int64(lag))
	unsynced := leading(1, 2)
	unsynced.Fetched(from(2, 120, 100), 120, 1)
	unsynced.Fetched(from(2, 120, 100), 120, lag+2)
	p, ok := unsynced.Propose(120, lag+2, Rule{LagMs: lag})
	require.True(t, ok, "its stable end does not follow")
	require.Equal(t, brokers(1), members(p))
}

func TestAnIdleFollowerStaysInSync(t *testing.T) {
	t.Parallel()
	l := leading(1, 2)
	l.Fetched(from(2, 100, 100), 100, 1)
	_, ok := l.Propose(100, 9*lag, Rule{LagMs: lag})
	require.False(t, ok, "it has all there is")
	l.Alive(Member{2, 5}, 100, 9*lag)
	_, ok = l.Propose(101, 9*lag+1, Rule{LagMs: lag})
	require.False(t, ok, "and was there a moment ago")
	_, ok = l.Propose(101, 10*lag+2, Rule{LagMs: lag})
	require.True(t, ok)
}

// The lag time is the one in force when a leader looks, so that a change needs no new leadership.
func TestAnotherLagTimeCountsAtOnce(t *testing.T) {
	t.Parallel()
	l := leading(1, 2, 3)
	l.Fetched(from(3, 130, 130), 130, 1500)
	_, ok := l.Propose(130, 2000, Rule{LagMs: 2000})
	require.False(t, ok)
	p, ok := l.Propose(130, 2000, Rule{LagMs: 1000})
	require.True(t, ok)
	require.Equal(t, brokers(1, 3), members(p))
}

// Who was fenced after it had caught up must not keep another from joining.
func TestWhoMayNotJoinIsNotProposed(t *testing.T) {
	t.Parallel()
	l := leading(1)
	l.Fetched(from(2, 120, 120), 120, 1)
	l.Fetched(from(3, 120, 120), 120, 1)
	gone := Rule{LagMs: lag, Fit: func(m Member) bool { return m != Member{2, 5} }}
	p, ok := l.Propose(120, 1, gone)
	require.True(t, ok)
	require.Equal(t, brokers(1, 3), members(p))
	l.Update(State{LeaderEpoch: 4, PartitionEpoch: 8, Replicas: brokers(1, 2, 3), ISR: brokers(1, 3)}, 2)
	_, ok = l.Propose(120, 2, gone)
	require.False(t, ok)
	p, ok = l.Propose(120, 3, Rule{LagMs: lag})
	require.True(t, ok)
	require.Equal(t, brokers(1, 2, 3), members(p))
}

func TestAnEarlierLifeOfANodeIsNotHeard(t *testing.T) {
	t.Parallel()
	l := leading(1, 2, 3)
	l.Fetched(from(2, 100, 100), 100, 1)
	l.Fetched(from(3, 100, 100), 100, 1)
	require.Equal(t, model.Offset(100), l.Advance(100, 2))
	newer := from(3, 100, 100)
	newer.Epoch = 6
	require.True(t, l.Fetched(newer, 140, 2))
	require.False(t, l.Fetched(from(3, 140, 140), 140, 3), "what an earlier life had synced says nothing of this one")
	l.Fetched(from(2, 140, 140), 140, 3)
	require.Equal(t, model.Offset(100), l.Advance(140, 2))
	require.False(t, l.Fetched(from(9, 1, 1), 140, 3), "no replica")
	l.Forget(Member{3, 6})
	newer.LogEnd, newer.StableEnd = 140, 140
	require.Equal(t, []FollowerState{{ID: 2, LogEnd: 140, StableEnd: 140, InSync: true}, {ID: 3, LogEnd: -1, StableEnd: -1, InSync: true, BehindMs: 3}}, l.Followers(140, 4))
	l.Fetched(newer, 140, 5)
	require.Equal(t, model.Offset(140), l.Advance(140, 2))
}

// KIP-107: what is deleted is deleted where the next leader may be.
func TestWhatIsDeletedIsGoneAtWhoeverMayLead(t *testing.T) {
	t.Parallel()
	l := leading(1, 2)
	at := func(id model.BrokerID, start model.Offset) {
		p := from(id, 120, 120)
		p.LogStart = start
		require.True(t, l.Fetched(p, 120, 1))
	}
	at(2, 0)
	require.False(t, l.Deleted(50))
	at(2, 49)
	require.False(t, l.Deleted(50))
	at(2, 50)
	require.True(t, l.Deleted(50))
	at(3, 49)
	_, ok := l.Propose(120, 1, Rule{LagMs: lag})
	require.False(t, ok, "it has what is deleted")
	at(3, 50)
	p, ok := l.Propose(120, 1, Rule{LagMs: lag})
	require.True(t, ok)
	at(2, 60)
	require.False(t, l.Deleted(60), "who is to join may lead soon")
	l.Refused(p, 2)
	require.True(t, l.Deleted(60))
	l.Forget(Member{2, 5})
	require.False(t, l.Deleted(60), "its log has to be compared anew")
}
