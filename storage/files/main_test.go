package files

import (
	"fmt"
	"io/fs"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidewire/internal/fsx"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counted is a file system that counts the files that are open, and lacks descriptors above
// a limit.
type counted struct {
	fsx.FS
	mu    sync.Mutex
	open  int            // guarded by mu
	most  int            // guarded by mu
	limit int            // guarded by mu; 0: none
	opens map[string]int // guarded by mu: by path
}

func newCounted() *counted { return &counted{FS: fsx.NewMem(), opens: map[string]int{}} }

type countedFile struct {
	fsx.File
	c *counted
}

func (c *counted) take(op, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.limit > 0 && c.open >= c.limit {
		return &fs.PathError{Op: op, Path: name, Err: syscall.EMFILE}
	}
	c.open++
	c.most = max(c.most, c.open)
	return nil
}

func (c *counted) give() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
}

func (c *counted) OpenFile(name string, flag int) (fsx.File, error) {
	if err := c.take("open", name); err != nil {
		return nil, err
	}
	f, err := c.FS.OpenFile(name, flag)
	if err != nil {
		c.give()
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opens[name]++
	return &countedFile{f, c}, nil
}

func (c *counted) SyncDir(name string) error {
	if err := c.take("open", name); err != nil {
		return err
	}
	defer c.give()
	return c.FS.SyncDir(name)
}

func (c *counted) ReadDir(name string) ([]fsx.Info, error) {
	if err := c.take("open", name); err != nil {
		return nil, err
	}
	defer c.give()
	return c.FS.ReadDir(name)
}

func (f *countedFile) Close() error {
	err := f.File.Close()
	if err == nil {
		f.c.give()
	}
	return err
}

func (c *counted) now() (open, most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open, c.most
}

func (c *counted) openedTimes(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opens[name]
}

func (c *counted) setLimit(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit = n
}

func name(i int) string { return fmt.Sprintf("/f%03d", i) }

// handles makes n files of one byte, synced, that are closed.
func handles(t *testing.T, c *Cache, n int) []*Handle {
	t.Helper()
	out := make([]*Handle, n)
	for i := range out {
		out[i] = c.CreatingHandle(name(i))
		write(t, out[i], byte(i), 0)
		require.NoError(t, out[i].SyncData())
		require.NoError(t, out[i].Release())
	}
	return out
}

func write(t *testing.T, h *Handle, b byte, off int64) {
	t.Helper()
	n, err := h.WriteAt([]byte{b}, off)
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

func read(t *testing.T, h *Handle, want byte) {
	t.Helper()
	b := make([]byte, 1)
	require.NoError(t, fsx.ReadFull(h, b, 0))
	require.Equal(t, want, b[0])
}
