package assign

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"tidewire/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// drawInput draws topics and members; with same, all subscribe to all.
func drawInput(t *rapid.T, topics, partitions, members int, same bool) Input {
	var in Input
	for range rapid.IntRange(0, topics).Draw(t, "topics") {
		in.Topics = append(in.Topics, int32(rapid.IntRange(0, partitions).Draw(t, "partitions")))
	}
	ranks := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,3}`), 0, members, rapid.ID[string]).Draw(t, "ranks")
	for _, r := range ranks {
		m := Member{Rank: r}
		for i := range in.Topics {
			if same || rapid.Bool().Draw(t, "subscribed") {
				m.Topics = append(m.Topics, i)
			}
		}
		in.Members = append(in.Members, m)
	}
	if len(ranks) == 0 {
		return in
	}
	for topic, n := range in.Topics {
		for p := range n {
			if owner := rapid.IntRange(-1, len(ranks)-1).Draw(t, "owner"); owner >= 0 {
				m := &in.Members[owner]
				m.Owned = append(m.Owned, Partition{topic, model.PartitionID(p)})
			}
		}
	}
	return in
}

func subscribes(m Member, topic int) bool { return slices.Contains(m.Topics, topic) }

// checkOnce wants each partition that somebody subscribes to at exactly one subscriber.
func checkOnce(t require.TestingT, in Input, out [][]Partition) {
	require.Len(t, out, len(in.Members))
	got := map[Partition]int{}
	for i, ps := range out {
		require.True(t, slices.IsSortedFunc(ps, compare))
		for _, p := range ps {
			got[p]++
			require.True(t, subscribes(in.Members[i], p.Topic), "%v got %v", in.Members[i], p)
		}
	}
	for topic, n := range in.Topics {
		wanted := slices.ContainsFunc(in.Members, func(m Member) bool { return subscribes(m, topic) })
		for p := range n {
			want := 0
			if wanted {
				want = 1
			}
			require.Equal(t, want, got[Partition{topic, model.PartitionID(p)}], "topic %d partition %d", topic, p)
		}
	}
}

func TestEachPartitionGoesToOneSubscriber(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				in := drawInput(t, 5, 9, 6, rapid.Bool().Draw(t, "same"))
				checkOnce(t, in, Assign(name, in))
			})
		})
	}
}

func TestTheOrderOfMembersDoesNotMatter(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				in := drawInput(t, 4, 6, 6, false)
				out := Assign(name, in)
				byRank := map[string][]Partition{}
				for i, m := range in.Members {
					byRank[m.Rank] = out[i]
				}
				shuffled := in
				shuffled.Members = slices.Clone(in.Members)
				rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)).Shuffle(len(shuffled.Members), func(i, j int) {
					shuffled.Members[i], shuffled.Members[j] = shuffled.Members[j], shuffled.Members[i]
				})
				for i, ps := range Assign(name, shuffled) {
					require.Equal(t, byRank[shuffled.Members[i].Rank], ps)
				}
			})
		})
	}
}

func TestRangeGivesRunsAndTheFirstMembersOneMore(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 4, 12, 6, false)
		out := Assign(Range, in)
		for topic, n := range in.Topics {
			var subs []int
			for i, m := range in.Members {
				if subscribes(m, topic) {
					subs = append(subs, i)
				}
			}
			slices.SortFunc(subs, func(a, b int) int {
				if in.Members[a].Rank < in.Members[b].Rank {
					return -1
				}
				return 1
			})
			next := model.PartitionID(0)
			for k, i := range subs {
				want := int(n) / len(subs)
				if k < int(n)%len(subs) {
					want++
				}
				for _, p := range out[i] {
					if p.Topic == topic {
						require.Equal(t, next, p.Index)
						next++
						want--
					}
				}
				require.Zero(t, want)
			}
		}
	})
}

func TestRoundRobinDealsInTurn(t *testing.T) {
	t.Parallel()
	in := Input{Topics: []int32{3, 2}, Members: []Member{{Rank: "b", Topics: []int{0, 1}}, {Rank: "a", Topics: []int{0, 1}}, {Rank: "c", Topics: []int{1}}}}
	// a, b, a of the first topic; then it is b's turn, then c's.
	require.Equal(t, [][]Partition{
		{{0, 1}, {1, 0}},
		{{0, 0}, {0, 2}},
		{{1, 1}},
	}, Assign(RoundRobin, in))
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 4, 9, 6, true)
		least, most := extent(Assign(RoundRobin, in))
		require.LessOrEqual(t, most-least, 1)
	})
}

func extent(out [][]Partition) (least, most int) {
	for i, ps := range out {
		if i == 0 || len(ps) < least {
			least = len(ps)
		}
		most = max(most, len(ps))
	}
	return least, most
}

// cost is the sum of squared loads, and the partitions that went from an owner who may
// have them to another, or from nobody.
func cost(in Input, out [][]Partition) (squares, moves int) {
	order := make([]int, len(in.Members))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		if in.Members[a].Rank < in.Members[b].Rank {
			return -1
		}
		return 1
	})
	owner := map[Partition]int{}
	for _, i := range order {
		for _, p := range in.Members[i].Owned {
			if _, taken := owner[p]; !taken && subscribes(in.Members[i], p.Topic) {
				owner[p] = i
			}
		}
	}
	for i, ps := range out {
		squares += len(ps) * len(ps)
		for _, p := range ps {
			if o, ok := owner[p]; !ok || o != i {
				moves++
			}
		}
	}
	return squares, moves
}

// bestCost tries every assignment.
func bestCost(in Input) (squares, moves int) {
	var parts []Partition
	for topic, n := range in.Topics {
		for p := range n {
			if slices.ContainsFunc(in.Members, func(m Member) bool { return subscribes(m, topic) }) {
				parts = append(parts, Partition{topic, model.PartitionID(p)})
			}
		}
	}
	squares, moves = 1<<30, 1<<30
	out := make([][]Partition, len(in.Members))
	var try func(k int)
	try = func(k int) {
		if k == len(parts) {
			if s, m := cost(in, out); s < squares || s == squares && m < moves {
				squares, moves = s, m
			}
			return
		}
		for i, m := range in.Members {
			if subscribes(m, parts[k].Topic) {
				out[i] = append(out[i], parts[k])
				try(k + 1)
				out[i] = out[i][:len(out[i])-1]
			}
		}
	}
	try(0)
	return squares, moves
}

func TestStickyIsAsEvenAsCanBeAndMovesNoMoreThanNeeded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 3, 3, 3, rapid.Bool().Draw(t, "same"))
		squares, moves := cost(in, Assign(Sticky, in))
		if len(in.Members) == 0 {
			return
		}
		bestSquares, bestMoves := bestCost(in)
		require.Equal(t, bestSquares, squares, "sum of squares")
		require.Equal(t, bestMoves, moves, "moves")
	})
}

func TestStickyIsWithinOneForEqualSubscriptions(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 5, 12, 9, true)
		least, most := extent(Assign(Sticky, in))
		require.LessOrEqual(t, most-least, 1)
	})
}

func TestStickyKeepsABalancedAssignment(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 4, 8, 6, rapid.Bool().Draw(t, "same"))
		first := Assign(Sticky, in)
		for i := range in.Members {
			in.Members[i].Owned = first[i]
		}
		require.Equal(t, first, Assign(Sticky, in))
	})
}

// A newcomer takes a fair share, and nothing moves between the others.
func TestStickyMovesOnlyToTheNewcomer(t *testing.T) {
	t.Parallel()
	in := Input{Topics: []int32{60}}
	for i := range 5 {
		in.Members = append(in.Members, Member{Rank: fmt.Sprint("m", i), Topics: []int{0}})
	}
	before := Assign(Sticky, in)
	for i := range in.Members {
		in.Members[i].Owned = before[i]
	}
	in.Members = append(in.Members, Member{Rank: "a-newcomer", Topics: []int{0}})
	after := Assign(Sticky, in)
	require.Len(t, after[5], 10)
	for i := range before {
		for _, p := range after[i] {
			require.Contains(t, before[i], p)
		}
	}
}

// The greedy way, for subscriptions too varied for the exact one.
func TestStickyGreedyLeavesNoMoveThatEvensFurther(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 5, 8, 6, false)
		w := &work{in: in, out: make([][]Partition, len(in.Members))}
		for i := range in.Members {
			w.order = append(w.order, i)
		}
		slices.SortFunc(w.order, func(a, b int) int {
			if in.Members[a].Rank < in.Members[b].Rank {
				return -1
			}
			return 1
		})
		w.subscribe()
		w.sticky(0)
		for _, ps := range w.out {
			slices.SortFunc(ps, compare)
		}
		checkOnce(t, in, w.out)
		for i, ps := range w.out {
			for _, p := range ps {
				for j, m := range in.Members {
					if subscribes(m, p.Topic) {
						require.LessOrEqual(t, len(w.out[i])-len(w.out[j]), 1)
					}
				}
			}
		}
	})
}

func TestOwnedThatIsNonsenseIsPassedOver(t *testing.T) {
	t.Parallel()
	in := Input{Topics: []int32{2, 1}, Members: []Member{
		{Rank: "a", Topics: []int{0}, Owned: []Partition{{0, 5}, {7, 0}, {-1, 0}, {0, -1}, {1, 0}, {0, 0}, {0, 0}}},
		{Rank: "b", Topics: []int{0}, Owned: []Partition{{0, 0}, {0, 1}}},
	}}
	require.Equal(t, [][]Partition{{{0, 0}}, {{0, 1}}}, Assign(Sticky, in))
}

// BenchmarkAssign is what a coordinator does under a group's lock.
func BenchmarkAssign(b *testing.B) {
	for _, x := range []struct {
		name                    string
		topics, partitions, mem int
		varied                  bool
	}{
		{"2000partitions-100members", 20, 100, 100, false},
		{"2000partitions-1000members", 20, 100, 1000, false},
		{"2000topics-100members", 2000, 1, 100, false},
		{"varied-20topics-100members", 20, 100, 100, true},
		{"varied-2000topics-100members", 2000, 1, 100, true},
	} {
		in := Input{}
		for range x.topics {
			in.Topics = append(in.Topics, int32(x.partitions))
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range x.mem {
			m := Member{Rank: fmt.Sprintf("m%05d", i)}
			for t := range in.Topics {
				if !x.varied || rng.IntN(2) == 0 {
					m.Topics = append(m.Topics, t)
				}
			}
			in.Members = append(in.Members, m)
		}
		for _, name := range Names() {
			b.Run(x.name+"/"+string(name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					Assign(name, in)
				}
			})
		}
	}
}
