package coordinator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/broker"
	"tidewire/broker/group"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// polled is a poll that goes on in the background.
type polled struct {
	got
	err  error
	done chan struct{}
	took time.Duration
}

func (m *member) background(req *PollRequest) *polled {
	p := &polled{done: make(chan struct{})}
	began := time.Now()
	go func() {
		defer close(p.done)
		p.got, p.err = m.try(m.n.t.Context(), req)
		p.took = time.Since(began)
	}()
	synctest.Wait()
	return p
}

func (p *polled) waiting() bool {
	synctest.Wait()
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func TestAMemberReadsItsPartitionsAndGoesOnByItsCursor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 2)
		n.produce("t", 0, "a", "b")
		n.produce("t", 1, "c")
		m := n.join(joining("g", "t"))
		first := m.poll(5 * time.Second)
		require.ElementsMatch(t, []string{"t/0/0=a", "t/0/1=b", "t/1/0=c"}, first.records)
		require.Equal(t, "t/0 t/1", heldOf(first.Assignment))
		require.Equal(t, []model.Offset{2, 1}, []model.Offset{first.Positions[0].Next, first.Positions[1].Next})
		again := *m
		again.cursor = ""
		require.ElementsMatch(t, first.records, again.poll(0).records, "without cursor a poll repeats")
		require.Empty(t, m.poll(0).records)
		n.produce("t", 1, "d")
		before := m.cursor
		require.Equal(t, []string{"t/1/1=d"}, m.poll(time.Second).records)
		m.cursor = before
		require.Equal(t, []string{"t/1/1=d"}, m.poll(time.Second).records, "a lost answer loses nothing")
	})
}

func TestAWaitingPollEndsAtOnceOnRecords(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 3)
		m := n.join(joining("g", "t"))
		settle(t, m)
		p := m.background(m.request(time.Minute))
		pass(20 * time.Second)
		require.True(t, p.waiting(), "a waiting poll is a heartbeat: longer than the session")
		n.produce("t", 2, "x")
		require.False(t, p.waiting())
		require.NoError(t, p.err)
		require.Equal(t, []string{"t/2/0=x"}, p.records)
		require.Less(t, p.took, 21*time.Second)
		require.Equal(t, !n.keeps, n.slept.Load() > 0)
		require.NoError(t, n.Heartbeat(t.Context(), "g", m.id))
	})
}

func TestAPollAnswersEmptyWhenItsTimeIsOver(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 1)
		m := n.join(joining("g", "t"))
		settle(t, m)
		p := m.background(m.request(30 * time.Second))
		pass(30 * time.Second)
		require.False(t, p.waiting())
		require.NoError(t, p.err)
		require.Empty(t, p.records)
		require.Equal(t, EndRecords, p.End)
		require.Equal(t, 30*time.Second, p.took)
	})
}

func TestMinBytesAreWaitedFor(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 2)
		m := n.join(joining("g", "t"))
		settle(t, m)
		req := m.request(time.Minute)
		req.MinBytes = 10
		p := m.background(req)
		n.produce("t", 0, "12345")
		require.True(t, p.waiting())
		n.produce("t", 1, "67890")
		require.False(t, p.waiting())
		require.Len(t, p.records, 2, "bytes count over all partitions")
	})
}

// A second poll of a member ends the first, which is answered without records.
func TestALaterPollTakesThePlaceOfTheFormer(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 1)
		m := n.join(joining("g", "t"))
		settle(t, m)
		first := m.background(m.request(time.Minute))
		second := m.background(m.request(time.Minute))
		require.False(t, first.waiting())
		require.NoError(t, first.err)
		require.Equal(t, EndReplaced, first.End)
		require.Empty(t, first.records)
		require.Equal(t, "t/0", heldOf(first.Assignment))
		require.True(t, second.waiting())
		n.produce("t", 0, "x")
		require.False(t, second.waiting())
		require.Equal(t, []string{"t/0/0=x"}, second.records)
	})
}

