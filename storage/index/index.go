package index

import (
	"cmp"
	"encoding/binary"
	"io"
	"sort"
	"sync"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/files"
)

// Kind is one of Kafka's two kinds of index. Their entries are big endian:
//
//	.index      int32 relative offset of a batch's last record, int32 position of the batch
//	.timeindex  int64 largest timestamp so far, int32 relative offset of the batch that has it
type Kind int

// The kinds; the value is the size of an entry in bytes.
const (
	Offset Kind = 8
	Time   Kind = 12
)

// EntrySize is the size of an entry in bytes.
func (k Kind) EntrySize() int { return int(k) }

// tailBytes is how much of an index is kept in memory before it is written:
// a write of an index for every 2 MiB of data instead of every 4 KiB.
const tailBytes = 4096

// ErrBadEntry says that an entry does not fit those before it, or the log.
var ErrBadEntry error = model.Errorf(model.StorageError, "an index entry does not fit the log")

// Entry is one decoded entry of either index, which is sorted by Key; Val grows with it.
type Entry struct {
	Key int64 // relative offset, or timestamp
	Val int64 // position, or relative offset
}

// Buffers are what indexes share to read their files with.
type Buffers struct{ pool sync.Pool } // of *[tailBytes]byte

// NewBuffers makes an empty set; it fills as indexes are read.
func NewBuffers() *Buffers {
	return &Buffers{sync.Pool{New: func() any { return new([tailBytes]byte) }}}
}

// Index is one index file: sorted entries, the newest of which may be in memory
// only. It is derived data: whoever uses an entry compares it with the batch it
// points at. All methods are safe for concurrent use. Errors are those of the file system,
// and fs.ErrClosed.
type Index struct {
	f    *files.Handle
	kind Kind
	bufs *Buffers

	mu       sync.Mutex
	flushed  int    // guarded by mu: entries in the file
	tail     []byte // guarded by mu: entries not yet in the file
	last     Entry  // guarded by mu: the last entry, when there is one
	exists   bool   // guarded by mu: there is a file
	unsynced bool   // guarded by mu: the file has writes since the last sync
	checked  bool   // guarded by mu: order of the entries in the file is known to be right
}

// New makes an index of a file, which is not touched; what it holds is known after Open.
func New(c *files.Cache, name string, kind Kind, bufs *Buffers) *Index {
	return &Index{f: c.CreatingHandle(name), kind: kind, bufs: bufs}
}

// Path is the name of the file.
func (x *Index) Path() string { return x.f.Path() }

// Kind is the kind of the entries.
func (x *Index) Kind() Kind { return x.kind }

// Fresh says that there is no file from an earlier run, so that none is to be verified.
func (x *Index) Fresh() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.checked = true
}

func (x *Index) entriesLocked() int { return x.flushed + len(x.tail)/x.kind.EntrySize() }

// Len is the number of entries.
func (x *Index) Len() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.entriesLocked()
}

func (x *Index) decode(b []byte) Entry {
	if x.kind == Offset {
		return Entry{int64(int32(binary.BigEndian.Uint32(b))), int64(int32(binary.BigEndian.Uint32(b[4:])))}
	}
	return Entry{int64(binary.BigEndian.Uint64(b)), int64(int32(binary.BigEndian.Uint32(b[8:])))}
}

// Append adds an entry unless its key is not above the last one's.
func (x *Index) Append(e Entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n := x.entriesLocked(); n > 0 && e.Key <= x.last.Key {
		return
	}
	if x.kind == Offset {
		x.tail = binary.BigEndian.AppendUint32(x.tail, uint32(e.Key))
	} else {
		x.tail = binary.BigEndian.AppendUint64(x.tail, uint64(e.Key))
	}
	x.tail = binary.BigEndian.AppendUint32(x.tail, uint32(e.Val))
	x.last = e
}

