package ws

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
	"tidewire/storage/record"
)

func TestASearchGivesTheRecordsThatContainItsText(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 2)
		now := time.Now().UnixMilli()
		n.produceRecords("t", 0, []record.Record{
			{Timestamp: now, Key: []byte("needle"), Value: []byte("key")}, {Timestamp: now, Value: []byte("a needle")},
			{Timestamp: now, Value: []byte("Needle")},
			{Timestamp: now, Value: []byte("header"), Headers: []record.Header{{Name: []byte("n"), Value: []byte("needle")}}},
		})
		n.produce("t", 1, "hay", "needles")
		for in, want := range map[string][]string{
			"":                          {"0:key", "0:a needle", "0:header", "1:needles"},
			`,"q_in":["key"]`:           {"0:key"},
			`,"q_in":["value"]`:         {"0:a needle", "1:needles"},
			`,"q_in":["headers","key"]`: {"0:key", "0:header"},
		} {
			c := n.connect(dialOptions{})
			sub, _ := c.subscribe(`"topics":["t"],"from":"earliest","q":"needle"` + in)
			require.Equal(t, "needle", sub.All["q"])
			require.ElementsMatch(t, want, c.records(len(want)), in)
			c.silent(time.Second)
			n.produce("t", 1, "more hay")
			c.silent(time.Second)
		}
		c := n.connect(dialOptions{query: "topics=t&from=earliest&q=needle&q_in=headers,key&preview_bytes=2"})
		sub := c.want("subscribed")
		require.Equal(t, []any{"key", "headers"}, sub.All["q_in"])
		require.Equal(t, json.Number("2"), sub.All["preview_bytes"])
		c.want("assigned")
		require.Equal(t, []string{"0:ke", "0:he"}, c.records(2))
	})
}

// What a search leaves out costs no credit, may be more than one read looks at, and the
// socket follows frames meanwhile.
func TestASearchGoesOnThroughWhatItLeavesOut(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 2)
		hay := make([]string, 100)
		for i := range hay {
			hay[i] = strings.Repeat("hay ", 2000)
		}
		for i := range 5 { // 4 MB of it
			n.produce("t", 0, hay...)
			n.produce("t", 0, fmt.Sprint("needle ", i))
		}
		n.produce("t", 0, hay...)
		c := n.connect(dialOptions{})
		c.subscribe(`"topics":["t"],"from":"earliest","q":"needle","credit":3`)
		require.Equal(t, []string{"0:needle 0", "0:needle 1", "0:needle 2"}, c.records(3))
		c.silent(time.Second)
		c.send(`{"op":"credit","records":5}`)
		require.Equal(t, []string{"0:needle 3", "0:needle 4"}, c.records(2))
		c.silent(time.Second)
		n.produce("t", 1, "another needle")
		require.Equal(t, []string{"1:another needle"}, c.records(1))
	})
}

func TestPreviewsCutWhatARecordHas(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.produce("t", 0, strings.Repeat("x", 300<<10), `{"a":1}`)
		c := n.connect(dialOptions{})
		c.subscribe(`"topics":["t"],"from":"earliest","preview_bytes":4`)
		require.Equal(t, []string{"0:xxxx", `0:{"a"`}, c.records(2))
	})
}

func TestASearchThatMakesNoSenseIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		c := n.connect(dialOptions{})
		for members, pointer := range map[string]string{
			`"q_in":["key"]`: "/q_in", `"q":"x","q_in":[]`: "/q_in", `"q":"x","q_in":["keys"]`: "/q_in", `"q":"x","q_in":["key","key"]`: "/q_in",
			`"q":"x","q_in":"key"`: "/q_in", `"q":1`: "/q", `"q":"` + strings.Repeat("x", 4097) + `"`: "/q",
			`"preview_bytes":-1`: "/preview_bytes", `"preview_bytes":1048577`: "/preview_bytes", `"preview_bytes":"1"`: "/preview_bytes",
		} {
			c.send(`{"op":"subscribe","id":1,"topics":["t"],%s}`, members)
			p := c.refused("1", model.InvalidArgument)
			require.Equal(t, pointer, p.Errors[0].Pointer, members)
		}
	})
}
