package log

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sort"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/checkpoint"
	"tidewire/storage/dedupe"
	"tidewire/storage/epochs"
	"tidewire/storage/index"
	"tidewire/storage/syncer"
)

// recovery opens one log from its folder.
type recovery struct {
	l       *Log
	segs    []*segment
	sizes   map[string]int64 // file sizes in the folder
	point   model.Offset     // checkpointed stable end
	known   bool             // the recovery point checkpoint was there
	trusted bool             // the last stop was clean
	epochs  epochs.Cache
	removed bool                  // files were, whose names are not durable yet
	haveEp  bool                  // the epoch file was there and whole
	fileEp  epochs.Cache          // as it said
	badTxn  map[model.Offset]bool // by base: the index of aborted transactions is damaged
	rebuilt bool                  // such an index was made anew
	state   *replayed             // of producers, as far as the log was read
	snaps   []pendingSnapshot     // of bases that validation came by
	redo    []span                // whole batches above the recovery point
}

func (s *Store) newLog(key logKey, name string, cfg Config) *Log {
	l := &Log{store: s, key: key, name: name, dir: path.Join(s.path(topicsDir), name), cfg: cfg, keys: dedupe.NewIndex(s.keyBudget)}
	if steady := s.o.Monotonic; steady != nil {
		l.keys.SetSteady(func() int64 { return steady().Milliseconds() })
	}
	l.keys.SetWindow(cfg.DedupeWindowMs)
	l.member = syncer.NewMember(l.sync, l.tell)
	l.caching.Store(cfg.WriteCaching)
	return l
}

// openLog makes or recovers the log of a key.
func (s *Store) openLog(key logKey, name string, cfg Config) (*Log, error) {
	l := s.newLog(key, name, cfg)
	r := &recovery{l: l, trusted: s.found.clean, known: s.found.have[cpRecovery], badTxn: map[model.Offset]bool{}}
	s.cpMu.Lock()
	point, seen := s.cp[cpRecovery].Points[key]
	start, haveStart := s.cp[cpLogStart].Points[key]
	hw, haveHW := s.cp[cpReplication].Points[key]
	clean := s.cleaner.Points[key]
	s.cpMu.Unlock()
	r.point = point
	l.hw.Store(int64(hw))
	l.cleaned.point.Store(int64(clean))

	if err := r.adoptFolder(seen); err != nil {
		return nil, r.fail(err)
	}
	if err := r.list(); err != nil {
		return nil, r.fail(err)
	}
	if err := r.settleCleaning(); err != nil {
		return nil, r.fail(err)
	}
	if err := r.dropBelow(start); err != nil {
		return nil, r.fail(err)
	}
	if len(r.segs) > 0 && haveStart && r.segs[0].base > start && r.point > start {
		return nil, r.fail(l.damage(r.segs[0], 0, start, errNoFirst))
	}
	end, err := r.run(start)
	if err == nil && end < start {
		end, err = r.restartAt(start)
	}
	if err != nil {
		return nil, r.fail(err)
	}
	for _, seg := range r.segs { // most partitions are idle; descriptors are few
		if err := seg.release(); err != nil {
			return nil, r.fail(err)
		}
	}
	l.segs.Store(&r.segs)
	if err := firstErr(r.tidySnapshots(end), r.settleKeys(end), r.settleTxns()); err != nil {
		return nil, r.fail(err)
	}
	if clean > end {
		l.cleaned.point.Store(0)
		if err := s.forgetCleanPoint(key); err != nil {
			return nil, r.fail(err)
		}
	}
	l.logEnd.Store(int64(end))
	l.synced.Store(int64(end))
	l.stable.Store(int64(end))
	l.toldStable = end
	start = min(max(start, r.segs[0].base), end)
	l.logStart.Store(int64(start))
	l.epochs = r.epochsWithin(start, end)
	l.epochsNew = !slices.Equal(l.epochs, r.fileEp)
	if !haveHW {
		hw = start
	}
	l.hw.Store(int64(min(max(hw, start), end)))
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.state != nil {
		l.adoptLocked(r.state)
	}
	return l, nil
}

var errNoFirst = errors.New("the first segment begins above the log start, so that one before it is missing")

// fail closes what is open and gives I/O errors their code.
func (r *recovery) fail(err error) error {
	r.l.keys.Release()
	for _, seg := range r.segs {
		_ = seg.close()
	}
	switch {
	case fsx.IsNoDescriptor(err):
		err = noDescriptor(err)
	case fsx.IsNoSpace(err):
		err = model.Errorf(model.StorageFull, "the disk is full, so that the log of %s cannot be opened", r.l.name).WithCause(err)
	case !model.HasCode(err, model.StorageError):
		err = r.l.storageError("open", err)
	}
	r.l.store.log.Error("log not opened", "log", r.l.name, "err", err)
	return err
}

