package log

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"sort"
	"sync"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
)

// Kafka's index entries, big endian.
//
//	.index      int32 relative offset of a batch's last record, int32 position of the batch
//	.timeindex  int64 largest timestamp so far, int32 relative offset of the batch that has it
const (
	offsetEntrySize = 8
	timeEntrySize   = 12

	// tailBytes is how much of an index is kept in memory before it is written:
	// a write of an index for every 2 MiB of data instead of every 4 KiB.
	tailBytes = 4096
)

// entry is one decoded entry of either index: key is what it is sorted by.
type entry struct {
	key int64 // relative offset, or timestamp
	val int64 // position, or relative offset
}

// index is one index file: sorted entries, the newest of which may be in memory
// only. It is derived data: whoever uses an entry compares it with the batch it
// points at.
type index struct {
	fs      fsx.FS
	path    string
	entrySz int
	bufs    *sync.Pool // of *[tailBytes]byte

	mu       sync.Mutex
	f        fsx.File // guarded by mu; nil until needed
	flushed  int      // guarded by mu: entries in the file
	tail     []byte   // guarded by mu: entries not yet in the file
	last     entry    // guarded by mu: the last entry, when there is one
	unsynced bool     // guarded by mu: the file has writes since the last sync
	checked  bool     // guarded by mu: order of the entries in the file is known to be right
	closed   bool     // guarded by mu: the file must not be opened again
}

func (x *index) entriesLocked() int { return x.flushed + len(x.tail)/x.entrySz }

func (x *index) entries() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.entriesLocked()
}

func (x *index) decode(b []byte) entry {
	if x.entrySz == offsetEntrySize {
		return entry{int64(int32(binary.BigEndian.Uint32(b))), int64(int32(binary.BigEndian.Uint32(b[4:])))}
	}
	return entry{int64(binary.BigEndian.Uint64(b)), int64(int32(binary.BigEndian.Uint32(b[8:])))}
}

// append adds an entry unless its key is not above the last one's.
func (x *index) append(e entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n := x.entriesLocked(); n > 0 && e.key <= x.last.key {
		return
	}
	if x.entrySz == offsetEntrySize {
		x.tail = binary.BigEndian.AppendUint32(x.tail, uint32(e.key))
	} else {
		x.tail = binary.BigEndian.AppendUint64(x.tail, uint64(e.key))
	}
	x.tail = binary.BigEndian.AppendUint32(x.tail, uint32(e.val))
	x.last = e
}

// open attaches to a file of the given size, which must be a whole number of
// entries, and reads the last of them.
func (x *index) open(size int64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.flushed = int(size) / x.entrySz
	x.checked = x.flushed == 0
	if x.flushed == 0 {
		return nil
	}
	f, err := x.fs.OpenFile(x.path, fsx.ReadOnly) // not kept: most are never looked up
	if err != nil {
		return err
	}
	x.last, err = x.readEntry(f, x.flushed-1)
	return firstErr(err, f.Close())
}

func (x *index) readEntry(f fsx.File, i int) (entry, error) {
	buf := x.bufs.Get().(*[tailBytes]byte)
	defer x.bufs.Put(buf)
	b := buf[:x.entrySz]
	if err := readFull(f, b, int64(i*x.entrySz)); err != nil {
		return entry{}, err
	}
	return x.decode(b), nil
}

func readFull(f io.ReaderAt, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (x *index) fileLocked(create bool) (fsx.File, error) {
	if x.f != nil {
		return x.f, nil
	}
	if x.closed {
		return nil, fs.ErrClosed
	}
	flag := fsx.ReadWrite
	if create {
		flag |= fsx.Create
	}
	f, err := x.fs.OpenFile(x.path, flag)
	if err == nil {
		x.f = f
	}
	return f, err
}

// flushIfFull writes the tail once it has grown to its size.
func (x *index) flushIfFull() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.tail) < tailBytes {
		return nil
	}
	return x.flushLocked()
}

// flush writes the tail, creating the file if there is none.
func (x *index) flush() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.flushLocked()
}

func (x *index) flushLocked() error {
	f, err := x.fileLocked(true)
	if err != nil {
		return err
	}
	if len(x.tail) == 0 {
		return nil
	}
	if _, err := f.WriteAt(x.tail, int64(x.flushed*x.entrySz)); err != nil {
		return err
	}
	x.flushed += len(x.tail) / x.entrySz
	x.tail = x.tail[:0]
	x.unsynced = true
	return nil
}

// sync makes all entries durable.
func (x *index) sync() error {
	x.mu.Lock()
	if err := x.flushLocked(); err != nil {
		x.mu.Unlock()
		return err
	}
	f, dirty := x.f, x.unsynced
	x.unsynced = false
	x.mu.Unlock()
	if !dirty {
		return nil
	}
	return f.Sync()
}

// truncate keeps the first n entries; last is the one at n-1.
func (x *index) truncate(n int, last entry) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.truncateLocked(n, last)
}

