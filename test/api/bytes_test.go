package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rawRecord is a fetched record with its values as they came.
type rawRecord struct {
	Key           json.RawMessage `json:"key"`
	KeyEncoding   string          `json:"key_encoding"`
	Value         json.RawMessage `json:"value"`
	ValueEncoding string          `json:"value_encoding"`
	Headers       json.RawMessage `json:"headers"`
}

func (a *api) rawRecords(path string) (parsed []rawRecord, whole []json.RawMessage) {
	a.t.Helper()
	x := wants(a.t, a.get(path+"/partitions/0/records?offset=0"), 200, "")
	var page struct {
		Records []json.RawMessage `json:"records"`
	}
	x.JSON(a.t, &page)
	for _, r := range page.Records {
		var p rawRecord
		require.NoError(a.t, json.Unmarshal(r, &p))
		parsed = append(parsed, p)
	}
	return parsed, page.Records
}

// exact has records as they are produced, and the parts of the fetched record that
// must be equal to the byte; the encoding of null is null, which "" stands for here.
var exact = []struct{ name, produced, key, keyEncoding, value, valueEncoding, headers string }{
	{"a large integer", `{"value":{"n":9223372036854775807}}`, `null`, "", `{"n":9223372036854775807}`, "json", `[]`},
	{"zeros behind the point", `{"value":[1.00,1e2,-0,0.10]}`, `null`, "", `[1.00,1e2,-0,0.10]`, "json", `[]`},
	{"30 digits", `{"value":[123456789012345678901234567890]}`, `null`, "", `[123456789012345678901234567890]`, "json", `[]`},
	{"a number alone", `{"value":9223372036854775807}`, `null`, "", `"9223372036854775807"`, "text", `[]`},
	{"true alone", `{"value":true}`, `null`, "", `"true"`, "text", `[]`},
	{"duplicate names", `{"value":{"a":1,"a":2,"b":{"c":1,"c":1}}}`, `null`, "", `{"a":1,"a":2,"b":{"c":1,"c":1}}`, "json", `[]`},
	{"escapes inside", `{"value":{"a":"\u003c\u00e9\/\ud83d\ude00"}}`, `null`, "", `{"a":"\u003c\u00e9\/\ud83d\ude00"}`, "json", `[]`},
	{"blanks inside", `{"value": { "a" : [ 1 , 2 ] } }`, `null`, "", `{ "a" : [ 1 , 2 ] }`, "json", `[]`},
	{"an escaped text", `{"value":"\u003ca\u003e\n"}`, `null`, "", `"<a>\n"`, "text", `[]`},
	{"empty and null", `{"key":"","value":null}`, `""`, "text", `null`, "", `[]`},
	{"null and empty", `{"key":null,"value":""}`, `null`, "", `""`, "text", `[]`},
	{"absent", `{}`, `null`, "", `null`, "", `[]`},
	{"empty base64", `{"value":"","value_encoding":"base64"}`, `null`, "", `""`, "text", `[]`},
	{"the word null", `{"value":"null"}`, `null`, "", `"null"`, "text", `[]`},
	{"null as JSON", `{"value":null,"value_encoding":"json"}`, `null`, "", `"null"`, "text", `[]`},
	{"a string as JSON", `{"value":"a","value_encoding":"json"}`, `null`, "", `"\"a\""`, "text", `[]`},
	{"invalid UTF-8", `{"key":"gA==","key_encoding":"base64","value":"/wD+","value_encoding":"base64"}`, `"gA=="`, "base64", `"/wD+"`, "base64", `[]`},
	{"a key that looks like JSON", `{"key":{"a":1},"value":"{}"}`, `"{\"a\":1}"`, "text", `{}`, "json", `[]`},
	{"headers", `{"value":"v","headers":[{"name":"a","value":"1"},{"name":"a","value":null},{"name":"","value":""},{"name":"b","value":"/w==","encoding":"base64"},{"name":"a","value":"1"}]}`,
		`null`, "", `"v"`, "text",
		`[{"name":"a","value":"1","encoding":"text"},{"name":"a","value":null,"encoding":null},{"name":"","value":"","encoding":"text"},{"name":"b","value":"/w==","encoding":"base64"},{"name":"a","value":"1","encoding":"text"}]`},
	{"headers as an object", `{"value":"v","headers":{"z":"1","a":null,"z":{"x":1.0}}}`, `null`, "", `"v"`, "text",
		`[{"name":"z","value":"1","encoding":"text"},{"name":"a","value":null,"encoding":null},{"name":"z","value":"{\"x\":1.0}","encoding":"text"}]`},
	{"NUL and the last character", `{"value":"\u0000\udbff\udfff"}`, `null`, "", `"\u0000` + "\U0010ffff" + `"`, "text", `[]`},
	{"500 levels", `{"value":` + depth(500) + `}`, `null`, "", depth(500), "json", `[]`},
	{"501 levels", `{"value":` + depth(501) + `}`, `null`, "", `"` + depth(501) + `"`, "text", `[]`},
}

func TestBytesComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	path := a.topic("bytes", 1, nil)
	records := []string{}
	for _, e := range exact {
		records = append(records, e.produced)
	}
	wants(t, a.post(path+"/records", `{"records":[`+strings.Join(records, ",")+`]}`), 200, "")
	look := func(path string) []json.RawMessage {
		parsed, whole := a.rawRecords(path)
		require.Len(t, parsed, len(exact))
		for i, e := range exact {
			got := parsed[i]
			require.Equal(t, e.key, string(got.Key), e.name)
			require.Equal(t, e.keyEncoding, got.KeyEncoding, e.name)
			require.Equal(t, e.value, string(got.Value), e.name)
			require.Equal(t, e.valueEncoding, got.ValueEncoding, e.name)
			require.Equal(t, e.headers, string(got.Headers), e.name)
		}
		return whole
	}
	whole := look(path)

	// What was fetched can be produced as it is, in every encoding, and is the same.
	for i, query := range []string{"", "&encoding=base64&key_encoding=base64&header_encoding=base64", "&encoding=text", "&encoding=json&key_encoding=json"} {
		x := a.get(path + "/partitions/0/records?offset=0" + query)
		var page struct {
			Records []json.RawMessage `json:"records"`
		}
		x.JSON(t, &page)
		copied := a.topic(fmt.Sprintf("bytes.%d", i), 1, nil)
		wants(t, a.post(copied+"/records", `{"records":[`+join(page.Records)+`]}`), 200, "")
		look(copied)
	}
	a.Restart()
	a.admin = a.Admin()
	require.Equal(t, join(whole), join(look(path)), "after a restart, times included")
}

func join(list []json.RawMessage) string {
	parts := []string{}
	for _, m := range list {
		parts = append(parts, string(m))
	}
	return strings.Join(parts, ",")
}
