package log

import (
	"context"
	"errors"
	"math"
	"time"

	"tidewire/internal/model"
	"tidewire/storage/compact"
	"tidewire/storage/index"
	"tidewire/storage/record"
)

// maxCleanGroup is how many segments are made one at most.
const maxCleanGroup = 64

// cleaning is one pass over a log.
type cleaning struct {
	l      *Log
	ctx    context.Context //nolint:containedctx // of the pass, which is one call
	policy CleanPolicy
	now    int64
	pass   *compact.Pass
	res    CleanResult
	done   int64 // bytes, of both readings
	total  int64
	buf    []byte // what goes into the new segment next
	paced  int64
}

func (c *cleaning) run() (CleanResult, error) {
	l := c.l
	st := l.CleanState(c.policy, c.now)
	c.res.From, c.res.To = st.From, st.From
	if st.Failed != nil {
		return c.res, st.Failed
	}
	if st.Dirty == 0 {
		return c.res, nil
	}
	segs := *l.segs.Load()
	lo, hi := floorSegment(segs, l.LogStart()), floorSegment(segs, st.To)
	first := floorSegment(segs, st.From)
	for i, s := range segs[:hi] {
		if i >= lo {
			c.total += s.size.Load()
		}
		if i >= first {
			c.total += s.size.Load()
		}
	}
	c.progress(0)
	var err error
	if c.pass, err = c.newPass(st.From); err != nil {
		return c.res, err
	}
	if err := c.fillMap(segs[first : hi+1]); err != nil {
		return c.res, err
	}
	covered := min(c.pass.Covered(), st.To)
	if covered <= st.From {
		return c.res, nil
	}
	// What is replaced must lie below the recovery point on disk, or a start that checks
	// everything above it would take its gaps for a loss.
	if err := firstErr(l.MarkCompacted(), l.store.Checkpoint(), l.saveKeys()); err != nil {
		return c.res, err
	}
	for hi > lo+1 && segs[hi-1].base >= covered {
		hi--
	}
	if err := c.replace(segs[lo : hi+1]); err != nil {
		return c.res, err
	}
	if err := l.store.setCleanPoint(l, covered); err != nil {
		return c.res, err
	}
	c.res.To, c.res.Stats = covered, c.pass.Stats()
	return c.res, nil
}

// fillMap reads the dirty segments; the last one given only tells where they end.
func (c *cleaning) fillMap(segs []*segment) error {
	for i, seg := range segs[:len(segs)-1] {
		if err := c.addAborted(seg, segs[i+1].base, i == 0); err != nil {
			return err
		}
		full := false
		err := c.scan(seg, func(b *record.Batch, _ bool) (err error) {
			if full, err = c.pass.Note(b); full {
				return errStop
			}
			return err
		})
		if full {
			break
		}
		if err != nil {
			return err
		}
	}
	c.pass.Rewind()
	return nil
}

var errStop = errors.New("the map is full")

// addAborted makes the aborted transactions known that begin in a segment, and on the first
// one of a reading those that reach into it.
func (c *cleaning) addAborted(seg *segment, end model.Offset, first bool) error {
	all, err := c.l.AbortedTransactions(seg.base, end)
	if err != nil {
		return err
	}
	var list []compact.Aborted
	for _, a := range all {
		if first || a.FirstOffset >= seg.base {
			list = append(list, compact.Aborted{Producer: a.ProducerID, First: a.FirstOffset, Last: a.LastOffset})
		}
	}
	c.pass.AddAborted(list)
	return nil
}

// scan gives the batches of a sealed segment; last marks the last of them.
func (c *cleaning) scan(seg *segment, fn func(b *record.Batch, last bool) error) error {
	l := c.l
	sc, err := l.store.scanner(seg, seg.size.Load(), checkWindow)
	if err != nil {
		return err
	}
	defer l.store.putScanner(sc)
	for pos := int64(0); pos < sc.Size; {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		h, err := sc.Header(pos)
		off, n := h.BaseOffset, int64(h.Size())
		if err == nil {
			var b record.Batch
			if b, err = sc.Batch(pos, &h); err == nil {
				err = fn(&b, pos+n == sc.Size)
			}
		}
		if isErr(err, record.ErrShort) || model.HasCode(err, model.CorruptBatch) || model.HasCode(err, model.RecordTooLarge) {
			return &uncleanable{max(off, seg.base), err}
		}
		if err != nil {
			return err
		}
		pos += n
		c.progress(n)
		if err := c.pace(n); err != nil {
			return err
		}
	}
	return nil
}

// progress publishes how far the pass is, every 4 MiB.
func (c *cleaning) progress(n int64) {
	const every = 4 << 20
	before := c.done
	c.done += n
	if n == 0 || before/every != c.done/every {
		c.l.cleaned.run.Store(&CleanProgress{Since: c.now, Done: c.done, Total: c.total})
	}
}

// pace waits so that no more than CleanBytesPerSecond are read.
func (c *cleaning) pace(n int64) error {
	rate := c.l.store.tuning.Load().CleanBytesPerSecond
	if rate <= 0 {
		return nil
	}
	const step = 50 * time.Millisecond
	c.paced += n
	for quota := max(rate/int64(time.Second/step), 1); c.paced >= quota; c.paced -= quota {
		t := time.NewTimer(step)
		select {
		case <-t.C:
		case <-c.ctx.Done():
			t.Stop()
			return c.ctx.Err()
		}
	}
	return nil
}

