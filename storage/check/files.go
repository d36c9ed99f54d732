package check

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"

	"tidewire/internal/model"
)

// Names in a data folder and in a partition's.
const (
	topicsDir = "topics"
	trashDir  = "trash"

	recoveryPointFile = "recovery-point"
	replicationFile   = "replication"
	logStartFile      = "log-start"
	cleanerFile       = "cleaner"
	cleanStopFile     = "clean-stop"

	metadataFile  = "partition.metadata"
	epochFile     = "leader-epoch-checkpoint"
	compactedFile = "compacted"
	keysFile      = "idempotency-keys"

	logSuffix       = ".log"
	indexSuffix     = ".index"
	timeIndexSuffix = ".timeindex"
	txnIndexSuffix  = ".txnindex"
	snapshotSuffix  = ".snapshot"

	maxFile = 1 << 30
)

// checkpointFiles are the checkpoints of a data folder; a clean stop names their
// generations.
var checkpointFiles = [cpKinds]string{recoveryPointFile, replicationFile, logStartFile, cleanerFile}

// The kinds of checkpoint, as indexes into checkpointFiles.
const (
	cpRecovery = iota
	cpReplication
	cpLogStart
	cpCleaner // the last: not every folder has one
	cpKinds
)

var segmentSuffixes = []string{logSuffix, indexSuffix, timeIndexSuffix, txnIndexSuffix, snapshotSuffix}

// leftSuffixes are those of files that an interrupted operation leaves behind.
var leftSuffixes = []string{".deleted", ".cleaned", ".swap", ".tmp", ".damaged"}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func isDataFile(name string) bool {
	return name == cleanStopFile || slices.Contains(checkpointFiles[:], name)
}

func isPartitionFile(name string) bool {
	if name == metadataFile || name == epochFile || name == compactedFile || name == keysFile {
		return true
	}
	_, _, ok := parseName(name)
	return ok
}

// parseName splits the name of a segment's file, or of a snapshot.
func parseName(name string) (base model.Offset, suffix string, ok bool) {
	for _, suffix := range segmentSuffixes {
		digits, ok := strings.CutSuffix(name, suffix)
		if !ok || len(digits) != 20 {
			continue
		}
		if n, err := strconv.ParseUint(digits, 10, 63); err == nil {
			return model.Offset(n), suffix, true
		}
	}
	return 0, "", false
}

func isLeftOver(name string) bool {
	return slices.ContainsFunc(leftSuffixes, func(s string) bool { return strings.HasSuffix(name, s) })
}

// logKey names a log in the checkpoints.
type logKey struct {
	id model.TopicID
	p  model.PartitionID
}

// point is an entry of a checkpoint.
type point struct {
	key logKey
	off model.Offset
}

// checkpoint is one file of the data folder.
type checkpoint struct {
	generation uint64
	points     []point
}

func (c *checkpoint) get(k logKey) (model.Offset, bool) {
	for _, p := range c.points {
		if p.key == k {
			return p.off, true
		}
	}
	return 0, false
}

var errChecksum = errors.New("the checksum is wrong")

