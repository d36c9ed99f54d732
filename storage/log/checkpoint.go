package log

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path"
	"sort"
	"strconv"
	"strings"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
)

// The data folder's checkpoints. They are text: a version line with the kind, the
// generation, the count, one line "topic-id partition offset" per log, sorted,
// and a CRC-32C of all that precedes it.
const (
	recoveryPointFile = "recovery-point"
	replicationFile   = "replication"
	logStartFile      = "log-start"
	cleanerFile       = "cleaner"
	cleanStopFile     = "clean-stop"

	checkpointMagic = "tidewire-checkpoint 1 "
	maxCheckpoint   = 256 << 20
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
type logKey struct {
	id model.TopicID
	p  model.PartitionID
}

// checkpoint is one file's contents.
type checkpoint struct {
	generation uint64
	points     map[logKey]model.Offset
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (c *checkpoint) encode(kind string) []byte {
	keys := make([]logKey, 0, len(c.points))
	for k := range c.points {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool {
		if d := bytes.Compare(keys[i].id[:], keys[j].id[:]); d != 0 {
			return d < 0
		}
		return keys[i].p < keys[j].p
	})
	b := fmt.Appendf(make([]byte, 0, 64+60*len(keys)), "%s%s\ngeneration %d\nentries %d\n",
		checkpointMagic, kind, c.generation, len(keys))
	for _, k := range keys {
		b = fmt.Appendf(b, "%s %d %d\n", k.id, k.p, c.points[k])
	}
	return appendCRC(b)
}

func appendCRC(b []byte) []byte {
	return fmt.Appendf(b, "crc32c %08x\n", crc32.Checksum(b, castagnoli))
}

// cutCRC verifies and removes the last line.
func cutCRC(b []byte) ([]byte, error) {
	i := bytes.LastIndex(bytes.TrimSuffix(b, []byte("\n")), []byte("\n"))
	body := b[:i+1]
	if !bytes.Equal(b[i+1:], appendCRC(bytes.Clone(body))[len(body):]) {
		return nil, errors.New("wrong checksum")
	}
	return body, nil
}

func decodeCheckpoint(b []byte, kind string) (checkpoint, error) {
	var c checkpoint
	body, err := cutCRC(b)
	if err != nil {
		return c, err
	}
	lines := strings.Split(strings.TrimSuffix(string(body), "\n"), "\n")
	if len(lines) < 3 || lines[0] != checkpointMagic+kind {
		return c, errors.New("not a checkpoint of this kind")
	}
	gen, ok1 := strings.CutPrefix(lines[1], "generation ")
	count, ok2 := strings.CutPrefix(lines[2], "entries ")
	n, err1 := strconv.Atoi(count)
	g, err2 := strconv.ParseUint(gen, 10, 64)
	if !ok1 || !ok2 || err1 != nil || err2 != nil || n != len(lines)-3 {
		return c, errors.New("bad head")
	}
	c = checkpoint{generation: g, points: make(map[logKey]model.Offset, n)}
	for _, line := range lines[3:] {
		k, off, err := decodePoint(line)
		if err != nil {
			return checkpoint{}, err
		}
		c.points[k] = off
	}
	if len(c.points) != n {
		return checkpoint{}, errors.New("an entry repeats")
	}
	return c, nil
}

func decodePoint(line string) (logKey, model.Offset, error) {
	f := strings.Split(line, " ")
	if len(f) != 3 {
		return logKey{}, 0, fmt.Errorf("bad entry %q", line)
	}
	id, err := model.ParseTopicID(f[0])
	p, err1 := strconv.ParseInt(f[1], 10, 32)
	off, err2 := strconv.ParseInt(f[2], 10, 64)
	if err := firstErr(err, err1, err2); err != nil || off < 0 || p < 0 {
		return logKey{}, 0, fmt.Errorf("bad entry %q", line)
	}
	return logKey{id, model.PartitionID(p)}, model.Offset(off), nil
}

// encodeCleanStop repeats the generations of the checkpoints written on stop.
func encodeCleanStop(gens [cpKinds]uint64) []byte {
	b := []byte("tidewire-clean-stop 1\n")
	for i, g := range gens {
		b = fmt.Appendf(b, "%s %d\n", checkpointFiles[i], g)
	}
	return appendCRC(b)
}

// checkpoints is what OpenStore found in a data folder.
type checkpoints struct {
	cp    [cpKinds]checkpoint
	have  [cpKinds]bool // the file was there and whole
	clean bool          // the clean-stop marker repeats all generations
}

// loadCheckpoints reads the three files and the marker. A missing or damaged file
// is not an error: have says so. A damaged one is kept beside (.damaged).
func loadCheckpoints(fsys fsx.FS, dir string, warn func(msg string, args ...any)) (checkpoints, error) {
	var out checkpoints
	var gens [cpKinds]uint64
	for i, name := range checkpointFiles {
		var err error
		if out.cp[i], out.have[i], err = loadCheckpoint(fsys, dir, name, warn); err != nil {
			return out, err
		}
		gens[i] = out.cp[i].generation
	}
	b, err := fsx.ReadFile(fsys, path.Join(dir, cleanStopFile), maxCheckpoint)
	if err != nil && !isErr(err, fs.ErrNotExist) {
		return out, err
	}
	out.clean = err == nil && out.have == [cpKinds]bool{true, true, true} && bytes.Equal(b, encodeCleanStop(gens))
	return out, nil
}

// loadCheckpoint reads one file; have says that it was there and whole.
func loadCheckpoint(fsys fsx.FS, dir, name string, warn func(msg string, args ...any)) (c checkpoint, have bool, err error) {
	empty := checkpoint{points: map[logKey]model.Offset{}}
	p := path.Join(dir, name)
	b, err := fsx.ReadFile(fsys, p, maxCheckpoint)
	if isErr(err, fs.ErrNotExist) {
		return empty, false, nil
	}
	if err != nil {
		return empty, false, err
	}
	if c, err = decodeCheckpoint(b, name); err != nil {
		warn("checkpoint is damaged", "file", name, "err", err)
		return empty, false, fsys.Rename(p, p+".damaged")
	}
	return c, true, nil
}
