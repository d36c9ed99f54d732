package files

import (
	"cmp"
	"errors"
	"io/fs"
	"sync"

	"tidewire/internal/fsx"
)

// Handle is one file, which is open while it is used and, as room allows, between. All
// methods are safe for concurrent use. Those of fsx.File pin the descriptor while they run.
// Errors are those of the file system, and fs.ErrClosed after Close.
type Handle struct {
	c      *Cache
	create bool

	open sync.Mutex // held while the file is opened or renamed; before Cache.mu
	path string     // guarded by open

	f       fsx.File // guarded by Cache.mu; nil while closed
	pins    int32    // guarded by Cache.mu: who uses f
	held    int32    // guarded by Cache.mu: of pins, those that Pin gave
	closed  bool     // guarded by Cache.mu: for good
	retired bool     // guarded by Cache.mu: closed when nobody uses it
	durable bool     // guarded by Cache.mu: a sync by this Handle covers what it has not written
	writes  uint64   // guarded by Cache.mu: counts beginnings and ends of writes
	clean   uint64   // guarded by Cache.mu: writes at the last sync
	err     error    // guarded by Cache.mu: of a sync that failed

	in         *list   // guarded by Cache.mu: where the file waits to be used or evicted
	prev, next *Handle // guarded by Cache.mu: in that list
}

// Handle makes one for a file, which is not touched. There must be one at most for a file
// that is written through it.
func (c *Cache) Handle(path string) *Handle { return &Handle{c: c, path: path} }

// CreatingHandle makes one that creates its file, when it is absent, to write to it.
func (c *Cache) CreatingHandle(path string) *Handle { return &Handle{c: c, path: path, create: true} }

// leaves tells that the file is closed as soon as nobody uses it; under Cache.mu.
func (h *Handle) leaves() bool { return h.closed || h.retired }

func (h *Handle) pinLocked() {
	if h.in != nil {
		h.in.remove(h)
	}
	h.pins++
}

// use says what an operation does.
type use uint8

const (
	reads   use = iota
	writes      // also truncates
	creates     // only makes sure that the file is there
	syncs
)

// pin gives the descriptor, which stays open until unpin.
func (h *Handle) pin(u use) (fsx.File, error) {
	c := h.c
	c.mu.Lock()
	f, err := h.startLocked(u)
	c.mu.Unlock()
	if f != nil || err != nil {
		return f, err
	}
	h.open.Lock()
	defer h.open.Unlock()
	c.mu.Lock()
	f, err = h.startLocked(u)
	c.mu.Unlock()
	if f != nil || err != nil { // another has opened it
		return f, err
	}
	flag := fsx.ReadWrite
	if h.create && (u == writes || u == creates) {
		flag |= fsx.Create
	}
	c.take()
	if f, err = c.openFile(h.path, flag); err != nil {
		c.giveBack()
		return nil, err
	}
	c.mu.Lock()
	h.f = f
	f, err = h.startLocked(u)
	if err == nil {
		c.mu.Unlock()
		return f, nil
	}
	f = c.detachLocked(h)
	c.mu.Unlock()
	err = cmp.Or(err, f.Close())
	c.giveBack()
	return nil, err
}

// startLocked begins an operation if the file is open; nil and nil when it is not.
func (h *Handle) startLocked(u use) (fsx.File, error) {
	if h.closed {
		return nil, &fs.PathError{Op: "use", Path: "", Err: fs.ErrClosed}
	}
	if (u == writes || u == syncs) && h.err != nil {
		return nil, h.err
	}
	if h.f == nil {
		return nil, nil
	}
	if u == writes {
		h.writes++
	}
	h.pinLocked()
	return h.f, nil
}

// unpin ends an operation. The error of closing a file that is not wanted any more means
// nothing: what must last was synced before.
func (h *Handle) unpin(u use) {
	c := h.c
	c.mu.Lock()
	if u == writes {
		h.writes++ // a sync that ran meanwhile may have missed it
	}
	var gone fsx.File
	if h.pins--; h.pins == 0 {
		if h.leaves() {
			gone = c.detachLocked(h)
		} else {
			c.restLocked(h)
		}
	}
	c.mu.Unlock()
	if gone != nil {
		_ = gone.Close()
		c.giveBack()
	}
}

// syncEndLocked notes what a sync did, before which the count of writes was given.
func (h *Handle) syncEndLocked(writes uint64, err error) {
	switch {
	case err != nil:
		h.err = cmp.Or(h.err, err)
		h.clean = h.writes // another sync would tell nothing
	case h.writes == writes:
		h.clean, h.durable = writes, true
	}
}

// ReadAt implements io.ReaderAt.
func (h *Handle) ReadAt(p []byte, off int64) (int, error) {
	f, err := h.pin(reads)
	if err != nil {
		return 0, err
	}
	defer h.unpin(reads)
	return f.ReadAt(p, off)
}

