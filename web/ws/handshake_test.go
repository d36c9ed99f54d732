package ws

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
)

func TestHandshakeFailuresArePlainHTTP(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.topic("t", 1)
		n.topic("secret", 1)
		n.produce("t", 0, "a")
		n.allow(alice, "t")
		n.allow(alice, "nowhere")
		for query, x := range map[string]struct {
			status int
			code   model.Code
		}{
			"topics=secret":         {http.StatusForbidden, model.Forbidden},
			"topics=secret,nowhere": {http.StatusForbidden, model.Forbidden},
			"topics=nowhere":        {http.StatusNotFound, model.UnknownTopic},
			"topics=t&partitions=" + `[{"topic":"t","partition":1}]`:                 {http.StatusNotFound, model.UnknownPartition},
			"topics=t&partitions=" + `[{"topic":"t","partition":0,"next_offset":2}]`: {http.StatusRequestedRangeNotSatisfiable, model.OffsetOutOfRange},
			"topics=t&from=-1":             {http.StatusUnprocessableEntity, model.InvalidArgument},
			"topics=secret&what=1":         {http.StatusUnprocessableEntity, model.InvalidArgument},
			"topics=secret&group=g&what=1": {http.StatusUnprocessableEntity, model.InvalidArgument},
			"topics=t&group=g":             {http.StatusForbidden, model.Forbidden},
			"topics=t&group=.":             {http.StatusUnprocessableEntity, model.InvalidArgument},
		} {
			_, resp, err := n.handshake(dialOptions{user: alice, query: query})
			require.Error(t, err, query)
			require.Equal(t, x.status, resp.StatusCode, query)
			require.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
			var p problemOf
			require.NoError(t, json.NewDecoder(resp.Body).Decode(&p), query)
			require.Equal(t, string(x.code), p.Code, query)
			require.Zero(t, n.handler.Open(), "what is refused leaves nothing behind")
		}
		_, resp, err := n.handshake(dialOptions{token: "garbage"})
		require.Error(t, err)
		require.Equal(t, http.StatusUnauthorized, resp.StatusCode)
	})
}

func TestWhatIsNoWebSocketHandshakeIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		good := map[string]string{
			"Connection": "keep-alive, Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
		}
		token := n.token(root)
		for pointer, change := range map[string][2]string{
			"":                              {"X", "y"},
			"header:Upgrade":                {"Upgrade", "h2c"},
			"header:Sec-WebSocket-Version":  {"Sec-WebSocket-Version", "8"},
			"header:Sec-WebSocket-Key":      {"Sec-WebSocket-Key", "short"},
			"header:Sec-WebSocket-Protocol": {"Sec-WebSocket-Protocol", "mqtt, graphql-ws"},
		} {
			var b strings.Builder
			fmt.Fprintf(&b, "GET /v1/ws/consume HTTP/1.1\r\nHost: node.example\r\nAuthorization: Bearer %s\r\n", token)
			for k, v := range good {
				if k != change[0] {
					fmt.Fprintf(&b, "%s: %s\r\n", k, v)
				}
			}
			fmt.Fprintf(&b, "%s: %s\r\n\r\n", change[0], change[1])
			conn, err := n.dial()
			require.NoError(t, err)
			_, err = conn.Write([]byte(b.String()))
			require.NoError(t, err)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			if pointer == "" {
				require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
				require.Equal(t, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", resp.Header.Get("Sec-WebSocket-Accept"), "the example of RFC 6455")
				require.Equal(t, "req-1", resp.Header.Get("X-Request-Id"))
				require.Empty(t, resp.Header.Get("Sec-WebSocket-Protocol"), "none was offered")
			} else {
				require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode)
				var p problemOf
				require.NoError(t, json.NewDecoder(resp.Body).Decode(&p))
				require.Equal(t, pointer, p.Errors[0].Pointer)
			}
			require.NoError(t, conn.Close())
		}
	})
}

func TestTheSubprotocolIsChosenWhereItIsOffered(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		c := n.connect(dialOptions{protocols: []string{"other", Subprotocol}})
		require.Equal(t, Subprotocol, c.ws.Subprotocol())
		c.send(`{"op":"nope","id":1}`)
		c.refused("1", model.InvalidArgument)
		c = n.connect(dialOptions{})
		c.send(`{"op":"nope","id":1}`)
		c.refused("1", model.InvalidArgument)
	})
}

func TestPagesOfOtherOriginsMayNotOpenSockets(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.origin = "https://friend.example"
		for origin, ok := range map[string]bool{
			"http://node.example": true, "https://NODE.example": true, "https://friend.example": true,
			"https://evil.example": false, "https://node.example.evil.example": false, "http://node.example:8080": false,
			"null": false, "": false, "file://": false,
		} {
			conn, resp, err := n.handshake(dialOptions{header: http.Header{"Origin": {origin}}})
			if ok {
				require.NoError(t, err, origin)
				require.NoError(t, conn.Close())
				continue
			}
			require.Error(t, err, origin)
			require.Equal(t, http.StatusForbidden, resp.StatusCode, origin)
		}
		_, resp, err := n.handshake(dialOptions{header: http.Header{"Origin": {"http://node.example", "https://evil.example"}}})
		require.Error(t, err)
		require.Equal(t, http.StatusForbidden, resp.StatusCode)
	})
}

func TestThereIsALimitOfOpenSockets(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.handler.maxSockets = 2
		first := n.connect(dialOptions{})
		n.connect(dialOptions{})
		_, resp, err := n.handshake(dialOptions{})
		require.Error(t, err)
		require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
		require.NotEmpty(t, resp.Header.Get("Retry-After"))
		require.NoError(t, first.ws.Close())
		advance(time.Second)
		n.connect(dialOptions{})
	})
}
