package auth

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

func ptr[T any](v T) *T { return &v }

func root() *Principal { return &Principal{Name: "root", Admin: true} }

func TestNewUsersAreCheckedBeforeAnyHashing(t *testing.T) {
	t.Parallel()
	n := withUsers(t)
	n.hashes.take()
	for _, row := range []struct {
		user     NewUser
		code     model.Code
		pointers string
	}{
		{NewUser{Username: "", Password: goodPassword}, model.InvalidArgument, "/username"},
		{NewUser{Username: "..", Password: goodPassword}, model.InvalidArgument, "/username"},
		{NewUser{Username: "*", Password: goodPassword}, model.InvalidArgument, "/username"},
		{NewUser{Username: "a\nb", Password: goodPassword}, model.InvalidArgument, "/username"},
		{NewUser{Username: strings.Repeat("x", 256), Password: goodPassword}, model.InvalidArgument, "/username"},
		{NewUser{Username: "alice", Password: "short"}, model.InvalidArgument, "/password"},
		{NewUser{Username: "alice", Password: "password\n"}, model.InvalidArgument, "/password"},
		{NewUser{Username: "root", Password: goodPassword}, model.UserExists, ""},
	} {
		_, err := n.Service.CreateUser(t.Context(), row.user)
		requireCode(t, row.code, err)
		if row.pointers != "" {
			require.Equal(t, row.pointers, model.AsError(err).Fields[0].Pointer)
		}
	}
	require.Empty(t, n.hashes.take())
}

func TestOneNameGoesToOneUser(t *testing.T) {
	t.Parallel()
	n := withUsers(t)
	// Another node makes the same user between the look and the proposal.
	done := false
	n.cluster.onPropose = func(cmd metadata.Command) {
		if c, ok := cmd.(metadata.CreateUser); ok && !done {
			done = true
			_, err := n.cluster.order(c)
			require.NoError(t, err)
		}
	}
	_, err := n.Service.CreateUser(t.Context(), NewUser{Username: "alice", Password: goodPassword})
	requireCode(t, model.UserExists, err)
}

func TestAUserKeepsAHashAndSealedVerifiersOnly(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	u := n.cluster.Image().User("alice")
	require.True(t, strings.HasPrefix(u.PasswordHash, "$argon2id$"))
	for m, sealed := range map[ScramMechanism][]byte{ScramSHA256: u.SCRAMSHA256, ScramSHA512: u.SCRAMSHA512} {
		v, err := testSealer(t).OpenScram(m, "alice", sealed)
		require.NoError(t, err, m)
		require.NotContains(t, string(sealed), string(v.StoredKey))
		hash, _, err := scramHash(m)
		require.NoError(t, err)
		require.True(t, scramLogin(t, hash, v, goodPassword), m)
	}
	b, err := metadata.EncodeCommand(metadata.CreateUser{Name: "alice", Credentials: u.Credentials})
	require.NoError(t, err)
	require.NotContains(t, string(b), goodPassword)
}

func TestLoginRefusesAlikeWhateverIsWrong(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice", "off")
	_, err := n.Service.AlterUser(t.Context(), "off", UserChange{Disabled: ptr(true)})
	require.NoError(t, err)
	var details []string
	for name, row := range map[string]struct{ user, password string }{
		"wrong password":           {"alice", "wrong horse"},
		"empty password":           {"alice", ""},
		"unknown user":             {"nobody", goodPassword},
		"impossible user":          {"a\x00b", goodPassword},
		"disabled user":            {"off", goodPassword},
		"disabled, wrong password": {"off", "wrong horse"},
		"names have case":          {"Alice", goodPassword},
	} {
		n.hashes.take()
		barriers := n.cluster.barriers.Load()
		_, err := n.Service.Login(t.Context(), LoginRequest{Username: row.user, Password: row.password})
		requireCode(t, model.BadCredentials, err)
		details = append(details, model.AsError(err).Detail)
		require.Equal(t, []Argon2Params{cheapArgon()}, n.hashes.take(), "%s: one hashing of the usual cost", name)
		require.EqualValues(t, 1, n.cluster.barriers.Load()-barriers, name)
	}
	for _, d := range details {
		require.Equal(t, details[0], d)
	}
}

func TestAnOverlongPasswordCostsNobodyAHashing(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	n.hashes.take()
	for _, user := range []string{"alice", "nobody"} {
		_, err := n.Service.Login(t.Context(), LoginRequest{Username: user, Password: strings.Repeat("x", MaxPassword+1)})
		requireCode(t, model.BadCredentials, err)
	}
	require.Empty(t, n.hashes.take())
}

