package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"tidewire/internal/model"
)

const (
	// MaxInflated is how many bytes the records of one compressed batch may inflate to:
	// no batch is accepted beyond it, so none need be read beyond it.
	MaxInflated = 64 << 20

	// smallInflated is what a Decompressor may hold without asking the budget.
	smallInflated = 1 << 20

	// maxZstdWindow is the largest window of a zstd frame that is read as a stream: what
	// RFC 8878 asks of every decoder, and what levels up to 19 use. It is memory that the
	// sender chooses.
	maxZstdWindow = 8 << 20
)

// Decompressor inflates the records of batches, never beyond its limit. It may be reused
// but not shared; what it returns is valid until its next use or Release.
//
// A batch that inflates to more than 1 MiB is inflated twice: once to count, in memory that
// does not grow, and then into a buffer of that size. So a batch beyond the limit costs time
// but no memory, and what the others need is known before it is asked of the budget.
type Decompressor struct {
	limit  int
	budget *Budget
	held   int64 // of the budget

	buf     []byte // at most smallInflated
	scratch []byte // where a count reads to
	src     bytes.Reader
	gz      *gzip.Reader
	lz      *lz4.Reader
	snappy  snappyStream
	whole   *zstd.Decoder // decodes a frame in one call
	stream  *zstd.Decoder
	heavy   bool // the stream's decoder is large: it goes with Release
	out     inflation
}

// NewDecompressor returns one that gives at most limit bytes for a batch.
func NewDecompressor(limit int) *Decompressor { return &Decompressor{limit: limit} }

// Within has what it needs beyond a MiB come out of a budget, from its next use on.
func (d *Decompressor) Within(b *Budget) *Decompressor {
	d.Release()
	d.budget = b
	return d
}

// Release gives back what large batches took. What was returned is no longer valid.
func (d *Decompressor) Release() {
	if d.heavy {
		d.heavy, d.lz, d.snappy.block = false, nil, nil
		if d.stream != nil {
			d.budget.giveDecoder(d.stream)
			d.stream = nil
		}
	}
	d.out = inflation{}
	d.src.Reset(nil)
	d.budget.release(d.held)
	d.held = 0
}

// Settle gives back what large batches took, and what was returned stays valid until the next
// use: for who keeps it while others wait for their turn, and counts its memory by itself.
func (d *Decompressor) Settle() { d.Release() }

func (d *Decompressor) hold(n int64) { d.held += d.budget.acquire(n) }

func (d *Decompressor) tooLarge() error {
	return model.Errorf(model.RecordTooLarge, "the batch inflates to more than %d bytes", d.limit)
}

// Decompress inflates src. Errors: RecordTooLarge beyond the limit, UnsupportedCompression,
// CorruptBatch.
func (d *Decompressor) Decompress(c Codec, src []byte) ([]byte, error) {
	if c == None {
		return src, nil
	}
	d.Release()
	out, err := d.inflate(c, src)
	if err != nil {
		d.Release()
		return nil, err
	}
	return out, nil
}

// Stream starts the inflation of src, for who reads it once and keeps nothing; the memory
// is that of the codec. Reading gives the errors of Decompress. Call Release after.
func (d *Decompressor) Stream(c Codec, src []byte) (io.Reader, error) {
	d.Release()
	if c == None {
		d.src.Reset(src)
		return &d.src, nil
	}
	n, whole, err := d.measure(c, src)
	if err != nil {
		return nil, err
	}
	if whole {
		out, err := d.inflateWhole(c, src, n)
		if err != nil || out != nil {
			d.src.Reset(out)
			return &d.src, err
		}
	}
	return d.open(c, src)
}

func (d *Decompressor) inflate(c Codec, src []byte) ([]byte, error) {
	n, whole, err := d.measure(c, src)
	if err != nil {
		return nil, err
	}
	if whole {
		if out, err := d.inflateWhole(c, src, n); err != nil || out != nil {
			return out, err
		}
	}
	r, err := d.open(c, src)
	if err != nil {
		return nil, err
	}
	out, end, err := readUpTo(r, d.buf[:0])
	d.buf = out[:0]
	if err != nil || end {
		return out, err
	}
	n, err = d.count(r)
	if err != nil {
		return nil, err
	}
	n += len(out)
	d.Release()
	d.hold(int64(n) + codecMemory(c, src)) // at once: who waits must hold nothing
	out = make([]byte, n)
	if r, err = d.openHolding(c, src); err != nil {
		return nil, err
	}
	_, err = io.ReadFull(r, out)
	return out, err
}

