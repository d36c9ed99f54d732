package api

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"context"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"tidewire/api/rest"
	"tidewire/api/route"
	"tidewire/auth"
	"tidewire/internal/model"
	"tidewire/internal/testkit/nodekit"
	"tidewire/web"
)

func TestWebSocketHandshakes(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	a.topic("ws.topic", 1, nil)
	nobody := a.login2("ws.nobody")
	reader := a.login2("ws.reader")
	a.rule("ws.reader", rule{"allow", "literal", "read", "topic", "ws.topic"})
	for name, c := range map[string]struct {
		token, query string
		status       int
		code         string
	}{
		"no rule":             {nobody, "?topics=ws.topic", 403, "forbidden"},
		"no rule, no topic":   {nobody, "?topics=ws.none", 403, "forbidden"},
		"unknown topic":       {a.admin, "?topics=ws.none", 404, "unknown-topic"},
		"right rule":          {reader, "?topics=ws.topic", 101, ""},
		"administrator":       {a.admin, "?topics=ws.topic", 101, ""},
		"an unknown field":    {a.admin, "?topics=ws.topic&x=1", 422, "invalid-argument"},
		"without a token":     {"", "?topics=ws.topic", 401, "unauthenticated"},
		"with a broken token": {"garbage", "?topics=ws.topic", 401, "unauthenticated"},
	} {
		h := http.Header{}
		if c.token != "" {
			h.Set("Authorization", "Bearer "+c.token)
		}
		conn, res, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(a.URL, "http")+"/v1/ws/consume"+c.query, h)
		require.NotNil(t, res, name)
		require.Equal(t, c.status, res.StatusCode, name)
		if c.status == 101 {
			require.NoError(t, err)
			require.NoError(t, conn.Close())
			continue
		}
		body := make([]byte, 4096)
		n, _ := res.Body.Read(body)
		x := &nodekit.Answer{Status: res.StatusCode, Header: res.Header, Body: body[:n]}
		require.Equal(t, c.code, x.Code(), "%s: %s", name, x.Body)
	}
}

// notReady is a process that does not serve.
type notReady struct{}

func (notReady) Ready() []string { return []string{"the node is starting or stopping", "and more"} }
func (notReady) States(context.Context, []model.BrokerID) map[model.BrokerID]rest.State {
	return nil
}

func TestANodeThatIsNotReadyTellsWhy(t *testing.T) {
	t.Parallel()
	s, err := web.New(web.Config{
		Gate: route.New(route.Config{Logger: slog.New(slog.DiscardHandler)}), Streams: panicking{},
		Metrics: web.NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
		Doors: []web.Door{rest.New(rest.Config{Auth: &auth.Auth{}, Process: notReady{}})},
	})
	require.NoError(t, err)
	get := func(path string) *answer {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
		return &answer{Status: w.Code, Header: w.Header(), Body: w.Body.Bytes()}
	}
	x := get("/readyz")
	checkProblem(t, request{Method: "GET", Path: "/readyz"}, x, "")
	p := decoded(t, x, 503)
	require.Equal(t, false, p["ready"])
	require.Equal(t, []any{"the node is starting or stopping", "and more"}, p["reasons"])
	wants(t, get("/healthz"), 200, "")
}

// panicking is a door whose handlers panic.
type panicking struct{}

func (panicking) Routes() []*route.Route {
	return []*route.Route{
		{Method: "POST", Path: "/v1/panic", ID: "panic", Public: true, Handle: func(*route.Call) error { panic("secret") }},
		{Method: "GET", Path: "/v1/late", ID: "late", Public: true, Handle: func(c *route.Call) error {
			c.Header("Content-Length", "1")
			panic(http.ErrBodyNotAllowed)
		}},
	}
}

func (panicking) Shutdown(context.Context) error { return nil }

func TestAPanicIsAProblem(t *testing.T) {
	t.Parallel()
	log := &nodekit.Log{}
	s, err := web.New(web.Config{
		Gate: route.New(route.Config{}), Streams: panicking{}, Metrics: web.NewMetrics(prometheus.NewRegistry()),
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	require.NoError(t, err)
	for _, q := range []request{{Method: "POST", Path: "/v1/panic"}, {Method: "GET", Path: "/v1/late"}} {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), q.Method, q.Path, nil))
		x := &nodekit.Answer{Status: w.Code, Header: w.Header(), Body: w.Body.Bytes()}
		checkProblem(t, q, x, "")
		wants(t, x, 500, "internal")
		require.NotContains(t, string(x.Body), "secret")
		if q.Method == "POST" {
			require.Contains(t, string(x.Body), `"outcome":"unknown"`)
		}
		require.Contains(t, log.String(), x.Header.Get("X-Request-Id"))
	}
	require.Contains(t, log.String(), "secret")
}
