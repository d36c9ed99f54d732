package datadir

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// blockSize is the unit of the block counts.
func blockSize(s *unix.Statfs_t) uint64 { return uint64(s.Bsize) }

// preallocate gives a file its blocks without writing them.
func preallocate(*os.File, int64) error { return errors.ErrUnsupported }
