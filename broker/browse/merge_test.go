package browse

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewire/internal/model"
	"tidewire/internal/testkit/racing"
	"tidewire/storage/record"
)

var budgets = []int{1, 3000, 64 << 10, 8 << 20}

// A read gives what the brute force gives, in both directions, with every filter, from
// every place; and pages by cursors give, one after the other, the same sequence, while
// others append and whatever the memory and the work of one call are bounded to.
func TestPagesGiveTheSequenceOfTheBruteForce(t *testing.T) {
	t.Parallel()
	racing.SkipSequential(t)
	rapid.Check(t, func(t *rapid.T) {
		x := newTopic(t, rapid.IntRange(1, 5).Draw(t, "partitions"))
		defer x.close()
		x.grow(t, rapid.IntRange(0, 8).Draw(t, "batches"))
		x.end()
		dir := Direction(rapid.IntRange(0, 1).Draw(t, "direction"))
		f := drawFilter(t)
		parts := x.parts(dir)
		for i := range parts { // anywhere in the log, not only at its ends
			if rapid.IntRange(0, 3).Draw(t, "inside") == 0 {
				parts[i].Next = model.Offset(rapid.Int64Range(0, int64(x.visible[i])).Draw(t, "next"))
			}
		}
		want := x.want(parts, dir, f)
		budget := rapid.SampledFrom(budgets).Draw(t, "budget")
		got, progress := x.scan(NewMerge(parts, dir, budget), f, all, rapid.SampledFrom([]int{1, 500, all}).Draw(t, "work"))
		require.Equal(t, Dry, progress)
		require.Equal(t, want, got)

		size := rapid.SampledFrom([]int{1, 2, 17, 400}).Draw(t, "page")
		paged := []rec{}
		for pages := 0; ; pages++ {
			require.LessOrEqual(t, pages, len(want)+1, "paging does not end")
			m := NewMerge(parts, dir, budget)
			page, progress := x.scan(m, f, size, all)
			paged = append(paged, page...)
			if progress == Dry {
				break
			}
			c := Cursor{Topic: model.TopicID{1}, Direction: dir, Whole: true, Places: m.AppendPlaces(nil), Filter: *f}
			back, ok := ParseCursor(c.String())
			require.True(t, ok)
			require.Equal(t, &c, back)
			parts = x.resume(back.Places)
			x.grow(t, rapid.IntRange(0, 1).Draw(t, "appended meanwhile"))
			if dir == Forward {
				x.end()
			}
		}
		require.Equal(t, want, paged)
	})
}

// What retention takes while somebody pages is passed over: each page gives what the brute
// force gives of what is left, and paging ends.
func TestRetentionWhileSomebodyPages(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := newTopic(t, rapid.IntRange(1, 4).Draw(t, "partitions"))
		defer x.close()
		x.grow(t, rapid.IntRange(1, 9).Draw(t, "batches"))
		x.end()
		dir := Direction(rapid.IntRange(0, 1).Draw(t, "direction"))
		size := rapid.SampledFrom([]int{1, 3, 50}).Draw(t, "page")
		parts := x.parts(dir)
		bound := len(x.want(parts, dir, &Filter{}))
		for pages := 0; ; pages++ {
			require.LessOrEqual(t, pages, bound+1, "paging does not end")
			want := x.want(parts, dir, &Filter{})
			m := NewMerge(parts, dir, rapid.SampledFrom(budgets).Draw(t, "budget"))
			page, progress := x.scan(m, &Filter{}, size, all)
			require.Equal(t, want[:min(size, len(want))], page)
			if progress == Dry {
				return
			}
			parts = x.resume(m.AppendPlaces(nil))
			for p, l := range x.logs {
				if rapid.IntRange(0, 2).Draw(t, "deletes") == 0 {
					to := model.Offset(rapid.Int64Range(int64(l.LogStart()), int64(l.LogEnd())).Draw(t, "log start"))
					require.NoError(t, l.AdvanceLogStart(to), p)
				}
			}
		}
	})
}

