package log

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/internal/testkit/racing"
	"tidewire/storage/checkpoint"
	"tidewire/storage/epochs"
	"tidewire/storage/record"
)

const logDir = "/data/topics/events-0"

// filled makes a stopped log of n batches of two records over several segments.
func filled(t *testing.T, fsys fsx.FS, n int, stop func(*harness)) (*harness, Config, []rec) {
	t.Helper()
	h := newHarness(t, fsys, "/data")
	cfg := Config{SegmentBytes: 1500, IndexIntervalBytes: 200}
	l := h.open(cfg)
	var want []rec
	for i := range int64(n) {
		_, err := l.Append(batch(t, record.None, i*10, i*10+3), 1, 0)
		require.NoError(t, err)
		for _, ts := range []int64{i * 10, i*10 + 3} {
			want = append(want, rec{model.Offset(len(want)), ts, fmt.Sprint("v", ts)})
		}
	}
	waitStable(t, l)
	stop(h)
	return h, cfg, want
}

func cleanStop(h *harness)    { require.NoError(h.t, h.stop()) }
func killed(h *harness)       { h.kill() }
func checkpointed(h *harness) { require.NoError(h.t, h.store.Checkpoint()); h.kill() }

func lastSegment(t *testing.T, fsys fsx.FS, suffix string) string {
	t.Helper()
	infos, err := fsys.ReadDir(logDir)
	require.NoError(t, err)
	name := ""
	for _, i := range infos {
		if _, ok := parseBase(i.Name, suffix); ok {
			name = i.Name
		}
	}
	require.NotEmpty(t, name)
	return path.Join(logDir, name)
}

func flip(t *testing.T, fsys fsx.FS, name string, pos int64, bit byte) {
	t.Helper()
	f, err := fsys.OpenFile(name, fsx.ReadWrite)
	require.NoError(t, err)
	var b [1]byte
	_, err = f.ReadAt(b[:], pos)
	require.NoError(t, err)
	b[0] ^= bit
	_, err = f.WriteAt(b[:], pos)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func fileSize(t *testing.T, fsys fsx.FS, name string) int64 {
	t.Helper()
	i, err := fsys.Stat(name)
	require.NoError(t, err)
	return i.Size
}

func truncate(t *testing.T, fsys fsx.FS, name string, size int64) {
	t.Helper()
	f, err := fsys.OpenFile(name, fsx.ReadWrite)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(size))
	require.NoError(t, f.Close())
}

func TestTornTailAboveTheRecoveryPointIsCut(t *testing.T) {
	t.Parallel()
	for _, cutBytes := range []int64{1, 30, 61, 80} {
		mem := fsx.NewMem()
		h, cfg, want := filled(t, mem, 50, killed)
		name := lastSegment(t, mem, logSuffix)
		truncate(t, mem, name, fileSize(t, mem, name)-cutBytes)
		h.start()
		l := h.open(cfg)
		require.Equal(t, want[:98], scan(t, l, 0, 1000), "cut %d", cutBytes)
		_, err := l.Append(batch(t, record.None, 1), 1, 0)
		require.NoError(t, err)
		require.EqualValues(t, 99, l.LogEnd())
		require.NoError(t, h.stop())
	}
}

func TestGarbageBehindTheLogIsCut(t *testing.T) {
	t.Parallel()
	mem := fsx.NewMem()
	h, cfg, want := filled(t, mem, 50, checkpointed)
	name := lastSegment(t, mem, logSuffix)
	f, err := mem.OpenFile(name, fsx.ReadWrite)
	require.NoError(t, err)
	_, err = f.WriteAt(make([]byte, 500), fileSize(t, mem, name))
	require.NoError(t, err)
	h.start()
	l := h.open(cfg)
	require.Equal(t, want, scan(t, l, 0, 1000))
	require.NoError(t, h.stop())
}

