package auth

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// principal is a user as an access token makes it.
func (n *node) principal(t testing.TB, user string) *Principal {
	t.Helper()
	p, err := n.Tokens.Verify(context.Background(), n.login(t, user).AccessToken)
	require.NoError(t, err)
	return p
}

// apiToken makes an API token of a user for an hour.
func (n *node) apiToken(t testing.TB, user string, scopes []metadata.Scope) string {
	t.Helper()
	text, _, err := n.Service.CreateAPIToken(context.Background(), n.principal(t, user), NewAPIToken{Username: user, Name: "ci", TTL: time.Hour, Scopes: scopes})
	require.NoError(t, err)
	return text
}

func readScope(topic string) metadata.Scope {
	return metadata.Scope{ResourceType: metadata.ResourceTopic, ResourceName: topic, Pattern: metadata.PatternLiteral, Operation: metadata.OpRead}
}

func ask(op metadata.Operation, topic string) Access {
	return Access{Operation: op, Resource: metadata.ResourceTopic, Name: topic}
}

func (n *node) idOf(t testing.TB, text string) string {
	t.Helper()
	p, err := n.Tokens.Verify(context.Background(), text)
	require.NoError(t, err)
	return p.TokenID
}

func TestAnAPITokenStandsForItsUser(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	text := n.apiToken(t, "alice", nil)
	p, err := n.Tokens.Verify(t.Context(), text)
	require.NoError(t, err)
	require.Equal(t, "alice", p.Name)
	require.Equal(t, APIToken, p.Kind)
	require.Empty(t, p.SessionID)
	require.False(t, p.Scoped())
	require.WithinDuration(t, n.clock.now().Add(time.Hour), p.ExpiresAt, time.Millisecond)
	require.Equal(t, "ok", verdict(n.other(t).Tokens, text), "on every node")
	k := n.cluster.Image().APIToken(p.TokenID)
	require.NotContains(t, string(metadata.Encode(n.cluster.Image())), text)
	require.NotContains(t, string(k.Hash), text)
	require.Equal(t, "ok", n.verify(n.apiToken(t, "root", nil)))
	root, err := n.Tokens.Verify(t.Context(), n.apiToken(t, "root", nil))
	require.NoError(t, err)
	require.True(t, root.Admin)
}

// What makes a token good is what is stored, so it outlives signing keys, and a token
// that is signed but not stored is none.
func TestAnAPITokenOutlivesTheSigningKey(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	text, _, err := n.Service.CreateAPIToken(t.Context(), n.principal(t, "alice"), NewAPIToken{Username: "alice", Name: "for ever"})
	require.NoError(t, err)
	p, err := n.Tokens.Verify(t.Context(), text)
	require.NoError(t, err)
	require.True(t, p.ExpiresAt.IsZero())
	for range 3 {
		n.clock.advance(DefaultRotateEvery + time.Hour)
		require.NoError(t, n.Service.maintain(t.Context()))
	}
	fresh := NewTokens(n.cluster, n.clock.now)
	require.Equal(t, "ok", verdict(fresh, text))
	f := n.forger(t)()
	f.header["typ"] = apiTokenType
	require.Equal(t, string(model.Unauthenticated), n.verify(f.sign(t)), "signed, but not stored")
	f.claims["jti"] = p.TokenID
	require.Equal(t, string(model.Unauthenticated), n.verify(f.sign(t)), "nor under another's id")
	f.header["typ"] = "JWT"
	delete(f.claims, "sid")
	require.Equal(t, string(model.Unauthenticated), n.verify(f.sign(t)))
}

