package fsx

import (
	"io/fs"
	"path"
	"slices"
	"sort"
	"strings"
	"sync"
	"syscall"
)

// Mem is a file system in memory. One that was made by NewCrashMem also keeps,
// for each file and directory, what was synced and the changes since.
type Mem struct {
	mu       sync.Mutex
	root     *memNode   // guarded by mu, with all nodes below
	track    bool       // keep unsynced changes
	capacity int64      // guarded by mu: bytes of file contents; < 0 is unbounded
	used     int64      // guarded by mu
	entryOps []*entryOp // guarded by mu: directory changes since the last SyncDir
}

// memNode is a file or a directory.
type memNode struct {
	dir     bool
	data    []byte              // file: contents as a reader sees them
	synced  []byte              // file: contents that survive a power cut
	ops     []dataOp            // file: changes since the last sync
	entries map[string]*memNode // directory: as seen
	durable map[string]*memNode // directory: entries that survive a power cut
}

// dataOp is one unsynced change of a file: a write, or a change of length.
type dataOp struct {
	off  int64
	data []byte // nil: set the length to off
}

// entryOp is one unsynced change of directories. A rename is one operation, which
// a journaling file system keeps or loses as a whole.
type entryOp struct {
	dirs  []*memNode
	names []string
	nodes []*memNode // nil: the entry is removed
}

func newDir() *memNode {
	return &memNode{dir: true, entries: map[string]*memNode{}, durable: map[string]*memNode{}}
}

// NewMem returns an empty file system in memory.
func NewMem() *Mem { return &Mem{root: newDir(), capacity: -1} }

// NewCrashMem returns an empty file system in memory of which Crash can make a
// clone as after a power cut.
func NewCrashMem() *Mem { m := NewMem(); m.track = true; return m }

// SetCapacity bounds the bytes of all files together; a write beyond writes what
// fits and fails with ENOSPC. A negative n takes the bound away.
func (m *Mem) SetCapacity(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = n
}

func resize(b []byte, size int64) []byte {
	if size <= int64(len(b)) {
		return b[:size]
	}
	return append(b, make([]byte, size-int64(len(b)))...)
}

func overwrite(b, p []byte, off int64) []byte {
	if end := off + int64(len(p)); end > int64(len(b)) {
		b = resize(b, end)
	}
	copy(b[off:], p)
	return b
}

func sortedNames(m map[string]*memNode) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

func split(name string) []string {
	name = strings.Trim(path.Clean("/"+name), "/")
	if name == "" {
		return nil
	}
	return strings.Split(name, "/")
}

func pathErr(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

// findLocked returns the node of a name, or ENOENT or ENOTDIR.
func (m *Mem) findLocked(parts []string) (*memNode, error) {
	n := m.root
	for _, p := range parts {
		if !n.dir {
			return nil, syscall.ENOTDIR
		}
		c, ok := n.entries[p]
		if !ok {
			return nil, syscall.ENOENT
		}
		n = c
	}
	return n, nil
}

func (m *Mem) parentLocked(name string) (*memNode, string, error) {
	parts := split(name)
	if len(parts) == 0 {
		return nil, "", syscall.EINVAL
	}
	d, err := m.findLocked(parts[:len(parts)-1])
	if err == nil && !d.dir {
		err = syscall.ENOTDIR
	}
	return d, parts[len(parts)-1], err
}

func (m *Mem) changeLocked(op *entryOp) {
	op.apply(func(d *memNode) map[string]*memNode { return d.entries })
	if m.track {
		m.entryOps = append(m.entryOps, op)
	}
}

// OpenFile implements FS.
func (m *Mem) OpenFile(name string, flag int) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.parentLocked(name)
	if err != nil {
		return nil, pathErr("open", name, err)
	}
	n, ok := d.entries[base]
	switch {
	case !ok && flag&Create == 0:
		return nil, pathErr("open", name, syscall.ENOENT)
	case ok && flag&Create != 0 && flag&Exclusive != 0:
		return nil, pathErr("open", name, syscall.EEXIST)
	case ok && n.dir:
		return nil, pathErr("open", name, syscall.EISDIR)
	case !ok:
		n = &memNode{}
		m.changeLocked(&entryOp{dirs: []*memNode{d}, names: []string{base}, nodes: []*memNode{n}})
	case flag&Trunc != 0:
		m.truncateLocked(n, 0)
	}
	return &memFile{m: m, n: n, name: name, readOnly: flag&ReadWrite == 0}, nil
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.root
	for _, p := range split(name) {
		c, ok := n.entries[p]
		if !ok {
			c = newDir()
			m.changeLocked(&entryOp{dirs: []*memNode{n}, names: []string{p}, nodes: []*memNode{c}})
		}
		if !c.dir {
			return pathErr("mkdir", name, syscall.ENOTDIR)
		}
		n = c
	}
	return nil
}

