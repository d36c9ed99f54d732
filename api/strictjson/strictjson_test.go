package strictjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tidewire/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type inner struct {
	Name string `json:"name" binding:"required"`
	N    int32  `json:"n"`
}

type dto struct {
	Text   string            `json:"text"`
	Flag   bool              `json:"flag"`
	Count  int64             `json:"count"`
	Small  int8              `json:"small"`
	Maybe  *int32            `json:"maybe"`
	Words  []string          `json:"words"`
	Parts  []inner           `json:"parts"`
	One    *inner            `json:"one"`
	Config map[string]string `json:"config"`
	Any    any               `json:"any"`
	Slash  string            `json:"a/b~c"`
}

func TestABodyBecomesItsStruct(t *testing.T) {
	t.Parallel()
	var d dto
	require.NoError(t, Decode([]byte(" \t\r\n"+`{"text":"é\n\ud83d\ude00","flag":true,"count":-9223372036854775808,"small":127,"maybe":0,"words":[],
		"parts":[{"name":"x","n":2147483647},{"name":""}],"one":{"name":"y"},"config":{"a":"s","b":1.50,"c":false},"any":12e3,"a/b~c":"z"}`+" \n"), &d))
	require.Equal(t, dto{
		Text: "é\n😀", Flag: true, Count: -1 << 63, Small: 127, Maybe: new(int32), Words: []string{},
		Parts: []inner{{"x", 1<<31 - 1}, {}}, One: &inner{Name: "y"}, Config: map[string]string{"a": "s", "b": "1.50", "c": "false"},
		Any: json.Number("12e3"), Slash: "z",
	}, d)
	var nulls dto
	require.NoError(t, Decode([]byte(`{"text":null,"maybe":null,"words":null,"config":null,"one":null,"any":null}`), &nulls))
	require.Equal(t, dto{}, nulls, "null is the same as left out")
}

func TestWhatIsNotOneJSONValueIsMalformed(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"empty": "", "white space": " \n", "cut": `{"text":"a`, "cut in a list": `{"words":["a"`, "cut behind a name": `{"text"`, "no colon": `{"text" 1}`,
		"two values": `{} {}`, "trailing": `{}x`, "trailing bracket": `{}}`, "trailing comma": `{"text":"a",}`, "single quotes": `{'text':1}`,
		"a comment": `{} // x`, "bare words": `{text:1}`, "NaN": `{"any":NaN}`, "leading zero": `{"count":01}`, "plus": `{"count":+1}`, "hex": `{"count":0x1}`,
		"a control character": "{\"text\":\"a\nb\"}", "bad escape": `{"text":"\x"}`, "a byte order mark": "\ufeff{}", "half a literal": `{"flag":tru}`,
		"invalid UTF-8 in a text": "{\"text\":\"\xff\"}", "invalid UTF-8 in a name": "{\"\xc3\":1}", "UTF-16": "{\x00}\x00", "an overlong form": "{\"text\":\"\xc0\xaf\"}",
		"a surrogate in UTF-8": "{\"text\":\"\xed\xa0\x80\"}",
	} {
		var d dto
		err := Decode([]byte(body), &d)
		require.True(t, model.HasCode(err, model.MalformedBody), "%s: %v", name, err)
	}
}

