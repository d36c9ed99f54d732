package record

import (
	"encoding/binary"
	"errors"
	"fmt"

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
	return appendSnappyBlocks(append(dst, xerialHeader...), src)
}

func appendSnappyBlocks(dst, src []byte) []byte {
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
