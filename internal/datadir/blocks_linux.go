package datadir

import (
	"os"

	"golang.org/x/sys/unix"
)

// blockSize is the unit of the block counts: f_frsize as statvfs has it, which
// differs from f_bsize on FUSE, or f_bsize where a file system leaves it 0.
func blockSize(s *unix.Statfs_t) uint64 {
	if s.Frsize > 0 {
		return uint64(s.Frsize)
	}
	return uint64(s.Bsize)
}

// preallocate gives a file its blocks without writing them.
func preallocate(f *os.File, size int64) error {
	return unix.Fallocate(int(f.Fd()), 0, 0, size)
}
