package auth

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A node that gets a cluster key seals anew what it has, so that other nodes can open it.
func TestSecretsAreSealedAnewUnderAnotherKey(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	old := n.login(t, "alice")
	before := kids(n.cluster.Image())
	next, err := NewSealer(append([]byte("another key"), make([]byte, secretBytes-11)...))
	require.NoError(t, err)
	former := n.Service.sealer
	other := New(Config{Cluster: n.cluster, Sealer: next, Hasher: cheapHasher(), Now: n.clock.now})

	u := n.cluster.Image().User("alice")
	_, err = next.OpenScram(ScramSHA256, "alice", u.SCRAMSHA256)
	require.ErrorIs(t, err, ErrSealedKey)
	require.NoError(t, other.Service.Reseal(t.Context(), former))
	index := n.cluster.Image().Index()
	require.NoError(t, other.Service.Reseal(t.Context(), former))
	require.Equal(t, index, n.cluster.Image().Index(), "the second time there is nothing to do")

	u = n.cluster.Image().User("alice")
	for m, sealed := range map[ScramMechanism][]byte{ScramSHA256: u.SCRAMSHA256, ScramSHA512: u.SCRAMSHA512} {
		_, err = next.OpenScram(m, "alice", sealed)
		require.NoError(t, err)
	}
	require.Equal(t, "ok", verdict(other.Tokens, old.AccessToken))
	fresh, err := other.Service.Login(t.Context(), LoginRequest{Username: "alice", Password: goodPassword})
	require.NoError(t, err)
	require.Equal(t, "ok", n.verify(fresh.AccessToken))
	require.Equal(t, before, kids(n.cluster.Image()), "no new key was needed")
}

func TestTheFormerSecretIsLookedForAndNotMade(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	none, err := FormerSealer(dir)
	require.NoError(t, err)
	require.Nil(t, none)
	require.NoFileExists(t, filepath.Join(dir, SecretKeyName))
	_, err = LoadSecret(dir)
	require.NoError(t, err)
	former, err := FormerSealer(dir)
	require.NoError(t, err)
	require.NotNil(t, former)
	require.NoError(t, os.Chmod(filepath.Join(dir, SecretKeyName), 0o644))
	_, err = FormerSealer(dir)
	require.ErrorIs(t, err, ErrSecretKey)
}
