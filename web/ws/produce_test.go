package ws

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"tidewire/auth"
	"tidewire/cluster/metadata"
	"tidewire/internal/inflight"
	"tidewire/internal/model"
)

const producePath = "/v1/ws/produce"

// produced is an answer to a produce frame.
type produced struct {
	Op       string          `json:"op"`
	ID       json.RawMessage `json:"id"`
	Accepted *int64          `json:"accepted"`
	Warning  *string         `json:"warning"`
	Results  []struct {
		Partition int32      `json:"partition"`
		Offset    *int64     `json:"offset"`
		Timestamp int64      `json:"timestamp"`
		Problem   *problemOf `json:"problem"`
	} `json:"results"`
}

func (c *client) produced() produced {
	c.t.Helper()
	text := c.next()
	var p produced
	require.NoError(c.t, json.Unmarshal([]byte(text), &p), text)
	require.Equal(c.t, "produced", p.Op, text)
	return p
}

// mayWrite lets a user write to a topic.
func (n *node) mayWrite(user, topic string) metadata.ACLFields {
	n.t.Helper()
	f := n.ruleOfAlice()
	f.Principal, f.ResourceName, f.Operation = "User:"+user, topic, metadata.OpWrite
	_, _, err := n.auth.Service.CreateACL(context.Background(), f)
	require.NoError(n.t, err)
	return f
}

func (n *node) producer(user string) *client {
	n.t.Helper()
	return n.connect(dialOptions{path: producePath, user: user})
}

