//go:build linux

package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// disk is a file system of a node's own.
type disk struct {
	dir   string
	image string // what it is kept in, of ext4; "": memory
}

// newDisk makes a disk of so many MiB below a folder that is made.
func newDisk(dir string, mib int, inMemory bool) (*disk, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	d := &disk{dir: dir}
	if inMemory {
		if err := syscall.Mount("tidewire-faults", dir, "tmpfs", 0, fmt.Sprint("size=", mib, "m")); err != nil {
			return nil, fmt.Errorf("mount a small disk: %w", err)
		}
		return d, nil
	}
	d.image = dir + ".ext4"
	f, err := os.Create(d.image)
	if err == nil {
		err = errors.Join(f.Truncate(int64(mib)<<20), f.Close())
	}
	if err != nil {
		return nil, err
	}
	if err := runTool("mkfs.ext4", "-q", "-m", "0", d.image); err != nil {
		return nil, err
	}
	return d, d.mount()
}

// CutsPower tells why this machine cannot take the power of a disk, nil where it can; dir is for
// one that is tried.
func CutsPower(ctx context.Context, dir string) error {
	d, err := newDisk(filepath.Join(dir, "power"), 16, false)
	if err != nil {
		return err
	}
	return errors.Join(d.cut(), d.again(ctx), d.close(), os.Remove(d.image), os.Remove(d.dir))
}

func (d *disk) mount() error { return runTool("mount", "-o", "loop", d.image, d.dir) }

func runTool(name string, args ...string) error {
	out, err := exec.CommandContext(context.Background(), name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}

// The request of ext4 and XFS that takes a mounted file system down, EXT4_IOC_SHUTDOWN, and its
// way that writes nothing any more, not the journal either: the power is gone.
const (
	iocShutdown       = 0x8004587d // _IOR('X', 125, __u32)
	shutdownNoLogSync = 2          // EXT4_GOING_FLAGS_NOLOGFLUSH
)

// cut takes the disk's power: what was not synced is lost, and all use of it fails until again.
func (d *disk) cut() error {
	f, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.IoctlSetPointerInt(int(f.Fd()), iocShutdown, shutdownNoLogSync); err != nil {
		return fmt.Errorf("cut the power of %s: %w", d.dir, err)
	}
	return nil
}

// again mounts the disk anew, once nobody uses it.
func (d *disk) again(ctx context.Context) error {
	for {
		err := syscall.Unmount(d.dir, 0)
		if err == nil {
			return d.mount()
		}
		if !errors.Is(err, syscall.EBUSY) || !pause(ctx, 20*time.Millisecond) {
			return fmt.Errorf("unmount %s: %w", d.dir, err)
		}
	}
}

func (d *disk) close() error { return syscall.Unmount(d.dir, syscall.MNT_DETACH) }

// fill takes all free room but some, and returns what gives it back.
func (d *disk) fill(leave int64) (undo func() error, err error) {
	path := filepath.Join(d.dir, "foreign")
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// In pieces: the kernel takes back all of one that it has no room for, and nodes write meanwhile.
	for at, piece := int64(0), int64(32<<20); piece >= 4096; {
		var st syscall.Statfs_t
		if err := syscall.Statfs(d.dir, &st); err != nil {
			return nil, err
		}
		piece = min(piece, int64(st.Bavail)*st.Bsize-leave)
		if piece <= 0 {
			break
		}
		if err := syscall.Fallocate(int(f.Fd()), 0, at, piece); err != nil {
			piece /= 2
			continue
		}
		at += piece
	}
	return func() error { return os.Remove(path) }, nil
}
