package log

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

// trash deletes discarded folders after a delay, so that a mistake can be undone
// by hand meanwhile.
type trash struct {
	fs    fsx.FS
	dir   string
	delay time.Duration
	log   *slog.Logger
	wake  chan struct{} // an item was added; capacity 1

	mu    sync.Mutex
	items []trashItem // guarded by mu, by due time
}

type trashItem struct {
	name string
	due  time.Time
}

func newTrash(fsys fsx.FS, dir string, delay time.Duration, log *slog.Logger) *trash {
	return &trash{fs: fsys, dir: dir, delay: delay, log: log, wake: make(chan struct{}, 1)}
}

// load takes over what an earlier run left; its delay starts anew.
func (t *trash) load(now time.Time) error {
	entries, err := t.fs.ReadDir(t.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		t.add(e.Name, now, t.delayOf(e.Name))
	}
	return nil
}

// name is <topic>-<partition>.<topic id>.<unix ms>, the topic cut where the whole
// would not be a legal file name.
func (t *trash) name(folder string, id model.TopicID, now time.Time, mark string) string {
	suffix := fmt.Sprintf(".%s.%d%s", id, now.UnixMilli(), mark)
	const maxFileName = 255
	return folder[:min(len(folder), maxFileName-len(suffix))] + suffix
}

// straySuffix marks folders that nobody knew rather than deleted, and strayDelay is how
// long they stay: that the metadata does not know them may be the metadata's fault.
const (
	straySuffix = ".stray"
	strayDelay  = 24 * time.Hour
)

func (t *trash) delayOf(name string) time.Duration {
	if strings.HasSuffix(name, straySuffix) {
		return max(strayDelay, t.delay)
	}
	return t.delay
}

func (t *trash) add(name string, now time.Time, delay time.Duration) {
	due := now.Add(delay)
	t.mu.Lock()
	i, _ := slices.BinarySearchFunc(t.items, due, func(it trashItem, due time.Time) int {
		if it.due.After(due) {
			return 1
		}
		return -1
	})
	t.items = slices.Insert(t.items, i, trashItem{name, due})
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *trash) loop(ctx context.Context, stop <-chan struct{}, now func() time.Time) {
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
func (t *trash) deleteDue(now time.Time) time.Duration {
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
