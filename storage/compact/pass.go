package compact

import (
	"tidewire/internal/model"
	"tidewire/storage/record"
)

// Keeper tells what must stay for the sake of producers.
type Keeper interface {
	// KeepsData reports whether the batch that ends at last is the last one of its producer.
	KeepsData(id model.ProducerID, last model.Offset) bool
	// KeepsMarker reports whether nothing but a marker of this epoch is known of a producer.
	KeepsMarker(id model.ProducerID, epoch model.ProducerEpoch) bool
}

// Options is what a Pass needs. Times are milliseconds since 1970.
type Options struct {
	Map         *Map
	Inflate     *record.Decompressor
	Producers   Keeper
	Now         int64
	DeleteAfter int64 // delete.retention.ms
}

// Stats counts what a pass has met.
type Stats struct {
	Records, Kept int64 // of the second reading, without markers
	Tombstones    int64 // gone because their delete horizon has passed
	Superseded    int64
	Aborted       int64
	Keyless       int64
	Markers       int64 // gone
}

// Pass is one compaction of one log. It is not safe for concurrent use.
type Pass struct {
	o       Options
	from    model.Offset // of what is dirty
	covered model.Offset // what the map has, begins nowhere and ends here
	lasts   offsetSet    // made by Rewind, where there is room: the map's offsets from from on
	keyless int64        // met by Note
	txns    txns
	it      record.Iterator
	out     record.Rewriter
	recs    []hashed // of the present batch
	stats   Stats
}

// hashed is what a decision needs of a record. The keys of a batch are hashed first and
// looked up then: so the processor waits for several places of the map at a time.
type hashed struct {
	hi, lo uint64
	off    model.Offset
	keyed  bool
	null   bool
	drop   bool
}

// readBatch reads a batch's records, and hashes their keys unless their offsets are enough.
func (p *Pass) readBatch(b *record.Batch, hash bool) error {
	if err := b.Records(p.o.Inflate, &p.it); err != nil {
		return err
	}
	p.recs = p.recs[:0]
	for p.it.Next() {
		r := p.it.Record()
		x := hashed{off: r.Offset, keyed: r.Key != nil, null: r.Value == nil}
		if hash && x.keyed {
			x.hi, x.lo = p.o.Map.hash(r.Key)
		}
		p.recs = append(p.recs, x)
	}
	return p.it.Err()
}

// NewPass begins a pass with the reading of what is dirty, from an offset on.
func NewPass(o Options, from model.Offset) *Pass { return &Pass{o: o, from: from, covered: from} }

// Covered is the end of what the map knows: records from there on all stay.
func (p *Pass) Covered() model.Offset { return p.covered }

// Stats is what was met so far.
func (p *Pass) Stats() Stats { return p.stats }

// AddAborted makes the aborted transactions known that have their first offset in what is
// read next; on the first call of a reading, also those with a lower one.
func (p *Pass) AddAborted(list []Aborted) { p.txns.add(list) }

// Rewind begins the second reading.
func (p *Pass) Rewind() {
	p.txns = txns{}
	p.lasts = p.o.Map.offsets(p.from, p.covered)
	// Of what is dirty the second reading sees only that nothing has these offsets.
	p.stats.Keyless, p.stats.Superseded = p.keyless, -p.keyless
	if !p.lasts.known() {
		p.stats.Keyless, p.stats.Superseded = 0, 0
	}
}

// knows tells that of a batch as a whole the offsets alone say what stays.
func (p *Pass) knows(h *record.BatchHeader) bool { return p.lasts.known() && h.BaseOffset >= p.from }

// Note enters the keys of a batch of the dirty section. full says that the map has no room
// for more: the reading ends. Errors: CorruptBatch, RecordTooLarge.
func (p *Pass) Note(b *record.Batch) (full bool, err error) {
	h := &b.Header
	if err := b.VerifyCRC(); err != nil {
		return false, err
	}
	if h.Attributes.Has(record.AttrControl) {
		p.txns.marker(h)
		p.covered = max(p.covered, h.NextOffset())
		return false, nil
	}
	if p.txns.batch(h) || h.Count == 0 || h.NextOffset() <= p.covered {
		p.covered = max(p.covered, h.NextOffset())
		return false, nil
	}
	if err := p.readBatch(b, true); err != nil {
		return false, err
	}
	for i := range p.recs {
		r := &p.recs[i]
		if r.off < p.covered {
			continue
		}
		if !r.keyed && h.BaseOffset >= p.from {
			p.keyless++
		}
		if r.keyed && !p.o.Map.put(r.hi, r.lo, r.off) {
			return true, nil
		}
		p.covered = r.off + 1
	}
	p.covered = max(p.covered, h.NextOffset())
	return false, nil
}