func TestAUserMadeOnAnotherNodeCanLogInHere(t *testing.T) {
	t.Parallel()
	n := withUsers(t)
	behind := n.other(t)
	n.addUser(t, "alice", false)
	_, err := behind.Service.Login(t.Context(), LoginRequest{Username: "alice", Password: goodPassword})
	require.NoError(t, err)
}

func TestLoginWithoutAQuorumSaysSo(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	n.cluster.offline.Store(true)
	_, err := n.Service.Login(t.Context(), LoginRequest{Username: "nobody", Password: goodPassword})
	requireCode(t, model.QuorumUnavailable, err)
}

func TestAPasswordChangedDuringALoginVoidsIt(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	n.cluster.onPropose = func(cmd metadata.Command) {
		if _, ok := cmd.(metadata.CreateSession); ok {
			_, err := n.cluster.order(metadata.SetPassword{Name: "alice", Credentials: metadata.Credentials{PasswordHash: "x"}})
			require.NoError(t, err)
		}
	}
	_, err := n.Service.Login(t.Context(), LoginRequest{Username: "alice", Password: goodPassword})
	requireCode(t, model.BadCredentials, err)
}

func TestSettingAPassword(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice", "bob")
	alice := &Principal{Name: "alice"}
	for name, row := range map[string]struct {
		actor  *Principal
		change PasswordChange
		want   string
	}{
		"own without current":         {alice, PasswordChange{Username: "alice", Password: "another horse"}, "invalid-argument"},
		"own with a wrong one":        {alice, PasswordChange{Username: "alice", Password: "another horse", Current: ptr("wrong")}, "bad-credentials"},
		"own with an empty one":       {alice, PasswordChange{Username: "alice", Password: "another horse", Current: ptr("")}, "bad-credentials"},
		"an admin's own too":          {root(), PasswordChange{Username: "root", Password: "another horse"}, "invalid-argument"},
		"a weak one":                  {root(), PasswordChange{Username: "alice", Password: "short"}, "invalid-argument"},
		"another's":                   {alice, PasswordChange{Username: "bob", Password: "another horse", Current: ptr(goodPassword)}, "forbidden"},
		"another's, unknown":          {alice, PasswordChange{Username: "nobody", Password: "another horse"}, "forbidden"},
		"a rank that is only claimed": {&Principal{Name: "alice", Admin: true}, PasswordChange{Username: "bob", Password: "another horse"}, "forbidden"},
		"unknown, by an admin":        {root(), PasswordChange{Username: "nobody", Password: "another horse"}, "unknown-user"},
	} {
		require.Equal(t, row.want, codeOf(n.Service.SetPassword(t.Context(), row.actor, row.change)), name)
	}
	for _, u := range []string{"alice", "bob", "root"} {
		n.login(t, u) // none of these changed anything
	}
	require.NoError(t, n.Service.SetPassword(t.Context(), alice, PasswordChange{Username: "alice", Password: "another horse", Current: ptr(goodPassword)}))
	_, err := n.Service.Login(t.Context(), LoginRequest{Username: "alice", Password: goodPassword})
	requireCode(t, model.BadCredentials, err)
	_, err = n.Service.Login(t.Context(), LoginRequest{Username: "alice", Password: "another horse"})
	require.NoError(t, err)
}

func TestOfTwoChangesOfOnesOwnPasswordOneWins(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	n.cluster.onPropose = func(cmd metadata.Command) {
		if c, ok := cmd.(metadata.SetPassword); ok {
			_, err := n.cluster.order(metadata.SetPassword{Name: c.Name, Credentials: c.Credentials})
			require.NoError(t, err)
		}
	}
	err := n.Service.SetPassword(t.Context(), &Principal{Name: "alice"}, PasswordChange{Username: "alice", Password: "another horse", Current: ptr(goodPassword)})
	requireCode(t, model.Conflict, err)
}

