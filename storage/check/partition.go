package check

import (
	"fmt"
	"math"
	"path"
	"slices"
	"time"

	"tidewire/internal/model"
)

// partition is one log that is checked.
type partition struct {
	c      *checker
	dir    string
	name   string
	folder *folder // nil when the checkpoints are not known

	key       logKey
	haveID    bool
	sizes     map[string]int64
	modified  map[string]time.Time
	segs      []*segment
	snaps     []model.Offset
	compacted bool

	point  model.Offset // recovery point
	known  bool         // it is known
	clean  bool         // the log was stopped cleanly
	start  model.Offset // checkpointed log start
	end    model.Offset // of the batches
	torn   bool         // the log ends in a torn tail
	broken bool         // what was walked has a hole: what is derived cannot be compared

	epochs []epochEntry // as the headers say
	latest model.LeaderEpoch
	// epochEnds is by leader epoch the end of its last batch.
	epochEnds map[model.LeaderEpoch]model.Offset
	// firstBatch is the base offset of the first batch that reaches above the log start; -1
	// before it was met.
	firstBatch model.Offset
	state      replay
	newest     *snapshot
}

// segment is one .log file with what goes with it.
type segment struct {
	base   model.Offset
	size   int64
	last   bool // the one written to
	unsure bool // a start reads it anew, with its indexes
	broken bool // it was not walked to its end

	off, tim *indexFile
	spacing  spacing
	maxTs    int64
	aborts   []aborted                         // as a replay gives them
	markers  map[model.Offset]model.ProducerID // of aborts
	badTxn   bool
}

func (p *partition) file(base model.Offset, suffix string) string {
	return path.Join(p.dir, fmt.Sprintf("%020d%s", int64(base), suffix))
}

