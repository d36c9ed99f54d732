// Package cursor is the codec of a member's cursor: how far the member has read each
// partition that it owned when it was answered. The cursor is opaque to clients and comes
// back from them as untrusted text; it holds nothing that its member could not ask for
// anyway, and no secret.
//
// A cursor names, with each partition, the version of the member's assignment in which the
// partition was given to it. A partition that was lost and came back has another one, so
// that an old cursor neither rewinds nor jumps it (broker/group has the rules).
//
// # Bytes
//
// In base64url without padding (RFC 4648 §5), so of the characters A–Z a–z 0–9 - _ only:
//
//	1   format version, 1
//	4   tag of the member, big endian
//	uvarint version of the member's assignment
//	uvarint number of topics, then of each, ascending by tag:
//	  8       tag of the topic: the halves of its id, one xor the other
//	  uvarint number of partitions, then of each, ascending:
//	    uvarint (distance to the partition before less one, the first to −1) · 2, plus 1 if
//	            since differs from that of the entry before (across topics; the first's
//	            before is 0)
//	    uvarint since                                        (where the bit is set)
//	    varint  next − next of the entry before in the topic (the first's before is 0)
//	4   CRC-32C of all before, big endian
//
// Partitions of one topic tend to be near each other and to be given together: 2,000
// partitions of few topics take some 8,000 characters, and of 2,000 topics some 40,000,
// which both fit into a header. Tags stand for topic ids to that end: 64 bits tell the
// topics of one member apart.
package cursor

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"hash/fnv"
	"slices"

	"tidewire/internal/model"
)

// Version counts the states of one member's assignment, from 1; 0 is before the first.
type Version uint32

// Entry is how far one partition has been read.
type Entry struct {
	Partition model.PartitionID
	Since     Version      // the version in which the member got the partition
	Next      model.Offset // the next to be read; not negative
}

// TopicTag is what a cursor holds of a topic's id.
type TopicTag [8]byte

// TagOf gives the tag of a topic.
func TagOf(id model.TopicID) TopicTag {
	var t TopicTag
	for i := range t {
		t[i] = id[i] ^ id[i+len(t)]
	}
	return t
}

// Topic is the entries of one topic.
type Topic struct {
	Tag     TopicTag
	Entries []Entry // ascending by partition, none twice
}

// Cursor is what one answer tells its member to come back with.
type Cursor struct {
	Member  uint32  // Tag of the member's id
	Version Version // of the assignment in the answer that the cursor came with
	Topics  []Topic // ascending by tag, none twice
}

const (
	format   = 1
	head     = 5
	tagBytes = len(TopicTag{})
	sum      = 4

	// MaxEntries bounds the partitions of a cursor.
	MaxEntries = 20_000
	// MaxText bounds the text that is looked at: a request's body may hold more than its
	// header.
	MaxText = 256 << 10
	// maxPartition bounds partition numbers, so that distances cannot overflow.
	maxPartition = 1<<31 - 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Tag is what a cursor holds of a member's id: 32 bits of FNV-1a, enough to tell a cursor
// that strayed from one member to another.
func Tag(member string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(member))
	return h.Sum32()
}

// Normalise sorts topics and entries as the codec wants them.
func (c *Cursor) Normalise() {
	slices.SortFunc(c.Topics, func(a, b Topic) int { return bytes.Compare(a.Tag[:], b.Tag[:]) })
	for _, t := range c.Topics {
		slices.SortFunc(t.Entries, func(a, b Entry) int { return cmp.Compare(a.Partition, b.Partition) })
	}
}

// Find returns the entry of a partition.
func (c *Cursor) Find(topic model.TopicID, partition model.PartitionID) (Entry, bool) {
	if c == nil {
		return Entry{}, false
	}
	i, ok := slices.BinarySearchFunc(c.Topics, TagOf(topic), func(t Topic, tag TopicTag) int { return bytes.Compare(t.Tag[:], tag[:]) })
	if !ok {
		return Entry{}, false
	}
	es := c.Topics[i].Entries
	j, ok := slices.BinarySearchFunc(es, partition, func(e Entry, p model.PartitionID) int { return cmp.Compare(e.Partition, p) })
	if !ok {
		return Entry{}, false
	}
	return es[j], true
}

