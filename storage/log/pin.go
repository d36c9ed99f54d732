package log

import (
	"tidewire/internal/fsx"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// Extent is what one segment's file has from a batch on, pinned: whatever becomes of the
// segment (retention, compaction, the log's end), the file stays open until Close and its
// bytes stay what they are, except for a truncation (see Intact). It is for one goroutine.
type Extent struct {
	File      fsx.File
	Pos, End  int64              // bytes of the file: whole batches
	First     record.BatchHeader // of the batch at Pos
	Compacted bool               // offsets may have gaps

	seg *segment
	f   logFile // of seg, pinned
	cut int64
}

// Intact reports whether no truncation of the log has come between that may have cut or
// replaced bytes of the extent. What was read before it said yes is what the log had.
func (x *Extent) Intact() bool { return x.seg.cut.Load() == x.cut }

// Close gives the file back.
func (x *Extent) Close() {
	if x.f != nil {
		x.f.Unpin()
	}
}

// Pin gives the batches from the one that holds from (or, after compaction, the next one)
// to the end of its segment, for who reads or sends them from the file; nil where the log
// has none below limit. Batches at or above limit may be in it: the caller stops there. CRCs
// and the order of the batches behind the first are not checked. Errors as of Read, and
// RateLimited where too many files are pinned.
func (l *Log) Pin(from, limit model.Offset) (*Extent, error) { return l.extent(from, limit, true) }

// First gives the header of the batch that Read begins with; not ok where there is none below
// limit. Errors as of Read.
func (l *Log) First(from, limit model.Offset) (h record.BatchHeader, ok bool, err error) {
	x, err := l.extent(from, limit, false)
	if x == nil {
		return h, false, err
	}
	return x.First, true, err
}

func (l *Log) extent(from, limit model.Offset, pin bool) (*Extent, error) {
	for {
		cuts := l.cuts.Load()
		var x *Extent
		err := l.within(from, limit, func(seg *segment, limit model.Offset) (found bool, err error) {
			if x, found, err = l.findExtent(seg, from, limit); x != nil && pin {
				err = x.pin()
			}
			return found, err
		})
		if err != nil {
			x = nil
		}
		if l.cuts.Load() == cuts {
			return x, err
		}
		if x != nil {
			x.Close()
		}
	}
}

func (l *Log) findExtent(seg *segment, from, limit model.Offset) (x *Extent, found bool, err error) {
	cut := seg.cut.Load()
	size := seg.size.Load()
	sc, err := l.store.scanner(seg, size, probeWindow)
	if err != nil {
		return nil, false, err
	}
	defer l.store.putScanner(sc)
	pos, h, err := l.locateNext(seg, sc, from)
	if err != nil || pos == size || h.BaseOffset >= limit {
		return nil, pos < size, err
	}
	return &Extent{Pos: pos, End: size, First: h, Compacted: l.compacted.Load(), seg: seg, cut: cut}, true, nil
}

func (x *Extent) pin() (err error) {
	if x.File, err = x.seg.f.Pin(); err == nil {
		x.f = x.seg.f
	}
	return err
}
