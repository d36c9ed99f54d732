package ws

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/api/problem"
	"tidewire/broker"
	"tidewire/cluster/metadata"
	"tidewire/internal/model"
	"tidewire/storage/record"
)

func TestASubscriptionIsAnsweredWithItsEffectiveValuesAndItsPartitions(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 2)
		n.produce("t", 1, "a", "b")
		c := n.connect(dialOptions{})
		c.send(`{"op":"subscribe","id":7,"topics":["t"]}`)
		require.JSONEq(t, `{"op":"subscribed","id":7,"member_id":null,"group":null,"instance_id":null,"client_id":null,"assignor":null,
			"session_timeout_ms":null,"auto_offset_reset":null,"auto_commit":null,"auto_commit_interval_ms":null,"topics":["t"],"from":"latest","credit":null,
			"max_records":500,"encoding":"auto","isolation":"read_committed","q":null,"q_in":[],"preview_bytes":null}`, c.next())
		require.JSONEq(t, `{"op":"assigned","partitions":[
			{"topic":"t","partition":0,"next_offset":0},{"topic":"t","partition":1,"next_offset":2}]}`, c.next())
		c.silent(5 * time.Second)
		n.produce("t", 1, "c")
		require.Equal(t, []string{"1:c"}, c.records(1), "latest is the default")
	})
}

func TestFromSaysWhereAReaderBegins(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		now := time.Now().UnixMilli()
		n.produceRecords("t", 0, []record.Record{
			{Timestamp: now, Value: []byte("x")}, {Timestamp: now + 10, Value: []byte("y")}, {Timestamp: now + 20, Value: []byte("z")},
		})
		for from, x := range map[string]struct {
			next int64
			text string
		}{
			`"earliest"`:                {0, "earliest"},
			`"latest"`:                  {3, "latest"},
			`null`:                      {3, "latest"},
			fmt.Sprint(now + 5):         {1, fmt.Sprint(now + 5)},
			fmt.Sprintf(`"%d"`, now+20): {2, fmt.Sprint(now + 20)},
			fmt.Sprint(now + 21):        {3, fmt.Sprint(now + 21)},
			`0`:                         {0, "0"},
		} {
			c := n.connect(dialOptions{})
			sub, as := c.subscribe(`"topics":["t"],"from":` + from)
			require.Equal(t, x.text, sub.All["from"], from)
			require.Equal(t, []Position{{"t", 0, x.next}}, as.Partitions, from)
		}
	})
}

func TestQueryParametersSubscribeAsAFrameDoes(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.topic("u", 2)
		n.produce("t", 0, "a", "b", `{"x":1.00}`)
		q := url.Values{
			"topics": {"t,u"}, "from": {"earliest"}, "credit": {"3"}, "max_records": {"2"}, "encoding": {"base64"}, "isolation": {"read_uncommitted"},
			"partitions": {`[{"topic":"t","partition":0,"next_offset":1}]`},
		}
		c := n.connect(dialOptions{query: q.Encode()})
		require.JSONEq(t, `{"op":"subscribed","member_id":null,"group":null,"instance_id":null,"client_id":null,"assignor":null,
			"session_timeout_ms":null,"auto_offset_reset":null,"auto_commit":null,"auto_commit_interval_ms":null,"topics":["t","u"],"from":"earliest","credit":3,
			"max_records":2,"encoding":"base64","isolation":"read_uncommitted","q":null,"q_in":[],"preview_bytes":null}`, c.next())
		require.Equal(t, []Position{{"t", 0, 1}, {"u", 0, 0}, {"u", 1, 0}}, c.want("assigned").Partitions)
		f := c.want("records")
		require.Len(t, f.Records, 2)
		require.Equal(t, recordOf{"t", 0, 1, "Yg==", "base64"}, f.Records[0])

		c.send(`{"op":"subscribe","id":"s","topics":["t"]}`)
		c.refused(`"s"`, model.Conflict)
		c.send(`{"op":"unsubscribe","id":"u"}`)
		require.Equal(t, `"u"`, string(c.want("unsubscribed").ID))
		c.send(`{"op":"subscribe","topics":["t"]}`)
		c.fails(model.Conflict, closeBadFrame)

		c = n.connect(dialOptions{query: "topics=t&topics=u"})
		require.Equal(t, []string{"t", "u"}, c.want("subscribed").Topics)
	})
}