// readUpTo reads up to smallInflated bytes into buf, which grows as they arrive; end tells
// that there are no more.
func readUpTo(r io.Reader, buf []byte) (out []byte, end bool, err error) {
	if cap(buf) == 0 {
		buf = make([]byte, 0, 16<<10)
	}
	for len(buf) < smallInflated {
		if len(buf) == cap(buf) {
			grown := make([]byte, len(buf), min(2*cap(buf), smallInflated))
			copy(grown, buf)
			buf = grown
		}
		n, err := r.Read(buf[len(buf):min(cap(buf), smallInflated)])
		buf = buf[:len(buf)+n]
		if errors.Is(err, io.EOF) {
			return buf, true, nil
		}
		if err != nil {
			return buf, false, err
		}
	}
	return buf, false, nil
}

// count reads what is left and throws it away.
func (d *Decompressor) count(r io.Reader) (n int, err error) {
	if d.scratch == nil {
		d.scratch = make([]byte, 32<<10)
	}
	for {
		k, err := r.Read(d.scratch)
		n += k
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// inflation is a stream of inflated bytes that ends in an error at the limit.
type inflation struct {
	d     *Decompressor
	codec Codec
	r     io.Reader
	n     int
}

func (s *inflation) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if s.n += n; s.n > s.d.limit {
		return 0, s.d.tooLarge()
	}
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	return n, invalidData(s.codec, err)
}

func invalidData(c Codec, err error) error {
	if model.HasCode(err, model.RecordTooLarge) || model.HasCode(err, model.CorruptBatch) {
		return err
	}
	return model.Errorf(model.CorruptBatch, "the %s data of the batch is not valid", c).WithCause(err)
}

// open starts a stream, with the codec's memory out of the budget where it is large.
func (d *Decompressor) open(c Codec, src []byte) (io.Reader, error) {
	if n := codecMemory(c, src); n > smallInflated {
		d.heavy = true
		d.hold(2 * n) // most codecs leave it behind as garbage
	}
	return d.openHolding(c, src)
}

func (d *Decompressor) openHolding(c Codec, src []byte) (io.Reader, error) {
	if codecMemory(c, src) > smallInflated {
		d.heavy = true
	}
	d.src.Reset(src)
	r, err := d.codecStream(c, src)
	if err != nil {
		return nil, invalidData(c, err)
	}
	d.out = inflation{d: d, codec: c, r: r}
	return &d.out, nil
}

func (d *Decompressor) codecStream(c Codec, src []byte) (io.Reader, error) {
	switch c {
	case Gzip:
		var err error
		if d.gz == nil {
			d.gz, err = gzip.NewReader(&d.src)
		} else {
			err = d.gz.Reset(&d.src)
		}
		if err != nil {
			d.gz = nil
			return nil, err
		}
		return d.gz, nil
	case Snappy:
		d.snappy.src = src[len(xerialHeader):]
		d.snappy.left = nil
		return &d.snappy, nil
	case LZ4:
		if d.lz == nil {
			d.lz = lz4.NewReader(&d.src)
		} else {
			d.lz.Reset(&d.src)
		}
		return d.lz, nil
	}
	if d.stream == nil && d.heavy {
		d.stream = d.budget.takeDecoder()
	}
	if d.stream == nil {
		zs, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return nil, err
		}
		d.stream = zs
	}
	return d.stream, d.stream.Reset(&d.src)
}

