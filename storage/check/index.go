package check

import (
	"encoding/binary"

	"tidewire/storage/record"
)

const (
	offsetEntrySize = 8
	timeEntrySize   = 12
	defaultInterval = 4096
)

// entry is one of either index: key is what it is sorted by first.
type entry struct {
	key int64 // relative offset, or timestamp
	val int64 // position, or relative offset
}

// indexFile is an index that is compared with the batches as they are walked by.
type indexFile struct {
	name    string
	size    int
	entries []entry
	i       int  // entries met
	bad     bool // a finding told so
}

func decodeEntry(b []byte, size int) entry {
	if size == offsetEntrySize {
		return entry{int64(int32(binary.BigEndian.Uint32(b))), int64(int32(binary.BigEndian.Uint32(b[4:])))}
	}
	return entry{int64(binary.BigEndian.Uint64(b)), int64(int32(binary.BigEndian.Uint32(b[8:])))}
}

func (e entry) append(b []byte, size int) []byte {
	if size == offsetEntrySize {
		b = binary.BigEndian.AppendUint32(b, uint32(e.key))
	} else {
		b = binary.BigEndian.AppendUint64(b, uint64(e.key))
	}
	return binary.BigEndian.AppendUint32(b, uint32(e.val))
}

// openIndex reads an index file and checks its order.
func (p *partition) openIndex(s *segment, suffix string, size int) (*indexFile, error) {
	x := &indexFile{name: p.file(s.base, suffix), size: size}
	b, have, err := p.c.read(x.name)
	if err != nil {
		return nil, err
	}
	if !have {
		// That of the segment in use comes into being with its first entries or a stop.
		x.bad = true
		if !s.unsure {
			p.c.report(Damage, x.name, nowhere, "the file is missing")
		}
		return x, nil
	}
	if len(b)%size != 0 {
		p.wrong(s, x, at{int64(len(b) - len(b)%size), -1}, "the file ends within an entry")
		return x, nil
	}
	prev := entry{-1, -1}
	for pos := 0; pos < len(b); pos += size {
		e := decodeEntry(b[pos:], size)
		if e.key <= prev.key || e.val <= prev.val {
			p.wrong(s, x, at{int64(pos), -1}, "the entry is out of order")
			return x, nil
		}
		prev = e
		x.entries = append(x.entries, e)
	}
	return x, nil
}

// wrong reports an index as damaged, once; where recovery makes it anew anyway, as a note.
func (p *partition) wrong(s *segment, x *indexFile, w at, what string) {
	if x.bad {
		return
	}
	x.bad = true
	sev := Damage
	if s.unsure {
		sev, what = Note, what+"; the next start makes the index anew"
	}
	p.c.report(sev, x.name, w, "%s", what)
}

// here gives the place of the entry that is due.
func (x *indexFile) here() at { return at{int64(x.i * x.size), -1} }

// spacing is what the offset index of a segment tells of index.interval.bytes: an entry is
// due when more bytes than that precede a batch since the last one.
type spacing struct {
	since   int64 // bytes since the last entry
	without int64 // the most bytes before a batch that has no entry
	with    int64 // the least bytes before a batch that has one; 0 when none has
	at      at    // of the batch of without
}

// meetIndexes compares both indexes with the batch of header h at a position.
func (p *partition) meetIndexes(s *segment, b *place) {
	rel := int64(b.h.LastOffset() - s.base)
	larger := b.h.MaxTimestamp > s.maxTs
	s.maxTs = max(s.maxTs, b.h.MaxTimestamp)
	t := s.tim
	if !t.bad && t.i < len(t.entries) && t.entries[t.i].val <= rel {
		if e := t.entries[t.i]; e.val < rel || e.key != b.h.MaxTimestamp || !larger {
			p.wrong(s, t, t.here(), "the entry is not that of a batch with the largest timestamp so far")
		} else {
			t.i++
		}
	}
	x := s.off
	if x.bad {
		return
	}
	sp := &s.spacing
	switch {
	case x.i == len(x.entries) || x.entries[x.i].val > b.pos:
		if sp.since > sp.without {
			sp.without, sp.at = sp.since, at{int64(x.i * x.size), b.h.BaseOffset}
		}
	case x.entries[x.i] != entry{rel, b.pos}:
		p.wrong(s, x, x.here(), "the entry points at no batch that ends at its offset")
		return
	default:
		x.i++
		if sp.with == 0 || sp.since < sp.with {
			sp.with = sp.since
		}
		sp.since = 0
		if !t.bad && s.maxTs >= 0 && (t.i == 0 || t.entries[t.i-1].key != s.maxTs) {
			p.wrong(s, t, at{t.here().pos, b.h.LastOffset()}, "an entry is missing: the largest timestamp at an entry of the offset index")
		}
	}
	sp.since += int64(b.h.Size())
}

// endIndexes ends the comparison at the end of a segment that was walked as a whole.
func (p *partition) endIndexes(s *segment) {
	for _, x := range []*indexFile{s.off, s.tim} {
		if x.i < len(x.entries) {
			p.wrong(s, x, x.here(), "the entry points beyond the last batch")
		}
	}
	t := s.tim
	if s.last || s.maxTs < 0 || t.bad || t.i > 0 && t.entries[t.i-1].key == s.maxTs {
		return
	}
	p.wrong(s, t, t.here(), "the last entry, that of the segment's largest timestamp, is missing")
}

// intervalOf is the index.interval.bytes to hold a segment against.
func (p *partition) intervalOf(s *segment) int64 {
	if p.c.o.IndexInterval > 0 {
		return int64(p.c.o.IndexInterval)
	}
	least, wide, all := int64(0), 0, 0
	for _, o := range p.segs {
		if o.broken || o.off == nil || o.off.bad {
			continue
		}
		all++
		if w := o.spacing.with; w > 0 && (least == 0 || w < least) {
			least = w
		}
		if o.spacing.without > defaultInterval {
			wide++
		}
	}
	switch {
	case (least == 0 || least > defaultInterval) && 2*wide < max(all, 2):
		return defaultInterval // as if written with the default all over
	case s.spacing.with > 0:
		return s.spacing.with - 1
	case least > 0:
		return least - 1
	}
	return defaultInterval
}

// completeIndexes finds offset indexes without entries that must be there.
func (p *partition) completeIndexes() {
	for _, s := range p.segs {
		if s.broken || s.off == nil || s.off.bad || s.unsure {
			continue
		}
		if n := p.intervalOf(s); s.spacing.without > n {
			p.wrong(s, s.off, s.spacing.at, "an entry is missing, or index.interval.bytes has changed (--index-interval tells it)")
		}
	}
}

// place is a batch in its file.
type place struct {
	h   record.BatchHeader
	pos int64
}

func (b *place) at() at { return at{b.pos, b.h.BaseOffset} }
