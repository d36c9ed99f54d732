package recordjson

import (
	"encoding/base64"
	"encoding/csv"
	"strings"
	"testing"
	"unicode/utf8"

	"tidewire/storage/record"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A row says what the record is: taking one apostrophe away gives the bytes again, and no
// field begins as a formula does.
func TestARowOfCSVGivesTheBytesAgain(t *testing.T) {
	t.Parallel()
	part := rapid.OneOf(
		rapid.SliceOf(rapid.Byte()), rapid.Just([]byte(nil)), rapid.Just([]byte{}),
		rapid.Map(rapid.StringMatching(`[=+@'\t\r\n -]{0,2}["',;a-c\r\n]{0,6}`), func(s string) []byte { return []byte(s) }),
		rapid.SampledFrom([][]byte{[]byte(`{"a":"b"}`), []byte("[1,2]"), []byte("'")}),
	)
	rapid.Check(t, func(t *rapid.T) {
		rec := &record.Record{Offset: 7, Timestamp: 8, Key: part.Draw(t, "key"), Value: part.Draw(t, "value")}
		row := AppendCSV([]byte(CSVHeader), &Meta{Topic: "t", Partition: 3}, rec, Encodings{})
		require.True(t, strings.HasSuffix(string(row), "\r\n"))
		// encoding/csv makes CR LF within a field LF, which would hide what is tested
		text := strings.ReplaceAll(strings.TrimSuffix(string(row), "\r\n"), "\r", "\ue000")
		rows, err := csv.NewReader(strings.NewReader(strings.Replace(text, "\ue000\n", "\n", 1) + "\n")).ReadAll()
		require.NoError(t, err)
		require.Len(t, rows, 2)
		require.Equal(t, []string{"t", "3", "7", "8", "CreateTime"}, rows[1][:5])
		for i, want := range [][]byte{rec.Key, rec.Value} {
			field, as := strings.ReplaceAll(rows[1][5+2*i], "\ue000", "\r"), rows[1][6+2*i]
			if field != "" {
				require.NotContains(t, "=+-@\t\r\n", field[:1])
			}
			switch field = strings.TrimPrefix(field, "'"); as {
			case "null":
				require.Nil(t, want)
			case "base64":
				b, err := base64.StdEncoding.DecodeString(field)
				require.NoError(t, err)
				require.Equal(t, want, b)
			default:
				require.NotNil(t, want)
				require.Equal(t, string(want), field, as)
			}
		}
	})
}

func TestPreviewsOfParts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 12).Draw(t, "bytes")
		text := []byte(rapid.StringOf(rapid.Rune()).Draw(t, "text"))
		e := Encodings{Preview: true, PreviewBytes: n}
		got, as := e.cut(text, Auto)
		require.LessOrEqual(t, len(got), max(n, 0))
		require.Equal(t, text[:len(got)], got)
		if len(text) <= n {
			require.Equal(t, text, got)
			require.Equal(t, Auto, as)
			return
		}
		require.Equal(t, Text, as, "the beginning of JSON is not JSON")
		require.True(t, utf8.Valid(got), "characters stay whole")
		require.Greater(t, len(got), n-utf8.UTFMax)
		got, as = e.cut(text, Base64)
		require.Len(t, got, n)
		require.Equal(t, Base64, as)
	})
}

func TestAPreviewTellsWhatItLeftOut(t *testing.T) {
	t.Parallel()
	rec := &record.Record{Key: nil, Value: []byte(`{}{}`), Headers: []record.Header{{Name: []byte("name"), Value: []byte("value")}}}
	e := Encodings{Preview: true, PreviewBytes: 2}
	got := string(AppendRecord(nil, &Meta{Topic: "t"}, rec, e))
	require.Contains(t, got, `"value":"{}","value_encoding":"text"`)
	require.Contains(t, got, `"headers":[{"name":"name","value":"va","encoding":"text"}],"preview":{"key_bytes":null,"value_bytes":4,"header_bytes":9,"truncated":true}}`)
	require.Equal(t, 2+4+2, e.Given(rec))
	e.PreviewBytes = 5
	require.Contains(t, string(AppendRecord(nil, &Meta{Topic: "t"}, rec, e)), `"truncated":false`)
}
