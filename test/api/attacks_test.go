package api

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/testkit/nodekit"
)

func TestAttackCSRF(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	b, other := a.browser("admin", nodekit.AdminPassword), a.browser("admin", nodekit.AdminPassword)
	body := object{"name": "csrf.topic"}
	for name, h := range map[string]headers{
		"no token":                nil,
		"an empty token":          {"X-CSRF-Token": ""},
		"a made-up token":         {"X-CSRF-Token": "x"},
		"another session's token": {"X-CSRF-Token": other.csrf},
		"the cookie's own value":  {"X-CSRF-Token": strings.TrimPrefix(b.cookie, "tidewire_session=")},
	} {
		x := wants(t, b.with("POST", "/v1/topics", body, h), 403, "csrf")
		require.Contains(t, string(x.Body), `"outcome":"not-applied"`, name)
	}
	for name, h := range map[string]headers{
		"a page of another site":    {"Origin": "https://evil.example"},
		"of a sibling host":         {"Sec-Fetch-Site": "same-site"},
		"of another site, by fetch": {"Sec-Fetch-Site": "cross-site"},
		"of another port":           {"Origin": "http://127.0.0.1:1"},
		"of no origin":              {"Origin": "null"},
	} {
		h["X-CSRF-Token"] = b.csrf
		wants(t, b.with("POST", "/v1/topics", body, h), 403, "forbidden")
		delete(h, "X-CSRF-Token")
		wants(t, b.with("GET", "/v1/users", nil, h), 403, "forbidden")
		h["Content-Type"] = "application/json"
		x := a.Do(request{Method: "POST", Path: "/v1/auth/login?session=cookie", Header: h,
			Body: object{"username": "admin", "password": nodekit.AdminPassword}})
		wants(t, x, 403, "forbidden")
		require.Empty(t, x.Header.Get("Set-Cookie"), "%s logs nobody in", name)
	}
	// What a form of another site can send is refused by its type already.
	x := b.with("POST", "/v1/topics", `{"name":"csrf.topic"}`, headers{"Content-Type": "text/plain", "X-CSRF-Token": b.csrf})
	wants(t, x, 415, "unsupported-media-type")
	wants(t, a.get("/v1/topics/csrf.topic"), 404, "unknown-topic")
	wants(t, b.with("GET", "/v1/topics", nil, nil), 200, "")
	wants(t, b.with("GET", "/v1/topics", nil, headers{"Sec-Fetch-Site": "none"}), 200, "")
	wants(t, b.with("POST", "/v1/topics", body, headers{"Authorization": "Bearer " + a.admin}), 201, "")
	wants(t, b.with("DELETE", "/v1/topics/csrf.topic", nil, headers{"X-CSRF-Token": b.csrf}), 204, "")
}

func TestAttackCrossSiteWebSocket(t *testing.T) {
	t.Parallel()
	a := ownAPI(t, "--cors-origin", "https://friend.example")
	a.topic("hijack", 1, nil)
	b := a.browser("admin", nodekit.AdminPassword)
	for origin, want := range map[string]int{
		a.URL:                    101,
		"https://evil.example":   403,
		"https://friend.example": 403, // it may use tokens, and nobody's cookie
		"null":                   403,
		"":                       403, // browsers always send it
		a.URL + ".evil.example":  403,
		"http://evil.example@" + strings.TrimPrefix(a.URL, "http://"): 403,
	} {
		h := http.Header{"Cookie": {b.cookie}}
		if origin != "" {
			h.Set("Origin", origin)
		}
		_, status := a.socket("?topics=hijack", h)
		require.Equal(t, want, status, origin)
	}
	_, status := a.socket("?topics=hijack", http.Header{"Origin": {"https://friend.example"}, "Authorization": {"Bearer " + a.admin}})
	require.Equal(t, 101, status)
	_, status = a.socket("?topics=hijack", http.Header{"Origin": {"https://evil.example"}, "Authorization": {"Bearer " + a.admin}})
	require.Equal(t, 403, status)
}

