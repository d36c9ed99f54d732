package group

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/broker/group/assign"
	"tidewire/broker/group/cursor"
	"tidewire/internal/model"
)

func request(id string, change func(*JoinRequest)) JoinRequest {
	r := JoinRequest{Member: Member{ID: id, Topics: []string{"orders"}, SessionTimeout: 10 * time.Second, Reset: Earliest}}
	if change != nil {
		change(&r)
	}
	return r
}

// unchanged wants an operation to be refused with a code, and to leave all as it was.
func (w *world) unchanged(code model.Code, do func() (Effects, error)) *model.Error {
	w.t.Helper()
	before := w.g.Snapshot()
	eff, err := do()
	require.True(w.t, model.HasCode(err, code), "wanted %s: %v", code, err)
	require.Empty(w.t, eff)
	require.Equal(w.t, before, w.g.Snapshot())
	return model.AsError(err)
}

func TestAJoinThatIsWrongIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:2")
	for name, x := range map[string]struct {
		pointer string
		change  func(*JoinRequest)
	}{
		"no topics":             {"/topics", func(r *JoinRequest) { r.Member.Topics = nil }},
		"topics and a pattern":  {"/topics", func(r *JoinRequest) { r.Member.Pattern = "x" }},
		"a bad topic name":      {"/topics/1", func(r *JoinRequest) { r.Member.Topics = []string{"a", "b/c"} }},
		"an empty topic name":   {"/topics/0", func(r *JoinRequest) { r.Member.Topics = []string{""} }},
		"too many topics":       {"/topics", func(r *JoinRequest) { r.Member.Topics = make([]string, MaxSubscription+1) }},
		"a bad pattern":         {"/topic_pattern", func(r *JoinRequest) { r.Member.Topics, r.Member.Pattern = nil, "a)(b" }},
		"a long pattern":        {"/topic_pattern", func(r *JoinRequest) { r.Member.Topics, r.Member.Pattern = nil, strings.Repeat("a", 1025) }},
		"a short session":       {"/session_timeout_ms", func(r *JoinRequest) { r.Member.SessionTimeout = 999 * time.Millisecond }},
		"a long session":        {"/session_timeout_ms", func(r *JoinRequest) { r.Member.SessionTimeout = 30*time.Minute + time.Millisecond }},
		"no such assignor":      {"/assignor", func(r *JoinRequest) { r.Assignor = "uniform" }},
		"no such policy":        {"/auto_offset_reset", func(r *JoinRequest) { r.Member.Reset = "first" }},
		"a negative time":       {"/auto_offset_reset", func(r *JoinRequest) { r.Member.Reset, r.Member.ResetFromMs = FromTime, -1 }},
		"a bad instance id":     {"/instance_id", func(r *JoinRequest) { r.Member.InstanceID = "a\nb" }},
		"a long instance id":    {"/instance_id", func(r *JoinRequest) { r.Member.InstanceID = strings.Repeat("a", 256) }},
		"a long client id":      {"/client_id", func(r *JoinRequest) { r.Member.ClientID = strings.Repeat("a", 256) }},
		"a client id not UTF-8": {"/client_id", func(r *JoinRequest) { r.Member.ClientID = "\xff" }},
		"no member id":          {"/member_id", func(r *JoinRequest) { r.Member.ID = "" }},
	} {
		e := w.unchanged(model.InvalidArgument, func() (Effects, error) {
			eff, _, err := w.g.Join(w.env(), request("m1", x.change))
			return eff, err
		})
		require.Equal(t, x.pointer, e.Fields[0].Pointer, name)
	}
	require.Equal(t, Dead, w.g.State())
}

