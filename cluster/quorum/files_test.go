package quorum

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/types"
	"github.com/stretchr/testify/require"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// faultyFiles are the files of the metadata log, of which one operation can be made to fail.
type faultyFiles struct {
	types.VFS

	mu    sync.Mutex
	fail  string         // guarded by mu: write or sync; "" for none
	calls map[string]int // guarded by mu: of operations since the first that failed
}

func (f *faultyFiles) check(what, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls != nil {
		f.calls[what]++
	}
	if what != f.fail {
		return nil
	}
	f.fail, f.calls = "", map[string]int{} // the disk seems well again after it
	return &ioError{what, name}
}

// ioError is an error as the operating system gives it.
type ioError struct{ op, name string }

func (e *ioError) Error() string { return e.op + " " + e.name + ": " + syscall.EIO.Error() }
func (e *ioError) Unwrap() error { return syscall.EIO }

func (f *faultyFiles) Create(dir, name string, size uint64) (types.WritableFile, error) {
	w, err := f.VFS.Create(dir, name, size)
	return faultyFile{w, f, filepath.Join(dir, name)}, err
}

func (f *faultyFiles) OpenWriter(dir, name string) (types.WritableFile, error) {
	w, err := f.VFS.OpenWriter(dir, name)
	return faultyFile{w, f, filepath.Join(dir, name)}, err
}

type faultyFile struct {
	types.WritableFile
	files *faultyFiles
	name  string
}

func (f faultyFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.files.check("write", f.name); err != nil {
		return 0, err
	}
	return f.WritableFile.WriteAt(p, off)
}

func (f faultyFile) Sync() error {
	if err := f.files.check("sync", f.name); err != nil {
		return err
	}
	return f.WritableFile.Sync()
}

// A write or a sync of the metadata log's own file that fails ends the node's part in the
// quorum: the caller learns that the outcome is unknown, the node is told to stop, and the
// file is neither written nor synced again, however well the disk seems afterwards.
func TestAFailedSyncOfTheMetadataLogStopsTheNode(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"write", "sync"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			files := &faultyFiles{VFS: fs.New()}
			n := startNodeOn(t, 1<<63, files)
			require.NoError(t, n.q.WaitLeader(t.Context()))
			cmd := command(t, metadata.BootstrapCluster{ClusterID: "c", MetadataVersion: 1})
			files.mu.Lock()
			files.fail = what
			files.mu.Unlock()
			_, err := n.q.Apply(t.Context(), cmd)
			require.True(t, model.HasCode(err, model.CommitUnknown), "%v", err)
			require.ErrorIs(t, <-n.fatal, syscall.EIO)
			_, err = n.q.Apply(t.Context(), cmd)
			require.Error(t, err)
			require.ErrorIs(t, n.stores.Logs.StoreLogs([]*raft.Log{{Index: 99}}), syscall.EIO)
			require.ErrorIs(t, n.stores.latch.broken(), syscall.EIO)
			files.mu.Lock()
			defer files.mu.Unlock()
			require.Empty(t, files.calls, "the file was touched after the failure")
			require.Empty(t, n.fsm.Image().Cluster().ID, "a change that failed must not be seen")
		})
	}
}

// A follower cuts off what a leader before it had appended and nobody else has, and its process
// ends: the log is there again, also what it had before, and also after a further cut.
func TestALogWhoseEndWasCutOffIsReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func() *Stores {
		s, err := OpenStores(dir, NewLogger(slog.New(slog.DiscardHandler)), func(err error) { t.Error(err) }, nil)
		require.NoError(t, err)
		return s
	}
	entry := func(index, term uint64) *raft.Log {
		return &raft.Log{Index: index, Term: term, Type: raft.LogCommand, Data: fmt.Appendf(nil, "%d of term %d", index, term)}
	}
	want := map[uint64]uint64{} // index → term
	check := func(s *Stores) {
		t.Helper()
		last, err := s.Logs.LastIndex()
		require.NoError(t, err)
		require.EqualValues(t, len(want), last)
		for index, term := range want {
			var got raft.Log
			require.NoError(t, s.Logs.GetLog(index, &got), "entry %d", index)
			require.Equal(t, entry(index, term).Data, got.Data)
		}
		require.ErrorIs(t, s.Logs.GetLog(last+1, new(raft.Log)), raft.ErrLogNotFound)
	}
	write := func(s *Stores, from, to, term uint64) {
		for i := from; i <= to; i++ {
			want[i] = term
			require.NoError(t, s.Logs.StoreLog(entry(i, term)))
		}
	}
	s := open()
	write(s, 1, 10, 1)
	for term := uint64(2); term < 5; term++ {
		last, err := s.Logs.LastIndex()
		require.NoError(t, err)
		require.NoError(t, s.Logs.DeleteRange(last-2, last))
		for i := last - 2; i <= last; i++ {
			delete(want, i)
		}
		check(s)
		require.NoError(t, s.Close())
		s = open()
		check(s)
		write(s, last-2, last+5, term)
		check(s)
		require.NoError(t, s.Close())
		s = open()
		check(s)
	}
	require.NoError(t, s.Close())
}
