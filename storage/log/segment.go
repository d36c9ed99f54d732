package log

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"sync/atomic"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/files"
	"tidewire/storage/index"
	"tidewire/storage/record"
)

// File name suffixes of a segment, as Kafka's.
const (
	logSuffix       = ".log"
	indexSuffix     = ".index"
	timeIndexSuffix = ".timeindex"
	txnIndexSuffix  = ".txnindex"
	snapshotSuffix  = ".snapshot" // of the producers below an offset
)

// segmentSuffixes are those of all files that go with a segment, the log last. The snapshot
// of its base is not the segment's own, but nobody needs it any more.
var segmentSuffixes = []string{snapshotSuffix, txnIndexSuffix, indexSuffix, timeIndexSuffix, logSuffix}

// logFile is what a segment needs of its .log file; *files.Handle is one.
type logFile interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
	Sync() error
	SyncData() error
	Ready() error
	Rename(name string) error
	Release() error
	Retire() error
	Close() error
	Pin() (fsx.File, error)
	Unpin()
}

// segment is one .log file with its indexes. Readers use size, f and the
// indexes; all else belongs to the log and its mutex.
type segment struct {
	base  model.Offset
	path  string // without suffix
	fs    *files.Cache
	f     logFile
	size  atomic.Int64 // whole batches that may be read
	off   *index.Index
	tim   *index.Index
	txn   *index.Aborted
	maxTs atomic.Int64 // largest timestamp; -1 none; only a hint while maxKnown is false
	known atomic.Bool  // maxTs has been loaded or built

	// appended is when the segment was last written to, wall clock in milliseconds; what
	// retention goes by where records have no usable timestamp.
	appended atomic.Int64
	dropped  atomic.Bool  // below the log start and out of the list; its files are about to go
	firstTs  atomic.Int64 // largest timestamp of the first batch; 0 not known; see Log.firstTimestamp
	warned   atomic.Bool  // that its timestamps lie in the future was logged

	cut atomic.Int64 // grows when bytes are cut off the end, before they are

	// Guarded by Log.mu.
	since    int          // bytes since the last index entry
	maxTsOff model.Offset // last offset of the batch that has maxTs
	rollTs   int64        // largest timestamp of the first batch; noTimestamp when empty
	created  int64        // wall clock, for rolling segments without timestamps
}

const noTimestamp = -1

// baseName is a segment's file name without suffix: its base offset in 20 digits.
func baseName(base model.Offset) string { return fmt.Sprintf("%020d", int64(base)) }

// parseBase reads a file name such as 00000000000000000042.log.
func parseBase(name, suffix string) (model.Offset, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	return model.Offset(n), err == nil
}

func newSegment(c *files.Cache, bufs *index.Buffers, dir string, base model.Offset, now int64) *segment {
	p := path.Join(dir, baseName(base))
	s := &segment{base: base, path: p, fs: c, rollTs: noTimestamp, created: now, maxTsOff: base}
	s.nameFiles(bufs, "")
	s.maxTs.Store(noTimestamp)
	s.appended.Store(now)
	return s
}

// nameFiles gives the segment its files, without touching them, whose names end in suffix.
func (s *segment) nameFiles(bufs *index.Buffers, suffix string) {
	s.f = s.fs.Handle(s.path + logSuffix + suffix)
	s.off = index.New(s.fs, s.path+indexSuffix+suffix, index.Offset, bufs)
	s.tim = index.New(s.fs, s.path+timeIndexSuffix+suffix, index.Time, bufs)
	s.txn = index.NewAborted(s.fs, s.path+txnIndexSuffix+suffix, s.base)
}