// Above the recovery point a flipped bit ends the log there; below it, it is a
// storage error and the file stays as it is.
func TestFlippedBitIsCutAboveAndRefusedBelowTheRecoveryPoint(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		mem := fsx.NewMem()
		below := rng.IntN(2) == 0
		stop := killed
		if below {
			stop = checkpointed
		}
		h, cfg, want := filled(t, mem, 50, stop)
		name := lastSegment(t, mem, logSuffix)
		size := fileSize(t, mem, name)
		flip(t, mem, name, rng.Int64N(size), 1<<rng.IntN(8))
		before, err := fsx.ReadFile(mem, name, 1<<20)
		require.NoError(t, err)
		h.start()
		l, err := h.store.Open(testID, "events", 0, cfg)
		if below {
			require.True(t, model.HasCode(err, model.StorageError), "%v", err)
			require.Contains(t, err.Error(), path.Base(name))
			after, err := fsx.ReadFile(mem, name, 1<<20)
			require.NoError(t, err)
			require.Equal(t, before, after)
			require.NoError(t, h.stop())
			h.start()
			require.False(t, h.store.found.clean, "a stop with a damaged log is not clean")
			require.NoError(t, h.stop())
			continue
		}
		require.NoError(t, err)
		if n := l.LogEnd(); int(n) != len(want) || l.LogEndEpoch() == 1 {
			// A flipped leader epoch is outside the checksum and, growing, plausible.
			require.Equal(t, want[:n], scan(t, l, 0, 1000))
		}
		require.NoError(t, h.stop())
	}
}

func TestLogThatEndsBelowItsRecoveryPointIsRefused(t *testing.T) {
	t.Parallel()
	damage := map[string]func(t *testing.T, mem *fsx.Mem){
		"shorter": func(t *testing.T, mem *fsx.Mem) {
			name := lastSegment(t, mem, logSuffix)
			truncate(t, mem, name, fileSize(t, mem, name)-5)
		},
		"empty":        func(t *testing.T, mem *fsx.Mem) { truncate(t, mem, lastSegment(t, mem, logSuffix), 0) },
		"segment gone": func(t *testing.T, mem *fsx.Mem) { require.NoError(t, mem.Remove(lastSegment(t, mem, logSuffix))) },
		"folder gone":  func(t *testing.T, mem *fsx.Mem) { require.NoError(t, fsx.RemoveAll(mem, logDir)) },
		"metadata gone": func(t *testing.T, mem *fsx.Mem) {
			require.NoError(t, fsx.RemoveAll(mem, logDir+"/"+checkpoint.MetadataFile))
		},
	}
	for name, fn := range damage {
		for _, stop := range []func(*harness){checkpointed, cleanStop} {
			mem := fsx.NewMem()
			h, cfg, want := filled(t, mem, 50, stop)
			fn(t, mem)
			h.start()
			l, err := h.store.Open(testID, "events", 0, cfg)
			if name == "metadata gone" { // the recovery point names the id, so it is ours
				require.NoError(t, err)
				require.Equal(t, want, scan(t, l, 0, 1000))
			} else {
				require.True(t, model.HasCode(err, model.StorageError), "%s: %v", name, err)
			}
			require.NoError(t, h.stop())
		}
	}
}

func TestDamagedIndexesAreRebuilt(t *testing.T) {
	t.Parallel()
	garbage := func(t *testing.T, mem *fsx.Mem, name string) {
		f, err := mem.OpenFile(name, fsx.ReadWrite)
		require.NoError(t, err)
		n := fileSize(t, mem, name)
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(i*37 + 11)
		}
		_, err = f.WriteAt(b, 0)
		require.NoError(t, err)
	}
	damage := map[string]func(*testing.T, *fsx.Mem, string){
		"gone": func(t *testing.T, mem *fsx.Mem, n string) { require.NoError(t, mem.Remove(n)) },
		"odd":  func(t *testing.T, mem *fsx.Mem, n string) { truncate(t, mem, n, fileSize(t, mem, n)+3) },
		"zeros": func(t *testing.T, mem *fsx.Mem, n string) {
			s := fileSize(t, mem, n)
			truncate(t, mem, n, 0)
			truncate(t, mem, n, s)
		},
		"garbage": garbage,
		"flipped": func(t *testing.T, mem *fsx.Mem, n string) { flip(t, mem, n, fileSize(t, mem, n)/2, 4) },
	}
	for _, suffix := range []string{indexSuffix, timeIndexSuffix} {
		for what, fn := range damage {
			for _, stop := range []func(*harness){cleanStop, checkpointed} {
				mem := fsx.NewMem()
				h, cfg, want := filled(t, mem, 80, cleanStop)
				good := map[string][]byte{}
				infos, err := mem.ReadDir(logDir)
				require.NoError(t, err)
				for _, i := range infos {
					if _, ok := parseBase(i.Name, suffix); ok {
						b, err := fsx.ReadFile(mem, path.Join(logDir, i.Name), 1<<20)
						require.NoError(t, err)
						good[i.Name] = b
						if len(b) > 0 {
							fn(t, mem, path.Join(logDir, i.Name))
						}
					}
				}
				h.start()
				l := h.open(cfg)
				for i := range want {
					require.Equal(t, want[i:min(i+3, len(want))], scan(t, l, model.Offset(i), 4096)[:min(3, len(want)-i)], "%s %s", suffix, what)
					checkSeek(t, l, want, want[i].ts, allOffsets)
					checkSeek(t, l, want, want[i].ts+1, allOffsets)
				}
				stop(h)
				for name, b := range good {
					if base, _ := parseBase(path.Base(lastSegment(t, mem, logSuffix)), logSuffix); name == baseName(base)+suffix {
						continue // the active segment's is completed at a clean stop only
					}
					got, err := fsx.ReadFile(mem, path.Join(logDir, name), 1<<20)
					require.NoError(t, err)
					require.Equal(t, b, got, "%s %s %s", suffix, what, name)
				}
			}
		}
	}
}

