package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tidewire/internal/client"
	"tidewire/internal/client/clienttest"
	"tidewire/internal/model"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newClient(t *testing.T, s *clienttest.Server) *client.Client {
	t.Helper()
	base, err := client.ParseServer(s.URL)
	require.NoError(t, err)
	c := client.New(base, client.StaticToken(clienttest.APIToken))
	t.Cleanup(c.Close)
	return c
}

func TestServerAddresses(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"http://h:8080": "http://h:8080", "h:8080": "http://h:8080", "https://h/": "https://h", "http://h/prefix/": "http://h/prefix",
	} {
		u, err := client.ParseServer(in)
		require.NoError(t, err, in)
		assert.Equal(t, want, u.String())
	}
	for _, in := range []string{"", "ftp://h", "http://", "http://h?x=1", "http://u:p@h", "http://[::1", "unix:///x"} {
		_, err := client.ParseServer(in)
		assert.Error(t, err, in)
	}
}

func TestPathsArePercentEncoded(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "/v1/groups/a%2Fb%20c", client.Path("v1", "groups", "a/b c"))
	assert.Equal(t, "/a+b/%25/%3F%23", client.Path("a+b", "%", "?#"))
	s := clienttest.New(t)
	s.Reply("GET", "/v1/groups/a%2Fb%20c", 200, `{}`)
	require.NoError(t, newClient(t, s).Call(context.Background(), client.Request{Method: "GET", Path: client.Path("v1", "groups", "a/b c")}, nil))
}

func TestProblemsAreReadWhole(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/proxy" {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, "<html>bad gateway</html>")
			return
		}
		w.Header().Set("Retry-After", "3")
		clienttest.Fail(w, model.StorageFull, "the disk is full", model.FieldError{Pointer: "/x", Detail: "too much"})
	}))
	defer srv.Close()
	base, _ := client.ParseServer(srv.URL)
	c := client.New(base, client.StaticToken(""))
	defer c.Close()
	var p *client.Problem
	require.ErrorAs(t, c.Call(context.Background(), client.Request{Method: "POST", Path: "/x", Body: struct{}{}}, nil), &p)
	assert.Equal(t, model.StorageFull, p.Code)
	assert.Equal(t, 503, p.Status)
	assert.Equal(t, 3*time.Second, p.RetryAfter)
	assert.True(t, p.Retryable)
	assert.Equal(t, "storage-full (503): the disk is full\n  /x: too much\n  outcome: not-applied\n  request: req-1", p.Error())
	require.ErrorAs(t, c.Call(context.Background(), client.Request{Method: "POST", Path: "/proxy", Body: struct{}{}}, nil), &p)
	assert.Equal(t, "HTTP 502: the answer is not from a Tidewire server\n  outcome: unknown", p.Error())
	require.ErrorAs(t, c.Call(context.Background(), client.Request{Method: "GET", Path: "/proxy"}, nil), &p)
	assert.Equal(t, model.NoOutcome, p.Outcome)
}

func TestAListIsReadPageByPage(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		assert.Equal(t, "p", q.Get("prefix"))
		switch q.Get("page_token") {
		case "":
			_, _ = io.WriteString(w, `{"items":[{"n":1.00},{"n":2}],"next_page_token":"t~1","total":3}`)
		case "t~1":
			_, _ = io.WriteString(w, `{"items":[{"n":30000000000000000001}],"next_page_token":null,"total":3}`)
		}
	}))
	defer srv.Close()
	base, _ := client.ParseServer(srv.URL)
	c := client.New(base, client.StaticToken(""))
	defer c.Close()
	l, err := c.List(context.Background(), "/v1/x", url.Values{"prefix": {"p"}})
	require.NoError(t, err)
	assert.Equal(t, int64(3), l.Total)
	got, _ := json.Marshal(l.Items)
	assert.Equal(t, `[{"n":1.00},{"n":2},{"n":30000000000000000001}]`, string(got), "items come as they were sent")
}

func TestAnUnreachableServerIsTold(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	base, _ := client.ParseServer(srv.URL)
	c := client.New(base, client.StaticToken(""))
	var e *client.TransportError
	require.ErrorAs(t, c.Call(context.Background(), client.Request{Method: "GET", Path: "/"}, nil), &e)
	assert.True(t, e.NotSent)
}

// clock is a clock that tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.now }

func (c *clock) Add(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.now = c.now.Add(d) }

func logIn(t *testing.T, s *clienttest.Server, store *client.Store, c *clock) client.Login {
	t.Helper()
	base, err := client.ParseServer(s.URL)
	require.NoError(t, err)
	login, err := client.LogIn(context.Background(), base, "alice", "secret", c.Now())
	require.NoError(t, err)
	save(t, store, login)
	return login
}

