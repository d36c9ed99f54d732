package log

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/batches"
	"tidewire/storage/checkpoint"
	"tidewire/storage/dedupe"
	"tidewire/storage/epochs"
	"tidewire/storage/files"
	"tidewire/storage/index"
	"tidewire/storage/record"
	"tidewire/storage/syncer"
	"tidewire/storage/trash"
)

// Names in the data folder.
const (
	topicsDir = "topics"
	trashDir  = "trash"
)

// Store is one data folder. All methods are safe for concurrent use.
type Store struct {
	fs     *files.Cache // all files are opened through it
	o      StoreOptions
	log    *slog.Logger
	sched  *syncer.Scheduler
	tuning atomic.Pointer[Tuning]
	trash  *trash.Trash
	bin    *trash.Bin

	closedErr     *error
	keyBudget     *dedupe.Budget
	indexBufs     *index.Buffers
	scanners      sync.Pool // of *scanner
	decompressors sync.Pool // of *decoder

	found checkpoints // as at start; read only

	mu       sync.Mutex
	names    map[string]logKey        // guarded by mu: folders in use
	logs     map[logKey]*Log          // guarded by mu; nil while being opened
	folders  map[string]bool          // guarded by mu: after an unclean stop, folders not recovered yet
	tainted  bool                     // guarded by mu: something failed, so this stop is not clean
	closing  bool                     // guarded by mu
	cpMu     sync.Mutex               // one writer of checkpoints at a time; before mu
	cp       [cpKinds]checkpoint.File // guarded by cpMu
	cpBehind [cpKinds]bool            // guarded by cpMu: the last write failed, the next round writes again
	cleaner  checkpoint.File          // guarded by cpMu: where what is dirty begins, of logs that were compacted

	cleanerBehind bool // guarded by cpMu: its last write failed, so that it is not known what the file has
	stop          chan struct{}
	loopDone      sync.WaitGroup

	cleanSlot chan struct{} // held by the pass of compaction that has the dedupe buffer
}

// expireInterval is how often idle producers are looked for.
const expireInterval = 10 * time.Minute

// decoder is what it takes to look into a batch.
type decoder struct {
	inflate *record.Decompressor
	it      record.Iterator
}

// OpenStore reads the checkpoints of a data folder (making it when absent), takes
// away the clean-stop marker and starts the store's goroutines. One process at a
// time may have a folder open; that is for the caller to see to.
func OpenStore(o StoreOptions) (*Store, error) {
	o = o.withDefaults()
	s := &Store{fs: files.New(o.FS, o.MaxOpenFiles), o: o, log: o.Logger, logs: map[logKey]*Log{}, names: map[string]logKey{}, folders: map[string]bool{}, stop: make(chan struct{}), cleanSlot: make(chan struct{}, 1), indexBufs: index.NewBuffers(), keyBudget: dedupe.NewBudget(o.KeyMemory)}
	s.Tune(o.Tuning)
	var closed error = errClosed
	s.closedErr = &closed
	s.scanners.New = func() any { return new(scanner) }
	s.decompressors.New = func() any { return &decoder{inflate: record.NewDecompressor(o.MaxInflate).Within(o.Inflation)} }
	s.sched = syncer.New(o.SyncInterval)
	if err := s.prepare(); err != nil {
		return nil, fmt.Errorf("open the data folder: %w", err)
	}
	s.trash = trash.New(s.fs, s.path(trashDir), o.TrashDelay, s.log)
	if err := s.trash.Load(o.Now()); err != nil {
		return nil, fmt.Errorf("open the data folder: %w", err)
	}
	s.bin = trash.NewBin(s.fs, s.log)
	s.sched.Start(o.Group)
	s.run("log-checkpoint", s.checkpointLoop)
	s.run("log-segment-deletion", func(ctx context.Context) { s.bin.Loop(ctx, s.stop, o.Now) })
	s.run("log-trash", func(ctx context.Context) { s.trash.Loop(ctx, s.stop, o.Now) })
	return s, nil
}

