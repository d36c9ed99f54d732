package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewire/internal/model"
)

// server makes node n's server by marks: v votes, a is alive, c has caught up, g is gone for
// long.
func server(n int, marks string) Server {
	s := Server{Storage: fmt.Sprint("s-", n), Node: model.BrokerID(n), Known: true, Registered: true, Gone: time.Second}
	for _, m := range marks {
		switch m {
		case 'v':
			s.Voter = true
		case 'a':
			s.Alive, s.Gone = true, 0
		case 'c':
			s.CaughtUp = true
		case 'g':
			s.Gone = replaceAfter
		case 'f': // its disk is full
			s.Full = true
		case 'r': // its broker was removed
			s.Registered, s.Known = false, false
		}
	}
	return s
}

func servers(marks ...string) []Server {
	var out []Server
	for i, m := range marks {
		out = append(out, server(i+1, m))
	}
	return out
}

func TestServersChangeOneStepAtATime(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		servers    []Server
		candidates []Candidate
		want       Change
	}{
		"alone":                             {servers: servers("vac")},
		"a newcomer follows":                {servers("vac"), []Candidate{{"s-2", 2}}, Change{Add, "s-2"}},
		"the lowest newcomer first":         {servers("vac"), []Candidate{{"s-9", 9}, {"s-2", 2}}, Change{Add, "s-2"}},
		"one follower gets no vote":         {servers: servers("vac", "ac")},
		"two followers get two, the first":  {servers: servers("vac", "ac", "ac"), want: Change{Promote, "s-2"}},
		"two followers get two, the second": {servers: servers("vac", "vac", "ac"), want: Change{Promote, "s-3"}},
		"not before both have caught up":    {servers: servers("vac", "ac", "a")},
		"nor while one is away":             {servers: servers("vac", "ac", "c")},
		"a fourth has no vote":              {servers: servers("vac", "vac", "vac", "ac")},
		"a fourth and a fifth have":         {servers: servers("vac", "vac", "vac", "ac", "ac"), want: Change{Promote, "s-4"}},
		"a sixth and a seventh have not":    {servers: servers("vac", "vac", "vac", "vac", "vac", "ac", "ac")},
		"who is away for a moment votes on": {servers: servers("vac", "vac", "v", "ac")},
		"who is gone is replaced":           {servers: servers("vac", "vac", "vg", "ac"), want: Change{Promote, "s-4"}},
		"and goes when the other votes":     {servers: servers("vac", "vac", "vg", "vac"), want: Change{Demote, "s-3"}},
		"not without a replacement":         {servers: servers("vac", "vac", "vg", "a")},
		"of five too":                       {servers: servers("vac", "vac", "vac", "vac", "vg", "ac"), want: Change{Promote, "s-6"}},
		"and of six one goes":               {servers: servers("vac", "vac", "vac", "vac", "vg", "vac"), want: Change{Demote, "s-5"}},
		"an empty folder takes the place of the old": {
			servers("vac", "vac", "vg"), []Candidate{{"s-new", 3}}, Change{Remove, "s-3"},
		},
		"at once, since the old cannot come back": {
			servers("vac", "vac", "v"), []Candidate{{"s-new", 3}}, Change{Remove, "s-3"},
		},
		"a second node of a live one's id stays out": {servers: servers("vac", "vac", "vac"), candidates: []Candidate{{"s-twin", 2}}},
		"nor does one push the leader out":           {servers: servers("vc"), candidates: []Candidate{{"s-twin", 1}}},
		"a voter whose broker was removed goes":      {servers: servers("vac", "vac", "vgr"), want: Change{Remove, "s-3"}},
		"and so does another server":                 {servers: servers("vac", "vac", "vac", "gr"), want: Change{Remove, "s-4"}},
		"not while its node is there":                {servers: servers("vac", "vac", "vac", "ar")},
		"nor at once, for it may be starting":        {servers: servers("vac", "vac", "vac", "r")},
		"two are left then, and a third may vote":    {servers: servers("vac", "vac", "ac"), want: Change{Promote, "s-3"}},
		"and others come in past it": {
			servers("vac", "vac", "vac"), []Candidate{{"s-twin", 2}, {"s-4", 4}}, Change{Add, "s-4"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, x.want, NextServer("s-1", x.servers, x.candidates))
		})
	}
}

func TestALeaderWithAFullDiskHandsOver(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		servers []Server
		want    string
	}{
		"it has room":                  {servers("vac", "vac", "vac"), ""},
		"it has none":                  {servers("vacf", "vac", "vac"), "s-2"},
		"the second has none either":   {servers("vacf", "vacf", "vac"), "s-3"},
		"nobody has":                   {servers("vacf", "vacf", "vacf"), ""},
		"another has none":             {servers("vac", "vacf", "vac"), ""},
		"only those with a vote":       {servers("vacf", "ac", "ac"), ""},
		"only those that are there":    {servers("vacf", "vc", "vac"), "s-3"},
		"only those that know as much": {servers("vacf", "va", "vac"), "s-3"},
		"it is alone":                  {servers("vacf"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, x.want, HandOver("s-1", x.servers))
		})
	}
}