func TestAnAPITokenEnds(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		end  func(t *testing.T, n *node, text string)
		want string
	}{
		"with its time": {func(_ *testing.T, n *node, _ string) { n.clock.advance(time.Hour) }, string(model.TokenExpired)},
		"by deletion": {func(t *testing.T, n *node, text string) {
			require.NoError(t, n.Service.DeleteAPIToken(t.Context(), TokenDeletion{Username: "alice", ID: n.idOf(t, text)}))
		}, string(model.Unauthenticated)},
		"while its user is disabled": {func(t *testing.T, n *node, _ string) {
			n.cluster.mustPropose(t, metadata.AlterUser{Name: "alice", Disabled: new(true)})
		}, string(model.Unauthenticated)},
		"with its user": {func(t *testing.T, n *node, _ string) { n.cluster.mustPropose(t, metadata.DeleteUser{Name: "alice"}) }, string(model.Unauthenticated)},
		"not by a new password": {func(t *testing.T, n *node, _ string) {
			n.cluster.mustPropose(t, metadata.SetPassword{Name: "alice", Credentials: metadata.Credentials{PasswordHash: "h"}})
		}, "ok"},
		"not by logout": {func(t *testing.T, n *node, text string) {
			p, err := n.Tokens.Verify(t.Context(), text)
			require.NoError(t, err)
			require.NoError(t, n.Service.Logout(t.Context(), p))
		}, "ok"},
	} {
		n := withUsers(t, "alice")
		text := n.apiToken(t, "alice", nil)
		id := n.idOf(t, text)
		n.cluster.takeDelta()
		row.end(t, n, text)
		require.Equal(t, row.want, n.verify(text), name)
		d := n.cluster.takeDelta()
		n.Tokens.Forget(&d)
		_, known := n.Tokens.uses.Load(id)
		require.Equal(t, n.cluster.Image().APIToken(id) != nil, known, "%s: a token that is gone is forgotten", name)
	}
}

func TestScopesIntersectWithTheUsersRights(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	allow := func(op metadata.Operation, topic string) {
		n.cluster.mustPropose(t, metadata.CreateACL{ID: string(op) + topic, Rule: metadata.ACLFields{
			Principal: "User:alice", ResourceType: metadata.ResourceTopic, ResourceName: topic, Pattern: metadata.PatternLiteral,
			Operation: op, Permission: metadata.Allow, Host: "*",
		}})
	}
	allow(metadata.OpRead, "orders")
	allow(metadata.OpWrite, "orders")
	allow(metadata.OpRead, "other")
	p, err := n.Tokens.Verify(t.Context(), n.apiToken(t, "alice", []metadata.Scope{
		readScope("orders"), readScope("never"),
		{ResourceType: metadata.ResourceTopic, ResourceName: "oth", Pattern: metadata.PatternPrefixed, Operation: metadata.OpAll},
	}))
	require.NoError(t, err)
	for _, row := range []struct {
		op    metadata.Operation
		topic string
		want  bool
	}{
		{metadata.OpRead, "orders", true},
		{metadata.OpDescribe, "orders", true}, // implied on both sides
		{metadata.OpWrite, "orders", false},   // the user may, the token not
		{metadata.OpRead, "never", false},     // the token may, the user not
		{metadata.OpRead, "other", true},
		{metadata.OpWrite, "other", false},
		{metadata.OpRead, "unknown", false},
	} {
		require.Equal(t, row.want, n.Authorizer.Allowed(p, ask(row.op, row.topic)), "%s %s", row.op, row.topic)
		err := n.Authorizer.Authorize(t.Context(), p, ask(row.op, row.topic))
		require.Equal(t, row.want, err == nil)
	}
	none, err := n.Tokens.Verify(t.Context(), n.apiToken(t, "root", []metadata.Scope{}))
	require.NoError(t, err)
	require.False(t, n.Authorizer.Allowed(none, ask(metadata.OpRead, "orders")), "empty scopes are no rights")
}

func TestATokenWithScopesAdministersNothing(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	all := metadata.Scope{ResourceType: metadata.ResourceCluster, ResourceName: "*", Pattern: metadata.PatternLiteral, Operation: metadata.OpAll}
	p, err := n.Tokens.Verify(t.Context(), n.apiToken(t, "root", []metadata.Scope{all}))
	require.NoError(t, err)
	require.False(t, p.Admin)
	requireCode(t, model.Forbidden, n.Authorizer.RequireAdmin(t.Context(), p, "managing users"))
	requireCode(t, model.Forbidden, n.Service.MayManageTokens(t.Context(), p, "root"))
	_, _, err = n.Service.CreateAPIToken(t.Context(), p, NewAPIToken{Username: "root", Name: "wider"})
	requireCode(t, model.Forbidden, err)
	current := goodPassword
	requireCode(t, model.Forbidden, n.Service.SetPassword(t.Context(), p, PasswordChange{Username: "root", Password: "another horse", Current: &current}))
	require.True(t, n.Authorizer.Allowed(p, Access{Operation: metadata.OpDescribe, Resource: metadata.ResourceCluster, Name: metadata.ClusterResource}))
}

