package recordjson

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"tidewire/internal/model"
	"tidewire/storage/record"

	"github.com/stretchr/testify/require"
)

// oracle reads a body that was accepted with encoding/json, slowly and plainly.
func oracle(t require.TestingT, body []byte) []Rec {
	var req struct {
		Records []struct {
			Key           json.RawMessage `json:"key"`
			Value         json.RawMessage `json:"value"`
			PartitionKey  json.RawMessage `json:"partition_key"`
			KeyEncoding   *string         `json:"key_encoding"`
			ValueEncoding *string         `json:"value_encoding"`
			Partition     *int32          `json:"partition"`
			Timestamp     *int64          `json:"timestamp"`
		} `json:"records"`
	}
	require.NoError(t, json.Unmarshal(body, &req))
	var out []Rec
	for _, r := range req.Records {
		rec := Rec{Key: plain(t, r.Key, r.KeyEncoding), Value: plain(t, r.Value, r.ValueEncoding)}
		if r.Partition != nil {
			rec.Partition, rec.HasPartition = model.PartitionID(*r.Partition), true
		}
		if r.Timestamp != nil {
			rec.Timestamp, rec.HasTimestamp = *r.Timestamp, true
		}
		if len(r.PartitionKey) > 0 && string(r.PartitionKey) != "null" {
			rec.PartitionKey, rec.HasPartitionKey = plain(t, r.PartitionKey, nil), true
		}
		out = append(out, rec)
	}
	return out
}

func plain(t require.TestingT, raw json.RawMessage, encoding *string) []byte {
	e := ""
	if encoding != nil {
		e = *encoding
	}
	switch {
	case raw == nil, string(raw) == "null" && e != "json":
		return nil
	case e == "json", raw[0] != '"':
		return raw
	}
	var s string
	require.NoError(t, json.Unmarshal(raw, &s))
	if e != "base64" {
		return []byte(s)
	}
	b, err := base64.StdEncoding.DecodeString(s)
	require.NoError(t, err)
	return b
}

// checkBody compares the decoder with the oracle on any bytes, and sends what was
// accepted through AppendRecord and back.
func checkBody(t require.TestingT, body []byte) {
	// The body lies between guards: nothing outside it may be read as part of it, or
	// written.
	room := bytes.Repeat([]byte{'"'}, len(body)+128)
	work := room[64 : 64+len(body) : 64+len(body)]
	copy(work, body)
	var r Request
	err := r.Decode(work)
	for _, g := range [][]byte{room[:64], room[64+len(body):]} {
		require.Equal(t, strings.Repeat(`"`, 64), string(g))
	}
	valid := utf8.Valid(body) && json.Valid(body)
	require.Equal(t, !valid, model.HasCode(err, model.MalformedBody), "%q gave %v", body, err)
	if err != nil {
		return
	}
	want := oracle(t, body)
	require.Len(t, r.Records, len(want))
	again := []byte(`{"records":[`)
	for i, got := range r.Records {
		headers := got.Headers
		got.Headers = nil
		require.Equal(t, want[i], got, "record %d of %q", i, body)
		if i > 0 {
			again = append(again, ',')
		}
		again = AppendRecord(again, &Meta{Topic: "t"}, &record.Record{Key: got.Key, Value: got.Value, Headers: headers}, Encodings{})
	}
	again = append(again, ']', '}')
	require.True(t, json.Valid(again))
	var back Request
	require.NoError(t, back.Decode(again))
	for i, got := range back.Records {
		require.Equal(t, r.Records[i].Key, got.Key)
		require.Equal(t, r.Records[i].Value, got.Value)
		require.Equal(t, r.Records[i].Headers, got.Headers)
	}
}

var seeds = []string{
	`{"records":[{"key":"k","value":"v"},{"value":{"a":[1,2.5e-3,null]}}]}`,
	`{"records":[{"key":"k","value":"v"},{"value":""},{"value": "w", "key": "k"},{"key":"k"}]}`,
	`{"records":[{"key":"k","value":"v","key":"l"},{"value":"v","timestamp":1},{"value": null, "key": "k"},{"value":7}]}`,
	`{"records":[{"value_encoding":"base64","value":"aGVsbG8="},{"key":null,"partition":1,"timestamp":2,"partition_key":"x"}]}`,
	`{"records":[{"headers":[{"name":"a","value":"b","encoding":"text"},{"name":"a","value":null,"encoding":null}]}]}`,
	`{"records":[{"headers":{"a":"\ud83d\ude00","b":1}},{"value":"\u0041\n\ud800"}]}`,
	`{ "records" : [ { "value" : "x" , "value_encoding" : "json" } ] } `,
	`{"records":[[[[{}]]]]}`, `{"records":[{"value":"` + "\xff" + `"}]}`, `{"records":[{"x":1}],"y":"\"}`, ``, `[`, `{"records":[]}`,
}

func FuzzDecode(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) { checkBody(t, body) })
}

func FuzzDecodeRecord(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(strings.TrimSuffix(strings.TrimPrefix(s, `{"records":[`), `]}`)))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var r Request
		err := r.DecodeRecord(bytes.Clone(line))
		require.Equal(t, utf8.Valid(line) && json.Valid(line), !model.HasCode(err, model.MalformedBody), "%q gave %v", line, err)
		require.Equal(t, err == nil, len(r.Records) == 1)
		var whole Request
		body := fmt.Appendf(nil, `{"records":[%s]}`, line)
		if werr := whole.Decode(body); err == nil {
			require.NoError(t, werr)
			require.Equal(t, whole.Records, r.Records)
		}
	})
}

func FuzzAppendBytes(f *testing.F) {
	for _, s := range append(seeds, `{"a":"\udc00"}`, "[1,\n2]", " {}", "\x00", "é") {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		for _, e := range []Encoding{Auto, JSON, Text, Base64} {
			got, as := appendBytes(nil, value, e)
			require.True(t, json.Valid(got), "%q", got)
			require.NotContains(t, string(got), "\n")
			var r Request
			require.NoError(t, r.DecodeRecord(fmt.Appendf(nil, `{"value":%s,"value_encoding":%s}`, got, as)))
			require.True(t, bytes.Equal(value, r.Records[0].Value))
		}
	})
}

func TestDecoderAgreesWithEncodingJSON(t *testing.T) {
	t.Parallel()
	for _, s := range seeds {
		checkBody(t, []byte(s))
		for i := range len(s) { // every single byte replaced, dropped or doubled
			for _, c := range []byte("\"\\{}[],:0-eun \n\x00\xff") {
				checkBody(t, []byte(s[:i]+string([]byte{c})+s[i+1:]))
			}
			checkBody(t, []byte(s[:i]+s[i+1:]))
			checkBody(t, []byte(s[:i]+s[i:i+1]+s[i:]))
		}
	}
}
