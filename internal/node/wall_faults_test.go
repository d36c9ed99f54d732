//go:build faultinject

package node

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/config"
)

// A clock that is set moves the wall clock's readings and no differences of times.
func TestAnOffsetMovesTheWallClockAlone(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{time.Hour, -time.Hour, -time.Second, 0, 100 * 24 * time.Hour} {
		before := time.Now()
		moved := set(before, by)
		require.Equal(t, before.UnixNano()+by.Nanoseconds(), moved.UnixNano(), by)
		require.Zero(t, moved.Sub(before), "by the monotonic readings, at %s", by)
		require.Equal(t, by, moved.Round(0).Sub(before.Round(0)), "by the wall clock")
	}
}

func TestTheOffsetIsReadAgainWhileTheNodeRuns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clock")
	t.Setenv(config.ClockOffsetVariable, path)
	_, err := wallClock()
	require.ErrorIs(t, err, os.ErrNotExist)
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	write("soon")
	_, err = wallClock()
	require.ErrorContains(t, err, path)

	write("1h\n")
	now, err := wallClock()
	require.NoError(t, err)
	off := func() time.Duration { return now().Round(0).Sub(time.Now().Round(0)) }
	require.InDelta(t, time.Hour.Seconds(), off().Seconds(), 60)
	write("-1h")
	require.Eventually(t, func() bool { return off() < -59*time.Minute }, time.Minute, time.Millisecond)
	write("nonsense")
	require.Never(t, func() bool { return off() > -59*time.Minute }, 5*offsetEvery, offsetEvery, "it stays as it was")
}
