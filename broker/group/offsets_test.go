package group

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/broker/group/cursor"
	"tidewire/internal/model"
)

func commitOf(topic string, p model.PartitionID, next model.Offset) CommitOffset {
	return CommitOffset{Name: Name{topic, p}, Next: next, Epoch: model.NoEpoch}
}

func (w *world) commit(id string, list ...CommitOffset) error {
	eff, _, err := w.g.Commit(w.env(), CommitRequest{Member: id, Offsets: list})
	if err == nil {
		w.took("commit", eff)
	}
	return err
}

func (w *world) committed(topic string, p model.PartitionID) model.Offset {
	o, ok := w.g.Committed(Name{topic, p})
	if !ok {
		return NoOffset
	}
	return o.Next
}

func TestACommitIsAllOrNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:2", "bills:2")
	w.joins("m1", nil, "orders")
	w.joins("m2", nil, "orders")
	good := commitOf("orders", 0, 9)
	for name, x := range map[string]struct {
		code model.Code
		bad  CommitOffset
	}{
		"negative":               {model.InvalidArgument, commitOf("orders", 0, -1)},
		"twice":                  {model.InvalidArgument, commitOf("orders", 0, 3)},
		"a negative partition":   {model.InvalidArgument, commitOf("orders", -1, 3)},
		"metadata too long":      {model.InvalidArgument, CommitOffset{Name: Name{"orders", 1}, Metadata: strings.Repeat("m", 4097)}},
		"metadata that is bytes": {model.InvalidArgument, CommitOffset{Name: Name{"orders", 1}, Metadata: "\xff"}},
		"unknown topic":          {model.UnknownTopic, commitOf("nothing", 0, 1)},
		"unknown partition":      {model.UnknownPartition, commitOf("orders", 2, 1)},
		"another's partition":    {model.NotOwner, commitOf("orders", 1, 1)},
		"nobody's topic":         {model.NotOwner, commitOf("bills", 0, 1)},
	} {
		e := w.unchanged(x.code, func() (Effects, error) {
			eff, _, err := w.g.Commit(w.env(), CommitRequest{Member: "m1", Offsets: []CommitOffset{good, x.bad}})
			require.Error(t, err, name)
			return eff, err
		})
		if x.code == model.NotOwner {
			require.Len(t, e.Extra["partitions"], 1, name)
		}
	}
	w.unchanged(model.InvalidArgument, func() (Effects, error) {
		eff, _, err := w.g.Commit(w.env(), CommitRequest{Member: "m1"})
		return eff, err
	})
	require.NoError(t, w.commit("m1", CommitOffset{Name: Name{"orders", 0}, Next: 9, Metadata: strings.Repeat("m", 4096)}))
	require.NoError(t, w.commit("m1", commitOf("orders", 0, 4)))
	require.Equal(t, model.Offset(4), w.committed("orders", 0), "a plain commit may go back")
}

func TestACursorCommitsForwardAndOnlyItsOwnGrants(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:2")
	w.joins("m1", nil, "orders")
	w.polls("m1", nil) // [0,10) of each
	first := w.cursor["m1"]
	w.goesOn("m1") // [10,20)
	second := w.cursor["m1"]
	by := func(id string, c *cursor.Cursor) {
		eff, _, err := w.g.CommitCursor(w.env(), id, c)
		require.NoError(t, err)
		w.took("commit", eff)
	}
	by("m1", second)
	require.Equal(t, model.Offset(20), w.committed("orders", 0))
	by("m1", first)
	require.Equal(t, model.Offset(20), w.committed("orders", 0), "never back")
	by("m1", nil)

	// orders/1 is lost, and comes back: the old cursor says nothing of it any more.
	w.joins("m2", nil, "orders")
	w.goesOn("m1")
	w.goesOn("m1")
	require.NoError(t, w.commit("m2", commitOf("orders", 1, 15)))
	leave(w, "m2")
	require.Equal(t, []string{"orders/0", "orders/1"}, w.held("m1"))
	ahead := &cursor.Cursor{Member: second.Member, Version: second.Version, Topics: second.Topics}
	by("m1", ahead)
	require.Equal(t, model.Offset(15), w.committed("orders", 1))
	res, err := w.g.Look("m1", ahead)
	require.NoError(t, err)
	require.Equal(t, model.Offset(15), place(t, res, "orders", 1).Next, "neither rewound nor jumped")
	require.Equal(t, model.Offset(20), place(t, res, "orders", 0).Next)

	// A cursor of another member, or of a version that never was, says nothing.
	w.joins("m3", nil, "orders")
	by("m3", ahead)
	forged := *ahead
	forged.Version = 1000
	forged.Topics = []cursor.Topic{{Tag: cursor.TagOf(w.topics["orders"].ID), Entries: []cursor.Entry{{Partition: 0, Since: 1, Next: 99}}}}
	by("m1", &forged)
	require.Equal(t, model.Offset(20), w.committed("orders", 0))
}

