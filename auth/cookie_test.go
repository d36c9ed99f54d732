package auth

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/cluster/metadata"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
)

func textLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func (n *node) cookieLogin(t testing.TB, user string) *CookieGrant {
	t.Helper()
	g, err := n.Service.CookieLogin(context.Background(), LoginRequest{Username: user, Password: goodPassword})
	require.NoError(t, err)
	return g
}

// cookie says what becomes of a cookie's value.
func (n *node) cookie(value string) string {
	c := n.Service.Cookie(value)
	if c == nil {
		return "no cookie"
	}
	_, err := c.Verify(context.Background())
	return codeOf(err)
}

func TestACookieIsItsUsersSessionAndNothingElse(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	g := n.cookieLogin(t, "alice")
	require.Equal(t, "alice", g.Username)
	require.Equal(t, DefaultCookieTTL, g.ExpiresIn)
	c := n.Service.Cookie(g.Cookie)
	p, err := c.Verify(t.Context())
	require.NoError(t, err)
	require.Equal(t, "alice", p.Name)
	require.Equal(t, Cookie, p.Kind)
	require.WithinDuration(t, n.clock.now().Add(DefaultCookieTTL), p.ExpiresAt, time.Millisecond)
	require.WithinDuration(t, n.clock.now().Add(DefaultAccessTTL), p.VerifyBy, time.Millisecond)
	require.Equal(t, g.CSRFToken, c.CSRFToken())
	require.NotEqual(t, g.CSRFToken, n.cookieLogin(t, "alice").CSRFToken)
	require.NotContains(t, g.Cookie, g.CSRFToken)

	s := n.cluster.Image().Session(p.SessionID)
	require.NotContains(t, g.Cookie, s.ID)
	require.NotContains(t, string(s.CurrentHash), g.Cookie)
	require.Equal(t, string(model.Unauthenticated), n.verify(g.Cookie), "it is no bearer token")
	asRefresh := strings.Replace(g.Cookie, string(cookiePrefix), string(refreshPrefix), 1)
	_, err = n.Service.Refresh(t.Context(), asRefresh)
	requireCode(t, model.Unauthenticated, err)
	refresh := n.login(t, "alice").RefreshToken
	require.Equal(t, string(model.Unauthenticated), n.cookie(strings.Replace(refresh, string(refreshPrefix), string(cookiePrefix), 1)))
}

func TestWhatIsNoCookieIsRefused(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	good := n.cookieLogin(t, "alice").Cookie
	for _, bad := range []string{"", "x", "twc_", good[:len(good)-1], good + "A", n.login(t, "alice").AccessToken} {
		require.Equal(t, "no cookie", n.cookie(bad), bad)
	}
	require.Equal(t, string(model.Unauthenticated), n.cookie(newRefreshToken().text(cookiePrefix)))
	// The family part of a good one with another second part.
	token, _ := parseSecret(cookiePrefix, good)
	require.Equal(t, string(model.Unauthenticated), n.cookie(token.rotated().text(cookiePrefix)))
	require.Equal(t, "ok", n.cookie(good), "a guess ends nothing")
}

func TestASessionInUseIsRenewedWithoutTheBrowserNoticing(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	g := n.cookieLogin(t, "alice")
	began := n.clock.now()
	renewals := 0
	n.cluster.onPropose = func(cmd metadata.Command) {
		if _, ok := cmd.(metadata.RenewSession); ok {
			renewals++
		}
	}
	for n.clock.now().Sub(began) < 12*time.Hour {
		n.clock.advance(5 * time.Minute)
		require.Equal(t, "ok", n.cookie(g.Cookie))
	}
	require.Equal(t, int(12*time.Hour/DefaultAccessTTL), renewals, "one in 15 minutes")
	n.clock.advance(DefaultCookieTTL - time.Second)
	require.Equal(t, "ok", n.cookie(g.Cookie), "a pause shorter than the session")
	n.clock.advance(DefaultCookieTTL)
	require.Equal(t, string(model.TokenExpired), n.cookie(g.Cookie))
}

func TestASessionEndsAtItsAgeHoweverMuchItIsUsed(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	g := n.cookieLogin(t, "alice")
	began := n.clock.now()
	for n.clock.now().Sub(began) < DefaultCookieMax-12*time.Hour {
		n.clock.advance(12 * time.Hour)
		require.Equal(t, "ok", n.cookie(g.Cookie))
	}
	n.clock.at.Store(began.Add(DefaultCookieMax).UnixNano())
	require.Equal(t, string(model.TokenExpired), n.cookie(g.Cookie))
}

