package fsx

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncData is fdatasync. EINTR means that it did not run, so repeating is no retry
// of a failed sync.
func syncData(f *os.File) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = c.Control(func(fd uintptr) {
		for {
			serr = unix.Fdatasync(int(fd))
			if !errors.Is(serr, unix.EINTR) {
				return
			}
		}
	})
	if err == nil && serr != nil {
		err = &os.PathError{Op: "fdatasync", Path: f.Name(), Err: serr}
	}
	return err
}
