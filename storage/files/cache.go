package files

import (
	"sync"

	"tidewire/internal/fsx"
)

// MinLimit is the least number of open files that a Cache works with.
const MinLimit = 16

// Cache is a file system whose open files are capped. All methods are safe for concurrent
// use. Errors are those of the file system beneath.
type Cache struct {
	fs    fsx.FS
	limit int

	mu      sync.Mutex
	idle    sync.Cond // a place was given back, or a file is not in use any more
	open    int       // guarded by mu: places taken
	pinned  int       // guarded by mu: files that Pin holds
	waiting int       // guarded by mu: callers that wait for one
	clean   list      // guarded by mu: open files that nobody uses and that have no unsynced bytes
	dirty   list      // guarded by mu: the others that nobody uses
	stats   Stats     // guarded by mu, but for Open and Limit
}

// Stats counts what a Cache did.
type Stats struct {
	Open, Limit int
	Evictions   int64 // files closed to make room, or for want of descriptors
	Syncs       int64 // of them, those that had to be synced first
}

// New caps the open files of a file system at limit, or at MinLimit where that is higher.
func New(fsys fsx.FS, limit int) *Cache {
	c := &Cache{fs: fsys, limit: max(limit, MinLimit)}
	c.idle.L = &c.mu
	return c
}

// Stats tells how many files are open, and what was done so far.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Open, s.Limit = c.open, c.limit
	return s
}

// take gets a place, closing a file that nobody uses if it must.
func (c *Cache) take() {
	c.mu.Lock()
	for c.open >= c.limit {
		if f := c.victimLocked(); f != nil {
			c.mu.Unlock()
			_ = f.Close() // it has nothing that is not synced
			return        // with its place
		}
	}
	c.open++
	c.mu.Unlock()
}

// victimLocked takes the descriptor of a file that nobody uses away, whose place is then the
// caller's. Where none is to be had at once it waits for a change and returns nil.
func (c *Cache) victimLocked() fsx.File {
	if h := c.clean.front(); h != nil {
		return c.evictLocked(h)
	}
	if h := c.dirty.front(); h != nil {
		return c.syncedVictimLocked(h)
	}
	c.waiting++
	c.idle.Wait()
	c.waiting--
	return nil
}

func (c *Cache) evictLocked(h *Handle) fsx.File {
	c.stats.Evictions++
	return c.detachLocked(h)
}

// detachLocked takes the descriptor of a file that nobody uses out of it.
func (c *Cache) detachLocked(h *Handle) fsx.File {
	if h.in != nil {
		h.in.remove(h)
	}
	f := h.f
	h.f = nil
	return f
}

// syncedVictimLocked syncs a file and evicts it, unless somebody has come to use it
// meanwhile. The lock is given up for the sync.
func (c *Cache) syncedVictimLocked(h *Handle) fsx.File {
	h.pinLocked()
	f, writes := h.f, h.writes
	c.mu.Unlock()
	err := f.SyncData()
	c.mu.Lock()
	c.stats.Syncs++
	h.syncEndLocked(writes, err)
	if h.pins--; h.pins > 0 {
		return nil
	}
	if h.writes == h.clean || h.leaves() {
		return c.evictLocked(h)
	}
	c.restLocked(h)
	return nil
}

// restLocked puts a file that nobody uses where it is found when room is needed.
func (c *Cache) restLocked(h *Handle) {
	if h.writes == h.clean {
		c.clean.push(h)
	} else {
		c.dirty.push(h)
	}
	c.wakeLocked()
}

// giveBack gives a place back.
func (c *Cache) giveBack() {
	c.mu.Lock()
	c.giveBackLocked()
	c.mu.Unlock()
}

func (c *Cache) giveBackLocked() {
	c.open--
	c.wakeLocked()
}

func (c *Cache) wakeLocked() {
	if c.waiting > 0 {
		c.idle.Broadcast()
	}
}

// relieve closes a file that nobody uses, for want of descriptors, and reports whether
// there was one.
func (c *Cache) relieve() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.clean.front() != nil || c.dirty.front() != nil {
		f := c.victimLocked()
		if f == nil {
			continue
		}
		c.mu.Unlock()
		_ = f.Close()
		c.mu.Lock()
		c.giveBackLocked()
		return true
	}
	return false
}

// maxReliefs bounds how often one call is repeated for want of descriptors: others may take
// what it sets free.
const maxReliefs = 64

// within runs fn, which opens a file, in a place that was taken, and repeats it as long as
// the process lacks a descriptor and files can be closed.
func (c *Cache) within(fn func() error) error {
	err := fn()
	for range maxReliefs {
		if !fsx.IsNoDescriptor(err) || !c.relieve() {
			break
		}
		err = fn()
	}
	return err
}

// OpenFile implements fsx.FS. The file has a place until it is closed; it must not be kept.
func (c *Cache) OpenFile(name string, flag int) (fsx.File, error) {
	c.take()
	f, err := c.openFile(name, flag)
	if err != nil {
		c.giveBack()
		return nil, err
	}
	return &placed{File: f, c: c}, nil
}

func (c *Cache) openFile(name string, flag int) (f fsx.File, err error) {
	err = c.within(func() (err error) {
		f, err = c.fs.OpenFile(name, flag)
		return err
	})
	return f, err
}

// placed is an open file with its place.
type placed struct {
	fsx.File
	c    *Cache
	once sync.Once
}

func (f *placed) Close() error {
	err := f.File.Close()
	f.once.Do(f.c.giveBack)
	return err
}

// ReadDir implements fsx.FS.
func (c *Cache) ReadDir(name string) (out []fsx.Info, err error) {
	c.take()
	defer c.giveBack()
	err = c.within(func() (err error) {
		out, err = c.fs.ReadDir(name)
		return err
	})
	return out, err
}

// SyncDir implements fsx.FS. It is repeated for want of descriptors only, with which no sync
// has begun.
func (c *Cache) SyncDir(name string) error {
	c.take()
	defer c.giveBack()
	return c.within(func() error { return c.fs.SyncDir(name) })
}

// MkdirAll implements fsx.FS.
func (c *Cache) MkdirAll(name string) error { return c.fs.MkdirAll(name) }

// Rename implements fsx.FS. A file with a Handle is renamed by that.
func (c *Cache) Rename(oldName, newName string) error { return c.fs.Rename(oldName, newName) }

// Remove implements fsx.FS. A Handle of the file is closed before.
func (c *Cache) Remove(name string) error { return c.fs.Remove(name) }

// Stat implements fsx.FS.
func (c *Cache) Stat(name string) (fsx.Info, error) { return c.fs.Stat(name) }

// FreeSpace implements fsx.FS.
func (c *Cache) FreeSpace(name string) (uint64, error) { return c.fs.FreeSpace(name) }