func TestPartitionsSetPositionsAndNameSinglePartitions(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		for _, name := range []string{"t", "u", "v"} {
			n.topic(name, 3)
			for p := range int32(3) {
				n.produce(name, p, "a", "b", "c")
			}
		}
		c := n.connect(dialOptions{})
		sub, as := c.subscribe(`"topics":["t"],"from":"earliest","partitions":[
			{"topic":"t","partition":1,"next_offset":2},{"topic":"u","partition":2,"next_offset":1},{"topic":"v","partition":0}]`)
		require.Equal(t, []string{"t", "u", "v"}, sub.Topics)
		require.Equal(t, []Position{{"t", 0, 0}, {"t", 1, 2}, {"t", 2, 0}, {"u", 2, 1}, {"v", 0, 0}}, as.Partitions)
		require.ElementsMatch(t, []string{
			"0:a", "0:b", "0:c", "1:c", "2:a", "2:b", "2:c", // t
			"2:b", "2:c", // u
			"0:a", "0:b", "0:c", // v
		}, c.records(12))
		n.produce("u", 0, "not read")
		c.silent(5 * time.Second)
	})
}

func TestRecordsComeByteForByteAsTheyDoOverREST(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		now := time.Now().UnixMilli()
		n.produceRecords("t", 0, []record.Record{
			{Timestamp: now, Value: []byte(`{"n":9223372036854775807,"d":1.00,"n":123456789012345678901234567890,"u":"<\u003c"}`)},
			{Timestamp: now, Key: []byte{}, Value: nil},
			{Timestamp: now, Key: nil, Value: []byte{}},
			{Timestamp: now, Key: []byte("k"), Value: []byte{0xff, 0}, Headers: []record.Header{{Name: []byte("h"), Value: nil}, {Name: []byte("h"), Value: []byte("1")}}},
		})
		c := n.connect(dialOptions{query: "topics=t&from=earliest"})
		c.want("subscribed")
		c.want("assigned")
		at := func(offset int) string {
			return fmt.Sprintf(`{"topic":"t","partition":0,"offset":%d,"timestamp":%d,"timestamp_type":"CreateTime"`, offset, now)
		}
		require.Equal(t, `{"op":"records","records":[`+strings.Join([]string{
			at(0) + `,"key":null,"key_encoding":null,"value":{"n":9223372036854775807,"d":1.00,"n":123456789012345678901234567890,"u":"<\u003c"},"value_encoding":"json","headers":[]}`,
			at(1) + `,"key":"","key_encoding":"text","value":null,"value_encoding":null,"headers":[]}`,
			at(2) + `,"key":null,"key_encoding":null,"value":"","value_encoding":"text","headers":[]}`,
			at(3) + `,"key":"k","key_encoding":"text","value":"/wA=","value_encoding":"base64","headers":[{"name":"h","value":null,"encoding":null},{"name":"h","value":"1","encoding":"text"}]}`,
		}, ",")+`]}`, c.next())
	})
}

func TestEncodingSaysHowValuesCome(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.produce("t", 0, `[1]`)
		for enc, want := range map[string]recordOf{
			"auto":   {"t", 0, 0, []any{1.0}, "json"},
			"json":   {"t", 0, 0, []any{1.0}, "json"},
			"text":   {"t", 0, 0, "[1]", "text"},
			"base64": {"t", 0, 0, "WzFd", "base64"},
		} {
			c := n.connect(dialOptions{})
			sub, _ := c.subscribe(`"topics":["t"],"from":"earliest","encoding":"` + enc + `"`)
			require.Equal(t, enc, sub.All["encoding"])
			require.Equal(t, []recordOf{want}, c.want("records").Records)
		}
	})
}

func TestAFrameHoldsAtMostMaxRecordsAndSomeBytes(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.topic("big", 1)
		var values []string
		for i := range 25 {
			values = append(values, fmt.Sprint(i))
		}
		n.produce("t", 0, values...)
		c := n.connect(dialOptions{})
		c.subscribe(`"topics":["t"],"from":"earliest","max_records":10`)
		for _, want := range []int{10, 10, 5} {
			require.Len(t, c.want("records").Records, want)
		}

		for range 8 {
			n.produce("big", 0, strings.Repeat("x", 100<<10))
		}
		n.produce("big", 0, strings.Repeat("x", 900<<10), "last")
		c = n.connect(dialOptions{})
		c.subscribe(`"topics":["big"],"from":"earliest"`)
		got := 0
		for got < 10 {
			text := c.next()
			var f frame
			require.NoError(t, json.Unmarshal([]byte(text), &f))
			got += len(f.Records)
			if len(f.Records) > 1 {
				require.Less(t, len(text), frameBytes+(1<<10), "several records stay within the bound")
			}
		}
		require.Equal(t, 10, got)
	})
}

