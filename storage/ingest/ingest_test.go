package ingest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"tidewire/internal/model"
	"tidewire/internal/testkit/racing"
	"tidewire/storage/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sample(c record.Codec) *client {
	x := &client{codec: c}
	x.add(now, []byte("k"), []byte("v"))
	x.add(now-1, []byte{}, nil, kmsg.Header{Key: "h", Value: nil}, kmsg.Header{Key: "h", Value: []byte{}})
	x.add(now+5, []byte("k2"), bytes.Repeat([]byte("long "), 9000), kmsg.Header{Key: "", Value: []byte("x")})
	return x
}

func TestBatchesOfOtherClientsAreStoredAsTheyCame(t *testing.T) {
	t.Parallel()
	for _, c := range codecs {
		for _, raw := range [][]byte{sample(c).bytes(t), (&client{codec: c, rawSnappy: true, records: sample(c).records, base: now}).bytes(t)} {
			before := bytes.Clone(raw)
			out := checked(t, raw, open())
			require.Equal(t, before, out.Bytes, c)
			require.Same(t, &raw[0], &out.Bytes[0], "not even copied")
			require.Equal(t, []int64{now, now - 1, now + 5}, out.Timestamps)
			require.Equal(t, 2+0+2+2+45000+1, out.Payload, c)
			require.Len(t, read(t, out.Bytes), 3)
			b, _, err := record.ParseBatch(out.Bytes)
			require.NoError(t, err)
			require.Equal(t, c, b.Header.Attributes.Codec(), "the codec's bits stay")
		}
	}
}

func TestSeveralBatchesAreOneRequest(t *testing.T) {
	t.Parallel()
	var raw []byte
	for _, c := range codecs {
		raw = append(raw, sample(c).bytes(t)...)
	}
	out, q, err := check(NewPool(2, nil), raw, open())
	require.NoError(t, err)
	require.Equal(t, 5, q.Batches)
	require.Equal(t, 15, q.Records)
	require.Len(t, out.Timestamps, 15)
	bad := sample(record.Zstd)
	bad.records[1].TimestampDelta64 = -2 * now
	e := refused(t, "the sixth batch", append(raw, bad.bytes(t)...), open(), model.InvalidTimestamp)
	require.Equal(t, "/records/16", e.Fields[0].Pointer, "the record's place in the request")
	_, err = Parse(raw, 14)
	require.True(t, model.HasCode(err, model.RequestTooLarge))
}

