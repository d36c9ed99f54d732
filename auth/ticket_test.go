package auth

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// ticket gives one to the holder of a credential.
func (n *node) ticket(t testing.TB, c Credential) string {
	t.Helper()
	p, err := c.Verify(context.Background())
	require.NoError(t, err)
	ticket, err := n.Service.IssueTicket(context.Background(), p)
	require.NoError(t, err)
	return ticket
}

func use(s *Service, ticket string) string {
	_, _, err := s.UseTicket(context.Background(), ticket)
	return codeOf(err)
}

// holders are the credentials of alice that a ticket can be given for.
func holders(t testing.TB, n *node) map[string]Credential {
	t.Helper()
	return map[string]Credential{
		"an access token": n.Tokens.Credential(n.login(t, "alice").AccessToken),
		"a cookie":        n.Service.Cookie(n.cookieLogin(t, "alice").Cookie),
		"an API token":    n.Tokens.Credential(n.apiToken(t, "alice", nil)),
	}
}

func TestATicketIsUsedOnce(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	for name, c := range holders(t, n) {
		ticket := n.ticket(t, c)
		p, held, err := n.Service.UseTicket(t.Context(), ticket)
		require.NoError(t, err, name)
		require.Equal(t, "alice", p.Name, name)
		again, err := held.Verify(t.Context())
		require.NoError(t, err)
		want, err := c.Verify(t.Context())
		require.NoError(t, err)
		require.Equal(t, want.SessionID, again.SessionID, name)
		require.True(t, want.ExpiresAt.Equal(again.ExpiresAt), "%s: it holds no longer than what it was given for", name)
		require.Equal(t, string(model.Unauthenticated), use(n.Service, ticket), name)
		require.Equal(t, string(model.Unauthenticated), use(n.other(t).Service, ticket), "%s: on no node", name)
		require.Equal(t, string(model.Unauthenticated), n.verify(ticket), "%s: it is no bearer token", name)
		require.Equal(t, "ok", use(n.Service, n.ticket(t, c)), "%s: another one is good", name)
	}
}

func TestATicketOfOneNodeIsGoodOnAnother(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	behind := n.other(t)
	for name, c := range holders(t, n) {
		require.Equal(t, "ok", use(behind.Service, n.ticket(t, c)), name)
	}
}

func TestATicketExpires(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	for name, c := range holders(t, n) {
		soon, late := n.ticket(t, c), n.ticket(t, c)
		n.clock.advance(TicketTTL - time.Second)
		require.Equal(t, "ok", use(n.Service, soon), name)
		n.clock.advance(2 * time.Second)
		require.Equal(t, string(model.Unauthenticated), use(n.Service, late), name)
	}
}

func TestATicketDiesWithItsSession(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, n *node, p *Principal){
		"logout": func(t *testing.T, n *node, p *Principal) { require.NoError(t, n.Service.Logout(t.Context(), p)) },
		"disabling": func(t *testing.T, n *node, _ *Principal) {
			n.cluster.mustPropose(t, metadata.AlterUser{Name: "alice", Disabled: new(true)})
		},
		"deletion": func(t *testing.T, n *node, _ *Principal) {
			n.cluster.mustPropose(t, metadata.DeleteUser{Name: "alice"})
		},
		"a new password": func(t *testing.T, n *node, _ *Principal) {
			n.cluster.mustPropose(t, metadata.SetPassword{Name: "alice", Credentials: metadata.Credentials{PasswordHash: "h"}})
		},
	} {
		for _, cookie := range []bool{false, true} {
			n := withUsers(t, "alice")
			var c Credential = n.Tokens.Credential(n.login(t, "alice").AccessToken)
			if cookie {
				c = n.Service.Cookie(n.cookieLogin(t, "alice").Cookie)
			}
			unused := n.ticket(t, c)
			_, held, err := n.Service.UseTicket(t.Context(), n.ticket(t, c))
			require.NoError(t, err)
			p, err := held.Verify(t.Context())
			require.NoError(t, err)
			end(t, n, p)
			_, err = held.Verify(t.Context())
			requireCode(t, model.Unauthenticated, err)
			require.Equal(t, string(model.Unauthenticated), use(n.Service, unused), name)
		}
	}
}

func TestATicketOfAnAPITokenDiesWithIt(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	text := n.apiToken(t, "alice", nil)
	c := n.Tokens.Credential(text)
	p, err := c.Verify(t.Context())
	require.NoError(t, err)
	unused := n.ticket(t, c)
	_, held, err := n.Service.UseTicket(t.Context(), n.ticket(t, c))
	require.NoError(t, err)
	require.NoError(t, n.Service.DeleteAPIToken(t.Context(), TokenDeletion{Username: "alice", ID: p.TokenID}))
	_, err = held.Verify(t.Context())
	requireCode(t, model.Unauthenticated, err)
	require.Equal(t, string(model.Unauthenticated), use(n.Service, unused))
}

func TestATicketKeepsTheScopesOfItsToken(t *testing.T) {
	t.Parallel()
	n := withUsers(t)
	c := n.Tokens.Credential(n.apiToken(t, "root", []metadata.Scope{readScope("t")}))
	p, _, err := n.Service.UseTicket(t.Context(), n.ticket(t, c))
	require.NoError(t, err)
	require.True(t, p.Scoped())
	require.True(t, n.Authorizer.Allowed(p, ask(metadata.OpRead, "t")))
	require.False(t, n.Authorizer.Allowed(p, ask(metadata.OpRead, "u")))
}

func TestAForgedTicketIsRefused(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	access := n.login(t, "alice").AccessToken
	good := n.forger(t)
	require.Equal(t, string(model.Unauthenticated), use(n.Service, access), "an access token is no ticket")
	asTicket := good()
	asTicket.header["typ"] = ticketType
	require.Equal(t, string(model.Unauthenticated), use(n.Service, asTicket.sign(t)), "nor by its name")
	ticket := n.ticket(t, n.Tokens.Credential(access))
	for _, bad := range []string{"", "x", "a.b.c", ticket[:len(ticket)-2], ticket + "AA"} {
		require.Equal(t, string(model.Unauthenticated), use(n.Service, bad))
	}
	require.Equal(t, "ok", use(n.Service, ticket))
}
