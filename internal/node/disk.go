package node

import (
	"context"
	"fmt"
	"math"
	"syscall"
	"time"

	"tidewire/internal/datadir"
)

// openDisk looks at the disk before anything is written to it.
func (n *Node) openDisk() error {
	ballast, err := n.dir.OpenBallast()
	if err != nil {
		return err
	}
	n.ballast = ballast
	n.disk = datadir.NewDiskGuard(int64(n.cfg.DiskReserve), n.roomForRecords)
	if !ballast.Held() {
		n.logger.Warn("the disk has no room for the ballast, which keeps room for metadata; it is taken when there is", "bytes", int64(datadir.BallastSize))
	}
	return nil
}

// roomForRecords is the free space without what belongs to the ballast.
func (n *Node) roomForRecords() (datadir.Space, error) {
	s, err := n.dir.Space()
	s.Free = max(s.Free-n.ballast.Owed(), 0)
	return s, err
}

// roomForNewLog refuses the folder of a new partition while records have less room than half
// of the reserve, so that not even thousands of partitions that came at once, or from other
// nodes, take the room in which they could be deleted. The other half is for the partitions
// that are there.
func (n *Node) roomForNewLog() error {
	s, err := n.roomForRecords()
	if err != nil {
		return nil //nolint:nilerr // then the write itself shows whether there is room
	}
	if need := max(int64(n.cfg.DiskReserve)/2, datadir.BallastMark); s.Free < need {
		return fmt.Errorf("%d bytes are free for records and partitions; a new partition leaves %d of them: %w", s.Free, need, syscall.ENOSPC)
	}
	return nil
}

// makeRoom gives the ballast up where so many bytes are not free, and returns the free
// space.
func (n *Node) makeRoom(need int64) int64 {
	free, gaveUp, err := n.ballast.MakeRoom(need)
	if gaveUp {
		n.logger.Warn("the disk is full: the ballast is given up, so that metadata can be written", "free_bytes", free)
	}
	if err != nil { // then the write itself shows whether there is room
		n.logger.Warn("no room could be made on the disk", "error", err)
		return math.MaxInt64
	}
	return free
}

// diskLook is how often the free space is read, and diskStep how many bytes of records
// bring the next look forward: within a second a disk can be filled.
const (
	diskLook = time.Second
	diskStep = 1 << 20
)

// watchDisk refuses record writes while the disk has less room than the reserve.
func (n *Node) watchDisk(ctx context.Context) {
	tick := time.NewTicker(diskLook)
	defer tick.Stop()
	for {
		n.checking.Lock()
		n.checkDisk()
		n.checking.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// noteAppended looks at the disk once many bytes of records have come since the last look.
func (n *Node) noteAppended(bytes int) {
	if n.unchecked.Add(int64(bytes)) < diskStep || !n.checking.TryLock() {
		return
	}
	defer n.checking.Unlock()
	n.checkDisk()
}

// checkDisk is called with checking held.
func (n *Node) checkDisk() {
	n.unchecked.Store(0)
	n.makeRoom(datadir.BallastMark)
	restored, err := n.ballast.Restore()
	if restored {
		n.logger.Info("the disk has room again: the ballast is back")
	}
	if err != nil {
		n.logger.Warn("the ballast could not be taken", "error", err)
	}
	changed, err := n.disk.Check()
	if err != nil {
		n.logger.Warn("the free space of the disk cannot be read", "error", err)
	}
	if changed {
		n.logger.Warn(diskNotice(n.disk.Low()), "free_bytes", n.disk.Space().Free, "disk_reserve_bytes", int64(n.cfg.DiskReserve))
	}
	n.broker.SetDiskFull(n.disk.Low())
	if n.disk.Low() {
		n.store.DeleteNow()
	}
}

func diskNotice(low bool) string {
	if low {
		return "the disk has less free room than --disk-reserve: records are refused with storage-full until there is more"
	}
	return "the disk has room again: records are taken"
}
