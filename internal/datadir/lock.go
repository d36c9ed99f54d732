package datadir

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// HeldError says that another process holds the data folder. PID is 0 when the
// holder has not written it.
type HeldError struct {
	Path string // of the lock file
	PID  int
}

// Error names the pid and the lock file.
func (e *HeldError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("the data folder is in use by another process (lock file %s)", e.Path)
	}
	return fmt.Sprintf("the data folder is in use by process %d (lock file %s)", e.PID, e.Path)
}

// A holder writes its pid right after it got the lock. Until then the file is empty
// or names the one before, so a pid that does not live is asked for again, shortly.
// Then it stands: the holder may be in another pid namespace.
const (
	pidAttempts = 20
	pidPause    = 10 * time.Millisecond
)

func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data folder: %w", err)
	}
	for attempt := 1; ; attempt++ {
		err = flock(f)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		pid := readPID(f)
		if alive(pid) || attempt == pidAttempts {
			return nil, errors.Join(&HeldError{Path: path, PID: pid}, f.Close())
		}
		time.Sleep(pidPause)
	}
}

func flock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// readPID gives 0 for a text that is not a pid.
func readPID(f *os.File) int {
	b := make([]byte, 32)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}

func alive(pid int) bool {
	return pid > 0 && !errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}
