package quorum

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

const (
	// segmentBytes is the size of raft-wal's files, which are allocated at once.
	segmentBytes = 8 << 20
	// snapshotsKept are kept beside each other, so that a damaged one is not the only one.
	snapshotsKept = 2
)

// Stores are raft's files in the metadata folder: the log with raft's own small values,
// and the snapshots.
type Stores struct {
	Logs      raft.LogStore
	Snapshots raft.SnapshotStore
	stable    raft.StableStore
	wal       *wal.WAL
	metaDB    *metadb.BoltMetaDB
	latch     *latch
}

// OpenStores opens or creates the files under dir/raft. fatal is called once, at the
// first failed write or sync. room, when not nil, is called with the bytes needed
// before each write: raft-wal cannot go on after one that a full disk has failed, so room
// is made before.
func OpenStores(dir string, logger *Logger, fatal func(error), room func(need int64)) (*Stores, error) {
	return openStores(dir, logger, fatal, room, fs.New())
}

// openStores keeps the files of the log, but not those of small values and snapshots, in
// files.
func openStores(dir string, logger *Logger, fatal func(error), room func(need int64), files types.VFS) (*Stores, error) {
	if room == nil {
		room = func(int64) {}
	}
	room(writeRoom)
	walDir := filepath.Join(dir, "raft", "wal")
	if err := os.MkdirAll(walDir, 0o700); err != nil {
		return nil, err
	}
	// Given from here because closing the log does not close its own.
	db := &metadb.BoltMetaDB{}
	w, err := wal.Open(walDir, wal.WithSegmentSize(segmentBytes), wal.WithLogger(logger.hc.Named("wal")), wal.WithMetaStore(db),
		wal.WithSegmentFiler(filer{segment.NewFiler(walDir, roomyFS{files, room})}))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the metadata log: %w", err), db.Close())
	}
	snaps, err := raft.NewFileSnapshotStoreWithLogger(filepath.Join(dir, "raft"), snapshotsKept, logger.hc.Named("snapshot"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the metadata snapshots: %w", err), w.Close(), db.Close())
	}
	l := &latch{fatal: fatal, room: room}
	return &Stores{
		Logs: &logStore{LogStore: w, latch: l}, stable: &stableStore{StableStore: w, latch: l},
		Snapshots: snaps, wal: w, metaDB: db, latch: l,
	}, nil
}

// writeRoom is what a write may need beyond the log's own files, which are allocated: the
// small values' file, and SQLite when the entry is applied.
const writeRoom = 1 << 20

// filer also opens segments that were sealed without an index: raft-wal 0.4 leaves the one in which
// it has cut off a conflicting suffix like that, and after a restart could read nothing of it. Its
// entries are found as those of a segment that is not sealed, which what was cut off is among:
// nobody asks for that, since the log's end is noted elsewhere.
type filer struct{ *segment.Filer }

// Open implements types.SegmentFiler.
func (f filer) Open(info types.SegmentInfo) (types.SegmentReader, error) {
	if info.IndexStart > 0 {
		return f.Filer.Open(info)
	}
	return f.RecoverTail(info)
}

// roomyFS makes room before a file of the log is allocated.
type roomyFS struct {
	types.VFS
	room func(need int64)
}

// Create implements types.VFS.
func (r roomyFS) Create(dir, name string, size uint64) (types.WritableFile, error) {
	r.room(int64(size) + writeRoom)
	return r.VFS.Create(dir, name, size)
}

// HasState reports whether raft has ever run on these files. A founding that was cut short is
// undone: raft writes its first term, then the first entry of its log, and with the term alone it
// would neither found again nor ever be let in.
func (s *Stores) HasState() (bool, error) {
	has, err := raft.HasExistingState(s.Logs, s.stable, s.Snapshots)
	if err != nil || !has {
		return has, err
	}
	short, err := s.cutShort()
	if err != nil || !short {
		return true, err
	}
	return false, s.stable.SetUint64(termKey, 0)
}

