package auth

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// forge is a token under construction: header and claims as they will be encoded.
type forge struct {
	header map[string]any
	claims map[string]any
	method jwt.SigningMethod
	key    any
}

// forger returns a forge of a good token of alice, and the key that signs it.
func (n *node) forger(t testing.TB) func() *forge {
	t.Helper()
	g := n.login(t, "alice")
	p, err := n.Tokens.Verify(context.Background(), g.AccessToken)
	require.NoError(t, err)
	k, private, err := n.Service.signingKey(context.Background())
	require.NoError(t, err)
	user := n.cluster.Image().User("alice")
	return func() *forge {
		now := n.clock.now().Unix()
		return &forge{
			header: map[string]any{"alg": "EdDSA", "typ": "JWT", "kid": k.KID},
			claims: map[string]any{
				"iss": testClusterID, "aud": "tidewire", "sub": "alice", "iat": now, "nbf": now, "exp": now + 900,
				"jti": "t1", "sid": p.SessionID, "cep": user.CredentialsEpoch,
			},
			method: jwt.SigningMethodEdDSA, key: private,
		}
	}
}

func (f *forge) sign(t testing.TB) string {
	t.Helper()
	part := func(v any) string {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		return base64.RawURLEncoding.EncodeToString(b)
	}
	text := part(f.header) + "." + part(f.claims)
	sig, err := f.method.Sign(text, f.key)
	require.NoError(t, err)
	return text + "." + base64.RawURLEncoding.EncodeToString(sig)
}

func TestBadTokensAreRefused(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	good := n.forger(t)
	_, strange, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	kid := good().header["kid"].(string)
	public := n.cluster.Image().SigningKey(kid).PublicKey
	now := n.clock.now().Unix()

	require.Equal(t, "ok", n.verify(good().sign(t)), "the token that the rows spoil")
	rows := map[string]func(f *forge){
		"alg none": func(f *forge) {
			f.header["alg"], f.method, f.key = "none", jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType
		},
		"alg None":                   func(f *forge) { f.header["alg"] = "None" },
		"alg missing":                func(f *forge) { delete(f.header, "alg") },
		"alg a number":               func(f *forge) { f.header["alg"] = 1 },
		"HS256 under the public key": func(f *forge) { f.header["alg"], f.method, f.key = "HS256", jwt.SigningMethodHS256, public },
		"another key's signature":    func(f *forge) { f.key = strange },
		"unknown kid":                func(f *forge) { f.header["kid"], f.key = "nobody", strange },
		"no kid":                     func(f *forge) { delete(f.header, "kid") },
		"empty kid":                  func(f *forge) { f.header["kid"] = "" },
		"kid a number":               func(f *forge) { f.header["kid"] = 7 },
		"jku":                        func(f *forge) { f.header["jku"] = "https://evil.example/jwks" },
		"jwk": func(f *forge) {
			f.header["jwk"] = map[string]any{"kty": "OKP", "crv": "Ed25519", "x": base64.RawURLEncoding.EncodeToString(strange.Public().(ed25519.PublicKey))}
			f.key = strange
		},
		"x5c":           func(f *forge) { f.header["x5c"] = []string{"MII"} },
		"crit":          func(f *forge) { f.header["crit"] = []string{"b64"}; f.header["b64"] = false },
		"wrong aud":     func(f *forge) { f.claims["aud"] = "another" },
		"no aud":        func(f *forge) { delete(f.claims, "aud") },
		"wrong iss":     func(f *forge) { f.claims["iss"] = "another" },
		"no iss":        func(f *forge) { delete(f.claims, "iss") },
		"no exp":        func(f *forge) { delete(f.claims, "exp") },
		"exp a word":    func(f *forge) { f.claims["exp"] = "never" },
		"future nbf":    func(f *forge) { f.claims["nbf"] = now + 60 },
		"no nbf":        func(f *forge) { delete(f.claims, "nbf") },
		"no iat":        func(f *forge) { delete(f.claims, "iat") },
		"no sub":        func(f *forge) { delete(f.claims, "sub") },
		"unknown sub":   func(f *forge) { f.claims["sub"] = "nobody" },
		"another's sub": func(f *forge) { f.claims["sub"] = "root" },
		"another's sub and epoch": func(f *forge) {
			f.claims["sub"], f.claims["cep"] = "root", n.cluster.Image().User("root").CredentialsEpoch
		},
		"too long, but signed":  func(f *forge) { f.claims["pad"] = strings.Repeat("x", MaxTokenBytes) },
		"no jti":                func(f *forge) { delete(f.claims, "jti") },
		"no sid":                func(f *forge) { delete(f.claims, "sid") },
		"unknown sid":           func(f *forge) { f.claims["sid"] = "nobody" },
		"no cep":                func(f *forge) { delete(f.claims, "cep") },
		"older cep":             func(f *forge) { f.claims["cep"] = 1 },
		"negative cep":          func(f *forge) { f.claims["cep"] = -1 },
		"expired and wrong aud": func(f *forge) { f.claims["exp"], f.claims["aud"] = now-1, "another" },
		"expired by another":    func(f *forge) { f.claims["exp"], f.key = now-1, strange },
	}
	for name, spoil := range rows {
		f := good()
		spoil(f)
		require.Equal(t, string(model.Unauthenticated), n.verify(f.sign(t)), name)
	}
}