func TestEachFaultHasItsCode(t *testing.T) {
	t.Parallel()
	be := binary.BigEndian
	type row struct {
		change func(raw []byte) []byte
		code   model.Code
	}
	for name, c := range map[string]row{
		"empty":            {func([]byte) []byte { return nil }, model.CorruptBatch},
		"short":            {func(b []byte) []byte { return b[:len(b)-1] }, model.CorruptBatch},
		"header cut":       {func(b []byte) []byte { return b[:60] }, model.CorruptBatch},
		"magic 1":          {func(b []byte) []byte { b[16] = 1; return b }, model.CorruptBatch},
		"a bit flipped":    {func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, model.CorruptBatch},
		"length too small": {func(b []byte) []byte { be.PutUint32(b[8:], 10); return b }, model.CorruptBatch},
		"length negative":  {func(b []byte) []byte { be.PutUint32(b[8:], 1<<31); return b }, model.CorruptBatch},
		"length of 2 GiB":  {func(b []byte) []byte { be.PutUint32(b[8:], math.MaxInt32); return b }, model.CorruptBatch},
		"no records":       {func(b []byte) []byte { be.PutUint32(b[57:], 0); return sign(b) }, model.InvalidRecord},
		"no offsets":       {func(b []byte) []byte { be.PutUint32(b[57:], 0); be.PutUint32(b[23:], math.MaxUint32); return sign(b) }, model.CorruptBatch},
		"count":            {func(b []byte) []byte { be.PutUint32(b[57:], 2); return sign(b) }, model.InvalidRecord},
		"count and delta":  {func(b []byte) []byte { be.PutUint32(b[57:], 2); be.PutUint32(b[23:], 1); return sign(b) }, model.InvalidRecord},
		"one more":         {func(b []byte) []byte { be.PutUint32(b[57:], 4); be.PutUint32(b[23:], 3); return sign(b) }, model.InvalidRecord},
		"huge count":       {func(b []byte) []byte { be.PutUint32(b[57:], 1<<19); be.PutUint32(b[23:], 1<<19-1); return sign(b) }, model.InvalidRecord},
		"control":          {func(b []byte) []byte { b[22] |= 0x20; return sign(b) }, model.InvalidRecord},
		"delete horizon":   {func(b []byte) []byte { b[22] |= 0x40; return sign(b) }, model.InvalidRecord},
		"unknown bit":      {func(b []byte) []byte { b[21] |= 0x01; return sign(b) }, model.InvalidRecord},
		"append time":      {func(b []byte) []byte { b[22] |= 0x08; return sign(b) }, model.InvalidTimestamp},
		"codec 5":          {func(b []byte) []byte { b[22] |= 0x05; return sign(b) }, model.UnsupportedCompression},
		"codec 7":          {func(b []byte) []byte { b[22] |= 0x07; return sign(b) }, model.UnsupportedCompression},
		"not gzip":         {func(b []byte) []byte { b[22] |= 0x01; return sign(b) }, model.InvalidRecord},
		"not snappy":       {func(b []byte) []byte { b[22] |= 0x02; return sign(b) }, model.InvalidRecord},
		"not lz4":          {func(b []byte) []byte { b[22] |= 0x03; return sign(b) }, model.InvalidRecord},
		"not zstd":         {func(b []byte) []byte { b[22] |= 0x04; return sign(b) }, model.InvalidRecord},
		"no producer":      {func(b []byte) []byte { b[22] |= 0x10; return sign(b) }, model.InvalidRecord},
		"no sequence":      {func(b []byte) []byte { be.PutUint64(b[43:], 5); return sign(b) }, model.InvalidRecord},
		"producer −2":      {func(b []byte) []byte { be.PutUint64(b[43:], math.MaxUint64-1); return sign(b) }, model.InvalidRecord},
		"offset delta":     {func(b []byte) []byte { b[64] = 8; return sign(b) }, model.InvalidRecord},
		"record length":    {func(b []byte) []byte { b[61] = 0xfe; return sign(b) }, model.InvalidRecord},
		"negative length":  {func(b []byte) []byte { b[61] = 1; return sign(b) }, model.InvalidRecord},
		"key length":       {func(b []byte) []byte { b[65] = 0x7e; return sign(b) }, model.InvalidRecord},
		"behind the last":  {func(b []byte) []byte { return sign(append(b, 0)) }, model.InvalidRecord},
		"another frame":    {func(b []byte) []byte { return append(b, 0) }, model.CorruptBatch},
	} {
		refused(t, name, c.change(sample(record.None).bytes(t)), open(), c.code)
	}
}

// A number that Kafka's readers take for 32 bits must fit them: they stop at others for ever.
func TestNumbersFitKafkasReaders(t *testing.T) {
	t.Parallel()
	one := func(body []byte) []byte {
		c := &client{}
		c.add(now, nil, nil)
		c.batch = func(b *kmsg.RecordBatch) {
			b.Records = append(binary.AppendVarint(nil, int64(len(body))), body...)
		}
		return c.bytes(t)
	}
	require.Len(t, checked(t, one([]byte{0, 0, 0, 1, 1, 0}), open()).Timestamps, 1)
	require.Len(t, checked(t, one([]byte{0, 0, 0, 0x81, 0x80, 0x80, 0x80, 0, 1, 0}), open()).Timestamps, 1, "−1 in five bytes")
	for name, body := range map[string][]byte{
		"key length in six bytes":       {0, 0, 0, 0x81, 0x80, 0x80, 0x80, 0x80, 0, 1, 0},
		"key length beyond 32 bits":     {0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 0},
		"key length −2":                 {0, 0, 0, 3, 1, 0},
		"value length −2":               {0, 0, 0, 1, 3, 0},
		"header count −1":               {0, 0, 0, 1, 1, 1},
		"header count too large":        {0, 0, 0, 1, 1, 2},
		"header without name":           {0, 0, 0, 1, 1, 2, 1, 1},
		"header value too long":         {0, 0, 0, 1, 1, 2, 0, 2},
		"a byte behind the headers":     {0, 0, 0, 1, 1, 0, 0},
		"timestamp delta in 11 bytes":   {0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 0, 1, 1, 0},
		"timestamp delta of 65 bits":    {0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2, 0, 1, 1, 0},
		"offset delta beyond the count": {0, 0, 2, 1, 1, 0},
		"too short":                     {0, 0, 0, 1, 1},
	} {
		e := refused(t, name, one(body), open(), model.InvalidRecord)
		require.Equal(t, "/records/0", e.Fields[0].Pointer, name)
	}
}

func TestTheBatchesOfIdempotentProducersPass(t *testing.T) {
	t.Parallel()
	c := sample(record.Gzip)
	c.batch = func(b *kmsg.RecordBatch) { b.ProducerID, b.ProducerEpoch, b.FirstSequence = 7, 2, 40 }
	_, q, err := check(NewPool(1, nil), c.bytes(t), open())
	require.NoError(t, err)
	require.False(t, q.Transactional)
	c.attrs = int16(record.AttrTransactional)
	_, q, err = check(NewPool(1, nil), c.bytes(t), open())
	require.NoError(t, err)
	require.True(t, q.Transactional)
}

