package auth

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/cluster/metadata"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
)

func TestARefreshGivesNewTokensOfTheSameSession(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	a := n.login(t, "alice")
	n.clock.advance(20 * time.Minute)
	require.Equal(t, string(model.TokenExpired), n.verify(a.AccessToken))
	b, err := n.Service.Refresh(t.Context(), a.RefreshToken)
	require.NoError(t, err)
	require.NotEqual(t, a.RefreshToken, b.RefreshToken)
	require.Equal(t, "alice", b.Username)
	require.Equal(t, DefaultAccessTTL, b.ExpiresIn)
	require.WithinDuration(t, n.clock.now().Add(DefaultAccessTTL), b.ExpiresAt, time.Second)
	require.Equal(t, "ok", n.verify(b.AccessToken))
	c, err := n.Service.Refresh(t.Context(), b.RefreshToken)
	require.NoError(t, err)
	require.Equal(t, "ok", n.verify(c.AccessToken))
	require.Equal(t, "ok", n.verify(b.AccessToken), "an access token outlives the next refresh")
}

func TestReuseOfARefreshTokenRevokesItsFamily(t *testing.T) {
	t.Parallel()
	for _, generations := range []int{1, 3} {
		n := withUsers(t, "alice")
		first, other := n.login(t, "alice"), n.login(t, "alice")
		newest := first
		for range generations {
			var err error
			newest, err = n.Service.Refresh(t.Context(), newest.RefreshToken)
			require.NoError(t, err)
		}
		require.Equal(t, "ok", n.verify(newest.AccessToken))

		_, err := n.Service.Refresh(t.Context(), first.RefreshToken)
		requireCode(t, model.Unauthenticated, err)

		require.Equal(t, string(model.Unauthenticated), n.verify(newest.AccessToken))
		_, err = n.Service.Refresh(t.Context(), newest.RefreshToken)
		requireCode(t, model.Unauthenticated, err)
		require.Equal(t, "ok", n.verify(other.AccessToken), "another session goes on")
		_, err = n.Service.Refresh(t.Context(), other.RefreshToken)
		require.NoError(t, err)
	}
}

// Both proposals are on their way before either is ordered.
func TestOfTwoRefreshesThatRaceOneWins(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	g := n.login(t, "alice")
	var meet sync.WaitGroup
	meet.Add(2)
	n.cluster.onPropose = func(cmd metadata.Command) {
		if _, ok := cmd.(metadata.RotateSession); ok {
			meet.Done()
			meet.Wait()
		}
	}
	answers := make(chan *Grant, 2)
	group := lifecycle.New(context.Background())
	for range 2 {
		group.Go("refresh", func(context.Context) {
			won, _ := n.Service.Refresh(context.Background(), g.RefreshToken)
			answers <- won
		})
	}
	a, b := <-answers, <-answers
	require.NoError(t, group.Stop(stopTimeout))
	require.True(t, (a == nil) != (b == nil), "exactly one wins")
	// The other one was a reuse: without a grace the family is dead.
	won := a
	if won == nil {
		won = b
	}
	require.Equal(t, string(model.Unauthenticated), n.verify(won.AccessToken))
}

func TestAGuessThatKnowsTheSessionRevokesNothing(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	g := n.login(t, "alice")
	for name, guess := range map[string]string{
		"empty":          "",
		"garbage":        "garbage",
		"an access JWT":  g.AccessToken,
		"without prefix": strings.TrimPrefix(g.RefreshToken, string(refreshPrefix)),
		"cut":            g.RefreshToken[:len(g.RefreshToken)-1],
		"longer":         g.RefreshToken + "A",
		"unknown family": newRefreshToken().String(),
	} {
		_, err := n.Service.Refresh(t.Context(), guess)
		require.Equal(t, string(model.Unauthenticated), codeOf(err), name)
	}
	_, err := n.Service.Refresh(t.Context(), g.RefreshToken)
	require.NoError(t, err)
}

func TestARefreshTokenOfAnotherNodeWorksHere(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	behind := n.other(t)
	g := n.login(t, "alice")
	next, err := behind.Service.Refresh(t.Context(), g.RefreshToken)
	require.NoError(t, err)
	require.Equal(t, "ok", verdict(behind.Tokens, next.AccessToken))
	require.Equal(t, "ok", n.verify(next.AccessToken))
}

func TestSessionsEndWhenUnusedAndAtTheLatestAtTheirAge(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	idle := n.login(t, "alice")
	n.clock.advance(DefaultRefreshTTL)
	_, err := n.Service.Refresh(t.Context(), idle.RefreshToken)
	requireCode(t, model.TokenExpired, err)

	began := n.clock.now()
	used := n.login(t, "alice")
	for n.clock.now().Sub(began) < DefaultSessionTTL-DefaultRefreshTTL/2 {
		n.clock.advance(DefaultRefreshTTL / 2)
		used, err = n.Service.Refresh(t.Context(), used.RefreshToken)
		require.NoError(t, err)
	}
	n.clock.at.Store(began.Add(DefaultSessionTTL).UnixNano())
	_, err = n.Service.Refresh(t.Context(), used.RefreshToken)
	requireCode(t, model.TokenExpired, err)
}

func TestWhatIsStoredOfARefreshTokenDoesNotGiveIt(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	g := n.login(t, "alice")
	p, err := n.Tokens.Verify(t.Context(), g.AccessToken)
	require.NoError(t, err)
	token, ok := parseRefreshToken(g.RefreshToken)
	require.True(t, ok)
	s := n.cluster.Image().Session(p.SessionID)
	require.Equal(t, token.hash(), s.CurrentHash)
	require.NotContains(t, g.RefreshToken, s.ID)
	require.Equal(t, g.RefreshToken, token.String())
	require.NotEqual(t, token.hash(), token.rotated().hash())
	require.Equal(t, token.sessionID(), token.rotated().sessionID())
}
