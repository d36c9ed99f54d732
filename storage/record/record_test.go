package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"tidewire/internal/model"
	"tidewire/internal/testkit/racing"
)

var codecs = []Codec{None, Gzip, Snappy, LZ4, Zstd}

// walk reads the first batch of b whole, and tells how many records it has and the largest
// timestamp.
func walk(b []byte, d *Decompressor, it *Iterator) (batch Batch, n int, maxTs int64, err error) {
	batch, _, err = ParseBatch(b)
	if err == nil {
		err = batch.VerifyCRC()
	}
	if err == nil {
		err = batch.Records(d, it)
	}
	if err != nil {
		return batch, 0, 0, err
	}
	for ; it.Next(); n++ {
		maxTs = max(maxTs, it.Record().Timestamp)
	}
	return batch, n, maxTs, it.Err()
}

func (r *Record) payload() int {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Name) + len(r.Headers[i].Value)
	}
	return n
}

func sample(b *Builder) {
	b.Add(1000, []byte("k"), []byte("v"), nil)
	b.Add(999, nil, []byte{}, []Header{{Name: []byte("h"), Value: nil}, {Name: []byte("h"), Value: []byte{}}})
	b.Add(1500, []byte{}, nil, []Header{{Name: []byte{}, Value: []byte("x")}})
}

// One record, byte for byte: a change here is a change of what is on disks.
func TestBatchIsKafkasByteForByte(t *testing.T) {
	t.Parallel()
	b := NewBuilder(0)
	b.Add(1000, []byte("k"), []byte("v"), []Header{{Name: []byte("h"), Value: nil}})
	got, err := b.Finish(None)
	require.NoError(t, err)
	want := []byte{
		0, 0, 0, 0, 0, 0, 0, 0, // base offset
		0, 0, 0, 61, // length
		0xff, 0xff, 0xff, 0xff, // leader epoch
		2,                      // magic
		0x57, 0x86, 0x92, 0x49, // CRC-32C
		0, 0, // attributes
		0, 0, 0, 0, // last offset delta
		0, 0, 0, 0, 0, 0, 0x03, 0xe8, // base timestamp
		0, 0, 0, 0, 0, 0, 0x03, 0xe8, // max timestamp
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, // producer id
		0xff, 0xff, // producer epoch
		0xff, 0xff, 0xff, 0xff, // base sequence
		0, 0, 0, 1, // records
		22,      // record length 11
		0, 0, 0, // attributes, timestamp delta, offset delta
		2, 'k', 2, 'v',
		2, 2, 'h', 1, // one header, null value
	}
	require.Equal(t, want[:17], got[:17])
	require.Equal(t, want[21:], got[21:])
	require.Equal(t, want, got)
}

func TestBatchesDecodeWithIndependentCode(t *testing.T) {
	t.Parallel()
	b := NewBuilder(0)
	sample(b)
	raw, err := b.Finish(None)
	require.NoError(t, err)
	var kb kmsg.RecordBatch
	require.NoError(t, kb.ReadFrom(raw))
	require.EqualValues(t, len(raw)-12, kb.Length)
	require.EqualValues(t, -1, kb.PartitionLeaderEpoch)
	require.EqualValues(t, 1500, kb.MaxTimestamp)
	require.EqualValues(t, 2, kb.LastOffsetDelta)
	require.EqualValues(t, -1, kb.ProducerID)
	require.EqualValues(t, 3, kb.NumRecords)
	var recs []kmsg.Record
	for rest := kb.Records; len(rest) > 0; {
		n, k := binary.Varint(rest)
		var r kmsg.Record
		require.NoError(t, r.ReadFrom(rest[:k+int(n)]))
		recs = append(recs, r)
		rest = rest[k+int(n):]
	}
	require.Len(t, recs, 3)
	require.Equal(t, []byte("k"), recs[0].Key)
	require.EqualValues(t, -1, recs[1].TimestampDelta64)
	require.Nil(t, recs[1].Key)
	require.Equal(t, []byte{}, recs[1].Value)
	require.Equal(t, "h", recs[1].Headers[1].Key)
	require.Nil(t, recs[1].Headers[0].Value)
	require.Equal(t, []byte{}, recs[1].Headers[1].Value)
	require.Nil(t, recs[2].Value)
	require.EqualValues(t, 2, recs[2].OffsetDelta)
}

func genRecord(t *rapid.T) Record {
	maybe := func(name string) []byte {
		if rapid.Bool().Draw(t, name+" null") {
			return nil
		}
		return append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, name)...)
	}
	r := Record{Timestamp: rapid.Int64Range(0, math.MaxInt64/2).Draw(t, "ts"), Key: maybe("key"), Value: maybe("value")}
	for range rapid.IntRange(0, 3).Draw(t, "headers") {
		r.Headers = append(r.Headers, Header{Name: append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "name")...), Value: maybe("hv")})
	}
	return r
}

