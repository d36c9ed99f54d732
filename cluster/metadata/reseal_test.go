package metadata

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSealedValuesAreReplacedWhereTheyAreWhatWasOpened(t *testing.T) {
	t.Parallel()
	m := image(t, append(founding(),
		AddSigningKey{KID: "k1", PublicKey: []byte("p"), SealedPrivate: []byte("s1"), SignUntil: t0 + day, VerifyUntil: t0 + 2*day, Now: t0},
		AddSigningKey{KID: "k2", PublicKey: []byte("q"), SealedPrivate: []byte("s2"), SignUntil: t0 + day, VerifyUntil: t0 + 2*day, IfNewest: "k1", Now: t0},
	)...)
	u := m.User("alice")
	require.NotEmpty(t, u.SCRAMSHA256)
	require.NotEmpty(t, u.SCRAMSHA512)
	next, d, res := Apply(m, m.Index()+1, Reseal{
		SigningKeys: []ResealedKey{
			{"k1", Resealed{[]byte("s1"), []byte("n1")}},
			{"k2", Resealed{[]byte("other"), []byte("n2")}}, // it was replaced meanwhile
			{"k3", Resealed{[]byte("s3"), []byte("n3")}},
		},
		Users: []ResealedUser{
			{"alice", Resealed{u.SCRAMSHA256, []byte("v")}, Resealed{}},
			{"root", Resealed{[]byte("other"), []byte("v")}, Resealed{}},
			{"nobody", Resealed{[]byte("x"), []byte("v")}, Resealed{}},
		},
	})
	require.Nil(t, res.Refusal)
	require.Equal(t, 2, res.Value)
	require.Len(t, d.SigningKeys, 1)
	require.Len(t, d.Users, 1)
	require.Equal(t, "n1", string(next.SigningKey("k1").SealedPrivate))
	require.Equal(t, "s2", string(next.SigningKey("k2").SealedPrivate))
	require.Equal(t, "k2", next.NewestSigningKey().KID, "their order is what it was")
	now := next.User("alice")
	require.Equal(t, "v", string(now.SCRAMSHA256))
	now2 := *now
	now2.SCRAMSHA256 = u.SCRAMSHA256
	require.Equal(t, u, &now2, "nothing else of a user changes")
}