// create makes the segment's files, of which the log must not exist; indexes left over from
// a segment of this name go. The indexes are there from the first, so that a stop has no
// folder to sync for them.
func (s *segment) create() error {
	for _, suffix := range []string{indexSuffix, timeIndexSuffix, txnIndexSuffix} {
		if err := s.fs.Remove(s.path + suffix); !isMissing(err) {
			return err
		}
	}
	f, err := s.fs.OpenFile(s.path+logSuffix, fsx.ReadWrite|fsx.Create|fsx.Exclusive)
	if err != nil {
		return err
	}
	s.known.Store(true)
	s.off.Fresh()
	s.tim.Fresh()
	err = firstErr(f.Close(), s.off.Flush(), s.tim.Flush()) // a partition that gets no records needs no descriptor
	if err != nil {                                         // none may stay: the log goes on without them
		err = firstErr(s.removeFiles(""), err)
	}
	return err
}

// note enters one batch, written at pos, into the indexes: Kafka's rule of one
// entry once more than interval bytes have passed since the last.
func (s *segment) note(h *record.BatchHeader, pos int64, interval int) {
	if s.rollTs == noTimestamp {
		s.rollTs = h.MaxTimestamp
	}
	if h.MaxTimestamp > s.maxTs.Load() {
		s.maxTsOff = h.LastOffset()
		s.maxTs.Store(h.MaxTimestamp)
	}
	if s.since > interval {
		s.off.Append(index.Entry{Key: relative(h.LastOffset(), s.base), Val: pos})
		s.noteTime()
		s.since = 0
	}
	s.since += h.Size()
}

// noteTime appends the running maximum to the time index.
func (s *segment) noteTime() {
	if ts := s.maxTs.Load(); ts > noTimestamp {
		s.tim.Append(index.Entry{Key: ts, Val: relative(s.maxTsOff, s.base)})
	}
}

// sealIndexes completes the indexes of a segment that gets no more appends.
func (s *segment) sealIndexes() error {
	s.noteTime()
	if err := s.off.Flush(); err != nil {
		return err
	}
	if err := s.tim.Flush(); err != nil {
		return err
	}
	return s.txn.Flush()
}

// clearIndexes empties them for a rebuild.
func (s *segment) clearIndexes() error {
	s.since, s.maxTsOff, s.rollTs = 0, s.base, noTimestamp
	s.maxTs.Store(noTimestamp)
	return firstErr(s.off.Reset(), s.tim.Reset())
}

// full reports whether another batch might not fit the indexes.
func (s *segment) full(limit, pending int) bool {
	return (s.off.Len()+pending+1)*index.Offset.EntrySize() > limit ||
		(s.tim.Len()+pending+2)*index.Time.EntrySize() > limit
}

// sync makes the segment durable; a sealed one with its indexes, on which later
// starts rely without reading the log.
func (s *segment) sync(sealed bool) error {
	if err := s.f.SyncData(); err != nil {
		return err
	}
	if !sealed {
		return nil
	}
	return firstErr(s.off.Sync(), s.tim.Sync(), s.txn.Sync())
}

// release closes the files that have no unsynced bytes until they are needed again.
func (s *segment) release() error {
	return firstErr(s.f.Release(), s.off.Release(), s.tim.Release())
}

// retire has the files closed whenever nobody reads them: what they hold need not last.
func (s *segment) retire() error {
	return firstErr(s.f.Retire(), s.off.Retire(), s.tim.Retire())
}

// close ends the use of the files; what comes later gets fs.ErrClosed: opening them again
// could find those of a later log of this name.
func (s *segment) close() error {
	return firstErr(s.f.Close(), s.off.Close(), s.tim.Close())
}

// remove closes and deletes the segment's files.
func (s *segment) remove() error {
	err := s.close()
	for _, suffix := range segmentSuffixes {
		if rerr := s.fs.Remove(s.path + suffix); !isMissing(rerr) {
			err = firstErr(err, rerr)
		}
	}
	return err
}

// relative is the distance of an offset from its segment's base.
func relative(o, base model.Offset) int64 { return int64(o - base) }

func isMissing(err error) bool { return err == nil || isErr(err, fs.ErrNotExist) }
