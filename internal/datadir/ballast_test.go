package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// disk is the free space that a test decides; the ballast's blocks come out of it.
type disk struct {
	mu    sync.Mutex
	other int64 // free space without the ballast's file
	path  string
	fault error
}

func (d *disk) set(other int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.other = other
}

func (d *disk) space() (Space, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	free := d.other
	if whole, _ := allocated(d.path); whole {
		free -= BallastSize
	}
	return Space{Free: max(free, 0), Total: 1 << 40}, d.fault
}

func TestTheBallastIsGivenUpOnAFullDiskAndComesBack(t *testing.T) {
	t.Parallel()
	d := &disk{other: 1 << 30, path: filepath.Join(t.TempDir(), BallastName)}
	b, err := openBallast(d.path, d.space)
	require.NoError(t, err)
	require.True(t, b.Held())
	require.Zero(t, b.Owed())
	var st unix.Stat_t
	require.NoError(t, unix.Stat(d.path, &st))
	require.GreaterOrEqual(t, st.Blocks*512, int64(BallastSize), "really allocated")

	_, gaveUp, err := b.MakeRoom(BallastMark)
	require.NoError(t, err)
	require.False(t, gaveUp, "there is room")
	d.set(BallastSize + BallastMark - 1)
	free, gaveUp, err := b.MakeRoom(BallastMark)
	require.NoError(t, err)
	require.True(t, gaveUp)
	require.EqualValues(t, BallastSize+BallastMark-1, free)
	require.EqualValues(t, BallastSize, b.Owed(), "what it gave up is not for records")
	info, err := os.Stat(d.path)
	require.NoError(t, err)
	require.Zero(t, info.Size())
	_, gaveUp, err = b.MakeRoom(BallastMark)
	require.NoError(t, err)
	require.False(t, gaveUp, "only once")

	for _, free := range []int64{0, BallastSize, BallastSize + BallastMark, BallastSize + BallastMark + BallastSize/2 - 1} {
		d.set(free)
		back, err := b.Restore()
		require.NoError(t, err)
		require.False(t, back, free)
	}
	d.set(BallastSize + BallastMark + BallastSize/2)
	back, err := b.Restore()
	require.NoError(t, err)
	require.True(t, back)
	_, gaveUp, err = b.MakeRoom(BallastMark)
	require.NoError(t, err)
	require.False(t, gaveUp, "it does not come and go")
	d.set(2*BallastSize + BallastMark)
	_, gaveUp, err = b.MakeRoom(BallastSize + BallastMark)
	require.NoError(t, err)
	require.False(t, gaveUp, "there is room for a file of the metadata's log beside it")
	d.set(2 * BallastSize)
	_, gaveUp, err = b.MakeRoom(BallastSize + BallastMark)
	require.NoError(t, err)
	require.True(t, gaveUp, "and now there is not")
}

func TestTheBallastOfAnEarlierRunIsFound(t *testing.T) {
	t.Parallel()
	d := &disk{other: 1 << 30, path: filepath.Join(t.TempDir(), BallastName)}
	_, err := openBallast(d.path, d.space)
	require.NoError(t, err)
	d.set(BallastSize)
	b, err := openBallast(d.path, d.space)
	require.NoError(t, err)
	require.False(t, b.Held(), "a start on a full disk has its room")
	b, err = openBallast(d.path, d.space)
	require.NoError(t, err)
	require.False(t, b.Held())
	require.NoError(t, os.Truncate(d.path, BallastSize), "a file with a hole is no ballast")
	d.set(1 << 30)
	b, err = openBallast(d.path, d.space)
	require.NoError(t, err)
	require.True(t, b.Held())
	whole, err := allocated(d.path)
	require.NoError(t, err)
	require.True(t, whole)
}

func TestManyAskForRoomAtOnce(t *testing.T) {
	t.Parallel()
	d := &disk{other: 1 << 30, path: filepath.Join(t.TempDir(), BallastName)}
	b, err := openBallast(d.path, d.space)
	require.NoError(t, err)
	d.set(BallastSize)
	var wg sync.WaitGroup
	results := make(chan bool, 16)
	for range cap(results) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			_, gaveUp, err := b.MakeRoom(BallastMark)
			results <- gaveUp && err == nil
		}()
	}
	wg.Wait()
	close(results)
	n := 0
	for gaveUp := range results {
		if gaveUp {
			n++
		}
	}
	require.Equal(t, 1, n)
}

func TestADiskThatCannotBeReadKeepsTheBallast(t *testing.T) {
	t.Parallel()
	d := &disk{other: 1 << 30, path: filepath.Join(t.TempDir(), BallastName)}
	b, err := openBallast(d.path, d.space)
	require.NoError(t, err)
	d.fault = errors.New("gone")
	_, gaveUp, err := b.MakeRoom(BallastMark)
	require.ErrorIs(t, err, d.fault)
	require.False(t, gaveUp)
	require.True(t, b.Held())
}