// Open attaches to a file of the given size, which must be a whole number of
// entries, and reads the last of them.
func (x *Index) Open(size int64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.flushed, x.exists = int(size)/x.kind.EntrySize(), true
	x.checked = x.flushed == 0
	if x.flushed == 0 {
		return nil
	}
	var err error
	x.last, err = x.readEntry(x.flushed - 1)
	return cmp.Or(err, x.f.Release()) // most are never looked up
}

func (x *Index) readEntry(i int) (Entry, error) {
	buf := x.bufs.pool.Get().(*[tailBytes]byte)
	defer x.bufs.pool.Put(buf)
	b := buf[:x.kind.EntrySize()]
	if err := fsx.ReadFull(x.f, b, int64(i*x.kind.EntrySize())); err != nil {
		return Entry{}, err
	}
	return x.decode(b), nil
}

// FlushIfFull writes the tail once it has grown to its size.
func (x *Index) FlushIfFull() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.tail) < tailBytes {
		return nil
	}
	return x.flushLocked()
}

// Flush writes the tail, creating the file if there is none.
func (x *Index) Flush() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.flushLocked()
}

func (x *Index) flushLocked() error {
	if len(x.tail) == 0 {
		if x.exists {
			return nil
		}
		if err := x.f.Ready(); err != nil {
			return err
		}
		x.exists = true
		return x.f.Release() // the next entries fill 4 KiB first
	}
	if _, err := x.f.WriteAt(x.tail, int64(x.flushed*x.kind.EntrySize())); err != nil {
		_ = x.f.Truncate(int64(x.flushed * x.kind.EntrySize())) // a part of an entry would count as damage
		x.unsynced = true                                       // or a power cut could bring the part back
		return err
	}
	x.flushed += len(x.tail) / x.kind.EntrySize()
	x.tail = x.tail[:0]
	x.exists, x.unsynced = true, true
	return nil
}

// Sync makes all entries durable.
func (x *Index) Sync() error {
	x.mu.Lock()
	if err := x.flushLocked(); err != nil {
		x.mu.Unlock()
		return err
	}
	dirty := x.unsynced
	x.unsynced = false
	x.mu.Unlock()
	if !dirty {
		return nil
	}
	err := x.f.Sync()
	if err != nil {
		x.mu.Lock()
		x.unsynced = true // it may not have begun
		x.mu.Unlock()
	}
	return err
}

// Truncate keeps the first n entries; last is the one at n-1.
func (x *Index) Truncate(n int, last Entry) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.truncateLocked(n, last)
}

// Cut drops the entries from the first on that keep refuses; it accepts a prefix.
func (x *Index) Cut(keep func(Entry) bool) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	var err error
	at := func(i int) Entry {
		if i >= x.flushed {
			return x.decode(x.tail[(i-x.flushed)*x.kind.EntrySize():])
		}
		e, rerr := x.readEntry(i)
		err = cmp.Or(err, rerr)
		return e
	}
	total := x.entriesLocked()
	n := sort.Search(total, func(i int) bool { return err == nil && !keep(at(i)) })
	if n == total && err == nil {
		return nil
	}
	var last Entry
	if n > 0 {
		last = at(n - 1)
	}
	if err != nil {
		return err
	}
	return x.truncateLocked(n, last)
}

func (x *Index) truncateLocked(n int, last Entry) error {
	if n >= x.flushed {
		x.tail = x.tail[:(n-x.flushed)*x.kind.EntrySize()]
		x.last = last
		return nil
	}
	if err := x.f.Truncate(int64(n * x.kind.EntrySize())); err != nil {
		return err
	}
	x.flushed, x.tail, x.last, x.exists, x.unsynced = n, x.tail[:0], last, true, true
	return nil
}

// Reset empties the index, whatever its file holds. One that is empty is not touched, nor
// one made that is missing: after an unclean stop that would be two files to sync for each
// partition.
func (x *Index) Reset() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	exists, size, err := x.f.Exists()
	if err != nil {
		return err
	}
	if size > 0 {
		if err := x.f.Truncate(0); err != nil {
			return err
		}
	}
	x.unsynced = exists // an empty file may have been emptied by a run before, which did not sync it
	x.flushed, x.tail, x.last, x.exists = 0, x.tail[:0], Entry{}, exists
	x.checked = true
	return nil
}

