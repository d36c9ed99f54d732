package founding

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
)

var (
	seeds = flag.Int("seeds", 1000, "simulations to run")
	seed  = flag.Uint64("seed", 0, "the one simulation to run; 0: many")
)

func node(id int) Node { return Node{ID: model.BrokerID(id), Storage: fmt.Sprint("s-", id)} }

func seen(ids ...int) []Seen {
	var out []Seen
	for _, id := range ids {
		out = append(out, Seen{Node: node(id), Expect: 3})
	}
	return out
}

func TestTheLowestIdFoundsOnceTheOthersHaveGranted(t *testing.T) {
	t.Parallel()
	one, two, three := New(node(1), 3, Node{}), New(node(2), 3, Node{}), New(node(3), 3, Node{})
	require.Contains(t, one.Step(seen(2)).Wait, "1 more")
	require.Contains(t, two.Step(seen(1, 3)).Wait, "node 1")
	require.Empty(t, two.Grant(), "nothing is granted before it is asked for")
	d := one.Step(seen(2, 3))
	require.Len(t, d.Asks, 2)
	require.False(t, d.Found)
	one.Replied(two.Asked(d.Asks["s-2"]))
	d = one.Step(seen(2, 3))
	require.False(t, d.Found)
	require.Len(t, d.Asks, 1, "who has granted is not asked again")
	one.Replied(three.Asked(d.Asks["s-3"]))
	require.True(t, one.Step(seen(2, 3)).Found)
	require.False(t, one.Step(seen(2, 3)).Found, "said once")
	require.Equal(t, []Node{node(1), node(1), node(1)}, []Node{one.Grant(), two.Grant(), three.Grant()})
	require.True(t, one.Asked(Ask{From: node(0), Expect: 3}).Member, "a founder yields to nobody")
}

func TestWhoSeesAClusterOrAnotherExpectationAsksForNothing(t *testing.T) {
	t.Parallel()
	f := New(node(1), 3, Node{})
	view := seen(2, 3)
	view[1].Cluster = "c"
	d := f.Step(view)
	require.Empty(t, d.Asks)
	require.Contains(t, d.Wait, "cluster c")
	view = seen(2, 3, 4)
	view[2].Expect = 5
	d = f.Step(view)
	require.Empty(t, d.Asks)
	require.Contains(t, d.Wait, "node 4, which expects 5")
	require.Equal(t, Reply{From: node(1), Expect: 3}, f.Asked(Ask{From: node(0), Expect: 5}))
	joiner := Seen{Node: node(0)}
	require.Len(t, f.Step(append(seen(2, 3), joiner)).Asks, 2, "a node that only joins neither grants nor counts")
}

func TestAGrantIsKeptAndMovesOnlyFromOneThatYielded(t *testing.T) {
	t.Parallel()
	f := New(node(5), 3, node(2))
	require.Equal(t, Reply{From: node(5), To: node(2)}, f.Asked(Ask{From: node(1), Expect: 3}), "over a restart")
	require.False(t, f.Asked(Ask{From: node(1), Expect: 3, Yielded: node(3)}).Granted, "another one yielded")
	require.False(t, f.Asked(Ask{From: node(3), Expect: 3, Yielded: node(2)}).Granted, "never to a higher id")
	require.True(t, f.Asked(Ask{From: node(1), Expect: 3, Yielded: node(2)}).Granted)
	require.Equal(t, node(1), f.Grant())
	require.Contains(t, f.Step(seen(6, 7)).Wait, "gone for good")
}

func TestACandidateYieldsToALowerIdAndNeverFoundsThen(t *testing.T) {
	t.Parallel()
	two := New(node(2), 3, Node{})
	two.Step(seen(3, 4))
	two.Replied(Reply{From: node(3), Granted: true})
	two.Replied(Reply{From: node(4), Granted: true})
	require.True(t, two.Asked(Ask{From: node(1), Expect: 3}).Granted)
	require.False(t, two.Step(seen(3, 4)).Found, "though it has the others' grants")
	require.False(t, New(node(2), 3, two.Grant()).Step(seen(3, 4)).Found, "nor after a restart")
}

// world is several founders, whose messages get lost, are doubled and come late, who crash,
// and who see each other in part only.
type world struct {
	t       testing.TB
	rng     *rand.Rand
	expect  int
	nodes   []*simNode
	net     []message
	founded []Node
	faults  map[string]int
	calm    bool // no faults any more
	plant   string
}

type simNode struct {
	id   Node
	f    *Founder // nil while down
	disk Node     // the grant that was kept
	done bool     // founded, on disk
}

type message struct {
	to    int
	ask   *Ask
	reply *Reply
}

func (w *world) index(storage string) int {
	for i, n := range w.nodes {
		if n.id.Storage == storage {
			return i
		}
	}
	w.t.Fatalf("who is %s", storage)
	return 0
}

