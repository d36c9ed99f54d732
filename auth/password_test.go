package auth

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/argon2"

	"tidewire/internal/lifecycle"
)

// cheapArgon keeps tests fast; the real parameters have their own test.
func cheapArgon() Argon2Params { return Argon2Params{MemoryKiB: 64, Iterations: 1, Parallelism: 1} }

// cheapHasher is for tests that are about something else.
func cheapHasher() *Hasher {
	h := NewHasher(cheapArgon())
	h.scramIterations = 4096
	return h
}

func TestAHashVerifiesOnlyItsOwnPassword(t *testing.T) {
	t.Parallel()
	h := NewHasher(DefaultArgon2())
	hash, err := h.Hash(t.Context(), "correct horse")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(hash, "$argon2id$v=19$m=19456,t=2,p=1$"), hash)
	ok, err := h.Verify(t.Context(), hash, "correct horse")
	require.NoError(t, err)
	require.True(t, ok)
	ok, err = h.Verify(t.Context(), hash, "correct horsf")
	require.NoError(t, err)
	require.False(t, ok)
}

func TestTwoHashesOfOnePasswordDiffer(t *testing.T) {
	t.Parallel()
	h := NewHasher(cheapArgon())
	a, err := h.Hash(t.Context(), "correct horse")
	require.NoError(t, err)
	b, err := h.Hash(t.Context(), "correct horse")
	require.NoError(t, err)
	require.NotEqual(t, a, b)
}

func TestAHashIsVerifiedWithItsOwnParameters(t *testing.T) {
	t.Parallel()
	old := NewHasher(Argon2Params{MemoryKiB: 128, Iterations: 3, Parallelism: 2})
	hash, err := old.Hash(t.Context(), "correct horse")
	require.NoError(t, err)
	ok, err := NewHasher(cheapArgon()).Verify(t.Context(), hash, "correct horse")
	require.NoError(t, err)
	require.True(t, ok)
}

func TestADamagedHashIsAnErrorAndNotAMatch(t *testing.T) {
	t.Parallel()
	h := NewHasher(cheapArgon())
	good, err := h.Hash(t.Context(), "correct horse")
	require.NoError(t, err)
	for name, stored := range map[string]string{
		"plain text":       "correct horse",
		"other variant":    strings.Replace(good, "argon2id", "argon2i", 1),
		"other version":    strings.Replace(good, "v=19", "v=16", 1),
		"no memory":        strings.Replace(good, "m=64", "m=0", 1),
		"too much memory":  strings.Replace(good, "m=64", "m=4194304", 1),
		"no iterations":    strings.Replace(good, "t=1", "t=0", 1),
		"many iterations":  strings.Replace(good, "t=1", "t=1000", 1),
		"no lanes":         strings.Replace(good, "p=1", "p=0", 1),
		"negative":         strings.Replace(good, "t=1", "t=-1", 1),
		"missing part":     strings.Replace(good, ",p=1", "", 1),
		"renamed part":     strings.Replace(good, "m=64", "x=64", 1),
		"short key":        good[:len(good)-30],
		"not base64":       good[:len(good)-1] + "!",
		"something behind": good + "$x",
	} {
		ok, err := h.Verify(t.Context(), stored, "correct horse")
		require.ErrorIs(t, err, errPHC, name)
		require.False(t, ok, name)
	}
}

func TestAnUnknownUserCostsTheSameHashing(t *testing.T) {
	t.Parallel()
	h, calls := countingHasher()
	hash, err := h.Hash(t.Context(), "correct horse")
	require.NoError(t, err)
	known := calls.take()
	_, err = h.Verify(t.Context(), hash, "wrong horse")
	require.NoError(t, err)
	require.Equal(t, known, calls.take())
	ok, err := h.Verify(t.Context(), "", "wrong horse")
	require.NoError(t, err)
	require.False(t, ok)
	require.Equal(t, known, calls.take())
}

// hashCalls records the cost of each derivation.
type hashCalls struct {
	mu    sync.Mutex
	costs []Argon2Params // guarded by mu
}

// count is how many there were since the last take.
func (c *hashCalls) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.costs)
}

func (c *hashCalls) take() []Argon2Params {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.costs
	c.costs = nil
	return out
}

func countingHasher() (*Hasher, *hashCalls) {
	h, c := cheapHasher(), &hashCalls{}
	h.derive = func(pw, salt []byte, time, memory uint32, threads uint8, keyLen uint32) []byte {
		c.mu.Lock()
		c.costs = append(c.costs, Argon2Params{MemoryKiB: memory, Iterations: time, Parallelism: threads})
		c.mu.Unlock()
		return argon2.IDKey(pw, salt, time, memory, threads, keyLen)
	}
	return h, c
}

func TestOnlyTwoHashingsRunAtOnce(t *testing.T) {
	t.Parallel()
	h := NewHasher(cheapArgon())
	started, release := make(chan struct{}, 8), make(chan struct{})
	h.derive = func(_, _ []byte, _, _ uint32, _ uint8, n uint32) []byte {
		started <- struct{}{}
		<-release
		return make([]byte, n)
	}
	g := lifecycle.New(context.Background())
	for range 5 {
		g.Go("hash", func(context.Context) {
			_, _ = h.Hash(context.Background(), "correct horse")
		})
	}
	<-started
	<-started
	// Both slots are taken: whoever comes now waits until its context ends.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := h.Hash(ctx, "correct horse")
	require.ErrorIs(t, err, context.Canceled)
	_, err = h.Scram(ctx, ScramSHA256, "correct horse")
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, h.slots, MaxConcurrentHashes)
	require.Empty(t, started, "a third hashing started while two were running")
	release <- struct{}{}
	<-started // one ended, one of those waiting began
	close(release)
	require.NoError(t, g.Stop(stopTimeout))
	require.Empty(t, h.slots)
}

func TestPasswordRules(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"tidewire", strings.Repeat("x", MaxPassword), "pässwörd", "a b c d e", "🦆🦆"} {
		require.Empty(t, CheckPassword(good), good)
	}
	for _, bad := range []string{"", "1234567", strings.Repeat("x", MaxPassword+1), "password\n", "pass\x00word", "pass\x7fword", "password\xff"} {
		require.NotEmpty(t, CheckPassword(bad), "%q", bad)
	}
}