// codecMemory is what reading src as a stream takes, by what it says itself.
func codecMemory(c Codec, src []byte) int64 {
	switch c {
	case LZ4: // a block before and one after inflation (LZ4 frame format, block maximum size)
		const bd = 5
		if len(src) > bd {
			return 2 << (8 + 2*(src[bd]>>4&7))
		}
	case Zstd:
		var h zstd.Header
		if h.Decode(src) == nil {
			return int64(min(h.WindowSize, maxZstdWindow)) + 128<<10
		}
	case Snappy:
		return int64(largestSnappyBlock(src[len(xerialHeader):]))
	}
	return 0
}

// measure checks what can be known of src without inflating it. whole says that it is to be
// inflated in one call, into n bytes.
func (d *Decompressor) measure(c Codec, src []byte) (n int, whole bool, err error) {
	switch c {
	case Gzip:
		return 0, false, nil
	case LZ4:
		return 0, false, checkLZ4(src)
	case Snappy:
		n, whole, err = measureSnappy(src)
	case Zstd:
		n, whole, err = measureZstd(src)
	default:
		return 0, false, model.Errorf(model.UnsupportedCompression, "the batch has the unknown codec %d", int8(c))
	}
	if err != nil {
		return 0, false, invalidData(c, err)
	}
	if n > d.limit {
		return 0, false, d.tooLarge()
	}
	return n, whole, nil
}

// checkLZ4 refuses the legacy frames of LZ4, which have blocks of 8 MiB and are no part of
// Kafka's format.
func checkLZ4(src []byte) error {
	if len(src) < 4 || binary.LittleEndian.Uint32(src) != 0x184d2204 {
		return corrupt("the lz4 data of the batch does not begin with a frame")
	}
	return nil
}

// measureZstd has a frame decoded in one call, where the output is the window, unless it
// tells that it is long. One whose window is too large for a stream must be.
func measureZstd(src []byte) (n int, whole bool, err error) {
	var h zstd.Header
	if err := h.Decode(src); err != nil {
		return 0, false, err
	}
	if !h.HasFCS {
		return 0, true, nil
	}
	n = int(min(h.FrameContentSize, 1<<62))
	return n, n <= smallInflated || h.WindowSize > maxZstdWindow, nil
}

// measureSnappy tells raw snappy, which other clients send, from snappy-java's frame, which
// is a stream of blocks.
func measureSnappy(src []byte) (n int, whole bool, err error) {
	if !bytes.HasPrefix(src, xerialHeader[:xerialMagicLen]) {
		n, err := snappyLen(src)
		return n, true, err
	}
	if len(src) < len(xerialHeader) {
		return 0, false, corrupt("the snappy header is cut short")
	}
	return largestSnappyBlock(src[len(xerialHeader):]), false, nil
}

// inflateWhole inflates in one call; nil where src must be read as a stream after all.
func (d *Decompressor) inflateWhole(c Codec, src []byte, n int) ([]byte, error) {
	if n > smallInflated {
		d.hold(int64(n))
		return d.inflateInto(c, src, make([]byte, 0, n))
	}
	if c == Zstd { // n may be unknown, and less than what further frames bring
		n = max(n, min(8*len(src), smallInflated))
	}
	for ; ; n = smallInflated {
		if cap(d.buf) < n || d.buf == nil {
			d.buf = make([]byte, 0, max(n, 16<<10))
		}
		out, err := d.inflateInto(c, src, d.buf[:0])
		if out != nil || err != nil || cap(d.buf) >= smallInflated {
			return out, err
		}
	}
}

func (d *Decompressor) inflateInto(c Codec, src, into []byte) ([]byte, error) {
	if c == Snappy {
		out, err := decodeSnappy(into, src)
		if err != nil {
			return nil, invalidData(c, err)
		}
		return out, nil
	}
	if d.whole == nil {
		zs, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(uint64(max(d.limit, maxZstdWindow))), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			return nil, invalidData(c, err)
		}
		d.whole = zs
	}
	out, err := d.whole.DecodeAll(src, into)
	switch {
	case err != nil && cap(into) <= smallInflated:
		// Most likely more than there is room for, of which the decoder has several errors;
		// reading it as a stream tells what else is wrong.
		return nil, nil
	case err != nil:
		return nil, invalidData(c, err)
	case len(out) > d.limit:
		return nil, d.tooLarge()
	case out == nil:
		return into, nil
	}
	return out, nil
}