func TestAttackCORS(t *testing.T) {
	t.Parallel()
	preflight := headers{
		"Origin": "https://friend.example", "Access-Control-Request-Method": "POST",
		"Access-Control-Request-Headers": "authorization,content-type,tidewire-key,Tidewire-Header-Trace, x-evil,tidewire-bad\x01name,tidewire-",
	}
	closed := sharedAPI(t)
	for _, method := range []string{"OPTIONS", "GET"} {
		x := closed.raw(method, "/v1/topics", headers{"Origin": "https://friend.example", "Access-Control-Request-Method": "POST"})
		for name := range x.Header {
			require.False(t, strings.HasPrefix(name, "Access-Control-"), "%s without --cors-origin", name)
		}
	}
	a := ownAPI(t, "--cors-origin", "https://friend.example")
	delete(preflight, "Access-Control-Request-Headers")
	preflight["Access-Control-Request-Headers"] = "authorization,content-type,tidewire-key,Tidewire-Header-Trace, x-evil,tidewire-"
	x := a.raw("OPTIONS", "/v1/topics/t/records", preflight)
	require.Equal(t, 204, x.StatusCode)
	require.Equal(t, "https://friend.example", x.Header.Get("Access-Control-Allow-Origin"))
	allowed := strings.Split(strings.ToLower(x.Header.Get("Access-Control-Allow-Headers")), ", ")
	for _, name := range []string{"authorization", "content-type", "if-match", "idempotency-key", "tidewire-key", "tidewire-header-trace"} {
		require.Contains(t, allowed, name)
	}
	require.NotContains(t, allowed, "x-evil")
	require.NotContains(t, allowed, "tidewire-")
	require.NotContains(t, allowed, "cookie")
	require.Empty(t, x.Header.Get("Access-Control-Allow-Credentials"), "other origins have no use of cookies")
	x = a.raw("GET", "/healthz", headers{"Origin": "https://friend.example"})
	require.Contains(t, x.Header.Get("Access-Control-Expose-Headers"), "Tidewire-Next-Offset")
	require.Contains(t, x.Header.Values("Vary"), "Origin")
	for _, origin := range []string{"https://evil.example", "null", "https://friend.example.evil.example"} {
		preflight["Origin"] = origin
		require.Empty(t, a.raw("OPTIONS", "/v1/topics", preflight).Header.Get("Access-Control-Allow-Origin"), origin)
	}
}

func TestAttackTicketReuse(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	a.topic("reuse", 1, nil)
	b := a.browser("admin", nodekit.AdminPassword)
	text, _ := a.apiToken("admin", object{"name": "n"})
	for name, x := range map[string]*answer{
		"access token": a.post("/v1/auth/tickets", nil),
		"cookie":       b.ask("POST", "/v1/auth/tickets", nil),
		"API token":    a.as(text, "POST", "/v1/auth/tickets", nil),
	} {
		ticket := decoded(t, x, 200)["ticket"].(string)
		const racing = 8
		statuses := make(chan int, racing)
		for range racing {
			go func() {
				_, status := a.socket("?topics=reuse&ticket="+ticket, nil)
				statuses <- status
			}()
		}
		opened := 0
		for range racing {
			switch <-statuses {
			case 101:
				opened++
			case 401:
			default:
				t.Error("a used ticket is 401")
			}
		}
		require.Equal(t, 1, opened, name)
	}
	wants(t, b.with("POST", "/v1/auth/tickets", nil, nil), 403, "csrf")
}

func TestAttackRefreshReuse(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	a.user("refresh.thief")
	stolen := a.tokens("refresh.thief", userPassword)
	thief := decoded(t, a.refresh(stolen["refresh_token"]), 200)
	wants(t, a.refresh(stolen["refresh_token"]), 401, "unauthenticated") // its owner's turn
	for _, x := range []object{stolen, thief} {
		wants(t, a.as(x["access_token"].(string), "GET", "/v1/auth/me", nil), 401, "unauthenticated")
		wants(t, a.refresh(x["refresh_token"]), 401, "unauthenticated")
	}
}

