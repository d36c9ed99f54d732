package log

import (
	"path"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// The file of a segment that was not begun after all would cut the log off at its base at
// the next start.
func TestASegmentThatIsNotBegunLeavesNoFile(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{syscall.EIO, syscall.ENOSPC} {
		mem := fsx.NewCrashMem()
		in := fsx.NewInject(mem, nil)
		h := newHarness(t, in, "/data")
		l := h.open(Config{})
		_, err := l.Append(batch(t, record.None, 1, 2), 0, 0)
		require.NoError(t, err)
		waitStable(t, l)
		in.SetHook(fsx.FailIf(func(op fsx.Op) bool {
			return op.Kind == fsx.OpClose && path.Base(op.Path) == baseName(2)+logSuffix
		}, cause))
		_ = l.AdvanceLogStart(2)
		in.SetHook(nil)
		require.NotContains(t, filesIn(t, in), baseName(2)+logSuffix)
		end := model.Offset(2)
		if _, err = l.Append(batch(t, record.None, 3), 0, 0); err == nil {
			end = 3
			waitStable(t, l)
		} else {
			require.True(t, model.HasCode(err, model.StorageError))
		}
		require.NoError(t, h.store.Checkpoint())
		h.kill()
		h.start()
		require.Equal(t, end, h.open(Config{}).LogEnd())
		require.NoError(t, h.stop())
	}
}

// Whatever goes wrong while a log's folder is made, the folder is durable before anything in
// it counts.
func TestAFolderHalfMadeIsDurableOnceItsLogIsOpen(t *testing.T) {
	t.Parallel()
	failures := 0
	for n := 1; ; n++ {
		mem := fsx.NewCrashMem()
		in := fsx.NewInject(mem, nil)
		h := newHarness(t, in, "/data")
		in.SetHook(fsx.FailNth(in.Ops()+n, syscall.EIO))
		_, err := h.store.Open(testID, "events", 0, Config{})
		in.SetHook(nil)
		if err == nil {
			h.kill()
			break
		}
		failures++
		l := h.open(Config{})
		_, err = l.Append(batch(t, record.None, 1), 0, 0)
		require.NoError(t, err)
		waitStable(t, l)
		require.NoError(t, h.store.Checkpoint())
		for seed := range uint64(16) {
			c := newHarness(t, mem.Crash(seed), "/data")
			require.Len(t, scan(t, c.open(Config{}), 0, 100), 1, "operation %d, seed %d", n, seed)
			c.kill()
		}
		h.kill()
	}
	require.Greater(t, failures, 8)
}

// After a failed sync the kernel takes the pages for clean. The next start finds them in the
// page cache, and a sync of what it finds does nothing: it has to write them again before it
// calls them stable.
func TestRecoveryWritesAnewWhatAFailedSyncLost(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} { // the sync of the recovery fails too
		mem := fsx.NewCrashMem()
		in := fsx.NewInject(mem, nil)
		h := newHarness(t, in, "/data")
		cfg := Config{SegmentBytes: 300}
		l := h.open(cfg)
		for i := range int64(3) {
			_, err := l.Append(batch(t, record.None, i), 0, 0)
			require.NoError(t, err)
		}
		waitStable(t, l)
		require.NoError(t, h.store.Checkpoint())
		lose := func(op fsx.Op) *fsx.Fault {
			if op.Kind == fsx.OpSync && strings.HasSuffix(op.Path, logSuffix) {
				return &fsx.Fault{Err: syscall.EIO, Lost: true}
			}
			return nil
		}
		in.SetHook(lose)
		for i := range int64(6) {
			_, err := l.Append(batch(t, record.None, 10+i), 0, 0)
			require.True(t, err == nil || l.Failed() != nil)
		}
		l.RequestSync()
		require.Eventually(t, func() bool { return l.Failed() != nil }, 10*time.Second, time.Millisecond)
		end := l.LogEnd()
		h.kill()
		if !again {
			in.SetHook(nil)
		}
		h.start()
		if again {
			_, err := h.store.Open(testID, "events", 0, cfg)
			require.True(t, model.HasCode(err, model.StorageError), "%v", err)
			in.SetHook(nil)
		}
		l = h.open(cfg)
		require.Equal(t, end, l.StableEnd())
		want := scan(t, l, 0, 1000)
		require.Len(t, want, int(end))
		require.NoError(t, h.store.Checkpoint())
		for seed := range uint64(16) {
			c := newHarness(t, mem.Crash(seed), "/data")
			require.Equal(t, want, scan(t, c.open(cfg), 0, 1000), "seed %d", seed)
			c.kill()
		}
		h.kill()
	}
}

// A disk that is full while a node starts after a kill leaves no clean-stop marker, so that
// the start after it recovers everything.
func TestADiskFullDuringRecoveryIsNoCleanStop(t *testing.T) {
	t.Parallel()
	refused := 0
	for _, room := range []int64{0, 40, 200, 1000} {
		mem := fsx.NewCrashMem()
		h, cfg, want := filled(t, mem, 60, killed)
		infos, err := mem.ReadDir(logDir)
		require.NoError(t, err)
		for _, i := range infos { // what recovery makes anew needs room
			if path.Ext(i.Name) == indexSuffix || path.Ext(i.Name) == timeIndexSuffix {
				require.NoError(t, mem.Remove(path.Join(logDir, i.Name)))
			}
		}
		mem.SetCapacity(used(t, mem) + room)
		failed := true
		if g, s, err := tryStart(h); err == nil {
			h.group, h.store = g, s
			_, err := s.Open(testID, "events", 0, cfg)
			if err != nil {
				require.True(t, model.HasCode(err, model.StorageFull), "%v", err)
				refused++
			}
			failed = h.stop() != nil || err != nil
		} else {
			require.True(t, fsx.IsNoSpace(err), "%v", err)
			require.NoError(t, g.Stop(time.Second))
		}
		marker, err := fsx.Exists(mem, "/data/"+cleanStopFile)
		require.NoError(t, err)
		require.Equal(t, !failed, marker, "room %d", room)
		mem.SetCapacity(-1)
		h.start()
		require.Equal(t, !failed, h.store.found.clean)
		require.Equal(t, want, scan(t, h.open(cfg), 0, 1000))
		require.NoError(t, h.stop())
	}
	require.NotZero(t, refused)
}