func TestProduceFramesAreStoredAndAnsweredInOrder(t *testing.T) {
	overTCP(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.topic("u", 2)
		c := n.producer("")
		const frames = 500 // more than may be under way
		go func() {
			for i := range frames {
				acks := [...]string{"all", "leader", "1", "-1"}[i%4]
				_ = c.ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"op":"produce","id":%d,"topic":"t","acks":"%s","records":[{"value":"%d"},{"value":{"n":%d},"key":"k"}]}`, i, acks, i, i))
			}
		}()
		for i := range frames {
			p := c.produced()
			require.Equal(t, fmt.Sprint(i), string(p.ID))
			require.Nil(t, p.Accepted)
			require.Nil(t, p.Warning)
			require.Len(t, p.Results, 2)
			require.EqualValues(t, 2*i, *p.Results[0].Offset, "in the order in which they were sent")
			require.EqualValues(t, 2*i+1, *p.Results[1].Offset)
			require.Positive(t, p.Results[0].Timestamp)
		}
		c.send(` { "topic":"u", "records":[{"value":1,"partition":1,"timestamp":5}], "id":null, "acks":0, "op":"produce" } `)
		p := c.produced()
		require.Nil(t, p.ID, "a frame needs no id")
		require.Empty(t, p.Results)
		require.EqualValues(t, 1, *p.Accepted)
		require.Contains(t, *p.Warning, "retention.ms")
		require.EqualValues(t, 1, n.store.of(Partition{"u", 1}).LogEnd())
		require.EqualValues(t, 2*frames, n.store.of(Partition{"t", 0}).LogEnd())
	})
}

func TestAProduceFrameThatIsRefusedIsAnsweredInItsPlace(t *testing.T) {
	overTCP(t, func(t *testing.T, n *node) {
		n.topic("t", 2)
		n.topic("closed", 1)
		n.mayWrite(alice, "t")
		c := n.producer(alice)
		for i, row := range []struct {
			frame   string
			code    model.Code
			pointer string
		}{
			{`"op":"produce","topic":"t"`, model.InvalidArgument, "/records"},
			{`"op":"produce","topic":"t","records":[]`, model.InvalidArgument, "/records"},
			{`"op":"produce","records":[{}]`, model.InvalidArgument, "/topic"},
			{`"op":"produce","topic":"a b","records":[{}]`, model.InvalidArgument, "/topic"},
			{`"op":"produce","topic":7,"records":[{}]`, model.InvalidArgument, "/topic"},
			{`"op":"produce","topic":"t","records":[{"val":1}]`, model.InvalidArgument, "/records/0/val"},
			{`"op":"produce","topic":"t","records":[{},{"value":"\ud800"}]`, model.InvalidArgument, "/records/1/value"},
			{`"op":"produce","topic":"t","records":[{"partition":-1}]`, model.InvalidArgument, "/records/0/partition"},
			{`"op":"produce","topic":"t","records":[{"partition":2}]`, model.UnknownPartition, ""},
			{`"op":"produce","topic":"t","records":[{"timestamp":-1}]`, model.InvalidTimestamp, "/records/0/timestamp"},
			{`"op":"produce","topic":"t","records":[{}],"acks":2`, model.InvalidArgument, "/acks"},
			{`"op":"produce","topic":"t","records":[{}],"timeout_ms":0`, model.InvalidArgument, "/timeout_ms"},
			{`"op":"produce","topic":"t","records":[{}],"group":"g"`, model.InvalidArgument, "/group"},
			{`"op":"produce","topic":"t","topic":"t","records":[{}]`, model.InvalidArgument, "/topic"},
			{`"op":"produce","topic":"t","records":[{}],"records":[{}]`, model.InvalidArgument, "/records"},
			{`"op":"produce","topic":"closed","records":[{}]`, model.Forbidden, ""},
			{`"op":"produce","topic":"missing","records":[{}]`, model.Forbidden, ""},
			{`"op":"subscribe","topics":["t"]`, model.InvalidArgument, "/op"},
			{`"op":"subscribe","records":[{}]`, model.InvalidArgument, "/records"},
			{`"topic":"t"`, model.InvalidArgument, "/op"},
			{`"op":5`, model.InvalidArgument, "/op"},
			{`"op":"produce","topic":"t","records":[{"value":"` + strings.Repeat("x", 1<<20) + `"}]`, model.RecordTooLarge, "/records/0"},
		} {
			c.send(`{"op":"produce","id":"good","topic":"t","records":[{"value":"%d","partition":0}]}`, i)
			c.send(`{%s,"id":"bad"}`, row.frame)
			p := c.produced()
			require.EqualValues(t, i, *p.Results[0].Offset, "what came before is answered before")
			refused := c.refused(`"bad"`, row.code)
			require.Equal(t, producePath, refused.Instance)
			if row.pointer == "" {
				continue
			}
			require.NotEmpty(t, refused.Errors, row.frame)
			require.Equal(t, row.pointer, refused.Errors[0].Pointer, row.frame)
		}
		root := n.producer("")
		root.send(`{"op":"produce","id":1,"topic":"missing","records":[{}]}`)
		root.refused("1", model.UnknownTopic)
	})
}

func TestAnErrorWithoutIDClosesAfterWhatCameBefore(t *testing.T) {
	overTCP(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.mayWrite(alice, "t")
		for i, row := range []struct {
			frame   string
			code    model.Code
			closing int
		}{
			{`{"op":"produce","topic":"closed","records":[{}]}`, model.Forbidden, closeNotAllowed},
			{`{"op":"produce","topic":"t","records":[]}`, model.InvalidArgument, closeBadFrame},
			{`{"op":"produce","topic":"t"`, model.MalformedBody, closeBadFrame},
			{`[]`, model.MalformedBody, closeBadFrame},
			{``, model.MalformedBody, closeBadFrame},
			{"{\"op\":\"\xff\"}", model.MalformedBody, closeBadFrame},
			{`{"op":"produce","id":{},"topic":"t","records":[{}]}`, model.InvalidArgument, closeBadFrame},
			{`{"op":"auth","access_token":"x"}`, model.Unauthenticated, closeAuthEnded},
		} {
			c := n.producer(alice)
			c.send(`{"op":"produce","id":1,"topic":"t","records":[{"value":"v"}]}`)
			if i == 7 { // an auth is answered at once
				c.produced()
			}
			c.send("%s", row.frame)
			if i < 7 {
				require.EqualValues(t, i, *c.produced().Results[0].Offset)
			}
			c.fails(row.code, row.closing)
		}
		c := n.producer("")
		c.send(`{"op":"produce","topic":"missing","records":[{}]}`)
		c.fails(model.UnknownTopic, closeUnknown)
		c = n.producer("")
		require.NoError(t, c.ws.WriteMessage(websocket.BinaryMessage, []byte(`{"op":"produce","topic":"t","records":[{}]}`)))
		c.fails(model.MalformedBody, closeBadFrame)
	})
}

func TestFramesBeyondTheBytesInFlightEndTheSocketWith4429(t *testing.T) {
	overTCP(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.handler.budget = inflight.New(2 << 20)
		other := n.handler.budget.Hold()
		require.NoError(t, other.Grow(1<<20))
		c := n.producer("")
		c.send(`{"op":"produce","id":1,"topic":"t","records":[{"value":"small"}]}`)
		require.EqualValues(t, 0, *c.produced().Results[0].Offset)
		// The server may end the socket before it has read all of it.
		_ = c.ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"op":"produce","id":2,"topic":"t","records":[{"value":"%s"}]}`, strings.Repeat("x", 2<<20)))
		c.fails(model.RateLimited, closeLimit)
		require.EqualValues(t, 1, n.store.of(Partition{"t", 0}).LogEnd())
		other.Release()
		require.Eventually(t, func() bool { return n.handler.budget.Used() == 0 }, 10*time.Second, time.Millisecond)
	})
}

