// Package checkpoint is the format of a data folder's checkpoints: one file for each kind
// of offset, with an entry for each log. storage/log reads and writes the files.
//
// They are text: a version line with the kind, the generation, the count, one line
// "topic-id partition offset" per log, sorted, and a CRC-32C of all that precedes it.
package checkpoint

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"sort"
	"strconv"
	"strings"

	"tidewire/internal/model"
)

const magic = "tidewire-checkpoint 1 "

// Key names a log across deletions and re-creations of its topic.
type Key struct {
	ID        model.TopicID
	Partition model.PartitionID
}

// File is one file's contents.
type File struct {
	Generation uint64               // grows with each write of any kind
	Points     map[Key]model.Offset // what the file is about: one offset a log
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode gives the bytes of a file of a kind.
func (c *File) Encode(kind string) []byte {
	keys := make([]Key, 0, len(c.Points))
	for k := range c.Points {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool {
		if d := bytes.Compare(keys[i].ID[:], keys[j].ID[:]); d != 0 {
			return d < 0
		}
		return keys[i].Partition < keys[j].Partition
	})
	b := fmt.Appendf(make([]byte, 0, 64+60*len(keys)), "%s%s\ngeneration %d\nentries %d\n",
		magic, kind, c.Generation, len(keys))
	for _, k := range keys {
		b = fmt.Appendf(b, "%s %d %d\n", k.ID, k.Partition, c.Points[k])
	}
	return Seal(b)
}

// Seal adds the last line to a text, which every file of a data folder ends with: the
// CRC-32C of all that precedes it.
func Seal(b []byte) []byte {
	return fmt.Appendf(b, "crc32c %08x\n", crc32.Checksum(b, castagnoli))
}

// Open verifies and removes the last line, which Seal has added.
func Open(b []byte) ([]byte, error) {
	i := bytes.LastIndex(bytes.TrimSuffix(b, []byte("\n")), []byte("\n"))
	body := b[:i+1]
	if !bytes.Equal(b[i+1:], Seal(bytes.Clone(body))[len(body):]) {
		return nil, errors.New("wrong checksum")
	}
	return body, nil
}

// Decode reads what Encode gave for the same kind; the error tells what is wrong.
func Decode(b []byte, kind string) (File, error) {
	var c File
	body, err := Open(b)
	if err != nil {
		return c, err
	}
	lines := strings.Split(strings.TrimSuffix(string(body), "\n"), "\n")
	if len(lines) < 3 || lines[0] != magic+kind {
		return c, errors.New("not a checkpoint of this kind")
	}
	gen, ok1 := strings.CutPrefix(lines[1], "generation ")
	count, ok2 := strings.CutPrefix(lines[2], "entries ")
	n, err1 := strconv.Atoi(count)
	g, err2 := strconv.ParseUint(gen, 10, 64)
	if !ok1 || !ok2 || err1 != nil || err2 != nil || n != len(lines)-3 {
		return c, errors.New("bad head")
	}
	c = File{Generation: g, Points: make(map[Key]model.Offset, n)}
	for _, line := range lines[3:] {
		k, off, err := decodePoint(line)
		if err != nil {
			return File{}, err
		}
		c.Points[k] = off
	}
	if len(c.Points) != n {
		return File{}, errors.New("an entry repeats")
	}
	return c, nil
}

func decodePoint(line string) (Key, model.Offset, error) {
	f := strings.Split(line, " ")
	if len(f) != 3 {
		return Key{}, 0, fmt.Errorf("bad entry %q", line)
	}
	id, err := model.ParseTopicID(f[0])
	p, err1 := strconv.ParseInt(f[1], 10, 32)
	off, err2 := strconv.ParseInt(f[2], 10, 64)
	if err := cmp.Or(err, err1, err2); err != nil || off < 0 || p < 0 {
		return Key{}, 0, fmt.Errorf("bad entry %q", line)
	}
	return Key{id, model.PartitionID(p)}, model.Offset(off), nil
}
