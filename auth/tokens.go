package auth

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/golang-jwt/jwt/v5"

	"tidewire/cluster/metadata"
	"tidewire/internal/model"
)

// tokenCacheSize bounds the verified tokens that are remembered; an entry takes
// about 400 bytes.
const tokenCacheSize = 1 << 16

// Tokens verifies access tokens and API tokens. It is safe for concurrent use.
type Tokens struct {
	cluster Cluster
	now     func() time.Time
	cache   *tokenCache
	uses    sync.Map // id of an API token → *tokenUse
}

// NewTokens returns a verifier over the cluster's image. now is the wall clock.
func NewTokens(c Cluster, now func() time.Time) *Tokens {
	return &Tokens{cluster: c, now: now, cache: newTokenCache(tokenCacheSize)}
}

var errUnknownKey = errors.New("the token names a key that is not known")

// Verify returns who a token (the compact form, without "Bearer ") belongs to. Each
// call checks the token's expiry and, against the present image, that the user
// exists and is enabled, that the password has not changed since, that the session
// is not revoked and that the key is still good; the signature is checked once. Of an API
// token it checks that the user is enabled and that the token was not deleted.
// Errors: token-expired for a token of which only the time is over, unauthenticated
// for any other that is not good, and the barrier's when the quorum had to be asked
// and could not.
func (t *Tokens) Verify(ctx context.Context, token string) (*Principal, error) {
	if len(token) > MaxTokenBytes {
		return nil, model.Errorf(model.Unauthenticated, "the token is longer than %d bytes", MaxTokenBytes)
	}
	h := hashToken(token)
	v, err := t.known(ctx, &h, token)
	if err != nil {
		return nil, err
	}
	return t.use(ctx, &h, v)
}

// known is a token as the cache has it, which it enters first if it is good.
func (t *Tokens) known(ctx context.Context, h *tokenHash, token string) (*verified, error) {
	v := t.cache.get(h)
	if v == nil {
		var err error
		if v, err = t.parse(ctx, token); err != nil {
			return nil, err
		}
		t.cache.put(h, v)
	}
	return v, nil
}

// use admits a token and notes that it was used.
func (t *Tokens) use(ctx context.Context, h *tokenHash, v *verified) (*Principal, error) {
	p, err := t.admit(ctx, h, v)
	if err == nil && v.use != nil {
		v.use.note(t.now().UnixMilli())
	}
	return p, err
}

// Seen is a token that a client's connection brought, for the next time that it does.
type Seen struct {
	bearer
	hash tokenHash
	v    *verified
}

// Credential is the token as a credential.
func (s *Seen) Credential() Credential { return &s.bearer }

// VerifyAgain is Verify for a connection: last is what it brought before, nil for nothing, and
// what comes back is for the next time. All that Verify checks on every use is checked here
// too. A text is known to be the last one by lying in the same memory, as it does where the
// connection remembers its last head: comparing secrets byte by byte would tell by its time
// how far they agree.
func (t *Tokens) VerifyAgain(ctx context.Context, token string, last *Seen) (*Principal, *Seen, error) {
	if last == nil || last.tokens != t || len(last.token) != len(token) || unsafe.StringData(last.token) != unsafe.StringData(token) {
		if len(token) > MaxTokenBytes {
			p, err := t.Verify(ctx, token)
			return p, nil, err
		}
		last = &Seen{bearer: bearer{t, token}, hash: hashToken(token)}
		var err error
		if last.v, err = t.known(ctx, &last.hash, token); err != nil {
			return nil, nil, err
		}
	}
	p, err := t.use(ctx, &last.hash, last.v)
	return p, last, err
}

// hashToken hashes without copying the token: Sum256 neither keeps nor changes it.
func hashToken(token string) tokenHash {
	return sha256.Sum256(unsafe.Slice(unsafe.StringData(token), len(token)))
}

// admit makes the checks that every use of a token needs.
func (t *Tokens) admit(ctx context.Context, h *tokenHash, v *verified) (*Principal, error) {
	now := t.now()
	if !v.expiresAt.IsZero() && !now.Before(v.expiresAt) {
		t.cache.remove(h)
		return nil, expired()
	}
	if now.Before(v.notBefore) {
		return nil, model.Errorf(model.Unauthenticated, "the token is not valid yet")
	}
	if p := v.current(t.cluster.Image(), now); p != nil {
		return p, nil
	}
	if err := t.cluster.Barrier(ctx); err != nil {
		return nil, err
	}
	if p := v.current(t.cluster.Image(), now); p != nil {
		return p, nil
	}
	t.cache.remove(h)
	return nil, model.Errorf(model.Unauthenticated, "the token is no longer valid")
}

