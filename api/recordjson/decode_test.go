package recordjson

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"tidewire/internal/model"
	"tidewire/internal/testkit/racing"
	"tidewire/storage/record"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func decode(t *testing.T, body string) (*Request, error) {
	t.Helper()
	r := &Request{}
	return r, r.Decode([]byte(body))
}

func decodeOne(t *testing.T, rec string) Rec {
	t.Helper()
	r, err := decode(t, `{"records":[`+rec+`]}`)
	require.NoError(t, err, rec)
	require.Len(t, r.Records, 1)
	var line Request
	require.NoError(t, line.DecodeRecord([]byte(rec)), "as a line: %s", rec)
	require.Equal(t, r.Records, line.Records, "a line and a request read alike")
	return r.Records[0]
}

func TestValuesBecomeTheBytesOfTheirEncoding(t *testing.T) {
	t.Parallel()
	null := []byte(nil)
	for _, c := range []struct {
		rec  string
		want []byte
	}{
		{`{"value":"abc"}`, []byte("abc")},
		{`{"value":""}`, []byte{}},
		{`{"value":null}`, null},
		{`{}`, null},
		{`{"value":"null"}`, []byte("null")},
		{`{"value":null,"value_encoding":"json"}`, []byte("null")},
		{`{"value":null,"value_encoding":null}`, null},
		{`{"value":null,"value_encoding":"text"}`, null},
		{`{"value":null,"value_encoding":"base64"}`, null},
		{`{"value_encoding":"json"}`, null},
		{`{"value":"a\"b\\\/\b\f\n\r\tA\u00e9\u20ac\ud83d\ude00"}`, []byte("a\"b\\/\b\f\n\r\tAé€😀")},
		{`{"value":"é€😀"}`, []byte("é€😀")},
		{`{"value":"\u0000"}`, []byte{0}},
		{`{"value":"a\u0062c","value_encoding":"json"}`, []byte(`"a\u0062c"`)},
		{`{"value_encoding":"json","value":"x"}`, []byte(`"x"`)},
		{`{"value":"x","value_encoding":null}`, []byte("x")},
		{`{"value":"x","value_encoding":"text"}`, []byte("x")},
		{`{"value":"aGVsbG8=","value_encoding":"base64"}`, []byte("hello")},
		{`{"value":"\u0061GVsbG8=","value_encoding":"base64"}`, []byte("hello")},
		{`{"value":"\/\/\/\/","value_encoding":"base64"}`, []byte{0xff, 0xff, 0xff}},
		{`{"value":"","value_encoding":"base64"}`, []byte{}},
		{`{"value":1.00}`, []byte("1.00")},
		{`{"value":123456789012345678901234567890}`, []byte("123456789012345678901234567890")},
		{`{"value":9223372036854775807}`, []byte("9223372036854775807")},
		{`{"value":-0.5e+10}`, []byte("-0.5e+10")},
		{`{"value":true}`, []byte("true")},
		{`{"value":false,"value_encoding":"json"}`, []byte("false")},
		{`{"value":  {"a" : 1, "a":2 ,"\u003c":"\u003c"}  }`, []byte(`{"a" : 1, "a":2 ,"\u003c":"\u003c"}`)},
		{"{\"value\":[1,\r\n\t2]}", []byte("[1,\r\n\t2]")},
		{`{"value":["\ud800"]}`, []byte(`["\ud800"]`)},
		{`{"value":"\ud800","value_encoding":"json"}`, []byte(`"\ud800"`)},
	} {
		got := decodeOne(t, c.rec)
		assert.Equal(t, c.want, got.Value, c.rec)
		assert.Nil(t, got.Key)
		key := decodeOne(t, strings.ReplaceAll(c.rec, `"value`, `"key`))
		assert.Equal(t, c.want, key.Key, "keys are read as values are: %s", c.rec)
	}
}

func TestNamesOfMembersMayBeEscaped(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []byte("v"), decodeOne(t, `{"\u0076alue":"v"}`).Value)
}