// Rename implements FS.
func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	od, ob, err := m.parentLocked(oldName)
	if err != nil {
		return pathErr("rename", oldName, err)
	}
	nd, nb, err := m.parentLocked(newName)
	if err != nil {
		return pathErr("rename", newName, err)
	}
	n, ok := od.entries[ob]
	if !ok {
		return pathErr("rename", oldName, syscall.ENOENT)
	}
	if old, ok := nd.entries[nb]; ok {
		if old.dir {
			return pathErr("rename", newName, syscall.EEXIST)
		}
		if old != n {
			m.used -= int64(len(old.data))
		}
	}
	m.changeLocked(&entryOp{dirs: []*memNode{od, nd}, names: []string{ob, nb}, nodes: []*memNode{nil, n}})
	return nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.parentLocked(name)
	if err != nil {
		return pathErr("remove", name, err)
	}
	n, ok := d.entries[base]
	if !ok {
		return pathErr("remove", name, syscall.ENOENT)
	}
	if n.dir && len(n.entries) > 0 {
		return pathErr("remove", name, syscall.ENOTEMPTY)
	}
	m.used -= int64(len(n.data))
	m.changeLocked(&entryOp{dirs: []*memNode{d}, names: []string{base}, nodes: []*memNode{nil}})
	return nil
}

// ReadDir implements FS.
func (m *Mem) ReadDir(name string) ([]Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.findLocked(split(name))
	if err == nil && !n.dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, pathErr("readdir", name, err)
	}
	out := make([]Info, 0, len(n.entries))
	for _, c := range sortedNames(n.entries) {
		out = append(out, Info{Name: c, Size: int64(len(n.entries[c].data)), Dir: n.entries[c].dir})
	}
	return out, nil
}

// Stat implements FS.
func (m *Mem) Stat(name string) (Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.findLocked(split(name))
	if err != nil {
		return Info{}, pathErr("stat", name, err)
	}
	return Info{Name: path.Base(name), Size: int64(len(n.data)), Dir: n.dir}, nil
}

// SyncDir implements FS. A rename is durable once one of its directories is
// synced, as on a journaling file system.
func (m *Mem) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.findLocked(split(name))
	if err == nil && !n.dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return pathErr("sync", name, err)
	}
	rest := m.entryOps[:0]
	for _, op := range m.entryOps {
		if slices.Contains(op.dirs, n) {
			op.apply(func(d *memNode) map[string]*memNode { return d.durable })
		} else {
			rest = append(rest, op)
		}
	}
	clear(m.entryOps[len(rest):])
	m.entryOps = rest
	return nil
}

// FreeSpace implements FS.
func (m *Mem) FreeSpace(string) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.capacity < 0 {
		return 1 << 62, nil
	}
	return uint64(max(m.capacity-m.used, 0)), nil
}

func (m *Mem) truncateLocked(n *memNode, size int64) {
	m.used += size - int64(len(n.data))
	n.data = resize(n.data, size)
	if m.track {
		n.ops = append(n.ops, dataOp{off: size})
	}
}