func TestTokensAreOnesOwnOrAnAdministrators(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice", "bob")
	alice, root := n.principal(t, "alice"), n.principal(t, "root")
	require.NoError(t, n.Service.MayManageTokens(t.Context(), alice, "alice"))
	requireCode(t, model.Forbidden, n.Service.MayManageTokens(t.Context(), alice, "bob"))
	requireCode(t, model.Forbidden, n.Service.MayManageTokens(t.Context(), alice, "nobody"))
	require.NoError(t, n.Service.MayManageTokens(t.Context(), root, "bob"))
	_, _, err := n.Service.CreateAPIToken(t.Context(), root, NewAPIToken{Username: "nobody", Name: "n"})
	requireCode(t, model.UnknownUser, err)
	_, k, err := n.Service.CreateAPIToken(t.Context(), root, NewAPIToken{Username: "bob", Name: "n"})
	require.NoError(t, err)
	requireCode(t, model.NotFound, n.Service.DeleteAPIToken(t.Context(), TokenDeletion{Username: "alice", ID: k.ID}))
	requireCode(t, model.ETagMismatch, n.Service.DeleteAPIToken(t.Context(), TokenDeletion{Username: "bob", ID: k.ID, IfMatch: "x"}))
	require.NoError(t, n.Service.DeleteAPIToken(t.Context(), TokenDeletion{Username: "bob", ID: k.ID, IfMatch: k.ETag()}))
}

func TestABadTokenRequestNamesEveryFault(t *testing.T) {
	t.Parallel()
	n := withUsers(t)
	_, _, err := n.Service.CreateAPIToken(t.Context(), n.principal(t, "root"), NewAPIToken{
		Username: "root", Name: "a\nb", TTL: MaxTokenTTL + 1, Scopes: []metadata.Scope{readScope("t"), {ResourceType: "x", Pattern: "y", Operation: "z", ResourceName: "t"}},
	})
	requireCode(t, model.InvalidArgument, err)
	var at []string
	for _, f := range model.AsError(err).Fields {
		at = append(at, f.Pointer)
	}
	require.Equal(t, []string{"/name", "/expires_in_s", "/scopes/1/resource_type", "/scopes/1/pattern", "/scopes/1/operation"}, at)
}

func TestTheLastUseIsToldAtOnceAndWrittenDownSeldom(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	text := n.apiToken(t, "alice", nil)
	unused, k2, err := n.Service.CreateAPIToken(t.Context(), n.principal(t, "alice"), NewAPIToken{Username: "alice", Name: "unused"})
	require.NoError(t, err)
	require.NotEmpty(t, unused)
	id := n.idOf(t, text)
	stored := func() *metadata.APIToken { return n.cluster.Image().APIToken(id) }
	at, used := n.Tokens.LastUsed(stored())
	require.True(t, used)
	require.WithinDuration(t, n.clock.now(), at, time.Millisecond)
	_, used = n.Tokens.LastUsed(k2)
	require.False(t, used)

	writes := 0
	n.cluster.onPropose = func(cmd metadata.Command) {
		if c, ok := cmd.(metadata.TouchAPITokens); ok {
			require.Len(t, c.Uses, 1)
			writes++
		}
	}
	for range 600 { // ten minutes of use
		n.clock.advance(time.Second)
		require.Equal(t, "ok", n.verify(text))
		n.Service.noteUses(t.Context())
	}
	require.Equal(t, 10, writes, "one in a minute, however often it is looked at")
	require.InDelta(t, n.clock.now().UnixMilli(), int64(stored().LastUsedAt), float64(time.Minute.Milliseconds()))
	at, _ = n.other(t).Tokens.LastUsed(stored())
	require.Equal(t, stored().LastUsedAt.Time(), at, "another node tells what is written")
	n.Service.noteUses(t.Context())
	require.Equal(t, 10, writes, "what is not used writes nothing")
}

func TestAStopWritesTheLastUsesDown(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	text := n.apiToken(t, "alice", nil)
	id := n.idOf(t, text)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n.Service.Run(ctx)
	require.NotZero(t, n.cluster.Image().APIToken(id).LastUsedAt)
}

func TestAVeryLongUserNameStillFitsAToken(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("\u00e9", 127)
	n := withUsers(t, name)
	require.Equal(t, "ok", n.verify(n.apiToken(t, name, nil)))
}
