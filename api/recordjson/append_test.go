package recordjson

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"tidewire/internal/model"
	"tidewire/internal/testkit/racing"
	"tidewire/storage/record"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestFetchedRecordHasEveryFieldInOrder(t *testing.T) {
	t.Parallel()
	rec := &record.Record{Offset: 17, Timestamp: 1700000000000, Key: []byte("k"), Value: []byte(`{"a":1.00}`),
		Headers: []record.Header{{Name: []byte("h"), Value: []byte{0xff}}, {Name: []byte("h"), Value: []byte("{}")}, {Name: []byte("n")}}}
	got := AppendRecord([]byte("x"), &Meta{Topic: "t", Partition: 3}, rec, Encodings{})
	assert.Equal(t, `x{"topic":"t","partition":3,"offset":17,"timestamp":1700000000000,"timestamp_type":"CreateTime",`+
		`"key":"k","key_encoding":"text","value":{"a":1.00},"value_encoding":"json",`+
		`"headers":[{"name":"h","value":"/w==","encoding":"base64"},{"name":"h","value":"{}","encoding":"text"},{"name":"n","value":null,"encoding":null}]}`, string(got))
	got = AppendRecord(nil, &Meta{Topic: "t", LogAppendTime: true}, &record.Record{}, Encodings{})
	assert.Equal(t, `{"topic":"t","partition":0,"offset":0,"timestamp":0,"timestamp_type":"LogAppendTime",`+
		`"key":null,"key_encoding":null,"value":null,"value_encoding":null,"headers":[]}`, string(got))
}

func TestEncodingsOfValues(t *testing.T) {
	t.Parallel()
	nest := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	b64 := func(s string) string { return `"` + base64.StdEncoding.EncodeToString([]byte(s)) + `"` }
	for _, c := range []struct {
		value, auto, autoAs, json, jsonAs string
	}{
		{`{"a":1, "a":2}`, `{"a":1, "a":2}`, "json", `{"a":1, "a":2}`, "json"},
		{`["\u003c"]`, `["\u003c"]`, "json", `["\u003c"]`, "json"},
		{`{}`, `{}`, "json", `{}`, "json"},
		{`[]`, `[]`, "json", `[]`, "json"},
		{nest(500), nest(500), "json", nest(500), "json"},
		{nest(501), `"` + nest(501) + `"`, "text", b64(nest(501)), "base64"},
		{`"x"`, `"\"x\""`, "text", `"x"`, "json"},
		{`1.00`, `"1.00"`, "text", `1.00`, "json"},
		{`null`, `"null"`, "text", `null`, "json"},
		{``, `""`, "text", `""`, "base64"},
		{` {}`, `" {}"`, "text", b64(` {}`), "base64"},
		{`{} `, `"{} "`, "text", b64(`{} `), "base64"},
		{"[1,\n2]", `"[1,\n2]"`, "text", b64("[1,\n2]"), "base64"},
		{"[1,2\r]", `"[1,2\r]"`, "text", b64("[1,2\r]"), "base64"},
		{"[1,\t2]", "[1,\t2]", "json", "[1,\t2]", "json"},
		{`["\ud800"]`, `"[\"\\ud800\"]"`, "text", b64(`["\ud800"]`), "base64"},
		{`{"\udc00":1}`, `"{\"\\udc00\":1}"`, "text", b64(`{"\udc00":1}`), "base64"},
		{`["\ud83d\ude00"]`, `["\ud83d\ude00"]`, "json", `["\ud83d\ude00"]`, "json"},
		{`{}{}`, `"{}{}"`, "text", b64(`{}{}`), "base64"},
		{`[1,]`, `"[1,]"`, "text", b64(`[1,]`), "base64"},
		{"\xff", `"/w=="`, "base64", `"/w=="`, "base64"},
		{"[\"\xff\"]", b64("[\"\xff\"]"), "base64", b64("[\"\xff\"]"), "base64"},
		{"\xed\xa0\x80", b64("\xed\xa0\x80"), "base64", b64("\xed\xa0\x80"), "base64"},
	} {
		v := []byte(c.value)
		got, as := appendBytes(nil, v, Auto)
		assert.Equal(t, c.auto, string(got), "auto of %.60q", c.value)
		assert.Equal(t, `"`+c.autoAs+`"`, as, c.value)
		got, as = appendBytes(nil, v, JSON)
		assert.Equal(t, c.json, string(got), "json of %.60q", c.value)
		assert.Equal(t, `"`+c.jsonAs+`"`, as, c.value)
		got, as = appendBytes(nil, v, Base64)
		assert.Equal(t, b64(c.value), string(got))
		assert.Equal(t, asBase64, as)
		got, as = appendBytes(nil, v, Text)
		if utf8.ValidString(c.value) {
			assert.Equal(t, asText, as)
		} else {
			assert.Equal(t, asBase64, as)
			assert.Equal(t, b64(c.value), string(got))
		}
	}
	for _, e := range []Encoding{Auto, JSON, Text, Base64} {
		got, as := appendBytes(nil, nil, e)
		assert.Equal(t, "null null", string(got)+" "+as)
		back, ok := ParseEncoding(e.String())
		assert.True(t, ok)
		assert.Equal(t, e, back)
	}
	_, ok := ParseEncoding("JSON")
	assert.False(t, ok)
}