func TestMissingOrDamagedCheckpointsLoseNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range append(checkpointFiles[:], epochs.FileName) {
		for _, how := range []string{"gone", "flipped"} {
			for _, stop := range []func(*harness){checkpointed, cleanStop} {
				mem := fsx.NewMem()
				h, cfg, want := filled(t, mem, 50, stop)
				name := path.Join("/data", kind)
				if kind == epochs.FileName {
					name = path.Join(logDir, kind)
				}
				if how == "gone" {
					require.NoError(t, mem.Remove(name))
				} else {
					flip(t, mem, name, fileSize(t, mem, name)/2, 0x10)
				}
				h.start()
				require.False(t, kind != epochs.FileName && h.store.found.clean)
				l := h.open(cfg)
				require.Equal(t, want, scan(t, l, 0, 1000))
				e, end := l.EpochEnd(1)
				require.EqualValues(t, 1, e)
				require.EqualValues(t, 100, end)
				require.NoError(t, h.stop())
				h.start()
				require.True(t, h.store.found.clean)
				require.NoError(t, h.stop())
			}
		}
	}
}

// Without a recovery point a bad batch in the middle is damage, not a torn tail.
func TestWithoutARecoveryPointOnlyATornTailIsCut(t *testing.T) {
	t.Parallel()
	mem := fsx.NewMem()
	h, cfg, want := filled(t, mem, 50, checkpointed)
	require.NoError(t, mem.Remove("/data/"+recoveryPointFile))
	name := lastSegment(t, mem, logSuffix)
	flip(t, mem, name, 70, 1)
	h.start()
	_, err := h.store.Open(testID, "events", 0, cfg)
	require.True(t, model.HasCode(err, model.StorageError), "%v", err)
	require.NoError(t, h.stop())
	ok, err := fsx.Exists(mem, "/data/"+recoveryPointFile)
	require.NoError(t, err)
	require.False(t, ok, "a lost checkpoint is not written again without the log")

	flip(t, mem, name, 70, 1)
	truncate(t, mem, name, fileSize(t, mem, name)-1)
	h.start()
	l := h.open(cfg)
	require.Equal(t, want[:98], scan(t, l, 0, 1000))
	require.NoError(t, h.stop())
}

func TestMissingMiddleSegmentIsNeverSkippedSilently(t *testing.T) {
	t.Parallel()
	mem := fsx.NewMem()
	h, cfg, _ := filled(t, mem, 80, cleanStop)
	h.start()
	l := h.open(cfg)
	gone := (*l.segs.Load())[2]
	next := (*l.segs.Load())[3].base
	require.NoError(t, h.stop())
	require.NoError(t, mem.Remove(gone.path+logSuffix))
	h.start()
	l = h.open(cfg)
	_, err := l.Read(nil, gone.base, allOffsets, 100)
	require.True(t, model.HasCode(err, model.StorageError), "%v", err)
	_, err = l.Read(nil, next, allOffsets, 100)
	require.NoError(t, err)
	require.NoError(t, h.stop())
}