func TestAJoinThatDoesNotFitTheGroupIsRefused(t *testing.T) {
	t.Parallel()
	settings := calm()
	settings.MaxMembers = 2
	w := newWorld(t, settings, "orders:2")
	w.joins("m1", func(r *JoinRequest) { r.Assignor = assign.Sticky; r.Member.InstanceID = "i" }, "orders")
	w.joins("m2", nil, "orders")
	for name, change := range map[string]func(*JoinRequest){
		"another assignor":   func(r *JoinRequest) { r.Assignor = assign.Range },
		"a live instance id": func(r *JoinRequest) { r.Member.InstanceID = "i" },
		"an id that is used": func(r *JoinRequest) { r.Member.ID = "m1" },
		"a full group":       func(r *JoinRequest) {},
		"full, take over of none": func(r *JoinRequest) {
			r.TakeOver, r.Member.InstanceID = true, "j"
		},
	} {
		w.unchanged(model.Conflict, func() (Effects, error) {
			eff, _, err := w.g.Join(w.env(), request("m3", change))
			require.Error(t, err, name)
			return eff, err
		})
	}
	// A static member replaces itself in a full group.
	w.joins("m3", func(r *JoinRequest) { r.Member.InstanceID, r.TakeOver = "i", true }, "orders")
	require.Equal(t, 2, w.g.Members())
	require.Equal(t, []string{"orders/0"}, w.held("m3"))
	leave(w, "m2")
	leave(w, "m3")
	// An empty group may get another assignor; without one it keeps its own.
	w.joins("m4", nil, "orders")
	require.Equal(t, assign.Sticky, w.g.Describe().Assignor)
	leave(w, "m4")
	w.joins("m5", func(r *JoinRequest) { r.Assignor = assign.RoundRobin }, "orders")
	require.Equal(t, assign.RoundRobin, w.g.Describe().Assignor)
}

func TestWhoIsNoMemberIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:2")
	w.joins("left", nil, "orders")
	w.joins("expired", nil, "orders")
	w.joins("fenced", func(r *JoinRequest) { r.Member.InstanceID = "i" }, "orders")
	leave(w, "left")
	w.joins("m1", func(r *JoinRequest) { r.Member.InstanceID, r.TakeOver = "i", true }, "orders")
	w.mono += 5 * time.Second
	require.NoError(t, w.g.Heartbeat(w.env(), "m1"))
	w.after(5 * time.Second)
	offsets := []CommitOffset{{Name: Name{"orders", 0}, Next: 5}}
	check := func(id string, code model.Code) {
		c := &cursor.Cursor{Member: cursor.Tag(id)}
		for _, do := range []func() (Effects, error){
			func() (Effects, error) {
				eff, _, err := w.g.Poll(w.env(), PollRequest{Member: id})
				return eff, err
			},
			func() (Effects, error) {
				eff, _, err := w.g.Commit(w.env(), CommitRequest{Member: id, Offsets: offsets})
				return eff, err
			},
			func() (Effects, error) { eff, _, err := w.g.CommitCursor(w.env(), id, c); return eff, err },
			func() (Effects, error) {
				return w.g.Stage(w.env(), StageRequest{Producer: 1, Member: id, Offsets: offsets})
			},
			func() (Effects, error) { return Effects{}, w.g.Heartbeat(w.env(), id) },
			func() (Effects, error) { return w.g.Leave(w.env(), id, c) },
			func() (Effects, error) { return w.g.Release(w.env(), id, nil) },
			func() (Effects, error) { _, err := w.g.Look(id, nil); return Effects{}, err },
			func() (Effects, error) { _, err := w.g.Facts(id); return Effects{}, err },
			func() (Effects, error) { _, err := w.g.Answer(w.env(), id, 0); return Effects{}, err },
			func() (Effects, error) {
				_, err := w.g.Seek(w.env(), SeekRequest{Member: id})
				return Effects{}, err
			},
			func() (Effects, error) {
				eff, _, err := w.g.Resolve(w.env(), ResolveRequest{Member: id})
				return eff, err
			},
		} {
			w.unchanged(code, do)
		}
	}
	check("nobody", model.UnknownMember)
	check("left", model.UnknownMember)
	check("expired", model.MemberExpired)
	check("fenced", model.Fenced)
	// It is remembered over a move of the coordinator, for an hour.
	w.reload()
	check("expired", model.MemberExpired)
	check("fenced", model.Fenced)
	for range 400 {
		w.mono += 9 * time.Second
		require.NoError(t, w.g.Heartbeat(w.env(), "m1"))
	}
	w.after(0)
	check("expired", model.UnknownMember)
	check("fenced", model.UnknownMember)
}