func TestPartitionsAreServedInTurn(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 4)
		var many []string
		for i := range 1000 {
			many = append(many, fmt.Sprint(i))
		}
		for p := range int32(4) {
			n.produce("t", p, many...)
		}
		c := n.connect(dialOptions{})
		c.subscribe(`"topics":["t"],"from":"earliest","max_records":50`)
		counts := map[int32]int{}
		next := map[int32]int64{}
		for range 80 {
			f := c.want("records")
			for _, r := range f.Records {
				require.Equal(t, next[r.Partition], r.Offset, "each partition in its order")
				next[r.Partition]++
			}
			counts[f.Records[0].Partition] += len(f.Records)
			least, most := 1000, 0
			for p := range int32(4) {
				least, most = min(least, counts[p]), max(most, counts[p])
			}
			require.LessOrEqual(t, most-least, 50, "no partition is more than one frame ahead")
		}
		require.Equal(t, map[int32]int{0: 1000, 1: 1000, 2: 1000, 3: 1000}, counts)
	})
}

func TestNoMoreRecordsComeThanCreditWasGranted(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 2)
		n.produce("t", 0, "a", "b", "c", "d")
		n.produce("t", 1, "e", "f", "g", "h")
		c := n.connect(dialOptions{})
		sub, _ := c.subscribe(`"topics":["t"],"from":"earliest","credit":0`)
		require.EqualValues(t, 0, *sub.Credit)
		c.silent(5 * time.Second)

		c.send(`{"op":"credit","records":3}`)
		require.Len(t, c.records(3), 3)
		c.silent(5 * time.Second)

		c.send(`{"op":"credit","id":"c","records":4}`)
		f := c.want("credited")
		require.Equal(t, `"c"`, string(f.ID))
		require.EqualValues(t, 4, *f.Credit)
		require.Len(t, c.records(4), 4)
		c.silent(5 * time.Second)

		c.send(`{"op":"credit","records":100}`)
		require.Len(t, c.records(1), 1)
		c.send(`{"op":"credit","id":1,"records":%d}`, int64(maxCredit))
		c.refused("1", model.InvalidArgument)
		n.produce("t", 0, "i")
		require.Equal(t, []string{"0:i"}, c.records(1), "the credit that is left stays")
	})
}

func TestCreditNeedsASubscriptionWithCredit(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		c := n.connect(dialOptions{})
		c.subscribe(`"topics":["t"]`)
		c.send(`{"op":"credit","id":1,"records":3}`)
		c.refused("1", model.Conflict)
	})
}

func TestAPausedPartitionYieldsNothingUntilItIsResumed(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 2)
		c := n.connect(dialOptions{})
		c.subscribe(`"topics":["t"]`)
		c.send(`{"op":"pause","id":1,"partitions":[{"topic":"t","partition":0}]}`)
		require.JSONEq(t, `{"op":"paused","id":1,"partitions":[{"topic":"t","partition":0}]}`, c.next())
		n.produce("t", 0, "a", "b")
		n.produce("t", 1, "c")
		require.Equal(t, []string{"1:c"}, c.records(1))
		c.silent(5 * time.Second)
		c.send(`{"op":"resume","id":2,"partitions":[{"topic":"t","partition":0}]}`)
		require.JSONEq(t, `{"op":"resumed","id":2,"partitions":[{"topic":"t","partition":0}]}`, c.next())
		require.Equal(t, []string{"0:a", "0:b"}, c.records(2))

		c.send(`{"op":"pause","id":3,"partitions":[{"topic":"t","partition":1},{"topic":"t","partition":2}]}`)
		require.Equal(t, "/partitions/1", c.refused("3", model.InvalidArgument).Errors[0].Pointer)
		n.produce("t", 1, "d")
		require.Equal(t, []string{"1:d"}, c.records(1), "a pause that is refused pauses nothing")

		c.send(`{"op":"pause","partitions":[]}`)
		c.silent(time.Second) // without an id there is no answer
	})
}

