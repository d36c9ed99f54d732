// Package bombs makes record batches that are small and inflate to very much, for tests that
// nothing comes of it.
package bombs

import (
	"bytes"
	"encoding/binary"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/pierrec/lz4/v4"

	"tidewire/storage/record"
)

// size is about how many bytes a bomb has.
const size = 500_000

const mebibyte = 1 << 20

// Batch is a batch of at most 502 KB, with a checksum that fits, that inflates to as much as
// its codec can: some 490 MB with gzip, 10 MB with snappy, 126 MB with lz4 and 4 GB with zstd.
// Its one record says to have claim bytes; what follows its first fields is zeros. The
// timestamps are as given, in milliseconds.
func Batch(c record.Codec, claim, timestamp int64) []byte {
	head := binary.AppendVarint(nil, claim)
	head = append(head, 0, 0, 0, 2, 'k') // attributes, deltas, a key
	head = binary.AppendVarint(head, claim-10)
	b := make([]byte, record.HeaderSize, size)
	b = append(b, inflating(c, head)...)
	h := record.BatchHeader{
		LeaderEpoch: -1, Attributes: record.Attributes(c), BaseTimestamp: timestamp, MaxTimestamp: timestamp,
		ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Count: 1,
	}
	h.Put(b)
	return b
}

// inflating is compressed data: head, then zeros.
func inflating(c record.Codec, head []byte) []byte {
	zeros := make([]byte, mebibyte)
	var out bytes.Buffer
	switch c {
	case record.None:
		out.Write(head)
		out.Write(zeros[:size/2])
	case record.Gzip: // members follow each other
		out.Write(gzipped(head))
		for member := gzipped(zeros); out.Len()+len(member) < size; {
			out.Write(member)
		}
	case record.Snappy:
		out.Write([]byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1})
		for block := head; out.Len() < size-60_000; block = zeros {
			enc := s2.EncodeSnappy(nil, block)
			out.Write(binary.BigEndian.AppendUint32(nil, uint32(len(enc))))
			out.Write(enc)
		}
	case record.LZ4:
		w := lz4.NewWriter(&out)
		write(w.Write(head))
		for range 120 {
			write(w.Write(zeros))
		}
		write(0, w.Close())
	case record.Zstd: // a frame with a window of 8 MiB: the head as it is, then blocks of one byte, repeated
		const blocks = 32 << 10
		out.Write([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 13 << 3})
		zstdBlock(&out, 0, len(head))
		out.Write(head)
		for i := range blocks {
			kind := 1
			if i == blocks-1 {
				kind = 1 | lastBlock
			}
			zstdBlock(&out, kind, 128<<10)
			out.WriteByte(0)
		}
	}
	return out.Bytes()
}

func gzipped(b []byte) []byte {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	write(0, err)
	write(w.Write(b))
	write(0, w.Close())
	return out.Bytes()
}

// write drops a count. Writing to memory does not fail.
func write(_ int, err error) {
	if err != nil {
		panic(err)
	}
}

const lastBlock = 1 << 2

// zstdBlock writes the header of a block (RFC 8878 §3.1.1.2).
func zstdBlock(out *bytes.Buffer, kind, n int) {
	last := kind >> 2
	x := n<<3 | (kind&3)<<1 | last
	out.Write([]byte{byte(x), byte(x >> 8), byte(x >> 16)})
}