func TestTheLongestGoneAreForgottenFirst(t *testing.T) {
	t.Parallel()
	settings := calm()
	settings.MaxGone = 2
	w := newWorld(t, settings, "orders:1")
	for i := range 4 {
		w.joins(fmt.Sprint("m", i), nil, "orders")
		w.after(10 * time.Second)
	}
	for i, code := range []model.Code{model.UnknownMember, model.UnknownMember, model.MemberExpired, model.MemberExpired} {
		require.True(t, model.HasCode(w.g.Heartbeat(w.env(), fmt.Sprint("m", i)), code), i)
	}
}

func TestSessionsDoNotFollowTheWallClock(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:1")
	w.joins("m1", nil, "orders")
	for _, jump := range []int64{3_600_000, -7_200_000, 50} {
		w.wallMs += jump
		w.after(4 * time.Second)
		require.NoError(t, w.g.Heartbeat(w.env(), "m1"))
	}
	w.wallMs -= 3_600_000
	w.after(10 * time.Second)
	require.True(t, model.HasCode(w.g.Heartbeat(w.env(), "m1"), model.MemberExpired))
}

func TestAWaitingPollKeepsItsMemberAlive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:1")
	w.joins("m1", nil, "orders")
	_, _, err := w.g.Poll(w.env(), PollRequest{Member: "m1", Wait: time.Minute})
	require.NoError(t, err)
	w.after(time.Minute + 9*time.Second)
	require.Equal(t, 1, w.g.Members())
	// Its connection goes while it waits: from then on the session counts.
	_, _, err = w.g.Poll(w.env(), PollRequest{Member: "m1", Wait: time.Minute})
	require.NoError(t, err)
	require.NoError(t, w.g.Heartbeat(w.env(), "m1"))
	w.after(10 * time.Second)
	require.Equal(t, 0, w.g.Members())
}

func TestMembersGoOnAfterAReload(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:4")
	w.joins("m1", nil, "orders")
	w.polls("m1", nil)
	w.goesOn("m1")
	w.joins("m2", nil, "orders")
	w.goesOn("m1") // names what is revoked
	w.after(9 * time.Second)
	w.reload()
	w.after(9 * time.Second) // the session began anew
	require.Equal(t, 2, w.g.Members())
	require.Equal(t, Reconciling, w.g.State())
	// Without a cursor nothing proves that m1 knows: it is told again.
	a := w.polls("m1", nil)
	require.Len(t, a.Revoking, 2)
	w.goesOn("m1")
	require.Equal(t, Stable, w.g.State())
	require.Equal(t, []string{"orders/2", "orders/3"}, w.held("m2"))
	require.Equal(t, []string{"orders/0", "orders/1"}, w.held("m1"))
}

func TestAMemberBeyondThePartitionsIsIdleAndTakesOver(t *testing.T) {
	t.Parallel()
	for _, name := range assign.Names() {
		w := newWorld(t, calm(), "orders:2")
		for i := range 3 {
			w.joins(fmt.Sprint("m", i), func(r *JoinRequest) { r.Assignor = name }, "orders")
		}
		for range 3 {
			for i := range 3 {
				w.goesOn(fmt.Sprint("m", i))
			}
		}
		require.Equal(t, Stable, w.g.State(), name)
		require.Empty(t, w.held("m2"), name)
		a := w.goesOn("m2")
		require.False(t, a.Pending, name)
		leave(w, "m0")
		w.goesOn("m1")
		w.goesOn("m1")
		require.Len(t, w.held("m2"), 1, name)
	}
}

