package auth

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/cluster/metadata"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
)

func kids(img *metadata.Image) []string {
	var out []string
	for k := range img.SigningKeys() {
		out = append(out, k.KID)
	}
	return out
}

func TestTheFirstStartMakesAKeyAndTheNextKeepsIt(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	_, err := n.Service.Bootstrap(t.Context(), FirstStart{})
	require.NoError(t, err)
	first := kids(n.cluster.Image())
	require.Len(t, first, 1)
	_, err = n.other(t).Service.Bootstrap(t.Context(), FirstStart{})
	require.NoError(t, err)
	require.Equal(t, first, kids(n.cluster.Image()))
	k := n.cluster.Image().SigningKey(first[0])
	require.NotContains(t, string(k.SealedPrivate), string(k.PublicKey))
}

func TestARotatedKeyVerifiesUntilItsLastTokenHasExpired(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	old := n.login(t, "alice")
	first := kids(n.cluster.Image())
	require.Len(t, first, 1)

	n.clock.advance(DefaultRotateEvery - time.Minute)
	require.NoError(t, n.Service.maintain(t.Context()))
	require.Equal(t, first, kids(n.cluster.Image()), "not due yet")
	old, err := n.Service.Refresh(t.Context(), old.RefreshToken)
	require.NoError(t, err)

	n.clock.advance(time.Minute)
	require.NoError(t, n.Service.maintain(t.Context()))
	require.NoError(t, n.Service.maintain(t.Context()))
	require.Len(t, kids(n.cluster.Image()), 2, "once")
	require.Len(t, n.Service.JWKS().Keys, 2)
	require.Equal(t, "ok", n.verify(old.AccessToken), "signed by the old key")
	require.Equal(t, "ok", verdict(NewTokens(n.cluster, n.clock.now), old.AccessToken))
	next := n.login(t, "alice")
	require.NotEqual(t, headerKid(t, old.AccessToken), headerKid(t, next.AccessToken))

	n.clock.at.Store(old.ExpiresAt.Add(-time.Second).UnixNano())
	require.Equal(t, "ok", n.verify(old.AccessToken))
	n.clock.advance(time.Second)
	require.Equal(t, string(model.TokenExpired), n.verify(old.AccessToken))

	retired := n.cluster.Image().SigningKey(first[0]).VerifyUntil.Time()
	n.clock.at.Store(retired.Add(-time.Second).UnixNano())
	require.NoError(t, n.Service.maintain(t.Context()))
	require.Contains(t, kids(n.cluster.Image()), first[0])
	n.clock.at.Store(retired.UnixNano())
	require.Len(t, n.Service.JWKS().Keys, 1, "not served before it is removed either")
	require.NoError(t, n.Service.maintain(t.Context()))
	require.NotContains(t, kids(n.cluster.Image()), first[0])
}

func headerKid(t testing.TB, token string) string {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(token[:slices.Index([]byte(token), '.')])
	require.NoError(t, err)
	var h struct{ Kid string }
	require.NoError(t, json.Unmarshal(b, &h))
	return h.Kid
}

func TestAKeyThatIsPastItsTimeVerifiesNothing(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	f := n.forger(t)()
	k := n.cluster.Image().NewestSigningKey()
	n.clock.at.Store(k.VerifyUntil.Time().UnixNano())
	now := n.clock.now().Unix()
	f.claims["exp"] = now + 900 // whoever stole the key long ago
	require.Equal(t, string(model.Unauthenticated), n.verify(f.sign(t)))
}

func TestTwoNodesRotateOnce(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	n.login(t, "alice")
	other := n.other(t)
	n.clock.advance(DefaultRotateEvery)
	raced := false
	n.cluster.onPropose = func(cmd metadata.Command) {
		if _, ok := cmd.(metadata.AddSigningKey); ok && !raced {
			raced = true
			require.NoError(t, other.Service.maintain(context.Background()))
		}
	}
	require.NoError(t, n.Service.maintain(t.Context()))
	require.True(t, raced)
	require.Len(t, kids(n.cluster.Image()), 2)
}

