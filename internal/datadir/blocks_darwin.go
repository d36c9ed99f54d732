package datadir

import "golang.org/x/sys/unix"

// blockSize is the unit of the block counts.
func blockSize(s *unix.Statfs_t) uint64 { return uint64(s.Bsize) }
