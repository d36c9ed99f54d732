// Package coding is content negotiation: the codings of bodies (gzip, zstd), bounded when they
// are decompressed, and what a client would rather have (RFC 9110 §8.4, §12.5).
package coding

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"tidewire/internal/model"
)

// Content codings (RFC 9110 §8.4).
const (
	Gzip = "gzip"
	Zstd = "zstd"
)

// Bounds of a compressed body. Besides them its content is bounded as if it had come
// without compression.
const (
	// freeInflation is how large content may be whatever its ratio: little text repeats.
	freeInflation = 8 << 20
	// maxRatio is how many bytes of content one compressed byte may stand for.
	maxRatio = 250
	// smallWindow and largeWindow are how far back zstd content may refer, in bytes; the
	// latter is what RFC 8878 §3.1.1.1.2 asks a decoder for.
	smallWindow = 1 << 20
	largeWindow = 8 << 20
	// inflationBytes is what a decoder takes besides its window.
	inflationBytes = 256 << 10
)

// Of is the one coding of a body, "" for none. More than one is refused.
func Of(h http.Header) (string, error) {
	given := h["Content-Encoding"]
	if len(given) == 0 {
		return "", nil
	}
	all := strings.ToLower(strings.TrimSpace(strings.Join(given, ",")))
	switch all {
	case "", "identity":
		return "", nil
	case Gzip, "x-gzip": // RFC 9110 §8.4.1.3
		return Gzip, nil
	case Zstd:
		return Zstd, nil
	}
	if strings.Contains(all, ",") {
		return "", model.Errorf(model.UnsupportedMediaType, "a body has one content encoding at most, gzip or zstd, not %q", all)
	}
	return "", model.Errorf(model.UnsupportedMediaType, "the content encoding %q is not supported; gzip and zstd are", all)
}

// compressed counts the bytes of a body as they were sent.
type compressed struct {
	r   io.Reader
	n   int64
	err error
	buf [18]byte // the longest head of a zstd frame
	at  []byte   // of buf, to be read again
}

func (s *compressed) Read(p []byte) (int, error) {
	if len(s.at) > 0 {
		n := copy(p, s.at)
		s.at = s.at[n:]
		return n, nil
	}
	n, err := s.r.Read(p)
	s.n += int64(n)
	s.err = err
	return n, err
}

// peek reads ahead as far as a frame's head goes, or the body.
func (s *compressed) peek() []byte {
	n, err := io.ReadFull(s.r, s.buf[:])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		s.err = err
	}
	s.n += int64(n)
	s.at = s.buf[:n]
	return s.at
}

// Body is a decompressed body. Its errors are the project's: what is no such coding is
// malformed-body, what grows beyond all measure request-too-large.
type Body struct {
	coding string
	grow   func(int64) error
	src    compressed
	r      io.Reader // nil before the first read
	free   func()
	out    int64
	err    error // ends the body
}

// NewBody decompresses a body that came in a coding. The memory that this takes is told to
// grow before it is used, which may refuse it.
func NewBody(body io.Reader, coding string, grow func(bytes int64) error) *Body {
	return &Body{coding: coding, grow: grow, src: compressed{r: body}}
}

// Read implements io.Reader.
func (b *Body) Read(p []byte) (int, error) {
	if b.err == nil && b.r == nil {
		b.err = b.open()
	}
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.r.Read(p)
	b.out += int64(n)
	switch {
	case b.out > freeInflation && b.out > maxRatio*b.src.n:
		b.err = model.Errorf(model.RequestTooLarge, "the compressed body grows to more than %d times its size", maxRatio)
		return 0, b.err
	case err == nil, errors.Is(err, io.EOF):
	case b.src.err != nil && !errors.Is(b.src.err, io.EOF):
		err = b.src.err // the connection's fault
	default:
		err = b.malformed(err)
	}
	b.err = err
	return n, err
}

func (b *Body) malformed(err error) error {
	if errors.Is(err, zstd.ErrWindowSizeExceeded) {
		return model.Errorf(model.RequestTooLarge, "the body's zstd frames need a window of more than %d bytes", largeWindow)
	}
	return model.Errorf(model.MalformedBody, "the body is not valid %s", b.coding).WithCause(err)
}

// Close does nothing: the body that was sent is its sender's to close.
func (b *Body) Close() error { return nil }