func TestTimestampsAreBounded(t *testing.T) {
	t.Parallel()
	at := func(ts int64) []byte {
		c := &client{codec: record.Zstd}
		c.add(now, []byte("k"), nil)
		c.add(ts, []byte("k"), nil)
		return c.bytes(t)
	}
	bounded, appended := open(), open()
	bounded.BeforeMaxMs = hour
	appended.LogAppendTime, appended.BeforeMaxMs = true, 0
	for _, x := range []struct {
		name  string
		ts    int64
		rules Rules
		code  model.Code
	}{
		{"now", now, open(), ""},
		{"an hour ahead", now + hour, open(), ""},
		{"an hour and 1 ms ahead", now + hour + 1, open(), model.InvalidTimestamp},
		{"the year 2100", 4_102_444_800_000, open(), model.InvalidTimestamp},
		{"the end of time", math.MaxInt64, open(), model.InvalidTimestamp},
		{"1970", 0, open(), ""},
		{"−1", -1, open(), model.InvalidTimestamp},
		{"the beginning of time", math.MinInt64 + now, open(), model.InvalidTimestamp},
		{"an hour ago", now - hour, bounded, ""},
		{"an hour and 1 ms ago", now - hour - 1, bounded, model.InvalidTimestamp},
		{"the year 2100, replaced", 4_102_444_800_000, appended, ""},
		{"−1, replaced", -1, appended, ""},
		{"1970, replaced", 0, appended, ""},
	} {
		if x.code == "" {
			checked(t, at(x.ts), x.rules)
			continue
		}
		e := refused(t, x.name, at(x.ts), x.rules, x.code)
		require.Equal(t, "/records/1", e.Fields[0].Pointer)
	}
	c := &client{}
	c.add(math.MaxInt64, nil, nil)
	c.records[0].TimestampDelta64 = 1 // base + delta is beyond 64 bits, and would be the year −292 million
	refused(t, "overflow", c.bytes(t), open(), model.InvalidTimestamp)
}

func TestOldRecordsAreCounted(t *testing.T) {
	t.Parallel()
	c := &client{}
	for _, age := range []int64{0, hour, hour + 1, 24 * hour} {
		c.add(now-age, nil, nil)
	}
	rules := open()
	rules.OldMs = hour
	require.Equal(t, 2, checked(t, c.bytes(t), rules).Old)
	require.Zero(t, checked(t, c.bytes(t), open()).Old)
}

func TestKeysAreRequiredOnCompactedTopics(t *testing.T) {
	t.Parallel()
	rules := open()
	rules.Compact = true
	for _, codec := range codecs {
		c := &client{codec: codec}
		c.add(now, []byte{}, nil)
		checked(t, c.bytes(t), rules)
		c.add(now, nil, []byte("v"))
		e := refused(t, codec.String(), c.bytes(t), rules, model.InvalidRecord)
		require.Equal(t, "/records/1", e.Fields[0].Pointer)
		checked(t, c.bytes(t), open())
	}
}

func TestAWrongLargestTimestampIsPutRight(t *testing.T) {
	t.Parallel()
	for _, codec := range codecs {
		c := sample(codec)
		right := c.bytes(t)
		c.batch = func(b *kmsg.RecordBatch) { b.MaxTimestamp = now + 1000*hour }
		out := checked(t, c.bytes(t), open())
		require.Equal(t, right, out.Bytes, "and nothing else changed")
	}
}

func TestBatchesAreMadeAnewForACompressionType(t *testing.T) {
	t.Parallel()
	for _, from := range codecs {
		for _, to := range codecs {
			c := sample(from)
			c.batch = func(b *kmsg.RecordBatch) {
				b.ProducerID, b.ProducerEpoch, b.FirstSequence, b.MaxTimestamp = 7, 2, 40, 3
			}
			raw := c.bytes(t)
			want := read(t, raw)
			rules := open()
			rules.Recompress, rules.Codec = true, to
			other := sample(to).bytes(t) // stays, and comes first and last
			out := checked(t, append(append(bytes.Clone(other), raw...), other...), rules)
			require.Equal(t, other, out.Bytes[:len(other)])
			require.Equal(t, other, out.Bytes[len(out.Bytes)-len(other):])
			made, _, err := record.ParseBatch(out.Bytes[len(other):])
			require.NoError(t, err)
			require.Equal(t, to, made.Header.Attributes.Codec(), "%s to %s", from, to)
			require.EqualValues(t, 7, made.Header.ProducerID)
			require.EqualValues(t, 2, made.Header.ProducerEpoch)
			require.EqualValues(t, 40, made.Header.BaseSequence)
			require.EqualValues(t, now+5, made.Header.MaxTimestamp)
			require.Equal(t, want, read(t, made.Bytes), "%s to %s", from, to)
			var kb kmsg.RecordBatch
			require.NoError(t, kb.ReadFrom(made.Bytes))
			require.EqualValues(t, 3, kb.NumRecords)
		}
	}
}