func TestANodeThatCannotOpenTheKeyMakesItsOwn(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	g := n.login(t, "alice")
	sealer, err := NewSealer(make([]byte, secretBytes))
	require.NoError(t, err)
	lost := New(Config{Cluster: n.cluster, Sealer: sealer, Hasher: cheapHasher(), Now: n.clock.now})
	next, err := lost.Service.Login(t.Context(), LoginRequest{Username: "alice", Password: goodPassword})
	require.NoError(t, err)
	require.Equal(t, "ok", n.verify(next.AccessToken))
	require.Equal(t, "ok", n.verify(g.AccessToken))
	require.Len(t, kids(n.cluster.Image()), 2)
}

func TestJWKSHoldsThePublicKeysAsRFC8037Says(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	require.Equal(t, `{"keys":[]}`, mustJSON(t, n.Service.JWKS()))
	n.addUser(t, "alice", false)
	g := n.login(t, "alice")
	doc := n.Service.JWKS()
	require.Len(t, doc.Keys, 1)
	k := doc.Keys[0]
	require.Equal(t, JWK{KeyType: "OKP", Curve: "Ed25519", X: k.X, KeyID: headerKid(t, g.AccessToken), Use: "sig", Algorithm: "EdDSA"}, k)
	public, err := base64.RawURLEncoding.DecodeString(k.X)
	require.NoError(t, err)
	last := len(g.AccessToken) - base64.RawURLEncoding.EncodedLen(ed25519.SignatureSize)
	sig, err := base64.RawURLEncoding.DecodeString(g.AccessToken[last:])
	require.NoError(t, err)
	require.True(t, ed25519.Verify(public, []byte(g.AccessToken[:last-1]), sig), "the document verifies tokens")
}

func mustJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

// pass lets the bubble's time go by.
func pass(d time.Duration) { <-time.After(d) }

func TestRunRotatesPrunesAndRetriesUntilItIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, time.Now())
		a := New(Config{Cluster: c, Sealer: testSealer(t), Hasher: cheapHasher()})
		c.offline.Store(true)
		g := lifecycle.New(context.Background())
		require.True(t, g.Go("auth", a.Service.Run))
		synctest.Wait()
		require.Empty(t, kids(c.Image()))
		c.offline.Store(false)
		pass(maintainRetry)
		synctest.Wait()
		first := kids(c.Image())
		require.Len(t, first, 1, "made at the next try")

		_, err := a.Service.CreateUser(t.Context(), NewUser{Username: "root", Password: goodPassword, Admin: true})
		require.NoError(t, err)
		_, err = a.Service.Login(t.Context(), LoginRequest{Username: "root", Password: goodPassword})
		require.NoError(t, err)
		pass(DefaultRotateEvery + maintainEvery)
		synctest.Wait()
		require.Len(t, kids(c.Image()), 2, "rotated")
		require.Empty(t, slices.Collect(c.Image().Sessions()), "the unused session is gone")
		pass(signSlack + maintainEvery)
		synctest.Wait()
		require.NotContains(t, kids(c.Image()), first[0], "retired")
		require.NoError(t, g.Stop(stopTimeout))
	})
}

func TestATokenDoesNotOutliveItsKey(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	n.login(t, "alice")
	k := n.cluster.Image().NewestSigningKey()
	n.Service.accessTTL = time.Hour // the setting was raised after the key was made
	n.clock.at.Store(k.SignUntil.Time().Add(-time.Millisecond).UnixNano())
	g := n.login(t, "alice")
	require.Equal(t, k.KID, headerKid(t, g.AccessToken))
	require.False(t, g.ExpiresAt.After(k.VerifyUntil.Time()))
	require.Less(t, g.ExpiresIn, time.Hour)
}
