package check

import (
	"encoding/base64"
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"tidewire/storage/record"
)

// maxShown is how many bytes of a key or value Dump gives.
const maxShown = 256

// Item is one thing that Dump prints: a batch, a record, an entry of an index, of a
// snapshot or of a checkpoint.
type Item struct {
	File   string         `json:"file"`
	Kind   string         `json:"kind"` // batch, record, entry, producer, line, error
	Fields map[string]any `json:"fields"`
	order  []string
}

// String is the item as one line, its fields in order.
func (x *Item) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", x.File, x.Kind)
	for _, k := range x.order {
		if s, ok := x.Fields[k].(string); ok {
			fmt.Fprintf(&b, " %s=%q", k, s)
			continue
		}
		fmt.Fprintf(&b, " %s=%v", k, x.Fields[k])
	}
	return b.String()
}

// dumper is one Dump.
type dumper struct {
	*checker
	show func(*Item) error
}

// Dump gives what the files under Options.Path hold, with Deep the records too: keys and
// values as text, or in base64 where they are not UTF-8, of each the first 256 bytes. What
// cannot be read is an item of kind error, and ends the file. Errors: of I/O, of show, and
// ErrNothing.
func Dump(o Options, show func(*Item) error) error {
	d := &dumper{newChecker(o, func(Finding) {}), show}
	t, err := locate(d.fs, d.o.Path)
	if err != nil {
		return err
	}
	d.root = t.root
	if t.only != "" {
		return d.file(d.o.Path)
	}
	if err := d.folder(t.root); err != nil || !t.data {
		return err
	}
	names, err := d.partitionsOf(t.root)
	for _, name := range names {
		if err == nil {
			err = d.folder(path.Join(t.root, topicsDir, name))
		}
	}
	return err
}

func (d *dumper) folder(dir string) error {
	entries, err := d.fs.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Dir || !isDataFile(e.Name) && !isPartitionFile(e.Name) {
			continue
		}
		if err := d.file(path.Join(dir, e.Name)); err != nil {
			return err
		}
	}
	return nil
}

// item shows fields given as names and values in turn.
func (d *dumper) item(name, kind string, pairs ...any) error {
	x := &Item{File: strings.TrimPrefix(strings.TrimPrefix(name, d.root), "/"), Kind: kind, Fields: map[string]any{}}
	for i := 0; i+1 < len(pairs); i += 2 {
		k, _ := pairs[i].(string)
		x.order = append(x.order, k)
		x.Fields[k] = pairs[i+1]
	}
	return d.show(x)
}

func (d *dumper) file(name string) error {
	base, suffix, ok := parseName(path.Base(name))
	if ok && suffix == logSuffix {
		return d.batches(name)
	}
	b, have, err := d.read(name)
	if err != nil || !have {
		return err
	}
	switch suffix {
	case indexSuffix:
		return d.index(name, b, offsetEntrySize)
	case timeIndexSuffix:
		return d.index(name, b, timeEntrySize)
	case txnIndexSuffix:
		entries, err := decodeAborted(b, base)
		for _, a := range entries {
			if serr := d.item(name, "entry", "producer_id", a.id, "first_offset", a.first, "last_offset", a.last, "last_stable_offset", a.stable); serr != nil {
				return serr
			}
		}
		return d.bad(name, err)
	case snapshotSuffix:
		s, err := decodeSnapshot(b, base)
		if err != nil {
			return d.bad(name, err)
		}
		return d.snapshot(name, s)
	}
	for line := range strings.Lines(string(b)) {
		if err := d.item(name, "line", "text", strings.TrimSuffix(line, "\n")); err != nil {
			return err
		}
	}
	return nil
}

// bad shows what is wrong with a file, if anything.
func (d *dumper) bad(name string, err error) error {
	if err == nil {
		return nil
	}
	return d.item(name, "error", "error", fmt.Sprint(err))
}

func (d *dumper) index(name string, b []byte, size int) error {
	for pos := 0; pos+size <= len(b); pos += size {
		e := decodeEntry(b[pos:], size)
		var err error
		if size == offsetEntrySize {
			err = d.item(name, "entry", "relative_offset", e.key, "position", e.val)
		} else {
			err = d.item(name, "entry", "timestamp", e.key, "relative_offset", e.val)
		}
		if err != nil {
			return err
		}
	}
	if len(b)%size != 0 {
		return d.bad(name, errors.New("the file ends within an entry"))
	}
	return nil
}