func TestAProducersTokenIsRenewedOrEndsTheSocket(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		c := n.producer(alice)
		f := c.frame15Minutes()
		require.Equal(t, "auth-expiring", f.Op)
		c.send(`{"op":"auth","id":1,"access_token":%q}`, n.token(alice))
		require.Equal(t, "1", string(c.want("authenticated").ID))
		require.Equal(t, "auth-expiring", c.frame15Minutes().Op)
		c.waits(2*time.Minute, func() { c.fails(model.TokenExpired, closeAuthEnded) })
		c = n.producer(alice)
		c.send(`{"op":"auth","id":1,"access_token":%q}`, n.token(root))
		c.fails(model.Unauthenticated, closeAuthEnded)
	})
}

func TestAProducersSocketEndsWithItsUserAndItsNode(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		c := n.producer(alice)
		disabled := true
		_, err := n.auth.Service.AlterUser(context.Background(), alice, auth.UserChange{Disabled: &disabled})
		require.NoError(t, err)
		c.fails(model.Unauthenticated, closeAuthEnded)
		c = n.producer("")
		go func() { _ = n.handler.Shutdown(context.Background()) }()
		require.Equal(t, "node-stopping", c.want("end").Reason)
		c.closed(closeGoingAway)
	})
}

func TestTheHandshakeOfAProducer(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		for query, status := range map[string]int{"topic=t": 422, "%zz": 422, "ticket=x": 501} {
			_, resp, err := n.handshake(dialOptions{path: producePath, query: query})
			require.Error(t, err)
			require.Equal(t, status, resp.StatusCode, query)
		}
		_, resp, err := n.handshake(dialOptions{path: producePath, token: "nonsense"})
		require.Error(t, err)
		require.Equal(t, http.StatusUnauthorized, resp.StatusCode)
		c := n.connect(dialOptions{path: producePath, protocols: []string{Subprotocol}})
		require.Equal(t, Subprotocol, c.ws.Subprotocol())
	})
}

func TestAProducersCloseIsAnswered(t *testing.T) {
	overTCP(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		c := n.producer("")
		c.send(`{"op":"produce","topic":"t","acks":"leader","records":[{"value":"last"}]}`)
		require.NoError(t, c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second)))
		for range c.got { // the answer may come before
		}
		require.True(t, websocket.IsCloseError(c.end, websocket.CloseNormalClosure), "%v", c.end)
		require.EqualValues(t, 1, n.store.of(Partition{"t", 0}).LogEnd())
	})
}

func FuzzProduceFrame(f *testing.F) {
	for _, s := range []string{
		`{"op":"produce","id":1,"topic":"t","acks":"all","timeout_ms":5,"records":[{"value":"\u0041","key":{}}]}`,
		`{"op":"auth","access_token":"x"}`, `{"records":[{}],"records":[{}]}`, `{"op":"produce","id":1e999,"topic":"t"}`, `[`, "{\"a\":\"\xff\"}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		body := append([]byte(nil), b...)
		c := &produceCmd{body: &body}
		x := c.decode(body)
		if (x.err == nil) == (x.cmd == nil) {
			t.Fatalf("an error and a command, or neither: %v %v", x.err, x.cmd)
		}
		if x.id != nil && !json.Valid(x.id) {
			t.Fatalf("the id %q is not JSON", x.id)
		}
	})
}