func TestHeadersKeepOrderDuplicatesAndNull(t *testing.T) {
	t.Parallel()
	h := func(kv ...string) (out []record.Header) {
		for i := 0; i < len(kv); i += 2 {
			x := record.Header{Name: []byte(kv[i])}
			if kv[i+1] != "<null>" {
				x.Value = []byte(kv[i+1])
			}
			out = append(out, x)
		}
		return out
	}
	for _, c := range []struct {
		headers string
		want    []record.Header
	}{
		{`[]`, nil}, {`{}`, nil}, {`null`, nil},
		{`[{"name":"b","value":"1"},{"name":"a","value":""},{"name":"b","value":null},{"name":"c"}]`,
			h("b", "1", "a", "", "b", "<null>", "c", "<null>")},
		{`[{"encoding":"base64","value":"/w==","name":"x"}]`, h("x", "\xff")},
		{`[{"value":"x","encoding":"json","name":"x"},{"name":"","value":{"a":1}}]`, h("x", `"x"`, "", `{"a":1}`)},
		{`[{"name":"x","value":null,"encoding":null},{"name":"x","value":null,"encoding":"json"}]`, h("x", "<null>", "x", "null")},
		{`[{"name":"/w==","name_encoding":"base64","value":"v","encoding":"text"}]`, h("\xff", "v")},
		{`{"b":"1","a":null,"b":2,"\u0063":[3]}`, h("b", "1", "a", "<null>", "b", "2", "c", "[3]")},
	} {
		got := decodeOne(t, `{"headers":`+c.headers+`}`)
		assert.Equal(t, c.want, got.Headers, c.headers)
	}
	r, err := decode(t, `{"records":[{"headers":{"a":"1"}},{},{"headers":{"b":"2","c":"3"}}]}`)
	require.NoError(t, err)
	assert.Equal(t, h("a", "1"), r.Records[0].Headers)
	assert.Empty(t, r.Records[1].Headers)
	assert.Equal(t, h("b", "2", "c", "3"), r.Records[2].Headers)
}

func TestPartitionKeyAndTimestampAreOptional(t *testing.T) {
	t.Parallel()
	none := decodeOne(t, `{"partition":null,"timestamp":null,"partition_key":null}`)
	assert.False(t, none.HasPartition || none.HasTimestamp || none.HasPartitionKey)
	got := decodeOne(t, `{"partition":2147483647,"timestamp":9223372036854775807,"partition_key":"k\n"}`)
	assert.Equal(t, Rec{Partition: 2147483647, HasPartition: true, Timestamp: 9223372036854775807,
		HasTimestamp: true, PartitionKey: []byte("k\n"), HasPartitionKey: true}, got)
	zero := decodeOne(t, `{"partition":0,"timestamp":0,"partition_key":""}`)
	assert.Equal(t, Rec{HasPartition: true, HasTimestamp: true, PartitionKey: []byte{}, HasPartitionKey: true}, zero)
	assert.Equal(t, []byte("42"), decodeOne(t, `{"partition_key":42}`).PartitionKey)
}

func TestFetchedRecordIsAcceptedAsItIs(t *testing.T) {
	t.Parallel()
	got := decodeOne(t, `{"topic":"t","partition":3,"offset":17,"timestamp":1700000000000,"timestamp_type":"CreateTime",`+
		`"key":"k","key_encoding":"text","value":null,"value_encoding":null,`+
		`"headers":[{"name":"h","value":null,"encoding":null}]}`)
	assert.Equal(t, Rec{Partition: 3, HasPartition: true, Timestamp: 1700000000000, HasTimestamp: true,
		Key: []byte("k"), Headers: []record.Header{{Name: []byte("h")}}}, got)
}