func TestFullDiskRefusesAndRecoversWithoutRestart(t *testing.T) {
	t.Parallel()
	for _, room := range []int64{0, 10, 100, 300, 1100, 2000} {
		mem := fsx.NewCrashMem()
		h := newHarness(t, mem, "/data")
		cfg := Config{SegmentBytes: 1000}
		l := h.open(cfg)
		for i := range int64(7) {
			_, err := l.Append(batch(t, record.None, i), 0, 0)
			require.NoError(t, err)
		}
		waitStable(t, l)
		before, segs := scan(t, l, 0, 1000), l.Segments()
		mem.SetCapacity(used(t, mem) + room)
		var big []byte
		for i := range int64(30) {
			big = append(big, batch(t, record.None, 100+i)...)
		}
		_, err := l.Append(big, 0, 0)
		require.True(t, model.HasCode(err, model.StorageFull), "room %d: %v", room, err)
		require.Equal(t, model.NotApplied, model.AsError(err).EffectiveOutcome())
		require.NoError(t, l.Failed())
		require.Equal(t, before, scan(t, l, 0, 1000))
		require.Equal(t, segs, l.Segments())
		mem.SetCapacity(-1)
		_, err = l.Append(big, 0, 0)
		require.NoError(t, err)
		waitStable(t, l)
		want := scan(t, l, 0, 1000)
		require.Len(t, want, 37)
		checkSeek(t, l, want, 110, allOffsets)
		h.fs = mem.Crash(uint64(room))
		h.kill()
		h.start()
		l = h.open(cfg)
		require.Equal(t, want, scan(t, l, 0, 1000))
		require.NoError(t, h.stop())
	}
}

// used is the number of bytes of all files.
func used(t *testing.T, fsys fsx.FS) int64 {
	var n int64
	var walk func(dir string)
	walk = func(dir string) {
		infos, err := fsys.ReadDir(dir)
		require.NoError(t, err)
		for _, i := range infos {
			if n += i.Size; i.Dir {
				walk(path.Join(dir, i.Name))
			}
		}
	}
	walk("/")
	return n
}

func TestFailedSyncLatchesTheLog(t *testing.T) {
	t.Parallel()
	in := fsx.NewInject(fsx.NewMem(), nil)
	h := newHarness(t, in, "/data")
	l := h.open(Config{})
	_, err := l.Append(batch(t, record.None, 1), 0, 0)
	require.NoError(t, err)
	waitStable(t, l)
	failed := make(chan error, 2)
	l.SetCallbacks(nil, nil, func(err error) { failed <- err })
	syncs := 0
	in.SetHook(func(op fsx.Op) *fsx.Fault {
		if op.Kind == fsx.OpSync && path.Ext(op.Path) == logSuffix {
			syncs++
			return &fsx.Fault{Err: syscall.EIO}
		}
		return nil
	})
	_, err = l.Append(batch(t, record.None, 2), 0, 0)
	require.NoError(t, err)
	l.RequestSync()
	select {
	case err := <-failed:
		require.ErrorIs(t, err, syscall.EIO)
	case <-time.After(10 * time.Second):
		t.Fatal("onFail was not called")
	}
	in.SetHook(nil)
	require.Equal(t, 1, syncs)
	_, err = l.Append(batch(t, record.None, 3), 0, 0)
	require.True(t, model.HasCode(err, model.StorageError))
	require.EqualValues(t, 1, l.StableEnd())
	data, err := l.Read(nil, 0, allOffsets, 1000)
	require.NoError(t, err)
	b, rest, err := record.ParseBatch(data)
	require.NoError(t, err)
	require.Empty(t, rest, "nothing above the stable end is served")
	require.EqualValues(t, 0, b.Header.LastOffset())
	_, err = l.Read(nil, 1, allOffsets, 1000)
	require.True(t, model.HasCode(err, model.StorageError))
	require.Error(t, h.stop())
	ok, err := fsx.Exists(in, "/data/"+cleanStopFile)
	require.NoError(t, err)
	require.False(t, ok, "no clean-stop marker with a latched log")
}

func TestWriteErrorLatchesAndTellsOnce(t *testing.T) {
	t.Parallel()
	in := fsx.NewInject(fsx.NewMem(), nil)
	h := newHarness(t, in, "/data")
	l := h.open(Config{})
	failed := make(chan error, 2)
	l.SetCallbacks(nil, nil, func(err error) { failed <- err })
	in.SetHook(fsx.FailIf(func(op fsx.Op) bool { return op.Kind == fsx.OpWrite && path.Ext(op.Path) == logSuffix }, syscall.EIO))
	_, err := l.Append(batch(t, record.None, 1), 0, 0)
	require.True(t, model.HasCode(err, model.StorageError))
	require.Equal(t, model.Unknown, model.AsError(err).EffectiveOutcome())
	require.ErrorIs(t, <-failed, syscall.EIO)
	in.SetHook(nil)
	require.Error(t, h.stop())
	require.Empty(t, failed)
}

