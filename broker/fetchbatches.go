package broker

import (
	"context"
	"errors"
	"io"

	"tidewire/broker/forward"
	"tidewire/broker/partition"
	"tidewire/internal/budget"
	"tidewire/internal/model"
	"tidewire/storage/log"
	"tidewire/storage/record"
	"tidewire/storage/visible"
)

// batchMemory is what each file of an answer of stored batches counts for in the budget of
// reads, in bytes: little memory, but the file stays open for it.
const batchMemory = 256 << 10

// Batches is the answer of FetchBatches: where the bytes are. Close must be called.
type Batches struct {
	FetchInfo       // Bytes counts what is to be sent
	Size      int64 // of all sections, in bytes

	sections []*Section
	extents  []*log.Extent
	grant    *budget.Grant
	read     *fetching
}

// Sections are the pieces to be sent, in order.
func (b *Batches) Sections() []*Section { return b.sections }

// StillAllowed tells whether the answer may go on being sent; for clients that take their
// time. Errors: those of a long poll that must end.
func (b *Batches) StillAllowed(ctx context.Context) error { return b.read.mayGoOn(ctx) }

// Close gives the files back.
func (b *Batches) Close() {
	b.release()
	b.read.end()
}

func (b *Batches) release() {
	for _, x := range b.extents {
		x.Close()
	}
	b.extents, b.sections = nil, nil
	b.grant.Release()
}

// Section is a piece of a segment's file: whole stored batches. It is read, or sent from the
// file: what File says, then Sent. It is for one goroutine.
type Section struct {
	x      *log.Extent
	pos, n int64
	copied []byte // in the place of a file: what is left of a copy from another node
}

// errCut says that a truncation of the log came between.
var errCut = model.Errorf(model.LeaderUnavailable, "the log was truncated while it was read")

// File is where the rest of the section is, in a file that may be sent from by its
// descriptor; not ok: it has none, the section must be read.
func (s *Section) File() (fd uintptr, pos, n int64, ok bool) {
	if s.x == nil {
		return 0, 0, 0, false
	}
	fd, ok = s.x.File.Fd()
	return fd, s.pos, s.n, ok
}

// Sent says that n bytes were sent from the file. The error says that they may not be what
// the log had: the answer must be broken off.
func (s *Section) Sent(n int64) error {
	s.pos += n
	s.n -= n
	if !s.x.Intact() {
		return errCut
	}
	return nil
}

// Read implements io.Reader.
func (s *Section) Read(p []byte) (int, error) {
	if s.n == 0 {
		return 0, io.EOF
	}
	if s.x == nil {
		n := copy(p, s.copied)
		s.copied, s.n = s.copied[n:], s.n-int64(n)
		return n, nil
	}
	n, err := s.x.File.ReadAt(p[:min(int64(len(p)), s.n)], s.pos)
	if err != nil && n == 0 {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, err
	}
	return n, s.Sent(int64(n))
}

// FetchBatches is Fetch for batches as they are stored: whole ones, of which the first holds
// the position and always comes, control batches and, under ReadCommitted, those of aborted
// transactions left out. MaxRecords counts records by the batches' headers; MaxBytes and
// MinBytes count the batches' bytes. What the caller sends it sends from the log's files,
// which stay open until Close. Checksums are the client's to check. Errors as of Fetch.
func (b *Broker) FetchBatches(ctx context.Context, c Caller, req *FetchRequest) (*Batches, error) {
	f, err := b.begin(ctx, c, req)
	if err != nil {
		return nil, err
	}
	var got *Batches
	enough := func(ctx context.Context) (_ bool, err error) {
		if got, err = f.plan(ctx); err != nil {
			return false, err
		}
		if got.Records > 0 && (got.End == AtLimit || got.Size >= int64(req.MinBytes)) {
			return true, nil
		}
		got.release() // nothing is held while it waits
		got = nil
		return false, nil
	}
	if req.Wait > 0 {
		err = f.wait(ctx, enough)
	}
	if err == nil && got == nil {
		got, err = f.plan(ctx)
	}
	if err != nil {
		f.end()
		return nil, err
	}
	f.topic.rates.out(got.Records, got.Bytes)
	b.chargeFetch(c, got.Bytes)
	return got, nil
}

// plan finds what is to be sent.
func (f *fetching) plan(ctx context.Context) (*Batches, error) {
	if away, ok := f.part.(*forward.Reading); ok {
		return f.planAway(ctx, away)
	}
	grant, err := f.b.memory.Take(ctx, f.owner, batchMemory, memoryPatience)
	if err != nil {
		return nil, err
	}
	out := &Batches{grant: grant, read: f}
	f.ahead()
	w := visible.Walk{Filter: f.filter, MaxBytes: int64(f.req.MaxBytes), MaxRecords: f.req.MaxRecords, Next: f.info.NextOffset}
	for !w.Over() && err == nil {
		if err = ctx.Err(); err == nil {
			err = f.segment(&w, out)
		}
	}
	if err != nil && (w.Records == 0 || ctx.Err() != nil) {
		out.release()
		return nil, err
	}
	out.FetchInfo = f.info
	out.NextOffset, out.Records, out.Bytes, out.Size = w.Next, w.Records, int(w.Bytes), w.Bytes
	if w.Full || err != nil { // the next read tells why
		out.End = AtLimit
	}
	return out, nil
}

// segment adds what one segment has.
func (f *fetching) segment(w *visible.Walk, out *Batches) error {
	if len(out.extents) > 0 && !out.grant.Alone() && !out.grant.Grow(batchMemory) {
		w.Full = true
		return nil
	}
	x, err := f.part.(*partition.Partition).Pin(w.Next, w.Filter.To)
	if err != nil {
		return err
	}
	if x == nil { // nothing is stored up to the limit
		w.Next = w.Filter.To
		return nil
	}
	taken := *w
	runs, err := w.Through(visible.Source{File: x.File, Pos: x.Pos, End: x.End, Compacted: x.Compacted})
	if !x.Intact() {
		*w = taken
		x.Close()
		return errCut
	}
	if len(runs) == 0 {
		x.Close()
		return f.readError(err)
	}
	out.extents = append(out.extents, x)
	for _, r := range runs {
		out.sections = append(out.sections, &Section{x: x, pos: r.Pos, n: r.Len})
	}
	return f.readError(err)
}

// readError gives errors of a walk their code.
func (f *fetching) readError(err error) error {
	switch {
	case err == nil || model.HasCode(err, model.StorageError):
		return err
	case model.HasCode(err, model.CorruptBatch) || errors.Is(err, record.ErrShort):
		return f.damaged(err)
	}
	return model.Errorf(model.StorageError, "partition %d of %q cannot be read", f.req.Partition, f.topic.name).WithCause(err)
}
