package browse

import (
	"encoding/base64"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewire/internal/model"
)

// The bytes of a cursor are what a client of an earlier version may still hold.
func TestTheBytesOfACursor(t *testing.T) {
	t.Parallel()
	c := &Cursor{
		Topic: model.TopicID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, Direction: Backward, Whole: true,
		Places: []Place{{0, 5, 9}, {1, 300, 300}, {7, 0, 1}},
		Filter: Filter{Text: []byte("né"), In: InKey | InHeaders, Key: []byte{}, HasKey: true, To: 1000, HasTo: true},
	}
	const golden = "AX0BAgMEBQYHCAkKCwwNDg8QAwAFBACsAgAFAAHoBwAFA27DqXX64Nk"
	require.Equal(t, golden, c.String())
	back, ok := ParseCursor(golden)
	require.True(t, ok)
	require.Equal(t, c, back)
}

func drawCursor(t *rapid.T) *Cursor {
	c := &Cursor{
		Direction: Direction(rapid.IntRange(0, 1).Draw(t, "direction")), Before: rapid.Bool().Draw(t, "before"), Whole: rapid.Bool().Draw(t, "whole"),
		Places: []Place{}, Filter: *drawFilter(t),
	}
	copy(c.Topic[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "topic"))
	bounded := rapid.Bool().Draw(t, "bounded")
	last := int32(-1)
	for range rapid.IntRange(0, 20).Draw(t, "partitions") {
		last += rapid.Int32Range(1, 1<<20).Draw(t, "distance")
		p := Place{model.PartitionID(last), model.Offset(rapid.Int64Range(0, 1<<62).Draw(t, "next")), Unbounded}
		if bounded {
			p.Bound = p.Next + model.Offset(rapid.Int64Range(0, 1<<60).Draw(t, "ahead"))
		}
		c.Places = append(c.Places, p)
	}
	return c
}

func TestACursorComesBackAsItWas(t *testing.T) {
	t.Parallel()
	plain := regexp.MustCompile(`^[A-Za-z0-9._~-]+$`)
	rapid.Check(t, func(t *rapid.T) {
		c := drawCursor(t)
		text := c.String()
		require.Regexp(t, plain, text)
		back, ok := ParseCursor(text)
		require.True(t, ok)
		require.Equal(t, c, back)
		at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
		for _, damaged := range []string{text[:at], text + "A", text[:at] + "*" + text[at+1:], text[:at] + string(text[at]^1) + text[at+1:]} {
			if got, ok := ParseCursor(damaged); ok {
				require.Equal(t, text, got.String(), "only what says the same is taken")
			}
		}
	})
}

// Whoever can compute the checksum may send anything.
func TestWhatIsNoCursorIsRefused(t *testing.T) {
	t.Parallel()
	head := func(flags byte) []byte { return append([]byte{cursorVersion, flags}, make([]byte, 16)...) }
	for name, body := range map[string][]byte{
		"nothing":                    {},
		"another version":            append([]byte{2, 0}, make([]byte, 17)...),
		"an unknown flag":            append(head(0x80), 0),
		"too many partitions":        append(head(0), 0xd1, 0x0f),
		"more than there is":         append(head(0), 5, 0, 0),
		"a partition beyond 32 bits": append(head(0), 2, 0xff, 0xff, 0xff, 0xff, 7, 0, 0xff, 0xff, 0xff, 0xff, 7, 0),
		"an offset beyond 62 bits":   append(head(0), 1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1),
		"a text that is longer":      append(head(flagText), 0, 7, 200, 1, 'x'),
		"an empty text":              append(head(flagText), 0, 7, 0),
		"a text nowhere":             append(head(flagText), 0, 0, 1, 'x'),
		"unknown parts":              append(head(flagText), 0, 8, 1, 'x'),
		"something behind":           append(head(0), 0, 0),
	} {
		_, ok := ParseCursor(base64.RawURLEncoding.EncodeToString(sealed(body)))
		require.False(t, ok, name)
	}
	for _, text := range []string{"", "A", strings.Repeat("A", maxCursor+1), "a b", "é"} {
		_, ok := ParseCursor(text)
		require.False(t, ok)
	}
}

func TestTheLongestCursorFitsIntoARequest(t *testing.T) {
	t.Parallel()
	c := &Cursor{Filter: Filter{Text: make([]byte, MaxTextBytes), In: InAll, Key: make([]byte, MaxTextBytes), HasKey: true}}
	for i := range MaxPartitions {
		c.Places = append(c.Places, Place{model.PartitionID(i * 5), 1 << 48, 1<<48 + 1<<34})
	}
	text := c.String()
	require.Less(t, len(text), 56<<10, "beside other headers, of 64 KiB")
	_, ok := ParseCursor(text)
	require.True(t, ok)
}

func FuzzCursor(f *testing.F) {
	f.Add([]byte{})
	f.Add((&Cursor{Places: []Place{{0, 1, 2}, {3, 4, 5}}, Filter: Filter{Text: []byte("x"), In: InKey}}).append(nil))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, text := range []string{string(body), base64.RawURLEncoding.EncodeToString(body), base64.RawURLEncoding.EncodeToString(sealed(body))} {
			c, ok := ParseCursor(text)
			if !ok {
				continue
			}
			again, ok := ParseCursor(c.String())
			if !ok {
				t.Fatalf("%+v cannot be read back", c)
			}
			require.Equal(t, c, again)
		}
	})
}