// OpenFiles tells how many files of the logs are open, and what was done to keep them few.
func (s *Store) OpenFiles() files.Stats { return s.fs.Stats() }

func (s *Store) run(name string, fn func(context.Context)) {
	s.loopDone.Add(1)
	if !s.o.Group.Go(name, func(ctx context.Context) { defer s.loopDone.Done(); fn(ctx) }) {
		s.loopDone.Done()
	}
}

func (s *Store) path(name string) string { return path.Join(s.o.Dir, name) }

// prepare makes the folders, loads the checkpoints and removes the marker, so
// that from here on a stop is unclean until Close says otherwise.
func (s *Store) prepare() error {
	for _, d := range []string{topicsDir, trashDir} {
		if err := s.fs.MkdirAll(s.path(d)); err != nil {
			return err
		}
	}
	// Also what a killed process has made and not synced: logs that it left rely on it.
	if err := firstErr(s.fs.SyncDir(path.Dir(path.Clean(s.o.Dir))), s.fs.SyncDir(s.o.Dir), s.fs.SyncDir(s.path(topicsDir))); err != nil {
		return err
	}
	var err error
	if s.found, err = loadCheckpoints(s.fs, s.o.Dir, s.log.Warn); err != nil {
		return err
	}
	s.cleaner = s.found.cleaner
	entries, err := s.fs.ReadDir(s.path(topicsDir))
	if err != nil {
		return err
	}
	if !s.found.clean {
		for _, e := range entries {
			if e.Dir {
				s.folders[e.Name] = true
			}
		}
	}
	if err := s.fs.Remove(s.path(cleanStopFile)); !isMissing(err) {
		return err
	}
	if err := s.fs.SyncDir(s.o.Dir); err != nil {
		return err
	}
	if s.found.stranger { // it could name as clean what was cut off and appended anew
		s.log.Warn("checkpoint is not of the last stop: compaction begins anew", "file", cleanerFile)
		s.cleaner.Points = map[logKey]model.Offset{}
		s.cpMu.Lock()
		err := s.writeCleanerCpLocked()
		s.cpMu.Unlock()
		if err != nil {
			return err
		}
	}
	return s.firstCheckpoints(len(entries) > 0)
}

// firstCheckpoints writes those that are absent, before any log exists, so that
// an absent one later means a lost one. Where logs exist it waits for them to be
// opened: a recovery point of nothing would allow cutting.
func (s *Store) firstCheckpoints(haveLogs bool) error {
	var top uint64
	for _, c := range s.found.cp {
		top = max(top, c.Generation)
	}
	for i := range s.cp {
		s.cp[i].Points = make(map[logKey]model.Offset, len(s.found.cp[i].Points))
		for k, v := range s.found.cp[i].Points {
			s.cp[i].Points[k] = v
		}
		s.cp[i].Generation = top
		if s.found.have[i] {
			continue
		}
		if haveLogs {
			s.log.Warn("checkpoint is missing", "file", checkpointFiles[i])
			continue
		}
		if err := s.writeCheckpoint(i); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) writeCheckpoint(i int) error {
	s.cp[i].Generation++
	err := fsx.WriteFile(s.fs, s.path(checkpointFiles[i]), s.cp[i].Encode(checkpointFiles[i]))
	s.cpBehind[i] = err != nil
	return err
}

// Open opens or creates a partition's log; recovery runs here when it must. It
// may run in parallel for different partitions. A folder whose partition.metadata
// names another topic id is moved to Dir/trash first. With StorageFull (no
// room on the disk) or LeaderUnavailable (no descriptor left) opening may be tried again. An
// error of code StorageError means that the folder is damaged below its checkpointed stable end
// and was left as it is; the node's next stop is then not a clean one.
func (s *Store) Open(id model.TopicID, topic string, p model.PartitionID, cfg Config) (*Log, error) {
	key := logKey{ID: id, Partition: p}
	name := fmt.Sprintf("%s-%d", topic, p)
	s.mu.Lock()
	_, open := s.names[name]
	if s.closing || open {
		s.mu.Unlock()
		return nil, model.Errorf(model.Internal, "the log of %s is open, or the store is closed", name)
	}
	s.logs[key], s.names[name] = nil, key
	s.mu.Unlock()

	l, err := s.openLog(key, name, cfg.withDefaults())

	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.forgetLocked(key, name)
		s.tainted = true
		return nil, err
	}
	if s.closing {
		s.forgetLocked(key, name)
		return nil, errors.Join(errClosed, l.closeFiles())
	}
	s.logs[key] = l
	delete(s.folders, name)
	return l, nil
}