// step lets one thing happen.
func (w *world) step() {
	i := w.rng.IntN(len(w.nodes))
	switch k := w.rng.IntN(100); {
	case !w.calm && k < 5:
		w.crash(i)
	case k < 15 || w.nodes[i].f == nil:
		w.restart(i)
	case k < 50 || len(w.net) == 0:
		w.look(i)
	default:
		w.deliver()
	}
}

func (w *world) crash(i int) {
	if w.nodes[i].f != nil {
		w.faults["crash"]++
		w.nodes[i].f = nil
	}
}

func (w *world) restart(i int) {
	n := w.nodes[i]
	if n.f != nil || n.done {
		return
	}
	n.f = New(n.id, w.expect, n.disk)
	if w.plant == "grants are forgotten" {
		n.f = New(n.id, w.expect, Node{})
	}
}

// look is a Step of a node on what it sees.
func (w *world) look(i int) {
	n := w.nodes[i]
	if n.f == nil {
		return
	}
	var view []Seen
	for j, o := range w.nodes {
		if j == i || o.f == nil && !o.done {
			continue
		}
		if !w.calm && w.rng.IntN(4) == 0 {
			w.faults["not seen"]++
			continue
		}
		s := Seen{Node: o.id, Expect: w.expect}
		if o.done && w.calm {
			s.Cluster = "c"
		}
		view = append(view, s)
	}
	d := n.f.Step(view)
	w.keep(n)
	if d.Found {
		w.found(n)
	}
	for storage, a := range d.Asks {
		w.send(message{to: w.index(storage), ask: &a})
	}
}

func (w *world) found(n *simNode) {
	if !w.calm && w.rng.IntN(4) == 0 { // the power fails before anything is on disk
		w.faults["crash while founding"]++
		n.f = nil
		return
	}
	n.done = true
	w.founded = append(w.founded, n.id)
}

func (w *world) keep(n *simNode) { n.disk = n.f.Grant() }

func (w *world) send(m message) {
	if !w.calm {
		switch w.rng.IntN(10) {
		case 0:
			w.faults["lost"]++
			return
		case 1:
			w.faults["doubled"]++
			w.net = append(w.net, m)
		}
	}
	w.net = append(w.net, m)
}

// deliver brings any of the messages under way: they overtake each other.
func (w *world) deliver() {
	k := w.rng.IntN(len(w.net))
	m := w.net[k]
	w.net = append(w.net[:k], w.net[k+1:]...)
	n := w.nodes[m.to]
	switch {
	case n.f == nil:
	case m.ask != nil:
		r := w.asked(n, *m.ask)
		w.keep(n)
		w.send(message{to: w.index(m.ask.From.Storage), reply: &r})
	default:
		n.f.Replied(*m.reply)
	}
}

func (w *world) asked(n *simNode, a Ask) Reply {
	switch {
	case w.plant == "grants move freely" && a.From.less(n.f.grant):
		a.Yielded = n.f.grant
	case w.plant == "founders grant":
		n.f.founded = false
	}
	return n.f.Asked(a)
}

// simulate runs one seed and returns how many founded before and after the faults ended.
func simulate(t testing.TB, seed uint64, plant string) (w *world, early int) {
	rng := rand.New(rand.NewPCG(seed, 1))
	w = &world{t: t, rng: rng, expect: 2 + rng.IntN(4), faults: map[string]int{}, plant: plant}
	count := w.expect + rng.IntN(w.expect) // N to 2N-1 nodes
	for _, id := range rng.Perm(count) {
		w.nodes = append(w.nodes, &simNode{id: node(id)})
	}
	for range 400 {
		w.step()
	}
	early = len(w.founded)
	w.calm = true
	for left := 4000; left > 0; left-- {
		w.step()
		if len(w.founded) > 0 {
			left = min(left, 300) // for a second one to show
		}
	}
	return w, early
}

func TestAtMostOneEverFoundsAndOneDoesWhenFaultsEnd(t *testing.T) {
	t.Parallel()
	first, last := uint64(1), uint64(*seeds)
	if *seed != 0 {
		first, last = *seed, *seed
	}
	faults, early := map[string]int{}, 0
	for s := first; s <= last; s++ {
		w, e := simulate(t, s, "")
		require.Len(t, w.founded, 1, "seed %d: -seed=%d replays it", s, s)
		early += e
		for k, n := range w.faults {
			faults[k] += n
		}
	}
	if first == last {
		return
	}
	for _, k := range []string{"crash", "crash while founding", "lost", "doubled", "not seen"} {
		require.Positive(t, faults[k], k)
	}
	require.Positive(t, early, "some must found amid faults")
}

func TestTheSimulationFindsPlantedMistakes(t *testing.T) {
	t.Parallel()
	for _, plant := range []string{"grants are forgotten", "grants move freely", "founders grant"} {
		t.Run(plant, func(t *testing.T) {
			t.Parallel()
			for s := uint64(1); s <= 2000; s++ {
				if w, _ := simulate(t, s, plant); len(w.founded) != 1 {
					return
				}
			}
			t.Fatal("2000 seeds found nothing")
		})
	}
}
