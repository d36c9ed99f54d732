package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"tidewire/internal/model"
)

// Codec is the compression of a batch's records, as numbered in its attributes.
type Codec int8

// The codecs of RecordBatch v2.
const (
	None   Codec = 0
	Gzip   Codec = 1
	Snappy Codec = 2
	LZ4    Codec = 3
	Zstd   Codec = 4
)

var codecNames = [...]string{None: "none", Gzip: "gzip", Snappy: "snappy", LZ4: "lz4", Zstd: "zstd"}

// String gives the name as in compression.type.
func (c Codec) String() string {
	if c < 0 || int(c) >= len(codecNames) {
		return fmt.Sprintf("codec %d", int8(c))
	}
	return codecNames[c]
}

// ParseCodec reads a name as in compression.type; "uncompressed" is none.
func ParseCodec(s string) (Codec, bool) {
	if s == "uncompressed" {
		return None, true
	}
	for c, n := range codecNames {
		if n == s {
			return Codec(c), true
		}
	}
	return None, false
}

// xerialHeader starts the snappy framing of snappy-java, which Kafka's own client
// writes: magic, version 1, compatible version 1; then blocks, each a big-endian
// length and raw snappy. Readers of all clients take it; some write one raw block
// without the frame, which readers take too.
var xerialHeader = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}

const (
	xerialMagicLen = 8
	snappyBlock    = 32 << 10 // as snappy-java
	keepBuffer     = 4 << 20  // larger buffers are given back to the collector
)

// Decompressor inflates the records of batches, never beyond its limit. It may be
// reused but not shared; what it returns is valid until its next use.
type Decompressor struct {
	limit int
	buf   []byte
	src   bytes.Reader
	gz    *gzip.Reader
	lz    *lz4.Reader
	zs    *zstd.Decoder

	zstream *zstd.Decoder
}

// NewDecompressor returns one that gives at most limit bytes for a batch.
func NewDecompressor(limit int) *Decompressor { return &Decompressor{limit: limit} }

func (d *Decompressor) tooLarge() error {
	return model.Errorf(model.RecordTooLarge, "the batch inflates to more than %d bytes", d.limit)
}

// Decompress inflates src. Errors: RecordTooLarge beyond the limit, CorruptBatch.
func (d *Decompressor) Decompress(c Codec, src []byte) ([]byte, error) {
	if c == None {
		return src, nil
	}
	if cap(d.buf) > keepBuffer {
		d.buf = nil
	}
	out, err := d.inflate(c, src)
	if out != nil {
		d.buf = out[:0]
	}
	if err == nil {
		return out, nil
	}
	if model.HasCode(err, model.RecordTooLarge) || model.HasCode(err, model.CorruptBatch) {
		return nil, err
	}
	return nil, model.Errorf(model.CorruptBatch, "the %s data of the batch is not valid", c).WithCause(err)
}

func (d *Decompressor) inflate(c Codec, src []byte) ([]byte, error) {
	d.src.Reset(src)
	switch c {
	case Gzip:
		return d.inflateGzip()
	case Snappy:
		return d.inflateSnappy(src)
	case LZ4:
		if d.lz == nil {
			d.lz = lz4.NewReader(&d.src)
		} else {
			d.lz.Reset(&d.src)
		}
		return d.readAll(d.lz)
	case Zstd:
		return d.inflateZstd(src)
	}
	return nil, corrupt("the batch has the unknown codec %d", int8(c))
}

func (d *Decompressor) inflateGzip() ([]byte, error) {
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
	return d.readAll(d.gz)
}

// maxZstdWindow is the largest window of a frame that does not tell its length:
// what RFC 8878 asks of every decoder, and what levels up to 19 use. It is memory
// that the sender chooses.
const maxZstdWindow = 8 << 20

// inflateZstd decodes a frame that tells its length in one call, where the output
// itself is the window, and any other as a stream.
func (d *Decompressor) inflateZstd(src []byte) ([]byte, error) {
	var h zstd.Header
	if err := h.Decode(src); err != nil {
		return nil, err
	}
	memory := uint64(max(d.limit, maxZstdWindow))
	if !h.HasFCS {
		if d.zstream == nil {
			zs, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
				zstd.WithDecoderMaxWindow(maxZstdWindow), zstd.WithDecoderMaxMemory(memory))
			if err != nil {
				return nil, err
			}
			d.zstream = zs
		}
		if err := d.zstream.Reset(&d.src); err != nil {
			return nil, err
		}
		return d.readAll(d.zstream)
	}
	if h.FrameContentSize > uint64(d.limit) {
		return nil, d.tooLarge()
	}
	if d.zs == nil {
		zs, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(memory), zstd.WithDecoderMaxMemory(memory))
		if err != nil {
			return nil, err
		}
		d.zs = zs
	}
	out, err := d.zs.DecodeAll(src, d.buf[:0])
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || len(out) > d.limit {
		return out, d.tooLarge()
	}
	return out, err
}

