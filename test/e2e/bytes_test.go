package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// exact is a record as a client writes it, and the bytes that it stands for. A nil
// slice is null.
type exact struct {
	json    string // members of the record object, without partition
	key     []byte
	value   []byte
	headers []header
}

func exacts() []exact {
	k := []byte("k")
	value := func(text string) exact { return exact{`"key":"k","value":` + text, k, []byte(text), nil} }
	return []exact{
		value(`9223372036854775807`),
		value(`-9223372036854775808`),
		value(`1.00`),
		value(`1e400`),
		value(`123456789012345678901234567890`),
		value(`{"max":9223372036854775807,"money":1.00,"big":123456789012345678901234567890,"exp":1E+2,"minus":-0}`),
		value(`{"a":1,"a":2,"a":{"a":3}}`),
		value(`{"lt":"\u003c","slash":"\/","plain":"</>&","sep":"\u2028","upper":"\u00FC"}`),
		value(`{ "spaces" : [ 1 ,2 ] }`),
		value(`[]`),
		value(`{}`),
		value(`true`),
		value(`{"e":"é 水 🌊"}`),
		{`"key":"k","value":  {"outer":1}  `, k, []byte(`{"outer":1}`), nil},
		{`"key":"k","value":"\u003c and \n"`, k, []byte("< and \n"), nil},
		{`"key":"k","value":"null"`, k, []byte("null"), nil},
		{`"key":"k","value":"{\"looks\":\"like JSON\"}"`, k, []byte(`{"looks":"like JSON"}`), nil},
		{`"key":"k","value":"quoted","value_encoding":"json"`, k, []byte(`"quoted"`), nil},
		{`"key":"k","value":null,"value_encoding":"json"`, k, []byte("null"), nil},
		{`"key":"k","value":null`, k, nil, nil},
		{`"key":"k"`, k, nil, nil},
		{`"key":"k","value":""`, k, []byte{}, nil},
		{`"key":"","value":"empty key"`, []byte{}, []byte("empty key"), nil},
		{`"key":null,"value":"null key"`, nil, []byte("null key"), nil},
		{`"value":"no key"`, nil, []byte("no key"), nil},
		{`"key":"","value":""`, []byte{}, []byte{}, nil},
		{`"key":null,"value":null`, nil, nil, nil},
		{`"key":"","key_encoding":"base64","value":"","value_encoding":"base64"`, []byte{}, []byte{}, nil},
		{`"key":"//4=","key_encoding":"base64","value":"gICA/w==","value_encoding":"base64"`, []byte{0xff, 0xfe}, []byte{0x80, 0x80, 0x80, 0xff}, nil},
		{`"key":12,"value":"a number as key"`, []byte("12"), []byte("a number as key"), nil},
		{`"key":{"id":1.0},"value":"an object as key"`, []byte(`{"id":1.0}`), []byte("an object as key"), nil},
		{`"key":"k","value":"\u0000\u001f\u007f\ufeff"`, k, []byte("\x00\x1f\x7f\ufeff"), nil},
		{`"key":"k","value":"eyJhIjoKMX0=","value_encoding":"base64"`, k, []byte("{\"a\":\n1}"), nil},
		{`"key":"k","value":"h","headers":[{"name":"a","value":"1"},{"name":"a","value":"2"},{"name":"z","value":null},{"name":"a","value":""},{"name":"","value":"no name"}]`,
			k, []byte("h"), []header{{"a", []byte("1")}, {"a", []byte("2")}, {"z", nil}, {"a", []byte{}}, {"", []byte("no name")}}},
		{`"key":"k","value":"h","headers":[{"name":"bin","value":"/w==","encoding":"base64"},{"name":"num","value":1.00},{"name":"obj","value":{"x":"\u003c"}}]`,
			k, []byte("h"), []header{{"bin", []byte{0xff}}, {"num", []byte("1.00")}, {"obj", []byte(`{"x":"\u003c"}`)}}},
		{`"key":"k","value":null,"headers":[{"name":"/w==","name_encoding":"base64","value":""},{"name":"/w==","name_encoding":"base64","value":null}]`,
			k, nil, []header{{"\xff", []byte{}}, {"\xff", nil}}},
		{`"key":"k","value":"h","headers":{"one":"1"}`, k, []byte("h"), []header{{"one", []byte("1")}}},
	}
}

// exactStart is the timestamp of the first record; each has its own.
const exactStart = 1_700_000_000_123

func exactInput() (string, []rec) {
	var lines strings.Builder
	var want []rec
	for i, e := range exacts() {
		at := int64(exactStart + 1001*i)
		fmt.Fprintf(&lines, "{%s,\"partition\":0,\"timestamp\":%d}\n", e.json, at)
		r := rec{Offset: int64(i), Timestamp: at, Key: e.key, Value: e.value, Headers: e.headers}
		if r.Headers == nil {
			r.Headers = []header{}
		}
		want = append(want, r)
	}
	return lines.String(), want
}

// sameRecords compares one by one: null and empty are different, also in the message.
func sameRecords(t *testing.T, want, got []rec) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, fmt.Sprintf("%#v", want[i]), fmt.Sprintf("%#v", got[i]), "record %d: %s", i, exacts()[i].json)
	}
}

