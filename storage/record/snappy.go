package record

import (
	"encoding/binary"
	"io"

	"github.com/klauspost/compress/s2"
)

// snappyStream reads the blocks of snappy-java's frame, behind its header.
type snappyStream struct {
	src   []byte // blocks not inflated yet
	block []byte // memory of the present block
	left  []byte // what was not read of it
}

// Read gives the bytes of one block at most.
func (s *snappyStream) Read(p []byte) (int, error) {
	for len(s.left) == 0 {
		if len(s.src) == 0 {
			return 0, io.EOF
		}
		block, rest, err := cutSnappy(s.src)
		if err != nil {
			return 0, err
		}
		if s.block, err = decodeSnappy(s.block[:0], block); err != nil {
			return 0, err
		}
		s.src, s.left = rest, s.block
	}
	n := copy(p, s.left)
	s.left = s.left[n:]
	return n, nil
}

// cutSnappy takes the first block, which its length precedes, off src.
func cutSnappy(src []byte) (block, rest []byte, err error) {
	if len(src) < 4 {
		return nil, nil, corrupt("a snappy block is cut short")
	}
	n := binary.BigEndian.Uint32(src)
	if src = src[4:]; uint64(n) > uint64(len(src)) {
		return nil, nil, corrupt("a snappy block is cut short")
	}
	return src[:n], src[n:], nil
}

// largestSnappyBlock is the largest length that a block claims, as far as they are whole.
func largestSnappyBlock(src []byte) int {
	largest := 0
	for len(src) > 0 {
		block, rest, err := cutSnappy(src)
		if err != nil {
			break
		}
		if n, err := snappyLen(block); err == nil {
			largest = max(largest, n)
		}
		src = rest
	}
	return largest
}

// snappyLen is the inflated length of a block. A block cannot inflate more than 64 times: a
// length beyond is a lie that would cost an allocation.
func snappyLen(block []byte) (int, error) {
	n, err := s2.DecodedLen(block)
	if err == nil && n > 64*len(block)+64 {
		return 0, corrupt("a snappy block claims to inflate %d bytes to %d", len(block), n)
	}
	return n, err
}

// decodeSnappy appends an inflated block to into.
func decodeSnappy(into, block []byte) ([]byte, error) {
	n, err := snappyLen(block)
	if err != nil {
		return into, err
	}
	start := len(into)
	into = grow(into, n)
	if _, err := s2.Decode(into[start:start+n:start+n], block); err != nil {
		return into, err
	}
	return into[:start+n], nil
}
