package log

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"

	"tidewire/internal/fsx"
	"tidewire/storage/checkpoint"
)

// The data folder's checkpoints, in the format of storage/checkpoint.
const (
	recoveryPointFile = "recovery-point"
	replicationFile   = "replication"
	logStartFile      = "log-start"
	cleanerFile       = "cleaner"
	cleanStopFile     = "clean-stop"
)

// The kinds of checkpoint, as indexes into arrays.
const (
	cpRecovery = iota
	cpReplication
	cpLogStart
	cpKinds
)

var checkpointFiles = [cpKinds]string{recoveryPointFile, replicationFile, logStartFile}

// logKey names a log across deletions and re-creations of its topic.
type logKey = checkpoint.Key

// encodeCleanStop repeats the generations of the checkpoints written on stop, and that of
// the cleaner's, 0 where there is none.
func encodeCleanStop(gens [cpKinds]uint64, cleaner uint64) []byte {
	return checkpoint.Seal(fmt.Appendf(cleanStopHead(gens), "%s %d\n", cleanerFile, cleaner))
}

func cleanStopHead(gens [cpKinds]uint64) []byte {
	b := []byte("tidewire-clean-stop 1\n")
	for i, g := range gens {
		b = fmt.Appendf(b, "%s %d\n", checkpointFiles[i], g)
	}
	return b
}

// checkpoints is what OpenStore found in a data folder.
type checkpoints struct {
	cp    [cpKinds]checkpoint.File
	have  [cpKinds]bool // the file was there and whole
	clean bool          // the clean-stop marker repeats their generations

	cleaner  checkpoint.File
	stranger bool // the marker has another generation of the cleaner's: it is not the one of the stop
}

// loadCheckpoints reads the files and the marker. A missing or damaged file
// is not an error: have says so. A damaged one is kept beside (.damaged).
func loadCheckpoints(fsys fsx.FS, dir string, warn func(msg string, args ...any)) (checkpoints, error) {
	var out checkpoints
	var gens [cpKinds]uint64
	for i, name := range checkpointFiles {
		var err error
		if out.cp[i], out.have[i], err = checkpoint.Load(fsys, dir, name, warn); err != nil {
			return out, err
		}
		gens[i] = out.cp[i].Generation
	}
	var err error
	if out.cleaner, _, err = checkpoint.Load(fsys, dir, cleanerFile, warn); err != nil {
		return out, err
	}
	b, err := fsx.ReadFile(fsys, path.Join(dir, cleanStopFile), checkpoint.MaxFileSize)
	if err != nil && !isErr(err, fs.ErrNotExist) {
		return out, err
	}
	if err == nil && out.have == [cpKinds]bool{true, true, true} {
		body, err := checkpoint.Open(b)
		out.clean = err == nil && bytes.HasPrefix(body, cleanStopHead(gens))
		out.stranger = out.clean && !bytes.Equal(b, encodeCleanStop(gens, out.cleaner.Generation))
	}
	return out, nil
}
