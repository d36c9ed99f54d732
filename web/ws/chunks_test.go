package ws

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"tidewire/api/problem"
	"tidewire/broker"
	"tidewire/internal/model"

	"github.com/stretchr/testify/require"
)

// collectAll reads until there is nothing more, by frames as deliver makes them, and returns
// the values of each partition in the order in which they came.
func collectAll(t *testing.T, s *session) map[int32][]string {
	t.Helper()
	out := map[int32][]string{}
	for {
		room := int(s.reader.want.maxRecords)
		f := &filling{b: []byte(recordsStart), room: room}
		require.NoError(t, s.reader.collect(t.Context(), f))
		if f.n == 0 {
			return out
		}
		var frame struct {
			Records []struct {
				Partition int32
				Offset    int64
				Value     any
			}
		}
		require.NoError(t, json.Unmarshal([]byte(string(f.b)+"]}"), &frame), "%s", f.b)
		require.Len(t, frame.Records, f.n)
		require.LessOrEqual(t, f.n, room)
		for _, r := range frame.Records {
			require.EqualValues(t, len(out[r.Partition]), r.Offset, "nothing is left out or comes twice")
			out[r.Partition] = append(out[r.Partition], fmt.Sprint(r.Value))
		}
	}
}

// TestReadersThatShareGetWhatTheyWouldReadAlone has readers of every kind come to the same
// places at different times.
func TestReadersThatShareGetWhatTheyWouldReadAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 3)
		want := map[int32][]string{}
		write := func(round int) {
			for p := range int32(3) {
				for i := range 40 * (int(p) + 1) {
					v := fmt.Sprintf("%d-%d-%d %s", round, p, i, strings.Repeat("x", 700))
					want[p] = append(want[p], v)
					n.produce("t", p, v)
				}
			}
		}
		var readers []*session
		for _, members := range []string{
			``, ``, `,"max_records":7`, `,"max_records":7`, `,"isolation":"read_uncommitted"`, `,"encoding":"text"`, `,"encoding":"base64"`, `,"encoding":"base64"`, `,"credit":1000`, ``,
		} {
			readers = append(readers, n.reading(`"topics":["t"],"from":"earliest"`+members))
		}
		got := make([]map[int32][]string, len(readers))
		for round := range 3 {
			write(round)
			for i, s := range readers {
				s.reader.parts[0].next, s.reader.parts[1].next, s.reader.parts[2].next = 0, 0, 0
				got[i] = collectAll(t, s)
			}
		}
		used := 0
		for _, a := range n.handler.shared.byKey {
			if a.chunk != nil {
				used++
			}
		}
		require.Positive(t, used, "they did share")
		for i, m := range got {
			if i == 6 || i == 7 { // in base64
				require.Len(t, m[2], len(want[2]))
				continue
			}
			require.Equal(t, want, m, "reader %d", i)
		}
	})
}

// shareAll has two readers put what they read at the start of partition 0 of t.
func shareAll(t *testing.T, n *node) (key chunkKey, c *chunk) {
	t.Helper()
	collectAll(t, n.reading(`"topics":["t"],"from":"earliest"`))
	collectAll(t, n.reading(`"topics":["t"],"from":"earliest"`))
	s := n.reading(`"topics":["t"],"from":"earliest"`)
	key = chunkKey{s.reader.parts[0].topic.ID(), 0, 0, broker.ReadCommitted, s.reader.want.encoding, s.reader.want.maxRecords}
	c, wanted := n.handler.shared.get(key, s.reader.id)
	require.True(t, wanted)
	require.NotNil(t, c)
	return key, c
}

func TestWhatIsSharedIsNotForThoseWhoMayNotReadIt(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		rule := n.allow(alice, "t")
		n.produce("t", 0, "secret")
		shareAll(t, n)
		caller := n.caller
		caller.Credential = n.auth.Tokens.Credential(n.token(alice))
		p, err := caller.Credential.Verify(t.Context())
		require.NoError(t, err)
		caller.Principal = p
		s := n.handler.newSession(caller, problem.Occurrence{})
		defer s.stream.Close()
		f := decodeFrame([]byte(`{"op":"subscribe","topics":["t"],"from":"earliest"}`))
		require.NoError(t, s.subscribe(context.Background(), f.cmd.(*subscription)))
		_, err = n.auth.Service.DeleteACLs(t.Context(), rule)
		require.NoError(t, err)
		fill := &filling{room: 10}
		require.True(t, model.HasCode(s.reader.collect(t.Context(), fill), model.Forbidden))
		require.Empty(t, fill.b)
	})
}

