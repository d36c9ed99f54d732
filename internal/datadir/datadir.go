package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Names within the data folder.
const (
	TopicsName    = "topics"
	MetaName      = "meta"
	LockName      = "node.lock"
	EndpointsName = "endpoints.json"
)

const folderMode = 0o700 // meta/ holds keys, topics/ everybody's records

// ErrNotFolder is wrapped by Open's error when something else is in the place of
// the data folder or of a part of it.
var ErrNotFolder = errors.New("is not a folder")

var errNoPath = errors.New("the data folder has no path")

// Dir is a data folder that this process holds. It is safe for concurrent use,
// except that Close ends it.
type Dir struct {
	path string // absolute
	lock *os.File
}

// Open makes the folder where missing (0700, synced so that it outlives a power
// cut), takes its lock, and removes what a killed predecessor published. The error
// is a *HeldError when another process holds the folder; every error is one line
// that names the path.
func Open(path string) (*Dir, error) {
	if path == "" {
		return nil, errNoPath // Abs would take the working directory
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("data folder %s: %w", path, err)
	}
	if err := makeFolder(abs); err != nil {
		return nil, err
	}
	lock, err := takeLock(filepath.Join(abs, LockName))
	if err != nil {
		return nil, err
	}
	d := &Dir{path: abs, lock: lock}
	if err := d.prepare(); err != nil {
		return nil, errors.Join(err, d.lock.Close())
	}
	return d, nil
}

// prepare runs under the lock.
func (d *Dir) prepare() error {
	if err := writePID(d.lock); err != nil {
		return fmt.Errorf("write the pid into the lock of the data folder: %w", err)
	}
	if err := d.removeEndpoints(); err != nil {
		return err
	}
	for _, part := range []string{d.Topics(), d.Meta()} {
		if err := makeFolder(part); err != nil {
			return err
		}
	}
	return syncFolder(d.path) // node.lock's entry too
}

// Path is the absolute path of the data folder.
func (d *Dir) Path() string { return d.path }

// Topics is the folder of the replicas.
func (d *Dir) Topics() string { return filepath.Join(d.path, TopicsName) }

// Meta is the folder of the metadata.
func (d *Dir) Meta() string { return filepath.Join(d.path, MetaName) }

// Close is the clean end: it removes endpoints.json and releases the lock. Nothing
// may use the folder afterwards. The lock file stays: removing it would let two
// processes hold locks on two files of the same name.
func (d *Dir) Close() error {
	err := d.removeEndpoints()
	return errors.Join(err, d.lock.Truncate(0), d.lock.Close())
}

// makeFolder makes a folder with its missing parents and syncs each folder that got
// a new entry.
func makeFolder(path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return fmt.Errorf("%s %w", path, ErrNotFolder)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("open the data folder: %w", err)
	}
	parent := filepath.Dir(path)
	if err := makeFolder(parent); err != nil {
		return err
	}
	if err := os.Mkdir(path, folderMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the data folder: %w", err)
	}
	return syncFolder(parent)
}

func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return errors.Join(f.Sync(), f.Close())
}
