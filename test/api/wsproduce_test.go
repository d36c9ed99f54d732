package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"tidewire/internal/testkit/nodekit"
)

// TestAProducingSocketOpensAndStores checks the handshake of a producing socket, and that
// each of its frames is a request with rights of its own.
func TestAProducingSocketOpensAndStores(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.topic("ws.produce", 1, nil)
	nobody := a.login2("ws.produce.nobody")
	writer := a.login2("ws.produce.writer")
	a.rule("ws.produce.writer", rule{"allow", "literal", "write", "topic", "ws.produce"})
	dial := func(token, query string) (*websocket.Conn, *http.Response) {
		h := http.Header{}
		if token != "" {
			h.Set("Authorization", "Bearer "+token)
		}
		conn, res, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(a.URL, "http")+"/v1/ws/produce"+query, h)
		require.NotNil(t, res)
		if err == nil {
			t.Cleanup(func() { _ = conn.Close() })
		}
		return conn, res
	}
	for name, c := range map[string]struct {
		token, query string
		status       int
		code         string
	}{
		"no token":     {"", "", 401, "unauthenticated"},
		"broken token": {"garbage", "", 401, "unauthenticated"},
		"a query":      {a.admin, "?topic=ws.produce", 422, "invalid-argument"},
	} {
		_, res := dial(c.token, c.query)
		require.Equal(t, c.status, res.StatusCode, name)
		body := make([]byte, 4096)
		n, _ := res.Body.Read(body)
		require.Equal(t, c.code, (&nodekit.Answer{Body: body[:n]}).Code(), name)
	}
	for token, want := range map[string]string{nobody: "error", writer: "produced", a.admin: "produced"} {
		conn, res := dial(token, "")
		require.Equal(t, 101, res.StatusCode)
		require.NoError(t, conn.WriteMessage(websocket.TextMessage, []byte(`{"op":"produce","id":"x","topic":"ws.produce","records":[{"value":1}]}`)))
		var f struct {
			Op      string `json:"op"`
			Problem object `json:"problem"`
		}
		require.NoError(t, conn.ReadJSON(&f))
		require.Equal(t, want, f.Op)
		if want == "error" {
			require.Equal(t, "forbidden", f.Problem["code"])
			require.Equal(t, "not-applied", f.Problem["outcome"])
		}
	}
	require.EqualValues(t, 2, a.logEnd(path, 0))
	x := a.get("/v1/ws/produce") // no upgrade
	wants(t, x, 422, "invalid-argument")
}
