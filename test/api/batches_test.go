package api

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidewire/internal/model"
	"tidewire/internal/testkit/bombs"
	"tidewire/storage/record"
)

const batchType = "application/vnd.kafka.record-batches"

var codecs = []record.Codec{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd}

// batch makes a record batch whose records have these values, the keys k0, k1… and the
// present time.
func batch(t testing.TB, c record.Codec, values ...string) []byte {
	t.Helper()
	b := record.NewBuilder(1 << 10)
	for i, v := range values {
		b.Add(time.Now().UnixMilli()+int64(i), fmt.Appendf(nil, "k%d", i), []byte(v), []record.Header{{Name: []byte("h"), Value: []byte("x")}})
	}
	raw, err := b.Finish(c)
	require.NoError(t, err)
	return bytes.Clone(raw)
}

// batchOf makes a batch of one record with a timestamp, and a key unless it is empty.
func batchOf(t testing.TB, ts int64, key string) []byte {
	t.Helper()
	b := record.NewBuilder(100)
	var k []byte
	if key != "" {
		k = []byte(key)
	}
	b.Add(ts, k, []byte("v"), nil)
	raw, err := b.Finish(record.Gzip)
	require.NoError(t, err)
	return bytes.Clone(raw)
}

// resigned changes a batch and writes its checksum anew.
func resigned(raw []byte, change func(b []byte)) []byte {
	b := bytes.Clone(raw)
	change(b)
	binary.BigEndian.PutUint32(b[17:], record.Checksum(b))
	return b
}

func (a *api) batches(path string, body []byte) *answer {
	a.t.Helper()
	return a.Do(request{Method: "POST", Path: path, Token: a.admin, Body: body, Header: map[string]string{"Content-Type": batchType}})
}

// stored is the first log file of a partition.
func (a *api) stored(topic string, partition int) []byte {
	a.t.Helper()
	b, err := os.ReadFile(filepath.Join(a.Dir, "topics", fmt.Sprintf("%s-%d", topic, partition), "00000000000000000000.log"))
	require.NoError(a.t, err)
	return b
}

func TestRecordBatchesAreStoredAsTheyCame(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("batches", 2, nil)
	want, next := []byte{}, int64(0)
	for i, c := range codecs {
		raw := batch(t, c, "a", strings.Repeat("long ", 500), fmt.Sprint(i))
		query := []string{"", "?acks=leader", "?acks=all&timeout_ms=1000", "?acks=1", "?partition=1"}[i]
		x := wants(t, a.batches(path+"/partitions/1/records"+query, raw), 200, "")
		results := decoded(t, x, 200)["results"].([]any)
		require.Len(t, results, 3, "one a record")
		for _, r := range results {
			require.Equal(t, next, number(t, r.(object)["offset"]))
			require.Equal(t, int64(1), number(t, r.(object)["partition"]))
			next++
		}
		record.SetBaseOffset(raw, model.Offset(next-3))
		record.SetLeaderEpoch(raw, 0)
		want = append(want, raw...)
	}
	require.Equal(t, want, a.stored("batches", 1), "but for offset and epoch, codec bits included")
	records := a.fetched(path, 1)
	require.Len(t, records, int(next))
	require.Equal(t, "k1", records[1]["key"])
	require.Equal(t, "4", records[14]["value"])

	several := append(batch(t, record.Zstd, "x", "y"), batch(t, record.None, "z")...)
	x := wants(t, a.batches(path+"/records?partition=0", several), 200, "")
	require.Equal(t, "all", x.Header.Get("Tidewire-Acks"))
	require.Len(t, decoded(t, x, 200)["results"], 3)
	x = wants(t, a.batches(path+"/partitions/0/records?acks=none", several), 202, "")
	require.JSONEq(t, `{"accepted":3}`, string(x.Body))
	require.EqualValues(t, 6, a.logEnd(path, 0))
}

