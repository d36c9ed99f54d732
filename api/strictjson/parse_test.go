package strictjson

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// agree checks that a valid document is read alike by both ways.
func agree(t *testing.T, b []byte) {
	t.Helper()
	want, wantErr := parseSlowly(b)
	got, err := (&scanner{b: b}).value(nil, 0)
	require.Equal(t, fmt.Sprint(wantErr), fmt.Sprint(err))
	if err == nil {
		require.Equal(t, want, got)
	}
}

var documents = []string{
	`{}`, ` [ ] `, `""`, `null`, ` true`, `false `, `-0`, "1.5e+10", "\t{\"a\" :\r\n[1 , 2,{ }],\"b\":{\"c\":null}}\n", `{"a":1,"a":2}`,
	`{"a/b~c":{"x":1,"x":2}}`, `[{"a":[0,{"b":1,"b":1}]}]`, `"\"\\\/\b\f\n\r\tA😀\ud83d"`, `{"\"":"\\"}`, `{"":""}`,
	`[[[[]]]]`, `[true,false,null,"a",1]`, "\"é😀\u2028\"", `{"a":"` + strings.Repeat("x", 5000) + `"}`,
	`{"topic":"a","partition":1,"topic":"b"}`, `[0.1,1E5,-12,123456789012345678901234567890]`,
	strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth), strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1),
	strings.Repeat(`{"a":`, MaxDepth+1) + "1" + strings.Repeat("}", MaxDepth+1),
}

// An object of so many members, the last of which is given again.
func many(n int, again bool) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"m%d":%d,`, i, i)
	}
	if again {
		return fmt.Sprintf(`{%s"m%d":0}`, b.String(), n-1)
	}
	return fmt.Sprintf(`{%s"x":0}`, b.String())
}

func TestBothWaysReadAlike(t *testing.T) {
	t.Parallel()
	all := documents
	for _, n := range []int{1, fewMembers - 1, fewMembers, fewMembers + 1, 100} {
		all = append(all[:len(all):len(all)], many(n, false), many(n, true))
	}
	for _, d := range all {
		require.True(t, json.Valid([]byte(d)), d)
		agree(t, []byte(d))
	}
}

func FuzzBothWaysReadAlike(f *testing.F) {
	for _, d := range documents {
		f.Add([]byte(d))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if utf8.Valid(b) && json.Valid(b) {
			agree(t, b)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	type offset struct {
		Topic string  `json:"topic" binding:"required"`
		Part  int32   `json:"partition" binding:"required"`
		Next  int64   `json:"next_offset" binding:"required"`
		Note  *string `json:"metadata"`
	}
	type commit struct {
		Offsets []offset `json:"offsets"`
		Cursor  *string  `json:"cursor"`
	}
	var list []string
	for p := range 16 {
		list = append(list, fmt.Sprintf(`{"topic":"load","partition":%d,"next_offset":%d}`, p, 1000*p))
	}
	body := []byte(`{"offsets":[` + strings.Join(list, ",") + "]}")
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		var c commit
		if err := Decode(body, &c); err != nil || len(c.Offsets) != 16 {
			b.Fatal(err)
		}
	}
}