func TestAutoCommitCommitsWhatALaterCursorCovers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:1")
	w.joins("m1", func(r *JoinRequest) { r.Member.AutoCommit = true }, "orders")
	w.polls("m1", nil)
	require.Equal(t, model.Offset(0), w.committed("orders", 0))
	w.goesOn("m1")
	require.Equal(t, model.Offset(10), w.committed("orders", 0))
	w.polls("m1", nil) // repeats
	require.Equal(t, model.Offset(10), w.committed("orders", 0))
	w.goesOn("m1")
	eff, err := w.g.Leave(w.env(), "m1", w.cursor["m1"])
	require.NoError(t, err)
	w.took("leave", eff)
	require.Equal(t, model.Offset(30), w.committed("orders", 0))
	// Without auto-commit a cursor that comes with leaving is not committed.
	w.joins("m2", nil, "orders")
	w.polls("m2", nil)
	eff, err = w.g.Leave(w.env(), "m2", w.cursor["m2"])
	require.NoError(t, err)
	w.took("leave", eff)
	require.Equal(t, model.Offset(30), w.committed("orders", 0))
}

func TestWhatIsRevokedMayStillBeCommitted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:2")
	w.joins("m1", nil, "orders")
	w.polls("m1", nil)
	w.joins("m2", nil, "orders")
	a := w.goesOn("m1")
	require.Len(t, a.Revoking, 1)
	require.NoError(t, w.commit("m1", commitOf("orders", 1, 7)))
	require.True(t, model.HasCode(w.commit("m2", commitOf("orders", 1, 8)), model.NotOwner), "it is not m2's yet")
	w.goesOn("m1")
	require.True(t, model.HasCode(w.commit("m1", commitOf("orders", 1, 9)), model.NotOwner), "it is m2's now")
	res, err := w.g.Look("m2", nil)
	require.NoError(t, err)
	require.Equal(t, model.Offset(7), place(t, res, "orders", 1).Next)
}

// What was read of a partition that is revoked before the answer does not pass by.
func TestACursorDoesNotPassRecordsThatWereHeldBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:2")
	w.joins("m1", nil, "orders")
	w.polls("m1", nil)
	_, res, err := w.g.Poll(w.env(), PollRequest{Member: "m1", Cursor: w.cursor["m1"]})
	require.NoError(t, err)
	w.joins("m2", nil, "orders")
	a, err := w.g.Answer(w.env(), "m1", 0)
	require.NoError(t, err)
	c := MakeCursor("m1", a, res, []model.Offset{20, 20})
	require.True(t, a.Holds(res.Positions[0].Partition, res.Positions[0].Since))
	require.False(t, a.Holds(res.Positions[1].Partition, res.Positions[1].Since))
	eff, _, err := w.g.CommitCursor(w.env(), "m1", c)
	require.NoError(t, err)
	w.took("commit", eff)
	require.Equal(t, model.Offset(20), w.committed("orders", 0))
	require.Equal(t, model.Offset(10), w.committed("orders", 1))
}

func resolveOf(t *testing.T, w *world, id string, b Bounds) ([]Position, error) {
	t.Helper()
	eff, got, err := w.g.Resolve(w.env(), ResolveRequest{Member: id, Bounds: []Bounds{b}})
	if err == nil {
		w.took("resolve", eff)
	}
	return got, err
}