func TestAWaitingPollEndsWhenItsMemberDoes(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 1)
		m := n.join(joining("g", "t"))
		settle(t, m)
		p := m.background(m.request(time.Minute))
		require.NoError(t, n.Leave(t.Context(), "g", m.id, ""))
		require.False(t, p.waiting())
		code(t, model.UnknownMember, p.err)

		static := joining("g", "t")
		static.InstanceID = "i"
		m = n.join(static)
		settle(t, m)
		p = m.background(m.request(time.Minute))
		static.TakeOver = true
		n.join(static)
		require.False(t, p.waiting())
		code(t, model.Fenced, p.err)
	})
}

func TestTheNodesStopAnswersWaitingPolls(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 1)
		m := n.join(joining("g", "t"))
		settle(t, m)
		p := m.background(m.request(time.Minute))
		n.Drain()
		require.False(t, p.waiting())
		require.NoError(t, p.err)
		require.Equal(t, EndStopping, p.End)
		require.NotEmpty(t, p.Cursor)
	})
}

func TestAStreamsWaitIsInterrupted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 1)
		m := n.join(joining("g", "t"))
		settle(t, m)
		req := m.request(time.Minute)
		stop := make(chan struct{})
		req.Stream, req.Interrupt = true, stop
		p := m.background(req)
		close(stop)
		require.False(t, p.waiting())
		require.NoError(t, p.err)
	})
}

// A client whose connection is cut while its poll waits has been alive until then, and no
// longer.
func TestAMemberLivesItsSessionAfterACutPoll(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 1)
		m := n.join(joining("g", "t"))
		settle(t, m)
		ctx, cut := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := m.try(ctx, m.request(time.Minute))
			done <- err
		}()
		pass(20 * time.Second)
		cut()
		require.ErrorIs(t, <-done, context.Canceled)
		pass(9 * time.Second)
		_, err := n.Member(t.Context(), "g", m.id)
		require.NoError(t, err)
		pass(2 * time.Second)
		_, err = n.Member(t.Context(), "g", m.id)
		code(t, model.MemberExpired, err)
	})
}

// The hand-over: what is revoked gives no more records at once, may be committed, and its next
// owner begins at the commit, once it is released. What does not move goes on.
func TestAPartitionIsHandedOverAtItsCommittedOffset(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 2)
		n.produce("t", 0, "a0", "a1")
		n.produce("t", 1, "b0", "b1")
		one := n.join(joining("g", "t"))
		require.Len(t, one.poll(time.Second).records, 4)
		waiting := one.background(one.request(time.Minute))
		two := n.join(joining("g", "t"))
		pass(time.Second)
		require.False(t, waiting.waiting(), "a revocation ends the wait")
		require.Equal(t, EndChanged, waiting.End)
		require.Len(t, waiting.Assignment.Revoking, 1)
		moved := waiting.Assignment.Revoking[0]
		n.produce("t", 0, "a2")
		n.produce("t", 1, "b2")
		require.Empty(t, two.poll(0).records, "nobody has it yet")
		_, err := n.Commit(t.Context(), "g", group.CommitRequest{Member: one.id, Offsets: []group.CommitOffset{
			{Name: group.Name{Topic: "t", Partition: moved.Index}, Next: 1, Epoch: model.NoEpoch},
		}})
		require.NoError(t, err, "what is being revoked may be committed")
		one.cursor = waiting.Cursor
		kept := one.poll(0)
		require.Len(t, kept.records, 1)
		require.NotContains(t, kept.records[0], fmt.Sprintf("t/%d/", moved.Index))
		got := two.poll(5 * time.Second)
		require.Len(t, got.records, 2)
		require.Contains(t, got.records[0], fmt.Sprintf("t/%d/1=", moved.Index), "the next owner begins at the committed offset")
		_, err = n.Commit(t.Context(), "g", group.CommitRequest{Member: one.id, Offsets: []group.CommitOffset{
			{Name: group.Name{Topic: "t", Partition: moved.Index}, Next: 3, Epoch: model.NoEpoch},
		}})
		e := code(t, model.NotOwner, err)
		require.Contains(t, fmt.Sprint(e.Extra["partitions"]), "t")
		require.Equal(t, model.Offset(1), n.committed("g", "t", moved.Index), "a commit of a foreign partition changes nothing")
	})
}

