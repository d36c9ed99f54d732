package fsx

import "sync"

// OpKind names an operation for an Inject hook.
type OpKind string

// The operations of FS and File that can be made to fail. Sync stands for both
// fsync and fdatasync.
const (
	OpOpen     OpKind = "open"
	OpMkdir    OpKind = "mkdir"
	OpRename   OpKind = "rename"
	OpRemove   OpKind = "remove"
	OpReadDir  OpKind = "readdir"
	OpStat     OpKind = "stat"
	OpSyncDir  OpKind = "syncdir"
	OpFree     OpKind = "free"
	OpRead     OpKind = "read"
	OpWrite    OpKind = "write"
	OpTruncate OpKind = "truncate"
	OpSync     OpKind = "sync"
	OpSize     OpKind = "size"
	OpClose    OpKind = "close"
)

// Op is one operation about to run.
type Op struct {
	N    int // 1 for the first operation of this Inject
	Kind OpKind
	Path string
	Off  int64 // of a read or write, or the new length
	Len  int   // of a read or write
}

// Fault makes an operation fail with Err. The operation does not run, except that
// of a write the first Short bytes are written.
type Fault struct {
	Err   error
	Short int
	// Lost says, of a sync, that what it was to make durable never will be, although
	// reads go on to give it and a later sync succeeds: so Linux does, which marks the
	// pages clean that it could not write. It needs a Mem below.
	Lost bool
}

// Hook decides about each operation; nil lets it run. It is called by one
// goroutine at a time and may block, which holds every other operation up.
type Hook func(Op) *Fault

// FailNth is a hook that fails the nth operation only.
func FailNth(n int, err error) Hook {
	return FailIf(func(op Op) bool { return op.N == n }, err)
}

// FailIf is a hook that fails every operation that matches.
func FailIf(match func(Op) bool, err error) Hook {
	return func(op Op) *Fault {
		if match(op) {
			return &Fault{Err: err}
		}
		return nil
	}
}

// Inject passes operations on to another FS unless its hook makes them fail.
type Inject struct {
	base FS

	mu   sync.Mutex
	n    int  // guarded by mu
	hook Hook // guarded by mu
}

// NewInject wraps base; hook may be nil.
func NewInject(base FS, hook Hook) *Inject { return &Inject{base: base, hook: hook} }

// SetHook replaces the hook; nil lets all operations run.
func (i *Inject) SetHook(h Hook) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.hook = h
}

// Ops is the number of operations so far.
func (i *Inject) Ops() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.n
}

func (i *Inject) check(op Op) *Fault {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.n++
	op.N = i.n
	if i.hook == nil {
		return nil
	}
	return i.hook(op)
}

func (i *Inject) fail(kind OpKind, name string) error {
	if f := i.check(Op{Kind: kind, Path: name}); f != nil {
		return pathErr(string(kind), name, f.Err)
	}
	return nil
}

// OpenFile implements FS.
func (i *Inject) OpenFile(name string, flag int) (File, error) {
	if err := i.fail(OpOpen, name); err != nil {
		return nil, err
	}
	f, err := i.base.OpenFile(name, flag)
	if err != nil {
		return nil, err
	}
	return &injectFile{File: f, i: i, name: name}, nil
}

// MkdirAll implements FS.
func (i *Inject) MkdirAll(name string) error {
	if err := i.fail(OpMkdir, name); err != nil {
		return err
	}
	return i.base.MkdirAll(name)
}

// Rename implements FS.
func (i *Inject) Rename(oldName, newName string) error {
	if err := i.fail(OpRename, oldName); err != nil {
		return err
	}
	return i.base.Rename(oldName, newName)
}

// Remove implements FS.
func (i *Inject) Remove(name string) error {
	if err := i.fail(OpRemove, name); err != nil {
		return err
	}
	return i.base.Remove(name)
}

// ReadDir implements FS.
func (i *Inject) ReadDir(name string) ([]Info, error) {
	if err := i.fail(OpReadDir, name); err != nil {
		return nil, err
	}
	return i.base.ReadDir(name)
}

// Stat implements FS.
func (i *Inject) Stat(name string) (Info, error) {
	if err := i.fail(OpStat, name); err != nil {
		return Info{}, err
	}
	return i.base.Stat(name)
}

// SyncDir implements FS.
func (i *Inject) SyncDir(name string) error {
	if err := i.fail(OpSyncDir, name); err != nil {
		return err
	}
	return i.base.SyncDir(name)
}

// FreeSpace implements FS.
func (i *Inject) FreeSpace(name string) (uint64, error) {
	if err := i.fail(OpFree, name); err != nil {
		return 0, err
	}
	return i.base.FreeSpace(name)
}

type injectFile struct {
	File
	i    *Inject
	name string
}

func (f *injectFile) ReadAt(p []byte, off int64) (int, error) {
	if flt := f.i.check(Op{Kind: OpRead, Path: f.name, Off: off, Len: len(p)}); flt != nil {
		return 0, pathErr("read", f.name, flt.Err)
	}
	return f.File.ReadAt(p, off)
}

func (f *injectFile) WriteAt(p []byte, off int64) (int, error) {
	flt := f.i.check(Op{Kind: OpWrite, Path: f.name, Off: off, Len: len(p)})
	if flt == nil {
		return f.File.WriteAt(p, off)
	}
	n := 0
	if flt.Short > 0 {
		n, _ = f.File.WriteAt(p[:min(flt.Short, len(p))], off)
	}
	return n, pathErr("write", f.name, flt.Err)
}

func (f *injectFile) Truncate(size int64) error {
	if flt := f.i.check(Op{Kind: OpTruncate, Path: f.name, Off: size}); flt != nil {
		return pathErr("truncate", f.name, flt.Err)
	}
	return f.File.Truncate(size)
}

func (f *injectFile) Sync() error {
	if err := f.failSync(); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *injectFile) SyncData() error {
	if err := f.failSync(); err != nil {
		return err
	}
	return f.File.SyncData()
}

func (f *injectFile) failSync() error {
	flt := f.i.check(Op{Kind: OpSync, Path: f.name})
	if flt == nil {
		return nil
	}
	if m, ok := f.File.(*memFile); ok && flt.Lost {
		m.lose()
	}
	return pathErr("sync", f.name, flt.Err)
}

func (f *injectFile) Size() (int64, error) {
	if err := f.i.fail(OpSize, f.name); err != nil {
		return 0, err
	}
	return f.File.Size()
}

func (f *injectFile) Close() error {
	if err := f.i.fail(OpClose, f.name); err != nil {
		return err
	}
	return f.File.Close()
}