// Release gives the decoder back.
func (b *Body) Release() {
	if b.free != nil {
		b.free()
		b.free = nil
	}
}

var gzipReaders = sync.Pool{New: func() any { return new(gzip.Reader) }}

// open makes the decoder; its memory is counted.
func (b *Body) open() error {
	if b.coding == Gzip {
		if err := b.grow(inflationBytes); err != nil {
			return err
		}
		z := gzipReaders.Get().(*gzip.Reader)
		b.free = func() { gzipReaders.Put(z) }
		if err := z.Reset(&b.src); err != nil {
			if b.src.err != nil && !errors.Is(b.src.err, io.EOF) {
				return b.src.err
			}
			return b.malformed(err)
		}
		b.r = z
		return nil
	}
	pool, window := smallZstd, int64(smallWindow)
	var head zstd.Header
	if head.Decode(b.src.peek()) == nil && head.WindowSize > smallWindow {
		pool, window = largeZstd, largeWindow
	}
	if err := b.grow(inflationBytes + 2*window); err != nil {
		return err
	}
	return b.openZstd(pool)
}

func (b *Body) openZstd(pool *sync.Pool) error {
	z := pool.Get().(*zstd.Decoder)
	b.free = func() {
		_ = z.Reset(nil) // lets go of the body
		pool.Put(z)
	}
	if err := z.Reset(&b.src); err != nil {
		return b.malformed(err)
	}
	b.r = z
	return nil
}

var smallZstd, largeZstd = zstdPool(smallWindow), zstdPool(largeWindow)

// zstdPool holds decoders that work in the goroutine of their reader, for windows up to a
// size.
func zstdPool(window uint64) *sync.Pool {
	return &sync.Pool{New: func() any {
		z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(window), zstd.WithDecoderMaxMemory(1<<62))
		if err != nil {
			panic(err) // of the options, which are constants
		}
		return z
	}}
}

// compressFrom is the size from which an answer is compressed: below it fits a packet.
const compressFrom = 1 << 10

// Answer gives an answer in the coding that the client likes best, and says so in h, the
// answer's header. accept are the request's Accept-Encoding headers.
func Answer(h http.Header, accept []string, b []byte) []byte {
	h.Add("Vary", "Accept-Encoding")
	if len(b) < compressFrom {
		return b
	}
	coding := acceptedCoding(accept)
	var out []byte
	switch coding {
	case Gzip:
		out = gzipped(b)
	case Zstd:
		out = answerZstd().EncodeAll(b, nil)
	default:
		return b
	}
	h["Content-Encoding"] = []string{coding}
	return out
}

// acceptedCoding chooses by the weights of Accept-Encoding (RFC 9110 §12.5.3); "" is no
// coding. Of equal ones zstd is taken, as it costs less.
func acceptedCoding(accept []string) string {
	best, bestQ := "", 0.0
	for _, coding := range [...]string{Zstd, Gzip} {
		if q := codingWeight(accept, coding); q > bestQ {
			best, bestQ = coding, q
		}
	}
	if identity := codingWeight(accept, "identity"); identity > bestQ {
		return ""
	}
	return best
}

// codingWeight is the weight of a coding: its own, else that of *, else none.
func codingWeight(accept []string, coding string) float64 {
	rest := 0.0
	for _, header := range accept {
		for part := range strings.SplitSeq(header, ",") {
			name, params, _ := strings.Cut(part, ";")
			switch name = strings.ToLower(strings.TrimSpace(name)); {
			case name == coding, name == "x-gzip" && coding == Gzip:
				return weight(params)
			case name == "*":
				rest = weight(params)
			}
		}
	}
	return rest
}

var gzipWriters = sync.Pool{New: func() any {
	z, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // of the level, which is a constant
	}
	return z
}}

func gzipped(b []byte) []byte {
	z := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(z)
	var out sliceWriter
	z.Reset(&out)
	_, _ = z.Write(b) // memory takes it
	_ = z.Close()     // as above
	return out
}

type sliceWriter []byte

func (w *sliceWriter) Write(p []byte) (int, error) {
	*w = append(*w, p...)
	return len(p), nil
}

// answerZstd encodes answers; it is made when first needed.
var answerZstd = sync.OnceValue(func() *zstd.Encoder {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(err) // of the options, which are constants
	}
	return z
})
