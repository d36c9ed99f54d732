package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// groupSecondsVariable is how long members come and go under load; CI has a slice.
	groupSecondsVariable = "TIDEWIRE_E2E_GROUP_SECONDS"
	// rebalanceVariable has the gaps of a rebalance measured, so many joins and leaves.
	rebalanceVariable = "TEST_REBALANCES"
)

// doors are the ways in which a member can consume.
var doors = map[string]func(*consumer, context.Context){"polls": (*consumer).byPolls, "SSE": (*consumer).bySSE, "WebSocket": (*consumer).bySocket}

func always() bool { return true }
func never() bool  { return false }

// described is what GET /v1/groups/{group} tells.
type described struct {
	State    string `json:"state"`
	Assignor string `json:"assignor"`
	Members  []struct {
		ID         string `json:"member_id"`
		ClientID   string `json:"client_id"`
		Assignment []struct {
			Topic      string  `json:"topic"`
			Partitions []int32 `json:"partitions"`
		} `json:"assignment"`
	} `json:"members"`
	Offsets []struct {
		position
		Lag    *int64  `json:"lag"`
		Member *string `json:"member_id"`
	} `json:"offsets"`
	TotalLag int64 `json:"total_lag"`
}

func (a *api) group(t testing.TB, group string) described {
	t.Helper()
	var d described
	if status, answer, err := a.try("GET", "/v1/groups/"+url.PathEscape(group), nil); err == nil && status == 404 {
		require.Contains(t, string(answer), `"unknown-group"`)
		return d // before the first has joined
	}
	a.must(t, "GET", "/v1/groups/"+url.PathEscape(group), nil, &d)
	return d
}