func TestAFirstPositionIsResolvedOnce(t *testing.T) {
	t.Parallel()
	for policy, want := range map[ResetPolicy]model.Offset{Earliest: 3, Latest: 40, FromTime: 17} {
		w := newWorld(t, calm(), "orders:1")
		eff, _, err := w.g.Join(w.env(), request("m1", func(r *JoinRequest) { r.Member.Reset = policy }))
		require.NoError(t, err)
		w.took("join", eff)
		require.Len(t, eff.Unresolved, 1)
		require.Equal(t, policy, eff.Unresolved[0].Policy)
		p := eff.Unresolved[0].Partition
		got, err := resolveOf(t, w, "m1", Bounds{Partition: p, At: NoOffset, Earliest: 3, Latest: 40, AtTime: 17})
		require.NoError(t, err)
		require.Equal(t, want, got[0].Next)
		// The log grows between two polls: nothing is passed by.
		got, err = resolveOf(t, w, "m1", Bounds{Partition: p, At: NoOffset, Earliest: 5, Latest: 60, AtTime: 50})
		require.NoError(t, err)
		require.Equal(t, want, got[0].Next)
		require.Equal(t, want, w.committed("orders", 0))
		// Who comes later, with another policy, goes on there.
		leave(w, "m1")
		w.joins("m2", nil, "orders")
		res, err := w.g.Look("m2", nil)
		require.NoError(t, err)
		require.Equal(t, want, res.Positions[0].Next)
	}
}

func TestWithoutAPolicyAMemberIsToldTheBounds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:2")
	w.joins("m1", func(r *JoinRequest) { r.Member.Reset = Never }, "orders")
	res, err := w.g.Look("m1", nil)
	require.NoError(t, err)
	require.Len(t, res.Unresolved, 2)
	b := Bounds{Partition: res.Unresolved[0].Partition, At: NoOffset, Earliest: 3, Latest: 40}
	e := w.unchanged(model.OffsetOutOfRange, func() (Effects, error) {
		eff, _, err := w.g.Resolve(w.env(), ResolveRequest{Member: "m1", Bounds: []Bounds{b}})
		return eff, err
	})
	require.Equal(t, []OutOfRange{{Topic: "orders", Partition: 0, Earliest: 3, Latest: 40}}, e.Extra["partitions"])
	require.NoError(t, w.commit("m1", commitOf("orders", 0, 10)))
	// What appears later starts at the log start whatever the policy.
	o := w.topics["orders"]
	o.Partitions = 3
	w.topics["orders"] = o
	eff := w.g.TopicsChanged(w.env())
	w.took("topics", eff)
	require.Len(t, eff.Unresolved, 1)
	require.Equal(t, Earliest, eff.Unresolved[0].Policy)
}

func TestAPositionOutOfRangeIsPlacedByThePolicy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:1")
	w.joins("m1", func(r *JoinRequest) { r.Member.Reset = Latest }, "orders")
	require.NoError(t, w.commit("m1", commitOf("orders", 0, 5)))
	res, err := w.g.Look("m1", nil)
	require.NoError(t, err)
	p := res.Positions[0].Partition
	// Only the cursor was out of range: the commit stays.
	got, err := resolveOf(t, w, "m1", Bounds{Partition: p, At: 900, Earliest: 3, Latest: 40})
	require.NoError(t, err)
	require.Equal(t, model.Offset(40), got[0].Next)
	require.Equal(t, model.Offset(5), w.committed("orders", 0))
	// The commit is: the policy takes its place, once.
	got, err = resolveOf(t, w, "m1", Bounds{Partition: p, At: 5, Earliest: 10, Latest: 40})
	require.NoError(t, err)
	require.Equal(t, model.Offset(40), got[0].Next)
	require.Equal(t, model.Offset(40), w.committed("orders", 0))
	// A partition that is not the member's is passed over.
	got, err = resolveOf(t, w, "m1", Bounds{Partition: Partition{Topic: model.TopicID{9}}, At: 5})
	require.NoError(t, err)
	require.Empty(t, got)
}