// Digits and bytes stay as they are through every door and through a copy by the
// command line, and in the log across a kill.
func TestDigitsAndBytesStayAsTheyAre(t *testing.T) {
	t.Parallel()
	input, want := exactInput()
	n := startNode(t)
	a := admin(t, n)
	for _, topic := range []string{"by-cli", "by-rest", "copy", "copy-of-copy"} {
		a.createTopic(t, topic, 1, map[string]any{"retention.ms": -1})
	}
	n.must(t, a.token, input, "produce", "by-cli", "--batch-size", "7")
	body := `{"records":[` + strings.Join(strings.Split(strings.TrimSpace(input), "\n"), ",") + `]}`
	var answer struct {
		Results []result `json:"results"`
	}
	a.must(t, "POST", "/v1/topics/by-rest/records", []byte(body), &answer)
	require.Len(t, answer.Results, len(want))
	copied := n.must(t, a.token, "", "consume", "by-cli")
	n.must(t, a.token, copied, "produce", "copy")
	n.must(t, a.token, n.must(t, a.token, "", "consume", "copy"), "produce", "copy-of-copy")

	check := func(when string) {
		for _, topic := range []string{"by-cli", "by-rest", "copy", "copy-of-copy"} {
			t.Run(topic+" "+when, func(t *testing.T) {
				sameRecords(t, want, a.readTopic(t, topic, 1))
				sameRecords(t, want, a.readWebSocket(t, topic, len(want)))
				sameRecords(t, want, a.readCLI(t, topic))
				sameRecords(t, want, readOneByOne(t, a, topic, len(want)))
			})
		}
	}
	check("at first")
	n.restart(t, false)
	check("after kill -9")
}

// A topic of several partitions comes through consume and produce as it was, each record in
// its partition, and again through the body of lines that consume writes.
func TestATopicOfManyPartitionsIsCopiedAsItIs(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	a := admin(t, n)
	var in strings.Builder
	for i, e := range exacts() {
		for p := range 3 {
			fmt.Fprintf(&in, "{%s,\"partition\":%d,\"timestamp\":%d}\n", e.json, p, exactStart+100*i+p)
		}
	}
	for _, topic := range []string{"from", "by-command", "by-lines"} {
		a.createTopic(t, topic, 3, map[string]any{"retention.ms": -1})
	}
	n.must(t, a.token, in.String(), "produce", "from")
	copied := n.must(t, a.token, "", "consume", "from", "-o", "json")
	n.must(t, a.token, copied, "produce", "by-command", "--batch-size", "10")
	req, err := http.NewRequestWithContext(t.Context(), "POST", n.URL()+"/v1/topics/by-lines/records", strings.NewReader(copied))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+a.token)
	req.Header.Set("Content-Type", "application/x-ndjson")
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	var last answerLine
	require.NoError(t, json.Unmarshal(body, &last), "%s", body)
	require.EqualValues(t, 3*len(exacts()), last.Summary.Records)
	for p := range 3 {
		want := a.readPartition(t, "from", p, 1000)
		require.Len(t, want, len(exacts()))
		sameRecords(t, want, a.readPartition(t, "by-command", p, 1000))
		sameRecords(t, want, a.readPartition(t, "by-lines", p, 1000))
	}
}

// readOneByOne fetches each record on its own.
func readOneByOne(t *testing.T, a *api, topic string, records int) []rec {
	t.Helper()
	var wire []wireRecord
	for i := range records {
		var p page
		a.must(t, "GET", fmt.Sprintf("/v1/topics/%s/partitions/0/records?offset=%d&max_records=1", topic, i), nil, &p)
		wire = append(wire, p.Records...)
	}
	return storedAll(t, wire)
}

// Each encoding that a reader may ask for gives the same bytes, or says that it gives
// base64 instead.
func TestEncodingsGiveTheSameBytes(t *testing.T) {
	t.Parallel()
	input, want := exactInput()
	n := startNode(t)
	a := admin(t, n)
	a.createTopic(t, "t", 1, map[string]any{"retention.ms": -1})
	n.must(t, a.token, input, "produce", "t")
	for encoding, allowed := range map[string][]string{
		"auto": {"json", "text", "base64"}, "json": {"json", "base64"}, "text": {"text", "base64"}, "base64": {"base64"},
	} {
		var p page
		a.must(t, "GET", "/v1/topics/t/partitions/0/records?offset=0&encoding="+encoding, nil, &p)
		for i := range p.Records {
			if got := p.Records[i].ValueEncoding; want[i].Value == nil {
				require.Nil(t, got, "%s: record %d", encoding, i)
			} else {
				require.NotNil(t, got, "%s: record %d", encoding, i)
				require.Contains(t, allowed, *got, "%s: record %d", encoding, i)
			}
		}
		sameRecords(t, want, storedAll(t, p.Records))
	}
	var raw struct {
		Records []struct {
			Value json.RawMessage `json:"value"`
		} `json:"records"`
	}
	a.must(t, "GET", "/v1/topics/t/partitions/0/records?offset=5&max_records=1", nil, &raw)
	require.Equal(t, `{"max":9223372036854775807,"money":1.00,"big":123456789012345678901234567890,"exp":1E+2,"minus":-0}`, string(raw.Records[0].Value))
}
