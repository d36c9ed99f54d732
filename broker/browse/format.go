package browse

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"

	"tidewire/internal/model"
)

// MaxPartitions is how many partitions one read may have: it bounds a cursor, which has to
// fit into a request's address or header.
const MaxPartitions = 2000

// MaxTextBytes bounds the text and the key of a filter.
const MaxTextBytes = 4096

// maxCursor bounds the text of a cursor that is worth decoding.
const maxCursor = 60_000

// Place is a partition's boundary in a cursor.
type Place struct {
	Partition   model.PartitionID
	Next, Bound model.Offset
}

// Cursor is a place in the sequence of a topic's records: what has been read lies on one
// side of each boundary. It has the filter too, so that it goes on by itself.
type Cursor struct {
	Topic model.TopicID
	// Direction of the read that gave the cursor.
	Direction Direction
	// Before: what is wanted is the page before the place, in that direction.
	Before bool
	// Whole: the read was of all partitions, not of those that were asked for.
	Whole  bool
	Places []Place // ascending by partition; Bound is Unbounded in all or in none
	Filter Filter
}

// Bytes of a cursor, in base64url without padding (RFC 4648 §5):
//
//	1   version
//	1   flags
//	16  topic id
//	uvarint number of partitions, then of each: uvarint distance to the partition before
//	    less one (the first to −1), uvarint next, uvarint bound − next (where bounded; a
//	    bound below next counts as next)
//	uvarint to                                    (where flagTo)
//	uvarint length, bytes: key                    (where flagKey)
//	1, uvarint length, bytes: parts, text         (where flagText)
//	4   CRC-32C of all before, big endian
const cursorVersion = 1

const (
	flagBackward = 1 << iota
	flagBefore
	flagWhole
	flagBounded
	flagTo
	flagKey
	flagText
	flagsKnown = 1<<iota - 1
)

const cursorHead = 18

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// String is the cursor as clients get it, of the characters A–Z a–z 0–9 - _ only.
func (c *Cursor) String() string { return string(c.Append(nil)) }

// Append appends what String gives.
func (c *Cursor) Append(to []byte) []byte {
	return base64.RawURLEncoding.AppendEncode(to, c.append(make([]byte, 0, cursorHead+8*len(c.Places)+16)))
}

func (c *Cursor) append(b []byte) []byte {
	bounded := len(c.Places) > 0 && c.Places[0].Bound != Unbounded
	b = append(b, cursorVersion, c.flags(bounded))
	b = append(b, c.Topic[:]...)
	b = binary.AppendUvarint(b, uint64(len(c.Places)))
	last := model.PartitionID(-1)
	for _, p := range c.Places {
		b = binary.AppendUvarint(b, uint64(p.Partition-last-1))
		b = binary.AppendUvarint(b, uint64(p.Next))
		if bounded {
			b = binary.AppendUvarint(b, uint64(max(0, p.Bound-p.Next)))
		}
		last = p.Partition
	}
	f := &c.Filter
	if f.HasTo {
		b = binary.AppendUvarint(b, uint64(f.To))
	}
	if f.HasKey {
		b = append(binary.AppendUvarint(b, uint64(len(f.Key))), f.Key...)
	}
	if len(f.Text) > 0 {
		b = append(b, byte(f.In))
		b = append(binary.AppendUvarint(b, uint64(len(f.Text))), f.Text...)
	}
	return sealed(b)
}

// sealed appends the checksum.
func sealed(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func (c *Cursor) flags(bounded bool) byte {
	var flags byte
	for _, x := range []struct {
		on   bool
		flag byte
	}{
		{c.Direction == Backward, flagBackward}, {c.Before, flagBefore}, {c.Whole, flagWhole}, {bounded, flagBounded},
		{c.Filter.HasTo, flagTo}, {c.Filter.HasKey, flagKey}, {len(c.Filter.Text) > 0, flagText},
	} {
		if x.on {
			flags |= x.flag
		}
	}
	return flags
}

// ParseCursor reads a cursor that a client sent. not ok: it is none, or not whole. That it
// was given out is not certain: whoever uses it checks rights and bounds as always.
func ParseCursor(text string) (_ *Cursor, ok bool) {
	if len(text) > maxCursor {
		return nil, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < cursorHead+4 {
		return nil, false
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, castagnoli) != sum || body[0] != cursorVersion || body[1]&^flagsKnown != 0 {
		return nil, false
	}
	flags := body[1]
	c := &Cursor{Before: flags&flagBefore != 0, Whole: flags&flagWhole != 0}
	if flags&flagBackward != 0 {
		c.Direction = Backward
	}
	copy(c.Topic[:], body[2:])
	r := cursorReader{b: body[cursorHead:]}
	c.Places = r.places(flags&flagBounded != 0)
	c.Filter = r.filter(flags)
	if r.bad || len(r.b) > 0 {
		return nil, false
	}
	return c, true
}

// cursorReader takes fields off the front; bad is set when one does not fit.
type cursorReader struct {
	b   []byte
	bad bool
}

func (r *cursorReader) number(most uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > most {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

// maxOffset is beyond what any log reaches.
const maxOffset = 1 << 62

func (r *cursorReader) places(bounded bool) []Place {
	n := r.number(MaxPartitions)
	if n > uint64(len(r.b)) { // before memory is taken for them
		r.bad = true
		return nil
	}
	out := make([]Place, 0, n)
	last := int64(-1)
	for range n {
		last += int64(r.number(1<<31-1)) + 1
		p := Place{Partition: model.PartitionID(last), Next: model.Offset(r.number(maxOffset)), Bound: Unbounded}
		if bounded {
			p.Bound = p.Next + model.Offset(r.number(maxOffset))
		}
		if last > 1<<31-1 {
			r.bad = true
		}
		out = append(out, p)
	}
	return out
}

func (r *cursorReader) filter(flags byte) (f Filter) {
	if flags&flagTo != 0 {
		f.To, f.HasTo = int64(r.number(1<<63-1)), true
	}
	if flags&flagKey != 0 {
		f.Key, f.HasKey = r.text(), true
	}
	if flags&flagText != 0 {
		if len(r.b) == 0 {
			r.bad = true
			return f
		}
		f.In, r.b = Parts(r.b[0]), r.b[1:]
		f.Text = r.text()
		if len(f.Text) == 0 || f.In == 0 || f.In&^InAll != 0 {
			r.bad = true
		}
	}
	return f
}

func (r *cursorReader) text() []byte {
	n := r.number(MaxTextBytes)
	if n > uint64(len(r.b)) {
		r.bad = true
		return nil
	}
	v := append([]byte{}, r.b[:n]...)
	r.b = r.b[n:]
	return v
}