// A member that gets nothing but 416 must not keep what it is to hand over.
func TestARefusalForWantOfAPolicyStartsTheGrace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:2")
	w.joins("m1", func(r *JoinRequest) { r.Member.Reset = Never }, "orders")
	_, err := w.g.Answer(w.env(), "m1", 0)
	require.NoError(t, err)
	w.joins("m2", nil, "orders")
	for range 11 {
		_, res, err := w.g.Poll(w.env(), PollRequest{Member: "m1", Cursor: &cursor.Cursor{}})
		require.NoError(t, err)
		_, err = resolveOf(t, w, "m1", Bounds{Partition: res.Unresolved[0].Partition, At: NoOffset})
		require.True(t, model.HasCode(err, model.OffsetOutOfRange))
		require.NoError(t, w.g.Heartbeat(w.env(), "m2"))
		w.after(time.Second)
	}
	require.Equal(t, []string{"orders/1"}, w.held("m2"))
}

func TestOffsetsGoWithTheirTopic(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:2")
	w.joins("m1", nil, "orders")
	w.polls("m1", nil)
	require.NoError(t, w.commit("m1", commitOf("orders", 0, 90)))
	old := w.cursor["m1"]
	delete(w.topics, "orders")
	require.True(t, model.HasCode(w.commit("m1", commitOf("orders", 0, 91)), model.UnknownTopic), "also before the group has heard")
	by := func() {
		eff, got, err := w.g.CommitCursor(w.env(), "m1", old)
		require.NoError(t, err)
		require.Empty(t, got)
		w.took("commit", eff)
	}
	by()
	w.topicsChange("deleted")
	require.Equal(t, NoOffset, w.committed("orders", 0))
	w.create("orders", 2)
	w.topicsChange("created anew")
	// A late commit is about the old topic: by cursor it says so, by name the member has
	// not been told of the new one.
	by()
	require.True(t, model.HasCode(w.commit("m1", commitOf("orders", 0, 91)), model.NotOwner))
	require.Equal(t, model.Offset(0), w.committed("orders", 0))
	w.polls("m1", old)
	require.NoError(t, w.commit("m1", commitOf("orders", 0, 4)))
}

func TestOffsetsWithoutMembers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:2", "bills:1")
	put := func(list ...CommitOffset) (Effects, error) {
		eff, _, err := w.g.PutOffsets(w.env(), list)
		return eff, err
	}
	eff, err := put(commitOf("orders", 0, 5), commitOf("bills", 0, 6))
	require.NoError(t, err)
	w.took("put", eff)
	require.Equal(t, Empty, w.g.State())
	w.unchanged(model.InvalidArgument, func() (Effects, error) { return put(commitOf("orders", 0, -5)) })
	w.unchanged(model.UnknownTopic, func() (Effects, error) { return put(commitOf("nothing", 0, 5)) })
	w.joins("m1", nil, "orders")
	w.unchanged(model.GroupNotEmpty, func() (Effects, error) { return put(commitOf("orders", 0, 5)) })
	w.unchanged(model.GroupNotEmpty, func() (Effects, error) {
		eff, _, err := w.g.DeleteOffsets(w.env(), []string{"bills", "orders"})
		return eff, err
	})
	eff, names, err := w.g.DeleteOffsets(w.env(), []string{"bills"}) // nobody subscribes to it
	require.NoError(t, err)
	require.Equal(t, []Name{{"bills", 0}}, names)
	w.took("delete", eff)
	require.Equal(t, NoOffset, w.committed("bills", 0))
	leave(w, "m1")
	eff, names, err = w.g.DeleteOffsets(w.env(), []string{"orders"})
	require.NoError(t, err)
	require.Len(t, names, 2)
	w.took("delete", eff)
	w.reload()
	require.Empty(t, w.g.Topics())
}