// Of a batch as other code makes it, which tells its timestamps by deltas from the first.
func TestBatchesOfOtherCodeAreTaken(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("batches.kmsg", 1, nil)
	now := time.Now().UnixMilli()
	var records []byte
	for i, delta := range []int64{0, -5, 7} {
		r := kmsg.Record{TimestampDelta64: delta, OffsetDelta: int32(i), Key: []byte("k"), Headers: []kmsg.Header{{Key: "h"}}}
		body := r.AppendTo(nil)[1:] // without its length
		records = append(binary.AppendVarint(records, int64(len(body))), body...)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write(records)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	kb := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, Attributes: 1, LastOffsetDelta: 2, FirstTimestamp: now, MaxTimestamp: now + 7,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: 3, Records: packed.Bytes(),
	}
	raw := kb.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	raw = resigned(raw, func([]byte) {})
	results := decoded(t, a.batches(path+"/partitions/0/records", raw), 200)["results"].([]any)
	for i, delta := range []int64{0, -5, 7} {
		require.Equal(t, now+delta, number(t, results[i].(object)["timestamp"]))
	}
	got := a.fetched(path, 0)
	require.Equal(t, now-5, number(t, got[1]["timestamp"]))
	require.Nil(t, got[1]["value"])
}

func TestBadRecordBatchesAreRefused(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("batches.bad", 2, object{"max.message.bytes": 600_000})
	compact := a.topic("batches.compact", 1, object{"cleanup.policy": "compact"})
	one := path + "/partitions/0/records"
	good := batch(t, record.Gzip, "a", "b", "c")
	now := time.Now().UnixMilli()
	large := batch(t, record.None, strings.Repeat("x", 600_000))
	set := func(at int, v byte) func([]byte) { return func(b []byte) { b[at] = v } }
	flip := func(at int, v byte) func([]byte) { return func(b []byte) { b[at] ^= v } }
	t.Run("rows", func(t *testing.T) {
		for name, c := range map[string]struct {
			path    string
			body    []byte
			status  int
			code    string
			pointer string
		}{
			"nothing":                      {one, nil, 422, "corrupt-batch", ""},
			"not a batch":                  {one, []byte(strings.Repeat("x", 100)), 422, "corrupt-batch", ""},
			"JSON":                         {one, []byte(`{"records":[{"value":1}]}`), 422, "corrupt-batch", ""},
			"cut short":                    {one, good[:len(good)-1], 422, "corrupt-batch", ""},
			"cut in the header":            {one, good[:30], 422, "corrupt-batch", ""},
			"cut in the second":            {one, append(bytes.Clone(good), good[:70]...), 422, "corrupt-batch", ""},
			"a bad CRC":                    {one, append(bytes.Clone(good[:len(good)-1]), good[len(good)-1]^1), 422, "corrupt-batch", ""},
			"a bad CRC in the second":      {one, append(bytes.Clone(good), append(bytes.Clone(good[:len(good)-1]), 0xee)...), 422, "corrupt-batch", ""},
			"magic 1":                      {one, resigned(good, set(16, 1)), 422, "corrupt-batch", ""},
			"an unknown codec":             {one, resigned(good, flip(22, 7^1)), 422, "unsupported-compression", ""},
			"another codec than it says":   {one, resigned(good, flip(22, 4^1)), 422, "invalid-record", ""},
			"a control batch":              {one, resigned(good, flip(22, 0x20)), 422, "invalid-record", ""},
			"the broker's timestamps":      {one, resigned(good, flip(22, 0x08)), 422, "invalid-timestamp", ""},
			"a transactional batch":        {one, resigned(good, func(b []byte) { b[22] |= 0x10; clear(b[43:57]) }), 409, "invalid-transaction-state", ""},
			"fewer records than it says":   {one, resigned(good, func(b []byte) { b[26], b[60] = 3, 4 }), 422, "invalid-record", "/records/3"},
			"more records than it says":    {one, resigned(good, func(b []byte) { b[26], b[60] = 1, 2 }), 422, "invalid-record", ""},
			"a negative timestamp":         {one, batchOf(t, -1, "k"), 422, "invalid-timestamp", "/records/0"},
			"the year 2100":                {one, append(bytes.Clone(good), batchOf(t, 4_102_444_800_000, "k")...), 422, "invalid-timestamp", "/records/3"},
			"two hours ahead":              {one, batchOf(t, now+120*60_000, "k"), 422, "invalid-timestamp", "/records/0"},
			"too large":                    {one, large, 413, "record-too-large", ""},
			"a bomb of zstd":               {one, bombs.Batch(record.Zstd, 40<<20, now), 422, "invalid-record", ""},
			"a bomb of zstd, large record": {one, bombs.Batch(record.Zstd, 1<<31-1, now), 413, "record-too-large", "/records/0"},
			"a bomb of gzip":               {one, bombs.Batch(record.Gzip, 100<<20, now), 413, "record-too-large", "/records/0"},
			"a bomb of lz4":                {one, bombs.Batch(record.LZ4, 65<<20, now), 413, "record-too-large", "/records/0"},
			"no key in a compacted topic":  {compact + "/partitions/0/records", batchOf(t, now, ""), 422, "invalid-record", "/records/0"},
			"no partition":                 {path + "/records", good, 422, "invalid-argument", "query:partition"},
			"partition n":                  {path + "/partitions/2/records", good, 404, "unknown-partition", ""},
			"partition n in the query":     {path + "/records?partition=2", good, 404, "unknown-partition", ""},
			"partition -1":                 {path + "/records?partition=-1", good, 422, "invalid-argument", "query:partition"},
			"another partition":            {one + "?partition=1", good, 422, "invalid-argument", "query:partition"},
			"a key":                        {one + "?key=k", good, 422, "invalid-argument", "query:key"},
			"a timestamp":                  {one + "?timestamp=1", good, 422, "invalid-argument", "query:timestamp"},
			"a word for acks":              {one + "?acks=most", good, 422, "invalid-argument", "query:acks"},
			"no such topic":                {"/v1/topics/batches.none/partitions/0/records", good, 404, "unknown-topic", ""},
			"a fault before the topic":     {"/v1/topics/batches.none/partitions/0/records", good[:50], 422, "corrupt-batch", ""},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				a := a.with(t)
				x := wants(t, a.batches(c.path, c.body), c.status, c.code)
				require.Equal(t, c.pointer, strings.Join(pointers(t, x), " "), "%s", x.Body)
				var p object
				x.JSON(t, &p)
				require.Equal(t, "not-applied", p["outcome"])
			})
		}
	})
	for h, v := range map[string]string{"Tidewire-Key": "k", "Tidewire-Header-A": "b"} {
		x := a.Do(request{Method: "POST", Path: one, Token: a.admin, Body: good, Header: map[string]string{"Content-Type": batchType, h: v}})
		wants(t, x, 422, "invalid-argument")
	}
	a.user("batches.nobody")
	for p, code := range map[string]string{one: "forbidden", "/v1/topics/batches.none/partitions/0/records": "forbidden"} {
		x := a.Do(request{Method: "POST", Path: p, Token: a.login("batches.nobody"), Body: good, Header: map[string]string{"Content-Type": batchType}})
		wants(t, x, http.StatusForbidden, code)
	}
	wants(t, a.Do(request{Method: "POST", Path: one, Body: good, Header: map[string]string{"Content-Type": batchType}}), 401, "unauthenticated")
	require.Zero(t, a.logEnd(path, 0))
	require.Zero(t, a.logEnd(path, 1))
	require.Zero(t, a.logEnd(compact, 0))
}

