package api

import (
	"cmp"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/api/route"
	"tidewire/internal/testkit/nodekit"
)

// jwtParts are a token taken apart, with code that shares nothing with the server.
type jwtParts struct {
	header, claims object
	signed         string // header and claims as they were signed
	signature      []byte
}

func takeApart(t testing.TB, token string) jwtParts {
	t.Helper()
	parts := strings.Split(token, ".")
	require.Len(t, parts, 3)
	p := jwtParts{signed: parts[0] + "." + parts[1]}
	for i, into := range []*object{&p.header, &p.claims} {
		b, err := base64.RawURLEncoding.DecodeString(parts[i])
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(b, into))
	}
	var err error
	p.signature, err = base64.RawURLEncoding.DecodeString(parts[2])
	require.NoError(t, err)
	return p
}

// put makes a token of a header, claims and a way to sign.
func put(t testing.TB, header, claims object, sign func(signed []byte) []byte) string {
	t.Helper()
	part := func(v object) string {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		return base64.RawURLEncoding.EncodeToString(b)
	}
	signed := part(header) + "." + part(claims)
	return signed + "." + base64.RawURLEncoding.EncodeToString(sign([]byte(signed)))
}

func with(o object, name string, v any) object {
	o = maps.Clone(o)
	if v == nil {
		delete(o, name)
	} else {
		o[name] = v
	}
	return o
}

// publicKeys are the keys of the JWKS document by their ids.
func (a *api) publicKeys() map[string]ed25519.PublicKey {
	a.t.Helper()
	out := map[string]ed25519.PublicKey{}
	x := decoded(a.t, a.as("", "GET", "/.well-known/jwks.json", nil), 200)
	for _, k := range x["keys"].([]any) {
		key := k.(object)
		require.Equal(a.t, "OKP", key["kty"])
		require.Equal(a.t, "Ed25519", key["crv"])
		b, err := base64.RawURLEncoding.DecodeString(key["x"].(string))
		require.NoError(a.t, err)
		out[key["kid"].(string)] = b
	}
	return out
}

func TestTheJWKSVerifiesATokenWithIndependentCode(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	p := takeApart(t, a.admin)
	require.Equal(t, "EdDSA", p.header["alg"])
	key, ok := a.publicKeys()[p.header["kid"].(string)]
	require.True(t, ok)
	require.True(t, ed25519.Verify(key, []byte(p.signed), p.signature))
	require.Equal(t, "admin", p.claims["sub"])
	for _, required := range []string{"iss", "aud", "exp", "nbf", "iat", "jti"} {
		require.Contains(t, p.claims, required)
	}
}

// forged are tokens that must never pass, made of a good one.
func forged(t testing.TB, a *api) map[string]string {
	t.Helper()
	p := takeApart(t, a.admin)
	key := a.publicKeys()[p.header["kid"].(string)]
	_, other, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	ours := func(b []byte) []byte { return ed25519.Sign(other, b) }
	unsigned := func([]byte) []byte { return nil }
	symmetric := func(b []byte) []byte {
		h := hmac.New(sha256.New, key)
		h.Write(b)
		return h.Sum(nil)
	}
	real := func([]byte) []byte { return p.signature }
	flipped := append([]byte{p.signature[0] ^ 1}, p.signature[1:]...)
	return map[string]string{
		"garbage":                          "garbage",
		"two parts":                        p.signed,
		"alg none":                         put(t, with(p.header, "alg", "none"), p.claims, unsigned),
		"alg None":                         put(t, with(p.header, "alg", "None"), p.claims, unsigned),
		"alg none with the real signature": put(t, with(p.header, "alg", "none"), p.claims, real),
		"HS256 with the public key":        put(t, with(p.header, "alg", "HS256"), p.claims, symmetric),
		"another key under the right kid":  put(t, p.header, p.claims, ours),
		"another key, unknown kid":         put(t, with(p.header, "kid", "another"), p.claims, ours),
		"no kid":                           put(t, with(p.header, "kid", nil), p.claims, ours),
		"a key in the header":              put(t, with(p.header, "jwk", object{"kty": "OKP"}), p.claims, ours),
		"other claims":                     put(t, p.header, with(p.claims, "sub", "root"), real),
		"no exp":                           put(t, p.header, with(p.claims, "exp", nil), ours),
		"no signature":                     put(t, p.header, p.claims, unsigned),
		"a bit of the signature":           p.signed + "." + base64.RawURLEncoding.EncodeToString(flipped),
		"very long":                        strings.Repeat("a", 9000),
	}
}

