package auth

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

func TestTheAdminPasswordAppliesOnlyWhileThereIsNoUser(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	require.True(t, n.Service.SetupRequired())
	did, err := n.Service.Bootstrap(t.Context(), FirstStart{AdminPassword: goodPassword})
	require.NoError(t, err)
	require.Equal(t, Opened{AdminCreated: "admin"}, did)
	require.False(t, n.Service.SetupRequired())
	require.True(t, n.cluster.Image().User("admin").Admin)
	n.login(t, "admin")

	for _, again := range []FirstStart{{AdminPassword: "another horse"}, {Dev: true}, {}} {
		did, err = n.Service.Bootstrap(t.Context(), again)
		require.NoError(t, err)
		require.Equal(t, Opened{}, did)
	}
	n.login(t, "admin")
}

func TestOfTwoFirstStartsOneMakesTheAdmin(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.cluster.onPropose = func(cmd metadata.Command) {
		if c, ok := cmd.(metadata.CreateUser); ok {
			_, err := n.cluster.order(metadata.CreateUser{Name: "first", Admin: true, Credentials: c.Credentials})
			require.NoError(t, err)
		}
	}
	did, err := n.Service.Bootstrap(t.Context(), FirstStart{AdminPassword: goodPassword})
	require.NoError(t, err)
	require.Equal(t, Opened{}, did)
	require.Nil(t, n.cluster.Image().User("admin"))
}

func TestAWeakAdminPasswordStopsTheStart(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, weak := range []string{"short", "password\n"} {
		_, err := n.Service.Bootstrap(t.Context(), FirstStart{AdminPassword: weak})
		requireCode(t, model.InvalidArgument, err)
		require.True(t, n.Service.SetupRequired())
	}
}

func TestDevMakesTheKnownLoginUnlessAPasswordIsGiven(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	_, err := n.Service.Bootstrap(t.Context(), FirstStart{Dev: true})
	require.NoError(t, err)
	_, err = n.Service.Login(t.Context(), LoginRequest{Username: DevUsername, Password: DevPassword})
	require.NoError(t, err)

	n = newNode(t)
	_, err = n.Service.Bootstrap(t.Context(), FirstStart{Dev: true, AdminPassword: goodPassword})
	require.NoError(t, err)
	_, err = n.Service.Login(t.Context(), LoginRequest{Username: DevUsername, Password: DevPassword})
	requireCode(t, model.BadCredentials, err)
	n.login(t, FirstAdmin)
}

func TestSetupByToken(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	did, err := n.Service.Bootstrap(t.Context(), FirstStart{})
	require.NoError(t, err)
	require.Empty(t, did.AdminCreated)
	require.Len(t, did.SetupToken, 43, "256 bits")
	require.NotContains(t, string(n.cluster.Image().Cluster().SetupTokenHash), did.SetupToken)
	require.True(t, n.Service.SetupRequired())

	n.hashes.take()
	for _, wrong := range []string{"", "wrong", did.SetupToken + "A", strings.ToUpper(did.SetupToken)} {
		_, err = n.Service.CompleteSetup(t.Context(), wrong, "root", goodPassword)
		requireCode(t, model.BadCredentials, err)
	}
	_, err = n.Service.CompleteSetup(t.Context(), did.SetupToken, "root", "short")
	requireCode(t, model.InvalidArgument, err)
	_, err = n.Service.CompleteSetup(t.Context(), did.SetupToken, "", goodPassword)
	requireCode(t, model.InvalidArgument, err)
	require.Empty(t, n.hashes.take(), "none of these costs a hashing")
	require.True(t, n.Service.SetupRequired())

	u, err := n.Service.CompleteSetup(t.Context(), did.SetupToken, "root", goodPassword)
	require.NoError(t, err)
	require.True(t, u.Admin)
	require.False(t, n.Service.SetupRequired())
	n.login(t, "root")
	_, err = n.Service.CompleteSetup(t.Context(), did.SetupToken, "root2", goodPassword)
	requireCode(t, model.Conflict, err)
}

func TestARestartBeforeTheSetupEndsTheOlderToken(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	first, err := n.Service.Bootstrap(t.Context(), FirstStart{})
	require.NoError(t, err)
	second, err := n.other(t).Service.Bootstrap(t.Context(), FirstStart{})
	require.NoError(t, err)
	_, err = n.Service.CompleteSetup(t.Context(), first.SetupToken, "root", goodPassword)
	requireCode(t, model.BadCredentials, err)
	_, err = n.Service.CompleteSetup(t.Context(), second.SetupToken, "root", goodPassword)
	require.NoError(t, err)
}

func TestOfTwoSetupsOneWins(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	did, err := n.Service.Bootstrap(t.Context(), FirstStart{})
	require.NoError(t, err)
	n.cluster.onPropose = func(cmd metadata.Command) {
		if c, ok := cmd.(metadata.CreateUser); ok {
			c.Name = "first"
			_, err := n.cluster.order(c)
			require.NoError(t, err)
		}
	}
	_, err = n.Service.CompleteSetup(t.Context(), did.SetupToken, "second", goodPassword)
	require.Error(t, err)
	require.Equal(t, 1, n.cluster.Image().UserCount())
}