func TestSeekMovesPositionsAllOrNone(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 2)
		n.produce("t", 0, "a", "b", "c")
		n.produce("t", 1, "d", "e", "f")
		c := n.connect(dialOptions{})
		c.subscribe(`"topics":["t"]`)
		c.send(`{"op":"seek","id":1,"partitions":[{"topic":"t","partition":0,"next_offset":1}]}`)
		require.JSONEq(t, `{"op":"sought","id":1,"partitions":[{"topic":"t","partition":0,"next_offset":1}]}`, c.next())
		require.Equal(t, []string{"0:b", "0:c"}, c.records(2))

		c.send(`{"op":"seek","id":2,"partitions":[{"topic":"t","partition":0,"next_offset":0},{"topic":"t","partition":1,"next_offset":4}]}`)
		p := c.refused("2", model.OffsetOutOfRange)
		require.EqualValues(t, 0, *p.Earliest)
		require.EqualValues(t, 3, *p.Latest)
		require.Equal(t, "t", p.Topic)
		require.EqualValues(t, 1, *p.Partition)
		c.silent(5 * time.Second)

		c.send(`{"op":"seek","id":3,"partitions":[{"topic":"t","partition":0,"next_offset":3}]}`)
		require.Equal(t, "sought", c.frame().Op, "the log end is a position")
		c.send(`{"op":"seek","id":4,"partitions":[{"topic":"u","partition":0,"next_offset":3}]}`)
		require.Equal(t, "/partitions/0", c.refused("4", model.InvalidArgument).Errors[0].Pointer)
	})
}

func TestUnsubscribeEndsReadingAndLeavesTheSocketOpen(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.topic("u", 1)
		c := n.connect(dialOptions{})
		c.subscribe(`"topics":["t"]`)
		c.send(`{"op":"subscribe","id":0,"topics":["u"]}`)
		c.refused("0", model.Conflict)
		c.send(`{"op":"unsubscribe","id":1}`)
		c.want("unsubscribed")
		n.produce("t", 0, "a")
		c.silent(5 * time.Second)
		for _, op := range []string{`"unsubscribe"`, `"credit","records":1`, `"pause","partitions":[]`, `"resume","partitions":[]`, `"seek","partitions":[]`} {
			c.send(`{"id":2,"op":%s}`, op)
			c.refused("2", model.Conflict)
		}
		_, as := c.subscribe(`"topics":["u"],"from":"earliest"`)
		require.Equal(t, []Position{{"u", 0, 0}}, as.Partitions)
		n.produce("u", 0, "b")
		require.Equal(t, []string{"0:b"}, c.records(1))
	})
}

func TestPartitionsThatAreAddedAreReadFromTheirStart(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.topic("u", 1)
		c := n.connect(dialOptions{})
		c.subscribe(`"topics":["t"],"partitions":[{"topic":"u","partition":0}]`)
		for _, topic := range []string{"u", "t"} {
			_, err := n.broker.GrowTopic(t.Context(), n.caller, broker.Growth{Topic: topic, Partitions: 3})
			require.NoError(t, err)
		}
		n.produce("t", 2, "a")
		require.Equal(t, []Position{{"t", 1, 0}, {"t", 2, 0}}, c.want("assigned").Partitions, "only the new ones, of the whole topic")
		require.Equal(t, []string{"2:a"}, c.records(1))
		n.produce("u", 2, "not read")
		n.produce("t", 1, "b")
		require.Equal(t, []string{"1:b"}, c.records(1))
		c.send(`{"op":"seek","id":1,"partitions":[{"topic":"t","partition":2,"next_offset":0}]}`)
		c.want("sought")
		require.Equal(t, []string{"2:a"}, c.records(1))
	})
}

func TestRecordsAreSeenOnceTheyAreCommitted(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		c := n.connect(dialOptions{})
		c.subscribe(`"topics":["t"],"isolation":"read_uncommitted"`)
		began := time.Now()
		n.produce("t", 0, "a")
		require.Equal(t, []string{"0:a"}, c.records(1))
		require.Less(t, time.Since(began), 10*time.Millisecond, "woken, not polled")
	})
}

func TestAPositionBeyondTheLogRefusesTheSubscription(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.produce("t", 0, "a")
		c := n.connect(dialOptions{})
		c.send(`{"op":"subscribe","id":1,"topics":["t"],"partitions":[{"topic":"t","partition":0,"next_offset":9}]}`)
		p := c.refused("1", model.OffsetOutOfRange)
		require.EqualValues(t, 1, *p.Latest)
		_, as := c.subscribe(`"topics":["t"]`)
		require.Equal(t, []Position{{"t", 0, 1}}, as.Partitions, "a subscription that was refused left nothing behind")
	})
}

// reading is a session of root that has subscribed and has no socket.
func (n *node) reading(members string) *session {
	n.t.Helper()
	s := n.handler.newSession(n.caller, problem.Occurrence{})
	n.t.Cleanup(s.stream.Close)
	f := decodeFrame([]byte(`{"op":"subscribe",` + members + `}`))
	require.NoError(n.t, f.err)
	require.NoError(n.t, s.subscribe(context.Background(), f.cmd.(*subscription)))
	return s
}