// parse checks form, signature and claims.
func (t *Tokens) parse(ctx context.Context, token string) (*verified, error) {
	parseAt := t.parseAt
	if typeOf(token) == apiTokenType {
		parseAt = t.parseAPIToken
	}
	v, err := parseAt(t.cluster.Image(), token)
	if errors.Is(err, errUnknownKey) {
		if err := t.cluster.Barrier(ctx); err != nil {
			return nil, err
		}
		v, err = parseAt(t.cluster.Image(), token)
	}
	switch {
	case err == nil:
		return v, nil
	case expiredOnly(err):
		return nil, expired().WithCause(err)
	}
	return nil, model.Errorf(model.Unauthenticated, "the token is not valid").WithCause(err)
}

func expired() *model.Error { return model.Errorf(model.TokenExpired, "the token has expired") }

func (t *Tokens) parseAt(img *metadata.Image, token string) (*verified, error) {
	var c claims
	var kid string
	now := t.now()
	if img.Cluster().ID == "" { // an empty issuer would turn its check off
		return nil, errUnknownKey
	}
	_, err := newParser(img, Audience, t.now).ParseWithClaims(token, &c, func(tok *jwt.Token) (any, error) {
		var err error
		if kid, err = kidOf(tok.Header); err != nil {
			return nil, err
		}
		return publicKey(img, kid, now)
	})
	if err != nil {
		return nil, err
	}
	return &verified{
		user: c.Subject, tokenID: c.ID, sessionID: c.Session, kid: kid, epoch: c.Epoch,
		issuedAt: c.IssuedAt.Time, notBefore: c.NotBefore.Time, expiresAt: c.ExpiresAt.Time,
	}, nil
}

// publicKey is the key of a kid in the metadata, while it verifies.
func publicKey(img *metadata.Image, kid string, now time.Time) (any, error) {
	k := img.SigningKey(kid)
	if !verifiesAt(k, now) {
		return nil, errUnknownKey
	}
	return ed25519.PublicKey(k.PublicKey), nil
}

// verifiesAt reports whether tokens signed by the key are still good.
func verifiesAt(k *metadata.SigningKey, now time.Time) bool {
	return k != nil && now.Before(k.VerifyUntil.Time())
}

// Forget drops remembered tokens that a change of the metadata touched: those of a
// changed user, session or key, and deleted API tokens. Verify refuses them without it; it
// frees their memory. Call it with each delta.
func (t *Tokens) Forget(d *metadata.Delta) {
	deleted := false
	for id, change := range d.APITokens {
		if change == metadata.Deleted {
			t.uses.Delete(id)
			deleted = true
		}
	}
	if len(d.Users) == 0 && len(d.Sessions) == 0 && len(d.SigningKeys) == 0 && !deleted {
		return
	}
	t.cache.drop(func(v *verified) bool {
		_, user := d.Users[v.user]
		_, session := d.Sessions[v.sessionID]
		_, key := d.SigningKeys[v.kid]
		return user || session || key || v.api() && d.APITokens[v.tokenID] == metadata.Deleted
	})
}

// verified is a token whose form, signature and fixed claims were good when it was
// first seen. What can change afterwards is checked on every use.
type verified struct {
	user, tokenID, sessionID, kid  string
	epoch                          uint64    // credentials epoch of the user when it was issued
	issuedAt, notBefore, expiresAt time.Time // expiresAt is zero where an API token never ends

	// Of an API token: what is stored of it, what it is narrowed to, and its last use.
	hash   []byte
	scopes *Rules
	use    *tokenUse

	seen atomic.Pointer[standing] // the last good look at an image
}

// standing is what one image says of a token, so that the next request under the
// same image need not look the token's user, session and key up again.
type standing struct {
	index     uint64 // of the image
	until     time.Time
	principal *Principal
}

// current returns the principal if the image still lets the token pass, else nil.
func (v *verified) current(img *metadata.Image, now time.Time) *Principal {
	s := v.seen.Load()
	if s != nil && s.index == img.Index() && now.Before(s.until) {
		return s.principal
	}
	if v.api() {
		return v.currentAPIToken(img)
	}
	user, session, key := img.User(v.user), img.Session(v.sessionID), img.SigningKey(v.kid)
	switch {
	case user == nil || user.Disabled || user.CredentialsEpoch != v.epoch:
		return nil
	case session == nil || session.Revoked || session.User != v.user:
		return nil
	case !verifiesAt(key, now):
		return nil
	}
	next := &standing{index: img.Index(), until: key.VerifyUntil.Time()}
	if s != nil && s.principal.Admin == user.Admin {
		next.principal = s.principal
	} else {
		next.principal = &Principal{
			Name: v.user, Admin: user.Admin, TokenID: v.tokenID, SessionID: v.sessionID,
			IssuedAt: v.issuedAt, ExpiresAt: v.expiresAt, VerifyBy: v.expiresAt, epoch: v.epoch,
		}
	}
	v.seen.Store(next)
	return next.principal
}