func (p *partition) run() error {
	p.c.sum.Logs++
	p.latest, p.epochEnds, p.firstBatch = model.NoEpoch, map[model.LeaderEpoch]model.Offset{}, -1
	if err := p.list(); err != nil {
		return err
	}
	if err := p.checkMetadata(); err != nil {
		return err
	}
	p.settle()
	for i := range p.segs {
		if err := p.walk(i); err != nil {
			return err
		}
		if p.torn {
			break
		}
	}
	if err := p.checkSnapshots(math.MaxInt64); err != nil {
		return err
	}
	p.checkEnd()
	p.completeIndexes()
	for _, check := range []func() error{p.checkEpochs, p.checkAborted, p.checkKeys, p.repair} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// list sorts the files of the folder.
func (p *partition) list() error {
	entries, err := p.c.fs.ReadDir(p.dir)
	if err != nil {
		return err
	}
	p.sizes, p.modified = map[string]int64{}, map[string]time.Time{}
	for _, e := range entries {
		p.sizes[e.Name], p.modified[e.Name] = e.Size, e.Modified
		base, suffix, ok := parseName(e.Name)
		switch {
		case e.Dir:
			p.c.report(Note, path.Join(p.dir, e.Name), nowhere, "a folder that does not belong here")
		case ok && suffix == logSuffix:
			p.segs = append(p.segs, &segment{base: base, size: e.Size, maxTs: -1, markers: map[model.Offset]model.ProducerID{}})
		case ok && suffix == snapshotSuffix:
			p.snaps = append(p.snaps, base)
		case ok, e.Name == metadataFile, e.Name == epochFile:
		case e.Name == keysFile:
		case e.Name == compactedFile:
			p.compacted = true
		case isLeftOver(e.Name):
			p.c.report(Note, path.Join(p.dir, e.Name), nowhere, "left over")
		default:
			p.c.report(Note, path.Join(p.dir, e.Name), nowhere, "a file that does not belong here")
		}
	}
	slices.SortFunc(p.segs, func(a, b *segment) int { return int(min(max(a.base-b.base, -1), 1)) })
	slices.Sort(p.snaps)
	if n := len(p.segs); n > 0 {
		p.segs[n-1].last = true
	}
	return nil
}

// checkMetadata reads the topic id, and the marker of compaction.
func (p *partition) checkMetadata() error {
	name := path.Join(p.dir, metadataFile)
	b, have, err := p.c.read(name)
	if err != nil {
		return err
	}
	if !have {
		p.c.report(Damage, name, nowhere, "the file is missing")
	} else if id, err := decodeMetadata(b); err != nil {
		p.c.report(Damage, name, nowhere, "the file is damaged: %v", err)
	} else if id.IsZero() {
		p.c.report(Damage, name, nowhere, "the topic id is zero")
	} else if _, n, ok := cutPartition(p.name); ok {
		p.key, p.haveID = logKey{id, n}, true
	}
	if !p.compacted {
		return nil
	}
	name = path.Join(p.dir, compactedFile)
	if b, _, err = p.c.read(name); err != nil {
		return err
	}
	if body, err := cutCRC(b); err != nil || string(body) != "tidewire-compacted 1\n" {
		p.c.report(Damage, name, nowhere, "the contents are damaged; that it is there still says that offsets may have gaps")
	}
	return nil
}

// settle takes what the checkpoints say of the log.
func (p *partition) settle() {
	f := p.folder
	p.clean = f != nil && f.clean
	p.point, p.known = f.get(cpRecovery, p.key)
	p.start, _ = f.get(cpLogStart, p.key)
	if f != nil && p.haveID {
		for kind, have := range f.have[:cpCleaner] {
			if _, ok := f.get(kind, p.key); have && !ok {
				sev := Note // a log that is new
				if p.clean {
					sev = Damage
				}
				p.c.report(sev, path.Join(p.dir, metadataFile), nowhere, "the topic id %s of this partition is not in the checkpoint %s", p.key.id, checkpointFiles[kind])
			}
		}
		p.known = f.have[cpRecovery]
	}
	for len(p.segs) > 1 && p.segs[1].base <= p.start {
		p.c.report(Note, p.file(p.segs[0].base, logSuffix), nowhere, "the segment lies below the log start %d; the next start removes it", p.start)
		p.segs = p.segs[1:]
	}
	for i, s := range p.segs {
		// A start after a kill reads from the segment of the recovery point on.
		s.unsure = !p.clean && (s.last || p.known && p.segs[i+1].base > p.point)
	}
	if len(p.segs) == 0 {
		p.end = p.start
		return
	}
	p.end = p.segs[0].base
	if first := p.segs[0].base; p.folder != nil && p.folder.have[cpLogStart] && p.start < first && p.haveID {
		p.c.report(Damage, p.file(first, logSuffix), at{-1, first}, "the first segment begins above the log start %d", p.start)
	}
	p.orphans()
}

// orphans looks for files of segments whose log is gone.
func (p *partition) orphans() {
	bases := map[model.Offset]bool{}
	for _, s := range p.segs {
		bases[s.base] = true
	}
	for name := range p.sizes {
		base, suffix, ok := parseName(name)
		if !ok || suffix == logSuffix || suffix == snapshotSuffix || bases[base] {
			continue
		}
		sev := Note // a deletion that was interrupted
		if base >= p.segs[0].base && base >= p.start {
			sev = Damage
		}
		p.c.report(sev, path.Join(p.dir, name), nowhere, "there is no .log file of this name")
	}
}

// checkEnd holds the end of the log against the checkpoints.
func (p *partition) checkEnd() {
	if p.folder == nil || !p.haveID || p.broken {
		return
	}
	last := path.Join(p.dir, metadataFile)
	if n := len(p.segs); n > 0 {
		last = p.file(p.segs[n-1].base, logSuffix)
	}
	recovery := path.Join(p.folder.dir, recoveryPointFile)
	switch {
	case p.end < p.point && p.end < max(p.start, 1) && p.start >= p.point: // it begins anew there
		p.c.report(Note, last, at{-1, p.end}, "the log ends below its log start %d", p.start)
	case p.end < p.point:
		p.c.report(Damage, last, at{-1, p.end}, "the log ends below its recovery point %d", p.point)
	case p.clean && p.folder.have[cpRecovery] && p.end != p.point:
		p.c.report(Damage, recovery, at{-1, p.point}, "after a clean stop the recovery point of %s is not the log's end %d", p.name, p.end)
	}
	if !p.clean {
		return
	}
	hw, ok := p.folder.get(cpReplication, p.key)
	if ok && (hw > p.end || hw < p.start) {
		p.c.report(Damage, path.Join(p.folder.dir, replicationFile), at{-1, hw}, "the high watermark of %s is outside of the log, [%d, %d]", p.name, p.start, p.end)
	}
	if p.start > p.end {
		p.c.report(Damage, path.Join(p.folder.dir, logStartFile), at{-1, p.start}, "the log start of %s is above the log's end %d", p.name, p.end)
	}
	if off, ok := p.folder.get(cpCleaner, p.key); ok && off > p.end {
		p.c.report(Damage, path.Join(p.folder.dir, cleanerFile), at{-1, off}, "the end of what is compacted of %s is above the log's end %d", p.name, p.end)
	}
}
