package auth

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/cluster/metadata"
	"tidewire/internal/lifecycle"
	"tidewire/internal/model"
)

// guess tries a password from an address and says what became of it.
func (n *node) guess(user, password, host string) string {
	_, err := n.Service.Login(context.Background(), LoginRequest{Username: user, Password: password, Host: host})
	return codeOf(err)
}

const here, there = "10.0.0.1", "10.0.0.2"

func TestTooManyFailuresLockAUserAtAnAddress(t *testing.T) {
	t.Parallel()
	for _, user := range []string{"alice", "nobody"} { // what is locked does not tell who exists
		n := withUsers(t, "alice", "bob")
		for i := range int(pairLimit.burst) {
			require.Equal(t, string(model.BadCredentials), n.guess(user, "wrong", here), "%d", i)
		}
		_, err := n.Service.Login(t.Context(), LoginRequest{Username: user, Password: goodPassword, Host: here})
		requireCode(t, model.LoginLocked, err)
		require.Equal(t, pairLimit.leak, model.AsError(err).RetryAfter)
		require.Equal(t, "ok", n.guess("bob", goodPassword, here), "another user at the address goes on")
		if user == "alice" {
			require.Equal(t, "ok", n.guess(user, goodPassword, there), "and the user elsewhere")
		}
		n.clock.advance(pairLimit.leak)
		require.Equal(t, string(model.BadCredentials), n.guess(user, "wrong", here), "one more in a while")
		require.Equal(t, string(model.LoginLocked), n.guess(user, goodPassword, here))
	}
}

func TestASuccessForgivesFailures(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	for range 5 {
		for range int(pairLimit.burst) - 1 {
			require.Equal(t, string(model.BadCredentials), n.guess("alice", "wrong", here))
		}
		require.Equal(t, "ok", n.guess("alice", goodPassword, here))
	}
}

func TestAnAddressThatTriesManyNamesIsLocked(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice", "bob")
	require.Equal(t, "ok", n.guess("alice", goodPassword, "2001:db8::1"))
	for i := range int(addressLimit.burst) {
		host := fmt.Sprintf("2001:db8::%x", i+2) // one network of one user
		require.Equal(t, string(model.BadCredentials), n.guess(fmt.Sprint("name", i), "wrong", host))
	}
	require.Equal(t, string(model.LoginLocked), n.guess("bob", goodPassword, "2001:db8::ffff"))
	require.Equal(t, "ok", n.guess("alice", goodPassword, "2001:db8::ffff"), "who is known there is let through")
	require.Equal(t, "ok", n.guess("bob", goodPassword, "2001:db8:0:1::1"), "another network")
	n.clock.advance(addressLimit.leak)
	require.Equal(t, "ok", n.guess("bob", goodPassword, "2001:db8::ffff"))
}

func TestLoopbackIsNoOnesAddress(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	for _, host := range []string{"127.0.0.1", "::1", "::ffff:127.0.0.2"} {
		for i := range int(addressLimit.burst) + 1 {
			require.Equal(t, string(model.BadCredentials), n.guess(fmt.Sprint(host, i), "wrong", host))
		}
		require.Equal(t, "ok", n.guess("alice", goodPassword, host))
	}
}

func TestStrangersCannotLockAUserOutWhereItIsKnown(t *testing.T) {
	t.Parallel()
	n := withUsers(t)
	require.Equal(t, "ok", n.guess("root", goodPassword, here))
	locked := 0
	for i := range 500 {
		switch n.guess("root", "wrong", fmt.Sprintf("10.1.%d.%d", i/250, i%250)) {
		case string(model.LoginLocked):
			locked++
		case string(model.BadCredentials):
		default:
			t.Fatal("a guess was neither wrong nor refused")
		}
	}
	require.Equal(t, 500-int(userLimit.burst), locked, "guessing from many places is slow")
	require.Equal(t, string(model.LoginLocked), n.guess("root", goodPassword, there))
	require.Equal(t, "ok", n.guess("root", goodPassword, here))
	n.clock.advance(userLimit.leak)
	require.Equal(t, "ok", n.guess("root", goodPassword, there))
}

// A right password of a user who may not log in must not look different from a wrong one,
// also not by what the limiter forgets.
func TestTheRightPasswordOfADisabledUserCountsAsWrong(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	n.cluster.mustPropose(t, metadata.AlterUser{Name: "alice", Disabled: new(true)})
	for range int(pairLimit.burst) {
		require.Equal(t, string(model.BadCredentials), n.guess("alice", goodPassword, here))
	}
	require.Equal(t, string(model.LoginLocked), n.guess("alice", goodPassword, here))
}