func TestAttackKeysInTheTokensHeader(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	p := takeApart(t, a.admin)
	real := func([]byte) []byte { return p.signature }
	for name, header := range map[string]object{
		"jku":                with(p.header, "jku", "https://evil.example/jwks.json"),
		"jwk":                with(p.header, "jwk", object{"kty": "OKP", "crv": "Ed25519", "x": "AAAA"}),
		"x5u":                with(p.header, "x5u", "https://evil.example/cert.pem"),
		"x5c":                with(p.header, "x5c", []string{"AAAA"}),
		"crit":               with(p.header, "crit", []string{"exp"}),
		"kid is a path":      with(p.header, "kid", "../../../../dev/null"),
		"kid is SQL":         with(p.header, "kid", "x' UNION SELECT 'key"),
		"kid is a command":   with(p.header, "kid", "|id"),
		"kid is empty":       with(p.header, "kid", ""),
		"kid is a number":    with(p.header, "kid", 1),
		"alg none":           with(p.header, "alg", "none"),
		"typ of API tokens":  with(p.header, "typ", "tidewire-api+jwt"),
		"typ of a ticket":    with(with(p.header, "typ", "tidewire-ticket+jwt"), "kid", "x"),
		"a header of nulls":  {"alg": nil, "kid": nil, "typ": nil},
		"a header that nest": with(p.header, "kid", object{"a": []any{1}}),
	} {
		token := put(t, header, p.claims, real)
		require.Equal(t, "unauthenticated", wants(t, a.as(token, "GET", "/v1/auth/me", nil), 401, "").Code(), name)
		_, status := a.socket("?ticket="+url.QueryEscape(token), nil)
		require.Equal(t, 401, status, name)
	}
}

func TestAttackHeaderInjectionInNames(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	const evil = "x\r\nSet-Cookie: tidewire_session=evil\r\n\r\n"
	for _, c := range []request{
		{Method: "POST", Path: "/v1/users", Body: object{"username": evil, "password": userPassword}},
		{Method: "POST", Path: "/v1/topics", Body: object{"name": evil}},
		{Method: "GET", Path: "/v1/users/" + url.PathEscape(evil)},
		{Method: "GET", Path: "/v1/topics/" + url.PathEscape(evil)},
		{Method: "POST", Path: "/v1/users/admin/tokens", Body: object{"name": evil}},
		{Method: "GET", Path: "/v1/acls?principal=" + url.QueryEscape(evil)},
		{Method: "POST", Path: "/v1/auth/login", Body: object{"username": evil, "password": "x"}},
	} {
		c.Token = a.admin
		x := a.Do(c)
		require.Empty(t, x.Header.Values("Set-Cookie"), c.Path)
		for name, values := range x.Header {
			require.NotContains(t, strings.Join(values, ""), "\n", name)
		}
	}
	// What a name may hold is escaped where it becomes a header.
	x := a.post("/v1/users", object{"username": "a b/\"ü;", "password": userPassword})
	require.Equal(t, "/v1/users/a%20b%2F%22%C3%BC%3B", x.Header.Get("Location"))
	for _, id := range []string{"a b", "\"", "x\ty", strings.Repeat("x", 200)} {
		x := a.Do(request{Method: "GET", Path: "/healthz", Header: headers{"X-Request-Id": id}})
		require.NotEqual(t, id, x.Header.Get("X-Request-Id"))
	}
}

func TestAttackLogInjection(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	const evil = "eve\x1b[31m\r\nlevel=ERROR msg=FORGED user=root\u2028"
	for range 12 {
		a.as("", "POST", "/v1/auth/login", object{"username": evil, "password": "wrong password"})
	}
	a.raw("GET", "/ui/"+url.PathEscape(evil), nil)
	for _, path := range []string{"/v1/topics/", "/v1/users/", "/nowhere/", "/v1/topics/t/records?ticket="} {
		a.as(a.admin, "GET", path+url.PathEscape(evil), nil)
		a.as("", "GET", path+url.PathEscape(evil), nil)
	}
	a.Do(request{Method: "GET", Path: "/v1/topics", Token: "x", Header: headers{"X-Request-Id": "eve", "Referer": "FORGED", "User-Agent": "FORGED"}})
	log := a.Log.String()
	require.NotContains(t, log, "\x1b")
	require.NotContains(t, log, "\u2028")
	for line := range strings.Lines(log) {
		require.True(t, strings.HasPrefix(line, "time=") || strings.HasPrefix(line, "Tidewire "), "a line of somebody else's: %q", line)
	}
}