// dead are tokens that were good once.
func dead(a *api) map[string]string {
	out := map[string]string{}
	ends := map[string]func(path, token string){
		"of a deleted user":  func(path, _ string) { wants(a.t, a.remove(path), 204, "") },
		"of a disabled user": func(path, _ string) { wants(a.t, a.patch(path, object{"disabled": true}), 200, "") },
		"after a password reset": func(path, _ string) {
			wants(a.t, a.post(path+"/set-password", object{"password": "a new password"}), 204, "")
		},
		"after logout": func(_, token string) { wants(a.t, a.as(token, "POST", "/v1/auth/logout", nil), 204, "") },
	}
	for what, end := range ends {
		name := "dead." + strings.ReplaceAll(what, " ", "-")
		path := a.user(name)
		wants(a.t, a.patch(path, object{"admin": true}), 200, "")
		token := a.login(name)
		wants(a.t, a.as(token, "GET", "/v1/users", nil), 200, "")
		end(path, token)
		out[what] = token
	}
	return out
}

func TestNoRouteTakesABadToken(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	bad := forged(t, a)
	maps.Copy(bad, dead(a))
	bad["none"] = ""
	for _, r := range routes() {
		if r.Public {
			continue
		}
		t.Run(r.Method+" "+r.Path, func(t *testing.T) {
			t.Parallel()
			a := a.with(t)
			path := concrete(r.Path)
			if w, ok := rows[r.ID]; ok {
				path = cmp.Or(w.path("a-topic"), path) // some are known once there is the resource
			}
			for what, token := range bad {
				x := a.as(token, r.Method, path, nil)
				require.Equal(t, 401, x.Status, "%s: %s", what, x.Body)
				require.Equal(t, "unauthenticated", x.Code(), what)
			}
			for _, header := range []string{"Basic YWRtaW46YWRtaW4=", "Bearer", "Bearer ", a.admin} {
				x := a.Do(request{Method: r.Method, Path: path, Header: map[string]string{"Authorization": header}})
				require.Equal(t, 401, x.Status, "%q: %s", header, x.Body)
			}
		})
	}
}

func TestPublicRoutesNeedNoTokenAndIgnoreABadOne(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	built(t, func(r *route.Route, w row) {
		if w.access != public {
			return
		}
		if w.prepare != nil {
			w.prepare(a, "public."+r.ID)
		}
		wants(t, w.ask(a, r, "public."+r.ID, ""), w.success, "")
		wants(t, w.ask(a, r, "public."+r.ID, "garbage"), w.success, "")
	})
}