// sizes is how many partitions each member has, ascending.
func (d *described) sizes() []int {
	out := []int{}
	for _, m := range d.Members {
		n := 0
		for _, a := range m.Assignment {
			n += len(a.Partitions)
		}
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// running are consumers under way.
type running struct {
	stop context.CancelFunc
	done sync.WaitGroup
	all  []*consumer
}

// consume starts consumers of a group, one for each door.
func consume(t *testing.T, a *api, l *ledger, group, topic string, leave func() bool, through ...string) *running {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r := &running{stop: stop}
	for i, door := range through {
		c := &consumer{name: fmt.Sprintf("%s-%d", door, i), group: group, topics: []string{topic}, session: 10 * time.Second, a: a, l: l, leave: leave}
		r.all = append(r.all, c)
		r.done.Go(func() { doors[door](c, ctx) })
	}
	t.Cleanup(r.end)
	return r
}

func (r *running) end() { r.stop(); r.done.Wait() }

// eventually waits until something holds, which is tried again and again.
func eventually(t testing.TB, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// In a calm run each record reaches a group exactly once, whatever the number of members
// and their doors, though they join one after the other; and every group gets everything.
func TestFlightsReachEachGroupExactlyOnce(t *testing.T) {
	t.Parallel()
	input := testdata(t, "flights.ndjson")
	want := flightsInput(t, input)
	n := startNode(t)
	a := admin(t, n)
	a.createTopic(t, "flights", flightPartitions, nil)
	require.Zero(t, n.cli(t, a.token, input, "produce", "flights").code)
	through := map[string]func(i int) string{
		"polls": func(int) string { return "polls" }, "SSE": func(int) string { return "SSE" }, "WebSocket": func(int) string { return "WebSocket" },
		"mixed": func(i int) string { return []string{"polls", "SSE", "WebSocket"}[i%3] },
	}
	for name, door := range through {
		for _, members := range []int{1, 2, 3, 6, 8} {
			t.Run(fmt.Sprintf("%d by %s", members, name), func(t *testing.T) {
				list := make([]string, members)
				for i := range list {
					list[i] = door(i)
				}
				l := newLedger()
				group := fmt.Sprintf("%s/%d", name, members)
				r := consume(t, a, l, group, "flights", always, list...)
				eventually(t, time.Minute, "every record was given", func() bool { return l.distinct() == 20000 })
				var d described
				settled := func() bool {
					d = a.group(t, group)
					return d.State == "stable" && len(d.Members) == members && d.TotalLag == 0
				}
				for end := time.Now().Add(10 * time.Second); !settled(); time.Sleep(20 * time.Millisecond) {
					require.True(t, time.Now().Before(end), "not all is assigned and committed: %+v %+v", d, l.wrong)
				}
				sizes := d.sizes()
				require.Equal(t, flightPartitions, sum(sizes))
				require.LessOrEqual(t, sizes[len(sizes)-1]-sizes[0], 1, "balanced: %v", sizes)
				if members == 8 {
					require.Equal(t, []int{0, 0, 1, 1, 1, 1, 1, 1}, sizes, "two are idle")
				}
				r.end()
				require.Empty(t, l.wrong)
				require.Equal(t, 20000, l.total, "none was given twice")
				checkFlights(t, want, l.inOrder())
				for _, c := range r.all {
					require.Equal(t, 1, c.memberships(), "%s joined once", c.name)
				}
				eventually(t, 10*time.Second, "all have left", func() bool { return a.group(t, group).State == "empty" })
			})
		}
	}
}

func sum(ns []int) int {
	s := 0
	for _, n := range ns {
		s += n
	}
	return s
}

// The members that had nothing take over what others had that are just gone.
func TestIdleMembersTakeOverFromThoseThatVanish(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	a := admin(t, n)
	a.createTopic(t, "t", 6, nil)
	l := newLedger()
	join := func(name string, door string) (*consumer, context.CancelFunc) {
		ctx, stop := context.WithCancel(context.Background())
		c := &consumer{name: name, group: "g", topics: []string{"t"}, session: time.Second, a: a, l: l, leave: never}
		var done sync.WaitGroup
		done.Go(func() { doors[door](c, ctx) })
		end := func() { stop(); done.Wait() }
		t.Cleanup(end)
		return c, end
	}
	ends := map[*consumer]context.CancelFunc{}
	for i := range 8 {
		c, end := join(fmt.Sprintf("m%d", i), []string{"polls", "SSE", "WebSocket"}[i%3])
		ends[c] = end
	}
	eventually(t, 20*time.Second, "two of eight are idle", func() bool {
		d := a.group(t, "g")
		return d.State == "stable" && slices.Equal(d.sizes(), []int{0, 0, 1, 1, 1, 1, 1, 1})
	})
	gone := 0
	for _, m := range a.group(t, "g").Members {
		if len(m.Assignment) > 0 && gone < 2 {
			for c, end := range ends {
				if c.is(m.ID) {
					end()
					gone++
				}
			}
		}
	}
	require.Equal(t, 2, gone)
	eventually(t, 20*time.Second, "each of six has one", func() bool {
		d := a.group(t, "g")
		return d.State == "stable" && slices.Equal(d.sizes(), []int{1, 1, 1, 1, 1, 1})
	})
	a.must(t, "POST", "/v1/topics/t/records", map[string]any{"records": slices.Repeat([]map[string]any{{"value": "x"}}, 600)}, nil)
	eventually(t, 20*time.Second, "all is read", func() bool { return l.distinct() == 600 })
	require.Empty(t, l.wrong)
}

// stream produces records with their number, evenly over the partitions, until its context
// ends, and counts what was acknowledged.
func produceOn(ctx context.Context, a *api, l *ledger, topic string, partitions, batch int, every time.Duration) int {
	acked := 0
	for ctx.Err() == nil {
		body := make([]map[string]any, batch)
		for i := range body {
			body[i] = map[string]any{"value": fmt.Sprint(acked + i), "partition": (acked + i) % partitions}
		}
		// Not with ctx: a write whose answer is not waited for is one that nobody counts.
		status, answer, err := a.try("POST", "/v1/topics/"+topic+"/records", map[string]any{"records": body})
		if err != nil || status != 200 {
			l.complain("produce: %d %s %v", status, answer, err)
			return acked
		}
		acked += batch
		sleep(ctx, every)
	}
	return acked
}

// Members come, leave, vanish and fall asleep at random while records are written. Nothing
// is skipped, and what was committed before a member asked is not given to it again.
func TestMembersComeAndGoUnderLoad(t *testing.T) {
	t.Parallel()
	seconds := 12
	if s := os.Getenv(groupSecondsVariable); s != "" {
		var err error
		seconds, err = strconv.Atoi(s)
		require.NoError(t, err)
	}
	const partitions, slots = 6, 5
	n := startNode(t)
	a := admin(t, n)
	a.createTopic(t, "t", partitions, nil)
	l := newLedger()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var producer, members sync.WaitGroup
	acked := 0
	producer.Go(func() { acked = produceOn(ctx, a, l, "t", partitions, 30, 10*time.Millisecond) })
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var counts sync.Map
	for slot := range slots {
		random := rand.New(rand.NewPCG(seed, uint64(slot)))
		members.Go(func() {
			for life := 0; ctx.Err() == nil; life++ {
				door := []string{"polls", "SSE", "WebSocket"}[random.IntN(3)]
				vanish := random.IntN(2) == 0
				c := &consumer{name: fmt.Sprintf("%s-%d-%d", door, slot, life), group: "g", topics: []string{"t"}, session: time.Duration(1000+random.IntN(1500)) * time.Millisecond,
					a: a, l: l, leave: func() bool { return !vanish }}
				how := "leaves"
				if vanish {
					how = "vanishes"
				}
				if door == "polls" && random.IntN(3) == 0 {
					how += " after sleeping past its session"
					naps := 0
					c.pause = func() time.Duration {
						if naps++; naps%10 != 5 {
							return 0
						}
						return c.session + 500*time.Millisecond
					}
				}
				v, _ := counts.LoadOrStore(door+" "+how, new(atomic.Int64))
				v.(*atomic.Int64).Add(1)
				life, end := context.WithTimeout(ctx, time.Duration(300+random.IntN(4000))*time.Millisecond)
				doors[door](c, life)
				end()
			}
		})
	}
	time.Sleep(time.Duration(seconds) * time.Second)
	stop()
	producer.Wait()
	members.Wait()
	consume(t, a, l, "g", "t", always, "polls", "WebSocket", "SSE")
	eventually(t, 90*time.Second, "every record was given", func() bool { return l.distinct() >= acked })
	eventually(t, 20*time.Second, "all is committed", func() bool { return a.group(t, "g").TotalLag == 0 })
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Empty(t, l.wrong)
	require.Len(t, l.records, acked)
	t.Logf("%d records, %d deliveries", acked, l.total)
	counts.Range(func(k, v any) bool { t.Logf("%s: %d", k, v.(*atomic.Int64).Load()); return true })
}

// A node that is killed comes back with each committed offset where the last answered
// commit put it, and its members go on without joining again.
func TestGroupsSurviveTheKillOfANode(t *testing.T) {
	t.Parallel()
	const partitions = 6
	n := startNode(t)
	a := admin(t, n)
	a.createTopic(t, "t", partitions, nil)
	l := newLedger()
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	var members sync.WaitGroup
	t.Cleanup(members.Wait)
	t.Cleanup(stop)
	var all []*consumer
	for i, door := range []string{"polls", "polls", "WebSocket", "SSE"} {
		c := &consumer{name: fmt.Sprintf("%s-%d", door, i), group: "g", topics: []string{"t"}, session: 2 * time.Minute, a: a, l: l, leave: always}
		all = append(all, c)
		members.Go(func() { doors[door](c, ctx) })
	}
	eventually(t, 20*time.Second, "four members", func() bool {
		d := a.group(t, "g")
		return d.State == "stable" && len(d.Members) == 4
	})
	acked := 0
	for round := range 4 {
		for range 20 {
			body := make([]map[string]any, 120)
			for i := range body {
				body[i] = map[string]any{"value": fmt.Sprint(acked + i), "partition": (acked + i) % partitions}
			}
			a.must(t, "POST", "/v1/topics/t/records", map[string]any{"records": body}, nil)
			acked += len(body)
		}
		if round == 3 {
			break
		}
		floors := l.floors()
		n.restart(t, round == 1)
		var d described
		eventually(t, 20*time.Second, "the group is loaded", func() bool {
			status, _, err := a.try("GET", "/v1/groups/g", nil)
			return err == nil && status == 200
		})
		d = a.group(t, "g")
		at := map[place]int64{}
		for _, o := range d.Offsets {
			at[o.place] = o.Next
		}
		for p, floor := range floors {
			require.GreaterOrEqual(t, at[p], floor, "committed offset of %v in round %d", p, round)
		}
	}
	eventually(t, time.Minute, "every record was given", func() bool { return l.distinct() == acked })
	eventually(t, 20*time.Second, "all is committed", func() bool { return a.group(t, "g").TotalLag == 0 })
	stop()
	members.Wait()
	require.Empty(t, l.wrong)
	for _, c := range all {
		require.Equal(t, 1, c.memberships(), "%s joined once", c.name)
	}
}

// The gaps that a rebalance leaves: in partitions that stay where they are, and in those
// that move. It measures, and is run by hand.
func TestRebalanceGaps(t *testing.T) {
	times, _ := strconv.Atoi(os.Getenv(rebalanceVariable))
	if times == 0 {
		t.Skip("set " + rebalanceVariable + " to measure")
	}
	const partitions = 6
	n := startNode(t)
	a := admin(t, n)
	a.createTopic(t, "t", partitions, nil)
	l := newLedger()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var producer sync.WaitGroup
	producer.Go(func() { produceOn(ctx, a, l, "t", partitions, partitions, 5*time.Millisecond) })
	consume(t, a, l, "g", "t", always, "polls", "WebSocket", "SSE")
	owners := func() map[place]string {
		out := map[place]string{}
		d := a.group(t, "g")
		for _, m := range d.Members {
			for _, x := range m.Assignment {
				for _, p := range x.Partitions {
					out[place{x.Topic, p}] = m.ID
				}
			}
		}
		return out
	}
	stable := func(members int) {
		eventually(t, 20*time.Second, "stable", func() bool {
			d := a.group(t, "g")
			return d.State == "stable" && len(d.Members) == members
		})
	}
	stable(3)
	var stay, move []time.Duration
	gaps := func(change func()) {
		before, from := owners(), time.Now()
		change()
		time.Sleep(500 * time.Millisecond)
		after, to := owners(), time.Now()
		l.mu.Lock()
		defer l.mu.Unlock()
		for p, owner := range before {
			last, gap := from, time.Duration(0)
			for _, at := range l.arrivals[p] {
				if at.After(from) && at.Before(to) {
					gap = max(gap, at.Sub(last))
					last = at
				}
			}
			if after[p] == owner {
				stay = append(stay, gap)
			} else {
				move = append(move, gap)
			}
		}
	}
	for range times {
		var r *running
		gaps(func() { r = consume(t, a, l, "g", "t", always, "polls"); stable(4) })
		gaps(func() { r.end(); stable(3) })
	}
	stop()
	producer.Wait()
	require.Empty(t, l.wrong)
	for name, all := range map[string][]time.Duration{"stay": stay, "move": move} {
		slices.Sort(all)
		require.NotEmpty(t, all, name)
		t.Logf("partitions that %s: %d, gap median %v, p95 %v, most %v", name, len(all), all[len(all)/2], all[len(all)*95/100], all[len(all)-1])
	}
}
