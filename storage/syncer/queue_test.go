package syncer

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestWhoMostWaitForIsTakenFirst(t *testing.T) {
	t.Parallel()
	var q queue
	few, many, more := &Member{}, &Member{}, &Member{}
	for _, m := range []*Member{few, many, more} {
		q.push(m)
	}
	q.ask(many)
	q.ask(more)
	q.ask(more)
	require.Equal(t, []*Member{more, many, few}, []*Member{q.pop(), q.pop(), q.pop()})
	require.True(t, q.empty())
}

// Beside members that many wait for, and that come again as soon as they are taken.
func TestAMemberThatFewWaitForIsNotPassedOverForLong(t *testing.T) {
	t.Parallel()
	var q queue
	const others = 20
	for range others {
		m := &Member{asked: 50}
		q.push(m)
	}
	lone := &Member{}
	q.push(lone)
	for n := 1; ; n++ {
		m := q.pop()
		if m == lone {
			require.LessOrEqual(t, n, oldestEvery*(others+1))
			return
		}
		m.asked = 50
		q.push(m)
	}
}

// Whatever comes and goes: each pop is the one most asked for, first come among equals, and
// each oldestEvery-th the oldest; none is lost, none comes twice.
func TestTheQueueAgreesWithAPlainList(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := make([]*Member, 12)
		for i := range all {
			all[i] = &Member{}
		}
		var q queue
		var plain []*Member // by age
		asked := map[*Member]int{}
		pops := 0
		for range rapid.IntRange(1, 3000).Draw(t, "steps") {
			m := rapid.SampledFrom(all).Draw(t, "member")
			switch there := slices.Contains(plain, m); {
			case rapid.Bool().Draw(t, "pop") && len(plain) > 0:
				pops++
				want := plain[0]
				for _, m := range plain {
					if pops%oldestEvery != 0 && asked[m] > asked[want] {
						want = m
					}
				}
				require.Same(t, want, q.pop())
				plain = slices.DeleteFunc(plain, func(m *Member) bool { return m == want })
				delete(asked, want)
			case there:
				q.ask(m)
				asked[m]++
			default:
				q.push(m)
				plain = append(plain, m)
			}
			require.Equal(t, len(plain) == 0, q.empty())
		}
	})
}