// adoptFolder makes sure that the folder is there and belongs to the topic id. A
// folder of another id goes to the trash. The metadata file is durable before the
// first segment exists, so segments without one are damage; they are ours when
// the recovery point names this id (seen).
func (r *recovery) adoptFolder(seen bool) error {
	l, s := r.l, r.l.store
	exists, err := fsx.Exists(s.fs, l.dir)
	if err != nil {
		return err
	}
	if !exists {
		if err := s.o.Room(); err != nil {
			return err
		}
		return r.makeFolder()
	}
	b, err := fsx.ReadFile(s.fs, path.Join(l.dir, checkpoint.MetadataFile), checkpoint.MaxMetadataFile)
	if err != nil && !isErr(err, fs.ErrNotExist) {
		return err
	}
	var id model.TopicID
	if err == nil {
		id, err = checkpoint.DecodeMetadata(b)
	}
	switch {
	case err == nil && id == l.key.ID:
		return nil
	case err == nil && seen: // it was this log's when the checkpoint was written
		return l.storageError("open "+path.Join(l.dir, checkpoint.MetadataFile), fmt.Errorf("the folder is of the topic id %s, though the checkpoints know the log", id))
	case err == nil:
		s.log.Warn("the folder belongs to another topic id", "log", l.name, "found", id, "wanted", l.key.ID)
		if err := s.discard(l.name, id, ""); err != nil {
			return err
		}
		return r.makeFolder()
	}
	if lerr := r.list(); lerr != nil {
		return lerr
	}
	if len(r.segs) > 0 && !seen {
		return l.storageError("segments of an unknown topic id", err)
	}
	s.log.Warn("partition.metadata written anew", "log", l.name, "err", err)
	return r.makeFolder()
}

func (r *recovery) makeFolder() error {
	l, s := r.l, r.l.store
	if err := s.fs.MkdirAll(l.dir); err != nil {
		return err
	}
	return fsx.WriteFile(s.fs, path.Join(l.dir, checkpoint.MetadataFile), checkpoint.EncodeMetadata(l.key.ID))
}

// list finds the segments.
func (r *recovery) list() error {
	entries, err := r.l.store.fs.ReadDir(r.l.dir)
	if err != nil {
		return err
	}
	r.segs, r.sizes = nil, make(map[string]int64, len(entries))
	now := r.l.store.o.Now().UnixMilli()
	for _, e := range entries {
		r.sizes[e.Name] = e.Size
		if e.Name == compactedFile && !e.Dir {
			r.l.compacted.Store(true)
		}
		if base, ok := parseBase(e.Name, logSuffix); ok && !e.Dir {
			seg := newSegment(r.l.store.fs, r.l.store.indexBufs, r.l.dir, base, now)
			seg.size.Store(e.Size)
			if !e.Modified.IsZero() {
				seg.appended.Store(e.Modified.UnixMilli())
			}
			r.segs = append(r.segs, seg)
		}
	}
	sort.Slice(r.segs, func(i, j int) bool { return r.segs[i].base < r.segs[j].base })
	return nil
}

// run brings the segments into order and returns the log end.
func (r *recovery) run(start model.Offset) (model.Offset, error) {
	if len(r.segs) == 0 {
		if r.point > start {
			return 0, r.endsBelow(0)
		}
		if err := r.l.removeSnapshots(func(model.Offset) bool { return true }); err != nil {
			return 0, err
		}
		return start, firstErr(r.firstSegment(start), r.loadKeys(start))
	}
	r.loadEpochs()
	first := r.firstUnsure()
	if err := r.trustSegments(first); err != nil {
		return 0, err
	}
	if r.trusted {
		if end, ok, err := r.quickTail(); err != nil {
			return 0, err
		} else if ok {
			if r.state, err = r.producerState(len(r.segs), end); err == nil {
				err = r.loadKeys(end)
			}
			return end, err
		}
	}
	// What validation reads it enters anew; snapshots from there on may be of a log that
	// was cut since.
	base := r.segs[first].base
	err := r.l.removeSnapshots(func(off model.Offset) bool { r.removed = r.removed || off > base; return off > base })
	if err == nil {
		r.state, err = r.producerState(first, base)
	}
	if err == nil {
		err = r.loadKeys(base)
	}
	if err != nil {
		return 0, err
	}
	// Of a segment that begins at the recovery point the snapshot was never synced either.
	if ok, err := fsx.Exists(r.l.store.fs, r.l.snapshotPath(base)); err != nil {
		return 0, err
	} else if !ok && first > 0 {
		r.snapshot(base)
	}
	end, err := r.validateFrom(first)
	if err != nil {
		return 0, err
	}
	if err := r.removeOrphans(base); err != nil {
		return 0, err
	}
	if end < r.point && start < r.point {
		return 0, r.endsBelow(end)
	}
	return end, r.syncFrom(first, end)
}

