// Package trash keeps the folders of deleted logs for a while, so that a mistake can be
// undone by hand, and then deletes them. storage/log moves them in; the goroutine that
// runs Loop is the caller's. What is left when a process ends is taken over by the next
// (Load), and its delay begins anew.
package trash

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
)

// Trash is one folder of discarded folders. All methods are safe for concurrent use.
type Trash struct {
	fs    fsx.FS
	dir   string
	delay time.Duration
	log   *slog.Logger
	wake  chan struct{} // an item was added; capacity 1

	mu    sync.Mutex
	items []item // guarded by mu, by due time
}

type item struct {
	name string
	due  time.Time
}

// New is of the folder dir, whose entries stay for a delay.
func New(fsys fsx.FS, dir string, delay time.Duration, log *slog.Logger) *Trash {
	return &Trash{fs: fsys, dir: dir, delay: delay, log: log, wake: make(chan struct{}, 1)}
}

// Load takes over what an earlier run left; its delay starts anew.
func (t *Trash) Load(now time.Time) error {
	entries, err := t.fs.ReadDir(t.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		t.Add(e.Name, now, t.DelayOf(e.Name))
	}
	return nil
}

// Name is <topic>-<partition>.<topic id>.<unix ms>, the topic cut where the whole
// would not be a legal file name.
func (t *Trash) Name(folder string, id model.TopicID, now time.Time, mark string) string {
	suffix := fmt.Sprintf(".%s.%d%s", id, now.UnixMilli(), mark)
	const maxFileName = 255
	return folder[:min(len(folder), maxFileName-len(suffix))] + suffix
}

// StraySuffix marks folders that nobody knew rather than deleted, and strayDelay is how
// long they stay: that the metadata does not know them may be the metadata's fault.
const (
	StraySuffix = ".stray"
	strayDelay  = 24 * time.Hour
)

// DelayOf is how long an entry of that name stays.
func (t *Trash) DelayOf(name string) time.Duration {
	if strings.HasSuffix(name, StraySuffix) {
		return max(strayDelay, t.delay)
	}
	return t.delay
}

// Add has an entry, which is in the folder, deleted after a delay from now.
func (t *Trash) Add(name string, now time.Time, delay time.Duration) {
	due := now.Add(delay)
	t.mu.Lock()
	i, _ := slices.BinarySearchFunc(t.items, due, func(it item, due time.Time) int {
		if it.due.After(due) {
			return 1
		}
		return -1
	})
	t.items = slices.Insert(t.items, i, item{name, due})
	t.mu.Unlock()
	wake(t.wake)
}

// DeleteNow makes all entries due but those that nobody knew.
func (t *Trash) DeleteNow(now time.Time) {
	t.mu.Lock()
	early := false
	for i := range t.items {
		if it := &t.items[i]; it.due.After(now) && !strings.HasSuffix(it.name, StraySuffix) {
			it.due, early = now, true
		}
	}
	if early {
		slices.SortStableFunc(t.items, func(a, b item) int { return a.due.Compare(b.due) })
	}
	t.mu.Unlock()
	if early {
		wake(t.wake)
	}
}

func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Loop deletes what is due until stop is closed or the context ends.
func (t *Trash) Loop(ctx context.Context, stop <-chan struct{}, now func() time.Time) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(t.deleteDue(now()))
		select {
		case <-timer.C:
		case <-t.wake:
		case <-stop:
			return
		case <-ctx.Done():
			return
		}
	}
}

// deleteDue deletes what is due and returns the time until the next.
func (t *Trash) deleteDue(now time.Time) time.Duration {
	for {
		t.mu.Lock()
		if len(t.items) == 0 {
			t.mu.Unlock()
			return time.Hour
		}
		it := t.items[0]
		if wait := it.due.Sub(now); wait > 0 {
			t.mu.Unlock()
			return wait
		}
		t.items = t.items[1:]
		t.mu.Unlock()
		if err := fsx.RemoveAll(t.fs, path.Join(t.dir, it.name)); err != nil {
			t.log.Warn("trash not deleted; the next start tries again", "name", it.name, "err", err)
			continue
		}
		t.log.Info("trash deleted", "name", it.name)
	}
}