func TestSizesAreBoundedBeforeAndAfterRecompression(t *testing.T) {
	t.Parallel()
	c := &client{codec: record.Gzip}
	c.add(now, nil, bytes.Repeat([]byte("x"), 100_000))
	raw := c.bytes(t)
	rules := open()
	rules.MaxMessageBytes = len(raw)
	checked(t, bytes.Clone(raw), rules)
	rules.MaxMessageBytes--
	refused(t, "too large", raw, rules, model.RecordTooLarge)
	rules.MaxMessageBytes = 100_100
	rules.Recompress, rules.Codec = true, record.None
	checked(t, raw, rules)
	rules.MaxMessageBytes = 100_000
	refused(t, "too large without compression", raw, rules, model.RecordTooLarge)
	var many []byte
	for range 50 {
		many = append(many, raw...)
	}
	rules = open()
	rules.Recompress, rules.Codec = true, record.None
	refused(t, "small batches that become 5 MB", many, rules, model.RequestTooLarge)
	rules.Codec = record.Zstd
	checked(t, many, rules)
}

func TestCheckingDoesNotAllocatePerRecord(t *testing.T) {
	racing.SkipSequential(t)
	for _, codec := range codecs {
		allocs := map[int]float64{}
		for _, n := range []int{100, 10_000} {
			c := &client{codec: codec}
			for i := range n {
				c.add(now+int64(i%7), fmt.Appendf(nil, "key-%d", i), []byte("value"), kmsg.Header{Key: "n", Value: []byte("v")})
			}
			raw := c.bytes(t)
			p, out, rules := NewPool(1, record.NewBudget(1<<20)), new(Result), open()
			run := func() {
				out.Reset(true)
				q, err := Parse(raw, 1_000_000)
				if err == nil {
					err = p.Check(context.Background(), &q, &rules, now, out)
				}
				if err != nil {
					t.Error(err)
				}
			}
			run()
			allocs[n] = testing.AllocsPerRun(20, run)
		}
		require.LessOrEqual(t, allocs[10_000], allocs[100]+40, "%s: %v", codec, allocs) // some blocks of a codec, no records
		if codec == record.None {
			require.LessOrEqual(t, allocs[10_000], 2.0)
		}
	}
}

func TestRandomRecordsAreWhatTheIteratorReads(t *testing.T) {
	t.Parallel()
	racing.SkipSequential(t)
	p := NewPool(1, nil)
	rapid.Check(t, func(rt *rapid.T) {
		c := &client{codec: rapid.SampledFrom(codecs).Draw(rt, "codec")}
		maybe := func(name string) []byte {
			if rapid.Bool().Draw(rt, name+" null") {
				return nil
			}
			return append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 80).Draw(rt, name)...)
		}
		payload := 0
		for range rapid.IntRange(1, 30).Draw(rt, "records") {
			var hs []kmsg.Header
			for range rapid.IntRange(0, 3).Draw(rt, "headers") {
				h := kmsg.Header{Key: rapid.StringN(0, 5, 20).Draw(rt, "name"), Value: maybe("header")}
				payload += len(h.Key) + len(h.Value)
				hs = append(hs, h)
			}
			key, value := maybe("key"), maybe("value")
			if rapid.IntRange(0, 20).Draw(rt, "large") == 0 {
				value = []byte(strings.Repeat("large ", 20_000))
			}
			payload += len(key) + len(value)
			c.add(rapid.Int64Range(0, now).Draw(rt, "ts"), key, value, hs...)
		}
		rules := open()
		rules.Recompress, rules.Codec = rapid.Bool().Draw(rt, "recompress"), rapid.SampledFrom(codecs).Draw(rt, "to")
		rules.MaxMessageBytes = 8 << 20
		raw := c.bytes(t)
		want := read(t, raw)
		out, q, err := check(p, raw, rules)
		require.NoError(rt, err)
		require.Equal(rt, len(want), q.Records)
		require.Equal(rt, payload, out.Payload)
		require.Equal(rt, want, read(t, out.Bytes))
		for i, r := range want {
			require.Equal(rt, r.Timestamp, out.Timestamps[i])
		}
	})
}