// Records that go while a read is between two of them are passed over or were read before;
// nothing comes twice, and what stays comes.
func TestRetentionWithinOneRead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := newTopic(t, rapid.IntRange(1, 4).Draw(t, "partitions"))
		defer x.close()
		x.grow(t, rapid.IntRange(1, 9).Draw(t, "batches"))
		x.end()
		dir := Direction(rapid.IntRange(0, 1).Draw(t, "direction"))
		m := NewMerge(x.parts(dir), dir, rapid.SampledFrom(budgets).Draw(t, "budget"))
		seen := map[string]int{}
		last := map[model.PartitionID]model.Offset{}
		for {
			progress, err := m.Scan(&Filter{}, 1, func(it Item) Verdict {
				r := recOf(it)
				seen[r.String()]++
				if before, ok := last[r.part]; ok {
					require.Equal(t, dir == Forward, r.off > before, "the order of offsets")
				}
				last[r.part] = r.off
				return Go
			})
			require.NoError(t, err)
			if progress == Dry {
				break
			}
			if rapid.IntRange(0, 20).Draw(t, "deletes") == 0 {
				l := x.logs[rapid.IntRange(0, len(x.logs)-1).Draw(t, "of")]
				require.NoError(t, l.AdvanceLogStart(model.Offset(rapid.Int64Range(int64(l.LogStart()), int64(l.LogEnd())).Draw(t, "log start"))))
			}
		}
		for p, of := range x.model {
			for _, r := range of {
				require.LessOrEqual(t, seen[r.String()], 1)
				if r.off >= x.logs[p].LogStart() {
					require.Equal(t, 1, seen[r.String()], "%s stays and has to come", r)
				}
			}
		}
	})
}

// Followers see what is added, in partitions that are added too, and each record once.
func TestFollowing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := newTopic(t, rapid.IntRange(1, 3).Draw(t, "partitions"))
		defer x.close()
		parts := x.parts(Forward)
		for i := range parts {
			parts[i].Bound = Unbounded
		}
		m := NewMerge(parts, Forward, 8<<20)
		got := map[model.PartitionID][]rec{}
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			x.grow(t, rapid.IntRange(0, 3).Draw(t, "batches"))
			if rapid.IntRange(0, 4).Draw(t, "another partition") == 0 {
				x.addPartition()
				p := len(x.logs) - 1
				m.Add([]Part{{model.PartitionID(p), view{x, p}, 0, Unbounded}})
			}
			for p, l := range x.logs { // not all of it, maybe not whole batches
				x.visible[p] = model.Offset(rapid.Int64Range(int64(x.visible[p]), int64(l.LogEnd())).Draw(t, "visible"))
			}
			require.NoError(t, m.Refresh())
			page, progress := x.scan(m, &Filter{}, all, all)
			require.Equal(t, Dry, progress)
			for _, r := range page {
				got[r.part] = append(got[r.part], r)
			}
			if rapid.Bool().Draw(t, "rest") {
				m.Release()
			}
		}
		for p, of := range x.model {
			want := []rec{}
			for _, r := range of {
				if r.off < x.visible[p] {
					want = append(want, r)
				}
			}
			require.Equal(t, want, append([]rec{}, got[model.PartitionID(p)]...))
		}
	})
}

// Where times follow the offsets, reading backward is reading forward in reverse.
func TestBackwardIsForwardInReverseWhereTimeFollowsOffsets(t *testing.T) {
	t.Parallel()
	x := newTopic(t, 3)
	defer x.close()
	for i := range 300 {
		x.add(i*7%3, 0, record.None, rec{ts: int64(i / 4), value: []byte(fmt.Sprint(i))})
	}
	x.end()
	forward, _ := x.scan(NewMerge(x.parts(Forward), Forward, 8<<20), &Filter{}, all, all)
	backward, _ := x.scan(NewMerge(x.parts(Backward), Backward, 8<<20), &Filter{}, all, all)
	require.Len(t, forward, 300)
	for i := range forward {
		require.Equal(t, forward[i], backward[299-i])
	}
}

func TestAFilterThatStopsBeforeARecordLeavesIt(t *testing.T) {
	t.Parallel()
	x := newTopic(t, 2)
	defer x.close()
	for i := range 10 {
		x.add(i%2, 0, record.None, rec{ts: int64(i)})
	}
	x.end()
	m := NewMerge(x.parts(Forward), Forward, 8<<20)
	progress, err := m.Scan(&Filter{}, all, func(it Item) Verdict {
		if it.Record.Timestamp == 4 {
			return StopBefore
		}
		return Go
	})
	require.NoError(t, err)
	require.Equal(t, Stopped, progress)
	require.Equal(t, Scanned{Records: 4}, m.Scanned())
	rest, _ := x.scan(m, &Filter{}, all, all)
	require.Len(t, rest, 6)
	require.Equal(t, []Range{{0, 0, 5}, {1, 0, 5}}, m.Ranges())
}