func TestCompressionTypeMakesBatchesAnew(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	value := strings.Repeat("tidewire ", 1000)
	for i, typ := range []string{"uncompressed", "gzip", "snappy", "lz4", "zstd"} {
		topic := "anew." + typ
		path := a.topic(topic, 1, object{"compression.type": typ})
		for _, from := range codecs {
			wants(t, a.batches(path+"/partitions/0/records", batch(t, from, value, "b")), 200, "")
		}
		a.records(path, object{"value": value})
		rest := a.stored(topic, 0)
		for range len(codecs) + 1 {
			b, more, err := record.ParseBatch(rest)
			require.NoError(t, err)
			require.NoError(t, b.VerifyCRC())
			require.Equal(t, codecs[i], b.Header.Attributes.Codec(), typ)
			rest = more
		}
		require.Empty(t, rest)
		records := a.fetched(path, 0)
		require.Len(t, records, 11)
		for k := range codecs {
			require.Equal(t, value, records[2*k]["value"])
			require.Equal(t, "b", records[2*k+1]["value"])
		}
	}
	// What is small as it comes may be too large as the topic wants it.
	path := a.topic("anew.small", 1, object{"compression.type": "uncompressed", "max.message.bytes": 5000})
	wants(t, a.batches(path+"/partitions/0/records", batch(t, record.Zstd, value)), 413, "record-too-large")
	require.Zero(t, a.logEnd(path, 0))
}