func TestAReaderWhosePositionIsGoneIsToldWhereTheLogIs(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 2)
		n.produce("t", 1, "a", "b")
		s := n.reading(`"topics":["t"]`)
		s.reader.parts[1].next = 9 // as one that the log start has passed
		_, end := s.deliver(t.Context())
		require.NotNil(t, end)
		require.Equal(t, closeSlow, end.code)
		require.Equal(t, string(model.OffsetOutOfRange), end.reason)
		var f frame
		require.NoError(t, json.Unmarshal(end.frame, &f))
		require.Equal(t, "t", f.Problem.Topic)
		require.EqualValues(t, 1, *f.Problem.Partition)
		require.EqualValues(t, 0, *f.Problem.Earliest)
		require.EqualValues(t, 2, *f.Problem.Latest)
	})
}

func TestAPositionFollowsWhatWasCollected(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.produce("t", 0, "a", "b", "c")
		s := n.reading(`"topics":["t"],"from":"earliest","max_records":2`)
		collect := func() (string, int) {
			f := &filling{room: 2}
			require.NoError(t, s.reader.collect(t.Context(), f))
			return string(f.b), f.n
		}
		b, got := collect()
		require.Equal(t, 2, got)
		require.True(t, json.Valid([]byte("["+b+"]")))
		require.Equal(t, []Position{{"t", 0, 2}}, s.reader.positions(0))
		_, got = collect()
		require.Equal(t, 1, got)
		_, got = collect()
		require.Zero(t, got)
		require.Equal(t, []Position{{"t", 0, 3}}, s.reader.positions(0))
	})
}

func TestUnknownTopicsAndPartitionsAndMissingRightsRefuseASubscription(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.topic("secret", 1)
		n.allow(alice, "t")
		n.allow(alice, "nowhere")
		for body, x := range map[string]struct {
			code    model.Code
			closing int
		}{
			`"topics":["nowhere"]`: {model.UnknownTopic, closeUnknown},
			`"topics":["t"],"partitions":[{"topic":"t","partition":1}]`: {model.UnknownPartition, closeUnknown},
			`"topics":["secret"]`:           {model.Forbidden, closeNotAllowed},
			`"topics":["hidden"]`:           {model.Forbidden, closeNotAllowed},
			`"topics":["nowhere","secret"]`: {model.Forbidden, closeNotAllowed},
			`"topics":["t"],"partitions":[{"topic":"secret","partition":0}]`: {model.Forbidden, closeNotAllowed},
		} {
			c := n.connect(dialOptions{user: alice})
			c.send(`{"op":"subscribe","id":"x",%s}`, body)
			c.refused(`"x"`, x.code)
			c.send(`{"op":"subscribe","id":"x","topics":["t"]}`)
			c.want("subscribed")
			c.want("assigned")

			c = n.connect(dialOptions{user: alice})
			c.send(`{"op":"subscribe",%s}`, body)
			c.fails(x.code, x.closing)
		}
	})
}

func TestATopicThatIsDeletedAndMadeAnewIsAnother(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		c := n.connect(dialOptions{})
		c.subscribe(`"topics":["t"]`)
		old := n.quorum.Image().Topic("t")
		n.propose(metadata.DeleteTopic{Name: "t", ID: old.ID})
		n.topic("t", 1)
		c.fails(model.UnknownTopic, closeUnknown)
	})
}

// BenchmarkFrame makes records frames of a backlog: what fan-out costs per reader,
// without the socket.
func BenchmarkFrame(b *testing.B) {
	n := newNode(b, newPipes(), nil)
	n.topic("t", 1)
	recs := make([]record.Record, 500)
	for i := range recs {
		recs[i] = record.Record{Timestamp: time.Now().UnixMilli(), Key: []byte("key"), Value: []byte(strings.Repeat("x", 100))}
	}
	for range 20 {
		n.produceRecords("t", 0, recs)
	}
	s := n.reading(`"topics":["t"],"from":"earliest"`)
	buf := make([]byte, 0, 1<<20)
	b.ReportAllocs()
	records := 0
	for b.Loop() {
		f := &filling{b: buf, room: 500}
		require.NoError(b, s.reader.collect(b.Context(), f))
		if records += f.n; f.n == 0 {
			s.reader.parts[0].next = 0
		}
	}
	b.ReportMetric(float64(records)/b.Elapsed().Seconds(), "records/s")
}