// Len is the number of entries.
func (c *Cursor) Len() int {
	n := 0
	for _, t := range c.Topics {
		n += len(t.Entries)
	}
	return n
}

// String is the cursor as clients get it. The cursor must be normalised.
func (c *Cursor) String() string {
	b := make([]byte, 0, head+2*binary.MaxVarintLen32+len(c.Topics)*(tagBytes+2)+c.Len()*6+sum)
	b = append(b, format)
	b = binary.BigEndian.AppendUint32(b, c.Member)
	b = binary.AppendUvarint(b, uint64(c.Version))
	b = binary.AppendUvarint(b, uint64(len(c.Topics)))
	since := Version(0)
	for _, t := range c.Topics {
		b = append(b, t.Tag[:]...)
		b = binary.AppendUvarint(b, uint64(len(t.Entries)))
		before, next := int64(-1), int64(0)
		for _, e := range t.Entries {
			gap := uint64(int64(e.Partition)-before-1) << 1
			if e.Since != since {
				b = binary.AppendUvarint(b, gap|1)
				b = binary.AppendUvarint(b, uint64(e.Since))
			} else {
				b = binary.AppendUvarint(b, gap)
			}
			b = binary.AppendVarint(b, int64(e.Next)-next)
			before, next, since = int64(e.Partition), int64(e.Next), e.Since
		}
	}
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return base64.RawURLEncoding.EncodeToString(b)
}

// Parse reads what String gave. Text that is anything else is an invalid-argument error;
// the caller adds where in the request it stood.
func Parse(text string) (*Cursor, error) {
	if len(text) > MaxText {
		return nil, model.Errorf(model.InvalidArgument, "a cursor has at most %d characters", MaxText)
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < head+sum || b[0] != format {
		return nil, errCursor()
	}
	body, tail := b[:len(b)-sum], b[len(b)-sum:]
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(tail) {
		return nil, errCursor()
	}
	r := reader{b: body[head:]}
	c := &Cursor{Member: binary.BigEndian.Uint32(body[1:head]), Version: Version(r.uvarint(1<<32 - 1))}
	r.topics(c)
	if r.bad || len(r.b) > 0 || c.String() != text {
		return nil, errCursor()
	}
	return c, nil
}

func errCursor() error {
	return model.Errorf(model.InvalidArgument, "the cursor is none that this service gave out")
}

// reader takes numbers off bytes; what does not fit makes it bad, for good.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) uvarint(limit uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > limit {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

// topics reads the topics. Each count is checked against the bytes that are left before
// anything is allocated for it.
func (r *reader) topics(c *Cursor) {
	n := r.uvarint(uint64(len(r.b) / (tagBytes + 1)))
	since, total := Version(0), uint64(0)
	for range n {
		if r.bad || len(r.b) < tagBytes {
			r.bad = true
			return
		}
		t := Topic{Tag: TopicTag(r.b[:tagBytes])}
		r.b = r.b[tagBytes:]
		if k := len(c.Topics); k > 0 && bytes.Compare(c.Topics[k-1].Tag[:], t.Tag[:]) >= 0 {
			r.bad = true
			return
		}
		m := r.uvarint(min(uint64(len(r.b)/2), MaxEntries-total))
		total += m
		t.Entries = make([]Entry, 0, m)
		before, next := int64(-1), int64(0)
		for range m {
			gap := r.uvarint(2*maxPartition + 1)
			if gap&1 != 0 {
				since = Version(r.uvarint(1<<32 - 1))
			}
			p, d := before+1+int64(gap>>1), r.varint()
			next += d
			if r.bad || p > maxPartition || next < 0 {
				r.bad = true
				return
			}
			t.Entries = append(t.Entries, Entry{Partition: model.PartitionID(p), Since: since, Next: model.Offset(next)})
			before = p
		}
		c.Topics = append(c.Topics, t)
	}
}