func TestStringsAreEscapedOnlyWhereTheyMustBe(t *testing.T) {
	t.Parallel()
	racing.SkipSequential(t)
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if r >= 0xd800 && r <= 0xdfff {
			continue
		}
		s := "ab" + string(r) + "c"
		got := AppendString(nil, s)
		var back string
		if err := json.Unmarshal(got, &back); err != nil || back != s {
			t.Fatalf("U+%04X: %q gave %q, %v", r, got, back, err)
		}
		if must := r < 0x20 || r == '"' || r == '\\'; !must && len(got) != len(s)+2 {
			t.Fatalf("U+%04X is escaped needlessly: %q", r, got)
		}
	}
	assert.Equal(t, `"<&>/`+"\u007f\u2028"+`\u0001\u001f\b\f\n\r\t\"\\"`, string(AppendString(nil, "<&>/\u007f\u2028\x01\x1f\b\f\n\r\t\"\\")))
}

func TestAHeaderNameThatIsNoTextComesInBase64(t *testing.T) {
	t.Parallel()
	rec := record.Record{Headers: []record.Header{{Name: []byte("\xffx"), Value: []byte("v")}, {Name: []byte{}}, {}}}
	got := AppendRecord(nil, &Meta{Topic: "t"}, &rec, Encodings{})
	assert.Contains(t, string(got), `"headers":[{"name":"/3g=","value":"v","encoding":"text","name_encoding":"base64"},`+
		`{"name":"","value":null,"encoding":null},{"name":"","value":null,"encoding":null}]}`)
}

func TestResultNamesPlaceAndTime(t *testing.T) {
	t.Parallel()
	assert.Equal(t, `[{"partition":5,"offset":9007199254740991,"timestamp":0}`, string(AppendResult([]byte("["), 5, 9007199254740991, 0)))
}

// bytesGen draws null, empty, text, JSON of all kinds, near-JSON and raw bytes.
func bytesGen() *rapid.Generator[[]byte] {
	jsonish := rapid.SampledFrom([]string{
		`{}`, `[]`, `{"a":1.00,"a":2}`, `["\u003c","\ud800"]`, "[1,\n2]", `null`, `"q"`, `1e9`, ` {}`, `{"a":[{"b":[]}]}`, `"\ud83d\ude00"`, `[`, `{]`, `-0`,
	})
	return rapid.OneOf(
		rapid.Just([]byte(nil)), rapid.Just([]byte{}),
		rapid.Map(jsonish, func(s string) []byte { return []byte(s) }),
		rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) }),
		rapid.SliceOfN(rapid.Byte(), 1, 100),
	)
}

