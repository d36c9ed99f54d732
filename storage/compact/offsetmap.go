package compact

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
	"encoding/binary"
	"math/bits"

	"tidewire/internal/model"
)

// Seed makes the hashes of one run differ from those of any other; it must be random.
type Seed [16]byte

// slotSize is what a key takes in a Map, in bytes.
const slotSize = 24

// slot is one place of the table; next is 0 in a free one.
type slot struct {
	hi, lo uint64 // the key's hash
	next   int64  // its offset + 1
}

// growth is how many times larger a table that is full gets.
const growth = 8

// firstSlots is what a table begins with: small ones stay in the processor's caches.
const firstSlots = 8 << 10

// Map is a table of bounded size from keys to their last offsets: open addressing, linear
// probing, at most four fifths full. It begins small, and grows to its bound. It is not safe
// for concurrent use.
type Map struct {
	slots []slot
	max   int   // slots at most
	size  int64 // bytes at most
	n     int   // taken
	block cipher.Block
	mac   [aes.BlockSize]byte
	// begins has the first step of the hash for the lengths of most keys.
	begins [64][aes.BlockSize]byte
}

// NewMap makes one that takes at most size bytes, those of growing included. It has room for
// one key at least.
func NewMap(size int64, seed Seed) *Map {
	block, err := aes.NewCipher(seed[:])
	if err != nil {
		panic(err) // a seed has the length of a key
	}
	m := &Map{max: int(max(size/(growth+1)*growth/slotSize, 2)), size: size, block: block}
	for n := range m.begins {
		m.begin(m.begins[n][:], n)
	}
	n := m.max
	for n/growth >= firstSlots {
		n /= growth
	}
	m.slots = make([]slot, n)
	return m
}

func (m *Map) full() bool { return m.n >= max(len(m.slots)/5*4, 1) }

// grow moves to a larger table; false when there may be none.
func (m *Map) grow() bool {
	if len(m.slots) == m.max {
		return false
	}
	old := m.slots
	n := len(old) * growth
	if n*growth > m.max {
		n = m.max // all of it, also what the divisions left over
	}
	m.slots = make([]slot, n)
	for i := range old {
		if s := &old[i]; s.next != 0 {
			*m.find(s.hi, s.lo) = *s
		}
	}
	return true
}

// Len is the number of keys.
func (m *Map) Len() int { return m.n }

// hash is AES-128-CBC-MAC of the key behind its length, under the seed: a pseudo-random
// function (Petrank and Rackoff, CBC MAC for Real-Time Data Sources, 2000), so that nobody
// who does not know the seed can find two keys with one hash. Processors have instructions
// for it; SHA-256 took nearly twice as long (67 and 122 ns for a short key).
func (m *Map) hash(key []byte) (hi, lo uint64) {
	x := m.mac[:]
	if len(key) < len(m.begins) {
		m.mac = m.begins[len(key)]
	} else {
		m.begin(x, len(key))
	}
	for len(key) > 0 {
		n := subtle.XORBytes(x, x, key)
		key = key[n:]
		m.block.Encrypt(x, x)
	}
	return binary.LittleEndian.Uint64(x), binary.LittleEndian.Uint64(x[8:])
}

// begin is the hash of a key's length.
func (m *Map) begin(x []byte, n int) {
	binary.LittleEndian.PutUint64(x, uint64(n))
	clear(x[8:])
	m.block.Encrypt(x, x)
}

// find gives the slot of a hash, or the free one where it belongs.
func (m *Map) find(hi, lo uint64) *slot {
	n := uint64(len(m.slots))
	i, _ := bits.Mul64(hi, n)
	for {
		s := &m.slots[i]
		if s.next == 0 || s.hi == hi && s.lo == lo {
			return s
		}
		if i++; i == n {
			i = 0
		}
	}
}

// Put enters the offset of a key's record; later calls have larger offsets. It reports false,
// and has entered nothing, when a new key finds no room.
func (m *Map) Put(key []byte, off model.Offset) bool {
	hi, lo := m.hash(key)
	return m.put(hi, lo, off)
}

func (m *Map) put(hi, lo uint64, off model.Offset) bool {
	s := m.find(hi, lo)
	if s.next == 0 {
		if m.full() {
			if !m.grow() {
				return false
			}
			s = m.find(hi, lo)
		}
		m.n++
		s.hi, s.lo = hi, lo
	}
	s.next = int64(off) + 1
	return true
}

// Last is the last offset entered for a key, -1 for none.
func (m *Map) Last(key []byte) model.Offset {
	return model.Offset(m.find(m.hash(key)).next - 1)
}

// offsets are those entered from an offset on, all below end. There are none, which known
// tells, when they would take more than the table has left of the map's size.
func (m *Map) offsets(from, end model.Offset) offsetSet {
	words := (int64(end-from) + 63) / 64
	if words*8 > m.size-int64(len(m.slots))*slotSize {
		return offsetSet{}
	}
	s := offsetSet{from: from, bits: make([]uint64, words+1)}
	for i := range m.slots {
		if at := m.slots[i].next - 1 - int64(from); at >= 0 {
			s.bits[at/64] |= 1 << (at % 64)
		}
	}
	return s
}

// offsetSet is a set of offsets, one bit for each that there may be.
type offsetSet struct {
	from model.Offset
	bits []uint64
}

func (s *offsetSet) known() bool { return len(s.bits) > 0 }

func (s *offsetSet) has(off model.Offset) bool {
	at := uint64(off - s.from)
	return s.bits[at/64]>>(at%64)&1 == 1
}

// anyIn reports whether one of the offsets from first to last is in the set.
func (s *offsetSet) anyIn(first, last model.Offset) bool {
	lo, hi := uint64(first-s.from), uint64(last-s.from)
	for w := lo / 64; w <= hi/64; w++ {
		x := s.bits[w]
		if w == lo/64 {
			x &= ^uint64(0) << (lo % 64)
		}
		if w == hi/64 {
			x &= ^uint64(0) >> (63 - hi%64)
		}
		if x != 0 {
			return true
		}
	}
	return false
}