func TestRefusalsNameTheirPlace(t *testing.T) {
	t.Parallel()
	const bad, when = model.InvalidArgument, model.InvalidTimestamp
	for _, c := range []struct {
		body, pointer string
		code          model.Code
	}{
		{`{"records":[]}`, "/records", bad},
		{`{}`, "/records", bad},
		{`{"records":null}`, "/records", bad},
		{`{"records":{}}`, "/records", bad},
		{`[]`, "", bad}, {`7`, "", bad}, {`null`, "", bad}, {`"x"`, "", bad},
		{`{"records":[{}],"a/b~c":1}`, "/a~1b~0c", bad},
		{`{"Records":[{}]}`, "/Records", bad},
		{`{"records":[{}],"records":[{}]}`, "/records", bad},
		{`{"records":[{},{},{},{"foo":1}]}`, "/records/3/foo", bad},
		{`{"records":[{"Value":"x"}]}`, "/records/0/Value", bad},
		{`{"records":[{"value":"x","value":"y"}]}`, "/records/0/value", bad},
		{`{"records":[{},"x"]}`, "/records/1", bad},
		{`{"records":[null]}`, "/records/0", bad},
		{`{"records":[{"partition":-1}]}`, "/records/0/partition", bad},
		{`{"records":[{"partition":2147483648}]}`, "/records/0/partition", bad},
		{`{"records":[{"partition":1.0}]}`, "/records/0/partition", bad},
		{`{"records":[{"partition":"1"}]}`, "/records/0/partition", bad},
		{`{"records":[{"timestamp":-1}]}`, "/records/0/timestamp", when},
		{`{"records":[{"timestamp":9223372036854775808}]}`, "/records/0/timestamp", when},
		{`{"records":[{"timestamp":1e3}]}`, "/records/0/timestamp", bad},
		{`{"records":[{"timestamp":true}]}`, "/records/0/timestamp", bad},
		{`{"records":[{"value":"\ud800"}]}`, "/records/0/value", bad},
		{`{"records":[{"value":"\udc00\ud800"}]}`, "/records/0/value", bad},
		{`{"records":[{"key":"\ud800\u0041"}]}`, "/records/0/key", bad},
		{`{"records":[{"partition_key":"\udfff"}]}`, "/records/0/partition_key", bad},
		{`{"records":[{"headers":{"a\ud800":"x"}}]}`, "/records/0/headers/a\ufffd", bad},
		{`{"records":[{"headers":{"a":"\ud800"}}]}`, "/records/0/headers/a", bad},
		{`{"records":[{"headers":[{"name":"\ud800"}]}]}`, "/records/0/headers/0/name", bad},
		{`{"records":[{"value":"x","value_encoding":"auto"}]}`, "/records/0/value_encoding", bad},
		{`{"records":[{"key":"x","key_encoding":7}]}`, "/records/0/key_encoding", bad},
		{`{"records":[{"value_encoding":"b64"}]}`, "/records/0/value_encoding", bad},
		{`{"records":[{"value":{},"value_encoding":"text"}]}`, "/records/0/value", bad},
		{`{"records":[{"value":12,"value_encoding":"base64"}]}`, "/records/0/value", bad},
		{`{"records":[{"value":"aGVsbG8","value_encoding":"base64"}]}`, "/records/0/value", bad},
		{`{"records":[{"value":"aGVs\nbG8=","value_encoding":"base64"}]}`, "/records/0/value", bad},
		{`{"records":[{"value":"QUJD\n\n\n\n","value_encoding":"base64"}]}`, "/records/0/value", bad},
		{`{"records":[{"value":"QUJ-","value_encoding":"base64"}]}`, "/records/0/value", bad},
		{`{"records":[{"value":"====","value_encoding":"base64"}]}`, "/records/0/value", bad},
		{`{"records":[{"headers":7}]}`, "/records/0/headers", bad},
		{`{"records":[{"headers":[7]}]}`, "/records/0/headers/0", bad},
		{`{"records":[{"headers":[{"name":"a"},{"value":"x"}]}]}`, "/records/0/headers/1/name", bad},
		{`{"records":[{"headers":[{"name":null}]}]}`, "/records/0/headers/0/name", bad},
		{`{"records":[{"headers":[{"name":"a","x":1}]}]}`, "/records/0/headers/0/x", bad},
		{`{"records":[{"headers":[{"name":"a","name":"b"}]}]}`, "/records/0/headers/0/name", bad},
		{`{"records":[{"headers":[{"name":"a","encoding":"x"}]}]}`, "/records/0/headers/0/encoding", bad},
		{`{"records":[{"headers":[{"name":"a","name_encoding":"json"}]}]}`, "/records/0/headers/0/name_encoding", bad},
		{`{"records":[{"headers":[{"name":"a","value":1,"encoding":"text"}]}]}`, "/records/0/headers/0/value", bad},
	} {
		r, err := decode(t, c.body)
		var e *model.Error
		require.ErrorAs(t, err, &e, c.body)
		assert.Equal(t, c.code, e.Code, c.body)
		if assert.NotEmpty(t, e.Fields, c.body) {
			assert.Equal(t, c.pointer, e.Fields[0].Pointer, c.body)
		}
		assert.Empty(t, r.Records)
	}
}