// TestAttackSecretsAreNowhereToBeRead uses every secret there is and looks for it in what the
// node writes. The output of tidewire config is looked at by internal/config's tests.
func TestAttackSecretsAreNowhereToBeRead(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	a.topic("secrets", 1, nil)
	const password, wrong = "the password of a test", "a password that is wrong"
	wants(t, a.post("/v1/users", object{"username": "keeper", "password": password}), 201, "")
	login := a.tokens("keeper", password)
	next := decoded(t, a.refresh(login["refresh_token"]), 200)
	b := a.browser("keeper", password)
	text, _ := a.apiToken("keeper", object{"name": "n"})
	ticket := decoded(t, b.ask("POST", "/v1/auth/tickets", nil), 200)["ticket"].(string)
	secrets := []string{
		nodekit.AdminPassword, password, wrong, a.admin, text, ticket, b.csrf, strings.TrimPrefix(b.cookie, "tidewire_session="),
		login["access_token"].(string), login["refresh_token"].(string), next["access_token"].(string), next["refresh_token"].(string),
	}
	var said strings.Builder
	note := func(x *answer) { fmt.Fprintln(&said, x.Header, string(x.Body)) }
	note(a.as("", "POST", "/v1/auth/login", object{"username": "keeper", "password": wrong}))
	note(a.as("", "POST", "/v1/auth/login", object{"username": password, "password": 1, "token": text}))
	note(a.as("", "POST", "/v1/auth/login", `{"username":"keeper","password":"`+wrong))
	for _, s := range secrets[3:] {
		note(a.as(s+"x", "GET", "/v1/auth/me", nil))
		note(a.as("", "GET", "/v1/ws/consume?ticket="+url.QueryEscape(s), nil))
		note(a.as("", "GET", "/v1/topics?ticket="+url.QueryEscape(s), nil))
		note(a.Do(request{Method: "GET", Path: "/v1/auth/me", Header: headers{"Cookie": "tidewire_session=" + s + "x"}}))
		note(a.refresh(s + "x"))
	}
	note(a.refresh(login["refresh_token"]))
	note(b.with("POST", "/v1/topics", object{"name": "x"}, headers{"X-CSRF-Token": text}))
	note(a.get("/metrics"))
	note(a.get("/v1/users/keeper"))
	note(a.get("/v1/users/keeper/tokens"))
	for i, s := range secrets {
		require.NotContains(t, a.Log.String(), s, "secret %d in the log", i)
		if i > 1 { // the first two are not sent where what they are is told back
			require.NotContains(t, said.String(), s, "secret %d in an answer", i)
		}
	}
}

func TestAttackPathTraversal(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for _, path := range []string{
		"/ui/../../../../etc/passwd", "/ui/..%2f..%2f..%2fetc%2fpasswd", "/ui/%2e%2e/%2e%2e/etc/passwd", "/ui/....//....//etc/passwd",
		"/ui/..%5c..%5cetc%5cpasswd", "/ui//etc/passwd", "/ui/./../meta/secret.key", "/docs/../etc/passwd",
		"/v1/topics/..%2f..%2fmeta%2fsecret.key", "/v1/topics/%2e%2e", "/v1/topics/../../meta/secret.key", "/v1/topics/.%2e/config",
		"/v1/users/..%2f..", "/v1/topics/..%00",
	} {
		status, body := a.bytes("GET " + path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + a.admin + "\r\nConnection: close\r\n\r\n")
		require.Contains(t, []int{301, 302, 400, 404, 422}, status, path)
		require.NotContains(t, body, "root:", path)
	}
	for _, name := range []string{"..", ".", "../x", "..\\x", "/etc/passwd", "a/../../b", "a\x00b"} {
		wants(t, a.post("/v1/topics", object{"name": name}), 422, "invalid-argument")
	}
}

// bytes sends a request byte by byte as it is and reads the whole answer.
func (a *api) bytes(raw string) (status int, body string) {
	a.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(a.URL, "http://"))
	require.NoError(a.t, err)
	defer func() { _ = conn.Close() }()
	_, err = conn.Write([]byte(raw))
	require.NoError(a.t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(a.t, err)
	var b strings.Builder
	_, err = bufio.NewReader(res.Body).WriteTo(&b)
	require.NoError(a.t, err)
	return res.StatusCode, b.String()
}