// Where raft keeps its term and the one that it last voted in.
var (
	termKey = []byte("CurrentTerm")
	voteKey = []byte("LastVoteTerm")
)

// cutShort tells that there is nothing but the term that a founding begins with. A node that was
// let in has a later one: its founder's is followed by that of its election.
func (s *Stores) cutShort() (bool, error) {
	last, err := s.Logs.LastIndex()
	if err != nil || last > 0 {
		return false, err
	}
	snapshots, err := s.Snapshots.List()
	if err != nil || len(snapshots) > 0 {
		return false, err
	}
	term, err := s.stable.GetUint64(termKey)
	if err != nil || term != 1 {
		return false, err
	}
	vote, err := s.stable.GetUint64(voteKey)
	return vote == 0, err
}

// Close closes the files. Raft must have been shut down.
func (s *Stores) Close() error { return errors.Join(s.wal.Close(), s.metaDB.Close()) }

// latch remembers the first failed write. hashicorp/raft only steps down when its log
// cannot be written and would try again; after a failed sync nobody knows what is on disk,
// so nothing may be written any more and the node has to stop.
type latch struct {
	fatal func(error)
	room  func(need int64) // makes room on the disk where it can

	mu      sync.Mutex
	err     error  // guarded by mu: the first failure
	onBreak func() // guarded by mu: shuts raft down
}

func (l *latch) broken() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// setOnBreak names what else to do at the first failure.
func (l *latch) setOnBreak(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onBreak = fn
}

// run writes unless an earlier write has failed.
func (l *latch) run(what string, write func() error) error {
	if err := l.broken(); err != nil {
		return err
	}
	l.room(writeRoom)
	err := write()
	if err == nil {
		return nil
	}
	err = fmt.Errorf("metadata log: %s: %w", what, err)
	l.mu.Lock()
	first := l.err == nil
	if first {
		l.err = err
	}
	onBreak := l.onBreak
	l.mu.Unlock()
	if first {
		l.fatal(err)
		if onBreak != nil {
			onBreak()
		}
	}
	return err
}

// logStore is raft-wal behind the latch.
type logStore struct {
	raft.LogStore
	latch *latch
}

var _ raft.MonotonicLogStore = (*logStore)(nil)

// IsMonotonic implements raft.MonotonicLogStore: raft-wal has no gaps, so after a
// restored snapshot raft must drop the log first.
func (s *logStore) IsMonotonic() bool { return true }

// StoreLog implements raft.LogStore.
func (s *logStore) StoreLog(l *raft.Log) error {
	return s.latch.run("append", func() error { return s.LogStore.StoreLog(l) })
}

// StoreLogs implements raft.LogStore.
func (s *logStore) StoreLogs(ls []*raft.Log) error {
	return s.latch.run("append", func() error { return s.LogStore.StoreLogs(ls) })
}

// DeleteRange implements raft.LogStore.
func (s *logStore) DeleteRange(from, to uint64) error {
	return s.latch.run("truncate", func() error { return s.LogStore.DeleteRange(from, to) })
}

// stableStore is raft-wal's store of small values (term, vote) behind the same latch.
type stableStore struct {
	raft.StableStore
	latch *latch
}

// Set implements raft.StableStore.
func (s *stableStore) Set(key, val []byte) error {
	return s.orEnd(s.latch.run("set", func() error { return s.StableStore.Set(key, val) }))
}

// SetUint64 implements raft.StableStore.
func (s *stableStore) SetUint64(key []byte, val uint64) error {
	return s.orEnd(s.latch.run("set", func() error { return s.StableStore.SetUint64(key, val) }))
}

// orEnd ends the calling goroutine on a failure. It is raft's main loop, which would
// panic on the error and take the process down before the node can stop in order; by now
// raft has been told to shut down, and its other goroutines end by themselves.
func (s *stableStore) orEnd(err error) error {
	if err != nil && s.latch.canEnd() {
		runtime.Goexit()
	}
	return err
}

// canEnd reports whether raft runs and was told to shut down.
func (l *latch) canEnd() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.onBreak != nil
}