func TestOffsetsExpireOnlyWhereNobodyNeedsThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:1", "bills:1")
	week := w.g.settings.OffsetRetention
	eff, _, err := w.g.PutOffsets(w.env(), []CommitOffset{commitOf("orders", 0, 5), commitOf("bills", 0, 5)})
	require.NoError(t, err)
	w.took("put", eff)
	w.joins("m1", nil, "orders")
	later := func(d time.Duration) {
		w.wallMs += d.Milliseconds()
		w.took("expiry", w.g.ExpireOffsets(w.env()))
	}
	later(week - time.Millisecond)
	require.Equal(t, model.Offset(5), w.committed("bills", 0))
	// A transaction has staged it: it stays.
	eff, err = w.g.Stage(w.env(), StageRequest{Producer: 7, Offsets: []CommitOffset{commitOf("bills", 0, 8)}})
	require.NoError(t, err)
	w.took("stage", eff)
	require.Equal(t, []Name{{"bills", 0}}, w.g.Unstable())
	later(time.Hour)
	require.Equal(t, model.Offset(5), w.committed("bills", 0))
	w.took("abort", w.g.EndTransaction(w.env(), 7, false))
	later(0)
	require.Equal(t, NoOffset, w.committed("bills", 0), "nobody subscribes to it")
	require.Equal(t, model.Offset(5), w.committed("orders", 0), "m1 does")
	// From the end of the last member on it counts again.
	leave(w, "m1")
	later(week - time.Millisecond)
	require.Equal(t, model.Offset(5), w.committed("orders", 0))
	w.reload()
	require.Equal(t, model.Offset(5), w.committed("orders", 0), "loading expires nothing")
	later(time.Millisecond)
	require.Equal(t, NoOffset, w.committed("orders", 0))
	require.True(t, w.g.Vacant(), "a group with nothing left is forgotten")
	w.reload()
	require.True(t, w.g.Vacant())
}

func TestOffsetsOfTransactions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:2")
	w.joins("m1", nil, "orders")
	stage := func(producer model.ProducerID, list ...CommitOffset) {
		eff, err := w.g.Stage(w.env(), StageRequest{Producer: producer, Member: "m1", Offsets: list})
		require.NoError(t, err)
		w.took("stage", eff)
	}
	stage(1, commitOf("orders", 0, 5), commitOf("orders", 1, 6))
	stage(1, commitOf("orders", 0, 7))
	stage(2, commitOf("orders", 0, 9))
	require.NoError(t, w.commit("m1", commitOf("orders", 0, 8)))
	w.reload()
	require.Equal(t, []Name{{"orders", 0}, {"orders", 1}}, w.g.Unstable())
	// The order of commits is that of the transactions' ends.
	w.took("end", w.g.EndTransaction(w.env(), 1, true))
	require.Equal(t, model.Offset(7), w.committed("orders", 0))
	require.Equal(t, model.Offset(6), w.committed("orders", 1))
	w.took("end", w.g.EndTransaction(w.env(), 1, true)) // a repeat
	w.took("end", w.g.EndTransaction(w.env(), 2, false))
	require.Equal(t, model.Offset(7), w.committed("orders", 0))
	require.Empty(t, w.g.Unstable())
	w.joins("m2", nil, "orders")
	w.unchanged(model.NotOwner, func() (Effects, error) {
		return w.g.Stage(w.env(), StageRequest{Producer: 1, Member: "m2", Offsets: []CommitOffset{commitOf("orders", 0, 5)}})
	})
	// What was staged for a topic that is gone goes with it.
	stage(1, commitOf("orders", 0, 50))
	delete(w.topics, "orders")
	w.topicsChange("deleted")
	w.create("orders", 2)
	w.topicsChange("created anew")
	w.took("end", w.g.EndTransaction(w.env(), 1, true))
	require.Equal(t, model.Offset(0), w.committed("orders", 0))
}

func TestSeek(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:2", "bills:1")
	w.joins("m1", nil, "orders")
	w.joins("m2", nil, "bills")
	w.polls("m1", nil)
	seek := func(list ...SeekPosition) (*cursor.Cursor, error) {
		return w.g.Seek(w.env(), SeekRequest{Member: "m1", Positions: list, Cursor: w.cursor["m1"]})
	}
	c, err := seek(SeekPosition{Name{"orders", 1}, 77})
	require.NoError(t, err)
	res, err := w.g.Look("m1", c)
	require.NoError(t, err)
	require.Equal(t, model.Offset(10), res.Positions[0].Next)
	require.Equal(t, model.Offset(77), res.Positions[1].Next)
	require.Equal(t, model.Offset(0), w.committed("orders", 1))
	for code, p := range map[model.Code]SeekPosition{
		model.InvalidArgument:  {Name{"orders", 0}, -1},
		model.UnknownTopic:     {Name{"nothing", 0}, 1},
		model.UnknownPartition: {Name{"orders", 9}, 1},
		model.NotOwner:         {Name{"bills", 0}, 1},
	} {
		w.unchanged(code, func() (Effects, error) { _, err := seek(p); return Effects{}, err })
	}
	// It does not stand for an answer that was not given: nothing is released by it.
	w.joins("m3", nil, "orders")
	c, err = seek(SeekPosition{Name{"orders", 0}, 3})
	require.NoError(t, err)
	w.polls("m1", c)
	require.Empty(t, w.held("m3"))
	w.goesOn("m1")
	require.Equal(t, []string{"orders/1"}, w.held("m3"))
	w.unchanged(model.NotOwner, func() (Effects, error) {
		_, err := seek(SeekPosition{Name{"orders", 1}, 3})
		return Effects{}, err
	})
}