// committed is a committed offset, or group.NoOffset.
func (n *node) committed(groupID, topic string, p model.PartitionID) model.Offset {
	n.t.Helper()
	list, err := n.Offsets(n.t.Context(), groupID, nil)
	if model.HasCode(err, model.UnknownGroup) {
		return group.NoOffset
	}
	require.NoError(n.t, err)
	for _, o := range list {
		if o.Topic == topic && o.Partition == p {
			return o.Next
		}
	}
	return group.NoOffset
}

func TestAutoCommitCommitsWhatALaterCursorCovers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 1)
		req := joining("g", "t")
		req.AutoCommit = true
		m := n.join(req)
		settle(t, m)
		n.produce("t", 0, "a")
		require.Len(t, m.poll(0).records, 1)
		require.Equal(t, model.Offset(0), n.committed("g", "t", 0), "the last poll's records are not committed")
		n.produce("t", 0, "b")
		require.Len(t, m.poll(0).records, 1)
		require.Equal(t, model.Offset(1), n.committed("g", "t", 0))
		require.NoError(t, n.Leave(t.Context(), "g", m.id, m.cursor))
		require.Equal(t, model.Offset(2), n.committed("g", "t", 0), "leaving with a cursor commits it")
	})
}

// A stream's polls release nothing by their cursors.
func TestAStreamReleasesWhatItSaysItReleases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 2)
		one := n.join(joining("g", "t"))
		settle(t, one)
		two := n.join(joining("g", "t"))
		pass(time.Second)
		round := func(grace time.Duration) got {
			req := one.request(0)
			req.Stream, req.Grace = true, grace
			g, err := one.try(t.Context(), req)
			require.NoError(t, err)
			one.cursor = g.Cursor
			return g
		}
		require.Len(t, round(5*time.Second).Assignment.Revoking, 1)
		revoking := round(5 * time.Second).Assignment.Revoking
		require.Len(t, revoking, 1)
		require.NoError(t, n.Release(t.Context(), "g", one.id, []group.Name{{Topic: "t", Partition: revoking[0].Index}}))
		require.Equal(t, fmt.Sprintf("t/%d", revoking[0].Index), heldOf(two.poll(time.Second).Assignment))
	})
}

func TestAStreamsPartitionIsReleasedWhenItsGraceIsOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 2)
		one := n.join(joining("g", "t"))
		settle(t, one)
		two := n.join(joining("g", "t"))
		pass(time.Second)
		req := one.request(0)
		req.Stream, req.Grace = true, 5*time.Second
		g, err := one.try(t.Context(), req)
		require.NoError(t, err)
		require.Len(t, g.Assignment.Revoking, 1)
		p := two.background(two.request(time.Minute))
		pass(4900 * time.Millisecond)
		require.True(t, p.waiting())
		pass(200 * time.Millisecond)
		require.False(t, p.waiting())
		require.Len(t, p.Assignment.Held, 1)
	})
}

func TestPositionsOutOfRangeGoByTheResetPolicy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 1)
		n.produce("t", 0, "a", "b", "c")
		put := func(groupID string, next model.Offset) {
			_, err := n.PutOffsets(t.Context(), groupID, []group.CommitOffset{{Name: group.Name{Topic: "t"}, Next: next, Epoch: model.NoEpoch}})
			require.NoError(t, err)
		}
		for policy, want := range map[group.ResetPolicy]string{group.Earliest: "t/0/0=a t/0/1=b t/0/2=c", group.Latest: ""} {
			id := "g-" + string(policy)
			put(id, 99)
			req := joining(id, "t")
			req.Reset = policy
			m := n.join(req)
			require.Equal(t, want, strings.Join(m.poll(time.Second).records, " "))
		}
		put("g-none", 99)
		req := joining("g-none", "t")
		req.Reset = group.Never
		m := n.join(req)
		_, err := m.try(t.Context(), m.request(time.Second))
		e := code(t, model.OffsetOutOfRange, err)
		require.Equal(t, []group.OutOfRange{{Topic: "t", Partition: 0, Earliest: 0, Latest: 3}}, e.Extra["partitions"])
		require.Equal(t, model.Offset(99), n.committed("g-none", "t", 0))
	})
}

