package datadir

import (
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Space is the room on a disk, in bytes.
type Space struct {
	Free  int64 // what this process may still write
	Total int64
}

// Space reads the room on the disk of the data folder.
func (d *Dir) Space() (Space, error) { return SpaceOf(d.path) }

// SpaceOf reads the room on the disk that holds a path.
func SpaceOf(path string) (Space, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return Space{}, fmt.Errorf("read the free space of %s: %w", path, err)
	}
	unit := blockSize(&s)
	return Space{Free: product(s.Bavail, unit), Total: product(s.Blocks, unit)}, nil
}

// product stays at the largest int64: some file systems report room without end.
func product(blocks, size uint64) int64 {
	if high, low := bits.Mul64(blocks, size); high == 0 && low <= math.MaxInt64 {
		return int64(low)
	}
	return math.MaxInt64
}

// DiskGuard tells whether the free space is below a reserve. Its owner calls Check
// once a second; the other methods are cheap enough for every request, and all are
// safe for concurrent use.
type DiskGuard struct {
	reserve int64
	read    func() (Space, error)
	free    atomic.Int64
	total   atomic.Int64
	low     atomic.Bool
}

// NewDiskGuard makes a guard that keeps reserve bytes free, by what read says
// (usually Dir.Space). Until the first Check there is room.
func NewDiskGuard(reserve int64, read func() (Space, error)) *DiskGuard {
	g := &DiskGuard{reserve: reserve, read: read}
	g.free.Store(math.MaxInt64)
	g.total.Store(math.MaxInt64)
	return g
}

// Check reads the free space. changed reports that Low has turned, for one log line.
// When the space cannot be read the last state stays.
func (g *DiskGuard) Check() (changed bool, err error) {
	s, err := g.read()
	if err != nil {
		return false, err
	}
	g.free.Store(s.Free)
	g.total.Store(s.Total)
	low := s.Free < g.reserve
	return g.low.Swap(low) != low, nil
}

// Low reports whether record writes are to be refused.
func (g *DiskGuard) Low() bool { return g.low.Load() }

// Space is what the last Check read; both are the largest int64 before the first.
func (g *DiskGuard) Space() Space { return Space{Free: g.free.Load(), Total: g.total.Load()} }
