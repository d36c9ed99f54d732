package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// BallastName is the file within the data folder.
	BallastName = "ballast"
	// BallastSize is what it takes: one file of the metadata's log, which is allocated at
	// once.
	BallastSize = 8 << 20
	// BallastMark is the free space below which the ballast is given up at once, before
	// somebody needs it.
	BallastMark = 1 << 20
)

// Ballast is a file of allocated blocks on the disk of the data folder, which is given up
// when the disk is full, so that the metadata can still be written: topics can be deleted
// and settings changed on a disk that records have filled. It is taken back when there is
// room. Its methods are safe for concurrent use.
type Ballast struct {
	path  string
	space func() (Space, error)

	mu   sync.Mutex  // held while the file changes
	held atomic.Bool // the blocks are allocated; written under mu
}

// OpenBallast looks at the ballast file of the data folder and takes it where there is room.
func (d *Dir) OpenBallast() (*Ballast, error) { return openBallast(d.path+"/"+BallastName, d.Space) }

func openBallast(path string, space func() (Space, error)) (*Ballast, error) {
	b := &Ballast{path: path, space: space}
	whole, err := allocated(path)
	if err != nil {
		return nil, err
	}
	b.held.Store(whole)
	if _, _, err := b.MakeRoom(BallastMark); err != nil {
		return nil, err
	}
	_, err = b.Restore()
	return b, err
}

// allocated reports whether the file has all its blocks.
func allocated(path string) (bool, error) {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", path, err)
	}
	const statBlock = 512 // the unit of st_blocks, whatever the file system's
	return st.Size >= BallastSize && st.Blocks*statBlock >= BallastSize, nil
}

// MakeRoom gives the ballast up when the disk has less free space than what is needed, in
// bytes. It returns the free space, by what can be known, and whether the ballast was
// given up by this call. It is cheap when there is room.
func (b *Ballast) MakeRoom(need int64) (free int64, gaveUp bool, err error) {
	s, err := b.space()
	if err != nil || s.Free >= need || !b.held.Load() {
		return s.Free, false, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.held.Load() {
		return s.Free + BallastSize, false, nil // another call has just done it
	}
	if err := os.Truncate(b.path, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s.Free, false, fmt.Errorf("give up %s: %w", b.path, err)
	}
	b.held.Store(false)
	s, err = b.space()
	return s.Free, true, err
}

// Restore takes the ballast again once there is room for it and half as much again, so
// that it does not come and go. It reports whether this call did.
func (b *Ballast) Restore() (bool, error) {
	if b.held.Load() {
		return false, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.space()
	if err != nil || b.held.Load() || s.Free < BallastSize+BallastMark+BallastSize/2 {
		return false, err
	}
	err = allocate(b.path)
	whole, aerr := allocated(b.path)
	if err == nil && aerr == nil && whole {
		b.held.Store(true)
		return true, nil
	}
	if terr := os.Truncate(b.path, 0); terr != nil && !errors.Is(terr, fs.ErrNotExist) {
		err = errors.Join(err, terr)
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) { // somebody was faster
		return false, nil
	}
	return false, errors.Join(err, aerr)
}

// Held reports whether the blocks are allocated.
func (b *Ballast) Held() bool { return b.held.Load() }

// Owed is how much of the free space belongs to the ballast: records may not have it.
func (b *Ballast) Owed() int64 {
	if b.held.Load() {
		return 0
	}
	return BallastSize
}

// allocate gives the file its blocks. Where the file system cannot, it is written, with
// bytes that no file system makes smaller.
func allocate(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	err = preallocate(f, BallastSize)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EOPNOTSUPP) {
		err = fill(f)
	}
	return errors.Join(err, f.Close())
}

func fill(f *os.File) error {
	rng := rand.NewChaCha8([32]byte{})
	buf := make([]byte, 1<<20)
	for off := int64(0); off < BallastSize; off += int64(len(buf)) {
		_, _ = rng.Read(buf) // never fails
		if _, err := f.WriteAt(buf, off); err != nil {
			return err
		}
	}
	return f.Sync()
}