func TestLatestSkipsNothingBetweenTwoPolls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 1)
		n.produce("t", 0, "old")
		req := joining("g", "t")
		req.Reset = group.Latest
		m := n.join(req)
		settle(t, m)
		require.Equal(t, model.Offset(1), n.committed("g", "t", 0), "resolved once, and stored")
		m.cursor = ""
		n.produce("t", 0, "new")
		require.Equal(t, []string{"t/0/1=new"}, m.poll(0).records)
	})
}

func TestTopicsAndPartitionsThatAppearAreReadFromTheirStart(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 1)
		req := joining("g", "t", "later")
		req.Reset = group.Latest
		m := n.join(req)
		settle(t, m)
		p := m.background(m.request(time.Minute))
		n.topic("later", 1)
		n.produce("later", 0, "x")
		pass(time.Second)
		require.False(t, p.waiting(), "a new topic ends the wait")
		require.Equal(t, "later/0 t/0", heldOf(p.Assignment))
		m.cursor = p.Cursor
		require.Equal(t, []string{"later/0/0=x"}, append(p.records, m.poll(0).records...))
		_, err := n.broker.GrowTopic(t.Context(), caller, broker.Growth{Topic: "t", Partitions: 2})
		require.NoError(t, err)
		n.produce("t", 1, "y")
		pass(time.Second)
		require.Equal(t, []string{"t/1/0=y"}, m.poll(time.Second).records)
	})
}

func TestATopicThatIsMadeAnewHasNoOffsetsOfTheFormer(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 1)
		n.produce("t", 0, "a", "b")
		m := n.join(joining("g", "t"))
		require.Len(t, m.poll(time.Second).records, 2)
		_, err := n.CommitCursor(t.Context(), "g", m.id, m.cursor)
		require.NoError(t, err)
		require.NoError(t, n.broker.DeleteTopic(t.Context(), caller, "t", ""))
		pass(time.Second)
		require.Equal(t, group.NoOffset, n.committed("g", "t", 0))
		n.topic("t", 1)
		n.produce("t", 0, "c")
		pass(time.Second)
		_, err = n.CommitCursor(t.Context(), "g", m.id, m.cursor)
		require.NoError(t, err)
		require.Equal(t, group.NoOffset, n.committed("g", "t", 0), "a late commit is of the former topic")
		require.Equal(t, []string{"t/0/0=c"}, m.poll(time.Second).records)
	})
}

func TestWhatTheCallerMayNotReadIsNotGiven(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("open", 1)
		n.topic("shut", 1)
		n.produce("open", 0, "a")
		n.produce("shut", 0, "b")
		n.rights.closed.Store("shut", true)
		named := n.join(joining("named", "open", "shut"))
		pass(time.Second)
		_, err := named.try(t.Context(), named.request(time.Second))
		code(t, model.Forbidden, err)
		req := joining("pattern")
		req.Pattern = "open|shut"
		m := n.join(req)
		require.Equal(t, []string{"open/0/0=a"}, m.poll(time.Second).records, "of what a pattern matches the rest is read")
		n.rights.closed.Delete("shut")
		require.Equal(t, []string{"shut/0/0=b"}, m.poll(0).records)
	})
}

func TestAWaitingPollEndsWhenItsRightGoes(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 1)
		m := n.join(joining("g", "t"))
		settle(t, m)
		p := m.background(m.request(time.Minute))
		n.rights.closed.Store("g", true)
		n.topic("other", 1) // a change of the metadata that wakes guards, as a rule would
		pass(time.Second)
		require.False(t, p.waiting())
		code(t, model.Forbidden, p.err)
	})
}

