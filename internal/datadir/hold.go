package datadir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Hold keeps nodes away from the data folder while its files are read, and changes nothing
// in it. A folder without a lock file, such as a copy, is held by nobody and needs no lock.
// The error is a *HeldError when a process holds the folder.
func Hold(path string) (io.Closer, error) {
	name := filepath.Join(path, LockName)
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return io.NopCloser(nil), nil
	}
	if err != nil {
		return nil, fmt.Errorf("lock the data folder: %w", err)
	}
	err = flock(f)
	if err == nil {
		return f, nil
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = &HeldError{Path: name, PID: readPID(f)}
	} else {
		err = fmt.Errorf("lock %s: %w", name, err)
	}
	return nil, errors.Join(err, f.Close())
}