// Every operation of a fixed workload fails in turn: what was acknowledged as
// stable is there after the next start, whatever happened.
func TestNoFailingOperationLosesStableRecords(t *testing.T) {
	t.Parallel()
	racing.SkipSequential(t)
	for _, cause := range []error{syscall.EIO, syscall.ENOSPC} {
		failures := 0
		for n := 1; ; n++ {
			mem := fsx.NewCrashMem()
			in := fsx.NewInject(mem, fsx.FailNth(n, cause))
			stable, opens := injectedRun(t, in)
			if in.Ops() < n {
				break
			}
			if !opens {
				failures++
			}
			for seed := range uint64(3) {
				h := newHarness(t, mem.Crash(seed), "/data")
				l := h.open(Config{SegmentBytes: 400, IndexIntervalBytes: 50})
				require.GreaterOrEqual(t, l.LogEnd(), stable, "operation %d, seed %d", n, seed)
				for i, r := range scan(t, l, 0, 1000) {
					require.EqualValues(t, i, r.ts)
				}
				require.NoError(t, h.stop())
			}
		}
		require.NotZero(t, failures)
	}
}

// injectedRun appends until something fails and gives the stable end reached.
func injectedRun(t *testing.T, in *fsx.Inject) (stable model.Offset, ok bool) {
	t.Helper()
	h := &harness{t: t, fs: in, opts: StoreOptions{Dir: "/data", CheckpointInterval: time.Hour}}
	g, s, err := tryStart(h)
	if err != nil {
		require.NoError(t, g.Stop(time.Second))
		return 0, false
	}
	h.group, h.store = g, s
	cfg := Config{SegmentBytes: 400, IndexIntervalBytes: 50}
	l, err := s.Open(testID, "events", 0, cfg)
	if err != nil {
		_ = h.stop()
		return 0, false
	}
	synced := make(chan struct{}, 64)
	l.SetCallbacks(nil, func() { synced <- struct{}{} }, nil)
	ok = true
	for i := range int64(12) {
		b := batch(t, record.None, i)
		_, err := l.Append(b, model.LeaderEpoch(i/4), 0)
		if model.HasCode(err, model.StorageFull) {
			ok = false
			_, err = l.Append(b, model.LeaderEpoch(i/4), 0)
		}
		if err != nil {
			ok = false
			break
		}
		l.RequestSync()
		for l.StableEnd() < l.LogEnd() && l.Failed() == nil {
			<-synced
		}
		if i%5 == 0 {
			ok = s.Checkpoint() == nil && ok
		}
	}
	stable = l.StableEnd()
	return stable, h.stop() == nil && ok
}

func tryStart(h *harness) (*lifecycleGroup, *Store, error) {
	g := newGroup()
	h.opts.Group, h.opts.FS = g, h.fs
	s, err := OpenStore(h.opts)
	return g, s, err
}

func TestFolderOfAnotherTopicIDGoesToTheTrash(t *testing.T) {
	t.Parallel()
	mem := fsx.NewMem()
	h, cfg, _ := filled(t, mem, 10, cleanStop)
	h.start()
	other := testID
	other[0] = 99
	l, err := h.store.Open(other, "events", 0, cfg)
	require.NoError(t, err)
	require.EqualValues(t, 0, l.LogEnd())
	infos, err := mem.ReadDir("/data/trash")
	require.NoError(t, err)
	require.Len(t, infos, 1)
	require.Contains(t, infos[0].Name, "events-0."+testID.String())
	moved, err := mem.ReadDir("/data/trash/" + infos[0].Name)
	require.NoError(t, err)
	require.NotEmpty(t, moved, "nothing is deleted at once")
	require.NoError(t, h.stop())
}

func TestRemovedLogIsGoneAndItsFilesWait(t *testing.T) {
	t.Parallel()
	mem := fsx.NewMem()
	h := newHarness(t, mem, "/data")
	l := h.open(Config{})
	_, err := l.Append(batch(t, record.None, 1), 0, 0)
	require.NoError(t, err)
	require.NoError(t, h.store.Remove(l))
	_, err = l.Append(batch(t, record.None, 1), 0, 0)
	require.True(t, model.HasCode(err, model.LeaderUnavailable), "%v", err)
	_, err = mem.Stat(logDir)
	require.ErrorIs(t, err, fs.ErrNotExist)
	infos, err := mem.ReadDir("/data/trash")
	require.NoError(t, err)
	require.Len(t, infos, 1)
	l = h.open(Config{})
	require.EqualValues(t, 0, l.LogEnd())
	require.NoError(t, h.stop())

	h.opts.TrashDelay = time.Nanosecond
	h.start()
	require.Eventually(t, func() bool {
		infos, err := mem.ReadDir("/data/trash")
		return err == nil && len(infos) == 0
	}, 10*time.Second, time.Millisecond, "the next start finishes what is left")
	require.NoError(t, h.stop())
}
