package ingest

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
)

// scanBuffer is how much of inflated records is in memory at a time.
const scanBuffer = 32 << 10

// scanner reads fields off a stream of records and passes over keys, values and headers. It
// fails softly: after an error every read gives zeros, and err is why.
type scanner struct {
	src  io.Reader // nil: buf holds all there is
	tee  io.Writer // gets every byte that comes from src; may be nil
	own  []byte    // memory for src
	buf  []byte
	pos  int
	base int64 // bytes before buf
	err  error
}

var (
	errBadNumber = errors.New("a number has too many bytes")
	errEnds      = errors.New("the records end too early")
	errLength    = errors.New("a length does not fit")
)

// reset begins with bytes that are all there.
func (s *scanner) reset(all []byte) {
	*s = scanner{own: s.own, buf: all}
}

// resetStream begins with a stream, whose bytes tee gets too.
func (s *scanner) resetStream(src io.Reader, tee io.Writer) {
	if s.own == nil {
		s.own = make([]byte, scanBuffer)
	}
	*s = scanner{own: s.own, src: src, tee: tee}
}

// at is the number of bytes taken so far.
func (s *scanner) at() int64 { return s.base + int64(s.pos) }

// fill gets further bytes once those in buf are taken; false at the end or on an error.
func (s *scanner) fill() bool {
	if s.err != nil || s.src == nil {
		return false
	}
	s.base += int64(len(s.buf))
	s.buf, s.pos = nil, 0
	for {
		n, err := s.src.Read(s.own)
		if n > 0 {
			s.buf = s.own[:n]
			if s.tee != nil {
				if _, err := s.tee.Write(s.buf); err != nil {
					s.err, s.buf = err, nil
					return false
				}
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			s.src = nil
			return n > 0
		case err != nil:
			s.err, s.buf = err, nil
			return false
		case n > 0:
			return true
		}
	}
}

// more reports whether a byte follows.
func (s *scanner) more() bool { return s.pos < len(s.buf) || s.fill() }

func (s *scanner) fail(err error) {
	if s.err == nil {
		s.err = err
	}
	s.src, s.buf, s.pos = nil, nil, 0
}

func (s *scanner) byte() byte {
	if s.pos == len(s.buf) && !s.fill() {
		s.fail(errEnds)
		return 0
	}
	b := s.buf[s.pos]
	s.pos++
	return b
}

// long reads a zigzag number of up to 64 bits.
func (s *scanner) long() int64 {
	if s.pos < len(s.buf) && s.buf[s.pos] < 0x80 { // most are one byte
		u := s.buf[s.pos]
		s.pos++
		return int64(u>>1) ^ -int64(u&1)
	}
	return s.longer(binary.MaxVarintLen64)
}

// int reads a zigzag number of up to 32 bits.
func (s *scanner) int() int64 {
	if s.pos < len(s.buf) && s.buf[s.pos] < 0x80 {
		u := s.buf[s.pos]
		s.pos++
		return int64(u>>1) ^ -int64(u&1)
	}
	n := s.longer(binary.MaxVarintLen32)
	if n < math.MinInt32 || n > math.MaxInt32 {
		s.fail(errBadNumber)
		return 0
	}
	return n
}

func (s *scanner) longer(most int) int64 {
	var u uint64
	for i := range most {
		b := s.byte()
		if i == binary.MaxVarintLen64-1 && b > 1 {
			break
		}
		u |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			return int64(u>>1) ^ -int64(u&1)
		}
	}
	s.fail(errBadNumber)
	return 0
}

// skip passes over n bytes, which must end at or before end.
func (s *scanner) skip(n, end int64) {
	if n < 0 || n > end-s.at() {
		s.fail(errLength)
		return
	}
	for n > 0 {
		if k := int64(len(s.buf) - s.pos); k > 0 {
			k = min(k, n)
			s.pos += int(k)
			n -= k
			continue
		}
		if !s.fill() {
			s.fail(errEnds)
			return
		}
	}
}