// Each of these kills every token of alice's by the very next call, and the
// refresh token with them, but nobody else's.
func TestTokensDieWithWhatTheyRestOn(t *testing.T) {
	t.Parallel()
	for name, kill := range map[string]func(t *testing.T, n *node, p *Principal) error{
		"password set by the user": func(t *testing.T, n *node, p *Principal) error {
			return n.Service.SetPassword(t.Context(), p, PasswordChange{Username: "alice", Password: goodPassword, Current: ptr(goodPassword)})
		},
		"password set by an admin": func(t *testing.T, n *node, _ *Principal) error {
			return n.Service.SetPassword(t.Context(), root(), PasswordChange{Username: "alice", Password: goodPassword})
		},
		"disabled": func(t *testing.T, n *node, _ *Principal) error {
			_, err := n.Service.AlterUser(t.Context(), "alice", UserChange{Disabled: ptr(true)})
			return err
		},
		"disabled and enabled again": func(t *testing.T, n *node, _ *Principal) error {
			_, err := n.Service.AlterUser(t.Context(), "alice", UserChange{Disabled: ptr(true)})
			require.NoError(t, err)
			_, err = n.Service.AlterUser(t.Context(), "alice", UserChange{Disabled: ptr(false)})
			return err
		},
		"deleted": func(t *testing.T, n *node, _ *Principal) error {
			return n.Service.DeleteUser(t.Context(), "alice", "")
		},
		"deleted and made again": func(t *testing.T, n *node, _ *Principal) error {
			require.NoError(t, n.Service.DeleteUser(t.Context(), "alice", ""))
			n.addUser(t, "alice", false)
			return nil
		},
		"logged out": func(t *testing.T, n *node, p *Principal) error {
			return n.Service.Logout(t.Context(), p)
		},
	} {
		n := withUsers(t, "alice", "bob")
		g, others := n.login(t, "alice"), n.login(t, "bob")
		p, err := n.Tokens.Verify(t.Context(), g.AccessToken)
		require.NoError(t, err, name)
		require.Equal(t, "ok", n.verify(others.AccessToken), name)

		require.NoError(t, kill(t, n, p), name)

		require.Equal(t, string(model.Unauthenticated), n.verify(g.AccessToken), name)
		require.Equal(t, string(model.Unauthenticated), verdict(NewTokens(n.cluster, n.clock.now), g.AccessToken), "%s, not remembered", name)
		_, err = n.Service.Refresh(t.Context(), g.RefreshToken)
		require.Equal(t, string(model.Unauthenticated), codeOf(err), name)
		require.Equal(t, "ok", n.verify(others.AccessToken), name)
	}
}

func TestLogoutEndsOneSessionOnly(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	a, b := n.login(t, "alice"), n.login(t, "alice")
	p, err := n.Tokens.Verify(t.Context(), a.AccessToken)
	require.NoError(t, err)
	require.NoError(t, n.Service.Logout(t.Context(), &Principal{Name: "alice"}), "without a session")
	require.Equal(t, "ok", n.verify(a.AccessToken))
	require.NoError(t, n.Service.Logout(t.Context(), &Principal{Name: "bob", SessionID: p.SessionID}), "of another user")
	require.Equal(t, "ok", n.verify(a.AccessToken))
	require.NoError(t, n.Service.Logout(t.Context(), p))
	require.NoError(t, n.Service.Logout(t.Context(), p), "twice")
	require.NotEqual(t, "ok", n.verify(a.AccessToken))
	require.Equal(t, "ok", n.verify(b.AccessToken))
}

func TestTheLastAdministratorStaysOne(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	_, err := n.Service.AlterUser(t.Context(), "root", UserChange{Admin: ptr(false)})
	requireCode(t, model.LastAdmin, err)
	_, err = n.Service.AlterUser(t.Context(), "root", UserChange{Disabled: ptr(true)})
	requireCode(t, model.LastAdmin, err)
	requireCode(t, model.LastAdmin, n.Service.DeleteUser(t.Context(), "root", ""))
	_, err = n.Service.AlterUser(t.Context(), "alice", UserChange{Admin: ptr(true)})
	require.NoError(t, err)
	require.NoError(t, n.Service.DeleteUser(t.Context(), "root", ""))
}

func TestAStaleEtagChangesNoUser(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	old := n.cluster.Image().User("alice").ETag()
	_, err := n.Service.AlterUser(t.Context(), "alice", UserChange{Admin: ptr(true), IfMatch: old})
	require.NoError(t, err)
	_, err = n.Service.AlterUser(t.Context(), "alice", UserChange{Admin: ptr(false), IfMatch: old})
	requireCode(t, model.ETagMismatch, err)
	requireCode(t, model.ETagMismatch, n.Service.DeleteUser(t.Context(), "alice", old))
	require.True(t, n.cluster.Image().User("alice").Admin)
}
