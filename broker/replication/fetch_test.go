package replication

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewire/internal/model"
	"tidewire/storage/epochs"
)

// memory is a log as offsets with the epochs in which they were written.
type memory struct {
	start model.Offset
	end   model.Offset
	cache epochs.Cache
}

func (m *memory) LogStart() model.Offset         { return m.start }
func (m *memory) LogEnd() model.Offset           { return m.end }
func (m *memory) LogEndEpoch() model.LeaderEpoch { return m.cache.Latest() }
func (m *memory) EpochEnd(e model.LeaderEpoch) (model.LeaderEpoch, model.Offset) {
	return m.cache.End(e, m.end)
}

func (m *memory) CutFor(leader model.LeaderEpoch, leaderEnd model.Offset) (model.Offset, bool) {
	own, ownEnd := m.cache.Floor(leader, m.end)
	switch {
	case leader < 0 || own == model.NoEpoch:
		return min(max(leaderEnd, m.start), m.end), true
	case own != leader:
		return min(ownEnd, m.end), false
	}
	return min(leaderEnd, ownEnd, m.end), true
}

func (m *memory) append(epoch model.LeaderEpoch, n model.Offset) {
	m.cache, _ = m.cache.Note(epoch, m.end)
	m.end += n
}

func (m *memory) cut(to model.Offset) {
	m.cache = append(epochs.Cache{}, m.cache.TruncateFrom(to)...)
	m.end = to
}

// epochAt is the epoch in which an offset was written.
func (m *memory) epochAt(off model.Offset) model.LeaderEpoch {
	e := model.NoEpoch
	for _, x := range m.cache {
		if x.Start <= off {
			e = x.Epoch
		}
	}
	return e
}

func (m *memory) clone() *memory {
	n := *m
	n.cache = append(epochs.Cache{}, m.cache...)
	return &n
}

func (m *memory) position(epoch model.LeaderEpoch) Position {
	return Position{Epoch: epoch, LogEnd: m.end, LastEpoch: m.cache.Latest(), StableEnd: m.end}
}

// agree has a follower fetch until it is served, and gives in how many rounds.
func agree(t require.TestingT, leader, follower *memory) int {
	for round := 1; ; round++ {
		require.Less(t, round, 50, "the logs never agree: %+v %+v", leader, follower)
		a := Serve(leader, follower.position(99))
		switch s := Next(follower, a); s.Action {
		case Truncate:
			require.Less(t, s.To, follower.end, "a cut that cuts nothing goes on for ever")
			follower.cut(s.To)
		case Restart:
			*follower = memory{start: s.To, end: s.To}
		case Append:
			return round
		}
	}
}

func TestAFollowerCutsWhereTheLogsPart(t *testing.T) {
	t.Parallel()
	common := &memory{}
	common.append(1, 10)
	leader, follower := common.clone(), common.clone()
	follower.append(2, 5) // a leader that nobody followed
	leader.append(3, 7)
	require.Equal(t, Answer{Verdict: Diverged, Epoch: 1, End: 10}, Serve(leader, follower.position(3)))
	require.Equal(t, 2, agree(t, leader, follower))
	require.Equal(t, model.Offset(10), follower.end)

	behind := common.clone()
	behind.cut(4)
	require.Equal(t, Serving, Serve(leader, behind.position(3)).Verdict)

	quiet := common.clone() // leads in epoch 3 and has written nothing
	follower.append(2, 5)
	require.Equal(t, 2, agree(t, quiet, follower))
	require.Equal(t, model.Offset(10), follower.end, "an epoch above all that the leader has written in")

	longer := common.clone()
	longer.append(1, 3)
	agree(t, leader, longer)
	require.Equal(t, model.Offset(10), longer.end, "more of an epoch than the leader has")
}

func TestAFollowerThatTheLeaderCannotServeBeginsAnew(t *testing.T) {
	t.Parallel()
	leader := &memory{start: 20, end: 20}
	leader.append(5, 10)
	for name, f := range map[string]*memory{
		"too far behind":         {end: 5, cache: epochs.Cache{{Epoch: 1, Start: 0}}},
		"empty and ahead":        {start: 90, end: 90},
		"nothing in common":      {start: 22, end: 25, cache: epochs.Cache{{Epoch: 6, Start: 22}}},
		"empty and too far back": {},
	} {
		agree(t, leader, f)
		require.LessOrEqual(t, f.end, leader.end, name)
		require.Equal(t, model.Offset(20), f.start, name)
	}
	empty := &memory{start: 20, end: 20}
	require.Equal(t, 1, agree(t, leader, empty))
}

// TestLogsAgreeAfterAnyLeaders draws logs as leaders leave them and lets one follow the other.
func TestLogsAgreeAfterAnyLeaders(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		logs := []*memory{{}, {}, {}}
		epoch := model.LeaderEpoch(0)
		for range rapid.IntRange(1, 12).Draw(t, "leaders") {
			epoch++
			leader := logs[rapid.IntRange(0, 2).Draw(t, "leader")]
			leader.append(epoch, model.Offset(rapid.IntRange(1, 9).Draw(t, "records")))
			for _, f := range logs {
				if f == leader || rapid.Bool().Draw(t, "is away") {
					continue
				}
				agree(t, leader, f)
				for off := range f.end {
					require.Equal(t, leader.epochAt(off), f.epochAt(off), "offset %d", off)
				}
				part := min(leader.end, f.end+model.Offset(rapid.IntRange(0, 30).Draw(t, "copies")))
				for f.end < part {
					f.append(leader.epochAt(f.end), 1)
				}
			}
		}
	})
}
