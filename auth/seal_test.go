package auth

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/xdg-go/scram"
)

func testSealer(t testing.TB) *Sealer {
	t.Helper()
	s, err := NewSealer(bytes.Repeat([]byte{7}, secretBytes))
	require.NoError(t, err)
	return s
}

func TestSealedValuesOpenOnlyForTheirPurposeAndKey(t *testing.T) {
	t.Parallel()
	s := testSealer(t)
	sealed := s.Seal("signing-key:a", []byte("secret"))
	plain, err := s.Open("signing-key:a", sealed)
	require.NoError(t, err)
	require.Equal(t, "secret", string(plain))
	require.NotContains(t, string(sealed), "secret")

	_, err = s.Open("signing-key:b", sealed)
	require.ErrorIs(t, err, ErrSealedAuth)

	other, err := NewSealer(bytes.Repeat([]byte{8}, secretBytes))
	require.NoError(t, err)
	_, err = other.Open("signing-key:a", sealed)
	require.ErrorIs(t, err, ErrSealedKey)
}

func TestEveryChangedByteOfASealedValueIsNoticed(t *testing.T) {
	t.Parallel()
	s := testSealer(t)
	sealed := s.Seal("p", []byte("secret"))
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 1
		_, err := s.Open("p", bad)
		require.Error(t, err, "byte %d", i)
		_, err = s.Open("p", sealed[:i])
		require.Error(t, err, "cut at %d", i)
	}
}

// The bytes of version 1 are fixed: a value sealed by an older release opens.
func TestVersion1OfTheSealedFormOpens(t *testing.T) {
	t.Parallel()
	golden, err := os.ReadFile(filepath.Join("testdata", "sealed-v1.bin"))
	require.NoError(t, err)
	require.Equal(t, byte(1), golden[0])
	plain, err := testSealer(t).Open("golden", golden)
	require.NoError(t, err)
	require.Equal(t, "a value sealed by format 1", string(plain))
}

func TestTwoSealsOfOneValueDiffer(t *testing.T) {
	t.Parallel()
	s := testSealer(t)
	require.NotEqual(t, s.Seal("p", []byte("x")), s.Seal("p", []byte("x")))
}

func TestTheSecretIsMadeOnceAndKeptPrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := LoadSecret(dir)
	require.NoError(t, err)
	require.Len(t, first, secretBytes)
	info, err := os.Stat(filepath.Join(dir, SecretKeyName))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "no temporary file stays behind")

	again, err := LoadSecret(dir)
	require.NoError(t, err)
	require.Equal(t, first, again)
}

func TestASecretThatOthersCanReadOrThatIsCutIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, SecretKeyName)
	_, err := LoadSecret(dir)
	require.NoError(t, err)
	for _, mode := range []os.FileMode{0o640, 0o604, 0o610} {
		require.NoError(t, os.Chmod(path, mode))
		_, err = LoadSecret(dir)
		require.ErrorIs(t, err, ErrSecretKey, "%o", mode)
	}
	require.NoError(t, os.Chmod(path, 0o600))
	for _, n := range []int{0, 31, 33} {
		require.NoError(t, os.WriteFile(path, make([]byte, n), 0o600))
		_, err = LoadSecret(dir)
		require.ErrorIs(t, err, ErrSecretKey, "%d bytes", n)
	}
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Symlink("/dev/zero", path))
	_, err = LoadSecret(dir)
	require.ErrorIs(t, err, ErrSecretKey)
}

func TestAFolderThatIsMissingIsAnError(t *testing.T) {
	t.Parallel()
	_, err := LoadSecret(filepath.Join(t.TempDir(), "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestASecretOfAnotherLengthMakesNoSealer(t *testing.T) {
	t.Parallel()
	_, err := NewSealer(make([]byte, 16))
	require.ErrorIs(t, err, ErrSecretKey)
}

func TestScramVerifiersLetAClientLogInWithThePasswordOnly(t *testing.T) {
	t.Parallel()
	h, s := NewHasher(cheapArgon()), testSealer(t)
	const password = "pässwörd 🦆" // SASLprep would refuse it
	for m, fn := range map[ScramMechanism]scram.HashGeneratorFcn{ScramSHA256: scram.SHA256, ScramSHA512: scram.SHA512} {
		v, err := h.Scram(t.Context(), m, password)
		require.NoError(t, err)
		require.Equal(t, ScramIterations, v.Iterations)
		opened, err := s.OpenScram(m, "alice", s.SealScram(m, "alice", v))
		require.NoError(t, err)
		require.Equal(t, v, opened)
		require.True(t, scramLogin(t, fn, opened, password), m)
		require.False(t, scramLogin(t, fn, opened, "another password"), m)
	}
}

func scramLogin(t *testing.T, fn scram.HashGeneratorFcn, v ScramVerifier, password string) bool {
	t.Helper()
	server, err := fn.NewServer(func(string) (scram.StoredCredentials, error) { return v.Credentials(), nil })
	require.NoError(t, err)
	client, err := fn.NewClientUnprepped("alice", password, "")
	require.NoError(t, err)
	cc, sc := client.NewConversation(), server.NewConversation()
	msg, err := cc.Step("")
	for err == nil && !sc.Done() {
		if msg, err = sc.Step(msg); err == nil {
			msg, err = cc.Step(msg)
		}
	}
	return err == nil && sc.Valid() && cc.Valid()
}

func TestASealedVerifierIsBoundToItsUserAndMechanism(t *testing.T) {
	t.Parallel()
	h, s := NewHasher(cheapArgon()), testSealer(t)
	v, err := h.Scram(t.Context(), ScramSHA256, "correct horse")
	require.NoError(t, err)
	sealed := s.SealScram(ScramSHA256, "alice", v)
	_, err = s.OpenScram(ScramSHA256, "bob", sealed)
	require.ErrorIs(t, err, ErrSealedAuth)
	_, err = s.OpenScram(ScramSHA512, "alice", sealed)
	require.ErrorIs(t, err, ErrSealedAuth)
}

func FuzzScramVerifierDecoding(f *testing.F) {
	v := ScramVerifier{Salt: make([]byte, 16), Iterations: 4096, StoredKey: make([]byte, 32), ServerKey: make([]byte, 32)}
	f.Add(v.encode())
	f.Add([]byte{1, 0, 0, 16, 0, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := decodeScram(ScramSHA256, b); err == nil {
			require.Equal(t, b, v.encode())
		}
	})
}

func FuzzPasswordHashParsing(f *testing.F) {
	f.Add(formatPHC(cheapArgon(), make([]byte, 16), make([]byte, 32)))
	f.Add("$argon2id$v=19$m=,t=,p=$$")
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := parsePHC(s); err == nil {
			require.LessOrEqual(t, p.params.MemoryKiB, uint32(argonMaxMemoryKiB))
			require.LessOrEqual(t, len(p.key), 64)
		}
	})
}