func TestManyPartitionsShareAPage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 4)
		values := slices.Repeat([]string{"v"}, 300)
		for p := range 4 {
			n.produce("t", p, values...)
		}
		m := n.join(joining("g", "t"))
		settle(t, m)
		m.cursor = ""
		req := m.request(0)
		req.MaxRecords = 400
		g, err := m.try(t.Context(), req)
		require.NoError(t, err)
		require.Len(t, g.records, 400)
		per := map[string]int{}
		for _, r := range g.records {
			per[r[:3]]++
		}
		require.Equal(t, map[string]int{"t/0": 100, "t/1": 100, "t/2": 100, "t/3": 100}, per)
		m.cursor = g.Cursor
		require.Len(t, m.poll(0).records, 500)
		require.Len(t, m.poll(0).records, 300)
		require.Empty(t, m.poll(0).records)
	})
}

func TestTheFirstRecordComesWholeAndNoOtherExceedsThePage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 2)
		for p := range 2 {
			n.produce("t", p, strings.Repeat("x", 1000))
		}
		m := n.join(joining("g", "t"))
		pass(time.Second)
		req := m.request(time.Second)
		req.MaxBytes = 100
		total := 0
		for range 2 {
			g, err := m.try(t.Context(), req)
			require.NoError(t, err)
			require.Len(t, g.records, 1)
			req.Cursor = g.Cursor
			total++
		}
		req.Wait = 0
		g, err := m.try(t.Context(), req)
		require.NoError(t, err)
		require.Empty(t, g.records)
	})
}

func TestPausedPartitionsArePassedOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 2)
		n.produce("t", 0, "a")
		n.produce("t", 1, "b")
		m := n.join(joining("g", "t"))
		pass(time.Second)
		req := m.request(0)
		req.Paused = func(p group.Held) bool { return p.Index == 0 }
		g, err := m.try(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, []string{"t/1/0=b"}, g.records)
		m.cursor = g.Cursor
		require.Equal(t, []string{"t/0/0=a"}, m.poll(0).records)
	})
}

func TestAMemberOfTwoThousandPartitions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 2000)
		m := n.join(joining("g", "t"))
		settle(t, m)
		require.Less(t, len(m.cursor), 16<<10, "fits into a header")
		p := m.background(m.request(time.Minute))
		require.True(t, p.waiting())
		n.produce("t", 1999, "x")
		require.False(t, p.waiting())
		require.NoError(t, p.err)
		require.Equal(t, []string{"t/1999/0=x"}, p.records)
		committed, err := n.CommitCursor(t.Context(), "g", m.id, p.Cursor)
		require.NoError(t, err)
		require.Len(t, committed, 2000)
		require.Equal(t, model.Offset(1), n.committed("g", "t", 1999))
	})
}

// What changes between two polls of a member is told by the later one at once: what is to be
// revoked is not kept for as long as it waits.
func TestAChangeBetweenTwoPollsIsToldAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 2)
		m := n.join(joining("g", "t"))
		settle(t, m)
		n.join(joining("g", "t"))
		pass(time.Second)
		p := m.background(m.request(time.Minute))
		pass(0)
		require.False(t, p.waiting(), "it names what is being revoked")
		require.NoError(t, p.err)
		require.Equal(t, EndChanged, p.End)
		require.Len(t, p.Assignment.Revoking, 1)
	})
}

// A read that ends by an error has given what it has given: the cursor is behind that.
func TestWhatWasGivenBeforeAReadFailedIsNotGivenAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		n.topic("t", 1)
		for range 9 { // more than is read at once
			n.produce("t", 0, strings.Repeat("x", 100_000))
		}
		m := n.join(joining("g", "t"))
		pass(time.Second)
		var offsets []model.Offset
		res, err := n.Poll(t.Context(), m.request(time.Second), func(_ group.Held, r *record.Record, _ bool) {
			if offsets = append(offsets, r.Offset); len(offsets) == 1 {
				n.rights.closed.Store("t", true)
				n.topic("other", 1) // a change of the metadata, as a rule would be
				pass(time.Second)   // a read that takes long looks again
			}
		})
		require.NoError(t, err)
		require.NotEmpty(t, offsets)
		require.Less(t, len(offsets), 9, "the read has failed in between")
		n.rights.closed.Delete("t")
		m.cursor = res.Cursor
		g := m.poll(time.Second)
		require.True(t, strings.HasPrefix(g.records[0], fmt.Sprintf("t/0/%d=", len(offsets))), g.records[0][:20])
	})
}