func TestRequestsSideBySideShareOneRenewal(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	g := n.cookieLogin(t, "alice")
	n.clock.advance(DefaultAccessTTL)
	var mu sync.Mutex
	renewals := 0
	hold := make(chan struct{})
	n.cluster.onPropose = func(cmd metadata.Command) {
		if _, ok := cmd.(metadata.RenewSession); ok {
			mu.Lock()
			renewals++
			mu.Unlock()
			<-hold
		}
	}
	group := lifecycle.New(context.Background())
	codes := make(chan string, 20)
	for range 20 {
		group.Go("request", func(context.Context) { codes <- n.cookie(g.Cookie) })
	}
	close(hold)
	for range 20 {
		require.Equal(t, "ok", <-codes)
	}
	require.NoError(t, group.Stop(stopTimeout))
	require.LessOrEqual(t, renewals, 2, "a late one may find the session not renewed in its image, and no more")
	require.Empty(t, n.Service.renewals.flights)
}

func TestACookieDiesWithWhatItsSessionDiesOf(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, n *node, p *Principal){
		"logout": func(t *testing.T, n *node, p *Principal) { require.NoError(t, n.Service.Logout(t.Context(), p)) },
		"a new password": func(t *testing.T, n *node, _ *Principal) {
			root, err := n.Tokens.Verify(t.Context(), n.login(t, "root").AccessToken)
			require.NoError(t, err)
			require.NoError(t, n.Service.SetPassword(t.Context(), root, PasswordChange{Username: "alice", Password: "another password"}))
		},
		"disabling": func(t *testing.T, n *node, _ *Principal) {
			n.cluster.mustPropose(t, metadata.AlterUser{Name: "alice", Disabled: new(true)})
			n.cluster.mustPropose(t, metadata.AlterUser{Name: "alice", Disabled: new(false)})
		},
		"deletion": func(t *testing.T, n *node, _ *Principal) {
			n.cluster.mustPropose(t, metadata.DeleteUser{Name: "alice"})
		},
	} {
		n := withUsers(t, "alice")
		g, other := n.cookieLogin(t, "alice"), n.cookieLogin(t, "alice")
		p, err := n.Service.Cookie(g.Cookie).Verify(t.Context())
		require.NoError(t, err)
		end(t, n, p)
		require.Equal(t, string(model.Unauthenticated), n.cookie(g.Cookie), name)
		require.Equal(t, name == "logout", n.cookie(other.Cookie) == "ok", name)
	}
}

// A node that is cut off takes a cookie by what it knows for as long as an access token.
func TestWithoutAQuorumACookieIsGoodForAnAccessTokensTime(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	g := n.cookieLogin(t, "alice")
	n.cluster.offline.Store(true)
	require.Equal(t, "ok", n.cookie(g.Cookie))
	n.clock.advance(DefaultAccessTTL)
	require.Equal(t, string(model.QuorumUnavailable), n.cookie(g.Cookie))
	n.cluster.offline.Store(false)
	require.Equal(t, "ok", n.cookie(g.Cookie))
}

func TestSessionsOfAUserAreCapped(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	first, second := n.login(t, "alice"), n.cookieLogin(t, "alice")
	n.clock.advance(time.Second)
	for range MaxSessions - 2 {
		_, err := n.cluster.Propose(t.Context(), metadata.CreateSession{
			ID: newRefreshToken().sessionID(), User: "alice", IfEpoch: n.cluster.Image().User("alice").CredentialsEpoch,
			RefreshHash: []byte("h"), ExpiresAt: metadata.MillisOf(n.clock.now().Add(time.Hour)), Now: metadata.MillisOf(n.clock.now()),
		})
		require.NoError(t, err)
	}
	require.Equal(t, "ok", n.verify(first.AccessToken))
	n.login(t, "alice")
	require.Equal(t, string(model.Unauthenticated), n.verify(first.AccessToken), "the oldest has ended")
	require.Equal(t, "ok", n.cookie(second.Cookie))
	n.cookieLogin(t, "alice")
	require.Equal(t, string(model.Unauthenticated), n.cookie(second.Cookie))
}
