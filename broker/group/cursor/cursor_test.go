package cursor

import (
	"encoding/base64"
	"encoding/binary"
	"flag"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"tidewire/internal/model"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sample() *Cursor {
	return &Cursor{Member: Tag("member-1"), Version: 7, Topics: []Topic{
		{Tag: TagOf(model.TopicID{1}), Entries: []Entry{{0, 2, 100}, {1, 2, 90}, {5, 6, 0}}},
		{Tag: TagOf(model.TopicID{2, 15: 9}), Entries: []Entry{{math.MaxInt32, 6, math.MaxInt64}}},
	}}
}

// What the format of version 1 is made of.
func TestTheFormatDoesNotChange(t *testing.T) {
	t.Parallel()
	require.Equal(t, 1, format)
	require.Equal(t, uint32(0x811c9dc5), Tag(""))
	require.Equal(t, uint32(0xe40c292c), Tag("a"))
	path := filepath.Join("testdata", "cursor-v1.golden")
	got := sample().String()
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got+"\n"), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, strings.TrimSpace(string(want)), got)
	back, err := Parse(got)
	require.NoError(t, err)
	require.Equal(t, sample(), back)
}

func draw(t *rapid.T) *Cursor {
	c := &Cursor{Member: rapid.Uint32().Draw(t, "member"), Version: Version(rapid.Uint32().Draw(t, "version"))}
	ids := rapid.SliceOfNDistinct(rapid.Byte(), 0, 5, rapid.ID[byte]).Draw(t, "topics")
	for _, id := range ids {
		topic := Topic{Tag: TagOf(model.TopicID{id, 7}), Entries: []Entry{}}
		for _, p := range rapid.SliceOfNDistinct(rapid.Int32Range(0, math.MaxInt32), 0, 9, rapid.ID[int32]).Draw(t, "partitions") {
			topic.Entries = append(topic.Entries, Entry{model.PartitionID(p), Version(rapid.Uint32().Draw(t, "since")), model.Offset(rapid.Int64Range(0, math.MaxInt64).Draw(t, "next"))})
		}
		c.Topics = append(c.Topics, topic)
	}
	c.Normalise()
	return c
}

func TestACursorComesBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := draw(t)
		text := c.String()
		require.NotContains(t, text, "=")
		require.Equal(t, "", strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"))
		back, err := Parse(text)
		require.NoError(t, err)
		require.Equal(t, c.String(), back.String())
		require.Equal(t, c.Len(), back.Len())
		for _, topic := range c.Topics {
			for _, e := range topic.Entries {
				got, ok := back.Find(model.TopicID(append(topic.Tag[:], make([]byte, 8)...)), e.Partition)
				require.True(t, ok)
				require.Equal(t, e, got)
			}
		}
	})
}

func TestOneChangedCharacterIsRefused(t *testing.T) {
	t.Parallel()
	text := sample().String()
	for i := range text {
		other := byte('A')
		if text[i] == 'A' {
			other = 'B'
		}
		_, err := Parse(text[:i] + string(other) + text[i+1:])
		require.True(t, model.HasCode(err, model.InvalidArgument), "%d: %v", i, err)
		_, err = Parse(text[:i])
		require.True(t, model.HasCode(err, model.InvalidArgument), "cut at %d: %v", i, err)
	}
}

// signed gives bytes the checksum that they need, so that what they say is looked at.
func signed(body []byte) string {
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(body, crc32.Checksum(body, castagnoli)))
}

func TestBytesThatAreNoCursorAreRefused(t *testing.T) {
	t.Parallel()
	head := []byte{1, 0, 0, 0, 9, 1}
	id := make([]byte, 8)
	with := func(parts ...[]byte) string {
		b := append([]byte{}, head...)
		for _, p := range parts {
			b = append(b, p...)
		}
		return signed(b)
	}
	for name, text := range map[string]string{
		"empty":                       "",
		"no base64":                   "§§§§§§§§§§§§§§§§",
		"padding":                     sample().String() + "=",
		"white space":                 sample().String() + "\n",
		"another version":             signed([]byte{2, 0, 0, 0, 9, 1, 0}),
		"more topics than bytes":      with(binary.AppendUvarint(nil, 1<<40)),
		"more partitions than bytes":  with([]byte{1}, id, binary.AppendUvarint(nil, 1<<40)),
		"bytes behind the end":        with([]byte{0, 0}),
		"a topic cut":                 with([]byte{1}, id[:5]),
		"topics out of order":         with([]byte{2}, id, []byte{0}, id, []byte{0}),
		"a negative offset":           with([]byte{1}, id, []byte{1, 0, 1}),
		"a partition beyond 31 bits":  with([]byte{1}, id, []byte{2}, binary.AppendUvarint(nil, 2*maxPartition), []byte{0, 0, 0}),
		"a since beyond 32 bits":      with([]byte{1}, id, []byte{1, 1}, binary.AppendUvarint(nil, 1<<33), []byte{0}),
		"a number longer than needed": signed([]byte{1, 0, 0, 0, 9, 0x81, 0x00, 0}),
		"too long":                    strings.Repeat("A", MaxText+1),
	} {
		_, err := Parse(text)
		require.True(t, model.HasCode(err, model.InvalidArgument), "%s: %v", name, err)
	}
}

func TestTwoThousandPartitionsFitIntoAHeader(t *testing.T) {
	t.Parallel()
	c := &Cursor{Member: 1, Version: 3}
	for i := range 20 {
		topic := Topic{Tag: TopicTag{byte(i)}}
		for p := range 100 {
			topic.Entries = append(topic.Entries, Entry{model.PartitionID(p), 1, model.Offset(5_000_000_000 + (p*7919)%4000)})
		}
		c.Topics = append(c.Topics, topic)
	}
	require.Less(t, len(c.String()), 9000)
	// Offsets that have nothing to do with each other, each topic with one partition.
	c = &Cursor{Member: 1, Version: 3}
	for i := range 2000 {
		c.Topics = append(c.Topics, Topic{Tag: TopicTag{byte(i >> 8), byte(i)}, Entries: []Entry{{0, 1, model.Offset(i) << 24}}})
	}
	text := c.String()
	require.Less(t, len(text), 44_000)
	back, err := Parse(text)
	require.NoError(t, err)
	require.Equal(t, 2000, back.Len())
}

func TestANilCursorHasNothing(t *testing.T) {
	t.Parallel()
	var c *Cursor
	_, ok := c.Find(model.TopicID{1}, 0)
	require.False(t, ok)
}

func FuzzParse(f *testing.F) {
	f.Add(sample().String())
	f.Add((&Cursor{}).String())
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse(text)
		if err != nil {
			require.True(t, model.HasCode(err, model.InvalidArgument))
			// The same bytes with a checksum that fits, to get past it.
			if b, e := base64.RawURLEncoding.DecodeString(text); e == nil && len(b) > 4 {
				_, _ = Parse(signed(b[:len(b)-4]))
			}
			return
		}
		require.Equal(t, text, c.String())
		require.LessOrEqual(t, c.Len(), MaxEntries)
	})
}