// cut drops the entries from the first on that keep refuses; it accepts a prefix.
func (x *index) cut(keep func(entry) bool) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	var err error
	at := func(i int) (e entry) {
		if i >= x.flushed {
			return x.decode(x.tail[(i-x.flushed)*x.entrySz:])
		}
		f, ferr := x.fileLocked(false)
		if ferr == nil {
			e, ferr = x.readEntry(f, i)
		}
		err = firstErr(err, ferr)
		return e
	}
	total := x.entriesLocked()
	n := sort.Search(total, func(i int) bool { return err == nil && !keep(at(i)) })
	if n == total && err == nil {
		return nil
	}
	var last entry
	if n > 0 {
		last = at(n - 1)
	}
	if err != nil {
		return err
	}
	return x.truncateLocked(n, last)
}

func (x *index) truncateLocked(n int, last entry) error {
	if n >= x.flushed {
		x.tail = x.tail[:(n-x.flushed)*x.entrySz]
		x.last = last
		return nil
	}
	f, err := x.fileLocked(true)
	if err != nil {
		return err
	}
	if err := f.Truncate(int64(n * x.entrySz)); err != nil {
		return err
	}
	x.flushed, x.tail, x.last, x.unsynced = n, x.tail[:0], last, true
	return nil
}

// reset empties the index, whatever its file holds.
func (x *index) reset() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	f, err := x.fileLocked(true)
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	x.flushed, x.tail, x.last, x.unsynced = 0, x.tail[:0], entry{}, true
	x.checked = true
	return nil
}

// verify checks once that the entries of a file from an earlier run are in order:
// both fields grow strictly.
func (x *index) verify() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.verifyLocked()
}

func (x *index) verifyLocked() error {
	if x.checked {
		return nil
	}
	f, err := x.fileLocked(false)
	if err != nil {
		return err
	}
	buf := x.bufs.Get().(*[tailBytes]byte)
	defer x.bufs.Put(buf)
	prev := entry{-1, -1}
	for i := 0; i < x.flushed; {
		n := min(tailBytes/x.entrySz, x.flushed-i)
		if err := readFull(f, buf[:n*x.entrySz], int64(i*x.entrySz)); err != nil {
			return err
		}
		for b := buf[:n*x.entrySz]; len(b) > 0; b = b[x.entrySz:] {
			e := x.decode(b)
			if e.key <= prev.key || e.val <= prev.val {
				return errBadEntry
			}
			prev = e
		}
		i += n
	}
	x.checked = true
	return nil
}

// state gives the number of entries and the last of them.
func (x *index) state() (n int, last entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.entriesLocked(), x.last
}

// floor finds the entry with the largest key ≤ key.
func (x *index) floor(key int64) (entry, bool, error) {
	x.mu.Lock()
	n := len(x.tail) / x.entrySz
	if n > 0 && x.decode(x.tail).key <= key {
		e := x.floorIn(x.tail, n, key)
		x.mu.Unlock()
		return e, true, nil
	}
	flushed := x.flushed
	if flushed == 0 {
		x.mu.Unlock()
		return entry{}, false, nil
	}
	if err := x.verifyLocked(); err != nil {
		x.mu.Unlock()
		return entry{}, false, err
	}
	f, err := x.fileLocked(false)
	x.mu.Unlock()
	if err != nil {
		return entry{}, false, err
	}
	return x.floorInFile(f, flushed, key)
}

// floorIn searches n entries in b, of which the first has a key ≤ key.
func (x *index) floorIn(b []byte, n int, key int64) entry {
	lo, hi := 0, n // the entry sought is in [lo, hi)
	for hi-lo > 1 {
		mid := (lo + hi) / 2
		if x.decode(b[mid*x.entrySz:]).key <= key {
			lo = mid
		} else {
			hi = mid
		}
	}
	return x.decode(b[lo*x.entrySz:])
}

// floorInFile narrows the search to one block by reading single entries, then
// reads the block.
func (x *index) floorInFile(f fsx.File, n int, key int64) (entry, bool, error) {
	buf := x.bufs.Get().(*[tailBytes]byte)
	defer x.bufs.Put(buf)
	lo, hi := 0, n
	for perBlock := tailBytes / x.entrySz; hi-lo > perBlock; {
		mid := (lo + hi) / 2
		b := buf[:x.entrySz]
		if err := readFull(f, b, int64(mid*x.entrySz)); err != nil {
			return entry{}, false, err
		}
		if x.decode(b).key <= key {
			lo = mid
		} else {
			hi = mid
		}
	}
	b := buf[:(hi-lo)*x.entrySz]
	if err := readFull(f, b, int64(lo*x.entrySz)); err != nil {
		return entry{}, false, err
	}
	if x.decode(b).key > key {
		return entry{}, false, nil
	}
	return x.floorIn(b, hi-lo, key), true, nil
}

func (x *index) close() error {
	x.mu.Lock()
	x.closed = true
	x.mu.Unlock()
	return x.release()
}

// moveTo renames the file, which is there.
func (x *index) moveTo(name string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.fs.Rename(x.path, name); err != nil {
		return err
	}
	x.path = name
	return nil
}

// hold opens the file, whose name may soon be another's.
func (x *index) hold() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, err := x.fileLocked(true)
	return err
}

// release closes the file until it is needed again.
func (x *index) release() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.f == nil {
		return nil
	}
	err := x.f.Close()
	x.f = nil
	return err
}

// relative is the distance of an offset from its segment's base.
func relative(o, base model.Offset) int64 { return int64(o - base) }