// Any set of nodes settles, with an odd number of voters, at most five, all live ones that
// can have a vote having one; and no step takes a vote from a node that is alive.
func TestServersSettle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		alive := rapid.IntRange(1, 9).Draw(t, "alive")
		dead := rapid.IntRange(0, max(0, min(2, (alive-1)/2))).Draw(t, "dead")
		state := map[string]*Server{}
		first := server(1, "vac")
		state[first.Storage] = &first
		var waiting []Candidate
		for n := 2; n <= alive; n++ {
			waiting = append(waiting, Candidate{fmt.Sprint("s-", n), model.BrokerID(n)})
		}
		for n := 20; n < 20+dead; n++ {
			s := server(n, "vg")
			state[s.Storage] = &s
		}
		for step := 0; ; step++ {
			require.Less(t, step, 100, "it does not settle")
			var all []Server
			for _, s := range state {
				all = append(all, *s)
			}
			c := NextServer("s-1", all, waiting)
			if c.Action == Keep {
				break
			}
			apply(t, state, &waiting, c)
		}
		voters, live := 0, 0
		for _, s := range state {
			if s.Voter {
				voters++
			}
			if s.Alive {
				live++
			}
		}
		require.Equal(t, alive, live, "all were taken in")
		require.LessOrEqual(t, voters, MaxVoters)
		if alive >= 3 {
			require.Equal(t, 1, voters%2, "%d voters of %d", voters, alive)
		}
		if dead == 0 {
			require.Equal(t, Voters(alive), voters)
		}
	})
}

func apply(t *rapid.T, state map[string]*Server, waiting *[]Candidate, c Change) {
	switch c.Action {
	case Add:
		for i, w := range *waiting {
			if w.Storage == c.Storage {
				state[c.Storage] = &Server{Storage: w.Storage, Node: w.Node, Known: true, Registered: true, Alive: true, CaughtUp: true}
				*waiting = append((*waiting)[:i:i], (*waiting)[i+1:]...)
				return
			}
		}
		t.Fatal("it was not waiting")
	case Promote:
		require.False(t, state[c.Storage].Voter)
		state[c.Storage].Voter = true
	case Demote:
		require.False(t, state[c.Storage].Alive, "a live voter lost its vote")
		state[c.Storage].Voter = false
	default:
		require.False(t, state[c.Storage].Alive)
		delete(state, c.Storage)
	}
}

func TestBrokersAreFencedByWhatIsHeard(t *testing.T) {
	t.Parallel()
	well := Broker{Voter: true, Epoch: 5, Said: 5, Applied: 9}
	named := func(id model.BrokerID, change func(*Broker)) Broker {
		b := well
		b.ID = id
		if change != nil {
			change(&b)
		}
		return b
	}
	for name, x := range map[string]struct {
		third  func(*Broker)
		second func(*Broker)
		want   Fencing
	}{
		"all well":                     {},
		"silent for a moment":          {third: func(b *Broker) { b.Silent = silent - 1 }},
		"silent for long":              {third: func(b *Broker) { b.Silent = silent }, want: Fencing{Fence: []model.BrokerID{3}}},
		"gone, heard just now":         {third: func(b *Broker) { b.Silent, b.Gone = silentAndGone-1, true }},
		"gone and silent":              {third: func(b *Broker) { b.Silent, b.Gone = silentAndGone, true }, want: Fencing{Fence: []model.BrokerID{3}}},
		"its port closed, heard late":  {third: func(b *Broker) { b.Silent, b.Closed = silentAndClosed-1, true }},
		"its port closed, and silent":  {third: func(b *Broker) { b.Silent, b.Closed = silentAndClosed, true }, want: Fencing{Fence: []model.BrokerID{3}}},
		"its port closed, new leader":  {third: func(b *Broker) { b.Unheard, b.Closed = true, true }, want: Fencing{Fence: []model.BrokerID{3}}},
		"not heard by a new leader":    {third: func(b *Broker) { b.Unheard = true }},
		"fenced already":               {third: func(b *Broker) { b.Silent, b.Fenced = time.Hour, true }},
		"a majority is silent":         {second: func(b *Broker) { b.Silent = silent }, third: func(b *Broker) { b.Silent = silent }},
		"back with its registration":   {third: func(b *Broker) { b.Fenced = true }, want: Fencing{Unfence: []model.BrokerID{3}}},
		"back, behind it":              {third: func(b *Broker) { b.Fenced, b.Applied = true, 4 }},
		"back, of an older life":       {third: func(b *Broker) { b.Fenced, b.Said = true, 4 }},
		"never heard":                  {third: func(b *Broker) { b.Fenced, b.Said, b.Applied = true, 0, 0 }},
		"back, and gone for gossip":    {third: func(b *Broker) { b.Fenced, b.Gone = true, true }, want: Fencing{Unfence: []model.BrokerID{3}}},
		"about to stop":                {third: func(b *Broker) { b.Stopping = true }, want: Fencing{Fence: []model.BrokerID{3}}},
		"about to stop, and fenced":    {third: func(b *Broker) { b.Stopping, b.Fenced = true, true }},
		"stopped in an older life":     {third: func(b *Broker) { b.Stopping, b.Said = true, 4 }},
		"a follower without a vote":    {third: func(b *Broker) { b.Voter, b.Silent = false, silent }, want: Fencing{Fence: []model.BrokerID{3}}},
		"two of them beside one voter": {second: func(b *Broker) { b.Voter, b.Silent = false, silent }, third: func(b *Broker) { b.Voter, b.Silent = false, silent }, want: Fencing{Fence: []model.BrokerID{2, 3}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, x.want, NextFencing([]Broker{named(1, nil), named(2, x.second), named(3, x.third)}))
		})
	}
}

func TestABrokersPortIsLookedAtOnceItIsSilent(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		b    Broker
		want bool
	}{
		{Broker{Silent: silentAndClosed - 1}, false},
		{Broker{Silent: silentAndClosed}, true},
		{Broker{Unheard: true}, true},
		{Broker{Silent: silentAndClosed, Fenced: true}, false},
		{Broker{Silent: silentAndGone, Gone: true}, false},
		{Broker{Silent: silent}, false},
	} {
		require.Equal(t, x.want, x.b.Suspect(), "%+v", x.b)
	}
}