// Verify checks once that the entries of a file from an earlier run are in order:
// both fields grow strictly.
func (x *Index) Verify() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.verifyLocked()
}

func (x *Index) verifyLocked() error {
	if x.checked {
		return nil
	}
	buf := x.bufs.pool.Get().(*[tailBytes]byte)
	defer x.bufs.pool.Put(buf)
	prev := Entry{-1, -1}
	for i := 0; i < x.flushed; {
		n := min(tailBytes/x.kind.EntrySize(), x.flushed-i)
		if err := fsx.ReadFull(x.f, buf[:n*x.kind.EntrySize()], int64(i*x.kind.EntrySize())); err != nil {
			return err
		}
		for b := buf[:n*x.kind.EntrySize()]; len(b) > 0; b = b[x.kind.EntrySize():] {
			e := x.decode(b)
			if e.Key <= prev.Key || e.Val <= prev.Val {
				return ErrBadEntry
			}
			prev = e
		}
		i += n
	}
	x.checked = true
	return nil
}

// State gives the number of entries and the last of them.
func (x *Index) State() (n int, last Entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.entriesLocked(), x.last
}

// Floor finds the entry with the largest key ≤ key.
func (x *Index) Floor(key int64) (Entry, bool, error) {
	x.mu.Lock()
	n := len(x.tail) / x.kind.EntrySize()
	if n > 0 && x.decode(x.tail).Key <= key {
		e := x.floorIn(x.tail, n, key)
		x.mu.Unlock()
		return e, true, nil
	}
	flushed := x.flushed
	if flushed == 0 {
		x.mu.Unlock()
		return Entry{}, false, nil
	}
	if err := x.verifyLocked(); err != nil {
		x.mu.Unlock()
		return Entry{}, false, err
	}
	x.mu.Unlock()
	return x.floorInFile(x.f, flushed, key)
}

// floorIn searches n entries in b, of which the first has a key ≤ key.
func (x *Index) floorIn(b []byte, n int, key int64) Entry {
	lo, hi := 0, n // the entry sought is in [lo, hi)
	for hi-lo > 1 {
		mid := (lo + hi) / 2
		if x.decode(b[mid*x.kind.EntrySize():]).Key <= key {
			lo = mid
		} else {
			hi = mid
		}
	}
	return x.decode(b[lo*x.kind.EntrySize():])
}

// floorInFile narrows the search to one block by reading single entries, then
// reads the block.
func (x *Index) floorInFile(f io.ReaderAt, n int, key int64) (Entry, bool, error) {
	buf := x.bufs.pool.Get().(*[tailBytes]byte)
	defer x.bufs.pool.Put(buf)
	lo, hi := 0, n
	for perBlock := tailBytes / x.kind.EntrySize(); hi-lo > perBlock; {
		mid := (lo + hi) / 2
		b := buf[:x.kind.EntrySize()]
		if err := fsx.ReadFull(f, b, int64(mid*x.kind.EntrySize())); err != nil {
			return Entry{}, false, err
		}
		if x.decode(b).Key <= key {
			lo = mid
		} else {
			hi = mid
		}
	}
	b := buf[:(hi-lo)*x.kind.EntrySize()]
	if err := fsx.ReadFull(f, b, int64(lo*x.kind.EntrySize())); err != nil {
		return Entry{}, false, err
	}
	if x.decode(b).Key > key {
		return Entry{}, false, nil
	}
	return x.floorIn(b, hi-lo, key), true, nil
}

// Close ends the use of the file; what comes later gets fs.ErrClosed.
func (x *Index) Close() error { return x.f.Close() }

// MoveTo renames the file, which is there.
func (x *Index) MoveTo(name string) error { return x.f.Rename(name) }

// Retire has the file closed whenever nobody reads it; what it holds need not last.
func (x *Index) Retire() error { return x.f.Retire() }

// Release closes the file until it is needed again, unless it has unsynced bytes.
func (x *Index) Release() error { return x.f.Release() }