func (s *Store) forgetLocked(key logKey, name string) {
	delete(s.logs, key)
	delete(s.names, name)
}

// Remove takes a log out of service and moves its folder to Dir/trash, from where
// it is deleted in the background after TrashDelay. Reads and appends under way
// fail with LeaderUnavailable. It must not be called from the log's callbacks.
func (s *Store) Remove(l *Log) error {
	s.mu.Lock()
	if s.logs[l.key] != l {
		s.mu.Unlock()
		return model.Errorf(model.Internal, "the log of %s is not open", l.name)
	}
	s.mu.Unlock()
	l.cleaned.gate.Shut() // for good
	// No checkpoint meanwhile: it would write the epoch file into the folder of the next
	// log of this name.
	l.cutMu.Lock()
	defer l.cutMu.Unlock()
	s.cpMu.Lock()
	defer s.cpMu.Unlock()
	s.sched.Drain(l.member)
	err := l.closeFiles()
	s.sched.Drain(l.member) // an append may have slipped in before the close
	err = firstErr(s.discard(l.name, l.key.ID, ""), err)
	s.mu.Lock()
	s.forgetLocked(l.key, l.name)
	s.mu.Unlock()
	for i := range s.cp {
		delete(s.cp[i].Points, l.key)
	}
	delete(s.cleaner.Points, l.key)
	return err
}

// discard moves a folder of Dir/topics to the trash.
func (s *Store) discard(name string, id model.TopicID, mark string) error {
	to := s.trash.Name(name, id, s.o.Now(), mark)
	if err := s.fs.Rename(path.Join(s.path(topicsDir), name), path.Join(s.path(trashDir), to)); err != nil {
		return err
	}
	if err := firstErr(s.fs.SyncDir(s.path(trashDir)), s.fs.SyncDir(s.path(topicsDir))); err != nil {
		return err
	}
	s.log.Info("log moved to trash", "log", name, "topic_id", id, "as", to)
	s.trash.Add(to, s.o.Now(), s.trash.DelayOf(to))
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.folders, name)
	return nil
}

// DeleteNow has the files of deleted logs and segments removed that wait for the end of their
// delay, for the sake of the room that they take. Folders that Sweep found stay for their day.
func (s *Store) DeleteNow() {
	s.trash.DeleteNow(s.o.Now())
	s.bin.DeleteNow(s.o.Now())
}