func TestALinesPointersStartAtTheRecord(t *testing.T) {
	t.Parallel()
	for line, pointer := range map[string]string{
		`{"value":1,"value_encoding":"text"}`: "/value", `7`: "", `{"x":1}`: "/x",
		`{"headers":[{"name":"a","x":1}]}`: "/headers/0/x",
	} {
		r := &Request{}
		require.NoError(t, r.DecodeRecord([]byte(`{"value":"kept"}`)))
		var e *model.Error
		require.ErrorAs(t, r.DecodeRecord([]byte(line)), &e, line)
		assert.Equal(t, pointer, e.Fields[0].Pointer, line)
		require.Len(t, r.Records, 1, "records before a bad line stay")
		assert.Equal(t, "kept", string(r.Records[0].Value))
	}
}

func TestManyWrongPlacesAreNamedButNotWithoutEnd(t *testing.T) {
	t.Parallel()
	_, err := decode(t, `{"records":[`+strings.Repeat(`{"x":1},`, 99)+`{"timestamp":-1}]}`)
	var e *model.Error
	require.ErrorAs(t, err, &e)
	require.Len(t, e.Fields, MaxFieldErrors)
	assert.Equal(t, "/records/15/x", e.Fields[15].Pointer)
	assert.Contains(t, e.Detail, "/records/0/x")
}

func TestWhatIsNotJSONIsMalformed(t *testing.T) {
	t.Parallel()
	whole := `{"records":[{"key":"k\u0041","value":{"a":[1,-2.5e3,true,false,null,"x"]},"headers":[{"name":"n","value":"v"}],"timestamp":5}]}`
	bodies := []string{
		"", " \r\n", "\xef\xbb\xbf" + whole, whole + "x", whole + whole, whole + ",",
		`{"records":[{}],}`, `{"records":[{},]}`, `{"records":[,{}]}`, `{,"records":[{}]}`, `{"records" [{}]}`,
		`{"records":[{} {}]}`, `{'records':[{}]}`, `{"records":[{"value":01}]}`, `{"records":[{"value":1.}]}`,
		`{"records":[{"value":.5}]}`, `{"records":[{"value":+1}]}`, `{"records":[{"value":1e}]}`, `{"records":[{"value":-}]}`,
		`{"records":[{"value":nul}]}`, `{"records":[{"value":True}]}`, `{"records":[{"value":NaN}]}`,
		`{"records":[{"value":"` + "\x01" + `"}]}`, `{"records":[{"value":"` + "\n" + `"}]}`,
		`{"records":[{"value":"\x41"}]}`, `{"records":[{"value":"\u12g4"}]}`, `{"records":[{"value":"\u12"}]}`,
		`{"records":[{"value":[1}]}`, `{"records":[{"value":{"a":1]}]}`, `{"records":[{"value":{"a"}}]}`,
		`{"records":[{"value":{1:2}}]}`, `{"records":[{"value":[1,]}]}`, `{"records":[{"value":{"a":1,}}]}`,
		"{\"records\":[{\"value\":\"\xff\"}]}", "{\"records\":[{\"value\":\"\xed\xa0\x80\"}]}", "{\"records\":[{\"value\":\"\xc0\x80\"}]}",
		`{"records":[{"unknown":1},{"timestamp":-1}`, `{"records":[` + strings.Repeat("[", 100_000), "{\"records\":[{}]}\x00",
	}
	for i := range whole {
		bodies = append(bodies, whole[:i])
	}
	_, err := decode(t, whole)
	require.NoError(t, err)
	for _, b := range bodies {
		r, err := decode(t, b)
		assert.True(t, model.HasCode(err, model.MalformedBody), "%.200q gave %v", b, err)
		assert.Empty(t, r.Records)
	}
}

