package index

import (
	"cmp"
	"errors"
	"hash/crc32"
	"io/fs"
	"sync"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/producer"
)

// maxAborted is how large an index of aborted transactions may be, in bytes.
const maxAborted = 1 << 30

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Aborted is a segment's .txnindex: the transactions whose abort marker is in the segment.
// There is no file without an entry. The newest entries are in memory until the segment is
// sealed and synced. Few are ever read, so the file is opened for each use. All methods
// are safe for concurrent use. Errors are those of the file system and producer.ErrAborted.
type Aborted struct {
	fs   fsx.FS
	path string
	base model.Offset

	mu      sync.Mutex
	flushed int    // guarded by mu: bytes in the file
	tail    []byte // guarded by mu: entries not yet in the file
	crc     uint32 // guarded by mu: CRC-32C of all entries

	unsynced bool // guarded by mu: the file has writes since the last sync
}

// NewAborted makes an index of a file, which is not touched; what it holds is known after
// Open. base is its segment's.
func NewAborted(fsys fsx.FS, name string, base model.Offset) *Aborted {
	return &Aborted{fs: fsys, path: name, base: base}
}

// Path is the name of the file.
func (x *Aborted) Path() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.path
}

// Summary tells the number of entries and their checksum.
func (x *Aborted) Summary() producer.TxnSummary {
	x.mu.Lock()
	defer x.mu.Unlock()
	return producer.TxnSummary{Base: x.base, Count: int32((x.flushed + len(x.tail)) / producer.AbortedEntrySize), CRC: x.crc}
}

// Add appends an entry.
func (x *Aborted) Add(a producer.AbortedTransaction) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := len(x.tail)
	x.tail = a.Append(x.tail)
	x.crc = crc32.Update(x.crc, castagnoli, x.tail[n:])
}

// Open attaches to a file of the given size and checks its entries.
func (x *Aborted) Open(size int64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.flushed, x.tail, x.crc = 0, nil, 0
	if size == 0 {
		return nil
	}
	b, err := fsx.ReadFile(x.fs, x.path, maxAborted)
	if err != nil {
		return err
	}
	if _, err := producer.DecodeAborted(b, x.base); err != nil {
		return err
	}
	x.flushed, x.crc = len(b), crc32.Checksum(b, castagnoli)
	return nil
}

// Entries reads all of them.
func (x *Aborted) Entries() ([]producer.AbortedTransaction, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.entriesLocked()
}

func (x *Aborted) entriesLocked() ([]producer.AbortedTransaction, error) {
	if x.flushed+len(x.tail) == 0 {
		return nil, nil
	}
	b := make([]byte, x.flushed, x.flushed+len(x.tail))
	if x.flushed > 0 {
		f, err := x.fs.OpenFile(x.path, fsx.ReadOnly)
		if err != nil {
			return nil, err
		}
		if err := cmp.Or(fsx.ReadFull(f, b, 0), f.Close()); err != nil {
			return nil, err
		}
	}
	b = append(b, x.tail...)
	if crc32.Checksum(b, castagnoli) != x.crc {
		return nil, producer.ErrAborted
	}
	return producer.DecodeAborted(b, x.base)
}

// Flush writes the newest entries, so that a full disk is met before the segment is sealed.
func (x *Aborted) Flush() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.tail) == 0 {
		return nil
	}
	f, err := x.fs.OpenFile(x.path, fsx.ReadWrite|fsx.Create)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(x.tail, int64(x.flushed)); err != nil {
		_ = f.Truncate(int64(x.flushed)) // a part of an entry would count as damage
		x.unsynced = true                // or a power cut could bring the part back
	}
	if err = cmp.Or(err, f.Close()); err != nil {
		return err
	}
	x.flushed, x.tail, x.unsynced = x.flushed+len(x.tail), nil, true
	return nil
}

// Sync makes all entries durable; the folder's entry is the caller's business.
func (x *Aborted) Sync() error {
	if err := x.Flush(); err != nil {
		return err
	}
	x.mu.Lock()
	name, dirty := x.path, x.unsynced
	x.unsynced = false
	x.mu.Unlock()
	if !dirty {
		return nil
	}
	f, err := x.fs.OpenFile(name, fsx.ReadWrite)
	if err != nil { // nothing was done to the file: the next sync is to try again
		x.mu.Lock()
		x.unsynced = true
		x.mu.Unlock()
		return err
	}
	return cmp.Or(f.Sync(), f.Close())
}

// Ensure makes the file if there is none.
func (x *Aborted) Ensure() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	f, err := x.fs.OpenFile(x.path, fsx.ReadWrite|fsx.Create)
	if err != nil {
		return err
	}
	return f.Close()
}

// MoveTo renames the file, which is there.
func (x *Aborted) MoveTo(name string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.fs.Rename(x.path, name); err != nil {
		return err
	}
	x.path = name
	return nil
}

// Replace makes the index hold these entries and nothing else; without any there is no
// file.
func (x *Aborted) Replace(entries []producer.AbortedTransaction) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	var b []byte
	for _, a := range entries {
		b = a.Append(b)
	}
	if err := x.fs.Remove(x.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	x.flushed, x.tail, x.crc, x.unsynced = 0, b, crc32.Checksum(b, castagnoli), false
	return nil
}

// TruncateTo drops the transactions that end at or above an offset.
func (x *Aborted) TruncateTo(off model.Offset) error {
	all, err := x.Entries()
	if err != nil {
		return err
	}
	n := len(all)
	for n > 0 && all[n-1].LastOffset >= off {
		n--
	}
	if n == len(all) {
		return nil
	}
	return x.Replace(all[:n])
}

// CutTail takes entries back that an append added; s is the summary from before it.
func (x *Aborted) CutTail(s producer.TxnSummary) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.crc = s.CRC
	n := int(s.Count) * producer.AbortedEntrySize
	if n >= x.flushed {
		x.tail = x.tail[:n-x.flushed]
		return nil
	}
	x.tail = nil
	f, err := x.fs.OpenFile(x.path, fsx.ReadWrite)
	if err != nil {
		return err
	}
	x.flushed, x.unsynced = n, true
	return cmp.Or(f.Truncate(int64(n)), f.Close())
}
