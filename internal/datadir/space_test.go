package datadir

import (
	"errors"
	"io/fs"
	"math"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSpaceIsThatOfTheDisk(t *testing.T) {
	t.Parallel()
	d := mustOpen(t, t.TempDir())
	s, err := d.Space()
	require.NoError(t, err)
	require.NoError(t, d.Close())
	require.Positive(t, s.Total)
	require.GreaterOrEqual(t, s.Total, s.Free)

	out, err := exec.Command("df", "-B1", "--output=size", d.Path()).Output()
	require.NoError(t, err)
	fields := strings.Fields(string(out))
	total, err := strconv.ParseInt(fields[len(fields)-1], 10, 64)
	require.NoError(t, err)
	require.Equal(t, total, s.Total, "as df says")

	_, err = SpaceOf("/nonexistent")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestRoomWithoutEndDoesNotOverflow(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, 12, product(3, 4))
	require.EqualValues(t, 0, product(0, math.MaxUint64))
	require.EqualValues(t, int64(math.MaxInt64), product(math.MaxUint64, 4096))
	require.EqualValues(t, int64(math.MaxInt64), product(1<<62, 2))
}

func TestDiskGuardTurnsAtTheReserve(t *testing.T) {
	t.Parallel()
	var now Space
	var fault error
	g := NewDiskGuard(100, func() (Space, error) { return now, fault })
	require.False(t, g.Low(), "there is room until the first look")
	for _, step := range []struct {
		free         int64
		changed, low bool
	}{
		{1000, false, false}, {100, false, false}, {99, true, true}, {0, false, true}, {100, true, false}, {101, false, false}, {5, true, true},
	} {
		now = Space{Free: step.free, Total: 5000}
		changed, err := g.Check()
		require.NoError(t, err)
		require.Equal(t, step.changed, changed, step.free)
		require.Equal(t, step.low, g.Low(), step.free)
		require.Equal(t, now, g.Space())
	}

	fault = errors.New("gone")
	now.Free = 1000
	changed, err := g.Check()
	require.ErrorIs(t, err, fault)
	require.False(t, changed)
	require.True(t, g.Low(), "an unreadable disk keeps the last state")
	require.EqualValues(t, 5, g.Space().Free)
}

func TestNoReserveIsNeverLow(t *testing.T) {
	t.Parallel()
	g := NewDiskGuard(0, func() (Space, error) { return Space{}, nil })
	_, err := g.Check()
	require.NoError(t, err)
	require.False(t, g.Low())
}
