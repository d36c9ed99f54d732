package files

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/internal/lifecycle"
)

func TestTheFileUsedLongestAgoIsClosedFirst(t *testing.T) {
	t.Parallel()
	disk := newCounted()
	c := New(disk, MinLimit)
	hs := handles(t, c, MinLimit+2)
	for i := range MinLimit {
		read(t, hs[i], byte(i))
	}
	read(t, hs[0], 0) // so that 1 and 2 are the oldest
	before := make([]int, len(hs))
	for i := range hs {
		before[i] = disk.openedTimes(name(i))
	}
	read(t, hs[MinLimit], MinLimit)
	read(t, hs[MinLimit+1], MinLimit+1)
	require.EqualValues(t, 2, c.Stats().Evictions)
	require.Zero(t, c.Stats().Syncs)
	for i := range MinLimit {
		if i != 1 && i != 2 {
			read(t, hs[i], byte(i))
			require.Equal(t, before[i], disk.openedTimes(name(i)), "file %d was not closed", i)
		}
	}
	read(t, hs[1], 1)
	require.Equal(t, before[1]+1, disk.openedTimes(name(1)))
	open, most := disk.now()
	require.Equal(t, MinLimit, open)
	require.Equal(t, MinLimit, most)
}

func TestAFileWithUnsyncedBytesGoesLastAndSynced(t *testing.T) {
	t.Parallel()
	var synced []string
	disk := fsx.NewCrashMem()
	c := New(fsx.NewInject(disk, func(op fsx.Op) *fsx.Fault {
		if op.Kind == fsx.OpSync {
			synced = append(synced, op.Path)
		}
		return nil
	}), MinLimit)
	hs := handles(t, c, 2*MinLimit)
	require.NoError(t, c.SyncDir("/"))
	synced = nil
	for i := range MinLimit / 2 {
		write(t, hs[i], 100, 0)
	}
	for i := MinLimit / 2; i < MinLimit; i++ {
		read(t, hs[i], byte(i))
	}
	for i := MinLimit; i < MinLimit+MinLimit/2; i++ { // closes the second half, though it was used later
		read(t, hs[i], byte(i))
	}
	require.Empty(t, synced)
	for i := range MinLimit / 2 {
		require.NotNil(t, hs[i].f)
	}
	for i := MinLimit; i < 2*MinLimit; i++ {
		write(t, hs[i], 101, 0)
	}
	require.Len(t, synced, MinLimit/2)
	require.Equal(t, name(0), synced[0])
	for i := range MinLimit / 2 {
		b, err := fsx.ReadFile(disk.Crash(0), name(i), 10)
		require.NoError(t, err)
		require.Equal(t, []byte{100}, b, "a power cut takes nothing of a file that was closed")
		synced = nil
		require.NoError(t, hs[i].SyncData())
		require.Empty(t, synced, "there is nothing left to sync")
	}
}

// The error of the sync before an eviction must reach the owner's own sync, which opens the
// file anew and would succeed.
func TestAFailedSyncBeforeAnEvictionIsNotLost(t *testing.T) {
	t.Parallel()
	in := fsx.NewInject(fsx.NewMem(), nil)
	c := New(in, MinLimit)
	hs := handles(t, c, 2*MinLimit)
	for i := range MinLimit {
		write(t, hs[i], 100, 0)
	}
	in.SetHook(fsx.FailIf(func(op fsx.Op) bool { return op.Kind == fsx.OpSync && op.Path == name(0) }, syscall.EIO))
	read(t, hs[MinLimit], MinLimit)
	in.SetHook(nil)
	require.Nil(t, hs[0].f, "it was closed")
	require.ErrorIs(t, hs[0].SyncData(), syscall.EIO)
	require.ErrorIs(t, hs[0].Sync(), syscall.EIO)
	_, err := hs[0].WriteAt([]byte{1}, 0)
	require.ErrorIs(t, err, syscall.EIO)
	require.ErrorIs(t, hs[0].Truncate(0), syscall.EIO)
	read(t, hs[0], 100)
	require.NoError(t, hs[1].SyncData(), "no other file has it")
}

func TestTheFirstSyncIsNeverLeftOut(t *testing.T) {
	t.Parallel()
	disk := fsx.NewCrashMem()
	f, err := disk.OpenFile("/x", fsx.ReadWrite|fsx.Create)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{7}, 0) // by a process that was killed
	require.NoError(t, err)
	require.NoError(t, disk.SyncDir("/"))
	h := New(disk, MinLimit).Handle("/x")
	require.NoError(t, h.SyncData())
	b, err := fsx.ReadFile(disk.Crash(0), "/x", 10)
	require.NoError(t, err)
	require.Equal(t, []byte{7}, b)
}

