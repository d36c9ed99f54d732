package fsx

import (
	"io"
	"io/fs"
	"slices"
	"syscall"
)

type memFile struct {
	m        *Mem
	n        *memNode
	name     string
	readOnly bool
	closed   bool // guarded by m.mu
}

func (f *memFile) checkLocked(op string, write bool) error {
	if f.closed {
		return pathErr(op, f.name, fs.ErrClosed)
	}
	if write && f.readOnly {
		return pathErr(op, f.name, syscall.EBADF)
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.checkLocked("read", false); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathErr("read", f.name, syscall.EINVAL)
	}
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	m := f.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := f.checkLocked("write", true); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathErr("write", f.name, syscall.EINVAL)
	}
	var full error
	grow := max(off+int64(len(p))-int64(len(f.n.data)), 0)
	if room := m.capacity - m.used; m.capacity >= 0 && grow > room {
		p = p[:max(int64(len(p))-(grow-max(room, 0)), 0)]
		full = pathErr("write", f.name, syscall.ENOSPC)
		if len(p) == 0 {
			return 0, full
		}
	}
	before := len(f.n.data)
	f.n.data = overwrite(f.n.data, p, off)
	m.used += int64(len(f.n.data) - before)
	if m.track && len(p) > 0 {
		f.n.ops = append(f.n.ops, dataOp{off: off, data: slices.Clone(p)})
	}
	return len(p), full
}

func (f *memFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.checkLocked("truncate", true); err != nil {
		return err
	}
	if size < 0 {
		return pathErr("truncate", f.name, syscall.EINVAL)
	}
	f.m.truncateLocked(f.n, size)
	return nil
}

func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.checkLocked("sync", false); err != nil {
		return err
	}
	for _, op := range f.n.ops {
		if op.data == nil {
			f.n.synced = resize(f.n.synced, op.off)
		} else {
			f.n.synced = overwrite(f.n.synced, op.data, op.off)
		}
	}
	f.n.ops = nil
	return nil
}

func (f *memFile) SyncData() error { return f.Sync() }

// lose forgets what was not synced; only reads still see it.
func (f *memFile) lose() {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.n.ops = nil
}

func (f *memFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.checkLocked("stat", false); err != nil {
		return 0, err
	}
	return int64(len(f.n.data)), nil
}

func (f *memFile) Fd() (uintptr, bool) { return 0, false }

func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.checkLocked("close", false); err != nil {
		return err
	}
	f.closed = true
	return nil
}
