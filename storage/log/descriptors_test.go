package log

import (
	"io/fs"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/record"
	"tidewire/storage/syncer"
)

// descriptors counts the files that are open, and refuses more than a limit.
type descriptors struct {
	fsx.FS
	mu    sync.Mutex
	open  int // guarded by mu
	most  int // guarded by mu
	limit int // guarded by mu; 0: none
}

type countedFile struct {
	fsx.File
	d *descriptors
}

func (d *descriptors) OpenFile(name string, flag int) (fsx.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.limit > 0 && d.open >= d.limit {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EMFILE}
	}
	f, err := d.FS.OpenFile(name, flag)
	if err != nil {
		return nil, err
	}
	d.open++
	d.most = max(d.most, d.open)
	return &countedFile{f, d}, nil
}

func (f *countedFile) Close() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.d.open--
	return f.File.Close()
}

func (d *descriptors) set(limit int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limit = limit
}

func (d *descriptors) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open
}

func TestAnIdleLogHoldsNoDescriptor(t *testing.T) {
	t.Parallel()
	files := &descriptors{FS: fsx.NewMem()}
	h := newHarness(t, files, "/data")
	l := h.open(Config{SegmentBytes: 200})
	require.Zero(t, files.count(), "a new log")
	for i := range int64(9) {
		_, err := l.Append(batch(t, record.None, i), 0, 0)
		require.NoError(t, err)
	}
	waitStable(t, l)
	h.kill()
	require.Zero(t, files.count(), "a closed log")
	h.start() // recovers, since the stop was not clean
	l = h.open(Config{SegmentBytes: 200})
	require.Zero(t, files.count(), "a recovered log")
	require.Len(t, scan(t, l, 0, 1000), 9)
	require.NoError(t, h.stop())
	require.Zero(t, files.count())
}

func TestAStopNeedsFewDescriptorsForManyLogs(t *testing.T) {
	t.Parallel()
	files := &descriptors{FS: fsx.NewMem()}
	h := newHarness(t, files, "/data")
	for p := range model.PartitionID(64) {
		_, err := h.store.Open(testID, "events", p, Config{})
		require.NoError(t, err)
	}
	files.set(4 * syncer.Workers)
	require.NoError(t, h.stop())
}

func TestALackOfDescriptorsIsNoFailureOfTheLog(t *testing.T) {
	t.Parallel()
	for limit := 1; limit < 9; limit++ {
		files := &descriptors{FS: fsx.NewMem()}
		h := newHarness(t, files, "/data")
		l := h.open(Config{SegmentBytes: 200})
		files.set(limit)
		var stored []model.Offset
		for i := range int64(9) {
			a, err := l.Append(batch(t, record.None, i), 0, 0)
			if err != nil {
				require.True(t, model.HasCode(err, model.LeaderUnavailable), "%v", err)
				require.Equal(t, model.NotApplied, model.AsError(err).EffectiveOutcome())
				continue
			}
			stored = append(stored, a.First)
		}
		require.NoError(t, l.Failed())
		_, err := l.Read(nil, 0, allOffsets, 10)
		require.True(t, err == nil || model.HasCode(err, model.LeaderUnavailable), "%v", err)
		files.set(0)
		_, err = l.Append(batch(t, record.None, 99), 0, 0)
		require.NoError(t, err)
		waitStable(t, l)
		require.Len(t, scan(t, l, 0, 1000), len(stored)+1)
		require.NoError(t, h.stop())
		h.start()
		require.Len(t, scan(t, h.open(Config{}), 0, 1000), len(stored)+1)
		require.NoError(t, h.stop())
	}
}

// A reader that began before the topic was deleted must not read the topic that was
// created anew under its name.
func TestAReaderOfARemovedLogNeverReadsItsSuccessor(t *testing.T) {
	t.Parallel()
	h := newHarness(t, fsx.NewMem(), "/data")
	first := h.open(Config{SegmentBytes: 200})
	for i := range int64(9) {
		_, err := first.Append(batch(t, record.None, i), 0, 0)
		require.NoError(t, err)
	}
	require.NoError(t, h.stop())
	h.start()
	old := h.open(Config{SegmentBytes: 200})
	require.NoError(t, h.store.Remove(old))
	next, err := h.store.Open(model.TopicID{9}, "events", 0, Config{})
	require.NoError(t, err)
	for i := range int64(9) {
		_, err := next.Append(batch(t, record.None, 1000+i), 0, 0)
		require.NoError(t, err)
	}
	for off := range model.Offset(9) {
		_, err := old.Read(nil, off, allOffsets, 1000)
		require.True(t, model.HasCode(err, model.LeaderUnavailable), "offset %d: %v", off, err)
	}
	require.Len(t, scan(t, next, 0, 1000), 9)
	require.NoError(t, h.stop())
}