func TestAPinnedFileIsNotClosed(t *testing.T) {
	t.Parallel()
	disk := newCounted()
	c := New(disk, MinLimit)
	hs := handles(t, c, 3*MinLimit)
	pinned, err := hs[0].Pin()
	require.NoError(t, err)
	for i := 1; i < len(hs); i++ {
		read(t, hs[i], byte(i))
	}
	require.NoError(t, hs[0].Release())
	require.NoError(t, hs[0].Close())
	b := make([]byte, 1)
	require.NoError(t, fsx.ReadFull(pinned, b, 0), "whatever became of the handle")
	_, err = hs[0].ReadAt(b, 0)
	require.ErrorIs(t, err, fs.ErrClosed)
	open, _ := disk.now()
	hs[0].Unpin()
	after, _ := disk.now()
	require.Equal(t, open-1, after, "the last user closes it")
	require.ErrorIs(t, fsx.ReadFull(pinned, b, 0), fs.ErrClosed)
}

// With every place in use an opening waits until one is given back, and goes on then.
func TestAnOpeningWaitsForAPlace(t *testing.T) {
	t.Parallel()
	disk := newCounted()
	c := New(disk, MinLimit)
	hs := handles(t, c, MinLimit+1)
	for i := range MinLimit {
		_, err := hs[i].pin(reads)
		require.NoError(t, err)
	}
	g := lifecycle.New(context.Background())
	done := make(chan error, 2)
	g.Go("handle", func(context.Context) { _, err := hs[MinLimit].ReadAt(make([]byte, 1), 0); done <- err })
	g.Go("folder", func(context.Context) { done <- c.SyncDir("/") })
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.waiting == 2
	}, 10*time.Second, time.Microsecond)
	require.Empty(t, done)
	hs[3].unpin(reads)
	require.NoError(t, <-done)
	require.NoError(t, <-done)
	require.NoError(t, g.Stop(10*time.Second))
	_, most := disk.now()
	require.Equal(t, MinLimit, most)
}

// Whoever sends files to slow readers leaves half of the places to all others.
func TestFilesInLongUseNeverTakeAllPlaces(t *testing.T) {
	t.Parallel()
	c := New(newCounted(), MinLimit)
	hs := handles(t, c, 2*MinLimit)
	for i := range MinLimit / 2 {
		_, err := hs[i].Pin()
		require.NoError(t, err)
	}
	again, err := hs[0].Pin()
	require.NoError(t, err, "one that is pinned already takes no more")
	require.NotNil(t, again)
	_, err = hs[MinLimit].Pin()
	require.ErrorIs(t, err, ErrPinned)
	for i := range hs {
		read(t, hs[i], byte(i))
	}
	hs[0].Unpin()
	_, err = hs[MinLimit].Pin()
	require.ErrorIs(t, err, ErrPinned, "it is still pinned once")
	hs[0].Unpin()
	_, err = hs[MinLimit].Pin()
	require.NoError(t, err)
}

func TestALackOfDescriptorsClosesIdleFilesAndTriesAgain(t *testing.T) {
	t.Parallel()
	disk := newCounted()
	c := New(disk, 2*MinLimit)
	hs := handles(t, c, 2*MinLimit)
	for i := range 8 {
		write(t, hs[i], 50, 0)
	}
	disk.setLimit(8) // others have taken the rest
	for i := 8; i < len(hs); i++ {
		read(t, hs[i], byte(i))
	}
	require.NoError(t, c.SyncDir("/"))
	_, err := c.ReadDir("/")
	require.NoError(t, err)
	require.EqualValues(t, 1, c.Stats().Syncs, "of those with unsynced bytes only the first had to go")
	require.LessOrEqual(t, c.Stats().Open, 8)

	for i := range 8 {
		_, err := hs[i].Pin()
		require.NoError(t, err)
	}
	_, err = hs[20].ReadAt(make([]byte, 1), 0)
	require.True(t, fsx.IsNoDescriptor(err), "%v: nothing is left to close", err)
	require.True(t, fsx.IsNoDescriptor(c.SyncDir("/")))
	require.Equal(t, 8, c.Stats().Open, "what failed holds no place")
	hs[0].Unpin()
	read(t, hs[20], 20)
}

func TestARetiredFileIsOpenOnlyWhileItIsRead(t *testing.T) {
	t.Parallel()
	disk := newCounted()
	c := New(disk, MinLimit)
	h := handles(t, c, 1)[0]
	write(t, h, 9, 0)
	f, err := h.Pin()
	require.NoError(t, err)
	require.NoError(t, h.Rename("/f.deleted"))
	require.NoError(t, h.Retire())
	require.NoError(t, fsx.ReadFull(f, make([]byte, 1), 0))
	h.Unpin()
	open, _ := disk.now()
	require.Zero(t, open)
	read(t, h, 9)
	require.Equal(t, "/f.deleted", h.Path())
	open, _ = disk.now()
	require.Zero(t, open)
}

