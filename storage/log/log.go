package log

import (
	"errors"
	"path"
	"sort"
	"sync"
	"sync/atomic"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/dedupe"
	"tidewire/storage/epochs"
	"tidewire/storage/producer"
	"tidewire/storage/syncer"
)

// Log is one partition's log. All methods are safe for concurrent use.
//
// Readers need no lock: they load the log end, then the list of segments, then a
// segment's size, which writers store in the opposite order.
type Log struct {
	store *Store
	key   logKey
	name  string // topic-partition
	dir   string

	segs      atomic.Pointer[[]*segment] // replaced under mu; never empty
	logStart  atomic.Int64
	logEnd    atomic.Int64
	stable    atomic.Int64
	synced    atomic.Int64 // really synced, also under write caching
	hw        atomic.Int64
	caching   atomic.Bool
	compacted atomic.Bool  // offsets may have gaps (gaps.go)
	cuts      atomic.Int64 // grows with each truncation, before any byte is cut, and each swap of compaction
	cleaned   cleaned

	cutMu sync.Mutex // one truncation at a time, and none while the log ends; held across its syncs

	failed    atomic.Pointer[error]
	callbacks atomic.Pointer[callbacks]

	mu        sync.Mutex        // appends, rolls, changes of the segment list; held during page-cache writes
	cfg       Config            // guarded by mu
	epochs    epochs.Cache      // guarded by mu
	epochsNew bool              // guarded by mu: the epoch file is behind
	pending   []*segment        // guarded by mu: sealed, not yet synced
	dirDirty  bool              // guarded by mu: the folder has entries made or removed since its last sync
	prods     producer.State    // guarded by mu, but for its view
	snaps     []pendingSnapshot // guarded by mu: of rolls, not yet written
	keys      *dedupe.Index     // guarded by mu; its file is written under cutMu
	lastSnap  model.Offset      // guarded by mu: the newest snapshot on disk; -1 when not known
	closed    bool              // guarded by mu
	farAt     model.Offset      // guarded by mu: of the newest batch behind a far gap; see heldLocked
	cutting   bool              // guarded by mu: a truncation is under way, nothing may be appended

	member *syncer.Member // in the store's scheduler

	// Of the worker that has the log.
	toldStable model.Offset // what onStable last got
	told       bool         // onFail was called
}

type callbacks struct {
	onStable  func(model.Offset)
	onSyncEnd func()
	onFail    func(error)
}

// LogStart is the first offset that can be read.
func (l *Log) LogStart() model.Offset { return model.Offset(l.logStart.Load()) }

// LogEnd is the offset that the next record gets.
func (l *Log) LogEnd() model.Offset { return model.Offset(l.logEnd.Load()) }

// StableEnd is the end of what is synced; with WriteCaching the log end.
func (l *Log) StableEnd() model.Offset { return model.Offset(l.stable.Load()) }

// LogEndEpoch is the largest leader epoch of the batches, or NoEpoch for an empty
// log.
func (l *Log) LogEndEpoch() model.LeaderEpoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epochs.Latest()
}

// EpochEnd gives the largest epoch ≤ epoch and the offset at which it ended
// (KIP-101, KIP-279); NoEpoch and -1 when epoch is above the latest or none is
// known.
func (l *Log) EpochEnd(epoch model.LeaderEpoch) (model.LeaderEpoch, model.Offset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epochs.End(epoch, l.LogEnd())
}

// SetCallbacks registers what the sync goroutines call, holding no lock and never
// two at a time for one log: onStable after the stable end moved; onSyncEnd after
// each sync, also a failed one, before the next begins; onFail once, when the log
// latches. Any may be nil. With WriteCaching Append moves the stable end itself
// and onStable is called for it after the next sync only: look at StableEnd after
// Append. They must not block: they occupy one of the node's few sync workers.
func (l *Log) SetCallbacks(onStable func(model.Offset), onSyncEnd func(), onFail func(error)) {
	l.callbacks.Store(&callbacks{onStable, onSyncEnd, onFail})
}

// SetHighWatermark gives the high watermark that the next checkpoint writes.
func (l *Log) SetHighWatermark(hw model.Offset) { l.hw.Store(int64(hw)) }

// HighWatermark is the last one set, or after Open the checkpointed one, within
// [log start, log end]. When its checkpoint was lost it is the log start.
func (l *Log) HighWatermark() model.Offset { return model.Offset(l.hw.Load()) }

// SetConfig changes the configuration from the next append on.
func (l *Log) SetConfig(cfg Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cfg = cfg.withDefaults()
	l.keys.SetWindow(l.cfg.DedupeWindowMs)
	l.caching.Store(cfg.WriteCaching)
	if cfg.WriteCaching && l.Failed() == nil {
		l.stable.Store(l.logEnd.Load())
	} else if !cfg.WriteCaching && l.logEnd.Load() > l.synced.Load() {
		// The stable end stays where it is, as it may never go back; the bytes
		// below it are synced now.
		l.store.sched.MarkDirty(l.member)
	}
}

// Size is the number of bytes in .log files.
func (l *Log) Size() int64 {
	var n int64
	for _, s := range *l.segs.Load() {
		n += s.size.Load()
	}
	return n
}

// Segments is the number of segments.
func (l *Log) Segments() int { return len(*l.segs.Load()) }

// Failed is the error that latched the log, or nil. A latched log serves reads
// below its stable end and is cleared only by a restart with recovery.
func (l *Log) Failed() error {
	if p := l.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// fail latches the log. The scheduler tells the owner.
func (l *Log) fail(err error) error {
	if l.failed.CompareAndSwap(nil, &err) {
		l.store.log.Error("log failed", "log", l.name, "err", err)
		l.store.sched.Enqueue(l.member)
	}
	return l.Failed()
}

func (l *Log) activeLocked() *segment {
	segs := *l.segs.Load()
	return segs[len(segs)-1]
}

// addSegmentLocked publishes a longer list of segments.
func (l *Log) addSegmentLocked(s *segment) {
	old := *l.segs.Load()
	segs := make([]*segment, len(old), len(old)+1)
	copy(segs, old)
	segs = append(segs, s)
	l.segs.Store(&segs)
}

// floorSegment is the index of the last segment whose base is ≤ off.
func floorSegment(segs []*segment, off model.Offset) int {
	return max(sort.Search(len(segs), func(i int) bool { return segs[i].base > off })-1, 0)
}

// errCutting says that a truncation is under way: the epochs no longer have what lies
// below the recovery point on disk.
var errCutting = errors.New("a truncation is under way")

func (l *Log) epochsBehind() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epochsNew
}

// flushEpochs writes the epoch file when it is behind.
func (l *Log) flushEpochs() error {
	l.mu.Lock()
	if l.cutting {
		l.mu.Unlock()
		return errCutting
	}
	if !l.epochsNew || l.closed {
		l.mu.Unlock()
		return nil
	}
	l.epochsNew = false
	b := l.epochs.Encode()
	l.mu.Unlock()
	err := fsx.WriteFile(l.store.fs, path.Join(l.dir, epochs.FileName), b)
	if err != nil {
		l.mu.Lock()
		l.epochsNew = true
		l.mu.Unlock()
	}
	return err
}

// closeFiles ends the log's service; the caller has drained its syncs.
func (l *Log) closeFiles() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.failed.CompareAndSwap(nil, l.store.closedErr)
	var err error
	for _, s := range *l.segs.Load() {
		err = firstErr(err, s.close())
	}
	l.keys.Release()
	return err
}