func TestWhatIsSharedEndsWithItsBeginningAndItsTopic(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.produce("t", 0, "a", "b", "c")
		shareAll(t, n)
		s := n.reading(`"topics":["t"],"from":"earliest"`)
		_, err := n.broker.DeleteRecords(t.Context(), n.caller, "t", []broker.RecordDeletion{{Partition: 0, Before: 2}}, false)
		require.NoError(t, err)
		fill := &filling{room: 10}
		require.True(t, model.HasCode(s.reader.collect(t.Context(), fill), model.OffsetOutOfRange))
		require.Empty(t, fill.b)

		require.NoError(t, n.broker.DeleteTopic(t.Context(), n.caller, "t", ""))
		n.topic("t", 1)
		n.produce("t", 0, "new")
		require.Equal(t, map[int32][]string{0: {"new"}}, collectAll(t, n.reading(`"topics":["t"],"from":"earliest"`)))
	})
}

func TestWhatIsNotVisibleYetIsNotTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.produce("t", 0, "a", "b")
		key, c := shareAll(t, n)
		ahead := *c
		ahead.read.Next = 3
		n.handler.shared.byKey[key] = asked{several: true, chunk: &ahead}
		require.Equal(t, map[int32][]string{0: {"a", "b"}}, collectAll(t, n.reading(`"topics":["t"],"from":"earliest"`)))
	})
}

func TestCreditIsNotPassedForWhatIsShared(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.produce("t", 0, "a", "b", "c", "d")
		shareAll(t, n)
		c := n.connect(dialOptions{})
		c.subscribe(`"topics":["t"],"from":"earliest","credit":3`)
		require.Equal(t, []string{"0:a", "0:b", "0:c"}, c.records(3))
		c.silent(5 * time.Second)
		c.send(`{"op":"credit","records":5}`)
		require.Equal(t, []string{"0:d"}, c.records(1))
	})
}

func TestASearchOrAPreviewSharesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.produce("t", 0, "a", "bb")
		for _, members := range []string{`,"q":"bb"`, `,"preview_bytes":1`} {
			for range 3 {
				f := &filling{room: 10}
				require.NoError(t, n.reading(`"topics":["t"],"from":"earliest"`+members).reader.collect(t.Context(), f))
				require.Positive(t, f.n)
			}
		}
		require.Empty(t, n.handler.shared.byKey)
	})
}

func TestChunksAreBounded(t *testing.T) {
	t.Parallel()
	c := newChunks()
	text := make([]byte, 1<<20)
	for i := range 3 * maxChunksKeys {
		k := chunkKey{from: model.Offset(i)}
		c.get(k, 1)
		if i%1000 == 0 {
			_, wanted := c.get(k, 2)
			require.True(t, wanted)
			c.put(k, text, broker.Read{})
			c.put(k, text, broker.Read{}) // by another at the same time
			got, _ := c.get(k, 3)
			require.NotNil(t, got)
		}
	}
	for i := range 40 {
		k := chunkKey{from: model.Offset(-1 - i)}
		c.get(k, 1)
		c.put(k, text, broker.Read{})
	}
	require.LessOrEqual(t, len(c.byKey), maxChunksKeys)
	require.Len(t, c.order, len(c.byKey))
	sum := 0
	for _, a := range c.byKey {
		if a.chunk != nil {
			sum += len(a.chunk.text)
		}
	}
	require.Equal(t, sum, c.bytes)
	require.LessOrEqual(t, sum, maxChunksBytes)
	require.Greater(t, sum, maxChunksBytes/2)
	k := chunkKey{from: 1 << 40}
	c.get(k, 1)
	_, wanted := c.get(k, 1)
	require.False(t, wanted, "a reader alone")
	c.put(k, make([]byte, maxChunksBytes), broker.Read{})
	got, _ := c.get(k, 2)
	require.Nil(t, got, "too large to share")
}

func TestFramesHaveTheHeadOfTheirLength(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 125, 126, 127, 65_535, 65_536, 300_000} {
		b := withHead(make([]byte, len(headRoom)+n))
		switch {
		case n < 126:
			require.Equal(t, []byte{0x81, byte(n)}, b[:len(b)-n])
		case n < 65_536:
			require.Equal(t, []byte{0x81, 126, byte(n >> 8), byte(n)}, b[:len(b)-n])
		default:
			require.Equal(t, []byte{0x81, 127, 0, 0, 0, 0, 0, byte(n >> 16), byte(n >> 8), byte(n)}, b[:len(b)-n])
		}
	}
}