func TestWhatTheStructDoesNotHaveIsNamed(t *testing.T) {
	t.Parallel()
	for body, pointers := range map[string][]string{
		`[]`:                            {""},
		`"text"`:                        {""},
		`null`:                          {""},
		`{"unknown":1}`:                 {"/unknown"},
		`{"Text":"x"}`:                  {"/Text"}, // names are case-sensitive
		`{"x/y~z":1}`:                   {"/x~1y~0z"},
		`{"text":"a","text":"a"}`:       {"/text"},
		`{"config":{"a":1,"a":1}}`:      {"/config/a"},
		`{"unknown":{"b":1,"b":2}}`:     {"/unknown/b"},
		`{"text":"a","te\u0078t":"b"}`:  {"/text"}, // the same name, escaped
		`{"text":1}`:                    {"/text"},
		`{"flag":"true"}`:               {"/flag"},
		`{"flag":1}`:                    {"/flag"},
		`{"count":"1"}`:                 {"/count"},
		`{"count":1.0}`:                 {"/count"},
		`{"count":1e3}`:                 {"/count"},
		`{"count":9223372036854775808}`: {"/count"},
		`{"small":128}`:                 {"/small"},
		`{"small":-129}`:                {"/small"},
		`{"maybe":2147483648}`:          {"/maybe"},
		`{"count":` + strings.Repeat("9", 1000) + `}`: {"/count"},
		`{"words":"a"}`:                          {"/words"},
		`{"words":["a",null,2]}`:                 {"/words/1", "/words/2"},
		`{"parts":[{"n":1},{"name":"x","m":1}]}`: {"/parts/0/name", "/parts/1/m"},
		`{"parts":[{"name":null}]}`:              {"/parts/0/name"},
		`{"one":[]}`:                             {"/one"},
		`{"config":[]}`:                          {"/config"},
		`{"config":{"a":null,"b":[],"c":{}}}`:    {"/config/a", "/config/b", "/config/c"},
		`{"any":true}`:                           {"/any"},
		`{"any":{}}`:                             {"/any"},
		`{"text":"\ud83d"}`:                      {""},
		`{"text":"\ude00\ud83d"}`:                {""},
		`{"te\ud800xt":"x"}`:                     {""},
		`{"words":["\\ud83d","\ud83dx"]}`:        {""},
	} {
		var d dto
		err := Decode([]byte(body), &d)
		require.True(t, model.HasCode(err, model.InvalidArgument), "%.60s: %v", body, err)
		var e *model.Error
		require.True(t, errors.As(err, &e))
		var got []string
		for _, f := range e.Fields {
			require.NotEmpty(t, f.Detail)
			require.Less(t, len(f.Detail), 200)
			got = append(got, f.Pointer)
		}
		require.Equal(t, pointers, got, "%.60s", body)
	}
	var d dto
	require.NoError(t, Decode([]byte(`{"text":"\\ud83d \ud83d\ude00 \u0041"}`), &d), "an escaped backslash begins no escape")
}

func TestNestingIsBounded(t *testing.T) {
	t.Parallel()
	nested := func(n int) []byte {
		return []byte(`{"unknown":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`)
	}
	var d dto
	err := Decode(nested(MaxDepth), &d)
	require.Equal(t, "/unknown", model.AsError(err).Fields[0].Pointer, "it is read to its end")
	for _, n := range []int{MaxDepth + 1, 100_000} {
		err = Decode(nested(n), &d)
		require.True(t, model.HasCode(err, model.InvalidArgument), "%v", err)
		require.Contains(t, err.Error(), fmt.Sprint(MaxDepth))
	}
	err = Decode([]byte(strings.Repeat("[", 100_000)), &d)
	require.True(t, model.HasCode(err, model.InvalidArgument), "%v", err)
}

func TestAnAnswerListsABoundedNumberOfFaults(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, `,"x%d":1`, i)
	}
	var d dto
	err := Decode([]byte("{"+b.String()[1:]+"}"), &d)
	require.Len(t, model.AsError(err).Fields, maxFieldErrors)
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"text":"a","parts":[{"name":"x"}]}`, `{"text":"\ud83d\ude00"}`, `[[[`, `{"a":1,"a":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var d dto
		err := Decode(b, &d)
		if err != nil && !model.HasCode(err, model.MalformedBody) && !model.HasCode(err, model.InvalidArgument) {
			t.Fatalf("%v", err)
		}
		if err == nil && !json.Valid(b) {
			t.Fatal("it took what is no JSON")
		}
	})
}
