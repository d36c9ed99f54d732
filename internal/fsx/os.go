package fsx

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// OS is the file system of the operating system.
func OS() FS { return osFS{} }

type osFS struct{}

func (osFS) OpenFile(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0o640)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) MkdirAll(name string) error           { return os.MkdirAll(name, 0o750) }
func (osFS) Rename(oldName, newName string) error { return os.Rename(oldName, newName) }
func (osFS) Remove(name string) error             { return os.Remove(name) }

func (osFS) ReadDir(name string) ([]Info, error) {
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	out := make([]Info, 0, len(entries))
	for _, e := range entries {
		fi, err := e.Info()
		if errors.Is(err, os.ErrNotExist) {
			continue // removed since the listing
		}
		if err != nil {
			return nil, err
		}
		out = append(out, Info{Name: e.Name(), Size: fi.Size(), Dir: fi.IsDir(), Modified: fi.ModTime()})
	}
	return out, nil
}

func (osFS) Stat(name string) (Info, error) {
	fi, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	return Info{Name: fi.Name(), Size: fi.Size(), Dir: fi.IsDir(), Modified: fi.ModTime()}, nil
}

func (osFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (osFS) FreeSpace(name string) (uint64, error) {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(name, &st)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, &os.PathError{Op: "statfs", Path: name, Err: err}
		}
		return st.Bavail * uint64(st.Bsize), nil
	}
}

type osFile struct{ *os.File }

func (f osFile) SyncData() error { return syncData(f.File) }

func (f osFile) Size() (int64, error) {
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

func (f osFile) Fd() (uintptr, bool) { return f.File.Fd(), true }