func TestAFileThatIsMissingIsMadeByWritingOnly(t *testing.T) {
	t.Parallel()
	c := New(fsx.NewMem(), MinLimit)
	h := c.CreatingHandle("/new")
	_, err := h.ReadAt(make([]byte, 1), 0)
	require.ErrorIs(t, err, fs.ErrNotExist)
	exists, _, err := h.Exists()
	require.NoError(t, err)
	require.False(t, exists)
	require.ErrorIs(t, c.Handle("/other").Ready(), fs.ErrNotExist)
	require.NoError(t, h.Ready())
	require.NoError(t, h.Release())
	require.Zero(t, c.Stats().Open, "making it wrote nothing that is not synced")
	write(t, h, 3, 4)
	exists, size, err := h.Exists()
	require.NoError(t, err)
	require.True(t, exists)
	require.EqualValues(t, 5, size)
	require.NoError(t, h.Release())
	require.Equal(t, 1, c.Stats().Open, "unsynced bytes keep it open")
	_, err = h.Pin()
	require.NoError(t, err)
	n, err := h.Size()
	require.NoError(t, err)
	require.EqualValues(t, 5, n)
	h.Unpin()
}

// A write that runs while the file is synced may not be covered by that sync.
func TestAWriteDuringASyncLeavesTheFileUnsynced(t *testing.T) {
	t.Parallel()
	in := fsx.NewInject(fsx.NewMem(), nil)
	c := New(in, MinLimit)
	h := handles(t, c, 1)[0]
	var late atomic.Bool
	hooked := &duringSync{FS: in, run: func() {
		if !late.Swap(true) {
			write(t, h, 5, 1)
		}
	}}
	c.fs = hooked
	write(t, h, 4, 0)
	require.NoError(t, h.SyncData())
	require.NoError(t, h.Release())
	require.Equal(t, 1, c.Stats().Open, "unsynced")
	require.NoError(t, h.SyncData())
	require.NoError(t, h.Release())
	require.Zero(t, c.Stats().Open)
}

type duringSync struct {
	fsx.FS
	run func()
}

type duringSyncFile struct {
	fsx.File
	d *duringSync
}

func (d *duringSync) OpenFile(name string, flag int) (fsx.File, error) {
	f, err := d.FS.OpenFile(name, flag)
	return &duringSyncFile{f, d}, err
}

func (f *duringSyncFile) SyncData() error {
	err := f.File.SyncData()
	f.d.run()
	return err
}

// Many at once: the cap holds, no operation finds its descriptor closed (the file system in
// memory tells), and what was written is there.
func TestTheCapHoldsUnderConcurrentUse(t *testing.T) {
	t.Parallel()
	disk := newCounted()
	c := New(disk, MinLimit)
	const files, workers, each = 60, 12, 1500
	hs := handles(t, c, files)
	g := lifecycle.New(context.Background())
	for w := range workers {
		g.Go("worker", func(context.Context) {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			own := int64(w + 1) // each has its byte in every file
			for i := range each {
				h := hs[rng.IntN(files)]
				var err error
				switch rng.IntN(10) {
				case 0:
					err = h.SyncData()
				case 1:
					err = h.Release()
				case 2:
					err = c.SyncDir("/")
				case 3:
					_, err = fsx.ReadFile(c, h.Path(), 100)
				case 4:
					if _, err = h.Pin(); err == nil {
						h.Unpin()
					} else if errors.Is(err, ErrPinned) {
						err = nil
					}
				case 5, 6, 7:
					_, err = h.WriteAt([]byte{byte(i)}, own)
					if err == nil {
						b := make([]byte, 1)
						if err = fsx.ReadFull(h, b, own); err == nil && b[0] != byte(i) {
							t.Errorf("%d was read where %d was written", b[0], byte(i))
						}
					}
				case 8:
					name := strings.TrimSuffix(h.Path(), "'")
					if rng.IntN(2) == 0 {
						name += "'"
					}
					err = h.Rename(name)
				default:
					_, err = h.ReadAt(make([]byte, 1), 0)
				}
				// A path may have gone between Path and ReadFile, or Rename.
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Error(err)
				}
			}
		})
	}
	require.NoError(t, g.Stop(time.Minute))
	open, most := disk.now()
	require.LessOrEqual(t, most, MinLimit)
	require.Equal(t, open, c.Stats().Open)
	require.Positive(t, c.Stats().Syncs)
	for i, h := range hs {
		read(t, h, byte(i))
		require.NoError(t, h.Close())
	}
	require.Zero(t, c.Stats().Open)
	require.Zero(t, c.clean.n+c.dirty.n)
}

func TestTheDefaultLeavesRoomForConnections(t *testing.T) {
	t.Parallel()
	for descriptors, want := range map[uint64]int{0: MinLimit, 20: MinLimit, 1024: 512, 4096: 2048, 20_000: 3072, 1 << 63: 3072} {
		require.Equal(t, want, LimitFor(descriptors), descriptors)
	}
	n, err := DescriptorLimit()
	require.NoError(t, err)
	require.Positive(t, n)
}