// clock is a wall clock that tests move.
type clock struct {
	mu    sync.Mutex
	ahead time.Duration // guarded by mu
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

func TestAnExpiredTokenIsToldAsSuchOnEveryRoute(t *testing.T) {
	t.Parallel()
	c := &clock{}
	a := newAPI(t, nodekit.StartWith(t, nodekit.Options{Now: c.now}), "")
	path := a.topic("t", 1, nil)
	waiting := make(chan *answer, 1)
	go func() {
		waiting <- a.get(path + "/partitions/0/records?offset=latest&wait_ms=60000")
	}()
	wants(t, a.get(path), 200, "")
	c.advance(16 * time.Minute)
	for _, r := range routes() {
		if r.Public {
			continue
		}
		x := wants(t, a.as(a.admin, r.Method, concrete(r.Path), nil), 401, "token-expired")
		require.Contains(t, x.Header.Get("WWW-Authenticate"), `error="invalid_token"`)
	}
	wants(t, <-waiting, 401, "token-expired") // whether it had begun to wait or not
}

// refusals are the rules that a user has on a resource, and whether they let it pass.
var rulings = []struct {
	user   string
	passes bool
	rules  func(operation, resource, name string) []rule
}{
	{"nothing", false, func(string, string, string) []rule { return nil }},
	{"right", true, func(op, res, name string) []rule { return []rule{{"allow", "literal", op, res, name}} }},
	{"all", true, func(_, res, name string) []rule { return []rule{{"allow", "literal", "all", res, name}} }},
	{"prefix", true, func(op, res, name string) []rule { return []rule{{"allow", "prefixed", op, res, name[:len(name)-2]}} }},
	{"denied", false, func(op, res, name string) []rule {
		return []rule{{"allow", "literal", op, res, name}, {"deny", "literal", op, res, name}}
	}},
	{"denied-prefix", false, func(op, res, name string) []rule {
		return []rule{{"allow", "literal", op, res, name}, {"deny", "prefixed", op, res, name[:3]}}
	}},
	{"another", false, func(op, res, name string) []rule { return []rule{{"allow", "literal", op, res, name + "x"}} }},
	{"other-op", false, func(_, res, name string) []rule { return []rule{{"allow", "literal", "cluster-action", res, name}} }},
}

func TestRulesDecideWhoMayUseARoute(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for _, ruling := range rulings {
		user := "acl." + ruling.user
		a.user(user)
		token := a.login(user)
		t.Run(ruling.user, func(t *testing.T) {
			t.Parallel()
			a := a.with(t)
			built(t, func(r *route.Route, w row) {
				if w.access == byRule {
					judge(t, a, r, &w, ruling.passes, user, token, ruling.rules)
				}
			})
		})
	}
}

func judge(t *testing.T, a *api, r *route.Route, w *row, passes bool, user, token string, rules func(op, res, name string) []rule) {
	name := user + "." + r.ID
	resource, of := "topic", name
	if w.cluster {
		resource, of = "cluster", "kafka-cluster"
	}
	if w.group {
		resource = "group"
	}
	if w.prepare != nil {
		w.prepare(a, name)
	}
	for _, rl := range rules(w.operation, resource, of) {
		a.rule(user, rl)
	}
	if w.reads {
		a.rule(user, rule{"allow", "literal", "read", "topic", name})
	}
	x := w.ask(a, r, name, token)
	if passes {
		require.Equal(t, w.success, x.Status, "%s: %s", r.ID, x.Body)
		return
	}
	require.Equal(t, 403, x.Status, "%s: %s", r.ID, x.Body)
	require.Equal(t, "forbidden", x.Code())
	require.Contains(t, string(x.Body), `User:`+user, "403 names the principal")
	require.Contains(t, string(x.Body), `\"`+w.operation+`\"`, "403 names the operation")
	if w.missing != "" { // and does not tell whether the thing is there
		q := request{Method: r.Method, Path: w.missing, Token: token}
		if w.body != nil {
			q.Body = w.body(a, "x")
		}
		wants(t, a.Do(q), 403, "forbidden")
	}
}

func TestRoutesForAdministratorsAreForThemAlone(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	const user = "not-an-admin"
	a.user(user)
	for _, resource := range []string{"topic", "group", "transactional-id", "cluster"} {
		name := "*"
		if resource == "cluster" {
			name = "kafka-cluster"
		}
		a.rule(user, rule{"allow", "literal", "all", resource, name})
	}
	token := a.login(user)
	built(t, func(r *route.Route, w row) {
		switch w.access {
		case anyUser:
			if r.ID != "logout" {
				wants(t, w.ask(a, r, "x", token), w.success, "")
			}
		case admins:
			x := wants(t, w.ask(a, r, "admin", token), 403, "forbidden")
			require.Contains(t, string(x.Body), user)
			if w.missing != "" {
				q := request{Method: r.Method, Path: w.missing, Token: token}
				if w.body != nil {
					q.Body = w.body(a, "x")
				}
				wants(t, a.Do(q), 403, "forbidden")
			}
		}
	})
}

func TestListsLeaveOutWhatMayNotBeDescribed(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	for _, name := range []string{"seen.1", "seen.2", "seen.3", "unseen.1"} {
		a.topic(name, 1, nil)
	}
	a.user("looker")
	token := a.login("looker")
	page := decoded(t, a.as(token, "GET", "/v1/topics", nil), 200)
	require.Empty(t, page["items"])
	require.Equal(t, json.Number("0"), page["total"])
	a.rule("looker", rule{"allow", "prefixed", "read", "topic", "seen."}) // read implies describe
	a.rule("looker", rule{"deny", "literal", "describe", "topic", "seen.2"})
	page = decoded(t, a.as(token, "GET", "/v1/topics?limit=1", nil), 200)
	require.Equal(t, json.Number("2"), page["total"])
	require.Equal(t, "seen.1", page["items"].([]any)[0].(object)["name"])
	require.Equal(t, []any{"read"}, page["items"].([]any)[0].(object)["actions"])
	page = decoded(t, a.as(token, "GET", "/v1/topics?limit=1&page_token="+page["next_page_token"].(string), nil), 200)
	require.Equal(t, "seen.3", page["items"].([]any)[0].(object)["name"])
	require.Nil(t, page["next_page_token"])
	require.Equal(t, json.Number("0"), decoded(t, a.as(token, "GET", "/v1/topics?prefix=unseen", nil), 200)["total"])
}
