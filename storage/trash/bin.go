package trash

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"tidewire/internal/fsx"
)

// Bin deletes files of logs after a delay (file.delete.delay.ms), so that who reads them ends
// in peace. What is left when it closes stays. It is safe for concurrent use.
type Bin struct {
	fs   fsx.FS
	log  *slog.Logger
	wake chan struct{} // an item was added; capacity 1

	mu     sync.Mutex
	items  []binItem // guarded by mu, by due time
	closed bool      // guarded by mu
}

type binItem struct {
	Dropped
	due time.Time
}

// Dropped is what waits: files that belong together.
type Dropped interface {
	// Close ends their use.
	Close() error
	// Files are their names.
	Files() []string
}

// NewBin returns an empty one; Loop deletes.
func NewBin(fsys fsx.FS, log *slog.Logger) *Bin {
	return &Bin{fs: fsys, log: log, wake: make(chan struct{}, 1)}
}

// Add takes over files that are to go when due.
func (b *Bin) Add(d Dropped, due time.Time) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		b.CloseNow(d)
		return
	}
	i, _ := slices.BinarySearchFunc(b.items, due, func(it binItem, due time.Time) int {
		if it.due.After(due) {
			return 1
		}
		return -1
	})
	b.items = slices.Insert(b.items, i, binItem{d, due})
	b.mu.Unlock()
	wake(b.wake)
}

// DeleteNow makes all items due.
func (b *Bin) DeleteNow(now time.Time) {
	b.mu.Lock()
	early := len(b.items) > 0 && b.items[len(b.items)-1].due.After(now)
	for i := range b.items {
		if it := &b.items[i]; it.due.After(now) {
			it.due = now
		}
	}
	b.mu.Unlock()
	if early {
		wake(b.wake)
	}
}

// Loop deletes until stop or ctx ends.
func (b *Bin) Loop(ctx context.Context, stop <-chan struct{}, now func() time.Time) {
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
func (b *Bin) deleteDue(now time.Time) time.Duration {
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
		b.CloseNow(it)
		for _, name := range it.Files() {
			if err := b.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				b.log.Warn("a deleted segment's file was not removed; the next start tries again", "file", name, "err", err)
			}
		}
	}
}

// Close ends the use of the files that wait; they stay until the next start.
func (b *Bin) Close() {
	b.mu.Lock()
	items := b.items
	b.items, b.closed = nil, true
	b.mu.Unlock()
	for _, it := range items {
		b.CloseNow(it)
	}
}

// CloseNow ends the use of files, which stay.
func (b *Bin) CloseNow(d Dropped) {
	if err := d.Close(); err != nil {
		b.log.Warn("a deleted segment was not closed", "files", d.Files(), "err", err)
	}
}
