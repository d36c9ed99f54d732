package ingest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidewire/internal/model"
	"tidewire/storage/record"
)

var codecs = []record.Codec{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd}

// client makes batches as another implementation does: kmsg's encoder and, for compression,
// other code or other settings than record's.
type client struct {
	codec     record.Codec
	rawSnappy bool // as librdkafka's snappy without snappy-java's frame
	base      int64
	records   []kmsg.Record
	attrs     int16
	batch     func(b *kmsg.RecordBatch)
}

func (c *client) add(ts int64, key, value []byte, headers ...kmsg.Header) {
	if len(c.records) == 0 {
		c.base = ts
	}
	r := kmsg.Record{TimestampDelta64: ts - c.base, OffsetDelta: int32(len(c.records)), Key: key, Value: value, Headers: headers}
	r.Length = int32(len(r.AppendTo(nil)) - 1)
	c.records = append(c.records, r)
}

// bytes is the batch that a client would send.
func (c *client) bytes(t testing.TB) []byte {
	t.Helper()
	var plain []byte
	maxTs := c.base
	for _, r := range c.records {
		body := r.AppendTo(nil)
		_, k := binary.Varint(body) // the length of a length that is perhaps not right yet
		plain = binary.AppendVarint(plain, int64(len(body)-k))
		plain = append(plain, body[k:]...)
		maxTs = max(maxTs, c.base+r.TimestampDelta64)
	}
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, Attributes: c.attrs | int16(c.codec), LastOffsetDelta: int32(len(c.records) - 1),
		FirstTimestamp: c.base, MaxTimestamp: maxTs, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
		NumRecords: int32(len(c.records)), Records: compress(t, c, plain),
	}
	if c.batch != nil {
		c.batch(&b)
	}
	return sign(b.AppendTo(nil))
}

// sign writes length and checksum into a batch.
func sign(raw []byte) []byte {
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

func compress(t testing.TB, c *client, plain []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	switch c.codec {
	case record.None:
		return plain
	case record.Gzip:
		w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
		require.NoError(t, err)
		_, err = w.Write(plain)
		require.NoError(t, err)
		require.NoError(t, w.Close())
	case record.Snappy:
		if c.rawSnappy {
			return s2.EncodeSnappyBetter(nil, plain)
		}
		out.Write([]byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1})
		for chunk := range chunks(plain, 20_000) {
			enc := s2.EncodeSnappyBetter(nil, chunk)
			require.NoError(t, binary.Write(&out, binary.BigEndian, int32(len(enc))))
			out.Write(enc)
		}
	case record.LZ4:
		w := lz4.NewWriter(&out)
		require.NoError(t, w.Apply(lz4.BlockSizeOption(lz4.Block4Mb), lz4.ChecksumOption(true), lz4.CompressionLevelOption(lz4.Level4)))
		_, err := w.Write(plain)
		require.NoError(t, err)
		require.NoError(t, w.Close())
	case record.Zstd:
		w, err := zstd.NewWriter(&out, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
		require.NoError(t, err)
		_, err = w.Write(plain)
		require.NoError(t, err)
		require.NoError(t, w.Close())
	}
	return out.Bytes()
}

func chunks(b []byte, n int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			k := min(n, len(b))
			if !yield(b[:k]) {
				return
			}
			b = b[k:]
		}
	}
}

// now is the clock of these tests.
const now = int64(1_700_000_000_000)

const hour = int64(3_600_000)

// open are the rules of a topic with Kafka's defaults.
func open() Rules {
	return Rules{MaxMessageBytes: 1<<20 + 12, BeforeMaxMs: -1, AfterMaxMs: hour, OldMs: -1}
}

// check runs both halves, as the broker does.
func check(p *Pool, raw []byte, rules Rules) (*Result, Request, error) {
	out := &Result{}
	out.Reset(true)
	q, err := Parse(raw, 1_000_000)
	if err == nil {
		err = p.Check(context.Background(), &q, &rules, now, out)
	}
	return out, q, err
}

// checked requires that a request is taken.
func checked(t testing.TB, raw []byte, rules Rules) *Result {
	t.Helper()
	out, _, err := check(NewPool(1, nil), raw, rules)
	require.NoError(t, err)
	return out
}

// refused requires a code.
func refused(t testing.TB, name string, raw []byte, rules Rules, code model.Code) *model.Error {
	t.Helper()
	_, _, err := check(NewPool(1, record.NewBudget(64<<20)), raw, rules)
	require.Truef(t, model.HasCode(err, code), "%s: %v", name, err)
	return model.AsError(err)
}

// read gives the records of whole batches.
func read(t testing.TB, raw []byte) []record.Record {
	t.Helper()
	var out []record.Record
	base := model.Offset(0)
	for len(raw) > 0 {
		b, rest, err := record.ParseBatch(raw)
		require.NoError(t, err)
		require.NoError(t, b.VerifyCRC())
		var it record.Iterator
		require.NoError(t, b.Records(record.NewDecompressor(record.MaxInflated), &it))
		for it.Next() {
			r := *it.Record()
			r.Headers = append([]record.Header{}, r.Headers...)
			r.Offset += base
			out = append(out, r)
		}
		require.NoError(t, it.Err())
		base += model.Offset(b.Header.Count)
		raw = rest
	}
	return out
}
