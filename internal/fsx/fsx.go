// Package fsx is the seam between storage and the file system: one narrow
// interface with four forms, so that storage can be broken on purpose.
//
//   - OS() is the real one.
//   - NewMem() lives in memory, for tests that want speed.
//   - NewCrashMem() lives in memory and knows what was synced; Crash(seed) gives
//     what a power cut would have left.
//   - NewInject(fs, hook) fails chosen operations of another FS.
//
// Callers: storage/log, and later the raft log's meta store. Names are slash paths
// as the os package takes them. Errors are those of the operating system, so
// errors.Is with fs.ErrNotExist, fs.ErrExist, syscall.ENOSPC and syscall.EIO works
// for every form. All forms are safe for concurrent use.
//
// Decision: no working directory, no permissions beyond a default, no append mode
// and no seek position. Positions are given by the caller (ReadAt, WriteAt), which
// makes a partial write repairable and lets readers share a handle. Rejected:
// io/fs (read only) and afero (large, and its memory form does not know of syncs).
package fsx

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"
)

// Open flags, as of the os package.
const (
	ReadOnly  = os.O_RDONLY
	ReadWrite = os.O_RDWR
	Create    = os.O_CREATE
	Exclusive = os.O_EXCL
	Trunc     = os.O_TRUNC
)

// FS is the part of a file system that storage uses.
type FS interface {
	// OpenFile opens a file with the flags above; new files get mode 0640.
	OpenFile(name string, flag int) (File, error)
	// MkdirAll makes a directory and its missing parents, mode 0750.
	MkdirAll(name string) error
	// Rename moves a file or directory, replacing a file of the new name.
	Rename(oldName, newName string) error
	// Remove deletes a file or an empty directory.
	Remove(name string) error
	// ReadDir lists a directory in order of names.
	ReadDir(name string) ([]Info, error)
	// Stat describes a file or directory.
	Stat(name string) (Info, error)
	// SyncDir makes the entries of a directory durable.
	SyncDir(name string) error
	// FreeSpace is the number of bytes that an ordinary user may still write.
	FreeSpace(name string) (uint64, error)
}

// File is an open file. ReadAt and WriteAt are those of package io.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Truncate sets the length.
	Truncate(size int64) error
	// Sync makes contents and metadata durable (fsync).
	Sync() error
	// SyncData makes contents and length durable (fdatasync).
	SyncData() error
	// Size is the present length in bytes.
	Size() (int64, error)
	// Fd is the descriptor, for sendfile; false when there is none.
	Fd() (uintptr, bool)
}

// Info describes a directory entry.
type Info struct {
	Name string // base name
	Size int64
	Dir  bool
	// Modified is when the contents were last changed; the zero time where the form
	// keeps none.
	Modified time.Time
}

// IsNoSpace reports whether err says that the disk or the quota is full.
func IsNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// IsNoDescriptor reports whether err says that the process or the machine has no file
// descriptor left; nothing was done to the file.
func IsNoDescriptor(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// ReadFile reads a whole file of at most limit bytes.
func ReadFile(fsys FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.OpenFile(name, ReadOnly)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil {
		return nil, err
	}
	if n > limit {
		return nil, &fs.PathError{Op: "read", Path: name, Err: syscall.EFBIG}
	}
	b := make([]byte, n)
	if m, err := f.ReadAt(b, 0); err != nil && !(errors.Is(err, io.EOF) && int64(m) == n) {
		return nil, err
	}
	return b, nil
}

// ReadFull reads exactly len(b) bytes at a position; io.ErrUnexpectedEOF when there are
// fewer.
func ReadFull(f io.ReaderAt, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// WriteFile replaces a file so that after a power cut it has either the old or
// the new contents: a file beside it (name + ".tmp") is written, synced and
// renamed, then the directory is synced.
func WriteFile(fsys FS, name string, data []byte) error {
	tmp := name + ".tmp"
	f, err := fsys.OpenFile(tmp, ReadWrite|Create|Trunc)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = fsys.Rename(tmp, name)
	}
	if err != nil {
		return errors.Join(err, ignoreMissing(fsys.Remove(tmp)))
	}
	return fsys.SyncDir(path.Dir(name))
}

// RemoveAll deletes a file, or a directory with all that it holds. What is
// already absent is no error.
func RemoveAll(fsys FS, name string) error {
	info, err := fsys.Stat(name)
	if err != nil {
		return ignoreMissing(err)
	}
	if info.Dir {
		entries, err := fsys.ReadDir(name)
		if err != nil {
			return ignoreMissing(err)
		}
		for _, e := range entries {
			if err := RemoveAll(fsys, path.Join(name, e.Name)); err != nil {
				return err
			}
		}
	}
	return ignoreMissing(fsys.Remove(name))
}

// Exists reports whether name is there.
func Exists(fsys FS, name string) (bool, error) {
	_, err := fsys.Stat(name)
	if err == nil {
		return true, nil
	}
	return false, ignoreMissing(err)
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