func TestGarbageIsRefusedUnread(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	good := n.forger(t)().sign(t)
	parts := strings.Split(good, ".")
	before := n.cluster.barriers.Load()
	for name, token := range map[string]string{
		"empty":            "",
		"a word":           "garbage",
		"dots":             "..",
		"two parts":        parts[0] + "." + parts[1],
		"four parts":       good + ".x",
		"no signature":     parts[0] + "." + parts[1] + ".",
		"changed claims":   parts[0] + "." + parts[1][1:] + "." + parts[2],
		"padded":           good + "==",
		"white space":      good + " ",
		"not base64":       parts[0] + ".!!." + parts[2],
		"not json":         base64.RawURLEncoding.EncodeToString([]byte("{")) + "." + parts[1] + "." + parts[2],
		"header an array":  base64.RawURLEncoding.EncodeToString([]byte("[]")) + "." + parts[1] + "." + parts[2],
		"too long":         good + strings.Repeat("A", MaxTokenBytes),
		"invalid UTF-8":    "\xff\xfe",
		"with Bearer":      "Bearer " + good,
		"a NUL in the end": good + "\x00",
	} {
		require.Equal(t, string(model.Unauthenticated), n.verify(token), name)
	}
	require.Equal(t, before, n.cluster.barriers.Load(), "garbage must not cost the quorum a round")
}

func TestATokenLivesUntilItsExpiryAndIsThenExpired(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	g := n.login(t, "alice")
	n.clock.at.Store(g.ExpiresAt.Add(-1).UnixNano())
	require.Equal(t, "ok", n.verify(g.AccessToken))
	n.clock.at.Store(g.ExpiresAt.UnixNano())
	require.Equal(t, string(model.TokenExpired), n.verify(g.AccessToken), "remembered")
	require.Equal(t, string(model.TokenExpired), n.verify(g.AccessToken), "read again")
	require.Zero(t, n.Tokens.cache.len())
}

func TestATokenIsNotGoodBeforeItsTimeWhenTheClockGoesBack(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	g := n.login(t, "alice")
	require.Equal(t, "ok", n.verify(g.AccessToken))
	n.clock.advance(-20 * time.Second)
	require.Equal(t, "ok", n.verify(g.AccessToken), "a node may be a little behind the one that issued it")
	n.clock.advance(-time.Minute)
	require.Equal(t, string(model.Unauthenticated), n.verify(g.AccessToken))
}

func TestVerifyTellsWhoItIs(t *testing.T) {
	t.Parallel()
	n := withUsers(t)
	g := n.login(t, "root")
	p, err := n.Tokens.Verify(t.Context(), g.AccessToken)
	require.NoError(t, err)
	require.Equal(t, "root", p.Name)
	require.True(t, p.Admin)
	require.Equal(t, "User:root", p.ACLName())
	require.NotEmpty(t, p.TokenID)
	require.NotNil(t, n.cluster.Image().Session(p.SessionID))
	require.True(t, p.ExpiresAt.Equal(g.ExpiresAt))
	require.WithinDuration(t, n.clock.now(), p.IssuedAt, time.Second)
	require.True(t, p.VerifyBy.Equal(p.ExpiresAt))
	require.False(t, p.Scoped())
}

func TestTheLongestNameFitsAToken(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("<", model.MaxName) // six bytes each in JSON
	n := withUsers(t, name)
	require.Equal(t, "ok", n.verify(n.login(t, name).AccessToken))
}

