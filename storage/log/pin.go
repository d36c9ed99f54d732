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
func (x *Extent) Close() { x.f.Unpin() }

// Pin gives the batches from the one that holds from (or, after compaction, the next one)
// to the end of its segment, for who reads or sends them from the file; nil where the log
// has none below limit. Batches at or above limit may be in it: the caller stops there. CRCs
// and the order of the batches behind the first are not checked. Errors as of Read.
func (l *Log) Pin(from, limit model.Offset) (*Extent, error) {
	for {
		cuts := l.cuts.Load()
		var x *Extent
		err := l.within(from, limit, func(seg *segment, limit model.Offset) (found bool, err error) {
			x, found, err = l.pinSegment(seg, from, limit)
			return found, err
		})
		if l.cuts.Load() == cuts {
			return x, err
		}
		if x != nil {
			x.Close()
		}
	}
}

func (l *Log) pinSegment(seg *segment, from, limit model.Offset) (x *Extent, found bool, err error) {
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
	file := seg.f
	f, err := file.Pin()
	if err != nil {
		return nil, false, err
	}
	return &Extent{File: f, Pos: pos, End: size, First: h, Compacted: l.compacted.Load(), seg: seg, f: file, cut: cut}, true, nil
}