func TestALockedTryCostsNoHashing(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	for range int(pairLimit.burst) {
		n.guess("alice", "wrong", here)
	}
	before := n.hashes.count()
	for range 10 {
		require.Equal(t, string(model.LoginLocked), n.guess("alice", "wrong", here))
	}
	require.Equal(t, before, n.hashes.count())
}

// Guesses that wait side by side are counted by those that went before them.
func TestGuessesSideBySideAreCountedOneByOne(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	const all = 60
	before := n.hashes.count()
	group := lifecycle.New(context.Background())
	codes := make(chan string, all)
	for range all {
		group.Go("guess", func(context.Context) { codes <- n.guess("alice", "wrong", here) })
	}
	count := map[string]int{}
	for range all {
		count[<-codes]++
	}
	require.NoError(t, group.Stop(stopTimeout))
	hashed := n.hashes.count() - before
	require.LessOrEqual(t, hashed, int(pairLimit.burst)+MaxConcurrentHashes-1)
	require.Equal(t, all, count[string(model.BadCredentials)]+count[string(model.LoginLocked)], "%v", count)
}

func TestTriesBeyondTheQueueAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	n.Service.hasher.waiting.Store(maxWaiting)
	require.Equal(t, string(model.RateLimited), n.guess("alice", goodPassword, here))
	n.Service.hasher.waiting.Store(0)
	require.Equal(t, "ok", n.guess("alice", goodPassword, here))
	require.Zero(t, n.Service.hasher.waiting.Load())
}

func TestTheLimiterTakesBoundedMemory(t *testing.T) {
	t.Parallel()
	n := withUsers(t)
	l := n.Service.limiter
	victim := l.try(&LoginRequest{Username: "root", Host: here})
	for range int(pairLimit.burst) {
		victim.settle(false)
	}
	for i := range limiterEntries + 2000 {
		try := l.try(&LoginRequest{Username: fmt.Sprint("u", i), Host: fmt.Sprintf("10.%d.%d.%d", 2+i>>16, i>>8&255, i&255)})
		try.settle(i%2 == 0)
		try.settle(false)
	}
	require.LessOrEqual(t, len(l.pairs.m), limiterEntries)
	require.LessOrEqual(t, len(l.addresses.m), limiterEntries)
	require.LessOrEqual(t, len(l.per.m), limiterEntries)
	require.LessOrEqual(t, len(l.known), limiterEntries)
	require.Error(t, victim.admit(), "a flood does not wash a full bucket away")
}

func TestAClockThatIsSetBackUnlocksNothing(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	for range int(pairLimit.burst) {
		n.guess("alice", "wrong", here)
	}
	n.clock.advance(-24 * time.Hour)
	require.Equal(t, string(model.LoginLocked), n.guess("alice", goodPassword, here))
	n.clock.advance(24*time.Hour + pairLimit.leak)
	require.Equal(t, "ok", n.guess("alice", goodPassword, here))
}

func TestTheCurrentPasswordCannotBeGuessedThroughAStolenToken(t *testing.T) {
	t.Parallel()
	n := withUsers(t, "alice")
	p, err := n.Tokens.Verify(t.Context(), n.login(t, "alice").AccessToken)
	require.NoError(t, err)
	try := func(current string) error {
		return n.Service.SetPassword(t.Context(), p, PasswordChange{Username: "alice", Password: "a new password", Current: &current, Host: here})
	}
	for range int(pairLimit.burst) {
		requireCode(t, model.BadCredentials, try("wrong"))
	}
	requireCode(t, model.LoginLocked, try(goodPassword))
}

func TestALockIsLoggedWithoutThePassword(t *testing.T) {
	t.Parallel()
	n := withUsers(t)
	var log strings.Builder
	n.Service.limiter.log = textLogger(&log)
	evil := "eve\x1b[31m\r\nlevel=ERROR msg=forged"
	for range int(pairLimit.burst) {
		n.guess(evil, "the-password-tried", here)
	}
	require.Equal(t, 1, strings.Count(log.String(), "\n"), "one line: %q", log.String())
	require.Contains(t, log.String(), here)
	require.NotContains(t, log.String(), "\x1b")
	require.NotContains(t, log.String(), "the-password-tried")
}
