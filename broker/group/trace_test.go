package group

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/broker/group/assign"
)

func TestTraceJoins(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:6")
	w.joins("m1", nil, "orders")
	w.polls("m1", nil)
	w.joins("m2", nil, "orders")
	w.goesOn("m1")
	w.polls("m2", nil)
	w.goesOn("m1")
	w.goesOn("m2")
	w.joins("m3", nil, "orders")
	w.goesOn("m1")
	w.goesOn("m2")
	w.goesOn("m1")
	w.goesOn("m2")
	w.polls("m3", nil)
	require.Equal(t, Stable, w.g.State())
	w.golden("joins")
}

// Each way in which a partition is released, one after the other.
func TestTraceHandOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:2")
	sticky := func(r *JoinRequest) { r.Assignor = assign.Sticky }
	w.joins("m1", sticky, "orders")
	w.polls("m1", nil)
	w.goesOn("m1")

	w.note("\n-- by the cursor of the answer that named it")
	w.joins("m2", nil, "orders")
	stale := w.cursor["m1"]
	w.goesOn("m1") // names orders/1
	w.polls("m1", stale)
	w.goesOn("m1")
	w.polls("m2", nil)
	leave(w, "m2")
	w.goesOn("m1") // which shows it what came back

	w.note("\n-- by a poll without cursor, once it was named")
	w.joins("m3", nil, "orders")
	w.polls("m1", nil)
	w.polls("m1", nil)
	leave(w, "m3")
	w.goesOn("m1") // which shows it what came back

	w.note("\n-- by a commit of the cursor")
	w.joins("m4", nil, "orders")
	w.goesOn("m1")
	eff, got, err := w.g.CommitCursor(w.env(), "m1", w.cursor["m1"])
	require.NoError(t, err)
	require.Len(t, got, 2)
	w.took("commit of m1's cursor", eff)
	leave(w, "m4")
	w.goesOn("m1") // which shows it what came back

	w.note("\n-- by its time, which begins with the first answer that names it")
	w.joins("m5", nil, "orders")
	w.after(9 * time.Second)
	w.polls("m1", stale)
	w.polls("m5", nil)
	w.after(9 * time.Second)
	w.polls("m1", stale)
	w.polls("m5", nil)
	w.after(time.Second)
	leave(w, "m5")
	w.goesOn("m1") // which shows it what came back

	w.note("\n-- by Release")
	w.joins("m6", nil, "orders")
	w.goesOn("m1")
	eff, err = w.g.Release(w.env(), "m1", []Name{{"orders", 0}, {"orders", 1}})
	require.NoError(t, err)
	w.took("release of m1", eff)
	leave(w, "m6")

	w.note("\n-- by leaving")
	w.joins("m7", nil, "orders")
	leave(w, "m1")
	require.Equal(t, []string{"orders/0", "orders/1"}, w.held("m7"))
	w.golden("handover")
}

func leave(w *world, id string) {
	eff, err := w.g.Leave(w.env(), id, nil)
	require.NoError(w.t, err)
	w.took("leave of "+id, eff)
	w.resolve(eff)
}

func TestTraceExpiry(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:2")
	w.joins("m1", nil, "orders")
	w.joins("m2", nil, "orders")
	w.polls("m1", nil)
	w.polls("m2", nil)
	w.after(6 * time.Second)
	w.goesOn("m2")
	w.after(5 * time.Second)
	w.goesOn("m1")
	w.goesOn("m2")
	w.note("\nm2 goes on for an hour")
	for range 360 {
		w.mono += 10 * time.Second
		require.NoError(t, w.g.Heartbeat(w.env(), "m2"))
	}
	w.after(0)
	w.goesOn("m1")
	w.golden("expiry")
}

func TestTraceTakeOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:3", "bills:1")
	static := func(id string, take bool) func(*JoinRequest) {
		return func(r *JoinRequest) { r.Member.InstanceID, r.TakeOver = id, take }
	}
	w.joins("m1", static("a", false), "orders")
	w.joins("m2", static("b", false), "orders")
	w.polls("m1", nil)
	w.goesOn("m1")
	w.polls("m2", nil)
	w.joins("m3", static("a", false), "orders")
	w.note("\n-- the same subscription: no rebalance")
	w.joins("m4", static("a", true), "orders")
	w.goesOn("m1")
	w.polls("m4", w.cursor["m1"])
	w.note("\n-- another subscription: what was taken over is revoked")
	w.joins("m5", static("a", true), "bills")
	w.polls("m5", nil)
	w.goesOn("m5")
	w.goesOn("m2")
	w.golden("takeover")
}

func TestTraceLostAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:2")
	auto := func(r *JoinRequest) { r.Member.AutoCommit = true }
	w.joins("m1", auto, "orders")
	w.polls("m1", nil)
	first := w.cursor["m1"]
	w.note("\n-- the answer to this one is lost, so it is asked again")
	w.polls("m1", first)
	w.polls("m1", first)
	w.note("\n-- the coordinator moves, and the answer to the next is lost too")
	w.reload()
	w.polls("m1", first)
	w.joins("m2", auto, "orders")
	w.note("\n-- the answer that names the revocation is lost")
	second := w.cursor["m1"]
	w.polls("m1", second)
	w.polls("m1", second)
	w.goesOn("m1")
	w.polls("m2", nil)
	w.golden("lost-answers")
}

func TestTraceTopics(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm(), "orders:1", "events.eu:1")
	latest := func(r *JoinRequest) { r.Member.Reset = Latest }
	w.joins("m1", latest, "later", "orders")
	w.joins("m2", func(r *JoinRequest) { r.Member.Reset, r.Member.Pattern = Latest, `events\..*` })
	w.polls("m1", nil)
	w.note("\n-- partitions are added: the new ones start at the log start")
	o := w.topics["orders"]
	o.Partitions = 3
	w.topics["orders"] = o
	w.topicsChange("orders has 3 partitions")
	w.polls("m1", nil)
	w.note("\n-- topics appear that were subscribed to")
	w.create("later", 1)
	w.create("events.us", 2)
	w.create("unrelated", 1)
	w.topicsChange("later, events.us and unrelated are created")
	w.goesOn("m1")
	w.polls("m2", nil)
	w.note("\n-- a topic is created anew: offsets go with the old one")
	old := w.cursor["m1"]
	delete(w.topics, "orders")
	w.create("orders", 2)
	w.topicsChange("orders is created anew")
	w.polls("m1", old)
	w.note("\n-- a topic is deleted")
	delete(w.topics, "events.eu")
	w.topicsChange("events.eu is deleted")
	w.polls("m2", w.cursor["m2"])
	w.golden("topics")
}

func TestTraceAssignmentPutOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t, DefaultSettings(), "orders:4")
	w.joins("m1", nil, "orders")
	w.joins("m2", nil, "orders")
	w.joins("m3", nil, "orders")
	require.Equal(t, Assigning, w.g.State())
	w.polls("m2", nil)
	w.after(50 * time.Millisecond)
	w.goesOn("m1")
	w.goesOn("m1")
	w.polls("m2", nil)
	w.polls("m3", nil)
	w.golden("put-off")
}
