package record

import (
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"tidewire/internal/model"
)

// Deflater makes a batch of another codec from records that come as a stream, in the memory
// of the codec and of what it has made. It is reused and not safe for concurrent use.
type Deflater struct {
	codec Codec
	sink  limitedSink
	gz    *gzip.Writer
	lz    *lz4.Writer
	zs    *zstd.Encoder
	block []byte // of snappy, not full yet
}

// deflateWindow is the window of zstd frames: a larger one is memory, and hardly a batch has
// more to look back on.
const deflateWindow = 1 << 20

// limitedSink takes what a codec has made, up to a limit.
type limitedSink struct {
	b     []byte
	limit int
	full  bool
}

var errFull = errors.New("the batch is full")

func (s *limitedSink) Write(p []byte) (int, error) {
	if len(s.b)+len(p) > s.limit {
		s.full = true
		return 0, errFull
	}
	s.b = append(s.b, p...)
	return len(p), nil
}

// Begin starts a batch of at most limit bytes, its header included.
func (d *Deflater) Begin(c Codec, limit int) error {
	b := d.sink.b
	if cap(b) < HeaderSize || cap(b) > keepBuffer {
		b = make([]byte, HeaderSize, 64<<10)
	}
	d.codec, d.sink, d.block = c, limitedSink{b: b[:HeaderSize], limit: limit}, d.block[:0]
	switch c {
	case Gzip:
		if d.gz == nil {
			d.gz = gzip.NewWriter(&d.sink)
		} else {
			d.gz.Reset(&d.sink)
		}
	case LZ4:
		if d.lz == nil {
			d.lz = lz4.NewWriter(&d.sink)
			return d.lz.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false))
		}
		d.lz.Reset(&d.sink)
	case Zstd:
		if d.zs == nil {
			var err error
			d.zs, err = zstd.NewWriter(&d.sink, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(deflateWindow))
			return err
		}
		d.zs.Reset(&d.sink)
	case Snappy:
		d.sink.b = append(d.sink.b, xerialHeader...)
	}
	return nil
}

// Write takes the next bytes of the records. Errors: RecordTooLarge when the batch exceeds
// its limit, which may show only in Finish.
func (d *Deflater) Write(p []byte) (int, error) {
	n, err := d.write(p)
	return n, d.explain(err)
}

func (d *Deflater) write(p []byte) (int, error) {
	switch d.codec {
	case Gzip:
		return d.gz.Write(p)
	case LZ4:
		return d.lz.Write(p)
	case Zstd:
		return d.zs.Write(p)
	case Snappy:
		return d.writeSnappy(p)
	}
	return d.sink.Write(p)
}

func (d *Deflater) writeSnappy(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		k := min(len(rest), snappyBlock-len(d.block))
		d.block = append(d.block, rest[:k]...)
		rest = rest[k:]
		if len(d.block) == snappyBlock {
			if err := d.flushSnappy(); err != nil {
				return 0, err
			}
		}
	}
	return len(p), nil
}

func (d *Deflater) flushSnappy() error {
	d.sink.b = appendSnappyBlocks(d.sink.b, d.block)
	d.block = d.block[:0]
	if len(d.sink.b) > d.sink.limit {
		d.sink.full = true
		return errFull
	}
	return nil
}

func (d *Deflater) explain(err error) error {
	switch {
	case d.sink.full:
		return model.Errorf(model.RecordTooLarge, "the batch takes more than %d bytes under the topic's compression.type", d.sink.limit)
	case err != nil:
		return model.AsError(err)
	}
	return nil
}

// Finish completes the batch under a header of which all but length, codec and CRC stays.
// The bytes are valid until the next Begin. Errors: as Write.
func (d *Deflater) Finish(h *BatchHeader) ([]byte, error) {
	var err error
	switch d.codec {
	case Gzip:
		err = d.gz.Close()
	case LZ4:
		err = d.lz.Close()
	case Zstd:
		err = d.zs.Close()
	case Snappy:
		err = d.flushSnappy()
	}
	if err = d.explain(err); err != nil {
		return nil, err
	}
	x := *h
	x.Attributes = x.Attributes&^codecMask | Attributes(d.codec)
	x.Put(d.sink.b)
	return d.sink.b, nil
}

var _ io.Writer = (*Deflater)(nil)
