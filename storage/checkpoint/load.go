package checkpoint

import (
	"errors"
	"io/fs"
	"path"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
)

// MaxFileSize is how large a checkpoint may be, in bytes.
const MaxFileSize = 256 << 20

// Load reads the checkpoint of a kind in a folder; have says that it was there and whole. A
// damaged one, of which warn is told, is kept beside (.damaged).
func Load(fsys fsx.FS, dir, kind string, warn func(msg string, args ...any)) (f File, have bool, err error) {
	empty := File{Points: map[Key]model.Offset{}}
	p := path.Join(dir, kind)
	b, err := fsx.ReadFile(fsys, p, MaxFileSize)
	if errors.Is(err, fs.ErrNotExist) {
		return empty, false, nil
	}
	if err != nil {
		return empty, false, err
	}
	if f, err = Decode(b, kind); err != nil {
		warn("checkpoint is damaged", "file", kind, "err", err)
		return empty, false, fsys.Rename(p, p+".damaged")
	}
	return f, true, nil
}