func save(t *testing.T, store *client.Store, l client.Login) {
	t.Helper()
	_, err := store.Save(context.Background(), client.Choice{}, l)
	require.NoError(t, err)
}

func sessionClient(t *testing.T, s *clienttest.Server, store *client.Store, c *clock) *client.Client {
	t.Helper()
	login, err := store.Find(client.Choice{})
	require.NoError(t, err)
	session, err := client.NewSession(store, *login, c.Now)
	require.NoError(t, err)
	base, _ := client.ParseServer(s.URL)
	cl := client.New(base, session)
	t.Cleanup(cl.Close)
	return cl
}

func TestAStoredLoginIsForItsOwnerOnly(t *testing.T) {
	t.Parallel()
	s, k := clienttest.New(t), &clock{now: time.Now()}
	dir := filepath.Join(t.TempDir(), "conf")
	store := client.NewStore(dir)
	_, err := store.Find(client.Choice{})
	require.ErrorIs(t, err, client.ErrNoContext)
	logIn(t, s, store, k)
	st, err := os.Stat(filepath.Join(dir, "logins.json"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), st.Mode().Perm())
	st, err = os.Stat(dir)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), st.Mode().Perm())
	login, err := store.Find(client.Choice{Server: s.URL})
	require.NoError(t, err)
	assert.Equal(t, "alice", login.Username)
	_, err = store.Find(client.Choice{Server: "http://elsewhere"})
	require.ErrorIs(t, err, client.ErrNoContext)
	left, err := filepath.Glob(filepath.Join(dir, "*.tmp"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestLogInWithAWrongPasswordStoresNothing(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	base, _ := client.ParseServer(s.URL)
	_, err := client.LogIn(context.Background(), base, "alice", "wrong", time.Now())
	var p *client.Problem
	require.ErrorAs(t, err, &p)
	assert.Equal(t, model.BadCredentials, p.Code)
}

func TestTheAccessTokenIsRenewedBeforeItEnds(t *testing.T) {
	t.Parallel()
	s, k := clienttest.New(t), &clock{now: time.Now()}
	s.Reply("GET", "/v1/x", 200, `{}`)
	store := client.NewStore(t.TempDir())
	logIn(t, s, store, k)
	c := sessionClient(t, s, store, k)
	get := func() error { return c.Call(context.Background(), client.Request{Method: "GET", Path: "/v1/x"}, nil) }
	require.NoError(t, get())
	k.Add(869 * time.Second)
	require.NoError(t, get())
	issued, _ := s.Issued()
	assert.Equal(t, 1, issued, "31 s are left")
	k.Add(2 * time.Second)
	require.NoError(t, get())
	issued, reused := s.Issued()
	assert.Equal(t, 2, issued)
	assert.Zero(t, reused)
	stored, err := store.Find(client.Choice{})
	require.NoError(t, err)
	assert.Equal(t, "refresh-2", stored.RefreshToken)
}

func TestARefusedTokenIsRenewedOnceAndTheCallRepeated(t *testing.T) {
	t.Parallel()
	s, k := clienttest.New(t), &clock{now: time.Now()}
	s.Reply("POST", "/v1/x", 201, `{"ok":true}`)
	store := client.NewStore(t.TempDir())
	logIn(t, s, store, k)
	c := sessionClient(t, s, store, k)
	s.EndSessions()
	var out struct{ OK bool }
	require.NoError(t, c.Call(context.Background(), client.Request{Method: "POST", Path: "/v1/x", Body: map[string]int{"a": 1}}, &out))
	assert.True(t, out.OK)
	var bodies []string
	for _, call := range s.Calls() {
		if call.Path == "/v1/x" {
			bodies = append(bodies, call.Body)
		}
	}
	assert.Equal(t, []string{`{"a":1}`, `{"a":1}`}, bodies)
}

func TestProcessesThatShareALoginRefreshOnce(t *testing.T) {
	t.Parallel()
	s, k := clienttest.New(t), &clock{now: time.Now()}
	s.Reply("GET", "/v1/x", 200, `{}`)
	dir := t.TempDir()
	logIn(t, s, client.NewStore(dir), k)
	// Each has a store of its own, as another process would.
	var clients []*client.Client
	for range 8 {
		clients = append(clients, sessionClient(t, s, client.NewStore(dir), k))
	}
	for round := 1; round <= 5; round++ {
		k.Add(880 * time.Second)
		var wg sync.WaitGroup
		errs := make([]error, len(clients))
		for i, c := range clients {
			wg.Go(func() { errs[i] = c.Call(context.Background(), client.Request{Method: "GET", Path: "/v1/x"}, nil) })
		}
		wg.Wait()
		require.NoError(t, errors.Join(errs...))
		issued, reused := s.Issued()
		assert.Equal(t, 1+round, issued)
		assert.Zero(t, reused, "no refresh token was used twice")
	}
}

func TestALoginThatEndedSaysHowToGoOn(t *testing.T) {
	t.Parallel()
	s, k := clienttest.New(t), &clock{now: time.Now()}
	store := client.NewStore(t.TempDir())
	login := logIn(t, s, store, k)
	login.RefreshToken = "spent"
	save(t, store, login)
	c := sessionClient(t, s, store, k)
	k.Add(time.Hour)
	err := c.Call(context.Background(), client.Request{Method: "GET", Path: "/v1/x"}, nil)
	require.ErrorContains(t, err, "tidewire login "+s.URL)
	var p *client.Problem
	require.ErrorAs(t, err, &p)
}

func TestTheStoresLockEndsWithTheContext(t *testing.T) {
	t.Parallel()
	s, k := clienttest.New(t), &clock{now: time.Now()}
	dir := t.TempDir()
	login := logIn(t, s, client.NewStore(dir), k)
	release, locked := make(chan struct{}), make(chan struct{})
	blocked := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		blocked <- client.HoldLock(context.Background(), client.NewStore(dir), func() { close(locked); <-release })
	})
	<-locked
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := client.NewStore(dir).Save(ctx, client.Choice{}, login)
	require.ErrorIs(t, err, context.Canceled)
	close(release)
	wg.Wait()
	require.NoError(t, <-blocked)
	save(t, client.NewStore(dir), login)
}

