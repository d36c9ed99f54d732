package check

import (
	"path"
	"slices"

	"tidewire/internal/model"
	"tidewire/storage/record"
)

// noteEpoch enters a batch's leader epoch.
func (p *partition) noteEpoch(h *record.BatchHeader) {
	epoch := h.LeaderEpoch
	p.epochEnds[epoch] = h.NextOffset()
	if h.NextOffset() > p.start && p.firstBatch < 0 {
		p.firstBatch = h.BaseOffset
	}
	if epoch > p.latest {
		p.latest = epoch
		p.epochs = append(p.epochs, epochEntry{epoch, h.BaseOffset})
	}
}

// checkEpochs compares the file of leader epochs with the headers of batches.
func (p *partition) checkEpochs() error {
	name := path.Join(p.dir, epochFile)
	b, have, err := p.c.read(name)
	if err != nil {
		return err
	}
	if !have {
		if len(p.epochs) > 0 && (p.clean || p.known && p.point > p.epochs[0].start) {
			p.c.report(Damage, name, nowhere, "the file is missing")
		}
		return nil
	}
	file, err := decodeEpochs(b)
	if err != nil {
		p.c.report(Damage, name, nowhere, "the file is damaged: %v", err)
		return nil
	}
	if p.broken || len(p.epochs) == 0 {
		return nil // in a log without records the file alone knows
	}
	sure := p.point // entries below it must be there
	if p.clean {
		sure = p.end
	}
	// What was before the log start may be forgotten, and after a kill still be in the file.
	want := sinceStart(p.epochs, max(p.start, p.segs[0].base))
	if !p.clean {
		file = sinceStart(file, max(p.start, p.segs[0].base))
	}
	for _, e := range want {
		if p.compacted && p.epochEnds[e.epoch] <= e.start { // one of which nothing is left may have followed it
			continue
		}
		if e.start < sure && !slices.ContainsFunc(file, func(f epochEntry) bool { return f.epoch == e.epoch }) {
			p.c.report(Damage, name, at{-1, e.start}, "the leader epoch %d, whose batches begin here, is missing", e.epoch)
		}
	}
	for i, f := range file {
		p.checkEpoch(name, f, i == 0, want)
	}
	return nil
}

// checkEpoch compares one entry. Compaction may have removed an epoch's first batches, or
// all of them.
func (p *partition) checkEpoch(name string, f epochEntry, first bool, want []epochEntry) {
	i := slices.IndexFunc(want, func(e epochEntry) bool { return e.epoch >= f.epoch })
	switch {
	case i >= 0 && want[i] == f:
	case f.start >= p.end: // a leader that wrote nothing, or nothing that is left
		if !p.clean || i < 0 && f.start == p.end {
			return
		}
		p.c.report(Damage, name, at{-1, f.start}, "the leader epoch %d begins beyond the log's end %d", f.epoch, p.end)
	case p.compacted && p.fitsGap(f, i, want):
	case first && i == 0 && want[0].epoch == f.epoch && f.start > want[0].start && f.start <= p.firstBatch:
		// All from the log start on was cut off, and what came then lies behind a gap.
	case first && i >= 0 && want[i].epoch == f.epoch && i == 0 && p.folder == nil:
		// The log start, from which the first epoch counts, is not known.
	default:
		p.c.report(Damage, name, at{-1, f.start}, "the leader epoch %d does not begin here by the batches' headers", f.epoch)
	}
}

// fitsGap reports whether the entry can be right where batches were removed: at its start
// neither an older epoch goes on nor a newer one has begun.
func (p *partition) fitsGap(f epochEntry, i int, want []epochEntry) bool {
	if i < 0 {
		return f.start >= p.lastOf(len(want)-1, want)
	}
	return want[i].start >= f.start && (i == 0 || f.start >= p.lastOf(i-1, want))
}

// lastOf is the end of the last batch of an epoch, as far as it was noted.
func (p *partition) lastOf(i int, want []epochEntry) model.Offset {
	return p.epochEnds[want[i].epoch]
}

// sinceStart forgets what lies below a log start: the epoch in force there begins there.
func sinceStart(e []epochEntry, start model.Offset) []epochEntry {
	n := 0
	for n < len(e) && e[n].start <= start {
		n++
	}
	if n == 0 || n == 1 && e[0].start == start {
		return e
	}
	out := slices.Clone(e[n-1:])
	out[0].start = start
	return out
}
