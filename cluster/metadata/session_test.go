package metadata

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewire/internal/model"
)

func sessionOf(id string, now Millis, most int) CreateSession {
	return CreateSession{ID: id, User: "alice", IfEpoch: 8, RefreshHash: []byte(id), ExpiresAt: t0 + day, Now: now, MaxSessions: most}
}

func idsOf(m *Image, user string) []string {
	out := []string{}
	for s := range m.SessionsOf(user) {
		out = append(out, s.ID)
	}
	return out
}

func TestANewSessionEndsTheOneUnusedForLongest(t *testing.T) {
	t.Parallel()
	m := image(t, append(founding(),
		sessionOf("a", t0, 3), sessionOf("b", t0+1, 3), sessionOf("c", t0+2, 3),
		RenewSession{ID: "a", Hash: []byte("a"), ExpiresAt: t0 + day, Now: t0 + 3},
		CreateSession{ID: "r", User: "root", IfEpoch: 7, RefreshHash: []byte("r"), ExpiresAt: t0 + day, Now: t0},
		sessionOf("d", t0+4, 3))...)
	require.Equal(t, []string{"a", "c", "d"}, idsOf(m, "alice"))
	require.Equal(t, []string{"r"}, idsOf(m, "root"), "another user's stays")

	m, _, _ = Apply(m, 100, RevokeSessions{ID: "d"})
	m, d, _ := Apply(m, 101, sessionOf("e", t0+5, 3))
	require.Equal(t, []string{"a", "c", "e"}, idsOf(m, "alice"), "a dead one goes before a live one")
	require.Equal(t, Deleted, d.Sessions["d"])

	m, _, _ = Apply(m, 102, sessionOf("f", t0+6, 1))
	require.Equal(t, []string{"f"}, idsOf(m, "alice"), "a lower limit holds from the next login on")
	m, _, _ = Apply(m, 103, sessionOf("g", t0+7, 0))
	require.Equal(t, []string{"f", "g"}, idsOf(m, "alice"), "without a limit all stay")
}

func TestARenewalNeverMovesASessionBack(t *testing.T) {
	t.Parallel()
	m := image(t, append(founding(), sessionOf("a", t0+10, 0))...)
	renew := func(expires, now Millis) *Session {
		var res Result
		m, _, res = Apply(m, m.Index()+1, RenewSession{ID: "a", Hash: []byte("a"), ExpiresAt: expires, Now: now})
		require.Nil(t, res.Refusal)
		return res.Value.(*Session)
	}
	s := renew(t0+2*day, t0+20)
	require.Equal(t, t0+20, s.RotatedAt)
	require.Equal(t, t0+2*day, s.ExpiresAt)
	before := s.Version
	s = renew(t0+day, t0+5) // a node whose clock lags
	require.Equal(t, t0+20, s.RotatedAt)
	require.Equal(t, t0+2*day, s.ExpiresAt)
	require.Equal(t, before, s.Version, "what changes nothing writes nothing")
	require.Equal(t, []byte("a"), s.CurrentHash)
}

func TestUsedTicketsAreBoundedAndForgottenInTime(t *testing.T) {
	t.Parallel()
	m := image(t, append(founding(), sessionOf("a", t0, 0))...)
	use := func(id string, now Millis) *model.Error {
		var res Result
		m, _, res = Apply(m, m.Index()+1, UseTicket{ID: id, SessionID: "a", ExpiresAt: now + 30, Now: now})
		return res.Refusal
	}
	for i := range maxUsedTickets {
		require.Nil(t, use(fmt.Sprint(i), t0))
	}
	require.Equal(t, model.RateLimited, use("more", t0+29).Code)
	require.Equal(t, model.BadCredentials, use("7", t0+29).Code)
	require.Len(t, m.Session("a").UsedTickets, maxUsedTickets)
	require.Nil(t, use("later", t0+30))
	require.Len(t, m.Session("a").UsedTickets, 1, "what has expired is not kept")
}

func TestTheLastUseOfATokenOnlyGrowsAndIsNotItsVersion(t *testing.T) {
	t.Parallel()
	m := image(t, append(founding(), CreateAPIToken{ID: "k", User: "alice", Name: "n", Now: t0})...)
	tag := m.APIToken("k").ETag()
	touch := func(at Millis) (noted any, d Delta) {
		var res Result
		m, d, res = Apply(m, m.Index()+1, TouchAPITokens{Uses: []TokenUse{{ID: "k", At: at}, {ID: "gone", At: at}}})
		return res.Value, d
	}
	noted, d := touch(t0 + 5)
	require.Equal(t, 1, noted)
	require.Equal(t, Changed, d.APITokens["k"])
	noted, d = touch(t0 + 4)
	require.Equal(t, 0, noted)
	require.True(t, d.IsEmpty())
	require.Equal(t, t0+5, m.APIToken("k").LastUsedAt)
	require.Equal(t, tag, m.APIToken("k").ETag())
}

func TestAWordThatNoRuleHasIsToldWithTheWordsThereAre(t *testing.T) {
	t.Parallel()
	require.Equal(t, `a pattern is one of literal, prefixed; not "prefix"`, CheckWord("pattern", "prefix"))
	require.Equal(t, `a permission is one of allow, deny; not "Allow"`, CheckWord("permission", "Allow"))
	require.Contains(t, CheckWord("operation", "produce"), "read, write, create, delete, alter, describe, describe-configs, alter-configs, cluster-action, idempotent-write, all")
	require.Contains(t, CheckWord("resource_type", ""), "topic, group, transactional-id, cluster")
	require.Empty(t, CheckWord("operation", "all"))
	for _, f := range CheckACL("", ACLFields{Principal: "User:a", ResourceName: "t", Host: "*"}) {
		require.Contains(t, f.Detail, " is one of ", f.Pointer)
	}
}