func TestWebSocketSendsLinesAndPrintsFrames(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	c := newClient(t, s)
	var out bytes.Buffer
	emit := func(f []byte) error { out.Write(f); out.WriteByte('\n'); return nil }
	in := "{\"op\":\"a\"}\n\n {\"op\":\"b\"} \n{\"op\":\"c\"}"
	require.NoError(t, c.WebSocket(context.Background(), "/v1/ws/consume?x=1", strings.NewReader(in), client.WSOptions{Wait: -1, Count: 3}, emit))
	assert.Equal(t, "{\"op\":\"a\"}\n{\"op\":\"b\"}\n{\"op\":\"c\"}\n", out.String())
	assert.Equal(t, "x=1", s.Calls()[0].Query)
}

func TestWebSocketEnds(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	c := newClient(t, s)
	run := func(in string, o client.WSOptions) (int, error) {
		n := 0
		err := c.WebSocket(context.Background(), "/v1/ws/consume", strings.NewReader(in), o, func([]byte) error { n++; return nil })
		return n, err
	}
	two := `{"op":"records","records":[1,2]}` + "\n"
	n, err := run(strings.Repeat(two, 5), client.WSOptions{Wait: -1, Records: 5})
	require.NoError(t, err)
	assert.Equal(t, 3, n, "the frame that reaches the number of records is the last")
	n, err = run(two, client.WSOptions{Wait: 200 * time.Millisecond})
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	_, err = run(two, client.WSOptions{Wait: time.Millisecond, Count: 9})
	require.ErrorIs(t, err, client.ErrWSIncomplete)
	_, err = run(`{"op":"end"}`, client.WSOptions{Wait: -1})
	require.ErrorContains(t, err, "4401 authentication ended")
	emitErr := errors.New("no room")
	err = c.WebSocket(context.Background(), "/v1/ws/consume", strings.NewReader(two), client.WSOptions{Wait: -1}, func([]byte) error { return emitErr })
	require.ErrorIs(t, err, emitErr)
	err = c.WebSocket(context.Background(), "/v1/ws/other", strings.NewReader(two), client.WSOptions{}, nil)
	var p *client.Problem
	require.ErrorAs(t, err, &p)
	assert.Equal(t, 404, p.Status)
}

func TestAnInterruptEndsAWebSocketThatWaitsForInput(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	c := newClient(t, s)
	r, w := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	var wg sync.WaitGroup
	seen := make(chan struct{})
	wg.Go(func() {
		done <- c.WebSocket(ctx, "/v1/ws/consume", r, client.WSOptions{Wait: -1}, func([]byte) error { close(seen); return nil })
	})
	_, _ = io.WriteString(w, "{}\n")
	<-seen
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	_ = w.Close()
	wg.Wait()
}