// Sweep moves the folders to the trash that are neither open nor expected, where they
// stay for a day: what the metadata does not know is not deleted at once (it may be the
// metadata that is wrong). Call it once every log of this node was opened. expected tells
// by the folder's name, <topic>-<partition>, what belongs to this node, damaged or not.
func (s *Store) Sweep(expected func(folder string) bool) error {
	entries, err := s.fs.ReadDir(s.path(topicsDir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		s.mu.Lock()
		_, open := s.names[e.Name]
		s.mu.Unlock()
		if open || !e.Dir || expected(e.Name) {
			continue
		}
		s.log.Warn("a folder belongs to no topic of this node", "folder", e.Name)
		id, _ := s.topicIDOf(e.Name) // the zero id where its partition.metadata is damaged
		if err := s.discard(e.Name, id, trash.StraySuffix); err != nil {
			return err
		}
	}
	return nil
}

// checkpointLoop writes changed checkpoints every interval.
func (s *Store) checkpointLoop(ctx context.Context) {
	t := time.NewTicker(s.o.CheckpointInterval)
	defer t.Stop()
	expire := s.o.Now().Add(expireInterval)
	for {
		select {
		case <-t.C:
		case <-s.stop:
			return
		case <-ctx.Done():
			return
		}
		if now := s.o.Now(); !now.Before(expire) {
			expire = now.Add(expireInterval)
			for _, l := range s.openLogs() {
				l.ExpireProducers(now.UnixMilli())
			}
		}
		for _, l := range s.openLogs() {
			l.tendKeys(s.o.Now().UnixMilli())
			// With write caching nobody asks for syncs: once a second bounds the loss.
			if l.caching.Load() && l.logEnd.Load() > l.synced.Load() {
				s.sched.Enqueue(l.member)
			}
		}
		if err := s.Checkpoint(); err != nil {
			s.log.Error("checkpoint failed", "err", err)
		}
	}
}

func (s *Store) openLogs() []*Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Log, 0, len(s.logs))
	for _, l := range s.logs {
		if l != nil {
			out = append(out, l)
		}
	}
	return out
}

// Checkpoint writes the recovery points, high watermarks and log starts that have
// changed; the store does so by itself every CheckpointInterval. Recovery points
// are noted before the epoch files are written and written after them, so that an
// epoch that began below a recovery point is never missing from its file.
func (s *Store) Checkpoint() error {
	s.cpMu.Lock()
	defer s.cpMu.Unlock()
	return s.checkpointCpLocked(false)
}

func (s *Store) checkpointCpLocked(all bool) error {
	var changed [cpKinds]bool
	note := func(kind int, l *Log, off int64) {
		if old, ok := s.cp[kind].Points[l.key]; !ok || int64(old) != off {
			s.cp[kind].Points[l.key] = model.Offset(off)
			changed[kind] = true
		}
	}
	logs := s.openLogs()
	ends := make([]struct{ synced, hw, start int64 }, len(logs))
	var behind []*Log
	for i, l := range logs {
		ends[i].synced, ends[i].hw, ends[i].start = l.synced.Load(), l.hw.Load(), l.logStart.Load()
		if l.epochsBehind() {
			behind = append(behind, l)
		}
	}
	// Some at a time: after a start, or a change of leaders, there may be thousands.
	_ = s.forEach(behind, func(l *Log) error { return l.flushEpochs() }) // repeated below, with its error
	var err error
	for i, l := range logs {
		e := l.flushEpochs()
		if isErr(e, errCutting) {
			continue // the truncation lowers what is checkpointed itself, each at its time
		}
		note(cpReplication, l, ends[i].hw)
		note(cpLogStart, l, ends[i].start)
		if e != nil {
			err = firstErr(err, l.storageError("write "+epochs.FileName, e))
			continue
		}
		note(cpRecovery, l, ends[i].synced)
	}
	s.mu.Lock()
	allOpen := len(s.folders) == 0
	s.mu.Unlock()
	for i := range s.cp {
		if !changed[i] && !s.cpBehind[i] && !all || !s.found.have[i] && !allOpen && i != cpLogStart {
			// One that was lost is written again when every log is in it: an absent
			// file makes recovery careful, an absent entry means a new log. To log starts
			// both mean the same, and a moved one must not wait.
			continue
		}
		if e := s.writeCheckpoint(i); e != nil {
			err = firstErr(err, fmt.Errorf("write %s: %w", checkpointFiles[i], e))
		}
	}
	return err
}

