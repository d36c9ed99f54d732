package log

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
)

// deletedSuffix marks the files of a segment that is not part of the log any more, as
// Kafka marks them.
const deletedSuffix = ".deleted"

// parseDeleted reads a file name such as 00000000000000000042.index.deleted.
func parseDeleted(name string) (model.Offset, bool) {
	for _, suffix := range segmentSuffixes {
		if base, ok := parseBase(name, suffix+deletedSuffix); ok {
			return base, true
		}
	}
	return 0, false
}

// bin deletes dropped segments after a delay (file.delete.delay.ms), so that who reads
// one ends in peace. What is left when the store closes is removed by the next start.
type bin struct {
	fs   fsx.FS
	log  *slog.Logger
	wake chan struct{} // an item was added; capacity 1

	mu     sync.Mutex
	items  []binItem // guarded by mu, by due time
	closed bool      // guarded by mu
}

type binItem struct {
	seg *segment
	due time.Time
}

func newBin(fsys fsx.FS, log *slog.Logger) *bin {
	return &bin{fs: fsys, log: log, wake: make(chan struct{}, 1)}
}

// add takes over a segment whose files were renamed.
func (b *bin) add(seg *segment, due time.Time) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		b.closeSegment(seg)
		return
	}
	i, _ := slices.BinarySearchFunc(b.items, due, func(it binItem, due time.Time) int {
		if it.due.After(due) {
			return 1
		}
		return -1
	})
	b.items = slices.Insert(b.items, i, binItem{seg, due})
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *bin) loop(ctx context.Context, stop <-chan struct{}, now func() time.Time) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(b.deleteDue(now()))
		select {
		case <-timer.C:
		case <-b.wake:
		case <-stop:
			return
		case <-ctx.Done():
			return
		}
	}
}

// deleteDue deletes what is due and returns the time until the next. It looks again at
// least every minute, since the clock may be set.
func (b *bin) deleteDue(now time.Time) time.Duration {
	for {
		b.mu.Lock()
		if len(b.items) == 0 {
			b.mu.Unlock()
			return time.Hour
		}
		it := b.items[0]
		if wait := it.due.Sub(now); wait > 0 {
			b.mu.Unlock()
			return min(wait, time.Minute)
		}
		b.items = slices.Delete(b.items, 0, 1)
		b.mu.Unlock()
		b.closeSegment(it.seg)
		for _, suffix := range segmentSuffixes {
			if err := b.fs.Remove(it.seg.path + suffix + deletedSuffix); !isMissing(err) {
				b.log.Warn("a deleted segment's file was not removed; the next start tries again", "file", it.seg.path+suffix+deletedSuffix, "err", err)
			}
		}
	}
}

// close ends the use of the files that wait; they stay until the next start.
func (b *bin) close() {
	b.mu.Lock()
	items := b.items
	b.items, b.closed = nil, true
	b.mu.Unlock()
	for _, it := range items {
		b.closeSegment(it.seg)
	}
}

func (b *bin) closeSegment(seg *segment) {
	if err := seg.close(); err != nil {
		b.log.Warn("a deleted segment was not closed", "segment", seg.path, "err", err)
	}
}
