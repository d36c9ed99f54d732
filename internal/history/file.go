package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"

	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/internal/sealed"
)

// The file (docs/formats.md): the names of the node's columns, its ring, the names of a
// topic's columns, the number of topics, and for each its id and ring. Lists of names are
// their number and each its length and bytes; a ring is its newest slot, the number of rows
// and these, oldest first, each value as the 32 bits of an IEEE 754 number, little-endian.
// Numbers are uvarints. All of this is persisted.
const (
	magic = sealed.Magic("TWHIST\x01")
	// maxFile is above the most that MaxTopics can take.
	maxFile = 64 << 20
)

var errForm = fmt.Errorf("%w: its content is not a history", sealed.ErrDamaged)

// Save writes the history to a file.
func (h *History) Save(disk fsx.FS, name string) error {
	return sealed.Write(disk, name, magic, h.encode())
}

func (h *History) encode() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := appendNames(nil, h.columnNames())
	b = h.node.append(b)
	b = appendNames(b, topicColumnNames())
	b = binary.AppendUvarint(b, uint64(len(h.topics)))
	for id, t := range h.topics {
		b = append(b, id[:]...)
		b = t.ring.append(b)
	}
	return b
}

// columnNames are the persisted names of the node's columns.
func (h *History) columnNames() []string {
	out := make([]string, h.node.columns)
	for _, d := range h.defs {
		if d.Topic {
			continue
		}
		if d.Aggregation != Quantile {
			out[d.column] = d.Name
			continue
		}
		base := d.Name[:len(d.Name)-len("_p50_ms")]
		for k := range len(h.bounds) + 1 {
			bound := "inf"
			if k < len(h.bounds) {
				bound = strconv.FormatFloat(h.bounds[k], 'g', -1, 64)
			}
			out[d.column+k] = base + "_le_" + bound
		}
	}
	return out
}

func topicColumnNames() []string {
	out := make([]string, topicColumns)
	for _, d := range defs(1) {
		if d.Topic {
			out[d.column] = d.Name
		}
	}
	return out
}

func appendNames(b []byte, names []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(names)))
	for _, n := range names {
		b = binary.AppendUvarint(b, uint64(len(n)))
		b = append(b, n...)
	}
	return b
}

func (r *ring) append(b []byte) []byte {
	first := r.first()
	b = binary.AppendUvarint(b, uint64(r.last))
	b = binary.AppendUvarint(b, uint64(r.last-first+1))
	for s := first; s <= r.last; s++ {
		for _, v := range r.row(s) {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
	}
	return b
}

// Load takes over what Save wrote; columns that this version does not have are left out. It
// must come before the first Record. A file that is not there is no error; one that is
// damaged is sealed.ErrDamaged, and nothing of it is used.
func (h *History) Load(disk fsx.FS, name string) error {
	b, err := sealed.Read(disk, name, magic, maxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	d := decoder{b: b}
	node := newRing(h.node.columns, h.node.slots)
	d.ring(&node, d.columns(h.columnNames()))
	columns := d.columns(topicColumnNames())
	n := d.count()
	topics := map[model.TopicID]*topic{}
	for range n {
		var id model.TopicID
		copy(id[:], d.bytes(uint64(len(id))))
		t := &topic{ring: newRing(topicColumns, topicSlots)}
		d.ring(&t.ring, columns)
		if d.bad || len(topics) >= MaxTopics {
			break
		}
		topics[id] = t
	}
	if d.bad || len(d.b) > 0 {
		return errForm
	}
	h.node, h.topics = node, topics
	return nil
}

// decoder reads the payload; bad is set by what does not fit.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) count() uint64 {
	n, used := binary.Uvarint(d.b)
	if used <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[used:]
	if n > math.MaxInt64 {
		d.bad = true
		return 0
	}
	return n
}

func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return nil
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

// columns reads names and tells for each which column of today it is; −1: none.
func (d *decoder) columns(today []string) []int {
	n := d.count()
	if n > uint64(len(d.b)) { // each name takes a byte at least
		d.bad, d.b = true, nil
		return nil
	}
	out := make([]int, 0, n)
	for range n {
		name, at := string(d.bytes(d.count())), -1
		for i, t := range today {
			if t == name {
				at = i
			}
		}
		out = append(out, at)
	}
	return out
}

func (d *decoder) ring(r *ring, columns []int) {
	last, n := d.count(), d.count()
	if n > uint64(r.slots) || n > last || len(columns) == 0 && n > 0 {
		d.bad, d.b = true, nil
		return
	}
	row := make([]float32, r.columns)
	for s := last - n + 1; s <= last && !d.bad && last > 0; s++ {
		clearRow(row)
		values := d.bytes(4 * uint64(len(columns)))
		if d.bad {
			return
		}
		for i, c := range columns {
			if c >= 0 {
				row[c] = math.Float32frombits(binary.LittleEndian.Uint32(values[4*i:]))
			}
		}
		r.put(int64(s), row)
	}
}