func (d *dumper) snapshot(name string, s *snapshot) error {
	for _, id := range s.ids {
		p := s.byID[id]
		err := d.item(name, "producer", "producer_id", id, "epoch", p.epoch, "coordinator_epoch", p.coord, "last_timestamp", p.lastTs, "open_transaction", p.txnFirst)
		for _, b := range p.batches {
			if err == nil {
				err = d.item(name, "entry", "producer_id", id, "last_sequence", b.seq, "last_offset", b.last, "offset_delta", b.delta, "timestamp", b.ts)
			}
		}
		if err != nil {
			return err
		}
	}
	for _, t := range s.txns {
		if err := d.item(name, "entry", "segment", t.base, "aborted", t.count, "crc32c", fmt.Sprintf("%08x", t.crc)); err != nil {
			return err
		}
	}
	return nil
}

func (d *dumper) batches(name string) error {
	r, err := d.openLog(name)
	if err != nil {
		return err
	}
	defer r.f.Close()
	for pos := int64(0); pos < r.size; {
		h, err := r.header(pos)
		var bad *errFrame
		if errors.As(err, &bad) {
			return d.item(name, "error", "position", pos, "error", fmt.Sprint(bad))
		}
		if err == nil {
			err = d.item(name, "batch", "position", pos, "base_offset", h.BaseOffset, "last_offset", h.LastOffset(), "bytes", h.Size(),
				"leader_epoch", h.LeaderEpoch, "crc32c", fmt.Sprintf("%08x", h.CRC), "codec", h.Attributes.Codec().String(),
				"append_time", h.Attributes.Has(record.AttrLogAppendTime), "transactional", h.Attributes.Has(record.AttrTransactional),
				"control", h.Attributes.Has(record.AttrControl), "delete_horizon", h.Attributes.Has(record.AttrDeleteHorizon),
				"base_timestamp", h.BaseTimestamp, "max_timestamp", h.MaxTimestamp, "producer_id", h.ProducerID, "producer_epoch", h.ProducerEpoch,
				"base_sequence", h.BaseSequence, "count", h.Count)
		}
		if err == nil && d.o.Deep {
			err = d.records(name, r, &place{h, pos})
		}
		if err != nil {
			return err
		}
		pos += int64(h.Size())
	}
	return nil
}

func (d *dumper) records(name string, r *reader, at *place) error {
	raw, err := r.window(at.pos, at.h.Size())
	if err != nil {
		return err
	}
	b := record.Batch{Header: at.h, Bytes: raw}
	if err := b.VerifyCRC(); err != nil {
		return d.bad(name, err)
	}
	if err := b.Records(d.inflate, &d.it); err != nil {
		return d.bad(name, err)
	}
	for d.it.Next() {
		x := d.it.Record()
		pairs := []any{"offset", x.Offset, "timestamp", x.Timestamp}
		pairs = shown(pairs, "key", x.Key)
		pairs = shown(pairs, "value", x.Value)
		for _, h := range x.Headers {
			pairs = shown(pairs, "header "+string(h.Name), h.Value)
		}
		if err := d.item(name, "record", pairs...); err != nil {
			return err
		}
	}
	return d.bad(name, d.it.Err())
}

// shown adds bytes as text, or in base64 under <name>_base64, and how many there were if not
// all are given.
func shown(pairs []any, name string, b []byte) []any {
	if b == nil {
		return append(pairs, name, nil)
	}
	part := b[:min(len(b), maxShown)]
	for len(part) < len(b) && len(part) > maxShown-utf8.UTFMax && !utf8.Valid(part) {
		part = part[:len(part)-1] // not within a character
	}
	if utf8.Valid(part) {
		pairs = append(pairs, name, string(part))
	} else {
		part = b[:min(len(b), maxShown)]
		pairs = append(pairs, name+"_base64", base64.StdEncoding.EncodeToString(part))
	}
	if len(part) < len(b) {
		pairs = append(pairs, name+"_bytes", len(b))
	}
	return pairs
}