// Clean gives what stays of a batch: nothing, the bytes of b themselves, or others, valid
// until the next call. last says that the batch is the last one of what becomes a segment,
// of which at least the header stays. marker tells that the batch ends a transaction whose
// entry in the index of aborted ones, if it has one, is still needed. Errors: CorruptBatch,
// RecordTooLarge.
func (p *Pass) Clean(b *record.Batch, last bool) (out []byte, marker bool, err error) {
	if err := b.VerifyCRC(); err != nil {
		return nil, false, err
	}
	if b.Header.Attributes.Has(record.AttrControl) {
		return p.cleanControl(b, last)
	}
	h := &b.Header
	aborted := p.txns.batch(h)
	keepEmpty := last || h.ProducerID >= 0 && p.o.Producers.KeepsData(h.ProducerID, h.LastOffset())
	if h.Count == 0 {
		if keepEmpty {
			return b.Bytes, false, nil
		}
		return nil, false, nil
	}
	kept, stamp := 0, false
	if aborted {
		p.stats.Records += int64(h.Count)
		p.stats.Aborted += int64(h.Count)
	} else if p.knows(h) && h.NextOffset() <= p.covered && !p.lasts.anyIn(h.BaseOffset, h.LastOffset()) {
		p.stats.Records += int64(h.Count)
		p.stats.Superseded += int64(h.Count)
	} else if kept, stamp, err = p.choose(b); err != nil {
		return nil, false, err
	}
	switch {
	case kept == 0 && keepEmpty:
		p.out.Begin(h)
		out, err = p.out.Finish()
		return out, false, err
	case kept == 0:
		return nil, false, nil
	case kept == int(h.Count) && !stamp:
		return b.Bytes, false, nil
	}
	out, err = p.rewrite(b, stamp)
	return out, false, err
}

// choose marks the records that go, and tells how many stay and whether the batch needs a
// delete horizon.
func (p *Pass) choose(b *record.Batch) (kept int, stamp bool, err error) {
	h := &b.Header
	known := p.knows(h)
	if err := p.readBatch(b, !known); err != nil {
		return 0, false, err
	}
	horizon := h.Attributes.Has(record.AttrDeleteHorizon)
	expired := horizon && h.BaseTimestamp <= p.o.Now
	for i := range p.recs {
		r := &p.recs[i]
		if known {
			r.drop = p.goesKnown(r, expired)
		} else {
			r.drop = p.goes(r, expired)
		}
		if r.drop {
			continue
		}
		kept++
		// Not while the map ends within the batch: its later tombstones would go too early.
		if r.null && !horizon && h.NextOffset() <= p.covered {
			stamp = true
		}
	}
	p.stats.Records += int64(len(p.recs))
	p.stats.Kept += int64(kept)
	return kept, stamp, nil
}

func (p *Pass) goes(r *hashed, expired bool) bool {
	switch {
	case r.off >= p.covered:
		return false
	case !r.keyed:
		p.stats.Keyless++
		return true
	case model.Offset(p.o.Map.find(r.hi, r.lo).next-1) > r.off:
		p.stats.Superseded++
		return true
	case r.null && expired:
		p.stats.Tombstones++
		return true
	}
	return false
}

// goesKnown is goes for a record of what is dirty.
func (p *Pass) goesKnown(r *hashed, expired bool) bool {
	switch {
	case r.off >= p.covered:
		return false
	case !p.lasts.has(r.off):
		p.stats.Superseded++
		return true
	case r.null && expired:
		p.stats.Tombstones++
		return true
	}
	return false
}

// rewrite makes the batch that choose went through anew, without the records it marked.
func (p *Pass) rewrite(b *record.Batch, stamp bool) ([]byte, error) {
	p.it.Rewind()
	p.out.Begin(&b.Header)
	if stamp {
		p.out.SetDeleteHorizon(p.o.Now + p.o.DeleteAfter)
	}
	for i := 0; p.it.Next(); i++ {
		if !p.recs[i].drop {
			p.out.Keep(&p.it)
		}
	}
	if err := p.it.Err(); err != nil {
		return nil, err
	}
	return p.out.Finish()
}

// cleanControl keeps every control batch but the markers of transactions of which nothing
// else is left, once their delete horizon has passed. From the end of what is covered on all stay:
// who reads the log later takes a transaction to have ended, though no marker says so, only where
// a pass came by.
func (p *Pass) cleanControl(b *record.Batch, last bool) (out []byte, marker bool, err error) {
	h := &b.Header
	if h.Count == 0 {
		if last {
			return b.Bytes, false, nil
		}
		return nil, false, nil
	}
	_, ok, err := b.Marker()
	if err != nil {
		return nil, false, err
	}
	if !ok { // of a type that is not known here
		return b.Bytes, false, nil
	}
	alone := p.txns.marker(h)
	horizon := h.Attributes.Has(record.AttrDeleteHorizon)
	switch {
	case h.LastOffset() >= p.covered:
		return b.Bytes, true, nil
	case !alone || p.o.Producers.KeepsMarker(h.ProducerID, h.ProducerEpoch):
		return b.Bytes, true, nil
	case horizon && h.BaseTimestamp > p.o.Now:
		return b.Bytes, true, nil
	case horizon:
		p.stats.Markers++
		if last {
			p.out.Begin(h)
			out, err = p.out.Finish()
			return out, false, err
		}
		return nil, false, nil
	}
	if err := b.Records(nil, &p.it); err != nil {
		return nil, false, err
	}
	p.out.Begin(h)
	p.out.SetDeleteHorizon(p.o.Now + p.o.DeleteAfter)
	for p.it.Next() {
		p.out.Keep(&p.it)
	}
	if err := p.it.Err(); err != nil {
		return nil, false, err
	}
	out, err = p.out.Finish()
	return out, true, err
}