func TestPlansOfResets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:2", "bills:1")
	w.unchanged(model.UnknownGroup, func() (Effects, error) {
		_, err := w.g.ResetScope(w.env(), ResetRequest{To: ToLatest})
		return Effects{}, err
	})
	eff, _, err := w.g.PutOffsets(w.env(), []CommitOffset{commitOf("orders", 0, 50), commitOf("bills", 0, 50)})
	require.NoError(t, err)
	w.took("put", eff)
	const huge = int64(^uint64(0) >> 1)
	for _, x := range []struct {
		to    ResetTo
		value int64
		want  model.Offset // of orders/0, which is at 50
		other model.Offset // of orders/1, which has none
	}{
		{ToEarliest, 0, 10, 10},
		{ToLatest, 0, 90, 90},
		{ToTimestamp, 1_000, 33, 33},
		{ToOffset, 60, 60, 60},
		{ToOffset, 5, 10, 10},
		{ToOffset, huge, 90, 90},
		{ToShift, 7, 57, 90},
		{ToShift, -7, 43, 83},
		{ToShift, -45, 10, 45},
		{ToShift, huge, 90, 90},
		{ToShift, -huge - 1, 10, 10},
	} {
		req := ResetRequest{Topics: []string{"orders"}, Partitions: []Name{{"orders", 1}}, To: x.to, Value: x.value}
		scope, err := w.g.ResetScope(w.env(), req)
		require.NoError(t, err)
		require.Len(t, scope, 2)
		var bounds []Bounds
		for _, f := range scope {
			bounds = append(bounds, Bounds{Partition: f.Partition, Earliest: 10, Latest: 90, AtTime: 33})
		}
		moves := PlanReset(req, scope, bounds)
		require.Equal(t, []model.Offset{50, NoOffset}, []model.Offset{moves[0].From, moves[1].From})
		require.Equal(t, []model.Offset{x.want, x.other}, []model.Offset{moves[0].To, moves[1].To}, "%s %d", x.to, x.value)
		require.Len(t, PlanReset(req, scope, bounds[:1]), 1)
	}
	all, err := w.g.ResetScope(w.env(), ResetRequest{To: ToLatest})
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, "bills", all[0].Name)
	for name, req := range map[string]ResetRequest{
		"no such place":   {To: "middle"},
		"a negative time": {To: ToTimestamp, Value: -1},
	} {
		_, err := w.g.ResetScope(w.env(), req)
		require.True(t, model.HasCode(err, model.InvalidArgument), name)
	}
	_, err = w.g.ResetScope(w.env(), ResetRequest{To: ToLatest, Topics: []string{"nothing"}})
	require.True(t, model.HasCode(err, model.UnknownTopic))
	moves := []ResetMove{{Partition: all[0].Partition, Name: "bills", From: 50, To: 1}}
	eff, err = w.g.Reset(w.env(), moves)
	require.NoError(t, err)
	w.took("reset", eff)
	require.Equal(t, model.Offset(1), w.committed("bills", 0))
	w.joins("m1", nil, "orders")
	w.unchanged(model.GroupNotEmpty, func() (Effects, error) { return w.g.Reset(w.env(), moves) })
	_, err = w.g.ResetScope(w.env(), ResetRequest{To: ToLatest})
	require.True(t, model.HasCode(err, model.GroupNotEmpty))
	leave(w, "m1")
	delete(w.topics, "bills")
	w.unchanged(model.UnknownTopic, func() (Effects, error) { return w.g.Reset(w.env(), moves) })
}