func TestWhatOtherNodesMadeIsFoundByABarrier(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	behind := n.other(t) // knows no key, session or later user yet
	g := n.login(t, "alice")
	require.Equal(t, "ok", verdict(behind.Tokens, g.AccessToken))

	n.addUser(t, "bob", false)
	require.Equal(t, "ok", verdict(behind.Tokens, n.login(t, "bob").AccessToken))

	require.NoError(t, n.Service.SetPassword(t.Context(), &Principal{Name: "root", Admin: true}, PasswordChange{Username: "alice", Password: goodPassword}))
	require.Equal(t, "ok", verdict(behind.Tokens, n.login(t, "alice").AccessToken), "issued under a password this node has not seen")
}

func TestARefusalThatCannotBeConfirmedIsTheQuorumsError(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	good := n.forger(t)
	unknownKid, unknownUser := good(), good()
	unknownKid.header["kid"] = "nobody"
	unknownUser.claims["sub"] = "nobody"
	n.cluster.offline.Store(true)
	require.Equal(t, string(model.QuorumUnavailable), n.verify(unknownKid.sign(t)))
	require.Equal(t, string(model.QuorumUnavailable), n.verify(unknownUser.sign(t)))
	require.Equal(t, "ok", n.verify(good().sign(t)), "what the image knows needs no quorum")
}

func TestRightsFollowTheImageWithoutANewToken(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	g := n.login(t, "alice")
	admin := func() bool {
		p, err := n.Tokens.Verify(t.Context(), g.AccessToken)
		require.NoError(t, err)
		return p.Admin
	}
	require.False(t, admin())
	yes, no := true, false
	_, err := n.Service.AlterUser(t.Context(), "alice", UserChange{Admin: &yes})
	require.NoError(t, err)
	require.True(t, admin())
	_, err = n.Service.AlterUser(t.Context(), "alice", UserChange{Admin: &no})
	require.NoError(t, err)
	require.False(t, admin())
}

func TestDeltasDropRememberedTokens(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice", "bob")
	a, b := n.login(t, "alice"), n.login(t, "bob")
	remember := func() {
		require.Equal(t, "ok", n.verify(a.AccessToken))
		require.Equal(t, "ok", n.verify(b.AccessToken))
		require.Equal(t, 2, n.Tokens.cache.len())
		n.cluster.takeDelta()
	}
	left := func() int {
		d := n.cluster.takeDelta()
		n.Tokens.Forget(&d)
		return n.Tokens.cache.len()
	}
	remember()
	yes := true
	_, err := n.Service.AlterUser(t.Context(), "alice", UserChange{Admin: &yes})
	require.NoError(t, err)
	require.Equal(t, 1, left(), "the user")

	remember()
	_, _, err = n.Service.CreateACL(t.Context(), topicRule("alice", metadata.OpRead, "t"))
	require.NoError(t, err)
	require.Equal(t, 2, left(), "a rule concerns no token")

	p, err := n.Tokens.Verify(t.Context(), b.AccessToken)
	require.NoError(t, err)
	require.NoError(t, n.Service.Logout(t.Context(), p))
	require.Equal(t, 1, left(), "the session")
	require.NotEqual(t, "ok", n.verify(b.AccessToken))

	require.Equal(t, "ok", n.verify(a.AccessToken))
	for k := range n.cluster.Image().SigningKeys() {
		n.Tokens.Forget(&metadata.Delta{SigningKeys: map[string]metadata.Change{k.KID: metadata.Deleted}})
	}
	require.Zero(t, n.Tokens.cache.len(), "the key")
}

func TestTheTokenCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := newTokenCache(64)
	for i := range 10_000 {
		h := hashToken(strings.Repeat("x", i%500) + "y")
		c.put(&h, &verified{})
		require.NotNil(t, c.get(&h))
		require.LessOrEqual(t, c.len(), 64)
	}
}

func TestARememberedTokenIsVerifiedWithoutAllocation(t *testing.T) {
	n := withUsers(t, "alice")
	token := n.login(t, "alice").AccessToken
	ctx := t.Context()
	require.Equal(t, "ok", n.verify(token))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if _, err := n.Tokens.Verify(ctx, token); err != nil {
			t.Error(err)
		}
	}))
}

func BenchmarkVerifyRemembered(b *testing.B) {
	n := withUsers(b, "alice")
	token := n.login(b, "alice").AccessToken
	b.ReportAllocs()
	for b.Loop() {
		if _, err := n.Tokens.Verify(context.Background(), token); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzVerify(f *testing.F) {
	n := withUsers(f, "alice")
	f.Add(n.login(f, "alice").AccessToken + "x")
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, token string) {
		if _, err := n.Tokens.Verify(context.Background(), token); err != nil {
			requireCode(t, model.Unauthenticated, err)
		}
	})
}