func TestNestingIsCountedOverTheWholeBody(t *testing.T) {
	t.Parallel()
	nest := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	_, err := decode(t, `{"records":[{"value":`+nest(509)+`}]}`)
	require.NoError(t, err, "512 levels")
	for _, n := range []int{510, 600, 5000} {
		_, err = decode(t, `{"records":[{"value":`+nest(n)+`},{"value":`+nest(n)+`}]}`)
		var e *model.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, model.InvalidArgument, e.Code)
		assert.Equal(t, "/records/0", e.Fields[0].Pointer)
	}
	var r Request
	require.NoError(t, r.DecodeRecord([]byte(`{"value":`+nest(511)+`}`)))
	require.Error(t, r.DecodeRecord([]byte(`{"value":`+nest(512)+`}`)))
	deep := strings.Repeat(`{"a":[`, 3000) + "1" + strings.Repeat(`]}`, 3000)
	_, err = decode(t, `{"records":[{"value":`+deep+`}]}`)
	assert.True(t, model.HasCode(err, model.InvalidArgument), "both kinds of level are told apart at any depth: %v", err)
	_, err = decode(t, `{"records":[{"value":`+strings.Replace(deep, "]}]}", "]]]}", 1)+`}]}`)
	assert.True(t, model.HasCode(err, model.MalformedBody))
}

func TestOverAMillionRecordsAreTooLarge(t *testing.T) {
	t.Parallel()
	racing.SkipSequential(t)
	body := func(n int) string { return `{"records":[` + strings.Repeat("{},", n-1) + `{}]}` }
	r, err := decode(t, body(MaxRecords))
	require.NoError(t, err)
	require.Len(t, r.Records, MaxRecords)
	_, err = decode(t, body(MaxRecords+1))
	require.True(t, model.HasCode(err, model.RequestTooLarge), "%v", err)
	_, err = decode(t, strings.Replace(body(MaxRecords+1), "{}", `{"x":1}`, 1))
	require.True(t, model.HasCode(err, model.RequestTooLarge), "413 goes before 422: %v", err)
	_, err = decode(t, strings.TrimSuffix(body(MaxRecords+1), "}"))
	require.True(t, model.HasCode(err, model.MalformedBody), "400 goes before 413: %v", err)
}

func TestAReusedRequestForgetsWhatWas(t *testing.T) {
	t.Parallel()
	var p Pool
	r := p.Get()
	require.NoError(t, r.Decode([]byte(`{"records":[{"key":"k","partition":1,"timestamp":2,"partition_key":"p","headers":{"a":"b"}},{}]}`)))
	p.Put(r)
	for range 3 {
		r = p.Get()
		require.NoError(t, r.Decode([]byte(`{"records":[{"value":"v"}]}`)))
		assert.Equal(t, []Rec{{Value: []byte("v")}}, r.Records)
		require.Error(t, r.Decode([]byte(`{`)))
		assert.Empty(t, r.Records)
		p.Put(r)
	}
}

func TestDecodedBytesDoNotReachIntoTheirNeighbours(t *testing.T) {
	t.Parallel()
	r, err := decode(t, `{"records":[{"key":"a\u0041","value":"b","headers":{"n":"v"}},{"key":[1],"value":"QUJD","value_encoding":"base64"}]}`)
	require.NoError(t, err)
	for _, rec := range r.Records {
		assert.Equal(t, len(rec.Key), cap(rec.Key))
		assert.Equal(t, len(rec.Value), cap(rec.Value))
		assert.Equal(t, len(rec.Headers), cap(rec.Headers))
	}
}

func TestDecodeAllocatesNothingPerRecord(t *testing.T) {
	body := []byte(benchBody(200, `{"key":"k%[1]d","value":"v\u0041%[1]d","headers":[{"name":"h","value":"QUJD","encoding":"base64"}],"timestamp":%[1]d}`))
	work := make([]byte, len(body))
	var r Request
	allocs := testing.AllocsPerRun(50, func() {
		copy(work, body)
		if err := r.Decode(work); err != nil {
			t.Fatal(err)
		}
	})
	assert.Zero(t, allocs)
}

func benchBody(n int, format string) string {
	var b strings.Builder
	b.WriteString(`{"records":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, format, i)
	}
	b.WriteString(`]}`)
	return b.String()
}

func TestErrorsAreOfTheOneTable(t *testing.T) {
	t.Parallel()
	_, err := decode(t, `{"records":[{"timestamp":-5}]}`)
	var e *model.Error
	require.True(t, errors.As(err, &e))
	assert.Equal(t, model.NotApplied, e.EffectiveOutcome())
	assert.Equal(t, 422, model.Row(e.Code).Status)
}