func TestPatternsMatchWholeNamesAndNoInternalTopics(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "a.x:1", "b.x:1", "a.x.y:1", "xa.x:1")
	w.create("__audit", 1)
	x := w.topics["__audit"]
	x.Internal = true
	w.topics["__audit"] = x
	w.joins("m1", func(r *JoinRequest) { r.Member.Pattern = `a\.x|b\.x` })
	require.Equal(t, []string{"a.x/0", "b.x/0"}, w.held("m1"))
	w.joins("m2", func(r *JoinRequest) { r.Member.Pattern = `.*` })
	w.joins("m3", nil, "__audit") // by name it may
	require.Equal(t, []string{"__audit/0"}, w.held("m3"))
	for range 4 {
		w.goesOn("m1")
		w.goesOn("m2")
	}
	require.NotContains(t, w.held("m2"), "__audit/0")
	require.Equal(t, Stable, w.g.State())
}

func TestDeletionOfAGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:1")
	w.unchanged(model.UnknownGroup, func() (Effects, error) { return w.g.Delete(w.env()) })
	w.joins("m1", nil, "orders")
	w.unchanged(model.GroupNotEmpty, func() (Effects, error) { return w.g.Delete(w.env()) })
	w.after(time.Minute)
	require.Equal(t, Empty, w.g.State())
	eff, err := w.g.Delete(w.env())
	require.NoError(t, err)
	w.took("delete", eff)
	require.True(t, w.g.Vacant())
	require.Equal(t, Dead, w.g.State())
	require.Empty(t, w.g.Topics())
	fresh := New("g", calm())
	for _, r := range w.log {
		fresh.Apply(r)
	}
	require.True(t, fresh.Vacant())
	w.joins("m1", nil, "orders") // the name may be used again
	require.Equal(t, []string{"orders/0"}, w.held("m1"))
}

func TestRecordsOfNoKindAreAProgrammersError(t *testing.T) {
	t.Parallel()
	g := New("g", calm())
	require.Panics(t, func() { g.Apply(nil) })
	require.Panics(t, func() { g.Apply(Tombstone{}) })
}

// What a torn log could leave holds no partition.
func TestAStateWithoutItsMemberIsDropped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:1")
	id := w.topics["orders"].ID
	for _, r := range []Record{
		Target{Member: "m1", Topics: []TopicPartitions{{id, []model.PartitionID{0}}}},
		Current{Member: "m1", Version: 3, Topics: []TopicGrants{{id, []Grant{{Index: 0, Since: 2}}}}},
	} {
		w.g.Apply(r)
		w.log = append(w.log, r)
	}
	w.took("load", w.g.Load(w.env()))
	w.joins("m2", nil, "orders")
	require.Equal(t, []string{"orders/0"}, w.held("m2"))
	w.reload()
	require.Equal(t, []string{"orders/0"}, w.held("m2"))
}

func TestDescription(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:2", "bills:1")
	w.joins("m1", func(r *JoinRequest) { r.Member.ClientID, r.Member.Host = "c", "h" }, "orders")
	eff, _, err := w.g.Commit(w.env(), CommitRequest{Member: "m1", Offsets: []CommitOffset{{Name: Name{"orders", 1}, Next: 7, Epoch: 2, Metadata: "x"}}})
	require.NoError(t, err)
	w.took("commit", eff)
	d := w.g.Describe()
	require.Equal(t, "g", d.ID)
	require.Equal(t, Stable, d.State)
	require.Equal(t, "c", d.Members[0].ClientID)
	require.Len(t, d.Members[0].Assignment.Held, 2)
	require.Equal(t, "m1", d.Offsets[1].MemberID)
	require.Equal(t, Offset{Topic: "orders", TopicID: w.topics["orders"].ID, Partition: 1, Next: 7, Epoch: 2, Metadata: "x", CommitMs: w.wallMs}, d.Offsets[1].Offset)
	require.Equal(t, []string{"orders"}, w.g.Topics())
	leave(w, "m1")
	require.Empty(t, w.g.Describe().Offsets[1].MemberID)
	require.Equal(t, []string{"orders"}, w.g.Topics())
}