// cutCRC verifies and removes the last line.
func cutCRC(b []byte) ([]byte, error) {
	i := bytes.LastIndexByte(bytes.TrimSuffix(b, []byte("\n")), '\n')
	body := b[:i+1]
	if string(b[i+1:]) != fmt.Sprintf("crc32c %08x\n", crc32.Checksum(body, castagnoli)) {
		return nil, errChecksum
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
	if len(lines) < 3 || lines[0] != "tidewire-checkpoint 1 "+kind {
		return c, errors.New("it is no checkpoint of this kind, version 1")
	}
	var n int
	if _, err := fmt.Sscanf(lines[1]+"\n"+lines[2], "generation %d\nentries %d", &c.generation, &n); err != nil || n != len(lines)-3 {
		return c, errors.New("its head does not fit its lines")
	}
	for _, line := range lines[3:] {
		p, err := decodePoint(line)
		if err != nil {
			return c, err
		}
		if k := len(c.points); k > 0 && !c.points[k-1].key.less(p.key) {
			return c, fmt.Errorf("the entry %q is out of order", line)
		}
		c.points = append(c.points, p)
	}
	return c, nil
}

func (k logKey) less(o logKey) bool {
	d := bytes.Compare(k.id[:], o.id[:])
	return d < 0 || d == 0 && k.p < o.p
}

func decodePoint(line string) (point, error) {
	f := strings.Split(line, " ")
	if len(f) == 3 {
		id, err := model.ParseTopicID(f[0])
		p, err1 := strconv.ParseUint(f[1], 10, 31)
		off, err2 := strconv.ParseUint(f[2], 10, 63)
		if firstErr(err, err1, err2) == nil {
			return point{logKey{id, model.PartitionID(p)}, model.Offset(off)}, nil
		}
	}
	return point{}, fmt.Errorf("the entry %q is none", line)
}

// decodeCleanStop gives the generations that the marker names.
func decodeCleanStop(b []byte) (gens [cpKinds]uint64, err error) {
	body, err := cutCRC(b)
	if err != nil {
		return gens, err
	}
	lines := strings.Split(strings.TrimSuffix(string(body), "\n"), "\n")
	if len(lines) != 1+cpKinds || lines[0] != "tidewire-clean-stop 1" {
		return gens, errors.New("it is no marker of version 1")
	}
	for i := range gens {
		text, ok := strings.CutPrefix(lines[i+1], checkpointFiles[i]+" ")
		if gens[i], err = strconv.ParseUint(text, 10, 64); !ok || err != nil {
			return gens, fmt.Errorf("the line %q is none of a marker", lines[i+1])
		}
	}
	return gens, nil
}

func decodeMetadata(b []byte) (model.TopicID, error) {
	var id model.TopicID
	text, ok := strings.CutPrefix(string(b), "version: 0\ntopic_id: ")
	text = strings.TrimSuffix(text, "\n")
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if !ok || err != nil || len(raw) != len(id) || base64.RawURLEncoding.EncodeToString(raw) != text {
		return id, errors.New("it does not hold version 0 and a topic id")
	}
	copy(id[:], raw)
	return id, nil
}

// epochEntry says at which offset the records of a leader epoch begin.
type epochEntry struct {
	epoch model.LeaderEpoch
	start model.Offset
}

func decodeEpochs(b []byte) ([]epochEntry, error) {
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	if len(lines) < 2 || lines[0] != "0" {
		return nil, errors.New("it is not of version 0")
	}
	if n, err := strconv.Atoi(lines[1]); err != nil || n != len(lines)-2 {
		return nil, errors.New("the count does not fit the entries")
	}
	out := make([]epochEntry, 0, len(lines)-2)
	for _, line := range lines[2:] {
		es, ss, _ := strings.Cut(line, " ")
		epoch, err1 := strconv.ParseUint(es, 10, 31)
		start, err2 := strconv.ParseUint(ss, 10, 63)
		if err := firstErr(err1, err2); err != nil {
			return nil, fmt.Errorf("the entry %q is none", line)
		}
		e := epochEntry{model.LeaderEpoch(epoch), model.Offset(start)}
		if k := len(out); k > 0 && (out[k-1].epoch >= e.epoch || out[k-1].start >= e.start) {
			return nil, fmt.Errorf("the entry %q is out of order", line)
		}
		out = append(out, e)
	}
	if !bytes.Equal(encodeEpochs(out), b) {
		return nil, errors.New("it is not written as such a file is")
	}
	return out, nil
}

func encodeEpochs(entries []epochEntry) []byte {
	b := fmt.Appendf(nil, "0\n%d\n", len(entries))
	for _, e := range entries {
		b = fmt.Appendf(b, "%d %d\n", e.epoch, e.start)
	}
	return b
}