// readAll reads r into the buffer, which grows only as bytes arrive.
func (d *Decompressor) readAll(r io.Reader) ([]byte, error) {
	out := d.buf[:0]
	if cap(out) == 0 {
		out = make([]byte, 0, 16<<10)
	}
	for {
		if len(out) == cap(out) {
			out = append(out, 0)[:len(out)]
		}
		n, err := r.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
		if len(out) > d.limit {
			return out, d.tooLarge()
		}
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
	}
}

func (d *Decompressor) inflateSnappy(src []byte) ([]byte, error) {
	out := d.buf[:0]
	if !bytes.HasPrefix(src, xerialHeader[:xerialMagicLen]) {
		return d.snappyBlock(out, src)
	}
	if len(src) < len(xerialHeader) {
		return out, corrupt("the snappy header is cut short")
	}
	src = src[len(xerialHeader):]
	for len(src) > 0 {
		if len(src) < 4 {
			return out, corrupt("a snappy block is cut short")
		}
		n := binary.BigEndian.Uint32(src)
		src = src[4:]
		if uint64(n) > uint64(len(src)) {
			return out, corrupt("a snappy block is cut short")
		}
		var err error
		if out, err = d.snappyBlock(out, src[:n]); err != nil {
			return out, err
		}
		src = src[n:]
	}
	return out, nil
}

func (d *Decompressor) snappyBlock(out, src []byte) ([]byte, error) {
	n, err := s2.DecodedLen(src)
	if err != nil {
		return out, err
	}
	// A block cannot inflate more than 64 times: a length beyond is a lie that
	// would cost an allocation.
	if n > d.limit-len(out) {
		return out, d.tooLarge()
	}
	if n > 64*len(src)+64 {
		return out, corrupt("a snappy block claims to inflate %d bytes to %d", len(src), n)
	}
	start := len(out)
	out = grow(out, n)
	if _, err := s2.Decode(out[start:start+n:start+n], src); err != nil {
		return out[:start], err
	}
	return out[:start+n], nil
}

func grow(b []byte, n int) []byte {
	if cap(b)-len(b) >= n {
		return b
	}
	nb := make([]byte, len(b), max(2*cap(b), len(b)+n))
	copy(nb, b)
	return nb
}

// compressor deflates; it is reused by its Builder.
type compressor struct {
	gz *gzip.Writer
	lz *lz4.Writer
	zs *zstd.Encoder
}

// sliceWriter appends what is written to a slice.
type sliceWriter struct{ b []byte }

func (w *sliceWriter) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}

// pack makes a batch with compressed records of a plain one. It uses the memory of into where
// that is enough; the header's bytes are left to the caller.
func (c *compressor) pack(codec Codec, into, plain []byte) ([]byte, error) {
	if cap(into) < HeaderSize {
		into = make([]byte, HeaderSize, HeaderSize+len(plain)/2)
	}
	out, err := c.compress(codec, into[:HeaderSize], plain[HeaderSize:])
	if err != nil {
		return into, model.AsError(err)
	}
	return out, nil
}

// compress appends the compressed src to dst.
func (c *compressor) compress(codec Codec, dst, src []byte) ([]byte, error) {
	switch codec {
	case Gzip:
		w := &sliceWriter{dst}
		if c.gz == nil {
			c.gz = gzip.NewWriter(w)
		} else {
			c.gz.Reset(w)
		}
		_, err := c.gz.Write(src)
		return w.b, errors.Join(err, c.gz.Close())
	case Snappy:
		return compressSnappy(dst, src), nil
	case LZ4:
		w := &sliceWriter{dst}
		if c.lz == nil {
			c.lz = lz4.NewWriter(w)
			if err := c.lz.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false)); err != nil {
				return dst, err
			}
		} else {
			c.lz.Reset(w)
		}
		_, err := c.lz.Write(src)
		return w.b, errors.Join(err, c.lz.Close())
	case Zstd:
		if c.zs == nil {
			zs, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
			if err != nil {
				return dst, err
			}
			c.zs = zs
		}
		return c.zs.EncodeAll(src, dst), nil
	}
	return dst, fmt.Errorf("unknown codec %d", int8(codec))
}

func compressSnappy(dst, src []byte) []byte {
	dst = append(dst, xerialHeader...)
	for len(src) > 0 {
		n := min(len(src), snappyBlock)
		at := len(dst)
		need := 4 + s2.MaxEncodedLen(n)
		dst = grow(dst, need)
		enc := s2.EncodeSnappy(dst[at+4:at+need], src[:n])
		binary.BigEndian.PutUint32(dst[at:at+4], uint32(len(enc)))
		dst = dst[:at+4+len(enc)]
		src = src[n:]
	}
	return dst
}
