package quorum

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheGrantFileIsTheGoldenOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g, err := LoadGrant(dir)
	require.NoError(t, err)
	require.Zero(t, g, "nobody was granted")
	want := Grant{Node: 7, StorageID: "s-7"}
	require.NoError(t, SaveGrant(dir, Grant{Node: 8, StorageID: "s-8"}))
	require.NoError(t, SaveGrant(dir, want))
	b, err := os.ReadFile(GrantPath(dir))
	require.NoError(t, err)
	require.Equal(t, "tidewire-grant 1\nnode 7\nstorage-id s-7\ncrc32c e2abc5b8\n", string(b))
	g, err = LoadGrant(dir)
	require.NoError(t, err)
	require.Equal(t, want, g)
}

func TestADamagedGrantIsRefused(t *testing.T) {
	t.Parallel()
	good := Grant{Node: 7, StorageID: "s-7"}.encode()
	for i := range good {
		bad := append([]byte{}, good...)
		bad[i] ^= 1
		_, err := decodeGrant(bad)
		require.ErrorIs(t, err, ErrGrant, "byte %d", i)
		_, err = decodeGrant(good[:i])
		require.ErrorIs(t, err, ErrGrant, "cut at %d", i)
	}
	_, err := decodeGrant(append(good, '\n'))
	require.ErrorIs(t, err, ErrGrant)
}

func FuzzDecodeGrant(f *testing.F) {
	f.Add(Grant{Node: 7, StorageID: "s-7"}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if g, err := decodeGrant(b); err == nil {
			require.Equal(t, b, g.encode())
		}
	})
}