func recordGen() *rapid.Generator[record.Record] {
	return rapid.Custom(func(t *rapid.T) record.Record {
		r := record.Record{
			Timestamp: rapid.Int64Min(0).Draw(t, "timestamp"),
			Key:       bytesGen().Draw(t, "key"), Value: bytesGen().Draw(t, "value"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			name := rapid.SliceOfN(rapid.Byte(), 0, 6).Draw(t, "name")
			r.Headers = append(r.Headers, record.Header{Name: name, Value: bytesGen().Draw(t, "header")})
		}
		return r
	})
}

func same(t require.TestingT, want record.Record, got *Rec) {
	require.Equal(t, want.Key, got.Key)
	require.Equal(t, want.Value, got.Value)
	require.Equal(t, want.Timestamp, got.Timestamp)
	require.Len(t, got.Headers, len(want.Headers))
	for i, h := range want.Headers {
		require.True(t, bytes.Equal(h.Name, got.Headers[i].Name))
		require.Equal(t, h.Value, got.Headers[i].Value)
	}
}

func TestFetchedRecordsComeBackEqualUnderEveryEncoding(t *testing.T) {
	t.Parallel()
	encoding := rapid.SampledFrom([]Encoding{Auto, JSON, Text, Base64})
	rapid.Check(t, func(t *rapid.T) {
		recs := rapid.SliceOfN(recordGen(), 1, 5).Draw(t, "records")
		enc := Encodings{Key: encoding.Draw(t, "k"), Value: encoding.Draw(t, "v"), Header: encoding.Draw(t, "h")}
		body := []byte(`{"records":[`)
		for i := range recs {
			if i > 0 {
				body = append(body, ',')
			}
			start := len(body)
			body = AppendRecord(body, &Meta{Topic: "t.x", Partition: 2}, &recs[i], enc)
			one := body[start:]
			require.True(t, json.Valid(one), "%s", one)
			require.NotContains(t, string(one), "\n", "a record fits one line")
			var line Request
			require.NoError(t, line.DecodeRecord(bytes.Clone(one)))
			same(t, recs[i], &line.Records[0])
		}
		var r Request
		require.NoError(t, r.Decode(append(body, `]}`...)))
		require.Len(t, r.Records, len(recs))
		for i := range recs {
			same(t, recs[i], &r.Records[i])
			require.True(t, r.Records[i].HasPartition && r.Records[i].Partition == 2)
		}
	})
}

func TestAppendAllocatesNothingPerRecord(t *testing.T) {
	rec := &record.Record{Offset: 1, Timestamp: 2, Key: []byte("key"), Value: []byte(`{"a":[1,2,{"b":"c"}]}`),
		Headers: []record.Header{{Name: []byte("n"), Value: bytes.Repeat([]byte{0xfe}, 90)}}}
	meta := &Meta{Topic: strings.Repeat("long-topic-", 20), Partition: 1}
	dst := make([]byte, 0, 4096)
	assert.Zero(t, testing.AllocsPerRun(100, func() { dst = AppendRecord(dst[:0], meta, rec, Encodings{}) }))
}

func TestResultsOfOneAnswerHaveEachTheirOwnNumbers(t *testing.T) {
	t.Parallel()
	var r Results
	var b []byte
	for _, ts := range []int64{5, 5, 1700000000000, 0, 0, 5} {
		b = r.Append(b, 1, 2, ts)
	}
	const one = `{"partition":1,"offset":2,"timestamp":`
	assert.Equal(t, one+"5}"+one+"5}"+one+"1700000000000}"+one+"0}"+one+"0}"+one+"5}", string(b))
}

func TestResultsThatAreCountedUpAreAsWrittenAnew(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var r Results
		offset := model.Offset(rapid.SampledFrom([]int64{-2, 0, 7, 98, 999_990, 1 << 62}).Draw(t, "first offset"))
		partition, ts := model.PartitionID(0), int64(0)
		for range rapid.IntRange(1, 200).Draw(t, "results") {
			switch rapid.IntRange(0, 30).Draw(t, "step") {
			case 0:
				partition++
			case 1:
				ts++
			case 2:
				offset += 9
			}
			require.Equal(t, string(AppendResult(nil, partition, offset, ts)), string(r.Append(nil, partition, offset, ts)))
			offset++
		}
	})
}