// WriteAt implements io.WriterAt.
func (h *Handle) WriteAt(p []byte, off int64) (int, error) {
	f, err := h.pin(writes)
	if err != nil {
		return 0, err
	}
	defer h.unpin(writes)
	return f.WriteAt(p, off)
}

// Truncate sets the length.
func (h *Handle) Truncate(size int64) error {
	f, err := h.pin(writes)
	if err != nil {
		return err
	}
	defer h.unpin(writes)
	return f.Truncate(size)
}

// Ready opens the file, creating it where the Handle does, so that what follows at once
// hardly needs to.
func (h *Handle) Ready() error {
	if h.isOpen() {
		return nil
	}
	_, err := h.pin(creates)
	if err != nil {
		return err
	}
	h.unpin(creates)
	return nil
}

func (h *Handle) isOpen() bool {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	return h.f != nil && !h.closed
}

// Size is the present length in bytes.
func (h *Handle) Size() (int64, error) {
	f, err := h.pin(reads)
	if err != nil {
		return 0, err
	}
	defer h.unpin(reads)
	return f.Size()
}

// Sync makes contents and metadata durable.
func (h *Handle) Sync() error { return h.sync(fsx.File.Sync) }

// SyncData makes contents and length durable. It does nothing when they are because of an
// earlier sync by this Handle. What another process, or a run before a kill, wrote counts
// as not durable until the first sync.
func (h *Handle) SyncData() error {
	c := h.c
	c.mu.Lock()
	done := h.durable && h.writes == h.clean && h.err == nil && !h.closed
	c.mu.Unlock()
	if done {
		return nil
	}
	return h.sync(fsx.File.SyncData)
}

func (h *Handle) sync(run func(fsx.File) error) error {
	f, err := h.pin(syncs)
	if err != nil {
		return err
	}
	defer h.unpin(syncs)
	c := h.c
	c.mu.Lock()
	before := h.writes
	c.mu.Unlock()
	err = run(f)
	c.mu.Lock()
	defer c.mu.Unlock()
	h.syncEndLocked(before, err)
	return err
}

// Pin gives the file itself, for sendfile and the like, which may be read from and stays
// open until Unpin: whatever happens to the Handle, its descriptor becomes no other file's.
// It may be held for long: at most half of the places go to files that are, and beyond them
// the error is ErrPinned, so that the operations of others always find a place.
func (h *Handle) Pin() (fsx.File, error) {
	f, err := h.pin(reads)
	if err != nil {
		return nil, err
	}
	if !h.hold() {
		h.unpin(reads)
		return nil, ErrPinned
	}
	return f, nil
}

// ErrPinned says that as many files as may be are held by Pin.
var ErrPinned = errors.New("too many files are in long use")

func (h *Handle) hold() bool {
	c := h.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.held == 0 {
		if c.pinned >= c.limit/2 {
			return false
		}
		c.pinned++
	}
	h.held++
	return true
}

// Unpin ends the use of what Pin gave.
func (h *Handle) Unpin() {
	c := h.c
	c.mu.Lock()
	if h.held--; h.held == 0 {
		c.pinned--
	}
	c.mu.Unlock()
	h.unpin(reads)
}

// Path is the present name of the file.
func (h *Handle) Path() string {
	h.open.Lock()
	defer h.open.Unlock()
	return h.path
}

// Exists tells whether the file is there, and its length.
func (h *Handle) Exists() (exists bool, size int64, err error) {
	h.open.Lock()
	defer h.open.Unlock()
	info, err := h.c.fs.Stat(h.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, 0, nil
	}
	return err == nil, info.Size, err
}

// Rename renames the file. Whoever uses it goes on.
func (h *Handle) Rename(name string) error {
	h.open.Lock()
	defer h.open.Unlock()
	if err := h.c.fs.Rename(h.path, name); err != nil {
		return err
	}
	h.path = name
	return nil
}

// Release closes the file until it is used again, unless it is in use or has unsynced bytes.
func (h *Handle) Release() error {
	return h.closeIf(func() bool { return h.writes == h.clean })
}

// Retire has the file closed whenever nobody uses it, synced or not: what it holds need
// not last. It may still be read.
func (h *Handle) Retire() error {
	return h.closeIf(func() bool { h.retired = true; return true })
}

// Close ends the use of the file, synced or not: what comes later gets fs.ErrClosed. Who is
// at it ends in peace, and the last one closes it.
func (h *Handle) Close() error {
	return h.closeIf(func() bool { h.closed = true; return true })
}

// closeIf closes the file if nobody uses it and the condition, looked at under Cache.mu, says
// so.
func (h *Handle) closeIf(condition func() bool) error {
	c := h.c
	c.mu.Lock()
	if !condition() || h.f == nil || h.pins > 0 {
		c.mu.Unlock()
		return nil
	}
	f := c.detachLocked(h)
	c.mu.Unlock()
	err := f.Close()
	c.giveBack()
	return err
}