func (r *recovery) endsBelow(end model.Offset) error {
	err := fmt.Errorf("the log ends at offset %d, below its checkpointed stable end %d", end, r.point)
	if n := len(r.segs); n > 0 {
		return r.l.damage(r.segs[n-1], r.segs[n-1].size.Load(), end, err)
	}
	return r.l.storageError("open "+r.l.dir, err)
}

func (r *recovery) firstSegment(base model.Offset) error {
	s := newSegment(r.l.store.fs, r.l.store.indexBufs, r.l.dir, base, r.l.store.o.Now().UnixMilli())
	r.segs = append(r.segs, s)
	// The folder's own entry first: the next start, which finds a segment, does not ask for it.
	if err := r.l.store.fs.SyncDir(r.l.store.path(topicsDir)); err != nil {
		return err
	}
	return firstErr(s.create(), r.l.store.fs.SyncDir(r.l.dir))
}

// loadEpochs reads the epoch file; run fills in what the headers say.
func (r *recovery) loadEpochs() {
	b, err := fsx.ReadFile(r.l.store.fs, path.Join(r.l.dir, epochs.FileName), epochs.MaxFileSize)
	if err == nil {
		r.epochs, err = epochs.Decode(b)
	}
	r.haveEp = err == nil
	r.fileEp = slices.Clone(r.epochs)
	if err != nil && !isErr(err, fs.ErrNotExist) {
		r.l.store.log.Warn("epochs are rebuilt", "log", r.l.name, "err", err)
	}
}

// firstUnsure is the first segment that must be validated: the one that holds the
// recovery point, or after a clean stop the last, or all when the recovery point
// is lost.
func (r *recovery) firstUnsure() int {
	last := len(r.segs) - 1
	if r.trusted {
		return last
	}
	return min(floorSegment(r.segs, r.point), last)
}

// trustSegments opens the segments below n, which were synced with their indexes.
func (r *recovery) trustSegments(n int) error {
	for i, seg := range r.segs[:n] {
		if !r.haveEp {
			if err := r.noteEpochs(seg); err != nil {
				return err
			}
		}
		r.openTxns(seg)
		// At its end a segment was synced as the active one, without its indexes, and the next
		// may have begun since.
		unsealed := i == n-1 && !r.trusted && r.segs[n].base >= r.point
		if unsealed && seg.txn.Summary().Count > 0 {
			r.badTxn[seg.base] = true
		}
		if r.openIndexes(seg) && !unsealed {
			continue
		}
		r.l.store.log.Warn("rebuilding indexes", "log", r.l.name, "segment", baseName(r.segs[i].base))
		if err := r.l.rebuildLocked(seg, true); err != nil {
			return err
		}
	}
	return nil
}

// openIndexes reports whether both files are there with a plausible size.
func (r *recovery) openIndexes(seg *segment) bool {
	for _, x := range []*index.Index{seg.off, seg.tim} {
		size, ok := r.sizes[path.Base(x.Path())]
		if !ok || size%int64(x.Kind().EntrySize()) != 0 || x.Open(size) != nil {
			return false
		}
	}
	n, last := seg.off.State()
	return n == 0 || last.Key >= 0 && last.Val >= 0 && last.Val < seg.size.Load()
}

func (r *recovery) noteEpochs(seg *segment) error {
	sc, err := r.l.store.scanner(seg, seg.size.Load(), scanWindow)
	if err != nil {
		return err
	}
	defer r.l.store.putScanner(sc)
	for pos := int64(0); pos < sc.Size; {
		h, err := sc.Header(pos)
		if err != nil {
			return r.l.damage(seg, pos, seg.base, err)
		}
		r.epochs, _ = r.epochs.Note(h.LeaderEpoch, h.BaseOffset)
		pos += int64(h.Size())
	}
	return nil
}

// quickTail opens the last segment after a clean stop by reading headers behind
// the last index entry. Not ok means that something does not fit, and that the
// segment must be validated.
func (r *recovery) quickTail() (model.Offset, bool, error) {
	seg := r.segs[len(r.segs)-1]
	if !r.haveEp && seg.size.Load() > 0 || !r.openIndexes(seg) {
		return 0, false, nil
	}
	r.openTxns(seg)
	sc, err := r.l.store.scanner(seg, seg.size.Load(), scanWindow)
	if err != nil {
		return 0, false, err
	}
	defer r.l.store.putScanner(sc)
	next, ok := r.l.readTail(seg, sc, r.l.cfg.IndexIntervalBytes)
	if !ok || next != r.point || r.l.fitMaxTimestamp(seg, sc) != nil {
		return 0, false, nil
	}
	seg.known.Store(true)
	return next, true, nil
}

// topicIDOf reads the topic id of a folder that is not open.
func (s *Store) topicIDOf(folder string) (model.TopicID, error) {
	b, err := fsx.ReadFile(s.fs, path.Join(s.path(topicsDir), folder, checkpoint.MetadataFile), checkpoint.MaxMetadataFile)
	if err != nil {
		return model.TopicID{}, err
	}
	return checkpoint.DecodeMetadata(b)
}
