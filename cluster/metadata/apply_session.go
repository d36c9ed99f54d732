package metadata

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"tidewire/internal/model"
)

// revokeAll ends all sessions of a user.
func (t *tx) revokeAll(user string) int {
	n := 0
	for _, s := range t.sessions.of(user) {
		n += t.revoke(s)
	}
	return n
}

func (t *tx) revoke(s *Session) int {
	if s.Revoked {
		return 0
	}
	n := *s
	n.Revoked, n.Version = true, t.index
	t.putSession(&n)
	return 1
}

// pruneExpired removes sessions and tokens that have expired by now, as the command
// says it; every node removes the same ones.
func (t *tx) pruneExpired(now Millis) int {
	n := 0
	for _, s := range t.sessions.expired(now) {
		t.removeSession(s)
		n++
	}
	for _, k := range t.tokens.expired(now) {
		t.removeToken(k)
		n++
	}
	return n
}

func (t *tx) pruneKeys(now Millis) int {
	var dead []*SigningKey
	t.keys.Root().Walk(func(_ []byte, k *SigningKey) bool {
		if k.VerifyUntil <= now {
			dead = append(dead, k)
		}
		return false
	})
	for _, k := range dead {
		t.removeKey(k)
	}
	return len(dead)
}

func applyPrune(t *tx, c Prune) (any, *model.Error) {
	return t.pruneExpired(c.Now) + t.pruneKeys(c.Now), nil
}

// badSession is the one refusal for every reason a session is no good: which one is
// nobody's business who holds a bad token.
func badSession() *model.Error {
	return model.Errorf(model.BadCredentials, "the session is not valid; log in again")
}

func applyCreateSession(t *tx, c CreateSession) (any, *model.Error) {
	u := t.user(c.User)
	switch {
	case u == nil || u.Disabled || u.CredentialsEpoch != c.IfEpoch:
		return nil, model.Errorf(model.BadCredentials, "user name or password is wrong")
	case c.ID == "" || len(c.RefreshHash) == 0:
		return nil, model.Invalid("", "a session needs an id and the hash of its refresh token")
	case c.ExpiresAt <= c.Now:
		return nil, model.Invalid("", "a session must end after it begins")
	}
	if _, taken := t.sessions.byID.Get([]byte(c.ID)); taken {
		return nil, model.Errorf(model.Conflict, "the session id is taken")
	}
	t.pruneExpired(c.Now)
	t.makeRoom(c.User, c.MaxSessions)
	s := &Session{
		ID: c.ID, User: c.User, CurrentHash: c.RefreshHash,
		CreatedAt: c.Now, RotatedAt: c.Now, ExpiresAt: c.ExpiresAt, Version: t.index,
	}
	t.putSession(s)
	return s, nil
}

// makeRoom removes sessions of a user until there are fewer than most.
func (t *tx) makeRoom(user string, most int) {
	sessions := t.sessions.of(user)
	if most <= 0 || len(sessions) < most {
		return
	}
	slices.SortFunc(sessions, func(a, b *Session) int {
		switch {
		case a.Revoked != b.Revoked && a.Revoked:
			return -1
		case a.Revoked != b.Revoked:
			return 1
		}
		return cmp.Or(cmp.Compare(a.RotatedAt, b.RotatedAt), cmp.Compare(a.Version, b.Version), cmp.Compare(a.ID, b.ID))
	})
	for _, s := range sessions[:len(sessions)-most+1] {
		t.removeSession(s)
	}
}

func applyRenewSession(t *tx, c RenewSession) (any, *model.Error) {
	s, _ := t.sessions.byID.Get([]byte(c.ID))
	if s == nil || s.Revoked || len(c.Hash) == 0 || !bytes.Equal(s.CurrentHash, c.Hash) {
		return nil, badSession()
	}
	u := t.user(s.User)
	switch {
	case u == nil || u.Disabled:
		return nil, badSession()
	case s.ExpiresAt <= c.Now:
		return nil, model.Errorf(model.TokenExpired, "the session has ended; log in again")
	}
	n := *s
	n.RotatedAt, n.ExpiresAt = max(s.RotatedAt, c.Now), max(s.ExpiresAt, c.ExpiresAt)
	if n.RotatedAt == s.RotatedAt && n.ExpiresAt == s.ExpiresAt {
		return s, nil
	}
	n.Version = t.index
	t.putSession(&n)
	return &n, nil
}

// maxUsedTickets bounds what is remembered of one session or token.
const maxUsedTickets = 256

// badTicket is the one refusal for every reason a ticket is no good.
func badTicket() *model.Error {
	return model.Errorf(model.BadCredentials, "the ticket is not valid, has expired or was used")
}

func applyUseTicket(t *tx, c UseTicket) (any, *model.Error) {
	if c.ID == "" || c.ExpiresAt <= c.Now {
		return nil, badTicket()
	}
	if c.TokenID != "" {
		k, _ := t.tokens.byID.Get([]byte(c.TokenID))
		if k == nil || k.ExpiresAt != 0 && k.ExpiresAt <= c.Now {
			return nil, badTicket()
		}
		n := *k
		var refusal *model.Error
		if n.UsedTickets, refusal = useTicket(k.UsedTickets, c); refusal == nil {
			t.putToken(&n)
		}
		return nil, refusal
	}
	s, _ := t.sessions.byID.Get([]byte(c.SessionID))
	if s == nil || s.Revoked || s.ExpiresAt <= c.Now {
		return nil, badTicket()
	}
	n := *s
	var refusal *model.Error
	if n.UsedTickets, refusal = useTicket(s.UsedTickets, c); refusal == nil {
		n.Version = t.index
		t.putSession(&n)
	}
	return nil, refusal
}