// replace makes segments anew, group by group, in order of offsets: an older value must be
// gone before the tombstone behind it. The last segment given only tells where they end.
func (c *cleaning) replace(segs []*segment) error {
	c.l.mu.Lock()
	cfg := c.l.cfg
	c.l.mu.Unlock()
	touched := false
	for first := true; len(segs) > 1; first = false {
		n := groupSize(segs, cfg)
		changed, err := c.replaceGroup(segs[:n], cfg, first)
		if err != nil {
			return err
		}
		touched = touched || changed
		segs = segs[n:]
	}
	if !touched {
		return nil
	}
	return c.l.refreshSnapshot()
}

// groupSize is how many segments, but for the last one given, fit into one.
func groupSize(segs []*segment, cfg Config) int {
	var size int64
	var off, tim int
	for n, s := range segs[:len(segs)-1] {
		size += s.size.Load()
		off += s.off.Len() * index.Offset.EntrySize()
		tim += s.tim.Len() * index.Time.EntrySize()
		if n > 0 && (size > cfg.SegmentBytes || max(off, tim) > cfg.SegmentIndexBytes || n == maxCleanGroup ||
			relative(segs[n+1].base-1, segs[0].base) > math.MaxInt32) {
			return n
		}
	}
	return len(segs) - 1
}

// replaceGroup writes what stays of a group into a new segment and swaps it in, unless it is
// a single segment of which everything stays.
func (c *cleaning) replaceGroup(group []*segment, cfg Config, first bool) (changed bool, err error) {
	out, err := c.l.newCleaned(group[0].base, c.now)
	if err != nil {
		return false, err
	}
	changed = len(group) > 1
	w := &cleanWriter{seg: out, interval: cfg.IndexIntervalBytes, buf: c.buf[:0]}
	for i, seg := range group {
		same, err := c.writeKept(w, seg, i == len(group)-1, first && i == 0)
		if err != nil {
			return false, errors.Join(err, out.discardCleaned())
		}
		changed = changed || !same
		out.appended.Store(max(out.appended.Load(), seg.appended.Load()))
	}
	err = w.finish()
	c.buf = w.buf
	if err != nil || !changed || out.size.Load() == 0 {
		return false, errors.Join(err, out.discardCleaned())
	}
	if err := c.l.swapIn(group, out); err != nil {
		return false, err
	}
	c.res.Segments, c.res.Made = c.res.Segments+len(group), c.res.Made+1
	return true, nil
}

// writeKept writes what stays of one segment, with its aborted transactions whose marker
// stays.
func (c *cleaning) writeKept(w *cleanWriter, seg *segment, lastOfGroup, first bool) (same bool, err error) {
	end, err := c.l.endOf(seg)
	if err != nil {
		return false, err
	}
	if err := c.addAborted(seg, end, first); err != nil {
		return false, err
	}
	entries, err := seg.txn.Entries()
	if err != nil {
		return false, err
	}
	same = true
	err = c.scan(seg, func(b *record.Batch, last bool) error {
		out, marker, err := c.pass.Clean(b, last && lastOfGroup)
		if err != nil {
			return err
		}
		c.res.BytesRead += int64(len(b.Bytes))
		c.res.BytesKept += int64(len(out))
		if len(out) == 0 || &out[0] != &b.Bytes[0] {
			same = false
		}
		if len(out) == 0 {
			return nil
		}
		for len(entries) > 0 && entries[0].LastOffset < b.Header.BaseOffset {
			entries = entries[1:]
		}
		if marker && len(entries) > 0 && entries[0].LastOffset == b.Header.LastOffset() {
			w.seg.txn.Add(entries[0])
		}
		return w.write(out)
	})
	return same, err
}

// endOf is the base of the segment behind a sealed one.
func (l *Log) endOf(seg *segment) (model.Offset, error) {
	segs := *l.segs.Load()
	i := floorSegment(segs, seg.base)
	if segs[i] != seg || i+1 == len(segs) {
		return 0, errNoPass // dropped meanwhile
	}
	return segs[i+1].base, nil
}

// cleanWriter writes a segment that nobody sees yet.
type cleanWriter struct {
	seg      *segment
	interval int
	buf      []byte
}

func (w *cleanWriter) write(batch []byte) error {
	h, err := record.ParseHeader(batch)
	if err != nil {
		return err
	}
	pos := w.seg.size.Load() + int64(len(w.buf))
	if pos+int64(len(batch)) > math.MaxInt32 {
		return &uncleanable{h.BaseOffset, model.Errorf(model.RecordTooLarge, "the compacted segment would exceed 2 GiB")}
	}
	w.seg.note(&h, pos, w.interval)
	w.buf = append(w.buf, batch...)
	if len(w.buf) < checkWindow {
		return nil
	}
	return w.flush()
}

func (w *cleanWriter) flush() error {
	if err := firstErr(w.seg.off.FlushIfFull(), w.seg.tim.FlushIfFull()); err != nil {
		return err
	}
	if _, err := w.seg.f.WriteAt(w.buf, w.seg.size.Load()); err != nil {
		return err
	}
	w.seg.size.Add(int64(len(w.buf)))
	w.buf = w.buf[:0]
	return nil
}

// finish makes the segment durable.
func (w *cleanWriter) finish() error {
	if err := w.flush(); err != nil {
		return err
	}
	return firstErr(w.seg.sealIndexes(), w.seg.sync(true))
}