func TestRecordsSurviveEveryCodec(t *testing.T) {
	t.Parallel()
	b, d := NewBuilder(0), NewDecompressor(1<<20)
	var it Iterator
	rapid.Check(t, func(t *rapid.T) {
		b.Reset()
		var want []Record
		maxTs := int64(0)
		for i := range rapid.IntRange(1, 20).Draw(t, "n") {
			r := genRecord(t)
			r.Offset = model.Offset(i)
			before := b.SizeWith(r.Timestamp, r.Key, r.Value, r.Headers)
			b.Add(r.Timestamp, r.Key, r.Value, r.Headers)
			require.Equal(t, before, b.Size(), "SizeWith foretells Size")
			require.LessOrEqual(t, RecordSize(int32(i), 0, r.Key, r.Value, r.Headers), RecordSizeBound(r.payload(), len(r.Headers)))
			maxTs = max(maxTs, r.Timestamp)
			want = append(want, r)
		}
		codec := rapid.SampledFrom(codecs).Draw(t, "codec")
		raw, err := b.Finish(codec)
		require.NoError(t, err)
		batch, n, ts, err := walk(raw, d, &it)
		require.NoError(t, err)
		require.Len(t, want, n)
		require.Equal(t, maxTs, ts)
		require.Equal(t, maxTs, batch.Header.MaxTimestamp)
		require.Equal(t, codec, batch.Header.Attributes.Codec())
		require.NoError(t, batch.Records(d, &it))
		for i := 0; it.Next(); i++ {
			r := *it.Record()
			if len(r.Headers) == 0 {
				r.Headers = nil
			}
			require.Equal(t, want[i], r)
		}
		require.NoError(t, it.Err())
	})
}

func TestSettersKeepTheBatchValid(t *testing.T) {
	t.Parallel()
	d := NewDecompressor(1 << 20)
	var it Iterator
	for _, c := range codecs {
		b := NewBuilder(0)
		sample(b)
		raw, err := b.Finish(c)
		require.NoError(t, err)
		SetBaseOffset(raw, 41)
		SetLeaderEpoch(raw, 9)
		SetLogAppendTime(raw, 7777)
		batch, _, err := ParseBatch(raw)
		require.NoError(t, err)
		require.NoError(t, batch.VerifyCRC())
		require.EqualValues(t, 43, batch.Header.LastOffset())
		require.EqualValues(t, 9, batch.Header.LeaderEpoch)
		require.NoError(t, batch.Records(d, &it))
		n := 0
		for ; it.Next(); n++ {
			require.EqualValues(t, 7777, it.Record().Timestamp)
			require.EqualValues(t, 41+n, it.Record().Offset)
		}
		require.Equal(t, 3, n)
	}
}

func TestDamagedBatchesAreFound(t *testing.T) {
	t.Parallel()
	resign := func(b []byte) []byte { setCRC(b); return b }
	be := binary.BigEndian
	for name, change := range map[string]func(b []byte) []byte{
		"empty":            func(b []byte) []byte { return nil },
		"short":            func(b []byte) []byte { return b[:len(b)-1] },
		"magic":            func(b []byte) []byte { b[16] = 1; return b },
		"checksum":         func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"count":            func(b []byte) []byte { be.PutUint32(b[57:], 2); return resign(b) },
		"count and delta":  func(b []byte) []byte { be.PutUint32(b[57:], 2); be.PutUint32(b[23:], 1); return resign(b) },
		"huge count":       func(b []byte) []byte { be.PutUint32(b[57:], 1<<30); be.PutUint32(b[23:], 1<<30-1); return resign(b) },
		"not compressed":   func(b []byte) []byte { b[22] |= 0x01; return resign(b) },
		"offset delta":     func(b []byte) []byte { b[64] = 9; return resign(b) },
		"record length":    func(b []byte) []byte { b[61] = 0xfe; return resign(b) },
		"negative length":  func(b []byte) []byte { b[61] = 1; return resign(b) },
		"key length":       func(b []byte) []byte { b[65] = 0x7e; return resign(b) },
		"length too small": func(b []byte) []byte { be.PutUint32(b[8:], 10); return b },
		"length negative":  func(b []byte) []byte { be.PutUint32(b[8:], 1<<31); return b },
	} {
		b := NewBuilder(0)
		sample(b)
		raw, err := b.Finish(None)
		require.NoError(t, err)
		_, _, _, err = walk(change(bytes.Clone(raw)), NewDecompressor(1000), new(Iterator))
		require.True(t, model.HasCode(err, model.CorruptBatch) || errors.Is(err, ErrShort), "%s: %v", name, err)
	}
}

func TestInflationStopsAtItsLimit(t *testing.T) {
	t.Parallel()
	racing.SkipSequential(t)
	for _, c := range codecs[1:] {
		b := NewBuilder(0)
		b.Add(0, nil, make([]byte, 20<<20), nil)
		raw, err := b.Finish(c)
		require.NoError(t, err)
		require.Less(t, len(raw), 2<<20)
		d := NewDecompressor(1 << 20)
		_, _, _, err = walk(raw, d, new(Iterator))
		require.True(t, model.HasCode(err, model.RecordTooLarge), "%s: %v", c, err)
		require.LessOrEqual(t, cap(d.buf), smallInflated, c)
		_, n, _, err := walk(raw, NewDecompressor(21<<20), new(Iterator))
		require.NoError(t, err, c)
		require.Equal(t, 1, n)
	}
}

