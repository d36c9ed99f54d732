// Package sealed keeps small files whose loss does no harm: what a node would like to know
// after a restart, and can do without. A file is its magic, a payload and the CRC-32C of
// both; it is replaced as a whole, so that a reader finds the old or the new one, and one
// that was damaged is told from one that is good.
package sealed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path"

	"tidewire/internal/fsx"
)

// ErrDamaged is returned for a file that does not hold what Write wrote.
var ErrDamaged = errors.New("the file is damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Magic begins a file and names its format and version.
type Magic string

// Write replaces a file, durably. The folder must be there.
func Write(disk fsx.FS, name string, m Magic, payload []byte) error {
	b := make([]byte, 0, len(m)+len(payload)+4)
	b = append(append(b, m...), payload...)
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	temporary := name + ".tmp"
	if err := put(disk, temporary, b); err != nil {
		return errors.Join(err, ignoreMissing(disk.Remove(temporary)))
	}
	if err := disk.Rename(temporary, name); err != nil {
		return err
	}
	return disk.SyncDir(path.Dir(name))
}

func put(disk fsx.FS, name string, b []byte) error {
	f, err := disk.OpenFile(name, fsx.ReadWrite|fsx.Create|fsx.Trunc)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Read gives the payload of a file of at most limit bytes. The error is ErrDamaged, or one
// of the file system, fs.ErrNotExist for a file that is not there.
func Read(disk fsx.FS, name string, m Magic, limit int64) ([]byte, error) {
	b, err := fsx.ReadFile(disk, name, limit)
	if err != nil {
		return nil, err
	}
	if len(b) < len(m)+4 || string(b[:len(m)]) != string(m) {
		return nil, fmt.Errorf("%w: it does not begin with %q", ErrDamaged, m)
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, fmt.Errorf("%w: its checksum differs", ErrDamaged)
	}
	return body[len(m):], nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