func TestLogAppendTimeReplacesTheTimestampsOfBatches(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("batches.append", 1, object{"message.timestamp.type": "LogAppendTime"})
	for _, ts := range []int64{0, -1, 4_102_444_800_000} {
		before := time.Now().UnixMilli()
		results := decoded(t, a.batches(path+"/partitions/0/records", batchOf(t, ts, "k")), 200)["results"].([]any)
		got := number(t, results[0].(object)["timestamp"])
		require.GreaterOrEqual(t, got, before)
		require.LessOrEqual(t, got, time.Now().UnixMilli())
	}
	for _, r := range a.fetched(path, 0) {
		require.Equal(t, "LogAppendTime", r["timestamp_type"])
	}
}

func TestARetryOfAnIdempotentProducersBatchIsStoredOnce(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("batches.idempotent", 1, nil)
	from := func(seq int32, values ...string) []byte {
		return resigned(batch(t, record.LZ4, values...), func(b []byte) {
			binary.BigEndian.PutUint64(b[43:], 4711)
			binary.BigEndian.PutUint16(b[51:], 0)
			binary.BigEndian.PutUint32(b[53:], uint32(seq))
		})
	}
	one := path + "/partitions/0/records"
	first := wants(t, a.batches(one, from(0, "a", "b")), 200, "")
	wants(t, a.batches(one, from(2, "c")), 200, "")
	again := wants(t, a.batches(one, from(0, "a", "b")), 200, "")
	for i, r := range decoded(t, again, 200)["results"].([]any) {
		require.Equal(t, decoded(t, first, 200)["results"].([]any)[i].(object)["offset"], r.(object)["offset"])
	}
	require.EqualValues(t, 3, a.logEnd(path, 0))
	wants(t, a.batches(one, from(9, "gap")), 409, "out-of-order-sequence")
	require.EqualValues(t, 3, a.logEnd(path, 0))
}

func TestRecordBatchesAreStoredOnlyAtTheExpectedOffset(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("batches.expected", 1, nil) + "/partitions/0/records"
	at := func(offset string, body []byte) *answer {
		return a.do("POST", path, body, headers{"Content-Type": batchType, "Tidewire-Expected-Offset": offset})
	}
	two := append(batch(t, record.Zstd, "x", "y"), batch(t, record.None, "z")...)
	wants(t, at("1", two), 412, "offset-mismatch")
	require.Equal(t, []int64{0, 1, 2}, offsets(t, at("0", two)), "all batches of the body count as one")
	x := wants(t, at("0", two), 412, "offset-mismatch")
	require.Equal(t, int64(3), number(t, decoded(t, x, 412)["log_end_offset"]))
	require.Equal(t, []int64{3}, offsets(t, at("3", batch(t, record.Gzip, "w"))))
	for _, bad := range []string{"-1", "x", "1.5", "9223372036854775808"} {
		x := wants(t, at(bad, two), 422, "invalid-argument")
		require.Equal(t, []string{"header:Tidewire-Expected-Offset"}, pointers(t, x))
	}
	idempotent := resigned(batch(t, record.None, "p"), func(b []byte) {
		binary.BigEndian.PutUint64(b[43:], 4712)
		binary.BigEndian.PutUint16(b[51:], 0)
		binary.BigEndian.PutUint32(b[53:], 0)
	})
	require.Equal(t, []int64{4}, offsets(t, at("4", bytes.Clone(idempotent))))
	require.Equal(t, []int64{4}, offsets(t, at("4", bytes.Clone(idempotent))), "a producer's repeat is found before the log end is looked at")
	require.EqualValues(t, 5, a.logEnd(strings.TrimSuffix(path, "/partitions/0/records"), 0))
}

// The answer of very many records is sent in pieces.
func TestAnswersOfManyRecords(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("batches.many", 1, nil)
	values := make([]string, 30_000)
	x := wants(t, a.batches(path+"/partitions/0/records", batch(t, record.Zstd, values...)), 200, "")
	results := decoded(t, x, 200)["results"].([]any)
	require.Len(t, results, len(values))
	require.EqualValues(t, 29_999, number(t, results[29_999].(object)["offset"]))
}