// Java's client streams zstd: its frames do not tell their length.
func TestStreamedZstdIsReadWithinTheLimit(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	w, err := zstd.NewWriter(&buf, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(2<<20))
	require.NoError(t, err)
	data := bytes.Repeat([]byte("tidewire"), 1<<20)
	_, err = w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Flush())
	require.NoError(t, w.Close())
	var h zstd.Header
	require.NoError(t, h.Decode(buf.Bytes()))
	require.False(t, h.HasFCS)
	for range 2 {
		out, err := NewDecompressor(8<<20).Decompress(Zstd, buf.Bytes())
		require.NoError(t, err)
		require.Equal(t, data, out)
	}
	_, err = NewDecompressor(8<<20-1).Decompress(Zstd, buf.Bytes())
	require.True(t, model.HasCode(err, model.RecordTooLarge), "%v", err)
}

func TestRawSnappyOfOtherClientsIsRead(t *testing.T) {
	t.Parallel()
	// "abcd" as one literal, without snappy-java's frame.
	d := NewDecompressor(100)
	out, err := d.Decompress(Snappy, []byte{4, 3 << 2, 'a', 'b', 'c', 'd'})
	require.NoError(t, err)
	require.Equal(t, "abcd", string(out))
	framed := compressSnappy(nil, []byte("abcd"))
	require.Equal(t, []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 6, 4, 3 << 2, 'a', 'b', 'c', 'd'}, framed)
	_, err = d.Decompress(Snappy, append(framed, 0, 0, 0, 9))
	require.True(t, model.HasCode(err, model.CorruptBatch))
}

func TestIterationDoesNotAllocate(t *testing.T) {
	b := NewBuilder(0)
	for i := range 1000 {
		b.Add(int64(i), []byte("key"), []byte("value"), []Header{{Name: []byte("n"), Value: []byte("v")}})
	}
	raw, err := b.Finish(None)
	require.NoError(t, err)
	var it Iterator
	batch, _, err := ParseBatch(raw)
	require.NoError(t, err)
	require.NoError(t, batch.Records(nil, &it))
	require.True(t, it.Next())
	require.Zero(t, testing.AllocsPerRun(10, func() {
		if batch.Records(nil, &it) != nil {
			t.Error("no records")
		}
		for it.Next() {
		}
	}))
	key, value := []byte("key"), []byte("value")
	require.Zero(t, testing.AllocsPerRun(10, func() {
		b.Reset()
		for i := range 1000 {
			b.Add(int64(i), key, value, nil)
		}
		if _, err := b.Finish(None); err != nil {
			t.Error(err)
		}
	}))
}

func FuzzBatch(f *testing.F) {
	for _, c := range codecs {
		b := NewBuilder(0)
		sample(b)
		raw, err := b.Finish(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, false)
		f.Add(raw[:len(raw)-3], true)
	}
	f.Fuzz(func(t *testing.T, data []byte, sign bool) {
		data = bytes.Clone(data)
		if sign && len(data) > HeaderSize {
			setCRC(data) // let the fuzzer past the checksum
			binary.BigEndian.PutUint32(data[posLength:], uint32(len(data)-LengthSize))
		}
		d := NewDecompressor(1 << 16)
		var it Iterator
		batch, n, maxTs, err := walk(data, d, &it)
		if err != nil {
			var me *model.Error
			if !errors.As(err, &me) && !errors.Is(err, ErrShort) {
				t.Fatalf("not an error of this package: %v", err)
			}
			return
		}
		if n != int(batch.Header.Count) || batch.Header.Size() > len(data) {
			t.Fatalf("%d records of %+v", n, batch.Header)
		}
		if n == 0 {
			return
		}
		var w Rewriter
		it.Rewind()
		w.Begin(&batch.Header)
		for it.Next() {
			w.Keep(&it)
		}
		again, err := w.Finish()
		if err != nil {
			t.Fatal(err)
		}
		if _, m, ts, err := walk(again, d, &it); err != nil || m != n || ts != maxTs {
			t.Fatalf("%d records with times up to %d came back as %d up to %d: %v", n, maxTs, m, ts, err)
		}
	})
}

func BenchmarkBuilder(b *testing.B) {
	bl := NewBuilder(1 << 16)
	value := make([]byte, 100)
	b.ReportAllocs()
	for b.Loop() {
		bl.Reset()
		for i := range 100 {
			bl.Add(int64(i), nil, value, nil)
		}
		if _, err := bl.Finish(None); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkIterate(b *testing.B) {
	bl := NewBuilder(1 << 16)
	for i := range 100 {
		bl.Add(int64(i), nil, make([]byte, 100), nil)
	}
	raw, err := bl.Finish(None)
	if err != nil {
		b.Fatal(err)
	}
	var it Iterator
	b.ReportAllocs()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if _, _, _, err := walk(raw, nil, &it); err != nil {
			b.Fatal(err)
		}
	}
}