// useTicket adds a ticket to those used, of which it keeps what has not expired.
func useTicket(used []UsedTicket, c UseTicket) ([]UsedTicket, *model.Error) {
	var kept []UsedTicket
	for _, u := range used {
		switch {
		case u.ID == c.ID:
			return nil, badTicket()
		case u.ExpiresAt > c.Now:
			kept = append(kept, u)
		}
	}
	if len(kept) >= maxUsedTickets {
		return nil, model.Errorf(model.RateLimited, "too many tickets of this session were used within their time")
	}
	return append(kept, UsedTicket{ID: c.ID, ExpiresAt: c.ExpiresAt}), nil
}

func applyTouchAPITokens(t *tx, c TouchAPITokens) (any, *model.Error) {
	noted := 0
	for _, u := range c.Uses {
		k, _ := t.tokens.byID.Get([]byte(u.ID))
		if k == nil || k.LastUsedAt >= u.At {
			continue
		}
		n := *k
		n.LastUsedAt = u.At
		t.putToken(&n)
		noted++
	}
	return noted, nil
}

func applyRotateSession(t *tx, c RotateSession) (any, *model.Error) {
	s, _ := t.sessions.byID.Get([]byte(c.ID))
	if s == nil || s.Revoked {
		return nil, badSession()
	}
	u := t.user(s.User)
	switch {
	case u == nil || u.Disabled:
		return nil, badSession()
	case s.ExpiresAt <= c.Now:
		return nil, model.Errorf(model.TokenExpired, "the session has ended; log in again")
	case len(c.NextHash) == 0 || c.ExpiresAt <= c.Now:
		return nil, model.Invalid("", "a rotation needs the hash of the next token and an end after now")
	case !bytes.Equal(s.CurrentHash, c.CurrentHash):
		t.revoke(s)
		return nil, badSession()
	}
	n := *s
	n.PreviousHash, n.CurrentHash = s.CurrentHash, c.NextHash
	n.RotatedAt, n.ExpiresAt, n.Version = c.Now, c.ExpiresAt, t.index
	t.putSession(&n)
	return &n, nil
}

func applyRevokeSessions(t *tx, c RevokeSessions) (any, *model.Error) {
	if c.ID == "" {
		return t.revokeAll(c.User), nil
	}
	s, _ := t.sessions.byID.Get([]byte(c.ID))
	if s == nil || c.User != "" && s.User != c.User {
		return 0, nil
	}
	return t.revoke(s), nil
}

func applyCreateAPIToken(t *tx, c CreateAPIToken) (any, *model.Error) {
	if _, refusal := t.findUser(c.User, ""); refusal != nil {
		return nil, refusal
	}
	if problem := model.CheckName(c.Name); problem != "" {
		return nil, model.Invalid("/name", "a token name %s", problem)
	}
	for i, s := range c.Scopes {
		if refusal := refuseFields(CheckScope(fmt.Sprintf("/scopes/%d", i), s)); refusal != nil {
			return nil, refusal
		}
	}
	switch {
	case c.ID == "":
		return nil, model.Invalid("/id", "a token id must not be empty")
	case c.ExpiresAt < 0 || c.ExpiresAt != 0 && c.ExpiresAt <= c.Now:
		return nil, model.Invalid("/expires_in_s", "a token must end after it begins")
	}
	if _, taken := t.tokens.byID.Get([]byte(c.ID)); taken {
		return nil, model.Errorf(model.Conflict, "the token id is taken")
	}
	t.pruneExpired(c.Now)
	if c.MaxTokens > 0 && len(t.tokens.of(c.User)) >= c.MaxTokens {
		return nil, model.Errorf(model.Conflict, "the user has %d API tokens, as many as there may be; delete some", c.MaxTokens)
	}
	k := &APIToken{
		ID: c.ID, User: c.User, Name: c.Name, Scopes: slices.Clone(c.Scopes), Hash: nonEmpty(c.Hash),
		CreatedAt: c.Now, ExpiresAt: c.ExpiresAt, Version: t.index,
	}
	t.putToken(k)
	return k, nil
}

func applyDeleteAPIToken(t *tx, c DeleteAPIToken) (any, *model.Error) {
	k, _ := t.tokens.byID.Get([]byte(c.ID))
	if k == nil || k.User != c.User {
		return nil, model.Errorf(model.NotFound, "the user has no token of this id")
	}
	if c.IfMatch != "" && c.IfMatch != k.ETag() {
		return nil, etagMismatch("the token")
	}
	t.removeToken(k)
	return k, nil
}

func applyAddSigningKey(t *tx, c AddSigningKey) (any, *model.Error) {
	newest := ""
	var version uint64
	t.keys.Root().Walk(func(_ []byte, k *SigningKey) bool {
		if k.Version > version {
			newest, version = k.KID, k.Version
		}
		return false
	})
	switch {
	case newest != c.IfNewest:
		return nil, model.Errorf(model.Conflict, "another signing key was added meanwhile")
	case c.KID == "" || len(c.PublicKey) == 0 || len(c.SealedPrivate) == 0:
		return nil, model.Invalid("", "a signing key needs a kid and both keys")
	case c.SignUntil <= c.Now || c.VerifyUntil < c.SignUntil:
		return nil, model.Invalid("", "a signing key must sign for a while and verify at least as long")
	}
	if _, taken := t.keys.Get([]byte(c.KID)); taken {
		return nil, model.Errorf(model.Conflict, "the kid is taken")
	}
	t.pruneKeys(c.Now)
	k := &SigningKey{
		KID: c.KID, PublicKey: c.PublicKey, SealedPrivate: c.SealedPrivate,
		CreatedAt: c.Now, SignUntil: c.SignUntil, VerifyUntil: c.VerifyUntil, Version: t.index,
	}
	t.putKey(k)
	return k, nil
}