// lowerCheckpoints makes the recovery point on disk, and the high watermark, not higher
// than a truncation needs them, before it cuts: recovery refuses a log that ends below
// its recovery point. In a full one the old segments may go one by one, so it is 0.
func (s *Store) lowerCheckpoints(l *Log, c *cut) error {
	point := c.before
	if c.full {
		point = 0
	}
	s.cpMu.Lock()
	defer s.cpMu.Unlock()
	return firstErr(s.lowerCleanPointCpLocked(l, c.end), s.lowerCpLocked(cpRecovery, l.key, point), s.lowerCpLocked(cpReplication, l.key, c.end))
}

// setCleanPoint makes it durable how far a log is clean.
func (s *Store) setCleanPoint(l *Log, to model.Offset) error {
	s.cpMu.Lock()
	defer s.cpMu.Unlock()
	old, had := s.cleaner.Points[l.key]
	s.cleaner.Points[l.key] = to
	if err := s.writeCleanerCpLocked(); err != nil {
		delete(s.cleaner.Points, l.key)
		if had {
			s.cleaner.Points[l.key] = old
		}
		return err
	}
	l.cleaned.point.Store(int64(to))
	return nil
}

func (s *Store) writeCleanerCpLocked() error {
	s.cleaner.Generation++
	s.cleanerBehind = true
	if err := fsx.WriteFile(s.fs, s.path(cleanerFile), s.cleaner.Encode(cleanerFile)); err != nil {
		return err
	}
	s.cleanerBehind = false
	return nil
}

// forgetCleanPoint is for a log that does not have what was clean: another one of its key
// was here before.
func (s *Store) forgetCleanPoint(key logKey) error {
	s.cpMu.Lock()
	defer s.cpMu.Unlock()
	delete(s.cleaner.Points, key)
	return s.writeCleanerCpLocked()
}

// lowerCleanPointCpLocked comes before a truncation: what is appended at its offsets later
// must count as dirty, or a tombstone among it could go before what it deletes.
func (s *Store) lowerCleanPointCpLocked(l *Log, to model.Offset) error {
	l.cleaned.failed.Store(nil)
	if model.Offset(l.cleaned.point.Load()) <= to && s.cleaner.Points[l.key] <= to {
		return nil
	}
	l.cleaned.point.Store(int64(to))
	s.cleaner.Points[l.key] = to
	return s.writeCleanerCpLocked()
}

// resetLogStart follows a full truncation once the old segments are gone: what was deleted
// must not come back where the log begins lower now, and where it begins higher its first
// segment must not count as lost. The recovery point is 0 until then.
func (s *Store) resetLogStart(l *Log, start model.Offset) error {
	s.cpMu.Lock()
	defer s.cpMu.Unlock()
	if old, ok := s.cp[cpLogStart].Points[l.key]; ok && old == start && !s.cpBehind[cpLogStart] {
		return nil
	}
	s.cp[cpLogStart].Points[l.key] = start
	return s.writeCheckpoint(cpLogStart)
}

func (s *Store) lowerCpLocked(kind int, key logKey, to model.Offset) error {
	if old, ok := s.cp[kind].Points[key]; (!ok || old <= to) && !s.cpBehind[kind] {
		return nil
	}
	if old, ok := s.cp[kind].Points[key]; ok {
		s.cp[kind].Points[key] = min(old, to)
	}
	s.mu.Lock()
	allOpen := len(s.folders) == 0
	s.mu.Unlock()
	if !s.found.have[kind] && !allOpen {
		return nil // the file was lost and is not there
	}
	return s.writeCheckpoint(kind)
}

type scanner = batches.Scanner

// scanner gives a pooled reader of a segment's first size bytes.
func (s *Store) scanner(seg *segment, size int64, chunk int) (*scanner, error) {
	if err := seg.f.Ready(); err != nil {
		return nil, err
	}
	sc := s.scanners.Get().(*scanner)
	sc.Reset(seg.f, size, chunk)
	return sc, nil
}

func (s *Store) putScanner(sc *scanner) {
	sc.Release(2 * checkWindow)
	s.scanners.Put(sc)
}
