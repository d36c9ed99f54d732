package check

import (
	"slices"

	"tidewire/internal/fsx"
)

// repair makes the indexes anew that are damaged or missing. What a start makes anew by
// itself, and what cannot be known for damage in the log, is left.
func (p *partition) repair() error {
	if !p.c.o.RepairIndexes {
		return nil
	}
	for _, s := range p.segs {
		bad := s.off != nil && (s.off.bad || s.tim.bad)
		if !bad && !s.badTxn || s.unsure {
			continue
		}
		if s.broken || p.broken {
			p.c.report(Note, p.file(s.base, logSuffix), nowhere, "indexes are not made anew, as there is damage in the log")
			continue
		}
		if bad {
			if err := p.rebuild(s); err != nil {
				return err
			}
		}
		if s.badTxn {
			if err := p.rebuildAborted(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// rebuild writes both indexes of a segment by the rule by which a log writes them.
func (p *partition) rebuild(s *segment) error {
	interval := p.intervalOf(s)
	r, err := p.c.openLog(p.file(s.base, logSuffix))
	if err != nil {
		return err
	}
	defer r.f.Close()
	var off, tim []entry
	largest, since := entry{-1, -1}, int64(0)
	note := func() {
		if n := len(tim); largest.key >= 0 && (n == 0 || tim[n-1].key < largest.key) {
			tim = append(tim, largest)
		}
	}
	for pos := int64(0); pos < r.size; {
		h, err := r.header(pos)
		if err != nil {
			return err
		}
		rel := int64(h.LastOffset() - s.base)
		if h.MaxTimestamp > largest.key {
			largest = entry{h.MaxTimestamp, rel}
		}
		if since > interval {
			off = append(off, entry{rel, pos})
			note()
			since = 0
		}
		since += int64(h.Size())
		pos += int64(h.Size())
	}
	if !s.last {
		note()
	}
	if err := p.writeIndex(s.off, off); err != nil {
		return err
	}
	return p.writeIndex(s.tim, tim)
}

// writeIndex replaces an index file, unless it holds these entries.
func (p *partition) writeIndex(x *indexFile, entries []entry) error {
	b := make([]byte, 0, len(entries)*x.size)
	for _, e := range entries {
		b = e.append(b, x.size)
	}
	return p.replace(x.name, b, len(entries))
}

func (p *partition) replace(name string, b []byte, entries int) error {
	old, have, err := p.c.read(name)
	if err != nil || have && slices.Equal(old, b) {
		return err
	}
	if err := fsx.WriteFile(p.c.fs, name, b); err != nil {
		return err
	}
	p.c.report(Repaired, name, nowhere, "made anew from the log, with %d entries", entries)
	return nil
}

// rebuildAborted writes a segment's index of aborted transactions as the replay gives it.
func (p *partition) rebuildAborted(s *segment) error {
	name := p.file(s.base, txnIndexSuffix)
	switch {
	case !p.c.o.Deep:
		p.c.report(Note, name, nowhere, "not made anew: that takes a deep check")
		return nil
	case p.compacted || p.state.unknown:
		p.c.report(Note, name, nowhere, "not made anew: the log does not hold all that it takes; the next start does what can be done")
		return nil
	}
	if len(s.aborts) == 0 {
		if err := p.c.fs.Remove(name); err != nil {
			return err
		}
		p.c.report(Repaired, name, nowhere, "removed: the log has no aborted transaction here")
		return p.c.fs.SyncDir(p.dir)
	}
	var b []byte
	for _, a := range s.aborts {
		b = a.append(b)
	}
	return p.replace(name, b, len(s.aborts))
}
