package auth

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// What is kept of a token for long is good for as long as the token is, without its text: on a
// node that has forgotten the token too.
func TestAKeptTokenEndsWithIt(t *testing.T) {
	t.Parallel()
	revoke := func(t *testing.T, n *node, p *Principal) {
		if p.SessionID == "" {
			require.NoError(t, n.Service.DeleteAPIToken(t.Context(), TokenDeletion{Username: "alice", ID: p.TokenID}))
			return
		}
		require.NoError(t, n.Service.Logout(t.Context(), p))
	}
	for name, end := range map[string]struct {
		with func(t *testing.T, n *node, p *Principal)
		code model.Code
	}{
		"revoked": {revoke, model.Unauthenticated},
		"disabled": {func(t *testing.T, n *node, _ *Principal) {
			n.cluster.mustPropose(t, metadata.AlterUser{Name: "alice", Disabled: new(true)})
		}, model.Unauthenticated},
		"deleted": {func(t *testing.T, n *node, _ *Principal) {
			n.cluster.mustPropose(t, metadata.DeleteUser{Name: "alice"})
		}, model.Unauthenticated},
		"expired": {func(_ *testing.T, n *node, _ *Principal) { n.clock.advance(48 * time.Hour) }, model.TokenExpired},
	} {
		for _, api := range []bool{false, true} {
			n := withUsers(t, "alice")
			var text string
			if api {
				text = n.apiToken(t, "alice", nil)
			} else {
				text = n.login(t, "alice").AccessToken
			}
			plain := n.Tokens.Credential(text)
			_, same := Kept(plain).(*bearer)
			require.True(t, same, "one that was never verified has to be, by its text")
			p, err := plain.Verify(t.Context())
			require.NoError(t, err)
			c := Kept(plain)
			require.IsType(t, &kept{}, c)
			require.Same(t, c, Kept(c))
			got, err := c.Verify(t.Context())
			require.NoError(t, err, name)
			require.Equal(t, p, got)
			n.Tokens.cache.drop(func(*verified) bool { return true })
			_, err = c.Verify(t.Context())
			require.NoError(t, err, name)
			end.with(t, n, p)
			for range 2 {
				_, err = c.Verify(t.Context())
				requireCode(t, end.code, err)
			}
			_, err = plain.Verify(t.Context())
			requireCode(t, end.code, err)
		}
	}
}
